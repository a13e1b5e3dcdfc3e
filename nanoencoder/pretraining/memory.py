"""How much memory of a GPU a run takes, worked out from what model.py keeps for the backward pass.

It is an estimate. tests/test_memory.py compares it with peaks that were measured on an H200, and its count
of a layer with what autograd keeps. docs/pretraining.md has the comparison. Numbers are bytes."""
from dataclasses import replace

from data import OBJECTIVES, rows_at_once
from model import LOGITS, VARLEN_HAS_GQA

CARDS = 24, 40, 80      # GB: an RTX 4090, an A100, an H100
USABLE = 0.93           # of a card's memory: CUDA takes half a GB, and what is freed leaves gaps
FP32 = 4
BF16 = 2


def kept_in_layer(cfg):
    """Count what a layer keeps of a token until its backward pass. Under autocast the stream between layers
    and the norms are fp32, and matrices read and write bf16.

    What is compiled keeps less: it computes cheap things again, as silu(gate) and the norms."""
    sizes = cfg.model
    d = sizes.hidden_size
    inner = sizes.intermediate_size
    queries = sizes.num_attention_heads * sizes.head_size
    keys = sizes.num_key_value_heads * sizes.head_size
    if cfg.cut_rows and not VARLEN_HAS_GQA:
        keys = queries      # repeated for the heads that share them

    norms = 2 * FP32        # of each norm, the factor by which it scaled the token
    stream = 2 * FP32 * d   # the token before attention and before the MLP
    normed = 2 * BF16 * d   # what the projections read
    attention = BF16 * (queries + 2 * keys + queries) + FP32 * sizes.num_attention_heads
    mlp = BF16 * 3 * inner  # gate, up, and what down reads
    if not cfg.compile:
        stream *= 2             # also the norms' results
        normed = 5 * BF16 * d   # a copy for each of q, k, v, gate and up
        mlp += BF16 * inner     # silu(gate)
    return norms + stream + normed + attention + mlp


def weights_of_layer(sizes):
    """Count the numbers in a layer's matrices: query and output, key and value, and three of the MLP."""
    d = sizes.hidden_size
    queries = sizes.num_attention_heads * sizes.head_size
    keys = sizes.num_key_value_heads * sizes.head_size
    return d * (2 * queries + 2 * keys + 3 * sizes.intermediate_size)


def activations(cfg, tokens):
    """Count what the layers keep of a micro-batch until their backward pass, also their weights in bf16."""
    layers = cfg.model.num_hidden_layers
    kept = layers * kept_in_layer(cfg)
    if cfg.recompute:   # each layer keeps what it read, and one at a time computes the rest again
        kept = layers * FP32 * cfg.model.hidden_size + kept_in_layer(cfg)
    return tokens * kept + BF16 * layers * weights_of_layer(cfg.model)


def largest_loss(cfg, tokens):
    """Count what the loss (ChunkedCrossEntropy in model.py) takes for a moment, while all layers keep their
    activations. Of several phases it is that with the most targets."""
    d = cfg.model.hidden_size
    V = cfg.model.vocab_size
    targets = tokens * max(OBJECTIVES[name].expected_targets(cfg) for name in dict(cfg.phases))
    in_chunk = min(targets, LOGITS // (BF16 * V))
    a_logit = BF16 + BF16       # and its gradient
    if not cfg.compile:
        a_logit += FP32         # a copy
    logits = in_chunk * V * a_logit
    head = V * d * (BF16 + FP32 + BF16)     # in bf16, its gradient, and what a chunk adds to that
    states = 2 * FP32 * d * tokens          # before and after the last norm
    chosen = (FP32 + BF16 + BF16) * d * targets     # those with a target, the same in bf16, their gradient
    return logits + head + states + chosen


def memory_at_peak(cfg, world_size, weights, held, rows):
    """Return how many bytes of a GPU a run takes when it computes so many rows at once.

    weights   how many numbers the model has
    held      bytes of weights, gradients and moments in each process"""
    tokens = rows * cfg.context
    if world_size == 1 and rows == cfg.rows_per_step:
        held -= FP32 * weights      # the gradients come while the activations go
    elif world_size > 1 and cfg.parallel == 'fsdp':
        # the embedding and the head are whole in each process, while layers come and go
        held += FP32 * (weights - cfg.model.num_hidden_layers * weights_of_layer(cfg.model))
    return held + activations(cfg, tokens) + largest_loss(cfg, tokens)


def rows_that_fit(cfg, world_size, weights, held, card):
    """Return how many rows at once fit a card of so many GB, of the numbers that divide a process's share of
    a step: 0 if not even one does."""
    share = cfg.rows_per_step // world_size
    usable = USABLE * card * 2 ** 30
    for rows in range(share, 0, -1):
        if share % rows == 0 and memory_at_peak(cfg, world_size, weights, held, rows) <= usable:
            return rows
    return 0


def fit_in_words(cfg, world_size, weights, held, card):
    """Say whether a run fits a card of so many GB, and which --micro_rows is the largest that does."""
    most = rows_that_fit(cfg, world_size, weights, held, card)
    at_once = rows_at_once(cfg, world_size)
    if most > at_once:
        return f'yes, up to --micro_rows={most}'
    if most == at_once:
        return 'yes'
    if most:
        return f'no, but with --micro_rows={most}'
    most = rows_that_fit(replace(cfg, recompute=True), world_size, weights, held, card)
    if most:
        return f'no, but with --micro_rows={most} --recompute'
    return 'no, not even with --micro_rows=1 --recompute'

"""What a run costs, counted and not measured: operations, a GPU's memory, what a network must move. Needs no torch.

`pretrain.py --dry_run` prints it, `tests/bench.py mfu` divides by it, result tables say it of each model.
"""
from data import SHORTEST, rows_at_once

PEAKS = {'H100': 989e12, 'H200': 989e12, 'A100': 312e12, '4090': 165e12}    # FLOP/s, bf16 dense (datasheets)
PEAK = PEAKS['H100']
UTILISATION = 0.4    # of the peak: assumed
INSIDE = 300e9       # bytes a second a GPU sends over NVLink within a node of 8: assumed, two thirds of the datasheet
BETWEEN = 45e9       # and between nodes with 400 Gb/s a GPU: assumed, nine tenths


def flops(cfg, tokens, targets, pairs):
    """Floating-point operations of forward and backward: 3 (2 P tokens + 2 V d targets + 4 L H h pairs).

    P        weights of the layers' matrices: L (2 d (H + K) h + 3 d f)
    targets  positions of which the head computes logits
    pairs    of a position and one that it attends to, summed over segments
    """
    d, f, L, V = cfg.hidden_size, cfg.intermediate_size, cfg.num_hidden_layers, cfg.vocab_size
    H, K, h = cfg.num_attention_heads, cfg.num_key_value_heads, head_size(cfg)
    matrices = L * (2 * d * (H + K) * h + 3 * d * f)
    return 3 * (2 * matrices * tokens + 2 * V * d * targets + 4 * L * H * h * pairs)


def flops_of(cfg, batch, kind):
    """Of one Batch, its segments as they are."""
    pairs = sum(length ** 2 for length in batch.lengths)
    return flops(cfg, len(batch.tokens), len(batch.at), pairs / 2 if kind == 'clm' else pairs)


def flops_per_token(cfg, kind):
    """Expected: cuts are uniform; MLM's targets are mask_ratio of the positions, CLM's all but a segment's last."""
    c = cfg.context
    cuts = range(SHORTEST, c - SHORTEST + 1) if cfg.cut_rows else [c]
    attended = sum(cut ** 2 + (c - cut) ** 2 for cut in cuts) / len(cuts) / c
    behind = 1 - (2 if cfg.cut_rows else 1) / c     # positions with another behind them in their segment
    targets = {'clm': behind, 'mlm': cfg.mask_ratio, 'mntp': cfg.mask_ratio * behind}[kind]
    return flops(cfg, 1, targets, attended / 2 if kind == 'clm' else attended)


def head_size(cfg):
    return cfg.head_dim or cfg.hidden_size // cfg.num_attention_heads


def memory_gib(cfg, world_size, weights):
    """{what: GiB} of one GPU, estimated: fp32 weights, gradients and two moments; bf16 copies; activations kept."""
    micro = rows_at_once(cfg, world_size) * cfg.context
    d, f, h = cfg.hidden_size, cfg.intermediate_size, head_size(cfg)
    # bytes a token and layer under bf16 autocast: two norms' fp32 inputs, the bf16 inputs of five matrices of
    # width d (each casts its own), q, k, v and attention's output, the gate, up, their product, down_proj's input
    layer = 8 * d + 10 * d + 4 * h * (cfg.num_attention_heads + cfg.num_key_value_heads) + 8 * f
    activations = 4 * d * cfg.num_hidden_layers + layer if cfg.recompute else layer * cfg.num_hidden_layers
    ends = cfg.vocab_size * d * (1 if cfg.tie_word_embeddings else 2)  # embedding and head: FSDP has them whole
    # a chunk's logits in bf16, in fp32, their gradient; the head's gradient, a chunk's share of it, the head in bf16
    loss = 8 * min(2048, micro) * cfg.vocab_size + 8 * cfg.vocab_size * d
    gradients = 4 * weights if cfg.rows_per_step // world_size > micro // cfg.context else 0  # whole till the last
    found = {'ddp': 18 * weights, 'fsdp': 16 * weights / world_size + 8 * ends + gradients,
             'activations': micro * activations, 'loss': loss}
    return {name: value / 2 ** 30 for name, value in found.items()}


def gigabytes_moved(weights, gpus, micro_batches):
    """{'ddp', 'fsdp': GB} that a GPU sends in a step, and as much receives, all in fp32 and by rings.

    A ring sends (n - 1) / n of a buffer to gather it or to reduce and scatter it, twice that to reduce it everywhere.
    DDP reduces the gradients once; FSDP gathers the weights for the forward and for the backward pass of each
    micro-batch, and reduces and scatters the gradients of the last.
    """
    once = 4 * weights * (gpus - 1) / gpus / 1e9
    return {'ddp': 2 * once, 'fsdp': (2 * micro_batches + 1) * once}


def efficiency(cfg, weights, gpus, flops):
    """{'ddp', 'fsdp': share of the time in which a GPU computes}, expected; `flops` are those of a step on all GPUs.

    What is sent is hidden behind arithmetic: DDP's behind the last micro-batch's backward pass, two thirds of it,
    FSDP's behind everything. Latency, stragglers and the network's own congestion are not counted.
    """
    micro_batches = max(1, cfg.rows_per_step / gpus / (cfg.micro_rows or cfg.rows_per_step))
    compute = flops / gpus / (PEAK * UTILISATION)
    bandwidth = INSIDE if gpus <= 8 else BETWEEN
    found = {}
    for kind, hidden in (('ddp', 2 / 3 * compute / micro_batches), ('fsdp', compute)):
        exposed = max(0.0, gigabytes_moved(weights, gpus, micro_batches)[kind] * 1e9 / bandwidth - hidden)
        found[kind] = compute / (compute + exposed)
    return found

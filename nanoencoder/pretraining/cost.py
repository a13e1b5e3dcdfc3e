"""What a run costs, counted and not measured: operations, a GPU's memory, what a network must move.

`pretrain.py --dry_run` prints it, `tests/bench.py mfu` divides by it, result tables say it of each model.
"""
import dataclasses
from pathlib import Path
from types import SimpleNamespace

import torch

from data import OBJECTIVES, SHORTEST, rows_at_once
from model import Model, Sizes
from nanoencoder.huggingface import newest_checkpoint
from nanoencoder.processes import check_rows
from nanoencoder.settings import build
from nanoencoder.shards import read_meta

PEAK = 989e12        # FLOP/s of an H100 or H200, bf16 dense (datasheet)
UTILISATION = 0.4    # of the peak: assumed
NODE = 8             # GPUs
# bytes/s of a ring, assumed: two thirds of NVLink's 450 GB/s a direction inside a node, where it is slowest;
# between nodes all eight GPUs send at once, by 8 x 400 Gb/s
RING = 300e9


# ---------------------------------------------------------------------------------------------- operations

def count_flops(sizes, tokens, targets, pairs):
    """Floating-point operations of forward and backward: 3 (2 P tokens + 2 V d targets + 4 L H h pairs).

    P        weights of the layers' matrices: L (2 d (H + K) h + 3 d f)
    targets  positions of which the head computes logits
    pairs    of a position and one that it attends to, summed over segments
    """
    d, f, L, V = sizes.hidden_size, sizes.intermediate_size, sizes.num_hidden_layers, sizes.vocab_size
    H, K, h = sizes.num_attention_heads, sizes.num_key_value_heads, sizes.head_size
    matrices = L * (2 * d * (H + K) * h + 3 * d * f)
    return 3 * (2 * matrices * tokens + 2 * V * d * targets + 4 * L * H * h * pairs)


def flops_per_token(cfg, kind):
    """Expected: cuts are uniform, and the objective says how many targets a position has."""
    def squares(n):
        return n * (n + 1) * (2 * n + 1) // 6  # 1 + 4 + 9 + ... + n ** 2
    c, cuts = cfg.context, cfg.context - 2 * SHORTEST + 1
    attended = c  # positions that one attends to, on average, in both directions
    if cfg.cut_rows:  # segments of `cut` and of c - cut tokens, which run through the same lengths
        attended = 2 * (squares(c - SHORTEST) - squares(SHORTEST - 1)) / cuts / c
    if OBJECTIVES[kind].causal:
        attended /= 2
    return count_flops(cfg.model, 1, OBJECTIVES[kind].expected_targets(cfg), attended)


def flops_until(cfg, step):
    """Of the first steps of a run."""
    per_pass = sum(steps for _, steps in cfg.phases)
    passes, rest = divmod(step, per_pass)
    flops = 0.0
    for kind, steps in cfg.phases:
        done = passes * steps + min(steps, rest)
        rest -= min(steps, rest)
        flops += done * cfg.rows_per_step * cfg.context * flops_per_token(cfg, kind)
    return flops


def flops_of_state(state):
    """Of a checkpoint's state.json: as it says, or counted from its settings where it is too old to say."""
    if 'flops' in state:
        return state['flops']
    cfg = {'repeat': 1} | state['settings']
    sizes = build(Sizes, cfg)
    return flops_until(SimpleNamespace(**cfg | {'model': sizes}), state['step'])


# -------------------------------------------------------------------------------------- memory and network

def end_weights(sizes):
    """Weights of the embedding and the head, which FSDP gathers together."""
    return sizes.vocab_size * sizes.hidden_size * (1 if sizes.tie_word_embeddings else 2)


def micro_batches(cfg, gpus):
    share = cfg.rows_per_step / gpus
    return max(1, share / min(cfg.micro_rows or share, share))


def memory_gib(cfg, gpus, weights):
    """{what: GiB} of one GPU, estimated: fp32 weights, gradients, two moments; bf16 copies; activations."""
    sizes, micro = cfg.model, rows_at_once(cfg, gpus) * cfg.context
    d, f, h, V = sizes.hidden_size, sizes.intermediate_size, sizes.head_size, sizes.vocab_size
    # bytes a token and layer under bf16 autocast: two norms' fp32 inputs, the bf16 inputs of five matrices of
    # width d (each casts its own), q, k, v and attention's output, the gate, up, their product, down_proj's
    # input
    heads = sizes.num_attention_heads + sizes.num_key_value_heads
    layer = 8 * d + 10 * d + 4 * h * heads + 8 * f
    layers = sizes.num_hidden_layers
    activations = 4 * d * layers + layer if cfg.recompute else layer * layers
    # a chunk's logits and their gradient in bf16, in fp32 between; the head in bf16, its gradient and a
    # chunk's
    loss = (4 if cfg.compile else 8) * min(2048, micro) * V + 8 * V * d
    # FSDP gathers the ends whole; their gradients are whole until shared, with several micro-batches all are
    ends = end_weights(sizes)
    whole = 4 * ends + 4 * (weights if micro_batches(cfg, gpus) > 1 else ends)
    memory = {'ddp': 18 * weights, 'fsdp': 16 * weights / min(gpus, NODE) + whole,
              'activations': micro * activations, 'loss': loss}
    return {name: value / 2 ** 30 for name, value in memory.items()}


def gigabytes_sent(cfg, gpus, weights):
    """{'ddp', 'fsdp': (GB that go through a ring in a step, those with no arithmetic beside them)}, in fp32.

    A ring of n sends (n - 1) / n of a buffer to gather it or to reduce and scatter it, twice that to reduce
    it everywhere. DDP reduces all gradients once; the embedding's comes last. FSDP, inside a node, gathers a
    layer for the forward and for the backward pass of each micro-batch, the ends once for both, before the
    first layer; the last micro-batch reduces and scatters all gradients, those of the ends last. Between
    nodes each GPU then reduces its shard: eight rings at once, together as one of all weights.
    """
    def ring(n):
        return 4 * (n - 1) / n / 1e9
    m, ends, inside = micro_batches(cfg, gpus), end_weights(cfg.model), ring(min(gpus, NODE))
    layers, between = weights - ends, 2 * ring(max(1, gpus / NODE))
    embedding = cfg.model.vocab_size * cfg.model.hidden_size
    return {'ddp': (2 * weights * ring(gpus), 2 * embedding * ring(gpus)),
            'fsdp': ((layers * (2 * m + 1) + ends * (m + 1)) * inside + weights * between,
                     ends * ((m + 1) * inside + between))}


def efficiency(cfg, gpus, weights, flops):
    """{'ddp', 'fsdp': share of the time in which a GPU computes}, expected; `flops` are a step's on all GPUs.

    What can be hidden behind arithmetic is: DDP's behind the last micro-batch's backward pass, two thirds of
    it, FSDP's behind everything. Latency, stragglers and the network's own congestion are not counted.
    """
    compute = flops / gpus / (PEAK * UTILISATION)
    behind = {'ddp': 2 / 3 * compute / micro_batches(cfg, gpus), 'fsdp': compute}
    shares = {}
    for kind, (sent, alone) in gigabytes_sent(cfg, gpus, weights).items():
        waiting = alone * 1e9 / RING + max(0.0, (sent - alone) * 1e9 / RING - behind[kind])
        shares[kind] = compute / (compute + waiting)
    return shares


# ------------------------------------------------------------------------------------------------- dry run

def describe_phases(cfg, word=str):
    """10,000 steps of clm, then 32,000 steps of mlm."""
    phases = ', then '.join(f'{steps:,} step{"s" * (steps > 1)} of {word(kind)}'
                            for kind, steps in cfg.phases)
    return phases if cfg.repeat == 1 else f'{cfg.repeat:,} times: {phases}'


def dry_run(cfg, world_size):
    """Print what a run will be; ends with an error if rows do not divide."""
    check_rows(dataclasses.replace(cfg, micro_rows=0), world_size)
    with torch.device('meta'):
        model = Model(cfg.model)
    weights = sum(p.numel() for p in model.parameters())
    body = weights - (model.lm_head.weight.numel() if model.lm_head else 0)
    print(f"""\
run         {cfg.name}: {describe_phases(cfg)}
parameters  {body:,} with the input embedding and without the output head (as "610M" counts)
            {weights:,} in all""")
    print_data(cfg)
    print_computing(cfg, world_size, weights)
    print_storage(cfg, world_size, weights)
    check_rows(cfg, world_size)


def print_data(cfg):
    step, rows = cfg.rows_per_step * cfg.context, cfg.first_row + cfg.total_steps * cfg.rows_per_step
    path, tokens, state, epochs = Path(cfg.corpus) / 'meta.json', rows * cfg.context, 'not there yet', 0
    if path.exists():
        tokens = read_meta(cfg.corpus)['tokens']
        epochs = rows / max(1, tokens // cfg.context)
        state = f'{tokens:,} tokens, read {epochs:.2f} times'
    gigabytes = tokens * (2 if cfg.model.vocab_size <= 2 ** 16 else 4) / 1e9
    print(f"""\
tokens      {step:,} a step, {step * cfg.total_steps:,} in all
corpus      {cfg.corpus}: {state}
            {gigabytes:,.1f} GB on disk{"" if epochs else " for one epoch"}""")
    if epochs > 1:
        print(f'warning     the run reads its corpus {epochs:.2f} times; the paper trains on unique tokens')


def branch_step(cfg):
    """The step of branch_from; 0 where neither its path says it nor the folder is there."""
    folder = Path(cfg.branch_from)
    if cfg.branch_from and folder.is_dir():
        folder = newest_checkpoint(folder)
    step = int(folder.name) if folder.name.isdigit() else 0
    if step >= cfg.total_steps:
        raise ValueError(f'branch_from {folder} is at step {step:,}, and this run has {cfg.total_steps:,}')
    return step


def print_computing(cfg, world_size, weights):
    rows, begun = cfg.rows_per_step, branch_step(cfg)
    flops = flops_until(cfg, cfg.total_steps) - flops_until(cfg, begun)
    hours = flops / (PEAK * UTILISATION) / 3600
    kinds = dict.fromkeys(kind for kind, _ in cfg.phases)
    per_token = ', '.join(f'{flops_per_token(cfg, kind):.3g} of {kind}' for kind in kinds)
    shares = {gpus: efficiency(cfg, gpus, weights, flops / (cfg.total_steps - begun))
              for gpus in sorted({1, 8, 192, 1_024, world_size})}
    waited = hours / world_size / shares[world_size][cfg.parallel]
    sent = {kind: total for kind, (total, _) in gigabytes_sent(cfg, world_size, weights).items()}
    print(f"""\
operations  {flops:.3g} FLOP{f' after step {begun:,}' if begun else ''}; a token {per_token}
time        {hours:,.1f} GPU-hours of an H100 or H200 at an assumed {UTILISATION:.0%} of \
{PEAK / 1e12:.0f} TFLOP/s (MFU)
            {waited:,.1f} hours on {world_size}, with what they wait for the network
rows        {rows:,} a step, {rows // world_size:,} a process
            {rows_at_once(cfg, world_size)} at once
network     {sent['ddp']:.1f} GB a step (ddp) or {sent['fsdp']:.1f} (fsdp) in fp32 go through a ring; at \
{RING / 1e9:.0f} GB/s,
            inside a node of {NODE} and between nodes with 400 Gb/s a GPU, GPUs are expected to compute""")
    for gpus in [gpus for gpus in shares if gpus > 1]:
        divides = '' if rows % gpus == 0 else f'; rows_per_step would have to be a multiple of {gpus:,}'
        print(f'            {shares[gpus]["ddp"]:.0%} (ddp) or {shares[gpus]["fsdp"]:.0%} (fsdp) of the time '
              f'on {gpus:,} GPUs, {rows / gpus:.3g} rows each{divides}')


def print_storage(cfg, world_size, weights):
    memory, last, checkpoint = memory_gib(cfg, world_size, weights), cfg.total_steps, 12 * weights / 1e9
    total = memory[cfg.parallel] + memory['activations'] + memory['loss']
    kept, every = {step for step in cfg.save_at if step < last}, cfg.save_every or last
    number = len(kept) + 1 + min(cfg.keep, (last - 1) // every - sum(step % every == 0 for step in kept))
    print(f"""\
memory      of a GPU, about, for weights, gradients, AdamW {memory['ddp']:.1f} GiB (ddp) \
or {memory['fsdp']:.1f} (fsdp)
            {memory['activations']:.1f} GiB for activations, {memory['loss']:.1f} for the loss: \
{total:.1f} in all under {cfg.parallel}
            {checkpoint:.1f} GB of rank 0's host while a checkpoint is written
disk        {checkpoint:.1f} GB a checkpoint, {number} at the end: {checkpoint * number:,.0f} GB""")

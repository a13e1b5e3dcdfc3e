"""What a run costs, counted and not measured: operations, a GPU's memory, what a network must move. Needs no torch.

`pretrain.py --dry_run` prints it, `tests/bench.py mfu` divides by it, result tables say it of each model.
"""
from data import SHORTEST, rows_at_once

PEAKS = {'NVIDIA H200': 989e12, 'NVIDIA H100 80GB HBM3': 989e12, 'NVIDIA H100 NVL': 835e12, 'NVIDIA H100 PCIe': 756e12,
         'NVIDIA A100-SXM4-80GB': 312e12, 'NVIDIA A100-SXM4-40GB': 312e12, 'NVIDIA A100 80GB PCIe': 312e12,
         'NVIDIA GeForce RTX 4090': 165e12}    # FLOP/s, bf16 dense, by torch's names (datasheets)
PEAK = PEAKS['NVIDIA H200']
UTILISATION = 0.4    # of the peak: assumed
INSIDE = 300e9       # bytes a second a GPU sends over NVLink within a node of 8: assumed, two thirds of the datasheet
BETWEEN = 45e9       # and between nodes with 400 Gb/s a GPU: assumed, nine tenths


# ---------------------------------------------------------------------------------------------------- operations

def count_flops(cfg, tokens, targets, pairs):
    """Floating-point operations of forward and backward: 3 (2 P tokens + 2 V d targets + 4 L H h pairs).

    P        weights of the layers' matrices: L (2 d (H + K) h + 3 d f)
    targets  positions of which the head computes logits
    pairs    of a position and one that it attends to, summed over segments
    """
    d, f, L, V = cfg.hidden_size, cfg.intermediate_size, cfg.num_hidden_layers, cfg.vocab_size
    H, K, h = cfg.num_attention_heads, cfg.num_key_value_heads, head_size(cfg)
    matrices = L * (2 * d * (H + K) * h + 3 * d * f)
    return 3 * (2 * matrices * tokens + 2 * V * d * targets + 4 * L * H * h * pairs)


def batch_flops(cfg, batch, kind):
    """Of one Batch, its segments as they are."""
    pairs = sum(length ** 2 for length in batch.lengths)
    return count_flops(cfg, len(batch.tokens), len(batch.at), pairs / 2 if kind == 'clm' else pairs)


def flops_per_token(cfg, kind):
    """Expected: cuts are uniform; MLM's targets are mask_ratio of the positions, CLM's all but a segment's last."""
    c = cfg.context
    cuts = range(SHORTEST, c - SHORTEST + 1) if cfg.cut_rows else [c]
    attended = sum(cut ** 2 + (c - cut) ** 2 for cut in cuts) / len(cuts) / c
    behind = 1 - (2 if cfg.cut_rows else 1) / c     # positions with another behind them in their segment
    targets = {'clm': behind, 'mlm': cfg.mask_ratio, 'mntp': cfg.mask_ratio * behind}[kind]
    return count_flops(cfg, 1, targets, attended / 2 if kind == 'clm' else attended)


def head_size(cfg):
    return cfg.head_dim or cfg.hidden_size // cfg.num_attention_heads


# ------------------------------------------------------------------------------------------- memory and network

def ends(cfg):
    """Weights of the embedding and the head, which FSDP gathers together."""
    return cfg.vocab_size * cfg.hidden_size * (1 if cfg.tie_word_embeddings else 2)


def micro_batches(cfg, gpus):
    share = cfg.rows_per_step / gpus
    return max(1, share / min(cfg.micro_rows or share, share))


def memory_gib(cfg, gpus, weights):
    """{what: GiB} of one GPU, estimated: fp32 weights, gradients and two moments; bf16 copies; activations kept."""
    micro = rows_at_once(cfg, gpus) * cfg.context
    d, f, h = cfg.hidden_size, cfg.intermediate_size, head_size(cfg)
    # bytes a token and layer under bf16 autocast: two norms' fp32 inputs, the bf16 inputs of five matrices of
    # width d (each casts its own), q, k, v and attention's output, the gate, up, their product, down_proj's input
    layer = 8 * d + 10 * d + 4 * h * (cfg.num_attention_heads + cfg.num_key_value_heads) + 8 * f
    activations = 4 * d * cfg.num_hidden_layers + layer if cfg.recompute else layer * cfg.num_hidden_layers
    # a chunk's logits and their gradient in bf16, and in fp32 between; the head in bf16, its gradient and a chunk's
    loss = (4 if cfg.compile else 8) * min(2048, micro) * cfg.vocab_size + 8 * cfg.vocab_size * d
    # FSDP gathers the ends whole; their gradients are whole until shared, with several micro-batches all are
    whole = 4 * ends(cfg) + 4 * (weights if micro_batches(cfg, gpus) > 1 else ends(cfg))
    found = {'ddp': 18 * weights, 'fsdp': 16 * weights / gpus + whole, 'activations': micro * activations, 'loss': loss}
    return {name: value / 2 ** 30 for name, value in found.items()}


def gigabytes_sent(cfg, gpus, weights):
    """{'ddp', 'fsdp': (GB that a GPU sends in a step, those of them with no arithmetic beside them)}, in fp32.

    By rings, which send (n - 1) / n of a buffer to gather it or to reduce and scatter it, twice that to reduce it
    everywhere. DDP reduces all gradients once; the embedding's comes last. FSDP gathers a layer for the forward and
    for the backward pass of each micro-batch, the ends once for both, before the first layer; the last micro-batch
    reduces and scatters all gradients, those of the ends last.
    """
    m, ring = micro_batches(cfg, gpus), 4 * (gpus - 1) / gpus / 1e9
    layers = weights - ends(cfg)
    return {'ddp': (2 * weights * ring, 2 * cfg.vocab_size * cfg.hidden_size * ring),
            'fsdp': ((layers * (2 * m + 1) + ends(cfg) * (m + 1)) * ring, ends(cfg) * (m + 1) * ring)}


def efficiency(cfg, gpus, weights, flops):
    """{'ddp', 'fsdp': share of the time in which a GPU computes}, expected; `flops` are those of a step on all GPUs.

    What can be hidden behind arithmetic is: DDP's behind the last micro-batch's backward pass, two thirds of it,
    FSDP's behind everything. Latency, stragglers and the network's own congestion are not counted.
    """
    compute = flops / gpus / (PEAK * UTILISATION)
    bandwidth = (INSIDE if gpus <= 8 else BETWEEN) / 1e9
    behind = {'ddp': 2 / 3 * compute / micro_batches(cfg, gpus), 'fsdp': compute}
    shares = {}
    for kind, (sent, alone) in gigabytes_sent(cfg, gpus, weights).items():
        waiting = alone / bandwidth + max(0.0, (sent - alone) / bandwidth - behind[kind])
        shares[kind] = compute / (compute + waiting)
    return shares

"""What a run costs, counted and not measured. `pretrain.py --dry_run` prints it."""
from pathlib import Path

import torch

from data import OBJECTIVES, SHORTEST, check_rows, rows_at_once
from model import Model
from nanoencoder.files import read_json, saved_state
from nanoencoder.huggingface import newest_checkpoint, run_of

PEAKS = {'H100': 989e12, 'A100': 312e12, 'RTX 4090': 165e12}  # FLOP/s in bf16, dense; datasheets
UTILISATION = 0.4    # of the peak: assumed


def count_flops(sizes, tokens, targets, pairs):
    """Operations of forward and backward: 3 (2 P tokens + 2 V d targets + 4 L H h pairs). P: weights of the
    layers' matrices; targets have logits; pairs are of a position and one that it attends to."""
    d, f, L, V = sizes.hidden_size, sizes.intermediate_size, sizes.num_hidden_layers, sizes.vocab_size
    H, K, h = sizes.num_attention_heads, sizes.num_key_value_heads, sizes.head_size
    matrices = L * (2 * d * (H + K) * h + 3 * d * f)
    return 3 * (2 * matrices * tokens + 2 * V * d * targets + 4 * L * H * h * pairs)


def flops_per_token(cfg, objective):
    """Expected: cuts are uniform, and the objective says how many targets a position has."""
    c = attended = cfg.context  # positions that one attends to, on average, in both directions
    if cfg.cut_rows:  # segments of `cut` and of c - cut tokens, which run through the same lengths
        cuts = range(SHORTEST, c - SHORTEST + 1)
        attended = 2 * sum(cut ** 2 for cut in cuts) / len(cuts) / c
    if OBJECTIVES[objective].causal:
        attended /= 2
    return count_flops(cfg.model, 1, OBJECTIVES[objective].expected_targets(cfg), attended)


def flops_until(cfg, step):
    (passes, rest), flops = divmod(step, sum(steps for _, steps in cfg.phases)), 0.0
    for objective, steps in cfg.phases:
        done = passes * steps + min(steps, rest)
        rest -= min(steps, rest)
        flops += done * cfg.rows_per_step * cfg.context * flops_per_token(cfg, objective)
    return flops


def summary(cfg, step, weights):
    """What tables and figures say of a checkpoint. A study's runs of one row differ in their seed alone."""
    count = sum(weight.numel() for name, weight in weights.items() if name != 'lm_head.weight')
    family = f'{count / 1e9:.1f}B' if count >= 1e9 else f'{count / 1e6:.{0 if count >= 1e7 else 1}f}M'
    parent = run_of(cfg.weights_from).name if cfg.weights_from else ''
    facts = {'family': family, 'phases': cfg.phases, 'mask_ratio': cfg.mask_ratio, 'step': step,
             'tokens': step * cfg.rows_per_step * cfg.context, 'flops': flops_until(cfg, step),
             'seed': cfg.seed, 'continues': parent.removesuffix(f'-s{cfg.seed}') if cfg.row else parent,
             'row': f'{cfg.row}-{step}' if cfg.row and step < cfg.total_steps else cfg.row}
    return facts | ({'repeat': cfg.repeat} if cfg.repeat > 1 else {})


def dry_run(cfg, world_size):
    check_rows(cfg, world_size)
    with torch.device('meta'):
        model = Model(cfg.model)
    weights, body = (sum(p.numel() for p in part.parameters()) for part in (model, model.model))
    phases = ', then '.join(f'{steps:,} steps of {name}' for name, steps in cfg.phases)
    phases = phases if cfg.repeat == 1 else f'{cfg.repeat:,} times: {phases}'
    last, step_tokens, parent = cfg.total_steps, cfg.rows_per_step * cfg.context, cfg.branch_from
    begun = saved_state(newest_checkpoint(parent))['step'] if parent else 0
    tokens = read_json(meta)['tokens'] if (meta := Path(cfg.corpus, 'meta.json')).exists() else 0
    epochs = (cfg.first_row + last * cfg.rows_per_step) / max(1, tokens // cfg.context)
    flops = flops_until(cfg, last) - flops_until(cfg, begun)
    per_token = ', '.join(f'{flops_per_token(cfg, name):.3g} of {name}' for name in dict(cfg.phases))
    hours = ', '.join(f'{flops / (peak * UTILISATION) / 3600 / world_size:,.1f} on {world_size} {gpu}'
                      for gpu, peak in PEAKS.items())
    share, at_once = cfg.rows_per_step // world_size, rows_at_once(cfg, world_size)
    # with several micro-batches FSDP's gradients stay whole until the last
    matrices = sum(p.numel() for p in model.model.layers.parameters() if p.ndim == 2)
    held = 16 * weights - 4 * matrices * (cfg.optimizer == 'muon')  # weight, gradient, two moments or one
    sharded = held / world_size + 4 * weights * (share > at_once)
    checkpoint, kept = (held - 4 * weights) / 1e9, len(cfg.save_at) + cfg.keep + 1
    print(f"""\
run         {cfg.name}: {phases}
parameters  {body:,} with the input embedding and without the output head (as "610M" counts)
            {weights:,} in all
tokens      {step_tokens:,} a step, {step_tokens * last:,} in all
corpus      {cfg.corpus}: {f'{tokens:,} tokens, read {epochs:.2f} times' if tokens else 'not there yet'}
operations  {flops:.3g} FLOP{f' after step {begun:,}' if begun else ''}; a token {per_token}
hours       {hours}: at an assumed {UTILISATION:.0%} of their peaks
rows        {cfg.rows_per_step:,} a step, {share:,} a process, {at_once} at once
memory      {held / 2 ** 30:.2f} GiB of each GPU for weights, gradients and {cfg.optimizer}'s moments (ddp)
            {sharded / 2 ** 30:.2f} GiB (fsdp); activations come on top
disk        {checkpoint:.2f} GB a checkpoint, at most {kept} of them: {checkpoint * kept:,.2f} GB""")
    if tokens and epochs > 1:
        print(f'warning     the run reads its corpus {epochs:.2f} times; the paper trains on unique tokens')

"""What a run costs, counted before it starts: `pretrain.py --dry_run` prints it. A run's log says how much of
the peak of its GPUs it uses."""
import math
from collections import Counter
from pathlib import Path

import torch

from data import OBJECTIVES, SHORTEST, check_rows, objective_at, rows_at_once
from model import Model
from nanoencoder import prepare
from nanoencoder.files import saved_state
from nanoencoder.huggingface import is_hub_id, newest_checkpoint, run_of_checkpoint
from nanoencoder.optimizers import groups_in_words, make_groups
from nanoencoder.pretraining.known_losses import expected_in_words
from nanoencoder.pretraining.memory import CARDS, fit_in_words, memory_at_peak, weights_of_layer
from nanoencoder.processes import has_fa3
from nanoencoder.settings import parse

PEAKS = {  # FLOP/s in bf16 without sparsity, by torch's names of GPUs; NVIDIA's datasheets
    'NVIDIA A100-PCIE-40GB': 312e12,
    'NVIDIA A100 80GB PCIe': 312e12,
    'NVIDIA A100-SXM4-40GB': 312e12,
    'NVIDIA A100-SXM4-80GB': 312e12,
    'NVIDIA H100 80GB HBM3': 989e12,
    'NVIDIA H100 PCIe': 756e12,
    'NVIDIA H100 NVL': 835e12,
    'NVIDIA H200': 989e12,
    'NVIDIA L4': 121e12,
    'NVIDIA L40S': 362e12,
    'NVIDIA GeForce RTX 4090': 165e12,
}
GPUS = {    # for which --dry_run says how long
    'H100': 'NVIDIA H100 80GB HBM3',
    'A100': 'NVIDIA A100-SXM4-80GB',
    'RTX 4090': 'NVIDIA GeForce RTX 4090',
}
UTILISATION = 0.4    # of the peak: an H200 reached 0.32 (an update after 6 rows) to 0.41 (after 32) at 610M
TOKENISED = 1.9e6    # tokens a second that data.py makes of texts on one CPU core: docs/speed.md


def count_flops(sizes, tokens, targets, pairs):
    """Count the operations of a forward and a backward pass, which costs twice as much as the forward one.
    `pairs` are of a position and one that it attends to; logits are computed only of `targets`."""
    d = sizes.hidden_size
    L = sizes.num_hidden_layers
    queries = sizes.num_attention_heads * sizes.head_size
    # a weight, like a number of a key or a value that one attends to, is multiplied and added
    matrices = 2 * L * weights_of_layer(sizes) * tokens
    logits = 2 * d * sizes.vocab_size * targets
    attention = 4 * L * queries * pairs
    return 3 * (matrices + logits + attention)


def flops_per_token(cfg, objective):
    """Operations a token, as expected: cuts are uniform, and the objective says how many targets it has."""
    context = cfg.context
    attended = context      # positions that one attends to, on average, in both directions
    if cfg.cut_rows:        # segments of `cut` and of context - cut tokens, which take the same lengths
        cuts = range(SHORTEST, context - SHORTEST + 1)
        squares = sum(cut ** 2 for cut in cuts)
        attended = 2 * squares / len(cuts) / context
    if OBJECTIVES[objective].causal:
        attended /= 2
    targets = OBJECTIVES[objective].expected_targets(cfg)
    return count_flops(cfg.counted_sizes, 1, targets, attended)


def flops_until(cfg, step, first=0):
    """Operations of a run's steps from the first, counted from 0, to a step."""
    flops = 0.0
    counted = Counter(objective_at(s, cfg) for s in range(first, step))
    for objective, steps in counted.items():
        tokens = steps * cfg.rows_per_step * cfg.context
        flops += tokens * flops_per_token(cfg, objective)
    return flops


def peak_of(world):
    """Return the FLOP/s in bf16 of all GPUs of a run, taken to be alike. It is 0 for other devices and
    for GPUs that are not in PEAKS."""
    if world.device.type != 'cuda':
        return 0
    name = torch.cuda.get_device_name(world.device)
    return world.size * PEAKS.get(name, 0)


def numbers_in(tensors):
    """How many numbers these tensors hold."""
    return sum(tensor.numel() for tensor in tensors)


def family_of(count):
    """The size of a model in words, such as 610M, of how many weights it has."""
    if count >= 1e9:
        return f'{count / 1e9:.1f}B'
    if count >= 1e7:
        return f'{count / 1e6:.0f}M'
    return f'{count / 1e6:.1f}M'


def summary(cfg, step, weights):
    """What tables and figures say of a checkpoint. Runs of one row of a study differ only in their seed."""
    count = numbers_in(weight for name, weight in weights.items() if name != 'lm_head.weight')
    parent = ''
    if cfg.weights_from:
        parent = run_of_checkpoint(cfg.weights_from).name
    row = cfg.row
    if row:
        parent = parent.removesuffix(f'-s{cfg.seed}')
        if step < cfg.total_steps:
            row += f'-{step}'
    facts = {
        'family': family_of(count),
        'phases': cfg.phases,
        'mask_ratio': cfg.mask_ratio,
        'step': step,
        'tokens': step * cfg.rows_per_step * cfg.context,
        'flops': flops_until(cfg, step),
        'seed': cfg.seed,
        'continues': parent,
        'row': row,
    }
    if cfg.repeat > 1:
        facts['repeat'] = cfg.repeat
    return facts


def times(flops, world_size):
    """Say how long so many operations take on so many of each GPU."""
    parts = []
    for gpu, name in GPUS.items():
        seconds = flops / (PEAKS[name] * UTILISATION) / world_size
        parts.append(f'{time_in_words(seconds)} on {world_size} {gpu}')
    return ', '.join(parts)


def time_in_words(seconds):
    """Write a time in hours, or where it is short in minutes or seconds."""
    if seconds < 1:
        return 'under 1 s'
    if seconds < 60:
        return f'{seconds:.0f} s'
    if seconds < 3600:
        return f'{seconds / 60:.0f} min'
    return f'{seconds / 3600:,.1f} hours'


def is_missing(parent):
    """Whether a run's parent, '' for none, is a folder that is not there yet."""
    return bool(parent) and not Path(parent).exists() and not is_hub_id(parent)


def corpus_of(cfg):
    """Return what --dry_run says of a run's corpus, how often the run reads it (0 if nobody knows yet), and
    the seconds that one CPU core takes to make it (0 if it is there)."""
    rows = cfg.first_row + cfg.total_steps * cfg.rows_per_step
    if Path(cfg.corpus, 'meta.json').exists():
        tokens = prepare.read_meta(cfg.corpus)['tokens']
        epochs = rows / max(1, tokens // cfg.context)
        return f'{tokens:,} tokens, read {epochs:.2f} times', epochs, 0

    command, tokens = corpus_command(cfg)
    words = f'not there yet. To make it:\n{"":12}{command}'
    if not tokens:
        return words, 0, 0
    return words, rows * cfg.context / tokens, tokens / TOKENISED


def corpus_command(cfg):
    """Return the command that makes a run's corpus, and how many tokens it will have; 0: its texts decide."""
    for path in sorted(Path('configs/corpora').glob('*.py')):
        corpus, _ = parse(prepare.Settings, [str(path)])
        if Path(corpus.out) == Path(cfg.corpus):
            break
    else:
        command = f'python data.py configs/corpora/folder.py --path=YOUR_TEXTS --out={cfg.corpus}'
        if cfg.weights_from:
            command += f' --tokenizer={cfg.weights_from}'
        return command, 0

    command = f'python data.py {path}'
    if corpus.source == 'folder':
        are_there = all(Path(texts).exists() for texts in corpus.path.split(', '))
        if corpus.made_by and not are_there:
            command = f'{corpus.made_by} && {command}'
        return command, 0
    tokens = corpus.max_tokens
    if not tokens:  # as many as the run reads and the corpus holds out, rounded up to three digits
        rows = cfg.first_row + cfg.total_steps * cfg.rows_per_step
        needed = math.ceil(rows * cfg.context / (1 - corpus.val_permille / 1000))
        unit = 10 ** max(0, len(str(needed)) - 3)
        tokens = math.ceil(needed / unit) * unit
        command += f' --max_tokens={tokens:_}'
    return command, tokens


def memory_in_words(cfg, world_size, model):
    """Return what --dry_run says of the memory of a GPU and of the disk."""
    weights = numbers_in(model.parameters())
    at_once = rows_at_once(cfg, world_size)
    moments = 8 * weights   # bytes: two numbers in fp32 a weight, with Muon one of the layers' matrices
    if cfg.optimizer == 'muon':
        moments -= 4 * numbers_in(p for p in model.model.layers.parameters() if p.ndim == 2)
    saved = 4 * weights + moments
    held = saved + 4 * weights      # gradients, too
    sharded = held / world_size
    if cfg.rows_per_step // world_size > at_once:
        # with several micro-batches FSDP's gradients stay whole until the last
        sharded += 4 * weights

    in_use = sharded if cfg.parallel == 'fsdp' else held
    at_peak = memory_at_peak(cfg, world_size, weights, in_use, at_once)
    fits = [f'{card} GB: {fit_in_words(cfg, world_size, weights, in_use, card)}' for card in CARDS]
    kept = len(cfg.save_at) + cfg.keep + 1
    separator = f'\n{"":12}'
    return f"""\
memory      {held / 2 ** 30:.2f} GiB of each GPU for weights, gradients and {cfg.optimizer}'s moments (ddp)
            {sharded / 2 ** 30:.2f} GiB (fsdp)
            {at_peak / 2 ** 30:.3g} GiB with the activations of {at_once} rows ({cfg.parallel}), an estimate
fits        {separator.join(fits)}
disk        {saved / 1e9:.2f} GB a checkpoint, at most {kept} of them: {saved * kept / 1e9:,.2f} GB"""


def dry_run(cfg, world_size):
    """Print what a run will need on so many processes."""
    check_rows(cfg, world_size)
    with torch.device('meta'):
        model = Model(cfg.model)
    body = numbers_in(model.model.parameters())
    weights = numbers_in(model.parameters())
    phases = ', then '.join(f'{steps:,} steps of {name}' for name, steps in cfg.phases)
    if cfg.repeat > 1:
        phases = f'{cfg.repeat:,} times: {phases}'
    step_tokens = cfg.rows_per_step * cfg.context
    share = cfg.rows_per_step // world_size
    at_once = rows_at_once(cfg, world_size)

    corpus, epochs, seconds = corpus_of(cfg)
    before = ''
    if seconds:
        before = f'\n{"":12}before that {time_in_words(seconds)} of one CPU core, to make the corpus'
    begun = 0
    after = ''
    if cfg.branch_from and not is_missing(cfg.branch_from):
        parent = newest_checkpoint(cfg.branch_from)
        begun = saved_state(parent).get('step')
        if begun is None:
            raise ValueError(f'branch_from {parent}: has no state.json that says a step: branch from another')
        after = f' after step {begun:,}'
    flops = flops_until(cfg, cfg.total_steps, begun)
    per_token = ', '.join(f'{flops_per_token(cfg, name):.3g} of {name}' for name in dict(cfg.phases))
    attention = 'FA2'
    if cfg.fa3 and has_fa3():
        attention = 'FA3 on GPUs of Hopper\'s kind, elsewhere FA2'

    expected = expected_in_words(cfg)
    if expected:
        expected = f'\n{"":12}{expected}'
    groups = groups_in_words(make_groups(model, cfg), cfg)
    optimizer = f'\n{"":12}'.join([cfg.optimizer, *groups])
    print(f"""\
run         {cfg.name}: {phases}
parameters  {body:,} with the input embedding and without the output head (as "610M" counts)
            {weights:,} in all
optimizer   {optimizer}
tokens      {step_tokens:,} a step, {step_tokens * cfg.total_steps:,} in all
corpus      {cfg.corpus}: {corpus}
loss        a uniform guess has {math.log(cfg.model.vocab_size):.2f} nats{expected}
operations  {flops:.3g} FLOP{after}; a token {per_token}
time        {times(flops, world_size)}: at {UTILISATION:.0%} of their peaks{before}
attention   on CUDA: {attention}
rows        {cfg.rows_per_step:,} a step, {share:,} a process, {at_once} at once
{memory_in_words(cfg, world_size, model)}""")
    parent = cfg.branch_from or cfg.weights_from
    if is_missing(parent):
        print(f'warning     {parent} is not there yet: sizes are as the settings say, and operations of all '
              'steps')
    if epochs > 1:
        print(f'warning     the run reads its corpus {epochs:.2f} times; the paper trains on unique tokens')

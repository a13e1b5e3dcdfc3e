"""Fine-tune a checkpoint on a task, once or over a grid, and write its predictions; evaluate.py scores them.

    python finetune.py configs/tasks/docs_tc.py --look                  # what a task holds; needs no model
    python finetune.py configs/tasks/docs_tc.py --baseline              # the best simple method, as a floor
    python finetune.py configs/tasks/docs_tc.py --model=out/mlm-1800-s0 --lr=1e-3 --steps=100
    python finetune.py configs/tasks/docs_tc.py --model=out/mlm-1800-s0 --probe       # frozen features
    python finetune.py configs/tasks/sst2.py --model=out/610m-clm-42k --grid       # 6 rates x 5 seeds
    python finetune.py configs/tasks/sst2.py --model=answerdotai/ModernBERT-base --grid   # another's encoder
    torchrun --nproc_per_node=8 finetune.py configs/tasks/sst2.py --model=out/610m-clm-42k --grid
    python finetune.py configs/tasks/sst2.py --model=out/610m-clm-42k --grid --part=3 --parts=16    # job 3

The protocol is the paper's (section 2 and its authors' evaluation code): the same for every model, and
bidirectional. Writes predictions/<model>/<TASK>/<dataset>/<run>/; run it again to finish what is missing.
"""
import collections
import copy
import datetime
import itertools
import math
import os
import re
import statistics
import sys
import time
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from model import initial_weight, parameter_groups
from nanoencoder import huggingface, tasks
from nanoencoder.durable import whole_file
from nanoencoder.peers import open_encoder
from nanoencoder.tasks.probe import ridge
from nanoencoder.processes import World, duration, pick_device
from nanoencoder.tasks.runs import (about_model, about_run, alone, is_done, model_name, run_folder,
                              save_encoder, saved_folder, write_run)
from nanoencoder.settings import parse, run_main, setting
from nanoencoder.tokenizer import load_tokenizer


@dataclass(frozen=True)
class Settings(tasks.Task):
    model: str = setting('', fixes='nothing')        # a checkpoint, a hub id, or a run: its newest checkpoint
    untrained: bool = setting(False, fixes='nothing')    # the sizes and tokenizer of `model`; new weights
    name: str = setting('', fixes='nothing')         # of the model in predictions; empty: its run's
    variant: str = setting('', fixes='nothing')      # +<variant> is added to that name and to its study's row
    # controls: another encoder of the same weights, to be given a variant
    causal: bool = False                             # keep the causal mask on; bidirectional in the paper
    layers: int = setting(-1, -1)                    # only the first of the model's, then its norm; -1: all
    # the paper, section 2; the rest of the optimizer from the authors' run files
    lr: float = setting(1e-4, 0)
    seed: int = setting(0, 0, 2 ** 63 - 1)               # of the head's weights and the order of the data
    lrs: tuple = setting((1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4), fixes='nothing')  # of --grid
    seeds: tuple = setting((0, 1, 2, 3, 4), fixes='nothing')                     # of --grid
    batch_size: int = setting(32, 1)
    warmup: float = setting(0.1, 0, 1)               # share of the steps, then linear decay to 0
    weight_decay: float = setting(0.1, 0)            # on matrices only
    beta1: float = setting(0.9, 0, 1 - 1e-9)
    beta2: float = setting(0.95, 0, 1 - 1e-9)
    eps: float = setting(1e-5, 0)
    grad_clip: float = setting(1.0, 1e-9)
    weights: str = setting('fp32', choices=('fp32', 'bf16'))  # bf16: as the authors, loses small updates
    tokens_at_once: int = setting(16_384, 1, fixes='nothing')  # a batch takes several passes
    recompute: bool = setting(False, fixes='nothing')    # activations, to save memory
    device: str = setting('auto', choices=('auto', 'cpu', 'cuda', 'mps'), fixes='nothing')
    dtype: str = setting('auto', choices=('auto', 'fp32', 'bf16'))  # auto: bf16 where CUDA has it
    save_model: bool = setting(False, fixes='nothing')   # also write fine-tuned/<the same path>
    predictions: str = setting('predictions', fixes='nothing')

    def __post_init__(self):
        super().__post_init__()
        tasks.kind_of(self)
        if self.model and self.tokenizer != tasks.Task.tokenizer:
            raise ValueError("tokenizer is the model's; leave it out")
        if self.name and (Path(self.name).name != self.name or self.name.startswith('.')):
            raise ValueError(f'name must be that of a folder, not {self.name!r}')
        if not re.fullmatch(r'[\w.-]*', self.variant):
            raise ValueError(f'variant must be letters, digits, _, . and -, not {self.variant!r}')
        if self.save_model and (self.causal or self.layers >= 0):
            raise ValueError('save_model is for whole bidirectional models; leave out causal and layers')
        for name, kind in (('lrs', float), ('seeds', int)):
            values = getattr(self, name)
            good = all(type(value) is kind and 0 <= value < math.inf for value in values)
            if not values or not good or len(set(values)) < len(values):
                raise ValueError(f'{name} is a tuple of different {kind.__name__}s from 0 on, not {values!r}')

    def num_steps(self, num_examples):
        """At most `steps`, and at most `epochs` times all examples."""
        total = -(-num_examples * self.epochs // self.batch_size)
        return min(self.steps, total) if self.steps else total


PROBED = 5_000   # texts that a probe is trained on, at most
ACTIONS = {'grid': (False, 'every pair of lrs and seeds that is not done; torchrun shares them out'),
           'part': (-1, 'of --grid: which part this is, counted from 0'),
           'parts': (1, 'of --grid: into how many parts it is cut', 1, 10_000),
           'probe': (False, 'read frozen features with a linear classifier instead of training'),
           'look': (False, 'print what the task holds; needs no --model'),
           'baseline': (False, "write the best simple method's predictions; needs no --model")}


# --------------------------------------------------------------------------------------------- model and data

class Pretrained(NamedTuple):
    transformer: nn.Module   # on the CPU, fp32
    checkpoint: huggingface.Checkpoint
    world: World             # of this process alone
    about: dict              # what run.json says of the model


class Encoder(nn.Module):
    """The pretrained transformer, bidirectional unless asked otherwise, and the head of a kind of task."""

    def __init__(self, transformer, head, causal=False):
        super().__init__()
        self.model, self.head, self.causal = transformer, head, causal

    def forward(self, tokens, lengths):
        return self.head(self.model(tokens, lengths, self.causal), lengths)


def prepare(cfg, training=True):
    """(cfg with its name, max_length and dtype, Pretrained, [Data]). Says what truncation loses.

    The first Data is trained on, unless a probe is all that is wanted; all are scored.
    """
    device, dtype = pick_device(cfg.device, 'fp32' if cfg.weights == 'bf16' else cfg.dtype)
    checkpoint = open_encoder(cfg)
    transformer, tokenizer = checkpoint.model(head=False), checkpoint.tokenizer()
    if cfg.untrained:
        initialise(transformer, 'model', seed=0)
    max_length = cfg.max_length or round(0.99 * checkpoint.context)
    least = 1 + len(tokenizer.prefix) + len(tokenizer.suffix)
    if not least <= max_length <= checkpoint.context:
        raise ValueError(f'max_length {max_length}: the model reads {least} to {checkpoint.context} tokens')
    about = about_model(cfg, checkpoint, transformer)
    if cfg.layers >= 0:
        if cfg.layers > len(transformer.layers):
            raise ValueError(f'layers {cfg.layers}: the model has {len(transformer.layers)}')
        del transformer.layers[cfg.layers:]
    name = model_name(cfg, checkpoint.folder, about['pretraining'])
    cfg = replace(cfg, name=name, max_length=max_length, dtype=dtype)
    if cfg.save_model:
        tasks.kind_of(cfg).export((), transformer.sizes)
    sets = tasks.load_sets(cfg, tokenizer, max_length)
    examples = len(sets[0].examples['train'])
    steps, wanted = cfg.num_steps(examples), 50 if cfg.steps in (0, Settings.steps) else cfg.steps
    if training and not examples:
        raise ValueError(f'{cfg.dataset}: nothing to train on')
    if training and steps < wanted:
        print(f'{cfg.dataset}: {examples} examples make {steps} steps; see --epochs', file=sys.stderr)
    return cfg, Pretrained(transformer, checkpoint, World(0, 1, device, dtype), about), sets


@torch.no_grad()
def initialise(module, prefix, seed):
    """Weights that are keyed by the seed and their names."""
    for name, p in module.named_parameters(prefix):
        p.copy_(initial_weight(name, p.shape, seed))


# --------------------------------------------------------------------------------------------------- training

def lr_at(step, cfg, total):
    """Linear warm-up, then linear decay to 0 after `total` steps; steps count from 0."""
    warmup = math.ceil(cfg.warmup * total)
    return cfg.lr * min((step + 1) / (warmup or 1), 1.0, (total - step) / ((total - warmup) or total - step))


def new_encoder(cfg, base, head):
    """A copy of the transformer with a head: a new module, or a function."""
    encoder = Encoder(copy.deepcopy(base.transformer), head, cfg.causal)
    if isinstance(head, nn.Module):
        initialise(head, '', cfg.seed)
    encoder.model.recompute = cfg.recompute
    encoder.to(base.world.device)
    for p in encoder.parameters():  # not the buffers: a peer's RoPE needs its frequencies in fp32
        p.data = p.data.to(torch.bfloat16 if cfg.weights == 'bf16' else torch.float32)
    return encoder


def pack(lengths, budget):
    """Lists of indices, in order, whose lengths sum to at most the budget, or one that is longer alone."""
    packs, total = [], 0
    for k, length in enumerate(lengths):
        if not packs or total + length > budget:
            packs.append([])
            total = 0
        packs[-1].append(k)
        total += length
    return packs


def encode(encoder, arrays, world):
    """The encoder's output for a list of token arrays, packed into one flat row without padding."""
    tokens = torch.from_numpy(np.concatenate(arrays)).to(world.device, non_blocking=True)
    with world.autocast():
        return encoder(tokens, [len(array) for array in arrays]).float()


def backward(cfg, world, encoder, batch):
    """Gradients of the mean loss of a batch, a few examples at once; the loss, on the device."""
    kind = tasks.kind_of(cfg)
    count = max(1, sum(kind.num_targets(example) for example in batch))
    budget = math.inf if kind.whole_batch else cfg.tokens_at_once
    total = torch.zeros((), device=world.device)
    for chosen in pack([len(example.tokens) for example in batch], budget):
        part = [batch[k] for k in chosen]
        loss = kind.loss(encode(encoder, kind.arrays(part), world), part) / count
        loss.backward()
        total += loss.detach()
    return total


def fit(cfg, base, data, say=lambda text: None):
    """(trained Encoder, log lines). FloatingPointError at the first step whose loss is not finite."""
    kind, world, train = tasks.kind_of(cfg), base.world, data.examples['train']
    encoder = new_encoder(cfg, base, kind.head(base.transformer.sizes.hidden_size, data.labels))
    optimizer = torch.optim.AdamW(parameter_groups(encoder, cfg.weight_decay), lr=cfg.lr, eps=cfg.eps,
                                  betas=(cfg.beta1, cfg.beta2), fused=world.device.type != 'mps')
    total = cfg.num_steps(len(train))
    order = (i for epoch in range(cfg.epochs)
             for i in np.random.default_rng([cfg.seed, 1 + epoch]).permutation(len(train)))
    began, log = time.monotonic(), []
    encoder.train()
    for step in range(total):
        batch = [train[i] for i in itertools.islice(order, cfg.batch_size)]
        lr, loss = lr_at(step, cfg, total), backward(cfg, world, encoder, batch)
        norm = torch.nn.utils.clip_grad_norm_(encoder.parameters(), cfg.grad_clip)
        for group in optimizer.param_groups:
            group['lr'] = lr
        optimizer.step()
        optimizer.zero_grad()
        log.append({'step': step + 1, 'lr': lr} | kind.log(batch) | {'loss': loss, 'grad_norm': norm})
        if (step + 1) % 20 == 0 or step + 1 == total:
            recent = log[step // 20 * 20:]
            fetch(recent)
            mean = statistics.fmean(line['loss'] for line in recent)
            left = (time.monotonic() - began) / (step + 1) * (total - step - 1)
            say(f'step {step + 1:,}/{total:,}  loss {mean:.4f}  {duration(left)} left')
    if not all(torch.isfinite(p).all() for p in encoder.parameters()):
        raise FloatingPointError('the last update left weights that are not finite: lower --lr')
    return encoder, log


def fetch(lines):
    """Take the losses and norms of log lines, which stayed on the device until now, from there."""
    for name in ('loss', 'grad_norm'):
        for line, value in zip(lines, torch.stack([line[name] for line in lines]).tolist()):
            line[name] = value
    for line in lines:
        if not math.isfinite(line['loss'] + line['grad_norm']):
            raise FloatingPointError('step {step}: loss {loss}, norm {grad_norm}: lower --lr'.format(**line))


# ------------------------------------------------------------------------------------------------ predictions

@torch.no_grad()
def outputs(cfg, world, encoder, examples, per_token):
    """The encoder's output for each example, as numpy, in order. Sorted by length and packed, never padded.

    per_token: (n, ...) for an example of n tokens, else one vector each.
    """
    encoder.eval()
    lengths = [len(example.tokens) for example in examples]
    order, results = np.argsort(lengths, kind='stable'), [None] * len(examples)
    for part in pack([lengths[i] for i in order], cfg.tokens_at_once):
        chosen = [order[k] for k in part]
        output = encode(encoder, [examples[i].tokens for i in chosen], world).cpu().numpy()
        if not np.isfinite(output).all():
            raise FloatingPointError('outputs that are not finite: lower --lr')
        pieces = np.split(output, np.cumsum([lengths[i] for i in chosen])[:-1]) if per_token else output
        for i, piece in zip(chosen, pieces):
            results[i] = piece
    return results


def predict(cfg, world, encoder, data):
    """{'validation': rows, 'test': rows}: what evaluate.py reads, gold beside predicted."""
    kind = tasks.kind_of(data.task)
    return kind.predict(data, {part: outputs(cfg, world, encoder, examples, kind.per_token)
                               for part, examples in data.examples.items() if part != 'train'})


# ------------------------------------------------------------------------------------------------------- runs

def score(task, rows):
    """A split's score in words."""
    return '{} {:.1f}'.format(*tasks.score(task, rows))


def do_run(cfg, base, sets, grid=(), say=lambda text: None):
    """One fine-tuning: fit, predict every set, write. Returns what to tell. Its folders are to be held."""
    began, words = time.monotonic(), []
    encoder, log = fit(cfg, base, sets[0], say)
    if cfg.save_model:
        save_encoder(cfg, base, sets[0], encoder, saved_folder(cfg))
    for data in sets:
        rows, dataset = predict(cfg, base.world, encoder, data), data.task.dataset
        words.append(f'{dataset} validation {score(data.task, rows["validation"])}')
        about = about_run(cfg, base, sets, data, grid=grid)
        write_run(run_folder(cfg, dataset), about, rows, log)
    loss = statistics.fmean(line['loss'] for line in log[-20:])
    saved = f'; {saved_folder(cfg)}' if cfg.save_model else ''
    return f'{", ".join(words)}; loss {loss:.4f}; {time.monotonic() - began:.0f} s{saved}'


def counter():
    """count(name, more=1): a number that all of torchrun's processes share, 0 at first, and grows by `more`.

    It is in the store that torchrun's agent hosts; its key holds the restart count.
    """
    if 'TORCHELASTIC_RUN_ID' not in os.environ:
        counts = collections.Counter()
        return lambda name, more=1: counts.update({name: more}) or counts[name]
    store = dist.TCPStore(os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']), is_master=False,
                          timeout=datetime.timedelta(seconds=60))
    key = f'grid/{os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)}'
    return lambda name, more=1: store.add(f'{key}/{name}', more)


def try_run(cfg, base, sets, grid):
    """(what to tell, whether it failed) of a run of a grid; nothing to tell if it was done already.

    Whatever the error, <run>.error.txt has it. BlockingIOError if another process is at work on the run.
    """
    folder = run_folder(cfg, cfg.dataset)
    error_file = folder.with_name(f'{folder.name}.error.txt')
    with alone(cfg, sets):
        words = ''
        if not is_done(cfg, base, sets):
            try:
                words = do_run(cfg, base, sets, grid)
            except Exception as error:
                with whole_file(error_file) as file:
                    file.write(traceback.format_exc().encode())
                return f'failed: {error}', True
        error_file.unlink(missing_ok=True)
    return words, False


def run_grid(cfg, base, sets, part, parts):
    """Every run of learning rates x seeds that is not done; the exit code, 1 if any failed or is left."""
    runs = [replace(cfg, lr=lr, seed=seed) for seed in cfg.seeds for lr in cfg.lrs][part::parts]
    done, failed, computed = [is_done(run, base, sets) for run in runs], False, 0
    began, count, processes = time.monotonic(), counter(), int(os.environ.get('WORLD_SIZE', 1))
    queue = itertools.takewhile(lambda k: k < len(runs), (count('runs') - 1 for _ in itertools.count()))
    for _ in range(2):  # the second time what other processes had: they may have been killed meanwhile
        left = []
        for k in queue:
            name = run_folder(runs[k], cfg.dataset).name
            try:
                words, has_failed = try_run(runs[k], base, sets, (cfg.lrs, cfg.seeds))
            except BlockingIOError:
                left.append(k)
                continue
            if words:
                computed += 1
                failed |= has_failed
                rest = done[k + 1:].count(False) / processes
                ends = duration((time.monotonic() - began) / computed * rest)
                print(f'{cfg.name} {cfg.dataset} {name} ({k + 1} of {len(runs)}): {words}; '
                      f'{ends} left\n', end='', flush=True)  # one write: processes share the terminal
        queue = left
    if left:
        print(f'warning: {cfg.name} {cfg.dataset}: another process is at work on {len(left)} of the runs; '
              'start this again when it is done', file=sys.stderr)
    elif not computed:
        print(f'{cfg.name} {cfg.dataset}: nothing to do, {sum(done)} of {len(runs)} runs were done')
    count('ended')
    while (failed or left) and count('ended', 0) < processes:  # for torchrun ends all where one has failed
        time.sleep(0.5)
    return int(failed or bool(left))


def probe(cfg, base, sets):
    """What a linear classifier reads off the frozen model. Retrieval needs none: its cosines are taken."""
    began, kind = time.monotonic(), tasks.kind_of(cfg)
    encoder = new_encoder(cfg, base, kind.frozen)
    for data in sets:
        parts = data.examples | {'train': data.examples['train'][:PROBED] if data.labels else []}
        read = {part: outputs(cfg, base.world, encoder, examples, kind.per_token)
                for part, examples in parts.items()}
        if data.labels:
            targets = {part: [example.targets for example in examples] for part, examples in parts.items()}
            read = ridge(read, targets, len(data.labels))
        rows, folder = tasks.kind_of(data.task).predict(data, read), run_folder(cfg, data.task.dataset)
        write_run(folder, about_run(cfg, base, sets, data, 'probe'), rows)
        print(f'{cfg.name} {data.task.dataset}: validation {score(data.task, rows["validation"])} '
              f'({time.monotonic() - began:.0f} s): {folder}')


def write_baseline(cfg):
    """The predictions of the simple method that is best on validation."""
    rows, _ = tasks.load(cfg)
    name, predictions = tasks.baseline(cfg, rows)
    cfg = replace(cfg, name=name, lr=0.0, seed=0)
    folder = run_folder(cfg, cfg.dataset)
    about = {'kind': 'baseline', 'scheme': cfg.scheme, 'data': tasks.fingerprint(rows)}
    with alone(cfg):
        write_run(folder, about, predictions)
    print(f'{folder}: test {score(cfg, predictions["test"])}')


def main():
    cfg, actions = parse(Settings, sys.argv[1:], ACTIONS)
    if actions.grid + actions.probe + actions.look + actions.baseline > 1:
        raise ValueError('--grid, --probe, --look and --baseline stand alone')
    if not actions.grid and (cfg.lrs, cfg.seeds) != (Settings.lrs, Settings.seeds):
        raise ValueError('lrs and seeds are of --grid: add it, or give one --lr and one --seed')
    if (actions.part, actions.parts) != (-1, 1):
        if not actions.grid:
            raise ValueError('--part and --parts go with --grid')
        if not 0 <= actions.part < actions.parts:
            raise ValueError(f'--part counts from 0 to {actions.parts - 1} for --parts={actions.parts}')
    if actions.look:
        return tasks.look(cfg, load_tokenizer(cfg.tokenizer))
    if actions.baseline:
        return write_baseline(cfg)
    if not cfg.model:
        raise ValueError('model is empty: --model=out/<run> or a checkpoint folder')
    if actions.probe and cfg.save_model:
        raise ValueError('save_model: a probe trains no model; leave it out')
    if actions.probe and not tasks.kind_of(cfg).frozen:
        raise ValueError(f'kind {cfg.kind} has no probe: a frozen model has not read the question '
                         'into the context')
    cfg, base, sets = prepare(cfg, training=not actions.probe)
    if actions.grid:
        sys.exit(run_grid(cfg, base, sets, max(0, actions.part), actions.parts))
    if actions.probe:
        cfg = replace(cfg, name=f'{cfg.name}-probe', lr=0.0, seed=0)
    with alone(cfg, sets):
        if actions.probe:
            return probe(cfg, base, sets)
        words = 'already done' if is_done(cfg, base, sets) else do_run(cfg, base, sets, say=print)
        print(f'{run_folder(cfg, cfg.dataset)}: {words}')


if __name__ == '__main__':
    run_main(main)

"""Fine-tune a checkpoint on a task, once or over a grid, and write its predictions; evaluate.py scores them.

    python finetune.py configs/tasks/docs_tc.py --look                  # what a task holds; needs no model
    python finetune.py configs/tasks/docs_tc.py --model=out/mlm-1800-s6 --lr=1e-3 --steps=100
    python finetune.py configs/tasks/docs_tc.py --model=out/mlm-1800-s6 --probe       # frozen features
    python finetune.py configs/tasks/blimp.py --model=out/mlm-1800-s6 --zero_shot     # without any training
    torchrun --nproc_per_node=8 finetune.py configs/tasks/sst2.py --model=out/610m-clm-42k --grid

The protocol is the paper's (section 2 and its authors' evaluation code): the same for every model, and
bidirectional. Writes predictions/<model>/<TASK>/<dataset>/<run>/; run it again to finish what is missing."""
import copy
import functools
import itertools
import math
import os
import re
import statistics
import sys
import time
import traceback
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple

if __name__ == '__main__':  # before torch loads OpenMP, which reads it: waiting threads sleep, not spin
    os.environ.setdefault('OMP_WAIT_POLICY', 'passive')

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from model import initial_weight, parameter_groups
from nanoencoder import huggingface, tasks
from nanoencoder.files import locked, read_json
from nanoencoder.peers import open_encoder
from nanoencoder.processes import World, pick_device
from nanoencoder.settings import check_value, is_full, parse, run_main, setting
from nanoencoder.tasks.kind import NO_LABEL, pack
from nanoencoder.tasks.runs import (about_run, check_export, describe, is_done, run_folder, run_folders,
                                    save_encoder, saved_folder, write_run)
from nanoencoder.tokenizer import load_tokenizer

PROBED = 5_000    # texts that a probe is trained on, at most
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1)  # of a probe, times its training rows; chosen on validation


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
        for name, pattern in (('name', '([^./][^/]*)?'), ('variant', r'[\w.-]*')):
            if not re.fullmatch(pattern, getattr(self, name)):
                raise ValueError(f'{name} must be that of a folder, or letters that may follow one')
        for lr in self.lrs:
            check_value('lrs', float, lr, 0)
        for seed in self.seeds:
            check_value('seeds', int, seed, 0)
        if self.save_model and (self.causal or self.layers >= 0):
            raise ValueError('save_model is for whole bidirectional models; leave out causal and layers')

    def num_steps(self, num_examples):
        return min(self.steps or math.inf, -(-num_examples * self.epochs // self.batch_size))


ACTIONS = {'grid': (False, 'every pair of lrs and seeds that is not done, shared by all processes'),
           'probe': (False, 'read frozen features with a linear classifier instead of training'),
           'zero_shot': (False, 'score minimal pairs by the likelihoods of the model as it is'),
           'look': (False, 'print what the task holds; needs no --model')}
# which --probe and --zero_shot would ignore
OF_TRAINING = ('lr', 'seed', 'steps', 'epochs', 'batch_size', 'warmup', 'weight_decay', 'beta1', 'beta2',
               'eps', 'grad_clip', 'scale')


class Classifier(nn.Module):
    """Logits of each token as transformers' ForTokenClassification; pooled, of a text, as its EuroBert's."""
    def __init__(self, hidden_size, num_labels, pooled):
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size) if pooled else None
        self.classifier = nn.Linear(hidden_size, num_labels)

    def forward(self, x, lengths):
        if self.dense:
            x = F.gelu(self.dense(mean_pool(x, lengths).type_as(x)))    # the head's weights may be bf16
        return self.classifier(x)


def mean_pool(x, lengths):
    """(segments, d): the mean of each segment's tokens, in fp32 whatever the states are in."""
    lengths = torch.tensor(lengths, device=x.device)
    segment = torch.arange(len(lengths), device=x.device).repeat_interleave(lengths, output_size=len(x))
    total = torch.zeros(len(lengths), x.shape[1], device=x.device).index_add(0, segment, x.float())
    return total / lengths[:, None]


def unit_vectors(x, lengths):
    """(segments, d): mean-pooled, of length 1, in fp32."""
    return F.normalize(mean_pool(x, lengths), dim=1)


HEADS = {'tokens': lambda hidden_size, labels: Classifier(hidden_size, len(labels), pooled=False),
         'text': lambda hidden_size, labels: Classifier(hidden_size, len(labels), pooled=True),
         'vector': lambda hidden_size, labels: unit_vectors}


def label_loss(cfg, logits, batch):
    targets = torch.from_numpy(np.concatenate([example.targets for example in batch])).to(logits.device)
    return F.cross_entropy(logits, targets, ignore_index=NO_LABEL, reduction='sum')


def square_loss(cfg, outputs, batch):
    targets = torch.tensor([example.targets[0] for example in batch], dtype=torch.float32)
    return F.mse_loss(outputs.squeeze(1), targets.to(outputs.device), reduction='sum')


def pair_loss(cfg, vectors, batch):
    """InfoNCE: the other pairs' documents are negatives, but for its other positives and copies."""
    cosines = vectors[:len(batch)] @ vectors[len(batch):].T
    excluded = torch.tensor([[a != b and other.document in pair.positives for b, other in enumerate(batch)]
                             for a, pair in enumerate(batch)], device=cosines.device)
    logits = (cfg.scale * cosines).masked_fill(excluded, -math.inf)
    return F.cross_entropy(logits, torch.arange(len(batch), device=cosines.device), reduction='sum')


LOSSES = {'labels': label_loss, 'squares': square_loss, 'pairs': pair_loss}  # sums


class Pretrained(NamedTuple):
    transformer: nn.Module   # on the CPU, fp32; for minimal pairs the Model, with its output head
    checkpoint: huggingface.Checkpoint
    world: World             # of this process alone
    about: dict              # what run.json says of the model


class Encoder(nn.Module):
    """The transformer and a head: a module or a function."""
    def __init__(self, transformer, head, causal=False):
        super().__init__()
        self.model, self.head, self.causal = transformer, head, causal

    def forward(self, tokens, lengths):
        return self.head(self.model(tokens, lengths, self.causal), lengths)


def prepare(cfg, method='fine-tuned', seeds=None):
    """(cfg with its name, max_length and dtype, Pretrained, [Data]); the first Data is trained on. Of its
    training rows those are tokenised that runs of these seeds read; without seeds, all."""
    device, dtype = pick_device(cfg.device, 'fp32' if cfg.weights == 'bf16' else cfg.dtype)
    checkpoint, kind = open_encoder(cfg), tasks.kind_of(cfg)
    transformer, tokenizer = checkpoint.model(head=kind.zero_shot), checkpoint.tokenizer()
    if cfg.untrained:
        initialise(transformer, '' if kind.zero_shot else 'model', seed=0)
    if kind.zero_shot:
        cfg = replace(kind.suited(checkpoint), lr=0.0, seed=0)
    max_length = cfg.max_length or round(0.99 * checkpoint.context)
    least = 1 + len(tokenizer.prefix) + len(tokenizer.suffix)
    if not least <= max_length <= checkpoint.context:
        raise ValueError(f'max_length {max_length}: the model reads {least} to {checkpoint.context} tokens')
    name, about = describe(cfg, checkpoint, transformer)
    if cfg.layers >= 0:
        if cfg.layers > len(transformer.layers):
            raise ValueError(f'layers {cfg.layers}: the model has {len(transformer.layers)}')
        del transformer.layers[cfg.layers:]
    cfg = replace(cfg, name=name, max_length=max_length, dtype=dtype)
    if cfg.save_model:
        check_export(kind, transformer.sizes)   # save_encoder's own check, before hours of training
    if seeds is None:
        reads = range
    else:
        reads = functools.partial(rows_read, cfg, kind, method, seeds)
    sets = tasks.load_sets(cfg, tokenizer, max_length, reads)
    examples, training = len(sets[0].examples['train']), method == 'fine-tuned'
    if training and not examples:
        raise ValueError(f'{cfg.dataset}: nothing to train on')
    steps, wanted = cfg.num_steps(examples), 50 if cfg.steps in (0, Settings.steps) else cfg.steps
    if training and steps < wanted:
        print(f'{cfg.dataset}: {examples} examples make {steps} steps; see --epochs', file=sys.stderr)
    about['method'] = method
    return cfg, Pretrained(transformer, checkpoint, World(0, 1, device, dtype), about), sets


def rows_read(cfg, kind, method, seeds, count):
    """Return the sorted indices, of `count` training rows, that a probe, or runs of these seeds, read."""
    if method == 'probe':
        return range(min(count, PROBED) if kind.labelled_by else 0)
    chosen = set()
    for seed in seeds:
        order = training_order(cfg, seed, count)
        chosen.update(itertools.islice(order, cfg.num_steps(count) * cfg.batch_size))
    return sorted(chosen)


def training_order(cfg, seed, count):
    """The indices of training examples in the order in which the steps read them."""
    for epoch in range(cfg.epochs):
        yield from np.random.default_rng([seed, 1 + epoch]).permutation(count)


@torch.no_grad()
def initialise(module, prefix, seed):
    for name, p in module.named_parameters(prefix):
        p.copy_(initial_weight(name, p.shape, seed))


def lr_at(step, cfg, total):
    """Linear warm-up, then linear decay to 0."""
    warmup = math.ceil(cfg.warmup * total)
    return cfg.lr * min((step + 1) / (warmup or 1), 1.0, (total - step) / ((total - warmup) or total - step))


def new_encoder(cfg, base, head):
    encoder = Encoder(copy.deepcopy(base.transformer), head, cfg.causal)
    if isinstance(head, nn.Module):
        initialise(head, '', cfg.seed)
    encoder.model.recompute = cfg.recompute
    encoder.to(base.world.device)
    for p in encoder.parameters():  # not the buffers: a peer's RoPE needs its frequencies in fp32
        p.data = p.data.to(torch.bfloat16 if cfg.weights == 'bf16' else torch.float32)
    return encoder


def encode(encoder, arrays, world):
    """The encoder's output for a list of token arrays, packed into one flat row without padding."""
    tokens = torch.from_numpy(np.concatenate(arrays)).to(world.device, non_blocking=True)
    with world.autocast():
        return encoder(tokens, [len(array) for array in arrays]).float()


def backward(cfg, world, encoder, batch, loss):
    """Gradients of the mean loss of a batch, a few examples at once; the loss, on the device."""
    count, total = len(batch), torch.zeros((), device=world.device)
    if loss == 'labels':
        count = max(1, sum(int((example.targets != NO_LABEL).sum()) for example in batch))
    lengths = [len(example.tokens) for example in batch]
    # pairs need the batch in one piece: all queries, then all documents
    for chosen in pack(lengths, math.inf if loss == 'pairs' else cfg.tokens_at_once):
        part = [batch[k] for k in chosen]
        arrays = [example.tokens for example in part]
        arrays += [pair.positive for pair in part] if loss == 'pairs' else []
        part_loss = LOSSES[loss](cfg, encode(encoder, arrays, world), part) / count
        part_loss.backward()
        total += part_loss.detach()
    return total


def fit(cfg, base, data, tell=False):
    """(trained Encoder, log lines); `tell` prints its progress."""
    train = data.examples['train']
    total = cfg.num_steps(len(train))
    encoder = new_encoder(cfg, base, HEADS[data.kind.head](base.transformer.sizes.hidden_size, data.labels))
    optimizer = torch.optim.AdamW(parameter_groups(encoder, cfg.weight_decay), lr=cfg.lr, eps=cfg.eps,
                                  betas=(cfg.beta1, cfg.beta2), fused=base.world.device.type != 'mps')
    order = training_order(cfg, cfg.seed, len(train))
    began, log = time.monotonic(), []
    for step in range(total):
        batch = [train[i] for i in itertools.islice(order, cfg.batch_size)]
        loss = float(backward(cfg, base.world, encoder, batch, data.kind.loss))
        norm = float(torch.nn.utils.clip_grad_norm_(encoder.parameters(), cfg.grad_clip))
        if not math.isfinite(loss + norm):
            raise FloatingPointError(f'step {step + 1}: loss or norm is not finite: lower --lr')
        for group in optimizer.param_groups:
            group['lr'] = lr_at(step, cfg, total)
        optimizer.step()
        optimizer.zero_grad()
        log.append({'step': step + 1, 'lr': lr_at(step, cfg, total), 'loss': loss, 'grad_norm': norm})
        if tell and ((step + 1) % 20 == 0 or step + 1 == total):
            mean = statistics.fmean(line['loss'] for line in log[step // 20 * 20:])
            left = (time.monotonic() - began) / (step + 1) * (total - step - 1)
            print(f'step {step + 1:,}/{total:,}  loss {mean:.4f}  {timedelta(seconds=round(left))} left')
    return encoder, log


@torch.no_grad()
def outputs(cfg, world, encoder, examples, per_token):
    """The encoder's output for each example, as numpy, in order: (n, ...) for its n tokens, or one vector."""
    lengths, results = np.array([len(example.tokens) for example in examples], int), [None] * len(examples)
    order = np.argsort(lengths, kind='stable')
    for part in pack(lengths[order], cfg.tokens_at_once):
        chosen = order[part]
        output = encode(encoder, [examples[i].tokens for i in chosen], world).cpu().numpy()
        if not np.isfinite(output).all():
            raise FloatingPointError('outputs that are not finite: lower --lr')
        for i, piece in zip(chosen, np.split(output, lengths[chosen].cumsum()[:-1]) if per_token else output):
            results[i] = piece
    return results


@torch.no_grad()
def likelihoods(cfg, base, data):
    """The log-likelihood of each sentence: the sum of its tokens', which Pairs.batches asks for."""
    model, sums = new_encoder(cfg, base, head=None).model, np.zeros(len(data.examples['test']))
    encoder = Encoder(model.model, lambda x, lengths: x, cfg.likelihood == 'causal')
    size = base.checkpoint.sizes.vocab_size     # without a row that its tokenizer was given for the mask
    batches = data.kind.batches(data, base.checkpoint.tokenizer(), cfg.tokens_at_once)
    for arrays, at, targets, numbers in batches:
        at, targets = (torch.from_numpy(indices).to(base.world.device) for indices in (at, targets))
        states = encode(encoder, arrays, base.world)[at].type_as(model.head)
        losses = [F.cross_entropy(model.logits(x)[:, :size].float(), y, reduction='none')
                  for x, y in zip(states.split(512), targets.split(512))]   # not all logits at once
        np.subtract.at(sums, numbers, torch.cat(losses).cpu().numpy())
    return sums


def predict(cfg, world, encoder, data):
    """{split: rows} of validation and test: what evaluate.py reads."""
    per_token = data.kind.head == 'tokens'
    return data.kind.predict(data, {part: outputs(cfg, world, encoder, examples, per_token)
                                    for part, examples in data.examples.items() if part != 'train'})


def do_run(cfg, base, sets, grid=()):
    """One fine-tuning: fit, predict every set, write. What to tell of it."""
    began, words = time.monotonic(), ''
    encoder, log = fit(cfg, base, sets[0], not grid)
    for data in sets:
        about, rows = about_run(cfg, base, sets, data, grid=grid), predict(cfg, base.world, encoder, data)
        scores = write_run(run_folder(cfg, data.kind.task.dataset), data.kind.task, about, rows, log)
        words += f'{data.kind.task.dataset} validation {scores["validation"]}; '
    if cfg.save_model:
        save_encoder(cfg, base, sets[0], encoder, saved_folder(cfg))
        words += f'{saved_folder(cfg)}; '
    loss = statistics.fmean(line['loss'] for line in log[-20:])
    return f'{words}loss {loss:.4f}; {time.monotonic() - began:.0f} s'


def zero_shot(cfg, base, sets):
    """Minimal pairs by the likelihoods of the model as it is: predict, write. What to tell of it."""
    began, (data,) = time.monotonic(), sets
    rows = data.kind.predict(data, {'validation': [], 'test': likelihoods(cfg, base, data)})
    scores = write_run(run_folder(cfg, cfg.dataset), cfg, about_run(cfg, base, sets, data), rows)
    of_sets = read_json(run_folder(cfg, cfg.dataset) / 'scores.json')['test']['standard']['others']
    print('\n'.join(f'{100 * of_sets[name]:7.1f}  {name}' for name in sorted(of_sets, key=of_sets.get)))
    return f'{cfg.likelihood} {scores["test"]}; {time.monotonic() - began:.0f} s'


def run_grid(cfg, base, sets):
    """Every run of lrs x seeds that is not done, nor another process's by its lock; 1 if one failed, or 0."""
    runs = [replace(cfg, lr=lr, seed=seed) for seed in cfg.seeds for lr in cfg.lrs]
    todo, title = [run for run in runs if not is_done(run, base, sets)], f'{cfg.name} {cfg.dataset}'
    print(f'{title}: {len(runs) - len(todo)} of {len(runs)} runs are done', flush=True)
    began, code = time.monotonic(), 0
    for k, run in enumerate(todo, 1):
        folder = run_folder(run, cfg.dataset)
        try:
            with locked(*run_folders(run, sets)):
                if is_done(run, base, sets):
                    continue
                words = do_run(run, base, sets, (cfg.lrs, cfg.seeds))
        except BlockingIOError:
            print(f'{folder}: is left to another process', file=sys.stderr)
            continue
        except Exception as error:
            if is_full(error):  # no other run could be written either
                print(f'{title}: {len(todo) - k + 1} of {len(runs)} runs are left', file=sys.stderr)
                raise
            words, code = f'failed: {error}', 1
            traceback.print_exc()
        left = timedelta(seconds=round((time.monotonic() - began) / k * (len(todo) - k)))
        print(f'{title} {folder.name} ({k} of {len(todo)}): {words}; {left} left\n', end='', flush=True)
    return code


def probe(cfg, base, sets):
    """A linear classifier on the frozen model; retrieval takes its cosines. What to tell of it."""
    began, words, per_token = time.monotonic(), [], sets[0].kind.head == 'tokens'
    encoder = new_encoder(cfg, base, (lambda x, lengths: x) if per_token else unit_vectors)
    for data in sets:
        train = data.examples['train']
        parts = data.examples | {'train': train[:PROBED] if data.labels else []}
        read = {part: outputs(cfg, base.world, encoder, texts, per_token) for part, texts in parts.items()}
        if data.labels:
            targets = {part: [example.targets for example in examples] for part, examples in parts.items()}
            labels = [row[data.kind.labelled_by] for row in data.rows['train']]
            if not per_token and {*labels} - {*labels[:PROBED]}:
                raise ValueError(f'{cfg.dataset}: its first {PROBED:,} rows lack a label: shuffle the file')
            read = ridge(read, targets, len(data.labels))
        scores = write_run(run_folder(cfg, data.kind.task.dataset), data.kind.task,
                           about_run(cfg, base, sets, data), data.kind.predict(data, read))
        words.append(f'{data.kind.task.dataset} validation {scores["validation"]}')
    return f'{"; ".join(words)} ({time.monotonic() - began:.0f} s)'


def ridge(features, targets, num_labels):
    """Scores of validation and test by ridge regression on one-hot labels: {split: [(n, num_labels) of each
    array]}. The penalty is the one that validation likes best.

    features  {split: [(n, width) or (width,) arrays]}
    targets   {split: [(n,) labels]}; below 0 there is no label"""
    from sklearn.linear_model import Ridge
    from sklearn.preprocessing import StandardScaler
    parts = {split: [np.atleast_2d(array) for array in arrays] for split, arrays in features.items()}
    x = {split: np.concatenate(parts[split]) for split in tasks.SPLITS}
    y = {split: np.concatenate(targets[split]) for split in tasks.SPLITS}

    is_known = y['train'] >= 0
    known = x['train'][is_known].astype(np.float64)
    scaler = StandardScaler().fit(known)
    known = scaler.transform(known)
    # two columns at least: of one label Ridge would predict none
    one_hot = np.eye(max(2, num_labels))[y['train'][is_known]]
    x = {split: scaler.transform(x[split].astype(np.float64)) for split in tasks.SCORED}

    def num_right(model):
        return np.sum(model.predict(x['validation']).argmax(1) == y['validation'])
    models = [Ridge(penalty * len(known)).fit(known, one_hot) for penalty in PENALTIES]
    best = max(models, key=num_right)

    scores = {}
    for split in tasks.SCORED:
        ends = np.cumsum([len(array) for array in parts[split]])
        scores[split] = np.split(best.predict(x[split]), ends[:-1])
    return scores


def check_actions(cfg, kind, actions, typed):
    """ValueError where actions and settings do not go together.

    typed  names of the settings on the command line: those of a config may be for its other actions"""
    chosen = [name for name, is_chosen in vars(actions).items() if is_chosen]
    if len(chosen) > 1:
        raise ValueError('--grid, --probe, --zero_shot, --look stand alone')
    if not (cfg.lrs and cfg.seeds):
        raise ValueError('lrs and seeds must have one or more')
    if not actions.grid and (cfg.lrs, cfg.seeds) != (Settings.lrs, Settings.seeds):
        raise ValueError('lrs and seeds are of --grid: add it, or give one --lr and one --seed')
    if actions.grid and typed & {'lr', 'seed'}:
        raise ValueError('lr and seed are of one run: with --grid give --lrs and --seeds')
    if actions.look:
        return

    if not cfg.model:
        raise ValueError('model is empty: --model=out/<run> or a checkpoint folder')
    if kind.zero_shot and not actions.zero_shot:
        raise ValueError(f'kind {cfg.kind} takes --zero_shot')
    if actions.zero_shot and not kind.zero_shot:
        raise ValueError(f'kind {cfg.kind} is trained and takes no --zero_shot')
    if actions.zero_shot and (cfg.causal or cfg.layers >= 0 or cfg.save_model):
        raise ValueError(f'kind {cfg.kind} takes no --causal, --layers, --save_model: nothing is trained')
    if (cfg.causal or cfg.layers >= 0) and not cfg.variant:     # a table would show it as the model itself
        example = 'causal' if cfg.causal else f'layers{cfg.layers}'
        raise ValueError(f'causal and layers make another encoder, which needs a name: --variant={example}')
    if actions.probe and cfg.save_model:
        raise ValueError('save_model: a probe trains no model; leave it out')
    if actions.probe and not kind.has_probe:
        regression = f' with metric {cfg.metric}' if kind.loss == 'squares' else ''
        raise ValueError(f'kind {cfg.kind}{regression} has no probe: fine-tune the model')
    ignored = [f'--{name}' for name in OF_TRAINING if name in typed]
    if ignored and (actions.probe or actions.zero_shot):
        raise ValueError(f'--{chosen[0]} trains no encoder: leave out {", ".join(ignored)}')


def main():
    cfg, actions = parse(Settings, sys.argv[1:], ACTIONS)
    kind = tasks.kind_of(cfg)
    typed = {word.removeprefix('--').partition('=')[0] for word in sys.argv[1:]}
    check_actions(cfg, kind, actions, typed)
    if actions.look:
        return tasks.look(cfg, load_tokenizer(cfg.tokenizer))

    if actions.probe:
        method = 'probe'
    elif actions.zero_shot:
        method = 'zero-shot'
    else:
        method = 'fine-tuned'
    cfg, base, sets = prepare(cfg, method, cfg.seeds if actions.grid else (cfg.seed,))
    if actions.grid:
        sys.exit(run_grid(cfg, base, sets))
    if actions.probe:
        cfg = replace(cfg, name=f'{cfg.name}-probe', lr=0.0, seed=0)
    work = {'probe': probe, 'zero-shot': zero_shot, 'fine-tuned': do_run}[method]
    with locked(*run_folders(cfg, sets)):
        words = 'already done' if is_done(cfg, base, sets) else work(cfg, base, sets)
        print(f'{run_folder(cfg, cfg.dataset)}: {words}')


if __name__ == '__main__':
    run_main(main)

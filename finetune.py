"""Fine-tune a checkpoint on a task, once or over a grid, and write its predictions; evaluate.py scores them.

    python finetune.py configs/tasks/docs_tc.py --model=out/tiny-mlm40 --lr=1e-3 --steps=100
    python finetune.py configs/tasks/sst2.py --model=out/610m-clm-42k/42000 --lr=1e-4 --seed=0
    python finetune.py configs/tasks/sst2.py --model=out/610m-clm-42k --grid            # 6 learning rates x 5 seeds
    torchrun --nproc_per_node=8 finetune.py configs/tasks/sst2.py --model=out/610m-clm-42k --grid
    python finetune.py configs/tasks/sst2.py --model=out/610m-clm-42k --grid --part=3 --parts=16     # a job array
    python finetune.py configs/tasks/docs_tc.py --model=out/tiny-mlm40 --probe          # frozen features, seconds

The protocol is the paper's (section 2 and its authors' evaluation code): the same for every model, always
bidirectional. The same command again does what is missing. Writes predictions/<model>/<TASK>/<dataset>/<run>/.
"""
import collections
import dataclasses
import datetime
import hashlib
import json
import math
import os
import re
import shutil
import statistics
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from nanoencoder import settings as configs
from nanoencoder import cost
import evaluate
from nanoencoder import huggingface
import model as architecture
import pretrain
import tasks
from data import read_json, sha256
from nanoencoder.tokenizer import load_tokenizer


@dataclass(frozen=True)
class Settings(tasks.Task):
    model: str = ''                 # a checkpoint, or a run's folder: its newest one
    untrained: bool = False         # take only the sizes and the tokenizer of `model`: the floor
    name: str = ''                  # of the model in predictions; empty: the run's, with -<step> if it was not done
    # the paper, section 2; the rest of the optimiser from the authors' run files
    lr: float = 1e-4
    seed: int = 0                   # of the head's weights and the order of the data
    lrs: tuple = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4)  # of --grid
    seeds: tuple = (0, 1, 2, 3, 4)  # of --grid
    batch_size: int = 32
    warmup: float = 0.1             # share of the steps, then linear decay to 0
    weight_decay: float = 0.1       # on matrices only
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-5
    grad_clip: float = 1.0
    weights: str = 'fp32'           # or bf16, weights and moments, as the authors: small updates are rounded away
    scale: float = 20.0             # of the cosines in InfoNCE
    # what may change between one start and the next
    tokens_at_once: int = 16_384    # in a pass; a batch is computed in several (IR: a training batch in one)
    recompute: bool = False         # activations in the backward pass: less memory
    device: str = 'auto'
    dtype: str = 'auto'             # of the arithmetic: bf16 where CUDA has it, else fp32
    save_model: bool = False        # also write fine-tuned/<the same path>, a Hugging Face folder
    predictions: str = 'predictions'

    def __post_init__(self):
        super().__post_init__()
        for name, options in (('weights', ('fp32', 'bf16')),
                              ('device', ('auto', 'cpu', 'cuda', 'mps')), ('dtype', ('auto', 'fp32', 'bf16'))):
            if getattr(self, name) not in options:
                raise ValueError(f'{name} is one of {", ".join(options)}, not {getattr(self, name)!r}')
        for name, low, high in (('batch_size', 1, math.inf), ('tokens_at_once', 1, math.inf), ('lr', 0, math.inf),
                                ('grad_clip', 1e-9, math.inf), ('weight_decay', 0, math.inf), ('eps', 0, math.inf),
                                ('scale', 1e-9, math.inf), ('seed', 0, 2 ** 63), ('warmup', 0, 1), ('beta1', 0, 1),
                                ('beta2', 0, 1)):
            if not low <= getattr(self, name) <= high or getattr(self, name) == math.inf:
                wanted = f'at least {low}' if high == math.inf else f'from {low} to {high}'
                raise ValueError(f'{name} must be {wanted}, not {getattr(self, name)}')
        if self.tokenizer != tasks.Task.tokenizer:
            raise ValueError('tokenizer is the model\'s; leave it out')
        if self.name and (not re.fullmatch(r'[\w.-]+', self.name) or self.name.startswith('.')):
            raise ValueError(f'name must be that of a folder, not {self.name!r}')
        if not self.model:
            raise ValueError('model is empty: --model=out/<run> or a checkpoint folder')
        for name, kind in (('lrs', float), ('seeds', int)):
            values = getattr(self, name)
            good = all(type(value) is kind and 0 <= value < math.inf for value in values)
            if not values or not good or len(set(values)) < len(values):
                raise ValueError(f'{name} is a tuple of different {kind.__name__}s from 0 on, as ({kind(1)},), not {values!r}')


# may differ between two starts of a grid
INCIDENTAL = ('model', 'untrained', 'name', 'lrs', 'seeds', 'tokens_at_once', 'recompute', 'device', 'save_model',
              'predictions', 'tokenizer', 'data', 'cache', 'score_on')
# decide the rows, whose sha256 is compared instead
TASK_ONLY = ('dataset', 'source', 'subset', 'revision', 'train', 'validation', 'test', 'hold_out', 'template', 'label',
             'words', 'tags', 'labels', 'label_map', 'scheme', 'answers', 'candidates', 'query', 'document', 'pair', 'pairs',
             'qrels', 'judged_only')


# ----------------------------------------------------------------------------------------------------- model

class Encoder(nn.Module):
    """The pretrained transformer, bidirectional, and a task's head; the names are Hugging Face's.

    A flat row of tokens (N,) with segment lengths gives SC (segments, labels), TC and QA (N, labels), IR (segments, d).
    """

    def __init__(self, sizes, kind, num_labels):
        super().__init__()
        self.kind = kind
        self.model = architecture.Transformer(sizes)
        if kind == 'SC':
            self.dense = nn.Linear(sizes.hidden_size, sizes.hidden_size)
        if kind != 'IR':
            self.classifier = nn.Linear(sizes.hidden_size, num_labels)

    def forward(self, tokens, lengths):
        x = self.model(tokens, lengths, causal=False)                    # (N, d)
        if self.kind == 'SC':
            return self.classifier(F.gelu(self.dense(mean_pool(x, lengths))))
        if self.kind == 'IR':
            return F.normalize(mean_pool(x, lengths).float(), dim=1)
        return self.classifier(x)


def mean_pool(x, lengths):
    """(segments, d): the mean of each segment's tokens, added in fp32."""
    lengths = torch.tensor(lengths, device=x.device)
    segment = torch.arange(len(lengths), device=x.device).repeat_interleave(lengths, output_size=len(x))
    total = torch.zeros(len(lengths), x.shape[1], device=x.device).index_add(0, segment, x.float())
    return (total / lengths[:, None]).type_as(x)


def pretrained(cfg):
    """(transformer on the CPU in fp32, tokenizer, name, what run.json says of them).

    ValueError for a folder without a checkpoint, or of another architecture.
    """
    folder = huggingface.find_checkpoint(cfg.model)
    tokenizer = load_tokenizer(str(folder))
    found = architecture.load(folder, tokenizer=tokenizer, head=False)
    about = {'tokenizer': tokenizer.fingerprint(), 'sizes': dataclasses.asdict(found.sizes)}
    if cfg.untrained:
        with torch.no_grad():
            for name, p in found.named_parameters(prefix='model'):
                p.copy_(architecture.initial_weight(name, p.shape, seed=0))
        return found, tokenizer, cfg.name or 'untrained', about | {'checkpoint': 'none', 'pretraining': None}
    past = pretraining(folder, sum(p.numel() for p in found.parameters()))
    files = [sha256(path) for path in huggingface.weight_files(folder)]
    checkpoint = files[0] if len(files) == 1 else hashlib.sha256(''.join(files).encode()).hexdigest()
    about |= {'checkpoint': checkpoint, 'pretraining': past}
    run = folder.parent.name if folder.name.isdigit() else folder.name
    if huggingface.is_hub_id(cfg.model):
        run = cfg.model.split('/')[-1]  # its local folder bears the name of a commit
    if re.fullmatch(r'lr\S+_sd\d+', run):
        run = '-'.join(folder.parts[-4:])  # a fine-tuned model's: whose, for what, and which
    done = not past or past['step'] == sum(steps for _, steps in past['phases'])
    return found, tokenizer, cfg.name or (run if done else f'{run}-{folder.name}'), about


def pretraining(folder, parameters):
    """What a checkpoint of ours was trained with, for figures; None for another's."""
    if not (folder / 'state.json').exists():
        return None
    state = read_json(folder / 'state.json')
    try:
        settings = {name: tuple(value) if isinstance(value, list) else value for name, value in state['settings'].items()}
        settings['phases'] = tuple(map(tuple, settings['phases']))
        run, left = pretrain.Settings(**settings), int(state['step'])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f'{folder / "state.json"}: not the state of a pretraining run: {error!r}') from None
    flops = 0.0
    for kind, steps in run.phases:
        flops += min(steps, left) * run.rows_per_step * run.context * cost.flops_per_token(run, kind)
        left -= min(steps, left)
    millions = parameters / 1e6
    size = f'{millions / 1e3:.1f}B' if millions >= 1e3 else f'{millions:.0f}M' if millions >= 10 else f'{millions:.1f}M'
    return {'family': size, 'phases': run.phases, 'mask_ratio': run.mask_ratio, 'step': state['step'], 'flops': flops,
            'continues': Path(run.weights_from).name if run.weights_from else ''}


# -------------------------------------------------------------------------------------------------- what to do

class Work(NamedTuple):
    """All that the runs of a task have in common, read once."""
    cfg: Settings
    world: object        # pretrain.World of this process alone
    base: nn.Module      # pretrained, on the CPU
    tokenizer: object
    name: str            # of the model
    about: dict          # its sizes, tokenizer, pretraining, and the sha256 of its weights
    labels: tuple
    max_length: int
    rows: dict           # {split: rows}; IR: those of the first set
    train: list          # of Examples; IR: of pairs of token arrays
    sets: dict           # {dataset: (Task, rows)} to be scored; IR may have several
    encoded: dict        # {dataset: {split: Examples}}; IR: {text: tokens}
    grid: tuple          # (learning rates, seeds) that were asked for, () for a single run
    fingerprints: dict   # {dataset: sha256 of what it is scored on, 'train': of what is trained on}


def prepare(cfg, grid=()):
    """The Work of a command: model, rows, tokens. Prints what truncation loses."""
    device, dtype = pretrain.pick_device(cfg.device, 'fp32' if cfg.weights == 'bf16' else cfg.dtype)
    base, tokenizer, name, about = pretrained(cfg)
    if cfg.save_model:
        check_export(cfg, base.sizes)
    max_length = cfg.max_length or round(0.99 * base.sizes.max_position_embeddings)
    if not 2 <= max_length <= base.sizes.max_position_embeddings:
        raise ValueError(f'max_length {max_length}: the model reads 2 to {base.sizes.max_position_embeddings} tokens')
    rows, labels = tasks.load(cfg)
    sets = {cfg.dataset: (cfg, rows)}
    if cfg.kind == 'IR':
        for path in cfg.score_on:
            other, _ = configs.parse(tasks.Task, [path])
            other = dataclasses.replace(other, data=other.data or cfg.data)
            if other.kind != 'IR' or other.dataset in sets:
                raise ValueError(f'score_on {path}: {other.dataset} ({other.kind}) is no further retrieval set')
            sets[other.dataset] = other, tasks.load(other, training=False)[0]
        train, encoded = encode_retrieval(sets, rows['train'], tokenizer, max_length)
    else:
        train, encoded = encode_rows(cfg, rows, labels, tokenizer, max_length)
    if not train:
        raise ValueError(f'{cfg.dataset}: nothing to train on')
    total = make_schedule(cfg, 0.0, len(train)).total_steps
    if total < min(50, cfg.steps or 50) and cfg.epochs == Settings.epochs:
        print(f'{cfg.dataset}: {len(train)} examples are {total} steps; small data need more --epochs', file=sys.stderr)
    return Work(cfg, pretrain.World(0, 1, device, dtype), base, tokenizer, name, about, labels, max_length, rows, train, sets,
                encoded, grid, {dataset: tasks.fingerprint(found) for dataset, (_, found) in sets.items()}
                | {'train': tasks.fingerprint(rows, ('train',))})


def check_export(cfg, sizes):
    """What transformers or sentence-transformers could not hold is refused before it is trained."""
    if sizes.qk_norm and cfg.kind == 'SC':
        raise ValueError('save_model: transformers has no classifier of mean-pooled tokens with norms of q and k (Qwen3); '
                         'leave it out (predictions are written all the same)')
    for name in ('query', 'document') if cfg.kind == 'IR' else ():
        if not re.fullmatch(r'[^{}]*(\{\w+\}[^{}]*)*\{\w+\}', getattr(cfg, name)):
            raise ValueError(f'{name} {getattr(cfg, name)!r}: with save_model it must end with a column, for '
                             'sentence-transformers puts a prompt before a text and nothing behind it')


def encode_rows(cfg, rows, labels, tokenizer, max_length):
    """(training Examples, {dataset: {split: Examples}}) of SC, TC and QA."""
    made = {}
    for split in tasks.SPLITS:
        made[split], lost = tasks.examples(cfg, rows[split], labels, tokenizer, max_length)
        if any(lost):
            words = ', '.join(f'{count:,} {what}' for what, count in lost._asdict().items() if count)
            print(f'{cfg.dataset} {split}: cut at {max_length} tokens: {words}', file=sys.stderr)
    train = made['train']
    if cfg.kind == 'QA' and cfg.qa_head == 'span' and always_answered(rows['train']):
        train = [example for example in train if (example.targets == 1).any()]  # SQuAD v1.1: no window without its answer
    return train, {cfg.dataset: made}


def always_answered(rows):
    """Whether every question has an answer, as in SQuAD v1.1; then no empty answer is predicted by qa_head = "span"."""
    return all(row['answers'] for row in rows)


def encode_retrieval(sets, pairs, tokenizer, max_length):
    """(training pairs of token arrays, {dataset: {text: tokens}}) of IR. Identical texts are encoded once."""
    texts = {text: None for _, found in sets.values() for text in (
        *found['corpus'].values(), *(row['query'] for split in ('validation', 'test') for row in found[split]))}
    texts |= {row[side]: None for row in pairs for side in ('query', 'positive')}
    cut = 0
    for text in texts:
        tokens = tokenizer.encode(text)
        cut += len(tokens) >= max_length
        texts[text] = tasks.end(tokens, tokenizer, max_length)
    if cut:
        print(f'{", ".join(sets)}: {cut:,} of {len(texts):,} texts are cut at {max_length} tokens', file=sys.stderr)
    return [(texts[row['query']], texts[row['positive']]) for row in pairs], dict.fromkeys(sets, texts)


def run_folder(work, dataset, lr, seed):
    """predictions/<model>/<TASK>/<dataset>/lr1e-04_sd0."""
    return Path(work.cfg.predictions) / work.name / work.cfg.kind / dataset / evaluate.run_name(lr, seed)


def about_run(work, lr, seed, dataset, kind='fine-tuned'):
    """run.json: what fixes the numbers, so that a run is not taken for another."""
    settings = {name: value for name, value in dataclasses.asdict(work.cfg).items() if name not in INCIDENTAL}
    settings |= {'lr': lr, 'seed': seed, 'max_length': work.max_length, 'dtype': work.world.dtype}
    settings = {name: value for name, value in settings.items() if name not in TASK_ONLY}  # which the data's sha256 covers
    return json.loads(json.dumps({
        'settings': settings, 'kind': kind, 'weights': work.cfg.weights, 'labels': work.labels, 'scheme': work.cfg.scheme,
        'trained_on': work.cfg.trained_on, 'grid': work.grid, **work.about, 'data': work.fingerprints[dataset],
        'training_data': work.fingerprints['train']}))


def is_done(work, lr, seed):
    """Whether a run's predictions are all there. ValueError if they are of other settings or data."""
    found = []
    for dataset in work.sets:
        folder = run_folder(work, dataset, lr, seed)
        found.append((folder / 'run.json').exists())
        if found[-1]:
            theirs, ours = read_json(folder / 'run.json'), about_run(work, lr, seed, dataset)
            if not isinstance(theirs, dict) or not isinstance(theirs.get('settings'), dict):
                raise ValueError(f'{folder / "run.json"}: damaged; remove {folder}')
            for old, new in ((theirs, ours), (theirs['settings'], ours['settings'])):
                for name in new:
                    if name not in ('settings', 'grid') and old.get(name) != new[name]:
                        raise ValueError(f'{folder / "run.json"}: was made with {name} = {str(old.get(name))[:60]}, this run has '
                                         f'{str(new[name])[:60]}; remove the folder, or take another --predictions or --name')
            found[-1] = all((folder / f'{split}.jsonl.gz').exists() for split in ('validation', 'test'))
    return all(found) and (not work.cfg.save_model or saved_folder(work, lr, seed).exists())


# -------------------------------------------------------------------------------------------------- training

class Schedule(NamedTuple):
    """Linear warm-up, then linear decay to 0, in the terms of pretrain.lr_at."""
    lr: float
    total_steps: int
    warmup_steps: int
    decay_steps: int


def make_schedule(cfg, lr, num_examples):
    """At most `steps`, and at most `epochs` times all examples."""
    total = math.ceil(num_examples * cfg.epochs / cfg.batch_size)
    total = min(cfg.steps, total) if cfg.steps else total
    warmup = math.ceil(cfg.warmup * total)
    return Schedule(lr, total, warmup, total - warmup)


def build(work, seed):
    """The pretrained transformer with a new head; weights of the head are keyed by the seed and their name."""
    cfg = work.cfg
    with torch.device('meta'):
        encoder = Encoder(work.base.sizes, cfg.kind, 2 if cfg.kind == 'QA' else len(work.labels))
    encoder.to_empty(device='cpu')
    base = work.base.state_dict()
    with torch.no_grad():
        for name, p in encoder.named_parameters():
            if name.startswith('model.'):
                p.copy_(base[name.removeprefix('model.')])
            else:
                p.copy_(architecture.initial_weight(name, p.shape, seed))
    encoder.model.recompute = cfg.recompute
    return encoder.to(work.world.device, torch.bfloat16 if cfg.weights == 'bf16' else torch.float32)


def passes(lengths, budget):
    """Lists of indices, in order, whose lengths sum to at most the budget, or one that is longer alone."""
    found, total = [], 0
    for k, length in enumerate(lengths):
        if not found or total + length > budget:
            found.append([])
            total = 0
        found[-1].append(k)
        total += length
    return found


def apply(encoder, arrays, world):
    """The encoder's output for a list of token arrays, packed into one flat row without padding."""
    tokens = torch.from_numpy(np.concatenate(arrays)).to(world.device, non_blocking=True)
    with world.autocast():
        return encoder(tokens, [len(array) for array in arrays]).float()


def sum_of_losses(output, batch, kind, qa_head):
    """Sum of the cross-entropies of a few Examples."""
    if kind == 'QA' and qa_head == 'span':
        starts = np.cumsum([0] + [len(example.tokens) for example in batch])
        loss = 0
        for example, first, last in zip(batch, starts, starts[1:]):
            answer = np.flatnonzero(example.targets == 1)
            forbidden = torch.from_numpy(example.words[:, 0] < 0).to(output.device)
            forbidden[-1] = False  # eos, which stands for no answer
            logits = output[first:last].masked_fill(forbidden[:, None], -math.inf)
            at = torch.tensor([answer[0], answer[-1]] if len(answer) else [len(logits) - 1] * 2, device=output.device)
            loss = loss + F.cross_entropy(logits.T, at, reduction='sum') / 2
        return loss
    targets = torch.from_numpy(np.concatenate([example.targets for example in batch])).to(output.device)
    return F.cross_entropy(output, targets, ignore_index=-100, reduction='sum')


def num_targets(example, kind, qa_head):
    """How many cross-entropies an Example adds: one, but for TC and tagged QA one a token."""
    return 1 if kind == 'QA' and qa_head == 'span' else int((example.targets != -100).sum())


def contrastive_loss(encoder, pairs, excluded, scale, world):
    """(InfoNCE of (query, positive) pairs with the others' positives as negatives, mean number of negatives).

    excluded  (B, B) bool: documents that are no negative of a query, for they are known positives or copies of its own
    """
    vectors = apply(encoder, [query for query, _ in pairs] + [positive for _, positive in pairs], world)
    cosines = vectors[:len(pairs)] @ vectors[len(pairs):].T
    logits = (scale * cosines).masked_fill(torch.from_numpy(excluded).to(cosines.device), -math.inf)
    own = torch.arange(len(pairs), device=cosines.device)
    return F.cross_entropy(logits, own), float((~excluded).sum() / len(pairs) - 1)


def known_positives(rows):
    """A function from a batch's indices to the (B, B) bool of contrastive_loss."""
    positives = collections.defaultdict(set)
    for row in rows:
        positives[row['query']].add(row['positive'])

    def excluded(indices):
        return np.array([[a != b and rows[j]['positive'] in positives[rows[i]['query']] for b, j in enumerate(indices)]
                         for a, i in enumerate(indices)])
    return excluded


def backward(work, encoder, batch):
    """Gradients of the mean loss of a batch of Examples, a few at once; the loss, on the device."""
    cfg, world = work.cfg, work.world
    count = max(1, sum(num_targets(example, cfg.kind, cfg.qa_head) for example in batch))
    total = torch.zeros((), device=world.device)
    for part in passes([len(example.tokens) for example in batch], cfg.tokens_at_once):
        part = [batch[k] for k in part]
        output = apply(encoder, [example.tokens for example in part], world)
        loss = sum_of_losses(output, part, cfg.kind, cfg.qa_head) / count
        loss.backward()
        total += loss.detach()
    return total


def fit(work, lr, seed, say=lambda text: None):
    """(trained Encoder, log lines). FloatingPointError at the first step whose loss is not finite."""
    cfg, world = work.cfg, work.world
    encoder = build(work, seed)
    schedule = make_schedule(cfg, lr, len(work.train))
    optimizer = pretrain.make_optimizer(encoder, dataclasses.replace(cfg, lr=lr), world)
    order = np.concatenate([np.random.default_rng([seed, 1 + epoch]).permutation(len(work.train))
                            for epoch in range(cfg.epochs)])
    excluded = known_positives(work.rows['train']) if cfg.kind == 'IR' else None
    began, log, waiting = time.monotonic(), [], []
    encoder.train()
    for step in range(schedule.total_steps):
        indices = order[step * cfg.batch_size:(step + 1) * cfg.batch_size].tolist()
        batch, line = [work.train[i] for i in indices], {'step': step + 1, 'lr': pretrain.lr_at(step, schedule)}
        if cfg.kind == 'IR':
            loss, line['negatives'] = contrastive_loss(encoder, batch, excluded(indices), cfg.scale, world)
            loss.backward()
        else:
            loss = backward(work, encoder, batch)
        norm = torch.nn.utils.clip_grad_norm_(encoder.parameters(), cfg.grad_clip)
        for group in optimizer.param_groups:
            group['lr'] = line['lr']
        optimizer.step()
        optimizer.zero_grad()
        waiting.append((line, loss.detach(), norm))
        if (step + 1) % 20 == 0 or step + 1 == schedule.total_steps:
            log += look(waiting)
            mean = statistics.fmean(line['loss'] for line in log[-len(waiting):])
            left = (time.monotonic() - began) / (step + 1) * (schedule.total_steps - step - 1)
            say(f'step {step + 1:,}/{schedule.total_steps:,}  loss {mean:.4f}  {pretrain.duration(left)} left')
            waiting.clear()
    if not all(torch.isfinite(p).all() for p in encoder.parameters()):
        raise FloatingPointError('the last update left weights that are not finite')
    return encoder, log


def look(waiting):
    """The log lines of steps whose losses and norms stayed on the device till now. FloatingPointError at one not finite."""
    lines, losses, norms = zip(*waiting)
    lines = [line | {'loss': loss, 'grad_norm': norm}
             for line, loss, norm in zip(lines, torch.stack(losses).tolist(), torch.stack(norms).tolist())]
    for line in lines:
        if not math.isfinite(line['loss']) or not math.isfinite(line['grad_norm']):
            raise FloatingPointError(f'step {line["step"]}: loss {line["loss"]}, gradient norm {line["grad_norm"]}')
    return lines


# ----------------------------------------------------------------------------------------------- predictions

@torch.no_grad()
def outputs(encoder, arrays, cfg, world, per_token):
    """The encoder's output for each token array, as numpy, in their order. Sorted by length and packed, never padded.

    per_token: (n, ...) for an array of n tokens, else one vector each.
    """
    encoder.eval()
    order = np.argsort([len(array) for array in arrays], kind='stable')
    found = [None] * len(arrays)
    for part in passes([len(arrays[i]) for i in order], cfg.tokens_at_once):
        chosen = [order[k] for k in part]
        output = apply(encoder, [arrays[i] for i in chosen], world).cpu().numpy()
        pieces = np.split(output, np.cumsum([len(arrays[i]) for i in chosen])[:-1]) if per_token else output
        for i, piece in zip(chosen, pieces):
            found[i] = piece
    return found


def predict(work, encoder, dataset):
    """{'validation': rows, 'test': rows}: what evaluate.py reads, gold beside predicted, of every instance of a set."""
    task, rows = work.sets[dataset]
    if work.cfg.kind == 'IR':
        return search(work, encoder, task, rows, work.encoded[dataset])
    found = {}
    for split in ('validation', 'test'):
        made = work.encoded[dataset][split]
        arrays = outputs(encoder, [example.tokens for example in made], work.cfg, work.world, work.cfg.kind != 'SC')
        if work.cfg.kind == 'SC':
            found[split] = [{'id': row['id'], 'gold': row['label'], 'pred': work.labels[int(logits.argmax())]}
                            for row, logits in zip(rows[split], arrays)]
        elif work.cfg.kind == 'TC':
            found[split] = [{'id': row['id'], 'gold': row['tags'], 'pred': tags_of(row, example, logits.argmax(1), work.labels)}
                            for row, example, logits in zip(rows[split], made, arrays)]
        else:
            never_empty = always_answered(work.rows['train'])
            windows = collections.defaultdict(list)
            for example, logits in zip(made, arrays):
                windows[example.row].append((example, logits))
            found[split] = [{'id': row['id'], 'golds': [text for text, _ in row['answers']],
                             'pred': answer_of(row, windows[k], work.cfg.qa_head, never_empty)}
                            for k, row in enumerate(rows[split])]
    return found


def tags_of(row, example, token_labels, labels):
    """A word's label is its tokens' majority, of equals the smallest number; "O" for a word without a token."""
    votes = np.zeros((len(row['words']), len(labels)), np.int64)
    inside = example.words >= 0
    np.add.at(votes, (example.words[inside], token_labels[inside]), 1)
    outside = labels.index('O') if 'O' in labels else 0
    return [labels[int(one.argmax())] if one.any() else labels[outside] for one in votes]


def answer_of(row, windows, qa_head, never_empty):
    """The text of the best span of any window, empty if there is none; of equal spans the later one."""
    if row['candidates']:
        found = [best_candidate(row, example, logits, qa_head) for example, logits in windows]
    elif qa_head == 'tag':
        found = [best_run(example, logits) for example, logits in windows]
    else:
        found = [best_span(example, logits, never_empty) for example, logits in windows]
    _, first, last = max(found)
    return row['context'][first:last].strip()


def best_run(example, logits):
    """(sum of log-odds, first, last character + 1) of the best run of tokens tagged as answer; (0, 0, 0) for none."""
    odds = np.where(example.words[:, 0] >= 0, logits[:, 1] - logits[:, 0], -1.0)
    inside = np.concatenate([[False], odds > 0, [False]])
    edges = np.flatnonzero(inside[1:] != inside[:-1])
    found = [(float(odds[a:b].sum()), int(example.words[a, 0]), int(example.words[b - 1, 1]))
             for a, b in zip(edges[::2], edges[1::2])]
    return max(found, default=(0.0, 0, 0))


def best_span(example, logits, never_empty=False, longest=30):
    """(score over that of no answer, first, last character + 1) of the best span of at most `longest` tokens."""
    at = np.flatnonzero(example.words[:, 0] >= 0)
    if not len(at):
        return -math.inf if never_empty else 0.0, 0, 0
    scores = logits[at, 0][:, None] + logits[at, 1][None]
    near = np.triu(np.ones_like(scores, bool)) & ~np.triu(np.ones_like(scores, bool), longest)
    scores = np.where(near, scores, -np.inf)
    a, b = np.unravel_index(scores.argmax(), scores.shape)
    over = float(scores[a, b] - logits[-1].sum())
    if over <= 0 and not never_empty:
        return 0.0, 0, 0
    return over, int(example.words[at[a], 0]), int(example.words[at[b], 1])


def best_candidate(row, example, logits, qa_head):
    """(score, first, last + 1) of a candidate's best occurrence whole in a window.

    The score is the mean log-odds of its tokens, or start + end over that of no answer.
    """
    found = [(-math.inf, 0, 0)]
    inside = example.words[:, 0] >= 0
    for text in row['candidates']:
        for match in re.finditer(rf'(?<!\w){re.escape(text)}(?!\w)', row['context']):
            at = np.flatnonzero(inside & (example.words[:, 0] < match.end()) & (example.words[:, 1] > match.start()))
            if len(at) and example.words[at[0], 0] <= match.start() and example.words[at[-1], 1] >= match.end():
                over = logits[at[0], 0] + logits[at[-1], 1] - logits[-1].sum()
                score = (logits[at, 1] - logits[at, 0]).mean() if qa_head == 'tag' else over
                found.append((float(score), match.start(), match.end()))
    return max(found)


def search(work, encoder, task, rows, tokens):
    """Each query's best documents by cosine. Identical texts are encoded once."""
    ids = sorted(rows['corpus'], reverse=True)
    queries = {row['query'] for split in ('validation', 'test') for row in rows[split]}
    texts = sorted({*rows['corpus'].values(), *queries})
    vectors = dict(zip(texts, outputs(encoder, [tokens[text] for text in texts], work.cfg, work.world, False)))
    documents = np.stack([vectors[rows['corpus'][document]] for document in ids])
    return {split: [tasks.ranking(row, ids, documents @ vectors[row['query']], task.drop_same_id) for row in rows[split]]
            for split in ('validation', 'test')}


# ------------------------------------------------------------------------------------------------------ runs

def do_run(work, lr, seed, say):
    """One fine-tuning: fit, predict every set, write. Returns what to tell."""
    began = time.monotonic()
    encoder, log = fit(work, lr, seed, say)
    if work.cfg.save_model:
        save_encoder(work, encoder, saved_folder(work, lr, seed))
    told = []
    for dataset, (task, _) in work.sets.items():
        found = predict(work, encoder, dataset)
        name, numerators, denominators, _ = evaluate.standard_scores(work.cfg.kind, found['validation'], task.scheme)
        told.append(f'{dataset} validation {name} {100 * evaluate.ratio(numerators, denominators):.1f}')
        tasks.write_run(run_folder(work, dataset, lr, seed), about_run(work, lr, seed, dataset), found, log)
    loss = statistics.fmean(line['loss'] for line in log[-20:])
    saved = f'; {saved_folder(work, lr, seed)}' if work.cfg.save_model else ''
    return f'{", ".join(told)}; loss {loss:.4f}; {time.monotonic() - began:.0f} s{saved}'


def saved_folder(work, lr, seed):
    return Path('fine-tuned') / run_folder(work, work.cfg.dataset, lr, seed).relative_to(work.cfg.predictions)


def save_encoder(work, encoder, folder):
    """A Hugging Face folder: EuroBertForSequenceClassification, EuroBertForTokenClassification (TC and QA), or for
    retrieval EuroBertModel, which sentence-transformers opens too. With norms of q and k a Qwen3 of the kind."""
    cfg, sizes = work.cfg, work.base.sizes
    head = {'SC': 'ForSequenceClassification', 'TC': 'ForTokenClassification', 'QA': 'ForTokenClassification',
            'IR': 'Model'}
    labels = work.labels or {'tag': ('O', 'ANSWER'), 'span': ('start', 'end')}[cfg.qa_head]
    more = {'architectures': [('Qwen3' if sizes.qk_norm else 'EuroBert') + head[cfg.kind]]}
    tensors = {name: p.float() for name, p in encoder.named_parameters()}
    if sizes.qk_norm:
        tensors = {name.replace('classifier.', 'score.'): p for name, p in tensors.items()}
    if cfg.kind == 'IR':
        tensors = {name.removeprefix('model.'): p for name, p in tensors.items()}
    else:
        more |= {'id2label': dict(enumerate(labels)), 'label2id': {label: k for k, label in enumerate(labels)}}
    temporary = folder.with_name(f'.{folder.name}.tmp')
    shutil.rmtree(temporary, ignore_errors=True)
    architecture.save(sizes, tensors, temporary, **more)
    work.tokenizer.save(temporary, append_eos=True, model_max_length=work.max_length)
    if cfg.kind == 'IR':
        prompts = {'query': cfg.query, 'document': cfg.document}
        huggingface.write_sentence_transformers(temporary, sizes.hidden_size, work.max_length, {
            name: template.split('{')[0] for name, template in prompts.items()})
    huggingface.write_card(temporary, *model_card(work, folder.name))
    shutil.rmtree(folder, ignore_errors=True)
    temporary.rename(folder)


def model_card(work, run):
    """(front matter, text) of a fine-tuned model's README.md."""
    cfg, base = work.cfg, '' if work.cfg.untrained else pretrain.base_model(work.cfg.model)
    pipelines = {'SC': 'text-classification', 'TC': 'token-classification', 'QA': 'token-classification',
                 'IR': 'sentence-similarity'}
    front = {'library_name': 'sentence-transformers' if cfg.kind == 'IR' else 'transformers'}
    front |= {'pipeline_tag': pipelines[cfg.kind]} | ({'base_model': base} if base else {})
    answer = {'tag': 'the tokens of the answer are ANSWER',
              'span': 'the best start and end among the context\'s tokens, or both at eos for no answer'}[cfg.qa_head]
    texts = {'SC': repr(cfg.template), 'TC': 'words joined by a space', 'QA': f'{cfg.template!r}; {answer}',
             'IR': f'{cfg.query!r} and {cfg.document!r}'}
    schedule = make_schedule(cfg, 0.0, len(work.train))
    use = {'SC': "pipeline('text-classification', '<this folder>')",
           'TC': "pipeline('token-classification', '<this folder>')",
           'QA': "AutoModelForTokenClassification.from_pretrained('<this folder>')",
           'IR': "SentenceTransformer('<this folder>')"}
    return front, f"""
# {work.name} on {cfg.dataset}, {run}

{work.name}{f' (from {base})' if base else ''}, a bidirectional encoder, fine-tuned on {cfg.dataset} with nanoEncoder.

| | |
|---|---|
| texts | {texts[cfg.kind]}; then eos, which the tokenizer adds; at most {work.max_length:,} tokens |
| training | {schedule.total_steps:,} steps of {cfg.batch_size}, of {len(work.train):,} examples |

Opens in transformers 5 or newer, without remote code: `{use[cfg.kind]}`.
"""


def claim():
    """A function that gives each call, in any of torchrun's processes, another number: 0, 1, 2, ...

    The counter is in the store that torchrun's agent hosts; its key holds the restart count, so that a restart begins anew.
    """
    if 'TORCHELASTIC_RUN_ID' not in os.environ:
        return iter(range(10 ** 9)).__next__
    store = dist.TCPStore(os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']), is_master=False,
                          timeout=datetime.timedelta(seconds=60))
    key = f'grid/{os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)}'
    return lambda: store.add(key, 1) - 1


def grid(cfg, part, parts):
    """Every run of learning rates x seeds that is not done; the exit code, 1 if any failed."""
    if not 0 <= part < parts:
        raise ValueError(f'--part counts from 0 to --parts less one, which is {parts - 1}, not {part}')
    work = prepare(cfg, (cfg.lrs, cfg.seeds))
    runs = [(lr, seed) for seed in cfg.seeds for lr in cfg.lrs][part::parts]
    done = [is_done(work, lr, seed) for lr, seed in runs]
    failed, computed, began, take = 0, 0, time.monotonic(), claim()
    while (k := take()) < len(runs):
        if done[k] or is_done(work, *runs[k]):  # by now, by another grid
            continue
        folder = run_folder(work, cfg.dataset, *runs[k])
        error_file = folder.with_name(f'{folder.name}.error.txt')
        try:
            told = do_run(work, *runs[k], lambda text: None)
            error_file.unlink(missing_ok=True)
        except Exception as error:  # whatever it is: recorded, and the others go on
            failed, told = failed + 1, f'failed: {error}'
            error_file.parent.mkdir(parents=True, exist_ok=True)
            error_file.write_text(traceback.format_exc(), encoding='utf-8')
        computed += 1
        rest = sum(not one for one in done[k + 1:]) / int(os.environ.get('WORLD_SIZE', 1))
        left = (time.monotonic() - began) / computed * rest
        print(f'{work.name} {cfg.dataset} {folder.name} ({k + 1} of {len(runs)}): {told}; {pretrain.duration(left)} left\n',
              end='', flush=True)  # one write: processes share the terminal
    if not computed:
        print(f'{work.name} {cfg.dataset}: nothing to do, {sum(done)} of {len(runs)} runs were done')
    return 1 if failed else 0


# ----------------------------------------------------------------------------------------------------- probe

def probe(cfg):
    """What a linear classifier reads off the frozen model: SC from the mean of its tokens, TC from each. IR: its cosines.

    Ridge regression on one-hot labels, in closed form, of at most 5,000 texts; the penalty is chosen on validation.
    No seed, no learning rate.
    """
    if cfg.save_model:
        raise ValueError('save_model: a probe trains no model; leave it out')
    if cfg.kind == 'QA':
        raise ValueError('kind QA has no probe: a frozen model has not read the question into the context')
    work = prepare(cfg)
    encoder = build(work._replace(labels=('unused',)), seed=0)
    if cfg.kind != 'IR':
        encoder.kind, encoder.classifier = {'SC': 'IR', 'TC': 'TC'}[cfg.kind], nn.Identity()
    began = time.monotonic()
    if cfg.kind == 'IR':
        found = {dataset: predict(work, encoder, dataset) for dataset in work.sets}
    else:
        found = {cfg.dataset: probe_classes(work, encoder)}
    for dataset, rows in found.items():
        folder = run_folder(work._replace(name=f'{work.name}-probe'), dataset, 0.0, 0)
        tasks.write_run(folder, about_run(work, 0.0, 0, dataset, 'probe'), rows)
        name, numerators, denominators, _ = evaluate.standard_scores(cfg.kind, rows['validation'], cfg.scheme)
        print(f'{work.name} {dataset}: probe, validation {name} {100 * evaluate.ratio(numerators, denominators):.1f} '
              f'({time.monotonic() - began:.0f} s): {folder}')


def probe_classes(work, encoder, most=5_000):
    """{'validation': rows, 'test': rows} of predictions by ridge regression on the encoder's outputs."""
    features, targets, found = {}, {}, {}
    word = work.cfg.kind == 'TC'
    for split in tasks.SPLITS:
        made = work.encoded[work.cfg.dataset][split][:most if split == 'train' else None]
        arrays = [example.tokens for example in made]
        if not word:
            features[split] = np.stack(outputs(encoder, arrays, work.cfg, work.world, False))
            targets[split] = np.array([example.targets[0] for example in made])
            continue
        states = outputs(encoder, arrays, work.cfg, work.world, True)
        kept = [example.targets >= 0 for example in made]
        features[split] = np.concatenate([state[keep] for state, keep in zip(states, kept)])
        targets[split] = np.concatenate([example.targets[keep] for example, keep in zip(made, kept)])
    mean, deviation = features['train'].mean(0), features['train'].std(0) + 1e-6
    X = {split: np.append((x - mean) / deviation, np.ones((len(x), 1)), 1).astype(np.float64)
         for split, x in features.items()}
    gram, onto = X['train'].T @ X['train'], X['train'].T @ np.eye(len(work.labels))[targets['train']]
    weights = [np.linalg.solve(gram + penalty * len(X['train']) * np.eye(len(gram)), onto)
               for penalty in (1e-4, 1e-3, 1e-2, 1e-1)]
    best = max(weights, key=lambda W: np.mean((X['validation'] @ W).argmax(1) == targets['validation']))
    for split in ('validation', 'test'):
        labels, rows = (X[split] @ best).argmax(1), work.rows[split]
        if not word:
            found[split] = [{'id': row['id'], 'gold': row['label'], 'pred': work.labels[k]}
                            for row, k in zip(rows, labels.tolist())]
            continue
        made, start, found[split] = work.encoded[work.cfg.dataset][split], 0, []
        for row, example in zip(rows, made):
            own = np.zeros(len(example.tokens), np.int64)
            keep = example.targets >= 0
            own[keep] = labels[start:start + keep.sum()]
            start += keep.sum()
            found[split].append({'id': row['id'], 'gold': row['tags'], 'pred': tags_of(row, example, own, work.labels)})
    return found


def main():
    cfg, actions = configs.parse(Settings, sys.argv[1:], grid=False, part=0, parts=1, probe=False)
    if actions['probe'] and actions['grid'] or actions['parts'] != 1 and not actions['grid']:
        raise ValueError('--probe stands alone, and --part and --parts go with --grid')
    if actions['probe']:
        probe(cfg)
    elif actions['grid']:
        sys.exit(grid(cfg, actions['part'], actions['parts']))
    else:
        work = prepare(cfg)
        folder = run_folder(work, cfg.dataset, cfg.lr, cfg.seed)
        if is_done(work, cfg.lr, cfg.seed):
            return print(f'{folder}: already done')
        try:
            print(f'{folder}: {do_run(work, cfg.lr, cfg.seed, print)}')
        except FloatingPointError as error:
            print(f'error: {error}; a smaller --lr may help', file=sys.stderr)
            sys.exit(1)


if __name__ == '__main__':
    configs.run(main)

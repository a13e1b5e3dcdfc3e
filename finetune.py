"""Fine-tune a checkpoint on a task, once or over a grid, and write its predictions; evaluate.py scores them.

    python finetune.py configs/tasks/docs_tc.py --look                  # what a task holds; needs no model
    python finetune.py configs/tasks/docs_tc.py --model=out/mlm-1800-s6 --lr=1e-3 --steps=100
    python finetune.py configs/tasks/docs_tc.py --model=out/mlm-1800-s6 --probe       # frozen features
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
from torch import nn

from model import initial_weight
from nanoencoder import huggingface, tasks
from nanoencoder.files import locked
from nanoencoder.fine_tuned import check_prompts, saved_folder, write_fine_tuned
from nanoencoder.metrics import both_scores
from nanoencoder.optimizers import OPTIMIZERS, make_optimizer
from nanoencoder.peers import open_encoder
from nanoencoder.predictions import SCORED, about_run, is_written, run_folder, write_run
from nanoencoder.processes import World, pick_device
from nanoencoder.sentence_encoders import read_pooling
from nanoencoder.settings import is_full, may_change, parse, run_main, setting
from nanoencoder.tasks.heads import Encoder, every_token, forward, new_head, outputs, unit_vectors
from nanoencoder.tasks.kind import all_rows, pack
from nanoencoder.tasks.models import Scoring, describe, print_prompts, reading_length
from nanoencoder.tokenizer import load_tokenizer


@dataclass(frozen=True)
class Settings(tasks.Task, Scoring):
    # a run's results depend on each setting; where one is may_change they do not (nanoencoder/settings.py)

    untrained: bool = may_change(False)  # the sizes and tokenizer of `model`; new weights
    # controls: another encoder of the same weights, to be given a variant
    causal: bool = False                             # keep the causal mask on; bidirectional in the paper
    layers: int = setting(-1, -1)                    # only the first of the model's, then its norm; -1: all
    # the paper, section 2; the rest of the optimizer from the authors' run files
    lr: float = setting(1e-4, 0)
    seed: int = setting(0, 0)                         # of the head's weights and the order of the data
    lrs: tuple = may_change((1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4), 0, of=float)  # of --grid
    seeds: tuple = may_change((0, 1, 2, 3, 4), 0, of=int)  # of --grid
    batch_size: int = setting(32, 1)
    warmup: float = setting(0.1, 0, 1)               # share of the steps, then linear decay to 0
    optimizer: str = setting('adamw', choices=OPTIMIZERS)            # muon: on layers' matrices
    matrix_lr_ratio: float = setting(0.0, 0)         # of layers' matrices, times lr; 0: 1, with Muon 6.7
    weight_decay: float = setting(0.1, 0)            # on matrices only
    beta1: float = setting(0.9, 0, 1)
    beta2: float = setting(0.95, 0, 1)
    eps: float = setting(1e-5, 0)
    grad_clip: float = setting(1.0, 1e-9)
    weights: str = setting('fp32', choices=('fp32', 'bf16'))  # bf16: as the authors, loses small updates
    recompute: bool = may_change(False)  # activations, to save memory
    save_model: bool = may_change(False)  # also write fine-tuned/<the same path>

    def __post_init__(self):
        super().__post_init__()
        if not re.fullmatch('([^./][^/]*)?', self.name):
            raise ValueError(f'name must be that of a folder, not {self.name!r:.80}')
        if not re.fullmatch(r'[\w.-]*', self.variant):
            raise ValueError(f'variant must be letters that may follow a name, not {self.variant!r:.80}')
        if self.save_model and (self.causal or self.layers >= 0 or self.score != 'mean'):
            raise ValueError('save_model is for whole bidirectional models, and for retrieval those with one '
                             'vector a text; leave out causal, layers and score')
        if self.score != 'mean' and not self.variant:   # a table would show it as the model itself
            object.__setattr__(self, 'variant', self.score)

    def num_steps(self, num_examples):
        """Return how many optimizer steps a run takes: so many epochs, whose last batch may be smaller, and
        at most `steps`."""
        num_steps = math.ceil(num_examples * self.epochs / self.batch_size)
        if self.steps:
            num_steps = min(self.steps, num_steps)
        return num_steps


ACTIONS = {'grid': (False, 'every pair of lrs and seeds that is not done, shared by all processes'),
           'probe': (False, 'read frozen features with a linear classifier instead of training'),
           'look': (False, 'print what the task holds; with --model, in its tokens')}
# which --probe would ignore
OF_TRAINING = ('lr', 'seed', 'steps', 'epochs', 'batch_size', 'warmup', 'optimizer', 'matrix_lr_ratio',
               'weight_decay', 'beta1', 'beta2', 'eps', 'grad_clip', 'scale', 'save_model')
PROBED = 5_000    # texts that a probe is trained on, at most
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1)    # of a probe, times its training rows; chosen on validation


# ---------------------------------------------------------------------------
# The pretrained model and the task


class Pretrained(NamedTuple):
    transformer: nn.Module   # on the CPU, fp32
    checkpoint: huggingface.Checkpoint
    world: World             # of this process alone
    about: dict              # what run.json says of the model
    pooling: str             # of states to a text's vector: 'mean', 'cls', or 'none' for a vector of each
                             # token; '' if the run uses no vectors


def open_model_and_task(cfg, method='fine-tuned', choose_rows=all_rows):
    """Open the model and read the task. For `choose_rows` see Kind.encode.

    Returns (cfg with its name, max_length and dtype, Pretrained, [Data]); the first Data is trained on."""
    dtype = 'fp32' if cfg.weights == 'bf16' else cfg.dtype
    device, dtype = pick_device(cfg.device, dtype)
    # what can be refused without the weights, which may be 14 GB to download
    kind = tasks.kind_of(cfg)
    checkpoint = open_encoder(cfg)
    max_length = reading_length(cfg, checkpoint)
    reads_vectors = kind.head == 'vector' or kind.head == 'text' and method == 'probe'
    pooling = ''
    if reads_vectors:
        pooling = read_pooling(checkpoint.folder, checkpoint.tokenizer())
        print_prompts(cfg, kind, checkpoint.folder)
    if cfg.score == 'maxsim':
        pooling = 'none'
    if cfg.layers >= 0 and cfg.layers > checkpoint.sizes.num_hidden_layers:
        raise ValueError(f'layers {cfg.layers}: the model has {checkpoint.sizes.num_hidden_layers}')
    if cfg.save_model:
        check_prompts(kind)
    sets = tasks.load_sets(cfg, checkpoint.tokenizer(), max_length, choose_rows)
    if method == 'fine-tuned':
        check_training(cfg, len(sets[0].examples['train']))

    huggingface.fetch_weights(cfg.model, checkpoint.folder)
    transformer = checkpoint.model(head=False)
    if cfg.untrained:
        initialise(transformer, 'model', seed=0)
    name, about = describe(checkpoint, transformer.sizes, cfg, cfg.untrained)
    if cfg.layers >= 0:
        del transformer.layers[cfg.layers:]
    about['method'] = method
    if pooling:
        about['pooling'] = pooling
    cfg = replace(cfg, name=name, max_length=max_length, dtype=dtype)
    base = Pretrained(transformer, checkpoint, World(0, 1, device, dtype), about, pooling)
    return cfg, base, sets


def check_training(cfg, num_examples):
    """ValueError if there is nothing to train on. Say so if it is little."""
    if not num_examples:
        raise ValueError(f'{cfg.dataset}: nothing to train on')
    steps = cfg.num_steps(num_examples)
    asked_for = cfg.steps not in (0, Settings.steps)
    if steps < (cfg.steps if asked_for else 50):
        print(f'{cfg.dataset}: {num_examples} examples in {cfg.epochs} epochs make {steps} steps; for more '
              'raise --epochs', file=sys.stderr)


def rows_to_encode(cfg, actions, count):
    """Return the indices, of `count` training rows, that a probe, a grid or a single run will read."""
    kind = tasks.kind_of(cfg)
    if kind.reads_all_rows:
        return all_rows(count)
    if actions.probe:
        if not kind.labelled_by:    # retrieval: its probe is fitted to nothing
            return ()
        return probed_rows(cfg, count)
    seeds = cfg.seeds if actions.grid else [cfg.seed]
    num_read = cfg.num_steps(count) * cfg.batch_size
    chosen = set()
    for seed in seeds:
        order = training_order(cfg, seed, count)
        chosen.update(itertools.islice(order, num_read))
    return chosen


def probed_rows(task, count):
    """The indices of the training rows that a probe reads: PROBED of them at most, the same for every model.
    They are drawn from the whole file, which may be sorted by label or source."""
    random = np.random.default_rng([*task.dataset.encode()])
    return set(random.permutation(count)[:PROBED])


def training_order(cfg, seed, count):
    """The indices of training examples in the order in which the steps read them."""
    for epoch in range(cfg.epochs):
        random = np.random.default_rng([seed, 1 + epoch])
        yield from random.permutation(count)


@torch.no_grad()
def initialise(module, prefix, seed):
    """Give a module its first weights, each keyed by its name, which begins with the prefix, and the seed."""
    for name, p in module.named_parameters(prefix):
        weight = initial_weight(name, p.shape, seed)
        p.copy_(weight)


# ---------------------------------------------------------------------------
# One fine-tuning


def lr_at(step, cfg, total):
    """Linear warm-up, then linear decay to 0."""
    warmup = math.ceil(cfg.warmup * total)
    if step < warmup:
        return cfg.lr * ((step + 1) / warmup)
    return cfg.lr * ((total - step) / (total - warmup))


def new_encoder(cfg, base, head):
    """Return an Encoder of its own weights on the device, in the precision that cfg.weights asks for."""
    encoder = Encoder(copy.deepcopy(base.transformer), head, cfg.causal)
    if isinstance(head, nn.Module):
        initialise(head, '', cfg.seed)
    encoder.model.recompute = cfg.recompute
    encoder.to(base.world.device)
    if cfg.weights == 'bf16':
        for p in encoder.parameters():  # not the buffers: a peer's RoPE needs its frequencies in fp32
            p.data = p.data.bfloat16()
    return encoder


def backward(cfg, world, encoder, batch, kind):
    """Add the gradients of a batch's mean loss, a few examples at once. Returns the loss, on the device."""
    count = kind.num_losses(batch)
    budget = math.inf if kind.in_one_piece else cfg.tokens_at_once
    total = torch.zeros((), device=world.device)
    for chosen in pack([len(example.tokens) for example in batch], budget):
        part = [batch[k] for k in chosen]
        output = forward(encoder, kind.texts(part), world)
        part_loss = kind.loss(output, part) / count
        part_loss.backward()
        total += part_loss.detach()
    return total


def fit(cfg, base, data, title=''):
    """Train a new head and all of the encoder. Returns (the trained Encoder, the lines of its log).

    title  of the lines that tell how far it is; without a title there are none"""
    train = data.examples['train']
    total = cfg.num_steps(len(train))
    head = new_head(data.kind.head, base.transformer.sizes.hidden_size, len(data.labels), base.pooling)
    encoder = new_encoder(cfg, base, head)
    optimizer = make_optimizer(encoder, cfg)
    order = training_order(cfg, cfg.seed, len(train))
    log = []
    start = time.monotonic()
    for step in range(total):
        chosen = itertools.islice(order, cfg.batch_size)
        batch = [train[i] for i in chosen]
        loss = backward(cfg, base.world, encoder, batch, data.kind).item()
        norm = nn.utils.clip_grad_norm_(encoder.parameters(), cfg.grad_clip).item()
        if not math.isfinite(loss + norm):
            raise FloatingPointError(f'step {step + 1}: loss or norm is not finite: lower --lr')
        lr = lr_at(step, cfg, total)
        for group in optimizer.param_groups:
            group['lr'] = lr * group['lr_ratio']
        optimizer.step()
        optimizer.zero_grad()
        log.append({'step': step + 1, 'lr': lr, 'loss': loss, 'grad_norm': norm})
        if title:
            print_progress(title, log, total, time.monotonic() - start)
    return encoder, log


def print_progress(title, log, total, seconds):
    """Print a line after the first step, and after every 50: the mean loss of the last 20 steps, and the time
    left."""
    done = len(log)
    if done % 50 and done > 1:
        return
    loss = statistics.fmean(line['loss'] for line in log[-20:])
    left = timedelta(seconds=round(seconds / done * (total - done)))
    # flushed, and in one write: lines of processes do not mix
    print(f'{title} step {done:,}/{total:,}  loss {loss:.4f}  {left} left\n', end='', flush=True)


def predict(cfg, world, encoder, data):
    """{split: rows} of validation and test: what evaluate.py reads."""
    per_token = data.kind.head == 'tokens' or data.kind.task.score == 'maxsim'
    read = {
        part: outputs(cfg, world, encoder, examples, per_token)
        for part, examples in data.examples.items()
        if part != 'train'}
    return data.kind.predict(data, read)


def write_runs(cfg, base, sets, predictions, log=(), grid=()):
    """Write the folder of a run on each dataset. Returns its validation scores, in words."""
    words = []
    for data, rows in zip(sets, predictions):
        task = data.kind.task
        metric, scores = both_scores(task.kind, rows['validation'], task.scheme, task.metric)
        score = scores['standard']['score']
        about = about_run(cfg, base.about, data, sets[0], grid)
        write_run(run_folder(cfg, task.dataset), about, rows, log)
        words.append(f'{task.dataset} validation {metric} {100 * score:.1f}')
    return '; '.join(words)


def do_run(cfg, base, sets, title='', grid=()):
    """Do one fine-tuning: fit, predict every set, write. Returns what to tell of it.

    title  of its lines of progress; without one, the model's name
    grid   the learning rates and the seeds of the grid that the run is of"""
    encoder, log = fit(cfg, base, sets[0], title or cfg.name)
    predictions = [predict(cfg, base.world, encoder, data) for data in sets]
    words = write_runs(cfg, base, sets, predictions, log, grid)
    if cfg.save_model:
        folder = saved_folder(cfg)
        write_fine_tuned(cfg, base, sets[0], encoder, folder)
        words += f'; {folder}'
    return words


# ---------------------------------------------------------------------------
# Probes: a linear classifier on frozen features


def probe(cfg, base, sets):
    """Fit a linear classifier to the frozen model; retrieval takes its scores. Returns what to tell."""
    print(f'{cfg.name} {cfg.dataset}: the frozen model reads all texts once', flush=True)
    kind = sets[0].kind
    per_token = kind.head == 'tokens'
    head = every_token if per_token else functools.partial(unit_vectors, pooling=base.pooling)
    encoder = new_encoder(cfg, base, head)
    if kind.labelled_by:
        predictions = [classify(cfg, base, sets[0], encoder, per_token)]
    else:
        predictions = [predict(cfg, base.world, encoder, data) for data in sets]
    return write_runs(cfg, base, sets, predictions)


def classify(cfg, base, data, encoder, per_token):
    """Predict labels by ridge regression on what the encoder gives for the training rows that were read."""
    features = {}
    targets = {}
    for split, examples in data.examples.items():
        examples = [example for example in examples if example]     # None stands for one that was not read
        features[split] = outputs(cfg, base.world, encoder, examples, per_token)
        targets[split] = [example.targets for example in examples]
    scores = ridge(features, targets, len(data.labels))
    return data.kind.predict(data, scores)


def ridge(features, targets, num_labels):
    """Ridge regression on one-hot labels; the penalty is chosen on validation.

    features  {split: [(n, width) arrays, or (width,) if n is 1]}
    targets   {split: [(n,) labels]}; below 0 there is no label
    Returns {split: [(n, num_labels) scores of each array]} of validation and test."""
    from sklearn.linear_model import Ridge
    from sklearn.preprocessing import StandardScaler
    x = {split: np.vstack(arrays).astype(np.float64) for split, arrays in features.items()}
    y = {split: np.concatenate(arrays) for split, arrays in targets.items()}
    known = y['train'] >= 0
    labels = y['train'][known]
    one_hot = np.eye(max(2, num_labels))[labels]    # of one label Ridge would predict no columns
    scaler = StandardScaler().fit(x['train'][known])
    x = {split: scaler.transform(rows) for split, rows in x.items()}
    trained_on = x['train'][known]

    def right(model):   # how often, on validation
        predicted = model.predict(x['validation']).argmax(1)
        return np.sum(predicted == y['validation'])

    models = [
        Ridge(penalty * len(labels)).fit(trained_on, one_hot)
        for penalty in PENALTIES]
    best = max(models, key=right)   # of equally good ones the smallest penalty

    scores = {}
    for split in SCORED:
        ends = np.cumsum([len(array) for array in targets[split]])
        scores[split] = np.split(best.predict(x[split]), ends[:-1])
    return scores


# ---------------------------------------------------------------------------
# Runs and grids


def run_folders(cfg, sets):
    """{folder: the Data it is of} of all that a run writes."""
    folders = {run_folder(cfg, data.kind.task.dataset): data for data in sets}
    if cfg.save_model:
        folders[saved_folder(cfg)] = sets[0]
    return folders


def is_done(cfg, base, sets):
    """Whether a run's folders are all there. ValueError if one is of other settings or data."""
    done = True
    for folder, data in run_folders(cfg, sets).items():
        about = about_run(cfg, base.about, data, sets[0])
        done &= is_written(folder, about, type(cfg))
    return done


def run_grid(cfg, base, sets):
    """Do every run of lrs x seeds that is not done, nor another process's by its lock. Returns 1 if one of
    them failed, else 0."""
    runs = [replace(cfg, lr=lr, seed=seed) for seed in cfg.seeds for lr in cfg.lrs]
    todo = [run for run in runs if not is_done(run, base, sets)]
    title = f'{cfg.name} {cfg.dataset}'
    print(f'{title}: {len(runs) - len(todo)} of {len(runs)} runs are done', flush=True)
    code = 0
    start = time.monotonic()
    for k, run in enumerate(todo, 1):
        folder = run_folder(run, cfg.dataset)
        run_title = f'{title} {folder.name} ({k} of {len(todo)}):'
        try:
            with locked(*run_folders(run, sets)):
                if is_done(run, base, sets):    # by another process, since the list was made
                    continue
                words = do_run(run, base, sets, run_title, (cfg.lrs, cfg.seeds))
        except BlockingIOError:
            print(f'{folder}: is left to another process', file=sys.stderr)
            continue
        except Exception as error:
            if is_full(error):  # no other run could be written either
                raise
            words = f'failed: {error}'
            code = 1
            traceback.print_exc()
        left = timedelta(seconds=round((time.monotonic() - start) / k * (len(todo) - k)))
        print(f'{run_title} {words}; all runs: {left} left\n', end='', flush=True)
    return code


def check_actions(cfg, actions, typed):
    """ValueError where actions and settings do not go together.

    typed  names of the settings on the command line: those of a config may be for its other actions"""
    if actions.grid + actions.probe + actions.look > 1:
        raise ValueError('--grid, --probe, --look stand alone')
    if not actions.grid and typed & {'lrs', 'seeds'}:
        raise ValueError('lrs and seeds are of --grid: add it, or give one --lr and one --seed')
    if not (cfg.lrs and cfg.seeds):
        raise ValueError('lrs and seeds must have one or more')
    if actions.grid and typed & {'lr', 'seed'}:
        raise ValueError('lr and seed are of one run: with --grid give --lrs and --seeds')
    if actions.look:
        return

    if not cfg.model:
        raise ValueError('model is empty: --model=out/<run> or a checkpoint folder')
    if (cfg.causal or cfg.layers >= 0) and not cfg.variant:     # a table would show it as the model itself
        raise ValueError('causal and layers make another encoder, which needs a name: add --variant=causal, '
                         'or --variant=layers4')
    if actions.probe:
        if not tasks.kind_of(cfg).has_probe:
            raise ValueError('a probe reads one label of a text or word, or retrieves; for answers, numbers '
                             'or several labels fine-tune the model')
        ignored = [f'--{name}' for name in OF_TRAINING if name in typed]
        if ignored:
            raise ValueError(f'--probe trains no encoder: leave out {", ".join(ignored)}')


def main():
    cfg, actions = parse(Settings, sys.argv[1:], ACTIONS)
    typed = {word.removeprefix('--').partition('=')[0] for word in sys.argv[1:]}
    check_actions(cfg, actions, typed)
    if actions.look:
        if cfg.model:
            checkpoint = open_encoder(cfg)
            print_prompts(cfg, tasks.kind_of(cfg), checkpoint.folder)
            tasks.look(cfg, checkpoint.tokenizer(), cfg.model, reading_length(cfg, checkpoint))
        else:
            max_length = cfg.max_length or round(0.99 * 2048)
            tasks.look(cfg, load_tokenizer(cfg.tokenizer), cfg.tokenizer, max_length)
        return

    method = 'probe' if actions.probe else 'fine-tuned'
    choose_rows = functools.partial(rows_to_encode, cfg, actions)
    cfg, base, sets = open_model_and_task(cfg, method, choose_rows)
    if actions.grid:
        sys.exit(run_grid(cfg, base, sets))
    work = do_run
    if actions.probe:
        work = probe
        cfg = replace(cfg, name=f'{cfg.name}-probe', lr=0.0, seed=0, save_model=False)
    with locked(*run_folders(cfg, sets)):
        words = 'already done' if is_done(cfg, base, sets) else work(cfg, base, sets)
        print(f'{run_folder(cfg, cfg.dataset)}: {words}')


if __name__ == '__main__':
    run_main(main)

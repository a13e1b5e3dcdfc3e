"""Runs -> selection -> score and interval, by two protocols: the field's, and that of the paper's authors."""
import collections
import math
import statistics
import zlib
from dataclasses import dataclass
from operator import attrgetter
from typing import Callable

import numpy as np

from nanoencoder.metrics import KINDS


@dataclass(frozen=True, slots=True)
class Run:
    """One fine-tuning: its scores by a protocol, as fractions of 1; None where a file does not say."""
    model: str
    task: str
    dataset: str
    lr: float
    seed: int
    validation: float
    test: float
    metric: str = ''
    n: int = 0                  # test instances; 0 where unknown
    instances: Callable = None  # () -> their {'ids', 'numerators', 'denominators'}, read when they are needed
    kind: str = ''              # fine-tuned, baseline or probe
    weights: str = ''
    data: str = ''              # sha256 of the rows it was tested on
    pretraining: dict = None
    settings: dict = None       # of fine-tuning
    grid: list = None           # [learning rates, seeds] that it is a run of


def run_name(lr, seed):
    """A run's folder, as the authors have it: lr1e-04_sd0; lr0.00015_sd0 where one digit does not say."""
    return f'lr{lr:.0e}_sd{seed}' if float(f'{lr:.0e}') == lr else f'lr{lr}_sd{seed}'


def lr_text(lr):
    return run_name(lr, 0)[2:-4]


@dataclass(frozen=True)
class Cell:
    """A model on a dataset, or its average over datasets; fractions of 1."""
    mean: float
    low: float
    high: float
    draws: object           # (resamples,) of the bootstrap
    scores: dict            # {seed: test score}
    runs: tuple = ()        # that validation chose; none of an average

    @property
    def lrs(self):
        return sorted({run.lr for run in self.runs})

    @property
    def percent(self):
        return 100 * self.mean, 100 * self.low, 100 * self.high


def grouped(items, *names):
    """{attribute, or (attribute, ...): [items]} in the order of first appearance."""
    groups, key = {}, attrgetter(*names)
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


class Paper:
    """A seed's run is the one with its best validation score; the interval is that of the seeds alone."""
    explanation = (
        'Protocol "paper": the learning rate of each seed by its own validation score; mean of the seeds '
        'and, in parentheses, 1.96 s / sqrt(seeds).\nTC is the mean over sentences of a macro F1 over word '
        'labels, "O" included: not comparable with entity F1. Instances do not enter the interval.')

    def choose(runs):
        """Of equals the smaller learning rate. A seed's only run needs no validation score."""
        chosen = []
        for seed, group in grouped(sorted(runs, key=attrgetter('seed', 'lr')), 'seed').items():
            known = [run for run in group if run.validation is not None]
            tested = [run for run in group if run.test is not None]
            candidates = sorted(known, key=attrgetter('validation'), reverse=True) or tested
            run = candidates[0] if known or len(tested) == 1 else None
            if run is None or run.test is None:
                raise ValueError(f'{group[0].model} {group[0].dataset} seed {seed}: the test score of the '
                                 'run that validation would choose is not there')
            chosen.append(run)
        return chosen

    def measure(runs, scores, cfg):
        """(mean, low, high, draws) of {seed: score}; 1.96 s / sqrt(seeds), s with n - 1, nan for one seed."""
        mean, n = statistics.fmean(scores.values()), len(scores)
        half = 1.96 * statistics.stdev(scores.values()) / math.sqrt(n) if n > 1 else math.nan
        return mean, mean - half, mean + half, None

    def average(cells, scores):
        return Paper.measure((), scores, None)

    def text(cell):
        half = f'{100 * (cell.high - cell.mean):.2f}' if len(cell.scores) > 1 else 'one seed'
        return f'{100 * cell.mean:.2f} ({half})'


class Standard:
    """One learning rate, of the best mean validation score; the interval is of test instances and seeds."""
    explanation = (
        'Mean over seeds at the learning rate of the best mean validation score; 95 % interval over test '
        'instances (bootstrap) and seeds (t).\nOne seed shows only the instances\' share. Intervals are of '
        'each model alone: `compare` tests differences.')

    def choose(runs):
        """Of the learning rates that have most seeds; of equals the smaller."""
        by_lr = grouped(sorted(runs, key=attrgetter('lr')), 'lr')
        most = max(map(len, by_lr.values()))
        means = {lr: statistics.fmean(run.validation for run in group) if len(by_lr) > 1 else 0.0
                 for lr, group in by_lr.items() if len(group) == most}
        return by_lr[max(means, key=means.get)]

    def measure(runs, scores, cfg):
        key = cfg.seed, key_of(runs[0].dataset), key_of(runs[0].model)
        draws = instance_draws(runs, cfg.resamples, cfg.seed)
        draws += seed_draws([*scores.values()], cfg.resamples, key)
        low, high = (min(1.0, max(0.0, x)) for x in interval(draws))
        return statistics.fmean(scores.values()), low, high, draws

    def average(cells, scores):
        draws = np.mean([cell.draws for cell in cells], 0)
        return statistics.fmean(cell.mean for cell in cells), *interval(draws), draws

    def text(cell):
        return f'{100 * cell.mean:.1f} [{100 * cell.low:.1f}, {100 * cell.high:.1f}]'


PROTOCOLS = {'standard': Standard, 'paper': Paper}


# ------------------------------------------------------------------------------------------------------ cells

def make_cell(runs, cfg):
    """The Cell of one model's runs on one dataset. ValueError where they are not of one experiment."""
    where, first = f'{runs[0].model} {runs[0].dataset}', runs[0].settings or {}
    pair, count = collections.Counter((run.lr, run.seed) for run in runs).most_common(1)[0]
    if count > 1:
        raise ValueError(f'{where}: two runs are {run_name(*pair)}')
    if len({(run.data, run.kind) for run in runs}) > 1:
        raise ValueError(f'{where}: its runs are of different data or kinds')
    differing = {name for run in runs for name in first | (run.settings or {}) if name not in ('lr', 'seed')
                 and first.get(name) != (run.settings or {}).get(name)}
    if differing:
        raise ValueError(f'{where} is left out: its runs differ in {", ".join(sorted(differing))}; remove '
                         'some, or give them another --name or --predictions')
    chosen = PROTOCOLS[cfg.protocol].choose(runs)
    scores = {run.seed: run.test for run in chosen}
    return Cell(*PROTOCOLS[cfg.protocol].measure(chosen, scores, cfg), scores, tuple(chosen))


def average(cells, cfg):
    """The Cell of several datasets' mean, over the seeds that all have; None if there are none."""
    seeds = sorted(set.intersection(*(set(cell.scores) for cell in cells)))
    scores = {seed: statistics.fmean(cell.scores[seed] for cell in cells) for seed in seeds}
    return Cell(*PROTOCOLS[cfg.protocol].average(cells, scores), scores) if seeds else None


def make_cells(runs, cfg, problems):
    """{(model, task, dataset): Cell}; a task's 'Average' is that of the models with all its datasets."""
    order, kinds = {name: k for k, name in enumerate(cfg.models)}, list(KINDS)
    runs = sorted(runs, key=lambda run: (order.get(run.model, len(order)), run.kind == 'baseline',
                                         run.model != 'untrained', kinds.index(run.task)))
    cells = {}
    for key, group in grouped(runs, 'model', 'task', 'dataset').items():
        try:
            cells[key] = make_cell(group, cfg)
        except ValueError as error:
            problems.append(str(error))
        except (TypeError, KeyError, AttributeError) as error:
            problems.append(f'{"/".join(key)}: its results are damaged, remove them: {error!r}')
    for model, kind in dict.fromkeys(key[:2] for key in cells):
        mine = [cell for key, cell in cells.items() if key[:2] == (model, kind)]
        if 1 < len(mine) == len({key[2] for key in cells if key[1] == kind} - {'Average'}):
            if mean := average(mine, cfg):
                cells[model, kind, 'Average'] = mean
    return cells


def shared_means(cells, kind, cfg, problems):
    """{model: Cell} of one kind of task: the mean over the datasets that all models have."""
    sets = {}
    for model, task, dataset in cells:
        if task == kind and dataset != 'Average':
            sets.setdefault(model, set()).add(dataset)
    shared = sorted(set.intersection(*sets.values())) if sets else []
    if left := set().union(*sets.values()) - set(shared):
        problems.append(f'{kind}: {", ".join(sorted(left))} left out, which not all models have')
    mine = {model: [cells[model, kind, dataset] for dataset in shared] for model in sets if shared}
    return {model: average(own, cfg) if len(own) > 1 else own[0] for model, own in mine.items()}


# -------------------------------------------------------------------------------------------------- intervals

def bootstrap(numerators, denominators=None, resamples=10_000, seed=0):
    """(resamples, S): S scores of resampled instances, the same instances for all S.

    numerators, denominators  (N,) or (S, N); a score is sum / sum, or the mean if there are no denominators.
    A few resamples at once, so that their indices stay in the cache: twice as fast as a few hundred.
    """
    numerators = np.atleast_2d(np.asarray(numerators, float)).T                      # (N, S)
    denominators = None if denominators is None else np.atleast_2d(np.asarray(denominators, float)).T
    N, S = numerators.shape
    random = np.random.default_rng(seed)
    size, scores = max(1, 100_000 // N), np.zeros((resamples, S))
    for start in range(0, resamples, size):
        part = scores[start:start + size]
        at = random.integers(0, N, (len(part), N), dtype=np.int32)
        if S == 1 and denominators is None:
            part[:, 0] = numerators[:, 0].take(at).mean(1)
            continue
        offset = np.arange(len(part), dtype=np.int32)[:, None] * N
        times = np.bincount((at + offset).ravel(), minlength=at.size).reshape(at.shape).astype(float)
        below = np.full((1, 1), float(N)) if denominators is None else times @ denominators
        np.divide(times @ numerators, below, out=part, where=below > 0)
    return scores


def instance_draws(runs, resamples, seed):
    """(resamples,): the mean over seeds of resampled instances, the same ones for all models on a dataset."""
    instances = [run.instances() for run in runs]
    above, below = (np.array([each[name] for each in instances]) for name in ('numerators', 'denominators'))
    plain = below.min() == below.max() == 1
    return bootstrap(above, None if plain else below, resamples, (seed, key_of(runs[0].dataset))).mean(1)


def seed_draws(scores, resamples, key):
    """(resamples,): how far the mean of a few seeds may be off, as Student's t with their degrees of freedom.

    Resampling them would understate their scatter: in simulation 95 % intervals then held 73 to 93 % of the
    time with three seeds and 90 to 95 % with five, and with t 94 to 98 %. One seed does not say.
    """
    if len(scores) < 2:
        return np.zeros(resamples)
    error = statistics.stdev(scores) / math.sqrt(len(scores))
    return error * np.random.default_rng(key).standard_t(len(scores) - 1, resamples)


def paired(a, b, cfg):
    """(low, high, p) of Cell b - a, on the same resampled instances; seed by seed where both have the same.

    A seed fixes the order of the data and the head's weights: two models' runs of it go up and down together.
    """
    draws = instance_draws(b.runs, cfg.resamples, cfg.seed) - instance_draws(a.runs, cfg.resamples, cfg.seed)
    if a.scores.keys() == b.scores.keys():
        differences = [b.scores[seed] - a.scores[seed] for seed in a.scores]
        draws += seed_draws(differences, cfg.resamples, (cfg.seed, 1))
    else:
        for k, cell in enumerate((a, b), 2):
            draws += seed_draws([*cell.scores.values()], cfg.resamples, (cfg.seed, k))
    smaller = min((draws <= 0).mean(), (draws >= 0).mean())
    return *interval(draws), min(1.0, max(2 * smaller, 2 / (len(draws) + 1)))


def interval(draws):
    """95 %, by percentiles."""
    return tuple(np.percentile(draws, [2.5, 97.5]).tolist())


def key_of(text):
    """A seed for numpy's generators."""
    return zlib.crc32(text.encode())

"""Runs -> selection -> score and interval, by two protocols: the field's, and that of the paper's authors."""
import collections
import itertools
import math
import statistics
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Callable

import numpy as np

from nanoencoder.judging.intervals import bootstrap, contrast, instance_values, key_of
from nanoencoder.judging.metrics import KINDS

SEEDLESS = ('baseline', 'probe')    # kinds of runs that come out the same with any seed


@dataclass(frozen=True, slots=True)
class Run:
    """One fine-tuning: its scores by a protocol, as fractions of 1; None where a file does not say."""
    model: str                  # a study's row: its pretraining seeds are one model
    task: str
    dataset: str
    lr: float
    seed: int
    validation: float
    test: float
    metric: str = ''
    n: int = 0                  # instances that are scored; 0 where unknown
    instances: Callable = None  # split -> its {'ids', 'numerators', 'denominators'}, read when it is needed
    kind: str = ''              # fine-tuned, baseline or probe
    weights: str = ''
    data: str = ''              # sha256 of the rows it was tested on
    pretraining: dict = None
    settings: dict = None       # of fine-tuning
    grid: list = None           # [learning rates, seeds] that it is a run of
    origin: int = None          # seed of pretraining; None where no row is known
    folder: str = ''            # in predictions: of this row and pretraining seed


def lr_text(lr):
    """1e-04 as the authors have it; 0.00015 where one digit does not say."""
    return f'{lr:.0e}' if float(f'{lr:.0e}') == lr else str(lr)


def run_name(lr, seed):
    """A run's folder."""
    return f'lr{lr_text(lr)}_sd{seed}'


@dataclass(frozen=True)
class Cell:
    """A model on a dataset, or its average over datasets; fractions of 1."""
    mean: float
    low: float
    high: float
    draws: object           # (units, resamples) of the bootstrap over instances; None by the paper's protocol
    scores: dict            # {unit: score}, of several fine-tunings of a pretraining their mean
    runs: tuple = ()        # that validation chose; none of an average
    values: object = None   # (units, n) of `instance_values`
    data: tuple = ()        # by which two cells are known to be of the same instances
    unit: str = 'fine-tuning'   # whose seeds the units are: pretraining's, where there are several
    rates: tuple = ()       # learning rates that were tried

    @property
    def seedless(self):
        return self.runs[0].kind in SEEDLESS

    @property
    def floor(self):
        """Whether it has seen no pretraining, of which another seed could be another."""
        return self.seedless or self.runs[0].model.partition('+')[0] == 'untrained'

    @property
    def seeds(self):
        """5; or 6 x 3, of each of six pretrainings three fine-tunings; of an average only how many count."""
        each = len({(run.origin, run.seed) for run in self.runs}) / max(1, len(self.scores))
        more = f' x {each:.3g}' if self.runs and self.unit == 'pretraining' else ''
        return f'{len(self.scores) or ""}{more}'

    @property
    def percent(self):
        return 100 * self.mean, 100 * self.low, 100 * self.high

    def __str__(self):
        mean, low, high = self.percent
        if self.draws is not None:
            return f'{mean:.1f} [{low:.1f}, {high:.1f}]'
        half = f'{100 * (self.high - self.mean):.2f}' if len(self.scores) > 1 else 'one seed'
        return f'{mean:.2f} ({half})'


def grouped(items, *names):
    """{attribute, or (attribute, ...): [items]} in the order of first appearance."""
    groups, key = {}, attrgetter(*names)
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


# ------------------------------------------------------------------------------------------------------ cells

PROTOCOLS = {
    'standard':
        'Mean over seeds at the learning rate of the best mean validation score; 95 % interval over test '
        'instances (bootstrap) and seeds (t).\nSeeds 6 x 3: six pretrainings, each the mean of three '
        'fine-tunings. Seeds 3: three fine-tunings of one pretrained model, of which alone it speaks.\n'
        'One seed shows only the instances\' share. Intervals are of each model alone: `compare` tests '
        'differences.',
    'paper':
        'Protocol "paper": the learning rate of each seed by its own validation score; mean of the seeds '
        'and, in parentheses, 1.96 s / sqrt(seeds).\nTC is the mean over sentences of a macro F1 over word '
        'labels, "O" included: not comparable with entity F1. Instances do not enter the interval.'}
SPLITS = ('validation', 'test')


def best_of_each_seed(runs):
    """Of equals the smaller learning rate. A seed's only run needs no validation score."""
    chosen = []
    for (seed, _), group in grouped(sorted(runs, key=attrgetter('seed', 'lr')), 'seed', 'origin').items():
        known = [run for run in group if run.validation is not None]
        best = [max(known, key=attrgetter('validation'))] if known else group
        tested = [run for run in best if run.test is not None]
        if len(tested) != 1:
            raise ValueError(f'seed {seed}: the test score of the run that validation chooses is not there')
        chosen += tested
    return chosen


def best_learning_rate(runs, split):
    """All runs of one, by a split. Of the learning rates that have most runs; of equals the smaller."""
    by_lr = grouped(sorted(runs, key=attrgetter('lr')), 'lr')
    most = max(map(len, by_lr.values()))
    return max((group for group in by_lr.values() if len(group) == most),
               key=lambda group: statistics.fmean(getattr(run, split) for run in group))


def of_seeds(scores):
    """The paper's (mean, low, high): 1.96 s / sqrt(seeds), s with n - 1, nan for one seed."""
    mean, n = statistics.fmean(scores.values()), len(scores)
    half = 1.96 * statistics.stdev(scores.values()) / math.sqrt(n) if n > 1 else math.nan
    return mean, mean - half, mean + half


def unit_of(runs):
    """(name of the attribute that is a run's unit, whose seed that is)."""
    several = len({run.origin for run in runs}) > 1
    return ('origin', 'pretraining') if several else ('seed', 'fine-tuning')


def check_one_experiment(runs):
    """ValueError where a model's runs on a dataset differ in more than their learning rates and seeds."""
    pairs = collections.Counter((run.lr, run.seed, run.origin) for run in runs)
    (lr, seed, origin), count = pairs.most_common(1)[0]
    if count > 1:
        of = '' if origin is None else f' of pretraining seed {origin}'
        raise ValueError(f'two runs{of} are {run_name(lr, seed)}')
    if len({(run.data, run.kind) for run in runs}) > 1:
        raise ValueError('its runs are of different data or kinds')
    facts = [(run.pretraining or {}) | (run.settings or {}) for run in runs]
    differing = {name for own in facts for name in own.keys() | facts[0] if name not in ('lr', 'seed')
                 and (own.get(name) or None) != (facts[0].get(name) or None)}
    if differing:
        raise ValueError(f'its runs differ in {", ".join(sorted(differing))}; remove some, or give them '
                         'another --name, --row or --predictions')


def make_cell(runs, cfg):
    """The Cell of one model's runs on one dataset. ValueError where they are not of one experiment."""
    check_one_experiment(runs)
    if cfg.protocol == 'paper':
        chosen = best_of_each_seed(runs)
        scores = {unit: statistics.fmean(run.test for run in group)
                  for unit, group in grouped(chosen, unit_of(chosen)[0]).items()}
        return Cell(*of_seeds(scores), None, scores, chosen, unit=unit_of(chosen)[1])
    chosen = {split: best_learning_rate(runs, other) for split, other in zip(SPLITS, SPLITS[::-1])
              if cfg.split in (split, 'both')}
    of, above, below, data = instances(chosen)
    draws = bootstrap(above, below, cfg.resamples, (cfg.seed, key_of(f'{runs[0].dataset} {cfg.split}')))
    cell = standard_cell(of, draws, instance_values(above, below), data, cfg)
    return replace(cell, runs=tuple(itertools.chain.from_iterable(chosen.values())),
                   rates=tuple(sorted({run.lr for run in runs})))


def instances(chosen):
    """(runs, numerators (S, N), denominators or None where all are 1, what they are of) of {split: runs}.

    Of several splits the instances are joined, seed by seed; the runs returned are the first split's.
    """
    tables = [{(run.origin, run.seed): (run, run.instances(split)) for run in runs}
              for split, runs in chosen.items()]
    seeds = sorted(set.intersection(*map(set, tables)))
    if not seeds:
        raise ValueError('the runs that validation and test choose have no seed in common')
    above, below = (np.array([np.concatenate([table[seed][1][name] for table in tables]) for seed in seeds],
                             float) for name in ('numerators', 'denominators'))
    if not np.isfinite(above.sum() + below.sum()):
        raise ValueError('a score is not a finite number')
    runs = [tables[0][seed][0] for seed in seeds]
    ids = [table[seeds[0]][1]['ids'] for table in tables]
    return runs, above, None if (below == 1).all() else below, (runs[0].data, *map(key_of_ids, ids))


def key_of_ids(ids):
    """Of instances; a packed run holds it in their place."""
    return ids if type(ids) is int else key_of('\n'.join(ids))


def standard_cell(runs, draws, values, data, cfg):
    """The Cell of runs, of (resamples, S) draws of their scores, and of their (S, N) instance_values.

    The fine-tunings of a pretraining are averaged. float32 holds the arrays of a large table.
    """
    name, unit = unit_of(runs)
    at = {}
    for k, run in enumerate(runs):
        at.setdefault(getattr(run, name), []).append(k)
    draws, values = (np.array([rows[own].mean(0) for own in at.values()]) for rows in (draws.T, values))
    cell = Cell(0, 0, 0, draws.astype(np.float32), dict(zip(at, values.mean(1).tolist())), tuple(runs),
                values.astype(np.float32), data, unit)
    result = contrast([[(1, cell)]], cfg)
    return replace(cell, mean=result.mean, low=max(0.0, result.low), high=min(1.0, result.high))


def caveats(*cells):
    """What, in words, a difference of two Cells may be of besides the models; baselines are not trained."""
    runs = [cell.runs[0] for cell in cells]
    if 'baseline' in (run.kind for run in runs):
        return []
    first, second = ((run.settings or {}) | {'kind': run.kind} for run in runs)
    words = [f'{name} {first[name]} -> {second[name]}' for name in sorted(first.keys() & second.keys())
             if name not in ('lr', 'seed') and first[name] != second[name]]
    return words + [f'{run.model}: its best learning rate, {lr_text(cell.rates[k])}, is the {edge} tried'
                    for run, cell in zip(runs, cells) if len(cell.rates) > 1
                    for k, edge in ((0, 'lowest'), (-1, 'highest'))
                    if cell.rates[k] in {own.lr for own in cell.runs}]


def average(cells, cfg):
    """The Cell of several datasets' mean: that of the seeds that all of them have; see `contrast`.

    By the paper's protocol, None if they have none in common.
    """
    if len(cells) == 1:
        return cells[0]
    if cells[0].draws is not None:
        result = contrast([[(1, cell)] for cell in cells], cfg)
        return Cell(result.mean, max(0.0, result.low), min(1.0, result.high), result.draws, result.units,
                    unit=result.unit)
    shared = sorted(set.intersection(*(set(cell.scores) for cell in cells)))
    scores = {seed: statistics.fmean(cell.scores[seed] for cell in cells) for seed in shared}
    return Cell(*of_seeds(scores), None, scores) if scores else None


def make_cells(runs, cfg, problems):
    """{(model, task, dataset): Cell}; a task's 'Average' is that of the models with all its datasets."""
    cells, averages = {}, {}
    runs = sorted(runs, key=lambda run: (cfg.models.index(run.model) if cfg.models else 0,
                                         run.kind == 'baseline', run.model != 'untrained',
                                         list(KINDS).index(run.task)))
    for key, group in grouped(runs, 'model', 'task', 'dataset').items():
        try:
            cells[key] = make_cell(group, cfg)
        except ValueError as error:
            problems.append(f'{"/".join(key)} is left out: {error}')
    for model, kind in dict.fromkeys(key[:2] for key in cells):
        own = [cell for key, cell in cells.items() if key[:2] == (model, kind)]
        if 1 < len(own) == len({dataset for _, task, dataset in cells if task == kind}):
            averages[model, kind, 'Average'] = average(own, cfg)
    return cells | {key: mean for key, mean in averages.items() if mean}


def shared_means(cells, kind, cfg, problems):
    """{model: Cell} of one kind of task: the mean over the datasets that all models have."""
    own = [(model, dataset) for model, task, dataset in cells if task == kind and dataset != 'Average']
    models, datasets = dict.fromkeys(model for model, _ in own), sorted({dataset for _, dataset in own})
    shared = [dataset for dataset in datasets if all((model, dataset) in own for model in models)]
    if left := [dataset for dataset in datasets if dataset not in shared]:
        problems.append(f'{kind}: {", ".join(left)} left out, which not all models have')
    return {model: average([cells[model, kind, dataset] for dataset in shared], cfg)
            for model in models if shared}

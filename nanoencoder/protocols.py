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

SEEDLESS = ('baseline', 'probe')    # kinds of runs that come out the same with any seed


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
    draws: object           # (resamples,) of the bootstrap over instances; None by the paper's protocol
    scores: dict            # {seed: test score}
    runs: tuple = ()        # that validation chose; none of an average
    noise: float = 0.0      # `seed_noise`

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
        'instances (bootstrap) and seeds (t).\nOne seed shows only the instances\' share. Intervals are of '
        'each model alone: `compare` tests differences.',
    'paper':
        'Protocol "paper": the learning rate of each seed by its own validation score; mean of the seeds '
        'and, in parentheses, 1.96 s / sqrt(seeds).\nTC is the mean over sentences of a macro F1 over word '
        'labels, "O" included: not comparable with entity F1. Instances do not enter the interval.'}


def best_of_each_seed(runs):
    """Of equals the smaller learning rate. A seed's only run needs no validation score."""
    chosen = []
    for seed, group in grouped(sorted(runs, key=attrgetter('seed', 'lr')), 'seed').items():
        known = [run for run in group if run.validation is not None]
        best = [max(known, key=attrgetter('validation'))] if known else group
        tested = [run for run in best if run.test is not None]
        if len(tested) != 1:
            raise ValueError(f'seed {seed}: the test score of the run that validation chooses is not there')
        chosen += tested
    return chosen


def best_learning_rate(runs):
    """All runs of one. Of the learning rates that have most seeds; of equals the smaller."""
    by_lr = grouped(sorted(runs, key=attrgetter('lr')), 'lr')
    if len(by_lr) == 1:
        return runs
    most = max(map(len, by_lr.values()))
    return max((group for group in by_lr.values() if len(group) == most),
               key=lambda group: statistics.fmean(run.validation for run in group))


def of_seeds(scores):
    """The paper's (mean, low, high): 1.96 s / sqrt(seeds), s with n - 1, nan for one seed."""
    mean, n = statistics.fmean(scores.values()), len(scores)
    half = 1.96 * statistics.stdev(scores.values()) / math.sqrt(n) if n > 1 else math.nan
    return mean, mean - half, mean + half


def make_cell(runs, cfg):
    """The Cell of one model's runs on one dataset. ValueError where they are not of one experiment."""
    pair, count = collections.Counter((run.lr, run.seed) for run in runs).most_common(1)[0]
    if count > 1:
        raise ValueError(f'two runs are {run_name(*pair)}')
    if len({(run.data, run.kind) for run in runs}) > 1:
        raise ValueError('its runs are of different data or kinds')
    settings = [run.settings or {} for run in runs]
    differing = {name for own in settings for name in own.keys() | settings[0] if name not in ('lr', 'seed')
                 and own.get(name) != settings[0].get(name)}
    if differing:
        raise ValueError(f'its runs differ in {", ".join(sorted(differing))}; remove some, or give them '
                         'another --name or --predictions')
    chosen = best_of_each_seed(runs) if cfg.protocol == 'paper' else best_learning_rate(runs)
    scores = {run.seed: run.test for run in chosen}
    if cfg.protocol == 'paper':
        return Cell(*of_seeds(scores), None, scores, chosen)
    above, below = instances(chosen)
    draws = bootstrap(above, below, cfg.resamples, (cfg.seed, key_of(runs[0].dataset))).mean(1)
    return standard_cell(statistics.fmean(scores.values()), draws, scores,
                         seed_noise(instance_values(above, below)), cfg, chosen)


def standard_cell(mean, draws, scores, noise, cfg, runs=()):
    """The Cell of draws over instances, with what the seeds add to its interval."""
    key = map(key_of, (runs[0].model, runs[0].dataset) if runs else ())
    low, high = np.clip(interval(with_seeds(draws, [(scores.values(), noise)], cfg, *key)), 0, 1).tolist()
    return Cell(mean, low, high, draws, scores, runs, noise)


def average(cells, cfg):
    """The Cell of several datasets' mean; only runs of seeds that all have count. None if there are none.

    Instances are drawn for each dataset apart. The same seed may be lucky in all of them: the seeds' share is
    that of each seed's average, and the noise in it is the mean of the datasets' noise over their number.
    """
    if len(cells) == 1:
        return cells[0]
    scores = {seed: statistics.fmean(cell.scores[seed] for cell in cells)
              for seed in sorted(set.intersection(*(set(cell.scores) for cell in cells)))}
    if not scores:
        return None
    if cells[0].draws is None:
        return Cell(*of_seeds(scores), None, scores)
    cells = [make_cell([run for run in cell.runs if run.seed in scores], cfg)
             if cell.scores.keys() != scores.keys() else cell for cell in cells]
    return standard_cell(statistics.fmean(cell.mean for cell in cells),
                         np.mean([cell.draws for cell in cells], 0), scores,
                         sum(cell.noise for cell in cells) / len(cells) ** 2, cfg)


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
    columns = {}
    for (model, task, dataset), cell in cells.items():
        if task == kind and dataset != 'Average':
            columns.setdefault(dataset, {})[model] = cell
    models = dict.fromkeys(model for column in columns.values() for model in column)
    shared = [dataset for dataset in sorted(columns) if len(columns[dataset]) == len(models)]
    if left := columns.keys() - shared:
        problems.append(f'{kind}: {", ".join(sorted(left))} left out, which not all models have')
    return {model: average([columns[dataset][model] for dataset in shared], cfg)
            for model in models if shared}


# -------------------------------------------------------------------------------------------------- intervals

def instances(runs):
    """(numerators, denominators) of runs' test instances, each (S, N), by seed; None where all are 1."""
    pairs = [np.array([each['numerators'], each['denominators']], float)
             for each in (run.instances() for run in sorted(runs, key=attrgetter('seed')))]
    above, below = np.stack(pairs, 1)
    return above, None if (below == 1).all() else below


def resampled(times, numerators, denominators=None):
    """(R, S) scores, where `times` (R, N) says how often each instance was drawn; see `bootstrap`."""
    below = times.sum(1, keepdims=True) if denominators is None else times @ denominators.T
    above = times @ numerators.T
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


def bootstrap(numerators, denominators=None, resamples=10_000, seed=0):
    """(resamples, S): S scores of resampled instances, the same instances for all S.

    numerators, denominators  (N,) or (S, N); a score is sum / sum, or the mean if there are no denominators.
    A few resamples at once, so that their counts stay in the cache: twice as fast as a few hundred.
    """
    above, below = (None if x is None else np.atleast_2d(np.asarray(x, float))
                    for x in (numerators, denominators))
    S, N = above.shape
    random = np.random.default_rng(seed)
    size, scores = max(1, 100_000 // N), np.empty((resamples, S))
    for start in range(0, resamples, size):
        part = scores[start:start + size]
        at = random.integers(0, N, (len(part), N), dtype=np.int32)
        at += np.arange(len(part), dtype=np.int32)[:, None] * N
        times = np.bincount(at.ravel(), minlength=at.size).reshape(at.shape).astype(float)
        part[:] = resampled(times, above, below)
    return scores


def instance_values(numerators, denominators=None):
    """(S, N) whose mean is a seed's score, and whose variance / N is that of the score: influence values."""
    if denominators is None:
        return numerators
    total = np.maximum(denominators.sum(1, keepdims=True), 1e-300)
    score = numerators.sum(1, keepdims=True) / total
    return score + numerators.shape[1] * (numerators - score * denominators) / total


def seed_noise(values):
    """How much of the variance between seeds' scores is the instances' and not the seeds'.

    values  (S, N) of `instance_values`, or of their differences. It is MS_R / N of the two-way analysis of
    variance of seeds and instances: their interaction, which draws over instances contain already.
    """
    S, N = values.shape
    if min(S, N) < 2:
        return 0.0
    rest = values - values.mean(0)
    rest -= rest.mean(1, keepdims=True)
    return float((rest ** 2).sum() / ((S - 1) * (N - 1) * N))


def with_seeds(draws, arms, cfg, *key):
    """(resamples,): draws over instances, and what the seeds add to their scatter, as Student's t.

    arms  [(scores of S seeds, their `seed_noise`)] of one model, of a difference, or of two models apart

    Draws and scores both contain the instances' noise: (S - 1) / (S + 1) of it is taken off the scores'
    variance. docs/protocols.md says why not all. Where the scores vary less than that, the variance of the
    draws is reduced by what is missing. One seed does not say anything.
    """
    arms = [(scores, noise, len(scores)) for scores, noise in arms if len(scores) > 1]
    shares = [(statistics.variance(scores) - noise * (S - 1) / (S + 1)) / S for scores, noise, S in arms]
    missing, mean = sum(min(0.0, share) for share in shares), draws.mean()
    if missing:
        draws = mean + (draws - mean) * math.sqrt(max(0.0, 1 + missing / max(draws.var(), 1e-300)))
    random = np.random.default_rng((cfg.seed, *key, 1))
    for (*_, S), share in zip(arms, shares):
        draws = draws + math.sqrt(max(0.0, share)) * random.standard_t(S - 1, len(draws))
    return draws


def paired(a, b, cfg):
    """(low, high, p) of Cell b - a, on the same resampled instances; seed by seed where both have the same.

    Runs of one seed go up and down together: it fixes the order of the data and the head's first weights.
    Where the seeds are others, each model adds its own share. p is None where a trained model has one seed.
    """
    arms = [(a.scores.values(), a.noise), (b.scores.values(), b.noise)]
    if a.scores.keys() == b.scores.keys():
        noise = seed_noise(np.subtract(*(instance_values(*instances(cell.runs)) for cell in (b, a))))
        arms = [([b.scores[seed] - a.scores[seed] for seed in a.scores], noise)]
    draws = with_seeds(b.draws - a.draws, arms, cfg)
    smaller = min((draws <= 0).mean(), (draws >= 0).mean())
    p = min(1.0, max(2 * smaller, 2 / (len(draws) + 1)))
    known = all(len(cell.scores) > 1 or cell.runs[0].kind in SEEDLESS for cell in (a, b))
    return *interval(draws), p if known else None


def interval(draws):
    """95 %, by percentiles."""
    return tuple(np.percentile(draws, [2.5, 97.5]).tolist())


def key_of(text):
    return zlib.crc32(text.encode())

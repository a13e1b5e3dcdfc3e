"""Runs -> selection -> score and interval, by two protocols: the field's, and that of the paper's authors."""
import math
import statistics
import zlib
from dataclasses import dataclass
from operator import attrgetter
from typing import Callable

import numpy as np


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


def grouped(items, *names):
    """{attribute, or (attribute, ...): [items]} in the order of first appearance."""
    groups, key = {}, attrgetter(*names)
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


class Paper:
    """A seed's run is the one with that seed's best validation score; the interval is that of the seeds alone."""
    explanation = (
        'Protocol "paper": the learning rate of each seed by its own validation score; mean of the seeds and, in '
        'parentheses, 1.96 s / sqrt(seeds).\nTC is the mean over sentences of a macro F1 over word labels, "O" '
        'included: not comparable with entity F1. Instances do not enter the interval.')

    def choose(runs):
        """Of equals the smaller learning rate. A seed's only run needs no validation score."""
        chosen = []
        for seed, group in grouped(sorted(runs, key=attrgetter('seed', 'lr')), 'seed').items():
            known = [run for run in group if run.validation is not None]
            tested = [run for run in group if run.test is not None]
            run = max(known, key=attrgetter('validation')) if known else tested[0] if len(tested) == 1 else None
            if run is None or run.test is None:
                raise ValueError(f'{group[0].model} {group[0].dataset} seed {seed}: the test score of the run that '
                                 'validation would choose is not there')
            chosen.append(run)
        return chosen

    def measure(runs, scores, cfg):
        """(mean, low, high, draws) of {seed: score}: 1.96 s / sqrt(seeds), s with n - 1; none for one seed."""
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
        'Mean over seeds at the learning rate of the best mean validation score; 95 % interval over test instances '
        '(bootstrap) and seeds (t).\nOne seed shows only the instances\' share. Intervals are of each model alone: '
        '`compare` tests differences.')

    def choose(runs):
        """Of the learning rates that have most seeds; of equals the smaller."""
        by_lr = grouped(sorted(runs, key=attrgetter('lr')), 'lr')
        most = max(map(len, by_lr.values()))
        means = {lr: statistics.fmean(run.validation for run in group) if len(by_lr) > 1 else 0.0
                 for lr, group in by_lr.items() if len(group) == most}
        return by_lr[max(means, key=means.get)]

    def measure(runs, scores, cfg):
        key = cfg.seed, key_of(runs[0].dataset), key_of(runs[0].model)
        draws = instance_draws(runs, cfg.resamples, cfg.seed) + seed_draws([*scores.values()], cfg.resamples, key)
        low, high = (min(1.0, max(0.0, x)) for x in interval(draws))
        return statistics.fmean(scores.values()), low, high, draws

    def average(cells, scores):
        draws = np.mean([cell.draws for cell in cells], 0)
        return statistics.fmean(cell.mean for cell in cells), *interval(draws), draws

    def text(cell):
        return f'{100 * cell.mean:.1f} [{100 * cell.low:.1f}, {100 * cell.high:.1f}]'


PROTOCOLS = {'standard': Standard, 'paper': Paper}


# --------------------------------------------------------------------------------------------------- intervals

def bootstrap(numerators, denominators=None, resamples=10_000, seed=0):
    """(resamples, S): S scores of resampled instances, the same instances for all S.

    numerators, denominators  (N,) or (S, N); a score is sum / sum, or the mean where there are no denominators.
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
    """(resamples,): the mean over seeds of resampled instances, the same ones for every model on a dataset."""
    instances = [run.instances() for run in runs]
    above, below = (np.array([counts[name] for counts in instances]) for name in ('numerators', 'denominators'))
    plain = below.min() == below.max() == 1
    return bootstrap(above, None if plain else below, resamples, (seed, key_of(runs[0].dataset))).mean(1)


def seed_draws(scores, resamples, key):
    """(resamples,): how far the mean of a few seeds may be off, as Student's t with their degrees of freedom.

    Resampling them would understate their scatter: in simulation 95 % intervals then held 73 to 93 % of the time
    with three seeds and 90 to 95 % with five, and with t 94 to 98 %. One seed does not say.
    """
    if len(scores) < 2:
        return np.zeros(resamples)
    error = statistics.stdev(scores) / math.sqrt(len(scores))
    return error * np.random.default_rng(key).standard_t(len(scores) - 1, resamples)


def paired(a, b, cfg):
    """(low, high, p) of Cell b - a, on the same resampled instances, and seed by seed where both have the same.

    A seed fixes the order of the data and the head's weights: two models' runs of one seed go up and down together.
    """
    draws = instance_draws(b.runs, cfg.resamples, cfg.seed) - instance_draws(a.runs, cfg.resamples, cfg.seed)
    if a.scores.keys() == b.scores.keys():
        draws += seed_draws([b.scores[seed] - a.scores[seed] for seed in a.scores], cfg.resamples, (cfg.seed, 1))
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

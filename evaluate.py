"""Predictions -> scores -> intervals, paired tests, tables and figures. Needs no torch.

    python evaluate.py table                    # all of predictions/: mean, 95 % interval, n, seeds
    python evaluate.py table --protocol=paper   # by the paper's rules
    python evaluate.py table --others           # exact match, strict F1, precision, recall, ...
    python evaluate.py compare mlm-1800 clm25-mlm-1800          # paired tests of the second against the first
    python evaluate.py compare A B --results=results.csv        # of any two systems: docs/protocols.md
    python evaluate.py compare A B --needed=2.0                 # and how many seeds or items 2.0 points take
    python evaluate.py figure tokens            # or step, flops, lr: any numeric field of run.json
    python evaluate.py losses out/clm25-mlm-1800-s6 out/mlm-1800-s6   # of pretraining; and figures/losses.png

Read it from the top: runs and their scores, the noise of instances and of seeds, what is estimated from
both, which runs are one model, and the commands. A metric itself is in nanoencoder/metrics.py.

`table` prints a row for each model and a column for each dataset. Of studies/small, whose six pretrainings of
each model were fine-tuned three times each at the rate `lr`, it prints

    TC              seeds     lr docs_tc (entity F1, n=829)
    mlm-1800        6 x 3  4e-03          64.5 [61.8, 67.1]
    clm25-mlm-1800  6 x 3  2e-03          71.0 [68.8, 73.1]

`compare` prints the difference on each dataset, here without its last two columns, n and seeds:

    clm25-mlm-1800 minus mlm-1800, in points: above 0, clm25-mlm-1800 is better.

                           mlm-1800 clm25-mlm-1800 difference [95 %]   seeds alone          p
    TC docs_tc, entity F1      64.5           71.0  +6.5 [+4.8, +8.2]  [+5.0, +8.1]  <= 0.0002"""
import contextlib
import functools
import itertools
import math
import os
import re
import statistics
import sys
import zlib
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Callable, NamedTuple

import numpy as np

from nanoencoder import figures, metrics
from nanoencoder.files import locked, read_sealed, sha256, write_sealed
from nanoencoder.metrics import CORRELATIONS, METRICS, NO_FRACTIONS, OF_LABELS, STATISTICS, both_scores
from nanoencoder.needed import words_of_needed
from nanoencoder.predictions import (
    SCORED,
    check_predictions,
    find_folders,
    lr_text,
    rate_and_seed,
    read_about,
    read_predictions,
)
from nanoencoder.pretraining.losses import print_losses
from nanoencoder.results import ONE_SEED, read_results
from nanoencoder.settings import check, parse, run_main, setting, split_words

BELOW = 'below `untrained`, which is new weights that were fine-tuned or probed alike'
NOTES = {
    'standard': """\
In percent, higher is better: mean over seeds at the learning rate (lr) that is best on the other split, and
[95 %] over test instances and seeds. Intervals are of one model: `compare` tests differences.""",
    'paper': """\
In percent, higher is better. Protocol "paper": the learning rate (lr) of each seed by its own validation
score; (1.96 s / sqrt(seeds)). TC is the mean over sentences of a macro F1 over word labels, "O" included: not
comparable with entity F1."""}
LEGEND = {      # of signs in a table: each has its line where it occurs
    ' x ': 'Seeds 6 x 3: six pretrainings, each the mean of three fine-tunings.',
    '*': '*: the lowest or the highest learning rate that was tried; a better one may lie beyond.',
    '/': 'a/b: datasets, or rates of one, differ.',
    ' in ': 'n 90 in 30: of 90 instances in 30 clusters, such as questions on 30 texts, clusters are drawn.',
    ', data ': 'data: the first digits of the sha256 of what was scored.',
    '°': f'°: {BELOW}.'}
OTHERS_NOTE = """\
Further scores of the runs that `table` shows: means over seeds, in percent. Counts, as of entities or
questions, and mean squared errors are no percentages."""

COMPARED = """\
[95 %]: over test instances and seeds; seeds alone: on these n instances. p is two-sided."""
CONSTANT = '0 whatever is drawn: it predicts the same for every instance, or nothing that is right'
sha256_once = functools.cache(sha256)       # of a file that may change while a command runs


@dataclass(frozen=True)
class Settings:
    predictions: str = 'predictions'    # folder that finetune.py writes
    protocol: str = setting('standard', choices=NOTES)   # paper: the authors'
    models: tuple = setting((), of=str)     # only these, in this order: names, or folders such as out/mine
    datasets: tuple = setting((), of=str)   # only these
    others: bool = False                # a table of further scores, such as exact match and strict F1
    results: str = ''       # for compare: a .csv of any program's results, which docs/protocols.md describes
    metric: str = setting('accuracy', choices=OF_LABELS)    # of results with the column gold
    needed: float = setting(0.0, 0.0)   # for compare: how many seeds or items would show so many points
    clusters: bool = True   # draw whole clusters, such as all questions on a text, where they are named
    format: str = setting('text', choices=('text', 'markdown', 'csv'))  # of a table
    split: str = setting('test', choices=(*SCORED, 'both'))     # scored at the rate that the other one chose
    resamples: int = setting(10_000, 100, 10 ** 6)  # of the bootstrap
    seed: int = setting(0, 0)       # of the bootstrap
    rules: int = setting(2, 1, 2)       # 1: draws Student's t at random, as pages that were frozen so
    out: str = 'figures'                # folder of figures

    def __post_init__(self):
        check(self)
        names = tuple(Path(model).name for model in self.models)    # of folders, too: out/mine
        object.__setattr__(self, 'models', names)
        if self.protocol == 'paper' and self.split != 'test':
            raise ValueError(f"split {self.split}: the paper's protocol scores test alone")
        if self.others and (self.protocol == 'paper' or self.split == 'both'):
            raise ValueError('--others shows standard scores of one split: no --protocol=paper, --split=both')
        if self.results and self.split != 'test':
            raise ValueError('--results has no splits: no --split')

    @property
    def splits(self):
        return SCORED if self.split == 'both' else (self.split,)


# ---------------------------------------------------------------------------
# Runs and their scores


@dataclass(frozen=True, slots=True)
class Run:
    """One fine-tuning and its scores by a protocol, as fractions of 1."""
    model: str              # a study's row, whose pretraining seeds are one model; else its folder's name
    task: str
    dataset: str
    lr: float
    seed: int
    validation: float
    test: float
    metric: str
    n: int                  # instances that are scored
    load: Callable          # () -> what scores_of returns; of all runs at once it would fill the memory
    about: dict             # run.json, as nanoencoder/predictions.py writes it; older ones lack some of it
    origin: int | None      # seed of pretraining; None where no row is named
    folder: str             # in predictions: of this model and pretraining seed

    @property
    def method(self):       # fine-tuned, baseline, probe or zero-shot
        return self.about.get('method', '')

    @property
    def pretraining(self):
        return self.about.get('pretraining') or {}

    @property
    def settings(self):     # of fine-tuning
        return self.about.get('settings') or {}


def scores_of(folder, about):
    """Return a run's scores of both splits, by both protocols, as nanoencoder/metrics.py computes them.

    They are kept in scores.json, with the sha256 of the predictions and of metrics.py. If either has changed
    since, or the file itself, they are computed again."""
    path = folder / 'scores.json'
    check_predictions(folder, about)
    made_of = about['sha256'] | {'metrics.py': sha256_once(metrics.__file__)}
    # of a file that is missing, was edited or was cut off they are computed again, too
    with contextlib.suppress(ValueError):
        scores = read_sealed(path, advice='')
        if scores.get('of') == made_of:
            return scores

    scores = {'of': made_of}
    task = folder.parts[-3]
    scheme = about.get('scheme', 'IOB2')
    metric = about.get('settings', {}).get('metric', 'accuracy')
    for split in SCORED:
        rows = read_predictions(folder, split)
        scores['name'], scores[split] = both_scores(task, rows, scheme, metric)
    if os.access(folder, os.W_OK):
        with locked(folder, wait=True):
            write_sealed(path, scores, indent=None)
    return scores


def find_runs(root):
    """Yield (folder, run.json, a function that returns its scores) of each run in predictions/."""
    for folder in find_folders(root):
        about = read_about(folder)
        yield folder, about, functools.partial(scores_of, folder, about)


def model_of(folder, about):
    """Return the model that a run counts for: a study's row, or its folder. A probe is a model of its own."""
    model = (about.get('pretraining') or {}).get('row') or folder.parts[-4]
    if about.get('method') == 'probe':
        return model.removesuffix('-probe') + '-probe'
    return model


def untrained_like(model):
    """Return the name of new weights that were fine-tuned or probed as a model was: untrained,
    untrained+<variant> or untrained-probe."""
    return re.sub(r'.*?(?=\+|-probe$|$)', 'untrained', model, count=1)


def make_run(folder, about, load, cfg):
    """Return the Run of a folder, with its scores by cfg.protocol."""
    model_folder, task, dataset, _ = folder.parts[-4:]
    lr, seed = rate_and_seed(folder)
    of_folder = {'lr': lr, 'seed': seed, 'kind': task}
    made_with = of_folder | about.get('settings', {})
    for name in of_folder:
        if made_with[name] != of_folder[name]:      # a copy would count as another seed
            raise ValueError(f'{folder}: was made with {name} = {made_with[name]}: give it its name back')
    scores = load()
    metric = scores.get('name')
    if cfg.protocol == 'paper' and metric not in CORRELATIONS:
        metric = METRICS[task].paper_name
    past = about.get('pretraining') or {}
    return Run(
        model=model_of(folder, about), task=task, dataset=dataset, lr=lr, seed=seed,
        validation=scores['validation'][cfg.protocol]['score'],
        test=scores['test'][cfg.protocol]['score'],
        metric=metric,
        n=sum(len(scores[split]['standard']['columns'][0]) for split in cfg.splits),
        load=load,
        about=about,
        origin=past.get('seed') if past.get('row') else None,
        folder=model_folder)


def read_runs(cfg, problems, found=None):
    """Return the Runs that cfg asks for. Whatever a grid lacks is added to problems, in words.

    found  what find_runs yields, of runs that are kept in another way"""
    runs = []
    models = set()      # that are there
    for folder, about, load in found or find_runs(cfg.predictions):
        model = model_of(folder, about)
        models.add(model)
        if folder.parts[-4] in cfg.models:      # one run of a row, asked for by its own name
            model = folder.parts[-4]
        dataset = folder.parts[-2]
        if model in (cfg.models or [model]) and dataset in (cfg.datasets or [dataset]):
            runs.append(replace(make_run(folder, about, load, cfg), model=model))

    for (*key, _), group in grouped(runs, 'folder', 'task', 'dataset', 'method').items():
        missing = missing_pairs(group)
        if missing:
            problems.append(f'{"/".join(key)}: missing {", ".join(missing)}')
    absent = {*cfg.models} - {run.model for run in runs} | {*cfg.datasets} - {run.dataset for run in runs}
    if absent:
        names = ', '.join(sorted(map(str, absent)))
        problems.append(f'there is no {names}; the models are {", ".join(sorted(models))}')
    if not runs:
        raise ValueError('; '.join([f'{cfg.results or cfg.predictions}: no runs there', *problems]))
    return runs


def missing_pairs(runs):
    """Return which pairs of learning rate and seed a grid has not: those of its runs, and those asked for."""
    done = {(run.lr, run.seed) for run in runs}
    lrs = {run.lr for run in runs}
    seeds = {run.seed for run in runs}
    for run in runs:
        asked_lrs, asked_seeds = run.about.get('grid') or ((), ())
        lrs.update(asked_lrs)
        seeds.update(asked_seeds)
    missing = {*itertools.product(lrs, seeds)} - done
    return [f'lr{lr_text(lr)}_sd{seed}' for lr, seed in sorted(missing)]


def grouped(items, *names):
    """Return {attribute, or (attribute, ...): [items]} in the order of first appearance."""
    groups = {}
    key = attrgetter(*names)
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


# ---------------------------------------------------------------------------
# The noise of test instances (bootstrap) and of seeds (Student's t)


def bootstrap(statistic, terms, resamples, seed=0, sizes=None):
    """Draw test instances with replacement, the same ones for all runs. Returns (resamples, S) scores.

    statistic  name of an entry of metrics.STATISTICS
    terms      (terms, S, N) what each of N instances adds to the sums that the score of S runs is made of
    sizes      (N,) of clusters, which are drawn whole: how many instances each of the N is"""
    _, S, N = terms.shape
    random = np.random.default_rng(seed)
    scores = []
    # resamples at once: their counts stay in the cache, which is twice as fast
    size = max(1, 100_000 // N)
    for start in range(0, resamples, size):
        count = min(size, resamples - start)
        drawn = random.integers(0, N, (count, N), dtype=np.int32)

        # how often each instance is drawn: one bincount of all these resamples, each with its own N numbers
        first = np.arange(count, dtype=np.int32) * N
        drawn += first[:, None]
        times = np.bincount(drawn.ravel(), minlength=drawn.size)
        times = times.reshape(count, N).astype(float)

        sums = times @ terms.reshape(-1, N).T               # (count, terms * S)
        sums = sums.reshape(count, -1, S).swapaxes(0, 1)    # (terms, count, S)
        n = N
        if sizes is not None:
            n = (times @ sizes)[:, None]                    # (count, 1)
        scores.append(STATISTICS[statistic].score(sums, n))
    return np.concatenate(scores)


def summed_by_cluster(terms, clusters):
    """Return ((terms, S, C) sums over each cluster, (C,) how many instances it has).

    clusters  the names of those that the instances are in"""
    import pandas
    numbers, names = pandas.factorize(clusters)     # by first occurrence: clusters of one keep their order
    if len(names) < 2:
        raise ValueError('its instances are one cluster, which says nothing of others; see --clusters')
    sums = np.zeros((*terms.shape[:-1], len(names)))
    np.add.at(sums, (..., numbers), terms)
    return sums, np.bincount(numbers)


def instance_values(statistic, terms, sizes=None):
    """Return (S, N) influence values: the mean of a row is a run's score, and the variance of a row, divided
    by N, estimates the score's. They are central differences: what a hundredth of an instance more, and less,
    would change. Of clusters, whose `sizes` are given, it is a hundredth of a cluster."""
    N = terms.shape[-1]
    n = N
    hundredth = 0.01
    if sizes is not None:
        n = sizes.sum()
        hundredth = 0.01 * sizes
    score = STATISTICS[statistic].score
    total = terms.sum(-1, keepdims=True)
    more = 0.01 * terms
    change = score(total + more, n + hundredth) - score(total - more, n - hundredth)
    return score(total, n) + N * change / 0.02


def seed_noise(values):
    """Return how much of the variance between seeds comes from the finite number of instances: MS_R / N of
    the two-way analysis of (S, N) values."""
    S, N = values.shape
    if min(S, N) < 2:
        return 0.0
    rest = values - values.mean(0)
    rest -= rest.mean(1, keepdims=True)
    return (rest ** 2).sum() / ((S - 1) * (N - 1) * N)


def with_seeds(draws, arms, cfg):
    """Add the noise of seeds to draws over instances. Returns (resamples,) draws over both.

    draws  (resamples,) of the bootstrap
    arms   [(scores of S seeds, their `seed_noise`)] of each group of models that share their seeds

    Draws and scores both contain the instances' noise, which must count once: (S - 1) / (S + 1) of it is
    subtracted from the variance between seeds; if that would be negative, the draws are shrunk instead
    (docs/protocols.md). One seed says nothing of the noise of seeds."""
    added = []      # (S, the variance that the seeds add to the mean) of each arm with several seeds
    for scores, noise in arms:
        S = len(scores)
        if S > 1:
            counted_twice = noise * (S - 1) / (S + 1)   # a simulation chose this share: docs/protocols.md
            variance = (statistics.variance(scores) - counted_twice) / S
            added.append((S, variance))

    too_much = -sum(min(0.0, variance) for _, variance in added)
    if too_much:
        mean = draws.mean()
        left = 1 - too_much / max(draws.var(), 1e-300)      # of the draws' variance
        draws = mean + (draws - mean) * math.sqrt(max(0.0, left))

    random = np.random.default_rng((cfg.seed, 1))
    for S, variance in added:
        if cfg.rules == 1:
            t = random.standard_t(S - 1, len(draws))
        else:
            t = random.permutation(t_quantiles(S - 1, len(draws)))
        draws = draws + math.sqrt(max(0.0, variance)) * t
    return draws


@functools.cache
def t_quantiles(freedom, count):
    """Return so many quantiles of Student's t, evenly spaced. 10,000 random draws miss its tails: of two
    degrees of freedom the 2.5th percentile comes out 3 % too near or too far, of one degree 6 %."""
    from scipy.special import stdtrit
    return stdtrit(freedom, (np.arange(count) + 0.5) / count)


def seeds_half(parts):
    """Return half of the 95 % interval over seeds, by Student's t; nan with one seed.

    parts  lists of scores whose sum is estimated; several have Welch's degrees of freedom"""
    from scipy.special import stdtrit
    variances = [(statistics.variance(part) / len(part), len(part) - 1) for part in parts if len(part) > 1]
    if not variances:
        return math.nan
    total = sum(variance for variance, _ in variances)
    if not total:
        return 0.0
    freedom = total ** 2 / sum(variance ** 2 / of_part for variance, of_part in variances)
    return stdtrit(freedom, 0.975) * math.sqrt(total)


def p_value(draws, bounds=(0.0,)):
    """Return twice the share of draws beyond a bound, on the side with fewer; of several bounds the largest.
    It is never below 2 / (draws + 1), the least that they can show. Of draws that are nan it is nan."""
    if np.isnan(draws).any():
        return math.nan
    p = 2 / (len(draws) + 1)
    for bound in bounds:
        below = (draws <= bound).mean()
        above = (draws >= bound).mean()
        p = max(p, 2 * min(below, above))
    return min(1.0, p)


# ---------------------------------------------------------------------------
# What is estimated: a cell of a table, and sums of cells


@dataclass(frozen=True)
class Cell:
    """A model on a dataset, or its average over datasets; fractions of 1."""
    mean: float
    low: float              # of the 95 % interval
    high: float
    scores: dict            # {unit: score}, of several fine-tunings of a pretraining their mean
    runs: list = ()         # that validation chose; none of an average
    tried: set = ()         # learning rates among which it chose
    # the next three are not of averages, and not by the paper's protocol
    draws: object = None    # (units, resamples) over instances
    values: object = None   # (units, n) of `instance_values`; of clusters, where these are drawn
    data: tuple = ()        # by which two cells are known to be of the same instances
    unit: str = 'fine-tuning'   # whose seeds the units are: pretraining's, where there are several

    @property
    def is_seedless(self):
        """Whether its method draws nothing, so that one run is enough for a p value."""
        method = self.runs[0].method
        return self.unit == 'fine-tuning' and method in ('baseline', 'probe', 'zero-shot', ONE_SEED)

    @property
    def is_trained(self):
        """Whether it was pretrained, so that another pretraining could give another score."""
        first = self.runs[0]
        if first.about.get('checkpoint') == 'none':
            return False
        # packed runs do not say it, but by their names
        return first.method != 'baseline' and first.model != untrained_like(first.model)

    @property
    def units(self):
        """Return (whose seeds the units are, these seeds). Arms with the same units are paired."""
        return self.unit, tuple(self.scores)

    @property
    def seeds(self):
        """Say how many seeds there are: 5; or 6 x 3, six pretrainings with three fine-tunings each."""
        if not self.scores:
            return ''
        if self.unit == 'fine-tuning':
            return str(len(self.scores))
        fine_tunings = len({(run.origin, run.seed) for run in self.runs})
        return f'{len(self.scores)} x {fine_tunings / len(self.scores):.3g}'


class Estimate(NamedTuple):
    """A weighted sum of Cells, as fractions of 1; intervals are of 95 %."""
    mean: float
    low: float              # over test instances and units
    high: float
    seeds_low: float        # over units alone, on these very instances; nan with one unit
    seeds_high: float
    p: float | None         # two-sided; None where a trained arm has one unit
    draws: object           # (resamples,) of instances and units
    by_seed: dict           # {seed: value}, where all arms that were pretrained share their units
    unit: str               # pretraining, or fine-tuning: it then speaks of one pretrained model
    noise: tuple = ()       # the variance over instances, and [(scores, `seed_noise`)] as for `with_seeds`


class Arm(NamedTuple):
    dataset: int            # its number
    weight: float
    cell: Cell


def estimate(parts, cfg, without=()):
    """Return the Estimate of weighted Cells, by the standard protocol.

    parts    [[(weight, Cell), ...], ...]: the arms on each dataset; the mean over datasets is estimated
    without  pretraining seeds to leave out

    A seed fixes the order of the data and the first weights, so runs of one seed go up and down together.
    Arms of the same units are therefore paired, unit by unit; arms of other units add a share of theirs."""
    arms = []
    for dataset, cells in enumerate(parts):
        _, first = cells[0]
        for weight, cell in cells:
            if cell.data != first.data:
                name = first.runs[0].dataset
                raise ValueError(f'{name}: tested on different data, or by different metrics; or only one '
                                 'names clusters, which --clusters=False ignores')
            arms.append(Arm(dataset, weight / len(parts), cell))
    arms = with_shared_units(arms, without)

    groups = grouped(arms, 'cell.units')
    summed = {units: paired(group) for units, group in groups.items()}
    scores = [of_units for of_units, _ in summed.values()]
    mean = sum(map(statistics.fmean, scores))
    half = seeds_half(scores)
    draws = sum(arm.weight * arm.cell.draws.mean(0, dtype=float) for arm in arms)
    noise = draws.var(), [*summed.values()]
    draws = with_seeds(draws, summed.values(), cfg)
    low, high = np.percentile(draws, [2.5, 97.5])
    p = None
    if all(len(arm.cell.scores) > 1 or arm.cell.is_seedless for arm in arms):
        p = p_value(draws)

    trained = [units for units, group in groups.items() if any(arm.cell.is_trained for arm in group)]
    unit = 'fine-tuning'
    if trained and all(whose == 'pretraining' for whose, _ in trained):
        unit = 'pretraining'
    by_seed = {}
    varied = trained or [*groups]   # an untrained model's seeds count where nothing else has any
    if len(varied) == 1:
        by_seed = values_by_seed(varied[0], summed, mean)
    return Estimate(mean, low, high, mean - half, mean + half, p, draws, by_seed, unit, noise)


def values_by_seed(units, summed, mean):
    """Return {seed: value} of an Estimate with this mean: each seed of the units alone, and the mean of all
    arms that have other units.

    summed  {units: (scores of the weighted sum of their arms, its noise)}"""
    _, seeds = units
    scores, _ = summed[units]
    mean_of_units = statistics.fmean(scores)
    return {seed: score + mean - mean_of_units for seed, score in zip(seeds, scores)}


def paired(arms):
    """Return (scores, `seed_noise`) of the weighted sum of arms of the same units."""
    scores = 0
    values = {}     # {dataset: (units, n)}
    for dataset, weight, cell in arms:
        scores = scores + weight * np.array([*cell.scores.values()])
        weighted = weight * cell.values.astype(float)
        values[dataset] = values.get(dataset, 0) + weighted
    noise = sum(map(seed_noise, values.values()))
    return scores.tolist(), noise


def with_shared_units(arms, without):
    """Return the arms with the units that count. Arms with several seeds keep those that they share or, if
    they share fewer than two, all of theirs. An arm with one seed keeps it, and restricts no other."""
    kept = []
    common = {}     # {unit: seeds that all arms with several have}
    for arm in arms:
        unit = arm.cell.unit
        seeds = set(arm.cell.scores)
        if unit == 'pretraining':
            seeds -= {*without}
        kept.append(seeds)
        if len(seeds) > 1:
            common[unit] = common.get(unit, seeds) & seeds

    shared = []
    for arm, seeds in zip(arms, kept):
        cell = arm.cell
        both = seeds & common.get(cell.unit, seeds)
        if len(both) > 1:
            seeds = both
        at = [seed in seeds for seed in cell.scores]
        scores = {seed: score for seed, score in cell.scores.items() if seed in seeds}
        cell = replace(cell, draws=cell.draws[at], values=cell.values[at], scores=scores)
        shared.append(arm._replace(cell=cell))
    return shared


# ---------------------------------------------------------------------------
# Which runs make a cell, and at which learning rate


def make_cells(runs, cfg, problems):
    """Return {(model, task, dataset): Cell}, and after them the averages over the datasets of a task."""
    cells = {}
    runs = sorted(runs, key=functools.partial(rank, cfg))
    for key, group in grouped(runs, 'model', 'task', 'dataset').items():
        try:
            cells[key] = make_cell(group, cfg)
        except ValueError as error:
            problems.append(f'{"/".join(key)} is left out: {error}')
    return cells | averages_of(cells, cfg)


def averages_of(cells, cfg):
    """Return {(model, task, 'Average'): Cell} of models that have every dataset of a task with several."""
    datasets = {}       # {task: datasets of any model}
    tested = {}         # {(model, task): {dataset: Cell}}
    for (model, task, dataset), cell in cells.items():
        datasets.setdefault(task, set()).add(dataset)
        tested.setdefault((model, task), {})[dataset] = cell

    averages = {}
    for (model, task), by_dataset in tested.items():
        if len(by_dataset) > 1 and by_dataset.keys() == datasets[task]:
            cell = average([*by_dataset.values()], cfg)
            if cell:
                averages[model, task, 'Average'] = cell
    return averages


def rank(cfg, run):
    """Return what sorts a run: models stand in the order of --models, else the untrained model first and
    simple methods last."""
    asked = 0
    if cfg.models:
        asked = cfg.models.index(run.model)
    task = [*METRICS].index(run.task)
    return asked, run.method == 'baseline', run.model != 'untrained', task


def make_cell(runs, cfg):
    """Return the Cell of one model's runs on one dataset. ValueError where they are not of one experiment."""
    check_one_experiment(runs)
    tried = {run.lr for run in runs}
    if cfg.protocol == 'paper':
        return replace(paper_cell_of(runs), tried=tried)

    rates = {split: best_rate(runs, split) for split in cfg.splits}
    chosen = [run for run in runs if run.lr in rates.values()]
    instances = read_instances(chosen, rates)
    columns = [     # of each seed, its splits joined
        np.hstack([part['columns'] for part in of_seed])
        for of_seed in instances.values()]
    if not columns[0].size:
        raise ValueError(f'{cfg.split} has no instances')

    parts = [*instances.values()][0]    # models are compared only if these have the same ids
    statistic = parts[0]['statistic']
    terms = STATISTICS[statistic].terms(np.stack(columns, 1))
    first = runs[0]
    name = f'{first.dataset} {cfg.split}'       # models on one dataset have the same resamples
    seed = cfg.seed, key_of([name])
    ids = [key_of(part['ids']) for part in parts]
    data = first.about.get('data', ''), first.metric, *ids
    sizes = None
    if cfg.clusters and all('clusters' in part for part in parts):
        clusters = np.hstack([part['clusters'] for part in parts])
        terms, sizes = summed_by_cluster(terms, clusters)
        data += key_of(map(str, clusters)),
    draws = bootstrap(statistic, terms, cfg.resamples, seed, sizes)
    values = instance_values(statistic, terms, sizes)

    cell = standard_cell(chosen, seeds=[*instances], draws=draws, values=values, data=data, cfg=cfg)
    least = -1.0 if statistic in (*CORRELATIONS, 'Matthews') else 0.0
    return replace(cell, low=max(least, cell.low), high=min(1.0, cell.high), tried=tried)


def best_rate(runs, split):
    """Return the learning rate with the best mean score on the other split. Of equally good rates the smaller
    one; rates that lack seeds do not compete."""
    other = 'validation' if split == 'test' else 'test'
    by_lr = grouped(runs, 'lr')
    most = max(map(len, by_lr.values()))
    means = {
        lr: statistics.fmean(getattr(run, other) for run in group)
        for lr, group in sorted(by_lr.items())
        if len(group) == most}
    return max(means, key=means.get)


def read_instances(runs, rates):
    """Return {(pretraining seed, seed): [its instances in each split]} of the seeds that all splits have.

    rates  {split: learning rate of the runs that are scored on it}"""
    instances = {}
    for seed, group in sorted(grouped(runs, 'origin', 'seed').items()):
        scores = {run.lr: run.load() for run in group}
        if all(lr in scores for lr in rates.values()):
            instances[seed] = [
                scores[lr][split]['standard']
                for split, lr in rates.items()]
    if not instances:
        raise ValueError('the runs that validation and test choose have no seed in common')
    return instances


def key_of(ids):
    """Return a CRC of the instances' ids; packed runs hold this number in their place."""
    if isinstance(ids, int):
        return ids
    return zlib.crc32('\n'.join(ids).encode())


def units_of(seeds):
    """Return (whose seeds the units are, {unit: its places}) of [(pretraining seed, seed)]."""
    unit = 'fine-tuning'
    if len({origin for origin, _ in seeds}) > 1:
        unit = 'pretraining'
    places = {}
    for k, (origin, seed) in enumerate(seeds):
        number = origin if unit == 'pretraining' else seed
        places.setdefault(number, []).append(k)
    return unit, places


def standard_cell(runs, *, seeds, draws, values, data, cfg):
    """Return the Cell of runs with S seeds. Several fine-tunings of one pretraining are averaged.

    seeds   (pretraining seed, seed) of each
    draws   (resamples, S) of the bootstrap
    values  (S, N) of `instance_values`"""
    unit, places = units_of(seeds)
    unit_draws = [draws.T[at].mean(0) for at in places.values()]
    unit_values = [values[at].mean(0) for at in places.values()]
    scores = [float(of_unit.mean()) for of_unit in unit_values]
    unit_draws = np.array(unit_draws, np.float32)       # (units, resamples)
    unit_values = np.array(unit_values, np.float32)     # (units, N)

    noise = seed_noise(unit_values.astype(float))
    over_instances = unit_draws.mean(0, dtype=float)
    over_seeds = with_seeds(over_instances, [(scores, noise)], cfg)
    low, high = np.percentile(over_seeds, [2.5, 97.5])
    return Cell(
        mean=statistics.fmean(scores),
        low=low,
        high=high,
        scores=dict(zip(places, scores)),
        runs=runs,
        draws=unit_draws,
        values=unit_values,
        data=data,
        unit=unit,
    )


def paper_cell_of(runs):
    """Return the Cell by the paper's protocol: each seed has the learning rate of its own best validation."""
    ordered = sorted(runs, key=attrgetter('seed', 'lr'))    # of equally good rates the smaller one
    groups = grouped(ordered, 'origin', 'seed')
    best = [max(group, key=attrgetter('validation')) for group in groups.values()]
    unit, places = units_of(groups)
    scores = {
        seed: statistics.fmean(best[k].test for k in at)
        for seed, at in places.items()}
    return paper_cell(scores, runs=best, unit=unit)


def paper_cell(scores, **more):
    """Return the Cell of {seed: score} as the paper has it: 1.96 s / sqrt(seeds); nan for one seed."""
    values = scores.values()
    mean = statistics.fmean(values)
    half = math.nan
    if len(values) > 1:
        half = 1.96 * statistics.stdev(values) / math.sqrt(len(values))
    return Cell(mean, mean - half, mean + half, scores, **more)


def average(cells, cfg):
    """Return the Cell of several datasets' mean, of the seeds that all of them have; None without such."""
    if cfg.protocol == 'standard':
        parts = [[(1, cell)] for cell in cells]
        result = estimate(parts, cfg)
        least = min(0.0, *(cell.low for cell in cells))     # a correlation may be below 0
        low = max(result.low, least)
        high = min(1.0, result.high)
        return Cell(result.mean, low, high, result.by_seed)

    shared = set.intersection(*(set(cell.scores) for cell in cells))
    scores = {
        seed: statistics.fmean(cell.scores[seed] for cell in cells)
        for seed in sorted(shared)}
    return paper_cell(scores) if scores else None


def check_one_experiment(runs):
    """ValueError where a model's runs on a dataset differ in more than their learning rates and seeds."""
    for (lr, seed, _), group in grouped(runs, 'lr', 'seed', 'origin').items():
        if len(group) > 1:
            raise ValueError(f'two runs are lr{lr_text(lr)}_sd{seed}')

    names = set().union(*(run.pretraining | run.settings for run in runs))
    first = {}      # {name: what the first run that says it has}
    differing = set()
    for run in runs:
        for name, value in facts_of(run, names).items():
            if first.setdefault(name, value) != value:
                differing.add(name)
    differing -= {'lr', 'seed', 'fixed', 'tokens', 'seed of pretraining'}
    if differing:
        raise ValueError(f'its runs differ in {", ".join(sorted(differing))}; give them other names')


def facts_of(run, names):
    """Return {name: value} of what makes a run's experiment. Of `names`, which are those of all its model's
    settings, one that is not said is None."""
    said = run.pretraining | run.settings
    facts = {name: said.get(name) or None for name in names}
    facts |= {'method': run.method, 'metric': run.metric}
    for name in ('data', 'training_data', 'tokenizer', 'sizes', 'checkpoint'):
        facts[name] = run.about.get(name) or None
    if run.origin is not None:      # another pretraining seed makes other weights
        facts[f'checkpoint of pretraining seed {run.origin}'] = facts.pop('checkpoint')
    for name, value in run.pretraining.get('fixed', {}).items():
        facts[f'{name} of pretraining'] = value
    return facts


# ---------------------------------------------------------------------------
# Commands


def table(cfg, problems, found):
    """Print a table for each kind of task: a row a model, a column a dataset. For `found` see read_runs."""
    cells = make_cells(read_runs(cfg, problems, found), cfg, problems)
    if not cells:
        raise ValueError('; '.join(problems))
    frame = frame_of(cells, cfg)
    for (_, dataset), rows in frame.groupby(['task', 'dataset']):
        if rows['column'].nunique() == 1:
            frame.loc[rows.index, 'column'] = rows['column'].str.replace(r', data \w+', '', regex=True)
        elif rows.loc[rows['data'] != '', 'column'].nunique() > 1:
            problems.append(f'{dataset}: its models were tested on different data, or by different metrics')
    if cfg.others:
        print_others(others_of(cells, frame, cfg), cfg.format)
    else:
        print_table(frame, cells, cfg)


def print_table(frame, cells, cfg):
    """Print what frame_of returns of these cells."""
    if cfg.format == 'csv':
        print(frame.drop(columns=['notes', 'rates', 'column', 'shown']).to_csv(index=False), end='')
        return
    text = ''
    for task in METRICS:
        rows = frame[frame['task'] == task]
        if len(rows):
            text += table_of_task(task, rows, cfg.format) + '\n\n'
    print(text, end='')
    for (model, _, dataset), cell in cells.items():
        if is_constant(cell):
            print(f'{model} on {dataset}: {CONSTANT}')
    print(NOTES[cfg.protocol])
    print_legend(text)


def print_legend(text):
    """Say what the signs in a table mean, of those that it has."""
    for sign, words in LEGEND.items():
        if sign in text:
            print(words)


def frame_of(cells, cfg):
    """Return a DataFrame with a row for each cell: what a .csv says of it, then the `notes`, `rates`,
    `column` and `shown` of a table."""
    import pandas
    rows = []
    for (model, task, dataset), cell in cells.items():
        row = {'model': model, 'task': task, 'dataset': dataset}
        row |= csv_columns(cell)
        row['protocol'] = cfg.protocol

        unusual = {row['method'], row['weights']} - {'', 'fine-tuned', 'fp32'}
        row['notes'] = ', '.join(sorted(unusual))
        row['rates'] = rates_in_words(cell)
        row['column'] = dataset
        if cell.runs:       # an average has none
            data = f', data {row["data"]}' if row['data'] else ''
            row['column'] += f' ({row["metric"]}, n={row["n"]:,}{data})'
        row['shown'] = shown(cell, cfg.protocol)
        untrained = cells.get((untrained_like(model), task, dataset), cell)
        if cell.mean < untrained.mean:
            row['shown'] += '°'
        rows.append(row)
    return pandas.DataFrame(rows)


def csv_columns(cell):
    """Return {column of a .csv: value} of a Cell's score and of the runs that it is made of."""
    mean, low, high = in_percent(cell)
    return {
        'metric': joined(run.metric for run in cell.runs),
        'mean': f'{mean:.4f}',
        'low': f'{low:.4f}',
        'high': f'{high:.4f}',
        'n': max((run.n for run in cell.runs), default=''),
        'seeds': cell.seeds,
        'lr': rates_in_words(cell).replace('*', ''),
        'method': joined(run.method for run in cell.runs),
        'weights': joined(run.about.get('weights') for run in cell.runs),
        'data': joined(run.about.get('data', '')[:8] for run in cell.runs),
    }


def rates_in_words(cell):
    """Write the learning rates of a Cell. A * marks the lowest and the highest of several that were tried."""
    lrs = {run.lr for run in cell.runs} - {0}       # simple methods and probes have none
    words = []
    for lr in sorted(lrs):
        is_end = len(cell.tried) > 1 and lr in (min(cell.tried), max(cell.tried))
        words.append(lr_text(lr) + '*' * is_end)
    return '/'.join(words)


def others_of(cells, frame, cfg):
    """Return a DataFrame with a row for each further score of each Cell, models beside each other.

    frame  what frame_of returns of these cells: n, seeds and learning rate are the same"""
    import pandas
    columns = ['task', 'dataset', 'model', 'n', 'seeds', 'lr']
    found = {}      # {(task, dataset, metric): [a row of each model]}
    for cell, row in zip(cells.values(), frame[columns].to_dict('records')):
        scores = {}     # {metric: {unit: [scores of its fine-tunings]}}
        for run in cell.runs:   # an average has none
            unit = run.origin if cell.unit == 'pretraining' else run.seed
            for metric, score in run.load()[cfg.split]['standard']['others'].items():
                scores.setdefault(metric, {}).setdefault(unit, []).append(score)
        for metric, by_unit in scores.items():
            of_metric = row | {'metric': metric, 'mean': other_mean(metric, by_unit, cfg.format)}
            if len(by_unit) < len(cell.scores):     # as F1 of a label that not all seeds predict
                of_metric['seeds'] = str(len(by_unit))
            found.setdefault((row['task'], row['dataset'], metric), []).append(of_metric)
    if not found:
        raise ValueError('these runs have no further scores')
    rows = itertools.chain(*found.values())
    return pandas.DataFrame(rows, columns=['task', 'dataset', 'metric', 'model', 'mean', 'n', 'seeds', 'lr'])


def other_mean(metric, by_unit, form):
    """Write the mean over units of {unit: scores}, in percent where they are fractions of 1."""
    scores = [*by_unit.values()]
    mean = statistics.fmean(map(statistics.fmean, scores))
    if metric in NO_FRACTIONS or isinstance(scores[0][0], int):     # a count
        return f'{mean:.6g}'
    return f'{100 * mean:.4f}' if form == 'csv' else f'{100 * mean:.1f}'


def print_others(frame, form):
    """Print what others_of returns."""
    if form == 'csv':
        print(frame.to_csv(index=False), end='')
        return
    frame = frame.astype(str).replace('', '-')
    if form == 'text':
        print(frame.to_string(index=False))
    else:
        print(markdown(frame.columns, frame.values))
    print(f'\n{OTHERS_NOTE}')


def shown(cell, protocol):
    """Write a Cell as a table has it."""
    mean, low, high = in_percent(cell)
    if protocol == 'standard':
        return f'{mean:.1f} [{low:.1f}, {high:.1f}]'
    half = f'{high - mean:.2f}' if len(cell.scores) > 1 else 'one seed'
    return f'{mean:.2f} ({half})'


def in_percent(result):
    """Return the mean and the interval of a Cell or an Estimate in percent."""
    return 100 * result.mean, 100 * result.low, 100 * result.high


def joined(texts):
    """Join texts, each once, as a/b. What is empty is left out."""
    return '/'.join(sorted({*texts} - {'', None}))


def joined_again(texts):
    """Join texts of which some are joined already: a/b and b are a/b."""
    return joined('/'.join(texts).split('/'))


def table_of_task(task, rows, form):
    """Return the table of a task's models, as text or markdown, from rows of frame_of."""
    about = rows[rows['dataset'] != 'Average']
    about = about.groupby('model')[['notes', 'seeds', 'rates']].agg(joined_again)
    about = about.rename(columns={'rates': 'lr'})
    scores = rows.pivot(index='model', columns='column', values='shown')
    scores = scores[rows['column'].unique()]    # in the order of the rows, and not of the alphabet
    shown = about.join(scores)
    shown = shown.loc[rows['model'].unique()]
    shown = shown.replace('', '-').fillna('-')
    if {*shown['notes']} == {'-'}:
        shown = shown.drop(columns='notes')
    if form == 'text':
        return shown.rename_axis(index=None, columns=task).to_string()
    return markdown([task, *shown], shown.reset_index().values)


def markdown(heads, rows):
    rule = '|'.join('---' for _ in heads)
    lines = [
        ' | '.join(heads),
        rule,
        *map(' | '.join, rows)]
    return '\n'.join(f'| {line} |' for line in lines)


def is_constant(cell):
    """Whether a score is 0 in all draws of instances and seeds, as with one answer to everything."""
    return cell.mean == cell.low == cell.high == 0


def compare(cfg, first, second, problems, found):
    """Print paired tests: second - first on the same test instances, per dataset."""
    if cfg.protocol != 'standard' or cfg.models:
        raise ValueError('compare takes two models and standard scores: no --protocol, --models')
    cfg = replace(cfg, models=(first, second))
    first, second = cfg.models
    cells = make_cells(read_runs(cfg, problems, found), cfg, problems)
    shared = [(task, dataset) for model, task, dataset in cells
              if model == first and (second, task, dataset) in cells and dataset != 'Average']
    if not shared:
        raise ValueError('; '.join([f'{first} and {second} have no dataset in common', *problems]))

    results = []
    names = []
    rows = []
    notes = []
    for task, dataset in shared:
        a = cells[first, task, dataset]
        b = cells[second, task, dataset]
        try:
            result = estimate([[(1, b), (-1, a)]], cfg)
        except ValueError as error:
            problems.append(str(error))
            continue
        results.append(result)
        kind = '' if cfg.results else f'{task} '
        names.append(f'{kind}{dataset}, {a.runs[0].metric}')
        rows.append({
            first: f'{100 * a.mean:.1f}',
            second: f'{100 * b.mean:.1f}',
            **in_words(result, cfg),
            'n': instances_in_words(a),
            'seeds': ' and '.join(dict.fromkeys([a.seeds, b.seeds]))})
        notes += [f'{dataset}: {note}' for note in notes_of(a, b, result)]
        if cfg.needed:
            notes.append(f'{dataset}: {words_of_needed(result.noise, a.runs[0].n, cfg.needed)}')

    if not rows:
        raise ValueError('; '.join(problems))
    import pandas
    print(f'{second} minus {first}, in points: above 0, {second} is better.\n')
    text = pandas.DataFrame(rows, names).to_string()
    print(text, COMPARED, sep='\n\n')
    print_legend(text)
    for note in notes:
        print(note)
    if any(result.p is None for result in results):
        print('No p value with one seed of a model: another seed may turn the sign.')
    if not cfg.results and any(result.unit == 'fine-tuning' for result in results):
        print('This speaks of these pretrained models: another pretraining may turn the sign.')
    for model in cfg.models:
        if any(cell.runs[0].method == ONE_SEED for cell in [cells[model, *key] for key in shared]):
            print(f'{model} has {ONE_SEED}: another training of it may turn the sign, whatever p says.')


def instances_in_words(cell):
    """Write how many instances a Cell has, and in how many clusters."""
    n = cell.runs[0].n
    count = cell.values.shape[1]
    return f'{n:,}' if count == n else f'{n:,} in {count:,}'


def notes_of(a, b, result):
    """Yield what a reader of b - a should know: constant scores, seeds that only one has, whether p decides,
    other settings."""
    for cell in (a, b):
        if is_constant(cell):
            yield f'{cell.runs[0].model}: {CONSTANT}'
    seeds = [*result.by_seed]
    if seeds and any(cell.is_trained and cell.scores.keys() != {*seeds} for cell in (a, b)):
        yield f'the difference is of seeds {str(seeds)[1:-1]}, which both have'
    p = math.nan if result.p is None else result.p     # nan, of p or of the seeds, is on neither side
    if result.seeds_low < 0 < result.seeds_high and p < 0.05:
        yield 'the seeds alone allow 0, but p decides: it counts instances and seeds together'
    if (result.seeds_low > 0 or result.seeds_high < 0) and p >= 0.05:
        yield 'the seeds alone exclude 0, but p decides: with other instances the sign may turn'
    before = a.runs[0].settings
    after = b.runs[0].settings
    for name in sorted(before.keys() & after.keys() - {'lr', 'seed'}):
        if before[name] != after[name]:
            yield f'{name} {before[name]} -> {after[name]}'


def in_words(result, cfg):
    """Return the columns in which `compare` shows an Estimate."""
    mean, low, high = in_percent(result)
    p = '-'
    if result.p is not None:
        sign = '<= ' if result.p == 2 / (cfg.resamples + 1) else ''     # the draws can show no less
        p = f'{sign}{result.p:.4f}'
    alone = '-'
    if not math.isnan(result.seeds_low):
        alone = f'[{100 * result.seeds_low:+.1f}, {100 * result.seeds_high:+.1f}]'
    return {'difference [95 %]': f'{mean:+.1f} [{low:+.1f}, {high:+.1f}]', 'seeds alone': alone, 'p': p}


def figure(cfg, key, problems, found=None):
    """Draw scores against a number of run.json: a panel a task, a line the models of one recipe."""
    runs = read_runs(cfg, problems, found)
    key = figures.number_in(runs, key)
    runs = [run for run in runs if key in figures.numbers_of(run.about)]
    groups = {None: runs}
    if key == 'settings.lr':    # a score at each rate; other figures have the rate that the other split chose
        groups = grouped(runs, 'lr')
        groups.pop(0, None)     # of methods that have none
    points = []
    for group in groups.values():
        places = {}     # {(model, task): the numbers of its runs}
        for run in group:
            places.setdefault((run.model, run.task), set()).add(figures.numbers_of(run.about)[key])
        pretrainings = {run.model: run.pretraining for run in group}
        for model, task, panel, *interval in figures.points_of(make_cells(group, cfg, problems), problems):
            if len(places[model, task]) > 1:
                raise ValueError(f'figure {key}: runs of {model} differ in it; a score is of all of them')
            x, = places[model, task]
            points.append((model, pretrainings[model], x, panel, *interval))
    print(figures.save_figure(figures.against(key, points), Path(cfg.out, f'{key}.png')))


def run_command(words, cfg, problems, found=None):
    """Do what the words of a command line say. `found` is for runs that are kept in another way."""
    if cfg.others and words != ['table']:
        raise ValueError('--others is for table')
    if (cfg.results or cfg.needed) and words[:1] != ['compare']:
        raise ValueError('--results and --needed are for compare')
    match words:
        case ['table']:
            table(cfg, problems, found)
        case ['compare', first, second]:
            if cfg.results:
                found = read_results(cfg.results, (first, second), cfg.metric)
            compare(cfg, first, second, problems, found)
        case ['figure', key]:
            figure(cfg, key, problems, found)
        case ['losses', *folders] if folders:
            print_losses(folders, cfg.out)
        case _:
            raise ValueError('the command is table, compare A B, figure KEY, or losses FOLDERS; see --help')


def warn(problems):
    """Print each problem once. Returns the exit code: 1 if there is one, else 0."""
    for problem in dict.fromkeys(problems):
        print(f'warning: {problem}', file=sys.stderr)
    return 1 if problems else 0


def main():
    words, options = split_words(sys.argv[1:])
    cfg, _ = parse(Settings, options)
    problems = []   # in words: what is missing, while the rest goes on
    run_command(words, cfg, problems)
    sys.exit(warn(problems))


if __name__ == '__main__':
    run_main(main)

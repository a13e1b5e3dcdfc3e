"""What is known of a study, and judged: rules for a claim, ladders of lengths, scores, losses, contrasts.

better         the interval lies above 0
at_least       it lies above minus the margin
no_difference  it lies within the margin to both sides

An interval inside its rule's region agrees with the claim, one outside disagrees, any other cannot tell. The
margin is a tenth of what MLM gains over no pretraining.
"""
import contextlib
import dataclasses
import functools
import itertools
import math
import statistics
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data import OBJECTIVES
from nanoencoder.durable import read_csv
from nanoencoder.judging.intervals import Contrast, contrast, p_value, seeds_half
from nanoencoder.judging.protocols import grouped, make_cell

REGIONS = {'better': lambda margin: (0.0, math.inf),
           'at_least': lambda margin: (-margin, math.inf),
           'no_difference': lambda margin: (-margin, margin)}
MARGIN = 0.1        # of what MLM gains over no pretraining
MOST = 50           # seeds, or times the test instances: what takes more is out of reach
MLM_LOSS = 'held-out MLM loss'      # a quantity beside the datasets


class Missing(Exception):
    """In words: what of a study is not there, yet or at all."""


# ------------------------------------------------------------------------------------------------------ rules

def verdict(rule, low, high, margin=0.0):
    least, most = REGIONS[rule](margin)
    if least < low and high < most:
        return 'agrees'
    return 'disagrees' if high < least or most < low else 'cannot tell'


def bounds(rule, margin=0.0):
    return [bound for bound in REGIONS[rule](margin) if math.isfinite(bound)]


def holm(values):
    """p values adjusted for their number, in the order given (Holm 1979)."""
    adjusted, highest = [0.0] * len(values), 0.0
    for rank, k in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        highest = adjusted[k] = max(highest, min(1.0, (len(values) - rank) * values[k]))
    return adjusted


def over_seeds(values):
    """(mean, low, high): 95 %, Student's t over independent values; nan for one."""
    mean, half = statistics.fmean(values), seeds_half([(values, 0)])
    return mean, mean - half, mean + half


def what_decides(distance, seeds, half, alone):
    """In words: what would bring the mean's interval to one side of the rule's bound, were the mean right.

    distance          from the mean to the bound
    half, alone       of the interval, and of that over seeds alone; what is left in squares is the instances'
    """
    from scipy.stats import t
    spread = alone / t.ppf(0.975, seeds - 1) * math.sqrt(seeds)
    instances = max(0.0, half ** 2 - alone ** 2)
    for more in range(seeds + 1, MOST + 1):
        if (t.ppf(0.975, more - 1) * spread) ** 2 / more + instances < distance ** 2:
            return f'about {more} seeds'
    for times in range(2, MOST + 1):
        if alone ** 2 + instances / times < distance ** 2:
            return f'about {times} times the test instances'
    return f'over {MOST} seeds'


# ---------------------------------------------------------------------------------------------------- ladders

def shares_at(value, places):
    """{index: share} of the two places around a value, linear in its logarithm; places ascend."""
    if value in places:
        return {places.index(value): 1.0}
    for k, (low, high) in enumerate(itertools.pairwise(places)):
        if low < value < high:
            share = math.log(value / low) / math.log(high / low)
            return {k: 1 - share, k + 1: share}
    raise ValueError(f'{value} is not within {places[0]} and {places[-1]}')


def mix_at_budgets(weights, ladder, flops):
    """{row: weight} of the same contrast, its rows of each length at the least budget that all arms reach.

    weights, flops  {row: its own}
    ladder          [[rows by length] of each arm]
    Missing where a row stands on no ladder, arms have rows of different lengths, or no budget in common.
    """
    arms = [(arm, own) for arm in ladder if (own := [row for row in arm if row in weights])]
    lengths = [*zip(*(own for _, own in arms))]     # the contrast's rows of each
    if sorted(weights, key=str) != sorted(itertools.chain(*lengths), key=str):
        raise Missing('a ladder with rows of the same lengths')
    mixed = {}
    for rows in lengths:
        budgets = [budget for budget in sorted(flops[row] for row in rows)
                   if all(flops[arm[0]] <= budget <= flops[arm[-1]] for arm, _ in arms)]
        if not budgets:
            raise Missing('a budget in common')
        for row, (arm, _) in zip(rows, arms):
            for k, share in shares_at(budgets[0], [flops[rung] for rung in arm]).items():
                mixed[arm[k]] = mixed.get(arm[k], 0) + weights[row] * share
    return mixed


class Crossing(NamedTuple):
    """Where a difference changes its sign: from, at, to; None where that is outside of the ladder."""
    before: int     # sign of the difference where the ladder begins: 1, -1, or 0 where it may be either
    low: float
    middle: float   # of the mean, if it changes it once
    high: float
    after: int


def roots(xs, ys):
    """Where a piecewise linear line changes its sign."""
    return [x + (X - x) * y / (y - Y) for (x, y), (X, Y) in itertools.pairwise(zip(xs, ys))
            if (y > 0) != (Y > 0)]


def crossing(points):
    """The Crossing of [(x, mean, low, high)]: from the first to the last x whose interval holds 0."""
    xs, means, lows, highs = zip(*points)
    before, after = (int(lows[k] > 0) - int(highs[k] < 0) for k in (0, -1))
    edges, middle = sorted(roots(xs, lows) + roots(xs, highs)), roots(xs, means)
    return Crossing(before, edges[0] if before and edges else None, middle[0] if len(middle) == 1 else None,
                    edges[-1] if after and edges else None, after)


# --------------------------------------------------------------------------------------------------- evidence

def read_losses(path, seeds):
    """{row: {seed: its validations by step}} of a study's losses.csv; {} where there is none."""
    losses = {}
    for line in read_csv(path, ('row', 'seed', 'step')):
        if (seed := int(line['seed'])) in seeds:
            numbers = {name: float(text) for name, text in line.items()
                       if text and name not in ('folder', 'row', 'seed')}
            losses.setdefault(line['row'], {}).setdefault(seed, []).append(numbers)
    for lines in itertools.chain.from_iterable(own.values() for own in losses.values()):
        lines.sort(key=lambda line: line['step'])
    return losses


class Evidence:
    """What is known of a study: cells of its fine-tunings, losses of its pretrainings; each computed once."""

    def __init__(self, study, runs, cfg, problems):
        """problems: in words, what is left out."""
        self.study, self.cfg, self.problems = study, cfg, problems
        runs = [run for run in runs if run.origin is None or run.origin in study.seeds]
        self.runs = grouped(runs, 'model', 'dataset')
        self.seeds = {*study.seeds} & {run.origin for run in runs}
        if absent := sorted({*study.seeds} - self.seeds):
            problems.append(f'no runs yet of pretraining seeds {", ".join(map(str, absent))}')
        self.about = {run.dataset: run for run in runs}    # any run of a dataset: its kind, metric
        asked = dict.fromkeys(name for line in study.finetunings for name in line.datasets)
        self.datasets = [name for name in asked if name in self.about]
        known = {run.model for run in runs}
        others = sorted(known - {*study.rows}, key=lambda model: ('+' in model, model))     # variants last
        self.models = [row for row in study.rows if row in known] + others
        self.losses = read_losses(Path(study.folder, 'losses.csv'), study.seeds)
        if not self.losses:
            problems.append(f'{study.folder}: no losses.csv, and so no ladder; evaluate.py pack writes it')

    @functools.cache
    def cell(self, model, dataset, lr=None, split='both'):
        runs = [run for run in self.runs.get((model, dataset), ()) if lr in (None, run.lr)]
        if not runs:
            raise Missing(f'{model}{f"@{lr}" if lr else ""} on {dataset}')
        seeds = {run.origin for run in runs}
        if absent := sorted(self.seeds - seeds if seeds != {None} else ()):
            self.tell(f'{model} on {dataset} has no pretraining seeds {", ".join(map(str, absent))}')
        try:
            return make_cell(runs, dataclasses.replace(self.cfg, split=split))
        except ValueError as error:
            self.tell(f'{model} on {dataset} is left out: {error}')
            raise Missing(f'{model} on {dataset}') from None

    def tell(self, problem):
        self.problems += [problem] if problem not in self.problems else []

    def contrast(self, weights, datasets, split='both', without=()):
        """Of {(model, lr): weight}, the mean over datasets."""
        parts = [[(weight, self.cell(model, dataset, lr, split)) for (model, lr), weight in weights.items()]
                 for dataset in datasets]
        try:
            return contrast(parts, self.cfg, without)
        except ValueError as error:
            raise Missing(f'{", ".join(model for model, _ in weights)} on {datasets}: {error}') from None

    def at_equal_flops(self, weights):
        """{(model, lr): weight} of the same contrast. Missing where the study's ladder does not have it."""
        arms = [[(row, None) for row in rows] for rows in self.study.arms.values()]
        flops = self.budget('flops', itertools.chain(*self.study.arms.values()))
        return mix_at_budgets(weights, arms, {(row, None): own for row, own in flops.items()})

    def margin(self, weights, datasets):
        """A tenth of what MLM gains over no pretraining: of the contrast's rows that had MLM alone."""
        gains = []
        for model, lr in weights:
            row, step = self.study.check_model(model)
            own = self.study.rows.get(row)      # none of `untrained`
            if own and {*own.phases[:step]} == {'mlm'} and own.begins != 'weights_from':
                cells = [self.cell(model, dataset, lr) for dataset in datasets]
                gains.append(statistics.fmean(cell.mean - self.cell('untrained', dataset).mean
                                              for cell, dataset in zip(cells, datasets)))
        if not gains:
            raise Missing('a row of MLM alone, of whose gain the margin is a tenth')
        return MARGIN * max(0.0, statistics.fmean(gains))

    def objective(self, model):
        """What a model's last step was trained with."""
        row, step = self.study.check_model(model)
        return self.study.rows[row].phases[step - 1]

    def masked(self, arm):
        """Whether an arm ends with masks: the MLM loss of others says nothing."""
        return not OBJECTIVES[self.objective(self.study.arms[arm][-1])].causal

    def validations(self, model):
        """{seed: lines} of a row, or up to a checkpoint of it, if it has come that far.

        {} of what is not pretrained here.
        """
        try:
            row, step = self.study.check_model(model)
        except ValueError:      # a baseline
            return {}
        every = {seed: [line for line in lines if line['step'] <= step]
                 for seed, lines in self.losses.get(row, {}).items() if lines[-1]['step'] >= step}
        return {seed: lines for seed, lines in every.items() if lines}

    def last(self, model, name):
        """{seed: a value of a model's last validation}, where it was measured."""
        return {seed: lines[-1][name] for seed, lines in self.validations(model).items()
                if name in lines[-1]}

    def budget(self, name, rows):
        """{row: its tokens or FLOPs}."""
        values = {row: max(self.last(row, name).values(), default=None) for row in rows}
        if missing := [row for row, value in values.items() if value is None]:
            raise Missing(f'the log of {missing[0]}')
        return values

    def quantity(self, weights, name, instances=True):
        """(mean, low, high) of {row: weight} over seeds and a dataset's instances; MLM loss: over seeds."""
        if name != MLM_LOSS:
            found = self.contrast({(row, None): weight for row, weight in weights.items()}, [name])
            return found[:3] if instances else (found.mean, found.seeds_low, found.seeds_high)
        values = {row: self.last(row, 'val_mlm_loss') for row in weights}
        seeds = sorted(set.intersection(*map(set, values.values())))
        if not seeds:
            raise Missing(f'the MLM loss of {min(weights, key=lambda row: len(values[row]))}')
        return over_seeds([sum(weight * values[row][seed] for row, weight in weights.items())
                           for seed in seeds])

    def crossing(self, first, second, name):
        """Where the first arm's lead over the second ends: a Crossing in log2 tokens. Low losses lead."""
        rows, sign = [self.study.arms[arm] for arm in (first, second)], -1 if name == MLM_LOSS else 1
        tokens = self.budget('tokens', rows[0] + rows[1])
        places = [[tokens[row] for row in own] for own in rows]
        low, high = max(own[0] for own in places), min(own[-1] for own in places)
        if not low < high:
            raise Missing(f'a length that {first} and {second} have in common')
        points = []
        for value in np.geomspace(low, high, 1 + math.ceil(8 * math.log2(high / low))).tolist():
            ours, theirs = (shares_at(value, own) for own in places)
            weights = ({rows[0][k]: sign * share for k, share in ours.items()}
                       | {rows[1][k]: -sign * share for k, share in theirs.items()})
            points.append((math.log2(value), *self.quantity(weights, name)))
        return crossing(points)


# ----------------------------------------------------------------------------------------------------- judged

class Judged(NamedTuple):
    """A line of the study's contrasts, and what came out."""
    line: tuple         # of the study
    margin: float
    whole: Contrast
    p: float            # None where a trained arm has one seed
    views: dict         # {name: the Contrast on one split, or at equal FLOPs}
    without: list       # the Contrasts with each pretraining seed left out

    def verdict(self, other=None):
        seen = other or self.whole
        if seen.p is None or seen.unit != 'pretraining':    # another pretraining may turn the sign
            return 'cannot tell'
        return verdict(self.line.rule, seen.low, seen.high, self.margin)

    def decides(self):
        """In words: what would, where the verdict is that it cannot tell."""
        whole = self.whole
        if self.verdict() != 'cannot tell':
            return ''
        if whole.unit != 'pretraining' or not whole.units:
            return 'several pretraining seeds'
        distance = min(abs(whole.mean - bound) for bound in bounds(self.line.rule, self.margin))
        return what_decides(distance, len(whole.units), (whole.high - whole.low) / 2,
                            (whole.seeds_high - whole.seeds_low) / 2)


def judge(line, evidence):
    weights = {(model, lr): weight for weight, model, lr in line.weights}
    margin = 0.0 if line.rule == 'better' else evidence.margin(weights, line.datasets)
    whole = evidence.contrast(weights, line.datasets)
    p = None if whole.p is None else p_value(whole.draws, bounds(line.rule, margin))
    views = {split: evidence.contrast(weights, line.datasets, split) for split in ('test', 'validation')}
    with contextlib.suppress(Missing):
        views['flops'] = evidence.contrast(evidence.at_equal_flops(weights), line.datasets)
    seeds = whole.units if whole.unit == 'pretraining' and len(whole.units) > 2 else ()
    without = [evidence.contrast(weights, line.datasets, without=(seed,)) for seed in seeds]
    return Judged(line, margin, whole, p, views, without)

"""Runs -> the learning rate that validation chose -> scores, intervals, tests. Two protocols: the field's and
that of the paper's authors. Intervals add the noise of test instances (bootstrap) and of seeds (Student's t);
what both contain counts once."""
import functools
import math
import statistics
import zlib
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Callable, NamedTuple

import numpy as np

from nanoencoder.judging.metrics import KINDS, SCORED, STATISTICS, lr_text


@dataclass(frozen=True, slots=True)
class Run:
    """One fine-tuning and its scores by a protocol, as fractions of 1."""
    model: str                  # a study's row: its pretraining seeds are one model
    task: str
    dataset: str
    lr: float
    seed: int
    validation: float
    test: float
    metric: str = ''
    n: int = 0                  # instances that are scored
    instances: Callable = None  # split -> its {'ids', 'statistic', 'columns'}, read when it is needed
    method: str = ''            # fine-tuned, baseline, probe or zero-shot
    weights: str = ''
    data: str = ''              # sha256 of the rows it was tested on
    pretraining: dict = None
    settings: dict = None       # of fine-tuning
    grid: list = None           # [learning rates, seeds] that it is a run of
    origin: int = None          # seed of pretraining; None where no row is named
    folder: str = ''            # in predictions: of this row and pretraining seed
    # what was fine-tuned, and on what: two sha256, a tokenizer's fingerprint, sizes; older packs lack them
    checkpoint: str = ''
    training_data: str = ''
    tokenizer: str = ''
    sizes: dict = None


@dataclass(frozen=True)
class Cell:
    """A model on a dataset, or its average over datasets; fractions of 1."""
    mean: float
    low: float
    high: float
    draws: object           # (units, resamples) of the bootstrap over instances; None by the paper's protocol
    scores: dict            # {unit: score}, of several fine-tunings of a pretraining their mean
    runs: list = ()         # that validation chose; none of an average
    values: object = None   # (units, n) of `instance_values`
    data: tuple = ()        # by which two cells are known to be of the same instances
    unit: str = 'fine-tuning'   # whose seeds the units are: pretraining's, where there are several

    @property
    def seedless(self):     # the same with any seed of fine-tuning
        return self.unit == 'fine-tuning' and self.runs[0].method in ('baseline', 'probe', 'zero-shot')

    @property
    def seeds(self):
        """5; or 6 x 3, of each of six pretrainings three fine-tunings; of an average only how many count."""
        tuned = len({(run.origin, run.seed) for run in self.runs}) / max(1, len(self.scores))
        return f'{len(self.scores) or ""}' + f' x {tuned:.3g}' * (tuned > 0 and self.unit == 'pretraining')


class Estimate(NamedTuple):
    """A weighted sum of Cells, as fractions of 1; intervals are of 95 %."""
    mean: float
    low: float              # over test instances and units
    high: float
    seeds_low: float        # over units alone, on these very instances; nan with one unit
    seeds_high: float
    p: float                # two-sided; None where a trained arm has one unit
    draws: object           # (resamples,) of instances and units
    units: dict             # {seed: value}, where all arms that were pretrained share their units
    unit: str               # pretraining, or fine-tuning: it then speaks of one pretrained model
    n: int                  # test instances, of all datasets


def grouped(items, *names):
    """{attribute, or (attribute, ...): [items]} in the order of first appearance."""
    groups, key = {}, attrgetter(*names)
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def key_of(names):
    """CRC of the instances' ids; packed runs hold this number in their place."""
    return names if type(names) is int else zlib.crc32('\n'.join(names).encode())


def bootstrap(statistic, terms, resamples=10_000, seed=0):
    """(resamples, S) scores of a Statistic's (terms, S, N), of instances drawn once for all S."""
    _, S, N = terms.shape
    random = np.random.default_rng(seed)
    scores, size = np.empty((resamples, S)), max(1, 100_000 // N)   # counts stay in the cache: twice as fast
    for part in (scores[start:start + size] for start in range(0, resamples, size)):
        at = random.integers(0, N, (len(part), N), dtype=np.int32)
        at += np.arange(len(part), dtype=np.int32)[:, None] * N
        times = np.bincount(at.ravel(), minlength=at.size).reshape(at.shape).astype(float)
        sums = (times @ terms.reshape(-1, N).T).reshape(len(part), -1, S).swapaxes(0, 1)
        part[:] = STATISTICS[statistic].score(sums, N)
    return scores


def instance_values(statistic, terms):
    """(S, N) whose mean is a seed's score, and whose variance / N is that of the score: influence values.
    By central differences: what a hundredth of an instance more, and less, would change."""
    N, score = terms.shape[-1], STATISTICS[statistic].score
    total, more = terms.sum(-1, keepdims=True), 0.01 * terms
    return score(total, N) + N * (score(total + more, N + 0.01) - score(total - more, N - 0.01)) / 0.02


def seed_noise(values):
    """The instances' share of the variance of seeds: MS_R / N of the two-way analysis of (S, N) values."""
    S, N = values.shape
    if min(S, N) < 2:
        return 0.0
    rest = values - values.mean(0)
    rest -= rest.mean(1, keepdims=True)
    return float((rest ** 2).sum() / ((S - 1) * (N - 1) * N))


def with_seeds(draws, arms, cfg):
    """(resamples,): draws over instances, and what seeds of arms [(scores, `seed_noise`)] add: Student's t.
    Draws and scores both contain the instances' noise: (S - 1) / (S + 1) of it is taken off the scores'
    variance, or what that lacks, off the draws' (docs/protocols.md). One seed does not say anything."""
    arms = [(scores, noise, len(scores)) for scores, noise in arms if len(scores) > 1]
    shares = [(statistics.variance(scores) - noise * (S - 1) / (S + 1)) / S for scores, noise, S in arms]
    missing, mean = sum(min(0.0, share) for share in shares), draws.mean()
    if missing:
        draws = mean + (draws - mean) * math.sqrt(max(0.0, 1 + missing / max(draws.var(), 1e-300)))
    random = np.random.default_rng((cfg.seed, 1))
    for (*_, S), share in zip(arms, shares):
        if cfg.rules == 1:
            noise = random.standard_t(S - 1, len(draws))
        else:
            noise = random.permutation(t_quantiles(S - 1, len(draws)))
        draws = draws + math.sqrt(max(0.0, share)) * noise
    return draws


@functools.cache
def t_quantiles(freedom, count):
    """So many quantiles of Student's t, evenly spaced. 10,000 random draws miss its tails: of two degrees of
    freedom the 2.5th percentile comes out 3 % too near or too far, of one degree 6 %."""
    from scipy.special import stdtrit
    return stdtrit(freedom, (np.arange(count) + 0.5) / count)


def seeds_half(parts):
    """Half of the 95 % interval over units alone: Student's t; of several parts with Welch's freedom."""
    from scipy.special import stdtrit
    parts = [(statistics.variance(of) / len(of), len(of) - 1) for of in parts if len(of) > 1]
    if not (total := sum(variance for variance, _ in parts)):
        return 0.0 if parts else math.nan
    freedom = total ** 2 / sum(variance ** 2 / S for variance, S in parts)
    return float(stdtrit(freedom, 0.975)) * math.sqrt(total)


def p_value(draws, bounds=(0.0,)):
    """Two-sided, against the bound that is nearest to being crossed; at least what so many draws can show."""
    shares = [min((draws <= bound).mean(), (draws >= bound).mean()) for bound in bounds]
    return float(min(1.0, max(2 * max(shares), 2 / (len(draws) + 1))))


def estimate(parts, cfg, without=()):
    """The Estimate of weighted Cells, by the standard protocol.

    parts    [[(weight, Cell), ...], ...]: the arms on each dataset; their mean counts
    without  pretraining seeds to leave out
    Runs of one seed go up and down together: it fixes the order of the data and the first weights. So arms
    of the same units are paired, unit by unit; arms of other units add a share of theirs."""
    for (_, first), *others in parts:
        if any(cell.data != first.data for _, cell in others):
            raise ValueError(f'{first.runs[0].dataset}: tested on different data, or by different metrics')
    cells = with_shared_units([cell for arms in parts for _, cell in arms], without)
    weights = [(part, weight / len(parts)) for part, arms in enumerate(parts) for weight, _ in arms]
    groups = {}     # {(unit, its seeds): arms}
    for (part, weight), cell in zip(weights, cells):
        groups.setdefault((cell.unit, *cell.scores), []).append((part, weight, cell))
    shares = {key: paired(group) for key, group in groups.items()}
    scores = [of for of, _ in shares.values()]
    mean, half = sum(map(statistics.fmean, scores)), seeds_half(scores)
    draws = sum(weight * cell.draws.mean(0, dtype=float) for (_, weight), cell in zip(weights, cells))
    draws = with_seeds(draws, shares.values(), cfg)
    p = p_value(draws) if all(len(cell.scores) > 1 or cell.seedless for cell in cells) else None
    trained = [key for key, group in groups.items() if not all(
        cell.seedless or cell.runs[0].model.partition('+')[0] == 'untrained' for *_, cell in group)]
    unit = 'pretraining' if {key[0] for key in trained} == {'pretraining'} else 'fine-tuning'
    key, *more = trained or groups
    scores, _ = shares[key]     # to which the arms of other units add the same
    by_unit = {} if more else {seed: score + mean - statistics.fmean(scores)
                               for seed, score in zip(key[1:], scores)}
    n = sum(arms[0][1].values.shape[1] for arms in parts)
    low, high = np.percentile(draws, [2.5, 97.5]).tolist()
    return Estimate(mean, low, high, mean - half, mean + half, p, draws, by_unit, unit, n)


def paired(arms):
    """(scores, `seed_noise`) of the weighted sum of arms (part, weight, Cell) of the same units."""
    scores = sum(weight * np.array([*cell.scores.values()]) for _, weight, cell in arms)
    values = {}
    for part, weight, cell in arms:
        values[part] = values.get(part, 0) + weight * cell.values.astype(float)
    return scores.tolist(), sum(map(seed_noise, values.values()))


def with_shared_units(cells, without):
    """The Cells, of the units that count: of cells of the same unit the common ones, if several."""
    own = [{u for u in cell.scores if cell.unit == 'fine-tuning' or u not in without} for cell in cells]
    shared = []
    for cell, units in zip(cells, own):
        others = (of for other, of in zip(cells, own) if other.unit == cell.unit and len(of) > 1)
        common = units.intersection(*others)
        at = [unit in (common if len(common) > 1 else units) for unit in cell.scores]
        scores = {unit: score for (unit, score), counts in zip(cell.scores.items(), at) if counts}
        shared.append(replace(cell, draws=cell.draws[at], values=cell.values[at], scores=scores))
    return shared


def paper_cell(scores, **more):
    """The Cell of {seed: score} as the paper has it: 1.96 s / sqrt(seeds); nan for one seed."""
    mean, n = statistics.fmean(scores.values()), len(scores)
    half = 1.96 * statistics.stdev(scores.values()) / math.sqrt(n) if n > 1 else math.nan
    return Cell(mean, mean - half, mean + half, None, scores, **more)


def unit_of(runs):
    """(the attribute of a run that is its unit, whose seed that is)."""
    return ('origin', 'pretraining') if len({run.origin for run in runs}) > 1 else ('seed', 'fine-tuning')


def check_one_experiment(runs):
    """ValueError where a model's runs on a dataset differ in more than their learning rates and seeds."""
    for (lr, seed, _), group in grouped(runs, 'lr', 'seed', 'origin').items():
        if len(group) > 1:
            raise ValueError(f'two runs are lr{lr_text(lr)}_sd{seed}')
    fixed = [{f'{name} of pretraining': value for name, value in run.pretraining['fixed'].items()}
             for run in runs if 'fixed' in (run.pretraining or {})]
    facts = [(run.pretraining or {}) | (run.settings or {})
             | {'data': run.data, 'method': run.method, 'metric': run.metric} for run in runs]
    differing = {name for first, *more in [facts] for other in more for name in other.keys() | first
                 if (other.get(name) or None) != (first.get(name) or None)}
    differing |= {name for other in fixed for name in other.keys() & fixed[0]   # older ones say fewer
                  if other[name] != fixed[0][name]}
    for name in ('training_data', 'tokenizer', 'sizes'):
        values = [getattr(run, name) for run in runs if getattr(run, name)]
        if any(value != values[0] for value in values):
            differing.add(name)
    for group in grouped(runs, 'origin').values():  # another pretraining seed makes other weights
        if len({run.checkpoint for run in group} - {''}) > 1:
            differing.add('checkpoint')
    if differing := differing - {'lr', 'seed', 'fixed', 'tokens', 'seed of pretraining'}:
        raise ValueError(f'its runs differ in {", ".join(sorted(differing))}; give them other names')


def make_cell(runs, cfg):
    """The Cell of one model's runs on one dataset. ValueError where they are not of one experiment."""
    check_one_experiment(runs)
    if cfg.protocol == 'paper':
        groups = grouped(sorted(runs, key=attrgetter('seed', 'lr')), 'seed', 'origin')
        best = [max(group, key=attrgetter('validation')) for group in groups.values()]    # or the smaller
        name, unit = unit_of(best)
        scores = {seed: statistics.fmean(run.test for run in of) for seed, of in grouped(best, name).items()}
        return paper_cell(scores, runs=best, unit=unit)
    by_lr = grouped(sorted(runs, key=attrgetter('lr')), 'lr').values()  # of equal rates the smaller
    most = [group for group in by_lr if len(group) == max(map(len, by_lr))]
    chosen = {split: max(most, key=lambda group: statistics.fmean(getattr(run, other) for run in group))
              for split, other in zip(SCORED, SCORED[::-1]) if cfg.split in (split, 'both')}
    tables = [{(run.origin, run.seed): (run, run.instances(split)) for run in of_split}
              for split, of_split in chosen.items()]
    if not (seeds := sorted(set.intersection(*map(set, tables)))):
        raise ValueError('the runs that validation and test choose have no seed in common')
    scored = [[table[seed][1] for table in tables] for seed in seeds]
    statistic, first = scored[0][0]['statistic'], [tables[0][seed][0] for seed in seeds]
    columns = [np.hstack([split['columns'] for split in of_seed]) for of_seed in scored]    # splits joined
    if not columns[0].size:
        raise ValueError(f'{cfg.split} has no instances')
    terms = STATISTICS[statistic].terms(np.stack(columns, 1))
    draws = bootstrap(statistic, terms, cfg.resamples, (cfg.seed, key_of([f'{runs[0].dataset} {cfg.split}'])))
    data = first[0].data, first[0].metric, *(key_of(split['ids']) for split in scored[0])
    cell = standard_cell(first, draws, instance_values(statistic, terms), data, cfg)
    least = 0.0 if statistic in ('mean', 'ratio') else -1.0     # of correlations
    return replace(cell, low=max(least, cell.low), high=min(1.0, cell.high), runs=sum(chosen.values(), []))


def standard_cell(runs, draws, values, data, cfg):
    """The Cell of S runs: a pretraining's are averaged. draws (resamples, S); values (S, N), of instances."""
    name, unit = unit_of(runs)
    seeds = [getattr(run, name) for run in runs]
    at = {seed: [k for k, own in enumerate(seeds) if own == seed] for seed in seeds}    # places of its runs
    draws, values = (np.array([rows[places].mean(0) for places in at.values()]) for rows in (draws.T, values))
    cell = Cell(0, 0, 0, draws.astype(np.float32), dict(zip(at, values.mean(1).tolist())), runs,
                values.astype(np.float32), data, unit)
    result = estimate([[(1, cell)]], cfg)
    return replace(cell, mean=result.mean, low=result.low, high=result.high)


def average(cells, cfg):
    """The Cell of several datasets' mean, of the seeds that all of them have; None if they have none."""
    if cells[0].draws is not None:
        result = estimate([[(1, cell)] for cell in cells], cfg)
        low = max(result.low, min(0.0, *(cell.low for cell in cells)))  # of correlations it may be below 0
        return Cell(result.mean, low, min(1.0, result.high), result.draws, result.units, unit=result.unit)
    shared = set.intersection(*(set(cell.scores) for cell in cells))
    scores = {seed: statistics.fmean(cell.scores[seed] for cell in cells) for seed in sorted(shared)}
    return paper_cell(scores) if scores else None


def make_cells(runs, cfg, problems):
    """{(model, task, dataset): Cell}; a task's 'Average' is that of the models with all its datasets."""
    cells, averages = {}, {}
    runs = sorted(runs, key=lambda run: (cfg.models and cfg.models.index(run.model), run.method == 'baseline',
                                         run.model != 'untrained', list(KINDS).index(run.task)))
    for key, group in grouped(runs, 'model', 'task', 'dataset').items():
        try:
            cells[key] = make_cell(group, cfg)
        except ValueError as error:
            problems.append(f'{"/".join(key)} is left out: {error}')
    for model, task in dict.fromkeys(key[:2] for key in cells):
        of_model = [cell for key, cell in cells.items() if key[:2] == (model, task)]
        if 1 < len(of_model) == len({key[2] for key in cells if key[1] == task}):
            averages[model, task, 'Average'] = average(of_model, cfg)
    return cells | {key: mean for key, mean in averages.items() if mean}

"""Intervals and tests: test instances by bootstrap, seeds by Student's t, what both share counted once."""
import math
import statistics
import zlib
from typing import NamedTuple

import numpy as np


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


def with_seeds(draws, arms, cfg):
    """(resamples,): draws over instances, and what the seeds add to their scatter, as Student's t.

    arms  [(scores of S seeds, their `seed_noise`)] of one model, of a difference, or of models apart

    Draws and scores both contain the instances' noise: (S - 1) / (S + 1) of it is taken off the scores'
    variance. docs/protocols.md says why not all. Where the scores vary less than that, the variance of the
    draws is reduced by what is missing. One seed does not say anything.
    """
    arms = [(scores, noise, len(scores)) for scores, noise in arms if len(scores) > 1]
    shares = [(statistics.variance(scores) - noise * (S - 1) / (S + 1)) / S for scores, noise, S in arms]
    missing, mean = sum(min(0.0, share) for share in shares), draws.mean()
    if missing:
        draws = mean + (draws - mean) * math.sqrt(max(0.0, 1 + missing / max(draws.var(), 1e-300)))
    random = np.random.default_rng((cfg.seed, 1))
    for (*_, S), share in zip(arms, shares):
        draws = draws + math.sqrt(max(0.0, share)) * random.standard_t(S - 1, len(draws))
    return draws


class Contrast(NamedTuple):
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


class Arm(NamedTuple):
    """A Cell in a contrast."""
    part: int       # which of the datasets it is on
    weight: float
    cell: object
    units: tuple    # those that count, of the cell's

    @property
    def at(self):
        return [list(self.cell.scores).index(unit) for unit in self.units]


def contrast(parts, cfg, without=()):
    """The Contrast of weighted Cells, by the standard protocol.

    parts    [[(weight, Cell), ...], ...]: the arms on each dataset; their mean counts. Instances are drawn
             for each dataset apart, units are the same in all
    without  pretraining seeds to leave out

    Runs of one seed go up and down together: it fixes the order of the data and the first weights. So arms
    of the same units are paired, unit by unit; arms of others add a share of their own.
    """
    if any(cell.data != own[0][1].data for own in parts for _, cell in own):
        raise ValueError('the models were tested on different data')
    units = iter(shared_units([cell for own in parts for _, cell in own], without))
    arms = [Arm(part, weight / len(parts), cell, next(units))
            for part, own in enumerate(parts) for weight, cell in own]
    groups = {}
    for arm in arms:
        groups.setdefault((arm.cell.unit, arm.units), []).append(arm)
    shares = {key: paired(own) for key, own in groups.items()}
    mean, half = sum(statistics.fmean(scores) for scores, _ in shares.values()), seeds_half(shares.values())
    draws = sum(arm.weight * arm.cell.draws[arm.at].mean(0, dtype=float) for arm in arms)
    draws = with_seeds(draws, shares.values(), cfg)
    p = p_value(draws) if all(len(arm.units) > 1 or arm.cell.seedless for arm in arms) else None
    trained = [key for key, own in groups.items() if not all(arm.cell.floor for arm in own)]
    unit = 'pretraining' if {kind for kind, _ in trained} == {'pretraining'} else 'fine-tuning'
    key, *others = trained or groups
    scores, _ = shares[key]     # to which the arms of other units add the same
    units = {} if others else {seed: score + mean - statistics.fmean(scores)
                               for seed, score in zip(key[1], scores)}
    n = sum(own[0][1].values.shape[1] for own in parts)
    return Contrast(mean, *interval(draws), mean - half, mean + half, p, draws, units, unit, n)


def paired(arms):
    """(scores, `seed_noise`) of the weighted sum of arms that have the same units."""
    scores = sum(arm.weight * np.array([arm.cell.scores[unit] for unit in arm.units]) for arm in arms)
    values = {}
    for arm in arms:
        values[arm.part] = values.get(arm.part, 0) + arm.weight * arm.cell.values[arm.at].astype(float)
    return scores.tolist(), sum(map(seed_noise, values.values()))


def shared_units(cells, without=()):
    """The units of each cell that count: of cells of the same kind of unit the common ones, if several."""
    kept = [tuple(unit for unit in cell.scores if cell.unit == 'fine-tuning' or unit not in without)
            for cell in cells]
    for kind in {cell.unit for cell in cells}:
        several = [k for k, cell in enumerate(cells) if cell.unit == kind and len(kept[k]) > 1]
        common = set.intersection(*(set(kept[k]) for k in several)) if several else ()
        for k in several if len(common) > 1 else ():
            kept[k] = tuple(unit for unit in kept[k] if unit in common)
    return kept


def seeds_half(shares):
    """Half of the 95 % interval over units alone: Student's t; of several shares with Welch's freedom."""
    from scipy.special import stdtrit
    parts = [(statistics.variance(scores) / len(scores), len(scores) - 1)
             for scores, _ in shares if len(scores) > 1]
    total = sum(variance for variance, _ in parts)
    if total == 0:
        return 0.0 if parts else math.nan
    freedom = total ** 2 / sum(variance ** 2 / own for variance, own in parts)
    return float(stdtrit(freedom, 0.975)) * math.sqrt(total)


def p_value(draws, bounds=(0.0,)):
    """Two-sided, against the bound that is nearest to being crossed; at least what so many draws can show."""
    shares = [min((draws <= bound).mean(), (draws >= bound).mean()) for bound in bounds]
    return float(min(1.0, max(2 * max(shares), 2 / (len(draws) + 1))))


def interval(draws):
    """95 %, by percentiles."""
    return tuple(np.percentile(draws, [2.5, 97.5]).tolist())


def key_of(text):
    return zlib.crc32(text.encode())

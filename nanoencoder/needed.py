"""How many seeds, or test items, would show a difference: `evaluate.py compare A B --needed=2.0`.

The variance of a difference has three parts: of test items, of seeds, and of both together. More items divide
the first and the third, more seeds the second and the third. A number is enough if a true difference of so
many points would be shown, which means that its 95 % interval leaves out 0, in POWER of all comparisons."""
import bisect
import math
import statistics
from typing import NamedTuple

import numpy as np

POWER = 0.8
MOST_SEEDS = 1_000
MOST_ITEMS = 10 ** 8
POINTS = 400    # in which a distribution is cut


class Group(NamedTuple):
    """The seeds that systems share."""
    seeds: int
    between: float  # variance between seeds, on endless items
    both: float     # what the finite number of items adds to it


class Parts(NamedTuple):
    """The parts of a difference's variance, on the items that there are."""
    items: float
    groups: list


def parts_of(noise):
    """Return the Parts of an Estimate's `noise`."""
    over_items, groups = noise
    of_seeds = []
    for scores, both in groups:
        if len(scores) > 1:
            between = max(0.0, statistics.variance(scores) - both)
            of_seeds.append(Group(len(scores), between, both))
            over_items -= both / len(scores)
    return Parts(max(0.0, over_items), of_seeds)


def share_shown(parts, difference, more_items=1.0, more_seeds=1.0, p=0.05):
    """Return the share of comparisons whose interval leaves out 0, of so many times the items and seeds. The
    interval is of 95 % for a p of 0.05.

    An interval is made as evaluate.with_seeds makes it, but of evenly spaced quantiles in place of random
    numbers: POINTS draws of each of POINTS intervals, which differ in the variance that is seen between
    seeds. Over the means that there may be, each share is that of a normal distribution."""
    from scipy.special import chdtri, ndtr, ndtri, stdtrit
    shares = (np.arange(POINTS) + 0.5) / POINTS
    variance = parts.items / more_items     # of the mean
    over_items = np.full(POINTS, variance)  # what the bootstrap finds
    added = []      # (quantiles of t, (POINTS,) variances that the seeds add) of each group
    for number, (seeds, between, both) in enumerate(parts.groups):
        # a lattice: in random order, so few points of items and of seeds would be correlated
        order = np.argsort(np.arange(POINTS) * math.sqrt(2 + 4 * number) % 1)
        S = max(2, round(seeds * more_seeds))
        both = both / more_items
        variance += (between + both) / S
        between_scores = (between + both) * chdtri(S - 1, shares)[order] / (S - 1)
        of_seeds = (between_scores - both * (S - 1) / (S + 1)) / S
        over_items = over_items + both / S + np.minimum(0, of_seeds)
        added.append((stdtrit(S - 1, shares)[order], np.maximum(0, of_seeds)))

    draws = np.sqrt(np.maximum(0, over_items))[:, None] * ndtri(shares)
    for t, of_seeds in added:
        draws += np.sqrt(of_seeds)[:, None] * t
    half = np.quantile(draws, 1 - p / 2, axis=1)
    error = math.sqrt(max(variance, 1e-300))
    return np.mean(ndtr((difference - half) / error) + ndtr((-difference - half) / error))


def first_enough(counts, share):
    """Return the first of these counts whose share is POWER, or None."""
    place = bisect.bisect_left(counts, POWER, key=share)
    return counts[place] if place < len(counts) else None


def needed_seeds(parts, difference, p=0.05):
    """Return how many seeds of each system would show a difference on these items; None if too many.

    p  below which a difference counts as shown: less than 0.05 if it is one of several"""
    S = max(group.seeds for group in parts.groups)
    counts = range(2, MOST_SEEDS + 1)
    return first_enough(counts, lambda count: share_shown(parts, difference, 1.0, count / S, p))


def needed_items(parts, difference, n):
    """Return how many items would show a difference with these seeds; None if too many."""
    counts = range(2, MOST_ITEMS + 1)
    return first_enough(counts, lambda count: share_shown(parts, difference, more_items=count / n))


def words_of_needed(noise, n, points):
    """Say what a difference of so many points would take.

    n  how many items there are"""
    parts = parts_of(noise)
    answers = [f'{count_in_words(needed_items(parts, points / 100, n))} items']
    if parts.groups:
        answers[0] += f' with {max(group.seeds for group in parts.groups)} seeds'
        _, groups = noise
        whose = 'each' if len(parts.groups) == len(groups) else 'the one that has several'
        count = needed_seeds(parts, points / 100)
        answers.append(f'{count_in_words(count)} seeds of {whose} on these {n:,} items')
    return f'a difference of {points:g} points is shown four times of five by {", or by ".join(answers)}'


def count_in_words(count):
    return f'{count:,}' if count else 'no number of'

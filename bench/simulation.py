"""How often the intervals of the standard protocol hold what they say: a simulation.

    python bench/simulation.py                              # 36 cells of 2,000 simulations: 10 minutes
    python bench/simulation.py --instances='(43,)'          # as many as MS MARCO's test set has
    python bench/simulation.py --correlations --instances='(300,)' --simulations=1000
    python bench/simulation.py --each=3 --seeds='(3, 6, 8)' --instances='(900,)'        # pretraining seeds
    python bench/simulation.py --cluster=5 --spreads='(0.15, 0.5)' --instances='(600,)' --simulations=1000
    python bench/simulation.py --pages=7 --seeds='(3, 4, 5, 6)' --instances='(500,)'    # verdicts of a study

A simulation draws three models' scores on the same instances and seeds; two have equal means, the third is
better. In log odds, a quality is the sum of what its instance, its seed and both together bring. The truth is
the mean over all instances and seeds there might be, by numerical integration. Printed, in percent: how often
the first model's interval, and that of its difference to the third, hold the truth, and how often the first
two are called different at 5 %. Beside the program's method: `sum` adds the variance of the seeds' scores
whole; `closed form` is a two-way analysis of variance without any bootstrap. With --each, the seeds are of
pretraining, and each is fine-tuned so many times, which the program averages. With --cluster, instances come
in clusters of so many, which share half of the variance between instances. With --pages, studies are drawn
of so many contrasts of equal models: printed is how many have a verdict at all, by Holm's p.
"""
import itertools
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats
from scipy.special import expit as sigmoid

sys.path.insert(0, str(Path(__file__).parent.parent))     # where evaluate.py is

import evaluate
from nanoencoder.metrics import STATISTICS
from nanoencoder.settings import check, parse, run_main, setting

MEANS = {'accuracy': 1.3, 'F1': 1.3, 'NDCG@10': 0.0}    # log odds: an accuracy of 0.69
BETTER = (0.0, 0.0, 0.3)    # what each of the three models has more
# Spreads, in log odds
INSTANCE = 1.5
OWN = 1.0           # of a model on the instances
BOTH = 0.5          # of seed and instance together
FINE = 0.1          # of the fine-tunings of one pretraining
FINE_BOTH = 0.5     # of these and the instances together
GAINS = np.append(1 / np.log2(np.arange(2, 12)), 0).astype(np.float32)      # of ranks 1 to 10, and beyond
BATCH = 50          # simulations that are drawn together


@dataclass(frozen=True)
class Settings:
    metrics: tuple = tuple(MEANS)
    seeds: tuple = (3, 5)
    spreads: tuple = (0.02, 0.15, 0.5)  # of seeds, in log odds; half of the variance is all models'
    each: int = setting(1, 1)           # fine-tunings; with more than one, the seeds are of pretraining
    instances: tuple = (300, 3_000)
    cluster: int = setting(1, 1)        # instances of each cluster
    whole: bool = True      # clusters are drawn whole, else instances, as if these were independent
    simulations: int = setting(2_000, low=BATCH)
    resamples: int = setting(500, low=100)

    def __post_init__(self):
        check(self)


# ---------------------------------------------------------------------------
# What is drawn, and its truth


def draw_qualities(random, metric, seeds, spread, n, cfg, better):
    """Return log odds of each run on each instance: (BATCH, models, seeds x each, n)."""
    def normal(*shape):
        return random.standard_normal((BATCH, *shape), np.float32)

    def of_instances(*shape):
        own = normal(*shape, n)
        if cfg.cluster == 1:
            return own
        of_clusters = normal(*shape, n // cfg.cluster)
        return np.sqrt(np.float32(0.5)) * (own + np.repeat(of_clusters, cfg.cluster, axis=-1))

    models = len(better)
    each = cfg.each
    quality = INSTANCE * of_instances(1, 1)
    quality = quality + OWN * of_instances(models, 1)
    quality = quality + BOTH * of_instances(models, seeds)
    # half of the seeds' variance is all models', half is each one's
    of_seeds = normal(1, seeds, 1) + normal(models, seeds, 1)
    quality += spread * np.sqrt(0.5) * of_seeds
    if each > 1:
        runs = seeds * each
        quality = np.repeat(quality, each, axis=2)
        quality += FINE_BOTH * of_instances(models, runs)
        of_runs = normal(1, runs, 1) + normal(models, runs, 1)
        quality += FINE * np.sqrt(0.5) * of_runs
    means = MEANS[metric] + np.array(better, np.float32)
    return quality + means[:, None, None]


def draw_answers(random, metric, quality):
    """Return (statistic, its terms (terms, BATCH, models, runs, n)) of answers of these qualities."""
    def uniform():
        return random.random(quality.shape, np.float32)
    right = sigmoid(quality)
    if metric == 'accuracy':
        return 'mean', (uniform() < right).astype(np.float32)[None]

    if metric == 'NDCG@10':     # of one relevant document, whose odds to be among the first k grow with k
        odds = np.exp(np.clip(-quality, -30, 30))
        u = uniform()
        rank = np.ceil(u / np.maximum(1 - u, 1e-6) * odds)
        rank = np.clip(rank, 1, 11).astype(int)
        return 'mean', GAINS[rank - 1][None]

    # F1: an instance has 0, 1 or 2 entities; correct ones and wrong ones are predicted
    gold = random.choice(3, (BATCH, 1, 1, quality.shape[-1]), p=(0.3, 0.4, 0.3)).astype(np.float32)
    first = (gold > 0) & (uniform() < right)
    second = (gold > 1) & (uniform() < right)
    correct = first.astype(np.float32) + second
    wrong = uniform() < 0.3 * (1 - right)
    return 'ratio', np.array(np.broadcast_arrays(2 * correct, gold + correct + wrong))


def truth(metric, spread, better, each=1):
    """Return the mean over all seeds and instances, by Gauss-Hermite quadrature over both."""
    within = INSTANCE ** 2 + OWN ** 2 + BOTH ** 2   # variances: of instances, for a seed
    between = spread ** 2
    if each > 1:
        within += FINE_BOTH ** 2
        between += FINE ** 2
    x, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    # a row a seed, a column an instance
    quality = MEANS[metric] + better + np.sqrt(between) * x[:, None] + np.sqrt(within) * x

    scores = sigmoid(quality) @ weights     # (seeds,)
    if metric == 'F1':
        scores = 2 * scores / (1 + scores + 0.3 * (1 - scores))
    if metric == 'NDCG@10':
        among = [sigmoid(quality + np.log(k)) @ weights for k in range(1, 11)]      # the first k
        scores = GAINS[:10] @ np.diff(among, axis=0, prepend=0)
    return float(scores @ weights)


# ---------------------------------------------------------------------------
# The methods


def mean_squares(values):
    """Return those of (S, N) values by a two-way analysis of variance: of seeds, of instances, and of what
    neither explains."""
    S, N = values.shape
    of_seeds = values.mean(1)
    of_instances = values.mean(0)
    rest = values - of_instances - of_seeds[:, None] + values.mean()
    return np.array([
        N * of_seeds.var(ddof=1),
        S * of_instances.var(ddof=1),
        (rest ** 2).sum() / ((S - 1) * (N - 1))])


def closed_form(values):
    """Return (mean, half of the 95 % interval) of (S, N) values."""
    S, N = values.shape
    squares = mean_squares(values)
    freedom = np.array([S - 1, N - 1, (S - 1) * (N - 1)])
    total = max(squares[0] + squares[1] - squares[2], squares[0], squares[1])
    nu = total ** 2 / (squares ** 2 / freedom).sum()     # Satterthwaite's
    return values.mean(), stats.t.ppf(0.975, nu) * np.sqrt(total / (S * N))


def make_run(dataset, seed, origin=None, load=None):
    """Return a Run of a model without a name, of which only these matter."""
    return evaluate.Run(
        '', 'SC', dataset,
        1e-4, seed,
        0.0, 0.0, '', 0,    # its scores, their metric and number
        load,
        {},
        origin, '')


def resample(random, statistic, terms, resamples, size=1):
    """Return (resamples, BATCH, models, runs) scores, of instances, or clusters of this size, drawn once for
    all."""
    count, *shape, n = terms.shape
    times = random.multinomial(n, np.full(n, 1 / n), resamples)     # that each instance is drawn
    terms = terms.reshape(-1, n)
    sums = times.astype(np.float32) @ terms.T       # (resamples, terms x BATCH x models x runs)
    sums = sums.reshape(resamples, count, -1)
    sums = sums.swapaxes(0, 1)
    scores = STATISTICS[statistic].score(sums, n * size)
    return scores.reshape(resamples, *shape)


def simulated(metric, seeds, spread, n, cfg, better, suffix):
    """Yield of each simulation its models' Cells, as evaluate.py makes them, and the bootstrap's settings."""
    name = f'{metric} {seeds} {spread} {n}{suffix}'     # its draws are its own
    random = np.random.default_rng((0, evaluate.key_of([name])))
    runs = []
    for k in range(seeds * cfg.each):
        origin = k // cfg.each if cfg.each > 1 else None
        runs.append(make_run('', k, origin))
    pairs = [(run.origin, run.seed) for run in runs]
    for batch in range(cfg.simulations // BATCH):
        quality = draw_qualities(random, metric, seeds, spread, n, cfg, better)
        statistic, terms = draw_answers(random, metric, quality)
        if cfg.whole:
            terms = terms.reshape(*terms.shape[:-1], -1, cfg.cluster).sum(-1)
        size = n // terms.shape[-1]
        sizes = np.full(terms.shape[-1], size)
        draws = resample(random, statistic, terms, cfg.resamples, size)
        for k in range(BATCH):
            bootstrap = evaluate.Settings(resamples=cfg.resamples, seed=batch * BATCH + k)
            cells = []
            for model in range(len(better)):
                values = evaluate.instance_values(statistic, terms[:, k, model].astype(float), sizes)
                own = draws[:, k, model]
                cells.append(evaluate.standard_cell(
                    runs, seeds=pairs, draws=own, values=values, data=(), cfg=bootstrap))
            yield cells, bootstrap


def intervals(arms, cfg):
    """Return ({method: (low, high)}, p) of the weighted sum of Cells, [(weight, Cell)]."""
    result = evaluate.estimate([arms], cfg)
    draws = 0       # (resamples,)
    values = 0      # (S, N)
    for weight, cell in arms:
        draws += weight * cell.draws.mean(0, dtype=float)
        values += weight * cell.values.astype(float)
    whole = evaluate.with_seeds(draws, [(values.mean(1).tolist(), 0.0)], cfg)
    mean, half = closed_form(values)
    by_method = {
        'now': (result.low, result.high),
        'sum': np.percentile(whole, [2.5, 97.5]),
        'closed form': (mean - half, mean + half)}
    return by_method, result.p


# ---------------------------------------------------------------------------
# What is counted


def simulate(metric, seeds, spread, n, cfg):
    """{method: (one model's coverage, a difference's, true nulls rejected)}, in percent."""
    suffix = f' {cfg.each}' if cfg.each > 1 else ''
    mean, _, best = [truth(metric, spread, better, cfg.each) for better in BETTER]
    counts = {}
    for cells, bootstrap in simulated(metric, seeds, spread, n, cfg, BETTER, suffix):
        first, equal, third = cells
        one, _ = intervals([(1, first)], bootstrap)
        difference, _ = intervals([(1, third), (-1, first)], bootstrap)
        null, p = intervals([(1, equal), (-1, first)], bootstrap)
        for method in one:
            rejected = not is_within(0, null[method])
            if method == 'now':
                rejected = p < 0.05
            counts.setdefault(method, []).append([
                is_within(mean, one[method]),
                is_within(best - mean, difference[method]),
                rejected])
    return {method: 100 * np.mean(seen, 0) for method, seen in counts.items()}


def is_within(x, interval):
    low, high = interval
    return low <= x <= high


def within(result):
    """The goal: 93 to 97 % and 3 to 7 %."""
    one, difference, rejected = result
    return 93 <= one <= 97 and 93 <= difference <= 97 and 3 <= rejected <= 7


def print_pages(metric, seeds, spread, n, cfg, contrasts):
    """Print how many studies of so many contrasts have a verdict, where no two models differ."""
    judged = []
    single = []
    for cells, bootstrap in simulated(metric, seeds, spread, n, cfg, np.zeros(2 * contrasts), ' pages'):
        pairs = zip(cells[::2], cells[1::2])
        p = [evaluate.estimate([[(1, first), (-1, second)]], bootstrap).p for first, second in pairs]
        judged.append(len(p) * min(p) < 0.05)   # the least of Holm's p
        single.append(np.less(p, 0.05))
    print(f'{metric:<9} {seeds} seeds, spread {spread}, {n:,} instances: {100 * np.mean(judged):.1f} % of '
          f'pages judge, {100 * np.mean(single):.1f} % of contrasts alone', flush=True)


def print_coverage(metric, seeds, spread, n, cfg):
    """Print a line of the table, with * where the program's method misses the goal."""
    results = simulate(metric, seeds, spread, n, cfg)
    texts = ['{:4.1f} / {:4.1f} / {:4.1f}'.format(*result) for result in results.values()]
    if not within(results['now']):
        texts.append('*')
    print(f'{metric:<9} {seeds:>5} {spread:>6} {n:>9}  ', *texts, flush=True)


def true_correlation(statistic, rho):
    """Return what of two normal columns with Pearson's rho is true; for Matthews they are cut at 0."""
    if statistic == 'Pearson':
        return rho
    if statistic == 'Spearman':
        return 6 / np.pi * np.arcsin(rho / 2)
    return 2 / np.pi * np.arcsin(rho)


def correlations(cfg):
    """Print the coverage of intervals over instances of one model."""
    cases = itertools.product(('Pearson', 'Spearman', 'Matthews'), (0.0, 0.5, 0.9), cfg.instances)
    for statistic, rho, n in cases:
        random = np.random.default_rng((0, n))
        true = true_correlation(statistic, rho)
        held = 0
        for k in range(cfg.simulations):
            columns = random.multivariate_normal([0, 0], [[1, rho], [rho, 1]], n).T
            if statistic == 'Matthews':
                columns = columns > 0
            content = {'ids': k, 'statistic': statistic, 'columns': columns}
            scores = {'test': {'standard': content}}
            run = make_run(f'd{k}', 0, load=lambda: scores)
            cell = evaluate.make_cell([run], evaluate.Settings(resamples=cfg.resamples, seed=k))
            held += cell.low <= true <= cell.high
        share = 100 * held / cfg.simulations
        print(f'{statistic:<9} true {true:.2f}, n = {n}: {share:.1f} % held', flush=True)


def main():
    cfg, actions = parse(Settings, sys.argv[1:], {
        'correlations': (False, 'of one model alone'),
        'pages': (0, 'of studies with so many contrasts, none of which differs', 1, 100)})
    if actions.correlations:
        correlations(cfg)
        return
    cases = itertools.product(cfg.instances, cfg.metrics, cfg.seeds, cfg.spreads)
    if actions.pages:
        for n, *case in cases:
            print_pages(*case, n, cfg, actions.pages)
        return
    print('coverage of one model / of a difference / true nulls rejected, in percent\n')
    print(f'{"metric":<9} seeds spread instances   {"now":^18} {"sum":^18} {"closed form":^18}')
    for n, *case in cases:
        print_coverage(*case, n, cfg)
    print('\n* marks cells beyond 93 to 97 % and 3 to 7 %')


if __name__ == '__main__':
    run_main(main)

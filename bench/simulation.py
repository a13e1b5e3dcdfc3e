"""How often the intervals of the standard protocol hold what they say: a simulation.

    python tests/simulation.py                                    # 36 cells of 2,000 simulations: 10 minutes
    python tests/simulation.py --instances='(43,)' # as many as MS MARCO's test set has
    python tests/simulation.py --correlations --instances='(300,)' --simulations=1000
    python tests/simulation.py --each=3 --seeds='(3, 6, 8)' --instances='(900,)'   # pretraining seeds
    python tests/simulation.py --pages=7 --seeds='(3, 4, 5, 6)' --instances='(500,)'    # verdicts of a study

A simulation draws three models' scores on the same instances and seeds; two have equal means, the third is
better. In log odds, a quality is the sum of what its instance, its seed and both together bring. The truth is
the mean over all instances and seeds there might be, by numerical integration. Printed, in percent: how often
the first model's interval, and that of its difference to the third, hold the truth, and how often the first
two are called different at 5 %. Beside the program's method: `sum` adds the variance of the seeds' scores
whole; `closed form` is a two-way analysis of variance without any bootstrap. With --each, the seeds are of
pretraining, and each is fine-tuned so many times, which the program averages. With --pages, studies are drawn
of so many contrasts of equal models: printed is how many have a verdict at all, by Holm's p.
"""
import itertools
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from scipy import stats
from scipy.special import expit as sigmoid

sys.path.insert(0, str(Path(__file__).parent.parent))

import evaluate  # noqa: E402
from nanoencoder.judging import statistics  # noqa: E402
from nanoencoder.judging.report import holm  # noqa: E402
from nanoencoder.settings import check, parse, run_main, setting  # noqa: E402

MEANS = {'accuracy': 1.3, 'F1': 1.3, 'NDCG@10': 0.0}    # log odds: an accuracy of 0.69
BETTER = (0.0, 0.0, 0.3)                # of the three models
INSTANCE, OWN, BOTH = 1.5, 1.0, 0.5     # spreads of instances, of a model's own on them, of seed and instance
FINE, FINE_BOTH = 0.1, 0.5              # of the fine-tunings of one pretraining, and with the instances
GAINS = np.append(0, 1 / np.log2(np.arange(1, 11) + 1)).astype(np.float32)      # of a rank; 0 beyond ten
BATCH = 50


@dataclass(frozen=True)
class Settings:
    metrics: tuple = tuple(MEANS)
    seeds: tuple = (3, 5)
    spreads: tuple = (0.02, 0.15, 0.5)  # of seeds, in log odds; half of the variance is all models'
    each: int = setting(1, 1)           # fine-tunings; with more than one, the seeds are of pretraining
    instances: tuple = (300, 3_000)
    simulations: int = setting(2_000, low=BATCH)
    resamples: int = setting(500, low=100)
    seed: int = setting(0, low=0)
    def __post_init__(self):
        check(self)


def answers(random, metric, seeds, spread, n, each=1, better=BETTER):
    """(statistic, its (terms, BATCH, models, seeds x each, n))."""
    models = len(better)

    def normal(*shape):
        return random.standard_normal((BATCH, *shape), np.float32)

    def uniform():
        return random.random((BATCH, models, seeds * each, n), np.float32)
    quality = INSTANCE * normal(1, 1, n) + OWN * normal(models, 1, n) + BOTH * normal(models, seeds, n)
    quality += spread * np.sqrt(0.5) * (normal(1, seeds, 1) + normal(models, seeds, 1))
    if each > 1:
        quality = np.repeat(quality, each, 2) + FINE_BOTH * normal(models, seeds * each, n)
        quality += FINE * np.sqrt(0.5) * (normal(1, seeds * each, 1) + normal(models, seeds * each, 1))
    quality += MEANS[metric] + np.array(better, np.float32)[:, None, None]
    if metric == 'NDCG@10':     # of one relevant document, whose odds to be among the first k grow with k
        odds = np.exp(np.clip(-quality, -30, 30))
        u = uniform()
        rank = np.minimum(np.ceil(u / np.maximum(1 - u, 1e-6) * odds), 11).astype(int)
        return 'mean', GAINS[np.where(rank > 10, 0, np.maximum(rank, 1))][None]
    right = sigmoid(quality)
    if metric == 'accuracy':
        return 'mean', (uniform() < right).astype(np.float32)[None]
    gold = random.choice(3, (BATCH, 1, 1, n), p=(0.3, 0.4, 0.3)).astype(np.float32)    # entities
    correct = np.float32(gold > 0) * (uniform() < right) + np.float32(gold > 1) * (uniform() < right)
    wrong = uniform() < 0.3 * (1 - right)
    return 'ratio', np.array(np.broadcast_arrays(2 * correct, gold + correct + wrong))


def truth(metric, spread, better, each=1):
    """The mean over all seeds and instances."""
    x, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    within = np.sqrt(INSTANCE ** 2 + OWN ** 2 + BOTH ** 2 + (each > 1) * FINE_BOTH ** 2)
    spread = np.sqrt(spread ** 2 + (each > 1) * FINE ** 2)
    quality = MEANS[metric] + better + spread * x[:, None] + within * x
    if metric == 'NDCG@10':
        among = np.array([0 * x, *(sigmoid(quality + np.log(k)) @ weights for k in range(1, 11))])
        scores = GAINS[1:] @ np.diff(among, axis=0)     # (seeds,)
    else:
        scores = sigmoid(quality) @ weights
    if metric == 'F1':
        scores = 2 * scores / (1 + scores + 0.3 * (1 - scores))
    return float(scores @ weights)


def closed_form(values):
    """(mean, half of the 95 % interval) of (S, N) values, by a two-way analysis of variance."""
    S, N = values.shape
    of_seeds, of_instances, mean = values.mean(1), values.mean(0), values.mean()
    MS_S, MS_I = N * of_seeds.var(ddof=1), S * of_instances.var(ddof=1)
    rest = values - of_instances - of_seeds[:, None] + mean
    MS_R = (rest ** 2).sum() / ((S - 1) * (N - 1))
    V = max(MS_S + MS_I - MS_R, MS_S, MS_I) / (S * N)
    nu = (V * S * N) ** 2 / (MS_S ** 2 / (S - 1) + MS_I ** 2 / (N - 1) + MS_R ** 2 / ((S - 1) * (N - 1)))
    return mean, stats.t.ppf(0.975, nu) * np.sqrt(V)


def cells_of(statistic, terms, draws, cfg, each):
    """The models' Cells, as `make_cell` makes them, from (terms, models, S, n)."""
    cells = []
    for model in range(terms.shape[1]):
        runs = [statistics.Run(str(model), 'SC', 'd', 1e-4, seed, None, None,
                              origin=seed // each if each > 1 else None) for seed in range(terms.shape[2])]
        values = statistics.instance_values(statistic, terms[:, model].astype(float))
        cells.append(statistics.standard_cell(runs, draws[:, model], values, (), cfg))
    return cells


def intervals(arms, cfg):
    """({method: (low, high)}, p) of the weighted sum of Cells, [(weight, Cell)]."""
    result = statistics.estimate([arms], cfg)
    draws = sum(weight * cell.draws.mean(0, dtype=float) for weight, cell in arms)
    values = sum(weight * cell.values.astype(float) for weight, cell in arms)
    mean, half = closed_form(values)
    whole = statistics.with_seeds(draws, [(values.mean(1).tolist(), 0.0)], cfg)
    return {'now': (result.low, result.high), 'sum': tuple(np.percentile(whole, [2.5, 97.5])),
            'closed form': (mean - half, mean + half)}, result.p


def resample(random, statistic, terms, cfg):
    """(resamples, BATCH, models, seeds) scores, of instances drawn once for all."""
    n = terms.shape[-1]
    times = random.multinomial(n, np.full(n, 1 / n), cfg.resamples).astype(np.float32)
    sums = (times @ terms.reshape(-1, n).T).reshape(cfg.resamples, len(terms), -1).swapaxes(0, 1)
    draws = statistics.STATISTICS[statistic].score(sums, n)
    return draws.reshape(cfg.resamples, *terms.shape[1:-1])


def simulate(metric, seeds, spread, n, cfg):
    """{method: (one model's coverage, a difference's, true nulls rejected)}, in percent."""
    cell = f'{metric} {seeds} {spread} {n}' + f' {cfg.each}' * (cfg.each > 1)
    random = np.random.default_rng((cfg.seed, statistics.key_of([cell])))
    means = [truth(metric, spread, better, cfg.each) for better in BETTER]
    gap, counts = means[2] - means[0], {name: np.zeros(3) for name in ('now', 'sum', 'closed form')}
    batches = cfg.simulations // BATCH
    for batch in range(batches):
        statistic, terms = answers(random, metric, seeds, spread, n, cfg.each)
        draws = resample(random, statistic, terms, cfg)
        for k in range(BATCH):
            sub = SimpleNamespace(resamples=cfg.resamples, seed=batch * BATCH + k, rules=2)
            a, equal, better = cells_of(statistic, terms[:, k], draws[:, k], sub, cfg.each)
            (one, _), (difference, _), (null, p) = (intervals(arms, sub) for arms in (
                [(1, a)], [(1, better), (-1, a)], [(1, equal), (-1, a)]))
            for name in counts:
                rejected = p < 0.05 if name == 'now' else not null[name][0] <= 0 <= null[name][1]
                counts[name] += (one[name][0] <= means[0] <= one[name][1],
                                 difference[name][0] <= gap <= difference[name][1], rejected)
    return {name: 100 * count / (batches * BATCH) for name, count in counts.items()}


def pages(cfg, contrasts):
    """Print how many studies of so many contrasts, each of two models that do not differ, have a verdict."""
    for n, metric, seeds, spread in itertools.product(cfg.instances, cfg.metrics, cfg.seeds, cfg.spreads):
        name = f'{metric} {seeds} {spread} {n} pages'
        random = np.random.default_rng((cfg.seed, statistics.key_of([name])))
        judged = alone = 0
        batches = cfg.simulations // BATCH
        for batch in range(batches):
            statistic, terms = answers(random, metric, seeds, spread, n, cfg.each, np.zeros(2 * contrasts))
            draws = resample(random, statistic, terms, cfg)
            for k in range(BATCH):
                sub = SimpleNamespace(resamples=cfg.resamples, seed=batch * BATCH + k, rules=2)
                cells = cells_of(statistic, terms[:, k], draws[:, k], sub, cfg.each)
                values = [statistics.estimate([[(1, first), (-1, second)]], sub).p
                          for first, second in zip(cells[::2], cells[1::2])]
                judged += min(holm(values)) < 0.05
                alone += sum(p < 0.05 for p in values)
        count = batches * BATCH
        print(f'{metric:<9} {seeds} seeds, spread {spread}, {n:,} instances: {100 * judged / count:.1f} % of '
              f'pages judge, {100 * alone / count / contrasts:.1f} % of contrasts alone', flush=True)


def correlations(cfg):
    """Coverage of intervals over instances of one model: columns are normal, cut at 0 for Matthews."""
    truths = {'Pearson': lambda rho: rho, 'Spearman': lambda rho: 6 / np.pi * np.arcsin(rho / 2),
              'Matthews': lambda rho: 2 / np.pi * np.arcsin(rho)}
    for statistic, rho, n in itertools.product(truths, (0.0, 0.5, 0.9), cfg.instances):
        random, held = np.random.default_rng((cfg.seed, n)), 0
        for k in range(cfg.simulations):
            columns = random.multivariate_normal([0, 0], [[1, rho], [rho, 1]], n).T
            columns = columns > 0 if statistic == 'Matthews' else columns
            content = {'ids': [str(i) for i in range(n)], 'statistic': statistic, 'columns': columns}
            run = statistics.Run('m', 'SC', f'd{k}', 1e-4, 0, 0.0, 0.0, instances=lambda split: content)
            cell = statistics.make_cell([run], evaluate.Settings(resamples=cfg.resamples, seed=k))
            held += cell.low <= truths[statistic](rho) <= cell.high
        print(f'{statistic:<9} true {truths[statistic](rho):.2f}, n = {n}: '
              f'{100 * held / cfg.simulations:.1f} % held', flush=True)


def within(result):
    """The goal: 93 to 97 % and 3 to 7 %."""
    return all(low <= x <= low + 4 for low, x in zip((93, 93, 3), result))


def main():
    cfg, actions = parse(Settings, sys.argv[1:], {
        'correlations': (False, 'of one model alone'),
        'pages': (0, 'of studies with so many contrasts, none of which differs', 1, 100)})
    if actions.correlations:
        return correlations(cfg)
    if actions.pages:
        return pages(cfg, actions.pages)
    print('coverage of one model / of a difference / true nulls rejected, in percent\n')
    print(f'{"metric":<9} seeds spread instances   {"now":^18} {"sum":^18} {"closed form":^18}')
    for n, metric, seeds, spread in itertools.product(cfg.instances, cfg.metrics, cfg.seeds, cfg.spreads):
        results = simulate(metric, seeds, spread, n, cfg)
        texts = ['{:4.1f} / {:4.1f} / {:4.1f}'.format(*result) for result in results.values()]
        print(f'{metric:<9} {seeds:>5} {spread:>6} {n:>9}  ', *texts, '*' * (not within(results['now'])),
              flush=True)
    print('\n* marks cells beyond 93 to 97 % and 3 to 7 %')


if __name__ == '__main__':
    run_main(main)

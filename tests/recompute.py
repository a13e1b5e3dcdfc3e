"""The verdicts of a study's report, recomputed from its pack without any of this project's code.

    python tests/recompute.py studies/small

docs/protocols.md says the statistics; p and the intervals over instances may differ by Monte-Carlo error.
"""
import ast
import gzip
import json
import re
import sys
from pathlib import Path

import numpy as np
from scipy import stats

RUN = re.compile(r'([^/]+?)(?:-s(\d+))?(\+[^/]+)?/\w+/([^/]+)/lr([^_]+)_sd(\d+)')
LINE = '{:+.1f} [{:+.1f}, {:+.1f}] | [{:+.1f}, {:+.1f}] | {}/{} | {:.4f} | {:.4f}'
RESAMPLES = 10_000


def read_settings(path):
    """The literals that a config assigns, over those of its base."""
    settings = {}
    for node in ast.parse(path.read_text()).body:
        name = node.targets[0].id
        settings[name] = ast.literal_eval(node.value)
    if 'base' in settings:
        return read_settings(path.parent / settings['base']) | settings
    return settings


def read_runs(study, cfg):
    """{(model, dataset): {rate: {(pretraining seed, fine-tuning seed): scores}}}."""
    runs = {}
    for pack in study.glob('runs/*.jsonl.gz'):
        for line in gzip.open(pack):
            record = json.loads(line)
            row, seed, variant, dataset, rate, fine = RUN.fullmatch(record['run']).groups()
            is_seed = seed is None or int(seed) in cfg['seeds']
            if is_seed and int(fine) % 10 < cfg['finetuning_seeds']:
                grid = runs.setdefault((row + (variant or ''), dataset), {})
                grid.setdefault(float(rate), {})[seed, fine] = record['scores']
    return runs


def read_terms(standard):
    """(2, n): what each instance adds to the numerator and the denominator of the score."""
    numerators, *more = standard['columns']
    denominators = more[0] if more else np.ones(len(numerators))
    terms = np.array([numerators, denominators])
    assert np.isclose(np.divide(*terms.sum(1)), standard['score']), 'neither a mean nor a ratio of sums'
    return terms


def best_rate(grid, rates, split):
    """The rate with the highest mean score on a split."""
    def mean(rate):
        return np.mean([scores[split]['standard']['score'] for scores in grid[rate].values()])

    return max(rates, key=mean)


def join_splits(runs, name, dataset):
    """(2, units, fine-tunings, n): terms of both splits, each at the rate that is best on the other one."""
    model, _, rate = name.partition('@')
    grid = runs[model, dataset]
    rates = [float(rate)] if rate else sorted(grid)
    on_validation = grid[best_rate(grid, rates, 'test')]
    on_test = grid[best_rate(grid, rates, 'validation')]
    units = {}
    for seed, fine in sorted(on_test):
        first = read_terms(on_validation[seed, fine]['validation']['standard'])
        second = read_terms(on_test[seed, fine]['test']['standard'])
        units.setdefault(seed, []).append(np.hstack([first, second]))
    terms = np.moveaxis(list(units.values()), 2, 0)
    return terms / terms[1].mean(-1, keepdims=True)     # so a score is the mean of its numerators


def margin_of(contrast, runs, cfg):
    """A tenth, in points, of what the contrast's rows of MLM alone, by weight, gain over no pretraining."""
    def mean(row):
        return np.mean([join_splits(runs, row, dataset)[0].mean() for dataset in contrast['datasets']])

    if contrast['rule'] == 'better':
        return 0
    weights = {}
    for row, weight in contrast['weights'].items():
        if set(dict(cfg['runs'][row]['phases'])) == {'mlm'}:
            weights[row] = abs(weight)
    with_mlm = np.average([mean(row) for row in weights], weights=[*weights.values()])
    return 10 * (with_mlm - mean('untrained'))


def contrast_of(contrast, runs, counts, random):
    """(draws (RESAMPLES,), scores (S,), noise) of a contrast, in points. `counts` holds the resamples of each
    dataset, which all models share; the noise is MS_R / n of docs/protocols.md."""
    draws = 0
    scores = 0
    noise = 0
    share = 100 / len(contrast['datasets'])
    for dataset in contrast['datasets']:
        values = 0                      # (S, n instances), linearised: their mean is the score
        for name, weight in contrast['weights'].items():
            terms = join_splits(runs, name, dataset)
            n = terms.shape[-1]
            if dataset not in counts:
                counts[dataset] = random.multinomial(n, np.full(n, 1 / n), RESAMPLES).astype(np.float32)
            sums = counts[dataset] @ terms.reshape(-1, n).T.astype(np.float32)
            sums = sums.reshape(RESAMPLES, 2, -1)
            resampled = sums[:, 0] / sums[:, 1]
            draws += share * weight * resampled.mean(1, dtype=float)
            above, below = terms
            linear = above + above.mean(-1, keepdims=True) * (1 - below)
            values += share * weight * linear.mean(1)
        scores += values.mean(1)
        S = len(values)
        noise += (values - values.mean(0)).var(1, ddof=1).sum() / (S - 1) / n
    return draws, scores, noise


def with_seeds(draws, scores, noise, random):
    """Draws whose spread is of instances and of seeds: the seeds' variance, less what is instances' noise."""
    S = len(scores)
    variance = (scores.var(ddof=1) - (S - 1) / (S + 1) * noise) / S
    of_seeds = max(0, variance)
    shrunk = max(0, 1 + min(0, variance) / max(draws.var(), 1e-300))     # 0 where all scores are
    draws = draws.mean() + (draws - draws.mean()) * np.sqrt(shrunk)
    return draws + np.sqrt(of_seeds) * random.standard_t(S - 1, RESAMPLES)


def p_of(draws, bounds):
    """The largest two-sided p against these bounds."""
    p_values = []
    for bound in bounds:
        beyond = min(sum(draws <= bound), sum(draws >= bound))
        p_values.append(min(1, 2 * (1 + beyond) / (1 + RESAMPLES)))
    return max(p_values)


def judge(contrast, runs, counts, random, cfg):
    """(numbers of LINE up to p, how far the first interval may be off, bounds, the verdict if p is small)."""
    draws, scores, noise = contrast_of(contrast, runs, counts, random)
    draws = with_seeds(draws, scores, noise, random)
    mean = scores.mean()
    S = len(scores)
    margin = margin_of(contrast, runs, cfg)
    bounds = {'better': [0], 'at_least': [-margin], 'no_difference': [-margin, margin]}[contrast['rule']]
    verdict = 'agrees' if np.searchsorted(bounds, mean) == 1 else 'disagrees'
    half = stats.t.ppf(0.975, S - 1) * stats.sem(scores)
    low, less, more, high = np.percentile(draws, [2.5, 1.84, 3.16, 97.5])   # 2.5 and its errors, below
    wide = max(0.2, (more - less) / 2)
    numbers = mean, low, high, mean - half, mean + half, sum(scores > 0), S
    return *numbers, p_of(draws, bounds), wide, bounds, verdict


def words_of(name, rule, verdict, bounds, rules):
    """The verdict as the report words it: since rules 3, of no claim of the paper, where the points lie."""
    claims = json.loads((Path(__file__).parents[1] / 'studies/paper/claims.json').read_text())
    if rules < 3 or verdict == 'cannot tell' or name.split(' ')[0] in claims:
        return verdict
    if rule == 'no_difference':
        return f'{"within" if verdict == "agrees" else "not within"} {bounds[-1]:.1f}'
    return f'{"above" if verdict == "agrees" else "below"} {bounds[0]:.1f}'.removesuffix('.0')


def numbers_in(text):
    return np.array(re.findall(r'[-+]?\d+\.?\d*', text), float)


def main(study):
    """Print each contrast above the report's line for it, and how many numbers agree."""
    cfg = read_settings(study / 'config.py')
    runs = read_runs(study, cfg)
    counts = {}
    random = np.random.default_rng(20_261_125)
    judged = [judge(contrast, runs, counts, random, cfg) for contrast in cfg['contrasts'].values()]
    p_values = np.array([p for *_, p, _, _, _ in judged])
    rules = cfg.get('rules', 3)
    least = 3 if rules == 1 else 4       # pretrainings that a verdict takes
    _, section = (study / 'report.md').read_text().split('## Verdicts')
    table = section.split('##')[0].strip().splitlines()[2:]

    agree = []
    same = []       # of verdicts
    for name, (*numbers, p, wide, bounds, verdict), line in zip(cfg['contrasts'], judged, table, strict=True):
        holm = min(1, max(other * sum(p_values >= other) for other in p_values[p_values <= p]))
        if holm >= 0.05 or numbers[-1] < least:
            verdict = 'cannot tell'
        verdict = words_of(name, cfg['contrasts'][name]['rule'], verdict, bounds, rules)
        cells = [cell.strip('*| ') for cell in line.split(' | ')]
        here = LINE.format(*numbers, p, holm)
        report = ' | '.join(cells[2:5] + cells[6:8])
        print(f'{name}\n    here   {here} | {verdict}\n    report {report} | {cells[8]}')

        error = 1e-4 + 6 * np.sqrt(max(p, 2 / RESAMPLES) / RESAMPLES)   # three of a difference, and rounding
        allowed = np.array([0, wide, wide, 0, 0, 0, 0, error, error * holm / p])
        agree += [*(abs(numbers_in(here) - numbers_in(report)) <= allowed + 1e-9)]
        two_errors = 2 * np.sqrt(p * (1 - p) / RESAMPLES) * holm / p
        distance = abs(holm - 0.05)
        drawn = error * holm / p        # how far the report's may be from here
        said, near, _ = cells[8].partition(' (p near .05)')
        is_near = rules > 2 and numbers[-1] >= least and distance <= two_errors
        same.append((said == verdict or distance < drawn)
                    and (bool(near) == is_near or abs(distance - two_errors) < drawn))
    print(f'{sum(agree)} of {len(agree)} numbers and {sum(same)} of {len(same)} verdicts agree')
    return int(not all(agree + same))


if __name__ == '__main__':
    sys.exit(main(Path(sys.argv[1])))

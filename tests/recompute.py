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
    settings = {node.targets[0].id: ast.literal_eval(node.value) for node in ast.parse(path.read_text()).body}
    return (read_settings(path.parent / settings['base']) if 'base' in settings else {}) | settings


def read_runs(study, cfg):
    """{(model, dataset): {rate: {(pretraining seed, fine-tuning seed): scores}}}."""
    runs = {}
    for record in (json.loads(line) for pack in study.glob('runs/*.jsonl.gz') for line in gzip.open(pack)):
        row, seed, variant, dataset, rate, fine = RUN.fullmatch(record['run']).groups()
        if int(fine) % 10 < cfg['finetuning_seeds'] and (seed is None or int(seed) in cfg['seeds']):
            grid = runs.setdefault((row + (variant or ''), dataset), {})
            grid.setdefault(float(rate), {})[seed, fine] = record['scores']
    return runs


def read_terms(standard):
    """(2, n): what each instance adds to the numerator and the denominator of the score."""
    columns = standard['columns']
    terms = np.array([columns[0], columns[1] if len(columns) > 1 else np.ones(len(columns[0]))])
    assert np.isclose(np.divide(*terms.sum(1)), standard['score']), 'neither a mean nor a ratio of sums'
    return terms


def join_splits(runs, name, dataset):
    """(2, units, fine-tunings, n): terms of both splits, each at the rate that is best on the other one."""
    model, _, rate = name.partition('@')
    grid, units = runs[model, dataset], {}
    rates = [float(rate)] if rate else sorted(grid)
    best = {split: max(rates, key=lambda rate: np.mean(
        [run[other]['standard']['score'] for run in grid[rate].values()]))
        for split, other in (('validation', 'test'), ('test', 'validation'))}
    for seed, fine in sorted(grid[best['test']]):
        terms = [read_terms(grid[best[split]][seed, fine][split]['standard']) for split in best]
        units.setdefault(seed, []).append(np.hstack(terms))
    terms = np.moveaxis(list(units.values()), 2, 0)
    return terms / terms[1].mean(-1, keepdims=True)     # so a score is the mean of its numerators


def margin_of(contrast, runs, cfg):
    """A tenth, in points, of what the contrast's rows of MLM alone, by weight, gain over no pretraining."""
    mlm = [row for row in contrast['weights'] if set(dict(cfg['runs'][row]['phases'])) == {'mlm'}]
    untrained, *means = np.mean([[join_splits(runs, row, dataset)[0].mean() for row in ('untrained', *mlm)]
                                 for dataset in contrast['datasets']], 0)
    return 10 * (np.average(means, weights=[abs(contrast['weights'][row]) for row in mlm]) - untrained)


def judge(contrast, runs, counts, random, cfg):
    """(numbers of LINE up to p, how far the first interval may be off, the verdict if p is small)."""
    scores, draws, noise, share = 0, 0, 0, 100 / len(contrast['datasets'])      # noise: MS_R / n
    for dataset in contrast['datasets']:
        values = 0                      # (S, n instances), linearised: their mean is the score
        for name, weight in contrast['weights'].items():
            terms = join_splits(runs, name, dataset)
            _, S, _, n = terms.shape
            if dataset not in counts:   # all models see the same resamples
                counts[dataset] = random.multinomial(n, np.full(n, 1 / n), RESAMPLES).astype(np.float32)
            sums = (counts[dataset] @ terms.reshape(-1, n).T.astype(np.float32)).reshape(RESAMPLES, 2, -1)
            draws += share * weight * (sums[:, 0] / sums[:, 1]).mean(1, dtype=float)
            values += share * weight * (terms[0] + terms[0].mean(-1, keepdims=True) * (1 - terms[1])).mean(1)
        scores += values.mean(1)
        noise += (values - values.mean(0)).var(1, ddof=1).sum() / (S - 1) / n
    variance = (scores.var(ddof=1) - (S - 1) / (S + 1) * noise) / S
    draws = draws.mean() + (draws - draws.mean()) * np.sqrt(max(0, 1 + min(0, variance) / draws.var()))
    draws += np.sqrt(max(0, variance)) * random.standard_t(S - 1, RESAMPLES)
    margin = 0 if contrast['rule'] == 'better' else margin_of(contrast, runs, cfg)
    bounds = {'better': [0], 'at_least': [-margin], 'no_difference': [-margin, margin]}[contrast['rule']]
    p = max(2 * (1 + min(sum(draws <= bound), sum(draws >= bound))) / (1 + RESAMPLES) for bound in bounds)
    verdict = 'agrees' if np.searchsorted(bounds, scores.mean()) == 1 else 'disagrees'
    alone = stats.t.interval(0.95, S - 1, scores.mean(), stats.sem(scores))
    low, less, more, high = np.percentile(draws, [2.5, 1.84, 3.16, 97.5])   # 2.5 and its errors, below
    return scores.mean(), low, high, *alone, sum(scores > 0), S, p, max(0.2, (more - less) / 2), verdict


def main(study):
    """Print each contrast above the report's line for it, and how many numbers agree."""
    cfg = read_settings(study / 'config.py')
    runs, counts, random = read_runs(study, cfg), {}, np.random.default_rng(20_261_125)
    judged = [judge(contrast, runs, counts, random, cfg) for contrast in cfg['contrasts'].values()]
    p_values = np.array([p for *_, p, _, _ in judged])
    table = (study / 'report.md').read_text().split('## Verdicts')[1].split('##')[0].strip().splitlines()[2:]
    agree = []
    for name, (*numbers, p, wide, verdict), line in zip(cfg['contrasts'], judged, table, strict=True):
        holm = min(1, max(other * sum(p_values >= other) for other in p_values[p_values <= p]))
        error = 1e-4 + 6 * np.sqrt(max(p, 2 / RESAMPLES) / RESAMPLES)   # three of a difference, and rounding
        least = 3 if cfg.get('rules') == 1 else 4       # pretrainings that a verdict takes
        verdict = verdict if holm < 0.05 and numbers[-1] >= least else 'cannot tell'
        cells = [cell.strip('*| ') for cell in line.split(' | ')]
        texts = LINE.format(*numbers, p, holm), ' | '.join(cells[2:5] + cells[6:8])
        ours, theirs = (np.array(re.findall(r'[-+]?\d+\.?\d*', text), float) for text in texts)
        close = abs(ours - theirs) <= np.array([0, wide, wide, 0, 0, 0, 0, error, error * holm / p]) + 1e-9
        agree += [*close, verdict == cells[8] or abs(holm - 0.05) < error * holm / p]
        print(f'{name}\n    here   {texts[0]} | {verdict}\n    report {texts[1]} | {cells[8]}')
    print(f'{sum(agree)} of {len(agree)} numbers agree')
    return int(not all(agree))


if __name__ == '__main__':
    sys.exit(main(Path(sys.argv[1])))

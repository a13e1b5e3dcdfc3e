"""Numbers that pages state are those of the studies: of their reports, or computed from their packs."""
import csv
import math
import re

import numpy as np
import pytest
import scipy.stats

import recompute
from conftest import ROOT
from nanoencoder import paper
from studies import speedrun


def judged_in(study):
    """[(points and interval, verdict)] of its report's contrasts."""
    report = (ROOT / f'studies/{study}/report.md').read_text()
    return re.findall(r'(?m)^\| .*? \| .*? \| (\S+ \[.*?\]) \|.*\*\*(.*?)\*\*', report)


def test_what_is_said_of_the_studies_stands_on_their_pages():
    """README's verdicts, and docs/paper.md's points with an interval, told from either side."""
    judged = judged_in('small') + judged_in('novels')
    clear = [numbers for numbers, verdict in judged_in('small') if verdict == 'agrees']
    told = re.findall(r'by (\S+?)(?: points)? \[(\S+), (\S+)\]', words_of('README.md'))
    assert ['+{} [+{}, +{}]'.format(*numbers) for numbers in told] == clear
    points = [tuple(map(float, re.findall(r'[+-][\d.]+', numbers))) for numbers, _ in judged]
    points += [(-mean, -high, -low) for mean, low, high in points]
    told = re.findall(r'([\d.]+) points(?: \w+)*\s\[(\S+), (\S+)\]', (ROOT / 'docs/paper.md').read_text())
    assert len(told) > 5 and {tuple(map(float, numbers)) for numbers in told} <= {*points}


def test_the_verdicts_on_optimizers_are_those_of_their_study():
    signs = {'agrees': 'above 0', 'disagrees': 'below 0', 'cannot tell': 'cannot tell'}
    points, page = r'([+-][\d.]+ \[[^]]*\])', (ROOT / 'docs/optimiser.md').read_text()
    told = re.findall(points + r',\s(above 0|below 0|cannot tell)', page)
    judged = judged_in('optimiser') + judged_in('optimiser_embedded')
    assert sorted(told) == sorted((numbers, signs[verdict]) for numbers, verdict in judged)


def scores_of(study):
    """Return a function (model, dataset) -> the score of each pretraining seed, in points, on both splits of
    the study's pack."""
    folder = ROOT / f'studies/{study}'
    runs = recompute.read_runs(folder, recompute.read_settings(ROOT / f'studies/{study}/config.py'))
    def score(model, *datasets):
        joined = [recompute.join_splits(runs, model, dataset)[0] for dataset in datasets]
        return 100 * np.mean([terms.mean((1, 2)) for terms in joined], 0)
    return score


def words_of(page):
    return ' '.join((ROOT / page).read_text().split())


def test_what_optimiser_md_says_of_the_lead_is_in_the_pack():
    """The lead by task and length, how much of it goes, and what it has to do with the wait: over seeds."""
    score, last, page = scores_of('optimiser'), ends('optimiser'), words_of('docs/optimiser.md')
    three = 'ewt_pos', 'wn_sc', 'squad_ir'

    def lead(steps, *datasets, muon=''):
        return score(f'{muon}clm25-mlm-{steps}', *datasets) - score(f'{muon}mlm-{steps}', *datasets)

    def share_gone(*datasets):      # of a ratio of two means: Fieller's interval
        before = lead(1800, *datasets)
        gone = before - lead(1800, *datasets, muon='muon-')
        t = scipy.stats.t.ppf(0.975, 5) ** 2 / 6
        (var_gone, both), (_, var_before) = np.cov(gone, before)
        a = before.mean() ** 2 - t * var_before
        b = gone.mean() * before.mean() - t * both
        c = gone.mean() ** 2 - t * var_gone
        root = math.sqrt(b * b - a * c)
        return [round(100 * x) for x in (gone.mean() / before.mean(), (b - root) / a, (b + root) / a)]

    early = lead(1800, *three).mean(), lead(1800, *three, muon='muon-').mean()
    assert 'is {:.1f} points under AdamW and {:.1f} under Muon'.format(*early) in words_of('README.md')
    assert 'of {:.1f} points {:.1f} are left'.format(
        lead(1800, 'squad_ir').mean(), lead(1800, 'squad_ir', muon='muon-').mean()) in page
    assert '{} % less [{}, {}]'.format(*share_gone('squad_ir')) in page
    assert 'loses {} % [{}, {}]'.format(*share_gone(*three)) in page
    assert f'under AdamW ({lead(1800, "wn_sc").mean():+.1f})' in page
    assert f'overtakes, by {-lead(1800, "wn_sc", muon="muon-").mean():.1f}' in page
    for steps, words in ((3600, '3.7 M tokens it is '), (14400, 'after 14.7 M ')):
        values = lead(steps, *three) - lead(steps, *three, muon='muon-')
        interval = scipy.stats.t.interval(0.95, 5, values.mean(), scipy.stats.sem(values))
        assert '{}{:+.1f} [{:.1f}, {:.1f}]'.format(words, values.mean(), *interval) in page

    def waits(row):
        return np.array([int(last[row, str(seed)]['plateau']) for seed in range(6)])
    of_adamw = [np.corrcoef(waits('mlm-14400'), lead(steps, *three))[0, 1] for steps in (1800, 3600, 14400)]
    shown = '{:.2f}, {:.2f} and {:.2f}'.format(*of_adamw).replace('0.', '.')
    assert f'r of wait and lead is {shown}' in page and shown in words_of('docs/paper.md')
    shorter = waits('mlm-14400') - waits('muon-mlm-14400')
    smaller = lead(1800, *three) - lead(1800, *three, muon='muon-')
    assert f'is {np.corrcoef(shorter, smaller)[0, 1]:.2f} early'.replace('0.', '.') in page
    loss = {row: np.mean([float(last[row, str(seed)]['val_mlm_loss']) for seed in range(6)])
            for row in ('mlm-14400', 'muon-mlm-14400', 'clm25-mlm-14400', 'muon-clm25-mlm-14400')}
    below = (score('muon-mlm-14400', *three) - score('mlm-14400', *three)).mean()
    assert min(loss, key=loss.get) == 'mlm-14400'
    assert f'{loss["mlm-14400"]:.2f}, and it scores {below:.1f} points below MLM under Muon, with ' \
           f'{loss["muon-mlm-14400"]:.2f}' in page


def test_what_was_known_before_the_study_of_optimizers_was_frozen():
    """The first contrast of the tuning seeds, at the rates that validation chose, on both splits."""
    lines = csv.DictReader((ROOT / 'studies/optimiser_tuning/scores.csv').open())
    runs = {}       # {(model, dataset): {rate: [(validation, test) of each seed]}}
    for line in sorted((line for line in lines if line['origin']), key=lambda line: line['origin']):
        rates = runs.setdefault((line['model'], line['dataset']), {})
        both = [100 * float(line[split]) for split in ('validation', 'test')]
        rates.setdefault(line['lr'], []).append(both)

    def score(model):
        best = []
        for dataset in ('ewt_pos', 'wn_sc', 'squad_ir'):
            best.append(max(runs[model, dataset].values(), key=lambda seeds: np.mean(seeds, 0)[0]))
        return np.mean(best, (0, 2))
    under_adamw = score('clm25-mlm-1.5e-3') - score('mlm-3e-3')
    under_muon = score('muon-clm25-mlm-1.5e-3') - score('muon-mlm-3e-3')
    page = words_of('docs/optimiser.md')
    assert 'first contrast is {:+.1f} and {:+.1f}'.format(*under_adamw - under_muon) in page
    last = ends('optimiser_tuning', 'plateau')
    losses = [np.mean([float(last[row, seed]['val_mlm_loss']) for seed in ('100', '101')])
              for row in ('beta2-0.8', 'mlm-3e-3', 'plain')]
    assert '({:.2f} nats; {:.2f}, or {:.2f} below)'.format(*losses) in page


def test_one_rate_and_two_begin_with_what_is_in_the_pack():
    last = ends('optimiser_embedded')
    score = scores_of('optimiser_embedded')
    page = words_of('docs/optimiser.md')
    waits = [int(last['mlm-1800', seed]['plateau']) for seed in '012']
    assert 'with one rate at {:,}, {:,} and {:,}'.format(*waits) in page
    for muon, words in (('', '{:+.1f} {:+.1f} {:+.1f} points with one rate'),
                        ('muon-', '(Muon: {:+.1f} {:+.1f} {:+.1f})')):
        three = 'docs_tc', 'wn_sc', 'docs_ir'
        lead = score(f'{muon}clm25-mlm-1800', *three) - score(f'{muon}mlm-1800', *three)
        assert words.format(*lead) in page


def test_what_is_said_of_small_beside_its_verdicts_is_in_its_packs():
    """The verdict on rates is one cell, and turns on the grid of tuning; what is left without docs_pairs."""
    score, tuning, page = scores_of('small'), scores_of('small_tuning'), words_of('docs/paper.md')

    def lost(arm, rate, dataset):
        at = [score(f'{arm}-3600+rates@{lr}', dataset).mean() for lr in (2e-3, rate)]
        return at[0] - at[1]
    high = {arm: lost(arm, 8e-3, 'docs_ir') for arm in ('clm', 'mlm')}
    assert f'loses {high["clm"]:.1f} points in retrieval, MLM {high["mlm"]:.1f}' in page
    both = 'docs_tc', 'docs_ir'
    low = [np.mean([lost(arm, 5e-4, dataset) for dataset in both]) for arm in ('mlm', 'clm')]
    assert f'CLM loses {low[0] - low[1]:.1f} *less*' in page
    rest = sum(lost('clm', rate, dataset) - lost('mlm', rate, dataset)
               for rate, dataset in ((5e-4, 'docs_tc'), (5e-4, 'docs_ir'), (8e-3, 'docs_tc')))
    assert rest < 0     # without the cell the contrast has the paper's sign

    def differ(arm, dataset):
        rates = 5e-4, 1e-3, 2e-3, 4e-3
        return np.ptp([tuning(f'tune-{arm}-3600@{rate}', dataset).mean() for rate in rates])
    assert "by {:.1f} points in retrieval and MLM's by {:.1f}; on code words by {:.1f} and {:.1f}".format(
        *(differ(arm, dataset) for dataset in ('docs_ir', 'docs_tc') for arm in ('clm', 'mlm'))) in page
    contrasts, left = recompute.read_settings(ROOT / 'studies/small/config.py')['contrasts'], {}
    for name in ('early', 'both'):
        weights = contrasts[name]['weights']
        left[name] = sum(weight * score(row, *both).mean() for row, weight in weights.items())
    assert f'it is {left["early"]:.1f}.' in page
    assert f'Without `docs_pairs` the mean is {left["both"]:.1f}.' in page


def test_the_papers_mlm_needs_twice_the_steps():
    """By its own tables: interpolated between checkpoints, linearly in the logarithm of steps."""
    steps, page = np.array([1000, 2000, 5000, 10000, 20000, 40000]), words_of('docs/paper.md')
    sets = [('IR', 'nq', 'in NQ'), ('IR', 'msmarco', 'in MS MARCO'), ('QA', 'squad', 'on SQuAD')]
    for task, dataset, words in sets:
        clm, mlm = ([paper.numbers()[f'610m-{arm}-42k-{step}', task, dataset][0] for step in steps]
                    for arm in ('clm', 'mlm40'))
        needed = np.exp(np.interp(clm[:3], mlm, np.log(steps)))
        assert '{:.1f}K, {:.1f}K, {:.1f}K '.format(*needed / 1000) + words in page


def test_the_target_of_the_speedrun_moved():
    """What the older target would have made of the rows."""
    page = (ROOT / 'docs/speedrun.md').read_text()
    rows = dict(re.findall(r'(?m)^\| steps \| `(\S+)` \|.*\| ([\d. ]{20,}) \|', page))
    p = {row: scipy.stats.ttest_1samp([*map(float, values.split())], 4.6, alternative='less').pvalue
         for row, values in rows.items()}
    shown = '(p {:.3f}, {:.3f})'.format(p['muon-mlm'], p['clm25-mlm']).replace('0.', '.')
    assert shown in words_of('docs/log.md') and max(p['mlm'], p['quick-1400']) < 0.01 < p['muon-mlm']


def ends(*studies):     # {(row, seed): the last line of its losses.csv}
    return {(line['row'], line['seed']): line for name in studies
            for line in csv.DictReader((ROOT / f'studies/{name}/losses.csv').open())}


def test_the_speedruns_rows_are_those_of_the_runs():
    last, page = ends('speedrun'), (ROOT / 'docs/speedrun.md').read_text()
    rows = re.findall(r'(?m)^\| steps \| `(\S+)` \|.*\| ([\d,]+) \| ([\d. ]+) \| (\S+) \| \w+ \|$', page)
    assert len(rows) >= 8
    for row, steps, values, p in (shown for shown in rows if shown[0] != 'falling'):   # which is not packed
        values = [*map(float, values.split())]
        assert values == pytest.approx([float(last[row, seed]['val_mlm_loss']) for seed in '0123'], abs=2e-3)
        assert last[row, '0']['step'] == steps.replace(',', '') and float(p) == pytest.approx(
            scipy.stats.ttest_1samp(values, speedrun.Rules.target, alternative='less').pvalue, rel=0.1), row


def test_the_tables_of_plateaus_are_those_of_the_runs():
    finding, page = (ROOT / 'docs/optimiser.md').read_text().split('## What moves')
    last, table = ends('optimiser'), re.findall(r'(?m)^\| `(\S*mlm-\d+)`.* \| ([\d, ]+) \|$', finding)
    assert len(table) == 8 and {numbers == ', '.join(
        f'{int(last[row, str(seed)]["plateau"]):,}' for seed in range(6)) for row, numbers in table} == {True}
    last, shown, page = ends('plateau', 'optimiser_tuning'), [], page.split('## Layers')[0]
    for row in re.findall(r'^\| .* \| (.*) \| ([\d.]+, [\d.]+) \|$', page, re.MULTILINE):
        shown.append(', '.join(row))
    runs = {row: [last[row, seed] for seed in ('100', '101')] for row, seed in last if seed == '101'}
    texts = {row: ', '.join([f'{int(line["plateau"]):,}' if line['plateau'] else 'never' for line in lines]
                            + [f'{float(line["val_mlm_loss"]):.2f}' for line in lines])
             for row, lines in runs.items()}
    wanted = [text for row, text in texts.items() if 'clm' not in row and row != 'mlm-3e-3']
    assert len(shown) == 25 and {*shown} == {*wanted}

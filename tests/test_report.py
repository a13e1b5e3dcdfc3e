"""Verdicts and Holm by hand; a made-up study from end to end, whole or damaged; two models beside it."""
import functools
import gzip
import itertools
import json
import math
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
import scipy.stats
from pytest import approx

import evaluate
import recompute
from answers import write
from conftest import ROOT, edit, flip, ran, refused_line, run_process, run_script, write_log
from nanoencoder.files import json_lines, read_json, sha256, write_json
from studies import beside, figures, page_numbers, report
from studies.counts import late
from studies.study import Contrast, load


def verdict(rule, mean, p, seeds=6, rules=2):
    """That of a contrast with a margin of 2."""
    seen = SimpleNamespace(mean=mean, unit='pretraining', by_seed=dict.fromkeys(range(seeds)))
    return report.verdict(seen, report.region(rule, 2), p, report.LEAST_SEEDS[rules])


@pytest.mark.parametrize('rule, low, high, word', [
    ('better', 0.1, 9, 'agrees'), ('better', -0.1, 9, 'cannot tell'), ('better', -9, -0.1, 'disagrees'),
    ('at_least', -1.9, -0.1, 'agrees'), ('at_least', -9, -1.9, 'cannot tell'),
    ('at_least', -9, -2.1, 'disagrees'),
    ('no_difference', -1.9, 1.9, 'agrees'), ('no_difference', -1.9, 2.1, 'cannot tell'),
    ('no_difference', -9, -1.9, 'cannot tell'), ('no_difference', 2.1, 9, 'disagrees'),
    ('better', math.nan, math.nan, 'cannot tell')])
def test_verdicts_at_each_side_of_each_rule(rule, low, high, word):
    """low and high are the ends of a 95 % interval."""
    rest = (high - low) / 38
    draws = np.linspace(low - rest, high + rest, 40_001)
    p = evaluate.p_value(draws, report.region(rule, 2 if rule != 'better' else 0))
    assert verdict(rule, draws.mean(), p) == word


@pytest.mark.parametrize('shift, rule, margin, p', [    # of 0.1, 0.2, .. 10
    (1.05, 'better', 0, 0.2), (2.05, 'no_difference', 1, 0.6),      # 70 above
    (3.05, 'no_difference', 7.1, 2 / 101)])
def test_p_values_are_against_the_nearest_bound(shift, rule, margin, p):
    draws = np.arange(1, 101) / 10 - shift
    assert evaluate.p_value(draws, report.region(rule, margin)) == approx(p)


def test_a_p_value_of_nan_is_nan():
    """Not the least that there is."""
    assert math.isnan(evaluate.p_value(np.full(100, math.nan)))
    assert math.isnan(evaluate.p_value(np.array([*range(1, 100), math.nan])))


def test_holm_by_hand():
    """0.005 x 4, 0.01 x 3, 0.03 x 2, and 0.04 x 1 not below the one before."""
    adjusted = report.holm(pandas.Series([0.01, 0.04, 0.03, 0.005]), 4)
    assert adjusted.to_dict() == approx({0: 0.03, 1: 0.06, 2: 0.06, 3: 0.02})
    assert report.holm(pandas.Series([0.5, 0.9]), 2).tolist() == [1, 1]


@pytest.mark.parametrize('p, seeds, count, rules, word', [
    (0.02, 6, 3, 2, 'cannot tell'), (0.02, 4, 2, 2, 'agrees'), (1e-4, 3, 1, 2, 'cannot tell'),
    (0.02, 3, 2, 1, 'agrees'), (1e-4, 2, 1, 1, 'cannot tell')])
def test_a_verdict_follows_holm_and_takes_four_pretrainings(p, seeds, count, rules, word):
    """Studies that were frozen when three were enough are judged as they were."""
    holms_p, = report.holm(pandas.Series([p]), count)
    assert verdict('better', 0.1, holms_p, seeds, rules) == word


@pytest.mark.parametrize('p, holms_p, is_near', [
    # of 10,000 draws: 2 x 3 x sqrt(0.0144 x 0.9856 / 10,000) = 0.00715, and 0.05 - 0.0432 = 0.0068
    (0.0144, 0.0432, True),
    # 2 x 3 x sqrt(0.0142 x 0.9858 / 10,000) = 0.00710, and 0.05 - 0.0426 = 0.0074
    (0.0142, 0.0426, False),
    # 2 x sqrt(0.0543 x 0.9457 / 10,000) = 0.00453; of 0.0547 it is 0.00455
    (0.0543, 0.0543, True), (0.0547, 0.0547, False), (1.0, 1.0, False), (math.nan, 1.0, False)])
def test_p_is_near_005_within_two_monte_carlo_errors(p, holms_p, is_near):
    assert report.is_near_005(p, holms_p, 10_000) == is_near


@pytest.mark.parametrize('rules, is_near', [(1, True), (2, False), (3, False)])
def test_with_random_t_the_error_of_p_is_larger(rules, is_near):
    """Of studies/optimiser, whose Holm's p is 0.0126 below 0.05: 2 x 0.0374 / 0.0036 x sqrt(0.0036 x 1.9964 /
    10,000) = 0.0176, and with 0.9964 in its place 0.0124."""
    assert report.is_near_005(0.0036, 0.0374, 10_000, rules) == is_near


@pytest.mark.parametrize('rule, inside, outside', [
    ('better', 'above 0', 'below 0'), ('at_least', 'above -1.2', 'below -1.2'),
    ('no_difference', 'within 1.2', 'not within 1.2')])
def test_where_points_lie(rule, inside, outside):
    claim = SimpleNamespace(contrast=SimpleNamespace(rule=rule), bounds=report.region(rule, 0.012))
    assert report.place_in_words(claim, True) == inside
    assert report.place_in_words(claim, False) == outside
    bounds = {'better': [0], 'at_least': [-1.2], 'no_difference': [-1.2, 1.2]}[rule]
    assert recompute.words_of('a lead', rule, 'agrees', bounds, 3) == inside
    assert recompute.words_of('a lead', rule, 'disagrees', bounds, 3) == outside
    assert recompute.words_of('end under Muon', rule, 'disagrees', bounds, 3) == 'disagrees'


@pytest.mark.parametrize('model, margin', [('mlm', 0.04), ('worse', 0)])
def test_a_margin_is_of_mlm_alone_and_never_negative(model, margin):
    """Of 0.6 - 0.2 a tenth; a row that another model begins is not MLM alone; no gain allows nothing."""
    means = {'mlm': 0.6, 'worse': 0.1, 'untrained': 0.2, 'clm-then-mlm': 0.9}

    def row_of(name):
        return SimpleNamespace(phases=['mlm'] * 9, begins='weights_from' if 'then' in name else ''), 9
    evidence = SimpleNamespace(cell=lambda name, *_: SimpleNamespace(mean=means[name]), row_of=row_of)
    contrast = Contrast('', 'at_least', {('clm-then-mlm', None): 1, (model, None): -1}, ['docs_tc'])
    assert report.find_margin(evidence, contrast) == approx(margin)


LONGER = [pytest.param(name, marks=pytest.mark.slow)
          for name in ('counts', 'definitions', 'novels', 'optimiser', 'optimiser_embedded', 'targets')]


@pytest.mark.parametrize('name', ['small', *LONGER])
def test_verdicts_are_recomputed_without_our_code(name):
    result = run_process('tests/recompute.py', f'studies/{name}', timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr


def test_scores_that_are_all_0_are_recomputed():
    """As those of taggers that were trained for a few steps."""
    draws = np.zeros(recompute.RESAMPLES)
    draws = recompute.with_seeds(draws, np.zeros(4), 0.0, np.random.default_rng(0))
    assert recompute.p_of(draws, [0]) == evaluate.p_value(draws) == 1


@pytest.mark.slow
@pytest.mark.parametrize('name', ['small', 'novels', 'optimiser_embedded'])
def test_a_frozen_page_is_written_again_to_the_byte(name, tmp_path):
    page = (ROOT / f'studies/{name}/report.md').read_bytes()
    shutil.copytree(ROOT / f'studies/{name}', tmp_path / name)
    (tmp_path / name / 'report.md').unlink()
    ran('studies.report', tmp_path / name)
    assert (tmp_path / name / 'report.md').read_bytes() == page


def test_the_figure_of_claims_is_of_the_table_of_verdicts():
    """Claims stand in the order of their words, and other contrasts of a study are left out. Of the paper's
    numbers each kind of task has one."""
    row = '| {} | a - b; docs_tc; {} | -2.8 [-4.6, -0.9] | [-4.6, -0.9] | 0/6 | {} | 0.08 | 0.2 | **{}** |\n'
    page = '## Verdicts\n\n| claim | ... |\n| ---|--- |\n'
    page += row.format('CLM wins.', 'better', 'TC +1.8, IR -10.7', 'disagrees')
    page += row.format('extra', 'better', 'no number', 'above 0')
    page += row.format('They are level.', 'no difference within 1.2', 'no number', 'cannot tell')
    ax, = figures.claims(page, {'level': 'They are level.', 'early': 'CLM wins.'}).axes
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == ['level: They are level. (tagging code words)', 'early: CLM wins. (tagging code words)']
    drawn = [float(line.get_xdata()[0]) for line in ax.get_lines() if line.get_color() == '#d1603d']
    assert drawn == [1.8, -10.7]
    assert [words.get_text() for words in ax.texts] == ['cannot tell', 'disagrees']
    shade, *_ = ax.collections    # between two bars
    assert np.ptp(shade.get_paths()[0].vertices[:, 0]) == approx(2.4)


# ---------------------------------------------------------------------------
# A made-up study
STUDY = '''
every_run = {'config': 'configs/tiny.py'}
seeds = (0, 1, 2)
every_task = {'models': ('*',)}
tasks = ({'config': 'configs/tasks/docs_tc.py', 'lrs': (1e-3, 2e-3)},
         {'config': 'configs/tasks/docs_ir.py', 'lrs': (1e-3,)})
finetuning_seeds = 2
rules = 1
contrasts = {
    'early': {'rule': 'better', 'weights': {'clm-1': 1, 'mlm-1': -1}, 'datasets': ('docs_tc', 'docs_ir')},
    'end under AdamW': {'rule': 'better', 'weights': {'mlm-4': 1, 'clm-4': -1}, 'datasets': ('docs_ir',)},
    'level': {'rule': 'no_difference', 'weights': {'clm-4': 1, 'mlm-4': -1}, 'datasets': ('docs_tc',)},
    'both': {'rule': 'at_least', 'weights': {'both-4': 1, 'mlm-4': -1}, 'datasets': ('docs_tc', 'docs_ir')},
    'rate': {'rule': 'better', 'weights': {'clm-2@1e-3': 1, 'clm-2@2e-3': -0.25, 'mlm-1': -0.75},
             'datasets': ('docs_tc',)},
}
ladder = {'CLM': ('clm-1', 'clm-2', 'clm-4'), 'MLM': ('mlm-1', 'mlm-2', 'mlm-4'),
          'CLM then MLM': ('both-1', 'both-2', 'both-4')}
'''
ROWS = {f'{name}-{k}': {'phases': ((name, 100 * k),)} for name in ('clm', 'mlm') for k in (1, 2, 4)}
ROWS |= {f'both-{k}': {'phases': (('clm', 25 * k), ('mlm', 75 * k)), 'branch_from': f'clm-{k}/{25 * k}'}
         for k in (1, 2, 4)}
SCORES = {'clm-1': 0.55, 'clm-2': 0.55, 'clm-4': 0.55, 'mlm-1': 0.4, 'mlm-2': 0.5, 'mlm-4': 0.6,
          # untrained: 0.2; a tenth of what MLM gains is 0.04
          'both-1': 0.5, 'both-2': 0.56, 'both-4': 0.6}
N = 500     # instances of a split
DATASETS = {'docs_tc': ('TC', 'entity F1'), 'docs_ir': ('IR', 'NDCG@10')}


def split_scores(score, draw):
    """A split of as many right answers as the score says, but for ten; all find the same ones easy."""
    easy = np.argsort(np.random.default_rng(7).random(N))
    right = np.zeros(N)
    right[easy[:round(N * score)]] = 1
    flipped = draw.choice(N, 10, replace=False)
    right[flipped] = 1 - right[flipped]
    standard = {'score': right.mean(), 'ids': 7, 'statistic': 'mean', 'columns': [right.tolist()]}
    return {'paper': {'score': right.mean()}, 'standard': standard}


def packed_line(model, seed, dataset, lr, number, score, draw, method='fine-tuned'):
    about = {'method': method, 'weights': 'fp32', 'data': dataset}
    folder = model
    if model in ROWS:
        about['pretraining'] = {'row': model, 'seed': seed}
        folder = f'{model}-s{seed}'
    task, metric = DATASETS[dataset]
    scores = {split: split_scores(score, draw) for split in ('validation', 'test')}
    return {'run': f'{folder}/{task}/{dataset}/lr{lr}_sd{number}', 'about': about,
            'scores': scores | {'name': metric}}


def write_packed(folder, name, lines):
    with gzip.open(folder / f'runs/{name}.jsonl.gz', 'wt') as file:
        file.write(json_lines(lines))
    write_digests(folder)


def read_packed(folder, name):
    with gzip.open(folder / f'runs/{name}.jsonl.gz') as file:
        return [json.loads(line) for line in file]


def write_digests(folder):
    paths = [*folder.glob('runs/*.gz'), *folder.glob('losses.csv')]
    write_json(folder / 'sha256.json', {str(path.relative_to(folder)): sha256(path) for path in paths})


@pytest.fixture
def toy(tmp_path):
    """The folder of a study with packed runs and losses."""
    draw = np.random.default_rng(0)
    folder = tmp_path / 'toy'
    (folder / 'runs').mkdir(parents=True)
    (folder / 'config.py').write_text(f'{STUDY}runs = {ROWS}\n')
    for seed in range(3):
        lines = [packed_line(model, seed, dataset, '1e-03', 10 * seed + k, score + 0.01 * (seed - 1), draw)
                 for model, score in SCORES.items() for dataset in DATASETS for k in range(2)]
        lines += [packed_line('clm-2', seed, 'docs_tc', '2e-03', 10 * seed + k, 0.5, draw) for k in range(2)]
        lines += [packed_line('clm-1', seed, 'docs_ir', rate, 10 * seed + k, 0.9, draw)
                  for k, rate in zip((0, 1, 2, 2), 3 * ['9e-03'] + ['1e-03'])]      # more than it asks for
        write_packed(folder, f's{seed}', lines)
    lines = [packed_line('untrained', 0, dataset, '1e-03', k, 0.05 + 0.3 * k, draw)     # on average 0.2
             for dataset in DATASETS for k in range(2)]
    lines += [packed_line('lookup', 0, 'docs_tc', '0e+00', 0, 0.45, draw, 'baseline'),
              packed_line('bm25', 0, 'docs_ir', '0e+00', 0, 0.95, draw, 'baseline')]
    write_packed(folder, 'other', lines)
    # up to its length MLM's loss falls by 1 each doubling: 8 at step 50, 7 at 100, 6 at 200
    table = ['folder,row,seed,step,tokens,val_mlm_loss']
    for seed, row, step in itertools.product(range(3), ROWS, (50, 100, 200, 400)):
        if step <= 100 * int(row[-1]):
            loss = 8.4
            if not row.startswith('clm'):
                loss = 8 - math.log2(step / 50) + seed / 100
            table.append(f'{row}-s{seed},{row},{seed},{step},{step * 10_000},{loss}')
    (folder / 'losses.csv').write_text('\n'.join(table) + '\n')
    write_digests(folder)
    return folder


@pytest.fixture
def few_resamples(monkeypatch):
    """For what does not hang on the draws."""
    monkeypatch.setattr(evaluate, 'Settings', functools.partial(evaluate.Settings, resamples=500))


def cells_of(text, heading):
    """{first cell: [the others]} of the table beneath a heading; {(two cells): ..} where lines start
    alike."""
    table = text.split(f'## {heading}\n')[1].split('\n## ')[0]
    rows = [[cell.strip() for cell in line.strip('|').split(' | ')] for line in table.splitlines()
            if line.startswith('| ')]
    if heading.startswith('Differences'):
        return {(arms, task): cells for arms, task, *cells in rows[2:]}
    return {first: cells for first, *cells in rows}


def made(folder, *options, code=0):
    """(the page, what is warned of) of a report."""
    result = run_script('studies.report', folder, *options)
    assert result.returncode == code, result.stderr
    return (folder / 'report.md').read_text(), result.stderr


CLAIMS = {name: claim['words'] for name, claim in read_json(report.CLAIMS).items()}


def test_a_made_up_study_from_end_to_end(toy):
    text, _ = made(toy)
    assert text.startswith('# toy\n\nPretraining seeds: 0, 1, 2, each fine-tuned with 2 seeds.\n')
    verdicts = cells_of(text, 'Verdicts')
    early = verdicts[CLAIMS['early']]
    assert early[0] == 'clm-1 - mlm-1; docs_tc, docs_ir; better'
    assert early[1].startswith('+14.')
    assert early[3:5] == ['3/3', 'TC +1.8, IR +10.7']
    assert early[7] == '**agrees**'
    assert verdicts[CLAIMS['end'] + ' (under AdamW)'][7] == '**agrees**'
    level = verdicts[CLAIMS['level']]
    assert 'no difference within 3.9' in level[0]
    assert level[7] == '**cannot tell**'
    assert verdicts[CLAIMS['both']][7] == '**agrees**'
    rate = verdicts[CLAIMS['rate']]
    assert rate[1].startswith('+12.')       # 55 less a quarter of 50 and three of 40
    assert rate[4] == 'no number'
    moves = cells_of(text, 'How the verdicts move')['early']
    assert moves[0] == ''
    assert moves[1].endswith('] agrees')
    tasks = cells_of(text, 'Claims by task')
    assert [float(cell.split()[0]) for cell in tasks['early'][:2]] == approx([15, 15], abs=1.5)
    assert 'level' not in tasks       # which is of one task
    rows = cells_of(text, 'All rows')
    assert rows['mlm-1'][:2] == ['1.0', '7.01 [6.99, 7.03]']   # 4.303 x 0.01 / sqrt(3)
    assert rows['lookup'][0] == ''
    assert rows['bm25'][3][0] == '9'
    assert ' [0.0, ' in rows['untrained'][2]
    assert (toy / 'ladder.png').stat().st_size > 5_000
    assert str(ROOT) not in text
    # three pairs of arms at three lengths on two tasks; Holm's p is 18 times the least that 10,000 draws show
    lengths = cells_of(text, 'Differences by length')
    assert len(lengths) == 6
    means = {key: [float(cell.split()[0]) for cell in cells] for key, cells in lengths.items()}
    assert means['CLM less MLM', 'docs_tc'] == approx([15, 5, -5], abs=1.5)    # SCORES
    assert means['MLM less CLM then MLM', 'docs_ir'] == approx([-10, -6, 0], abs=1.5)
    p = [float(cell.rpartition(', ')[2]) for cells in lengths.values() for cell in cells]
    assert min(p) == approx(18 * 2 / 10_001, abs=6e-4)


def test_three_pretrainings_were_enough_by_the_first_rules_alone(toy, few_resamples):
    """And a page made again is the same, in whatever order its runs are read."""
    first, _ = made(toy)
    write_packed(toy, 'other', read_packed(toy, 'other')[::-1])
    assert made(toy)[0] == first
    assert first.count('three pretrainings or more') == 2     # verdicts, lengths
    second, _ = made(toy, '--rules=2', '--title=of ours')
    assert second.startswith('# toy: of ours\n')
    assert second.count('four pretrainings or more') == 2
    assert second.count('**cannot tell**') == 5
    assert '**agrees**' in first
    assert '**agrees**' not in second


def test_what_the_third_rules_say(toy, few_resamples, monkeypatch):
    """Three pretrainings are let pass. Of no claim of the paper the sign is told; mlm-1's 0.4 is below 0.42,
    which new weights have here, and clm-1's 0.55 is not."""
    monkeypatch.setitem(report.LEAST_SEEDS, 3, 3)
    monkeypatch.setitem(report.NUMBERS, 3, 'three')
    lines = read_packed(toy, 'other')
    draw = np.random.default_rng(1)
    lines[:4] = [packed_line('untrained', 0, dataset, '1e-03', k, 0.42, draw)
                 for dataset in DATASETS for k in (0, 1)]
    write_packed(toy, 'other', lines)
    edit(toy / 'config.py', 'contrasts = {', """contrasts = {
    'a lead': {'rule': 'better', 'weights': {'clm-1': 1, 'mlm-1': -1}, 'datasets': ('docs_tc', 'docs_ir')},
    'a loss': {'rule': 'better', 'weights': {'clm-4': 1, 'mlm-4': -1}, 'datasets': ('docs_ir',)},""")
    text, _ = made(toy, '--rules=3', '--ladder={}')
    verdicts = cells_of(text, 'Verdicts')
    lead = verdicts['a lead (not a claim of the paper)']
    assert lead[0] == 'clm-1 - mlm-1; docs_tc°, docs_ir°; better'
    assert lead[7].startswith('**above 0')
    loss = verdicts['a loss (not a claim of the paper)']
    assert loss[0] == 'clm-4 - mlm-4; docs_ir; better'
    assert loss[7].startswith('**below 0')
    assert verdicts[CLAIMS['early']][7].startswith('**agrees')
    assert [cell[-1] for cell in cells_of(text, 'Claims by task')['a lead'][:2]] == ['°', '°']
    rows = cells_of(text, 'All rows')
    marked = {name for name, cells in rows.items() if '°' in ''.join(cells)}
    assert marked == {'mlm-1'}
    assert 'below `untrained`' in text.split('## Verdicts')[0]


@pytest.mark.parametrize('name', ['runs/s1.jsonl.gz', 'losses.csv'])
def test_a_flipped_bit_ends_the_report_before_it_is_written(toy, name):
    path = toy / name
    content = flip(path, path.stat().st_size // 2)
    report = 'studies.report', toy
    for words in (report, ['studies.packs', toy], ['studies.packs', toy, 'table']):
        refused_line(f'{path}: missing or changed since it was written; restore it', *words)
    path.unlink()
    (toy / 'runs/s9.jsonl.gz').write_bytes(content)
    refused_line(f'lacks s9.jsonl.gz, .* if that belongs there, rm -f .*packs.py {toy}', *report)
    (toy / 'sha256.json').unlink()      # as a kill of packs.py leaves it: no pack is to be removed
    refused_line(f'json: lacks other.jsonl.gz, as when a packing was stopped; .*packs.py {toy}', *report)
    assert not (toy / 'report.md').exists()
    assert not (toy / 'ladder.png').exists()


@pytest.mark.parametrize('old, new, words', [
    ("'phases': (('mlm', 200),)", "'phases': (('mlm', 200),), 'lr': 0.01", 'lr = 0.003, not 0.01'),
    ("'phases': (('mlm', 200),)", "'phases': (('mlm', 150), ('clm', 50))", r'phases = .+, not \[\['),
    ("'phases': (('mlm', 200),)", "'phases': (('mlm', 200),), 'mask_ratio': 0.2",
     'mask_ratio = 0.4, not 0.2'),
    ("'configs/tiny.py'", "'configs/tiny.py', 'seed_of': 0", 'unknown setting'),
    ("'configs/tiny.py'}", "'configs/tiny.py', 'optimizer': 'muon'}", 'matrix_lr_ratio = 1.0, not 6.7'),
    ("docs_tc.py', ", "docs_tc.py', 'epochs': 2, ",
     'clm-1-s0/TC/docs_tc/lr1e-03_sd0 was made with epochs = 1, n'),
    ("every_task = {", "every_task = {'warmup': 0.2, ",
     'was made with warmup = 0.1, not 0.2: give its task a')])
def test_a_page_is_of_the_runs_that_its_config_describes(toy, old, new, words):
    """What run.py would refuse is refused where results are told."""
    row, = (row for name, row in load([str(toy)])[0].rows.items() if name == 'mlm-2')
    write_json(toy / 'rows.json', {'mlm-2': row.stated | {'dtype': 'bf16'}})
    lines = read_packed(toy, 's0')
    lines[0]['about']['settings'] = {'epochs': 1, 'warmup': 0.1, 'lr': 0.001, 'dtype': 'fp32'}
    write_packed(toy, 's0', lines)
    edit(toy / 'config.py', old, new)
    for script in (['studies.report', toy], ['studies.packs', toy], ['studies.packs', toy, 'table']):
        refused_line(words, *script)
    assert not (toy / 'report.md').exists()


def test_losses_of_seeds_that_differ_in_a_setting_are_no_mean(toy, few_resamples):
    """In one of their pretraining's, or in what is held out. Their scores are left out already."""
    lines = read_packed(toy, 's1') + read_packed(toy, 's2')
    for line in lines:
        past = line['about']['pretraining']
        past['fixed'] = {'lr': 0.003, 'seed': past['seed']}
        if past['row'] == 'mlm-1' and past['seed'] == 2:
            past['fixed']['lr'] = 0.004
    write_packed(toy, 's1', lines)
    (toy / 'runs/s2.jsonl.gz').unlink()
    table = pandas.read_csv(toy / 'losses.csv')
    table['val_rows'] = 64.0
    table.loc[table['row'] == 'both-1', 'val_rows'] = [64, 64, 64, math.nan, 32, 32]
    table.to_csv(toy / 'losses.csv', index=False)
    write_digests(toy)
    text, told = made(toy, code=1)
    assert 'mlm-1: its held-out losses are left out: its seeds differ in lr\n' in told
    assert 'both-1: its held-out losses are left out: its seeds differ in val_rows\n' in told
    rows = cells_of(text, 'All rows')
    assert [rows[name][1] for name in ('mlm-1', 'both-1')] == ['', '']
    assert rows['mlm-2'][1].startswith('6.01 [')


def test_holm_counts_contrasts_whose_runs_are_missing(toy, few_resamples):
    def least_p():
        text, _ = made(toy)
        rows = [*cells_of(text, 'Verdicts').values()][2:]
        return min((float(p), float(holms_p)) for *_, p, holms_p, _ in rows)
    p, before = least_p()
    lost = "{'lost': {'rule': 'better', 'weights': {'clm-2': 1, 'mlm-1': -1}, 'datasets': ('docs_ir',)},"
    edit(toy / 'config.py', 'contrasts = {', f'contrasts = {lost}')
    assert least_p() == (p, approx(p * (before / p + 1), rel=0.02))


def test_one_pretraining_speaks_of_one_model(toy, few_resamples):
    """Of one seed: its fine-tunings are the units, a seed left out and Holm's p are not there."""
    text, _ = made(toy, '--seeds=(1,)', '--ladder={}')
    early = cells_of(text, 'Verdicts')[CLAIMS['early']]
    assert early[2:4] == ['one model', '2/2']
    assert float(early[5]) < 0.05
    assert early[7:] == ['**cannot tell**']
    assert cells_of(text, 'How the verdicts move')['early'][0] == ''
    assert cells_of(text, 'All rows')['mlm-1'][1] == '7.01'
    assert 'by length' not in text
    assert not (toy / 'ladder.png').exists()


def test_what_is_missing_is_named_and_the_rest_goes_on(toy, few_resamples):
    """All of one seed; one model of another; the same runs twice; a pretraining that has not ended."""
    for seed in range(2):
        lines = [line for line in read_packed(toy, f's{seed}')
                 if not line['run'].startswith(('mlm-4', 'clm-1-s1'))]
        lines += [line | {'run': line['run'].replace('both-2', 'again')} for line in lines
                  if line['run'].startswith('both-2')]
        write_packed(toy, f's{seed}', lines)
    (toy / 'runs/s2.jsonl.gz').unlink()
    edit(toy / 'losses.csv', 'mlm-4-s1,mlm-4,1,400', 'mlm-4-s9,mlm-4,9,400')
    write_digests(toy)
    text, told = made(toy, code=1)
    for words in ('warning: end under AdamW is not judged: there is no mlm-4 on docs_ir',
                  'no runs yet of pretraining seeds 2', 'clm-1 on docs_tc has no pretraining seeds 1',
                  'both-2 on docs_ir is left out: two runs'):
        assert told.count(words) == 1
    assert set(cells_of(text, 'How the verdicts move')) == {'claim', '---|---|---|---', 'early', 'rate'}
    assert 'Pretraining seeds: 0, 1, each' in text


# ---------------------------------------------------------------------------
# Two models beside it
def own_run(folder, name, right, place='lr1e-03_sd0'):
    """A model on docs_tc with so many of ten entities right."""
    rows = [{'id': k, 'gold': ['B-X'], 'pred': ['B-X' if k < right else 'O']} for k in range(10)]
    row, _, seed = name.partition('-s')
    past = {'row': row, 'seed': seed}
    write(folder / f'predictions/{name}/TC/docs_tc', rows, place, data='docs_tc', pretraining=past)


def test_two_models_beside_earlier_seeds(toy, tmp_path, monkeypatch):
    """Of 1, 2, 3 the mean is 2 and s is 1; t of two degrees of freedom is 4.3027; 4.3027 sqrt(1 + 1 / 3)."""
    own_run(tmp_path, 'mlm-1-s7', 5)
    own_run(tmp_path, 'clm-1-s7', 8)
    own_run(tmp_path, 'other', 8)       # its grid is incomplete, and nobody asks for it
    own_run(tmp_path, 'other', 8, 'lr2e-03_sd1')
    for name in ('mlm-1-s7', 'clm-1-s7'):
        write_log(tmp_path / 'out' / name, [3], 7.53)
    monkeypatch.setattr(report.Evidence, 'percents', lambda self, weights, datasets: [1, 2, 3])
    words = [f'--predictions={tmp_path}/predictions', f'--out={tmp_path}/out', f'--figures={tmp_path}']
    printed = ran('studies.beside', toy, 'mlm-1', 'clm-1', *words).stdout
    points, first, second, where, picture = printed.splitlines()
    f1 = 100 * (2 * 8 / 18 - 2 * 5 / 15)
    assert points == (f'docs_tc: clm-1 minus mlm-1 {f1:+.1f} points (three earlier seeds: +2.0; a new seed '
                      'should fall between -3.0 and +7.0)')
    assert first == ('mlm-1: held-out MLM loss 7.50 (three earlier seeds: 7.01; '
                     'a new seed should fall between 6.96 and 7.06)')
    assert second.startswith('clm-1: held-out MLM loss 7.50 (three earlier seeds: 8.40')
    assert where == ('Outside of where 19 of 20 new seeds should fall: tagging code words, '
                     'last loss of mlm-1, last loss of clm-1')
    assert picture == f'{tmp_path}/beside.png'
    assert (tmp_path / 'beside.png').stat().st_size > 5_000
    own_run(tmp_path, 'clm-1-s8', 9)    # a second seed, which a folder leaves out
    of_row = ran('studies.beside', toy, 'mlm-1', 'out/clm-1-s7', *words).stdout.splitlines()
    assert [line.replace('clm-1-s7', 'clm-1') for line in of_row] == printed.splitlines()


def test_a_model_that_the_study_has_not_is_named(toy, tmp_path):
    own_run(tmp_path, 'mlm-1-s7', 5)
    own_run(tmp_path, 'new', 9)
    words = [f'--predictions={tmp_path}/predictions', f'--out={tmp_path}/out', f'--figures={tmp_path}']
    result = run_script('studies.beside', toy, 'mlm-1', 'out/new', *words)
    assert f'{toy} has no new on docs_tc: name two of its rows, or folders of runs' in result.stderr
    assert result.stderr.endswith('out/new: no pretraining there, whose held-out loss could be told\n')


def test_the_picture_has_your_numbers_on_the_ranges_of_earlier_seeds():
    """Of 1, 2, 3 as above; of 4, 4 the range has no width."""
    of_points = beside.range_of([1, 2, 3])
    assert of_points[:2] == (3, 2)
    assert of_points[2:] == approx((2 - 4.968, 2 + 4.968), abs=1e-3)
    level = beside.range_of([4, 4])
    assert level == (2, 4, 4, 4)
    assert beside.range_of([1]) is None

    curve = beside.Curve('mlm-1', 'MLM', {3: 6.5, 6: 4.5}, {2: of_points, 6: level}, level)
    assert curve.last == 4.5
    scores = [('docs_tc', 6.9, of_points), ('docs_ir', 7.0, of_points)]
    title = beside.where_yours_fall([*scores, ('mlm-1', 4.5, level), ('other', 9, None)])
    assert title == 'Outside of where 19 of 20 new seeds should fall: docs_ir, mlm-1'
    assert beside.where_yours_fall([('docs_tc', 4, level)]).startswith('Your scores and last losses fall')
    assert 'no earlier seeds' in beside.where_yours_fall([('other', 9, None)])

    drawn = beside.draw(title, {'mlm-1': 'mlm-1', 'clm-1': 'clm-1'}, [curve], scores)
    losses, points = drawn.axes
    means, yours = [line.get_xydata().tolist() for line in losses.get_lines()]
    assert (means, yours) == ([[2, 2], [6, 4]], [[3, 6.5], [6, 4.5]])
    band, = losses.collections
    corners = band.get_paths()[0].vertices
    assert {*corners[corners[:, 0] == 2, 1].round(2)} == {-2.97, 6.97}
    bars = [line.get_xdata() for line in points.get_lines() if len(line.get_xdata()) == 2]
    assert bars[0] == approx([-2.968, 6.968], abs=1e-3)
    assert [words.get_text() for words in points.texts] == ['+6.9', '+7.0']
    assert [label.get_text() for label in points.get_yticklabels()] == [
        'tagging code words', 'finding documentation']


def test_as_many_fine_tunings_of_earlier_seeds_count_as_were_made_on_the_studys_datasets():
    runs = [SimpleNamespace(seed=seed, dataset=dataset)
            for seed, dataset in ((70, 'docs_tc'), (70, 'docs_ir'), (0, 'reviews'), (1, 'reviews'))]
    assert beside.fine_tunings(runs, {'docs_tc', 'docs_ir'}) == 1


def test_a_line_of_identity_and_the_table_of_late_md():
    """The judge of both is scipy's Student t, over the shares that late.csv has."""
    folder = ROOT / 'studies/counts'
    lines = pandas.read_csv(folder / 'late.csv', index_col=['row', 'step', 'seed']).sort_index()
    percents = lines['identity']
    shares = {index: percent / 100 for index, percent in percents.items()}
    _, *rows = page_numbers.cells_of((folder / 'late.md').read_text())
    assert len(rows) == 6
    for optimizer, step, cell, *_ in rows:
        step = int(step.replace(',', ''))
        prefix = 'muon-' if optimizer == 'Muon' else ''
        names = [f'{prefix}{arm}-{max(step, 1_800)}' for arm in ('clm25-mlm', 'mlm')]
        leads = percents[names[0], step] - percents[names[1], step]
        expected = leads.mean(), *scipy.stats.t.interval(0.95, 5, leads.mean(), scipy.stats.sem(leads))
        for words in (cell, late.identity_row(shares, step, *names)):
            numbers = [float(number) for number in re.findall(r'[-+]?\d+\.\d', words)]
            assert numbers == approx(expected, abs=0.07)
            assert words.endswith(f'{sum(leads > 0)}/6')

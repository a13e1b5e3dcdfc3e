"""Verdicts and Holm by hand; a made-up study from end to end, whole or damaged."""
import gzip
import itertools
import json
import math
from dataclasses import make_dataclass
from types import SimpleNamespace

import numpy as np
import pytest

import evaluate
from conftest import ROOT, one_line_error, run_process, run_script
from nanoencoder.files import sha256
from nanoencoder.judging import paper, report, statistics


def judged(rule, mean, p, seeds=6, margin=2, rules=2):
    seen = SimpleNamespace(mean=mean, unit='pretraining', units=dict.fromkeys(range(seeds)))
    least = report.LEAST_SEEDS[rules]
    return report.Judged(SimpleNamespace(rule=rule), margin, {'both': seen}, {'both': p}, least)


@pytest.mark.parametrize('rule, low, high, word', [     # the margin is 2
    ('better', 0.1, 9, 'agrees'), ('better', -0.1, 9, 'cannot tell'), ('better', -9, 0.1, 'cannot tell'),
    ('better', -9, -0.1, 'disagrees'),
    ('at_least', -1.9, 9, 'agrees'), ('at_least', -1.9, -0.1, 'agrees'), ('at_least', -2.1, 9, 'cannot tell'),
    ('at_least', -9, -1.9, 'cannot tell'), ('at_least', -9, -2.1, 'disagrees'),
    ('no_difference', -1.9, 1.9, 'agrees'), ('no_difference', 0.1, 1.9, 'agrees'),
    ('no_difference', -1.9, 2.1, 'cannot tell'), ('no_difference', -9, 9, 'cannot tell'),
    ('no_difference', 2.1, 9, 'disagrees'), ('no_difference', -9, -2.1, 'disagrees')])
def test_verdicts_at_each_side_of_each_rule(rule, low, high, word):
    """low and high are the ends of a 95 % interval."""
    rest = (high - low) / 38
    draws = np.linspace(low - rest, high + rest, 40_001)
    p = statistics.p_value(draws, report.REGIONS[rule](2))
    assert judged(rule, draws.mean(), p).verdict('both', p) == word


def test_p_values_are_against_the_nearest_bound():
    draws, p_value = np.arange(1, 101) / 10, statistics.p_value    # 0.1 .. 10
    assert p_value(draws - 1.05, report.REGIONS['better'](0)) == pytest.approx(0.2)       # ten draws below 0
    assert p_value(draws - 2.05, report.REGIONS['at_least'](1)) == pytest.approx(0.2)
    assert p_value(draws - 2.05, report.REGIONS['no_difference'](1)) == pytest.approx(0.6)    # 70 above
    assert p_value(draws - 3.05, report.REGIONS['no_difference'](7.1)) == pytest.approx(2 / 101)


def test_holm_by_hand_and_a_verdict_follows_it_and_takes_four_pretrainings():
    """0.005 x 4, 0.01 x 3, 0.03 x 2, and 0.04 x 1 not below the one before. Fewer pretrainings may coincide;
    studies that were frozen when three were enough are judged as they were."""
    assert report.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert report.holm([0.5, 0.9]) == [1, 1] and report.holm([]) == []
    for p, seeds, count, rules, word in (
            (0.02, 6, 1, 2, 'agrees'), (0.02, 6, 3, 2, 'cannot tell'), (0.02, 4, 2, 2, 'agrees'),
            (1e-4, 3, 1, 2, 'cannot tell'), (0.02, 3, 2, 1, 'agrees'), (1e-4, 2, 1, 1, 'cannot tell')):
        one = judged('better', 0.1, p, seeds, rules=rules)
        assert one.verdict('both', report.holm([p], count)[0]) == word


def test_a_margin_is_of_mlm_alone_and_never_negative():
    """Of 0.6 - 0.2 a tenth; a row that another model begins is not MLM alone; no gain allows nothing."""
    def cell(model, dataset, lr=None):
        return SimpleNamespace(mean={'mlm': 0.6, 'worse': 0.1, 'untrained': 0.2}.get(model, 0.9))
    rows = {name: SimpleNamespace(phases=['mlm'] * 9, begins='weights_from' * ('then' in name))
            for name in ('mlm', 'worse', 'clm-then-mlm')}
    study = SimpleNamespace(cell=cell, row_of=lambda model: (rows.get(model), 9))
    for model, margin in (('mlm', 0.04), ('worse', 0)):
        weights = {('clm-then-mlm', None): 1, (model, None): -1}
        assert report.Evidence.margin(study, weights, ['docs_tc']) == pytest.approx(margin)


STUDY = '''
corpus = {'config': 'configs/corpora/docs.py'}
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
    'rate': {'rule': 'better', 'weights': {'clm-2@1e-3': 1, 'clm-2@2e-3': -1}, 'datasets': ('docs_tc',)},
}
ladder = {'CLM': ('clm-1', 'clm-2', 'clm-4'), 'MLM': ('mlm-1', 'mlm-2', 'mlm-4'),
          'CLM then MLM': ('both-1', 'both-2', 'both-4')}
'''
RUNS = {f'{name}-{k}': {'phases': ((name, 100 * k),)} for name in ('clm', 'mlm') for k in (1, 2, 4)}
RUNS |= {f'both-{k}': {'phases': (('clm', 25 * k), ('mlm', 75 * k)), 'branch_from': f'clm-{k}/{25 * k}'}
         for k in (1, 2, 4)}
SCORES = {'untrained': 0.2, 'clm-1': 0.55, 'clm-2': 0.55, 'clm-4': 0.55, 'mlm-1': 0.4, 'mlm-2': 0.5,
          'mlm-4': 0.6, 'both-1': 0.5, 'both-2': 0.56, 'both-4': 0.6}   # a tenth of what MLM gains is 0.04
N = 500     # instances of a split


def split_scores(score, draw):
    """A split of as many right answers as the score says, but for ten; all find the same ones easy."""
    easy = np.argsort(np.random.default_rng(7).random(N))
    right = np.zeros(N)
    right[easy[:round(N * score)]] = 1
    flipped = draw.choice(N, 10, replace=False)
    right[flipped] = 1 - right[flipped]
    return {'paper': {'score': right.mean()}, 'standard': {
        'score': right.mean(), 'ids': 7, 'statistic': 'mean', 'columns': [right.tolist()],
        'others': {}}}


def packed_line(model, seed, dataset, lr, finetuning, score, draw, method='fine-tuned'):
    about, folder = {'method': method, 'weights': 'fp32', 'data': dataset}, model
    if model in RUNS:
        steps = 100 * int(model[-1])
        about['pretraining'] = {
            'phases': RUNS[model]['phases'], 'mask_ratio': 0.4, 'step': steps, 'flops': 1e9 * steps,
            'family': '0.9M', 'continues': '', 'row': model, 'seed': seed}
        folder = f'{model}-s{seed}'
    task, name = {'docs_tc': ('TC', 'entity F1'), 'docs_ir': ('IR', 'NDCG@10')}[dataset]
    scores = {split: split_scores(score, draw) for split in ('validation', 'test')}
    return {'run': f'{folder}/{task}/{dataset}/lr{lr}_sd{finetuning}', 'about': about,
            'scores': {'name': name} | scores}


def write_packed(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.GzipFile(path, 'wb', mtime=0) as file:
        file.writelines(json.dumps(line).encode() + b'\n' for line in lines)
    write_digests(path.parents[1])


def read_packed(path):
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def write_digests(folder):
    paths = [*folder.glob('runs/*.gz'), *folder.glob('losses.csv')]
    digests = {str(path.relative_to(folder)): sha256(path) for path in paths}
    (folder / 'sha256.json').write_text(json.dumps(digests))


@pytest.fixture
def study(tmp_path):
    """A study's folder with packed runs and losses: its config's path, and options for it."""
    draw = np.random.default_rng(0)
    (tmp_path / 'toy.py').write_text(f'{STUDY}runs = {RUNS}\n')
    for seed in range(3):
        lines = [packed_line(model, seed, dataset, '1e-03', 10 * seed + k, score + 0.01 * (seed - 1), draw)
                 for model, score in SCORES.items() for dataset in ('docs_tc', 'docs_ir') for k in range(2)
                 if model != 'untrained']
        lines += [packed_line('clm-2', seed, 'docs_tc', '2e-03', 10 * seed + k, 0.5, draw) for k in range(2)]
        lines += [packed_line('clm-1', seed, 'docs_ir', rate, 10 * seed + k, 0.9, draw)
                  for k, rate in zip((0, 1, 2, 2), 3 * ['9e-03'] + ['1e-03'])]      # more than it has
        write_packed(tmp_path / f'toy/runs/s{seed}.jsonl.gz', lines)
    lines = [packed_line('untrained', 0, dataset, '1e-03', k, 0.05 + 0.3 * k, draw)     # on average 0.2
             for dataset in ('docs_tc', 'docs_ir') for k in range(2)]
    lines += [packed_line('lookup', 0, 'docs_tc', '0e+00', 0, 0.45, draw, 'baseline'),
              packed_line('bm25', 0, 'docs_ir', '0e+00', 0, 0.95, draw, 'baseline')]
    write_packed(tmp_path / 'toy/runs/other.jsonl.gz', lines)
    # up to its length MLM's loss falls by 1 each doubling: 8 at step 50, 7 at 100, 6 at 200
    rows = ['folder row seed step tokens seconds train_loss val_clm_loss val_mlm_loss'.split()]
    for seed, row, step in itertools.product(range(3), RUNS, (50, 100, 200, 400)):
        if step <= 100 * int(row[-1]):
            loss = 8 - math.log2(step / 50) - 0.1 * row.startswith('both') + seed / 100
            loss = 8.4 if row.startswith('clm') else loss
            rows.append([f'{row}-s{seed}', row, seed, step, step * 10_000, 1.5, loss, 5.0, loss])
    (tmp_path / 'toy/losses.csv').write_text(''.join(','.join(map(str, row)) + '\n' for row in rows))
    write_digests(tmp_path / 'toy')
    return tmp_path / 'toy.py', f'--folder={tmp_path}/toy'


@pytest.fixture
def few_resamples(monkeypatch):
    """For what does not hang on the draws."""
    few = make_dataclass('Few', [('resamples', int, 500)], bases=(evaluate.Settings,), frozen=True)
    monkeypatch.setattr(evaluate, 'Settings', few)


def cells_of(text, heading):
    """{first cell: [the others]} of the table beneath a heading."""
    table = text.split(f'## {heading}\n')[1].split('\n## ')[0]
    rows = [[cell.strip() for cell in line.strip('|').split(' | ')] for line in table.splitlines()
            if line.startswith('| ')]
    return {row[0].strip(): row[1:] for row in rows}


def made(study, *options, code=0):
    """(the page, what is warned of) of a report."""
    result = run_script('evaluate.py', 'report', *study, *options)
    assert result.returncode == code, result.stderr
    return (study[0].parent / 'toy/report.md').read_text(), result.stderr


@pytest.mark.parametrize('name', ['small', 'novels', 'optimiser', 'optimiser_embedded'])
def test_verdicts_are_recomputed_without_our_code(name):
    result = run_process('tests/recompute.py', f'studies/{name}')
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_made_up_study_from_end_to_end(study):
    text, _ = made(study)
    judged = cells_of(text, 'Verdicts')
    early = judged[paper.claims()['early']['words']]
    assert early[0] == 'clm-1 - mlm-1; docs_tc, docs_ir; better' and early[1].startswith('+14.')
    assert early[3:5] == ['3/3', 'TC +1.8, IR +10.7'] and early[7] == '**agrees**'
    assert judged[paper.claims()['end']['words'] + ' (under AdamW)'][7] == '**agrees**'
    level = judged[paper.claims()['level']['words']]
    assert 'no difference within 3.9' in level[0] and level[7] == '**cannot tell**'
    assert judged[paper.claims()['both']['words']][7] == '**agrees**'
    assert judged[paper.claims()['rate']['words']][4] == 'no number'
    views = cells_of(text, 'How the verdicts move')
    assert views['early'][0] == '' and views['early'][1].endswith('] agrees') and len(views['early']) == 3
    rows = cells_of(text, 'All rows')
    assert rows['mlm-1'][:2] == ['1.0', '7.01 [6.99, 7.03]']   # 4.303 x 0.01 / sqrt(3)
    assert rows['lookup'][0] == '' and rows['bm25'][3][0] == '9' and ' [0.0, ' in rows['untrained'][2]
    assert (study[0].parent / 'toy/ladder.png').stat().st_size > 5_000 and str(ROOT) not in text
    # each of three pairs of arms at three lengths on two tasks, Holm's over all 18: the least p is 18 times
    # the least that 10,000 draws show
    table = text.split('## Differences by length\n')[1].split('\n## ')[0]
    assert 'Not frozen' in table and '| arms | task | 100 steps | 200 steps | 400 steps |' in table
    rows = [line.strip('| ').split(' | ') for line in table.splitlines() if ' less ' in line]
    assert len(rows) == 6
    differences = {(arms, task): [float(cell.split()[0]) for cell in cells] for arms, task, *cells in rows}
    assert differences['CLM less MLM', 'docs_tc'] == pytest.approx([15, 5, -5], abs=1.5)    # SCORES
    assert differences['MLM less CLM then MLM', 'docs_ir'] == pytest.approx([-10, -6, 0], abs=1.5)
    values = [float(cell.rpartition(', ')[2]) for _, _, *cells in rows for cell in cells]
    assert min(values) == pytest.approx(18 * 2 / 10_001, abs=6e-4) and max(values) <= 1


def test_three_pretrainings_were_enough_by_the_first_rules_alone(study, few_resamples):
    words = 'three pretrainings or more'
    first, _ = made(study)
    second, _ = made(study, '--rules=2')
    assert words in first and '**agrees**' in first and words not in second
    assert second.count('four pretrainings or more') == first.count(words) == 2     # verdicts, lengths
    verdicts = {cells[7] for claim, cells in cells_of(second, 'Verdicts').items() if '---' not in claim}
    assert verdicts == {'verdict', '**cannot tell**'}


def test_a_report_made_again_is_the_same(study, few_resamples):
    """In whatever order its runs are read."""
    pages, packed = [], study[0].parent / 'toy/runs/other.jsonl.gz'
    for _ in range(2):
        write_packed(packed, read_packed(packed)[::-1])
        pages.append((made(study)[0], (study[0].parent / 'toy/ladder.png').read_bytes()))
    assert pages[0] == pages[1]


@pytest.mark.parametrize('name', ['runs/s1.jsonl.gz', 'losses.csv'])
def test_a_flipped_bit_ends_the_report_before_it_is_written(study, name, few_resamples):
    folder = study[0].parent / 'toy'
    (folder / 'report.md').write_text('as it was')
    path = folder / name
    content = path.read_bytes()
    for place in (0, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1:])
        for words in (('report', *study), ('pack', folder)):
            one_line_error(run_script('evaluate.py', *words), f'{path}: changed since it was written; rest')
    path.unlink()
    one_line_error(run_script('evaluate.py', 'report', *study), f'{path}: No such file')
    (folder / 'runs/s9.jsonl.gz').write_bytes(content)
    one_line_error(run_script('evaluate.py', 'report', *study), 'lacks s9.jsonl.gz; remove either, then ')
    (folder / 'sha256.json').unlink()
    one_line_error(run_script('evaluate.py', 'report', *study), f'then evaluate.py pack {folder}')
    assert (folder / 'report.md').read_text() == 'as it was' and not (folder / 'ladder.png').exists()


def test_holm_counts_contrasts_whose_runs_are_missing(study, few_resamples):
    def smallest():
        rows = cells_of(made(study)[0], 'Verdicts').values()
        return min((float(row[5]), float(row[6])) for row in rows if row[5:6] and row[5][0] == '0')
    (p, before), config = smallest(), study[0].read_text()
    study[0].write_text(config.replace('contrasts = {', "contrasts = {\n    'lost': {'rule': 'better', "
                                       "'weights': {'clm-2': 1, 'mlm-1': -1}, 'datasets': ('docs_ir',)},"))
    assert smallest() == (p, pytest.approx(p * (before / p + 1), rel=0.02))


def test_one_pretraining_speaks_of_one_model(study, few_resamples):
    """Of one seed: its fine-tunings are the units, a seed left out and Holm's p are not there."""
    text, _ = made(study, '--seeds=(1,)', '--ladder={}')
    early = cells_of(text, 'Verdicts')[paper.claims()['early']['words']]
    assert early[2:4] == ['one model', '2/2'] and float(early[5]) < 0.05
    assert early[7:] == ['**cannot tell**'] and cells_of(text, 'How the verdicts move')['early'][0] == ''
    assert cells_of(text, 'All rows')['mlm-1'][1] == '7.01' and 'by length' not in text
    assert not (study[0].parent / 'toy/ladder.png').exists()


def test_what_is_missing_is_named_and_the_rest_goes_on(study, few_resamples):
    """All of one seed; one model of another; a pretraining that has not come to its end has no last loss."""
    folder = study[0].parent / 'toy'
    for path in folder.glob('runs/s*'):
        lines = [line for line in read_packed(path) if not line['run'].startswith(('mlm-4', 'clm-1-s1'))]
        write_packed(path, lines + [line | {'run': line['run'].replace('both-2', 'again')} for line in lines
                                    if line['run'].startswith('both-2')])   # the same runs twice
    (folder / 'runs/s2.jsonl.gz').unlink()
    text = (folder / 'losses.csv').read_text()
    (folder / 'losses.csv').write_text(text.replace('mlm-4-s1,mlm-4,1,400', 'mlm-4-s9,mlm-4,9,400'))
    write_digests(folder)
    text, told = made(study, code=1)
    assert 'warning: end under AdamW is not judged: there is no mlm-4 on docs_ir' in told
    assert told.count('both-2 on docs_ir is left out: two runs') == 1
    assert 'no runs yet of pretraining seeds 2' in told
    assert 'clm-1 on docs_tc has no pretraining seeds 1' in told
    assert set(cells_of(text, 'How the verdicts move')) == {'claim', '---|---|---|---', 'early', 'rate'}
    assert 'Pretraining seeds: 0, 1, each' in text


def test_one_more_pretraining_by_hand():
    """Of 1, 2, 3 the mean is 2 and s is 1; t of two degrees of freedom is 4.3027; 4.3027 sqrt(1 + 1 / 3)."""
    def evidence(points, losses, data):
        study = SimpleNamespace(rows={'clm': SimpleNamespace(phases=['mlm', 'clm'])}, comparisons=[line],
                                folder='studies/small')
        return SimpleNamespace(study=study, last=lambda _, name: losses if name == 'val_clm_loss' else [],
                               percents=lambda weights, datasets: points, problems=problems,
                               about={'words': SimpleNamespace(data=data)}, datasets=['words'])
    weights, problems = {('mlm', None): -1, ('clm', None): 1}, []
    line = SimpleNamespace(name='', weights=weights, datasets=('words',))
    assert report.beside(evidence([2.5], [4.0], 'a'), evidence([1, 2, 3], [4.0, 5.0, 6.0], 'b')) == [
        'clm - mlm, words, points: yours +2.5; 3 seeds of small +2.0, between -3.0 and +7.0 for one more',
        'clm, held-out CLM loss: yours 4.00; 3 seeds of small 5.00, between 0.03 and 9.97 for one more']
    assert problems == ['words: its rows are not those of studies/small; other packages?']
    def lacks(weights, datasets):
        raise report.Missing('clm on words')
    here, there = evidence([2.5], [4.0], 'a'), evidence([], [], 'a')
    there.percents = lacks      # a new row, which only the study at hand has
    assert report.beside(here, there) == [
        'clm - mlm, words, points: yours +2.5', 'clm, held-out CLM loss: yours 4.00']
    here.percents = lacks
    assert report.beside(here, there) == ['clm, held-out CLM loss: yours 4.00']
    assert {*problems[1:]} == {' is not compared: there is no clm on words'}

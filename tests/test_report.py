"""Verdicts, Holm, ladders and crossings by hand; the paper's numbers; a made-up study from end to end."""
import csv
import gzip
import itertools
import json
import math
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats

import evaluate
from conftest import ROOT, one_line_error, run_script
from nanoencoder import studies
from nanoencoder.judging import evidence, figures, paper, report
from nanoencoder.judging.evidence import bounds
from nanoencoder.judging.intervals import p_value

OCTAVE = math.log2(1.29)    # what CLM costs more than MLM, as a share of a doubling


# ------------------------------------------------------------------------------------------------------ rules

@pytest.mark.parametrize('rule, low, high, word', [     # the margin is 2
    ('better', 0.1, 9, 'agrees'), ('better', -0.1, 9, 'cannot tell'), ('better', -9, 0.1, 'cannot tell'),
    ('better', -9, -0.1, 'disagrees'),
    ('at_least', -1.9, 9, 'agrees'), ('at_least', -1.9, -0.1, 'agrees'), ('at_least', -2.1, 9, 'cannot tell'),
    ('at_least', -9, -1.9, 'cannot tell'), ('at_least', -9, -2.1, 'disagrees'),
    ('no_difference', -1.9, 1.9, 'agrees'), ('no_difference', 0.1, 1.9, 'agrees'),
    ('no_difference', -1.9, 2.1, 'cannot tell'), ('no_difference', -9, 9, 'cannot tell'),
    ('no_difference', 2.1, 9, 'disagrees'), ('no_difference', -9, -2.1, 'disagrees')])
def test_verdicts_at_each_side_of_each_rule(rule, low, high, word):
    assert evidence.verdict(rule, low, high, 2) == word


def test_rules_are_those_of_studies():
    assert {*evidence.REGIONS} == {*studies.RULES}


def test_holm_by_hand():
    """0.005 x 4, 0.01 x 3, 0.03 x 2, and 0.04 x 1 not below the one before."""
    assert evidence.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert evidence.holm([0.5, 0.9]) == [1, 1] and evidence.holm([]) == []


def test_p_values_are_against_the_nearest_bound():
    draws = np.arange(1, 101) / 10    # 0.1 .. 10
    assert p_value(draws - 1.05, bounds('better')) == pytest.approx(0.2)       # ten draws below 0
    assert p_value(draws - 2.05, bounds('at_least', 1)) == pytest.approx(0.2)
    assert p_value(draws - 2.05, bounds('no_difference', 1)) == pytest.approx(0.6)  # 70 above, 30 below
    assert p_value(draws - 3.05, bounds('no_difference', 7.1)) == pytest.approx(2 / 101)   # none: a bound


@pytest.mark.parametrize('rule', evidence.REGIONS)
def test_p_and_verdict_agree(rule):
    random = np.random.default_rng(0)
    for _ in range(200):
        draws = random.normal(random.normal(0, 3), random.uniform(0.1, 2), 4_000)
        word = evidence.verdict(rule, *np.percentile(draws, [2.5, 97.5]), 1.0)
        assert (p_value(draws, bounds(rule, 1.0)) < 0.0505) >= (word != 'cannot tell')
        assert (p_value(draws, bounds(rule, 1.0)) > 0.0495) >= (word == 'cannot tell')


def test_intervals_over_seeds_equal_scipy():
    values = [0.3, 0.5, 0.1, 0.45]
    theirs = scipy.stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert evidence.over_seeds(values) == pytest.approx((np.mean(values), *theirs))
    assert math.isnan(evidence.over_seeds([0.3])[1])


def test_what_decides_by_hand():
    """Six seeds that differ by 1 have the half t(5) / sqrt(6) = 1.049. t(17) / sqrt(18) is 0.497 and
    t(16) / sqrt(17) 0.514. Where instances alone matter, 5 times as many make 2 into 2 / sqrt(5) = 0.894."""
    assert evidence.what_decides(0.5, 6, 1.0494, 1.0494) == 'about 18 seeds'
    assert evidence.what_decides(0.9, 6, 2, 1e-9) == 'about 5 times the test instances'
    assert evidence.what_decides(0.01, 6, 1, 0.7) == 'over 50 seeds'


# ---------------------------------------------------------------------------------------------------- ladders

def test_places_between_two_lengths():
    assert evidence.shares_at(4, [2, 8, 32]) == pytest.approx({0: 0.5, 1: 0.5})
    assert evidence.shares_at(8, [2, 8, 32]) == {1: 1} and evidence.shares_at(2, [2]) == {0: 1}
    with pytest.raises(ValueError, match='not within'):
        evidence.shares_at(1, [2, 8])


def test_equal_flops_by_hand():
    """MLM takes 1, 2, 4 and CLM 1.29 times as much: the budget is MLM's, at the least length CLM's."""
    flops = {f'mlm{n}': n for n in (1, 2, 4)} | {f'clm{n}': 1.29 * n for n in (1, 2, 4)}
    ladder = [['clm1', 'clm2', 'clm4'], ['mlm1', 'mlm2', 'mlm4']]
    assert evidence.mix_at_budgets({'clm1': 1, 'mlm1': -1}, ladder, flops) == pytest.approx(
        {'clm1': 1, 'mlm1': OCTAVE - 1, 'mlm2': -OCTAVE})
    for n in (2, 4):
        assert evidence.mix_at_budgets({f'clm{n}': 1, f'mlm{n}': -1}, ladder, flops) == pytest.approx(
            {f'clm{n // 2}': OCTAVE, f'clm{n}': 1 - OCTAVE, f'mlm{n}': -1})
    for weights, own in (({'clm1': 1, 'other': -1}, ladder), ({'clm1': 1, 'mlm1': -1}, [['clm1'], ['mlm1']]),
                         ({'clm1': 1, 'clm2': 1, 'mlm1': -2}, ladder)):
        with pytest.raises(evidence.Missing):
            evidence.mix_at_budgets(weights, own, flops)


def test_equal_flops_of_a_mean_over_lengths_is_the_mean_of_each():
    flops = {f'mlm{n}': n for n in (1, 2, 4)} | {f'clm{n}': 1.29 * n for n in (1, 2, 4)}
    ladder = [['clm1', 'clm2', 'clm4'], ['mlm1', 'mlm2', 'mlm4']]
    expected = {}
    for n in (1, 2, 4):
        mixed = evidence.mix_at_budgets({f'clm{n}': 1 / 3, f'mlm{n}': -1 / 3}, ladder, flops)
        for row, weight in mixed.items():
            expected[row] = expected.get(row, 0) + weight
    every = {f'{arm}{n}': sign / 3 for n in (1, 2, 4) for arm, sign in (('clm', 1), ('mlm', -1))}
    assert evidence.mix_at_budgets(every, ladder, flops) == pytest.approx(expected)


def test_a_margin_is_of_mlm_alone_and_never_negative():
    """Of 0.6 - 0.2 a tenth; a row that another model begins is not MLM alone; no gain allows nothing."""
    def cell(model, dataset, lr=None):
        return SimpleNamespace(mean={'mlm': 0.6, 'worse': 0.1, 'untrained': 0.2}.get(model, 0.9))
    rows = {name: SimpleNamespace(phases=['mlm'] * 9, begins='weights_from' * ('then' in name))
            for name in ('mlm', 'worse', 'clm-then-mlm')}
    known = SimpleNamespace(cell=cell, study=SimpleNamespace(rows=rows, check_model=lambda name: (name, 9)))
    for model, margin in (('mlm', 0.04), ('worse', 0)):
        weights = {('clm-then-mlm', None): 1, (model, None): -1}
        assert evidence.Evidence.margin(known, weights, ['docs_tc']) == pytest.approx(margin)


def test_one_seed_cannot_tell():
    line, whole = SimpleNamespace(rule='better'), SimpleNamespace(low=0.1, high=0.2, p=None)
    assert evidence.Judged(line, 0, whole, None, {}, []).verdict() == 'cannot tell'


def test_losses_of_one_objective_alone(tmp_path):
    """A study without MLM has no column of its loss, one with mdlm another."""
    (tmp_path / 'losses.csv').write_text('folder,row,seed,step,val_mdlm_loss\na-s0,a,0,9,\na-s0,a,0,5,2.5\n')
    assert evidence.read_losses(tmp_path / 'losses.csv', (0,)) == {
        'a': {0: [{'step': 5, 'val_mdlm_loss': 2.5}, {'step': 9}]}}


@pytest.mark.parametrize('kind, counts', [('clm', False), ('mlm', True), ('mdlm', True)])
def test_mlm_loss_is_compared_of_arms_that_end_with_masks(kind, counts):
    study = SimpleNamespace(study=SimpleNamespace(arms={'arm': ['row']}), objective=lambda row: kind)
    assert evidence.Evidence.masked(study, 'arm') == counts


@pytest.mark.parametrize('slope, half, expected', [     # the difference at x is 2 + slope (x - 1), x = 0 .. 4
    (-1, 0.5, (1, 2.5, 3, 3.5, -1)), (-1, 1.5, (1, 1.5, 3, None, 0)), (-1, 9, (0, None, 3, None, 0)),
    (1, 0.5, (1, None, None, None, 1)), (1, 1.5, (0, None, None, 0.5, 1)), (1, 0, (1, None, None, None, 1))])
def test_crossings_by_hand(slope, half, expected):
    means = [(x, 2 + slope * (x - 1)) for x in np.arange(0, 4.1, 0.5)]
    found = evidence.crossing([(x, mean, mean - half, mean + half) for x, mean in means])
    assert found == tuple(x if x is None else pytest.approx(x) for x in expected)


def test_a_lead_that_is_lost_and_won_again():
    points = [(x, y, y - 1, y + 1) for x, y in ((0, 2), (1, 0), (2, 2))]
    found = evidence.crossing(points)
    assert (found.before, found.low, found.high, found.after) == (1, 0.5, 1.5, 1)


# -------------------------------------------------------------------------------------------------- the paper

def test_the_proxy_of_the_papers_numbers():
    """In points; SC of 210M is (-85.07 + 3 x 85.12 - 3 x 84.89 + 85.04) / sqrt(20) = 0.66 / sqrt(20)."""
    assert [round(report.proxy(kind), 2) for kind in ('SC', 'TC', 'QA', 'IR')] == [0.56, 0.12, 3.12, 0.53]
    assert report.proxy('SC') == pytest.approx(math.sqrt((0.66 ** 2 + 2.59 ** 2 + 3.45 ** 2) / 60))


def test_what_the_papers_numbers_carry():
    for kind in ('SC', 'QA', 'IR'):
        assert report.judge_published('end', kind)[3] == 'agrees'
        assert report.judge_published('both', kind)[3] == 'cannot tell'
    mean, half, p, word, seeds = report.judge_published('both', 'SC')
    assert (mean, half) == pytest.approx((0.85, 0.5634 * math.sqrt(2) * 3.1824), abs=1e-3)
    assert seeds == 'about 9 seeds'     # (2.536 / 0.85)^2 = 8.9
    assert p == pytest.approx(2 * scipy.stats.t.sf(0.85 / (0.5634 * math.sqrt(2)), 3), abs=1e-3)
    assert report.judge_published('level', 'TC')[3] == 'agrees'


def test_each_kind_of_the_ratios_is_50_less_20_percent():
    """Its claim is the opposite on token classification."""
    less = [paper.numbers()[f'210m-mlm{ratio}-42k', 'TC', 'Average'][0] for ratio in (50, 20)]
    weights = paper.CLAIMS['ratio'].published['TC']
    assert report.published_mean(weights, 'TC') == pytest.approx(less[0] - less[1])
    assert report.judge_published('ratio', 'TC')[0] == pytest.approx(less[1] - less[0])


def test_each_contrast_of_the_paper_is_of_models_it_published():
    known = {(model, kind) for model, kind, _ in paper.numbers()}
    for claim in paper.CLAIMS.values():
        assert claim.rule in evidence.REGIONS and claim.words.endswith('.')
        for kind, weights in claim.published.items():
            assert {(model, kind) for model in weights} <= known
            assert sum(weights.values()) == pytest.approx(0)


def test_the_page_of_the_papers_numbers():
    result = run_script('evaluate.py', 'report', '--published')
    assert result.returncode == 0 and result.stdout == report.published()
    assert 'SC 0.56, TC 0.12, QA 3.1, IR 0.53' in result.stdout
    assert 'MLM beats CLM' in result.stdout and 'no numbers published' in result.stdout


# ------------------------------------------------------------------------------------------------- a study

STUDY = '''
corpus = "configs/corpora/docs.py"
runs = """
clm-1 configs/tiny.py --phases='("clm", 100)'
clm-2 configs/tiny.py --phases='("clm", 200)'
clm-4 configs/tiny.py --phases='("clm", 400)'
mlm-1 configs/tiny.py --phases='("mlm", 100)'
mlm-2 configs/tiny.py --phases='("mlm", 200)'
mlm-4 configs/tiny.py --phases='("mlm", 400)'
both-1 configs/tiny.py --phases='(("clm", 25), ("mlm", 75))' --branch_from=clm-1/25
both-2 configs/tiny.py --phases='(("clm", 50), ("mlm", 150))' --branch_from=clm-2/50
both-4 configs/tiny.py --phases='(("clm", 100), ("mlm", 300))' --branch_from=clm-4/100
"""
seeds = (0, 1, 2)
tasks = """
*,untrained configs/tasks/docs_tc.py --lrs=1e-3,2e-3
*,untrained configs/tasks/docs_ir.py --lrs=1e-3
"""
finetuning_seeds = 2
contrasts = """
early | better        | 1 clm-1 -1 mlm-1  | docs_tc docs_ir
end   | better        | 1 mlm-4 -1 clm-4  | docs_ir
level | no_difference | 1 clm-4 -1 mlm-4  | docs_tc
both  | at_least      | 1 both-4 -1 mlm-4 | docs_tc docs_ir
rate  | better        | 1 clm-2@1e-3 -1 clm-2@2e-3 | docs_tc
"""
ladder = """
CLM: clm-1 clm-2 clm-4
MLM: mlm-1 mlm-2 mlm-4
CLM then MLM: both-1 both-2 both-4
"""
'''
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
        'score': right.mean(), 'ids': 7, 'numerators': right.tolist(), 'denominators': [1.0] * N,
        'others': {}}}


def packed_line(model, seed, dataset, lr, finetuning, score, draw, kind='fine-tuned'):
    objective, _, length = model.partition('-')
    past = None
    if length:
        steps = 100 * int(length)
        phases = [['clm', steps // 4], ['mlm', 3 * steps // 4]]
        phases = phases if objective == 'both' else [[objective, steps]]
        past = {'phases': phases, 'mask_ratio': 0.4, 'step': steps, 'flops': 1e9 * steps, 'family': '0.9M',
                'continues': '', 'row': model, 'seed': seed}
    folder = f'{model}-s{seed}' if length else model
    task = {'docs_tc': 'TC', 'docs_ir': 'IR'}[dataset]
    about = {'kind': kind, 'weights': 'fp32', 'data': dataset} | ({'pretraining': past} if past else {})
    scores = {split: split_scores(score, draw) for split in ('validation', 'test')}
    return {'run': f'{folder}/{task}/{dataset}/lr{lr}_sd{finetuning}', 'about': about,
            'scores': {'name': {'TC': 'entity F1', 'IR': 'NDCG@10'}[task]} | scores}


def write_packed(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.GzipFile(path, 'wb', mtime=0) as file:
        file.writelines(json.dumps(line).encode() + b'\n' for line in lines)


def write_losses(path):
    """Up to its length MLM's loss falls by 1 each doubling: 8 at step 50, 7 at 100, 6 at 200."""
    with open(path, 'w', newline='') as file:
        table = csv.writer(file, lineterminator='\n')
        names = 'folder row seed step tokens flops seconds train_loss val_clm_loss val_mlm_loss'
        table.writerow(names.split())
        for seed, row in itertools.product(range(3), SCORES):
            objective, _, length = row.partition('-')
            for step in (50, 100, 200, 400):
                if step <= 100 * int(length or 0):
                    cost = 1e9 * step * (1.29 if objective == 'clm' else 1)
                    loss = 8 - math.log2(step / 50) - 0.1 * (objective == 'both') + seed / 100
                    loss = 8.4 if objective == 'clm' else loss
                    table.writerow([f'{row}-s{seed}', row, seed, step, step * 10_000, cost, 1.5,
                                    loss - 0.25, 5.0, loss])


@pytest.fixture
def study(tmp_path):
    """A study's folder with packed runs and losses: its config's path, and options for it."""
    draw = np.random.default_rng(0)
    (tmp_path / 'toy.py').write_text(STUDY)
    for seed in range(3):
        lines = [packed_line(model, seed, dataset, '1e-03', 10 * seed + k, score + 0.01 * (seed - 1), draw)
                 for model, score in SCORES.items() for dataset in ('docs_tc', 'docs_ir') for k in range(2)
                 if model != 'untrained']
        lines += [packed_line('clm-2', seed, 'docs_tc', '2e-03', 10 * seed + k, 0.5, draw) for k in range(2)]
        write_packed(tmp_path / f'toy/runs/s{seed}.jsonl.gz', lines)
    lines = [packed_line('untrained', 0, dataset, '1e-03', k, 0.2, draw)
             for dataset in ('docs_tc', 'docs_ir') for k in range(3)]
    lines += [packed_line('lookup', 0, 'docs_tc', '0e+00', 0, 0.45, draw, 'baseline'),
              packed_line('bm25', 0, 'docs_ir', '0e+00', 0, 0.95, draw, 'baseline')]
    write_packed(tmp_path / 'toy/runs/other.jsonl.gz', lines)
    write_losses(tmp_path / 'toy/losses.csv')
    return tmp_path / 'toy.py', f'--folder={tmp_path}/toy'


@dataclass(frozen=True)
class Few(evaluate.Settings):
    resamples: int = 500


@pytest.fixture
def few_resamples(monkeypatch):
    """For what does not hang on the draws."""
    monkeypatch.setattr(evaluate, 'Settings', Few)


def cells_of(text, heading):
    """{first cell: [the others]} of the table beneath a heading."""
    table = text.split(f'## {heading}\n')[1].split('\n## ')[0]
    rows = [[cell.strip() for cell in line.strip('|').split(' | ')] for line in table.splitlines()
            if line.startswith('| ')]
    return {row[0].strip(): row[1:] for row in rows}


def test_a_made_up_study_from_end_to_end(study):
    result = run_script('evaluate.py', 'report', *study)
    assert result.returncode == 0, result.stderr
    folder = study[0].parent / 'toy'
    text = (folder / 'report.md').read_text()
    judged = cells_of(text, 'Verdicts')
    early = judged[paper.CLAIMS['early'].words]
    assert early[0] == 'clm-1 - mlm-1; docs_tc, docs_ir; better' and early[1].startswith('+14.')
    assert early[3:5] == ['3/3', 'TC +1.8, IR +10.7'] and early[7] == '**agrees**'
    assert judged[paper.CLAIMS['end'].words][7] == '**agrees**'
    level = judged[paper.CLAIMS['level'].words]
    assert 'no difference within 3.8' in level[0] and level[7] == '**cannot tell**'
    assert level[8] == 'about 5 seeds'     # (2.776 x 0.644)^2 / 5 + 0.68 < 1.16^2
    assert judged[paper.CLAIMS['both'].words][7] == '**agrees**'
    assert judged[paper.CLAIMS['rate'].words][4] == 'no number'
    assert "CLM grows on sentences and shrinks in retrieval. Not tested here: it takes models" in text
    assert 'most of all on sentences and questions. Not tested here: SC, QA.' in text
    views = cells_of(text, 'How the verdicts move')
    assert views['early'][0].endswith(': 3 agrees')
    assert float(views['early'][1].split()[0]) == pytest.approx(
        float(early[1].split()[0]) - 10 * OCTAVE, abs=0.4)     # MLM at 1.29 of its length: 0.4 + 0.1 OCTAVE
    assert views['rate'][1] == ''       # a learning rate stands on no ladder
    ends = cells_of(text, 'Where leads end')
    assert 'about 2.8 M' in ends['CLM and MLM'][2]   # half an octave above 2 M
    assert ends['MLM and CLM then MLM'][0] == 'CLM then MLM throughout'      # its loss is lower by 0.1
    rows = cells_of(text, 'All rows')
    assert rows['mlm-1'][:4] == ['1.0', '7.01 [6.99, 7.03]', '+0.25', 'never in 3']   # 4.303 x 0.01 / sqrt(3)
    assert rows['mlm-4'][2:4] == ['+0.25', '170 to 172']     # 100 + 100 x 0.70, 0.72
    assert rows['lookup'][0] == '' and rows['bm25'][5].startswith('9')
    for name in ('ladder', 'share'):
        assert (folder / f'{name}.png').stat().st_size > 5_000
    assert str(ROOT) not in text


def test_where_a_loss_leaves_its_plateau_by_hand():
    """6.5 at step 100 and 6.1 at 200 are 6.3 at 150. Of another corpus, whose plateau is 6.2, nothing is
    said: before, its first step."""
    def lines(*losses):
        return [{'step': 100 * k, 'val_mlm_loss': loss} for k, loss in enumerate(losses, 1)]

    def words(**seeds):
        return report.plateau('mlm', SimpleNamespace(validations=lambda row: seeds))
    assert words(a=lines(6.5, 6.1)) == '150'
    assert words(a=lines(6.5, 6.1), b=lines(6.8, 6.7)) == '150, never in 1'
    assert words(a=lines(6.2, 6.2, 5.0)) == words(a=lines(6.5, 6.1), b=lines(6.2, 6.1)) == words() == ''


def test_a_report_made_again_is_the_same(study, few_resamples):
    """In whatever order its runs are read: of folders it is another than of packed runs."""
    made, packed = [], study[0].parent / 'toy/runs/other.jsonl.gz'
    for _ in range(2):
        write_packed(packed, map(json.loads, reversed(gzip.decompress(packed.read_bytes()).splitlines())))
        assert run_script('evaluate.py', 'report', *study).returncode == 0
        made.append({path.name: path.read_bytes() for path in (study[0].parent / 'toy').glob('*.*')})
    assert made[0] == made[1] and {'report.md', 'ladder.png', 'share.png'} < {*made[0]}


def test_holm_counts_contrasts_whose_runs_are_missing(study, few_resamples):
    """Before, an unfinished study corrected for fewer."""
    def smallest():
        assert run_script('evaluate.py', 'report', *study).returncode == 0
        rows = cells_of((study[0].parent / 'toy/report.md').read_text(), 'Verdicts').values()
        return min((float(row[5]), float(row[6])) for row in rows if row[5:6] and row[5][0] == '0')
    (p, before), config = smallest(), study[0].read_text()
    study[0].write_text(config.replace(
        'contrasts = """', 'contrasts = """\nlost | better | 1 clm-2 -1 mlm-1 | docs_ir'))
    number = before / p
    assert smallest() == (p, pytest.approx(p * (number + 1), rel=0.02))


def test_one_pretraining_speaks_of_one_model(study, few_resamples):
    """Of one seed: its fine-tunings are the units, a seed left out and Holm's p are not there."""
    result = run_script('evaluate.py', 'report', *study, '--seeds=(1,)', '--ladder=')
    assert result.returncode == 0, result.stderr
    text = (study[0].parent / 'toy/report.md').read_text()
    early = cells_of(text, 'Verdicts')[paper.CLAIMS['early'].words]
    assert early[2:4] == ['one model', '2/2'] and float(early[5]) < 0.05
    assert early[7:] == ['**cannot tell**', 'several pretraining seeds']      # before: agrees
    assert cells_of(text, 'How the verdicts move')['early'][0] == ''
    assert cells_of(text, 'All rows')['mlm-1'][1] == '7.01'
    assert not (study[0].parent / 'toy/ladder.png').exists()


def test_what_is_missing_is_named_and_the_rest_goes_on(study, few_resamples):
    folder = study[0].parent / 'toy'
    for path in folder.glob('runs/s*'):
        with gzip.open(path, 'rt') as file:
            lines = [json.loads(line) for line in file]
        lines += [line | {'run': line['run'].replace('both-2', 'again')} for line in lines
                  if line['run'].startswith('both-2')]     # the same runs twice
        write_packed(path, [line for line in lines if not line['run'].startswith('mlm-4')])
    (folder / 'losses.csv').unlink()
    result = run_script('evaluate.py', 'report', *study)
    assert result.returncode == 1
    assert 'warning: end is not judged: there is no mlm-4 on docs_ir' in result.stderr
    assert result.stderr.count('both-2 on docs_ir is left out: two runs') == 1
    text = (folder / 'report.md').read_text()
    assert set(cells_of(text, 'How the verdicts move')) == {'claim', '---|---|---|---|---', 'early', 'rate'}
    assert 'Where leads end' not in text and not (folder / 'ladder.png').exists()


def test_a_seed_that_is_missing_is_told(study, few_resamples):
    """All of one seed; one model of another; a pretraining that has not come to its end has no last loss."""
    folder = study[0].parent / 'toy'
    (folder / 'runs/s2.jsonl.gz').unlink()
    with gzip.open(folder / 'runs/s1.jsonl.gz', 'rt') as file:
        lines = [json.loads(line) for line in file]
    write_packed(folder / 'runs/s1.jsonl.gz', [line for line in lines if 'clm-1-s1' not in line['run']])
    text = (folder / 'losses.csv').read_text()
    (folder / 'losses.csv').write_text(text.replace('mlm-4-s1,mlm-4,1,400', 'mlm-4-s9,mlm-4,9,400'))
    result = run_script('evaluate.py', 'report', *study)
    assert result.returncode == 1
    assert 'no runs yet of pretraining seeds 2' in result.stderr
    assert 'clm-1 on docs_tc has no pretraining seeds 1' in result.stderr
    text = (folder / 'report.md').read_text()
    assert 'Pretraining seeds: 0, 1, each' in text
    assert cells_of(text, 'All rows')['mlm-4'][1] == '5.01 [4.88, 5.14]'    # seeds 0 and 2: 12.706 x 0.01
    (folder / 'losses.csv').write_text('row,seed\nmlm,1\n')
    one_line_error(run_script('evaluate.py', 'report', *study), 'losses.csv: line 2 has other columns')


def test_what_a_pack_held_is_not_lost(study):
    folder = study[0].parent / 'toy'
    assert run_script('evaluate.py', 'pack', folder).returncode == 0
    before = (folder / 'scores.csv').read_bytes()
    held = (folder / 'runs/s1.jsonl.gz').read_bytes()
    (folder / 'runs/s1.jsonl.gz').write_bytes(b'')
    one_line_error(run_script('evaluate.py', 'pack', folder),
                   '38 runs of scores.csv are not there, as both-1-s1')
    assert (folder / 'scores.csv').read_bytes() == before
    (folder / 'runs/s1.jsonl.gz').write_bytes(held)
    assert run_script('evaluate.py', 'pack', folder).returncode == 0


def test_a_score_that_is_no_number_leaves_its_model_out(study, few_resamples):
    folder = study[0].parent / 'toy'
    with gzip.open(folder / 'runs/s1.jsonl.gz', 'rt') as file:
        lines = [json.loads(line) for line in file]
    one = next(line for line in lines if 'mlm-4-s1/TC' in line['run'])
    one['scores']['test']['standard']['numerators'][3] = math.nan
    write_packed(folder / 'runs/s1.jsonl.gz', lines)
    result = run_script('evaluate.py', 'report', *study)
    assert result.returncode == 1
    assert 'mlm-4 on docs_tc is left out: a score is not a finite number' in result.stderr


def test_a_report_needs_a_study_or_published():
    for words in (['report'], ['report', '--split=both'], ['report', '--published', '--seed=1']):
        result = run_script('evaluate.py', *words)
        assert result.returncode == 2 and 'report CONFIG or report --published' in result.stderr


def test_the_ladder_names_its_lines_and_floors():
    lines = {'CLM': [(1e6, 50, 48, 52), (2e6, 51, 50, 52)], 'MLM': [(1e6, 40, 38, 42), (2e6, 60, 59, 61)]}
    floors = {'untrained': 36.0, 'BM25': 99.0, 'a': 1.0, 'b': 2.0}
    shaded = 1.2e6, 1.9e6, 'CLM ≈ MLM'
    drawn = figures.ladder([('docs_tc', lines, floors, shaded),
                            ('MLM loss', {'MLM': lines['MLM']}, {'CLM': 8.4}, None)])
    first, second = ([text.get_text() for text in ax.texts] for ax in drawn.axes)
    assert first == ['a 1.0 ↓\nb 2.0 ↓', 'untrained 36.0', 'CLM', 'MLM', 'CLM ≈ MLM']
    assert second == ['CLM 8.4 ↓', 'MLM']
    assert [ax.get_title('right') for ax in drawn.axes] == ['BM25 99.0 ↑', '']
    assert [label.get_text() for label in drawn.axes[0].get_xticklabels()] == ['1.0', '2.0']


def test_a_band_that_two_seeds_make_wide_leaves_the_panel():
    wide = {'CLM': [(1e6, 50, 48, 52), (2e6, 51, 50, 52)], 'MLM': [(1e6, 40, -60, 140), (2e6, 60, -40, 160)]}
    narrow = {arm: [(x, mean, mean - 1, mean + 1) for x, mean, *_ in values] for arm, values in wide.items()}
    of_wide, of_narrow = (figures.ladder([('docs_tc', lines, {'untrained': 36.0}, None)]).axes[0].get_ylim()
                          for lines in (wide, narrow))
    assert of_wide == pytest.approx((40 - 0.7 * 20, 60 + 0.7 * 20))
    assert of_wide[0] < of_narrow[0] < 36 and 61 < of_narrow[1] < of_wide[1]    # where there is nothing more

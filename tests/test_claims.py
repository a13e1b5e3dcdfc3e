"""Numbers that pages state are those of the studies: of their reports, or computed from their packs."""
import csv
import math
import re
import tomllib

import numpy as np
import pytest
import scipy.stats
import yaml

import recompute
from conftest import ROOT
from studies.paper import published


def words_of(page):
    return ' '.join((ROOT / page).read_text().split())


OPTIMISER = words_of('docs/optimiser.md')
TARGETS = words_of('docs/targets.md')
PAPER = words_of('docs/paper.md')


def judged_in(study):
    """[(points and interval, verdict)] of its report's contrasts."""
    report = (ROOT / f'studies/{study}/report.md').read_text()
    return re.findall(r'(?m)^\| .*? \| .*? \| (\S+ \[.*?\]) \|.*\*\*(.*?)\*\*', report)


def test_what_is_said_of_the_studies_stands_on_their_pages():
    """README's verdicts, and docs/paper.md's points with an interval, told from either side."""
    clear = [numbers for numbers, verdict in judged_in('small') if verdict == 'agrees']
    told = re.findall(r'by (\S+?)(?: points)? \[(\S+), (\S+)\]', words_of('README.md'))
    assert ['+{} [+{}, +{}]'.format(*numbers) for numbers in told] == clear

    points = set()
    for study in ('small', 'novels'):
        report = (ROOT / f'studies/{study}/report.md').read_text()
        for numbers in re.findall(r'([+-][\d.]+) \[([+-][\d.]+), ([+-][\d.]+)\]', report):
            mean, low, high = map(float, numbers)
            points |= {(mean, low, high), (-mean, -high, -low)}
    told = re.findall(r'([\d.]+) points(?: \w+)* \[(\S+), (\S+)\]', PAPER)
    assert len(told) > 5
    assert {tuple(map(float, numbers)) for numbers in told} <= points


def test_the_claims_by_task_are_those_of_the_report():
    """A line a task, then their mean."""
    folder = ROOT / 'studies/small'
    names = recompute.read_settings(folder / 'config.py')['contrasts']
    mean_of = dict(zip(names, judged_in('small'), strict=True))
    _, by_task = (folder / 'report.md').read_text().split('## Claims by task')
    columns = []
    for name in ('early', 'both', 'continued'):
        cells, = re.findall(rf'(?m)^\| {name} \| (.*?\]) \| (.*?\]) \| (.*?\]) \|', by_task)
        columns.append([*cells, mean_of[name][0]])
    _, section = (ROOT / 'docs/paper.md').read_text().split('## The judged claims')
    row = r'(?m)^\| (?:`docs_\w+`, .*?|\*\*mean of three\*\*) \| (.*) \| (.*) \| (.*) \|$'
    assert [*zip(*columns)] == re.findall(row, section)


@pytest.mark.parametrize('page, studies', [(OPTIMISER, ('optimiser', 'optimiser_embedded')),
                                           (TARGETS, ('targets',))])
def test_the_verdicts_on_optimizers_are_those_of_their_studies(page, studies):
    signs = {'agrees': 'above 0', 'disagrees': 'below 0', 'cannot tell': 'cannot tell'}
    told = re.findall(r'([+-][\d.]+ \[[^]]*\]), (above 0|below 0|cannot tell)', page)
    judged = [line for study in studies for line in judged_in(study)]
    wanted = [(numbers, signs[verdict]) for numbers, verdict in judged]
    assert sorted(told) == sorted(wanted)


def scores_of(study, **changes):
    """Return a function (model, dataset) -> the score of each pretraining seed, in points, on both splits of
    the study's pack."""
    folder = ROOT / 'studies' / study
    settings = recompute.read_settings(folder / 'config.py') | changes
    runs = recompute.read_runs(folder, settings)

    def score(model, *datasets):
        joined = [recompute.join_splits(runs, model, dataset)[0] for dataset in datasets]
        return 100 * np.mean([terms.mean((1, 2)) for terms in joined], 0)
    return score


def test_the_demo_promises_what_a_new_seed_may_give():
    """The range of a new seed's lead, of which one seed of six says nothing nearer."""
    score = scores_of('small', finetuning_seeds=1)      # as in the demo
    leads = score('clm25-mlm-1800', 'docs_tc') - score('mlm-1800', 'docs_tc')
    mean = leads.mean()
    low, high = scipy.stats.t.interval(0.95, 5, mean, leads.std(ddof=1) * math.sqrt(1 + 1 / 6))
    told = (f'| {low:+.0f} to {high:+.0f} points | {mean:+.1f} (fine-tuned once each, as yours); '
            f'a new one should fall between {low:+.1f} and {high:+.1f} |')
    assert told in words_of('README.md')


def test_what_is_cited_is_the_software():
    """A preferred-citation would be cited in its place."""
    content = yaml.safe_load((ROOT / 'CITATION.cff').read_text())
    assert (content['type'], content['title']) == ('software', 'nanoEncoder')
    project = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']
    assert content['version'] == project['version']
    assert f'version={{{project["version"]}}}' in words_of('README.md')
    assert f'## {project["version"]} ' in (ROOT / 'CHANGELOG.md').read_text()
    assert 'preferred-citation' not in content
    assert [work['title'] for work in content['references']] == [
        'Should We Still Pretrain Encoders with Masked Language Modeling?']


THREE = 'ewt_pos', 'wn_sc', 'squad_ir'
LENGTHS = 1800, 3600, 14400


@pytest.fixture(scope='module')
def score():
    return scores_of('optimiser')


@pytest.fixture(scope='module')
def lead(score):
    """(steps, datasets) -> the lead of CLM then MLM over MLM, of each seed in points."""
    def lead(steps, *datasets, muon=''):
        both = score(f'{muon}clm25-mlm-{steps}', *datasets)
        return both - score(f'{muon}mlm-{steps}', *datasets)
    return lead


def over_seeds(values):
    """(mean, its 95 % interval) over six seeds."""
    mean = values.mean()
    return mean, *scipy.stats.t.interval(0.95, 5, mean, scipy.stats.sem(values))


def share(part, whole):
    """[the share that one difference is of another, its interval], in percent: Fieller's, of a ratio of two
    means over the same seeds."""
    count = len(whole)
    t = scipy.stats.t.ppf(0.975, count - 1) ** 2 / count
    (var_part, both), (_, var_whole) = np.cov(part, whole)
    a = whole.mean() ** 2 - t * var_whole
    b = part.mean() * whole.mean() - t * both
    c = part.mean() ** 2 - t * var_part
    root = math.sqrt(b * b - a * c)
    shares = part.mean() / whole.mean(), (b - root) / a, (b + root) / a
    return [round(100 * share) for share in shares]


def share_gone(lead, *datasets):
    """The share of the lead that is gone under Muon."""
    before = lead(1800, *datasets)
    return share(before - lead(1800, *datasets, muon='muon-'), before)


def test_how_much_of_the_lead_goes_with_the_optimizer(lead):
    def under_each(*datasets):
        return lead(1800, *datasets).mean(), lead(1800, *datasets, muon='muon-').mean()

    adamw, muon = under_each(*THREE)
    assert f'it is {adamw:.1f} points under AdamW, {muon:.1f} under Muon' in OPTIMISER
    before, after = under_each('squad_ir')
    assert f'of {before:.1f} points {after:.1f} are left' in OPTIMISER
    assert '{} % less [{}, {}]'.format(*share_gone(lead, 'squad_ir')) in OPTIMISER
    assert 'loses {} % [{}, {}]'.format(*share_gone(lead, *THREE)) in OPTIMISER

    of_words, of_words_muon = under_each('wn_sc')
    assert f'under AdamW ({of_words:+.1f})' in OPTIMISER
    assert f'overtakes, by {-of_words_muon:.1f}' in OPTIMISER


@pytest.mark.parametrize('steps, words', [(3600, '3.7 M tokens it is '), (14400, 'after 14.7 M ')])
def test_how_much_goes_later(lead, steps, words):
    values = over_seeds(lead(steps, *THREE) - lead(steps, *THREE, muon='muon-'))
    assert words + '{:+.1f} [{:.1f}, {:.1f}]'.format(*values) in OPTIMISER


def waits(row):
    """The step at which each seed of a row left its plateau."""
    last = ends('optimiser')
    return np.array([int(last[row, str(seed)]['plateau']) for seed in range(6)])


def test_what_the_lead_has_to_do_with_the_wait(lead):
    wait = waits('mlm-14400')
    of_adamw = [np.corrcoef(wait, lead(steps, *THREE))[0, 1] for steps in LENGTHS]
    shown = '{:.2f}, {:.2f} and {:.2f}'.format(*of_adamw).replace('0.', '.')
    assert f'r of wait and lead is {shown}' in OPTIMISER
    smaller = lead(1800, *THREE) - lead(1800, *THREE, muon='muon-')
    correlation = np.corrcoef(wait - waits('muon-mlm-14400'), smaller)[0, 1]
    assert f'is {correlation:.2f} early'.replace('0.', '.') in OPTIMISER


def test_the_lowest_loss_is_not_the_best_encoder(score):
    last = ends('optimiser')
    rows = 'mlm-14400', 'muon-mlm-14400', 'clm25-mlm-14400', 'muon-clm25-mlm-14400'
    loss = {row: np.mean(final_losses(last, row, '012345')) for row in rows}
    assert min(loss, key=loss.get) == 'mlm-14400'
    below = (score('muon-mlm-14400', *THREE) - score('mlm-14400', *THREE)).mean()
    words = (f'{loss["mlm-14400"]:.2f}, and it scores {below:.1f} points below MLM under Muon, '
             f'with {loss["muon-mlm-14400"]:.2f}')
    assert words in OPTIMISER


def test_what_was_known_before_the_study_of_optimizers_was_frozen():
    """The first contrast of the tuning seeds, at the rates that validation chose, on both splits."""
    folder = ROOT / 'studies/optimiser_tuning'
    runs = recompute.read_runs(folder, recompute.read_settings(folder / 'config.py'))

    def score(model):
        scores = []     # of each seed
        for dataset in THREE:
            grid = runs[model, dataset]
            best = grid[recompute.best_rate(grid, grid, 'validation')]
            for split in ('validation', 'test'):
                scores.append([100 * best[seed][split]['standard']['score'] for seed in sorted(best)])
        return np.mean(scores, 0)

    under_adamw = score('clm25-mlm-1.5e-3') - score('mlm-3e-3')
    under_muon = score('muon-clm25-mlm-1.5e-3') - score('muon-mlm-3e-3')
    assert 'first contrast is {:+.1f} and {:+.1f}'.format(*under_adamw - under_muon) in OPTIMISER


def test_one_rate_and_two_begin_with_what_is_in_the_pack():
    score = scores_of('optimiser_embedded')
    three = 'docs_tc', 'wn_sc', 'docs_ir'
    lead = score('clm25-mlm-1800', *three) - score('mlm-1800', *three)
    assert '{:+.1f} {:+.1f} {:+.1f} points with one rate'.format(*lead) in OPTIMISER


def test_what_is_said_of_small_beside_its_verdicts_is_in_its_packs():
    """The verdict on rates is one cell, and turns on the grid of tuning; what is left without docs_pairs."""
    score = scores_of('small')
    tuning = scores_of('small_tuning')
    both = 'docs_tc', 'docs_ir'

    def lost(arm, rate, dataset):
        best = score(f'{arm}-3600+rates@{2e-3}', dataset).mean()
        return best - score(f'{arm}-3600+rates@{rate}', dataset).mean()

    clm = lost('clm', 8e-3, 'docs_ir')
    mlm = lost('mlm', 8e-3, 'docs_ir')
    assert f'loses {clm:.1f} points in retrieval, MLM {mlm:.1f}' in PAPER
    less = np.mean([lost('mlm', 5e-4, dataset) - lost('clm', 5e-4, dataset) for dataset in both])
    assert f'CLM loses {less:.1f} *less*' in PAPER
    rest = lost('clm', 8e-3, 'docs_tc') - lost('mlm', 8e-3, 'docs_tc')
    assert rest < 2 * less      # without the cell the contrast has the paper's sign

    def differ(arm, dataset):
        rates = 5e-4, 1e-3, 2e-3, 4e-3
        means = [tuning(f'tune-{arm}-3600@{rate}', dataset).mean() for rate in rates]
        return f'{np.ptp(means):.1f}'

    assert (f"by {differ('clm', 'docs_ir')} points in retrieval and MLM's by {differ('mlm', 'docs_ir')}; "
            f"on code words by {differ('clm', 'docs_tc')} and {differ('mlm', 'docs_tc')}") in PAPER

    contrasts = recompute.read_settings(ROOT / 'studies/small/config.py')['contrasts']
    for name, words in (('early', 'the mean of **early** is'), ('both', 'of **both**')):
        weights = contrasts[name]['weights']
        left = sum(weight * score(row, *both).mean() for row, weight in weights.items())
        assert f'{words} {left:.1f}' in PAPER


def test_how_many_times_the_steps_the_papers_mlm_needs():
    """By its own tables: interpolated between checkpoints, linearly in the logarithm of steps."""
    steps = [1000, 2000, 5000, 10000, 20000, 40000]
    numbers = published.numbers()

    def curve(arm, task, dataset):
        return [numbers[f'610m-{arm}-42k-{step}', task, dataset][0] for step in steps]

    names = {
        'NQ': ('IR', 'nq'),
        'MS MARCO': ('IR', 'msmarco'),
        'MLDR': ('IR', 'mldr_en'),
        'SQuAD': ('QA', 'squad'),
        'CoNLL 2003': ('TC', 'conll2003_en'),
        'OntoNotes': ('TC', 'ontonotes'),
        'UNER': ('TC', 'uner_en'),
        'MNLI': ('SC', 'mnli_m'),
        'QQP': ('SC', 'qqp'),
        'SST-2': ('SC', 'sst2'),
    }
    page = (ROOT / 'docs/paper.md').read_text()
    factors = []
    for name, key in names.items():
        clm = curve('clm', *key)[:3]
        mlm = curve('mlm40', *key)
        needed = np.exp(np.interp(clm, mlm, np.log(steps))) / steps[:3]
        cells = []
        for score, factor in zip(clm, needed):
            if score < mlm[0]:      # MLM's first checkpoint has more
                cells.append('under 1')
                continue
            cells.append(f'{factor:.1f}')
            factors.append(factor)
        assert f'| {name} | {" | ".join(cells)} |\n' in page
    assert f'{min(factors):.1f} to {max(factors):.1f}, and {np.median(factors):.1f} is the\nmedian' in page
    for left in ('squad_v2', 'record'):
        first, second = curve('clm', 'QA', left)[:3], curve('mlm40', 'QA', left)[:3]
        assert max(first + second) - min(first + second) < 1        # neither arm has moved


def ends(*studies):
    """{(row, seed): the last line of its losses.csv}"""
    last = {}
    for name in studies:
        with open(ROOT / f'studies/{name}/losses.csv') as file:
            for line in csv.DictReader(file):
                last[line['row'], line['seed']] = line
    return last


def final_losses(last, row, seeds):
    return [float(last[row, seed]['val_mlm_loss']) for seed in seeds]


def test_the_table_of_plateaus_is_that_of_the_runs():
    finding, _ = (ROOT / 'docs/optimiser.md').read_text().split('## What moves')
    table = re.findall(r'(?m)^\| `(\S*mlm-\d+)`.* \| ([\d, ]+) \|$', finding)
    assert len(table) == 8
    for row, numbers in table:
        assert numbers == ', '.join(f'{wait:,}' for wait in waits(row))


def test_what_moves_the_plateau_is_that_of_the_runs():
    page = (ROOT / 'studies/plateau/README.md').read_text()
    shown = re.findall(r'(?m)^\| .* \| (.*) \| ([\d.]+, [\d.]+) \|$', page)
    last = ends('plateau', 'optimiser_tuning')
    wanted = set()
    for row in {row for row, seed in last if seed == '101'}:
        if 'clm' in row or row == 'mlm-3e-3':
            continue
        lines = [last[row, seed] for seed in ('100', '101')]
        waits = [f'{int(line["plateau"]):,}' if line['plateau'] else 'never' for line in lines]
        losses = [f'{float(line["val_mlm_loss"]):.2f}' for line in lines]
        wanted.add((', '.join(waits), ', '.join(losses)))
    assert len(shown) == 25
    assert {*shown} == wanted


def test_the_table_at_116_m_is_that_of_the_runs():
    page = (ROOT / 'docs/optimiser.md').read_text().split('## At 116 M')[1]
    table = re.findall(r'(?m)^\| [A-Z].*? \| (\d+) \| (.*) \|$', page.split('##')[0])
    lines = csv.DictReader((ROOT / 'studies/plateau_120m/losses.csv').open())
    losses = {(line['row'], int(line['step'])): line for line in lines}
    rows = 'mlm-1e-3', 'clm25-mlm', 'two-mlm-4', 'muon-mlm', 'muon-clm25-mlm'
    for row, (plateau, shown) in zip(rows, table, strict=True):
        cells = []
        for step in (200, 300, 450, 600):
            line = losses.get((row, step))
            cells.append(f'{float(line["val_mlm_loss"]):.2f}' if line else 'stopped')
        assert shown == ' | '.join(cells)
        assert plateau == losses[row, 450]['plateau']

    def lead(optimizer, step):
        mlm, both = (float(losses[row, step]['val_mlm_loss']) for row in optimizer)
        return mlm - both
    shown = [lead(optimizer, step) for step in (300, 600) for optimizer in (rows[:2], rows[3:])]
    words = '{:.2f} nats under AdamW and {:.2f} under Muon at step 300, {:.2f} and {:.2f} at the end'
    assert words.format(*shown) in OPTIMISER


def test_what_is_said_of_targets_is_in_its_packs(score):
    of_targets = scores_of('targets')

    def less(first, second, *datasets):
        return of_targets(first, *datasets or THREE) - of_targets(second, *datasets or THREE)
    one, two, muon = (over_seeds(less(f'{arm}-clm25-mlm', f'{arm}-mlm')) for arm in ('one', 'two', 'muon'))
    points = '{:.1f} points [{:.1f}, {:.1f}] under AdamW with one rate, {:.1f} [{:.1f}, {:.1f}] with two, '
    assert (points + '{:.1f} [{:.1f}, {:.1f}] under Muon').format(*one, *two, *muon) in TARGETS
    words = f'{one[0]:.1f} points under AdamW, {two[0]:.1f} with a second rate, and {muon[0]:.1f} under Muon'
    assert words in words_of('README.md')

    others = 'ewt_pos', 'squad_ir'
    for words, datasets in (('6.6 points, and', THREE), ('without definitions', others)):
        part, whole = less('two-clm', 'two-clm40', *datasets), less('two-clm', 'two-mlm', *datasets)
        assert words + ' {} % [{}, {}]'.format(*share(part, whole)) in TARGETS

    lead = -less('muon-clm', 'muon-mlm').mean()
    words = -less('muon-clm', 'muon-mlm', 'wn_sc').mean()
    assert f'by {lead:.1f} points after 1.8 M tokens. That is definitions (`wn_sc`, {words:.1f})' in TARGETS
    without = over_seeds(less('muon-clm', 'muon-mlm', *others))
    assert 'without them CLM leads by {:.1f} [{:.1f}, {:.1f}]'.format(*without) in TARGETS

    for row in ('muon-clm', 'muon-mlm'):
        now, before = of_targets(row, 'wn_sc').mean(), score(f'{row}-1800', 'wn_sc').mean()
        assert f'{now:.1f}, where it had {before:.1f}' in TARGETS

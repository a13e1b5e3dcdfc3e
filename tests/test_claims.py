"""Numbers that pages state are those of the studies: of their reports, or computed from their packs."""
import csv
import functools
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


def frozen(study):
    """{contrast: {'mean' or its one dataset: points and verdict, other datasets: points}} of a report, as
    pages show them. A verdict is at the edge where Holm's p is within two Monte-Carlo errors of 0.05."""
    signs = {'agrees': 'above 0', 'disagrees': 'below 0', 'cannot tell': 'cannot tell'}
    folder = ROOT / 'studies' / study
    contrasts = recompute.read_settings(folder / 'config.py')['contrasts']
    sections = (folder / 'report.md').read_text().split('\n## ')
    lines = {section.split('\n')[0]: section.strip().splitlines()[4:] for section in sections}
    cells = {}
    for (name, contrast), line in zip(contrasts.items(), lines['Verdicts'], strict=True):
        _, _, numbers, *_, p, holm, verdict = (cell.strip('*| ') for cell in line.split(' | '))
        verdict = re.sub(r',? \(?at the edge\)?', '', verdict)
        shown = f'{numbers}, {signs.get(verdict, verdict)}'
        error = math.sqrt(2 * float(p) / recompute.RESAMPLES) * float(holm) / float(p)
        if abs(float(holm) - 0.05) < 2 * error:
            shown += ' (at the edge)'
        cells[name] = {contrast['datasets'][0] if len(contrast['datasets']) == 1 else 'mean': shown}
    for line in lines['Claims by task'][2:]:
        name, *by_task = line.strip('| ').split(' | ')
        for dataset, numbers in zip(THREE, by_task):
            cells[name].setdefault(dataset, numbers)
    return cells


def table(page, head):
    """[(first cell, other cells)] of a page's table whose head begins with this cell."""
    _, section = (ROOT / page).read_text().split(f'\n| {head} |')
    lines = section.split('\n\n')[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip('|').split('|')] for line in lines]
    return [(row[0], row[1:]) for row in rows]


def check_tasks(page, head, *columns):
    """A table with a line for each task, and the mean below them. A column is a function of datasets, whose
    differences by seed are shown with their interval, or the cells of a contrast."""
    rows = table(page, head)
    assert [label.split(',')[0].strip('`') for label, _ in rows] == [*THREE, 'mean']
    for (label, shown), task in zip(rows, [*THREE, 'mean']):
        datasets = THREE if task == 'mean' else (task,)
        assert (', 2 epochs' in label) == (task == 'wn_sc')
        assert shown[:len(columns)] == [cell_of(column, task, datasets) for column in columns], label


def cell_of(column, task, datasets):
    if isinstance(column, dict):
        return column[task]
    return points(column(*datasets))


def points(values):
    """A difference and its interval over seeds, as pages show it: a tie goes up, as 1.95 does here."""
    return '{:+.1f} [{:+.1f}, {:+.1f}]'.format(*over_seeds(values + 1e-9))


@functools.cache
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


def test_the_tables_of_the_first_study_of_optimizers(lead, score):
    page = 'docs/optimiser.md'
    judged = frozen('optimiser')

    def adamw(*datasets):
        return lead(1800, *datasets)

    def muon(*datasets):
        return lead(1800, *datasets, muon='muon-')

    check_tasks(page, 'the lead on', adamw, muon, judged['interaction'])
    shown = {label: cells[-1] for label, cells in table(page, 'the lead on')}
    for label, datasets in (('`ewt_pos`', THREE[:1]), ('`squad_ir`', THREE[2:]), ('mean', THREE)):
        gone = share(adamw(*datasets) - muon(*datasets), adamw(*datasets))
        assert shown[label] == '{} % [{}, {}]'.format(*gone)

    later = [cells for _, cells in table(page, "AdamW's lead minus Muon's, mean")]
    assert later == [[points(lead(steps, *THREE) - lead(steps, *THREE, muon='muon-'))]
                     for steps in (3600, 14400)]
    check_tasks(page, 'CLM minus MLM', *(less(score, f'{arm}clm-1800', f'{arm}mlm-1800')
                                         for arm in ('', 'muon-')))
    for head, name in (('MLM minus CLM', 'end'), ('CLM then MLM minus MLM', 'both'),
                       ('CLM then MLM minus CLM', 'MLM after CLM')):
        columns = [judged[f'{name} under {optimizer}'] for optimizer in ('AdamW', 'Muon')]
        if name == 'end':       # each task was a contrast of its own
            for column, optimizer in zip(columns, ('AdamW', 'Muon')):
                for task in THREE:
                    column[task] = judged[f'end under {optimizer}, {task}'][task]
        check_tasks(page, head, *columns)
    embedded = [cells for _, cells in table(page, 'the lead, mean of three tasks')]
    assert embedded == [[cell['mean']] for cell in frozen('optimiser_embedded').values()]


def less(score, first, second):
    """A function of datasets: by how much the first model is ahead of the second, of each seed."""
    return lambda *datasets: score(first, *datasets) - score(second, *datasets)


def waits(row, study='optimiser'):
    """The step at which each seed of a row left its plateau."""
    last = ends(study)
    return np.array([int(last[row, str(seed)]['plateau']) for seed in range(6)])


def first_below(study, row, bound):
    """The step at which each seed's held-out MLM loss crosses a bound, linear between validations."""
    steps = []
    with open(ROOT / f'studies/{study}/losses.csv') as file:
        lines = [line for line in csv.DictReader(file) if line['row'] == row]
    for seed in range(6):
        curve = [(float(line['val_mlm_loss']), int(line['step']))
                 for line in lines if line['seed'] == str(seed)]
        after = next(k for k, (loss, _) in enumerate(curve) if loss <= bound)
        losses, at = zip(*reversed(curve[after - 1:after + 1]))
        steps.append(np.interp(bound, losses, at))
    return np.array(steps)


def test_wait_and_lead(lead):
    """The table of correlations, in its order; and a wait is no property of a seed."""
    small, targets = scores_of('small'), scores_of('targets')
    of_small = []
    for steps in (1800, 3600, 7200, 14400):
        ahead = less(small, f'clm25-mlm-{steps}', f'mlm-{steps}')
        of_small.append(ahead('docs_tc', 'docs_ir', 'docs_pairs'))
    wait = first_below('small', 'mlm-14400', 6.3)
    pairs = [(wait, np.mean(of_small, 0)), (wait, of_small[0])]
    pairs += [(waits('mlm-14400'), lead(steps, *THREE)) for steps in LENGTHS]
    for arm in ('one', 'two', 'muon'):
        pairs.append((waits(f'{arm}-mlm', 'targets'),
                      less(targets, f'{arm}-clm25-mlm', f'{arm}-mlm')(*THREE)))
    shown = [cells[-1] for _, cells in table('docs/optimiser.md', 'study, six seeds')]
    assert shown == [correlation(*pair) for pair in pairs]

    differ = waits('mlm-14400') - waits('muon-mlm-14400')
    pairs = [(waits('mlm-14400'), waits('one-mlm', 'targets'))]
    for steps in LENGTHS:
        pairs.append((differ, lead(steps, *THREE) - lead(steps, *THREE, muon='muon-')))
    shown = [cells[-1] for _, cells in table('docs/optimiser.md', 'two numbers of the same six seeds')]
    assert shown == [correlation(*pair) for pair in pairs]


def correlation(wait, ahead):
    return f'{np.corrcoef(wait, ahead)[0, 1]:.2f}'.replace('0.', '.')


def test_the_lowest_loss_is_not_the_best_encoder(score):
    last = ends('optimiser')
    rows = 'mlm-14400', 'muon-mlm-14400'
    losses = {row: np.mean(final_losses(last, row, '012345')) for row, _ in last if row.endswith('14400')}
    assert min(losses, key=losses.get) == 'mlm-14400'
    shown = [cells for _, cells in table('docs/optimiser.md', 'MLM after 14.7 M tokens')]
    assert shown == [[f'{losses[row]:.2f}', f'{score(row, *THREE).mean():.1f}'] for row in rows]


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
    (_, (why, _)), *_ = table('docs/optimiser.md', 'expected')
    assert why == 'two tuning seeds: {:+.1f} and {:+.1f}'.format(*under_adamw - under_muon)


def test_one_rate_and_two_begin_with_what_is_in_the_pack():
    score = scores_of('optimiser_embedded')
    three = 'docs_tc', 'wn_sc', 'docs_ir'
    ahead = less(score, 'clm25-mlm-1800', 'mlm-1800')(*three)
    last = ends('optimiser_embedded')
    wait = [int(last['mlm-1800', seed]['plateau']) for seed in '012']
    (_, shown), _ = table('docs/optimiser.md', 'the embedded texts, AdamW, seeds 0 to 2')
    assert shown == ['{:,}, {:,}, {:,}'.format(*wait), '{:+.1f}, {:+.1f}, {:+.1f}'.format(*ahead)]


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
    rows_shown = re.findall(r'(?m)^\| [A-Z].*? \| (\d+) \| (.* \| .*) \|$', page.split('##')[0])
    lines = csv.DictReader((ROOT / 'studies/plateau_120m/losses.csv').open())
    losses = {(line['row'], int(line['step'])): line for line in lines}
    rows = 'mlm-1e-3', 'clm25-mlm', 'two-mlm-4', 'muon-mlm', 'muon-clm25-mlm'
    for row, (plateau, shown) in zip(rows, rows_shown, strict=True):
        cells = []
        for step in (200, 300, 450, 600):
            line = losses.get((row, step))
            cells.append(f'{float(line["val_mlm_loss"]):.2f}' if line else 'stopped')
        assert shown == ' | '.join(cells)
        assert plateau == losses[row, 450]['plateau']

    def lead(optimizer, step):
        mlm, both = (float(losses[row, step]['val_mlm_loss']) for row in optimizer)
        return mlm - both
    shown = [cells for _, cells in table('docs/optimiser.md', 'by how many nats CLM then MLM is below MLM')]
    assert shown == [[f'{lead(optimizer, step):.2f}' for step in (300, 600)]
                     for optimizer in (rows[:2], rows[3:])]


TARGETS = 'docs/targets.md'


@pytest.fixture(scope='module')
def of_targets():
    return scores_of('targets')


def test_the_tables_of_targets(of_targets):
    """Contrasts as they were judged, and the rest over seeds alone."""
    judged = frozen('targets')
    leads = [less(of_targets, f'{arm}-clm25-mlm', f'{arm}-mlm') for arm in ('one', 'two', 'muon')]
    check_tasks(TARGETS, 'the lead on', *leads)
    check_tasks(TARGETS, 'how leads differ on', judged['lead, one rate less two'],
                judged['lead, two rates less Muon'])
    for arm, head, name in (('two', 'AdamW, two rates', 'two rates'), ('muon', 'Muon, ratio 0.42', 'Muon')):
        check_tasks(TARGETS, head, judged[f'targets, {name}'], judged[f'objective, {name}'],
                    less(of_targets, f'{arm}-clm', f'{arm}-mlm'))
    check_tasks(TARGETS, 'CLM then MLM, minus the same with CLM at 40 %',
                judged['targets before MLM, two rates'], judged['targets before MLM, Muon'])

    shares = dict(table(TARGETS, 'task'))
    part, whole = less(of_targets, 'two-clm', 'two-clm40'), less(of_targets, 'two-clm', 'two-mlm')
    for label, datasets in (('`ewt_pos`', THREE[:1]), ('`squad_ir`', THREE[2:]), ('mean', THREE)):
        assert shares[label] == ['{} % [{}, {}]'.format(*share(part(*datasets), whole(*datasets)))]


def test_the_sign_under_muon_by_the_ratio_of_rates(of_targets, score):
    """Models of two studies have the same seeds and test items. CLM's better ratio by score is 6.7, MLM's
    0.42."""
    for study in ('optimiser', 'targets'):
        report = (ROOT / f'studies/{study}/report.md').read_text()
        assert 'ewt_pos 4,078 (data 212f0ee1), wn_sc 2,000 (data 76755396), squad_ir 2,849' in report

    def each_better(*datasets):
        return score('muon-clm-1800', *datasets) - of_targets('muon-mlm', *datasets)

    check_tasks(TARGETS, 'CLM minus MLM under Muon', less(score, 'muon-clm-1800', 'muon-mlm-1800'),
                less(of_targets, 'muon-clm', 'muon-mlm'), each_better)
    for arm, better in (('clm', min), ('mlm', max)):
        means = score(f'muon-{arm}-1800', *THREE).mean(), of_targets(f'muon-{arm}', *THREE).mean()
        assert better(means) == means[1]


def test_what_choosing_by_loss_did_to_scores(of_targets, score):
    """From Muon's ratio 6.7 to 0.42: held-out losses of the tuning seeds and of the study's, then scores."""
    tuned = ends('optimiser_tuning') | ends('targets_choice')
    last = ends('optimiser') | ends('targets')

    def gained(lines, before, now, column):
        seeds = [seed for row, seed in lines if row == now]
        return np.mean([float(lines[now, seed][column]) - float(lines[before, seed][column])
                        for seed in seeds])

    arms = [('muon-clm', '1.5e-3', 'val_clm_loss'),
            ('muon-mlm', '3e-3', 'val_mlm_loss'),
            ('muon-clm25-mlm', '1.5e-3', 'val_mlm_loss')]
    rows = table(TARGETS, 'going from ratio 6.7 to 0.42')
    for (arm, rate, column), (_, shown) in zip(arms, rows, strict=True):
        losses = [gained(tuned, f'{arm}-{rate}', f'{arm}-0.42-1.2e-2', column),
                  gained(last, f'{arm}-1800', arm, column)]
        cells = [f'{loss:.3f}' for loss in losses]
        for datasets in (THREE, ('wn_sc',), ('squad_ir',)):
            cells.append(points(of_targets(arm, *datasets) - score(f'{arm}-1800', *datasets)))
        assert shown == cells


def test_the_summary_in_readme(of_targets, score):
    """The mean of three tasks under each optimizer; with ratio 6.7 from the first study."""
    head = 'after 1.8 M tokens of novels, points'
    for (_, cells), arm in zip(table('README.md', head), ('clm25-mlm', 'clm'), strict=True):
        wanted = [less(of_targets, f'{optimizer}-{arm}', f'{optimizer}-mlm')(*THREE)
                  for optimizer in ('one', 'two', 'muon')]
        wanted.insert(2, less(score, f'muon-{arm}-1800', 'muon-mlm-1800')(*THREE))
        assert cells == [points(values) for values in wanted]

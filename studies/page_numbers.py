"""What studies say, for the tables of pages: numbers of their packs, reports and losses.csv, and how a table
writes them. The tables are in studies/tables; page_tables.py writes them into the pages.

A model is named after its study, as 'small/mlm-1800'. Points are percent; intervals are of 95 %."""
import csv
import functools
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from evaluate import seeds_half
from studies.report import NEAR, Evidence, Missing, is_near_005
from studies.study import load
from studies.waits import steps_on_plateau

ROOT = Path(__file__).parents[1]
RESAMPLES = 10_000      # of a report's bootstrap
SIGNS = {'disagrees': 'below 0', 'agrees': 'above 0'}    # of the rule "better"
TABLES = {}     # {name of a function: the function, which returns the lines of its table}


def table_of(function):
    """Decorate a function whose table stands in a page."""
    TABLES[function.__name__] = functools.cache(function)
    return function


def table(heads, rows):
    """Return the lines of a Markdown table."""
    lines = [f'| {" | ".join(row)} |' for row in [heads, *rows]]
    return [lines[0], '|' + '---|' * len(heads), *lines[1:]]


# ---------------------------------------------------------------------------
# What the packs say: scores of each pretraining seed


@functools.cache
def evidence_of(study, *options):
    """Return a study's Evidence. Scores of its seeds need no bootstrap, so it draws little."""
    loaded, _ = load([str(ROOT / 'studies' / study), *options])
    evidence = Evidence(loaded)
    evidence.cfg = replace(evidence.cfg, resamples=100)
    return evidence


def scores(model, *datasets, options=()):
    """Return the score of each pretraining seed, in percent, on both splits: the mean over datasets.

    model    after its study, as 'small/mlm-1800', maybe at one rate: 'small/mlm-3600+rates@2e-3'
    options  settings of the study that are to be others, as on the command line"""
    study, name = model.split('/')
    name, _, lr = name.partition('@')
    lr = float(lr) if lr else None
    return np.array(evidence_of(study, *options).percents({(name, lr): 1}, datasets))


def ahead(first, second, *datasets):
    """Return by how many points the first model is ahead of the second, of each seed."""
    return scores(first, *datasets) - scores(second, *datasets)


def difference(first, second):
    """Return a function of datasets: by how many points the first is ahead, with its interval over seeds."""
    def cell(*datasets):
        return points(ahead(first, second, *datasets))
    return cell


def points(values, digits=1):
    """Write the mean of these differences, one a seed, and its interval."""
    mean = values.mean()
    mean += math.copysign(1e-9, mean)   # 1.95, which is 1.9499... in binary, is written 2.0
    half = seeds_half([values.tolist()])
    return f'{mean:+.{digits}f} [{mean - half:+.{digits}f}, {mean + half:+.{digits}f}]'


def of_new_seed(values):
    """Return (mean, low, high): the interval into which a new seed falls 95 times of 100."""
    half = seeds_half([values.tolist()]) * math.sqrt(len(values) + 1)
    return values.mean(), values.mean() - half, values.mean() + half


def share(part, whole):
    """Return the share that one difference is of another, and the bounds of its interval: Fieller's, of a
    ratio of two means over the same seeds."""
    from scipy.special import stdtrit
    count = len(whole)
    t = stdtrit(count - 1, 0.975) ** 2 / count
    (var_part, both), (_, var_whole) = np.cov(part, whole)
    a = whole.mean() ** 2 - t * var_whole
    b = part.mean() * whole.mean() - t * both
    c = part.mean() ** 2 - t * var_part
    root = math.sqrt(b * b - a * c)
    return part.mean() / whole.mean(), (b - root) / a, (b + root) / a


def decimals(value, digits=2):
    """Write a number between -1 and 1 as .95 or -.16."""
    return f'{value:.{digits}f}'.replace('0.', '.')


# ---------------------------------------------------------------------------
# What reports say: contrasts that were written down before the runs


@functools.cache
def report(study):
    """Return {section: [{head: cell}, a line each]} of a report's tables."""
    text = (ROOT / f'studies/{study}/report.md').read_text(encoding='utf-8')
    sections = {}
    for section in text.split('\n## ')[1:]:
        title, _, text = section.partition('\n')
        heads, *rows = cells_of(text)
        sections[title] = [dict(zip(heads, row)) for row in rows]
    return sections


def cells_of(text):
    """Return the heads and the rows of the Markdown table that a text has, as lists of cells."""
    lines = [line for line in text.splitlines() if line.startswith('|')]
    heads, _, *rows = [[cell.strip(' *') for cell in line.split('|')[1:-1]] for line in lines]
    return heads, *rows


def verdicts(study):
    """Return {contrast: its line of the report's table of verdicts}."""
    names = [contrast.name for contrast in evidence_of(study).study.comparisons]
    return dict(zip(names, report(study)['Verdicts'], strict=True))


def judged(study, contrast):
    """Return a function of datasets: the points of a report's contrast. It has a verdict if the report judges
    these datasets; the mean of others has its interval over seeds alone."""
    def cell(*datasets):
        if {*datasets} == {*evidence_of(study).study.contrasts[contrast]['datasets']}:
            return with_verdict(study, contrast)
        if len(datasets) > 1:
            return points_over_seeds(study, contrast, *datasets)
        dataset, = datasets
        if f'{contrast}, {dataset}' in verdicts(study):     # a contrast of its own
            return with_verdict(study, f'{contrast}, {dataset}')
        return points_by_task(study, contrast)[dataset]
    return cell


def points_over_seeds(study, contrast, *datasets):
    """Write the points of a contrast on datasets that a report does not judge together: over seeds alone."""
    weights = evidence_of(study).study.contrasts[contrast]['weights']
    return points(sum(weight * scores(f'{study}/{model}', *datasets) for model, weight in weights.items()))


def points_by_task(study, contrast):
    """Return {dataset: points} of a report's contrast."""
    line, = [line for line in report(study)['Claims by task'] if line['claim'] == contrast]
    return line


def with_verdict(study, contrast):
    """Write the points of a contrast, of the rule "better", and its verdict. Since rules 3 the report itself
    says where p is near 0.05."""
    line = verdicts(study)[contrast]
    text = f'{line["points"]}, {in_signs(line["verdict"])}'
    rules = evidence_of(study).study.rules
    if rules < 3 and is_near_005(float(line['p']), float(line['Holm']), RESAMPLES, rules):
        text += NEAR
    return text


def in_signs(text):
    """Write verdicts of the rule "better" as where points lie."""
    for verdict, sign in SIGNS.items():
        text = text.replace(verdict, sign)
    return text


def how_verdicts_move(study, contrasts):
    """Return a table of verdicts on each split, and with a seed left out.

    contrasts  {name, of the rule "better": its words}"""
    lines = {line['claim']: line for line in report(study)['How the verdicts move']}
    rows = []
    for name, words in contrasts.items():
        line = lines[name]
        splits = [in_signs(line[split]).replace('] ', '], ') for split in ('test split', 'validation split')]
        means, _, _ = line['each seed left out'].partition(':')
        rows.append([words, with_verdict(study, name), *splits, means or 'too few',
                     verdict_stays(study, name)])
    return table(['contrast', 'both splits', 'test alone', 'validation alone', 'with a seed left out',
                  'the verdict stays'], rows)


def verdict_stays(study, contrast):
    """Write how often a contrast's verdict is the same with a seed left out: 5 of 6."""
    line, = [line for line in report(study)['How the verdicts move'] if line['claim'] == contrast]
    if not line['each seed left out']:
        return '-'
    verdict = verdicts(study)[contrast]['verdict'].removesuffix(NEAR)
    counts = re.findall(rf'(\d+) {verdict}', line['each seed left out'])
    return f'{sum(map(int, counts))} of {len(evidence_of(study).seeds)}'


def rows_of_report(study, names, columns):
    """Return a line for each of the report's rows: their scores.

    names    {row: its words}
    columns  datasets"""
    lines = {line['row']: line for line in report(study)['All rows']}
    rows = []
    for name, words in names.items():
        by_dataset = {head.split(',')[0]: cell for head, cell in lines[name].items()}
        rows.append([words, *(by_dataset[dataset] or '-' for dataset in columns)])
    return rows


# ---------------------------------------------------------------------------
# What losses.csv says: held-out losses, and where MLM leaves its plateau


@functools.cache
def losses(study):
    """Return {(row, seed): its lines}, sorted by row and seed."""
    lines = {}
    with open(ROOT / f'studies/{study}/losses.csv', encoding='utf-8') as file:
        for line in csv.DictReader(file):
            lines.setdefault((line['row'], int(line['seed'])), []).append(line)
    return dict(sorted(lines.items()))


def last(model, column):
    """Return what the last line of each seed has in a column; nan where it is empty.

    model  after its study, as 'small/mlm-1800'"""
    study, name = model.split('/')
    texts = [lines[-1][column] for (row, _), lines in losses(study).items() if row == name]
    if not texts:
        raise Missing(f'{model} has no line in losses.csv')
    return np.array([float(text or 'nan') for text in texts])


def waits(model):
    """Write the step at which each seed has left MLM's plateau."""
    return ', '.join('never' if math.isnan(step) else f'{step:,.0f}' for step in last(model, 'plateau'))


def steps_of_all(study, row, clm_steps=0):
    return least_to_most(steps_of_each(study, row, clm_steps))


def steps_of_each(study, row, clm_steps=0):
    ended, stayed = steps_on_plateau(study, row, clm_steps)
    assert not stayed, f'{row}: a seed stays on its plateau, which these tables cannot say'
    return ended


def least_to_most(steps):
    if not steps:
        return '-'
    if len(steps) == 1:
        return f'{steps[0]:,}'
    return f'{min(steps):,} to {max(steps):,}'


def first_below(model, bound):
    """Return the step at which each seed's held-out MLM loss crosses a bound, linear between validations."""
    study, name = model.split('/')
    crossed = []
    for (row, _), lines in losses(study).items():
        if row == name:
            values = [float(line['val_mlm_loss']) for line in lines]
            steps = [int(line['step']) for line in lines]
            k = next(k for k, value in enumerate(values) if value <= bound)
            assert k > 0, f'{model}: its first validation is below {bound}'
            crossed.append(np.interp(bound, [values[k], values[k - 1]], [steps[k], steps[k - 1]]))
    return np.array(crossed)


def correlation(first, second):
    return decimals(np.corrcoef(first, second)[0, 1])

"""Write the tables of the pages from the studies: their packs, losses.csv and reports.

    python studies/page_tables.py           # fill all tables
    python studies/page_tables.py --check   # only say which tables are not what the studies say

A page says where a table goes, in a line that begins with <!--, and this script writes what stands between
that line and the end:

    <!-- targets: leads -->
    | the lead on | AdamW, one rate | ...
    <!-- end -->

The function targets_leads, below, returns this table. Points are percent, with 95 % intervals: over seeds and
test instances where a report judges a contrast, over the seeds alone elsewhere."""
import functools
import math
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the root, where evaluate.py is

from evaluate import seeds_half, warn
from nanoencoder.files import whole
from nanoencoder.settings import parse, run_main
from studies.report import Evidence
from studies.study import load

ROOT = Path(__file__).parents[1]
TABLES = {}     # {name of a function below: the function, which returns the lines of its table}
RESAMPLES = 10_000      # of a report's bootstrap


@dataclass(frozen=True)
class Settings:
    check: bool = False     # write nothing


def table_of(function):
    """Decorate a function whose table stands in a page."""
    TABLES[function.__name__] = functools.cache(function)
    return function


# ---------------------------------------------------------------------------
# Pages


def find_pages(root):
    return [*root.glob('*.md'), *sorted(root.glob('docs/*.md')), *sorted(root.glob('studies/**/README.md'))]


def write_tables(root, tables, check):
    """Write the tables of all pages below a folder. Returns problems, in words: markers and tables that
    belong to nothing and, with `check`, tables that would change."""
    problems = []
    used = set()
    for page in find_pages(root):
        before = page.read_text(encoding='utf-8')
        after, stale = fill(page, before, tables, used, problems)
        if check:
            problems += [f'{page}: {marker} is not what the studies say; run studies/page_tables.py'
                         for marker in stale]
        elif stale:
            with whole(page) as temporary:
                temporary.write_text(after, encoding='utf-8')
            print(page)
    for name in sorted(tables.keys() - used):
        problems.append(f'studies/page_tables.py: no page has a marker for {name}; remove one of the two')
    return problems


def fill(page, text, tables, used, problems):
    """Return a page's text with its tables filled, and the markers of those that changed."""
    text, *marked = re.split(r'(?m)^(<!-- \w+: .* -->)\n', text)
    stale = []
    for marker, rest in zip(marked[::2], marked[1::2]):
        name = name_of(marker)
        used.add(name)
        shown, end, after = rest.partition('<!-- end -->')
        if not end:
            problems.append(f'{page}: {marker} has no <!-- end --> below its table')
        elif name not in tables:
            problems.append(f'{page}: {marker} needs a function {name} in studies/page_tables.py')
        else:
            lines = '\n'.join(tables[name]()) + '\n'
            if lines != shown:
                stale.append(marker)
            rest = lines + end + after
        text += f'{marker}\n{rest}'
    return text, stale


def name_of(marker):
    """Return the function of a marker: targets_leads of <!-- targets: leads -->."""
    return re.sub(r'\W+', ' ', marker).strip().replace(' ', '_')


def table(heads, rows):
    """Return the lines of a Markdown table."""
    rule = '---|' * len(heads)
    lines = [f'| {" | ".join(row)} |' for row in [heads, *rows]]
    return [lines[0], f'|{rule}', *lines[1:]]


# ---------------------------------------------------------------------------
# What the studies say


@functools.cache
def evidence_of(study, *options):
    """Return a study's Evidence. Scores of its seeds need no bootstrap, so it draws little."""
    loaded, _ = load([str(ROOT / 'studies' / study), *options])
    evidence = Evidence(loaded)
    evidence.cfg = replace(evidence.cfg, resamples=100)
    return evidence


def scores(model, *datasets):
    """Return the score of each pretraining seed, in percent, on both splits: the mean over datasets.

    model  after its study, as 'small/mlm-1800', maybe at one rate: 'small/mlm-3600+rates@2e-3'"""
    study, name = model.split('/')
    name, _, lr = name.partition('@')
    lr = float(lr) if lr else None
    return np.array(evidence_of(study).percents({(name, lr): 1}, datasets))


def lead(first, second):
    """Return a column for by_task: by how many points the first model is ahead of the second."""
    def cell(*datasets):
        return points(scores(first, *datasets) - scores(second, *datasets))
    return cell


def points(values):
    """Write the mean of these differences, one a seed, and its interval. A tie is rounded up."""
    mean = values.mean() + 1e-9
    half = seeds_half([values.tolist()])
    return f'{mean:+.1f} [{mean - half:+.1f}, {mean + half:+.1f}]'


@functools.cache
def report(study):
    """Return {section: [{head: cell}, a line each]} of a report's tables."""
    text = (ROOT / f'studies/{study}/report.md').read_text(encoding='utf-8')
    sections = {}
    for section in text.split('\n## ')[1:]:
        title, *lines = section.splitlines()
        lines = [line for line in lines if line.startswith('|')]
        heads, _, *rows = [[cell.strip(' *') for cell in line.split('|')[1:-1]] for line in lines]
        sections[title] = [dict(zip(heads, row)) for row in rows]
    return sections


def verdicts(study):
    """Return {contrast: its line of the report's table of verdicts}."""
    names = [contrast.name for contrast in evidence_of(study).study.comparisons]
    return dict(zip(names, report(study)['Verdicts'], strict=True))


def judged(study, contrast):
    """Return a column for by_task: the points of a report's contrast, with its verdict if it has one on these
    datasets."""
    def cell(*datasets):
        lines = verdicts(study)
        name = contrast
        if len(datasets) == 1:
            name = f'{contrast}, {datasets[0]}'     # a contrast of its own
        if name in lines:
            return f'{lines[name]["points"]}, {verdict_in_words(lines[name])}'
        for line in report(study)['Claims by task']:
            if line['claim'] == contrast:
                return line[datasets[0]]
    return cell


def verdict_in_words(line):
    """Write a verdict on "better". It is at the edge if p after Holm is within two Monte-Carlo errors of
    0.05."""
    signs = {'agrees': 'above 0', 'disagrees': 'below 0', 'cannot tell': 'cannot tell'}
    words = signs[line['verdict']]
    p = float(line['p'])
    factor = float(line['Holm']) / p
    if abs(factor * p - 0.05) < 2 * factor * math.sqrt(2 * p / RESAMPLES):
        words += ' (at the edge)'
    return words


# ---------------------------------------------------------------------------
# Tables of the novels: studies/optimiser and studies/targets

# {dataset: its words in a table}; definitions were fine-tuned too short, which their lines say
TASKS = {
    'ewt_pos': '`ewt_pos`',
    'wn_sc': '`wn_sc`, 2 epochs',
    'squad_ir': '`squad_ir`',
}


def by_task(head, columns):
    """Return a table with a line for each of TASKS and one for their mean.

    columns  {head: function that returns the cell of these datasets}"""
    rows = []
    for dataset, words in TASKS.items():
        rows.append([words, *(cell(dataset) for cell in columns.values())])
    rows.append(['mean', *(cell(*TASKS) for cell in columns.values())])
    return table([head, *columns], rows)


@table_of
def optimiser_ends():
    """The paper's claim at the greatest length."""
    return by_task('MLM minus CLM', {
        'AdamW': judged('optimiser', 'end under AdamW'),
        'Muon, ratio 6.7': judged('optimiser', 'end under Muon'),
    })


@table_of
def targets_leads():
    return by_task('the lead on', {
        'AdamW, one rate': lead('targets/one-clm25-mlm', 'targets/one-mlm'),
        'AdamW, two rates': lead('targets/two-clm25-mlm', 'targets/two-mlm'),
        'Muon, ratio 0.42': lead('targets/muon-clm25-mlm', 'targets/muon-mlm'),
    })


@table_of
def targets_how_leads_differ():
    return by_task('how leads differ on', {
        'AdamW: one rate minus two': judged('targets', 'lead, one rate less two'),
        'AdamW with two rates minus Muon, ratio 0.42': judged('targets', 'lead, two rates less Muon'),
    })


def main():
    cfg, _ = parse(Settings, sys.argv[1:])
    sys.exit(warn(write_tables(ROOT, TABLES, cfg.check)))


if __name__ == '__main__':
    run_main(main)

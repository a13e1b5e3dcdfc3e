"""Write the tables of the pages from the studies: their packs, losses.csv and reports.

    python studies/page_tables.py           # fill all tables
    python studies/page_tables.py --check   # only say which tables are not what the studies say

A page says where a table goes, in a line that begins with <!--, and this script writes what stands between
that line and the end:

    <!-- targets: leads -->
    | the lead on | AdamW, one rate | ...
    <!-- end -->

The function targets_leads, in tables/targets.py, returns this table. Points are percent, with 95 % intervals:
over seeds and test instances where a report judges a contrast, over the seeds alone elsewhere."""
import re
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the root, where evaluate.py is

from evaluate import warn
from nanoencoder.files import whole
from nanoencoder.settings import parse, run_main
from studies.page_numbers import ROOT, TABLES
from studies.report import Missing
from studies.tables import counts, definitions, novels, optimiser, paper, plateau, small, stuck, targets

# each adds its functions to TABLES
FILES = counts, definitions, novels, optimiser, paper, plateau, small, stuck, targets


@dataclass(frozen=True)
class Settings:
    check: bool = False     # write nothing


def find_pages(root):
    """Return the pages below a folder that may have tables."""
    pages = []
    for pattern in ('*.md', 'docs/*.md', 'studies/**/README.md'):
        pages += sorted(root.glob(pattern))
    return pages


def write_tables(root, tables, check):
    """Write the tables of all pages below a folder. Returns problems, in words: markers and tables that
    belong to nothing and, with `check`, tables that would change."""
    problems = []
    used = set()
    for page in find_pages(root):
        before = page.read_text(encoding='utf-8')
        name = page.relative_to(root)
        after, stale = fill(name, before, tables, used, problems)
        if check:
            problems += [f'{name}: {marker} is not what the studies say; run studies/page_tables.py'
                         for marker in stale]
        elif stale:
            with whole(page) as temporary:
                temporary.write_text(after, encoding='utf-8')
            print(name)
    for name in sorted(tables.keys() - used):
        problems.append(f'studies/tables: no page has a marker for {name}; remove one of the two')
    return problems


def fill(page, text, tables, used, problems):
    """Return a page's text with its tables filled, and the markers of those that changed. Adds the functions
    of its markers to `used`, and what is wrong with a marker to `problems`."""
    text, *marked = re.split(r'(?m)^(<!-- \w+: .* -->)\n', text)
    stale = []
    for marker, rest in zip(marked[::2], marked[1::2]):
        name = name_of(marker)
        used.add(name)
        shown, end, after = rest.partition('<!-- end -->')
        if not end:
            problems.append(f'{page}: {marker} has no <!-- end --> below its table')
        elif name not in tables:
            problems.append(f'{page}: {marker} needs a function {name} in studies/tables')
        else:
            try:
                lines = '\n'.join(tables[name]()) + '\n'
            except Missing as error:
                problems.append(f'{page}: {marker} is left as it is: there is no {error}')
                lines = shown
            if lines != shown:
                stale.append(marker)
            rest = lines + end + after
        text += f'{marker}\n{rest}'
    return text, stale


def name_of(marker):
    """Return the name of a marker's function: targets_leads of <!-- targets: leads -->."""
    return re.sub(r'\W+', ' ', marker).strip().replace(' ', '_').lower()


def main():
    cfg, _ = parse(Settings, sys.argv[1:])
    sys.exit(warn(write_tables(ROOT, TABLES, cfg.check)))


if __name__ == '__main__':
    run_main(main)

"""What a fork does first leaves every test green: all recipes at once, in a copy (`make slow`)."""
import ast
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from conftest import ROOT, edit
from recipes import BLOCKS, README, indented

# The three tests that hold what a recipe replaces, as docs/hacking.md says: the schedule's rates, its
# picture, and runs of the paper that are branches of longer ones
OF_OUR_SCHEDULE = ('test_pretrain.py::test_schedule_by_hand', 'test_pretrain.py::test_the_papers_38_runs',
                   'test_pictures.py::test_pictures_are_what_the_script_draws[schedule]')


def copy_repository(folder):
    listed = subprocess.check_output(['git', 'ls-files', '-z'], cwd=ROOT, text=True)
    for name in listed.strip('\0').split('\0'):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)


def put_below(path, table, block):
    """Insert a block below the statement that gives a table its name."""
    text = path.read_text()
    ends = [node.end_lineno for node in ast.parse(text).body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == table]
    lines = text.splitlines(keepends=True)
    lines[ends[0]:ends[0]] = ['\n', '\n', *block.splitlines(keepends=True)]
    path.write_text(''.join(lines))


def apply_block(folder, title, block):
    """Do with a block of a page what its first line says."""
    place = title.split(': ')[-1]
    below = re.fullmatch(r'(\S+), below (\w+)(, too)?', place)
    if below:
        put_below(folder / below[1], below[2], block)
    elif place == 'pretrain.py':
        code = (folder / place).read_text()
        method, = re.findall(r'(?ms)^    def lr_at\(.*?\n(?=\n    def )', code)
        edit(folder / place, method, indented(block))
    elif place == 'nanoencoder/metrics.py, in score_tags':
        path = folder / 'nanoencoder/metrics.py'
        begin = "    others = {\n        'precision'"
        edit(path, begin, indented(block) + begin.replace('{', "{\n        'word accuracy': accuracy,", 1))
    else:
        path = folder / place
        path.parent.mkdir(exist_ok=True)
        assert not path.exists(), f'{title}: what is to be done with this block?'
        path.write_text(block)


def add_kind(folder):
    """A kind of task, and a correlation as a metric of SC: what docs/hacking.md says in words."""
    edit(folder / 'nanoencoder/metrics.py', "CORRELATIONS = 'Pearson', 'Spearman'",
         "CORRELATIONS = 'Pearson', 'Spearman', 'concordance'")
    put_below(folder / 'nanoencoder/metrics.py', 'METRICS', "METRICS['XX'] = METRICS['SC']\n")
    package = folder / 'nanoencoder/tasks'
    shutil.copy(package / 'classification.py', package / 'mine.py')
    edit(package / 'mine.py', 'class Classification(', 'class Mine(')
    edit(package / '__init__.py', "'IR': Retrieval", "'IR': Retrieval, 'XX': Mine")
    edit(package / '__init__.py', 'from nanoencoder.tasks.multilabel',
         'from nanoencoder.tasks.mine import Mine\nfrom nanoencoder.tasks.multilabel')


def changed_files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob('*.py')
            if not (ROOT / path.relative_to(folder)).exists()
            or path.read_text() != (ROOT / path.relative_to(folder)).read_text()}


def fork(folder):
    """Copy the repository and apply every recipe. Returns the files that this changed."""
    copy_repository(folder)
    assert not changed_files(folder)
    for title, block in BLOCKS.items():
        if '.py' in title and 'alone' not in title:     # others are run as they are, beside the program
            apply_block(folder, title, block)
    add_kind(folder)
    return changed_files(folder)


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / '.git').exists(), reason='needs the list of files that git has')
def test_all_recipes_leave_every_test_green(tmp_path):
    changed = fork(tmp_path / 'fork')
    for what, where in re.findall(r'(?m)^\| ([^|]+) \| ([^|]+) \| (?:about )?\d+ \|$', README.read_text()):
        places = re.findall(r'[\w/]+/|[\w/]+\.py', where)
        done = [path for path in changed if path.startswith(tuple(places))]
        assert done, f'{what}: no recipe is applied'

    command, = re.findall(r'\$\(RUN\) -m (pytest .*"not slow".*)', (ROOT / 'Makefile').read_text())
    of_an_outer_run = 'PYTEST_', 'PYTHONPATH'
    environment = {name: value for name, value in os.environ.items() if not name.startswith(of_an_outer_run)}
    words = [*shlex.split(command), '-p', 'no:cacheprovider']
    words += [f'--deselect=tests/{name}' for name in OF_OUR_SCHEDULE]
    result = subprocess.run(
        [sys.executable, '-m', *words],
        cwd=tmp_path / 'fork', env=environment, capture_output=True, text=True, timeout=1_800)
    assert result.returncode == 0, result.stdout[-8_000:] + result.stderr[-2_000:]

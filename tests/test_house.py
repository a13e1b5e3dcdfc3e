"""The house: how much there is to read, which rooms there are, and what may import what."""
import ast
import graphlib
import re
import statistics
import tomllib

import pytest
import yaml

from conftest import ROOT, run_process
from nanoencoder.metrics import METRICS
from nanoencoder.settings import EXTRAS
from recipes import BLOCKS, indented
from weigh import part_of, tokens_of_lines

SCRIPTS = sorted(ROOT.glob('*.py'))
PACKAGE = sorted((ROOT / 'nanoencoder').rglob('*.py'))
STUDIES = [path for path in (ROOT / 'studies').rglob('*.py') if path.name != 'config.py']
REST = [*STUDIES, *(ROOT / 'examples').glob('*.py'), *(ROOT / 'bench').glob('*.py')]
SPEEDRUN = [*(ROOT / 'speedrun').glob('*.py')]
# How many tokens of Python what a reader holds at once may have (its files are in weigh.py). Sums of the
# program, of the tests or of the pages have no bound: everyone who forks adds to them. A fine-tuning and a
# score are read with one kind of task, the heaviest; a fork may add others.
MOST = {'a training step': 8_000, 'a fine-tuning': 12_740, 'a score': 10_835}
TAUT = 16       # tokens a line of code, above which a function is as dense as a formula
MODULES = {     # nanoencoder.tasks of nanoencoder/tasks/__init__.py
    '.'.join(path.relative_to(ROOT).with_suffix('').parts).removesuffix('.__init__'): path
    for path in SCRIPTS + PACKAGE}


def tree(path):
    return ast.parse(path.read_bytes())


def densities(path):
    """{function: tokens a line of code}; docstrings are not code."""
    counts = tokens_of_lines(path.read_text())
    found = {}
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef):
            lines = {*range(node.lineno, node.end_lineno + 1)}
            for inner in ast.walk(node):
                if isinstance(inner, ast.FunctionDef) and ast.get_docstring(inner):
                    lines -= {*range(inner.body[0].lineno, inner.body[0].end_lineno + 1)}
            code = [counts[line] for line in lines if counts[line]]
            found[f'{path.name}: {node.name}'] = sum(code) / len(code)
    return found


def is_two_things(node):
    """Whether a statement or expression does two things in one line."""
    if isinstance(node, ast.NamedExpr):
        return True
    if isinstance(node, ast.Assign):
        tuples = isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)
        return tuples and len({kind_of(value) for value in node.value.elts}) > 1
    if isinstance(node, ast.IfExp):
        return any(isinstance(inner, ast.IfExp) for inner in ast.walk(node) if inner is not node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return any(isinstance(side, (ast.Compare, ast.BoolOp)) for side in (node.left, node.right))
    return False


def kind_of(value):
    """Like things may be assigned in one line: a, b = f(x), f(y), or a swap of names."""
    return ast.dump(value.func) if isinstance(value, ast.Call) else type(value)


def is_a_kind(path):
    """Whether a file holds a kind of task."""
    bases = [base for node in ast.walk(tree(path)) if isinstance(node, ast.ClassDef) for base in node.bases]
    return any(ast.unparse(base) == 'Kind' for base in bases)


def weights_of_scores():
    """How many tokens each function of metrics.py has that scores a kind of task: a reader needs one."""
    counts = tokens_of_lines((ROOT / 'nanoencoder/metrics.py').read_text())
    names = {metric.standard.__name__ for metric in METRICS.values()}
    return [
        sum(counts[line] for line in range(node.lineno, node.end_lineno + 1))
        for node in tree(ROOT / 'nanoencoder/metrics.py').body
        if isinstance(node, ast.FunctionDef) and node.name in names]


def own_text(path):
    """A file's text without what somebody put there by a recipe of docs/hacking.md."""
    text = path.read_text()
    for recipe in BLOCKS.values():
        text = text.replace(recipe, '')
        text = text.replace(indented(recipe), '')   # a method
    return text


@pytest.mark.parametrize('part', MOST)
def test_what_is_read_together_can_be_held_in_mind(part):
    """If this fails, look for what nobody would miss. Comments cost nothing here, and joining lines gains
    nothing."""
    files = [path for path in SCRIPTS + PACKAGE if part_of(path.relative_to(ROOT)) == part]
    weights = {path: tokens_of_lines(own_text(path)).total() for path in files}
    kinds = [weights.pop(path) for path in files if is_a_kind(path)]
    weight = sum(weights.values()) + max(kinds, default=0)
    if part == 'a score':
        scores = weights_of_scores()
        weight -= sum(scores) - max(scores)
    assert weight <= MOST[part], f'{part} has {weight:,} tokens of {MOST[part]:,}'


def test_a_line_does_one_thing():
    """The median function has at most 10.5 tokens a line, and what is denser than TAUT is mathematics."""
    rates = {}
    for path in SCRIPTS + PACKAGE:
        rates |= densities(path)
    assert statistics.median(rates.values()) <= 10.5
    taut = [name for name, rate in rates.items() if rate > TAUT]
    assert len(taut) <= 10, taut
    doubled = [f'{path}:{node.lineno}' for path in SCRIPTS + PACKAGE + REST + SPEEDRUN
               for node in ast.walk(tree(path)) if is_two_things(node)]
    assert not doubled


@pytest.mark.parametrize('name', MODULES)
def test_lines_and_functions_are_short(name):
    path = MODULES[name]
    wide = [number for number, line in enumerate(path.read_text().splitlines(), 1) if len(line) > 110]
    assert not wide, f'{path}: lines {wide} are wider than 110 columns'
    long = [node.name for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef)
            and node.end_lineno - node.lineno >= 60]
    assert not long, f'{path}: {long} are longer than 60 lines'


def imported(nodes):
    """The modules, or what may be one, that imports among these nodes name."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {node.module} | {f'{node.module}.{alias.name}' for alias in node.names}
    return names


def test_the_program_imports_no_script_but_model_and_data_and_no_study():
    others = {path.stem for path in SCRIPTS} - {'model', 'data'}
    others |= {'studies', 'examples', 'bench', 'speedrun'}
    for name, path in MODULES.items():
        roots = {module.split('.')[0] for module in imported(ast.walk(tree(path)))}
        assert not roots & others - {name}, name


def test_nothing_imports_the_speedrun():
    """A fork may leave the folder out."""
    for path in [*REST, *(ROOT / 'tests').glob('*.py')]:
        roots = {module.split('.')[0] for module in imported(ast.walk(tree(path)))}
        assert 'speedrun' not in roots, path


def test_no_import_goes_round_in_a_circle():
    """Of the imports at the top of files: data.py calls prepare.py, which reads what data.py says."""
    graph = {name: imported(tree(path).body) & MODULES.keys() - {name} for name, path in MODULES.items()}
    assert graph['finetune']
    assert graph['nanoencoder.pretraining.checkpoint']
    list(graphlib.TopologicalSorter(graph).static_order())   # CycleError


def test_what_not_every_script_needs_is_imported_where_it_is_used():
    """So that a cluster does without it, and so that `run_main` can say which extra installs it."""
    for path in [*SCRIPTS, *PACKAGE, *STUDIES, *SPEEDRUN, *(ROOT / 'examples').glob('*.py')]:
        roots = {module.split('.')[0] for module in imported(tree(path).body)}
        assert not roots & EXTRAS.keys(), path
    extras = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']['optional-dependencies']
    del extras['test']
    assert {*EXTRAS.values()} == {*extras}


def test_evaluate_loads_no_torch():
    names = run_process('-c', 'import sys, evaluate; print(*sys.modules)', check=True).stdout.split()
    assert 'evaluate' in names
    assert 'torch' not in names


def test_readme_begins_with_the_command():
    page = (ROOT / 'README.md').read_text().splitlines()
    assert any(line.startswith('    make demo') for line in page[:15])


def test_make_and_uv_install_exact_versions():
    """Of all that pyproject.toml asks for. Makefile gives pip the version of torch once more."""
    content = tomllib.loads((ROOT / 'pyproject.toml').read_text())
    extras = content['project']['optional-dependencies'].values()
    wanted = {re.split('[=>]', name)[0] for name in sum(extras, content['project']['dependencies'])}
    pins = dict(pin.split('==') for pin in content['tool']['uv']['constraint-dependencies'])
    assert {name for name in wanted if not name.startswith('nanoencoder[')} == {*pins}
    makefile = (ROOT / 'Makefile').read_text()
    assert {*re.findall(r'torch==(\S+)', makefile)} == {pins['torch']}
    assert f'build/transformers-{pins["transformers"]}/installed' in makefile
    assert f'rev: v{pins["ruff"]} ' in (ROOT / '.pre-commit-config.yaml').read_text()


def test_what_is_cited_is_the_software():
    """A preferred-citation would be cited in its place."""
    content = yaml.safe_load((ROOT / 'CITATION.cff').read_text())
    assert (content['type'], content['title']) == ('software', 'nanoEncoder')
    project = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']
    assert content['version'] == project['version']
    assert f'version={{{project["version"]}}}' in (ROOT / 'README.md').read_text()
    assert f'## {project["version"]} ' in (ROOT / 'CHANGELOG.md').read_text()
    assert 'preferred-citation' not in content
    assert [work['title'] for work in content['references']] == [
        'Should We Still Pretrain Encoders with Masked Language Modeling?']

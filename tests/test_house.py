"""The house: three wings over a ground floor, that a reader can hold in mind."""
import ast
import graphlib
import re
import subprocess
import tomllib
from functools import partial

import pytest

from conftest import ROOT, run_process

SCRIPTS = sorted(ROOT.glob('*.py'))
PROGRAM = SCRIPTS + sorted((ROOT / 'nanoencoder').rglob('*.py'))
WINGS = 'pretraining', 'tasks', 'judging'
MODULES = {     # nanoencoder.tasks of nanoencoder/tasks/__init__.py
    '.'.join(path.relative_to(ROOT).with_suffix('').parts).removesuffix('.__init__'): path
    for path in PROGRAM}


def tree(path):
    return ast.parse(path.read_bytes())


def imported(nodes):
    """The modules of the program that imports among these nodes name."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {node.module} | {f'{node.module}.{alias.name}' for alias in node.names}
    return names & MODULES.keys()


def count(split, *paths):
    return sum(len(split((ROOT / path).read_text())) for path in paths)


words = partial(count, str.split)


def test_a_wing_imports_no_other_but_the_metrics():
    """Nor does the ground floor, but for two that stand beside the scripts: layers and speedrun."""
    for name, path in MODULES.items():
        if name.startswith('nanoencoder.') and path.stem not in ('layers', 'speedrun'):
            own = name.split('.')[1]
            allowed = {'nanoencoder.judging', 'nanoencoder.judging.metrics'} if own == 'tasks' else set()
            assert not {used for used in imported(ast.walk(tree(path))) - allowed
                        if {*used.split('.')[1:2]} & {*WINGS} - {own}}, name


def test_a_script_imports_no_other_but_model_and_data():
    scripts = {path.stem for path in SCRIPTS} - {'model', 'data'}
    for name, path in MODULES.items():
        assert not imported(ast.walk(tree(path))) & scripts - {name}, name


def test_no_import_goes_round_in_a_circle():
    """Of the imports at the top of files: those within functions are there to wait."""
    graph = {name: imported(tree(path).body) - {name} for name, path in MODULES.items()}
    assert graph['finetune'] and graph['nanoencoder.tasks.runs']
    list(graphlib.TopologicalSorter(graph).static_order())   # CycleError


@pytest.mark.parametrize('name', MODULES)
def test_lines_and_functions_are_short(name):
    path = MODULES[name]
    wide = [number for number, line in enumerate(path.read_text().splitlines(), 1) if len(line) > 110]
    assert not wide, f'{path}: lines {wide} are wider than 110 columns'
    long = [node.name for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef)
            and node.end_lineno - node.lineno >= 60]
    assert not long, f'{path}: {long} are longer than 60 lines'


@pytest.mark.parametrize('script', ['finetune', 'pretrain', 'evaluate'])
def test_evaluate_alone_loads_no_torch(script):
    names = run_process('-c', f'import sys, {script}; print(*sys.modules)', check=True).stdout.split()
    assert ('torch' in names) == (script != 'evaluate')


def test_pages_are_short():
    assert words(*(ROOT / 'docs').glob('*.md')) <= 12_000
    assert words('README.md') <= 1_000
    page = (ROOT / 'README.md').read_text().splitlines()
    assert any(line.startswith('    make ') for line in page[:15])


def test_make_and_uv_install_exact_versions():
    """Of all that pyproject.toml asks for. Makefile gives pip the version of torch once more."""
    content = tomllib.loads((ROOT / 'pyproject.toml').read_text())
    extras = content['project']['optional-dependencies'].values()
    wanted = {re.split('[=>]', name)[0] for name in sum(extras, content['project']['dependencies'])}
    pins = dict(pin.split('==') for pin in content['tool']['uv']['constraint-dependencies'])
    assert wanted - {'nanoencoder[peers]'} == {*pins}
    assert {*re.findall(r'torch==(\S+)', (ROOT / 'Makefile').read_text())} == {pins['torch']}


def test_make_leaves_avx512_out_where_its_path_has_a_space(tmp_path):
    """ld.so would split LD_PRELOAD there. A processor and a compiler that may be missing here are given."""
    for name, preloads in ('plain', True), ('with a space', False):
        folder = tmp_path / name
        folder.mkdir()
        (folder / 'pyproject.toml').touch()
        made = subprocess.run(['make', '-n', '-f', ROOT / 'Makefile', 'demo', 'has_avx512=echo cc'], cwd=folder,
                              capture_output=True, text=True, check=True).stdout
        command, = (line for line in made.splitlines() if 'study.py' in line)
        assert command.startswith(f'LD_PRELOAD={folder}/.venv/fast.so ') == preloads
        assert (f'Without AVX-512, at half the speed: the path {folder} has a space' in made) != preloads

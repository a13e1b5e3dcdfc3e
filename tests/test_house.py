"""The house: rooms that a reader can hold in mind, and who may import whom."""
import ast
import graphlib

import pytest

from conftest import ROOT

SCRIPTS = sorted(ROOT.glob('*.py'))
PROGRAM = SCRIPTS + sorted((ROOT / 'nanoencoder').rglob('*.py'))


def name_of(path):
    """A file's name as a module: nanoencoder.tasks of nanoencoder/tasks/__init__.py."""
    return '.'.join(path.relative_to(ROOT).with_suffix('').parts).removesuffix('.__init__')


MODULES = {name_of(path): path for path in PROGRAM}


def imported(nodes):
    """The modules of the program that imports among these nodes of a file name."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {node.module} | {f'{node.module}.{alias.name}' for alias in node.names}
    return names & MODULES.keys()


def tree(path):
    return ast.parse(path.read_bytes())


def lines(*names):
    return sum(len((ROOT / name).read_text().splitlines()) for name in names)


def test_rooms_import_no_script_but_model_data_and_evaluate():
    scripts = {path.stem for path in SCRIPTS} - {'model', 'data', 'evaluate'}
    for name, path in MODULES.items():
        assert not imported(ast.walk(tree(path))) & scripts, name


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
            and node.end_lineno - node.lineno >= 45]
    assert not long, f'{path}: {long} are longer than 45 lines'


def test_a_training_step_and_the_scripts_stay_small():
    assert lines('model.py', 'data.py', 'pretrain.py') <= 901
    assert lines(*SCRIPTS) <= 1_900

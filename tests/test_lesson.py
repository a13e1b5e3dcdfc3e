"""docs/lesson.md and its notebook: they are the same, and the notebook runs (`make slow`)."""
import json
import re
import resource

import pytest

from conftest import ROOT
from examples import lesson

NEEDED = ('jupytext', 'nbclient', 'ipykernel')
PAGE = lesson.PAGE.read_text()


@pytest.fixture(autouse=True)
def packages():
    for name in NEEDED:
        pytest.importorskip(name, reason=f'{name} is not installed: make .venv')


def test_the_notebook_is_made_from_the_page(tmp_path, monkeypatch):
    """With the outputs that the page shows."""
    monkeypatch.setattr(lesson, 'NOTEBOOK', tmp_path / 'lesson.ipynb')
    lesson.save(lesson.make_notebook(PAGE))
    committed = ROOT / 'examples/lesson.ipynb'
    assert json.loads(lesson.NOTEBOOK.read_text()) == json.loads(committed.read_text()), 'make lesson'


def test_links_of_the_notebook_lead_somewhere():
    for cell in lesson.make_notebook(PAGE).cells:
        if cell.cell_type == 'markdown':
            for target in re.findall(r'\]\((?!https:)([^)#]+)', cell.source):
                assert (ROOT / 'examples' / target).exists(), target


def test_what_cells_print_and_draw_comes_behind_them(tmp_path, monkeypatch):
    """Also where the page had another output, or one that is gone."""
    from nbformat import v4
    monkeypatch.setattr(lesson, 'PICTURE', tmp_path / 'lesson.png')
    page = ('a\n\n```python\n1\n```\n\n```text\nold\n```\n\nb [c](d.md)\n\n```python\n2\n```\n\n'
            '```text\nold\n```\n\n```python\n3\n```\n\n![e](pictures/lesson.png)\n')
    notebook = lesson.make_notebook(lesson.without_outputs(page))
    assert [cell.cell_type for cell in notebook.cells] == ['markdown', 'code', 'markdown', 'code', 'code']
    assert notebook.cells[2].source == 'b [c](../docs/d.md)'
    first, second, third = lesson.code_cells(notebook)
    first.outputs = [v4.new_output('stream', name='stdout', text='new\n'),
                     v4.new_output('stream', name='stderr', text='a warning\n')]
    third.outputs = [v4.new_output('display_data', {'image/png': 'YWJj'})]
    wanted = page.replace('old', 'new', 1).replace('\n```text\nold\n```\n', '')
    assert lesson.write_page(page, notebook) == wanted
    assert lesson.PICTURE.read_bytes() == b'abc'


@pytest.mark.slow
def test_the_notebook_runs_in_six_minutes():
    runs = ('out/mlm-1800-s6', 'out/clm25-mlm-1800-s6', 'predictions/clm25-mlm-1800-s6/TC/docs_tc')
    missing = [run for run in runs if not (ROOT / run).exists()]
    if missing:
        pytest.skip(f'{", ".join(missing)}: the lesson is built on the runs of make demo')
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    notebook = lesson.make_notebook(lesson.without_outputs(PAGE))
    lesson.run(notebook)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime - before.ru_utime      # of one core, whatever else the machine does
    assert 0 < seconds < 360
    shown = [match['printed'] is not None for match in lesson.CELL.finditer(PAGE)]
    assert shown == [lesson.printed(cell) != '' for cell in lesson.code_cells(notebook)]

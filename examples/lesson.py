"""Run the lesson and write what its cells print: into the page, docs/lesson.md, and into the notebook.

    python examples/lesson.py       # after make demo: two to six minutes

The page is the source. Its blocks of Python are the cells. A block of text behind a cell is what it printed,
and a picture behind it is what it drew. From the page jupytext makes the notebook, examples/lesson.ipynb."""
import base64
import posixpath
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))     # the root

from nanoencoder.files import whole
from nanoencoder.settings import plain_words, run_main

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / 'docs/lesson.md'
PICTURE = ROOT / 'docs/pictures/lesson.png'
NOTEBOOK = ROOT / 'examples/lesson.ipynb'
SECONDS = 1_800     # that a cell may take, on a machine that has much else to do
CELL = re.compile(r"""
    (?P<code>    ^```python\n .*? ^```\n)
    (?P<printed> \n```text\n .*? ^```\n)?
    (?P<drawn>   \n!\[[^]]*\]\(pictures/lesson\.png\)\n)?""", re.DOTALL | re.MULTILINE | re.VERBOSE)
LINK = re.compile(r'\]\((?!https:|#)([^)]*)\)')


def make_notebook(page):
    """Return the notebook of a page, with the outputs that the page shows."""
    import jupytext
    from nbformat import v4
    notebook = jupytext.reads(without_outputs(page), 'md')
    notebook.metadata = {
        'kernelspec': {'name': 'python3', 'display_name': 'Python 3', 'language': 'python'},
        'language_info': {'name': 'python'}}
    for number, cell in enumerate(notebook.cells):
        cell.id = f'cell-{number}'      # nbformat would draw it at random
        cell.metadata = {}
        if cell.cell_type == 'markdown':
            cell.source = LINK.sub(link_from_notebook, cell.source)

    for number, (cell, shown) in enumerate(zip(code_cells(notebook), CELL.finditer(page), strict=True), 1):
        cell.execution_count = number
        if shown['printed']:
            text = shown['printed'].removeprefix('\n```text\n').removesuffix('```\n')
            cell.outputs.append(v4.new_output('stream', name='stdout', text=text))
        if shown['drawn']:
            picture = base64.b64encode(PICTURE.read_bytes()).decode()
            cell.outputs.append(v4.new_output('display_data', {'image/png': picture}))
    return notebook


def without_outputs(page):
    return CELL.sub(r'\g<code>', page)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == 'code']


def link_from_notebook(match):
    """A link of the page leads from docs/, one of the notebook from examples/."""
    path = posixpath.normpath(posixpath.join('../docs', match[1]))
    return f']({path.removeprefix("../examples/")})'


def run(notebook):
    """Run all cells, in a process of its own. An error in a cell is raised."""
    from nbclient import NotebookClient
    client = NotebookClient(notebook, timeout=SECONDS, resources={'metadata': {'path': str(NOTEBOOK.parent)}})
    client.execute()


def printed(cell):
    """Return what a cell has printed."""
    return ''.join(
        output.text for output in cell.outputs
        if output.output_type == 'stream' and output.name == 'stdout')


def drawn(cell):
    """Return the picture that a cell has drawn, or None."""
    pictures = [output.data['image/png'] for output in cell.outputs if 'image/png' in output.get('data', {})]
    return base64.b64decode(pictures[0]) if pictures else None


def write_page(page, notebook):
    """Return the page with what the notebook's cells have printed. A picture is written to its file."""
    cells = iter(code_cells(notebook))

    def with_outputs(match):
        cell = next(cells)
        text = printed(cell)
        lines = '\n'.join(line.rstrip() for line in text.rstrip().splitlines())
        block = f'\n```text\n{lines}\n```\n' if lines else ''
        picture = drawn(cell)
        if picture:
            PICTURE.write_bytes(picture)
        return match['code'] + block + (match['drawn'] or '')
    return CELL.sub(with_outputs, page)


def save(notebook):
    import nbformat
    with whole(NOTEBOOK) as temporary:
        nbformat.write(notebook, temporary)


def main():
    plain_words(sys.argv[1:])
    page = PAGE.read_text()
    notebook = make_notebook(without_outputs(page))
    run(notebook)
    page = write_page(page, notebook)
    PAGE.write_text(page)
    save(make_notebook(page))


if __name__ == '__main__':
    run_main(main)

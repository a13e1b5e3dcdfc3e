"""studies/page_tables.py: tables between markers, and what they are computed from."""
import numpy as np
import pytest

from conftest import ROOT
from studies import page_tables

PAGE = '''# A page

<!-- small: two lines -->
old
<!-- end -->
after
'''


def test_the_pages_have_the_tables_of_the_studies():
    assert page_tables.write_tables(ROOT, page_tables.TABLES, check=True) == []


def test_a_table_is_written_between_its_markers(tmp_path):
    page = tmp_path / 'README.md'
    page.write_text(PAGE)
    tables = {'small_two_lines': lambda: page_tables.table(['a', 'b'], [['1', '2']])}
    stale, = page_tables.write_tables(tmp_path, tables, check=True)
    assert '<!-- small: two lines --> is not what' in stale
    assert page.read_text() == PAGE
    assert page_tables.write_tables(tmp_path, tables, check=False) == []
    assert page.read_text() == PAGE.replace('old\n', '| a | b |\n|---|---|\n| 1 | 2 |\n')
    assert page_tables.write_tables(tmp_path, tables, check=True) == []


@pytest.mark.parametrize('page, tables, words', [
    (PAGE, {}, 'needs a function small_two_lines'),
    (PAGE.replace('<!-- end -->', ''), {'small_two_lines': list}, 'has no <!-- end -->'),
    ('', {'small_two_lines': list}, 'no page has a marker for small_two_lines'),
])
def test_what_belongs_to_nothing_is_named(page, tables, words, tmp_path):
    (tmp_path / 'README.md').write_text(page)
    problem, = page_tables.write_tables(tmp_path, tables, check=False)
    assert words in problem
    assert (tmp_path / 'README.md').read_text() == page


def test_points_by_hand():
    """The interval of 1, 2, 3 is 2 +- 4.303 / sqrt(3), by a table of Student's t; 0.05 is rounded up."""
    assert page_tables.points(np.array([1, 2, 3])) == '+2.0 [-0.5, +4.5]'
    assert page_tables.points(np.array([0.05, 0.05])) == '+0.1 [+0.1, +0.1]'

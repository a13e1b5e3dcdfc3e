"""The embedded tasks: they hold enough, and nothing that is held out, nor a label, leaks."""
import collections

import pytest

from examples import baselines
from nanoencoder import docs, wordnet
from nanoencoder.tasks import SCORED, SPLITS


@pytest.fixture(scope='module')
def embedded():
    """{task: {split: rows}}"""
    return docs.tasks() | wordnet.tasks()


def test_what_wordnet_holds_out_is_in_no_text_to_train_on(embedded):
    definitions = {split: {one.definition for one in wordnet.synsets().values() if one.split == split}
                   for split in SPLITS}
    sides = {'wn_sc': 'text', 'wn_pairs': 'first', 'wn_qa': 'question', 'wn_ir': 'positive'}
    for name, side in sides.items():
        assert [len(rows) for rows in embedded[name].values()] == [12_000, 1_000, 1_000]
        for split in SCORED:
            held = {row[side] for row in embedded[name][split]}
            assert held <= definitions[split] and not held & definitions['train']
    for row in embedded['wn_qa']['test']:
        text = row['answers']['text'][0]
        assert row['context'].startswith(text, row['answers']['answer_start'][0]) and text != row['context']


@pytest.mark.parametrize('words, examples, used', [
    (['run'], ['a walk', 'He kept running home'], 'running'),
    (['pass out', 'faint'], ['She passed out at once'], 'passed out'),
    (['carry'], ['It carries weight'], 'carries')])
def test_a_used_word_by_hand(words, examples, used):
    example, start, end = wordnet.used_word(wordnet.Synset('', '', words, '', examples, [], 0, ''))
    assert example[start:end] == used


def test_a_word_within_another_is_not_used():
    assert wordnet.used_word(wordnet.Synset('', '', ['cat'], '', ['a catalogue', 'cat'], [], 0, '')) is None


def test_no_markup_tells_the_label(embedded):
    for split, least in zip(SPLITS, (6_000, 800, 500)):
        assert len(embedded['docs_tc'][split]) >= least
        for row in embedded['docs_tc'][split]:
            assert len(row['tokens']) == len(row['tags']) and not {'`', '``', '*', '**'} & {*row['tokens']}
            # punctuation is a word of its own everywhere
            assert all(len(word) == 1 or word[-1].isalnum() or word[-1] == '_' for word in row['tokens'])


def test_no_shared_name_or_boilerplate_finds_a_document(embedded):
    texts = collections.Counter()
    for split, least in zip(SPLITS, (2_500, 400, 250)):
        assert len(embedded['docs_ir'][split]) >= least
        for row in embedded['docs_ir'][split]:
            query, positive = ({word.strip('.,:;()') for word in row[side].split()}
                               for side in ('query', 'positive'))
            assert not {name for name in query & positive if '_' in name}
            texts.update([row['query'], row['positive']])
    assert max(texts.values()) == 1


def test_an_embedded_task_by_hand():
    lines = ['Return the ``axis`` of `numpy.array`, see :func:`~torch.add` and *out* now, please.']
    (words, tags), = docs.marked_sentences(lines)
    assert ' '.join(words) == 'Return the axis of numpy.array , see torch.add and out now , please .'
    code = [word for word, tag in zip(words, tags) if tag != 'O']
    assert code == ['axis', 'numpy.array', 'torch.add', 'out']


@pytest.mark.parametrize('side, most', [('second', 0.55), ('first', 0.65)])
def test_one_definition_of_a_pair_hardly_tells_the_label(embedded, side, most):
    """The first does a little: a parent's children are more special."""
    rows = {split: [row | {'fields': [row[side]]} for row in embedded['wn_pairs'][split]] for split in SPLITS}
    predict = baselines.naive_bayes(rows['train'])
    right = [predict(row) == row['label'] for split in SCORED for row in rows[split]]
    assert sum(right) < most * len(right)

"""The simple methods of examples/baselines.py, by hand, and that they write what evaluate.py reads."""
import json

from conftest import jsonl, run_process
from examples import baselines
from nanoencoder.tasks import Task


def fitted(kind, train=(), corpus=(), **settings):
    """{method: its prediction of a row}, fitted to a task's rows."""
    task = Task(
        kind=kind,
        dataset='d',
        source='x',
        **settings)
    return baselines.methods(task, {'train': train, 'corpus': corpus})


def labelled(*rows):
    return [
        {'fields': fields, 'label': label}
        for *fields, label in rows]


def tagged(*sentences):
    """Rows of 'The/DET cat/NOUN'."""
    rows = []
    for sentence in sentences:
        pairs = [pair.split('/') for pair in sentence.split()]
        words, tags = zip(*pairs)
        rows.append({'words': words, 'tags': tags})
    return rows


def test_words_are_looked_up_then_their_shapes():
    predict = fitted('TC', tagged('Rome/B-LOC the/O', 'Paris/B-LOC'))['word-lookup']
    assert predict({'words': ['Rome', 'Oslo', 'cat', '?!']}) == ['B-LOC', 'I-LOC', 'O', 'O']
    train = tagged('The/DET cat/NOUN sat/VERB', 'A/DET cat/NOUN ?/PUNCT')
    predict = fitted('TC', train, scheme='plain')['word-lookup']
    assert predict({'words': ['The', 'dog', '!?']}) == ['DET', 'NOUN', 'DET']


def test_numbers_are_predicted_by_shared_words():
    rows = labelled(
        ('a b', 'A, b', 4.5),
        ('a b', 'b c', 2),
        ('a b', 'd', 0))
    predict = fitted('SC', rows, metric='Pearson')['word-overlap']
    assert [predict(row) for row in rows] == [1, 0.5, 0]


def test_naive_bayes_by_hand():
    """Words that train does not have count for nothing, nor does case, nor punctuation."""
    train = labelled(
        ('a a B', 'c', 'x'),
        ('b', '', 'x'),
        ('b', 'd', 'y'))
    predict = fitted('SC', train)['naive-bayes']
    # of five words after x, two of them b, and of two after y; each of the four once more
    x = 2 / 3 * 1 / 9 * (3 / 9) ** 4
    y = 1 / 3 * 2 / 6 * (2 / 6) ** 4
    assert x < y
    assert predict({'fields': ['D, b b b b e']}) == 'y'


def test_a_sentence_that_shares_words_is_the_answer():
    predict = fitted('QA', template='How? {question}\n{context}')['likeliest-sentence']
    row = {'question': 'How? How high?\n', 'context': 'It is two. The high one. How?'}
    assert predict(row) == 'The high one.'


def test_a_templates_own_words_do_not_count():
    corpus = {'a': 'Sort of {x}: sort or none', 'b': 'Sort of {x}: Rome or of old'}
    templates = {'query': 'Sort {text}', 'document': 'Sort of {{x}}: {title} or {text}'}
    predict = fitted('IR', corpus=corpus, **templates)['BM25']
    first = predict({'id': 'q', 'query': 'Sort of x', 'grades': {}})
    assert first['docs'] == ['b', 'a']
    assert first['scores'][1] == 0


def test_the_best_method_on_validation_is_written(tmp_path):
    rows = [
        {'text': 'bad', 'label': 'n'},
        {'text': 'good', 'label': 'p'},
        {'text': 'good', 'label': 'p'}]
    for split in ('train', 'validation', 'test'):
        jsonl(tmp_path / f'{split}.jsonl', rows)
    options = ['--kind=SC', '--dataset=d', f'--data={tmp_path}', f'--predictions={tmp_path}/p']
    told = run_process('examples/baselines.py', *options, check=True).stdout
    assert 'majority-class: validation 66.7, test 66.7' in told
    folder = tmp_path / 'p/naive-bayes/SC/d/lr0e+00_sd0'
    assert json.loads((folder / 'run.json').read_text())['method'] == 'baseline'
    assert (folder / 'test.jsonl.gz').exists()

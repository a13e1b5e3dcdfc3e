"""The simple methods of examples/baselines.py, by hand, and that they write what evaluate.py reads."""
import itertools
import json
import math
import random
from types import SimpleNamespace

import numpy as np
import pytest
import regex

from conftest import jsonl, refused, run_process
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


def test_the_most_frequent_label_is_every_texts_and_other_kinds_are_refused():
    predict = fitted('ML', [{'label': names} for names in (['b'], ['a', 'b'], [])])['most-frequent-label']
    assert predict({}) == ['b']
    other = SimpleNamespace(kind='XX')
    refused('^XX: .* has none for this kind of task', baselines.methods, other, {'train': ()})


def test_a_sentence_that_shares_words_is_the_answer():
    predict = fitted('QA', template='How? {question}\n{context}')['likeliest-sentence']
    row = {'question': 'How? How high?\n', 'context': 'It is two. The high one. How?'}
    assert predict(row) == 'The high one.'


SENTENCES = {   # and what stands between two of them
    'hi': (' ', 'राम ने आम खाया।', 'सीता ने किताब पढ़ी।', 'मोहन घर गया।'),
    'zh': ('', '北京是首都。', '海淀区有很多大学！', '他去了学校？'),
    'ja': ('', '東京は首都です。', '京都には寺が多い。', '人々は歩いた。'),
    'th': (' ', 'กรุงเทพเป็นเมืองหลวง', 'เชียงใหม่มีวัดมาก', 'เขาไปโรงเรียน'),
    'ar': (' ', 'ذهب الولد إلى المدرسة؟', 'قرأت البنت الكتاب.', 'عاد الرجل.'),
    'am': (' ', 'ልጁ ሄደ።', 'ልጅቷ አነበበች።', 'ሰውየው ተመለሰ።'),
}


@pytest.mark.parametrize('language', SENTENCES)
def test_a_sentence_ends_as_its_script_ends_it(language):
    space, *sentences = SENTENCES[language]
    predict = fitted('QA', template='{question}\n{context}')['likeliest-sentence']
    assert predict({'question': f'{sentences[1]}\n', 'context': space.join(sentences)}) == sentences[1]


def bm25_by_loops(query, documents):
    """A judge: Okapi BM25 with k1 0.9, b 0.4, written apart. Words are those of the library `regex`."""
    def split(text):
        found = []
        for word in regex.findall(r'[\p{L}\p{M}\p{N}_]+', text.lower()):
            if regex.match(r'[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}]', word) and len(word) > 1:
                found += map(''.join, zip(word, word[1:]))
            else:
                found.append(word)
        return found
    bags = [split(document) for document in documents]
    mean = sum(map(len, bags)) / len(bags)
    scores = []
    for bag in bags:
        score = 0
        for word in split(query):
            count = bag.count(word)
            num_with = sum(word in other for other in bags)
            idf = math.log(1 + (len(bags) - num_with + 0.5) / (num_with + 0.5))
            score += idf * count * 1.9 / (count + 0.9 * (0.6 + 0.4 * len(bag) / mean))
        scores.append(score)
    return scores


WORDS = {   # of which nouns make topics
    'hi': ['नदी', 'पर्वत', 'किताब', 'विद्यालय', 'मंदिर', 'समुद्र', 'रेलगाड़ी', 'चिड़िया', 'और', 'में', 'है', 'के'],
    'zh': ['河流', '高山', '书本', '学校', '寺庙', '海洋', '火车', '小鸟', '和', '在', '是', '的'],
    'th': ['แม่น้ำ', 'ภูเขา', 'หนังสือ', 'โรงเรียน', 'วัด', 'ทะเล', 'รถไฟ', 'นก', 'และ', 'ใน', 'เป็น', 'ของ'],
    'ar': ['نهر', 'جبل', 'كتاب', 'مدرسة', 'معبد', 'بحر', 'قطار', 'طائر', 'و', 'في', 'هو', 'من'],
}


@pytest.mark.parametrize('language', WORDS)
def test_bm25_knows_words_of_every_script(language):
    """Each of 28 documents has two nouns among common words; a query has the same two. BM25 ranks as a
    judge's does."""
    draw = random.Random(0)
    nouns = WORDS[language][:8]
    common = WORDS[language][8:]
    space = '' if language in ('zh', 'th') else ' '
    documents = []
    queries = []
    for pair in itertools.combinations(nouns, 2):
        for texts, length in ((documents, 8), (queries, 1)):
            chosen = [*pair, *draw.choices(common, k=length)]
            draw.shuffle(chosen)
            texts.append(space.join(chosen))
    corpus = {f'{k:02}': f'Document: {text}' for k, text in enumerate(documents)}
    predict = fitted('IR', corpus=corpus)['BM25']
    first = 0
    for k, query in enumerate(queries):
        found = predict({'id': 'q', 'query': f'Query: {query}', 'grades': {}})
        judge = np.round(bm25_by_loops(query, documents), 6)
        assert found['scores'] == pytest.approx(sorted(judge, reverse=True)[:10], abs=2e-6)
        first += found['docs'][0] == f'{k:02}'
    assert first >= 12      # of 28; by chance 1


def test_overlap_and_shapes_know_other_scripts():
    predict = fitted('SC', labelled(('a', 'b', 1.0)), metric='Pearson')['word-overlap']
    assert predict({'fields': ['猫が寝る', '猫が歩く']}) == 1 / 3     # 猫が of 猫が, が寝, 寝る
    assert baselines.words('2008年 das_ende मेरी') == ['2008', '年', 'das_ende', 'मेरी']
    assert [*map(baselines.shape, ('Rome', 'B52', 'Élan', 'мир', 'Ελλάδα', '٣٤', '北京'))] == [
        'Xx', 'X0', 'Xx', 'x', 'Xx', '0', '北京']


def test_a_templates_own_words_do_not_count():
    corpus = {'a': 'Sort of {x}: sort or none', 'b': 'Sort of {x}: Rome or of old'}
    templates = {'query': 'Sort {text.en}', 'document': 'Sort of {{x}}: {doc.title} or {text[0]}'}
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

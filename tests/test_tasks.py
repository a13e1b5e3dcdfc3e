"""The twelve tasks on files of their true schema, the alignment of answers and entities, bad input."""
import ast
import collections
import gzip
import json
import random
import re

import datasets
import numpy as np
import pytest
import pytrec_eval

import finetune
from conftest import LLAMA3, ROOT, jsonl, one_line_error, replace, run_script
from nanoencoder import docs, settings as configs, tasks, wordnet
from nanoencoder.judging import metrics, paper
from nanoencoder.tasks import retrieval
from nanoencoder.tasks.files import (EMBEDDED_TASKS, Field, embedded_files, json_lines, read_files,
                                     read_hub)
from nanoencoder.tasks.task import Labels, fill
from nanoencoder.tokenizer import load_tokenizer

DOCS = ROOT / 'configs/corpora/docs'
TOKENIZER = load_tokenizer(str(DOCS))


def task(name, **changes):
    cfg, _ = configs.parse(finetune.Settings, [f'configs/tasks/{name}.py', '--model=x'])
    return replace(cfg, **changes)


def load(name, **changes):
    return tasks.kind_of(task(name, **changes)).load()


def look(name, *options):
    return run_script('finetune.py', f'configs/tasks/{name}.py', '--look', *options)


TEXT, NUMBER = datasets.Value('string'), datasets.Value('int32')
CONLL = ('O', 'B-PER', 'I-PER', 'B-ORG', 'I-ORG', 'B-LOC', 'I-LOC', 'B-MISC', 'I-MISC')
DATES = ('O', 'B-DATE', 'I-DATE', 'B-GPE')
SHARD, PUBLIC = '{}-00000-of-00001.parquet', ('train', 'validation')
SQUAD = {'id': TEXT, 'title': TEXT, 'context': TEXT, 'question': TEXT,
         'answers': {'text': datasets.List(TEXT), 'answer_start': datasets.List(NUMBER)}}
SQUAD_ROW = {'id': 'x1', 'title': 'T', 'context': 'It is 42 m high.', 'question': 'How high?',
             'answers': {'text': ['42 m'], 'answer_start': [6]}}
ANSWERED = {'answers': [('42 m', 6)], 'question': 'How high?\n'}


def labelled(folder, labels, label, shown, splits=PUBLIC, **columns):
    """The entry in SCHEMAS of a set in GLUE or SuperGLUE: text columns, a label, an index."""
    pattern = f'{folder}/{SHARD if folder.startswith("glue/") else "{}/0000.parquet"}'
    features = dict.fromkeys(columns, TEXT) | {
        'label': datasets.ClassLabel(names=[*labels]) if labels else datasets.Value('float32'), 'idx': NUMBER}
    read = labels[label] if labels else label
    return pattern, splits, features, columns | {'label': label, 'idx': 7}, {'text': shown, 'label': read}


SCHEMAS = {  # config: (files below the folder, their splits, features, a row, what is read of it)
    'sst2': labelled('glue/sst2', ('negative', 'positive'), 1, 'a good one', sentence='a good one'),
    'qqp': labelled('glue/qqp', ('not_duplicate', 'duplicate'), 1,
                    'Question 1: Why?\nQuestion 2: Why so?', question1='Why?', question2='Why so?'),
    'mnli': labelled('glue/mnli', ('entailment', 'neutral', 'contradiction'), 2,
                     'Premise: It rains.\nHypothesis: It is dry.', ('train', 'validation_matched'),
                     premise='It rains.', hypothesis='It is dry.'),
    'conll2003': (f'conll2003-en/data/{SHARD}', tasks.SPLITS,
                  {'words': datasets.List(TEXT), 'ner': datasets.List(datasets.ClassLabel(names=[*CONLL]))},
                  {'words': ['EU', 'rejects', 'German', 'call'], 'ner': [3, 0, 7, 0]},
                  {'tags': ['B-ORG', 'O', 'B-MISC', 'O']}),
    'ontonotes': ('ontonotes5/default/{}/0000.parquet', tasks.SPLITS,
                  {'tokens': datasets.List(TEXT), 'tags': datasets.List(datasets.ClassLabel(names=[*DATES]))},
                  {'tokens': ['In', 'May', '1999', ',', 'Rome'], 'tags': [0, 1, 2, 0, 3]},
                  {'tags': ['O', 'B-DATE', 'I-DATE', 'O', 'B-GPE']}),
    'uner': ('uner_en/{}.jsonl', tasks.SPLITS, None,
             {'idx': 'a-1', 'text': 'Al Gore', 'tokens': ['Al', 'Gore', 'x', 'y'],
              'ner_tags': ['B-PER', 'I-PER', 'B-OTH', 'B-O'], 'annotator': ['z']},
             {'tags': ['B-PER', 'I-PER', 'O', 'O'], 'id': 'a-1'}),
    'squad': (f'squad/plain_text/{SHARD}', PUBLIC, SQUAD, SQUAD_ROW, ANSWERED),
    'squad_v2': (f'squad_v2/squad_v2/{SHARD}', PUBLIC, SQUAD,
                 SQUAD_ROW | {'answers': {'text': [], 'answer_start': []}}, {'answers': []}),
    'record': (f'record/data/{SHARD}', PUBLIC, SQUAD, SQUAD_ROW, ANSWERED)}
PAPER = [*SCHEMAS, 'msmarco', 'nq', 'mldr']
NLI, TRUTH = ('entailment', 'not_entailment'), ('False', 'True')
UPOS = datasets.ClassLabel(names=[      # in the order of the hub's copy
    'NOUN', 'PUNCT', 'ADP', 'NUM', 'SYM', 'SCONJ', 'ADJ', 'PART', 'DET', 'CCONJ', 'PROPN', 'PRON', 'X', '_',
    'ADV', 'INTJ', 'VERB', 'AUX'])
SCHEMAS |= {
    'cola': labelled('glue/cola', ('unacceptable', 'acceptable'), 0, 'Cat the sat.', sentence='Cat the sat.'),
    'stsb': labelled('glue/stsb', (), 3.75, 'Sentence 1: A.\nSentence 2: B.', sentence1='A.', sentence2='B.'),
    'mrpc': labelled('glue/mrpc', ('not_equivalent', 'equivalent'), 1, 'Sentence 1: A.\nSentence 2: B.',
                     sentence1='A.', sentence2='B.'),
    'qnli': labelled('glue/qnli', NLI, 1, 'Question: Why?\nSentence: So.', question='Why?', sentence='So.'),
    'rte': labelled('glue/rte', NLI, 0, 'Premise: A.\nHypothesis: B.', sentence1='A.', sentence2='B.'),
    'boolq': labelled('super_glue/boolq', TRUTH, 1, 'Question: is it?\nPassage: It.', question='is it?',
                      passage='It.'),
    'multirc': labelled('super_glue/multirc', TRUTH, 0, 'Paragraph: P.\nQuestion: Q?\nAnswer: A',
                        paragraph='P.', question='Q?', answer='A'),
    'wsc': labelled('super_glue/wsc', TRUTH, 1, 'Text: Al said he did.\nNoun: Al\nPronoun: he',
                    text='Al said he did.', span1_text='Al', span2_text='he'),
    'ewt_pos': ('universal_dependencies/en_ewt/{}/0000.parquet', tasks.SPLITS,
                {'idx': TEXT, 'tokens': datasets.List(TEXT), 'upos': datasets.List(UPOS)},
                {'idx': 'a-1', 'tokens': ['It', 'works', '.'], 'upos': [11, 16, 1]},
                {'tags': ['PRON', 'VERB', 'PUNCT'], 'id': 'a-1'})}
for form, value in ((2, NUMBER), (3, 7)):   # a row of MultiRC has three indices
    SCHEMAS['multirc'][form]['idx'] = dict.fromkeys(('paragraph', 'question', 'answer'), value)


@pytest.mark.parametrize('name', SCHEMAS)
def test_a_local_copy_of_each_hub_dataset(tmp_path, name, capsys):
    pattern, splits, features, row, read = SCHEMAS[name]
    rows = [row | ({'label': row['label'] + k} if name == 'stsb' else {}) for k in range(40)]   # no constant
    for split in splits:
        path = tmp_path / pattern.format(split)
        path.parent.mkdir(parents=True, exist_ok=True)
        if features is None:
            jsonl(path, rows)
        else:
            datasets.Dataset.from_list(rows, features=datasets.Features(features)).to_parquet(path)
    rows, labels = load(name, data=str(tmp_path))
    folder = str(tmp_path / pattern.split('/')[0])  # the same files, if --data names the dataset's own folder
    assert load(name, data=folder) == (rows, labels)
    sizes = [40, 40, 40] if task(name).validation else [38, 2, 40]
    assert [len(rows[split]) for split in tasks.SPLITS] == sizes
    assert {key: rows['test'][0].get(key) for key in read} == read
    wanted = {'stsb': ('score',), 'conll2003': CONLL, 'ontonotes': DATES, 'uner': ('O', 'B-PER', 'I-PER')}
    assert labels == wanted.get(name, labels)
    if name == 'uner':
        assert capsys.readouterr().err.count("120 labels 'B-OTH' read as 'O'") == 2
    if name == 'ontonotes':     # a folder in the hub's layout stands for the hub
        assert read_hub(folder, '', 'train', 'refs/convert/parquet') == ([row] * 40, {'tags': [*labels]})


def beir(folder, name, form):
    """A set of three documents, one unjudged, as BEIR's .zip holds it, as the hub does, or as parquet."""
    scored = [(f'q{k}', f'd{k % 2}', (2, 1, 0, 1, 1, 1, 1, 1)[k]) for k in range(8)]
    qrels = {'train': [('q2', 'd2', 1), ('q0', 'd0', 0), ('q0', 'd1', 2)], 'dev': scored, 'test': scored}
    tables = {'corpus': [{'_id': f'd{k}', 'title': f'T{k}', 'text': f'text {k}'} for k in range(3)],
              'queries': [{'_id': f'q{k}', 'text': f'what {k}', 'metadata': {'k': k}} for k in range(8)]}
    tables |= {split: judged(*rows)[1] for split, rows in qrels.items()}
    for part, rows in tables.items():
        apart = '/qrels' if form == 'zip' else '-qrels'
        place = folder / f'{name}{apart * (part in qrels)}'
        place.mkdir(exist_ok=True)
        if form == 'parquet':
            path = place / ('default' if part in qrels else part) / part / '0000.parquet'
            path.parent.mkdir(parents=True)
            datasets.Dataset.from_list(rows).to_parquet(path)
        elif part in qrels:
            (place / f'{part}.tsv').write_text('query-id\tcorpus-id\tscore\n' + ''.join(
                f'{query}\t{document}\t{score:.1f}\n' for query, document, score in qrels[part]))
        elif form == 'zip':
            jsonl(place / f'{part}.jsonl', rows)
        else:
            (place / f'{part}.jsonl.gz').write_bytes(gzip.compress(json_lines(rows).encode()))


@pytest.mark.parametrize('form', ['parquet', 'hub', 'zip'])
def test_a_local_copy_of_msmarco_and_nq(tmp_path, form, capsys):
    beir(tmp_path, 'msmarco', form)
    for is_own in (False, True)[:1 + (form == 'zip')]:     # whether --data names the set's own folder
        rows, _ = load('msmarco', data=f'{tmp_path}{"/msmarco" * is_own}')
        assert rows['corpus'] == {'d0': 'Document: text 0', 'd1': 'Document: text 1'}      # judged ones alone
        assert rows['test'][:2] == [{'id': 'q0', 'query': 'Query: what 0', 'grades': {'d0': 2}},
                                    {'id': 'q1', 'query': 'Query: what 1', 'grades': {'d1': 1}}]
        told = capsys.readouterr().err
        assert '1 of 8 queries have no relevant document' in told and 'nothing to train on' in told
    jsonl(tmp_path / 'msmarco-pairs/train.jsonl', [{'query': 'why', 'positive': 'because'}] * 3)
    rows, _ = load('msmarco', data=str(tmp_path))
    assert rows['train'] == [{'query': 'Query: why', 'positive': 'Document: because'}] * 3
    with pytest.raises(ValueError, match='score_on configs/tasks/nq.py: .*nq is not there'):
        tasks.load_sets(task('msmarco', data=str(tmp_path)), TOKENIZER, 100)
    beir(tmp_path, 'nq', form)
    rows, _ = load('nq', data=str(tmp_path))
    assert rows['corpus']['d1'] == 'Document: T1. text 1'
    ids = [{row['id'] for row in rows[split]} for split in tasks.SCORED]
    assert len(ids[0]) + len(ids[1]) == 7 and not ids[0] & ids[1]
    for judged_only, documents in ((True, 2), (False, 3)):  # without pairs: what train judges relevant
        rows, _ = load('nq', data=str(tmp_path), pairs='', judged_only=judged_only)
        assert rows['train'] == [{'query': 'Query: what 2', 'positive': 'Document: T2. text 2'},
                                 {'query': 'Query: what 0', 'positive': 'Document: T1. text 1'}]
        assert len(rows['corpus']) == documents


def test_a_local_copy_of_mldr(tmp_path):
    documents = [{'docid': f'd{k}', 'text': 'long ' * 50} for k in range(3)]
    jsonl(tmp_path / 'mldr-en/corpus.jsonl', documents)
    for split in ('dev', 'test'):
        passages = {'positive_passages': documents[:1], 'negative_passages': documents[1:2]}
        jsonl(tmp_path / f'mldr-en/{split}.jsonl', [{'query_id': f'q-{split}', 'query': 'what'} | passages])
    rows, _ = load('mldr', data=str(tmp_path))
    assert rows['validation'] == [{'id': 'q-dev', 'query': 'Query: what', 'grades': {'d0': 1, 'd1': 0}}]
    assert list(rows['corpus']) == ['d0', 'd1']


def test_every_config_of_a_task_parses_and_a_missing_hub_is_a_line():
    paths = sorted((ROOT / 'configs/tasks').glob('*.py'))
    assert len(paths) == 32
    for path in paths:
        configs.parse(finetune.Settings, [str(path), '--model=x'])
    assert {task(name).dataset for name in PAPER} <= {dataset for *_, dataset in paper.numbers()}
    one_line_error(look('sst2'), 'nyu-mll/glue', '--data takes')


STRANGE = ['naïve café', '日本語 テキスト', '🙂🙂 ok', 'a  b', "don't", '(x)', '1234567', 'e\u0301',
           '\u00a0x', 'ﬁ', 'Ünïcödé123', '—', '""']


def what_is_read(tokenizer, text):
    return tokenizer.decode(tokenizer.encode(text)).strip()


def check_tagging(rows, labels, tokenizer):
    examples, lost = tasks.kind_of(task('docs_tc')).examples(rows, labels, tokenizer, 4_000)
    assert not lost
    for row, example in zip(rows, examples, strict=True):
        for kind, start, end in metrics.entities(row['tags']):
            at = np.flatnonzero((example.words >= start) & (example.words < end))
            words = ' '.join(row['words'][start:end])
            if not len(at):
                assert not what_is_read(tokenizer, words)
                continue
            between = set(range(at[0], at[-1])) - set(at.tolist())
            assert not any(tokenizer.decode([example.tokens[k]]).strip() for k in between)
            text = tokenizer.decode(example.tokens[at[0]:at[-1] + 1])
            assert text.strip() == what_is_read(tokenizer, words), (text, words)
        own = example.words >= 0
        assert [labels[k] for k in example.targets[own]] == [row['tags'][w] for w in example.words[own]]


def check_questions(rows, tokenizer):
    """(answers, those that begin or end inside a token): an answer's tokens hold its text, none too many."""
    examples, lost = tasks.kind_of(task('squad')).examples(rows, (), tokenizer, 1 << 20)
    answers = inside = 0
    for row, example in zip(rows, examples, strict=True):
        at = np.flatnonzero(example.targets == 1)
        if not row['answers']:
            assert not len(at)
            continue
        answers += 1
        text, start = row['answers'][0]
        wanted = what_is_read(tokenizer, text)
        assert len(at) or not wanted
        if not len(at):
            continue
        first, last = example.words[at[0], 0], example.words[at[-1], 1]
        piece = row['context'][first:last]
        decoded = tokenizer.decode(example.tokens[at[0]:at[-1] + 1])
        assert wanted in what_is_read(tokenizer, piece) and what_is_read(tokenizer, piece) in decoded
        inside += what_is_read(tokenizer, piece) != wanted
        for k in (at[0], at[-1]):  # both ends are needed
            assert example.words[k, 0] < start + len(text) and example.words[k, 1] > start
    return answers, inside


@pytest.mark.parametrize('path', [DOCS, *[LLAMA3] * LLAMA3.exists(), 'composing'])
def test_strange_words_align(path, tmp_path):
    """Also by our tokenizer with the normalizer that Qwen's has."""
    if path == 'composing':
        path, content = tmp_path, json.loads((DOCS / 'tokenizer.json').read_text())
        (path / 'tokenizer.json').write_text(json.dumps(content | {'normalizer': {'type': 'NFC'}}))
    tokenizer, draw, rows = load_tokenizer(str(path)), random.Random(1), []
    for k in range(300):
        words, tags = draw.choices([*STRANGE, 'plain', 'words'], k=draw.randint(1, 12)), []
        for _ in words:
            tags.append(draw.choice(['O', 'B-X', 'I-X'] if tags and tags[-1] != 'O' else ['O', 'B-X']))
        rows.append({'id': str(k), 'words': words, 'tags': tags})
    check_tagging(rows, ('O', 'B-X', 'I-X'), tokenizer)
    rows = []
    for k in range(300):
        words = draw.choices(STRANGE, k=10)
        rows.append({'id': str(k), 'question': 'What?\n', 'context': ' '.join(words),
                     'answers': [(' '.join(words[4:6]), len(' '.join(words[:4])) + 1)]})
    check_questions(rows, tokenizer)


def test_truncation_is_counted():
    rows = [{'id': '0', 'words': ['word'] * 30,
             'tags': ['O'] * 3 + ['B-CODE'] + ['I-CODE'] * 16 + ['B-CODE', 'O'] * 5}]
    examples, lost = tasks.kind_of(task('docs_tc')).examples(rows, ('O', 'B-CODE', 'I-CODE'), TOKENIZER, 11)
    assert len(examples[0].tokens) == 11 and examples[0].tokens[-1] == TOKENIZER.ids['eos']
    reached = examples[0].words.max() + 1
    assert 4 < reached < 20 and lost == dict(texts=1, words=30 - reached, entities=6)  # one is cut through
    rows = [{'id': '0', 'text': 'word ' * 50, 'label': 'a'}, {'id': '1', 'text': '', 'label': 'a'}]
    examples, lost = tasks.kind_of(task('sst2')).examples(rows, ('a',), TOKENIZER, 20)
    assert [len(example.tokens) for example in examples] == [20, 1] and lost['texts'] == 1
    # of retrieval, where it belongs
    rows = {'train': [{'query': 'a', 'positive': 'word ' * 20}] * 3, 'corpus': {'d': 'word ' * 30, 'e': 'b'},
            'validation': [{'query': 'a'}], 'test': [{'query': 'c'}]}
    encoded = tasks.kind_of(task('docs_ir')).encode(rows, (), TOKENIZER, 11)
    assert encoded['train'][1] == {'texts': 3} and encoded['texts'][1] == {'texts': 1}


def test_windows_cover_the_context_and_lost_answers_are_counted():
    words = [f'w{k}' for k in range(200)]
    context, answers = ' '.join(words), [*words[:190:7], ' '.join(words[20:120])]
    rows = [{'id': str(k), 'question': 'Which?\n', 'context': context,
             'answers': [(answer, context.index(answer + ' '))]} for k, answer in enumerate(answers)]
    examples, lost = tasks.kind_of(task('squad', overlap=16)).examples(rows, (), TOKENIZER, 64)
    assert lost == dict(answers=1, texts=len(rows), windows=len(examples) - len(rows))
    for head in ('tag', 'span'):    # a part of an answer is no span
        parts, _ = tasks.kind_of(task('squad', qa_head=head)).examples(rows[-1:], (), TOKENIZER, 64)
        assert any((part.targets == 1).any() for part in parts) == (head == 'tag')
    for k, row in enumerate(rows[:-1]):
        windows = [example for example in examples if example.row == k]
        assert all(len(window.tokens) <= 64 for window in windows)
        covered = {int(c) for window in windows for a, b in window.words[window.words[:, 0] >= 0]
                   for c in range(a, b)}
        assert covered >= {i for i, c in enumerate(context) if c != ' '}
        text, start = row['answers'][0]
        tagged = [window.words[window.targets == 1] for window in windows]
        assert any(len(words) and context[words[0, 0]:words[-1, 1]] == text for words in tagged)


def test_lone_surrogates_do_not_shift_what_follows(tmp_path):
    jsonl(tmp_path / 'train.jsonl', [
        {'context': 'x \ud800 the answer', 'question': 'Wh\udc00?', 'text': 'a \uDBFF b 🙂',
         'answers': {'text': ['answer'], 'answer_start': [8]},
         'tokens': ['\ud800', 'Rome'], 'tags': ['O', 'B-CODE']}])
    (row,), _ = read_files([tmp_path / 'train.jsonl'], task('squad'))
    assert row['text'] == 'a \ufffd b 🙂' and row['question'] == 'Wh\ufffd?'
    columns = tasks.kind_of(task('squad')).make_row(row, None, 'row 0')
    assert check_questions([columns | {'id': '0'}], TOKENIZER) == (1, 0)
    columns = tasks.kind_of(task('docs_tc')).make_row(row, Labels(task('docs_tc'), {}, 'tags'), 'row 0')
    check_tagging([columns | {'id': '0'}], ('O', 'B-CODE'), TOKENIZER)


GOOD = {'sc': [{'text': 'fine', 'title': 'x', 'label': 'good'}, {'text': 'bad', 'title': '', 'label': False}],
        'tc': [{'tokens': ['Rome', 'fell'], 'tags': ['B-LOC', 'O']}],
        'qa': [{'question': '?', 'context': 'It was me.', 'answers': {'text': ['me'], 'answer_start': [7]}}]}


@pytest.mark.parametrize('kind, changes, words', [
    ('sc', {'label': 'great'}, "train row 2: label 'great' is none of bad, good; list it in `labels`"),
    ('sc', {'label': '1'}, r"label '1' is none of bad, good; .*: label_map = \(\('1', \"its name\"\),\)"),
    ('sc', {'label': -1}, 'train row 2: label -1 is none of bad, good; .*of numbers the names, from 0 on'),
    ('sc', {'label': 3.8}, 'train row 2: label 3.8 is none of bad, good; .*--metric=Pearson'),
    ('sc', {'label': ['good']}, "label \\['good'\\] is none of"),
    ('sc', {'title': ...}, "train row 2: has no column 'title', but text, label"),
    ('tc', {'tokens': ['a']}, '1 words and 2 tags'),
    ('tc', {'tokens': [], 'tags': []}, 'has 0 words'),
    ('tc', {'tokens': [None, 'a']}, 'None is not a word'),
    ('tc', {'tags': 'O'}, "'tags' holds 'O', and not list"),
    ('tc', {'tags': ['O', 'Location']}, "'Location' not O, B-TYPE, I-TYPE"),
    ('qa', {'answers': {'text': ['you'], 'answer_start': [7]}}, "answer 'you' is not at character 7"),
    ('qa', {'answers': {'text': ['me'], 'answer_start': [-2]}}, "answer 'me' is not at character -2"),
    ('qa', {'answers': {'text': ['me', 'x'], 'answer_start': [0]}}, "column 'answers' is no"),
    ('qa', {'answers': 'me'}, "column 'answers' is no"),
    ('qa', {'answers': {'text': 'It', 'answer_start': [0, 1]}}, "column 'answers' is no"),
    ('qa', {'answers': {'text': ['m'], 'answer_start': ['x']}}, "answer 'm' is not at character x")])
def test_bad_rows_are_named(tmp_path, kind, changes, words):
    rows = (GOOD[kind] * 2)[:2]
    bad = {name: value for name, value in (rows[0] | changes).items() if value is not ...}
    for split in tasks.SPLITS:
        jsonl(tmp_path / f'{split}.jsonl', rows + [bad] + rows if split == 'train' else rows)
    one_line_error(look(f'example_{kind}', f'--data={tmp_path}'), words)


@pytest.mark.parametrize('name, content, words', [
    ('train.txt', b'a O', 'no train{.jsonl,.jsonl.gz,.*: test.txt, train.txt; another .*--train=train.txt'),
    ('train.json', b'[]', 'train.json: holds no row'),
    ('train.json', b'{"data": 1}', 'train.json: is no list of objects, nor {"data": '),
    ('train.json', b'{"text": "a"}\n{"text": "b"}\n', 'a file of an object a line is named .jsonl'),
    ('train.jsonl', b'', 'train.jsonl: holds no row'),
    ('train.jsonl', b'{"text": \n', 'train.jsonl:1: is no JSON object'),
    ('train.jsonl', b'[1]\n', r'train.jsonl:1: is no JSON object: \[1\]'),
    ('train.jsonl', b'{"x":' + b'[' * 9_999, 'train.jsonl:1: is no JSON object'),
    ('train.jsonl', b'{"text": "\xff"}\n', 'train.jsonl: cannot be read: .utf-8. codec'),
    ('train.parquet', b'PAR1', 'not a whole parquet'),
    ('train.jsonl.gz', b'{}', 'train.jsonl.gz: cannot be read: Not a gzipped'),
    ('train.jsonl.gz', gzip.compress(b'{}' * 99, mtime=0)[:-9], 'train.jsonl.gz: cannot be read: Compressed'),
    ('train.csv', b'title,text,label\na,b\n', 'train.csv:2: has 2 fields, the header 3'),
    ('train.iob', b'Rome B-LOC\nfell\n', 'train.iob:2: has a word but no tag'),
    ('train.csv', b'title,text,label\na,"open,good\nb,c,bad\n', 'is a quote left open'),
    ('train.csv', b'text,text,label\na,b,good\n', 'two columns of its header'),
    ('train.csv', b'title,text,label\na,b,3.80\n', "label '3.80' has no name, .*--metric=Pearson"),
    ('train.jsonl', b'{"title": "", "text": "", "label": true}', 'label True has no name, and train has no')])
def test_bad_files_are_named(tmp_path, name, content, words):
    for split in ('train', 'test'):
        (tmp_path / name.replace('train', split)).write_bytes(content)
    one_line_error(look('example_sc', f'--data={tmp_path}', '--labels=()'), words)


@pytest.mark.parametrize('option', ['--template=text', '--template={text', '--template={text.x}', '--train=',
                                    "--labels=('a', 'a')", '--dataset=a/b', '--label_map=(("a", 1),)', '--label_map=((1, "a"), (True, "b"))',
                                    '--columns=1', '--columns=-1,0'])
def test_bad_task_settings_are_named(tmp_path, option):
    one_line_error(look('example_sc', f'--data={tmp_path}', option), option[2:].split('=')[0])


@pytest.mark.parametrize('content, columns, words', [
    ('# newdoc id = a\n# text = Rome fell # 2\n1\tRome\tB-LOC\t-\tann\n2\tfell\tO\t-\tann\n3\t#\tO\t-\tann\n'
     '4\t2\tO\t-\tann\n\n# newpar\n# sent_id = a-2\n# text = 1\n1\t1\tO\t-\tann\n', (),
     'Rome/B-LOC fell/O #/O 2/O | 1/O'),
    ('Rome B-LOC\n# O\n', (), 'Rome/B-LOC #/O'),
    ('# id 4cfb2ea3\tdomain=en\nRome _ _ B-LOC\nfell _ _ O\n', (), 'Rome/B-LOC fell/O'),
    ('# text =\nRome B-LOC\n', (), 'Rome/B-LOC'),
    ('-DOCSTART- -X- O\n\nRome NNP B-LOC\nfell VBD O\n\nYes UH O\n', (), 'Rome/B-LOC fell/O | Yes/O'),
    ('-DOCSTART- -X- O O O\n\n1 @card@ CARD I-NC O\n\nRom Rom NE I-NC B-LOC\n', (), '1/O | Rom/B-LOC'),
    ('1\tRome\tB-LOC\n2\tfell\tO\n', (1, 2), 'Rome/B-LOC fell/O'),
    ('1 @card@ CARD I-NC O\n2 Rom NE I-NC B-LOC\n', (0, 3), '1/I-NC 2/I-NC'),
    ('1-2\tcan\'t' + 8 * '\t_' + '\n1\tca\tcan\tAUX' + 6 * '\t_' + '\n2\tn\'t\tnot\tPART' + 6 * '\t_'
     + '\n2.1\tgo\tgo\tVERB' + 6 * '\t_', (1, 3), "ca/AUX n't/PART"),    # a range, and a word left out
    ('0\t-DOCSTART-\n1\tRome\tRome\tPROPN\tNNP\t_\t0\troot\t_\tB-LOC\n', (1, 9), 'Rome/B-LOC')])
def test_files_of_a_word_a_line(tmp_path, content, columns, words):
    """CoNLL's, where five columns are no numbered words; Universal NER's; those that `columns` describes."""
    (tmp_path / 'train.conll').write_text(content)
    rows, _ = read_files([tmp_path / 'train.conll'], task('example_tc', columns=columns))
    assert ' | '.join(' '.join(map('/'.join, zip(row['tokens'], row['tags']))) for row in rows) == words


def words_and_tags(folder, content, columns=()):
    """'word/tag word/tag | ...' of a file."""
    (folder / 'train.conll').write_text(content)
    rows, _ = read_files([folder / 'train.conll'], task('example_tc', columns=columns))
    return ' | '.join(' '.join(map('/'.join, zip(row['tokens'], row['tags']))) for row in rows)


def conllu(number, form, tag):
    return f'{number}\t{form}\tlemma\t{tag}' + '\t_' * 6 + '\n'


@pytest.mark.parametrize('comment', [
    '# meta::genre = academic', '# global.columns = ID FORM', '# annotation_gap', '# text = Rome #',
    '# visual-style 2 bgColor:blue here', '#\thttp://a.b\t[2014]', '#'])
def test_every_line_of_conllu_that_begins_with_a_hash_is_a_comment(tmp_path, comment):
    sentence = f'{comment}\n' + conllu(1, 'Rome', 'PROPN') + conllu(2, '#', 'SYM') + '\n'
    assert words_and_tags(tmp_path, 2 * sentence, (1, 3)) == 'Rome/PROPN #/SYM | Rome/PROPN #/SYM'


@pytest.mark.parametrize('number', ['1-2', '2.1'])
def test_ranges_and_empty_nodes_are_skipped_whatever_their_fields_hold(tmp_path, number):
    words = conllu(1, 'au', 'ADP') + conllu(2, 'fait', 'NOUN')
    assert words_and_tags(tmp_path, conllu(number, 'au fait', 'a b') + words, (1, 3)) == 'au/ADP fait/NOUN'


def test_a_word_between_tabs_may_hold_spaces_or_be_one(tmp_path):
    entities = 'New York\tB-LOC\n\xa0x\tO\n'
    assert words_and_tags(tmp_path, entities) == 'New York/B-LOC \xa0x/O'
    treebank = conllu(1, 'a b', 'X') + conllu(2, ' ', 'SPACE')
    assert words_and_tags(tmp_path, treebank, (1, 3)) == 'a b/X  /SPACE'


def test_a_word_with_spaces_is_one_word_to_a_model():
    words = ['John Smith', 'left', 'New  York', '.']
    rows = [{'id': '0', 'words': words, 'tags': ['B-PER', 'O', 'B-LOC', 'O']}]
    labels = 'O', 'B-PER', 'B-LOC'
    check_tagging(rows, labels, TOKENIZER)
    (example,), _ = tasks.kind_of(task('docs_tc')).examples(rows, labels, TOKENIZER, 100)
    words = [TOKENIZER.decode(example.tokens[example.words == w]).split() for w in range(4)]
    assert words == [['John', 'Smith'], ['left'], ['New', 'York'], ['.']]
    logits = np.eye(3)[example.targets.clip(0)]     # a model that is right
    answer = tasks.kind_of(task('docs_tc')).answer(rows[0], [(example, logits)], labels)
    assert answer == rows[0]['tags']


@pytest.mark.parametrize('content, columns, words', [
    ('1\tPaul\tB-PER\tO\n2\t\tO\tO\n', (1, 2), "train.conll:2: its word is empty, .*'2', '', 'O', 'O'"),
    ('Rome\t\nfell\tO\n', (), 'train.conll:1: its tag is empty'),
    ('1\tRome\tB-LOC\tO\n', (), 'numbered; say which of its 4 columns, .*as --columns=1,3'),
    ('1\tRome\tB-LOC\n2\tfell\tO\nx\t!\tO\n', (1, 2), 'train.conll:3: has no number')])
def test_a_bad_line_of_words_is_named(tmp_path, content, columns, words):
    with pytest.raises(ValueError, match=words):
        words_and_tags(tmp_path, content, columns)


def test_squads_own_file_is_read_as_the_hubs(tmp_path):
    question = {'id': 'x1', 'question': 'How high?', 'answers': [{'text': '42 m', 'answer_start': 6}]}
    unanswered = {'id': 'x2', 'question': 'Why?', 'answers': [], 'is_impossible': True,
                  'plausible_answers': [{'text': 'It', 'answer_start': 0}]}
    paragraph = {'context': SQUAD_ROW['context'], 'qas': [question, unanswered]}
    articles = [{'title': 'T', 'paragraphs': [paragraph]}]
    (tmp_path / 'train.json').write_text(json.dumps({'version': 'v2.0', 'data': articles}))
    rows, _ = read_files([tmp_path / 'train.json'], task('squad'))
    assert rows == [SQUAD_ROW, SQUAD_ROW | {'id': 'x2', 'question': 'Why?', 'answers': {
        'text': [], 'answer_start': []}}]
    (tmp_path / 'train.json').write_text(json.dumps(rows, indent=1))     # a list of objects
    assert read_files([tmp_path / 'train.json'], task('squad'))[0] == rows


def write_shard(folder, name, labels=('bad', 'good')):
    features = datasets.Features({'text': TEXT, 'label': datasets.ClassLabel(names=[*labels])})
    folder.mkdir(exist_ok=True)
    table = datasets.Dataset.from_list([{'text': 'x', 'label': 0}] * 20, features=features)
    table.to_parquet(folder / f'{name}.parquet')


def load_shards(folder):
    return load('example_sc', data=str(folder), labels=(), template='{text}', test='train')


def test_a_shard_that_is_missing_is_named(tmp_path):
    write_shard(tmp_path, 'train-00000-of-00003')
    write_shard(tmp_path, 'train-00002-of-00003')
    with pytest.raises(ValueError, match='1 of 3 shards are missing, the first is 00001-of-00003'):
        load_shards(tmp_path)
    write_shard(tmp_path, 'train-00001-of-00003')
    rows, _ = load_shards(tmp_path)
    assert len(rows['test']) == 60


def test_shards_of_two_sets_are_refused(tmp_path):
    write_shard(tmp_path, 'train-00000-of-00001')
    write_shard(tmp_path, 'train-00000-of-00001-0123456789abcdef')     # as an older hub named them
    with pytest.raises(ValueError, match='shards of more than one set'):
        load_shards(tmp_path)


def test_another_splits_shards_are_left_alone(tmp_path):
    write_shard(tmp_path, 'train-00000-of-00001')
    alone = load_shards(tmp_path)
    write_shard(tmp_path, 'train-clean-00000-of-00001')
    assert load_shards(tmp_path) == alone


def test_shards_with_class_names_in_other_orders_are_refused(tmp_path):
    write_shard(tmp_path, 'train-00000-of-00002')
    write_shard(tmp_path, 'train-00001-of-00002', ('good', 'bad'))
    with pytest.raises(ValueError, match="00001-of-00002.* has the class names {'label': .'good', 'bad'.}"):
        load_shards(tmp_path)


@pytest.mark.parametrize('value', [['a', 'b'], b'a', {'a': 1}, None, True, float('nan')])
def test_a_text_that_is_no_text_is_refused_with_its_row(value):
    for name, column in (('sst2', 'sentence'), ('squad', 'question')):
        row = SQUAD_ROW | {'label': 'x', column: value}
        with pytest.raises(ValueError, match=f"^row 3: '{column}' holds .*, which is no text; write"):
            tasks.kind_of(task(name)).make_row(row, None, 'row 3')


def test_numbers_are_texts_and_a_title_may_be_null():
    row = {'title': None, 'year': 1984, 'share': 0.5, 'text': 'It.'}
    assert fill('{title}|{year}|{share}|{text}', row, 'row 0') == '|1984|0.5|It.'


@pytest.mark.parametrize('form, labels', [
    *((form, labels) for form in ('jsonl', 'parquet')
      for labels in ((1, 0), (1.0, 0.0), (2.5, -1.0), (True, False), ('1', '0'), ('n/a', "it's"))),
    ('csv', ('2.50', '1.00'))])
def test_the_label_map_that_a_message_proposes_works_when_it_is_pasted(tmp_path, form, labels):
    rows = [{'text': 'a', 'label': label} for label in labels]
    for split in tasks.SPLITS:
        table = datasets.Dataset.from_list(rows)
        if form == 'jsonl':
            jsonl(tmp_path / f'{split}.jsonl', rows)
        elif form == 'parquet':
            table.to_parquet(tmp_path / f'{split}.parquet')
        else:
            table.to_csv(tmp_path / f'{split}.csv')
    options = {'data': str(tmp_path), 'template': '{text}', 'validation': 'validation', 'labels': ()}
    if labels[0] in ('1', 'n/a'):
        options['labels'] = ('first', 'second')     # else they would be the names
    pasted = ()
    for name in ('first', 'second'):
        with pytest.raises(ValueError) as error:
            load('example_sc', **options, label_map=pasted)
        proposed = re.search(r'label_map = (\(.*, "its name"\),\))', str(error.value))[1]
        pasted += ast.literal_eval(proposed.replace('its name', name))
    command_line = [f'--{name}={value}' for name, value in (options | {'label_map': pasted}).items()]
    assert 'label first ' in look('example_sc', *command_line).stdout
    rows, _ = load('example_sc', **options, label_map=pasted)
    assert [row['label'] for row in rows['test']] == ['first', 'second']


def test_whole_numbers_are_those_of_labels_in_any_form(tmp_path):
    labels = Labels(task('sst2', labels=('bad', 'good')), {}, '')
    assert labels.name(0, '') == labels.name(0.0, '') == labels.name(False, '') == 'bad'
    for value in (1, 1.0, True, Field('1'), 'good'):
        assert labels.name(value, '') == 'good'


@pytest.mark.parametrize('name, columns', [
    ('a', ()), ('a.iob', ()), ('../data/a.iob', ()), ('{}/a', ()), ('{}/a.iob', ()), ('b.tsv', (0, 1)),
    ('{}/b.txt', (0, 1))])
def test_a_split_is_named_by_its_file_or_a_path(tmp_path, name, columns):
    folder = tmp_path / 'data'
    folder.mkdir()
    for file in ('a.iob', 'b.tsv', 'b.txt'):
        (folder / file).write_text('Rome\tB-LOC\nfell\tO\n\nYes\tO\n')
    files = dict.fromkeys(tasks.SPLITS, name.format(folder))
    rows, _ = load('conll2003', data=str(folder), columns=columns, **files)
    assert [row['words'] for row in rows['test']] == [['Rome', 'fell'], ['Yes']]
    for wrong, words in ((f'{folder}/b.txt', 'b.txt: is none of .jsonl, .*--columns=0,3 reads a word a line'),
                         ('/nowhere/a.iob', 'no /nowhere/a.iob{')):
        one_line_error(look('conll2003', f'--data={folder}', f'--train={wrong}'), words)


def test_quotes_of_a_tsv_are_characters_unless_the_task_says_otherwise(tmp_path):
    """As in GLUE's files, where a row that begins with a quote has often none that closes it."""
    (tmp_path / 'a.tsv').write_text('title\ttext\tlabel\n"a\tone\tgood\nb"\ttwo\tbad\n')
    (tmp_path / 'a.csv').write_text('title,text,label\n"a, b",one,1\n"c","two\nlines",bad\n')

    def texts(file, **changes):
        rows, _ = load('example_sc', data=str(tmp_path), **dict.fromkeys(tasks.SPLITS, file), **changes)
        return [row['text'] for row in rows['test']]
    assert texts('a.tsv') == texts('a.tsv', quoting='none') == ['"a\none', 'b"\ntwo']
    assert texts('a.tsv', quoting='standard') == ['a\tone\tgood\nb\ntwo']   # two rows are one
    assert texts('a.csv') == ['a, b\none', 'c\ntwo\nlines']    # a number is a label's, in a text file


def test_labels_in_another_order_are_refused(tmp_path):
    def write(split, *labels):
        features = datasets.Features({'sentence': TEXT, 'label': datasets.ClassLabel(names=[*labels])})
        table = datasets.Dataset.from_list([{'sentence': 'x', 'label': 0}] * 40, features=features)
        table.to_parquet(tmp_path / f'{split}-0.parquet')
    for split in ('train', 'validation'):
        write(split, 'positive', 'negative')
    one_line_error(look('sst2', f'--data={tmp_path}'), r"has the labels .'positive', 'negative'.")
    write('train', 'negative', 'positive')
    one_line_error(look('sst2', f'--data={tmp_path}'), 'splits order their labels differently')


def judged(*rows):
    return 'qrels/test.jsonl', [dict(zip(('query-id', 'corpus-id', 'score'), row)) for row in rows]


@pytest.mark.parametrize('path, rows, words', [
    (*judged(('q', 'nowhere', 1)), "test: judged documents: 1 of 1 are in no file, as 'nowhere'"),
    (*judged(('who', 'd', 1)), "test: judged queries: 1 of 1 are in no file, as 'who'"),
    (*judged(('q', 'd', 0)), 'no query has a relevant document'),
    (*judged(('q', 'd', 0.5)), 'score 0.5 is not a whole number'),
    (*judged(('q', 'd', 0), ('q', 'd', 1)), 'occurs twice'),
    ('train.jsonl', [{'query': 'q', 'positive': ['p']}], "row 0: 'positive' holds .'p'., which is no text"),
    ('train.jsonl', [{'query': 'q', 'positive': None}], "'positive' holds None, .*write \"\" where the text"),
    ('corpus.jsonl', [{'_id': 'd', 'text': None}], "corpus row 0: 'text' holds None"),
    ('qrels/test.jsonl', [{'query': 'q'}], "judgement 0: has no column 'query-id'"),
    ('train.jsonl', [{'query': 'q'}], "no column 'positive'"),
    ('corpus.jsonl', [{'_id': 'd', 'text': text} for text in 'xy'], "corpus row 1: 'd' occurs twice")])
def test_bad_retrieval_sets_are_named(tmp_path, path, rows, words):
    jsonl(tmp_path / 'corpus.jsonl', [{'_id': 'd', 'title': '', 'text': 'x'}])
    jsonl(tmp_path / 'queries.jsonl', [{'_id': 'q', 'text': 'x'}])
    jsonl(tmp_path / 'train.jsonl', [{'query': 'q', 'positive': 'p'}])
    for split in tasks.SCORED:
        jsonl(tmp_path / f'qrels/{split}.jsonl', judged(('q', 'd', 1))[1])
    jsonl(tmp_path / path, rows)
    one_line_error(look('example_ir', f'--data={tmp_path}'), words)


def judged_set(folder, **judgements):
    """A retrieval set of three documents and two queries, in BEIR's files, and judgements of each split."""
    documents = {'d1': 'apple pie', 'd2': 'banana split', 'd3': 'banana bread'}
    jsonl(folder / 'corpus.jsonl', [{'_id': name, 'text': text} for name, text in documents.items()])
    jsonl(folder / 'queries.jsonl', [{'_id': 'q1', 'text': 'apple'}, {'_id': 'q2', 'text': 'banana'}])
    for split, rows in judgements.items():
        jsonl(folder / f'qrels/{split}.jsonl', judged(*rows)[1])


def test_judged_documents_and_queries_without_text_count_as_in_trec_eval(tmp_path, capsys):
    """As in ArguAna and NFCorpus: d9 is relevant and never found, q9 is not asked."""
    scored = [('q1', 'd1', 1), ('q1', 'd9', 2), ('q2', 'd9', 1), ('q9', 'd2', 1)]
    judged_set(tmp_path, validation=[('q1', 'd1', 1)], test=scored)
    rows, _ = load('example_ir', data=str(tmp_path))
    told = capsys.readouterr().err
    assert "test: judged documents: 1 of 3 are in no file, as 'd9': they count as" in told
    assert "test: judged queries: 1 of 3 are in no file, as 'q9': they are left out" in told
    ids = sorted(rows['corpus'])
    predictions = [retrieval.ranking(row, ids, [0.5, 0.2, 0.1]) for row in rows['test']]
    found = {row['id']: dict(zip(row['docs'], row['scores'])) for row in predictions}
    assert found.keys() == {'q1', 'q2'}
    grades = collections.defaultdict(dict)
    for query, document, grade in scored:
        grades[query][document] = grade
    judge = pytrec_eval.RelevanceEvaluator(dict(grades), {'ndcg_cut.10'}).evaluate(found)
    _, scores = metrics.both_scores('IR', predictions)
    ours = dict(zip(scores['standard']['ids'], scores['standard']['columns'][0]))
    assert ours == pytest.approx({query: judge[query]['ndcg_cut_10'] for query in judge})
    assert 0 < ours['q1'] < 0.5 and ours['q2'] == 0


def test_judgements_without_text_make_no_training_pair(tmp_path):
    scored = [('q1', 'd1', 1)]
    judged_set(tmp_path, validation=scored, test=scored,
               train=[('q1', 'd1', 1), ('q1', 'd9', 1), ('q9', 'd1', 1), ('q2', 'd8', 1)])
    rows, _ = load('example_ir', data=str(tmp_path))
    assert [row['query'] for row in rows['train']] == ['Query: apple']


@pytest.fixture(scope='session')
def embedded():
    """{task: {split: rows}}, from the cache where this machine has extracted them before."""
    chosen = [task(name) for name in ('docs_tc', 'wn_sc')]
    return {path.name: {split: read_files([path / f'{split}.jsonl'], one)[0] for split in tasks.SPLITS}
            for one in chosen for path in embedded_files(one).parent.iterdir()}


def test_what_wordnet_holds_out_is_in_no_text_to_train_on(embedded):
    """And a pair's second definition alone, or the first, does not tell the label."""
    definitions = {split: {one.definition for one in wordnet.synsets().values() if one.split == split}
                   for split in tasks.SPLITS}
    sides = {'wn_sc': 'text', 'wn_pairs': 'first', 'wn_qa': 'question', 'wn_ir': 'positive'}
    for name, side in sides.items():
        splits = embedded[name]
        assert [*map(len, splits.values())] == [12_000, 1_000, 1_000]
        for split in tasks.SCORED:
            held = {row[side] for row in splits[split]}
            assert held <= definitions[split] and not held & definitions['train']
    for row in embedded['wn_qa']['test']:
        text, start = row['answers']['text'][0], row['answers']['answer_start'][0]
        assert row['context'][start:start + len(text)] == text != row['context']


def test_a_used_word_by_hand():
    def used(words, *examples):
        example, *span = wordnet.used_word(wordnet.Synset('', '', words, '', [*examples], [], 0, ''))
        return example[slice(*span)]
    assert used(['run'], 'a walk', 'He kept running home') == 'running'
    assert used(['pass out', 'faint'], 'She passed out at once') == 'passed out'
    assert used(['carry'], 'It carries weight') == 'carries'
    assert wordnet.used_word(wordnet.Synset('', '', ['cat'], '', ['a catalogue', 'cat'], [], 0, '')) is None


def test_embedded_tasks_have_enough_and_no_leak_and_every_entity_its_tokens(embedded):
    assert {*embedded} == {name for names in EMBEDDED_TASKS.values() for name in names}
    least = {'docs_tc': (6_000, 800, 500), 'docs_ir': (2_500, 400, 250)}
    for name, counts in least.items():
        assert all(len(embedded[name][split]) >= count for split, count in zip(tasks.SPLITS, counts)), name
    for split in tasks.SPLITS:
        for row in embedded['docs_tc'][split]:      # no markup is left that would tell the label
            assert len(row['tokens']) == len(row['tags']) and not {'`', '``', '*', '**'} & set(row['tokens'])
            # punctuation is a word of its own everywhere
            assert all(len(word) == 1 or word[-1].isalnum() or word[-1] == '_' for word in row['tokens'])
        for row in embedded['docs_ir'][split]:      # no identifier that both halves share
            halves = ({word.strip('.,:;()') for word in row[side].split()} for side in ('query', 'positive'))
            assert not {name for name in set.intersection(*halves) if '_' in name}
    texts = collections.Counter(row[side] for split in tasks.SPLITS for row in embedded['docs_ir'][split]
                                for side in ('query', 'positive'))
    assert max(texts.values()) == 1     # no boilerplate: a text occurs once
    tagged, labels = load('docs_tc')
    for split in tasks.SCORED:
        check_tagging(tagged[split], labels, TOKENIZER)


def test_an_embedded_task_by_hand():
    lines = ['Return the ``axis`` of `numpy.array`, see :func:`~torch.add` and *out* now, please.']
    (words, tags), = docs.marked_sentences(lines)
    assert ' '.join(words) == 'Return the axis of numpy.array , see torch.add and out now , please .'
    assert [w for w, tag in zip(words, tags) if tag != 'O'] == ['axis', 'numpy.array', 'torch.add', 'out']

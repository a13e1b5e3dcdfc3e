"""The twelve tasks on files of their true schema, the alignment of answers and entities, bad input."""
import collections
import dataclasses
import gzip
import json
import random
import re

import datasets
import numpy as np

import pytest

import finetune
from conftest import LLAMA3, ROOT, one_line_error, run_script
from nanoencoder import docs, tasks
from nanoencoder import settings as configs
from nanoencoder.judging import paper
from nanoencoder.judging.metrics import entities, standard_scores
from nanoencoder.tasks import classification, retrieval
from nanoencoder.tasks.files import embedded_files, read_files, read_hub
from nanoencoder.tasks.task import Labels, terms, train_test_split
from nanoencoder.tokenizer import load_tokenizer

TOKENIZER = load_tokenizer(str(ROOT / 'configs/corpora/docs'))


def task(name, **changes):
    """A task's config; finetune's own settings in it are left out."""
    values = {key: value for key, (value, _) in configs.read(ROOT / 'configs/tasks' / f'{name}.py').items()}
    names = {field.name for field in dataclasses.fields(tasks.Task)}
    return tasks.Task(**{key: value for key, value in (values | changes).items() if key in names})


def load(name, **changes):
    return tasks.kind_of(task(name, **changes)).load()


def look(name, *options):
    return run_script('finetune.py', f'configs/tasks/{name}.py', '--look', *options)


def jsonl(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(''.join(json.dumps(row) + '\n' for row in rows))


def names(*labels):
    return datasets.ClassLabel(names=list(labels))


TEXT, NUMBER = datasets.Value('string'), datasets.Value('int32')
SQUAD = {'id': TEXT, 'title': TEXT, 'context': TEXT, 'question': TEXT,
         'answers': {'text': datasets.List(TEXT), 'answer_start': datasets.List(NUMBER)}}
SQUAD_ROW = {'id': 'x1', 'title': 'T', 'context': 'It is 42 m high.', 'question': 'How high?',
             'answers': {'text': ['42 m'], 'answer_start': [6]}}
EMPTY_ROW = SQUAD_ROW | {'id': 'x2', 'answers': {'text': [], 'answer_start': []}}
CONLL = ('O', 'B-PER', 'I-PER', 'B-ORG', 'I-ORG', 'B-LOC', 'I-LOC', 'B-MISC', 'I-MISC')
SCHEMAS = {  # config: (files below the folder {path: split's rows}, features, a row)
    'sst2': ('glue/sst2/{}-00000-of-00001.parquet', ('train', 'validation'),
             {'sentence': TEXT, 'label': names('negative', 'positive'), 'idx': NUMBER},
             {'sentence': 'a fine film ', 'label': 1, 'idx': 7}),
    'qqp': ('glue/qqp/{}-00000-of-00001.parquet', ('train', 'validation'),
            {'question1': TEXT, 'question2': TEXT, 'label': names('not_duplicate', 'duplicate'),
             'idx': NUMBER},
            {'question1': 'Why?', 'question2': 'Why so?', 'label': 1, 'idx': 7}),
    'mnli': ('glue/mnli/{}-00000-of-00001.parquet', ('train', 'validation_matched'),
             {'premise': TEXT, 'hypothesis': TEXT, 'label': names('entailment', 'neutral', 'contradiction'),
              'idx': NUMBER},
             {'premise': 'It rains.', 'hypothesis': 'It is dry.', 'label': 2, 'idx': 7}),
    'conll2003': ('conll2003-en/data/{}-00000-of-00001.parquet', tasks.SPLITS,
                  {'words': datasets.List(TEXT), 'ner': datasets.List(names(*CONLL))},
                  {'words': ['EU', 'rejects', 'German', 'call'], 'ner': [3, 0, 7, 0]}),
    'ontonotes': ('ontonotes5/default/{}/0000.parquet', tasks.SPLITS,
                  {'tokens': datasets.List(TEXT),
                   'tags': datasets.List(names('O', 'B-DATE', 'I-DATE', 'B-GPE'))},
                  {'tokens': ['In', 'May', '1999', ',', 'Rome'], 'tags': [0, 1, 2, 0, 3]}),
    'uner': ('uner_en/{}.jsonl', tasks.SPLITS, None,
             {'idx': 'a-1', 'text': 'Al Gore', 'tokens': ['Al', 'Gore', 'x', 'y'],
              'ner_tags': ['B-PER', 'I-PER', 'B-OTH', 'B-O'], 'annotator': ['z']}),
    'squad': ('squad/plain_text/{}-00000-of-00001.parquet', ('train', 'validation'), SQUAD, SQUAD_ROW),
    'squad_v2': ('squad_v2/squad_v2/{}-00000-of-00001.parquet', ('train', 'validation'), SQUAD, EMPTY_ROW),
    'record': ('record/data/{}-00000-of-00001.parquet', ('train', 'validation'), SQUAD, SQUAD_ROW),
}


READ = {'sst2': {'text': 'a fine film ', 'label': 'positive'},
        'qqp': {'text': 'Question 1: Why?\nQuestion 2: Why so?', 'label': 'duplicate'},
        'mnli': {'text': 'Premise: It rains.\nHypothesis: It is dry.', 'label': 'contradiction'},
        'conll2003': {'tags': ['B-ORG', 'O', 'B-MISC', 'O']},
        'ontonotes': {'tags': ['O', 'B-DATE', 'I-DATE', 'O', 'B-GPE']},
        'uner': {'tags': ['B-PER', 'I-PER', 'O', 'O']},
        'squad': {'answers': [('42 m', 6)], 'question': 'How high?\n'}, 'squad_v2': {'answers': []},
        'record': {'answers': [('42 m', 6)], 'question': 'How high?\n'}}


@pytest.mark.parametrize('name', SCHEMAS)
def test_a_local_copy_of_each_hub_dataset(tmp_path, name, capsys):
    pattern, splits, features, row = SCHEMAS[name]
    for split in splits:
        path = tmp_path / pattern.format(split)
        path.parent.mkdir(parents=True, exist_ok=True)
        if features is None:
            jsonl(path, [row] * 40)
        else:
            table = datasets.Dataset.from_dict({key: [row[key]] * 40 for key in row},
                                               features=datasets.Features(features))
            table.to_parquet(path)
    rows, labels = load(name, data=str(tmp_path))
    folder = tmp_path / pattern.split('/')[0]   # the same files, if --data names the dataset's own folder
    assert load(name, data=str(folder)) == (rows, labels)
    assert {split: len(part) for split, part in rows.items()} == (
        {'train': 38, 'validation': 2, 'test': 40} if task(name).validation == '' else
        {'train': 40, 'validation': 40, 'test': 40})
    first = rows['test'][0]
    assert {key: first.get(key) for key in READ[name]} == READ[name]
    wanted = {'conll2003': CONLL, 'ontonotes': ('O', 'B-DATE', 'I-DATE', 'B-GPE'),
              'uner': ('O', 'B-PER', 'I-PER')}
    assert labels == wanted.get(name, labels)
    if name == 'uner':
        assert first['id'] == 'a-1'
        assert capsys.readouterr().err.count("120 labels 'B-OTH' read as 'O'") == 2


def beir(folder, name):
    """BEIR's two hub repositories, converted to parquet: three documents, one unjudged, and eight queries."""
    pairs = [{'query': 'why', 'positive': 'because'}] * 3
    judged = [{'query-id': f'q{k}', 'corpus-id': f'd{k % 2}', 'score': (2, 1, 0, 1, 1, 1, 1, 1)[k]}
              for k in range(8)]
    tables = {f'{name}/corpus/corpus/0000': [{'_id': f'd{k}', 'title': f'T{k}', 'text': f'text {k}'}
                                             for k in range(3)],
              f'{name}/queries/queries/0000': [{'_id': f'q{k}', 'title': '', 'text': f'what {k}'}
                                               for k in range(8)],
              'msmarco-pairs/data/train-00000-of-00001': pairs}
    for path, rows in (tables | {f'{name}-qrels/default/{split}/0000': judged
                                 for split in tasks.SCORED}).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        datasets.Dataset.from_list(rows).to_parquet(folder / f'{path}.parquet')


def test_a_local_copy_of_msmarco_and_nq(tmp_path, capsys):
    beir(tmp_path, 'msmarco')
    rows, _ = load('msmarco', data=str(tmp_path))
    assert rows['train'][0] == {'query': 'Query: why', 'positive': 'Document: because'}
    assert rows['corpus'] == {'d0': 'Document: text 0', 'd1': 'Document: text 1'}          # judged ones alone
    assert rows['test'][:2] == [{'id': 'q0', 'query': 'Query: what 0', 'grades': {'d0': 2}},
                                {'id': 'q1', 'query': 'Query: what 1', 'grades': {'d1': 1}}]
    assert '1 of 8 queries have no relevant document' in capsys.readouterr().err
    beir(tmp_path, 'nq')
    rows, _ = load('nq', data=str(tmp_path))
    assert rows['corpus']['d1'] == 'Document: T1. text 1'
    ids = [{row['id'] for row in rows[split]} for split in tasks.SCORED]
    assert len(ids[0]) + len(ids[1]) == 7 and not ids[0] & ids[1]


@pytest.mark.parametrize('form', ['zip', 'hub'])
def test_beirs_own_files(tmp_path, form):
    for name in ('msmarco', 'nq'):
        folder, qrels = tmp_path / name, tmp_path / (f'{name}/qrels' if form == 'zip' else f'{name}-qrels')
        texts = [{'_id': f'd{k}', 'title': '', 'text': f'{name} {k}', 'metadata': {}} for k in range(3)]
        jsonl(folder / 'corpus.jsonl', texts)
        jsonl(folder / 'queries.jsonl', [row | {'_id': 'q' + row['_id']} for row in texts])
        for path in folder.glob('*.jsonl') if form == 'hub' else ():
            path.with_name(f'{path.name}.gz').write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
        qrels.mkdir()
        for split in ('dev', 'test'):
            (qrels / f'{split}.tsv').write_text('query-id\tcorpus-id\tscore\nqd0\td0\t1.0\nqd1\td1\t2\n')
    for data in [tmp_path] + [tmp_path / 'msmarco'] * (form == 'zip'):
        rows, _ = load('msmarco', data=str(data))
        assert rows['train'] == []
        assert rows['corpus'] == {k: f'Document: msmarco {k[1]}' for k in ('d0', 'd1')}
        assert rows['validation'][1] == {'id': 'qd1', 'query': 'Query: msmarco 1', 'grades': {'d1': 2}}
    rows, _ = load('nq', data=str(tmp_path))
    assert len(rows['validation']) == len(rows['test']) == 1


def test_a_set_that_is_scored_on_as_well_has_a_folder_of_its_own(tmp_path):
    beir(tmp_path, 'msmarco')
    with pytest.raises(ValueError, match='score_on configs/tasks/nq.py: .*nq is not there'):
        tasks.load_sets(task('msmarco', data=str(tmp_path)), TOKENIZER, 100)


def test_a_local_copy_of_mldr(tmp_path):
    beir(tmp_path, 'msmarco')
    jsonl(tmp_path / 'mldr-en/corpus.jsonl',
          [{'docid': 'd0', 'text': 'long ' * 50}, {'docid': 'd1', 'text': 'other'},
           {'docid': 'd2', 'text': 'never judged'}])
    for split in ('dev', 'test'):
        jsonl(tmp_path / f'mldr-en/{split}.jsonl', [{'query_id': f'q-{split}', 'query': 'what',
                                                     'positive_passages': [{'docid': 'd0', 'text': 'long'}],
                                                    'negative_passages': [{'docid': 'd1', 'text': 'other'}]}])
    rows, _ = load('mldr', data=str(tmp_path))
    assert rows['validation'] == [{'id': 'q-dev', 'query': 'Query: what', 'grades': {'d0': 1, 'd1': 0}}]
    assert list(rows['corpus']) == ['d0', 'd1']


def test_hub_reading_goes_through_datasets(tmp_path):
    """A folder in the hub's parquet layout stands for the hub; a missing one is a line that names --data."""
    table = datasets.Dataset.from_dict({'tokens': [['In', 'May']], 'tags': [[0, 1]]},
                                       features=datasets.Features(
        {'tokens': datasets.List(TEXT), 'tags': datasets.List(names('O', 'B-DATE'))}))
    (tmp_path / 'ontonotes5/default/train').mkdir(parents=True)
    table.to_parquet(tmp_path / 'ontonotes5/default/train/0000.parquet')
    rows, labels = read_hub(str(tmp_path / 'ontonotes5'), '', 'train', 'refs/convert/parquet')
    assert rows == [{'tokens': ['In', 'May'], 'tags': [0, 1]}] and labels == {'tags': ['O', 'B-DATE']}
    one_line_error(look('sst2'), 'nyu-mll/glue', '--data takes')


def test_holding_out_equals_datasets():
    for n in (20, 101, 67_349):
        theirs = datasets.Dataset.from_dict({'k': range(n)}).train_test_split(train_size=0.95, seed=42)
        training, held = train_test_split(n, 0.05)
        assert training == theirs['train']['k'][:] and held == theirs['test']['k'][:]


def test_every_config_of_a_task_parses():
    paths = sorted((ROOT / 'configs/tasks').glob('*.py'))
    assert len(paths) == 20
    for path in paths:
        configs.parse(finetune.Settings, [str(path), '--model=x'])
    assert {task(name).dataset for name in (*SCHEMAS, 'msmarco', 'nq', 'mldr')} <= paper.DATASETS.keys()


TOKENIZERS = [TOKENIZER] + ([load_tokenizer(str(LLAMA3))] if LLAMA3.exists() else [])


STRANGE = ['naïve café', '日本語 テキスト', '🙂🙂 ok', 'a  b', "don't", '(x)', '1234567', 'e\u0301',
           '\u00a0x', 'ﬁ', 'Ünïcödé123', '—', '""']


def what_is_read(tokenizer, text):
    """A text as its tokens decode."""
    return tokenizer.decode(tokenizer.encode(text)).strip()


def check_tagging(rows, labels, tokenizer):
    examples, lost = tasks.kind_of(task('docs_tc')).examples(rows, labels, tokenizer, 4_000)
    assert not lost
    for row, example in zip(rows, examples, strict=True):
        for kind, start, end in entities(row['tags']):
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
    examples, lost = tasks.kind_of(task('docs_qa')).examples(rows, (), tokenizer, 1 << 20)
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


@pytest.fixture(scope='module')
def composing(tmp_path_factory):
    """Our tokenizer with the normalizer that Qwen's has."""
    content = json.loads((ROOT / 'configs/corpora/docs/tokenizer.json').read_text())
    folder = tmp_path_factory.mktemp('nfc')
    (folder / 'tokenizer.json').write_text(json.dumps(content | {'normalizer': {'type': 'NFC'}}))
    return load_tokenizer(str(folder))


@pytest.mark.parametrize('which', range(len(TOKENIZERS) + 1))
def test_strange_words_align(which, composing):
    tokenizer, draw, rows = [*TOKENIZERS, composing][which], random.Random(1), []
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


def test_every_entity_and_answer_of_the_embedded_tasks(embedded):
    """Of the scored splits."""
    (tagged, labels), (asked, _) = load('docs_tc'), load('docs_qa')
    for split in tasks.SCORED:
        check_tagging(tagged[split], labels, TOKENIZER)
        answers, inside = check_questions(asked[split], TOKENIZER)
        assert answers == sum(bool(row['answers']) for row in asked[split]) > 300
        assert inside < 0.1 * answers


def test_truncation_is_counted():
    rows = [{'id': '0', 'words': ['word'] * 30,
             'tags': ['O'] * 3 + ['B-CODE'] + ['I-CODE'] * 16 + ['B-CODE', 'O'] * 5}]
    examples, lost = tasks.kind_of(task('docs_tc')).examples(rows, ('O', 'B-CODE', 'I-CODE'), TOKENIZER, 11)
    assert len(examples[0].tokens) == 11 and examples[0].tokens[-1] == TOKENIZER.ids['eos']
    reached = examples[0].words.max() + 1
    assert 4 < reached < 20 and lost == dict(texts=1, words=30 - reached, entities=6)  # one is cut through
    rows = [{'id': '0', 'text': 'word ' * 50, 'label': 'a'}, {'id': '1', 'text': '', 'label': 'a'}]
    examples, lost = tasks.kind_of(task('docs_pairs')).examples(rows, ('a',), TOKENIZER, 20)
    assert [len(example.tokens) for example in examples] == [20, 1] and lost['texts'] == 1

    # of retrieval, where it belongs
    rows = {'train': [{'query': 'a', 'positive': 'word ' * 20}] * 3, 'corpus': {'d': 'word ' * 30, 'e': 'b'},
            'validation': [{'query': 'a'}], 'test': [{'query': 'c'}]}
    encoded = tasks.kind_of(task('docs_ir')).encode(rows, (), TOKENIZER, 11)
    assert encoded['train'][1] == {'texts': 3} and encoded['texts'][1] == {'texts': 1}


def test_windows_cover_the_context_and_lost_answers_are_counted():
    words = [f'w{k}' for k in range(200)]
    context = ' '.join(words)
    rows = [{'id': str(k), 'question': 'Which?\n', 'context': context,
             'answers': [(word, context.index(word + ' '))]}
            for k, word in enumerate(words[:190:7])]
    rows.append({'id': 'long', 'question': 'Which?\n', 'context': context,
                 'answers': [(' '.join(words[20:120]), context.index('w20 '))]})
    examples, lost = tasks.kind_of(task('docs_qa', overlap=16)).examples(rows, (), TOKENIZER, 64)
    assert lost == dict(answers=1, texts=len(rows), windows=len(examples) - len(rows))
    for head in ('tag', 'span'):    # a part of an answer is no span
        parts, _ = tasks.kind_of(task('docs_qa', qa_head=head)).examples(rows[-1:], (), TOKENIZER, 64)
        assert any((part.targets == 1).any() for part in parts) == (head == 'tag')
    for k, row in enumerate(rows[:-1]):
        windows = [example for example in examples if example.row == k]
        assert all(len(window.tokens) <= 64 for window in windows)
        assert {int(c) for window in windows for a, b in window.words[window.words[:, 0] >= 0]
                for c in range(a, b)} >= set(
            range(len(context))) - {i for i, c in enumerate(context) if c == ' '}
        text, start = row['answers'][0]
        tagged = [window.words[window.targets == 1] for window in windows]
        assert any(len(words) and context[words[0, 0]:words[-1, 1]] == text for words in tagged)


def test_lone_surrogates_do_not_shift_what_follows(tmp_path):
    jsonl(tmp_path / 'train.jsonl', [
        {'context': 'x \ud800 the answer', 'question': 'Wh\udc00?', 'text': 'a \uDBFF b 🙂',
         'answers': {'text': ['answer'], 'answer_start': [8]},
         'tokens': ['\ud800', 'Rome'], 'tags': ['O', 'B-CODE']}])
    (row,), _ = read_files([tmp_path / 'train.jsonl'])
    assert row['text'] == 'a \ufffd b 🙂' and row['question'] == 'Wh\ufffd?'
    columns = tasks.kind_of(task('docs_qa')).make_row(row, None, 'row 0')
    assert check_questions([columns | {'id': '0'}], TOKENIZER) == (1, 0)
    columns = tasks.kind_of(task('docs_tc')).make_row(row, Labels(task('docs_tc'), {}, 'tags'), 'row 0')
    check_tagging([columns | {'id': '0'}], ('O', 'B-CODE'), TOKENIZER)


GOOD = {'sc': [{'text': 'fine', 'title': 'x', 'label': 'good'},
               {'text': 'poor', 'title': 'y', 'label': 'bad'}],
        'tc': [{'tokens': ['Rome', 'fell'], 'tags': ['B-LOC', 'O']}],
        'qa': [{'question': 'Who?', 'context': 'It was me.',
                'answers': {'text': ['me'], 'answer_start': [7]}}]}


def asked(context='It was me.', **columns):
    return 'qa', {'question': 'Who?', 'context': context} | columns


@pytest.mark.parametrize('kind, bad, words', [
    ('sc', {'text': 'x', 'title': 'x', 'label': 'great'}, "train row 2: label 'great' is none of bad, good"),
    ('sc', {'text': 'x', 'title': 'x', 'label': -1}, 'train row 2: label -1'),
    ('sc', {'text': 'x', 'title': 'x', 'label': ['good']}, "label \\['good'\\] is none of"),
    ('sc', {'text': 'x', 'label': 'good'}, "train row 2: has no column 'title', but text, label"),
    ('tc', {'tokens': ['a'], 'tags': ['B-LOC', 'O']}, '1 words and 2 tags'),
    ('tc', {'tokens': [], 'tags': []}, 'has 0 words'),
    ('tc', {'tokens': [None], 'tags': ['O']}, 'None is not a word'),
    ('tc', {'tokens': ['a'], 'tags': 'O'}, "'tags' holds 'O', and not list"),
    ('tc', {'tokens': ['a'], 'tags': ['Location']}, "'Location' not O, B-TYPE, I-TYPE"),
    (*asked(answers={'text': ['you'], 'answer_start': [7]}), "answer 'you' is not at character 7"),
    (*asked(answers={'text': ['me'], 'answer_start': [-2]}), "answer 'me' is not at character -2"),
    (*asked(answers={'text': ['me', 'x'], 'answer_start': [0]}), "column 'answers' is no"),
    (*asked(answers='me'), "column 'answers' is no"),
    (*asked(answers={'text': 'm', 'answer_start': [0]}), 'is not at character 0'),
    (*asked(answers=[{'text': 'm', 'start': 'x', 'end': None}]), "answer 'm' is not at character x"),
])
def test_bad_rows_are_named(tmp_path, kind, bad, words):
    for split in tasks.SPLITS:
        rows = (GOOD[kind] * 2)[:2]
        jsonl(tmp_path / f'{split}.jsonl', rows + [bad] + rows if split == 'train' else rows)
    more = ['--validation=validation'] * (kind == 'sc')
    one_line_error(look(f'example_{kind}', f'--data={tmp_path}', *more), words)


@pytest.mark.parametrize('name, content, words', [
    ('other.jsonl', b'', 'no train{.jsonl'),
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
])
def test_bad_files_are_named(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    one_line_error(look('example_sc', f'--data={tmp_path}'), words)


@pytest.mark.parametrize('option', ['--template=text', '--template={text', '--template={text.x}', '--train=',
                                    "--labels=('a', 'a')", '--dataset=a/b', '--label_map=(("a", 1),)'])
def test_bad_task_settings_are_named(tmp_path, option):
    one_line_error(look('example_sc', f'--data={tmp_path}', option), option[2:].split('=')[0])


def test_numbers_are_no_labels(tmp_path):
    for split in tasks.SPLITS:
        jsonl(tmp_path / f'{split}.jsonl', [{'tokens': ['Rome', 'fell'], 'tags': ['0', '0']}])
    options = [f'--data={tmp_path}', '--labels=("O", "B-LOC")']
    one_line_error(look('example_tc', *options), "entities train row 0: label '0' is none of O, B-LOC")
    for split in tasks.SPLITS:
        jsonl(tmp_path / f'{split}.jsonl', [{'tokens': ['Rome', 'fell'], 'tags': [0, 0]}])
    one_line_error(look('example_tc', *options), 'entities train: every tag is O: there is no entity')
    for split in tasks.SPLITS:
        jsonl(tmp_path / f'{split}.jsonl', [{'text': 'x', 'title': 'y', 'label': 0.5}])
    options = [f'--data={tmp_path}', '--labels=()', '--validation=validation']
    one_line_error(look('example_sc', *options), "train row 0: 'label' holds 0.5, not a name; list")


def test_entities_that_begin_with_i_are_counted(tmp_path, capsys):
    for split in tasks.SPLITS:
        jsonl(tmp_path / f'{split}.jsonl', [{'tokens': ['New', 'York'], 'tags': ['I-LOC', 'I-LOC']}])
    load('example_tc', data=str(tmp_path))
    assert 'entities train: 1 entities begin with I-' in capsys.readouterr().err
    load('example_tc', data=str(tmp_path), scheme='IOB1')
    assert not capsys.readouterr().err


def test_conlls_and_universal_ners_own_files(tmp_path):
    (tmp_path / 'en-train.iob2').write_text(
        '# sent_id = a-1\n# text = Rome fell # 2\n1\tRome\tB-LOC\t-\tann\n2\tfell\tO\t-\tann\n'
        '3\t#\tO\t-\tann\n4\t2\tO\t-\tann\n\n# sent_id = a-2\n# text = 1\n1\t1\tO\t-\tann\n')
    assert read_files([tmp_path / 'en-train.iob2'])[0] == [
        {'tokens': ['Rome', 'fell', '#', '2'], 'tags': ['B-LOC', 'O', 'O', 'O']},
        {'tokens': ['1'], 'tags': ['O']}]
    (tmp_path / 'train.iob2').write_text('Rome B-LOC\n# O\n')
    assert read_files([tmp_path / 'train.iob2'])[0] == [{'tokens': ['Rome', '#'], 'tags': ['B-LOC', 'O']}]
    # five columns of CoNLL are no numbered words
    (tmp_path / 'train.conll').write_text('-DOCSTART- -X- O O O\n\n1 @card@ CARD I-NC O\n\n'
                                          'Rom Rom NE I-NC B-LOC\n')
    assert read_files([tmp_path / 'train.conll'])[0] == [{'tokens': ['1'], 'tags': ['O']},
                                                         {'tokens': ['Rom'], 'tags': ['B-LOC']}]
    for split in tasks.SPLITS:
        (tmp_path / f'{split}.iob').write_text('-DOCSTART- -X- O\n\nRome NNP B-LOC\nfell VBD O\n\nYes UH O\n')
    (tmp_path / 'train.iob2').unlink()
    (tmp_path / 'train.conll').unlink()
    rows, labels = load('example_tc', data=str(tmp_path))
    assert [row['words'] for row in rows['test']] == [['Rome', 'fell'], ['Yes']] and labels == ('O', 'B-LOC')


def test_quotes_of_a_tsv_are_characters_unless_the_task_says_otherwise(tmp_path):
    """As in GLUE's files, where a row that begins with a quote has often none that closes it."""
    for split in tasks.SPLITS:
        (tmp_path / f'{split}.tsv').write_text('title\ttext\tlabel\n"a\tone\tgood\nb"\ttwo\tbad\n')

    def texts(**changes):
        rows, _ = load('example_sc', validation='validation', **{'data': str(tmp_path)} | changes)
        return [row['text'] for row in rows['test']]
    assert texts() == texts(quoting='none') == ['"a\none', 'b"\ntwo']
    assert texts(quoting='standard') == ['a\tone\tgood\nb\ntwo']  # two rows are one
    (tmp_path / 'csv').mkdir()
    for split in tasks.SPLITS:  # a number is a label's, in a text file
        (tmp_path / f'csv/{split}.csv').write_text('title,text,label\n"a, b",one,1\n"c","two\nlines",bad\n')
    assert texts(data=str(tmp_path / 'csv')) == ['a, b\none', 'c\ntwo\nlines']


def test_labels_in_another_order_are_refused(tmp_path):
    def write(split, *labels):
        features = datasets.Features({'sentence': TEXT, 'label': names(*labels)})
        rows = {'sentence': ['x'] * 40, 'label': [0] * 40}
        datasets.Dataset.from_dict(rows, features=features).to_parquet(tmp_path / f'{split}-0.parquet')
    for split in ('train', 'validation'):
        write(split, 'positive', 'negative')
    one_line_error(look('sst2', f'--data={tmp_path}'), r"has the labels .'positive', 'negative'.")
    write('train', 'negative', 'positive')
    one_line_error(look('sst2', f'--data={tmp_path}'), 'splits order their labels differently')


def judged(*rows):
    return 'qrels/test.jsonl', [dict(zip(('query-id', 'corpus-id', 'score'), row)) for row in rows]


@pytest.mark.parametrize('path, rows, words', [
    (*judged(('q', 'nowhere', 1)), '1 judged documents are not in the corpus'),
    (*judged(('who', 'd', 1)), '1 judged queries are not there'),
    (*judged(('q', 'd', 0)), 'no query has a relevant document'),
    (*judged(('q', 'd', 0.5)), 'score 0.5 is not a whole number'),
    (*judged(('q', 'd', 0), ('q', 'd', 1)), 'occurs twice'),
    ('qrels/test.jsonl', [{'query': 'q'}], 'has no query-id'),
    ('train.jsonl', [{'query': 'q'}], "no column 'positive'"),
    ('corpus.jsonl', [{'_id': 'd', 'text': 'x'}, {'_id': 'd', 'text': 'y'}],
     "corpus row 1: 'd' occurs twice"),
])
def test_bad_retrieval_sets_are_named(tmp_path, path, rows, words):
    jsonl(tmp_path / 'corpus.jsonl', [{'_id': 'd', 'title': '', 'text': 'x'}])
    jsonl(tmp_path / 'queries.jsonl', [{'_id': 'q', 'text': 'x'}])
    jsonl(tmp_path / 'train.jsonl', [{'query': 'q', 'positive': 'p'}])
    for split in tasks.SCORED:
        jsonl(tmp_path / f'qrels/{split}.jsonl', judged(('q', 'd', 1))[1])
    jsonl(tmp_path / path, rows)
    one_line_error(look('example_ir', f'--data={tmp_path}'), words)


@pytest.fixture(scope='session')
def embedded():
    """{task: {split: rows}}, from the cache where this machine has extracted them before."""
    folder = embedded_files(tasks.Task.cache, 'docs_tc').parent
    return {path.name: {split: read_files([path / f'{split}.jsonl'])[0] for split in tasks.SPLITS}
            for path in folder.iterdir()}


def shared_names(*halves):
    one, other = ({word.strip('.,:;()') for word in text.split()} for text in halves)
    return {word for word in one & other if '_' in word or '.' in word}


def test_embedded_tasks_have_enough_and_no_leak(embedded):
    least = {'docs_pairs': (2_500, 400, 250), 'docs_tc': (6_000, 800, 500),
             'docs_qa': (4_000, 600, 300), 'docs_ir': (2_500, 400, 250)}
    for name, counts in least.items():
        assert all(len(embedded[name][split]) >= count for split, count in zip(tasks.SPLITS, counts)), name
    for split in tasks.SPLITS:
        for row in embedded['docs_tc'][split]:      # no markup is left that would tell the label
            assert len(row['tokens']) == len(row['tags']) and not {'`', '``', '*', '**'} & set(row['tokens'])
            # punctuation is a word of its own everywhere
            assert all(len(word) == 1 or word[-1].isalnum() or word[-1] == '_' for word in row['tokens'])
        for row in embedded['docs_ir'][split]:      # no identifier that both halves share
            assert not {name for name in shared_names(row['query'], row['positive']) if '_' in name}
        for row in embedded['docs_qa'][split]:
            for text, start in zip(row['answers']['text'], row['answers']['answer_start']):
                assert row['context'][start:start + len(text)] == text
    for name, sides in (('docs_pairs', ('summary', 'detail')), ('docs_ir', ('query', 'positive'))):
        texts = collections.Counter(row[side] for split in tasks.SPLITS for row in embedded[name][split]
                                    for side in sides)
        assert max(texts.values()) == 1             # no boilerplate: a text occurs once
    empty = np.mean([not row['answers']['text'] for row in embedded['docs_qa']['train']])
    assert 0.15 < empty < 0.35


def test_the_labels_of_pairs_are_in_neither_half_and_in_no_name(embedded):
    """Balanced in each split; the words of one half say nothing; a shared name would tell the true pairs."""
    splits = embedded['docs_pairs']
    for rows in splits.values():
        assert 0.48 < np.mean([row['label'] == 'same' for row in rows]) < 0.52
        assert sum(bool(shared_names(row['summary'], row['detail'])) for row in rows) < 0.01 * len(rows)
    for side in ('summary', 'detail'):
        train = [{'fields': [row[side]], 'label': row['label']} for row in splits['train']]
        predict = classification.naive_bayes(train)
        right = [predict({'fields': [row[side]]}) == row['label']
                 for split in tasks.SCORED for row in splits[split]]
        assert abs(np.mean(right) - 0.5) < 3 * 0.5 / len(right) ** 0.5, (side, np.mean(right))


def test_an_embedded_task_by_hand():
    lines = ['Return the ``axis`` of `numpy.array`, see :func:`~torch.add` and *out* now, please.']
    (words, tags), = docs.marked_sentences(lines)
    assert ' '.join(words) == 'Return the axis of numpy.array , see torch.add and out now , please .'
    assert [word for word, tag in zip(words, tags) if tag != 'O'] == ['axis', 'numpy.array', 'torch.add',
                                                                      'out']
    text = ('Do it.\n\nParameters\n----------\nx : (N,) array_like, optional\n    The input. More.\n'
            'axis : int\n    Which.\n\nReturns\n-------\ny : int\n')
    assert docs.parameter_block(text) == [('x', '(N,) array_like', 'The input. More.'),
                                          ('axis', 'int', 'Which.')]


@pytest.mark.parametrize('name', ['majority-class', 'naive-bayes', 'word-overlap', 'word-lookup', 'no-answer',
                                  'likeliest-sentence'])
def test_the_best_simple_method_on_validation_is_the_row(name):
    texts = {'majority-class': [('x', 'y', 'a'), ('x', 'y', 'a'), ('x', 'y', 'b')],
             'naive-bayes': [('red', 'x', 'a'), ('blue', 'y', 'b')],
             'word-overlap': [('x y', 'x y', 'a'), ('x y', 'z w', 'b'), ('z w', 'z w', 'a'),
                              ('z w', 'x y', 'b')]}
    asked = {'no-answer': ('one two.', []),
             'likeliest-sentence': ('It is two. The high one.', [('The high one.', 11)])}
    if name in texts:
        kind = 'SC'
        train = [{'fields': [a, b], 'label': label} for a, b, label in texts[name]]
        wanted = train[:1] if name == 'majority-class' else train
    elif name in asked:
        kind, train, (context, answers) = 'QA', [{'answers': [('two', 0)]}], asked[name]
        wanted = [{'question': 'How high?', 'context': context, 'answers': answers}] * 4
    else:
        kind, train = 'TC', [{'words': ['Rome', 'The'], 'tags': ['B-LOC', 'O']}] + [
            {'words': ['Paris'], 'tags': ['B-LOC']}] * 2
        wanted = [{'words': ['Rome', 'Oslo'], 'tags': ['B-LOC', 'B-LOC']}]
    rows = dict.fromkeys(tasks.SCORED, [{'id': str(k)} | row for k, row in enumerate(wanted)])
    chosen = tasks.Task(kind=kind, dataset='d', source='x', template='{question}{context}')
    assert tasks.baseline(chosen, {'train': train, **rows})[0] == name


def test_naive_bayes_is_scikit_learns():
    """Words that train does not have count for nothing."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.naive_bayes import MultinomialNB
    draw = random.Random(3)
    rows = [{'fields': [' '.join(draw.choices([f'w{k}' for k in range(first, 60)], k=draw.randint(0, 9)))],
             'label': draw.choice('aaab')} for first in (0, 40, 0) for _ in range(50)]
    train, unseen = rows[:100], [{'fields': [row['fields'][0] + ' new' * draw.randint(0, 9)]} for row in rows]
    texts = [[row['fields'][0] for row in part] for part in (train, unseen)]
    counter = CountVectorizer(analyzer=terms)
    judge = MultinomialNB(alpha=1).fit(counter.fit_transform(texts[0]), [row['label'] for row in train])
    predict = classification.naive_bayes(train)
    assert [*map(predict, unseen)] == judge.predict(counter.transform(texts[1])).tolist()


@pytest.mark.parametrize('name, own', [
    ('example_ir', {'query': 'Sort {text}', 'document': 'Sort of {{x}}: {title} or {text}'}),
    ('example_sc', {'template': 'Sort of\n{title} or (a {{x}})? {text}'}),
    ('example_qa', {'template': 'Sort or {question} of?\n{context}'})])
def test_a_baseline_does_not_read_its_templates_own_words(tmp_path, name, own):
    draw, predictions = random.Random(1), []

    def text(least=1):
        return ' '.join(draw.choices('sort of x or a b c d. e. f.'.split(), k=draw.randint(least, 12)))
    for split in tasks.SPLITS:
        jsonl(tmp_path / f'{split}.jsonl', [
            dict(text=text(), title=text(0), label=draw.choice('aab'), question=text(), context=text(),
                 answers=[], query='', positive='') for _ in range(30)])
        jsonl(tmp_path / f'qrels/{split}.jsonl', judged(*((k, k, 1) for k in range(40)))[1])
    for name_of_file in ('corpus', 'queries'):
        jsonl(tmp_path / f'{name_of_file}.jsonl', [{'_id': f'{k}', 'title': text(0), 'text': text()}
                                                   for k in range(40)])
    bare = {column: ' '.join(re.findall(r'(?<!{){\w+}', template)) for column, template in own.items()}
    for changes in (own, bare):
        kind = tasks.kind_of(task(name, data=str(tmp_path), labels=(), **changes))
        rows, _ = kind.load()
        predictions.append({method: [*map(answer, rows['test'])]
                            for method, answer in kind.baselines(rows).items()})
    assert predictions[0] == predictions[1]


def test_word_lookup_finds_the_same_in_both_schemes():
    """It looks up a word's type; neighbours of one type are one entity."""
    draw, results = random.Random(2), []
    rows = {split: [{'id': k, 'words': draw.choices('ABcdef', k=9)} for k in range(30)]
            for split in tasks.SPLITS}
    every = [row for part in rows.values() for row in part]
    spans = [[(draw.choice(('PER', 'LOC')) if word.isupper() else '', draw.random() < 0.3)
              for word in row['words']] for row in every]
    for scheme in ('IOB1', 'IOB2'):
        for row, types in zip(every, spans):
            begins = [is_new if name == before else scheme == 'IOB2'
                      for (before, _), (name, is_new) in zip([('', False), *types], types)]
            row['tags'] = [f'{"IB"[is_first]}-{name}' if name else 'O'
                           for is_first, (name, _) in zip(begins, types)]
        _, predictions = tasks.baseline(tasks.Task(kind='TC', dataset='d', source='x', scheme=scheme), rows)
        *scores, others = standard_scores('TC', predictions['test'], scheme)
        assert others[f'strict {scheme} F1'] > 0.1
        results.append((scores, [[entities(row[side], rules) for rules in ('conlleval', scheme)]
                                 for row in predictions['test'] for side in ('gold', 'pred')]))
    assert results[0] == results[1]

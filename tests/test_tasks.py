"""The hub's tasks on files of their true schema, the alignment of answers and entities, bad input."""
import ast
import gzip
import json
import math
import random
import re
import subprocess
from pathlib import Path

import datasets
import numpy as np
import pytest
import tokenizers

from conftest import LLAMA3, ROOT, jsonl, refused, refused_line
from nanoencoder import metrics, settings as configs, tasks
from nanoencoder.predictions import json_lines
from nanoencoder.tables import Field
from nanoencoder.tasks import retrieval
from nanoencoder.tasks.files import read_files, read_hub
from nanoencoder.tasks.task import Labels, fill
from nanoencoder.tokenizer import load_tokenizer
from studies.paper import published
from tokenizer_files import DOCS, TOKENIZER, changed
from toys import QUESTIONS, TAGGING, examples_of, task


def load(name, folder, **changes):
    return tasks.kind_of(task(name, data=str(folder), **changes)).load()


TEXT = datasets.Value('string')
NUMBER = datasets.Value('int32')
TEXTS = datasets.List(TEXT)
CONLL = ('O', 'B-PER', 'I-PER', 'B-ORG', 'I-ORG', 'B-LOC', 'I-LOC', 'B-MISC', 'I-MISC')
DATES = ('O', 'B-DATE', 'I-DATE', 'B-GPE')
SHARD = '{}-00000-of-00001.parquet'
PUBLIC = ('train', 'validation')
SQUAD = {'id': TEXT, 'title': TEXT, 'context': TEXT, 'question': TEXT,
         'answers': {'text': TEXTS, 'answer_start': datasets.List(NUMBER)}}
SQUAD_ROW = {'id': 'x1', 'title': 'T', 'context': 'It is 42 m high.', 'question': 'How high?',
             'answers': {'text': ['42 m'], 'answer_start': [6]}}
UNANSWERED = SQUAD_ROW | {'answers': {'text': [], 'answer_start': []}}


def tagged(*names):
    return datasets.List(datasets.ClassLabel(names=[*names]))


SCHEMAS = {  # config: (files below the folder, their splits, features, a row, what is read of it)
    'sst2': (f'glue/sst2/{SHARD}', PUBLIC,
             {'sentence': TEXT, 'label': datasets.ClassLabel(names=['negative', 'positive']), 'idx': NUMBER},
             {'sentence': 'a good one', 'label': 1, 'idx': 7},
             {'text': 'a good one', 'label': 'positive'}),
    'stsb': (f'glue/stsb/{SHARD}', PUBLIC,
             {'sentence1': TEXT, 'sentence2': TEXT, 'label': datasets.Value('float32'), 'idx': NUMBER},
             {'sentence1': 'A.', 'sentence2': 'B.', 'label': 3.75, 'idx': 7},
             {'text': 'Sentence 1: A.\nSentence 2: B.', 'label': 3.75}),
    'conll2003': (f'conll2003-en/data/{SHARD}', tasks.SPLITS, {'words': TEXTS, 'ner': tagged(*CONLL)},
                  {'words': ['EU', 'rejects', 'German', 'call'], 'ner': [3, 0, 7, 0]},
                  {'tags': ['B-ORG', 'O', 'B-MISC', 'O']}),
    'ontonotes': ('ontonotes5/default/{}/0000.parquet', tasks.SPLITS,
                  {'tokens': TEXTS, 'tags': tagged(*DATES)},
                  {'tokens': ['In', 'May', '1999', ',', 'Rome'], 'tags': [0, 1, 2, 0, 3]},
                  {'tags': ['O', 'B-DATE', 'I-DATE', 'O', 'B-GPE']}),
    'uner': ('uner_en/{}.jsonl', tasks.SPLITS, None,
             {'idx': 'a-1', 'text': 'Al Gore', 'tokens': ['Al', 'Gore', 'x', 'y'],
              'ner_tags': ['B-PER', 'I-PER', 'B-OTH', 'B-O'], 'annotator': ['z']},
             {'tags': ['B-PER', 'I-PER', 'O', 'O'], 'id': 'a-1'}),
    'squad_v2': (f'squad_v2/squad_v2/{SHARD}', PUBLIC, SQUAD, UNANSWERED, {'answers': []}),
    'record': (f'record/data/{SHARD}', PUBLIC, SQUAD, SQUAD_ROW,
               {'answers': [('42 m', 6)], 'question': 'How high?\n'})}
PAPER = 'sst2 qqp mnli conll2003 ontonotes uner squad squad_v2 record msmarco nq mldr'


@pytest.mark.parametrize('name', SCHEMAS)
def test_a_local_copy_of_each_hub_dataset(tmp_path, name, capsys):
    pattern, splits, features, row, read = SCHEMAS[name]
    for split in splits:
        write(tmp_path / pattern.format(split), [row] * 40, features)
    rows, labels = load(name, tmp_path)
    folder = tmp_path / pattern.split('/')[0]   # the same files, if --data names the dataset's own folder
    assert load(name, folder) == (rows, labels)
    sizes = [len(rows[split]) for split in tasks.SPLITS]
    assert sizes == ([40, 40, 40] if task(name).validation else [38, 2, 40])
    assert read.items() <= rows['test'][0].items()
    wanted = {'stsb': ('score',), 'conll2003': CONLL, 'ontonotes': DATES, 'uner': ('O', 'B-PER', 'I-PER')}
    assert labels == wanted.get(name, labels)
    if name == 'uner':
        assert capsys.readouterr().err.count("120 labels 'B-OTH' read as 'O'") == 2
    if name == 'ontonotes':     # a folder in the hub's layout stands for the hub
        table, names = read_hub(str(folder), '', 'train', 'refs/convert/parquet')
        assert names == {'tags': [*labels]}
        assert table[0]['tags'] == rows['train'][0]['tags']


def judgements(*rows):
    return [
        {'query-id': query, 'corpus-id': document, 'score': score}
        for query, document, score in rows]


LAYOUTS = {     # of corpus and queries; of judgements
    'parquet': ('{0}/{1}/{1}/0000.parquet', '{0}-qrels/default/{1}/0000.parquet'),
    'hub': ('{0}/{1}.jsonl.gz', '{0}-qrels/{1}.tsv'),
    'zip': ('{0}/{1}.jsonl', '{0}/qrels/{1}.tsv')}


def beir(folder, name, form):
    """A set of three documents, one unjudged, as BEIR's .zip holds it, as the hub does, or as parquet."""
    place_of_texts, place_of_grades = LAYOUTS[form]
    documents = [
        {'_id': f'd{k}', 'title': f'T{k}', 'text': f'text {k}'}
        for k in range(3)]
    queries = [
        {'_id': f'q{k}', 'text': f'what {k}', 'metadata': {'k': k}}
        for k in range(8)]
    write(folder / place_of_texts.format(name, 'corpus'), documents)
    write(folder / place_of_texts.format(name, 'queries'), queries)

    scored = [
        (f'q{k}', f'd{k % 2}', grade)
        for k, grade in enumerate((2, 1, 0, 1, 1, 1, 1, 1))]
    write(folder / place_of_grades.format(name, 'dev'), judgements(*scored))
    write(folder / place_of_grades.format(name, 'test'), judgements(*scored))
    trained = judgements(('q2', 'd2', 1), ('q0', 'd0', 0), ('q0', 'd1', 2))
    write(folder / place_of_grades.format(name, 'train'), trained)


def write(path, rows, features=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == '.parquet':
        if features:
            features = datasets.Features(features)
        datasets.Dataset.from_list(rows, features=features).to_parquet(path)
    elif path.suffix == '.tsv':
        lines = [rows[0], *(row.values() for row in rows)]
        path.write_text('\n'.join('\t'.join(map(str, line)) for line in lines))
    elif path.suffix == '.gz':
        path.write_bytes(gzip.compress(json_lines(rows).encode()))
    else:
        jsonl(path, rows)


@pytest.mark.parametrize('form', LAYOUTS)
def test_a_local_copy_of_msmarco_and_nq(tmp_path, form, capsys):
    beir(tmp_path, 'msmarco', form)
    rows, _ = load('msmarco', tmp_path)
    assert rows['corpus'] == {'d0': 'Document: text 0', 'd1': 'Document: text 1'}      # judged ones only
    assert rows['test'][:2] == [
        {'id': 'q0', 'query': 'Query: what 0', 'grades': {'d0': 2}},
        {'id': 'q1', 'query': 'Query: what 1', 'grades': {'d1': 1}}]
    told = capsys.readouterr().err
    assert '1 of 8 judged queries are left out' in told
    assert 'nothing to train on' in told
    if form == 'zip':   # --data may name the set's own folder
        assert load('msmarco', tmp_path / 'msmarco')[0] == rows

    jsonl(tmp_path / 'msmarco-pairs/train.jsonl', [{'query': 'why', 'positive': 'because'}] * 3)
    rows, _ = load('msmarco', tmp_path)
    assert rows['train'] == [{'query': 'Query: why', 'positive': 'Document: because'}] * 3
    refused('score_on configs/tasks/nq.py: .*nq is not there', tasks.load_sets,
            task('msmarco', data=str(tmp_path)), TOKENIZER, 100)

    beir(tmp_path, 'nq', form)
    rows, _ = load('nq', tmp_path)
    assert rows['corpus']['d1'] == 'Document: T1. text 1'
    validation = {row['id'] for row in rows['validation']}
    test = {row['id'] for row in rows['test']}
    assert len(validation) + len(test) == len(validation | test) == 7

    # without pairs: what train judges relevant
    rows, _ = load('nq', tmp_path, pairs='', judged_only=False)
    assert rows['train'] == [
        {'query': 'Query: what 2', 'positive': 'Document: T2. text 2'},
        {'query': 'Query: what 0', 'positive': 'Document: T1. text 1'}]
    assert len(rows['corpus']) == 3


def test_a_local_copy_of_mldr(tmp_path):
    documents = [{'docid': f'd{k}', 'text': 'long ' * 50} for k in range(3)]
    jsonl(tmp_path / 'mldr-en/corpus.jsonl', documents)
    judged = {'positive_passages': documents[:1], 'negative_passages': documents[1:2]}
    for split in ('dev', 'test'):
        query = {'query_id': f'q-{split}', 'query': 'what'}
        jsonl(tmp_path / f'mldr-en/{split}.jsonl', [query | judged])
    rows, _ = load('mldr', tmp_path)
    assert rows['validation'] == [{'id': 'q-dev', 'query': 'Query: what', 'grades': {'d0': 1, 'd1': 0}}]
    assert [*rows['corpus']] == ['d0', 'd1']
    for wrong in (5, [None], [['docid']]):
        jsonl(tmp_path / 'mldr-en/test.jsonl', [query | judged | {'positive_passages': wrong}])
        refused('judgement 0: positive_passages must be a list of {"docid"', load, 'mldr', tmp_path)


def test_scored_pairs_are_judgements(tmp_path):
    """The document of a pair is relevant to its query, and to no other."""
    for split in tasks.SPLITS:
        pairs = [{'id': f'{split}-{k}', 'query': f'q{k}', 'positive': f'p{k}'} for k in range(2)]
        jsonl(tmp_path / f'{split}.jsonl', pairs)
    rows, _ = load('example_ir', tmp_path)
    assert rows['train'][0] == {'query': 'Query: q0', 'positive': 'Document: p0'}
    assert rows['test'][1] == {'id': 'test-1', 'query': 'Query: q1', 'grades': {'test-1': 1}}
    assert rows['corpus'] == {
        'validation-0': 'Document: p0', 'validation-1': 'Document: p1',
        'test-0': 'Document: p0', 'test-1': 'Document: p1'}


def test_a_folder_that_is_not_made_yet_names_the_command(tmp_path):
    for name in ('example_sc', 'example_ir'):
        refused('absent: is not there yet; first run: python make.py$', load, name, tmp_path / 'absent',
                made_by='python make.py')


def test_every_config_of_a_task_opens_and_a_missing_hub_is_a_line():
    names = [path.stem for path in (ROOT / 'configs/tasks').glob('*.py')]
    datasets = [tasks.kind_of(task(name)).task.dataset for name in names]
    assert len({*datasets}) == len(datasets)    # scores of one dataset stand in one column
    of_paper = {dataset for *_, dataset in published.numbers()}
    assert {task(name).dataset for name in PAPER.split()} <= of_paper
    refused_line('nyu-mll/glue.*--data takes', 'finetune.py', 'configs/tasks/sst2.py', '--look')


STRANGE = ['naïve café', '日本語 テキスト', '🙂🙂 ok', 'a  b', "don't", '(x)', '1234567',
           'e\u0301', '\u00a0x', 'ﬁ', 'Ünïcödé123', '—', '""']


def wordpiece(folder):
    """A tokenizer as BERT's, which knows two words."""
    names = ['[UNK]', '[CLS]', '[SEP]', '[PAD]', '[MASK]', 'bob', 'fell']
    ids = {name: k for k, name in enumerate(names)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordPiece(ids, unk_token='[UNK]'))
    backend.normalizer = tokenizers.normalizers.BertNormalizer()
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    backend.post_processor = tokenizers.processors.BertProcessing(('[SEP]', 2), ('[CLS]', 1))
    backend.add_special_tokens(names[:5])
    backend.save(f'{folder}/tokenizer.json')
    roles = {f'{role}_token': f'[{role.upper()}]' for role in ('cls', 'sep', 'pad', 'mask')}
    (folder / 'tokenizer_config.json').write_text(json.dumps(roles))
    return load_tokenizer(str(folder))


def what_is_read(tokenizer, text):
    return tokenizer.decode(tokenizer.encode(text)).strip()


def check_tagging(rows, labels, tokenizer):
    """An entity's tokens hold its text, and between them stands nothing."""
    examples, lost = examples_of(TAGGING, rows, labels, tokenizer, 4_000)
    assert not lost
    for row, example in zip(rows, examples, strict=True):
        for _, start, end in metrics.entities(row['tags']):
            at = np.flatnonzero((example.words >= start) & (example.words < end))
            words = ' '.join(row['words'][start:end])
            if not len(at):
                assert not what_is_read(tokenizer, words)
                continue
            for k in set(range(at[0], at[-1])) - set(at):
                assert not tokenizer.decode([example.tokens[k]]).strip()
            text = tokenizer.decode(example.tokens[at[0]:at[-1] + 1])
            assert text.strip() == what_is_read(tokenizer, words), (text, words)
        of_word = example.words >= 0
        tags = [row['tags'][word] for word in example.words[of_word]]
        assert [labels[k] for k in example.targets[of_word]] == tags


def check_questions(rows, tokenizer):
    """An answer's tokens hold its text, none too many."""
    examples, _ = examples_of(QUESTIONS, rows, (), tokenizer, 1 << 20)
    for row, example in zip(rows, examples, strict=True):
        text, start = row['answers'][0]
        at = np.flatnonzero(example.targets == 1)
        wanted = what_is_read(tokenizer, text)
        if not len(at):
            assert not wanted
            continue
        first = example.characters[at[0], 0]
        last = example.characters[at[-1], 1]
        piece = what_is_read(tokenizer, row['context'][first:last])
        assert wanted in piece
        assert piece in tokenizer.decode(example.tokens[at[0]:at[-1] + 1])
        for k in (at[0], at[-1]):  # both ends are needed
            assert example.characters[k, 0] < start + len(text)
            assert example.characters[k, 1] > start


@pytest.mark.parametrize('path', [DOCS, LLAMA3, 'composing'])
def test_strange_words_align(path, tmp_path):
    """Also by our tokenizer with the normalizer that Qwen's has."""
    if path == LLAMA3 and not path.exists():
        pytest.skip('the file is not there')
    if path == 'composing':
        tokenizer = changed(tmp_path, lambda spec: spec.update(normalizer={'type': 'NFC'}))
    else:
        tokenizer = load_tokenizer(str(path))
    draw = random.Random(1)
    sentences = []
    passages = []
    for _ in range(300):
        words = draw.choices([*STRANGE, 'plain', 'words'], k=draw.randint(1, 12))
        tags = ['O']
        for _ in words:
            tags.append(draw.choice(['O', 'B-X', 'I-X'] if tags[-1] != 'O' else ['O', 'B-X']))
        sentences.append({'words': words, 'tags': tags[1:]})
        words = draw.choices(STRANGE, k=10)
        answer = ' '.join(words[4:6])
        start = len(' '.join(words[:4])) + 1
        passages.append({'question': 'What?\n', 'context': ' '.join(words), 'answers': [(answer, start)]})
    check_tagging(sentences, ('O', 'B-X', 'I-X'), tokenizer)
    check_questions(passages, tokenizer)


def test_lone_surrogates_do_not_shift_what_follows(tmp_path):
    jsonl(tmp_path / 'train.jsonl', [
        {'context': 'x \ud800 the answer', 'question': 'Wh\udc00?', 'text': 'a \uDBFF b 🙂',
         'answers': {'text': ['answer'], 'answer_start': [8]}}])
    (row,), _ = read_files([tmp_path / 'train.jsonl'], task('squad'))
    assert row['text'] == 'a \ufffd b 🙂'
    assert row['question'] == 'Wh\ufffd?'
    check_questions([QUESTIONS.make_row(row, None, 'row 0')], TOKENIZER)


def test_truncation_is_counted(tmp_path):
    tags = ['O'] * 3 + ['B-CODE'] + ['I-CODE'] * 16 + ['B-CODE', 'O'] * 5
    rows = [{'words': ['word'] * 30, 'tags': tags}]
    (example,), lost = examples_of(TAGGING, rows, ('O', 'B-CODE', 'I-CODE'), TOKENIZER, 11)
    assert len(example.tokens) == 11
    assert example.tokens[-1] == TOKENIZER.ids['eos']
    num_read = example.words.max() + 1
    assert 4 < num_read < 20
    assert lost == dict(texts=1, words=30 - num_read, entities=6)  # one is cut through

    # words that a normalizer deletes, as BERT's does with soft hyphens and controls, are as little read
    rows = [{'words': ['bob', '\xad', 'fell', '\u200b'], 'tags': ['B-PER', 'I-PER', 'O', 'O']}]
    _, lost = examples_of(TAGGING, rows, ('O', 'B-PER', 'I-PER'), wordpiece(tmp_path), 99)
    assert lost == {'words': 2, 'words without a token': 2, 'entities': 1}

    text = 'word ' * 50
    rows = [{'text': text, 'label': 'a'}]
    (example,), lost = examples_of(tasks.kind_of(task('sst2')), rows, ('a',), TOKENIZER, 20)
    assert len(example.tokens) == 20
    assert lost == {'texts': 1}

    rows = {
        'train': [{'query': 'a', 'positive': text}] * 3,
        'corpus': {'d': text, 'e': 'b'},
        'validation': [],
        'test': []}
    encoded = tasks.kind_of(task('example_ir')).encode(rows, (), TOKENIZER, 20)
    assert encoded['train'][1] == {'texts': 3}
    assert encoded['texts'][1] == {'texts': 1}


def test_windows_cover_the_context_and_lost_answers_are_counted():
    words = [f'w{k}' for k in range(200)]
    context = ' '.join(words)
    answers = [*words[:190:7], ' '.join(words[20:120])]     # the last fits into no window
    rows = [
        {'question': 'Which?\n', 'context': context, 'answers': [(answer, context.index(answer + ' '))]}
        for answer in answers]
    examples, lost = examples_of(QUESTIONS, rows, (), TOKENIZER, 64)
    assert lost == dict(answers=1, texts=len(rows), windows=len(examples) - len(rows))
    for k, answer in enumerate(answers[:-1]):
        covered = set()
        texts = []
        for window in examples:
            if window.row != k:
                continue
            assert len(window.tokens) <= 64
            for first, last in window.characters:
                covered.update(range(first, last))
            tagged = window.characters[window.targets == 1]
            if len(tagged):
                texts.append(context[tagged[0, 0]:tagged[-1, 1]])
        assert covered >= {i for i, character in enumerate(context) if character != ' '}
        assert answer in texts


GOOD = {'sc': {'text': 'fine', 'title': 'x', 'label': 'good'},
        'ml': {'text': 'fine', 'title': 'x', 'topics': ['good', 'bad']},
        'tc': {'tokens': ['Rome', 'fell'], 'tags': ['B-LOC', 'O']},
        'qa': {'question': '?', 'context': 'It was me.', 'answers': {'text': ['me'], 'answer_start': [7]}}}


@pytest.mark.parametrize('kind, changes, words', [
    ('sc', {'label': 'great'}, r"label 'great' is none of the labels \('bad', 'good'\); list names"),
    ('sc', {'label': None}, r'label None is no text and no number; unlabelled = \(None,\) leaves out'),
    ('sc', {'label': math.nan}, r'label nan is no text and no number; unlabelled = \(None,\) leaves out'),
    ('sc', {'label': []}, r'label \[\] is no text and no number$'),
    ('ml', {'topics': 'good'}, r"'topics' holds 'good', which is no list of labels, as .* or \[\]"),
    ('ml', {'topics': None}, r"'topics' holds None, .* unlabelled = \(None,\) leaves such rows out"),
    ('ml', {'topics': ['good', 'great']}, r"label 'great' is none of the labels \('bad', 'good'\)"),
    ('ml', {'topics': [['good']]}, r"label \['good'\] is no text and no number"),
    ('tc', {'tokens': ['a']}, 'has 1 words and 2 tags'),
    ('tc', {'tokens': [None, 'a']}, 'None is not a word'),
    ('tc', {'tags': ['O', 'Location']}, "label 'Location' is not O, B-TYPE or I-TYPE"),
    ('qa', {'answers': None}, "'answers' holds 'None', and not dict; .* where there is none"),
    ('qa', {'answers': {'text': []}}, "answers: has no column 'answer_start', .* where there is none"),
    ('qa', {'answers': {'text': [''], 'answer_start': [0]}}, "answer '' is no text; .* where there is none"),
    ('qa', {'is_impossible': True}, r"is_impossible is True, and its answers are \['me'\]"),
    ('qa', {'answers': UNANSWERED['answers'], 'is_impossible': False},
     r'is_impossible is False, and its answers are \[\]'),
    ('qa', {'answers': {'text': ['you'], 'answer_start': [7]}}, "answer 'you' is not at character 7"),
    ('qa', {'answers': {'text': ['me'], 'answer_start': [-3]}}, "answer 'me' is not at character -3"),
    ('qa', {'answers': {'text': ['me', 'x'], 'answer_start': [7]}}, "answer 'x' is not at character None")])
def test_bad_rows_are_named(kind, changes, words):
    row = GOOD[kind] | changes
    if kind in ('sc', 'ml'):
        names = ('bad', 'good')
    else:
        names = ('O', 'B-LOC', 'Location')
    kind = tasks.kind_of(task(f'example_{kind}', labels=names))
    labels = Labels(kind.task, ((), {}), '')

    def read():
        kind.make_row(row, labels, 'row 2')
        kind.check(labels)
    refused(f'^row 2: {words}', read)


def test_texts_have_any_number_of_labels(tmp_path, capsys):
    """Names, numbers of hub labels, names mapped to one, none; a row with an unknown label is left out."""
    lists = [['b', 'a', 'B'], [], ['a'], None, ['a', None], ['c', 'b']]
    rows = [{'title': '', 'text': f'text {k}', 'topics': names} for k, names in enumerate(lists)]
    for split in ('train', 'test'):
        jsonl(tmp_path / f'{split}.jsonl', rows)
    changes = {'label_map': (('B', 'b'),), 'unlabelled': (None,), 'validation': 'test'}
    loaded, labels = load('example_ml', tmp_path, **changes)
    assert labels == ('a', 'b', 'c')
    assert [row['label'] for row in loaded['test']] == [['b', 'a'], [], ['a'], ['c', 'b']]
    told = capsys.readouterr().err
    assert 'recipes train: 2 times None for a label' in told
    assert "3 labels 'B' read as 'b'" in told
    cfg = task('example_ml', data=str(tmp_path), **changes)
    examples, _ = examples_of(tasks.kind_of(cfg), loaded['train'], labels, TOKENIZER, 99)
    assert [example.targets.tolist() for example in examples] == [[1, 1, 0], [0, 0, 0], [1, 0, 0], [0, 1, 1]]
    tasks.look(cfg, TOKENIZER, 'ours', 99)
    assert re.findall(r"label '(\w)' +(\d)", capsys.readouterr().out) == [('a', '2'), ('b', '2'), ('c', '1')]

    features = {'title': TEXT, 'text': TEXT, 'topics': tagged('x', 'y')}
    for split in ('train', 'test'):
        (tmp_path / f'{split}.jsonl').unlink()
        write(tmp_path / f'{split}.parquet', [{'title': 't', 'text': 'a', 'topics': [1, 0]}] * 3, features)
    loaded, labels = load('example_ml', tmp_path, validation='test')
    assert labels == ('x', 'y')
    assert loaded['test'][0]['label'] == ['y', 'x']


def words_a_line(folder, *tags, name='train'):
    """A file of a sentence of these tags, and of one that is all O."""
    lines = [f'w{k} {tag}\n' for k, tag in enumerate(tags)]
    (folder / f'{name}.conll').write_text(''.join(lines) + '\nx O\n')


def load_words(folder, **options):
    return load('example_tc', folder, label_map=options.pop('label_map', ()), validation='test', **options)


def proposed(function, name, *arguments, **options):
    """The value of a setting that the message of a ValueError proposes."""
    with pytest.raises(ValueError) as error:
        function(*arguments, **options)
    return ast.literal_eval(re.search(rf'{name} = (\(.*?\))(;|$)', str(error.value))[1])


@pytest.mark.parametrize('tags, meant', [
    (('B', 'I', 'o', 'B'), ('B-X', 'I-X', 'O', 'B-X')),
    (('S-PER', '0', 'B-PER', 'I-PER', 'E-PER'), ('B-PER', 'O', 'B-PER', 'I-PER', 'I-PER')),
    (('U_PER', 'B_PER', 'L_PER'), ('B-PER', 'B-PER', 'I-PER')),
    (('b-per', 'i-per'), ('B-per', 'I-per'))])
def test_tags_of_other_schemes_are_named_with_the_map_that_reads_them(tmp_path, tags, meant):
    for split in ('train', 'test'):
        words_a_line(tmp_path, *tags, name=split)
    mapped = proposed(load_words, 'label_map', tmp_path)
    rows, labels = load_words(tmp_path, label_map=mapped)
    assert rows['test'][0]['tags'] == [*meant]
    assert labels == ('O', *sorted({*meant} - {'O'}))


def test_tags_that_mean_nothing_known_are_named_with_what_reads_them(tmp_path):
    for split in ('train', 'test'):
        words_a_line(tmp_path, 'B', 'PER', name=split)
    refused("^entities train row 0: label 'B' is not O, B-TYPE or I-TYPE; .* 2 in all: .*'PER', 'its "
            "name'.*; unlabelled = .'PER',. leaves .*--scheme=plain takes any tags and scores words",
            load_words, tmp_path)
    assert load_words(tmp_path, scheme='plain')[1] == ('O', 'B', 'PER')


@pytest.mark.parametrize('name', ['sc', 'tc'])
def test_labels_that_train_lacks_are_named_in_one_message(tmp_path, name):
    strange = [f'B-{k}' for k in range(23)]
    if name == 'tc':
        words_a_line(tmp_path, 'B-X')
        words_a_line(tmp_path, *strange, name='test')
        options = {'validation': 'test', 'label_map': ()}
    else:
        jsonl(tmp_path / 'train.jsonl', [{'title': '', 'text': 'a', 'label': 'x '}] * 9)
        jsonl(tmp_path / 'test.jsonl', [{'title': '', 'text': 'a', 'label': label} for label in strange])
        options = {'labels': ()}
    words = "row 0: label 'B-0' is none of the labels .*'(x |B-X)'.;.* 23 in all: .*'B-0', .*'B-19', 'its"
    refused(words, load, f'example_{name}', tmp_path, **options)


@pytest.mark.parametrize('form, value, setting', [
    ('jsonl', '-', '-'), ('jsonl', -1, -1), ('jsonl', None, None), ('jsonl', math.nan, None),
    ('csv', '', ''), ('csv', -1, -1)])
@pytest.mark.parametrize('metric', ['accuracy', 'Pearson'])
def test_rows_without_a_label_are_left_out_and_counted(tmp_path, capsys, form, value, setting, metric):
    """As SNLI's -, the -1 of GLUE's test files, null, the NaN of pandas, and an empty field."""
    for split, labels in {'train': (1, value, 0, 1, value), 'test': (0, value), 'all': (value,)}.items():
        if form == 'csv':
            rows = ''.join(f'{split},{label}\n' for label in labels)
            (tmp_path / f'{split}.csv').write_text('text,label\n' + rows)
        else:
            jsonl(tmp_path / f'{split}.jsonl', [{'text': split, 'label': label} for label in labels])
    options = {'template': '{text}', 'metric': metric, 'validation': 'test', 'unlabelled': (setting,)}
    if metric == 'accuracy':
        options['labels'] = ('no', 'yes')
    rows, _ = load('example_sc', tmp_path, **options)
    assert [len(rows[split]) for split in tasks.SPLITS] == [3, 1, 1]
    written = str(value) if form == 'csv' else setting
    assert f'reviews train: 2 times {written!r} for a label' in capsys.readouterr().err
    refused('reviews test: no row has a label', load, 'example_sc', tmp_path, **options | {'test': 'all'})


def test_a_label_that_is_left_out_is_none_of_trains(tmp_path):
    for split in ('train', 'test'):
        jsonl(tmp_path / f'{split}.jsonl', [{'text': 'a', 'label': label} for label in ('x', '-', 'y')])
    options = {'template': '{text}', 'labels': (), 'validation': 'test'}
    _, labels = load('example_sc', tmp_path, **options, unlabelled=('-',))
    assert labels == ('x', 'y')


def test_the_example_takes_whatever_labels_train_has_and_asks_for_names_of_numbers(tmp_path):
    for split in ('train', 'test'):
        rows = [f'{title},{title},{label}\n' for title, label in zip('abcd', ('torch', 'numpy') * 2)]
        (tmp_path / f'{split}.csv').write_text('title,text,label\n' + ''.join(rows))
        jsonl(tmp_path / f'{split}.jsonl', [{'title': 'a', 'text': 'b', 'label': k % 2} for k in range(4)])
    rows, labels = load('example_sc', tmp_path, train='train.csv', test='test.csv')
    assert labels == ('numpy', 'torch')
    assert [row['label'] for row in rows['test']] == ['torch', 'numpy'] * 2

    options = {'train': 'train.jsonl', 'test': 'test.jsonl'}
    refused('list names in `labels` .of numbers the names, from 0 on',
            load, 'example_sc', tmp_path, **options)
    rows, _ = load('example_sc', tmp_path, labels=('bad', 'good'), **options)
    assert [row['label'] for row in rows['test']] == ['bad', 'good'] * 2


@pytest.mark.parametrize('scheme', ['IOB2', 'plain'])
def test_words_without_a_tag_are_in_neither_loss_nor_score(tmp_path, scheme, capsys):
    for split in ('train', 'test'):
        words_a_line(tmp_path, 'B-PER', 'O', '-', '-', 'I-PER', name=split)
        with open(tmp_path / f'{split}.conll', 'a') as file:
            file.write('\ny -\nz -\n')
    options = {'label_map': (), 'validation': 'test', 'scheme': scheme, 'unlabelled': ('-',)}
    kind = tasks.kind_of(task('example_tc', data=str(tmp_path), **options))
    rows, labels = kind.load()
    assert "entities test: 4 times '-' for a label" in capsys.readouterr().err
    assert labels == ('O', 'B-PER', 'I-PER')
    assert [row['words'][0] for row in rows['test']] == ['w0', 'x']     # y and z have no tag at all
    examples, _ = kind.encode(rows, labels, TOKENIZER, 100)['test']
    for word, target in zip(examples[0].words, examples[0].targets):
        assert (target == -100) == (word in (-1, 2, 3))
    row = rows['test'][0]
    predicted = kind.prediction(row, ['B-PER', 'O', 'B-PER', 'I-PER', 'I-PER'])
    assert predicted == {'id': '0', 'gold': ['B-PER', 'O', 'I-PER'], 'pred': ['B-PER', 'O', 'I-PER']}


@pytest.mark.parametrize('name, content, words', [
    ('train.json', b'[]', 'train.json: holds no row'),
    ('train.json', b'{"text": "a"}\n{"text": "b"}\n', 'a file of an object a line is named .jsonl'),
    ('train.jsonl', b'{"text": \n', 'train.jsonl:1: is no JSON object'),
    ('train.jsonl', b'{"a": ' * 5000, 'train.jsonl:1: is no JSON object'),
    ('train.jsonl', '{"text": "é", "label": "été"}'.encode() + b'\n{"text": "\xff"}\n',
     'train.jsonl:2: is not UTF-8 from byte 43 of the file on, but most of it is: mend that line'),
    ('train.parquet', b'PAR1', 'train.parquet: damaged or cut off'),
    ('train.jsonl.gz', gzip.compress(b'{}' * 99, mtime=0)[:-9], 'train.jsonl.gz: damaged or cut off: Comp'),
    ('train.csv', b'title,text,label\na,b\n', 'train.csv:2: has more or fewer fields than the header'),
    ('train.csv', b'title,text,label\na,"open,good\nb,c,bad\n', 'train.csv:1: .*is a quote left open'),
    ('train.csv', b'text,text,label\na,b,good\n', 'two columns of its header .*: text, text, label; is the'),
    ('train.csv', b'Sun,fine,good\nRain,bad,bad\n', "no column 'label', but Sun, fine, good; is the first"),
    ('train.csv', b'title;text;label\na;b, c;good\n', "one field, 'title;text;label'; .* --delimiter=';'$"),
    ('train.csv', b'title\ttext\tlabel\na\tb\tgood\n', r"one field, .* --delimiter='\\t'$"),
    ('train.tsv', b'title,text,label\na,b,good\n', 'has no tabs, but .*; name it .csv'),
    ('train.json', b'{"a": ' * 5000, 'is no list of objects')])
def test_bad_files_are_named(tmp_path, name, content, words):
    for split in ('train', 'test'):
        (tmp_path / name.replace('train', split)).write_bytes(content)
    refused(words, load, 'example_sc', tmp_path, labels=())


ACCENTS = 'Où êtes-vous ? L’été, le café et la forêt'


@pytest.mark.parametrize('name, text, encoding, told', [
    ('train.csv', ACCENTS, 'windows-1252', '3002: .* byte 66,018 .*likely WINDOWS-1252'),
    ('train.csv', 'won a £5 prize, £9', 'windows-1252', '3002: .*likely WINDOWS-1252'),
    ('train.csv', ACCENTS, 'macintosh', '3002: .*MACINTOSH'),
    ('train.csv', ACCENTS, 'utf-16', '1: .*UTF-16 '),
    ('train.csv', 'ascii', 'utf-16-le', '1: .*UTF-16LE'),
    ('train.conll', 'ascii', 'utf-16-be', '1: .*UTF-16BE'),
    ('train.jsonl.gz', 'Привет, как дела?', 'windows-1251', '3002: .* gunzip .*WINDOWS-1251'),
    ('train.json', '今日はとても良い天気ですね', 'shift-jis', '3002: .*SHIFT-JIS')])
def test_a_file_that_is_not_utf8_names_the_command_that_converts_it(tmp_path, name, text, encoding, told):
    forms = {'.csv': ('title,text,label', '{},longer words,good', ''),
             '.conll': ('{}\tB-X', '{}\tO', '\n'),
             '.gz': ('{}', '{{"text": "{}"}}', ''),
             '.json': ('[{{}}', ',{{"text": "{}"}}', ']')}
    first, line, last = forms[Path(name).suffix]
    lines = [first.format('{}'), *[line.format('row')] * 3000, line.format(text), last]
    path = tmp_path / 'of mine' / name
    path.parent.mkdir()
    content = '\n'.join(lines)
    if name.endswith('.gz'):
        path.write_bytes(gzip.compress(content.encode(encoding)))
    else:
        path.write_bytes(content.encode(encoding))
    with pytest.raises(ValueError, match=f'{name}:{told}') as error:
        read_files([path], task('example_sc'))
    command = re.search(r'convert it: (.*) \(', str(error.value))[1]
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    assert (path.parent / name.removesuffix('.gz')).read_text(encoding='utf-8') == content


def test_a_missing_file_is_a_line_with_what_is_there(tmp_path):
    (tmp_path / 'train.txt').write_text('a O')
    refused_line('no train with a suffix .*: train.txt; another .*--train=train.txt',
                 'finetune.py', 'configs/tasks/example_sc.py', '--look', f'--data={tmp_path}')


@pytest.mark.parametrize('others, named', [
    (['train.csv'], 'train.jsonl, .*train.csv'),
    (['train.jsonl.gz'], 'train.jsonl, .*train.jsonl.gz'),
    (['train-00000-of-00001.parquet'], 'train.jsonl, .*train-00000-of-00001.parquet'),
    (['train/a.parquet', 'train/b.parquet'], 'train.jsonl, .*train/a.parquet'),
    (['data/train.iob'], 'train.jsonl, .*data/train.iob'),
    (['dev.csv', 'data/dev.csv'], "dev.csv, .*data/dev.csv: which of them is 'validation'")])
def test_two_files_of_one_split_are_refused_and_one_is_named_by_its_path(tmp_path, others, named, capsys):
    for name in ('train.jsonl', 'test.jsonl', *others):
        write(tmp_path / name, [{'text': 'x', 'label': 'good'}] * 20)
    options = {'template': '{text}', 'validation': 'validation' if 'dev.csv' in others else ''}
    refused(named, load, 'example_sc', tmp_path, **options)
    if not options['validation']:
        capsys.readouterr()
        load('example_sc', tmp_path, **options, train=f'{tmp_path}/train.jsonl')
        assert capsys.readouterr().err == f'reads {tmp_path}/train.jsonl\nreads {tmp_path}/test.jsonl\n'


def test_a_split_of_another_name_and_a_subset_are_no_second_file(tmp_path):
    rows = [{'text': 'x', 'label': 'good'}] * 20
    for name in ('train.jsonl', 'train-small.parquet', 'sub/train.jsonl', 'test.jsonl', 'dev.csv',
                 'validation.jsonl'):
        write(tmp_path / name, rows[:3] if name == 'sub/train.jsonl' else rows)
    for subset, size in (('', 20), ('sub', 3)):
        rows, _ = load('example_sc', tmp_path, template='{text}', validation='validation', subset=subset)
        assert len(rows['train']) == size


@pytest.mark.parametrize('option', [
    '--template=text', '--template={text', '--pair={query},2', "--pair=('{query}',)",
    "--labels=('a', 'a')", '--unlabelled=({},)', '--dataset=a/b', '--label_map=(("a", 1),)',
    '--columns=1', '--columns=0,0.5'])
def test_bad_task_settings_are_named(option):
    name = option[2:].split('=')[0]
    refused(name, configs.parse, tasks.Task, ['configs/tasks/example_sc.py', option])


def conllu(number, form, tag):
    return f'{number}\t{form}\tlemma\t{tag}' + '\t_' * 6 + '\n'


def words_and_tags(folder, content, columns=()):
    """'word/tag word/tag | ...' of a file."""
    file = folder / 'train.conll'
    file.write_text(content)
    rows, _ = read_files([file], task('example_tc', columns=columns))
    sentences = []
    for row in rows:
        pairs = zip(row['tokens'], row['tags'])
        sentences.append(' '.join(map('/'.join, pairs)))
    return ' | '.join(sentences)


@pytest.mark.parametrize('content, columns, words', [
    ('# newdoc id = a\n# text = Rome fell # 2\n1\tRome\tB-LOC\t-\tann\n2\tfell\tO\t-\tann\n3\t#\tO\t-\tann\n'
     '4\t2\tO\t-\tann\n\n# newpar\n# sent_id = a-2\n# text = 1\n1\t1\tO\t-\tann\n', (),
     'Rome/B-LOC fell/O #/O 2/O | 1/O'),
    ('Rome B-LOC\n# O\n', (), 'Rome/B-LOC #/O'),
    ('# id 4cfb2ea3\tdomain=en\nRome _ _ B-LOC\nfell _ _ O\n', (), 'Rome/B-LOC fell/O'),
    ('-DOCSTART- -X- O O O\n\n1 @card@ CARD I-NC O\n\nRom Rom NE I-NC B-LOC\n', (), '1/O | Rom/B-LOC'),
    ('1 @card@ CARD I-NC O\n2 Rom NE I-NC B-LOC\n', (0, 3), '1/I-NC 2/I-NC'),
    ('0\t-DOCSTART-\n1\tRome\tRome\tPROPN\tNNP\t_\t0\troot\t_\tB-LOC\n', (1, 9), 'Rome/B-LOC'),
    ('# made by us\n# Rome\tB-LOC\n#\tO\n##\nx\tO\n', (), '# Rome/B-LOC #/O x/O'),    # a comment has no tab
    ('# made by us\n#begin document (a); part 000\n# O\n#x B-LOC\nRome O\n', (), '#/O #x/B-LOC Rome/O'),
    ('\nword\ttag\n\nword\ttag\nRome\tB-LOC\n', (), 'word/tag Rome/B-LOC'),     # the first line is a header
    ('Token POS NER-Tags\nRome NE B-LOC\n', (), 'Rome/B-LOC'),
    ('TOKEN\tNE-COARSE-LIT\nRome\tB-loc\n', (), 'Rome/B-loc'),     # HIPE's
    ('ID\tFORM\tUPOS\n1\tRome\tPROPN\n', (1, 2), 'Rome/PROPN'),
    ('Form NOUN\nlabel NER\n', (), 'Form/NOUN label/NER'),
    ('Oslo\tx\tB-LOC\nis\tx\ty\tO\n# a\tO\n', (0, -1), 'Oslo/B-LOC is/O # a/O'),
    ('x\tB-LOC\tOslo\tO\nx\tO\n', (-2, -1), 'Oslo/O x/O'),
    ('1\tau\tx\tO\n1-2\tau fait\tx\tO\n# a\tO\n', (-3, -1), 'au/O'),     # words are numbered
    ('New York\tB-LOC\n\xa0x\tO\n', (), 'New York/B-LOC \xa0x/O'),      # spaces within a field
    (conllu(1, 'a b', 'X') + conllu(2, ' ', 'SPACE'), (1, 3), 'a b/X  /SPACE')])
def test_files_of_a_word_a_line(tmp_path, content, columns, words):
    """CoNLL's, where five columns are no numbered words; Universal NER's; those that `columns` describes."""
    assert words_and_tags(tmp_path, content, columns) == words


@pytest.mark.parametrize('line', [
    '# meta::genre = academic\n',
    conllu('1-2', 'au fait', 'a b'), conllu('2.1', 'au fait', 'a b')])
def test_comments_ranges_and_empty_nodes_of_conllu_are_skipped(tmp_path, line):
    sentence = line + conllu(1, 'Rome', 'PROPN') + conllu(2, '#', 'SYM') + '\n'
    read = words_and_tags(tmp_path, 2 * sentence, (1, 3))
    assert read == 'Rome/PROPN #/SYM | Rome/PROPN #/SYM'


@pytest.mark.parametrize('content, columns, words', [
    ('Rome B-LOC\n#fell\n', (), 'train.conll:2: has no word and tag'),
    ('1\tPaul\tB-PER\tO\n2\t\tO\tO\n', (1, 2), r"conll:2: has no word and tag .*\['2', '', 'O', 'O'\]; mend"),
    ('1\tRome\tB-LOC\tO\n', (), 'numbered; say which of its 4 columns, .*as --columns=1,3')])
def test_a_bad_line_of_words_is_named(tmp_path, content, columns, words):
    refused(words, words_and_tags, tmp_path, content, columns)


def test_squads_own_file_is_read_as_the_hubs(tmp_path):
    question = {
        'id': 'x1',
        'question': 'How high?',
        'answers': [{'text': '42 m', 'answer_start': 6}]}
    paragraph = {
        'context': SQUAD_ROW['context'],
        'qas': [question, question | {'answers': []}]}
    article = {'title': 'T', 'paragraphs': [paragraph]}
    file = tmp_path / 'train.json'
    file.write_text(json.dumps({'version': 'v2.0', 'data': [article]}))
    rows, _ = read_files([file], task('squad'))
    assert rows == [SQUAD_ROW, UNANSWERED]
    for answers in ({}, {'answers': None}, {'answers': [{'text': 'a'}]}, {'answers': SQUAD_ROW['answers']}):
        del question['answers']
        question |= answers
        paragraph['qas'] = [{'id': 'x0', 'question': '', 'answers': []}, question]
        bad = tmp_path / 'bad.json'
        bad.write_text(json.dumps({'data': [article]}))
        refused("bad.json: question 'x1': \"answers\" must be a list .*where there is no answer; wrong or",
                read_files, [bad], task('squad'))
        question.setdefault('answers')
    file.write_text(json.dumps(rows, indent=1))     # a list of objects
    assert read_files([file], task('squad'))[0] == rows


def write_shard(folder, name, labels=('bad', 'good')):
    features = {'text': TEXT, 'label': datasets.ClassLabel(names=[*labels])}
    write(folder / f'{name}.parquet', [{'text': 'x', 'label': 0}] * 20, features)


def load_shards(folder, labels=()):
    return load('example_sc', folder, labels=labels, template='{text}', test='train')


def test_a_shard_that_is_missing_is_named(tmp_path):
    write_shard(tmp_path, 'train-clean-00000-of-00001')     # another split's
    with pytest.raises(FileNotFoundError, match='no train with a suffix'):
        load_shards(tmp_path)
    write_shard(tmp_path, 'train-00000-of-00003')
    write_shard(tmp_path, 'train-00002-of-00003')
    refused(r'have the numbers \[0, 2\] and not 0 to 2', load_shards, tmp_path)
    write_shard(tmp_path, 'train-00001-of-00003')
    rows, _ = load_shards(tmp_path)
    assert len(rows['test']) == 60
    write_shard(tmp_path, 'train-00000-of-00003-0123456789abcdef')
    refused('remove shards of another', load_shards, tmp_path)


def test_each_row_has_an_id_of_its_own(tmp_path):
    rows = [{'id': name, 'text': 'x', 'label': 'good'} for name in ('a', 'a', 'a#1', 'b')]
    jsonl(tmp_path / 'train.jsonl', rows)
    rows, _ = load_shards(tmp_path)
    assert [row['id'] for row in rows['test']] == ['a', 'a#1', 'a#1#2', 'b']


def test_shards_and_splits_may_number_their_labels_otherwise(tmp_path):
    write_shard(tmp_path, 'train-00000-of-00002', ('bad', 'good'))
    write_shard(tmp_path, 'train-00001-of-00002', ('good', 'bad'))
    rows, labels = load_shards(tmp_path)
    assert labels == ('good', 'bad')
    assert [row['label'] for row in rows['test']] == ['bad'] * 20 + ['good'] * 20
    refused("'bad' is none of the labels .'negative', 'positive'.", load_shards, tmp_path,
            ('negative', 'positive'))


@pytest.mark.parametrize('name', ['sc', 'ir'])
def test_the_share_of_unknown_tokens_is_said(tmp_path, name, capsys):
    """Of what two words of a vocabulary read: special tokens around a text are not counted."""
    tokenizer = wordpiece(tmp_path)
    texts = {'train': 'bob fell', 'validation': 'bob \u6771', 'test': 'fell fell \u6771 \u4eac'}
    for split, text in texts.items():
        row = {'id': split, 'query': text, 'positive': f'{text} bob', 'text': text, 'label': 'x'}
        jsonl(tmp_path / f'{split}.jsonl', [row])
    pair = ('{query}', '{positive}')
    cfg = task(f'example_{name}', data=str(tmp_path), validation='validation', template='{text}', pair=pair,
               labels=())
    share = {'sc': 3 / 8, 'ir': 6 / 19}[name]
    tasks.load_data(cfg, tokenizer, 99)
    assert f': {share:.1%} of the tokens are unknown to the tokenizer' in capsys.readouterr().err
    tasks.look(cfg, tokenizer, 'mine', 99)
    assert f'in tokens of mine, at most 99; {share:.1%} of the tokens are unknown' in capsys.readouterr().out

    kind = tasks.kind_of(cfg)
    rows, labels = kind.load()
    examples = {part: made for part, (made, _) in kind.encode(rows, labels, TOKENIZER, 99).items()}
    assert tasks.share_of_unknown(examples, TOKENIZER) == 0


REPEATED = {    # a kind's row of a number
    'sc': lambda k: {'title': '', 'text': f'text {k}', 'label': 'bad '},
    'tc': lambda k: {'tokens': ['a', f'w{k}'], 'tags': ['O', 'O']},
    'qa': lambda k: {'context': f'It is {k}.', 'question': 'What?',
                     'answers': {'text': [f'{k}'], 'answer_start': [6]}},
    'ir': lambda k: {'id': f'{k}', 'query': f'q{k}', 'positive': f'p{k}', 'negative ': 'n'}}


@pytest.mark.parametrize('name', REPEATED)
def test_texts_that_are_in_train_too_are_counted(tmp_path, name, capsys):
    for split, numbers in {'train': range(9), 'validation': range(20, 24), 'test': range(7, 12)}.items():
        jsonl(tmp_path / f'{split}.jsonl', [REPEATED[name](k) for k in numbers])
    labels = ('bad ',) if name == 'sc' else ()
    cfg = task(f'example_{name}', data=str(tmp_path), labels=labels, validation='validation', label_map=())
    told = f'{cfg.dataset}: texts that are in train, too: 2 of 5 in test\n'
    tasks.load_sets(cfg, TOKENIZER, 99)
    err = capsys.readouterr().err
    assert told in err
    unread = "search train: `pair` reads query, positive, and not the columns 'negative '\n"
    assert (unread in err) == (name == 'ir')
    tasks.look(cfg, TOKENIZER, 'docs', 99)
    printed = capsys.readouterr()
    assert told in printed.err
    assert ("  label 'bad ' " in printed.out) == (name == 'sc')


@pytest.mark.parametrize('value', [['a', 'b'], None, True, float('nan')])
def test_a_text_that_is_no_text_is_refused_with_its_row(value):
    refused("^row 3: 'x' holds .*, which is no text; write", fill, '{x}', {'x': value}, 'row 3')


def test_numbers_are_texts_and_a_title_may_be_null():
    row = {'title': None, 'year': 1984, 'share': 0.5, 'text': 'It.'}
    assert fill('{title}|{year}|{share}|{text}', row, 'row 0') == '|1984|0.5|It.'


@pytest.mark.parametrize('template, text', [
    ('{review.title}: {review}', 'Sun: fine day'),   # as pandas.json_normalize names what is nested
    ('{text[en]}|{0}|{a b}|{}', 'hello|7|both|none'),
    ('{Q1: why}{why!r}', 'because!'),
    ('{{{review}}} {{0}}', '{fine day} {0}')])       # as in str.format
def test_a_name_in_braces_is_that_column_whatever_the_name(template, text):
    row = {'review': 'fine day', 'review.title': 'Sun', 'text[en]': 'hello', '0': 7, 'a b': 'both',
           '': 'none', 'Q1: why': 'because', 'why!r': '!'}
    assert fill(template, row, 'row 0') == text
    refused("^row 1: has no column 'review.", fill, '{review.author}', row, 'row 1')


@pytest.mark.parametrize('template', [
    'Is it {it}?', '{a}{b}{{c}}', '{{{a}}}', '{a}}}', '{{{{{a}', 'plain',
    '{a', 'a}', '{{a}', '{a}}', '{{{a}}'])
def test_templates_of_names_are_those_of_str_format(template):
    row = {'it': 'so', 'a': '{b}', 'b': 'x'}
    try:
        expected = template.format_map(row)
    except ValueError:
        refused('has a brace without its partner', fill, template, row, 'row 0')
    else:
        assert fill(template, row, 'row 0') == expected


@pytest.mark.parametrize('labels', [(1, 0), (2.5, -1.0), (True, False), ('n/a', "it's")])
def test_the_label_map_that_a_message_proposes_works_when_it_is_pasted(tmp_path, labels):
    for split in ('train', 'test'):
        jsonl(tmp_path / f'{split}.jsonl', [{'text': 'a', 'label': label} for label in labels])
    # of texts the names would be those that train has
    names = ('first', 'second') if isinstance(labels[0], str) else ()
    options = {'template': '{text}', 'labels': names, 'hold_out': 0.5}
    pasted = proposed(load, 'label_map', 'example_sc', tmp_path, **options)
    assert [name for _, name in pasted] == ['its name'] * 2
    pasted = [(label, name) for (label, _), name in zip(pasted, ('first', 'second'))]
    rows, _ = load('example_sc', tmp_path, **options, label_map=tuple(pasted))
    assert [row['label'] for row in rows['test']] == ['first', 'second']


def test_whole_numbers_are_those_of_labels_in_any_form():
    labels = Labels(task('sst2', labels=('bad', 'good')), ((), {}), '')
    for value in (0, 0.0, False, Field('0'), 'bad'):
        assert labels.name(value, '') == 'bad'
    for value in (1, 1.0, True, Field('1'), 'good'):
        assert labels.name(value, '') == 'good'


def test_a_regressions_label_is_a_number():
    kind = tasks.kind_of(task('stsb'))
    row = {'sentence1': '', 'sentence2': '', 'label': '4.5'}
    labels = Labels(kind.task, ((), {}), '')
    assert kind.make_row(row, labels, 'here')['label'] == 4.5
    refused("here: label 'high' is no number.*; if .* unlabelled = .'high',. leaves", kind.make_row,
            row | {'label': 'high'}, labels, 'here')


@pytest.mark.parametrize('name, columns', [
    ('a', ()), ('../a.iob', ()), ('{}/b.txt', (0, 1))])
def test_a_split_is_named_by_its_file_or_a_path(tmp_path, name, columns):
    for path in ('a.iob', 'b.txt', 'set/a.iob'):
        jsonl(tmp_path / path, [])      # makes the folder
        (tmp_path / path).write_text('Rome\tB-LOC\nfell\tO\n\nYes\tO\n')
    files = dict.fromkeys(tasks.SPLITS, name.format(tmp_path))
    rows, _ = load('conll2003', tmp_path / 'set', columns=columns, **files)
    assert [row['words'] for row in rows['test']] == [['Rome', 'fell'], ['Yes']]
    refused('b.txt: is none of .jsonl, .*--columns=0,3 reads a word a line', load, 'conll2003', tmp_path,
            train=f'{tmp_path}/b.txt')


def test_a_csv_has_other_delimiters_a_byte_order_mark_or_an_index(tmp_path):
    """Also as pandas writes a frame's index, and a spreadsheet its own delimiter and its empty columns."""
    forms = {',': '\ufeff,title,text,label\n0,a,"b, c",good\n',
             '': 'title,text,label,,\na,"b, c",good,,\n',
             ';': '\ufeff"title";text;label\na;b, c;good\n',
             r'\t': 'title\ttext\tlabel\na\t"b, c"\tgood\n', '|': 'title|text|label\n"a"|b, c|good\n'}
    for delimiter, content in forms.items():
        (tmp_path / 'a.csv').write_text(content)
        (tmp_path / 'b.tsv').write_text('title\ttext\tlabel\n1\t2\tgood\n')    # tabs, whatever a .csv has
        options = {'train': 'a.csv', 'validation': 'a.csv', 'test': 'b.tsv', 'delimiter': delimiter}
        rows, _ = load('example_sc', tmp_path, **options)
        assert [rows[split][0]['text'] for split in ('train', 'test')] == ['a\nb, c', '1\n2']
    refused("delimiter must be one character, as ';', not '::'", load, 'example_sc', tmp_path, train='a.csv',
            delimiter='::')


def test_quotes_of_a_tsv_are_characters(tmp_path):
    """As in GLUE's files, where a row that begins with a quote has often none that closes it."""
    (tmp_path / 'a.tsv').write_text('title\ttext\tlabel\n"a\tone\tgood\nb"\ttwo\tbad\n')
    (tmp_path / 'a.csv').write_text('title,text,label\n"a, b",one,1\n"c","two\nlines",bad\n')
    read = {}
    for file in ('a.tsv', 'a.csv'):
        rows, _ = load('example_sc', tmp_path, **dict.fromkeys(tasks.SPLITS, file))
        read[file] = [row['text'] for row in rows['test']]
    assert read['a.tsv'] == ['"a\none', 'b"\ntwo']
    assert read['a.csv'] == ['a, b\none', 'c\ntwo\nlines']


@pytest.mark.parametrize('path, rows, words', [
    ('qrels/test', judgements(('q1', 'x', 1)), "no query has .*: are the ids .*, as 'q1' and 'x'"),
    ('qrels/test', judgements(('q1', 'd1', 0.5)), 'score 0.5 is not a whole number'),
    ('qrels/test', judgements(('q1', 'd1', 0), ('q1', 'd1', 1)), 'occurs twice'),
    ('qrels/test', [{'query': 'q1'}], "judgement 0: has no column 'query-id'"),
    ('qrels/test', [{'query_id': 'q1', 'query': 'a', 'positive_passages': ['d1']}],
     "passages: has no .*'docid'"),
    ('train', [{'query': 'q', 'positive': ['p']}], "train row 0: 'positive' holds .'p'., which is no text"),
    ('corpus', [{'_id': 'd1', 'text': text} for text in 'xy'], "corpus row 1: 'd1' occurs twice")])
def test_bad_retrieval_sets_are_named(tmp_path, path, rows, words):
    beir(tmp_path, '.', 'zip')
    jsonl(tmp_path / 'train.jsonl', [{'query': 'q', 'positive': 'p'}])
    (tmp_path / f'{path}.tsv').unlink(missing_ok=True)
    jsonl(tmp_path / f'{path}.jsonl', rows)
    refused(words, load, 'example_ir', tmp_path)


def test_judged_documents_and_queries_without_text_count(tmp_path, capsys):
    """As in ArguAna and NFCorpus: d9 is relevant and never found, q9 is not asked."""
    beir(tmp_path, '.', 'zip')
    judged = judgements(('q1', 'd1', 1), ('q1', 'd9', 2), ('q2', 'd9', 1), ('q9', 'd2', 1))
    write(tmp_path / 'qrels/test.tsv', judged)
    rows, _ = load('example_ir', tmp_path)
    told = capsys.readouterr().err
    assert "test: 1 of 3 judged documents are in no file, as 'd9': they count as" in told
    assert 'test: 1 of 3 judged queries are left out' in told
    ids = sorted(rows['corpus'])
    predictions = [retrieval.ranking(row, ids, [0.5, 0.2, 0.1]) for row in rows['test']]
    _, scores = metrics.both_scores('IR', predictions)
    assert scores['standard']['ids'] == ['q1', 'q2']
    gain = 1 / np.log2(3)       # d1 has the second rank, where d9 would have the first
    assert scores['standard']['columns'] == [pytest.approx([gain / (2 + gain), 0])]


@pytest.mark.parametrize('texts, judged, marked', [
    (('what 1', 'what 2', 'else'), 'd9', True),     # Quora's: most texts are the same, one was edited
    (('x what 1', 'y  what 2', 'z what 3'), 'd9', True),    # ArguAna's: documents alone have titles
    (('what 1', 'else', 'else'), 'd9', False),      # numbers that mean other things among documents
    (('what 1', 'what 2', 'what 3'), '{}', False)])     # a pair's document has the query's id
def test_queries_that_are_documents_are_marked(tmp_path, capsys, texts, judged, marked):
    queries = [{'_id': f'{k}', 'text': f'what {k}'} for k in (1, 2, 3)]
    documents = [{'_id': f'{k}', 'text': text} for k, text in enumerate(texts, 1)]
    jsonl(tmp_path / 'queries.jsonl', queries)
    jsonl(tmp_path / 'corpus.jsonl', [*documents, {'_id': 'd9', 'text': 'because'}])
    grades = judgements(*((f'{k}', judged.format(k), 1) for k in (1, 2, 3)))
    for split in ('train', 'dev', 'test'):
        jsonl(tmp_path / f'qrels/{split}.jsonl', grades)
    rows, _ = load('example_ir', tmp_path, query='Query: {text}?', document='{text}')
    assert [row.get('is_document', False) for row in rows['test']] == [marked] * 3
    assert ('6 of 6 queries are documents, too' in capsys.readouterr().err) == marked


def test_judgements_without_text_make_no_training_pair(tmp_path):
    beir(tmp_path, '.', 'zip')
    judged = judgements(('q1', 'd1', 1), ('q1', 'd9', 1), ('q9', 'd1', 1), ('q2', 'd8', 1))
    write(tmp_path / 'qrels/train.tsv', judged)
    rows, _ = load('example_ir', tmp_path)
    assert [row['query'] for row in rows['train']] == ['Query: what 1']

"""A task's files -> rows -> examples of tokens. Four kinds: SC (sequence classification), TC (token classification),
QA (extractive question answering), IR (retrieval).

    python tasks.py configs/tasks/docs_tc.py                 # look at a task: counts, what was lost, some rows
    python tasks.py configs/tasks/sst2.py --data=datasets    # of a local copy (datasets/sst2/train.jsonl, ...)
    python tasks.py configs/tasks/docs_ir.py --baseline      # what needs no model, as predictions beside the models'

A task is a config of about ten lines; its own files are .jsonl, .csv, .tsv, .parquet, or .iob / .conll for TC.
Nothing is dropped in silence: what truncation loses and labels that a rule maps are counted and printed, and a row that
does not hold what its kind needs is an error that names it.
"""
import collections
import csv
import gzip
import hashlib
import importlib.metadata
import json
import math
import random
import re
import shutil
import string
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nanoencoder import settings as configs
from nanoencoder import docs
import evaluate
from data import sha256, sync
from nanoencoder.tokenizer import load_tokenizer

KINDS = ('SC', 'TC', 'QA', 'IR')
SPLITS = docs.SPLITS


@dataclass(frozen=True)
class Task:
    kind: str = ''                  # SC, TC, QA or IR
    dataset: str = ''               # the name of its folder under predictions/<model>/<kind>/
    source: str = ''                # a dataset of the Hugging Face hub, or docs (embedded)
    subset: str = ''                # of a hub dataset, as sst2 of nyu-mll/glue
    revision: str = ''              # of a hub dataset; refs/convert/parquet where the main one is a script
    data: str = ''                  # a folder of local files, read instead of the hub
    train: str = 'train'            # names of the splits or files
    validation: str = 'validation'  # empty: hold_out of the training rows
    test: str = 'test'
    hold_out: float = 0.05          # as train_test_split(train_size=0.95, seed=42) of datasets draws them
    # SC, QA
    template: str = '{text}'        # of the row's columns; for QA it ends with {context}
    # SC, TC
    label: str = 'label'            # column of SC
    words: str = 'tokens'           # columns of TC
    tags: str = 'tags'
    labels: tuple = ()              # all of them in the order of their numbers; empty: those of train, sorted
    label_map: tuple = ()           # ((found, meant), ...): applied and counted
    scheme: str = 'IOB2'            # of TC's tags, or IOB1: which strict F1 is computed
    # QA
    answers: str = 'answers'        # column: {"text": [...], "answer_start": [...]}, or [{"text", "start", "end"}, ...]
    candidates: str = ''            # column of strings one of which is the answer, if there is one (ReCoRD's entities)
    overlap: int = 128              # tokens that a window of a long context shares with the one before
    qa_head: str = 'tag'            # answer tokens are tagged, as the authors do; span: start and end
    # IR
    query: str = 'Query: {text}'    # templates of the columns text and title
    document: str = 'Document: {text}'
    pair: tuple = ('Query: {query}', 'Document: {positive}')  # templates of the training pairs' columns
    pairs: str = ''                 # a hub dataset of training pairs; empty: `train` of the source
    qrels: str = ''                 # a hub dataset of judgements; empty: qrels/ of the source, or its positive_passages
    trained_on: str = ''            # what the pairs are called, in the names of results
    score_on: tuple = ()            # other tasks' configs on which the trained model is scored too
    judged_only: bool = False       # the corpus is the documents judged in either split, as in the paper
    drop_same_id: bool = False      # a query does not find the document of its own id
    # all
    steps: int = 1_000              # of fine-tuning, at most; 0: all of the epochs (paper, section 2)
    epochs: int = 1                 # at most; the paper's is one
    tokenizer: str = 'configs/corpora/docs'  # for looking at a task; finetune.py takes the model's
    max_length: int = 0             # tokens; 0: round(0.99 x the model's context), as the authors
    cache: str = 'corpora/tasks'    # where the embedded tasks are kept, once extracted

    def __post_init__(self):
        if not self.kind:
            raise ValueError('kind is empty: name a task\'s config first, as configs/tasks/docs_tc.py; see --help')
        for name, options in (('kind', KINDS), ('scheme', ('IOB1', 'IOB2')), ('qa_head', ('tag', 'span'))):
            if getattr(self, name) not in options:
                raise ValueError(f'{name} is one of {", ".join(options)}, not {getattr(self, name)!r}')
        if not re.fullmatch(r'[\w.-]+', self.dataset) or self.dataset.startswith('.'):
            raise ValueError(f'dataset must be the name of a folder, not {self.dataset!r}')
        if not (self.source or self.data):
            raise ValueError('source is empty: name a hub dataset, or give --data=<folder of local files>')
        for name in ('train', 'test'):
            if not getattr(self, name):
                raise ValueError(f'{name} is empty: name the split or file')
        for name in ('labels', 'score_on'):
            values = getattr(self, name)
            if not all(isinstance(value, str) for value in values) or len(set(values)) < len(values):
                raise ValueError(f'{name} is a tuple of different names, not {values!r}')
        if self.kind == 'QA' and not self.template.endswith('{context}'):
            raise ValueError('template of a QA task must end with {context}')
        if not 0 < self.hold_out < 1:
            raise ValueError(f'hold_out must be between 0 and 1, not {self.hold_out}')
        for name, low in (('overlap', 0), ('max_length', 0), ('steps', 0), ('epochs', 1)):
            if getattr(self, name) < low:
                raise ValueError(f'{name} must be at least {low}, not {getattr(self, name)}')
        if not re.fullmatch(r'\w*', self.trained_on):
            raise ValueError(f'trained_on must be letters, digits and _, not {self.trained_on!r}')
        if len(self.pair) != 2:
            raise ValueError(f'pair is two templates, of query and positive, not {self.pair!r}')
        templates = {'SC': {'template': self.template}, 'TC': {}, 'QA': {'template': self.template}, 'IR': {
            'query': self.query, 'document': self.document, 'pair': self.pair[0], 'pair ': self.pair[1]}}[self.kind]
        for name, template in templates.items():
            if not is_template(template):
                raise ValueError(f'{name} must be text with columns in braces, as "Question: {{question}}", not {template!r}')
        if self.kind == 'QA' and self.qa_head == 'span' and self.template == '{context}':
            raise ValueError('template of a QA task needs a question before {context}')
        if not all(isinstance(pair, tuple) and [type(name) for name in pair] == [str, str] for pair in self.label_map):
            raise ValueError(f'label_map is ((found, meant), ...), not {self.label_map!r}')


def is_template(template):
    """Whether a text names at least one column in braces, and nothing but names."""
    try:
        parts = [part for part in string.Formatter().parse(template) if part[1] is not None]
    except (ValueError, TypeError):
        return False
    return bool(parts) and all(re.fullmatch(r'\w+', name) and not spec and not conversion
                               for _, name, spec, conversion in parts)


# ------------------------------------------------------------------------------------------------ files, hub

def read_table(task, source, split, subset='', only=None):
    """(rows as dicts, {column: label names} if the file says): of a local folder or of the hub.

    only  (columns, ids): rows whose first of these columns is none of the ids are not read into memory
    ValueError where there is no such file or dataset, or it is damaged.
    """
    if task.data:
        return read_files(local_files(Path(task.data), source, subset, split), only)
    return read_hub(source, subset, split, task.revision, only)


def local_files(folder, source, subset, split):
    """The files of a split: <split>.<kind>, or parquet shards as on the hub. `folder` may hold many datasets' folders."""
    name = source.split('/')[-1]
    roots = [root for root in (folder / name, folder) if root.is_dir()][:1] if name else [folder]
    below = (subset, '', 'data', 'default', 'plain_text')
    places = [root / name for root in roots for name in below if (root / name).is_dir()]
    for place in places:
        for suffix in READERS:
            if (place / f'{split}{suffix}').is_file():
                return [place / f'{split}{suffix}']
        if shards := sorted(place.glob(f'{split}-*.parquet')) or sorted((place / split).glob('*.parquet')):
            return shards
    raise ValueError(f'{folder}: no {split}{{{",".join(READERS)}}} and no {split}-*.parquet'
                     f'{f" for {name} {subset}".rstrip() if name or subset else ""} there'
                     + ('; validation = "" holds out a share of train' if 'valid' in split else ''))


def read_files(paths, only=None):
    """(rows, {column: label names}) of a split's files, which must agree on the labels."""
    rows, names = [], {}
    for path in paths:
        if not path.stat().st_size:
            raise ValueError(f'{path}: is empty')
        try:
            found, labels = READERS[path.suffix](path)
        except UnicodeDecodeError as error:
            raise ValueError(f'{path}: invalid UTF-8 at byte {error.start}') from None
        rows += found if only is None else [row for row in found if id_of(row, only[0]) in only[1]]
        for column in labels:
            if names.setdefault(column, labels[column]) != labels[column]:
                raise ValueError(f'{path}: orders the labels of {column!r} otherwise than {paths[0].name}')
    if not rows and only is None:
        raise ValueError(f'{paths[0]}: holds no row')
    return rows, names


def id_of(row, columns):
    """The row's id as a string: what stands in the first of these columns that it has."""
    return next((str(row[column]) for column in columns if column in row), None)


def read_jsonl(path):
    rows = []
    with path.open(encoding='utf-8-sig') as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    rows.append(json.loads(line))
                except (ValueError, RecursionError):
                    raise ValueError(f'{path}:{number}: not valid JSON') from None
                if not isinstance(rows[-1], dict):
                    raise ValueError(f'{path}:{number}: not an object of columns')
    return rows, {}


def read_csv(path):
    csv.field_size_limit(2 ** 30)
    with path.open(encoding='utf-8-sig', newline='') as file:
        reader = csv.reader(file, delimiter='\t' if path.suffix == '.tsv' else ',', strict=True)
        try:
            header = next(reader)
            if len(set(header)) < len(header):
                raise ValueError(f'{path}: two columns of its header have one name')
            rows = []
            for fields in reader:
                if fields and len(fields) != len(header):
                    raise ValueError(f'{path}:{reader.line_num}: has {len(fields)} fields, the header {len(header)}')
                rows += [dict(zip(header, fields))] if fields else []
        except csv.Error as error:
            raise ValueError(f'{path}:{reader.line_num}: {error} (is a quote left open?)') from None
    return rows, {}


def read_parquet(path):
    import pyarrow
    import pyarrow.parquet
    try:
        found = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise ValueError(f'{path}: not a whole parquet file: {error}') from None
    try:
        about = json.loads((found.schema.metadata or {}).get(b'huggingface', b'{}'))
        return found.to_pylist(), label_names(about.get('info', {}).get('features', {}))
    except (ValueError, AttributeError, KeyError) as error:
        raise ValueError(f'{path}: its description of features is damaged: {error!r}') from None


def read_iob(path):
    """CoNLL's columns: a word a line, its tag in the last column, an empty line behind a sentence."""
    rows, words, tags = [], [], []
    with path.open(encoding='utf-8-sig') as file:
        for number, line in enumerate([*file, '\n'], 1):
            fields = line.strip(' \t\r\n')
            fields = re.split('[ \t]+', fields) if fields else []
            if not fields or fields[0] == '-DOCSTART-':
                if words:
                    rows.append({'tokens': words, 'tags': tags})
                words, tags = [], []
            elif len(fields) < 2:
                raise ValueError(f'{path}:{number}: has a word but no tag: {line.strip()!r}')
            else:
                words.append(fields[0])
                tags.append(fields[-1])
    return rows, {}


READERS = {'.jsonl': read_jsonl, '.csv': read_csv, '.tsv': read_csv, '.parquet': read_parquet, '.iob': read_iob,
           '.conll': read_iob}


def label_names(features):
    """{column: [names]} of the class labels among a dataset's features, alone or in lists."""
    found = {}
    for column, feature in features.items() if isinstance(features, dict) else ():
        while isinstance(feature, dict) and 'feature' in feature:
            feature = feature['feature']
        if isinstance(feature, dict) and feature.get('_type') == 'ClassLabel':
            found[column] = feature['names']
    return found


def read_hub(source, subset, split, revision, only=None):
    """(rows, {column: label names}) of a dataset of the hub, through `datasets`."""
    import datasets
    if revision == 'refs/convert/parquet':  # has no list of its files
        options = {'data_files': {split: f'{subset or "default"}/{split}/*.parquet'}}
    else:
        options = {'name': subset or None}
    try:
        dataset = datasets.load_dataset(source, split=split, revision=revision or None, **options)
    except (OSError, ValueError, RuntimeError) as error:
        raise ValueError(f'cannot read {split} of {source} {subset}: {error}; --data=<folder> reads a local copy') from None
    if only is not None:
        column = next(column for column in only[0] if column in dataset.column_names)
        dataset = dataset.select([k for k, one in enumerate(dataset[column]) if str(one) in only[1]])
    return list(dataset), label_names(dataset.features.to_dict())


# ------------------------------------------------------------------------------------------------------ rows

def load(task, training=True):
    """({split: rows}, labels) of a task, checked; a retrieval set that is only scored needs no training pairs. Rows are

    SC  id, text, label, fields   TC  id, words, tags   QA  id, question, context, answers [(text, start)], candidates
    IR  train: query, positive; validation and test: id, query, grades {document: grade}; and 'corpus': {document: text}

    ValueError that names the row for what its kind needs and it does not hold.
    """
    if task.kind == 'IR':
        return load_retrieval(task, training), ()
    files = {split: name for split, name in zip(SPLITS, (task.train, task.validation, task.test)) if name}
    tables = docs_task(task) if embedded(task) else {
        split: read_table(task, task.source, name, task.subset) for split, name in files.items()}
    if not task.validation:
        rows, names = tables['train']
        kept, held = train_test_split(len(rows), task.hold_out)
        tables['train'], tables['validation'] = ([rows[i] for i in kept], names), ([rows[i] for i in held], names)
    column = {'SC': task.label, 'TC': task.tags, 'QA': ''}[task.kind]
    numbered = {split: tuple(names[column]) for split, (_, names) in tables.items() if column in names}
    if len(set(numbered.values())) > 1:
        raise ValueError(f'{task.dataset}: the splits order their labels differently: {numbered}')
    numbered = next(iter(numbered.values()), ())  # what numbers in the file stand for
    known = tuple(dict.fromkeys(dict(task.label_map).get(name, name) for name in numbered))
    if known and task.labels and known != task.labels:
        raise ValueError(f'{task.dataset}: the file orders its labels {", ".join(known)}; the task says '
                         f'{", ".join(task.labels)}')
    labels = task.labels or known or infer_labels(task, tables['train'][0], column)
    make = {'SC': classification_row, 'TC': tagging_row, 'QA': question_row}[task.kind]
    mapped = collections.Counter()
    rows = {}
    for split in SPLITS:
        rows[split], seen = [], set()
        for number, row in enumerate(tables[split][0]):
            where = f'{task.dataset} {split} row {number}'
            try:
                made = make(task, row, where, (labels, numbered or labels), mapped)
            except (TypeError, KeyError, AttributeError, IndexError) as error:
                raise ValueError(f'{where}: not a row of {task.kind}: {error!r}') from None
            name = whole(str(row.get('id', row.get('idx', number))))
            rows[split].append(made | {'id': f'{name}#{number}' if name in seen else name})
            seen.add(name)
    if task.kind == 'TC' and task.scheme == 'IOB2':
        for split, found in rows.items():
            count = sum(len(evaluate.entities(row['tags']) - evaluate.entities(row['tags'], 'IOB2')) for row in found)
            if count:
                print(f'{task.dataset} {split}: {count:,} entities begin with I-, and are read as conlleval reads them; '
                      'if that is how the file marks them, say --scheme=IOB1', file=sys.stderr)
    for (found, meant), count in mapped.items():
        print(f'{task.dataset}: {count:,} labels {found!r} read as {meant!r}', file=sys.stderr)
    return rows, labels


def embedded(task):
    return task.source == 'docs' and not task.data


def train_test_split(n, share, seed=42):
    """(kept, held): indices of n rows, as Dataset.train_test_split(train_size=1 - share, seed=seed) of `datasets` draws them.

    ValueError if one side would be empty.
    """
    held = n - math.floor((1 - share) * n)
    order = np.random.default_rng(seed).permutation(n)
    if not 0 < held < n:
        raise ValueError(f'hold_out {share} of {n} rows leaves nothing on one side')
    return order[held:].tolist(), order[:held].tolist()


def get(row, column, where, kind=str):
    """What a row has in a column; ValueError if it has no such column, or another type there."""
    if column not in row:
        raise ValueError(f'{where}: has no column {column!r}, but {", ".join(map(str, row))}')
    if not isinstance(row[column], kind):
        raise ValueError(f'{where}: column {column!r} holds {str(row[column])[:40]!r} where {kind.__name__} was expected')
    return whole(row[column]) if kind is str else row[column]


def whole(text):
    """A text without lone surrogates, which JSON can hold and UTF-8 cannot: each becomes U+FFFD, as in the tokenizer."""
    return re.sub('[\ud800-\udfff]', '\ufffd', text)


def fill(template, row, where):
    """A template with the row's columns in it."""
    try:
        return whole(template.format_map({name: '' if value is None else value for name, value in row.items()}))
    except KeyError as error:
        raise ValueError(f'{where}: has no column {error.args[0]!r}, but {", ".join(map(str, row))}') from None
    except (ValueError, IndexError, AttributeError) as error:
        raise ValueError(f'{where}: {template!r} is not text with {{columns}}: {error}') from None


def infer_labels(task, rows, column):
    """The labels that occur in train, sorted, "O" first."""
    if task.kind == 'QA':
        return ()
    found = [label for number, row in enumerate(rows)
             for label in ([row.get(column)] if task.kind == 'SC' else get(row, column, f'{task.dataset} row {number}', list))]
    other = [label for label in found if not isinstance(label, str)]
    if other:
        raise ValueError(f'{task.dataset}: column {column!r} holds {other[0]!r}, not a name: give `labels` in the order of '
                         'their numbers')
    meant = {dict(task.label_map).get(label, label) for label in found}
    return tuple(sorted(meant, key=lambda label: (label != 'O', label)))


def label_of(value, task, labels, mapped, where):
    """The name of a label given as a name or as a number; labels = (all of them, those that numbers stand for)."""
    known, numbered = labels
    if isinstance(value, str) and value.isascii() and value.isdecimal() and value not in known:  # of a .csv
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(numbered):
        value = numbered[value]
    if isinstance(value, str) and value in dict(task.label_map):
        mapped[value, dict(task.label_map)[value]] += 1
        value = dict(task.label_map)[value]
    if not isinstance(value, str) or value not in known:
        raise ValueError(f'{where}: label {value!r} is none of {", ".join(known)} (0 to {len(numbered) - 1}); '
                         'list it in `labels`, or let `label_map` say what it means')
    return value


def classification_row(task, row, where, labels, mapped):
    if task.label not in row:
        raise ValueError(f'{where}: has no column {task.label!r}, but {", ".join(map(str, row))}')
    return {'text': fill(task.template, row, where), 'label': label_of(row[task.label], task, labels, mapped, where),
            'fields': [str(row[name]) for _, name, _, _ in string.Formatter().parse(task.template) if name]}


def tagging_row(task, row, where, labels, mapped):
    words, tags = get(row, task.words, where, list), get(row, task.tags, where, list)
    if not words:
        raise ValueError(f'{where}: has no word')
    if len(words) != len(tags):
        raise ValueError(f'{where}: has {len(words)} words and {len(tags)} tags')
    tags = [label_of(tag, task, labels, mapped, where) for tag in tags]
    for tag in tags:
        if tag != 'O' and not re.match('[BI]-.', tag):
            raise ValueError(f'{where}: tag {tag!r} is neither O nor B-TYPE nor I-TYPE')
    for word in words:
        if not isinstance(word, str):
            raise ValueError(f'{where}: {word!r} is not a word')
    return {'words': [whole(word) for word in words], 'tags': tags}


def question_row(task, row, where, labels, mapped):
    """`answers` are (text, start) in characters of the context; none: the question has no answer there."""
    context = get(row, 'context', where)
    found = row.get(task.answers)
    if isinstance(found, dict) and all(isinstance(found.get(name), list) for name in ('text', 'answer_start')):  # SQuAD
        if len(found['text']) != len(found['answer_start']):
            raise ValueError(f'{where}: has {len(found["text"])} answers and {len(found["answer_start"])} starts')
        answers = list(zip(found['text'], found['answer_start']))
    elif isinstance(found, list) and all(isinstance(one, dict) and {'text', 'start'} <= one.keys() for one in found):
        answers = [(one['text'], one['start']) for one in found]
        for one in found:  # ReCoRD's `end` is the last character's index, not the one behind it
            if 'end' in one and context[one['start']:one['end'] + 1] != one['text']:
                raise ValueError(f'{where}: {one["text"]!r} is not characters {one["start"]} to {one["end"]} of its context')
    else:
        raise ValueError(f'{where}: column {task.answers!r} has neither text and answer_start nor a list of text, start, end')
    for text, start in answers:
        if not isinstance(text, str) or not text.strip() or type(start) is not int or start < 0 or \
                context[start:start + len(text)] != whole(text):
            raise ValueError(f'{where}: answer {text!r} is not at character {start} of its context')
    candidates = get(row, task.candidates, where, list) if task.candidates else []
    candidates = [one['text'] if isinstance(one, dict) else one for one in candidates]
    if not all(isinstance(one, str) and one for one in candidates):
        raise ValueError(f'{where}: column {task.candidates!r} is not a list of texts')
    return {'question': fill(task.template.removesuffix('{context}'), row, where), 'context': context,
            'answers': answers, 'candidates': sorted(set(candidates))}


def load_retrieval(task, training):
    """{'train': pairs, 'validation': queries, 'test': queries, 'corpus': {id: text}}."""
    if embedded(task):
        return docs_task(task)
    train = read_table(task, task.pairs or task.source, task.train)[0] if training else []
    pairs = [make_pair(task, row, f'{task.pairs or task.dataset} {task.train} row {number}')
             for number, row in enumerate(train)]
    queries = {}
    for number, row in enumerate(read_table(task, task.source, 'queries', 'queries')[0] if has_queries(task) else ()):
        where = f'{task.dataset} queries row {number}'
        add(queries, id_or_error(row, where), fill(task.query, row, where), where)
    grades = {'test': judgements(task, task.test, queries)}
    if task.validation:
        grades['validation'] = judgements(task, task.validation, queries)
    else:  # half of the test queries each; the authors drew theirs without a seed
        order = sorted(grades['test'])
        random.Random(42).shuffle(order)
        half = set(order[:round(0.5 * len(order))])
        grades['validation'] = {query: found for query, found in grades['test'].items() if query in half}
        grades['test'] = {query: found for query, found in grades['test'].items() if query not in half}
    judged = {document for split in grades.values() for found in split.values() for document in found}
    corpus = {}
    rows = read_table(task, task.source, 'corpus', 'corpus', only=(ID_COLUMNS, judged) if task.judged_only else None)[0]
    for number, row in enumerate(rows):
        where = f'{task.dataset} corpus row {number}'
        add(corpus, id_or_error(row, where), fill(task.document, {'title': '', **row}, where), where)
    return retrieval_sets(task, pairs, corpus, queries, {split: grades[split] for split in ('validation', 'test')})


def add(found, key, value, where):
    """found[key] = value; ValueError if it has another value already."""
    if found.setdefault(key, value) != value:
        raise ValueError(f'{where}: {key!r} occurs twice, with {str(found[key])[:40]!r} and {str(value)[:40]!r}')


ID_COLUMNS = ('_id', 'docid')


def id_or_error(row, where):
    found = id_of(row, ID_COLUMNS)
    if found is None:
        raise ValueError(f'{where}: has no column "_id", but {", ".join(map(str, row))}')
    return found


def make_pair(task, row, where):
    for column in ('query', 'positive'):
        get(row, column, where)
    return dict(zip(('query', 'positive'), (fill(template, row, where) for template in task.pair)))


def has_queries(task):
    """Whether queries have a file of their own (BEIR) rather than standing beside their passages (MLDR)."""
    if not task.data:
        return bool(task.qrels)
    try:
        return bool(local_files(Path(task.data), task.source, 'queries', 'queries'))
    except ValueError:
        return False


def judgements(task, split, queries):
    """{query: {document: grade}} of a split: BEIR's qrels, or MLDR's rows, whose queries are added to `queries`."""
    if task.qrels:
        rows = read_table(task, task.qrels, split)[0]
    elif task.data and has_queries(task):
        rows = read_files(local_files(Path(task.data), task.source, 'qrels', split))[0]
    else:
        rows = read_table(task, task.source, split)[0]
    found = {}
    for number, row in enumerate(rows):
        where = f'{task.dataset} {split} judgement {number}'
        try:
            if 'positive_passages' in row:
                query, graded = str(row['query_id']), {str(one['docid']): 1 for one in row['positive_passages']}
                add(queries, query, fill(task.query, {'text': get(row, 'query', where)}, where), where)
            else:
                query, graded = str(row['query-id']), {str(row['corpus-id']): int(row['score'])}
                if float(row['score']) != int(row['score']):
                    raise ValueError(f'{where}: score {row["score"]!r} is not a whole number')
        except (TypeError, KeyError, OverflowError) as error:
            raise ValueError(f'{where}: has no query-id, corpus-id and score (or query_id and positive_passages): '
                             f'{error!r}') from None
        for document, grade in graded.items():
            add(found.setdefault(query, {}), document, grade, where)
    return found


def retrieval_sets(task, pairs, corpus, queries, grades):
    """load_retrieval's result, checked: every judged id is there; queries without a relevant document go, and are counted."""
    judged = {document for split in grades.values() for found in split.values() for document in found}
    lost = judged - corpus.keys()
    if lost:
        raise ValueError(f'{task.dataset}: {len(lost)} judged documents are not in the corpus, as {sorted(lost)[0]!r}')
    sets = {'train': pairs, 'corpus': corpus}
    for split, found in grades.items():
        unknown = found.keys() - queries.keys()
        if unknown:
            raise ValueError(f'{task.dataset} {split}: {len(unknown)} judged queries are not there, as '
                             f'{sorted(unknown)[0]!r}')
        sets[split] = [{'id': query, 'query': queries[query], 'grades': given} for query, given in found.items()
                       if max(given.values(), default=0) >= 1]
        if len(sets[split]) < len(found):
            print(f'{task.dataset} {split}: {len(found) - len(sets[split])} of {len(found)} queries have no relevant document '
                  'and are left out', file=sys.stderr)
        if not sets[split]:
            raise ValueError(f'{task.dataset} {split}: no query has a relevant document')
    return sets


# ------------------------------------------------------------------------------------------ the embedded tasks
#
# Made in docs.py of docstrings: labels are what authors wrote, splits are by file, nothing is downloaded.

def docs_task(task):
    """{split: (rows, {})} of an embedded task, or load_retrieval's sets; extracted once, then read from the cache."""
    versions = [f'{name} {importlib.metadata.version(name)}' for name in docs.PACKAGES]
    key = hashlib.sha256('\n'.join(versions).encode() + Path(docs.__file__).read_bytes()).hexdigest()[:12]
    folder = Path(task.cache) / f'docs-{key}'
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix='.docs-'))
        print(f'{folder}: extracting the embedded tasks from {", ".join(versions)}', file=sys.stderr)
        for name, splits in docs.tasks(docs.documents()).items():
            (temporary / name).mkdir()
            for split, rows in splits.items():
                with open(temporary / name / f'{split}.jsonl', 'w', encoding='utf-8') as file:
                    file.writelines(json.dumps(row, ensure_ascii=False) + '\n' for row in rows)
        try:
            temporary.rename(folder)
        except OSError:  # another process was faster
            shutil.rmtree(temporary)
    if not (folder / task.dataset).is_dir():
        raise ValueError(f'dataset: the embedded tasks are {", ".join(sorted(path.name for path in folder.iterdir()))}, '
                         f'not {task.dataset!r}')
    tables = {path.stem: read_jsonl(path) for path in sorted((folder / task.dataset).glob('*.jsonl'))}
    if task.kind != 'IR':
        return tables
    tables = {name: rows for name, (rows, _) in tables.items()}
    pairs = [make_pair(task, row, 'docs') for row in tables['train']]
    held = [row for split in ('validation', 'test') for row in tables[split]]
    queries = {row['id']: task.query.format(text=row['query']) for row in held}
    grades = {split: {row['id']: {row['id']: 1} for row in tables[split]} for split in ('validation', 'test')}
    corpus = {row['id']: task.document.format(text=row['positive'], title='') for row in held}
    return retrieval_sets(task, pairs, corpus, queries, grades)


# -------------------------------------------------------------------------------------------------- examples

class Example(NamedTuple):
    """A text as the model reads it. Arrays are as long as `tokens`, which end with eos."""
    tokens: np.ndarray      # (n,) int64
    targets: np.ndarray     # SC (1,): the label; TC, QA (n,): a label at each token, -100 where there is none
    row: int                # index of the row it was made of
    words: np.ndarray       # TC: the word of each token, -1 for none. QA: (n, 2) first and last + 1 character in the context


class Lost(NamedTuple):
    """What truncation took from a split, for people to read."""
    texts: int = 0          # that were cut
    words: int = 0          # of TC, which count as "O"
    entities: int = 0       # of TC, gold ones with a word beyond the cut
    questions: int = 0      # of QA, that were cut to half of the length
    windows: int = 0        # of QA, beyond the first of each context
    answers: int = 0        # of QA, gold ones that no window holds whole


def examples(task, rows, labels, tokenizer, max_length):
    """([Example], Lost) of the rows of a split, in their order."""
    make = {'SC': classification_examples, 'TC': tagging_examples, 'QA': question_examples}[task.kind]
    made, lost = make(task, rows, {label: k for k, label in enumerate(labels)}, tokenizer, max_length)
    return made, Lost(**{name: int(value) for name, value in lost.items()})


def end(tokens, tokenizer, max_length):
    """At most max_length - 1 tokens, then eos."""
    return np.append(tokens[:max_length - 1], tokenizer.ids['eos']).astype(np.int64)


def classification_examples(task, rows, number, tokenizer, max_length):
    made, cut = [], 0
    for k, row in enumerate(rows):
        tokens = tokenizer.encode(row['text'])
        cut += len(tokens) >= max_length
        made.append(Example(end(tokens, tokenizer, max_length), np.array([number[row['label']]]), k, None))
    return made, {'texts': cut}


def spans(tokens, tokenizer):
    """(n, 2): the bytes [first, last + 1) that each token stands for."""
    ends = np.cumsum([len(tokenizer.encoding.decode_single_token_bytes(int(token))) for token in tokens], dtype=np.int64)
    return np.stack([np.append(0, ends[:-1]), ends], 1) if len(tokens) else np.zeros((0, 2), np.int64)


def tagging_examples(task, rows, number, tokenizer, max_length):
    """Words are joined by one space; a token belongs to the word of its first byte that is no space."""
    made, lost = [], collections.Counter()
    for k, row in enumerate(rows):
        words = [tokenizer.normalize(word) for word in row['words']]
        text = ' '.join(words)
        content = text.encode('utf-8', 'replace')
        tokens = tokenizer.encode(text)
        owner = np.full(len(content) + 1, -1)
        place = 0
        for w, word in enumerate(words):
            length = len(word.encode('utf-8', 'replace'))
            owner[place:place + length] = w
            place += length + 1
        word_of = []
        for first, last in spans(tokens, tokenizer).tolist():
            own = owner[first:last]
            word_of.append(int(own[own >= 0][0]) if (own >= 0).any() and content[first:last].strip() else -1)
        kept = word_of[:max_length - 1]
        if len(kept) < len(word_of):
            reached = max(kept, default=-1) + 1
            lost['texts'] += 1
            lost['words'] += len(row['words']) - reached
            lost['entities'] += sum(stop > reached for _, _, stop in evaluate.entities(row['tags']))
        tags = [number[row['tags'][w]] if w >= 0 else -100 for w in kept]
        made.append(Example(end(tokens, tokenizer, max_length), np.array([*tags, -100]), k, np.array([*kept, -1])))
    return made, lost


def question_examples(task, rows, number, tokenizer, max_length):
    """A window or more of each context, behind the question; target 1 on the tokens of the (first) answer.

    A window that holds only a part of it has that part tagged, but for qa_head = "span" no answer.
    """
    made, lost = [], collections.Counter()
    for k, row in enumerate(rows):
        question, context = tokenizer.encode(row['question']), row['context']
        lost['questions'] += len(question) >= max(1, max_length // 2)
        question = question[:max(0, max_length // 2 - 1)]
        tokens = tokenizer.encode(context)
        characters = character_spans(tokens, tokenizer, context)
        answer = row['answers'][0] if row['answers'] else ('', 0)
        inside = (characters[:, 0] < answer[1] + len(answer[0])) & (characters[:, 1] > answer[1])
        room = max_length - len(question) - 1
        step = max(1, room - min(task.overlap, room // 2))
        starts = [0]
        while starts[-1] + room < len(tokens):
            starts.append(starts[-1] + step)
        found = False
        before = np.full(len(question), -100)
        for start in starts:
            part = slice(start, start + room)
            complete = inside.any() and inside[part].sum() == inside.sum()
            found |= bool(complete)
            target = inside[part] & (complete or task.qa_head == 'tag')
            made.append(Example(np.concatenate([question, tokens[part], [tokenizer.ids['eos']]]).astype(np.int64),
                                np.concatenate([before, target, [-100]]).astype(np.int64), k,
                                np.concatenate([np.tile(-1, (len(question), 2)), characters[part], [[-1, -1]]])))
        lost['texts'] += len(starts) > 1
        lost['windows'] += len(starts) - 1
        lost['answers'] += bool(row['answers']) and not found
    return made, lost


def character_spans(tokens, tokenizer, text):
    """(n, 2): the characters [first, last + 1) of each token, without the white space around them."""
    found, original, text = spans(tokens, tokenizer), text, tokenizer.normalize(text)
    lengths = [len(character.encode('utf-8', 'replace')) for character in text]
    character_of = np.append(np.repeat(np.arange(len(text)), lengths), len(text))  # of each byte
    result = np.empty((len(tokens), 2), np.int64)
    for k, (first, last) in enumerate(found.tolist()):
        a, b = int(character_of[first]), int(character_of[last - 1]) + 1
        while a < b and text[a].isspace():
            a += 1
        while b > a and text[b - 1].isspace():
            b -= 1
        result[k] = a, b
    return result if text == original else original_places(original, tokenizer)[result]


def original_places(text, tokenizer):
    """Where in the text each character of its normalised form begins, and where the last one ends.

    Word by word, for nothing composes across white space; a character that came of several begins with the first.
    """
    found, start = [], 0
    for part in re.findall(r'\s+|\S+', text):
        lengths = [len(tokenizer.normalize(part[:k])) for k in range(len(part) + 1)]  # may fall, where a mark composes
        found += [start + max(k for k, length in enumerate(lengths) if length <= j) for j in range(lengths[-1])]
        start += len(part)
    return np.array([*found, len(text)])


# ----------------------------------------------------------------------------------------------- predictions

def write_run(folder, about, rows, log=()):
    """predictions/<model>/<TASK>/<dataset>/<run>/: {split: rows} as .jsonl.gz, run.json, log.jsonl; whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f'.{folder.name}.', suffix='.tmp'))
    temporary.chmod(0o755)
    for split, found in rows.items():
        with open(temporary / f'{split}.jsonl.gz', 'wb') as raw, \
                gzip.GzipFile(filename='', mode='wb', fileobj=raw, mtime=0) as file:  # the same bytes each time
            file.writelines((json.dumps(row, ensure_ascii=False) + '\n').encode('utf-8', 'replace') for row in found)
    about = about | {'sha256': {f'{split}.jsonl.gz': sha256(temporary / f'{split}.jsonl.gz') for split in rows}}
    (temporary / 'log.jsonl').write_text(''.join(json.dumps(line) + '\n' for line in log), encoding='utf-8')
    (temporary / 'run.json').write_text(json.dumps(about, indent=1, ensure_ascii=False) + '\n', encoding='utf-8')
    for path in temporary.iterdir():
        sync(path)
    try:
        if folder.exists():
            folder.rename(temporary.with_name(f'{temporary.name}.old.tmp'))
        temporary.rename(folder)
    except OSError:  # another process wrote it at the same time
        if not (folder / 'run.json').exists():
            raise
    sync(folder.parent)
    for left in folder.parent.glob(f'.{folder.name}.*.tmp'):  # of this process, or of one that was killed
        shutil.rmtree(left, ignore_errors=True)


def fingerprint(rows, splits=('validation', 'test', 'corpus')):
    """sha256 over what a score is of, or over ('train',)."""
    digest = hashlib.sha256()
    for split in splits:
        found = rows.get(split, ())
        for item in sorted(found.items()) if isinstance(found, dict) else found:
            digest.update(json.dumps(item, sort_keys=True).encode())
    return digest.hexdigest()


# ------------------------------------------------------------------------------------------------- baselines

def baseline(task, rows):
    """(name, {split: predictions}) of a simple method that learns from train and reads no pretrained model."""
    make = {'SC': overlap_or_bayes, 'TC': word_lookup, 'QA': frequent_answer, 'IR': bm25}[task.kind]
    name, predict = make(rows, task)
    return name, {split: [predict(row) for row in rows[split]] for split in ('validation', 'test')}


def terms(text):
    return re.findall(r'\w+', text.lower())


def overlap_or_bayes(rows, task):
    """Two fields: the share of the first's words that the second has, cut where train is split best; else naive Bayes."""
    train = rows['train']
    if all(len(row['fields']) == 2 for row in train):
        def share(row):
            first, second = map(set, map(terms, row['fields']))
            return len(first & second) / max(1, len(first))
        shares, golds = np.array([share(row) for row in train]), np.array([row['label'] for row in train])
        names = sorted(set(golds))
        options = [(np.mean(np.where(shares > cut, high, low) == golds), cut, low, high)
                   for cut in np.unique(shares.round(2)) for low in names for high in names]
        _, cut, low, high = max(options)
        return 'word-overlap', lambda row: {'id': row['id'], 'gold': row['label'],
                                            'pred': str(high if share(row) > cut else low)}
    counts = collections.defaultdict(collections.Counter)
    for row in train:
        counts[row['label']].update(terms(row['text']))
    classes = collections.Counter(row['label'] for row in train)
    size = len(set().union(*counts.values()))
    totals = {label: sum(found.values()) + size for label, found in counts.items()}

    def predict(row):
        words = terms(row['text'])
        scores = {label: math.log(classes[label]) + sum(math.log((counts[label][word] + 1) / totals[label])
                                                        for word in words) for label in sorted(classes)}
        return {'id': row['id'], 'gold': row['label'], 'pred': max(scores, key=scores.get)}
    return 'naive-bayes', predict


def word_lookup(rows, task):
    """The most frequent tag of a word in train, or of its shape if train does not have it."""
    def shape(word):
        return re.sub(r'(.)\1+', r'\1', re.sub('[a-z]', 'x', re.sub('[A-Z]', 'X', re.sub(r'\d', '0', word))))
    words, shapes = collections.defaultdict(collections.Counter), collections.defaultdict(collections.Counter)
    for row in rows['train']:
        for word, tag in zip(row['words'], row['tags']):
            words[word][tag] += 1
            shapes[shape(word)][tag] += 1

    def predict(row):
        found = [words.get(word) or shapes.get(shape(word)) or {'O': 1} for word in row['words']]
        return {'id': row['id'], 'gold': row['tags'], 'pred': [max(sorted(tags), key=tags.get) for tags in found]}
    return 'word-lookup', predict


def frequent_answer(rows, task):
    """Of train's answers that occur in the context, the most frequent; none if there is none."""
    counts = collections.Counter(text for row in rows['train'] for text, _ in row['answers'])
    known = sorted(counts, key=lambda text: (-counts[text], text))[:5_000]
    return 'frequent-answer', lambda row: {'id': row['id'], 'golds': [text for text, _ in row['answers']],
                                           'pred': next((text for text in known if text in row['context']), '')}


def bm25(rows, task, k1=0.9, b=0.4):
    """Okapi BM25 over the corpus (Robertson et al.; k1 and b as in Anserini)."""
    corpus = rows['corpus']
    ids = sorted(corpus, reverse=True)  # so that a stable sort leaves ties with the greater id first, as trec_eval
    postings, lengths = collections.defaultdict(list), np.empty(len(ids))
    for k, document in enumerate(ids):
        found = collections.Counter(terms(corpus[document]))
        lengths[k] = sum(found.values())
        for term, count in found.items():
            postings[term].append((k, count))
    norm = k1 * (1 - b + b * lengths / max(1e-9, lengths.mean()))

    def predict(row):
        scores = np.zeros(len(ids))
        for term in terms(row['query']):
            if term in postings:
                at, counts = map(np.array, zip(*postings[term]))
                idf = math.log(1 + (len(ids) - len(at) + 0.5) / (len(at) + 0.5))
                scores[at] += idf * counts * (k1 + 1) / (counts + norm[at])
        return ranking(row, ids, scores, task.drop_same_id)
    return 'BM25', predict


def ranking(row, ids, scores, drop_same_id=False):
    """The predictions of a query: its ten best documents and those of the tenth's score, ties by id as trec_eval has them.

    ids are sorted from the greatest down, so that among equal scores the first is the greatest. scores: (documents,)
    """
    scores = np.asarray(scores, np.float64).round(6)
    if drop_same_id:
        scores = np.where([document == row['id'] for document in ids], -np.inf, scores)
    k = min(10, len(ids))
    tenth = np.partition(scores, len(scores) - k)[len(scores) - k]
    at = np.flatnonzero(scores >= tenth)
    at = at[np.argsort(-scores[at], kind='stable')]
    at = at[np.isfinite(scores[at])]
    return {'id': row['id'], 'gold': row['grades'], 'docs': [ids[i] for i in at], 'scores': scores[at].tolist()}


# ---------------------------------------------------------------------------------------------------- main

def look(task):
    """Print what a task holds: rows, labels, lengths, what truncation loses, and two rows."""
    rows, labels = load(task)
    tokenizer = load_tokenizer(task.tokenizer)
    max_length = task.max_length or round(0.99 * 2048)  # the paper's models; --max_length says another's
    print(f'{task.dataset} ({task.kind}), data {fingerprint(rows)[:12]}; lengths in tokens of {task.tokenizer}, '
          f'at most {max_length}' + ('' if task.max_length else ' (of a context of 2,048; --max_length=507 for tiny models)'))
    for split in SPLITS:
        found = rows[split]
        if task.kind == 'IR':
            texts = [row['query'] for row in found] if split != 'train' else [row['positive'] for row in found]
            lengths, lost = [len(tokenizer.encode(text)) + 1 for text in texts[:2000]], ''
        else:
            made, counted = examples(task, found, labels, tokenizer, max_length)
            lengths = [len(example.tokens) for example in made]
            lost = ''.join(f', {count:,} {name}' for name, count in counted._asdict().items() if count)
            lost = f'; lost or split by length{lost[1:]}' if lost else ''
        print(f'  {split:<11} {len(found):>8,} rows, median length {np.median(lengths):.0f}, longest {max(lengths):,}{lost}')
    if task.kind == 'IR':
        print(f'  {"corpus":<11} {len(rows["corpus"]):>8,} documents')
    for label, count in collections.Counter(label for row in rows['train'] for label in (
            [row['label']] if task.kind == 'SC' else row['tags'] if task.kind == 'TC' else [])).most_common():
        print(f'  label {label:<16} {count:>10,} in train')
    for row in rows['train'][:2]:
        print('  ' + json.dumps(row, ensure_ascii=False)[:600])


def main():
    task, actions = configs.parse(Task, sys.argv[1:], baseline=False, predictions='predictions')
    if not actions['baseline']:
        return look(task)
    rows, _ = load(task)
    name, found = baseline(task, rows)
    folder = Path(actions['predictions']) / name / task.kind / task.dataset / 'lr0e+00_sd0'
    write_run(folder, {'kind': 'baseline', 'scheme': task.scheme, 'data': fingerprint(rows)}, found)
    name, numerators, denominators, _ = evaluate.standard_scores(task.kind, found['test'], task.scheme)
    print(f'{folder}: test {name} {100 * evaluate.ratio(numerators, denominators):.1f}')


if __name__ == '__main__':
    configs.run(main)

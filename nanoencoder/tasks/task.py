"""A task's settings and labels, and what is asked of a row."""
import hashlib
import json
import re
import string
from collections import Counter
from dataclasses import dataclass

from nanoencoder.judging.metrics import KINDS, OF_LABELS, SCORED
from nanoencoder.settings import check, setting
from nanoencoder.tasks.files import Field

SPLITS = ('train', 'validation', 'test')
LABEL_TYPES = str, int, float   # of a label in a file; a bool is an int


@dataclass(frozen=True)
class Task:
    kind: str = setting('', choices=tuple(KINDS))      # SC, TC, QA, IR or MP
    dataset: str = setting('', fixes='rows')           # names the folder of its predictions
    source: str = setting('', fixes='rows')            # a dataset of the hub
    subset: str = setting('', fixes='rows')            # of a hub dataset, as sst2 of nyu-mll/glue
    revision: str = setting('', fixes='rows')          # refs/convert/parquet where the main one is a script
    data: str = setting('', fixes='nothing')           # a folder of local files, read instead of the hub
    made_by: str = setting('', fixes='nothing')        # the command that writes `data`
    # none: quotes are characters; auto: none in a .tsv, standard in a .csv
    quoting: str = setting('auto', choices=('auto', 'none', 'standard'), fixes='rows')
    train: str = setting('train', fixes='rows')        # names of the splits or files
    validation: str = setting('validation', fixes='rows')  # empty: hold_out of the training rows
    test: str = setting('test', fixes='rows')
    hold_out: float = setting(0.05, 1e-9, 1 - 1e-9, fixes='rows')  # by `datasets`, with seed 42
    # SC, QA
    template: str = setting('{text}', fixes='rows')    # of the row's columns; for QA it ends with {context}
    # SC, TC
    metric: str = setting('accuracy', choices=OF_LABELS)    # of SC; a correlation makes it a regression
    label: str = setting('label', fixes='rows')        # column of SC
    words: str = setting('tokens', fixes='rows')       # columns of TC
    tags: str = setting('tags', fixes='rows')
    columns: tuple = setting((), fixes='rows')         # of word and tag, from 0, in files of a word a line
    labels: tuple = setting((), fixes='rows')          # in the order of their numbers; empty: train's, sorted
    label_map: tuple = setting((), fixes='rows')       # ((in the file, meant), ...): applied and counted
    scheme: str = setting('IOB2', choices=('IOB2', 'plain'), fixes='rows')  # of TC's tags; plain: as of POS
    # QA
    answers: str = setting('answers', fixes='rows')    # column: {"text": [...], "answer_start": [...]}
    overlap: int = setting(128, 0)                     # tokens that a window shares with the one before
    qa_head: str = setting('tag', choices=('tag', 'span'))  # tag the answer, as the authors, or its two ends
    # IR
    query: str = setting('Query: {text}', fixes='rows')    # templates of the columns text and title
    document: str = setting('Document: {text}', fixes='rows')
    pair: tuple = setting(('Query: {query}', 'Document: {positive}'), fixes='rows')  # of a training pair
    pairs: str = setting('', fixes='rows')             # hub dataset of training pairs; empty: `train`
    qrels: str = setting('', fixes='rows')             # hub dataset of judgements; empty: the source's qrels/
    score_on: tuple = setting((), fixes='nothing')     # configs of tasks that the model is scored on as well
    judged_only: bool = setting(False, fixes='rows')   # only documents judged in a split, as in the paper
    scale: float = setting(20.0, 1e-9)                 # of the cosines in InfoNCE
    # MP
    good: str = setting('sentence_good', fixes='rows')     # columns: the sentence that is to be the likelier
    bad: str = setting('sentence_bad', fixes='rows')
    group: str = setting('', fixes='rows')             # column of the sets, which count alike; empty: one set
    likelihood: str = setting('', choices=('', 'causal', 'pseudo', 'pseudo-token'))  # empty: the model's own
    # all
    steps: int = setting(1_000, 0)                     # at most; 0: all of the epochs (paper, section 2)
    epochs: int = setting(1, 1)                        # at most; the paper's is one
    tokenizer: str = setting('configs/corpora/docs', fixes='nothing')  # of --look; a model has its own
    max_length: int = setting(0, 0)                    # tokens; 0: as the authors, round(0.99 x the context)

    def __post_init__(self):
        check(self)

        def require(name, good, wanted):
            if not good:
                raise ValueError(f'{name} must be {wanted}, not {getattr(self, name)!r}')
        require('dataset', re.fullmatch(r'[\w-][\w.-]*', self.dataset), 'the name of a folder')
        require('source', self.source or self.data, 'a hub dataset, or --data=<folder> be given')
        require('train', self.train, 'the name of a split or file')
        require('test', self.test, 'the name of a split or file')
        text = 'text with columns in braces, as "Question: {it}"'
        require('template', is_template(self.template), text)
        require('query', is_template(self.query), text)
        require('document', is_template(self.document), text)
        require('pair', len(self.pair) == 2 and all(map(is_template, self.pair)), f'a pair of {text}')
        if self.kind == 'QA':
            require('template', self.template.endswith('{context}'),
                    'text with columns in braces, {context} the last')
        if self.kind != 'SC':
            require('metric', self.metric == 'accuracy', 'left out but for SC')
        are_names = all(isinstance(name, str) for name in self.labels)
        require('labels', are_names and len({*self.labels}) == len(self.labels), 'a tuple of different names')
        require('columns', self.columns == () or are_columns(self.columns),
                "a word's and its tag's, counted from 0, as (1, 3)")
        require('label_map', all(map(is_meaning, self.label_map)),
                '((in the file, meant), ...), as ((0, "no"), ("y", "yes"))')
        require('label_map', len(dict(self.label_map)) == len(self.label_map),
                'of different labels (1 and True are the same)')


def are_columns(columns):
    return [*map(type, columns)] == [int, int] and min(columns) >= 0


def is_meaning(pair):
    """Whether it says what a label of a file, a text or a number, is read as."""
    return (isinstance(pair, tuple) and len(pair) == 2
            and isinstance(pair[0], LABEL_TYPES) and isinstance(pair[1], str))


def is_template(text):
    """Whether it has columns in braces, and braces for nothing else."""
    match = re.fullmatch(r'(?:[^{}]|{{|}}|({[^\W\d]\w*}))*', str(text))
    return bool(match and match[1])


def columns_of(template):
    return [column for _, column, _, _ in string.Formatter().parse(template) if column]


def get(row, column, where, kind=str):
    if column not in row:
        raise ValueError(f'{where}: has no column {column!r}, but {", ".join(map(str, row)):.200}')
    if not isinstance(row[column], kind):
        raise ValueError(f'{where}: {column!r} holds {str(row[column])[:40]!r}, and not {kind.__name__}')
    return row[column]


def fill(template, row, where):
    """A template with a row's columns in their braces. They hold text, or numbers; a title may be null."""
    return template.format_map({column: text_of(row, column, where) for column in columns_of(template)})


def text_of(row, column, where):
    value = get(row, column, where, object)
    if column == 'title' and value is None:
        return ''       # many documents have none
    if isinstance(value, bool) or not isinstance(value, (str, int, float)) or value != value:   # nan
        way = 'write "" where the text is empty' if value is None or value != value else 'write it as text'
        raise ValueError(f'{where}: {column!r} holds {value!r:.40}, which is no text; {way}')
    return str(value)


def fingerprint(rows, parts=(*SCORED, 'corpus')):
    """sha256 over some parts of a task's rows: what is scored, or ('train',)."""
    digest = hashlib.sha256()
    for part in parts:
        content = rows.get(part, ())
        for item in sorted(content.items()) if isinstance(content, dict) else content:
            digest.update(json.dumps(item, sort_keys=True).encode())
    return digest.hexdigest()


class Labels:
    """A task's labels: what names and numbers of its files mean. Counts what label_map changes."""
    def __init__(self, task, tables, column):
        self.meant = dict(task.label_map)
        self.mapped = Counter()
        orders = {tuple(names[column]) for _, names in tables.values() if column in names}
        if len(orders) > 1:
            raise ValueError(f'{task.dataset}: the splits order their labels differently: {orders}')
        order = min(orders, default=())
        named = tuple(dict.fromkeys(self.meant.get(name, name) for name in order))
        if named and task.labels and named != task.labels:
            raise ValueError(f'{task.dataset}: the file has the labels {named}, the task {task.labels}')
        self.names = task.labels or named
        self.numbered = order or task.labels    # what numbers stand for
        if column and not self.names:
            names = self.names_in(tables['train'][0], column, f'{task.dataset} train row')
            self.names = tuple(sorted(names, key=lambda name: (name != 'O', name)))

    def names_in(self, rows, column, where):
        """The names that rows hold: their texts, and what label_map says of others. In a .csv 3.80 is a
        number, and 3 a name."""
        names = set()
        for number, row in enumerate(rows):
            value = get(row, column, f'{where} {number}', object)
            for label in value if isinstance(value, list) else [value]:
                if self.is_mapped(label):
                    names.add(self.meant[label])
                elif isinstance(label, Field) and re.fullmatch(r'-?\d+\.\d+', label):
                    continue
                elif isinstance(label, str):
                    names.add(label)
        return names

    def is_mapped(self, label):
        """Whether label_map has this label. A list or an object cannot be in it."""
        return isinstance(label, LABEL_TYPES) and label in self.meant

    def name(self, value, where):
        """The name of a label given as a name or as a number."""
        name = value        # label_map may name a number, or the name that it stands for
        if not self.is_mapped(name):
            name = self.numbered_name(name)
        if self.is_mapped(name):
            self.mapped[name] += 1
            name = self.meant[name]
        if name not in self.names or name == '':
            raise ValueError(f'{where}: label {value!r:.80} {self.remedy(value)}')
        return name

    def numbered_name(self, value):
        """The name that a number stands for, from 0 on: false is 0, true and 1.0 are 1. Others stay as they
        are."""
        number = value
        if isinstance(value, Field) and value.isascii() and value.isdecimal() and value not in self.names:
            number = int(value)
        if isinstance(value, float) and value.is_integer():
            number = int(value)
        if isinstance(number, int) and 0 <= number < len(self.numbered):
            return self.numbered[number]
        return value

    def remedy(self, value):
        """What is wrong with a label, and the ways out."""
        if self.names:
            wrong = f'is none of {", ".join(self.names):.200}; list it in `labels`'
        else:
            wrong = 'has no name, and train has no label that is one; list names in `labels`'
        if not isinstance(value, LABEL_TYPES):
            return f'{wrong}; a label is a text or a number'
        return (f'{wrong} (of numbers the names, from 0 on), or say what it means: '
                f'label_map = (({value!r:.80}, "its name"),); --metric=Pearson or Spearman predicts numbers')

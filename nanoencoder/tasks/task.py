"""A task's settings, what is read of a row, and what labels mean."""
import functools
import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass

from nanoencoder.files import blame
from nanoencoder.metrics import METRICS, OF_LABELS
from nanoencoder.predictions import SCORED
from nanoencoder.settings import check, may_change, selects_data, setting
from nanoencoder.tables import Field
from nanoencoder.tasks.files import Source

SPLITS = ('train', *SCORED)
SCALARS = (str, int, float)     # what a file may hold as a text or a label; a bool is an int
LISTED = 20     # labels that an error names, at most


@dataclass(frozen=True)
class Task(Source):
    # selects_data: it decides which rows are read, and how; a run's data is compared by sha256
    kind: str = setting('', choices=[kind for kind in METRICS if kind != 'MP'])  # MP is not fine-tuned on
    train: str = selects_data('train')  # names of the splits or files
    validation: str = selects_data('validation')  # empty: hold_out of the training rows
    test: str = selects_data('test')
    hold_out: float = selects_data(0.05, 1e-9, 1 - 1e-9)  # by `datasets`, with seed 42
    # SC, ML, QA
    template: str = selects_data('{text}')  # {name} is the row's column; for QA it ends with {context}
    # SC, ML, TC
    # of SC: a correlation makes it a regression; ML has micro F1, or macro F1
    metric: str = setting('accuracy', choices=(*OF_LABELS, 'macro F1'))
    label: str = selects_data('label')  # column of SC; of ML, whose rows have a list there
    labels: tuple = selects_data((), of=str)  # in the order of their numbers; empty: train's, sorted
    label_map: tuple = selects_data(())  # ((in the file, meant), ...): applied and counted
    unlabelled: tuple = selects_data(())  # what stands for no label, as ("-", -1): left out, counted
    scheme: str = selects_data('IOB2', choices=('IOB2', 'plain'))  # of TC's tags; plain: as of POS
    # IR
    query: str = selects_data('Query: {text}')  # templates of the columns text and title
    document: str = selects_data('Document: {text}')
    pair: tuple = selects_data(('Query: {query}', 'Document: {positive}'), of=str)  # of a row that is a pair
    pairs: str = selects_data('')  # hub dataset of training pairs; empty: `train`
    qrels: str = selects_data('')  # hub dataset of judgements; empty: the source's qrels/
    score_on: tuple = may_change((), of=str)  # configs of tasks that the model is scored on as well
    judged_only: bool = selects_data(False)  # only documents judged in a split, as in the paper
    score: str = setting('mean', choices=('mean', 'maxsim'))  # cosine of texts' vectors, or of tokens'
    scale: float = setting(20.0, 1e-9)                 # of the scores in InfoNCE
    # all
    steps: int = setting(1_000, 0)                     # at most; 0: all of the epochs (paper, section 2)
    epochs: int = setting(1, 1)                        # at most; the paper's is one
    tokenizer: str = may_change('configs/corpora/docs')  # of --look; a model has its own

    def __post_init__(self):
        check(self)

        def require(name, is_good, wanted):
            if not is_good:
                raise ValueError(f'{name} must be {wanted}, not {getattr(self, name)!r:.80}')
        require('dataset', re.fullmatch(r'[\w-][\w.-]*', self.dataset), 'the name of a folder')
        require('source', self.source or self.data, 'a hub dataset, or --data=<folder> be given')
        require('columns', len(self.columns) in (0, 2),
                "a word's and its tag's, counted from 0, or from the last, -1, as (1, 3) or (0, -1)")
        for name in ('train', 'test'):
            require(name, getattr(self, name), 'the name of a split or file')
        require('score', self.score == 'mean' or self.kind == 'IR', 'left out: it is for IR alone')
        require('pair', len(self.pair) == 2, 'two templates, of a query and its document')
        templates = [(name, getattr(self, name)) for name in ('template', 'query', 'document')]
        templates += [('pair', template) for template in self.pair]
        for name, template in templates:
            with blame(f'{name} is no template', ValueError):
                columns = columns_of(template)
            require(name, columns, 'text with columns in braces, as "Is it {it}?"')
        require('labels', len({*self.labels}) == len(self.labels), 'a tuple of different names')
        for value in self.unlabelled:
            is_label = value is None or isinstance(value, SCALARS)
            require('unlabelled', is_label, 'a tuple of what stands in the file, texts, numbers or None')
        for entry in self.label_map:
            is_pair = isinstance(entry, tuple) and len(entry) == 2
            require('label_map', is_pair and isinstance(entry[1], str),
                    '((in the file, meant), ...), as ((0, "no"), ("y", "yes"))')


@functools.cache    # it is filled with every row
def pieces_of(template):
    """Parse a template: ((its own text or the name of a column, whether it is a column), ...).

    A name is whatever stands between braces, as {reviews.text}, {Q1: why} or {0}: unlike str.format, nothing
    in it has a meaning. As there, {{ and }} are braces of the text. ValueError for a brace without the
    other."""
    pieces = []
    for piece in re.split(r'(\{\{|\}\}|\{[^{}]*\})', template):
        if piece in ('{{', '}}'):
            pieces.append((piece[0], False))
        elif piece.startswith('{') and piece.endswith('}'):
            pieces.append((piece[1:-1], True))
        elif '{' in piece or '}' in piece:
            raise ValueError(f'{piece!r:.80} has a brace without its partner; {{{{ and }}}} are text')
        else:
            pieces.append((piece, False))
    return tuple(pieces)


def columns_of(template):
    """The names in a template's braces."""
    return [name for name, is_column in pieces_of(template) if is_column]


def get(row, column, where, kind=str):
    """Return what a row holds in a column. ValueError that says where, unless it is of that kind."""
    if column not in row:
        there = ', '.join(map(str, row))
        is_csv = isinstance(row, dict) and any(isinstance(value, Field) for value in row.values())
        hint = '; is the first line of the file its header?' if is_csv else ''
        raise ValueError(f'{where}: has no column {column!r}, but {there:.200}{hint}')
    if not isinstance(row[column], kind):
        raise ValueError(f'{where}: {column!r} holds {str(row[column])[:40]!r}, and not {kind.__name__}')
    return row[column]


def fill(template, row, where):
    """Put the texts of a row's columns into a template's braces."""
    return ''.join(
        text_of(row, piece, where) if is_column else piece
        for piece, is_column in pieces_of(template))


def text_of(row, column, where):
    """Return the text, or the number as text, in a column of a row. A title may be null."""
    value = get(row, column, where, object)
    if column == 'title' and value is None:
        return ''       # many documents have none
    is_nan = value != value
    if isinstance(value, bool) or not isinstance(value, SCALARS) or is_nan:
        raise ValueError(f'{where}: {column!r} holds {value!r:.40}, which is no text; write it as text, or '
                         '"" where there is none')
    return str(value)


def fingerprint(rows, parts=(*SCORED, 'corpus')):
    """sha256 over some parts of a task's rows: what is scored, or ('train',)."""
    digest = hashlib.sha256()
    for part in parts:
        content = rows.get(part, ())
        if isinstance(content, dict):
            content = sorted(content.items())
        for item in content:
            digest.update(json.dumps(item, sort_keys=True).encode())
    return digest.hexdigest()


def is_null(value):
    """Whether it is JSON's null, or the NaN that pandas has in its place."""
    return value is None or value != value


class Labels:
    """The names of a task's labels, and which of them the texts and numbers in its files mean."""
    def __init__(self, task, table, column):
        """table   of the training rows: (rows, {column: names of its labels})
        column  of the labels; '' if the task has none"""
        rows, names = table
        order = names.get(column, task.labels)
        self.meant = dict(task.label_map)
        self.mapped = Counter()     # labels that label_map changed
        # in a .csv all is text, -1 as well
        texts = [str(value) for value in task.unlabelled if value is not None]
        self.unlabelled = (*task.unlabelled, *texts)
        self.left_out = Counter()   # values of `unlabelled` that files held
        self.unknown = {}           # {label that is none of the task's: where it stands first}
        # numbers are in the file's order, the head's outputs in the task's
        self.numbered = dict(enumerate(order))
        self.names = task.labels or tuple(dict.fromkeys(self.meant.get(name, name) for name in order))
        if column and not self.names:
            names = self.names_in(rows, column, f'{task.dataset} train row')
            self.names = tuple(sorted(names, key=lambda name: (name != 'O', name)))

    def names_in(self, rows, column, where):
        """Collect the names that rows hold: their texts, and what label_map says of others."""
        names = set()
        for number, row in enumerate(rows):
            labels = get(row, column, f'{where} {number}', object)
            if not isinstance(labels, list):    # of SC
                labels = [labels]
            for label in labels:
                if isinstance(label, SCALARS) and label not in self.unlabelled:
                    name = self.meant.get(label, label)
                    if name and isinstance(name, str):
                        names.add(name)
        return names

    def is_missing(self, value):
        """Whether a file's value says that there is no label. Such values are counted."""
        if is_null(value):
            value = None
        is_missing = value in self.unlabelled
        if is_missing:
            self.left_out[value] += 1
        return is_missing

    def name(self, value, where):
        """The name of a label given as a name or as a number. `check` refuses those that have none."""
        if not isinstance(value, SCALARS) or is_null(value):
            hint = ''
            if is_null(value):
                hint = '; unlabelled = (None,) leaves out rows and words without a label'
            raise ValueError(f'{where}: label {value!r:.80} is no text and no number{hint}')
        name = value        # label_map may have a number, or the name that it stands for
        if name not in self.meant:
            if isinstance(value, Field) and value.isdecimal() and value not in self.names:
                name = int(value)
            # in a dict False and 0.0 are 0, and True and 1.0 are 1
            name = self.numbered.get(name, value)
        if name in self.meant:
            self.mapped[name] += 1
            name = self.meant[name]
        if name not in self.names:
            self.unknown.setdefault(value, where)
        return name

    def check(self, hint):
        """ValueError that names all labels that are none of the task's. The hint is one more way out."""
        if self.unknown:
            known = ', '.join(map(repr, self.names))
            refuse(self.unknown, f'is none of the labels ({known:.200}); list names in `labels` (of numbers '
                   'the names, from 0 on)', {}, hint)


def refuse(places, problem, meant, hint):
    """Raise a ValueError that lists labels and proposes the settings by which they are read.

    places   {label: where it stands first}
    problem  what is wrong with them, in words
    meant    {label: the name that it most likely stands for}, of some of them
    hint     one more setting to try where `meant` lacks a label"""
    first = next(iter(places))
    labels = [*places][:LISTED]
    label_map = tuple((label, meant.get(label, 'its name')) for label in labels)
    words = (f'{places[first]}: label {first!r:.80} {problem}; say what such labels mean, {len(places):,} in '
             f'all: label_map = {label_map!r:.2000}')
    unclear = [label for label in labels if label not in meant]
    if unclear:
        words += f'; unlabelled = ({unclear[0]!r:.80},) leaves out rows and words without a label'
        words += f'; {hint}' if hint else ''
    raise ValueError(words)

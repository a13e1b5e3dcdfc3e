"""Label new texts by a model that finetune.py --save_model has kept.

    python predict.py fine-tuned/mlm-1800-s6/SC/packages/lr2e-03_sd0 new.csv --out=labels.csv
    python predict.py FOLDER queries.jsonl --documents=corpus.jsonl --out=found.jsonl       # retrieval
    zcat new.csv.gz | python predict.py FOLDER - --out=labels.csv                           # standard input

Reads .csv, .tsv, .jsonl, .jsonl.gz or .parquet with the columns that the task's template names. Writes a .csv
or .jsonl: the same rows in the same order, each with what is predicted. If rows have the column of labels,
too, it prints scores by label and confusions. After a kill the same command goes on."""
import contextlib
import itertools
import json
import os
import shutil
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

if __name__ == '__main__':  # before torch loads OpenMP, which reads it: waiting threads sleep, not spin
    os.environ.setdefault('OMP_WAIT_POLICY', 'passive')

import torch
from tqdm import tqdm

from nanoencoder.files import locked, sha256
from nanoencoder.fine_tuned import open_fine_tuned, outputs_of
from nanoencoder.label_scores import LabelScores
from nanoencoder.search import Documents, read_documents
from nanoencoder.settings import check, may_change, parse, run_main, split_words
from nanoencoder.table_writer import FORMS, TableWriter
from nanoencoder.tables import Field, stream
from nanoencoder.tasks.task import SCALARS, Labels, columns_of, fill, get, is_null

PREDICTED = 'predicted'


@dataclass(frozen=True)
class Settings:
    out: str = may_change('')  # the file to write, .csv or .jsonl
    documents: str = may_change('')  # of retrieval: a file of all documents, which must fit into memory
    delimiter: str = may_change('')  # of a .csv, as ";"; empty: as in training
    rows_at_once: int = may_change(4_096, 1)  # are predicted, then written; a kill loses no more
    tokens_at_once: int = may_change(16_384, 1)  # a block of rows takes several passes
    device: str = may_change('auto', choices=('auto', 'cpu', 'cuda', 'mps'))
    dtype: str = may_change('auto', choices=('auto', 'fp32', 'bf16'))  # auto: bf16 where CUDA has it

    __post_init__ = check


# ---------------------------------------------------------------------------
# Rows


class Reader:
    """Makes of a file's rows what the model reads, and finds the labels that they have already."""

    def __init__(self, kind):
        self.kind = kind
        self.task = kind.task
        self.column = getattr(self.task, self.kind.labelled_by, '')     # of labels, '' if it predicts none
        self.needed = [self.task.words] if self.task.kind == 'TC' else columns_of(self.task.template)
        self.labels = Labels(self.task, ([], {}), self.column)
        # nothing that stands in a label's place is mapped, or means that there is none
        plain = replace(self.task, label_map=(), unlabelled=())
        self.stand_ins = Labels(plain, ([], {}), self.column)

    def read(self, row, where):
        """Return the row that the kind of task makes, or {'query': text} for retrieval."""
        if self.task.kind == 'IR':
            return {'query': fill(self.task.query, {'title': '', **row}, where)}
        row = self.with_words(row)
        for column in self.needed:      # before the stand-in is there, which an error would list
            get(row, column, where, object)
        return self.kind.make_row(row | self.stand_in(row), self.stand_ins, where)

    def stand_in(self, row):
        """Return what stands in the place of the label, which new rows lack and no prediction reads."""
        task = self.task
        if task.kind == 'QA':
            return {'answers': {'text': [], 'answer_start': []}, 'is_impossible': None}
        if task.kind == 'ML':
            return {task.label: []}
        if task.kind == 'TC':
            return {task.tags: [self.labels.names[0] for _ in row.get(task.words, ())]}
        return {task.label: self.labels.names[0] if self.column else 0.0}

    def gold(self, row, where):
        """Return the list of a row's own labels; None if it has none, or a kind of task without labels."""
        row = self.with_words(row)
        value = row.get(self.column)
        if self.task.kind == 'SC':
            has_label = isinstance(value, SCALARS) and value != '' and not is_null(value)
        else:
            value = list_of(value)
            has_label = value is not None
        if not has_label:
            return None
        made = self.kind.make_row(row | {self.column: value}, self.labels, where)
        if made is None:
            return None     # the task's `unlabelled` leaves it out
        gold = made[self.kind.labelled_by]
        return [gold] if self.task.kind == 'SC' else gold

    def with_words(self, row):
        """Of tagging: a plain text, in the column of words or in one called text, is split at white space."""
        if self.task.kind != 'TC':
            return row
        words = list_of(row.get(self.task.words))
        text = row.get(self.task.words, row.get('text'))
        if words is None and isinstance(text, str):
            words = text.split() or ['']   # even an empty text has a word
        return row if words is None else row | {self.task.words: words}


def list_of(value):
    """Return a list, which a .csv holds as JSON; None if it is none."""
    if isinstance(value, Field) and value.startswith('['):
        with contextlib.suppress(ValueError):
            value = json.loads(value)
    return value if isinstance(value, list) else None


def check_rows(reader, path, source):
    """Read the whole file once, so that a row that cannot be read is named now and not after hours. Returns
    (how many rows there are, the names of their columns)."""
    count = 0
    columns = {}
    for row in stream(path, source):
        count += 1
        reader.read(row, f'{path} row {count}')
        reader.gold(row, f'{path} row {count}')
        columns |= dict.fromkeys(row)
    if not count:
        raise ValueError(f'{path}: holds no row')
    return count, [*columns]


@contextlib.contextmanager
def as_file(name, out):
    """Give the path of a file. Standard input, -, is read several times, so it is copied to a file first."""
    if name != '-':
        yield Path(name)
        return
    start = sys.stdin.buffer.peek(100).lstrip(b'\xef\xbb\xbf \r\n')
    suffix = '.jsonl' if start.startswith(b'{') else '.csv'
    path = out.with_name(f'.{out.name}.input{suffix}')
    with open(path, 'wb') as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    try:
        yield path
    finally:
        path.unlink()


# ---------------------------------------------------------------------------
# Predictions


def has_probabilities(model):
    return model.kind.head == 'text' and bool(model.kind.labelled_by)


def columns_of_predictions(model):
    if model.kind.task.kind == 'IR':
        return [PREDICTED, 'scores']
    if has_probabilities(model):
        return [PREDICTED, *(f'p({label})' for label in model.labels)]
    return [PREDICTED]


def predict_labels(cfg, model, rows, bar):
    """Return the values of columns_of_predictions for each row."""
    kind = model.kind
    examples = []
    for k, row in enumerate(rows):
        made = kind.examples(row, model.labels, model.tokenizer, model.max_length, Counter())
        examples += [example._replace(row=k) for example in made]
    outputs = outputs_of(cfg, model, examples, bar, len(rows))
    answers = kind.answers(rows, examples, outputs, model.labels)
    if not has_probabilities(model):
        return [[answer] for answer in answers]
    return [[answer, *probabilities(kind, logits)] for answer, logits in zip(answers, outputs)]


def probabilities(kind, logits):
    """Probabilities of one text's labels. Of one label a text they add up to 1; of several, each is alone."""
    logits = torch.from_numpy(logits)
    values = logits.sigmoid() if kind.task.kind == 'ML' else logits.softmax(0)
    return [round(value, 6) for value in values.tolist()]


def progress_bar(title, total, done=0):
    seconds = 0.5 if sys.stderr.isatty() else 60    # between two lines of a log
    return tqdm(desc=title, total=total, initial=done, unit=' rows', unit_scale=True, mininterval=seconds)


def predicted_blocks(cfg, model, reader, rows, documents, bar):
    """Yield the rows of a stream with what is predicted of them, a block after the other."""
    names = columns_of_predictions(model)
    while True:
        block = [*itertools.islice(rows, cfg.rows_at_once)]
        if not block:
            return
        read = [reader.read(row, 'a row') for row in block]     # check_rows has read it before
        if documents:
            predictions = documents.nearest(cfg, model, [row['query'] for row in read], bar)
        else:
            predictions = predict_labels(cfg, model, read, bar)
        yield [row | dict(zip(names, values)) for row, values in zip(block, predictions)]


def write_predictions(cfg, model, path, source, writer):
    """Predict the rows of a file that are not done, and write them."""
    reader = Reader(model.kind)
    count, columns = check_rows(reader, path, source)
    added = columns_of_predictions(model)
    for name in added:
        if name in columns:
            raise ValueError(f'{path}: has a column {name!r} already: rename it')
    documents = None
    if cfg.documents:
        texts = read_documents(Path(cfg.documents), source, model.kind.task.document)
        with progress_bar('documents', len(texts)) as bar:
            documents = Documents(cfg, model, texts, bar)
    rows = itertools.islice(stream(path, source), writer.rows, None)
    with progress_bar(cfg.out, count, writer.rows) as bar:
        blocks = predicted_blocks(cfg, model, reader, rows, documents, bar)
        writer.write(blocks, columns + added)


# ---------------------------------------------------------------------------
# Scores, where rows have their labels


def scores_of(model, path, source, out):
    """Compare the labels that rows have with those that were written."""
    reader = Reader(model.kind)
    scores = LabelScores()
    if not reader.column:
        return scores
    written = stream(out, replace(source, delimiter=''))
    num_others = 0
    for number, (row, answered) in enumerate(zip(stream(path, source), written), 1):
        gold = reader.gold(row, f'{path} row {number}')
        predicted = answered[PREDICTED]
        if gold is None:
            num_others += bool(row.get(reader.column))
        elif source.kind == 'SC':
            scores.add_one(*gold, predicted)
        elif source.kind == 'ML':
            scores.add(gold, list_of(predicted))
        else:
            for tag, answer in zip(gold, list_of(predicted)):
                if tag:     # a word may have none
                    scores.add_one(tag, answer)
    if num_others:
        print(f'{path}: {num_others:,} rows are not scored: what they have in {reader.column!r} is no label, '
              'or no list of labels as ["a", "b"]', file=sys.stderr)
    return scores


def label_file(cfg, folder, path):
    """Predict all rows of a file, and write cfg.out."""
    model = open_fine_tuned(folder, cfg.device, cfg.dtype)
    task = model.kind.task
    if bool(cfg.documents) != (task.kind == 'IR'):
        raise ValueError('documents: a model of retrieval, and no other, needs --documents=corpus.jsonl')
    made_of = {'model': sha256(Path(folder, 'run.json')), 'input': sha256(path)}
    if cfg.documents:
        made_of['documents'] = sha256(cfg.documents)
    source = replace(task, delimiter=cfg.delimiter or task.delimiter)
    writer = TableWriter(Path(cfg.out), made_of)
    if writer.is_whole:
        print(f'{cfg.out}: already done')
    else:
        write_predictions(cfg, model, path, source, writer)
        print(f'{cfg.out}: {writer.rows:,} rows')
    scores = scores_of(model, path, source, writer.out)
    if scores.num_rows:
        scores.print(model.labels, unit='words' if task.kind == 'TC' else 'rows')


def main():
    words, options = split_words(sys.argv[1:])
    cfg, _ = parse(Settings, options)
    if len(words) != 2:
        print(__doc__.strip())
        sys.exit(2)
    folder, name = words
    out = Path(cfg.out)
    if out.suffix not in FORMS:
        raise ValueError(f'out {cfg.out!r:.80}: name the file to write, as --out=labels.csv, or .jsonl')
    with locked(out), as_file(name, out) as path:
        label_file(cfg, folder, path)


if __name__ == '__main__':
    run_main(main)

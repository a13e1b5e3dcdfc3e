"""Label new texts by a model that finetune.py --save_model has kept.

    python predict.py fine-tuned/mlm-1800-s6/SC/packages/lr2e-03_sd0 new.csv --out=labels.csv
    python predict.py FOLDER queries.jsonl --documents=corpus.jsonl --out=found.jsonl       # retrieval
    zcat new.csv.gz | python predict.py FOLDER - --out=labels.csv                           # standard input

Reads .csv, .tsv, .jsonl, .jsonl.gz or .parquet with the columns that the task's template names. Writes a .csv
or .jsonl: the same rows in the same order, each with what is predicted. If rows have the column of labels,
too, it prints scores by label and confusions. After a kill the same command goes on."""
import contextlib
import csv
import io
import itertools
import json
import os
import shutil
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

if __name__ == '__main__':  # before torch loads OpenMP, which reads it: waiting threads sleep, not spin
    os.environ.setdefault('OMP_WAIT_POLICY', 'passive')

import numpy as np
import torch
from tqdm import tqdm

from nanoencoder.files import locked, read_json, sha256, sync, write_json
from nanoencoder.fine_tuned import open_fine_tuned
from nanoencoder.settings import check, may_change, parse, run_main, split_words
from nanoencoder.tables import stream
from nanoencoder.tasks.files import id_of
from nanoencoder.tasks.heads import outputs
from nanoencoder.tasks.kind import Example, framed
from nanoencoder.tasks.retrieval import ranking
from nanoencoder.tasks.task import Labels, fill, is_null

PREDICTED = 'predicted'
FEW = 12    # labels of a table of confusions; of more labels the FEW most frequent confusions are listed


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

    def __init__(self, model):
        self.kind = model.kind
        self.task = model.kind.task
        self.first = next(iter(model.labels), '')
        column = getattr(self.task, self.kind.labelled_by, '')
        self.labels = Labels(self.task, ([], {}), column)

    def read(self, row, where):
        """Return the row that the kind of task makes, or {'query': text} for retrieval."""
        if self.task.kind == 'IR':
            return {'query': fill(self.task.query, row, where)}
        return self.kind.make_row(self.with_stand_in(row), self.labels, where)

    def with_stand_in(self, row):
        """Put something in the place of the label, which new rows lack and no prediction reads."""
        task = self.task
        if task.kind == 'QA':
            return row | {'answers': {'text': [], 'answer_start': []}, 'is_impossible': None}
        if task.kind == 'ML':
            return row | {task.label: []}
        if task.kind == 'TC':
            row = self.with_words(row)
            words = row.get(task.words, ())
            return row | {task.tags: [self.first for _ in words]}
        is_number = not self.kind.labelled_by
        return row | {task.label: 0.0 if is_number else self.first}

    def with_words(self, row):
        """A plain text, in the column of words or in one called text, is split at white space."""
        words = row.get(self.task.words, row.get('text'))
        if isinstance(words, str):
            words = words.split() or ['']   # even an empty text has a word
        return row if words is None else row | {self.task.words: words}

    def gold(self, row, where):
        """Return the list of a row's own labels; None if it has none, or a kind of task without labels."""
        if not self.kind.labelled_by:
            return None
        value = row.get(getattr(self.task, self.kind.labelled_by))
        wants_list = self.task.kind != 'SC'
        if is_null(value) or value == '' or isinstance(value, list) != wants_list:
            return None
        if self.task.kind == 'TC':
            row = self.with_words(row)
        made = self.kind.make_row(row, self.labels, where)
        if made is None:
            return None     # the task's `unlabelled` leaves it out
        gold = made[self.kind.labelled_by]
        return gold if wants_list else [gold]


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
    if PREDICTED in columns:
        raise ValueError(f'{path}: has a column {PREDICTED!r} already: rename it')
    return count, [*columns]


@contextlib.contextmanager
def as_file(name, out):
    """Give the path of a file. Standard input, -, is copied to a file for the time being, as it is read
    twice."""
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


def outputs_of(cfg, model, examples, bar, num_rows):
    """The encoder's output for each example. After each pass the bar moves on by its share of the rows."""
    num_tokens = sum(len(example.tokens) for example in examples)

    def move(encoder, inputs, output):
        tokens, _ = inputs
        bar.update(num_rows * len(tokens) / num_tokens)

    hook = model.encoder.register_forward_hook(move)
    try:
        per_token = model.kind.head == 'tokens'
        return outputs(cfg, model.world, model.encoder, examples, per_token)
    finally:
        hook.remove()


def predict_labels(cfg, model, rows, bar):
    """Return {name: value} of what is predicted of each row."""
    kind = model.kind
    examples = []
    for k, row in enumerate(rows):
        made = kind.examples(row, model.labels, model.tokenizer, model.max_length, Counter())
        examples += [example._replace(row=k) for example in made]
    read = defaultdict(list)
    for example, output in zip(examples, outputs_of(cfg, model, examples, bar, len(rows))):
        read[example.row].append((example, output))
    predictions = []
    for k, row in enumerate(rows):
        predicted = {PREDICTED: kind.answer(row, read[k], model.labels)}
        if kind.head == 'text' and kind.labelled_by:
            (_, logits), = read[k]
            predicted |= probabilities(model, torch.from_numpy(logits))
        predictions.append(predicted)
    return predictions


def probabilities(model, logits):
    """{p(label): its probability}. One label a text: they add up to 1. Several: each has one of its own."""
    values = logits.sigmoid() if model.kind.task.kind == 'ML' else logits.softmax(0)
    return {f'p({label})': round(value, 6) for label, value in zip(model.labels, values.tolist())}


def vectors_of(cfg, model, texts, bar):
    examples = []
    for text in texts:
        tokens = model.tokenizer.encode(text)
        examples.append(Example(framed(tokens, model.tokenizer, model.max_length)))
    return outputs_of(cfg, model, examples, bar, len(texts))


def read_documents(cfg, model, source):
    """Return (ids, vectors) of the documents. Of equally near ones the last id comes first, as in training's
    scores."""
    path = Path(cfg.documents)
    texts = {}
    for number, row in enumerate(stream(path, source), 1):
        where = f'{path} row {number}'
        name = str(id_of(row) or row.get('id', number))
        if name in texts:
            raise ValueError(f'{where}: {name!r:.80} is the id of two documents')
        texts[name] = fill(model.kind.task.document, {'title': '', **row}, where)
    ids = sorted(texts, reverse=True)
    if not ids:
        raise ValueError(f'{path}: holds no row')
    vectors = []
    with progress_bar('documents', len(ids)) as bar:
        for start in range(0, len(ids), cfg.rows_at_once):
            block = [texts[name] for name in ids[start:start + cfg.rows_at_once]]
            vectors += vectors_of(cfg, model, block, bar)
    return ids, np.stack(vectors)


def find_documents(cfg, model, rows, documents, bar):
    """Return the ten nearest documents of each row, with their cosines."""
    ids, vectors = documents
    predictions = []
    for query in vectors_of(cfg, model, [row['query'] for row in rows], bar):
        ranked = ranking({'id': '', 'grades': {}}, ids, vectors @ query)
        predictions.append({PREDICTED: ranked['docs'], 'scores': ranked['scores']})
    return predictions


# ---------------------------------------------------------------------------
# The file that is written, and how far it is


def progress_bar(title, total, done=0):
    seconds = 0.5 if sys.stderr.isatty() else 60    # between two lines of a log
    return tqdm(desc=title, total=total, initial=done, unit=' rows', unit_scale=True, mininterval=seconds)


def text_of(out, columns, rows):
    """Return rows as lines of a .jsonl or .csv. In a .csv a list is written as JSON."""
    if out.suffix == '.jsonl':
        return ''.join(json.dumps(row, ensure_ascii=False, default=str) + '\n' for row in rows)
    file = io.StringIO()
    writer = csv.DictWriter(file, columns, lineterminator='\n')
    for row in rows:
        writer.writerow({
            name: json.dumps(value, ensure_ascii=False) if isinstance(value, (list, dict)) else value
            for name, value in row.items()})
    return file.getvalue()


def columns_of(columns, model):
    """Return the header of a .csv: the input's columns and those that are predicted."""
    columns = [*columns, PREDICTED]
    if model.kind.task.kind == 'IR':
        columns.append('scores')
    elif model.kind.head == 'text' and model.kind.labelled_by:
        columns += [f'p({label})' for label in model.labels]
    return columns


class Progress:
    """How far a file is: its first rows, in so many bytes, lie in <out>.part, which is renamed when it is
    whole. <out>.progress.json says so, and of which model and input they are."""

    def __init__(self, out, about):
        """about  {'model': sha256, ...} of all that decides what is predicted"""
        self.out = out
        self.part = out.with_name(f'{out.name}.part')
        self.path = out.with_name(f'{out.name}.progress.json')
        self.about = about
        self.rows = 0
        self.bytes = 0
        self.pairs = Counter()      # how often rows with this gold got this prediction, as JSON
        if out.exists() and not self.path.exists():
            raise ValueError(f'{out}: is there already, and not of predict.py: remove it, or give another '
                             '--out')
        if not (self.path.exists() and (out.exists() or self.part.exists())):
            return
        content = read_json(self.path)
        for name, value in about.items():
            if content[name] != value:
                raise ValueError(f'{out}: was begun with another {name}; remove it and {self.path}, or give '
                                 'another --out')
        self.rows = content['rows']
        self.bytes = content['bytes']
        self.pairs.update(content['pairs'])
        written = self.out if self.is_whole else self.part
        size = written.stat().st_size
        if size < self.bytes or self.is_whole and size > self.bytes:
            raise ValueError(f'{written}: changed since it was written; remove it and {self.path}, or give '
                             'another --out')

    @property
    def is_whole(self):
        return self.out.exists()

    def add(self, file, text, num_rows):
        """Write a block of rows to the file, and then that it is there."""
        content = text.encode()
        file.write(content)
        file.flush()
        sync(self.part)
        self.rows += num_rows
        self.bytes += len(content)
        self.save()

    def save(self):
        numbers = {'rows': self.rows, 'bytes': self.bytes, 'pairs': dict(self.pairs)}
        write_json(self.path, self.about | numbers)


def count_pairs(pairs, gold, predicted, kind):
    """Count a row's own label with the predicted one; of tags, those of each word that has one."""
    if kind == 'TC':
        for tag, answer in zip(gold, predicted):
            if tag:
                pairs[json.dumps([[str(tag)], [answer]])] += 1
    else:
        answers = predicted if kind == 'ML' else [predicted]
        pairs[json.dumps([sorted(map(str, gold)), sorted(answers)])] += 1


def write_predictions(cfg, model, reader, rows, documents, progress, columns, bar):
    """Predict the rows of a stream that are not done, and write them, a block after the other."""
    done = progress.rows
    rows = itertools.islice(rows, done, None)
    with open(progress.part, 'ab') as file:
        file.truncate(progress.bytes)   # what was killed while it was written
        if not progress.bytes and progress.out.suffix == '.csv':
            progress.add(file, text_of(progress.out, columns, [dict(zip(columns, columns))]), 0)
        while True:
            block = [*itertools.islice(rows, cfg.rows_at_once)]
            if not block:
                break
            numbers = range(progress.rows + 1, progress.rows + 1 + len(block))
            read = [reader.read(row, f'row {number}') for number, row in zip(numbers, block)]
            if documents:
                predictions = find_documents(cfg, model, read, documents, bar)
            else:
                predictions = predict_labels(cfg, model, read, bar)
            for number, row, predicted in zip(numbers, block, predictions):
                gold = reader.gold(row, f'row {number}')
                if gold is not None:
                    count_pairs(progress.pairs, gold, predicted[PREDICTED], reader.task.kind)
            written = [row | predicted for row, predicted in zip(block, predictions)]
            progress.add(file, text_of(progress.out, columns, written), len(block))
    progress.part.rename(progress.out)


# ---------------------------------------------------------------------------
# Scores, where rows have their labels


def print_scores(labels, pairs, kind):
    """Print precision, recall and F1 of each label, and which labels were taken for which.

    pairs  {JSON of [labels that are right, labels that were predicted]: of how many rows or words}"""
    import pandas
    from sklearn.metrics import precision_recall_fscore_support
    from sklearn.preprocessing import MultiLabelBinarizer
    golds = []
    answers = []
    for pair in pairs:
        gold, answer = json.loads(pair)
        golds.append(gold)
        answers.append(answer)
    counts = [*pairs.values()]
    unknown = {label for gold in golds for label in gold} - {*labels}
    names = [*labels, *sorted(unknown)]
    binarizer = MultiLabelBinarizer(classes=names)
    scores = precision_recall_fscore_support(
        binarizer.fit_transform(golds), binarizer.transform(answers), sample_weight=counts, zero_division=0)
    table = pandas.DataFrame(dict(zip(('precision', 'recall', 'F1', 'count'), scores)), index=names)
    table['count'] = table['count'].astype(int)
    unit = 'words' if kind == 'TC' else 'rows'
    right = sum(count for gold, answer, count in zip(golds, answers, counts) if gold == answer)
    print(f'{right:,} of {sum(counts):,} {unit} that have labels are right, {right / sum(counts):.1%}')
    print(table.to_string(float_format=lambda value: f'{100 * value:.1f}'))
    if kind == 'ML':
        return
    confusions = pandas.DataFrame({
        'label': [gold for gold, in golds],
        PREDICTED: [answer for answer, in answers],
        'count': counts})
    if len(names) <= FEW:
        print(confusions.pivot_table('count', 'label', PREDICTED, 'sum', fill_value=0).to_string())
    else:
        wrong = confusions[confusions['label'] != confusions[PREDICTED]]
        print(wrong.sort_values('count', ascending=False).head(FEW).to_string(index=False))


def label_file(cfg, folder, path):
    """Predict all rows of a file, and write cfg.out."""
    out = Path(cfg.out)
    model = open_fine_tuned(folder, cfg.device, cfg.dtype)
    task = model.kind.task
    if bool(cfg.documents) != (task.kind == 'IR'):
        raise ValueError('documents: a model of retrieval, and no other, needs --documents=corpus.jsonl')
    about = {'model': sha256(Path(folder, 'run.json')), 'input': sha256(path)}
    if cfg.documents:
        about['documents'] = sha256(cfg.documents)
    progress = Progress(out, about)
    words = 'already done'
    if not progress.is_whole:
        source = replace(task, delimiter=cfg.delimiter or task.delimiter)
        reader = Reader(model)
        count, columns = check_rows(reader, path, source)
        documents = read_documents(cfg, model, source) if cfg.documents else None
        with progress_bar(str(out), count, progress.rows) as bar:
            write_predictions(cfg, model, reader, stream(path, source), documents, progress,
                              columns_of(columns, model), bar)
        words = f'{count:,} rows'
    print(f'{out}: {words}')
    if progress.pairs:
        print_scores(model.labels, progress.pairs, task.kind)


def main():
    words, options = split_words(sys.argv[1:])
    cfg, _ = parse(Settings, options)
    if len(words) != 2:
        print(__doc__.strip())
        sys.exit(2)
    folder, name = words
    out = Path(cfg.out)
    if out.suffix not in ('.csv', '.jsonl'):
        raise ValueError(f'out {cfg.out!r:.80}: name the file to write, as --out=labels.csv, or .jsonl')
    with locked(out), as_file(name, out) as path:
        label_file(cfg, folder, path)


if __name__ == '__main__':
    run_main(main)

"""What every kind of task defines, and what most of them share."""
import sys
from collections import defaultdict
from typing import NamedTuple

import numpy as np

from nanoencoder.tasks.files import read_table
from nanoencoder.tasks.task import SCORED, SPLITS, Labels

NO_LABEL = -100   # the target of a token that has none


class Example(NamedTuple):
    """A text as the model reads it. Arrays are as long as `tokens`."""
    tokens: np.ndarray           # (n,) int64, special ones around the text's: ours end with eos
    targets: np.ndarray = None   # SC (1,): the label; TC, QA (n,): a label at each token, or NO_LABEL
    row: int = 0                 # index of the row it was made of
    words: np.ndarray = None     # TC: the word of each token, or -1. QA: (n, 2) characters [first, last + 1)


class Kind:
    """A kind of task, made of a Task's settings. Besides what it changes of this class, it defines

    make_row(row, labels, where)   what it needs of a file's row; ValueError that says where
    examples(rows, labels, tokenizer, max_length)   ([Example], Counter of what truncation lost)
    answer(row, read, labels)      what is predicted of a row, from [(Example, the head's output)] of it"""
    head = 'tokens'      # of finetune.HEADS: outputs for each token, for a text, or its vector
    loss = 'labels'      # of finetune.LOSSES
    labelled_by = ''     # the setting that names the column of labels, if there are any
    has_probe = True     # whether frozen features can answer
    zero_shot = False    # whether the pretrained model itself answers: nothing is trained
    splits = SPLITS      # that it reads

    def __init__(self, task):
        self.task = task

    def load(self, training=True):
        """({split: rows}, labels): checked rows, each with an id. training=False: only to be scored."""
        task = self.task
        tables = {split: read_table(task, (task.source,), name, task.subset)
                  for split in self.splits if (name := getattr(task, split))}
        labels = Labels(task, tables, getattr(task, self.labelled_by, ''))
        rows = dict.fromkeys(SPLITS, ()) | {
            split: [(row, self.make_row(row, labels, f'{task.dataset} {split} row {number}'))
                    for number, row in enumerate(table)] for split, (table, _) in tables.items()}
        if 'train' in tables and not task.validation:
            import datasets     # which takes seconds
            numbers = datasets.Dataset.from_dict({'row': range(len(rows['train']))})
            parts = numbers.train_test_split(train_size=1 - task.hold_out, seed=42)
            # [:] reads the column at once: row by row took half of the time until the first step
            rows['train'], rows['validation'] = (
                [rows['train'][i] for i in parts[name]['row'][:]] for name in ('train', 'test'))
        for split, seen in zip(SPLITS, (set(), set(), set())):      # no two rows have one id
            for number, (row, columns) in enumerate(rows[split]):
                name = str(row.get('id', row.get('idx', number)))
                columns['id'] = f'{name}#{number}' if name in seen else name
                seen.add(name)
        for old, count in labels.mapped.items():
            print(f'{task.dataset}: {count:,} labels {old!r} read as {labels.meant[old]!r}', file=sys.stderr)
        return {split: [columns for _, columns in rows[split]] for split in SPLITS}, labels.names

    def encode(self, rows, labels, tokenizer, max_length, reads=range):
        """{split: ([Example], Counter of what truncation lost)}. reads(n) returns the sorted indices, of n
        training rows, that will be read; the others are not tokenised, and None is in their places. A kind
        whose rows make several examples has an `encode` of its own."""
        train = rows['train']
        chosen = reads(len(train))
        made, lost = self.examples([train[k] for k in chosen], labels, tokenizer, max_length)
        examples = [None] * len(train)
        for k, example in zip(chosen, made, strict=True):
            examples[k] = example._replace(row=k)
        scored = {split: self.examples(rows[split], labels, tokenizer, max_length) for split in SCORED}
        return {'train': (examples, lost)} | scored

    def predict(self, data, outputs):
        """{split: rows} for evaluate.py, of {part: [the head's output for each example]}."""
        predictions = {}
        for split in SCORED:
            read = defaultdict(list)
            for example, output in zip(data.examples[split], outputs[split]):
                read[example.row].append((example, output))
            predictions[split] = [self.prediction(row, self.answer(row, read[k], data.labels))
                                  for k, row in enumerate(data.rows[split])]
        return predictions

    def prediction(self, row, pred):
        return {'id': row['id'], 'gold': row[self.labelled_by or 'label'], 'pred': pred}


class Data(NamedTuple):
    """A task's rows, and what one model reads of them."""
    kind: Kind       # with its task
    rows: dict       # {split: rows}; IR also has 'corpus': {document: text}
    labels: tuple    # in the order of the head's outputs; () for IR
    examples: dict   # {split: [Example]}; IR has pairs to train on, and 'texts': all queries and documents
    scored_sha256: str
    training_sha256: str


def room(tokenizer, max_length):
    """How many of a text's tokens the model reads, beside the special ones around them."""
    return max_length - len(tokenizer.prefix) - len(tokenizer.suffix)


def framed(values, tokenizer, max_length, fill=None, before=0):
    """A text's tokens, cut, within special ones; other values have `fill` there and at `before` tokens."""
    values = np.asarray(values, np.int64)[:room(tokenizer, max_length)]
    if fill is None:
        return np.array([*tokenizer.prefix, *values, *tokenizer.suffix], np.int64)
    widths = [(len(tokenizer.prefix) + before, len(tokenizer.suffix))] + [(0, 0)] * (values.ndim - 1)
    return np.pad(values, widths, constant_values=fill)


def pack(lengths, budget):
    """Lists of indices, in order, whose lengths sum to at most the budget, or one that is longer alone."""
    packs, total = [], 0
    for k, length in enumerate(lengths):
        if not packs or total + length > budget:
            packs.append([])
            total = 0
        packs[-1].append(k)
        total += length
    return packs

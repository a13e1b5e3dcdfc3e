"""What every kind of task defines, and what most of them share."""
import sys
from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from nanoencoder.tasks.files import read_table
from nanoencoder.tasks.task import SCORED, SPLITS, Labels

NO_LABEL = -100   # the target of a token that has none


class Example(NamedTuple):
    """A text as the model reads it. Arrays are as long as `tokens`."""
    tokens: np.ndarray                  # (n,) int64, special ones around the text's: ours end with eos
    targets: np.ndarray | None = None   # SC (1,): the label; TC, QA (n,): one at each token, or NO_LABEL
    row: int = 0                        # index of the row it was made of
    words: np.ndarray | None = None     # TC, MP (n,): the number of each token's word, or -1
    characters: np.ndarray | None = None  # QA (n, 2): first and last + 1 of each token in the context, or -1


def all_rows(count):
    """Return the indices of `count` rows: each of them is read."""
    return range(count)


class Kind:
    """A kind of task, made of a Task's settings. Besides what it changes of this class, it defines

    make_row(row: dict, labels: Labels, where: str) -> dict | None
        what it needs of a file's row, None if that has no label; ValueError that says where
    examples(row: dict, labels: tuple, tokenizer: Tokenizer, max_length: int, lost: Counter) -> list[Example]
        those of a row; counts in `lost` what truncation loses
    answer(row: dict, read: list[tuple[Example, np.ndarray]], labels: tuple) -> object
        what is predicted of a row, from its examples and the head's output for each"""
    head = 'tokens'      # see heads.new_head: outputs for each token, for a text, or its vector
    labelled_by = ''     # key of a row's label, and the setting that names its column in files
    inputs = ('text',)   # keys of what the model reads of a row
    templates = ('template',)   # the settings that make texts of columns
    output_names = ()    # of the head's outputs, where no label names them
    problem_type = None  # transformers' name for outputs of a text; None: they choose one of several labels
    hint = ''            # what else to try where labels are none of the task's
    has_probe = True     # whether frozen features can answer
    reads_all_rows = False      # whether the training rows that no step reads must be tokenised, too
    in_one_piece = False        # whether the loss compares a batch's examples with each other

    def __init__(self, task):
        self.task = task

    def load(self, training: bool = True) -> tuple[dict, tuple]:
        """({split: rows}, labels): checked rows, each with an id. Retrieval alone can leave out train, by
        training=False."""
        task = self.task
        tables = {}
        for split in SPLITS:
            name = getattr(task, split)
            if name:
                tables[split] = read_table(task, (task.source,), name, task.subset)
        labels = Labels(task, tables['train'], getattr(task, self.labelled_by, ''))
        rows = {}
        for split, (table, _) in tables.items():
            rows[split] = []
            for number, row in enumerate(table):
                made = self.make_row(row, labels, f'{task.dataset} {split} row {number}')
                if made:
                    made['id'] = row.get('id', row.get('idx'))
                    rows[split].append(made)
            for value, count in labels.left_out.items():
                print(f'{task.dataset} {split}: {count:,} times {value!r:.80} for a label, which is none '
                      '(`unlabelled`): left out of training and score', file=sys.stderr)
            labels.left_out.clear()
            if table and not rows[split]:
                raise ValueError(f'{task.dataset} {split}: no row has a label; `unlabelled` leaves out all')
        self.check(labels)
        if not task.validation:
            rows['train'], rows['validation'] = split_rows(rows['train'], task.hold_out)

        for split in SPLITS:    # each row of a split gets an id of its own
            seen = set()
            for number, row in enumerate(rows[split]):
                name = str(number if row['id'] is None else row['id'])
                row['id'] = f'{name}#{number}' if name in seen else name
                seen.add(row['id'])
        for old, count in labels.mapped.items():
            print(f'{task.dataset}: {count:,} labels {old!r} read as {labels.meant[old]!r}', file=sys.stderr)
        return rows, self.output_names or labels.names

    def texts(self, batch: list[Example]) -> list[np.ndarray]:
        """The token arrays of a batch's examples, in the order of the outputs that `loss` gets."""
        return [example.tokens for example in batch]

    def loss(self, outputs: torch.Tensor, batch: list[Example]) -> torch.Tensor:
        """The sum of the losses of a batch's examples, from the head's outputs: here cross-entropy."""
        targets = targets_of(batch)
        targets = targets.to(outputs.device)
        return F.cross_entropy(outputs, targets, ignore_index=NO_LABEL, reduction='sum')

    def num_losses(self, batch: list) -> int:
        """How many losses the mean of a batch is of: one a text, or one a token that has a label."""
        if self.head != 'tokens':
            return len(batch)
        return max(1, int((targets_of(batch) != NO_LABEL).sum()))

    def check(self, labels: Labels):
        """ValueError that names the labels which no row may have."""
        labels.check(self.hint)

    def encode(self, rows: dict, labels: tuple, tokenizer, max_length: int, choose_rows=all_rows) -> dict:
        """{split: ([Example], Counter of what truncation lost)}.

        choose_rows(n) returns the indices, of n training rows, that will be read. The others are not
        tokenised; None stands in their places, so that an order of the rows is one of the examples."""
        encoded = {}
        for split in SPLITS:
            count = len(rows[split])
            chosen = choose_rows(count) if split == 'train' else all_rows(count)
            examples = []
            lost = Counter()
            for k, row in enumerate(rows[split]):
                if k in chosen:
                    made = self.examples(row, labels, tokenizer, max_length, lost)
                    examples += [example._replace(row=k) for example in made]
                else:
                    examples.append(None)
            encoded[split] = examples, lost
        return encoded

    def predict(self, data: 'Data', outputs: dict) -> dict:
        """{split: rows} for evaluate.py, of {part: [the head's output for each example]}."""
        predictions = {}
        for split in SCORED:
            rows = data.rows[split]
            answers = self.answers(rows, data.examples[split], outputs[split], data.labels)
            predictions[split] = [self.prediction(row, pred) for row, pred in zip(rows, answers)]
        return predictions

    def answers(self, rows, examples, outputs, labels):
        """What is predicted of each row, from the head's output for each example."""
        read = defaultdict(list)
        for example, output in zip(examples, outputs):
            read[example.row].append((example, output))
        return [self.answer(row, read[k], labels) for k, row in enumerate(rows)]

    def prediction(self, row: dict, pred) -> dict:
        return {
            'id': row['id'],
            'gold': row[self.labelled_by or 'label'],
            'pred': pred}


class Data(NamedTuple):
    """A task's rows, and what one model reads of them."""
    kind: Kind       # with its task
    rows: dict       # {split: rows}; IR also has 'corpus': {document: text}
    labels: tuple    # in the order of the head's outputs; () for IR
    examples: dict   # {split: [Example]}; IR has pairs to train on, and 'texts': all queries and documents
    scored_sha256: str
    training_sha256: str


def targets_of(batch):
    targets = [example.targets for example in batch]
    return torch.from_numpy(np.concatenate(targets))


def split_rows(rows, share):
    """(rows to train on, rows held out), drawn as the authors draw them, by `datasets` with seed 42."""
    import datasets  # which takes seconds
    numbers = datasets.Dataset.from_dict({'row': range(len(rows))})
    parts = numbers.train_test_split(train_size=1 - share, seed=42)

    # [:] reads the column at once: row by row took half of the time until the first step
    drawn = [parts[name]['row'][:] for name in ('train', 'test')]
    return [[rows[k] for k in part] for part in drawn]


def room(tokenizer, max_length):
    """How many of a text's tokens the model reads, beside the special ones around them."""
    return max_length - len(tokenizer.prefix) - len(tokenizer.suffix)


def framed(values, tokenizer, max_length, fill=None):
    """A text's tokens, cut to max_length, between special ones. Other values of the tokens are cut alike and
    get `fill` at special tokens."""
    values = np.asarray(values, np.int64)
    values = values[:room(tokenizer, max_length)]
    before = np.asarray(tokenizer.prefix, np.int64)
    after = np.asarray(tokenizer.suffix, np.int64)
    if fill is not None:
        others = values.shape[1:]   # the second axis, if there is one, stays as it is
        before = np.full((len(before), *others), fill)
        after = np.full((len(after), *others), fill)
    return np.concatenate([before, values, after])


def pack(lengths, budget):
    """Lists of indices, in order, whose lengths sum to at most the budget, or one that is longer alone."""
    packs = []
    total = 0
    for k, length in enumerate(lengths):
        if not packs or total + length > budget:
            packs.append([])
            total = 0
        packs[-1].append(k)
        total += length
    return packs

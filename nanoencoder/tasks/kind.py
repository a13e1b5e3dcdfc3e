"""What every kind of task defines, and what most of them share; a kind's own module has the rest."""
import sys
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from nanoencoder.tasks.task import SPLITS, Labels, Task, read_table, train_test_split

NO_LABEL = -100   # the target of a token that has none


class Example(NamedTuple):
    """A text as the model reads it. Arrays are as long as `tokens`."""
    tokens: np.ndarray           # (n,) int64, special ones around the text's: ours end with eos
    targets: np.ndarray = None   # SC (1,): the label; TC, QA (n,): a label at each token, or NO_LABEL
    row: int = 0                 # index of the row it was made of
    words: np.ndarray = None     # TC: the word of each token, or -1. QA: (n, 2) characters [first, last + 1)


class Data(NamedTuple):
    """A task's rows, and what one model reads of them."""
    task: Task
    rows: dict       # {split: rows}; IR also has 'corpus': {document: text}
    labels: tuple    # in the order of the head's outputs; () where the rows have none
    examples: dict   # {split: [Example]}; IR has pairs to train on, and 'texts': all queries and documents
    lost: dict       # {split: Counter of what truncation lost}
    scored_sha256: str
    training_sha256: str


class Export(NamedTuple):
    """How a fine-tuned model is saved for transformers."""
    architecture: str     # what follows EuroBert or Qwen3 in the name of its class
    pipeline: str         # the hub's name of what it does
    use: str              # code that opens it
    texts: str            # what it reads, in words
    labels: tuple = ()    # of its outputs
    prompts: tuple = ()   # of sentence-transformers, which opens it: ((name, text), ...)


class Kind:
    """A kind of task, made of a Task's settings. What it defines besides what it changes of this class:

    make_row(row, labels, where)   what it needs of a file's row; ValueError that says where
    examples(rows, labels, tokenizer, max_length)   ([Example], Counter of what truncation lost)
    head(hidden_size, labels)      (states, lengths) -> outputs: a module, or a function without weights
    predict(data, outputs)         {split: rows} for evaluate.py, of {part: [the head's output of each]}
    baselines(rows)                {name: function, row -> what is predicted} of methods without a model
    export(labels, sizes)          the Export of a model; ValueError if transformers cannot hold it
    """
    per_token = False    # the head's output: one a token, or one a text
    whole_batch = False  # the loss needs a batch in one piece
    labelled_by = ''     # the setting that names the column of labels, if there are any
    frozen = None        # a head without weights for --probe; None: no probe

    def __init__(self, task):
        self.task = task

    def load(self, training=True):
        """({split: rows}, labels): checked rows, each with an id. training=False: only to be scored."""
        task = self.task
        names = zip(SPLITS, (task.train, task.validation, task.test))
        tables = {split: read_table(task, (task.source,), name, task.subset) for split, name in names if name}
        if not task.validation:
            rows, names = tables['train']
            parts = train_test_split(len(rows), task.hold_out)
            tables['train'], tables['validation'] = (([rows[i] for i in part], names) for part in parts)
        labels = Labels(task, tables, getattr(task, self.labelled_by, ''))
        rows = {split: self.checked(tables[split][0], labels, f'{task.dataset} {split}') for split in SPLITS}
        for name, count in labels.mapped.items():
            meant = labels.meant[name]
            print(f'{task.dataset}: {count:,} labels {name!r} read as {meant!r}', file=sys.stderr)
        return rows, labels.names

    def checked(self, table, labels, where):
        """The rows of a table, each with an id of its own."""
        rows, seen = [], set()
        for number, row in enumerate(table):
            try:
                columns = self.make_row(row, labels, f'{where} row {number}')
            except (TypeError, KeyError, AttributeError, IndexError) as error:
                raise ValueError(f'{where} row {number}: not a row of {self.task.kind}: {error!r}') from None
            name = str(row.get('id', row.get('idx', number)))
            rows.append(columns | {'id': f'{name}#{number}' if name in seen else name})
            seen.add(name)
        return rows

    def encode(self, rows, labels, tokenizer, max_length):
        """{split: ([Example], Counter of what truncation lost)}"""
        return {split: self.examples(rows[split], labels, tokenizer, max_length) for split in SPLITS}

    def arrays(self, batch):
        """The token arrays that the encoder reads for a training batch."""
        return [example.tokens for example in batch]

    def prediction(self, row, pred):
        """A row for evaluate.py; what retrieval predicts, a ranking, is one."""
        return {'id': row['id'], 'gold': row[self.labelled_by], 'pred': pred} if self.labelled_by else pred

    def num_targets(self, example):
        """How many cross-entropies an example adds."""
        return int((example.targets != NO_LABEL).sum())

    def loss(self, output, batch):
        """The sum of a batch's cross-entropies."""
        targets = torch.from_numpy(np.concatenate([example.targets for example in batch])).to(output.device)
        return F.cross_entropy(output, targets, ignore_index=NO_LABEL, reduction='sum')

    def log(self, batch):
        """What the log says of a batch."""
        return {}


# ---------------------------------------------------------------------------------------------- tokens, heads

def room(tokenizer, max_length):
    """How many of a text's tokens the model reads, beside the special ones around them."""
    return max_length - len(tokenizer.prefix) - len(tokenizer.suffix)


def framed(values, tokenizer, max_length, fill=None):
    """A text's tokens (n,), cut to the room there is, the special ones around them: int64, ours end with eos.

    fill  stands in the special tokens' places where the values (n, ...) are not tokens but belong to some
    """
    prefix, suffix = tokenizer.prefix, tokenizer.suffix
    values = np.asarray(values, np.int64)[:room(tokenizer, max_length)]
    if fill is None:
        return np.array([*prefix, *values, *suffix], np.int64)
    widths = [(len(prefix), len(suffix))] + [(0, 0)] * (values.ndim - 1)
    return np.pad(values, widths, constant_values=fill)


class TokenClassifier(nn.Module):
    """(N, d) -> (N, labels): Hugging Face's ForTokenClassification."""

    def __init__(self, hidden_size, num_labels):
        super().__init__()
        self.classifier = nn.Linear(hidden_size, num_labels)

    def forward(self, x, lengths):
        return self.classifier(x)


def mean_pool(x, lengths):
    """(segments, d): the mean of each segment's tokens, added in fp32."""
    lengths = torch.tensor(lengths, device=x.device)
    segment = torch.arange(len(lengths), device=x.device).repeat_interleave(lengths, output_size=len(x))
    total = torch.zeros(len(lengths), x.shape[1], device=x.device).index_add(0, segment, x.float())
    return (total / lengths[:, None]).type_as(x)


def unit_vectors(x, lengths):
    """(segments, d): mean-pooled, of length 1."""
    return F.normalize(mean_pool(x, lengths).float(), dim=1)

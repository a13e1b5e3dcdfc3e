"""Tasks: from a task's files to examples of tokens, and from a model's outputs to predictions.

Another kind is one more file, an entry in KINDS, and one in METRICS of metrics.py."""
import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from nanoencoder.settings import parse
from nanoencoder.tasks.classification import Classification
from nanoencoder.tasks.kind import Data, all_rows
from nanoencoder.tasks.multilabel import MultiLabel
from nanoencoder.tasks.questions import Questions
from nanoencoder.tasks.retrieval import Pair, Retrieval
from nanoencoder.tasks.tagging import Tagging
from nanoencoder.tasks.task import SCORED, SPLITS, Task, fingerprint

KINDS = {'SC': Classification, 'TC': Tagging, 'QA': Questions, 'IR': Retrieval, 'ML': MultiLabel}


def kind_of(task):
    return KINDS[task.kind](task)


def load_data(task, tokenizer, max_length, training=True, choose_rows=all_rows):
    """The Data of a task. Says what truncation loses. For `choose_rows` see Kind.encode."""
    kind = kind_of(task)
    rows, labels = kind.load(training)
    examples = {}
    for part, (encoded, lost) in kind.encode(rows, labels, tokenizer, max_length, choose_rows).items():
        examples[part] = encoded
        words = ', '.join(f'{count:,} {what}' for what, count in lost.items() if count)
        if words:
            read = len(encoded) - encoded.count(None)
            how = f'cut at {max_length} tokens'
            if lost['words without a token']:
                how += ' or deleted by the tokenizer'
            print(f'{task.dataset} {part}: {how}: {words}; {read:,} examples are read', file=sys.stderr)
    unknown = share_of_unknown(examples, tokenizer)
    if unknown > 0.01:
        print(f'{task.dataset}: {unknown:.1%} of the tokens are unknown to the tokenizer: is it of another '
              'language or script?', file=sys.stderr)
    return Data(kind, rows, labels, examples, fingerprint(rows), fingerprint(rows, ('train',)))


def share_of_unknown(examples, tokenizer):
    """Return the share of unknown tokens in all texts, special ones around them not counted. Byte-level
    vocabularies have none."""
    if tokenizer.unknown is None:
        return 0.0
    texts = []
    for part in examples.values():
        for example in filter(None, part):      # None stands for a row that is not read
            texts.append(example.tokens)
            if isinstance(example, Pair):
                texts.append(example.positive)
    around = len(tokenizer.prefix) + len(tokenizer.suffix)
    count = sum(len(tokens) - around for tokens in texts)
    unknown = sum(np.count_nonzero(tokens == tokenizer.unknown) for tokens in texts)
    return unknown / max(1, count)


def load_sets(task, tokenizer, max_length, choose_rows=all_rows):
    """[Data] of a task and of the sets in `score_on`."""
    others = []
    for path in task.score_on:
        other, _ = parse(Task, [path])
        if KINDS[other.kind].head != 'vector':
            raise ValueError(f'score_on {path}: is for tasks of retrieval')
        if task.data and not other.data:
            folder = Path(task.data, other.source.split('/')[-1])
            if not folder.is_dir():     # else this task's own files would be read
                raise ValueError(f'score_on {path}: {folder} is not there; --score_on=() leaves it out')
            other = replace(other, data=task.data)
        others.append(replace(other, score=task.score))
    own = load_data(task, tokenizer, max_length, choose_rows=choose_rows)
    sets = [own, *(load_data(other, tokenizer, max_length, training=False) for other in others)]
    for data in sets:
        print_repeated(data, own.rows['train'])
    return sets


def print_repeated(data, train):
    """Print how many scored rows have a text that a training row has, too."""
    def digest(row):
        return hash(str([row[column] for column in data.kind.inputs]))

    known = {digest(row) for row in train}
    counts = []
    for split in SCORED:
        rows = data.rows[split]
        count = sum(digest(row) in known for row in rows)
        if count:
            counts.append(f'{count:,} of {len(rows):,} in {split}')
    if counts:
        print(f'{data.kind.task.dataset}: texts that are in train, too: {", ".join(counts)}', file=sys.stderr)


def look(task, tokenizer, name, max_length):
    """Print what a task holds: rows, lengths in tokens of the tokenizer of this name, labels, two rows."""
    data = load_data(task, tokenizer, max_length)
    print_repeated(data, data.rows['train'])
    print(f'{task.dataset} ({task.kind}), data {data.scored_sha256[:12]}; '
          f'lengths in tokens of {name}, at most {max_length}; '
          f'{share_of_unknown(data.examples, tokenizer):.1%} of the tokens are unknown')
    for part, rows in (data.examples | data.rows).items():
        line = f'  {part:<11} {len(rows):>8,}'
        lengths = [len(example.tokens) for example in data.examples.get(part, ())]
        if lengths:
            line += f', median length {np.median(lengths):.0f}, longest {max(lengths):,}'
        print(line)
    column = data.kind.labelled_by
    if column:
        counts = Counter(dict.fromkeys(data.labels, 0))     # of all labels, also those that train lacks
        for row in data.rows['train']:
            labels = row[column]
            if isinstance(labels, str):
                labels = [labels]
            counts.update(label for label in labels if label)
        for label, count in counts.most_common():
            print(f'  label {label!r:<18} {count:>10,} in train')
    for row in (data.rows['train'] or data.rows['test'])[:2]:
        print('  ' + json.dumps(row, ensure_ascii=False)[:600])

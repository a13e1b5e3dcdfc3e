"""SC, sequence classification: a text, or several columns in a template, has one label, or a number."""
import contextlib
import math
import string
from collections import Counter

import numpy as np

from nanoencoder.judging.metrics import CORRELATIONS
from nanoencoder.tasks.kind import Example, Kind, framed, room
from nanoencoder.tasks.task import fill, get


class Classification(Kind):
    """Rows of id, text, label, fields (the template's columns)."""
    head = 'text'
    labelled_by = 'label'

    def __init__(self, task):
        super().__init__(task)
        if task.metric in CORRELATIONS:
            self.labelled_by, self.loss, self.has_probe = '', 'squares', False

    def load(self, training=True):
        rows, labels = super().load(training)
        return rows, labels if self.labelled_by else ('score',)

    def make_row(self, row, labels, where):
        text = fill(self.task.template, row, where)
        label = get(row, self.task.label, where, object)
        label = labels.name(label, where) if self.labelled_by else number(label, where)
        columns = [name for _, name, _, _ in string.Formatter().parse(self.task.template) if name]
        return {'text': text, 'label': label,
                'fields': [fill(f'{{{name}}}', row, where) for name in columns]}

    def examples(self, rows, labels, tokenizer, max_length):
        texts = [tokenizer.encode(row['text']) for row in rows]
        lost = Counter(texts=sum(len(tokens) > room(tokenizer, max_length) for tokens in texts))
        targets = [labels.index(row['label']) if self.labelled_by else row['label'] for row in rows]
        return [Example(framed(tokens, tokenizer, max_length), np.array([target]), k)
                for k, (target, tokens) in enumerate(zip(targets, texts))], +lost

    def answer(self, row, read, labels):
        (_, logits), = read
        return labels[int(logits.argmax())] if self.labelled_by else round(float(logits[0]), 6)


def number(value, where):
    with contextlib.suppress(TypeError, ValueError):
        if math.isfinite(value := float(value)):
            return value
    raise ValueError(f'{where}: label {value!r:.80} is no number, as a regression needs; see --metric')

"""SC, sequence classification: a text, or several columns in a template, has one label, or a number."""
import math
from collections import Counter

import numpy as np

from nanoencoder.metrics import CORRELATIONS
from nanoencoder.tasks.kind import Example, Kind, framed, room
from nanoencoder.tasks.task import columns_of, fill, get


class Classification(Kind):
    """Rows of id, text, label, fields (the template's columns)."""
    head = 'text'
    labelled_by = 'label'

    def __init__(self, task):
        super().__init__(task)
        if task.metric in CORRELATIONS:     # a regression
            self.labelled_by = ''
            self.loss = 'squares'
            self.has_probe = False

    def load(self, training=True):
        rows, labels = super().load(training)
        return rows, labels if self.labelled_by else ('score',)

    def make_row(self, row, labels, where):
        text = fill(self.task.template, row, where)
        label = get(row, self.task.label, where, object)
        if self.labelled_by:
            label = labels.name(label, where)
        else:
            label = number(label, where)
        fields = [fill(f'{{{name}}}', row, where) for name in columns_of(self.task.template)]
        return {'text': text, 'label': label, 'fields': fields}

    def examples(self, rows, labels, tokenizer, max_length):
        examples = []
        lost = Counter()
        for k, row in enumerate(rows):
            tokens = tokenizer.encode(row['text'])
            lost['texts'] += len(tokens) > room(tokenizer, max_length)
            target = labels.index(row['label']) if self.labelled_by else row['label']
            examples.append(Example(framed(tokens, tokenizer, max_length), np.array([target]), k))
        return examples, +lost

    def answer(self, row, read, labels):
        (_, logits), = read
        if self.labelled_by:
            return labels[int(logits.argmax())]
        return round(float(logits[0]), 6)


def number(value, where):
    try:
        score = float(value)
    except (TypeError, ValueError):
        score = math.nan
    if not math.isfinite(score):
        raise ValueError(f'{where}: label {value!r:.80} is no number, as a regression needs; see --metric')
    return score

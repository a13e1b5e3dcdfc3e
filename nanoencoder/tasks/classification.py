"""SC, sequence classification: a text, or several columns in a template, has one label, or a number."""
import math

import numpy as np

from nanoencoder.metrics import CORRELATIONS
from nanoencoder.tasks.kind import Example, Kind, framed, room
from nanoencoder.tasks.task import columns_of, fill, get, text_of


class Classification(Kind):
    """Rows of id, text, label, fields (the template's columns)."""
    head = 'text'
    labelled_by = 'label'

    def __init__(self, task):
        super().__init__(task)
        if task.metric in CORRELATIONS:     # a regression
            self.labelled_by = ''
            self.output_names = ('score',)
            self.loss = 'squares'
            self.has_probe = False

    def make_row(self, row, labels, where):
        template = self.task.template
        text = fill(template, row, where)
        label = get(row, self.task.label, where, object)
        if labels.is_missing(label):
            return None
        if self.labelled_by:
            label = labels.name(label, where)
        else:
            label = number(label, where)
        fields = [text_of(row, column, where) for column in columns_of(template)]
        return {'text': text, 'label': label, 'fields': fields}

    def examples(self, row, labels, tokenizer, max_length, lost):
        tokens = tokenizer.encode(row['text'])
        if len(tokens) > room(tokenizer, max_length):
            lost['texts'] += 1
        target = row['label']
        if self.labelled_by:
            target = labels.index(target)
        return [Example(framed(tokens, tokenizer, max_length), np.array([target]))]

    def answer(self, row, read, labels):
        (_, logits), = read
        if self.labelled_by:
            return labels[int(logits.argmax())]
        return round(float(logits[0]), 6)


def number(value, where):
    """Return the label of a regression as a float."""
    try:
        score = float(value)
    except (TypeError, ValueError):
        score = math.nan
    if not math.isfinite(score):
        raise ValueError(f'{where}: label {value!r:.80} is no number, as a regression needs; see --metric; '
                         f'if it stands for no label, unlabelled = ({value!r:.80},) leaves such rows out')
    return score

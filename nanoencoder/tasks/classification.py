"""SC, sequence classification: a text, or several columns in a template, has one label, or a number."""
import math

import numpy as np
import torch.nn.functional as F

from nanoencoder.metrics import CORRELATIONS, OF_LABELS
from nanoencoder.tasks.kind import Example, Kind, framed, room, targets_of
from nanoencoder.tasks.task import columns_of, fill, get, text_of


class Classification(Kind):
    """Rows of id, text, label, fields (the template's columns)."""
    head = 'text'
    hint = '--metric=Pearson or Spearman predicts numbers'
    labelled_by = 'label'

    def __init__(self, task):
        super().__init__(task)
        if task.metric not in OF_LABELS:
            raise ValueError(f'metric {task.metric}: is of several labels a text, and SC has one; for SC '
                             '`evaluate.py table --others` shows it, too')
        self.is_regression = task.metric in CORRELATIONS
        if self.is_regression:
            self.labelled_by = ''
            self.output_names = ('score',)
            self.problem_type = 'regression'
            self.has_probe = False

    def make_row(self, row, labels, where):
        template = self.task.template
        text = fill(template, row, where)
        label = get(row, self.task.label, where, object)
        if labels.is_missing(label):
            return None
        if self.is_regression:
            label = number(label, where)
        else:
            label = labels.name(label, where)
        fields = [text_of(row, column, where) for column in columns_of(template)]
        return {'text': text, 'label': label, 'fields': fields}

    def examples(self, row, labels, tokenizer, max_length, lost):
        tokens = tokenizer.encode(row['text'])
        if len(tokens) > room(tokenizer, max_length):
            lost['texts'] += 1
        target = row['label']
        if not self.is_regression:
            target = labels.index(target)
        return [Example(framed(tokens, tokenizer, max_length), np.array([target]))]

    def loss(self, outputs, batch):
        if not self.is_regression:
            return super().loss(outputs, batch)
        targets = targets_of(batch).float()     # on the CPU, as mps has no float64
        return F.mse_loss(outputs.squeeze(1), targets.to(outputs.device), reduction='sum')

    def answer(self, row, read, labels):
        (_, logits), = read
        if self.is_regression:
            return round(float(logits[0]), 6)
        return labels[int(logits.argmax())]


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

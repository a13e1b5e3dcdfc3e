"""ML, multi-label classification: a text, or several columns in a template, has any number of labels."""
import numpy as np
import torch.nn.functional as F

from nanoencoder.tasks.kind import Example, Kind, framed, room, targets_of
from nanoencoder.tasks.task import fill, get, is_null


class MultiLabel(Kind):
    """Rows of id, text, label (a list of names, which may be empty)."""
    head = 'text'
    labelled_by = 'label'
    problem_type = 'multi_label_classification'
    has_probe = False   # the probe's ridge regression chooses one label

    def __init__(self, task):
        super().__init__(task)
        if task.metric not in ('accuracy', 'macro F1'):     # accuracy, the default, stands for micro F1
            raise ValueError(f'metric {task.metric}: is of one label a text; several have micro F1, if it is '
                             'left out, or "macro F1"')

    def make_row(self, row, labels, where):
        text = fill(self.task.template, row, where)
        names = get(row, self.task.label, where, object)
        if labels.is_missing(names):
            return None
        if not isinstance(names, list):
            hint = 'unlabelled = (None,) leaves such rows out'
            if not is_null(names):
                hint = 'a .jsonl or .parquet can hold lists, a .csv cannot; kind SC has one label a text'
            raise ValueError(f'{where}: {self.task.label!r} holds {names!r:.40}, which is no list of labels, '
                             f'as ["a", "b"] or []; {hint}')
        if any(map(labels.is_missing, names)):
            return None
        names = [labels.name(name, where) for name in names]
        return {'text': text, 'label': [*dict.fromkeys(names)]}     # label_map may make two labels one

    def check(self, labels):
        if not labels.names:
            raise ValueError(f'{self.task.dataset}: no training row has a label; name them in `labels`')
        super().check(labels)

    def examples(self, row, labels, tokenizer, max_length, lost):
        tokens = tokenizer.encode(row['text'])
        if len(tokens) > room(tokenizer, max_length):
            lost['texts'] += 1
        targets = [label in row['label'] for label in labels]
        return [Example(framed(tokens, tokenizer, max_length), np.array(targets, int))]

    def loss(self, outputs, batch):
        """Binary cross-entropy, summed over labels, too: each label is a question of its own."""
        targets = targets_of(batch).float()     # on the CPU, as mps has no float64
        targets = targets.to(outputs.device)
        return F.binary_cross_entropy_with_logits(outputs, targets.view_as(outputs), reduction='sum')

    def answer(self, row, read, labels):
        (_, logits), = read
        return [label for label, logit in zip(labels, logits) if logit > 0]

"""SC, sequence classification: a text, or several columns in a template, has one label."""
import math
import string
from collections import Counter, defaultdict

import numpy as np
import torch.nn.functional as F
from torch import nn

from nanoencoder.tasks.kind import Example, Export, Kind, framed, mean_pool, room, unit_vectors
from nanoencoder.tasks.task import SCORED, fill, get, terms


class Classification(Kind):
    """Rows of id, text, label, fields (the template's columns)."""
    labelled_by = 'label'

    def make_row(self, row, labels, where):
        label = labels.name(get(row, self.task.label, where, object), where)
        return {'text': fill(self.task.template, row, where), 'label': label,
                'fields': [str(row[name]) for name in self.columns()]}

    def columns(self):
        """The names of the template's columns, in its order."""
        return [name for _, name, _, _ in string.Formatter().parse(self.task.template) if name]

    def examples(self, rows, labels, tokenizer, max_length):
        examples, lost = [], Counter()
        for k, row in enumerate(rows):
            tokens = tokenizer.encode(row['text'])
            lost['texts'] += len(tokens) > room(tokenizer, max_length)
            target = np.array([labels.index(row['label'])])
            examples.append(Example(framed(tokens, tokenizer, max_length), target, k))
        return examples, +lost

    def head(self, hidden_size, labels):
        return PooledClassifier(hidden_size, len(labels))

    frozen = staticmethod(unit_vectors)

    def predict(self, data, outputs):
        return {split: [self.prediction(row, data.labels[int(logits.argmax())])
                        for row, logits in zip(data.rows[split], outputs[split])] for split in SCORED}

    def baselines(self, rows):
        train = rows['train']
        methods = {'majority-class': majority_class(train), 'naive-bayes': naive_bayes(train)}
        return methods | ({'word-overlap': word_overlap(train)} if len(train[0]['fields']) == 2 else {})

    def export(self, labels, sizes):
        if sizes.qk_norm:
            raise ValueError('save_model: transformers has no classifier of mean-pooled tokens with norms of '
                             'q and k (Qwen3); leave it out (predictions are written all the same)')
        template, columns = repr(self.task.template), dict.fromkeys(self.columns(), '...')
        use = "pipeline('text-classification', '<this folder>')"
        if self.task.template not in [f'{{{name}}}' for name in columns]:  # the one string that it reads
            use += f'({template}.format_map({columns}))'
        return Export('ForSequenceClassification', 'text-classification', use, template, labels)


class PooledClassifier(nn.Module):
    """(N, d) -> (segments, labels): EuroBertForSequenceClassification with classifier_pooling="mean"."""

    def __init__(self, hidden_size, num_labels):
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.classifier = nn.Linear(hidden_size, num_labels)

    def forward(self, x, lengths):
        return self.classifier(F.gelu(self.dense(mean_pool(x, lengths))))


# ---------------------------------------------------------------------------------------------- the baselines

def majority_class(train):
    counts = Counter(row['label'] for row in train)
    label = max(sorted(counts), key=counts.get)
    return lambda row: label


def word_overlap(train):
    """The share of the first field's words that the second has, cut where train is split best."""
    def share(row):
        first, second = map(set, map(terms, row['fields']))
        return len(first & second) / max(1, len(first))

    shares = np.array([share(row) for row in train])
    names, golds = np.unique([row['label'] for row in train], return_inverse=True)

    def most_frequent(labels):   # of equals the last
        counts = np.bincount(labels, minlength=len(names))[::-1]
        return counts.max(), str(names[::-1][counts.argmax()])

    cuts = []
    for cut in np.unique(shares.round(2)):
        (right, low), (more, high) = (most_frequent(golds[side]) for side in (shares <= cut, shares > cut))
        cuts.append((right + more, cut, low, high))
    _, cut, low, high = max(cuts)
    return lambda row: high if share(row) > cut else low


def naive_bayes(train):
    counts = defaultdict(Counter)
    for row in train:
        counts[row['label']].update(terms(row['text']))
    classes = Counter(row['label'] for row in train)
    size = len(set().union(*counts.values()))
    totals = {label: words.total() + size for label, words in counts.items()}

    def score(label, words):
        likelihood = sum(math.log((counts[label][word] + 1) / totals[label]) for word in words)
        return math.log(classes[label]) + likelihood

    return lambda row: max(sorted(classes), key=lambda label: score(label, terms(row['text'])))

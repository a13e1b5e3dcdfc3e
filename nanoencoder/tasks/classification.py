"""SC, sequence classification: a text, or several columns in a template, has one label."""
import math
import string
from collections import Counter, defaultdict

import numpy as np
import torch.nn.functional as F
from torch import nn

from nanoencoder.tasks.kind import Example, Export, Kind, mean_pool, unit_vectors, with_eos
from nanoencoder.tasks.task import SCORED, fill, get, terms


class Classification(Kind):
    """Rows of id, text, label, fields (the template's columns)."""
    labelled_by = 'label'

    def make_row(self, row, labels, where):
        columns = [name for _, name, _, _ in string.Formatter().parse(self.task.template) if name]
        label = labels.name(get(row, self.task.label, where, object), where)
        return {'text': fill(self.task.template, row, where), 'label': label,
                'fields': [str(row[name]) for name in columns]}

    def examples(self, rows, labels, tokenizer, max_length):
        examples, lost = [], Counter()
        for k, row in enumerate(rows):
            tokens = tokenizer.encode(row['text'])
            lost['texts'] += len(tokens) >= max_length
            target = np.array([labels.index(row['label'])])
            examples.append(Example(with_eos(tokens, tokenizer, max_length), target, k))
        return examples, +lost

    def head(self, hidden_size, labels):
        return PooledClassifier(hidden_size, len(labels))

    frozen = staticmethod(unit_vectors)

    def predict(self, data, outputs):
        return {split: [{'id': row['id'], 'gold': row['label'], 'pred': data.labels[int(logits.argmax())]}
                        for row, logits in zip(data.rows[split], outputs[split])] for split in SCORED}

    def baseline(self, rows):
        """Two fields: the words they share. One: naive Bayes."""
        if all(len(row['fields']) == 2 for row in rows['train']):
            name, label_of = 'word-overlap', word_overlap(rows['train'])
        else:
            name, label_of = 'naive-bayes', naive_bayes(rows['train'])
        return name, lambda row: {'id': row['id'], 'gold': row['label'], 'pred': label_of(row)}

    def export(self, labels, sizes):
        if sizes.qk_norm:
            raise ValueError('save_model: transformers has no classifier of mean-pooled tokens with norms of '
                             'q and k (Qwen3); leave it out (predictions are written all the same)')
        return Export('ForSequenceClassification', 'text-classification',
                      "pipeline('text-classification', '<this folder>')", repr(self.task.template), labels)


class PooledClassifier(nn.Module):
    """(N, d) -> (segments, labels): EuroBertForSequenceClassification with classifier_pooling="mean"."""

    def __init__(self, hidden_size, num_labels):
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.classifier = nn.Linear(hidden_size, num_labels)

    def forward(self, x, lengths):
        return self.classifier(F.gelu(self.dense(mean_pool(x, lengths))))


# ---------------------------------------------------------------------------------------------- the baselines

def word_overlap(train):
    """The share of the first field's words that the second has, cut where train is split best."""
    def share(row):
        first, second = map(set, map(terms, row['fields']))
        return len(first & second) / max(1, len(first))

    shares, golds = np.array([share(row) for row in train]), np.array([row['label'] for row in train])
    names = sorted(set(golds))
    _, cut, low, high = max((np.mean(np.where(shares > cut, high, low) == golds), cut, low, high)
                            for cut in np.unique(shares.round(2)) for low in names for high in names)
    return lambda row: str(high if share(row) > cut else low)


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

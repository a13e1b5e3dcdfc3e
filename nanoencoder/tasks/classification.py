"""SC, sequence classification: a text, or several columns in a template, has one label, or a number."""
import contextlib
import math
import statistics
import string
from collections import Counter

import numpy as np

from nanoencoder.metrics import CORRELATIONS
from nanoencoder.tasks.kind import Example, Kind, framed, room
from nanoencoder.tasks.task import fill, get, terms


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

    def baselines(self, rows):
        train = rows['train']
        if not self.labelled_by:
            mean, is_pair = statistics.fmean(row['label'] for row in train), len(train[0]['fields']) == 2
            return {'mean': lambda row: mean} | ({'word-overlap': shared_words} if is_pair else {})
        majority = Counter(sorted(row['label'] for row in train)).most_common(1)[0][0]
        methods = {'majority-class': lambda row: majority}
        if any(terms(' '.join(row['fields'])) for row in train):
            methods['naive-bayes'] = naive_bayes(train)
        return methods


def number(value, where):
    with contextlib.suppress(TypeError, ValueError):
        if math.isfinite(value := float(value)):
            return value
    raise ValueError(f'{where}: label {value!r:.80} is no number, as a regression needs; see --metric')


def shared_words(row):
    """The share of the first field's words that the second has."""
    first, second = map(set, map(terms, row['fields']))
    return len(first & second) / max(1, len(first))


def naive_bayes(train):
    """Multinomial, smoothed by one over the words of train; unseen ones are ignored."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.naive_bayes import MultinomialNB
    counter, judge = CountVectorizer(analyzer=lambda row: terms(' '.join(row['fields']))), MultinomialNB()
    judge.fit(counter.fit_transform(train), [row['label'] for row in train])
    return lambda row: str(judge.predict(counter.transform([row]))[0])

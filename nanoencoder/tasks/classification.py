"""SC, sequence classification: a text, or several columns in a template, has one label."""
import math
import string
from collections import Counter, defaultdict

import numpy as np

from nanoencoder.tasks.kind import Example, Kind, framed, room
from nanoencoder.tasks.task import fill, get, terms


class Classification(Kind):
    """Rows of id, text, label, fields (the template's columns)."""
    head = 'text'
    labelled_by = 'label'
    architecture, pipeline = 'ForSequenceClassification', 'text-classification'
    use = "pipeline('text-classification', '<this folder>')"

    def make_row(self, row, labels, where):
        label = labels.name(get(row, self.task.label, where, object), where)
        columns = [name for _, name, _, _ in string.Formatter().parse(self.task.template) if name]
        return {'text': fill(self.task.template, row, where), 'label': label,
                'fields': [fill(f'{{{name}}}', row, where) for name in columns]}

    def examples(self, rows, labels, tokenizer, max_length):
        texts = [tokenizer.encode(row['text']) for row in rows]
        lost = Counter(texts=sum(len(tokens) > room(tokenizer, max_length) for tokens in texts))
        return [Example(framed(tokens, tokenizer, max_length), np.array([labels.index(row['label'])]), k)
                for k, (row, tokens) in enumerate(zip(rows, texts))], +lost

    def answer(self, row, read, labels):
        (_, logits), = read
        return labels[int(logits.argmax())]

    def baselines(self, rows):
        train, labels = rows['train'], sorted(row['label'] for row in rows['train'])
        majority = Counter(labels).most_common(1)[0][0]
        methods = {'majority-class': lambda row: majority, 'naive-bayes': naive_bayes(train)}
        return methods | ({'word-overlap': word_overlap(train)} if len(train[0]['fields']) == 2 else {})

    def check_export(self, sizes):
        if sizes.qk_norm:
            raise ValueError('save_model: transformers has no such classifier with norms of q and k (Qwen3)')


def word_overlap(train):
    """The share of the first field's words that the second has, cut where train is split best."""
    def share(row):
        first, second = map(set, map(terms, row['fields']))
        return len(first & second) / max(1, len(first))

    shares, golds = np.array([share(row) for row in train]), np.array([row['label'] for row in train])
    cuts = []  # of labels that are equally frequent on a side the last
    for cut in np.unique(shares.round(2)):
        parts = (Counter(golds[side].tolist()) for side in (shares <= cut, shares > cut))
        (hits, low), (more, high) = (max(zip(part.values(), part), default=(0, max(golds))) for part in parts)
        cuts.append((hits + more, cut, low, high))
    _, cut, low, high = max(cuts)
    return lambda row: str(high if share(row) > cut else low)


def naive_bayes(train):
    """Multinomial, each count one more, over the words of train: others say nothing. As scikit-learn's."""
    counts, classes = defaultdict(Counter), Counter(row['label'] for row in train)
    for row in train:
        counts[row['label']].update(terms(' '.join(row['fields'])))
    vocabulary = set().union(*counts.values())
    totals = {label: words.total() + len(vocabulary) for label, words in counts.items()}

    def score(label, words):
        return math.log(classes[label]) + sum(math.log((counts[label][word] + 1) / totals[label])
                                              for word in words if word in vocabulary)
    return lambda row: max(sorted(classes), key=lambda label: score(label, terms(' '.join(row['fields']))))

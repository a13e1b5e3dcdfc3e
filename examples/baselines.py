"""Score simple methods on a task: floors that a fine-tuned model must beat.

    python examples/baselines.py configs/tasks/docs_tc.py

It prints the score of each method and writes the predictions of the one that is best on validation, where
evaluate.py finds them beside those of models: predictions/<method>/<TASK>/<dataset>/lr0e+00_sd0."""
import re
import statistics
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))   # nanoencoder is a folder of this repository

from nanoencoder import tasks
from nanoencoder.files import locked
from nanoencoder.metrics import CORRELATIONS, both_scores
from nanoencoder.predictions import write_run
from nanoencoder.settings import free, parse, run_main
from nanoencoder.tasks.retrieval import ranking

# of BM25, as in Anserini
K1 = 0.9    # how soon further copies of a word add less
B = 0.4     # how much the words of long documents are discounted


@dataclass(frozen=True)
class Settings(tasks.Task):
    predictions: str = free('predictions')


def methods(task, rows):
    """{name: function that predicts from a row}, fitted to the training rows."""
    train = rows['train']
    if task.kind == 'TC':
        return {'word-lookup': word_lookup(train, task.scheme == 'plain')}
    if task.kind == 'QA':
        return {'no-answer': lambda row: '', 'likeliest-sentence': likeliest_sentence(task)}
    if task.kind == 'IR':
        return {'BM25': bm25(rows['corpus'], task)}
    if task.metric in CORRELATIONS:
        return {'word-overlap': word_overlap}   # a constant correlates with nothing

    majority = statistics.mode(sorted(row['label'] for row in train))
    return {'majority-class': lambda row: majority, 'naive-bayes': naive_bayes(train)}


def terms(text, template='{text}'):
    """The words of a text in lower case, without those that are its template's own."""
    marked = template.format_map(defaultdict(lambda: '\0'))     # a mark in place of each column
    pattern = re.escape(marked).replace('\0', '(.*)')
    match = re.fullmatch(pattern, text, re.DOTALL)
    if match:       # not where `pair` has a template of its own
        text = ' '.join(match.groups())
    return re.findall(r'\w+', text.lower())


def word_overlap(row):
    """The share of the first column's words that are in the last."""
    first = set(terms(row['fields'][0]))
    last = set(terms(row['fields'][-1]))
    shared = first & last
    return len(shared) / max(1, len(first))


def naive_bayes(train):
    """Multinomial naive Bayes, smoothed by one, over the words of train; other words are ignored."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.naive_bayes import MultinomialNB
    counter = CountVectorizer(analyzer=lambda row: terms(' '.join(row['fields'])))
    classifier = MultinomialNB()
    labels = [row['label'] for row in train]
    classifier.fit(counter.fit_transform(train), labels)

    def predict(row):
        counts = counter.transform([row])
        return str(classifier.predict(counts)[0])
    return predict


def word_lookup(train, is_plain):
    """The word's most frequent type in train; else that of words of its shape; else of all (plain tags) or O.
    Neighbours of one type are one entity. A plain tag is its own type; O has the type ''."""
    by_word = defaultdict(Counter)
    by_shape = defaultdict(Counter)
    overall = Counter()
    for row in train:
        for word, tag in zip(row['words'], row['tags']):
            name = tag if is_plain else tag[2:]
            for counts in (by_word[word], by_shape[shape(word)], overall):
                counts[name] += 1
    if not is_plain:
        overall = Counter([''])

    def predict(row):
        names = []
        for word in row['words']:
            counts = by_word.get(word) or by_shape.get(shape(word)) or overall
            names.append(max(sorted(counts), key=counts.get))
        if is_plain:
            return names

        tags = []
        for before, name in zip(['', *names], names):
            prefix = 'I' if name == before else 'B'
            tags.append(f'{prefix}-{name}' if name else 'O')
        return tags
    return predict


def shape(word):
    """Xx of Rome, X0 of B52: letters and digits become X, x and 0, of which repeats count once."""
    word = re.sub(r'\d', '0', word)
    word = re.sub('[A-Z]', 'X', word)
    word = re.sub('[a-z]', 'x', word)
    return re.sub(r'(.)\1+', r'\1', word)


def likeliest_sentence(task):
    """The sentence of the context that shares most words with the question; of equal ones the first."""
    template = task.template.removesuffix('{context}')

    def predict(row):
        asked = set(terms(row['question'], template))

        def num_shared(sentence):
            return len(asked.intersection(terms(sentence)))
        sentences = re.split(r'(?<=[.!?])\s+', row['context'])
        return max(sentences, key=num_shared)
    return predict


def bm25(corpus, task):
    """Okapi BM25 over the corpus (Robertson and Zaragoza 2009)."""
    from sklearn.feature_extraction.text import CountVectorizer
    ids = sorted(corpus, reverse=True)
    words = [terms(corpus[document], task.document) for document in ids]
    counter = CountVectorizer(analyzer=list)
    counts = counter.fit_transform(words).astype(float)     # (documents, words), sparse
    num_with = np.bincount(counts.indices)      # documents that have each word
    num_without = len(ids) - num_with
    idf = np.log(1 + (num_without + 0.5) / (num_with + 0.5))

    lengths = np.array([len(document) for document in words])
    share = lengths / lengths.mean()
    discount = K1 * (1 - B + B * share)
    entries = np.diff(counts.indptr)    # different words of each document
    counts.data *= (K1 + 1) / (counts.data + np.repeat(discount, entries))
    weights = counts.tocsc()

    def predict(row):
        query = terms(row['query'], task.query)
        asked = counter.transform([query])      # how often it has each word
        scores = weights[:, asked.indices] @ (idf[asked.indices] * asked.data)
        return ranking(row, ids, scores)
    return predict


def best_method(task, rows):
    """Print the scores of all methods. Return (name, {split: predictions}) of the one that is best on
    validation, or of the first of those."""
    kind = tasks.kind_of(task)
    tried = []
    for name, method in methods(task, rows).items():
        predictions = {}
        scores = []
        for split in tasks.SCORED:
            predictions[split] = [kind.prediction(row, method(row)) for row in rows[split]]
            _, both = both_scores(task.kind, predictions[split], task.scheme, task.metric)
            scores.append(100 * both['standard']['score'])
        print(f'{name}: validation {scores[0]:.1f}, test {scores[1]:.1f}')
        tried.append((scores[0], name, predictions))
    _, name, predictions = max(tried, key=lambda one: one[0])
    return name, predictions


def main():
    cfg, _ = parse(Settings, sys.argv[1:])
    rows, _ = tasks.kind_of(cfg).load()
    name, predictions = best_method(cfg, rows)
    about = {
        'method': 'baseline',
        'scheme': cfg.scheme,
        'settings': {'metric': cfg.metric},
        'data': tasks.fingerprint(rows),
    }
    folder = Path(cfg.predictions, name, cfg.kind, cfg.dataset, 'lr0e+00_sd0')
    with locked(folder):
        write_run(folder, about, predictions)
    print(f'{folder}: written')


if __name__ == '__main__':
    run_main(main)

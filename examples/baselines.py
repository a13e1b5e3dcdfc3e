"""Score simple methods on a task: floors that a fine-tuned model must beat.

    python examples/baselines.py configs/tasks/docs_tc.py

It prints the score of each method and writes the predictions of the one that is best on validation, where
evaluate.py finds them beside those of models: predictions/<method>/<TASK>/<dataset>/lr0e+00_sd0."""
import functools
import itertools
import re
import statistics
import sys
import unicodedata
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))   # nanoencoder is a folder of this repository

from nanoencoder import tasks
from nanoencoder.files import locked
from nanoencoder.metrics import CORRELATIONS, SPACELESS, both_scores
from nanoencoder.predictions import write_run
from nanoencoder.settings import may_change, parse, run_main
from nanoencoder.tasks.retrieval import ranking
from nanoencoder.tasks.task import pieces_of

# of BM25, as in Anserini
K1 = 0.9    # how soon further copies of a word add less
B = 0.4     # how much the words of long documents are discounted
SPACELESS_RUN = re.compile(f'({SPACELESS.pattern}+)')   # in parentheses: `split` keeps it
# A sentence ends at one of these and a space: the full stops and question marks of Latin, Arabic, Urdu,
# Hindi, Ethiopic, Armenian and Burmese. Chinese and Japanese have no space there, and Thai has nothing but a
# space.
SENTENCE_END = re.compile('(?<=[.!?\u061f\u06d4\u0964\u0965\u1362\u0589\u104b])\\s+'
                          '|(?<=[\u3002\uff01\uff0e\uff1f\uff61])\\s*'
                          '|(?<=[\u0e00-\u0eff])\\s+(?=[\u0e00-\u0eff])')


@dataclass(frozen=True)
class Settings(tasks.Task):
    predictions: str = may_change('predictions')


def methods(task, rows):
    """{name: function that predicts from a row}, fitted to the training rows."""
    train = rows['train']
    if task.kind == 'TC':
        return {'word-lookup': word_lookup(train, task.scheme == 'plain')}
    if task.kind == 'QA':
        return {'no-answer': lambda row: '', 'likeliest-sentence': likeliest_sentence(task)}
    if task.kind == 'IR':
        return {'BM25': bm25(rows['corpus'], task)}
    if task.kind == 'ML':
        label = statistics.mode(sorted(label for row in train for label in row['label']))
        return {'most-frequent-label': lambda row: [label]}
    if task.kind != 'SC':
        raise ValueError(f'{task.kind}: methods() in examples/baselines.py has none for this kind of task')
    if task.metric in CORRELATIONS:
        return {'word-overlap': word_overlap}   # a constant correlates with nothing

    majority = statistics.mode(sorted(row['label'] for row in train))
    return {'majority-class': lambda row: majority, 'naive-bayes': naive_bayes(train)}


def terms(text, template='{text}'):
    """The words of a text in lower case, without those of its template."""
    pattern = ''.join('(.*)' if is_column else re.escape(piece) for piece, is_column in pieces_of(template))
    match = re.fullmatch(pattern, text, re.DOTALL)
    if match:       # not where `pair` has a template of its own
        text = ' '.join(match.groups())
    return words(text.lower())


@functools.cache
def word_pattern():
    """Runs of letters, numbers, underscores and marks. Python's \\w lacks marks, as the vowels of Hindi
    are."""
    marks = [chr(code) for code in range(sys.maxunicode) if unicodedata.category(chr(code))[0] == 'M']
    return re.compile(rf'[\w{"".join(marks)}]+')


def words(text):
    """The words of a text. Where a script has no spaces, each pair of neighbouring characters is one, as in
    Lucene's CJKAnalyzer."""
    found = []
    for run in word_pattern().findall(text):
        for part in SPACELESS_RUN.split(run):
            if SPACELESS.match(part):
                pairs = [part[k:k + 2] for k in range(len(part) - 1)]
                found += pairs or [part]
            elif part:
                found.append(part)
    return found


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
            if not tag:
                continue    # `unlabelled` says so
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
    """Xx of Rome, X0 of B52: capitals become X, small letters x, digits 0. Repeats count once."""
    def kind_of(character):
        if character.isupper():
            return 'X'
        if character.islower():
            return 'x'
        return '0' if character.isdecimal() else character
    kinds = map(kind_of, word)
    return ''.join(kind for kind, _ in itertools.groupby(kinds))


def likeliest_sentence(task):
    """The sentence of the context that shares most words with the question; of equal ones the first."""
    template = task.template.removesuffix('{context}')

    def predict(row):
        asked = set(terms(row['question'], template))

        def num_shared(sentence):
            return len(asked.intersection(terms(sentence)))
        return max(SENTENCE_END.split(row['context']), key=num_shared)
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

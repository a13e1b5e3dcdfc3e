"""What predictions are worth: the field's metrics and the paper's, for each kind of task; needs numpy."""
import collections
import itertools
import math
import re
import statistics
import string
from functools import partial
from typing import Callable, NamedTuple

import numpy as np

def entities(tags, scheme='conlleval'):
    """{(type, start, end)} of a sentence's tags; end is exclusive.

    scheme  conlleval: by the CoNLL-2000 script's rules, which read IOB1 and IOB2 alike (seqeval's default)
            IOB2: an entity begins with B- and nothing else (seqeval's mode='strict')"""
    spans, inside, start = set(), None, 0       # inside: the type of the entity that goes on
    for i, tag in enumerate([*tags, 'O']):
        prefix, _, name = tag.partition('-')
        if prefix != 'I' or name != inside:
            if inside:
                spans.add((inside, start, i))
            inside, start = name if prefix == 'B' or prefix == 'I' and scheme == 'conlleval' else None, i
    return spans


def f1(correct, predicted, gold):
    return 2 * correct / (predicted + gold) if predicted + gold else 0.0


def macro_f1(golds, preds):
    """Mean F1 of all labels in either list: scikit-learn's f1_score(average='macro', zero_division=0)."""
    gold, predicted = collections.Counter(golds), collections.Counter(preds)
    correct = collections.Counter(g for g, p in zip(golds, preds) if g == p)
    labels = predicted | gold or ['']
    return statistics.fmean(f1(correct[label], predicted[label], gold[label]) for label in labels)


def normalise(answer):
    """As SQuAD's script: lower case, without punctuation, articles and superfluous spaces."""
    answer = ''.join(character for character in answer.lower() if character not in string.punctuation)
    return ' '.join(re.sub(r'\b(a|an|the)\b', ' ', answer).split())


def token_f1(pred, gold):
    """F1 of two bags of words; where either is empty, whether both are."""
    pred, gold = normalise(pred).split(), normalise(gold).split()
    if not pred or not gold:
        return float(pred == gold)
    return f1((collections.Counter(pred) & collections.Counter(gold)).total(), len(pred), len(gold))


def answer_scores(pred, golds):
    """(F1, exact match), the best over the gold answers; as in SQuAD's script, without those that normalise
    to nothing. Where none is left, the answer is the empty one."""
    golds = [gold for gold in golds if normalise(gold)] or ['']
    return max(token_f1(pred, gold) for gold in golds), float(normalise(pred) in map(normalise, golds))


def ndcg(row, binary=False, ties=False):
    """NDCG@10 of a row of predictions, as trec_eval's.

    binary  any grade of 1 or more counts as 1
    ties    documents of equal score share their mean gain, as scikit-learn and the paper have it: the last
            score's also with those that `docs` has not, of which `tied` says {'size', 'grades'} of all"""
    def gain(grade):
        return int(grade >= 1) if binary else max(0, grade)
    discounts = [1 / math.log2(rank + 2) for rank in range(10)]
    scores = row['scores'] if ties else itertools.count()
    gained, rank = 0.0, 0
    for score, group in itertools.groupby(zip(scores, row['docs']), key=lambda pair: pair[0]):
        gains = [gain(row['gold'].get(doc, 0)) for _, doc in group]
        size = len(gains)
        if ties and 'tied' in row and score == scores[-1]:
            gains, size = [*map(gain, row['tied']['grades'])], row['tied']['size']
        gained += math.fsum(gains) / size * sum(discounts[rank:rank + size])
        rank += size
    gains = sorted(map(gain, row['gold'].values()), reverse=True)
    ideal = sum(most * discount for most, discount in zip(gains, discounts))
    return gained / ideal if ideal else 0.0     # without gain, any ranking scores 0


def products(columns, ranks=False):
    """x, y, xx, yy, xy, where x and y are standardised (zero, if constant): what a correlation is made of."""
    if ranks:
        from scipy.stats import rankdata
        columns = rankdata(columns, axis=-1)
    columns = np.asarray(columns, float)
    spread = columns.std(-1, keepdims=True) * (np.ptp(columns, -1, keepdims=True) > 0)
    centred = columns - columns.mean(-1, keepdims=True)
    x, y = np.divide(centred, spread, np.zeros_like(columns), where=spread > 0)
    return np.array([x, y, x * x, y * y, x * y])


def correlation(sums, n):
    """0 where either is constant."""
    x, y, xx, yy, xy = sums
    scale = np.sqrt(np.maximum(n * xx - x * x, 0) * np.maximum(n * yy - y * y, 0))
    return np.divide(n * xy - x * y, scale, np.zeros_like(scale), where=scale > 1e-9 * n * n)


def one_hot(columns):
    """Whether it is right; for each label whether it is gold, then whether it is predicted."""
    gold, pred = columns = np.asarray(columns)
    return np.array([gold == pred, *(of == label for of in columns for label in np.unique(columns))], float)


def matthews(sums, n):
    """Correlation of gold and predicted labels (of more than two: Gorodkin 2004); 0 where either is one."""
    gold, pred = np.split(sums[1:], 2)
    scale = np.sqrt((n * n - (gold * gold).sum(0)) * (n * n - (pred * pred).sum(0)))
    return np.divide(n * sums[0] - (gold * pred).sum(0), scale, np.zeros_like(scale), where=scale > 0)


class Statistic(NamedTuple):
    """A score as a function of sums over instances, so that any resample of them has one."""
    terms: Callable     # (columns, .., N) that instances have -> (terms, .., N) floats that are added
    score: Callable     # ((terms, ..) sums, number of instances) -> (..)


STATISTICS = {
    'mean': Statistic(partial(np.asarray, dtype=float), lambda sums, n: sums[0] / n),
    'ratio': Statistic(partial(np.asarray, dtype=float),    # micro F1 and the like; 0 of nothing
                       lambda sums, n: np.divide(*sums, np.zeros_like(sums[0]), where=sums[1] > 0)),
    'Pearson': Statistic(products, correlation),
    'Spearman': Statistic(partial(products, ranks=True), correlation),
    'Matthews': Statistic(one_hot, matthews)}
CORRELATIONS = 'Pearson', 'Spearman'    # of numbers: regression
OF_LABELS = 'accuracy', 'Matthews', *CORRELATIONS     # metrics of SC


def score_of(statistic, columns):
    """A float; 0 of no instances."""
    terms, score = STATISTICS[statistic]
    return float(score(terms(columns).sum(-1), len(columns[0]))) if len(columns[0]) else 0.0


def score_labels(rows, scheme, metric):
    golds, preds = columns = [[row[name] for row in rows] for name in ('gold', 'pred')]
    if metric in CORRELATIONS:
        others = {name: score_of(name, columns) for name in CORRELATIONS if name != metric}
        squares = [(pred - gold) ** 2 for gold, pred in zip(golds, preds)]
        return metric, metric, columns, others | {'mean squared error': statistics.fmean(squares)}
    right = [float(pred == gold) for pred, gold in zip(preds, golds)]
    scores = {'accuracy': statistics.fmean(right), 'Matthews': score_of('Matthews', columns)}
    others = {name: scores[name] for name in scores if name != metric} | {'macro F1': macro_f1(golds, preds)}
    if len(labels := sorted({*golds, *preds})) == 2:
        others |= {f'F1 of {label}': f1(sum(gold == pred == label for gold, pred in zip(golds, preds)),
                                        preds.count(label), golds.count(label)) for label in labels}
    return (metric, metric, columns, others) if metric == 'Matthews' else (metric, 'mean', [right], others)


def score_tags(rows, scheme, metric):
    if scheme == 'plain':
        right = [[gold == pred for gold, pred in zip(row['gold'], row['pred'])] for row in rows]
        words = [[tag for row in rows for tag in row[side]] for side in ('gold', 'pred')]
        others = {'macro F1': macro_f1(*words), 'words': len(words[0])}
        return 'accuracy', 'ratio', [[*map(sum, right)], [*map(len, right)]], others

    def counts_by(rules):   # (sentences, 3): entities that are correct, predicted, gold
        pairs = [(entities(row['gold'], rules), entities(row['pred'], rules)) for row in rows]
        return np.array([(len(gold & pred), len(pred), len(gold)) for gold, pred in pairs])
    counts, strict = counts_by('conlleval'), counts_by(scheme)
    correct, predicted, gold = counts.sum(0).tolist()
    others = {'precision': correct / max(1, predicted), 'recall': correct / max(1, gold),
              f'strict {scheme} F1': f1(*strict.sum(0).tolist()), 'entities': gold}
    return 'entity F1', 'ratio', [(2 * counts[:, 0]).tolist(), counts[:, 1:].sum(1).tolist()], others


def score_answers(rows, scheme, metric):
    scores, exact = map(list, zip(*(answer_scores(row['pred'], row['golds']) for row in rows)))
    others = {'exact': statistics.fmean(exact)}
    for name, answered in (('HasAns', True), ('NoAns', False)):
        at = [i for i, row in enumerate(rows) if bool(row['golds']) == answered]
        if 0 < len(at) < len(rows):
            others |= {f'{name} exact': statistics.fmean(exact[i] for i in at),
                       f'{name} F1': statistics.fmean(scores[i] for i in at), f'{name} questions': len(at)}
    return 'F1', 'mean', [scores], others


def score_rankings(rows, scheme, metric):
    binary = statistics.fmean(ndcg(row, binary=True) for row in rows)
    return 'NDCG@10', 'mean', [[ndcg(row) for row in rows]], {'binary NDCG@10': binary}


def score_pairs(rows, scheme, metric):
    """Accuracy: a good sentence must be likelier than the bad one. Sets count alike, whatever their sizes."""
    sizes = collections.Counter(row['set'] for row in rows)
    hits = collections.Counter(row['set'] for row in rows if row['good'] > row['bad'])
    weights = [len(rows) / len(sizes) / sizes[row['set']] for row in rows]
    right = [weight * (row['good'] > row['bad']) for weight, row in zip(weights, rows)]
    return 'accuracy', 'ratio', [right, weights], {name: hits[name] / sizes[name] for name in sizes if name}


class Metric(NamedTuple):
    standard: Callable  # (rows, scheme, metric) -> (name, statistic, its columns, {name: other score})
    paper_name: str     # of the paper's metric
    paper: Callable     # row -> the authors' score of it; a run's is the mean


METRICS = {
    'SC': Metric(score_labels, 'accuracy', lambda row: float(row['pred'] == row['gold'])),
    'TC': Metric(score_tags, 'macro F1', lambda row: macro_f1(row['gold'], row['pred'])),     # of "O", too
    'QA': Metric(score_answers, 'F1', lambda row: answer_scores(row['pred'], row['golds'])[0]),
    'IR': Metric(score_rankings, 'NDCG@10', partial(ndcg, binary=True, ties=True)),
    'MP': Metric(score_pairs, 'accuracy', lambda row: float(row['good'] > row['bad']))}


def both_scores(kind, rows, scheme='IOB2', metric='accuracy'):
    """(name, {'standard': .., 'paper': ..}): what scores.json says of a split's predictions."""
    name, statistic, columns, others = METRICS[kind].standard(rows, scheme, metric)
    score = score_of(statistic, columns)
    by_row = [] if metric in CORRELATIONS else [METRICS[kind].paper(row) for row in rows]
    return name, {'standard': {'score': score, 'statistic': statistic, 'columns': columns,
                               'others': others, 'ids': [str(row['id']) for row in rows]},
                  'paper': {'score': statistics.fmean(by_row) if by_row else score, 'scores_i': by_row}}

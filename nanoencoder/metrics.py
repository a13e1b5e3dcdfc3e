"""What predictions are worth: the field's metrics and the paper's, for each kind of task; needs numpy.

Every score is a function of sums over instances (STATISTICS), so that any resample of them has a score."""
import collections
import itertools
import json
import math
import re
import statistics
import string
import unicodedata
from functools import partial
from typing import Callable, NamedTuple

import numpy as np

# Characters of scripts without spaces between words: Thai, Lao, Myanmar, Khmer, kana, Han.
SPACELESS = re.compile('[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff'
                       '\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]')
WIDE_PUNCTUATION = re.compile('[\u3001-\u3003\u3008-\u301f\uff01-\uff60]')   # of Chinese and Japanese

# ---------------------------------------------------------------------------
# Entities of tagged sentences


def entities(tags, scheme='conlleval'):
    """Return {(type, start, end)} of a sentence's tags; end is exclusive.

    scheme  conlleval: by the CoNLL-2000 script's rules, which read IOB1 and IOB2 alike (seqeval's default)
            IOB2: an entity begins with B- and nothing else (seqeval's mode='strict')"""
    spans = set()
    inside = None       # type of the entity that goes on
    start = 0
    for i, tag in enumerate([*tags, 'O']):
        prefix, _, name = tag.partition('-')
        if prefix == 'I' and name == inside:
            continue
        if inside:
            spans.add((inside, start, i))
        begins = prefix == 'B' or prefix == 'I' and scheme == 'conlleval'
        inside = name if begins else None
        start = i
    return spans


def f1(correct, predicted, gold):
    if not predicted + gold:
        return 0.0
    return 2 * correct / (predicted + gold)


def f1_by_label(golds, preds):
    """Return {label: F1} of all labels in either list."""
    gold = collections.Counter(golds)
    predicted = collections.Counter(preds)
    correct = collections.Counter(g for g, p in zip(golds, preds) if g == p)
    return {
        label: f1(correct[label], predicted[label], gold[label])
        for label in predicted | gold}


def macro_f1(golds, preds):
    """Mean F1 of all labels: scikit-learn's f1_score(average='macro', zero_division=0)."""
    scores = f1_by_label(golds, preds)
    return statistics.fmean(scores.values()) if scores else 0.0


# ---------------------------------------------------------------------------
# Answers to questions, as SQuAD's script scores them


def normalise(answer):
    """Return an answer's words in lower case, without punctuation and articles, as SQuAD's script does.

    In scripts without spaces each character is a word. In an answer that has such a character, or their full
    stops, all of Unicode's punctuation is removed, as in MLQA's script (Lewis et al. 2020)."""
    kept = [character for character in answer.lower() if character not in string.punctuation]
    if SPACELESS.search(answer) or WIDE_PUNCTUATION.search(answer):
        kept = [character for character in kept if unicodedata.category(character)[0] != 'P']
    text = re.sub(r'\b(a|an|the)\b', ' ', ''.join(kept))
    return SPACELESS.sub(r' \g<0> ', text).split()


def token_f1(pred, gold):
    """Return the F1 of two bags of words. If either is empty: 1 if both are, else 0."""
    pred = normalise(pred)
    gold = normalise(gold)
    if not pred or not gold:
        return float(pred == gold)
    shared = collections.Counter(pred) & collections.Counter(gold)
    return f1(shared.total(), len(pred), len(gold))


def answer_scores(pred, golds):
    """Return (F1, exact match), the best over the gold answers. As in SQuAD's script, answers that normalise
    to nothing do not count; where none is left, the answer is the empty one."""
    golds = [gold for gold in golds if normalise(gold)] or ['']
    best = max(token_f1(pred, gold) for gold in golds)
    exact = normalise(pred) in map(normalise, golds)
    return best, float(exact)


# ---------------------------------------------------------------------------
# Rankings of documents


def ndcg(row, binary=False, ties=False):
    """Return NDCG@10 of a row of predictions, whose `docs` are ranked, as trec_eval computes it.

    binary  any grade of 1 or more counts as 1
    ties    documents of equal score share their mean gain, as in scikit-learn and the paper. Those that tie
            with the tenth may not be in `docs`: `tied` has {'size', 'grades'} of all of them"""
    def gain(grade):
        return int(grade >= 1) if binary else max(0, grade)

    discounts = [1 / math.log2(rank + 2) for rank in range(10)]
    # documents in groups of one score; without ties each is a group of its own
    scores = row['scores'] if ties else itertools.count()
    gained = 0.0
    rank = 0
    for score, group in itertools.groupby(zip(scores, row['docs']), key=lambda pair: pair[0]):
        gains = [gain(row['gold'].get(document, 0)) for _, document in group]
        size = len(gains)
        if ties and 'tied' in row and score == scores[-1]:
            gains = [gain(grade) for grade in row['tied']['grades']]
            size = row['tied']['size']
        # the group's mean gain, at each of its ranks; ranks after the tenth have no discount
        gained += math.fsum(gains) / size * sum(discounts[rank:rank + size])
        rank += size

    best = sorted(map(gain, row['gold'].values()), reverse=True)
    ideal = sum(most * discount for most, discount in zip(best, discounts))
    if not ideal:
        return 0.0      # without gain, any ranking scores 0
    return gained / ideal


# ---------------------------------------------------------------------------
# Scores as functions of sums over instances


class Statistic(NamedTuple):
    terms: Callable     # (columns, .., N) that instances have -> (terms, .., N) floats that are added
    score: Callable     # ((terms, ..) sums, number of instances) -> (..)


def divide(above, below, least=0.0):
    """Return above / below, element by element; 0 where below is not greater than `least`."""
    zeros = np.zeros_like(above)
    return np.divide(above, below, zeros, where=below > least)


def products(columns, ranks=False):
    """Return x, y, xx, yy, xy, that make a correlation; x and y are standardised (zero, if constant)."""
    if ranks:
        from scipy.stats import rankdata
        columns = rankdata(columns, axis=-1)
    columns = np.asarray(columns, float)
    varies = np.ptp(columns, -1, keepdims=True) > 0
    spread = np.where(varies, columns.std(-1, keepdims=True), 0.0)
    centred = columns - columns.mean(-1, keepdims=True)
    x, y = divide(centred, spread)
    return np.array([x, y, x * x, y * y, x * y])


def correlation(sums, n):
    """Return Pearson's correlation from the sums of `products`; 0 where either is constant."""
    x, y, xx, yy, xy = sums
    spread_x = np.maximum(n * xx - x * x, 0)
    spread_y = np.maximum(n * yy - y * y, 0)
    scale = np.sqrt(spread_x * spread_y)
    shared = n * xy - x * y
    return divide(shared, scale, least=1e-9 * n * n)


def one_hot(columns):
    """Return what Matthews' correlation is made of: whether a prediction is right; for each label whether it
    is gold, then whether it is predicted."""
    columns = np.asarray(columns)
    gold, pred = columns
    labels = np.unique(columns)
    of_gold = [gold == label for label in labels]
    of_pred = [pred == label for label in labels]
    return np.array([gold == pred, *of_gold, *of_pred], float)


def matthews(sums, n):
    """Return the correlation of gold and predicted labels from the sums of `one_hot` (of more than two
    labels: Gorodkin 2004); 0 where either has only one label."""
    gold, pred = np.split(sums[1:], 2)
    spread_gold = n * n - (gold * gold).sum(0)
    spread_pred = n * n - (pred * pred).sum(0)
    scale = np.sqrt(spread_gold * spread_pred)
    shared = n * sums[0] - (gold * pred).sum(0)
    return divide(shared, scale)


def count_labels(columns):
    """Return what F1 is made of: of each label in turn, 2 where it is gold and predicted, else 0; and how
    often it is either, 0 to 2.

    columns  (gold, predicted) lists of labels, each written as JSON: numpy has no arrays of lists"""
    texts, where = np.unique(columns, return_inverse=True)
    lists = [json.loads(text) for text in texts]
    terms = []
    for label in sorted(set().union(*lists)):
        gold, pred = np.array([float(label in labels) for labels in lists])[where]
        terms += [2 * gold * pred, gold + pred]
    return np.array(terms).reshape(-1, *where.shape[1:])     # also of no label at all


def mean_f1(sums, n):
    """Return the mean F1 of all labels that are gold or predicted, from the sums of `count_labels`."""
    either = sums[1::2]
    scores = divide(sums[::2], either)
    return divide(scores.sum(0), (either > 0).sum(0))


as_floats = partial(np.asarray, dtype=float)
STATISTICS = {
    'mean': Statistic(as_floats, lambda sums, n: sums[0] / n),
    'ratio': Statistic(as_floats, lambda sums, n: divide(*sums)),   # as micro F1; 0 of nothing
    'Pearson': Statistic(products, correlation),
    'Spearman': Statistic(partial(products, ranks=True), correlation),
    'Matthews': Statistic(one_hot, matthews),
    'macro F1': Statistic(count_labels, mean_f1),
}
CORRELATIONS = 'Pearson', 'Spearman'    # of numbers: regression
NO_FRACTIONS = 'mean squared error',    # further scores that `table --others` does not show in percent
OF_LABELS = 'accuracy', 'Matthews', *CORRELATIONS     # metrics of SC


def score_of(statistic, columns):
    """Return the score of all instances, a float; 0 if there are none."""
    n = len(columns[0])
    if not n:
        return 0.0
    terms, score = STATISTICS[statistic]
    return float(score(terms(columns).sum(-1), n))


# ---------------------------------------------------------------------------
# The scores of each kind of task. A function takes rows of predictions, the scheme of tags and the metric. It
# returns (the metric's name, the name of its statistic, the columns that it is made of, {name: other score}).


def score_labels(rows, scheme, metric):
    golds = [row['gold'] for row in rows]
    preds = [row['pred'] for row in rows]
    if metric in CORRELATIONS:
        others = {name: score_of(name, [golds, preds]) for name in CORRELATIONS if name != metric}
        squares = [(pred - gold) ** 2 for gold, pred in zip(golds, preds)]
        others['mean squared error'] = statistics.fmean(squares)
        return metric, metric, [golds, preds], others

    right = [float(pred == gold) for pred, gold in zip(preds, golds)]
    others = {
        'accuracy': statistics.fmean(right),
        'Matthews': score_of('Matthews', [golds, preds]),
    }
    del others[metric]
    others['macro F1'] = macro_f1(golds, preds)
    by_label = f1_by_label(golds, preds)
    if len(by_label) == 2:
        for label in sorted(by_label):
            others[f'F1 of {label}'] = by_label[label]
    if metric == 'Matthews':
        return metric, metric, [golds, preds], others
    return metric, 'mean', [right], others


def score_label_sets(rows, scheme, metric):
    lists = [[json.dumps(row[key]) for row in rows] for key in ('gold', 'pred')]
    # micro F1 is that of all labels together, macro F1 the mean of each label's
    micro = count_labels(lists).reshape(-1, 2, len(rows)).sum(0).tolist()
    others = {'subset accuracy': statistics.fmean(map(is_same_set, rows))}
    if metric == 'macro F1':
        others['micro F1'] = score_of('ratio', micro)
        return metric, metric, lists, others
    others['macro F1'] = score_of('macro F1', lists)
    return 'micro F1', 'ratio', micro, others


def is_same_set(row):
    return {*row['pred']} == {*row['gold']}


def score_tags(rows, scheme, metric):
    if scheme == 'plain':
        return score_words(rows)

    def counts_by(rules):
        """(sentences, 3): how many entities are correct, predicted, gold."""
        counts = []
        for row in rows:
            gold = entities(row['gold'], rules)
            pred = entities(row['pred'], rules)
            counts.append((len(gold & pred), len(pred), len(gold)))
        return np.array(counts)

    counts = counts_by('conlleval')
    correct, predicted, gold = counts.sum(0).tolist()
    strict = counts_by(scheme).sum(0).tolist()
    others = {
        'precision': correct / max(1, predicted),
        'recall': correct / max(1, gold),
        f'strict {scheme} F1': f1(*strict),
        'entities': gold,
    }
    # F1 is twice the correct ones to the sum of predicted and gold ones
    columns = [(2 * counts[:, 0]).tolist(), counts[:, 1:].sum(1).tolist()]
    return 'entity F1', 'ratio', columns, others


def score_words(rows):
    """Accuracy over words, of plain tags such as parts of speech."""
    right = []      # of each sentence, how many words
    count = []
    golds = []
    preds = []
    for row in rows:
        right.append(sum(gold == pred for gold, pred in zip(row['gold'], row['pred'])))
        count.append(len(row['gold']))
        golds += row['gold']
        preds += row['pred']
    others = {'macro F1': macro_f1(golds, preds), 'words': len(golds)}
    return 'accuracy', 'ratio', [right, count], others


def score_answers(rows, scheme, metric):
    pairs = [answer_scores(row['pred'], row['golds']) for row in rows]
    scores = [score for score, _ in pairs]
    exact = [match for _, match in pairs]
    others = {'exact': statistics.fmean(exact)}
    groups = {'HasAns': [], 'NoAns': []}
    for row, pair in zip(rows, pairs):
        name = 'HasAns' if row['golds'] else 'NoAns'
        groups[name].append(pair)
    if all(groups.values()):        # as in SQuAD v2
        for name, group in groups.items():
            others[f'{name} exact'] = statistics.fmean(match for _, match in group)
            others[f'{name} F1'] = statistics.fmean(score for score, _ in group)
            others[f'{name} questions'] = len(group)
    return 'F1', 'mean', [scores], others


def score_rankings(rows, scheme, metric):
    scores = [ndcg(row) for row in rows]
    binary = [ndcg(row, binary=True) for row in rows]
    others = {'binary NDCG@10': statistics.fmean(binary)}
    return 'NDCG@10', 'mean', [scores], others


def score_pairs(rows, scheme, metric):
    """Accuracy: a good sentence must be likelier than the bad one. Sets count alike, whatever their sizes."""
    sizes = collections.Counter(row['set'] for row in rows)
    hits = collections.Counter()
    weights = []    # their mean is 1
    right = []
    for row in rows:
        weight = len(rows) / len(sizes) / sizes[row['set']]
        is_right = row['good'] > row['bad']
        hits[row['set']] += is_right
        weights.append(weight)
        right.append(weight if is_right else 0.0)
    others = {
        name: hits[name] / size
        for name, size in sizes.items()
        if name}
    return 'accuracy', 'ratio', [right, weights], others


class Metric(NamedTuple):
    standard: Callable  # one of the functions above
    paper_name: str     # of the paper's metric
    paper: Callable     # row -> the authors' score of it, or whether it is right; a run's is the mean


METRICS = {
    'SC': Metric(score_labels, 'accuracy', lambda row: row['pred'] == row['gold']),
    'TC': Metric(score_tags, 'macro F1', lambda row: macro_f1(row['gold'], row['pred'])),   # of "O", too
    'QA': Metric(score_answers, 'F1', lambda row: answer_scores(row['pred'], row['golds'])[0]),
    'IR': Metric(score_rankings, 'NDCG@10', partial(ndcg, binary=True, ties=True)),
    'ML': Metric(score_label_sets, 'accuracy', is_same_set),
    'MP': Metric(score_pairs, 'accuracy', lambda row: row['good'] > row['bad']),
}


def both_scores(kind, rows, scheme='IOB2', metric='accuracy'):
    """Return (the metric's name, {'standard': .., 'paper': ..}), the scores of a split's predictions."""
    name, statistic, columns, others = METRICS[kind].standard(rows, scheme, metric)
    score = score_of(statistic, columns)
    standard = {
        'score': score,
        'statistic': statistic,
        'columns': columns,
        'others': others,
        'ids': [str(row['id']) for row in rows],
    }
    if rows and 'cluster' in rows[0]:
        standard['clusters'] = [row['cluster'] for row in rows]
    of_paper = score
    if rows and metric not in CORRELATIONS:     # of which the paper has none
        of_paper = statistics.fmean(map(METRICS[kind].paper, rows))
    return name, {'standard': standard, 'paper': {'score': of_paper}}

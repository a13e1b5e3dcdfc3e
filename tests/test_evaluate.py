"""Scores against libraries that define them, intervals against scipy and simulation, the paper's cells."""
import csv
import gzip
import itertools
import json
import random
import re
import shutil
import warnings

import numpy as np
import pytest
import pytrec_eval
import scipy.stats
import seqeval.metrics
import seqeval.scheme
import sklearn.metrics

import evaluate
import simulation
from conftest import ROOT, one_line_error, ran, refused, run_script
from nanoencoder.files import sha256, write_sealed
from nanoencoder.judging import figures, losses, metrics, paper, predictions as packing, statistics
from nanoencoder.tasks import retrieval

LABELS = ['O', 'B-PER', 'I-PER', 'B-LOC', 'I-LOC']


# ------------------------------------------------------------------------------------------------- entities
@pytest.mark.parametrize('scheme', ['conlleval', 'IOB2'])
def test_entities_and_f1_equal_seqeval(scheme):
    """Of random tag sequences, legal or not."""
    strict, options = getattr(seqeval.scheme, scheme, None), {}
    for seed in range(300):
        draw = random.Random(seed)
        golds = [draw.choices(LABELS, k=draw.randint(1, 8)) for _ in range(20)]
        preds = [[tag if draw.random() < 0.6 else draw.choice(LABELS) for tag in tags] for tags in golds]
        for tags in golds:
            if strict:
                options = {'mode': 'strict', 'scheme': strict}
                entities = seqeval.scheme.Tokens(tags, strict).entities
                theirs = {(entity.tag, entity.start, entity.end) for entity in entities}
            else:
                chunks = seqeval.metrics.sequence_labeling.get_entities(tags)
                theirs = {(kind, start, end + 1) for kind, start, end in chunks}
            assert metrics.entities(tags, *[scheme] * bool(strict)) == theirs, tags     # else the default
        rows = [{'id': k, 'gold': gold, 'pred': pred} for k, (gold, pred) in enumerate(zip(golds, preds))]
        ours = metrics.both_scores('TC', rows)[1]['standard']
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            theirs = seqeval.metrics.f1_score(golds, preds, **options)
        ours = ours['others']['strict IOB2 F1'] if strict else ours['score']
        assert ours == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize('tags, chunks', [  # worked by hand from the rules of the CoNLL-2000 script
    (['I-PER', 'I-PER', 'O'], {('PER', 0, 2)}),                        # IOB1: I- begins after O
    (['I-PER', 'B-PER'], {('PER', 0, 1), ('PER', 1, 2)}),              # IOB1: B- where two of a type touch
    (['B-PER', 'I-LOC'], {('PER', 0, 1), ('LOC', 1, 2)}),              # another type begins a new chunk
    (['B-LOC', 'I-LOC', 'O', 'I-LOC'], {('LOC', 0, 2), ('LOC', 3, 4)})])
def test_conlleval_rules(tags, chunks):
    assert metrics.entities(tags) == chunks


def test_macro_f1_and_accuracy_equal_sklearn():
    draw = random.Random(2)
    for _ in range(1_000):
        n = draw.randint(1, 12)
        golds, preds = ([draw.choice('abcO') for _ in range(n)] for _ in range(2))
        assert metrics.macro_f1(golds, preds) == pytest.approx(
            sklearn.metrics.f1_score(golds, preds, average='macro', zero_division=0), abs=1e-12)
        rows = [{'id': 0, 'gold': gold, 'pred': pred} for gold, pred in zip(golds, preds)]
        assert score('SC', rows) == pytest.approx(sklearn.metrics.accuracy_score(golds, preds))
        assert score('SC', rows, metric='Matthews') == pytest.approx(
            sklearn.metrics.matthews_corrcoef(golds, preds), abs=1e-9)


@pytest.mark.filterwarnings('ignore')       # scipy's, of constants
def test_correlations_equal_scipy_with_ties_and_constants():
    """Where scipy gives nan, of a constant, the score is 0."""
    draw, seen = np.random.default_rng(4), 0
    for k in range(1_000):
        n, levels = draw.integers(2, 60), draw.choice([1, 2, 5, 10 ** 6])
        golds = draw.integers(0, levels, n) / 5 + draw.choice([0.0, 1e6])
        noise = draw.normal(size=n).round(draw.integers(0, 7)) * (k % 7 > 0)
        preds = draw.choice([0, 0.3, 1]) * golds + noise
        rows = [{'id': 0, 'gold': gold, 'pred': pred} for gold, pred in zip(golds, preds)]
        for name, judge in (('Pearson', scipy.stats.pearsonr), ('Spearman', scipy.stats.spearmanr)):
            theirs = np.nan_to_num(judge(golds, preds).statistic)
            assert score('SC', rows, metric=name) == pytest.approx(theirs, abs=1e-9)
            seen += theirs == 0
    assert seen > 100


def score(kind, rows, **settings):
    return metrics.both_scores(kind, rows, **settings)[1]['standard']['score']


# -------------------------------------------------------------------------------------------------- answers
WORDS = ['the', 'a', 'The', 'cat', 'cat,', 'Cat!', 'sat', '42', 'An', "it's", '  ', 'é', '—', '.', 'mat']


def test_answers_equal_torchmetrics_squad():
    """Its squad is the v1.1 script; random answers with articles, punctuation, case, and nothing at all."""
    from torchmetrics.functional.text.squad import (_compute_exact_match_score, _compute_f1_score,
                                                    _metric_max_over_ground_truths)
    draw = random.Random(3)
    for _ in range(5_000):
        pred, *golds = (' '.join(draw.choices(WORDS, k=draw.randint(1, 4)))
                        for _ in range(draw.randint(2, 4)))
        golds = [gold for gold in golds if metrics.normalise(gold)] or ['cat']
        if not metrics.normalise(pred):
            continue  # v1.1 has no empty answers; v2's rule is tested below
        theirs = [float(_metric_max_over_ground_truths(score, pred, golds))
                  for score in (_compute_f1_score, _compute_exact_match_score)]
        assert metrics.answer_scores(pred, golds) == pytest.approx(tuple(theirs))


@pytest.mark.parametrize('pred, golds, exact, f1', [  # worked by hand from the official scripts
    ('the Cat sat', ['cat sat.'], 1, 1),
    ('cat sat', ['the cat', 'sat mat'], 0, 2 / 3),          # the cat is "cat": 2 x 1 / (2 + 1)
    ('cat cat', ['cat'], 0, 2 / 3),                         # counted as often as both have it
    ('', [], 1, 1), ('cat', [], 0, 0), ('', ['cat'], 0, 0),
    ('the', [], 1, 1),                                      # nothing is left of an article
    # golds that normalise to nothing count only alone
    ('', ['the', 'cat'], 0, 0), ('', ['the'], 1, 1)])
def test_squad_v2_by_hand(pred, golds, exact, f1):
    assert metrics.answer_scores(pred, golds) == (pytest.approx(f1), exact)


def test_answered_and_unanswered_questions_are_scored_apart():
    rows = [{'id': 0, 'golds': ['cat'], 'pred': 'cat'}, {'id': 1, 'golds': ['cat sat'], 'pred': 'cat'},
            {'id': 2, 'golds': [], 'pred': ''}, {'id': 3, 'golds': [], 'pred': 'mat'},
            {'id': 4, 'golds': [], 'pred': ''}]
    others = metrics.both_scores('QA', rows)[1]['standard']['others']
    assert score('QA', rows) == pytest.approx((1 + 2 / 3 + 1 + 0 + 1) / 5)
    assert others == {'exact': 3 / 5, 'HasAns exact': 1 / 2, 'HasAns F1': pytest.approx(5 / 6),
                      'HasAns questions': 2, 'NoAns exact': 2 / 3, 'NoAns F1': 2 / 3, 'NoAns questions': 3}


# ------------------------------------------------------------------------------------------------- rankings
def rankings(count, seed, graded):
    """(grades, {document: score}) with many ties, unjudged documents and relevant ones that are not found."""
    draw = random.Random(seed)
    for _ in range(count):
        documents = [f'd{k}' for k in range(draw.randint(1, 30))]
        judged = draw.sample(documents, draw.randint(1, len(documents)))
        grades = {document: draw.randint(-1, 3 if graded else 1) for document in judged}
        grades['d0'] = 1
        yield grades, {document: draw.choice([0.1, 0.2, 0.3, 0.7, draw.random()]) for document in documents}


def ranked(grades, scores):
    """The row of predictions of a query, and one with all documents that tie with the tenth."""
    ids = sorted(sorted(scores, reverse=True), key=scores.get, reverse=True)
    row = retrieval.ranking({'id': 'q', 'grades': grades}, ids, [*map(scores.get, ids)])
    listed = [document for document in ids if scores[document] >= row['scores'][-1]]
    return row, {'id': 'q', 'gold': grades, 'docs': listed, 'scores': [*map(scores.get, listed)]}


@pytest.mark.parametrize('graded', [False, True])
def test_ndcg_equals_trec_eval_and_the_papers_sklearn(graded):
    """The paper's averages over ties, also those that the tenth rank cuts through."""
    cut = 0
    for grades, scores in rankings(2_000, 4, graded):
        scores = {document: round(score, 6) for document, score in scores.items()}
        evaluator = pytrec_eval.RelevanceEvaluator({'q': grades}, {'ndcg_cut.10'})
        theirs = evaluator.evaluate({'q': scores})['q']['ndcg_cut_10']
        row, whole = ranked(grades, scores)
        assert metrics.ndcg(row) == metrics.ndcg(whole) == pytest.approx(theirs, abs=1e-9)
        if len(scores) < 2:
            continue
        cut += 'tied' in row
        gains = [max(0, grades.get(document, 0)) for document in scores]
        theirs = sklearn.metrics.ndcg_score([gains], [[*scores.values()]], k=10)
        wanted = pytest.approx(theirs, abs=1e-9)
        assert metrics.ndcg(row, ties=True) == wanted and metrics.ndcg(whole, ties=True) == wanted
        assert metrics.both_scores('IR', [row]) == metrics.both_scores('IR', [whole])
    assert cut > 500


# ------------------------------------------------------------------------------------------------ intervals
def test_bootstrap_of_means_and_of_a_ratio_equals_scipy():
    """Micro F1 is the ratio of two sums over instances that are resampled together."""
    draw = np.random.default_rng(6)
    below = draw.integers(0, 6, 250).astype(float)
    for above, under in ((draw.random(200), 1), ((draw.random(300) < 0.8).astype(float), 1),
                         (draw.lognormal(size=150), 1), (np.floor(below * draw.random(250)), below)):
        under = under * np.ones_like(above)
        theirs = scipy.stats.bootstrap(
            (above, under), lambda a, b, axis: a.sum(axis) / b.sum(axis), paired=True, n_resamples=40_000,
            method='percentile', rng=1).confidence_interval
        terms = np.array([above, under])[:, None]
        ours = np.percentile(statistics.bootstrap('ratio', terms, resamples=40_000)[:, 0], [2.5, 97.5])
        tolerance = 0.02 * (theirs.high - theirs.low) + 1.01 / len(above) * (above.max() == 1)
        assert ours == pytest.approx(tuple(theirs), abs=tolerance)
    both = statistics.bootstrap('ratio', np.array([[above] * 2, [below] * 2]), resamples=500)
    assert np.array_equal(both[:, 0], both[:, 1])  # the same instances for all seeds


def cell(model, scores, cfg, seeds=None, dataset='d', **more):
    """The Cell of (S, N) scores, or of a row's (pretraining seeds, fine-tunings, N)."""
    scored = [*zip(seeds or range(len(scores)), scores)]
    scored = [(seed, None, each) for seed, each in scored] if scores.ndim == 2 else [
        (10 * origin + k, origin, each) for origin, tuned in scored for k, each in enumerate(tuned)]
    ids, runs = [*map(str, range(scores.shape[-1]))], []
    for seed, origin, each in scored:
        content = {'ids': ids, 'statistic': 'ratio', 'columns': [each, np.ones_like(each)]}
        runs.append(statistics.Run(model, 'SC', dataset, 1e-4, seed, 0.0, float(each.mean()), origin=origin,
                                   instances=lambda split, content=content: content, **more))
    return statistics.make_cell(runs, cfg)


def difference(a, b, cfg, **more):
    return statistics.estimate([[(1, b), (-1, a)]], cfg, **more)


@pytest.mark.parametrize('seeds', [1, 3, 5])
def test_intervals_hold_what_they_say(seeds):
    """Scores with a spread over instances, over seeds (which a single seed cannot show), and of both."""
    random_ = np.random.default_rng(9)
    held, trials, n = 0, 600, 60
    for trial in range(trials):
        hard = random_.normal(0, 0.2, n)  # what instances have in common in all seeds
        luck = random_.normal(0, 0.03, (seeds, 1)) if seeds > 1 else np.zeros((1, 1))
        scores = 0.6 + hard + luck + random_.normal(0, 0.05, (seeds, n))
        own = cell('m', scores, evaluate.Settings(resamples=1_000, seed=trial), dataset=f'd{trial}')
        held += own.low <= 0.6 <= own.high
    assert 0.93 <= held / trials <= 0.975, held / trials


def two_way(values):
    """(MS of seeds, of instances, of both) of a two-way analysis of variance, element by element."""
    S, N = values.shape
    mean, of_seeds, of_instances = values.mean(), values.mean(1), values.mean(0)
    rest = sum((values[s, i] - of_seeds[s] - of_instances[i] + mean) ** 2 for s in range(S) for i in range(N))
    return (N * sum((x - mean) ** 2 for x in of_seeds) / (S - 1),
            S * sum((x - mean) ** 2 for x in of_instances) / (N - 1), rest / ((S - 1) * (N - 1)))


def test_variances_are_those_of_the_closed_form():
    """By hand, a two-way analysis of variance: MS_I / SN is the draws', (MS_S - 2/3 MS_R) / SN the rest."""
    random_, cfg = np.random.default_rng(13), evaluate.Settings(resamples=20_000)
    S, N = 5, 80
    values = (random_.normal(0, 0.1, N) + random_.normal(0, 0.05, (S, 1)) + random_.normal(0.6, 0.2, (S, N)))
    MS_S, MS_I, MS_R = two_way(values)
    own = cell('m', values, cfg)
    noise = statistics.seed_noise(values)
    assert noise == pytest.approx(MS_R / N, rel=1e-9)
    assert np.var(list(own.scores.values()), ddof=1) == pytest.approx(MS_S / N, rel=1e-9)
    assert own.draws.mean(0).var() == pytest.approx(MS_I / (S * N), rel=0.05)
    seeds = statistics.with_seeds(np.zeros(20_000), [(own.scores.values(), noise)], cfg)
    half = scipy.stats.t.ppf(0.975, S - 1) * np.sqrt((MS_S - 2 / 3 * MS_R) / (S * N))
    assert np.diff(np.percentile(seeds, [2.5, 97.5])).item() == pytest.approx(2 * half, rel=0.05)
    assert (own.high - own.low) / 2 == pytest.approx(simulation.closed_form(values)[1], rel=0.15)
    # seeds that agree narrow the draws over instances
    S, N = 3, 300
    values = np.random.default_rng(17).normal(0.5, 0.2, (S, N))
    values += 0.5 - values.mean(1, keepdims=True)
    MS_S, MS_I, MS_R = two_way(values)
    own = cell('m', values, cfg)
    half = 1.96 * np.sqrt((MS_I + MS_S - MS_R / 2) / (S * N))
    assert MS_S < 1e-9 and (own.high - own.low) / 2 == pytest.approx(half, rel=0.03)


@pytest.mark.parametrize('scores', [(0.5, 0.6), (0.5, 0.52, 0.6)])
def test_the_interval_of_few_seeds_is_students(scores):
    """Of seeds that answer all instances alike it is mean +- t s / sqrt(S), whatever is drawn."""
    half = scipy.stats.t.ppf(0.975, len(scores) - 1) * scipy.stats.sem(scores)
    for seed in range(5):
        draws = statistics.with_seeds(np.zeros(10_000), [(scores, 0.0)], evaluate.Settings(seed=seed))
        assert np.percentile(draws, [2.5, 97.5]) == pytest.approx([-half, half], rel=5e-3)


def test_influence_values_of_f1():
    """Their mean is F1 itself, and their variance over N that of the bootstrap."""
    random_ = np.random.default_rng(14)
    below = random_.integers(0, 6, (3, 400)).astype(float)
    above = np.floor(below * random_.random((3, 400)))
    values = statistics.instance_values('ratio', np.array([above, below]))
    assert values.mean(1) == pytest.approx(above.sum(1) / below.sum(1), rel=1e-9)
    F = above[0].sum() / below[0].sum()
    assert values[0, 7] == pytest.approx(F + 400 * (above[0, 7] - F * below[0, 7]) / below[0].sum())
    draws = statistics.bootstrap('ratio', np.array([above, below]), resamples=20_000)
    assert values.var(1) / 400 == pytest.approx(draws.var(0), rel=0.06)
    assert (statistics.instance_values('ratio', np.zeros((2, 2, 5))) == 0).all()   # no entity at all


def test_different_metrics_are_not_compared():
    cfg = evaluate.Settings(resamples=200)
    cells = [cell(metric, np.array([[1, 0]]), cfg, metric=metric) for metric in ('accuracy', 'Matthews')]
    refused('different metrics', difference, *cells, cfg)


def test_paired_test_under_the_null_and_not():
    random_, cfg = np.random.default_rng(10), evaluate.Settings(resamples=1_000)

    def model(name, shift, hard, seeds=range(5)):
        scores = hard + shift + random_.normal(0, 0.1, (5, len(hard))) + random_.normal(0, 0.01, (5, 1))
        return cell(name, scores, cfg, seeds)
    for others in (range(5), range(5, 10)):     # the same seeds, and others: paired in instances alone
        p_values = []
        for _ in range(200):
            hard = random_.normal(0.5, 0.3, 80)
            p_values.append(difference(model('a', 0, hard), model('b', 0, hard, others), cfg).p)
        assert 0.01 < np.mean(np.array(p_values) < 0.05) < 0.09
        assert 0.4 < np.median(p_values) < 0.6
        hard = random_.normal(0.5, 0.3, 80)
        result = difference(model('a', 0, hard), model('b', 0.1, hard, others), cfg)
        assert 0 < result.low < 0.1 < result.high and result.p < 0.01


def test_one_seed_has_no_p_value(predictions):
    """Another seed may turn the sign. A baseline has no seed that could turn out otherwise."""
    random_, cfg = np.random.default_rng(15), evaluate.Settings(resamples=500)
    hard = random_.random((1, 300))
    one, five = cell('a', hard, cfg), cell('b', hard + random_.normal(0, 0.1, (5, 300)), cfg)
    assert difference(one, one, cfg).p is None and difference(one, five, cfg).p is None
    baseline = cell('c', hard, cfg, method='baseline')
    assert difference(baseline, five, cfg).p and difference(baseline, baseline, cfg).p == 1
    for path in (predictions / 'predictions').glob('*/SC/toy/*_sd[12]'):
        shutil.rmtree(path)
    shown = told(predictions, 'compare', 'poor', 'good')
    assert 'p =' not in shown and 'no p value' in shown and 'another seed may turn the sign' in shown


def test_an_average_shares_the_seeds_that_all_have():
    """A seed that is lucky on both datasets is lucky in their average."""
    random_, cfg = np.random.default_rng(16), evaluate.Settings(resamples=20_000)
    scores = 0.5 + np.array([[-0.1], [0.0], [0.1]]) + random_.normal(0, 0.01, (2, 3, 200))

    def average(first, second):
        return statistics.average([cell('m', scores[k][list(seeds)], cfg, seeds=seeds, dataset='de'[k])
                                   for k, seeds in enumerate((first, second))], cfg)
    mean = average((0, 1, 2), (0, 1, 2))
    assert mean.mean == pytest.approx(scores.mean()) and set(mean.scores) == {0, 1, 2}
    half = scipy.stats.t.ppf(0.975, 2) * 0.1 / np.sqrt(3)
    assert (mean.high - mean.low) / 2 == pytest.approx(half, rel=0.05)
    fewer, both = average((0, 1, 2), (1, 2)), average((1, 2), (1, 2))
    assert (fewer.mean, fewer.low, fewer.high) == (both.mean, both.low, both.high)


# -------------------------------------------------------------------------------- several pretraining seeds
def study(seed, S=6, F=3, N=200):
    """(S, F, N) scores: instances, pretrainings and fine-tunings have a share, and both with instances."""
    normal = np.random.default_rng(seed).normal
    return (normal(0.6, 0.2, N) + normal(0, 0.02, (S, 1, 1)) + normal(0, 0.02, (S, F, 1))
            + normal(0, 0.1, (S, 1, N)) + normal(0, 0.1, (S, F, N)))


def test_fine_tunings_are_averaged_and_pretraining_seeds_are_the_unit():
    """Mean, units and both intervals against means of fine-tunings, scipy, the closed form by hand."""
    cfg, a, b = evaluate.Settings(resamples=20_000), study(20), study(21)
    a, b = (values + np.linspace(0, 0.3, 200) for values in (a, b))     # instances that both share
    cells = cell('a', a, cfg), cell('b', b, cfg)
    assert cells[1].unit == 'pretraining' and cells[1].seeds == '6 x 3' and len(cells[1].scores) == 6
    result = difference(*cells, cfg)
    d = (b - a).mean(1)                                                 # (pretraining seeds, instances)
    assert result.unit == 'pretraining' and result.n == 200 and list(result.units) == list(range(6))
    assert list(result.units.values()) == pytest.approx(d.mean(1).tolist(), abs=1e-6)
    assert result.mean == pytest.approx(d.mean(), abs=1e-6)
    theirs = scipy.stats.ttest_1samp(d.mean(1), 0).confidence_interval()
    assert result[3:5] == pytest.approx(tuple(theirs), abs=1e-5)
    mean, half = simulation.closed_form(d)
    MS_S, MS_I, MS_R = two_way(d)
    V = max(MS_S + MS_I - MS_R, MS_S, MS_I) / d.size
    nu = (V * d.size) ** 2 / (MS_S ** 2 / 5 + MS_I ** 2 / 199 + MS_R ** 2 / (5 * 199))
    assert (mean, half) == pytest.approx((d.mean(), scipy.stats.t.ppf(0.975, nu) * np.sqrt(V)))
    assert (result.high - result.low) / 2 == pytest.approx(half, rel=0.15)
    assert cells[1].mean == pytest.approx(b.mean(), abs=1e-6) and cells[1].low < b.mean() < cells[1].high


def test_one_pretraining_seed_speaks_of_one_model():
    cfg = evaluate.Settings(resamples=500)
    one, six = cell('a', study(22)[:1], cfg), cell('b', study(23), cfg)
    assert one.unit == 'fine-tuning' and one.seeds == '3' and list(one.scores) == [0, 1, 2]
    for other in (one, six):
        result = difference(one, other, cfg)
        assert result.unit == 'fine-tuning' and result.p
    floor = cell('untrained', study(24)[0], cfg)      # has seen none, of which another could be another
    gain = difference(floor, six, cfg)
    assert gain.unit == 'pretraining' and list(gain.units) == list(range(6))
    assert gain.units[2] == pytest.approx(six.scores[2] - floor.mean, abs=1e-6)
    assert np.mean(list(gain.units.values())) == pytest.approx(gain.mean)


def test_units_that_arms_share_and_units_of_their_own():
    """The common pretraining seeds, if at least two; else each arm's own share, by Welch's interval."""
    cfg = evaluate.Settings(resamples=500)
    a, b = study(25), study(26)
    first, three = cell('a', a, cfg), cell('b', b[2:5], cfg, (2, 3, 4))
    fewer = difference(first, three, cfg)
    same = difference(cell('a', a[2:5], cfg, (2, 3, 4)), three, cfg)
    assert list(fewer.units) == [2, 3, 4] and fewer[:6] == same[:6]
    others = difference(first, cell('b', b[:4], cfg, (5, 6, 7, 8)), cfg)
    assert others.units == {} and others.mean == pytest.approx(b[:4].mean() - a.mean(), abs=1e-6)
    theirs = scipy.stats.ttest_ind(b[:4].mean((1, 2)), a.mean((1, 2)), equal_var=False).confidence_interval()
    assert others[3:5] == pytest.approx(tuple(theirs), abs=1e-5)
    without = difference(first, cell('b', b, cfg), cfg, without=(0, 1, 5))
    assert without[:6] == same[:6]


def test_contrasts_are_linear_and_of_several_datasets():
    """A weighted sum of three arms on two datasets: units, noise and the variance of draws are its own."""
    cfg, weights = evaluate.Settings(resamples=20_000), (1, -0.25, -0.75)
    scores = {name: [study(30 + 3 * k + arm, N=100 + 50 * k) for arm in range(3)]
              for k, name in enumerate('de')}
    parts = [[(weight, cell(str(arm), values, cfg, dataset=name))
              for arm, (weight, values) in enumerate(zip(weights, own))] for name, own in scores.items()]
    result = statistics.estimate(parts, cfg)
    values = [sum(weight * each.mean(1) for weight, each in zip(weights, own)) for own in scores.values()]
    by_unit = (values[0].mean(1) + values[1].mean(1)) / 2
    assert list(result.units.values()) == pytest.approx(by_unit.tolist(), abs=1e-6) and result.n == 250
    S, noise = 6, sum(two_way(own)[2] / own.shape[1] for own in values) / 4
    drawn = sum(own.mean(0).var() / own.shape[1] for own in values) / 4
    share = (by_unit.var(ddof=1) - noise * (S - 1) / (S + 1)) / S
    assert share > 0 and result.draws.var() == pytest.approx(drawn + share * 5 / 3, rel=0.1)    # t's, of 5


@pytest.mark.slow
@pytest.mark.parametrize('metric, seeds, spread, n, each', [
    ('accuracy', 3, 0.15, 300, 1), ('F1', 5, 0.5, 300, 1), ('NDCG@10', 5, 0.15, 300, 1),
    ('accuracy', 3, 0.5, 900, 3), ('F1', 6, 0.15, 900, 3), ('NDCG@10', 8, 0.5, 900, 3)])
def test_coverage(metric, seeds, spread, n, each):
    """Cells of tests/simulation.py: intervals hold 93 to 97 %, and 3 to 7 % of equal models differ."""
    results = simulation.simulate(metric, seeds, spread, n, simulation.Settings(each=each))
    assert simulation.within(results['now']), results
    if each == 1:   # beside seeds' variance added whole
        assert results['sum'][2] < 3.5 and results['sum'][2] < results['now'][2]
    else:           # pretraining seeds, of three fine-tunings each, beside the closed form
        assert np.abs(results['now'] - results['closed form']).max() < 3, results


def test_the_papers_cells_from_its_own_runs():
    """A seed's only run has no validation score there, and a run that is not chosen no test score."""
    runs = [statistics.Run(row['model'], row['task'], row['dataset'], float(row['lr']), int(row['seed']),
                           *(float(row[split] or 'nan') for split in statistics.SCORED))
            for row in csv.DictReader((ROOT / 'tests/authors_runs.csv').open())]
    cfg, problems = evaluate.Settings(protocol='paper'), []
    cells = statistics.make_cells(runs, cfg, problems)
    texts = dict(zip(cells, evaluate.frame_of(cells, cfg)['shown']))
    assert len(texts) == 5 and texts['210m-clm-42k', 'SC', 'Average'] == '82.80 (0.02)' and not problems
    for (model, task, dataset), text in texts.items():
        mean, half = paper.published(model, task, dataset, texts)
        assert text == f'{mean:.2f} ({half:.2f})'


def test_the_tables_averages_and_the_numbers_beside_a_claim_are_the_papers():
    numbers = paper.numbers()
    for (model, task, dataset), (mean, _) in numbers.items():
        others = [value for key, (value, _) in numbers.items()
                  if key[:2] == (model, task) and key[2] != 'Average']
        assert dataset != 'Average' or len(others) == 3 and np.mean(others) == pytest.approx(mean, abs=0.011)
    published = {(model, kind) for model, kind, _ in numbers}
    for claim in paper.claims().values():
        for first, second, kinds in claim['differences']:
            assert {(first, kind) for kind in kinds} | {(second, kind) for kind in kinds} <= published


# ----------------------------------------------------------------------------------------- folders, commands
def write_run(folder, rows, **about):
    """A run as finetune.py leaves it, without its predictions; rows of both splits, or {split: rows}."""
    rows = rows if isinstance(rows, dict) else dict.fromkeys(statistics.SCORED, rows)
    scores = {split: metrics.both_scores(folder.parts[-3], own, 'IOB2') for split, own in rows.items()}
    folder.mkdir(parents=True)
    content = {'name': scores['test'][0]} | {split: content for split, (_, content) in scores.items()}
    (folder / 'scores.json').write_text(json.dumps(content))
    facts = {'method': 'fine-tuned', 'sha256': {'scores.json': sha256(folder / 'scores.json')}}
    (folder / 'run.json').write_text(json.dumps(facts | {'weights': 'fp32'} | about))


def change(folder, **about):
    for path in folder.rglob('run.json'):
        path.write_text(json.dumps(json.loads(path.read_text()) | about))


def answers(right, count=200, draw=None):
    """So many right answers, the first ones; or as a random draw has it."""
    places = [draw.random() * count if draw else k for k in range(count)]
    preds = ['yes' if place < right else 'no' for place in places]
    return [{'id': k, 'gold': 'yes', 'pred': pred} for k, pred in enumerate(preds)]


@pytest.fixture
def predictions(tmp_path):
    """Two models x two learning rates x three seeds on one task."""
    draw = random.Random(11)
    for model, right in (('good', 180), ('poor', 120)):
        for lr, worse in (('1e-04', 0), ('1e-03', 40)):
            for seed in range(3):
                write_run(tmp_path / f'predictions/{model}/SC/toy/lr{lr}_sd{seed}',
                          answers(right - worse, draw=draw))
    return tmp_path


def options(folder, *more):
    return [f'--predictions={folder}/predictions', f'--out={folder}/figures', '--resamples=500', *more]


def told(folder, *words):
    """What a command, which ends well, says of a folder's predictions."""
    return ran('evaluate.py', *words, *options(folder)).stdout


@pytest.mark.parametrize('command', [['table'], ['compare', 'poor', 'good']])
def test_a_flipped_bit_in_scores_is_named(predictions, command):
    path = predictions / 'predictions/good/SC/toy/lr1e-04_sd1/scores.json'
    path.write_bytes(path.read_bytes().replace(b'1.0, 1.0', b'0.0, 1.0', 1))     # in valid JSON
    one_line_error(run_script('evaluate.py', *command, *options(predictions)),
                   f'{path}: changed since it was written; remove its folder, and fine-tune again')


PAST = {'phases': [['mlm', 6]], 'mask_ratio': 0.4, 'step': 6, 'flops': 1.0, 'continues': '',
        'fixed': {'lr': 1}}


@pytest.fixture
def rows_of_a_study(tmp_path):
    """Two rows x three pretraining seeds x two learning rates x two fine-tuning seeds; and a floor."""
    draw = random.Random(12)
    for row, right in (('mlm', 120), ('clm', 160)):
        for seed, lr, k in itertools.product(range(3), (1e-4, 1e-3), range(2)):
            write_run(tmp_path / f'predictions/{row}-s{seed}/SC/toy/lr{lr:.0e}_sd{10 * seed + k}',
                      answers(right - 20_000 * lr, draw=draw), settings={'steps': 5}, data='d' * 64,
                      pretraining=PAST | {'phases': [[row, 6]], 'row': row, 'seed': seed},
                      checkpoint=f'{row} {seed}', tokenizer='k' * 64, sizes={'layers': 2},
                      training_data='t' * 64,
                      grid=[[1e-4, 1e-3], [10 * seed, 10 * seed + 1]])
    for k in range(2):
        write_run(tmp_path / f'predictions/untrained/SC/toy/lr1e-04_sd{k}', answers(100, draw=draw),
                  settings={'steps': 5}, data='d' * 64)
    return tmp_path


def test_rows_are_models_and_folders_are_complete(rows_of_a_study):
    for folder, row in (('clm-s0-probe', 'clm'), ('clm-s1', 'clm'), ('mine', '')):
        for method, lr in (('probe', '0e+00'), ('fine-tuned', '1e-04'))[:2 if folder == 'mine' else 1]:
            write_run(rows_of_a_study / f'predictions/{folder}/SC/toy/lr{lr}_sd0', answers(90), method=method,
                      data='d' * 64, pretraining=PAST | {'row': row, 'seed': int('s1' in folder)})
    shown = told(rows_of_a_study, 'table')
    assert all(re.search(rf'\n{name}-probe +probe', shown) for name in ('clm', 'mine')) and '\nmine ' in shown
    printed = told(rows_of_a_study, 'table', '--format=csv')
    methods = {row['model']: row['method'] for row in csv.DictReader(printed.splitlines())}
    assert (methods['mine'], methods['mine-probe'], methods['clm-probe']) == ('fine-tuned', 'probe', 'probe')
    lines = {line.split()[0]: line for line in shown.splitlines() if line}
    assert '  3 x 2  ' in lines['clm'] and '  3 x 2  ' in lines['mlm'] and '  2  ' in lines['untrained']
    compared = told(rows_of_a_study, 'compare', 'mlm', 'clm')
    assert '3 x 2 and 3 x 2 seeds' in compared and 'the difference is of' not in compared + shown
    (rows_of_a_study / 'predictions/mlm-s1').rename(rows_of_a_study / 'elsewhere')
    note = 'note: the difference is of seeds 0, 2, which both have'
    assert note in told(rows_of_a_study, 'compare', 'mlm', 'clm') and 'clm-s0' not in shown
    folder = rows_of_a_study / 'predictions/clm-s1/SC/toy'
    for name in ('lr1e-03_sd10', 'lr1e-03_sd11'):
        shutil.rmtree(folder / name)
    missed = run_script('evaluate.py', 'table', *options(rows_of_a_study, '--models=("clm",)'))
    assert missed.returncode == 1 and missed.stderr.count('warning') == 1, missed.stderr
    assert 'clm-s1/SC/toy: missing lr1e-03_sd10, lr1e-03_sd11' in missed.stderr
    assert '\nclm ' in missed.stdout and 'mlm' not in missed.stdout


@pytest.mark.parametrize('about, words', [
    ({'pretraining': PAST | {'phases': [['clm', 9]], 'row': 'clm', 'seed': 1}}, 'differ in phases'),
    ({'pretraining': PAST | {'phases': [['clm', 6]], 'row': 'clm', 'seed': 1, 'fixed': {'lr': 2, 'seed': 1}}},
     'differ in lr of pretraining'),
    ({'settings': {'steps': 7}}, 'differ in steps'), ({'data': 'other'}, 'differ in data'),
    ({'training_data': 'other'}, 'differ in training_data'), ({'tokenizer': 'other'}, 'differ in tokenizer'),
    ({'sizes': {'layers': 3}}, 'differ in sizes'), ({'checkpoint': 'other'}, None),
    ({'training_data': None, 'tokenizer': None, 'sizes': None, 'checkpoint': None}, None),     # as older ones
    ({'pretraining': PAST | {'phases': [['clm', 6]], 'row': 'clm', 'seed': 0}}, 'differ in checkpoint'),
    ({'pretraining': PAST | {'phases': [['clm', 6]], 'row': 'clm', 'seed': 0}, 'checkpoint': 'clm 0'}, None)])
def test_runs_of_a_row_differ_in_seeds_alone(rows_of_a_study, about, words):
    change(rows_of_a_study / 'predictions/clm-s1', **about)
    shown = run_script('evaluate.py', 'table', *options(rows_of_a_study))
    assert (shown.returncode == 1) == bool(words), shown.stderr
    assert '\nmlm' in shown.stdout
    assert not words or f'clm/SC/toy is left out: its runs {words}' in shown.stderr


@pytest.mark.parametrize('row', ['clm', ''])
def test_runs_of_different_weights_are_not_seeds_of_one_model(rows_of_a_study, row):
    """Whether they were pretrained with one seed, or come without a word on that; packed, too."""
    study, name = rows_of_a_study / 'study', row or 'hub'
    shutil.copytree(rows_of_a_study / 'predictions', study / 'runs')
    past = {'pretraining': PAST | {'phases': [['clm', 6]], 'row': row, 'seed': 7}} if row else {}
    for seed in range(2):
        write_run(study / f'runs/{name}-s7/SC/toy/lr1e-04_sd{70 + seed}', answers(90), settings={'steps': 5},
                  data='d' * 64, checkpoint=f'of seed {seed}', **past)
    name = row or 'hub-s7'
    words = ['table', '--resamples=500', f'--predictions={study}/runs', f'--models=("{name}", "mlm")']
    for packed in (False, True):
        shown = run_script('evaluate.py', *words)
        assert shown.returncode == 1 and '\nmlm' in shown.stdout and f'\n{name}' not in shown.stdout
        assert f'{name}/SC/toy is left out: its runs differ in checkpoint; give them other' in shown.stderr
        if not packed:
            assert pack(study).returncode == 0
            for folder in (study / 'runs').glob('*/'):
                shutil.rmtree(folder)


def test_the_held_out_splits(tmp_path):
    """Each is scored at the rate that the other one chose; both together are their instances joined."""
    for lr, validation, test in (('1e-04', 60, 10), ('1e-03', 50, 20)):
        for seed in range(2):
            write_run(tmp_path / f'predictions/m/SC/toy/lr{lr}_sd{seed}', {
                'validation': answers(validation, 100), 'test': answers(test + 2 * seed, 60)})

    def cell_of(split):
        cfg = evaluate.Settings(predictions=str(tmp_path / 'predictions'), resamples=200, split=split)
        (cell,) = statistics.make_cells(evaluate.read_runs(cfg, []), cfg, []).values()
        return cell
    test, validation, both = map(cell_of, ('test', 'validation', 'both'))
    assert test.mean == pytest.approx((10 + 12) / 2 / 60) and {run.lr for run in test.runs} == {1e-4}
    assert validation.mean == pytest.approx(0.5) and {run.lr for run in validation.runs} == {1e-3}
    assert both.scores == pytest.approx({0: (10 + 50) / 160, 1: (12 + 50) / 160})
    assert [cell.runs[0].n for cell in (test, validation, both)] == [60, 100, 160]
    assert both.values.shape == (2, 160) and {run.lr for run in both.runs} == {1e-4, 1e-3}
    refused('different data', difference, validation, test, evaluate.Settings(resamples=200))


def pack(folder, *more):
    return run_script('evaluate.py', 'pack', folder, *more)


def test_a_packed_study_is_the_same_study(rows_of_a_study):
    """Tables and tests of packed runs are those of their folders; each pack adds what is new."""
    study = rows_of_a_study / 'study'
    shutil.copytree(rows_of_a_study / 'predictions', study / 'runs')
    asked = [('table',), ('table', '--split=both'), ('table', '--protocol=paper'), ('compare', 'mlm', 'clm')]

    def shown():
        return [ran('evaluate.py', *words, f'--predictions={study}/runs', '--resamples=500').stdout
                for words in asked]
    before = shown()
    assert pack(study).stdout.strip().endswith('study: 26 runs')
    files = {path: path.read_bytes() for path in (*study.glob('runs/*.gz'), *study.glob('*.*'))}
    assert sorted(path.name for path in files) == [
        'other.jsonl.gz', 's0.jsonl.gz', 's1.jsonl.gz', 's2.jsonl.gz', 'scores.csv', 'sha256.json']
    lines = files[study / 'scores.csv'].decode().splitlines()
    assert len(lines) == 27 and lines[0].split(',') == list(packing.COLUMNS)
    first = next(line for line in lines if line.startswith('clm,1,SC,toy,accuracy,1e-03,11,200,'))
    assert first.endswith(',clm-s1') and lines[-1].startswith('untrained,,SC,toy,accuracy,1e-04,1,200,0.')
    for folder in (study / 'runs').iterdir():
        if folder.is_dir() and folder.name != 'clm-s1':
            shutil.rmtree(folder)
    assert pack(study).returncode == 0 and all(path.read_bytes() == old for path, old in files.items())
    shutil.rmtree(study / 'runs/clm-s1/SC/toy/lr1e-03_sd11')
    assert shown() == before
    (study / 'sha256.json').unlink()    # as a pack that was killed leaves it
    assert pack(study).returncode == 0 and all(path.read_bytes() == old for path, old in files.items())
    one_line_error(pack(study, '--split=both'), 'pack FOLDER without settings')


def everything(folder):
    return {path: path.read_bytes() for path in folder.rglob('*')
            if path.is_file() and path.suffix not in ('.lock', '.gz') and path.name != 'sha256.json'}


@pytest.mark.parametrize('seed', ['../../../../evil', '1', 1.5, [1]])
def test_no_file_is_named_by_a_seed_that_is_no_number(rows_of_a_study, seed):
    study = rows_of_a_study / 'deep/er/study'
    shutil.copytree(rows_of_a_study / 'predictions', study / 'runs')
    folder = study / 'runs/clm-s1/SC/toy/lr1e-03_sd10'
    change(folder, pretraining=PAST | {'phases': [['clm', 6]], 'row': 'clm', 'seed': seed})
    before = everything(rows_of_a_study)
    one_line_error(pack(study), f'{folder}/run.json: seed of pretraining is .*, which is no number')
    assert everything(rows_of_a_study) == before and not [*rows_of_a_study.rglob('*.gz')]


def test_names_in_packs_and_their_listing_stay_in_the_study(rows_of_a_study):
    study = rows_of_a_study / 'study'
    shutil.copytree(rows_of_a_study / 'predictions', study / 'runs')
    assert pack(study).returncode == 0
    listing, path = study / 'sha256.json', study / 'runs/s1.jsonl.gz'
    digests = json.loads(listing.read_text())
    words = 'table', f'--predictions={study}/runs'
    (rows_of_a_study / 'elsewhere').write_text('a')
    listing.write_text(json.dumps(digests | {'../elsewhere': sha256(rows_of_a_study / 'elsewhere')}))
    one_line_error(run_script('evaluate.py', *words), f"{listing}: '..' must be the plain name of a file")
    first, *others = gzip.open(path).read().splitlines()
    line = json.loads(first)
    line['run'] = '../../elsewhere/SC/toy/lr1e-04_sd0'
    path.write_bytes(gzip.compress(b'\n'.join([json.dumps(line).encode(), *others])))
    listing.write_text(json.dumps(digests | {'runs/s1.jsonl.gz': sha256(path)}))
    one_line_error(run_script('evaluate.py', *words), f"{path}: '..' must be the plain name of a file")
    path.unlink()
    one_line_error(run_script('evaluate.py', *words), f'{path}: No such file; restore it')


def test_an_edited_run_json_is_named(predictions):
    folder = predictions / 'predictions/good/SC/toy/lr1e-04_sd1'
    content = json.loads((folder / 'run.json').read_text())
    write_sealed(folder / 'run.json', content | {'settings': {'steps': 5}})
    (folder / 'run.json').write_text((folder / 'run.json').read_text().replace('"steps": 5', '"steps": 6'))
    one_line_error(run_script('evaluate.py', 'table', *options(predictions)),
                   f'{folder}/run.json: changed since it was written; remove its folder, and fine-tune again')


def test_the_studies_in_git_are_as_they_were_packed(tmp_path):
    """And packed again they are the same bytes."""
    for name in ('small', 'small_tuning', 'novels'):
        folder = ROOT / 'studies' / name
        packing.check_packed(folder / 'runs')
        digests = json.loads((folder / 'sha256.json').read_text())
        packed = {f'runs/{path.name}' for path in folder.glob('runs/*.gz')}
        assert {*digests} == packed | {'losses.csv', 'scores.csv'}
    again = shutil.copytree(folder, tmp_path / 'again')
    assert pack(again).stdout.strip().endswith('again: 74 runs')
    for name in (*digests, 'sha256.json'):
        assert (again / name).read_bytes() == (folder / name).read_bytes(), name


def test_results_of_the_authors_are_read_and_never_written(predictions):
    """Beside ours; retrieval's name what was trained on."""
    for name, score in (('SC/toy/lr1e-04_sd0', 0.75), ('IR/nq/msmarco_pairs_lr1e-04_sd0', 0.5)):
        scores, folder = {'score': score, 'scores_i': [score] * 40}, predictions / 'results/theirs' / name
        folder.mkdir(parents=True)
        (folder / 'results.json').write_text(json.dumps({'validation': scores, 'test': scores}))
    before = {path: path.read_bytes() for path in (predictions / 'results').rglob('*.json')}
    words = [*options(predictions), f'--results={predictions}/results']
    shown = ran('evaluate.py', 'table', *words, '--protocol=paper').stdout
    assert all(part in shown for part in ('75.00 (one seed)', '\ngood', '50.00 (one seed)', 'n=40'))
    assert {path: path.read_bytes() for path in (predictions / 'results').rglob('*.*')} == before
    one_line_error(run_script('evaluate.py', 'table', *words), 'take --protocol=paper')
    folder, words = predictions / 'results/theirs/SC/toy', ['table', *words, '--protocol=paper']
    path = folder / 'lr1e-04_sd0/results.json'
    complete = path.read_text()
    path.write_text(json.dumps({'validation': json.loads(complete)['validation']}))
    one_line_error(run_script('evaluate.py', *words), 'results.json: lacks "score" or "scores_i" of test')
    path.write_text(complete)
    (folder / 'lr1e-04_sd0').rename(folder / 'first')
    one_line_error(run_script('evaluate.py', *words), 'toy/first: not named as a run')


def test_tables_compare_and_figures(predictions):
    result = ran('evaluate.py', 'table', *options(predictions))
    assert not result.stderr and 'n=200' in result.stdout
    good, poor = (line.split() for line in result.stdout.splitlines() if line.startswith(('good', 'poor')))
    assert good[2] == '1e-04' and float(good[3]) > 80 > float(poor[3])      # the rate that validation chose
    lines = told(predictions, 'table', '--format=csv').splitlines()
    assert lines[0].startswith('model,task,dataset,metric,mean,low,high,n,seeds,lr') and len(lines) == 3
    alone = ran('evaluate.py', 'table', '--published', f'--predictions={predictions}/none').stdout
    assert '210m-clm-42k' in alone and '90.00 (0.30)' in alone
    of_paper, compared = (told(predictions, *words) for words in (
        ('table', '--protocol=paper'), ('compare', 'poor', 'good')))
    assert 'macro F1 over word labels' in of_paper and '(' in of_paper
    assert 'SC toy' in compared and '+' in compared
    mixed = ran('evaluate.py', 'table', '--published', f'--predictions={predictions}/predictions')
    assert '90.00 (0.30)' in mixed.stdout and 'good' not in mixed.stdout and 'stand alone' in mixed.stderr
    for name in figures.AGAINST.keys() - {'tokens', 'rate'}:
        ran('evaluate.py', 'figure', name, *options(predictions)[:2], '--published')
        assert (predictions / f'figures/{name}.png').stat().st_size > 5_000


def test_a_figure_of_rates_has_a_score_at_each_rate(tmp_path, monkeypatch):
    """Of the packed grid that chose the rates: means by hand from scores.csv, and of two seeds their range."""
    drawn = {}
    monkeypatch.setattr(figures, 'save', lambda figure, path: drawn.update({path.name: figure}))
    cfg = evaluate.Settings(predictions=str(ROOT / 'studies/small_tuning/runs'), out=str(tmp_path),
                            models=('tune-clm-3600', 'tune-mlm-3600'), datasets=('docs_ir',), resamples=100)
    evaluate.figure(cfg, 'rate', [])
    lines = csv.DictReader((ROOT / 'studies/small_tuning/scores.csv').open())
    wanted = {}
    for line in lines:
        if line['model'] in cfg.models and line['dataset'] == 'docs_ir':
            scores = wanted.setdefault((line['model'], float(line['lr'])), [])
            scores.append(100 * float(line['test']))
    axes, = drawn['rate.png'].axes
    assert len(wanted) == 8 and len(axes.containers) == 2
    for model, bars in zip(cfg.models, axes.containers):
        shown = bars.lines[0].get_xydata().tolist()
        ranges = bars.lines[2][0].get_segments()
        assert [rate for rate, _ in shown] == [5e-4, 1e-3, 2e-3, 4e-3]
        for (rate, mean), ends in zip(shown, ranges):
            scores = wanted[model, rate]
            assert mean == pytest.approx(np.mean(scores), abs=1e-3)
            assert ends[:, 1].tolist() == pytest.approx(sorted(scores), abs=1e-3)


def test_a_figure_is_drawn_of_intervals_without_width():
    """Whose mean may lie outside by rounding; and of one seed, which has none."""
    ends = [(50 + 1e-14, 50 + 1e-14), (50 - 1e-14, 50 - 1e-14), (40, 60), (np.nan, np.nan)]
    for name, places in (('steps', [(100, 0.4), (200, 0.4), (300, 0.4), (400, 0.4)]),
                         ('ratio', [(400, 0.1), (400, 0.2), (400, 0.3), (400, 0.4)])):
        points = [('m', {'phases': [('mlm', 400)], 'mask_ratio': ratio, 'step': step}, 'SC', 50.0, *interval)
                  for (step, ratio), interval in zip(places, ends)]
        bars, = figures.against(name, points).axes[0].collections
        lengths = [np.ptp(bar[:, 1]) for bar in bars.get_segments() if len(bar)]
        assert sorted(lengths)[-1] == 20 and sorted(lengths)[-2] < 1e-13


def test_figures_know_phases_that_are_run_through_again():
    about = {'phases': [('clm', 1), ('mlm', 3)], 'repeat': 100, 'mask_ratio': 0.4, 'step': 400, 'flops': 1.0}
    assert [figures.place(name, about)[1] for name in ('share', 'ratio', 'steps')] == [25, 40, 400]
    assert figures.place('tokens', about | {'tokens': 800}) == (' CLM and MLM 40% in turn', 800)
    assert figures.place('ratio', about | {'phases': [('clm', 100), ('mdlm', 300)], 'repeat': 1}) is None
    assert figures.place('share', about | {'step': 4}) is None  # not at its end
    points = [(model, about, 'SC', 50, 40, 60) for model in ('m', 'm+causal', 'm+causal-probe')]
    names = [text.get_text() for text in figures.against('ratio', points).legends[0].texts]
    assert names == ['CLM and MLM in turn, 400 steps' + more for more in ('', ', causal', ', causal, probe')]


def test_a_run_of_a_row_is_named_as_such(rows_of_a_study):
    one_line_error(run_script('evaluate.py', 'compare', 'mlm-s1', 'clm', *options(rows_of_a_study)),
                   'mlm-s1 is a run of the row mlm, which has all its seeds; name the row$')
    result = run_script('evaluate.py', 'table', '--models=mlm,clm-s2,cml', *options(rows_of_a_study))
    assert result.returncode == 1 and 'clm-s2 is a run of the row clm' in result.stderr
    assert 'warning: there is no cml\n' in result.stderr


def test_one_answer_to_everything_is_said_to_be_that(predictions):
    """"O" for each word has an entity F1 of 0 and an interval without width."""
    rows = {'empty': [{'id': k, 'gold': ['O', 'B-X'], 'pred': ['O', 'O']} for k in range(9)]}
    rows['right'] = [row | {'pred': row['gold']} for row in rows['empty']]
    for model, seed in itertools.product(rows, range(2)):
        write_run(predictions / f'predictions/{model}/TC/tags/lr1e-04_sd{seed}', rows[model])
    words = '0 whatever is drawn: it predicts the same for every instance, or nothing that is right\n'
    compared = told(predictions, 'compare', 'empty', 'right')
    assert f'note: empty: {words}' in compared and 'note: right' not in compared
    shown = told(predictions, 'table')
    assert f'\nempty on tags: {words}' in shown and shown.count('whatever is drawn') == 1


def test_compare_says_what_else_differs_and_tests_baselines(predictions):
    for model, steps in (('poor', 20), ('good', 500)):
        settings = {'steps': steps, 'max_length': 507, 'seed': steps}
        change(predictions / f'predictions/{model}', settings=settings)
        write_run(predictions / f'predictions/{model}-b/SC/toy/lr0e+00_sd0', answers(steps / 10, 100),
                  method='baseline')
    shown = told(predictions, 'compare', 'poor', 'good')
    assert 'note: steps 20 -> 500\n' in shown and 'max_length' not in shown and 'seed ' not in shown
    shown = told(predictions, 'compare', 'poor-b', 'good-b')
    assert '+48.0 [' in shown and 'p <= ' in shown and 'nan' not in shown


@pytest.mark.parametrize('words, part', [
    ([], 'the command is'), (['tabel'], 'the command is'), (['report'], 'the command is'),
    (['table', '--protocol=papr'], 'protocol is one of'),
    (['table', '--protocol=paper', '--split=both'], 'scores test alone'),
    (['table', '--predictions=nowhere'], 'nowhere: no runs there'),
    (['figure', 'pie'], 'figure is one of'),
    (['compare', 'a', 'b', '--predictions=nowhere'], 'no runs there'),
    (['losses', 'nowhere'], 'nowhere/config.json: No such file'), (['losses'], 'losses FOLDERS'),
    (['table', '--resamples=1000000000000'], 'resamples must be from 100 to 1000000')])
def test_bad_commands_get_one_line(words, part):
    one_line_error(run_script('evaluate.py', *words), part)


# ---------------------------------------------------------------------------------------- pretraining's logs
def write_log(folder, phases, lines, **config):
    folder.mkdir(parents=True)
    meta = {'fingerprint': 'f' * 64, 'unigram_loss': 6.5}
    config = {'name': folder.name, 'phases': phases, 'corpus_meta': meta, 'starts': [{'step': 0}], 'seed': 1,
              'row': 'r', 'branch_from': ''} | config
    (folder / 'config.json').write_text(json.dumps(config))
    with open(folder / 'log.jsonl', 'w') as file:
        for line in lines:
            step = {'loss': 5.0, 'grad_norm': 0.5, 'tokens': 8 * line['step'], 'tokens_per_second': 100.0,
                    'phase': 'clm', 'lr': 0.1, 'seconds': 1.0, 'rows': f'{line["step"]:012x}'}
            file.write(json.dumps(step | line) + '\n')
        file.write('{"step": ')     # a line that is being written


@pytest.fixture
def runs(tmp_path):
    """MLM, and CLM then MLM as a branch of CLM, with a validation each fourth step."""
    def lines(steps, loss):
        held_out = {step: {'val_clm_loss': 9.0 - loss, 'val_mlm_loss': loss - step / 100}
                    for step in steps if step % 4 == 0}
        return [{'step': step} | held_out.get(step, {}) for step in steps]
    out = tmp_path / 'out'
    write_log(out / 'mlm', [['mlm', 12]], lines(range(1, 13), 5.0))
    write_log(out / 'clm', [['clm', 12]], [line | {'loss': 7.0} for line in lines(range(1, 13), 8.0)])
    write_log(out / 'both', [['clm', 6], ['mlm', 6]], lines(range(7, 13), 4.0),
              branch_from=str(out / 'clm/6'), starts=[{'step': 6}])
    (out / 'clm/6').mkdir()
    return out


def test_losses(runs):
    lines = ran('evaluate.py', 'losses', runs / 'mlm', runs / 'both', f'--out={runs}').stdout.splitlines()
    assert (runs / 'losses.png').stat().st_size > 5_000
    assert lines[0].split() == 'run phases step tokens tokens/s val_clm_loss val_mlm_loss'.split()
    assert '4.880' in lines[1] and '3.880' in lines[2] and '6.500' in lines[3]
    past = runs / 'past.csv'
    past.write_text('row,seed,step,tokens,val_mlm_loss\n'
                    'r,1,4,32,5.0\nr,0,4,32,5.2\nr,0,6,48,1.0\nother,0,8,64,1.0\n')
    line, = ran('evaluate.py', 'losses', runs / 'mlm', f'--beside={past}').stdout.splitlines()
    assert line.split(': ')[1:] == ['4.960; r with this seed 5.000; 2 seeds 5.100, sd 0.141', '-1.0 sd']
    past.write_text(past.read_text().replace(',32,', ',16,'))   # of half the rows a step
    result = run_script('evaluate.py', 'losses', runs / 'mlm', f'--beside={past}')
    one_line_error(result, 'mlm: has seen 32 tokens after 4 steps, r in .*past.csv 16: with another rows_per')
    past.write_text('row,seed,step,tokens,val_mlm_loss\nother,0,4,32,5.0\n')
    result = run_script('evaluate.py', 'losses', runs / 'mlm', f'--beside={past}')
    one_line_error(result, "past.csv: has no row 'r' that was measured at steps of ")
    result = run_script('evaluate.py', 'losses', runs / 'mlm', runs / 'both', f'--beside={past}')
    one_line_error(result, 'the command is table')
    write_log(runs / 'unseen', [['clm', 2]], [{'step': 1}, {'step': 2}],
              corpus_meta={'fingerprint': 'f' * 64, 'unigram_loss': None})     # no held-out text
    assert len(ran('evaluate.py', 'losses', runs / 'unseen', f'--out={runs}').stdout.splitlines()) == 3


def test_plateau_by_hand():
    """After 100 losses of 6.4 nats, as frequencies give, 11 of 5 are enough: 39 * 6.4 + 55 < 305."""
    config = {'corpus_meta': {'unigram_loss': 6.4}}
    lines = [{'step': step, 'phase': 'clm' if step <= 20 else 'mlm', 'loss': 6.4 if 20 < step <= 120 else 5.0}
             for step in range(1, 200)]
    assert losses.plateau(config, lines) == 131 and losses.plateau(config, lines[:130]) is None
    assert losses.plateau({'corpus_meta': {'unigram_loss': None}}, lines) is None


def test_losses_of_a_study(runs, tmp_path):
    """A line a validation: of a branch with its parent's. What was there stays, as an older file's flops."""
    (tmp_path / 'losses.csv').write_text('folder,row,seed,step,tokens,flops,seconds,train_loss,val_mlm_loss\n'
                                         'a-s0,a,0,4,32,1e9,1.5,5.000000,6.000000\n')
    write_run(tmp_path / 'runs/m/SC/toy/lr1e-04_sd0', [{'id': 0, 'gold': 'a', 'pred': 'a'}])
    assert pack(tmp_path).returncode == 0
    with open(tmp_path / 'losses.csv') as file:
        (old, *rows) = csv.DictReader(file)
    assert (old['folder'], old['flops'], old['val_clm_loss'], rows[0]['flops']) == ('a-s0', '1e9', '', '')
    assert [(row['folder'], row['step']) for row in rows] == [
        (name, step) for name in ('both', 'clm', 'mlm') for step in ('4', '8', '12')]
    first, last = rows[0], rows[-1]
    assert (first['val_mlm_loss'], first['row'], first['seed']) == ('7.960000', 'r', '1')      # of its parent
    assert (last['val_mlm_loss'], last['train_loss'], last['tokens']) == ('4.880000', '5.000000', '96')
    before = (tmp_path / 'losses.csv').read_bytes()
    shutil.rmtree(runs / 'mlm')
    for more in ([], [runs / 'both']):
        assert pack(tmp_path, *more).returncode == 0 and (tmp_path / 'losses.csv').read_bytes() == before
    shutil.rmtree(runs / 'clm')     # a branch without its parent has its own lines, and is not packed again
    assert pack(tmp_path, runs / 'both').returncode == 0 and (tmp_path / 'losses.csv').read_bytes() == before
    _, lines = losses.read_log(runs / 'both', with_parent=True)
    assert [line['step'] for line in lines] == [7, 8, 9, 10, 11, 12]
    (runs / 'both/log.jsonl').write_text('[]\n')
    one_line_error(pack(tmp_path, runs / 'both'), 'both/log.jsonl: has a row that is no step of a run')
    assert (tmp_path / 'sha256.json').exists()      # what is packed stays listed

"""Scores against libraries that define them, intervals against scipy and simulation, and what commands say."""
import csv
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
from conftest import ROOT, one_line_error, ran, refused, run_process, run_script
from nanoencoder import figures, metrics
from nanoencoder.files import read_json, write_json, write_sealed
from nanoencoder.predictions import SCORED, write_run
from nanoencoder.tasks import retrieval

LABELS = ['O', 'B-PER', 'I-PER', 'B-LOC', 'I-LOC']


def standard(task, golds, preds, **settings):
    rows = [{'id': k, 'gold': gold, 'pred': pred} for k, (gold, pred) in enumerate(zip(golds, preds))]
    return metrics.both_scores(task, rows, **settings)[1]['standard']


# ------------------------------------------------------------------------------------------- labels and entities
def changed(tags, draw):
    return [tag if draw.random() < 0.6 else draw.choice(LABELS) for tag in tags]


def test_entity_f1_equals_seqeval():
    """Of random tag sequences, legal or not."""
    for seed in range(150):
        draw = random.Random(seed)
        golds = [draw.choices(LABELS, k=draw.randint(1, 8)) for _ in range(20)]
        preds = [changed(tags, draw) for tags in golds]
        ours = standard('TC', golds, preds)
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            conlleval = seqeval.metrics.f1_score(golds, preds)
            strict = seqeval.metrics.f1_score(golds, preds, mode='strict', scheme=seqeval.scheme.IOB2)
        assert ours['score'] == pytest.approx(conlleval, abs=1e-12)
        assert ours['others']['strict IOB2 F1'] == pytest.approx(strict, abs=1e-12)


@pytest.mark.parametrize('tags, chunks', [  # worked by hand from the rules of the CoNLL-2000 script
    (['I-PER', 'I-PER', 'O'], {('PER', 0, 2)}),                        # IOB1: I- begins after O
    (['I-PER', 'B-PER'], {('PER', 0, 1), ('PER', 1, 2)}),              # IOB1: B- where two of a type touch
    (['B-PER', 'I-LOC'], {('PER', 0, 1), ('LOC', 1, 2)}),              # another type begins a new chunk
    (['B-LOC', 'I-LOC', 'O', 'I-LOC'], {('LOC', 0, 2), ('LOC', 3, 4)})])
def test_conlleval_rules(tags, chunks):
    assert metrics.entities(tags) == chunks


def test_scores_of_labels_equal_sklearn():
    draw = random.Random(2)
    for _ in range(1_000):
        size = draw.randint(1, 12)
        golds = draw.choices('abcO', k=size)
        preds = draw.choices('abcO', k=size)
        ours = standard('SC', golds, preds)
        macro = sklearn.metrics.f1_score(golds, preds, average='macro', zero_division=0)
        matthews = sklearn.metrics.matthews_corrcoef(golds, preds)
        assert ours['score'] == pytest.approx(sklearn.metrics.accuracy_score(golds, preds))
        assert ours['others']['macro F1'] == pytest.approx(macro, abs=1e-12)
        assert standard('SC', golds, preds, metric='Matthews')['score'] == pytest.approx(matthews, abs=1e-9)


@pytest.mark.filterwarnings('ignore')       # scipy's, of constants
@pytest.mark.parametrize('name, judge', [('Pearson', scipy.stats.pearsonr), ('Spearman', scipy.stats.spearmanr)])
def test_correlations_equal_scipy_with_ties_and_constants(name, judge):
    """Where scipy gives nan, of a constant, the score is 0."""
    draw = np.random.default_rng(4)
    zeros = 0
    for k in range(500):
        n = draw.integers(2, 60)
        golds = draw.integers(0, draw.choice([1, 2, 5, 10 ** 6]), n) / 5 + draw.choice([0.0, 1e6])
        preds = draw.choice([0, 0.3, 1]) * golds
        if k % 7:
            preds += draw.normal(size=n).round(draw.integers(0, 7))
        theirs = np.nan_to_num(judge(golds, preds).statistic)
        assert standard('SC', golds, preds, metric=name)['score'] == pytest.approx(theirs, abs=1e-9)
        zeros += theirs == 0
    assert zeros > 50


# ------------------------------------------------------------------------------------------------------- answers
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
        if metrics.normalise(pred):     # v1.1 has no empty answers; v2's rule is tested below
            f1 = _metric_max_over_ground_truths(_compute_f1_score, pred, golds)
            exact = _metric_max_over_ground_truths(_compute_exact_match_score, pred, golds)
            assert metrics.answer_scores(pred, golds) == pytest.approx((float(f1), float(exact)))


@pytest.mark.parametrize('pred, golds, exact, f1', [  # worked by hand from the official scripts
    ('the Cat sat', ['cat sat.'], 1, 1),
    ('cat sat', ['the cat', 'sat mat'], 0, 2 / 3),          # the cat is "cat": 2 x 1 / (2 + 1)
    ('cat cat', ['cat'], 0, 2 / 3),                         # counted as often as both have it
    ('', [], 1, 1), ('cat', [], 0, 0), ('', ['cat'], 0, 0),
    ('the', [], 1, 1),                                      # nothing is left of an article
    # golds that normalise to nothing count only if there are no others
    ('', ['the', 'cat'], 0, 0), ('', ['the'], 1, 1)])
def test_squad_v2_by_hand(pred, golds, exact, f1):
    assert metrics.answer_scores(pred, golds) == (pytest.approx(f1), exact)


def test_answered_and_unanswered_questions_are_scored_apart():
    answers = {'cat': 'cat', 'cat sat': 'cat'}      # {gold: predicted}
    rows = [{'id': gold, 'golds': [gold], 'pred': pred} for gold, pred in answers.items()]
    rows += [{'id': k, 'golds': [], 'pred': pred} for k, pred in enumerate(['', 'mat', ''])]
    ours = metrics.both_scores('QA', rows)[1]['standard']
    assert ours['score'] == pytest.approx((1 + 2 / 3 + 1 + 0 + 1) / 5)
    assert ours['others'] == {
        'exact': 3 / 5, 'HasAns exact': 1 / 2, 'HasAns F1': pytest.approx(5 / 6), 'HasAns questions': 2,
        'NoAns exact': 2 / 3, 'NoAns F1': 2 / 3, 'NoAns questions': 3}


# ------------------------------------------------------------------------------------------------------ rankings
def rankings(count, graded):
    """Yield (grades, {document: score}) with many ties, unjudged documents and relevant ones not found."""
    draw = random.Random(4)
    for _ in range(count):
        documents = [f'd{k}' for k in range(draw.randint(2, 30))]
        judged = draw.sample(documents, draw.randint(1, len(documents)))
        grades = {document: draw.randint(-1, 3 if graded else 1) for document in judged}
        grades['d0'] = 1
        scores = [draw.choice([0.1, 0.2, 0.3, 0.7, round(draw.random(), 6)]) for _ in documents]
        yield grades, dict(zip(documents, scores))


@pytest.mark.parametrize('graded', [False, True])
def test_ndcg_equals_trec_eval_and_the_papers_sklearn(graded):
    """The paper's averages over ties, also those that the tenth rank cuts through."""
    cut = 0
    for grades, scores in rankings(1_000, graded):
        ids = sorted(sorted(scores, reverse=True), key=scores.get, reverse=True)
        row = retrieval.ranking({'id': 'q', 'grades': grades}, ids, [*map(scores.get, ids)])
        evaluator = pytrec_eval.RelevanceEvaluator({'q': grades}, {'ndcg_cut.10'})
        trec = evaluator.evaluate({'q': scores})['q']['ndcg_cut_10']
        assert metrics.ndcg(row) == pytest.approx(trec, abs=1e-9)
        gains = [max(0, grades.get(document, 0)) for document in scores]
        averaged = sklearn.metrics.ndcg_score([gains], [[*scores.values()]], k=10)
        assert metrics.ndcg(row, ties=True) == pytest.approx(averaged, abs=1e-9)
        cut += 'tied' in row
    assert cut > 250


# ----------------------------------------------------------------------------------------------------- intervals
@pytest.mark.parametrize('above, below', [
    (np.random.default_rng(6).random(200), np.ones(200)),
    (np.random.default_rng(7).lognormal(size=150), np.ones(150)),
    (np.random.default_rng(8).integers(0, 3, 250), np.random.default_rng(8).integers(0, 3, 250) + 1)])
def test_bootstrap_equals_scipy(above, below):
    """Of means, and of a ratio of two sums, as micro F1, over instances that are resampled together."""
    theirs = scipy.stats.bootstrap(
        (above, below), lambda a, b, axis: a.sum(axis) / b.sum(axis), paired=True, n_resamples=20_000,
        method='percentile', rng=1).confidence_interval
    terms = np.array([[above, above], [below, below]], float)
    draws = evaluate.bootstrap('ratio', terms, resamples=20_000)
    assert np.array_equal(draws[:, 0], draws[:, 1])     # the same instances for all seeds
    tolerance = 0.03 * (theirs.high - theirs.low)
    assert np.percentile(draws[:, 0], [2.5, 97.5]) == pytest.approx(tuple(theirs), abs=tolerance)


def run_of(scores, dataset, seed, origin, method, metric):
    """An evaluate.Run of these scores, one an instance."""
    content = {'ids': [*map(str, range(len(scores)))], 'statistic': 'mean', 'columns': [scores]}
    mean = float(scores.mean())
    return evaluate.Run('untrained' if method == 'untrained' else 'm', 'SC', dataset, 1e-4, seed, mean, mean,
                        metric, len(scores), lambda split: content, {'method': method}, origin, '')


def cell(scores, cfg, seeds=range(9), dataset='d', method='', metric=''):
    """The Cell of (S, N) scores, or of a row's (pretraining seeds, fine-tunings, N)."""
    runs = []
    for seed, of_seed in zip(seeds, scores):
        if scores.ndim == 2:
            runs.append(run_of(of_seed, dataset, seed, None, method, metric))
        else:
            runs += [run_of(tuned, dataset, 10 * seed + k, seed, method, metric)
                     for k, tuned in enumerate(of_seed)]
    return evaluate.make_cell(runs, cfg)


def difference(a, b, cfg, **more):
    return evaluate.estimate([[(1, b), (-1, a)]], cfg, **more)


FEW = evaluate.Settings(resamples=500)
MANY = evaluate.Settings(resamples=20_000)


@pytest.mark.parametrize('seeds', [1, 3, 5])
def test_intervals_hold_what_they_say(seeds):
    """Scores with a spread over instances, over seeds (which a single seed cannot show), and of both."""
    normal = np.random.default_rng(9).normal
    held = 0
    for trial in range(600):
        luck = normal(0, 0.03, (seeds, 1)) if seeds > 1 else 0
        scores = 0.6 + normal(0, 0.2, 60) + luck + normal(0, 0.05, (seeds, 60))
        own = cell(scores, evaluate.Settings(resamples=1_000, seed=trial), dataset=f'd{trial}')
        held += own.low <= 0.6 <= own.high
    assert 0.93 <= held / 600 <= 0.975


def two_way(values):
    """(MS of seeds, of instances, of both) of a two-way analysis of variance."""
    S, N = values.shape
    of_seeds = values.mean(1, keepdims=True)
    of_instances = values.mean(0)
    rest = values - of_seeds - of_instances + values.mean()
    return N * of_seeds.var(ddof=1), S * of_instances.var(ddof=1), (rest ** 2).sum() / ((S - 1) * (N - 1))


def test_variances_are_those_of_the_closed_form():
    """MS_I / SN is that of the draws over instances; (MS_S - 2/3 MS_R) / SN is added, by Student's t."""
    normal = np.random.default_rng(13).normal
    S, N = 5, 80
    values = normal(0, 0.1, N) + normal(0, 0.05, (S, 1)) + normal(0.6, 0.2, (S, N))
    MS_S, MS_I, MS_R = two_way(values)
    own = cell(values, MANY)
    noise = evaluate.seed_noise(values)
    assert noise == pytest.approx(MS_R / N, rel=1e-9)
    assert own.draws.mean(0).var() == pytest.approx(MS_I / (S * N), rel=0.05)
    draws = evaluate.with_seeds(np.zeros(20_000), [(own.scores.values(), noise)], MANY)
    half = scipy.stats.t.ppf(0.975, S - 1) * np.sqrt((MS_S - 2 / 3 * MS_R) / (S * N))
    assert np.percentile(draws, [2.5, 97.5]) == pytest.approx([-half, half], rel=5e-3)
    assert (own.high - own.low) / 2 == pytest.approx(simulation.closed_form(values)[1], rel=0.15)


def test_seeds_that_agree_narrow_the_draws_over_instances():
    S, N = 3, 300
    values = np.random.default_rng(17).normal(0.5, 0.2, (S, N))
    values += 0.5 - values.mean(1, keepdims=True)
    _, MS_I, MS_R = two_way(values)
    own = cell(values, MANY)
    assert (own.high - own.low) / 2 == pytest.approx(1.96 * np.sqrt((MS_I - MS_R / 2) / (S * N)), rel=0.03)


def test_influence_values_of_f1():
    """Their mean is F1 itself, and their variance over N that of the bootstrap."""
    draw = np.random.default_rng(14)
    below = draw.integers(0, 6, (3, 400)).astype(float)
    above = np.floor(below * draw.random((3, 400)))
    terms = np.array([above, below])
    values = evaluate.instance_values('ratio', terms)
    assert values.mean(1) == pytest.approx(above.sum(1) / below.sum(1), rel=1e-9)
    draws = evaluate.bootstrap('ratio', terms, resamples=20_000)
    assert values.var(1) / 400 == pytest.approx(draws.var(0), rel=0.06)
    assert not evaluate.instance_values('ratio', np.zeros((2, 2, 5))).any()     # no entity at all


@pytest.mark.parametrize('seeds', [range(5), range(5, 10)])     # the same, and others: paired by instances
def test_paired_test_under_the_null_and_not(seeds):
    cfg = evaluate.Settings(resamples=1_000)
    normal = np.random.default_rng(10).normal

    def compared(shift):
        hard = normal(0.5, 0.3, 80)
        first, second = (hard + normal(0, 0.1, (5, 80)) + normal(0, 0.01, (5, 1)) for _ in range(2))
        return difference(cell(first, cfg), cell(second + shift, cfg, seeds), cfg)
    p_values = np.array([compared(0).p for _ in range(200)])
    assert 0.01 < np.mean(p_values < 0.05) < 0.09 and 0.4 < np.median(p_values) < 0.6
    result = compared(0.1)
    assert 0 < result.low < 0.1 < result.high and result.p < 0.01


def test_one_seed_has_no_p_value():
    """Another seed may turn the sign. A baseline has no seed that could turn out otherwise."""
    draw = np.random.default_rng(15)
    hard = draw.random((1, 300))
    one = cell(hard, FEW)
    five = cell(hard + draw.normal(0, 0.1, (5, 300)), FEW)
    baseline = cell(hard, FEW, method='baseline')
    assert difference(one, one, FEW).p is None and difference(one, five, FEW).p is None
    assert difference(baseline, five, FEW).p and difference(baseline, baseline, FEW).p == 1


def test_an_average_shares_the_seeds_that_all_have():
    """A seed that is lucky on both datasets is lucky in their average."""
    luck = np.array([[-0.1], [0.0], [0.1]])
    first, second = 0.5 + luck + np.random.default_rng(16).normal(0, 0.01, (2, 3, 200))
    both = evaluate.average([cell(first, MANY), cell(second, MANY, dataset='e')], MANY)
    assert both.mean == pytest.approx((first.mean() + second.mean()) / 2) and set(both.scores) == {0, 1, 2}
    half = scipy.stats.t.ppf(0.975, 2) * 0.1 / np.sqrt(3)
    assert (both.high - both.low) / 2 == pytest.approx(half, rel=0.05)
    fewer = evaluate.average([cell(first, MANY), cell(second[1:], MANY, (1, 2), 'e')], MANY)
    assert fewer.mean == pytest.approx((first[1:].mean() + second[1:].mean()) / 2) and set(fewer.scores) == {1, 2}


# ------------------------------------------------------------------------------------- several pretraining seeds
def study(seed, S=6, F=3, N=200):
    """(S, F, N) scores: instances, pretrainings and fine-tunings have a share, and both with instances."""
    normal = np.random.default_rng(seed).normal
    of_pretraining = normal(0, 0.02, (S, 1, 1)) + normal(0, 0.1, (S, 1, N))
    return normal(0.6, 0.2, N) + of_pretraining + normal(0, 0.02, (S, F, 1)) + normal(0, 0.1, (S, F, N))


def test_fine_tunings_are_averaged_and_pretraining_seeds_are_the_unit():
    """Mean, units and the interval over seeds against means of fine-tunings and scipy."""
    a = study(20)
    b = study(21)
    second = cell(b, MANY)
    assert second.unit == 'pretraining' and second.seeds == '6 x 3'
    result = difference(cell(a, MANY), second, MANY)
    d = (b - a).mean(1)                                                 # (pretraining seeds, instances)
    assert result.unit == 'pretraining' and result.n == 200
    assert result.units == pytest.approx(dict(enumerate(d.mean(1))), abs=1e-6)
    theirs = scipy.stats.ttest_1samp(d.mean(1), 0).confidence_interval()
    assert result[3:5] == pytest.approx(tuple(theirs), abs=1e-5)
    mean, half = simulation.closed_form(d)
    assert result.mean == pytest.approx(mean, abs=1e-6)
    assert (result.high - result.low) / 2 == pytest.approx(half, rel=0.15)


def test_one_pretraining_seed_speaks_of_one_model():
    one = cell(study(22)[:1], FEW)
    six = cell(study(23), FEW)
    assert one.unit == 'fine-tuning' and one.seeds == '3' and [*one.scores] == [0, 1, 2]
    assert difference(one, six, FEW).unit == 'fine-tuning'
    floor = cell(study(24)[0], FEW, method='untrained')     # has seen none, of which another could be another
    gain = difference(floor, six, FEW)
    assert gain.unit == 'pretraining'
    assert gain.units == pytest.approx({seed: score - floor.mean for seed, score in six.scores.items()})


def test_units_that_arms_share_and_units_of_their_own():
    """The common pretraining seeds, if at least two; else each arm's own share, by Welch's interval."""
    a = study(25)
    b = study(26)
    first = cell(a, FEW)
    three = cell(b[2:5], FEW, (2, 3, 4))
    same = difference(cell(a[2:5], FEW, (2, 3, 4)), three, FEW)
    assert [*same.units] == [2, 3, 4] and difference(first, three, FEW)[:6] == same[:6]
    assert difference(first, cell(b, FEW), FEW, without=(0, 1, 5))[:6] == same[:6]
    others = difference(first, cell(b[:4], FEW, (5, 6, 7, 8)), FEW)
    assert others.units == {} and others.mean == pytest.approx(b[:4].mean() - a.mean(), abs=1e-6)
    theirs = scipy.stats.ttest_ind(b[:4].mean((1, 2)), a.mean((1, 2)), equal_var=False).confidence_interval()
    assert others[3:5] == pytest.approx(tuple(theirs), abs=1e-5)


def test_contrasts_are_linear_and_of_several_datasets():
    """A weighted sum of three arms on two datasets: its own units, noise and variance of draws."""
    weights = np.array([1, -0.25, -0.75])
    parts = []
    values = []     # of each dataset, (pretraining seeds, instances) of the sum
    for k, dataset in enumerate('de'):
        scores = [study(30 + 3 * k + arm, N=100 + 50 * k) for arm in range(3)]
        parts.append([(weight, cell(own, MANY, dataset=dataset)) for weight, own in zip(weights, scores)])
        values.append(np.tensordot(weights, scores, 1).mean(1))
    result = evaluate.estimate(parts, MANY)
    by_unit = (values[0].mean(1) + values[1].mean(1)) / 2
    assert result.units == pytest.approx(dict(enumerate(by_unit)), abs=1e-6) and result.n == 250
    noise = sum(two_way(own)[2] / own.shape[1] for own in values) / 4
    drawn = sum(own.mean(0).var() / own.shape[1] for own in values) / 4
    share = (by_unit.var(ddof=1) - noise * 5 / 7) / 6
    assert share > 0 and result.draws.var() == pytest.approx(drawn + share * 5 / 3, rel=0.1)    # t's, of 5


@pytest.mark.slow
@pytest.mark.parametrize('metric, seeds, spread, n, each', [
    ('accuracy', 3, 0.15, 300, 1), ('F1', 5, 0.5, 300, 1), ('NDCG@10', 5, 0.15, 300, 1),
    ('accuracy', 3, 0.5, 900, 3), ('F1', 6, 0.15, 900, 3), ('NDCG@10', 8, 0.5, 900, 3)])
def test_coverage(metric, seeds, spread, n, each):
    """Cells of bench/simulation.py: intervals hold 93 to 97 %, and 3 to 7 % of equal models differ."""
    results = simulation.simulate(metric, seeds, spread, n, simulation.Settings(each=each))
    assert simulation.within(results['now']), results
    if each == 1:   # beside seeds' variance added whole
        assert results['sum'][2] < 3.5 and results['sum'][2] < results['now'][2]
    else:           # pretraining seeds, of three fine-tunings each, beside the closed form
        assert np.abs(results['now'] - results['closed form']).max() < 3, results

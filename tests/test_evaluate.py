"""Scores against the libraries and scripts that define them, intervals against scipy and simulation,
the paper's own cells."""
import gzip
import itertools
import json
import random
import re
import shutil
import time
import tracemalloc
import warnings

import numpy as np
import pytest
import pytrec_eval
import scipy.stats
import seqeval.metrics
import seqeval.scheme
import sklearn.metrics

import evaluate
import nanoencoder.judging.predictions
import nanoencoder.tasks.runs
import pretrain
import simulation
from conftest import ROOT, one_line_error, run_process, run_script
from nanoencoder import jobs, studies
from nanoencoder.pretraining import cost
from nanoencoder.judging import figures, intervals, losses, metrics, paper, protocols
from nanoencoder.durable import locked
from nanoencoder.settings import parse

LABELS = ['O', 'B-PER', 'I-PER', 'B-LOC', 'I-LOC']


def sentences(count, seed, longest=8):
    draw = random.Random(seed)
    return [[draw.choice(LABELS) for _ in range(draw.randint(1, longest))] for _ in range(count)]


# ------------------------------------------------------------------------------------------------- entities

@pytest.mark.parametrize('scheme', ['conlleval', 'IOB2', 'IOB1'])
def test_entities_equal_seqeval(scheme):
    """Thousands of random tag sequences, legal or not."""
    strict = {'IOB1': seqeval.scheme.IOB1, 'IOB2': seqeval.scheme.IOB2}
    for tags in sentences(6_000, 1):
        if scheme == 'conlleval':
            chunks = seqeval.metrics.sequence_labeling.get_entities(tags)
            theirs = {(kind, start, end + 1) for kind, start, end in chunks}
        else:
            tokens = seqeval.scheme.Tokens(tags, strict[scheme])
            theirs = {(entity.tag, entity.start, entity.end) for entity in tokens.entities}
        assert metrics.entities(tags, scheme) == theirs, tags


@pytest.mark.parametrize('scheme', ['conlleval', 'IOB2', 'IOB1'])
def test_entity_f1_equals_seqeval(scheme):
    options = {} if scheme == 'conlleval' else {'mode': 'strict', 'scheme': getattr(seqeval.scheme, scheme)}
    for seed in range(60):
        golds = sentences(20, seed)
        draw = random.Random(-seed)
        preds = [[tag if draw.random() < 0.6 else draw.choice(LABELS) for tag in tags] for tags in golds]
        counts = np.sum([metrics.entity_counts(*pair, scheme) for pair in zip(golds, preds)], 0)
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            theirs = seqeval.metrics.f1_score(golds, preds, **options)
        assert metrics.f1(*counts) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize('tags, chunks', [  # worked by hand from the rules of the CoNLL-2000 script
    (['I-PER', 'I-PER', 'O'], {('PER', 0, 2)}),                        # IOB1: I- begins after O
    (['I-PER', 'B-PER'], {('PER', 0, 1), ('PER', 1, 2)}),              # IOB1: B- where two of a type touch
    (['B-PER', 'B-PER'], {('PER', 0, 1), ('PER', 1, 2)}),
    (['B-PER', 'I-LOC'], {('PER', 0, 1), ('LOC', 1, 2)}),              # another type begins a new chunk
    (['B-LOC', 'I-LOC', 'O', 'I-LOC'], {('LOC', 0, 2), ('LOC', 3, 4)}),
    (['O', 'O'], set()),
])
def test_conlleval_rules(tags, chunks):
    assert metrics.entities(tags) == chunks


def test_bad_tags_are_named():
    for tag in ('X-PER', 'B', 'B-', 'E-LOC'):
        with pytest.raises(ValueError, match='neither O'):
            metrics.entities(['O', tag])


@pytest.mark.parametrize('count', [800, pytest.param(3_000, marks=pytest.mark.slow)])
def test_macro_f1_and_accuracy_equal_sklearn(count):
    draw = random.Random(2)
    for _ in range(count):
        n = draw.randint(1, 12)
        golds, preds = ([draw.choice('abcO') for _ in range(n)] for _ in range(2))
        assert metrics.macro_f1(golds, preds) == pytest.approx(
            sklearn.metrics.f1_score(golds, preds, average='macro', zero_division=0), abs=1e-12)
        rows = [{'id': 0, 'gold': gold, 'pred': pred} for gold, pred in zip(golds, preds)]
        name, numerators, denominators, others = metrics.standard_scores('SC', rows)
        accuracy = sklearn.metrics.accuracy_score(golds, preds)
        assert metrics.ratio(numerators, denominators) == pytest.approx(accuracy)


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
        for ours, theirs in ((metrics.token_f1, _compute_f1_score),
                             (metrics.exact_match, _compute_exact_match_score)):
            their_best = float(_metric_max_over_ground_truths(theirs, pred, golds))
            assert metrics.best(ours, pred, golds) == pytest.approx(their_best)


@pytest.mark.parametrize('pred, golds, exact, f1', [  # worked by hand from the official scripts
    ('the Cat sat', ['cat sat.'], 1, 1),
    ('cat sat', ['the cat', 'sat mat'], 0, 2 / 3),          # the cat is "cat": 2 x 1 / (2 + 1)
    ('cat cat', ['cat'], 0, 2 / 3),                         # counted as often as both have it
    ('', [], 1, 1), ('cat', [], 0, 0), ('', ['cat'], 0, 0),
    ('the', [], 1, 1),                                      # nothing is left of an article
    ('', ['the', 'cat'], 0, 0), ('', ['the'], 1, 1),        # golds that normalise to nothing count only alone
])
def test_squad_v2_by_hand(pred, golds, exact, f1):
    assert metrics.best(metrics.exact_match, pred, golds) == exact
    assert metrics.best(metrics.token_f1, pred, golds) == pytest.approx(f1)


def test_answered_and_unanswered_questions_are_scored_apart():
    rows = [{'id': 0, 'golds': ['cat'], 'pred': 'cat'}, {'id': 1, 'golds': ['cat sat'], 'pred': 'cat'},
            {'id': 2, 'golds': [], 'pred': ''}, {'id': 3, 'golds': [], 'pred': 'mat'},
            {'id': 4, 'golds': [], 'pred': ''}]
    name, numerators, denominators, others = metrics.standard_scores('QA', rows)
    assert metrics.ratio(numerators, denominators) == pytest.approx((1 + 2 / 3 + 1 + 0 + 1) / 5)
    assert others == {'exact': 3 / 5,
                      'HasAns exact': 1 / 2, 'HasAns F1': pytest.approx(5 / 6), 'HasAns questions': 2,
                      'NoAns exact': 2 / 3, 'NoAns F1': 2 / 3, 'NoAns questions': 3}


# ------------------------------------------------------------------------------------------------- rankings

def rankings(count, seed, graded):
    """(grades, {document: score}) with many ties, unjudged documents and relevant ones that are not found."""
    draw = random.Random(seed)
    for _ in range(count):
        documents = [f'd{k}' for k in range(draw.randint(1, 30))]
        judged = draw.sample(documents, draw.randint(1, len(documents)))
        grades = {document: draw.randint(0, 3 if graded else 1) for document in judged}
        grades['d0'] = 1
        yield grades, {document: draw.choice([0.1, 0.2, 0.3, 0.7, draw.random()]) for document in documents}


def ranked(grades, scores):
    """The row of predictions of a query, and as commit 7605c98 wrote it: with all that tie with the tenth."""
    ids = sorted(sorted(scores, reverse=True), key=scores.get, reverse=True)
    tenth = scores[ids[:10][-1]]
    listed = [document for document in ids if scores[document] >= tenth]
    old, row = ({'id': 'q', 'gold': grades, 'docs': docs, 'scores': [scores[document] for document in docs]}
                for docs in (listed, listed[:10]))
    if len(listed) > 10:
        tied = [document for document in listed if scores[document] == tenth]
        relevant = [grades[document] for document in tied if grades.get(document, 0) >= 1]
        row['tied'] = {'size': len(tied), 'grades': sorted(relevant, reverse=True)}
    return row, old


@pytest.mark.parametrize('graded', [False, True])
def test_ndcg_equals_trec_eval(graded):
    for grades, scores in rankings(2_000, 4, graded):
        scores = {document: round(score, 6) for document, score in scores.items()}
        evaluator = pytrec_eval.RelevanceEvaluator({'q': grades}, {'ndcg_cut.10'})
        theirs = evaluator.evaluate({'q': scores})['q']['ndcg_cut_10']
        row, old = ranked(grades, scores)
        ours = metrics.ndcg(grades, row['docs'])
        assert ours == metrics.ndcg(grades, old['docs']) == pytest.approx(theirs, abs=1e-9)


def test_the_papers_ndcg_equals_sklearn():
    """Which averages over ties, also those that the tenth rank cuts through."""
    cut = 0
    for grades, scores in rankings(2_000, 5, graded=True):
        if len(scores) < 2:
            continue
        scores = {document: round(score, 6) for document, score in scores.items()}
        order = sorted(scores)
        row, old = ranked(grades, scores)
        cut += 'tied' in row
        theirs = sklearn.metrics.ndcg_score([[grades.get(document, 0) for document in order]],
                                            [[scores[document] for document in order]], k=10)
        ours = metrics.ndcg_of_ties(grades, row['docs'], row['scores'], row.get('tied'))
        assert ours == pytest.approx(theirs, abs=1e-9)
        assert metrics.ndcg_of_ties(grades, old['docs'], old['scores']) == pytest.approx(theirs, abs=1e-9)
        assert metrics.KINDS['IR'].paper(row) == metrics.KINDS['IR'].paper(old)
    assert cut > 500


def test_ties_do_not_make_a_perfect_score():
    grades = {'d3': 1}
    row, _ = ranked(grades, {f'd{k}': 0.5 for k in range(9)})
    assert metrics.ndcg(grades, row['docs']) == pytest.approx(1 / np.log2(7))         # d8 first, d3 is sixth
    assert metrics.ndcg_of_ties(grades, row['docs'], row['scores']) < 0.6


# ------------------------------------------------------------------------------------------------ intervals

def test_bootstrap_equals_scipy():
    random_ = np.random.default_rng(6)
    for scores in (random_.random(200), (random_.random(300) < 0.8).astype(float),
                   random_.lognormal(size=150)):
        bootstrap = scipy.stats.bootstrap((scores,), np.mean, n_resamples=40_000, method='percentile', rng=1)
        theirs = bootstrap.confidence_interval
        ours = intervals.interval(intervals.bootstrap(scores, resamples=40_000)[:, 0])
        tolerance = 0.02 * (theirs.high - theirs.low) + 1.01 / len(scores) * (scores.max() == 1)
        assert ours == pytest.approx(tuple(theirs), abs=tolerance)


def test_bootstrap_of_a_ratio_equals_scipy():
    """Micro F1: the ratio of two sums over instances that are resampled together."""
    random_ = np.random.default_rng(7)
    below = random_.integers(0, 6, 250).astype(float)
    above = np.floor(below * random_.random(250))
    bootstrap = scipy.stats.bootstrap((above, below), lambda a, b, axis: a.sum(axis) / b.sum(axis),
                                      paired=True, n_resamples=20_000, method='percentile', rng=1)
    theirs = bootstrap.confidence_interval
    ours = intervals.interval(intervals.bootstrap(above, below, resamples=20_000)[:, 0])
    assert ours == pytest.approx(tuple(theirs), abs=0.03 * (theirs.high - theirs.low))
    both = intervals.bootstrap([above, above], [below, below], resamples=500)
    assert np.array_equal(both[:, 0], both[:, 1])  # the same instances for all seeds


def test_bootstrap_is_fast_and_small():
    scores = np.random.default_rng(8).random(3_000)
    intervals.bootstrap(scores, resamples=300)
    times = []
    for _ in range(3):
        began = time.perf_counter()
        intervals.bootstrap(scores)
        times.append(time.perf_counter() - began)
    tracemalloc.start()
    intervals.bootstrap(scores)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 * 2 ** 20
    assert min(times) < 1.5  # 0.2 s on an idle core; the machine may be busy


def content(above, below):
    return {'ids': [str(k) for k in range(len(above))], 'numerators': above, 'denominators': below}


def paired(a, b, cfg):
    """(low, high, p) of b - a."""
    result = intervals.contrast([[(1, b), (-1, a)]], cfg)
    return result.low, result.high, result.p


def cell(model, scores, cfg, seeds=None, kind='', dataset='d', below=None):
    """The Cell of (S, N) scores, or of numerators and denominators."""
    below = np.ones_like(scores) if below is None else below
    runs = [protocols.Run(model, 'SC', dataset, 1e-4, seed, 0.0, float(above.sum() / under.sum()), kind=kind,
                          instances=lambda split, own=content(above, under): own)
            for seed, above, under in zip(seeds or range(len(scores)), scores, below)]
    return protocols.make_cell(runs, cfg)


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


def test_the_noise_of_instances_is_counted_once():
    """Equal seeds, of which each draws its own noise on each instance: until now it came in by the draws over
    instances and again by the seeds' variance, and the median interval was twice as wide (three seeds)."""
    random_, cfg, widths = np.random.default_rng(12), evaluate.Settings(resamples=1_000), []
    for trial in range(100):
        own = cell('m', 0.5 + random_.normal(0, 0.2, (3, 200)), cfg)
        widths.append((own.high - own.low) / (2 * 1.96 * 0.2 / np.sqrt(3 * 200)))
    assert 1.0 < np.median(widths) < 1.6, np.median(widths)


def two_way(values):
    """(MS of seeds, of instances, of both) of a two-way analysis of variance, element by element."""
    S, N = values.shape
    mean, of_seeds, of_instances = values.mean(), values.mean(1), values.mean(0)
    rest = sum((values[s, i] - of_seeds[s] - of_instances[i] + mean) ** 2 for s in range(S) for i in range(N))
    return (N * sum((x - mean) ** 2 for x in of_seeds) / (S - 1),
            S * sum((x - mean) ** 2 for x in of_instances) / (N - 1), rest / ((S - 1) * (N - 1)))


def test_variances_are_those_of_the_closed_form():
    """V of a two-way analysis of variance by hand: MS_I / SN is the draws'.

    (MS_S - 2/3 MS_R) / SN is the rest.
    """
    random_, cfg = np.random.default_rng(13), evaluate.Settings(resamples=20_000)
    S, N = 5, 80
    values = (random_.normal(0, 0.1, N) + random_.normal(0, 0.05, (S, 1)) + random_.normal(0.6, 0.2, (S, N)))
    MS_S, MS_I, MS_R = two_way(values)
    own = cell('m', values, cfg)
    noise = intervals.seed_noise(values)
    assert noise == pytest.approx(MS_R / N, rel=1e-9)
    assert np.var(list(own.scores.values()), ddof=1) == pytest.approx(MS_S / N, rel=1e-9)
    assert own.draws.mean(0).var() == pytest.approx(MS_I / (S * N), rel=0.05)
    seeds = intervals.with_seeds(np.zeros(20_000), [(own.scores.values(), noise)], cfg)
    half = scipy.stats.t.ppf(0.975, S - 1) * np.sqrt((MS_S - 2 / 3 * MS_R) / (S * N))
    assert np.diff(np.percentile(seeds, [2.5, 97.5])).item() == pytest.approx(2 * half, rel=0.05)
    V = max(MS_S + MS_I - MS_R, MS_S, MS_I) / (S * N)
    nu = (V * S * N) ** 2 / (MS_S ** 2 / (S - 1) + MS_I ** 2 / (N - 1) + MS_R ** 2 / ((S - 1) * (N - 1)))
    closed = 2 * scipy.stats.t.ppf(0.975, nu) * np.sqrt(V)
    assert own.high - own.low == pytest.approx(closed, rel=0.15)


def test_seeds_that_agree_narrow_the_draws_over_instances():
    """MS_S below MS_R / 2: the variance is (MS_I + MS_S - MS_R / 2) / SN all the same."""
    random_, cfg = np.random.default_rng(17), evaluate.Settings(resamples=20_000)
    S, N = 3, 300
    values = random_.normal(0.5, 0.2, (S, N))
    values += 0.5 - values.mean(1, keepdims=True)   # each seed's score is 0.5
    MS_S, MS_I, MS_R = two_way(values)
    own = cell('m', values, cfg)
    half = 1.96 * np.sqrt((MS_I + MS_S - MS_R / 2) / (S * N))
    assert MS_S < 1e-9 and (own.high - own.low) / 2 == pytest.approx(half, rel=0.03)


def test_influence_values_of_f1():
    """Their mean is F1 itself, and their variance over N that of the bootstrap."""
    random_ = np.random.default_rng(14)
    below = random_.integers(0, 6, (3, 400)).astype(float)
    above = np.floor(below * random_.random((3, 400)))
    values = intervals.instance_values(above, below)
    assert values.mean(1) == pytest.approx(above.sum(1) / below.sum(1), rel=1e-12)
    F = above[0].sum() / below[0].sum()
    assert values[0, 7] == pytest.approx(F + 400 * (above[0, 7] - F * below[0, 7]) / below[0].sum())
    draws = intervals.bootstrap(above, below, resamples=20_000)
    assert values.var(1) / 400 == pytest.approx(draws.var(0), rel=0.06)
    assert (intervals.instance_values(np.zeros((2, 5)), np.zeros((2, 5))) == 0).all()   # no entity at all


def test_paired_test_under_the_null_and_not():
    random_, cfg = np.random.default_rng(10), evaluate.Settings(resamples=1_000)

    def model(name, shift, hard, seeds=range(5)):
        scores = hard + shift + random_.normal(0, 0.1, (5, len(hard))) + random_.normal(0, 0.01, (5, 1))
        return cell(name, scores, cfg, seeds)
    for others in (range(5), range(5, 10)):     # the same seeds, and others: paired in instances alone
        p_values = []
        for _ in range(200):
            hard = random_.normal(0.5, 0.3, 80)
            p_values.append(paired(model('a', 0, hard), model('b', 0, hard, others), cfg)[2])
        assert 0.01 < np.mean(np.array(p_values) < 0.05) < 0.09
        assert 0.4 < np.median(p_values) < 0.6
        hard = random_.normal(0.5, 0.3, 80)
        low, high, p = paired(model('a', 0, hard), model('b', 0.1, hard, others), cfg)
        assert 0 < low < 0.1 < high and p < 0.01


def test_one_seed_has_no_p_value(predictions):
    """Two models of a seed each, with equal means: until now p < 0.05 in a third of the cases. A baseline has
    no seed that could turn out otherwise."""
    random_, cfg = np.random.default_rng(15), evaluate.Settings(resamples=500)
    hard = random_.random((1, 300))
    one, five = cell('a', hard, cfg), cell('b', hard + random_.normal(0, 0.1, (5, 300)), cfg)
    assert paired(one, one, cfg)[2] is None and paired(one, five, cfg)[2] is None
    baseline = cell('c', hard, cfg, kind='baseline')
    assert paired(baseline, five, cfg)[2] and paired(baseline, baseline, cfg)[2] == 1
    for path in (predictions / 'predictions').glob('*/SC/toy/*_sd[12]'):
        shutil.rmtree(path)
    shown = run_script('evaluate.py', 'compare', 'poor', 'good', *options(predictions)).stdout
    assert 'p =' not in shown and 'no p value' in shown and 'another seed may turn the sign' in shown


def test_an_average_shares_its_seeds():
    """A seed that is lucky on both datasets is lucky in their average: until now datasets counted apart, and
    the seeds' share was too small by the root of their number."""
    random_, cfg = np.random.default_rng(16), evaluate.Settings(resamples=20_000)
    luck = np.array([[-0.1], [0.0], [0.1]])
    cells = [cell('m', 0.5 + luck + random_.normal(0, 0.01, (3, 200)), cfg, dataset=name) for name in 'de']
    mean = protocols.average(cells, cfg)
    assert mean.mean == pytest.approx((cells[0].mean + cells[1].mean) / 2)
    half = scipy.stats.t.ppf(0.975, 2) * 0.1 / np.sqrt(3)
    assert (mean.high - mean.low) / 2 == pytest.approx(half, rel=0.05)


def test_an_average_is_of_the_seeds_that_all_have():
    """Its mean and draws were over each dataset's own seeds, and only its scatter over the shared ones."""
    random_, cfg = np.random.default_rng(19), evaluate.Settings(resamples=200)
    scores = random_.random((2, 3, 50))
    first, second = (cell('m', own, cfg, dataset=name) for own, name in zip(scores, 'de'))
    fewer = cell('m', scores[1, 1:], cfg, seeds=(1, 2), dataset='e')
    both = protocols.average([cell('m', scores[0, 1:], cfg, seeds=(1, 2), dataset='d'), fewer], cfg)
    mean = protocols.average([first, fewer], cfg)
    assert mean.mean == pytest.approx(np.mean(list(mean.scores.values()))) and set(mean.scores) == {1, 2}
    assert (mean.mean, mean.low, mean.high) == (both.mean, both.low, both.high)
    assert set(protocols.average([first, second], cfg).scores) == {0, 1, 2}


# -------------------------------------------------------------------------------- several pretraining seeds

def row_cell(model, scores, cfg, seeds=None, dataset='d', **more):
    """The Cell of (pretraining seeds, fine-tunings, N) scores, which have a row."""
    own = [protocols.Run(model, 'SC', dataset, 1e-4, 10 * origin + k, 0.0, float(each.mean()), origin=origin,
                         instances=lambda split, each=each: content(each, np.ones_like(each)), **more)
           for origin, tuned in zip(seeds or range(len(scores)), scores) for k, each in enumerate(tuned)]
    return protocols.make_cell(own, cfg)


def study(seed, S=6, F=3, N=200):
    """(S, F, N) scores: instances, pretrainings and fine-tunings have a share, and both with instances."""
    normal = np.random.default_rng(seed).normal
    return (normal(0.6, 0.2, N) + normal(0, 0.02, (S, 1, 1)) + normal(0, 0.02, (S, F, 1))
            + normal(0, 0.1, (S, 1, N)) + normal(0, 0.1, (S, F, N)))


def test_fine_tunings_are_averaged_and_pretraining_seeds_are_the_unit():
    """Mean, units and both intervals against means of fine-tunings, scipy, the closed form by hand."""
    cfg, a, b = evaluate.Settings(resamples=20_000), study(20), study(21)
    a, b = (values + np.linspace(0, 0.3, 200) for values in (a, b))     # instances that both share
    cells = row_cell('a', a, cfg), row_cell('b', b, cfg)
    assert cells[1].unit == 'pretraining' and cells[1].seeds == '6 x 3' and len(cells[1].scores) == 6
    result = intervals.contrast([[(1, cells[1]), (-1, cells[0])]], cfg)
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
    one = row_cell('b', b, cfg)
    assert one.mean == pytest.approx(b.mean(), abs=1e-6) and one.low < one.mean < one.high


def test_one_pretraining_seed_speaks_of_one_model():
    cfg = evaluate.Settings(resamples=500)
    one, six = row_cell('a', study(22)[:1], cfg), row_cell('b', study(23), cfg)
    assert one.unit == 'fine-tuning' and one.seeds == '3' and list(one.scores) == [0, 1, 2]
    for other in (one, six):
        result = intervals.contrast([[(1, other), (-1, one)]], cfg)
        assert result.unit == 'fine-tuning' and result.p
    floor = cell('untrained', study(24)[0], cfg)      # has seen none, of which another could be another
    gain = intervals.contrast([[(1, six), (-1, floor)]], cfg)
    assert gain.unit == 'pretraining' and list(gain.units) == list(range(6))    # until now it had none
    assert gain.units[2] == pytest.approx(six.scores[2] - floor.mean, abs=1e-6)
    assert np.mean(list(gain.units.values())) == pytest.approx(gain.mean)


def test_units_that_arms_share_and_units_of_their_own():
    """The common pretraining seeds, if at least two; else each arm's own share, by Welch's interval."""
    cfg = evaluate.Settings(resamples=500)
    a, b = study(25), study(26)
    first = row_cell('a', a, cfg)
    fewer = intervals.contrast([[(1, row_cell('b', b[2:5], cfg, (2, 3, 4))), (-1, first)]], cfg)
    same = intervals.contrast([[(1, row_cell('b', b[2:5], cfg, (2, 3, 4))),
                                (-1, row_cell('a', a[2:5], cfg, (2, 3, 4)))]], cfg)
    assert list(fewer.units) == [2, 3, 4] and fewer[:6] == same[:6]
    others = intervals.contrast([[(1, row_cell('b', b[:4], cfg, (5, 6, 7, 8))), (-1, first)]], cfg)
    assert others.units == {} and others.mean == pytest.approx(b[:4].mean() - a.mean(), abs=1e-6)
    theirs = scipy.stats.ttest_ind(b[:4].mean((1, 2)), a.mean((1, 2)), equal_var=False).confidence_interval()
    assert others[3:5] == pytest.approx(tuple(theirs), abs=1e-5)
    without = intervals.contrast([[(1, row_cell('b', b, cfg)), (-1, first)]], cfg, without=(0, 1, 5))
    assert without[:6] == same[:6]
    with pytest.raises(ValueError, match='tested on different data'):
        intervals.contrast([[(1, row_cell('b', b[..., 1:], cfg)), (-1, first)]], cfg)


def test_contrasts_are_linear_and_of_several_datasets():
    """A weighted sum of three arms on two datasets: units, noise and the variance of draws are its own."""
    cfg, weights = evaluate.Settings(resamples=20_000), (1, -0.25, -0.75)
    scores = {name: [study(30 + 3 * k + arm, N=100 + 50 * k) for arm in range(3)]
              for k, name in enumerate('de')}
    parts = [[(weight, row_cell(str(arm), values, cfg, dataset=name))
              for arm, (weight, values) in enumerate(zip(weights, own))] for name, own in scores.items()]
    result = intervals.contrast(parts, cfg)
    values = [sum(weight * each.mean(1) for weight, each in zip(weights, own)) for own in scores.values()]
    by_unit = (values[0].mean(1) + values[1].mean(1)) / 2
    assert list(result.units.values()) == pytest.approx(by_unit.tolist(), abs=1e-6) and result.n == 250
    S, noise = 6, sum(two_way(own)[2] / own.shape[1] for own in values) / 4
    drawn = sum(own.mean(0).var() / own.shape[1] for own in values) / 4
    share = (by_unit.var(ddof=1) - noise * (S - 1) / (S + 1)) / S
    assert share > 0 and result.draws.var() == pytest.approx(drawn + share * 5 / 3, rel=0.1)    # t's, of 5
    assert intervals.contrast(parts[:1], cfg).mean == pytest.approx(values[0].mean(), abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize('metric, seeds, spread, n', [
    ('accuracy', 3, 0.15, 300), ('F1', 5, 0.5, 300), ('NDCG@10', 5, 0.15, 300)])
def test_coverage(metric, seeds, spread, n):
    """Three cells of tests/simulation.py: intervals hold 93 to 97 %, and 3 to 7 % of equal models differ."""
    results = simulation.simulate(metric, seeds, spread, n, simulation.Settings())
    assert simulation.within(results['now']), results
    assert results['sum'][2] < 3.5 and results['sum'][2] < results['now'][2]   # the method before


@pytest.mark.slow
@pytest.mark.parametrize('metric, seeds, spread', [
    ('accuracy', 3, 0.5), ('F1', 6, 0.15), ('NDCG@10', 8, 0.5)])
def test_coverage_over_pretraining_seeds(metric, seeds, spread):
    """Of three fine-tunings each; beside the closed form."""
    results = simulation.simulate(metric, seeds, spread, 900, simulation.Settings(each=3))
    assert simulation.within(results['now']), results
    assert np.abs(results['now'] - results['closed form']).max() < 3, results


# ------------------------------------------------------------------------------------------ the paper's cells

def test_the_papers_cells_from_its_own_runs():
    cfg = evaluate.Settings(runs=str(ROOT / 'tests/authors_runs.csv'), protocol='paper')
    problems = []
    cells = protocols.make_cells(evaluate.read_runs(cfg, problems), cfg, problems)
    texts = {key: str(cell) for key, cell in cells.items()}
    assert texts == {
        ('210m-clm-42k', 'SC', 'sst2'): '90.00 (0.30)', ('210m-clm-42k', 'SC', 'qqp'): '83.84 (0.27)',
        ('210m-clm-42k', 'SC', 'mnli'): '74.56 (0.16)', ('210m-clm-42k', 'SC', 'Average'): '82.80 (0.02)',
        ('610m-clm-42k', 'TC', 'uner_en'): '93.12 (0.29)'}
    assert not problems
    for (model, task, dataset), text in texts.items():
        mean, half = paper.numbers()[model, task, paper.DATASETS.get(dataset, dataset)]
        assert text == f'{mean:.2f} ({half:.2f})'


def test_the_tables_averages_are_those_of_their_columns():
    numbers = paper.numbers()
    for (model, task, dataset), (mean, _) in numbers.items():
        if dataset == 'Average':
            others = [value for key, (value, _) in numbers.items()
                      if key[:2] == (model, task) and key[2] != 'Average']
            assert len(others) == 3 and np.mean(others) == pytest.approx(mean, abs=0.011)


def test_the_list_of_the_papers_models():
    """configs/paper/models.csv is what configs/studies/paper.py and pretrain's count of operations say."""
    study, _ = studies.load([str(ROOT / 'configs/studies/paper.py')])
    alone = {'branch_from': '', 'weights_from': ''}
    runs = {name: parse(pretrain.Settings, jobs.with_options(row.words, name=name, **alone))[0]
            for name, row in study.rows.items()}

    def flops(cfg, steps):
        total = 0.0
        for kind, count in cfg.phases:
            total += min(count, steps) * cfg.rows_per_step * cfg.context * cost.flops_per_token(cfg, kind)
            steps -= min(count, steps)
        return total
    models = paper.models()
    assert len(models) == 50 and runs.keys() < models.keys()
    assert {key[0] for key in paper.numbers()} < models.keys()
    for name, about in models.items():
        cfg = runs.get(name) or runs[name.rpartition('-')[0]]
        assert about['phases'] == json.loads(json.dumps(cfg.phases)) and about['mask_ratio'] == cfg.mask_ratio
        parent = {'CLM': '610m-clm-42k', 'MLM': '610m-mlm40-42k', '': ''}[about['continues']]
        before = flops(runs[parent], 42_000) if parent else 0.0
        assert about['flops'] == pytest.approx(before + flops(cfg, about['step']), rel=1e-4)
        assert about['step'] == (cfg.total_steps if name in runs else int(name.rpartition('-')[2]))


# ----------------------------------------------------------------------------------------- folders, commands

def write_predictions(folder, rows, about=None):
    folder.mkdir(parents=True, exist_ok=True)
    for split in ('validation', 'test'):
        with gzip.open(folder / f'{split}.jsonl.gz', 'wt') as file:
            file.writelines(json.dumps(row) + '\n' for row in rows)
    (folder / 'run.json').write_text(json.dumps({'kind': 'fine-tuned', 'weights': 'fp32'} | (about or {})))


@pytest.fixture
def predictions(tmp_path):
    """Two models x two learning rates x three seeds on one task."""
    draw = random.Random(11)
    for model, skill in (('good', 0.9), ('poor', 0.6)):
        for lr in ('1e-04', '1e-03'):
            accuracy = skill - (lr == '1e-03') * 0.2
            for seed in range(3):
                rows = [{'id': k, 'gold': 'yes', 'pred': 'yes' if draw.random() < accuracy else 'no'}
                        for k in range(200)]
                write_predictions(tmp_path / 'predictions' / model / 'SC' / 'toy' / f'lr{lr}_sd{seed}', rows)
    return tmp_path


def options(folder, *more):
    return [f'--predictions={folder}/predictions', f'--out={folder}/figures', '--resamples=500', *more]


def test_scores_lie_beside_the_predictions_and_are_computed_once(predictions):
    result = run_script('evaluate.py', 'table', *options(predictions))
    assert result.returncode == 0 and not result.stderr
    good, poor = (line for line in result.stdout.splitlines() if line.startswith(('good', 'poor')))
    assert '1e-04' in good and 'n=200' in result.stdout
    assert float(good.split()[3]) > 80 > float(poor.split()[3])
    run = predictions / 'predictions/good/SC/toy/lr1e-04_sd0'
    scores = json.loads((run / 'scores.json').read_text())
    assert set(scores) == {'version', 'sha256', 'name', 'validation', 'test', 'digest'}
    assert scores['name'] == 'accuracy'
    assert set(scores['test']['standard']) == {'score', 'numerators', 'denominators', 'others', 'ids'}
    assert scores['test']['paper']['score'] == pytest.approx(np.mean(scores['test']['paper']['scores_i']))

    def shown_with(digest=None, **changes):
        changed = {name: value for name, value in (scores | changes).items() if name != 'digest'}
        digest = digest or intervals.key_of(json.dumps(changed))
        (run / 'scores.json').write_text(json.dumps(changed | {'digest': digest}))
        return run_script('evaluate.py', 'table', *options(predictions)).stdout
    lowered = {split: {'standard': scores[split]['standard'] | {'score': 0.0},
                       'paper': scores[split]['paper']} for split in ('validation', 'test')}
    assert shown_with(**lowered) != result.stdout                       # read, not computed
    assert shown_with(**lowered, version=0) == result.stdout            # of an older program
    assert json.loads((run / 'scores.json').read_text()) == scores
    assert shown_with(**lowered, digest=scores['digest']) == result.stdout  # edited: was believed until now
    assert shown_with(**lowered, sha256={}) == result.stdout            # of other predictions
    (run / 'scores.json').write_text('{"version": ')
    assert run_script('evaluate.py', 'table', *options(predictions)).stdout == result.stdout


def test_only_chosen_runs_are_read_again_for_their_instances(predictions, monkeypatch):
    folders, read_predictions = [], nanoencoder.judging.predictions.read_predictions

    def listed(folder, about):
        folders.append(folder.name)
        return read_predictions(folder, about)
    monkeypatch.setattr(nanoencoder.judging.predictions, 'read_predictions', listed)
    cfg = evaluate.Settings(predictions=str(predictions / 'predictions'), resamples=100)
    runs = evaluate.read_runs(cfg, [])
    assert len(runs) == len(folders) == 12
    fields = [getattr(run, name) for run in runs for name in ('validation', 'test', 'instances')]
    assert not any(isinstance(field, (dict, list)) for field in fields)
    protocols.make_cells(runs, cfg, [])
    chosen = [f'lr1e-04_sd{seed}' for seed in (0, 1, 2) for model in ('good', 'poor')]
    assert sorted(folders[12:]) == sorted(chosen)


PAST = {'phases': [['mlm', 6]], 'mask_ratio': 0.4, 'step': 6, 'flops': 1.0, 'continues': ''}


@pytest.fixture
def rows_of_a_study(tmp_path):
    """Two rows x three pretraining seeds x two learning rates x two fine-tuning seeds; and a floor."""
    draw = random.Random(12)

    def answers(skill):
        return [{'id': f'x{k}', 'gold': 'yes', 'pred': 'yes' if draw.random() < skill else 'no'}
                for k in range(200)]
    for row, skill in (('mlm', 0.6), ('clm', 0.8)):
        for seed, lr, k in itertools.product(range(3), (1e-4, 1e-3), range(2)):
            about = {'pretraining': PAST | {'phases': [[row, 6]], 'row': row, 'seed': seed},
                     'settings': {'steps': 5}, 'data': 'd' * 64,
                     'grid': [[1e-4, 1e-3], [10 * seed, 10 * seed + 1]]}
            folder = f'{row}-s{seed}/SC/toy/{protocols.run_name(lr, 10 * seed + k)}'
            write_predictions(tmp_path / 'predictions' / folder, answers(skill - 100 * lr), about)
    for k in range(2):
        write_predictions(tmp_path / f'predictions/untrained/SC/toy/lr1e-04_sd{k}', answers(0.5),
                          {'settings': {'steps': 5}, 'data': 'd' * 64})
    return tmp_path


def test_rows_are_models_and_folders_are_complete(rows_of_a_study):
    shown = run_script('evaluate.py', 'table', *options(rows_of_a_study))
    assert shown.returncode == 0, shown.stderr
    lines = {line.split()[0]: line for line in shown.stdout.splitlines() if line}
    assert '  3 x 2  ' in lines['clm'] and '  3 x 2  ' in lines['mlm'] and '  2  ' in lines['untrained']
    assert 'clm-s0' not in shown.stdout
    compared = run_script('evaluate.py', 'compare', 'mlm', 'clm', *options(rows_of_a_study))
    assert compared.returncode == 0 and '3 x 2 and 3 x 2 seeds' in compared.stdout
    assert 'another pretraining' not in compared.stdout
    folder = rows_of_a_study / 'predictions/clm-s1/SC/toy'
    for name in ('lr1e-03_sd10', 'lr1e-03_sd11'):
        shutil.rmtree(folder / name)
    (folder / 'lr1e-03_sd10.error.txt').write_text('RuntimeError: out of memory')
    missed = run_script('evaluate.py', 'table', *options(rows_of_a_study, '--models=("clm",)'))
    assert missed.returncode == 1 and missed.stderr.count('warning') == 2, missed.stderr
    assert 'clm-s1/SC/toy: missing lr1e-03_sd10, lr1e-03_sd11' in missed.stderr
    assert 'lr1e-03_sd10 failed: RuntimeError: out of memory' in missed.stderr
    assert '\nclm ' in missed.stdout and 'mlm' not in missed.stdout


@pytest.mark.parametrize('change, words', [
    ({'pretraining': PAST | {'phases': [['clm', 9]], 'row': 'clm', 'seed': 1}}, 'differ in phases'),
    ({'pretraining': PAST | {'phases': [['clm', 6]], 'mask_ratio': 0.5, 'step': 5, 'row': 'clm', 'seed': 1}},
     'differ in mask_ratio, step'),
    ({'settings': {'steps': 7}}, 'differ in steps'),
    ({'pretraining': PAST | {'phases': [['clm', 6]], 'row': 'clm', 'seed': 0}}, None)])
def test_runs_of_a_row_differ_in_seeds_alone(rows_of_a_study, change, words):
    for path in (rows_of_a_study / 'predictions/clm-s1').rglob('run.json'):
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
    shown = run_script('evaluate.py', 'table', *options(rows_of_a_study))
    assert (shown.returncode == 1) == bool(words), shown.stderr
    assert '\nmlm' in shown.stdout
    assert not words or f'clm/SC/toy is left out: its runs {words}' in shown.stderr


def test_a_folder_that_is_two_of_a_row_is_named(rows_of_a_study):
    folder = rows_of_a_study / 'predictions'
    shutil.copytree(folder / 'clm-s1', folder / 'clm-again')
    shown = run_script('evaluate.py', 'table', *options(rows_of_a_study))
    assert shown.returncode == 1
    assert 'clm/SC/toy is left out: two runs of pretraining seed 1 are lr1e-03_sd10' in shown.stderr


def test_what_a_checkpoint_says_of_its_row(tmp_path):
    def said(step=6, **settings):
        settings = {'phases': [['clm', 6]], 'mask_ratio': 0.4} | settings
        (tmp_path / 'state.json').write_text(json.dumps({'step': step, 'flops': 1.0, 'settings': settings}))
        past = nanoencoder.tasks.runs.pretraining(tmp_path, 10 ** 6)
        return past['row'], past['seed'], past['continues']
    assert said(row='clm', seed=3) == ('clm', 3, '')
    assert said(step=4, row='clm', seed=3) == ('clm-4', 3, '')
    assert said(step=12, row='clm', seed=3, repeat=2) == ('clm', 3, '')
    assert said(row='cpt', seed=3, weights_from='out/clm-s3/6') == ('cpt', 3, 'clm')  # of any seed
    assert said(seed=3, weights_from='out/clm-s3') == ('', 3, 'clm-s3') and said() == ('', 0, '')


@pytest.mark.parametrize('protocol', ['standard', 'paper'])
def test_the_held_out_splits(tmp_path, protocol):
    """Each is scored at the rate that the other one chose; both together are their instances joined."""
    def answers(right, count=100):
        return [{'id': k, 'gold': 'yes', 'pred': 'yes' if k < right else 'no'} for k in range(count)]
    for lr, validation, test in (('1e-04', 60, 10), ('1e-03', 50, 20)):
        for seed in range(2):
            folder = tmp_path / f'predictions/m/SC/toy/lr{lr}_sd{seed}'
            write_predictions(folder, answers(test + 2 * seed, 60))
            with gzip.open(folder / 'validation.jsonl.gz', 'wt') as file:
                file.writelines(json.dumps(row) + '\n' for row in answers(validation))

    def cell_of(split):
        cfg = evaluate.Settings(predictions=str(tmp_path / 'predictions'), resamples=200, split=split)
        (own,) = protocols.make_cells(evaluate.read_runs(cfg, []), cfg, []).values()
        return own
    if protocol == 'paper':
        result = run_script('evaluate.py', 'table', *options(tmp_path, '--protocol=paper', '--split=both'))
        return one_line_error(result, 'score test alone')
    test, validation, both = map(cell_of, ('test', 'validation', 'both'))
    assert test.mean == pytest.approx((10 + 12) / 2 / 60) and {run.lr for run in test.runs} == {1e-4}
    assert validation.mean == 0.5 and {run.lr for run in validation.runs} == {1e-3}
    assert both.scores == pytest.approx({0: (10 + 50) / 160, 1: (12 + 50) / 160})
    assert [own.runs[0].n for own in (test, validation, both)] == [60, 100, 160]
    assert both.values.shape == (2, 160) and {run.lr for run in both.runs} == {1e-4, 1e-3}
    with pytest.raises(ValueError, match='different data'):
        intervals.contrast([[(1, test), (-1, validation)]], evaluate.Settings(resamples=200))


def export(folder, *more):
    return run_script('evaluate.py', 'export', folder / 'results', *options(folder, *more))


def test_export_writes_the_authors_format_and_overwrites_nothing(predictions):
    assert export(predictions).stdout.strip().endswith('results: 12 runs')
    path = predictions / 'results/good/SC/toy/lr1e-04_sd0/results.json'
    content = json.loads(path.read_text())
    assert set(content) == {'validation', 'test'} and set(content['test']) == {'score', 'scores_i'}
    assert content['test']['score'] == pytest.approx(np.mean(content['test']['scores_i']))
    assert len(content['test']['scores_i']) == 200
    assert export(predictions).returncode == 0     # the same again
    for other in (content | {'test': {'score': 1.0, 'scores_i': [1.0]}}, []):
        path.write_text(json.dumps(other))
        result = export(predictions)
        assert result.returncode == 2 and str(path) in result.stderr and json.loads(path.read_text()) == other


def pack(folder, *more):
    return run_script('evaluate.py', 'pack', folder, *more)


def test_a_packed_study_is_the_same_study(rows_of_a_study):
    """Tables and tests of packed runs are those of their predictions; each pack adds what is new."""
    study = rows_of_a_study / 'study'
    (rows_of_a_study / 'predictions').rename(rows_of_a_study / 'all')
    shutil.copytree(rows_of_a_study / 'all', study / 'runs')
    asked = [('table',), ('table', '--split=both'), ('table', '--protocol=paper'), ('compare', 'mlm', 'clm')]

    def shown():
        return [run_script('evaluate.py', *words, f'--predictions={study}/runs', '--resamples=500')
                for words in asked]
    before = shown()
    assert all(result.returncode == 0 for result in before)
    assert pack(study).stdout.strip().endswith('study: 26 runs')
    files = {path: path.read_bytes() for path in (*study.glob('runs/*.gz'), study / 'scores.csv')}
    assert sorted(path.name for path in files) == [
        'other.jsonl.gz', 's0.jsonl.gz', 's1.jsonl.gz', 's2.jsonl.gz', 'scores.csv']
    lines = files[study / 'scores.csv'].decode().splitlines()
    assert len(lines) == 27 and lines[0].split(',') == list(nanoencoder.judging.predictions.COLUMNS)
    first = next(line for line in lines if line.startswith('clm,1,SC,toy,accuracy,1e-03,11,200,'))
    assert first.endswith(',clm-s1') and lines[-1].startswith('untrained,,SC,toy,accuracy,1e-04,1,200,0.')
    for folder in (study / 'runs').iterdir():
        if folder.is_dir() and folder.name != 'clm-s1':
            shutil.rmtree(folder)
    assert pack(study).returncode == 0 and all(path.read_bytes() == own for path, own in files.items())
    shutil.rmtree(study / 'runs/clm-s1/SC/toy/lr1e-03_sd11')
    after = shown()
    assert [(result.returncode, result.stdout) for result in after] == [(0, own.stdout) for own in before]
    (study / 'runs/clm-s1/SC/toy/lr1e-03_sd10/test.jsonl.gz').write_bytes(b'')
    (after, *_) = shown()
    assert after.returncode == 1 and after.stdout == before[0].stdout and 'missing or damaged' in after.stderr
    one_line_error(run_script('evaluate.py', 'export', rows_of_a_study / 'theirs', '--models=("mlm",)',
                              f'--predictions={study}/runs'), 'is packed, without')


def test_damaged_packed_runs_are_named(rows_of_a_study):
    study = rows_of_a_study / 'study'
    (study / 'runs').mkdir(parents=True)
    (rows_of_a_study / 'predictions').rename(study / 'runs/all')
    for folder in (study / 'runs/all').iterdir():
        folder.rename(study / 'runs' / folder.name)
    (study / 'runs/all').rmdir()
    assert pack(study).returncode == 0
    for folder in (study / 'runs').glob('*-s*/'):
        shutil.rmtree(folder)
    path = study / 'runs/s1.jsonl.gz'
    content = path.read_bytes()
    for damaged in (content[:300], content[:-20] + b'x' * 20, gzip.compress(b'{"run": 3}\n')):
        path.write_bytes(damaged)
        result = run_script('evaluate.py', 'table', f'--predictions={study}/runs', '--resamples=100')
        assert result.returncode == 1 and f'{path}: damaged: ' in result.stderr, result.stderr
        assert '\nclm' in result.stdout and 'Error' not in result.stderr
        one_line_error(pack(study), 's1.jsonl.gz: damaged: .*; restore it first')
        assert path.read_bytes() == damaged
    lines = [json.loads(line) for line in gzip.decompress(content).splitlines()]
    lines[0]['about']['pretraining']['row'] = ['clm']
    path.write_bytes(gzip.compress(b''.join(json.dumps(line).encode() + b'\n' for line in lines)))
    result = run_script('evaluate.py', 'table', f'--predictions={study}/runs', '--resamples=100')
    assert result.returncode == 1 and "row: ['clm'] was found where str" in result.stderr
    before = path.read_bytes()      # until now the run was left out, and lost by the next pack
    one_line_error(pack(study), 's1.jsonl.gz: damaged: line 1: .*; restore it first')
    assert path.read_bytes() == before
    one_line_error(pack(study, '--split=both'), 'takes no settings')


def test_two_exports_do_not_disturb_each_other(predictions):
    """Each removed the other's temporary files, which was "No such file or directory" there."""
    (predictions / 'results').mkdir()
    with locked(predictions / 'results', '.export.lock'):
        one_line_error(export(predictions), 'results/export: another process is writing there')
    assert export(predictions).returncode == 0
    assert not list((predictions / 'results').rglob('.*'))


def test_results_of_retrieval_name_what_was_trained_on(tmp_path):
    row = {'id': 'q', 'gold': {'d1': 1}, 'docs': ['d1', 'd2'], 'scores': [0.5, 0.5]}
    write_predictions(tmp_path / 'predictions/m/IR/nq/lr1e-04_sd0', [row], {'trained_on': 'msmarco_pairs'})
    assert export(tmp_path).returncode == 0
    content = json.loads((tmp_path / 'results/m/IR/nq/msmarco_pairs_lr1e-04_sd0/results.json').read_text())
    mean_over_the_tie = (1 + 1 / np.log2(3)) / 2  # as in the paper
    assert content['test']['score'] == pytest.approx(mean_over_the_tie)
    shown = run_script('evaluate.py', 'table', f'--predictions={tmp_path}/none',
                       f'--results={tmp_path}/results', '--protocol=paper')
    assert shown.returncode == 0 and f'{100 * content["test"]["score"]:.2f} (one seed)' in shown.stdout


def tree(folder):
    return {path: path.read_bytes() for path in folder.rglob('*') if path.is_file()}


def test_results_are_read_and_never_written(predictions):
    """Beside predictions of the same runs, too, which win: version 7605c98 overwrote the results."""
    assert export(predictions).returncode == 0
    theirs = predictions / 'results/theirs/SC/toy'
    shutil.copytree(predictions / 'results/good/SC/toy', theirs)
    path = predictions / 'results/good/SC/toy/lr1e-04_sd0/results.json'
    lowered = {split: {'score': 0.0, 'scores_i': [0.0]} for split in ('validation', 'test')}
    path.write_text(json.dumps(lowered))
    before = tree(predictions / 'results')
    with_results = options(predictions, '--protocol=paper', f'--results={predictions}/results')
    both = run_script('evaluate.py', 'table', *with_results)
    assert both.returncode == 1 and both.stderr.count('warning') == 1
    assert '12 of its runs are in' in both.stderr
    assert tree(predictions / 'results') == before
    lines = [line.split() for line in both.stdout.splitlines()]
    rows = {line[0]: line[1:] for line in lines if line and line[0] in ('good', 'poor', 'theirs')}
    assert rows['theirs'] == rows['good'] != rows['poor']
    without = options(predictions, '--protocol=paper', '--models=good,poor')
    alone = run_script('evaluate.py', 'table', *without).stdout.splitlines()[1:3]
    assert [line.split() for line in alone] == [[name, *rows[name]] for name in ('good', 'poor')]


def test_a_folder_that_may_only_be_read_is_scored(predictions, monkeypatch):
    """Before, its runs were left out of the table, as their scores could not be kept."""
    words = options(predictions)
    shown = run_script('evaluate.py', 'table', *words).stdout
    for path in (predictions / 'predictions').rglob('scores.json'):
        path.unlink()

    def refuses(path, *_):
        raise PermissionError(13, 'Permission denied', str(path))
    monkeypatch.setattr('os.access', lambda *_: False)
    monkeypatch.setattr(nanoencoder.judging.predictions, 'locked', refuses)
    assert run_script('evaluate.py', 'table', *words).stdout == shown


def test_a_run_that_failed_and_was_done_since_is_done(predictions):
    """What another grid had done since stayed "failed" for ever, with exit code 1."""
    failed = predictions / 'predictions/good/SC/toy/lr1e-04_sd0.error.txt'
    failed.write_text('Traceback\nRuntimeError: out of memory\n')
    result = run_script('evaluate.py', 'table', *options(predictions))
    assert result.returncode == 0 and not result.stderr
    shutil.rmtree(failed.with_name('lr1e-04_sd0'))
    result = run_script('evaluate.py', 'table', *options(predictions))
    assert result.returncode == 1 and 'lr1e-04_sd0 failed: RuntimeError: out of memory' in result.stderr


def test_missing_and_damaged_runs_are_named_and_the_rest_goes_on(predictions):
    folder = predictions / 'predictions/good/SC/toy'
    shutil.rmtree(folder / 'lr1e-04_sd1')
    damaged = folder / 'lr1e-03_sd2/test.jsonl.gz'
    damaged.write_bytes(damaged.read_bytes()[:40])
    (predictions / 'predictions/poor/SC/toy/lr1e-03_sd0/run.json').write_text('{"kind": ')
    result = run_script('evaluate.py', 'table', *options(predictions))
    assert result.returncode == 1 and 'Traceback' not in result.stderr
    assert 'good/SC/toy: missing' in result.stderr and 'lr1e-04_sd1' in result.stderr
    assert 'lr1e-03_sd2/test.jsonl.gz: missing or damaged' in result.stderr
    assert 'lr1e-03_sd0/run.json' in result.stderr
    assert result.stdout.count('\ngood') + result.stdout.count('\npoor') == 2


def test_a_flipped_bit_in_scores_is_noticed(predictions):
    """A score that is another one, in valid JSON: until now the table showed it, for only predictions were
    compared with their digests."""
    shown = run_script('evaluate.py', 'table', *options(predictions)).stdout
    for path in (predictions / 'predictions/good').glob('SC/toy/lr1e-04_sd*/scores.json'):
        text = path.read_text()
        path.write_text(text.replace('1.0, ', '0.0, '))
        assert path.read_text() != text
    assert run_script('evaluate.py', 'table', *options(predictions)).stdout == shown


def test_what_a_killed_scoring_left_goes_and_two_do_not_disturb_each_other(predictions):
    """Temporary files of killed processes stayed for ever. While another process scores the same run, its own
    stay; the scores are those computed here."""
    run = predictions / 'predictions/good/SC/toy/lr1e-04_sd0'
    (run / '.scores.json.0123abcd.tmp').write_text('{')
    with locked(run, '.scores.lock'):
        shown = run_script('evaluate.py', 'table', *options(predictions))
    assert shown.returncode == 0 and (run / '.scores.json.0123abcd.tmp').exists()
    assert not (run / 'scores.json').exists() and (run.with_name('lr1e-04_sd1') / 'scores.json').exists()
    assert run_script('evaluate.py', 'table', *options(predictions)).stdout == shown.stdout
    assert sorted(path.name for path in run.iterdir()) == [
        'run.json', 'scores.json', 'test.jsonl.gz', 'validation.jsonl.gz']


@pytest.mark.parametrize('kind, row, words', [
    ('SC', {'gold': 'a', 'pred': 'a'}, 'line 1: has no id'),
    ('SC', {'id': 0, 'gold': ['a'], 'pred': 'a'}, 'line 1: gold'),
    ('SC', [], 'line 1: .* dict'),
    ('TC', {'id': 0, 'gold': ['O', 1], 'pred': ['O', 'O']}, r'gold\[1\]: 1 was found where str'),
    ('TC', {'id': 0, 'gold': ['O'], 'pred': ['O', 'O']}, 'line 1 has not as many tags'),
    ('QA', {'id': 0, 'golds': 'a', 'pred': 'a'}, 'golds: a was found where list'),
    ('IR', {'id': 0, 'gold': {'a': 1}, 'docs': ['a'], 'scores': [float('nan')]}, 'a finite score each'),
    ('IR', {'id': 0, 'gold': {'a': 'x'}, 'docs': ['a'], 'scores': [0.5]}, 'a finite score each'),
    ('IR', {'id': 0, 'gold': {'a': 1}, 'docs': ['a'], 'scores': [0.5], 'tied': [3]}, 'line 1: tied: .* dict'),
    ('IR', {'id': 0, 'gold': {'a': 1}, 'docs': ['a'], 'scores': [0.5],     # was an NDCG of 1.84
            'tied': {'size': 1, 'grades': [1, 1, 1]}}, 'line 1: tied: more grades than documents'),
    ('XX', {'id': 0}, 'not named as a run'),
])
def test_predictions_are_asked_for_their_form(predictions, kind, row, words):
    """Until now many were a KeyError or TypeError: "cannot be scored: KeyError('id')", without a line."""
    folder = predictions / f'predictions/odd/{kind}/toy/lr1e-04_sd0'
    write_predictions(folder, [row])
    result = run_script('evaluate.py', 'table', *options(predictions, '--protocol=paper'))
    assert result.returncode == 1 and result.stderr.count('warning') == 1 and 'Error' not in result.stderr
    assert str(folder) in result.stderr and re.search(words, result.stderr), result.stderr
    assert '\ngood' in result.stdout and '\npoor' in result.stdout


@pytest.mark.parametrize('about', [
    {'kind': 1}, {'grid': [1]}, {'grid': 'no'}, {'settings': [1]}, {'pretraining': {'step': 'x'}},
    {'sha256': ['test.jsonl.gz']}, {'scheme': 'XYZ'}, {'trained_on': 7}])
def test_run_json_is_asked_for_its_form(tmp_path, about):
    """Until now a traceback, or "cannot be scored: AttributeError(..)"."""
    rows = [{'id': 0, 'gold': ['O', 'B-X'], 'pred': ['O', 'B-X']}]
    for model in ('good', 'odd'):
        write_predictions(tmp_path / f'predictions/{model}/TC/toy/lr1e-04_sd0', rows,
                          about if model == 'odd' else {})
    for command in (['table'], ['figure', 'bars']):
        result = run_script('evaluate.py', *command, *options(tmp_path))
        assert result.returncode == 1 and result.stderr.count('warning') == 1, result.stderr
        assert 'odd/TC/toy/lr1e-04_sd0' in result.stderr and 'Error' not in result.stderr


@pytest.mark.parametrize('content', [
    {}, [], {'validation': 1, 'test': 2}, {'test': {'score': 0.5, 'scores_i': [0.5]}},
    *({'validation': {'score': 0.5, 'scores_i': [0.5]}, 'test': {'score': score, 'scores_i': scores}}
      for score, scores in ((float('nan'), [0.5]), (float('inf'), [0.5]), (71.5, [71.5]), ('x', [0.5]),
                            (0.5, 3), (0.5, []), (None, [0.5])))])
def test_results_are_asked_for_their_form(predictions, content):
    """Until now a NaN was a row of nan, and other types a traceback or "cannot be scored: TypeError(..)"."""
    assert export(predictions).returncode == 0
    path = predictions / 'results/good/SC/toy/lr1e-04_sd1/results.json'
    path.write_text(json.dumps(content))
    shutil.rmtree(predictions / 'predictions')
    words = options(predictions, f'--results={predictions}/results', '--protocol=paper')
    result = run_script('evaluate.py', 'table', *words)
    assert result.returncode == 1 and str(path) in result.stderr and 'Error' not in result.stderr
    assert 'nan' not in result.stdout and '\npoor' in result.stdout


def test_tables_compare_and_figures(predictions):
    shown = run_script('evaluate.py', 'table', *options(predictions, '--format=csv'))
    lines = shown.stdout.splitlines()
    assert lines[0].startswith('model,task,dataset,metric,mean,low,high,n,seeds,lr') and len(lines) == 3
    markdown = run_script('evaluate.py', 'table', *options(predictions, '--format=markdown')).stdout
    assert markdown.startswith('| SC')
    of_paper = run_script('evaluate.py', 'table', *options(predictions, '--protocol=paper'))
    assert 'macro F1 over word labels' in of_paper.stdout and '(' in of_paper.stdout
    compared = run_script('evaluate.py', 'compare', 'poor', 'good', *options(predictions))
    assert compared.returncode == 0 and 'SC toy' in compared.stdout and '+' in compared.stdout
    for kind in ('bars', 'lr'):
        assert run_script('evaluate.py', 'figure', kind, *options(predictions)).returncode == 0
        assert (predictions / f'figures/{kind}.png').stat().st_size > 5_000
    for kind in figures.AGAINST:
        result = run_script('evaluate.py', 'figure', kind, '--published', f'--out={predictions}/figures')
        assert result.returncode == 0
        assert (predictions / f'figures/{kind}.png').stat().st_size > 5_000


def test_the_papers_tables_alone(tmp_path):
    shown = run_script('evaluate.py', 'table', '--published', f'--predictions={tmp_path}/none',
                       f'--results={tmp_path}/none')
    assert shown.returncode == 0 and '210m-clm-42k' in shown.stdout and '90.00 (0.30)' in shown.stdout


def test_the_switch_figure_draws_a_pretraining_log(tmp_path):
    run = tmp_path / 'run'
    write_log(run, [['clm', 5], ['mlm', 5]], [{'step': k, 'loss': 5.0 + (k > 5)} for k in range(1, 11)])
    assert run_script('evaluate.py', 'figure', 'switch', run, f'--out={tmp_path}').returncode == 0
    assert (tmp_path / 'switch.png').stat().st_size > 5_000


def test_figures_know_phases_that_are_run_through_again():
    about = {'phases': [('clm', 1), ('mlm', 3)], 'repeat': 100, 'mask_ratio': 0.4, 'step': 400, 'flops': 1.0}
    assert figures.place('share', about) == (' 400 steps, MLM 40% in turn', 25)
    assert figures.place('ratio', about) == (' CLM and MLM in turn, 400 steps', 40)
    assert figures.place('steps', about) == (' CLM and MLM 40% in turn, of 400 steps', 400)
    once = about | {'phases': [('clm', 100), ('mdlm', 300)], 'repeat': 1}    # which has no ratio of its own
    assert figures.place('share', once)[0] == ' 400 steps, MDLM' and figures.place('ratio', once) is None
    assert figures.place('steps', once)[0] == ' CLM then MDLM, of 400 steps'
    assert figures.place('share', about | {'step': 4}) is None  # not at its end
    assert figures.switches([('clm', 2), ('mlm', 3), ('clm', 1)]) == [2, 5]
    assert figures.switches([('clm', 1), ('mlm', 3)] * 100) == []


def test_the_authors_results_alone_serve_their_protocol(predictions):
    assert export(predictions).returncode == 0
    shutil.rmtree(predictions / 'predictions')
    words = options(predictions, f'--results={predictions}/results')
    shown = run_script('evaluate.py', 'table', *words, '--protocol=paper')
    assert shown.returncode == 0 and shown.stdout.count('(') > 2
    one_line_error(run_script('evaluate.py', 'table', *words), '12 runs have results.json alone')


@pytest.mark.parametrize('words, parts', [
    ([], ('the command is',)), (['tabel'], ('the command is',)),
    (['table', '--protocol=papr'], ('protocol is one of',)),
    (['table', '--results=nowhere', '--predictions=nowhere'], ('nowhere: no runs there',)),
    (['table', '--runs=nowhere.csv', '--protocol=paper'], ('nowhere.csv',)),
    (['table', '--runs=README.md', '--protocol=paper'], ('not a table of runs',)),
    (['table', '--runs=README.md'], ('take --protocol=paper',)),
    (['figure', 'lr', '--published'], ('publishes no numbers',)),
    (['figure', 'pie'], ('figure is one of',)), (['figure', 'switch'], ('takes folders',)),
    (['compare', 'a', 'b', '--results=nowhere', '--predictions=nowhere'], ('no runs there',)),
    (['losses'], ('takes folders',)), (['losses', 'nowhere'], ('no pretraining run',)),
    (['table', '--models=({},)'], ('models holds texts, numbers and tuples of them, not',)),
    (['table', '--resamples=1000000000000'], ('resamples must be from 100 to 1000000',)),
])
def test_bad_commands_get_one_line(words, parts):
    one_line_error(run_script('evaluate.py', *words), *parts)


def test_a_run_that_validation_would_choose_must_have_a_test_score(tmp_path):
    (tmp_path / 'runs.csv').write_text('model,task,dataset,lr,seed,validation,test\n'
                                       'm,SC,d,1e-04,0,0.9,\nm,SC,d,1e-05,0,0.8,0.7\n')
    result = run_script('evaluate.py', 'table', f'--runs={tmp_path}/runs.csv', '--protocol=paper')
    assert result.returncode == 1 and 'is not there' in result.stderr


@pytest.mark.parametrize('line, words', [
    ('m,XX,d,1e-04,0,0.9,0.8', "'XX'"),
    ('m,SC,d,1e-04,zero,0.9,0.8', "'zero'"), ('m,SC,d,,0,0.9,0.8', "to float: ''"),
    ('m,SC,d,nan,0,0.9,0.8', "'nan' is out of range"),
    ('m,SC,d,1e-04,0,0.9,inf', "'inf' is out of range"), ('m' * 200_000 + ',SC,d,1e-04,0,0.9,0.8', 'field'),
    ('m', 'not a table')])
def test_odd_lines_of_raw_runs_are_named(tmp_path, line, words):
    """Until now the file alone was named, and a long field was a traceback."""
    (tmp_path / 'runs.csv').write_text('model,task,dataset,lr,seed,validation,test\n'
                                       f'm,SC,d,1e-05,0,0.9,0.8\n{line}\n')
    result = run_script('evaluate.py', 'table', f'--runs={tmp_path}/runs.csv', '--protocol=paper')
    one_line_error(result, f'{tmp_path}/runs.csv, line [23]: not a table of runs', words)


def test_evaluate_imports_no_torch():
    heavy = ('torch', 'scipy', 'matplotlib', 'datasets')
    code = f'import sys, evaluate; sys.exit(any(name in sys.modules for name in {heavy}))'
    assert run_process('-c', code).returncode == 0


def test_what_was_asked_of_a_grid_is_missed(tmp_path):
    """A grid that was killed behind its first seed: its lines say what else was to come."""
    rows = [{'id': k, 'gold': 'yes', 'pred': 'yes'} for k in range(5)]
    write_predictions(tmp_path / 'predictions/m/SC/toy/lr1e-04_sd0', rows, {'grid': [[1e-4, 1e-3], [0, 1]]})
    result = run_script('evaluate.py', 'table', *options(tmp_path))
    assert result.returncode == 1
    assert 'm/SC/toy: missing lr1e-04_sd1, lr1e-03_sd0, lr1e-03_sd1' in result.stderr
    assert '100.0 [100.0, 100.0]' in result.stdout


def test_cells_of_other_data_or_settings_are_refused(predictions):
    folder = predictions / 'predictions/good/SC/toy'
    for name, about in (('lr1e-04_sd0', {'data': 'other'}), ('lr1e-03_sd0', {'settings': {'steps': 5}})):
        content = json.loads((folder / name / 'run.json').read_text())
        (folder / name / 'run.json').write_text(json.dumps(content | about))
    result = run_script('evaluate.py', 'table', *options(predictions))
    assert result.returncode == 1 and '\npoor' in result.stdout
    assert 'good/SC/toy is left out: its runs are of different data' in result.stderr
    (folder / 'lr1e-04_sd0/run.json').write_text(json.dumps({'kind': 'fine-tuned', 'weights': 'fp32'}))
    result = run_script('evaluate.py', 'table', *options(predictions))
    assert result.returncode == 1 and 'good/SC/toy is left out: its runs differ in steps' in result.stderr


def test_compare_says_what_else_differs(predictions):
    """Until now 20 steps of fine-tuning were compared with 500, or a grid's lowest rate taken, in silence."""
    for model, steps in (('poor', 20), ('good', 500)):
        for path in (predictions / 'predictions' / model).rglob('run.json'):
            about = {'settings': {'steps': steps, 'max_length': 507, 'seed': steps}}
            path.write_text(json.dumps(json.loads(path.read_text()) | about))
    shown = run_script('evaluate.py', 'compare', 'poor', 'good', *options(predictions)).stdout
    assert 'note: steps 20 -> 500\n' in shown and 'max_length' not in shown and 'seed ' not in shown
    assert 'note: good: its best learning rate, 1e-04, is the lowest tried' in shown


def test_baselines_have_a_p_value_and_no_interval_over_seeds(tmp_path):
    """Until now: (+nan, +nan)."""
    for model, right in (('first', 30), ('second', 60)):
        rows = [{'id': k, 'gold': 'yes', 'pred': 'yes' if k < right else 'no'} for k in range(100)]
        write_predictions(tmp_path / f'predictions/{model}/SC/toy/lr0e+00_sd0', rows, {'kind': 'baseline'})
    shown = run_script('evaluate.py', 'compare', 'first', 'second', *options(tmp_path)).stdout
    assert '+30.0 [' in shown and 'p = ' in shown.replace('p <= ', 'p = ') and 'nan' not in shown


def write_log(folder, phases, lines, **config):
    folder.mkdir(parents=True)
    meta = {'fingerprint': 'f' * 64, 'unigram_loss': 6.5}
    config = {'name': folder.name, 'phases': phases, 'corpus_meta': meta, 'starts': [{'step': 0}]} | config
    (folder / 'config.json').write_text(json.dumps(config))
    with open(folder / 'log.jsonl', 'w') as file:
        for line in lines:
            step = {'loss': 5.0, 'grad_norm': 0.5, 'tokens': 8 * line['step'], 'tokens_per_second': 100.0,
                    'phase': 'clm', 'lr': 0.1, 'seconds': 1.0, 'rows': f'{line["step"]:012x}'}
            file.write(json.dumps(step | line) + '\n')


@pytest.fixture
def runs(tmp_path):
    """MLM, and CLM then MLM as a branch of CLM: a line a step, and a line a block as older logs have it."""
    def lines(steps, loss):
        held_out = {step: {'val_clm_loss': 9.0 - loss, 'val_mlm_loss': loss - step / 100}
                    for step in steps if step % 4 == 0}
        return [{'step': step} | held_out.get(step, {}) for step in steps]
    out = tmp_path / 'out'
    write_log(out / 'mlm', [['mlm', 12]], lines(range(1, 13), 5.0))
    write_log(out / 'clm', [['clm', 12]], lines(range(2, 13, 2), 8.0))
    write_log(out / 'both', [['clm', 6], ['mlm', 6]], lines(range(8, 13, 2), 4.0),
              branch_from=str(out / 'clm/6'), starts=[{'step': 6}])
    (out / 'clm/6').mkdir()
    for name, phases in (('mlm', [['mlm', 12]]), ('both', [['clm', 6], ['mlm', 6]])):
        for step in (9, 12):    # of which the newest counts, by number
            (out / name / str(step)).mkdir()
            state = {'fixed': {'phases': phases, 'seed': 0, 'step': step}}
            (out / name / str(step) / 'state.json').write_text(json.dumps(state))
    return out


def test_losses(runs):
    result = run_script('evaluate.py', 'losses', runs / 'mlm', runs / 'both')
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].split() == 'run phases step tokens val clm val mlm tokens/s'.split()
    assert '4.880' in lines[1] and '3.880' in lines[2]


def test_a_branch_has_its_parents_lines(runs, tmp_path):
    name, phases, lines = losses.history(runs / 'both')
    assert [line['step'] for line in lines] == [2, 4, 6, 8, 10, 12] and lines[1]['val_mlm_loss'] == 7.96
    shutil.rmtree(runs / 'clm')
    assert [line['step'] for line in losses.history(runs / 'both')[2]] == [8, 10, 12]


def test_losses_of_a_study(runs, tmp_path):
    """A line a validation: of a branch with its parent's; what was there stays."""
    sizes = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
                 num_key_value_heads=2, vocab_size=512, context=64, rows_per_step=2, cut_rows=True,
                 mask_ratio=0.4, repeat=1, seed=1, row='r')
    for path in runs.glob('*/config.json'):
        path.write_text(json.dumps(json.loads(path.read_text()) | sizes))
    (tmp_path / 'runs').mkdir()
    write_predictions(tmp_path / 'runs/m/SC/toy/lr1e-04_sd0', [{'id': 0, 'gold': 'a', 'pred': 'a'}])
    assert pack(tmp_path).returncode == 0

    def table():
        lines = (tmp_path / 'losses.csv').read_text().splitlines()
        return [dict(zip(lines[0].split(','), line.split(','))) for line in lines[1:]]
    rows = table()
    assert [(row['folder'], row['step']) for row in rows] == [
        (name, step) for name in ('both', 'clm', 'mlm') for step in ('4', '8', '12')]
    first, last = rows[0], rows[-1]
    assert (first['val_mlm_loss'], first['row'], first['seed']) == ('7.960000', 'r', '1')      # of its parent
    assert (last['val_mlm_loss'], last['train_loss'], last['tokens']) == ('4.880000', '5.000000', '96')
    state = {'settings': json.loads((runs / 'both/config.json').read_text()), 'step': 12}
    assert float(rows[2]['flops']) == pytest.approx(cost.flops_of_state(state), rel=1e-5)
    before = (tmp_path / 'losses.csv').read_bytes()
    shutil.rmtree(runs / 'mlm')
    assert pack(tmp_path).returncode == 0 and (tmp_path / 'losses.csv').read_bytes() == before
    shutil.rmtree(runs / 'both')
    (runs / 'clm/log.jsonl').write_text('')
    assert pack(tmp_path).returncode == 0
    (runs / 'clm/log.jsonl').write_text('{"step": ')     # a line that is being written
    assert pack(tmp_path, runs / 'clm').returncode == 0
    (runs / 'clm/log.jsonl').write_text('{\n')
    assert 'damaged' in pack(tmp_path, runs / 'clm').stderr
    assert (tmp_path / 'losses.csv').read_bytes() == before


def test_figures_of_pretraining(runs, predictions):
    result = run_script('evaluate.py', 'figure', 'switch', runs / 'mlm', runs / 'both', *options(predictions))
    assert result.returncode == 0, result.stderr
    assert (predictions / 'figures/switch.png').stat().st_size > 5_000
    histories = [losses.history(runs / name) for name in ('mlm', 'both')]
    drawn = figures.switch(histories)
    assert [ax.get_ylabel().replace('\n', ' ') for ax in drawn.axes] == [
        'held-out CLM loss, nats per target', 'held-out MLM loss, nats per target', 'gradient norm']
    result = run_script('evaluate.py', 'figure', 'share', runs / 'mlm', *options(predictions))
    one_line_error(result, 'takes no folders')


MEASURE = '''
import csv, resource, sys, numpy, tqdm, evaluate
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
imports = peak()
try:
    evaluate.main()
except SystemExit:
    print(peak() - imports)
'''


def beyond_imports(*arguments):
    """MB that `evaluate.py table` takes at its peak."""
    result = run_process('-c', MEASURE, 'table', *arguments, timeout=600)
    assert result.returncode == 0 and not result.stderr, result.stderr
    return int(result.stdout.split()[-1]) / 1024


def test_ties_are_small(tmp_path):
    """400 queries of unknown words over 50,000 documents: 2.4 GB at commit 7605c98, with all in a row."""
    rows = [{'id': str(k), 'gold': {'d00001': 1}, 'docs': [f'd{49_999 - i}' for i in range(10)],
             'scores': [0.0] * 10, 'tied': {'size': 50_000, 'grades': [1]}} for k in range(400)]
    write_predictions(tmp_path / 'predictions/BM25/IR/big/lr0e+00_sd0', rows, {'kind': 'baseline'})
    assert beyond_imports(*options(tmp_path)) < 20


@pytest.mark.slow
def test_many_instances_are_small(tmp_path):
    """100 runs of 40,000 instances: 5 models x 4 learning rates x 5 seeds."""
    draw = random.Random(18)
    rows = [{'id': str(k), 'gold': 'yes', 'pred': 'yes' if draw.random() < 0.8 else 'no'}
            for k in range(40_000)]
    first = tmp_path / 'predictions/m0/SC/qqp/lr1e-05_sd0'
    write_predictions(first, rows)
    assert beyond_imports(*options(tmp_path)) < 200     # it is scored
    for model, lr, seed in itertools.product(range(5), ('1e-05', '2e-05', '5e-05', '1e-04'), range(5)):
        if (model, lr, seed) != (0, '1e-05', 0):
            shutil.copytree(first, tmp_path / f'predictions/m{model}/SC/qqp/lr{lr}_sd{seed}')
    assert beyond_imports(*options(tmp_path)) < 200


@pytest.mark.slow
def test_the_authors_18_000_results_are_small(tmp_path):
    scores = {'score': 0.75, 'scores_i': [0.5, 1.0] * 20}
    text = json.dumps({'validation': scores, 'test': scores})
    rates = ('1e-05', '2e-05', '5e-05', '1e-04', '2e-04', '5e-04')
    for model, dataset, lr, seed in itertools.product(range(50), range(12), rates, range(5)):
        folder = tmp_path / f'm{model}/SC/d{dataset}/lr{lr}_sd{seed}'
        folder.mkdir(parents=True)
        (folder / 'results.json').write_text(text)
    assert beyond_imports(f'--results={tmp_path}', '--predictions=', '--protocol=paper') < 30


def test_help_names_every_command():
    shown = run_script('evaluate.py', '--help').stdout
    pictures = [f'figure {kind}' for kind in ('share', 'switch')]
    for command in ('table', 'compare', 'losses', 'export', 'pack', 'report', *pictures):
        assert f'evaluate.py {command} ' in shown

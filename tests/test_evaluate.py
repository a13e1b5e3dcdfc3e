"""Scores against libraries that define them, intervals against scipy and simulation, what commands say."""
import csv
import dataclasses
import functools
import math
import random
import re
import shutil
import string
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import pytrec_eval
import seqeval.metrics
import seqeval.scheme
import sklearn.metrics
from pytest import approx
from scipy import stats

import evaluate
import simulation
from answers import CLM, PAST, answers, asked, told, write
from conftest import (
    ROOT,
    change,
    copy_program,
    edit,
    flip,
    log_lines,
    ran,
    refused,
    refused_line,
    run_process,
    run_script,
    write_log,
)
from data import Corpus, validation_batches
from nanoencoder import figures, metrics
from nanoencoder.predictions import SCORED, find_folders, rate_and_seed
from nanoencoder.tasks import retrieval

LABELS = ['O', 'B-PER', 'I-PER', 'B-LOC', 'I-LOC']


def standard(task, golds, preds, **settings):
    rows = [
        {'id': k, 'gold': gold, 'pred': pred}
        for k, (gold, pred) in enumerate(zip(golds, preds))]
    _, scores = metrics.both_scores(task, rows, **settings)
    return scores['standard']


# ---------------------------------------------------------------------------
# Labels and entities
def changed(tags, draw):
    """Tags of which two fifths are drawn anew."""
    return [
        tag if draw.random() < 0.6 else draw.choice(LABELS)
        for tag in tags]


@pytest.mark.filterwarnings('ignore')       # seqeval's, of tags that are no entity
def test_entity_f1_equals_seqeval():
    """Of random tag sequences, legal or not: its default has the rules of the CoNLL-2000 script."""
    for seed in range(150):
        draw = random.Random(seed)
        golds = [draw.choices(LABELS, k=draw.randint(1, 8)) for _ in range(20)]
        preds = [changed(tags, draw) for tags in golds]
        conlleval = seqeval.metrics.f1_score(golds, preds)
        strict = seqeval.metrics.f1_score(golds, preds, mode='strict', scheme=seqeval.scheme.IOB2)
        ours = standard('TC', golds, preds)
        assert ours['score'] == approx(conlleval, abs=1e-12)
        assert ours['others']['strict IOB2 F1'] == approx(strict, abs=1e-12)


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
        ours = standard('SC', golds, preds, metric='Matthews')
        matthews = sklearn.metrics.matthews_corrcoef(golds, preds)
        macro = sklearn.metrics.f1_score(golds, preds, average='macro', zero_division=0)
        accuracy = sklearn.metrics.accuracy_score(golds, preds)
        assert ours['score'] == approx(matthews, abs=1e-9)
        assert ours['others']['macro F1'] == approx(macro, abs=1e-12)
        assert ours['others']['accuracy'] == approx(accuracy)


def sets_of_labels(draw, size):
    return [draw.sample('abcd', draw.choice((0, 0, 1, 1, 2, 4))) for _ in range(size)]


def judged_f1(golds, preds, average):
    """scikit-learn's, of the labels that are in either list. A last column, of no label, keeps it from taking
    one label for a binary classification."""
    labels = sorted(set().union(*golds, *preds))
    if not labels:
        return 0.0
    columns = [*labels, None]
    gold, pred = [[[label in names for label in columns] for names in sets] for sets in (golds, preds)]
    scored = range(len(labels))
    judge = functools.partial(sklearn.metrics.f1_score, labels=scored, zero_division=0)
    return judge(np.array(gold), np.array(pred), average=average)


def test_scores_of_sets_of_labels_equal_sklearn():
    draw = random.Random(2)
    for _ in range(200):
        size = draw.randint(1, 8)
        golds = sets_of_labels(draw, size)
        preds = sets_of_labels(draw, size)
        micro = standard('ML', golds, preds)
        macro = standard('ML', golds, preds, metric='macro F1')
        same = np.mean([{*gold} == {*pred} for gold, pred in zip(golds, preds)])
        assert micro['score'] == macro['others']['micro F1'] == approx(judged_f1(golds, preds, 'micro'))
        assert macro['score'] == micro['others']['macro F1'] == approx(judged_f1(golds, preds, 'macro'))
        assert micro['others']['subset accuracy'] == macro['others']['subset accuracy'] == same


def test_resamples_of_macro_f1_equal_sklearn():
    """Of two runs together, each with a label that the other never predicts."""
    draw = random.Random(3)
    golds = sets_of_labels(draw, 12)
    runs = [[[*names, unlike] for names in sets_of_labels(draw, 12)] for unlike in 'yz']
    columns = [standard('ML', golds, preds, metric='macro F1')['columns'] for preds in runs]
    terms = metrics.STATISTICS['macro F1'].terms(np.stack(columns, 1))
    scores = evaluate.bootstrap('macro F1', terms, resamples=20)
    for drawn, of_runs in zip(np.random.default_rng(0).integers(0, 12, (20, 12), dtype=np.int32), scores):
        for preds, score in zip(runs, of_runs):
            assert score == approx(judged_f1([golds[k] for k in drawn], [preds[k] for k in drawn], 'macro'))


@pytest.mark.filterwarnings('ignore')       # scipy's, of constants
@pytest.mark.parametrize('name, judge', [
    ('Pearson', stats.pearsonr), ('Spearman', stats.spearmanr)])
def test_correlations_equal_scipy_with_ties_and_constants(name, judge):
    """Where scipy gives nan, of a constant, the score is 0."""
    draw = np.random.default_rng(4)
    zeros = 0
    for k in range(500):
        n = draw.integers(2, 60)
        grades = draw.choice([1, 2, 5, 10 ** 6])
        golds = draw.integers(0, grades, n) / 5 + draw.choice([0.0, 1e6])
        preds = draw.choice([0, 0.3, 1]) * golds
        if k % 7:
            preds += draw.normal(size=n).round(draw.integers(0, 7))
        theirs = np.nan_to_num(judge(golds, preds).statistic)
        ours = standard('SC', golds, preds, metric=name)
        assert ours['score'] == approx(theirs, abs=1e-9)
        zeros += theirs == 0
    assert zeros > 50


# ---------------------------------------------------------------------------
# Answers
WORDS = ['the', 'a', 'The', 'cat', 'cat,', 'Cat!', 'sat', '42', 'An', "it's", '  ', 'é', '—', '.', 'mat']


def test_answers_equal_torchmetrics_squad():
    """Its squad is the v1.1 script; random answers with articles, punctuation, case, and nothing at all."""
    from torchmetrics.functional.text.squad import (
        _compute_exact_match_score,
        _compute_f1_score,
        _metric_max_over_ground_truths,
    )
    draw = random.Random(3)
    for _ in range(5_000):
        pred, *golds = [
            ' '.join(draw.choices(WORDS, k=draw.randint(1, 4)))
            for _ in range(draw.randint(2, 4))]
        golds = [gold for gold in golds if metrics.normalise(gold)] or ['cat']
        if metrics.normalise(pred):     # v1.1 has no empty answers; v2's rule is tested below
            scores = tuple(
                float(_metric_max_over_ground_truths(judge, pred, golds))
                for judge in (_compute_f1_score, _compute_exact_match_score))
            assert metrics.answer_scores(pred, golds) == approx(scores)


@pytest.mark.parametrize('pred, golds, score', [    # worked by hand from the official scripts
    ('the', [], 1),                                 # nothing is left of an article
    ('cat', [], 0),
    # golds that normalise to nothing count only if there are no others
    ('', ['the', 'cat'], 0), ('', ['the'], 1)])
def test_squad_v2_by_hand(pred, golds, score):
    """F1 and exact match of empty answers, which v1.1 has not."""
    assert metrics.answer_scores(pred, golds) == (score, score)


def mlqa_f1(pred, gold):
    """A judge: the rule of MLQA's script for Chinese (Lewis et al. 2020), written apart."""
    def split(answer):
        words = ['']
        for character in answer.lower():
            if unicodedata.category(character).startswith('P') or character in string.punctuation:
                continue
            if '\u3040' <= character <= '\u9fff' or '\u0e00' <= character <= '\u0e7f':
                words += [character, '']
            else:
                words[-1] += character
        return [part for word in words for part in word.split()]
    left = split(gold)
    shared = 0
    for word in split(pred):
        if word in left:
            left.remove(word)
            shared += 1
    return 2 * shared / (len(split(pred)) + len(split(gold)))


def test_answers_without_spaces_are_scored_by_characters():
    """A judge, by its rule, on answers of Chinese, Japanese and Thai, mixed with Latin words and digits."""
    assert metrics.token_f1('北京市海淀', '北京市海淀区') == approx(10 / 11)
    draw = random.Random(1)
    words = ['北京', '市', '海淀区', '2008', '年', 'ソニー', 'の', 'Walkman', 'นก', 'ทะเล', ' ', '、', '。',
             '·', '「', '$']
    for _ in range(1_000):
        pred, gold = ['猫' + ''.join(draw.choices(words, k=draw.randint(1, 5))) for _ in range(2)]
        assert metrics.token_f1(pred, gold) == approx(mlqa_f1(pred, gold))
        assert metrics.answer_scores(gold, [gold]) == (1, 1)
    assert metrics.token_f1('the Yuan (元朝)', 'Yuan 元朝') == 1     # SQuAD's English has such answers
    assert metrics.token_f1('NBA。', 'NBA') == 1


def test_answered_and_unanswered_questions_are_scored_apart():
    rows = [
        {'id': 0, 'golds': golds, 'pred': pred}
        for golds, pred in [(['cat'], 'cat'), (['cat sat'], 'cat'), ([], ''), ([], 'mat'), ([], '')]]
    _, scores = metrics.both_scores('QA', rows)
    assert scores['standard']['score'] == approx((1 + 2 / 3 + 1 + 0 + 1) / 5)
    assert scores['standard']['others'] == {
        'exact': 3 / 5,
        'HasAns exact': 1 / 2,
        'HasAns F1': approx(5 / 6),
        'HasAns questions': 2,
        'NoAns exact': 2 / 3,
        'NoAns F1': 2 / 3,
        'NoAns questions': 3,
    }


# ---------------------------------------------------------------------------
# Rankings
def rankings(count):
    """Yield (grades, {document: score}) with many ties, unjudged documents and relevant ones not found."""
    draw = random.Random(4)
    for _ in range(count):
        documents = [f'd{k}' for k in range(draw.randint(2, 30))]
        judged = draw.sample(documents, draw.randint(1, len(documents)))
        grades = {document: draw.randint(-1, 3) for document in judged}
        grades['d0'] = 1
        scores = {
            document: draw.choice([0.1, 0.2, 0.3, 0.7, round(draw.random(), 6)])
            for document in documents}
        yield grades, scores


def test_ndcg_equals_trec_eval_and_the_papers_sklearn():
    """The paper's averages over ties, also those that the tenth rank cuts through."""
    cut = 0
    for grades, scores in rankings(1_000):
        ids = sorted(sorted(scores, reverse=True), key=scores.get, reverse=True)
        ordered = [scores[document] for document in ids]
        row = retrieval.ranking({'id': 'q', 'grades': grades}, ids, ordered)

        evaluator = pytrec_eval.RelevanceEvaluator({'q': grades}, {'ndcg_cut.10'})
        trec = evaluator.evaluate({'q': scores})['q']['ndcg_cut_10']
        assert metrics.ndcg(row) == approx(trec, abs=1e-9)

        gains = [max(0, grades.get(document, 0)) for document in ids]
        averaged = sklearn.metrics.ndcg_score([gains], [ordered], k=10)
        assert metrics.ndcg(row, ties=True) == approx(averaged, abs=1e-9)
        cut += 'tied' in row
    assert cut > 250


def test_a_querys_own_document_is_left_out_as_by_beir():
    """BEIR takes it out of the results, which pytrec_eval then scores; ties with the tenth are others'."""
    row = {'id': 'd0', 'grades': {'d1': 1}, 'is_document': True}
    ranked = retrieval.ranking(row, ['d0', 'd1', 'd2'], [1.0, 0.9, 0.1])
    assert metrics.ndcg(ranked) == 1.0      # 0.631 behind its own document
    for grades, scores in rankings(200):
        del grades['d0']
        ids = sorted(sorted(scores, reverse=True), key=scores.get, reverse=True)
        row['grades'] = grades | {'d1': 1}
        ranked = retrieval.ranking(row, ids, [scores[document] for document in ids])
        others = {document: score for document, score in scores.items() if document != 'd0'}
        evaluator = pytrec_eval.RelevanceEvaluator({'q': row['grades']}, {'ndcg_cut.10'})
        trec = evaluator.evaluate({'q': others})['q']['ndcg_cut_10']
        assert metrics.ndcg(ranked) == approx(trec, abs=1e-9)
        gains = [max(0, row['grades'].get(document, 0)) for document in others]
        if len(others) > 1:
            averaged = sklearn.metrics.ndcg_score([gains], [[*others.values()]], k=10)
            assert metrics.ndcg(ranked, ties=True) == approx(averaged, abs=1e-9)


# ---------------------------------------------------------------------------
# Intervals
def test_bootstrap_equals_scipy():
    """Of a ratio of two sums, as micro F1, over instances that are resampled together."""
    draw = np.random.default_rng(8)
    above = draw.lognormal(size=150)
    below = 1.0 + draw.integers(0, 3, 150)

    def ratio(a, b, axis):
        return a.sum(axis) / b.sum(axis)
    theirs = stats.bootstrap(
        (above, below), ratio, paired=True, n_resamples=20_000, method='percentile', rng=1)
    low, high = theirs.confidence_interval
    terms = np.array([[above, above], [below, below]])
    draws = evaluate.bootstrap('ratio', terms, resamples=20_000)
    assert np.array_equal(draws[:, 0], draws[:, 1])     # the same instances for all seeds
    ours = np.percentile(draws[:, 0], [2.5, 97.5])
    assert ours == approx((low, high), abs=0.03 * (high - low))


def cell(scores, cfg, seeds=range(9), dataset='d', model='m', **about):
    """The Cell of (S, N) scores, or of a row's (pretraining seeds, fine-tunings, N)."""
    runs = []
    for seed, of_seed in zip(seeds, scores):
        origin = seed if scores.ndim == 3 else None
        for k, values in enumerate(np.atleast_2d(of_seed)):
            content = {'test': {'standard': {'ids': 7, 'statistic': 'mean', 'columns': [values]}}}
            run = simulation.make_run(dataset, 10 * seed + k, origin, lambda content=content: content)
            runs.append(dataclasses.replace(run, model=model, about=about))
    return evaluate.make_cell(runs, cfg)


def difference(a, b, cfg, **more):
    """The Estimate of b - a."""
    return evaluate.estimate([[(1, b), (-1, a)]], cfg, **more)


FEW = evaluate.Settings(resamples=500)
MANY = evaluate.Settings(resamples=20_000)


def test_variances_are_those_of_the_closed_form():
    """MS_I / SN is that of the draws over instances; (MS_S - 2/3 MS_R) / SN is added, by Student's t."""
    normal = np.random.default_rng(13).normal
    S, N = 5, 80
    values = (
        normal(0, 0.1, N)
        + normal(0, 0.05, (S, 1))
        + normal(0.6, 0.2, (S, N)))
    MS_S, MS_I, MS_R = simulation.mean_squares(values)
    own = cell(values, MANY)
    assert own.draws.mean(0).var() == approx(MS_I / (S * N), rel=0.05)
    noise = evaluate.seed_noise(values)
    assert noise == approx(MS_R / N, rel=1e-9)
    draws = evaluate.with_seeds(np.zeros(20_000), [(own.scores.values(), noise)], MANY)
    variance = (MS_S - 2 / 3 * MS_R) / (S * N)
    half = stats.t.ppf(0.975, S - 1) * variance ** 0.5
    assert np.percentile(draws, [2.5, 97.5]) == approx([-half, half], rel=5e-3)


def test_seeds_that_agree_narrow_the_draws_over_instances():
    S, N = 3, 300
    draw = np.random.default_rng(17)
    values = draw.normal(0.5, 0.2, (S, N))
    values += 0.5 - values.mean(1, keepdims=True)
    _, MS_I, MS_R = simulation.mean_squares(values)
    variance = (MS_I - MS_R / 2) / (S * N)
    own = cell(values, MANY)
    assert (own.high - own.low) / 2 == approx(1.96 * variance ** 0.5, rel=0.03)


@pytest.mark.parametrize('seeds', [range(5), range(5, 10)])     # the same, and others
def test_models_are_paired_by_instances(seeds):
    """Instances that are hard for both do not widen the interval. test_coverage has equal models."""
    normal = np.random.default_rng(10).normal
    hard = normal(0.5, 0.3, 80)
    cells = []
    for own_seeds, gain in [(range(5), 0), (seeds, 0.1)]:
        scores = hard + normal(gain, 0.1, (5, 80)) + normal(0, 0.01, (5, 1))
        cells.append(cell(scores, FEW, own_seeds))
    result = difference(*cells, FEW)
    assert 0 < result.low < 0.1 < result.high
    assert result.p < 0.01


def test_one_seed_has_no_p_value():
    """Another seed may turn the sign. A baseline has no seed that could turn out otherwise."""
    draw = np.random.default_rng(15)
    hard = draw.random((1, 300))
    one = cell(hard, FEW)
    noise = draw.normal(0, 0.1, (5, 300))
    five = cell(hard + noise, FEW)
    baseline = cell(hard, FEW, method='baseline')
    assert difference(one, five, FEW).p is None
    assert difference(baseline, five, FEW).p
    assert difference(baseline, baseline, FEW).p == 1


def test_an_average_shares_the_seeds_that_all_have():
    """A seed that is lucky on both datasets is lucky in their average."""
    luck = np.array([[-0.1], [0.0], [0.1]])
    first, second = 0.5 + luck + np.random.default_rng(16).normal(0, 0.01, (2, 3, 200))
    second = cell(second, MANY, dataset='e')
    both = evaluate.average([cell(first, MANY), second], MANY)
    of_seeds = 0.1 / 3 ** 0.5
    assert both.high - both.low == approx(2 * 4.303 * of_seeds, rel=0.05)     # Student's t
    fewer = evaluate.average([cell(first[:2], MANY), second], MANY)
    assert fewer.scores == approx({
        seed: both.scores[seed]
        for seed in (0, 10)})


# ---------------------------------------------------------------------------
# Several pretraining seeds
def study(seed):
    """(6, 3, 200) scores: instances, pretrainings and fine-tunings have a share, and both with instances."""
    normal = np.random.default_rng(seed).normal
    return (
        normal(0.6, 0.2, 200)
        + normal(0, 0.02, (6, 1, 1))
        + normal(0, 0.1, (6, 1, 200))
        + normal(0, 0.02, (6, 3, 1))
        + normal(0, 0.1, (6, 3, 200)))


def test_fine_tunings_are_averaged_and_pretraining_seeds_are_the_unit():
    """Mean, units and the interval over seeds against means of fine-tunings and scipy."""
    a = study(20)
    b = study(21)
    second = cell(b, MANY)
    assert second.unit == 'pretraining'
    assert second.seeds == '6 x 3'
    result = difference(cell(a, MANY), second, MANY)
    d = (b - a).mean(1)                                                 # (pretraining seeds, instances)
    assert result.unit == 'pretraining'
    assert result.by_seed == approx(dict(enumerate(d.mean(1))), abs=1e-6)
    theirs = stats.ttest_1samp(d.mean(1), 0).confidence_interval()
    assert result[3:5] == approx(tuple(theirs), abs=1e-5)
    mean, half = simulation.closed_form(d)
    assert result.mean == approx(mean, abs=1e-6)
    assert (result.high - result.low) / 2 == approx(half, rel=0.15)


@pytest.mark.parametrize('model, method, unit', [
    ('m', 'probe', 'fine-tuning'), ('m', 'zero-shot', 'fine-tuning'),       # of one pretraining
    ('untrained', 'fine-tuned', 'pretraining'), ('untrained-probe', 'probe', 'pretraining'),
    ('m', 'baseline', 'pretraining')])
def test_one_model_without_seeds_against_several_pretrainings(model, method, unit):
    """Another pretraining would give a probe another score, but a floor has none; it shares no seeds."""
    of_one, *_ = study(27)
    one = cell(of_one[:1], FEW, model=model, method=method)
    six = cell(study(28), FEW, range(1, 7))
    result = difference(one, six, FEW)
    gains = {seed: score - one.mean for seed, score in six.scores.items()}
    assert result.unit == unit
    assert result.by_seed == approx(gains if unit == 'pretraining' else {})
    # no seeds are named as missing; p is .256, and with one fine-tuning of `untrained` there is none
    notes = [note.split(',')[0] for note in evaluate.notes_of(one, six, result)]
    assert notes == ([] if result.p is None else ['the seeds alone exclude 0'])
    assert (result.p is None) == (method == 'fine-tuned')


def test_units_that_arms_share_and_units_of_their_own():
    """The common pretraining seeds, if at least two; else each arm's own share, by Welch's interval."""
    a = study(25)
    b = study(26)
    first = cell(a, FEW)
    some = range(2, 5)
    three = cell(b[2:5], FEW, some)
    same = difference(cell(a[2:5], FEW, some), three, FEW)
    assert [*same.by_seed] == [2, 3, 4]
    assert difference(first, three, FEW)[:6] == same[:6]
    left_out = difference(first, cell(b, FEW), FEW, without=(0, 1, 5))
    assert left_out[:6] == same[:6]

    others = difference(first, cell(b[:4], FEW, range(5, 9)), FEW)
    theirs = stats.ttest_ind(b[:4].mean((1, 2)), a.mean((1, 2)), equal_var=False)
    assert others.by_seed == {}
    assert others.mean == approx(b[:4].mean() - a.mean(), abs=1e-6)
    assert others[3:5] == approx(tuple(theirs.confidence_interval()), abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize('metric, seeds, spread, n, each', [
    ('accuracy', 3, 0.15, 300, 1), ('F1', 5, 0.5, 300, 1), ('NDCG@10', 5, 0.15, 300, 1),
    ('accuracy', 3, 0.5, 900, 3), ('F1', 6, 0.15, 900, 3), ('NDCG@10', 8, 0.5, 900, 3)])
def test_coverage(metric, seeds, spread, n, each):
    """Cells of bench/simulation.py: intervals hold 93 to 97 %, and 3 to 7 % of equal models differ."""
    results = simulation.simulate(metric, seeds, spread, n, simulation.Settings(each=each))
    assert simulation.within(results['now']), results
    if each == 1:   # beside seeds' variance added whole
        assert results['sum'][2] < 3.5
        assert results['sum'][2] < results['now'][2]
    else:           # pretraining seeds, of three fine-tunings each, beside the closed form
        assert np.abs(results['now'] - results['closed form']).max() < 3, results


# ---------------------------------------------------------------------------
# Run folders


@pytest.fixture
def predictions(tmp_path):
    """Two models x two learning rates x three seeds on one task."""
    folder = tmp_path / 'predictions'
    for model, right in {'good': 80, 'poor': 50}.items():
        for seed in range(3):
            write(folder / f'{model}/SC/toy', answers(right + seed), f'lr1e-04_sd{seed}')
            write(folder / f'{model}/SC/toy', answers(right - 20 * seed), f'lr1e-03_sd{seed}')
    return folder


def means(printed):
    """{model: its mean} of a table in csv."""
    table = csv.DictReader(printed.splitlines())
    return {row['model']: float(row['mean']) for row in table}


def test_the_metric_halved_halves_the_table(predictions, tmp_path):
    """Of the same predictions: scores are computed again when metrics.py is another one."""
    copy_program(tmp_path)
    words = tmp_path / 'evaluate.py', 'table', '--format=csv', f'--predictions={predictions}'
    assert means(run_process(*words).stdout) == {'good': 81, 'poor': 51}
    edit(tmp_path / 'nanoencoder/metrics.py', '[float(pred == gold) for', '[0.5 * (pred == gold) for')
    assert means(run_process(*words).stdout) == {'good': 40.5, 'poor': 25.5}


def test_fine_tunings_of_different_weights_are_not_seeds_of_one_model(rows):
    """Also where nothing is said of their pretraining."""
    for seed in range(2):
        write(rows / 'hub/SC/toy', answers(90), f'lr1e-04_sd{seed}', checkpoint=f'of seed {seed}')
    shown = run_script(*asked(rows, 'table'))
    assert 'hub/SC/toy is left out: its runs differ in checkpoint; give them other names' in shown.stderr


def test_edited_scores_are_computed_again(predictions):
    before = told(predictions, 'table')
    for path in predictions.rglob('scores.json'):
        edit(path, '0.0', '1.0')
    assert told(predictions, 'table') == before
    path.write_text('')
    assert told(predictions, 'table') == before


def test_a_copied_folder_is_no_other_seed(predictions):
    run = predictions / 'good/SC/toy/lr1e-04_sd1'
    change(run, settings={'lr': 1e-4, 'seed': 1})
    told(predictions, 'table')
    run.rename(run.with_name('lr1e-04_sd7'))
    refused_line('lr1e-04_sd7: was made with seed = 1: give it its name back', *asked(predictions, 'table'))


def test_edited_predictions_have_no_score(predictions):
    told(predictions, 'table')      # after which scores.json is there
    folder = predictions / 'good/SC/toy/lr1e-04_sd1'
    advice = 'changed since it was written; remove its folder, and fine-tune again'
    predicted = folder / 'test.jsonl.gz'
    flip(predicted)
    refused_line(f'{predicted}: missing or {advice}', *asked(predictions, 'table'))
    about = folder / 'run.json'
    edit(about, 'fp32', 'fp16')
    refused_line(f'{about}: {advice}', *asked(predictions, 'table'))


def test_rows_are_models_and_probes_are_others(rows):
    write(rows / 'clm-s0-probe/SC/toy', answers(90), 'lr0e+00_sd0', method='probe',
          pretraining=CLM | {'seed': 0})
    write(rows / 'mine/SC/toy', answers(90), 'lr0e+00_sd0', method='probe')
    shown = told(rows, 'table', '--format=csv')
    models = {row['model']: (row['method'], row['seeds']) for row in csv.DictReader(shown.splitlines())}
    assert models == {
        'untrained': ('fine-tuned', '1'), 'mlm': ('fine-tuned', '3 x 2'), 'clm': ('fine-tuned', '3 x 2'),
        'clm-probe': ('probe', '1'), 'mine-probe': ('probe', '1')}
    compared = told(rows, 'compare', 'mlm', 'clm')
    assert re.search(r'SC toy, accuracy .* 3 x 2\n', compared)
    assert 'the difference is of' not in compared
    shutil.rmtree(rows / 'mlm-s1')
    assert 'toy: the difference is of seeds 0, 2, which both have' in told(rows, 'compare', 'mlm', 'clm')
    refused_line('there is no mlm-s1; the models are clm, clm-probe',
                 *asked(rows, 'compare', 'mlm-s1', 'clm'))
    # a folder of out/ stands for the fine-tunings of this one pretraining
    assert re.search(r'SC toy, accuracy .* 2 and 3 x 2\n', told(rows, 'compare', 'out/mlm-s0/', 'clm'))


@pytest.mark.parametrize('model, untrained', [
    ('mlm-1800', 'untrained'), ('mlm-1800-probe', 'untrained-probe'), ('mlm+six', 'untrained+six'),
    ('mlm+six-probe', 'untrained+six-probe'), ('a+b+c', 'untrained+b+c'), ('my-probe-2', 'untrained')])
def test_new_weights_of_the_same_kind_are_known_by_their_name(model, untrained):
    assert evaluate.untrained_like(model) == untrained
    assert evaluate.untrained_like(untrained) == untrained


def test_scores_below_new_weights_are_marked(tmp_path):
    """By hand: 60 of 100 for new weights, and 30 if they are probed. What is as good is not below."""
    def table(*words):
        return told(tmp_path, 'table', *words)

    right = {'good': 70, 'equal': 60, 'poor': 50, 'other+six': 10, 'good-probe': 40, 'poor-probe': 20}
    for model, count in right.items():
        write(tmp_path / f'{model}/SC/toy', answers(count))
    assert '°' not in table()
    write(tmp_path / 'untrained/SC/toy', answers(60))
    write(tmp_path / 'untrained-probe/SC/toy', answers(30))
    shown = table()
    assert re.findall(r'(?m)^(\S+) .*\]°$', shown) == ['poor', 'poor-probe']      # no untrained+six is there
    assert shown.count('\n°: below `untrained`') == 1
    assert '°' not in table('--format=csv')
    assert '°' not in table('--models=good,poor')
    assert re.findall(r'\| (\S+) \|.*\)° \|', table('--protocol=paper', '--format=markdown')) == [
        'poor', 'poor-probe']


def test_what_a_grid_lacks_is_named(rows):
    shutil.rmtree(rows / 'clm-s1/SC/toy/lr1e-04_sd11')
    missed = run_script(*asked(rows, 'table', '--models=("clm",)'))
    assert missed.returncode == 1
    assert missed.stderr == 'warning: clm-s1/SC/toy: missing lr1e-04_sd11\n'
    assert '\nclm ' in missed.stdout
    assert 'mlm' not in missed.stdout


@pytest.mark.parametrize('about, words', [
    ({'pretraining': CLM | {'seed': 1, 'phases': [['clm', 9]]}}, 'differ in phases'),
    ({'pretraining': CLM | {'seed': 1, 'fixed': {'lr': 2, 'seed': 1}}}, 'differ in lr of pretraining'),
    ({'settings': {'steps': 5, 'optimizer': 'muon'}}, 'differ in optimizer'),
    ({'settings': {'steps': 5, 'matrix_lr_ratio': 0.0}}, ''),       # as if it were not said
    ({'data': 'other'}, 'differ in data'),
    ({'tokenizer': 'other'}, 'differ in tokenizer'),
    ({'pretraining': CLM | {'seed': 0}}, 'differ in checkpoint')])
def test_runs_of_a_row_differ_only_in_seeds(rows, about, words):
    change(rows / 'clm-s1', **about)
    shown = run_script(*asked(rows, 'table'))
    assert shown.returncode == bool(words), shown.stderr
    if words:
        assert f'clm/SC/toy is left out: its runs {words}' in shown.stderr


def test_the_held_out_splits(tmp_path):
    """Each is scored at the rate that the other one chose; both together are their instances joined."""
    for seed in range(2):
        low = {'validation': answers(60), 'test': answers(10 + 2 * seed, 60)}
        high = {'validation': answers(50), 'test': answers(20 + 2 * seed, 60)}
        write(tmp_path / 'm/SC/toy', low, f'lr1e-04_sd{seed}')
        write(tmp_path / 'm/SC/toy', high, f'lr1e-03_sd{seed}')

    cells = {}
    for split in (*SCORED, 'both'):
        cfg = evaluate.Settings(predictions=str(tmp_path), resamples=200, split=split)
        runs = evaluate.read_runs(cfg, [])
        cells[split] = evaluate.make_cell(runs, cfg)
    test = cells['test']
    both = cells['both']
    assert test.mean == approx(11 / 60)
    assert {run.lr for run in test.runs} == {1e-4}
    assert {run.lr for run in cells['validation'].runs} == {1e-3}
    assert both.scores == approx({0: (10 + 50) / 160, 1: (12 + 50) / 160})
    assert both.runs[0].n == 160
    refused('different data', difference, both, test, FEW)


# ---------------------------------------------------------------------------
# Commands


def test_one_answer_to_everything_is_said_to_be_that(tmp_path):
    """"O" for each word has an entity F1 of 0 and an interval without width."""
    empty = [{'id': k, 'gold': ['O', 'B-X'], 'pred': ['O', 'O']} for k in range(9)]
    right = [row | {'pred': row['gold']} for row in empty]
    for seed in range(2):
        write(tmp_path / 'empty/TC/tags', empty, f'lr1e-04_sd{seed}')
        write(tmp_path / 'right/TC/tags', right, f'lr1e-04_sd{seed}')
    compared = told(tmp_path, 'compare', 'empty', 'right')
    assert f'tags: empty: {evaluate.CONSTANT}\n' in compared
    assert 'tags: right' not in compared
    shown = told(tmp_path, 'table')
    assert f'\nempty on tags: {evaluate.CONSTANT}\n' in shown
    assert shown.count(evaluate.CONSTANT) == 1


@pytest.mark.parametrize('seeds, p, low, words', [
    (3, 0.02, -20.4, 'the seeds alone allow 0, but p decides'),
    (3, 0.2, 1.0, 'the seeds alone exclude 0, but p decides'),
    (3, 0.2, -20.4, ''),
    (4, 0.02, 1.0, ''),
    (1, None, 1.0, ''),
    (1, None, math.nan, '')])
def test_where_p_and_the_seeds_disagree_it_is_said_which_decides(seeds, p, low, words):
    run = SimpleNamespace(model='m', method='fine-tuned', about={}, settings={})
    cell = evaluate.Cell(0.5, 0.4, 0.6, dict.fromkeys(range(seeds), 0.5), [run])
    result = evaluate.Estimate(0.1, 0.0, 0.2, low / 100, 0.3, p, None, {}, 'pretraining')
    notes = [*evaluate.notes_of(cell, cell, result)]
    assert len(notes) == bool(words)
    assert words in ''.join(notes)


def test_tables_and_comparisons(predictions):
    shown = told(predictions, 'table')
    assert 'toy (accuracy, n=100)' in shown
    good, = re.findall(r'\ngood +(\d) +(\S+) +(\S+) \[', shown)
    assert good == ('3', '1e-04*', '81.0')      # the rate that validation chose, an end of those tried
    assert '\n*: ' in shown
    assert '\na/b: ' not in shown
    assert '81.00 (1.13)' in told(predictions, 'table', '--protocol=paper')       # 1.96 / sqrt(3)
    for model, steps in {'poor': 20, 'good': 500}.items():
        change(predictions / model, settings={'steps': steps, 'max_length': 507})
        write(predictions / f'{model}-b/SC/toy', answers(steps / 10), 'lr0e+00_sd0', method='baseline')
    compared = told(predictions, 'compare', 'poor', 'good')
    assert 'SC toy' in compared
    assert '+30.0 [' in compared
    assert 'toy: steps 20 -> 500\n' in compared
    assert 'max_length' not in compared
    compared = told(predictions, 'compare', 'poor-b', 'good-b')
    assert '+48.0 [' in compared
    assert ' <= ' in compared
    assert 'nan' not in compared


def others(folder, capsys, **settings):
    """{(task, metric): (its mean as it is written, seeds)} of one model, as `table --others` prints it."""
    cfg = evaluate.Settings(predictions=str(folder), resamples=100, others=True, format='csv', **settings)
    evaluate.run_command(['table'], cfg, [])
    rows = csv.DictReader(capsys.readouterr().out.splitlines())
    return {(row['task'], row['metric']): (row['mean'], row['seeds']) for row in rows}


def percent(share):
    return f'{100 * share:.4f}'


@pytest.mark.filterwarnings('ignore')       # seqeval's, of tags that are no entity
def test_further_scores_of_tags_equal_seqeval_and_sklearn(tmp_path, capsys, monkeypatch):
    """Means over seeds at the rate that validation chose; and docs/hacking.md's word accuracy."""
    def with_words(rows, scheme, metric):
        *first, others = metrics.score_tags(rows, scheme, metric)
        right = [gold == pred for row in rows for gold, pred in zip(row['gold'], row['pred'])]
        return *first, others | {'word accuracy': np.mean(right).item()}
    monkeypatch.setitem(metrics.METRICS, 'TC', metrics.METRICS['TC']._replace(standard=with_words))
    draw = random.Random(5)
    golds = [draw.choices(LABELS, k=6) for _ in range(30)]
    right = [{'id': k, 'gold': gold, 'pred': gold} for k, gold in enumerate(golds)]
    wrong = [row | {'pred': ['O'] * 6} for row in right]
    judged = []
    for seed in range(2):
        preds = [changed(tags, draw) for tags in golds]
        rows = [row | {'pred': pred} for row, pred in zip(right, preds)]
        write(tmp_path / 'm/TC/tags', {'validation': right, 'test': rows}, f'lr1e-04_sd{seed}')
        write(tmp_path / 'm/TC/tags', {'validation': wrong, 'test': right}, f'lr1e-03_sd{seed}')
        gold = {*seqeval.metrics.sequence_labeling.get_entities(golds)}
        pred = {*seqeval.metrics.sequence_labeling.get_entities(preds)}
        either = [(span in gold, span in pred) for span in gold | pred]
        judged.append((
            sklearn.metrics.precision_score(*zip(*either)),
            sklearn.metrics.recall_score(*zip(*either)),
            seqeval.metrics.f1_score(golds, preds, mode='strict', scheme=seqeval.scheme.IOB2),
            sklearn.metrics.accuracy_score(sum(golds, []), sum(preds, []))))
    names = 'precision', 'recall', 'strict IOB2 F1', 'word accuracy'
    wanted = {('TC', name): (percent(mean), '2') for name, mean in zip(names, np.mean(judged, 0))}
    assert others(tmp_path, capsys) == wanted | {('TC', 'entities'): (str(len(gold)), '2')}


def test_further_scores_by_hand(tmp_path, capsys):
    """Fine-tunings of one pretraining are averaged first; a score that one seed lacks is of the other."""
    grades = [{'id': k, 'gold': float(k), 'pred': float(k)} for k in range(3)]
    for origin, seed, error in [(0, 0, 0), (0, 1, 2), (1, 2, 3)]:       # squares: 0 and 4/3, 3
        rows = [*grades[:2], grades[2] | {'pred': 2.0 + error}]
        write(tmp_path / f'm-s{origin}/SC/sts', rows, f'lr1e-04_sd{seed}', settings={'metric': 'Spearman'},
              pretraining=PAST | {'row': 'm', 'seed': origin})
    for seed, preds in enumerate([('cat', 'cat', '', 'mat'), ('', '', '', '')]):
        golds = ['cat'], ['cat sat'], [], []
        rows = [{'id': k, 'golds': gold, 'pred': pred} for k, (gold, pred) in enumerate(zip(golds, preds))]
        write(tmp_path / 'm/QA/squad', rows, f'lr1e-04_sd{seed}')
        ranked = {'id': 'q', 'docs': ['a', 'b'], 'scores': [2.0, 1.0], 'gold': {'ab'[seed]: 3}}
        write(tmp_path / 'm/IR/docs', [ranked], f'lr1e-04_sd{seed}')
        pairs = [{'id': k, 'set': name, 'good': k - seed, 'bad': -0.5} for k, name in enumerate('xyy')]
        write(tmp_path / 'm/MP/pairs', pairs, f'lr1e-04_sd{seed}')
        write(tmp_path / 'm/SC/toy', answers(3 + seed, 4), f'lr1e-04_sd{seed}')
    pearson = [stats.pearsonr([0, 1, 2], [0, 1, 2 + error]).statistic for error in (0, 2, 3)]
    by_hand = {
        ('SC', 'Pearson'): (percent((pearson[0] + pearson[1] + 2 * pearson[2]) / 4), '2 x 1.5'),
        ('SC', 'mean squared error'): ('1.83333', '2 x 1.5'),
        ('SC', 'Matthews'): ('0.0000', '2'),
        ('SC', 'macro F1'): (percent((3 / 7 + 1) / 2), '2'),
        ('SC', 'F1 of yes'): (percent(6 / 7), '1'),     # 3 of 4; the other seed predicts but one label
        ('SC', 'F1 of no'): ('0.0000', '1'),
        ('QA', 'exact'): ('50.0000', '2'),          # 2 of 4, then 2 of 4
        ('QA', 'HasAns exact'): ('25.0000', '2'),   # 1 of 2, then none
        ('QA', 'HasAns F1'): (percent((1 + 2 / 3) / 4), '2'),
        ('QA', 'HasAns questions'): ('2', '2'),
        ('QA', 'NoAns exact'): ('75.0000', '2'),    # 1 of 2, then both
        ('QA', 'NoAns F1'): ('75.0000', '2'),
        ('QA', 'NoAns questions'): ('2', '2'),
        ('IR', 'binary NDCG@10'): (percent((1 + 1 / np.log2(3)) / 2), '2'),
        ('MP', 'x'): ('50.0000', '2'),
        ('MP', 'y'): ('100.0000', '2'),
    }
    printed = others(tmp_path, capsys)      # more, where somebody added a metric
    assert {name: printed[name] for name in by_hand} == by_hand
    words = 'QA', 'squad', 'exact', 'm', '50.0', '4', '2', '1e-04'
    assert re.search(' +'.join(words), told(tmp_path, 'table', '--others'))
    assert f'| {" | ".join(words)} |\n' in told(tmp_path, 'table', '--others', '--format=markdown')


@pytest.mark.parametrize('words, part', [
    ([], 'the command is'),
    (['compare', 'a', 'b', '--others'], '--others is for table'),
    (['table', '--others', '--split=both'], '--others shows standard scores of one split'),
    (['table', '--protocol=paper', '--split=both'], 'scores test alone'),
    (['table', '--predictions=nowhere'], 'nowhere: no runs there'),
    (['losses', 'nowhere'], 'nowhere/config.json: No such file')])
def test_bad_commands_get_one_line(words, part):
    refused_line(part, 'evaluate.py', *words)


# ---------------------------------------------------------------------------
# Figures
def test_a_figure_of_rates_has_a_score_at_each_rate(predictions, monkeypatch):
    """Of two seeds their range, and not an interval."""
    drawn = []
    monkeypatch.setattr(figures, 'save_figure', lambda figure, path: drawn.append(figure))
    shutil.rmtree(predictions / 'poor')
    for path in predictions.rglob('*_sd2'):
        shutil.rmtree(path)
    for folder in find_folders(predictions):
        lr, seed = rate_and_seed(folder)
        change(folder, pretraining=PAST, settings={'lr': lr, 'seed': seed})
    evaluate.figure(evaluate.Settings(predictions=str(predictions), resamples=100), 'lr', [])
    ax, = drawn[0].axes
    bars, = ax.containers
    line, _, (segments,) = bars.lines
    assert ax.get_title(loc='left') == 'SC toy, accuracy'
    assert line.get_xydata() == approx(np.array([[1e-4, 80.5], [1e-3, 70]]))
    ranges = [ends[:, 1] for ends in segments.get_segments()]
    assert np.array(ranges) == approx(np.array([[80, 81], [60, 80]]))


def test_a_figure_is_drawn_of_intervals_without_width():
    """Whose mean may lie outside by rounding; and of one seed, which has none."""
    points = [
        ('SC', 'CLM', 1, 50.0, 50 + 1e-14, 50 + 1e-14),
        ('SC', 'CLM', 2, 50.0, 40, 60),
        ('SC', 'CLM', 3, 50.0, np.nan, np.nan)]
    drawn = figures.curves(points, 'steps', 'linear')
    bars, = drawn.axes[0].collections
    first, second, _ = bars.get_segments()
    assert np.ptp(first[:, 1]) < 1e-13
    assert second[:, 1].tolist() == [40, 60]


def test_runs_that_would_look_alike_get_colours_of_their_own():
    """Seeds of one run share a colour, and another objective keeps its own."""
    configs = [
        {'name': f'{name}-s{seed}', 'seed': seed, 'phases': [[objective, 9]], 'mask_ratio': ratio}
        for name, objective, ratio in [('clm', 'clm', 0.4), ('mlm20', 'mlm', 0.2), ('mlm40', 'mlm', 0.4)]
        for seed in range(2)]
    legends = [figures.legend_of(config, configs) for config in configs]
    assert legends[:4] == ['clm-s0', 'clm-s1', 'mlm20-s0, mask_ratio 0.2', 'mlm20-s1, mask_ratio 0.2']
    lines = {
        legend: (figures.style_of_config(config), figures.run_of(config))
        for legend, config in zip(legends, configs)}
    clm, clm1, mlm20, mlm20_1, mlm40, mlm40_1 = figures.styles_of(lines).values()
    assert clm == clm1 == figures.style_of_name('clm')
    assert mlm20 == mlm20_1 == figures.style_of_name('mlm')
    assert mlm40 == mlm40_1 == (figures.OF_FURTHER_RUNS[0], '-')

    tries = [{'name': f'try-{k}', 'row': 'try', 'seed': k // 2, 'phases': [['mlm', 9]], 'lr': k % 2}
             for k in range(4)]
    lines = {config['name']: (figures.style_of_config(config), figures.run_of(config)) for config in tries}
    without, changed, without_1, changed_1 = figures.styles_of(lines).values()
    assert without == without_1 != changed == changed_1     # though all name one row

    points = [('SC', line, x, 50, 40, 60) for line in ('MLM 20%', 'MLM 40%', 'CLM') for x in range(2)]
    drawn = figures.curves(points, 'steps', 'linear')
    colours = [bars.lines[0].get_color() for bars in drawn.axes[0].containers]
    assert colours == [mlm20[0], mlm40[0], clm[0]]


def test_a_setting_of_a_pretraining_is_one_number_though_fixed_says_it_once_more():
    def run(ratio):
        return SimpleNamespace(about={'pretraining': {'mask_ratio': ratio, 'fixed': {'mask_ratio': ratio}}})

    assert figures.number_in([run(0.2), run(0.4)], 'mask_ratio') == 'pretraining.mask_ratio'


def test_a_figure_is_of_any_number_in_which_runs_differ(predictions, monkeypatch):
    drawn = []
    monkeypatch.setattr(figures, 'save_figure', lambda figure, path: drawn.append(figure))
    cfg = evaluate.Settings(predictions=str(predictions), resamples=100)
    for model, tokens in {'poor': 800, 'good': 8_000}.items():
        change(predictions / model, pretraining=PAST | {'tokens': tokens}, sizes={'hidden_size': tokens / 8})
    evaluate.figure(cfg, 'tokens', [])
    evaluate.figure(cfg, 'sizes.hidden_size', [])
    for figure, xs in zip(drawn, ([800, 8_000], [100, 1_000])):
        bars, = figure.axes[0].containers
        assert bars.lines[0].get_xdata().tolist() == xs
    labels = [figure.axes[0].get_xlabel() for figure in drawn]
    assert labels == ['pretraining tokens, log scale', 'sizes.hidden_size, log scale']
    for key in ('pie', 'step'):     # no number, and one that is the same everywhere
        with pytest.raises(ValueError, match=f'figure {key}: which .*pretraining.tokens, sizes.hidden_size'):
            evaluate.figure(cfg, key, [])


def test_panels_have_plain_names():
    assert figures.title_of('TC', 'docs_tc') == 'tagging code words'
    assert figures.title_of('SC', 'toy') == 'SC toy'
    assert figures.title_of('IR', 'Average') == 'retrieval, average'
    assert figures.NAMES.keys() >= {path.stem for path in ROOT.glob('configs/tasks/docs_*.py')}


def test_lines_of_a_figure_are_recipes():
    about = {'phases': [('clm', 1), ('mlm', 3)], 'repeat': 100, 'mask_ratio': 0.4, 'step': 400}
    early = about | {'step': 100}
    words = 'CLM and MLM 40% in turn'
    cases = [
        ('m', about, 'pretraining.tokens', False, words),   # of any length
        ('m', early, 'pretraining.tokens', True, f'{words}, of 400 steps'),
        ('m', early, 'settings.lr', True, f'{words}, 100 steps'),
        ('m', about | {'continues': 'llama'}, 'pretraining.step', False, f'llama, then {words}'),
        ('m+causal', about, 'pretraining.mask_ratio', False, 'CLM and MLM in turn, 400 steps, causal'),
        ('m-probe', about, 'pretraining.step', False, f'{words}, probe'),
        ('m', about | {'phases': [('clm', 400)]}, 'pretraining.mask_ratio', False, None),
        ('bert', {}, 'settings.lr', False, 'bert')]
    for *case, line in cases:
        assert figures.line_of_model(*case) == line


# ---------------------------------------------------------------------------
# Pretraining's logs
def shown_losses(*folders):
    """[[the words of each line] of each corpus's table], and the line of the figure."""
    *lines, path = ran('evaluate.py', 'losses', *folders, f'--out={folders[0].parent}').stdout.splitlines()
    tables = []
    for line in lines:
        if line.startswith('corpus '):
            tables.append([])
            line, _ = line.split(':')
        tables[-1].append(line.split())
    return tables, path


def test_losses_of_each_corpus_by_themselves(tmp_path):
    """Older logs do not say of how much a loss is, nor what frequencies give of those that MLM predicts."""
    other = {'fingerprint': 'e' * 64, 'unigram_loss': 1.8, 'ordinary_unigram_loss': 5.3}
    write_log(tmp_path / 'long', range(1, 13), 5.0)
    write_log(tmp_path / 'other', range(1, 4), 5.0, corpus_meta=other)
    write_log(tmp_path / 'unseen', (1, 2), 5.0, phases=[['clm', 2]])    # measured of MLM, and never trained
    tables, path = shown_losses(tmp_path / 'long', tmp_path / 'other', tmp_path / 'unseen')
    head = 'run phases step tokens tokens/s val_mlm_loss'.split()
    assert tables == [
        [['corpus', 'f' * 12], head, 'long 12 mlm 12 96 100 4.880'.split(),
         'unseen 2 clm 2 16 100 -'.split()],
        [['corpus', 'e' * 12], head, 'other 12 mlm 3 24 100 4.970'.split(),
         'token frequencies 5.300'.split()]]
    assert path == f'{tmp_path}/losses.png'
    assert (tmp_path / 'losses.png').stat().st_size > 5_000


def test_a_loss_says_of_how_much_it_is_and_frequencies_of_what_is_predicted(trained, capsys):
    """CLM predicts all tokens, of which each row's two segments lack the first; MLM none that is special."""
    cfg = trained(phases=(('clm', 1), ('mlm', 1)), warmup_steps=0, decay_steps=0, val_rows=3)
    corpus = Corpus(cfg.corpus)
    masked = sum(len(batch.at) for batch in validation_batches(corpus, 'mlm', cfg))
    words = (r'val clm \S+ of 186 tokens, \S+% right  '
             rf'val mlm \S+ of {masked} tokens, \S+% right in 3 rows\n')
    assert re.search(words, capsys.readouterr().out)
    # of each stream the first shard is counted
    train, held_out = (arrays[0].astype(int) for arrays, _ in corpus.streams.values())

    def nats(without):
        counts = {token: 1 for token in range(4_096) if token not in without}
        for token in train.tolist():
            if token in counts:
                counts[token] += 1
        total = sum(counts.values())
        return np.mean([-np.log(counts[token] / total) for token in held_out.tolist() if token in counts])
    (table,), _ = shown_losses(Path(cfg.out, cfg.name))
    assert table[1][-5:] == ['val_rows', 'val_clm_loss', 'val_clm_accuracy', 'val_mlm_loss',
                             'val_mlm_accuracy']
    assert [table[2][place] for place in (-9, -6, -2)] == ['3', '186', str(masked)]
    last = log_lines(Path(cfg.out, cfg.name))[-1]
    assert table[2][-1] == f'{last["val_mlm_accuracy"]:.1%}'
    assert table[3] == ['token', 'frequencies', f'{nats([]):.3f}', f'{nats(corpus.meta["special_ids"]):.3f}']

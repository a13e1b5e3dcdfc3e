"""Results of other programs are compared as our own are: `evaluate.py compare A B --results=results.csv`."""
import json
import sys

import numpy as np
import pandas
import pytest
from pytest import approx
from scipy import stats

import evaluate
import simulation
import toys
from conftest import jsonl
from examples import results_from
from nanoencoder import metrics, needed, results
from nanoencoder.tasks import retrieval


def write_results(path, scores, **columns):
    """Write a .csv of {system: (seeds, items) scores}; `columns` have a value for each item."""
    frames = []
    for system, of_system in scores.items():
        for seed, values in enumerate(np.atleast_2d(of_system)):
            items = [f'q{k}' for k in range(len(values))]
            frames.append(pandas.DataFrame({'system': system, 'seed': seed, 'item': items, 'score': values}
                                           | columns))
    pandas.concat(frames).to_csv(path, index=False)


def estimate(path, **settings):
    """The Estimate of B - A."""
    return estimate_of(results.read_results(path, ('A', 'B'), settings.get('metric', 'accuracy')), **settings)


def estimate_of(found, **settings):
    cfg = evaluate.Settings(models=('A', 'B'), **({'resamples': 2_000} | settings))
    cells = evaluate.make_cells(evaluate.read_runs(cfg, [], found), cfg, [])
    a, b = [cell for (model, _, _), cell in cells.items()]
    assert (a.runs[0].model, b.runs[0].model) == ('A', 'B')
    return evaluate.estimate([[(1, b), (-1, a)]], cfg)


@pytest.fixture
def path(tmp_path):
    return tmp_path / 'results.csv'


def test_with_one_seed_it_is_the_paired_t_test(path):
    draw = np.random.default_rng(3)
    a = draw.random(400)
    b = np.clip(a + 0.2 * draw.normal(size=400) + 0.01, 0, 1)
    write_results(path, {'A': a, 'B': b})
    result = estimate(path, resamples=20_000)
    judge = stats.ttest_rel(b, a)
    low, high = judge.confidence_interval()
    assert 0.01 < judge.pvalue < 0.9
    assert result.mean == approx(b.mean() - a.mean())
    assert result.p == approx(judge.pvalue, abs=0.01)
    assert (result.low, result.high) == approx((low, high), abs=0.02 * (high - low))


@pytest.mark.parametrize('gained, lost', [(60, 40), (30, 15), (52, 47)])
def test_of_right_and_wrong_it_is_mcnemars_test(path, gained, lost):
    """p lies between McNemar's without and with the correction for continuity: a draw of 0 counts twice."""
    a = np.array([0] * gained + [1] * lost + [1] * 200 + [0] * 100)
    b = np.array([1] * gained + [0] * lost + [1] * 200 + [0] * 100)
    write_results(path, {'A': a, 'B': b})
    result = estimate(path, resamples=20_000)
    plain, corrected = [stats.chi2.sf((gained - lost - correction) ** 2 / (gained + lost), 1)
                        for correction in (0, 1)]
    assert plain - 0.008 < result.p < corrected + 0.008


def test_where_items_do_not_matter_it_is_the_paired_t_test_of_seeds(path):
    """Each seed has one score on all items."""
    a = np.array([0.50, 0.54, 0.49, 0.55])
    b = np.array([0.53, 0.55, 0.54, 0.56])
    write_results(path, {'A': np.repeat(a[:, None], 30, 1), 'B': np.repeat(b[:, None], 30, 1)})
    result = estimate(path)
    judge = stats.ttest_rel(b, a)
    low, high = judge.confidence_interval()
    assert (result.seeds_low, result.seeds_high) == approx((low, high))
    assert (result.low, result.high) == approx((low, high), abs=0.01 * (high - low))
    assert result.p == approx(judge.pvalue, abs=0.002)


def test_a_cluster_of_copies_counts_once(path):
    """Three copies of each item, drawn whole, say what the items themselves say."""
    draw = np.random.default_rng(4)
    scores = {system: draw.random((3, 100)) for system in 'AB'}
    write_results(path, scores)
    single = estimate(path)
    copies = {system: values.repeat(3, axis=1) for system, values in scores.items()}
    write_results(path, copies, cluster=np.arange(300) // 3)
    whole = estimate(path)
    assert (whole.mean, whole.low, whole.high) == approx((single.mean, single.low, single.high), abs=0.004)
    apart = estimate(path, clusters=False)
    assert apart.noise[0] == approx(whole.noise[0] / 3, rel=0.1)


@pytest.mark.parametrize('statistic', ['ratio', 'Matthews'])
def test_clusters_of_unlike_sizes_equal_a_bootstrap_by_hand(statistic):
    draw = np.random.default_rng(5)
    clusters = draw.integers(0, 40, 200)
    columns = np.stack([draw.integers(0, 2, 200), draw.integers(0, 2, 200)])
    columns[1] = np.where(draw.random(200) < 0.5, columns[0], columns[1])
    make_terms, score = evaluate.STATISTICS[statistic]
    terms = make_terms(columns[:, None])
    sums, sizes = evaluate.summed_by_cluster(terms, clusters)
    draws = evaluate.bootstrap(statistic, sums, 4_000, 0, sizes)[:, 0]
    by_hand = []
    for _ in range(2_000):
        chosen = draw.integers(0, 40, 40)
        rows = np.concatenate([np.flatnonzero(clusters == cluster) for cluster in chosen])
        by_hand.append(score(terms[..., rows].sum(-1), len(rows))[0])
    assert np.percentile(draws, [2.5, 50, 97.5]) == approx(np.percentile(by_hand, [2.5, 50, 97.5]), abs=0.02)
    values = evaluate.instance_values(statistic, sums, sizes)[0]
    assert values.mean() == approx(score(terms.sum(-1), 200)[0])
    assert values.std() / np.sqrt(40) == approx(np.std(by_hand), rel=0.1)


def test_clusters_of_one_change_nothing(path):
    draw = np.random.default_rng(6)
    scores = {system: draw.random((3, 50)) for system in 'AB'}
    write_results(path, scores)
    plain = estimate(path)
    write_results(path, scores, cluster=[f'c{49 - k}' for k in range(50)])
    single = estimate(path)
    assert (plain.low, plain.high, plain.p) == (single.low, single.high, single.p)


def test_questions_on_one_text_and_queries_with_one_answer_are_clusters():
    rows = [{'id': k, 'context': context, 'answers': []} for k, context in enumerate(['one', 'one', 'other'])]
    first, second, third = [toys.QUESTIONS.prediction(row, '')['cluster'] for row in rows]
    assert first == second != third
    ranked = retrieval.ranking({'id': 'q', 'grades': {'d1': 1, 'd2': 2}}, ['d1', 'd2'], [0.5, 0.1])
    assert ranked['cluster'] == 'd2'
    _, scores = metrics.both_scores('IR', [ranked])
    assert scores['standard']['clusters'] == ['d2']


def test_predictions_with_and_without_clusters_are_compared_by_items_alone(path):
    draw = np.random.default_rng(9)
    scores = {'A': draw.random(40), 'B': draw.random(40)}
    write_results(path, scores)
    plain, _ = results.read_results(path, ('A', 'B'), 'accuracy')
    write_results(path, scores, cluster=np.arange(40) // 4)
    _, clustered = results.read_results(path, ('A', 'B'), 'accuracy')
    found = [plain, clustered]
    with pytest.raises(ValueError, match='which --clusters=False ignores'):
        estimate_of(found)
    assert estimate_of(found, clusters=False).p


def test_answers_are_scored_by_a_metric(path):
    draw = np.random.default_rng(7)
    gold = draw.normal(size=80)
    answers = {system: gold + draw.normal(size=(2, 80)) for system in 'AB'}
    write_results(path, answers, gold=gold)
    result = estimate(path, metric='Pearson')
    means = {system: np.mean([stats.pearsonr(values, gold).statistic for values in of_system])
             for system, of_system in answers.items()}
    assert result.mean == approx(means['B'] - means['A'])


def compare(path, capsys, monkeypatch, *options):
    monkeypatch.setattr(sys, 'argv', ['evaluate.py', 'compare', 'A', 'B', f'--results={path}', *options])
    with pytest.raises(SystemExit) as end:
        evaluate.main()
    assert end.value.code == 0
    return capsys.readouterr().out


def test_what_is_printed(path, capsys, monkeypatch):
    scores = {'A': np.tile([1, 0, 1, 0], 20), 'B': np.tile([1, 1, 1, 0], (3, 20))}
    write_results(path, scores, cluster=np.arange(80) // 4)
    text = compare(path, capsys, monkeypatch, '--needed=2.0', '--resamples=200')
    assert 'results, score  50.0  75.0  +25.0' in text
    assert '80 in 20' in text
    assert 'A has one seed' in text
    assert 'B has one seed' not in text
    assert 'four times of five' in text


@pytest.mark.parametrize('names', ['A,0,{},{}', 'org/A,0,{},{}'])
def test_a_file_may_begin_with_a_byte_order_mark_and_a_system_have_a_slash(path, names):
    first = names.split(',')[0]
    lines = ['system,seed,item,score']
    lines += [names.format(item, 0.5) for item in 'qrs'] + [f'B,0,{item},1' for item in 'srq']
    path.write_text('\n'.join(lines), encoding='utf-8-sig')
    (folder, _, _), _ = results.read_results(path, (first, 'B'), 'accuracy')
    assert folder.parts[-4] == 'A'


def test_a_file_may_have_spaces_behind_commas_and_the_line_ends_of_windows(path):
    rows = ['system', 'seed', 'item', 'score'], ['A', '0', 'q', '-0.5'], ['B', '0', 'q', '"1"']
    path.write_text('\r\n'.join(map(', '.join, rows)) + '\r\n', newline='')
    table = results.read_table(path)
    assert [*table.loc[3, ['system', 'seed', 'item', 'score']]] == ['B', '0', 'q', '1']


@pytest.mark.parametrize('encoding', ['latin-1', 'utf-16'])
def test_a_file_in_another_encoding_is_one_line_with_the_command_that_converts_it(path, encoding):
    path.write_text('system,seed,item,score\nA,0,für,1\nB,0,für,0\n', encoding=encoding)
    with pytest.raises(ValueError, match='results.csv.*iconv'):
        results.read_table(path)


FOUR = 'A,0,q,1\nA,0,r,0\nB,0,q,1\n'


@pytest.mark.parametrize('rows, part', [
    ('', 'is no .csv with the columns system, seed, item, score'),
    ('system,seed,item,score', 'has no line below its first'),
    ('system,seed,item\nA,0,q', 'has no column score'),
    ('system;seed;item;score\nA;0;q;1', 'with commas between'),
    (f'system,seed,item,score\n{FOUR}B,0,r', ":5: score ''"),
    ('system,seed,item,score\nA,0,q,1,\nB,0,q,0,', 'more fields than the first line'),
    ('system,seed,item,score\nA,first,q,1\nB,0,q,1', ":2: seed 'first'"),
    (f'system,seed,item,score\nA,0,q,1\n{FOUR}', ":3: item 'q' is there twice"),
    (f'system,seed,item,score\n{FOUR}', "B, seed 0, lacks 1 of 2 items, as 'r'"),
    (f'system,seed,item,score\n{FOUR}B,0,r,yes', ":5: score 'yes' is no number"),
    (f'system,seed,item,score\n{FOUR}B,0,r,nan', ":5: score 'nan' is no number"),
    (f'system,seed,item,score\n{FOUR}B,0,r,37', ":5: score '37' is beyond 1; divide percentages by 100"),
    ('system,seed,item,score\nA,0,q,1\nC,0,q,1', 'there is no B; its systems are A, C'),
    ('system,seed,item,score\nA,0,q,1\nB,0,q,0', 'has one item'),
    ('system,seed,item,score,dataset\nA,0,q,1,x\nB,0,q,0,y', 'no dataset in common: x and y'),
    ('system,seed,item,score,cluster\nA,0,q,1,c\nA,0,r,1,c\nB,0,q,1,c\nB,0,r,0,c', 'are one cluster'),
    ('system,seed,item,score,cluster\nA,0,q,1,c\nB,0,q,1,', ":3: cluster '' is empty"),
    ('system,seed,item,score,gold\nA,0,q,1,\nB,0,q,1,x', ":2: gold '' is empty"),
    ('system,seed,item,score,dataset\nA,0,q,1,\nB,0,q,0,', ":2: dataset '' is empty"),
    ('system,seed,item,score,gold\nA,0,q,1.0,1\nB,0,q,1.0,1', "no score is one of the right answers, as '1'"),
    ('system,seed,item,score,gold\nA,0,q,x,x\nB,0,q,x,y', ":3: gold 'y' is not what this item has before")])
def test_results_that_cannot_be_compared(path, rows, part):
    path.write_text(rows)
    problems = []
    with pytest.raises(ValueError) as error:
        evaluate.run_command(['compare', 'A', 'B'], evaluate.Settings(results=str(path)), problems)
    assert part in ' '.join([str(error.value), *problems])


def test_a_metric_and_two_names_make_sense(path):
    write_results(path, {'A': [0, 1], 'B': [1, 1]})
    with pytest.raises(ValueError, match='has no column gold'):
        results.read_results(path, ('A', 'B'), 'Pearson')
    with pytest.raises(ValueError, match='are one name'):
        results.read_results(path, ('A', 'org/A'), 'accuracy')
    with pytest.raises(ValueError, match='results.csv: no runs there; there is no .*other'):
        cfg = evaluate.Settings(results=str(path), datasets=('other',))
        evaluate.run_command(['compare', 'A', 'B'], cfg, [])


# ---------------------------------------------------------------------------
# How many seeds or items are needed


def test_items_needed_with_one_seed_are_those_of_the_textbook():
    """(1.96 + 0.84) ^ 2 variances to the square of the difference."""
    count = needed.needed_items(needed.Parts(0.2 / 500, []), 0.03, 500)
    assert count == approx((1.95996 + 0.84162) ** 2 * 0.2 / 0.03 ** 2, rel=0.05)


def test_parts_of_a_variance_are_those_that_were_drawn(path):
    draw = np.random.default_rng(8)
    items = 0.3 * draw.normal(size=400)
    of_seeds = 0.05 * draw.normal(size=(60, 1))
    both = 0.2 * draw.normal(size=(60, 400))
    write_results(path, {'A': np.zeros((60, 400)), 'B': np.clip(items + of_seeds + both, -1, 1)})
    parts = needed.parts_of(estimate(path).noise)
    group, = parts.groups
    assert group.seeds == 60
    assert parts.items * 400 == approx(0.3 ** 2, rel=0.15)
    assert group.between == approx(0.05 ** 2, rel=0.4)
    assert group.both * 400 == approx(0.2 ** 2, rel=0.1)


@pytest.mark.parametrize('groups, words', [
    ([([0.0, 0.1, 0.2], 0.0)], ' with 3 seeds, or by 4 seeds of each on these 50 items'),
    ([([0.0, 0.1, 0.2], 0.0), ([0.1], 0.0)], '4 seeds of the one that has several on these 50 items'),
    ([([0.1], 0.0)], ' items')])
def test_whose_seeds_are_needed(groups, words):
    assert needed.words_of_needed((1e-6, groups), 50, 30.0).endswith(words)


def share_shown(seeds, n, difference, items, between, both):
    """How often evaluate.py's interval of a difference leaves out 0, with these variances."""
    random = np.random.default_rng(seeds)
    shown = 0
    for k in range(1_500):
        scores = (difference + np.sqrt(items / n) * random.normal()
                  + np.sqrt(between + both / n) * random.normal(size=seeds))
        draws = random.normal(scores.mean(), np.sqrt((items + both / seeds) / n), 2_000)
        noise = both / n
        draws = evaluate.with_seeds(draws, [(scores.tolist(), noise)], evaluate.Settings(seed=k))
        low, high = np.percentile(draws, [2.5, 97.5])
        shown += low > 0 or high < 0
    return shown / 1_500


@pytest.mark.slow
@pytest.mark.parametrize('items, between, both, seeds, n', [
    (0.15, 0.0002, 0.1, 3, 800), (0.05, 0.0006, 0.1, 3, 600),
    (0.1, 0.0004, 0.2, 3, 600), (0.1, 0.0002, 0.3, 6, 600)])
def test_what_is_needed_is_right_within_a_tenth(items, between, both, seeds, n):
    """So many seeds show the difference in four cases of five, and a tenth fewer (or one) do not."""
    parts = needed.Parts(items / n, [needed.Group(seeds, between, both / n)])
    variances = items, between, both
    count = needed.needed_seeds(parts, 0.05)
    assert share_shown(count, n, 0.05, *variances) > 0.78
    assert share_shown(count - max(1, count // 10), n, 0.05, *variances) < 0.82
    count = needed.needed_items(parts, 0.05, n)
    if count:
        assert share_shown(seeds, round(1.1 * count), 0.05, *variances) > 0.78
        assert share_shown(seeds, round(0.9 * count), 0.05, *variances) < 0.82


@pytest.mark.slow
@pytest.mark.parametrize('metric, seeds, spread', [
    ('accuracy', 3, 0.5), ('F1', 5, 0.5), ('NDCG@10', 5, 0.15)])
def test_coverage_with_clusters(metric, seeds, spread):
    """Three of the twelve cells of which docs/protocols.md has the numbers."""
    cfg = simulation.Settings(cluster=5, simulations=500)
    by_method = simulation.simulate(metric, seeds, spread, 600, cfg)
    assert simulation.within(by_method['now']), by_method


# ---------------------------------------------------------------------------
# What other programs write, small, with the names and fields that they have


def convert(tmp_path, *words, **settings):
    cfg = results_from.Settings(**settings)
    return [
        {key: value for key, value in row.items() if value is not None and key != 'epoch'}
        for row in results_from.rows_of([f'{word.split("=")[0]}={tmp_path / word.split("=")[1]}'
                                         for word in words], cfg)]


def lm_eval_sample(doc_id, filter, score):
    return {
        'doc_id': doc_id, 'doc': {'question': f'Question {doc_id}?', 'passage': f'text {doc_id // 2}'},
        'target': 'yes', 'arguments': {'gen_args_0': {'arg_0': 'Question?', 'arg_1': {'until': ['\n']}}},
        'resps': [['yes']], 'filtered_resps': ['yes'], 'filter': filter, 'metrics': ['exact_match'],
        'doc_hash': '0', 'prompt_hash': '0', 'target_hash': '0', 'exact_match': score}


def test_lm_evaluation_harness(tmp_path):
    name = 'samples_gsm8k_cot_2026-11-29T10-00-00.000000.jsonl'
    for model in ('one', 'two'):
        (tmp_path / model).mkdir()
        (tmp_path / model / 'results_2026-11-29T10-00-00.000000.json').write_text('{}')
        jsonl(tmp_path / model / name, [
            lm_eval_sample(k, filter, float(k > 1 or filter == 'flexible-extract'))
            for k in range(4) for filter in ('strict-match', 'flexible-extract')])
    rows = convert(tmp_path, 'A=one', 'B=two', cluster='passage')
    first = rows[0]
    assert (first['system'], first['seed'], first['dataset'], first['item']) == ('A', 0, 'gsm8k_cot', 0)
    assert [row['score'] for row in rows] == [0, 0, 1, 1] * 2
    first, second, third, _ = [row['cluster'] for row in rows[:4]]
    assert first == second != third
    rows = convert(tmp_path, f'A=one/{name}', f'A=two/{name}', filter='flexible-extract')
    assert [(row['seed'], row['score']) for row in rows] == [(0, 1)] * 4 + [(1, 1)] * 4


def test_mteb(tmp_path):
    """NDCG@10 by hand: the relevant document comes second, 1 / log2(3), or first."""
    (tmp_path / 'NFCorpus_predictions.json').write_text(json.dumps({
        'mteb_model_meta': {'model_name': 'org/model', 'revision': '1'},
        'default': {'test': {'q1': {'d1': 0.9, 'd2': 0.5}, 'q2': {'d1': 0.1, 'd3': 0.7}}}}))
    (tmp_path / 'test.tsv').write_text('query-id\tcorpus-id\tscore\nq1\td2\t1\nq2\td3\t2\n')
    rows = convert(tmp_path, 'A=NFCorpus_predictions.json', gold=str(tmp_path / 'test.tsv'))
    assert [(row['dataset'], row['item'], row['score']) for row in rows] == [
        ('NFCorpus', 'q1', approx(1 / np.log2(3))), ('NFCorpus', 'q2', 1.0)]


def test_predictions_of_trainer(tmp_path):
    (tmp_path / 'predict_results_sst2.txt').write_text('index\tprediction\n0\tpositive\n1\tnegative\n')
    (tmp_path / 'test.csv').write_text('sentence,label\ngood,positive\nbad,positive\n')
    rows = convert(tmp_path, 'A=predict_results_sst2.txt', gold=str(tmp_path / 'test.csv'))
    assert [(row['dataset'], row['item'], row['score'], row['gold']) for row in rows] == [
        ('sst2', 0, 'positive', 'positive'), ('sst2', 1, 'negative', 'positive')]


def test_trec_eval(tmp_path):
    (tmp_path / 'nq').mkdir()
    (tmp_path / 'nq/nfcorpus.trec').write_text(
        'runid                 \tall\tmy own run\nmap                   \tq1\t0.5000\n'
        'ndcg_cut_10           \tq1\t0.6309\n'
        'ndcg_cut_10           \tq2\t1.0000\nndcg_cut_10           \tall\t0.8155\n')
    rows = convert(tmp_path, 'A=nq')
    assert {row['dataset'] for row in rows} == {'nfcorpus'}
    assert [(row['item'], row['score']) for row in rows] == [('q1', 0.6309), ('q2', 1.0)]


def test_inspect(tmp_path):
    samples = [
        {'id': id, 'epoch': epoch, 'input': 'Why?', 'target': 'so', 'metadata': {'topic': 'x'},
         'scores': {'match': {'value': value, 'answer': 'so'}}}
        for id, epoch, value in (('a', 1, 'C'), ('b', 1, 'I'), ('a', 2, 'P'), ('b', 2, 0.25))]
    log = {'version': 2, 'status': 'success', 'samples': samples}
    log['eval'] = {'task': 'why', 'model': 'org/model'}
    (tmp_path / 'log.json').write_text(json.dumps(log))
    rows = convert(tmp_path, 'A=log.json')
    assert [(row['seed'], row['item'], row['score']) for row in rows] == [
        (0, 'a', 1.0), (0, 'b', 0.0), (1, 'a', 0.5), (1, 'b', 0.25)]


def test_what_is_converted_is_compared(tmp_path, capsys, monkeypatch):
    for model, good in (('one', 20), ('two', 30)):
        (tmp_path / model).mkdir()
        jsonl(tmp_path / model / 'samples_arc_2026.jsonl', [
            lm_eval_sample(k, 'none', float(k < good)) for k in range(40)])
    out = tmp_path / 'r.csv'
    monkeypatch.setattr(sys, 'argv', ['x', f'A={tmp_path}/one', f'B={tmp_path}/two', f'--out={out}'])
    results_from.main()
    assert 'arc, score  50.0  75.0  +25.0' in compare(out, capsys, monkeypatch, '--resamples=200')


@pytest.mark.parametrize('words, part', [
    (['A'], "'A': write NAME=PATH"), (['A=none'], 'no such file'), (['A=.'], 'none of samples_*.jsonl')])
def test_files_of_nobody(tmp_path, words, part, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=part.replace('*', r'\*')):
        results_from.rows_of(words, results_from.Settings())


PAIR = [1, 0]   # the right answer and the model's, of which Matthews' correlation is made
LOG = {'eval': {'task': 'why'}}
RANKED = {'default': {'test': {'q1': {'d1': 0.9}}}}


@pytest.mark.parametrize('name, content, settings, part', [
    ('samples_cola_2026.jsonl', lm_eval_sample(0, 'none', PAIR), {}, 'exact_match is [1, 0], and no score'),
    ('samples_arc_2026.jsonl', lm_eval_sample(0, 'none', 1), {'metric': 'acc'}, 'is one of exact_match'),
    ('samples_arc_2026.jsonl', lm_eval_sample(0, 'none', 1), {'cluster': 'topic'},
     'none of question, passage'),
    ('x_predictions.json', RANKED, {}, 'need --gold'),
    ('x_predictions.json', {'default': {'test': [[0, 1]]}}, {'gold': 'q.tsv'}, 'is not as its program'),
    ('x_predictions.json', {'default': {'test': {'q9': {}}}}, {'gold': 'q.tsv'}, 'json: has no results'),
    ('samples_arc_2026.jsonl', '', {}, 'samples_arc_2026.jsonl: is not as its program writes it'),
    ('samples_arc_2026.jsonl', lm_eval_sample(0, 'none', None), {}, 'exact_match: float() argument must be'),
    ('predict_results_x.txt', 'index\n0,a\n', {'gold': 'q.tsv', 'label': 'score'}, 'is not as its program'),
    ('bm25.trec', 'ndcg_cut_10\tq1\n', {}, "'ndcg_cut_10\\tq1' is no metric, query and value"),
    ('x_predictions.json', RANKED, {'gold': 'q.csv'}, "'q1,d1,1' is no query, document and grade"),
    ('results.json', {'results': {}}, {}, 'is no log of Inspect with samples'),
    ('log.json', LOG | {'samples': [{'id': 'a', 'epoch': 1}]}, {}, 'sample a: has no score'),
    ('log.json', LOG | {'samples': [{'id': 'a', 'epoch': 1, 'scores': {'match': {'value': 'so'}}}]}, {},
     "sample a: match: could not convert string to float: 'so'"),
    ('log.json', LOG | {'samples': [{'id': 'a', 'epoch': 1, 'scores': {'match': {}}}]}, {'metric': 'f1'},
     "has no scorer 'f1'; --metric is one of match")])
def test_files_that_are_something_else(tmp_path, monkeypatch, name, content, settings, part):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'q.tsv').write_text('query-id\tcorpus-id\tscore\nq1\td1\t1.0\n')
    (tmp_path / 'q.csv').write_text('q1,d1,1\n')
    if not isinstance(content, str):
        content = json.dumps(content)
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError) as error:
        results_from.rows_of([f'A={name}'], results_from.Settings(**settings))
    assert part in str(error.value)


def test_right_answers_in_a_tsv(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'predict_results_sst2.txt').write_text('index\tprediction\n0\tpositive\n')
    (tmp_path / 'dev.tsv').write_text('sentence\tlabel\na "b\tpositive\n')
    row, = convert(tmp_path, 'A=predict_results_sst2.txt', gold='dev.tsv')
    assert row['gold'] == 'positive'
    jsonl(tmp_path / 'dev.jsonl', [{'sentence': 'a', 'label': 'positive'}])
    assert convert(tmp_path, 'A=predict_results_sst2.txt', gold='dev.jsonl') == [row]
    with pytest.raises(ValueError, match="no column 'class'; --label is one of sentence, label"):
        convert(tmp_path, 'A=predict_results_sst2.txt', gold='dev.tsv', label='class')

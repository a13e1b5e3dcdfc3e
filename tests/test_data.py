"""The law of a batch: what a step reads, decided by its settings; objectives; corpora that are read."""
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

import data
from conftest import ROWS, flip, refused, refused_line, replace, run_script
from nanoencoder.files import write_json


@pytest.fixture
def source(corpus):
    return data.Corpus(corpus)


@pytest.fixture
def batch_of(source, settings):
    """batch_of(objective, rows): training rows as a Batch, by settings with some changed."""
    def make(objective, rows=ROWS, **changes):
        batch, _ = data.make_batch(source, 'train', rows, 0, objective, settings(**changes))
        return batch
    return make


@pytest.fixture
def ordinary(source, batch_of):
    """Which tokens of ROWS are not special."""
    tokens = batch_of('clm').tokens
    return ~np.isin(tokens, source.meta['special_ids'])


def rows_of(steps, source, cfg):
    num_stretches = source.num_stretches('train', cfg.context)
    return [row for step in steps for row in data.rows_of_step(step, num_stretches, cfg)]


def test_the_law_of_a_batch_is_what_it_was(tmp_path, settings):
    """So runs compare across versions. Numbers are of a second writing of it, in Python's own integers."""
    tokens = np.arange(6400) * 7919 % 4000
    np.save(tmp_path / 'tokens_00000.npy', tokens.astype(np.uint16))
    write_json(tmp_path / 'meta.json', {
        'vocab_size': 4096,
        'special_ids': [4093, 4094, 4095],
        'mask_token_id': 4095,
        'shards': [{'name': 'tokens_00000.npy'}],
        'val_shards': []})
    source = data.Corpus(tmp_path)
    cfg = settings(phases=(('mlm', 99),), seed=3, micro_rows=0)
    stretches = [k for _, k in rows_of((24, 25), source, cfg)]    # the second begins an epoch
    assert stretches == [67, 30, 10, 84, 82, 53, 58, 50]
    (batch,), num_targets, rows_hash = data.read_step(7, source, cfg)
    assert batch.at[:8].tolist() == [1, 3, 4, 5, 11, 12, 14, 16]
    assert (num_targets, rows_hash) == (108, 50301537313994)


def test_permute_is_a_bijection():
    for n in (1, 2, 3, 5, 16, 17, 4097):
        assert sorted(data.permute(np.arange(n), n, 0, 1)) == list(range(n))


def test_permute_looks_uniform_and_depends_on_seed_and_epoch():
    n = 97
    keys = [(seed, epoch) for seed in range(60) for epoch in range(5)]
    images = np.array([data.permute(np.arange(n), n, *key) for key in keys])
    assert len(np.unique(images, axis=0)) == 300
    for place in (0, 1, 50, 96):
        counts = np.bincount(images[:, place], minlength=n)
        assert stats.chisquare(counts).pvalue > 1e-4
    steps = np.diff(images, axis=1) % n    # from an index's image to the next one's
    assert stats.chisquare(np.bincount(steps.ravel())[1:]).pvalue > 1e-4


def test_a_step_does_not_depend_on_objective_processes_or_micro_batches(source, settings):
    cfg = settings(phases=(('clm', 30), ('mlm', 30), ('mdlm', 30)), rows_per_step=8, micro_rows=0)
    all_mlm = replace(cfg, phases=(('mlm', 90),))
    for step in (0, 7, 45, 61):
        (whole,), num_targets, rows_hash = data.read_step(step, source, cfg)
        for size in (1, 2, 4):
            shares = [data.read_step(step, source, replace(cfg, micro_rows=2), rank, size)
                      for rank in range(size)]
            batches, counts, hashes = zip(*shares)
            for name in ('tokens', 'targets', 'weights'):
                parts = [getattr(batch, name) for some in batches for batch in some]
                assert np.array_equal(np.concatenate(parts), getattr(whole, name))
            assert sum(counts) == num_targets
            assert sum(hashes) % 2 ** 48 == rows_hash
        _, _, same_hash = data.read_step(step, source, all_mlm)
        assert same_hash == rows_hash


def test_epochs_read_each_stretch_once(source, settings):
    cfg = settings(rows_per_step=7)
    K = source.num_stretches('train', 64)
    rows = rows_of(range(3 * K // 7 + 1), source, cfg)
    numbers, stretches = zip(*rows)
    assert [*numbers] == [*range(len(rows))]
    epochs = [stretches[epoch * K:(epoch + 1) * K] for epoch in range(3)]
    for epoch in epochs:
        assert sorted(epoch) == [*range(K)]
    assert epochs[0] != epochs[1]
    assert rows_of([0], source, replace(cfg, first_row=70)) == rows[70:77]


def test_cut_rows_have_the_papers_lengths(batch_of):
    """12 to 2,048 less 12, mean 1,024 (section 2, footnote 6); here with context 64: uniform on 12 .. 52."""
    batch = batch_of('clm', [(i, 0) for i in range(4000)])
    cuts = batch.lengths[::2]
    assert [min(cuts), max(cuts)] == [12, 52]
    assert stats.chisquare(np.bincount(cuts)[12:]).pvalue > 1e-4
    assert batch_of('clm', [(0, 0), (1, 1)], cut_rows=False).lengths == [64, 64]


def near(draws, share):
    """Whether the share of draws that are 1 is within three standard errors of the one expected."""
    error = np.sqrt(share * (1 - share) / len(draws))
    return abs(np.mean(draws) - share) < 3 * error


@pytest.mark.parametrize('objective', ['mlm', 'mdlm'])
def test_masked_tokens_are_targets_and_never_special(source, batch_of, ordinary, objective):
    clm = batch_of('clm')
    batch = batch_of(objective)
    masked = batch.targets != data.NO_TARGET
    assert source.meta['eos_token_id'] in clm.targets    # a target like any other there
    assert ordinary[masked].all()
    assert np.array_equal(batch.at, np.flatnonzero(masked))
    assert np.array_equal(batch.targets[masked], clm.tokens[masked])
    assert np.array_equal(batch.tokens, np.where(masked, source.meta['mask_token_id'], clm.tokens))


def test_mlm_masks_a_share_of_what_is_not_special(batch_of, ordinary):
    few = batch_of('mlm', mask_ratio=0.2)
    many = batch_of('mlm', mask_ratio=0.4)
    later = batch_of('mlm', [(i + 300, k) for i, k in ROWS])
    assert near(few.weights[ordinary], 0.2)
    assert near(many.weights[ordinary], 0.4)
    assert {*few.at} < {*many.at} != {*later.at}    # the next epoch's are others


def test_berts_replacement(source, batch_of):
    mlm = batch_of('mlm')
    bert = batch_of('mlm', mask_replace=(0.8, 0.1, 0.1))
    assert np.array_equal(mlm.targets, bert.targets)
    became = bert.tokens[bert.at]
    became_mask = became == source.meta['mask_token_id']
    assert near(became_mask, 0.8)
    assert near(became == bert.targets[bert.at], 0.1)
    assert not np.isin(became[~became_mask], source.meta['special_ids']).any()


def test_clm_by_hand_and_mntp_predict_a_token_from_the_position_before(batch_of):
    targets = data.next_tokens(np.arange(5, 10), [2, 3])
    assert targets.tolist() == [6, -100, 8, 9, -100]
    mlm = batch_of('mlm')
    mntp = batch_of('mntp')
    assert np.array_equal(mlm.tokens, mntp.tokens)
    assert np.array_equal(mntp.targets, data.next_tokens(mlm.targets, mlm.lengths))


def test_clm_some_predicts_the_tokens_that_mlm_masks(batch_of, ordinary):
    """From the position before, so not a segment's first; and special tokens, which MLM never masks."""
    clm = batch_of('clm')
    mlm = batch_of('mlm')
    some = batch_of('clm_some')
    assert np.array_equal(some.tokens, clm.tokens)
    of_mlm = data.next_tokens(mlm.targets, mlm.lengths)
    special = data.next_tokens(np.where(ordinary, data.NO_TARGET, clm.tokens), clm.lengths)
    is_special = special != data.NO_TARGET
    assert np.array_equal(some.targets[~is_special], of_mlm[~is_special])
    assert 0 < np.count_nonzero(some.targets[is_special] == special[is_special]) < is_special.sum()
    whole = batch_of('clm_some', mask_ratio=1.0)
    assert np.array_equal(whole.targets, clm.targets)
    assert np.array_equal(whole.weights, clm.weights)


def test_mdlm_masks_each_row_at_a_ratio_of_its_own(settings, batch_of, ordinary):
    batch = batch_of('mdlm', mask_ratio=0.1)    # which it does not read
    weights = batch.weights.reshape(300, 64)
    highest = weights.max(1, keepdims=True)
    assert np.array_equal(weights, highest * ordinary.reshape(300, 64))
    assert stats.kstest(1 / highest[:, 0], stats.uniform(0.001, 0.999).cdf).pvalue > 0.01
    assert data.OBJECTIVES['mdlm'].expected_targets(settings()) == 0.5005


def test_mdlms_expected_loss_by_hand():
    """Two tokens that are equal: both are masked with probability t t, and then each costs log 2. The mean
    over ratios t of 2 log 2 t t / t is (1 + least) log 2, of which a token has half: 1.001 of its entropy."""
    corpus = SimpleNamespace(meta={'special_ids': [9], 'mask_token_id': 9})
    losses = []
    for seed in range(4_000):    # what the objective draws, on rows of 31 pairs and an eos
        random = np.random.default_rng(seed)
        tokens = np.append(np.repeat(random.integers(0, 2, 31), 2), 9)
        inputs, _, weights = data.mdlm(tokens, [63], random, corpus, None)
        both = (inputs[:62].reshape(31, 2) == 9).all(1)    # who sees the twin loses nothing
        loss = np.log(2) * (weights[:62] * both.repeat(2)).sum()
        losses.append(loss / np.count_nonzero(weights))
    error = stats.sem(losses)
    assert error < 0.01
    assert abs(np.mean(losses) - 1.001 * np.log(2) / 2) < 3 * error


@pytest.mark.parametrize('objective', ['mlm', 'mdlm'])
def test_validation_rows_do_not_depend_on_seed_or_processes(source, settings, objective):
    def read(rank, size, **changes):
        return list(data.validation_batches(source, objective, settings(**changes), rank, size))

    def totals(batches):
        """What has losses, in any order: targets and weights."""
        targets = np.concatenate([batch.targets[batch.at] for batch in batches])
        weights = np.concatenate([batch.weights for batch in batches])
        return sorted(targets), sorted(weights[weights > 0])

    alone = read(0, 1, micro_rows=1, seed=9)
    shares = [read(rank, 3, rows_per_step=6) for rank in range(3)]
    assert [len(share) for share in shares] == [1, 1, 1]    # of two rows; the sixth has no loss
    assert totals(sum(shares, [])) == totals(alone)


def test_what_is_computed_ahead_comes_in_order_with_errors_and_stops():
    second_is_done = threading.Event()

    def double(item):
        if item == 0:
            assert second_is_done.wait(60)
        if item == 1:
            second_is_done.set()
        if item == 7:
            raise RuntimeError('in the thread')
        return 2 * item

    results = data.in_order(double, range(20), threads=3)
    assert [next(results) for _ in range(7)] == [0, 2, 4, 6, 8, 10, 12]
    with pytest.raises(RuntimeError, match='in the thread'):
        next(results)

    items = iter(range(10, 10 ** 9))
    endless = data.in_order(double, items, ahead=3)
    assert next(endless) == 20
    assert next(items) == 14    # one was taken, and three are ahead
    before = threading.active_count()
    endless.close()
    assert threading.active_count() == before - 1


def test_a_damaged_corpus_is_one_line_that_names_the_shard(corpus_to_damage):
    verify = 'data.py', f'--out={corpus_to_damage}', '--verify'
    assert 'every shard is as it was written' in run_script(*verify).stdout
    shard = corpus_to_damage / 'val_00000.npy'
    whole = flip(shard)
    refused_line('val_00000.npy: ', *verify)
    shard.write_bytes(whole[:-100])
    refused('val_00000.npy: missing or cut short', data.Corpus, corpus_to_damage)


@pytest.mark.parametrize('micro_rows, world_size, rows', [
    (24, 192, 6), (24, 32, 18), (5, 192, 3), (0, 8, 144)])
def test_as_many_rows_are_computed_at_once_as_divide_a_share(settings, micro_rows, world_size, rows):
    cfg = settings(rows_per_step=1_152, micro_rows=micro_rows)
    data.check_rows(cfg, world_size)
    assert data.rows_at_once(cfg, world_size) == rows


def test_rows_of_which_few_could_be_computed_at_once_are_refused(settings):
    """As of a prime number, of which it would be one."""
    cfg = settings(rows_per_step=26, micro_rows=7)
    refused('micro_rows 7: a process has 13 rows of a step, of which only 1 could', data.check_rows, cfg, 2)

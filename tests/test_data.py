"""The law of a batch: what a step reads, decided by its settings alone; objectives; corpora that are read."""
import shutil
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

import data
from conftest import one_line_error, refused, replace, run_script
from nanoencoder.files import write_json


def read(step, corpus, cfg, rank=0, world_size=1):
    return data.read_step(step, data.Corpus(corpus), cfg, rank, world_size)


def rows_of(step, corpus, cfg):
    return data.rows_of_step(step, data.Corpus(corpus).num_stretches('train', cfg.context), cfg)


@pytest.fixture
def batch_of(corpus, settings):
    """batch_of(objective, rows): training rows as a Batch, by settings with some changed."""
    source = data.Corpus(corpus)
    return lambda objective, rows, **changes: data.make_batch(
        source, 'train', rows, 0, objective, settings(**changes))[0]


def test_the_law_of_a_batch_is_what_it_was(tmp_path, settings):
    """So runs compare across versions. Numbers are of a second writing of it, in Python's own integers."""
    tokens = (np.arange(6400) * 7919 % 4000).astype(np.uint16)
    np.save(tmp_path / 'tokens_00000.npy', tokens)
    write_json(tmp_path / 'meta.json', {
        'vocab_size': 4096, 'special_ids': [4093, 4094, 4095], 'mask_token_id': 4095,
        'shards': [{'name': 'tokens_00000.npy'}], 'val_shards': []})
    cfg = settings(phases=(('mlm', 99),), seed=3, rows_per_step=4, micro_rows=0)
    assert [row for step in (0, 24, 25) for row in rows_of(step, tmp_path, cfg)] == [
        (0, 83), (1, 96), (2, 12), (3, 57), (96, 67), (97, 30), (98, 10), (99, 84),
        (100, 82), (101, 53), (102, 58), (103, 50)]
    (batch,), num_targets, rows = read(7, tmp_path, cfg)
    assert (batch.lengths, batch.at[:12].tolist(), num_targets, rows) == (
        [46, 18, 40, 24, 20, 44, 12, 52], [1, 3, 4, 5, 11, 12, 14, 16, 17, 21, 22, 23], 108, 50301537313994)


def test_permute_is_a_bijection_that_looks_uniform_and_depends_on_seed_and_epoch():
    for n in (1, 2, 3, 4, 5, 16, 17, 1000, 4097):
        assert sorted(data.permute(np.arange(n), n, 0, 1)) == list(range(n))
    n = 97
    images = np.array([data.permute(np.arange(n), n, seed, epoch)
                       for seed in range(60) for epoch in range(5)])
    assert len({tuple(row) for row in images}) == 300
    places = np.array([np.bincount(images[:, k], minlength=n) for k in (0, 1, 50, 96)])
    assert all(stats.chisquare(row).pvalue > 1e-4 for row in places)
    steps = np.bincount((np.diff(images, axis=1) % n).ravel(), minlength=n)[1:]
    assert stats.chisquare(steps).pvalue > 1e-4


def test_a_step_does_not_depend_on_objective_processes_or_micro_batches(corpus, settings):
    cfg = settings(phases=(('clm', 30), ('mlm', 30), ('mdlm', 30)), rows_per_step=8, micro_rows=0)
    for step in (0, 7, 45, 61):
        (whole,), num_targets, rows = read(step, corpus, cfg)
        for size, micro in ((2, 4), (4, 1), (8, 1), (1, 2)):
            shares = [read(step, corpus, replace(cfg, micro_rows=micro), rank, size) for rank in range(size)]
            for name in ('tokens', 'targets', 'weights'):
                parts = [getattr(batch, name) for batches, _, _ in shares for batch in batches]
                assert np.array_equal(np.concatenate(parts), getattr(whole, name))
            assert sum(share[2] for share in shares) % 2 ** 48 == rows
            assert sum(share[1] for share in shares) == num_targets
        (mlm,), _, same_rows = read(step, corpus, replace(cfg, phases=(('mlm', 90),)))
        assert same_rows == rows and mlm.lengths == whole.lengths


def test_epochs_read_each_stretch_once(corpus, settings):
    cfg = settings(rows_per_step=7, context=64)
    K = data.Corpus(corpus).num_stretches('train', 64)
    rows = [row for step in range(3 * K // 7 + 1) for row in rows_of(step, corpus, cfg)]
    assert [i for i, _ in rows] == list(range(len(rows)))
    epochs = [[k for i, k in rows if i // K == epoch] for epoch in range(3)]
    assert all(sorted(epoch) == list(range(K)) for epoch in epochs) and epochs[0] != epochs[1]
    small = replace(cfg, rows_per_step=4)
    assert [row for step in range(20) for row in rows_of(step, corpus, small)] == rows[:80]
    assert rows_of(0, corpus, replace(cfg, first_row=70)) == rows_of(10, corpus, cfg)


def test_cut_rows_have_the_papers_lengths(batch_of):
    """12 to 2,048 less 12, mean 1,024 (section 2, footnote 6); here with context 64: uniform on 12 .. 52."""
    lengths = np.reshape(batch_of('clm', [(i, 0) for i in range(4000)]).lengths, (-1, 2))
    cuts = lengths[:, 0]
    assert min(cuts) == 12 and max(cuts) == 52 and (lengths.sum(1) == 64).all()
    assert stats.chisquare(np.bincount(cuts)[12:]).pvalue > 1e-4
    assert batch_of('clm', [(0, 0), (1, 1)], cut_rows=False).lengths == [64, 64]


def test_masks_and_berts_replacement(corpus, batch_of):
    meta, rows = data.Corpus(corpus).meta, [(i, i % 40) for i in range(300)]
    batches = {ratio: batch_of('mlm', rows, mask_ratio=ratio) for ratio in (0.2, 0.4)}
    clm = batch_of('clm', rows)
    special = np.isin(clm.tokens, meta['special_ids'])
    assert special.any()
    assert (clm.targets == meta['eos_token_id']).any()  # eos is a target of CLM, not of MLM
    for ratio, mlm in batches.items():
        masked = mlm.targets != data.NO_TARGET
        n = (~special).sum()
        assert abs(masked.sum() - n * ratio) < 3 * np.sqrt(n * ratio * (1 - ratio))
        assert not (masked & special).any()
        assert (mlm.tokens[masked] == meta['mask_token_id']).all()
        assert np.array_equal(mlm.tokens[~masked], clm.tokens[~masked])
        assert np.array_equal(mlm.targets[masked], clm.tokens[masked])
        assert np.array_equal(mlm.at, np.flatnonzero(masked))
    assert set(batches[0.2].at) < set(batches[0.4].at)
    other = batch_of('mlm', [(i + 300, k) for i, k in rows])
    assert not np.array_equal(other.at, batches[0.4].at)  # the next epoch's masks are others
    bert = batch_of('mlm', rows, mask_replace=(0.8, 0.1, 0.1))
    assert np.array_equal(batches[0.4].targets, bert.targets)
    n, became = len(bert.at), bert.tokens[bert.at]
    for count, share in (((became == 4095).sum(), 0.8), ((became == clm.tokens[bert.at]).sum(), 0.1)):
        assert abs(count - n * share) < 3 * np.sqrt(n * share * (1 - share)) + 0.001 * n
    assert not np.isin(became[became != 4095], meta['special_ids']).any()


def test_clm_by_hand_and_mntp_predict_a_token_from_the_position_before(batch_of):
    assert data.next_tokens(np.array([5, 6, 7, 8, 9]), [2, 3]).tolist() == [6, -100, 8, 9, -100]
    mlm, mntp = (batch_of(objective, [(i, i) for i in range(20)]) for objective in ('mlm', 'mntp'))
    assert np.array_equal(mlm.tokens, mntp.tokens)
    starts = set(np.cumsum([0, *mlm.lengths]).tolist())
    expected = [(p - 1, mlm.targets[p]) for p in mlm.at if p not in starts]
    assert [(p, mntp.targets[p]) for p in mntp.at] == expected


def test_mdlm_masks_each_row_at_a_ratio_of_its_own(corpus, settings, batch_of):
    meta, rows = data.Corpus(corpus).meta, [(i, i % 40) for i in range(1_000)]
    clm, batch = batch_of('clm', rows), batch_of('mdlm', rows, mask_ratio=0.1)
    special, masked = np.isin(clm.tokens, meta['special_ids']), batch.targets != data.NO_TARGET
    assert batch.lengths == clm.lengths and np.array_equal(batch.at, np.flatnonzero(masked))
    assert np.array_equal(batch.targets[masked], clm.tokens[masked]) and not (special & masked).any()
    assert np.array_equal(batch.tokens, np.where(masked, meta['mask_token_id'], clm.tokens))
    assert np.array_equal(batch.weights == 0, special) and special.any()
    ordinary, masked, weights = (x.reshape(1_000, 64) for x in (~special, masked, batch.weights))
    ratios = 1 / weights.max(1)                     # one a row, uniform in (0.001, 1]
    assert all(len(np.unique(row[row > 0])) == 1 for row in weights)
    assert ratios.min() > 0.001 and ratios.max() <= 1
    assert stats.kstest(ratios, stats.uniform(0.001, 0.999).cdf).pvalue > 0.01
    surprise = (masked.sum(1) - ratios * ordinary.sum(1)) / np.sqrt(ratios * (1 - ratios) * ordinary.sum(1))
    assert abs(np.mean(surprise)) < 4 / 1_000 ** 0.5 and 0.9 < np.std(surprise) < 1.1
    again = batch_of('mdlm', rows[500:501])
    assert np.array_equal(again.weights, weights[500])    # the row decides, not its company or mask_ratio
    assert data.OBJECTIVES['mdlm'].expected_targets(settings()) == 0.5005


def test_mdlms_expected_loss_by_hand():
    """Two tokens that are equal: both are masked with probability t t, and then each costs log 2. The mean
    over ratios t of 2 log 2 t t / t is (1 + least) log 2, of which a token has half: 1.001 of its entropy."""
    corpus = SimpleNamespace(meta={'special_ids': [9], 'mask_token_id': 9})
    generator, losses = np.random.default_rng(0), []
    for k in range(4_000):                          # what the objective draws, on rows of 31 pairs and an eos
        tokens = np.append(np.repeat(generator.integers(0, 2, 31), 2), 9)
        inputs, targets, weights = data.mdlm(tokens, [63], np.random.default_rng([1, k]), corpus, None)
        lost = np.log(2) * (inputs[:62].reshape(31, 2) == 9).all(1).repeat(2)   # who sees the twin loses 0
        losses.append((weights[:62] * lost).sum() / np.count_nonzero(weights))
        assert np.array_equal(weights > 0, tokens < 9) and targets[62] == data.NO_TARGET
    error = np.std(losses) / len(losses) ** 0.5
    assert error < 0.01 and abs(np.mean(losses) - 1.001 * np.log(2) / 2) < 3 * error


def test_validation_rows_do_not_depend_on_seed_or_processes(corpus, settings):
    source = data.Corpus(corpus)
    alone, other = (list(data.validation_batches(source, 'mlm', settings(micro_rows=1, seed=seed)))
                    for seed in (0, 9))
    assert len(alone) == 5 and all(np.array_equal(a.tokens, b.tokens) for a, b in zip(alone, other))
    cfg = settings(micro_rows=2)
    for objective in ('mlm', 'mdlm'):
        alone = list(data.validation_batches(source, objective, settings(micro_rows=1)))
        shares = [list(data.validation_batches(source, objective, cfg, rank, 3)) for rank in range(3)]
        assert len({len(share) for share in shares}) == 1
        for total in (lambda b: len(b.at), lambda b: np.count_nonzero(b.weights), lambda b: b.weights.sum()):
            assert sum(total(b) for share in shares for b in share) == pytest.approx(sum(map(total, alone)))


def test_what_is_computed_ahead_comes_in_order_with_errors_and_stops():
    def slow_first(item):
        time.sleep(0.02 * (item == 0))
        if item == 7:
            raise RuntimeError('in the thread')
        return 2 * item
    seen, asked = [], []
    with pytest.raises(RuntimeError, match='in the thread'):
        seen += (item for item in data.in_order(slow_first, range(20), threads=3))
    assert seen == [0, 2, 4, 6, 8, 10, 12]
    endless = data.in_order(slow_first, map(lambda k: asked.append(k) or k + 10, range(10 ** 9)), ahead=3)
    assert next(endless) == 20 and len(asked) == 4  # what is taken, and three ahead
    before = threading.active_count()
    endless.close()
    assert threading.active_count() == before - 1


def test_a_damaged_corpus_is_one_line_that_names_the_shard(corpus, tmp_path):
    copied = shutil.copytree(corpus, tmp_path / 'copied')
    verify = 'data.py', f'--out={copied}', '--verify'
    assert 'every shard is as it was written' in run_script(*verify).stdout
    for name in ('tokens_00001.npy', 'val_00000.npy'):
        whole = (copied / name).read_bytes()
        for k in (9, len(whole) - 1):
            (copied / name).write_bytes(whole[:k] + bytes([whole[k] ^ 1]) + whole[k + 1:])
            one_line_error(run_script(*verify), f'{name}: ')
        (copied / name).write_bytes(whole)
    shard = copied / 'tokens_00001.npy'
    for damage in (lambda: shard.write_bytes(whole[:-100]), shard.unlink):
        damage()
        refused('tokens_00001.npy: missing or cut short', data.Corpus, copied)

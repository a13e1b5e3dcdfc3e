"""What is counted before a run, against numbers worked out by hand for the 610M."""

import numpy as np
import pytest

from nanoencoder.pretraining import cost
from nanoencoder.settings import flat, parse
import data
import pretrain
from conftest import ROOT, replace

WEIGHTS, ENDS = 755_625_600, 2 * 128_256 * 1152
CFG, _ = parse(pretrain.Settings, [str(ROOT / 'configs/610m_clm.py')])


@pytest.mark.parametrize('kind, share', [('clm', 1 - 2 / 2048), ('mlm', 0.4)])
def test_flops(kind, share):
    """Each term written out; the mean attended length of the cut law at 2,048 is 1,357.7."""
    matrices = 26 * (1152 * 1152 + 2 * 1152 * 384 + 1152 * 1152 + 3 * 1152 * 4096)
    attention = 4 * 26 * 1152 * 1357.7 / (2 if kind == 'clm' else 1)
    by_hand = 3 * (2 * matrices + 2 * share * 128_256 * 1152 + attention)
    assert cost.flops_per_token(CFG, kind) == pytest.approx(by_hand, rel=1e-4)


@pytest.mark.parametrize('kind', ['mlm', 'clm', 'mdlm'])
def test_flops_of_batches_are_what_is_expected_of_the_law(kind):
    cfg = replace(CFG, context=256, vocab_size=4096)
    ids = {'bos_token_id': 4093, 'eos_token_id': 4094, 'pad_token_id': 4094, 'mask_token_id': 4095}
    corpus = type('Random', (), dict(
        meta=ids | {'special_ids': [4093, 4094, 4095]}, ordinary_ids=np.arange(4093),
        stretch=lambda self, split, k, context: np.random.default_rng(k).integers(0, 4093, context)))()
    batch, _ = data.make_batch(corpus, 'train', [(k, k) for k in range(400)], 0, kind, cfg)
    expected = cost.flops_per_token(cfg, kind) * 400 * 256
    pairs = sum(length ** 2 for length in batch.lengths) / (2 if kind == 'clm' else 1)
    counted = cost.count_flops(cfg.model, len(batch.tokens), len(batch.at), pairs)
    assert counted == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize('context', [24, 25, 100, 2048])
def test_the_mean_attended_length_is_that_of_every_cut(context):
    """Before, it was summed cut by cut: --context=10**12 never ended."""
    cuts = range(12, context - 11)
    attended = sum(cut ** 2 + (context - cut) ** 2 for cut in cuts) / len(cuts) / context
    by_hand = cost.count_flops(CFG.model, 1, 0.4, attended)
    assert cost.flops_per_token(replace(CFG, context=context), 'mlm') == by_hand
    assert cost.flops_per_token(replace(CFG, context=10 ** 12), 'mlm') > by_hand


def test_processes_that_divide_a_large_prime_number_of_rows_are_not_looked_for_for_ever():
    """Before, the search went through all numbers up to the rows."""
    rows = replace(CFG, rows_per_step=2 ** 61 - 1, micro_rows=0)
    with pytest.raises(ValueError, match='take 1 processes'):
        cost.check_rows(rows, 10 ** 15)
    with pytest.raises(ValueError, match='take 192 or 256 processes'):
        cost.check_rows(replace(CFG, rows_per_step=768), 200)


def test_memory():
    """6 rows of 2,048 at once on 8 GPUs, 24 times a step: FSDP keeps whole gradients until the last."""
    layer = 18 * 1152 + 4 * 64 * (18 + 6) + 8 * 4096
    memory = cost.memory_gib(CFG, 8, WEIGHTS)
    by_hand = {'ddp': 18 * WEIGHTS, 'fsdp': 16 * WEIGHTS / 8 + 4 * ENDS + 4 * WEIGHTS,
               'activations': 6 * 2048 * 26 * layer, 'loss': 4 * 2048 * 128_256 + 8 * 128_256 * 1152}
    assert memory == pytest.approx({name: value / 2 ** 30 for name, value in by_hand.items()})
    at_once = replace(CFG, recompute=True, compile=False)
    memory = cost.memory_gib(at_once, 192, WEIGHTS)
    by_hand = {'ddp': 18 * WEIGHTS, 'fsdp': 16 * WEIGHTS / 8 + 8 * ENDS,  # sharded in a node
               'activations': 6 * 2048 * (26 * 4 * 1152 + layer),
               'loss': 8 * 2048 * 128_256 + 8 * 128_256 * 1152}
    assert memory == pytest.approx({name: value / 2 ** 30 for name, value in by_hand.items()})


@pytest.mark.parametrize('steps, every, keep, save_at, number', [
    (42_000, 1_000, 2, (), 3), (42_000, 0, 2, (), 1), (1_000, 1_000, 2, (), 1), (40, 10, 9, (10, 25, 40), 5)])
def test_the_number_of_checkpoints_at_the_end(capsys, steps, every, keep, save_at, number):
    """Before, --save_every=0 counted two, and what is of two kinds counted twice."""
    cost.dry_run(replace(CFG, phases=(('clm', steps),), warmup_steps=0, decay_steps=0, save_every=every,
                         keep=keep, save_at=save_at), 8)
    assert f'a checkpoint, {number} at the end' in capsys.readouterr().out


def test_a_branch_counts_what_it_computes(capsys):
    """Not the steps before it, which are its parent's."""
    cost.dry_run(replace(CFG, branch_from='out/610m-clm-42k/40000'), 8)
    text = capsys.readouterr().out
    flops = 2_000 * CFG.rows_per_step * CFG.context * cost.flops_per_token(CFG, 'clm')
    assert f'operations  {flops:.3g} FLOP after step 40,000; a token' in text
    assert f'{flops / cost.PEAK / cost.UTILISATION / 3600:,.1f} GPU-hours' in text
    with pytest.raises(ValueError, match='clm/42000 is at step 42,000, and this run has 42,000'):
        cost.dry_run(replace(CFG, branch_from='out/clm/42000'), 8)


def test_network():
    """2.64 GB of gradients by ring on 8 GPUs. On 192, 6 rows each take 120.8 ms of arithmetic.

    DDP then waits 3.9 ms for the embedding's 1.18 GB, at 300 GB/s; its other 4.84 GB hide behind the backward
    pass. Before, a node was taken to send at one GPU's 45 GB/s, and DDP to wait 53.1 ms. FSDP gathers inside
    nodes and reduces between 24: it waits 14.4 ms for the ends, and all else hides.
    """
    assert cost.gigabytes_sent(CFG, 1, WEIGHTS) == {'ddp': (0, 0), 'fsdp': (0, 0)}
    sent = cost.gigabytes_sent(CFG, 8, WEIGHTS)
    assert sent['ddp'] == pytest.approx((5.2894, 1.0343), abs=1e-4)
    assert sent['fsdp'] == pytest.approx((3.5e-9 * (49 * (WEIGHTS - ENDS) + 25 * ENDS), 3.5e-9 * 25 * ENDS))
    sent = cost.gigabytes_sent(CFG, 192, WEIGHTS)
    between = 8e-9 * 23 / 24
    assert sent['ddp'] == pytest.approx((6.0135, 1.1759), abs=1e-4)
    assert sent['fsdp'] == pytest.approx((3.5e-9 * (3 * (WEIGHTS - ENDS) + 2 * ENDS) + between * WEIGHTS,
                                          3.5e-9 * 2 * ENDS + between * ENDS))
    flops = 1152 * 2048 * cost.flops_per_token(CFG, 'clm')
    shares = cost.efficiency(CFG, 192, WEIGHTS, flops)
    assert shares['ddp'] == pytest.approx(120.8 / (120.8 + 3.9), abs=5e-4)
    assert shares['fsdp'] == pytest.approx(120.8 / (120.8 + 14.4), abs=5e-4)
    assert cost.efficiency(CFG, 192, WEIGHTS, 100 * flops)['fsdp'] > 0.99


def test_flops_of_old_and_new_checkpoints():
    """7605c98 did not write FLOPs, nor `repeat`: they are counted, as for the paper's models."""
    cfg = replace(CFG, phases=(('clm', 100), ('mlm', 300)), warmup_steps=0, decay_steps=0)
    clm, mlm = (2048 * 1152 * cost.flops_per_token(cfg, kind) for kind in ('clm', 'mlm'))
    settings = {name: value for name, value in flat(cfg).items() if name != 'repeat'}
    for step, flops in ((250, 100 * clm + 150 * mlm), (50, 50 * clm)):
        state = {'settings': settings, 'step': step}
        assert cost.flops_of_state(state) == pytest.approx(flops, rel=1e-12)
    assert cost.flops_of_state({'settings': settings, 'step': 50, 'flops': 3.0}) == 3.0
    mixed = replace(cfg, phases=(('clm', 1), ('mlm', 3)), repeat=100)
    assert cost.flops_until(mixed, 400) == pytest.approx(100 * clm + 300 * mlm, rel=1e-12)
    assert cost.flops_until(mixed, 6) == pytest.approx(2 * clm + 4 * mlm, rel=1e-12)

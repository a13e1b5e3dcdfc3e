"""What is counted before a run, against numbers worked out by hand for the 610M."""
import pytest

import bench
import pretrain
from conftest import ROOT, replace
from nanoencoder.pretraining import cost
from nanoencoder.settings import parse

CFG, _ = parse(pretrain.Settings, [str(ROOT / 'configs/610m_clm.py')])


@pytest.mark.parametrize('objective, share', [('clm', 1 - 2 / 2048), ('mlm', 0.4)])
def test_flops(objective, share):
    """Each term written out; the mean attended length of the cut law at 2,048 is 1,357.7."""
    matrices = 26 * (1152 * 1152 + 2 * 1152 * 384 + 1152 * 1152 + 3 * 1152 * 4096)
    attention = 4 * 26 * 1152 * 1357.7 / (2 if objective == 'clm' else 1)
    by_hand = 3 * (2 * matrices + 2 * share * 128_256 * 1152 + attention)
    assert cost.flops_per_token(CFG, objective) == pytest.approx(by_hand, rel=1e-4)


@pytest.mark.parametrize('objective', ['mlm', 'clm', 'mdlm'])
def test_flops_of_batches_are_what_is_expected_of_the_law(objective):
    cfg = replace(CFG, context=256, vocab_size=4096, rows_per_step=400, micro_rows=0)
    batch, = bench.batches_of(cfg, objective, 1)
    expected = cost.flops_per_token(cfg, objective) * 400 * 256
    pairs = sum(length ** 2 for length in batch.lengths) / (2 if objective == 'clm' else 1)
    counted = cost.count_flops(cfg.model, len(batch.tokens), len(batch.at), pairs)
    assert counted == pytest.approx(expected, rel=0.01)


def test_flops_until_a_step():
    cfg = replace(CFG, phases=(('clm', 100), ('mlm', 300)), warmup_steps=0, decay_steps=0, save_at=())
    clm, mlm = (2048 * 1152 * cost.flops_per_token(cfg, objective) for objective in ('clm', 'mlm'))
    for step, flops in ((250, 100 * clm + 150 * mlm), (50, 50 * clm)):
        assert cost.flops_until(cfg, step) == pytest.approx(flops, rel=1e-12)
    mixed = replace(cfg, phases=(('clm', 1), ('mlm', 3)), repeat=100)
    assert cost.flops_until(mixed, 400) == pytest.approx(100 * clm + 300 * mlm, rel=1e-12)
    assert cost.flops_until(mixed, 6) == pytest.approx(2 * clm + 4 * mlm, rel=1e-12)


STEP = 2_359_296 * cost.flops_per_token(CFG, 'clm')     # its operations


@pytest.mark.parametrize('changes, num_processes, parts', [
    # 16 and 12 bytes a parameter; FSDP keeps whole gradients where a step has several micro-batches
    ({}, (192, 8), (
        '607,874,688', '755,625,600', '2,359,296 a step', '99,090,432,000 in all', '6 a process, 6 at once',
        f'{42_000 * STEP:.3g} FLOP; a token', f'{42_000 * STEP / 989e12 / 0.4 / 3600 / 192:.1f} on 192 H100',
        '11.26 GiB of each GPU', '0.06 GiB (fsdp)', '4.22 GiB (fsdp)', '9.07 GB a checkpoint, at most ')),
    # one moment of the 460,062,720 weights in matrices of the layers, 4 bytes each
    ({'optimizer': 'muon'}, (8,), ("9.55 GiB of each GPU for weights, gradients and muon's moments",)),
    # not the steps before a branch, which are its parent's
    *(({'branch_from': folder}, (8,), (f'operations  {2_000 * STEP:.3g} FLOP after step 40,000; a token',))
      for folder in ('610m-clm-42k/40000', '610m-clm-42k'))])
def test_dry_run_counts_the_paper(capsys, tmp_path, monkeypatch, changes, num_processes, parts):
    (folder := tmp_path / '610m-clm-42k/40000').mkdir(parents=True)
    (folder / 'model.safetensors').touch()
    (folder / 'state.json').write_text('{"step": 40000}')
    monkeypatch.chdir(tmp_path)
    for number in num_processes:
        cost.dry_run(replace(CFG, **changes), number)
    out = capsys.readouterr().out
    assert not [part for part in parts if part not in out]


def test_an_epoch_too_many_is_a_warning(capsys, settings):
    cost.dry_run(settings(phases=(('clm', 6_000),)), 1)
    assert 'warning     the run reads its corpus' in capsys.readouterr().out
    cost.dry_run(settings(), 1)
    assert 'warning' not in capsys.readouterr().out

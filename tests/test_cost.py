"""What is counted before a run, against numbers worked out by hand for the 610M."""
import re
from pathlib import Path

import pandas as pd
import pytest
import torch

import bench
import pretrain
from conftest import ROOT, log_lines, ran, refused, refused_line, replace
from nanoencoder.files import write_sealed
from nanoencoder.pretraining import cost
from nanoencoder.pretraining.known_losses import expected_in_words
from nanoencoder.processes import World
from nanoencoder.settings import parse

CFG, _ = parse(pretrain.Settings, [str(ROOT / 'configs/610m_clm.py')])
STEP = 2_359_296 * cost.flops_per_token(CFG, 'clm')     # operations of one of its steps


@pytest.mark.parametrize('objective, targets, attended', [
    ('clm', 1 - 2 / 2048, 1357.7 / 2),
    ('mlm', 0.4, 1357.7)])
def test_flops(objective, targets, attended):
    """Each term written out; the mean attended length of the cut law at 2,048 is 1,357.7."""
    matrices = 26 * 1152 * (1152 + 2 * 384 + 1152 + 3 * 4096)
    logits = targets * 128_256 * 1152
    attention = 4 * 26 * 1152 * attended
    by_hand = 3 * (2 * matrices + 2 * logits + attention)
    assert cost.flops_per_token(CFG, objective) == pytest.approx(by_hand, rel=1e-4)


@pytest.mark.parametrize('objective', ['mlm', 'clm', 'mdlm'])
def test_flops_of_batches_are_what_is_expected_of_the_law(objective):
    cfg = replace(CFG, context=256, vocab_size=4096, rows_per_step=400, micro_rows=0)
    batch, = bench.batches_of(cfg, objective, 1)
    tokens = len(batch.tokens)
    pairs = sum(length ** 2 for length in batch.lengths)
    if objective == 'clm':
        pairs /= 2
    counted = cost.count_flops(cfg.model, tokens, len(batch.at), pairs)
    expected = tokens * cost.flops_per_token(cfg, objective)
    assert counted == pytest.approx(expected, rel=0.01)


def test_flops_until_a_step():
    """After six steps of one CLM and three MLM, again and again, two were CLM."""
    cfg = replace(CFG, phases=(('clm', 1), ('mlm', 3)), repeat=100, warmup_steps=0, decay_steps=0, save_at=())
    mlm_step = 2_359_296 * cost.flops_per_token(cfg, 'mlm')
    by_hand = {
        6: 2 * STEP + 4 * mlm_step,
        400: 100 * STEP + 300 * mlm_step,
    }
    counted = {step: cost.flops_until(cfg, step) for step in by_hand}
    assert counted == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize('changes, world_size, parts', [
    # V d + L (2 d d + 2 d d K/H + 3 d f + 2 d) + d parameters, and V d more for the head; 16 bytes a
    # parameter, 12 of them in a checkpoint
    ({}, 192, [
        '607,874,688', '755,625,600',
        'embeddings and head: 295,501,824 parameters, lr 0.0005, weight decay 0.1\n',
        'gains and biases: 61,056 parameters, lr 0.0005, weight decay 0\n',
        'matrices of the layers: 460,062,720 parameters, lr 0.0005, weight decay 0.1\n',
        '2,359,296 a step', '99,090,432,000 in all', '6 a process, 6 at once',
        f'{42_000 * STEP:.3g} FLOP; a token',
        f'{42_000 * STEP / 989e12 / 0.4 / 3600 / 192:.1f} hours on 192 H100',
        '11.26 GiB of each GPU', '0.06 GiB (fsdp)', '9.07 GB a checkpoint, at most ']),
    # FSDP keeps whole gradients where a step has several micro-batches
    ({}, 8, ['4.22 GiB (fsdp)']),
    # one moment of the 460,062,720 weights in matrices of the layers, 4 bytes each
    ({'optimizer': 'muon', 'matrix_lr_ratio': 6.7}, 8, [
        "9.55 GiB of each GPU for weights, gradients and muon's moments",
        'matrices of the layers: 460,062,720 parameters, lr 0.00335']),
    # not the steps before a branch, which are its parent's
    ({'branch_from': 'run'}, 8, [f'operations  {2_000 * STEP:.3g} FLOP after step 40,000; a token'])])
def test_dry_run_counts_the_paper(capsys, tmp_path, monkeypatch, changes, world_size, parts):
    folder = tmp_path / 'run/40000'
    folder.mkdir(parents=True)
    (folder / 'model.safetensors').touch()
    write_sealed(folder / 'state.json', {'step': 40_000})
    monkeypatch.chdir(tmp_path)
    cost.dry_run(replace(CFG, **changes), world_size)
    out = capsys.readouterr().out
    for part in parts:
        assert part in out


@pytest.mark.parametrize('seconds, words', [
    (0.04, 'under 1 s'), (59, '59 s'), (90, '2 min'), (5_400, '1.5 hours')])
def test_a_short_time_is_no_time_of_zero_hours(seconds, words):
    assert cost.times(989e12 * 0.4 * 8 * seconds, 8).startswith(f'{words} on 8 H100, ')


@pytest.mark.parametrize('name, peak', [
    ('NVIDIA H100 80GB HBM3', 2 * 989e12), ('NVIDIA A100-SXM4-80GB', 2 * 312e12), ('a new GPU', 0)])
def test_the_peak_of_two_gpus_by_their_name(monkeypatch, name, peak):
    monkeypatch.setattr(torch.cuda, 'get_device_name', lambda device: name)
    assert cost.peak_of(World(0, 2, torch.device('cuda'), 'bf16')) == peak
    assert cost.peak_of(World(0, 2, torch.device('cpu'), 'bf16')) == 0


def test_a_log_has_the_share_of_a_known_peak(trained, monkeypatch, capsys):
    """A CPU passes for a GPU: the arithmetic, not the speed. Blocks of steps hold two objectives."""
    plain = trained(phases=(('clm', 3), ('mlm', 3)), log_every=2, name='plain')
    assert 'mfu' not in log_lines(Path(plain.out, plain.name))[-1]
    assert 'mfu' not in capsys.readouterr().out
    monkeypatch.setattr(cost, 'peak_of', lambda world: 1e9)
    cfg = trained(phases=(('clm', 3), ('mlm', 3)), log_every=2)
    lines = log_lines(Path(cfg.out, cfg.name), timed=True)
    clm, mlm = (cost.flops_per_token(cfg, objective) for objective in ('clm', 'mlm'))
    for line, flops in zip(lines, (clm, clm, (clm + mlm) / 2, (clm + mlm) / 2, mlm, mlm), strict=True):
        expected = line['tokens_per_second'] * flops / 1e9
        assert line['mfu'] == pytest.approx(expected, abs=1e-4, rel=1e-3)
    assert f'tokens/s  mfu {lines[-1]["mfu"]:.1%}  0:00:00 left' in capsys.readouterr().out


def test_an_epoch_too_many_is_a_warning(capsys, settings):
    warning = 'warning     the run reads its corpus'
    cost.dry_run(settings(), 1)
    assert warning not in capsys.readouterr().out
    cost.dry_run(settings(phases=(('clm', 6_000),)), 1)
    assert warning in capsys.readouterr().out


def parsed(config, *words):
    cfg, _ = parse(pretrain.Settings, [str(ROOT / f'configs/{config}.py'), *words])
    return cfg


@pytest.mark.parametrize('cfg, command, hours', [
    # 42,000 steps of 2,359,296 tokens, and one in a thousand more to hold out: 99.19 billion
    (CFG, 'fineweb_edu.py --max_tokens=99_200_000_000', '14.5 hours'),
    # after the rows of the model that it continues: 64,000 steps
    (parsed('610m_cpt'), 'fineweb_edu.py --max_tokens=152_000_000_000', '22.2 hours'),
    (parsed('small'), 'fineweb_edu_2b.py', '18 min'),       # the config says how many
    (parsed('plateau_120m', '--corpus=corpora/mine'),
     'folder.py --path=YOUR_TEXTS --out=corpora/mine', '')])
def test_a_dry_run_says_how_to_make_a_corpus_and_how_long_that_takes(monkeypatch, cfg, command, hours):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(cost.Path, 'exists', lambda path: False)
    words, _, seconds = cost.corpus_of(cfg)
    assert words.endswith(f'{"":12}python data.py configs/corpora/{command}')
    if hours:
        assert cost.time_in_words(seconds) == hours
    else:
        assert seconds == 0


def test_texts_that_are_missing_are_made_first(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(cost.Path, 'exists', lambda path: False)
    command, _ = cost.corpus_command(parsed('tiny'))
    assert command == 'python examples/embedded_docs.py && python data.py configs/corpora/docs.py'


@pytest.mark.parametrize('config, setting', [('610m_cpt', 'weights_from'), ('610m_clm_mlm', 'branch_from')])
def test_a_dry_run_counts_before_the_parent_is_there(config, setting, tmp_path):
    """With the sizes of the settings; and a run is refused."""
    words = [f'configs/{config}.py', f'--{setting}={tmp_path}/absent', f'--out={tmp_path}']
    told = ran('pretrain.py', *words, '--dry_run').stdout
    assert re.search('parameters  607,8', told)
    assert f'warning     {tmp_path}/absent is not there yet: sizes are as the settings say' in told
    refused_line('absent: no checkpoint there', 'pretrain.py', *words)


def test_a_dry_run_of_a_branch_from_weights_alone_is_one_line(trained, tmp_path):
    parent = trained(phases=(('clm', 1),), warmup_steps=0, decay_steps=0, val_rows=0)
    folder = tmp_path / 'out/run/1'
    (folder / 'state.json').unlink()
    branch = replace(parent, branch_from=str(folder))
    refused('run/1: has no state.json that says a step', cost.dry_run, branch, 1)


def test_losses_to_expect_are_those_of_a_studys_seeds(monkeypatch):
    """pandas takes the means; any other setting that decides them, or another corpus, makes another run."""
    monkeypatch.chdir(ROOT)
    words = '--lr=3e-3', '--phases=("mlm", 1_800)', '--seed=6'
    table = pd.read_csv('studies/small/losses.csv')
    losses = table[table.row == 'mlm-1800'].groupby('step').val_mlm_loss
    means = ', '.join(f'{losses.mean()[step]:.2f} after {step:,}' for step in (600, 1_200, 1_800))
    last = f'{losses.min()[1_800]:.2f} to {losses.max()[1_800]:.2f}'
    assert expected_in_words(parsed('demo', *words)) == (
        f'held-out mlm, means of 6 seeds in studies/small: {means} steps ({last})')
    for other in ('--beta2=0.96', '--corpus=corpora/mine', '--weights_from=out/run'):
        assert not expected_in_words(parsed('demo', *words, other))

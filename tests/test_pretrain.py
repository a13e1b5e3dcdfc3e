"""Runs: what they log, that they resume and branch bit for bit in any layout, what they say on mistakes."""
import contextlib
import fcntl
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import termios
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import bench
import data
import pretrain
import layouts
from conftest import (ROOT, SMALL, Script, arguments, log_lines, one_line_error, ran, refused, replace,
                      run_script, torchrun)
from nanoencoder import files, huggingface, prepare
from nanoencoder.judging import losses, paper, studies
from nanoencoder.pretraining import checkpoint, cost
from nanoencoder.processes import World, processes, stop_signals
from nanoencoder.settings import build, flat, parse


def run_of(cfg):
    return Path(cfg.out) / cfg.name


def weights(folder):
    return {path.name: files.sha256(path) for path in folder.glob('*.safetensors')}


def logged(cfg):
    path = run_of(cfg) / 'log.jsonl'
    return path.read_bytes().count(b'\n') if path.exists() else 0


def test_schedule_by_hand():
    cfg = pretrain.Settings(name='x', phases=(('clm', 10_000), ('mlm', 32_000)))
    by_hand = {0: 5e-4 / 2000, 999: 2.5e-4, 1_999: 5e-4, 2_000: 5e-4, 20_000: 5e-4,
               39_999: 5e-4, 40_000: 5e-4, 41_000: 2.5e-4, 41_999: 5e-4 / 2000}
    assert {step: pretrain.lr_at(step, cfg) for step in by_hand} == pytest.approx(by_hand)
    cfg = pretrain.Settings(name='x', phases=(('clm', 1), ('mlm', 3)), repeat=25,
                            warmup_steps=0.05, decay_steps=0.2)
    assert (cfg.total_steps, cfg.warmup_steps, cfg.decay_steps) == (100, 5, 20)


def test_a_run_learns_logs_and_saves(settings):
    cfg = settings(phases=(('clm', 40), ('mlm', 40), ('mntp', 40)),
                   log_every=10, val_every=20, save_every=50, save_at=(20,), keep=1)
    pretrain.train(cfg)
    run, lines = run_of(cfg), log_lines(run_of(cfg), timed=True)
    assert [line['step'] for line in lines] == list(range(1, 121))
    assert {'lr', 'grad_norm', 'tokens_per_second', 'seconds', 'rows'} <= set(lines[0])
    assert [line['phase'] for line in lines] == ['clm'] * 40 + ['mlm'] * 40 + ['mntp'] * 40
    assert lines[0]['loss'] < np.log(4096) + 0.3
    val = {line['step']: line for line in lines if 'val_clm_loss' in line}
    assert list(val) == list(range(20, 121, 20))
    for objective, end in (('clm', 40), ('mlm', 80), ('mntp', 120)):
        assert val[end][f'val_{objective}_loss'] < np.log(4096) - 1  # untrained models are at log(vocabulary)
    assert lines[-1]['tokens'] == 120 * 4 * 64
    assert sorted(int(path.name) for path in run.glob('[0-9]*')) == [20, 100, 120]  # 50 was pruned
    assert {*FLIPS, 'state.json'} == {path.name for path in (run / '120').iterdir()}
    facts = files.read_json(run / '120/state.json')['pretraining']
    assert facts['phases'] == [['clm', 40], ['mlm', 40], ['mntp', 40]] and facts['family'] == '0.1M'
    assert (facts['step'], facts['tokens']) == (120, 120 * 4 * 64)
    config, rows = losses.read_log(run)
    assert rows == lines
    # a CUDA build calls itself 2.11.0+cu130, and its package 2.11.0
    recorded = config['starts'][0]['versions']['torch']
    assert recorded.split('+')[0] == torch.__version__.split('+')[0]
    log = (run / 'log.jsonl').read_text().splitlines(keepends=True)
    for damaged in (log[:60] + log[61:], log[:-1], [*log[:60], log[60].replace('5', '6'), *log[61:]]):
        (run / 'log.jsonl').write_text(''.join(damaged))
        refused(f'^{run}/log.jsonl: changed since step 120 was saved', losses.read_log, run)
    shutil.rmtree(run / '120')      # nor is it resumed: the checkpoint before knows it
    one_line_error(run_script('pretrain.py', *arguments(cfg)), 'log.jsonl: changed since step 100 was saved')


def test_one_update_equals_plain_pytorch(settings, corpus):
    """The first two steps against Hugging Face's model in float64, padded, one loss a step, torch's AdamW."""
    cfg = settings(phases=(('mlm', 2),), warmup_steps=0, decay_steps=0, micro_rows=1, save_at=(1, 2),
                   grad_clip=0.5, val_rows=0)
    pretrain.train(cfg)
    with processes('cpu') as world:
        model, *_ = pretrain.start(replace(cfg, name='fresh'), data.Corpus(corpus), world)
    theirs = bench.transformers_model('AutoModelForMaskedLM', model, cfg).to('cpu', torch.float64)
    groups = [{'params': [p for p in theirs.parameters() if p.ndim == n], 'weight_decay': decay}
              for n, decay in ((2, 0.1), (1, 0.0))]
    optimizer = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95), eps=1e-5)
    for step in range(2):
        (batch,), _, _ = data.read_step(step, data.Corpus(corpus), replace(cfg, micro_rows=0))
        tokens, targets = map(torch.from_numpy, (batch.tokens, batch.targets))
        loss = theirs(**bench.padded(batch._replace(tokens=tokens, targets=targets))).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        line = log_lines(run_of(cfg))[step]
        assert line['loss'] == pytest.approx(loss.item(), abs=1e-5)
        assert line['grad_norm'] == pytest.approx(norm.item(), rel=1e-4)
    ours = load_file(run_of(cfg) / '2' / 'model.safetensors')
    parameters = dict(theirs.named_parameters())
    assert parameters.keys() == ours.keys()
    for name, p in parameters.items():
        torch.testing.assert_close(ours[name].double(), p.detach(), atol=2e-5, rtol=0)


def test_muon_equals_torchs(settings, corpus, monkeypatch):
    """Losses of 50 steps against a plain loop over torch's two optimizers, Muon's made to compute in fp32."""
    cfg = settings(phases=(('mlm', 50),), optimizer='muon', micro_rows=0, val_rows=0)
    pretrain.train(cfg)
    with processes('cpu') as world:
        model, *_ = pretrain.start(replace(cfg, name='fresh'), data.Corpus(corpus), world)
    inner = {name: p for name, p in model.named_parameters() if '_proj.' in name}
    outer = [p for name, p in model.named_parameters() if name not in inner]
    groups = [{'params': [p for p in outer if p.ndim == n], 'weight_decay': decay}
              for n, decay in ((2, 0.1), (1, 0.0))]
    adamw = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-5, fused=True)
    muon = torch.optim.Muon(inner.values(), weight_decay=0.1, momentum=0.95)
    monkeypatch.setattr(torch.Tensor, 'bfloat16', torch.Tensor.float)
    for step, line in enumerate(log_lines(run_of(cfg))):
        (batch,), count, _ = data.read_step(step, data.Corpus(corpus), cfg)
        tokens, targets = torch.from_numpy(batch.tokens), torch.from_numpy(batch.targets)
        loss = model(tokens, batch.lengths, targets, False)[0] / count
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, lr in ((adamw, line['lr']), (muon, 6.7 * line['lr'])):
            for group in optimizer.param_groups:
                group['lr'] = lr
            optimizer.step()
            optimizer.zero_grad()
        assert line['loss'] == pytest.approx(loss.item(), abs=1e-6)


def test_the_papers_38_runs(corpus):
    """Each row parses; branches agree with their parents, whose checkpoints are kept."""
    study, _ = studies.load([str(ROOT / 'configs/studies/paper.py')])
    runs, corpus, world = {}, data.Corpus(corpus), World(0, 1, torch.device('cpu'), 'bf16')
    for name, row in study.rows.items():
        alone = dict(name=name, weights_from='', branch_from='')
        runs[name] = cfg = build(pretrain.Settings, row.settings | alone)
        assert parse(pretrain.Settings, studies.arguments(row.options, **alone))[0] == cfg
        assert cfg.decay_steps == 2_000 and cfg.lr == 5e-4 and cfg.total_steps == row.steps
        if row.parent:
            assert row.parent_step in (runs[row.parent].total_steps, *study.rows[row.parent].save_at)
        if row.begins == 'branch_from':
            numbers, parents = (checkpoint.fixed(c, corpus, world) for c in (cfg, runs[row.parent]))
            state = {'fixed': parents, 'settings': flat(runs[row.parent]), 'step': row.parent_step}
            checkpoint.check_branch(name, state, cfg, numbers, pretrain.lr_at)
    assert len(runs) == 38
    steps = [row.steps - row.parent_step for name, row in study.rows.items()
             if row.begins == 'branch_from' and 'dec' not in name]
    assert len(steps) == 17 and sum(steps) == 130_000
    models = paper.models()     # configs/paper/models.csv says the same of them
    assert len(models) == 50 and runs.keys() < models.keys()
    assert {key[0] for key in paper.numbers()} < models.keys()
    for name, about in models.items():
        cfg = runs.get(name) or runs[name.rpartition('-')[0]]
        assert about['phases'] == json.loads(json.dumps(cfg.phases)) and about['mask_ratio'] == cfg.mask_ratio
        parent = {'CLM': '610m-clm-42k', 'MLM': '610m-mlm40-42k', '': ''}[about['continues']]
        before = cost.flops_until(runs[parent], 42_000) if parent else 0.0
        assert about['flops'] == pytest.approx(before + cost.flops_until(cfg, about['step']), rel=1e-4)
        assert about['step'] == (cfg.total_steps if name in runs else int(name.rpartition('-')[2]))


TURNS = (('clm', 1), ('mlm', 1), ('mdlm', 3))  # run through again and again: objectives alternate


@pytest.mark.parametrize('seed', [0, 1])
def test_killed_runs_resume_bit_for_bit(settings, corpus, seed):
    """SIGKILL at random steps, with accumulation, over the end of an epoch and of a phase, or of many.
    Log and weights are as if undisturbed."""
    K = data.Corpus(corpus).num_stretches('train', 64)
    log_every = 1 + 4 * seed  # with 5, checkpoints lie within blocks of the log
    phases = dict(phases=TURNS, repeat=9) if seed else dict(phases=(('clm', 21), ('mlm', 24)))
    cfg = settings(name='whole', micro_rows=1, first_row=K - 80, save_every=7, val_every=15,
                   log_every=log_every, optimizer=('adamw', 'muon')[seed], **phases)
    pretrain.train(cfg)
    killed = replace(cfg, name='killed')
    draw = random.Random(seed)
    for _ in range(2):
        enough = logged(killed) + draw.randint(8, 20)
        process = Script('pretrain.py', *arguments(killed))
        while process.is_alive() and logged(killed) < enough:
            time.sleep(0.002)
        process.kill()
        process.join()
    pretrain.train(killed)
    assert log_lines(run_of(killed)) == log_lines(run_of(cfg))
    assert weights(run_of(killed) / '45') == weights(run_of(cfg) / '45')
    assert len(weights(run_of(cfg) / '45')) == 2
    assert len(json.loads((run_of(killed) / 'config.json').read_text())['starts']) >= 2


@pytest.mark.parametrize('place', ['save', 'sha256', 'write_sealed', 'sync', 'saved_steps'])
def test_a_death_anywhere_in_a_save_leaves_the_checkpoint_before_it(settings, finished, monkeypatch, place):
    cfg = settings(save_every=4, keep=1)
    owner = {'save': huggingface, 'sync': files}.get(place, checkpoint)
    original, calls = getattr(owner, place), []

    def dies(*arguments, **options):
        result = original(*arguments, **options)
        calls.append(' '.join(str(argument) for argument in arguments if isinstance(argument, Path)))
        if re.search(r'/\.8\.tmp', calls[-1]) or place == 'saved_steps' and (run_of(cfg) / '8').exists():
            monkeypatch.setattr(files, 'remove', lambda path: None)  # who dies does not clean up
            raise KeyboardInterrupt
        return result
    monkeypatch.setattr(owner, place, dies)
    with pytest.raises(KeyboardInterrupt):
        pretrain.train(cfg)
    monkeypatch.undo()
    assert place == 'saved_steps' or (run_of(cfg) / '.8.tmp').exists()
    assert huggingface.saved_steps(run_of(cfg)) == ([4, 8] if place == 'saved_steps' else [4])
    pretrain.train(cfg)
    assert log_lines(run_of(cfg)) == log_lines(run_of(finished))
    assert weights(run_of(cfg) / '12') == weights(run_of(finished) / '12')


def test_a_step_without_targets_is_loss_zero(settings):
    cfg = settings(phases=(('mlm', 3),), mask_ratio=1e-9)
    pretrain.train(cfg)
    assert all(line['loss'] == 0 and line['grad_norm'] == 0 for line in log_lines(run_of(cfg)))


def test_a_branch_equals_the_run_from_scratch(settings):
    parent = settings(name='clm', phases=(('clm', 30),), decay_steps=5,
                      save_every=0, save_at=(15, 27), val_every=10)
    scratch = settings(name='scratch', phases=(('clm', 15), ('mlm', 15)), decay_steps=6,
                       save_every=0, save_at=(15,), val_every=10)
    branch = replace(scratch, name='branch', branch_from=str(run_of(parent) / '15'), save_at=(20,))
    for cfg in (parent, scratch, branch):
        pretrain.train(cfg)
    assert weights(run_of(scratch) / '30') == weights(run_of(branch) / '30')
    assert log_lines(run_of(branch)) == [line for line in log_lines(run_of(scratch)) if line['step'] > 15]
    shutil.rmtree(run_of(branch) / '30')    # as if killed: it stays a branch, said or not
    words = 'pretrain.py', *arguments(branch, without='branch_from')
    one_line_error(run_script(*words, '--branch_from='), 'branch was begun with .*15')
    assert 'resumed' in run_script(*words).stdout
    config, lines = losses.read_log(run_of(branch), with_parent=True)
    assert config['branch_from'] == branch.branch_from and [line['step'] for line in lines] == [*range(1, 31)]

    def not_begun(text, **changes):
        refused(text, pretrain.train, replace(branch, name='refused', save_at=(), **changes))
        assert not run_of(replace(branch, name='refused')).exists()
    not_begun('step 15 was clm at lr 0.003, and would be mlm at lr 0.003',
              branch_from=str(run_of(parent) / '27'))
    not_begun('step 26 was clm at lr 0.0024', branch_from=str(run_of(parent)),
              phases=(('clm', 45),), decay_steps=5)
    not_begun('step 0 was clm at lr 0.001, and would be clm at lr 0.002', lr=6e-3)
    not_begun('has seed = 0, this run 1', seed=1)
    not_begun('is at step 15, and this run has 10', phases=(('clm', 10),))
    pretrain.train(replace(branch, name='other', mask_ratio=0.2))  # nothing was masked before the branch
    masked = replace(scratch, name='masked', phases=(('mlm', 4),), decay_steps=0, warmup_steps=0, save_at=())
    pretrain.train(masked)
    not_begun('has mask_ratio = 0.4, this run 0.2', mask_ratio=0.2, branch_from=str(run_of(masked)),
              phases=(('mlm', 8),), decay_steps=0, warmup_steps=0)


def test_phases_run_through_again_are_those_written_out_and_branch(settings):
    """The same numbers as with each phase in the list; a branch may add turns, and not change them."""
    turns = dict(phases=TURNS, repeat=4, decay_steps=4, save_at=(12,), save_every=0, val_every=10)
    runs = [settings(**turns | changes) for changes in (
        dict(name='turns'), dict(name='written', phases=TURNS * 4, repeat=1), dict(name='longer', repeat=6))]
    branch = replace(runs[2], name='branch', branch_from=str(run_of(runs[0]) / '12'))
    for cfg in (*runs, branch):
        pretrain.train(cfg)
    turned, written, longer, branched = (log_lines(run_of(cfg)) for cfg in (*runs, branch))
    assert [line['phase'] for line in turned] == ['clm', 'mlm', 'mdlm', 'mdlm', 'mdlm'] * 4
    assert turned == written and weights(run_of(runs[0]) / '20') == weights(run_of(runs[1]) / '20')
    assert branched == longer[12:] and weights(run_of(branch) / '30') == weights(run_of(runs[2]) / '30')
    assert longer[-1]['val_mdlm_loss'] < longer[9]['val_mdlm_loss']


def test_resuming_with_other_numbers_is_refused(settings):
    cfg = settings(phases=(('mlm', 12),))
    pretrain.train(cfg)
    shutil.rmtree(run_of(cfg) / '12')
    path = run_of(cfg) / '8/state.json'
    state = files.read_sealed(path, '')     # of before there was a choice, or a digest
    assert {name: state['fixed'].pop(name) for name in checkpoint.BEFORE} == checkpoint.BEFORE
    path.write_text(json.dumps(state))
    others = dict(lr=1e-3, seed=3, phases=(('mlm', 13),), context=128, hidden_size=64, dtype='bf16',
                  optimizer='muon', initializer_range=0.1)
    for name, value in others.items():
        refused(f'{run_of(cfg) / "8"} has {name} = ', pretrain.train, replace(cfg, **{name: value}))
    pretrain.train(replace(cfg, micro_rows=1, log_every=2))


def test_weights_from_takes_only_weights(settings, capsys):
    parent = settings(name='parent', phases=(('clm', 12),))
    pretrain.train(parent)
    child = settings(name='child', phases=(('mlm', 4),), weights_from=str(run_of(parent)), first_row=12 * 4,
                     context=128, rope_theta=5e4, warmup_steps=0, lr=0, decay_steps=0)
    pretrain.train(child)
    assert 'context 64 -> 128, rope_theta 10000.0 -> 50000.0' in capsys.readouterr().out
    ours, theirs = weights(run_of(child) / '4'), weights(run_of(parent) / '12')
    assert ours['model.safetensors'] == theirs['model.safetensors']  # at lr 0: taken as they were
    other = replace(child, name='other')
    refused('has num_hidden_layers = 2, this run 3', pretrain.train, replace(other, num_hidden_layers=3))
    odd = run_of(parent) / '12' / 'tokenizer.json'
    odd.write_text(odd.read_text().replace('(?i:', '(?:'))
    (run_of(parent) / '12' / 'state.json').unlink()
    refused('has another tokenizer than the corpus', pretrain.train, other)


@pytest.fixture(scope='module')
def finished(corpus, tmp_path_factory):
    """The settings of a small run that is done."""
    cfg = build(pretrain.Settings, SMALL | dict(name='run', corpus=str(corpus), keep=9,
                                                out=str(tmp_path_factory.mktemp('finished'))))
    pretrain.train(cfg)
    return cfg


@pytest.mark.parametrize('changes, part', [
    (dict(lr=1e39, val_rows=0), 'step 1: its update made weights that are not finite'),
    (dict(lr=1e39), 'step 1: val_clm_loss nan, val_mlm_loss nan, on rows 0 to 3'),
    (dict(lr=1e18, phases=(('clm', 9),), log_every=50, val_every=0),    # which saves before it logs
     'step 2: loss nan, grad_norm nan, on rows 4 to 7')])
def test_what_is_not_finite_stops_and_is_not_saved(settings, changes, part):
    cfg = settings(**dict(phases=(('clm', 1),), warmup_steps=0, decay_steps=0) | changes)
    result = run_script('pretrain.py', *arguments(cfg))
    assert result.returncode == 1 and 'Traceback' not in result.stderr
    assert part in result.stderr
    assert not huggingface.saved_steps(run_of(cfg)) and 'NaN' not in (run_of(cfg) / 'log.jsonl').read_text()


FLIPS = {'config.json': 300, 'model.safetensors': 99_999, 'optimizer.safetensors': 99_999,
         'tokenizer.json': 30_001, 'tokenizer_config.json': 99}


@pytest.mark.parametrize('name', FLIPS)
def test_a_flipped_bit_and_a_cut_file_are_refused_by_the_files_name(finished, tmp_path, name):
    cfg = replace(finished, out=str(tmp_path))
    run = shutil.copytree(run_of(finished), run_of(cfg))
    path, whole = run / '12' / name, (run / '12' / name).read_bytes()
    content = bytearray(whole)
    content[FLIPS[name] // 8] ^= 1 << FLIPS[name] % 8
    path.write_bytes(content)
    if name == 'config.json':   # a start has the lock before it reads: a live run may be changing these
        with files.locked(run):
            one_line_error(run_script('pretrain.py', *arguments(cfg)), 'another process is writing there')
    one_line_error(run_script('pretrain.py', *arguments(cfg)), f'12/{name}: missing or changed .*; remove ')
    with contextlib.nullcontext() if name == 'optimizer.safetensors' else pytest.raises(
            ValueError, match=f'^{path}: missing'):  # which weights do not need
        huggingface.open_checkpoint(run)
    path.write_bytes(whole[:-10])
    refused(f'^{path}: missing', huggingface.read_state, run / '12')


def test_an_edited_state_is_refused_by_all_that_read_it(finished, tmp_path):
    cfg = replace(finished, out=str(tmp_path))
    run = shutil.copytree(run_of(finished), run_of(cfg))
    shutil.rmtree(run / '12')
    words = f'8/state.json: changed since it was written; remove {run}/8 to go on from the checkpoint before'
    path = run / '8/state.json'
    whole = path.read_bytes()
    for name, old, new in (('step', 8, 18), ('seconds', '', 1)):
        text = whole.decode()
        assert text.count(f'\n "{name}": {old}') == 1
        path.write_text(text.replace(f'\n "{name}": {old}', f'\n "{name}": {new}'))
        one_line_error(run_script('pretrain.py', *arguments(cfg)), words)
        one_line_error(run_script('evaluate.py', 'losses', run), '8/state.json: changed since')
        refused('8/state.json: changed since', huggingface.open_checkpoint, run)
        branch = replace(cfg, name='branch', branch_from=str(run / '8'))
        one_line_error(run_script('pretrain.py', *arguments(branch)), 'changed since .*; branch from another')
        path.write_bytes(whole)
    files.write_json(path, files.read_sealed(path, '') | {'step': 18})    # without a digest, as older ones
    words = '8/state.json: is of step 18, its folder of step 8'
    one_line_error(run_script('pretrain.py', *arguments(cfg)), words)
    path.unlink()
    one_line_error(run_script('pretrain.py', *arguments(branch)), '8: no state.json, so no training to')
    one_line_error(run_script('pretrain.py', *arguments(cfg)), '8: has no state.json; remove .*/8 to go on from')
    path.write_text('[]')
    one_line_error(run_script('pretrain.py', *arguments(cfg)), '8/state.json: holds no JSON object')
    path.write_bytes(whole)
    shutil.rmtree(run / '4')
    (run / '8').rename(run / '4')
    words = '4/state.json: is of step 8, its folder of step 4'
    one_line_error(run_script('pretrain.py', *arguments(cfg)), words)


def test_reports_do_not_believe_an_edited_config_json(finished, corpus, tmp_path):
    """What they read of it stands in state.json, too. Nor does a resume take up another run's starts."""
    cfg = replace(finished, out=str(tmp_path))
    run = shutil.copytree(run_of(finished), run_of(cfg))
    path = run / 'config.json'
    before = losses.read_log(run)
    shown = ran('evaluate.py', 'losses', run, f'--out={tmp_path}').stdout
    other = files.read_json(path) | {'name': 'other', 'row': 'other', 'seed': 9, 'repeat': 7}
    other |= {'phases': [['mlm', 3]], 'corpus_meta': {'fingerprint': 'f', 'unigram_loss': 1.0}}
    other['starts'] = [other['starts'][0] | {'how': 'from elsewhere', 'step': 3}] * 3
    files.write_json(path, other)
    assert losses.read_log(run) == before and losses.read_log(run)[0]['repeat'] == 1
    assert ran('evaluate.py', 'losses', run, f'--out={tmp_path}').stdout == shown
    shutil.rmtree(run / '12')
    pretrain.train(cfg)
    config, lines = losses.read_log(run)
    assert log_lines(run) == log_lines(run_of(finished)) and files.read_json(path) == config
    begun = [(start['step'], start['how'].split()[0]) for start in config['starts']]
    assert begun == [(0, 'from'), (8, 'resumed')]
    assert config['starts'][0] == before[0]['starts'][0]


def test_an_older_checkpoint_resumes_and_is_reported(finished, tmp_path):
    """Whose state.json has no digest, and does not say what config.json says."""
    cfg = replace(finished, out=str(tmp_path))
    run = shutil.copytree(run_of(finished), run_of(cfg))
    shutil.rmtree(run / '12')
    for step in (4, 8):
        state = files.read_sealed(run / f'{step}/state.json', '')
        del state['starts'], state['corpus_meta']
        files.write_json(run / f'{step}/state.json', state)
    assert losses.read_log(run)[0]['starts'] == files.read_json(run / 'config.json')['starts']
    pretrain.train(cfg)
    assert log_lines(run) == log_lines(run_of(finished))
    assert weights(run / '12') == weights(run_of(finished) / '12')
    assert len(losses.read_log(run)[0]['starts']) == 2


@pytest.mark.parametrize('world_size', [1, 2])
def test_a_changed_shard_is_one_line_before_the_first_step(settings, corpus, tmp_path, world_size):
    """Each is compared by one of the processes; all of them stop."""
    copied = shutil.copytree(corpus, tmp_path / 'copied')
    cfg = settings(corpus=str(copied), phases=(('clm', 1),), warmup_steps=0, decay_steps=0, save_every=0)
    shards = data.Corpus(copied).meta['shards'] + data.Corpus(copied).meta['val_shards']
    assert len(shards) > 4
    for name in (shards[k]['name'] for k in ((1, 2, -1) if world_size == 1 else (2, 3))):
        whole = (copied / name).read_bytes()
        (copied / name).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        ends = [process.ended() for process in begin(world_size, 'pretrain.py', *arguments(cfg))]
        assert [end.returncode for end in ends] == [2] * world_size, [end.stderr for end in ends]
        one_line_error(ends[0], f'copied/{name}: changed since it was written; prepare the corpus again')
        assert not any('error: ' in end.stderr for end in ends[1:]) and not logged(cfg)
        (copied / name).write_bytes(whole)
    ends = [process.ended() for process in begin(world_size, 'pretrain.py', *arguments(cfg))]
    size = sum((copied / shard['name']).stat().st_size for shard in shards) / 1e6
    words = rf'copied: compared {size:.1f} MB of tokens with their sha256 in \d\.\d s\n'
    assert re.search(words, ends[0].stdout)
    assert logged(cfg) == 1 and not any('compared' in end.stdout for end in ends[1:])


def changed_meta(**changes):
    return lambda meta: meta.update(changes)


SEALED = 'changed since it was written; prepare the corpus again'


@pytest.mark.parametrize('change, words', [
    (changed_meta(unigram_loss=5.0), SEALED), (changed_meta(shards=5), SEALED),
    (changed_meta(mask_token_id=7), SEALED),
    (lambda meta: meta['shards'].pop(1), 'fingerprint is'),
    (lambda meta: meta['val_shards'].pop(), 'fingerprint is'),
    (lambda meta: meta['shards'].reverse(), 'fingerprint is'),
    (changed_meta(tokenizer='0' * 64), 'tokenizer.json: changed since it was written'),
    (lambda meta: meta.pop('special_ids'), 'has no special_ids; prepare the corpus again'),
    (lambda meta: meta['shards'][1].update(name='../copied/tokens_00001.npy'), 'is no file of this folder')])
def test_an_edited_meta_json_is_one_line(settings, corpus, tmp_path, change, words):
    """At a start, and of data.py --verify."""
    copied = shutil.copytree(corpus, tmp_path / 'copied')
    meta = files.read_json(copied / 'meta.json')
    if words != SEALED:
        meta.pop('digest')      # as in corpora of before
    change(meta)
    files.write_json(copied / 'meta.json', meta)
    cfg = settings(corpus=str(copied))
    for command in (['pretrain.py', *arguments(cfg)], ['data.py', f'--out={copied}', '--verify']):
        one_line_error(run_script(*command), f'copied/(meta|tokenizer).json: .*{words}|{words}')
    assert not run_of(cfg).exists()


SMALL_FILES = """import resource, runpy, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
sys.argv = sys.argv[3:]
runpy.run_path(sys.argv[0], run_name='__main__')"""


@pytest.mark.parametrize('world_size, limit, change', [
    (1, 1_500_000, dict()), (2, 1_500_000, dict(phases=(('clm', 400),))),
    # where the log alone grows
    pytest.param(1, 16_000, dict(save_every=0, phases=(('clm', 90),)), marks=pytest.mark.slow)])
def test_a_full_disk_is_one_line_and_stops_all_processes(settings, world_size, limit, change):
    cfg = settings(micro_rows=1, **change)
    result = torchrun(world_size, '--no-python', sys.executable, '-c', SMALL_FILES, limit, '', 'pretrain.py',
                      *arguments(cfg))
    assert result.returncode and 'pretrain.py", line' not in result.stderr, result.stderr
    error, = (line for line in result.stderr.splitlines() if 'error: ' in line)
    assert re.search('File too large.*make room', error)
    assert {path.name for path in run_of(cfg).iterdir()} == {'config.json', 'log.jsonl'}
    assert (run_of(cfg) / 'log.jsonl').read_bytes().count(b'\n') < 100  # it fails in the save of step 4


@pytest.fixture(scope='session')
def uneven(corpus, tmp_path_factory):
    """The corpus with most stretches turned to eos, which is never masked: some processes get few targets."""
    folder = tmp_path_factory.mktemp('uneven') / 'corpus'
    shutil.copytree(corpus, folder)
    for path in folder.glob('tokens_*.npy'):
        tokens = np.load(path)
        tokens[np.arange(len(tokens)) // 64 % 4 > 0] = 4094
        np.save(path, tokens)
    record(folder)
    return folder


def record(corpus):
    """Have a corpus's meta.json list its shards as they are now."""
    meta = files.read_sealed(corpus / 'meta.json', '')
    for shard in meta['shards'] + meta['val_shards']:
        shard['sha256'] = files.sha256(corpus / shard['name'])
    files.write_sealed(corpus / 'meta.json', meta | {'fingerprint': prepare.fingerprint(meta)})


# parts of decoders
UNUSUAL = dict(qk_norm=True, attention_bias=True, head_dim=12, rope_scaling=(8.0, 1.0, 4.0, 32))


def runs_of_layouts(settings, world_size, uneven):
    """Each wrapper and size of a micro-batch, objectives that alternate, uneven targets, recomputing."""
    common = dict(rows_per_step=8, grad_clip=1e9, val_every=3, save_every=0, save_at=(4,), val_rows=5)
    both = dict(phases=(('clm', 4), ('mlm', 4)))
    runs = []
    for parallel in ('ddp', 'fsdp') if world_size > 1 else ('ddp',):
        for micro_rows in (1, 2, 4) if parallel == 'ddp' else (1, 4):
            suffix = f'{world_size}-{parallel}-{micro_rows}'
            layout = common | dict(parallel=parallel, micro_rows=micro_rows)
            runs += [settings(name=f'both-{suffix}', **both, **layout),
                     *(settings(name=f'{objective}-{suffix}', phases=((objective, 1),), warmup_steps=1,
                                decay_steps=0, **layout | {'save_at': ()}) for objective in ('mlm', 'mdlm'))]
        layout, suffix = common | dict(parallel=parallel), f'{world_size}-{parallel}'
        runs += [settings(name=f'turns-{suffix}', phases=TURNS, repeat=2, micro_rows=1, **layout),
                 settings(name=f'muon-{suffix}', optimizer='muon', **both, **layout)]
    sharded = common | dict(parallel='fsdp', micro_rows=2)
    return runs + [settings(name=f'uneven-{world_size}', phases=(('mlm', 4),), decay_steps=0,
                            corpus=str(uneven), **sharded, **UNUSUAL),
                   settings(name=f'recompute-{world_size}', recompute=True, **both, **sharded)]


def begin(world_size, script, *words):
    """Processes of a script, with what torchrun sets for each."""
    with socket.create_server(('127.0.0.1', 0)) as free:
        port = free.getsockname()[1]
    return [Script(script, *words, MASTER_ADDR='127.0.0.1', MASTER_PORT=f'{port}', RANK=f'{rank}',
                   WORLD_SIZE=f'{world_size}', LOCAL_RANK=f'{rank}', LOCAL_WORLD_SIZE=f'{world_size}')
            for rank in range(world_size)]


def launch(world_size, runs):
    words = json.dumps([flat(cfg) for cfg in runs])
    for result in [process.ended(200) for process in begin(world_size, 'layouts.py', words)]:
        assert result.returncode == 0, result.stderr[-3000:]


def assert_same_numbers(cfg, other, gradients=False):
    run, reference = run_of(cfg), run_of(other)
    if gradients:
        a, b = (load_file(folder / 'first_gradient.safetensors') for folder in (run, reference))
        assert all((a[name] - b[name]).abs().max() < 1e-6 for name in b) and a.keys() == b.keys()
    for a, b in zip(log_lines(run), log_lines(reference), strict=True):
        assert a['rows'] == b['rows'] and a.keys() == b.keys()
        losses, most = [name for name in a if 'loss' in name], 1e-5 if 'muon' in cfg.name else 1e-4
        assert [a[name] for name in losses] == pytest.approx([b[name] for name in losses], abs=most)


@pytest.mark.parametrize('world_size', [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes_and_micro_batches_do_not_change_the_numbers(settings, world_size, uneven):
    """Also where one process has a few targets and the other many, and with activations recomputed."""
    alone, together = (runs_of_layouts(settings, size, uneven) for size in (1, world_size))
    for cfg in alone:
        layouts.train(cfg)
    launch(world_size, together)
    references = {cfg.name.split('-')[0]: cfg for cfg in reversed(alone)} | {'recompute': alone[0]}
    for cfg in alone + together:
        assert_same_numbers(cfg, references[cfg.name.split('-')[0]], gradients=True)


@pytest.mark.parametrize('number, world_size', [
    (signal.SIGTERM, 1), (signal.SIGINT, 1), pytest.param(signal.SIGTERM, 2, marks=pytest.mark.slow)])
def test_signals_finish_the_step_and_save(settings, number, world_size):
    """Of all processes, even if one alone hears it."""
    cfg = settings(phases=(('clm', 5_000),), decay_steps=0, save_every=0, val_every=0)
    first, *others = begin(world_size, 'pretrain.py', *arguments(cfg))
    while first.is_alive() and logged(cfg) < 6:
        time.sleep(0.01)
    for _ in range(3):
        os.kill(first.pid, number)
        time.sleep(0.001)
    for result in [process.ended() for process in (first, *others)]:
        assert result.returncode == 0, result.stderr
    assert 'stopped at step' in first.ended().stdout
    saved = [int(path.name) for path in run_of(cfg).glob('[0-9]*')]
    assert len(saved) == 1 and saved[0] == log_lines(run_of(cfg))[-1]['step'] < 5_000


def test_two_processes_with_shards_killed_in_a_save_go_on_bit_for_bit(settings):
    cfg = settings(name='whole', parallel='fsdp', save_every=2)
    launch(2, [cfg])
    killed = replace(cfg, name='killed')
    run, processes = run_of(killed), begin(2, 'pretrain.py', *arguments(killed))
    while not (any(run.glob('.*.tmp')) and any(run.glob('[0-9]'))) and not (run / '10').exists():
        assert all(process.is_alive() for process in processes)
    for process in processes:
        process.kill()
        process.join()
    assert not (run / '12').exists()
    launch(2, [killed])
    assert log_lines(run) == log_lines(run_of(cfg)) and weights(run / '12') == weights(run_of(cfg) / '12')
    shutil.rmtree(run / '12')
    pretrain.train(replace(killed, parallel='ddp'))     # one process goes on from their checkpoint
    assert_same_numbers(killed, cfg)


def test_processes_that_would_compute_different_runs_are_refused(settings, monkeypatch):
    """As where a node has an older config. A folder may have another name there."""
    told = []
    monkeypatch.setattr(World, 'of_first', lambda self, function:
                        told.pop(0) if self.rank else told.append(function()) or told[-1])

    def begin(rank, **change):
        cfg = settings(**change)
        world = World(rank, rank + 1, torch.device('cpu'), 'fp32')
        return checkpoint.find_origin(cfg, data.Corpus(cfg.corpus), world, pretrain.lr_at)
    begin(0)
    begin(1, out='elsewhere')
    for name, value in ('rope_theta', 5e4), ('save_every', 3):      # exchanges would never meet
        begin(0)
        refused(f'processes differ in {name}, which is {value!r} in this one', begin, 1, **{name: value})


@pytest.mark.parametrize('setting, message', [
    ('corpus=absent', 'absent: no corpus there.*python data.py'), ('context=10_000_000', 'less than one row'),
    ('vocab_size=128_256', 'has vocab_size 4096.*another tokenizer'), ('beta1=1', 'beta1 must be from 0 to'),
    ('name=a/b', 'name must be'), ('micro_rows=3', 'of micro_rows 3'), ('save_at=abc', 'save_at takes int'),
    ('save_at=13', 'save_at must be from 1 to 12, not 13'),
    ('val_mask_ratio=1e-6', 'val_mask_ratio 1e-06 masks no token of 5 held-out rows'),
    ('world_size=3 --dry_run', 'rows_per_step 4 must be a multiple of the 3 processes')])
def test_mistakes_get_one_line_and_leave_nothing(settings, setting, message):
    cfg = settings()
    words = arguments(cfg, without=setting.split('=')[0])
    one_line_error(run_script('pretrain.py', *words, *f'--{setting}'.split()), message)
    assert not run_of(cfg).exists()


@pytest.mark.slow
def test_compiled_training_equals_eager(settings):
    runs = [settings(name=str(compiled), compile=compiled, **UNUSUAL) for compiled in (True, False)]
    for cfg in runs:
        pretrain.train(cfg)
    assert_same_numbers(*runs)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs CUDA')
def test_training_on_cuda_is_near_the_cpu_and_resumes(settings):
    common = dict(hidden_size=128, phases=(('clm', 20), ('mlm', 20)), save_every=15)
    cpu, cuda = (settings(name=device, device=device, **common) for device in ('cpu', 'cuda'))
    for cfg in (cpu, cuda, replace(cuda, name='compiled', compile=True)):
        pretrain.train(cfg)
        for line, expected in zip(log_lines(run_of(cfg)), log_lines(run_of(cpu)), strict=True):
            assert line['rows'] == expected['rows']
            assert line['loss'] == pytest.approx(expected['loss'], rel=0.02)
    shutil.rmtree(run_of(cuda) / '40')
    before = [line['loss'] for line in log_lines(run_of(cuda))]
    pretrain.train(cuda)
    assert [line['loss'] for line in log_lines(run_of(cuda))] == pytest.approx(before, rel=5e-3)


def test_held_out_losses_of_runs_that_mask_different_shares_compare(settings):
    losses = []
    for name, more in (('a', {}), ('b', {'mask_ratio': 0.2, 'mask_replace': (0.8, 0.1, 0.1)}),
                       ('c', {'val_mask_ratio': 0.2})):
        cfg = settings(name=name, phases=(('mlm', 1),), lr=0.0, warmup_steps=0, decay_steps=0, **more)
        pretrain.train(cfg)
        losses.append(log_lines(run_of(cfg))[-1])
    assert losses[0]['val_mlm_loss'] == losses[1]['val_mlm_loss'] != losses[2]['val_mlm_loss']
    assert losses[0]['loss'] != losses[1]['loss'] and losses[0]['loss'] == losses[2]['loss']


def in_a_terminal(script, *words):
    """(process of a script that leads a terminal's session, the terminal's other end)"""
    other_end, terminal = os.openpty()
    process = subprocess.Popen([sys.executable, script, *words], cwd=ROOT, start_new_session=True,
                               stdin=terminal, stdout=terminal, stderr=terminal,
                               preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY))
    os.close(terminal)
    return process, other_end


def test_a_terminal_that_is_closed_saves_the_run(settings):
    """To which nothing can be printed any more."""
    cfg = settings(phases=(('clm', 5_000),), decay_steps=0, save_every=0, val_every=0)
    process, terminal = in_a_terminal('pretrain.py', *arguments(cfg))
    said = b''
    while said.count(b'tokens/s') < 6:
        said += os.read(terminal, 1_000)
    os.close(terminal)
    assert process.wait(60) == 0
    saved, = (int(path.name) for path in run_of(cfg).glob('[0-9]*'))
    assert saved == log_lines(run_of(cfg))[-1]['step'] < 5_000


def test_what_nohup_started_goes_on():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_signals() as received:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not received and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_resumed_run_measures_its_held_out_loss_as_before(settings, monkeypatch):
    """Of the same rows and masks. It may measure none for a while, and then as before."""
    cfg = settings(phases=(('mlm', 12),))
    pretrain.train(cfg)
    shutil.rmtree(run_of(cfg) / '12')
    for name, value in ('val_mask_ratio', 0.2), ('val_rows', 4):
        was = getattr(cfg, name)
        refused(f'^{name}: the held-out losses of {run_of(cfg)} are of {was}: go on with it',
                pretrain.train, replace(cfg, **{name: value}))
    silent = replace(cfg, val_rows=0, val_mask_ratio=0.2)
    monkeypatch.setattr(pretrain, 'stop_signals', lambda: contextlib.nullcontext([True]))   # after a step
    pretrain.train(silent)
    monkeypatch.undo()
    assert not [line for line in log_lines(run_of(cfg))[8:] if 'val_mlm_loss' in line]
    refused('^val_rows: the held-out losses of .* are of 5: go on', pretrain.train, replace(cfg, val_rows=4))
    pretrain.train(cfg)
    assert 'val_mlm_loss' in log_lines(run_of(cfg))[11]


def test_a_parent_that_was_to_save_beyond_its_end_can_be_branched_from(settings):
    """Of a version that let it be."""
    parent = settings(name='parent', phases=(('clm', 12),), decay_steps=0)
    pretrain.train(parent)
    state = files.saved_state(run_of(parent) / '8')
    state['settings']['save_at'] = [99]
    files.write_sealed(run_of(parent) / '8/state.json', state)
    branch = replace(parent, name='branch', phases=(('clm', 10),), branch_from=str(run_of(parent) / '8'))
    pretrain.train(branch)
    assert (run_of(branch) / '10').exists()

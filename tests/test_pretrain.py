"""Runs: what they log, that they resume and branch bit for bit in any layout, what they say on mistakes."""
import contextlib
import fcntl
import importlib.util
import itertools
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
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from pytest import approx
from safetensors.torch import load_file, save as to_bytes
from torch.torch_version import TorchVersion

import bench
import data
import layouts
import pretrain
from conftest import (
    ROOT,
    Script,
    arguments,
    assert_near,
    edit,
    flip,
    log_lines,
    on_cuda,
    one_line_error,
    refused,
    refused_line,
    replace,
    run_process,
    run_script,
    small_run,
    torch_adamw,
    torchrun,
    write_log,
)
from model import parameter_groups
from nanoencoder import files, huggingface, optimizers
from nanoencoder.pretraining import checkpoint
from nanoencoder.pretraining.log import commit, read_log
from nanoencoder.processes import World, choose_flash_attention, processes, stop_signals
from nanoencoder.settings import flat, make_settings, parse
from studies import study
from studies.paper import published

TURNS = (('clm', 1), ('mlm', 1), ('mdlm', 3))  # run through again and again: objectives alternate
NO_SCHEDULE = dict(warmup_steps=0, decay_steps=0)


def run_of(cfg):
    return Path(cfg.out) / cfg.name


def weights(folder):
    """{file: sha256} of a checkpoint's weights and moments."""
    return {path.name: files.sha256(path) for path in folder.glob('*.safetensors')}


def logged(cfg):
    """How many steps a run has logged."""
    path = run_of(cfg) / 'log.jsonl'
    return path.read_bytes().count(b'\n') if path.exists() else 0


def assert_same(cfg, other, step):
    """Two runs have logged the same and have the same bits after a step."""
    first = run_of(cfg)
    second = run_of(other)
    assert log_lines(first) == log_lines(second)
    assert weights(first / f'{step}') == weights(second / f'{step}')


def mistake(cfg, words):
    """The command that would start a run ends with one line, and these words in it."""
    refused_line(words, 'pretrain.py', *arguments(cfg))


def fresh(cfg):
    """(model, optimizer) with which a run of these settings begins"""
    with processes('cpu') as world:
        begun = replace(cfg, name='fresh')
        model, _, optimizer, *_ = pretrain.start_run(begun, data.Corpus(cfg.corpus), world)
    return model, optimizer


@pytest.fixture(scope='module')
def finished(corpus, tmp_path_factory):
    """The settings of a small run that is done; it has checkpoints at steps 4, 8 and 12."""
    cfg = small_run(corpus=str(corpus), out=str(tmp_path_factory.mktemp('finished')))
    pretrain.train(cfg)
    return cfg


@pytest.fixture
def copied(finished, tmp_path):
    """The same of a copy that a test may damage."""
    cfg = replace(finished, out=str(tmp_path))
    shutil.copytree(run_of(finished), run_of(cfg))
    return cfg


def test_schedule_by_hand():
    cfg = pretrain.Settings(name='x', phases=(('clm', 10_000), ('mlm', 32_000)))
    peak = 5e-4
    by_hand = {
        0: peak / 2000,
        999: peak / 2,
        1_999: peak,
        40_000: peak,
        41_000: peak / 2,
        41_999: peak / 2000,
    }
    assert {step: cfg.lr_at(step) for step in by_hand} == approx(by_hand)


def test_phases_are_run_through_again_and_shares_are_of_all_steps():
    cfg = pretrain.Settings(name='x', phases=(('clm', 1), ('mlm', 2)), repeat=20, warmup_steps=0.05,
                            decay_steps=0.2)
    assert (cfg.warmup_steps, cfg.decay_steps) == (3, 12)
    objectives = [data.objective_at(step, cfg) for step in range(cfg.total_steps)]
    assert objectives == ['clm', 'mlm', 'mlm'] * 20


def test_a_run_learns_logs_and_saves(trained):
    cfg = trained(phases=(('clm', 40), ('mlm', 40), ('mntp', 40)),
                  log_every=10, val_every=20, save_every=50, save_at=(20,), keep=1)
    run = run_of(cfg)
    config, lines = read_log(run)
    assert len(lines) == 120

    untrained = np.log(4096)
    assert [line['step'] for line in lines if 'val_clm_loss' in line] == [20, 40, 60, 80, 100, 120]
    for end in (40, 80, 120):
        last = lines[end - 1]
        assert last[f'val_{last["phase"]}_loss'] < untrained - 1

    assert files.saved_steps(run) == [20, 100, 120]     # 50 was pruned
    assert {path.name for path in (run / '120').iterdir()} == {
        'README.md', 'config.json', 'model.safetensors', 'optimizer.safetensors', 'state.json',
        'tokenizer.json', 'tokenizer_config.json'}
    facts = files.read_json(run / '120/state.json')['pretraining']
    assert (facts['family'], facts['tokens']) == ('0.1M', 120 * 4 * 64)
    start, = config['starts']
    assert start['how'].startswith('from scratch')


def test_a_changed_log_is_neither_read_nor_continued(copied):
    run = run_of(copied)
    rows = (run / 'log.jsonl').read_text().splitlines(keepends=True)
    edited = [*rows[:5], rows[5].replace('5', '6'), *rows[6:]]
    for damaged in (rows[:-1], rows[:5] + rows[6:], edited):
        (run / 'log.jsonl').write_text(''.join(damaged))
        refused(f'^{run}/log.jsonl: changed since step 12 was saved', read_log, run)
    shutil.rmtree(run / '12')
    refused('log.jsonl: changed since step 8 was saved', pretrain.train, copied)


def test_a_row_of_the_log_that_is_no_step_is_named(tmp_path):
    """Rows behind the last checkpoint have no digest."""
    write_log(tmp_path, [1, 2], 5.0)
    edit(tmp_path / 'log.jsonl', '"step"', '"stop"')
    refused("log.jsonl: has a row that is no step of a run; restore it: 'step'", read_log, tmp_path)


def test_a_commit_is_dirty_where_code_has_changed(tmp_path):
    """Not by the lines that a study adds to a table of its runs, nor by a config."""
    def git(*words):
        author = '-c', 'user.name=a', '-c', 'user.email=b'
        subprocess.run(['git', *author, *words], cwd=tmp_path, check=True)
    assert commit(tmp_path) == ''
    (tmp_path / 'a.py').touch()
    git('init', '-q')
    git('add', '.')
    git('commit', '-qm', 'a')
    (tmp_path / 'losses.csv').touch()
    (tmp_path / 'configs').mkdir()
    (tmp_path / 'configs/mine.py').touch()
    clean = commit(tmp_path)
    assert re.fullmatch('[0-9a-f]{40}', clean)
    for name in ('new.py', 'a.py'):
        path = tmp_path / name
        path.write_text('2')
        assert commit(tmp_path) == f'{clean}-dirty'
        path.write_text('')
        git('clean', '-qf')


def test_one_update_equals_plain_pytorch(trained, corpus):
    """The first two steps against Hugging Face's model in float64, padded, one loss a step, torch's AdamW."""
    cfg = trained(phases=(('mlm', 2),), micro_rows=1, grad_clip=0.5, val_rows=0, **NO_SCHEDULE)
    model, _ = fresh(cfg)
    theirs = bench.transformers_model('AutoModelForMaskedLM', model, cfg).to('cpu', torch.float64)
    optimizer = torch_adamw(theirs.parameters(), 3e-3)
    for step, line in enumerate(log_lines(run_of(cfg))):
        (batch,), _, _ = data.read_step(step, data.Corpus(corpus), replace(cfg, micro_rows=0))
        tokens = torch.from_numpy(batch.tokens)
        targets = torch.from_numpy(batch.targets)
        padded = bench.padded(batch._replace(tokens=tokens, targets=targets))
        loss = theirs(**padded).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
        for group in optimizer.param_groups:
            group['lr'] = cfg.lr_at(step)
        optimizer.step()
        optimizer.zero_grad()
        assert line['loss'] == approx(loss.item(), abs=1e-5)
        assert line['grad_norm'] == approx(norm.item(), rel=1e-4)
    assert_near(load_file(run_of(cfg) / '2/model.safetensors'), theirs.float().state_dict(), 2e-5)


@pytest.mark.parametrize('name, ratio', [('muon', 6.7), ('adamw', 0.25)])
def test_two_rates_equal_two_optimizers_of_torch(settings, monkeypatch, name, ratio):
    """Ten updates by random gradients; torch's Muon is made to compute in fp32."""
    cfg = settings(optimizer=name, matrix_lr_ratio=ratio)
    ours, optimizer = fresh(cfg)
    theirs, _ = fresh(cfg)
    inner = [p for name, p in theirs.named_parameters() if '_proj.' in name]
    outer = [p for name, p in theirs.named_parameters() if '_proj.' not in name]
    adamw = torch_adamw(outer, 3e-3)
    other = torch_adamw(inner, ratio * 3e-3)
    if name == 'muon':
        other = torch.optim.Muon(inner, ratio * 3e-3, weight_decay=0.1, momentum=0.95)
    monkeypatch.setattr(torch.Tensor, 'bfloat16', torch.Tensor.float)
    for group in optimizer.param_groups:
        group['lr'] = 3e-3 * group['lr_ratio']
    for _ in range(10):
        for p, q in zip(ours.parameters(), theirs.parameters()):
            p.grad = torch.randn(p.shape)
            q.grad = p.grad.clone()
        for each in (optimizer, adamw, other):
            each.step()
    assert_near([*ours.parameters()], [*theirs.parameters()])


def test_a_start_says_what_each_group_learns_at(trained, capsys):
    """V d; 5 gains of d; the rest of a model whose head is tied: 2 layers of 2 d d + 2 d d / 2 + 3 d f."""
    trained(phases=(('clm', 1),), optimizer='muon', weight_decay=0.05, tie_word_embeddings=True,
            **NO_SCHEDULE)
    begun = [line.partition('run: ')[2] for line in capsys.readouterr().out.splitlines()]
    assert begun[1:4] == [
        'embeddings and head: 131,072 parameters, lr 0.003, weight decay 0.05',
        'gains and biases: 160 parameters, lr 0.003, weight decay 0',
        'matrices of the layers: 15,360 parameters, lr 0.0201, weight decay 0.05']


@pytest.mark.parametrize('spoil', [
    lambda first, second, third: third['params'].pop(),
    lambda first, second, third: first['params'].append(third['params'][0])], ids=['left out', 'in two'])
def test_a_parameter_in_no_group_or_in_two_is_no_optimizer(monkeypatch, settings, spoil):
    def spoilt(*arguments):
        groups = parameter_groups(*arguments)
        spoil(*groups)
        return groups
    monkeypatch.setattr(optimizers, 'parameter_groups', spoilt)
    with pytest.raises(AssertionError, match='each parameter is in one group'):
        fresh(settings())


def test_matrices_of_the_layers_learn_at_their_rate(settings):
    cfg = settings(matrix_lr_ratio=1e-9, val_rows=0)
    before = dict(fresh(cfg)[0].named_parameters())
    pretrain.train(cfg)
    after = load_file(run_of(cfg) / '12/model.safetensors')
    stayed = {name for name in after if torch.allclose(after[name], before[name], rtol=0, atol=1e-7)}
    assert stayed == {name for name in after if '_proj.' in name}


def test_the_papers_38_runs(corpus):
    """Each row parses; branches agree with their parents, whose checkpoints are kept."""
    papers, _ = parse(study.Study, [str(ROOT / 'studies/paper/config.py')])
    world = World(0, 1, torch.device('cpu'), 'bf16')
    corpus = data.Corpus(corpus)
    runs = {}
    branched = []   # steps of each branch that its parent has not done
    for name, row in papers.rows.items():
        values = row.settings | dict(name=name, weights_from='', branch_from='')
        cfg = make_settings(pretrain.Settings, values)
        runs[name] = cfg
        assert (cfg.decay_steps, cfg.lr, cfg.total_steps) == (2_000, 5e-4, row.steps)
        if row.parent:
            assert row.parent_step in (runs[row.parent].total_steps, *papers.rows[row.parent].save_at)
        if row.begins == 'branch_from':
            parent = runs[row.parent]
            state = {'fixed': checkpoint.fixed(parent, corpus, world), 'settings': flat(parent),
                     'step': row.parent_step}
            checkpoint.check_branch(name, state, cfg, checkpoint.fixed(cfg, corpus, world))
            if 'dec' not in name:
                branched.append(row.steps - row.parent_step)
    assert len(runs) == 38
    assert len(branched) == 17
    assert sum(branched) == 130_000

    for name, about in published.models().items():      # configs/paper/models.csv says the same of them
        row, step = papers.models[name]
        assert about['step'] == step
        assert about['phases'] == json.loads(json.dumps(runs[row].phases))
        assert about['mask_ratio'] == runs[row].mask_ratio


@pytest.mark.parametrize('seed, changes', [
    (0, dict(phases=(('clm', 21), ('mlm', 24)))),
    # checkpoints lie within blocks of the log
    (1, dict(phases=TURNS, repeat=9, log_every=5, optimizer='muon', embedding_init='counts'))])
def test_killed_runs_resume_bit_for_bit(trained, corpus, seed, changes):
    """SIGKILL at random steps, with accumulation, over the end of an epoch and of a phase, or of many.
    Log and weights are as if undisturbed."""
    epoch = data.Corpus(corpus).num_stretches('train', 64)
    cfg = trained(name='whole', micro_rows=1, first_row=epoch - 80, save_every=7, val_every=15, **changes)
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
    assert_same(killed, cfg, 45)
    assert len(files.read_json(run_of(killed) / 'config.json')['starts']) >= 2


class Counting(torch.optim.SGD):
    """Its steps grow shorter by numbers in its state, which are no tensors."""
    def step(self):
        for group in self.param_groups:
            for p in group['params']:
                count = self.state[p].get('count', 0)
                p.grad.mul_(0.5 ** count)
                self.state[p].update(count=count + 1, share=0.1 * count, is_new=not count)
        super().step()


OTHERS = {      # {name: groups -> a torch.optim.Optimizer}
    'nadam': torch.optim.NAdam,
    'adafactor': torch.optim.Adafactor,
    'adagrad': torch.optim.Adagrad,
    'asgd': torch.optim.ASGD,
    'rmsprop': partial(torch.optim.RMSprop, momentum=0.9, centered=True),
    'sgd': partial(torch.optim.SGD, momentum=0.9),
    'counting': Counting}


def add_optimizer(monkeypatch, name, make):
    """As docs/hacking.md says to."""
    entry = optimizers.Optimizer(lambda groups, cfg: make(groups), 1.0)
    monkeypatch.setitem(optimizers.OPTIMIZERS, name, entry)


@pytest.mark.parametrize('name', OTHERS)
def test_another_optimizers_run_resumes_bit_for_bit(settings, monkeypatch, name):
    """Tensors of other shapes than the parameter's, counts and numbers are saved as they are."""
    add_optimizer(monkeypatch, name, OTHERS[name])
    cfg = settings(optimizer=name, phases=(('clm', 2),), save_every=1, val_rows=0, **NO_SCHEDULE)
    pretrain.train(cfg)
    run = run_of(cfg)
    uninterrupted = weights(run / '2')
    shutil.rmtree(run / '2')
    pretrain.train(cfg)
    assert weights(run / '2') == uninterrupted


class Listing(torch.optim.SGD):
    def step(self):
        for p in self.param_groups[0]['params']:
            self.state[p]['history'] = [p.grad]


class Warming(torch.optim.SGD):
    def step(self):
        self.param_groups[0]['warmth'] = 1.0


@pytest.mark.parametrize('make, words', [
    (Listing, 'optimizer mine: no checkpoint could hold its state: history is a list'),
    (Warming, 'optimizer mine: .*its step changes an option of a group'),
    (torch.optim.LBFGS, 'LBFGS doesn\'t support per-parameter options'),
    (torch.optim.SparseAdam, 'optimizer mine: .*SparseAdam does not support dense gradients')])
def test_an_optimizer_that_cannot_resume_is_refused_before_the_first_step(settings, monkeypatch, make, words):
    add_optimizer(monkeypatch, 'mine', make)
    cfg = settings(optimizer='mine')
    mistake(cfg, words)
    assert not logged(cfg)


def test_a_checkpoint_without_adamws_count_of_steps_is_continued(copied):
    """As older versions wrote it: two moments a parameter."""
    run = run_of(copied)
    uninterrupted = weights(run / '12')
    shutil.rmtree(run / '12')
    path = run / '8/optimizer.safetensors'
    moments = {name: value for name, value in load_file(path).items() if not name.endswith('.step')}
    path.write_bytes(to_bytes(moments))
    state = files.saved_state(run / '8')
    state['sha256'][path.name] = files.sha256(path)
    files.write_sealed(run / '8/state.json', state)
    pretrain.train(copied)
    assert weights(run / '12') == uninterrupted


def test_a_setting_that_is_newer_than_a_checkpoint_was_at_its_default(copied):
    run = run_of(copied)
    uninterrupted = weights(run / '12')
    shutil.rmtree(run / '12')
    state = files.saved_state(run / '8')
    del state['fixed']['embedding_init']
    files.write_sealed(run / '8/state.json', state)
    mistake(replace(copied, embedding_init='counts'), "has embedding_init = 'normal', this run 'counts'")
    pretrain.train(copied)
    assert weights(run / '12') == uninterrupted


@pytest.mark.parametrize('owner, place', [
    (huggingface, 'write_folder'), (checkpoint, 'write_sealed'),
    (files, 'sync'), (checkpoint, 'saved_steps')])
def test_a_death_anywhere_in_a_save_leaves_the_checkpoint_before_it(settings, finished, monkeypatch,
                                                                    owner, place):
    cfg = settings(save_every=4, keep=1)
    run = run_of(cfg)
    is_late = place == 'saved_steps'    # the checkpoint is complete, and older ones are about to be removed
    original = getattr(owner, place)

    def dies(*arguments, **options):
        result = original(*arguments, **options)
        if (run / '8').exists() if is_late else '/.8.tmp' in str(arguments[0]):
            monkeypatch.setattr(files, 'remove', lambda path: None)  # who dies does not clean up
            raise KeyboardInterrupt
        return result
    monkeypatch.setattr(owner, place, dies)
    with pytest.raises(KeyboardInterrupt):
        pretrain.train(cfg)
    monkeypatch.undo()
    assert is_late or (run / '.8.tmp').exists()
    assert files.saved_steps(run) == ([4, 8] if is_late else [4])
    pretrain.train(cfg)
    assert_same(cfg, finished, 12)


def test_a_step_without_targets_is_loss_zero(trained):
    cfg = trained(phases=(('mlm', 3),), mask_ratio=1e-9)
    for line in log_lines(run_of(cfg)):
        assert line['loss'] == line['grad_norm'] == 0


WITHOUT_EXTRAS = """
import shutil
import sys
from nanoencoder.settings import EXTRAS, run_main
sys.modules |= dict.fromkeys(EXTRAS)    # to import one of them is an error
import pretrain
killed = sys.argv.pop()     # the folder of a checkpoint that shall not have been written
run_main(pretrain.main)
shutil.rmtree(killed)
run_main(pretrain.main)
sys.argv.append('--dry_run')
run_main(pretrain.main)
"""


def test_a_cluster_needs_no_extras(settings):
    """It trains, goes on after a kill, and says beforehand what a run will be."""
    cfg = settings(phases=(('clm', 1), ('mlm', 1)), warmup_steps=1, decay_steps=1, save_every=1)
    result = run_process('-c', WITHOUT_EXTRAS, *arguments(cfg), run_of(cfg) / '2')
    assert result.returncode == 0, result.stderr
    assert 'resumed' in result.stdout
    assert 'parameters' in result.stdout
    assert [line['step'] for line in log_lines(run_of(cfg))] == [1, 2]


def test_a_branch_equals_the_run_from_scratch(settings):
    parent = settings(name='clm', phases=(('clm', 30),), decay_steps=5, save_at=(15, 27), save_every=0)
    scratch = settings(name='scratch', phases=(('clm', 15), ('mlm', 15)), save_every=0, val_every=10)
    branch = replace(scratch, name='branch', branch_from=str(run_of(parent) / '15'), save_at=(20,))
    for cfg in (parent, scratch, branch):
        pretrain.train(cfg)
    assert weights(run_of(scratch) / '30') == weights(run_of(branch) / '30')
    assert log_lines(run_of(branch)) == log_lines(run_of(scratch))[15:]

    shutil.rmtree(run_of(branch) / '30')    # as if killed: it stays a branch, said or not
    words = 'pretrain.py', *arguments(branch, without='branch_from')
    refused_line('has branch_from = ', *words, '--branch_from=')
    assert 'resumed' in run_script(*words).stdout
    config, lines = read_log(run_of(branch), with_parent=True)
    assert config['branch_from'] == branch.branch_from
    assert [line['step'] for line in lines] == [*range(1, 31)]
    pretrain.train(replace(branch, name='other', mask_ratio=0.2))  # nothing was masked before the branch


@pytest.mark.parametrize('changes, words', [
    (dict(seed=1), 'has seed = 0, this run 1'),
    (dict(mask_ratio=0.2), 'has mask_ratio = 0.4, this run 0.2'),
    (dict(phases=(('clm', 12),)), r'step 6 was mlm at lr (\S+), and would be clm at lr \1 in'),
    (dict(phases=(('clm', 6), ('mlm', 3))), r'step \d was (\w+) at lr (\S+), and .* \1 at lr (?!\2 in)'),
    (dict(phases=(('clm', 6), ('mlm', 2))), 'is at step 8, and this run has 8')])
def test_a_branch_that_would_differ_before_it_is_refused(finished, tmp_path, changes, words):
    """It would begin at step 8 of six steps of CLM and six of MLM, of which three decay."""
    branch = replace(finished, name='branch', branch_from=str(run_of(finished) / '8'), out=str(tmp_path),
                     **changes)
    refused(words, pretrain.train, branch)
    assert not run_of(branch).exists()


def test_resuming_with_other_numbers_is_refused(copied):
    others = dict(lr=1e-3, seed=3, phases=(('mlm', 13),), context=128, hidden_size=64, dtype='bf16',
                  optimizer='muon', initializer_range=0.1)
    for name, value in others.items():
        changed = replace(copied, **{name: value})
        refused(f'{run_of(copied) / "12"} has {name} = ', pretrain.train, changed)


def test_weights_from_takes_only_weights(copied, capsys):
    parent = run_of(copied) / '12'
    child = replace(copied, name='child', phases=(('mlm', 4),), weights_from=str(parent), first_row=12 * 4,
                    context=128, rope_theta=5e4, lr=0, **NO_SCHEDULE)
    pretrain.train(child)
    assert 'context 64 -> 128, rope_theta 10000.0 -> 50000.0' in capsys.readouterr().out
    taken = files.sha256(run_of(child) / '4/model.safetensors')
    assert taken == files.sha256(parent / 'model.safetensors')     # at lr 0 they stay as they were
    other = replace(child, name='other')
    refused('has num_hidden_layers = 2, this run 3', pretrain.train, replace(other, num_hidden_layers=3))
    edit(parent / 'tokenizer.json', '(?i:', '(?:')
    (parent / 'state.json').unlink()
    refused('has another tokenizer than the corpus', pretrain.train, other)


@pytest.mark.parametrize('changes, part', [
    (dict(lr=1e39, val_rows=0), 'step 1: its update made weights that are not finite'),
    (dict(lr=1e39), 'step 1: val_clm_loss nan, on rows 0 to 3'),
    (dict(lr=1e18, phases=(('clm', 9),), log_every=50, val_every=0),    # it saves before it logs
     'step 2: loss nan, on rows 4 to 7')])
def test_what_is_not_finite_stops_and_is_not_saved(settings, changes, part):
    cfg = settings(**dict(phases=(('clm', 1),)) | changes, **NO_SCHEDULE)
    result = run_script('pretrain.py', *arguments(cfg))
    assert result.returncode == 1
    assert result.stderr.startswith(f'error: {part}')
    assert not files.saved_steps(run_of(cfg))


@pytest.mark.parametrize('name', ['model.safetensors', 'optimizer.safetensors'])
def test_what_is_changed_or_gone_is_refused_by_the_files_name(copied, name):
    run = run_of(copied)
    path = run / '12' / name
    flip(path)
    with files.locked(run):     # taken before anything is read: a live run may be changing it
        mistake(copied, 'another process is writing there')
    mistake(copied, f'12/{name}: missing or changed .*; remove ')
    if name == 'optimizer.safetensors':     # weights do not need it
        huggingface.open_checkpoint(run)
    else:
        refused(f'^{path}: missing', huggingface.open_checkpoint, run)
    path.unlink()
    refused(f'^{path}: missing', huggingface.read_state, run / '12')


def test_an_edited_state_is_refused_by_all_that_read_it(copied):
    run = run_of(copied)
    shutil.rmtree(run / '12')
    branch = replace(copied, name='branch', branch_from=str(run / '8'))
    go_back = f'remove {run}/8 to go on from the checkpoint before'
    path = run / '8/state.json'
    edit(path, '"step": 8', '"step": 18')
    mistake(copied, f'8/state.json: changed since it was written; {go_back}')
    mistake(branch, 'changed since .*; branch from another')
    for read in (read_log, huggingface.open_checkpoint):
        refused('8/state.json: changed since', read, run)
    path.unlink()
    mistake(copied, f'8: has no state.json, .*; {go_back}')
    mistake(branch, '8: has no state.json, so no training to continue; branch from')


# where something else is meant
WRONG = None, 0, -1, float('inf'), 'x', True, [], {}, [[[]]], ['x'], {'x': []}


@pytest.mark.parametrize('name', ['config.json', 'tokenizer_config.json', 'model.safetensors.index.json'])
def test_a_model_folder_of_a_wrong_shape_is_one_line(finished, tmp_path, name):
    folder = shutil.copytree(run_of(finished) / '12', tmp_path / 'model')
    (folder / 'state.json').unlink()
    path = folder / name
    if 'index' in name:
        (folder / 'model.safetensors').rename(folder / 'a.safetensors')
        files.write_json(path, {'weight_map': {'lm_head.weight': 'a.safetensors'}})
    whole = files.read_json(path)
    for key, wrong in itertools.product(whole, WRONG):
        files.write_json(path, whole | {key: wrong})
        with contextlib.suppress(ValueError):
            opened = huggingface.open_checkpoint(folder)
            huggingface.weight_files(folder)
            if name == 'tokenizer_config.json':
                opened.tokenizer()


def test_reports_do_not_believe_an_edited_config_json(copied):
    """What they read of it stands in state.json, too. Nor does a resume take up another run's starts."""
    run = run_of(copied)
    before = read_log(run)
    path = run / 'config.json'
    other = {'row': 'other', 'corpus_meta': {}, 'starts': []}
    files.write_json(path, files.read_json(path) | other)
    assert read_log(run) == before
    shutil.rmtree(run / '12')
    pretrain.train(copied)
    config, _ = read_log(run)
    assert files.read_json(path) == config
    assert len(config['starts']) == 2


@pytest.mark.parametrize('number', [1, -1])
def test_a_changed_shard_is_one_line_before_the_first_step(settings, corpus_to_damage, number):
    """Each is compared by one of two processes, which says so; the other stops, too."""
    cfg = settings(corpus=str(corpus_to_damage))
    meta = data.Corpus(cfg.corpus).meta
    shards = meta['shards'] + meta['val_shards']
    path = corpus_to_damage / shards[number]['name']
    flip(path)
    results = [process.ended() for process in begin(2, 'pretrain.py', *arguments(cfg))]
    compared = results.pop(shards.index(shards[number]) % 2)
    one_line_error(compared, f'copied/{path.name}: changed since it was written; prepare the corpus again')
    one_line_error(results[0], 'lost another process, which was killed or says why')
    assert not logged(cfg)


@pytest.mark.parametrize('damaged', ['corpus', 'checkpoint'])
def test_each_node_compares_its_own_copy(copied, corpus_to_damage, tmp_path, damaged):
    """Of a corpus every shard, of a checkpoint every file. The second node's copies lie elsewhere."""
    out = tmp_path / 'second'
    shutil.copytree(run_of(copied), out / copied.name)
    corpus = data.Corpus(copied.corpus)
    names = [shard['name'] for shard in corpus.meta['shards']]
    if damaged == 'corpus':
        path = corpus_to_damage / names[0]
    else:
        path = out / copied.name / '12/model.safetensors'
    flip(path)
    second = [f'--corpus={corpus_to_damage}', f'--out={out}']
    words = [word for word in arguments(copied, 'corpus') if not word.startswith('--out=')]
    first = [f'--corpus={copied.corpus}', f'--out={copied.out}']
    results = [process.ended() for process in begin(2, 'pretrain.py', *words, nodes=[first, second])]
    one_line_error(results[1], f'{path}: (missing or )?changed since it was written')
    one_line_error(results[0], 'lost another process')
    starts = files.read_json(run_of(copied) / 'config.json')['starts']
    assert starts[0]['processes'] == 1      # it did not begin


def test_an_edited_meta_json_is_one_line(settings, corpus_to_damage):
    """At a start, and of data.py --verify."""
    cfg = settings(corpus=str(corpus_to_damage))
    path = corpus_to_damage / 'meta.json'
    meta = files.read_json(path)
    meta['shards'].reverse()
    files.write_json(path, meta)
    words = 'copied/meta.json: changed since it was written; prepare'
    mistake(cfg, words)
    refused_line(words, 'data.py', f'--out={cfg.corpus}', '--verify')
    assert not run_of(cfg).exists()


def test_a_full_disk_is_one_line_and_stops_all_processes(settings):
    """The shell's limit on the size of a file stands in for it."""
    cfg = settings(phases=(('clm', 400),))
    limited = ['bash', '-c', 'ulimit -f 1500 && exec "$@"', 'bash']     # kibibytes
    result = torchrun(2, '--no-python', *limited, sys.executable, 'pretrain.py', *arguments(cfg))
    assert result.returncode and 'pretrain.py", line' not in result.stderr, result.stderr
    assert re.search('error: .*File too large.*make room', result.stderr)
    assert {path.name for path in run_of(cfg).iterdir()} == {'config.json', 'log.jsonl'}
    assert logged(cfg) < 100    # it fails in the save of step 4


# parts of decoders
UNUSUAL = dict(qk_norm=True, attention_bias=True, head_dim=12, rope_scaling=(8.0, 1.0, 4.0, 32))


def runs_of_layouts(settings, world_size):
    """Each wrapper and size of a micro-batch, objectives that alternate, few targets, recomputing."""
    runs = []

    def add(name, **changes):
        name = f'{name}-{world_size}-{len(runs)}'
        common = dict(rows_per_step=8, grad_clip=1e9, val_every=3, save_every=0)
        runs.append(settings(**common | changes, name=name))
    both = dict(phases=(('clm', 4), ('mlm', 4)), save_at=(4,))
    for parallel in ('ddp', 'fsdp') if world_size > 1 else ('ddp',):
        for micro_rows in (1, 2, 4):
            layout = dict(parallel=parallel, micro_rows=micro_rows)
            add('both', recompute=parallel == 'fsdp', **both, **layout)
            for objective in ('mlm', 'mdlm'):
                add(objective, phases=((objective, 1),), warmup_steps=1, decay_steps=0, **layout)
        add('turns', phases=TURNS, repeat=2, micro_rows=1, parallel=parallel)
        add('muon', optimizer='muon', parallel=parallel, **both)
    add('few', phases=(('mlm', 4),), mask_ratio=0.01, parallel='fsdp', **UNUSUAL)    # five a step, or so
    return runs


def begin(world_size, script, *words, nodes=()):
    """Processes of a script, with what torchrun sets for each on one node. Or of a node each, with its
    words."""
    places = [(rank, world_size, ()) for rank in range(world_size)]
    if nodes:
        places = [(0, 1, own_words) for own_words in nodes]
    with socket.create_server(('127.0.0.1', 0)) as free:
        port = free.getsockname()[1]
    return [Script(script, *words, *own_words, MASTER_ADDR='127.0.0.1', MASTER_PORT=f'{port}', RANK=f'{rank}',
                   WORLD_SIZE=f'{world_size}', LOCAL_RANK=f'{number}', LOCAL_WORLD_SIZE=f'{size}')
            for rank, (number, size, own_words) in enumerate(places)]


def launch(world_size, runs):
    words = json.dumps([flat(cfg) for cfg in runs])
    for process in begin(world_size, 'layouts.py', words):
        process.ended_well(200)


def assert_same_numbers(cfg, other):
    """Two runs have read the same rows, and their losses are the same but for rounding."""
    tolerance = 1e-5 if 'muon' in cfg.name else 1e-4
    for line, reference in zip(log_lines(run_of(cfg)), log_lines(run_of(other)), strict=True):
        assert line['rows'] == reference['rows']
        assert line.keys() == reference.keys()
        for name in line:
            if 'loss' in name:
                assert line[name] == approx(reference[name], abs=tolerance)
            if 'accuracy' in name:
                assert line[name] == approx(reference[name], abs=0.01)   # of 100 tokens or more


@pytest.mark.parametrize('world_size', [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes_and_micro_batches_do_not_change_the_numbers(settings, world_size):
    """Also where one process has a few targets and the other many, and with activations recomputed."""
    alone = runs_of_layouts(settings, 1)
    together = runs_of_layouts(settings, world_size)
    for cfg in alone:
        layouts.train(cfg)
    launch(world_size, together)
    references = {cfg.name.split('-')[0]: cfg for cfg in reversed(alone)}
    for cfg in alone + together:
        reference = references[cfg.name.split('-')[0]]
        assert_same_numbers(cfg, reference)
        ours, theirs = (load_file(run_of(run) / 'first_gradient.safetensors') for run in (cfg, reference))
        assert_near(ours, theirs, 1e-6)


ENDLESS = dict(phases=(('clm', 5_000),), decay_steps=0, save_every=0, val_every=0)


def assert_saved(cfg):
    """Before its end, after the step that it has logged last."""
    saved, = files.saved_steps(run_of(cfg))
    assert saved == logged(cfg) < 5_000


@pytest.mark.parametrize('number, world_size', [
    (signal.SIGTERM, 1), (signal.SIGINT, 1), pytest.param(signal.SIGTERM, 2, marks=pytest.mark.slow)])
def test_signals_finish_the_step_and_save(settings, number, world_size):
    """Of all processes, even if only one hears it."""
    cfg = settings(**ENDLESS)
    first, *others = begin(world_size, 'pretrain.py', *arguments(cfg))
    while first.is_alive() and logged(cfg) < 6:
        time.sleep(0.01)
    for _ in range(3):
        os.kill(first.pid, number)
    for process in (first, *others):
        assert process.ended().returncode == 3
    assert 'stopped at step' in first.ended().stdout
    assert_saved(cfg)


def test_a_run_that_a_signal_finds_at_its_last_step_is_done(settings, monkeypatch):
    """Before that it is not, and says so to the commands that would take it for a whole one."""
    cfg = settings(phases=(('clm', 2),), **NO_SCHEDULE)
    monkeypatch.setattr(pretrain, 'stop_signals', lambda: contextlib.nullcontext([True]))   # after each step
    for code, words in (3, 'stopped at step 1'), (0, 'done at step 2'), (0, 'done at step 2'):
        result = run_script('pretrain.py', *arguments(cfg))
        assert (result.returncode, result.stderr) == (code, '')
        assert f'{run_of(cfg)}: {words}\n' in result.stdout


def test_a_terminal_that_is_closed_saves_the_run(settings):
    """Nothing can be printed to it any more."""
    cfg = settings(**ENDLESS)
    other_end, terminal = os.openpty()

    def take_terminal():
        signal.signal(signal.SIGHUP, signal.SIG_DFL)    # which tests under nohup ignore
        fcntl.ioctl(0, termios.TIOCSCTTY)
    process = subprocess.Popen([sys.executable, 'pretrain.py', *arguments(cfg)], cwd=ROOT,
                               stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
                               preexec_fn=take_terminal)
    os.close(terminal)
    said = b''
    while said.count(b'tokens/s') < 6:
        said += os.read(other_end, 1_000)
    os.close(other_end)
    assert process.wait(60) == 3
    assert_saved(cfg)


def test_what_nohup_started_goes_on():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_signals() as received:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not received
    finally:
        signal.signal(signal.SIGHUP, before)


def test_two_processes_with_shards_go_on_bit_for_bit(settings):
    """After what a kill in a save leaves; one process, too, goes on from their checkpoint."""
    cfg = settings(name='whole', parallel='fsdp')
    launch(2, [cfg])
    killed = replace(cfg, name='killed')
    run = shutil.copytree(run_of(cfg), run_of(killed))
    shutil.rmtree(run / '12')
    (run / '8').rename(run / '.8.tmp')
    with open(run / 'log.jsonl', 'a') as file:
        file.write('{"step": 13, "ph')
    launch(2, [killed])
    assert_same(killed, cfg, 12)
    shutil.rmtree(run / '12')
    pretrain.train(replace(killed, parallel='ddp'))
    assert_same_numbers(killed, cfg)


def test_processes_that_would_compute_different_runs_are_refused(settings, monkeypatch):
    """As where a node has an older config: they would wait for each other. Names of folders may differ."""
    cfg = settings()
    world = World(1, 2, torch.device('cpu'), 'fp32')

    def find_origin(**first):   # rank 1's, where rank 0 has these settings
        def of_first(world, function):
            told = function()
            return told | first if isinstance(told, dict) else told
        monkeypatch.setattr(World, 'of_first', of_first)
        checkpoint.find_origin(cfg, data.Corpus(cfg.corpus), world, checkpoint.take_weights)
    find_origin(out='elsewhere')
    refused('differ in save_every, which is 4 in this one', find_origin, save_every=3)


@pytest.mark.parametrize('setting, message', [
    ('corpus=absent', 'absent: no corpus there.*python data.py configs/corpora/\\.\\.\\.'),
    ('corpus=absent/speedrun', 'no corpus there; make it with python data.py configs/corpora/speedrun.py'),
    ('context=10_000_000', 'less than one row'),
    ('vocab_size=128_256', 'has vocab_size 4096.*another tokenizer'),
    ('name=a/b', 'name must be'),
    ('phases=("mlmm",5)', '--phases: phases must be .*mlmm'),
    ('decay_steps=13', '--decay_steps: decay_steps must be from 0 to 12'),
    ('save_at=13', 'save_at must be from 1 to 12, not 13'),
    ('context=20_000', 'holds out .* tokens, less than a row of 20,000: prepare it with'),
    ('val_mask_ratio=1e-6', 'val_mask_ratio 1e-06 masks no token of 5 held-out rows'),
    ('world_size=3 --dry_run', 'rows_per_step 4 must be a multiple of the 3 processes')])
def test_mistakes_get_one_line_and_leave_nothing(settings, setting, message):
    cfg = settings()
    words = arguments(cfg, without=setting.split('=')[0])
    refused_line(message, 'pretrain.py', *words, *f'--{setting}'.split())
    assert not run_of(cfg).exists()


@pytest.mark.slow
def test_compiled_training_equals_eager(settings):
    """In one process and two, and where activations are computed again."""
    eager = settings(name='eager', **UNUSUAL)
    compiled = replace(eager, name='compiled', compile=True)
    again = replace(compiled, name='again', recompute=True)
    shared = replace(compiled, name='shared')
    for cfg in (eager, compiled, again):
        pretrain.train(cfg)
    launch(2, [shared])
    for cfg in (compiled, again, shared):
        assert_same_numbers(cfg, eager)


@pytest.mark.parametrize('allowed, version, installed, capability, chosen', [
    (True, '2.13.0', True, (9, 0), 'FA3'),
    (False, '2.13.0', True, (9, 0), 'FA2'),
    (True, '2.13.0', False, (9, 0), 'FA2'),
    (True, '2.13.0', True, (8, 0), 'FA2'),
    (True, '2.11.0', True, (9, 0), 'FA2')])
def test_flash_attention_3_is_for_hopper_where_it_is_installed(
        monkeypatch, allowed, version, installed, capability, chosen):
    """A GPU is pretended, and so is the package: what torch is told."""
    told = ['FA2']
    monkeypatch.setattr(torch, '__version__', TorchVersion(version))
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: installed or None)
    monkeypatch.setattr(torch.cuda, 'get_device_capability', lambda device: capability)
    monkeypatch.setattr(torch.nn.attention, 'activate_flash_attention_impl', told.append)
    assert choose_flash_attention(torch.device('cuda'), allowed) == chosen
    assert told[-1] == chosen


@pytest.mark.gpu
@on_cuda
def test_training_on_cuda_is_near_the_cpu_and_resumes(settings):
    def losses_of(**changes):
        cfg = settings(hidden_size=128, phases=(('clm', 20), ('mlm', 20)), save_every=15, **changes)
        pretrain.train(cfg)
        return [line['loss'] for line in log_lines(run_of(cfg))]
    cuda = dict(name='cuda', device='cuda')
    losses = losses_of(**cuda)
    assert losses == approx(losses_of(name='cpu'), rel=0.02)
    shutil.rmtree(run_of(settings(**cuda)) / '40')
    assert losses_of(**cuda) == approx(losses, rel=5e-3)


def test_held_out_losses_of_runs_that_mask_different_shares_compare(trained):
    def last_line(name, **changes):
        cfg = trained(name=name, phases=(('mlm', 1),), lr=0.0, **NO_SCHEDULE, **changes)
        return log_lines(run_of(cfg))[-1]
    plain = last_line('plain')
    masked = last_line('masked', mask_ratio=0.2, mask_replace=(0.8, 0.1, 0.1))
    validated = last_line('validated', val_mask_ratio=0.2)
    assert plain['val_mlm_loss'] == masked['val_mlm_loss'] != validated['val_mlm_loss']
    assert plain['loss'] == validated['loss'] != masked['loss']


def test_held_out_accuracies_are_those_of_all_logits_in_float64(trained):
    """Masked diffusion's is of the masked tokens; its loss is a mean over all that are not special."""
    cfg = trained(phases=(('clm', 8), ('mlm', 3), ('mdlm', 1)), val_mask_ratio=0.3)
    model = huggingface.open_checkpoint(run_of(cfg) / '12').model().double()
    last = log_lines(run_of(cfg))[-1]
    accuracies = []
    for objective in ('clm', 'mlm', 'mdlm'):
        masking = replace(cfg, mask_ratio=0.3, micro_rows=0, rows_per_step=5)
        batch, = data.validation_batches(data.Corpus(cfg.corpus), objective, masking)
        tokens, targets, at = (torch.from_numpy(x) for x in (batch.tokens, batch.targets, batch.at))
        states = model.model(tokens, batch.lengths, data.OBJECTIVES[objective].causal)
        likeliest = model.logits(states).argmax(1)
        accuracies.append((likeliest == targets)[at].double().mean().item())
        assert last[f'val_{objective}_accuracy'] == approx(accuracies[-1])
    assert 0 < min(accuracies) and len({*accuracies}) == 3


def test_a_run_whose_log_has_no_accuracies_goes_on(copied):
    """As older versions wrote it. What is computed is the same."""
    run = run_of(copied)
    uninterrupted = weights(run / '12')
    shutil.rmtree(run / '12')
    path = run / 'log.jsonl'
    lines = log_lines(run, timed=True)[:8]
    for line in lines:
        for name in [name for name in line if 'accuracy' in name]:
            del line[name]
    path.write_text(files.json_lines(lines))
    state = files.saved_state(run / '8')
    files.write_sealed(run / '8/state.json', state | {'log': files.sha256(path)})
    pretrain.train(copied)
    assert weights(run / '12') == uninterrupted
    assert [('val_mlm_accuracy' in line) for line in log_lines(run)[5::6]] == [False, True]


def test_a_resumed_run_measures_its_held_out_loss_as_before(copied, monkeypatch):
    """Of the same rows and masks. It may measure none for a while, and then as before."""
    run = run_of(copied)
    shutil.rmtree(run / '12')
    silent = replace(copied, val_rows=0, val_mask_ratio=0.2)
    monkeypatch.setattr(pretrain, 'stop_signals', lambda: contextlib.nullcontext([True]))   # after a step
    with pytest.raises(SystemExit):
        pretrain.train(silent)
    monkeypatch.undo()
    for name, value in dict(val_mask_ratio=0.2, val_rows=4).items():
        was = getattr(copied, name)
        changed = replace(copied, **{name: value})
        refused(f'{run} has {name} = {was}, this run {value}; go on with it', pretrain.train, changed)
    pretrain.train(copied)
    measured = [line['step'] for line in log_lines(run) if 'val_mlm_loss' in line]
    assert measured == [6, 12]

"""The bench does the same work as its peers, and is ahead of them (`make slow`: timing takes time)."""
import csv
import os
import time

import pytest
import torch

import bench
import gpu
from conftest import SMALL, log_lines, read_rows, run_process
from nanoencoder.files import read_json
from nanoencoder.pretraining import cost

LEAST = {  # ratios below what is measured, for busy machines
    'step_padded': 1.5, 'step_packed': 1.0, 'step_fixed': 1.0, 'loss_alone': 1.8, 'loss_selected': 0.9,
    'clm_gpt': 0.7, 'finetuning': 1.8}


@pytest.mark.slow
def test_each_case_does_the_same_work_faster(tmp_path):
    out = tmp_path / 'bench.jsonl'
    run_process('bench/bench.py', *LEAST, '--repeats=3', f'--out={out}', timeout=900, check=True)
    for line, least in zip(read_rows(out), LEAST.values(), strict=True):
        assert line['ratio'] >= least, line
        if line['case'] == 'loss_alone':
            assert line['peak_mib'] * 5 < line['peer_peak_mib']


@pytest.mark.parametrize('size, rows', [('124m', 0), ('210m', 72), ('610m', 24), ('1b', 12)])
def test_batches_of_a_size_are_whole_however_many_rows(size, rows):
    cfg = bench.replace(bench.shape(size, rows), phases=(('clm', 10_000),))
    batches = bench.batches_of(cfg, 'clm', 12)
    assert {len(batch.tokens) for batch in batches} == {cfg.rows_per_step * cfg.context}


def test_utilisation_is_what_was_counted_over_what_was_timed(monkeypatch):
    """The lines of `mfu`, of a small model on a CPU that passes for a GPU: the arithmetic, not the speed."""
    cfg = bench.settings('tiny', hidden_size=32, intermediate_size=48, num_hidden_layers=1, vocab_size=512,
                         context=64, rows_per_step=6)

    def take_12_ms(run):
        run()
        return 0.012        # of 12 steps

    monkeypatch.setattr(bench, 'settings', lambda size, **changes: cfg)
    monkeypatch.setattr(bench, 'seconds', take_12_ms)
    monkeypatch.setattr(bench, 'machine', lambda: {'machine': 'a pretended GPU'})
    monkeypatch.setitem(cost.PEAKS, 'a pretended GPU', 1e12)
    monkeypatch.setattr(torch.cuda, 'reset_peak_memory_stats', lambda: None)
    *ours, _ = bench.mfu('210m', [6], ['mlm', 'clm'], 2)
    for line, objective in zip(ours, ('mlm', 'clm'), strict=True):
        assert line['issued_ms'] > 0
        assert line['tokens_per_second'] == 6 * 64 * 1000
        expected = cost.flops_per_token(cfg, objective) * 384 / 0.001 / 1e12
        assert line['mfu'] == pytest.approx(expected, rel=0.05)


def test_steps_that_hang_or_were_stopped_are_done_again_and_others_are_not(tmp_path, monkeypatch):
    """SIGTERM raises KeyboardInterrupt, as Ctrl-C does. The report has what a step had said."""
    monkeypatch.setattr(gpu, 'PATIENCE', 0.5)
    done = []

    def work():
        done.append('work')
        yield 'it works'

    def hang():
        done.append('hang')
        yield from gpu.run('-c', 'import time; time.sleep(1_000)')

    def stopped():
        yield 'half of it'
        raise KeyboardInterrupt

    steps = {'work': gpu.Step(work, 99), 'hang': gpu.Step(hang, 0.1), 'stopped': gpu.Step(stopped, 1)}
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            gpu.do_all(steps, tmp_path / 'steps.json', 'settings')
    assert done == ['work', 'hang', 'hang']
    report = (tmp_path / 'report.md').read_text()
    assert '## work: done, 0 s\n\n```\nit works\n```' in report
    assert '## stopped: stopped, 0 s\n\n```\nhalf of it\n```' in report


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still between steps. Its hands are [seconds]."""
    hands = [0.0]
    monkeypatch.setattr(gpu.time, 'monotonic', lambda: hands[0])
    monkeypatch.setattr(gpu, 'SAVING', 0)
    return hands


def test_a_step_is_begun_if_its_minutes_are_left(tmp_path, clock, capsys):
    """10 minutes: `a` takes 5 of them, `long` does not fit in the rest, `short` does."""
    done = []

    def step(name, estimate, minutes):
        def work():
            clock[0] += 60 * minutes
            done.append(name)
            yield name
        return gpu.Step(work, estimate)

    steps = {'a': step('a', 4, 5), 'long': step('long', 6, 7), 'short': step('short', 4, 4)}
    path = tmp_path / 'steps.json'
    assert gpu.do_all(steps, path, 'settings', minutes=10) == []
    assert done == ['a', 'short']
    assert '[2 of 3] long (about 6.0 minutes) waits: 5.0 minutes are left' in capsys.readouterr().out
    assert gpu.do_all(steps, path, 'settings', minutes=10) == []
    assert done == ['a', 'short', 'long']
    report = (tmp_path / 'report.md').read_text()
    assert '## long: done, 420 s' in report


def test_a_step_that_takes_longer_than_the_minutes_is_stopped_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, 'SAVING', 0)

    def work():
        yield 'half of it'
        time.sleep(100)

    path = tmp_path / 'steps.json'
    for _ in range(2):
        assert gpu.do_all({'work': gpu.Step(work, 0.001)}, path, 'settings', minutes=0.004) == []
        assert read_json(path)['steps']['work']['end'] == 'unfinished'
    assert '## work: unfinished, 0 s\n\n```\nhalf of it\n```' in (tmp_path / 'report.md').read_text()


@pytest.mark.parametrize('runs_already', [False, True])
def test_mps_is_ended_by_whoever_started_it(tmp_path, monkeypatch, runs_already):
    control = tmp_path / 'nvidia-cuda-mps-control'
    control.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/said\n'
                       f'[ "$1" = -d ] && exit {int(runs_already)}\ncat >> {tmp_path}/said\n')
    control.chmod(0o755)
    monkeypatch.setenv('PATH', str(tmp_path), prepend=os.pathsep)
    with gpu.shared_card():
        said = (tmp_path / 'said').read_text()
        assert said == '-d\n'
    is_ended = (tmp_path / 'said').read_text().endswith('quit\n')
    assert is_ended is not runs_already


def write_study(folder, seeds, config, steps):
    folder.mkdir()
    runs = {name: {'phases': ((name, steps),)} for name in ('clm', 'mlm')}
    text = f'every_run = {{"config": "{config}"}}\nseeds = {seeds}\nruns = {runs}\n'
    (folder / 'config.py').write_text(text)


def test_a_study_waits_with_the_seeds_that_it_lacks(tmp_path):
    study = tmp_path / 'study'
    write_study(study, (0, 1), 'configs/tiny.py', 9)
    cfg = gpu.Settings(studies=((str(study), 0.5),))
    losses = study / 'losses.csv'
    losses.write_text('folder,step\nmlm-s0,9\n')
    steps = gpu.waiting_studies(cfg)
    expected = {f'{study}, seed 0, 1 left': 0.5, f'{study}, seed 1, 2 left': 1.0}
    assert {title: step.minutes for title, step in steps.items()} == expected
    losses.write_text('folder,step\nmlm-s0,9\nclm-s0,9\nmlm-s1,9\nclm-s1,9\n')
    assert gpu.waiting_studies(cfg) == {}


@pytest.mark.slow
def test_a_study_is_done_a_seed_at_a_time_and_goes_on_where_minutes_ended_it(tmp_path, corpus):
    """A real one, on the CPU. By estimate one seed fits; then the estimate is too low, and two starts end in
    the middle."""
    values = {name: value for name, value in SMALL.items() if name not in ('phases', 'keep')}
    values |= {'corpus': str(corpus), 'save_every': 0}
    config = tmp_path / 'small.py'
    config.write_text(''.join(f'{name} = {value!r}\n' for name, value in values.items()))
    saving = gpu.SAVING / 60

    def start(name, minutes, a_process):
        cfg = gpu.Settings(studies=((str(tmp_path / name), a_process),), processes=2)
        path = tmp_path / 'steps.json'
        path.unlink(missing_ok=True)
        steps = gpu.waiting_studies(cfg)
        assert gpu.do_all(steps, path, 'settings', minutes + saving) == []
        return {title.rpartition('/')[2]: step['end'] for title, step in read_json(path)['steps'].items()}

    write_study(tmp_path / 'short', (0, 1), config, 12)
    assert start('short', 1.21, 0.6) == {'short, seed 0, 2 left': 'done'}
    assert start('short', 9, 0.6) == {'short, seed 1, 2 left': 'done'}
    assert packed_runs(tmp_path / 'short') == {'clm-s0', 'mlm-s0', 'clm-s1', 'mlm-s1'}

    write_study(tmp_path / 'long', (0,), config, 100_000)
    reached = []
    for _ in range(2):
        assert start('long', 0.3, 0.01) == {'long, seed 0, 2 left': 'unfinished'}
        reached.append(log_lines(tmp_path / 'long/out/clm-s0')[-1]['step'])
    assert 0 < reached[0] < reached[1]
    assert packed_runs(tmp_path / 'long') == {'clm-s0', 'mlm-s0'}      # as far as they have come


def packed_runs(study):
    with open(study / 'losses.csv') as file:
        return {row['folder'] for row in csv.DictReader(file)}

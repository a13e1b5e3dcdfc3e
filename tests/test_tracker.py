"""What a run sends to a tracker. The packages themselves are tried where they are installed."""
import shutil
import sqlite3
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import pretrain
from conftest import log_lines, refused, replace
from nanoencoder.files import read_json


@pytest.fixture
def trackio(monkeypatch):
    """A module that notes what it is called with, in place of the package."""
    calls = []
    logged = []

    def init(**words):
        calls.append(words)
        return SimpleNamespace(log=lambda numbers, step: logged.append((step, numbers)),
                               finish=lambda: calls.append('finished'))
    monkeypatch.setitem(sys.modules, 'trackio', SimpleNamespace(init=init))
    return calls, logged


def again(cfg, **changes):
    """Train a run from the checkpoint before its last one."""
    shutil.rmtree(Path(cfg.out, cfg.name, str(cfg.total_steps)))
    pretrain.train(replace(cfg, **changes))


def test_each_step_is_sent_once_in_the_words_of_the_log(trained, trackio):
    calls, logged = trackio
    cfg = trained(tracker='trackio')
    again(cfg)
    run = Path(cfg.out, cfg.name)
    lines = log_lines(run, timed=True)
    assert [step for step, _ in logged] == [line['step'] for line in lines] == [*range(1, 13)]
    assert logged[7][1] == {name: value for name, value in lines[7].items()
                            if name not in ('step', 'phase', 'rows')}
    first, end, second = calls      # the second start has nothing to send and nothing to close
    assert end == 'finished'
    assert (first['name'], first['resume'], second['resume']) == ('run', 'never', 'allow')
    assert first['config']['corpus_meta'] == read_json(run / 'config.json')['corpus_meta']


def test_a_tracker_that_is_asked_for_later_gets_the_steps_from_before(trained, trackio):
    _, logged = trackio
    cfg = trained()
    again(cfg, tracker='trackio')
    assert [step for step, _ in logged] == [*range(1, 13)]


def test_a_package_that_is_missing_is_named(settings, monkeypatch):
    monkeypatch.setitem(sys.modules, 'wandb', None)
    refused('^tracker wandb: wandb is not installed: pip install wandb$', pretrain.train,
            settings(tracker='wandb'))


def test_tensorboard_reads_what_it_was_sent(trained):
    pytest.importorskip('tensorboard')
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    cfg = trained(tracker='tensorboard')
    again(cfg)
    run = Path(cfg.out, cfg.name)
    events = EventAccumulator(str(run / 'tensorboard')).Reload()
    losses = [(event.step, pytest.approx(event.value)) for event in events.Scalars('loss')]
    assert losses == [(line['step'], line['loss']) for line in log_lines(run)]


def test_trackio_holds_what_it_was_sent(trained, monkeypatch, tmp_path):
    monkeypatch.setenv('TRACKIO_DIR', str(tmp_path))
    pytest.importorskip('trackio')
    cfg = trained(tracker='trackio')
    again(cfg)
    database, = tmp_path.glob('*.db')
    with sqlite3.connect(database) as opened:
        steps = opened.execute('select run_name, step from metrics order by step').fetchall()
    assert steps == [('run', step) for step in range(1, 13)]


def test_wandb_writes_what_it_was_sent(trained, monkeypatch, tmp_path):
    monkeypatch.setenv('WANDB_MODE', 'offline')
    pytest.importorskip('wandb')
    cfg = trained(tracker='wandb')
    again(cfg)
    assert [*Path(cfg.out, cfg.name).glob('wandb/offline-run-*/*.wandb')]

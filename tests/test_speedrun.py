"""The speedrun's referee: what it accepts, and the line with which it refuses each forged submission."""
import contextlib
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from safetensors.torch import load_file, save_file

import pretrain
from conftest import ROOT, Script, edit, log_lines, one_line_error, run_script
from data import Corpus
from nanoencoder import files, prepare
from nanoencoder.pretraining import log
from nanoencoder.settings import build
from studies import speedrun

HEAD = subprocess.run(['git', 'rev-parse', 'HEAD'], cwd=ROOT, capture_output=True, text=True).stdout.strip()
PAGE = """| steps | mlm | 3,600 | 4.5 4.6 | .001 | |
| steps | worse | 10 | 9.5 4.6 | .1 | |
| transfer | mlm | 3,600 | 40.0 40.1 40.3 | 0 | |
| transfer | too wide to be better | 3,600 | 38 44 | .2 | |"""
pytestmark = pytest.mark.skipif(not HEAD, reason='git has no commit here')


@pytest.fixture(scope='module')
def honest(corpus, tmp_path_factory):
    """(folder of four runs, words for the referee)"""
    folder = tmp_path_factory.mktemp('runs')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, 'commit', lambda: HEAD)
        for seed in range(4):
            pretrain.train(build(pretrain.Settings, dict(
                name=f'mine-s{seed}', seed=seed, corpus=str(corpus), out=str(folder), phases=(('mlm', 12),),
                vocab_size=4_096, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
                num_attention_heads=2, num_key_value_heads=1, context=512, rows_per_step=2, micro_rows=0,
                lr=1e-3, warmup_steps=2, decay_steps=4, val_rows=128, device='cpu')))
    (folder / 'page.md').write_text(PAGE)
    texts = Corpus(corpus).meta['fingerprint']
    return folder, [f'--corpus={corpus}', f'--texts={texts}', '--target=9', f'--page={folder}/page.md']


def judged(folder, words, *more):
    return run_script('studies.speedrun', *sorted(folder.glob('mine-s*')), *words, *more)


def test_it_accepts_what_keeps_the_rules(honest):
    """And computes a run again: its first steps, or all of them and the weights."""
    folder, _ = honest
    result = judged(*honest, '--replay=2:8')
    assert result.returncode == 0, result.stderr
    assert judged(*honest, '--replay=0:12').returncode == 0
    line, verdict = result.stdout.splitlines()[-2:]
    _, track, name, steps, losses, p, commit, _ = map(str.strip, line.split('|'))
    assert (track, name, steps, commit) == ('steps', 'mine', '12', HEAD[:8])
    assert verdict == 'a record'
    logged = [log_lines(folder / f'mine-s{seed}')[-1]['val_mlm_loss'] for seed in range(4)]
    assert [*map(float, losses.split())] == pytest.approx(logged, abs=6e-4)
    t = (np.mean(logged) - 9) / np.std(logged, ddof=1) * 2     # of four seeds
    assert float(p) == pytest.approx(scipy.stats.t.cdf(t, 3), rel=0.05)


@pytest.mark.parametrize('more, reason', [
    ('--replay=7:8', 'SEED:STEPS of runs'), ('--replay=2:1', '2:1: replay all 12 steps or 2 to where rates'),
    ('--replay=2:9', '2:9: replay all 12 steps or 2 to where rates fall')])
def test_what_cannot_be_replayed_is_one_line(honest, more, reason):
    one_line_error(judged(*honest, more), reason)


def test_what_is_no_record(tmp_path):
    """Rows of the page count with p < 0.01. The fewest steps are to be beaten, or the best mean."""
    page = tmp_path / 'page.md'
    page.write_text(PAGE)
    rules = speedrun.Rules(page=str(page))
    losses = [4.5, 4.6, 4.5, 4.6]
    p = scipy.stats.ttest_1samp(losses, 4.7, alternative='less').pvalue
    assert speedrun.judge(3_599, losses, rules) == (float(f'{p:.2g}'), '')      # as the page will have it
    assert speedrun.judge(3_600, losses, rules)[1] == 'more than 3,599 steps'
    assert speedrun.judge(100, [4.6, 4.8, 4.7, 4.6], rules)[1] == 'p must be below 0.01'
    rules = speedrun.Rules('transfer', page=str(page))
    scores = [41.0, 41.1, 41.2, 41.1]
    p = scipy.stats.ttest_ind(scores, [40.0, 40.1, 40.3], equal_var=False, alternative='greater').pvalue
    assert speedrun.judge(3_600, scores, rules) == (float(f'{p:.2g}'), '')


@pytest.mark.skipif(sys.platform != 'linux', reason='reads /proc')
def test_who_ends_the_referee_ends_its_replay(honest):
    folder, words = honest
    referee = Script('studies.speedrun', *sorted(folder.glob('mine-s*')), *words, '--replay=0:12')
    replays = []
    while not replays and referee.is_alive():
        with contextlib.suppress(OSError):      # a child that has ended meanwhile, as git
            children = Path(f'/proc/{referee.pid}/task/{referee.pid}/children').read_text().split()
            replays = [child for child in children
                       if b'pretrain.py' in Path(f'/proc/{child}/cmdline').read_bytes()]
        time.sleep(0.01)
    referee.terminate()
    assert referee.ended().returncode == 130
    assert replays
    assert not Path(f'/proc/{replays[0]}').exists()


def settle(name, value):
    """Forge a setting in all places that have it."""
    def change(state, config, lines, checkpoint):
        for there in (state['settings'], state['fixed'], config):
            if name in there:
                there[name] = value
    return change


def begun(**how):
    return lambda state, config, lines, checkpoint: state['starts'][0].update(how)


def other_tokenizer(state, config, lines, checkpoint):
    edit(checkpoint / 'tokenizer.json', '(?i:', '(?:')


def other_weights(state, config, lines, checkpoint):
    (checkpoint / 'model.safetensors').write_bytes(
        (checkpoint.parent.parent / 'mine-s1/12/model.safetensors').read_bytes())


def scaled(state, config, lines, checkpoint):
    weights = load_file(checkpoint / 'model.safetensors')
    save_file({name: 1.1 * weight if 'k_proj' in name else weight for name, weight in weights.items()},
              checkpoint / 'model.safetensors', {'format': 'pt'})


def lost_line(state, config, lines, checkpoint):
    lines.pop(5)


def wrong_loss(state, config, lines, checkpoint):
    lines[3]['loss'] += 0.001


def no_loss(state, config, lines, checkpoint):
    lines[4]['loss'] = float('nan')


FORGED = [(lost_line, 'mine-s0: 12 steps need as many lines of log'),
          (other_weights, 'mine-s0: its log ends at'),
          (scaled, 'mine-s0: its weights, computed again, are others'),
          (wrong_loss, 'mine-s0: its losses, computed again, differ by up to 0.001'),
          (no_loss, 'mine-s0: line 5 of its log has no loss'),
          (other_tokenizer, 'mine-s0: has another tokenizer'),
          (begun(git=f'{HEAD}-dirty'), 'one commit'),
          (begun(how='weights from elsewhere'), 'mine-s0: was not trained from scratch, on a CPU'),
          (begun(device='cuda'), 'mine-s0: was not trained from scratch, on a CPU'),
          (settle('seed', 7), "mine-s0: line 1 of its log has no loss, or .*, or its seed's rows"),
          (settle('lr', 2e-3), 'lr differs'),
          (settle('rows_per_step', 4), 'mine-s0: rows_per_step is 4, and must be 2')]


@pytest.mark.parametrize('change, reason', FORGED)
def test_it_refuses_a_run_that_was_changed(change, reason, honest, tmp_path):
    """By somebody who knows state.json and writes every sha256 anew."""
    for run in honest[0].glob('mine-s*'):
        shutil.copytree(run, tmp_path / run.name)
    run, checkpoint = tmp_path / 'mine-s0', tmp_path / 'mine-s0/12'
    state = files.read_sealed(checkpoint / 'state.json', '')
    config = files.read_json(run / 'config.json')
    lines = log_lines(run, timed=True)
    change(state, config, lines, checkpoint)
    (run / 'log.jsonl').write_text(''.join(json.dumps(line) + '\n' for line in lines))
    state |= {'log': files.sha256(run / 'log.jsonl'),
              'sha256': {name: files.sha256(checkpoint / name) for name in state['sha256']}}
    files.write_sealed(checkpoint / 'state.json', state)
    files.write_json(run / 'config.json', config)
    one_line_error(judged(tmp_path, honest[1], '--replay=0:12'), reason)


def test_it_refuses_other_runs(honest, tmp_path):
    folder, words = honest
    one_line_error(run_script('studies.speedrun', folder / 'mine-s0', *words),
                   r'seeds 0 to 3 or more are needed, not \[0\]')
    one_line_error(judged(folder, words, '--parameters=1000'), 'parameters are too many')
    run = shutil.copytree(folder / 'mine-s0', tmp_path / 'mine-s0')
    path = run / '12/state.json'
    files.write_sealed(path, files.read_sealed(path, '') | {'log': ''})
    one_line_error(judged(tmp_path, words), 'mine-s0: has no digests')


def test_it_refuses_other_texts(honest, corpus, tmp_path):
    """A held-out document in the texts to train on, whoever says that nothing has changed."""
    folder, words = honest
    one_line_error(judged(folder, [*words[:1], *words[2:]]), "is not of the game's texts")
    shutil.copytree(corpus, tmp_path / 'corpus')
    words = [f'--corpus={tmp_path}/corpus', *words[1:]]
    meta = Corpus(corpus).meta
    train, held = [tmp_path / 'corpus' / meta[part][0]['name'] for part in ('shards', 'val_shards')]
    tokens = np.load(held)
    np.save(train, np.concatenate([tokens, np.load(train)])[:len(np.load(train))])
    one_line_error(judged(folder, words), f'{train.name}: changed since it was written')
    meta['shards'][0]['sha256'] = files.sha256(train)
    meta.pop('digest')      # as an older corpus, which has none
    meta['fingerprint'] = prepare.fingerprint(meta)
    files.write_json(tmp_path / 'corpus/meta.json', meta)
    one_line_error(judged(folder, words), "is not of the game's texts")
    words[1] = f'--texts={meta["fingerprint"]}'
    one_line_error(judged(folder, words), "or its seed's rows")

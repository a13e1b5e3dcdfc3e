"""The speedrun's referee: what it believes, and the line with which it refuses each forged submission."""
import json
import re
import shutil
import subprocess

import numpy as np
import pytest
import scipy.stats
import torch
from safetensors.torch import load_file, save_file

import pretrain
from conftest import (ROOT, edit, jsonl, log_lines, one_line_error, ran, read_rows, refused_line,
                      run_script, texts)
from data import Corpus
from nanoencoder import files, prepare
from nanoencoder.pretraining import log
from nanoencoder.settings import build
from studies import speedrun



def head_of(folder):
    words = ['git', 'rev-parse', 'HEAD']
    return subprocess.run(words, cwd=folder, capture_output=True, text=True).stdout.strip()


HEAD = head_of(ROOT)
PAGE = """| steps | mlm | AdamW | 3,600 | 1.9e13 | 4.5 4.6 | .001 | |
| steps | worse | | 10 | 1e10 | 9.5 4.6 | .1 | |
| transfer | mlm | | 3,600 | 1.9e13 | 40.0 40.1 40.3 | 0 | |
| transfer | too wide to be better | | 3,600 | 2e13 | 38 44 | .2 | |"""
pytestmark = pytest.mark.skipif(not HEAD, reason='git has no commit here')


@pytest.fixture(scope='module')
def game(tmp_path_factory):
    """A folder with a corpus of two sources, and four runs of it."""
    folder = tmp_path_factory.mktemp('game')
    documents = texts()
    held = [{'text': text, 'file': f'numpy/{k}.py'} for k, text in enumerate(documents[:60])]
    nouns = [{'text': f'{text} again', 'file': f'noun{k}'} for k, text in enumerate(documents[60:120])]
    jsonl(folder / 'held/docs.jsonl', held)
    jsonl(folder / 'held/nouns.jsonl', nouns)
    jsonl(folder / 'train.jsonl', [{'text': text} for text in documents[120:]])
    ran('data.py', f'--path={folder}/train.jsonl', '--val_shuffled', f'--out={folder}/corpus',
        f'--val_path={folder}/held/docs.jsonl, {folder}/held/nouns.jsonl')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, 'commit', lambda: HEAD)
        for seed in range(4):
            pretrain.train(build(pretrain.Settings, dict(
                name=f'mine-s{seed}', seed=seed, corpus=f'{folder}/corpus', out=str(folder),
                phases=(('mlm', 12),), vocab_size=4_096, hidden_size=16, intermediate_size=32,
                num_hidden_layers=1,
                num_attention_heads=2, num_key_value_heads=1, context=512, rows_per_step=2, micro_rows=0,
                lr=1e-3, warmup_steps=2, decay_steps=4, val_rows=128, device='cpu')))
    (folder / 'page.md').write_text(PAGE)
    return folder


@pytest.fixture(scope='module')
def replays(tmp_path_factory):
    """{settings and commit: a folder with what a worktree trained of them}: runs are the same each time."""
    return {}, tmp_path_factory.mktemp('replays')


@pytest.fixture(autouse=True)
def rules(game, replays, monkeypatch):
    """Those of a game with this corpus, whose referee draws seed 0 and trains no two runs twice."""
    monkeypatch.setattr(speedrun, 'TEXTS', Corpus(game / 'corpus').meta['fingerprint'])
    monkeypatch.setattr(speedrun, 'TARGET', 9)
    monkeypatch.setattr(speedrun, 'PAGE', game / 'page.md')
    monkeypatch.setattr(speedrun.secrets, 'randbelow', lambda count: 0)
    trained, folder = replays
    train_again = speedrun.train_again

    def once(claim, commit, corpus, out, rules):
        settings = claim.checkpoint.state['settings'] | {'name': '', 'out': '', 'corpus': ''}
        key = json.dumps([settings, commit])
        if key not in trained:
            train_again(claim, commit, corpus, out, rules)
            trained[key] = shutil.copytree(out, folder / str(len(trained)))
        shutil.copytree(trained[key], out, dirs_exist_ok=True)
    monkeypatch.setattr(speedrun, 'train_again', once)


def judged(game, *more, runs=None):
    folders = sorted((runs or game).glob('mine-s*'))
    return run_script('studies.speedrun', *folders, f'--corpus={game}/corpus', *more)


def test_it_believes_what_it_trains_itself(game):
    """All seeds, to the bit. The row has what their weights give."""
    result = judged(game, '--replay', '--every_seed')
    assert result.returncode == 0, result.stderr
    assert len(re.findall('trained again, to the bit', result.stdout)) == 4
    row, verdict = result.stdout.splitlines()[-2:]
    _, track, name, _, steps, _, losses, _, _, commit, _ = map(str.strip, row.split('|'))
    assert (track, name, steps, commit) == ('steps', 'mine', '12', HEAD[:8])
    assert verdict == 'a record'
    logged = [log_lines(game / f'mine-s{seed}')[-1]['val_mlm_loss'] for seed in range(4)]
    assert [*map(float, losses.split())] == pytest.approx(logged, abs=6e-4)
    assert re.search(r'by source: all 8\.\d\d, WordNet 8\.\d\d, numpy 8\.\d\d\n', result.stdout)

    assert judged(game).stdout.splitlines()[-1] == 'not verified: --replay trains a seed again'
    assert judged(game, '--replay').stdout.splitlines()[-1].startswith('a record, if the other seeds are')


def test_losses_by_source_are_those_of_their_texts(game):
    """Which are as long in the stream as their tokens and an end."""
    rows = [row for path in game.glob('held/*.jsonl') for row in read_rows(path)]
    rows.sort(key=lambda row: prepare.hash_of(row['text']))
    encode = prepare.load_tokenizer(f'{game}/corpus').encode
    lengths = [len(encode(row['text'])) + 1 for row in rows]
    are_nouns = np.repeat([row['file'].startswith('noun') for row in rows], lengths)
    names = speedrun.sources_of(Corpus(game / 'corpus'))
    assert [*names] == [*np.where(are_nouns, 'WordNet', 'numpy')]


def test_what_is_no_record():
    """Rows of the page count with p < 0.01. The fewest steps are to be beaten, or the best mean."""
    rules = speedrun.Rules()
    losses = [4.5, 4.6, 4.5, 4.6]
    p = scipy.stats.ttest_1samp(losses, 9, alternative='less').pvalue
    assert speedrun.judge(3_599, losses, rules) == (float(f'{p:.2g}'), '')      # as the page will have it
    assert speedrun.judge(3_600, losses, rules)[1] == 'more than 3,599 steps'
    assert speedrun.judge(100, [8.9, 9.1, 8.95, 9.0], rules)[1] == 'p must be below 0.01'
    rules = speedrun.Rules('transfer')
    scores = [41.0, 41.1, 41.2, 41.1]
    p = scipy.stats.ttest_ind(scores, [40.0, 40.1, 40.3], equal_var=False, alternative='greater').pvalue
    assert speedrun.judge(3_600, scores, rules) == (float(f'{p:.2g}'), '')


@pytest.mark.parametrize('words, reason', [
    ('--context=1024', 'try.py: context is 1024, and must be 512'),
    ('--corpus=corpora/docs', 'try.py: corpus must be corpora/speedrun'),
    ('--intermediate_size=1024', '1,852,288 parameters are more than 1,500,000'),
    ('--num_hidden_layers=4 --intermediate_size=384', r'9\.\d+e\+09 operations a step are more than 9e\+09')])
def test_settings_that_the_rules_forbid_are_named(words, reason):
    refused_line(reason, 'studies.speedrun', ROOT / 'configs/try.py', *words.split())


def test_an_attempt_within_the_rules():
    told = ran('studies.speedrun', ROOT / 'configs/try.py').stdout
    assert 'within the rules, 8.53e+09 operations a step' in told


# ---------------------------------------------------------------------------
# Forgeries, by somebody who knows state.json and writes every sha256 anew


def settle(name, value):
    def change(state, checkpoint):
        state['settings'][name] = value
    return change


def begun(**how):
    return lambda state, checkpoint: state['starts'][-1].update(how)


def edited(name, old, new):
    return lambda state, checkpoint: edit(checkpoint / name, old, new)


def of_another_seed(state, checkpoint):
    """As weights of a longer run would be, or of a GPU, or of two processes."""
    other = 'mine-s1' if state['settings']['seed'] == 0 else 'mine-s0'
    shutil.copy(checkpoint.parent.parent / other / '12/model.safetensors', checkpoint)


def averaged(state, checkpoint):
    weights = [load_file(path) for path in checkpoint.parent.parent.glob('mine-s*/12/model.safetensors')]
    mean = {name: torch.stack([of_seed[name] for of_seed in weights]).mean(0) for name in weights[0]}
    save_file(mean, checkpoint / 'model.safetensors', {'format': 'pt'})


def nudged(state, checkpoint):
    """By less than rounding would explain, say, towards the test items of the probes."""
    weights = load_file(checkpoint / 'model.safetensors')
    weights['model.norm.weight'] *= 1.000001
    save_file(weights, checkpoint / 'model.safetensors', {'format': 'pt'})


def half_the_steps(state, checkpoint):
    state['settings']['phases'] = [['mlm', 11]]
    state['step'] = 11
    checkpoint.rename(checkpoint.with_name('11'))


FORGED = [(of_another_seed, 'its model.safetensors is not what its settings and commit give'),
          (averaged, 'its model.safetensors is not'),
          (nudged, 'its model.safetensors is not'),
          (half_the_steps, 'its model.safetensors is not'),
          (settle('lr', 2e-3), 'its model.safetensors is not'),
          (settle('eps', 1e-3), 'its model.safetensors is not'),
          (edited('config.json', '10000.0', '9000.0'), 'its config.json is not'),
          (edited('tokenizer.json', '(?i:', '(?:'), 'its tokenizer.json is not')]


def forge(game, folder, change, seeds=range(4)):
    """Copy the runs into a folder and change them. Returns the folder."""
    for run in game.glob('mine-s*'):
        shutil.copytree(run, folder / run.name)
    for seed in seeds:
        checkpoint = folder / f'mine-s{seed}/12'
        state = files.read_sealed(checkpoint / 'state.json', '')
        change(state, checkpoint)
        checkpoint, = checkpoint.parent.glob('1?')
        state['sha256'] = {name: files.sha256(checkpoint / name) for name in state['sha256']}
        files.write_sealed(checkpoint / 'state.json', state)
    return folder


@pytest.mark.parametrize('change, reason', FORGED)
def test_a_forgery_is_never_verified(change, reason, game, tmp_path):
    runs = forge(game, tmp_path, change)
    assert judged(game, runs=runs).stdout.splitlines()[-1].startswith('not verified')
    one_line_error(judged(game, '--replay', runs=runs), f'mine-s0: {reason}')


def bad_log(state, checkpoint):
    edit(checkpoint.parent / 'log.jsonl', '"val_mlm_loss": ', '"val_mlm_loss": -1e30')


def file_at_the_root(state, checkpoint):
    for name in ('model.safetensors', 'config.json'):
        shutil.copy(checkpoint.parent.parent / f'mine-s1/12/{name}', checkpoint.parent)


@pytest.mark.parametrize('change', [bad_log, file_at_the_root])
def test_what_is_not_read_changes_nothing(change, game, tmp_path):
    runs = forge(game, tmp_path, change, seeds=[0])
    as_told = judged(game, '--replay', runs=runs).stdout.splitlines()[-2:]
    assert as_told == judged(game, '--replay').stdout.splitlines()[-2:]


@pytest.mark.parametrize('change, seeds, reason', [
    (settle('seed', 0), [1], r'runs of seeds \[0, 1, 2, 3\] are needed, not \[0, 0, 2, 3\]'),
    (settle('first_row', 4), [0], 'first_row is 4, and must be 0'),
    (settle('cut_rows=False#', 1), [0], 'mine-s0: has other settings than pretrain.py'),
    (settle('beta2', 0.9), [1], 'mine-s0 has beta2 = 0.95, this run 0.9; only seeds may differ'),
    (begun(git='--output=forged'), range(4), 'needed, not --output=forged: commit'),
    (begun(git=f'{HEAD}-dirty'), range(4), 'needed, not .*-dirty: commit'),
    (begun(git='0' * 40), range(4), 'needed, not 0+: fetch it'),
    (settle('phases', [['mlm', 20]]), [0], 'is no run of 20 steps')])
def test_runs_that_are_no_submission(change, seeds, reason, game, tmp_path):
    one_line_error(judged(game, runs=forge(game, tmp_path, change, seeds)), reason)


@pytest.mark.parametrize('file, old, new, reason', [
    ('data.py', 'stretches = i % num_stretches', 'stretches = (i + 2) % num_stretches',
     'step 1 read other tokens than those of its rows'),
    ('pretrain.py', 'in batches:\n        # only', 'in [*batches, *batches]:\n        # only',
     'read 24,576 tokens, where its steps have 12,288'),
    ('data.py', 'targets = np.where(chosen, tokens,', 'targets = np.where(chosen, 4_000,',
     'step 1 learned to predict tokens that are not'),
    ('model.py', 'F.silu ', 'F.gelu ', 'has another model.py')])
def test_code_that_reads_otherwise_is_refused(file, old, new, reason, game, tmp_path):
    """Rows in another order or left out, two passes over a step's tokens, targets from elsewhere: each in a
    commit that is named in all honesty."""
    clone = tmp_path / 'clone'
    subprocess.run(['git', 'clone', '-q', '--shared', ROOT, clone], check=True)
    edit(clone / file, old, new)
    for words in (['config', 'user.name', 'a'], ['config', 'user.email', 'a'], ['commit', '-qam', 'faster']):
        subprocess.run(['git', *words], cwd=clone, check=True)
    commit = head_of(clone)
    runs = forge(game, tmp_path, begun(git=commit))
    one_line_error(judged(game, '--replay', f'--repository={clone}', runs=runs), f'mine-s0: {reason}')


def test_a_run_of_another_processor_is_held_to_what_it_is_worth(game, tmp_path):
    """Its row has what was trained here. On the track transfer, too."""
    runs = forge(game, tmp_path / 'near', begun(processor='another'))
    assert 'is worth 8.' in judged(game, '--replay', runs=runs).stdout
    def scaled_elsewhere(state, checkpoint):
        begun(processor='another')(state, checkpoint)
        weights = load_file(checkpoint / 'model.safetensors')
        weights['model.norm.weight'] *= 3
        save_file(weights, checkpoint / 'model.safetensors', {'format': 'pt'})

    runs = forge(game, tmp_path / 'far', scaled_elsewhere)
    one_line_error(judged(game, '--replay', runs=runs), r'mine-s0: is worth \d.\d+, and trained again here 8')


def test_nudged_weights_on_the_track_transfer(game, tmp_path, monkeypatch):
    """With probes that would not see it."""
    monkeypatch.setattr(speedrun, 'probe', lambda checkpoint: 41.0)
    runs = forge(game, tmp_path, nudged)
    result = judged(game, '--replay', '--track=transfer', runs=runs)
    one_line_error(result, 'mine-s0: its model.safetensors is not')


def test_the_score_of_a_task_that_any_model_solves_is_100(game, tmp_path, monkeypatch):
    rows = [{'text': word, 'label': word} for word in 15 * ('red', 'blue')]
    for split in ('train', 'validation', 'test'):
        jsonl(tmp_path / f'{split}.jsonl', rows)
    (tmp_path / 'task.py').write_text(f'kind = "SC"\ndataset = "colours"\ndata = "{tmp_path}"\n')
    monkeypatch.setattr(speedrun, 'PROBED', [str(tmp_path / 'task.py')])
    assert speedrun.probe(game / 'mine-s0/12') == 100


def test_no_worktree_is_left():
    rules = speedrun.Rules()
    before = speedrun.git(rules, 'worktree', 'list').stdout
    with pytest.raises(KeyboardInterrupt), speedrun.worktree(HEAD, rules):
        raise KeyboardInterrupt
    assert speedrun.git(rules, 'worktree', 'list').stdout == before

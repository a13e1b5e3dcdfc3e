"""The speedrun's referee: what it believes, and the line with which it refuses each forged submission."""
import json
import os
import re
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest
import scipy.stats
import torch
from safetensors.torch import load_file, save_file

import pretrain
from conftest import (
    ROOT,
    edit,
    jsonl,
    log_lines,
    one_line_error,
    ran,
    read_rows,
    refused,
    refused_line,
    run_script,
    texts,
)
from data import Corpus, validation_batches
from nanoencoder import files, huggingface, prepare
from nanoencoder.pretraining import cost, log
from nanoencoder.settings import make_settings
from speedrun import fetch, referee


def head_of(folder):
    words = ['git', 'rev-parse', 'HEAD']
    return subprocess.run(words, cwd=folder, capture_output=True, text=True).stdout.strip()


HEAD = head_of(ROOT)
fresh_seeds = referee.fresh_seeds
show_differences = referee.show_differences
MEASURED = 40       # held-out rows of those that the tests' corpus has
PAGE = f"""| steps | mlm | AdamW | 3,600 | 1.9e13 | 4.5 4.6 | .001 | we | {HEAD[:8]} |
| steps | worse | | 10 | 1e10 | 9.5 4.6 | .1 | we | |
| transfer | mlm | | 3,600 | 1.9e13 | 40.0 40.1 40.3 | 0 | we | 0000000 |
| transfer | too wide to be better | | 3,600 | 2e13 | 38 44 | .2 | we | |"""
slow = pytest.mark.slow
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
            pretrain.train(make_settings(pretrain.Settings, dict(
                name=f'mine-s{seed}', seed=seed, corpus=f'{folder}/corpus', out=str(folder),
                phases=(('mlm', 12),), vocab_size=4_096, hidden_size=16, intermediate_size=32,
                num_hidden_layers=1,
                num_attention_heads=2, num_key_value_heads=1, context=512, rows_per_step=2, micro_rows=0,
                lr=1e-3, warmup_steps=2, decay_steps=4, val_rows=128, device='cpu')))
    (folder / 'page.md').write_text(PAGE)
    return folder


@pytest.fixture(scope='module')
def replays(tmp_path_factory):
    """{settings and commit: a folder with what was trained of them}: runs are the same each time. Of a commit
    alone, its Code."""
    return {}, tmp_path_factory.mktemp('replays')


@pytest.fixture(autouse=True)
def rules(game, replays, monkeypatch):
    """Those of a game with this corpus, whose referee draws seed 0, fetches no commit, trains no run twice
    and asks models in this process: nearly all of them have the model.py of this checkout."""
    monkeypatch.setattr(referee, 'TEXTS', Corpus(game / 'corpus').meta['fingerprint'])
    monkeypatch.setattr(referee, 'TARGET', 9)
    monkeypatch.setattr(referee, 'PAGE', game / 'page.md')
    monkeypatch.setattr(referee.secrets, 'randbelow', lambda count: 0)
    monkeypatch.setattr(referee, 'MEASURED', MEASURED)
    monkeypatch.setattr(referee, 'fresh_seeds', lambda claim, code: [2, 3, 0, 1])
    ask = referee.answers

    def answers(checkpoint, batches, code, corpus):
        if code.files['model.py'] != (ROOT / 'model.py').read_bytes():
            yield from ask(checkpoint, batches, code, corpus)
            return
        model = huggingface.open_checkpoint(checkpoint).model()
        for batch in batches:
            with torch.no_grad():
                states = model.model(torch.from_numpy(batch.tokens), batch.lengths, False)[batch.at]
                yield model.logits(states)
    monkeypatch.setattr(referee, 'answers', answers)
    trained, folder = replays
    train_again = referee.train_again

    def once(claim, code, corpus, out):
        settings = claim.settings | {'name': '', 'out': '', 'corpus': ''}
        key = json.dumps([settings, code.commit])
        if key not in trained:
            train_again(claim, code, corpus, out)
            trained[key] = shutil.copytree(out, folder / str(len(trained)))
        shutil.copytree(trained[key], out, dirs_exist_ok=True)
    monkeypatch.setattr(referee, 'train_again', once)
    fetch_code = referee.fetch_code

    def fetch_once(commit, rules, temporary):
        if commit not in trained:
            place = folder / commit
            place.mkdir()
            trained[commit] = fetch_code(commit, rules, place)
        return trained[commit]
    monkeypatch.setattr(referee, 'fetch_code', fetch_once)
    monkeypatch.setattr(referee, 'show_differences', lambda code: None)


def judged(game, *more, runs=None):
    folders = sorted((runs or game).glob('mine-s*'))
    return run_script('speedrun.referee', *folders, f'--corpus={game}/corpus', *more)


@pytest.mark.slow
def test_it_believes_what_it_trains_itself(game, monkeypatch):
    """All seeds, to the bit. The row has what their weights give."""
    result = judged(game, '--replay', '--every_seed')
    assert result.returncode == 0, result.stderr
    assert len(re.findall('trained again, to the bit', result.stdout)) == 4
    row, verdict = result.stdout.splitlines()[-2:]
    _, track, name, _, steps, _, losses, _, _, commit, _ = map(str.strip, row.split('|'))
    assert (track, name, steps, commit) == ('steps', 'mine', '12', HEAD[:8])
    assert verdict == 'its numbers are a record: it counts once a maintainer has read the commit'
    assert 'a replay cannot tell honest code from code that cheats' in result.stdout
    assert re.search(r'by source: all 8\.\d\d, WordNet 8\.\d\d, numpy 8\.\d\d\n', result.stdout)
    assert re.search(r'mine-s0: steps of mlm compute (0\.[789]|1\.0)\d of what is counted', result.stdout)
    # the last word is of other rows, here of seeds 2, 3, 0 and 1
    fresh, = re.findall(r'four fresh seeds: ([\d. ]+), p', result.stdout)
    losses = losses.split()
    assert fresh.split() != losses[2:] + losses[:2]

    monkeypatch.setattr(referee, 'MEASURED', 128)      # as pretrain.py does
    row, verdict = judged(game).stdout.splitlines()[-2:]
    assert verdict == 'not verified: --replay trains a seed again'
    logged = [log_lines(game / f'mine-s{seed}')[-1]['val_mlm_loss'] for seed in range(4)]
    assert [*map(float, row.split('|')[6].split())] == pytest.approx(logged, abs=6e-4)
    verdict = judged(game, '--replay').stdout.splitlines()[-1]
    assert verdict.startswith('its numbers are a record, if the other seeds are')


def test_losses_by_source_are_those_of_their_texts(game):
    """Which are as long in the stream as their tokens and an end."""
    rows = [row for path in game.glob('held/*.jsonl') for row in read_rows(path)]
    rows.sort(key=lambda row: prepare.hash_of(row['text']))
    encode = prepare.load_tokenizer(f'{game}/corpus').encode
    lengths = [len(encode(row['text'])) + 1 for row in rows]
    are_nouns = np.repeat([row['file'].startswith('noun') for row in rows], lengths)
    names = referee.sources_of(Corpus(game / 'corpus'))
    assert [*names] == [*np.where(are_nouns, 'WordNet', 'numpy')]


def test_what_is_no_record():
    """Rows of the page count with p < 0.01. The fewest steps are to be beaten, or the best mean."""
    rules = referee.Rules()
    losses = [4.5, 4.6, 4.5, 4.6]
    p = scipy.stats.ttest_1samp(losses, 9, alternative='less').pvalue
    assert referee.judge(3_599, losses, rules) == (float(f'{p:.2g}'), '')      # as the page will have it
    assert referee.judge(3_600, losses, rules)[1] == 'more than 3,599 steps'
    assert referee.judge(100, [8.9, 9.1, 8.95, 9.0], rules)[1] == 'p must be below 0.01'
    rules = referee.Rules('transfer')
    scores = [41.0, 41.1, 41.2, 41.1]
    p = scipy.stats.ttest_ind(scores, [40.0, 40.1, 40.3], equal_var=False, alternative='greater').pvalue
    assert referee.judge(3_600, scores, rules) == (float(f'{p:.2g}'), '')


@pytest.mark.parametrize('words, reason', [
    ('--context=1024', 'try.py: context is 1024, and must be 512'),
    ('--corpus=corpora/docs', 'try.py: corpus must be corpora/speedrun'),
    ('--intermediate_size=1024', '1,852,288 parameters are more than 1,500,000'),
    ('--num_hidden_layers=4 --intermediate_size=384', r'9\.\d+e\+09 operations a step are more than 9e\+09')])
def test_settings_that_the_rules_forbid_are_named(words, reason):
    refused_line(reason, 'speedrun.referee', ROOT / 'configs/try.py', *words.split())


def test_an_attempt_within_the_rules():
    told = ran('speedrun.referee', ROOT / 'configs/try.py').stdout
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
          pytest.param(half_the_steps, 'its model.safetensors is not', marks=slow),
          (settle('lr', 2e-3), 'its model.safetensors is not'),
          pytest.param(settle('eps', 1e-3), 'its model.safetensors is not', marks=slow),
          (edited('config.json', '_range": 0.02', '_range": 0.03'), 'its config.json is not'),
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
    (begun(git='0' * 40), range(4), r'git has no commit 0+ there \(.*\); fetch it'),
    (settle('phases', [[['mlm'], 12]]), [0], r"phases has \['mlm'\], and an objective is a name"),
    (settle('hidden_size', 32), [0], 'mine-s0: its model has hidden_size = 16, and its settings 32'),
    (edited('config.json', '10000.0', '9000.0'), [0],
     'its model has rope_theta = 9000.0, and its settings 10000.0'),
    (settle('phases', [['mlm', 20]]), [0], 'is no run of 20 steps')])
def test_runs_that_are_no_submission(change, seeds, reason, game, tmp_path):
    one_line_error(judged(game, runs=forge(game, tmp_path, change, seeds)), reason)


def clone(folder):
    """Clone this repository into a folder. Returns the folder."""
    subprocess.run(['git', 'clone', '-q', '--shared', ROOT, folder], check=True)
    return folder


def commit(folder):
    """Commit all that a repository's folder holds. Returns the commit."""
    identity = ['-c', 'user.name=a', '-c', 'user.email=a']
    subprocess.run(['git', 'add', '--all', '--force'], cwd=folder, check=True)
    subprocess.run(['git', *identity, 'commit', '-qm', 'faster'], cwd=folder, check=True)
    return head_of(folder)


@pytest.fixture
def stranger(tmp_path):
    """A small repository, which has a model.py."""
    folder = tmp_path / 'stranger'
    folder.mkdir()
    subprocess.run(['git', 'init', '-q', folder], check=True)
    (folder / 'model.py').write_text('honest = True\n')
    return folder


def fetched(repository, name, folder):
    """{path: bytes} of a commit, as the referee has them."""
    folder.mkdir()
    fetch.fetch(name, repository, folder)
    return fetch.read_files(folder, name)


@pytest.mark.parametrize('path, content, reason', [
    ('model/__init__.pyc', b'\0', 'model/__init__.pyc: holds code that no diff shows'),
    ('model.cpython-311-x86_64.so', b'\0', 'model.cpython-311-x86_64.so: holds code that no diff'),
    ('nanoencoder/a.pth', b'import a', 'nanoencoder/a.pth: holds code that no diff shows'),
    ('model/__init__.py', b'', 'model/__init__.py: Python imports it in place of model.py'),
    ('torch/__init__.py', b'', 'torch/__init__.py: Python imports it in place of the package torch'),
    ('json.py', b'', 'json.py: Python imports it in place of the package json'),
    ('sitecustomize.py', b'', 'sitecustomize.py: Python imports it in place of'),
    ('.gitattributes', b'*.txt working-tree-encoding=UTF-16', '.gitattributes: has git show other files'),
    ('nanoencoder/.gitattributes', b'*.py ident', 'nanoencoder/.gitattributes: has git show other files'),
    ('data.py', b'# coding: utf-7\n', 'data.py: Python reads it as utf-7, and git shows it as UTF-8'),
    ('data.py', b'# coding: latin-1\n# \xe9\n', 'data.py: is not UTF-8'),
    ('data.py', 'a = 1  # \u202e1 = a\n'.encode(), r'data.py:1: has the character U\+202E'),
    ('data.py', b'\nhidden()\r# a comment over it\n', r'data.py:2: has the character U\+000D'),
    ('data.py', b'a\x1b[2K', r'data.py:1: has the character U\+001B')])
def test_what_git_does_not_show_is_refused(path, content, reason, stranger, tmp_path):
    """Before any of it runs."""
    file = stranger / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    refused(reason, fetched, stranger, commit(stranger), tmp_path / 'ours')


def test_links_and_submodules_are_refused(stranger, tmp_path):
    (stranger / 'data.py').symlink_to('/etc/hostname')
    refused("'data.py': is a link or a submodule", fetched, stranger, commit(stranger), tmp_path / 'link')
    (stranger / 'data.py').unlink()
    name = commit(stranger)
    words = ['update-index', '--add', '--cacheinfo', f'160000,{name},nanoencoder']
    subprocess.run(['git', *words], cwd=stranger, check=True)
    subprocess.run(['git', '-c', 'user.name=a', '-c', 'user.email=a', 'commit', '-qm', 'module'],
                   cwd=stranger, check=True)
    name = head_of(stranger)
    refused("'nanoencoder': is a link or a submodule", fetched, stranger, name, tmp_path / 'module')


def test_objects_in_place_of_others_are_refused(stranger, tmp_path):
    """`git replace` shows and checks out a forged commit under an honest one's name."""
    honest = commit(stranger)
    (stranger / 'model.py').write_text('honest = False\n')
    forged = commit(stranger)
    subprocess.run(['git', 'replace', honest, forged], cwd=stranger, check=True)
    shown = subprocess.run(['git', 'show', f'{honest}:model.py'], cwd=stranger, capture_output=True)
    assert shown.stdout == b'honest = False\n'
    refused(r'its git shows other objects than it names \(git replace -l\)', fetched, stranger, honest,
            tmp_path / 'ours')
    # as is a tag's name for a commit's, and an address that is none
    subprocess.run(['git', 'replace', '-d', honest], cwd=stranger, check=True, capture_output=True)
    refused('git has no commit .*; fetch it', fetched, stranger, '0' * 40, tmp_path / 'none')
    refused('git has no commit|not appear to be a git repository', fetched, tmp_path / 'nowhere', honest,
            tmp_path / 'gone')


def test_nothing_of_a_strangers_repository_runs(stranger, tmp_path):
    """Hooks, filters, attributes of its .git, its configuration: files are written as git stores them."""
    ran_here = tmp_path / 'ran'
    git = stranger / '.git'
    hook = f'#!/bin/sh\ntouch {ran_here}\n'
    name = commit(stranger)
    for event in ('post-checkout', 'reference-transaction', 'pre-auto-gc', 'post-index-change'):
        (git / 'hooks' / event).write_text(hook)
        (git / 'hooks' / event).chmod(0o755)
    (git / 'info/attributes').write_text('*.py filter=forge diff=forge\n')
    with (git / 'config').open('a') as file:
        file.write(f'[filter "forge"]\n\tsmudge = touch {ran_here}; echo forged\n'
                   f'[diff "forge"]\n\ttextconv = touch {ran_here}; echo\n'
                   f'[core]\n\tfsmonitor = touch {ran_here}\n\talternateRefsCommand = touch {ran_here}\n'
                   f'[uploadpack]\n\tpackObjectsHook = touch {ran_here}; cat\n')
    files = fetched(stranger, name, tmp_path / 'ours')
    fetch.write_files(files, tmp_path / 'tree')
    assert (tmp_path / 'tree/model.py').read_text() == 'honest = True\n'
    assert not ran_here.exists()


@pytest.mark.parametrize('file, old, new, reason', [
    ('data.py', 'stretches = i % num_stretches', 'stretches = (i + 2) % num_stretches',
     'step 1 read other tokens than those of its rows'),
    pytest.param(
        'pretrain.py', 'in batches:\n        # Only', 'in [*batches, *batches]:\n        # Only',
        'read 24,576 tokens, where its steps have 12,288', marks=slow),
    pytest.param(
        'data.py', 'targets = np.where(chosen, tokens,', 'targets = np.where(chosen, 4_000,',
        'step 1 learned to predict tokens that are not', marks=slow),
    pytest.param(
        'model.py', 'for layer in self.layers:', 'for layer in [*self.layers] * 50:',
        r'its steps of mlm compute [3-5]\.\d\d times the [\d.e+]+ operations that are counted', marks=slow),
    pytest.param(
        'pretrain.py', 'train(cfg)\n\n',
        'train(replace(cfg, model=replace(cfg.model, num_hidden_layers=2)))\n\n',
        r'its model has num_hidden_layers = 2, and its settings 1', marks=slow),
    pytest.param(
        'pretrain.py', 'state, how = (start or start_run)(cfg, corpus, world)\n',
        'state, how = (start or start_run)(cfg, corpus, world)\n'
        '        corpus.stretch("validation", 0, cfg.context)\n',
        'its commit does not train without held-out texts', marks=slow)])
def test_code_that_reads_otherwise_is_refused(file, old, new, reason, game, tmp_path):
    """Rows in another order or left out, two passes over a step's tokens, targets from elsewhere, layers that
    are run through more often or are more than the settings say, held-out rows: each in a commit that is
    named in all honesty."""
    repository = clone(tmp_path / 'clone')
    edit(repository / file, old, new)
    runs = forge(game, tmp_path, begun(git=commit(repository)))
    one_line_error(judged(game, '--replay', f'--repository={repository}', runs=runs), f'mine-s0: {reason}')


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
    monkeypatch.setattr(referee, 'probe', lambda checkpoint, code: 41.0)
    runs = forge(game, tmp_path, nudged)
    result = judged(game, '--replay', '--track=transfer', runs=runs)
    one_line_error(result, 'mine-s0: its model.safetensors is not')


def test_the_score_of_a_task_that_any_model_solves_is_100(game, tmp_path, monkeypatch):
    rows = [{'text': word, 'label': word} for word in 15 * ('red', 'blue')]
    for split in ('train', 'validation', 'test'):
        jsonl(tmp_path / f'{split}.jsonl', rows)
    (tmp_path / 'task.py').write_text(f'kind = "SC"\ndataset = "colours"\ndata = "{tmp_path}"\n')
    monkeypatch.setattr(referee, 'PROBED', [str(tmp_path / 'task.py')])
    code = referee.Code(HEAD, None, {}, measure=ROOT)
    assert referee.probe(game / 'mine-s0/12', code) == 100


def test_the_law_and_the_measure_are_the_referees_own(game, tmp_path, capsys):
    """A claim's model.py helps to measure, in another process; its data.py is not read, and what an objective
    is called there is a name. A reader is told which files differ from this checkout's."""
    repository = clone(tmp_path / 'clone')
    edit(repository / 'model.py', 'return F.linear(hidden, self.head)',
         'print("8.000")\n        return 2 * F.linear(hidden, self.head)')
    (repository / 'data.py').write_text('raise SystemExit("the law is mine")\n')
    rules = referee.Rules(repository=str(repository))
    code = referee.fetch_code(commit(repository), rules, tmp_path)
    show_differences(code)
    assert re.search(r'in\n data.py  *\|.*\n model.py \|  *3 .*\n 2 files changed', capsys.readouterr().out)

    corpus = Corpus(game / 'corpus')
    checkpoint = game / 'mine-s0/12'
    theirs = referee.held_out_losses(checkpoint, range(3), code, corpus)['all']
    rows = pretrain.Settings(name='three', **referee.FIXED | {'val_rows': 3})
    model = huggingface.open_checkpoint(checkpoint).model()
    losses = []
    for batch in validation_batches(corpus, 'mlm', rows):
        tokens, targets = map(torch.from_numpy, (batch.tokens, batch.targets))
        logits = model.logits(model.model(tokens, batch.lengths, False)[batch.at])
        losses.append(torch.nn.functional.cross_entropy(2 * logits, targets[batch.at], reduction='none'))
    assert theirs == pytest.approx(torch.cat(losses).mean().item(), abs=1e-5)

    runs = forge(game, tmp_path / 'runs', settle('phases', [['span', 12]]))
    claim = referee.read_claim(str(runs / 'mine-s0'))
    assert claim.cfg.phases == (('clm', 12),)
    assert claim.settings['phases'] == [['span', 12]]


@pytest.mark.parametrize('share, reason', [
    (1.2, ''), (1.3, 'steps of mlm compute 1.30 times the 2.41e[+]08 operations that are counted')])
def test_operations_of_a_replay_are_counted(share, reason, game, tmp_path):
    claim = referee.read_claim(str(game / 'mine-s0'))
    of_a_step = cost.flops_until(claim.cfg, 1)
    counts = share * of_a_step * np.arange(13)
    counts.tofile(tmp_path / 'operations')
    if reason:
        refused(reason, referee.check_operations, claim, tmp_path)
    else:
        referee.check_operations(claim, tmp_path)
    counts[:12].tofile(tmp_path / 'operations')
    refused('mine-s0: has 11 forward passes', referee.check_operations, claim, tmp_path)


def counted(game, folder):
    """The claim of a run whose first embeddings are counted, as its settings say. Its weights are not."""
    runs = forge(game, folder, settle('embedding_init', 'counts'), [0])
    return referee.read_claim(str(runs / 'mine-s0'))


def test_operations_of_counting_are_no_steps(game, tmp_path):
    """What torch counts of it is known to the last; more than that before the first step is the first's."""
    claim = counted(game, tmp_path)
    contexts = 2_048
    counting = 2 * 4_096 * contexts ** 2 + 2 * 4_096 * contexts * 16
    of_a_step = cost.flops_until(claim.cfg, 1)
    counts = counting + of_a_step * np.arange(13)
    counts.tofile(tmp_path / 'operations')
    referee.check_operations(claim, tmp_path)
    honest = referee.read_claim(str(game / 'mine-s0'))
    refused(r'steps of mlm compute 12\.98 times', referee.check_operations, honest, tmp_path)
    (counts + 4 * of_a_step).tofile(tmp_path / 'operations')
    refused('steps of mlm compute 1.33 times', referee.check_operations, claim, tmp_path)


@slow
def test_a_run_that_counts_is_replayed(game, tmp_path, capsys):
    """Its steps read their rows once, as counting is no pass; and the bits are those of the run."""
    claim = counted(game, tmp_path / 'claim')
    cfg = make_settings(pretrain.Settings, claim.settings | {'name': 'counts', 'out': str(tmp_path)})
    pretrain.train(cfg)
    claim = claim._replace(checkpoint=tmp_path / 'counts/12')
    code = referee.fetch_code(HEAD, referee.Rules(), tmp_path)
    corpus = Corpus(game / 'corpus')
    referee.replay(claim, 0.0, code, corpus, referee.Rules())
    told = capsys.readouterr().out
    assert re.search(r'mine-s0: steps of mlm compute (0\.[789]|1\.0)\d of what is counted', told)
    assert 'mine-s0: trained again, to the bit' in told


def test_fresh_seeds_are_of_the_commit_and_the_settings(game, tmp_path):
    def seeds(folder, name='a'):
        claim = referee.read_claim(str(folder / 'mine-s0'))
        return fresh_seeds(claim, referee.Code(name, None, {}, None))
    drawn = seeds(game)
    assert len({*drawn, *referee.SEEDS}) == 8
    assert drawn == seeds(forge(game, tmp_path / 'renamed', settle('name', 'other')))
    assert not {*drawn} & {*seeds(game, 'b')}
    assert not {*drawn} & {*seeds(forge(game, tmp_path / 'faster', settle('lr', 2e-3)))}


@pytest.mark.slow
def test_four_seeds_that_were_picked_are_no_record(game, monkeypatch):
    """Nor rows that were learnt: fresh seeds and other rows have the last word."""
    def measure(checkpoint, rows, code, corpus, rules):
        if rows.start == MEASURED:
            return 9.5
        return 8 + log_lines(checkpoint.parent)[-1]['loss'] % 0.01
    monkeypatch.setattr(referee, 'measure', measure)
    result = judged(game, '--every_seed')
    assert result.stdout.splitlines()[-1] == 'no record: fresh seeds: p must be below 0.01', result.stderr
    assert 'four fresh seeds: 9.500 9.500 9.500 9.500, p ' in result.stdout


def test_seeds_that_lie_near_each_other_are_said(capsys):
    """As where the code does not use its seed, or one run was copied. Those of the page are 0.1 apart."""
    rules = referee.Rules()
    referee.say_if_near([8.1, 8.1001, 8.1002, 8.1], rules)
    assert capsys.readouterr().out.startswith('the seeds lie within 0.0002 of each other, those of each row')
    referee.say_if_near([8.1, 8.2, 8.15, 8.1], rules)
    assert not capsys.readouterr().out


def test_a_replay_is_given_no_held_out_text(game, tmp_path):
    corpus = Corpus(game / 'corpus')
    copied = prepare.open_sealed(referee.without_held_out(corpus, tmp_path / 'copied'))
    assert not [*copied.folder.glob('val_*')]
    assert copied.num_stretches('validation', 512) == 0
    assert (copied.stretch('train', 5, 512) == corpus.stretch('train', 5, 512)).all()


def test_what_a_killed_referee_started_ends_with_it(tmp_path):
    path = tmp_path / 'pipe'
    os.mkfifo(path)
    process = os.fork()
    if not process:
        referee.run('-c', f'file = open({str(path)!r}, "w"); print(1, file=file, flush=True)\n'
                          'import time; time.sleep(20)')
        os._exit(0)
    with open(path) as file:
        file.readline()
        began = time.monotonic()
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        assert not file.read()      # once its writer has ended
    assert time.monotonic() < began + 10

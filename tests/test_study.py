"""Studies: tables and their errors; what is missing, in which order, behind failures, kills, lost folders."""
import itertools
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from answers import answers, write as write_predictions
from conftest import ROOT, SMALL, edit, log_lines, refused, run_script, write_log
from nanoencoder.files import json_lines, saved_steps, write_json, write_sealed
from nanoencoder.predictions import find_folders
from nanoencoder.settings import read
from nanoencoder.tasks import KINDS
from nanoencoder.tasks.task import SPLITS, Task
from studies import choices, hold_out, run, study
from studies.paper import published
from studies.report import write_report
from toys import data_of

STUDY = '''corpus = {{'config': '{folder}/corpus.py'}}
every_run = {{'config': '{folder}/tiny.py'}}
runs = {{
    'clm': {{'phases': (('clm', 12),)}},
    'mlm': {{'phases': (('mlm', 12),), 'save_at': (6,)}},
    'clm-mlm': {{'phases': (('clm', 3), ('mlm', 9)), 'branch_from': 'clm/3'}},     # a quarter
    'again': {{'phases': (('mlm', 6),), 'weights_from': 'clm'}},
}}
seeds = (0, 1)
every_task = {{'config': '{folder}/words.py', 'lrs': (1e-3, 2e-3)}}
tasks = (
    {{'models': ('*',)}},
    {{'models': ('clm-mlm', 'mlm-6'), 'variant': 'causal', 'causal': True, 'lrs': (1e-2,)}})
finetuning_seeds = 2
contrasts = {{'early': {{'rule': 'better', 'weights': {{'clm': 1, 'mlm@2e-3': -0.5, 'clm-mlm+causal': -0.5}},
                       'datasets': ('words',)}}}}
ladder = {{'CLM then MLM': ('mlm-6', 'clm-mlm')}}
'''
THIRD = "    'third': {'phases': (('clm', 6), ('mlm', 6)), 'branch_from': 'clm/6'},\n}\nseeds"


def write(folder, **changes):
    """The study's config; `changes` are texts to replace."""
    text = STUDY.format(folder=folder)
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (folder / 'config.py').write_text(text)


@pytest.fixture
def place(tmp_path):
    """A folder with a study and its configs."""
    (tmp_path / 'tiny.py').write_text('lr = 1.0\nwarmup_steps = 0\ndecay_steps = 0\n')
    (tmp_path / 'corpus.py').write_text(f'out = "{tmp_path}/corpus"\n')
    (tmp_path / 'words.py').write_text('kind = "SC"\ndataset = "words"\nsteps = 9\ndata = "texts"\n')
    write(tmp_path)
    return tmp_path


# ---------------------------------------------------------------------------
# The table
def test_the_table_by_hand(place):
    table, _ = study.load([str(place)])
    child = table.rows['clm-mlm']
    assert (child.steps, child.begins, child.parent, child.parent_step) == (12, 'branch_from', 'clm', 3)
    assert child.phases == ['clm'] * 3 + ['mlm'] * 9
    assert table.rows['again'].parent_step == 12
    assert [row.save_at for row in table.rows.values()] == [{3, 12}, {6, 12}, {12}, {6}]
    plain, causal = table.finetunings
    assert {*plain.models} == {'untrained', 'clm', 'mlm', 'mlm-6', 'clm-mlm', 'again'}
    assert causal.models == {'mlm-6': ('mlm', 6), 'clm-mlm': ('clm-mlm', 12)}
    weights = {('clm', None): 1.0, ('mlm', 2e-3): -0.5, ('clm-mlm+causal', None): -0.5}
    assert table.comparisons == [study.Contrast('early', 'better', weights, ('words',))]


@pytest.mark.parametrize('old, new, line, words', [
    ('clm/3', 'clmm/3', 3, "runs 'clm-mlm': branch_from: no row 'clmm' above this one; the nearest is 'clm'"),
    ('clm/3', 'clm/4', 3, 'branch_from clm/4: one ends there, or they differ before'),
    ("'again'", "'mlm'", 3, "runs has 'mlm' twice"),
    ("'save_at'", "'seed'", 3, "runs 'mlm': seed is what a study gives each run; leave it out"),
    ("(('mlm', 6),)", "('mlm', 6)", 3, "runs 'again': phases are pairs, such as"),
    ("'mlm-6'),", "'clmm*'),", 11, "tasks 2: no row 'clmm*'; the nearest is 'clm'"),
    ("'variant': 'causal', ", '', 11, 'clm-mlm on words is there twice; one of them needs a variant'),
    (", 'lrs': (1e-3, 2e-3)}", '}', 11, "tasks 1: has no 'lrs'"),
    ("(0, 1)", '(0, 0)', 9, 'seeds are different numbers, one or more, not (0, 0)'),
    ("'again':", "'untrained':", 3, "runs 'untrained': is the name of a model with new weights; give"),
    ("'better'", "'beter'", 15, "rule is one of better, at_least, no_difference, not 'beter'"),
    ('mlm@2e-3', 'mlm@3e-3', 15, 'no entry of tasks has mlm@3e-3 on words'),
    ("('mlm-6', 'clm-mlm')", "('clm-mlm', 'mlm-7/')", 17, "no row 'mlm-7/'; the nearest is 'mlm-6'"),
    ("('mlm-6', 'clm-mlm')", "('clm-mlm')", 17, "'CLM then MLM': ladder takes tuple, not str 'clm-mlm'"),
    ("'datasets': ('words',)", "'datasets': ('words')", 15, "datasets takes tuple, not str 'words'"),
    ("'datasets': ('words',)", "'datasets': ()", 15, 'weights and datasets must have one or more'),
    ("'early':", '0:', 15, 'contrasts takes str, not int 0'),
    ('ladder =', "shown = ('word',)\nladder =", 17, "shown 'word' is no dataset of tasks; the nearest is")])
def test_an_error_names_the_table_and_the_nearest_name(place, old, new, line, words):
    write(place, **{old: new})
    refused(f'^{place}/config.py:{line}: .*{re.escape(words)}', study.load, [str(place)])


def test_a_table_of_a_wrong_shape_is_one_line(place):
    """Each part of a config, replaced by something else; none is a traceback."""
    text = STUDY.format(folder=place)
    values = {name: value for name, (value, _) in read(place / 'config.py').items()}
    tables = ('runs', 'tasks', 'contrasts', 'ladder', 'seeds')
    others = 7, 'x', (1.5,), ([],), {'x': 7}, {'clm': 7}, ({'models': 7},)
    for name, wrong in itertools.product(tables, others):
        (place / 'config.py').write_text('\n'.join(f'{key} = {value!r}' for key, value in
                                                   (values | {name: wrong}).items()))
        refused(f'^{place}/config.py:\\d+: {name}', study.load, [str(place)])
    (place / 'config.py').write_text(text)
    study.load([str(place)])


def test_the_papers_study_has_its_models_and_scores():
    """50 models, 15,000 fine-tunings and 18,000 scores."""
    whole, _ = study.load(['studies/paper'])
    counts = [(len(task.models) * len(task.lrs) * 5, len(task.datasets)) for task in whole.finetunings]
    assert sum(runs for runs, _ in counts) == 15_000
    assert sum(runs * sets for runs, sets in counts) == 18_000
    assert {*published.models()} == {*whole.models} - {'untrained'} == {*whole.finetunings[0].models}


def studies_in_git():
    """Names of studies that were trained and committed; without git, as in a copy, of all that are there."""
    asked = ['git', 'ls-files', 'studies/*/losses.csv']
    listed = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True).stdout.split()
    return [Path(path).parent.name for path in listed or sorted(ROOT.glob('studies/*/losses.csv'))]


@pytest.mark.parametrize('name', studies_in_git())
def test_the_studies_in_git_are_done_and_their_rows_are_recorded(name):
    table, _ = study.load([f'studies/{name}'])
    assert study.check_recorded(table, ()).keys() == table.rows.keys()
    steps = run.last_steps(table)
    for row, seed in itertools.product(table.rows.values(), table.seeds):
        assert steps[f'{row.name}-s{seed}'] == row.steps


# ---------------------------------------------------------------------------
# The runner
def pretend(script, options):
    """Leave the folders and files that a script leaves, in the same formats."""
    place = Path(options.get('predictions', ''))
    if script == 'pretrain.py':
        folder = Path(options['out'], options['name'])
        phases = eval(options['phases'])
        for parent in ('branch_from', 'weights_from'):
            assert Path(options.get(parent, '')).is_dir()
        steps = sorted({*eval(options['save_at']), sum(count for _, count in phases)})
        seed = int(options['seed'])
        fixed = {'lr': float(options['lr']), 'phases': phases, 'seed': seed}
        for step in steps:
            write_sealed(folder / str(step) / 'state.json', {'step': step, 'fixed': fixed})
        write_log(folder, steps, 5.0, row=options['row'], seed=seed)
    elif script == 'finetune.py':
        checkpoint = Path(options['model'])
        name = checkpoint.parent.name
        row, _, seed = name.rpartition('-s')
        end = ''
        if int(checkpoint.name) < max(saved_steps(checkpoint.parent)):
            end = f'-{checkpoint.name}'
        if 'variant' in options:
            end += f'+{options["variant"]}'
        name += end
        about = {'settings': {'steps': int(options['steps'])}}
        if options['untrained'] == 'True':
            name = 'untrained'
        else:
            about['pretraining'] = {'row': row + end, 'seed': int(seed)}
        for lr, number in itertools.product(eval(options['lrs']), eval(options['seeds'])):
            write_predictions(place, answers(2, count=4), f'{name}/SC/words/lr{lr:.0e}_sd{number}', **about)
    elif script == run.BASELINES:
        write_predictions(place, answers(2, count=4), 'lookup/SC/words/lr0e+00_sd0', method='baseline')


@pytest.fixture
def runner(place, monkeypatch):
    """A function that does what `python studies/run.py <the study>` does, but its scripts only pretend: it
    returns (exit code, what is said, their options). Those whose options match `broken` fail."""
    starts = []
    runner = SimpleNamespace(broken='no such words', code=1, said='error: broken\n')

    def start(script, *words, stdout=None, **environment):
        code = 0
        if re.search(runner.broken, ' '.join(words)):
            code = runner.code
            stdout.write(runner.said)
        else:
            options = dict(word[2:].split('=', 1) for word in words)
            starts.append(options | {'script': script})
            pretend(script, options)
        return SimpleNamespace(poll=lambda: code, wait=lambda: code, returncode=code)
    monkeypatch.setattr(run, 'start_script', start)
    monkeypatch.setattr(run, 'interrupt_on_signals', lambda: None)
    monkeypatch.setattr(run.report, 'write_report', lambda study: 0)
    monkeypatch.setattr(run.time, 'sleep', lambda seconds: None)

    def do(*words):
        starts.clear()
        result = run_script('studies.run', place, *words)
        return result.returncode, result.stdout + result.stderr, list(starts)
    runner.do = do
    return runner


def names(starts):
    return [options['name'] for options in starts if options['script'] == 'pretrain.py']


def models(place):
    """{models} of scores.csv"""
    return {line.rpartition(',')[2] for line in (place / 'scores.csv').read_text().splitlines()[1:]}


def test_from_start_to_end_then_nothing_to_do_then_an_arm_more(place, runner):
    """Seed by seed, parents first; each run once; lost folders cost little."""
    code, text, starts = runner.do()
    assert code == 0, text
    rows = 'clm', 'mlm', 'clm-mlm', 'again'
    assert names(starts) == [f'{row}-s{seed}' for seed in (0, 1) for row in rows]
    tuned = [options for options in starts if options['script'] == 'finetune.py']
    assert tuned[-1]['seeds'] == '(10, 11)'     # `untrained` once
    child = next(options for options in starts if options.get('name') == 'clm-mlm-s1')
    assert child['branch_from'] == f'{place}/out/clm-s1/3'
    assert child['corpus'] == f'{place}/corpus'
    of_rows = ('clm-s{}', 'mlm-s{}', 'mlm-s{}-6', 'clm-mlm-s{}', 'again-s{}', 'mlm-s{}-6+causal',
               'clm-mlm-s{}+causal')
    wanted = {name.format(seed) for name in of_rows for seed in (0, 1)}
    assert models(place) == {'lookup', 'untrained'} | wanted
    assert '[24/24]' in text
    assert '0:00:00 left' in text

    for folder in ('out', 'runs/clm-s0', 'runs/mlm-s1'):
        shutil.rmtree(place / folder)
    assert runner.do()[2] == []
    write(place, **{'}\nseeds': THIRD})     # an arm is one line
    code, text, starts = runner.do('--seed=1')
    assert code == 0
    assert names(starts) == ['clm-s1', 'third-s1']    # which begins with clm's checkpoint
    assert names(runner.do()[2]) == ['clm-s0', 'third-s0']
    assert runner.do()[2] == []
    assert {'third-s0', 'third-s1', 'clm-s0'} <= models(place)
    write(place, **{'}\nseeds': THIRD, '(1e-3, 2e-3)': '(1e-3, 2e-3, 4e-3)'})
    shutil.rmtree(place / 'out')
    starts = runner.do('--row=again')[2]    # another rate of fine-tuning is more to do, and needs the model
    assert names(starts) == ['clm-s0', 'again-s0', 'clm-s1', 'again-s1']
    assert {options['lrs'] for options in starts if 'lrs' in options} == {'(0.004,)'}


def test_a_failure_is_told_and_the_others_go_on(place, runner):
    runner.broken = '--name=clm-s1|untrained=True'
    code, text, _ = runner.do()
    assert code == 1
    assert text.count('FAILED: error: broken (') == 2
    assert f'again-s1: NOT STARTED: lacks {place}/out/clm-s1/12' in text
    assert 'start this again' in text
    assert {'mlm-s1', 'mlm-s1-6', 'clm-s0'} <= models(place)
    assert not {'untrained', 'clm-s1', 'clm-mlm-s1'} & models(place)
    runner.broken = 'no such words'
    code, _, starts = runner.do()
    assert code == 0
    assert {'untrained', 'clm-s1', 'clm-mlm-s1'} <= models(place)
    assert names(starts) == ['clm-s1', 'clm-mlm-s1', 'again-s1']


@pytest.mark.parametrize('code, more', [(3, ''), (1, 'torchrun has\na traceback of its own\n')])
def test_a_pretraining_that_a_signal_stopped_has_not_failed(place, runner, code, more):
    """Under torchrun the exit code is not its own."""
    runner.broken = '--name=clm-s1'
    runner.code = code
    runner.said = f'out/clm-s1: stopped at step 7\n{more}'
    result, text, _ = runner.do('--row=clm')
    assert result == 1
    assert 'clm-s1: out/clm-s1: stopped at step 7; run this again to continue' in text
    assert 'failed or stopped; start this again' in text
    assert 'FAILED' not in text


@pytest.mark.parametrize('old, new, words', [
    ("12),), 'save", "12),), 'lr': 0.5, 'save",
     'rows.json: mlm was made with lr = 1.0, not 0.5: give the row'),
    ("'weights_from': 'clm'", "'weights_from': 'mlm'", 'again was made with weights_from = clm, not mlm'),
    ("'lrs': (1e-3", "'steps': 3, 'lrs': (1e-3",
     '/SC/words/lr1e-0._sd.+ was made with steps = 9, not 3: give')])
def test_what_was_made_with_other_settings_is_not_taken_for_it(place, runner, old, new, words):
    """Nor mixed with it: a new seed, too, must be of the same row. It is known of packed runs."""
    runner.do()
    for folder in (place / 'out', *(place / 'runs').glob('*/')):
        shutil.rmtree(folder)
    write(place, **{old: new, '(0, 1)': '(0, 1, 2)'})
    code, text, starts = runner.do()
    assert code == 2
    assert starts == []
    assert re.search(words, text)


def test_a_setting_that_is_no_longer_stated_is_compared_too(place, runner):
    write_json(place / 'rows.json', {'clm': {'lr': 1.0, 'dtype': 'bf16', 'weight_decay': 0.2}})
    code, text, starts = runner.do()
    assert (code, starts) == (2, [])
    assert 'rows.json: clm was made with weight_decay = 0.2, not 0.1: give the row another name' in text


@pytest.mark.parametrize('old, new, words', [
    ("'save_at': (6,)", "'save_at': (6,), 'learning_rate': 1e-3",
     "runs 'mlm': --learning_rate: unknown setting 'learning_rate'; here it is 'lr'"),
    ("'save_at': (6,)", "'save_at': (13,)", "runs 'mlm': --save_at: save_at must be from 1 to 12, not 13"),
    ("'save_at': (6,)", "'save_at': (6,), 'warmup_steps': 13",
     "runs 'mlm': --warmup_steps: warmup_steps must"),
    ("'save_at': (6,)", "'save_at': (6,), 'mask_ratio': '4/10'",
     "runs 'mlm': --mask_ratio: '4/10' is no float"),
    ("(('mlm', 6),)", "(('mlmm', 6),)", "runs 'again': --phases: phases must be (objective, steps) pairs"),
    ("'models': ('*',)", "'models': ('*',), 'stepz': 3",
     "tasks 1: --stepz: unknown setting 'stepz'; the near"),
    ("'models': ('*',)", "'models': ('*',), 'lr': 1e-3", 'tasks 1: lr and seed are of one run'),
    ("'models': ('*',)", "'models': ('*',), 'kind': 'XY'", "tasks 1: --kind: kind is one of SC, TC, QA, IR"),
    ("'models': ('*',)", "'models': ('*',), 'layers': 1", 'tasks 1: causal and layers make another encoder'),
    ("'lrs': (1e-2,)", "'lrs': ('x',)", "tasks 2: --lrs: lrs takes float, not str 'x'"),
    ('(0, 1)', '(0, 0.5)', 'seeds takes int, not float 0.5'),
    ('(0, 1)', '(0, -1)', 'seeds must be at least 0, not -1'),
    ("'clm': 1,", "'clm': 1e999,", "contrasts 'early': weights must be finite, not inf"),
    ('corpus = {', "corpus = {'paths': 'x', ",
     "corpus 'out': --paths: unknown setting 'paths'; the nearest is 'path'")])
def test_a_slip_is_found_before_the_first_job(place, runner, old, new, words):
    """As its script would find it when the job starts, maybe days later; in one line with its table's."""
    write(place, **{old: new})
    for action in ((), ('--dry_run',)):
        code, text, starts = runner.do(*action)
        assert (code, starts) == (2, [])
        line, = text.splitlines()
        assert re.match(rf'error: {place}/config.py:\d+: {re.escape(words)}', line), line


def test_a_baseline_is_handed_what_it_knows(place, runner):
    write(place, **{"'lrs': (1e-3, 2e-3)}": "'lrs': (1e-3, 2e-3), 'batch_size': 4}"})
    code, text, starts = runner.do()
    assert code == 0, text
    told = {options['script']: options.get('batch_size') for options in starts}
    assert told == {'data.py': None, run.BASELINES: None, 'pretrain.py': None, 'finetune.py': '4'}
    simple, = (options for options in starts if options['script'] == run.BASELINES)
    assert {*simple} == {'script', 'kind', 'dataset', 'steps', 'data', 'predictions'}


def test_a_dry_run_starts_nothing_and_a_row_takes_what_it_branches_from(place, runner):
    code, text, starts = runner.do('--dry_run')
    assert re.search(r'(?m)^ *3  clm-mlm +12 steps +clm/3$', text)
    assert '8 pretrainings (4 rows x 2 seeds), 78 steps in all; 24 processes are left' in text
    assert 'not known' in text
    assert (code, starts) == (0, [])
    assert not (place / 'logs').exists()
    assert "no row 'clm-ml', nor number of 1 to 4; the nearest is 'clm-mlm'" in runner.do('--row=clm-ml')[1]
    assert '--seed is one of' in runner.do('--seed=2')[1]
    code, _, starts = runner.do('--row=3', '--seed=0')
    assert code == 0
    assert names(starts) == ['clm-s0', 'clm-mlm-s0']


def test_hours_are_counted_at_the_speed_of_earlier_runs(place):
    """0.02 seconds a token, from one validation to the next: the first has a start-up in it."""
    (place / 'losses.csv').write_text('folder,tokens,seconds\nclm-s0,100,9\nclm-s0,200,11\nmlm-s0,100,50\n')
    asked_for, _ = study.load([str(place)])
    row = asked_for.rows['clm-mlm']
    tokens = 9 * row.cfg.rows_per_step * row.cfg.context       # it branches after step 3 of 12
    jobs = [run.Job('clm-mlm-s1', ['pretrain.py'], 'clm-mlm'), run.Job('clm-mlm-s1 words', ['finetune.py'])]
    hours = 0.02 * tokens / 3600
    assert run.hours_of_pretraining(asked_for, jobs, 1).startswith(f'{hours:.1f}, ')
    assert f'{hours / 4:.1f} with --processes=4' in run.hours_of_pretraining(asked_for, jobs, 4)


# ---------------------------------------------------------------------------
# The scripts themselves
@pytest.fixture
def real(corpus, toy, place):
    """The same study for the true scripts: a small model, and texts of which a word decides."""
    values = {key: value for key, value in SMALL.items() if key not in ('phases', 'keep')}
    (place / 'tiny.py').write_text(''.join(f'{key} = {value!r}\n' for key, value in values.items()))
    settings = json.loads((corpus / 'meta.json').read_text())['settings'] | {'out': str(corpus)}
    (place / 'corpus.py').write_text(''.join(f'{key} = {value!r}\n' for key, value in settings.items()))
    words = place / 'words.py'
    edit(words, 'data = "texts"', f'data = "{data_of(toy, "SC")}"\nmax_length = 20')
    return place


def start(place):
    return subprocess.Popen([sys.executable, 'studies/run.py', place], cwd=ROOT, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def results(place):
    """Of a run to its end: page, tables, and a log but for its seconds."""
    process = start(place)
    text, _ = process.communicate(timeout=900)
    assert process.returncode == 0, text
    files = {name: (place / name).read_bytes() for name in ('report.md', 'scores.csv')}
    return files, log_lines(place / 'out/clm-mlm-s1')


def kill(process, number, draw):
    """SIGKILL of the runner, of one of its children and then of it, or SIGTERM. Its children end with it."""
    path = Path(f'/proc/{process.pid}/task/{process.pid}/children')
    children = path.read_text().split() if path.exists() else []
    if number % 3 == 1 and children:
        os.kill(int(draw.choice(children)), signal.SIGKILL)
    process.send_signal(signal.SIGTERM if number % 3 == 2 else signal.SIGKILL)
    process.communicate(timeout=100)
    while any(os.path.exists(f'/proc/{pid}/exe') for pid in children):     # who has ended has none
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != 'linux', reason='elsewhere children outlive a kill, and have their locks')
def test_a_study_killed_at_random_has_the_same_page(real):
    """Bit for bit: scores, tables and the page; of losses all but the seconds."""
    expected = results(real)
    for name in ('out', 'runs', 'logs'):
        shutil.rmtree(real / name)
    for name in ('sha256.json', 'rows.json', 'losses.csv', 'report.md', 'scores.csv'):
        (real / name).unlink()
    draw = random.Random(10)
    for number in range(10):
        process = start(real)
        time.sleep(draw.uniform(2, 14))
        kill(process, number, draw)
    assert results(real) == expected
    assert len(find_folders(real / 'runs')) == len((real / 'scores.csv').read_text().splitlines()) - 1


def test_a_signal_that_falls_where_exceptions_are_lost_ends_the_study(tmp_path, monkeypatch):
    """As in a hook of a fork, or in a __del__ like this one. Its processes end before it does."""
    script = tmp_path / 'sleep.py'
    script.write_text('import time\ntime.sleep(9)\n')
    started = []

    class Lost:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)

    def popen(*words, start=subprocess.Popen, **options):
        Lost()
        started.append(start(*words, **options))
        return started[-1]
    monkeypatch.setattr(run.subprocess, 'Popen', popen)
    monkeypatch.setattr(run, 'commit', lambda: '')
    jobs = [run.Job(name, [str(script)]) for name in ('a', 'b')]
    cfg = SimpleNamespace(processes=1, torchrun='')
    with pytest.raises(KeyboardInterrupt):
        run.run_blocks(SimpleNamespace(folder=tmp_path, rows={}), {0: jobs}, 2, cfg)
    process, = started      # nothing else was begun
    assert process.returncode == -signal.SIGTERM
    assert (tmp_path / 'sha256.json').exists()      # what it had done is packed
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler


@pytest.mark.skipif(sys.platform != 'linux', reason='elsewhere children outlive a kill')
def test_a_script_ends_with_what_started_it(tmp_path):
    script = tmp_path / 'sleep.py'
    script.write_text('import os, time\nopen("pid", "w").write(str(os.getpid()))\ntime.sleep(60)\n')
    starter = os.fork()
    if not starter:
        run.start_script(str(script), cwd=tmp_path)
        time.sleep(60)
    while not (tmp_path / 'pid').exists() or not (tmp_path / 'pid').read_text():
        time.sleep(0.01)
    child = (tmp_path / 'pid').read_text()
    os.kill(starter, signal.SIGKILL)
    os.waitpid(starter, 0)
    for _ in range(500):
        if not os.path.exists(f'/proc/{child}/exe'):
            return
        time.sleep(0.01)
    pytest.fail('it lives on')


def test_rows_that_rates_are_chosen_on_are_held_out(tmp_path):
    """Of tags and of pairs: no row is in two splits, and no document of a held-out pair is trained on."""
    rows = [{'text': f'text\u2028 {k}', 'label': 'ab'[k % 2]} for k in range(31)]
    pairs = [{'query': f'query {k}', 'positive': f'document {k // 2}'} for k in range(31)]
    for name, content in {'sc': rows, 'ir': pairs}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / 'train.jsonl').write_text(json_lines(content))
        hold_out.hold_out(tmp_path / name)
    parts = [hold_out.read_rows(tmp_path / f'sc_tuning/{split}.jsonl') for split in SPLITS]
    assert [len(part) for part in parts] == [20, 6, 5]
    assert sorted(itertools.chain(*parts), key=rows.index) == rows

    task = Task(kind='IR', dataset='ir', data=str(tmp_path / 'ir_tuning'))
    loaded, _ = KINDS['IR'](task).load()
    trained = {row['positive'] for row in loaded['train']}
    found = set(loaded['corpus'].values())
    assert len(loaded['train']) == 20
    assert len(found) == 6
    assert not trained & found

    (tmp_path / 'sc/train.jsonl').write_text(json_lines([row | {'positive': 'yes'} for row in rows]))
    hold_out.hold_out(tmp_path / 'sc')      # a column of that name alone makes no pairs
    assert [row['text'] for row in hold_out.read_rows(tmp_path / 'sc_tuning/test.jsonl')] == [
        row['text'] for row in parts[2]]
    (tmp_path / 'sc/train.jsonl').write_text(json_lines(rows[:3]))
    refused('has 3 rows, too few for three splits', hold_out.hold_out, tmp_path / 'sc')


# ---------------------------------------------------------------------------
# Choices
def tried(model, settings, loss, **scores):
    """A row with scores in percent: words={1e-3: 50}."""
    fractions = {name: {lr: score / 100 for lr, score in of_rates.items()}
                 for name, of_rates in scores.items()}
    return choices.Tried(model, settings, loss, fractions)


def test_choices_by_hand():
    """The row with the best loss has the worst scores; one that lacks a number ends the contest."""
    low = tried('low', {'lr': 1e-3}, 4.0, words={1e-3: 50, 2e-3: 40}, search={1e-3: 10})
    mid = tried('mid', {'lr': 2e-3}, 4.1, words={1e-3: 50, 2e-3: 60}, search={1e-3: 10})
    high = tried('high', {'lr': 4e-3}, 4.2, words={1e-3: 52, 2e-3: 52}, search={1e-3: 17})
    rows = [low, mid, high]
    assert [round(row.mean, 3) for row in rows] == [0.3, 0.35, 0.345]
    assert choices.best(rows, 'loss') is low
    assert choices.best(rows, 'held-out rows') is mid
    assert high.rates == {'words': 1e-3, 'search': 1e-3}    # of equally good ones the smaller
    partial = tried('partial', {'lr': 8e-3}, 3.9, words={1e-3: 99}, search={1e-3: 12, 2e-3: math.nan})
    assert choices.best([*rows, partial], 'loss') is partial
    assert choices.best([*rows, partial], 'held-out rows') is None
    assert choices.best([partial], 'held-out rows') is partial      # nobody else competes
    assert partial.rates == {'words': 1e-3}
    assert choices.edges(low, rows) == ['lr 0.001', 'words at 1e-03']
    assert choices.edges(mid, rows) == ['words at 2e-03']     # of one rate none is at an edge


def test_the_edges_of_a_grid_are_among_rows_that_are_otherwise_the_same():
    """(rate, ratio): 2 lies between 1 and 4 at ratio 5 alone."""
    rows = [tried(f'{lr}-{ratio}', {'lr': lr, 'ratio': ratio, 'optimizer': 'muon'}, 4.0)
            for lr, ratio in ((1, 5), (2, 5), (4, 5), (2, 6), (8, 6), (2, 4))]
    assert choices.edges(rows[1], rows) == []
    assert choices.edges(rows[2], rows) == ['lr 4', 'ratio 5']
    assert choices.edges(rows[3], rows) == ['lr 2', 'ratio 6']


CHOICE = '''title = 'a grid'
every_run = {{'config': '{folder}/tiny.py'}}
runs = {{
    'clm-1': {{'phases': (('clm', 4), ('mlm', 8)), 'lr': 1.0}},
    'clm-2': {{'phases': (('clm', 4), ('mlm', 8)), 'lr': 2.0}},
    'mlm-1': {{'phases': (('mlm', 12),), 'lr': 1.0}},
}}
seeds = (7, 8)
tasks = ({{'models': ('*',), 'config': '{folder}/words.py', 'data': '{folder}/words', 'lrs': (1e-3, 2e-3)}},)
finetuning_seeds = 1
choose = 'held-out rows'
choices = {{'CLM then MLM': ('clm-1', 'clm-2'), 'MLM': ('mlm-1',)}}
'''
RIGHT = {   # answers of 4, at each rate: clm-2 has the better mean, at its greatest rate
    ('clm-1', 1e-3): 2, ('clm-1', 2e-3): 1, ('clm-2', 1e-3): 1, ('clm-2', 2e-3): 3,
    ('mlm-1', 1e-3): 1, ('mlm-1', 2e-3): 0, ('untrained', 1e-3): 0, ('untrained', 2e-3): 0}


@pytest.fixture
def choosing(place, runner, monkeypatch):
    """A study of choices. Its fine-tunings have as many right answers as RIGHT says, and clm-2 a loss that is
    a nat higher."""
    (place / 'config.py').write_text(CHOICE.format(folder=place))
    (place / 'words').mkdir()
    rows = [{'text': f'text {k}', 'label': 'ab'[k % 2]} for k in range(12)]
    (place / 'words/train.jsonl').write_text(json_lines(rows))

    def write_right(folder, rows, name, write=write_predictions, **about):
        model, *_, last = name.split('/')
        rate = float(last.removeprefix('lr').split('_')[0])
        right = RIGHT[model.split('-s')[0], rate]
        write(folder, answers(right, count=4), name, **about)

    def write_losses(folder, steps, loss, write=write_log, **config):
        write(folder, steps, loss + folder.name.startswith('clm-2'), **config)
    monkeypatch.setitem(pretend.__globals__, 'write_predictions', write_right)
    monkeypatch.setitem(pretend.__globals__, 'write_log', write_losses)
    monkeypatch.setattr(run.report, 'write_report', write_report)
    return place


def test_a_study_chooses_on_rows_that_it_holds_out(choosing, runner):
    code, text, starts = runner.do()
    assert code == 0, text
    tuned = [options for options in starts if options['script'] == 'finetune.py']
    assert {options['data'] for options in tuned} == {f'{choosing}/words_tuning'}
    assert not [options for options in starts if options['script'] == run.BASELINES]
    assert 'CLM then MLM: clm-2, words at 2e-03; at the edge, try more: lr 2, words at 2e-03\n' in text
    table = [line.strip('| ').split(' | ') for line in (choosing / 'report.md').read_text().splitlines()]
    first, second, third = [cells for cells in table if cells[0] in ('CLM then MLM', 'MLM')]
    assert first == ['CLM then MLM', 'clm-1', 'lr 1.0', '4.880', '**1e-03 50.0**, 2e-03 25.0', '50.0']
    assert second[3:6] == ['5.880', '1e-03 25.0, **2e-03 75.0**', '75.0']
    assert second[6].startswith('**chosen**; at the edge')
    assert third[5:] == ['25.0', '**chosen**; at the edge, try more: words at 1e-03']

    held_out = {path: path.read_bytes() for path in (choosing / 'words_tuning').iterdir()}
    shutil.rmtree(choosing / 'words_tuning')
    hold_out.hold_out(choosing / 'words')
    assert {path: path.read_bytes() for path in (choosing / 'words_tuning').iterdir()} == held_out
    shutil.rmtree(choosing / 'out')     # what is packed is chosen from, as in a clone
    for folder in (choosing / 'runs').glob('*/'):
        shutil.rmtree(folder)
    page = (choosing / 'report.md').read_bytes()
    code, text, starts = runner.do()
    assert (code, starts) == (0, [])
    assert (choosing / 'report.md').read_bytes() == page


def test_nothing_is_chosen_by_some_of_the_rates_or_tasks(choosing, runner):
    """A rate is added, and its fine-tunings fail; then a task whose fine-tunings all fail."""
    edit(choosing / 'config.py', '(1e-3, 2e-3)', '(1e-3,)')
    code, text, _ = runner.do()
    assert (code, 'CLM then MLM: clm-1, words at 1e-03' in text) == (0, True)
    edit(choosing / 'config.py', '(1e-3,)', '(1e-3, 2e-3)')
    runner.broken = 'clm-2-s8|mlm-1-s8'
    code, text, _ = runner.do()
    assert code == 1
    assert 'CLM then MLM: nothing is chosen yet: clm-2 lack runs of a seed' in text
    assert 'MLM: mlm-1\n' in text
    assert 'MLM: no rate is chosen yet where mlm-1 lacks runs: words' in text
    page = (choosing / 'report.md').read_text()
    assert '| 1e-03 25.0 |' in page     # what there is, of clm-2, and none of it in bold

    runner.broken = 'no such words'
    assert runner.do()[0] == 0
    table = (choosing / 'config.py').read_text()
    task, = re.findall(r'tasks = \((.*),\)', table)
    more = task.replace("'lrs'", "'dataset': 'more', 'lrs'")
    edit(choosing / 'config.py', f'({task},)', f'({task}, {more})')
    runner.broken = '--dataset=more'
    code, text, _ = runner.do()
    assert 'CLM then MLM: nothing is chosen yet: clm-1, clm-2 lack runs of a seed' in text


def test_training_rows_that_are_not_there_yet_are_named_with_their_maker(choosing, runner):
    (choosing / 'words/train.jsonl').unlink()
    edit(choosing / 'config.py', "'lrs'", "'made_by': 'make texts', 'lrs'")
    code, text, starts = runner.do()
    assert (code, len(names(starts))) == (2, 0)
    assert f'{choosing}/words/train.jsonl: is not there, so no third of its rows' in text
    assert text.endswith('first run: make texts\n')


def test_a_study_chooses_by_loss_without_any_task(choosing, runner):
    """Once all seeds are there."""
    text = CHOICE.format(folder=choosing).replace("'held-out rows'", "'loss'")
    (choosing / 'config.py').write_text(re.sub('(?m)^tasks = .*$', '', text))
    assert runner.do('--seed=7')[0] == 0
    result = run_script('studies.report', choosing)
    assert result.returncode == 1
    assert 'CLM then MLM: nothing is chosen yet: clm-1, clm-2 lack runs of a seed' in result.stderr
    code, text, _ = runner.do()
    assert code == 0, text
    assert 'CLM then MLM: clm-1; at the edge, try more: lr 1\nMLM: mlm-1\n' in text


@pytest.mark.parametrize('words, changes', [
    ('choose goes with `choices`, and without contrasts', {"choose = 'held-out rows'": ''}),
    ("choices 'CLM then MLM': no row 'clm-3'", {"'clm-2')": "'clm-3')"}),
    ("choices 'CLM then MLM': no entry of tasks has clm-2 on words", {"('*',)": "('clm-1',)"}),
    ("choices 'MLM': rows end with clm and mlm, whose losses do not compare",
     {"'held-out rows'": "'loss'", "(('mlm', 12),)": "(('clm', 12),)", "('mlm-1',)": "('mlm-1', 'clm-1')"}),
    ("tasks 1: choose = 'held-out rows' wants `data`, a folder whose", {"'lrs'": "'train': 'small', 'lrs'"}),
    ("tasks 1: choose = 'held-out rows' wants `data`", {"'lrs'": "'pair': ('{a}', '{b}'), 'lrs'"})])
def test_a_choice_that_cannot_be_made_is_refused(choosing, words, changes):
    for old, new in changes.items():
        edit(choosing / 'config.py', old, new)
    refused(re.escape(words), study.load, [str(choosing)])

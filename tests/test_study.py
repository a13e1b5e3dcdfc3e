"""Studies: tables and their errors; what is missing, in which order, behind failures, kills, lost folders."""
import gzip
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from conftest import ROOT, SMALL, log_lines, one_line_error, run_process
from nanoencoder.judging import paper, studies

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
    {{'models': ('clm-6', 'clm-mlm'), 'variant': 'causal', 'causal': True, 'lrs': (1e-2,)}})
finetuning_seeds = 2
contrasts = {{'early': {{'rule': 'better', 'weights': {{'clm': 1, 'mlm@2e-3': -0.5, 'clm-mlm+causal': -0.5}},
                       'datasets': ('words',)}}}}
ladder = {{'CLM then MLM': ('mlm-6', 'clm-mlm')}}
out = "{folder}/out"
folder = "{folder}/study"
'''
THIRD = "    'third': {'phases': (('clm', 6), ('mlm', 6)), 'branch_from': 'clm/6'},\n}\nseeds"
# In place of all scripts: folders and files as theirs, without torch. Each start is noted.
FAKE = '''
import ast, gzip, itertools, json, re, sys, time
from pathlib import Path
if '--each' in sys.argv:
    names = 'name lr phases save_at branch_from weights_from variant causal steps template lrs'
    for words in json.load(sys.stdin):
        settings = {'lr': 1, 'steps': 9, 'weights_from': '', 'template': 'x',
                    'out': str(Path(__file__).with_name('corpus'))}
        for name, value in (word[2:].split('=') for word in words if word.startswith('--')):
            if name not in names.split():
                sys.exit(f'error: --{name}: unknown setting')
            settings[name] = ast.literal_eval(value) if name in ('lr', 'steps', 'phases') else value
        print(json.dumps(settings))
    sys.exit()
words = [word for word in sys.argv[1:] if not word.startswith('--')]
options = dict((word[2:] + '=').split('=')[:2] for word in sys.argv[1:] if word.startswith('--'))
here, script = Path(__file__).parent, Path(__file__).name
with open(here / 'starts.txt', 'a') as file:
    file.write(' '.join([script, *sys.argv[1:]]) + '\\n')
def dump(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix('.tmp').write_text(text)
    path.with_suffix('.tmp').rename(path)
def whole(folder, name, content):   # after some work
    time.sleep(float((here / 'pause').read_text()))
    dump(folder.with_name('.new') / name, json.dumps(content))
    if not folder.exists():
        folder.with_name('.new').rename(folder)
if (here / 'broken').exists() and re.search((here / 'broken').read_text(), ' '.join(sys.argv)):
    sys.exit('error: broken')
if script == 'data.py':
    dump(here / 'corpus/meta.json', '{"settings": {}}')
elif script == 'pretrain.py':
    run, phases = Path(options['out'], options['name']), ast.literal_eval(options['phases'])
    total = sum(n for _, n in phases)
    if not any(run.glob('[0-9]*')):
        assert all(Path(options.get(name) or '.').is_dir() for name in ('branch_from', 'weights_from'))
    dump(run / 'total', str(total))
    steps = sorted({*ast.literal_eval(options['save_at']), total})
    for k, step in enumerate(steps, 1):
        dump(run / 'log.jsonl', ' '.join(map(str, steps[:k])))
        fixed = {'lr': float(options.get('lr', 1)), 'phases': phases, 'seed': int(options['seed'])}
        settings = {'weights_from': options.get('weights_from', '')}
        whole(run / str(step), 'state.json', {'fixed': fixed, 'settings': settings})
elif script == 'finetune.py':
    text = Path(words[0]).read_text()
    kind, dataset = (re.search(name + ' = "(.*)"', text)[1] for name in ('kind', 'dataset'))
    model, lrs, seeds = Path(options.get('model', '')), [0.0], [0]
    name = 'lookup' if 'baseline' in options else 'untrained' if 'untrained' in options else model.parent.name
    if name == model.parent.name and model.name != (model.parent / 'total').read_text():
        name += '-' + model.name
    if 'baseline' not in options:
        assert model.is_dir()
        lrs, seeds = (ast.literal_eval(options[key]) for key in ('lrs', 'seeds'))
    folder = name + ('+' + options['variant'] if 'variant' in options else '')
    for lr, seed in itertools.product(lrs, seeds):
        path = Path(options['predictions'], folder, kind, dataset, f'lr{lr:.0e}_sd{seed}')
        about = {'settings': {'steps': int(options.get('steps', 9)), 'lr': lr, 'seed': seed},
                 'rows': {'template': options.get('template', 'x')}}
        if name[-3:-1] == '-s':
            fixed = json.loads((model / 'state.json').read_text())['fixed']
            about['pretraining'] = {'row': name[:-3], 'seed': fixed['seed'], 'fixed': fixed}
        whole(path, 'run.json', {} if 'baseline' in options else about)
elif words[0] == 'pack':
    def add(path, lines):
        old = gzip.open(path, 'rt').read().splitlines() if path.exists() else []
        path.parent.mkdir(exist_ok=True)
        with gzip.open(path.with_suffix('.tmp'), 'wt') as file:
            for line in sorted({*old, *lines}, key=lambda line: (len(line), line)):
                file.write(line + '\\n')
        path.with_suffix('.tmp').rename(path)
    root = Path(words[1], 'runs')
    add(root / 'all.jsonl.gz', [
        json.dumps({'run': str(path.parent.relative_to(root)), 'about': json.loads(path.read_text())})
        for path in root.glob('*/*/*/[!.]*/run.json')])
    add(Path(words[1], 'losses.gz'), [f'{Path(run).name},{step}' for run in words[2:]
                                      for step in Path(run, 'log.jsonl').read_text().split()])
    dump(Path(words[1], 'losses.csv'), 'folder,step\\n' + gzip.open(Path(words[1], 'losses.gz'), 'rt').read())
else:
    folder = Path(re.search('(?m)^folder = "(.*)"', Path(words[1]).read_text())[1])
    runs = gzip.open(folder / 'runs/all.jsonl.gz', 'rt').read()
    dump(folder / 'report.md', runs + (folder / 'losses.csv').read_text())
'''


@pytest.fixture
def place(tmp_path):
    """A folder with a copy of study.py among scripts that only seem to work, and a study."""
    shutil.copy(ROOT / 'study.py', tmp_path)
    for name in ('data.py', 'pretrain.py', 'finetune.py', 'evaluate.py'):
        (tmp_path / name).write_text(FAKE)
    (tmp_path / 'pause').write_text('0')
    (tmp_path / 'tiny.py').write_text('')
    (tmp_path / 'corpus.py').write_text(f'out = "{tmp_path}/corpus"\n')
    (tmp_path / 'words.py').write_text('kind = "SC"\ndataset = "words"\n')
    write(tmp_path)
    return tmp_path


def write(place, **changes):
    """The study's config; `changes` are texts to replace."""
    text = STUDY.format(folder=place)
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (place / 'test.py').write_text(text)


def load(place):
    return studies.load([str(place / 'test.py')])[0]


def start(place, *options):
    folder = place if (place / 'study.py').exists() else ROOT
    return subprocess.Popen([sys.executable, folder / 'study.py', place / 'test.py', *options], cwd=folder,
                            env=os.environ | {'PYTHONPATH': str(ROOT)}, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT)


def run(place, *options, timeout=100):
    """(exit code, what it prints, the processes that it starts)."""
    (place / 'starts.txt').write_text('')
    process = start(place, *options)
    text = process.communicate(timeout=timeout)[0]
    return process.returncode, text, (place / 'starts.txt').read_text().splitlines()


def done(place):
    """{(model, rate, seed)} of the packed runs."""
    runs = [json.loads(line)['run'] for line in gzip.open(place / 'study/runs/all.jsonl.gz')]
    return {(run.split('/')[0], *re.search('lr(.*)_sd(.*)', run).groups()) for run in runs}


def models(place):
    return {model for model, *_ in done(place)}


def test_the_graph_by_hand(place):
    study = load(place)
    assert [*study.rows] == ['clm', 'mlm', 'clm-mlm', 'again']
    assert [row.steps for row in study.rows.values()] == [12, 12, 12, 6]
    assert study.rows['clm-mlm'].phases == ['clm'] * 3 + ['mlm'] * 9
    assert [(row.begins, row.parent, row.parent_step) for row in study.rows.values()] == [
        ('', '', 0), ('', '', 0), ('branch_from', 'clm', 3), ('weights_from', 'clm', 12)]
    assert {name: row.save_at - {row.steps} for name, row in study.rows.items()} == {
        'clm': {3, 6}, 'mlm': {6}, 'clm-mlm': set(), 'again': set()}
    plain, causal = study.finetunings
    assert {*plain.models} == {'untrained', 'clm', 'mlm', 'mlm-6', 'clm-mlm', 'again'}
    assert (plain.datasets, plain.lrs, plain.variant) == (['words'], (1e-3, 2e-3), '')
    assert (causal.models, causal.lrs) == ({'clm-6': ('clm', 6), 'clm-mlm': ('clm-mlm', 12)}, (1e-2,))
    weights = {('clm', None): 1.0, ('mlm', 2e-3): -0.5, ('clm-mlm+causal', None): -0.5}
    assert study.comparisons == [studies.Contrast('early', 'better', weights, ('words',))]


@pytest.mark.parametrize('old, new, line, words', [
    ('clm/3', 'clmm/3', 3, "runs 'clm-mlm': branch_from: no row 'clmm' above this one; the nearest is 'clm'"),
    ('clm/3', 'clm/4', 3, 'branch_from clm/4: one ends there, or they differ before'),
    ("'again'", "'mlm'", 3, "runs has 'mlm' twice"),
    ("(('mlm', 6),)", "('mlm', 6)", 3, "runs 'again': phases are pairs, such as"),
    ("'clm-6',", "'clmm*',", 11, "tasks 2: no row 'clmm*'; the nearest is 'clm'"),
    ("'variant': 'causal', ", '', 11, 'clm-mlm on words is there twice; one of them needs a variant'),
    (", 'lrs': (1e-3, 2e-3)}", '}', 11, "tasks 1: has no 'lrs'"),
    ("(0, 1)", '(0.5,)', 9, 'seeds takes int, not float 0.5'),
    ("(0, 1)", '(-1,)', 9, 'seeds must be at least 0, not -1'),
    ("(0, 1)", '(0, 0)', 9, 'seeds are different numbers, one or more, not (0, 0)'),
    ("(0, 1)", '()', 9, 'seeds are different numbers, one or more, not ()'),
    ("'again':", "'untrained':", 3, "runs 'untrained': is the name of a model with new weights; give"),
    ('(1e-3, 2e-3)', "('1e-3',)", 11, "tasks 1: lrs takes float, not str '1e-3'"),
    ('(1e-3, 2e-3)', '(-1e-3,)', 11, 'tasks 1: lrs must be at least 0, not -0.001'),
    ("'clm': 1,", "'clm': 0,", 15, "contrasts 'early': clm has weight 0; leave it out"),
    ("'clm': 1,", "'clm': 1e999,", 15, "contrasts 'early': weight must be finite, not inf"),
    ("'clm': 1,", "'clm': '1',", 15, "contrasts 'early': weight takes float, not str '1'"),
    ("'better'", "'beter'", 15, "rule is one of better, at_least, no_difference, not 'beter'"),
    ('mlm@2e-3', 'mlm@3e-3', 15, 'no entry of tasks has mlm@3e-3 on words'),
    ("('mlm-6', 'clm-mlm')", "('clm-mlm', 'mlm-7/')", 17, "no row 'mlm-7/'; the nearest is 'mlm-6'")])
def test_an_error_names_the_table_and_the_nearest_name(place, old, new, line, words):
    write(place, **{old: new})
    with pytest.raises(ValueError) as error:
        load(place)
    assert str(error.value).startswith(f'{place}/test.py:{line}: ') and words in str(error.value)


@pytest.mark.parametrize('old, new, words', [
    ("'save_at': ", "'save_att': ", 'row 2: --save_att: unknown setting'),
    ("'causal': ", "'causl': ", 'tasks 2: --causl: unknown setting'),
    ("/corpus.py'", "/corpus.py', 'pth': 'x'", 'corpus 1: --pth: unknown setting'),
    ("'save_at': ", "'seed': ", r"\S+:3: runs 'mlm': seed is what a study gives each run; leave it out")])
def test_a_misspelt_setting_is_refused_before_anything_starts(place, old, new, words):
    write(place, **{old: new})
    code, text, starts = run(place)
    assert (code, starts) == (2, []) and re.match(f'error: {words}', text)


def test_the_studies_of_the_repository():
    """The paper's has its 50 models, 15,000 fine-tunings and 18,000 scores; one_gpu has three arms."""
    whole, demo, one_gpu = (studies.load([str(ROOT / f'configs/studies/{name}.py')])[0]
                            for name in ('paper', 'demo', 'one_gpu'))
    counts = [(len(line.models) * len(line.lrs) * 5, len(line.datasets)) for line in whole.finetunings]
    assert sum(runs for runs, _ in counts) == 15_000 and sum(runs * sets for runs, sets in counts) == 18_000
    assert {*paper.models()} == {*whole.models} - {'untrained'} == {
        name for line in whole.finetunings for name in line.models}
    assert [row.steps for row in demo.rows.values()] == [1_800] * 2
    assert demo.rows['clm25-mlm-1800'].phases.count('clm') / 1_800 == 0.25
    assert [len(arm) for arm in one_gpu.ladder.values()] == [4, 4, 4] and len(one_gpu.rows) == 12


def names_of(starts):
    return [re.search(r'--name=(\S+)', line)[1] for line in starts if 'pretrain.py' in line]


def test_from_start_to_end_then_nothing_to_do_then_an_arm_more(place):
    """Seed by seed, parents first; each run once; the second start only packs and reports."""
    code, text, starts = run(place)
    assert code == 0, text
    scripts = [line.split()[0] for line in starts]
    first, second = scripts[:15], scripts[15:]
    assert Counter(first) == {'data.py': 1, 'pretrain.py': 4, 'finetune.py': 9, 'evaluate.py': 1}
    assert Counter(second) == {'pretrain.py': 4, 'finetune.py': 7, 'evaluate.py': 2}    # and the report
    assert all('-s1' not in line for line in starts[:14])
    names = names_of(starts)
    for seed, of_seed in ((0, names[:4]), (1, names[4:8])):     # a process may say late that it has begun
        assert {*of_seed} == {f'{row}-s{seed}' for row in ('clm', 'mlm', 'clm-mlm', 'again')}
        assert of_seed.index(f'clm-s{seed}') < min(map(of_seed.index, (f'clm-mlm-s{seed}', f'again-s{seed}')))
    assert f'--branch_from={place}/out/clm-s1/3' in ''.join(starts)
    assert {row for row in done(place) if row[0] == 'mlm-s1'} == {
        ('mlm-s1', lr, seed) for seed in ('10', '11') for lr in ('1e-03', '2e-03')}
    assert models(place) == {'lookup', 'untrained'} | {
        f'{name}-s{seed}{more}' for seed in (0, 1) for name, more in (
            ('clm', ''), ('mlm', ''), ('mlm', '-6'), ('clm-mlm', ''), ('again', ''), ('clm', '-6+causal'),
            ('clm-mlm', '+causal'))}
    assert '[25/25]' in text and text.count('FAILED') == 0 and '0:00:00 left' in text
    code, text, lines = run(place)
    assert [line.split()[1] for line in lines] == ['pack', 'report'] and code == 0 and 'nothing to do' in text
    # lost folders cost little
    shutil.rmtree(place / 'out')
    for folder in place.glob('study/runs/*/'):
        shutil.rmtree(folder)
    assert 'nothing to do' in run(place)[1]
    write(place, **{'}\nseeds': THIRD})     # an arm is one line
    code, text, starts = run(place, '--seed=1')
    assert code == 0 and names_of(starts) == ['clm-s1', 'third-s1']    # which begins with clm's checkpoint
    assert ('third-s1', '1e-03', '10') in done(place) and ('clm-s0', '1e-03', '0') in done(place)
    assert names_of(run(place)[2]) == ['clm-s0', 'third-s0'] and 'nothing to do' in run(place)[1]
    write(place, **{'}\nseeds': THIRD, "'clm-6', 'clm-mlm')": "'clm-6', 'clm-mlm', 'again')"})
    assert names_of(run(place)[2]) == ['again-s0', 'again-s1']    # a new fine-tuning needs it
    assert 'nothing to do' in run(place)[1]


def test_a_failure_is_told_and_the_others_go_on(place):
    (place / 'broken').write_text('--name=clm-s1|untrained=True')
    code, text, starts = run(place)
    assert code == 1 and text.count('FAILED: error: broken (') == 2
    assert 'again-s1: NOT STARTED: lacks one of ' in text and 'start this again' in text
    assert {'mlm-s1', 'mlm-s1-6', 'clm-s0'} <= models(place)
    assert not {'untrained', 'clm-s1', 'clm-mlm-s1'} & models(place)
    (place / 'broken').unlink()
    code, text, starts = run(place)
    assert code == 0 and {'untrained', 'clm-s1', 'clm-mlm-s1'} <= models(place)
    assert not any('name=mlm-s1' in line or 'name=clm-s0' in line for line in starts)


def test_what_was_made_with_other_settings_is_not_taken_for_it(place):
    """Another learning rate of fine-tuning is more to do; one of pretraining would be another row. So it is
    for packed runs, and for settings that a row no longer has."""
    again = {"'weights_from': 'clm'": "'weights_from': 'clm', 'lr': 0.5"}

    def refused(words, **changes):
        write(place, **changes)
        code, text, starts = run(place)
        assert (code, starts) == (2, []) and words in text
    run(place)
    write(place, **{'(1e-3, 2e-3)': '(1e-3, 2e-3, 4e-3)'})
    starts = run(place)[2]
    assert len(starts) == 11 + 3 and not any('0.001' in line for line in starts)   # the new rate alone
    refused(f'again-s0/6/state.json: was made with weights_from = {place}/out/clm-s0/12',
            **{"'weights_from': 'clm'": "'weights_from': 'mlm'"})
    for folder in place.glob('study/runs/*/'):
        shutil.rmtree(folder)
    for name, old, new in (('steps', 9, 3), ('template', 'x', 'y')):
        refused(f'/SC/words/lr1e-03_sd0: was made with {name} = {old}, not {new}',
                **{"'lrs': (1e-3": f"'{name}': {new!r}, 'lrs': (1e-3"})
    for seed in (0, 1):
        shutil.rmtree(place / f'out/again-s{seed}')
    refused('study/rows.json: again: was made with lr = 1.0, not 0.5', **again)
    (place / 'study/rows.json').unlink()
    refused('runs/again-s0/SC/words/lr1e-03_sd0: was made with lr = 1.0, not 0.5', **again)
    write(place, **again | {"'again'": "'third'"})
    assert run(place)[0] == 0 and 'third-s1' in models(place)
    shutil.rmtree(place / 'study/runs')
    refused('out/third-s0/6/state.json: was made with lr = 0.5, not 1: ', **{"'again'": "'third'"})
    shutil.copy(place / 'out/mlm-s0/12/state.json', place / 'out/mlm-s1/12/state.json')
    refused('out/mlm-s1/12/state.json: was made with seed = 0, not 1')


def test_a_packed_study_without_tasks_sees_that_a_row_has_changed(place):
    """losses.csv holds no settings. A pack of before rows.json says that nothing is known; a new seed, too,
    must be of the same row."""
    text = (place / 'test.py').read_text()
    for table in ('tasks', 'contrasts', 'ladder'):
        text = re.sub(rf'(?ms)^{table} = .*?(?=^\w)', '', text)
    (place / 'test.py').write_text(text)
    assert run(place)[0] == 0
    shutil.rmtree(place / 'out')
    assert 'nothing to do' in run(place)[1]
    for old, new, words in (
            ("12),), 'save_at'", "12),), 'lr': 0.5, 'save_at'",
             'rows.json: mlm: was made with lr = 1.0, not 0.5'),
            ("'weights_from': 'clm'", "'weights_from': 'mlm'",
             'rows.json: again: was made with weights_from = clm, not mlm')):
        (place / 'test.py').write_text(text.replace(old, new).replace('seeds = (0, 1)', 'seeds = (0, 1, 2)'))
        code, told, starts = run(place)
        assert (code, starts) == (2, []) and words in told
    (place / 'test.py').write_text(text)
    recorded = (place / 'study/rows.json').read_text()
    (place / 'study/rows.json').write_text(recorded[:-9])
    assert 'rows.json: not valid JSON' in run(place)[1]


COMMITTED = [path.parent.name for path in sorted(ROOT.glob('studies/*/losses.csv'))]


@pytest.mark.parametrize('name', COMMITTED)
def test_rows_of_the_committed_studies_are_recorded(name):
    study = studies.load([str(ROOT / f'configs/studies/{name}.py')])[0]
    recorded = json.loads((ROOT / f'studies/{name}/rows.json').read_text())
    assert recorded.keys() == study.rows.keys()
    for row in study.rows.values():
        made = recorded[row.name]
        assert made['lr'] == row.settings['lr'] and made['decay_steps'] == round(
            row.settings['decay_steps'] * row.steps)
        assert made['phases'] == [[*phase] for phase in row.settings['phases']] and made['optimizer'] == \
            row.settings.get('optimizer', 'adamw')


def test_a_committed_study_refuses_a_changed_row_and_a_task_that_is_gone(tmp_path):
    """The packs of `small` name no learning rate of pretraining."""
    text = (ROOT / 'configs/studies/small.py').read_text()
    changed = tmp_path / 'small.py'
    changed.write_text(text.replace("'mlm-1800': {'lr': 3e-3", "'mlm-1800': {'lr': 1e-5"))
    result = run_process('study.py', changed, '--dry_run')
    one_line_error(result, r'studies/small/rows.json: mlm-1800: was made with lr = 0.003, not 1e-05')
    result = run_process('study.py', 'configs/studies/small.py', '--dry_run')
    assert result.returncode == 0 and result.stderr == '' and '; 0 processes are left' in result.stdout
    result = run_process('study.py', 'configs/studies/small.py', f'--folder={tmp_path}/again', '--dry_run')
    one_line_error(result, r'tasks \d+: docs has no task docs_pairs any more, only docs_ir, docs_tc;')


def test_a_dry_run_starts_nothing_and_a_row_takes_what_it_branches_from(place):
    code, text, starts = run(place, '--dry_run')
    assert re.search(r'(?m)^ *3  clm-mlm +12 +9 +clm/3$', text)
    assert ('8 pretrainings (4 rows x 2 seeds) of 78 steps; 25 processes are left' in text
            and (code, starts) == (0, []) and not (place / 'study').exists())
    assert "no row 'clm-ml', nor number of 1 to 4; the nearest is 'clm-mlm'" in run(place, '--row=clm-ml')[1]
    assert '--seed is one of' in run(place, '--seed=2')[1]
    assert '; 5 processes are left' in run(place, '--row=clm-mlm', '--seed=1', '--dry_run')[1]
    code, _, starts = run(place, '--row=3', '--seed=0')
    assert code == 0 and names_of(starts) == ['clm-s0', 'clm-mlm-s0'] and 'report' not in ''.join(starts)


def kill(process, number, rng):
    """SIGKILL of study.py alone or of a child first, or SIGTERM. Its children end with it."""
    path = Path(f'/proc/{process.pid}/task/{process.pid}/children')
    children = path.read_text().split() if path.exists() else []
    if number % 3 == 1 and children:
        os.kill(int(rng.choice(children)), signal.SIGKILL)
        time.sleep(0.5)
    process.send_signal(signal.SIGTERM if number % 3 == 2 else signal.SIGKILL)
    process.communicate(timeout=100)
    until = time.monotonic() + 60
    while any(os.path.exists(f'/proc/{pid}/exe') for pid in children):     # who has ended has none
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.fixture
def real(corpus, tmp_path):
    """The same study for the true scripts: a small model, and titles with a label."""
    values = {key: value for key, value in SMALL.items() if key not in ('phases', 'keep')}
    (tmp_path / 'tiny.py').write_text(''.join(f'{key} = {value!r}\n' for key, value in values.items()))
    settings = json.loads((corpus / 'meta.json').read_text())['settings'] | {'out': str(corpus)}
    (tmp_path / 'corpus.py').write_text(''.join(f'{key} = {value!r}\n' for key, value in settings.items()))
    rng = random.Random(0)
    for split, count in (('train', 96), ('validation', 24), ('test', 24)):
        rows = [(rng.choice(['mean of it', 'a random matrix']), rng.choice('xyz')) for _ in range(count)]
        (tmp_path / f'{split}.csv').write_text('text,label\n' + ''.join(
            f'{text} {more},{int("mean" in text)}\n' for text, more in rows))
    (tmp_path / 'words.py').write_text(
        'kind = "SC"\ndataset = "words"\n' + f'data = "{tmp_path}"\ntemplate = "{{text}}"\n'
        'label = "label"\nlabels = ("0", "1")\nsteps = 3\nmax_length = 20\n')
    write(tmp_path)
    return tmp_path


def report(place):
    return {path.name: path.read_bytes() for path in (place / 'study').glob('*')
            if path.suffix in ('.md', '.csv') and path.name != 'losses.csv'}


@pytest.mark.slow
@pytest.mark.parametrize('scripts, kills, least, most', [
    pytest.param('place', 6, 0.2, 1.2, marks=pytest.mark.skipif(
        sys.platform != 'linux', reason='elsewhere children outlive a kill, and have their locks')),
    ('real', 10, 2, 14)])
def test_a_study_killed_at_random_has_the_same_report(scripts, kills, least, most, request):
    """Bit for bit: scores, tables and the page; of losses all but the seconds."""
    place, rng = request.getfixturevalue(scripts), random.Random(kills)

    def results():
        code, text, _ = run(place, timeout=900 if scripts == 'real' else 100)
        assert code == 0, text
        return report(place), scripts == 'place' or log_lines(place / 'out/clm-mlm-s1')
    expected = results()
    assert ({'report.md', 'scores.csv'} if scripts == 'real' else {'report.md'}) <= expected[0].keys()
    for name in ('study', 'out'):
        shutil.rmtree(place / name)
    (place / 'pause').write_text('0.05')    # of the scripts that only seem to work
    for number in range(kills):
        process = start(place)
        time.sleep(rng.uniform(least, most))
        kill(process, number, rng)
    assert results() == expected
    assert 'nothing to do' in run(place)[1] and report(place) == expected[0]

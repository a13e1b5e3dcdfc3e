"""Settings: what files and command lines may say, and what they are told when they may not."""
import ast
import importlib.metadata
import io
import itertools
import os
import runpy
import sys
from dataclasses import dataclass

import pytest
import torch

import evaluate
import finetune
import minimal_pairs
import pretrain
from conftest import ROOT, refused, run_process
from nanoencoder import prepare
from nanoencoder.settings import NAMES_ELSEWHERE, check, leaves, parse, run_main, setting


@dataclass(frozen=True)
class Example:
    steps: int = 10      # of training
    lr: float = 1e-3
    name: str = ''
    compile: bool = False
    phases: tuple = ()
    share: float = setting(0.5, 0, 1)
    mode: str = setting('a', choices=('a', 'b'))
    numbers: tuple = setting((), 0, of=int)
    portion: int = setting(3, 1, is_share=True)

    def __post_init__(self):
        check(self)


def write(folder, text, name='run.py'):
    (folder / name).write_text(text)
    return str(folder / name)


def test_order_of_precedence(tmp_path):
    write(tmp_path, 'steps = 1\nlr = 2\nname = "base"\n', 'base.py')
    path = write(tmp_path, 'base = "base.py"\nname = "run"  # a comment\n')
    cfg, actions = parse(Example, [path, '--lr=0.5', '--compile', '--phases=(("clm", 2_0),)', '--dry_run'],
                         {'dry_run': (False, ''), 'part': (-1, '')})
    assert cfg == Example(1, 0.5, 'run', True, (('clm', 20),))
    assert vars(actions) == {'dry_run': True, 'part': -1}
    assert type(parse(Example, [path])[0].lr) is float  # an int will do for a float
    assert parse(Example, ['--name=1e-3'])[0].name == '1e-3'  # a str is taken as typed
    template = '--name=Premise: {a}\nHypothesis: {b}'
    cfg, actions = parse(Example, [template, '--part=-1'], {'part': (-1, '', 1, 9)})
    assert '\n' in cfg.name
    assert actions.part == -1     # a default may lie outside of its range


def test_a_tilde_before_a_path_is_the_home_folder(tmp_path, monkeypatch):
    """In a config and on the command line, which no shell expands there, also of each of several paths."""
    monkeypatch.setenv('HOME', '/home/me')
    path = write(tmp_path, 'name = "~/a, b/~/c, ~/d"\n')
    assert parse(Example, [path])[0].name == '/home/me/a, b/~/c, /home/me/d'
    _, actions = parse(Example, ['--out=~/texts'], {'out': ('', '')})
    assert actions.out == '/home/me/texts'
    assert parse(Example, ['--name=~mean~'])[0].name == '~mean~'


@pytest.mark.parametrize('given, words', [     # a file, or words of a command line
    ('steps = 1\nstep = 2\n', "run.py:2.*'step'.*'steps'"),
    ('lr = "5e-4"\n', 'run.py:1.*lr takes float.*5e-4'),
    ('steps = 1.0\n', 'run.py:1.*steps takes int, not float'),
    ('steps = 1\nlr = 1.0\nsteps = 2\n', 'run.py:3.*steps is set twice.*run.py:1'),
    ('name = open("executed", "w")\n', 'run.py:1.*a value is a literal: nothing is computed'),
    ('steps: int = 3\n', 'run.py:1.*steps: int = 3'),
    ('steps = = 3\n', 'run.py:1.*steps = = 3'),
    ('steps = depth = 3\n', 'run.py:1.*only `name = value` lines'),
    ('steps = 1\nbase = "x.py"\n', 'run.py:2.*first line'),
    ('share = 1.5\n', 'run.py:1.*share must be from 0 to 1, not 1.5'),
    ('parts = 1\n', "run.py:1: unknown setting 'parts'"),     # it is an action
    ('base = "absent.py"\n', 'absent.py.*No such file'),
    ('base = 7\n', 'run.py:1: `base` names a file'),
    ('base = "run.py"\n', 'run.py:1: the base of this file leads back to it'),
    (f'steps = {"-" * 5_000}1\n', 'run.py: not valid Python'),
    (f'steps = {"-" * 500}"1"\n', 'run.py:1.*a value is a literal: nothing is computed'),
    ('name = "\0"', 'run.py.*not valid Python.*null byte'),
    (['--steps=' + '-' * 5_000 + '1'], "--steps: '-+ is no int"),
    (['--phases={[1]}'], '--phases: .* is no tuple'),
    (['--numbers=(1, "x")'], "--numbers: numbers takes int, not str 'x'"),
    (['--numbers=(1, -2)'], '--numbers: numbers must be at least 0, not -2'),
    (['--portion=1.5'], '--portion: portion takes int, not float 1.5'),
    (['--stepz=3'], "'stepz'.*'steps'"),
    (['--steps=3', '--steps=3'], '--steps.*twice'),
    (['--steps'], '--steps='),
    (['--steps=three'], "'three'.*int"),
    (['-steps=3'], '--name=value'),
    (['--steps=3', 'run.py'], "'run.py'.*--name=value"),
    (['--lr=1e999'], '--lr: lr must be finite, not inf'),
    (['--parts=0'], '--parts: parts must be from 1 to 9, not 0'),
    (['--name=x', '--mode=of name it'], '--mode: mode is one of a, b, not'),    # `name` is a setting, too
    (['--warmup=3'], "unknown setting 'warmup'; they are steps, lr, name"),
    (['run'], 'run: cannot read this config')])
def test_mistakes_in_a_file_and_on_the_command_line(tmp_path, given, words):
    if type(given) is str:
        given = [write(tmp_path, given)]
    refused(words, parse, Example, given, {'parts': (-1, '', 1, 9)})


@pytest.mark.parametrize('settings, word, told', [
    (pretrain.Settings, 'learning_rate', "here it is 'lr'"),
    (pretrain.Settings, 'dry_run', '--help lists them'),            # near to none of ours
    (finetune.Settings, 'max_steps', "the nearest is 'steps'"),     # it has no phases
    (finetune.Settings, 'num_train_epochs', "here it is 'epochs'")])
def test_names_of_other_libraries_are_answered_with_ours(settings, word, told):
    refused(f'--{word}: unknown setting {word!r}; {told}', parse, settings, [f'--{word}=1'])


def test_each_of_those_names_leads_to_a_setting():
    ours = leaves(pretrain.Settings) | leaves(finetune.Settings)
    assert set(NAMES_ELSEWHERE.values()) <= ours.keys()


@pytest.mark.parametrize('error, message', [
    (MemoryError('8 TiB'), 'out of memory: 8 TiB'),
    (torch.OutOfMemoryError('CUDA'), 'out of memory: CUDA'),
    (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 'out of memory'),
    (BlockingIOError('a: another process'), 'a: another process'),
    (OSError(28, 'No space left on device', 'a.json'), 'a.json: No space left on device: make room'),
    (ModuleNotFoundError(name='sklearn'), 'sklearn is not installed: pip install ".[evaluate]"'),
    (importlib.metadata.PackageNotFoundError('wn'), 'wn is not installed: pip install ".[wordnet]"'),
    (ModuleNotFoundError(name='mine'), ''),
    (ValueError('a.json: damaged;\nremove it'), 'a.json: damaged; remove it'),
    (KeyError('x'), '')])
def test_what_the_machine_causes_is_one_line_and_a_mistake_of_ours_a_traceback(capsys, error, message):
    def work():
        raise error
    with pytest.raises(SystemExit if message else type(error)) as caught:
        run_main(work)
    if message:
        line = capsys.readouterr().err
        assert caught.value.code == 2
        assert line.startswith(f'error: {message}')
        assert line.count('\n') == 1


def test_a_console_without_utf8_gets_escapes(monkeypatch):
    """finetune.py --look prints texts, fill_mask.py tokens."""
    console = io.TextIOWrapper(io.BytesIO(), 'latin-1')
    with monkeypatch.context() as patch:
        patch.setattr(sys, 'stdout', console)
        run_main(lambda: print('café 日本 \ud800', flush=True))
    assert console.buffer.getvalue() == 'café \\u65e5\\u672c \\ud800\n'.encode('latin-1')


def test_a_console_that_is_closed_is_not_a_good_end():
    """As of a pretraining in a pipe that its reader leaves."""
    closed = 'import os\nreader, writer = os.pipe()\nos.dup2(writer, 1)\nos.close(reader)\nos.close(writer)\n'
    work = 'from nanoencoder.settings import run_main\nrun_main(lambda: print("x" * 10 ** 6, flush=True))'
    result = run_process('-c', closed + work)
    assert result.returncode == 141
    assert not result.stderr


def test_every_config_of_the_repository_parses():
    for path in sorted((ROOT / 'configs').glob('*.py')):
        parse(pretrain.Settings, [str(path)], inherit=lambda values: {'name': 'after its weights'})
    for path in sorted((ROOT / 'configs/corpora').glob('*.py')):
        parse(prepare.Settings, [str(path)])


@pytest.mark.parametrize('settings, words', [
    (pretrain.Settings, ['--name=x']),
    (finetune.Settings, ['configs/tasks/docs_tc.py', '--model=x']),
    (minimal_pairs.Settings, ['configs/minimal_pairs/blimp.py', '--model=x']),
    (prepare.Settings, []),
    (evaluate.Settings, [])], ids=lambda value: getattr(value, '__module__', ''))
def test_every_setting_answers_a_value_of_a_wrong_kind_with_one_short_line(settings, words):
    """A value of another type, within a tuple too, on a command line; 80 characters of it at most."""
    wrong = ('None', '-1', '1e999', '1.5', '"x"', '{}', '(1.5,)', '("x",)', '([],)', '([], 5)', '(1, 2, 3)',
             '("a", 0, 0)', '{[1]}', str(('x',) * 200))
    for name, value in itertools.product(leaves(settings), wrong):
        try:
            parse(settings, [*words, f'--{name}={value}'])
        except ValueError as error:
            assert leaves(settings)[name].type is str or len(str(error)) < 400


def test_torchrun_passes_every_setting_on():
    """torchrun's parser reads options behind the script too, and refuses what begins one of its own."""
    from torch.distributed.run import get_args_parser
    owners = (prepare, pretrain, finetune)
    names = {name for owner in owners for name in (*leaves(owner.Settings), *owner.ACTIONS)}
    for name in sorted(names):
        for argument in (f'--{name}', f'--{name}=1'):
            parsed = get_args_parser().parse_args(['pretrain.py', argument])
            assert parsed.training_script_args == [argument]
    with pytest.raises(SystemExit):  # what the loop above would catch
        get_args_parser().parse_args(['pretrain.py', '--log=1'])


@pytest.mark.parametrize('script', [
    'pretrain.py', 'finetune.py', 'fill_mask.py', 'studies/layers.py'])
def test_threads_that_wait_sleep_unless_the_user_says_otherwise(script, tmp_path):
    """OpenMP reads the variable as torch is loaded: here a stand-in says what it would have read."""
    (tmp_path / 'torch.py').write_text("import os, sys\nsys.exit(os.environ.get('OMP_WAIT_POLICY', 'unset'))")
    env = {name: value for name, value in os.environ.items() if name != 'OMP_WAIT_POLICY'}
    env['PYTHONPATH'] = str(tmp_path)
    assert run_process(script, env=env).stderr == 'passive\n'
    assert run_process(script, env=env | {'OMP_WAIT_POLICY': 'active'}).stderr == 'active\n'
    module = script.removesuffix('.py').replace('/', '.')
    assert run_process('-c', f'import {module}', env=env).stderr == 'unset\n'    # importing does nothing


@dataclass(frozen=True)
class Explained:
    # a part of the settings
    mark: str = setting('#', choices=('', '#', '##'))  # what begins a comment: # or ##
    share: float = setting(
        0.5, 0, 1)                  # of texts
    steps: int = setting(7, 1)      # at most,
                                    # of training
    plain: str = ''


HELP = """\
settings (in a config file, or --name=value) and actions (on the command line only):
  # a part of the settings
  --mark                     str    '#'                what begins a comment: # or ## (one of #, ##)
  --share                    float  0.5                of texts (from 0 to 1)
  --steps                    int    7                  at most, of training (at least 1)
  --plain                    str    ''
  --part                     int    -1                 action: this part alone (from 0 to 9)
"""


def test_help_has_whole_comments_choices_and_ranges(capsys):
    with pytest.raises(SystemExit):
        parse(Explained, ['--help'], {'part': (-1, 'this part alone', 0, 9)})
    assert capsys.readouterr().out == HELP


# all that end with run_main(main)
STARTED = [str(path.relative_to(ROOT)) for folder in ('.', 'examples', 'bench', 'studies', 'studies/paper')
           for path in sorted(ROOT.glob(f'{folder}/*.py')) if 'run_main(main)\n' in path.read_text()]


@pytest.mark.parametrize('script', STARTED)
def test_help_begins_with_the_scripts_own_docstring(script, monkeypatch, capsys):
    """Whichever module its settings are from; a script without settings does nothing else."""
    monkeypatch.setattr(sys, 'argv', [script, '--help'])
    with pytest.raises(SystemExit) as ending:
        runpy.run_path(script, run_name='__main__')
    assert not ending.value.code
    documented = ast.get_docstring(ast.parse((ROOT / script).read_text()), clean=False).strip()
    assert capsys.readouterr().out.startswith(f'{documented}\n\n')


def test_help_in_a_process_of_its_own():
    text = run_process('studies/packs.py', '--help', check=True).stdout
    assert text.startswith('Keep a study')
    assert 'of the bootstrap (from 100 to' in text

"""Settings: what files and command lines may say, and what they are told when they may not."""
from dataclasses import dataclass

import pytest

import finetune
import pretrain
from conftest import ROOT, one_line_error, run_process, run_script
from nanoencoder import prepare
from nanoencoder.settings import check, leaves, parse, run_main, setting


@dataclass(frozen=True)
class Example:
    steps: int = 10      # of training
    lr: float = 1e-3
    name: str = ''
    compile: bool = False
    phases: tuple = ()
    share: float = setting(0.5, 0, 1)
    mode: str = setting('a', choices=('a', 'b'))

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


@pytest.mark.parametrize('text, parts', [
    ('steps = 1\nstep = 2\n', ('run.py:2', "'step'", "'steps'")),
    ('lr = "5e-4"\n', ('run.py:1', 'lr takes float', '5e-4')),
    ('steps = True\n', ('run.py:1', 'steps takes int, not bool')),
    ('steps = 1.0\n', ('run.py:1', 'steps takes int, not float')),
    ('steps = 1\nlr = 1.0\nsteps = 2\n', ('run.py:3', 'steps is set twice', 'run.py:1')),
    ('steps = 2 * 3\n', ('run.py:1', 'steps = 2 * 3', 'literal')),
    ('import os\n', ('run.py:1', 'import os')),
    ('steps: int = 3\n', ('run.py:1', 'steps: int = 3')),
    ('steps, lr = 1, 2\n', ('run.py:1',)),
    ('steps = = 3\n', ('run.py:1', 'steps = = 3')),
    ('steps = 1\nbase = "x.py"\n', ('run.py:2', 'first line')),
    ('share = 1.5\n', ('run.py:1', 'share must be from 0 to 1, not 1.5')),
    ('mode = "c"\n', ('run.py:1', "mode is one of a, b, not 'c'")),
    ('base = "absent.py"\n', ('absent.py', 'No such file')),
    ('base = "run.py"\n', ('run.py:1', 'no base itself')),
])
def test_mistakes_in_a_file(tmp_path, text, parts):
    with pytest.raises(ValueError) as caught:
        parse(Example, [write(tmp_path, text)])
    assert all(part in str(caught.value) for part in parts), str(caught.value)


@pytest.mark.parametrize('arguments, parts', [
    (['--stepz=3'], ("'stepz'", "'steps'")),
    (['--steps=3', '--steps=3'], ('--steps', 'twice')),
    (['--steps'], ('--steps=',)),
    (['--steps=three'], ("'three'", 'int')),
    (['--steps=3.5'], ('steps takes int, not float',)),
    (['--compile=yes'], ("'yes'", 'bool')),
    (['-steps=3'], ('--name=value',)),
    (['--steps=3', 'run.py'], ("'run.py'", '--name=value')),
    (['--share=nan'], ("'nan'",)),
    (['--share=1e999'], ('--share: share must be from 0 to 1, not inf',)),
    (['--warmup=3'], ("unknown setting 'warmup'; they are steps, lr, name",)),
    (['--learning_rate=3'], ("the nearest is 'lr'",)),
    (['run'], ('run: cannot read this config',)),
    (['tiny'], ('there is configs/tiny.py',)),
])
def test_mistakes_on_the_command_line(arguments, parts):
    with pytest.raises(ValueError) as caught:
        parse(Example, arguments)
    assert all(part in str(caught.value) for part in parts), str(caught.value)


HUGE = '0x' + 'f' * 5_000  # more digits than Python prints


@pytest.mark.parametrize('arguments, parts', [
    (['--steps=9223372036854775808'], ('steps must be below 2^63, not 9223372036854775808',)),
    ([f'--steps={"1" * 400}'], ('--steps: steps must be below 2^63, not 1111', '...')),
    ([f'--steps={HUGE}'], ('steps must be below 2^63, not one too large to print',)),
    ([f'--phases=({HUGE}, {{}})'], ('phases holds texts, numbers and tuples',)),
    ([f'--compile={HUGE}'], ('compile takes bool, not int one too large',)),
    ([f'--steps={"x" * 500}'], ('--steps:', '...')), ([f'--{"x" * 500}=1'], ('not of the form', '...')),
    (['--phases=({},)'], ('--phases: phases holds texts, numbers and tuples of them',)),
    (['--name=a\nb'], ('--name: name must be text on one line',)), (['--name= '], ("not ' '",)),
    (['--parts=0'], ('--parts: parts must be from 1 to 9, not 0',)), (['--parts=10'], ('from 1 to 9',))])
def test_values_that_nobody_means_are_one_short_line(arguments, parts):
    """Before, long ints and dicts in a tuple were tracebacks, and values were printed whole."""
    with pytest.raises(ValueError) as caught:
        parse(Example, arguments, {'parts': (-1, '', 1, 9)})
    assert all(part in str(caught.value) for part in parts), str(caught.value)
    assert len(str(caught.value)) < 200


def test_a_template_has_lines_and_an_actions_default_no_range():
    arguments = ['--name=Premise: {a}\nHypothesis: {b}', '--parts=-1']
    cfg, actions = parse(Example, arguments, {'parts': (-1, '', 1, 9)})
    assert '\n' in cfg.name and actions.parts == -1


def test_a_word_of_a_message_that_is_also_a_flag_is_not_blamed(tmp_path):
    """Before, this was `--name, --mode: mode is one of a, b`, for a value that says `name`."""
    with pytest.raises(ValueError) as error:
        parse(Example, ['--name=x', '--mode=of name it'])
    assert str(error.value).startswith('--mode: mode is one of a, b')


class OutOfMemoryError(RuntimeError):
    """As torch's is called."""


@pytest.mark.parametrize('error, message', [
    (MemoryError('8 TiB'), 'out of memory: 8 TiB'),
    (OverflowError('int'), 'a number is too large'),
    (RecursionError('deep'), 'nested too deeply'),
    (OutOfMemoryError('CUDA'), 'out of memory: CUDA'),
    (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 'out of memory'),
    (BlockingIOError('a: another process'), 'a: another process'),
    (OSError(28, 'No space left on device', 'a.json'), 'a.json: No space left on device: make room')])
def test_what_files_and_the_machine_cause_is_one_line(capsys, error, message):
    """Before, most were tracebacks."""
    def work():
        raise error
    with pytest.raises(SystemExit) as caught:
        run_main(work)
    assert caught.value.code == 2 and capsys.readouterr().err.startswith(f'error: {message}')


def test_a_long_message_keeps_the_file_and_the_advice(capsys):
    """Before, up to 1,000 characters were printed, and what was cut was the advice at the end."""
    def work():
        raise ValueError(f'a.json: damaged: {"word " * 300}; remove it')
    with pytest.raises(SystemExit):
        run_main(work)
    line = capsys.readouterr().err
    assert line.startswith('error: a.json: damaged') and line.endswith('; remove it\n') and len(line) == 401


def test_a_console_that_is_closed_is_not_a_good_end():
    """As of a pretraining in a pipe; before, it stopped in mid-run with exit code 0, and said nothing."""
    closed = 'import os\nreader, writer = os.pipe()\nos.dup2(writer, 1)\nos.close(reader)\nos.close(writer)\n'
    work = 'from nanoencoder.settings import run_main\nrun_main(lambda: print("x" * 10 ** 6, flush=True))'
    result = run_process('-c', closed + work)
    assert result.returncode == 141 and not result.stderr


@pytest.mark.parametrize('error', [KeyError, TypeError])
def test_a_mistake_of_ours_stays_a_traceback(error):
    """Before, a KeyError was told as damage of a file whose path some function held."""
    def work(path):
        raise error('x')
    with pytest.raises(error):
        run_main(lambda: work('a.json'))


def test_a_config_is_never_executed(tmp_path):
    with pytest.raises(ValueError):
        parse(Example, [write(tmp_path, f'name = open("{tmp_path}/executed", "w")\n')])
    assert not (tmp_path / 'executed').exists()


def test_a_bad_value_names_its_line(tmp_path):
    path = write(tmp_path, 'name = "x"\nphases = (("clm", 5), ("mlmm", 5))\n')
    one_line_error(run_script('pretrain.py', path), r'run\.py:2: phases must be', 'mlmm')
    one_line_error(run_script('pretrain.py', path, '--phases=("clm",20)', '--decay_steps=30'),
                   '--decay_steps: decay_steps must be from 0 to 20, not 30')
    one_line_error(run_script('pretrain.py', path, '--learning_rate=3'), "unknown setting 'learning_rate'")


@pytest.mark.parametrize('text, part', [
    ('phases = 5', 'phases takes tuple, not int 5'), ('phases = {"clm": 1}', 'phases takes tuple, not dict'),
    ('phases = (({}, 3),)', 'phases must be'), ('phases = ()', 'phases must be'),
    ('weights_from = ("x",)', 'weights_from takes str, not tuple'), ('out = 5', 'out takes str, not int 5'),
    ('dry_run = True', "unknown setting 'dry_run'; --help lists them"),
    ('lr = ' + '-' * 100_000 + '1', 'nested too deeply'),
    ('decay_steps = 1.5', 'decay_steps takes int, not float')])
def test_odd_values_of_a_run_are_one_line(tmp_path, text, part):
    one_line_error(run_script('pretrain.py', write(tmp_path, f'name = "x"\n{text}\n')), part)


def test_every_config_of_the_repository_parses():
    for path in sorted((ROOT / 'configs').glob('*.py')):
        parse(pretrain.Settings, [str(path)], inherit=lambda values: {'name': 'after its weights'})
    for path in sorted((ROOT / 'configs/corpora').glob('*.py')):
        parse(prepare.Settings, [str(path)])


def test_flat_phases_are_one_phase():
    cfg = pretrain.Settings(name='x', phases=('clm', 20), warmup_steps=0, decay_steps=0)
    assert cfg.phases == (('clm', 20),)


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


@pytest.mark.parametrize('script, part', [
    ('pretrain.py', 'of all processes: 192 GPUs x 6'), ('data.py', 'tokenizer.json (file'),
    ('finetune.py', 'share of the steps'), ('evaluate.py', 'of the bootstrap')])
def test_help_of_each_script_and_a_mistake(script, part):
    """In a process of its own, but for finetune.py, which torchrun starts in test_finetune.py."""
    result = (run_script if script == 'finetune.py' else run_process)(script, '--help')
    assert result.returncode == 0 and part in result.stdout, result.stderr
    first, words = ('table', "unknown setting 'out_of'") if script == 'evaluate.py' else (
        'configs/absent.py', 'configs/absent.py: cannot read this config')
    one_line_error((run_process if script == 'data.py' else run_script)(script, first, '--out_of=3'), words)

"""Settings: frozen dataclasses, filled from small files of `name = value` lines and from the command line.

    cfg, actions = parse(Settings, sys.argv[1:], {'dry_run': (False, 'print what the run will be')})

A config is read and never executed. A setting has the dataclass's default, unless the config's base, then the
config, then `--name=value` says otherwise. `base = "610m.py"` on a config's first line names a file beside
it. Values are literals; on the command line a str is as typed, and a bool may stand bare."""
import ast
import difflib
import errno
import inspect
import json
import os
import math
import re
import signal
import sys
from dataclasses import MISSING, asdict, field, fields, is_dataclass
from pathlib import Path
from types import SimpleNamespace

# What transformers' Trainer and nanoGPT call some of our settings. Their spelling is too far from ours.
NAMES_ELSEWHERE = {
    'learning_rate': 'lr', 'batch_size': 'rows_per_step', 'max_steps': 'phases', 'max_iters': 'phases',
    'num_train_epochs': 'epochs', 'mlm_probability': 'mask_ratio', 'max_seq_length': 'context',
    'block_size': 'context', 'output_dir': 'out', 'n_layer': 'num_hidden_layers',
    'n_head': 'num_attention_heads', 'n_embd': 'hidden_size'}


def setting(default, low=-math.inf, high=math.inf, choices=(), fixes='numbers'):
    """A dataclass field with its range, ends included, or its choices. `fixes` says what a changed value
    would change: a run's 'numbers', the 'rows' that it reads (which are compared by sha256), or 'nothing'."""
    kept = {'default_factory': default.copy} if isinstance(default, dict) else {'default': default}
    return field(**kept, metadata={'low': low, 'high': high, 'choices': choices, 'fixes': fixes})


def check(cfg):
    """Every settings class calls this when it is made. Messages begin with a field's name, for `parse`."""
    for entry in fields(cfg):
        check_value(entry.name, entry.type, value := getattr(cfg, entry.name), **entry.metadata)
        if entry.type is float:
            object.__setattr__(cfg, entry.name, float(value))


def check_value(name, wanted, value, low=-math.inf, high=math.inf, choices=(), fixes=''):
    """ValueError unless a value has a type and is in its range."""
    if type(value) is not wanted and (type(value), wanted) != (int, float):
        raise ValueError(f'{name} takes {wanted.__name__}, not {type(value).__name__} {value!r:.80}')
    if choices and value not in choices:
        raise ValueError(f'{name} is one of {", ".join(filter(None, choices))}, not {value!r:.80}')
    if wanted in (int, float) and not (low <= value <= high and abs(value) < math.inf):
        limits = f'from {low} to {high}' if high < math.inf else f'at least {low}'
        raise ValueError(f'{name} must be {limits if low > -math.inf else "finite"}, not {value!r:.80}')


def leaves(cls):
    """{name: field} of a settings class, in order; settings within it, as a run's model, are spread out."""
    entries = {}
    for entry in fields(cls):
        entries |= leaves(entry.type) if is_dataclass(entry.type) else {entry.name: entry}
    return entries


def flat(cfg, fixes=('numbers', 'rows', 'nothing')):
    """{name: value} of settings and of those within them; only of fields that fix one of these."""
    values = {}
    for entry in fields(cfg):
        if is_dataclass(value := getattr(cfg, entry.name)):
            values |= flat(value, fixes)
        elif entry.metadata.get('fixes', 'numbers') in fixes:
            values[entry.name] = value
    return values


def build(cls, values):
    """A settings class of flat {name: value}; a list becomes a tuple, as JSON has no others."""
    inner = {entry.name: build(entry.type, values) for entry in fields(cls) if is_dataclass(entry.type)}
    own = {entry.name: as_tuple(values[entry.name]) for entry in fields(cls) if entry.name in values}
    return cls(**inner | own)


def as_tuple(value):
    return tuple(map(as_tuple, value)) if isinstance(value, (list, tuple)) else value


def read(path):
    """The settings a config file makes, base included: {name: (value, 'file:line')}."""
    path = Path(path)
    try:
        text = path.read_text(encoding='utf-8-sig')
        statements = ast.parse(text, str(path)).body
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f'{path}: cannot read this config: {error}') from None
    except SyntaxError as error:
        raise ValueError(f'{path}:{error.lineno}: not valid Python: {(error.text or "").strip()!r}') from None
    inherited, chosen = {}, {}
    for number, statement in enumerate(statements):
        where = f'{path}:{statement.lineno}'
        source = repr(ast.get_source_segment(text, statement).splitlines()[0][:80])
        try:
            (target,), value = statement.targets, ast.literal_eval(statement.value)
            name = target.id
        except (AttributeError, ValueError, TypeError):
            raise ValueError(f'{where}: only `name = value` lines are allowed, and a value is a literal: '
                             f'nothing is computed in a config; not {source}') from None
        for table in (node for node in ast.walk(statement) if isinstance(node, ast.Dict)):
            keys = [ast.unparse(key) for key in table.keys]
            if twice := {key for key in keys if keys.count(key) > 1}:
                raise ValueError(f'{where}: {name} has {min(twice)} twice')
        if name == 'base':
            if number > 0 or not isinstance(value, str):
                raise ValueError(f'{where}: `base` names a file, on the first line')
            inherited = read(path.parent / value)
        elif name in chosen:
            raise ValueError(f'{where}: {name} is set twice, first at {chosen[name][1]}')
        else:
            chosen[name] = value, where
    return inherited | chosen


def parse(cls, arguments, actions=(), inherit=lambda values: {}):
    """(cls(...), actions) from a command line `[config file] [--name=value ...]`.

    actions  {name: (default, a line of help)}: switches that say what to do; they come back as attributes.
             Two more numbers are the range of values that are not the default
    inherit  inherit(values) gives settings in place of the defaults where `values` does not say otherwise"""
    arguments, actions = list(arguments), dict(actions)
    if '--help' in arguments or '-h' in arguments:
        sys.exit(print(describe(cls, actions)))
    if arguments == ['--each']:     # a study asks for the settings of several command lines, which stdin has
        for words in json.load(sys.stdin):
            print(json.dumps(asdict(parse(cls, words)[0])))
        sys.exit(0)
    types = {name: entry.type for name, entry in leaves(cls).items()}
    given = read(arguments.pop(0)) if arguments and not arguments[0].startswith('-') else {}
    for name, (_, where) in given.items():
        if name not in types:
            raise ValueError(f'{where}: unknown setting {name!r}{nearest(name, [*types])}')
    given |= read_options(arguments, types | {name: type(default) for name, (default, *_) in actions.items()})
    values = {name: value for name, (value, _) in given.items()}
    try:
        chosen = {name: values.pop(name, default) for name, (default, *_) in actions.items()}
        for name, (default, _, *limits) in actions.items():
            if chosen[name] != default:
                check_value(name, type(default), chosen[name], *limits)
        for name in values:
            if types[name] in (str, tuple, dict):  # `inherit` reads them
                check_value(name, types[name], values[name])
        return build(cls, inherit(values) | values), SimpleNamespace(**chosen)
    except ValueError as error:  # begins with a setting's name
        name = f'{error} '.split(' ')[0]
        if name not in given:
            raise
        raise ValueError(f'{given[name][1]}: {error}') from None


def read_options(arguments, types):
    """{name: (value, '--name')} of `--name=value` words."""
    given = {}
    for argument in arguments:
        if not (match := re.fullmatch(r'--(\w+)(?:=(.*))?', argument, re.DOTALL)):
            raise ValueError(f'{argument!r:.80} is not of the form --name=value')
        name, value = match.groups()
        if name in given:
            raise ValueError(f'--{name} is set twice on the command line')
        if name not in types:
            raise ValueError(f'--{name}: unknown setting {name!r}{nearest(name, [*types])}')
        wanted = types[name]
        if value is None and wanted is not bool:
            raise ValueError(f'--{name}: needs a value, as --{name}=...')
        if wanted is not str:
            try:
                value = ast.literal_eval('True' if value is None else value)
            except (ValueError, SyntaxError, TypeError):
                if wanted is not tuple or not re.fullmatch(r'[\w.-]+(,[\w.-]+)*', value):
                    raise ValueError(f'--{name}: {value!r:.80} is no {wanted.__name__}') from None
                value = tuple(value.split(','))         # tiny-clm,tiny-mlm40
        given[name] = (value,) if wanted is tuple and type(value) is not tuple else value, f'--{name}'
    return given


def nearest(name, options):
    """What may have been meant, in words; silent where nothing is near."""
    ours = NAMES_ELSEWHERE.get(name)
    if ours in options:
        return f'; here it is {ours!r}'
    near = difflib.get_close_matches(name, options, n=1)
    if near:
        return f'; the nearest is {near[0]!r}'
    return f'; they are {", ".join(options)}' if len(options) <= 20 else '; --help lists them'


def describe(cls, actions):
    """--help: the script's docstring, then each setting with its default and its comment in the source."""
    lines = [sys.modules[cls.__module__].__doc__.strip(), '',
             'settings (in a config file, or --name=value) and actions (on the command line only):']
    owners = [*cls.__mro__, *(entry.type for entry in fields(cls))]
    source = ''.join(inspect.getsource(owner) for owner in owners if is_dataclass(owner))
    comments = dict(re.findall(r'^    (\w+):[^#\n]*(?:#\s*(.*))?$', source, re.MULTILINE))
    rows = [(name, entry.type, entry.default, comments.get(name, '')) for name, entry in leaves(cls).items()]
    rows += [(name, type(value), value, f'action: {text}') for name, (value, text, *_) in actions.items()]
    for name, kind, default, text in rows:
        default = '' if default is MISSING else repr(default)
        lines.append(f'  --{name:<24} {kind.__name__:<6} {default:<18} {text}'.rstrip())
    return '\n'.join(lines)


def interrupt_on_signals():
    """From now on SIGTERM, and SIGHUP of a terminal that is closed, raise KeyboardInterrupt as Ctrl-C does,
    so that a script can end the processes that it has started."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup has SIGHUP
            signal.signal(number, signal.default_int_handler)


def is_full(error):
    """Whether an error is that of a full disk, or of a quota or a limit on files: more work fails, too."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def run_main(main):
    """Call main(). One line for what input can cause (exit code 2) and for a loss that is not finite (1)."""
    try:
        main()
    except BrokenPipeError:  # the reader, `| head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)  # as a shell says of a program that SIGPIPE ended: a pretraining is not done
    except KeyboardInterrupt:
        print('interrupted', file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        words = str(error)
        if type(error).__name__ in ('MemoryError', 'OutOfMemoryError') or "can't allocate" in words:
            words = f'out of memory: {words}'   # torch has a class and a sentence of its own
        elif not isinstance(error, (ValueError, OSError, FloatingPointError)) or sys.flags.dev_mode:
            raise
        elif isinstance(error, OSError) and error.errno:
            advice = 'make room, then run the same command again' if is_full(error) else ''
            words = ': '.join(map(str, filter(None, (error.filename, error.strerror, advice))))
        print(f'error: {" ".join(words.split())}', file=sys.stderr)
        sys.exit(1 if isinstance(error, FloatingPointError) else 2)

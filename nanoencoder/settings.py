"""Settings: frozen dataclasses, filled from small files of `name = value` lines and from the command line.

    cfg, actions = parse(Settings, sys.argv[1:], {'dry_run': (False, 'print what the run will be')})

A config is read and never executed. A setting has the dataclass's default unless the config's base, then the
config, then `--name=value` says otherwise. `base = "610m.py"` on a config's first line names a file beside
it. Values are literals; on the command line a str is taken as typed, and a bool needs no value.
--help prints the settings with the comments that stand beside them in the source."""
import ast
import difflib
import errno
import inspect
import io
import itertools
import os
import re
import signal
import sys
import tokenize
from dataclasses import MISSING, field, fields, is_dataclass
from functools import partial
from math import inf
from pathlib import Path
from types import SimpleNamespace

# What transformers' Trainer and nanoGPT call some of our settings. Their spelling is too far from ours.
NAMES_ELSEWHERE = {
    'learning_rate': 'lr', 'batch_size': 'rows_per_step', 'max_steps': 'phases', 'max_iters': 'phases',
    'num_train_epochs': 'epochs', 'mlm_probability': 'mask_ratio', 'max_seq_length': 'context',
    'block_size': 'context', 'output_dir': 'out', 'n_layer': 'num_hidden_layers',
    'n_head': 'num_attention_heads', 'n_embd': 'hidden_size'}
# packages that pretrain.py does without, as they are imported, and the extra of pyproject.toml with each
EXTRAS = {
    'datasets': 'data', 'pyarrow': 'data',      # which comes with datasets
    'scipy': 'evaluate', 'pandas': 'evaluate', 'matplotlib': 'evaluate', 'sklearn': 'evaluate',
    'wn': 'wordnet', 'transformers': 'peers'}
TOO_DEEP = RecursionError, MemoryError      # what Python's parser says of thousands of signs or brackets


def setting(default, low=-inf, high=inf,
            choices=(), of=None, is_share=False,
            decides='results'):
    """Declare a field of a dataclass with its range, ends included, or its choices.

    of        the type of each entry of a tuple; the range is then the entries'
    is_share  whether a number of steps may be a share of all steps instead, a float between 0 and 1
    decides   what another value would change: a run's 'results'; the 'data' that it reads, whose sha256 is
              compared; or 'nothing' of these"""
    metadata = {'low': low, 'high': high, 'choices': choices, 'of': of, 'is_share': is_share,
                'decides': decides}
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


may_change = partial(setting, decides='nothing')    # when a run goes on, at any time
# may change if the rows that are read stay the same, by their sha256; any other setting may not
selects_data = partial(setting, decides='data')


def check(cfg):
    """Check each field. A settings class calls this when it is made.
    Errors begin with the field's name, by which `parse` finds the line that set it."""
    for entry in fields(cfg):
        value = getattr(cfg, entry.name)
        check_value(entry.name, entry.type, value, **entry.metadata)
        if entry.type is float:
            object.__setattr__(cfg, entry.name, float(value))


def check_value(name, wanted, value, low=-inf, high=inf,
                choices=(), of=None, is_share=False, decides=''):
    """ValueError unless a value has the wanted type and is in its range. An int may stand for a float. The
    other arguments are those of `setting`."""
    if is_share and type(value) is float and 0 < value < 1:
        return
    if type(value) is not wanted and (type(value), wanted) != (int, float):
        raise ValueError(f'{name} takes {wanted.__name__}, not {type(value).__name__} {value!r:.80}')
    if choices and value not in choices:
        raise ValueError(f'{name} is {limits_in_words(choices=choices)}, not {value!r:.80}')
    if of:
        for part in value:
            check_value(name, of, part, low, high)
    if wanted not in (int, float):
        return

    if not low <= value <= high or abs(value) == inf:
        limits = limits_in_words(low, high) or 'finite'
        raise ValueError(f'{name} must be {limits}, not {value!r:.80}')


def limits_in_words(low=-inf, high=inf, choices=(), **_):
    """Say which values a setting takes, of those of its type: '' if it takes all."""
    if choices:
        return f'one of {", ".join(filter(None, choices))}'
    if high < inf:
        return f'from {low} to {high}'
    if low > -inf:
        return f'at least {low}'
    return ''


def leaves(cls):
    """{name: field} of a settings class, in order. Settings within it, as a run's sizes, are spread out."""
    entries = {}
    for entry in fields(cls):
        if is_dataclass(entry.type):
            entries |= leaves(entry.type)
        else:
            entries[entry.name] = entry
    return entries


def flat(cfg, decides=('results', 'data', 'nothing')):
    """{name: value} of settings, and of those within them, that decide one of these."""
    values = {}
    for entry in fields(cfg):
        value = getattr(cfg, entry.name)
        if is_dataclass(value):
            values |= flat(value, decides)
        elif entry.metadata.get('decides', 'results') in decides:
            values[entry.name] = value
    return values


def make_settings(cls, values):
    """Make a settings class of flat {name: value}. Lists become tuples, as JSON has no tuples."""
    chosen = {}
    for entry in fields(cls):
        if is_dataclass(entry.type):
            chosen[entry.name] = make_settings(entry.type, values)
        elif entry.name in values:
            chosen[entry.name] = as_tuple(values[entry.name])
    return cls(**chosen)


def as_tuple(value):
    if not isinstance(value, (list, tuple)):
        return value
    return tuple(as_tuple(part) for part in value)


def read(path, above=()):
    """Read a config file and its base: {name: (value, 'file:line')}. `above` are the files that name it."""
    path = Path(path)
    try:
        text = path.read_text(encoding='utf-8-sig')
        statements = ast.parse(text).body
    except OSError as error:
        raise ValueError(f'{path}: cannot read this config: {error}') from None
    except SyntaxError as error:
        what = error.text or error.msg
        raise ValueError(f'{path}:{error.lineno}: not valid Python: {what!r:.80}') from None
    except (ValueError, *TOO_DEEP) as error:
        raise ValueError(f'{path}: not valid Python: {error}') from None

    inherited = {}
    chosen = {}
    for statement in statements:
        where = f'{path}:{statement.lineno}'
        name, value = read_statement(statement, where, ast.get_source_segment(text, statement))
        if name in chosen:
            raise ValueError(f'{where}: {name} is set twice, first at {chosen[name][1]}')
        if name != 'base':
            chosen[name] = value, where
        elif statement is not statements[0] or type(value) is not str:
            raise ValueError(f'{where}: `base` names a file, on the first line')
        elif path.resolve() in above:
            raise ValueError(f'{where}: the base of this file leads back to it')
        else:
            inherited = read(path.parent / value, (*above, path.resolve()))
    return inherited | chosen


def settings_of(entry):
    """Return the settings of a study's entry: its own, and those of the file that its 'config' names."""
    entry = dict(entry)
    below = {}
    if 'config' in entry:
        below = read(entry.pop('config'))
    return {name: value for name, (value, _) in below.items()} | entry


def read_statement(statement, where, source):
    """The (name, value) of a `name = value` line. ValueError for any other line, and for a key set twice."""
    try:
        target, = statement.targets
        name = target.id
        value = ast.literal_eval(statement.value)
    except (AttributeError, ValueError, TypeError, *TOO_DEEP):
        raise ValueError(f'{where}: only `name = value` lines are allowed, and a value is a literal: '
                         f'nothing is computed in a config; not {source!r:.80}') from None
    for table in ast.walk(statement):
        if isinstance(table, ast.Dict):
            keys = [ast.unparse(key) for key in table.keys]
            for key in keys:
                if keys.count(key) > 1:
                    raise ValueError(f'{where}: {name} has {key} twice')
    return name, value


def parse(cls, arguments, actions=(), inherit=lambda values: {}):
    """Make (cls(...), actions) of a command line `[config file] [--name=value ...]`.

    actions  {name: (default, a line of help)}: switches that say what to do; they come back as attributes.
             Two more numbers are the range of values that are not the default
    inherit  inherit(values) gives settings in place of the defaults where `values`, of settings and actions,
             does not say otherwise"""
    arguments = list(arguments)
    actions = dict(actions)
    if asks_for_help(arguments):
        print(help_text(cls, actions))
        sys.exit()

    entries = leaves(cls)
    types = {name: entry.type for name, entry in entries.items()}
    given = {}      # {name: (value, where it was set)}
    if arguments and not arguments[0].startswith('-'):
        given = read(arguments.pop(0))
    for name, (_, where) in given.items():
        check_name(name, types, where)
    types_of_actions = {name: type(default) for name, (default, *_) in actions.items()}
    given |= read_options(arguments, types | types_of_actions)

    values = {name: with_home(value) for name, (value, _) in given.items()}
    chosen = {}
    try:
        for name, (default, _, *limits) in actions.items():
            chosen[name] = values.pop(name, default)
            if chosen[name] != default:
                check_value(name, type(default), chosen[name], *limits)
        for name, value in values.items():      # before `inherit` and the class compute with them
            check_value(name, types[name], value, **entries[name].metadata)
        return make_settings(cls, inherit(values | chosen) | values), SimpleNamespace(**chosen)
    except ValueError as error:     # begins with a setting's name
        name = str(error).split(' ')[0]
        if name not in given:
            raise
        raise ValueError(f'{given[name][1]}: {error}') from None


def split_words(arguments):
    """Split a command line into (the words before its first --setting, the rest). A - is a word."""
    words = [*itertools.takewhile(lambda word: word == '-' or not word.startswith('-'), arguments)]
    return words, arguments[len(words):]


def read_options(arguments, types):
    """Read `--name=value` words: {name: (value, '--name')}."""
    given = {}
    for argument in arguments:
        match = re.fullmatch(r'--(\w+)(?:=(.*))?', argument, re.DOTALL)
        if not match:
            raise ValueError(f'{argument!r:.80} is not of the form --name=value')
        name, text = match.groups()
        if name in given:
            raise ValueError(f'--{name} is set twice on the command line')
        check_name(name, types, f'--{name}')
        given[name] = read_value(name, types[name], text), f'--{name}'
    return given


def read_value(name, wanted, text):
    """The value of one option; `text` is None where nothing follows its name."""
    if text is None and wanted is bool:
        return True
    if text is None:
        raise ValueError(f'--{name}: needs a value, as --{name}=...')
    if wanted is str:
        return text
    try:
        value = ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, *TOO_DEEP):
        if wanted is tuple and re.fullmatch(r'[\w.-]+(,[\w.-]+)*', text):
            return tuple(text.split(','))   # tiny-clm,tiny-mlm40
        raise ValueError(f'--{name}: {text!r:.80} is no {wanted.__name__}') from None
    if wanted is tuple and type(value) is not tuple:
        return (value,)
    return value


def with_home(value):
    """A setting's value in which ~/ at the beginning of a path, or of several as "a, b", is the home folder.
    Shells leave it as it is in --path=~/texts, and nobody else reads a config."""
    if not isinstance(value, str):
        return value
    home = os.path.expanduser('~')
    return re.sub('(^|, )~/', rf'\1{home}/', value)


def check_name(name, types, where):
    if name not in types:
        raise ValueError(f'{where}: unknown setting {name!r:.80}{nearest(name, types)}')


def nearest(name, options):
    """Words to add to an error: what may have been meant, or all options if they are few."""
    ours = NAMES_ELSEWHERE.get(name)
    if ours in options:
        return f'; here it is {ours!r}'
    near = difflib.get_close_matches(name, options, n=1)
    if near:
        return f'; the nearest is {near[0]!r}'
    if len(options) <= 20:
        return f'; they are {", ".join(options)}'
    return '; --help lists them'


def asks_for_help(arguments):
    """Whether --help is among the words of a command line: run_main prints the script's docstring then."""
    return '--help' in arguments or '-h' in arguments


def plain_words(arguments):
    """The words of a command line whose script has no settings. After --help there is nothing more to do."""
    if asks_for_help(arguments):
        sys.exit()
    return arguments


# ---------------------------------------------------------------------------
# --help. What it says of a setting is the comment that stands beside it in the source, so that one sentence
# serves those who read the file and those who ask the command.


def help_text(cls, actions):
    """What --help prints below a script's docstring: each setting with its type, its default, its comment and
    the values that it takes. A comment that stands above a setting is a line above it."""
    comments = comments_of_settings(cls)
    lines = ['settings (in a config file, or --name=value) and actions (on the command line only):']
    for name, entry in leaves(cls).items():
        above, beside = comments[name]
        lines += [f'  # {line}' for line in above]
        limits = limits_in_words(**entry.metadata)
        lines.append(help_line(name, entry.type, entry.default, beside, limits))
    for name, (default, text, *limits) in actions.items():
        limits = limits_in_words(*limits)
        lines.append(help_line(name, type(default), default, f'action: {text}', limits))
    return '\n'.join(lines)


def help_line(name, kind, default, text, limits):
    shown = '' if default is MISSING else repr(default)
    if limits:
        text = f'{text} ({limits})'.strip()
    return f'  --{name:<24} {kind.__name__:<6} {shown:<18} {text}'.rstrip()


def comments_of_settings(cls):
    """{setting: (the lines of the comment above it, the whole comment beside it)}. Settings that a class
    inherits or that stand within it, as a run's sizes, have their comments in the source of other classes."""
    comments = {}
    for owner in (*reversed(cls.__mro__), *(entry.type for entry in fields(cls))):
        if is_dataclass(owner):
            comments |= comments_in(inspect.getsource(owner))
    return comments


def comments_in(source):
    """The same of one class's source. Python's parser finds the fields but drops comments, which its
    tokenizer keeps."""
    texts = {}      # {line: its comment}
    columns = {}    # {line: where its comment begins}, of lines that hold nothing else
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line, column = token.start
            texts[line] = token.string.lstrip('# ')
            if not token.line[:column].strip():
                columns[line] = column

    comments = {}
    for field_node in ast.parse(source).body[0].body:
        if not isinstance(field_node, ast.AnnAssign):
            continue
        first = field_node.lineno
        last = field_node.end_lineno
        above = []
        line = first - 1
        while columns.get(line) == field_node.col_offset:
            above.insert(0, texts[line])
            line -= 1
        while columns.get(last + 1, 0) > field_node.col_offset:     # the comment beside it goes on
            last += 1
        beside = [texts[line] for line in range(first, last + 1) if line in texts]
        comments[field_node.target.id] = above, ' '.join(beside)
    return comments


# ---------------------------------------------------------------------------
# What every script does around its work


def ending_signals():
    """Signals that ask a process to end: SIGTERM, Ctrl-C, and the SIGHUP of a closed terminal.
    Under nohup, which has SIGHUP ignored, a closed terminal ends nothing."""
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers


def interrupt_on_signals():
    """Have these signals raise KeyboardInterrupt, so that a script can end the processes it has started."""
    for number in ending_signals():
        signal.signal(number, signal.default_int_handler)


def is_full(error):
    """Whether an error is that of a full disk, a quota or a limit on files: more work would fail, too."""
    causes = errno.ENOSPC, errno.EDQUOT, errno.EFBIG
    return isinstance(error, OSError) and error.errno in causes


def run_main(main):
    """Call main(). What a user can cause is one line (exit code 2), such as a package that is not installed;
    so is a loss that is not finite (1).
    Before --help lists the settings, the docstring of the script is printed: main's own module, which may
    have its settings from another."""
    if hasattr(sys.stdout, 'reconfigure'):
        sys.stdout.reconfigure(errors='backslashreplace')   # texts are of any script, and consoles are not
    if asks_for_help(sys.argv[1:]):
        print(inspect.getmodule(main).__doc__.strip(), end='\n\n')
    try:
        main()
    except BrokenPipeError:     # the reader, as `| head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)   # what a shell says of a program that SIGPIPE ended: a pretraining is not done
    except KeyboardInterrupt:
        print('interrupted', file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        message = str(error)
        # torch has a class of its own for memory of the GPU, and only a sentence for the CPU's
        if type(error).__name__ in ('MemoryError', 'OutOfMemoryError') or "can't allocate" in message:
            message = f'out of memory: {message}'
        elif isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
            message = f'{error.name} is not installed: pip install ".[{EXTRAS[error.name]}]"'
        elif not isinstance(error, (ValueError, OSError, FloatingPointError)):
            raise
        elif isinstance(error, OSError) and error.errno:
            parts = [error.filename, error.strerror]
            if is_full(error):
                parts.append('make room, then run the same command again')
            message = ': '.join(str(part) for part in parts if part)
        print(f'error: {" ".join(message.split())}', file=sys.stderr)
        sys.exit(1 if isinstance(error, FloatingPointError) else 2)

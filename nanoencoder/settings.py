"""Settings: small files of `name = value` lines, read and never executed.

    settings, actions = configs.parse(Settings, sys.argv[1:], dry_run=False)

A setting is the dataclass's default, unless the config's base, then the config, then `--name=value` says otherwise.
`base = "610m.py"` on a config's first line names a file beside it; a base has no base. Values are Python literals;
on the command line a str is taken as typed and a bool may stand bare. Every mistake is a ValueError that says where.
"""
import ast
import dataclasses
import difflib
import inspect
import re
import sys
from pathlib import Path


def read(path, is_base=False):
    """The settings a config file makes, base included: {name: (value, 'file:line')}."""
    path = Path(path)
    try:
        text = path.read_text(encoding='utf-8')
        statements = ast.parse(text, str(path)).body
    except OSError as error:
        raise ValueError(f'{path}: cannot read this config: {error.strerror}') from None
    except UnicodeDecodeError as error:
        raise ValueError(f'{path}: invalid UTF-8 at byte {error.start}') from None
    except SyntaxError as error:
        raise ValueError(f'{path}:{error.lineno}: not valid Python: {(error.text or "").strip()}') from None
    inherited, own = {}, {}
    for number, statement in enumerate(statements):
        where = f'{path}:{statement.lineno}'
        source = ast.get_source_segment(text, statement).splitlines()[0]
        if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1
                and isinstance(statement.targets[0], ast.Name)):
            raise ValueError(f'{where}: only `name = value` lines are allowed, not `{source}`')
        name = statement.targets[0].id
        try:
            value = ast.literal_eval(statement.value)
        except (ValueError, TypeError, MemoryError, RecursionError):
            raise ValueError(f'{where}: `{source}` is not a literal value (nothing is computed in a config)') from None
        if name == 'base':
            if number > 0:
                raise ValueError(f'{where}: `base` belongs on the first line')
            if is_base:
                raise ValueError(f'{where}: a base has no base of its own')
            if not isinstance(value, str):
                raise ValueError(f'{where}: `base` is the name of a file, not {value!r}')
            inherited = read(path.parent / value, is_base=True)
        elif name in own:
            raise ValueError(f'{where}: {name} is set twice, first at {own[name][1]}')
        else:
            own[name] = value, where
    return inherited | own


def parse(cls, arguments, inherit=lambda values: {}, **actions):
    """(cls(...), {action: value}) from a command line `[config file] [--name=value ...]`.

    Actions are switches that describe what to do, not a run: given here with their defaults, returned apart.
    inherit(values) gives settings that take the place of the dataclass's defaults where `values` does not say otherwise.
    """
    arguments = list(arguments)
    if '--help' in arguments or '-h' in arguments:
        print(describe(cls, actions))
        sys.exit(0)
    path = arguments.pop(0) if arguments and not arguments[0].startswith('-') else None
    found = read(path) if path else {}
    types = {field.name: field.type for field in dataclasses.fields(cls)}
    action_types = {name: type(default) for name, default in actions.items()}
    typed = {}
    for argument in arguments:
        match = re.fullmatch(r'--(\w+)(?:=(.*))?', argument, re.DOTALL)
        if not match:
            raise ValueError(f'{argument!r} is not of the form --name=value')
        name, text = match.groups()
        if name in typed:
            raise ValueError(f'--{name} is set twice on the command line')
        kind = (types | action_types).get(name)
        typed[name] = from_text(name, text, kind), f'--{name}'
    values = {}
    for name, (value, where) in (found | typed).items():
        if name in types:
            values[name] = checked(name, value, types[name], where)
        elif name in actions and where.startswith('--'):
            actions[name] = checked(name, value, action_types[name], where)
        else:
            options = [*types, *(actions if where.startswith('--') else ())]
            nearest = difflib.get_close_matches(name, options, n=1, cutoff=0.0)[0]
            raise ValueError(f'{where}: unknown setting {name!r}; the nearest is {nearest!r}')
    try:
        return cls(**inherit(values) | values), actions
    except ValueError as error:  # a dataclass that refuses a value begins its sentence with the setting's name
        name = str(error).split()[0]
        where = (found | typed).get(name, (None, ''))[1]
        raise ValueError(f'{where}: {error}' if where else str(error)) from None


def from_text(name, text, kind):
    """The value of `--name=text`; `kind` is None where the name is unknown (reported by the caller)."""
    if text is None:
        if kind is not bool and kind is not None:
            raise ValueError(f'--{name}: needs a value, as --{name}=...')
        return True
    if kind is str or kind is None:
        return text
    if kind is tuple and re.fullmatch(r'[\w.-]+(,[\w.-]+)*', text):  # 1e-3,2e-3 or tiny-clm,tiny-mlm40
        return tuple(number(part) for part in text.split(','))
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise ValueError(f'--{name}: {text!r} is not a value of type {kind.__name__}') from None


def number(text):
    """An int or a float if the text is one, else the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def checked(name, value, kind, where):
    """`value`, if it is of type `kind` (an int will do for a float), else a ValueError."""
    if kind is float and type(value) is int and abs(value) < 2 ** 1000:
        return float(value)
    if type(value) is not kind:
        raise ValueError(f'{where}: {name} takes {kind.__name__}, not {type(value).__name__} {value!r}')
    return value


def describe(cls, actions):
    """--help: the script's docstring, then each setting with its default and the comment it has in the source."""
    lines = [inspect.getmodule(cls).__doc__.strip(), '', f'settings of {cls.__name__} (config file or --name=value):']
    source = ''.join(inspect.getsource(base) for base in cls.__mro__ if dataclasses.is_dataclass(base))
    comments = dict(re.findall(r'^    (\w+):[^#\n]*(?:#\s*(.*))?$', source, re.MULTILINE))
    for field in dataclasses.fields(cls):
        default = '' if field.default is dataclasses.MISSING else repr(field.default)
        lines.append(f'  --{field.name:<24} {field.type.__name__:<6} {default:<18} {comments.get(field.name, "")}'.rstrip())
    if actions:
        lines += ['', 'actions (command line only):']
        lines += [f'  --{name:<24} {type(value).__name__:<6} {value!r}' for name, value in actions.items()]
    return '\n'.join(lines)


def run(main):
    """Call main(): a ValueError, the user's mistake, is one line and exit code 2 (`python -X dev` shows where from)."""
    try:
        main()
    except (ValueError, OSError) as error:
        if sys.flags.dev_mode:
            raise
        print('error: ' + ' '.join(str(error).split()), file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print('interrupted', file=sys.stderr)
        sys.exit(130)

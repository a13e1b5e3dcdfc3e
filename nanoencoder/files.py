"""Files that survive a kill: written whole or not at all, and on the disk before anything relies on them."""
import contextlib
import errno
import functools
import hashlib
import json
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import filelock

NO_LOCKS = errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS     # what file systems without flock answer


def sha256(path):
    with open(path, 'rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()


def sha256_of_text(text):
    return hashlib.sha256(text.encode()).hexdigest()


@contextlib.contextmanager
def blame(what, *kinds):
    """Turn errors of these kinds into a ValueError that begins with what is to blame, such as a path."""
    try:
        yield
    except kinds as error:
        raise ValueError(f'{what}: {error}') from None


def read_json(path, kind=dict, fields={}):
    """Return the object, or the list, that a JSON file holds. ValueError names the file if it cannot be read,
    or a field that is of another type than `fields` says: see `check_fields`."""
    try:
        content = json.loads(Path(path).read_text(encoding='utf-8'))
    except OSError as error:
        raise ValueError(f'{path}: {error.strerror}') from None
    except (ValueError, RecursionError):
        raise ValueError(f'{path}: not valid JSON') from None
    if type(content) is not kind:
        raise ValueError(f'{path}: holds no JSON {"object" if kind is dict else "list"}')
    check_fields(path, content, fields)
    return content


def check_fields(path, content, fields):
    """ValueError unless each field of a JSON object that is there, and not null, is of its type.

    fields  {name: type}; [str] is a list of texts, {'': int} an object whose values are integers"""
    for name, kind in fields.items():
        value = content.get(name)
        if value is not None and not is_of(value, kind):
            raise ValueError(f'{path}: {name} must be {kind_in_words(kind)}, not {value!r:.80}')


def is_of(value, kind):
    """Whether a value of JSON has a type as `check_fields` takes it."""
    if type(kind) is list:
        return type(value) is list and all(is_of(part, kind[0]) for part in value)
    if type(kind) is dict:
        return type(value) is dict and all(is_of(part, kind['']) for part in value.values())
    return type(value) is kind or (type(value), kind) == (int, float)


def kind_in_words(kind):
    names = {str: 'text', int: 'an integer', float: 'a number', dict: 'an object', bool: 'true or false'}
    if type(kind) is list:
        return f'a list, each entry {names[kind[0]]}'
    if type(kind) is dict:
        return f'an object, each value {names[kind[""]]}'
    return names[kind]


def write_json(path, content, indent=1):
    text = json.dumps(content, indent=indent, ensure_ascii=False)
    with whole(path) as temporary:
        temporary.write_text(text + '\n', encoding='utf-8')


def json_lines(rows):
    """Return the text of a .jsonl file."""
    lines = [json.dumps(row, ensure_ascii=False) + '\n' for row in rows]
    return ''.join(lines)


def plain_name(name, where):
    """Return a name that was read in the file `where`, for use as one piece of a path.
    ValueError if it could lead out of its folder."""
    if '/' in name or name.startswith('.'):
        raise ValueError(f'{where}: {name!r:.80} must be the plain name of a file or folder')
    return name


def changed_files(folder, digests):
    """Compare files in a folder with {name: sha256}.
    Returns the names of files that are missing or have changed."""
    def is_changed(name):
        path = folder / name
        return not path.is_file() or sha256(path) != digests[name]

    with ThreadPoolExecutor(8) as pool:  # reading and hashing release Python's global lock
        changes = pool.map(is_changed, digests)
        return [name for name, changed in zip(digests, changes) if changed]


def digest_of(content):
    """sha256 of a JSON object, whatever its order and layout."""
    content = json.loads(json.dumps(content))   # where keys that are numbers become text
    text = json.dumps(content, sort_keys=True)
    return sha256_of_text(text)


def write_sealed(path, content, indent=1):
    """Write a JSON object together with its digest, by which `read_sealed` notices an edit."""
    write_json(path, content | {'digest': digest_of(content)}, indent)


def read_sealed(path, advice):
    """Return the JSON object of a sealed file. ValueError if it was edited; `advice` says what to do then."""
    content = read_json(path)
    digest = content.pop('digest', None)
    if digest != digest_of(content):
        raise ValueError(f'{path}: changed since it was written; {advice}')
    return content


def saved_steps(run):
    """The steps of a run's checkpoints, the newest last."""
    return sorted(
        int(folder.name)
        for folder in Path(run).glob('*/')
        if folder.name.isdigit())


def saved_state(folder, advice='restore it'):
    """Read a checkpoint's state.json; {} if it has none. ValueError if it was edited."""
    path = Path(folder, 'state.json')
    if not path.exists():
        return {}
    return read_sealed(path, advice)


@contextlib.contextmanager
def whole(path):
    """Give a temporary path beside `path`, to write a file or make a folder at. When the block ends well it
    is synced and renamed to `path`. Leftovers of a killed process are deleted first, so only one process may
    write `path` at a time: hold a lock where there are several."""
    path = Path(path)
    temporary = path.with_name(f'.{path.name}.tmp')
    path.parent.mkdir(parents=True, exist_ok=True)
    remove(temporary)
    try:
        yield temporary
        for part in (*temporary.rglob('*'), temporary):
            sync(part)
        if path.is_dir():  # a rename cannot replace it; killed here, the caller does its work again
            remove(path)
        temporary.rename(path)
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
    finally:
        remove(temporary)
    sync(path.parent)


def sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def remove(path):
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(*paths, wait=False):
    """Hold `.<name>.lock` beside files or folders. If another process holds one: BlockingIOError, or `wait`.

    The lock files stay. If one were removed while it is held, a process that has opened it already and one
    that makes a new one could hold a lock each."""
    with contextlib.ExitStack() as stack:
        for path in paths:
            path = Path(path).absolute()
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = path.with_name(f'.{path.name}.lock')
            try:
                # filelock's fallback is a file that its maker removes: if that is killed, it stays for ever
                stack.enter_context(filelock.FileLock(lock, blocking=wait, fallback_to_soft=False))
            except filelock.Timeout:
                raise BlockingIOError(f'{path}: another process is writing there') from None
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise
                warn_of_no_locks(path.parent, error.strerror)
        yield


@functools.cache    # once a folder: a grid would say it of every run
def warn_of_no_locks(folder, reason):
    print(f'{folder}: its file system has no locks ({reason}), so two processes may do the same work there: '
          'start one at a time', file=sys.stderr)

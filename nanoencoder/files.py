"""Files that survive a kill: whole or not at all, on the disk before anything relies on them."""
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

NO_LOCKS = errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS     # of file systems without flock


def sha256(path):
    with open(path, 'rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()


@contextlib.contextmanager
def blame(what, *kinds):
    """Errors of these kinds become a ValueError that begins with what is to blame, as a file's path."""
    try:
        yield
    except kinds as error:
        raise ValueError(f'{what}: {error}') from None


def read_json(path):
    """What a JSON file holds. ValueError that names the file if it cannot be read."""
    try:
        return json.loads(Path(path).read_text(encoding='utf-8'))
    except OSError as error:
        raise ValueError(f'{path}: {error.strerror}') from None
    except (ValueError, RecursionError):
        raise ValueError(f'{path}: not valid JSON') from None


def write_json(path, content, indent=1):
    with whole(path) as temporary:
        temporary.write_text(json.dumps(content, indent=indent, ensure_ascii=False) + '\n', encoding='utf-8')


def plain_name(name, where):
    """Return a name that was read in the file `where` and becomes a piece of a path.
    ValueError if it could lead out of the folder that it is to stand in."""
    if not isinstance(name, str) or not name.isprintable() or '/' in name or name[:1] in ('', '.'):
        raise ValueError(f'{where}: {name!r:.80} must be the plain name of a file or folder')
    return name


def changed_files(listing, digests):
    """Compare files with {name: sha256}, which the file `listing` has of them; they lie beside it.
    Returns the names of those that are missing or have changed."""
    folder = Path(listing).parent
    paths = {name: folder.joinpath(*(plain_name(piece, listing) for piece in name.split('/')))
             for name in digests}

    def is_changed(name):
        return not paths[name].is_file() or sha256(paths[name]) != digests[name]
    with ThreadPoolExecutor(8) as pool:  # Python's global lock is free while a thread reads or hashes
        return [name for name, changed in zip(paths, pool.map(is_changed, paths)) if changed]


def digest_of(content):
    """sha256 of what JSON says, whatever its order and layout."""
    content = json.loads(json.dumps(content))   # where numbers that are keys become text
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_sealed(path, content):
    """Write a JSON object together with a digest of it, by which `read_sealed` sees an edit."""
    write_json(path, content | {'digest': digest_of(content)})


def read_sealed(path, advice):
    """The JSON object of a sealed file. Files of older versions have no digest, and are taken as they are."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise ValueError(f'{path}: holds no JSON object; {advice}')
    digest = content.pop('digest', None)
    if digest not in (None, digest_of(content)):
        raise ValueError(f'{path}: changed since it was written; {advice}')
    return content


def saved_steps(run):
    """The steps of a run's checkpoints, the newest last."""
    return sorted(int(path.name) for path in Path(run).glob('*/') if path.name.isdigit())


def saved_state(folder, advice='restore it'):
    """state.json of a checkpoint, or {}. ValueError if it was edited, or its folder is of another step."""
    path = Path(folder, 'state.json')
    if not path.exists():
        return {}
    state = read_sealed(path, advice)
    name = path.parent.name
    if name.isdigit() and state.get('step', int(name)) != int(name):
        raise ValueError(f'{path}: is of step {state["step"]!r:.20}, its folder of step {name}; {advice}')
    return state


@contextlib.contextmanager
def whole(path):
    """A path beside `path` to write a file or make a folder at; on leaving it is synced and takes its name.
    One process at a time: where several may write `path`, hold a lock. Leftovers of a
    killed process are deleted first."""
    path = Path(path)
    temporary = path.with_name(f'.{path.name}.tmp')
    path.parent.mkdir(parents=True, exist_ok=True)
    remove(temporary)
    try:
        yield temporary
        for part in (*temporary.rglob('*'), temporary):
            sync(part)
        if path.is_dir():  # which no rename replaces; killed here, the caller does its work again
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
    shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(*paths, wait=False):
    """Hold `.<name>.lock` beside files or folders; BlockingIOError if another process does, unless `wait`.

    The lock files stay. If one were removed while it is held, a process that has opened it already and one
    that makes a new one could hold a lock each."""
    with contextlib.ExitStack() as stack:
        for path in map(Path.absolute, map(Path, paths)):
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = path.with_name(f'.{path.name}.lock')
            try:
                # filelock's own fallback, a file that its maker removes, stays for ever where that was killed
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

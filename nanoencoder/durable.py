"""Files that survive a kill: whole or not at all, on the disk before anything relies on them."""
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from pathlib import Path


def sync(path):
    """Have a file or folder on the disk, not only on its way there."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def sha256(path):
    with open(path, 'rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()


def read_json(path):
    """The object a JSON file holds. ValueError if it cannot be read or holds none."""
    try:
        content = json.loads(Path(path).read_text(encoding='utf-8'))
    except OSError as error:
        raise ValueError(f'{path}: {error.strerror}') from None
    except (ValueError, RecursionError):
        raise ValueError(f'{path}: not valid JSON') from None
    if not isinstance(content, dict):
        raise ValueError(f'{path}: holds no JSON object')
    return content


@contextlib.contextmanager
def whole_file(path):
    """A binary file under a temporary name, synced and renamed to `path` on leaving."""
    temporary = Path(path).with_name(f'.{Path(path).name}.{os.getpid()}.tmp')
    try:
        with open(temporary, 'wb') as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync(temporary.parent)


def write_json(path, content, indent=1):
    """Write an object whole or not at all."""
    with whole_file(path) as file:
        file.write((json.dumps(content, indent=indent, ensure_ascii=False) + '\n').encode())


@contextlib.contextmanager
def whole_folder(folder):
    """A temporary folder to fill; on leaving it is synced and takes the name, and the place, of `folder`."""
    folder = Path(folder)
    temporary = folder.with_name(f'.{folder.name}.{os.getpid()}.tmp')
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for path in (*temporary.rglob('*'), temporary):
            sync(path)
        if folder.exists():
            before = temporary.with_name(f'{temporary.name}.old.tmp')
            folder.rename(before)
            shutil.rmtree(before)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    sync(folder.parent)


def remove_temporaries(folder):
    """What a killed process left half-written in a folder."""
    for path in Path(folder).glob('.*.tmp'):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextlib.contextmanager
def locked(folder, name='.lock'):
    """Refuse to go on where another process is at work. The lock goes with its process, whatever ends it."""
    with open(Path(folder, name), 'w') as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f'{folder}: another process is writing there') from None
        yield

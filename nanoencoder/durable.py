"""Files that survive a kill: whole or not at all, on the disk before anything relies on them."""
import contextlib
import csv
import errno
import fcntl
import hashlib
import io
import json
import os
import re
import secrets
import shutil
import sys
import time
from pathlib import Path


def sync(path):
    """Have a file or folder on the disk, not only on its way there."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def sha256(path):
    with open(path, 'rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()


# ------------------------------------------------------------------------------------------------- reading

def read_json(path, form=dict):
    """The object that a JSON file holds. ValueError if it cannot be read, or has not the form of `expect`."""
    try:
        content = json.loads(Path(path).read_text(encoding='utf-8'))
    except OSError as error:
        raise ValueError(f'{path}: {error.strerror}') from None
    except (ValueError, RecursionError):
        raise ValueError(f'{path}: not valid JSON') from None
    expect(content, dict, path)
    expect(content, form, path)
    return content


def expect(value, form, where):
    """ValueError unless what was read from a file has a form; `where` begins the message.

    form  a type (an int will do for a float), a tuple of types, [the form of each element of a list], or
          {key: form} of a dict, which may have more keys
    """
    if isinstance(form, dict):
        expect(value, dict, where)
        for key, own in form.items():
            if key not in value:
                raise ValueError(f'{where}: has no {key}: damaged, or of another program')
            expect(value[key], own, f'{where}: {key}')
    elif isinstance(form, list):
        expect(value, list, where)
        for number, item in enumerate(value):
            expect(item, form[0], f'{where}[{number}]')
    else:
        kinds = form if isinstance(form, tuple) else (form,)
        if type(value) not in kinds and not (type(value) is int and float in kinds):
            wanted = ' or '.join(kind.__name__ for kind in kinds)
            raise ValueError(f'{where}: {str(value):.80} was found where {wanted} was expected')


# ------------------------------------------------------------------------------------------------- writing

def temporary_name(path):
    """A hidden name beside a path that no other process has; `remove_temporaries` knows it."""
    return Path(path).with_name(f'.{Path(path).name}.{secrets.token_hex(4)}.tmp')


@contextlib.contextmanager
def whole_file(path):
    """A binary file under a temporary name, synced and renamed to `path` on leaving."""
    temporary = temporary_name(path)
    try:
        with open(temporary, 'wb') as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)
    sync(temporary.parent)


def write_json(path, content, indent=1):
    """Write an object whole or not at all."""
    with whole_file(path) as file:
        file.write((json.dumps(content, indent=indent, ensure_ascii=False) + '\n').encode())


def read_csv(path, columns=()):
    """[{column: text}] of a table, which must have `columns`; none where there is no file."""
    if not path.exists():
        return []
    try:
        with open(path, newline='', encoding='utf-8') as file:
            rows = list(csv.DictReader(file, strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f'{path}: damaged: {error}; restore it') from None
    for number, row in enumerate(rows, 2):
        if None in row or None in row.values() or not {*columns} <= {*row}:
            raise ValueError(f'{path}: line {number} has other columns than were written; restore it')
    return rows


def write_csv(path, columns, rows):
    """Write a table whole or not at all."""
    text = io.StringIO()
    csv.writer(text, lineterminator='\n').writerows([columns, *rows])
    with whole_file(path) as file:
        file.write(text.getvalue().encode())


@contextlib.contextmanager
def whole_folder(folder):
    """A temporary folder to fill; on leaving it is synced and takes the name, and the place, of `folder`.

    Where another process has put a whole folder there meanwhile, that stays and this one goes.
    """
    folder = Path(folder)
    temporary, replaced = temporary_name(folder), folder.exists()
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for path in (*temporary.rglob('*'), temporary):
            sync(path)
        if replaced:
            with contextlib.suppress(FileNotFoundError):
                folder.rename(temporary.with_name(f'{temporary.name}.old.tmp'))
        try:
            temporary.rename(folder)
        except OSError:
            if not folder.exists():
                raise
    except OSError as error:
        error.filename = error.filename or str(folder)
        raise
    finally:
        remove_temporaries(folder.parent, temporary.name[1:-4])
    sync(folder.parent)


def remove_temporaries(folder, name='*'):
    """Remove what killed processes left half-written in a folder, of all files and folders or of one name."""
    for path in Path(folder).glob(f'.{name}.*tmp'):
        old = re.fullmatch(r'\.(.+)\.\w+\.tmp\.old\.tmp', path.name)
        if old and not path.with_name(old[1]).exists():
            path.rename(path.with_name(old[1]))  # killed before the new folder took its place
        else:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()


@contextlib.contextmanager
def in_turn(folder, name='.lock'):
    """As `locked`, but where another process is at work, wait."""
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(locked(folder, name))
                break
            except BlockingIOError:
                time.sleep(0.1)
        yield


@contextlib.contextmanager
def locked(folder, name='.lock'):
    """BlockingIOError where another process is at work. The lock goes with its process, whatever ends it."""
    path, what = Path(folder, name), Path(folder, name[1:-5])  # .run.lock is that of `run`, .lock of all
    busy = BlockingIOError(f'{what}: another process is writing there')
    with open(path, 'w') as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise busy from None
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK):
                raise
            print(f'{folder}: no locks on this file system ({error.strerror}): one process at a time may '
                  'write there', file=sys.stderr)
        if not path.exists() or os.fstat(file.fileno()).st_ino != path.stat().st_ino:
            raise busy  # its owner has just left, and taken the file with it
        try:
            yield
        finally:
            path.unlink(missing_ok=True)

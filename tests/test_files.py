"""Files that survive a kill, and locks."""
import errno
import fcntl
import hashlib
import json
import multiprocessing
import re
import subprocess
from pathlib import Path

import pytest

from conftest import refused
from nanoencoder import files
from nanoencoder.pretraining.log import commit


@pytest.mark.parametrize('make', [Path.touch, Path.mkdir])
def test_what_is_written_appears_whole_or_not_at_all(tmp_path, make):
    for word in ('first', 'second'):    # which replaces the first
        with files.whole(tmp_path / 'deep/run') as temporary:
            make(temporary)
            (temporary / 'in' if temporary.is_dir() else temporary).write_text(word)
            assert word == 'second' or not (tmp_path / 'deep/run').exists()
    with pytest.raises(KeyboardInterrupt), files.whole(tmp_path / 'deep/run') as temporary:
        make(temporary)
        raise KeyboardInterrupt
    path = tmp_path / 'deep/run'
    assert (path / 'in' if path.is_dir() else path).read_text() == 'second'
    assert [*path.parent.iterdir()] == [path]


def test_an_error_of_the_disk_names_the_file(tmp_path):
    for error, name in ((OSError(28, 'full'), str(tmp_path / 'a')), (OSError(28, 'full', 'b'), 'b')):
        with pytest.raises(OSError) as caught, files.whole(tmp_path / 'a'):
            raise error
        assert caught.value.filename == name and not list(tmp_path.iterdir())


def test_a_commit_is_dirty_where_code_has_changed(tmp_path):
    """Not by the lines that a study adds to a table of its runs."""
    assert commit(tmp_path) == ''
    for name in ('a.py', 'losses.csv'):
        (tmp_path / name).write_text('1\n')
    git = 'git', '-C', tmp_path, '-c', 'user.name=a', '-c', 'user.email=b'
    for words in (['init', '-q'], ['add', '.'], ['commit', '-qm', 'a']):
        assert not words[0] == 'commit' or commit(tmp_path) == ''      # nothing to go back to
        subprocess.run([*git, *words], check=True)
    clean = commit(tmp_path)
    (tmp_path / 'losses.csv').write_text('2\n')
    assert commit(tmp_path) == clean and re.fullmatch('[0-9a-f]{40}', clean)
    (tmp_path / 'b.py').write_text('2\n')      # which git does not have
    assert commit(tmp_path) == f'{clean}-dirty'
    (tmp_path / 'b.py').rename(tmp_path / 'a.py')
    assert commit(tmp_path) == f'{clean}-dirty'


def test_json_is_read_as_it_was_written_or_named(tmp_path):
    path = tmp_path / 'state.json'
    refused(f'^{path}: No such file', files.read_json, path)
    files.write_json(path, {'step': 3, 'word': 'zufällig', 'loss': None})
    assert files.read_json(path) == {'step': 3, 'word': 'zufällig', 'loss': None}
    path.write_text('{"step": 3')
    refused(f'^{path}: not valid JSON', files.read_json, path)


def test_one_process_has_a_lock(tmp_path):
    with files.locked(tmp_path / 'run'):
        with pytest.raises(BlockingIOError, match=f'^{tmp_path}/run: another process'), \
                files.locked(tmp_path / 'run'):
            pass
    with files.locked(tmp_path / 'run'):
        pass


def count_up(path):
    for _ in range(50):
        with files.locked(path, wait=True):
            path.write_text(str(int(path.read_text()) + 1))


def test_who_waits_for_a_lock_writes_after_the_other(tmp_path):
    (tmp_path / 'count').write_text('0')
    with multiprocessing.get_context('fork').Pool(3) as others:
        others.map_async(count_up, [tmp_path / 'count'] * 3).get(60)
    assert (tmp_path / 'count').read_text() == '150'


@pytest.mark.parametrize('number', [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_is_named_once_and_used(tmp_path, monkeypatch, capsys, number):
    """Also where another host left a lock of filelock's own kind for such file systems, which is a file."""
    def flock(*_):
        raise OSError(number, 'no such thing')
    (tmp_path / '.run.lock').write_text('1234\nanother-host\n')
    monkeypatch.setattr(fcntl, 'flock', flock)
    for wait in (False, True):
        with files.locked(tmp_path / 'run', tmp_path / 'other', wait=wait):
            (tmp_path / 'run').write_text('written')
    line, = capsys.readouterr().err.splitlines()
    assert line.startswith(f'{tmp_path}: its file system has no locks (no such thing)')


def test_other_errors_of_a_lock_are_errors(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(errno.EIO, 'broken')
    monkeypatch.setattr(fcntl, 'flock', flock)
    with pytest.raises(OSError, match='broken'), files.locked(tmp_path / 'run'):
        pass


def test_a_lock_file_stays_what_it_was(tmp_path):
    """One that was removed while it is held would let another process make and hold a second one."""
    places = set()
    for _ in range(3):
        with files.locked(tmp_path / 'run'):
            places.add((tmp_path / '.run.lock').stat().st_ino)
        assert (tmp_path / '.run.lock').exists()
    assert len(places) == 1


@pytest.mark.parametrize('name', ['../evil', '..', '.', '', '/evil', 'a/../../evil', 'a//b', '.a', 'a\0b'])
def test_names_that_are_read_stay_in_their_folder(tmp_path, name):
    (tmp_path / 'in').mkdir()
    (tmp_path / 'evil').write_text('a')
    listing = tmp_path / 'in/list.json'
    refused(f'^{listing}: .* must be the plain name of a file', files.changed_files, listing,
            {name: files.sha256(tmp_path / 'evil')})
    refused(f'^{listing}: .* must be the plain name of a file', files.plain_name, name, listing)


def test_changed_files_are_named(tmp_path):
    for name in ('a', 'b', 'c/d'):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in ('a', 'b', 'c/d', 'gone')}
    (tmp_path / 'b').write_text('another')
    assert files.changed_files(tmp_path / 'list.json', digests) == ['b', 'gone']


def test_an_edit_of_a_sealed_file_is_seen(tmp_path):
    """Of its content, not of its layout; older files have no digest."""
    path = tmp_path / 'state.json'
    content = {'step': 3, 'lr': 1e-05, 'phases': [['clm', 3]], 'word': 'zufällig'}
    files.write_sealed(path, content)
    assert files.read_sealed(path, 'advice') == content
    sealed = path.read_text()
    path.write_text(json.dumps(dict(reversed(json.loads(sealed).items()))))
    assert files.read_sealed(path, 'advice') == content
    path.write_text(sealed.replace('"step": 3', '"step": 4'))
    refused(f'^{path}: changed since it was written; advice', files.read_sealed, path, 'advice')
    files.write_json(path, content)
    assert files.read_sealed(path, 'advice') == content


def test_a_state_is_of_the_step_that_its_folder_says(tmp_path):
    files.write_sealed(tmp_path / '9/state.json', {'step': 19})
    refused('9/state.json: is of step 19, its folder of step 9; restore', files.saved_state, tmp_path / '9')
    files.write_json(tmp_path / '19/state.json', {'step': 19})
    assert files.saved_state(tmp_path / '19') == {'step': 19}
    assert (tmp_path / '9').rename(tmp_path / 'mine') and files.saved_state(tmp_path / 'mine') == {'step': 19}
    assert files.saved_state(tmp_path / '20') == {}

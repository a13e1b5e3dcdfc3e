"""Files that survive a kill, and locks."""
import errno
import fcntl
import json
import multiprocessing

import pytest

from conftest import refused
from nanoencoder import files


def test_what_is_written_appears_whole_or_not_at_all(tmp_path):
    """A folder with a file in it, which replaces one that was there."""
    path = tmp_path / 'deep/run'
    for word in ('first', 'second'):
        with files.whole(path) as temporary:
            temporary.mkdir()
            (temporary / word).write_text(word)
            assert word == 'second' or not path.exists()
    with pytest.raises(KeyboardInterrupt), files.whole(path) as temporary:
        temporary.mkdir()
        raise KeyboardInterrupt
    assert [*path.parent.rglob('*')] == [path, path / 'second']


@pytest.mark.parametrize('error, name', [(OSError(28, 'full'), 'a'), (OSError(28, 'full', 'b'), 'b')])
def test_an_error_of_the_disk_names_the_file(tmp_path, monkeypatch, error, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OSError) as caught, files.whole('a') as temporary:
        temporary.touch()
        raise error
    assert caught.value.filename == name
    assert not list(tmp_path.iterdir())


def test_one_process_has_a_lock(tmp_path):
    """Its file stays. One removed while it is held would let another process make and hold a second one."""
    path = tmp_path / 'run'
    places = set()
    for _ in range(2):
        with files.locked(path):
            with pytest.raises(BlockingIOError, match=f'^{path}: another process'), files.locked(path):
                pass
        places.add((tmp_path / '.run.lock').stat().st_ino)
    assert len(places) == 1


def count_up(path):
    for _ in range(50):
        with files.locked(path, wait=True):
            path.write_text(str(int(path.read_text()) + 1))


def test_who_waits_for_a_lock_writes_after_the_other(tmp_path):
    path = tmp_path / 'count'
    path.write_text('0')
    # no Pool, whose end kills workers that may hold the lock of its queue
    others = [multiprocessing.get_context('fork').Process(target=count_up, args=[path]) for _ in range(3)]
    for other in others:
        other.start()
    for other in others:
        other.join(60)
    assert [other.exitcode for other in others] == [0, 0, 0]
    assert path.read_text() == '150'


def let_flock_fail(monkeypatch, number):
    def flock(*_):
        raise OSError(number, 'no such thing')
    monkeypatch.setattr(fcntl, 'flock', flock)


@pytest.mark.parametrize('number', files.NO_LOCKS)
def test_a_file_system_without_locks_is_named_once_and_used(tmp_path, monkeypatch, capsys, number):
    """Also where another host left a lock of filelock's own kind for such file systems, which is a file."""
    (tmp_path / '.run.lock').write_text('1234\nanother-host\n')
    let_flock_fail(monkeypatch, number)
    for wait in (False, True):
        with files.locked(tmp_path / 'run', tmp_path / 'other', wait=wait):
            pass
    line, = capsys.readouterr().err.splitlines()
    assert line.startswith(f'{tmp_path}: its file system has no locks (no such thing)')


def test_other_errors_of_a_lock_are_errors(tmp_path, monkeypatch):
    let_flock_fail(monkeypatch, errno.EIO)
    with pytest.raises(OSError, match='no such thing'), files.locked(tmp_path / 'run'):
        pass


@pytest.mark.parametrize('name', ['../evil', '..'])
def test_names_that_are_read_stay_in_their_folder(name):
    refused('^list.json: .* must be the plain name of a file', files.plain_name, name, 'list.json')


def test_an_edit_of_a_sealed_file_is_seen(tmp_path):
    """Of its content, not of its layout. What is no JSON is named."""
    path = tmp_path / 'state.json'
    content = {'step': 3, 'lr': 1e-05, 'phases': [['clm', 3]], 'word': 'zufällig', 'loss': None}
    files.write_sealed(path, content)
    assert files.read_sealed(path, 'advice') == content
    sealed = path.read_text()
    backwards = reversed(json.loads(sealed).items())
    path.write_text(json.dumps(dict(backwards)))
    assert files.read_sealed(path, 'advice') == content
    path.write_text(sealed.replace('"step": 3', '"step": 4'))
    refused(f'^{path}: changed since it was written; advice', files.read_sealed, path, 'advice')
    files.write_json(path, content)     # without a digest
    refused(f'^{path}: changed since it was written; advice', files.read_sealed, path, 'advice')
    path.write_text('{"step": 3')
    refused(f'^{path}: not valid JSON', files.read_sealed, path, 'advice')


@pytest.mark.parametrize('text, words', [
    ('[]', 'holds no JSON object'), ('[' * 100_000, 'not valid JSON'), (b'\xff\xfe{}', 'not valid JSON'),
    ('{"names": ["a", 1]}', "names must be a list, each entry text, not "),
    ('{"digests": {"a": []}}', 'digests must be an object, each value text, not '),
    (json.dumps({'step': 'x' * 999}), "step must be an integer, not 'x{79}$")])
def test_json_of_another_shape_is_one_line_that_names_the_file(tmp_path, text, words):
    """Neither a field that is missing or null is of a wrong type, nor an integer for a number."""
    fields = {'step': int, 'names': [str], 'digests': {'': str}, 'seconds': float}
    path = tmp_path / 'a.json'
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(f'^{path}: {words}', files.read_json, path, fields=fields)
    path.write_text('{"step": null, "seconds": 3}')
    assert files.read_json(path, fields=fields) == {'step': None, 'seconds': 3}
    path.write_text('[1]')
    assert files.read_json(path, list) == [1]

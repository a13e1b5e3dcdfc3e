"""Files that survive a kill, and locks."""
import multiprocessing
import re
import subprocess
from pathlib import Path

import pytest

from conftest import refused
from nanoencoder import files


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
    assert files.commit(tmp_path) == ''
    for name in ('a.py', 'losses.csv'):
        (tmp_path / name).write_text('1\n')
    git = 'git', '-C', tmp_path, '-c', 'user.name=a', '-c', 'user.email=b'
    for words in (['init', '-q'], ['add', '.'], ['commit', '-qm', 'a']):
        assert not words[0] == 'commit' or files.commit(tmp_path) == ''      # nothing to go back to
        subprocess.run([*git, *words], check=True)
    clean = files.commit(tmp_path)
    (tmp_path / 'losses.csv').write_text('2\n')
    assert files.commit(tmp_path) == clean and re.fullmatch('[0-9a-f]{40}', clean)
    (tmp_path / 'b.py').write_text('2\n')      # which git does not have
    assert files.commit(tmp_path) == f'{clean}-dirty'
    (tmp_path / 'b.py').rename(tmp_path / 'a.py')
    assert files.commit(tmp_path) == f'{clean}-dirty'


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

"""Files that survive a kill, locks, and what is asked of a file that was read."""
import errno
import fcntl
from pathlib import Path

import pytest

from nanoencoder import durable

FORM = {'step': int, 'seconds': float, 'shards': [{'name': str}], 'loss': (float, type(None))}
GOOD = {'step': 3, 'seconds': 1, 'shards': [{'name': 'a', 'tokens': 1}], 'loss': None, 'more': 'allowed'}


def test_what_a_file_holds_has_the_form_that_is_asked_for(tmp_path):
    durable.write_json(tmp_path / 'state.json', GOOD)
    assert durable.read_json(tmp_path / 'state.json', FORM) == GOOD


@pytest.mark.parametrize('change, message', [
    ({'step': True}, 'step: True was found where int was expected'),
    ({'step': 'x' * 500}, f'step: {"x" * 80} was found'),
    ({'shards': None}, 'shards: None was found where list'),
    ({'shards': [{'name': 'a'}, {}]}, 'shards[1]: has no name'),
    ({'loss': '1.0'}, 'loss: 1.0 was found where float or NoneType was expected')])
def test_another_form_is_an_error_that_says_where(tmp_path, change, message):
    path = tmp_path / 'state.json'
    durable.write_json(path, GOOD | change)
    with pytest.raises(ValueError) as error:
        durable.read_json(path, FORM)
    assert str(error.value).startswith(f'{path}: {message}')


def test_a_whole_folder_that_is_there_first_stays(tmp_path):
    """Before, the second of two writers removed the first one's folder, or failed with FileNotFoundError."""
    with durable.whole_folder(tmp_path / 'run') as late:
        (late / 'who').write_text('late')
        with durable.whole_folder(tmp_path / 'run') as early:
            (early / 'who').write_text('early')
    assert (tmp_path / 'run' / 'who').read_text() == 'early'
    assert [path.name for path in tmp_path.iterdir()] == ['run']


def test_a_folder_from_before_is_replaced(tmp_path):
    for word in ('old', 'new'):
        with durable.whole_folder(tmp_path / 'run') as folder:
            (folder / word).write_text('')
    assert [path.name for path in (tmp_path / 'run').iterdir()] == ['new']
    assert [path.name for path in tmp_path.iterdir()] == ['run']


def test_temporaries_of_one_name_go_alone(tmp_path):
    for name in ('.lr1_sd1.ab.tmp', '.lr1_sd1.cd.tmp', '.lr1_sd10.ab.tmp', '.12.tmp', 'kept.tmp'):
        (tmp_path / name).mkdir()
    durable.remove_temporaries(tmp_path, 'lr1_sd1')
    assert {path.name for path in tmp_path.iterdir()} == {'.lr1_sd10.ab.tmp', '.12.tmp', 'kept.tmp'}
    durable.remove_temporaries(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ['kept.tmp']


def test_a_kill_between_two_renames_loses_nothing(tmp_path):
    """Before, the folder from before was moved aside, and went with the new one that had not its name yet."""
    for name in ('.run.3.ab.tmp', '.run.3.ab.tmp.old.tmp', '.there.ab.tmp.old.tmp', 'there'):
        (tmp_path / name).mkdir()
        (tmp_path / name / 'was').write_text(name)
    durable.remove_temporaries(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ['run.3', 'there']
    assert (tmp_path / 'run.3/was').read_text() == '.run.3.ab.tmp.old.tmp'
    assert (tmp_path / 'there/was').read_text() == 'there'


def test_an_interrupt_between_two_renames_loses_nothing(tmp_path, monkeypatch):
    """Before, the folder that was moved aside was removed on the way out."""
    rename = Path.rename
    (tmp_path / 'run').mkdir()
    (tmp_path / 'run/was').write_text('')

    def interrupted(path, target):
        if target == tmp_path / 'run' and not path.name.endswith('.old.tmp'):
            raise KeyboardInterrupt
        return rename(path, target)
    monkeypatch.setattr(Path, 'rename', interrupted)
    with pytest.raises(KeyboardInterrupt), durable.whole_folder(tmp_path / 'run'):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ['run'] and (tmp_path / 'run/was').exists()


@pytest.mark.parametrize('writer', [durable.whole_file, durable.whole_folder])
def test_who_writes_names_the_file(tmp_path, writer):
    """Before, the path was looked for in the variables of the functions that an error came from."""
    for error, name in ((OSError(28, 'full'), str(tmp_path / 'a')), (OSError(28, 'full', 'b'), 'b')):
        with pytest.raises(OSError) as caught, writer(tmp_path / 'a'):
            raise error
        assert caught.value.filename == name and not list(tmp_path.iterdir())


def test_temporaries_of_hidden_files_go(tmp_path):
    durable.temporary_name(tmp_path / '.part.json').touch()
    durable.remove_temporaries(tmp_path)
    assert not list(tmp_path.iterdir())


def test_one_process_has_a_lock_and_takes_it_away(tmp_path):
    for name, what in (('.lock', tmp_path), ('.lr1_sd0.lock', tmp_path / 'lr1_sd0')):
        with durable.locked(tmp_path, name), pytest.raises(BlockingIOError, match=f'^{what}: another'):
            with durable.locked(tmp_path, name):
                pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('number', [errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK])
def test_a_file_system_without_locks_is_a_warning(tmp_path, monkeypatch, capsys, number):
    def refuse(file, how):
        raise OSError(number, 'not here')
    monkeypatch.setattr(fcntl, 'flock', refuse)
    with durable.locked(tmp_path):
        pass
    assert 'no locks on this file system (not here)' in capsys.readouterr().err

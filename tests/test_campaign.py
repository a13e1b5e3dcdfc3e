"""The fault campaign in short: kills, damaged files, full disks, meetings and odd values, a few of each."""
import pytest

from conftest import Script, run_process


@pytest.mark.slow
def test_two_attacks_of_each_case_are_survived():
    """docs/reliability.md has the numbers of a long run; a failure's report says how to repeat it."""
    result = run_process('tests/campaign.py', '--short', timeout=1_200)
    assert result.returncode == 0, result.stdout[-5_000:] + result.stderr[-1_000:]


def test_two_processes_with_shards_killed_in_a_save_go_on_bit_for_bit():
    result = Script('campaign.py', 'kills.sharded', '--trial=0').ended(300)
    assert result.returncode == 0, result.stdout[-5_000:] + result.stderr[-1_000:]

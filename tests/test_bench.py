"""The bench runs, does the same work as its peers, and is ahead of them (`make slow`: timing takes time)."""
import json
import sys

import pytest
import torch

import bench
from conftest import one_line_error, run_process, run_script
from nanoencoder.pretraining import cost

LEAST = {  # ratios below what is measured, for busy machines
    'step_padded': 1.5, 'step_packed': 1.0, 'step_fixed': 1.0, 'loss_alone': 1.8, 'ragged_inference': 2.0,
    'ragged_training': 1.8, 'tokenising': 1.5, 'loss_selected': 0.9, 'ragged_sorted': 0.8, 'clm_gpt': 0.7,
    'bootstrap': 0.7, 'ndcg': 5.0}


def run_bench(*arguments, timeout=120):
    return run_process('tests/bench.py', *arguments, timeout=timeout)


def draw(lines, folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, 'argv', ['bench.py', 'figure', str(lines)])
    bench.main()
    assert (folder / 'figures/speed.png').stat().st_size > 10_000


@pytest.mark.slow
def test_each_case_does_the_same_work_faster(tmp_path, monkeypatch):
    out = tmp_path / 'bench.jsonl'
    result = run_bench(*LEAST, 'loader_waits', '--repeats=3', f'--out={out}', timeout=900)
    assert result.returncode == 0, result.stderr
    lines = {line['case']: line for line in map(json.loads, out.read_text().splitlines())}
    assert lines.keys() == {*LEAST, 'loader_waits'}
    for name, least in LEAST.items():
        line = lines[name]
        assert line['lo'] <= line['ratio'] <= line['hi'] and line['ratio'] >= least, line
    assert lines['loss_alone']['peak_mib'] * 5 < lines['loss_alone']['peer_peak_mib']
    assert lines['bootstrap']['peak_mib'] < 32
    assert lines['loader_waits']['share'] < 0.05
    draw(out, tmp_path, monkeypatch)
    shown = run_bench('table', out, out)
    rows = [row for row in shown.stdout.splitlines() if row.startswith('|')]
    assert shown.returncode == 0 and len(rows) == 2 + len(LEAST), shown.stderr


def line_of(case, **measured):
    return json.dumps({'case': case, 'machine': '2 threads of CPU', 'torch': '2.13.0', 'commit': 'abc1234',
                       'date': '2026-01-31'} | measured) + '\n'


def test_table_and_figure_read_what_was_measured_before(tmp_path, capsys, monkeypatch):
    speed = {'lo': 2.71, 'hi': 3.14, 'tokens_per_second': 29_801}
    out = tmp_path / 'bench.jsonl'
    out.write_text(
        line_of('step_padded', ours=0.4123, peer=1.2, ratio=2.9, peak_mib=471.5, peer_peak_mib=2301.4,
                **speed)
        + line_of('loader_waits', share=0.0053, tokens_per_second=30_000)
        + line_of('growth', of='vocabulary', at=4_096, peak_mib=10.0, peer_peak_mib=70.0)
        + line_of('growth', of='context', at=256, **speed)
        + line_of('mfu 610m clm', ms=254.1, peak_gib=40.2, mfu=0.4112, **speed))
    bench.table([out])
    printed = capsys.readouterr().out
    assert ('6 rows of 2,048 cut as in the paper | Hugging Face padded | 2.4 | **2.90** (2.71 to 3.14) '
            '| 412 ms, 29,801 tokens/s | 472 / 2,301 |') in printed
    assert '2026-01-31, a step waits 0.5% for its batch' in printed
    assert '| 610m clm | 254.1 (2.71 to 3.14) | 29,801 | 41.1% | 40.2 |' in printed
    draw(out, tmp_path, monkeypatch)


def test_a_wrong_case_is_named():
    one_line_error(run_script('bench.py', 'stepp'), 'error: no case stepp; there are step_padded')


def test_a_killed_runs_half_line_costs_only_itself(tmp_path):
    out = tmp_path / 'bench.jsonl'
    out.write_text('{"case": "ndcg", "ours"')
    result = run_script('bench.py', 'bootstrap', '--repeats=1', f'--out={out}')
    assert result.returncode == 0, result.stderr
    shown = run_script('bench.py', 'table', out)
    assert shown.stdout.count('interval of a mean') == 1 and 'bench.jsonl:1: not a line' in shown.stderr


def test_utilisation_is_what_was_counted_over_what_was_timed(tmp_path, monkeypatch):
    """The lines of `mfu`, of a small model on a CPU that passes for a GPU: the arithmetic, not the speed."""
    (tmp_path / 'configs').mkdir()
    sizes = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
                 num_key_value_heads=1, vocab_size=512, context=64)
    config = ['name = "toy"', 'phases = (("mlm", 10),)']
    config += [f'{name} = {size}' for name, size in sizes.items()]
    (tmp_path / 'configs/toy_mlm.py').write_text('\n'.join(config))
    # the first epoch of each does not count
    clock = iter([9.0] + 4 * [0.012] + [9.0] + 4 * [0.012] + 4 * [0.030])
    monkeypatch.setattr(bench, 'ROOT', tmp_path)
    monkeypatch.setattr(bench, 'clean', lambda: None)
    monkeypatch.setattr(bench, 'PEAKS', {'a pretended GPU': 1e12})
    monkeypatch.setattr(torch.cuda, 'get_device_name', lambda: 'a pretended GPU')
    monkeypatch.setattr(torch.cuda, 'max_memory_allocated', lambda: 2 ** 30)
    monkeypatch.setattr(bench, 'seconds', lambda run: (run(), next(clock))[1])
    ours = {kind: bench.utilisation('toy', kind, 3) for kind in ('mlm', 'clm')}
    peer = bench.peer_utilisation('toy', 3)
    assert [line['case'] for line in (*ours.values(), peer)] == [
        'mfu toy mlm', 'mfu toy clm', 'mfu toy mlm, Hugging Face padded']
    cfg = bench.of_size('toy', rows_per_step=6, micro_rows=6)
    # 6 N and 12 L d context for each token, with N = 32 x 512 (the head) + 2 (32 x 32 + 32 x 16)
    # + 3 x 32 x 48 + 3 x 32
    nanogpt = 6 * 24_160 + 12 * 32 * 64
    for kind, line in ours.items():
        assert line['ms'] == 1.0 and line['tokens_per_second'] == 6 * 64 * 1000 and line['first_step_s'] == 9
        expected = cost.flops_per_token(cfg, kind) * 384 / 0.001 / 1e12
        assert line['mfu'] == pytest.approx(expected, rel=0.05)
        assert line['mfu_nanogpt_formula'] == pytest.approx(nanogpt * 384 / 0.001 / 1e12, rel=1e-2)
    assert peer['ms'] == 2.5
    monkeypatch.setattr(bench, 'DEVICE', torch.device('cpu'))
    with pytest.raises(ValueError, match='mfu needs CUDA'):
        next(bench.mfu('toy', 3, with_peer=True))

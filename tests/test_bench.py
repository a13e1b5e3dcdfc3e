"""The bench does the same work as its peers, and is ahead of them (`make slow`: timing takes time)."""
import json

import pytest
import torch

import bench
from conftest import run_process
from nanoencoder.pretraining import cost

LEAST = {  # ratios below what is measured, for busy machines
    'step_padded': 1.5, 'step_packed': 1.0, 'step_fixed': 1.0, 'loss_alone': 1.8, 'loss_selected': 0.9,
    'clm_gpt': 0.7, 'finetuning': 1.8}


@pytest.mark.slow
def test_each_case_does_the_same_work_faster(tmp_path):
    out = tmp_path / 'bench.jsonl'
    result = run_process('tests/bench.py', *LEAST, '--repeats=3', f'--out={out}', timeout=900)
    assert result.returncode == 0, result.stderr
    lines = {line['case']: line for line in map(json.loads, out.read_text().splitlines())}
    assert lines.keys() == LEAST.keys()
    for name, least in LEAST.items():
        assert lines[name]['lo'] <= lines[name]['ratio'] <= lines[name]['hi'], lines[name]
        assert lines[name]['ratio'] >= least, lines[name]
    assert lines['loss_alone']['peak_mib'] * 5 < lines['loss_alone']['peer_peak_mib']


def test_utilisation_is_what_was_counted_over_what_was_timed(monkeypatch):
    """The lines of `mfu`, of a small model on a CPU that passes for a GPU: the arithmetic, not the speed."""
    cfg = bench.tiny(hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
                     num_key_value_heads=1, vocab_size=512, context=64, rows_per_step=6)
    monkeypatch.setattr(bench, 'of_size', lambda size, **changes: cfg)
    monkeypatch.setattr(bench, 'PEAKS', {'a pretended GPU': 1e12})
    monkeypatch.setattr(bench, 'seconds', lambda run: (run(), 0.024)[1])    # of 24 steps
    for name, value in {'is_available': True, 'get_device_name': 'a pretended GPU', 'empty_cache': None,
                        'max_memory_allocated': 2 ** 30, 'reset_peak_memory_stats': None}.items():
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    lines = list(bench.mfu('toy', 2))
    cases = ['mfu toy mlm', 'mfu toy clm', 'mfu toy mlm, Hugging Face padded']
    assert [line['case'] for line in lines] == cases
    for line, objective in zip(lines, ('mlm', 'clm')):
        assert line['ms'] == 1.0 and line['tokens_per_second'] == 6 * 64 * 1000
        expected = cost.flops_per_token(cfg, objective) * 384 / 0.001 / 1e12
        assert line['mfu'] == pytest.approx(expected, rel=0.05)

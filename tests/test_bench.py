"""The bench does the same work as its peers, and is ahead of them (`make slow`: timing takes time)."""
import pytest
import torch

import bench
import gpu
from conftest import read_rows, run_process
from nanoencoder.pretraining import cost

LEAST = {  # ratios below what is measured, for busy machines
    'step_padded': 1.5, 'step_packed': 1.0, 'step_fixed': 1.0, 'loss_alone': 1.8, 'loss_selected': 0.9,
    'clm_gpt': 0.7, 'finetuning': 1.8}


@pytest.mark.slow
def test_each_case_does_the_same_work_faster(tmp_path):
    out = tmp_path / 'bench.jsonl'
    run_process('bench/bench.py', *LEAST, '--repeats=3', f'--out={out}', timeout=900, check=True)
    for line, least in zip(read_rows(out), LEAST.values(), strict=True):
        assert line['ratio'] >= least, line
        if line['case'] == 'loss_alone':
            assert line['peak_mib'] * 5 < line['peer_peak_mib']


@pytest.mark.parametrize('size, rows', [('124m', 0), ('210m', 72), ('610m', 24), ('1b', 12)])
def test_batches_of_a_size_are_whole_however_many_rows(size, rows):
    cfg = bench.replace(bench.shape(size, rows), phases=(('clm', 10_000),))
    batches = bench.batches_of(cfg, 'clm', 12)
    assert {len(batch.tokens) for batch in batches} == {cfg.rows_per_step * cfg.context}


def test_utilisation_is_what_was_counted_over_what_was_timed(monkeypatch):
    """The lines of `mfu`, of a small model on a CPU that passes for a GPU: the arithmetic, not the speed."""
    cfg = bench.settings('tiny', hidden_size=32, intermediate_size=48, num_hidden_layers=1, vocab_size=512,
                         context=64, rows_per_step=6)

    def take_12_ms(run):
        run()
        return 0.012        # of 12 steps

    monkeypatch.setattr(bench, 'settings', lambda size, **changes: cfg)
    monkeypatch.setattr(bench, 'seconds', take_12_ms)
    monkeypatch.setattr(bench, 'machine', lambda: {'machine': 'a pretended GPU'})
    monkeypatch.setitem(cost.PEAKS, 'a pretended GPU', 1e12)
    monkeypatch.setattr(torch.cuda, 'reset_peak_memory_stats', lambda: None)
    *ours, _ = bench.mfu('210m', [6], ['mlm', 'clm'], 2)
    for line, objective in zip(ours, ('mlm', 'clm'), strict=True):
        assert line['issued_ms'] > 0
        assert line['tokens_per_second'] == 6 * 64 * 1000
        expected = cost.flops_per_token(cfg, objective) * 384 / 0.001 / 1e12
        assert line['mfu'] == pytest.approx(expected, rel=0.05)


def test_steps_that_hang_or_were_stopped_are_done_again_and_others_are_not(tmp_path, monkeypatch):
    """SIGTERM raises KeyboardInterrupt, as Ctrl-C does. The report has what a step had said."""
    monkeypatch.setattr(gpu, 'PATIENCE', 0.5)
    done = []

    def work():
        done.append('work')
        yield 'it works'

    def hang():
        done.append('hang')
        yield from gpu.run('-c', 'import time; time.sleep(1_000)')

    def stopped():
        yield 'half of it'
        raise KeyboardInterrupt

    steps = {'work': gpu.Step(work, 99), 'hang': gpu.Step(hang, 0.1), 'stopped': gpu.Step(stopped, 1)}
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            gpu.do_all(steps, tmp_path / 'steps.json', 'settings')
    assert done == ['work', 'hang', 'hang']
    report = (tmp_path / 'report.md').read_text()
    assert '## work: done, 0 s\n\n```\nit works\n```' in report
    assert '## stopped: stopped, 0 s\n\n```\nhalf of it\n```' in report

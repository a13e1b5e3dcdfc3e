"""The paper's published cells, from its authors' own runs; their results, shown beside its tables."""
import csv
import json

import numpy as np
import pytest

from conftest import ROOT, ran, refused_line, run_script
from nanoencoder.files import read_json
from studies import report
from studies.paper import published, results


def test_the_papers_cells_from_its_own_runs(tmp_path):
    """A seed's only run has no validation score there, and a run that is not chosen no test score."""
    with open(ROOT / 'studies/paper/authors_runs.csv') as file:
        for row in csv.DictReader(file):
            name = f'{row["model"]}/{row["task"]}/{row["dataset"]}/lr{row["lr"]}_sd{row["seed"]}'
            scores = {
                split: {'score': float(row[split] or 'nan'), 'scores_i': [0.5]}
                for split in ('validation', 'test')}
            write_results(tmp_path / name, scores)
    # it warns of runs that are missing, so it does not end with 0
    shown = run_script('studies.paper.results', tmp_path, 'table', '--published', '--format=csv').stdout
    cells = {
        (row['model'], row['task'], row['dataset']): (float(row['mean']), float(row['high']))
        for row in csv.DictReader(shown.splitlines())}
    assert len(cells) == 5
    assert ('210m-clm-42k', 'SC', 'Average') in cells
    for key, (mean, high) in cells.items():
        assert published.cell(*key, cells) == (round(mean, 2), round(high - mean, 2)), key


def write_results(folder, scores):
    folder.mkdir(parents=True)
    (folder / 'results.json').write_text(json.dumps(scores))


def test_results_of_the_authors_are_read_and_never_written(tmp_path):
    """Retrieval's folders name what was trained on."""
    for name in ('SC/toy/lr1e-04_sd0', 'IR/nq/msmarco_pairs_lr1e-04_sd0'):
        scores = {'score': 0.75, 'scores_i': [0.5] * 40}
        write_results(tmp_path / 'theirs' / name, {'validation': scores, 'test': scores})
    before = {path: path.read_bytes() for path in tmp_path.rglob('*.*')}
    shown = ran('studies.paper.results', tmp_path, 'table').stdout
    assert 'toy (accuracy, n=40)' in shown
    assert 'nq (NDCG@10, n=40)' in shown
    assert shown.count('75.00 (one seed)') == 2
    assert {path: path.read_bytes() for path in tmp_path.rglob('*.*')} == before
    write_results(tmp_path / 'theirs/SC/toy/lr1e-04_sd1', {'validation': scores})
    refused_line('lacks "score" or "scores_i" of test', 'studies.paper.results', tmp_path, 'table')


def test_the_papers_numbers_by_themselves_and_beside(tmp_path):
    shown = ran('studies.paper.results', 'table', '--published').stdout
    assert '90.00 (0.30)' in shown
    scores = {'score': 0.9, 'scores_i': [0.5]}
    for model in ('210m-clm-42k', 'ours'):
        write_results(tmp_path / model / 'SC/sst2/lr1e-04_sd0', {'validation': scores, 'test': scores})
    shown = ran('studies.paper.results', tmp_path, 'table', '--published').stdout
    assert shown.count('90.00 (one seed)') == 2
    assert shown.count('90.00 (one seed) / ') == 1


@pytest.mark.parametrize('name', ['ratio', 'share', 'steps', 'flops', 'cpt'])
def test_figures_of_the_papers_numbers(name, tmp_path):
    ran('studies.paper.results', 'figure', name, '--published', f'--out={tmp_path}')
    assert (tmp_path / f'{name}.png').stat().st_size > 5_000


def test_the_papers_figures_know_phases_that_are_run_through_again():
    about = {'phases': [('clm', 1), ('mlm', 3)], 'repeat': 100, 'mask_ratio': 0.4, 'step': 400, 'flops': 1.0}
    for name, wanted in {'share': 25, 'ratio': 40, 'steps': 400}.items():
        _, x = results.place(name, about, None)
        assert x == wanted, name
    assert results.place('share', about | {'step': 4}, None) is None  # not at its end
    assert results.place('cpt', about, None) is None


def test_shares_have_a_colour_a_size_and_a_dash_a_length():
    lines = [f'{size} CLM then MLM 40%, {steps} steps'
             for size, steps in [('610M', '42,000'), ('610M', '12,000'), ('1B', '42,000')]]
    (first, solid), (same, dashed), (other, also_solid) = map(results.styles_by_size(lines).get, lines)
    assert first == same != other
    assert (solid, dashed, also_solid) == ('-', '--', '-')


def test_other_commands_of_the_paper_get_one_line():
    refused_line('figure is one of ratio', 'studies.paper.results', 'figure', 'pie')
    refused_line('the command is table', 'studies.paper.results')


def test_averages_and_the_numbers_beside_a_claim_are_the_papers():
    numbers = published.numbers()
    datasets = {}   # {(model, task): means}
    for (model, task, dataset), (mean, _) in numbers.items():
        if dataset != 'Average':
            datasets.setdefault((model, task), []).append(mean)
    for (model, task, dataset), (mean, _) in numbers.items():
        if dataset == 'Average':
            assert np.mean(datasets[model, task]) == pytest.approx(mean, abs=0.011)
    for claim in read_json(report.CLAIMS).values():
        for first, second, tasks in claim['differences']:
            for task in tasks:
                assert {(first, task), (second, task)} <= datasets.keys()

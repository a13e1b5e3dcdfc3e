"""studies/layers.py: CKA by its definition, the states of each layer, the script."""
import re

import numpy as np
import pytest
import torch

from conftest import assert_near, refused_line, run_script
from nanoencoder.huggingface import open_checkpoint
from nanoencoder.tasks.kind import Example
from studies import layers


def test_linear_cka_is_hsic_of_gram_matrices():
    """Normalised, so it is 1 of the same states, rotated and scaled."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(50, 8))
    y = draw.normal(size=(50, 6))
    centred = np.eye(50) - 1 / 50
    of_x, of_y = (centred @ z @ z.T @ centred for z in (x, y))
    expected = (of_x * of_y).sum() / np.sqrt((of_x * of_x).sum() * (of_y * of_y).sum())
    assert layers.linear_cka(x, y) == pytest.approx(expected, rel=1e-9)
    assert expected < 0.9


@torch.no_grad()
def test_states_of_the_last_layer_give_the_models_vectors(checkpoint):
    transformer = open_checkpoint(checkpoint).model(head=False)
    read = layers.read_layers(transformer, [Example(np.arange(9)), Example(np.arange(5))])
    assert len(read) == 1 + len(transformer.layers)
    last = torch.from_numpy(np.concatenate(read[-1]))
    whole = transformer(torch.tensor([*range(9), *range(5)]), [9, 5], causal=False)
    assert_near(transformer.norm(last), whole)


def test_the_script_measures_and_names_what_it_cannot_compare(toy, checkpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'task.py').write_text('')
    words = [word for word in toy['TC'] if not re.match('--(steps|lr|device)', word)]
    result = run_script('studies.layers', 'task.py', checkpoint, checkpoint, *words)
    assert result.returncode == 0, result.stderr
    assert re.search(r', layer 2: CKA with the first 1.000 accuracy of a probe 0.\d+\n', result.stdout)
    refused_line('a task of kind TC', 'studies.layers', 'task.py', checkpoint, *toy['SC'][:3])

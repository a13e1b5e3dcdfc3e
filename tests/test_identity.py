"""studies/identity.py: the share of states whose nearest one is of their token, the draw, the script."""
import csv

import numpy as np
import torch
from pytest import approx
from sklearn.neighbors import NearestNeighbors

from conftest import assert_near, refused, refused_line, run_script
from data import Corpus
from nanoencoder.huggingface import open_checkpoint
from studies import identity


def test_identity_by_hand():
    """Of five states three can find their token in another document: 8 and 9 are in one document each."""
    states = np.array([[1, 0], [0.8, 0.6], [0.6, 0.8], [0, 1], [-1, 0]])
    ids = np.array([7, 7, 7, 8, 9])
    documents = np.array([0, 1, 1, 1, 2])
    # each 7 finds the one of the other document; the nearest to the last of them are in its own
    assert identity.identity(states, ids, documents) == (1, 3)
    # now the 9 is nearer to both sevens of document 1 than the 7 of document 0 is
    states[4] = 0.5, np.sqrt(0.75)
    assert identity.identity(states, ids, documents) == (approx(1 / 3), 3)
    refused('no token was drawn from two documents', identity.identity, states, ids, np.zeros(5, int))


def test_identity_is_that_of_nearest_neighbours_in_the_other_documents():
    draw = np.random.default_rng(0)
    states = draw.normal(size=(60, 4))
    states /= np.linalg.norm(states, axis=1, keepdims=True)
    ids = draw.integers(0, 12, 60)
    documents = np.repeat(range(6), 10)
    right = []
    for k in range(60):
        elsewhere = documents != documents[k]
        if ids[k] in ids[elsewhere]:
            neighbours = NearestNeighbors(n_neighbors=1, metric='cosine').fit(states[elsewhere])
            nearest = neighbours.kneighbors(states[k:k + 1], return_distance=False)
            right.append(ids[elsewhere][nearest.item()] == ids[k])
    share, count = identity.identity(states, ids, documents)
    assert share == approx(np.mean(right))
    assert count == len(right)
    assert 0 < share < 1


def test_tokens_are_drawn_from_many_documents_and_none_is_special(corpus):
    cfg = identity.Settings(corpus=str(corpus), states=100, of_each=7, length=30)
    opened = Corpus(corpus)
    drawn = identity.draw_tokens(opened, cfg)
    assert sum(len(positions) for _, positions in drawn) == 100
    for tokens, positions in drawn:
        assert len(tokens) <= 30
        assert len(positions) == len({*positions.tolist()}) <= 7
        assert not np.isin(tokens[positions], opened.meta['special_ids']).any()
    again = identity.draw_tokens(opened, cfg)
    assert [positions.tolist() for _, positions in again] == [positions.tolist() for _, positions in drawn]
    too_many = identity.Settings(corpus=str(corpus), states=10 ** 6)
    refused('tokens too few; give --states=', identity.draw_tokens, opened, too_many)


def test_the_script_measures_each_checkpoint_and_an_untrained_model(corpus, trained, checkpoint, tmp_path):
    cfg = trained(name='made')
    run = tmp_path / 'out/made'
    options = f'--corpus={corpus}', '--states=200', f'--out={tmp_path}/identity.csv'
    result = run_script('studies.identity', run / '4', run, *options)
    assert result.returncode == 0, result.stderr
    with open(tmp_path / 'identity.csv') as file:
        rows = [*csv.DictReader(file)]
    steps = [(row['model'], row['step']) for row in rows]
    assert steps == [('untrained', '0'), ('made', '4'), ('made', str(cfg.total_steps))]
    assert float(rows[0]['identity']) > 0.5     # states of a new model are about their embeddings
    refused_line('it takes folders of checkpoints', 'studies.identity', *options)


@torch.no_grad()
def test_states_are_those_of_a_text_read_alone(checkpoint):
    transformer = open_checkpoint(checkpoint).model(head=False)
    tokens = np.arange(9)
    states = identity.read_states(transformer, [(np.arange(5), np.array([0, 3])), (tokens, np.array([8]))])
    whole = transformer(torch.from_numpy(tokens), [9], causal=False)
    assert_near(torch.from_numpy(states[2]), whole[8] / whole[8].norm())

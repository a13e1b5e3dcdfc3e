"""embedding_init = "counts": equal to slow loops of numpy, the same bits in any world, worth its seconds."""
from pathlib import Path

import numpy as np
import pytest
import torch
from pytest import approx
from safetensors.torch import load_file

import data
import pretrain
from conftest import ROOT, arguments, log_lines, refused, replace, run_process, torchrun
from model import initial_weight
from nanoencoder.pretraining import checkpoint, counts
from nanoencoder.settings import parse

TABLE = 'model.embed_tokens.weight'


def tokens_that_are_read(corpus, cfg, steps):
    """The rows of a run's first steps, whole."""
    stretches = corpus.num_stretches('train', cfg.context)
    rows = [row for step in range(steps) for row in data.rows_of_step(step, stretches, cfg)]
    return [corpus.stretch('train', stretch, cfg.context).tolist() for _, stretch in rows]


def slow_table(rows, vocab_size, contexts, size):
    """What counted_embeddings computes, by loops and numpy's own singular value decomposition."""
    flat = [token for row in rows for token in row]
    order = sorted(range(vocab_size), key=lambda token: (-flat.count(token), token))
    frequent = order[:contexts]
    table = np.zeros((vocab_size, contexts))
    for row in rows:
        for place, token in enumerate(row):
            for other in (place - 2, place - 1, place + 1, place + 2):
                if 0 <= other < len(row) and row[other] in frequent:
                    table[token, frequent.index(row[other])] += 1
    total = table.sum()
    pmi = np.zeros_like(table)
    for token, column in zip(*table.nonzero()):
        p = table[token, column] / total
        by_chance = (table[token].sum() / total) * (table[:, column].sum() / total)
        pmi[token, column] = max(0, np.log(p / by_chance))
    left, singular, _ = np.linalg.svd(pmi)
    reduced = left[:, :size] * singular[:size]
    norms = np.linalg.norm(reduced, axis=1)
    return reduced * 1.2 / norms[norms > 1e-9].mean()


def test_equals_a_slow_script_of_numpy(settings, corpus, monkeypatch):
    """Up to the sign of each column, which is no matter of the products of its rows."""
    monkeypatch.setattr(counts, 'CONTEXTS', 50)
    monkeypatch.setattr(counts, 'ROWS_AT_ONCE', 3)
    cfg = settings(phases=(('mlm', 2),), warmup_steps=0, decay_steps=0)
    corpus = data.Corpus(corpus)
    table, has_one = counts.counted_embeddings(corpus, cfg)
    slow = slow_table(tokens_that_are_read(corpus, cfg, steps=2), 4_096, 50, 32)
    assert table.shape == (4_096, 32) and table.dtype == torch.float32
    assert has_one.tolist() == (np.linalg.norm(slow, axis=1) > 1e-9).tolist()
    assert 50 < has_one.sum() < 300
    ours = table.double().numpy()
    assert np.abs(ours @ ours.T - slow @ slow.T).max() < 1e-5
    assert np.linalg.norm(ours[has_one], axis=1).mean() == approx(1.2, abs=1e-6)


def test_what_was_not_seen_is_random_and_all_else_is_as_without(settings, corpus):
    """A step with a learning rate of 0 saves the weights that the run began with, the same bits with one
    process and two."""
    still = dict(phases=(('mlm', 1),), lr=0.0, warmup_steps=0, decay_steps=0, val_rows=0)
    begun = {}
    for name, more in (('normal', {}), ('counts', {'embedding_init': 'counts'})):
        cfg = settings(name=name, **still, **more)
        pretrain.train(cfg)
        begun[name] = load_file(Path(cfg.out, name, '1/model.safetensors'))
    table, has_one = counts.counted_embeddings(data.Corpus(corpus), cfg)
    assert torch.equal(begun['counts'][TABLE][has_one], table[has_one])
    fresh = initial_weight(TABLE, table.shape, cfg.seed)
    assert torch.equal(begun['counts'][TABLE][~has_one], fresh[~has_one])
    for name in begun['normal']:
        assert name == TABLE or torch.equal(begun['normal'][name], begun['counts'][name])

    torchrun(2, 'pretrain.py', *arguments(replace(cfg, name='two')))
    two = load_file(Path(cfg.out, 'two/1/model.safetensors'))
    assert torch.equal(two[TABLE], begun['counts'][TABLE])


def test_nothing_is_counted_that_the_run_does_not_read(settings, corpus, monkeypatch):
    corpus = data.Corpus(corpus)
    cfg = settings(phases=(('mlm', 7),), first_row=11)
    rows = np.concatenate([*counts.first_rows(corpus, cfg)])
    assert rows.tolist() == tokens_that_are_read(corpus, cfg, steps=7)
    monkeypatch.setattr(counts, 'MOST_TOKENS', 3 * 4 * 64 - 1)     # three steps of 4 rows of 64 tokens
    rows = np.concatenate([*counts.first_rows(corpus, cfg)])
    assert rows.tolist() == tokens_that_are_read(corpus, cfg, steps=3)


def test_where_it_does_not_fit_is_one_line(settings, trained, corpus, monkeypatch):
    cfg = trained(name='parent', phases=(('mlm', 12),), embedding_init='counts')
    parent = str(Path(cfg.out, 'parent'))
    refused('embedding_init is for new weights', settings, weights_from=parent, embedding_init='counts')
    monkeypatch.setattr(pretrain.Settings, 'lr_at', lambda cfg, step: cfg.lr)    # whatever the schedule is
    longer = replace(cfg, name='longer', phases=(('mlm', 13),), branch_from=f'{parent}/8')
    refused('counted in 12 steps, and would be in 13 of this run', pretrain.train, longer)
    trained(name='normal', phases=(('mlm', 12),))
    of_normal = replace(longer, branch_from=str(Path(cfg.out, 'normal/8')))
    refused("embedding_init = 'normal', this run 'counts'", pretrain.train, of_normal)
    few = replace(cfg, context=31, rows_per_step=1, phases=(('mlm', 1),), warmup_steps=0, decay_steps=0)
    refused('hidden_size is 32, and may be', counts.counted_embeddings, data.Corpus(corpus), few)
    monkeypatch.setattr(counts, 'CONTEXTS', 31)
    refused('hidden_size is 32, and may be 31 at most',
            counts.counted_embeddings, data.Corpus(corpus), cfg)


@pytest.mark.slow
def test_the_rows_help_the_tokens_that_they_belong_to(tmp_path, monkeypatch):
    """400 steps of MLM at the demo's size, on its texts. With a random table a model still stands near the
    frequencies of tokens, 6.7 nats. So does one whose counted rows are dealt to other tokens."""
    texts = tmp_path / 'texts'
    corpus = tmp_path / 'corpus'
    run_process('examples/embedded_docs.py', f'--out={texts}')
    paths = [f'--{name}={texts}/embedded/{split}/docs.jsonl'
             for name, split in (('path', 'train'), ('val_path', 'validation'))]
    run_process('data.py', 'configs/corpora/docs.py', *paths, f'--out={corpus}')

    def dealt(*words):
        table, has_one = counts.counted_embeddings(*words)
        shuffled = torch.from_numpy(np.random.default_rng(0).permutation(int(has_one.sum())))
        table[has_one] = table[has_one][shuffled]
        return table, has_one

    monkeypatch.chdir(ROOT)     # the config names a tokenizer's folder
    loss = {}
    for name, function in (('normal', None), ('counts', counts.counted_embeddings), ('dealt', dealt)):
        monkeypatch.setattr(checkpoint, 'counted_embeddings', function)
        cfg, _ = parse(pretrain.Settings, [
            'configs/tiny.py', f'--name={name}', f'--out={tmp_path}', f'--corpus={corpus}', '--seed=1',
            '--phases=("mlm", 400)', f'--embedding_init={"normal" if name == "normal" else "counts"}'])
        pretrain.train(cfg)
        loss[name] = log_lines(tmp_path / name)[-1]['val_mlm_loss']
    assert loss['counts'] < 5.6
    assert loss['dealt'] > loss['counts'] + 0.6
    assert loss['normal'] > loss['counts'] + 0.6

"""Identity: how many states of a checkpoint are nearest to a state of the same token in another document.

    python studies/identity.py out/mlm-1800-s6/600 out/mlm-1800-s6/1800 --out=identity.csv

It reads held-out documents of a corpus, unmasked and in both directions, and draws tokens from them, the same
ones for every checkpoint. Each token has a last hidden state, after the final norm. The nearest state, by
cosine, is sought among those of all other documents. Where a token was drawn from one document alone there is
no match to be found, so its own state is not counted. The first line is an untrained model with the sizes of
the first checkpoint."""
import os
import sys
from dataclasses import dataclass
from pathlib import Path

if __name__ == '__main__':  # before torch loads OpenMP, which reads it: waiting threads sleep, not spin
    os.environ.setdefault('OMP_WAIT_POLICY', 'passive')
sys.path.insert(0, str(Path(__file__).parents[1]))  # the root, where finetune.py is

import numpy as np
import torch

from data import Corpus
from finetune import initialise, unit_vectors
from nanoencoder.huggingface import open_checkpoint, run_of_checkpoint
from nanoencoder.settings import check, parse, run_main, setting, split_words


@dataclass(frozen=True)
class Settings:
    corpus: str = 'corpora/docs'  # whose validation split is read
    states: int = setting(4_000, 2)
    of_each: int = setting(20, 1)  # tokens that are drawn from a document, at most
    length: int = setting(512, 1)  # tokens of a document that the model reads, at most
    seed: int = setting(0, 0)      # of the draw
    out: str = ''                  # a .csv to write

    def __post_init__(self):
        check(self)


def draw_tokens(corpus, cfg):
    """Draw from held-out documents, in random order, until there are as many tokens as asked for.

    Returns [(the tokens of a document, the sorted positions of those that were drawn)]. Special tokens are
    never drawn."""
    random = np.random.default_rng(cfg.seed)
    arrays, _ = corpus.streams['validation']
    stream = np.concatenate(arrays)
    ends = 1 + np.flatnonzero(stream == corpus.meta['eos_token_id'])
    documents = np.split(stream, ends)
    drawn = []
    missing = cfg.states
    for k in random.permutation(len(documents)):
        tokens = documents[k][:cfg.length].astype(np.int64)
        ordinary = np.flatnonzero(~np.isin(tokens, corpus.meta['special_ids']))
        count = min(missing, cfg.of_each, len(ordinary))
        if count:
            positions = random.choice(ordinary, count, replace=False)
            drawn.append((tokens, np.sort(positions)))
            missing -= count
    if missing:
        raise ValueError(f'{corpus.folder}: its held-out documents have {missing:,} tokens too few; give '
                         f'--states={cfg.states - missing} or a greater --of_each')
    return drawn


@torch.no_grad()
def read_states(transformer, drawn):
    """(tokens, d): the states of the drawn tokens, of length 1."""
    states = []
    for tokens, positions in drawn:
        read = transformer(torch.from_numpy(tokens), [len(tokens)], causal=False)
        states.append(read[positions])
    return unit_vectors(torch.cat(states), [], 'none').numpy()


def identity(states, ids, documents):
    """Return (the share of states whose nearest one in another document is of the same token, how many states
    were counted).

    states     (n, d), of length 1
    ids        (n,) the token of each
    documents  (n,) the number of its document"""
    places = np.unique(np.stack([ids, documents]), axis=1)      # each token once a document
    tokens, num_documents = np.unique(places[0], return_counts=True)
    counted = np.isin(ids, tokens[num_documents >= 2])
    if not counted.any():
        raise ValueError('no token was drawn from two documents: give more --states')
    cosines = states[counted] @ states.T
    cosines[documents[counted][:, None] == documents] = -np.inf
    nearest = cosines.argmax(1)
    right = ids[nearest] == ids[counted]
    return right.mean(), len(right)


def identity_on(corpus, cfg):
    """Draw tokens once. Return a function that reads them with a transformer and returns its identity."""
    drawn = draw_tokens(corpus, cfg)
    ids = np.concatenate([tokens[positions] for tokens, positions in drawn])
    documents = np.repeat(range(len(drawn)), [len(positions) for _, positions in drawn])
    return lambda transformer: identity(read_states(transformer, drawn), ids, documents)


def main():
    names, options = split_words(sys.argv[1:])
    cfg, _ = parse(Settings, options)
    if not names:
        raise ValueError('it takes folders of checkpoints, as out/mlm-1800-s6/600')
    corpus = Corpus(cfg.corpus)
    identity_of = identity_on(corpus, cfg)
    lines = ['model,step,states,identity']

    def measure(name, step, transformer):
        share, count = identity_of(transformer)
        lines.append(f'{name},{step},{count},{share:.4f}')
        print(f'{name} step {step}: {share:.1%} of {count:,} states', flush=True)

    for name in names:
        checkpoint = open_checkpoint(name)
        if checkpoint.tokenizer().fingerprint() != corpus.meta['tokenizer']:
            raise ValueError(f'{name}: has another tokenizer than {cfg.corpus}; give --corpus=<its own>')
        transformer = checkpoint.model(head=False)
        if name == names[0]:
            untrained = checkpoint.model(head=False)
            initialise(untrained, 'model', seed=0)
            measure('untrained', 0, untrained)
        past = checkpoint.state.get('pretraining') or {'step': ''}
        measure(run_of_checkpoint(name).name, past['step'], transformer)
    if cfg.out:
        Path(cfg.out).write_text('\n'.join(lines) + '\n')


if __name__ == '__main__':
    run_main(main)

"""embedding_init = "counts": the first table of token embeddings is counted, and not drawn at random.

Tokens that stand beside the same tokens begin with similar vectors. We count how often each token stands
beside each frequent one in the first tokens that the run will read, so a run sees nothing that it would not
see with a random table. The method is a classic: positive pointwise mutual information (Church and Hanks,
1990), reduced by a singular value decomposition (Levy, Goldberg and Dagan, 2015). Shapes: V is the size of
the vocabulary, C the number of frequent tokens, d the hidden size."""
import time

import numpy as np
import torch

from data import rows_of_step

MOST_TOKENS = 10 ** 7   # that are counted; 10 M take seconds
WINDOW = 2              # places on each side of a token that are beside it
CONTEXTS = 2_048        # C: with all of 128,256 tokens the table of counts would have 16 billion cells
NORM = 1.2              # of the table's rows, on average; where d is 128 a random table has 0.23
ROWS_AT_ONCE = 64


def counted_embeddings(corpus, cfg):
    """Return ((V, d) float32 embeddings, (V,) bool: the tokens that have one). The others, such as mask, were
    not seen, or beside no token more often than by chance. ValueError if there are fewer frequent tokens than
    d."""
    began = time.monotonic()
    matrix = positive_pmi(count_neighbours(corpus, cfg))
    size = cfg.model.hidden_size
    if size > matrix.shape[1]:
        raise ValueError(f'embedding_init counts: hidden_size is {size}, and may be {matrix.shape[1]} at '
                         'most, the number of frequent tokens in what is counted')
    threads = torch.get_num_threads()
    torch.set_num_threads(1)    # the bits are then the same for any number of threads and processes
    table = reduce(matrix, size)
    norms = table.norm(dim=1)
    has_one = norms > 0
    table *= NORM / norms[has_one].mean()
    torch.set_num_threads(threads)
    tokens = counted_steps(cfg) * cfg.rows_per_step * cfg.context
    seconds = time.monotonic() - began
    print(f'{cfg.name}: first embeddings of {has_one.sum():,} tokens, counted in {tokens:,}; {seconds:.1f} s')
    return table.float(), has_one


def count_neighbours(corpus, cfg):
    """Return (V, C) float32: how often a frequent token stands within WINDOW places of a token, before or
    after it, in the same row."""
    vocab_size = cfg.model.vocab_size
    frequency = np.zeros(vocab_size, int)
    for tokens in first_rows(corpus, cfg):
        frequency += np.bincount(tokens.ravel(), minlength=vocab_size)
    frequent = np.argsort(-frequency, kind='stable')[:CONTEXTS]
    frequent = frequent[frequency[frequent] > 0]    # a small corpus has fewer
    column = np.full(vocab_size, -1)    # of a token in the table, if it is frequent
    column[frequent] = np.arange(len(frequent))

    counts = torch.zeros(vocab_size, len(frequent))
    for tokens in first_rows(corpus, cfg):
        for distance in range(1, WINDOW + 1):
            left = tokens[:, :-distance]
            right = tokens[:, distance:]
            add_pairs(counts, left, column[right])
            add_pairs(counts, right, column[left])
    return counts


def add_pairs(counts, tokens, columns):
    """Add 1 to a cell for each pair of a token and the column of its neighbour; -1 is none."""
    is_counted = columns >= 0
    cells = tokens[is_counted] * counts.shape[1] + columns[is_counted]
    counts.view(-1).index_add_(0, torch.from_numpy(cells), torch.ones(len(cells)))


def counted_steps(cfg):
    """Return how many of a run's steps are counted, the first ones."""
    enough = -(-MOST_TOKENS // (cfg.rows_per_step * cfg.context))
    return min(enough, cfg.total_steps)


def first_rows(corpus, cfg):
    """Yield what a run reads in the steps that are counted, as (rows, context) arrays of tokens."""
    num_stretches = corpus.num_stretches('train', cfg.context)
    stretches = [
        stretch
        for step in range(counted_steps(cfg))
        for _, stretch in rows_of_step(step, num_stretches, cfg)]
    for first in range(0, len(stretches), ROWS_AT_ONCE):
        together = stretches[first:first + ROWS_AT_ONCE]
        yield np.stack([corpus.stretch('train', stretch, cfg.context) for stretch in together])


def positive_pmi(counts):
    """Replace counts, in place, by max(0, log p(token, neighbour) / (p(token) p(neighbour)))."""
    of_token = counts.sum(1, keepdim=True, dtype=torch.float64)
    of_neighbour = counts.sum(0, dtype=torch.float64)
    p_token = of_token / of_token.sum()
    counts /= p_token.clamp(min=1e-30)      # a token that was not seen has 0 / 0
    counts /= of_neighbour      # now p(token, neighbour) / (p(token) p(neighbour))
    return counts.clamp_(min=1).log_()


def reduce(matrix, size):
    """Return U S, (V, size) in float64, of the greatest `size` singular values of a (V, C) matrix.

    The right singular vectors are eigenvectors of the (C, C) product."""
    parts = matrix.split(4_096)     # so that no whole copy is made in float64
    product = sum(part.double().T @ part.double() for part in parts)
    _, vectors = torch.linalg.eigh(product)     # the greatest come last
    vectors = vectors[:, -size:].flip(1)
    return torch.cat([part.double() @ vectors for part in parts])

"""The law of a batch: what a step reads, computed from the settings and the step alone.

    python data.py configs/corpora/docs.py     # write a corpus: the embedded one, no network

To read one it needs numpy and nothing of ours; nanoencoder/prepare.py does the writing."""
import hashlib
import json
import sys
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable, NamedTuple

import numpy as np

SHORTEST = 12             # tokens: the paper's inputs are 12 to 2,048 long (section 2, footnote 6)
LEAST_RATIO = 0.001       # of MDLM's masking ratios: a loss is divided by them
VALIDATION = 2 ** 64 - 1  # stands for the seed in validation rows, which depend on the corpus alone
NO_TARGET = -100


class Objective(NamedTuple):
    """What a model learns: its attention, and how a row of tokens becomes inputs and targets."""
    causal: bool                # whether a token sees only what stands before it
    offset: int                 # a token is predicted so many positions before it; 0: at its own
    uses_ratio: bool            # whether mask_ratio says how much is predicted; MDLM draws its own
    make: Callable              # (tokens, lengths, random, corpus, cfg) -> (inputs, targets[, weights])
    expected_targets: Callable  # cfg -> targets a position, on average, for --dry_run


def clm(tokens: np.ndarray, lengths: list, random: np.random.Generator, corpus, cfg):
    return tokens, next_tokens(tokens, lengths)


def clm_some(tokens, lengths, random, corpus, cfg):
    """CLM of which a share mask_ratio of the tokens is predicted: those that MLM masks, and the same share of
    special ones, which MLM never masks. At 1 it is CLM."""
    draw = random.random(len(tokens), np.float32)    # as in `mask`
    targets = np.where(draw < cfg.mask_ratio, tokens, NO_TARGET)
    return tokens, next_tokens(targets, lengths)


def mlm(tokens, lengths, random, corpus, cfg):
    """Each token except special ones is predicted with probability mask_ratio (paper, section 2).

    mask_replace holds the shares of masked tokens that become the mask token, a random token, or stay as they
    are: 1, 0, 0 in the paper; 0.8, 0.1, 0.1 in BERT."""
    inputs, targets, _ = mask(tokens, cfg.mask_ratio, random, corpus)
    to_mask, to_random, _ = cfg.mask_replace
    if to_mask < 1:
        draw = random.random(len(tokens))
        ids = corpus.ordinary_ids
        which = (random.random(len(tokens)) * len(ids)).astype(int)
        other = np.where(draw < to_mask + to_random, ids[which], tokens)
        not_masked = (targets != NO_TARGET) & (draw >= to_mask)
        inputs = np.where(not_masked, other, inputs)
    return inputs, targets


def mntp(tokens, lengths, random, corpus, cfg):
    """MLM in which the position before a masked token predicts it, as LLM2Vec does to decoders."""
    inputs, targets = mlm(tokens, lengths, random, corpus, cfg)
    return inputs, next_tokens(targets, lengths)


def mdlm(tokens, lengths, random, corpus, cfg):
    """Masked diffusion is MLM at a ratio t drawn for each row, with each loss divided by t
    (Sahoo et al., 2024).

    The mean over all tokens except special ones is then, on average, at least the text's entropy a token."""
    t = 1 - (1 - LEAST_RATIO) * random.random()
    inputs, targets, ordinary = mask(tokens, t, random, corpus)
    return inputs, targets, ordinary / t     # the last are the losses' weights


def mask(tokens, ratio, random, corpus):
    """Mask tokens, except special ones, with probability `ratio`. Returns (inputs, targets, which tokens are
    not special)."""
    ordinary = ~np.isin(tokens, corpus.meta['special_ids'])
    draw = random.random(len(tokens), np.float32)
    chosen = ordinary & (draw < ratio)
    inputs = np.where(chosen, corpus.meta['mask_token_id'], tokens)
    targets = np.where(chosen, tokens, NO_TARGET)
    return inputs, targets, ordinary


def next_tokens(tokens, lengths):
    """Return at each position the token after it in its segment. A segment's last position has no target."""
    targets = np.append(tokens[1:], NO_TARGET)
    targets[np.cumsum(lengths) - 1] = NO_TARGET
    return targets


def followed(cfg):
    """Return the share of positions that have another after them in their segment."""
    segments = 2 if cfg.cut_rows else 1
    return 1 - segments / cfg.context


def followed_and_drawn(cfg):
    """Return the share of positions whose next token is one of the share mask_ratio that is predicted."""
    return cfg.mask_ratio * followed(cfg)


OBJECTIVES = {  # a new one is a function above and an entry here: docs/hacking.md
    'clm': Objective(causal=True, offset=1, uses_ratio=False, make=clm, expected_targets=followed),
    'clm_some': Objective(causal=True, offset=1, uses_ratio=True, make=clm_some,
                          expected_targets=followed_and_drawn),
    'mlm': Objective(causal=False, offset=0, uses_ratio=True, make=mlm,
                     expected_targets=lambda cfg: cfg.mask_ratio),
    'mntp': Objective(causal=False, offset=1, uses_ratio=True, make=mntp,
                      expected_targets=followed_and_drawn),
    'mdlm': Objective(causal=False, offset=0, uses_ratio=False, make=mdlm,
                      expected_targets=lambda cfg: (1 + LEAST_RATIO) / 2),
}


def objective_at(step, cfg):
    """Return the name of a step's objective. Steps count from 0; phases may be run through several times."""
    assert 0 <= step < cfg.total_steps, f'step {step} of {cfg.total_steps}'
    step %= sum(steps for _, steps in cfg.phases)
    for name, steps in cfg.phases:
        if step < steps:
            return name
        step -= steps


class Corpus:
    """A prepared folder, memory-mapped. Stretch k is tokens [k * context, (k + 1) * context) of its stream;
    it may hold several documents, and attention does not stop between them. ValueError if it is no corpus."""
    def __init__(self, folder):
        self.folder = Path(folder)
        path = self.folder / 'meta.json'
        if not path.exists():
            config = Path('configs/corpora', f'{self.folder.name}.py')
            if not config.exists():
                config = 'configs/corpora/...'
            raise ValueError(f'{folder}: no corpus there; make it with python data.py {config}')
        self.meta = json.loads(path.read_text(encoding='utf-8'))
        # what mask_replace draws from: a tokenizer may leave ids out, which old corpora do not say
        excluded = self.meta['special_ids'] + self.meta.get('unused_ids', [])
        self.ordinary_ids = np.setdiff1d(np.arange(self.meta['vocab_size']), excluded)
        self.streams = {
            'train': self.open_shards('shards'),
            'validation': self.open_shards('val_shards')}

    def open_shards(self, listed):
        """Return (arrays, their bounds in the stream: 0, then where each ends)."""
        arrays = []
        for shard in self.meta[listed]:
            path = self.folder / shard['name']
            try:
                arrays.append(np.load(path, mmap_mode='r'))
            except Exception as error:  # numpy reads a damaged header as Python, so it may be any
                raise ValueError(f'{path}: missing or cut short ({error})') from None
        return arrays, np.cumsum([0, *map(len, arrays)])

    def num_stretches(self, split, context):
        _, bounds = self.streams[split]
        return int(bounds[-1]) // context

    def stretch(self, split, k, context):
        """Return the int64 tokens of stretch k, which may lie in several shards."""
        arrays, bounds = self.streams[split]
        start = k * context
        stop = start + context
        # the shards of its first and its last token
        first, last = np.searchsorted(bounds, [start, stop - 1], side='right') - 1
        parts = []
        for number in range(first, last + 1):
            begin = max(0, start - bounds[number])
            end = stop - bounds[number]
            parts.append(arrays[number][begin:end])
        return np.concatenate(parts).astype(np.int64)


def permute(index, n, seed, epoch):
    """Return where a keyed permutation of range(n) sends each index: a Feistel network in O(1) memory.

    A shuffled list would take 8 bytes a stretch in each process, and be made anew at each epoch and resume;
    this computes just the places that a step reads. It has six rounds: with four, neighbours correlate at
    small n. Results beyond n are permuted again."""
    keys = np.random.SeedSequence([seed, epoch]).generate_state(6, np.uint64)
    bits = ((n - 1).bit_length() + 1) // 2            # of each half of an index
    low = (1 << bits) - 1                             # a half's mask
    out = np.array(index, np.uint64)
    outside = np.ones(out.shape, bool)
    while outside.any():
        left = out[outside] >> bits
        right = out[outside] & low
        for key in keys:    # a round: the right half changes the left one, and they swap
            mixed = left ^ (mix(right + key) & low)
            left = right
            right = mixed
        out[outside] = (left << bits) | right
        outside = out >= n
    return out.astype(np.int64)


def mix(x):
    """Apply the finaliser of splitmix64 (Steele, Lea and Flood, 2014) to a uint64 array, modulo 2**64."""
    x = x ^ (x >> 30)
    x = x * 0xBF58476D1CE4E5B9
    x = x ^ (x >> 27)
    x = x * 0x94D049BB133111EB
    return x ^ (x >> 31)


class Batch(NamedTuple):
    """Some rows of a step as one flat sequence: arrays, then tensors."""
    tokens: object   # (N,) int64, masked where the objective masks
    lengths: object  # of the segments, which do not see each other: a list; then model.py's Segments
    targets: object  # (N,) int64, NO_TARGET where nothing is predicted
    at: object       # (T,) int64: the positions that have a target
    weights: object  # (N,) float32, factors of the losses; the mean divides by how many are not 0


def make_batch(corpus, split, rows: list, key: int, objective: str, cfg):
    """Return (the Batch of some rows [(i, stretch)] under an objective, the sum of the rows' hashes).

    The randomness of row i is Philox(key, i), drawn in a fixed order: the cut, then what the objective draws.
    So all objectives cut a row at one place, and a 20 % mask lies within the 40 % one."""
    all_inputs = []     # an array of each row, and so on
    all_targets = []
    all_weights = []
    lengths = []
    rows_hash = 0
    for i, k in rows:
        philox = np.random.Philox(key=np.array([key, i], np.uint64))
        random = np.random.Generator(philox)
        tokens = corpus.stretch(split, k, cfg.context)
        segments = [cfg.context]
        if cfg.cut_rows:
            places = cfg.context - 2 * SHORTEST + 1
            cut = SHORTEST + int(random.random() * places)
            segments = [cut, cfg.context - cut]
        lengths += segments
        # Hashes are summed, so the result is the same however rows are shared out. Modulo 2**48, which is
        # 6 bytes, the sums of up to 32,767 processes can be added in an int64.
        read = tokens.tobytes() + segments[0].to_bytes(8, 'little')
        digest = hashlib.blake2b(read, digest_size=6).digest()
        rows_hash += int.from_bytes(digest, 'little')

        inputs, targets, *weights = OBJECTIVES[objective].make(tokens, segments, random, corpus, cfg)
        all_inputs.append(inputs)
        all_targets.append(targets)
        # an objective may also weigh its losses, as mdlm does; in others each target counts once
        all_weights.append(weights[0] if weights else targets != NO_TARGET)
    targets = np.concatenate(all_targets)
    batch = Batch(
        tokens=np.concatenate(all_inputs),
        lengths=lengths,
        targets=targets,
        at=np.flatnonzero(targets != NO_TARGET),
        weights=np.concatenate(all_weights).astype(np.float32))
    return batch, rows_hash


def rows_at_once(cfg, world_size):
    """Return how many rows a micro-batch has: the most that divide a process's share and are not more than
    micro_rows (0: all)."""
    share = cfg.rows_per_step // world_size
    most = min(cfg.micro_rows or share, share)
    return max(rows for rows in range(1, most + 1) if share % rows == 0)


def check_rows(cfg, world_size):
    """ValueError unless all processes get equally many rows, and compute at once about as many as asked."""
    share, rest = divmod(cfg.rows_per_step, world_size)
    if rest:
        raise ValueError(f'rows_per_step {cfg.rows_per_step} must be a multiple of the {world_size} '
                         'processes')
    at_once = rows_at_once(cfg, world_size)
    if at_once < min(cfg.micro_rows, share) / 2:
        raise ValueError(f'micro_rows {cfg.micro_rows}: a process has {share} rows of a step, of which only '
                         f'{at_once} could be computed at once; take a number that divides them')


def rows_of_step(step, num_stretches, cfg, rank=0, world_size=1):
    """Return the rows [(i, stretch)] that one process reads at a step, which may lie in two epochs.

    Row i reads stretch permute(i mod K) of K, keyed by (seed, i // K). Nothing depends on the
    objective, the processes, the micro-batches, or on where a run was interrupted."""
    share = cfg.rows_per_step // world_size
    first = cfg.first_row + step * cfg.rows_per_step + rank * share
    i = np.arange(first, first + share)
    epochs = i // num_stretches
    stretches = i % num_stretches
    for epoch in np.unique(epochs).tolist():
        of_epoch = epochs == epoch
        stretches[of_epoch] = permute(stretches[of_epoch], num_stretches, cfg.seed, epoch)
    return list(zip(i.tolist(), stretches.tolist()))


def read_step(step, corpus, cfg, rank=0, world_size=1):
    """Return what a process reads at a step: (batches of micro_rows rows, how many losses the mean is of,
    hash of the rows).

    The sum of the processes' hashes modulo 2**48 identifies what the step read."""
    num_stretches = corpus.num_stretches('train', cfg.context)
    rows = rows_of_step(step, num_stretches, cfg, rank, world_size)
    size = rows_at_once(cfg, world_size)
    objective = objective_at(step, cfg)
    batches = []
    count = 0
    total_hash = 0
    for first in range(0, len(rows), size):
        together = rows[first:first + size]
        batch, rows_hash = make_batch(corpus, 'train', together, cfg.seed, objective, cfg)
        batches.append(batch)
        count += int(np.count_nonzero(batch.weights))
        total_hash += rows_hash
    return batches, count, total_hash % 2 ** 48


def validation_batches(corpus, objective, cfg, rank=0, world_size=1):
    """Yield batches of the first val_rows stretches of the held-out stream. Each stretch is read once, by one
    process.

    All batches have one shape, and all processes get equally many: where rows run out, stretch 0 stands in,
    without targets."""
    available = corpus.num_stretches('validation', cfg.context)
    count = min(cfg.val_rows, available)
    together = rows_at_once(cfg, world_size) * world_size
    for first in range(0, count, together):
        numbers = range(first + rank, first + together, world_size)
        rows = [(k, k) if k < count else (0, 0) for k in numbers]
        batch, _ = make_batch(corpus, 'validation', rows, VALIDATION, objective, cfg)
        has_targets = [k < count for k in numbers]
        real = np.repeat(has_targets, cfg.context)    # (N,) bool
        yield batch._replace(
            targets=np.where(real, batch.targets, NO_TARGET),
            at=batch.at[real[batch.at]],
            weights=batch.weights * real)


def in_order(function, items, threads=1, ahead=4):
    """Yield function(item) of each item, in order. Threads compute `ahead` more items than were taken; an
    error of theirs is raised where its result would have come."""
    pool = ThreadPoolExecutor(threads)
    waiting = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def main():
    from nanoencoder import prepare, settings
    cfg, actions = settings.parse(prepare.Settings, sys.argv[1:], prepare.ACTIONS)
    if actions.verify:
        prepare.verify(cfg.out)
    elif actions.train_tokenizer:
        prepare.train_tokenizer(cfg, actions.train_tokenizer)
    else:
        prepare.write_corpus(cfg, actions.part, actions.parts)


if __name__ == '__main__':
    from nanoencoder.settings import run_main
    run_main(main)

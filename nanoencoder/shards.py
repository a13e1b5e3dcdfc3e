"""A corpus on disk: what meta.json must say, its shards, and `data.py --verify`, which counts them again."""
import hashlib
from pathlib import Path

import numpy as np

from nanoencoder.durable import read_json, sha256
from nanoencoder.settings import quoted

ROLES = ('bos', 'eos', 'pad', 'mask')
LISTED = [{'name': str, 'tokens': int, 'sha256': str}]
FORM = {  # of meta.json, and of the progress of a part
    'settings': {'source': str, 'path': str, 'subset': str}, 'tokenizer': str, 'vocab_size': int,
    'special_ids': [int], **{f'{role}_token_id': int for role in ROLES}, 'tokens': int, 'documents': int,
    'val_tokens': int, 'val_documents': int, 'shards': LISTED, 'val_shards': LISTED}


def read_meta(folder):
    """The content of a corpus's meta.json. ValueError if it is damaged; the shards are not looked at."""
    path = Path(folder, 'meta.json')
    meta = read_listed(path, FORM | {'fingerprint': str, 'unigram_loss': (float, type(None))})
    if meta['fingerprint'] != fingerprint(meta):
        raise ValueError(f'{path}: damaged: fingerprint is not that of tokenizer and shards')
    return meta


def read_listed(path, form=FORM):
    """The content of a file that lists shards. ValueError if it has another form or contradicts itself."""
    meta = read_json(path, form)
    size, specials = meta['vocab_size'], meta['special_ids']
    ids = [meta[f'{role}_token_id'] for role in ROLES]
    problems = [
        (not 1 <= size <= 10 ** 7, 'vocab_size is not from 1 to 10,000,000'),
        (not all(0 <= i < size for i in specials), 'special_ids are not below vocab_size'),
        (not {*ids} <= {*specials}, 'special_ids lack that of bos, eos, pad or mask'),
        (ids.count(meta['mask_token_id']) > 1, 'mask_token_id is also that of bos, eos or pad'),
        (any(Path(shard['name']).name != shard['name'] for shard in meta['shards'] + meta['val_shards']),
         'a shard is not the name of a file here')]
    for kind in ('', 'val_'):
        counted = sum(shard['tokens'] for shard in meta[kind + 'shards'])
        problems.append((meta[kind + 'tokens'] != counted, f'{kind}tokens are not those of the shards'))
    for wrong, words in problems:
        if wrong:
            raise ValueError(f'{path}: damaged: {words}')
    return meta


def fingerprint(meta):
    """sha256 over the tokenizer and all shards, by their own."""
    hashes = [meta['tokenizer'], *(shard['sha256'] for shard in meta['shards'] + meta['val_shards'])]
    return hashlib.sha256(''.join(hashes).encode()).hexdigest()


def open_shard(folder, shard, vocab_size):
    """The tokens of a shard, memory-mapped: (N,) uint16, or uint32 of a larger vocabulary."""
    path, dtype = Path(folder, shard['name']), np.uint16 if vocab_size <= 2 ** 16 else np.uint32
    try:
        array = np.load(path, mmap_mode='r', allow_pickle=False)
    except Exception as error:  # numpy reads a damaged header as Python, so it may be any
        raise ValueError(f'{path}: missing or cut short ({error})') from None
    if array.shape != (shard['tokens'],) or array.dtype != dtype:
        raise ValueError(f'{path}: holds {array.dtype} {array.shape}, where {np.dtype(dtype)} '
                         f'({shard["tokens"]},) was written')
    return array


def unigram_loss(folder, meta):
    """Nats a held-out token has by the training tokens' frequencies (add-one); None without such tokens."""
    if not (meta['tokens'] and meta['val_tokens']):
        return None
    train, val = (np.bincount(open_shard(folder, meta[kind][0], meta['vocab_size'])[:10_000_000],
                              minlength=meta['vocab_size']) for kind in ('shards', 'val_shards'))
    return float(-(val * np.log((train + 1) / (train + 1).sum())).sum() / val.sum())


def verify(folder):
    """Count all that meta.json says again, from shards and tokenizer. ValueError names what differs."""
    from nanoencoder.tokenizer import load_tokenizer
    folder, meta = Path(folder), read_meta(folder)
    listed = {shard['name'] for shard in meta['shards'] + meta['val_shards']}
    for path in sorted({*folder.glob('tokens_*.npy'), *folder.glob('val_*.npy')}):
        if path.name not in listed:
            raise ValueError(f'{path}: a shard that meta.json does not list; remove it')
    counted = identity(load_tokenizer(str(folder)))
    for kind in ('', 'val_'):
        counted[kind + 'documents'] = 0
        for shard in meta[kind + 'shards']:
            path, array = folder / shard['name'], open_shard(folder, shard, meta['vocab_size'])
            if sha256(path) != shard['sha256']:
                raise ValueError(f'{path}: its sha256 is not the one in meta.json')
            if array.max(initial=0) >= meta['vocab_size']:
                raise ValueError(f'{path}: holds id {array.max()}, beyond the vocabulary')
            counted[kind + 'documents'] += int(np.count_nonzero(array == meta['eos_token_id']))
    counted['unigram_loss'] = unigram_loss(folder, meta)
    for name, value in counted.items():
        close = name == 'unigram_loss' and value and np.isclose(meta[name] or 0, value)  # on any machine
        if meta[name] != value and not close:
            raise ValueError(f'{folder / "meta.json"}: {name} is {quoted(meta[name])}, but counted '
                             f'{quoted(value)}')
    print(f'{folder}: every shard is as it was written, and meta.json says what they hold')


def identity(tokenizer):
    """What meta.json says of a tokenizer."""
    return {'tokenizer': tokenizer.fingerprint(), 'vocab_size': tokenizer.vocab_size,
            'special_ids': sorted(tokenizer.specials.values())} | {
                f'{role}_token_id': i for role, i in tokenizer.ids.items()}

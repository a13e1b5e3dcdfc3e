"""Text to tokens on disk.

    python data.py configs/corpora/docs.py                 # the embedded corpus: seconds, no network
    python data.py configs/corpora/folder.py --path=texts --out=corpora/texts
    python data.py configs/corpora/fineweb_edu.py --part=3 --parts=16   # one machine of sixteen; then, once:
    python data.py configs/corpora/fineweb_edu.py --parts=16            # whatever is missing, and meta.json
    python data.py configs/corpora/docs.py --verify        # count all that meta.json says again

A corpus is a folder: `tokens_00000.npy, ...` (one stream of documents, each followed by eos), the same of
held-out documents (`val_00000.npy, ...`), the tokenizer, and `meta.json`, which lists the shards and is
written last. Run the same command again to continue where it stopped.
"""
import hashlib
import itertools
import json
import math
import os
import re
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from tqdm import tqdm

from nanoencoder import docs, shards
from nanoencoder.durable import expect, locked, remove_temporaries, sha256, whole_file, write_json
from nanoencoder.settings import check, flat, setting
from nanoencoder.tokenizer import BOS, EOS, LLAMA3_PATTERN, MASK, from_json, load_tokenizer

CHUNK, CHUNK_CHARACTERS = 256, 4_000_000  # documents that are tokenised at once; fewer if they are long
CUT_CHARACTERS = 16_000                   # and up to the next empty line: a document cut from a long .txt
POSITIONS = {'docs': int, 'folder': [int], 'hub': list}  # where a part goes on, by its source
NOTHING = {'tokens': 0, 'documents': 0, 'val_tokens': 0, 'val_documents': 0, 'shards': [], 'val_shards': []}


@dataclass(frozen=True)
class Settings:
    source: str = setting('docs', choices=('docs', 'folder', 'hub'))  # embedded, own, or Hugging Face's
    path: str = ''                  # the folder (or one file), or the dataset's name on the hub
    subset: str = ''                # of a hub dataset, as sample-350BT
    split: str = 'train'            # of a hub dataset
    column: str = 'text'            # of .jsonl, .parquet and hub datasets
    tokenizer: str = 'configs/corpora/docs'  # tokenizer.json (file, folder, hub id), tiktoken .model or name
    val_permille: int = setting(1, 1, 999)  # of documents are held out, by the text's hash (docs: by file)
    cut_txt_above: int = setting(1_000_000, 0)  # characters: a longer .txt is cut at empty lines
    shard_tokens: int = setting(250_000_000, 1)  # a shard ends with the first chunk of documents beyond this
    max_tokens: int = setting(0, 0)  # stop after this many, shared over the parts; 0: all there are
    threads: int = setting(0, 0, fixes='nothing')  # that tokenise; 0: one a core
    out: str = setting('corpora/docs', fixes='nothing')  # the folder to write

    def __post_init__(self):
        check(self)


ACTIONS = {'part': (-1, 'prepare this part alone, counted from 0'),
           'parts': (1, 'how many parts share the input; without --part, do what is missing and join them',
                     1, 10_000),
           'verify': (False, 'count all that meta.json says again: digests, tokens, documents, ids'),
           'train_tokenizer': (0, 'learn a vocabulary of this many ids and write it to --tokenizer',
                               260, 10 ** 7)}


# ------------------------------------------------------------------------------------------------- sources

def source(cfg, part=0, parts=1, position=None):
    """Chunks of one part of the input, from a position on: [(text, whether it is held out)], the position
    after it, and the share of the input that is read by then (0.0 if unknown)."""
    if cfg.source != 'docs' and not cfg.path:
        raise ValueError('path is empty; --path names the texts')
    if cfg.source == 'hub':
        return hub_chunks(cfg, part, parts, position)
    if cfg.source == 'folder':
        files = folder_files(cfg.path)
        check_parts(cfg, parts, len(files))
        texts, also = folder_texts(cfg, files[part::parts], *(position or ())), also_held_out(cfg, files)
        return gather((text, held_out(text, cfg.val_permille, also), *where) for text, *where in texts)
    texts = [(text, split == 'validation') for split, _, text in docs.documents() if split != 'test']
    items = [(*text, number, number / len(texts)) for number, text in enumerate(texts, 1)]
    return gather(items[position or 0:])


def check_parts(cfg, parts, num_files):
    if parts > num_files:
        raise ValueError(f'{cfg.path} has {num_files} files: too few for {parts} parts')


def text_hash(text):
    digest = hashlib.blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=8)
    return int.from_bytes(digest.digest(), 'little')


def held_out(text, val_permille, also=None):
    """Whether a text is validation: decided by the text alone, so copies of it share their fate."""
    return text_hash(text) % 1000 < val_permille or text_hash(text) == also


def also_held_out(cfg, files):
    """The smallest hash of the texts, if none of them would be held out and they are not all the same."""
    hashes, certain = set(), CHUNK if cfg.max_tokens else None  # what is read whatever the limit
    for text, *_ in itertools.islice(folder_texts(cfg, files), certain):
        if held_out(text, cfg.val_permille):
            return None
        hashes |= {text_hash(text)} if text else set()
    return min(hashes) if len(hashes) > 1 else None


def gather(items):
    """Chunks of (text, held out, position, share)."""
    texts, characters = [], 0
    for text, held, position, share in items:
        texts.append((text, held))
        characters += len(text)
        if len(texts) == CHUNK or characters > CHUNK_CHARACTERS:
            yield texts, position, share
            texts, characters = [], 0
    if texts:
        yield texts, position, share


def folder_files(path):
    root = Path(path)
    if not root.exists():
        raise ValueError(f'path {path!r}: no such file or folder; --path names the texts')
    everything = [root] if root.is_file() else sorted(file for file in root.rglob('*') if file.is_file())
    files = [file for file in everything if file.suffix in READERS]
    if not files:
        raise ValueError(f'{path}: no .txt, .jsonl or .parquet file there')
    if len(files) < len(everything):
        print(f'{path}: {len(everything) - len(files)} files of other kinds are left out', file=sys.stderr)
    return files


def folder_texts(cfg, files, first=0, skip=0):
    """(text, position, share) of files, from text `skip` of file `first` on; a position is these two."""
    for k, file in enumerate(files[first:], first):
        try:
            for number, (text, share) in enumerate(READERS[file.suffix](file, cfg), 1):
                if k > first or number > skip:
                    yield text, (k, number), (k + share) / len(files)
        except (ValueError, OSError) as error:  # of UTF-8 or of ours
            raise ValueError(f'{file}: {error}') from None


def clean(text, cfg):
    """A text without byte order mark and carriage returns; ValueError if it is none."""
    if not isinstance(text, str):
        raise ValueError(f'column {cfg.column!r} of {cfg.path} holds {text!r:.50}, which is no text')
    return text.removeprefix('\ufeff').replace('\r\n', '\n')


def read_txt(path, cfg):
    text, start = clean(path.read_bytes().decode(), cfg), 0
    while start < len(text):
        cut = len(text) > cfg.cut_txt_above and re.compile(r'\n\s*\n').search(text, start + CUT_CHARACTERS)
        end = cut.end() if cut else len(text)
        yield text[start:end], end / len(text)
        start = end


def read_jsonl(path, cfg):
    size = path.stat().st_size
    with path.open('rb') as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    text = json.loads(line)[cfg.column]
                except (ValueError, KeyError, TypeError, RecursionError):
                    raise ValueError(f'line {number} is not JSON with a column {cfg.column!r}') from None
                yield clean(text, cfg), file.tell() / size


def read_parquet(path, cfg):
    import pyarrow.parquet
    try:
        file = pyarrow.parquet.ParquetFile(path)
        if cfg.column not in file.schema_arrow.names:
            raise ValueError(f'has no column {cfg.column!r}, but {", ".join(file.schema_arrow.names)}')
        batches = (batch.column(0).to_pylist() for batch in file.iter_batches(CHUNK, columns=[cfg.column]))
        for row, text in enumerate(itertools.chain.from_iterable(batches), 1):
            yield clean(text, cfg), row / file.metadata.num_rows
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f'not a whole parquet file: {error}') from None


READERS = {'.txt': read_txt, '.jsonl': read_jsonl, '.parquet': read_parquet}  # of (text, share of the file)


def hub_chunks(cfg, part, parts, position):
    """Chunks of a streamed Hugging Face dataset; parts share out its files."""
    import datasets
    try:
        dataset = datasets.load_dataset(cfg.path, cfg.subset or None, split=cfg.split, streaming=True)
        dataset = dataset.select_columns([cfg.column])
    except (OSError, ValueError) as error:
        raise ValueError(f'cannot open the dataset {cfg.path} {cfg.subset}: {error}') from None
    check_parts(cfg, parts, dataset.num_shards)
    split = (dataset.info.splits or {}).get(cfg.split)
    total = split and split.num_examples or math.inf
    dataset = dataset.shard(parts, part)
    number, state = position or (0, None)
    if state:
        dataset.load_state_dict(state)
    for batch in dataset.iter(CHUNK):
        texts = [clean(text, cfg) for text in batch[cfg.column]]
        number += len(texts)
        yield ([(text, held_out(text, cfg.val_permille)) for text in texts],
               (number, dataset.state_dict()), number * parts / total)


# ------------------------------------------------------------------------------------- shards and meta.json

def prepare(cfg, in_order, part=-1, parts=1):
    """Write the corpus, or one part of it. Without a part: every part that is missing, then meta.json."""
    if not -1 <= part < parts:
        raise ValueError(f'--part counts from 0 to --parts less one, which is {parts - 1}, not {part}')
    if cfg.source == 'docs' and parts > 1:
        raise ValueError('docs is too small for parts')
    folder, settings = Path(cfg.out), flat(cfg, fixes=('numbers',))
    if (folder / 'meta.json').exists():  # it may lack a newer setting, which had its default
        recorded = flat(Settings(), fixes=('numbers',)) | shards.read_meta(folder)['settings']
        if recorded != settings:
            raise ValueError(f'{folder} holds a corpus of other settings: remove it, or take another --out')
        remove_progress(folder)  # left by a kill at the very end
        print(f'{folder}: already prepared')
        return
    if any(f'_of_{parts:03d}.' not in path.name for path in folder.glob('*part_*_of_*')):
        raise ValueError(f'{folder} was begun with other --parts, or by an earlier version: remove it')
    tokenizer = load_tokenizer(cfg.tokenizer)
    identity = {'settings': settings} | shards.identity(tokenizer)
    if cfg.source == 'folder':  # a position means something only among the same files
        files = [[str(file), file.stat().st_size] for file in folder_files(cfg.path)]
        identity['files'] = hashlib.sha256(json.dumps(files).encode()).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    progress = [folder / f'.part_{number:03d}_of_{parts:03d}.json' for number in range(parts)]
    for number in [part] if part >= 0 else range(parts):
        with locked(folder, f'{progress[number].stem}.lock'):
            prepare_part(cfg, in_order, tokenizer, identity, progress[number], number, parts)
    if part < 0:
        with locked(folder):
            join(folder, tokenizer, identity, progress)


def prepare_part(cfg, in_order, tokenizer, identity, progress, part, parts):
    """Tokenise one part. Behind each shard its progress file is replaced, which says where to go on."""
    if progress.with_name('meta.json').exists():  # not yet when `prepare` looked
        raise ValueError(f'{cfg.out}: another process has just written there; run the command again')
    state = read_progress(progress, cfg.source) if progress.exists() else identity | NOTHING
    if state | identity != state:
        raise ValueError(f'{cfg.out} was begun with other settings or files: remove it')
    if state.get('done'):
        return
    limit, threads = cfg.max_tokens / parts or math.inf, cfg.threads or os.cpu_count()
    chunks = source(cfg, part, parts, state.get('position'))
    encoded = in_order(partial(encode, tokenizer), chunks, threads, 2 * threads)
    prefix, pending = f'{part:03d}_' if parts > 1 else '', {'': [], 'val_': []}
    tokens = state['tokens'] + state['val_tokens']
    with tqdm(desc=f'{cfg.out} {prefix}'.rstrip(' _'), initial=tokens, unit=' tokens', unit_scale=True,
              mininterval=0.2 if sys.stderr.isatty() else 30) as bar:
        for documents, position, share in encoded:
            if tokens >= limit:
                break
            state['position'] = position
            for kind in pending:
                pending[kind] += documents[kind]
                state[kind + 'documents'] += len(documents[kind])
                state[kind + 'tokens'] += sum(map(len, documents[kind]))
            if state['tokens'] - sum(shard['tokens'] for shard in state['shards']) >= cfg.shard_tokens:
                write_shards(progress, state, pending, prefix)
            tokens = state['tokens'] + state['val_tokens']
            bar.total = min(limit, tokens / share) if share else cfg.max_tokens / parts or None
            bar.update(tokens - bar.n)
        write_shards(progress, state | {'done': True}, pending, prefix)


def read_progress(path, source):
    """What a part's progress file says. ValueError if it is damaged."""
    state = shards.read_listed(path)
    if not state.get('done'):
        expect(state, {'position': POSITIONS[source]}, path)
        if source != 'docs' and len(state['position']) != 2:
            raise ValueError(f'{path}: position is damaged')
    return state


def encode(tokenizer, chunk):
    """{'': [tokens of a document to train on, ...], 'val_': [...]}, position and share of a chunk."""
    texts, position, share = chunk
    eos = np.array([tokenizer.ids['eos']], np.uint16 if tokenizer.vocab_size <= 2 ** 16 else np.uint32)
    documents = {'': [], 'val_': []}
    for text, held in texts:
        if text:
            tokens = np.append(tokenizer.encode(text).astype(eos.dtype), eos)
            documents['val_' if held else ''].append(tokens)
    return documents, position, share


def write_shards(progress, state, pending, prefix):
    """Write the pending documents, those to train on and those held out, then the state that knows them."""
    for kind, documents in pending.items():
        if documents:
            path = progress.with_name(f'{kind or "tokens_"}{prefix}{len(state[kind + "shards"]):05d}.npy')
            with whole_file(path) as file:  # np.save hides errno if given a real file
                np.save(SimpleNamespace(write=file.write), np.concatenate(documents))
            shard = {'name': path.name, 'tokens': sum(map(len, documents)), 'sha256': sha256(path)}
            state[kind + 'shards'] = [*state[kind + 'shards'], shard]
            documents.clear()
    write_json(progress, state)


def join(folder, tokenizer, identity, progress):
    """Write meta.json, which lists the shards of all parts; it can be killed and repeated."""
    remove_temporaries(folder)
    states = [read_progress(path, identity['settings']['source']) for path in progress]
    meta = identity | {name: sum((state[name] for state in states), NOTHING[name]) for name in NOTHING}
    for path, state in zip(progress, states):
        for shard in state['shards'] + state['val_shards']:
            try:
                shards.open_shard(folder, shard, meta['vocab_size'])
            except ValueError as error:
                raise ValueError(f'{error}; remove {path} to prepare that part again') from None
    if not meta['tokens']:
        for shard in meta['val_shards']:
            (folder / shard['name']).unlink()
        remove_progress(folder)
        raise ValueError(f'{meta["settings"]["path"]}: no training text there')
    meta['fingerprint'] = shards.fingerprint(meta)
    meta['unigram_loss'] = shards.unigram_loss(folder, meta)
    if not meta['val_tokens']:
        print(f'{folder}: nothing is held out: try a larger --val_permille or a smaller --cut_txt_above',
              file=sys.stderr)
    tokenizer.save(folder)
    write_json(folder / 'meta.json', meta)
    remove_progress(folder)
    print(f'{folder}:', '{documents:,} documents, {tokens:,} tokens; held out {val_documents:,} documents, '
          '{val_tokens:,} tokens; fingerprint {fingerprint:.12}'.format_map(meta))


def remove_progress(folder):
    for path in (*folder.glob('.part_*'), folder / '.lock'):
        path.unlink(missing_ok=True)


def train_tokenizer(cfg, vocab_size):
    """Learn a byte-level BPE vocabulary from the texts to train on and write it where `tokenizer` points."""
    if (Path(cfg.tokenizer) / 'tokenizer.json').exists():
        raise ValueError(f'{cfg.tokenizer}: holds a tokenizer already; take another folder with --tokenizer')
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
    trained = Tokenizer(models.BPE(ignore_merges=True))
    trained.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3_PATTERN), 'isolated'),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    trainer = trainers.BpeTrainer(vocab_size=vocab_size - 3, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    texts = (text for chunk, _, _ in source(cfg) for text, held in chunk if not held)
    trained.train_from_iterator(texts, trainer)
    if (size := trained.get_vocab_size() + 3) < vocab_size:
        raise ValueError(f'train_tokenizer: these texts give {size:,} ids, not {vocab_size:,}')
    trained.add_special_tokens([BOS, EOS, MASK])
    Path(cfg.tokenizer).mkdir(parents=True, exist_ok=True)
    from_json(json.loads(trained.to_str()), {}).save(cfg.tokenizer)
    print(f'{cfg.tokenizer}: {size:,} ids')

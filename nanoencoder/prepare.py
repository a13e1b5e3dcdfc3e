"""Text to tokens on disk.

    python data.py configs/corpora/folder.py --path=texts --out=corpora/texts
    python data.py configs/corpora/fineweb_edu.py --part=3 --parts=16   # one machine of sixteen; then, once:
    python data.py configs/corpora/fineweb_edu.py --parts=16            # whatever is missing, and meta.json

A corpus is a folder: tokens_00000.npy, ... (a stream of documents, each followed by eos), val_00000.npy, ...
(held-out documents), the tokenizer, and meta.json, written last. A shard holds a file of the hub, or about a
GB of files of your own."""
import contextlib
import functools
import gzip
import hashlib
import itertools
import json
import math
import os
import re
import sys
import unicodedata
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from data import Corpus, in_order
from nanoencoder.files import (changed_files, digest_of, locked, read_json, read_sealed, remove, sha256,
                               sha256_of_text, whole, write_json, write_sealed)
from nanoencoder.settings import check, check_value, flat, free, setting
from nanoencoder.tokenizer import learn, load_tokenizer

CHUNK = 256             # documents that are tokenised at once
# A .txt of more than LONGEST characters is cut into documents of 16,000 to 32,000: at an empty line, else
# at a line's end or, if a line is longer than LONGEST, at spaces.
LONGEST = 1_000_000
CUT_CHARACTERS = 16_000
EMPTY_LINE = re.compile(r'\n\s*\n')
AGAIN = 'prepare the corpus again'
NOTHING = {'tokens': 0, 'documents': 0, 'val_tokens': 0, 'val_documents': 0, 'shards': [], 'val_shards': [],
           'skipped': 0}


@dataclass(frozen=True)
class Settings:
    source: str = setting('folder', choices=('folder', 'hub'))
    path: str = ''                  # a folder or a file, or several: "a, b"; or a dataset's name on the hub
    made_by: str = free('')  # the command that writes these texts, if they are missing
    subset: str = ''                # of a hub dataset, as sample-350BT
    split: str = 'train'            # of a hub dataset
    column: str = 'text'            # of .jsonl, .parquet and hub datasets
    tokenizer: str = 'configs/corpora/docs'  # tokenizer.json (file, folder, hub id), tiktoken .model
    val_path: str = ''              # a folder or a file of held-out texts; empty: val_permille of `path`
    val_shuffled: bool = False      # texts of val_path are in the order of their hashes
    val_permille: int = setting(1, 1, 999)  # of documents are held out, by the text's hash
    # normalised: in Unicode's NFC, without white space at its ends; verbatim: as older corpora had it
    held_out_by: str = setting('normalised', choices=('normalised', 'verbatim'))  # what it is the hash of
    skip_bad: bool = False          # leave out files and rows that cannot be read, and count them
    shard_bytes: int = setting(2 ** 30, 1)  # of a folder's files, about, for a shard
    max_tokens: int = setting(0, 0)  # stop after this many, shared over the parts; 0: all there are
    threads: int = free(0, 0)  # that tokenise; 0: one a core
    out: str = free('corpora/folder')  # the folder to write

    __post_init__ = check


ACTIONS = {'part': (-1, 'prepare this part alone, counted from 0'),
           'parts': (1, 'that share the input; without --part, do what is missing and join them', 1, 500),
           'verify': (False, 'compare each shard with its sha256 in meta.json'),
           'train_tokenizer': (0, 'learn this many ids and write them to --tokenizer', 260, 10 ** 7)}


def open_source(cfg):
    """Find the texts. Returns (units, [(file, its size)]).

    A unit is what one shard to train on is written from, and one of held-out texts: a pair of a file of the
    hub, or a group of files, and files that are held out. The first unit has all files of val_path."""
    if not cfg.path:
        raise ValueError('path is empty; --path names the texts')
    if cfg.val_shuffled and not cfg.val_path:
        raise ValueError('val_shuffled is of the texts of val_path, which is empty')
    files = []
    if cfg.source == 'hub':
        parts = hub_files(cfg)
    else:
        files = text_files(cfg.path, cfg.made_by)
        parts = groups_of(files, cfg.shard_bytes)
    units = [(part, []) for part in parts]
    if cfg.val_path:
        held_out_files = text_files(cfg.val_path, cfg.made_by)
        if {*files} & {*held_out_files}:
            raise ValueError(f'val_path {cfg.val_path} lies in path {cfg.path}: it needs a folder of its own')
        files = files + held_out_files
        units[0] = (parts[0], held_out_files)
    return units, files


def documents_of(unit, cfg):
    """Yield (text, whether it is held out) of a unit. A ValueError stands for a text that cannot be read."""
    part, held_out_files = unit
    # held-out files first, so that max_tokens leaves out texts to train on
    held_out_texts = folder_texts(held_out_files, cfg)
    if cfg.val_shuffled:
        held_out_texts = sorted(held_out_texts, key=hash_of)
    for text in held_out_texts:
        yield text, True
    if cfg.source == 'hub':
        name, rows = part
        texts = texts_of(rows.iter(CHUNK), name, cfg)
    else:
        texts = folder_texts(part, cfg)
    for text in texts:
        by_hash = isinstance(text, str) and not cfg.val_path
        yield text, by_hash and held_out(text, cfg.val_permille, cfg.held_out_by)


def hub_files(cfg):
    """[(name, its rows)] of the files of a dataset on the hub."""
    import datasets
    dataset = datasets.load_dataset(cfg.path, cfg.subset or None, split=cfg.split, streaming=True)
    dataset = dataset.select_columns([cfg.column])
    return [
        (f'{cfg.path} file {k}', dataset.shard(dataset.num_shards, k))
        for k in range(dataset.num_shards)]


def groups_of(files, shard_bytes):
    """Group [(file, its size)] in order. The file that reaches a multiple of shard_bytes ends its group."""
    groups = {}
    start = 0
    for file, size in files:
        groups.setdefault(start // shard_bytes, []).append((file, size))
        start += size
    return [*groups.values()]


def held_out(text, val_permille, by='normalised'):
    """Whether a text, as `clean` leaves it, is validation. The text alone decides, so copies of it share
    their fate, also those in another Unicode form, or with more white space around them."""
    if by == 'normalised':
        text = unicodedata.normalize('NFC', text).strip()
    return hash_of(text) % 1000 < val_permille


def hash_of(text):
    """A number of 64 bits; of an error of a text that cannot be read, that of its words."""
    written = str(text).encode('utf-8', 'surrogatepass')
    digest = hashlib.blake2b(written, digest_size=8).digest()
    return int.from_bytes(digest, 'little')


def readable(documents, cfg):
    """Yield the documents that can be read. One that cannot is an error, unless skip_bad leaves it out."""
    for text, held in documents:
        if isinstance(text, str):
            yield text, held
        elif not cfg.skip_bad:
            raise ValueError(f'{text}; --skip_bad leaves such files and rows out')


def text_files(paths, made_by):
    """[(file, its size)] of the texts in folders or files, "a, b". Those of a folder are sorted. Tells on
    stderr which other files are there. Names that begin with a dot are not looked at."""
    files = []
    for root in map(Path, paths.split(', ')):
        texts = []
        others = []
        for path in sorted([root, *root.rglob('*')]):
            within = path.relative_to(root)
            if any(name.startswith('.') for name in within.parts):
                continue
            if path.is_file() and reader_of(path):
                texts.append((str(path), path.stat().st_size))
            elif path != root and (path.is_file() or path.is_symlink()):
                others.append(str(within))  # or a linked folder: it may lead back to one above
        if not texts:
            advice = f'first run: {made_by}' if made_by else '--path names the texts'
            raise ValueError(f'{root}: no text there ({", ".join(READERS)}); {advice}')
        if others:
            print(f'{root}: {len(others):,} other files left out: {", ".join(others):.200}', file=sys.stderr)
        files += texts
    return files


def reader_of(path):
    """The function that reads a file's texts, by the end of its name; None if there is none."""
    name = path.name.lower().removesuffix('.gz')
    return READERS.get(Path(name).suffix)


def open_bytes(path):
    opener = gzip.open if path.name.lower().endswith('.gz') else open
    return opener(path, 'rb')


def folder_texts(files, cfg):
    """Yield the texts of files, and ValueErrors."""
    for name, _ in files:
        read = reader_of(Path(name))
        try:
            yield from read(Path(name), cfg)
        # ValueErrors are UnicodeDecodeError, and pyarrow's of a damaged file
        except (ValueError, EOFError, zlib.error, OSError) as error:
            if getattr(error, 'errno', None):   # the disk failed, and not what the file holds
                raise
            yield ValueError(f'{name}: damaged or cut off: {error}')


def texts_of(batches, where, cfg):
    """Yield the texts in a column of batches of rows, and ValueErrors. A row at a time would take longer."""
    columns = (batch[cfg.column] for batch in batches)
    for number, value in enumerate(itertools.chain.from_iterable(columns)):
        row = {cfg.column: value}
        yield text_of(row, f'{where} row {number}', cfg)


def text_of(row, where, cfg):
    text = row.get(cfg.column)
    if isinstance(text, str):
        return clean(text)
    return ValueError(f'{where}: has no text in column {cfg.column!r}: {row!r:.100}')


def clean(text):
    return text.removeprefix('\ufeff').replace('\r\n', '\n')


def read_txt(path, cfg):
    with open_bytes(path) as file:
        text = clean(file.read().decode())
    if len(text) > LONGEST:
        yield from cut_at_lines(text)
    else:
        yield text


def cut_at_lines(text):
    """Cut a long text into documents of 16,000 to 32,000 characters, or up to the end of a line beyond them;
    where no line ends within LONGEST characters, at spaces."""
    start = 0
    while start < len(text):
        least = start + CUT_CHARACTERS
        most = least + CUT_CHARACTERS
        empty_line = EMPTY_LINE.search(text, least, most)
        if empty_line:
            end = empty_line.end()
        else:
            end = text.find('\n', most) + 1 or len(text)
        if end - start > LONGEST:
            yield from cut_at_spaces(text[start:end])
        else:
            yield text[start:end]
        start = end


def cut_at_spaces(line):
    """Cut a line as long as a book before spaces, or anywhere where there are none for long."""
    start = 0
    while start < len(line):
        least = start + CUT_CHARACTERS
        end = least + CUT_CHARACTERS
        space = line.find(' ', least, end)
        if space > 0:
            end = space
        yield line[start:end]
        start = end


def read_jsonl(path, cfg):
    with open_bytes(path) as file:
        for number, line in enumerate(file, 1):
            if line.isspace():
                continue
            try:
                row = {**json.loads(line)}
            except (ValueError, TypeError) as error:
                yield ValueError(f'{path}:{number}: is no JSON object: {error}')
            else:
                yield text_of(row, f'{path}:{number}', cfg)


def read_parquet(path, cfg):
    import pyarrow.parquet
    file = pyarrow.parquet.ParquetFile(path)
    columns = file.schema_arrow.names
    if cfg.column not in columns:
        yield ValueError(f'{path}: has no column {cfg.column!r}, but {", ".join(columns):.200}')
        return
    batches = file.iter_batches(CHUNK, columns=[cfg.column])
    yield from texts_of((batch.to_pydict() for batch in batches), path, cfg)


READERS = {'.txt': read_txt, '.train': read_txt, '.jsonl': read_jsonl, '.parquet': read_parquet}


def prepare(cfg, part=-1, parts=1):
    """Write the corpus, or one part of it. Without a part: every shard that is missing, then meta.json."""
    check_value('part', int, part, -1, parts - 1)
    folder = Path(cfg.out)
    settings = flat(cfg, fixes=('numbers',))
    numbers = [part] if part >= 0 else range(parts)
    with locked(*(folder / f'part_{number:03d}' for number in numbers)):
        if (folder / 'meta.json').exists():
            recorded = settings | read_json(folder / 'meta.json')['settings']   # an older one has fewer
            others = [name for name in settings if settings[name] != recorded[name]]
            if others:
                raise ValueError(f'{folder} holds a corpus of other settings ({", ".join(others)}): '
                                 'remove it, or take another --out')
            print(f'{folder}: already prepared')
            return
        units, files = open_source(cfg)
        tokenizer = load_tokenizer(cfg.tokenizer)
        about = {
            'settings': settings,
            'tokenizer': tokenizer.fingerprint(),
            'vocab_size': tokenizer.vocab_size,
            'special_ids': sorted(tokenizer.special_ids),
            'unused_ids': tokenizer.unused_ids}
        for role, token_id in tokenizer.ids.items():
            about[f'{role}_token_id'] = token_id
        # a mark is written when a unit's shards are; its name stands for all that must stay the same
        begun = digest_of([about, files, parts])
        marks = [folder / f'.{begun:.12}_{number:05d}.unit' for number in range(len(units))]
        if not {*folder.glob('.*.unit')} <= {*marks}:
            raise ValueError(f'{folder} was begun with other settings, files or --parts: remove it')
        dtype = np.dtype('uint16' if tokenizer.vocab_size <= 2 ** 16 else 'uint32')
        eos = np.array([tokenizer.ids['eos']], dtype)
        encode = functools.partial(encoded, cfg, tokenizer.bulk(), eos)
        for number in numbers:
            share = [*zip(marks, units)][number::parts]
            prepare_part(cfg, share, encode, dtype, cfg.max_tokens / parts or math.inf)
        if part < 0:
            join(folder, tokenizer, about, [read_json(mark) for mark in marks if mark.exists()])
            for mark in marks:
                remove(mark)


def encoded(cfg, ids_of, eos, documents):
    """([(prefix of what counts it in meta.json, its tokens)] of documents, errors of those left out).

    A thread does this, so that a ValueError is raised where the tokens would be written: threads are ahead of
    --max_tokens, and a bad row behind it should matter to nobody."""
    rows = []
    for text, held in readable(documents, cfg):
        if text:
            prefix = 'val_' if held else ''
            ids = ids_of(text).astype(eos.dtype)
            rows.append((prefix, np.append(ids, eos)))
    errors = [text for text, _ in documents if isinstance(text, ValueError)]
    return rows, errors


def prepare_part(cfg, units, encode, dtype, limit):
    """Write the units of one part that are missing, until there are `limit` tokens."""
    threads = cfg.threads or os.cpu_count()
    # disable=False, whatever TQDM_DISABLE says: bar.n counts what `limit` limits
    bar = tqdm(
        total=limit, unit=' tokens', unit_scale=True,
        mininterval=10,     # seconds
        disable=False)
    with bar:
        for number, (mark, unit) in enumerate(units, 1):
            bar.set_description(f'{cfg.out}, {number} of {len(units)}')
            if mark.exists():
                counts = read_json(mark)
                bar.update(counts['tokens'] + counts['val_tokens'])
            elif bar.n < limit:
                documents = documents_of(unit, cfg)
                chunks = iter(lambda: [*itertools.islice(documents, CHUNK)], [])
                results = in_order(encode, chunks, threads, 2 * threads)
                counts = write_unit(cfg, mark.stem[-5:], results, dtype, limit, bar)
                write_json(mark, counts)


def write_unit(cfg, number, results, dtype, limit, bar):
    """Write the shards of a unit. Returns what meta.json is to say of them."""
    counts = NOTHING.copy()
    paths = {'': Path(cfg.out, f'tokens_{number}.npy'), 'val_': Path(cfg.out, f'val_{number}.npy')}
    files = {}
    with contextlib.ExitStack() as stack:
        for prefix, path in paths.items():
            temporary = stack.enter_context(whole(path))
            file = stack.enter_context(temporary.open('wb'))
            file.write(bytes(128))  # for the .npy file's header, which says how many tokens follow
            files[prefix] = file
        for rows, errors in results:
            if bar.n >= limit:
                break
            if errors and not counts['skipped']:
                bar.write(f'{cfg.out}: skipped, the first: {errors[0]}', file=sys.stderr)
            counts['skipped'] += len(errors)
            for prefix, tokens in rows:
                files[prefix].write(tokens)
                counts[prefix + 'tokens'] += len(tokens)
                counts[prefix + 'documents'] += 1
                bar.update(len(tokens))
        for prefix, file in files.items():
            shape = (counts[prefix + 'tokens'],)
            header = {'descr': dtype.str, 'fortran_order': False, 'shape': shape}
            file.seek(0)
            np.lib.format.write_array_header_1_0(file, header)
    for prefix, path in paths.items():
        num_tokens = counts[prefix + 'tokens']
        if num_tokens:
            shard = {'name': path.name, 'tokens': num_tokens, 'sha256': sha256(path)}
            counts[prefix + 'shards'] = [shard]
        else:
            remove(path)
    return counts


def join(folder, tokenizer, about, counts):
    """Write the tokenizer and meta.json, which lists the shards of all units."""
    meta = about.copy()
    for name, nothing in NOTHING.items():
        meta[name] = sum((unit[name] for unit in counts), nothing)
    if not meta['tokens']:
        raise ValueError(f'{meta["settings"]["path"]}: no training text there; remove {folder}')
    meta['fingerprint'] = fingerprint(meta)
    meta['unigram_loss'] = None
    if meta['val_tokens']:
        meta['unigram_loss'] = unigram_loss(folder, meta)
    else:
        print(f'{folder}: nothing is held out: see --val_permille and --val_path', file=sys.stderr)
    tokenizer.save(folder)
    write_sealed(folder / 'meta.json', meta)
    print(f'{folder}: {meta["documents"]:,} documents of {meta["tokens"]:,} tokens; held out '
          f'{meta["val_documents"]:,} of {meta["val_tokens"]:,}; skipped {meta["skipped"]:,} bad files and '
          f'rows; fingerprint {meta["fingerprint"]:.12}')


def unigram_loss(folder, meta):
    """Nats a held-out token has by the training tokens' frequencies (add-one). Of both the first shard is
    counted."""
    counts = []
    for listed in 'shards', 'val_shards':
        path = folder / meta[listed][0]['name']
        tokens = np.load(path, mmap_mode='r')[:10_000_000]
        counts.append(np.bincount(tokens, minlength=meta['vocab_size']))
    train, val = counts
    train += 1
    nats = -np.log(train / train.sum())
    return float((val * nats).sum() / val.sum())


def fingerprint(meta):
    """sha256 of a corpus: of its tokenizer's fingerprint and its shards' sha256."""
    digests = [meta['tokenizer']]
    for shard in meta['shards'] + meta['val_shards']:
        digests.append(shard['sha256'])
    return sha256_of_text(''.join(digests))


def open_sealed(folder):
    """The Corpus of a folder. ValueError if its meta.json or its tokenizer has changed. Its shards are not
    compared with their sha256."""
    path = Path(folder, 'meta.json')
    if path.exists():
        read_sealed(path, AGAIN)
    corpus = Corpus(folder)
    if load_tokenizer(str(folder)).fingerprint() != corpus.meta['tokenizer']:
        raise ValueError(f'{folder}/tokenizer.json: changed since it was written; {AGAIN}')
    if fingerprint(corpus.meta) != corpus.meta['fingerprint']:    # older corpora have no seal
        raise ValueError(f'{path}: changed since it was written: fingerprint is that of other shards; '
                         f'{AGAIN}')
    return corpus


def compare_shards(corpus, number=0, size=1):
    """Compare all shards with their sha256, a share of them in each of the `size` processes that read this
    copy of the corpus. ValueError if one has changed."""
    shards = corpus.meta['shards'] + corpus.meta['val_shards']
    digests = {
        shard['name']: shard['sha256']
        for shard in shards[number::size]}
    for name in changed_files(corpus.folder, digests):
        raise ValueError(f'{corpus.folder / name}: changed since it was written; {AGAIN}')


def verify(folder):
    """ValueError unless meta.json, the tokenizer and every shard are as they were written."""
    corpus = open_sealed(folder)
    compare_shards(corpus)
    print(f'{folder}: every shard is as it was written')


def train_tokenizer(cfg, vocab_size):
    """Learn a vocabulary from the texts to train on and write it where `tokenizer` points."""
    if Path(cfg.tokenizer, 'tokenizer.json').exists():
        raise ValueError(f'{cfg.tokenizer}: holds a tokenizer already; take another folder with --tokenizer')
    units, _ = open_source(cfg)
    documents = (document for unit in units for document in documents_of(unit, cfg))
    texts = (text for text, held in readable(documents, cfg) if not held)
    tokenizer = learn(texts, vocab_size)
    tokenizer.save(cfg.tokenizer)
    print(f'{cfg.tokenizer}: {tokenizer.vocab_size:,} ids')

"""Text to tokens on disk.

    python data.py configs/corpora/docs.py                 # the embedded corpus: seconds, no network
    python data.py configs/corpora/folder.py --path=texts --out=corpora/texts
    python data.py configs/corpora/fineweb_edu.py --part=3 --parts=16   # one machine of sixteen; then, once:
    python data.py configs/corpora/fineweb_edu.py --parts=16            # whatever is missing, and meta.json

A corpus is a folder: tokens_00000.npy, ... (a stream of documents, each followed by eos), val_00000.npy, ...
(held-out documents), the tokenizer, and meta.json, written last. A shard is a hub file, or a GB of files."""
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
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from data import Corpus, in_order
from nanoencoder import docs, wordnet
from nanoencoder.files import (blame, changed_files, locked, read_json, read_sealed, remove, sha256, whole,
                               write_json, write_sealed)
from nanoencoder.settings import check, check_value, flat, setting
from nanoencoder.tokenizer import (BOS, BYTES, EOS, MASK, LLAMA3_PATTERN, from_ranks, load_tokenizer, splits,
                                   without_surrogates)

CHUNK = 256             # documents that are tokenised at once
CUT_CHARACTERS = 16_000  # to twice as many, at an empty line, else a line's end: a document of a long .txt
SAMPLE_CHARACTERS = 250_000     # of which tiktoken's ids are compared with the tokenizer's
NOTHING = {'tokens': 0, 'documents': 0, 'val_tokens': 0, 'val_documents': 0, 'shards': [], 'val_shards': [],
           'skipped': 0}


@dataclass(frozen=True)
class Settings:
    source: str = setting('docs', choices=('docs', 'embedded', 'folder', 'hub'))  # embedded: docs, WordNet
    path: str = ''                  # the folder (or one file), or the dataset's name on the hub
    subset: str = ''                # of a hub dataset, as sample-350BT
    split: str = 'train'            # of a hub dataset
    column: str = 'text'            # of .jsonl, .parquet and hub datasets
    tokenizer: str = 'configs/corpora/docs'  # tokenizer.json (file, folder, hub id), tiktoken .model
    val_permille: int = setting(1, 1, 999)  # of documents are held out, by the text's hash (docs: by file)
    # normalised: in Unicode's NFC, without white space at its ends; verbatim: as older corpora had it
    held_out_by: str = setting('normalised', choices=('normalised', 'verbatim'))  # what it is the hash of
    skip_bad: bool = False          # leave out files and rows that cannot be read, and count them
    # characters: a longer .txt is cut at empty lines, at lines' ends or, if there are none, at spaces
    cut_txt_above: int = setting(1_000_000, 0)
    shard_bytes: int = setting(2 ** 30, 1)  # of a folder's files, about, for a shard
    max_tokens: int = setting(0, 0)  # stop after this many, shared over the parts; 0: all there are
    threads: int = setting(0, 0, fixes='nothing')  # that tokenise; 0: one a core
    out: str = setting('corpora/docs', fixes='nothing')  # the folder to write

    __post_init__ = check


ACTIONS = {'part': (-1, 'prepare this part alone, counted from 0'),
           'parts': (1, 'that share the input; without --part, do what is missing and join them', 1, 500),
           'verify': (False, 'compare each shard with its sha256 in meta.json'),
           'train_tokenizer': (0, 'learn this many ids and write them to --tokenizer', 260, 10 ** 7)}


def open_source(cfg):
    """(functions that yield (text, whether it is held out), a shard each; the files that they read). The
    functions take a Bad, which hears of each row that cannot be read."""
    def unit(read, part):
        def texts(bad):
            for text in read(part, cfg, bad):
                yield text, held_out(text, cfg.val_permille, cfg.held_out_by)
        return texts

    if cfg.source in ('docs', 'embedded'):
        everything = docs.documents() + (wordnet.documents() if cfg.source == 'embedded' else [])
        texts = [(text, split == 'validation') for split, _, text in everything if split != 'test']
        return [lambda bad: iter(texts)], []
    if not cfg.path:
        raise ValueError('path is empty; --path names the texts')
    if cfg.source == 'folder':
        files = [(str(path), path.stat().st_size) for path in text_files(cfg.path)]
        groups, starts = {}, itertools.accumulate((size for _, size in files), initial=0)
        for (file, _), start in zip(files, starts):
            groups.setdefault(start // cfg.shard_bytes, []).append(Path(file))
        return [unit(folder_texts, group) for group in groups.values()], files
    import datasets
    with blame(f'cannot open the dataset {cfg.path} {cfg.subset}', OSError, ValueError):
        dataset = datasets.load_dataset(cfg.path, cfg.subset or None, split=cfg.split, streaming=True)
        dataset = dataset.select_columns([cfg.column])
    return [unit(hub_texts, (f'{cfg.path} file {k}', dataset.shard(dataset.num_shards, k)))
            for k in range(dataset.num_shards)], []


def held_out(text, val_permille, by='normalised'):
    """Whether a text, as `clean` leaves it, is validation. The text alone decides, so copies of it share
    their fate, also those in another Unicode form, or with more white space around them."""
    if by == 'normalised':
        text = unicodedata.normalize('NFC', text).strip()
    digest = hashlib.blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=8).digest()
    return int.from_bytes(digest, 'little') % 1000 < val_permille


@dataclass
class Bad:
    """Counts the files and rows that cannot be read; without skip_bad the first of them is an error."""
    skip: bool
    count: int = 0
    first: str = ''

    def add(self, error):
        if not self.skip:
            raise ValueError(f'{error}; --skip_bad leaves such files and rows out')
        self.count += 1
        self.first = self.first or str(error)


def text_files(root):
    """The files of a folder that hold texts, sorted; or one file. Tells on stderr which others there are.
    Names that begin with a dot are not looked at."""
    root, files, left_out = Path(root), [], []
    for path in sorted([root, *root.rglob('*')]):
        within = path.relative_to(root)
        if any(name.startswith('.') for name in within.parts):
            continue
        if path.is_file() and reader_of(path):
            files.append(path)
        elif path.is_dir() and path.is_symlink() and path != root:  # it may lead back to a folder above
            left_out.append(f'{within} (a linked folder)')
        elif not path.is_dir():
            left_out.append(str(within))
    if not files:
        raise ValueError(f'path {str(root)!r}: no {", ".join(READERS)} file; --path names the texts')
    if left_out:
        names = ', '.join(left_out[:5]) + ', ...' * (len(left_out) > 5)
        print(f'{root}: {len(left_out):,} left out, not of {", ".join(READERS)}: {names}', file=sys.stderr)
    return files


def reader_of(path):
    """The function that reads a file's texts, by the end of its name; None if there is none."""
    name = path.name.lower()
    return next((READERS[ending] for ending in READERS if name.endswith(ending)), None)


def open_bytes(path):
    return gzip.open(path) if path.name.lower().endswith('.gz') else path.open('rb')


def folder_texts(files, cfg, bad):
    """Yield the texts of files."""
    for file in files:
        try:
            yield from reader_of(file)(file, cfg, bad)
        except UnicodeDecodeError as error:
            line = error.object.count(b'\n', 0, error.start) + 1
            bad.add(f'{file}:{line}: {error}')
        except (EOFError, zlib.error, OSError) as error:
            if getattr(error, 'errno', None):   # the disk failed, and not what the file holds
                raise
            bad.add(f'{file}: damaged or cut off: {error}')


def hub_texts(part, cfg, bad):
    """Yield the texts of a file of a dataset on the hub."""
    name, shard = part
    values = (value for batch in shard.iter(CHUNK) for value in batch[cfg.column])
    yield from texts_of(values, cfg, name, bad)


def texts_of(values, cfg, where, bad):
    """Yield the values of a column that are texts."""
    for number, value in enumerate(values):
        if isinstance(value, str):
            yield clean(value)
        else:
            bad.add(f'{where} row {number}: column {cfg.column!r} holds {value!r:.50}, which is no text')


def clean(text):
    return text.removeprefix('\ufeff').replace('\r\n', '\n')


def read_txt(path, cfg, bad):
    with open_bytes(path) as file:
        text = clean(file.read().decode())
    if len(text) > cfg.cut_txt_above:
        yield from cut_at_lines(text, max(cfg.cut_txt_above, 4 * CUT_CHARACTERS))
    elif text:
        yield text


def cut_at_lines(text, longest):
    """Cut a long text into documents of 16,000 to 32,000 characters, or up to the end of a line beyond them;
    where no line ends within `longest` characters, at spaces."""
    start = 0
    while start < len(text):
        empty_line = re.compile(r'\n\s*\n').search(text, start + CUT_CHARACTERS, start + 2 * CUT_CHARACTERS)
        if empty_line:
            end = empty_line.end()
        else:
            end = text.find('\n', start + 2 * CUT_CHARACTERS) + 1 or len(text)
        if end - start > longest:
            yield from cut_at_spaces(text[start:end])
        else:
            yield text[start:end]
        start = end


def cut_at_spaces(line):
    """Cut a line as long as a book before spaces, or anywhere where there are none for long."""
    start = 0
    while start < len(line):
        space = line.find(' ', start + CUT_CHARACTERS, start + 2 * CUT_CHARACTERS)
        end = start + 2 * CUT_CHARACTERS if space < 0 else space
        yield line[start:end]
        start = end


def read_jsonl(path, cfg, bad):
    with open_bytes(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            where = f'{path}:{number}'
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                bad.add(f'{where}: is no JSON: {error}')
                continue
            if not isinstance(row, dict):
                bad.add(f'{where}: is no JSON object with a column {cfg.column!r}')
            elif cfg.column not in row:
                bad.add(f'{where}: has no column {cfg.column!r}, but {", ".join(row):.200}')
            elif not isinstance(row[cfg.column], str):
                bad.add(f'{where}: column {cfg.column!r} holds {row[cfg.column]!r:.50}, which is no text')
            else:
                yield clean(row[cfg.column])


def read_parquet(path, cfg, bad):
    import pyarrow.parquet
    try:
        file = pyarrow.parquet.ParquetFile(path)
        columns = file.schema_arrow.names
        if columns.count(cfg.column) > 1:
            bad.add(f'{path}: has several columns {cfg.column!r}')
            return
        if cfg.column not in columns:
            bad.add(f'{path}: has no column {cfg.column!r}, but {", ".join(columns):.200}')
            return
        batches = file.iter_batches(CHUNK, columns=[cfg.column])
        values = (value for batch in batches for value in batch[cfg.column].to_pylist())
        yield from texts_of(values, cfg, path, bad)
    except pyarrow.lib.ArrowException as error:
        if isinstance(error, MemoryError):
            raise
        bad.add(f'{path}: not a whole parquet file: {error}')


READERS = {'.txt': read_txt, '.txt.gz': read_txt, '.train': read_txt, '.train.gz': read_txt,
           '.jsonl': read_jsonl, '.jsonl.gz': read_jsonl, '.parquet': read_parquet}


def prepare(cfg, part=-1, parts=1):
    """Write the corpus, or one part of it. Without a part: every shard that is missing, then meta.json."""
    check_value('part', int, part, -1, parts - 1)
    folder, settings = Path(cfg.out), flat(cfg, fixes=('numbers',))
    numbers = [part] if part >= 0 else range(parts)
    with locked(*(folder / f'part_{number:03d}' for number in numbers)):
        if (folder / 'meta.json').exists():
            recorded = flat(Settings(), fixes=('numbers',))
            recorded['held_out_by'] = cfg.held_out_by   # a corpus from before this setting is kept as it is
            recorded |= read_json(folder / 'meta.json')['settings']
            if other := [name for name in settings if settings[name] != recorded[name]]:
                raise ValueError(f'{folder} holds a corpus of other settings ({", ".join(other)}): remove it')
            return print(f'{folder}: already prepared')
        units, files = open_source(cfg)
        tokenizer = load_tokenizer(cfg.tokenizer)
        identity = {'settings': settings} | described(tokenizer)
        begun = hashlib.sha256(json.dumps([identity, files, parts]).encode()).hexdigest()[:12]
        done = [folder / f'.{begun}_{number:05d}.unit' for number in range(len(units))]
        if {*folder.glob('.*.unit')} - {*done}:
            raise ValueError(f'{folder} was begun with other settings, files or --parts: remove it')
        ids_of = tokenizer.bulk(sample_of(units[0](Bad(cfg.skip_bad))))
        dtype = np.uint16 if tokenizer.vocab_size <= 2 ** 16 else np.uint32
        eos = np.uint32(tokenizer.ids['eos'])

        def encode(chunk):  # ([(prefix of what counts it, tokens)], how many rows have been skipped)
            texts, skipped = chunk
            if isinstance(texts, ValueError):
                raise texts
            documents = [('val_' if held else '', np.append(ids_of(text), eos).astype(dtype))
                         for text, held in texts if text]
            return documents, skipped
        for number in numbers:
            prepare_part(cfg, [*zip(done, units)][number::parts], encode, dtype,
                         cfg.max_tokens / parts or math.inf)
        if part < 0:
            join(folder, tokenizer, identity, [read_json(path) for path in done if path.exists()])
            for path in done:
                remove(path)


def sample_of(texts):
    """Take the beginnings of the first documents. The slow tokenizer encodes them: they may not be many."""
    sample, room = [], SAMPLE_CHARACTERS
    for text, _ in itertools.islice(texts, 1_000):
        sample.append(text[:min(room, 10_000)])
        room -= len(sample[-1])
        if not room:
            break
    return sample


def prepare_part(cfg, units, encode, dtype, limit):
    """Write the units that are missing, until there are `limit` tokens."""
    threads = cfg.threads or os.cpu_count()
    with tqdm(total=limit, unit=' tokens', unit_scale=True, mininterval=0.2 if sys.stderr.isatty() else 30,
              disable=False) as bar:    # in any environment: it counts what --max_tokens limits
        for number, (done, unit) in enumerate(units, 1):
            bar.set_description(f'{cfg.out}, {number} of {len(units)}')
            if done.exists():
                counts = read_json(done)
                bar.update(counts['tokens'] + counts['val_tokens'])
            elif bar.n < limit:
                bad = Bad(cfg.skip_bad)
                encoded = in_order(encode, chunked(unit(bad), bad), threads, 2 * threads)
                counts = write_unit(Path(cfg.out), done.stem[-5:], dtype, encoded, limit, bar)
                if counts['skipped']:
                    bar.write(f'{cfg.out}: skipped {counts["skipped"]:,}, the first {bad.first}',
                              file=sys.stderr)
                write_json(done, counts)
            bar.total = min(limit, round(bar.n * len(units) / number))


def chunked(texts, bad):
    """Yield (some documents, how many rows have been skipped so far). The last chunk is empty: it counts the
    rows behind the last document. An error takes the place of documents, and is raised where they would be
    written: threads read on behind --max_tokens, where a bad row should matter to nobody."""
    documents = None
    while documents != []:
        try:
            documents = [*itertools.islice(texts, CHUNK)]
        except ValueError as error:
            yield error, bad.count
            return
        yield documents, bad.count


def write_unit(folder, number, dtype, encoded, limit, bar):
    """Write the shards of a unit. Returns what meta.json is to say of them."""
    counts = NOTHING.copy()
    paths = {'': folder / f'tokens_{number}.npy', 'val_': folder / f'val_{number}.npy'}
    with ExitStack() as stack:
        files = {prefix: stack.enter_context(stack.enter_context(whole(path)).open('wb'))
                 for prefix, path in paths.items()}
        for file in files.values():
            file.write(bytes(128))  # for the .npy file's header, which says how many tokens follow
        for documents, skipped in encoded:
            if bar.n >= limit:
                break
            counts['skipped'] = skipped
            for prefix, tokens in documents:
                files[prefix].write(tokens)
                counts[prefix + 'tokens'] += len(tokens)
                counts[prefix + 'documents'] += 1
                bar.update(len(tokens))
        for prefix, file in files.items():
            file.seek(0)
            np.lib.format.write_array_header_1_0(file, {'descr': np.dtype(dtype).str, 'fortran_order': False,
                                                        'shape': (counts[prefix + 'tokens'],)})
    for prefix, path in paths.items():
        if num_tokens := counts[prefix + 'tokens']:
            counts[prefix + 'shards'] = [{'name': path.name, 'tokens': num_tokens, 'sha256': sha256(path)}]
        else:
            remove(path)
    return counts


def join(folder, tokenizer, identity, counts):
    """Write the tokenizer and meta.json, which lists the shards of all units."""
    meta = identity | {name: sum((unit[name] for unit in counts), NOTHING[name]) for name in NOTHING}
    if not meta['tokens']:
        raise ValueError(f'{meta["settings"]["path"]}: no training text there; remove {folder}')
    meta |= {'fingerprint': fingerprint(meta), 'unigram_loss': None}
    if meta['val_tokens']:  # nats a held-out token has by the training tokens' frequencies (add-one)
        train, val = (np.bincount(np.load(folder / meta[listed][0]['name'], mmap_mode='r')[:10_000_000],
                                  minlength=meta['vocab_size']) for listed in ('shards', 'val_shards'))
        meta['unigram_loss'] = float(-(val * np.log((train + 1) / (train + 1).sum())).sum() / val.sum())
    else:
        print(f'{folder}: nothing is held out: see --val_permille and --cut_txt_above', file=sys.stderr)
    tokenizer.save(folder)
    write_sealed(folder / 'meta.json', meta)
    skipped = f'; skipped {meta["skipped"]:,} bad files and rows' if meta['skipped'] else ''
    print(f'{folder}:', '{documents:,} documents of {tokens:,} tokens; held out {val_documents:,} of '
          '{val_tokens:,}; fingerprint {fingerprint:.12}'.format_map(meta) + skipped)


def described(tokenizer):
    """What meta.json says of a corpus's tokenizer."""
    about = {'tokenizer': tokenizer.fingerprint(), 'vocab_size': tokenizer.vocab_size,
             'special_ids': sorted(tokenizer.specials.values())}
    if tokenizer.unused_ids:
        about['unused_ids'] = tokenizer.unused_ids
    return about | {f'{role}_token_id': i for role, i in tokenizer.ids.items()}


def fingerprint(meta):
    """sha256 of a corpus: of its tokenizer's fingerprint and its shards' sha256."""
    digests = [meta['tokenizer'], *(shard['sha256'] for shard in meta['shards'] + meta['val_shards'])]
    return hashlib.sha256(''.join(digests).encode()).hexdigest()


def open_sealed(folder):
    """The Corpus of a folder. ValueError if its meta.json was edited; older ones have no seal."""
    path = Path(folder, 'meta.json')
    if path.exists():
        read_sealed(path, 'prepare the corpus again')
    return Corpus(folder)


def check_meta(corpus, tokenizer):
    """ValueError unless a Corpus's meta.json agrees with the tokenizer beside it and with its shards."""
    path, meta = corpus.folder / 'meta.json', corpus.meta
    wanted = described(tokenizer)
    if 'unused_ids' not in meta:    # a corpus from before does not say them
        wanted.pop('unused_ids', None)
    if meta.get('tokenizer') != wanted['tokenizer']:
        raise ValueError(f'{corpus.folder}/tokenizer.json: changed since it was written; prepare it again')
    with blame(f'{path}: changed since it was written, and lacks', KeyError):
        wanted['fingerprint'] = fingerprint(meta)
        for name, split in (('tokens', 'train'), ('val_tokens', 'validation')):
            wanted[name] = int(corpus.streams[split][1][-1])
        for name, value in wanted.items():
            if meta[name] != value:
                raise ValueError(f'{path}: changed since it was written: {name} is {meta[name]!r:.80}, '
                                 f'and not {value!r:.80}; prepare the corpus again')


def verify(folder):
    """ValueError unless meta.json and every shard are as they were written."""
    corpus = open_sealed(folder)
    check_meta(corpus, load_tokenizer(str(folder)))
    digests = {shard['name']: shard['sha256'] for shard in corpus.meta['shards'] + corpus.meta['val_shards']}
    for name in changed_files(corpus.folder / 'meta.json', digests):
        raise ValueError(f'{corpus.folder / name}: changed since it was written; prepare the corpus again')
    print(f'{folder}: every shard is as it was written')


def train_tokenizer(cfg, vocab_size):
    """Learn a byte-level BPE vocabulary from the texts to train on and write it where `tokenizer` points."""
    if (Path(cfg.tokenizer) / 'tokenizer.json').exists():
        raise ValueError(f'{cfg.tokenizer}: holds a tokenizer already; take another folder with --tokenizer')
    from tokenizers import Tokenizer, models, trainers
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = splits(LLAMA3_PATTERN)
    trainer = trainers.BpeTrainer(vocab_size=vocab_size - 3, show_progress=False, initial_alphabet=[*BYTES])
    units, _ = open_source(cfg)
    bad = Bad(cfg.skip_bad)
    texts = (without_surrogates(text) for unit in units for text, held in unit(bad) if not held)
    trained.train_from_iterator(texts, trainer)
    ranks = {bytes(map(BYTES.get, token)): i for token, i in trained.get_vocab().items()}
    from_ranks(ranks, {token: len(ranks) + k for k, token in enumerate((BOS, EOS, MASK))}).save(cfg.tokenizer)
    print(f'{cfg.tokenizer}: {len(ranks) + 3:,} ids')

"""Text -> tokens on disk -> batches.

    python data.py configs/corpora/docs.py                          # the embedded corpus: seconds, no network
    python data.py configs/corpora/folder.py --path=texts --out=corpora/texts
    python data.py configs/corpora/fineweb_edu.py --part=3 --parts=16   # one machine of sixteen; then, once, ...
    python data.py configs/corpora/fineweb_edu.py --parts=16            # ... does what is missing and joins the parts
    python data.py configs/corpora/docs.py --verify                 # check every shard against its sha256

A corpus is a folder: `tokens_00000.npy, ...` (one stream of documents, each followed by eos), `val_00000.npy, ...`
(held-out documents), the tokenizer, and `meta.json`. The same command again continues where it stopped.
The batch of a step is a pure function of the settings and the step (`Loader`); nothing here knows the model.
"""
import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import queue
import shutil
import sys
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nanoencoder import settings as configs
from nanoencoder import docs
from nanoencoder.tokenizer import BOS, EOS, LLAMA3_PATTERN, MASK, Tokenizer, byte_alphabet, load_tokenizer, read_json


@dataclass(frozen=True)
class Settings:
    source: str = 'docs'            # docs (embedded), folder (of .txt, .jsonl, .parquet) or hub (Hugging Face's)
    path: str = ''                  # the folder, or the dataset's name on the hub
    subset: str = ''                # of a hub dataset, as sample-350BT
    split: str = 'train'            # of a hub dataset
    column: str = 'text'            # of .jsonl, .parquet and hub datasets
    tokenizer: str = 'configs/corpora/docs'  # tokenizer.json (file, folder, hub id), tiktoken .model or name
    val_permille: int = 1           # documents in 1,000 held out, by a hash of the text (docs: by file, a tenth)
    shard_tokens: int = 250_000_000  # a shard ends with the first document chunk beyond this; 1 GB at 4 bytes
    max_tokens: int = 0             # stop behind this many, shared over the parts; 0: all there are
    threads: int = 0                # that tokenise; 0: one a core
    out: str = 'corpora/docs'       # the folder to write

    def __post_init__(self):
        if self.source not in ('docs', 'folder', 'hub'):
            raise ValueError(f'source is docs, folder or hub, not {self.source!r}')
        if not 1 <= self.val_permille < 1000:
            raise ValueError(f'val_permille must be from 1 to 999, not {self.val_permille}')
        for name, low in (('shard_tokens', 1), ('max_tokens', 0), ('threads', 0)):
            if getattr(self, name) < low:
                raise ValueError(f'{name} must be at least {low}, not {getattr(self, name)}')


# ------------------------------------------------------------------------------------------------- batches

SHORTEST = 12             # tokens: the paper's inputs are 12 to 2,048 long (section 2, footnote 6)
VALIDATION = 2 ** 64 - 1  # stands for the seed in validation rows, which depend on the corpus alone
OBJECTIVES = ('clm', 'mlm', 'mntp')
NO_TARGET = -100


def objective(phases, step):
    """The objective of a step, counted from 0."""
    for name, steps in phases:
        if step < steps:
            return name
        step -= steps
    raise ValueError('step beyond the last phase')


class Corpus:
    """A prepared folder: its stretches of `context` tokens, memory-mapped.

    Raises ValueError for a folder that is no corpus, or whose shards are missing or cut short.
    """

    def __init__(self, folder):
        self.folder = Path(folder)
        if not (self.folder / 'meta.json').exists():
            raise ValueError(f'{folder}: no corpus there; make it with python data.py configs/corpora/...')
        self.meta = read_json(self.folder / 'meta.json')
        self.ordinary_ids = np.setdiff1d(np.arange(self.meta['vocab_size']), self.meta['special_ids'])
        self.streams = {'train': self.open_shards('shards'), 'validation': self.open_shards('val_shards')}

    def open_shards(self, kind):
        dtype = np.uint16 if self.meta['vocab_size'] <= 2 ** 16 else np.uint32
        arrays = []
        for shard in self.meta[kind]:
            path = self.folder / shard['name']
            try:
                array = np.load(path, mmap_mode='r', allow_pickle=False)
            except (OSError, ValueError) as error:
                raise ValueError(f'{path}: missing or cut short ({error})') from None
            if array.shape != (shard['tokens'],) or array.dtype != dtype:
                raise ValueError(f'{path}: holds {array.dtype} {array.shape}, where meta.json says '
                                 f'{np.dtype(dtype)} ({shard["tokens"]},)')
            arrays.append(array)
        return arrays, np.cumsum([0, *map(len, arrays)])

    def num_stretches(self, split, context):
        return int(self.streams[split][1][-1]) // context

    def stretch(self, split, k, context):
        """Tokens [k * context, (k + 1) * context) of the stream, as int64; they may come from several shards."""
        arrays, ends = self.streams[split]
        start, stop = k * context, (k + 1) * context
        first, last = np.searchsorted(ends, [start, stop - 1], side='right') - 1
        parts = [arrays[s][max(0, start - ends[s]):stop - ends[s]] for s in range(first, last + 1)]
        return np.concatenate(parts).astype(np.int64)

    def verify(self):
        for shard in self.meta['shards'] + self.meta['val_shards']:
            if sha256(self.folder / shard['name']) != shard['sha256']:
                raise ValueError(f'{self.folder / shard["name"]}: its sha256 is not the one in meta.json')
        print(f'{self.folder}: every shard is as it was written')


def permute(index, n, seed, epoch):
    """Where a keyed permutation of 0..n-1 sends each index: a Feistel network of six rounds, walked until inside n.

    Six: with four, neighbours are correlated where n is about a hundred. No memory, whatever n is.
    """
    keys = np.random.SeedSequence([seed, epoch]).generate_state(6, np.uint64)
    half = np.uint64(max(1, ((n - 1).bit_length() + 1) // 2))
    low = (np.uint64(1) << half) - np.uint64(1)
    out = np.array(index, np.uint64)
    outside = np.ones(out.shape, bool)
    while outside.any():
        left, right = out[outside] >> half, out[outside] & low
        for key in keys:
            left, right = right, left ^ (mix(right + key) & low)
        out[outside] = (left << half) | right
        outside = out >= np.uint64(n)
    return out.astype(np.int64)


def mix(x):
    """The finaliser of splitmix64 (Steele, Lea and Flood, 2014), on uint64 arrays."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@dataclass(frozen=True)
class Batch:
    """Some rows of a step as one flat row of tokens."""
    tokens: object   # (tokens,) int64, masked where the objective masks
    lengths: list    # of the segments, which do not see each other; sums to the number of tokens
    targets: object  # (tokens,) int64, NO_TARGET where nothing is predicted
    at: object       # (targets,) int64: the positions that have a target


def make_batch(corpus, split, rows, key, kind, cfg):
    """The Batch of some rows [(i, stretch)] under an objective, and a hash of what was read for each row.

    The randomness of row i is Philox(key, i), drawn in a fixed order: the cut, a uniform number a token for the mask,
    then what mask_replace needs. So the cut is that of every objective, and a 20 % mask is within the 40 % one.
    """
    context = cfg.context
    inputs, targets, lengths, hashes = [], [], [], []
    for i, k in rows:
        random = np.random.Generator(np.random.Philox(key=np.array([key, i], np.uint64)))
        tokens = corpus.stretch(split, k, context)
        cut = SHORTEST + int(random.random() * (context - 2 * SHORTEST + 1)) if cfg.cut_rows else context
        segments = [cut, context - cut] if cfg.cut_rows else [context]
        read = hashlib.blake2b(tokens.tobytes() + cut.to_bytes(8, 'little'), digest_size=6)
        hashes.append(int.from_bytes(read.digest(), 'little'))
        if kind == 'clm':
            masked, target = tokens, next_tokens(tokens, segments)
        else:
            masked, target = mask(tokens, random, cfg.mask_ratio, cfg.mask_replace, corpus)
            if kind == 'mntp':  # a masked token is predicted from the position before it (LLM2Vec)
                target = next_tokens(target, segments)
        inputs.append(masked)
        targets.append(target)
        lengths += segments
    targets = np.concatenate(targets)
    return Batch(np.concatenate(inputs), lengths, targets, np.flatnonzero(targets != NO_TARGET)), hashes


def next_tokens(tokens, lengths):
    """At each position the token behind it in its segment; none at a segment's last."""
    targets = np.append(tokens[1:], NO_TARGET)
    targets[np.cumsum(lengths) - 1] = NO_TARGET
    return targets


def mask(tokens, random, ratio, replace, corpus):
    """(inputs, targets) of masked language modeling: each token but special ones with probability `ratio`.

    replace = (mask, random, keep): what a masked token becomes, as shares; the paper's are 1, 0, 0, BERT's .8, .1, .1.
    """
    chosen = (random.random(len(tokens), np.float32) < ratio) & ~np.isin(tokens, corpus.meta['special_ids'])
    inputs = np.where(chosen, corpus.meta['mask_token_id'], tokens)
    if replace[0] < 1:
        kind = random.random(len(tokens))
        drawn = corpus.ordinary_ids[(random.random(len(tokens)) * len(corpus.ordinary_ids)).astype(int)]
        other = np.where(kind < replace[0] + replace[1], drawn, tokens)
        inputs = np.where(chosen & (kind >= replace[0]), other, inputs)
    return inputs, np.where(chosen, tokens, NO_TARGET)


@dataclass(frozen=True)
class Step:
    """What one process reads at a step."""
    batches: list     # of micro_rows rows each
    num_targets: int  # in these
    rows: int         # a hash of tokens and cuts; the sum over processes, modulo 2**48, identifies the step's rows


def rows_at_once(cfg, world_size):
    """Rows of a micro-batch: micro_rows, or all that a process has at a step if those are fewer."""
    share = cfg.rows_per_step // world_size
    return min(cfg.micro_rows or share, share)


class Loader:
    """Iterates over the Steps [start, stop) of one process; a background thread keeps a few ready.

    Step s holds rows first_row + s * rows_per_step onwards; row i is stretch permute(i mod K) of K, by (seed, i // K).
    All drawn is a function of (seed, corpus, context, rows_per_step, cut_rows, first_row, s): not of the objective,
    the processes, the micro-batches, or of where the run was interrupted.
    `convert(batch)` runs in the thread (to tensors, to pinned memory).
    """

    def __init__(self, corpus, cfg, start, stop, rank=0, world_size=1, convert=lambda batch: batch, ahead=4):
        self.corpus, self.cfg, self.convert = corpus, cfg, convert
        self.rank, self.world_size = rank, world_size
        self.num_stretches = corpus.num_stretches('train', cfg.context)
        if not self.num_stretches:
            raise ValueError(f'{corpus.folder}: {corpus.meta["tokens"]:,} tokens, less than one row of {cfg.context}')
        self.queue, self.stopped = queue.Queue(ahead), threading.Event()
        self.thread = threading.Thread(target=self.work, args=(start, stop), daemon=True)
        self.thread.start()

    def rows(self, step):
        """[(i, stretch)] of this process at a step; a step may lie in two epochs."""
        share = self.cfg.rows_per_step // self.world_size
        first = self.cfg.first_row + step * self.cfg.rows_per_step + self.rank * share
        i = np.arange(first, first + share)
        epochs, index = i // self.num_stretches, i % self.num_stretches
        stretches = np.concatenate([permute(index[epochs == epoch], self.num_stretches, self.cfg.seed, epoch)
                                    for epoch in np.unique(epochs).tolist()])
        return list(zip(i.tolist(), stretches.tolist()))

    def step(self, step):
        kind, rows = objective(self.cfg.phases, step), self.rows(step)
        size = rows_at_once(self.cfg, self.world_size)
        made = [make_batch(self.corpus, 'train', rows[k:k + size], self.cfg.seed, kind, self.cfg)
                for k in range(0, len(rows), size)]
        num_targets = sum(len(batch.at) for batch, _ in made)
        read = sum(one for _, hashes in made for one in hashes) % 2 ** 48
        return Step([self.convert(batch) for batch, _ in made], num_targets, read)

    def work(self, start, stop):
        try:
            for step in range(start, stop):
                if not self.put(self.step(step)):
                    return
            self.put(None)
        except BaseException as error:  # handed to the loop, which raises it
            self.put(error)

    def put(self, item):
        while not self.stopped.is_set():
            try:
                self.queue.put(item, timeout=0.1)
                return True
            except queue.Full:
                pass
        return False

    def __iter__(self):
        while (item := self.queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    def close(self):
        self.stopped.set()
        self.thread.join()


def validation_batches(corpus, kind, cfg, rank=0, world_size=1):
    """The Batches of this process: the first val_rows stretches of the held-out stream, each in one process once.

    All batches are of one shape and all processes get equally many, as compiled code and FSDP want: where rows run out,
    stretch 0 stands in, without targets.
    """
    count = min(cfg.val_rows, corpus.num_stretches('validation', cfg.context))
    size = rows_at_once(cfg, world_size)
    for first in range(0, count, size * world_size):
        rows = [k for k in range(first, first + size * world_size)[rank::world_size] if k < count]
        filled = [(k, k) for k in rows + [0] * (size - len(rows))]
        batch, _ = make_batch(corpus, 'validation', filled, VALIDATION, kind, cfg)
        real = len(rows) * cfg.context
        targets = np.where(np.arange(len(batch.targets)) < real, batch.targets, NO_TARGET)
        yield dataclasses.replace(batch, targets=targets, at=batch.at[batch.at < real])


# ------------------------------------------------------------------------------------------------- sources
#
# A source is a generator of chunks (texts, position, done): texts is a list of (text, held out), position is what to
# give the source to go on behind the chunk, done is the share of the input read by then (None where unknown).

CHUNK = 256                                            # documents; fewer if they are long
CHUNK_CHARACTERS = 4_000_000


def source(cfg, part=0, parts=1, position=None):
    """The chunks of one part of a corpus's texts, from a position on."""
    if cfg.source == 'docs':
        if parts > 1:
            raise ValueError('docs is too small for parts')
        return docs_source(position)
    if cfg.source == 'folder':
        return folder_source(cfg, folder_files(cfg.path)[part::parts], position)
    return hub_source(cfg, part, parts, position)


def held_out(text, val_permille):
    """Whether a text is validation: decided by the text alone, so copies of it share their fate."""
    digest = hashlib.blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=8).digest()
    return int.from_bytes(digest, 'little') % 1000 < val_permille


def chunks(items):
    """Gather (text, held out, position, done) into chunks."""
    texts, characters = [], 0
    for text, held, position, done in items:
        texts.append((text, held))
        characters += len(text)
        if len(texts) == CHUNK or characters > CHUNK_CHARACTERS:
            yield texts, position, done
            texts, characters = [], 0
    if texts:
        yield texts, position, done


def docs_source(position):
    texts = [(text, split) for split, _, text in docs.documents() if split != 'test']
    start = position or 0
    return chunks((text, split == 'validation', k + 1, (k + 1) / len(texts))
                  for k, (text, split) in enumerate(texts) if k >= start)


def folder_files(path):
    root = Path(path)
    if not path or not root.exists():
        raise ValueError(f'path {path!r}: no such file or folder' if path else 'path: give --path, a file or folder of texts')
    everything = [root] if root.is_file() else sorted(file for file in root.rglob('*') if file.is_file())
    files = [file for file in everything if file.suffix in ('.txt', '.jsonl', '.parquet')]
    if not files:
        raise ValueError(f'{path}: no .txt, .jsonl or .parquet file there')
    if len(files) < len(everything):
        print(f'{path}: {len(everything) - len(files)} files of other kinds are left out', file=sys.stderr)
    return files


def folder_source(cfg, files, position):
    """Chunks of a list of files. A .txt file is one document; a position is (file's index, position in the file)."""
    sizes = [file.stat().st_size for file in files]
    before, total = np.cumsum([0, *sizes]), max(1, sum(sizes))
    first, inside = position or (0, 0)
    readers = {'.txt': read_txt, '.jsonl': read_jsonl, '.parquet': read_parquet}

    def items():
        for k in range(first, len(files)):
            read = readers[files[k].suffix]
            for text, after, share in read(files[k], cfg.column, inside if k == first else 0):
                text = clean(text, f'{files[k]}: column {cfg.column!r}')
                done = float(before[k] + share * sizes[k]) / total
                yield text, held_out(text, cfg.val_permille), (k, after), done
    return chunks(items())


def clean(text, where):
    """A text without byte order mark and carriage returns; ValueError if it is none."""
    if not isinstance(text, str):
        raise ValueError(f'{where} holds {str(text)[:50]!r} where text was expected')
    return text.removeprefix('\ufeff').replace('\r\n', '\n')


def read_txt(path, column, start):
    if start == 0:
        yield decode(path, path.read_bytes(), 0), 1, 1.0


def read_jsonl(path, column, start):
    size = max(1, path.stat().st_size)
    with path.open('rb') as file:
        file.seek(start)
        while line := file.readline():
            here, start = start, start + len(line)
            text = decode(path, line, here)
            if not text.strip():
                continue
            try:
                row = json.loads(text.removeprefix('\ufeff'))
            except ValueError:
                raise ValueError(f'{path}: the line at byte {here} is not valid JSON') from None
            if not isinstance(row, dict) or column not in row:
                raise ValueError(f'{path}: the line at byte {here} has no column {column!r}')
            yield row[column], start, start / size


def read_parquet(path, column, start):
    import pyarrow
    import pyarrow.parquet
    try:
        file = pyarrow.parquet.ParquetFile(path)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f'{path}: not a whole parquet file: {error}') from None
    if column not in file.schema_arrow.names:
        raise ValueError(f'{path}: has no column {column!r}, but {", ".join(file.schema_arrow.names)}')
    ends = np.cumsum([file.metadata.row_group(k).num_rows for k in range(file.num_row_groups)], dtype=int)
    group = int(np.searchsorted(ends, start, side='right'))
    row = int(ends[group - 1]) if group else 0
    for batch in file.iter_batches(CHUNK, row_groups=range(group, len(ends)), columns=[column]):
        for text in batch.column(0).to_pylist():
            row += 1
            if row > start:
                yield text, row, row / file.metadata.num_rows


def decode(path, content, offset):
    try:
        return content.decode('utf-8')
    except UnicodeDecodeError as error:
        raise ValueError(f'{path}: invalid UTF-8 at byte {offset + error.start}') from None


def hub_source(cfg, part, parts, position):
    """Chunks of a streamed Hugging Face dataset; parts share out its files."""
    import datasets
    try:
        dataset = datasets.load_dataset(cfg.path, cfg.subset or None, split=cfg.split, streaming=True)
    except (OSError, ValueError) as error:
        raise ValueError(f'cannot open the dataset {cfg.path} {cfg.subset}: {error}') from None
    if dataset.column_names and cfg.column not in dataset.column_names:
        raise ValueError(f'{cfg.path}: has no column {cfg.column!r}, but {", ".join(dataset.column_names)}')
    if parts > dataset.num_shards:
        raise ValueError(f'{cfg.path} has {dataset.num_shards} files: too few for {parts} parts')
    split = (dataset.info.splits or {}).get(cfg.split)
    total = split.num_examples / parts if split and split.num_examples else None
    dataset = dataset.select_columns([cfg.column]).shard(parts, part)
    count = 0
    if position:
        count = position['documents']
        dataset.load_state_dict(position['dataset'])
    for batch in dataset.iter(CHUNK):
        count += len(batch[cfg.column])
        texts = [clean(text, f'{cfg.path}: column {cfg.column!r}') for text in batch[cfg.column]]
        texts = [(text, held_out(text, cfg.val_permille)) for text in texts]
        yield texts, {'documents': count, 'dataset': dataset.state_dict()}, total and min(1.0, count / total)


# --------------------------------------------------------------------------------------------- preparation

def prepare(cfg, part=-1, parts=1):
    """Write the corpus, or one part of it. Without a part: every part that is missing, then join them."""
    if not -1 <= part < parts:
        raise ValueError(f'--part counts from 0 to --parts less one, which is {parts - 1}, not {part}')
    folder = Path(cfg.out)
    if (folder / 'meta.json').exists():
        if read_json(folder / 'meta.json')['settings'] != what_was_made(cfg):
            raise ValueError(f'{folder} holds a corpus made with other settings: remove it, or take another --out')
        for left in folder.glob('part_*'):  # of a join that was killed at its very end
            shutil.rmtree(left)
        print(f'{folder}: already prepared')
        return
    tokenizer = load_tokenizer(cfg.tokenizer)
    others = [path.name for path in folder.glob('part_*') if not path.name.endswith(f'_of_{parts:03d}')]
    if others:
        raise ValueError(f'{folder}: {others[0]} was begun with another --parts: keep to that, or remove it')
    for number in [part] if part >= 0 else range(parts):
        prepare_part(cfg, tokenizer, number, parts)
    if part < 0:
        with locked(folder):
            join(cfg, tokenizer, parts)


def what_was_made(cfg):
    """The settings that decide a corpus's content."""
    return {name: value for name, value in dataclasses.asdict(cfg).items() if name not in ('out', 'threads')}


def prepare_part(cfg, tokenizer, part, parts):
    """Tokenise one part into its own folder, or what is left of it."""
    begun = {'settings': what_was_made(cfg), 'tokenizer': tokenizer.fingerprint()}
    if cfg.source == 'folder':  # a position means something only among the same files
        files = [[str(file), file.stat().st_size] for file in folder_files(cfg.path)]
        begun['files'] = hashlib.sha256(json.dumps(files).encode()).hexdigest()
    dtype = np.uint16 if tokenizer.vocab_size <= 2 ** 16 else np.uint32
    writer = PartWriter(Path(cfg.out) / part_name(part, parts), begun, dtype)
    if writer.state['done']:
        return
    texts = source(cfg, part, parts, writer.state['position'])
    first = list(itertools.islice(texts, 1))  # a source that cannot be read leaves nothing on disk
    writer.folder.mkdir(parents=True, exist_ok=True)
    with locked(writer.folder):
        write_part(cfg, writer, itertools.chain(first, texts), tokenizer, part, parts)


def write_part(cfg, writer, texts, tokenizer, part, parts):
    from tqdm import tqdm  # pretraining does without

    def full():
        return cfg.max_tokens and writer.tokens * parts >= cfg.max_tokens
    began, tokens_began = time.monotonic(), writer.tokens
    label = cfg.out + (f' part {part} of {parts}' if parts > 1 else '')
    terminal = sys.stderr.isatty()
    with tqdm(total=1.0, desc=label, mininterval=0.2 if terminal else 30, ascii=not terminal,
              bar_format='{desc}: {percentage:3.0f}%|{bar:20}| {elapsed}<{remaining} {postfix}') as bar:
        chunks = encode_chunks(texts, tokenizer, cfg.threads)
        while not full() and (chunk := next(chunks, None)):
            train, val, position, done = chunk
            writer.add(train, val, position)
            speed = (writer.tokens - tokens_began) / (time.monotonic() - began)
            bar.set_postfix_str(f'{writer.documents:,} documents, {writer.tokens:,} tokens, {speed:,.0f} tokens/s',
                                refresh=False)
            if cfg.max_tokens:
                done = max(done or 0.0, min(1.0, writer.tokens * parts / cfg.max_tokens))
            bar.update(0 if done is None else done - bar.n)
            if writer.shard['tokens'] >= cfg.shard_tokens:
                writer.flush()
    writer.finish()


def part_name(part, parts):
    return f'part_{part:03d}_of_{parts:03d}'


class PartWriter:
    """The shards of one part. `progress.json` is renamed into place behind each, and says where to go on."""

    def __init__(self, folder, begun, dtype):
        self.folder, self.dtype = folder, dtype
        self.state = begun | {'shards': [], 'position': None, 'done': False}
        if (folder / 'progress.json').exists():
            self.state = read_json(folder / 'progress.json')
            if {name: self.state[name] for name in begun} != begun:
                raise ValueError(f'{folder} was begun with other settings or files: remove it, or take another --out')
        counts = ('documents', 'tokens', 'val_documents', 'val_tokens')
        self.documents, self.tokens = (sum(shard[a] + shard[b] for shard in self.state['shards'])
                                       for a, b in (counts[::2], counts[1::2]))
        self.begin_shard()

    def begin_shard(self):
        self.arrays = {'': [], 'val_': []}
        self.shard = {'documents': 0, 'tokens': 0, 'val_documents': 0, 'val_tokens': 0}

    def add(self, train, val, position):
        """The tokenised documents of a chunk, and the source's position behind them."""
        self.position = position
        for kind, arrays in (('', train), ('val_', val)):
            tokens = sum(map(len, arrays))
            self.arrays[kind] += arrays
            self.shard[kind + 'documents'] += len(arrays)
            self.shard[kind + 'tokens'] += tokens
            self.documents += len(arrays)
            self.tokens += tokens

    def flush(self):
        number = len(self.state['shards'])
        for kind, arrays in self.arrays.items():
            name = f'{kind or "tokens_"}{number:05d}.npy'
            self.shard[kind + 'sha256'] = save_array(self.folder / name, arrays, self.dtype) if arrays else None
        self.state['shards'].append(self.shard)
        self.state['position'] = self.position
        write_json(self.folder / 'progress.json', self.state)
        self.begin_shard()

    def finish(self):
        if self.shard['documents'] or self.shard['val_documents']:
            self.flush()
        self.state['done'] = True
        write_json(self.folder / 'progress.json', self.state)


def encode_chunks(texts, tokenizer, threads):
    """train arrays, validation arrays, position, done: of each chunk in order, tokenised by a pool of threads."""
    eos = np.array([tokenizer.ids['eos']], np.uint32)

    def encode(chunk):
        found = [], []
        for text, held in chunk:
            if text:
                found[held].append(np.concatenate([tokenizer.encode(text), eos]))
        return found

    threads = threads or os.cpu_count()
    with ThreadPoolExecutor(threads) as pool:
        waiting = deque()
        for chunk, position, done in texts:
            waiting.append((pool.submit(encode, chunk), position, done))
            if len(waiting) > 2 * threads:
                future, position, done = waiting.popleft()
                yield *future.result(), position, done
        for future, position, done in waiting:
            yield *future.result(), position, done


def join(cfg, tokenizer, parts):
    """Rename the parts' shards into one sequence, write meta.json, remove the parts; can be killed and repeated."""
    folder = Path(cfg.out)
    meta = {'settings': what_was_made(cfg), 'tokenizer': tokenizer.fingerprint(), 'vocab_size': tokenizer.vocab_size,
            **{f'{role}_token_id': i for role, i in tokenizer.ids.items()},
            'special_ids': sorted(tokenizer.specials.values()), 'tokens': 0, 'documents': 0, 'val_tokens': 0,
            'val_documents': 0, 'shards': [], 'val_shards': []}
    folders = [folder / part_name(part, parts) for part in range(parts)]
    for part in folders:
        for number, shard in enumerate(read_json(part / 'progress.json')['shards']):
            for kind, prefix in (('', 'tokens'), ('val_', 'val')):
                meta[kind + 'tokens'] += shard[kind + 'tokens']
                meta[kind + 'documents'] += shard[kind + 'documents']
                if shard[kind + 'tokens']:
                    listed = meta[kind + 'shards']
                    name = f'{prefix}_{len(listed):05d}.npy'
                    listed.append({'name': name} | {key: shard[kind + key] for key in ('tokens', 'sha256')})
                    written = part / f'{prefix}_{number:05d}.npy'
                    if written.exists():
                        written.rename(folder / name)
                    elif not (folder / name).exists():
                        raise ValueError(f'{written}: missing; remove {part} to prepare that part again')
    if not meta['tokens']:
        for part in folders:
            shutil.rmtree(part)
        raise ValueError(f'{cfg.path or cfg.source}: no training text there')
    hashes = [meta['tokenizer'], *(shard['sha256'] for shard in meta['shards'] + meta['val_shards'])]
    meta['fingerprint'] = hashlib.sha256(''.join(hashes).encode()).hexdigest()
    meta['unigram_loss'] = unigram_loss(folder, meta)
    tokenizer.save(folder)
    write_json(folder / 'meta.json', meta)
    for part in folders:
        shutil.rmtree(part)
    if not meta['val_tokens']:
        print(f'{folder}: nothing is held out, which training will want; a larger --val_permille than {cfg.val_permille} does',
              file=sys.stderr)
    print(f'{folder}: {meta["documents"]:,} documents, {meta["tokens"]:,} tokens; '
          f'held out {meta["val_documents"]:,} documents, {meta["val_tokens"]:,} tokens; '
          f'fingerprint {meta["fingerprint"][:12]}')


def unigram_loss(folder, meta, most=10_000_000):
    """Nats per held-out token of the training tokens' frequencies (add-one): what needs no context to reach."""
    if not meta['val_tokens']:
        return None
    train, val = (np.bincount(np.load(folder / name, mmap_mode='r')[:most], minlength=meta['vocab_size'])
                  for name in ('tokens_00000.npy', 'val_00000.npy'))
    return float(-(val * np.log((train + 1) / (train + 1).sum())).sum() / val.sum())


@contextlib.contextmanager
def locked(folder):
    """Refuse to go on where another process is at work. The lock goes with its process, whatever ends that."""
    import fcntl
    with open(folder / '.lock', 'w') as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f'{folder}: another process is writing there') from None
        yield


def save_array(path, arrays, dtype):
    """Write one .npy under a temporary name, sync, rename; its sha256."""
    temporary = path.with_name(f'.{path.name}.tmp')
    with temporary.open('wb') as file:
        np.save(file, np.concatenate(arrays).astype(dtype, copy=False))
        file.flush()
        os.fsync(file.fileno())
    digest = sha256(temporary)
    temporary.rename(path)
    sync(path.parent)
    return digest


def sync(path):
    """Have a file or folder on the disk, not only on its way there."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def sha256(path):
    with open(path, 'rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()


def write_json(path, content):
    """Whole or not at all: under a temporary name, synced, renamed."""
    temporary = Path(path).with_name(f'.{Path(path).name}.tmp')
    with temporary.open('w', encoding='utf-8') as file:
        json.dump(content, file, indent=1, ensure_ascii=False)
        file.write('\n')
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    sync(temporary.parent)


# ---------------------------------------------------------------------------------------------------- main

def train_tokenizer(cfg, vocab_size):
    """Learn a byte-level BPE vocabulary from the corpus's training texts and write it where `tokenizer` points."""
    if (Path(cfg.tokenizer) / 'tokenizer.json').exists():
        raise ValueError(f'{cfg.tokenizer}: holds a tokenizer already; take another folder with --tokenizer')
    from tokenizers import Regex, Tokenizer as Trained, models, pre_tokenizers, trainers
    trained = Trained(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3_PATTERN), 'isolated'),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    alphabet = byte_alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size - 3, initial_alphabet=list(alphabet), show_progress=False)
    trained.train_from_iterator((text for texts, _, _ in source(cfg) for text, held in texts if not held), trainer)
    ranks = {bytes(alphabet[character] for character in token): i for token, i in trained.get_vocab().items()}
    specials = {token: len(ranks) + k for k, token in enumerate((BOS, EOS, MASK))}
    Path(cfg.tokenizer).mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(LLAMA3_PATTERN, ranks, specials, {'bos': BOS, 'eos': EOS, 'pad': EOS, 'mask': MASK})
    tokenizer.save(cfg.tokenizer)
    print(f'{cfg.tokenizer}: {tokenizer.vocab_size:,} ids')


def main():
    cfg, actions = configs.parse(Settings, sys.argv[1:], part=-1, parts=1, verify=False, train_tokenizer=0)
    if actions['verify']:
        Corpus(cfg.out).verify()
    elif actions['train_tokenizer']:
        train_tokenizer(cfg, actions['train_tokenizer'])
    else:
        prepare(cfg, actions['part'], actions['parts'])


if __name__ == '__main__':
    configs.run(main)

"""Text to tokens on disk.

    python data.py configs/corpora/folder.py --path=texts --out=corpora/texts
    python data.py configs/corpora/fineweb_edu.py --part=3 --parts=16   # one machine of sixteen; then, once:
    python data.py configs/corpora/fineweb_edu.py --parts=16            # whatever is missing, and meta.json

A corpus is a folder: tokens_00000.npy, ... (a stream of documents, each followed by eos), val_00000.npy, ...
(held-out documents), the tokenizer, texts.json (the files that it was made of), and meta.json, written last.
A shard holds a file of the hub, or about a GB of files of your own."""
import contextlib
import functools
import hashlib
import itertools
import math
import os
import re
import sys
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from data import Corpus, in_order
from nanoencoder.files import (
    blame,
    changed_files,
    digest_of,
    locked,
    read_json,
    read_sealed,
    remove,
    sha256,
    sha256_of_text,
    whole,
    write_json,
    write_sealed,
)
from nanoencoder.settings import check, check_value, flat, may_change, setting
from nanoencoder.tables import json_rows, named_if_damaged, open_text
from nanoencoder.tokenizer import learn, load_tokenizer

CHUNK = 256             # documents that are tokenised at once
# A .txt of more than LONGEST characters is cut into documents of 16,000 to 32,000: at an empty line, else
# at a line's end or, if a line is longer than LONGEST, at spaces.
LONGEST = 1_000_000
CUT_CHARACTERS = 16_000
EMPTY_LINE = re.compile(r'\n\s*\n')
SENTENCE_END = re.compile(r'[^\w\s]\s*$', re.MULTILINE)     # a line's last character is no letter or number
AGAIN = 'prepare the corpus again'
NOTHING = {'tokens': 0, 'documents': 0, 'val_tokens': 0, 'val_documents': 0, 'shards': [], 'val_shards': [],
           'skipped': 0, 'unknown': 0}


@dataclass(frozen=True)
class Settings:
    source: str = setting('folder', choices=('folder', 'hub'))
    path: str = ''                  # a folder or a file, or several: "a, b"; or a dataset's name on the hub
    made_by: str = may_change('')  # the command that writes these texts, if they are missing
    subset: str = ''                # of a hub dataset, as sample-350BT
    split: str = 'train'            # of a hub dataset
    column: str = 'text'            # of .jsonl, .parquet and hub datasets
    # a document of a .txt: all of the file, or what stands between blank lines, as in BERT's form of a corpus
    txt: str = setting('file', choices=('file', 'blank_lines'))
    tokenizer: str = 'configs/corpora/docs'  # tokenizer.json (file, folder, hub id), tiktoken .model
    val_path: str = ''              # a folder or a file of held-out texts; empty: val_permille of `path`
    val_shuffled: bool = False      # texts of val_path are in the order of their hashes
    val_permille: int = setting(1, 1, 999)  # of documents are held out, by the text's hash
    # normalised: in Unicode's NFC, without white space at its ends; verbatim: as older corpora had it
    held_out_by: str = setting('normalised', choices=('normalised', 'verbatim'))  # the form that is hashed
    skip_bad: bool = False          # leave out files and rows that cannot be read, and count them
    shard_bytes: int = setting(2 ** 30, 1)  # of a folder's files, about, for a shard
    allow_unknown: bool = may_change(False)  # even if the tokenizer does not know a tenth of the texts
    max_tokens: int = setting(0, 0)  # stop after this many, shared over the parts; 0: all there are
    threads: int = may_change(0, 0)  # that tokenise; 0: one a core
    out: str = may_change('corpora/folder')  # the folder to write

    __post_init__ = check


ACTIONS = {'part': (-1, 'prepare this part alone, counted from 0'),
           'parts': (1, 'that share the input; without --part, do what is missing and join them', 1, 500),
           'verify': (False, 'compare each shard with its sha256 in meta.json'),
           'train_tokenizer': (0, 'learn this many ids and write them to --tokenizer', 260, 10 ** 7)}


def open_source(cfg, commit=''):
    """Find the texts. Returns (units, [(file, its size)], the commit of a dataset on the hub). Of a dataset
    the given commit is read, or else the one that the hub has for its name.

    A unit is what one shard to train on is written from, and one of held-out texts: a pair of a file of the
    hub, or a group of files, and files that are held out. The first unit has all files of val_path."""
    if not cfg.path:
        raise ValueError('path is empty; --path names the texts')
    if cfg.val_shuffled and not cfg.val_path:
        raise ValueError('val_shuffled is of the texts of val_path, which is empty')
    files = []
    if cfg.source == 'hub':
        parts, commit = hub_files(cfg, commit)
    else:
        files = text_files(cfg.path, cfg.made_by)
        if cfg.txt == 'file':
            tell_of_blank_lines(files)
        parts = groups_of(files, cfg.shard_bytes)
    units = [(part, []) for part in parts]
    if cfg.val_path:
        held_out_files = text_files(cfg.val_path, cfg.made_by)
        if {*files} & {*held_out_files}:
            raise ValueError(f'val_path {cfg.val_path} lies in path {cfg.path}: it needs a folder of its own')
        files = files + held_out_files
        units[0] = (parts[0], held_out_files)
    return units, files, commit


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
        yield text, by_hash and is_held_out(text, cfg.val_permille, cfg.held_out_by)


def hub_files(cfg, commit=''):
    """([(name, its rows)] of the files of a dataset on the hub, its commit). `path` may say which revision is
    meant, owner/name@revision."""
    import datasets
    from huggingface_hub import HfApi
    name, _, revision = cfg.path.partition('@')
    if not commit:  # asked for before any file is read, so that all files are of one
        with blame(f'{cfg.path}: the hub did not give it', Exception):
            commit = HfApi().dataset_info(name, revision=revision or None).sha
    dataset = datasets.load_dataset(
        name, cfg.subset or None, revision=commit, split=cfg.split, streaming=True)
    dataset = dataset.select_columns([cfg.column])
    files = [
        (f'{name} file {k}', dataset.shard(dataset.num_shards, k))
        for k in range(dataset.num_shards)]
    return files, commit


def groups_of(files, shard_bytes):
    """Group [(file, its size)] in order. The file that reaches a multiple of shard_bytes ends its group."""
    groups = {}
    start = 0
    for file, size in files:
        groups.setdefault(start // shard_bytes, []).append((file, size))
        start += size
    return [*groups.values()]


def is_held_out(text, val_permille, by='normalised'):
    """Whether a text, as `clean` leaves it, is validation. The text alone decides, so copies of it share
    their fate, also those with other line ends, in another Unicode form, or with more white space around
    them."""
    if by == 'normalised':
        text = unicodedata.normalize('NFC', text).strip()
    return hash_of(text) % 1000 < val_permille


def hash_of(text):
    """Hash a text to 64 bits; an error that stands for a text that cannot be read, by its message."""
    written = str(text).encode('utf-8', 'surrogatepass')
    digest = hashlib.blake2b(written, digest_size=8).digest()
    return int.from_bytes(digest, 'little')


def readable(documents, cfg):
    """Yield the documents that can be read. ValueError for one that cannot, unless skip_bad leaves it out."""
    for text, held in documents:
        if isinstance(text, str):
            yield text, held
        elif not cfg.skip_bad:
            raise ValueError(f'{text}; --skip_bad leaves such files and rows out')


def text_files(paths, made_by):
    """[(file, its size)] of the texts in folders or files, "a, b". Tells on stderr which other files are
    there."""
    files = []
    for root in paths.split(', '):
        texts, others = files_below(root)
        if not texts:
            advice = f'first run: {made_by}' if made_by else '--path names the texts'
            raise ValueError(f'{root}: no text there ({", ".join(READERS)}); {advice}')
        if others:
            print(f'{root}: {len(others):,} other files left out: {", ".join(others):.200}', file=sys.stderr)
        files += texts
    return files


def files_below(root):
    """([(file, its size)] of the texts in a folder, sorted, or of one file; names of other files there).
    Names that begin with a dot are not looked at."""
    root = Path(root)
    texts = []
    others = []
    for path in sorted([root, *root.rglob('*')]):
        within = path.relative_to(root)
        if any(name.startswith('.') for name in within.parts):
            continue
        if path.is_file() and reader_of_texts(path):
            texts.append((str(path), path.stat().st_size))
        elif path != root and (path.is_file() or path.is_symlink()):
            others.append(str(within))  # or a linked folder: it may lead back to one above
    return texts, others


def tell_of_blank_lines(files):
    """Tell on stderr if the largest .txt looks as if it had a sentence on each line, and a blank line after
    each document: then it should not be read as one document."""
    sizes = {name: size for name, size in files if reader_of_texts(Path(name)) is txt_texts}
    if not sizes:
        return
    largest = max(sizes, key=sizes.get)
    with contextlib.suppress(OSError, ValueError):      # who reads the texts will say it
        with open_text(Path(largest)) as file:
            beginning = file.read(1_000_000)
        blocks = EMPTY_LINE.split(beginning)
        num_lines = sum(block.count('\n') + 1 for block in blocks)
        sentences = len(SENTENCE_END.findall(beginning))
        if len(blocks) > 9 and num_lines > 1.5 * len(blocks) and sentences > 0.8 * num_lines:
            print(f'{largest}: looks like a sentence a line and a blank line between documents: '
                  '--txt=blank_lines reads it so, otherwise a .txt is one document', file=sys.stderr)


def reader_of_texts(path):
    """The function that reads a file's texts, by the end of its name; None if there is none."""
    name = path.name.lower().removesuffix('.gz')
    return READERS.get(Path(name).suffix)


def folder_texts(files, cfg):
    """Yield the texts of files, and ValueErrors."""
    for name, _ in files:
        read = reader_of_texts(Path(name))
        try:
            yield from read(Path(name), cfg)
        except ValueError as error:
            yield error


def texts_of(batches, where, cfg):
    """Yield the texts in a column of batches of rows, and ValueErrors. A row at a time would take longer."""
    columns = (batch[cfg.column] for batch in batches)
    for number, value in enumerate(itertools.chain.from_iterable(columns)):
        row = {cfg.column: value}
        yield checked_text(row, f'{where} row {number}', cfg)


def checked_text(row, where, cfg):
    text = row.get(cfg.column)
    if isinstance(text, str):
        return clean(text)
    return ValueError(f'{where}: has no text in column {cfg.column!r}: {row!r:.100}')


def clean(text):
    return text.removeprefix('\ufeff').replace('\r\n', '\n').replace('\r', '\n')


def txt_texts(path, cfg):
    with open_text(path) as file:
        text = file.read()
    documents = [text]
    if cfg.txt == 'blank_lines':
        documents = [block.strip('\n') for block in EMPTY_LINE.split(text)]
    for document in documents:
        long_form = document
        if cfg.held_out_by == 'normalised':     # copies in any Unicode form are cut at the same places
            long_form = unicodedata.normalize('NFC', document)
        if len(long_form) > LONGEST:
            yield from cut(long_form)
        else:
            yield document


def cut(text):
    """Cut a long text into documents of 16,000 to 32,000 characters, or up to the end of a line beyond them;
    in a line as long as a book before spaces, or anywhere where there are none for long."""
    start = 0
    line_end = 0    # of a line as long as a book
    while start < len(text):
        least = start + CUT_CHARACTERS
        most = least + CUT_CHARACTERS
        if start >= line_end:
            empty_line = EMPTY_LINE.search(text, least, most)
            end = empty_line.end() if empty_line else text.find('\n', most) + 1 or len(text)
            if end - start > LONGEST:
                line_end = end
        if start < line_end:
            # inside a line as long as a book: before a space
            space = text.find(' ', least, min(most, line_end))
            end = min(most, line_end) if space < 0 else space
        yield text[start:end]
        start = end


def jsonl_texts(path, cfg):
    for where, row in json_rows(path):
        yield row if isinstance(row, ValueError) else checked_text(row, where, cfg)


def parquet_texts(path, cfg):
    import pyarrow.parquet
    with named_if_damaged(path, ValueError):
        file = pyarrow.parquet.ParquetFile(path)
        columns = file.schema_arrow.names
        if cfg.column not in columns:
            yield ValueError(f'{path}: has no column {cfg.column!r}, but {", ".join(columns):.200}')
            return
        batches = file.iter_batches(CHUNK, columns=[cfg.column])
        yield from texts_of((batch.to_pydict() for batch in batches), path, cfg)


READERS = {'.txt': txt_texts, '.train': txt_texts, '.jsonl': jsonl_texts, '.parquet': parquet_texts}


def write_corpus(cfg, part=-1, parts=1):
    """Write the corpus, or one part of it. Without a part: every shard that is missing, then meta.json."""
    check_value('part', int, part, -1, parts - 1)
    folder = Path(cfg.out)
    numbers = [part] if part >= 0 else range(parts)
    with locked(*(folder / f'part_{number:03d}' for number in numbers)):
        written = [*folder.glob('.*.unit')]     # marks: one is written when a unit's shards are
        if (folder / 'meta.json').exists():
            not_compared = compare_finished(folder, cfg)
            print(f'{folder}: already prepared{not_compared}')
            for mark in written:    # a kill after meta.json left them
                remove(mark)
            return

        # a dataset of the hub may have changed since: what was begun stays at its commit
        commit_before = read_mark(written[0]).get('commit', '') if written else ''
        units, files, commit = open_source(cfg, commit_before)
        tokenizer = load_tokenizer(cfg.tokenizer)
        about = what_fixes(cfg, commit, tokenizer)
        digest = digest_of([about, files, parts])    # in a mark's name, for all that must stay the same
        marks = [folder / f'.{digest:.12}_{number:05d}.unit' for number in range(len(units))]
        if not {*written} <= {*marks}:
            raise ValueError(f'{folder} was begun with other settings, files or --parts: remove it')

        dtype = np.dtype('uint16' if tokenizer.vocab_size <= 2 ** 16 else 'uint32')
        eos = np.array([tokenizer.ids['eos']], dtype)
        encode = functools.partial(encoded, cfg, tokenizer, tokenizer.bulk(), eos)
        limit = cfg.max_tokens / parts or math.inf      # of a part
        for number in numbers:
            share = [*zip(marks, units)][number::parts]
            prepare_part(cfg, share, commit, encode, dtype, limit)
        if part < 0:
            counts = [read_mark(mark) for mark in marks if mark.exists()]   # a limit leaves units out
            join(cfg, tokenizer, about, files, counts)
            for mark in marks:
                remove(mark)


def what_fixes(cfg, commit, tokenizer):
    """Return what meta.json says of a corpus before a text is read: the settings, the commit of a dataset on
    the hub and the tokenizer that its tokens follow from."""
    about = {
        'settings': flat(cfg, decides=('results',)),
        'commit': commit,
        'tokenizer': tokenizer.fingerprint(),
        'vocab_size': tokenizer.vocab_size,
        'special_ids': sorted(tokenizer.special_ids),
        'unused_ids': tokenizer.unused_ids,
    }
    for role, token_id in tokenizer.ids.items():
        about[f'{role}_token_id'] = token_id
    return about


def compare_finished(folder, cfg):
    """ValueError if a corpus that is there already was made with other settings, of other texts or with
    another tokenizer. Returns what could not be compared, to be printed."""
    meta = read_meta(folder)
    advice = f'remove {folder}, or take another --out'
    settings = flat(cfg, decides=('results',))
    recorded = settings | meta['settings']   # an older one has fewer
    others = [name for name in settings if settings[name] != recorded[name]]
    if others:
        raise ValueError(f'{folder} holds a corpus of other settings ({", ".join(others)}): {advice}')
    # a hub id stays what it was, and may be out of reach
    if Path(cfg.tokenizer).exists() and load_tokenizer(cfg.tokenizer).fingerprint() != meta['tokenizer']:
        raise ValueError(f'{folder} was made with another tokenizer than {cfg.tokenizer} is now: {advice}')
    if 'texts' not in meta:
        return '; it is of an older version, which did not record its texts, so they were not compared'
    before = read_json(folder / 'texts.json')
    if digest_of_texts(before) != meta['texts']:
        raise ValueError(f'{folder}/texts.json: changed since it was written; {AGAIN}')

    roots = cfg.val_path.split(', ')
    if cfg.source == 'folder':
        roots += cfg.path.split(', ')
    names = set()
    for root in filter(None, roots):
        texts, _ = files_below(root)
        names |= {name for name, _ in texts}
    if before and not names:
        return '; its texts are no longer there to be compared, and training does not need them'
    added = sorted(names - before.keys())
    removed = sorted(before.keys() - names)
    read = {name: record for name, record in before.items() if record and name in names}
    now = records_of(read, read)
    edited = [name for name in read if now[name]['sha256'] != read[name]['sha256']]
    changed = added + removed + edited
    if changed:
        raise ValueError(f'{folder} was made of other texts: {len(added):,} files were added since, '
                         f'{len(removed):,} removed and {len(edited):,} edited, the first: {changed[0]}; '
                         f'{advice}')
    if now != read:     # copied or touched: next time they need not be read again
        with locked(folder / 'texts.json', wait=True):      # several parts may be asked for at once
            write_json(folder / 'texts.json', before | now)
    return ''


def records_of(names, before):
    """{file: {'size', 'time', 'sha256'}} of files as they are now.

    Nobody should wait for terabytes to be read to learn that nothing has changed. So the sha256 of a file
    that has the size and the time of its record in `before` is taken from there. The time is st_ctime, that
    of any change: programs that copy or unpack files cannot set it, as they set st_mtime."""
    def record_of(name):
        about = os.stat(name)
        record = {'size': about.st_size, 'time': about.st_ctime_ns}
        if name in before and record.items() <= before[name].items():
            return before[name]
        return record | {'sha256': sha256(name)}
    return dict(zip(names, in_order(record_of, names, 8, 16)))


def digest_of_texts(records):
    """What meta.json says of the texts: the same on each machine. It leaves out the times."""
    return digest_of({name: record and record['sha256'] for name, record in records.items()})


def encoded(cfg, tokenizer, ids_of, eos, documents):
    """Encode documents. Returns ([(prefix, tokens)] of those that can be read, errors of the others, how many
    tokens are unknown, the first text that they stand for). A prefix is that of the counts in meta.json: ''
    for documents to train on, 'val_' for held-out ones.

    A thread does this, so that a ValueError is raised where the tokens would be written: threads are ahead of
    --max_tokens, and a bad row behind it should matter to nobody."""
    rows = []
    num_unknown = 0
    first_unknown = ''
    for text, held in readable(documents, cfg):
        if text:
            prefix = 'val_' if held else ''
            ids = ids_of(text)
            rows.append((prefix, np.append(ids.astype(eos.dtype), eos)))
            unknown = tokenizer.count_unknown(text, ids)
            num_unknown += unknown
            if unknown and not first_unknown:
                first_unknown = tokenizer.first_unknown(text)
    errors = [text for text, _ in documents if isinstance(text, ValueError)]
    return rows, errors, num_unknown, first_unknown


def prepare_part(cfg, units, commit, encode, dtype, limit):
    """Write the units of one part that are missing, until there are `limit` tokens."""
    threads = cfg.threads or os.cpu_count()
    # disable=False, whatever TQDM_DISABLE says: bar.n counts what `limit` limits
    bar = tqdm(
        total=limit, unit=' tokens', unit_scale=True,
        mininterval=10,     # seconds
        disable=False)
    done = []
    with bar:
        for number, (mark, unit) in enumerate(units, 1):
            bar.set_description(f'{cfg.out}, {number} of {len(units)}')
            if mark.exists():
                counts = read_mark(mark)
                refuse_edited(counts['texts'], f'since {cfg.out} was begun; remove that')
                bar.update(counts['tokens'] + counts['val_tokens'])
                done.append(counts)
            elif bar.n < limit:
                texts = records_of(files_of_unit(unit, cfg), {})
                documents = documents_of(unit, cfg)
                chunks = iter(lambda: [*itertools.islice(documents, CHUNK)], [])
                results = in_order(encode, chunks, threads, 2 * threads)
                counts = write_unit(cfg, mark.stem[-5:], results, dtype, limit, bar)
                refuse_edited(texts, 'while it was read; run the same command again')
                done.append(counts)
                share_unknown(cfg, done)    # before hours are spent on the other units
                write_sealed(mark, counts | {'texts': texts, 'commit': commit})


def read_mark(mark):
    """Return what a unit's mark says: the counts for meta.json, the unit's texts, the commit."""
    return read_sealed(mark, 'remove it, and its shards are written again')


def share_unknown(cfg, counts):
    """Return (the share of unknown tokens in units, the first text that is unknown). ValueError above a
    tenth, unless allow_unknown is set: a model learns nothing from such texts."""
    tokens = 0      # without the eos of each document
    for unit in counts:
        tokens += unit['tokens'] + unit['val_tokens'] - unit['documents'] - unit['val_documents']
    unknown = sum(unit['unknown'] for unit in counts)
    share = unknown / max(1, tokens, unknown)   # bytes that are left out are no tokens: there may be more
    first = next((unit['first_unknown'] for unit in counts if unit['first_unknown']), '')
    if share > 0.1 and not cfg.allow_unknown:
        raise ValueError(f'{cfg.path}: --tokenizer={cfg.tokenizer} does not know {share:.2%} of the tokens, '
                         f'the first is {first!r:.80}: take a tokenizer that has learnt such texts, or '
                         '--allow_unknown')
    return share, first


def files_of_unit(unit, cfg):
    """The names of a unit's own files."""
    part, held_out_files = unit
    files = held_out_files if cfg.source == 'hub' else part + held_out_files
    return [name for name, _ in files]


def refuse_edited(records, when):
    """ValueError if a file is no longer what its record says."""
    now = records_of(records, records)
    for name, record in records.items():
        if now[name]['sha256'] != record['sha256']:
            raise ValueError(f'{name}: edited {when}')


def write_unit(cfg, number, results, dtype, limit, bar):
    """Write the shards of a unit. Returns what meta.json is to say of them."""
    counts = NOTHING | {'first_unknown': ''}
    paths = {'': Path(cfg.out, f'tokens_{number}.npy'), 'val_': Path(cfg.out, f'val_{number}.npy')}
    files = {}
    with contextlib.ExitStack() as stack:
        for prefix, path in paths.items():
            temporary = stack.enter_context(whole(path))
            file = stack.enter_context(temporary.open('wb'))
            file.write(bytes(128))  # for the .npy file's header, which says how many tokens follow
            files[prefix] = file
        for rows, errors, num_unknown, first_unknown in results:
            if bar.n >= limit:
                break
            if errors and not counts['skipped']:
                bar.write(f'{cfg.out}: skipped, the first: {errors[0]}', file=sys.stderr)
            counts['skipped'] += len(errors)
            counts['unknown'] += num_unknown
            counts['first_unknown'] = counts['first_unknown'] or first_unknown
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


def join(cfg, tokenizer, about, files, counts):
    """Write the tokenizer, texts.json and meta.json, which lists the shards of all units."""
    folder = Path(cfg.out)
    share, first = share_unknown(cfg, counts)
    meta = about.copy()
    texts = {name: None for name, _ in files}   # None: not read, as there were max_tokens before it
    for unit in counts:
        texts |= unit['texts']
    meta['texts'] = digest_of_texts(texts)
    for name, nothing in NOTHING.items():
        meta[name] = sum((unit[name] for unit in counts), nothing)
    if not meta['tokens']:
        raise ValueError(f'{cfg.path}: no training text there; remove {folder}')
    meta['fingerprint'] = corpus_fingerprint(meta)
    meta['unigram_loss'] = None
    if meta['val_tokens']:
        meta['unigram_loss'] = unigram_loss(folder, meta)
    else:
        print(f'{folder}: nothing is held out: see --val_permille and --val_path', file=sys.stderr)
    if share > 0.01:
        print(f'{folder}: warning: {cfg.tokenizer} does not know {share:.2%} of the tokens, the first is '
              f'{first!r:.80}; nothing can be learnt of them', file=sys.stderr)
    tokenizer.save(folder)
    write_json(folder / 'texts.json', texts)
    write_sealed(folder / 'meta.json', meta)
    print(f'{folder}: {meta["documents"]:,} documents of {meta["tokens"]:,} tokens; held out '
          f'{meta["val_documents"]:,} of {meta["val_tokens"]:,}; skipped {meta["skipped"]:,} bad files and '
          f'rows; {share:.2%} unknown tokens; fingerprint {meta["fingerprint"]:.12}')


def unigram_loss(folder, meta, without=()):
    """Return the loss of held-out tokens, in nats each, under the training tokens' frequencies (add-one).
    Only the first shard of either is read.

    without  ids that are not predicted, and so not counted"""
    counts = []
    for listed in 'shards', 'val_shards':
        path = folder / meta[listed][0]['name']
        tokens = np.load(path, mmap_mode='r')[:10_000_000]
        counts.append(np.bincount(tokens, minlength=meta['vocab_size']))
    train, val = np.delete(counts, without, axis=1)
    train += 1
    nats = -np.log(train / train.sum())
    return float((val * nats).sum() / max(1, val.sum()))


def corpus_fingerprint(meta):
    """sha256 of a corpus: of its tokenizer's fingerprint and its shards' sha256."""
    digests = [meta['tokenizer']]
    for shard in meta['shards'] + meta['val_shards']:
        digests.append(shard['sha256'])
    return sha256_of_text(''.join(digests))


def read_meta(folder):
    """Return what meta.json says of a corpus. ValueError if it has changed."""
    return read_sealed(Path(folder, 'meta.json'), AGAIN)


def open_sealed(folder):
    """The Corpus of a folder. ValueError if its meta.json or its tokenizer has changed. Its shards are not
    compared with their sha256."""
    if Path(folder, 'meta.json').exists():
        read_meta(folder)
    corpus = Corpus(folder)
    if load_tokenizer(str(folder)).fingerprint() != corpus.meta['tokenizer']:
        raise ValueError(f'{folder}/tokenizer.json: changed since it was written; {AGAIN}')
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
    units, _, _ = open_source(cfg)
    documents = (document for unit in units for document in documents_of(unit, cfg))
    texts = (text for text, held in readable(documents, cfg) if not held)
    tokenizer = learn(texts, vocab_size)
    tokenizer.save(cfg.tokenizer)
    print(f'{cfg.tokenizer}: {tokenizer.vocab_size:,} ids')

"""Text to tokens on disk: every document comes back; kills, threads and parts leave no trace in a corpus."""
import errno
import functools
import gzip
import itertools
import json
import multiprocessing
import os
import re
import shutil
import signal
import threading
import unicodedata
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet
import pytest
from tokenizers import Tokenizer as Library, models, normalizers, pre_tokenizers, processors

import data
from conftest import edit, refused
from nanoencoder import prepare, tables, tokenizer
from nanoencoder.files import locked, write_json, write_sealed
from nanoencoder.tokenizer import from_ranks, load_tokenizer

load_once = functools.cache(load_tokenizer)


@pytest.fixture(autouse=True)
def tokenizers_are_loaded_once(monkeypatch):
    monkeypatch.setattr(prepare, 'load_tokenizer', load_once)
    monkeypatch.setattr(tokenizer, 'nasty_texts', lambda: [])  # test_tokenizer.py has them


def jsonl(path, texts):
    path.write_text(''.join(json.dumps({'text': text}) + '\n' for text in texts))
    return path


def parquet(path, texts):
    rows = pyarrow.table({
        'id': ['x' for _ in texts],
        'text': texts})
    pyarrow.parquet.write_table(rows, path, row_group_size=100)
    return path


def several(folder, texts, make=jsonl, count=4):
    """A folder of files, of which each is to become a shard, that hold these texts in turn."""
    folder.mkdir(exist_ok=True)
    for k in range(count):
        make(folder / f'{k}.{make.__name__}', texts[k::count])
    return folder


def small(path, out, **changes):
    usual = {
        'path': str(path),
        'out': str(out),
        'val_permille': 100,
        'shard_bytes': 1}
    return prepare.Settings(**usual | changes)


def elsewhere(cfg, name, **changes):
    """The same settings, or some changed, of a corpus in a folder beside theirs."""
    return replace(cfg, out=str(Path(cfg.out).parent / name), **changes)


def prepared(cfg, part=-1, parts=1):
    """The Corpus of these settings, or None where only a part of it was prepared."""
    prepare.write_corpus(cfg, part, parts)
    if part < 0:
        return data.Corpus(cfg.out)


def documents(corpus, split='train'):
    tokenizer = load_once(corpus.meta['settings']['tokenizer'])
    arrays, _ = corpus.streams[split]
    ids = np.concatenate(arrays)
    ends = np.flatnonzero(ids == tokenizer.ids['eos']) + 1
    *pieces, rest = np.split(ids, ends)
    assert len(rest) == 0
    return [tokenizer.decode(piece[:-1]) for piece in pieces]


def content(folder):
    """Name and bytes of all files but locks."""
    return {path.name: path.read_bytes()
            for path in folder.iterdir()
            if path.suffix != '.lock'}


def made(tmp_path, texts, longest, make=jsonl, count=4, **changes):
    """(settings, content) of a corpus of this many texts in so many files."""
    lines = [
        f'line {k} ' + 'token ' * (k % longest)
        for k in range(texts)]
    folder = several(tmp_path / 'texts', lines, make, count)
    cfg = small(folder, tmp_path / 'whole', **changes)
    corpus = prepared(cfg)
    return cfg, content(corpus.folder)


def in_turn(texts):
    """Texts in the order of `several` files."""
    return [text for k in range(4) for text in texts[k::4]]


def split_of(texts, val_permille=100):
    """(texts to train on, held-out texts)"""
    held = [text for text in texts if prepare.is_held_out(text, val_permille)]
    return [text for text in texts if text not in held], held


def test_documents_end_with_eos_and_come_back_as_text(tmp_path):
    texts = [f'document {k} says <|end_of_text|> and 東京' for k in range(300)]
    cfg = small(several(tmp_path / 'texts', texts), tmp_path / 'many')
    many = prepared(cfg)
    single = prepared(elsewhere(cfg, 'single', shard_bytes=2 ** 30))
    assert load_once(str(many.folder)).fingerprint() == many.meta['tokenizer']  # a copy
    for corpus in (many, single):
        assert (documents(corpus), documents(corpus, 'validation')) == split_of(in_turn(texts))
    assert len(many.meta['shards']) == 4
    ids, = single.streams['train'][0]
    assert many.meta['tokens'] == len(ids)
    np.save(tmp_path / 'saved.npy', ids)  # the header that we write is numpy's
    assert (tmp_path / 'saved.npy').read_bytes() == (tmp_path / 'single/tokens_00000.npy').read_bytes()


def test_ids_beyond_two_bytes_and_ids_that_are_no_token(tmp_path):
    """256 bytes, all pairs of them, and a gap before the special tokens, of which mask_replace draws none."""
    single = [bytes([byte]) for byte in range(256)]
    pairs = [first + second for first in single for second in single]
    ranks = {token: i for i, token in enumerate(single + pairs)}
    from_ranks(ranks, {'<|endoftext|>': 65_799}).save(tmp_path / 'wide')
    texts = [f'zzz ÿÿ {k} 東京' for k in range(50)]
    cfg = small(jsonl(tmp_path / 'a.jsonl', texts), tmp_path / 'out', tokenizer=str(tmp_path / 'wide'))
    corpus = prepared(cfg)
    ids, = corpus.streams['train'][0]
    assert ids.dtype == np.uint32
    assert ids.max() == 65_799
    assert documents(corpus) == split_of(texts)[0]
    assert corpus.meta['unused_ids'] == [*range(65_792, 65_799)]
    assert corpus.ordinary_ids.tolist() == [*range(65_792)]


def test_bom_crlf_empty_and_huge_documents(tmp_path):
    huge = 'All work and no play. ' * 40_000
    spaces = ' ' * 1_500_000
    files = {
        'a.txt': '\ufeffone\r\ntwo\r\n',
        'b.txt': '',
        'c.jsonl': json.dumps({'text': 'a lone \ud83d surrogate'}) + '\n\n',
        'd.txt': huge,
        'e.jsonl': json.dumps({'text': spaces})}
    folder = tmp_path / 'texts'
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_bytes(text.encode())
    corpus = prepared(small(folder, tmp_path / 'out', val_permille=1))
    assert documents(corpus) == ['one\ntwo\n', 'a lone \ufffd surrogate', huge, spaces]


def test_held_out_texts_of_their_own(tmp_path):
    """All of them and no others. Files named one by one stay in order; max_tokens cuts off training."""
    texts = [f'text number {k} ' * 9 for k in range(600)]
    for k, name in enumerate(['c', 'a', 'held']):
        jsonl(tmp_path / f'{name}.jsonl', texts[k::3])
    cfg = small(f'{tmp_path}/c.jsonl, {tmp_path}/a.jsonl', tmp_path / 'out', shard_bytes=2 ** 30,
                val_path=f'{tmp_path}/held.jsonl')
    whole = prepared(cfg)
    limited = prepared(elsewhere(cfg, 'limited', max_tokens=12_000))
    for corpus in (whole, limited):
        assert documents(corpus, 'validation') == texts[2::3]
    assert documents(whole) == texts[::3] + texts[1::3]
    assert len(documents(limited)) < 400
    refused('lies in path', prepared, elsewhere(cfg, 'mixed', path=str(tmp_path)))


def test_held_out_texts_are_shuffled_by_their_hashes(tmp_path):
    """So that the first are of all files; the texts to train on stay."""
    for name in ('train', 'one', 'two'):
        jsonl(tmp_path / f'{name}.jsonl', [f'{name} {k} ' * 9 for k in range(100)])
    cfg = small(f'{tmp_path}/train.jsonl', tmp_path / 'out', shard_bytes=2 ** 30,
                val_path=f'{tmp_path}/one.jsonl, {tmp_path}/two.jsonl')
    plain = prepared(cfg)
    shuffled = prepared(elsewhere(cfg, 'shuffled', val_shuffled=True))
    held = documents(shuffled, 'validation')
    assert sorted(held) == sorted(documents(plain, 'validation'))
    assert 25 < sum(text.startswith('one') for text in held[:100]) < 75
    assert documents(shuffled) == documents(plain)
    without = elsewhere(cfg, 'none', val_path='', val_shuffled=True)
    refused('val_shuffled is of the texts of val_path', prepared, without)


def test_texts_that_are_missing_name_the_command_that_writes_them(tmp_path):
    there = jsonl(tmp_path / 'a.jsonl', ['text'])
    absent = small(f'{there}, {tmp_path}/b.jsonl', tmp_path / 'out', made_by='python write.py')
    refused('b.jsonl: no text there .*; first run: python write.py$', prepared, absent)
    refused('path is empty', prepared, replace(absent, path=''))


def cut(tmp_path, text, line_end='\r\n', **changes):
    """The documents of a .txt from Windows."""
    path = tmp_path / 'a.txt'
    written = '\ufeff' + text.replace('\n', line_end)
    path.write_bytes(written.encode())
    return list(prepare.txt_texts(path, prepare.Settings(**changes)))


@pytest.mark.parametrize('line', ['one two three ' * 150_000, '東' * 1_500_000])
def test_a_text_without_line_ends_is_cut_at_spaces_or_anywhere(tmp_path, line):
    text = 'short line\n' * 5 + line + '\nthe end\n'
    documents = cut(tmp_path, text)
    assert ''.join(documents) == text
    assert max(map(len, documents)) <= 32_000
    for document in documents[1:-1]:
        assert document.startswith((' ', '東'))


def test_a_long_text_is_cut_at_lines_which_stay_whole_up_to_a_million_characters(tmp_path):
    text = ''
    for k in range(300):
        text += f'{k} ' * (k ** 3 % 9_000)
        text += '\n' * (1 + k % 3)
    text += 'x ' * 400_000 + '\n'
    expected = []
    rest = text
    while rest:    # as every corpus was cut so far
        end = re.compile(r'\n\s*\n').search(rest, 16_000, 32_000) or re.compile('\n').search(rest, 32_000)
        document = rest[:end.end()] if end else rest
        expected.append(document)
        rest = rest[len(document):]
    assert cut(tmp_path, text) == expected
    assert 800_000 < max(map(len, expected)) < 1_000_000
    assert cut(tmp_path, text[:900_000]) == [text[:900_000]]


def test_copies_of_a_long_text_are_cut_at_the_same_places(tmp_path):
    """In NFC, in NFD, which has 2.2 M characters more, and with the line ends of old Macs."""
    text = ''.join('\u00e9t\u00e9 ' * (200 + k % 7) + '\n\n' for k in range(1_200))
    apart = unicodedata.normalize('NFD', text)
    assert len(text) < prepare.LONGEST < len(apart)
    assert cut(tmp_path, text) == [text]
    assert cut(tmp_path, apart) == [apart]      # what is not cut stays as it is written
    documents = cut(tmp_path, 2 * text)
    assert len(documents) > 100
    assert cut(tmp_path, 2 * apart) == cut(tmp_path, 2 * text, '\r') == documents
    older = cut(tmp_path, 2 * apart, held_out_by='verbatim')    # as corpora of older versions were cut
    assert ''.join(older) == 2 * apart
    assert [unicodedata.normalize('NFC', document) for document in older] != documents


def test_a_text_in_berts_form_is_named_and_read_as_documents(tmp_path, capsys):
    """A sentence a line, a blank line between documents. Prose with wrapped lines, or a paragraph a line, is
    not taken for it."""
    blocks = [f'Sentence one of {k}.\nSentence two of {k}!' for k in range(300)]
    path = tmp_path / 'wiki.txt'
    path.write_text('\n\n'.join(blocks[:150]) + '\n \n\n' + '\n\n'.join(blocks[150:]) + '\n')
    prepared(small(path, tmp_path / 'one'))
    hint = 'wiki.txt: looks like a sentence a line and a blank line between documents: --txt=blank_lines'
    assert hint in capsys.readouterr().err
    corpus = prepared(small(path, tmp_path / 'many', txt='blank_lines'))
    assert (documents(corpus), documents(corpus, 'validation')) == split_of(blocks)
    assert 10 < corpus.meta['val_documents'] < 50
    wrapped = 'The first line of a paragraph is\nwrapped, and its last one\nends, as you see.\n\n'
    for number, prose in enumerate([wrapped * 90, 'A paragraph. It has a line.\n\n' * 90, 'A line.\n' * 90]):
        path.write_text(prose)
        prepared(small(path, tmp_path / f'prose_{number}'))
    assert 'looks like' not in capsys.readouterr().err


def test_a_vocabulary_is_learnt_and_by_the_same_command_after_a_kill(tmp_path, monkeypatch):
    jsonl(tmp_path / 'a.jsonl', [f'word{k % 50} and some more text' for k in range(2000)] + [5])
    cfg = small(tmp_path, tmp_path, tokenizer=str(tmp_path / 'new'), skip_bad=True)

    def dies(path, content, **layout):      # at the last of two files
        if path.name == 'tokenizer.json':
            raise KeyboardInterrupt
        write_json(path, content, **layout)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(tokenizer, 'write_json', dies)
        prepare.train_tokenizer(cfg, 300)
    prepare.train_tokenizer(cfg, 300)
    learnt = load_tokenizer(cfg.tokenizer)
    assert learnt.ids == {'bos': 297, 'eos': 298, 'pad': 298, 'mask': 299}
    assert len(learnt.encode(' some more text')) < 6
    refused('holds a tokenizer already', prepare.train_tokenizer, cfg, 300)


def test_a_folder_says_what_it_leaves_out_and_reads_what_is_packed(tmp_path, capsys):
    """Ends of names in capitals, .gz; nothing hidden, at any depth, but in a folder that is itself hidden."""
    folder = tmp_path / '.hidden' / 'texts'
    row = b'{"text": "a row"}\n'
    files = {
        'a.txt': b'plain',
        'B.TXT': b'capitals',
        'c.txt.gz': gzip.compress(b'packed'),
        'd/e.train.gz': gzip.compress(b'children'),
        'f.jsonl': row,
        'g.jsonl.gz': gzip.compress(row),
        'd/.cache/x/a.txt': b'hidden',
        '._a.txt': b'\xff',
        'README': b'left out',
        'd/note.md': b'left out'}
    for name, written in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(written)
    (folder / 'link').symlink_to(tmp_path)
    corpus = prepared(small(folder, tmp_path / 'out', val_permille=1, shard_bytes=2 ** 30))
    assert documents(corpus) == ['capitals', 'plain', 'packed', 'children', 'a row', 'a row']
    assert 'texts: 3 other files left out: README, d/note.md, link\n' in capsys.readouterr().err


TABLE = pyarrow.table({'text': ['seven', None, 'eight']})
HALF_PACKED = gzip.compress(b''.join(b'{"text": "six %d"}\n' % k for k in range(9_999)))[:9_999]
BAD = {     # name: (what is written, message, the rows read in spite of it)
    'b.jsonl': (b'{"text": "one"}\n{"text": \n', 'b.jsonl:2: is no JSON object: Expecting value', ['one']),
    'c.jsonl': (b'\n["three"]\n{"text": "two"}', 'c.jsonl:2: is no JSON object', ['two']),
    'cc.jsonl': (b'{"a": ' * 5000 + b'\n{"text": "three"}', 'cc.jsonl:1: is no JSON object', ['three']),
    'd.jsonl': (b'{"body": "x"}', "d.jsonl:1: has no text in column 'text': {'body': 'x'}", []),
    'e.jsonl': (b'{"text": "four"}\n{"text": "caf\xe9s"}\n{"text": "five"}',
                'e.jsonl:2: is not UTF-8 from byte 30 of .*iconv -f WINDOWS-1252', ['four', 'five']),
    'f.txt': (b'good\ncaf\xe9s\n', 'f.txt:2: is not UTF-8 from byte 8 of .*iconv -f WINDOWS-1252', []),
    'g.txt.gz': (gzip.compress('good'.encode('utf-16')), 'g.txt.gz:1: .*gunzip .*iconv -f UTF-16 ', []),
    'g.jsonl.gz': (HALF_PACKED, 'g.jsonl.gz: .* end-of-stream marker', []),
    'h.txt.gz': (b'no gzip', 'h.txt.gz: damaged or cut off: Not a gzipped file', []),
    'i.parquet': (TABLE, "i.parquet row 1: has no text in column 'text'", ['seven', 'eight']),
    'j.parquet': (TABLE.rename_columns(['body']), "j.parquet: has no column 'text', but body", []),
    'k.parquet': (b'PAR1 cut', 'k.parquet: damaged or cut off: Parquet magic bytes not found', [])}


def test_bad_files_and_rows_are_named_or_skipped_and_counted(tmp_path, capsys):
    folder = tmp_path / 'texts'
    folder.mkdir()
    for name, (written, words, _) in BAD.items():
        if isinstance(written, bytes):
            (folder / name).write_bytes(written)
        else:
            pyarrow.parquet.write_table(written, folder / name)
        cfg = small(folder / name, tmp_path / 'out', val_permille=1)
        refused(f'{words}.*; --skip_bad leaves such', prepared, cfg)
        assert not list((tmp_path / 'out').glob('[!.]*'))
    skipping = small(folder, tmp_path / 'skipped', val_permille=1, shard_bytes=2 ** 30, skip_bad=True)
    corpus = prepared(skipping)
    expected = [text for _, _, texts in BAD.values() for text in texts]
    assert [text for text in documents(corpus) if text[:3] != 'six'] == expected
    assert corpus.meta['skipped'] == len(BAD)
    assert re.search(r'skipped, the first: .*b.jsonl:2: is no JSON', capsys.readouterr().err)
    refused(r'other settings \(skip_bad\)', prepared, replace(skipping, skip_bad=False))


@pytest.mark.parametrize('name, message', [
    ('notes.md', r'no text there \(.txt, .*\); --path names'), ('a.txt', 'no training text')])
def test_no_text_at_all_is_one_line_and_no_corpus(tmp_path, name, message):
    (tmp_path / name).write_bytes(b'')
    out = tmp_path / 'out'
    refused(message, prepared, small(tmp_path, out))
    assert not list(out.glob('[!.]*'))


@pytest.mark.parametrize('threads', [1, 16])
def test_a_bad_row_counts_where_it_is_read_and_none_behind_max_tokens_does(tmp_path, threads):
    """However many threads read ahead."""
    texts = [f'document {k} ' * 9 for k in range(4_000)]
    late = jsonl(tmp_path / 'late.jsonl', [*texts[:3_000], None])
    cfg = small(late, tmp_path / 'late', threads=threads, max_tokens=20_000)
    assert prepared(cfg).meta['documents'] < 2_000
    refused('late.jsonl:3001: has no text', prepared, elsewhere(cfg, 'all', max_tokens=0))
    texts[::50] = [None] * 80
    gaps = jsonl(tmp_path / 'gaps.jsonl', texts)
    skipping = elsewhere(cfg, 'gaps', path=str(gaps), skip_bad=True)
    assert prepared(skipping).meta['skipped'] == 11


def test_a_disk_that_fails_is_no_bad_file(tmp_path, monkeypatch):
    def fails(path):
        raise OSError(errno.EIO, 'Input/output error')
    monkeypatch.setattr(tables, 'unpacked', fails)
    texts = jsonl(tmp_path / 'a.jsonl', ['text'])
    cfg = small(texts, tmp_path / 'out', skip_bad=True)
    with pytest.raises(OSError, match='Input/output error'):
        prepared(cfg)


@pytest.mark.parametrize('by, least, most', [('normalised', 0, 0), ('verbatim', 50, 64)])
def test_copies_of_a_document_are_held_out_alike(by, least, most):
    """Line ends, a last newline, white space around it and Unicode's forms make no other document of it."""
    texts = [f'{k}\u0308: na\xefve,\nE\u0301mile\n' for k in range(64)]
    torn = 0
    for text in texts:
        copies = [
            text,
            text.replace('\n', '\r\n'),
            text.replace('\n', '\r'),
            text.rstrip('\n'),
            f'  {text}\n',
            f'\ufeff{text}',
            unicodedata.normalize('NFD', text),
            unicodedata.normalize('NFC', text)]
        sides = {prepare.is_held_out(prepare.clean(copy), 500, by) for copy in copies}
        torn += len(sides) == 2
    assert least <= torn <= most
    assert 16 < sum(prepare.is_held_out(text, 500, by) for text in texts) < 48


def killed(cfg, n):
    """Prepare in a process that kills itself before the n-th file is whole. False if there are fewer."""
    prepare.tqdm.set_lock(threading.RLock())    # a kill may leave the processes' one locked

    def run():
        count = itertools.count()

        def dies(function, *arguments):
            if next(count) == n:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments)
        for name in ('write_json', 'write_sealed', 'write_unit', 'sha256'):
            setattr(prepare, name, functools.partial(dies, getattr(prepare, name)))
        prepared(cfg)
    process = multiprocessing.get_context('fork').Process(target=run)
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode < 0


def test_kill_9_before_any_file_leaves_no_trace(tmp_path):
    cfg, expected = made(tmp_path, 900, 30, count=2, threads=2)
    assert {'tokens_00001.npy', 'val_00001.npy', 'meta.json'} < set(expected)
    for n in itertools.count():
        cfg = elsewhere(cfg, f'killed_{n}')
        if not killed(cfg, n):
            break
        assert not (tmp_path / f'killed_{n}/meta.json').exists()
        killed(cfg, n)  # and again, of what was left
        assert content(prepared(cfg).folder) == expected
    assert n > 8


def test_a_limit_of_tokens_stays_where_it_is(tmp_path, monkeypatch):
    texts = [f'text number {k} ' * 9 for k in range(2000)]
    folder = several(tmp_path / 'texts', texts, count=8)
    cfg = small(folder, tmp_path / 'whole', max_tokens=30_000, threads=1)
    with monkeypatch.context() as patched:
        patched.setattr(prepare, 'tqdm', functools.partial(prepare.tqdm, disable=True))     # TQDM_DISABLE=1
        whole = prepared(cfg).meta
    assert 30_000 <= whole['tokens'] + whole['val_tokens'] < 60_000
    assert 1 < len(whole['shards']) < 8
    again = elsewhere(cfg, 'killed')
    assert killed(again, 4)
    assert prepared(again).meta == whole
    parts = prepared(elsewhere(cfg, 'parts'), -1, 4).meta
    assert len(parts['shards']) == 4
    assert 30_000 <= parts['tokens'] + parts['val_tokens'] < 80_000


def test_parts_join_to_the_same_corpus(tmp_path):
    """Prepared whole, and in three parts; each is of one process alone."""
    cfg, expected = made(tmp_path, 2_100, 9, parquet, 7, threads=1)
    cfg = elsewhere(cfg, 'parts')
    with locked(tmp_path / 'parts/part_001'):
        for part in (1, -1):
            with pytest.raises(BlockingIOError, match='another process is writing there'):
                prepared(cfg, part, 3)
        for part in (2, 0):
            prepared(cfg, part, 3)
    assert not (tmp_path / 'parts' / 'meta.json').exists()
    refused('begun with other settings, files or --parts', prepared, cfg, 0, 2)
    assert content(prepared(cfg, -1, 3).folder) == expected  # does part 1 and joins


def test_a_file_of_the_hub_is_a_shard_of_one_commit(tmp_path, monkeypatch):
    """The streaming code, over local parquet instead of the hub. What was begun stays at the commit that it
    had then, which meta.json says."""
    import datasets
    load = datasets.load_dataset
    texts = [f'row {k}' for k in range(2_800)]
    folder = several(tmp_path / 'texts', texts, parquet)
    hub = {'v2': 'c' * 40, None: 'd' * 40}
    asked = []

    def load_local(path, subset, revision, split, streaming):
        asked.append((path, revision))
        return load(
            'parquet',
            data_files={split: f'{folder}/*'},
            split=split,
            streaming=streaming)
    monkeypatch.setattr(datasets, 'load_dataset', load_local)
    monkeypatch.setattr('huggingface_hub.HfApi.dataset_info',
                        lambda api, path, revision: SimpleNamespace(sha=hub[revision]))
    cfg = prepare.Settings(source='hub', path='owner/name@v2', val_permille=10, out=str(tmp_path / 'out'))
    assert killed(cfg, 6)
    hub['v2'] = 'e' * 40
    corpus = prepared(cfg)
    assert documents(corpus) == split_of(in_turn(texts), 10)[0]
    assert len(corpus.meta['shards']) == 4
    assert corpus.meta['commit'] == 'c' * 40
    other = elsewhere(cfg, 'other', path='owner/name')
    assert prepared(other).meta['commit'] == 'd' * 40
    assert asked == [('owner/name', 'c' * 40), ('owner/name', 'd' * 40)]
    refused("'body'", prepared, elsewhere(cfg, 'body', column='body'))
    del hub[None]
    prepared(other)     # what is finished needs no hub
    refused('owner/unknown: the hub did not give it', prepared, elsewhere(other, 'new', path='owner/unknown'))


def word_pieces(folder):
    """A BERT tokenizer that knows a letter."""
    vocabulary = {token: i for i, token in enumerate(['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'a'])}
    library = Library(models.WordPiece(vocabulary, unk_token='[UNK]'))
    library.normalizer = normalizers.BertNormalizer()
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.add_special_tokens([*vocabulary][:5])
    library.post_processor = processors.BertProcessing(('[SEP]', 3), ('[CLS]', 2))
    library.save(str(folder / 'tokenizer.json'))


def bytes_of_ascii(folder):
    """A byte-level tokenizer without tokens for the other bytes, as one that was trained on English alone."""
    from_ranks({bytes([byte]): byte for byte in range(256)}, {'<|endoftext|>': 256}).save(folder)
    spec = json.loads((folder / 'tokenizer.json').read_text())
    for byte in range(128, 256):
        del spec['model']['vocab'][tokenizer.ALPHABET[byte]]
    write_json(folder / 'tokenizer.json', spec)


@pytest.mark.parametrize('write, shares', [
    (word_pieces, ['0.50%', '2.91%', '16.67%']),  # 5 of 1,005, 30 of 1,030, 200 of 1,200 words
    (bytes_of_ascii, ['0.75%', '4.43%', '27.27%'])])  # three bytes a word; spaces are tokens: 600 for 2,200
def test_unknown_tokens_are_counted_warned_of_and_refused(tmp_path, capsys, write, shares):
    """[UNK] of an encoder's vocabulary, and bytes that a byte-level one leaves out."""
    folder = tmp_path / 'vocabulary'
    folder.mkdir()
    write(folder)
    for unknown, share in zip([5, 30, 200], shares):
        path = tmp_path / f'{unknown}.txt'
        path.write_text('a ' * 1_000 + 'ベ ' * unknown)
        cfg = small(path, tmp_path / f'out_{unknown}', tokenizer=str(folder), val_permille=1)
        if unknown == 200:
            refused(f"--tokenizer={folder} does not know {share} of the tokens, the first is 'ベ': .*"
                    '--allow_unknown', prepared, cfg)
            assert not list(Path(cfg.out).glob('.*.unit'))      # another tokenizer may be tried there
            cfg = replace(cfg, allow_unknown=True)
        prepared(cfg)
        said = capsys.readouterr()
        assert f'; {share} unknown tokens; fingerprint' in said.out.splitlines()[-1]
        assert (f'warning: {folder} does not know {share} of the tokens' in said.err) == (unknown > 5)


def test_a_corpus_is_not_mixed_or_overwritten(tmp_path, capsys):
    cfg, _ = made(tmp_path, 1_000, 9)
    cfg = elsewhere(cfg, 'out')
    other = replace(cfg, held_out_by='verbatim')
    assert killed(cfg, 9)
    added = jsonl(tmp_path / 'texts' / '0a.jsonl', ['sorts between'])
    refused('begun with other settings, files', prepared, cfg)
    added.unlink()
    refused('begun with other settings, files', prepared, other)
    meta = prepared(cfg).meta
    before = content(tmp_path / 'out')
    (tmp_path / 'out/.0123456789ab_00000.unit').touch()     # as a kill after meta.json leaves it
    prepared(replace(cfg, threads=3))
    assert 'already prepared' in capsys.readouterr().out
    refused(r'other settings \(held_out_by\)', prepared, other)
    assert content(tmp_path / 'out') == before

    # a corpus of 0.1.0, in which texts were not recorded, or one from before this setting, is kept
    del meta['settings']['held_out_by']
    del meta['texts']
    del meta['digest']
    write_sealed(tmp_path / 'out/meta.json', meta)
    (tmp_path / 'out/texts.json').unlink()
    prepared(other)
    assert 'already prepared; it is of an older version' in capsys.readouterr().out


def edit_at_equal_size(path):
    content = path.read_bytes()
    path.write_bytes(content.replace(b'token', b'taken'))
    os.utime(path, ns=(0, 0))     # as an unpacked archive has it


def test_a_file_that_is_edited_while_a_corpus_is_begun_is_named(tmp_path, monkeypatch):
    """Of the same size: between two starts, or while it is read. Copies of the same content go on."""
    cfg, expected = made(tmp_path, 900, 30, count=2, threads=1)
    cfg = elsewhere(cfg, 'out')
    edited = tmp_path / 'texts/0.jsonl'
    whole = edited.read_bytes()
    with monkeypatch.context() as patched:
        write_unit = prepare.write_unit

        def edits(*arguments):
            counts = write_unit(*arguments)
            edit_at_equal_size(edited)
            return counts
        patched.setattr(prepare, 'write_unit', edits)
        refused('0.jsonl: edited while it was read; run', prepared, cfg)
    edited.write_bytes(whole)
    assert killed(cfg, 5)
    assert len([*(tmp_path / 'out').glob('.*.unit')]) == 1
    edit_at_equal_size(edited)
    refused('0.jsonl: edited since .*out was begun; remove', prepared, cfg)
    edited.write_bytes(whole)
    assert content(prepared(cfg).folder).keys() == expected.keys()
    assert data.Corpus(cfg.out).meta['fingerprint'] == json.loads(expected['meta.json'])['fingerprint']


def test_a_corpus_of_other_texts_is_not_already_prepared(tmp_path, capsys, monkeypatch):
    """Files that were added, removed, edited, and a tokenizer's folder that was made anew."""
    vocabulary = tmp_path / 'vocabulary'
    load_once('configs/corpora/docs').save(vocabulary)
    monkeypatch.setattr(prepare, 'load_tokenizer', load_tokenizer)
    texts = several(tmp_path / 'texts', [f'token {k} ' * 9 for k in range(400)])
    held = several(tmp_path / 'held', ['a text'] * 4)
    cfg = small(texts, tmp_path / 'out', val_path=str(held), tokenizer=str(vocabulary))
    prepared(cfg)
    files = {path: path.read_bytes() for path in (*texts.iterdir(), *held.iterdir())}

    def change(path, content):
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
    for path, content, words in [
            (texts / '9.txt', b'more', '1 files were added since, 0 removed and 0 edited, .*9.txt'),
            (held / '3.jsonl', None, '0 files were added since, 1 removed and 0 edited, .*held/3.jsonl'),
            (texts / '2.jsonl', b'{"text": "less"}', ' 0 removed and 1 edited, .*2.jsonl; remove')]:
        change(path, content)
        refused(f'out was made of other texts: .*{words}', prepared, cfg)
        change(path, files.get(path))
    edit_at_equal_size(texts / '1.jsonl')
    refused('and 1 edited, the first: .*1.jsonl', prepared, cfg)
    change(texts / '1.jsonl', files[texts / '1.jsonl'])

    hashed = []
    sha256 = prepare.sha256

    def counted(path):
        hashed.append(Path(path).name)
        return sha256(path)
    monkeypatch.setattr(prepare, 'sha256', counted)
    capsys.readouterr()
    for _ in range(2):  # what has its content back is read once, and then known again
        prepared(cfg)
        assert capsys.readouterr().out == f'{cfg.out}: already prepared\n'
    assert sorted(hashed) == ['1.jsonl', '2.jsonl', '3.jsonl']

    edit(vocabulary / 'tokenizer.json', '(?i:', '(?:')
    refused('was made with another tokenizer than .*vocabulary is now: remove', prepared, cfg)
    shutil.rmtree(vocabulary)
    shutil.rmtree(texts)
    refused('0 files were added since, 4 removed', prepared, cfg)
    shutil.rmtree(held)
    texts.mkdir()
    (texts / 'other.jsonl').write_text('{"text": "none of those files"}')
    refused('1 files were added since, .* removed', prepared, cfg)
    shutil.rmtree(texts)
    prepared(cfg)
    assert 'already prepared; its texts are no longer there' in capsys.readouterr().out
    edit(tmp_path / 'out/texts.json', '0.jsonl', '9.jsonl')
    refused('texts.json: changed since it was written', prepared, cfg)

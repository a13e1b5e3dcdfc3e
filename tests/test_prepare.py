"""Text to tokens on disk: every document comes back; kills, threads and parts leave no trace in a corpus."""
import contextlib
import errno
import functools
import gzip
import itertools
import json
import multiprocessing
import os
import re
import resource
import signal
import time
import unicodedata
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet
import pytest

import data
from conftest import ROOT, arguments, one_line_error, refused, run_script
from nanoencoder import docs, prepare, tokenizer
from nanoencoder.files import locked
from nanoencoder.tokenizer import from_ranks, load_tokenizer

load_once = functools.cache(load_tokenizer)


@pytest.fixture(autouse=True)
def tokenizers_are_loaded_once(monkeypatch):
    monkeypatch.setattr(prepare, 'load_tokenizer', load_once)
    monkeypatch.setattr(tokenizer, 'nasty_texts', lambda: [])  # test_tokenizer.py has them


def jsonl(path, texts):
    path.write_text(''.join(json.dumps({'text': text}) + '\n' for text in texts))
    return path


def parquet(path, texts, group=100):
    rows = pyarrow.table({'id': ['x'] * len(texts), 'text': texts})
    pyarrow.parquet.write_table(rows, path, row_group_size=group)
    return path


def several(folder, texts, make=jsonl, count=4):
    """A folder of files, of which each is to become a shard, that hold these texts in turn."""
    folder.mkdir(exist_ok=True)
    for k in range(count):
        make(folder / f'{k}.{make.__name__}', texts[k::count])
    return folder


def small(path, out, **changes):
    usual = dict(source='folder', path=str(path), out=str(out), val_permille=100, shard_bytes=1)
    return prepare.Settings(**usual | changes)


def prepared(cfg, part=-1, parts=1):
    """The Corpus of these settings, or None where only a part of it was prepared."""
    prepare.prepare(cfg, part, parts)
    return data.Corpus(cfg.out) if part < 0 else None


def stream(corpus, split='train'):
    arrays, _ = corpus.streams[split]
    return np.concatenate(arrays) if arrays else np.array([], int)


def documents(corpus, split='train'):
    tokenizer = load_once(corpus.meta['settings']['tokenizer'])
    ids = stream(corpus, split)
    pieces = np.split(ids, np.flatnonzero(ids == tokenizer.ids['eos']) + 1)
    assert len(pieces[-1]) == 0  # behind the last eos
    return [tokenizer.decode(piece[:-1]) for piece in pieces[:-1]]


def content(folder):
    """Name and bytes of all files but locks."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith('.lock')}


def made(tmp_path, texts, longest, make=jsonl, count=4, **changes):
    """(settings, content) of a corpus of this many texts in so many files."""
    lines = [f'line {k} ' + 'token ' * (k % longest) for k in range(texts)]
    cfg = small(several(tmp_path / 'texts', lines, make, count), tmp_path / 'whole', **changes)
    return cfg, content(prepared(cfg).folder)


def test_documents_end_with_eos_and_come_back_as_text(tmp_path):
    texts = [f'document {k} says <|end_of_text|> and 東京' for k in range(300)]
    in_turn = [text for k in range(4) for text in texts[k::4]]
    cfg = small(several(tmp_path / 'texts', texts), tmp_path / 'many')
    many, single = prepared(cfg), prepared(replace(cfg, out=str(tmp_path / 'single'), shard_bytes=2 ** 30))
    assert load_once(str(many.folder)).fingerprint() == many.meta['tokenizer']  # a copy
    assert documents(many) == [text for text in in_turn if not prepare.held_out(text, 100)]
    assert documents(many, 'validation') == [text for text in in_turn if prepare.held_out(text, 100)]
    assert many.meta['documents'] == len(documents(many)) and many.meta['tokens'] == len(stream(many))
    assert len(many.meta['shards']) == 4 and len(single.meta['shards']) == 1
    ids = single.streams['train'][0][0]
    np.save(tmp_path / 'saved.npy', ids)  # the header that we write is numpy's
    assert (tmp_path / 'saved.npy').read_bytes() == (tmp_path / 'single/tokens_00000.npy').read_bytes()
    for k in range(many.num_stretches('train', 100)):  # stretches do not know about shards
        assert np.array_equal(many.stretch('train', k, 100), ids[100 * k:100 * (k + 1)])


def test_ids_beyond_two_bytes_without_a_real_vocabulary(tmp_path):
    """256 bytes and all pairs of them: 65,792 tokens."""
    ranks = {bytes([a]): a for a in range(256)}
    ranks |= {bytes([a, b]): 256 + 256 * a + b for a in range(256) for b in range(256)}
    from_ranks(ranks, {'<|endoftext|>': len(ranks)}).save(tmp_path / 'wide')
    texts = [f'zzz ÿÿ {k} 東京' for k in range(50)]
    cfg = small(jsonl(tmp_path / 'a.jsonl', texts), tmp_path / 'out', tokenizer=str(tmp_path / 'wide'))
    corpus = prepared(cfg)
    assert stream(corpus).dtype == np.uint32 and stream(corpus).max() == 65_792
    assert documents(corpus) == [text for text in texts if not prepare.held_out(text, 100)]


def test_bom_crlf_empty_and_huge_documents(tmp_path):
    huge, spaces = 'All work and no play. ' * 40_000, ' ' * 1_500_000
    files = {'a.txt': '\ufeffone\r\ntwo\r\n', 'b.txt': '', 'd.txt': huge,
             'c.jsonl': json.dumps({'text': 'a lone \ud83d surrogate'}) + '\n\n',
             'e.jsonl': json.dumps({'text': spaces})}
    (tmp_path / 'texts').mkdir()
    for name, text in files.items():
        (tmp_path / 'texts' / name).write_bytes(text.encode())
    corpus = prepared(small(tmp_path / 'texts', tmp_path / 'out', val_permille=1))
    assert documents(corpus) == ['one\ntwo\n', 'a lone \ufffd surrogate', huge, spaces]


def test_docs_are_held_out_by_file(tmp_path, monkeypatch):
    every = docs.documents()
    monkeypatch.setattr(docs, 'extracted', None)
    assert docs.documents() == every    # kept, for the tasks and the next corpus
    files = [{file for part, file, _ in every if part == split} for split in docs.SPLITS]
    assert all(files) and sum(map(len, files)) == len(set().union(*files))
    texts = [text for _, _, text in every]
    assert sum(map(len, texts)) > 8_000_000 and len(set(texts)) == len(texts)
    assert not any(line.lstrip().startswith('>>>') for text in texts for line in text.splitlines())
    assert any(file.startswith('torch/') and 'torch.matmul' in text and 'broadcast' in text
               for _, file, text in every)  # by add_docstr
    some = every[::40]
    monkeypatch.setattr(docs, 'documents', lambda: some)
    corpus = prepared(prepare.Settings(out=str(tmp_path / 'out')))
    for split in ('train', 'validation'):
        assert documents(corpus, split) == [text for s, _, text in some if s == split]


def test_one_long_txt_trains_and_validates(tmp_path):
    """It is cut at empty lines, and nothing is lost."""
    paragraphs = [f'Paragraph {k}. ' + 'It goes on. ' * (k % 30) + '\n' * (2 + k % 3) for k in range(2_000)]
    (tmp_path / 'book.txt').write_bytes(('\ufeff' + ''.join(paragraphs).replace('\n', '\r\n')).encode())
    cfg = small(tmp_path / 'book.txt', tmp_path / 'cut', cut_txt_above=100_000, val_permille=200)
    cut = list(prepare.folder_texts([tmp_path / 'book.txt'], cfg, prepare.Bad(skip=False)))
    assert ''.join(cut) == ''.join(paragraphs) and len(cut) > 10
    assert all(text.endswith('\n\n') and prepare.CUT_CHARACTERS <= len(text) < 17_000 for text in cut[:-1])
    corpus = prepared(cfg)
    held = len(documents(corpus, 'validation'))
    assert 0 < held < len(cut) / 4 and len(documents(corpus)) == len(cut) - held
    whole = replace(cfg, out=str(tmp_path / 'whole'), cut_txt_above=1_000_000)  # it is no longer than that
    assert (prepared(whole).meta['documents'], prepared(whole).meta['val_documents']) == (1, 0)


def test_a_text_without_line_ends_is_cut_too_and_others_as_ever(tmp_path):
    """Before spaces, or anywhere; lines of up to a million characters stay whole, as in earlier corpora."""
    words, solid = 'one two three ' * 150_000, '東' * 1_500_000
    lines = [f'{k} ' * (k ** 3 % 9_000) + '\n' * (1 + k % 3) for k in range(300)] + ['x ' * 400_000 + '\n']

    def documents_of(text, above=1_000_000):
        (tmp_path / 'a.txt').write_text(text)
        cfg = small(tmp_path, tmp_path, cut_txt_above=above)
        return list(prepare.folder_texts([tmp_path / 'a.txt'], cfg, prepare.Bad(skip=False)))
    for text in (words, solid, 'short line\n' * 5 + words + '\nthe end\n'):
        for above in (1_000_000, 100_000):
            cut = documents_of(text, above)
            assert ''.join(cut) == text and max(map(len, cut)) <= 32_000
    assert max(map(len, documents_of('x ' * 400_000, 100_000))) <= 32_000    # it is the setting that counts
    assert all(document.startswith(' ') for document in documents_of(words)[1:])
    assert max(map(len, documents_of(solid))) == 32_000
    expected, text, start = [], ''.join(lines), 0
    while start < len(text):    # as every corpus was cut so far
        end = (re.compile(r'\n\s*\n').search(text, start + 16_000, start + 32_000)
               or re.compile(r'\n').search(text, start + 32_000))
        expected.append(text[start:end.end() if end else len(text)])
        start += len(expected[-1])
    assert documents_of(text) == expected and 800_000 < max(map(len, expected)) < 1_000_000


def test_only_a_sample_of_characters_is_compared(tmp_path):
    """The slow tokenizer takes 180 bytes of memory for each character, and most of the time."""
    read = []

    def texts(length):
        for k in range(5_000):
            read.append(k)
            yield str(k % 10) * length, False
    for length, documents in ((10, 1_000), (2_000, 125), (10_000_000, 25)):
        read.clear()
        sample = prepare.sample_of(texts(length))
        assert len(sample) == len(read) == documents and sum(map(len, sample)) <= 250_000
        assert {*map(len, sample)} == {min(length, 10_000)}


def test_ids_that_are_no_token_are_written_down_and_never_drawn(tmp_path):
    """Some vocabularies have gaps: a random token of mask_replace is one that the tokenizer has."""
    spec = json.loads((ROOT / 'configs/corpora/docs/tokenizer.json').read_text())
    for token in spec['added_tokens']:
        token['id'] += 7
        spec['model']['vocab'][token['content']] += 7
    (tmp_path / 'gaps').mkdir()
    (tmp_path / 'gaps/tokenizer.json').write_text(json.dumps(spec))
    texts = [f'document {k} has words ' * 50 for k in range(200)]
    cfg = small(jsonl(tmp_path / 'a.jsonl', texts), tmp_path / 'out')
    assert 'unused_ids' not in prepared(cfg).meta
    corpus = prepared(replace(cfg, out=str(tmp_path / 'with'), tokenizer=str(tmp_path / 'gaps')))
    assert corpus.meta['unused_ids'] == [*range(4093, 4100)] and corpus.meta['vocab_size'] == 4_103
    assert corpus.ordinary_ids.tolist() == [*range(4093)]
    cfg = SimpleNamespace(mask_ratio=1.0, mask_replace=(0.0, 1.0, 0.0))
    inputs, _ = data.mlm(corpus.stretch('train', 0, 20_000), [20_000], np.random.default_rng(0), corpus,
                         cfg)
    drawn = {*inputs.tolist()} - {*corpus.meta['special_ids']}
    assert len(drawn) > 3_500 and max(drawn) < 4_093


def test_making_a_vocabulary(tmp_path):
    (tmp_path / 'a.txt').write_text(' '.join(f'word{k % 50} and some more text' for k in range(2000)))
    cfg = small(tmp_path / 'a.txt', tmp_path, tokenizer=str(tmp_path / 'new'))
    prepare.train_tokenizer(cfg, 300)
    tokenizer = load_tokenizer(str(tmp_path / 'new'))
    assert tokenizer.vocab_size == 300 and tokenizer.ids == {'bos': 297, 'eos': 298, 'pad': 298, 'mask': 299}
    assert len(tokenizer.encode(' some more text')) < 6
    refused('holds a tokenizer already', prepare.train_tokenizer, cfg, 300)


def test_a_vocabulary_whose_training_was_killed_is_made_by_the_same_command(tmp_path, monkeypatch):
    (tmp_path / 'a.txt').write_text(' '.join(f'word{k % 50} and some more text' for k in range(2000)))
    cfg = small(tmp_path / 'a.txt', tmp_path, tokenizer=str(tmp_path / 'new'))
    write_json, written = tokenizer.write_json, []

    def dies(path, content):    # between the two files
        if written:
            raise KeyboardInterrupt
        written.append(write_json(path, content))
    monkeypatch.setattr(tokenizer, 'write_json', dies)
    with pytest.raises(KeyboardInterrupt):
        prepare.train_tokenizer(cfg, 300)
    assert len(list((tmp_path / 'new').iterdir())) == 1
    monkeypatch.setattr(tokenizer, 'write_json', write_json)
    prepare.train_tokenizer(cfg, 300)
    prepare.train_tokenizer(replace(cfg, tokenizer=str(tmp_path / 'other')), 300)
    assert content(tmp_path / 'new') == content(tmp_path / 'other')


def test_a_folder_says_what_it_leaves_out_and_reads_what_is_packed(tmp_path, capsys):
    """Ends of names in capitals, .gz; nothing hidden, at any depth, but in a folder that is itself hidden."""
    folder, row = tmp_path / '.hidden' / 'texts', json.dumps({'text': 'a row'}).encode() + b'\n'
    files = {'a.txt': b'plain', 'B.TXT': b'capitals', 'c.txt.gz': gzip.compress(b'packed'),
             'd/e.train.gz': gzip.compress(b'children'), 'f.jsonl': row, 'g.jsonl.gz': gzip.compress(row),
             '.a.txt': b'hidden', '.git/a.txt': b'hidden', 'd/.cache/x/a.txt': b'hidden', '._a.txt': b'\xff'}
    others = ['README', 'array.json', 'd/note.md', 'packed.jsonl.bz2', 'table.csv', 'z.parquet.gz']
    for name, written in (files | dict.fromkeys(others, b'left out')).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(written)
    (tmp_path / 'elsewhere').mkdir()
    (folder / 'link').symlink_to(tmp_path / 'elsewhere')
    corpus = prepared(small(folder, tmp_path / 'out', val_permille=1, shard_bytes=2 ** 30))
    assert documents(corpus) == ['capitals', 'plain', 'packed', 'children', 'a row', 'a row']
    line, = (line for line in capsys.readouterr().err.splitlines() if 'left out' in line)
    assert 'texts: 7 left out' in line
    assert line.endswith(': README, array.json, d/note.md, link (a linked folder), packed.jsonl.bz2, ...')
    prepared(small(folder / 'f.jsonl', tmp_path / 'one', val_permille=1))
    assert 'left out' not in capsys.readouterr().err


def test_bad_files_and_rows_are_named_or_skipped_and_counted(tmp_path, capsys):
    folder = tmp_path / 'texts'
    folder.mkdir()
    rows = ['{"text": "one"}', '{"text": ', '', '{"text": ["two"]}', '["three"]', '{"body": "x", "n": 4}']
    (folder / 'b.jsonl').write_text('\n'.join([*rows, '{"text": "five"}']) + '\n')
    (folder / 'c.txt').write_bytes(b'good\nbad \xff\n')
    packed = gzip.compress(b''.join(b'{"text": "six %d"}\n' % k for k in range(9_999)))
    (folder / 'd.jsonl.gz').write_bytes(packed[:len(packed) // 2])
    table = pyarrow.table({'text': ['seven', None, 'eight']})
    pyarrow.parquet.write_table(table, folder / 'e.parquet')
    pyarrow.parquet.write_table(table.rename_columns(['body']), folder / 'f.parquet')
    pyarrow.parquet.write_table(pyarrow.table([['x'], ['y']], names=['text', 'text']), folder / 'g.parquet')
    cfg = small(folder, tmp_path / 'out', val_permille=1, shard_bytes=2 ** 30)
    refused('b.jsonl:2: is no JSON: .*; --skip_bad leaves such', prepared, cfg)
    for name, words in {'c.txt': "c.txt:2: 'utf-8' codec",
                        'd.jsonl.gz': 'd.jsonl.gz: .* end-of-stream marker',
                        'e.parquet': "e.parquet row 1: column 'text' holds None",
                        'f.parquet': "f.parquet: has no column 'text', but body",
                        'g.parquet': "g.parquet: has several columns 'text'"}.items():
        refused(words, prepared, replace(cfg, path=str(folder / name), out=str(tmp_path / name)))
    skipping = replace(cfg, skip_bad=True, out=str(tmp_path / 'skipped'))
    corpus = prepared(skipping)
    read = documents(corpus) + documents(corpus, 'validation')
    assert [text for text in read if text[:3] != 'six'] == ['one', 'five', 'seven', 'eight']
    assert corpus.meta['skipped'] == 4 + 1 + 1 + 1 + 2     # rows, a text, what is cut off, a row, files
    said = capsys.readouterr()
    assert 'skipped 9, the first ' in said.err and 'b.jsonl:2: is no JSON' in said.err
    assert 'skipped 9 bad files and rows' in said.out
    refused(r'other settings \(skip_bad\)', prepared, replace(skipping, skip_bad=False))


def test_rows_are_counted_as_skipped_where_they_are_read_and_not_where_they_are_fetched(tmp_path):
    """However many threads read ahead of where max_tokens ends."""
    jsonl(tmp_path / 'a.jsonl', [f'document {k} ' * 9 if k % 50 else None for k in range(9_000)])
    skipped = []
    for threads in (1, 16):
        cfg = small(tmp_path / 'a.jsonl', tmp_path / f'{threads}', threads=threads, max_tokens=20_000,
                    skip_bad=True)
        skipped.append(prepared(cfg).meta['skipped'])
    assert skipped[0] == skipped[1] > 0


def test_a_bad_row_behind_max_tokens_matters_to_no_thread(tmp_path):
    jsonl(tmp_path / 'a.jsonl', [f'document {k} ' * 9 for k in range(3_000)])
    with open(tmp_path / 'a.jsonl', 'a') as file:
        file.write('{')
    for threads in (1, 16):
        cfg = small(tmp_path / 'a.jsonl', tmp_path / f'{threads}', threads=threads, max_tokens=20_000)
        assert prepared(cfg).meta['documents'] < 2_000
    refused('a.jsonl:3001: is no JSON', prepared, small(tmp_path / 'a.jsonl', tmp_path / 'all', threads=16))


def test_a_disk_that_fails_is_no_bad_file(tmp_path, monkeypatch):
    (tmp_path / 'a.txt').write_text('text')

    def fails(path):
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
    monkeypatch.setattr(prepare, 'open_bytes', fails)
    with pytest.raises(OSError, match='Input/output error'):
        prepared(small(tmp_path / 'a.txt', tmp_path / 'out', skip_bad=True))


def test_copies_of_a_document_are_held_out_alike(tmp_path):
    """Line ends, a last newline, white space around it and Unicode's forms make no other document of it."""
    def sides(text, by):
        copies = [text, text.replace('\n', '\r\n'), text.rstrip('\n'), f'  {text}\n', f'\ufeff{text}',
                  unicodedata.normalize('NFD', text), unicodedata.normalize('NFC', text)]
        return {prepare.held_out(prepare.clean(copy), 500, by) for copy in copies}
    texts = [f'{k}\u0308: na\xefve,\nE\u0301mile\n' for k in range(64)]
    assert all(len(sides(text, 'normalised')) == 1 for text in texts)
    assert {min(sides(text, 'normalised')) for text in texts} == {False, True}
    assert sum(len(sides(text, 'verbatim')) == 2 for text in texts) > 50
    folder = several(tmp_path / 'texts', [*texts, *(text.strip() for text in texts)], count=1)
    corpus = prepared(small(folder, tmp_path / 'out', val_permille=500))
    train, held = ({text.strip() for text in documents(corpus, split)} for split in ('train', 'validation'))
    assert train and held and not train & held


def test_a_corpus_of_before_is_kept_but_not_continued_with_another_hash(tmp_path, capsys, killed_at):
    texts = [f'text number {k}\n' * 9 for k in range(1000)]
    cfg = small(several(tmp_path / 'texts', texts), tmp_path / 'out', held_out_by='verbatim')
    assert [text for text in texts if prepare.held_out(text, 100, 'verbatim')] != [
        text for text in texts if prepare.held_out(text, 100)]
    assert not killed_at(15, cfg)
    refused('begun with other settings', prepared, replace(cfg, held_out_by='normalised'))
    before = prepared(cfg).meta
    refused(r'other settings \(held_out_by\)', prepared, replace(cfg, held_out_by='normalised'))
    before['settings'] = {name: value for name, value in before['settings'].items()
                          if name not in ('held_out_by', 'skip_bad')}
    (tmp_path / 'out/meta.json').write_text(json.dumps(before))
    for by in ('verbatim', 'normalised'):
        prepared(replace(cfg, held_out_by=by))
        assert 'already prepared' in capsys.readouterr().out


@pytest.fixture
def killed_at(monkeypatch):
    """killed_at(n, cfg): prepare, and die before the n-th file is whole; True if there were fewer."""
    def run(n, cfg):
        count = itertools.count()

        def dies(function, *arguments):
            if next(count) == n:
                raise KeyboardInterrupt
            return function(*arguments)
        with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
            for name in ('write_json', 'write_sealed', 'write_unit', 'sha256'):
                patched.setattr(prepare, name, functools.partial(dies, getattr(prepare, name)))
            prepared(cfg)
            return True
        return False
    return run


@pytest.mark.parametrize('make', [jsonl, parquet])
def test_a_death_before_any_file_leaves_no_trace(tmp_path, killed_at, make):
    cfg, expected = made(tmp_path, 900, 30, make, 3, threads=1)
    assert {'tokens_00002.npy', 'val_00002.npy', 'meta.json'} < set(expected)
    for n in itertools.count():
        killed = replace(cfg, out=str(tmp_path / f'killed_{n}'))
        if finished := killed_at(n, killed):
            break
        killed_at(n, killed)  # and again, of what was left
        assert content(prepared(killed).folder) == expected
    assert finished and n > 12


def test_kill_9_leaves_no_trace(tmp_path):
    cfg, expected = made(tmp_path, 6_000, 50, count=20, threads=2)
    cfg = replace(cfg, out=str(tmp_path / 'killed'))
    prepare.tqdm.set_lock(prepare.tqdm.get_lock().th_lock)    # a kill may leave the processes' one locked
    for kills in range(3):
        process = multiprocessing.get_context('fork').Process(target=prepared, args=(cfg,))
        process.start()
        written = len(list((tmp_path / 'killed').glob('.*.unit')))
        while process.is_alive() and len(list((tmp_path / 'killed').glob('.*.unit'))) < written + 3:
            time.sleep(0.001)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL and not (tmp_path / 'killed' / 'meta.json').exists()
    assert content(prepared(cfg).folder) == expected


def test_a_limit_of_tokens_stays_where_it_is(tmp_path, killed_at, monkeypatch):
    monkeypatch.setattr(prepare, 'tqdm', functools.partial(prepare.tqdm, disable=True))     # TQDM_DISABLE=1
    texts = [f'text number {k} ' * 9 for k in range(2000)]
    folder = several(tmp_path / 'texts', texts, count=8)
    cfg = small(folder, tmp_path / 'whole', max_tokens=30_000, threads=1)
    whole = prepared(cfg).meta
    assert 30_000 <= whole['tokens'] + whole['val_tokens'] < 60_000
    assert 1 < len(whole['shards']) < 8
    killed = replace(cfg, out=str(tmp_path / 'killed'))
    assert not killed_at(4, killed) and prepared(killed).meta == whole
    parts = prepared(replace(cfg, out=str(tmp_path / 'parts'), max_tokens=20_000), -1, 4).meta
    assert len(parts['shards']) == 4 and 20_000 <= parts['tokens'] + parts['val_tokens'] < 80_000


def test_parts_join_to_the_same_corpus(tmp_path):
    """Prepared whole; in three parts, one after the other and all at once; each is of one process alone."""
    cfg, expected = made(tmp_path, 2_100, 9, parquet, 7, threads=1)
    cfg = replace(cfg, out=str(tmp_path / 'parts'))
    with locked(tmp_path / 'parts/part_001'):
        for part in (1, -1):
            with pytest.raises(BlockingIOError, match='another process is writing there'):
                prepared(cfg, part, 3)
        for part in (2, 0):
            prepared(cfg, part, 3)
    assert not (tmp_path / 'parts' / 'meta.json').exists()
    refused('begun with other settings, files or --parts', prepared, cfg, 0, 2)
    assert content(prepared(cfg, -1, 3).folder) == expected  # does part 1 and joins
    once = replace(cfg, out=str(tmp_path / 'once'))
    with multiprocessing.get_context('fork').Pool(3) as processes:
        processes.starmap(prepared, [(once, part, 3) for part in range(3)])
    assert content(prepared(once, -1, 3).folder) == expected


def test_a_file_of_the_hub_is_a_shard(tmp_path, monkeypatch):
    """The streaming code, over local parquet instead of the hub."""
    import datasets
    texts = [f'file {k} row {r}' for k in range(4) for r in range(700)]
    files = [str(parquet(tmp_path / f'{k}.parquet', texts[700 * k:][:700], 200)) for k in range(4)]
    load = datasets.load_dataset
    monkeypatch.setattr(datasets, 'load_dataset', lambda path, subset, split, streaming: load(
        'parquet', data_files={split: files}, split=split, streaming=streaming))
    cfg = prepare.Settings(source='hub', path='owner/name', val_permille=10, out=str(tmp_path / 'whole'))
    corpus = prepared(cfg)
    assert documents(corpus) == [text for text in texts if not prepare.held_out(text, 10)]
    assert len(corpus.meta['shards']) == 4
    parts = replace(cfg, out=str(tmp_path / 'parts'))
    prepared(parts, 1, 2)
    assert content(prepared(parts, -1, 2).folder) == content(corpus.folder)
    other = replace(cfg, out=str(tmp_path / 'other'), column='body')
    refused("cannot open the dataset owner/name .*'body'", prepared, other)


@pytest.mark.parametrize('name, written, message', [
    ('a.txt', b'good \xff bad', "a.txt:1: 'utf-8' codec can't decode byte 0xff in position 5"),
    ('a.jsonl', b'{"text": "x"}\n{"text": \n', 'a.jsonl:2: is no JSON'),
    ('a.jsonl', b'{"text": null}\n', "a.jsonl:1: column 'text' holds None, which is no text"),
    ('a.parquet', b'PAR1 cut short', 'a.parquet: not a whole parquet file: Parquet magic bytes not found'),
    ('a.txt.gz', b'no gzip', 'a.txt.gz: damaged or cut off: Not a gzipped file'),
    ('notes.md', b'x', 'no .txt, .txt.gz, .* file'),
    ('a.txt', b'', 'no training text')])
def test_bad_sources_get_one_line_and_no_corpus(tmp_path, name, written, message):
    (tmp_path / 'texts').mkdir()
    (tmp_path / 'texts' / name).write_bytes(written)
    refused(message, prepared, small(tmp_path / 'texts', tmp_path / 'out'))
    assert not list((tmp_path / 'out').glob('[!.]*'))


def test_a_corpus_is_not_mixed_or_overwritten(tmp_path, capsys, killed_at):
    cfg = small(several(tmp_path / 'texts', [f'text number {k} ' * 9 for k in range(1000)]), tmp_path / 'out')
    assert not killed_at(15, cfg) and list((tmp_path / 'out').glob('.*.unit'))
    other = replace(cfg, val_permille=5)
    refused('begun with other settings, files', prepared, other)
    added = jsonl(tmp_path / 'texts' / '0a.jsonl', ['sorts between'])
    refused('begun with other settings, files', prepared, cfg)
    added.unlink()
    prepared(cfg)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / 'out').iterdir()}
    prepared(replace(cfg, threads=3))
    assert 'already prepared' in capsys.readouterr().out
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / 'out').iterdir()}
    refused(r'other settings \(val_permille\)', prepared, other)


def test_a_full_disk_is_one_line_and_the_same_command_goes_on(tmp_path):
    cfg, expected = made(tmp_path, 6_000, 50, count=5)
    out, before = tmp_path / 'out', resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, before[1]))
        result = run_script('data.py', *arguments(cfg, without='out'), f'--out={out}')
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    one_line_error(result, '/out/.*: .*: make room, then run the same command')
    assert not list(out.glob('.*.tmp')) and not (out / 'meta.json').exists()
    assert content(prepared(replace(cfg, out=str(out))).folder) == expected

"""Text to tokens to batches: the tokenizer against Hugging Face's, corpora that survive anything, the law of a batch."""
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import data
from nanoencoder import docs
from conftest import ROOT, SHARED, one_line_error, run_script
from nanoencoder.tokenizer import BYTELEVEL_PATTERN, Tokenizer, load_tokenizer

DOCS_TOKENIZER = str(ROOT / 'configs/corpora/docs')
LLAMA3 = SHARED / 'tokenizer' / 'llama3.model'


def jsonl(path, texts):
    path.write_text(''.join(json.dumps({'text': text}) + '\n' for text in texts))
    return str(path)


def small(path, out, **changes):
    return data.Settings(**(dict(source='folder', path=str(path), out=str(out), val_permille=100) | changes))


def stream(folder, split='train'):
    arrays, _ = data.Corpus(folder).streams[split]
    return np.concatenate(arrays) if arrays else np.array([], int)


# -------------------------------------------------------------------------------------------------------- corpora

def test_ids_beyond_two_bytes_without_a_real_vocabulary(tmp_path):
    """256 bytes and all pairs of them: 65,792 tokens."""
    ranks = {bytes([a]): a for a in range(256)} | {bytes([a, b]): 256 + 256 * a + b for a in range(256) for b in range(256)}
    wide = Tokenizer(BYTELEVEL_PATTERN, ranks, {'<|endoftext|>': 65_792}, {'eos': '<|endoftext|>'})
    (tmp_path / 'wide').mkdir()
    wide.save(tmp_path / 'wide')
    texts = [f'zzz ÿÿ {k} 東京' for k in range(50)]
    data.prepare(small(jsonl(tmp_path / 'a.jsonl', texts), tmp_path / 'out', tokenizer=str(tmp_path / 'wide')))
    ids = stream(tmp_path / 'out')
    assert ids.dtype == np.uint32 and ids.max() == 65_792
    pieces = np.split(ids, np.flatnonzero(ids == 65_792) + 1)[:-1]
    assert [wide.decode(piece[:-1]) for piece in pieces] == [text for text in texts if not data.held_out(text, 100)]


def test_making_the_vocabulary_again(tmp_path):
    folder = tmp_path / 'texts'
    folder.mkdir()
    (folder / 'a.txt').write_text(' '.join(f'word{k % 50} and some more text' for k in range(2000)))
    result = run_script('data.py', 'configs/corpora/folder.py', f'--path={folder}', f'--tokenizer={tmp_path}/new', '--train_tokenizer=300')
    assert result.returncode == 0, result.stderr
    made = load_tokenizer(str(tmp_path / 'new'))
    assert made.vocab_size == 300 and made.ids == {'bos': 297, 'eos': 298, 'pad': 298, 'mask': 299}


# -------------------------------------------------------------------------------------------------------- corpora

def test_documents_end_with_eos_and_come_back_as_text(tmp_path):
    texts = [f'document {k} says <|end_of_text|> and 東京' for k in range(300)]
    data.prepare(small(jsonl(tmp_path / 'a.jsonl', texts), tmp_path / 'out', shard_tokens=1000))
    tokenizer = load_tokenizer(str(tmp_path / 'out'))
    found = {}
    for split in ('train', 'validation'):
        ids = stream(tmp_path / 'out', split)
        pieces = np.split(ids, np.flatnonzero(ids == tokenizer.ids['eos']) + 1)
        assert len(pieces[-1]) == 0
        found[split] = [tokenizer.decode(piece[:-1]) for piece in pieces[:-1]]
    assert found['train'] == [text for text in texts if not data.held_out(text, 100)]
    assert found['validation'] == [text for text in texts if data.held_out(text, 100)]
    data.Corpus(tmp_path / 'out').verify()
    data.prepare(small(tmp_path / 'a.jsonl', tmp_path / 'one'))
    many, one = data.Corpus(tmp_path / 'out'), data.Corpus(tmp_path / 'one')
    assert len(many.meta['shards']) > 1 and len(one.meta['shards']) == 1
    whole = one.streams['train'][0][0]
    for k in range(many.num_stretches('train', 100)):  # stretches do not know about shards
        assert np.array_equal(many.stretch('train', k, 100), whole[100 * k:100 * (k + 1)])


@pytest.mark.skipif(not LLAMA3.exists(), reason='no vocabulary')
def test_ids_above_65535_round_trip(tmp_path):
    text = 'Unquestionably, extraterrestrial 東京 Übergrößenträger Конституция résumé ' * 9
    data.prepare(small(jsonl(tmp_path / 'a.jsonl', [text, text + '.', text + '!'] * 3), tmp_path / 'out', tokenizer=str(LLAMA3), val_permille=1))
    ids = stream(tmp_path / 'out')
    assert ids.dtype == np.uint32 and (ids > 65_535).sum() > 9 and ids.max() == 128_001
    tokenizer = load_tokenizer(str(tmp_path / 'out'))
    assert tokenizer.decode(ids[:np.flatnonzero(ids == 128_001)[0]]) == text


def test_a_limit_of_tokens_stays_where_it_is(tmp_path, monkeypatch):
    """Also if death comes between the last shard and the note that the part is done."""
    path = jsonl(tmp_path / 'a.jsonl', [f'text number {k} ' * 9 for k in range(5000)])
    limited = dict(max_tokens=30_000, shard_tokens=10_000, threads=1)
    data.prepare(small(path, tmp_path / 'whole', **limited))
    with monkeypatch.context() as patched:
        patched.setattr(data.PartWriter, 'finish', lambda self: self.flush() or exec('raise KeyboardInterrupt'))
        with pytest.raises(KeyboardInterrupt):
            data.prepare(small(path, tmp_path / 'killed', **limited))
    data.prepare(small(path, tmp_path / 'killed', **limited))
    whole, killed = (data.Corpus(tmp_path / name).meta for name in ('whole', 'killed'))
    assert 30_000 <= whole['tokens'] + whole['val_tokens'] < 60_000
    assert [whole[name] for name in ('tokens', 'documents', 'val_tokens')] == [killed[name] for name in ('tokens', 'documents', 'val_tokens')]


def test_other_files_than_a_preparation_began_with_are_refused(tmp_path, monkeypatch):
    (tmp_path / 'texts').mkdir()
    jsonl(tmp_path / 'texts' / 'b.jsonl', [f'text number {k} ' * 9 for k in range(2000)])
    cfg = small(tmp_path / 'texts', tmp_path / 'out', shard_tokens=10_000)
    with monkeypatch.context() as patched:
        patched.setattr(data.PartWriter, 'finish', lambda self: exec('raise KeyboardInterrupt'))
        with pytest.raises(KeyboardInterrupt):
            data.prepare(cfg)
    jsonl(tmp_path / 'texts' / 'a.jsonl', ['sorts before'])
    with pytest.raises(ValueError, match='begun with other settings or files'):
        data.prepare(cfg)


def test_parquet_parts_join_to_the_same_documents(tmp_path):
    """FineWeb-Edu's schema on small local files, prepared whole and in three parts."""
    import pyarrow
    import pyarrow.parquet
    (tmp_path / 'data').mkdir()
    for k in range(7):
        rows = {'text': [f'file {k} row {r} ' + 'word ' * (r % 9) for r in range(600)], 'id': [f'<urn:uuid:{k}-{r}>' for r in range(600)],
                'dump': ['CC-MAIN-2024-10'] * 600, 'url': ['http://example.org'] * 600, 'file_path': ['s3://x'] * 600,
                'language': ['en'] * 600, 'language_score': [0.9] * 600, 'token_count': [5] * 600, 'score': [3.1] * 600, 'int_score': [3] * 600}
        pyarrow.parquet.write_table(pyarrow.table(rows), tmp_path / 'data' / f'{k:03d}_00000.parquet', row_group_size=100)
    cfg = small(tmp_path / 'data', tmp_path / 'whole', shard_tokens=10_000)
    data.prepare(cfg)
    for part in (2, 0):
        data.prepare(replace(cfg, out=str(tmp_path / 'parts')), part, 3)
    assert not (tmp_path / 'parts' / 'meta.json').exists()
    data.prepare(replace(cfg, out=str(tmp_path / 'parts')), -1, 3)  # does part 1 and joins

    def documents(folder):
        ids = stream(folder)
        return sorted(piece.tobytes() for piece in np.split(ids, np.flatnonzero(ids == 4094) + 1))
    assert documents(tmp_path / 'whole') == documents(tmp_path / 'parts')
    meta = data.Corpus(tmp_path / 'parts').meta
    assert meta['documents'] + meta['val_documents'] == 4200
    assert not list((tmp_path / 'parts').glob('part_*'))


def test_hub_source_continues_where_it_stopped(tmp_path, monkeypatch):
    """The streaming code, over local parquet instead of the hub."""
    import datasets
    import pyarrow
    import pyarrow.parquet
    for k in range(4):
        pyarrow.parquet.write_table(pyarrow.table({'text': [f'file {k} row {r}' for r in range(700)], 'id': ['x'] * 700}),
                                    tmp_path / f'{k}.parquet', row_group_size=200)
    load = datasets.load_dataset
    monkeypatch.setattr(datasets, 'load_dataset', lambda path, subset, split, streaming: load(
        'parquet', data_files={split: sorted(str(file) for file in tmp_path.glob('*.parquet'))}, split=split, streaming=streaming))
    cfg = data.Settings(source='hub', path='owner/name', val_permille=10)
    for part in range(2):
        whole = list(data.source(cfg, part, 2))
        texts = [text for chunk, _, _ in whole for text, _ in chunk]
        assert sorted(texts) == sorted(f'file {k} row {r}' for k in (2 * part, 2 * part + 1) for r in range(700))
        for k in (0, 2, len(whole) - 1):
            position = json.loads(json.dumps(whole[k][1]))
            rest = [text for chunk, _, _ in data.source(cfg, part, 2, position) for text, _ in chunk]
            assert rest == [text for chunk, _, _ in whole[k + 1:] for text, _ in chunk]
    with pytest.raises(ValueError, match='too few for 5 parts'):
        next(data.source(cfg, 0, 5))
    with pytest.raises(ValueError, match="no column 'body'"):
        next(data.source(replace(cfg, column='body')))


@pytest.mark.parametrize('kind', ['jsonl', 'parquet'])
def test_killed_preparation_goes_on_to_the_same_corpus(tmp_path, kind):
    texts = [f'line {k} ' + 'token ' * (k % 50) for k in range(20_000)]
    if kind == 'jsonl':
        path = jsonl(tmp_path / 'a.jsonl', texts)
    else:
        import pyarrow
        import pyarrow.parquet
        path = str(tmp_path / 'a.parquet')
        pyarrow.parquet.write_table(pyarrow.table({'text': texts}), path, row_group_size=1500)
    options = ['data.py', 'configs/corpora/folder.py', f'--path={path}', '--shard_tokens=15_000']
    assert run_script(*options, f'--out={tmp_path}/whole').returncode == 0
    for _ in range(3):
        process = subprocess.Popen([sys.executable, *options, f'--out={tmp_path}/killed'], cwd=ROOT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        shards = len(list((tmp_path / 'killed').glob('part_*/tokens_*.npy')))
        while process.poll() is None and len(list((tmp_path / 'killed').glob('part_*/tokens_*.npy'))) < shards + 3:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        one_line_error(run_script('pretrain.py', 'configs/tiny.py', f'--corpus={tmp_path}/killed'), 'no corpus there')
    assert run_script(*options, f'--out={tmp_path}/killed').returncode == 0
    whole, killed = (data.Corpus(tmp_path / name).meta for name in ('whole', 'killed'))
    assert whole == killed
    data.Corpus(tmp_path / 'killed').verify()


def test_docs_are_held_out_by_file():
    documents = docs.documents()
    by_split = {split: {(file, text) for s, file, text in documents if s == split} for split in ('train', 'validation', 'test')}
    assert sum(len(text) for _, _, text in documents) > 8_000_000
    files = [{file for file, _ in found} for found in by_split.values()]
    assert not (files[0] & files[1] or files[0] & files[2] or files[1] & files[2])
    assert len({text for _, _, text in documents}) == len(documents)
    assert not any(line.lstrip().startswith('>>>') for _, _, text in documents for line in text.splitlines())
    assert any(file.startswith('torch/') and 'torch.matmul' in text and 'broadcast' in text for _, file, text in documents)  # by add_docstr


@pytest.mark.parametrize('make, parts', [
    (lambda folder: (folder / 'a.txt').write_bytes(b'good \xff bad'), ('a.txt', 'invalid UTF-8 at byte 5')),
    (lambda folder: (folder / 'a.jsonl').write_bytes(b'{"text": "x"}\n{"text": "\xe9"}\n'), ('a.jsonl', 'invalid UTF-8 at byte 24')),
    (lambda folder: (folder / 'a.jsonl').write_text('{"text": "x"}\n{"text": \n'), ('a.jsonl', 'line at byte 14', 'not valid JSON')),
    (lambda folder: (folder / 'a.jsonl').write_text('{"body": "x"}\n'), ("no column 'text'",)),
    (lambda folder: (folder / 'a.jsonl').write_text('{"text": null}\n'), ('None',)),
    (lambda folder: (folder / 'a.parquet').write_bytes(b'PAR1 cut short'), ('not a whole parquet file',)),
    (lambda folder: (folder / 'notes.md').write_text('x'), ('no .txt, .jsonl or .parquet',)),
    (lambda folder: (folder / 'a.txt').write_text(''), ('no training text',)),
])
def test_bad_sources_get_one_line_and_no_corpus(tmp_path, make, parts):
    (tmp_path / 'texts').mkdir()
    make(tmp_path / 'texts')
    result = run_script('data.py', 'configs/corpora/folder.py', f'--path={tmp_path}/texts', f'--out={tmp_path}/out')
    one_line_error(result, *parts)
    assert not (tmp_path / 'out' / 'meta.json').exists()


def test_bom_crlf_empty_and_huge_documents(tmp_path):
    (tmp_path / 'texts').mkdir()
    (tmp_path / 'texts' / 'a.txt').write_bytes('\ufeffone\r\ntwo\r\n'.encode())
    (tmp_path / 'texts' / 'b.txt').write_text('')
    (tmp_path / 'texts' / 'c.jsonl').write_text(json.dumps({'text': 'a lone \ud83d surrogate'}) + '\n\n')
    (tmp_path / 'texts' / 'd.txt').write_text('All work and no play. ' * (50_000_000 // 22))
    (tmp_path / 'texts' / 'e.txt').write_text(' ' * 1_500_000)
    data.prepare(small(tmp_path / 'texts', tmp_path / 'out', val_permille=1))
    ids = stream(tmp_path / 'out')
    tokenizer = load_tokenizer(str(tmp_path / 'out'))
    ends = np.flatnonzero(ids == tokenizer.ids['eos'])
    assert tokenizer.decode(ids[:ends[0]]) == 'one\ntwo\n'
    assert tokenizer.decode(ids[ends[0] + 1:ends[1]]) == 'a lone \ufffd surrogate'
    assert len(ends) == 4 and data.Corpus(tmp_path / 'out').meta['documents'] == 4
    assert tokenizer.decode(ids[ends[2] + 1:ends[3]]) == ' ' * 1_500_000
    assert len(ids) > 10_000_000


def test_a_corpus_is_not_mixed_or_overwritten(tmp_path):
    cfg = small(jsonl(tmp_path / 'a.jsonl', [f'text {k}' for k in range(100)]), tmp_path / 'out')
    data.prepare(cfg)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / 'out').iterdir()}
    data.prepare(cfg)
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / 'out').iterdir()}
    with pytest.raises(ValueError, match='other settings'):
        data.prepare(replace(cfg, val_permille=5))


def test_damaged_corpora_are_named(tmp_path):
    data.prepare(small(jsonl(tmp_path / 'a.jsonl', [f'text {k}' for k in range(900)]), tmp_path / 'out'))
    shard = tmp_path / 'out' / 'tokens_00000.npy'
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-100])
    one_line_error(run_script('pretrain.py', 'configs/tiny.py', f'--corpus={tmp_path}/out'), 'tokens_00000.npy: missing or cut short')
    shard.write_bytes(whole[:-1] + b'\x7f')
    one_line_error(run_script('data.py', 'configs/corpora/folder.py', f'--out={tmp_path}/out', '--verify'), 'sha256')
    shard.write_bytes(io.BytesIO(whole).getvalue().replace(b'<u2', b'<i2'))
    with pytest.raises(ValueError, match='int16'):
        data.Corpus(tmp_path / 'out')
    shard.unlink()
    with pytest.raises(ValueError, match='tokens_00000.npy: missing'):
        data.Corpus(tmp_path / 'out')


# ----------------------------------------------------------------------------------------------- the law of a batch

def test_the_law_of_a_batch_is_what_it_was(tmp_path, settings):
    """Runs that are compared, resumed or branched across versions of this code need the same rows, cuts and masks.

    The numbers come from a second writing of the law, in Python's own integers.
    """
    tokens = (np.arange(6400) * 7919 % 4000).astype(np.uint16)
    np.save(tmp_path / 'tokens_00000.npy', tokens)
    data.write_json(tmp_path / 'meta.json', {'vocab_size': 4096, 'special_ids': [4093, 4094, 4095], 'mask_token_id': 4095,
                                             'tokens': 6400, 'shards': [{'name': 'tokens_00000.npy', 'tokens': 6400}], 'val_shards': []})
    some = loader(tmp_path, settings(phases=(('mlm', 99),), seed=3, rows_per_step=4, micro_rows=0))
    assert [row for step in (0, 24, 25) for row in some.rows(step)] == [
        (0, 83), (1, 96), (2, 12), (3, 57), (96, 67), (97, 30), (98, 10), (99, 84), (100, 82), (101, 53), (102, 58), (103, 50)]
    step = some.step(7)
    assert (step.batches[0].lengths, step.batches[0].at[:12].tolist(), step.num_targets, step.rows) == (
        [46, 18, 40, 24, 20, 44, 12, 52], [1, 3, 4, 5, 11, 12, 14, 16, 17, 21, 22, 23], 108, 50301537313994)


@pytest.mark.parametrize('n', [1, 2, 3, 4, 5, 16, 17, 97, 1000, 4097])
def test_permute_is_a_bijection(n):
    for epoch in range(3):
        assert sorted(data.permute(np.arange(n), n, 0, epoch)) == list(range(n))


def test_permute_looks_uniform_and_depends_on_seed_and_epoch():
    n = 97
    images = np.array([data.permute(np.arange(n), n, seed, epoch) for seed in range(60) for epoch in range(5)])
    assert len({tuple(row) for row in images}) == 300
    places = np.array([np.bincount(images[:, k], minlength=n) for k in (0, 1, 50, 96)])
    assert all(stats.chisquare(row).pvalue > 1e-4 for row in places)
    steps = np.bincount((np.diff(images, axis=1) % n).ravel(), minlength=n)[1:]
    assert stats.chisquare(steps).pvalue > 1e-4


def loader(corpus, cfg, rank=0, world_size=1):
    return data.Loader(data.Corpus(corpus), cfg, 0, 0, rank, world_size)


def test_a_step_does_not_depend_on_objective_processes_or_micro_batches(corpus, settings):
    cfg = settings(phases=(('clm', 30), ('mlm', 30)), rows_per_step=8, micro_rows=0)
    for step in (0, 7, 45):
        one = loader(corpus, cfg).step(step)
        for size, micro in ((2, 4), (4, 1), (8, 1), (1, 2)):
            shares = [loader(corpus, replace(cfg, micro_rows=micro), rank, size).step(step) for rank in range(size)]
            for name in ('tokens', 'targets'):
                assert np.array_equal(np.concatenate([getattr(b, name) for s in shares for b in s.batches]), getattr(one.batches[0], name))
            assert sum(s.rows for s in shares) % 2 ** 48 == one.rows
            assert sum(s.num_targets for s in shares) == one.num_targets
        mlm = loader(corpus, replace(cfg, phases=(('mlm', 60),))).step(step)
        assert mlm.rows == one.rows and mlm.batches[0].lengths == one.batches[0].lengths


def test_epochs_read_each_stretch_once(corpus, settings):
    cfg = settings(rows_per_step=7, context=64)
    some = loader(corpus, cfg)
    K = some.num_stretches
    rows = [row for step in range(3 * K // 7 + 1) for row in some.rows(step)]
    assert [i for i, _ in rows] == list(range(len(rows)))
    epochs = [[k for i, k in rows if i // K == epoch] for epoch in range(3)]
    assert all(sorted(epoch) == list(range(K)) for epoch in epochs) and epochs[0] != epochs[1]
    other = loader(corpus, replace(cfg, rows_per_step=4))
    assert [row for step in range(20) for row in other.rows(step)] == rows[:80]
    later = loader(corpus, replace(cfg, first_row=70))
    assert later.rows(0) == some.rows(10)


def test_cut_rows_have_the_papers_lengths(corpus, settings):
    """12 to 2,048 less 12, mean 1,024 (section 2, footnote 6); here with context 64: uniform on 12 .. 52."""
    some = loader(corpus, settings(rows_per_step=1, micro_rows=0))
    lengths = [some.step(s % 12).batches[0].lengths for s in range(12)]
    assert all(sum(pair) == 64 and min(pair) >= 12 for pair in lengths)
    cfg = settings()
    cuts = [data.make_batch(data.Corpus(corpus), 'train', [(i, 0)], 0, 'clm', cfg)[0].lengths[0] for i in range(4000)]
    assert min(cuts) == 12 and max(cuts) == 52
    assert stats.chisquare(np.bincount(cuts)[12:]).pvalue > 1e-4
    whole, _ = data.make_batch(data.Corpus(corpus), 'train', [(0, 0), (1, 1)], 0, 'clm', settings(cut_rows=False))
    assert whole.lengths == [64, 64]


def test_clm_targets_by_hand():
    assert data.next_tokens(np.array([5, 6, 7, 8, 9]), [2, 3]).tolist() == [6, -100, 8, 9, -100]


def test_masks(corpus, settings):
    source = data.Corpus(corpus)
    rows = [(i, i % 40) for i in range(300)]
    batch = {ratio: data.make_batch(source, 'train', rows, 0, 'mlm', settings(mask_ratio=ratio))[0] for ratio in (0.2, 0.4)}
    clm, _ = data.make_batch(source, 'train', rows, 0, 'clm', settings())
    special = np.isin(clm.tokens, source.meta['special_ids'])
    assert special.any() and (clm.targets == source.meta['eos_token_id']).any()  # eos is a target of CLM, not of MLM
    for ratio, found in batch.items():
        masked = found.targets != data.NO_TARGET
        n = (~special).sum()
        assert abs(masked.sum() - n * ratio) < 3 * np.sqrt(n * ratio * (1 - ratio))
        assert not (masked & special).any()
        assert (found.tokens[masked] == source.meta['mask_token_id']).all()
        assert np.array_equal(found.tokens[~masked], clm.tokens[~masked]) and np.array_equal(found.targets[masked], clm.tokens[masked])
        assert np.array_equal(found.at, np.flatnonzero(masked))
    assert set(batch[0.2].at) < set(batch[0.4].at)
    other, _ = data.make_batch(source, 'train', [(i + 300, k) for i, k in rows], 0, 'mlm', settings())
    assert not np.array_equal(other.at, batch[0.4].at)  # the next epoch's masks are others


def test_bert_replacement(corpus, settings):
    source = data.Corpus(corpus)
    rows = [(i, i % 40) for i in range(300)]
    clm, _ = data.make_batch(source, 'train', rows, 0, 'clm', settings())
    plain, _ = data.make_batch(source, 'train', rows, 0, 'mlm', settings())
    bert, _ = data.make_batch(source, 'train', rows, 0, 'mlm', settings(mask_replace=(0.8, 0.1, 0.1)))
    assert np.array_equal(plain.targets, bert.targets)
    n, became = len(bert.at), bert.tokens[bert.at]
    for count, share in (((became == 4095).sum(), 0.8), ((became == clm.tokens[bert.at]).sum(), 0.1)):
        assert abs(count - n * share) < 3 * np.sqrt(n * share * (1 - share)) + 0.001 * n
    assert not np.isin(became[became != 4095], source.meta['special_ids']).any()


def test_mntp_predicts_the_masked_token_from_the_position_before(corpus, settings):
    source, rows = data.Corpus(corpus), [(i, i) for i in range(20)]
    mlm, _ = data.make_batch(source, 'train', rows, 0, 'mlm', settings())
    mntp, _ = data.make_batch(source, 'train', rows, 0, 'mntp', settings())
    assert np.array_equal(mlm.tokens, mntp.tokens)
    starts = set(np.cumsum([0, *mlm.lengths]).tolist())
    expected = [(p - 1, mlm.targets[p]) for p in mlm.at if p not in starts]
    assert [(p, mntp.targets[p]) for p in mntp.at] == expected


def test_validation_rows_do_not_depend_on_seed_or_processes(corpus, settings):
    source = data.Corpus(corpus)
    one = list(data.validation_batches(source, 'mlm', settings(micro_rows=1)))
    assert len(one) == 5
    other = list(data.validation_batches(source, 'mlm', settings(micro_rows=1, seed=9)))
    assert all(np.array_equal(a.tokens, b.tokens) for a, b in zip(one, other))
    shares = [list(data.validation_batches(source, 'mlm', settings(micro_rows=2), rank, 3)) for rank in range(3)]
    assert len({len(share) for share in shares}) == 1
    assert sum(len(b.at) for share in shares for b in share) == sum(len(b.at) for b in one)


def test_loader_thread_hands_over_errors_and_stops(corpus, settings):
    def fail(batch):
        raise RuntimeError('in the thread')
    with pytest.raises(RuntimeError, match='in the thread'):
        list(data.Loader(data.Corpus(corpus), settings(), 0, 5, convert=fail))
    endless = data.Loader(data.Corpus(corpus), settings(phases=(('clm', 10 ** 6),)), 0, 10 ** 6)
    next(iter(endless))
    endless.close()
    assert not endless.thread.is_alive()


@pytest.mark.skipif(not (SHARED / 'realdata').exists(), reason='no novels')
def test_novels(tmp_path, settings):
    """BOM and CRLF in the wild; a run behind another's rows reads none of them again."""
    (tmp_path / 'novels').mkdir()
    with tarfile.open(SHARED / 'realdata' / 'english_novels.tar.xz') as archive:
        members = [member for member in archive if member.name.endswith('.txt')][:12]
        for member in members:
            (tmp_path / 'novels' / os.path.basename(member.name)).write_bytes(archive.extractfile(member).read())
    assert any(path.read_bytes().startswith(b'\xef\xbb\xbf') and b'\r\n' in path.read_bytes() for path in (tmp_path / 'novels').iterdir())
    data.prepare(small(tmp_path / 'novels', tmp_path / 'out', val_permille=150))
    text = load_tokenizer(str(tmp_path / 'out')).decode(stream(tmp_path / 'out'))
    assert '\ufeff' not in text and '\r' not in text

    def read(first_row, steps):
        cfg = settings(corpus=str(tmp_path / 'out'), context=512, rows_per_step=4, first_row=first_row, phases=(('clm', steps),))
        some = loader(tmp_path / 'out', cfg)
        return {data.make_batch(some.corpus, 'train', [row], 0, 'clm', cfg)[1][0] for step in range(steps) for row in some.rows(step)}
    first, second = read(0, 200), read(800, 200)
    assert len(first) == len(second) == 800 and not first & second

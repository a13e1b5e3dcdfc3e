"""Tables of files, the hub, the embedded texts: (rows as dicts, {column: names of its labels, if any})."""
import csv
import gzip
import json
import os
import re
import sys
import zlib
from pathlib import Path

from nanoencoder import docs, wordnet
from nanoencoder.files import blame, locked, whole

EMBEDDED = {'docs': docs, 'wordnet': wordnet}    # sources that need no download


class Field(str):
    """What a .csv or .tsv has in a column: text by nature, which may stand for a number."""


def read_table(task, sources, split, subset='', only=None):
    """The table of a split, of `only` these ids, if given; a local copy may lie in a folder of any source."""
    if task.data:
        return read_files(local_files(Path(task.data), sources, subset, split), task, only)
    if task.source in EMBEDDED:
        return read_files([embedded_files(task) / f'{split}.jsonl'], task, only)
    return read_hub(sources[0], subset, split, task.revision, only)


def local_files(folder, sources, subset, split):
    """<split>.<suffix>, or a path, or parquet shards, in the dataset's folder or one named as on the hub."""
    names = [source.split('/')[-1] for source in sources if source]
    root = next((folder / name for name in names if (folder / name).is_dir()), folder)
    for place in [root / name for name in (subset, '', 'data', 'default', 'plain_text', *names)]:
        for name in (split, 'dev') if split == 'validation' else (split,):
            path = place / name     # a path that is absolute is itself
            files = [file for suffix in (*READERS, '') if (file := Path(f'{path}{suffix}')).is_file()][:1]
            shards = sorted(path.parent.glob(f'{path.name}-*.parquet')) or sorted(path.glob('*.parquet'))
            if files or shards:
                return files or shards
    hint = '; validation = "" holds out a share of train' if 'valid' in split else ''
    there = ', '.join(sorted(path.name for path in root.glob('*'))) or 'nothing'
    raise FileNotFoundError(f'{root}: no {split}{{{",".join(READERS)}}}, no {split}-*.parquet; '
                            f'what is there: {there:.200}{hint}')


def read_files(paths, task, only=None):
    rows = []
    for path in paths:
        reader = next((READERS[suffix] for suffix in READERS if path.name.endswith(suffix)), None)
        if not (reader := read_iob if task.columns else reader):
            raise ValueError(f'{path}: is none of {", ".join(READERS)}; `columns` reads others for TC')
        with blame(f'{path}: cannot be read', UnicodeDecodeError, EOFError, zlib.error, gzip.BadGzipFile):
            read, labels = reader(path, task)
        rows += read if only is None else [row for row in read if id_of(row) in only]
    if not rows and only is None:
        raise ValueError(f'{paths[0]}: holds no row')
    return rows, labels     # which are the same in all shards of a dataset


def id_of(row):     # of BEIR's and MLDR's queries and documents
    return next((str(row[column]) for column in ('_id', 'docid') if column in row), None)


def read_jsonl(path, task):
    """Objects, one a line. A lone surrogate, which JSON can hold and UTF-8 cannot, becomes U+FFFD."""
    rows = []
    with (gzip.open if path.suffix == '.gz' else open)(path, 'rt', encoding='utf-8-sig') as file:
        for number, line in enumerate(file, 1):
            if line.isspace():
                continue
            what = f'{path}:{number}: is no JSON object: {line.strip():.80}'
            with blame(what, ValueError, TypeError, RecursionError):
                row = json.loads(line)
                if '\\ud' in line.lower():
                    row = json.loads(re.sub('[\ud800-\udfff]', '\ufffd', json.dumps(row, ensure_ascii=False)))
                rows.append({**row})
    return rows, {}


def read_csv(path, task):
    csv.field_size_limit(2 ** 30)
    is_tsv, rows = path.suffix == '.tsv', []
    plain = task.quoting == 'none' or task.quoting == 'auto' and is_tsv
    with path.open(encoding='utf-8-sig', newline='') as file:
        reader = csv.reader(file, strict=True, delimiter='\t' if is_tsv else ',',
                            quoting=csv.QUOTE_NONE if plain else csv.QUOTE_MINIMAL)
        try:
            header = next(reader, [])
            for fields in filter(None, reader):
                if len(fields) != len(header):
                    raise csv.Error(f'has {len(fields)} fields, the header {len(header)}')
                rows.append(dict(zip(header, map(Field, fields))))
        except csv.Error as error:
            raise ValueError(f'{path}:{reader.line_num}: {error} (is a quote left open?)') from None
    if len(set(header)) < len(header):
        raise ValueError(f'{path}: two columns of its header have one name')
    return rows, {}


def read_parquet(path, task):
    import pyarrow.parquet
    with blame(f'{path}: not a whole parquet file', Exception):     # of many kinds, where bits have flipped
        table = pyarrow.parquet.read_table(path)
        about = json.loads((table.schema.metadata or {}).get(b'huggingface', b'{}'))
        return table.to_pylist(), label_names(about.get('info', {}).get('features', {}))


def read_iob(path, task):
    """A word and its tag a line, in task.columns, or CoNLL's, first and last, or Universal NER's five."""
    sentences, columns = [[]], task.columns
    with path.open(encoding='utf-8-sig') as file:
        for number, line in enumerate(file, 1):
            fields = re.findall('[^ \t\r\n]+', line)
            if (re.match(r'# (\w+ )+= |# new(doc|par)\s*$', line)   # CoNLL-U's comments, ranges, empty words
                    or len(fields) == 10 and re.fullmatch(r'\d+[-.]\d+', fields[0])):
                continue
            if not columns and fields:  # CoNLL's may be five, too
                columns = (1, 2) if len(fields) == 5 and fields[0] == '1' else (0, -1)
            if not fields or '-DOCSTART-' in fields[:2]:
                sentences.append([])
            elif len(fields) <= max(1, *columns):
                raise ValueError(f'{path}:{number}: has a word but no tag in {columns}: {line.strip()!r:.80}')
            else:
                sentences[-1].append([fields[column] for column in columns])
    return [dict(zip((task.words, task.tags), map(list, zip(*words)))) for words in sentences if words], {}


READERS = {'.jsonl': read_jsonl, '.jsonl.gz': read_jsonl, '.csv': read_csv, '.tsv': read_csv,
           '.parquet': read_parquet, '.iob': read_iob, '.iob2': read_iob, '.conll': read_iob}


def label_names(features):
    """{column: [names]} of class labels among a dataset's features, alone or in lists."""
    names = {}
    for column, feature in features.items():
        while isinstance(feature, dict) and 'feature' in feature:
            feature = feature['feature']
        if isinstance(feature, dict) and feature.get('_type') == 'ClassLabel':
            names[column] = feature['names']
    return names


def read_hub(source, subset, split, revision, only=None):
    import datasets
    options = {'name': subset or None}
    if revision == 'refs/convert/parquet':  # has no list of its files
        options = {'data_files': {split: f'{subset or "default"}/{split}/*.parquet'}}
    what = f'no {split} of {source} {subset}, of which --data takes a local copy'
    with blame(what, OSError, ValueError, RuntimeError):
        dataset = datasets.load_dataset(source, split=split, revision=revision or None, **options)
    if only is not None:
        column = '_id' if '_id' in dataset.column_names else 'docid'
        dataset = dataset.select([k for k, value in enumerate(dataset[column]) if str(value) in only])
    return list(dataset), label_names(dataset.features.to_dict())


def embedded_files(task):
    """The folder of an embedded task's <split>.jsonl. One process extracts all of a source; others wait."""
    embedded = EMBEDDED[task.source]
    folder = Path(task.cache) / f'{task.source}-{embedded.key()}'
    with locked(*[] if folder.exists() else [folder], wait=True):
        if not folder.exists():
            print(f'{folder}: making the embedded tasks', file=sys.stderr)
            with whole(folder) as temporary:
                for name, splits in embedded.tasks(task.cache).items():
                    (temporary / name).mkdir(parents=True)
                    for split, rows in splits.items():
                        (temporary / name / f'{split}.jsonl').write_text(json_lines(rows), encoding='utf-8')
    if not (folder / task.dataset).is_dir():
        raise ValueError(f'{task.source} has no {task.dataset}, only {sorted(os.listdir(folder))}')
    return folder / task.dataset


def json_lines(rows):
    return ''.join(json.dumps(row, ensure_ascii=False) + '\n' for row in rows)

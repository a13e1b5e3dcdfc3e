"""Tables of rows from .jsonl, .csv, .tsv, .parquet, .iob, .iob2, .conll files, the hub, the embedded texts.

A table is (rows as dicts, {column: names of its labels} where the file says them).
"""
import csv
import gzip
import json
import re
import sys
import zlib
from pathlib import Path

from nanoencoder import docs
from nanoencoder.files import locked, whole

QUOTING = ('auto', 'none', 'standard')  # none: quotes are characters; auto: none in a .tsv


class Field(str):
    """What a .csv or .tsv has in a column: text by nature, which may stand for a number."""
    __slots__ = ()


def read_table(task, sources, split, subset='', only=None):
    """The table of a split: embedded, of a local folder or of the hub.

    sources  the dataset's name on the hub; a local copy may also be in the folder of a later name
    only     (columns, ids): just the rows with these ids
    """
    if task.data:
        return read_files(local_files(Path(task.data), sources, subset, split), only, task.quoting)
    if task.source == 'docs':
        return read_files([embedded_files(task.cache, task.dataset) / f'{split}.jsonl'], only)
    return read_hub(sources[0], subset, split, task.revision, only)


def local_files(folder, sources, subset, split):
    """The files of a split: <split>.<suffix>, or parquet shards. FileNotFoundError if there are none.

    `folder` holds the dataset, or several in folders that may be named as one of `sources`, on the hub.
    """
    names = [source.split('/')[-1] for source in sources if source]
    root = next((folder / name for name in names if (folder / name).is_dir()), folder)
    for place in [root / name for name in (subset, '', 'data', 'default', 'plain_text', *names)]:
        for name in (split, 'dev') if split == 'validation' else (split,):
            if files := [path for suffix in READERS if (path := place / f'{name}{suffix}').is_file()]:
                return files[:1]
            shards = sorted(place.glob(f'{name}-*.parquet')) or sorted((place / name).glob('*.parquet'))
            if shards:
                return shards
    hint = '; validation = "" holds out a share of train' if 'valid' in split else ''
    raise FileNotFoundError(f'{folder}: no {split}{{{",".join(READERS)}}} and no {split}-*.parquet there'
                            f'{f" for {sources[0]} {subset}".rstrip() if names else ""}{hint}')


def read_files(paths, only=None, quoting='auto'):
    """The table of a split's files."""
    rows, names = [], {}
    for path in paths:
        suffix = next(suffix for suffix in READERS if path.name.endswith(suffix))
        try:
            read, labels = READERS[suffix](path, *[quoting] * (suffix in ('.csv', '.tsv')))
        except UnicodeDecodeError as error:
            raise ValueError(f'{path}: invalid UTF-8 at byte {error.start}') from None
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f'{path}: not a whole .gz file: {error}') from None
        rows += read if only is None else [row for row in read if id_of(row, only[0]) in only[1]]
        for column in labels:
            if names.setdefault(column, labels[column]) != labels[column]:
                raise ValueError(f'{path}: orders the labels of {column!r} otherwise than {paths[0].name}')
    if not rows and only is None:
        raise ValueError(f'{paths[0]}: holds no row')
    return rows, names


def id_of(row, columns):
    """The row's id as a string: what stands in the first of these columns that it has."""
    return next((str(row[column]) for column in columns if column in row), None)


def read_jsonl(path):
    """Objects, one a line. A lone surrogate, which JSON can hold and UTF-8 cannot, becomes U+FFFD."""
    rows = []
    with (gzip.open if path.suffix == '.gz' else open)(path, 'rt', encoding='utf-8-sig') as file:
        for number, line in enumerate(file, 1):
            if line.isspace():
                continue
            try:
                row = json.loads(line)
                if '\\ud' in line.lower():
                    text = json.dumps(row, ensure_ascii=False)
                    row = json.loads(re.sub('[\ud800-\udfff]', '\ufffd', text))
            except ValueError:
                raise ValueError(f'{path}:{number}: not valid JSON') from None
            if not isinstance(row, dict):
                raise ValueError(f'{path}:{number}: is no JSON object: {line.strip():.80}')
            rows.append(row)
    return rows, {}


def read_csv(path, quoting):
    csv.field_size_limit(2 ** 30)
    is_tsv = path.suffix == '.tsv'
    plain = quoting == 'none' or quoting == 'auto' and is_tsv
    with path.open(encoding='utf-8-sig', newline='') as file:
        reader = csv.reader(file, strict=True, delimiter='\t' if is_tsv else ',',
                            quoting=csv.QUOTE_NONE if plain else csv.QUOTE_MINIMAL)
        try:
            lines = [(reader.line_num, fields) for fields in reader if fields]
        except csv.Error as error:
            raise ValueError(f'{path}:{reader.line_num}: {error} (is a quote left open?)') from None
    header = lines.pop(0)[1] if lines else []
    if len(set(header)) < len(header):
        raise ValueError(f'{path}: two columns of its header have one name')
    for number, fields in lines:
        if len(fields) != len(header):
            raise ValueError(f'{path}:{number}: has {len(fields)} fields, the header {len(header)}')
    return [dict(zip(header, map(Field, fields))) for _, fields in lines], {}


def read_parquet(path):
    import pyarrow.parquet
    try:
        table = pyarrow.parquet.read_table(path)
        about = json.loads((table.schema.metadata or {}).get(b'huggingface', b'{}'))
        return table.to_pylist(), label_names(about.get('info', {}).get('features', {}))
    except (pyarrow.ArrowException, OSError, ValueError, TypeError, KeyError, OverflowError,
            AttributeError) as error:
        raise ValueError(f'{path}: not a whole parquet file: {error}') from None


def read_iob(path):
    """CoNLL's columns: a word a line, its tag in the last column, an empty line after a sentence.

    Universal NER's are the word's number, the word, its tag and two more, after lines of comment.
    """
    rows, words, is_universal = [], [], None
    with path.open(encoding='utf-8-sig') as file:
        for number, line in enumerate([*file, '\n'], 1):
            fields = re.findall('[^ \t\r\n]+', line)
            if re.match(r'# \w+ = ', line):
                continue
            if is_universal is None and fields:  # CoNLL's may have five columns, too
                is_universal = len(fields) == 5 and fields[0] == '1'
            if is_universal:
                fields = fields[1:3]
            if not fields or fields[0] == '-DOCSTART-':
                if words:
                    rows.append(dict(zip(('tokens', 'tags'), map(list, zip(*words)))))
                words = []
            elif len(fields) < 2:
                raise ValueError(f'{path}:{number}: has a word but no tag: {line.strip()!r:.80}')
            else:
                words.append((fields[0], fields[-1]))
    return rows, {}


READERS = {'.jsonl': read_jsonl, '.jsonl.gz': read_jsonl, '.csv': read_csv, '.tsv': read_csv,
           '.parquet': read_parquet, '.iob': read_iob, '.iob2': read_iob, '.conll': read_iob}


def label_names(features):
    """{column: [names]} of the class labels among a dataset's features, alone or in lists."""
    names = {}
    for column, feature in features.items():
        while isinstance(feature, dict) and 'feature' in feature:
            feature = feature['feature']
        if isinstance(feature, dict) and feature.get('_type') == 'ClassLabel':
            names[column] = feature['names']
    return names


def read_hub(source, subset, split, revision, only=None):
    """The table of a dataset of the hub, read with `datasets`."""
    import datasets
    options = {'name': subset or None}
    if revision == 'refs/convert/parquet':  # has no list of its files
        options = {'data_files': {split: f'{subset or "default"}/{split}/*.parquet'}}
    try:
        dataset = datasets.load_dataset(source, split=split, revision=revision or None, **options)
    except (OSError, ValueError, RuntimeError) as error:
        raise ValueError(f'cannot read {split} of {source} {subset}: {error}; '
                         '--data=<folder> reads a local copy') from None
    if only is not None:
        column = next(column for column in only[0] if column in dataset.column_names)
        dataset = dataset.select([k for k, value in enumerate(dataset[column]) if str(value) in only[1]])
    return list(dataset), label_names(dataset.features.to_dict())


def embedded_files(cache, dataset):
    """The folder of an embedded task. One process extracts all, once; the others wait, and read the cache."""
    folder = Path(cache) / f'docs-{docs.key()}'
    if not folder.exists():
        with locked(folder, wait=True):
            if not folder.exists():
                extract(folder, cache)
    if not (folder / dataset).is_dir():
        names = ', '.join(sorted(path.name for path in folder.iterdir()))
        raise ValueError(f'dataset: the embedded tasks are {names}, not {dataset!r}')
    return folder / dataset


def extract(folder, cache):
    """The embedded tasks as <folder>/<name>/<split>.jsonl."""
    print(f'{folder}: making the embedded tasks of {", ".join(docs.PACKAGES)}', file=sys.stderr)
    with whole(folder) as temporary:
        for name, splits in docs.tasks(docs.documents(cache)).items():
            (temporary / name).mkdir(parents=True)
            for split, rows in splits.items():
                lines = ''.join(json.dumps(row, ensure_ascii=False) + '\n' for row in rows)
                (temporary / name / f'{split}.jsonl').write_text(lines, encoding='utf-8')

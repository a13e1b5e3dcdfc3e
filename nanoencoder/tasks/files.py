"""Tables of files and of the hub: (rows as dicts, {column: names of its labels, if any})."""
import csv
import gzip
import json
import re
import sys
import zlib
from pathlib import Path

from nanoencoder.files import blame


class Field(str):
    """What a .csv or .tsv has in a column: text by nature, which may stand for a number."""


def read_table(task, sources, split, subset='', only=None):
    """The table of a split, of `only` these ids, if given; a local copy may lie in a folder of any source."""
    if task.data:
        folder = Path(task.data)
        if task.made_by and not folder.exists():
            raise ValueError(f'{folder}: is not there yet; first run: {task.made_by}')
        return read_files(local_files(folder, sources, subset, split), task, only)
    return read_hub(sources[0], subset, split, task.revision, only)


def local_files(folder, sources, subset, split):
    """<split>.<suffix>, or a path, or parquet shards, in the dataset's folder or one named as on the hub."""
    names = [source.split('/')[-1] for source in sources if source]
    root = next((folder / name for name in names if (folder / name).is_dir()), folder)
    for place in [root / name for name in (subset, '', 'data', 'default', 'plain_text', *names)]:
        for name in (split, 'dev') if split == 'validation' else (split,):
            path = place / name     # a path that is absolute is itself
            for suffix in (*READERS, ''):
                file = Path(f'{path}{suffix}')
                if file.is_file():
                    return [file]
            shards = sorted(path.parent.glob(f'{path.name}-*.parquet')) or sorted(path.glob('*.parquet'))
            of_split = re.compile(rf'({re.escape(path.name)}-)?\d+-of-\d+')
            numbered = [shard for shard in shards if of_split.match(shard.name)]
            if numbered:    # others, as train-clean-00000-of-00001 beside train's own, are another split's
                check_shards(numbered)
            if shards:
                return numbered or shards
    hint = '; validation = "" holds out a share of train' if 'valid' in split else ''
    there = ', '.join(sorted(path.name for path in root.glob('*'))) or 'nothing'
    raise FileNotFoundError(f'{root}: no {split}{{{",".join(READERS)}}}, no {split}-*.parquet; '
                            f'what is there: {there:.200}; another file is named whole, as '
                            f'--train=train.txt{hint}')


def check_shards(paths):
    """ValueError unless shards with names as on the hub, 00000-of-00003 and so on, are one whole set."""
    matches = [re.search(r'(\d+)-of-(\d+)', path.name) for path in paths]
    numbers = [int(match[1]) for match in matches if match]
    totals = {int(match[2]) for match in matches if match}
    if not totals:
        return
    folder = paths[0].parent
    if len(totals) > 1 or len({*numbers}) < len(numbers):
        raise ValueError(f'{folder}: holds shards of more than one set, remove one: '
                         f'{", ".join(path.name for path in paths):.300}')
    total = max(totals)
    missing = {*range(total)} - {*numbers}
    if missing:
        raise ValueError(f'{folder}: {len(missing)} of {total} shards are missing, the first is '
                         f'{min(missing):05}-of-{total:05}; fetch what is missing')


def read_files(paths, task, only=None):
    """(rows, {column: names of its labels}) of files; of queries and documents `only` some ids, if given."""
    rows = []
    all_names = []      # of each file; they must be equal, or a number would have two meanings
    for path in paths:
        reader = next((READERS[suffix] for suffix in READERS if path.name.endswith(suffix)), None)
        if task.columns:
            reader = read_iob
        if reader is None:
            way = ('--columns=0,3 reads a word a line, the word in column 0 and its tag in column 3'
                   if task.kind == 'TC' else 'turn it into .jsonl, an object a line')
            raise ValueError(f'{path}: is none of {", ".join(READERS)}; {way}')
        with blame(f'{path}: cannot be read', UnicodeDecodeError, EOFError, zlib.error, gzip.BadGzipFile):
            read, names = reader(path, task)
        rows += read if only is None else [row for row in read if id_of(row) in only]
        all_names.append(names)
        if names != all_names[0]:
            raise ValueError(f'{path}: has the class names {names!s:.200}, and {paths[0].name} has '
                             f'{all_names[0]!s:.200}; write all shards with the same ones')
    if not rows and only is None:
        raise ValueError(f'{paths[0]}: holds no row')
    return rows, all_names[0]


def id_of(row):     # of BEIR's and MLDR's queries and documents
    return next((str(row[column]) for column in ('_id', 'docid') if column in row), None)


def parse_json(text):
    """What JSON says. A lone surrogate, which JSON can hold and UTF-8 cannot, becomes U+FFFD."""
    content = json.loads(text)
    if '\\ud' in text.lower():
        content = json.loads(re.sub('[\ud800-\udfff]', '\ufffd', json.dumps(content, ensure_ascii=False)))
    return content


def read_jsonl(path, task):
    """Objects, one a line."""
    open_text = gzip.open if path.suffix == '.gz' else open
    rows = []
    with open_text(path, 'rt', encoding='utf-8-sig') as file:
        for number, line in enumerate(file, 1):
            if line.isspace():
                continue
            what = f'{path}:{number}: is no JSON object: {line.strip():.80}'
            with blame(what, ValueError, TypeError, RecursionError):
                rows.append({**parse_json(line)})
    return rows, {}


def read_json_array(path, task):
    """A list of objects, or SQuAD's own files."""
    text = path.read_text(encoding='utf-8-sig')
    what = (f'{path}: is no list of objects, nor {{"data": [{{"paragraphs": ...}}]}} as of SQuAD; '
            'a file of an object a line is named .jsonl')
    with blame(what, ValueError, TypeError, LookupError, RecursionError):
        content = parse_json(text)
        if isinstance(content, dict):
            content = squad_rows(content['data'])
        return [{**row} for row in content], {}


def squad_rows(articles):
    """The rows that the hub has of SQuAD, from articles of paragraphs of questions."""
    rows = []
    for article in articles:
        for paragraph in article['paragraphs']:
            for question in paragraph['qas']:
                answers = question['answers']   # none where it cannot be answered
                rows.append({'id': question['id'], 'context': paragraph['context'],
                             'title': article.get('title'), 'question': question['question'],
                             'answers': {'text': [answer['text'] for answer in answers],
                                         'answer_start': [answer['answer_start'] for answer in answers]}})
    return rows


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
    """Sentences of a word a line, its tag in another column; an empty line ends a sentence."""
    lines = path.read_text(encoding='utf-8-sig').split('\n')
    numbered = is_numbered(lines, task.columns)
    columns = task.columns
    sentences = [[]]    # of (word, tag)
    for number, line in enumerate(lines, 1):
        where = f'{path}:{number}'
        if is_comment(line, numbered):
            continue
        fields = fields_of(line)
        if not line.strip(' \t') or '-DOCSTART-' in fields[:2]:
            sentences.append([])
            continue
        if numbered and re.fullmatch(r'\d+[-.]\d+', fields[0]):
            continue    # the words of a range follow it; an empty node stands in no text
        if numbered and not fields[0].isdecimal():
            raise ValueError(f'{where}: has no number, as other lines have in column 0: {line!r:.80}')
        columns = columns or usual_columns(fields, numbered, where)
        sentences[-1].append(word_and_tag(fields, columns, where))
    return [{task.words: [word for word, _ in pairs], task.tags: [tag for _, tag in pairs]}
            for pairs in sentences if pairs], {}


def is_numbered(lines, columns):
    """Whether lines begin with the number of a word, as in CoNLL-U, Universal NER and GermEval. Most of those
    with tabs do, so that one line that went wrong changes nothing."""
    if 0 in columns:
        return False    # a number there is a word
    tabbed = [line for line in lines if '\t' in line and not line.startswith('#')]
    numbered = [line for line in tabbed if re.match(r'\d+([-.]\d+)?\t.*\t', line)]
    return len(numbered) > len(tabbed) / 2


def is_comment(line, numbered):
    """Whether a line is a comment. Where lines are numbered no word begins with #; elsewhere # may be a word,
    and a comment is what Universal NER writes: # text = ..., # newdoc id = ..., # newpar; or what
    MultiCoNER does: # id 4cfb and a tab."""
    if numbered:
        return line.startswith('#')
    return bool(re.match(r'# (\w+ )+=( |\s*$)|# new(doc|par)\s*$|# id \S+\t', line))


def fields_of(line):
    """The fields of a line: between tabs, where it has any, and else between spaces. A word of a line with
    tabs may hold spaces, or be one."""
    if '\t' in line:
        return [field.strip(' ') or field for field in line.split('\t')]
    return re.findall('[^ ]+', line)


def usual_columns(fields, numbered, where):
    """The columns of word and tag where the task does not say them, from a file's first word."""
    if not numbered:
        return 0, -1    # CoNLL's, whatever stands between
    if len(fields) == 5:
        return 1, 2     # Universal NER's
    raise ValueError(f'{where}: the words of this file are numbered; say which of its {len(fields)} columns, '
                     'from 0, hold word and tag, as --columns=1,3')


def word_and_tag(fields, columns, where):
    if len(fields) <= max(1, *columns):
        raise ValueError(f'{where}: has a word but no tag in {columns}: {fields!r:.80}')
    word, tag = [fields[column] for column in columns]
    if not word or not tag:
        raise ValueError(f'{where}: its {"tag" if word else "word"} is empty, where columns {columns}, '
                         f'from 0, hold word and tag: {fields!r:.80}; mend the line, or set --columns')
    return word, tag


READERS = {'.jsonl': read_jsonl, '.jsonl.gz': read_jsonl, '.csv': read_csv, '.tsv': read_csv,
           '.parquet': read_parquet, '.iob': read_iob, '.iob2': read_iob, '.conll': read_iob,
           '.json': read_json_array}


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


def json_lines(rows):
    return ''.join(json.dumps(row, ensure_ascii=False) + '\n' for row in rows)

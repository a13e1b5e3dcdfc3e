"""Tables of files and of the hub: (rows as dicts, {column: names of its labels, if it has any})."""
import csv
import gzip
import json
import re
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

from nanoencoder.files import blame
from nanoencoder.settings import free, of_rows, setting


@dataclass(frozen=True)
class Source:
    """Where rows come from, and how their files are read."""
    dataset: str = of_rows('')     # names the folder of its predictions
    source: str = of_rows('')      # a dataset of the hub
    subset: str = of_rows('')      # of a hub dataset, as sst2 of nyu-mll/glue
    revision: str = of_rows('')    # refs/convert/parquet where the main one is a script
    data: str = free('')           # a folder of local files, read instead of the hub
    made_by: str = free('')        # the command that writes that folder
    # files of a word a line
    columns: tuple = of_rows(())   # of word and tag, from 0
    words: str = of_rows('tokens')  # what these columns are called elsewhere
    tags: str = of_rows('tags')
    max_length: int = setting(0, 0)     # tokens of a text; 0: as the authors, round(0.99 x the context)


class Field(str):
    """What a .csv or .tsv has in a column: text by nature, which may stand for a number."""


def read_table(source, names, split, subset='', only=None):
    """The table of a split, from local files or from the hub.

    source  a Source, or a Task
    names   datasets of the hub that it may be in; a local copy may lie in a folder of any of these names
    only    ids of the queries or documents to read; None: all rows"""
    if not source.data:
        return read_hub(names[0], subset, split, source.revision, only)
    folder = Path(source.data)
    if source.made_by and not folder.exists():
        raise ValueError(f'{folder}: is not there yet; first run: {source.made_by}')
    paths = local_files(folder, names, subset, split)
    others = f' and {len(paths) - 1} more' if len(paths) > 1 else ''
    print(f'reads {paths[0]}{others}', file=sys.stderr)
    return read_files(paths, source, only)


def local_files(folder, names, subset, split):
    """The files of a split: `split` is a name, with or without suffix, or a path. They lie in `folder` or in
    the dataset's own folder within it, and there may be in one more, as on the hub. Those in the subset's own
    folder come first. ValueError if more than one file may be meant."""
    names = [name.split('/')[-1] for name in names]
    root = next((folder / name for name in names if (folder / name).is_dir()), folder)
    spellings = [split, 'dev'] if split == 'validation' else [split]
    places = ['', 'data', 'default', 'plain_text', *names]
    searched = [(places, spelling) for spelling in spellings]
    if subset:
        searched = [([subset], spelling) for spelling in spellings] + searched
    for places, spelling in searched:
        paths = dict.fromkeys(root / place / spelling for place in places)
        choices = [files for path in paths for files in files_of(path)]
        if len(choices) > 1:
            there = ', '.join(str(files[0]) for files in choices)
            single = min(choices, key=len)[0]
            raise ValueError(f'{there}: which of them is {split!r}? Remove the others, or name one by its '
                             f'whole path, as --train={single.absolute()}')
        if choices:
            return choices[0]
    there = ', '.join(sorted(path.name for path in root.glob('*'))) or 'nothing'
    raise FileNotFoundError(f'{root}: no {split} with a suffix such as .jsonl, .csv, .parquet or .iob; '
                            f'what is there: {there:.200}; another file is named whole, as '
                            '--train=train.txt; '
                            'validation = "" holds out a share of train')


def files_of(path):
    """What a name may mean: [[a file, with or without its suffix], ..., parquet shards <path>-*.parquet, or
    all in that folder]."""
    files = [Path(f'{path}{suffix}') for suffix in ('', *READERS)]
    choices = [[file] for file in files if file.is_file()]
    # train-small.parquet is a shard of train, but not where there is a train.csv
    beside = f'{path.name}-*-of-*.parquet' if choices else f'{path.name}-*.parquet'
    for shards in (path.parent.glob(beside), path.glob('*.parquet')):
        shards = shards_of(path, sorted(shards))
        if shards:
            choices.append(shards)
    return choices


def shards_of(path, shards):
    """Those of a split among parquet files; ValueError if they are numbered and one is missing."""
    numbered = {}
    for shard in shards:
        # others, as train-clean-00000-of-00001 beside train's own, are another split's
        match = re.match(rf'(?:{re.escape(path.name)}-)?(\d+)-of-(\d+)', shard.name)
        if match:
            numbered[shard] = match
    if not numbered:
        return [shard for shard in shards if shard.parent == path or '-of-' not in shard.name]
    numbers = sorted(int(match[1]) for match in numbered.values())
    total = max(int(match[2]) for match in numbered.values())
    if numbers != [*range(total)]:
        raise ValueError(f'{path}: its shards have the numbers {numbers!s:.200} and not 0 to {total - 1}, '
                         'each once; fetch those that are missing, or remove shards of another set')
    return [*numbered]


def read_files(paths, source, only=None):
    """(rows, {column: names of its labels}) of files; of queries and documents `only` some ids, if given."""
    rows = []
    for path in paths:
        read = read_iob if source.columns else reader_of(path)
        with blame(f'{path}: cannot be read', UnicodeDecodeError, EOFError, zlib.error, gzip.BadGzipFile):
            part, names = read(path, source)
        if only is not None:
            part = [row for row in part if id_of(row) in only]
        rows += part
    if not rows and only is None:
        raise ValueError(f'{paths[0]}: holds no row')
    return rows, names


def reader_of(path):
    for suffix, read in READERS.items():
        if path.name.endswith(suffix):
            return read
    raise ValueError(f'{path}: is none of {", ".join(READERS)}; turn it into .jsonl, an object a line; or '
                     '--columns=0,3 reads a word a line, the word in column 0 and its tag in column 3')


def id_of(row):
    """The id of a query or document, as BEIR and MLDR call it; None if there is none."""
    for column in ('_id', 'docid'):
        if column in row:
            return str(row[column])
    return None


def parse_json(text):
    """What JSON says. A lone surrogate, which JSON can hold and UTF-8 cannot, becomes U+FFFD."""
    content = json.loads(text)
    if '\\ud' in text.lower():
        written = json.dumps(content, ensure_ascii=False)
        content = json.loads(re.sub('[\ud800-\udfff]', '\ufffd', written))
    return content


def read_jsonl(path, source):
    """Objects, one a line."""
    open_text = gzip.open if path.suffix == '.gz' else open
    rows = []
    with open_text(path, 'rt', encoding='utf-8-sig') as file:
        for number, line in enumerate(file, 1):
            if line.isspace():
                continue
            what = f'{path}:{number}: is no JSON object: {line.strip():.80}'
            with blame(what, ValueError, TypeError):
                rows.append({**parse_json(line)})
    return rows, {}


def read_json_array(path, source):
    """A list of objects, or SQuAD's own files."""
    text = path.read_text(encoding='utf-8-sig')
    what = (f'{path}: is no list of objects, nor {{"data": [{{"paragraphs": ...}}]}} as of SQuAD; '
            'a file of an object a line is named .jsonl')
    with blame(what, ValueError, TypeError, LookupError):
        content = parse_json(text)
        if isinstance(content, dict):
            content = squad_rows(content['data'])
        return [{**row} for row in content], {}


def squad_rows(articles):
    """Rows as the hub has them of SQuAD, from articles of paragraphs of questions."""
    rows = []
    for article in articles:
        for paragraph in article['paragraphs']:
            for question in paragraph['qas']:
                answers = question['answers']   # none where it cannot be answered
                rows.append(question | {
                    'title': article.get('title'),
                    'context': paragraph['context'],
                    'answers': {column: [answer[column] for answer in answers]
                                for column in ('text', 'answer_start')}})
    return rows


def read_csv(path, source):
    """Rows below a header. In a .tsv quotes are characters, as in GLUE's files."""
    csv.field_size_limit(2 ** 30)
    form = {}
    if path.suffix == '.tsv':
        form = {'delimiter': '\t', 'quoting': csv.QUOTE_NONE}
    rows = []
    with path.open(encoding='utf-8-sig', newline='') as file:
        reader = csv.DictReader(file, strict=True, **form)
        try:
            for row in reader:
                if None in row or None in row.values():
                    raise csv.Error('has more or fewer fields than the header')
                rows.append({column: Field(text) for column, text in row.items()})
        except csv.Error as error:
            hint = 'is a quote left open? in a .tsv it is a character'
            raise ValueError(f'{path}:{reader.line_num}: {error} ({hint})') from None
    header = reader.fieldnames or []
    if len(set(header)) < len(header):
        raise ValueError(f'{path}: two columns of its header have one name')
    return rows, {}


def read_parquet(path, source):
    import pyarrow.parquet
    with blame(f'{path}: not a whole parquet file', Exception):     # of many kinds, where bits have flipped
        table = pyarrow.parquet.read_table(path)
        metadata = table.schema.metadata or {}
        about = json.loads(metadata.get(b'huggingface', b'{}'))
        features = about.get('info', {}).get('features', {})
        return with_names(table.to_pylist(), features)


def read_iob(path, source):
    """Sentences of a word a line, its tag in another column; an empty line ends a sentence."""
    lines = path.read_text(encoding='utf-8-sig').split('\n')
    columns = source.columns or usual_columns(path, lines)
    is_numbered = 0 not in columns      # the words are, in column 0: no word's line begins with #
    # Elsewhere # may be a word, and a comment is what Universal NER writes: # text = ..., # newdoc id = ...,
    # # newpar; or what MultiCoNER does: # id 4cfb and a tab.
    comment = '#' if is_numbered else r'# (\w+ )+=( |\s*$)|# new(doc|par)\s*$|# id \S+\t'
    sentences = [[]]    # of (word, tag)
    for number, line in enumerate(lines, 1):
        if re.match(comment, line):
            continue
        if '\t' in line:    # a field between tabs may hold spaces, or be one
            fields = [field.strip(' ') or field for field in line.split('\t')]
        else:
            fields = re.findall('[^ ]+', line)
        if not line.strip(' \t') or '-DOCSTART-' in fields[:2]:
            sentences.append([])
            continue
        if is_numbered and re.fullmatch(r'\d+[-.]\d+', fields[0]):
            continue    # the words of a range follow it; an empty node stands in no text
        pair = [fields[column] for column in columns if column < len(fields)]
        if len(fields) < 2 or len(pair) < 2 or '' in pair:
            raise ValueError(f'{path}:{number}: has no word and tag in columns {columns}, from 0: '
                             f'{fields!r:.80}; mend the line, or set --columns')
        sentences[-1].append(pair)
    return [{source.words: [word for word, _ in pairs], source.tags: [tag for _, tag in pairs]}
            for pairs in sentences if pairs], {}


def usual_columns(path, lines):
    """The columns of word and tag where the task does not say them. The words of a file are numbered if most
    lines with tabs begin with a number, so that one line that went wrong changes nothing."""
    tabbed = [line for line in lines if '\t' in line and not line.startswith('#')]
    numbered = [line for line in tabbed if re.match(r'\d+([-.]\d+)?\t.*\t', line)]
    if len(numbered) <= len(tabbed) / 2:
        return 0, -1    # CoNLL's, whatever stands between
    num_columns = numbered[0].count('\t') + 1
    if num_columns == 5:
        return 1, 2     # Universal NER's
    raise ValueError(f'{path}: the words of this file are numbered; say which of its {num_columns} columns, '
                     'from 0, hold word and tag, as --columns=1,3')


READERS = {'.jsonl': read_jsonl, '.jsonl.gz': read_jsonl, '.csv': read_csv, '.tsv': read_csv,
           '.parquet': read_parquet, '.iob': read_iob, '.iob2': read_iob, '.conll': read_iob,
           '.json': read_json_array}


def with_names(rows, features):
    """The table of these rows: class labels become the names that their numbers stand for among a dataset's
    features, as another shard or split may number them otherwise. -1, where there is no label, stays."""
    names = {}
    for column, feature in features.items():
        if 'feature' in feature:    # of a list
            feature = feature['feature']
        if not isinstance(feature, dict) or feature.get('_type') != 'ClassLabel':
            continue
        names[column] = feature['names']
        name_of = dict(enumerate(feature['names']))
        for row in rows:
            value = row[column]
            if isinstance(value, list):
                row[column] = [name_of.get(number, number) for number in value]
            else:
                row[column] = name_of.get(value, value)
    return rows, names


def read_hub(name, subset, split, revision, only=None):
    import datasets
    options = {'name': subset or None}
    if revision == 'refs/convert/parquet':  # has no list of its files
        options = {'data_files': {split: f'{subset or "default"}/{split}/*.parquet'}}
    what = f'no {split} of {name} {subset}, of which --data takes a local copy'
    with blame(what, OSError, ValueError, RuntimeError):
        dataset = datasets.load_dataset(name, split=split, revision=revision or None, **options)
    if only is not None:
        column = '_id' if '_id' in dataset.column_names else 'docid'
        dataset = dataset.select([k for k, value in enumerate(dataset[column]) if str(value) in only])
    return with_names(list(dataset), dataset.features.to_dict())

"""Readers of files of texts and rows.

Corpora and tasks share open_bytes, open_text and json_rows. The others, in READERS, return tables for
tasks: (rows as dicts, {column: names of its labels, if it has any}). Each is given a path and the settings
that say how files are read: delimiter, columns, words and tags of tasks.files' Source."""
import contextlib
import csv
import io
import json
import re
import sys
import zlib

from nanoencoder.encodings import not_utf8, unpacked
from nanoencoder.files import blame

# The first line of words and tags may name its columns, as "Token UPOS" or "word ner_tags".
NAME_OF_WORDS = 'words?|tokens?|form|text'
NAME_OF_TAGS = ('(tag|[ux]?pos|ner|iob2?|bio|entity|chunk|label|class)([-_ ]?(tag|label|type|class))?s?'
                '|ne[-_].+')


class Field(str):
    """What a .csv or .tsv has in a column: text by nature, which may stand for a number."""


def reader_of(path):
    for suffix, read in READERS.items():
        if path.name.endswith(suffix):
            return read
    raise ValueError(f'{path}: is none of {", ".join(READERS)}; turn it into .jsonl, an object a line; or '
                     '--columns=0,3 reads a word a line, the word in column 0 and its tag in column 3 '
                     '(-1: in the last)')


@contextlib.contextmanager
def named_if_damaged(path, *kinds):
    """Turn errors of a damaged file, and those of other `kinds`, into a ValueError that names it."""
    try:
        yield
    except (EOFError, zlib.error, OSError, *kinds) as error:
        if getattr(error, 'errno', None):   # the disk failed, and not what the file holds
            raise
        raise ValueError(f'{path}: damaged or cut off: {error}') from None


@contextlib.contextmanager
def open_bytes(path):
    """Open a file of text, which may be a .gz. ValueError if it is damaged, or not UTF-8."""
    with named_if_damaged(path), unpacked(path) as file:
        if file.peek(100)[:100].count(0) > 20:      # UTF-16 of Latin script: every other byte
            raise ValueError(not_utf8(path))
        try:
            yield file
        except UnicodeDecodeError:      # of open_text, which decodes what it is given here
            raise ValueError(not_utf8(path)) from None


@contextlib.contextmanager
def open_text(path, newline=None):
    with open_bytes(path) as file:
        yield io.TextIOWrapper(file, encoding='utf-8-sig', newline=newline)


def json_rows(path, parse=json.loads):
    """Yield (where it stands, an object) of each line of a .jsonl. A ValueError stands for a line that holds
    no object or is not UTF-8."""
    with open_bytes(path) as file:
        for number, line in enumerate(file, 1):
            if line.isspace():
                continue
            where = f'{path}:{number}'
            try:
                row = {**parse(line.decode('utf-8-sig'))}
            except UnicodeDecodeError:
                row = ValueError(not_utf8(path))
            except (ValueError, TypeError, RecursionError) as error:
                row = ValueError(f'{where}: is no JSON object: {error}')
            yield where, row


def parse_json(text):
    """What JSON says. A lone surrogate, which JSON can hold and UTF-8 cannot, becomes U+FFFD."""
    content = json.loads(text)
    if '\\ud' in text.lower():
        written = json.dumps(content, ensure_ascii=False)
        content = json.loads(re.sub('[\ud800-\udfff]', '\ufffd', written))
    return content


def jsonl_rows(path, source=None):
    """Yield the objects of a .jsonl, one a line. ValueError for the first line that is none."""
    for _, row in json_rows(path, parse_json):
        if isinstance(row, ValueError):
            raise row
        yield row


def json_objects(path):
    """Return the objects of a .jsonl."""
    return [*jsonl_rows(path)]


def read_jsonl(path, source):
    return json_objects(path), {}


def read_json_array(path, source):
    """A list of objects, or SQuAD's own files."""
    with open_text(path) as file:
        text = file.read()
    what = (f'{path}: is no list of objects, nor {{"data": [{{"paragraphs": ...}}]}} as of SQuAD; '
            'a file of an object a line is named .jsonl')
    with blame(what, ValueError, TypeError, LookupError, RecursionError):
        content = parse_json(text)
        is_squad = isinstance(content, dict)
        if is_squad:
            content = squad_rows(content['data'])
        rows = [{**row} for row in content]
    if is_squad:
        for row in rows:
            what = (f'{path}: question {row.get("id")!r:.80}: "answers" must be a list of {{"text": ..., '
                    '"answer_start": ...}, and [] where there is no answer; wrong or missing')
            with blame(what, TypeError, LookupError):
                answers = row['answers']
                row['answers'] = {
                    column: [answer[column] for answer in answers]
                    for column in ('text', 'answer_start')}
    return rows, {}


def squad_rows(articles):
    """Rows of SQuAD's articles of paragraphs of questions."""
    rows = []
    for article in articles:
        for paragraph in article['paragraphs']:
            for question in paragraph['qas']:
                rows.append(question | {
                    'title': article.get('title'),
                    'context': paragraph['context']})
    return rows


def csv_rows(path, source):
    """Yield the rows below a header. In a .tsv quotes are characters, as in GLUE's files."""
    csv.field_size_limit(2 ** 30)
    # --delimiter='\t' reaches us as two characters
    dialect = {'delimiter': source.delimiter.replace('\\t', '\t') or ','}
    if path.suffix == '.tsv':
        dialect = {'delimiter': '\t', 'quoting': csv.QUOTE_NONE}
    with open_text(path, newline='') as file:
        with blame(f"delimiter must be one character, as ';', not {source.delimiter!r:.80}", TypeError):
            reader = csv.DictReader(file, strict=True, **dialect)
        try:
            check_header(path, reader.fieldnames or [], source)
            for row in reader:
                if None in row or None in row.values():
                    raise csv.Error('has more or fewer fields than the header')
                yield {column: Field(text) for column, text in row.items()}
        except csv.Error as error:
            hint = 'is a quote left open? in a .tsv it is a character; is --delimiter another?'
            raise ValueError(f'{path}:{reader.line_num}: {error} ({hint})') from None


def read_csv(path, source):
    return [*csv_rows(path, source)], {}


def check_header(path, header, source):
    """ValueError if the first line of a .csv or .tsv can't be a header, or has another delimiter."""
    named = [name for name in header if name]   # spreadsheets leave empty columns without a name
    if len(set(named)) < len(named):
        raise ValueError(f'{path}: two columns of its header have one name: {", ".join(header):.80}; is the '
                         'first line a header? If it is a row, put a line of names before it')
    if len(header) > 1:
        return
    line = ''.join(header)      # one field, or none
    others = [character for character in ';\t|,' if character in line]
    if others and path.suffix == '.tsv':
        raise ValueError(f'{path}: has no tabs, but {line!r:.80}; name it .csv and see --delimiter')
    if others and not source.delimiter:
        raise ValueError(f'{path}: its header is one field, {line!r:.80}; is the delimiter '
                         f'{others[0]!r}? Then add --delimiter={others[0]!r}')


def read_parquet(path, source):
    import pyarrow.parquet
    with named_if_damaged(path, Exception):     # of many kinds, where bits have flipped
        table = pyarrow.parquet.read_table(path)
        return with_names(table.to_pylist(), features_of(table.schema))


def features_of(schema):
    """Return what the hub's library wrote of a parquet file's columns, {} if it wrote nothing."""
    metadata = schema.metadata or {}
    about = json.loads(metadata.get(b'huggingface', b'{}'))
    return about.get('info', {}).get('features', {})


def parquet_rows(path, source):
    """Yield the rows of a parquet file."""
    import pyarrow.parquet
    with named_if_damaged(path, Exception):
        file = pyarrow.parquet.ParquetFile(path)
        features = features_of(file.schema_arrow)
        for batch in file.iter_batches():
            rows, _ = with_names(batch.to_pylist(), features)
            yield from rows


def read_iob(path, source):
    """Sentences of a word a line, its tag in another column; an empty line ends a sentence. Comments and a
    header are left out. Where a line could also have been a word's, it is printed."""
    with open_text(path) as file:
        lines = file.read().split('\n')
    numbered = numbered_lines(lines)
    columns = source.columns or usual_columns(path, numbered)
    # whether column 0 has the words' numbers
    is_numbered = 0 not in columns and (columns[0] > 0 or bool(numbered))
    comments = comments_of(path, lines, is_numbered)
    sentences = [[]]    # of (word, tag)
    is_first = True     # of the lines of words
    for number, line in enumerate(lines, 1):
        if line in comments:
            continue
        fields = fields_of(line)
        if not line.strip(' \t') or '-DOCSTART-' in fields[:2]:
            sentences.append([])
            continue
        if is_numbered and re.fullmatch(r'\d+[-.]\d+', fields[0]):
            continue    # the words of a range follow it; an empty node stands in no text
        places = [column if column >= 0 else len(fields) + column for column in columns]
        pair = [fields[place] for place in places if 0 <= place < len(fields)]
        if places[0] == places[1] or len(pair) < 2 or '' in pair:
            raise ValueError(f'{path}:{number}: has no word and tag in columns {columns}, from 0 (-1: the '
                             f'last): {fields!r:.80}; mend the line, or set --columns')
        if is_first and is_header(*pair):
            print(f'{path}:{number}: is read as a header: {line!r:.80}', file=sys.stderr)
        else:
            sentences[-1].append(pair)
        is_first = False
    return [{source.words: [word for word, _ in pairs], source.tags: [tag for _, tag in pairs]}
            for pairs in sentences if pairs], {}


def is_header(word, tag):
    """Whether a first line names its columns, as "Token UPOS" or "word ner_tags"."""
    return bool(re.fullmatch(NAME_OF_WORDS, word, re.IGNORECASE) and
                re.fullmatch(NAME_OF_TAGS, tag, re.IGNORECASE))


def fields_of(line):
    if '\t' in line:    # a field between tabs may hold spaces, or be one
        return [field.strip(' ') or field for field in line.split('\t')]
    return re.findall('[^ ]+', line)


def comments_of(path, lines, is_numbered):
    """The set of lines that are comments. If words are numbered, no word's line begins with #. Elsewhere #
    may be a word; comments are those of Universal NER (# text = ..., # newdoc id = ..., # newpar) and of
    MultiCoNER (# id 4cfb and a tab), and lines without a tab that have another number of fields than any line
    of a word."""
    marked = {line for line in lines if line.startswith('#')}
    if is_numbered or not marked:
        return marked
    usual = r'# (\w+ )+=( |\s*$)|# new(doc|par)\s*$|# id \S+\t'
    comments = {line for line in marked if re.match(usual, line)}
    forms_of_words = {form_of(line) for line in lines if line not in marked}
    unusual = [
        line for line in sorted(marked - comments)
        if re.match(r'#+(\s|$)|#(begin|end) document', line) and form_of(line) not in forms_of_words]
    if unusual:
        print(f'{path}: {len(unusual):,} lines are read as comments, as {unusual[0]!r:.80}', file=sys.stderr)
    return comments.union(unusual)


def form_of(line):
    """Return 'tabs', or how many fields a line without tabs has."""
    return 'tabs' if '\t' in line else len(fields_of(line))


def numbered_lines(lines):
    """The lines of numbered words, if most lines with tabs are: one line that went wrong changes nothing."""
    tabbed = [line for line in lines if '\t' in line and not line.startswith('#')]
    numbered = [line for line in tabbed if re.match(r'\d+([-.]\d+)?\t.*\t', line)]
    return numbered if len(numbered) > len(tabbed) / 2 else []


def usual_columns(path, numbered):
    """The columns of word and tag where the task does not say them."""
    if not numbered:
        return 0, -1    # CoNLL's, whatever stands between
    num_columns = numbered[0].count('\t') + 1
    if num_columns == 5:
        return 1, 2     # Universal NER's
    raise ValueError(f'{path}: the words of this file are numbered; say which of its {num_columns} columns, '
                     'from 0, hold word and tag, as --columns=1,3')


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


READERS = {'.jsonl': read_jsonl, '.jsonl.gz': read_jsonl, '.csv': read_csv, '.tsv': read_csv,
           '.parquet': read_parquet, '.iob': read_iob, '.iob2': read_iob, '.conll': read_iob,
           '.json': read_json_array}
# those that can be read a row at a time, however many there are
STREAMS = {'.jsonl': jsonl_rows, '.jsonl.gz': jsonl_rows, '.csv': csv_rows, '.tsv': csv_rows,
           '.parquet': parquet_rows}


def stream(path, source):
    """Yield the rows of a file, and hold few of them in memory."""
    for suffix, rows in STREAMS.items():
        if path.name.endswith(suffix):
            return rows(path, source)
    raise ValueError(f'{path}: is none of {", ".join(STREAMS)}; turn it into a .csv with a header, or into '
                     '.jsonl, an object a line')

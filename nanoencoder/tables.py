"""Readers of files of rows: (rows as dicts, {column: names of its labels, if it has any}).

A reader is given a path and the settings that say how files are read: columns, words and tags of tasks.files'
Source."""
import csv
import gzip
import json
import re

from nanoencoder.files import blame


class Field(str):
    """What a .csv or .tsv has in a column: text by nature, which may stand for a number."""


def reader_of(path):
    for suffix, read in READERS.items():
        if path.name.endswith(suffix):
            return read
    raise ValueError(f'{path}: is none of {", ".join(READERS)}; turn it into .jsonl, an object a line; or '
                     '--columns=0,3 reads a word a line, the word in column 0 and its tag in column 3')


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

"""The embedded texts: the documentation of numpy, scipy, torch and pandas, which are installed anyway.

    python examples/embedded_docs.py    # half a minute; then: python data.py configs/corpora/docs.py

It writes texts to pretrain on, texts/embedded/{train,validation}/docs.jsonl, and two small tasks,
texts/docs_tc and texts/docs_ir, whose labels are what the authors wrote. All change with the packages'
versions: tables print a fingerprint, and nothing may rely on exact content."""
import ast
import collections
import hashlib
import importlib.metadata
import importlib.util
import inspect
import json
import multiprocessing
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm  # with disable=None: shown if somebody watches

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))   # nanoencoder is not installed as a package
from nanoencoder.files import locked, read_json, remove, sha256, whole, write_json
from nanoencoder.predictions import json_lines
from nanoencoder.settings import check, parse, run_main

PACKAGES = ('numpy', 'scipy', 'torch', 'pandas')
SPLITS = ('train', 'validation', 'test')
ROLE = r':[\w:]+:`~?([^`<]+?)(?: <[^`]*>)?`'  # a role of reStructuredText
MARKED = re.compile(ROLE + r'|``([^`]+)``|`([^`<]+)`_?|(?<![\w*])\*(\w[^*\s]*)\*(?![\w*])')


@dataclass(frozen=True)
class Settings:
    out: str = 'texts'      # the folder to write

    __post_init__ = check


def write_once(out, name, packages, sources, make):
    """Write the files of make(), which returns (documents, tasks), unless that was done with the same
    versions of packages and the same sources. One process writes at a time; others wait."""
    made_from = {'python': sys.version}
    for package in packages:
        made_from[package] = importlib.metadata.version(package)
    for source in sources:
        made_from[Path(source).name] = sha256(source)
    mark = Path(out, f'embedded/{name}.json')   # written last
    with locked(mark, wait=True):
        if mark.exists() and read_json(mark) == made_from:
            print(f'{out}: {name} is there already; to write it again, remove {mark}')
            return
        remove(mark)
        print(f'{out}: making {name} from {", ".join(packages)}, which takes up to a minute', flush=True)
        for path, rows in files_of(name, *make()).items():
            with whole(Path(out, path)) as temporary:
                temporary.write_text(json_lines(rows), encoding='utf-8')
            print(f'{out}/{path}: {len(rows):,} rows')
        write_json(mark, made_from)


def files_of(name, documents, tasks):
    """{path: rows} of documents, [(split, file, text)], and tasks, {task: {split: rows}}."""
    files = {}
    for wanted in ('train', 'validation'):
        rows = [{'text': text, 'file': file} for split, file, text in documents if split == wanted]
        files[f'embedded/{wanted}/{name}.jsonl'] = rows
    for task, splits in tasks.items():
        for split, rows in splits.items():
            files[f'{task}/{split}.jsonl'] = rows
    return files


def make():
    texts = documents()
    return texts, tasks(texts)


def documents():
    """[(split, file, docstring)], sorted by file. A text that is in several files is only in test's, else in
    validation's."""
    rows = []
    with multiprocessing.Pool() as pool:
        for package in tqdm(PACKAGES, 'reading packages', leave=False, disable=None):
            root = Path(importlib.util.find_spec(package).origin).parent
            paths = [*root.rglob('*.py')]
            for path, texts in zip(paths, pool.imap(docstrings, paths, chunksize=32)):
                file = path.relative_to(root.parent).as_posix()
                split = split_of(file)
                rows += [(split, file, text) for text in texts]
    rows.sort(key=lambda row: (-SPLITS.index(row[0]), row[1]))
    unique = {}
    for split, file, text in rows:
        unique.setdefault(text, (split, file, text))
    return sorted(unique.values(), key=lambda row: row[1])


def split_of(file):
    """By file, as near-copies of a text share one: a tenth is held out for test, and one for validation."""
    digest = hashlib.md5(file.encode()).hexdigest()
    tenth = int(digest, 16) % 10
    if tenth < 2:
        return ('test', 'validation')[tenth]
    return 'train'


def docstrings(path):
    """The docstrings of a Python file, and the strings it gives to add_docstr and add_newdoc."""
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (SyntaxError, ValueError):  # some packages ship templates and deliberately broken files
        return []
    texts = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            texts.append(ast.get_docstring(node) or '')
        elif isinstance(node, ast.Call):
            name = getattr(node.func, 'attr', getattr(node.func, 'id', ''))
            if 'add_docstr' in name or 'add_newdoc' in name:
                parts = [part for argument in node.args for part in ast.walk(argument)]
                values = [getattr(part, 'value', '') for part in parts]
                strings = [value for value in values if isinstance(value, str) and ' ' in value]
                texts.append('\n'.join(map(inspect.cleandoc, strings)))
    # doctests are left out: what begins with >>>, up to the next empty line
    texts = [re.sub(r'(?m)^[ \t]*>>>.*(\n.*\S.*)*\n?', '', text) for text in texts]
    texts = [re.sub(r'\n{3,}', '\n\n', text).strip() for text in texts]
    return [text for text in texts if text]


def tasks(documents):
    """{'docs_ir', 'docs_tc': {split: rows}}"""
    pairs = []
    tagging = []
    for split, _, text in tqdm(documents, 'making tasks', leave=False, disable=None):
        paragraphs = re.split(r'\n\s*\n', text)
        prose = [lines for lines in map(str.splitlines, paragraphs) if is_prose(lines)]
        if len(prose) > 1 and prose[0] == paragraphs[0].splitlines():
            query, detail = summary_and_detail(prose)
            if query:
                pairs.append((split, query, detail))
        for lines in prose:
            for words, tags in marked_sentences(lines):
                tagging.append((split, {'tokens': words, 'tags': tags}, ' '.join(words)))
    counts = collections.Counter(text for _, *pair in pairs for text in pair)
    retrieval = []
    for split, query, detail in pairs:
        if counts[query] == counts[detail] == 1:    # others are boilerplate
            row = {'query': query, 'positive': detail}
            retrieval.append((split, row, detail))
    return {
        'docs_ir': without_copies(retrieval),
        'docs_tc': without_copies(tagging)}


def without_copies(rows):
    """{split: rows with ids} of [(split, row, text)]. Drops a row that is there already, and a held-out row
    that shares more than half of its text's eight-word sequences with the training rows."""
    in_training = set()
    for split, _, text in rows:
        if split == 'train':
            in_training |= shingles(text)
    unique = {split: [] for split in SPLITS}
    seen = set()
    for split, row, text in rows:
        parts = shingles(text)
        written = json.dumps(row)
        leaks = split != 'train' and len(parts & in_training) > len(parts) / 2
        if written not in seen and not leaks:
            seen.add(written)
            number = len(unique[split])
            unique[split].append({'id': f'{split}-{number}'} | row)
    return unique


def shingles(text):
    """Its sequences of eight words, as hashes."""
    words = text.split()
    found = set()
    for start in range(max(1, len(words) - 7)):
        eight = words[start:start + 8]
        found.add(hash(tuple(eight)))
    return found


def is_prose(lines):
    """Sentences at the left margin: no list, table, directive, signature, heading or section."""
    if any(re.match(r'[\s.\-*+|>#=@$!]|\W+$', line) for line in lines):
        return False
    if re.match(r'[\w.]*\(|\w+ ?: |:\w+|\d+[.)]|See ', lines[0]):
        return False
    text = ' '.join(map(str.rstrip, lines))
    if '->' in text:
        return False
    letters = sum(character.isalpha() or character == ' ' for character in text)
    return letters > 0.75 * len(text) and len(text.split()) > 4


def plain(lines):
    """The words of lines, without the markup of reStructuredText."""
    text = ' '.join(line.strip() for line in lines)
    text = re.sub(ROLE, r'\1', text)
    text = re.sub(r'`{1,2}([^`]*)`{1,2}_?|\*{1,2}(\w[^*]*)\*{1,2}', r'\1\2', text)
    return text.split()


def summary_and_detail(prose):
    """The first paragraph, of 5 to 30 words, and the second, of at least 12, cut at 60; or two empty texts.
    A pair that shares a name (torch.add, n_samples, DataFrame) would be found by that: two empty texts."""
    summary = plain(prose[0])
    detail = plain(prose[1])
    fits = 5 <= len(summary) <= 30 and len(detail) >= 12
    if not fits or names_in(summary) & names_in(detail):
        return '', ''
    return ' '.join(summary), ' '.join(detail[:60])


def names_in(words):
    """The words that look like names in code, without the punctuation around them."""
    names = set()
    for word in words:
        if re.search(r'\w[_.(\d]\w|[a-z][A-Z]|_', word):
            names.add(word.strip('.,:;()\'"'))
    return names


def marked_sentences(lines):
    """[(words, tags)]: sentences of 6 to 48 words in which the author marked code. BIO tags replace marks."""
    tagged = []
    text = ' '.join(line.strip() for line in lines)
    for sentence in re.split(r'(?<=[.!?]) +(?=[A-Z`*:])', text):
        parts = [part for part in MARKED.split(sentence) if part is not None]   # each second one was marked
        part_of = [number for number, part in enumerate(parts) for _ in part]   # of a character
        # words are cut after the marks are gone, so that punctuation does not tell where they were
        unmarked = ''.join(parts)
        words = []
        tags = []
        before = None
        for match in re.finditer(r'\w+(?:\.\w+)*|[^\w\s]', unmarked):
            part = part_of[match.start()]
            tag = 'O'
            if part % 2 == 1:
                tag = 'I-CODE' if part == before else 'B-CODE'
            words.append(match[0])
            tags.append(tag)
            before = part
        # what is left of markup would tell the label
        if 6 <= len(words) <= 48 and 'B-CODE' in tags and not re.search(r'[`*]|:\w+:', unmarked):
            tagged.append((words, tags))
    return tagged


def main():
    cfg, _ = parse(Settings, sys.argv[1:])
    write_once(cfg.out, 'docs', PACKAGES, [__file__], make)


if __name__ == '__main__':
    run_main(main)

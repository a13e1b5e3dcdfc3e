"""The embedded texts: the documentation of numpy, scipy, torch and pandas, which are installed anyway.

`documents` makes a corpus of it and `tasks` two small tasks, whose labels are what the authors wrote.
Both change with the packages' versions: tables print a fingerprint, and nothing may rely on exact content."""
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
from pathlib import Path

from tqdm import tqdm  # with disable=None: shown if somebody watches

from nanoencoder.files import locked, read_json, write_json

PACKAGES = ('numpy', 'scipy', 'torch', 'pandas')
SPLITS = ('train', 'validation', 'test')
CACHE = 'corpora/tasks'  # what data.py and the tasks extract, once for both
ROLE = r':[\w:]+:`~?([^`<]+?)(?: <[^`]*>)?`'  # a role of reStructuredText
MARKED = re.compile(ROLE + r'|``([^`]+)``|`([^`<]+)`_?|(?<![\w*])\*(\w[^*\s]*)\*(?![\w*])')


def key(packages=PACKAGES, sources=(__file__,)):
    """Of what is extracted: what it is read from and by."""
    versions = [sys.version, *map(importlib.metadata.version, packages)]
    code = b''.join(Path(source).read_bytes() for source in sources)
    return hashlib.sha256('\n'.join(versions).encode() + code).hexdigest()[:12]


def documents(cache=CACHE):
    """[(split, file, docstring)], sorted by file; no text twice, and in test first, then in validation."""
    path = Path(cache, f'documents-{key()}.json')
    with locked(path, wait=True):
        if not path.exists():
            write_json(path, extracted(), indent=None)
    return list(map(tuple, read_json(path)))


def extracted():
    """As `documents`, read from the packages' files."""
    rows, unique = [], {}
    with multiprocessing.Pool() as pool:
        for package in PACKAGES:
            root = Path(importlib.util.find_spec(package).origin).parent
            paths = [*root.rglob('*.py')]
            read = pool.imap(docstrings, paths, chunksize=32)
            for path, texts in zip(paths, tqdm(read, package, len(paths), leave=False, disable=None)):
                name = path.relative_to(root.parent).as_posix()
                # by file, as near-copies share one: a tenth is held out for test, and validation
                tenth = int(hashlib.md5(name.encode()).hexdigest(), 16) % 10
                rows += [({0: 'test', 1: 'validation'}.get(tenth, 'train'), name, text) for text in texts]
    for row in sorted(rows, key=lambda row: (-SPLITS.index(row[0]), row[1])):
        unique.setdefault(row[2], row)
    return sorted(unique.values(), key=lambda row: row[1])


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
                strings = [part.value for argument in node.args for part in ast.walk(argument)
                           if isinstance(getattr(part, 'value', None), str) and ' ' in part.value]
                texts.append('\n'.join(map(inspect.cleandoc, strings)))
    # doctests go: what begins with >>>, up to the next empty line
    texts = [re.sub(r'(?m)^[ \t]*>>>.*(\n.*\S.*)*\n?', '', text) for text in texts]
    return [text for text in (re.sub(r'\n{3,}', '\n\n', text).strip() for text in texts) if text]


def tasks(cache=CACHE):
    """{'docs_ir', 'docs_tc': {split: rows}}"""
    pairs, sentences = [], []
    for split, _, text in tqdm(documents(cache), 'making tasks', leave=False, disable=None):
        paragraphs = [[line.rstrip() for line in part.splitlines()] for part in re.split(r'\n\s*\n', text)]
        prose = [lines for lines in paragraphs if is_prose(lines)]
        if prose[1:] and prose[0] is paragraphs[0] and (pair := summary_and_detail(prose)):
            pairs.append((split, *pair))
        sentences += [(split, *sentence) for lines in prose for sentence in marked_sentences(lines)]
    counts = collections.Counter(half for _, *pair in pairs for half in pair)
    retrieval = [(split, {'query': query, 'positive': detail}, detail) for split, query, detail in pairs
                 if counts[query] == counts[detail] == 1]   # others are boilerplate
    tagging = [(split, {'tokens': words, 'tags': tags}, ' '.join(words)) for split, words, tags in sentences]
    return {'docs_ir': without_copies(retrieval), 'docs_tc': without_copies(tagging)}


def without_copies(rows):
    """{split: rows with ids} of (split, row, text): none twice, nor held out and mostly training text."""
    def shingles(text):
        words = text.split()
        return {hash(tuple(words[k:k + 8])) for k in range(max(1, len(words) - 7))}
    in_training = set().union(*(shingles(text) for split, _, text in rows if split == 'train'))
    unique, seen = {split: [] for split in SPLITS}, set()
    for split, row, text in rows:
        parts, written = shingles(text), json.dumps(row)
        if written not in seen and (split == 'train' or len(parts & in_training) <= len(parts) / 2):
            seen.add(written)
            unique[split].append({'id': f'{split}-{len(unique[split])}'} | row)
    return unique


def is_prose(lines):
    """Sentences at the left margin: no list, table, directive, signature, heading or section."""
    text = ' '.join(lines)
    letters = sum(character.isalpha() or character == ' ' for character in text)
    return (not any(re.match(r'[\s.\-*+|>#=@$!]|\W+$', line) for line in lines) and '->' not in text
            and not re.match(r'[\w.]*\(|\w+ ?: |:\w+|\d+[.)]|See ', lines[0]) and letters > 0.75 * len(text)
            and len(text.split()) > 4)


def plain(lines):
    text = re.sub(ROLE, r'\1', ' '.join(line.strip() for line in lines))
    return ' '.join(re.sub(r'`{1,2}([^`]*)`{1,2}_?|\*{1,2}(\w[^*]*)\*{1,2}', r'\1\2', text).split())


def summary_and_detail(prose):
    """The first paragraph, of 5 to 30 words, and the second, of at least 12, cut at 60; or None.
    A pair that shares a name (torch.add, n_samples, DataFrame) would be found by that alone: None."""
    summary, detail = (plain(part).split() for part in prose[:2])
    names = [{word.strip('.,:;()\'"') for word in words if re.search(r'\w[_.(\d]\w|[a-z][A-Z]|_', word)}
             for words in (summary, detail)]
    if 5 <= len(summary) <= 30 and len(detail) >= 12 and not names[0] & names[1]:
        return ' '.join(summary), ' '.join(detail[:60])


def marked_sentences(lines):
    """[(words, tags)]: sentences of 6 to 48 words in which the author marked code. BIO tags replace marks."""
    tagged = []
    for sentence in re.split(r'(?<=[.!?]) +(?=[A-Z`*:])', ' '.join(line.strip() for line in lines)):
        parts = [part for part in MARKED.split(sentence) if part is not None]  # each second one was marked
        # words are cut after the marks are gone, so that punctuation does not tell where they were
        text, part_of = ''.join(parts), [k for k, part in enumerate(parts) for _ in part]
        matches = [*re.finditer(r'\w+(?:\.\w+)*|[^\w\s]', text)]
        words, inside = [match[0] for match in matches], [part_of[match.start()] for match in matches]
        tags = ['O' if part % 2 == 0 else 'I-CODE' if part == before else 'B-CODE'
                for before, part in zip([None, *inside], inside)]
        # what is left of markup would tell the label
        if 6 <= len(words) <= 48 and 'B-CODE' in tags and not re.search(r'[`*]|:\w+:', text):
            tagged.append((words, tags))
    return tagged

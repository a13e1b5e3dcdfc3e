"""The embedded texts: the documentation of numpy, scipy, torch and pandas, which are installed anyway.

`documents` makes a corpus of it and `tasks` four small tasks, whose labels are what the authors wrote.
Both change with the packages' versions: tables print a fingerprint, and nothing may rely on exact content.
"""
import ast
import collections
import hashlib
import importlib.util
import inspect
import json
import multiprocessing
import random
import re
from pathlib import Path

from tqdm import tqdm  # with disable=None: shown if somebody watches

PACKAGES = ('numpy', 'scipy', 'torch', 'pandas')
SPLITS = ('train', 'validation', 'test')


def documents():
    """[(split, file, docstring)], sorted by file; no text twice, and in test first, then in validation."""
    files = {}  # name: path
    for package in PACKAGES:
        if (spec := importlib.util.find_spec(package)) is None:
            raise ValueError(f'the docs corpus reads the package {package}, which is not installed')
        root = Path(spec.origin).parent
        files |= {path.relative_to(root.parent).as_posix(): str(path) for path in root.rglob('*.py')}
    with multiprocessing.Pool() as pool:
        read = pool.imap(docstrings, files.values(), chunksize=32)
        texts = dict(zip(files, tqdm(read, 'reading docstrings', len(files), leave=False, disable=None)))
    sources = {}  # of each text: split and file
    for name in sorted(files, key=lambda name: (-SPLITS.index(split_of(name)), name)):
        for text in texts[name]:
            sources.setdefault(text, (split_of(name), name))
    return sorted(((split, file, text) for text, (split, file) in sources.items()), key=lambda row: row[1])


def split_of(name):
    """By file, as near-copies share one: a tenth each is held out for test and for validation."""
    return {0: 'test', 1: 'validation'}.get(int(hashlib.md5(name.encode()).hexdigest(), 16) % 10, 'train')


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
    return [text for text in map(without_doctests, texts) if text]


def without_doctests(text):
    """The text less its `>>>` blocks, each of which ends with an empty line."""
    lines, inside = [], False
    for line in text.splitlines():
        inside = line.lstrip().startswith('>>>') or inside and line.strip() != ''
        if not inside:
            lines.append(line)
    return re.sub(r'\n{3,}', '\n\n', '\n'.join(lines)).strip()


# ------------------------------------------------------------------------------------------------------ tasks

def tasks(documents):
    """{'docs_sc' | 'docs_ir' | 'docs_tc' | 'docs_qa': {split: rows}} of [(split, file, docstring)]."""
    pairs, sentences, blocks = [], [], []
    for split, file, text in tqdm(documents, 'making tasks', leave=False, disable=None):
        paragraphs = [part.splitlines() for part in re.split(r'\n\s*\n', text) if part.strip()]
        paragraphs = [[line.rstrip() for line in lines] for lines in paragraphs]
        prose = [lines for lines in paragraphs if is_prose(lines)]
        if prose[1:] and prose[0] is paragraphs[0] and (pair := summary_and_detail(prose)):
            pairs.append((split, file, *pair))
        sentences += [(split, *sentence) for lines in prose for sentence in marked_sentences(lines)]
        if len(block := parameter_block(text)) > 1:
            blocks.append((split, file, block))
    counts = collections.Counter(half for _, _, *pair in pairs for half in pair)
    pairs = [pair for pair in pairs if counts[pair[2]] == counts[pair[3]] == 1]  # others are boilerplate
    retrieval = [(split, {'query': query, 'positive': detail}, detail) for split, _, query, detail in pairs]
    tagging = [(split, {'tokens': words, 'tags': tags}, ' '.join(words)) for split, words, tags in sentences]
    return {'docs_sc': without_copies(docs_sc(pairs)), 'docs_ir': without_copies(retrieval),
            'docs_tc': without_copies(tagging), 'docs_qa': without_copies(docs_qa(blocks))}


def without_copies(rows):
    """{split: rows with ids} of (split, row, text): none twice, nor held out and mostly training text."""
    def shingles(text):
        words = text.split()
        return {hash(tuple(words[k:k + 8])) for k in range(max(1, len(words) - 7))}
    in_training = set().union(*(shingles(text) for split, _, text in rows if split == 'train'))
    unique, seen = {split: [] for split in SPLITS}, set()
    for split, row, text in rows:
        own, written = shingles(text), json.dumps(row)
        if written not in seen and (split == 'train' or len(own & in_training) <= len(own) / 2):
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


ROLE = r':[\w:]+:`~?(?P<role>[^`<]+?)(?: <[^`]*>)?`'  # a role of reStructuredText


def plain(lines):
    """A paragraph as text without markup."""
    text = re.sub(ROLE, r'\g<role>', ' '.join(line.strip() for line in lines))
    return ' '.join(re.sub(r'`{1,2}([^`]*)`{1,2}_?|\*{1,2}(\w[^*]*)\*{1,2}', r'\1\2', text).split())


def summary_and_detail(prose):
    """The first paragraph, of 5 to 30 words, and the second, of at least 12, cut at 60; or None.

    A pair that shares a name (torch.add, n_samples, DataFrame) would be found by that alone: None.
    """
    summary, detail = (plain(part).split() for part in prose[:2])
    names = [{word.strip('.,:;()\'"') for word in words if re.search(r'\w[_.(\d]\w|[a-z][A-Z]|_', word)}
             for words in (summary, detail)]
    if 5 <= len(summary) <= 30 and len(detail) >= 12 and not names[0] & names[1]:
        return ' '.join(summary), ' '.join(detail[:60])


def docs_sc(pairs):
    """Does this detail belong to this summary? Of two neighbours in a file, a hash may swap the details.

    So each text occurs once, and no detail alone tells the label. A file's odd last pair is left out.
    """
    by_file = collections.defaultdict(list)
    for split, file, *pair in pairs:
        by_file[split, file].append(pair)
    rows = []
    for (split, file), neighbours in by_file.items():
        for k in range(len(neighbours) // 2 * 2):
            swapped = hashlib.md5(f'{file} {k // 2}'.encode()).digest()[0] % 2
            summary, detail = neighbours[k][0], neighbours[k ^ swapped][1]
            row = {'summary': summary, 'detail': detail, 'label': ('same', 'other')[swapped]}
            rows.append((split, row, f'{summary} {detail}'))
    return rows


MARKED = re.compile(ROLE + r'|``(?P<code>[^`]+)``|`(?P<name>[^`<]+)`_?'
                    r'|(?<![\w*])\*(?P<italic>\w[^*\s]*)\*(?![\w*])')


def marked_sentences(lines):
    """[(words, tags)]: sentences of 6 to 48 words in which the author marked code. BIO tags replace marks.

    Words are cut after the marks are gone, so that punctuation does not tell where they were.
    """
    tagged = []
    for sentence in re.split(r'(?<=[.!?]) +(?=[A-Z`*:])', ' '.join(line.strip() for line in lines)):
        text, entity, end = '', [], 0  # of each character the number of the mark it was in, 0 for none
        for number, match in enumerate(MARKED.finditer(sentence), 1):
            marked = next(group for group in match.groups() if group is not None)
            for part, mark in ((sentence[end:match.start()], 0), (marked, number)):
                text += part
                entity += [mark] * len(part)
            end = match.end()
        text, entity = text + sentence[end:], entity + [0] * len(sentence[end:])
        matches = list(re.finditer(r'\w+(?:\.\w+)*|[^\w\s]', text))
        words, marks = [match[0] for match in matches], [entity[match.start()] for match in matches]
        tags = ['O' if not mark else 'I-CODE' if mark == before else 'B-CODE'
                for mark, before in zip(marks, [0, *marks])]
        # what is left of markup would tell the label
        if 6 <= len(words) <= 48 and 'B-CODE' in tags and not re.search(r'[`*]|:\w+:', text):
            tagged.append((words, tags))
    return tagged


def parameter_block(text):
    """[(name, type, description)] of the section Parameters of a numpydoc docstring."""
    section = re.search(r'(?ms)^Parameters\n-{4,}\n(.*?)(?=\n\S[^\n]*\n-{3,}\n|\Z)', text)
    parameters = []
    for line in section[1].splitlines() if section else ():
        head = re.fullmatch(r'(\w+) ?: (\S.*)', line)
        if head:
            kind = re.split(r', optional|, default|\. Default|; optional', head[2])[0].strip(' ,')
            parameters.append([head[1], kind, ''])
        elif parameters and line.startswith(' '):
            parameters[-1][2] += ' ' + line.strip()
        elif line.strip():
            return []
    return [(name, kind, plain([about]).strip()) for name, kind, about in parameters
            if 1 <= len(kind.split()) <= 8 and '`' not in kind]


def docs_qa(blocks):
    """What is the type of NAME? The context names each parameter, its type and its description, in prose.

    A quarter of the questions asks for a parameter of another docstring in the file, and has no answer.
    """
    names = collections.defaultdict(list)
    for _, file, block in blocks:
        names[file] += [name for name, _, _ in block]
    rows = []
    for split, file, block in blocks:
        context, starts = '', []
        for name, kind, about in block:
            starts.append(len(f'{context}{name} is '))
            sentence = re.split(r'(?<=[.]) ', about)[0][:200]
            context += f'{name} is {kind}. ' + (f'{sentence} ' if sentence else '')
        others = [other for other in names[file] if not re.search(rf'\b{re.escape(other)}\b', context)]
        draw = random.Random(context)
        for k in draw.sample(range(len(block)), min(4, len(block))):
            name, answers = block[k][0], {'text': [block[k][1]], 'answer_start': [starts[k]]}
            if draw.random() < 0.25 and others:
                name, answers = draw.choice(others), {'text': [], 'answer_start': []}
            row = {'question': f'What is the type of {name}?', 'context': context.strip(), 'answers': answers}
            rows.append((split, row, context))
    return rows

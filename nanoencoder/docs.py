"""The embedded data: the English that numpy, scipy, torch and pandas are documented in, on every machine once the
requirements are installed, as a corpus (`documents`) and four small tasks (`tasks`) whose labels are what authors wrote.

It changes with the packages' versions, so tables print a fingerprint, and nothing may depend on its exact content.
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

PACKAGES = ('numpy', 'scipy', 'torch', 'pandas')
SPLITS = ('train', 'validation', 'test')


def documents():
    """[(split, file, docstring)]: the English that numpy, scipy, torch and pandas are documented in, sorted by file.

    Held out by file, since near-copies share one: md5 of its path modulo 10 is 0 for test, 1 for validation.
    A text that occurs twice is kept once, in test rather than in validation rather than in train.
    """
    files = []
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec is None:
            raise ValueError(f'the docs corpus reads the package {package}, which is not installed')
        root = Path(spec.origin).parent
        files += sorted((path.relative_to(root.parent).as_posix(), str(path)) for path in root.rglob('*.py'))
    with multiprocessing.Pool() as pool:
        found = pool.map(docstrings, [path for _, path in files], chunksize=32)
    order = {'test': 0, 'validation': 1, 'train': 2}
    kept = {}
    for split, name, texts in sorted(((split_of(name), name, texts) for (name, _), texts in zip(files, found)),
                                     key=lambda item: (order[item[0]], item[1])):
        for text in texts:
            kept.setdefault(text, (split, name))
    return sorted(((split, name, text) for text, (split, name) in kept.items()), key=lambda item: item[1])


def split_of(name):
    place = int(hashlib.md5(name.encode()).hexdigest(), 16) % 10
    return {0: 'test', 1: 'validation'}.get(place, 'train')


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
                parts = [part.value for argument in node.args for part in ast.walk(argument)
                         if isinstance(part, ast.Constant) and isinstance(part.value, str) and ' ' in part.value]
                texts.append('\n'.join(inspect.cleandoc(part) for part in parts))
    texts = [without_doctests(text) for text in texts]
    return [text for text in texts if text]


def without_doctests(text):
    """The text less its `>>>` blocks, each of which ends with an empty line."""
    kept, inside = [], False
    for line in text.splitlines():
        inside = line.lstrip().startswith('>>>') or inside and line.strip() != ''
        if not inside:
            kept.append(line)
    return re.sub(r'\n{3,}', '\n\n', '\n'.join(kept)).strip()


# ------------------------------------------------------------------------------------------------------ tasks

def tasks(documents):
    """{'docs_sc' | 'docs_tc' | 'docs_qa' | 'docs_ir': {split: rows}} of [(split, file, docstring)]."""
    pairs, sentences, questions = [], [], []
    for split, file, text in documents:
        parts = paragraphs(text)
        if pair := summary_and_detail(parts):
            pairs.append((split, file, *pair))
        sentences += [(split, file, *found) for part in parts if is_prose(part) for found in marked_sentences(part)]
        questions += [(split, file, parameters) for parameters in [parameter_block(text)] if len(parameters) > 1]
    counts = collections.Counter(half for _, _, *pair in pairs for half in pair)
    pairs = [pair for pair in pairs if counts[pair[2]] == counts[pair[3]] == 1]  # what occurs twice is boilerplate
    made = {'docs_sc': docs_sc(pairs), 'docs_ir': [(split, {'query': query, 'positive': positive}, positive)
                                                  for split, _, query, positive in pairs],
            'docs_tc': [(split, {'tokens': words, 'tags': tags}, ' '.join(words)) for split, _, words, tags in sentences],
            'docs_qa': docs_qa(questions)}
    return {name: without_copies(rows) for name, rows in made.items()}


def without_copies(rows):
    """{split: rows with ids}, of (split, row, text): each text once; held-out texts mostly made of training ones go."""
    def shingles(text):
        words = text.split()
        return {hash(tuple(words[k:k + 8])) for k in range(max(1, len(words) - 7))}
    seen = set().union(*(shingles(text) for split, _, text in rows if split == 'train'))
    kept, texts = {split: [] for split in SPLITS}, set()
    for split, row, text in rows:
        mine = shingles(text)
        if json.dumps(row) in texts or split != 'train' and len(mine & seen) > len(mine) / 2:
            continue
        texts.add(json.dumps(row))
        kept[split].append({'id': f'{split}-{len(kept[split])}'} | row)
    return kept


def paragraphs(text):
    return [[line.rstrip() for line in part.splitlines()] for part in re.split(r'\n\s*\n', text) if part.strip()]


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
    text = ' '.join(line.strip() for line in lines)
    text = re.sub(ROLE, r'\g<role>', text)
    return ' '.join(re.sub(r'`{1,2}([^`]*)`{1,2}_?|\*{1,2}(\w[^*]*)\*{1,2}', r'\1\2', text).split())


def summary_and_detail(parts):
    """(first paragraph, of 5 to 30 words; second paragraph of prose, at least 12 words, cut at 60) or None.

    A pair that shares a name (torch.add, n_samples, DataFrame) would be found by that alone: None.
    """
    prose = [part for part in parts if is_prose(part)][:2]
    if len(prose) < 2 or prose[0] is not parts[0]:
        return None
    first, second = (plain(part).split() for part in prose)
    names = [{word.strip('.,:;()\'"') for word in words if re.search(r'\w[_.(\d]\w|[a-z][A-Z]|_', word)}
             for words in (first, second)]
    if not 5 <= len(first) <= 30 or len(second) < 12 or names[0] & names[1]:
        return None
    return ' '.join(first), ' '.join(second[:60])


def docs_sc(pairs):
    """Does this detail belong to this summary? In every second couple of docstrings of a file the details are swapped.

    So each text occurs once, and no detail alone tells the label. A file's odd last one has no other, and is left out.
    """
    by_file = {}
    for pair in pairs:
        by_file.setdefault(pair[1], []).append(pair)
    rows = []
    for file, found in by_file.items():
        for k, (split, _, summary, detail) in enumerate(found[:len(found) // 2 * 2]):
            swapped = hashlib.md5(f'{file} {k // 2}'.encode()).digest()[0] % 2
            detail = found[k ^ 1][3] if swapped else detail
            row = {'summary': summary, 'detail': detail, 'label': ('same', 'other')[swapped]}
            rows.append((split, row, f'{summary} {detail}'))
    return rows


MARKED = re.compile(ROLE + r'|``(?P<code>[^`]+)``|`(?P<name>[^`<]+)`_?|(?<![\w*])\*(?P<italic>\w[^*\s]*)\*(?![\w*])')


def marked_sentences(lines):
    """[(words, tags)]: sentences of 6 to 48 words in which the author marked code; the marks become BIO tags and go.

    Words are cut from the text without marks, by one rule for all, so that punctuation does not tell where marks were.
    """
    found = []
    for sentence in re.split(r'(?<=[.!?]) +(?=[A-Z`*:])', ' '.join(line.strip() for line in lines)):
        text, entity, at = '', [], 0  # of each character the number of the mark it was in, 0 for none
        for number, match in enumerate(MARKED.finditer(sentence), 1):
            marked = next(group for group in match.groups() if group is not None)
            for part, mark in ((sentence[at:match.start()], 0), (marked, number)):
                text += part
                entity += [mark] * len(part)
            at = match.end()
        text, entity = text + sentence[at:], entity + [0] * len(sentence[at:])
        words, tags, before = [], [], 0
        for match in re.finditer(r'\w+(?:\.\w+)*|[^\w\s]', text):
            mark = entity[match.start()]
            words.append(match[0])
            tags.append('O' if not mark else 'I-CODE' if mark == before else 'B-CODE')
            before = mark
        # what is left of markup would tell the label
        if 6 <= len(words) <= 48 and 'B-CODE' in tags and not re.search(r'[`*]|:\w+:', text):
            found.append((words, tags))
    return found


def parameter_block(text):
    """[(name, type, description)] of the section Parameters of a numpydoc docstring."""
    match = re.search(r'^Parameters\n-{4,}\n(.*?)(?=\n\S[^\n]*\n-{3,}\n|\Z)', text, re.MULTILINE | re.DOTALL)
    found = []
    for line in match[1].splitlines() if match else ():
        head = re.fullmatch(r'(\w+) ?: (\S.*)', line)
        if head:
            found.append([head[1], re.split(r', optional|, default|\. Default|; optional', head[2])[0].strip(' ,'), ''])
        elif found and line.startswith(' '):
            found[-1][2] += ' ' + line.strip()
        elif line.strip():
            return []
    return [(name, kind, plain([about]).strip()) for name, kind, about in found
            if 1 <= len(kind.split()) <= 8 and '`' not in kind]


def docs_qa(questions):
    """What is the type of NAME? The context names each parameter, its type and its description, in prose.

    A quarter of the questions asks for a parameter of another docstring in the file, and has no answer.
    """
    names = {}
    for _, file, block in questions:
        names.setdefault(file, []).extend(name for name, _, _ in block)
    rows = []
    for split, file, block in questions:
        context, starts = '', []
        for name, kind, about in block:
            sentence = re.split(r'(?<=[.]) ', about)[0][:200]
            context += f'{name} is {kind}. '
            starts.append(len(context) - len(kind) - 2)
            context += f'{sentence} ' if sentence else ''
        others = [other for other in names[file] if not re.search(rf'\b{re.escape(other)}\b', context)]
        draw = random.Random(context)
        for k in draw.sample(range(len(block)), min(4, len(block))):
            name, answers = block[k][0], {'text': [block[k][1]], 'answer_start': [starts[k]]}
            if draw.random() < 0.25 and others:
                name, answers = draw.choice(others), {'text': [], 'answer_start': []}
            row = {'question': f'What is the type of {name}?', 'context': context.strip(), 'answers': answers}
            rows.append((split, row, context))
    return rows

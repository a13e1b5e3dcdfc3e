"""Make a search of a folder of texts, to fine-tune an encoder on. Nobody has to label anything.

    python examples/pairs.py --path=my_texts --out=my_search

Reads .txt, .md, .jsonl and .parquet. What stands together in a text belongs together: a heading and the
paragraph below it, the first sentence of a paragraph and the rest of it, a paragraph and the next one. The
first of such a pair is a query, and the second is the document that it must find. It writes

    task.py         the task, for finetune.py and examples/baselines.py
    train.jsonl     pairs to train on
    corpus.jsonl, queries.jsonl, qrels/validation.tsv, qrels/test.tsv
                    held-out queries, and the passages among which they must find theirs
    passages.jsonl  all passages as they stand in the texts, which predict.py searches afterwards

and prints the next commands. No text is both trained on and held out. Copies and near-copies are left out."""
import dataclasses
import itertools
import re
import shlex
import sys
import textwrap
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))     # the root, where nanoencoder/ is

from examples.baselines import SENTENCE_END, words
from examples.embedded_docs import shingles
from nanoencoder.files import json_lines, locked, whole
from nanoencoder.huggingface import run_of_checkpoint
from nanoencoder.metrics import SPACELESS
from nanoencoder.prepare import (
    EMPTY_LINE,
    READERS,
    files_below,
    hash_of,
    reader_of_texts,
    txt_texts,
)
from nanoencoder.settings import check, may_change, parse, run_main, setting
from nanoencoder.tasks import Task

# Sizes are in bytes of UTF-8: a Japanese character has three, and says about as much as three letters do.
HEADING = 120       # at most
SENTENCE = 20       # a first sentence, at least; a shorter one is mostly cut after an abbreviation
PASSAGE = 40        # at least; a shorter paragraph joins the next one
LONG_PASSAGE = 1_200    # at most, some 300 tokens; a longer paragraph is divided
HELD_OUT = 1_000    # pairs of validation, and of test, at most
CORPUS = 20_000     # passages that are searched when a model is scored, at most
FEWEST = 10         # texts with pairs
STEPS = 300         # of fine-tuning, about: so many epochs, but at most ten
MARKDOWN_HEADING = re.compile(r'^#{1,6}[ \t]+(.*?)[ \t#]*$', re.MULTILINE)
ENDS_A_SENTENCE = re.compile(r'[.,;!\u3002\uff01\u0964\u06d4]\W*$')     # no heading ends so
NO_SENTENCE_END = re.compile(r'\b(\d+|\w)\.$')      # am 1. Mai, z. B.
LINE_BREAK = re.compile(rf'(?<={SPACELESS.pattern})\s*\n\s*(?={SPACELESS.pattern})')
KINDS = {
    'heading': 'heading and paragraph',
    'sentence': 'first sentence and rest',
    'next': 'paragraph and next'}


@dataclass(frozen=True)
class Settings:
    path: str = ''                  # a folder or a file, or several: "a, b"
    column: str = 'text'            # of .jsonl and .parquet
    title: str = ''                 # their column of titles, if they have one
    # a text of a .txt or .md: all of the file, or what stands between blank lines, if it has many
    txt: str = setting('file', choices=('file', 'blank_lines'))
    skip_bad: bool = False          # leave out files and rows that cannot be read, and count them
    kinds: tuple = setting(('heading', 'sentence', 'next'), of=str)     # of pairs, those that are wanted
    hold_out: float = setting(0.2, 0.01, 0.9)   # of the pairs, half for validation and half for test
    out: str = may_change('')       # the folder to write
    # an encoder for the commands that are printed: a hub id or a folder
    model: str = may_change('sentence-transformers/all-MiniLM-L6-v2')

    def __post_init__(self):
        check(self)
        if not self.path or not self.out:
            raise ValueError('path and out are both needed, as --path=my_texts --out=my_search')
        for kind in self.kinds:
            if kind not in KINDS:
                raise ValueError(f'kinds are of {", ".join(KINDS)}, not {kind!r:.80}')

    @property
    def held_out_by(self):
        """What prepare.txt_texts asks for."""
        return 'normalised'


class Passage(NamedTuple):
    name: str       # its file and its number there
    heading: str    # which it stands below; '' if it has none of its own
    text: str


class Pair(NamedTuple):
    kind: str
    query: str
    document: str
    query_from: Passage
    document_from: Passage


@dataclass
class Document:
    text: str
    passages: list
    pairs: list = field(default_factory=list)


def size(text):
    return len(text.encode('utf-8', 'surrogatepass'))


# ---------------------------------------------------------------------------
# Texts


def documents_of(cfg):
    """Read the texts. Returns ([Document], how many copies and near-copies were left out)."""
    documents = []
    seen = set()
    num_copies = 0
    for name in tqdm(files_of(cfg.path), 'reading', leave=False, disable=None):
        numbers = itertools.count(1)    # of the file's passages
        for title, text in texts_of(Path(name), cfg):
            # words, and not what stands between spaces, which some scripts lack
            parts = shingles(' '.join(words(f'{title} {text}'.lower())))
            if len(parts & seen) > len(parts) / 2:
                num_copies += 1
                continue
            seen |= parts
            passages = [
                Passage(f'{name}#{next(numbers)}', heading, passage)
                for heading, passage in passages_of(title, text)]
            documents.append(Document(text, passages))
    return documents, num_copies


def files_of(paths):
    """The files with texts. data.py leaves .md out, as the README.md of a dataset is no text of it."""
    files = []
    for root in paths.split(', '):
        texts, others = files_below(root)
        markdown = [str(Path(root, name)) for name in others if name.lower().endswith('.md')]
        names = sorted([name for name, _ in texts] + markdown)
        if root.endswith(('.csv', '.tsv')):
            raise ValueError(f'{root}: is a table; write it as .jsonl, an object a line, and name its '
                             'columns by --column and --title')
        if Path(root).is_file() and not names:
            names = [root]
        if not names:
            raise ValueError(f'{root}: no text there ({", ".join(READERS)}, .md); --path names the texts')
        left_out = [name for name in others if not name.lower().endswith('.md')]
        if left_out:
            print(f'{root}: {len(left_out):,} other files left out: {", ".join(left_out):.200}',
                  file=sys.stderr)
        files += names
    return files


def texts_of(path, cfg):
    """Yield (title, text) of each text of a file. ValueError for one that cannot be read, or skip it. A row
    may lack a title."""
    read = reader_of_texts(path) or txt_texts
    titles = ()
    if cfg.title and read is not txt_texts:
        titles = errors_of(read(path, dataclasses.replace(cfg, column=cfg.title)))
    num_titles = 0
    skipped = 0
    for text, title in itertools.zip_longest(errors_of(read(path, cfg)), titles, fillvalue=''):
        if isinstance(text, ValueError):
            if not cfg.skip_bad:
                raise ValueError(f'{text}; --skip_bad leaves such files and rows out')
            skipped += 1
            continue
        if isinstance(title, ValueError):
            title = ''
        num_titles += bool(title)
        yield ' '.join(title.split()), text
    if titles and not num_titles:
        raise ValueError(f'{path}: no row has a text in the column --title={cfg.title}')
    if skipped:
        print(f'{path}: {skipped:,} texts that cannot be read are skipped', file=sys.stderr)


def errors_of(texts):
    """Yield texts, and in place of a file that cannot be read its ValueError."""
    try:
        yield from texts
    except ValueError as error:
        yield error


def passages_of(title, text):
    """Yield (heading, passage) of a text. Of several headings the first is the text's title, and stands
    before each later one: there may be a chapter "Summer" in many texts. A passage without a heading of its
    own has ''."""
    heading = title
    before = ''     # a paragraph that is too short to be a passage
    text = MARKDOWN_HEADING.sub(r'\n\n# \1\n\n', text)
    for paragraph in EMPTY_LINE.split(text):
        line = MARKDOWN_HEADING.sub(r'\1', paragraph).strip()
        if is_heading(line):
            if not title:
                title = line
            heading = line if line == title else f'{title} {line}'
            before = ''
            continue
        paragraph = one_line(f'{before} {line}')
        before = ''
        if size(paragraph) < PASSAGE:
            before = paragraph
            continue
        for passage in divided(paragraph):
            yield heading, passage
            heading = ''


def is_heading(line):
    has_letters = re.search(r'[^\W_]', line)
    return '\n' not in line and size(line) <= HEADING and has_letters and not ENDS_A_SENTENCE.search(line)


def one_line(text):
    """Join lines by a space, and in scripts without spaces by nothing."""
    return ' '.join(LINE_BREAK.sub('', text).split())


def divided(paragraph):
    """Divide a paragraph that is too long at the ends of sentences, and a sentence that is too long at
    spaces, or anywhere."""
    if size(paragraph) <= LONG_PASSAGE:
        return [paragraph]
    ends = [match.end() for match in SENTENCE_END.finditer(paragraph)]
    pieces = []
    for start, end in itertools.pairwise([0, *ends, len(paragraph)]):
        sentence = paragraph[start:end]
        if size(sentence) > LONG_PASSAGE:
            pieces += textwrap.wrap(sentence, LONG_PASSAGE // 3)    # characters of at most three bytes
        else:
            pieces.append(sentence)
    passages = []
    passage = ''
    for piece in pieces:
        if passage and size(passage + piece) > LONG_PASSAGE:
            passages.append(passage)
            passage = ''
        passage += piece
    return [passage.strip() for passage in (*passages, passage)]


# ---------------------------------------------------------------------------
# Pairs


def pairs_of(passages, kinds):
    """The pairs of a text, [Pair]. No passage is in two of them: a query that is in the corpus would find
    itself, and a passage that is there twice would be right and wrong."""
    pairs = []
    left = list(passages)
    while left:
        passage = left.pop(0)
        sentence, rest = first_sentence(passage.text)
        follows = left and not left[0].heading
        # first sentences and next paragraphs take turns
        prefers_next = follows and 'next' in kinds and pairs and pairs[-1].kind == 'sentence'
        if passage.heading and 'heading' in kinds:
            pairs.append(Pair('heading', passage.heading, passage.text, passage, passage))
        elif rest and 'sentence' in kinds and not prefers_next:
            pairs.append(Pair('sentence', sentence, rest, passage, passage))
        elif follows and 'next' in kinds:
            after = left.pop(0)
            pairs.append(Pair('next', passage.text, after.text, passage, after))
    return pairs


def first_sentence(passage):
    """Divide a passage behind its first sentence: (sentence, rest), or two empty texts."""
    for match in SENTENCE_END.finditer(passage):
        sentence = passage[:match.start()]
        rest = passage[match.end():]
        if size(sentence) >= SENTENCE and size(rest) >= PASSAGE and not NO_SENTENCE_END.search(sentence):
            return sentence, rest
    return '', ''


def add_pairs(documents, kinds):
    """Give each document its pairs. A pair whose query or document occurs elsewhere is boilerplate, and is
    left out."""
    occurs = Counter()
    for document in documents:
        document.pairs = pairs_of(document.passages, kinds)
        passages = [passage.text for passage in document.passages]
        occurs.update(passages)
        for pair in document.pairs:     # a side of "next" is a passage, which has been counted
            occurs.update({pair.query, pair.document} - {*passages})
    for document in documents:
        document.pairs = [
            pair for pair in document.pairs if occurs[pair.query] == occurs[pair.document] == 1]


def splits_of(documents, hold_out):
    """{split: documents}. In the order of their hashes they are test's, until it has its share of all pairs,
    then validation's, then train's. ValueError if one has none."""
    documents = sorted(documents, key=lambda document: hash_of(document.text))
    num_pairs = sum(len(document.pairs) for document in documents)
    share = min(HELD_OUT, num_pairs * hold_out / 2)
    splits = {'train': [], 'validation': [], 'test': []}
    before = 0      # pairs of the documents that have been given to a split
    for document in documents:
        split = 'train'
        if before < share:
            split = 'test'
        elif before < 2 * share:
            split = 'validation'
        splits[split].append(document)
        before += len(document.pairs)
    for split, inside in splits.items():
        if not inside:
            raise ValueError(f'change hold_out: {hold_out} leaves {split} none of {len(documents):,} texts')
    return splits


def corpus_of(splits):
    """{name: text} of the passages that are searched when a model is scored: those of held-out texts, and of
    others while there is room. A held-out query is not among them, so that it does not find itself."""
    corpus = {}
    for split in ('test', 'validation', 'train'):
        for document in splits[split]:
            if split == 'train' and len(corpus) >= CORPUS:
                break
            corpus |= {passage.name: passage.text for passage in document.passages}
            if split != 'train':
                for pair in document.pairs:
                    corpus.pop(pair.query_from.name, None)
                    corpus[pair.document_from.name] = pair.document
    return corpus


# ---------------------------------------------------------------------------
# Files


def write_search(folder, cfg, task, splits, corpus, documents):
    """Write a search in BEIR's layout, its pairs to train on, and its task."""
    def write(name, rows):
        (folder / name).write_text(json_lines(rows), encoding='utf-8', errors='replace')

    pairs = {split: [pair for one in splits[split] for pair in one.pairs] for split in splits}
    held_out = [*pairs['validation'], *pairs['test']]
    write('train.jsonl', [{'query': pair.query, 'positive': pair.document} for pair in pairs['train']])
    write('corpus.jsonl', [{'_id': name, 'text': text} for name, text in corpus.items()])
    write('queries.jsonl', [{'_id': pair.document_from.name, 'text': pair.query} for pair in held_out])
    passages = [passage for document in documents for passage in document.passages]
    write('passages.jsonl', [{'_id': passage.name, 'text': passage.text} for passage in passages])
    (folder / 'qrels').mkdir()
    for split in ('validation', 'test'):
        names = [pair.document_from.name for pair in pairs[split]]
        lines = ['query-id\tcorpus-id\tscore', *(f'{name}\t{name}\t1' for name in names)]
        (folder / f'qrels/{split}.tsv').write_text('\n'.join(lines) + '\n', encoding='utf-8')

    lines = [f'# A search in {cfg.path}, made by examples/pairs.py. Queries and documents are read as they',
             '# are. For one that wants words before them, as E5 does, write "query: {text}" and so on.']
    for name in ('kind', 'dataset', 'data', 'query', 'document', 'pair', 'epochs'):
        lines.append(f'{name} = {getattr(task, name)!r}')
    (folder / 'task.py').write_text('\n'.join(lines) + '\n', encoding='utf-8')


def task_of(cfg, num_pairs):
    """The task that is written. Of few pairs an epoch has few steps, so there are several epochs."""
    epochs = max(1, min(10, round(STEPS * 32 / max(1, num_pairs))))
    name = re.sub(r'[^\w.-]', '-', Path(cfg.out).resolve().name).lstrip('.')
    return Task(
        kind='IR', dataset=name, data=cfg.out,
        query='{text}', document='{text}', pair=('{query}', '{positive}'),
        epochs=epochs)


def print_summary(cfg, task, splits, corpus, num_copies):
    documents = [document for split in splits.values() for document in split]
    kinds = Counter(pair.kind for document in documents for pair in document.pairs)
    counts = ', '.join(f'{kinds[kind]:,} {words}' for kind, words in KINDS.items() if kinds[kind])
    print(f'{cfg.out}: {len(documents):,} texts; {num_copies:,} more are copies or near-copies and left out')
    print(f'  {kinds.total():,} pairs: {counts}')
    for split, inside in splits.items():
        num_pairs = sum(len(document.pairs) for document in inside)
        print(f'  {split:<10} {num_pairs:7,} pairs of {len(inside):,} texts')
    print(f'  each held-out query must find its document among {len(corpus):,} passages')
    config = shlex.quote(f'{cfg.out}/task.py')
    model = shlex.quote(cfg.model)
    name = run_of_checkpoint(cfg.model).name
    saved = f'fine-tuned/{name}/IR/{task.dataset}/lr5e-05_sd0'
    print(f"""
A search by shared words (BM25), the encoder as it is, and fine-tuned; then all three in one table:
    .venv/bin/python examples/baselines.py {config}
    .venv/bin/python finetune.py {config} --model={model} --probe
    .venv/bin/python finetune.py {config} --model={model} --lr=5e-5 --save_model
    .venv/bin/python evaluate.py table --datasets={task.dataset}
If BM25 is on top, use BM25. Otherwise ask the fine-tuned model, a query a line:
    echo '{{"text": "your question"}}' > queries.jsonl
    .venv/bin/python predict.py {saved} queries.jsonl \\
        --documents={shlex.quote(f'{cfg.out}/passages.jsonl')} --out=found.jsonl
It opens in sentence-transformers, too: SentenceTransformer('{saved}')""")


def main():
    cfg, _ = parse(Settings, sys.argv[1:])
    with locked(cfg.out):
        if Path(cfg.out).exists():
            raise ValueError(f'{cfg.out} is there already: remove it, or give another --out')
        for root in cfg.path.split(', '):
            if Path(cfg.out).resolve().is_relative_to(Path(root).resolve()):
                raise ValueError(f'out {cfg.out} would lie among the texts of {root}, and be read next time: '
                                 'give another --out')
        documents, num_copies = documents_of(cfg)
        add_pairs(documents, cfg.kinds)
        paired = [document for document in documents if document.pairs]
        if len(paired) < FEWEST:
            raise ValueError(
                f'{cfg.path}: {len(paired):,} texts with pairs, of {len(documents):,} texts and '
                f'{num_copies:,} copies; {FEWEST} are needed, as some are held out. A text has pairs if it '
                'has a heading, two sentences or two paragraphs; if blank lines divide texts: '
                '--txt=blank_lines')
        splits = splits_of(paired, cfg.hold_out)
        corpus = corpus_of(splits)
        task = task_of(cfg, sum(len(document.pairs) for document in splits['train']))
        with whole(cfg.out) as temporary:
            temporary.mkdir()
            write_search(temporary, cfg, task, splits, corpus, documents)
        print_summary(cfg, task, splits, corpus, num_copies)


if __name__ == '__main__':
    run_main(main)

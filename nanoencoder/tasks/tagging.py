"""TC, token classification: each word of a sentence has a tag: O, B-TYPE or I-TYPE, or (plain) any other."""
import re
import string
from collections import Counter

import numpy as np

from nanoencoder.judging.metrics import entities
from nanoencoder.tasks.kind import NO_LABEL, Example, Kind, framed, room
from nanoencoder.tasks.task import get


class Tagging(Kind):
    """Rows of id, words, tags."""
    labelled_by = 'tags'
    is_plain = property(lambda self: self.task.scheme == 'plain')

    def make_row(self, row, labels, where):
        words, tags = get(row, self.task.words, where, list), get(row, self.task.tags, where, list)
        if not words or len(words) != len(tags):
            raise ValueError(f'{where}: has {len(words)} words and {len(tags)} tags')
        tags = [labels.name(tag, where) for tag in tags]
        for word, tag in zip(words, tags):
            if not isinstance(word, str) or not (self.is_plain or re.match('O$|[BI]-.', tag)):
                raise ValueError(f'{where}: {word!r:.80} is not a word or {tag!r:.80} not O, B-TYPE, I-TYPE, '
                                 'as it need not be with --scheme=plain')
        return {'words': words, 'tags': tags}

    def examples(self, rows, labels, tokenizer, max_length):
        examples, lost = [], Counter()
        for k, row in enumerate(rows):
            tokens, word_of = words_of_tokens(row['words'], tokenizer)
            read = framed(word_of, tokenizer, max_length, -1)
            if len(word_of) > room(tokenizer, max_length):
                reached = int(read.max()) + 1
                lost.update(texts=1, words=len(row['words']) - reached, entities=0 if self.is_plain else sum(
                    stop > reached for _, _, stop in entities(row['tags'])))
            targets = np.array([labels.index(row['tags'][w]) if w >= 0 else NO_LABEL for w in read], np.int64)
            examples.append(Example(framed(tokens, tokenizer, max_length), targets, k, read))
        return examples, +lost

    def answer(self, row, read, labels):
        """The majority of a word's tokens, of equals the smaller number; of none "O", or plain's first."""
        (example, logits), = read
        votes = np.zeros((len(row['words']), len(labels)), np.int64)
        inside = example.words >= 0
        np.add.at(votes, (example.words[inside], logits.argmax(1)[inside]), 1)
        return [labels[int(count.argmax())] if count.any() or self.is_plain else 'O' for count in votes]


def words_of_tokens(words, tokenizer):
    """(tokens, the word of each, or -1): that of its first character but spaces. A space joins words."""
    tokens, offsets = tokenizer.encode_with_offsets(' '.join(words))
    owner = np.array([-1 if character in string.whitespace else w
                      for w, word in enumerate(words) for character in word + ' '])
    first, last = offsets.T
    # a no-break space or the like is its word's: of a token that is white space alone, the first after the
    # token before, or the character that the two share
    blank = [k for k, character in enumerate(' '.join(words)) if character.isspace() and owner[k] >= 0]
    blank = np.array([*blank, len(owner) - 1])
    inside = blank[np.searchsorted(blank, np.minimum(np.append(0, last[:-1]), last - 1))]
    return tokens, np.where(first < last, owner[first], np.where(inside < last, owner[inside], -1)).tolist()

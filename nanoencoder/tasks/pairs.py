"""MP, minimal pairs: of two sentences the good one should be the likelier (BLiMP, Warstadt et al. 2020)."""
import re
from collections import Counter
from dataclasses import replace

import numpy as np
from tqdm import tqdm

from nanoencoder.files import read_json
from nanoencoder.tasks.kind import Example, Kind, framed, pack, room
from nanoencoder.tasks.task import get

SIDES = 'good', 'bad'
# scripts without spaces between words: Thai, Lao, Myanmar, Khmer, kana, Han
SPACELESS = re.compile('[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff'
                       '\uf900-\ufaff\U00020000-\U0003ffff]')


class Pairs(Kind):
    """Rows of id, good, bad, set; two examples each. Nothing is trained: every row is one of the test."""
    splits, zero_shot = ('test',), True

    def make_row(self, row, labels, where):
        columns = {side: get(row, getattr(self.task, side), where) for side in SIDES}
        if not all(map(str.strip, columns.values())):   # both may be the same, as in seven of BLiMP's
            raise ValueError(f'{where}: has an empty sentence')
        return columns | {'set': self.task.group and get(row, self.task.group, where)}

    def examples(self, rows, labels, tokenizer, max_length):
        """Two sentences of each row, good and bad, with the word of each token."""
        examples = []
        lost = Counter()
        for k, row in enumerate(rows):
            for side in SIDES:
                tokens, places, words = tokenizer.encoded(row[side])
                words = words_or_characters(row[side], places, words)
                lost['sentences'] += len(tokens) > room(tokenizer, max_length)
                examples.append(Example(framed(tokens, tokenizer, max_length), None, k,
                                        framed(words, tokenizer, max_length, -1)))
        return examples, +lost

    def suited(self, checkpoint):
        """The task with a model's likelihood. Where a token is predicted at the position before it, one more
        is in front: eos in ours, as between documents; others' bos, if any, as in lm-evaluation-harness."""
        from data import OBJECTIVES     # for this alone
        config, tokenizer = read_json(checkpoint.folder / 'config.json'), checkpoint.tokenizer()
        objective = config.get('objective')     # the last of its training, if it is ours
        causal = (OBJECTIVES[objective].causal if objective else
                  config['model_type'] not in ('eurobert', 'sl_model'))
        likelihood = self.task.likelihood or ('causal' if causal else 'pseudo')
        if likelihood == 'causal' or objective == 'mntp':
            tokenizer.prefix = (tokenizer.ids['eos' if objective else 'bos'],)
        return replace(self.task, likelihood=likelihood)

    def batches(self, data, tokenizer, budget):
        """(arrays, places of predictions in their flat row, the tokens to be predicted, whose these are)
        A causal model reads a sentence once, others a copy for each token, which is masked; for "pseudo" with
        the rest of its word, which tells too much (Kauf & Ivanova 2023), or of its character in a script
        without spaces. Special tokens are not scored."""
        copies, mask = [], [tokenizer.ids['mask']]
        for k, example in sorted(enumerate(data.examples['test']), key=lambda one: len(one[1].tokens)):
            scored = np.flatnonzero(example.words >= 0)
            copies += [(k, example, at) for at in ([scored] if self.task.likelihood == 'causal' else scored)]
        packs = pack([len(example.tokens) for _, example, _ in copies], budget)
        for part in tqdm(packs, 'likelihoods', leave=False, disable=None):
            numbers, chosen, at = zip(*(copies[i] for i in part))
            arrays, sizes = [*map(self.copy, chosen, at, mask * len(at))], [*map(np.size, at)]
            starts = np.repeat(np.cumsum([0, *map(len, arrays[:-1])]), sizes)
            targets = np.hstack([example.tokens[place] for example, place in zip(chosen, at)])
            yield arrays, starts + np.hstack(at) - len(tokenizer.prefix), targets, np.repeat(numbers, sizes)

    def copy(self, example, at, mask):
        if self.task.likelihood == 'causal':
            return example.tokens
        places = np.arange(len(example.tokens))
        rest = (places >= at) & (example.words == example.words[at])
        return np.where(rest if self.task.likelihood == 'pseudo' else places == at, mask, example.tokens)

    def answer(self, row, read, labels):    # log-likelihoods
        return {side: round(float(output), 6) for side, (_, output) in zip(SIDES, read)}

    def prediction(self, row, pred):
        return {'id': row['id'], 'set': row['set'], **pred}


def words_or_characters(text, places, words):
    """The number of each token's word, or in a script without spaces of its character.

    What a tokenizer takes for a word there is a whole clause. If all of it were masked after a token, the
    sentence would be read from left to right. A character may be several tokens.

    places  the first and last + 1 character of each token
    words   the number of each token's word, as the tokenizer splits"""
    numbers = []
    for (first, last), word in zip(places, words):
        character = SPACELESS.search(text, first, last)
        # a text has fewer words than characters, so that no word has a character's number
        numbers.append(len(text) + character.start() if character else word)
    return numbers

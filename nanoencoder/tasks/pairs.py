"""MP, minimal pairs: of two sentences the good one should be the likelier (BLiMP, Warstadt et al. 2020)."""
from collections import Counter
from dataclasses import replace

import numpy as np
from tqdm import tqdm

from nanoencoder.files import read_json
from nanoencoder.tasks.kind import Example, Kind, framed, pack, room
from nanoencoder.tasks.task import get

SIDES = 'good', 'bad'


class Pairs(Kind):
    """Rows of id, good, bad, set; two examples each. Nothing is trained: every row is one of the test."""
    splits, zero_shot = ('test',), True

    def make_row(self, row, labels, where):
        columns = {side: get(row, getattr(self.task, side), where) for side in SIDES}
        if not all(map(str.strip, columns.values())):   # both may be the same, as in seven of BLiMP's
            raise ValueError(f'{where}: has an empty sentence')
        return columns | {'set': self.task.group and get(row, self.task.group, where)}

    def examples(self, rows, labels, tokenizer, max_length):
        texts = [(k, *tokenizer.encoded(row[side])) for k, row in enumerate(rows) for side in SIDES]
        lost = Counter(sentences=sum(len(tokens) > room(tokenizer, max_length) for _, tokens, *_ in texts))
        return [Example(framed(tokens, tokenizer, max_length), None, k,
                        framed(words, tokenizer, max_length, -1)) for k, tokens, _, words in texts], +lost

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
        the rest of its word, which tells too much (Kauf & Ivanova 2023). Special tokens are not scored."""
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

    def baselines(self, rows):
        return {'shorter-sentence': lambda row: {side: -len(row[side]) for side in SIDES}}

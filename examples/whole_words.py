"""Mask whole words, as BERT's second release does: an objective in a file of its own.

    python examples/whole_words.py configs/tiny.py --name=tiny-words --phases='("whole_words", 3_600)'
    python examples/whole_words.py encoder configs/continue_minilm.py --phases='("whole_words", 300)' ...

It takes the settings of pretrain.py, whose loop it runs, or after the word `encoder` those of
examples/continue_encoder.py. It is for languages that put spaces between words. With byte-level and Unigram
vocabularies a word right behind a quote, a bracket or the end of a line is masked together with what stands
before it. mask_replace is ignored: whatever is chosen becomes the mask token."""
import functools
import json
import os
import re
import sys
from pathlib import Path

if __name__ == '__main__':  # before torch loads OpenMP, which reads it: waiting threads sleep, not spin
    os.environ.setdefault('OMP_WAIT_POLICY', 'passive')
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))     # the root, where pretrain.py is

import numpy as np

import pretrain
from data import NO_TARGET, OBJECTIVES, Objective
from examples import continue_encoder
from nanoencoder.settings import run_main

# Tokens that go on with a word, as regular expressions of how a vocabulary writes them.
OF_WORDPIECE = '##'
# Unigram: what begins neither with its mark of a space nor with punctuation
OF_UNIGRAM = r'[^▁!-/:-@\[-`{-~\u2000-\u206f\u3000-\u303f]'
# Bytes: letters, digits and what is not ASCII. GPT-2 writes the bytes 0x80 to 0xad as \u0122 to \u0143.
OF_BYTES = r'[0-9A-Za-z\xa1-\xff\u0122-\u0143]'


@functools.cache
def begins_word(corpus):
    """Return a bool for each id of a corpus's vocabulary: whether the token begins a word."""
    vocabulary = json.loads((corpus.folder / 'tokenizer.json').read_text())['model']['vocab']
    if isinstance(vocabulary, list):
        vocabulary = {token: i for i, (token, _) in enumerate(vocabulary)}
        goes_on = OF_UNIGRAM
    elif any(token.startswith('##') for token in vocabulary):
        goes_on = OF_WORDPIECE
    else:
        goes_on = OF_BYTES
    begins = np.ones(corpus.meta['vocab_size'], bool)
    for token, i in vocabulary.items():
        begins[i] = not re.match(goes_on, token)
    return begins


def whole_words(tokens, lengths, random, corpus, cfg):
    """Mask a word, all of its tokens, with probability mask_ratio."""
    word = np.cumsum(begins_word(corpus)[tokens])    # the number of each token's word
    draw = random.random(word[-1] + 1)
    chosen = (draw < cfg.mask_ratio)[word] & ~np.isin(tokens, corpus.meta['special_ids'])
    inputs = np.where(chosen, corpus.meta['mask_token_id'], tokens)
    return inputs, np.where(chosen, tokens, NO_TARGET)


WHOLE_WORDS = Objective(
    causal=False, offset=0, uses_ratio=True, make=whole_words, expected_targets=lambda cfg: cfg.mask_ratio)


def main():
    OBJECTIVES['whole_words'] = WHOLE_WORDS
    if sys.argv[1:2] == ['encoder']:
        del sys.argv[1]
        continue_encoder.main()
    else:
        pretrain.main()


if __name__ == '__main__':
    run_main(main)

"""Tokenizers in and out: the ids are those of Hugging Face's tokenizers and transformers."""
import json
import random
import unicodedata
from types import SimpleNamespace

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer as HuggingFace, models, normalizers, pre_tokenizers, trainers

import tokenizer as tokenizers
from conftest import ROOT, SHARED, texts
from tokenizer import LLAMA3_PATTERN, load_tokenizer

LLAMA3 = SHARED / 'tokenizer' / 'llama3.model'
DOCS_TOKENIZER = str(ROOT / 'configs/corpora/docs')
QWEN_PATTERN = LLAMA3_PATTERN.replace(r'\p{N}{1,3}', r'\p{N}')
BYTE_LEVEL = dict(add_prefix_space=False, use_regex=False)
STYLES = {  # as in these models' tokenizer.json: what stands before the merges, and the special tokens
    'llama-3': ([pre_tokenizers.Split(Regex(LLAMA3_PATTERN), 'isolated'), pre_tokenizers.ByteLevel(**BYTE_LEVEL)], None,
                ['<|begin_of_text|>', '<|end_of_text|>']),
    'qwen': ([pre_tokenizers.Split(Regex(QWEN_PATTERN), 'isolated'), pre_tokenizers.ByteLevel(**BYTE_LEVEL)],
             normalizers.NFC(), ['<|endoftext|>', '<|im_start|>', '<|im_end|>']),
    'gpt-2': ([pre_tokenizers.ByteLevel(add_prefix_space=False)], None, ['<|endoftext|>']),
    'smollm': ([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)], None,
               ['<|endoftext|>', '<|im_start|>', '<|im_end|>', '<repo_name>']),
}


def huggingface(style, folder, vocab_size=2_000):
    """A tokenizer of a model family's form, trained by Hugging Face's library and written to a folder."""
    steps, normalizer, specials = STYLES[style]
    made = HuggingFace(models.BPE(ignore_merges=style == 'llama-3'))
    made.pre_tokenizer = pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]
    if normalizer:
        made.normalizer = normalizer
    made.train_from_iterator(texts() + sample_texts(500, seed=9), trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=specials, show_progress=False))
    made.save(str(folder / 'tokenizer.json'))
    (folder / 'tokenizer_config.json').write_text(json.dumps({'eos_token': specials[-1] if style == 'llama-3' else '<|endoftext|>'}))
    made.encode_special_tokens = True  # a literal <|endoftext|> is text
    return made


def sample_texts(count, seed=0):
    """Random mixtures of English, code, numbers, emoji, CJK, combining marks, spaces, control and special strings."""
    random_ = random.Random(seed)
    pieces = ['the', ' The', 'word', "don't", "WE'LL", 'naïve', 'e\u0301', 'Å', 'Å', 'def f(x):', '\n    return x', ' {', '};',
              '\n', '\r\n', '\t', ' ', '  ', '   \n', '0', '12', '1234567', '٣', '²', '½', '東京', '가', '\u1100\u1161\u11a8', '한국',
              'ру', 'العربية', '🙂', '👩\u200d👩\u200d👧', '\u200b', '\xa0', '\u3000', '\x00', '\x07', '\x7f', '\ufeff', '\u0323\u0307',
              'a\u0323\u0307', '\u0d3b\u0301', '"', "'", '...', '!?', '\\', '<|endoftext|>', '<|mask|>', '<|im_end|>', '_', '-', '\U0010ffff']
    made = []
    for _ in range(count):
        parts = random_.choices(pieces, k=random_.randint(1, 30))
        if random_.random() < 0.2:
            parts += [chr(random_.choice([random_.randrange(0x20, 0xd800), random_.randrange(0xe000, 0x110000)])) for _ in range(5)]
        made.append(''.join(parts))
    return made

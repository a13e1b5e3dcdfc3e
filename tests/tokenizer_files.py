"""Our embedded tokenizer, changed ones, and those of model families by Hugging Face's library."""
import json
import random

from tokenizers import Regex, Tokenizer as Library, models, normalizers, pre_tokenizers, trainers

from conftest import ROOT, texts
from nanoencoder.tokenizer import ALPHABET, LLAMA3_PATTERN, load_tokenizer, splits

DOCS = ROOT / 'configs/corpora/docs'
TOKENIZER = load_tokenizer(str(DOCS))
EOS = '<|endoftext|>'
# SmolLM2's vocabulary has no token for these bytes
LACKING = bytes.fromhex('04 06 13 14 16 1D C0 C1 F1 F2 F5 F6 F7 F8 F9 FA FB FC FD FE FF')
QWEN = Regex(LLAMA3_PATTERN.replace(r'\p{N}{1,3}', r'\p{N}'))
STYLES = {  # how these models' tokenizer.json splits a text, and the special tokens; the last one is eos
    'llama-3': (splits(LLAMA3_PATTERN), ['<|begin_of_text|>', '<|end_of_text|>']),
    'qwen': (pre_tokenizers.Sequence([
        pre_tokenizers.Split(QWEN, 'isolated'),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), ['<|im_start|>', EOS]),
    'smollm': (pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)]), ['<repo_name>', EOS]),
    'gpt-2': (pre_tokenizers.ByteLevel(add_prefix_space=False), [EOS])}


def huggingface(style, folder, vocab_size=2_000):
    """Train a tokenizer of a model family's form by Hugging Face's library and write it to a folder."""
    pre_tokenizer, specials = STYLES[style]
    trained = Library(models.BPE(ignore_merges=style == 'llama-3'))
    trained.pre_tokenizer = pre_tokenizer
    if style == 'qwen':
        trained.normalizer = normalizers.NFC()
    lacking = LACKING if style == 'smollm' else b''
    alphabet = [character for byte, character in ALPHABET.items() if byte not in lacking]
    documents = [text for text in texts() + sample_texts(500, seed=9)
                 if not set(text.encode()) & set(lacking)]
    trained.train_from_iterator(documents, trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=alphabet, special_tokens=specials, show_progress=False))
    trained.save(str(folder / 'tokenizer.json'))
    (folder / 'tokenizer_config.json').write_text(json.dumps({'eos_token': specials[-1]}))
    trained.encode_special_tokens = True    # a literal <|endoftext|> is text
    return trained


def changed(folder, change):
    """The embedded tokenizer, its tokenizer.json changed and written to a folder."""
    spec = json.loads((DOCS / 'tokenizer.json').read_text())
    change(spec)
    (folder / 'tokenizer.json').write_text(json.dumps(spec))
    return load_tokenizer(str(folder))


def sample_texts(count, seed=0, more=()):
    """Random mixtures of English, code, numbers, emoji, CJK, combining marks, spaces, special strings."""
    draw = random.Random(seed)
    pieces = ['the', ' The', "don't", "WE'LL", 'naïve', 'e\u0301', 'Å', 'A\u030a', 'def f(x):', ' {', '};',
              '\n', '\r\n', '\t', ' ', '  ', '   \n', '0', '12', '1234567', '٣', '²', '½', '東京', '각',
              'ру', 'الع', '👩\u200d👩', '\xa0', '\u3000', '\x00', '\x7f', '\ufeff', '\u0323\u0307',
              'a\u0323\u0307', '"', '...', '!?', '\\', '<|mask|>', '<|im_end|>', '_', '\U0010ffff', *more]
    samples = []
    for _ in range(count):
        parts = draw.choices(pieces, k=draw.randint(1, 30))
        if draw.random() < 0.2:
            codes = [*range(0x20, 0xd800), *range(0xe000, 0x20000)]
            parts += map(chr, draw.choices(codes, k=5))
        samples.append(''.join(parts))
    return samples

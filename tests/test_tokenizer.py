"""Tokenizers in and out: the ids are those of Hugging Face's tokenizers and transformers."""
import json
import random
import unicodedata

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer as HuggingFace, models, normalizers, pre_tokenizers, trainers

from conftest import LLAMA3, ROOT, texts
from data import in_order
from nanoencoder import prepare
from nanoencoder.tokenizer import LLAMA3_PATTERN, Tokenizer, byte_alphabet, load_tokenizer

NEEDS_LLAMA3 = pytest.mark.skipif(not LLAMA3.exists(), reason='no vocabulary')
DOCS_TOKENIZER = str(ROOT / 'configs/corpora/docs')
QWEN_PATTERN = LLAMA3_PATTERN.replace(r'\p{N}{1,3}', r'\p{N}')
BYTE_LEVEL = dict(add_prefix_space=False, use_regex=False)
# SmolLM2's vocabulary has no token for these bytes
LACKING = bytes.fromhex('04 06 13 14 16 1D C0 C1 F1 F2 F5 F6 F7 F8 F9 FA FB FC FD FE FF')
LACKED = ['\x04', '\x06\x13', '\x14', '\x16 ', '\x1d\n', '!\x04!', 'the\x1dre', '\U00050000',
          'x\U000a0000', '.\x13..']
ALPHABET = {byte: character for character, byte in byte_alphabet().items()}
STYLES = {  # as in these models' tokenizer.json: what stands before the merges, and the special tokens
    'llama-3': ([pre_tokenizers.Split(Regex(LLAMA3_PATTERN), 'isolated'),
                 pre_tokenizers.ByteLevel(**BYTE_LEVEL)], None,
                ['<|begin_of_text|>', '<|end_of_text|>']),
    'qwen': ([pre_tokenizers.Split(Regex(QWEN_PATTERN), 'isolated'), pre_tokenizers.ByteLevel(**BYTE_LEVEL)],
             normalizers.NFC(), ['<|endoftext|>', '<|im_start|>', '<|im_end|>']),
    'gpt-2': ([pre_tokenizers.ByteLevel(add_prefix_space=False)], None, ['<|endoftext|>']),
    'smollm': ([pre_tokenizers.Digits(individual_digits=True),
                 pre_tokenizers.ByteLevel(add_prefix_space=False)], None,
                ['<|endoftext|>', '<|im_start|>', '<|im_end|>', '<repo_name>']),
    'modernbert': ([pre_tokenizers.ByteLevel(add_prefix_space=False)], normalizers.NFC(),
                   ['<|padding|>', '<|endoftext|>', '[UNK]', '[CLS]', '[SEP]', '[PAD]', '[MASK]']),
}
LACKING_STYLES = 'smollm', 'modernbert'


def huggingface(style, folder, vocab_size=2_000):
    """A tokenizer of a model family's form, trained by Hugging Face's library and written to a folder."""
    steps, normalizer, specials = STYLES[style]
    made = HuggingFace(models.BPE(ignore_merges=style == 'llama-3'))
    made.pre_tokenizer = pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]
    if normalizer:
        made.normalizer = normalizer
    lacking = LACKING if style in LACKING_STYLES else b''
    alphabet = [character for byte, character in ALPHABET.items() if byte not in lacking]
    read = [text for text in texts() + sample_texts(500, seed=9) if not set(text.encode()) & set(lacking)]
    made.train_from_iterator(read, trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=alphabet, special_tokens=specials, show_progress=False))
    made.save(str(folder / 'tokenizer.json'))
    (folder / 'tokenizer_config.json').write_text(json.dumps({'eos_token': specials[-1]
                                                              if style == 'llama-3' else '<|endoftext|>'}))
    made.encode_special_tokens = True  # a literal <|endoftext|> is text
    return made


def sample_texts(count, seed=0, more=()):
    """Random mixtures of English, code, numbers, emoji, CJK, combining marks, spaces, special strings."""
    random_ = random.Random(seed)
    pieces = ['the', ' The', 'word', "don't", "WE'LL", 'naïve', 'e\u0301', 'Å', 'Å', 'def f(x):',
              '\n    return x', ' {', '};',
              '\n', '\r\n', '\t', ' ', '  ', '   \n', '0', '12', '1234567', '٣', '²', '½', '東京', '가',
              '\u1100\u1161\u11a8', '한국',
              'ру', 'العربية', '🙂', '👩\u200d👩\u200d👧', '\u200b', '\xa0', '\u3000',
              '\x00', '\x07', '\x7f', '\ufeff', '\u0323\u0307',
              'a\u0323\u0307', '\u0d3b\u0301', '"', "'", '...', '!?', '\\', '<|endoftext|>', '<|mask|>',
              '<|im_end|>', '_', '-', '\U0010ffff', *more]
    made = []
    for _ in range(count):
        parts = random_.choices(pieces, k=random_.randint(1, 30))
        if random_.random() < 0.2:
            parts += [chr(random_.choice([random_.randrange(0x20, 0xd800),
                                          random_.randrange(0xe000, 0x110000)])) for _ in range(5)]
        made.append(''.join(parts))
    return made


def same_ids(ours, theirs, samples):
    for text, encoding in zip(samples, theirs.encode_batch(samples, add_special_tokens=False)):
        assert ours.encode(text).tolist() == encoding.ids, repr(text[:200])


# --------------------------------------------------------------------------------------------------------- in

@pytest.mark.parametrize('count', [4_000, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize('style', STYLES)
def test_ids_are_those_of_hugging_face(style, count, tmp_path):
    """On many texts and on very long words, spaces, digits; special strings are text to both."""
    theirs = huggingface(style, tmp_path)
    ours, lacks = load_tokenizer(str(tmp_path)), style in LACKING_STYLES
    assert ours.lacking == (LACKING if lacks else b'')
    samples = sample_texts(20_000, more=LACKED if lacks else ())
    assert lacks == (sum(bool({*text.encode()} & {*ours.lacking}) for text in samples) > 5_000)
    same_ids(ours, theirs, samples[:count])
    most = 50 * count
    spaces = ' ' * (1_200_000 if style == 'llama-3' or count == 20_000 else most) + 'x'
    same_ids(ours, theirs, ['word' * (most // 4), 'a' * most, spaces, '\n' * most, '7' * most,
                            '東' * (most // 3)])
    ours.save(tmp_path)  # and out again, as a plain Split
    again = HuggingFace.from_file(str(tmp_path / 'tokenizer.json'))
    again.encode_special_tokens = True
    same_ids(ours, again, sample_texts(3_000, seed=1, more=LACKED if lacks else ()))
    written, ours = ours, load_tokenizer(str(tmp_path))  # read from what we wrote
    same_ids(ours, theirs, samples[:1_000])
    assert ours.fingerprint() == written.fingerprint()
    assert {token: again.token_to_id(token)
            for token in ours.specials} == ours.specials  # low ids, too, and the mask
    assert all(again.id_to_token(i) is not None for i in range(ours.vocab_size))


def test_ids_of_the_embedded_tokenizer_are_those_of_hugging_face():
    theirs = HuggingFace.from_file(f'{DOCS_TOKENIZER}/tokenizer.json')
    theirs.encode_special_tokens = True
    same_ids(load_tokenizer(DOCS_TOKENIZER), theirs, sample_texts(20_000) + ['word' * 250_000])


@NEEDS_LLAMA3
def test_llama3_is_what_transformers_makes_of_the_same_file():
    from transformers.convert_slow_tokenizer import TikTokenConverter
    ours = load_tokenizer(str(LLAMA3))
    assert ours.vocab_size == 128_256
    assert ours.ids == {'bos': 128_000, 'eos': 128_001, 'pad': 128_001, 'mask': 128_002}
    theirs = TikTokenConverter(vocab_file=str(LLAMA3), pattern=LLAMA3_PATTERN).converted()
    same_ids(ours, theirs, sample_texts(20_000) + ['word' * 250_000])


def test_nfc_is_that_of_hugging_face_on_every_character():
    """Each character between others that compose and reorder; its decomposition; marks after Unicode 9."""
    theirs = normalizers.NFC()
    docs = load_tokenizer(DOCS_TOKENIZER)
    ours = Tokenizer(docs.pattern, docs.ranks, docs.specials, docs.roles, nfc=True)
    characters = [chr(i) for i in range(0x110000) if not 0xd800 <= i < 0xe000
                  and unicodedata.category(chr(i)) != 'Cn']
    for text in ([f'a{one}\u0301\u0323b' for one in characters] + [unicodedata.normalize('NFD', one)
                                                                   for one in characters]):
        assert ours.normalize(text) == theirs.normalize_str(text), ascii(text)


def test_bytes_are_dropped_behind_the_split_and_before_the_merges(tmp_path):
    """So what stands on both sides of them may become one token, if it is in one piece."""
    characters = [character for byte, character in ALPHABET.items() if byte != 4]
    vocab = {token: i for i, token in enumerate([*characters, 'ab', '!!'])}
    theirs = HuggingFace(models.BPE(vocab, [('a', 'b'), ('!', '!')]))
    theirs.pre_tokenizer = pre_tokenizers.Sequence(STYLES['llama-3'][0])
    theirs.add_special_tokens(['<|endoftext|>'])
    theirs.save(str(tmp_path / 'tokenizer.json'))
    ours = load_tokenizer(str(tmp_path))
    ids, offsets = ours.encode_with_offsets(' \x04a!\x04! \x04b\x04\x04ab')
    assert ids.tolist() == [vocab[token] for token in ('Ġ', 'a', '!!', 'Ġ', 'b', 'ab')]
    assert offsets[[1, 2, 4, 5]].tolist() == [[2, 3], [3, 6], [8, 9], [11, 13]]
    same_ids(ours, theirs, ['\x04', 'a\x04b', '!\x04!', '\x04ab\x04', ' \x04a!\x04! \x04b\x04\x04ab'])


def test_a_corpus_has_the_ids_of_texts_whose_bytes_the_vocabulary_lacks(tmp_path):
    theirs = huggingface('smollm', tmp_path, vocab_size=500)
    samples = [text.replace('\r\n', '\n').lstrip('\ufeff') for text in sample_texts(400, more=LACKED)]
    (tmp_path / 'texts.jsonl').write_text(''.join(json.dumps({'text': text}) + '\n' for text in samples))
    prepare.prepare(prepare.Settings(source='folder', path=str(tmp_path / 'texts.jsonl'), val_permille=100,
                                     tokenizer=str(tmp_path), out=str(tmp_path / 'out')), in_order)
    stream = np.concatenate([np.load(path) for path in sorted((tmp_path / 'out').glob('tokens_*.npy'))])
    expected = [encoding.ids for encoding in theirs.encode_batch(
        [text for text in samples if not prepare.held_out(text, 100)])]
    assert stream.tolist() == [i for ids in expected for i in [*ids, theirs.token_to_id('<|endoftext|>')]]


@pytest.mark.parametrize('steps', [[], [{'type': 'NFC'}]])
def test_a_sequence_of_one_normalizer_or_none(steps, tmp_path):
    spec = json.loads((ROOT / 'configs/corpora/docs/tokenizer.json').read_text())
    spec['normalizer'] = {'type': 'Sequence', 'normalizers': steps}
    (tmp_path / 'tokenizer.json').write_text(json.dumps(spec))
    theirs = HuggingFace.from_file(str(tmp_path / 'tokenizer.json'))
    theirs.encode_special_tokens = True
    ours = load_tokenizer(str(tmp_path))
    assert ours.nfc == bool(steps)
    same_ids(ours, theirs, sample_texts(300))


def test_special_tokens_in_text_are_characters():
    tokenizer = load_tokenizer(DOCS_TOKENIZER)
    ids = tokenizer.encode('a <|mask|> b <|end_of_text|>')
    assert not set(ids.tolist()) & set(tokenizer.specials.values())
    masked = tokenizer.encode_masked('The <|mask|> of<|mask|>')
    assert masked.tolist() == [*tokenizer.encode('The'), 4095, *tokenizer.encode(' of'), 4095]


def test_a_missing_mask_token_is_added(tmp_path):
    theirs = huggingface('gpt-2', tmp_path, vocab_size=300)
    ours = load_tokenizer(str(tmp_path))
    assert ours.mask_is_new and ours.ids['mask'] == theirs.get_vocab_size()
    assert ours.vocab_size == theirs.get_vocab_size() + 1
    assert ours.ids['eos'] == theirs.token_to_id('<|endoftext|>')
    ours.save(tmp_path)
    assert not load_tokenizer(str(tmp_path)).mask_is_new


BYTE_LEVEL_JSON = {'type': 'ByteLevel', 'add_prefix_space': False, 'use_regex': False}


def split(pattern):
    steps = [{'type': 'Split', 'pattern': {'Regex': pattern}, 'behavior': 'Isolated', 'invert': False},
             BYTE_LEVEL_JSON]
    return {'type': 'Sequence', 'pretokenizers': steps}


@pytest.mark.parametrize('change, part', [
    (lambda spec: spec.update(normalizer={'type': 'NFD'}), 'normalizer NFD'),
    (lambda spec: spec.update(normalizer={'type': 'Sequence', 'normalizers': [{'type': 'NFC'}] * 2}),
     'normalizer Sequence'),
    (lambda spec: spec['model'].update(type='Unigram'), 'Unigram'),
    (lambda spec: spec['model'].update(byte_fallback=True),
     'SentencePiece, as of Llama 2, Mistral or TinyLlama'),
    (lambda spec: spec['model'].update(dropout=0.1), 'dropout 0.1'),
    (lambda spec: spec.update(pre_tokenizer={'type': 'Whitespace'}), 'Whitespace'),
    (lambda spec: spec.update(pre_tokenizer={'type': 'ByteLevel', 'add_prefix_space': True}), 'ByteLevel'),
    (lambda spec: spec.update(pre_tokenizer=None), 'pre_tokenizer'),
    (lambda spec: spec.update(pre_tokenizer=split(r'\p{N}{1,3}+|\p{L}+')), 'may mean something else'),
    # possessive to one only
    (lambda spec: spec.update(pre_tokenizer=split(r'^\w+')), 'may mean something else'),
    # of a line to one only
    (lambda spec: spec.update(pre_tokenizer=split(r'[[:alpha:]]+|\s+')), 'may mean something else'),
    (lambda spec: spec.update(pre_tokenizer=split(r'\p{N}{1,3}| ?\p{L}+')), 'leaves out some characters'),
    (lambda spec: spec['model']['merges'].reverse(), 'order of merges'),
    (lambda spec: spec['model']['merges'].pop(500), 'not what its merges make'),
    (lambda spec: spec['model']['vocab'].pop('Ġ'), "lacks some of the printable ASCII bytes: b' '"),
    (lambda spec: spec['model']['vocab'].pop(ALPHABET[4]), 'lacks bytes, which is supported without'),
    (lambda spec: spec['model']['vocab'].update({'東': 3}), 'no character of a byte-level vocabulary'),
    (lambda spec: spec['model']['vocab'].update({'the': 'x'}), 'not a whole number'),
    (lambda spec: spec['model']['vocab'].update({'the': 10 ** 7}), 'from 0 to 9,999,999'),
    (lambda spec: spec['added_tokens'].pop(1), 'eos'),
    (lambda spec: spec['added_tokens'].append({'id': 4096, 'content': '    ', 'special': False}),
     'occurs in ordinary text'),
    (lambda spec: spec['added_tokens'][2].update(id=500), 'has id 500, but Hugging Face would give it 4095'),
    (lambda spec: spec['added_tokens'].append({'id': 4100, 'content': '<x>', 'special': True}),
     'has id 4100, but Hugging Face would give it 4096'),
    (lambda spec: spec['added_tokens'].append(spec['added_tokens'][0]), 'empty or there twice'),
    (lambda spec: spec['model']['vocab'].update({'Ġthe': 4096, 'a': spec['model']['vocab']['b']}),
     'rise with|share an id'),
    (lambda spec: spec.update(pre_tokenizer=split(r'\p{L}*')), 'leaves out some characters'),
    (lambda spec: spec.update(pre_tokenizer=split(r'\p{L}+|)')), 'not a tokenizer.json.*parenthesis'),
    (lambda spec: spec.update(pre_tokenizer=split(r'\S+')), 'leaves out some characters'),
    (lambda spec: spec.update(pre_tokenizer=split(r'[\p{L}\p{N}\p{P}\p{S}\p{M}]+|\s+|[\p{Cc}\p{Cf}\p{Cn}]+')),
     'leaves out some characters'),  # U+E000 alone
    (lambda spec: spec.update(pre_tokenizer=split(r'\S+|\s+|\s*')), 'leaves out some characters'),
    (lambda spec: spec['added_tokens'].append('x'), 'not a tokenizer.json'),
    (lambda spec: spec.pop('model'), 'not a tokenizer.json'),
    (lambda spec: spec.update(model=[]), 'not a tokenizer.json'),
])
def test_a_tokenizer_that_tiktoken_cannot_reproduce_is_refused(tmp_path, change, part):
    spec = json.loads((ROOT / 'configs/corpora/docs/tokenizer.json').read_text())
    change(spec)
    (tmp_path / 'tokenizer.json').write_text(json.dumps(spec))
    with pytest.raises(ValueError, match=part):
        load_tokenizer(str(tmp_path))


def test_a_sentencepiece_file_is_refused_by_name(tmp_path):
    (tmp_path / 'tokenizer.model').write_bytes(b'\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00\x18\x02\n\x0c')
    named = 'SentencePiece, as of Llama 2, Mistral or TinyLlama, is not supported'
    with pytest.raises(ValueError, match=named):
        load_tokenizer(str(tmp_path))


# -------------------------------------------------------------------------------------------------------- out

@pytest.mark.parametrize('name', [DOCS_TOKENIZER, pytest.param(str(LLAMA3), marks=[NEEDS_LLAMA3,
                                                                                   pytest.mark.slow])])
def test_saved_tokenizer_gives_the_same_ids_in_transformers(name, tmp_path):
    from transformers import AutoTokenizer
    ours = load_tokenizer(name)
    ours.save(tmp_path, append_eos=True)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert (theirs.mask_token_id, theirs.eos_token_id,
            theirs.pad_token_id) == tuple(ours.ids[role] for role in ('mask', 'eos', 'pad'))
    for text in sample_texts(1000):
        plain = text.replace('<|', '<_')  # text in which Hugging Face sees no special token either
        assert ours.encode(plain).tolist() == theirs.encode(plain, add_special_tokens=False)
        assert ours.decode(ours.encode(text)) == text
    assert theirs.encode('of it') == [*ours.encode('of it'), ours.ids['eos']]
    again = load_tokenizer(tmp_path)
    assert again.fingerprint() == ours.fingerprint() and again.ids == ours.ids


def test_offsets_saved_and_ours_are_of_the_words_without_spaces(tmp_path):
    """Hugging Face strips spaces alone, we any white space; eos has no characters."""
    ours = load_tokenizer(DOCS_TOKENIZER)
    ours.save(tmp_path, append_eos=True)
    theirs = HuggingFace.from_file(str(tmp_path / 'tokenizer.json'))
    assert theirs.encode('the array  of').offsets == [(0, 3), (4, 9), (10, 10), (11, 13), (0, 0)]
    for text in sample_texts(1_000):
        text = text.replace('<|', '<_')
        ids, offsets = ours.encode_with_offsets(text)
        encoding = theirs.encode(text)
        assert encoding.ids == [*ids, ours.ids['eos']]
        for (a, b), (first, last) in zip(encoding.offsets, offsets.tolist()):
            assert not text[a:b].startswith(' ') and text[a:b].strip() == text[first:last], (text, a, b)
            assert first == last or a <= first < last <= b


def test_tokens_that_are_not_special_stay_so(tmp_path):
    spec = json.loads((ROOT / 'configs/corpora/docs/tokenizer.json').read_text())
    spec['added_tokens'].append({'id': 4096, 'content': '<think>', 'special': False})
    (tmp_path / 'tokenizer.json').write_text(json.dumps(spec | {'added_tokens': [
        dict(single_word=False, lstrip=False, rstrip=False, normalized=False) | token
        for token in spec['added_tokens']]}))
    load_tokenizer(str(tmp_path)).save(tmp_path)
    theirs = HuggingFace.from_file(str(tmp_path / 'tokenizer.json'))
    special = {token.content: token.special for token in theirs.get_added_tokens_decoder().values()}
    assert special.pop('<think>') is False and all(special.values())
    assert theirs.decode(theirs.encode('a<think><|mask|>').ids) == 'a<think>'
    assert load_tokenizer(str(tmp_path)).ordinary == {'<think>'}


# of tiktoken's gpt2 and cl100k_base, whose vocabularies would be downloads
@pytest.mark.parametrize('pattern', [
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"])
def test_tiktokens_patterns_survive_the_export(pattern, tmp_path):
    docs = load_tokenizer(DOCS_TOKENIZER)
    ours = Tokenizer(pattern, docs.ranks, docs.specials, docs.roles)
    ours.save(tmp_path)
    theirs = HuggingFace.from_file(str(tmp_path / 'tokenizer.json'))
    theirs.encode_special_tokens = True
    same_ids(ours, theirs, sample_texts(3_000) + ['1234567 12 1', 'a1234b', 'x  \n\n  y', 'end \n'])
    assert load_tokenizer(str(tmp_path)).pattern == ours.pattern

"""Tokenizers in and out: the tokenizers library is the judge of ids, transformers of what is saved."""
import functools
import json
from types import SimpleNamespace

import numpy as np
import pytest
import tiktoken
import transformers

from conftest import LLAMA3, refused, small_run
from nanoencoder.pretraining.checkpoint import write_model
from nanoencoder.tasks.kind import framed
from nanoencoder.tokenizer import LLAMA3_PATTERN, learn, load_tokenizer
from tokenizer_files import EOS, STYLES, TOKENIZER, changed, huggingface, sample_texts

LACKED = ['\x04', '\x06\x13', '\x16 ', '\x1d\n', '!\x04!', 'the\x1dre', '\U00050000', 'x\U000a0000']


def with_added(spec, added):
    """Give a tokenizer.json these added tokens only: (token, id, is special, is in the vocabulary, too)."""
    vocabulary = spec['model']['vocab']
    for token in spec['added_tokens']:
        vocabulary.pop(token['content'], None)
    usual = spec['added_tokens'][0]
    spec['added_tokens'] = []
    for token, i, special, in_vocabulary in added:
        spec['added_tokens'].append(usual | {'id': i, 'content': token, 'special': special})
        if in_vocabulary:
            vocabulary[token] = i


def same_ids(ids_of, library, samples):
    expected = library.encode_batch(samples, add_special_tokens=False)
    for text, encoding in zip(samples, expected):
        assert list(ids_of(text)) == encoding.ids, repr(text[:200])


@pytest.mark.parametrize('style', STYLES)
def test_a_corpus_has_the_ids_of_hugging_face(style, tmp_path, capsys):
    """By tiktoken, also for very long words, spaces and digits, and where bytes have no token."""
    library = huggingface(style, tmp_path)
    ours = load_tokenizer(str(tmp_path))
    bulk = ours.bulk()
    assert bulk.__name__ == 'fast'
    assert not capsys.readouterr().err
    samples = sample_texts(3_000, more=LACKED)
    same_ids(bulk, library, samples)
    same_ids(ours.encode, library, samples[:300])
    digits = ['3  4', '  5', '\n\n6', '½ ²', ' \t7', '8 \n']
    same_ids(bulk, library, sample_texts(2_000, seed=1, more=digits))
    long_words = ['word' * 40_000]
    for character in 'a\n7':
        long_words.append(character * 150_000)
    spaces = ' ' * 1_200_000    # more than tiktoken's regular expressions can hold
    same_ids(bulk, library, [*long_words, spaces + 'x'])


def test_the_embedded_tokenizer_has_the_ids_of_hugging_face_and_its_old_fingerprint():
    """Runs compare the fingerprint with that of corpora prepared by earlier versions."""
    same_ids(TOKENIZER.bulk(), TOKENIZER.backend, sample_texts(5_000) + ['word' * 250_000])
    assert TOKENIZER.fingerprint() == 'fb91d752ddaab5e1d8ec98e9224db7a8dd5dfbf1fe6b2716b634a3787647b000'


@pytest.mark.parametrize('sentence', [
    '昨日は雨が降りましたので家で本を読んでいました', 'เมื่อวานฝนตกฉันจึงอ่านหนังสืออยู่ที่บ้าน',
    'Donaudampfschifffahrtsgesellschaft', '=' * 40, ' ' * 40 + 'x', '\n' * 40])
def test_a_learnt_token_has_at_most_16_characters(sentence):
    """However often a longer text without a place to split at comes again."""
    learnt = learn([f'a {sentence} b {k}' for k in range(100)], 500)
    pieces = [learnt.decode([i]) for i in learnt.encode(f'a {sentence} b')]
    assert ''.join(pieces) == f'a {sentence} b'
    assert 8 < max(map(len, pieces)) <= 16


@pytest.mark.skipif(not LLAMA3.exists(), reason='no vocabulary')
@pytest.mark.slow
def test_llama3_is_what_transformers_makes_of_the_same_file():
    from transformers.convert_slow_tokenizer import TikTokenConverter
    ours = load_tokenizer(str(LLAMA3))
    assert ours.vocab_size == 128_256
    assert ours.largest == 127_999
    assert ours.ids == {'bos': 128_000, 'eos': 128_001, 'pad': 128_001, 'mask': 128_002}
    assert ours.fingerprint() == '157dca369c8e55d39af83ab6f118ba0485bd47cd503ff6c55680b211e5c58d5a'
    library = TikTokenConverter(vocab_file=str(LLAMA3), pattern=LLAMA3_PATTERN).converted()
    samples = sample_texts(5_000)
    same_ids(ours.encode, library, samples)
    same_ids(ours.bulk(), library, samples + ['word' * 250_000])


def split_by(pattern):
    return lambda spec: spec['pre_tokenizer']['pretokenizers'][0].update(pattern={'Regex': pattern})


PUNCTUATION = {'type': 'Punctuation', 'behavior': 'Contiguous'}
NFC_LIST = {'type': 'Sequence', 'normalizers': [{'type': 'NFC'}]}


@pytest.mark.parametrize('change, words', [
    # {1,3}+ repeats in one engine only; ^ begins a line in one, a text in the other
    (split_by(r'\p{N}{1,3}+|\w+|\s+|[^\s\w]+'), 'tiktoken gives other ids for '),
    (split_by(r'^\w+ |\w+|\s+|[^\s\w]+'), 'tiktoken gives other ids for '),
    (lambda spec: spec['pre_tokenizer']['pretokenizers'].insert(0, PUNCTUATION), 'or pre-tokenizer is known'),
    (lambda spec: spec.update(normalizer=NFC_LIST), 'no tiktoken form of this normalizer or'),
    (lambda spec: spec['model']['merges'].reverse(), 'in which ids of bytes rise with merges')])
def test_where_tiktoken_has_other_ids_or_none_it_does_not_encode(tmp_path, capsys, change, words):
    ours = changed(tmp_path, change)
    same_ids(ours.bulk(), ours.backend, ['1234567', 'x\nthe array', *sample_texts(200)])
    said = capsys.readouterr().err
    assert words in said
    assert said.endswith(': tokenizers encodes, about three times slower\n')


def test_masks_are_encoded_where_asked_and_surrogates_replaced():
    encode = TOKENIZER.encode
    masked = TOKENIZER.encode_masked('The <|mask|> of<|mask|>')
    assert masked.tolist() == [*encode('The'), 4095, *encode(' of'), 4095, TOKENIZER.ids['eos']]
    assert TOKENIZER.decode(masked[:-1]) == 'The<|mask|> of<|mask|>'
    for either in (encode, TOKENIZER.bulk()):
        assert either('a \ud83d b').tolist() == encode('a \ufffd b').tolist()


def test_an_old_file_without_its_models_type_opens(tmp_path):
    old = changed(tmp_path, lambda spec: spec['model'].pop('type'))
    assert old.fingerprint() == TOKENIZER.fingerprint()


UNIGRAM = {'type': 'Unigram', 'vocab': [['a', 0.0]], 'unk_id': 0}
PANICS = {'type': 'Precompiled', 'precompiled_charsmap': 'AAAA'}
PANICS_AT_LETTERS = '(?:|)' * 30 + '#|.'


@pytest.mark.parametrize('change, part', [
    (lambda spec: spec.update(model=UNIGRAM, added_tokens=spec['added_tokens'][1:2]),   # eos
     'Unigram without a mask token is of no encoder; SentencePiece'),
    (lambda spec: spec['model'].update(dropout=0.1), 'no byte-level BPE without dropout'),
    (lambda spec: spec.update(normalizer={'type': 'Lowercase'}), 'loses or changes plain text'),
    (lambda spec: spec.update(pre_tokenizer=None), 'no byte-level BPE without dropout, .*; SentencePiece'),
    (lambda spec: spec.update(normalizer=PANICS), 'library refuses it: .*charsmap'),
    (split_by(PANICS_AT_LETTERS), 'library refuses it: .*retry-limit'),
    (lambda spec: spec['added_tokens'].pop(1), 'no eos token'),
    (lambda spec: spec['added_tokens'][2].update(content='for', id=spec['model']['vocab']['for']),
     'loses or changes plain text')])
def test_a_tokenizer_that_cannot_be_used_is_refused(tmp_path, change, part):
    refused(f'tokenizer.json: .*{part}', changed, tmp_path, change)


def test_a_sentencepiece_file_is_refused_by_name(tmp_path):
    (tmp_path / 'tokenizer.model').write_bytes(b'\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00\x18\x02\n\x0c')
    refused('SentencePiece, as of Llama 2, Mistral or TinyLlama', load_tokenizer, str(tmp_path))


@pytest.mark.parametrize('style', ['docs', 'llama-3'])
def test_saved_tokenizers_give_our_ids_in_transformers(style, tmp_path):
    """A token's offsets are those of what it stands for, without the spaces around, as BERT's are."""
    ours = TOKENIZER
    if style != 'docs':
        huggingface(style, tmp_path)
        ours = load_tokenizer(str(tmp_path))
    ours.save(tmp_path, model_max_length=100)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs.model_max_length == 100
    assert (theirs.mask_token_id, theirs.pad_token_id) == (ours.ids['mask'], ours.ids['pad'])
    eos = theirs.eos_token_id
    for text in sample_texts(1000):
        assert ours.decode(ours.encode(text)) == text
        plain = text.replace('<|', '<_')    # text in which Hugging Face sees no special token either
        encoded = theirs(plain, return_offsets_mapping=True)
        assert encoded['input_ids'] == [*ours.encode(plain), eos]
        pieces = [plain[start:end] for start, end in encoded['offset_mapping']]
        assert pieces == [piece.strip(' ') for piece in pieces], repr(plain)
    assert theirs.encode('of <|mask|>') == ours.encode_masked('of <|mask|>').tolist()


def of_encoder(name):
    """Write the tokenizer of an encoder of transformers."""
    def write(folder):
        import peer_folders
        getattr(peer_folders, name)().save_pretrained(folder)
    return write


def of_older_corpus(folder):
    """The corpus's tokenizer.json ended no text with eos."""
    TOKENIZER.save(folder)
    spec = json.loads((folder / 'tokenizer.json').read_text())
    spec['post_processor']['processors'].pop()
    (folder / 'tokenizer.json').write_text(json.dumps(spec))


@pytest.mark.parametrize('write', [
    TOKENIZER.save, of_older_corpus, functools.partial(huggingface, 'smollm'), of_encoder('word_pieces'),
    of_encoder('byte_level')], ids=['ours', 'of an older corpus', "a decoder's", 'word pieces', 'bytes'])
def test_a_checkpoint_is_read_alike_by_everybody(write, tmp_path):
    """transformers' tokenizer of a pretrained folder gives what our own scripts give a model, [CLS] and eos
    included; and it says how many tokens the model reads."""
    corpus = SimpleNamespace(folder=tmp_path / 'corpus', meta={})
    folder = tmp_path / '12'
    for new in (corpus.folder, folder):
        new.mkdir()
    write(corpus.folder)
    for role, i in load_tokenizer(str(corpus.folder)).ids.items():
        corpus.meta[f'{role}_token_id'] = i
    write_model(folder, None, {}, 'mlm', corpus, small_run(context=64))
    ours = load_tokenizer(str(folder))
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    assert theirs.model_max_length == 64
    assert ours.suffix
    for text in ['', *sample_texts(200)]:
        text = text.replace('<|', '<_')
        ids = framed(ours.encode(text), ours, 64).tolist()
        assert theirs(text, truncation=True)['input_ids'] == ids, repr(text)
    masked = f'of {theirs.mask_token}'
    assert theirs(masked)['input_ids'] == ours.encode_masked(masked).tolist()


def test_offsets_are_of_the_words_without_spaces(tmp_path):
    """All characters but white space are in a token, also those that Qwen's normalizer joins to others."""
    huggingface('qwen', tmp_path)
    ours = load_tokenizer(str(tmp_path))
    for text in sample_texts(1_000):
        ids, offsets = ours.encode_with_offsets(text)
        assert np.array_equal(ids, ours.encode(text))
        assert len(offsets) == len(ids)
        covered = set()
        for first, last in offsets.tolist():
            assert 0 <= first <= last <= len(text)
            assert text[first:last] == text[first:last].strip()
            covered.update(range(first, last))
        for k, character in enumerate(text):
            assert k in covered or character.isspace()


@pytest.mark.parametrize('added', [
    [(EOS, 4093, True, False), ('<|im_start|>', 4094, True, False), ('<think>', 4095, False, False)],
    [(EOS, 4093, True, True), ('<|User|>', 4094, False, False), (' ' * 4, 4095, False, False)],
    [('<|mask|>', 4100, True, False), (EOS, 4200, True, False), ('<think>', 4300, False, False)]],
    ids=['as Qwen', 'as DeepSeek and GPT-NeoX, some in both and a text', 'gaps and a mask'])
def test_every_added_token_keeps_the_id_that_its_file_gives_it(added, tmp_path):
    """To us, the tokenizers library and transformers; when read, and when read again after saving."""
    file_ids = {token: i for token, i, _, _ in added}
    first = changed(tmp_path, lambda spec: with_added(spec, added))
    assert first.mask_is_new == ('<|mask|>' not in file_ids)
    assert (first.prefix, first.suffix) == ([], [file_ids[EOS]])
    assert first.ids['bos'] == first.ids['pad'] == first.ids['eos'] == file_ids[EOS]
    same_ids(first.bulk(), first.backend, sample_texts(200))
    expected = {'<|mask|>': max(file_ids.values()) + 1} | file_ids
    assert first.specials == {token: i for token, i in expected.items() if token.strip()}
    for encode in (first.encode, first.bulk()):
        for token, i in file_ids.items():   # spaces are text, tags are characters
            assert (i in encode(f'a{token}b')) == token.isspace()
    first.save(tmp_path)
    again = load_tokenizer(str(tmp_path))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for ids_of in (first.backend.token_to_id, again.backend.token_to_id, theirs.convert_tokens_to_ids):
        assert {token: ids_of(token) for token in expected} == expected
    assert theirs('of it')['input_ids'] == [*first.encode('of it'), theirs.eos_token_id]
    assert again.fingerprint() == first.fingerprint()


# of tiktoken's gpt2 and cl100k_base, whose vocabularies would be downloads
@pytest.mark.parametrize('pattern', [
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"], ids=['gpt2', 'cl100k_base'])
def test_tiktokens_names_have_its_ids(pattern, monkeypatch):
    _, ranks = TOKENIZER.in_tiktoken
    theirs = tiktoken.Encoding('gpt2', pat_str=pattern, mergeable_ranks=ranks,
                               special_tokens={EOS: len(ranks)})
    monkeypatch.setattr(tiktoken, 'get_encoding', lambda name: theirs)
    ours = load_tokenizer('gpt2')
    for text in sample_texts(1_000) + ['1234567 12 1', 'a1234b', 'x  \n\n  y', 'end \n']:
        assert ours.encode(text).tolist() == theirs.encode_ordinary(text), repr(text)

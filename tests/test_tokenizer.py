"""Tokenizers in and out: tiktoken's ids are the library's, and transformers reads alike what is saved."""
import json
import random
import signal
import time

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer as HuggingFace, models, normalizers, pre_tokenizers, trainers

from conftest import LLAMA3, ROOT, Script, jsonl, ran, refused, texts
from data import Corpus
from nanoencoder import tokenizer
from nanoencoder.files import saved_steps
from nanoencoder.huggingface import open_checkpoint
from nanoencoder.tokenizer import ALPHABET, LLAMA3_PATTERN, load_tokenizer, splits

DOCS_TOKENIZER = str(ROOT / 'configs/corpora/docs')
QWEN_PATTERN = LLAMA3_PATTERN.replace(r'\p{N}{1,3}', r'\p{N}')
# SmolLM2's vocabulary has no token for these bytes
LACKING = bytes.fromhex('04 06 13 14 16 1D C0 C1 F1 F2 F5 F6 F7 F8 F9 FA FB FC FD FE FF')
LACKED = ['\x04', '\x06\x13', '\x16 ', '\x1d\n', '!\x04!', 'the\x1dre', '\U00050000', 'x\U000a0000']
STYLES = {  # as in these models' tokenizer.json: what stands before the merges, and the special tokens
    'llama-3': (splits(LLAMA3_PATTERN), None, ['<|begin_of_text|>', '<|end_of_text|>']),
    'qwen': (pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN_PATTERN), 'isolated'),
                                      pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
             normalizers.NFC(), ['<|endoftext|>', '<|im_start|>', '<|im_end|>']),
    'smollm': (pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                        pre_tokenizers.ByteLevel(add_prefix_space=False)]), None,
               ['<|endoftext|>', '<|im_start|>', '<|im_end|>', '<repo_name>']),
    'gpt-2': (pre_tokenizers.ByteLevel(add_prefix_space=False), None, ['<|endoftext|>'])}


def huggingface(style, folder, vocab_size=2_000):
    """A tokenizer of a model family's form, trained by Hugging Face's library and written to a folder."""
    splits, normalizer, specials = STYLES[style]
    made = HuggingFace(models.BPE(ignore_merges=style == 'llama-3'))
    made.pre_tokenizer = splits
    if normalizer:
        made.normalizer = normalizer
    lacking = LACKING if style == 'smollm' else b''
    alphabet = [character for byte, character in ALPHABET.items() if byte not in lacking]
    read = [text for text in texts() + sample_texts(500, seed=9) if not set(text.encode()) & set(lacking)]
    made.train_from_iterator(read, trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=alphabet, special_tokens=specials, show_progress=False))
    made.save(str(folder / 'tokenizer.json'))
    (folder / 'tokenizer_config.json').write_text(json.dumps({'eos_token': specials[-1]
                                                              if style == 'llama-3' else '<|endoftext|>'}))
    made.encode_special_tokens = True  # a literal <|endoftext|> is text
    return made


def published(style, folder):
    """Write a tokenizer.json as it is published: its special tokens follow the vocabulary, and are in
    added_tokens alone. Returns {special token: id}."""
    huggingface(style, folder, vocab_size=1_000)
    spec = json.loads((folder / 'tokenizer.json').read_text())
    added = [token['content'] for token in spec['added_tokens']]
    words = sorted(spec['model']['vocab'].keys() - {*added}, key=spec['model']['vocab'].get)
    spec['model']['vocab'] = {word: i for i, word in enumerate(words)}
    for i, token in enumerate(spec['added_tokens'], len(words)):
        token['id'] = i
    (folder / 'tokenizer.json').write_text(json.dumps(spec))
    return {token['content']: token['id'] for token in spec['added_tokens']}


def changed(folder, change):
    """The embedded tokenizer with a change of its tokenizer.json, written to a folder."""
    spec = json.loads((ROOT / 'configs/corpora/docs/tokenizer.json').read_text())
    change(spec)
    (folder / 'tokenizer.json').write_text(json.dumps(spec))
    return load_tokenizer(str(folder))


def sample_texts(count, seed=0, more=()):
    """Random mixtures of English, code, numbers, emoji, CJK, combining marks, spaces, special strings."""
    random_ = random.Random(seed)
    pieces = ['the', ' The', "don't", "WE'LL", 'naïve', 'e\u0301', 'Å', 'A\u030a', 'def f(x):', ' {', '};',
              '\n', '\r\n', '\t', ' ', '  ', '   \n', '0', '12', '1234567', '٣', '²', '½', '東京', '각',
              'ру', 'الع', '👩\u200d👩', '\xa0', '\u3000', '\x00', '\x7f', '\ufeff', '\u0323\u0307',
              'a\u0323\u0307', '"', '...', '!?', '\\', '<|mask|>', '<|im_end|>', '_', '\U0010ffff', *more]
    made = []
    for _ in range(count):
        parts = random_.choices(pieces, k=random_.randint(1, 30))
        if random_.random() < 0.2:
            parts += [chr(random_.choice([random_.randrange(0x20, 0xd800),
                                          random_.randrange(0xe000, 0x110000)])) for _ in range(5)]
        made.append(''.join(parts))
    return made


def same_ids(ids_of, theirs, samples):
    for text, encoding in zip(samples, theirs.encode_batch(samples, add_special_tokens=False)):
        assert list(ids_of(text)) == encoding.ids, repr(text[:200])


@pytest.mark.parametrize('style', STYLES)
def test_a_corpus_has_the_ids_of_hugging_face(style, tmp_path, capsys):
    """By tiktoken, also on very long words, spaces, digits, and where bytes lack. A mask is added."""
    theirs = huggingface(style, tmp_path)
    ours, samples = load_tokenizer(str(tmp_path)), sample_texts(3_000, more=LACKED)
    assert ours.mask_is_new and ours.ids['mask'] == theirs.get_vocab_size() == ours.largest + 1
    assert ours.vocab_size == ours.largest + 2 and (ours.prefix, ours.suffix) == ((), (ours.ids['eos'],))
    assert ours.roles['eos'] == ('<|end_of_text|>' if style == 'llama-3' else '<|endoftext|>')
    bulk = ours.bulk(())
    assert bulk.__name__ == 'fast' and not capsys.readouterr().err
    same_ids(bulk, theirs, samples)
    same_ids(bulk, theirs, sample_texts(2_000, seed=1, more=['3  4', '  5', '\n\n6', '½ ²', ' \t7', '8 \n']))
    same_ids(ours.encode, theirs, samples[:300])
    spaces = ' ' * (1_200_000 if style == 'llama-3' else 150_000) + 'x'
    same_ids(bulk, theirs, ['word' * 40_000, 'a' * 150_000, spaces, '\n' * 150_000, '7' * 150_000])
    ours.save(tmp_path)  # and out again
    again = load_tokenizer(tmp_path)
    same_ids(again.encode, theirs, samples[:300])
    assert again.fingerprint() == ours.fingerprint() and again.ids == ours.ids and not again.mask_is_new
    written = HuggingFace.from_file(str(tmp_path / 'tokenizer.json'))
    assert {token: written.token_to_id(token) for token in ours.specials} == ours.specials
    assert all(written.id_to_token(i) is not None for i in range(ours.vocab_size))


def test_the_embedded_tokenizer_has_the_ids_of_hugging_face_and_its_old_fingerprint():
    """Runs compare the fingerprint with that of corpora prepared by earlier versions."""
    theirs = HuggingFace.from_file(f'{DOCS_TOKENIZER}/tokenizer.json')
    ours = load_tokenizer(DOCS_TOKENIZER)
    theirs.encode_special_tokens = True
    same_ids(ours.bulk(()), theirs, sample_texts(20_000) + ['word' * 250_000])
    assert ours.fingerprint() == 'fb91d752ddaab5e1d8ec98e9224db7a8dd5dfbf1fe6b2716b634a3787647b000'


@pytest.mark.skipif(not LLAMA3.exists(), reason='no vocabulary')
@pytest.mark.slow
def test_llama3_is_what_transformers_makes_of_the_same_file():
    from transformers.convert_slow_tokenizer import TikTokenConverter
    ours = load_tokenizer(str(LLAMA3))
    assert ours.vocab_size == 128_256 and ours.largest == 127_999
    assert ours.ids == {'bos': 128_000, 'eos': 128_001, 'pad': 128_001, 'mask': 128_002}
    assert ours.fingerprint() == '157dca369c8e55d39af83ab6f118ba0485bd47cd503ff6c55680b211e5c58d5a'
    theirs = TikTokenConverter(vocab_file=str(LLAMA3), pattern=LLAMA3_PATTERN).converted()
    samples = sample_texts(5_000)
    same_ids(ours.encode, theirs, samples)
    same_ids(ours.bulk(()), theirs, samples + ['word' * 250_000])


def test_what_tiktoken_splits_otherwise_it_does_not_encode(tmp_path, capsys):
    """{1,3}+ repeats for one engine alone; ^ begins a line there and a text here, as a sample may tell."""
    for pattern, sample in ((r'\p{N}{1,3}+|\w+|\s+|[^\s\w]+', ()),
                            (r'^\w+ |\w+|\s+|[^\s\w]+', ['x\nthe array'])):
        step = {'pattern': {'Regex': pattern}}
        ours = changed(tmp_path, lambda spec: spec['pre_tokenizer']['pretokenizers'][0].update(step))
        same_ids(ours.bulk(sample), ours.backend, sample_texts(200) + sample * 2 if sample else ['1234567'])
        assert 'tiktoken gives other ids for ' in capsys.readouterr().err


@pytest.mark.parametrize('change, words', [
    (lambda spec: spec['pre_tokenizer']['pretokenizers'].insert(0, {'type': 'Punctuation',
                                                                    'behavior': 'Contiguous'}),
     'no tiktoken form of this pre-tokenizer is known'),
    (lambda spec: spec.update(normalizer={'type': 'Sequence', 'normalizers': [{'type': 'NFC'}]}),
     'no tiktoken form of this normalizer is known'),
    (lambda spec: spec['model'].update(merges=spec['model']['merges'][::-1]),
     'this vocabulary has no tiktoken form, in which ids of bytes rise with merges')])
def test_what_tiktoken_was_not_asked_for_is_said_so(tmp_path, capsys, change, words):
    ours = changed(tmp_path, change)
    same_ids(ours.bulk(()), ours.backend, sample_texts(200))
    assert capsys.readouterr().err == f'{words}: tokenizers encodes, about three times slower\n'


def test_a_huge_text_is_encoded_in_parts_that_do_not_change_its_ids(tmp_path, monkeypatch):
    """Where tiktoken does not encode: there a text takes hundreds of bytes of memory a character."""
    ours = changed(tmp_path, lambda spec: spec['model'].update(merges=spec['model']['merges'][::-1]))
    samples = [' '.join(sample_texts(500, seed=k)) for k in range(5)]
    expected = [list(ours.bulk(())(text)) for text in samples]
    longest, encode = [0], ours.backend.encode_batch_fast

    class Backend:  # of which the longest text that it encodes is kept
        normalizer = ours.backend.normalizer

        def encode_batch_fast(self, texts, **options):
            longest[0] = max(longest[0], *map(len, texts))
            return encode(texts, **options)
    slow = ours.bulk(())
    monkeypatch.setattr(ours, 'backend', Backend())
    monkeypatch.setattr(tokenizer, 'PIECE', 1_000)
    assert [list(slow(text)) for text in samples] == expected and 1_000 <= longest[0] < 3_000
    slow('東' * 100_000)
    assert longest[0] == 8_000


BYTES = {'type': 'ByteLevel', 'add_prefix_space': False, 'trim_offsets': True, 'use_regex': False}
BEHIND_SPACES = {'type': 'Split', 'pattern': {'String': ' '}, 'behavior': 'MergedWithPrevious', 'invert': False}


@pytest.mark.parametrize('parts', [[BEHIND_SPACES, BYTES], [BYTES]])
def test_a_text_whose_tokens_may_span_a_space_is_encoded_whole(parts, tmp_path, monkeypatch):
    ours = changed(tmp_path, lambda spec: spec.update(
        pre_tokenizer={'type': 'Sequence', 'pretokenizers': parts}))
    text = 'a b of the array ' * 200
    expected = ours.backend.encode(text, add_special_tokens=False).ids
    monkeypatch.setattr(tokenizer, 'PIECE', 100)
    assert list(ours.bulk(())(text)) == expected


def test_masks_are_encoded_where_asked_and_surrogates_replaced():
    tokenizer = load_tokenizer(DOCS_TOKENIZER)
    masked = tokenizer.encode_masked('The <|mask|> of<|mask|>')
    assert masked.tolist() == [*tokenizer.encode('The'), 4095, *tokenizer.encode(' of'), 4095]
    assert tokenizer.decode(masked) == 'The<|mask|> of<|mask|>'
    assert tokenizer.encode('a \ud83d b').tolist() == tokenizer.encode('a \ufffd b').tolist()


@pytest.mark.parametrize('change, part', [
    (lambda spec: spec.update(model={'type': 'Unigram', 'vocab': [['a', 0.0]], 'unk_id': 0}, added_tokens=[]),
     'no byte-level BPE without dropout, but Unigram'),
    (lambda spec: spec['model'].update(byte_fallback=True),
     'SentencePiece, as of Llama 2, Mistral or TinyLlama'),
    (lambda spec: spec.update(normalizer={'type': 'Lowercase'}), 'it loses or changes plain text'),
    (lambda spec: spec.update(pre_tokenizer=None), 'no byte-level'),
    (lambda spec: spec.update(normalizer={'type': 'Precompiled', 'precompiled_charsmap': 'AAAA'}),
     'library refuses it: .*charsmap'),  # a panic, as the next one is, at any letter
    (lambda spec: spec['pre_tokenizer']['pretokenizers'][0].update(pattern={'Regex': '(?:|)' * 30 + '#|.'}),
     'library refuses it: .*retry-limit'),
    (lambda spec: spec['added_tokens'].pop(1), 'no eos token'),
    (lambda spec: spec['added_tokens'][2].update(content='for', id=spec['model']['vocab']['for']),
     'loses or changes plain text'),
    (lambda spec: spec.pop('model'), 'library refuses it')])
def test_a_tokenizer_that_cannot_be_used_is_refused(tmp_path, change, part):
    refused(f'tokenizer.json: .*{part}', changed, tmp_path, change)


def test_a_sentencepiece_file_is_refused_by_name(tmp_path):
    (tmp_path / 'tokenizer.model').write_bytes(b'\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00\x18\x02\n\x0c')
    refused('SentencePiece, as of Llama 2, Mistral or TinyLlama', load_tokenizer, str(tmp_path))


@pytest.mark.parametrize('style', ['docs', 'llama-3'])
def test_saved_tokenizers_give_our_ids_in_transformers(style, tmp_path):
    """The offsets of a token are those of what it stands for, without the spaces around, as in BERT's."""
    from transformers import AutoTokenizer
    if style != 'docs':
        huggingface(style, tmp_path)
    ours = load_tokenizer(DOCS_TOKENIZER if style == 'docs' else str(tmp_path))
    ours.save(tmp_path, append_eos=True)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert (theirs.mask_token_id, theirs.eos_token_id,
            theirs.pad_token_id) == tuple(ours.ids[role] for role in ('mask', 'eos', 'pad'))
    for text in sample_texts(1000):
        plain = text.replace('<|', '<_')  # text in which Hugging Face sees no special token either
        encoded = theirs(plain, return_offsets_mapping=True)
        assert encoded['input_ids'] == [*ours.encode(plain), ours.ids['eos']]
        pieces = [plain[start:end] for start, end in encoded['offset_mapping']]
        assert all(piece == piece.strip(' ') for piece in pieces), repr(plain)
        assert ours.decode(ours.encode(text)) == text
    assert theirs.encode('of <|mask|>') == [*ours.encode_masked('of <|mask|>'), ours.ids['eos']]
    ours.save(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path).encode('of it') == ours.encode('of it').tolist()


@pytest.mark.parametrize('style', ['llama-3', 'qwen'])
def test_offsets_are_of_the_words_without_spaces(style, tmp_path):
    """Hugging Face strips spaces alone, we any white space; what it composes comes of all its parts."""
    huggingface(style, tmp_path)
    ours = load_tokenizer(str(tmp_path))
    for text in sample_texts(1_000):
        ids, offsets = ours.encode_with_offsets(text)
        assert ids.tolist() == ours.encode(text).tolist() and len(offsets) == len(ids)
        for first, last in offsets.tolist():
            assert 0 <= first <= last <= len(text) and text[first:last] == text[first:last].strip()
        covered = {k for first, last in offsets.tolist() for k in range(first, last)}
        assert covered >= {k for k, one in enumerate(text) if one.strip()}
    docs = load_tokenizer(DOCS_TOKENIZER)
    assert docs.encode_with_offsets('')[1].dtype == 'int64'
    assert docs.encode_with_offsets('the  of\n')[1].tolist() == [[0, 3], [4, 4], [5, 7], [8, 8]]


def test_tokens_that_are_not_special_stay_so_and_are_characters(tmp_path):
    """Spaces that were added to a vocabulary are text, <think> is not."""
    plain = dict.fromkeys(('single_word', 'lstrip', 'rstrip', 'normalized', 'special'), False)
    added = [plain | dict(id=4096, content='<think>'), plain | dict(id=4097, content=' ' * 4)]
    ours = changed(tmp_path, lambda spec: spec['added_tokens'].extend(added))
    assert 4096 in ours.specials.values() and 4097 not in ours.specials.values()
    assert ours.decode(ours.encode('a<think>')) == 'a<think>' and 4096 not in ours.encode('a<think>')
    assert 4097 in ours.encode('a    b') and list(ours.bulk(())('a    b')) == ours.encode('a    b').tolist()
    ours.save(tmp_path)
    assert load_tokenizer(str(tmp_path)).fingerprint() == ours.fingerprint()


PLACES = {  # (added token, its id, whether it is special, whether the model's vocabulary has it, too)
    'as Llama 3': [('<|begin_of_text|>', 4093, True, False), ('<|end_of_text|>', 4094, True, False),
                   ('<|reserved|>', 4095, True, False)],
    'as Qwen': [('<|endoftext|>', 4093, True, False), ('<|im_start|>', 4094, True, False),
                ('<think>', 4095, False, False), ('</think>', 4096, False, False)],
    'as DeepSeek, some in both': [('<|endoftext|>', 4093, True, True), ('<|User|>', 4094, False, False)],
    'as SmolLM2, all in both': [('<|endoftext|>', 4093, True, True), ('<|im_start|>', 4094, True, True)],
    'as GPT-NeoX, with text': [('<|endoftext|>', 4093, True, True), (' ' * 4, 4094, False, False)],
    'a mask of its own': [('<|endoftext|>', 4093, True, False), ('<|mask|>', 4094, True, False)],
    'a gap before them': [('<|endoftext|>', 5000, True, False), ('<|im_start|>', 5001, True, False)],
    'gaps between them, and a mask': [('<|mask|>', 4100, True, False), ('<|endoftext|>', 4200, True, False),
                                      ('<think>', 4300, False, False)]}


@pytest.mark.parametrize('place', PLACES)
def test_every_added_token_keeps_the_id_that_its_file_gives_it(place, tmp_path):
    """When read and after two rounds of writing, to us, the tokenizers library and transformers."""
    from transformers import AutoTokenizer
    file_ids = {token: i for token, i, _, _ in PLACES[place]}

    def move(spec):
        vocabulary = spec['model']['vocab']
        for token in spec['added_tokens']:
            vocabulary.pop(token['content'])
        flags = dict.fromkeys(('single_word', 'lstrip', 'rstrip', 'normalized'), False)
        spec['added_tokens'] = [flags | dict(id=i, content=token, special=special)
                                for token, i, special, _ in PLACES[place]]
        vocabulary |= {token: i for token, i, _, in_both in PLACES[place] if in_both}
    ours = first = changed(tmp_path, move)
    assert ours.mask_is_new == ('<|mask|>' not in file_ids)
    expected = {'<|mask|>': max(file_ids.values()) + 1} | file_ids
    assert ours.vocab_size == max(expected.values()) + 1
    for _ in range(2):
        assert {token: ours.backend.token_to_id(token) for token in expected} == expected
        assert ours.specials == {token: i for token, i in expected.items() if token.strip()}
        ours.save(tmp_path, append_eos=True)
        library = HuggingFace.from_file(str(tmp_path / 'tokenizer.json'))
        assert {token: library.token_to_id(token) for token in expected} == expected
        theirs = AutoTokenizer.from_pretrained(tmp_path)
        assert {token: theirs.convert_tokens_to_ids(token) for token in expected} == expected
        assert theirs('of it')['input_ids'] == [*first.encode('of it'), first.ids['eos']]
        assert theirs.mask_token_id == expected['<|mask|>'] and theirs.eos_token_id == first.ids['eos']
        ours = load_tokenizer(str(tmp_path))
        assert ours.fingerprint() == first.fingerprint() and ours.ids == first.ids


@pytest.mark.parametrize('style', ['llama-3', 'qwen'])
def test_a_decoder_of_this_form_becomes_an_encoder_that_survives_a_kill(style, tmp_path):
    """Prepared, pretrained, killed, resumed and exported; transformers opens it with the published ids."""
    import torch
    import transformers
    family = {'llama-3': transformers.LlamaForCausalLM, 'qwen': transformers.Qwen3ForCausalLM}[style]
    decoder, run = tmp_path / 'decoder', tmp_path / 'encoder'
    family(family.config_class(
        vocab_size=1_024, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=128)).save_pretrained(decoder)
    file_ids = published(style, decoder)
    theirs = HuggingFace.from_file(str(decoder / 'tokenizer.json'))
    jsonl(tmp_path / 'texts.jsonl', [{'text': text} for text in texts()])
    ran('data.py', '--source=folder', f'--path={tmp_path}/texts.jsonl', '--val_permille=200',
        f'--tokenizer={decoder}', f'--out={tmp_path}/corpus')
    corpus = Corpus(tmp_path / 'corpus')
    tokens = corpus.stretch('train', 0, corpus.meta['tokens'])
    eos = file_ids[STYLES[style][2][1] if style == 'llama-3' else '<|endoftext|>']
    assert np.count_nonzero(tokens == eos) == corpus.meta['documents'] and tokens[-1] == eos
    first = tokens[:list(tokens).index(eos)].tolist()
    assert first in [theirs.encode(text, add_special_tokens=False).ids for text in texts()]

    words = ['pretrain.py', 'configs/decoder_to_encoder.py', f'--weights_from={decoder}', '--name=encoder',
             f'--out={tmp_path}', f'--corpus={tmp_path}/corpus', '--context=64', '--rows_per_step=2',
             '--micro_rows=0', '--compile=False', '--device=cpu', '--phases=("mlm", 10)', '--warmup_steps=2',
             '--decay_steps=2', '--save_every=2', '--val_every=0', '--val_rows=4', '--log_every=1']
    process = Script(*words)
    while process.is_alive() and len(saved_steps(run)) < 2:
        time.sleep(0.002)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL and max(saved_steps(run)) < 10
    assert 'resumed from' in ran(*words).stdout
    opened = transformers.AutoModelForMaskedLM if style == 'llama-3' else transformers.AutoModelForCausalLM
    model, about = opened.from_pretrained(run / '10', output_loading_info=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(run / '10')
    assert not any(about.values())
    assert {token: tokenizer.convert_tokens_to_ids(token) for token in file_ids} == file_ids
    assert tokenizer.mask_token_id == max(file_ids.values()) + 1 == model.config.mask_token_id
    assert tokenizer.eos_token_id == eos == model.config.eos_token_id
    text = tokenizer('The array <|mask|> of floats.', return_tensors='pt')
    ids = text['input_ids'][0]
    ours = open_checkpoint(run).model().eval()
    with torch.no_grad():
        expected = model.eval()(**text).logits[0]
        logits = ours.logits(ours.model(ids, [len(ids)], False))
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)


# of tiktoken's gpt2 and cl100k_base, whose vocabularies would be downloads
@pytest.mark.parametrize('pattern', [
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"], ids=['gpt2', 'cl100k_base'])
def test_tiktokens_names_have_its_ids(pattern, monkeypatch):
    import tiktoken
    _, ranks = load_tokenizer(DOCS_TOKENIZER).in_tiktoken
    theirs = tiktoken.Encoding('gpt2', pat_str=pattern, mergeable_ranks=ranks,
                               special_tokens={'<|endoftext|>': len(ranks)})
    monkeypatch.setattr(tiktoken, 'get_encoding', lambda name: theirs)
    ours = load_tokenizer('gpt2')
    for text in sample_texts(1_000) + ['1234567 12 1', 'a1234b', 'x  \n\n  y', 'end \n']:
        assert ours.encode(text).tolist() == theirs.encode_ordinary(text), repr(text)

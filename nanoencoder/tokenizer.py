"""Text -> token ids by Hugging Face's tokenizers library, for our vocabulary, decoders' and other encoders'.

    load_tokenizer('configs/corpora/docs')           # a folder, a tokenizer.json, a tiktoken .model file, or
    load_tokenizer('HuggingFaceTB/SmolLM2-135M')     # a hub id: Llama 3, EuroBERT, Qwen, SmolLM, GPT-2, ...

Nothing in a text is special: <|mask|> or Qwen's <think> are characters here."""
import base64
import contextlib
import functools
import hashlib
import json
import random
import re
import sys
from pathlib import Path

import numpy as np
import tiktoken
from tokenizers import Regex, Tokenizer as Backend, decoders, models, pre_tokenizers, processors

from nanoencoder.files import blame, read_json, write_json

LLAMA3_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
                  r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# as GPT-2's between digits, each of which stands alone: spaces before one are as those before a text's end
DIGITS_PATTERN = r'\p{N}|' + GPT2_PATTERN.replace(r'| ?\p{N}+', '').replace(r'(?!\S)', r'(?![^\s\p{N}])')
BOS, EOS, MASK = '<|begin_of_text|>', '<|end_of_text|>', '<|mask|>'  # as in EuroBERT, where pad is eos
SMALL_FILES = ('config.json', 'tokenizer.json', 'tokenizer_config.json', 'special_tokens_map.json',
               'added_tokens.json', 'model.safetensors.index.json')     # what a hub id gives at first
PIECE = 250_000     # characters that tokenizers encodes at once: it takes 200 bytes of memory for each
NO_SENTENCEPIECE = 'SentencePiece, as of Llama 2, Mistral or TinyLlama, is not supported'
PRINTABLE = [*range(ord('!'), ord('~') + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
# GPT-2 and its kind write bytes as printable characters, those that are none as U+0100 and on
ALPHABET = dict(zip(sorted(range(256), key=lambda byte: byte not in PRINTABLE),
                    map(chr, [*PRINTABLE, *range(256, 512)])))
BYTES = {character: byte for byte, character in ALPHABET.items()}


class Tokenizer:
    """A `tokenizers.Tokenizer`, the backend, to which nothing in a text is special.

    roles     {'bos' | 'eos' | 'pad' | 'mask': its token, or None}; `ids` has their ids
    specials  {token: id}
    unknown   an id for words that a vocabulary writes as a special token, as BERT's may [MASK]; or None
    prefix, suffix  the ids that the backend's post-processor puts around a text"""
    composes = False        # its normalizer joins combining marks to the characters before them
    mask_is_new = False     # the vocabulary had no mask token, and got one

    def __init__(self, backend, roles, specials, unknown=None):
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = True
        self.backend, self.roles, self.specials, self.unknown = backend, roles, specials, unknown
        self.ids = {role: token and backend.token_to_id(token) for role, token in roles.items()}
        ids = {*backend.get_vocab().values()}
        self.vocab_size, self.largest = max(ids) + 1, max(ids - {*specials.values()})
        self.unused_ids = sorted({*range(self.vocab_size)} - ids)     # gaps between the tokens
        letter = backend.encode('a')  # [CLS] a [SEP]
        first = [*letter.special_tokens_mask, 0].index(0)
        last = first + letter.special_tokens_mask.count(0)
        self.prefix, self.suffix = tuple(letter.ids[:first]), tuple(letter.ids[last:])

    def encode(self, text):
        """Token ids (n,), int64."""
        return self.encoded(text)[0]

    def encode_with_offsets(self, text):
        """(ids (n,), offsets (n, 2)): each token's characters but white space; first == last if none are."""
        ids, offsets, _ = self.encoded(text)
        parts = [(last - len(text[first:last].lstrip()), text[first:last].strip()) for first, last in offsets]
        offsets = np.array([(first, first + len(piece)) for first, piece in parts], np.int64).reshape(-1, 2)
        starts = {*offsets[:, 0].tolist()}
        for place in offsets if self.composes else ():  # a mark in no token was joined to what is before it
            while place[0] < place[1] < len(text) and not (place[1] in starts or text[place[1]].isspace()):
                place[1] += 1
        return ids, offsets

    def encoded(self, text):    # (ids, characters of each, number of its word as the pre-tokenizer splits)
        with one_line('a text'):
            encoding = self.backend.encode(without_surrogates(text), add_special_tokens=False)
        ids = np.array(encoding.ids, np.int64)
        if self.unknown is not None:
            ids[np.isin(ids, [*self.specials.values()])] = self.unknown
        return ids, encoding.offsets, encoding.word_ids

    def encode_masked(self, text):
        """As `encode`, but the mask token is one id, which includes the space before it as in training."""
        *before, last = text.split(self.roles['mask'])
        pieces = [part for piece in before for part in (self.encode(piece.rstrip()), [self.ids['mask']])]
        return np.concatenate([*pieces, self.encode(last)]).astype(np.int64)

    def decode(self, ids):
        return self.backend.decode([int(i) for i in ids], skip_special_tokens=False)

    def bulk(self, sample):
        """A function from a text to ids: tiktoken's, for speed, unless nasty texts or the sample differ."""
        # what `pieces` relies on; a pre-tokenizer of another kind gets a long text whole
        parts = self.backend.pre_tokenizer.pre_tokenize_str('a b')
        splits_before_spaces = [span for _, span in parts] == [(0, 1), (1, 3)]

        def slow(text):
            ids = []
            with one_line('a text'):
                text = without_surrogates(text)
                # a batch of one: `encode` would keep other threads waiting
                for piece in pieces(text) if splits_before_spaces else [text]:
                    encoding, = self.backend.encode_batch_fast([piece], add_special_tokens=False)
                    ids.append(np.array(encoding.ids, np.uint32))
            return np.concatenate(ids)
        try:
            fast = self.by_tiktoken(slow)
            for text in (*nasty_texts(), *sample):
                if not np.array_equal(fast(text), slow(text)):
                    raise ValueError(f'tiktoken gives other ids for {text[:40]!r}')
            return fast
        except ValueError as reason:
            print(f'{reason}: tokenizers encodes, about three times slower', file=sys.stderr)
            return slow

    def by_tiktoken(self, slow):
        """A function from a text to tiktoken's ids; what tiktoken cannot encode goes to `slow`."""
        pattern, ranks = self.in_tiktoken
        encoding = tiktoken.Encoding('own', pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        normal = self.backend.normalizer.normalize_str if self.composes else str
        # The library leaves out bytes that have no token, as SmolLM2 lacks 21; tiktoken would panic.
        lacking = bytes({*range(256)} - {token[0] for token in ranks if len(token) == 1})

        def fast(text):
            text = normal(without_surrogates(text))
            if lacking:
                raw = text.encode()
                if len(raw.translate(None, lacking)) < len(raw):
                    return slow(text)
            try:
                return encoding.encode_to_numpy(text, disallowed_special=())
            except ValueError:  # a million spaces in a row are too much for its regular expressions
                return slow(text)
        return fast

    @functools.cached_property
    def in_tiktoken(self):
        """(pattern, {bytes: id}), tiktoken's form of byte-level BPE. ValueError if it has none."""
        spec = json.loads(self.backend.to_str())
        pattern = tiktoken_pattern(spec['pre_tokenizer'])
        if pattern is None or spec['model']['type'] != 'BPE':
            raise ValueError('no tiktoken form of this pre-tokenizer is known')
        if spec['normalizer'] not in (None, {'type': 'NFC'}):
            raise ValueError('no tiktoken form of this normalizer is known')
        vocabulary = dict(spec['model']['vocab'].items() - self.specials.items())
        merged = [vocabulary.get(a + b, -1) for a, b in spec['model']['merges']]
        added = {token['content'] for token in spec['added_tokens']} - {*self.specials}
        if added or {*''.join(vocabulary)} - {*BYTES} or merged != sorted(merged):
            raise ValueError('this vocabulary has no tiktoken form, in which ids of bytes rise with merges')
        return pattern, {bytes(map(BYTES.get, token)): i for token, i in vocabulary.items()}

    def fingerprint(self):
        """sha256 over all that decides which ids a text gets."""
        spec = json.loads(self.backend.to_str())
        content = [spec['normalizer'], spec['pre_tokenizer'], spec['model'], spec['added_tokens'], self.ids]
        with contextlib.suppress(ValueError):
            pattern, ranks = self.in_tiktoken
            # The same, however it is written. Other forms were not known to tiktoken when corpora with
            # their fingerprints were prepared.
            if '"Split"' in json.dumps(spec['pre_tokenizer']) and {*b''.join(ranks)} == {*range(256)}:
                tokens = [token.hex() for token in sorted(ranks, key=ranks.get)]
                content = [pattern, tokens, sorted(ranks.values()), sorted(self.specials.items()),
                           sorted(self.ids.items()), *['NFC'] * self.composes]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def save(self, folder, append_eos=False, model_max_length=None):
        """tokenizer.json and tokenizer_config.json, for transformers; append_eos: a text ends with eos."""
        spec = json.loads(self.backend.to_str())
        spec['post_processor']['processors'][0]['trim_offsets'] = True  # as in `encode_with_offsets`
        if not append_eos:
            spec['post_processor']['processors'].pop()
        config = {'tokenizer_class': 'PreTrainedTokenizerFast',
                  'model_input_names': ['input_ids', 'attention_mask'], 'clean_up_tokenization_spaces': False}
        config |= {f'{role}_token': token for role, token in self.roles.items()}
        config |= {'model_max_length': model_max_length} if model_max_length else {}
        write_json(Path(folder, 'tokenizer_config.json'), config)
        write_json(Path(folder, 'tokenizer.json'), spec)    # the last: a folder that has it is whole


def without_surrogates(text):
    return re.sub('[\ud800-\udfff]', '\ufffd', text)  # JSON may hold them alone, UTF-8 cannot


def pieces(text):
    """Cut a long text before the space between two words. Where a pre-tokenizer splits there, no token spans
    that place and ids stay the same. If two million characters have no such place, cut after them."""
    start = 0
    while len(text) - start > PIECE:
        word = re.compile(r'[^\W\d_](?= [^\W\d_])').search(text, start + PIECE, start + 8 * PIECE)
        end = word.end() if word else start + 8 * PIECE
        yield text[start:end]
        start = end
    yield text[start:]


def nasty_texts():
    """Characters of all scripts beside letters, digits and quotes, and mixtures of what splits heed."""
    words = """a Z 0 12 1234567 the The 's 'LL 'Re don't na\xefve ., !? "( )_ -{ <|mask|> \u6771\u4eac \u0663
               \u0301 \u0323 \u1100\u1161\u11a8 \U0010ffff \U0001f469\u200d\U0001f3fd""".split()
    words += [' ', '\n', '\r\n', '\t', '\xa0', '\u3000', ' the', '   \n\n', ' ' * 99, 'x' * 99]
    codes, draw = [*range(0x3100), *range(0x3100, 0xd800, 89), *range(0xe000, 0x20000, 89)], random.Random(0)
    return [f"a{c}a {c} {c}1'{c}\n{c}" + ''.join(draw.choices(words, k=9)) for c in map(chr, codes)]


@contextlib.contextmanager
def one_line(name, refusal='the tokenizers library refuses it'):
    """Errors become a named ValueError, the tokenizers library's panics, which are no Exception, too."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        words = error if isinstance(error, ValueError) else f'{refusal}: {error!r}'
        raise ValueError(f'{name}: {words}') from None


def is_hub_id(name):
    """Whether a name is owner/model on the hub: not out/absent, a missing folder in one that is there."""
    return re.fullmatch(r'[\w.-]+/[\w.-]+', str(name)) is not None and not Path(name).parent.exists()


def download(name, files=SMALL_FILES, revision=None):
    """The local copy of a commit of a hub repository, with those of these files that it has."""
    from huggingface_hub import snapshot_download
    # of the network: their classes differ between huggingface_hub's versions
    with blame(f'{name}: no such folder, and the hub did not give it', Exception):
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(files)))


def load_tokenizer(name):
    """From a tokenizer.json (file, folder or hub id), a tiktoken .model file or a tiktoken name."""
    if name in tiktoken.list_encoding_names():
        encoding = tiktoken.get_encoding(name)
        return from_ranks(encoding._mergeable_ranks, encoding._special_tokens, encoding._pat_str)
    path = download(name) if is_hub_id(name) else Path(name)
    if path.is_dir():
        path /= 'tokenizer.json' if (path / 'tokenizer.json').exists() else 'tokenizer.model'
    if not path.is_file():
        raise ValueError(f'{name}: no such file or folder with a tokenizer.json or .model in it')
    if path.suffix == '.model':  # Llama 3's, a line a token: base64 and rank; EuroBERT's names for specials
        with one_line(f"{path}: not a vocabulary in tiktoken's format ({NO_SENTENCEPIECE})"):
            ranks = {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, path.open('rb'))}
            specials = [BOS, EOS, MASK, *(f'<|reserved_special_token_{k}|>' for k in range(253))]
            return from_ranks(ranks, {token: len(ranks) + k for k, token in enumerate(specials)})
    beside = path.with_name('tokenizer_config.json')
    with one_line(path):
        return from_backend(read_backend(path), read_json(beside) if beside.exists() else {})


def read_backend(path):
    """Read a tokenizer.json into a backend whose added tokens have the ids that the file gives them."""
    backend = Backend.from_file(str(path))
    spec = read_json(path)
    added = {token['content']: token['id'] for token in spec['added_tokens']}
    if spec['model']['type'] != 'BPE' or added == {token: backend.token_to_id(token) for token in added}:
        return backend
    # The library numbers a token that is not in the model's vocabulary itself: by how many tokens there are.
    spec['model']['vocab'] |= added
    return Backend.from_str(json.dumps(spec))


def tiktoken_pattern(pre_tokenizer):
    """The one regular expression that splits as a pre-tokenizer does; None for those that we do not know."""
    match pre_tokenizer:
        case {'pretokenizers': [
                {'type': 'Split', 'pattern': {'Regex': pattern}, 'behavior': 'Isolated', 'invert': False},
                {'type': 'ByteLevel', 'use_regex': False}]}:    # Llama 3, Qwen
            return pattern
        case {'type': 'ByteLevel', 'use_regex': True, 'add_prefix_space': False}:
            return GPT2_PATTERN
        case {'pretokenizers': [
                {'type': 'Digits', 'individual_digits': True},
                {'type': 'ByteLevel', 'use_regex': True, 'add_prefix_space': False}]}:  # SmolLM2, StarCoder
            return DIGITS_PATTERN


def splits(pattern):
    """tiktoken's pre-tokenizer: its {1,3}+ is possessive, to Hugging Face's Oniguruma a repetition."""
    pattern = re.sub(r'(\\p\{\w+\}\{\d+,\d+\})\+', r'(?>\1)', pattern)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), 'isolated'),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def from_ranks(ranks, specials, pattern=LLAMA3_PATTERN):
    """The Tokenizer of a vocabulary in tiktoken's form, {bytes: id}, and {special token: id}."""
    vocab = {''.join(map(ALPHABET.get, token)): ranks[token] for token in sorted(ranks, key=ranks.get)}
    merges = []  # tiktoken merges any two neighbours whose union is a token: so each split of a token is one
    for token in vocab:
        pairs = [(token[:k], token[k:]) for k in range(1, len(token))]
        pairs = [pair for pair in pairs if vocab.keys() >= {*pair}]
        merges += sorted(pairs, key=lambda pair: [*map(vocab.get, pair)])
    backend = Backend(models.BPE(vocab | specials, merges, ignore_merges=True))
    backend.pre_tokenizer = splits(pattern)
    backend.add_special_tokens([*specials])
    return from_backend(backend, {})


def from_backend(backend, config):
    """The Tokenizer of both files' contents. ValueError if our decoders and corpora cannot use it."""
    spec = json.loads(backend.to_str())
    model, tokens = spec['model'], spec['added_tokens']
    if (model['type'] != 'BPE' or model['byte_fallback'] or model['dropout']
            or '"ByteLevel"' not in json.dumps(spec['pre_tokenizer'])):
        raise ValueError(f'no byte-level BPE without dropout, but {model["type"]}; {NO_SENTENCEPIECE}')
    # <tool_call> and the like are characters here; an added token such as four spaces is text
    specials = {token['content']: token['id'] for token in tokens
                if token['special'] or re.fullmatch(r'[<\[].+[>\]]', token['content'])}
    roles = {}  # as tokenizer_config.json names them, or many models do
    for role, usual in (('bos', [BOS]), ('eos', [EOS, '<|endoftext|>']), ('pad', []), ('mask', [MASK])):
        named = config.get(f'{role}_token')
        named = named['content'] if isinstance(named, dict) else named
        roles |= {role: next(filter(specials.__contains__, (named, *usual)), None)}
    if not roles['eos']:
        raise ValueError('no eos token, which ends each document; tokenizer_config.json must name one')
    roles |= {role: roles[role] or roles['eos'] for role in ('bos', 'pad')} | {'mask': roles['mask'] or MASK}
    if roles['mask'] in (roles['bos'], roles['eos'], roles['pad']):
        raise ValueError(f'the mask token {roles["mask"]!r} is also another special token')
    mask_is_new = roles['mask'] not in specials
    if mask_is_new:
        specials[MASK] = max(backend.get_vocab().values()) + 1
        tokens.append({'id': specials[MASK], 'content': MASK, **dict.fromkeys(
            ('single_word', 'lstrip', 'rstrip', 'normalized'), False)})
        # The library keeps an id only if the model's vocabulary has it, too. Where it lacks the other added
        # tokens (Llama 3, Qwen), the mask alone would move them all by one.
        model['vocab'] |= {token['content']: token['id'] for token in tokens}
    for token in tokens:
        token['special'] = token['content'] in specials
        token['lstrip'] |= token['content'] == roles['mask']
    backend, eos = Backend.from_str(json.dumps(spec)), roles['eos']
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.Sequence([
        processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),  # True when saved
        processors.TemplateProcessing(['$A', eos], ['$A', '$B', eos], [(eos, specials[eos])])])
    tokenizer = Tokenizer(backend, roles, specials)
    tokenizer.mask_is_new, tokenizer.composes = mask_is_new, bool(spec['normalizer'])
    text = ''.join(map(chr, range(33, 127))) + ' \n The  Array\n' + '\n'.join(specials)
    ids = tokenizer.encode(text)
    if (back := tokenizer.decode(ids)) != text or {*ids.tolist()} & {*specials.values()}:
        raise ValueError(f'it loses or changes plain text: {text[:200]!r} comes back as {back[:200]!r}')
    return tokenizer

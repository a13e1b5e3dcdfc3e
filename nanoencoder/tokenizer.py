"""Text to token ids and back: Hugging Face's `tokenizers`, and tiktoken where it gives the same ids faster.

    load_tokenizer('configs/corpora/docs')           # a folder, a tokenizer.json, a tiktoken .model file, or
    load_tokenizer('HuggingFaceTB/SmolLM2-135M')     # a hub id: Llama 3, EuroBERT, Qwen, SmolLM, GPT-2, ...
    load_tokenizer('HuggingFaceTB/SmolLM2-135M@main')   # one of its branches, tags, commits or refs/pr/7

A text is only characters: where it says <|mask|>, or Qwen's <think>, it is encoded letter by letter."""
import base64
import contextlib
import functools
import json
import random
import re
import sys
from pathlib import Path

import numpy as np
import tiktoken
from tokenizers import Regex, Tokenizer as Backend, decoders, models, pre_tokenizers, processors, trainers

from nanoencoder import sentence_encoders
from nanoencoder.files import blame, read_json, sha256_of_text, write_json

LLAMA3_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
                  r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# Each digit is split off first, then GPT-2's pattern runs between them: spaces before a digit end their part.
DIGITS_PATTERN = r"\p{N}|'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"

# EuroBERT's names; its pad token is its eos token.
BOS, EOS, MASK = '<|begin_of_text|>', '<|end_of_text|>', '<|mask|>'

# downloaded before the weights, so that a model we cannot open is refused early
SMALL_FILES = ['config.json', 'tokenizer.json', 'tokenizer_config.json', 'special_tokens_map.json',
               'added_tokens.json', 'model.safetensors.index.json', *sentence_encoders.FILES,
               '*_Pooling/config.json']
NO_SENTENCEPIECE = 'SentencePiece, as of Llama 2, Mistral or TinyLlama, is not supported'

# Byte-level BPE writes each byte as a character: printable ones as themselves, the others from U+0100 on.
CHARACTERS = sorted(pre_tokenizers.ByteLevel.alphabet())
PRINTABLE_FIRST = sorted(range(256), key=lambda byte: chr(byte) not in CHARACTERS)
ALPHABET = dict(zip(PRINTABLE_FIRST, CHARACTERS))
BYTES = {character: byte for byte, character in ALPHABET.items()}


class Tokenizer:
    """A `tokenizers.Tokenizer`, called the backend, that finds no special tokens in a text.

    roles     {'bos' | 'eos' | 'pad' | 'mask': its token, or None}; `ids` has their ids
    specials  {token: id}
    unknown   the id of what the vocabulary of an encoder such as BERT does not know. It replaces special
              tokens in a text, too, which such a vocabulary finds as ordinary words. None if there is none
    prefix, suffix  the ids that the backend's post-processor puts around a text"""
    composes = False        # the normalizer joins combining marks to the characters before them
    is_foreign = False      # an encoder's own, which is written as it was read
    mask_is_new = False     # the vocabulary had no mask token, so we added one

    def __init__(self, backend, roles, specials, unknown=None):
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = True
        self.backend = backend
        self.roles = roles
        self.specials = specials
        self.special_ids = list(specials.values())
        self.unknown = unknown
        self.ids = dict(roles)
        for role, token in roles.items():
            if token:
                self.ids[role] = backend.token_to_id(token)

        used = set(backend.get_vocab().values())
        self.vocab_size = max(used) + 1
        self.largest = max(used - set(self.special_ids))    # id of an ordinary token
        self.unused_ids = sorted(set(range(self.vocab_size)) - used)

        # The backend does not say what it puts around a text, so encode one and see.
        letter = backend.encode('a')                # [CLS] a [SEP]
        is_special = letter.special_tokens_mask     # 1 0 1
        first = is_special.index(0)
        stop = first + is_special.count(0)
        self.prefix = letter.ids[:first]
        self.suffix = letter.ids[stop:]

    def encode(self, text):
        """Encode a text, without special tokens. Returns ids (n,), int64."""
        return self.encoded(text)[0]

    def encode_with_offsets(self, text):
        """Encode a text. Returns ids (n,) and offsets (n, 2): each token's first character and the end of its
        last, without white space at either end. A token that is all white space has first == last."""
        ids, offsets, _ = self.encoded(text)
        places = []
        begins = {first for first, _ in offsets} | {len(text)}
        for first, last in offsets:
            # a token goes on until another begins: marks that were joined to its last character belong to it
            while self.composes and last not in begins:
                last += 1
            piece = text[first:last].lstrip()
            first = last - len(piece)
            places.append([first, first + len(piece.rstrip())])
        return ids, np.array(places, np.int64).reshape(-1, 2)

    def encoded(self, text):
        """Returns ids, each one's characters, and the number of its word as the pre-tokenizer splits."""
        text = without_surrogates(text)
        encoding = self.backend.encode(text, add_special_tokens=False)
        ids = np.array(encoding.ids, np.int64)
        return self.without_specials(ids), encoding.offsets, encoding.word_ids

    def without_specials(self, ids):
        if self.unknown is not None:
            ids[np.isin(ids, self.special_ids)] = self.unknown
        return ids

    @functools.cached_property
    def missing_bytes(self):
        """Bytes without a token of their own, which a byte-level vocabulary leaves out of a text."""
        if self.is_foreign:
            return b''
        tokens = self.backend.get_vocab()
        return bytes(byte for character, byte in BYTES.items() if character not in tokens)

    def count_unknown(self, text, ids):
        """Return how many of a text's ids stand for what the vocabulary does not know. A byte that it leaves
        out counts as one."""
        if self.is_foreign:
            return int(np.count_nonzero(ids == self.unknown))
        if not self.missing_bytes:
            return 0
        raw = without_surrogates(text).encode()
        return len(raw) - len(raw.translate(None, self.missing_bytes))

    def first_unknown(self, text):
        """Return the first word or character of a text that the vocabulary does not know, '' if there is
        none."""
        if self.is_foreign:
            ids, offsets, _ = self.encoded(text)
            spans = [text[first:last] for i, (first, last) in zip(ids, offsets) if i == self.unknown]
        else:
            missing = {*self.missing_bytes}
            spans = [character for character in without_surrogates(text) if {*character.encode()} & missing]
        return next(iter(spans), '')

    def encode_masked(self, text):
        """Encode a text in which the mask token, together with the spaces before it, is one id. The special
        tokens are around it that are around any text that is read as a whole."""
        mask = re.escape(self.roles['mask'])
        ids = []
        for piece in re.split(rf'\s*{mask}', text):
            ids += [*self.encode(piece), self.ids['mask']]
        return np.array([*self.prefix, *ids[:-1], *self.suffix], np.int64)

    def decode(self, ids):
        return self.backend.decode(list(ids), skip_special_tokens=False)

    def bulk(self):
        """Return the fastest function from a text to its ids, uint32. That is tiktoken's, unless it differs
        from the `tokenizers` library on one of our nasty texts."""
        try:
            fast = self.by_tiktoken()
            for text in nasty_texts():
                if not np.array_equal(fast(text), self.by_library(text)):
                    raise ValueError(f'tiktoken gives other ids for {text[:40]!r}')
            return fast
        except ValueError as reason:
            print(f'{reason}: tokenizers encodes, about three times slower', file=sys.stderr)
            return self.by_library

    def by_library(self, text):
        # A batch of one, because `encode` would keep Python's other threads waiting.
        batch = [without_surrogates(text)]
        encoding, = self.backend.encode_batch_fast(batch, add_special_tokens=False)
        return self.without_specials(np.array(encoding.ids, np.uint32))

    def by_tiktoken(self):
        """Return a function from a text to tiktoken's ids. ValueError if tiktoken cannot give them."""
        pattern, ranks = self.in_tiktoken
        encoding = tiktoken.Encoding('own', pat_str=pattern, mergeable_ranks=ranks, special_tokens={})

        def fast(text):
            try:
                if self.composes:
                    text = self.backend.normalizer.normalize_str(text)
                raw = text.encode()
                # `tokenizers` leaves these bytes out (SmolLM2 has 21 of them); tiktoken would panic
                if raw == raw.translate(None, self.missing_bytes):
                    return encoding.encode_to_numpy(text, disallowed_special=())
            except ValueError:
                # half a surrogate pair, or more spaces than tiktoken's regular expressions can hold
                pass
            return self.by_library(text)
        return fast

    @functools.cached_property
    def in_tiktoken(self):
        """(pattern, {bytes: id}): tiktoken's form of a byte-level BPE. ValueError if there is none."""
        spec = json.loads(self.backend.to_str())
        pattern = tiktoken_pattern(spec['pre_tokenizer'])
        if not pattern or spec['normalizer'] not in (None, {'type': 'NFC'}):
            raise ValueError('no tiktoken form of this normalizer or pre-tokenizer is known')

        vocabulary = spec['model']['vocab']
        for token in self.specials:
            vocabulary.pop(token, None)
        # ids of what the merges make, one after the other
        merged = [
            vocabulary.get(left + right, -1)
            for left, right in spec['model']['merges']]
        added = {token['content'] for token in spec['added_tokens']}
        is_bytes = BYTES.keys() >= set(''.join(vocabulary))
        if added - self.specials.keys() or not is_bytes or merged != sorted(merged):
            raise ValueError('this vocabulary has no tiktoken form, in which ids of bytes rise with merges')
        return pattern, as_bytes(vocabulary)

    def fingerprint(self):
        """sha256 of everything that decides which ids a text gets."""
        spec = json.loads(self.backend.to_str())
        content = [spec['normalizer'], spec['pre_tokenizer'], spec['model'], spec['added_tokens'], self.ids]
        with contextlib.suppress(ValueError):
            pattern, ranks = self.in_tiktoken
            # A vocabulary in tiktoken's form has one fingerprint, however its file is written. Only with
            # patterns like Llama 3's: corpora of others were fingerprinted before we knew their form.
            if '"Split"' in json.dumps(spec['pre_tokenizer']):
                tokens = sorted(ranks, key=ranks.get)
                content = [
                    pattern,
                    [token.hex() for token in tokens],
                    sorted(ranks.values()),
                    sorted(self.specials.items()),
                    sorted(self.ids.items())]
                if self.composes:
                    content.append('NFC')
        return sha256_of_text(json.dumps(content))

    def save(self, folder, model_max_length=None):
        """Write tokenizer.json and tokenizer_config.json as transformers reads them, which then puts the same
        special tokens around a text as we do: ours end with eos.

        model_max_length  tokens that a model reads at most; None where there is no model"""
        spec = json.loads(self.backend.to_str())
        if not self.is_foreign:
            to_bytes, _ = spec['post_processor']['processors']
            to_bytes['trim_offsets'] = True     # as in `encode_with_offsets`
        config = {'tokenizer_class': 'PreTrainedTokenizerFast',
                  'model_input_names': ['input_ids', 'attention_mask'],
                  'clean_up_tokenization_spaces': False}
        for role, token in self.roles.items():
            config[f'{role}_token'] = token
        if model_max_length:
            config['model_max_length'] = model_max_length
        write_json(Path(folder, 'tokenizer_config.json'), config)
        # last: a folder that has it is complete; in one line, as Python is slow to indent it
        write_json(Path(folder, 'tokenizer.json'), spec, indent=None)


def without_surrogates(text):
    """JSON may hold half of a surrogate pair, which UTF-8 cannot: replace it."""
    return re.sub('[\ud800-\udfff]', '\ufffd', text)


def nasty_texts():
    """Texts with characters of all scripts next to letters, digits and quotes, mixed with words and spaces
    at which patterns differ."""
    words = """a Z 0 12 1234567 the The 's 'LL 'Re don't na\xefve ., !? "( )_ -{ <|mask|> \u6771\u4eac \u0663
               \u0301 \u0323 \u1100\u1161\u11a8 \U0010ffff \U0001f469\u200d\U0001f3fd""".split()
    words += [' ', '\n', '\r\n', '\t', '\xa0', '\u3000', ' the', '   \n\n', ' ' * 99, 'x' * 99]
    codes = [*range(0x3100), *range(0x3100, 0x20000, 89)]
    draw = random.Random(0)
    return [f"a{c}a {c} {c}1'{c}{c}\n{c}" + ''.join(draw.choices(words, k=9))
            for c in map(chr, codes)]


@contextlib.contextmanager
def one_line(name, refusal='the tokenizers library refuses it'):
    """Turn any error into a ValueError that begins with `name`. Panics of the tokenizers library, written in
    Rust, are no `Exception`."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except ValueError as error:
        raise ValueError(f'{name}: {error}') from None
    except BaseException as error:
        raise ValueError(f'{name}: {refusal}: {error!r:.300}') from None


def is_hub_id(name):
    """Whether a name is owner/model or owner/model@revision on the hub, and not a missing folder such as
    out/absent."""
    has_its_form = re.fullmatch(r'[\w.-]+/[\w.-]+(@[\w./-]+)?', str(name)) is not None
    owner = str(name).split('/')[0]
    return has_its_form and not Path(owner).exists()


def download(name, files=SMALL_FILES, commit=None):
    """Download those of `files` that a hub repository, owner/model or owner/model@revision, has. Returns the
    folder of that commit, which bears its name.

    commit  to take instead of the revision: that of files which have come already"""
    from huggingface_hub import snapshot_download
    repository, _, revision = name.partition('@')
    # any Exception: classes of network errors differ between versions of huggingface_hub
    with blame(f'{name}: no such folder, and the hub did not give it', Exception):
        return Path(snapshot_download(repository, revision=commit or revision or None, allow_patterns=files))


def conversion(name):
    """Return the two lines that make safetensors and a tokenizer.json of what transformers alone opens, and
    how to keep the output head, which AutoModel leaves out and only fine-tuning can do without."""
    opened = f".from_pretrained('{name}').save_pretrained('new')"
    return (f'two lines of transformers convert it: AutoModel{opened} and AutoTokenizer{opened}; '
            'AutoModelForCausalLM and AutoModelForMaskedLM keep the output head')


def load_tokenizer(name):
    """Open a tokenizer.json (file, folder or hub id), a tiktoken .model file or one of tiktoken's names."""
    if name in tiktoken.list_encoding_names():
        encoding = tiktoken.get_encoding(name)
        return from_ranks(encoding._mergeable_ranks, encoding._special_tokens, encoding._pat_str)
    path = download(name) if is_hub_id(name) else Path(name)
    if path.is_dir():
        path /= 'tokenizer.json' if (path / 'tokenizer.json').exists() else 'tokenizer.model'
    if not path.is_file():
        advice = ''
        if path.with_name('config.json').exists():  # of a model, such as Microsoft's DeBERTa
            advice = f': {conversion(name)}'
        raise ValueError(f'{name}: no such file or folder with a tokenizer.json or .model in it{advice}')
    if path.suffix == '.model':
        with one_line(f"{path}: not a vocabulary in tiktoken's format ({NO_SENTENCEPIECE})"):
            return from_ranks(*read_llama3(path))
    config = path.with_name('tokenizer_config.json')
    with one_line(path):
        return from_spec(read_json(path), read_json(config) if config.exists() else {})


def read_llama3(path):
    """Read Llama 3's tokenizer.model: a token in base64 and its id on each line. It lists no special tokens,
    so they get EuroBERT's names. Returns {bytes: id} and {special token: id}."""
    ranks = {}
    for line in path.read_bytes().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    specials = [BOS, EOS, MASK]
    specials += [f'<|reserved_special_token_{k}|>' for k in range(253)]
    return ranks, {token: i for i, token in enumerate(specials, len(ranks))}


def as_bytes(vocabulary):
    """{bytes: id} of a byte-level vocabulary {token: id}"""
    return {
        bytes(map(BYTES.get, token)): i
        for token, i in vocabulary.items()}


def learn(texts, vocab_size):
    """Learn a byte-level BPE vocabulary, split as Llama 3's, of tokens of at most 16 characters. Few texts
    may give fewer tokens than asked."""
    specials = [BOS, EOS, MASK]
    trained = Backend(models.BPE())
    # Scripts without spaces have no words to split at: whole sentences that are frequent would become tokens.
    parts = pre_tokenizers.Split(Regex(r'(?m:.{1,16})'), 'isolated')
    trained.pre_tokenizer = splits(LLAMA3_PATTERN, parts)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(specials),
        initial_alphabet=[*BYTES],
        show_progress=False)
    trained.train_from_iterator(map(without_surrogates, texts), trainer)
    ranks = as_bytes(trained.get_vocab())
    return from_ranks(ranks, {token: i for i, token in enumerate(specials, len(ranks))})


def tiktoken_pattern(pre_tokenizer):
    """The one regular expression that splits like a pre-tokenizer, or None if we do not know it."""
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


def splits(pattern, *further):
    """The pre-tokenizer that splits as tiktoken does, and then as `further` ones do. The pattern's {1,3}+ is
    possessive, which Hugging Face's regular expressions (Oniguruma) would read as a repetition; (?>...) is
    possessive in both."""
    pattern = re.sub(r'(\\p\{\w+\}\{\d+,\d+\})\+', r'(?>\1)', pattern)
    split = pre_tokenizers.Split(Regex(pattern), 'isolated')
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([split, *further, to_bytes])


def from_ranks(ranks, specials, pattern=LLAMA3_PATTERN):
    """Make a Tokenizer of a vocabulary in tiktoken's form: {bytes: id} and {special token: id}."""
    vocab = {
        ''.join(map(ALPHABET.get, token)): ranks[token]
        for token in sorted(ranks, key=ranks.get)}
    # tiktoken merges any two neighbours whose union is a token, so every such split of a token is a merge.
    merges = []
    for token in vocab:
        halves = [
            (token[:k], token[k:])
            for k in range(1, len(token))]
        pairs = [pair for pair in halves if vocab.keys() >= {*pair}]
        merges += sorted(pairs, key=lambda pair: [vocab[part] for part in pair])
    backend = Backend(models.BPE(vocab | specials, merges, ignore_merges=True))
    backend.pre_tokenizer = splits(pattern)
    backend.add_special_tokens([*specials])
    return from_spec(json.loads(backend.to_str()), {})


def from_spec(spec, config):
    """Make a Tokenizer of the contents of tokenizer.json and tokenizer_config.json. ValueError if our
    corpora and models cannot use it."""
    kind = spec['model'].get('type', 'BPE')     # old files leave it out
    is_byte_level = '"ByteLevel"' in json.dumps(spec['pre_tokenizer'])
    if kind in ('WordPiece', 'Unigram'):
        return of_encoder(spec, config)
    if kind != 'BPE' or spec['model'].get('dropout') or not is_byte_level:
        raise ValueError(f'no byte-level BPE without dropout, but {kind}; {NO_SENTENCEPIECE}')
    # The library numbers an added token itself if the model's vocabulary lacks it: by how many there are.
    for token in spec['added_tokens']:
        spec['model']['vocab'][token['content']] = token['id']

    # <tool_call> and the like are characters here; an added token such as four spaces is text.
    specials = {token['content']: token['id'] for token in spec['added_tokens']
                if token['special'] or re.fullmatch(r'[<\[].+[>\]]', token['content'])}
    roles = find_roles(specials, config)
    mask_is_new = roles['mask'] not in specials
    if mask_is_new:
        specials[MASK] = add_mask(spec)
    for token in spec['added_tokens']:
        token['special'] = token['content'] in specials
        # a mask takes the space before it along, as it does in transformers and in encode_masked
        token['lstrip'] |= token['content'] == roles['mask']

    tokenizer = Tokenizer(byte_level_backend(spec, roles['eos'], specials), roles, specials)
    tokenizer.mask_is_new = mask_is_new
    tokenizer.composes = bool(spec['normalizer'])
    check_round_trip(tokenizer)
    return tokenizer


def add_mask(spec):
    """Add the mask token to the contents of tokenizer.json. Returns its id, above all others."""
    vocabulary = spec['model']['vocab']
    vocabulary[MASK] = max(vocabulary.values()) + 1
    spec['added_tokens'].append({'id': vocabulary[MASK], 'content': MASK, 'single_word': False,
                                 'lstrip': False, 'rstrip': False, 'normalized': False})
    return vocabulary[MASK]


def byte_level_backend(spec, eos, specials):
    """Return the library's tokenizer of a byte-level BPE, which ends each text with eos."""
    backend = Backend.from_str(json.dumps(spec))
    backend.decoder = decoders.ByteLevel()
    to_bytes = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    with_eos = processors.TemplateProcessing(['$A', eos], ['$A', '$B', eos], [(eos, specials[eos])])
    backend.post_processor = processors.Sequence([to_bytes, with_eos])
    return backend


def check_round_trip(tokenizer):
    """ValueError unless plain text, also the names of special tokens, comes back as it was, and without a
    special token among its ids."""
    text = bytes(range(33, 127)).decode() + ' \n The  Array\n' + '\n'.join(tokenizer.specials)
    ids = tokenizer.encode(text)
    decoded = tokenizer.decode(ids)
    if decoded != text or np.isin(ids, tokenizer.special_ids).any():
        raise ValueError(f'it loses or changes plain text: {text[:200]!r} comes back as {decoded[:200]!r}')


def of_encoder(spec, config):
    """Make a Tokenizer of an encoder's vocabulary, as BERT's or ALBERT's, to continue that encoder with. It
    may lose case or spaces, as it always did. ValueError if it has no mask token."""
    specials = {token['content']: token['id'] for token in spec['added_tokens'] if token['special']}
    model = spec['model']
    roles = find_roles(specials, config)
    if roles['mask'] not in specials:
        raise ValueError(f'{model["type"]} without a mask token is of no encoder; {NO_SENTENCEPIECE}')
    unknown = model.get('unk_id')
    if model['type'] == 'WordPiece':
        unknown = model['vocab'][model['unk_token']]
    tokenizer = Tokenizer(Backend.from_str(json.dumps(spec)), roles, specials, unknown)
    tokenizer.is_foreign = True
    return tokenizer


def find_roles(specials, config):
    """{role: token}, as tokenizer_config.json names it, or as many models do. An encoder begins and ends a
    text with what it calls cls and sep."""
    def find(role, *usual):
        named = config.get(f'{role}_token')
        if isinstance(named, dict):
            named = named['content']
        return next((token for token in (named, *usual) if token in specials), None)

    eos = find('eos', EOS, '<|endoftext|>')
    roles = {'bos': find('bos', BOS) or eos,
             'eos': eos,
             'pad': find('pad') or eos,
             'mask': find('mask', MASK) or MASK}
    has_cls_and_sep = config.get('cls_token') and config.get('sep_token')
    if not eos or has_cls_and_sep:
        roles = {'bos': find('cls', '[CLS]', '<s>'),
                 'eos': find('sep', '[SEP]', '</s>'),
                 'pad': find('pad', '[PAD]', '<pad>'),
                 'mask': find('mask', '[MASK]', '<mask>')}
    for role in ('eos', *roles):    # without eos there is no bos either
        if not roles[role]:
            raise ValueError(f'no {role} token; tokenizer_config.json must name one')
    if list(roles.values()).count(roles['mask']) > 1:
        raise ValueError(f'the mask token {roles["mask"]!r} is also another special token')
    return roles

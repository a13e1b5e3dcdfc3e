"""Text -> token ids: byte-level BPE by tiktoken, from and to Hugging Face's tokenizer.json.

    load_tokenizer('configs/corpora/docs')           # a folder, a tokenizer.json, a tiktoken file or name, or
    load_tokenizer('HuggingFaceTB/SmolLM2-135M')     # a hub id: Llama 3, EuroBERT, Qwen, SmolLM, GPT-2, ...

A text gets the very ids that the tokenizers library gives it; what tiktoken would not reproduce is refused.
Nothing in a text is special: <|mask|> or Qwen's <think> are characters here. Bytes that a vocabulary lacks,
as SmolLM2's lacks some control characters, are dropped, as that library drops them.
"""
import base64
import hashlib
import json
import re
import unicodedata
from pathlib import Path

import numpy as np
import regex
import tiktoken

from nanoencoder.durable import read_json, write_json

LLAMA3_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
                  r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BYTELEVEL_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# the same after a pre-tokenizer that makes each digit a piece: a space before a digit stands alone
DIGITS_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"
# what tiktoken's regular expressions and Oniguruma, Hugging Face's, are known to read alike
COMMON_SYNTAX = re.compile(
    r'(?!.*(\[\[|--|~~))(\\[pP]\{\w+\}|\\[sSrn]|\\s\+\+\$|\(\?(i?:|[!=>]|<[!=])|\[\^?|\((?!\?)'
    r'|\{\d+(,\d*)?\}(?![+?])|[^\\.$^&\[{(])*')
SUPPORTED = {'type': ('BPE',), 'normalizer': (None, 'NFC'), 'dropout': (None,),
             'continuing_subword_prefix': (None,), 'end_of_word_suffix': (None,)}
NO_SENTENCEPIECE = 'SentencePiece, as of Llama 2, Mistral or TinyLlama, is not supported'
BOS, EOS, MASK = '<|begin_of_text|>', '<|end_of_text|>', '<|mask|>'  # as in EuroBERT, where pad is eos

# Hugging Face's NFC knows Unicode 9: younger combining marks (up to 14, Python 3.11's) stay where they are
YOUNG_MARKS = re.compile(
    '([\u07fd\u0898-\u089f\u08ca-\u08d3\u09fe\u0c3c\u0d3b\u0d3c\u0eba\u1715\u1abf-\u1ace\u1df6-\u1dfa\ua82c'
    '\U00010d24-\U00010d27\U00010eab\U00010eac\U00010f46-\U00010f50\U00010f82-\U00010f85\U00011070\U0001133b'
    '\U0001145e\U00011839\U0001183a\U00011930\U0001193d\U0001193e\U00011943\U000119e0\U00011a34\U00011a47'
    '\U00011a99\U00011d42\U00011d44\U00011d45\U00011d97\U00016ff0\U00016ff1\U0001e130-\U0001e136\U0001e2ae'
    '\U0001e2ec-\U0001e2ef]+)')


class Tokenizer:
    """Byte-level BPE: a tiktoken.Encoding, the ids of bos, eos, pad and mask, and its Hugging Face form.

    Of a tokenizer, tasks use encode, encode_with_offsets, and `prefix` and `suffix`, the ids around a text.

    pattern   the regular expression that splits text into pieces before any merge
    ranks     {token bytes: id}
    specials  {special token: id}; a mask token is added if `roles` names none, and `mask_is_new` says so
    roles     {'bos' | 'eos' | 'pad' | 'mask': special token}; bos and pad are eos if absent
    nfc       whether a text is brought into Unicode's normal form C first
    ordinary  those of `specials` that Hugging Face's file does not call special, as Qwen's <think>
    """

    def __init__(self, pattern, ranks, specials, roles, ignore_merges=True, nfc=False, ordinary=()):
        if 'eos' not in roles:
            raise ValueError('no eos token, which ends each document; tokenizer_config.json must name one')
        self.lacking = bytes(byte for byte in range(256) if bytes([byte]) not in ranks)
        if any(32 <= byte < 127 for byte in self.lacking):
            raise ValueError(f'its vocabulary lacks some of the printable ASCII bytes: {self.lacking!r:.80}')
        if not all(type(i) is int and 0 <= i < 10 ** 7 for i in (*ranks.values(), *specials.values())):
            raise ValueError('an id is not a whole number from 0 to 9,999,999')
        self.roles = {'bos': roles['eos'], 'pad': roles['eos'], 'mask': MASK} | roles
        last, mask = max(*ranks.values(), *specials.values()), self.roles['mask']
        self.mask_is_new = mask not in specials
        self.specials = specials | {mask: last + 1} if self.mask_is_new else specials
        self.vocab_size = last + 1 + self.mask_is_new
        # {1,3}+ is possessive to tiktoken; to Hugging Face's Oniguruma a repetition, unless it is (?>{1,3})
        self.pattern = re.sub(r'(\\p\{\w+\}\{\d+,\d+\})\+', r'(?>\1)', pattern)
        self.ranks, self.ignore_merges, self.nfc, self.ordinary = ranks, ignore_merges, nfc, ordinary
        self.ids = {role: self.specials[token] for role, token in self.roles.items()}
        self.prefix, self.suffix = (), (self.ids['eos'],)
        if len({*ranks.values(), *self.specials.values()}) < len(ranks) + len(self.specials):
            raise ValueError('two tokens of this tokenizer share an id')
        if self.ids['mask'] in (self.ids['bos'], self.ids['eos'], self.ids['pad']):
            raise ValueError(f'the mask token {mask!r} is also another special token')
        self.encoding = tiktoken.Encoding('tokenizer', pat_str=self.pattern, mergeable_ranks=ranks,
                                          special_tokens=self.specials)

    def normalize(self, text):
        """The text whose bytes the tokens are: itself, but for tokenizers that normalise."""
        if not self.nfc or unicodedata.is_normalized('NFC', text):
            return text
        return ''.join(part if YOUNG_MARKS.match(part) else unicodedata.normalize('NFC', part)
                       for part in YOUNG_MARKS.split(text))

    def encode(self, text):
        """Token ids, uint32, of text in which nothing is special: a literal <|mask|> is eight characters."""
        text = self.normalize(text)
        try:
            if self.lacking and text.encode().translate(None, self.lacking) != text.encode():
                return self.encode_pieces(text)
            return self.encoding.encode_to_numpy(text, disallowed_special=())
        except UnicodeEncodeError:  # a lone surrogate, which JSON can hold and UTF-8 cannot
            return self.encode(text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace'))
        except ValueError:  # a million spaces in a row are too much for tiktoken's regular expressions
            return self.encode_pieces(text)

    def encode_pieces(self, text):
        """The same, split here. Bytes that the vocabulary lacks go between split and merges: the split heeds
        them, and what stood on both sides may become one token.
        """
        pieces = (match[0].encode().translate(None, self.lacking)
                  for match in regex.finditer(self.pattern, text))
        return np.array([i for piece in pieces if piece for i in self.encoding._encode_single_piece(piece)],
                        np.uint32)

    def encode_with_offsets(self, text):
        """(ids (n,), offsets (n, 2) int64): what encode gives, and the characters of `text` of each token.

        Characters [first, last + 1), without the white space around them. A token that is white space alone
        has none: first == last, after it.
        """
        text = re.sub('[\ud800-\udfff]', '\ufffd', text)  # which UTF-8 cannot hold
        tokens, normal = self.encode(text), self.normalize(text)
        character_of = [k for k, character in enumerate(normal) for byte in character.encode()
                        if byte not in self.lacking]
        offsets, stop = np.empty((len(tokens), 2), np.int64), 0
        for k, token in enumerate(tokens):
            first, stop = stop, stop + len(self.encoding.decode_single_token_bytes(int(token)))
            offsets[k] = trimmed(normal, character_of[first], character_of[stop - 1] + 1)
        if normal != text:
            some, offsets = offsets[:, 0] < offsets[:, 1], original_places(text, self.normalize)[offsets]
            offsets[:, 1] = np.maximum(offsets[:, 1], offsets[:, 0] + some)  # half of a decomposed character
        return tokens, offsets

    def encode_masked(self, text):
        """Token ids in which the mask token, as the tokenizer writes it, is one id.

        White space before it goes: a masked word in training includes the space it begins with.
        """
        *before, last = text.split(self.roles['mask'])
        pieces = [part for piece in before for part in (self.encode(piece.rstrip()), [self.ids['mask']])]
        return np.concatenate([*pieces, self.encode(last)]).astype(np.int64)

    def decode(self, ids):
        return self.encoding.decode([int(i) for i in ids])

    def fingerprint(self):
        """sha256 over all that decides which ids a text gets."""
        ranks = [token.hex() for token, _ in sorted(self.ranks.items(), key=lambda item: item[1])]
        content = [self.pattern, ranks, sorted(self.ranks.values()), sorted(self.specials.items()),
                   sorted(self.ids.items()), *(['NFC'] if self.nfc else [])]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def save(self, folder, append_eos=False, model_max_length=None):
        """tokenizer.json and tokenizer_config.json, as transformers.AutoTokenizer opens them.

        append_eos: a text encoded with special tokens ends with eos, as in fine-tuning. Special tokens that
        the tokenizer put around texts before, as Llama 3's bos, are left out, as they are in training.
        """
        config = {'tokenizer_class': 'PreTrainedTokenizerFast',
                  'model_input_names': ['input_ids', 'attention_mask'], 'clean_up_tokenization_spaces': False}
        config |= {f'{role}_token': token for role, token in self.roles.items()}
        config |= {'model_max_length': model_max_length} if model_max_length else {}
        write_json(Path(folder, 'tokenizer.json'), to_json(self, append_eos))
        write_json(Path(folder, 'tokenizer_config.json'), config)


def trimmed(text, first, last):
    """[first, last) of a text without the white space at both ends; (last, last) if there is nothing else."""
    piece = text[first:last]
    first += len(piece) - len(piece.lstrip())
    return first, first + len(piece.strip())


def original_places(text, normalize):
    """Where in the text each character of its normalised form begins, and where the last one ends.

    Word by word, for nothing composes across white space; a character made of several begins with the first.
    """
    places, start = [], 0
    for part in re.findall(r'\s+|\S+', text):
        lengths = [len(normalize(part[:k])) for k in range(len(part) + 1)]  # falls at a mark
        places += [start + max(k for k, length in enumerate(lengths) if length <= j)
                   for j in range(lengths[-1])]
        start += len(part)
    return np.array([*places, len(text)])


# -------------------------------------------------------------------------------------------------- loading

def load_tokenizer(name):
    """From a tokenizer.json (file, folder or hub id), a tiktoken .model file or a tiktoken name."""
    path = Path(name)
    if path.is_dir():
        path /= 'tokenizer.json' if (path / 'tokenizer.json').exists() else 'tokenizer.model'
    if path.suffix in ('.json', '.model'):
        if not path.is_file():
            raise ValueError(f'{name}: no tokenizer.json or tokenizer.model there')
        return from_huggingface(path) if path.suffix == '.json' else from_tiktoken(path)
    try:
        if name in tiktoken.list_encoding_names():
            encoding = tiktoken.get_encoding(name)
            return Tokenizer(encoding._pat_str, encoding._mergeable_ranks, encoding._special_tokens,
                             {'eos': '<|endoftext|>'})
        if name.count('/') != 1:
            raise ValueError('a hub id is owner/model')
        from huggingface_hub import hf_hub_download
        hf_hub_download(name, 'tokenizer_config.json')
        path = Path(hf_hub_download(name, 'tokenizer.json'))
    except (OSError, ValueError) as error:
        raise ValueError(f'{name}: no tokenizer\'s file or folder, and none that tiktoken or the hub gave: '
                         f'{error}') from None
    return from_huggingface(path)


def from_tiktoken(path):
    """Llama 3's tokenizer.model, a line a token: base64 and rank; EuroBERT's names for the 256 specials."""
    try:
        lines = [line.split() for line in path.open('rb')]
        ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
        specials = [BOS, EOS, MASK, *(f'<|reserved_special_token_{k}|>' for k in range(253))]
        ids = {token: len(ranks) + k for k, token in enumerate(specials)}
        return Tokenizer(LLAMA3_PATTERN, ranks, ids, {'bos': BOS, 'eos': EOS, 'pad': EOS, 'mask': MASK})
    except ValueError as error:
        raise ValueError(f"{path}: not in tiktoken's format ({NO_SENTENCEPIECE}): {error}") from None


def from_huggingface(path):
    """The Tokenizer of a tokenizer.json; what tiktoken would not reproduce id for id is refused."""
    beside = path.with_name('tokenizer_config.json')
    spec, config = read_json(path), read_json(beside) if beside.exists() else {}
    try:
        return from_json(spec, config)
    except ValueError as error:
        raise ValueError(f'{path}: {error}') from None
    except (KeyError, TypeError, AttributeError, IndexError, regex.error) as error:
        raise ValueError(f'{path}: not a tokenizer.json as Hugging Face writes it ({error!r})') from None


# -------------------------------------------------------------------------------------------- tokenizer.json

def byte_alphabet():
    """{character: byte}: GPT-2 and all byte-level vocabularies since write bytes as printable characters."""
    printable = [*range(ord('!'), ord('~') + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + k): byte for k, byte in enumerate(others)}


def to_json(tokenizer, append_eos):
    """The content of tokenizer.json."""
    ranks, specials = tokenizer.ranks, tokenizer.specials
    characters = {byte: character for character, byte in byte_alphabet().items()}
    written = {token: ''.join(characters[byte] for byte in token) for token in sorted(ranks, key=ranks.get)}
    merges = []  # tiktoken merges any two neighbours whose union is a token: so each split of a token is one
    for token in written:
        splits = [(token[:k], token[k:]) for k in range(1, len(token))]
        splits = [(a, b) for a, b in splits if a in ranks and b in ranks]
        merges += sorted(splits, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
    added = [{'id': i, 'content': token, 'single_word': False, 'lstrip': token == tokenizer.roles['mask'],
              'rstrip': False, 'normalized': False, 'special': token not in tokenizer.ordinary}
             for token, i in sorted(specials.items(), key=lambda item: item[1])]
    pattern = {'Regex': tokenizer.pattern}
    split = {'type': 'Split', 'pattern': pattern, 'behavior': 'Isolated', 'invert': False}
    byte_level = {'type': 'ByteLevel', 'add_prefix_space': False, 'trim_offsets': True, 'use_regex': False}
    text, eos = {'Sequence': {'id': 'A', 'type_id': 0}}, tokenizer.roles['eos']
    end, pair = {'SpecialToken': {'id': eos, 'type_id': 0}}, {'Sequence': {'id': 'B', 'type_id': 0}}
    ending = {'type': 'TemplateProcessing', 'single': [text, end], 'pair': [text, pair, end],
              'special_tokens': {eos: {'id': eos, 'ids': [tokenizer.ids['eos']], 'tokens': [eos]}}}
    # after the merges, ByteLevel changes offsets alone: they leave out the space that a token begins with
    processors = {'type': 'Sequence', 'processors': [byte_level, *([ending] if append_eos else [])]}
    # specials stand in `vocab` too: ids given by `added_tokens` alone are not heeded but counted from its end
    vocabulary = {text: ranks[token] for token, text in written.items()} | specials
    return {
        'version': '1.0', 'truncation': None, 'padding': None, 'added_tokens': added,
        'normalizer': {'type': 'NFC'} if tokenizer.nfc else None,
        'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [split, byte_level]},
        'post_processor': processors, 'decoder': byte_level | {'use_regex': True},
        'model': {'type': 'BPE', 'dropout': None, 'unk_token': None, 'continuing_subword_prefix': None,
                  'end_of_word_suffix': None, 'fuse_unk': False, 'byte_fallback': False,
                  'ignore_merges': tokenizer.ignore_merges, 'vocab': vocabulary,
                  'merges': [[written[a], written[b]] for a, b in merges]}}


def from_json(spec, config):
    """The Tokenizer of a tokenizer.json's content and that of the tokenizer_config.json beside it."""
    model, normalizer = spec['model'], spec.get('normalizer')
    if normalizer and normalizer['type'] == 'Sequence' and len(normalizer['normalizers']) < 2:
        normalizer = next(iter(normalizer['normalizers']), None)
    if model.get('byte_fallback') is True:
        raise ValueError(NO_SENTENCEPIECE)
    features = {'type': 'BPE'} | model | {'normalizer': normalizer and normalizer['type']}
    for name, supported in SUPPORTED.items():
        if (features.get(name) or None) not in supported:
            raise ValueError(f'its {name} {features[name]} is not supported, only '
                             + ' or '.join(map(str, supported)))
    pattern = split_pattern(spec.get('pre_tokenizer'))
    added = spec.get('added_tokens', [])
    specials = special_tokens(added, model['vocab'])
    ordinary = {token['content'] for token in added if token.get('special') is not True}
    ranks, merges = in_bytes(model, specials)
    roles = {}
    for role, usual in (('bos', [BOS]), ('eos', [EOS, '<|endoftext|>']), ('pad', []), ('mask', [MASK])):
        named = config.get(f'{role}_token')
        named = named['content'] if isinstance(named, dict) else named
        known = [token for token in (named, *usual) if token in specials]
        roles |= {role: known[0]} if known else {}
    ignore_merges = model.get('ignore_merges') is True
    tokenizer = Tokenizer(pattern, ranks, specials, roles, ignore_merges, bool(normalizer), ordinary)
    if tokenizer.lacking and (ignore_merges or model.get('unk_token') is not None):
        raise ValueError('its vocabulary lacks bytes, which is supported without unk_token and ignore_merges '
                         'only')
    check_merges(ranks, merges, ignore_merges)
    return tokenizer


def in_bytes(model, specials):
    """({token: id}, [merge, ...]) in bytes, which the file writes as characters."""
    alphabet = byte_alphabet()
    merges = [pair.split(' ') if isinstance(pair, str) else pair for pair in model['merges']]
    try:
        ranks = {bytes(map(alphabet.__getitem__, token)): i
                 for token, i in model['vocab'].items() if token not in specials}
        return ranks, [tuple(bytes(map(alphabet.__getitem__, part)) for part in pair) for pair in merges]
    except KeyError as error:
        raise ValueError(f'{error.args[0]!r} is no character of a byte-level vocabulary') from None


def special_tokens(added, vocabulary):
    """{content: id} of the added tokens, whose ids must be those that Hugging Face would give them."""
    specials = {}
    for token in added:
        content, top = token['content'], max(specials.values(), default=-1)
        if not content or content in specials:
            raise ValueError(f'its added token {content!r} is empty or there twice')
        expected = vocabulary.get(content, max(top + 1, len(vocabulary)))
        if token['id'] != expected:
            raise ValueError(f'its added token {content!r} has id {token["id"]}, but Hugging Face would give '
                             f'it {expected}')
        # <tool_call> and the like are characters here; four spaces are text
        if token.get('special') is not True and not re.fullmatch(r'[<\[].+[>\]]', content):
            raise ValueError(f'its added token {content!r} occurs in ordinary text, where tiktoken splits it')
        specials[content] = token['id']
    return specials


def split_pattern(pre_tokenizer):
    """The regular expression of a pre-tokenizer: ByteLevel alone, after Digits, or after Split."""
    steps = (pre_tokenizer or {}).get('pretokenizers', [pre_tokenizer or {}])
    defaults = {'ByteLevel': {'add_prefix_space': True, 'use_regex': True},
                'Digits': {'individual_digits': False}}
    match [defaults.get(step.get('type'), {}) | step for step in steps]:
        case [{'type': 'ByteLevel', 'add_prefix_space': False, 'use_regex': True}]:
            return BYTELEVEL_PATTERN
        case [{'type': 'Digits', 'individual_digits': True},
              {'type': 'ByteLevel', 'add_prefix_space': False, 'use_regex': True}]:
            return DIGITS_PATTERN
        case [{'type': 'Split', 'pattern': {'Regex': pattern}, 'behavior': 'Isolated', 'invert': False},
              {'type': 'ByteLevel', 'add_prefix_space': False, 'use_regex': False}]:
            if not COMMON_SYNTAX.fullmatch(pattern):
                raise ValueError(f'its regular expression {pattern!r} may mean something else to tiktoken')
            if pattern == LLAMA3_PATTERN:
                return pattern  # known to be whole
            characters = map(chr, (*range(0xd800), *range(0xe000, 0x20000)))
            text = ''.join(f'a{character}a {character} ' for character in characters)
            pieces = [match[0] for match in regex.finditer(pattern, text)]
            if not all(pieces) or ''.join(pieces) != text:
                raise ValueError(f'its regular expression {pattern!r} leaves out some characters')
            return pattern
    raise ValueError(f'its pre_tokenizer {[step.get("type") for step in steps]} cannot be reproduced')


def merge(token, ranks, below):
    """The parts that a token's bytes come to by merges into tokens whose ids are below a number."""
    parts = [token[k:k + 1] for k in range(len(token))]
    while len(parts) > 1:
        unions = [ranks.get(a + b, below) for a, b in zip(parts, parts[1:])]
        lowest = min(unions)
        if lowest >= below:
            break
        k = unions.index(lowest)
        parts[k:k + 2] = [parts[k] + parts[k + 1]]
    return parts


def check_merges(ranks, merges, ignore_merges):
    """tiktoken merges by id, a tokenizer.json by its list of merges.

    Both give the same where ids rise with the list, and each token's merge is what its own bytes come to.
    """
    merged = [ranks.get(a + b) for a, b in merges]
    if None in merged or any(x > y for x, y in zip(merged, merged[1:])):
        raise ValueError('token ids do not rise with the order of merges, as tiktoken needs')
    pairs = set(merges)
    for token, rank in ranks.items():
        parts = merge(token, ranks, rank)
        if len(parts) == 2 and tuple(parts) not in pairs or len(parts) > 2 and not ignore_merges:
            raise ValueError(f'token {token!r} is not what its merges make: tiktoken would give other ids')

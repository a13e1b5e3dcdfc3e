"""Other people's encoders, such as ModernBERT, BERT, RoBERTa and DeBERTa, fine-tuned just as ours are.

    checkpoint = open_encoder(cfg)        # cfg.model: a folder or a hub id, of ours or of another's
    transformer, tokenizer = checkpoint.model(head=False), checkpoint.tokenizer()

transformers' AutoModel and AutoTokenizer open them: an optional package, pip install ".[peers]".
No code of a repository is run, and no pickle is opened.
"""
import hashlib
import math
import re
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from nanoencoder.durable import read_json
from nanoencoder.huggingface import (FAMILIES, IDS, INDEX, Checkpoint, download, is_hub_id, newest_checkpoint,
                                     open_checkpoint)

FILES = ('config.json', 'tokenizer.json', 'tokenizer_config.json', 'special_tokens_map.json',
         'added_tokens.json', INDEX)
OURS_ALONE = {'causal': False, 'layers': -1, 'recompute': False, 'save_model': False}  # settings


class Tokenizer:
    """A fast tokenizer of transformers with what tasks use of nanoencoder.tokenizer.Tokenizer."""

    def __init__(self, theirs):
        self.backend = theirs.backend_tokenizer
        self.backend.no_truncation()
        self.backend.no_padding()
        self.backend.encode_special_tokens = True   # nothing in a text is special: [MASK] is six characters
        self.ids = {role: getattr(theirs, name) for role, name in IDS.items()}  # None where it has no such
        self.unknown = theirs.unk_token_id
        self.special = [i for i in theirs.all_special_ids if i != self.unknown]
        self.vocab_size = max(self.backend.get_vocab().values()) + 1
        letter = self.backend.encode('a')
        text = np.flatnonzero(np.array(letter.special_tokens_mask) == 0)
        self.around = tuple(letter.ids[:text[0]]), tuple(letter.ids[text[-1] + 1:])

    def encode(self, text):
        return self.encode_with_offsets(text)[0]

    def encode_with_offsets(self, text):
        """((n,) ids, (n, 2) the characters [first, last + 1) of each without the white space around them)."""
        text = re.sub('[\ud800-\udfff]', '\ufffd', text)  # lone surrogates, which UTF-8 cannot hold
        encoding = self.backend.encode(text, add_special_tokens=False)
        ids = np.array(encoding.ids, np.int64)
        if self.unknown is not None:    # a vocabulary of SentencePiece's kind may hold [MASK] as a word
            ids[np.isin(ids, self.special)] = self.unknown
        offsets = np.array(encoding.offsets, np.int64).reshape(-1, 2)
        for k, (first, last) in enumerate(encoding.offsets):
            piece = text[first:last]
            first += len(piece) - len(piece.lstrip())
            offsets[k] = first, first + len(piece.strip())
        return ids, offsets

    def fingerprint(self):
        """sha256 over all that decides which ids a text gets."""
        return hashlib.sha256(self.backend.to_str().encode()).hexdigest()


@dataclass(frozen=True)
class Sizes:
    hidden_size: int
    config: dict    # config.json


class Transformer(nn.Module):
    """transformers' model with our Transformer's calling convention: no dropout, and padding is its own.

    It stays in eval mode: ours have no dropout either, whose masks a global generator would draw.
    """

    def __init__(self, theirs, config, pad):
        super().__init__()
        self.theirs, self.sizes, self.pad = theirs.eval(), Sizes(theirs.config.hidden_size, config), pad
        theirs.get_input_embeddings().padding_idx = None    # where the pad is eos, it learns as in ours

    def train(self, mode=True):
        return super().train(False)

    def _apply(self, fn, recurse=True):
        """Buffers, RoPE's frequencies among them, stay fp32 where weights become bf16."""
        buffers = [(module, name, buffer) for module in self.modules()
                   for name, buffer in module.named_buffers(recurse=False)]
        super()._apply(fn, recurse)
        for module, name, buffer in buffers:
            setattr(module, name, buffer.to(getattr(module, name).device))
        return self

    def forward(self, tokens, lengths, causal=False):
        """(N, d) states of flat tokens (N,). Texts are padded with those that are at most half as long again."""
        texts, states = tokens.split(lengths), [None] * len(lengths)
        groups = []
        for k in sorted(range(len(lengths)), key=lengths.__getitem__):
            if not groups or lengths[k] > 1.5 * lengths[groups[-1][0]]:
                groups.append([])
            groups[-1].append(k)
        for group in groups:
            padded = pad_sequence([texts[k] for k in group], batch_first=True, padding_value=self.pad)
            ends = torch.tensor([[lengths[k]] for k in group], device=tokens.device)
            mask = (torch.arange(padded.shape[1], device=tokens.device) < ends).long()
            for k, state in zip(group, self.theirs(input_ids=padded, attention_mask=mask)[0]):
                states[k] = state[:lengths[k]]
        return torch.cat(states)


@dataclass(frozen=True, eq=False)
class Peer(Checkpoint):
    """A Checkpoint of another architecture; its model and tokenizer have been opened."""
    opened: tuple = ()    # (Transformer, Tokenizer)

    def model(self, head=False):
        return self.opened[0]

    def tokenizer(self):
        return self.opened[1]


def open_encoder(cfg):
    """The Checkpoint of cfg.model: ours if config.json's model_type is one of ours, else a Peer."""
    name = cfg.model
    folder = download(name, FILES) if is_hub_id(name) else newest_checkpoint(name)
    if str(read_json(folder / 'config.json').get('model_type')) in FAMILIES:
        return open_checkpoint(name)
    for setting, default in OURS_ALONE.items():
        if getattr(cfg, setting) != default:
            raise ValueError(f'{setting} is for architectures of our own; leave it out for {name}')
    Checkpoint(name, folder, None, 0, {}, {}).fetch()
    try:
        return open_peer(name, folder)
    except Exception as error:  # of whatever class a library raises for a file that it does not like
        words = error if isinstance(error, ValueError) else f'transformers cannot open it: {error!r}'
        raise ValueError(f'{folder}: {words}') from error


def open_peer(name, folder):
    """The Peer in a folder. Some exception if transformers cannot open it, or it is no encoder of text."""
    config = read_json(folder / 'config.json')
    theirs, fast = read_peer(folder, config)
    tokenizer, embeddings = Tokenizer(fast), theirs.get_input_embeddings()
    if tokenizer.vocab_size > embeddings.num_embeddings:
        raise ValueError(f'its tokenizer has ids up to {tokenizer.vocab_size - 1}, but embeddings for '
                         f'{embeddings.num_embeddings}')
    if not tokenizer.around[1]:
        raise ValueError('its tokenizer puts no special token behind a text, as an empty one needs')
    if bad := next((name for name, p in theirs.named_parameters() if not p.isfinite().all()), None):
        raise ValueError(f'{bad} holds values that are not finite')
    context = min(fast.model_max_length, *positions(theirs))    # 10^30 where nothing bounds it
    pad = theirs.config.pad_token_id            # by which RoBERTa counts positions
    transformer = Transformer(theirs, config, tokenizer.ids['pad'] or 0 if pad is None else pad)
    if is_causal(transformer, tokenizer):
        raise ValueError('is causal: of decoders, those of Llama\'s architecture can be fine-tuned ('
                         + ', '.join(FAMILIES) + ')')
    return Peer(name, folder, transformer.sizes, context, tokenizer.ids, {}, (transformer, tokenizer))


def read_peer(folder, config):
    """(transformers' model in fp32, its fast tokenizer), without code of the repository's or pickles."""
    try:
        import transformers
    except ImportError:
        raise ValueError('an encoder of another\'s needs transformers: pip install ".[peers]"') from None
    if (family := config.get('model_type')) not in transformers.CONFIG_MAPPING:
        raise ValueError(f'model_type {family!r} ' + (
            'needs code from its repository, which is not run' if 'auto_map' in config else
            f'is not known to transformers {transformers.__version__}'))
    if not (folder / 'tokenizer.json').exists():
        raise ValueError('has no fast tokenizer (tokenizer.json), which says where a token stands in a text')
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    options = {'local_files_only': True, 'trust_remote_code': False}
    settings = transformers.AutoConfig.from_pretrained(folder, **options)
    settings._attn_implementation = None        # config.json may name a kernel to download and to run
    model, info = transformers.AutoModel.from_pretrained(
        folder, config=settings, dtype=torch.float32, use_safetensors=True, output_loading_info=True,
        **options)
    if missing := [name for name in sorted(info['missing_keys']) if not name.startswith('pooler.')]:
        raise ValueError(f'missing weight {missing[0]}')    # a pooler is a head, which nothing here reads
    if settings.is_encoder_decoder or model.main_input_name != 'input_ids':
        raise ValueError('is not an encoder of text alone')
    return model, transformers.AutoTokenizer.from_pretrained(folder, **options)


def positions(theirs):
    """How many tokens its tables of positions hold, and how many its config.json says."""
    tables = [module for name, module in theirs.named_modules()
              if name.endswith('position_embeddings') and isinstance(module, nn.Embedding)]
    first = [0 if table.padding_idx is None else table.padding_idx + 1 for table in tables]  # of RoBERTa: 2
    stated = getattr(theirs.config, 'max_position_embeddings', None) or math.inf
    return [stated, *(table.num_embeddings - k for table, k in zip(tables, first))]


@torch.no_grad()
def is_causal(transformer, tokenizer):
    """Whether the first token's state is the same before two different last tokens."""
    before, behind = tokenizer.around
    text = [*before, *tokenizer.encode('an array'), *behind]
    other = text[:-1] + [(text[-1] + 1) % tokenizer.vocab_size]
    states = transformer(torch.tensor(text + other), [len(text)] * 2)
    return torch.allclose(states[0], states[len(text)], rtol=1e-5, atol=1e-6)

"""Fine-tune other people's encoders, such as ModernBERT, BERT, RoBERTa and DeBERTa, just as we do ours.

transformers' AutoModel and AutoTokenizer open them; it is an optional package: pip install ".[peers]".
No code of a repository is run, and no pickle is opened."""
import math
import shutil
from dataclasses import dataclass

import tokenizers
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from nanoencoder.files import blame, read_json, write_json
from nanoencoder.huggingface import (
    CONFIG,
    FAMILIES,
    MOMENTS,
    ROLES,
    WEIGHTS,
    Checkpoint,
    folder_of,
    open_checkpoint,
    read_state,
)
from nanoencoder.sentence_encoders import read_modules, read_optional
from nanoencoder.tokenizer import Tokenizer, conversion, one_line

# Encoders known to ignore padding when given attention_mask. Others may be causal or attend to padding
# (BigBird's sparse form, ConvBERT, Nystromformer, XLNet), or read more than ids (RoCBERT: shapes and sounds).
FAMILIES_OF_PEERS = ('albert', 'bert', 'bert-generation', 'camembert', 'data2vec-text', 'deberta',
                     'deberta-v2', 'distilbert', 'electra', 'ernie', 'esm', 'flaubert', 'gte',
                     'jina_embeddings_v3', 'longformer', 'luke', 'megatron-bert', 'modernbert',
                     'modernbert-decoder', 'mpnet', 'nomic_bert', 'rembert', 'roberta',
                     'roberta-prelayernorm', 'roformer', 'squeezebert', 'xlm', 'xlm-roberta',
                     'xlm-roberta-xl', 'xmod')
# These began as code in hub repositories, which auto_map in their config.json still names; transformers now
# has them itself. With auto_map in it a folder of any other family is not what its model_type says.
PORTED = 'gte', 'jina_embeddings_v3', 'nomic_bert'
OURS_ALONE = 'causal', 'layers', 'recompute'  # settings that need our own architecture
OFFLINE = {'local_files_only': True, 'trust_remote_code': False}
# of weights: no pickle, and with lists of those that are missing, too many or of another shape
OF_WEIGHTS = OFFLINE | {'dtype': torch.float32, 'use_safetensors': True, 'output_loading_info': True,
                        'ignore_mismatched_sizes': True}
CANNOT_OPEN = 'transformers cannot open it as an encoder of text'
TOKENIZER_FILES = ('tokenizer*', 'special_tokens_map.json', 'added_tokens.json', 'vocab.*', 'merges.txt',
                   'spiece.model', 'spm.model', 'sentencepiece*')
SAMPLE = 'The  Array\nNA\xefVE E\u0301mile, don\'t \u6771\u4eac 3.14 1234567 '  # shows what a normalizer does


@dataclass(frozen=True)
class PeerSizes:
    hidden_size: int
    config: dict    # all of config.json


class PeerTransformer(nn.Module):
    """transformers' model, called as our Transformer is. It needs padding, which ours never does."""

    def __init__(self, inner, sizes, pad):
        super().__init__()
        self.inner = inner.eval()   # no dropout, as in ours
        self.sizes = sizes
        self.pad = pad
        inner.get_input_embeddings().padding_idx = None    # if pad is also eos, its embedding must learn

    def forward(self, tokens, lengths, causal=False):
        """(N, d) states of flat tokens (N,). Texts whose lengths differ by less than half share a batch."""
        texts = tokens.split(lengths)
        groups = {}     # {length, rounded up to a power of 1.5: numbers of its texts}
        for k in sorted(range(len(texts)), key=lengths.__getitem__):
            power = math.ceil(math.log(lengths[k], 1.5))
            groups.setdefault(power, []).append(k)
        states = [None for _ in texts]      # (its length, d) of each
        for group in groups.values():
            batch = [texts[k] for k in group]
            padded, mask = pad_texts(batch, self.pad)
            outputs = self.inner(input_ids=padded, attention_mask=mask)[0]
            for k, state in zip(group, outputs):
                states[k] = state[:lengths[k]]
        return torch.cat(states)


def pad_texts(texts, pad):
    """Return two (texts, longest) tensors of texts of several lengths: their ids, and 1 where a token is."""
    ones = [torch.ones_like(text) for text in texts]
    return pad_sequence(texts, True, pad), pad_sequence(ones, True)


@dataclass(frozen=True, eq=False)
class Peer(Checkpoint):
    """A checkpoint of another architecture. Its weights are read by `model`."""
    text_tokenizer: Tokenizer
    pad: int

    def model(self, head=False):    # it has none
        """The Transformer. ValueError if its weights are not those that config.json asks for."""
        with one_line(self.folder, CANNOT_OPEN):
            inner = read_model(import_transformers(), self.folder)
            transformer = PeerTransformer(inner, self.sizes, self.pad)
            suffix = torch.tensor(self.text_tokenizer.suffix)
            transformer(suffix, [len(suffix)])      # X-MOD without a default_language fails now
        return transformer

    def tokenizer(self):
        return self.text_tokenizer


def open_encoder(cfg):
    """Open cfg.model: as our own Checkpoint if config.json's model_type is one of ours, else as a Peer. Of a
    hub id only small files are downloaded: whatever they show to be wrong is refused before `fetch_weights`
    brings the weights."""
    name = cfg.model
    folder = folder_of(name)
    config = read_json(folder / 'config.json', fields=CONFIG)
    family = config.get('model_type')
    if family in FAMILIES:
        return open_checkpoint(name, weights=False)
    if family not in FAMILIES_OF_PEERS:
        raise ValueError(f'{folder}: model_type {family!r:.80} is neither one of ours, decoders among them '
                         f'({", ".join(FAMILIES)}), nor an encoder that transformers opens for us '
                         f'({", ".join(FAMILIES_OF_PEERS)})')
    for setting in OURS_ALONE:
        if getattr(cfg, setting) != getattr(type(cfg), setting):
            raise ValueError(f'{setting} works only with nanoEncoder\'s own architecture; drop it for {name}')
    return open_other_encoder(name, folder)


def open_other_encoder(name, folder):
    """Open the folder of an encoder of FAMILIES_OF_PEERS as a Peer. ValueError if it is a decoder."""
    config = read_json(folder / 'config.json', fields=CONFIG)
    with one_line(folder):
        check_encoder(config)
    with one_line(folder, CANNOT_OPEN):
        return open_peer(folder, config, name)


def open_peer(folder, config, name):
    """Open a folder, which the user calls `name`, as a Peer; its weights need not be there yet. ValueError,
    without the folder's name, if transformers cannot have it."""
    transformers = import_transformers()
    tokenizer, longest = read_tokenizer(transformers, folder, name)
    settings = read_settings(transformers, folder)
    with torch.device('meta'):      # the model without its weights
        model = transformers.AutoModel.from_config(settings)
    check_ids(tokenizer, model.get_input_embeddings().num_embeddings)
    pad = pad_of(model, tokenizer.ids['pad'])
    sizes = PeerSizes(settings.hidden_size, config)
    context = positions_of(model)
    if not read_modules(folder):    # of a sentence encoder it says how much is read, not how much can be
        context = min(context, longest)
    state = read_state(folder, but=(WEIGHTS, MOMENTS))     # of examples/continue_encoder.py
    return Peer(folder, sizes, context, state, tokenizer, pad)


def check_ids(tokenizer, num_embeddings):
    """ValueError if a tokenizer has tokens without an embedding."""
    surplus = tokenizer.vocab_size - num_embeddings
    if surplus > 0:
        raise ValueError(f'its tokenizer has {surplus:,} ids more than the {num_embeddings:,} embeddings; if '
                         'tokens were added to it, save the model after '
                         'model.resize_token_embeddings(len(tokenizer))')


def import_transformers():
    """Import transformers and make it quiet. ValueError if it is not installed."""
    with blame('this encoder needs transformers: pip install ".[peers]"', ImportError):
        import transformers
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def check_encoder(config):
    """ValueError if config.json is a decoder's, or of what only a repository's own code computes."""
    family = config['model_type']
    # XLM and FlauBERT call it causal. A ModernBERT decoder is made an encoder by `read_model`.
    is_causal = config.get('causal') or config.get('is_causal') and family != 'modernbert-decoder'
    if config.get('is_decoder') or is_causal:
        raise ValueError(f'is_decoder, is_causal or causal is true, so this {family} is a decoder; '
                         f'decoders that open are {", ".join(FAMILIES)}')
    if family in PORTED:
        # transformers' class falls back to its own defaults for what the repository's code called otherwise:
        # a model of the right shape with another RoPE. It does not know GTE's logn_attention_scale, either.
        has_rope = config.get('rope_parameters') or config.get('rope_theta')
        if not (config.get('hidden_size') and has_rope) or config.get('logn_attention_scale'):
            raise ValueError('its config.json is for code in its repository, which is not run: '
                             f'transformers\' {family} reads hidden_size and rope_parameters there, and '
                             'has no logn_attention_scale')
    elif any(entry.startswith('AutoModel') for entry in config.get('auto_map') or ()):
        raise ValueError('needs code from its repository (auto_map in config.json), which is not run')


def positions_of(model):
    """Return how many tokens a model reads at most."""
    context = model.config.max_position_embeddings
    for module, table in model.named_modules():
        if module.endswith('position_embeddings') and getattr(table, 'padding_idx', None) is not None:
            context -= table.padding_idx + 1    # RoBERTa counts positions from after its pad's id
    return context


def pad_of(model, of_tokenizer):
    """Return the id to pad with: RoBERTa computes positions from where its config's pad is; -1 means none."""
    pads = model.config.pad_token_id, of_tokenizer, 0
    return next(pad for pad in pads if pad is not None and pad >= 0)


def read_settings(transformers, folder):
    """Read config.json as transformers does, and drop what could name other files."""
    if (folder / 'adapter_config.json').exists():
        raise ValueError('has an adapter beside its weights: merge it first, by merge_and_unload of peft')
    settings = transformers.AutoConfig.from_pretrained(folder, **OFFLINE)
    settings._attn_implementation = None    # code to download
    settings.transformers_weights = None    # a pickle
    return settings


def read_model(transformers, folder):
    """Open transformers' model. ValueError unless all weights that config.json asks for are there, none too
    many, and finite."""
    settings = read_settings(transformers, folder)
    if settings.model_type == 'modernbert-decoder':
        settings.is_causal = False      # then it computes what ModernBERT does with these weights
    model, missing, unexpected = open_by_auto_class(transformers.AutoModel, folder, settings)
    # heads of pretraining, as cls. and lm_head., may be there; we never read them
    read_parts = {model.base_model_prefix, *dict(model.named_children()), 'classifier', 'score', 'qa_outputs'}
    unexpected = [name for name in unexpected if name.split('.')[0] in read_parts]
    for name in missing + unexpected:
        which = 'missing' if name in missing else 'unexpected'
        raise ValueError(f'weight {name} is {which}: of another model, or a classifier?')
    return model


def open_by_auto_class(auto_class, folder, settings):
    """Open a model by one of transformers' Auto classes. Returns (the model, names of missing weights, names
    of unexpected ones), both without poolers, which we never read. ValueError if a weight has another shape
    than config.json says, or is not finite."""
    model, info = auto_class.from_pretrained(folder, config=settings, **OF_WEIGHTS)
    for name, *_ in info['mismatched_keys']:
        raise ValueError(f'weight {name} has another shape than config.json says')
    for name, p in model.named_parameters():
        if not p.isfinite().all():
            raise ValueError(f'weight {name} is not finite')
    missing, unexpected = [
        sorted(name for name in info[names] if 'pooler' not in name)
        for names in ('missing_keys', 'unexpected_keys')]
    return model, missing, unexpected


def open_masked_lm(folder):
    """Open transformers' model with its output head, which fills masks. ValueError if it has none."""
    with one_line(folder, 'transformers opens no encoder with an output head there'):
        transformers = import_transformers()
        settings = read_settings(transformers, folder)
        model, missing, _ = open_by_auto_class(transformers.AutoModelForMaskedLM, folder, settings)
        if missing:
            raise ValueError(f'has no output head that fills masks ({missing[0]} is missing); '
                             'examples/continue_encoder.py trains a new one')
    return model.eval()


def read_tokenizer(transformers, folder, name):
    """Return our Tokenizer of a folder, and how many tokens the folder says that a text has at most.
    ValueError if transformers' tokenizer gives other ids.

    name  of the folder, or the hub id that it is of, as the user gave it"""
    if not (folder / 'tokenizer.json').is_file():
        raise ValueError(f'has no tokenizer.json: {conversion(name)}')
    named = transformers.AutoTokenizer.from_pretrained(folder, **OFFLINE)
    backend = tokenizers.Tokenizer.from_file(str(folder / 'tokenizer.json'))
    specials = dict(zip(named.all_special_tokens, named.all_special_ids))
    specials.pop(named.unk_token, None)
    roles = {role: getattr(named, f'{role}_token') for role in ROLES}
    tokenizer = Tokenizer(backend, roles, specials, named.unk_token_id)
    if named(SAMPLE)['input_ids'] != [*tokenizer.prefix, *tokenizer.encode(SAMPLE), *tokenizer.suffix]:
        raise ValueError(f'{type(named).__name__} gives other ids than tokenizer.json, make the '
                         'tokenizer_class in tokenizer_config.json PreTrainedTokenizerFast')
    if not tokenizer.suffix:
        raise ValueError('its tokenizer appends no special token such as [SEP]: an empty text would be empty')
    return tokenizer, named.model_max_length


# ---------------------------------------------------------------------------
# Fine-tuned encoders, for nanoencoder/fine_tuned.py


def write_peer(folder, peer, inner, max_length, config, classifier=None):
    """Write transformers' model, after training, and the tokenizer that it came with. Returns whether the
    classifier is with it.

    peer        that the training began with
    max_length  tokens of a text that were read
    config      more entries of config.json: its labels
    classifier  a linear layer on each token's state, or None"""
    for name, value in config.items():
        setattr(inner.config, name, value)
    model = None
    if classifier is not None:
        model = token_classifier(inner, classifier)
    has_classifier = model is not None
    if not has_classifier:
        model = inner
    save_pretrained(model, folder)
    for pattern in TOKENIZER_FILES:
        for path in peer.folder.glob(pattern):
            shutil.copyfile(path, folder / path.name)
    path = folder / 'tokenizer_config.json'
    write_json(path, read_optional(path) | {'model_max_length': max_length})
    return has_classifier


def token_classifier(inner, classifier):
    """Return transformers' ForTokenClassification with these weights; None if there is none, or if it has
    other layers than the classifier on top, as ModernBERT's has."""
    auto = import_transformers().AutoModelForTokenClassification
    if type(inner.config) not in auto._model_mapping:
        return None
    with torch.device('meta'):      # the model without its weights
        model = auto.from_config(inner.config)
    setattr(model, model.base_model_prefix, inner)
    model.classifier = classifier
    if any(p.is_meta for p in model.parameters()):
        return None
    return model


def save_pretrained(model, folder):
    """Write config.json and model.safetensors, without a pooler, which we never train, so that everyone who
    may read the folder may read the weights."""
    state = {name: tensor for name, tensor in model.state_dict().items() if 'pooler' not in name}
    model.save_pretrained(folder, state_dict=state)
    path = folder / WEIGHTS
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)


def open_written_peer(folder, config):
    """Return (the Peer of a folder that `write_peer` wrote, its Transformer). Weights of a classifier may be
    beside the encoder's."""
    with one_line(folder, CANNOT_OPEN):
        peer = open_peer(folder, config, str(folder))
        transformers = import_transformers()
        settings = read_settings(transformers, folder)
        inner, _, _ = open_by_auto_class(transformers.AutoModel, folder, settings)
    return peer, PeerTransformer(inner, peer.sizes, peer.pad)

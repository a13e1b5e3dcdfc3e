"""Other people's encoders, such as ModernBERT, BERT, RoBERTa and DeBERTa, fine-tuned just as ours are.

transformers' AutoModel and AutoTokenizer open them: an optional package, pip install ".[peers]".
No code of a repository is run, and no pickle is opened."""
import itertools
import math
from dataclasses import dataclass, make_dataclass

import tokenizers
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from nanoencoder.files import blame, read_json
from nanoencoder.huggingface import FAMILIES, IDS, Checkpoint, newest_checkpoint, open_checkpoint
from nanoencoder.tokenizer import Tokenizer, download, is_hub_id, one_line

# Encoders known to ignore padding when they are given attention_mask. Others may be causal or attend to it
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
OURS_ALONE = 'causal', 'layers', 'recompute', 'save_model'  # settings that need our own architecture
SAMPLE = 'The  Array\nNA\xefVE E\u0301mile, don\'t \u6771\u4eac 3.14 1234567 '  # shows what a normalizer does
Sizes = make_dataclass('Sizes', ['hidden_size', 'config'], frozen=True)  # config: all of config.json


class Transformer(nn.Module):
    """transformers' model, called as our Transformer is; it pads, which ours never does."""
    def __init__(self, inner, sizes, pad):
        super().__init__()
        self.inner, self.sizes, self.pad = inner.eval(), sizes, pad     # no dropout, as in ours
        inner.get_input_embeddings().padding_idx = None    # if pad is also eos, its embedding must learn

    def forward(self, tokens, lengths, causal=False):
        """(N, d) states of flat tokens (N,); texts of about the same length are padded together."""
        texts, states = tokens.split(lengths), [None] * len(lengths)
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        for _, group in itertools.groupby(order, lambda k: math.ceil(math.log(lengths[k], 1.5))):
            group = list(group)
            padded = pad_sequence([texts[k] for k in group], batch_first=True, padding_value=self.pad)
            mask = pad_sequence([torch.ones_like(texts[k]) for k in group], batch_first=True)
            for k, state in zip(group, self.inner(input_ids=padded, attention_mask=mask)[0]):
                states[k] = state[:lengths[k]]
        return torch.cat(states)


@dataclass(frozen=True, eq=False)
class Peer(Checkpoint):    # of another architecture, read whole
    transformer: Transformer
    text_tokenizer: Tokenizer

    def model(self, head=False):
        if head:
            raise ValueError(f'{self.name}: without fine-tuning, only our own architecture can be scored')
        return self.transformer

    def tokenizer(self):
        return self.text_tokenizer


def open_encoder(cfg):
    """The Checkpoint of cfg.model: ours if config.json's model_type is one of ours, else a Peer."""
    name = cfg.model
    folder = download(name) if is_hub_id(name) else newest_checkpoint(name)
    config = read_json(folder / 'config.json')
    family = config.get('model_type')
    if family in FAMILIES:
        return open_checkpoint(name)
    if family not in FAMILIES_OF_PEERS:
        raise ValueError(f'{folder}: model_type {family!r} is neither one of ours, decoders among them '
                         f'({", ".join(FAMILIES)}), nor an encoder that transformers opens for us '
                         f'({", ".join(FAMILIES_OF_PEERS)})')
    for name_of_causal in ('is_decoder', 'causal'):     # XLM and FlauBERT call it causal
        if config.get(name_of_causal):
            raise ValueError(f'{folder}: {name_of_causal} is true, so this {family} is a decoder; '
                             f'decoders that open are {", ".join(FAMILIES)}')
    for setting in OURS_ALONE:
        if getattr(cfg, setting) != getattr(type(cfg), setting):
            raise ValueError(f'{setting} works only with nanoEncoder\'s own architecture; drop it for {name}')
    Checkpoint(name, folder, sizes=None, context=0, state={}).fetch()
    with one_line(folder, 'transformers cannot open it as an encoder of text'):
        return open_peer(name, folder, config)


def open_peer(name, folder, config):
    with blame('this encoder needs transformers: pip install ".[peers]"', ImportError):
        import transformers
    family = config['model_type']
    if family in PORTED:
        check_ported(config)
    elif any(entry.startswith('AutoModel') for entry in config.get('auto_map') or ()):
        raise ValueError('needs code from its repository (auto_map in config.json), which is not run')
    if not (folder / 'tokenizer.json').is_file():
        raise ValueError('has no tokenizer.json: save_pretrained of transformers\' AutoTokenizer writes one')
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    options = {'local_files_only': True, 'trust_remote_code': False}
    settings = transformers.AutoConfig.from_pretrained(folder, **options)
    settings._attn_implementation = settings.transformers_weights = None    # code to download, or a pickle
    if family == 'modernbert-decoder':
        settings.is_causal = False      # then it computes what ModernBERT does with these weights
    opening = options | {'config': settings, 'dtype': torch.float32, 'use_safetensors': True}
    model, info = transformers.AutoModel.from_pretrained(folder, output_loading_info=True, **opening)
    check_weights(model, info)
    named = transformers.AutoTokenizer.from_pretrained(folder, **options)
    backend = tokenizers.Tokenizer.from_file(str(folder / 'tokenizer.json'))
    specials = dict(zip(named.all_special_tokens, named.all_special_ids))
    specials.pop(named.unk_token, None)
    roles = {role: getattr(named, f'{role}_token') for role in IDS}
    tokenizer = Tokenizer(backend, roles, specials, named.unk_token_id)
    if named(SAMPLE)['input_ids'] != [*tokenizer.prefix, *tokenizer.encode(SAMPLE), *tokenizer.suffix]:
        raise ValueError(f'{type(named).__name__} gives other ids than tokenizer.json, make the '
                         'tokenizer_class in tokenizer_config.json PreTrainedTokenizerFast')
    pads = model.config.pad_token_id, tokenizer.ids['pad'], 0   # RoBERTa finds positions by the first
    pad = next(pad for pad in pads if pad is not None and pad >= 0)     # -1 is none
    if tokenizer.vocab_size > (size := model.get_input_embeddings().num_embeddings):
        raise ValueError(f'its tokenizer has ids up to {tokenizer.vocab_size - 1}, but embeddings for {size}')
    if not tokenizer.suffix:
        raise ValueError('its tokenizer appends no special token such as [SEP]: an empty text would be empty')
    transformer = Transformer(model, Sizes(model.config.hidden_size, config), pad)
    empty = torch.tensor([*tokenizer.prefix, *tokenizer.suffix])
    with torch.no_grad():
        transformer(empty, [len(empty)])    # X-MOD without a default_language fails now, not in training
    # RoBERTa's kind counts positions from the pad's id on
    unused = [table.padding_idx + 1 for name, table in model.named_modules()
              if name.endswith('position_embeddings') and getattr(table, 'padding_idx', None) is not None]
    limits = named.model_max_length, model.config.max_position_embeddings - max(unused, default=0)
    return Peer(name, folder, transformer.sizes, min(limits), {}, transformer, tokenizer)


def check_ported(config):
    """ValueError unless config.json is written for transformers' class.

    It takes its own defaults for what the repository's code called otherwise: a model of the right shape with
    another rotation. Of GTE it does not know logn_attention_scale, either."""
    has_rotation = config.get('rope_parameters') or config.get('rope_theta')
    if not (config.get('hidden_size') and has_rotation) or config.get('logn_attention_scale'):
        raise ValueError('its config.json is for code in its repository, which is not run: transformers\' '
                         f'{config["model_type"]} reads hidden_size and rope_parameters there, and has no '
                         'logn_attention_scale')


def check_weights(model, info):
    """ValueError unless all weights that config.json asks for are there, none too many, and finite."""
    # heads that are never read may be there or not: pooler., and pretraining's, as cls. and lm_head.
    wrong = [f'missing weight {name}' for name in info['missing_keys'] if not name.startswith('pooler.')]
    parts = {model.base_model_prefix, *dict(model.named_children()), 'classifier', 'score', 'qa_outputs'}
    wrong += [f'unexpected weight {name}' for name in info['unexpected_keys'] if name.split('.')[0] in parts]
    wrong += [f'damaged weight {name}' for name, p in model.named_parameters() if not p.isfinite().all()]
    if wrong:
        raise ValueError(f'{min(wrong)}: not finite, of another model, or a classifier')

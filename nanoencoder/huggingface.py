"""Hugging Face's checkpoint folders, in and out: config.json and safetensors, on disk or on the hub.

    checkpoint = open_checkpoint('out/mlm-1800-s6')    # a run, one of its checkpoints, or a hub id
    model = checkpoint.model()
    tokenizer = checkpoint.tokenizer()

We read EuroBERT and decoders of Llama's architecture (Llama 3, SmolLM, Mistral, Qwen2, Qwen3); also shards.
We write EuroBERT, which transformers has from 5.3 on; with norms of q and k, a Qwen3 without its causal mask.
Anything we cannot represent exactly raises an error that names it. No pickle is opened and no code is run."""
import functools
import os
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save as to_bytes

from data import OBJECTIVES
from model import ACTIVATION, Model, Sizes
from nanoencoder.files import (
    blame,
    changed_files,
    plain_name,
    read_json,
    saved_state,
    saved_steps,
    sha256,
    sha256_of_text,
    write_json,
)
from nanoencoder.settings import check_value
from nanoencoder.tokenizer import conversion, download, is_hub_id, load_tokenizer

WEIGHTS, MOMENTS, INDEX = 'model.safetensors', 'optimizer.safetensors', 'model.safetensors.index.json'
EMBEDDING, HEAD = 'model.embed_tokens.weight', 'lm_head.weight'  # (tokens, hidden size)

FAMILIES = {    # model_type: what it implies where config.json says nothing
    'eurobert': {},
    'llama': {'rope_theta': 10_000},
    'mistral': {'rope_theta': 10_000},
    'qwen2': {'attention_bias': True},
    'qwen3': {'head_dim': 128, 'qk_norm': True},
    'sl_model': {}}     # the paper's own
ENCODERS = 'eurobert', 'sl_model'   # of these families; the others are decoders
# transformers' name of the activation in model.py; of a fork's own one a name that transformers refuses
HIDDEN_ACT = {F.silu: 'silu', F.gelu: 'gelu', F.relu: 'relu'}.get(ACTIVATION, 'as in model.py')
SUPPORTED = {   # values in config.json that model.py can compute
    'rope_type': ('default', 'llama3'),
    'hidden_act': (HIDDEN_ACT, None),
    'partial_rotary_factor': (1, None)}
CONFIG = {  # types in config.json, beside those of the sizes
    'model_type': str, 'rope_scaling': dict, 'rope_parameters': dict, 'layer_types': [str], 'objective': str}
NAMES = [field.name for field in fields(Sizes) if field.name not in ('qk_norm', 'rope_scaling')]
CONTEXT = 'max_position_embeddings'
ROLES = 'bos', 'eos', 'pad', 'mask'     # config.json's bos_token_id, ...
LLAMA3_SCALING = ('factor', 'low_freq_factor', 'high_freq_factor', 'original_max_position_embeddings')
EUROBERT = {
    'architectures': ['EuroBertForMaskedLM'],
    'model_type': 'eurobert',
    'mlp_bias': False,
    'classifier_pooling': 'mean'}
QWEN3 = {
    'architectures': ['Qwen3ForCausalLM'],
    'model_type': 'qwen3',
    'use_sliding_window': False,
    'is_causal': False,
    # Makes transformers 4 refuse the file; the next entry does it for 5.0 to 5.2. They would ignore is_causal
    # and run a decoder.
    'partial_rotary_factor': None,
    '_experts_implementation_internal': 'transformers 5.3 or newer'}


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A folder with weights. Its config.json has been read and checked; the rest is read when asked for."""
    folder: Path
    sizes: Sizes
    context: int     # tokens that it reads at once, at most
    state: dict      # of state.json, {} where there is none

    @property
    def has_tokenizer(self):
        return any(self.folder.glob('tokenizer.[jm]*'))     # tokenizer.json or tokenizer.model

    @functools.cache
    def tokenizer(self):
        tokenizer = load_tokenizer(str(self.folder))
        if tokenizer.largest >= self.sizes.vocab_size:  # only special tokens may lack a row: they get one
            raise ValueError(f'{self.folder}: its tokenizer has tokens up to {tokenizer.largest}, its '
                             f'config.json vocab_size {self.sizes.vocab_size}: is it another model\'s?')
        return tokenizer

    @property
    def new_ids(self):
        """Ids of tokens that the tokenizer lacked until we opened it: the mask's, or none."""
        if self.has_tokenizer and self.tokenizer().mask_is_new:
            return (self.tokenizer().ids['mask'],)
        return ()

    def digest(self):
        return digest_of_weights(self.folder)

    def model(self, device='cpu', dtype=torch.float32, head=True):
        """The Model, with a row for an added mask token. With head=False only its Transformer, for which the
        file need not have an output head."""
        sizes = self.sizes
        if self.has_tokenizer:
            sizes = replace(sizes, vocab_size=max(sizes.vocab_size, self.tokenizer().vocab_size))
        with torch.device('meta'):
            model = Model(sizes).to(dtype)
        if not head:
            model.lm_head = None
        shapes = {name: p.shape for name, p in model.named_parameters()}
        weights = {
            name: tensor.to(device, dtype, copy=True)
            for name, tensor in read_weights(self.folder, shapes, self.new_ids)}
        model.load_state_dict(weights, assign=True)
        return model if head else model.model


def open_checkpoint(name, weights=True):
    """Open a folder, a run's newest checkpoint or a hub id. weights=False leaves the weights to
    `fetch_weights`."""
    folder = folder_of(name)
    state = read_state(folder, but=(WEIGHTS, MOMENTS))
    sizes, context = read_config(folder)
    if weights:
        fetch_weights(name, folder)
    return Checkpoint(folder, sizes, context, state)


def fetch_weights(name, folder):
    """Download the weights of a hub id into its folder, or compare those of a run with the sha256 in
    state.json."""
    if not is_hub_id(name):
        read_state(folder, but=(MOMENTS,))
        return
    paths = weight_files(folder)
    # The folder is named after its commit, so that all files are of one.
    download(name, [path.name for path in paths], commit=folder.name)
    for path in paths:
        if not path.exists():
            raise ValueError(f'{name}: has no {path.name} on the hub; pickles (.bin) are not read: '
                             f'{conversion(name)}')


def folder_of(name):
    """Return the folder that a name means; that of a hub id is downloaded, without the weights."""
    return download(name) if is_hub_id(name) else newest_checkpoint(name)


def source_of(name, folder):
    """Say whose weights are in a folder: owner/model@commit where `name` is a hub id, as its folder is one of
    a cache in somebody's home; else the folder."""
    if not is_hub_id(name):
        return str(folder)
    repository, _, _ = name.partition('@')
    return f'{repository}@{folder.name:.8}'


def newest_checkpoint(folder):
    """The folder itself if it holds weights, else the last of a run's checkpoints."""
    newest = Path(folder, str(max(saved_steps(folder), default='')))
    for candidate in (Path(folder), newest):
        if (candidate / WEIGHTS).is_file() or (candidate / INDEX).is_file():
            return candidate
    if any(Path(folder).glob('pytorch_model*.bin')):
        raise ValueError(f'{folder}: has no model.safetensors; pickles (.bin) can run any code and are not '
                         f'opened: {conversion(folder)}')
    if (Path(folder) / 'log.jsonl').exists():
        raise ValueError(f'{folder}: this run has no checkpoint yet')
    raise ValueError(f'{newest}: no checkpoint there (no model.safetensors); give its folder, its run\'s or '
                     'a hub id, owner/model; pickles (.bin, .pt) can run any code and are not opened')


def run_of_checkpoint(folder):
    """The run's folder of a checkpoint, or else the folder or hub id itself. Its name is right even for `.`,
    and for acme/mini@refs/pr/7, whose revision is not a folder's path."""
    if '@' in str(folder) and is_hub_id(folder):
        owner, name = str(folder).split('/', 1)
        return Path(owner, name.replace('/', '-'))
    folder = Path(os.path.abspath(folder))
    return folder.parent if folder.name.isdigit() else folder


def read_state(folder, but=(), advice='if that was meant, remove state.json: then it is a folder of weights'):
    """Read state.json of one of our checkpoints, {} if it has none. ValueError if a file, except those in
    `but`, is not the one that was written with it."""
    state = saved_state(folder, advice)
    digests = {name: digest for name, digest in state.get('sha256', {}).items() if name not in but}
    for name in changed_files(folder, digests):
        raise ValueError(f'{folder / name}: missing or changed since it was written; {advice}')
    return state


def read_config(folder):
    """(Sizes, context) from config.json. ValueError for anything that model.py cannot compute."""
    path = folder / 'config.json'
    config = read_json(path, fields=CONFIG)
    with blame(path, ValueError):
        family = config.get('model_type')
        if family not in FAMILIES:
            raise ValueError(f'model_type is {family!r:.80}; supported are {", ".join(FAMILIES)}. Encoders '
                             'such as BERT are fine-tuned by finetune.py, and continued on texts by '
                             'examples/continue_encoder.py; fill_mask.py fills their masks')
        config |= read_rope(config)
        check_supported(config)
        values = {'num_key_value_heads': config.get('num_attention_heads'), 'tie_word_embeddings': False,
                  'attention_bias': False, 'head_dim': 0}
        values |= FAMILIES[family]
        values |= {name: config[name] for name in NAMES if config.get(name) is not None}
        for name in NAMES:
            if name not in values:
                raise ValueError(f'has no {name}')
        if config['rope_type'] == 'llama3':
            values['rope_scaling'] = tuple(config.get(name) for name in LLAMA3_SCALING)
        check_value(CONTEXT, int, config.get(CONTEXT), 1, 10 ** 9)
        sizes = Sizes(**values)
        if sizes.head_dim * sizes.num_attention_heads == sizes.hidden_size:
            sizes = replace(sizes, head_dim=0)  # which says the same
    return sizes, config[CONTEXT]


class Prediction(NamedTuple):
    """How a model predicts a token."""
    objective: str | None   # of the last step of its training; None if the model does not say one
    causal: bool            # whether it sees only what stands before it
    offset: int             # how many positions before the token; 0: at its own, which is masked


def read_prediction(folder):
    """Return the Prediction of a checkpoint folder, from its config.json.

    Checkpoints older than `offset` say only their objective's name. Models of other people say none:
    decoders predict the next token, and encoders the masked one."""
    path = folder / 'config.json'
    config = read_json(path, fields=CONFIG)
    objective = config.get('objective')
    if objective is None:
        causal = config['model_type'] not in ENCODERS and config.get('is_causal') is not False
        return Prediction(None, causal, int(causal))
    if 'offset' not in config and objective in OBJECTIVES:
        known = OBJECTIVES[objective]
        return Prediction(objective, known.causal, known.offset)
    with blame(path, ValueError):
        if not {'causal', 'offset'} <= config.keys():
            raise ValueError(f'objective {objective!r:.80} is none of {", ".join(OBJECTIVES)}; write '
                             '"causal" and "offset" beside it, as its Objective in data.py has them')
        check_value('causal', bool, config['causal'])
        check_value('offset', int, config['offset'], 0)
    return Prediction(objective, config['causal'], config['offset'])


def read_rope(config):
    """{name: value} of RoPE, which is written in up to three places: in rope_scaling and next to it
    (transformers 4), and in rope_parameters (transformers 5). ValueError if they contradict each other."""
    names = ('rope_theta', 'partial_rotary_factor', 'original_max_position_embeddings')
    beside = {name: config.get(name) for name in names}
    rope = {}
    for stated in (beside, config.get('rope_scaling'), config.get('rope_parameters')):
        for name, value in (stated or {}).items():
            if isinstance(value, dict):
                raise ValueError(f'rope_parameters must be the same for all layers, not {stated!r:.80}')
            if name == 'type':      # an old name
                name = 'rope_type'
            if value is not None and rope.setdefault(name, value) != value:
                raise ValueError(f'{name} = {rope[name]!r:.80} and {value!r:.80} contradict each other, in '
                                 'rope_scaling, in rope_parameters or next to them; leave the wrong one out')
    return {'rope_type': 'default'} | rope


def check_supported(config):
    """ValueError if the architecture differs from ours, or if a layer sees only a window of its text: all of
    Mistral's do with sliding_window, and some of Qwen's with use_sliding_window and no layer_types."""
    for name, supported in SUPPORTED.items():
        value = config.get(name)
        if value not in supported:
            only = ' or '.join(map(repr, supported))
            raise ValueError(f'{name} = {value!r:.80} is not supported, only {only}')
    if config['model_type'] in ENCODERS and config.get('is_causal'):
        raise ValueError('is_causal is true, but this family is of encoders, and transformers would read '
                         'only texts without padding causally; leave it out')
    layers = config.get('layer_types') or []
    if set(layers) - {'full_attention'}:
        raise ValueError(f'layer_types {layers!r:.80} are not supported, only full_attention')
    window = config.get('sliding_window', 4_096)
    is_used = config['model_type'] == 'mistral' or config.get('use_sliding_window') and not layers
    if is_used and window is not None:
        raise ValueError(f'sliding_window {window!r:.80} is not supported, only null')


def weight_files(folder):
    """model.safetensors, or the shards next to it that an index names."""
    index = folder / INDEX
    if (folder / WEIGHTS).is_file() or not index.is_file():
        return [folder / WEIGHTS]
    places = read_json(index, fields={'weight_map': {'': str}}).get('weight_map')
    if not places:
        raise ValueError(f'{index}: has no weight_map')
    names = {*places.values()}
    return [folder / plain_name(name, index) for name in sorted(names)]


def digest_of_weights(folder):
    """sha256 of the weights' file; of shards, the sha256 of theirs one after the other."""
    digests = [sha256(path) for path in weight_files(folder)]
    if len(digests) == 1:
        return digests[0]
    return sha256_of_text(''.join(digests))


def read_tensors(folder):
    """Read {name: tensor} from all weight files of a folder, by the names that they have in a Model."""
    weights = {}
    for path in weight_files(folder):
        with blame(f'{path}: missing, damaged or cut short', FileNotFoundError, SafetensorError):
            tensors = load_file(path)
        is_base = not any(name.startswith('model.') for name in tensors)    # AutoModel's, without a head
        for name, tensor in tensors.items():
            if is_base and name != HEAD:
                name = f'model.{name}'
            if not name.endswith('rotary_emb.inv_freq'):    # in old Llamas; it follows from the sizes
                weights[name] = tensor
    return weights


def read_weights(folder, shapes, new_ids):
    """Read the parameters {name: shape} of a Model from a checkpoint folder. Returns (name, tensor) pairs.

    new_ids  of tokens that need new rows in the embedding and the head; so do those beyond the file's rows"""
    sizes, _ = read_config(folder)
    weights = read_tensors(folder)
    for name in shapes:
        if name.endswith('o_proj.bias') and name not in weights:    # Qwen2 has none
            weights[name] = torch.zeros(shapes[name])
    unread_head = None
    if HEAD not in shapes:
        unread_head = weights.pop(HEAD, None)

    tables = {EMBEDDING, HEAD} & shapes.keys()
    in_file = shapes | dict.fromkeys(tables, (sizes.vocab_size, sizes.hidden_size))
    check_weights(folder, weights, in_file)
    if sizes.tie_word_embeddings and unread_head is not None:
        if not torch.equal(unread_head.float(), weights[EMBEDDING].float()):
            raise ValueError(f'{folder}: tie_word_embeddings is True, but lm_head.weight differs')

    for name in tables:
        vocab_size, _ = shapes[name]
        weights[name] = with_new_rows(weights[name], vocab_size, new_ids)
    return weights.items()


def check_weights(folder, weights, shapes):
    """ValueError unless {name: tensor} has these names and shapes, and finite numbers that are not
    quantised."""
    differing = shapes.keys() ^ weights.keys()
    if differing == {HEAD}:
        raise ValueError(f'{folder}: has no output head (lm_head.weight): to pretrain it, take --new_head')
    if differing:
        name = min(differing)
        which = 'missing' if name in shapes else 'unexpected'
        raise ValueError(f'{folder}: {which} weight {name}: of another model, a classifier, or quantised')
    for name, tensor in weights.items():
        shape = shapes[name]
        if tensor.shape != shape:
            raise ValueError(f'{folder}: {name} has shape {*tensor.shape,}, and should have {*shape,}')
        if tensor.element_size() == 1:
            raise ValueError(f'{folder}: {name} is quantised to {tensor.dtype}, which is not supported')
        if not tensor.isfinite().all():
            raise ValueError(f'{folder}: {name} holds values that are not finite')


def with_new_rows(table, vocab_size, new_ids):
    """Return an embedding or a head, (tokens, hidden size), with vocab_size rows. Rows that are added, and
    those of new_ids, are the mean of the rows before the first of them. Rows after it may be padding that was
    never trained."""
    num_tokens = len(table)
    new_rows = [*new_ids, *range(num_tokens, vocab_size)]
    if not new_rows:
        return table
    mean = table[:min(new_rows)].double().mean(0).to(table.dtype)
    table = torch.cat([table, mean.expand(vocab_size - num_tokens, -1)])
    table[new_rows] = mean
    return table


def write_folder(folder, sizes, context, ids, tensors, **added):
    """Write config.json, with what is `added`, and model.safetensors of {name: tensor} into a folder."""
    rope = {'rope_type': 'default'}
    if sizes.rope_scaling:
        rope = {'rope_type': 'llama3'} | dict(zip(LLAMA3_SCALING, sizes.rope_scaling))
    config = {name: getattr(sizes, name) for name in NAMES}
    for role, i in ids.items():
        config[f'{role}_token_id'] = i
    config |= QWEN3 if sizes.qk_norm else EUROBERT
    if sizes.qk_norm:
        # text-embeddings-inference would run a decoder, too: it demands this, and transformers 5 reads
        # rope_parameters
        del config['rope_theta']
    config |= {
        CONTEXT: context,
        'head_dim': sizes.head_size,
        'hidden_act': HIDDEN_ACT,
        'initializer_range': 0.02,
        'attention_dropout': 0.0,
        'dtype': 'float32',
        'torch_dtype': 'float32',
        # transformers 4 reads this and rope_theta, 5 the next line
        'rope_scaling': rope if sizes.rope_scaling else None,
        'rope_parameters': rope | {'rope_theta': sizes.rope_theta}}
    write_json(Path(folder, 'config.json'), config | added)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # not by save_file: only its owner may read what it writes, and its error for a full disk is its own
    Path(folder, WEIGHTS).write_bytes(to_bytes(tensors, {'format': 'pt'}))


def write_pooling(folder, width, max_length, prompts, pooling='mean', after=('Normalize',)):
    """Make a transformer's folder a SentenceTransformer's. Vectors are compared by cosine.

    pooling  of states: 'mean' or 'cls'
    after    the modules that follow it; what they need is in their own folders, such as 2_Dense"""
    modules = []
    for k, name in enumerate(['Transformer', 'Pooling', *after]):
        path = f'{k}_{name}' if k else ''
        modules.append({'idx': k, 'name': str(k), 'path': path,
                        'type': f'sentence_transformers.models.{name}'})
    files = {
        'modules.json': modules,
        '1_Pooling/config.json': {
            'word_embedding_dimension': width,
            'pooling_mode_mean_tokens': pooling == 'mean',
            'pooling_mode_cls_token': pooling == 'cls'},    # text-embeddings-inference demands both
        'sentence_bert_config.json': {'max_seq_length': max_length, 'do_lower_case': False},
        'config_sentence_transformers.json': {'prompts': prompts, 'similarity_fn_name': 'cosine'}}
    for name, content in files.items():
        write_json(folder / name, content)

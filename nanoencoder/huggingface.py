"""Hugging Face's checkpoint folders, in and out: config.json, safetensors; on disk or the hub.

    checkpoint = open_checkpoint('out/mlm-1800-s6')    # a run, one of its checkpoints, or a hub id
    model, tokenizer = checkpoint.model(), checkpoint.tokenizer()

In: EuroBERT, and decoders of Llama's architecture (Llama 3, SmolLM, Mistral, Qwen2, Qwen3), also in shards.
Out: EuroBERT, built into transformers from 5.3 on; with norms of q and k, a Qwen3 without its causal mask.
What we cannot represent exactly raises an error that names it. No pickle is opened and no code is run."""
import functools
import hashlib
import os
import re
from dataclasses import dataclass, fields, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save as to_bytes

from model import ACTIVATION, Model, Sizes
from nanoencoder.files import (blame, changed_files, read_json, saved_state, saved_steps, sha256,
                               write_json)
from nanoencoder.settings import check_value
from nanoencoder.tokenizer import download, is_hub_id, load_tokenizer

WEIGHTS, MOMENTS, INDEX = 'model.safetensors', 'optimizer.safetensors', 'model.safetensors.index.json'
EMBEDDING, HEAD = 'model.embed_tokens.weight', 'lm_head.weight'  # (tokens, hidden size)
FAMILIES = {  # model_type (sl_model: the paper's own): what it implies where config.json says nothing
    'eurobert': {}, 'llama': {'rope_theta': 10_000}, 'mistral': {'rope_theta': 10_000},
    'qwen2': {'attention_bias': True}, 'qwen3': {'head_dim': 128, 'qk_norm': True}, 'sl_model': {}}
# transformers' name of the activation in model.py; of a fork's own one a name that makes transformers refuse
HIDDEN_ACT = {F.silu: 'silu', F.gelu: 'gelu', F.relu: 'relu'}.get(ACTIVATION, 'as in model.py')
SUPPORTED = {'rope_type': ('default', 'llama3'), 'hidden_act': (HIDDEN_ACT,), 'mlp_bias': (False,),
             'partial_rotary_factor': (1,), 'quantization_config': ()}
NAMES = [field.name for field in fields(Sizes) if field.name not in ('qk_norm', 'rope_scaling')]
CONTEXT = 'max_position_embeddings'
IDS = {role: f'{role}_token_id' for role in ('bos', 'eos', 'pad', 'mask')}
LLAMA3_SCALING = ('factor', 'low_freq_factor', 'high_freq_factor', 'original_max_position_embeddings')
EUROBERT = {'architectures': ['EuroBertForMaskedLM'], 'model_type': 'eurobert', 'mlp_bias': False,
            'classifier_pooling': 'mean'}
QWEN3 = {'architectures': ['Qwen3ForCausalLM'], 'model_type': 'qwen3', 'use_sliding_window': False,
         'is_causal': False, 'partial_rotary_factor': None,  # which stops transformers 4, and the last 5.0 to
         '_experts_implementation_internal': 'transformers 5.3 or newer'}  # 5.2: they may heed no is_causal


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A folder with weights. Its config.json has been read and checked, the rest is read when asked for."""
    name: str        # as it was asked for: a folder, a run's folder or a hub id
    folder: Path
    sizes: Sizes
    context: int     # tokens it reads at once, at most
    state: dict      # of state.json, {} where there is none

    @property
    def has_tokenizer(self):
        return any((self.folder / name).exists() for name in ('tokenizer.json', 'tokenizer.model'))

    @functools.cache
    def tokenizer(self):
        tokenizer = load_tokenizer(str(self.folder))
        if tokenizer.largest >= self.sizes.vocab_size:  # special tokens get a row
            raise ValueError(f'{self.folder}: its tokenizer has tokens up to {tokenizer.largest}, its '
                             f'config.json vocab_size {self.sizes.vocab_size}: is it another model\'s?')
        return tokenizer

    @property
    def new_ids(self):  # which its tokenizer was given when it was opened: the mask's, or none
        return (self.tokenizer().ids['mask'],) if self.has_tokenizer and self.tokenizer().mask_is_new else ()

    def fetch(self):
        """Have the weights: a hub id's are downloaded, a run's compared with the sha256 in its state.json."""
        paths = weight_files(self.folder)
        if is_hub_id(self.name):  # revision is a commit: all files are of one
            download(self.name, [path.name for path in paths], revision=self.folder.name)
            if missing := [path.name for path in paths if not path.exists()]:
                raise ValueError(f'{self.name}: has no {missing[0]} on the hub; pickles (.bin) are not read')
        else:
            read_state(self.folder, but=(MOMENTS,))

    def digest(self):
        """sha256 of the weights: the file's, which has been compared, or that of its shards' sha256."""
        recorded = self.state.get('sha256', {})
        digests = [recorded.get(path.name) or sha256(path) for path in weight_files(self.folder)]
        return digests[0] if len(digests) == 1 else hashlib.sha256(''.join(digests).encode()).hexdigest()

    def model(self, device='cpu', dtype=torch.float32, head=True):
        """The Model, with a row for an added mask token. head=False: its Transformer, which needs no head."""
        vocab_size = max(self.sizes.vocab_size, self.tokenizer().vocab_size if self.has_tokenizer else 0)
        with torch.device('meta'):
            model = Model(replace(self.sizes, vocab_size=vocab_size)).to(dtype)
        if not head:
            model.lm_head = None
        shapes = {name: p.shape for name, p in model.named_parameters()}
        model.load_state_dict({name: tensor.to(device, dtype, copy=True) for name, tensor
                               in read_weights(self.folder, shapes, self.new_ids)}, assign=True)
        return model if head else model.model


def open_checkpoint(name, weights=True):
    """The Checkpoint of a folder, a run (its newest) or a hub id; weights=False leaves them to `fetch`."""
    folder = download(str(name)) if is_hub_id(name) else newest_checkpoint(name)
    state = read_state(folder, but=(WEIGHTS, MOMENTS))
    checkpoint = Checkpoint(str(name), folder, *read_config(folder), state)
    if weights:
        checkpoint.fetch()
    return checkpoint


def newest_checkpoint(folder):
    """The folder itself if it holds weights, else the last of a run's checkpoints."""
    newest = Path(folder, str(max(saved_steps(folder), default='')))
    for candidate in (Path(folder), newest):
        if (candidate / WEIGHTS).is_file() or (candidate / INDEX).is_file():
            return candidate
    raise ValueError(f'{newest}: no checkpoint there (no model.safetensors); give its folder, its run\'s or '
                     'a hub id, owner/model; pickles (.bin, .pt) can run any code and are not opened')


def run_of(folder):
    """The folder of a checkpoint's run, or the folder itself, with its name even where `.` is given."""
    folder = Path(os.path.abspath(folder))
    return folder.parent if folder.name.isdigit() else folder


def read_state(folder, but=(), advice='if that was meant, remove state.json: then it is a folder of weights'):
    """state.json of one of our checkpoints, {} if it has none, when all files `but` some are as it says."""
    state = saved_state(folder, advice)
    digests = {name: digest for name, digest in state.get('sha256', {}).items() if name not in but}
    for name in changed_files(folder / 'state.json', digests):
        raise ValueError(f'{folder / name}: missing or changed since it was written; {advice}')
    return state


def read_config(folder):
    """(Sizes, context) from config.json. ValueError for what model.py cannot hold."""
    config = read_json(path := Path(folder) / 'config.json')
    with blame(path, ValueError):
        family = config.get('model_type')
        if family not in FAMILIES:
            raise ValueError(f'model_type is {family!r}; supported are {", ".join(FAMILIES)}')
        config |= read_rotation(config)
        check_supported(config)
        values = {'num_key_value_heads': config.get('num_attention_heads'), 'tie_word_embeddings': False,
                  'attention_bias': False, 'head_dim': 0} | FAMILIES[family]
        values |= {name: config[name] for name in NAMES if config.get(name) is not None}
        if missing := [name for name in NAMES if name not in values]:
            raise ValueError(f'has no {missing[0]}')
        if config['rope_type'] == 'llama3':
            values['rope_scaling'] = tuple(config.get(name) for name in LLAMA3_SCALING)
        check_value(CONTEXT, int, config.get(CONTEXT), 1, 10 ** 9)
        sizes = Sizes(**values)
        if sizes.head_dim * sizes.num_attention_heads == sizes.hidden_size:
            sizes = replace(sizes, head_dim=0)  # which says the same
    return sizes, config[CONTEXT]


def read_rotation(config):
    """{name: value} of the rotation. transformers 4 reads it in rope_scaling and beside it, 5 in rope_scaling
    or else rope_parameters, and what is missing there beside them: ValueError unless all give the same."""
    names, rotation = ('rope_theta', 'partial_rotary_factor', 'original_max_position_embeddings'), {}
    for stated in filter(None, (config.get('rope_scaling'), config.get('rope_parameters'))):
        if not isinstance(stated, dict) or any(isinstance(value, dict) for value in stated.values()):
            raise ValueError(f'rope_parameters must be one rotation for all layers, not {stated!r}')
        stated = {name: value for name, value in stated.items() if value is not None}
        beside = {name: config[name] for name in names if config.get(name) is not None}
        beside |= {'rope_type': stated.get('type') or stated.get('rope_type') or 'default'}
        if beside | stated != stated | beside or rotation not in ({}, beside | stated):
            raise ValueError('rope_scaling, rope_parameters and what is beside them contradict each other: '
                             f'{rotation or beside} and {stated}; leave the wrong one out')
        rotation = beside | stated
    return {'rope_type': 'default'} | rotation


def check_supported(config):
    """ValueError if the architecture differs from ours, or a layer sees only a window of its text, as all of
    Mistral's with sliding_window, and some of Qwen's with use_sliding_window and no layer_types."""
    for name, supported in SUPPORTED.items():
        if config.get(name) is not None and config[name] not in supported:
            only = ' or '.join(map(repr, supported)) or 'null'
            raise ValueError(f'{name} = {config[name]!r} is not supported, only {only}')
    if config['model_type'] in ('eurobert', 'sl_model') and config.get('is_causal'):
        raise ValueError('is_causal = True is not supported for an encoder, only false')
    layers, window = config.get('layer_types') or [], config.get('sliding_window', 4_096)
    if {*layers} - {'full_attention'}:
        raise ValueError(f'layer_types {layers} are not supported, only full_attention')
    used = config['model_type'] == 'mistral' or config.get('use_sliding_window') and not layers
    if used and window is not None:
        raise ValueError(f'sliding_window {window!r} is not supported, only null')


def weight_files(folder):
    """model.safetensors, or the shards that an index puts tensors into; they lie beside it."""
    if (folder / WEIGHTS).is_file() or not (folder / INDEX).is_file():
        return [folder / WEIGHTS]
    names = sorted({*read_json(folder / INDEX)['weight_map'].values()})
    if others := [name for name in names if not re.fullmatch(r'[\w.-]+\.safetensors', name)]:
        raise ValueError(f'{folder / INDEX}: {others[0]!a} must be a .safetensors file beside it')
    return [folder / name for name in names]


def read_weights(folder, shapes, new_ids=()):
    """(name, tensor) pairs for the parameters {name: shape} of a Model, from a checkpoint folder.
    A missing o_proj.bias is zeros (Qwen2 has none). Rows of new_ids, and rows that `shapes` has more, are the
    mean of those before the first of them: a padded vocabulary has untrained ones behind it."""
    folder, sizes, weights = Path(folder), read_config(folder)[0], {}
    for path in weight_files(folder):
        with blame(f'{path}: missing, damaged or cut short', FileNotFoundError, SafetensorError):
            tensors = load_file(path)
        is_base = not any(name.startswith('model.') for name in tensors)
        for name, tensor in tensors.items():
            name = 'model.' * (is_base and not name.startswith('lm_head.')) + name
            if not name.endswith('rotary_emb.inv_freq'):  # in old Llamas; it follows from the sizes
                weights[name] = tensor
    spare_head = weights.pop(HEAD, None) if HEAD not in shapes else None
    weights = {name: torch.zeros(shapes[name]) for name in shapes if name.endswith('o_proj.bias')} | weights
    if shapes.keys() - weights.keys() == {HEAD}:
        raise ValueError(f'{folder}: has no output head (lm_head.weight): to pretrain it, take --new_head')
    tables = [name for name in (EMBEDDING, HEAD) if name in shapes]
    if names := shapes.keys() ^ weights.keys():
        which = 'missing' if (name := min(names)) in shapes else 'unexpected'
        raise ValueError(f'{folder}: {which} weight {name}: of another model, or a classifier')
    for name, tensor in weights.items():
        shape = (sizes.vocab_size, sizes.hidden_size) if name in tables else shapes[name]
        if tensor.shape != shape:
            raise ValueError(f'{folder}: {name} has shape {*tensor.shape,}, and should have {*shape,}')
        if not tensor.isfinite().all():
            raise ValueError(f'{folder}: {name} holds values that are not finite')
    if spare_head is not None and sizes.tie_word_embeddings and not torch.equal(
            spare_head.float(), weights[EMBEDDING].float()):
        raise ValueError(f'{folder}: tie_word_embeddings is True, but lm_head.weight differs')
    for name in tables:
        if new := [*new_ids, *range(sizes.vocab_size, shapes[name][0])]:
            mean = weights[name][:min(new)].double().mean(0).to(weights[name].dtype)
            weights[name] = torch.cat([weights[name], mean.expand(shapes[name][0] - sizes.vocab_size, -1)])
            weights[name][new] = mean
    return weights.items()


def save(folder, sizes, context, ids, tensors, **more):
    """Write config.json, with `more` in it, and model.safetensors of {name: tensor} into a folder."""
    scaling = sizes.rope_scaling and {'rope_type': 'llama3'} | dict(zip(LLAMA3_SCALING, sizes.rope_scaling))
    config = {name: getattr(sizes, name) for name in NAMES} | {IDS[role]: i for role, i in ids.items()}
    config |= (QWEN3 if sizes.qk_norm else EUROBERT) | {
        CONTEXT: context, 'head_dim': sizes.head_size, 'hidden_act': HIDDEN_ACT, 'initializer_range': 0.02,
        'attention_dropout': 0.0, 'dtype': 'float32', 'torch_dtype': 'float32',
        'rope_scaling': scaling or None,  # transformers 4 reads this and rope_theta, 5 the next line
        'rope_parameters': (scaling or {'rope_type': 'default'}) | {'rope_theta': sizes.rope_theta}}
    write_json(Path(folder, 'config.json'), config | more)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # save_file has a file of its owner alone, and an error of its own for a full disk
    Path(folder, WEIGHTS).write_bytes(to_bytes(tensors, {'format': 'pt'}))


def write_pooling(folder, width, max_length, prompts):
    """Make a transformer's folder a SentenceTransformer's: mean pooling, vectors of length 1, cosine."""
    paths = {'Transformer': '', 'Pooling': '1_Pooling', 'Normalize': '2_Normalize'}
    files = {
        'modules.json': [{'idx': k, 'name': str(k), 'path': paths[name],
                          'type': f'sentence_transformers.models.{name}'} for k, name in enumerate(paths)],
        '1_Pooling/config.json': {'word_embedding_dimension': width, 'pooling_mode_mean_tokens': True,
                                  'pooling_mode_cls_token': False},  # text-embeddings-inference demands it
        'sentence_bert_config.json': {'max_seq_length': max_length, 'do_lower_case': False},
        'config_sentence_transformers.json': {'prompts': prompts, 'similarity_fn_name': 'cosine'}}
    for name, content in files.items():
        write_json(Path(folder, name), content)

"""Hugging Face's checkpoint folders, in and out: config.json, safetensors, model cards; on disk or the hub.

    checkpoint = open_checkpoint('out/mlm-1800-s0')    # a run, one of its checkpoints, or a hub id
    model, tokenizer = checkpoint.model(), checkpoint.tokenizer()

In: EuroBERT, and decoders of Llama's architecture (Llama 3, SmolLM, Mistral, Qwen2, Qwen3), also in shards.
Out: EuroBERT, built into transformers from 5.3 on; with norms of q and k, a Qwen3 without its causal mask.
Anything we cannot represent exactly raises an error that names it. No pickle is opened and no code is run.
"""
import errno
import functools
import hashlib
import itertools
import json
import os
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from model import Model, Sizes
from nanoencoder.durable import expect, read_json, sha256, write_json
from nanoencoder.settings import check_value
from nanoencoder.tokenizer import load_tokenizer

FAMILIES = {  # model_type: what it implies where config.json does not say otherwise
    'eurobert': {}, 'llama': {'rope_theta': 10_000}, 'mistral': {'rope_theta': 10_000},
    'qwen2': {'attention_bias': True},
    'qwen3': {'head_dim': 128, 'qk_norm': True}, 'sl_model': {}}  # the last is the paper's own
SUPPORTED = {'rope_type': ('default', 'llama3'), 'hidden_act': ('silu',), 'mlp_bias': (False,),
             'partial_rotary_factor': (1,), 'quantization_config': (None,)}
IDS = {role: f'{role}_token_id' for role in ('bos', 'eos', 'pad', 'mask')}
NAMES = ('vocab_size', 'hidden_size', 'intermediate_size', 'num_hidden_layers', 'num_attention_heads',
         'num_key_value_heads', 'max_position_embeddings', 'rope_theta', 'rms_norm_eps',
         'tie_word_embeddings', *IDS.values(), 'head_dim', 'attention_bias')  # in config.json's order
EUROBERT = {'architectures': ['EuroBertForMaskedLM'], 'model_type': 'eurobert', 'mlp_bias': False,
            'classifier_pooling': 'mean'}
QWEN3 = {'architectures': ['Qwen3ForCausalLM'], 'model_type': 'qwen3', 'is_causal': False,
         'use_sliding_window': False}
LLAMA3_SCALING = ('factor', 'low_freq_factor', 'high_freq_factor', 'original_max_position_embeddings')
INDEX = 'model.safetensors.index.json'
EMBEDDING, HEAD = 'model.embed_tokens.weight', 'lm_head.weight'  # (tokens, hidden size)
STATE = {'step': int, 'seconds': float, 'fixed': dict, 'settings': dict, 'sha256': dict, 'base_model': str,
         'origin': str, 'logged_from': int}  # state.json's form
LARGE = ('model.safetensors', 'optimizer.safetensors')  # files that take time to compare


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A folder with weights. Its config.json has been read and checked, the rest is read when asked for."""
    name: str        # as it was asked for: a folder, a run's folder or a hub id
    folder: Path
    sizes: Sizes
    context: int     # tokens it reads at once, at most
    ids: dict        # {'bos', 'eos', 'pad', 'mask': int}, 0 where config.json has none
    state: dict      # of state.json, {} where there is none

    @property
    def has_tokenizer(self):
        return any((self.folder / name).exists() for name in ('tokenizer.json', 'tokenizer.model'))

    @functools.cache
    def tokenizer(self):
        tokenizer = load_tokenizer(str(self.folder))
        if (last := max(tokenizer.ranks.values())) >= self.sizes.vocab_size:  # special ones get a row
            raise ValueError(f'{self.folder}: its tokenizer has tokens up to {last}, but its config.json has '
                             f'vocab_size {self.sizes.vocab_size}: is it another model\'s tokenizer?')
        return tokenizer

    @property
    def new_ids(self):
        """The ids that its tokenizer was given when it was opened: the mask's, or none."""
        tokenizer = self.tokenizer() if self.has_tokenizer else None
        return (tokenizer.ids['mask'],) if tokenizer and tokenizer.mask_is_new else ()

    def fetch(self, compare=True):
        """Have the weights: a hub id's are downloaded, those of a run are compared with its state.json."""
        if is_hub_id(self.name):
            paths = weight_files(self.folder)  # revision is a commit: all files are of one
            download(self.name, [path.name for path in paths], revision=self.folder.name)
            if missing := [path.name for path in paths if not path.exists()]:
                raise ValueError(f'{self.name}: has no {missing[0]} on the hub; pickles (.bin) are not read')
        elif compare:
            read_state(self.folder, but=('optimizer.safetensors',))

    def digest(self):
        """sha256 of the weights: the file's, which has been compared, or that of its shards' sha256."""
        known = self.state.get('sha256', {})
        digests = [known.get(path.name) or sha256(path) for path in weight_files(self.folder)]
        return digests[0] if len(digests) == 1 else hashlib.sha256(''.join(digests).encode()).hexdigest()

    def model(self, device='cpu', dtype=torch.float32, head=True):
        """The Model. head=False gives its Transformer alone, for which the checkpoint needs no output head.

        A mask token that the tokenizer had to add gets a row, as in `read_weights`.
        """
        sizes = self.sizes
        if self.has_tokenizer:
            sizes = replace(sizes, vocab_size=max(sizes.vocab_size, self.tokenizer().vocab_size))
        with torch.device('meta'):
            model = Model(sizes).to(dtype)
        if not head:
            model.lm_head = None
        shapes = {name: p.shape for name, p in model.named_parameters()}
        weights = read_weights(self.folder, shapes, self.new_ids)
        model.to_empty(device=device)
        with torch.no_grad():
            for name, tensor in weights:
                model.get_parameter(name).copy_(tensor)
        return model if head else model.model

    def base_model(self):
        """The hub id that the weights come from in the end, '' if none is known."""
        return self.name if is_hub_id(self.name) else self.state.get('base_model', '')

    def described(self):
        """In words that also hold on other machines: the hub id, or the run and its step."""
        run, step = self.folder.parent.name, self.folder.name
        words = f'{run}, step {int(step):,}' if step.isdigit() else step
        return self.name if is_hub_id(self.name) else words


def open_checkpoint(name, weights=True):
    """The Checkpoint of a folder, of a run's newest checkpoint, or of a hub id, which is downloaded.

    weights=False is content with config.json and the tokenizer, so that they can be looked at first; `fetch`
    gets the weights. ValueError where a file is not what the state.json beside it says.
    """
    folder = download(str(name)) if is_hub_id(name) else newest_checkpoint(name)
    state = read_state(folder, but=('optimizer.safetensors',) if weights else LARGE)
    checkpoint = Checkpoint(str(name), folder, *read_config(folder), state)
    if weights:
        checkpoint.fetch(compare=False)
    return checkpoint


# --------------------------------------------------------------------------------------- folders and the hub

def is_hub_id(name):
    """Whether a name is owner/model on the hub: not out/absent, a missing folder in one that is there."""
    return re.fullmatch(r'[\w.-]+/[\w.-]+', str(name)) is not None and not Path(name).parent.exists()


def newest_checkpoint(folder):
    """The folder itself if it holds weights, else the last of a run's checkpoints, which must be whole."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f'{folder}: no checkpoint there; give its folder, a run\'s or a hub id, owner/model')
    run, folder = folder, folder / str(max(saved_steps(folder), default=''))
    for candidate in (run, folder):
        if (candidate / 'model.safetensors').is_file() or (candidate / INDEX).is_file():
            return candidate
    raise ValueError(f'{folder}: no checkpoint there (no model.safetensors); pickles (.bin, .pt) can run any '
                     'code and are not opened')


def run_of(folder):
    """The folder of a checkpoint's run, or the folder itself, with its name even where `.` is given."""
    folder = Path(os.path.abspath(folder))
    return folder.parent if folder.name.isdigit() else folder


def saved_steps(run):
    """The steps that a run's folder has checkpoints of, rising."""
    names = [path.name for path in Path(run).glob('*') if path.is_dir()]
    return sorted(int(name) for name in names if re.fullmatch('0|[1-9][0-9]*', name))


def last_good(run):
    """In words, at the end of a message on a run that cannot go on."""
    return f'the last good checkpoint is {run / str(steps[-1]) if (steps := saved_steps(run)) else "none"}'


def download(name, files=('config.json', 'tokenizer.json', 'tokenizer_config.json', INDEX), revision=None):
    """The local copy of a commit of a hub repository, with those of these files that it has."""
    from huggingface_hub import snapshot_download
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(files)))
    except Exception as error:  # of the network: their classes differ between huggingface_hub's versions
        raise ValueError(f'{name}: no such folder, and the hub did not give it: {error}') from None


# --------------------------------------------------------------------------------------------------- reading

def digest_of(state):
    """sha256 of all that a state.json says but this digest itself."""
    said = {name: value for name, value in state.items() if name != 'digest'}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def read_state(folder, but=(), advice='if that was meant, remove state.json: it is a folder of weights then'):
    """state.json of one of our checkpoints, {} if it has none, after the files have been compared with it.

    Behind step logged_from the log has a line for each step; before it was written, logs could have gaps.

    but     names of files that are not compared, as they are not read or another process compares them
    advice  what the ValueError says to do where a file is not what was written
    """
    path = folder / 'state.json'
    if not path.exists():
        return {}
    said = read_json(path)
    if 'digest' in said and said['digest'] != digest_of(said):  # older ones have none
        raise ValueError(f'{path}: changed since it was written; {advice}')
    state = {'base_model': '', 'origin': 'unknown', 'logged_from': said.get('step')} | said
    expect(state, STATE, path)
    for name, digest in state['sha256'].items():
        if name not in but and not ((folder / name).is_file() and sha256(folder / name) == digest):
            raise ValueError(f'{folder / name}: missing, cut short or changed since it was written; {advice}')
    return state


def read_config(folder):
    """(Sizes, context, {role: token id}) from config.json. ValueError for what model.py cannot hold."""
    path = Path(folder) / 'config.json'
    config = read_json(path)
    try:
        values = config_values(config)
        if missing := [name for name in NAMES if name not in values]:
            raise ValueError(f'has no {missing[0]}')
        context = values.pop('max_position_embeddings')
        ids = {role: values.pop(name) for role, name in IDS.items()}
        sizes = Sizes(**values)
        if sizes.head_dim * sizes.num_attention_heads == sizes.hidden_size:
            sizes = replace(sizes, head_dim=0)  # which says the same
        check_windows(config, sizes.num_hidden_layers)
        check_value('max_position_embeddings', int, context, 1, 10 ** 9)
        for role, i in ids.items():
            check_value(IDS[role], int, i, 0, sizes.vocab_size - 1)
    except ValueError as error:
        raise ValueError(f'{path}: {error}') from None
    return sizes, context, ids


def read_rope(config):
    """The rotation: `rope_scaling` as transformers 4 writes it, `rope_parameters` as transformers 5 does."""
    rope = {}
    for key in ('rope_scaling', 'rope_parameters'):
        stated = config.get(key) or {}
        if not isinstance(stated, dict) or any(isinstance(value, dict) for value in stated.values()):
            raise ValueError(f'{key} must be one rotation for all layers, not {stated!r}')
        stated = {'rope_type': stated.get('type', 'default')} | stated if stated else {}
        if any(rope.get(name, value) != value for name, value in stated.items()):
            raise ValueError('rope_scaling and rope_parameters contradict each other; leave one of them out')
        rope |= stated
    return {'rope_type': 'default'} | rope


def config_values(config):
    """{name: value} of Sizes' fields, the context and the token ids; families have defaults of their own."""
    family = config.get('model_type')
    if str(family) not in FAMILIES:
        raise ValueError(f'model_type is {family!r}; supported are {", ".join(FAMILIES)}')
    rope = read_rope(config)
    for name, supported in SUPPORTED.items():
        value = rope.get(name, config.get(name))
        if value is not None and value not in supported:
            raise ValueError(f'{name} = {value!r} is not supported, only {" or ".join(map(repr, supported))}')
    values = {'num_key_value_heads': config.get('num_attention_heads'), 'tie_word_embeddings': False,
              'attention_bias': False, 'head_dim': 0} | FAMILIES[family]
    values |= {name: config[name] for name in NAMES if config.get(name) is not None}
    if 'rope_theta' in rope:
        values['rope_theta'] = rope['rope_theta']
    if rope['rope_type'] == 'llama3':
        values['rope_scaling'] = tuple(rope.get(name) for name in LLAMA3_SCALING)
    for name in IDS.values():  # decoders may name no pad or mask, or several eos
        value = config.get(name)
        value = value[0] if isinstance(value, list) and value else value
        values[name] = 0 if value in (None, [], -1) else value
    return values


def check_windows(config, num_layers):
    """ValueError if a layer sees only a window of its text.

    As in transformers, sliding_window is that of all layers of Mistral, and of Qwen's from max_window_layers
    on if use_sliding_window is set, unless layer_types says which layers have it.
    """
    layers, window = config.get('layer_types') or [], config.get('sliding_window', 4_096)
    if not isinstance(layers, list) or any(layer != 'full_attention' for layer in layers):
        raise ValueError(f'layer_types {layers} are not supported, only full_attention')
    first, used = config.get('max_window_layers', 28), config.get('use_sliding_window') and not layers
    if config['model_type'] == 'mistral':
        first, used = 0, True
    if used and window is not None and not (type(first) is int and first >= num_layers):
        raise ValueError(f'sliding_window {window!r} is not supported, only null or one that no layer uses')


def weight_files(folder):
    """model.safetensors, or the shards that an index puts tensors into; Path.name: they lie beside it."""
    single, index = folder / 'model.safetensors', folder / INDEX
    if single.is_file() or not index.is_file():
        return [single]
    weight_map = read_json(index, {'weight_map': dict})['weight_map']
    return [folder / name for name in sorted({Path(str(file)).name for file in weight_map.values()})]


def open_tensors(path):
    """{name: slice} of a safetensors file: get_shape() reads nothing, [:] the tensor."""
    try:
        file = safe_open(path, 'pt')
    except SafetensorError as error:
        raise ValueError(f'{path}: damaged or cut short: {error}') from None
    return {name: file.get_slice(name) for name in file.keys()}


def read_all(where, slices, shapes):
    """An iterator over (name, tensor) of {name: slice}, which must be those of {name: shape} and no more."""
    missing, unexpected = shapes.keys() - slices.keys(), slices.keys() - shapes.keys()
    if missing or unexpected:
        which = 'missing' if missing else 'unexpected'
        raise ValueError(f'{where}: {which} weight ' + ascii(min(missing or unexpected))[1:-1])
    for name, stored in slices.items():
        expected, shape = tuple(shapes[name]), tuple(stored.get_shape())
        if shape != expected:
            raise ValueError(f'{where}: {name} has shape {shape}, and should have {expected}')
    return ((name, finite(where, name, stored[:])) for name, stored in slices.items())


def finite(where, name, tensor):
    if tensor.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(f'{where}: {name} is of type {tensor.dtype}, not float32 or half')
    if not tensor.isfinite().all():
        raise ValueError(f'{where}: {name} holds values that are not finite')
    return tensor


def read_exactly(path, shapes):
    """As `read_all`, of one safetensors file."""
    return read_all(path, open_tensors(path), shapes)


def locate(folder):
    """{our name: slice} of a checkpoint's tensors; in a base model's files names lack "model."."""
    located = {}
    for path in weight_files(folder):
        if not path.is_file():
            raise ValueError(f'{folder / INDEX}: names the shard {path.name}, which is not there')
        slices = open_tensors(path)
        prefix = '' if any(name.startswith('model.') for name in slices) else 'model.'
        for name, stored in slices.items():
            if name.startswith(('classifier.', 'dense.', 'score.')):
                raise ValueError(f'{path}: holds {name}: a classifier; give the checkpoint it was made of')
            ours = name if name.startswith('lm_head.') else prefix + name
            if ours in located:
                raise ValueError(f'{path}: {name} is there twice, also in another shard')
            if not name.endswith('rotary_emb.inv_freq'):  # in old Llamas; it follows from the sizes
                located[ours] = stored
    return located


def read_weights(folder, shapes, new_ids=()):
    """An iterator over (name, tensor) for the parameters {name: shape} of a Model, from a checkpoint folder.

    Names and shapes are compared at once, from the files' headers; the tensors come one at a time.
    new_ids  of tokens that the checkpoint's tokenizer lacked: `with_rows` makes their rows, and those beyond
             the checkpoint's vocabulary where `shapes` has more
    The output head is left alone if `shapes` has none; a missing o_proj.bias is zeros (Qwen2 has none).
    """
    folder = Path(folder)
    sizes, slices = read_config(folder)[0], locate(folder)
    spare_head = slices.pop(HEAD, None) if HEAD not in shapes else None
    missing = shapes.keys() - slices.keys()
    zeros = {name: torch.zeros(shapes[name]) for name in sorted(missing) if name.endswith('o_proj.bias')}
    if missing - zeros.keys() == {HEAD}:
        raise ValueError(f'{folder}: has no output head (lm_head.weight): it can be fine-tuned as it is; to '
                         'go on with pretraining, set new_head = True')
    if spare_head and sizes.tie_word_embeddings and EMBEDDING in slices:
        if not torch.equal(spare_head[:].float(), slices[EMBEDDING][:].float()):
            raise ValueError(f'{folder}: tie_word_embeddings is True, but lm_head.weight differs')
    rows = {name: shapes[name][0] for name in (EMBEDDING, HEAD) if name in shapes}
    stored = {name: shape for name, shape in shapes.items() if name not in zeros}
    stored |= dict.fromkeys(rows, (sizes.vocab_size, sizes.hidden_size))
    grown = ((name, with_rows(tensor, rows[name], new_ids) if name in rows else tensor)
             for name, tensor in read_all(folder, slices, stored))
    return itertools.chain(zeros.items(), grown)


def with_rows(weight, num_rows, new_ids):
    """(num_rows, d): new rows, of `new_ids` and after the last, are the mean of those before the first new.

    A new id may have a row: some decoders have rows after their last token that nothing was trained on.
    """
    grown = weight.new_empty(num_rows, weight.shape[1])
    grown[:len(weight)] = weight
    if new := [*new_ids, *range(len(weight), num_rows)]:
        grown[new] = weight[:min(new)].double().mean(0).to(weight.dtype)
    return grown


# --------------------------------------------------------------------------------------------------- writing

def save(folder, sizes, context, ids, tensors, **more):
    """Write config.json, with `more` in it, and model.safetensors of {name: tensor} into a folder.

    EuroBERT has no norms of q and k: with them it is a Qwen3 with `is_causal` False, heeded from transformers
    5.2 on.
    """
    values = asdict(sizes) | {IDS[role]: i for role, i in ids.items()} | {'max_position_embeddings': context}
    llama3 = dict(zip(LLAMA3_SCALING, sizes.rope_scaling)) | {'rope_type': 'llama3'}
    scaling = llama3 if sizes.rope_scaling else None
    config = {name: values[name] for name in NAMES} | (QWEN3 if sizes.qk_norm else EUROBERT) | {
        'head_dim': sizes.head_size, 'hidden_act': 'silu', 'initializer_range': 0.02,
        'attention_dropout': 0.0, 'dtype': 'float32', 'torch_dtype': 'float32',
        'rope_scaling': scaling,  # transformers 4 reads this and rope_theta, transformers 5 the next line
        'rope_parameters': (scaling or {'rope_type': 'default'}) | {'rope_theta': sizes.rope_theta}}
    write_json(Path(folder, 'config.json'), config | more)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_tensors(Path(folder, 'model.safetensors'), tensors, {'format': 'pt'})


def write_tensors(path, tensors, metadata=None):
    """A safetensors file. OSError if the disk is full, for which safetensors has a word of its own."""
    try:
        save_file(tensors, path, metadata)
    except SafetensorError as error:
        number = re.search(r'os error (\d+)', str(error))
        raise OSError(int(number[1]) if number else errno.EIO, str(error), str(path)) from None


def write_card(folder, *, title, about, rows, use, pipeline, library='transformers', base_model='', note=''):
    """README.md, a model card: front matter for the hub, and text with a table {left: right} for people."""
    front = {'library_name': library, 'pipeline_tag': pipeline, 'base_model': base_model}
    front = ''.join(f'{key}: {json.dumps(value)}\n' for key, value in front.items() if value)
    table = ''.join(f'| {left} | {right} |\n' for left, right in rows.items())
    licence = ('No licence is stated: it is yours to choose, as far as the base model and the data leave it '
               'to you.')
    opens = f'Opens in transformers 5.3 or newer, without remote code: `{use}`. {note.strip()}'.rstrip()
    text = f'# {title}\n\n{about}\n\n| | |\n|---|---|\n{table}\n{opens}\n\n{licence}\n'
    Path(folder, 'README.md').write_text(f'---\n{front}---\n\n{text}', encoding='utf-8')


def write_sentence_transformers(folder, width, max_length, prompts):
    """Make a transformer's folder a SentenceTransformer's: mean pooling, vectors of length 1, cosine.

    width is that of the vectors, max_length counts tokens, prompts {name: what a text is preceded by}.
    """
    modules = ('', 'Transformer'), ('1_Pooling', 'Pooling'), ('2_Normalize', 'Normalize')
    modes = 'cls_token', 'mean_tokens', 'max_tokens', 'mean_sqrt_len_tokens'
    Path(folder, '1_Pooling').mkdir(exist_ok=True)
    files = {
        '1_Pooling/config.json': {'word_embedding_dimension': width, 'include_prompt': True}
        | {f'pooling_mode_{mode}': mode == 'mean_tokens' for mode in modes},
        'modules.json': [
            {'idx': k, 'name': str(k), 'path': path, 'type': f'sentence_transformers.models.{module}'}
            for k, (path, module) in enumerate(modules)],
        'sentence_bert_config.json': {'max_seq_length': max_length, 'do_lower_case': False},
        'config_sentence_transformers.json': {'prompts': prompts, 'default_prompt_name': None,
                                              'similarity_fn_name': 'cosine'}}
    for name, content in files.items():
        write_json(Path(folder, name), content)

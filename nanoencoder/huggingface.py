"""Hugging Face's checkpoint folders, in and out: config.json, safetensors, the hub. Knows no model and runs no code.

In: EuroBERT, and decoders of Llama's architecture (Llama 3, SmolLM, Qwen2, Qwen3), in one file or in shards.
Out: EuroBERT, which transformers 5 has; with norms of q and k a Qwen3 without its causal mask.
What could not be held exactly is refused by name. A pickle is never opened.
"""
import contextlib
import json
import re
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from nanoencoder.tokenizer import read_json

NAMES = ('vocab_size', 'hidden_size', 'intermediate_size', 'num_hidden_layers', 'num_attention_heads', 'num_key_value_heads',
         'max_position_embeddings', 'rms_norm_eps', 'rope_theta', 'tie_word_embeddings', 'attention_bias', 'head_dim')
LLAMA3_SCALING = ('factor', 'low_freq_factor', 'high_freq_factor', 'original_max_position_embeddings')
INDEX = 'model.safetensors.index.json'
VOCABULARY = {'model.embed_tokens.weight', 'lm_head.weight'}  # have a row a token


# --------------------------------------------------------------------------------------------------- folders

def is_hub_id(name):
    """Whether a name is a hub repository's, owner/model, and no folder's; out/absent is a folder that is not there."""
    return re.fullmatch(r'[\w.-]+/[\w.-]+', str(name)) is not None and not Path(name).parent.exists()


def find_checkpoint(name, weights=True):
    """A folder with weights: `name` itself, a run's newest checkpoint, or the local copy of a hub id.

    weights=False is content with a hub id's config.json and tokenizer, so that they can be looked at first.
    """
    return download(str(name), weights) if is_hub_id(name) else newest_checkpoint(name)


def newest_checkpoint(folder):
    """The folder itself if it holds weights, else the last of a run's checkpoints."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f'{folder}: no checkpoint there; give the folder with model.safetensors, a run\'s folder, or a '
                         'hub id as owner/model')
    if has_weights(folder):
        return folder
    if steps := [step for step in saved_steps(folder) if has_weights(folder / str(step))]:
        return folder / str(steps[-1])
    suffixes = ('.bin', '.pt', '.pth', '.pkl', '.ckpt')
    if pickles := sorted(path.name for path in folder.glob('*') if path.suffix in suffixes):
        raise ValueError(f'{folder}: {pickles[0]} is a pickle, which can run any code, and is not opened: only '
                         'safetensors are (transformers writes them with save_pretrained)')
    raise ValueError(f'{folder}: no checkpoint there (no model.safetensors)')


def has_weights(folder):
    return (folder / 'model.safetensors').is_file() or (folder / INDEX).is_file()


def saved_steps(run):
    """The steps that a run's folder has checkpoints of, rising."""
    return sorted(int(path.name) for path in run.glob('*') if re.fullmatch('0|[1-9][0-9]*', path.name) and path.is_dir())


def download(name, weights):
    """The local copy of a hub repository's checkpoint; what cannot be held is refused before its weights are fetched."""
    from huggingface_hub import _CACHED_NO_EXIST, hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    def get(file, revision=None):
        """The local path of a file of the repository, None if it has none of that name."""
        if revision and try_to_load_from_cache(name, file, revision=revision) is _CACHED_NO_EXIST:
            return None
        try:
            return Path(hf_hub_download(name, file, revision=revision))
        except LocalEntryNotFoundError:
            raise ValueError(f'{name}: no such folder, and the hub cannot be reached for {file}') from None
        except EntryNotFoundError:
            return None
        except Exception as error:  # of the network: their classes differ between versions of huggingface_hub
            raise ValueError(f'{name}: no such folder, and the hub did not give {file}: {error}') from None

    config = get('config.json')
    if config is None:
        raise ValueError(f'{name}: no such folder, and the hub\'s repository of that name has no config.json')
    read_config(config.parent)
    revision = config.parent.name  # a commit: all files are of one
    for file in ('tokenizer.json', 'tokenizer_config.json'):
        get(file, revision)
    if weights:
        index = get(INDEX, revision)
        for file in shards(index) if index else ['model.safetensors']:
            if get(file, revision) is None:
                raise ValueError(f'{name}: has no {file} on the hub; pickles (.bin) are not opened')
    return config.parent


# ------------------------------------------------------------------------------------------------------- in

def read_config(folder):
    """{name: value} of what model.Sizes wants to know, from a checkpoint's config.json.

    Of EuroBERT, Llama, Qwen2, Qwen3 and the paper's own models (sl_model). Refuses what the architecture cannot hold.
    """
    path = Path(folder) / 'config.json'
    config = read_json(path)
    kind = config.get('model_type')
    if kind not in ('eurobert', 'llama', 'qwen2', 'qwen3', 'sl_model'):
        raise ValueError(f'{path}: model_type is {kind!r}; supported are eurobert, llama, qwen2, qwen3 and sl_model')
    rotations = []
    for name in ('rope_scaling', 'rope_parameters'):  # of transformers 4 and 5
        found = config.get(name) or {}
        if not isinstance(found, dict) or any(isinstance(value, dict) for value in found.values()):
            raise ValueError(f'{path}: {name} must be one rotation for all layers, not {found!r}')
        rotations += [{'rope_type': found.get('type', 'default')} | found] if found else []
    rope = {'rope_type': 'default'} | {key: value for found in rotations for key, value in found.items()}
    if any(rope[key] != value for found in rotations for key, value in found.items()):
        raise ValueError(f'{path}: rope_scaling and rope_parameters contradict each other; leave one of them out')
    rope_type = rope['rope_type']
    if rope_type not in ('default', 'llama3'):
        raise ValueError(f'{path}: rope_type {rope_type!r} is not supported, only default and llama3')
    for name, wanted in (('hidden_act', 'silu'), ('mlp_bias', False), ('use_sliding_window', False),
                         ('partial_rotary_factor', 1), ('quantization_config', None)):
        value = rope.get(name, config.get(name))
        if value is not None and value != wanted:
            raise ValueError(f'{path}: {name} = {value!r} is not supported, only {wanted!r}')
    layers = config.get('layer_types') or ['full_attention']
    if not isinstance(layers, list) or any(layer != 'full_attention' for layer in layers):
        raise ValueError(f'{path}: layer_types {layers} are not supported, only full_attention')
    given = {name: value for name, value in config.items() if name in NAMES and value is not None}
    heads = given.get('num_attention_heads')
    values = {'num_key_value_heads': heads, 'tie_word_embeddings': False, 'attention_bias': False,
              'head_dim': 128 if kind == 'qwen3' else 0} | given
    values['qk_norm'] = kind == 'qwen3'
    if kind == 'qwen2':
        values['attention_bias'] = True
    head_dim = values['head_dim']
    if isinstance(heads, int) and isinstance(head_dim, int) and head_dim * heads == given.get('hidden_size'):
        values['head_dim'] = 0  # which says the same
    if 'rope_theta' in rope or kind == 'llama' and 'rope_theta' not in given:
        values['rope_theta'] = rope.get('rope_theta', 10_000)
    values['rope_scaling'] = tuple(rope.get(name) for name in LLAMA3_SCALING) if rope_type == 'llama3' else ()
    for role in ('bos', 'eos', 'pad', 'mask'):  # decoders may name no pad or mask, or several eos
        value = config.get(f'{role}_token_id')
        value = value[0] if isinstance(value, list) and value else value
        values[f'{role}_token_id'] = 0 if value in (None, [], -1) else value
    for name in NAMES:
        if name not in values:
            raise ValueError(f'{path}: has no {name}')
    return values


def weight_files(folder):
    """The safetensors files of a checkpoint folder: model.safetensors, or the shards its index names."""
    if (folder / 'model.safetensors').is_file():
        return [folder / 'model.safetensors']
    for file in (found := shards(folder / INDEX)):
        if not (folder / file).is_file():
            raise ValueError(f'{folder / INDEX}: names the shard {file}, which is not there')
    return [folder / file for file in found]


def shards(index):
    """The names of the files that an index of shards puts tensors into; they must lie beside it."""
    placed = read_json(index).get('weight_map')
    names = sorted(set(map(str, placed.values()))) if isinstance(placed, dict) else []
    for name in names:
        if not re.fullmatch(r'[\w-][\w.-]*\.safetensors', name):
            raise ValueError(f'{index}: {name!r} is not the name of a safetensors file beside it')
    if not names:
        raise ValueError(f'{index}: not an index of shards (no weight_map)')
    return names


@contextlib.contextmanager
def opened(path):
    try:
        with safe_open(path, 'pt') as file:
            yield file
    except OSError as error:
        raise ValueError(f'{path}: {error}') from None
    except SafetensorError as error:
        raise ValueError(f'{path}: damaged or cut short: {error}') from None


def names_in(path):
    with opened(path) as file:
        return list(file.keys())


def check_shapes(path, shapes, names):
    with opened(path) as file:
        for name, shape in shapes.items():
            found = tuple(file.get_slice(names[name]).get_shape())
            if found != tuple(shape):
                raise ValueError(f'{path}: {name} has shape {found}, and should have {tuple(shape)}')


def read_tensors(path, names):
    """Yields (name, tensor) for {name: name in the file}, one at a time. ValueError for one that is no finite floats."""
    with opened(path) as file:
        for name, there in names.items():
            tensor = file.get_tensor(there)
            if tensor.dtype not in (torch.float32, torch.bfloat16, torch.float16):
                raise ValueError(f'{path}: {name} is of type {tensor.dtype}; supported are float32, bfloat16, float16')
            if not tensor.isfinite().all():
                raise ValueError(f'{path}: {name} holds values that are not finite')
            yield name, tensor


def stored(folder):
    """{our name: (file, its name there)} of the tensors of a checkpoint folder. A base model's names lack "model."."""
    found = {}
    for path in weight_files(folder):
        names = names_in(path)
        prefix = '' if any(name.startswith('model.') for name in names) else 'model.'
        for name in names:
            if name.startswith(('classifier.', 'dense.', 'score.')):
                raise ValueError(f'{path}: holds {name}: a fine-tuned classifier; give the checkpoint it was made from')
            ours = name if name.startswith('lm_head.') else prefix + name
            if ours in found:
                raise ValueError(f'{path}: {name} is there twice, also in {found[ours][0].name}')
            if not name.endswith('rotary_emb.inv_freq'):  # which old Llama checkpoints hold; it follows from the sizes
                found[ours] = path, name
    return found


def read_weights(folder, shapes, new_ids=()):
    """An iterator over (name, tensor) for the parameters {name: shape} of a Model, from a checkpoint folder.

    Names and shapes are compared at once, from the files' headers; the tensors come one at a time.
    new_ids  ids of tokens that the checkpoint's tokenizer lacked: their rows, and those beyond the checkpoint's
             vocabulary where `shapes` has more, are made by `with_rows`
    The output head is left alone if it is not in `shapes`; a missing o_proj.bias is zeros (Qwen2 has none).
    """
    config, found = read_config(folder), stored(folder)
    spare = found.pop('lm_head.weight', None) if 'lm_head.weight' not in shapes else None
    if spare and config['tie_word_embeddings']:
        check_tied(folder, spare, found.get('model.embed_tokens.weight'))
    zeros = {name for name in shapes if name.endswith('o_proj.bias') and name not in found}
    missing, unexpected = sorted(shapes.keys() - zeros - found.keys()), sorted(found.keys() - shapes.keys())
    if missing == ['lm_head.weight']:
        raise ValueError(f'{folder}: has no output head (lm_head.weight): it can be fine-tuned as it is; to go on with '
                         'pretraining, set new_head = True')
    if missing or unexpected:
        name = ascii((missing or unexpected)[0])[1:-1]
        raise ValueError(f'{folder}: {"missing" if missing else "unexpected"} weight {name}')
    there = {name: shapes[name] for name in found}
    for name in found.keys() & VOCABULARY:
        there[name] = (min(shapes[name][0], config['vocab_size']), shapes[name][1])
    files = {path: {ours: name for ours, (file, name) in found.items() if file == path} for path, _ in found.values()}
    for path, names in files.items():
        check_shapes(path, {name: there[name] for name in names}, names)

    def tensors():
        for name in sorted(zeros):
            yield name, torch.zeros(shapes[name])
        for path, names in files.items():
            for name, tensor in read_tensors(path, names):
                yield name, with_rows(tensor, shapes[name][0], new_ids) if name in VOCABULARY else tensor
    return tensors()


def check_tied(folder, head, embedding):
    """A checkpoint that says its output head is the embedding, and yet holds one, must hold the same."""
    tensors = []
    for path, name in filter(None, (head, embedding)):
        with opened(path) as file:
            tensors.append(file.get_tensor(name).float())
    if not torch.equal(tensors[0], tensors[-1]):
        raise ValueError(f'{folder}: tie_word_embeddings is True, but lm_head.weight differs from the embedding')


def with_rows(weight, num_rows, new_ids):
    """(num_rows, d): `weight` with more rows, if asked. Those, and the rows of `new_ids`, are the mean of the rows before
    the first new one (some decoders have rows behind their last token that nothing was ever trained on)."""
    grown = weight.new_empty(num_rows, weight.shape[1])
    grown[:len(weight)] = weight
    new = [*new_ids, *range(len(weight), num_rows)]
    if new:
        grown[new] = weight[:min(new)].double().mean(0).to(weight.dtype)
    return grown


# ------------------------------------------------------------------------------------------------------ out

def config_of(sizes):
    """config.json of an encoder of these sizes.

    EuroBERT has no norms of q and k: with them it is a Qwen3 whose `is_causal` is False, which transformers 5 heeds.
    """
    scaling = dict(zip(LLAMA3_SCALING, sizes.rope_scaling)) | {'rope_type': 'llama3'} if sizes.rope_scaling else None
    family = {'architectures': ['EuroBertForMaskedLM'], 'model_type': 'eurobert', 'mlp_bias': False,
              'classifier_pooling': 'mean'}
    if sizes.qk_norm:
        family = {'architectures': ['Qwen3ForCausalLM'], 'model_type': 'qwen3', 'is_causal': False,
                  'use_sliding_window': False}
    own = {name: value for name, value in asdict(sizes).items() if name not in ('qk_norm', 'rope_scaling')}
    return own | family | {
        'head_dim': sizes.head_size, 'hidden_act': 'silu', 'initializer_range': 0.02, 'attention_dropout': 0.0,
        'dtype': 'float32', 'torch_dtype': 'float32',
        'rope_scaling': scaling,  # transformers 4 reads this and rope_theta, transformers 5 the next line
        'rope_parameters': (scaling or {'rope_type': 'default'}) | {'rope_theta': sizes.rope_theta}}


def write_card(folder, front, text):
    """README.md, a model card: {key: value} for the hub and text for people."""
    front = ''.join(f'{key}: {json.dumps(value)}\n' for key, value in front.items())
    licence = 'No licence is stated: it is yours to choose, as far as the base model and the data leave it to you.'
    Path(folder, 'README.md').write_text(f'---\n{front}---\n{text}\n{licence}\n', encoding='utf-8')


def write_sentence_transformers(folder, width, max_length, prompts):
    """What makes a folder with a transformer a SentenceTransformer: mean pooling, vectors of length 1, cosine.

    width is that of the vectors, max_length counts tokens, prompts {name: what a text is preceded by}.
    """
    modules = (('', 'Transformer'), ('1_Pooling', 'Pooling'), ('2_Normalize', 'Normalize'))
    pooling = {f'pooling_mode_{mode}': mode == 'mean_tokens'
               for mode in ('cls_token', 'mean_tokens', 'max_tokens', 'mean_sqrt_len_tokens')}
    files = {
        'modules.json': [{'idx': k, 'name': str(k), 'path': path, 'type': f'sentence_transformers.models.{module}'}
                         for k, (path, module) in enumerate(modules)],
        'sentence_bert_config.json': {'max_seq_length': max_length, 'do_lower_case': False},
        'config_sentence_transformers.json': {'prompts': prompts, 'default_prompt_name': None,
                                              'similarity_fn_name': 'cosine'},
        '1_Pooling/config.json': {'word_embedding_dimension': width, 'include_prompt': True} | pooling}
    for path, content in files.items():
        Path(folder, path).parent.mkdir(exist_ok=True)
        Path(folder, path).write_text(json.dumps(content, indent=1) + '\n', encoding='utf-8')

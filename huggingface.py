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

NAMES = ('vocab_size', 'hidden_size', 'intermediate_size', 'num_hidden_layers', 'num_attention_heads', 'num_key_value_heads',
         'max_position_embeddings', 'rms_norm_eps', 'rope_theta', 'tie_word_embeddings', 'attention_bias', 'head_dim')
LLAMA3_SCALING = ('factor', 'low_freq_factor', 'high_freq_factor', 'original_max_position_embeddings')
INDEX = 'model.safetensors.index.json'
VOCABULARY = ('model.embed_tokens.weight', 'lm_head.weight')    # have a row a token


# --------------------------------------------------------------------------------------------------- folders

def find_checkpoint(name, weights=True):
    """A folder with weights: `name` itself, a run's newest checkpoint, or the local copy of a hub id.

    weights=False is content with a hub id's config.json and tokenizer, so that they can be looked at first.
    """
    if re.fullmatch(r'[\w.-]+/[\w.-]+', str(name)) and not Path(name).parent.exists():  # out/absent is no hub id
        return download(str(name), weights)
    return newest_checkpoint(name)


def newest_checkpoint(folder):
    """The folder itself if it holds weights, else the last of a run's checkpoints."""
    folder = Path(folder)
    if has_weights(folder):
        return folder
    if steps := [step for step in saved_steps(folder) if has_weights(folder / str(step))]:
        return folder / str(steps[-1])
    for pickle in sorted(path.name for path in folder.glob('*') if path.suffix in ('.bin', '.pt', '.pth', '.pkl', '.ckpt')):
        raise ValueError(f'{folder}: {pickle} is a pickle, which can run any code, and is not opened: only safetensors are '
                         '(transformers writes them with save_pretrained)')
    raise ValueError(f'{folder}: no checkpoint there (no model.safetensors)')


def has_weights(folder):
    return (folder / 'model.safetensors').exists() or (folder / INDEX).exists()


def saved_steps(run):
    """The steps that a run's folder has checkpoints of, rising."""
    return sorted(int(path.name) for path in run.glob('*') if re.fullmatch('0|[1-9][0-9]*', path.name) and path.is_dir())


def download(name, weights):
    """The local copy of a hub repository's checkpoint; what cannot be held is refused before its weights are fetched."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    def get(file, revision=None):
        try:
            return Path(hf_hub_download(name, file, revision=revision))
        except EntryNotFoundError:
            return None
        except Exception as error:  # of the network: their classes differ between versions of huggingface_hub
            raise ValueError(f'{name}: no such folder, and the hub did not give {file}: {error}') from None

    config = get('config.json')
    if config is None:
        raise ValueError(f'{name}: no such folder, and the hub has no config.json of that name (or cannot be reached)')
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

def read_json(path):
    """The object a JSON file holds. ValueError if it cannot be read or holds none."""
    try:
        content = json.loads(path.read_text(encoding='utf-8'))
    except OSError as error:
        raise ValueError(f'{path}: {error.strerror}') from None
    except (ValueError, RecursionError):
        raise ValueError(f'{path}: not valid JSON') from None
    if not isinstance(content, dict):
        raise ValueError(f'{path}: holds no JSON object')
    return content


def read_config(folder):
    """{name: value} of what model.Sizes wants to know, from a checkpoint's config.json.

    Of EuroBERT, Llama, Qwen2, Qwen3 and the paper's own models (sl_model). Refuses what the architecture cannot hold.
    """
    path = Path(folder) / 'config.json'
    config = read_json(path)
    kind = config.get('model_type')
    if kind not in ('eurobert', 'llama', 'qwen2', 'qwen3', 'sl_model'):
        raise ValueError(f'{path}: model_type is {kind!r}; supported are eurobert, llama, qwen2, qwen3 and sl_model')
    rope = {'rope_type': 'default'}
    for found in (config.get('rope_scaling'), config.get('rope_parameters')):  # of transformers 4 and 5
        rope |= found if isinstance(found, dict) else {}
    if any(isinstance(value, dict) for value in rope.values()):
        raise ValueError(f'{path}: rope_parameters that differ between layers are not supported')
    rope_type = rope.get('type', 'default') if rope['rope_type'] == 'default' else rope['rope_type']
    if rope_type not in ('default', 'llama3'):
        raise ValueError(f'{path}: rope_type {rope_type!r} is not supported, only default and llama3')
    for name, wanted in (('hidden_act', 'silu'), ('mlp_bias', False), ('use_sliding_window', False),
                         ('partial_rotary_factor', 1), ('quantization_config', None)):
        value = rope.get(name, config.get(name))
        if value is not None and value != wanted:
            raise ValueError(f'{path}: {name} = {value!r} is not supported, only {wanted!r}')
    layers = sorted({str(layer) for layer in config.get('layer_types') or ()})
    if layers not in ([], ['full_attention']):
        raise ValueError(f'{path}: layer_types {", ".join(layers)} are not supported, only full_attention')
    given = {name: value for name, value in config.items() if name in NAMES and value is not None}
    heads = given.get('num_attention_heads')
    values = {'num_key_value_heads': heads, 'tie_word_embeddings': False, 'attention_bias': False, 'head_dim': 0} | given
    values['qk_norm'] = kind == 'qwen3'
    if kind == 'qwen2':
        values['attention_bias'] = True
    if isinstance(heads, int) and values['head_dim'] * heads == values.get('hidden_size'):
        values['head_dim'] = 0  # which says the same
    if 'rope_theta' in rope or kind == 'llama' and 'rope_theta' not in given:
        values['rope_theta'] = rope.get('rope_theta', 10_000)
    values['rope_scaling'] = tuple(rope.get(name) for name in LLAMA3_SCALING) if rope_type == 'llama3' else ()
    for role in ('bos', 'eos', 'pad', 'mask'):  # decoders may name no pad or mask, or several eos
        value = config.get(f'{role}_token_id')
        values[f'{role}_token_id'] = value[0] if isinstance(value, list) and value else value or 0
    for name in NAMES:
        if name not in values:
            raise ValueError(f'{path}: has no {name}')
    return values


def weight_files(folder):
    """The safetensors files of a checkpoint folder: model.safetensors, or the shards its index names."""
    if (folder / 'model.safetensors').exists():
        return [folder / 'model.safetensors']
    for file in (found := shards(folder / INDEX)):
        if not (folder / file).exists():
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


def read_tensors(path, shapes, names=None):
    """Yields (name, tensor) for exactly the names of {name: shape}, one at a time; `names` are the file's, if others."""
    with opened(path) as file:
        present = set(file.keys())
        for name in sorted(present.symmetric_difference(shapes)) if names is None else ():
            raise ValueError(f'{path}: {"unexpected" if name in present else "missing"} weight {name}')
        for name, shape in shapes.items():
            tensor = file.get_tensor(names[name] if names else name)
            if tensor.shape != shape:
                raise ValueError(f'{path}: {name} has shape {tuple(tensor.shape)}, and should have {tuple(shape)}')
            if not tensor.is_floating_point() or tensor.element_size() < 2:
                raise ValueError(f'{path}: {name} is of type {tensor.dtype}; supported are float32, bfloat16 and float16')
            if not tensor.isfinite().all():
                raise ValueError(f'{path}: {name} holds values that are not finite')
            yield name, tensor


def read_weights(folder, shapes, new_ids=()):
    """Yields (name, tensor) for the parameters {name: shape} of a Model from a checkpoint folder, one at a time.

    new_ids  ids of tokens that the checkpoint's tokenizer lacked: their rows, and those beyond the checkpoint's
             vocabulary where `shapes` has more, are made by `with_rows`
    A base model's names may lack "model."; the output head is left alone if it is not in `shapes`.
    """
    config = read_config(folder)
    found = {}                                                  # {our name: (file, its name there)}
    for path in weight_files(folder):
        with opened(path) as file:
            names = file.keys()
            prefix = '' if any(name.startswith('model.') for name in names) else 'model.'
            for name in names:
                ours = name if name.startswith('lm_head.') else prefix + name
                if ours in found:
                    raise ValueError(f'{path}: {name} is there twice, also in {found[ours][0].name}')
                if not name.endswith('rotary_emb.inv_freq'):    # which old Llama checkpoints hold; it follows from sizes
                    found[ours] = path, name
    spare = found.pop('lm_head.weight', None) if 'lm_head.weight' not in shapes else None
    if spare and config['tie_word_embeddings']:
        check_tied(folder, spare, found.get('model.embed_tokens.weight'))
    zeros = {name for name in shapes if name.endswith('o_proj.bias') and name not in found}  # Qwen2 has none
    for name in sorted((found.keys() | zeros).symmetric_difference(shapes)):
        if name == 'lm_head.weight':
            raise ValueError(f'{folder}: has no output head (lm_head.weight): it can be fine-tuned as it is; to go on '
                             'with pretraining, set new_head = True')
        raise ValueError(f'{folder}: {"missing" if name in shapes else "unexpected"} weight {name}')
    for name in zeros:
        yield name, torch.zeros(shapes[name])
    for path in dict.fromkeys(path for path, _ in found.values()):
        names = {ours: name for ours, (file, name) in found.items() if file == path}
        rows = {name: (min(shapes[name][0], config['vocab_size']), *shapes[name][1:]) if name in VOCABULARY else shapes[name]
                for name in names}
        for name, tensor in read_tensors(path, rows, names):
            yield name, with_rows(tensor, shapes[name][0], new_ids) if name in VOCABULARY else tensor


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
    kind = {'architectures': ['EuroBertForMaskedLM'], 'model_type': 'eurobert', 'mlp_bias': False, 'classifier_pooling': 'mean'}
    if sizes.qk_norm:
        kind = {'architectures': ['Qwen3ForCausalLM'], 'model_type': 'qwen3', 'is_causal': False, 'use_sliding_window': False}
    config = {name: value for name, value in asdict(sizes).items() if name not in ('qk_norm', 'rope_scaling')}
    return config | kind | {
        'head_dim': sizes.head_size,
        'hidden_act': 'silu', 'initializer_range': 0.02, 'attention_dropout': 0.0, 'dtype': 'float32', 'torch_dtype': 'float32',
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
    for path, content in {
            'modules.json': [{'idx': k, 'name': str(k), 'path': path, 'type': f'sentence_transformers.models.{kind}'}
                             for k, (path, kind) in enumerate(modules)],
            'sentence_bert_config.json': {'max_seq_length': max_length, 'do_lower_case': False},
            'config_sentence_transformers.json': {'prompts': prompts, 'default_prompt_name': None, 'similarity_fn_name': 'cosine'},
            '1_Pooling/config.json': {'word_embedding_dimension': width, 'pooling_mode_cls_token': False,
                                      'pooling_mode_mean_tokens': True, 'pooling_mode_max_tokens': False,
                                      'pooling_mode_mean_sqrt_len_tokens': False, 'include_prompt': True}}.items():
        Path(folder, path).parent.mkdir(exist_ok=True)
        Path(folder, path).write_text(json.dumps(content, indent=1) + '\n', encoding='utf-8')

"""What sentence-transformers writes beside an encoder: how its states become a vector, how many tokens of a
text are read, and which prompts texts begin with. The files of versions 2 to 5 and those of 6 are read.

    modules.json                        the modules that a text goes through, and the folder of each
    1_Pooling/config.json               the mean of the states, or the first one, which is [CLS]'s
    sentence_bert_config.json           max_seq_length
    config_sentence_transformers.json   prompts, and the similarity of two vectors"""
from pathlib import PurePosixPath

import tokenizers

from nanoencoder.files import blame, read_json

SETTINGS = 'config_sentence_transformers.json'
FILES = ('modules.json', SETTINGS, 'sentence_*_config.json')
MODULES = ['Transformer', 'Pooling', 'Normalize']   # of which finetune.py computes the vectors


def read_modules(folder):
    """Return the (type, folder) pairs of modules.json, [] where there is none. ValueError if it is not as
    sentence-transformers writes it, or names a folder elsewhere."""
    path = folder / 'modules.json'
    if not path.exists():
        return []
    with blame(f'{path}: no list of modules as sentence-transformers writes it', KeyError, TypeError):
        modules = [(str(module['type']), str(module['path'])) for module in read_json(path, list)]
    for _, subfolder in modules:
        place = PurePosixPath(subfolder)
        if place.is_absolute() or '..' in place.parts:
            raise ValueError(f'{path}: {subfolder!r:.80} is not in this folder')
    return modules


def read_pooling(folder, tokenizer):
    """Return 'mean' or 'cls', by which a folder's encoder makes a vector of a text's states. A folder without
    modules.json is read by the mean, as sentence-transformers does. ValueError that names the module if its
    vectors are made otherwise.

    tokenizer  as this program reads the folder's"""
    modules = read_modules(folder)
    if not modules:
        return 'mean'
    with blame(f'{folder}: is a sentence encoder whose vectors are not computed here, for retrieval or '
               '--probe; only Transformer, Pooling by cls or mean, and Normalize are', ValueError):
        check_modules(modules)
        pooling = check_pooling(folder / modules[1][1] / 'config.json')
        check_reading(folder, tokenizer)
        truncate_dim = read_optional(folder / SETTINGS).get('truncate_dim')
        if truncate_dim is not None:
            raise ValueError(f'truncate_dim = {truncate_dim!r:.80} keeps only the first numbers of a vector')
    return pooling


def check_reading(folder, tokenizer):
    """ValueError if a folder's tokenizer reads a text otherwise than `tokenizer`, ours of it."""
    backend = tokenizers.Tokenizer.from_file(str(folder / 'tokenizer.json'))
    backend.no_padding()
    if backend.encode('a').ids != [*tokenizer.prefix, *tokenizer.encode('a'), *tokenizer.suffix]:
        raise ValueError('its tokenizer.json puts other special tokens around a text than are read here')
    truncation = backend.truncation or {'direction': 'right'}
    side = read_optional(folder / 'tokenizer_config.json').get('truncation_side') or truncation['direction']
    if side != 'right':
        raise ValueError(f'truncation_side is {side!r:.80}: of a text that is too long it reads the end')
    is_lower = read_limits(folder).get('do_lower_case')
    if is_lower and tokenizer.encode('A').tolist() != tokenizer.encode('a').tolist():
        raise ValueError('do_lower_case is true, and its tokenizer.json has no Lowercase normalizer')


def check_modules(modules):
    """ValueError unless they are Transformer, Pooling and, or not, Normalize."""
    for k, (kind, subfolder) in enumerate(modules):
        name = kind.split('.')[-1]
        is_known = kind.startswith('sentence_transformers.') and name in MODULES[k:k + 1]
        if not is_known or k == 0 and subfolder:    # its weights are in that folder
            raise ValueError(f'module {k} in modules.json is {kind:.80} in the folder {subfolder!r:.80}')
    if len(modules) == 1:
        raise ValueError('modules.json names no Pooling')


def check_pooling(path):
    """Return what the config.json of a Pooling says, 'mean' or 'cls'. ValueError if it is anything else."""
    config = read_json(path)
    modes = config.get('pooling_mode')
    if modes is None:   # before version 6: pooling_mode_cls_token, pooling_mode_mean_tokens, ...
        modes = [
            name.removeprefix('pooling_mode_').partition('_token')[0]
            for name, is_on in config.items()
            if name.startswith('pooling_mode_') and is_on] or 'mean'
    if isinstance(modes, list):
        modes = ' and '.join(map(str, modes))
    if modes not in ('mean', 'cls'):
        raise ValueError(f'Pooling by {str(modes):.80}')
    if not config.get('include_prompt', True):
        raise ValueError('include_prompt is false, which leaves prompts out of the vector')
    return modes


def read_optional(path, **options):
    """Return the object that a JSON file holds, {} where there is no file."""
    return read_json(path, **options) if path.exists() else {}


def read_limits(folder):
    """Return what sentence_bert_config.json says, or sentence_roberta_config.json and the like; else {}."""
    for path in sorted(folder.glob('sentence_*_config.json')):
        return read_json(path)
    return {}


def read_longest(folder, context):
    """Return how many tokens of a text a sentence encoder reads, special ones among them: what its folder
    says, and at most the encoder's context. None if it is no sentence encoder. Version 6 of
    sentence-transformers writes the number as the tokenizer's model_max_length."""
    if not read_modules(folder):
        return None
    longest = read_limits(folder).get('max_seq_length')
    if longest is None:
        longest = read_optional(folder / 'tokenizer_config.json').get('model_max_length')
    with blame(f'{folder}: max_seq_length', TypeError, ValueError, OverflowError):
        return min(int(longest or context), context)


def read_prompts(folder):
    """Return {name: text that its queries, documents, ... begin with}, the name of the default prompt or
    None, and the similarity by which vectors are compared."""
    config = read_optional(folder / SETTINGS, fields={'prompts': dict})
    prompts = config.get('prompts') or {}
    return prompts, config.get('default_prompt_name'), config.get('similarity_fn_name') or 'cosine'

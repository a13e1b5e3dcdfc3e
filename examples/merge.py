"""Merge two encoders of one architecture: each weight becomes a mean of both.

    python examples/merge.py out/minilm-texts/300 sentence-transformers/all-MiniLM-L6-v2 merged --share=0.25
    python examples/merge.py out/mydecoder-mlm40/200 mydecoder merged

First the encoder that was trained further, then the encoder or decoder that it was made of (what its
--weights_from named), then a new folder for the result. --share is the weight of the second. Tokenizer,
modules and other files are the first's. Of a fine-tuned model the result has the head, but no run.json, so
predict.py does not open it. Some of what training has made the first forget may come back
(arXiv 2109.01903). BidirLM (arXiv 2604.02045) merges an encoder with the decoder that it was made of."""
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))     # the root, where nanoencoder/ is

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save as to_bytes

from nanoencoder.card import CARD, is_unedited
from nanoencoder.files import blame, read_json, remove, whole
from nanoencoder.huggingface import (
    FAMILIES,
    HEAD,
    INDEX,
    WEIGHTS,
    fetch_weights,
    folder_of,
    read_prediction,
    weight_files,
)
from nanoencoder.settings import check, parse, run_main, setting, split_words

# what belongs to the first's weights alone, such as a run's state or other formats, and what a clone has
NOT_COPIED = ('state.json', 'optimizer.*', 'run.json', 'onnx', 'openvino', '*.onnx', '*.h5', '*.msgpack',
              'checkpoint-*', '.git', '.cache')
# of both config.json, where both say it. ALBERT's layers share weights, which do not show how many there are
ALIKE = ('num_attention_heads', 'n_heads', 'num_hidden_layers', 'n_layers',
         'hidden_act', 'hidden_activation', 'activation')
# weights that one of two encoders may lack: a pooler, Qwen2's bias, and buffers of old files
OPTIONAL = re.compile(r'pooler\.|.*(o_proj\.bias|inv_freq|position_ids)$')


@dataclass(frozen=True)
class Settings:
    share: float = setting(0.5, 0, 1)   # of the second in each weight: 0 is the first, 1 the second

    __post_init__ = check


def merge(first, second, share, kept_rows):
    """Return ({name: (1 - share) x first + share x second}, the names of weights that stay the first's, since
    the second lacks them: of an output head, as a rule).

    kept_rows  a list of ids of tokens that the second never saw: their embeddings stay the first's"""
    prefix, others = renamed(first, second)
    merged = {}
    kept = []
    for name, weight in first.items():
        other = others.get(name)
        if other is None and name.endswith('o_proj.bias'):      # which Qwen2 does not have: as if it were 0
            other = torch.zeros_like(weight)
        if not weight.is_floating_point():      # positions, in old files
            merged[name] = weight
        elif other is None:
            merged[name] = weight
            kept.append(name)
        else:
            is_by_token = name in (f'{prefix}embed_tokens.weight', HEAD)
            merged[name] = mean(name, weight, other, share, is_by_token, kept_rows)
    return merged, kept


def renamed(first, second):
    """Return (the first's prefix, the second's weights by the names that they have in the first). ValueError
    if one encoder has a weight that the other lacks."""
    prefix, old_prefix = prefix_of(first), prefix_of(second)
    one, other = encoder_names(first, prefix), encoder_names(second, old_prefix)
    for name in sorted(one ^ other):
        if not OPTIONAL.match(name):
            lacks = 'is not in the second' if name in one else 'of the second is not in the first'
            raise ValueError(f'{name} {lacks}; was the first made of it?')
    others = {}
    for name, weight in second.items():
        if name.startswith(old_prefix):
            name = prefix + name.removeprefix(old_prefix)
        others[name] = weight
    return prefix, others


def encoder_names(weights, prefix):
    return {name.removeprefix(prefix) for name in weights if name.startswith(prefix)}


def prefix_of(weights):
    """Return what stands before an encoder's names in a file with an output head, as "bert."; else ''."""
    for name in weights:
        prefix, _, rest = name.partition('.')
        if rest.startswith(('embeddings.', 'embed_tokens.')):
            return f'{prefix}.'
    return ''


def mean(name, weight, other, share, is_by_token, kept_rows):
    """Return the mean of two weights, in the type of the first. By token the first may have more rows."""
    result = weight.float().clone()
    rows = slice(min(len(weight), len(other)) if is_by_token else None)
    if result[rows].shape != other[rows].shape:
        raise ValueError(f'{name} has other sizes in the second: {[*other.shape]}, and not '
                         f'{[*weight.shape]}; was the first made of it?')
    result[rows] = result[rows].lerp(other[rows].float(), share)
    if is_by_token:
        result[kept_rows] = weight[kept_rows].float()
    return result.to(weight.dtype)


def read_folder(name):
    """Return (folder, its weights) of a folder, a run or a hub id."""
    folder = folder_of(name)
    fetch_weights(name, folder)
    weights = {}
    for path in weight_files(folder):
        with blame(f'{path}: missing, damaged or cut short; only .safetensors are read',
                   FileNotFoundError, SafetensorError):
            weights |= load_file(path)
    return folder, weights


def check_alike(first, second):
    """ValueError if weights of the same names and sizes would be read in two ways."""
    one, other = (read_json(folder / 'config.json') for folder in (first, second))
    names = [*ALIKE]
    # those that pretrain.py reads share an architecture
    if not {one.get('model_type'), other.get('model_type')} <= FAMILIES.keys():
        names.append('model_type')
    for name in names:
        if name in one and name in other and one[name] != other[name]:
            raise ValueError(f'{second}: its config.json has {name} {other[name]!r}, and that of {first} '
                             f'{one[name]!r}; was the first made of it?')


def unseen_rows(first, second):
    """The mask's row in our own format, if the second is a decoder, which never saw one."""
    mask = read_json(first / 'config.json').get('mask_token_id')
    if mask is None or not read_prediction(second).causal:
        return []
    return [mask]


def main():
    words, options = split_words(sys.argv[1:])
    cfg, _ = parse(Settings, options)
    if len(words) != 3:
        print(__doc__.strip())
        sys.exit(2)
    one, other, out = words
    if Path(out).exists():
        raise ValueError(f'{out} is there already; give the name of a new folder')
    first, weights = read_folder(one)
    second, others = read_folder(other)
    check_alike(first, second)
    merged, kept = merge(weights, others, cfg.share, unseen_rows(first, second))
    with whole(out) as temporary:
        shutil.copytree(first, temporary, ignore=shutil.ignore_patterns(*NOT_COPIED))
        for path in (*weight_files(temporary), temporary / INDEX, *temporary.glob('pytorch_model*')):
            remove(path)
        if (temporary / CARD).exists() and is_unedited(temporary / CARD):
            remove(temporary / CARD)    # which we wrote, and which says what the first was trained on
        # not by save_file: only its owner may read what it writes
        (temporary / WEIGHTS).write_bytes(to_bytes(merged, {'format': 'pt'}))
    print(f'{out}: {1 - cfg.share:g} x {one} + {cfg.share:g} x {other}')
    if kept:
        print(f'  {other} has no {", ".join(kept):.200}: as in {one}')


if __name__ == '__main__':
    run_main(main)

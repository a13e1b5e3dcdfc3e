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
    EMBEDDING,
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

# what is of the first's weights: a run's state, a fine-tuned model's record, weights in other formats
NOT_COPIED = ('state.json', 'optimizer.*', 'run.json', 'onnx', 'openvino', 'tf_model.h5',
              'flax_model.msgpack', 'checkpoint-*', '.git', '.cache')
ALIKE = 'num_attention_heads', 'num_hidden_layers', 'hidden_act'    # of both config.json, where both say it


@dataclass(frozen=True)
class Settings:
    share: float = setting(0.5, 0, 1)   # of the second in each weight: 0 is the first, 1 the second

    __post_init__ = check


def merge(first, second, share, kept_rows):
    """Return ({name: (1 - share) x first + share x second}, the names that the second lacks, as of an output
    head or a pooler, whose weights stay the first's).

    kept_rows  a list of ids of tokens that the second never saw: their embeddings stay the first's"""
    ours, theirs = prefixes(first, second)
    others = {ours + name.removeprefix(theirs) if name.startswith(theirs) else name: weight
              for name, weight in second.items()}
    for name in others.keys() - first.keys():
        if is_of_layer(name):
            raise ValueError(f'{name} of the second is not in the first; was the first made of it?')
    merged = {}
    head = []
    for name, weight in first.items():
        other = others.get(name)
        if name.endswith('o_proj.bias') and other is None:      # which Qwen2 does not have: as if it were 0
            other = torch.zeros_like(weight)
        if not weight.is_floating_point():      # positions, in old files
            merged[name] = weight
        elif other is not None:
            merged[name] = mean(name, weight, other, share, kept_rows)
        elif is_of_layer(name) or 'embed' in name:
            raise ValueError(f'{name} is not in the second; was the first made of it?')
        else:
            merged[name] = weight
            head.append(name)
    return merged, head


def prefixes(first, second):
    """Return what stands before the names of each: with an output head "bert.", without one "". Where both
    have the same, it is ('', '')."""
    name = next(filter(is_of_layer, first), '')
    short = name.partition('.')[2]
    if name in second:
        return '', ''
    if short in second:
        return name.removesuffix(short), ''
    for other in second:
        if other.partition('.')[2] == name:
            return '', other.removesuffix(name)
    raise ValueError(f'{name} is not in the second; was the first made of it?')


def is_of_layer(name):
    return re.search(r'\.\d+\.', name) and not name.endswith('inv_freq')     # of old Llamas


def mean(name, weight, other, share, kept_rows):
    result = weight.float().clone()
    rows = slice(None)
    is_by_token = f'model.{name}'.endswith((EMBEDDING, HEAD))
    if is_by_token:   # the encoder may have more rows: new tokens
        rows = slice(min(len(weight), len(other)))
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
        if not path.exists():
            raise ValueError(f'{path}: is not there; give a folder with weights as .safetensors')
        with blame(f'{path}: damaged or cut short', SafetensorError):
            weights |= load_file(path)
    return folder, weights


def check_alike(first, second):
    """ValueError if weights of the same names and sizes would be read in two ways."""
    one, other = (read_json(folder / 'config.json') for folder in (first, second))
    names = [*ALIKE]
    if one.get('model_type') not in FAMILIES:   # those of ours share an architecture
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
    merged, head = merge(weights, others, cfg.share, unseen_rows(first, second))
    with whole(out) as temporary:
        shutil.copytree(first, temporary, ignore=shutil.ignore_patterns(*NOT_COPIED))
        for path in (*weight_files(temporary), temporary / INDEX):
            remove(path)
        if (temporary / CARD).exists() and is_unedited(temporary / CARD):
            remove(temporary / CARD)    # which we wrote, and which says what the first was trained on
        # not by save_file: only its owner may read what it writes
        (temporary / WEIGHTS).write_bytes(to_bytes(merged, {'format': 'pt'}))
    print(f'{out}: {1 - cfg.share:g} x {one} + {cfg.share:g} x {other}')
    if head:
        print(f'  {other} has no {", ".join(head):.200}: as in {one}')


if __name__ == '__main__':
    run_main(main)

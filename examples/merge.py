"""Merge an encoder with the decoder that it was made of: each weight becomes the mean of both.

    python examples/merge.py out/mydecoder-mlm40/200 mydecoder merged

First the encoder's checkpoint, then the decoder's folder (the one that --weights_from named), then a new
folder for the result. BidirLM (arXiv 2604.02045) does this so that less of the decoder is forgotten."""
import sys
from pathlib import Path
from shutil import copytree, ignore_patterns

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))     # the root, where nanoencoder/ is

from safetensors.torch import load_file, save_file

from nanoencoder.files import read_json
from nanoencoder.huggingface import EMBEDDING, HEAD
from nanoencoder.settings import plain_words, run_main


def merge(encoder, decoder, mask):
    """Return the means of two dicts of weights. `mask` is the mask token's id, which the decoder never saw:
    its rows stay the encoder's."""
    merged = {}
    for name, weight in encoder.items():
        mean = weight.clone()
        if name in decoder:
            other = decoder[name].float()
            mean[:len(other)].lerp_(other, 0.5)     # the encoder may have more rows: new tokens
        elif name.endswith('o_proj.bias'):          # which Qwen2 does not have: as if it were 0 there
            mean *= 0.5
        else:
            raise ValueError(f'{name} is not in the decoder; was the encoder made of this one?')
        if name in (EMBEDDING, HEAD):
            mean[mask] = weight[mask]
        merged[name] = mean
    return merged


def main():
    words = plain_words(sys.argv[1:])
    if len(words) != 3:
        print(__doc__.strip())
        sys.exit(2)
    encoder, decoder, out = map(Path, words)
    if out.exists():
        raise ValueError(f'{out} is there already; give the name of a new folder')
    mask = read_json(encoder / 'config.json')['mask_token_id']
    weights = merge(load_file(encoder / 'model.safetensors'), load_file(decoder / 'model.safetensors'), mask)
    copytree(encoder, out, ignore=ignore_patterns('state.json', 'optimizer.*'))
    save_file(weights, out / 'model.safetensors', {'format': 'pt'})
    print(f'{out}: the mean of {encoder} and {decoder}')


if __name__ == '__main__':
    run_main(main)

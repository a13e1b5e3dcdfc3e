"""Write a page that runs checkpoints of ours in a browser: one file, opened from the disk, without network.

    python examples/page.py out/mlm-1800-s6 out/clm25-mlm-1800-s6 --out=page.html

First come runs, or folders of single checkpoints. Of a run the page has all checkpoints that are left (so
train with --save_at='(300, 600, 900)'), and the untrained model of step 0, which follows from the seed. Its
reader types a sentence, masks a token, and sees what the model guesses and where it looks, with the causal
mask and without, at each checkpoint.

The page computes in JavaScript: read page/model.js beside model.py. Its weights are rounded to whole numbers.
This prints by how much that changes the last checkpoint's guesses."""
import base64
import json
import re
import sys
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))     # the root, where nanoencoder/ is

from data import OBJECTIVES
from model import Model, initial_weight
from nanoencoder import figures
from nanoencoder.files import saved_steps, sha256_of_text, whole
from nanoencoder.huggingface import (
    HIDDEN_ACT,
    Prediction,
    newest_checkpoint,
    open_checkpoint,
    read_prediction,
)
from nanoencoder.pretraining.log import read_log
from nanoencoder.pretraining.plateau import frequencies_loss
from nanoencoder.settings import check, parse, run_main, setting, split_words
from nanoencoder.tokenizer import ALPHABET

FOLDER = Path(__file__).with_suffix('')     # page/
MOST = 3_000_000    # parameters: JavaScript computes the guesses for a sentence in a blink then


@dataclass(frozen=True)
class Settings:
    out: str = 'page.html'      # the file to write
    text: str = 'Returns the number of elements along the given axis.'  # the sentence to begin with
    fineness: float = setting(2.7, 1)   # of rounding: steps in a matrix's standard deviation

    __post_init__ = check


def read_run(name, blobs, cfg):
    """Return (what the page says of a model, its tokenizer). Its packed weights go into `blobs`."""
    run = Path(name)
    config = {}
    lines = []
    if (run / 'log.jsonl').exists():
        config, lines = read_log(run, with_parent=True)
    folders = [run / str(step) for step in saved_steps(run)] or [newest_checkpoint(run)]
    checkpoints = []
    for folder in folders:
        opened = open_checkpoint(folder)
        check_computable(folder, opened.sizes)
        if config and not checkpoints and begins_from_scratch(config):
            checkpoints.append(untrained(opened.sizes, config, lines[0]['phase'], blobs, cfg))
        model = opened.model()
        packed, rounded = pack(dict(model.named_parameters()), blobs, cfg.fineness)
        step = opened.state.get('step', 0)
        checkpoints.append({'step': step} | read_prediction(folder)._asdict() | packed)

    tokenizer = opened.tokenizer()
    error = rounding_error(model, rounded, tokenizer, cfg.text)
    print(f'{name}: steps {", ".join(str(row["step"]) for row in checkpoints)}; '
          f'rounding moves the last one\'s guesses by {error:.3f} nats')
    about = {
        'name': run.resolve().name,
        'training': figures.phases_in_words(config) if config else 'unknown',
        'colour': figures.style_of_config(config)[0] if config else figures.OTHER,
        'sizes': asdict(opened.sizes) | {'head_size': opened.sizes.head_size},
        'context': opened.context,
        'checkpoints': checkpoints,
        'losses': [[line['step'], line['val_mlm_loss']] for line in lines if 'val_mlm_loss' in line],
        'frequencies': frequencies_loss('mlm', config) if config else None}
    return about, tokenizer


def check_computable(folder, sizes):
    """ValueError if a model is too large for a page, or has what page/model.js leaves out."""
    with torch.device('meta'):
        count = sum(p.numel() for p in Model(sizes).parameters())
    if count > MOST:
        raise ValueError(f'{folder}: has {count:,} parameters; a page takes models of at most {MOST:,}')
    if sizes.rope_scaling or sizes.attention_bias or HIDDEN_ACT != 'silu':
        raise ValueError(f'{folder}: has rope_scaling, biases or an activation that page/model.js leaves '
                         'out; add it there')


def begins_from_scratch(config):
    """Whether a run's untrained weights follow from its seed alone."""
    counted = config.get('embedding_init', 'normal') != 'normal'    # not in runs of 0.1.0
    return not (config['branch_from'] or config['weights_from'] or counted)


def untrained(sizes, config, objective, blobs, cfg):
    """Return what the page says of step 0. Runs of one seed begin with the same weights, which are packed
    once."""
    with torch.device('meta'):
        model = Model(sizes)
    weights = {
        name: initial_weight(name, p.shape, config['seed'], config['initializer_range'])
        for name, p in model.named_parameters()}
    packed, _ = pack(weights, blobs, cfg.fineness)
    prediction = Prediction(objective, OBJECTIVES[objective].causal, OBJECTIVES[objective].offset)
    return {'step': 0} | prediction._asdict() | packed


def pack(weights, blobs, fineness):
    """Round {name: tensor}, and put the whole numbers into `blobs`, compressed. Returns (where the page finds
    them, the rounded weights). Vectors are few, and keep five digits."""
    tensors = []
    integers = []
    rounded = {}
    for name, tensor in weights.items():
        tensor = tensor.detach().float()
        if tensor.ndim == 1:
            values = [round(value, 5) for value in tensor.tolist()]
            rounded[name] = torch.tensor(values)
            tensors.append({'name': name, 'values': values})
            continue
        step = float(tensor.std() / fineness)
        whole_numbers = (tensor / step).round().clamp(-127, 127)
        rounded[name] = whole_numbers * step
        tensors.append({'name': name, 'shape': list(tensor.shape), 'step': step})
        integers.append(whole_numbers.to(torch.int8).numpy().tobytes())
    # Small numbers are frequent, and Huffman's code makes them short. There are no repetitions to find.
    compressor = zlib.compressobj(9, strategy=zlib.Z_HUFFMAN_ONLY)
    packed = compressor.compress(b''.join(integers)) + compressor.flush()
    text = base64.b64encode(packed).decode()
    digest = sha256_of_text(text)
    blobs[digest] = text
    return {'tensors': tensors, 'blob': digest}, rounded


@torch.no_grad()
def rounding_error(model, rounded, tokenizer, text):
    """Return the KL divergence of a model's guesses, in nats, from those with rounded weights: the mean over
    the tokens of a text, each masked in turn."""
    ids = torch.from_numpy(tokenizer.encode_masked(text))
    copies = ids.repeat(len(ids), 1)
    copies.fill_diagonal_(tokenizer.ids['mask'])
    places = torch.arange(len(ids)) * (len(ids) + 1)
    guesses = []
    for weights in (dict(model.named_parameters()), rounded):
        model.load_state_dict(weights, assign=True)
        hidden = model.model(copies.flatten(), [len(ids)] * len(ids), causal=False)
        guesses.append(model.logits(hidden[places]).log_softmax(1))
    exact, ours = guesses
    return torch.nn.functional.kl_div(ours, exact, log_target=True, reduction='batchmean').item()


def describe(tokenizer):
    """Return what page/tokenizer.js needs. ValueError if it has no such form."""
    pattern, ranks = tokenizer.in_tiktoken
    if tokenizer.composes or tokenizer.missing_bytes:
        raise ValueError('page/tokenizer.js has neither NFC nor bytes without a token; add them there')
    tokens = [''] * tokenizer.vocab_size
    for token, id in ranks.items():
        tokens[id] = ''.join(ALPHABET[byte] for byte in token)
    for token, id in tokenizer.specials.items():
        tokens[id] = token
    return {
        'pattern': in_javascript(pattern),
        'alphabet': ''.join(ALPHABET[byte] for byte in range(256)),
        'tokens': tokens,
        'special_ids': tokenizer.special_ids,
        'prefix': tokenizer.prefix,
        'suffix': tokenizer.suffix,
        'mask': tokenizer.ids['mask']}


def in_javascript(pattern):
    r"""Write a regular expression of a tokenizer for JavaScript, whose \s has other characters than Unicode's
    white space. (?i:...) is too new there; it has the long s, too."""
    pattern = pattern.replace(
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        "'(?:[sSſ]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])")
    return pattern.replace(r'\s', r'\p{White_Space}').replace(r'\S', r'\P{White_Space}')


def write_page(path, content):
    """Write page/page.html with its scripts and its data in it."""
    text = json.dumps(content, ensure_ascii=False).replace('<', r'\u003c')   # no </script> can be in it
    page = (FOLDER / 'page.html').read_text(encoding='utf-8')

    def script(match):
        source = (FOLDER / match[1]).read_text(encoding='utf-8')
        return f'<script>\n{source}</script>'
    page = re.sub(r'<script src="([\w.]+)"></script>', script, page)
    page = page.replace('{}</script>', f'{text}</script>')
    with whole(path) as temporary:
        temporary.write_text(page, encoding='utf-8')


def main():
    names, options = split_words(sys.argv[1:])
    cfg, _ = parse(Settings, options)
    if not names:
        print(__doc__.strip())
        sys.exit(2)
    blobs = {}      # {digest: packed weights}
    models = []
    tokenizers = {}     # by fingerprint
    for name in names:
        about, tokenizer = read_run(name, blobs, cfg)
        models.append(about)
        tokenizers[tokenizer.fingerprint()] = tokenizer
    styles = figures.styles_of({k: ((about['colour'], '-'), k) for k, about in enumerate(models)})
    for k, about in enumerate(models):
        about['colour'], _ = styles[k]
    if len(tokenizers) > 1:
        raise ValueError(f'{" ".join(names)}: have different tokenizers; write a page for each')
    path = Path(cfg.out)
    write_page(path, {'text': cfg.text, 'tokenizer': describe(tokenizer), 'models': models, 'blobs': blobs})
    print(f'{path}: {path.stat().st_size / 1e6:.1f} MB; open it in a browser')


if __name__ == '__main__':
    run_main(main)

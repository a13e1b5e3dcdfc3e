"""Continue an encoder that people have, as BERT, RoBERTa, ModernBERT or MiniLM, on texts of your own.

    python data.py configs/corpora/folder.py --path=texts --tokenizer=ENCODER --out=corpora/mine
    python examples/continue_encoder.py configs/continue_minilm.py --weights_from=ENCODER \\
        --corpus=corpora/mine

ENCODER is a folder or a hub id that transformers' AutoModelForMaskedLM opens. Rows, masks, schedule, log,
kills and resumes are those of pretrain.py, whose loop this calls. What differs is here: the model, how a run
begins, and what a checkpoint is. That is a folder of the encoder's own kind, with the tokenizer that came
with it, for transformers, sentence-transformers and finetune.py. It needs pip install ".[peers]"."""
import os
import shutil
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

if __name__ == '__main__':  # before torch loads OpenMP, which reads it: waiting threads sleep, not spin
    os.environ.setdefault('OMP_WAIT_POLICY', 'passive')
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))     # the root, where pretrain.py is

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence

import pretrain
from data import OBJECTIVES
from nanoencoder.files import read_json
from nanoencoder.huggingface import Checkpoint, folder_of
from nanoencoder.optimizers import make_optimizer
from nanoencoder.peers import FAMILIES_OF_PEERS, OFFLINE, pad_of
from nanoencoder.pretraining import checkpoint
from nanoencoder.settings import parse, run_main
from nanoencoder.tokenizer import load_tokenizer, one_line


@dataclass(frozen=True)
class Settings(pretrain.Settings):
    """Those of pretrain.py. Sizes are the encoder's; new_head allows one that came without an output head."""
    @property
    def validated(self):
        return [*dict(self.phases)]     # an encoder may be unable to do CLM

    def __post_init__(self):
        if not self.weights_from or self.branch_from:
            raise ValueError('weights_from must name an encoder, and branch_from nothing')
        super().__post_init__()
        if self.parallel != 'ddp' or self.compile or self.recompute:
            raise ValueError('parallel must be ddp here, without compile and recompute')


class MaskedLM(nn.Module):
    """transformers' model with its output head, called as our Model is.

    The head computes logits of the positions that have a target, and of no others: a hook gives it their
    states in place of all. Dropout is off, as in our models."""
    def __init__(self, inner, pad):
        super().__init__()
        self.inner = inner.eval()
        self.pad = pad
        self.chosen = None      # places, in the padded batch, of the states that the head is to read
        inner.base_model.register_forward_hook(self.choose)

    def choose(self, base, inputs, outputs):
        states = outputs[0].flatten(0, 1)
        outputs.last_hidden_state = states[None, self.chosen]    # (1, T, d)

    def forward(self, tokens, segments, targets, causal, at, weights):
        """Return (weighted sum of losses in nats, number of targets) of flat tokens: see Model.forward."""
        texts = tokens.split(segments.ends.diff().tolist())
        padded = pad_sequence(texts, True, self.pad)    # (segments, longest)
        is_text = pad_sequence([torch.ones_like(text) for text in texts], True)
        places = is_text.flatten().nonzero().squeeze(1)     # (N,) of each token, in the padded batch
        self.chosen = places[at]
        attended = is_text
        if causal:
            attended = is_text[:, None, None].bool() & causal_mask(padded.shape[1], tokens.device)
        logits = self.inner(input_ids=padded, attention_mask=attended).logits[0]    # (T, V)
        losses = F.cross_entropy(logits.float(), targets[at], reduction='none')
        return (losses * weights[at]).sum(), len(at)


def causal_mask(length, device):
    """(1, 1, length, length): whether a position, a row, sees another."""
    return torch.ones(1, 1, length, length, dtype=torch.bool, device=device).tril()


def open_inner(folder, cfg):
    """Return transformers' model of a folder. ValueError if it has no output head, and none is to be made."""
    import transformers
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with one_line(folder, 'transformers opens no encoder with an output head there'):
        torch.manual_seed(cfg.seed)     # of a new head
        inner, info = transformers.AutoModelForMaskedLM.from_pretrained(
            folder, dtype=torch.float32, use_safetensors=True, output_loading_info=True, **OFFLINE)
        base = f'{inner.base_model_prefix}.'
        missing = sorted(info['missing_keys'])
        if any(name.startswith(base) for name in missing):
            raise ValueError(f'lacks {missing[0]}: of another model?')
        if missing and not cfg.new_head:
            raise ValueError(f'has no output head ({missing[0]}): to train a new one, take --new_head')
    return inner


def check_causal(model, family):
    """ValueError if, with a causal mask, a model still lets a token see what follows it."""
    def first_losses(last_token):
        tokens = torch.tensor([5, 6, 7, last_token])
        segments = pretrain.make_segments([4], longest=4)
        targets = torch.tensor([6, 7, -100, -100])
        return model(tokens, segments, targets, True, torch.tensor([0, 1]), torch.ones(4))[0]

    with one_line(family, 'has no causal mask, so no causal phase'), torch.no_grad():
        if not torch.equal(first_losses(8), first_losses(9)):
            raise ValueError('does not heed a causal mask, so it can have no causal phase')


def take_weights(cfg, corpus):
    """Return the Origin of a run's first start. ValueError if the encoder or its tokenizer is another."""
    folder = folder_of(cfg.weights_from)
    family = read_json(folder / 'config.json').get('model_type')
    if family not in FAMILIES_OF_PEERS:
        raise ValueError(f'{folder}: model_type {family!r} is no encoder of {", ".join(FAMILIES_OF_PEERS)}; '
                         'decoders and EuroBERT are continued by pretrain.py --weights_from')
    Checkpoint(cfg.weights_from, folder, sizes=None, context=0, state={}).fetch()
    if load_tokenizer(str(folder)).fingerprint() != corpus.meta['tokenizer']:
        raise ValueError(f'{folder} has another tokenizer than the corpus {corpus.folder}; prepare one with '
                         f'data.py ... --tokenizer={cfg.weights_from} --out=...')
    head = ' and a new output head' if cfg.new_head else ''
    return checkpoint.Origin(folder, checkpoint.FRESH, f'weights from {folder}{head}; fresh optimizer')


def start(cfg, corpus, world):
    """Make a run ready, as pretrain.start does."""
    origin = checkpoint.find_origin(cfg, corpus, world, take_weights)
    step = origin.state['step']
    inner = open_inner(origin.folder, replace(cfg, new_head=False) if step else cfg)
    model = MaskedLM(inner, pad_of(inner, corpus.meta['pad_token_id']))
    if any(OBJECTIVES[name].causal for name in dict(cfg.phases)):
        check_causal(model, inner.config.model_type)
    model.to(world.device)
    optimizer = make_optimizer(model, cfg)
    if step:
        checkpoint.read_moments(model, optimizer, origin.folder, step)
    wrapped = model
    if world.size > 1:
        wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)
    count = sum(p.numel() for p in model.parameters())
    return model, wrapped, optimizer, origin.state, f'{origin.how}; {count:,} parameters'


def write_model(source, folder, weights, objective, corpus, cfg):
    """Write the encoder into a folder, and beside it whatever files, but weights, came with it."""
    inner = open_inner(source, replace(cfg, new_head=True))
    tensors = {name.removeprefix('inner.'): tensor for name, tensor in weights.items()}
    _, unexpected = inner.load_state_dict(tensors, strict=False)    # a tied head is missing in them
    assert not unexpected, unexpected
    for path in source.iterdir():
        if path.is_dir() and path.name[0].isdigit():    # as 1_Pooling of sentence-transformers
            shutil.copytree(path, folder / path.name)
        elif path.suffix in ('.json', '.txt', '.model') and path.name != 'state.json':
            shutil.copyfile(path, folder / path.name)
    inner.save_pretrained(folder)
    (folder / 'model.safetensors').chmod(0o644)     # the library lets only its owner read it


def inherited(values):
    """What a run has where its command line says nothing: a name, and the sizes of its encoder."""
    weights = values.get('weights_from', '')
    if not weights:
        return {}
    config = read_json(folder_of(weights) / 'config.json')
    ratio = values.get('mask_ratio', Settings.mask_ratio)
    name = checkpoint.name_of(weights, values.get('phases', ()), ratio)
    return {'name': name, 'vocab_size': config['vocab_size']}


def main():
    cfg, _ = parse(Settings, sys.argv[1:], (), inherited)
    source = folder_of(cfg.weights_from)
    pretrain.train(cfg, start, partial(write_model, source))


if __name__ == '__main__':
    run_main(main)

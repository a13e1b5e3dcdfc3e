"""Continue an existing encoder, such as BERT, RoBERTa, ModernBERT or MiniLM, on texts of your own.

    python data.py configs/corpora/folder.py --path=texts --tokenizer=ENCODER --out=corpora/mine
    python examples/continue_encoder.py configs/continue_minilm.py --weights_from=ENCODER \\
        --corpus=corpora/mine

ENCODER is a folder or a hub id of one of FAMILIES. Rows, masks, schedule, log and resumes are those of
pretrain.py, whose loop this calls. What differs is here: the model, how a run begins, and what a checkpoint
is: a folder of the encoder's own kind, with the tokenizer that came with it, which transformers,
sentence-transformers and finetune.py open. It has no pooler, which MLM does not train.

A row is a stretch of a stream of documents, each of which ends with [SEP]; the encoder reads [CLS] in front
of each of its segments, as it always has. It has no --dry_run, and needs pip install ".[peers]"."""
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
from safetensors import SafetensorError
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pretrain
from data import OBJECTIVES
from model import Sizes
from nanoencoder.files import blame, read_json, whole
from nanoencoder.huggingface import fetch_weights, folder_of, source_of
from nanoencoder.optimizers import make_optimizer
from nanoencoder.peers import (
    TOKENIZER_FILES,
    check_encoder,
    check_ids,
    import_transformers,
    open_by_auto_class,
    pad_of,
    pad_texts,
    positions_of,
    read_settings,
    read_tokenizer,
)
from nanoencoder.pretraining import checkpoint, cost
from nanoencoder.sentence_encoders import FILES as SENTENCE_FILES, read_modules
from nanoencoder.settings import flat, parse, run_main
from nanoencoder.tokenizer import download, is_hub_id, load_tokenizer, one_line

# Of these, tests compare losses with a plain loop of transformers. Others may lack a head for masks, leave
# parameters without a gradient, or have a head that reads more than one position.
FAMILIES = ('albert', 'bert', 'camembert', 'deberta-v2', 'distilbert', 'electra', 'modernbert', 'mpnet',
            'roberta', 'xlm-roberta')
# files that come with an encoder, beside its weights
FILES = ('config.json', *TOKENIZER_FILES, *SENTENCE_FILES,
         'README*', 'LICEN[CS]E*', 'NOTICE*', 'data_config.json')
CAME_WITH = 'came_with'     # the folder, in a run's, of copies of these files
# settings of pretrain.py that this model does not have, or has in its own config.json
NOT_HERE = ('parallel', 'compile', 'recompute', 'fa3', 'initializer_range')


@dataclass(frozen=True)
class Settings(pretrain.Settings):
    """Those of pretrain.py. Sizes are the encoder's; new_head is for one that came without an output head."""
    @property
    def counted_sizes(self):
        """Sizes of one of our models that takes as many operations: where ours has three matrices in an MLP,
        all but ModernBERT's have two."""
        folder = Path(self.out, self.name, CAME_WITH)
        sizes = sizes_in(folder)
        if read_json(folder / 'config.json')['model_type'] == 'modernbert':
            return sizes
        return replace(sizes, intermediate_size=round(sizes.intermediate_size * 2 / 3))

    @property
    def held_out_objectives(self):
        return [*dict.fromkeys(('mlm', *dict(self.phases)))]    # an encoder may be unable to do CLM

    def __post_init__(self):
        if not self.weights_from or self.branch_from:
            raise ValueError('weights_from must name an encoder, and branch_from nothing')
        super().__post_init__()
        for name in NOT_HERE:
            if getattr(self, name) != getattr(pretrain.Settings, name):
                raise ValueError(f'{name} does nothing here: leave it out')


class MaskedLM(nn.Module):
    """transformers' model with its output head, called as our Model is.

    The head computes logits of the positions that have a target, and of no others: before each pass `forward`
    says which, in `target_places`, since a hook takes no arguments of ours. Dropout is off, as in our models.

    meta  what meta.json says of the corpus; its bos token is [CLS]"""
    def __init__(self, inner, meta):
        super().__init__()
        self.inner = inner.eval()
        self.cls_id = meta['bos_token_id']
        self.pad_id = pad_of(inner, meta['pad_token_id'])
        self.target_places = None       # in the padded batch
        inner.base_model.register_forward_hook(self.choose)

    def choose(self, base, inputs, outputs):
        states = outputs.last_hidden_state.flatten(0, 1)
        outputs.last_hidden_state = states[None, self.target_places]    # (1, T, d), also as outputs[0]

    def forward(self, tokens, segments, targets, causal, at, weights):
        """Return (weighted sum of losses in nats, number of targets, number of those that the model holds for
        likeliest) of flat tokens: see Model.forward."""
        first = tokens.new_tensor([self.cls_id])
        lengths = segments.ends.diff().tolist()
        texts = [torch.cat([first, text]) for text in tokens.split(lengths)]
        padded, attended = pad_texts(texts, self.pad_id)    # (segments, 1 + longest)

        is_token = attended.clone()
        is_token[:, 0] = 0      # [CLS] is none of ours
        places, = is_token.flatten().nonzero(as_tuple=True)     # (N,) of each token
        self.target_places = places[at]
        if causal:
            attended = causal_mask(attended)
        outputs = self.inner(input_ids=padded, attention_mask=attended, return_dict=True)
        logits = outputs.logits[0].float()      # (T, V)
        losses = F.cross_entropy(logits, targets[at], reduction='none')
        num_correct = None
        if not torch.is_grad_enabled():
            num_correct = (logits.argmax(1) == targets[at]).sum()
        return (losses * weights[at]).sum(), len(at), num_correct


def causal_mask(attended):
    """Return a (texts, 1, longest, longest) mask: True where a row's position may see a column's. `attended`,
    (texts, longest), is 1 where there is no padding."""
    longest = attended.shape[1]
    square = attended.new_ones(longest, longest, dtype=torch.bool)
    return attended[:, None, None].bool() & square.tril()


def open_inner(folder, seed, new_head):
    """Open transformers' model with its output head, or with a new one where it has none. ValueError if
    weights are missing or too many, or none are missing and a new head is asked for."""
    transformers = import_transformers()
    torch.manual_seed(seed)     # of a new head
    with one_line(folder, 'transformers opens no encoder with an output head there'):
        settings = read_settings(transformers, folder)
        inner, missing, unexpected = open_by_auto_class(transformers.AutoModelForMaskedLM, folder, settings)
        parts = {inner.base_model_prefix, *dict(inner.base_model.named_children())}
        for name in missing + unexpected:
            if name.split('.')[0] in parts:
                how = 'missing' if name in missing else 'unexpected'
                raise ValueError(f'weight {name} is {how}: of another model?')
        if missing and not new_head:
            raise ValueError(f'has no output head ({missing[0]} is missing); to train one, take --new_head')
        if new_head and not missing:
            raise ValueError('has an output head: leave out --new_head')
    return inner


def check_causal(model):
    """ValueError if, with a causal mask, a model still lets a token see what follows it."""
    config = model.inner.config
    refused = f'{config.model_type} cannot have a causal phase'
    with one_line(refused, 'it takes no causal mask'), torch.no_grad():
        if 'sliding_attention' in (getattr(config, 'layer_types', None) or ()):
            raise ValueError('with a causal mask its layers lose their windows')
        losses = []
        for last in (8, 9):
            tokens = torch.tensor([5, 6, 7, last])
            segments = pretrain.make_segments([4], longest=4)
            targets = torch.tensor([6, 7, -100, -100])
            loss, *_ = model(tokens, segments, targets, True, torch.tensor([0, 1]), torch.ones(4))
            losses.append(loss)
        if not torch.equal(*losses):
            raise ValueError('it ignores a causal mask')


def check_family(folder):
    """ValueError unless a folder holds an encoder of FAMILIES."""
    config = read_json(folder / 'config.json')
    family = config.get('model_type')
    if family not in FAMILIES:
        raise ValueError(f'{folder}: model_type {family!r} is none of {", ".join(FAMILIES)}; '
                         'decoders and EuroBERT are continued by pretrain.py --weights_from')
    with one_line(folder):
        check_encoder(config)


def take_weights(cfg, corpus):
    """Return the Origin of a run's first start. ValueError if the encoder or its tokenizer is another."""
    transformers = import_transformers()
    folder = folder_of(cfg.weights_from)
    check_family(folder)
    if is_hub_id(cfg.weights_from):
        of_modules = [f'{subfolder}/*' for _, subfolder in read_modules(folder) if subfolder]
        download(cfg.weights_from, [*FILES, *of_modules], commit=folder.name)
    with one_line(folder):
        theirs, _ = read_tokenizer(transformers, folder, cfg.weights_from)
        check_ids(theirs, read_settings(transformers, folder).vocab_size)
    tokenizer = load_tokenizer(str(folder))
    if tokenizer.fingerprint() != corpus.meta['tokenizer']:
        raise ValueError(f'{folder} has another tokenizer than the corpus {corpus.folder}; prepare one with '
                         f'data.py ... --tokenizer={cfg.weights_from} --out=...')
    if [*theirs.prefix, *theirs.suffix] != [tokenizer.ids['bos'], tokenizer.ids['eos']]:
        raise ValueError(f'{folder}: its tokenizer puts other tokens around a text than those that '
                         'tokenizer_config.json names as cls_token and sep_token')
    fetch_weights(cfg.weights_from, folder)
    source = source_of(cfg.weights_from, folder)
    head = ' and a new output head' if cfg.new_head else ''
    return checkpoint.Origin(folder, checkpoint.FRESH, f'weights from {source}{head}; fresh optimizer')


def start(cfg, corpus, world):
    """Make a run ready, as pretrain.start_run does."""
    origin = checkpoint.find_origin(cfg, corpus, world, take_weights)
    is_first = origin.state['step'] == 0
    world.of_first(lambda: copy_files(origin.folder, Path(cfg.out, cfg.name, CAME_WITH), is_first))
    inner = open_inner(origin.folder, cfg.seed, new_head=cfg.new_head and is_first)
    if is_first:
        sizes = flat(sizes_in(origin.folder))
        checkpoint.refuse_differences(f'{origin.folder}', sizes, flat(cfg), sizes,
                                      'leave it out: sizes come with the encoder')
    positions = positions_of(inner)
    if cfg.context + 1 > positions:
        raise ValueError(f'context {cfg.context}: this encoder has {positions:,} positions, one of them '
                         '[CLS]\'s')
    model = MaskedLM(inner, corpus.meta)
    if any(OBJECTIVES[name].causal for name in dict(cfg.phases)):
        check_causal(model)
    model.to(world.device)
    optimizer = make_optimizer(model, cfg)
    spare_embeddings(model, optimizer)
    checkpoint.read_optimizer(model, optimizer, origin, cfg)
    wrapped = model
    if world.size > 1:
        wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True, broadcast_buffers=False)
    count = cost.numbers_in(model.parameters())
    return model, wrapped, optimizer, origin.state, f'{origin.how}; {count:,} parameters'


def spare_embeddings(model, optimizer):
    """Have no embedding decay. What no text reaches has no gradient: in 10,000 steps at a rate of 5e-4,
    decay would leave 0.6 of what the encoder has learnt of a token or a position."""
    decaying, spared, _ = optimizer.param_groups
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    decaying['name'] = 'other matrices'
    spared['name'] = 'embeddings, gains and biases'
    spared['params'] += [p for p in decaying['params'] if id(p) in tables]
    decaying['params'] = [p for p in decaying['params'] if id(p) not in tables]


def copy_files(folder, target, is_first):
    """Copy, to a folder of the run, what came with an encoder: the tokenizer's files, a sentence encoder's
    modules, its card and licence. Checkpoints take it from there, so that what fails, fails before step 0."""
    if target.exists() and not is_first:
        return
    paths = [path for pattern in FILES for path in folder.glob(pattern)]
    for _, subfolder in read_modules(folder):
        if subfolder:       # else the Transformer's, which is the folder itself
            paths += Path(folder, subfolder).rglob('*')
    with whole(target) as temporary:
        for path in paths:
            if path.is_file():
                copy = temporary / path.relative_to(folder)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)


def write_model(folder, model, weights, objective, corpus, cfg):
    """Write the encoder, and beside it what came with it, into a new folder of a run."""
    shutil.copytree(folder.parent / CAME_WITH, folder, dirs_exist_ok=True)
    with blame(f'{folder}: make room, then run the same command again', SafetensorError):
        model.inner.save_pretrained(folder)
    weights_file = folder / 'model.safetensors'     # which the library lets only its owner read
    content = weights_file.read_bytes()
    weights_file.unlink()
    weights_file.write_bytes(content)


def sizes_of(weights):
    """Return the Sizes of an encoder, by its name or folder."""
    return sizes_in(folder_of(weights))


def sizes_in(folder):
    """Return an encoder's sizes as those of a model of ours, which may have no RoPE and tie its head."""
    check_family(folder)
    with one_line(folder, 'transformers cannot read its config.json'):
        config = read_settings(import_transformers(), folder)
    width = getattr(config, 'intermediate_size', None) or config.hidden_dim     # DistilBERT's name
    heads = config.num_attention_heads
    return Sizes(config.vocab_size, config.hidden_size, width, config.num_hidden_layers, heads, heads)


def main():
    inherited = partial(checkpoint.inherited, Settings, sizes_of=sizes_of)
    cfg, _ = parse(Settings, sys.argv[1:], inherit=inherited)
    pretrain.train(cfg, start, write_model)


if __name__ == '__main__':
    run_main(main)

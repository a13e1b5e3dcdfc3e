"""A run's checkpoints, and where a run begins: at its newest one, another run's, other weights, or nothing.

A checkpoint is a Hugging Face folder with the optimizer's state and state.json beside the weights. It
exists complete or not at all, opens under DDP, FSDP and in any number of processes, and gives back the
same bits."""
import functools
import json
import re
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save as to_bytes

from data import OBJECTIVES, objective_at
from model import Model, Sizes, initial_weight
from nanoencoder import huggingface
from nanoencoder.card import write_card
from nanoencoder.files import (
    blame,
    changed_files,
    read_json,
    remove,
    saved_state,
    saved_steps,
    sha256,
    whole,
    write_sealed,
)
from nanoencoder.optimizers import make_optimizer
from nanoencoder.prepare import compare_shards, open_sealed, read_meta
from nanoencoder.pretraining import cost
from nanoencoder.pretraining.counts import counted_embeddings, counted_steps
from nanoencoder.processes import place_in_node, sharded_as, unsharded
from nanoencoder.settings import flat, leaves, make_settings
from nanoencoder.tokenizer import load_tokenizer

FOLDERS = ('corpus', 'out', 'branch_from', 'weights_from')  # may lie elsewhere on another node
NUMBERS = 'numbers'     # in the metadata of the optimizer's file: those of its state that are not tensors
FRESH = {'step': 0, 'seconds': 0.0, 'starts': []}  # what a run without a checkpoint has of state.json
# a branch may change them, as far as they matter only for later steps
SCHEDULED = ('phases', 'repeat', 'lr', 'warmup_steps', 'decay_steps')


def copy_into(tensor, values):
    """Copy a CPU tensor, which every process has read whole, into a tensor that may be sharded."""
    values = values.to(tensor.device, tensor.dtype)
    tensor.copy_(sharded_as(tensor, values))


@torch.no_grad()
def load_weights(model, origin, cfg, corpus, world):
    """Fill the model with the weights of its origin, and with new ones where that has none."""
    empty = dict(model.named_parameters())
    if origin.folder:
        shapes = {name: p.shape for name, p in empty.items()}
        if cfg.new_head and origin.state['step'] == 0:
            del shapes['lm_head.weight']
        for name, values in huggingface.read_weights(origin.folder, shapes, origin.new_ids):
            copy_into(empty.pop(name), values)
    for name, p in empty.items():
        values = initial_weight(name, p.shape, cfg.seed, cfg.initializer_range)
        if name == 'model.embed_tokens.weight' and cfg.embedding_init == 'counts':
            table, has_one = world.of_first(lambda: counted_embeddings(corpus, cfg))
            values[has_one] = table[has_one]
        copy_into(p, values)


def split_state(model, optimizer):
    """Return ({name.key: tensor}, {name.key: number}): an optimizer's state of each parameter, as it is.
    TypeError if it holds anything else."""
    tensors = {}
    numbers = {}
    for name, p in model.named_parameters():
        for key, value in optimizer.state[p].items():
            if isinstance(value, torch.Tensor):
                tensors[f'{name}.{key}'] = value
            elif type(value) in (int, float, bool):
                numbers[f'{name}.{key}'] = value
            else:
                raise TypeError(f'{key} is a {type(value).__name__}, and not a tensor or a number')
    return tensors, numbers


def check_optimizer(cfg, device):
    """ValueError if a checkpoint could not hold an optimizer's state. One step of a tiny model shows it."""
    with torch.device('meta'):
        tiny = Model(Sizes(vocab_size=2, hidden_size=2, intermediate_size=2, num_hidden_layers=1,
                           num_attention_heads=1, num_key_value_heads=1))
    tiny.to_empty(device=device)
    for p in tiny.parameters():
        torch.nn.init.ones_(p)
        p.grad = torch.ones_like(p)
    with blame(f'optimizer {cfg.optimizer}: no checkpoint could hold its state', TypeError, RuntimeError):
        optimizer = make_optimizer(tiny, cfg)
        before = options_of(optimizer)
        optimizer.step()
        tensors, _ = split_state(tiny, optimizer)
        to_bytes(tensors)
        if options_of(optimizer) != before:     # checkpoints do not hold them: a start takes them from cfg
            raise TypeError('its step changes an option of a group')


def options_of(optimizer):
    """Write an optimizer's options as a text, which a step cannot change afterwards."""
    return str([group | {'params': ()} for group in optimizer.param_groups])


@torch.no_grad()
def read_optimizer(model, optimizer, origin, cfg):
    """Give an optimizer the state in the checkpoint that a run continues, whose sha256 has been compared.
    A run that begins at step 0 continues none."""
    step = origin.state['step']
    if not step:
        return
    parameters = dict(model.named_parameters())
    path = origin.folder / huggingface.MOMENTS
    with safe_open(path, 'pt') as file:
        values = json.loads((file.metadata() or {}).get(NUMBERS, '{}'))
    values |= load_file(path)
    on_device = any(group.get('fused') or group.get('capturable') for group in optimizer.param_groups)
    for entry, value in values.items():
        name, _, key = entry.rpartition('.')    # model.norm.weight.exp_avg
        p = parameters[name]
        placed = value
        if isinstance(value, torch.Tensor) and value.shape == p.shape:
            placed = torch.zeros_like(p, dtype=value.dtype)     # sharded as the parameter is
            copy_into(placed, value)
        elif isinstance(value, torch.Tensor):
            # unless they are fused, torch's optimizers count steps on the CPU
            device = p.device if on_device or key != 'step' else 'cpu'
            placed = value.to(device, copy=True)    # which outlives its file
        optimizer.state[p][key] = placed
    for p, state in optimizer.state.items():
        if 'exp_avg' in state and 'step' not in state:      # AdamW's was not saved by older versions
            state['step'] = torch.tensor(float(step), device=p.device)


def save_checkpoint(run, model, optimizer, step, seconds, corpus, cfg, world, write_model):
    """Have rank 0 write <run>/<step>/ and remove older checkpoints, but for those of `keep` and `save_at`.
    The others wait. FloatingPointError in every process if a weight or a moment is not finite.

    write_model(folder, model, weights, objective, corpus, cfg) writes a model and its tokenizer into a
    folder; weights are the model's, whole and on the CPU."""
    weights = gather(dict(model.named_parameters()), step, world)
    tensors, numbers = split_state(model, optimizer)
    tensors = gather(tensors, step, world)

    if world.rank == 0:
        config = read_json(run / 'config.json')     # written when the run started
        state = {
            'step': step,
            'seconds': seconds,
            'log': sha256(run / 'log.jsonl'),
            'settings': flat(cfg),
            'fixed': fixed(cfg, corpus, world),
            'pretraining': cost.summary(cfg, step, weights),
            # here, too, as config.json has no digest: reports read these two in state.json
            'corpus_meta': config['corpus_meta'],
            'starts': config['starts'],
        }
        with whole(run / str(step)) as folder:
            folder.mkdir()
            write_model(folder, model, weights, objective_at(step - 1, cfg), corpus, cfg)
            of_optimizer = to_bytes(tensors, {NUMBERS: json.dumps(numbers)})
            (folder / huggingface.MOMENTS).write_bytes(of_optimizer)
            files = [path for path in sorted(folder.iterdir())
                     if path.is_file() and not path.name.startswith('README')]  # its owner may edit it
            digests = {path.name: sha256(path) for path in files}
            write_sealed(folder / 'state.json', state | {'sha256': digests})
            write_card(folder)
        remove_older(run, cfg)
    world.sum([0])  # the others wait


def gather(tensors, step, world):
    """Gather {name: tensor} on the CPU of rank 0; elsewhere each is None. They may be sharded: a process
    holds one of them whole at a time. FloatingPointError in every process if a value is not finite."""
    gathered = {}
    finite = []
    for name, tensor in tensors.items():
        full = unsharded(tensor)
        finite.append(full.isfinite().all().to(world.device))
        gathered[name] = full.detach().cpu().contiguous() if world.rank == 0 else None
    if finite and not torch.stack(finite).all():
        raise FloatingPointError(f'step {step}: its update made weights that are not finite')
    return gathered


def fixed(cfg, corpus, world):
    """What fixes the numbers of a run, in JSON's types."""
    numbers = flat(cfg, decides=('results',))
    numbers['dtype'] = world.dtype
    numbers['corpus fingerprint'] = corpus.meta['fingerprint']
    return json.loads(json.dumps(numbers))


@functools.cache
def tokenizer_of(folder):
    """Return the Tokenizer of a corpus, read once: one of Llama 3's size takes a second."""
    return load_tokenizer(str(folder))


def write_model(folder, model, weights, objective, corpus, cfg):
    """Write a Model as a Hugging Face folder, with the corpus's tokenizer. It is written anew: that of an
    older corpus does not end a text with eos."""
    ids = {role: corpus.meta[f'{role}_token_id'] for role in huggingface.ROLES}
    huggingface.write_folder(
        folder, cfg.model, cfg.context, ids, weights,
        initializer_range=cfg.initializer_range,
        objective=objective,
        causal=OBJECTIVES[objective].causal,
        offset=OBJECTIVES[objective].offset)
    tokenizer_of(corpus.folder).save(folder, model_max_length=cfg.context)


def remove_older(run, cfg):
    """Remove a run's checkpoints but for the newest ones and those that are always kept."""
    always_kept = *cfg.save_at, cfg.total_steps
    others = [step for step in saved_steps(run) if step not in always_kept]
    for step in others[:-cfg.keep]:
        hidden = run / f'.{step}.tmp'   # if we are killed meanwhile, the next start removes it
        (run / str(step)).rename(hidden)
        remove(hidden)


class Origin(NamedTuple):
    folder: Path | None    # the checkpoint, None for new weights
    state: dict            # as FRESH
    how: str               # in words
    new_ids: tuple = ()    # tokens that the checkpoint's tokenizer lacked


def find_origin(cfg, corpus, world, take_weights):
    """Return the Origin of a run; take_weights(cfg, corpus) that of one with weights_from, on its first
    start. ValueError if its settings do not allow it."""
    # rank 0 looks for all: it may be the first to see new ones
    run = Path(cfg.out, cfg.name)
    steps = world.of_first(lambda: saved_steps(run))
    numbers = fixed(cfg, corpus, world)
    if steps:
        last = run / str(steps[-1])
        advice = f'remove {last} to go on from the checkpoint before it'
        state = read_training(last, advice, world)
        check_resume(last, state, cfg, numbers)
        origin = Origin(last, state, f'resumed from {last}')
    elif cfg.branch_from:
        parent = world.of_first(lambda: huggingface.newest_checkpoint(cfg.branch_from))
        state = read_training(parent, 'branch from another', world)
        check_branch(parent, state, cfg, numbers)
        begun = FRESH | {'step': state['step']}
        origin = Origin(parent, begun, f'branched from {parent}')
    elif cfg.weights_from:
        origin = take_weights(cfg, corpus)
    else:
        origin = Origin(None, FRESH, 'from scratch')

    alike = flat(cfg) | numbers | {'checkpoint': origin.folder and origin.folder.name}
    # processes that compute different runs would wait for each other forever
    for name, value in world.of_first(lambda: alike).items():
        if name not in FOLDERS and alike[name] != value:
            raise ValueError(f'{cfg.out}: the processes differ in {name}, which is {alike[name]!r:.80} in '
                             'this one: all nodes must read the same files')
    return origin


def read_training(folder, advice, world):
    """Read state.json of a checkpoint to continue, and compare all files with what rank 0 has read there."""
    state = world.of_first(lambda: saved_state(folder, advice))
    number, _ = place_in_node()
    if number == 0:     # a process of each node, which may have a copy of its own
        for name in changed_files(folder, state.get('sha256', {})):
            raise ValueError(f'{folder / name}: missing or changed since it was written; {advice}')
    if not state:
        raise ValueError(f'{folder}: has no state.json, so no training to continue; {advice}')
    return state


def check_resume(last, state, cfg, numbers):
    """ValueError if a setting would change the numbers of a run that has begun, or if its held-out losses
    would be of other rows or masks than those that it has logged."""
    checkpoint = f'the checkpoint {last}'
    advice = 'go on with its setting, or take another --name'
    settings = flat(cfg)
    refuse_differences(checkpoint, recorded(state, cfg), numbers, numbers, advice)
    refuse_differences(checkpoint, state['settings'], settings, ('branch_from', 'weights_from'), advice)
    validated = [start for start in state['starts'] if start.get('val_rows')]
    if cfg.val_rows and validated:
        refuse_differences(f'the log of {last.parent}', validated[-1], settings,
                           ('val_rows', 'val_mask_ratio'), 'go on with it, or with --val_rows=0')


def recorded(state, cfg):
    """Return what fixed the numbers of a checkpoint. A setting that is newer than it was at its default."""
    defaults = {name: field.default for name, field in leaves(type(cfg)).items()}
    return defaults | state['fixed']


def refuse_differences(what, before, now, names, advice):
    """ValueError for the first of these settings that differs between what was recorded and this run."""
    for name in names:
        was = before.get(name)
        if was != now[name]:
            raise ValueError(f'{what} has {name} = {was!r:.80}, this run {now[name]!r:.80}; {advice}')


def check_branch(folder, state, cfg, numbers):
    """ValueError unless this run would have done the same as its parent in every step until the branch:
    then the branch equals the same run from scratch."""
    parent = make_settings(type(cfg), state['settings'])
    step = state['step']
    if step >= cfg.total_steps:
        raise ValueError(f'branch_from {folder} is at step {step}, and this run has {cfg.total_steps}')
    masked = False
    for s in range(step):
        did = objective_at(s, parent), parent.lr_at(s)
        would = objective_at(s, cfg), cfg.lr_at(s)
        if did != would:
            raise ValueError(f'branch_from {folder}: step {s} was {did[0]} at lr {did[1]}, and would be '
                             f'{would[0]} at lr {would[1]} in this run; branch before they differ')
        masked = masked or OBJECTIVES[did[0]].uses_ratio

    free = SCHEDULED
    if not masked:
        free += 'mask_ratio', 'mask_replace'
    names = [name for name in numbers if name not in free]
    refuse_differences(
        f'branch_from {folder}', recorded(state, cfg), numbers, names, 'a branch keeps the numbers')
    if cfg.embedding_init == 'counts' and counted_steps(parent) != counted_steps(cfg):
        raise ValueError(f'branch_from {folder}: its embeddings were counted in {counted_steps(parent)} '
                         f'steps, and would be in {counted_steps(cfg)} of this run')


def take_weights(cfg, corpus):
    """Return the Origin of a run with weights_from. ValueError unless the checkpoint has the run's tokenizer
    and sizes. Its context and rope_theta may change, and tokens may be added; each change is named."""
    checkpoint = huggingface.open_checkpoint(cfg.weights_from, weights=False)
    sizes = checkpoint.sizes
    what = f'weights_from {checkpoint.folder}'
    if checkpoint.has_tokenizer:
        is_same = checkpoint.tokenizer().fingerprint() == corpus.meta['tokenizer']
    else:
        is_same = sizes.vocab_size == corpus.meta['vocab_size']
    if not is_same:
        raise ValueError(f'{what} has another tokenizer than the corpus {corpus.folder}; prepare one with '
                         f'data.py ... --tokenizer={cfg.weights_from} --out=...')

    changes = []
    if checkpoint.context != cfg.context:
        changes.append(f'context {checkpoint.context} -> {cfg.context}')
    for name in leaves(Sizes):
        old = getattr(sizes, name)
        new = getattr(cfg.model, name)
        if old != new:
            may_grow = name == 'vocab_size' and checkpoint.has_tokenizer and old < new
            if name != 'rope_theta' and not may_grow:
                raise ValueError(f'{what} has {name} = {old}, this run {new}')
            changes.append(f'{name} {old} -> {new}')
    for i in checkpoint.new_ids:
        changes.append(f'a row for the mask token {i}')
    if cfg.new_head:
        changes.append('a new output head')
    huggingface.fetch_weights(cfg.weights_from, checkpoint.folder)
    source = huggingface.source_of(cfg.weights_from, checkpoint.folder)
    how = ', '.join([f'weights from {source}', *changes])
    how += f'; fresh optimizer, data from row {cfg.first_row:,}'
    return Origin(checkpoint.folder, FRESH, how, checkpoint.new_ids)


def open_corpus(cfg, world):
    """Return the Corpus of a run. ValueError if it has changed since it was prepared, is too small, or is of
    another tokenizer."""
    corpus = open_sealed(cfg.corpus)
    size = corpus.meta['vocab_size']
    wanted = cfg.model.vocab_size
    has_parent = cfg.branch_from or cfg.weights_from
    if size > wanted or size < wanted and not has_parent:   # some decoders have rows that no token uses
        raise ValueError(f'corpus {cfg.corpus} has vocab_size {size}, this run {wanted}: '
                         f'another tokenizer, or take --vocab_size={size}')
    if not corpus.num_stretches('train', cfg.context):
        raise ValueError(f'corpus {cfg.corpus} has less than one row of {cfg.context} tokens: '
                         f'{corpus.meta["tokens"]:,}')
    if cfg.val_rows and not corpus.num_stretches('validation', cfg.context):
        raise ValueError(f'{corpus.folder} holds out {corpus.meta["val_tokens"]:,} tokens, less than a row '
                         f'of {cfg.context:,}: prepare it with a larger --val_permille and another --out, '
                         'or take --val_rows=0')
    compare_shards(corpus, *place_in_node())    # each node may have a copy of its own
    return corpus


def sizes_of(weights):
    """Return the Sizes of a checkpoint or hub id."""
    return huggingface.open_checkpoint(weights, weights=False).sizes


def inherited(cls, values, sizes_of=sizes_of):
    """Return the settings that a run takes over where `values` does not say otherwise. A run that has begun
    keeps its sizes and its origin. A new one has the sizes of the checkpoint that it begins with, and a name
    that is made of the checkpoint's."""
    known = {name: field.default for name, field in leaves(cls).items()} | values
    parent = known['branch_from']
    weights = known['weights_from']
    named = {'name': known['name']}
    if weights and not known['name']:
        named = {'name': name_of(weights, known['phases'], known['mask_ratio'])}

    run = Path(known['out'], named['name'])
    if named['name'] and saved_steps(run):
        return named | what_it_began_with(run)
    if values.get('dry_run') and cost.is_missing(parent or weights):
        return named    # it counts with the sizes that the settings say
    if parent:
        sizes, _ = huggingface.read_config(huggingface.newest_checkpoint(parent))
        return named | flat(sizes)
    if weights:
        return named | sizes_for(known['corpus'], sizes_of(weights))
    return {}


def what_it_began_with(run):
    """Return the origin and the sizes of a run that has begun."""
    begun = read_json(run / 'config.json')  # not a checkpoint's, which a live run may remove
    kept = 'branch_from', 'weights_from', *leaves(Sizes)
    return {name: begun[name] for name in kept if name in begun}


def sizes_for(corpus, sizes):
    """Return the settings of Sizes with rows for a corpus that has more tokens than the checkpoint: the mask
    token that it may lack."""
    settings = flat(sizes)
    if Path(corpus, 'meta.json').exists():
        settings['vocab_size'] = max(sizes.vocab_size, read_meta(corpus)['vocab_size'])
    return settings


def name_of(weights, phases, mask_ratio):
    """A run's name in the style of the paper's, such as smollm2-135m-mlm40."""
    name = huggingface.run_of_checkpoint(weights).name.lower()
    for objective in re.findall(r'\w+', str(phases)):
        if objective in OBJECTIVES:
            name += f'-{objective}'
            if OBJECTIVES[objective].uses_ratio:
                name += f'{100 * mask_ratio:.0f}'
    return name

"""A run's checkpoints, and where a run begins: its own newest one, another run's, other weights, or nothing.

A checkpoint is a Hugging Face folder with the optimizer's moments and state.json beside the weights. It
is there complete or not at all, opens under DDP, FSDP and in any number of processes, and gives back the
same bits."""
import json
import re
import shutil
import time
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save as to_bytes
from torch.distributed.tensor import DTensor, distribute_tensor

from data import OBJECTIVES, objective_at
from model import Sizes
from nanoencoder import huggingface
from nanoencoder.files import (changed_files, read_json, remove, saved_state, saved_steps, sha256, whole,
                               write_sealed)
from nanoencoder.prepare import open_sealed
from nanoencoder.pretraining.cost import summary
from nanoencoder.settings import build, flat, leaves

FOLDERS = ('corpus', 'out', 'branch_from', 'weights_from')  # may lie elsewhere on another node
NO_TRAINING = 'no state.json, so no training to continue; weights_from needs none'
FRESH = {'step': 0, 'seconds': 0.0, 'starts': []}  # of state.json, which has more
BEFORE = {'optimizer': 'adamw', 'muon_lr_ratio': 6.7, 'initializer_range': 0.02}    # of older checkpoints
SCHEDULED = ('phases', 'repeat', 'lr', 'warmup_steps', 'decay_steps')  # may differ, after the branch


def copy_into(tensor, values):
    """Copy a CPU tensor into a tensor that may be one process's shard; each process has read all of it."""
    values = values.to(tensor.device, tensor.dtype)
    if isinstance(tensor, DTensor):
        values = distribute_tensor(values, tensor.device_mesh, tensor.placements, src_data_rank=None)
    tensor.copy_(values)


@torch.no_grad()
def read_moments(model, optimizer, folder, step):
    parameters = dict(model.named_parameters())
    for path, values in load_file(folder / huggingface.MOMENTS).items():    # compared with its sha256 before
        name, _, key = path.rpartition('.')
        state = optimizer.state[p := parameters[name]]
        copy_into(state.setdefault(key, torch.zeros_like(p)), values)
        if key == 'exp_avg':    # AdamW counts its steps
            device = p.device if optimizer.defaults.get('fused') else None
            state['step'] = torch.tensor(float(step), device=device)


def save(run, model, optimizer, step, seconds, corpus, cfg, world):
    """Have rank 0 write <run>/<step>/ and remove what `keep` and `save_at` do not keep; the others wait.
    FloatingPointError instead, in every process, where a weight or a moment is not finite."""
    tensors, finite = dict(model.named_parameters()), []
    tensors |= {f'{name}.{key}': moment for name, p in model.named_parameters()
                for key, moment in optimizer.state[p].items() if getattr(moment, 'shape', ()) == p.shape}
    for name, tensor in tensors.items():    # which may be sharded: a process holds one of them whole
        full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        finite.append(full.isfinite().all())
        tensors[name] = full.detach().cpu() if world.rank == 0 else None
    if not torch.stack(finite).all():
        raise FloatingPointError(f'step {step}: its update made weights that are not finite')
    error = None
    if world.rank == 0:
        weights = {name: tensors.pop(name) for name, _ in model.named_parameters()}
        config = read_json(run / 'config.json')     # without a digest: reports read these two in state.json
        state = {'step': step, 'seconds': seconds, 'log': sha256(run / 'log.jsonl'), 'settings': flat(cfg),
                 'fixed': fixed(cfg, corpus, world), 'pretraining': summary(cfg, step, weights),
                 'corpus_meta': config['corpus_meta'], 'starts': config['starts']}
        try:
            write(run, weights, tensors, state, corpus, cfg)
        except OSError as caught:
            error = caught
    if world.sum([error is not None])[0]:   # for which the others wait
        raise error or SystemExit(1)        # rank 0 says why


def fixed(cfg, corpus, world):
    """What fixes the numbers of a run, in JSON's types."""
    numbers = flat(cfg, fixes=('numbers',)) | {'dtype': world.dtype}
    return json.loads(json.dumps(numbers | {'corpus fingerprint': corpus.meta['fingerprint']}))


def write(run, weights, remembered, state, corpus, cfg):
    step, objective = state['step'], objective_at(state['step'] - 1, cfg)
    ids = {role: corpus.meta[f'{role}_token_id'] for role in ('bos', 'eos', 'pad', 'mask')}
    with whole(run / str(step)) as folder:
        folder.mkdir()
        huggingface.save(folder, cfg.model, cfg.context, ids, weights, objective=objective,
                         initializer_range=cfg.initializer_range)
        (folder / huggingface.MOMENTS).write_bytes(to_bytes(remembered))
        for name in ('tokenizer.json', 'tokenizer_config.json'):
            shutil.copyfile(corpus.folder / name, folder / name)
        digests = {path.name: sha256(path) for path in sorted(folder.iterdir())}
        write_sealed(folder / 'state.json', state | {'sha256': digests})
    others = [step for step in saved_steps(run) if step not in (*cfg.save_at, cfg.total_steps)]
    for step in others[:-cfg.keep]:
        remove((run / str(step)).rename(run / f'.{step}.tmp'))


class Origin(NamedTuple):
    folder: Path | None    # the checkpoint, None for new weights
    state: dict            # as FRESH
    how: str               # in words
    new_ids: tuple = ()    # tokens that the checkpoint's tokenizer lacked


def find_origin(cfg, corpus, world, lr_at):
    """The Origin of a run, compared with its settings; lr_at(step, cfg) -> learning rate."""
    def find():
        if steps := saved_steps(Path(cfg.out, cfg.name)):
            last = Path(cfg.out, cfg.name, str(steps[-1]))
            advice = f'remove {last} to go on from the checkpoint before it'
            state = huggingface.read_state(last, advice=advice)
            if not state:
                raise ValueError(f'{last}: has no state.json; {advice}')
            return last, None, state
        parent = huggingface.newest_checkpoint(cfg.branch_from) if cfg.branch_from else None
        state = parent and huggingface.read_state(parent, advice='branch from another')
        if state == {}:
            raise ValueError(f'{parent}: {NO_TRAINING}')
        return None, parent, state
    last, parent, state = world.of_first(find)  # which compares files, and may alone see the newest
    numbers = fixed(cfg, corpus, world)
    if last:
        refuse_differences(f'the checkpoint {last}', state, numbers, numbers,
                           'go on with its setting, or take another --name')
        for name in ('branch_from', 'weights_from'):
            if getattr(cfg, name) != (was := state['settings'][name]):
                raise ValueError(f'{name}: {last.parent} was begun with {was or "none"}: see --name')
        check_validation(last.parent, state, cfg)
        origin = Origin(last, state, f'resumed from {last}')
    elif parent:
        check_branch(parent, state, cfg, numbers, lr_at)
        origin = Origin(parent, state | {'seconds': 0.0, 'log': '', 'starts': []}, f'branched from {parent}')
    elif cfg.weights_from:
        origin = take_weights(cfg, corpus)
    else:
        origin = Origin(None, FRESH, 'from scratch')
    alike = flat(cfg) | numbers | {'checkpoint': origin.folder and origin.folder.name}
    for name, value in world.of_first(lambda: alike).items():  # else exchanges may not meet
        if name not in FOLDERS and alike[name] != value:
            raise ValueError(f'{cfg.out}: the processes differ in {name}, which is {alike[name]!r:.80} in '
                             'this one: all nodes must read the same files')
    return origin


def check_validation(run, state, cfg):
    """ValueError if held-out losses would be of other rows or masks than those that the run has logged."""
    validated = [start for start in state.get('starts', ()) if start.get('val_rows')]
    if not cfg.val_rows or not validated:
        return
    for name in ('val_rows', 'val_mask_ratio'):
        was = validated[-1][name]
        if getattr(cfg, name) != was:
            raise ValueError(f'{name}: the held-out losses of {run} are of {was}: go on with it, or with '
                             '--val_rows=0')


def refuse_differences(what, state, numbers, names, advice):
    for name in names:
        if (was := state['fixed'].get(name, BEFORE.get(name))) != numbers[name]:
            raise ValueError(f'{what} has {name} = {was!r}, this run {numbers[name]!r}; {advice}')


def check_branch(folder, state, cfg, numbers, lr_at):
    """A branch equals the same run from scratch if until then both did the same in every step."""
    parent = build(type(cfg), state['settings'] | {'save_at': ()})     # older ones may lie beyond its end
    step, masked = state['step'], False
    if step >= cfg.total_steps:
        raise ValueError(f'branch_from {folder} is at step {step}, and this run has {cfg.total_steps}')
    for s in range(step):
        did, would = ((objective_at(s, run), lr_at(s, run)) for run in (parent, cfg))
        masked |= OBJECTIVES[would[0]].uses_ratio
        if did != would:
            raise ValueError(f'branch_from {folder}: step {s} was {did[0]} at lr {did[1]}, and would be '
                             f'{would[0]} at lr {would[1]} in this run; branch before they differ')
    free = SCHEDULED if masked else (*SCHEDULED, 'mask_ratio', 'mask_replace')
    refuse_differences(f'branch_from {folder}', state, numbers,
                       [name for name in numbers if name not in free], 'a branch keeps the numbers')


def take_weights(cfg, corpus):
    """The Origin of a run with weights_from: all but context, rope_theta and new rows must be the run's."""
    checkpoint = huggingface.open_checkpoint(cfg.weights_from, weights=False)
    what, sizes, meta = f'weights_from {checkpoint.folder}', checkpoint.sizes, corpus.meta
    if (checkpoint.tokenizer().fingerprint() != meta['tokenizer'] if checkpoint.has_tokenizer
            else sizes.vocab_size != meta['vocab_size']):
        raise ValueError(f'{what} has another tokenizer than the corpus {corpus.folder}; prepare one with '
                         f'data.py ... --tokenizer={cfg.weights_from} --out=...')
    changes = [f'context {checkpoint.context} -> {cfg.context}'] * (checkpoint.context != cfg.context)
    for name in ('head_size', *leaves(Sizes)):
        old, new = getattr(sizes, name), getattr(cfg.model, name)
        grows = name == 'vocab_size' and checkpoint.has_tokenizer and old < new
        if old != new and (name == 'rope_theta' or grows):
            changes.append(f'{name} {old} -> {new}')
        elif old != new and name != 'head_dim':
            raise ValueError(f'{what} has {name} = {old}, this run {new}')
    changes += [f'a row for the mask token {i}' for i in checkpoint.new_ids]
    changes += ['a new output head'] * cfg.new_head
    checkpoint.fetch()
    how = f'{", ".join([f"weights from {checkpoint.folder}", *changes])}; fresh optimizer, data from row '
    return Origin(checkpoint.folder, FRESH, f'{how}{cfg.first_row:,}', checkpoint.new_ids)


def open_corpus(cfg, world):
    """The Corpus of a run. ValueError if it has changed since it was prepared, is too small, or is another
    tokenizer's."""
    corpus, wanted = open_sealed(cfg.corpus), cfg.model.vocab_size
    size = corpus.meta['vocab_size']
    has_parent = cfg.branch_from or cfg.weights_from or saved_steps(Path(cfg.out, cfg.name))
    if size != wanted and not (has_parent and size < wanted):  # some decoders have rows that no token uses
        raise ValueError(f'corpus {cfg.corpus} has vocab_size {size}, this run {wanted}: another tokenizer')
    advice = ': prepare it with a larger val_permille, or take --val_rows=0'
    for split, name, advice in (('train', 'tokens', ''), ('validation', 'val_tokens', advice)):
        if not corpus.num_stretches(split, cfg.context) and (split == 'train' or cfg.val_rows):
            raise ValueError(f'corpus {cfg.corpus} has {corpus.meta[name]:,} {name}, less than one row of '
                             f'{cfg.context}{advice}')
    compare_shards(corpus, world)
    return corpus


def compare_shards(corpus, world):
    """Compare all shards with their sha256, a part of them in each process. All stop if one has changed."""
    began = time.monotonic()
    shards = corpus.meta['shards'] + corpus.meta['val_shards']
    share = {shard['name']: shard['sha256'] for shard in shards[world.rank::world.size]}
    changed = changed_files(corpus.folder / 'meta.json', share)
    flags = world.sum([int(shard['name'] in changed) for shard in shards])
    if any(flags):
        if world.rank > 0:
            raise SystemExit(2)     # rank 0 says why
        path = corpus.folder / shards[flags.index(1)]['name']
        raise ValueError(f'{path}: changed since it was written; prepare the corpus again')
    if world.rank == 0:
        size = sum((corpus.folder / shard['name']).stat().st_size for shard in shards)
        print(f'{corpus.folder}: compared {size / 1e6:,.1f} MB of tokens with their sha256 in '
              f'{time.monotonic() - began:.1f} s')


def inherited(cls, values):
    """Settings of a run with branch_from or weights_from: the sizes of what it begins with, and a name."""
    said = {name: field.default for name, field in leaves(cls).items()} | values
    name, weights, begun = said['name'], said['weights_from'], {}
    if weights and not name:  # in the paper's style: smollm2-135m-mlm40
        ratio, name = f'{100 * said["mask_ratio"]:.0f}', huggingface.run_of(weights).name.lower()
        for objective in filter(OBJECTIVES.get, re.findall(r'\w+', str(said['phases']))):
            name += f'-{objective}{ratio * OBJECTIVES[objective].uses_ratio}'
    if name and saved_steps(Path(said['out'], name)):  # which a live run may remove, but not its config.json
        settings = read_json(Path(said['out'], name, 'config.json'))
        begun = {key: settings[key] for key in ('branch_from', 'weights_from')}     # it stays a branch
        if not any(begun.values()):
            return {}
    elif said['branch_from']:
        parent = huggingface.newest_checkpoint(said['branch_from'])
        state = saved_state(parent, 'branch from another')
        if not state:
            raise ValueError(f'{parent}: {NO_TRAINING}')
        settings = state['settings']
    elif weights:
        settings = flat(huggingface.open_checkpoint(weights, weights=False).sizes)
        meta = Path(said['corpus'], 'meta.json')
        if meta.exists():  # the corpus may have a mask token that the checkpoint lacks
            settings['vocab_size'] = max(settings['vocab_size'], read_json(meta)['vocab_size'])
    else:
        return {}
    return {'name': name} | begun | {size: settings[size] for size in leaves(Sizes)}

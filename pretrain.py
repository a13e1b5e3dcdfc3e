"""Pretrain with CLM, MLM, MNTP or any sequence of them; from scratch, from another run, or from weights.

    python pretrain.py configs/tiny.py                                    # a laptop; the same command resumes
    torchrun --nproc_per_node=8 pretrain.py configs/610m_clm.py           # one node; README: several
    python pretrain.py configs/610m_clm.py --dry_run --world_size=192     # what a run will be
    python pretrain.py configs/610m_clm_mlm.py --branch_from=out/610m-clm-42k/10000

Writes out/<name>/log.jsonl, out/<name>/config.json and checkpoints out/<name>/<step>/. `--tracker=tensorboard` or
`wandb` also sends the log there. SIGTERM and Ctrl-C finish the step, save, and exit 0.
"""
import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import json
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from nanoencoder import settings as configs
from nanoencoder import cost
from nanoencoder import huggingface
import model as architecture
from data import (OBJECTIVES, SHORTEST, Corpus, Loader, locked, objective, read_json, rows_at_once, sha256, sync,
                  validation_batches, write_json)
from nanoencoder.tokenizer import load_tokenizer


@dataclass(frozen=True)
class Settings:
    name: str = ''                  # of the run, whose folder is <out>/<name>; empty with weights_from: named after them
    corpus: str = 'corpora/fineweb_edu'  # a folder that data.py wrote
    phases: tuple = (('clm', 42_000),)  # (objective, steps), one after the other; paper, section 2
    # the model (paper, appendix A: the 610M)
    vocab_size: int = 128_256       # the corpus's
    hidden_size: int = 1_152
    intermediate_size: int = 4_096  # of SwiGLU
    num_hidden_layers: int = 26
    num_attention_heads: int = 18
    num_key_value_heads: int = 6
    rope_theta: float = 10_000.0
    rms_norm_eps: float = 1e-5
    tie_word_embeddings: bool = False  # as in the authors' code
    head_dim: int = 0               # 0: hidden_size / num_attention_heads
    attention_bias: bool = False    # of q, k, v and o, as decoders of Qwen2's kind have
    qk_norm: bool = False           # of each head, before the rotation, as in Qwen3
    rope_scaling: tuple = ()        # Llama 3.1's: factor, low and high frequency factor, original context
    # the data (paper, section 2 and footnote 6)
    context: int = 2_048            # tokens in a row
    cut_rows: bool = True           # each row in two, at a uniform place: segments of 12 to 2,048, mean 1,024
    rows_per_step: int = 1_152      # in all processes: 192 GPUs x 6 rows = 2,359,296 tokens (appendix A)
    mask_ratio: float = 0.4         # of MLM and MNTP; the paper's choice for 610M from 0.2, 0.3, 0.4, 0.5
    mask_replace: tuple = (1.0, 0.0, 0.0)  # masked tokens become mask, random, stay; BERT: 0.8, 0.1, 0.1
    first_row: int = 0              # of step 0 in the data; continued pretraining goes on behind its parent
    seed: int = 0                   # of the initial weights, the order of the data, cuts and masks
    # the optimiser: AdamW, and warm-up, stable, decay (paper, section 2 and appendix A)
    lr: float = 5e-4                # at its peak
    warmup_steps: int = 2_000
    decay_steps: int = 2_000        # the last ones: 5 % of 42,000, and 2,000 at every other length
    weight_decay: float = 0.1       # on matrices only
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-5
    grad_clip: float = 1.0          # the gradient's norm
    # what may change between one start of a run and the next
    micro_rows: int = 6             # rows a process computes at once, accumulation follows; 0: all it has
    log_every: int = 10             # steps; the loss is their mean, the gradient's norm the last
    val_every: int = 1_000          # steps; 0: only at the end
    val_rows: int = 512             # held-out rows, the same ones each time; 0: no validation
    save_every: int = 1_000         # steps; 0: only at the end
    save_at: tuple = ()             # steps whose checkpoints are always kept
    keep: int = 2                   # newest other checkpoints kept
    parallel: str = 'ddp'           # or fsdp, which shards weights, gradients and optimiser
    device: str = 'auto'            # cuda, else mps, else cpu
    dtype: str = 'auto'             # of the arithmetic: bf16 where CUDA has it, else fp32; weights are fp32
    compile: bool = False           # torch.compile what stands around attention
    recompute: bool = False         # activations in the backward pass: less memory, a third more time
    branch_from: str = ''           # another run's checkpoint to continue, optimiser and data position too
    weights_from: str = ''          # a checkpoint or hub id to take weights, and sizes that are not set, of; at step 0
    new_head: bool = False          # with weights_from: begin with a new output head, which a checkpoint may lack
    out: str = 'out'                # folder of all runs

    def __post_init__(self):
        """Refuse bad values; each message begins with the setting's name, so that `configs` can say where it is."""
        if len(self.phases) == 2 and isinstance(self.phases[0], str):
            object.__setattr__(self, 'phases', (self.phases,))  # a flat pair is one phase
        if not self.phases or not all(
                isinstance(phase, tuple) and len(phase) == 2 and phase[0] in OBJECTIVES
                and type(phase[1]) is int and phase[1] > 0 for phase in self.phases):
            raise ValueError(f'phases must be (objective, steps) pairs such as (("clm", 10), ("mlm", 32)), '
                             f'objective one of {", ".join(OBJECTIVES)}, not {self.phases!r}')
        if not self.name or '/' in self.name or self.name.startswith('.'):
            raise ValueError(f'name must be that of a folder in {self.out}, not {self.name!r}; a config sets it, or --name')
        for name, options in (('parallel', ('ddp', 'fsdp')), ('device', ('auto', 'cpu', 'cuda', 'mps')),
                              ('dtype', ('auto', 'fp32', 'bf16'))):
            if getattr(self, name) not in options:
                raise ValueError(f'{name} is one of {", ".join(options)}, not {getattr(self, name)!r}')
        shortest = 2 * SHORTEST if self.cut_rows else 2
        for low, high, names in (
                (1, math.inf, ('rows_per_step', 'log_every', 'keep', 'rope_theta', *SIZES[:6])),
                (0, math.inf, ('lr', 'weight_decay', 'rms_norm_eps', 'eps', 'val_every', 'val_rows',
                               'save_every', 'micro_rows', 'first_row')),
                (0, 1, ('beta1', 'beta2')), (1e-9, 1, ('mask_ratio',)), (1e-9, math.inf, ('grad_clip',)),
                (0, 2 ** 63 - 1, ('seed',)), (0, self.total_steps, ('decay_steps', 'warmup_steps')),
                (shortest, math.inf, ('context',))):
            for name in names:
                if not low <= getattr(self, name) <= high or getattr(self, name) == math.inf:
                    wanted = f'at least {low}' if high == math.inf else f'from {low} to {high}'
                    raise ValueError(f'{name} must be {wanted}, not {getattr(self, name)}')
        if not (len(self.mask_replace) == 3 and all(type(x) in (int, float) and x >= 0 for x in self.mask_replace)
                and math.isclose(sum(self.mask_replace), 1)):
            raise ValueError(f'mask_replace must be three shares that sum to 1, not {self.mask_replace!r}')
        if not all(type(step) is int for step in self.save_at):
            raise ValueError(f'save_at must be a tuple of steps, not {self.save_at!r}')
        if self.branch_from and self.weights_from:
            raise ValueError('branch_from excludes weights_from: a branch has its parent\'s')
        if self.new_head and not self.weights_from:
            raise ValueError('new_head belongs to weights_from')
        if self.new_head and self.tie_word_embeddings:
            raise ValueError('new_head excludes tie_word_embeddings, where the embedding is the head')
        sizes_of(self, dict.fromkeys(ROLES, 0))  # which refuses sizes that make no model

    @property
    def total_steps(self):
        return sum(steps for _, steps in self.phases)


SIZES = tuple(field.name for field in dataclasses.fields(architecture.Sizes) if hasattr(Settings, field.name))
ROLES = ('bos_token_id', 'eos_token_id', 'pad_token_id', 'mask_token_id')
FIXED = (*SIZES, 'phases', 'context', 'cut_rows', 'rows_per_step', 'mask_ratio', 'mask_replace', 'first_row',
         'seed', 'lr', 'warmup_steps', 'decay_steps', 'weight_decay', 'beta1', 'beta2', 'eps', 'grad_clip')


def lr_at(step, cfg):
    """Warm-up, stable, decay: the least of three lines, as a function of the step, counted from 0."""
    warmup = (step + 1) / cfg.warmup_steps if cfg.warmup_steps else 1.0
    decay = (cfg.total_steps - step) / cfg.decay_steps if cfg.decay_steps else 1.0
    return cfg.lr * min(warmup, 1.0, decay)


# ----------------------------------------------------------------------------------------------- processes

@dataclass(frozen=True)
class World:
    rank: int
    size: int
    device: torch.device
    dtype: str     # bf16 or fp32

    def sum(self, integers):
        """A list of ints summed over processes. On the CPU, so that no GPU waits for it."""
        if self.size == 1:
            return integers
        total = torch.tensor(integers, dtype=torch.int64)
        dist.all_reduce(total)
        return total.tolist()

    def sum_tensor(self, tensor):
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def barrier(self):
        self.sum([0])

    def autocast(self):
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.dtype == 'bf16')


def pick_device(device='auto', dtype='auto', processes=1):
    """(torch.device, bf16 or fp32) of this process, LOCAL_RANK among those of its machine."""
    available = {'cuda': torch.cuda.is_available(), 'mps': torch.backends.mps.is_available(), 'cpu': True}
    if device == 'auto':
        device = next(name for name, there in available.items() if there and (name != 'mps' or processes == 1))
    if not available[device]:
        raise ValueError(f'device {device}: torch finds none here; take --device=cpu, or leave --device out')
    if device == 'mps' and processes > 1:
        raise ValueError('device mps: serves one process; take --device=cpu for several')
    has_bf16 = device == 'cpu' or device == 'cuda' and torch.cuda.is_bf16_supported(including_emulation=False)
    if dtype == 'auto':
        dtype = 'bf16' if device == 'cuda' and has_bf16 else 'fp32'
    if dtype == 'bf16' and not has_bf16:
        raise ValueError(f'dtype bf16: this {device} has no bf16 arithmetic; take --dtype=fp32')
    if device == 'cuda':
        device = f'cuda:{int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count()}'  # runs of a grid may share one
        torch.cuda.set_device(device)
        if dtype == 'bf16':
            torch.set_float32_matmul_precision('high')  # TF32 for what autocast leaves in fp32
    return torch.device(device), dtype


@contextlib.contextmanager
def processes(device='auto', dtype='auto'):
    """The World this process is part of: torchrun's, or alone."""
    rank, size = int(os.environ.get('RANK', 0)), int(os.environ.get('WORLD_SIZE', 1))
    device, dtype = pick_device(device, dtype, size)
    if size > 1:
        dist.init_process_group('cpu:gloo,cuda:nccl' if device.type == 'cuda' else 'gloo')
    try:
        yield World(rank, size, device, dtype)
    finally:
        if size > 1:
            time.sleep(0.5)  # gloo's thread needs the GIL, which the teardown holds, to drop its last work: else a deadlock
            dist.destroy_process_group()


@contextlib.contextmanager
def stop_signals():
    """A list that SIGTERM and SIGINT grow; nothing else happens on them."""
    received = []
    before = {number: signal.signal(number, lambda number, frame: received.append(number))
              for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# ------------------------------------------------------------------------------------- model and optimiser

def sizes_of(cfg, meta):
    """model.Sizes of a run; the special ids are those of a corpus's meta.json."""
    return architecture.Sizes(max_position_embeddings=cfg.context, **{name: getattr(cfg, name) for name in SIZES},
                              **{name: meta[name] for name in ROLES})


def empty_model(cfg, meta):
    """The model without memory."""
    with torch.device('meta'):
        return architecture.Model(sizes_of(cfg, meta))


def build(cfg, meta, world):
    """(model, the same wrapped for this world), the weights still empty."""
    model = empty_model(cfg, meta)
    model.model.recompute = cfg.recompute
    if world.size > 1 and cfg.parallel == 'fsdp':
        mesh = dist.init_device_mesh(world.device.type, (world.size,))
        for part in (*model.model.layers, model):
            fully_shard(part, mesh=mesh)
    model.to_empty(device=world.device)
    if cfg.compile:
        model.compile_layers()
    if world.size > 1 and cfg.parallel == 'ddp':
        return model, DistributedDataParallel(model, gradient_as_bucket_view=True, init_sync=False)
    return model, model


def make_optimizer(model, cfg, world):
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [{'params': matrices, 'weight_decay': cfg.weight_decay}, {'params': vectors, 'weight_decay': 0.0}]
    return torch.optim.AdamW(groups, lr=cfg.lr, betas=(cfg.beta1, cfg.beta2), eps=cfg.eps,
                             fused=world.device.type != 'mps')


# --------------------------------------------------------------------------------------------- checkpoints

def put(tensor, whole):
    """Copy a whole CPU tensor into a tensor that may be one process's shard."""
    whole = whole.to(tensor.device, tensor.dtype)
    if isinstance(tensor, DTensor):
        whole = distribute_tensor(whole, tensor.device_mesh, tensor.placements)
    tensor.copy_(whole)


def gather(tensors, rank):
    """{name: whole CPU tensor} on rank 0, of tensors that may be sharded; the others see one of them at a time."""
    gathered = {}
    for name, tensor in tensors.items():
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if rank == 0:
            gathered[name] = whole.detach().cpu()
    return gathered


def moments(model, optimizer):
    """{'<parameter>.exp_avg', '<parameter>.exp_avg_sq': tensor}: all that AdamW remembers, but for the step."""
    return {f'{name}.{key}': optimizer.state[p][key]
            for name, p in model.named_parameters() for key in ('exp_avg', 'exp_avg_sq')}


@torch.no_grad()
def read_into(tensors, path):
    """Fill {name: tensor} from a safetensors file that holds exactly these."""
    names = {name: name for name in tensors}
    if set(huggingface.names_in(path)) != set(names):
        raise ValueError(f'{path}: does not hold the tensors of this run')
    huggingface.check_shapes(path, {name: tensor.shape for name, tensor in tensors.items()}, names)
    for name, whole in huggingface.read_tensors(path, names):
        put(tensors[name], whole)


def save_checkpoint(folder, model, optimizer, state, corpus, cfg, world):
    """Write a complete checkpoint or none: a temporary folder, synced, renamed. Every process calls this."""
    temporary = folder.with_name(f'.{folder.name}.tmp')
    weights = gather(dict(model.named_parameters()), world.rank)
    if world.rank == 0:
        architecture.save(model.sizes, weights, temporary, objective=objective(cfg.phases, state['step'] - 1))
    del weights
    remembered = gather(moments(model, optimizer), world.rank)
    if world.rank == 0:
        save_file(remembered, temporary / 'optimizer.safetensors')
        for name in ('tokenizer.json', 'tokenizer_config.json'):
            shutil.copyfile(corpus.folder / name, temporary / name)
        files = sorted(temporary.iterdir())
        write_json(temporary / 'state.json', state | {'sha256': {path.name: sha256(path) for path in files}})
        huggingface.write_card(temporary, *model_card(model, state, corpus, cfg))  # for people to edit: has no sha256
        for path in (*files, temporary / 'README.md', temporary):
            sync(path)
        temporary.rename(folder)
        sync(folder.parent)
    world.barrier()


def model_card(model, state, corpus, cfg):
    """(front matter, text) of a checkpoint's README.md."""
    done, data = state['step'], corpus.meta['settings']
    masked = any(kind != 'clm' for kind, _ in cfg.phases)
    fills = objective(cfg.phases, done - 1) == 'mlm' and not cfg.qk_norm
    front = {'library_name': 'transformers', 'pipeline_tag': 'fill-mask' if fills else 'feature-extraction'}
    front |= {'base_model': state['base_model']} if state['base_model'] else {}
    phases = ', then '.join(f'{steps:,} steps of {kind.upper()}' for kind, steps in cfg.phases)
    path = Path(data['path']).name if data['source'] == 'folder' else data['path']  # of the hub: its name there
    use = "pipeline('fill-mask', '<this folder>')" if fills else "AutoModel.from_pretrained('<this folder>')"
    note = '' if objective(cfg.phases, done - 1) != 'mntp' else (
        ' Trained with MNTP: what a masked token is, the position before it says.')
    note += '' if not cfg.qk_norm else (
        ' The class is a decoder\'s, for only that has norms of q and k: `is_causal` in config.json takes its causal mask '
        'away, which older versions ignore. Masks are filled by nanoEncoder\'s `model.py`.')
    return front, f"""
# {cfg.name}, step {done:,} of {cfg.total_steps:,}

{"A bidirectional encoder" if masked else "A transformer trained causally, which opens as a bidirectional encoder"} of
{sum(p.numel() for p in model.parameters()):,} parameters, trained with nanoEncoder.

| | |
|---|---|
| begun | {state['origin']} |
| phases | {phases}{f'; {cfg.mask_ratio:.0%} of the tokens masked' if masked else ''} |
| data | {' '.join(filter(None, (data['source'], path, data['subset'])))} |
| tokens | {done * cfg.rows_per_step * cfg.context:,}, in rows of {cfg.context:,} |

Opens in transformers 5 or newer, without remote code: `{use}`.{note}
"""


def prune(run, cfg):
    """Remove all but the newest `keep` checkpoints; those of save_at and of the last step stay."""
    for step in [step for step in huggingface.saved_steps(run) if step not in (*cfg.save_at, cfg.total_steps)][:-cfg.keep]:
        (run / str(step)).rename(run / f'.{step}.tmp')
        shutil.rmtree(run / f'.{step}.tmp')


def read_state(folder, world):
    """A checkpoint's state.json, after rank 0 has compared the files with the sha256 it gives."""
    path = folder / 'state.json'
    if not path.exists():
        raise ValueError(f'{folder}: has no state.json, so no training to continue; weights_from takes weights')
    state = {'base_model': '', 'origin': 'unknown'} | read_json(path)
    wanted = {'step', 'seconds', 'recent', 'fixed', 'settings', 'sha256'}
    if not wanted <= state.keys() or folder.name != str(state['step']):
        raise ValueError(f'{path}: not the state of a run, or not of the step its folder is named after')
    for name, digest in state['sha256'].items() if world.rank == 0 else ():
        if not (folder / name).exists() or sha256(folder / name) != digest:
            raise ValueError(f'{folder / name}: missing, cut short or changed since it was written (its sha256 '
                             f'differs); remove {folder} to go on from the checkpoint before it')
    before = {name: getattr(Settings, name) for name in SIZES}  # of sizes that a checkpoint is too old to know
    return state | {'fixed': json.loads(json.dumps(before)) | state['fixed']}


# -------------------------------------------------------------------------------------- where a run begins

def fixed(cfg, corpus, world):
    """What fixes the numbers of a run, in JSON's types: equal whenever it resumes."""
    values = {name: getattr(cfg, name) for name in FIXED}
    values |= {'dtype': world.dtype, 'corpus fingerprint': corpus.meta['fingerprint']}
    return json.loads(json.dumps(values))


def refuse_differences(what, theirs, ours, names, advice):
    for name in names:
        if theirs.get(name) != ours[name]:
            raise ValueError(f'{what} has {name} = {theirs.get(name)!r}, this run {ours[name]!r}; {advice}')


def check_branch(folder, state, cfg, ours):
    """A branch equals the same run from scratch if until then both did the same in every step."""
    theirs, step = state['fixed'], state['step']
    if step >= cfg.total_steps:
        raise ValueError(f'branch_from {folder} is at step {step}, and this run has {cfg.total_steps}: nothing is left')
    scheduled = ('phases', 'lr', 'warmup_steps', 'decay_steps')
    parent = dataclasses.replace(cfg, **{name: theirs[name] for name in scheduled} |
                                 {'phases': tuple(map(tuple, theirs['phases']))})
    for s in range(step):
        did = f'{objective(parent.phases, s)} at lr {lr_at(s, parent)}'
        would = f'{objective(cfg.phases, s)} at lr {lr_at(s, cfg)}'
        if did != would:
            raise ValueError(f'branch_from {folder}: step {s} was {did}, and would have been {would} in this run; '
                             'branch before they differ (and before the decay)')
    unmasked = all(objective(cfg.phases, s) == 'clm' for s in range(step))
    free = (*scheduled, *(('mask_ratio', 'mask_replace') if unmasked else ()))
    refuse_differences(f'branch_from {folder}', theirs, ours, [name for name in ours if name not in free],
                       'a branch goes on with the same numbers')


def base_model(name):
    """The hub id that a checkpoint's weights come from in the end, '' if none is known; `name` is a folder or a hub id."""
    if huggingface.is_hub_id(name):
        return name
    state = huggingface.newest_checkpoint(name) / 'state.json'
    return read_json(state).get('base_model', '') if state.exists() else ''


def described(folder, name):
    """A checkpoint in words that hold on other machines, too: the hub id, or the run and step."""
    if huggingface.is_hub_id(name):
        return name
    return f'{folder.parent.name}, step {int(folder.name):,}' if folder.name.isdigit() else folder.name


class Origin(NamedTuple):
    """What a run begins with."""
    folder: Path | None    # the checkpoint, None for new weights
    state: dict            # as in state.json
    how: str               # in words
    new_ids: tuple = ()    # tokens that the checkpoint's tokenizer lacked


def own_checkpoint(out, name):
    """The newest checkpoint of the run itself, None if it has none yet."""
    steps = huggingface.saved_steps(Path(out) / name) if name else []
    return Path(out) / name / str(steps[-1]) if steps else None


def inherited(values):
    """What a run with branch_from or weights_from has without being told: the sizes of what it begins with, and a name."""
    given = {name: values.get(name, getattr(Settings, name))
             for name in ('out', 'name', 'branch_from', 'weights_from', 'corpus', 'phases', 'mask_ratio')}
    if not given['branch_from'] and not given['weights_from']:
        return {}
    if given['weights_from'] and not given['name']:
        given['name'] = name_after(given['weights_from'], given['phases'], given['mask_ratio'])
    return {'name': given['name']} | inherited_sizes(given)


def name_after(weights, phases, mask_ratio):
    """The name of a run that begins with these weights, in the paper's style: smollm2-135m-mlm40."""
    path = Path(weights)
    base = (path.parent if path.name.isdigit() else path).name.lower()
    kinds = re.findall('|'.join(OBJECTIVES), str(phases))
    return '-'.join([base, *(kind if kind == 'clm' else f'{kind}{100 * mask_ratio:.0f}' for kind in kinds)])


def inherited_sizes(given):
    folder = own_checkpoint(given['out'], given['name'])
    if folder or given['branch_from']:
        path = (folder or huggingface.newest_checkpoint(given['branch_from'])) / 'state.json'
        settings = read_json(path).get('settings')
        if not isinstance(settings, dict):
            raise ValueError(f'{path}: not the state of a run')
        found = {name: settings.get(name, getattr(Settings, name)) for name in SIZES}
        return {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
    sizes = architecture.read_sizes(huggingface.find_checkpoint(given['weights_from'], weights=False))
    found, meta = {name: getattr(sizes, name) for name in SIZES}, Path(given['corpus']) / 'meta.json'
    if meta.exists():  # the corpus may have a mask token that the checkpoint lacks
        found['vocab_size'] = max(sizes.vocab_size, read_json(meta)['vocab_size'])
    return found


def check_weights(folder, cfg, corpus):
    """(new ids, changes in words): what differs between a run and the weights it begins with, which need not be there yet.

    The tokenizer and the sizes must be the same; context and rope_theta may change, and rows be added to the vocabulary.
    """
    theirs, ours = architecture.read_sizes(folder), sizes_of(cfg, corpus.meta)
    new_ids, known = (), (folder / 'tokenizer.json').exists()
    if known:
        tokenizer = load_tokenizer(str(folder))
        if tokenizer.fingerprint() != corpus.meta['tokenizer']:
            raise ValueError(f'weights_from {folder} has another tokenizer than the corpus {corpus.folder}; prepare one with '
                             f'data.py ... --tokenizer={cfg.weights_from} --out=...')
        new_ids = (tokenizer.ids['mask'],) if tokenizer.mask_is_new else ()
    elif theirs.vocab_size != corpus.meta['vocab_size']:
        raise ValueError(f'weights_from {folder} has no tokenizer.json to compare, and {theirs.vocab_size} ids where the '
                         f'corpus {corpus.folder} has {corpus.meta["vocab_size"]}: is it another tokenizer\'s?')
    for name in ('head_size', *SIZES):
        old, new = getattr(theirs, name), getattr(ours, name)
        if name not in ('head_dim', 'rope_theta') and old != new and not (name == 'vocab_size' and known and old < new):
            raise ValueError(f'weights_from {folder} has {name} = {old}, this run {new}')
    changes = [f'{name} {getattr(theirs, name)} -> {getattr(ours, name)}' for name in ('rope_theta', 'vocab_size')
               if getattr(theirs, name) != getattr(ours, name)]
    if theirs.max_position_embeddings != cfg.context:
        changes.append(f'context {theirs.max_position_embeddings} -> {cfg.context}')
    changes += [f'a row for the mask token {i}' for i in new_ids] + ['a new output head'] * cfg.new_head
    return new_ids, ''.join(f', {change}' for change in changes)


def find_origin(cfg, corpus, world):
    """The Origin of a run, after what it says has been compared with the settings."""
    ours = fixed(cfg, corpus, world)
    if folder := own_checkpoint(cfg.out, cfg.name):
        state = read_state(folder, world)
        refuse_differences(f'the checkpoint {folder}', state['fixed'], ours, ours,
                           'go on with its setting, or take another --name')
        for name in ('branch_from', 'weights_from'):
            old, new = state['settings'].get(name), getattr(cfg, name)
            if new and old != new:
                raise ValueError(f'{name} {new}: {cfg.out}/{cfg.name} was begun with {old or "none"}; take another --name')
        now = json.loads(json.dumps(dataclasses.asdict(cfg)))
        changed = [f'{name} {old} -> {now.get(name)}' for name, old in state['settings'].items()
                   if name not in FIXED and now.get(name) != old]
        return Origin(folder, state, f'resumed from {folder}' + (f' (changed: {"; ".join(changed)})' if changed else ''))
    if cfg.branch_from:
        folder = huggingface.newest_checkpoint(cfg.branch_from)
        state = read_state(folder, world)
        check_branch(folder, state, cfg, ours)
        origin = f'at step {state["step"]:,} of {folder.parent.name}'
        return Origin(folder, state | {'seconds': 0.0, 'origin': origin}, f'branched from {folder}')
    fresh = {'step': 0, 'seconds': 0.0, 'recent': [], 'base_model': '', 'origin': 'with random weights'}
    if not cfg.weights_from:
        return Origin(None, fresh, 'from scratch')
    new_ids, changes = check_weights(huggingface.find_checkpoint(cfg.weights_from, weights=False), cfg, corpus)
    folder = huggingface.find_checkpoint(cfg.weights_from)
    fresh |= {'base_model': base_model(cfg.weights_from),
              'origin': f'with the weights of {described(folder, cfg.weights_from)}'}
    how = f'weights from {folder}{changes}; fresh optimiser, data from row {cfg.first_row:,}'
    return Origin(folder, fresh, how, new_ids)


@torch.no_grad()
def initialise(parameters, origin, cfg):
    """Give the parameters the weights a run begins with."""
    shapes = {name: p.shape for name, p in parameters.items()}
    if cfg.new_head and not origin.state['step']:
        shapes.pop('lm_head.weight')
    given = huggingface.read_weights(origin.folder, shapes, origin.new_ids) if origin.folder else ()
    missing = set(parameters)
    for name, whole in given:
        put(parameters[name], whole)
        missing.remove(name)
    for name in sorted(missing):
        put(parameters[name], architecture.initial_weight(name, parameters[name].shape, cfg.seed))


def start(cfg, corpus, world):
    """(model, the same wrapped, optimizer, state, how): ready for step state['step']."""
    origin = find_origin(cfg, corpus, world)
    folder, state = origin.folder, origin.state
    seen = zlib.crc32(json.dumps([folder and folder.name, state]).encode())
    if world.sum([seen])[0] != seen * world.size:
        raise ValueError(f'{cfg.out}: the processes see different checkpoints there, here {folder}; it must be a file '
                         'system that all nodes share')
    model, wrapped = build(cfg, corpus.meta, world)
    initialise(dict(model.named_parameters()), origin, cfg)
    optimizer = make_optimizer(model, cfg, world)
    if state['step']:
        for p in model.parameters():  # the state that AdamW's first step would make
            step = torch.tensor(float(state['step']), device=p.device if optimizer.defaults['fused'] else 'cpu')
            optimizer.state[p] = {'step': step, 'exp_avg': torch.zeros_like(p), 'exp_avg_sq': torch.zeros_like(p)}
        read_into(moments(model, optimizer), folder / 'optimizer.safetensors')
    return model, wrapped, optimizer, state, origin.how


# ----------------------------------------------------------------------------------------------------- log

def duration(seconds):
    """2h05m or 3m12s."""
    if seconds >= 3600:
        return f'{seconds // 3600:.0f}h{seconds // 60 % 60:02.0f}m'
    return f'{seconds // 60:.0f}m{seconds % 60 // 1:02.0f}s'


class Log:
    """log.jsonl, the console and a tracker. The losses of steps wait on the device until a line is due."""

    def __init__(self, run, cfg, world, state, send):
        self.run, self.cfg, self.world, self.send = run, cfg, world, send
        self.recent = [tuple(item) for item in state['recent']]  # (objective, loss) of steps since the last line
        self.waiting = []
        self.first, self.seconds_before = state['step'], state['seconds']
        self.began = self.marked_at = time.monotonic()
        self.marked = state['step']
        self.file = self.open() if world.rank == 0 else None

    def open(self):
        """Lines beyond the checkpoint that this start continues, and a half-written one, go."""
        path, temporary = self.run / 'log.jsonl', self.run / '.log.jsonl.tmp'
        lines = path.read_text(encoding='utf-8').splitlines() if path.exists() else []
        kept = [line for line in lines if line.endswith('}') and json.loads(line)['step'] <= self.first]
        temporary.write_text(''.join(line + '\n' for line in kept), encoding='utf-8')
        temporary.rename(path)
        return path.open('a', encoding='utf-8')

    def add(self, step, count, loss_sum, norm):
        self.waiting.append((step, count, loss_sum, norm))

    def look(self):
        """Read what waits; the last gradient norm. FloatingPointError at the first step that is not finite."""
        sums = self.world.sum_tensor(torch.stack([loss_sum for _, _, loss_sum, _ in self.waiting])).tolist()
        norms = torch.stack([norm for _, _, _, norm in self.waiting]).tolist()
        for (step, count, _, _), loss_sum, norm in zip(self.waiting, sums, norms):
            loss = loss_sum / max(1, count)
            if not (math.isfinite(loss) and math.isfinite(norm)):
                row, good = self.cfg.first_row + step * self.cfg.rows_per_step, huggingface.saved_steps(self.run)
                raise FloatingPointError(
                    f'step {step + 1}: loss {loss}, gradient norm {norm}, on rows {row:,} to '
                    f'{row + self.cfg.rows_per_step - 1:,}; the last good checkpoint is '
                    f'{self.run / str(good[-1]) if good else "none"}')
            self.recent.append((objective(self.cfg.phases, step), loss))
        self.waiting.clear()
        return norms[-1]

    def settle(self):
        """Before a checkpoint: nothing is saved behind a step that was not finite, and the log is on the disk."""
        if self.waiting:
            self.look()
        if self.world.rank == 0:
            os.fsync(self.file.fileno())

    def seconds(self):
        return self.seconds_before + time.monotonic() - self.began

    def line(self, done, rows):
        """The log line of a step just done; the loss is the mean since the last line, of this objective's steps."""
        norm, kind = self.look(), objective(self.cfg.phases, done - 1)
        loss = statistics.fmean(loss for phase, loss in self.recent if phase == kind)
        self.recent.clear()
        tokens = self.cfg.rows_per_step * self.cfg.context
        speed = (done - self.marked) * tokens / (time.monotonic() - self.marked_at)
        return {'step': done, 'phase': kind, 'loss': loss, 'lr': lr_at(done - 1, self.cfg), 'grad_norm': norm,
                'tokens': done * tokens, 'tokens_per_second': round(speed, 1), 'seconds': round(self.seconds(), 2),
                'rows': f'{rows % 2 ** 48:012x}'}

    def write(self, line):
        if self.world.rank == 0:
            self.file.write(json.dumps(line) + '\n')
            self.file.flush()
            self.send(line)
            print(self.readable(line), flush=True)

    def readable(self, line):
        done, total = line['step'], self.cfg.total_steps
        left = duration((time.monotonic() - self.began) / (done - self.first) * (total - done))
        val = ''.join(f'  {name.removesuffix("_loss").replace("_", " ")} {value:.4f}'
                      for name, value in line.items() if name.startswith('val_'))
        return (f'{done:>7,}/{total:,}  {line["phase"]:<4}  loss {line["loss"]:.4f}  lr {line["lr"]:.2e}  '
                f'grad {line["grad_norm"]:.2f}  {line["tokens_per_second"]:,.0f} tokens/s  {left} left{val}')

    def mark(self, done):
        """Speed is measured from here on: validation and saving do not count."""
        self.marked, self.marked_at = done, time.monotonic()


def open_tracker(kind, run):
    """A function that takes each log line, for --tracker=tensorboard or wandb."""
    if kind == '':
        return lambda line: None
    if kind not in ('tensorboard', 'wandb') or importlib.util.find_spec(kind) is None:
        raise ValueError(f'--tracker is tensorboard or wandb, and installed (pip install {kind}), not {kind!r}')
    if kind == 'wandb':
        import wandb
        session = wandb.init(project='nanoencoder', name=run.name, id=run.name, resume='allow', dir=run)
        return lambda line: session.log(line, step=line['step'])
    from torch.utils.tensorboard import SummaryWriter
    writer = SummaryWriter(run)
    return lambda line: [writer.add_scalar(name, value, line['step'])
                         for name, value in line.items() if not isinstance(value, str)]


def write_config(run, cfg, corpus, world, state, how):
    """config.json: the settings, what the corpus was, and of each start how, where and with which versions."""
    path = run / 'config.json'
    starts = read_json(path).get('starts', []) if path.exists() else []
    revision = ['git', 'describe', '--always', '--dirty', '--abbrev=40', '--exclude=*']
    git = shutil.which('git') and subprocess.run(revision, cwd=Path(__file__).parent, capture_output=True, text=True)
    versions = {name: importlib.metadata.version(name) for name in ('torch', 'numpy', 'tiktoken', 'safetensors')}
    starts.append({'step': state['step'], 'how': how, 'processes': world.size,
                   'threads': torch.get_num_threads(), 'device': world.device.type, 'dtype': world.dtype,
                   'git': git and git.stdout.strip(), 'python': sys.version.split()[0], 'versions': versions})
    about = {name: corpus.meta[name] for name in ('fingerprint', 'tokenizer', 'tokens', 'unigram_loss')}
    write_json(path, dataclasses.asdict(cfg) | {'corpus_meta': about, 'starts': starts})


# ------------------------------------------------------------------------------------------------ training

def to_tensors(batch, device):
    """The batch as tensors, pinned if a GPU is to read them. Runs in the loader's thread."""
    tensors = {name: torch.from_numpy(getattr(batch, name)) for name in ('tokens', 'targets', 'at')}
    if device.type == 'cuda':
        torch.cuda.set_device(device)  # a new thread is on the first GPU
        tensors = {name: tensor.pin_memory() for name, tensor in tensors.items()}
    return dataclasses.replace(batch, **tensors)


def forward(wrapped, batch, causal, world):
    """The sum of a batch's losses."""
    tokens, targets, at = (x.to(world.device, non_blocking=True)
                           for x in (batch.tokens, batch.targets, batch.at))
    with world.autocast():
        return wrapped(tokens, batch.lengths, targets, causal, at)[0]


def synchronise(wrapped, now):
    """Whether the next backward pass shares gradients with the other processes: at a step's last micro-batch."""
    if isinstance(wrapped, DistributedDataParallel):
        wrapped.require_backward_grad_sync = now  # what no_sync() sets
    elif isinstance(wrapped, FSDPModule):
        wrapped.set_requires_gradient_sync(now)


def train_step(wrapped, optimizer, batches, count, step, cfg, world):
    """One update. (This process's sum of losses, the gradient's norm before clipping), both on the device.

    The loss is the sum over the targets of the whole step, all micro-batches and processes, divided by their
    number, `count`. So it does not matter how rows are shared out.
    """
    causal = objective(cfg.phases, step) == 'clm'
    loss_sum = torch.zeros((), device=world.device)
    for k, batch in enumerate(batches):
        synchronise(wrapped, k == len(batches) - 1)
        loss = forward(wrapped, batch, causal, world)
        (loss * (world.size / max(1, count))).backward()   # DDP and FSDP average over processes
        loss_sum += loss.detach()
    norm = torch.nn.utils.clip_grad_norm_(wrapped.parameters(), cfg.grad_clip)
    for group in optimizer.param_groups:
        group['lr'] = lr_at(step, cfg)
    optimizer.step()
    optimizer.zero_grad()
    return loss_sum, norm.full_tensor() if isinstance(norm, DTensor) else norm


@torch.no_grad()
def validate(wrapped, corpus, cfg, world):
    """{'val_clm_loss', 'val_mlm_loss'}: nats per target of the corpus's held-out rows, masked at the run's ratio.

    The same rows, cuts and masks each time and for every seed; a 20 % mask is within the 40 % one.
    """
    losses = {}
    kinds = {'clm', 'mlm', *(kind for kind, _ in cfg.phases)}
    for kind in (kind for kind in OBJECTIVES if kind in kinds):
        loss_sum, count = torch.zeros((), device=world.device), 0
        for batch in validation_batches(corpus, kind, cfg, world.rank, world.size):
            loss_sum += forward(wrapped, to_tensors(batch, world.device), kind == 'clm', world)
            count += len(batch.at)
        losses[f'val_{kind}_loss'] = world.sum_tensor(loss_sum).item() / max(1, world.sum([count])[0])
    if isinstance(wrapped, FSDPModule):
        wrapped.reshard()  # without a backward pass the embedding and the head stay whole
    return losses


def check_rows(cfg, world_size):
    """Rows of a step must divide among processes, and those of a process into its micro-batches."""
    if world_size < 1:
        raise ValueError(f'world_size must be 1 or more, not {world_size}')
    if cfg.rows_per_step % world_size:
        possible = [n for n in range(1, cfg.rows_per_step + 1) if cfg.rows_per_step % n == 0]
        below, above = max(n for n in possible if n < world_size), [n for n in possible if n > world_size][:1]
        raise ValueError(f'rows_per_step {cfg.rows_per_step} must be a multiple of the {world_size} processes; take '
                         f'{" or ".join(map(str, [below, *above]))} processes')
    share = cfg.rows_per_step // world_size
    if share % rows_at_once(cfg, world_size):
        raise ValueError(f'rows_per_step {cfg.rows_per_step} is {share} rows for each of {world_size} processes: '
                         f'micro_rows {cfg.micro_rows} must divide that (0: all at once)')


def open_corpus(cfg):
    corpus = Corpus(cfg.corpus)
    begun = cfg.branch_from or cfg.weights_from or own_checkpoint(cfg.out, cfg.name)
    padded = begun and corpus.meta['vocab_size'] < cfg.vocab_size  # some decoders have rows that no token uses
    if corpus.meta['vocab_size'] != cfg.vocab_size and not padded:
        raise ValueError(f'corpus {cfg.corpus} has vocab_size {corpus.meta["vocab_size"]}, this run '
                         f'{cfg.vocab_size}: it was written with another tokenizer')
    for name in ('tokenizer.json', 'tokenizer_config.json'):  # go into every checkpoint
        if not (corpus.folder / name).exists():
            raise ValueError(f'{corpus.folder / name}: missing; prepare the corpus again')
    if cfg.val_rows and not corpus.num_stretches('validation', cfg.context):
        raise ValueError(f'corpus {cfg.corpus} holds out {corpus.meta["val_tokens"]:,} tokens, less than one row of '
                         f'{cfg.context}: prepare it with a larger val_permille, or take --val_rows=0')
    return corpus


def train(cfg, tracker=''):
    """The whole run, or what is left of it."""
    with contextlib.ExitStack() as stack:
        world = stack.enter_context(processes(cfg.device, cfg.dtype))
        stop = stack.enter_context(stop_signals())
        check_rows(cfg, world.size)
        corpus = open_corpus(cfg)
        run = Path(cfg.out) / cfg.name
        send = open_tracker(tracker if world.rank == 0 else '', run)
        model, wrapped, optimizer, state, how = start(cfg, corpus, world)
        if world.rank == 0:
            run.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(run))
            for path in run.glob('.*.tmp'):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            write_config(run, cfg, corpus, world, state, how)
            print(f'{run}: {how}; {sum(p.numel() for p in model.parameters()):,} parameters, '
                  f'{cfg.rows_per_step * cfg.context:,} tokens a step, {world.size} x {world.device.type}, {world.dtype}')
        world.barrier()
        log = Log(run, cfg, world, state, send)
        done, total = state['step'], cfg.total_steps
        loader = Loader(corpus, cfg, done, total, world.rank, world.size,
                        convert=lambda batch: to_tensors(batch, world.device))
        stack.enter_context(contextlib.closing(loader))

        def due(every):
            return done == total or every and done % every == 0

        for step, data in enumerate(loader, done):
            count, stopping, rows = world.sum([data.num_targets, int(bool(stop)), data.rows])
            log.add(step, count, *train_step(wrapped, optimizer, data.batches, count, step, cfg, world))
            done = step + 1
            validating = cfg.val_rows and due(cfg.val_every)
            if validating or due(cfg.log_every):
                line = log.line(done, rows)
                log.write(line | (validate(wrapped, corpus, cfg, world) if validating else {}))
                log.mark(done)
            if stopping or due(cfg.save_every) or done in cfg.save_at:
                log.settle()
                state = {'step': done, 'seconds': log.seconds(), 'recent': log.recent, 'processes': world.size,
                         'base_model': state['base_model'], 'origin': state['origin'], 'fixed': fixed(cfg, corpus, world),
                         'settings': dataclasses.asdict(cfg)}
                save_checkpoint(run / str(done), model, optimizer, state, corpus, cfg, world)
                if world.rank == 0:
                    prune(run, cfg)
                log.mark(done)
            if stopping:
                break
        if world.rank == 0:
            print(f'{run}: {"done" if done == total else "stopped"} at step {done:,}')


# ------------------------------------------------------------------------------------------------- dry run

def dry_run(cfg, world_size):
    """Print what a run will be, counted, not measured; ends with an error if rows do not divide."""
    check_rows(dataclasses.replace(cfg, micro_rows=0), world_size)
    path = Path(cfg.corpus) / 'meta.json'
    meta = read_json(path) if path.exists() else None
    model = empty_model(cfg, meta or dict.fromkeys(ROLES, 0))
    weights = sum(p.numel() for p in model.parameters())
    head = model.lm_head.weight.numel() if model.lm_head else 0
    step, kinds = cfg.rows_per_step * cfg.context, dict.fromkeys(kind for kind, _ in cfg.phases)
    flops = sum(steps * step * cost.flops_per_token(cfg, kind) for kind, steps in cfg.phases)
    hours = flops / (cost.PEAK * cost.UTILISATION) / 3600
    rows = cfg.first_row + cfg.total_steps * cfg.rows_per_step
    epochs = rows / max(1, meta['tokens'] // cfg.context) if meta else None
    gigabytes = (meta['tokens'] if meta else rows * cfg.context) * (2 if cfg.vocab_size <= 2 ** 16 else 4) / 1e9
    per_token = ', '.join(f'{cost.flops_per_token(cfg, kind):.3g} of {kind}' for kind in kinds)
    share, at_once = cfg.rows_per_step // world_size, rows_at_once(cfg, world_size)
    sent = {kind: gigabytes for kind, (gigabytes, _) in cost.gigabytes_sent(cfg, world_size, weights).items()}
    busy = []
    for gpus in sorted({8, 192, 1_024, world_size} - {1}):
        of_time = cost.efficiency(cfg, gpus, weights, flops / cfg.total_steps)
        divides = '' if cfg.rows_per_step % gpus == 0 else ' (which would have to divide)'
        busy.append(f'{of_time["ddp"]:.0%} (ddp) or {of_time["fsdp"]:.0%} (fsdp) of the time on {gpus:,} GPUs, '
                    f'{cfg.rows_per_step / gpus:.3g} rows each{divides}')
    computing = cost.efficiency(cfg, world_size, weights, flops / cfg.total_steps)[cfg.parallel]
    memory, last = cost.memory_gib(cfg, world_size, weights), cfg.total_steps
    total = memory[cfg.parallel] + memory['activations'] + memory['loss']
    kept = len({last, *(step for step in cfg.save_at if step < last)}) + min(cfg.keep, last // (cfg.save_every or last))
    print(f"""\
run         {cfg.name}: {", then ".join(f"{steps:,} steps of {kind}" for kind, steps in cfg.phases)}
parameters  {weights - head:,} with the input embedding and without the output head (as "610M" counts)
            {weights:,} in all
tokens      {step:,} a step, {step * cfg.total_steps:,} in all
corpus      {cfg.corpus}: {f"{meta['tokens']:,} tokens, read {epochs:.2f} times" if meta else "not there yet"}
            {gigabytes:,.1f} GB on disk{"" if meta else " for one epoch"}
operations  {flops:.3g} FLOP; a token {per_token}
time        {hours:,.1f} GPU-hours of an H100 or H200 at an assumed {cost.UTILISATION:.0%} of {cost.PEAK / 1e12:.0f} TFLOP/s (MFU)
            {hours / world_size / computing:,.1f} hours on {world_size}, with what they wait for the network
rows        {cfg.rows_per_step:,} a step, {share:,} a process
            {at_once} at once
memory      of a GPU, about, for weights, gradients, AdamW {memory["ddp"]:.1f} GiB (ddp) or {memory["fsdp"]:.1f} (fsdp)
            {memory["activations"]:.1f} GiB for activations, {memory["loss"]:.1f} for the loss: {total:.1f} in all under {cfg.parallel}
network     a GPU sends {sent["ddp"]:.1f} GB a step (ddp) or {sent["fsdp"]:.1f} (fsdp) in fp32
            at {cost.INSIDE / 1e9:.0f} GB/s inside a node of 8 and {cost.BETWEEN / 1e9:.0f} between nodes GPUs are expected to compute
            {(chr(10) + 12 * " ").join(busy)}
disk        {12 * weights / 1e9:.1f} GB a checkpoint, {kept} at the end: {12 * weights * kept / 1e9:,.0f} GB""")
    if epochs and epochs > 1:
        print(f'warning: the run reads its corpus {epochs:.2f} times; the paper trains on unique tokens')
    check_rows(cfg, world_size)


def main():
    cfg, actions = configs.parse(Settings, sys.argv[1:], inherited, dry_run=False, world_size=1, tracker='')
    if actions['dry_run']:
        return dry_run(cfg, actions['world_size'])
    try:
        train(cfg, actions['tracker'])
    except FloatingPointError as error:
        print(f'error: {error}', file=sys.stderr)
        sys.exit(1)


if __name__ == '__main__':
    configs.run(main)

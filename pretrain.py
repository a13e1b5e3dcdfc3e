"""Pretrain with CLM, MLM, MNTP, or any sequence of them; from scratch, from a branch of another run, or from weights.

    python pretrain.py configs/tiny.py                                       # a laptop; the same command resumes
    torchrun --nproc_per_node=8 pretrain.py configs/610m_clm.py              # one node
    torchrun --nnodes=24 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=$HOST:29500 pretrain.py configs/610m_clm.py
    python pretrain.py configs/610m_clm.py --dry_run --world_size=192        # what a run will be, without running it
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
import shutil
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import configs
import model as architecture
from data import (OBJECTIVES, SHORTEST, Corpus, Loader, objective, read_json, rows_at_once, sha256, validation_batches,
                  write_json)


@dataclass(frozen=True)
class Settings:
    name: str = ''                  # of the run; its folder is <out>/<name>
    corpus: str = 'corpora/fineweb_edu'  # a folder that data.py wrote
    phases: tuple = (('clm', 42_000),)  # (objective, steps), one after the other; paper, section 2
    # the model (paper, appendix A: the 610M)
    vocab_size: int = 128_256       # of the corpus
    hidden_size: int = 1_152
    intermediate_size: int = 4_096  # SwiGLU's
    num_hidden_layers: int = 26
    num_attention_heads: int = 18
    num_key_value_heads: int = 6
    rope_theta: float = 10_000.0
    rms_norm_eps: float = 1e-5
    tie_word_embeddings: bool = False  # untied in the authors' code
    # the data (paper, section 2 and footnote 6)
    context: int = 2_048            # tokens in a row
    cut_rows: bool = True           # each row in two segments, at a uniform place: lengths 12 to 2,048, mean 1,024
    rows_per_step: int = 1_152      # in all processes: 192 GPUs x 6 rows = 2,359,296 tokens (appendix A)
    mask_ratio: float = 0.4         # of MLM and MNTP; the paper's choice for 610M from 0.2, 0.3, 0.4, 0.5
    mask_replace: tuple = (1.0, 0.0, 0.0)  # share of masked tokens that become mask, random, stay; BERT: 0.8, 0.1, 0.1
    first_row: int = 0              # where in the data step 0 begins; continued pretraining goes on behind its parent
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
    micro_rows: int = 6             # rows a process computes at once, accumulation follows; 0: all of its rows
    log_every: int = 10             # steps; the loss is their mean, the gradient's norm the last
    val_every: int = 1_000          # steps; 0: only at the end
    val_rows: int = 512             # held-out rows, the same ones each time; 0: no validation
    save_every: int = 1_000         # steps; 0: only at the end
    save_at: tuple = ()             # steps whose checkpoints are always kept
    keep: int = 2                   # newest other checkpoints kept
    parallel: str = 'ddp'           # or fsdp, which shards weights, gradients and optimiser over the processes
    device: str = 'auto'            # cuda, else mps, else cpu
    dtype: str = 'auto'             # of the arithmetic; bf16 where CUDA has it, else fp32. Weights are always fp32
    compile: bool = False           # torch.compile what stands around attention
    recompute: bool = False         # activations in the backward pass: less memory, a third more time
    branch_from: str = ''           # another run's checkpoint to continue, optimiser and data position included
    weights_from: str = ''          # a checkpoint to take only the weights of, at step 0
    out: str = 'out'                # folder of all runs

    def __post_init__(self):
        phases = self.phases
        if len(phases) == 2 and isinstance(phases[0], str):
            phases = (phases,)
        if not phases or not all(isinstance(phase, tuple) and len(phase) == 2 and phase[0] in OBJECTIVES
                                 and type(phase[1]) is int and phase[1] > 0 for phase in phases):
            raise ValueError(f'phases must be (objective, steps) pairs such as (("clm", 10), ("mlm", 32)), '
                             f'objective one of {", ".join(OBJECTIVES)}, not {self.phases!r}')
        object.__setattr__(self, 'phases', phases)
        if not self.name or '/' in self.name or self.name.startswith('.'):
            raise ValueError(f'name must be the name of a folder in {self.out}, not {self.name!r}')
        for name, options in (('parallel', ('ddp', 'fsdp')), ('device', ('auto', 'cpu', 'cuda', 'mps')),
                              ('dtype', ('auto', 'fp32', 'bf16'))):
            if getattr(self, name) not in options:
                raise ValueError(f'{name} is one of {", ".join(options)}, not {getattr(self, name)!r}')
        for name, low, high in (('rows_per_step', 1, None), ('lr', 0, None), ('log_every', 1, None), ('val_every', 0, None),
                                ('val_rows', 0, None), ('save_every', 0, None), ('keep', 1, None), ('micro_rows', 0, None),
                                ('first_row', 0, None), ('seed', 0, 2 ** 63), ('warmup_steps', 0, None),
                                ('decay_steps', 0, self.total_steps), ('mask_ratio', 0, 1), ('weight_decay', 0, None),
                                ('grad_clip', 0, None), ('beta1', 0, 1), ('beta2', 0, 1), ('eps', 0, None), ('rope_theta', 1, None),
                                ('context', 2 * SHORTEST if self.cut_rows else 2, None)):
            value = getattr(self, name)
            if not (low <= value and (high is None or value <= high)):
                raise ValueError(f'{name} is {value}, and must be at least {low}' + (f', at most {high}' if high else ''))
        if len(self.mask_replace) != 3 or min(self.mask_replace) < 0 or abs(sum(self.mask_replace) - 1) > 1e-9:
            raise ValueError(f'mask_replace must be three shares that sum to 1, not {self.mask_replace!r}')
        if not all(type(step) is int for step in self.save_at):
            raise ValueError(f'save_at must be a tuple of steps, not {self.save_at!r}')
        if self.branch_from and self.weights_from:
            raise ValueError('branch_from and weights_from exclude each other')

    @property
    def total_steps(self):
        return sum(steps for _, steps in self.phases)


# What fixes the numbers of a run: equal when it resumes. The corpus's fingerprint is one more.
SIZES = ('vocab_size', 'hidden_size', 'intermediate_size', 'num_hidden_layers', 'num_attention_heads', 'num_key_value_heads',
         'rope_theta', 'rms_norm_eps', 'tie_word_embeddings')
NUMBERS = (*SIZES, 'phases', 'context', 'cut_rows', 'rows_per_step', 'mask_ratio', 'mask_replace', 'first_row', 'seed', 'lr',
           'warmup_steps', 'decay_steps', 'weight_decay', 'beta1', 'beta2', 'eps', 'grad_clip', 'dtype')


def lr_at(step, cfg):
    """Warm-up, stable, decay: the least of three lines, as a function of the step, counted from 0."""
    warmup = (step + 1) / cfg.warmup_steps if cfg.warmup_steps else 1.0
    decay = (cfg.total_steps - step) / cfg.decay_steps if cfg.decay_steps else 1.0
    return cfg.lr * min(warmup, 1.0, decay)


# ------------------------------------------------------------------------------------------------------- processes

@dataclass(frozen=True)
class World:
    rank: int
    size: int
    device: torch.device
    dtype: str     # bf16 or fp32

    def sum(self, numbers):
        """A list of ints summed over processes. On the CPU, so that the GPU goes on computing."""
        if self.size == 1:
            return numbers
        total = torch.tensor(numbers, dtype=torch.int64)
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


@contextlib.contextmanager
def processes(device='auto', dtype='auto'):
    """The World this process is part of: torchrun's, or alone."""
    size, rank, local_rank = (int(os.environ.get(name, default)) for name, default in
                              (('WORLD_SIZE', 1), ('RANK', 0), ('LOCAL_RANK', 0)))
    if device == 'auto':
        device = 'cuda' if torch.cuda.is_available() else 'mps' if torch.backends.mps.is_available() and size == 1 else 'cpu'
    if device == 'cuda' and not torch.cuda.is_available():
        raise ValueError('device cuda: torch finds no CUDA here; leave --device out, or take --device=cpu')
    if device == 'mps' and not torch.backends.mps.is_available():
        raise ValueError('device mps: torch finds no Apple GPU here; leave --device out, or take --device=cpu')
    has_bf16 = device == 'cpu' or device == 'cuda' and torch.cuda.is_bf16_supported(including_emulation=False)
    if dtype == 'bf16' and not has_bf16:
        raise ValueError(f'dtype bf16: this {device} has no bf16 arithmetic; take --dtype=fp32')
    if dtype == 'auto':
        dtype = 'bf16' if device == 'cuda' and has_bf16 else 'fp32'
    if device == 'cuda':
        torch.cuda.set_device(local_rank)
        torch.set_float32_matmul_precision('high')  # TF32 for what autocast leaves in fp32
    if size > 1:
        dist.init_process_group('cpu:gloo,cuda:nccl' if device == 'cuda' else 'gloo')
    try:
        yield World(rank, size, torch.device(device, local_rank) if device == 'cuda' else torch.device(device), dtype)
    finally:
        if size > 1:
            dist.destroy_process_group()


def empty_model(cfg, meta):
    """The model without memory; special ids are those of a corpus's meta.json."""
    ids = {name: meta[name] for name in ('bos_token_id', 'eos_token_id', 'pad_token_id', 'mask_token_id')}
    sizes = architecture.Sizes(**{name: getattr(cfg, name) for name in SIZES}, max_position_embeddings=cfg.context, **ids)
    with torch.device('meta'):
        return architecture.Model(sizes)


def build(cfg, meta, world):
    """(model, the same wrapped for this world) with the weights still empty."""
    model = empty_model(cfg, meta)
    model.model.recompute = cfg.recompute
    if world.size > 1 and cfg.parallel == 'fsdp':
        mesh = dist.init_device_mesh(world.device.type, (world.size,))
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    model.to_empty(device=world.device)
    if cfg.compile:
        model.compile()
    if world.size > 1 and cfg.parallel == 'ddp':
        return model, DistributedDataParallel(model, gradient_as_bucket_view=True, init_sync=False)
    return model, model


def make_optimizer(model, cfg, world):
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    return torch.optim.AdamW([{'params': matrices, 'weight_decay': cfg.weight_decay}, {'params': vectors, 'weight_decay': 0.0}],
                             lr=cfg.lr, betas=(cfg.beta1, cfg.beta2), eps=cfg.eps, fused=world.device.type != 'mps')


# ----------------------------------------------------------------------------------------------------- checkpoints

def put(tensor, full):
    """Copy a whole CPU tensor into a tensor that may be one process's shard."""
    full = full.to(tensor.device, tensor.dtype)
    tensor.copy_(distribute_tensor(full, tensor.device_mesh, tensor.placements) if isinstance(tensor, DTensor) else full)


def gather(tensors, rank):
    """{name: whole CPU tensor} on rank 0, of tensors that may be sharded; one at a time passes through the others."""
    whole = {}
    for name, tensor in tensors.items():
        full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if rank == 0:
            whole[name] = full.detach().cpu()
    return whole


def moments(optimizer, model):
    """{'<parameter>.exp_avg', '<parameter>.exp_avg_sq': tensor} of AdamW."""
    return {f'{name}.{key}': optimizer.state[p][key] for name, p in model.named_parameters() for key in ('exp_avg', 'exp_avg_sq')}


def save_checkpoint(folder, model, optimizer, state, tokenizer_folder, world):
    """Write a complete checkpoint or none: into a temporary folder, synced, renamed. Every process calls this."""
    temporary = folder.with_name(f'.{folder.name}.tmp')
    weights = gather(dict(model.named_parameters()), world.rank)
    if world.rank == 0:
        architecture.save(model.sizes, weights, temporary)
    del weights
    both = gather(moments(optimizer, model), world.rank)
    if world.rank == 0 and not folder.exists():
        architecture.save_file(both, temporary / 'optimizer.safetensors')
        for name in ('tokenizer.json', 'tokenizer_config.json'):
            shutil.copyfile(tokenizer_folder / name, temporary / name)
        files = sorted(temporary.iterdir())
        write_json(temporary / 'state.json', state | {'sha256': {path.name: sha256(path) for path in files}})
        for path in (*files, temporary):
            sync(path)
        temporary.rename(folder)
        sync(folder.parent)
    world.barrier()


def sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def read_state(folder, world):
    """A checkpoint's state.json, its files checked against it by rank 0."""
    if not (folder / 'state.json').exists():
        raise ValueError(f'{folder}: has no state.json, so there is no training to continue; weights_from takes the weights')
    state = read_json(folder / 'state.json')
    for name, digest in state['sha256'].items() if world.rank == 0 else ():
        if not (folder / name).exists() or sha256(folder / name) != digest:
            raise ValueError(f'{folder / name}: missing, cut short or changed since it was written (its sha256 differs); '
                             f'remove {folder} to go on from the checkpoint before it')
    return state


def load_weights(folder, model):
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, tensor in architecture.read_tensors(folder / 'model.safetensors', {name: p.shape for name, p in parameters.items()}):
            put(parameters[name], tensor)


def load_optimizer(folder, model, optimizer, step):
    """Give AdamW the state it had: its two moments, and the step it keeps for each parameter."""
    for p in model.parameters():
        on = p.device if optimizer.defaults['fused'] else 'cpu'
        optimizer.state[p] = {'step': torch.tensor(float(step), dtype=torch.float32, device=on),
                              'exp_avg': torch.zeros_like(p), 'exp_avg_sq': torch.zeros_like(p)}
    tensors = moments(optimizer, model)
    with torch.no_grad():
        for name, tensor in architecture.read_tensors(folder / 'optimizer.safetensors', {name: t.shape for name, t in tensors.items()}):
            put(tensors[name], tensor)


def numbers(cfg, dtype, fingerprint):
    """The settings that fix a run's numbers, as they stand in state.json."""
    values = {name: getattr(cfg, name) for name in NUMBERS} | {'dtype': dtype, 'corpus fingerprint': fingerprint}
    return json.loads(json.dumps(values))


def refuse_differences(ours, theirs, what, advice):
    for name in ours:
        if ours[name] != theirs[name]:
            raise ValueError(f'{what} has {name} = {theirs[name]!r}, this run {ours[name]!r}; {advice}')


def check_branch(cfg, ours, state, folder):
    """A branch equals the same run from scratch: up to it both runs did the same in every step."""
    theirs, step = state['numbers'], state['step']
    if step > cfg.total_steps:
        raise ValueError(f'branch_from {folder} is at step {step}, beyond this run\'s {cfg.total_steps}')
    parent = dataclasses.replace(cfg, branch_from='', phases=tuple(map(tuple, theirs['phases'])),
                                 **{name: theirs[name] for name in ('lr', 'warmup_steps', 'decay_steps')})
    kinds = set()
    for s in range(step):
        kinds.add(objective(cfg.phases, s))
        for what, f in (('objective', lambda cfg: objective(cfg.phases, s)), ('lr', lambda cfg: lr_at(s, cfg))):
            if f(cfg) != f(parent):
                raise ValueError(f'branch_from {folder}: at step {s} its {what} was {f(parent)}, this run\'s would have been '
                                 f'{f(cfg)}; branch from a step before the two differ (and before the decay)')
    same = set(ours) - {'phases', 'lr', 'warmup_steps', 'decay_steps'}
    if kinds == {'clm'}:
        same -= {'mask_ratio', 'mask_replace'}  # nothing was masked yet
    refuse_differences({name: ours[name] for name in ours if name in same}, theirs, f'branch_from {folder}',
                       'a branch continues the same run')


def check_weights(cfg, folder):
    """Sizes must be those of the weights; context and rope_theta may change, which is returned as text."""
    sizes = architecture.read_sizes(folder)
    for name in SIZES:
        if name != 'rope_theta' and getattr(sizes, name) != getattr(cfg, name):
            raise ValueError(f'weights_from {folder} has {name} = {getattr(sizes, name)}, this run {getattr(cfg, name)}')
    changed = [f'{name} {old} -> {new}' for name, old, new in (('context', sizes.max_position_embeddings, cfg.context),
                                                               ('rope_theta', sizes.rope_theta, cfg.rope_theta)) if old != new]
    return f', {", ".join(changed)}' if changed else ''


def start(cfg, corpus, world):
    """Resumed, branched, from weights, or from nothing, which `how` says in words.

    (model, the same wrapped, optimizer, step, seconds so far, [(objective, loss)] not logged yet, how)
    """
    run = Path(cfg.out) / cfg.name
    steps = [int(path.name) for path in run.glob('*') if path.name.isdigit()]
    ours = numbers(cfg, world.dtype, corpus.meta['fingerprint'])
    step, seconds, recent, origin, state = 0, 0.0, [], None, None
    if steps:
        origin = run / str(max(steps))
        state = read_state(origin, world)
        refuse_differences(ours, state['numbers'], f'the checkpoint {origin}',
                           'go on with its setting, or take another --name (with --branch_from to keep the common steps)')
        how = f'resumed from {origin}'
        changed = [f'{name} {state["settings"][name]} -> {getattr(cfg, name)}' for name in state['settings']
                   if name not in NUMBERS and json.loads(json.dumps(getattr(cfg, name))) != state['settings'][name]]
        how += f' (changed: {"; ".join(changed)})' if changed else ''
        seconds = state['seconds']
    elif cfg.branch_from:
        origin = architecture.newest_checkpoint(cfg.branch_from)
        state = read_state(origin, world)
        check_branch(cfg, ours, state, origin)
        how = f'branched from {origin}'
    elif cfg.weights_from:
        origin = architecture.newest_checkpoint(cfg.weights_from)
        how = f'weights from {origin}{check_weights(cfg, origin)}; fresh optimiser, data from row {cfg.first_row:,}'
    else:
        how = 'from scratch'
    model, wrapped = build(cfg, corpus.meta, world)
    if origin:
        load_weights(origin, model)
    else:
        with torch.no_grad():
            for name, p in model.named_parameters():
                put(p, architecture.initial_weight(name, p.shape, cfg.seed))
    optimizer = make_optimizer(model, cfg, world)
    if state:
        step, recent = state['step'], [tuple(item) for item in state['recent']]
        load_optimizer(origin, model, optimizer, step)
    return model, wrapped, optimizer, step, seconds, recent, how


# ------------------------------------------------------------------------------------------------------------- log

def open_log(run, first_step):
    """log.jsonl, to append to. Lines beyond the checkpoint that this start continues, and a half-written one, go."""
    path, temporary = run / 'log.jsonl', run / '.log.jsonl.tmp'
    lines = path.read_text(encoding='utf-8').splitlines() if path.exists() else []
    kept = [line for line in lines if line.endswith('}') and json.loads(line)['step'] <= first_step]
    temporary.write_text(''.join(line + '\n' for line in kept), encoding='utf-8')
    temporary.rename(path)
    return path.open('a', encoding='utf-8')


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
    return lambda line: [writer.add_scalar(name, value, line['step']) for name, value in line.items() if not isinstance(value, str)]


def write_config(run, cfg, world, step, how):
    """config.json: the settings, and for each start of the run what continued it, where, and with which versions."""
    path = run / 'config.json'
    starts = read_json(path)['starts'] if path.exists() else []
    revision = subprocess.run(['git', 'rev-parse', 'HEAD'], cwd=Path(__file__).parent, capture_output=True, text=True)
    versions = {name: importlib.metadata.version(name) for name in ('torch', 'numpy', 'tiktoken', 'safetensors')}
    starts.append({'step': step, 'how': how, 'processes': world.size, 'threads': torch.get_num_threads(), 'device': world.device.type,
                   'dtype': world.dtype, 'versions': versions | {'python': sys.version.split()[0]}, 'git': revision.stdout.strip() or None})
    write_json(path, dataclasses.asdict(cfg) | {'starts': starts})


def console(line, cfg, left):
    val = ''.join(f'  {name.removesuffix("_loss").replace("_", " ")} {line[name]:.4f}' for name in line if name.startswith('val_'))
    hours, minutes, seconds = int(left // 3600), int(left // 60 % 60), int(left % 60)
    left = f'{hours}h{minutes:02d}m' if hours else f'{minutes}m{seconds:02d}s'
    return (f'{line["step"]:>7,}/{cfg.total_steps:,}  {line["phase"]:<4}  loss {line["loss"]:.4f}  lr {line["lr"]:.2e}  '
            f'grad {line["grad_norm"]:.2f}  {line["tokens_per_second"]:,.0f} tokens/s  {left} left{val}')


# -------------------------------------------------------------------------------------------------------- training

def check_rows(cfg, world_size):
    """Rows of a step must divide among processes, and those of a process into its micro-batches."""
    if cfg.rows_per_step % world_size:
        raise ValueError(f'rows_per_step {cfg.rows_per_step} must be a multiple of the {world_size} processes')
    share = cfg.rows_per_step // world_size
    if share % rows_at_once(cfg, world_size):
        raise ValueError(f'rows_per_step {cfg.rows_per_step} is {share} rows for each of {world_size} processes: '
                         f'micro_rows {cfg.micro_rows} must divide that (0: all at once)')


def train_step(wrapped, optimizer, batches, count, causal, cfg, world):
    """One update. (This process's sum of losses, the norm of the gradient before clipping), both on the device.

    The loss is the sum over the targets of the whole step, all micro-batches and processes, divided by their number.
    """
    loss_sum = torch.zeros((), device=world.device)
    for k, batch in enumerate(batches):
        waits = isinstance(wrapped, DistributedDataParallel) and k < len(batches) - 1
        with wrapped.no_sync() if waits else contextlib.nullcontext():
            loss = forward(wrapped, batch, causal, world)
            (loss * (world.size / max(1, count))).backward()   # DDP and FSDP average over processes
        loss_sum += loss.detach()
    norm = torch.nn.utils.clip_grad_norm_(wrapped.parameters(), cfg.grad_clip)
    optimizer.step()
    optimizer.zero_grad()
    return loss_sum, norm.full_tensor() if isinstance(norm, DTensor) else norm


def forward(wrapped, batch, causal, world):
    tokens, targets, at = (x.to(world.device, non_blocking=True) for x in (batch.tokens, batch.targets, batch.at))
    with world.autocast():
        return wrapped(tokens, batch.lengths, targets, causal, at)[0]


def to_tensors(batch, pin):
    tensors = {name: torch.from_numpy(getattr(batch, name)) for name in ('tokens', 'targets', 'at')}
    return dataclasses.replace(batch, **{name: tensor.pin_memory() if pin else tensor for name, tensor in tensors.items()})


@torch.no_grad()
def validate(wrapped, corpus, cfg, world):
    """{'val_clm_loss', 'val_mlm_loss'}: nats per target on held-out rows, the same ones and masks for every run."""
    losses = {}
    for kind in ('clm', 'mlm', *(['mntp'] if any(name == 'mntp' for name, _ in cfg.phases) else [])):
        total = torch.zeros(2, dtype=torch.float64, device='cpu' if world.device.type == 'mps' else world.device)
        for batch in validation_batches(corpus, kind, cfg, world.rank, world.size):
            total[0] += forward(wrapped, to_tensors(batch, False), kind == 'clm', world).to(total.device)
            total[1] += len(batch.at)
        loss_sum, count = world.sum_tensor(total).tolist()
        losses[f'val_{kind}_loss'] = loss_sum / max(1.0, count)
    if isinstance(wrapped, FSDPModule):
        wrapped.reshard()  # without a backward pass the embedding and the head stay whole
    return losses


def read_window(window, run, cfg, world):
    """([(objective, loss)], the last gradient norm) of the steps since the last look, which stayed on the device.

    Raises FloatingPointError at the first that is not finite; no checkpoint is written before this look.
    """
    sums = world.sum_tensor(torch.stack([loss_sum for _, _, loss_sum, _ in window])).tolist()
    norms = torch.stack([norm for _, _, _, norm in window]).tolist()
    for (step, count, _, _), loss_sum, norm in zip(window, sums, norms):
        if not (math.isfinite(loss_sum) and math.isfinite(norm)):
            first = cfg.first_row + step * cfg.rows_per_step
            good = max((int(path.name) for path in run.glob('*') if path.name.isdigit()), default=None)
            raise FloatingPointError(f'step {step + 1}: loss {loss_sum / max(1, count)}, gradient norm {norm}, on rows {first:,} to '
                                     f'{first + cfg.rows_per_step - 1:,}; the last good checkpoint is {run / str(good) if good else "none"}')
    losses = [(objective(cfg.phases, step), loss_sum / max(1, count)) for (step, count, _, _), loss_sum in zip(window, sums)]
    return losses, norms[-1]


def prune(run, cfg):
    """Remove all but the newest `keep` checkpoints; those of save_at and the last step stay."""
    steps = sorted(int(path.name) for path in run.glob('*') if path.name.isdigit())
    for step in [step for step in steps if step not in (*cfg.save_at, cfg.total_steps)][:-cfg.keep]:
        (run / str(step)).rename(run / f'.{step}.tmp')
        shutil.rmtree(run / f'.{step}.tmp')


@contextlib.contextmanager
def stop_signals():
    """A list that SIGTERM and SIGINT grow; nothing else happens on them."""
    received = []
    before = {number: signal.signal(number, lambda number, frame: received.append(number)) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def train(cfg, tracker=''):
    with processes(cfg.device, cfg.dtype) as world, stop_signals() as stop:
        check_rows(cfg, world.size)
        corpus = Corpus(cfg.corpus)
        if corpus.meta['vocab_size'] != cfg.vocab_size:
            raise ValueError(f'corpus {cfg.corpus} has vocab_size {corpus.meta["vocab_size"]}, this run {cfg.vocab_size}: '
                             'it was written with another tokenizer')
        if cfg.val_rows and not corpus.num_stretches('validation', cfg.context):
            raise ValueError(f'corpus {cfg.corpus} holds out {corpus.meta["val_tokens"]:,} tokens, less than one row of '
                             f'{cfg.context}: prepare it with a larger val_permille, or take --val_rows=0')
        run = Path(cfg.out) / cfg.name
        send = open_tracker(tracker if world.rank == 0 else '', run)
        model, wrapped, optimizer, first, seconds, recent, how = start(cfg, corpus, world)
        total = cfg.total_steps
        if world.rank == 0:
            run.mkdir(parents=True, exist_ok=True)
            for path in run.glob('.*.tmp'):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            write_config(run, cfg, world, first, how)
            log = open_log(run, first)
            print(f'{run}: {how}; {sum(p.numel() for p in model.parameters()):,} parameters, {total - first:,} steps of '
                  f'{cfg.rows_per_step * cfg.context:,} tokens, {world.size} x {world.device.type}, {world.dtype}', flush=True)
        world.barrier()
        loader = Loader(corpus, cfg, first, total, world.rank, world.size, lambda batch: to_tensors(batch, world.device.type == 'cuda'))
        window, began = [], time.monotonic()
        mark, marked, seconds_before = began, first, seconds
        for step, data in enumerate(loader, first):
            kind, lr = objective(cfg.phases, step), lr_at(step, cfg)
            for group in optimizer.param_groups:
                group['lr'] = lr
            count, stopping, rows = world.sum([data.num_targets, int(bool(stop)), data.rows])
            loss_sum, norm = train_step(wrapped, optimizer, data.batches, count, kind == 'clm', cfg, world)
            window.append((step, count, loss_sum, norm))

            done = step + 1
            validating = cfg.val_rows and (done == total or cfg.val_every and done % cfg.val_every == 0)
            logging = validating or done == total or done % cfg.log_every == 0
            saving = stopping or done == total or done in cfg.save_at or cfg.save_every and done % cfg.save_every == 0
            if not (logging or saving):
                continue
            losses, norm = read_window(window, run, cfg, world)
            recent += losses
            window.clear()
            now = time.monotonic()
            seconds = seconds_before + now - began
            if logging:
                loss = statistics.fmean(loss for phase, loss in recent if phase == kind)
                recent = []
                line = {'step': done, 'phase': kind, 'loss': loss, 'lr': lr, 'grad_norm': norm, 'tokens': done * cfg.rows_per_step * cfg.context,
                        'tokens_per_second': round((done - marked) * cfg.rows_per_step * cfg.context / (now - mark), 1),
                        'seconds': round(seconds, 2), 'rows': f'{rows % 2 ** 48:012x}'}
                line |= validate(wrapped, corpus, cfg, world) if validating else {}
                if world.rank == 0:
                    log.write(json.dumps(line) + '\n')
                    log.flush()
                    send(line)
                    print(console(line, cfg, (time.monotonic() - began) / (done - first) * (total - done)), flush=True)
            if saving:
                state = {'step': done, 'seconds': seconds, 'numbers': numbers(cfg, world.dtype, corpus.meta['fingerprint']),
                         'settings': dataclasses.asdict(cfg), 'processes': world.size, 'recent': recent}
                save_checkpoint(run / str(done), model, optimizer, state, corpus.folder, world)
                if world.rank == 0:
                    prune(run, cfg)
            mark, marked = time.monotonic(), done
            if stopping:
                break
        loader.close()
        if world.rank == 0:
            print(f'{run}: {"stopped at" if step + 1 < total else "done,"} step {step + 1:,}' if first < total else f'{run}: already done')


# --------------------------------------------------------------------------------------------------------- dry run

def flops_per_token(cfg, kind):
    """Floating-point operations of forward and backward for a token: 3 (2 P + 2 r V d + 4 L d m).

    P  weights of the matrices in the layers: L (d (H + 2 K) h + d d + 3 d f)
    r  share of positions with a target, all that the head computes: MLM mask_ratio, CLM all but a segment's last
    m  positions a token attends to: the mean over tokens of its segment's length, E[sum of squares] / context; half if causal
    """
    d, f, L, V, c = cfg.hidden_size, cfg.intermediate_size, cfg.num_hidden_layers, cfg.vocab_size, cfg.context
    heads, kv_heads, head_dim = cfg.num_attention_heads, cfg.num_key_value_heads, cfg.hidden_size // cfg.num_attention_heads
    matrices = L * (d * (heads + 2 * kv_heads) * head_dim + d * d + 3 * d * f)
    cuts = range(SHORTEST, c - SHORTEST + 1) if cfg.cut_rows else [c]
    attended = sum(cut ** 2 + (c - cut) ** 2 for cut in cuts) / len(cuts) / c
    segments = 2 if cfg.cut_rows else 1
    targets = {'clm': 1 - segments / c, 'mlm': cfg.mask_ratio, 'mntp': cfg.mask_ratio * (1 - segments / c)}[kind]
    return 3 * (2 * matrices + 2 * targets * V * d + 4 * L * d * attended / (2 if kind == 'clm' else 1))


def dry_run(cfg, world_size, peak=989e12, utilisation=0.4):
    """Print what a run will be, counted, not measured; ends with an error if rows do not divide.

    peak is the dense bf16 FLOP/s of the datasheet for one H100 or H200, utilisation the share of it assumed (MFU).
    """
    path = Path(cfg.corpus) / 'meta.json'
    meta = read_json(path) if path.exists() else None
    model = empty_model(cfg, meta or dict.fromkeys(('bos_token_id', 'eos_token_id', 'pad_token_id', 'mask_token_id'), 0))
    weights = sum(p.numel() for p in model.parameters())
    head = model.lm_head.weight.numel() if model.lm_head else 0
    tokens_per_step = cfg.rows_per_step * cfg.context
    tokens = tokens_per_step * cfg.total_steps
    flops = sum(steps * tokens_per_step * flops_per_token(cfg, kind) for kind, steps in cfg.phases)
    hours = flops / (peak * utilisation) / 3600
    micro = rows_at_once(cfg, world_size) * cfg.context
    d, f, K = cfg.hidden_size, cfg.intermediate_size, cfg.num_key_value_heads / cfg.num_attention_heads
    # kept for the backward pass, bytes a token and layer under bf16 autocast: two norms' inputs in fp32, the bf16 inputs of
    # six matrices (each casts its own), q, k, v and the output of attention, three products of the gate
    layer = 8 * d + 10 * d + 4 * d * (1 + K) + 8 * f
    kept = micro * (4 * d * cfg.num_hidden_layers + layer if cfg.recompute else layer * cfg.num_hidden_layers)
    logits = min(2048, micro) * cfg.vocab_size * 10
    ddp, fsdp = 16 * weights + 2 * weights, 16 * weights / world_size + 6 * (head + (weights - head) / cfg.num_hidden_layers)
    epochs = (cfg.first_row + cfg.total_steps * cfg.rows_per_step) / max(1, meta['tokens'] // cfg.context) if meta else None
    kept_steps = len(set(cfg.save_at) | {cfg.total_steps}) + cfg.keep
    lines = {
        'run': f'{cfg.name}: ' + ', then '.join(f'{steps:,} steps of {kind}' for kind, steps in cfg.phases),
        'parameters': f'{weights - head:,} with the input embedding and without the output head (as "610M" counts); {weights:,} in all',
        'tokens': f'{tokens_per_step:,} a step, {tokens:,} in all',
        'corpus': f'{cfg.corpus} is not there yet: {tokens * (2 if cfg.vocab_size <= 2 ** 16 else 4) / 1e9:,.1f} GB for one epoch'
                  if meta is None else f'{meta["tokens"]:,} tokens; read up to epoch {epochs:.2f}',
        'operations': f'{flops:.3g} FLOP; a token ' + ', '.join(f'{flops_per_token(cfg, kind):.3g} in {kind}' for kind in sorted({k for k, _ in cfg.phases})),
        'time': f'{hours:,.1f} GPU-hours at an assumed {utilisation:.0%} of {peak / 1e12:.0f} TFLOP/s; {hours / world_size:,.1f} hours on {world_size}',
        'rows': f'{cfg.rows_per_step} a step; {cfg.rows_per_step // world_size} a process, {micro // cfg.context} at once',
        'memory': f'a GPU, about: weights, gradients, AdamW {ddp / 2 ** 30:.1f} GiB under ddp, {fsdp / 2 ** 30:.1f} under fsdp; '
                  f'activations {kept / 2 ** 30:.1f}; a chunk of logits {logits / 2 ** 30:.1f}',
        'disk': f'{12 * weights / 1e9:.1f} GB a checkpoint, {kept_steps} kept at the end: {12 * weights * kept_steps / 1e9:,.0f} GB',
    }
    for name, text in lines.items():
        print(f'{name:<11} {text}')
    if epochs and epochs > 1:
        print(f'warning: the run reads its corpus {epochs:.2f} times; the paper trains on unique tokens')
    check_rows(cfg, world_size)


def main():
    cfg, actions = configs.parse(Settings, sys.argv[1:], dry_run=False, world_size=1, tracker='')
    if actions['dry_run']:
        return dry_run(cfg, actions['world_size'])
    try:
        train(cfg, actions['tracker'])
    except FloatingPointError as error:
        print(f'error: {error}', file=sys.stderr)
        sys.exit(1)


if __name__ == '__main__':
    configs.run(main)

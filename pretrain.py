"""Pretrain with CLM, MLM, MNTP, MDLM or a mix; from scratch, from another run, or from weights.

    python pretrain.py configs/tiny.py                                    # a laptop; the same command resumes
    torchrun --nproc_per_node=8 --shutdown_timeout=300 pretrain.py configs/610m_clm.py    # one node
    python pretrain.py configs/610m_clm.py --dry_run --world_size=192     # what a run will be
    python pretrain.py configs/610m_clm_mlm.py --branch_from=out/610m-clm-42k/10000

Writes out/<name>/log.jsonl, out/<name>/config.json and checkpoints out/<name>/<step>/, which are Hugging Face
folders. SIGTERM, Ctrl-C and a closed terminal finish the step (or the next), save, and exit 0."""
import math
import os
import sys
from dataclasses import dataclass, replace
from functools import partial

if __name__ == '__main__':  # before torch loads OpenMP, which reads it: waiting threads sleep, not spin
    os.environ.setdefault('OMP_WAIT_POLICY', 'passive')

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from data import OBJECTIVES, SHORTEST, check_rows, in_order, objective_at, read_step, validation_batches
from model import Model, Sizes, initial_weight, parameter_groups
from nanoencoder import huggingface
from nanoencoder.pretraining import checkpoint, cost
from nanoencoder.pretraining.log import Log, locked_run
from nanoencoder.pretraining.muon import Muon
from nanoencoder.processes import processes, stop_signals
from nanoencoder.settings import check, check_value, parse, run_main, setting

free = partial(setting, fixes='nothing')  # may change when a run resumes; all other settings may not


@dataclass(frozen=True)
class Settings:
    name: str = free('')            # of the run's folder in `out`; with weights_from it may be left out
    row: str = free('')             # of the study that it belongs to; its runs differ in their seed alone
    corpus: str = free('corpora/fineweb_edu')  # a folder that data.py wrote
    phases: tuple = (('clm', 42_000),)  # (objective, steps), one after the other; paper, section 2
    repeat: int = setting(1, 1)     # times that the phases are run through; many short ones mix objectives
    model: Sizes = Sizes()          # each of its sizes is a setting, too
    # the data (paper, section 2 and footnote 6)
    context: int = setting(2_048, 2)  # tokens in a row
    cut_rows: bool = True           # each row in two, at a uniform place: segments of 12 to 2,036, mean 1,024
    rows_per_step: int = setting(1_152, 1)  # of all processes: 192 GPUs x 6 = 2,359,296 tokens (appendix A)
    mask_ratio: float = setting(0.4, 1e-9, 1)  # of MLM and MNTP; the paper's choice for 610M, from 0.2 to 0.5
    mask_replace: tuple = (1.0, 0.0, 0.0)  # masked tokens become mask, random, stay; BERT: 0.8, 0.1, 0.1
    first_row: int = setting(0, 0, 2 ** 62 - 1)  # step 0's; the paper's CPT starts after its parent's
    initializer_range: float = setting(0.02, 0)  # standard deviation of the initial weights
    seed: int = setting(0, 0, 2 ** 63 - 1)  # of the initial weights, the order of the data, cuts and masks
    # the optimizer, and warm-up, stable, decay (paper, section 2 and appendix A)
    optimizer: str = setting('adamw', choices=('adamw', 'muon'))  # muon: on layers' matrices
    muon_lr_ratio: float = setting(6.7, 0)  # learning rate of these matrices, as a multiple of lr
    lr: float = setting(5e-4, 0)    # at its peak
    warmup_steps: int = setting(2_000, 0)  # or a share of all steps, such as 0.05
    decay_steps: int = setting(2_000, 0)  # the last ones, or a share; 2,000 at every length in the paper
    weight_decay: float = setting(0.1, 0)  # on matrices only
    beta1: float = setting(0.9, 0, 1 - 1e-9)
    beta2: float = setting(0.95, 0, 1 - 1e-9)
    eps: float = setting(1e-5, 0)
    grad_clip: float = setting(1.0, 1e-9)  # the gradient's norm
    # how it is computed, watched and saved
    micro_rows: int = free(6, 0)    # rows a process computes at once, adding up gradients; 0: all it has
    log_every: int = free(10, 1)    # steps whose lines are written together
    val_every: int = free(1_000, 0)  # steps; 0: only at the end
    # 0 at any time; but held-out losses of one run are of the same rows and ratio: check_validation
    val_rows: int = free(512, 0)    # held-out rows, the same ones each time; 0: no validation
    val_mask_ratio: float = free(0.4, 1e-9, 1)  # one for all runs, so that their held-out losses compare
    save_every: int = free(1_000, 0)  # steps; 0: only at the end
    save_at: tuple = free(())       # steps whose checkpoints are always kept
    keep: int = free(2, 1)          # newest other checkpoints kept
    parallel: str = free('ddp', choices=('ddp', 'fsdp'))  # fsdp shards weights, gradients and optimizer
    device: str = free('auto', choices=('auto', 'cpu', 'cuda', 'mps'))  # auto: cuda, else mps, else cpu
    dtype: str = free('auto', choices=('auto', 'fp32', 'bf16'))  # weights and moments are fp32
    compile: bool = free(False)     # torch.compile what stands around attention
    recompute: bool = free(False)   # activations in the backward pass: less memory, a third more time
    branch_from: str = free('')     # another run's checkpoint to continue, optimizer and data position too
    weights_from: str = free('')    # start from the weights of a checkpoint or hub id, and its sizes
    new_head: bool = free(False)    # with weights_from: begin with a new output head, which it may lack
    out: str = free('out')          # folder of all runs

    def __post_init__(self):
        phases = self.phases if type(self.phases) is tuple else ()
        if len(phases) == 2 and isinstance(phases[0], str):  # a flat pair is one phase
            object.__setattr__(self, 'phases', phases := (phases,))
        if not phases or not all(type(phase) is tuple and [*map(type, phase)] == [str, int]
                                 and phase[0] in OBJECTIVES and phase[1] > 0 for phase in phases):
            raise ValueError('phases must be (objective, steps) pairs such as (("clm", 10), ("mlm", 32)), '
                             f'objective one of {", ".join(OBJECTIVES)}, not {self.phases!r}')
        for name in ('warmup_steps', 'decay_steps'):
            if type(share := getattr(self, name)) is float and 0 < share < 1 and type(self.repeat) is int:
                object.__setattr__(self, name, round(share * self.total_steps))
        check(self)
        for name in ('decay_steps', 'warmup_steps'):
            check_value(name, int, getattr(self, name), 0, self.total_steps)
        for step in self.save_at:
            check_value('save_at', int, step, 1, self.total_steps)
        if not self.name.strip() or not self.name.isprintable() or '/' in self.name or self.name[0] == '.':
            raise ValueError(f'name must be that of a folder in {self.out}, not {self.name!r}; set --name')
        if self.cut_rows and self.context < 2 * SHORTEST:
            raise ValueError(f'context must be at least {2 * SHORTEST} to cut rows, not {self.context}')
        shares = [x for x in self.mask_replace if type(x) in (int, float) and x >= 0]
        if not len(self.mask_replace) == len(shares) == 3 or not math.isclose(sum(shares), 1):
            raise ValueError(f'mask_replace must be three shares that sum to 1, not {self.mask_replace!r}')
        if self.branch_from and self.weights_from:
            raise ValueError('branch_from excludes weights_from: a branch has its parent\'s')
        if self.new_head and (not self.weights_from or self.model.tie_word_embeddings):
            raise ValueError('new_head belongs to weights_from, and excludes tie_word_embeddings')

    @property
    def total_steps(self):
        return self.repeat * sum(steps for _, steps in self.phases)

    def lr_at(self, step):
        return lr_at(step, self)


ACTIONS = {'dry_run': (False, 'print what the run will be, counted and not measured, and stop'),
           'world_size': (1, 'processes that --dry_run counts with', 1, 10 ** 6)}


def lr_at(step, cfg):
    """Warm-up, stable, decay: the least of three lines, as a function of the step, counted from 0."""
    warmup = (step + 1) / cfg.warmup_steps if cfg.warmup_steps else 1.0
    decay = (cfg.total_steps - step) / cfg.decay_steps if cfg.decay_steps else 1.0
    return cfg.lr * min(warmup, 1.0, decay)


def build(cfg, world):
    """(model, the same wrapped for this world, its optimizer), the weights still empty."""
    with torch.device('meta'):
        model = Model(cfg.model)
    model.model.recompute = cfg.recompute
    if world.size > 1 and cfg.parallel == 'fsdp':
        mesh = init_device_mesh(world.device.type, (world.size,))     # sharded over all processes
        for part in (*model.model.layers, model):
            fully_shard(part, mesh=mesh)
    model.to_empty(device=world.device)
    if cfg.compile:
        torch._dynamo.config.optimize_ddp = False  # it would cut what is compiled at DDP's buckets
        model.compile_layers()
    wrapped = model
    if world.size > 1 and cfg.parallel == 'ddp':
        wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True, init_sync=False)
    options = dict(lr=cfg.lr, betas=(cfg.beta1, cfg.beta2), eps=cfg.eps, fused=world.device.type != 'mps')
    if cfg.optimizer == 'muon':
        return model, wrapped, Muon(model, cfg.weight_decay, cfg.muon_lr_ratio, **options)
    return model, wrapped, torch.optim.AdamW(parameter_groups(model, cfg.weight_decay), **options)


@torch.no_grad()
def initialise(model, origin, cfg):
    parameters = dict(model.named_parameters())
    shapes = {name: p.shape for name, p in parameters.items()}
    if cfg.new_head and not origin.state['step']:
        shapes.pop('lm_head.weight')
    if origin.folder:
        for name, whole in huggingface.read_weights(origin.folder, shapes, origin.new_ids):
            checkpoint.copy_into(parameters.pop(name), whole)
    for name, p in parameters.items():
        checkpoint.copy_into(p, initial_weight(name, p.shape, cfg.seed, cfg.initializer_range))


def start(cfg, corpus, world):
    """(model, the same wrapped, optimizer, state, how it began in words): ready for step state['step']."""
    origin = checkpoint.find_origin(cfg, corpus, world)
    model, wrapped, optimizer = build(cfg, world)
    initialise(model, origin, cfg)
    if origin.state['step']:
        checkpoint.read_moments(model, optimizer, origin.folder, origin.state['step'])
    parameters = sum(p.numel() for p in model.parameters())
    return model, wrapped, optimizer, origin.state, f'{origin.how}; {parameters:,} parameters'


def to_tensors(batch, device):
    """The batch as tensors, pinned if a GPU is to read them."""
    tensors = {name: torch.from_numpy(x) for name, x in batch._asdict().items() if name != 'lengths'}
    if device.type == 'cuda':
        torch.cuda.set_device(device)  # a new thread is on the first GPU
        tensors = {name: tensor.pin_memory() for name, tensor in tensors.items()}
    return batch._replace(**tensors)


def forward(wrapped, batch, causal, world):
    """The sum of a batch's losses."""
    tokens, targets, at, weights = (part.to(world.device, non_blocking=True) for part in (
        batch.tokens, batch.targets, batch.at, batch.weights))
    with world.autocast():
        return wrapped(tokens, batch.lengths, targets, causal, at, weights)[0]


def train_step(wrapped, optimizer, batches, count, step, cfg, world):
    """One update. (This process's sum of losses, the gradient's norm before clipping), both on the device.

    The losses of all micro-batches and processes are summed and divided once by `count`, how many there are
    in the whole step: how rows are shared out does not matter. 1,152 rows on 8 processes are 24 x 6 each."""
    causal = OBJECTIVES[objective_at(step, cfg)].causal
    loss_sum = torch.zeros((), device=world.device)
    for k, batch in enumerate(batches):
        is_last = k == len(batches) - 1     # which alone shares gradients; until then FSDP keeps them whole
        if isinstance(wrapped, DistributedDataParallel):
            wrapped.require_backward_grad_sync = is_last    # what no_sync() sets
        elif isinstance(wrapped, FSDPModule):
            wrapped.set_requires_gradient_sync(is_last)
        loss = forward(wrapped, batch, causal, world)
        (loss * (world.size / max(1, count))).backward()  # DDP and FSDP average: times size is the sum
        loss_sum += loss.detach()
    norm = torch.nn.utils.clip_grad_norm_(wrapped.parameters(), cfg.grad_clip)
    for group in optimizer.param_groups:
        group['lr'] = lr_at(step, cfg)
    optimizer.step()
    optimizer.zero_grad()
    return loss_sum, norm.full_tensor() if isinstance(norm, DTensor) else norm


def validation_settings(cfg):
    """(the settings by which held-out rows are masked, the objectives whose losses are computed)"""
    objectives = dict.fromkeys(('clm', 'mlm', *(name for name, _ in cfg.phases)))
    return replace(cfg, mask_ratio=cfg.val_mask_ratio, mask_replace=(1.0, 0.0, 0.0)), [*objectives]


def check_held_out(corpus, cfg):
    """ValueError if no held-out token is masked: its loss would read 0.0, the best of all."""
    masking, objectives = validation_settings(cfg)
    for objective in objectives:
        batches = validation_batches(corpus, objective, masking)
        if OBJECTIVES[objective].uses_ratio and not any(len(batch.at) for batch in batches):
            raise ValueError(f'val_mask_ratio {cfg.val_mask_ratio} masks no token of {cfg.val_rows} held-out '
                             f'rows: take more of either, or --val_rows=0')


@torch.no_grad()
def validate(wrapped, corpus, cfg, world):
    """{'val_clm_loss', 'val_mlm_loss', ...}: nats per target of held-out rows, val_mask_ratio of them masked.

    The same rows, cuts and masks each time and for every seed. CLM and MLM always, to be compared."""
    cfg, objectives = validation_settings(cfg)
    losses = {}
    for objective in objectives:
        loss_sum, count = torch.zeros((), device=world.device), 0
        for batch in validation_batches(corpus, objective, cfg, world.rank, world.size):
            batch = to_tensors(batch, world.device)
            count += batch.weights.count_nonzero().item()
            loss_sum += forward(wrapped, batch, OBJECTIVES[objective].causal, world)
        losses[f'val_{objective}_loss'] = world.sum_tensor(loss_sum).item() / max(1, world.sum([count])[0])
    if isinstance(wrapped, FSDPModule):
        wrapped.reshard()  # without a backward pass the embedding and the head stay whole
    return losses


def train(cfg):
    def load(step):
        batches, count, rows_hash = read_step(step, corpus, cfg, world.rank, world.size)
        return [to_tensors(batch, world.device) for batch in batches], count, rows_hash

    def due(every):
        return done == total or (every and done % every == 0)

    with processes(cfg.device, cfg.dtype) as world, stop_signals() as stop, locked_run(cfg, world) as run:
        check_rows(cfg, world.size)
        corpus = checkpoint.open_corpus(cfg, world)
        if cfg.val_rows:
            check_held_out(corpus, cfg)
        model, wrapped, optimizer, state, how = start(cfg, corpus, world)
        log = Log(run, cfg, corpus, world, state, how)
        done, total = state['step'], cfg.total_steps
        steps = range(done, total)
        for step, (batches, count, rows_hash) in zip(steps, in_order(load, steps)):
            # over gloo, so that no GPU waits; a signal that comes later stops the run after the next step
            count, stopping, rows_hash = world.sum([count, bool(stop), rows_hash])
            loss_sum, norm = train_step(wrapped, optimizer, batches, count, step, cfg, world)
            log.add(step, objective_at(step, cfg), lr_at(step, cfg), rows_hash, count, loss_sum, norm)
            done = step + 1
            validating = cfg.val_rows and due(cfg.val_every)
            saving = stopping or due(cfg.save_every) or done in cfg.save_at
            if validating or saving or due(cfg.log_every):
                log.write(lambda: validate(wrapped, corpus, cfg, world) if validating else {})
            if saving:
                checkpoint.save(run, model, optimizer, done, log.seconds(), corpus, cfg, world)
            if stopping:
                break
    if world.rank == 0:
        print(f'{run}: {"done" if done == total else "stopped"} at step {done:,}')


def main():
    cfg, actions = parse(Settings, sys.argv[1:], ACTIONS, partial(checkpoint.inherited, Settings))
    if actions.dry_run:
        return cost.dry_run(cfg, actions.world_size)
    train(cfg)


if __name__ == '__main__':
    run_main(main)

"""Pretrain with CLM, MLM, MNTP, MDLM or a mix; from scratch, from another run, or from weights.

    python pretrain.py configs/tiny.py                                    # a laptop; the same command resumes
    torchrun --nproc_per_node=8 --shutdown_timeout=300 pretrain.py configs/610m_clm.py    # one node
    python pretrain.py configs/610m_clm.py --dry_run --world_size=192     # what a run will be
    python pretrain.py configs/610m_clm_mlm.py --branch_from=out/610m-clm-42k/10000

Writes out/<name>/log.jsonl, out/<name>/config.json and checkpoints out/<name>/<step>/, which are Hugging Face
folders. SIGTERM, Ctrl-C and a closed terminal finish the step (or the next), save, and exit with code 3."""
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
from torch.nn.parallel import DistributedDataParallel

from data import OBJECTIVES, SHORTEST, check_rows, in_order, objective_at, read_step, validation_batches
from model import Model, Sizes, make_segments
from nanoencoder.optimizers import OPTIMIZERS, make_optimizer, ratio_of
from nanoencoder.pretraining import checkpoint, cost
from nanoencoder.pretraining.log import Log, locked_run
from nanoencoder.pretraining.tracker import TRACKERS
from nanoencoder.processes import choose_flash_attention, processes, stop_signals, unsharded
from nanoencoder.settings import check, check_value, may_change, parse, run_main, setting

ARRAYS = 'tokens', 'targets', 'at', 'weights'   # of a Batch


@dataclass(frozen=True)
class Settings:
    # a run that goes on must have the settings that it began with, but for those that say may_change
    name: str = may_change('')  # of the run's folder in `out`; with weights_from it may be left out
    row: str = may_change('')  # of the study that it belongs to; its runs differ in their seed alone
    corpus: str = may_change('corpora/fineweb_edu')  # a folder that data.py wrote
    phases: tuple = (('clm', 42_000),)  # (objective, steps), one after the other; paper, section 2
    repeat: int = setting(1, 1)     # times that the phases are run through; many short ones mix objectives
    model: Sizes = Sizes()          # each of its sizes is a setting, too
    # the data (paper, section 2 and footnote 6)
    context: int = setting(2_048, 2)  # tokens in a row
    cut_rows: bool = True           # each row in two, at a uniform place: segments of 12 to 2,036, mean 1,024
    rows_per_step: int = setting(1_152, 1)  # of all processes: 192 GPUs x 6 = 2,359,296 tokens (appendix A)
    mask_ratio: float = setting(0.4, 1e-9, 1)  # of MLM and MNTP; the paper's choice for 610M, from 0.2 to 0.5
    # shares of masked tokens that become mask, random, stay; BERT: 0.8, 0.1, 0.1
    mask_replace: tuple = setting((1.0, 0.0, 0.0), 0, 1, of=float)
    first_row: int = setting(0, 0, 2 ** 62 - 1)  # step 0's; the paper's CPT starts after its parent's
    initializer_range: float = setting(0.02, 0)  # standard deviation of the initial weights
    embedding_init: str = setting('normal', choices=('normal', 'counts'))  # counts: of neighbours in the text
    seed: int = setting(0, 0, 2 ** 63 - 1)  # of the initial weights, the order of the data, cuts and masks
    # the optimizer, and warm-up, stable, decay (paper, section 2 and appendix A)
    optimizer: str = setting('adamw', choices=OPTIMIZERS)  # muon: on layers' matrices
    matrix_lr_ratio: float = setting(0.0, 0)  # of layers' matrices, times lr; 0: 1, with Muon 6.7
    lr: float = setting(5e-4, 0)    # at its peak
    warmup_steps: int = setting(2_000, 0, is_share=True)  # or a share of all steps, such as 0.05
    decay_steps: int = setting(2_000, 0, is_share=True)  # the last; the paper's is 2,000 at every length
    weight_decay: float = setting(0.1, 0)  # on matrices only
    beta1: float = setting(0.9, 0, 1 - 1e-9)
    beta2: float = setting(0.95, 0, 1 - 1e-9)
    eps: float = setting(1e-5, 0)
    grad_clip: float = setting(1.0, 1e-9)  # the gradient's norm
    # how it is computed, watched and saved
    micro_rows: int = may_change(6, 0)  # rows that a process computes at once, at most; 0: all that it has
    log_every: int = may_change(10, 1)  # steps whose lines are written together
    tracker: str = may_change('', choices=TRACKERS)  # where log.jsonl's lines are sent, too
    val_every: int = may_change(1_000, 0)  # steps; 0: only at the end
    val_rows: int = may_change(512, 0)  # held-out rows, the same ones each time; 0, also later: no validation
    val_mask_ratio: float = may_change(0.4, 1e-9, 1)  # one for all runs, so that held-out losses compare
    save_every: int = may_change(1_000, 0)  # steps; 0: only at the end
    save_at: tuple = may_change((), of=int)  # steps whose checkpoints are always kept
    keep: int = may_change(2, 1)  # newest other checkpoints kept
    parallel: str = may_change('ddp', choices=('ddp', 'fsdp'))  # fsdp shards weights, gradients and optimizer
    device: str = may_change('auto', choices=('auto', 'cpu', 'cuda', 'mps'))  # auto: cuda, else mps, else cpu
    dtype: str = may_change('auto', choices=('auto', 'fp32', 'bf16'))  # weights and moments are fp32
    compile: bool = may_change(False)  # torch.compile the layers: for GPUs
    fa3: bool = may_change(True)  # FlashAttention 3 where it is installed, on GPUs of Hopper's kind
    recompute: bool = may_change(False)  # activations in the backward pass: less memory, a third more time
    branch_from: str = may_change('')  # another run's checkpoint to continue, optimizer and data position too
    weights_from: str = may_change('')  # start from the weights of a checkpoint or hub id, and its sizes
    new_head: bool = may_change(False)  # with weights_from: begin with a new output head, which it may lack
    out: str = may_change('out')  # folder of all runs

    @property
    def total_steps(self):
        return self.repeat * sum(steps for _, steps in self.phases)

    @property
    def counted_sizes(self):
        """The Sizes by which operations are counted: those of the model, if it is ours."""
        return self.model

    @property
    def held_out_objectives(self):
        """The objectives of held-out losses, each once: CLM and MLM always, so that all runs compare."""
        names = 'clm', 'mlm', *dict(self.phases)
        return [*dict.fromkeys(names)]

    def lr_at(self, step):
        """Return the learning rate of a step, counted from 0: the least of three lines.

        They are warm-up, stable and decay."""
        share = 1.0
        if self.warmup_steps:
            share = min(share, (step + 1) / self.warmup_steps)
        if self.decay_steps:
            share = min(share, (self.total_steps - step) / self.decay_steps)
        return self.lr * share

    def __post_init__(self):
        if is_phase(self.phases):    # a single pair, as --phases='("mlm", 10)' gives it
            object.__setattr__(self, 'phases', (self.phases,))
        check(self)    # each setting by itself
        if not self.phases or not all(map(is_phase, self.phases)):
            raise ValueError('phases must be (objective, steps) pairs such as (("clm", 10), ("mlm", 32)), '
                             f'objective one of {", ".join(OBJECTIVES)}, not {self.phases!r:.80}')
        object.__setattr__(self, 'matrix_lr_ratio', ratio_of(self))

        # those that depend on each other
        for name in ('decay_steps', 'warmup_steps'):
            steps = getattr(self, name)
            if type(steps) is float:    # a share of all steps
                steps = round(steps * self.total_steps)
                object.__setattr__(self, name, steps)
            check_value(name, int, steps, 0, self.total_steps)
        for step in self.save_at:
            check_value('save_at', int, step, 1, self.total_steps)

        if self.cut_rows and self.context < 2 * SHORTEST:
            raise ValueError(f'context must be at least {2 * SHORTEST} to cut rows, not {self.context}')
        shares = self.mask_replace
        if len(shares) != 3 or not math.isclose(sum(shares), 1):
            raise ValueError(f'mask_replace must be three shares that sum to 1, not {shares!r:.80}')

        if not self.name.strip() or '/' in self.name or self.name.startswith('.'):
            raise ValueError(f'name must be that of a folder in {self.out}, not {self.name!r:.80}; '
                             'set --name')
        if self.branch_from and self.weights_from:
            raise ValueError('branch_from excludes weights_from: a branch has its parent\'s')
        if self.weights_from and self.embedding_init != 'normal':
            raise ValueError('embedding_init is for new weights, and excludes weights_from')
        if self.new_head and (not self.weights_from or self.model.tie_word_embeddings):
            raise ValueError('new_head belongs to weights_from, and excludes tie_word_embeddings')


def is_phase(pair):
    """Return whether a value is (the name of an objective, a positive number of steps)."""
    if type(pair) is not tuple or len(pair) != 2:
        return False
    objective, steps = pair
    return objective in [*OBJECTIVES] and type(steps) is int and steps > 0


ACTIONS = {'dry_run': (False, 'print what the run will be, counted and not measured, and stop'),
           'world_size': (1, 'processes that --dry_run counts with', 1, 10 ** 6)}


def train(cfg: Settings, start=None, write_model=checkpoint.write_model):
    """Train a run, from its newest checkpoint if it has one, to its last step. At a signal it saves,
    and raises SystemExit with code 3.

    Other models than ours bring what makes them ready, instead of start_run, and what writes them, as
    examples/continue_encoder.py does:

    start(cfg: Settings, corpus: Corpus, world: World)
                 -> (model: Module, the same wrapped: Module, Optimizer, state: dict, how it began: str)
    write_model(folder: Path, model: Module, weights: {name: Tensor}, objective: str, corpus: Corpus,
                 cfg: Settings) -> None"""
    with processes(cfg.device, cfg.dtype) as world, stop_signals() as stop, locked_run(cfg, world) as run:
        check_rows(cfg, world.size)
        checkpoint.check_optimizer(cfg, world.device)
        corpus = checkpoint.open_corpus(cfg, world)
        if cfg.val_rows:
            check_held_out(corpus, cfg)
        model, wrapped, optimizer, state, how = (start or start_run)(cfg, corpus, world)
        log = Log(run, cfg, corpus, world, optimizer, state, how)

        def read(step):    # in a thread, a few steps ahead
            batches, count, rows_hash = read_step(step, corpus, cfg, world.rank, world.size)
            batches = [to_tensors(batch, cfg.context, world.device) for batch in batches]
            return step, batches, count, rows_hash

        done = state['step']
        for step, batches, count, rows_hash in in_order(read, range(done, cfg.total_steps)):
            # sums over processes, by gloo so that no GPU waits; a later signal stops after the next step
            count, stopping, rows_hash = world.sum([count, bool(stop), rows_hash])
            loss_sum, norm = train_step(wrapped, optimizer, batches, count, step, cfg, world)
            log.add(step, rows_hash, count, loss_sum, norm)

            done = step + 1
            validating = cfg.val_rows and is_due(cfg.val_every, done, cfg)
            saving = stopping or is_due(cfg.save_every, done, cfg) or done in cfg.save_at
            if validating:
                log.write(lambda: validate(wrapped, corpus, cfg, world))
            elif saving or is_due(cfg.log_every, done, cfg):
                log.write(lambda: {})
            if saving:
                checkpoint.save_checkpoint(
                    run, model, optimizer, done, log.seconds(), corpus, cfg, world, write_model)
            if stopping:
                break

    is_done = done == cfg.total_steps
    if world.rank == 0:
        end = 'done' if is_done else 'stopped'
        print(f'{run}: {end} at step {done:,}')
    if not is_done:
        sys.exit(3)     # what comes next, as in `make demo`, would take half a run for a whole one


def check_held_out(corpus, cfg):
    """ValueError if no held-out token is masked: the loss would read 0.0, the best of all."""
    for objective, batches in held_out_batches(corpus, cfg):
        if OBJECTIVES[objective].uses_ratio and not any(len(batch.at) for batch in batches):
            raise ValueError(f'val_mask_ratio {cfg.val_mask_ratio} masks no token of {cfg.val_rows} held-out '
                             'rows: take more of either, or --val_rows=0')


def held_out_batches(corpus, cfg, rank=0, world_size=1):
    """Yield each objective of validation and its batches.

    So that all runs compare, val_mask_ratio decides how much is masked, and what is masked becomes mask."""
    masking = replace(cfg, mask_ratio=cfg.val_mask_ratio, mask_replace=(1.0, 0.0, 0.0))
    for name in cfg.held_out_objectives:
        yield name, validation_batches(corpus, name, masking, rank, world_size)


def start_run(cfg, corpus, world):
    """Make a run ready for step state['step']. Returns (model, the same wrapped, optimizer, state, how it
    began in words)."""
    origin = checkpoint.find_origin(cfg, corpus, world, checkpoint.take_weights)
    model, wrapped, optimizer = build(cfg, world)
    checkpoint.load_weights(model, origin, cfg, corpus, world)
    checkpoint.read_optimizer(model, optimizer, origin, cfg)
    parameters = cost.numbers_in(model.parameters())
    how = f'{origin.how}; {parameters:,} parameters'
    attention = choose_flash_attention(world.device, cfg.fa3)
    if attention:
        how += f', attention by {attention}'
    return model, wrapped, optimizer, origin.state, how


def build(cfg, world):
    """Return (model, the same wrapped for this world, its optimizer). The weights are still empty."""
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
        model.compile_parts(as_one=world.size == 1)
    wrapped = model
    if world.size > 1 and cfg.parallel == 'ddp':
        wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True, init_sync=False)

    return model, wrapped, make_optimizer(model, cfg)


def to_tensors(batch, context, device):
    """Return the batch with tensors in place of arrays and Segments in place of lengths, pinned if a GPU is
    to read them. `longest` is that of the longest row in all batches alike: a compiled graph takes it for a
    constant."""
    tensors = {name: torch.from_numpy(getattr(batch, name)) for name in ARRAYS}
    segments = make_segments(batch.lengths, longest=context)
    if device.type == 'cuda':
        torch.cuda.set_device(device)  # a new thread is on the first GPU
        tensors = {name: tensor.pin_memory() for name, tensor in tensors.items()}
        segments = segments._replace(ends=segments.ends.pin_memory())
    return batch._replace(lengths=segments, **tensors)


def train_step(wrapped, optimizer, batches, count, step, cfg, world):
    """Make one update. Returns (this process's sum of losses, the gradient's norm before clipping), both on
    the device.

    The losses of all micro-batches and processes are summed and divided once by `count`, how many there are
    in the whole step: how rows are shared out does not matter. 1,152 rows on 8 processes are 24 x 6 each."""
    causal = OBJECTIVES[objective_at(step, cfg)].causal
    loss_sum = 0
    for batch in batches:
        # Only the last batch shares gradients between processes, so that this is done once a step; until then
        # FSDP keeps them whole. The flag is set before the forward pass, because DDP reads it there.
        is_last = batch is batches[-1]
        if isinstance(wrapped, DistributedDataParallel):
            wrapped.require_backward_grad_sync = is_last    # what no_sync() sets
        elif isinstance(wrapped, FSDPModule):
            wrapped.set_requires_gradient_sync(is_last)
        loss, *_ = forward(wrapped, batch, causal, world)
        # DDP and FSDP average gradients over processes: times their number is the sum
        (loss * (world.size / max(1, count))).backward()
        loss_sum += loss.detach()

    norm = torch.nn.utils.clip_grad_norm_(wrapped.parameters(), cfg.grad_clip)
    for group in optimizer.param_groups:
        group['lr'] = cfg.lr_at(step) * group['lr_ratio']
    optimizer.step()
    optimizer.zero_grad()
    return loss_sum, unsharded(norm)


def forward(wrapped, batch, causal, world):
    """Return what the model does of a batch, on this process's device: see Model.forward."""
    tokens, targets, at, weights = (
        getattr(batch, name).to(world.device, non_blocking=True) for name in ARRAYS)
    ends = batch.lengths.ends.to(world.device, non_blocking=True)
    segments = batch.lengths._replace(ends=ends)
    with world.autocast():
        return wrapped(tokens, segments, targets, causal, at, weights)


@torch.no_grad()
def validate(wrapped, corpus, cfg, world):
    """Measure {'val_clm_loss', 'val_mlm_loss', ...}: nats per target of held-out rows, how many targets, and
    'val_mlm_accuracy', the share of the predicted tokens that the model holds for likeliest.

    Rows, cuts and masks are the same each time and for every seed."""
    measured = {}
    for objective, batches in held_out_batches(corpus, cfg, world.rank, world.size):
        causal = OBJECTIVES[objective].causal
        loss_sum = 0
        num_losses = 0      # in the mean; masked diffusion has more of them than it predicts tokens
        num_predicted = 0
        correct = 0
        for batch in batches:
            batch = to_tensors(batch, cfg.context, world.device)
            num_losses += batch.weights.count_nonzero().item()
            loss, num_targets, num_correct = forward(wrapped, batch, causal, world)
            loss_sum += loss
            num_predicted += num_targets
            correct += num_correct
        loss_sum = world.sum_tensor(loss_sum).item()
        num_losses, num_predicted, correct = world.sum([num_losses, num_predicted, int(correct)])
        measured[f'val_{objective}_loss'] = loss_sum / max(1, num_losses)
        measured[f'val_{objective}_targets'] = num_losses
        measured[f'val_{objective}_accuracy'] = correct / max(1, num_predicted)
    if isinstance(wrapped, FSDPModule):
        wrapped.reshard()  # without a backward pass the embedding and the head stay whole
    return measured


def is_due(every, done, cfg):
    """Return whether it is time for what is done every so many steps (0: never), and always at the end."""
    if done == cfg.total_steps:
        return True
    return every > 0 and done % every == 0


def main():
    cfg, actions = parse(Settings, sys.argv[1:], ACTIONS, partial(checkpoint.inherited, Settings))
    if actions.dry_run:
        cost.dry_run(cfg, actions.world_size)
    else:
        train(cfg)


if __name__ == '__main__':
    run_main(main)

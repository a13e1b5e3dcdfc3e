"""A run's checkpoints: Hugging Face folders with AdamW's moments and the state beside the weights. No pickle.

A checkpoint exists complete or not at all, opens under DDP, FSDP and in any number of processes, and gives
back the same bits. Tensors are gathered and read one at a time; while they are written, training goes on.
"""
import json
import math
import shutil
import sys
from concurrent import futures

import torch
from torch.distributed.tensor import DTensor, distribute_tensor

from data import OBJECTIVES, objective_at
from nanoencoder import huggingface
from nanoencoder.pretraining.cost import describe_phases, flops_until
from nanoencoder.durable import sha256, whole_folder, write_json
from nanoencoder.settings import flat

KEPT = ('step', 'seconds', 'base_model', 'origin', 'logged_from')  # of a run's state, beside its settings
TOKENIZER_FILES = ('tokenizer.json', 'tokenizer_config.json')  # a corpus's, copied into each checkpoint
MNTP_NOTE = ' Trained with MNTP: it predicts a masked token at the position before it.'
QWEN3_NOTE = (' The class is a decoder\'s, for only that has norms of q and k: `is_causal` in config.json '
              'takes its causal mask away, which versions before 5.2 ignore in silence.')


def copy_into(tensor, whole):
    """Copy a whole CPU tensor into a tensor that may be one process's shard."""
    whole = whole.to(tensor.device, tensor.dtype)
    if isinstance(tensor, DTensor):
        mesh, placements = tensor.device_mesh, tensor.placements
        whole = distribute_tensor(whole, mesh, placements, src_data_rank=None)  # each process has read it
    tensor.copy_(whole)


def gather(tensors, rank):
    """{name: copy on the CPU} on rank 0, of tensors that may be sharded; other ranks hold one at a time."""
    gathered = {}
    for name, tensor in tensors.items():
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if rank == 0:
            gathered[name] = whole.detach().to('cpu', copy=True)
    return gathered


def moments(model, optimizer):
    """{'<parameter>.exp_avg', '<parameter>.exp_avg_sq': tensor}: all that AdamW remembers but the step."""
    return {f'{name}.{key}': optimizer.state[p][key]
            for name, p in model.named_parameters() for key in ('exp_avg', 'exp_avg_sq')}


@torch.no_grad()
def read_moments(model, optimizer, folder, step):
    """Give AdamW what it remembered at a step."""
    for p in model.parameters():  # the state that AdamW's first step would make
        count = torch.tensor(float(step), device=p.device if optimizer.defaults['fused'] else 'cpu')
        zeros = {key: torch.zeros_like(p) for key in ('exp_avg', 'exp_avg_sq')}
        optimizer.state[p] = {'step': count, **zeros}
    tensors = moments(model, optimizer)
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    for name, whole in huggingface.read_exactly(folder / 'optimizer.safetensors', shapes):
        copy_into(tensors[name], whole)


def check_finite(model, optimizer, step, world):
    """FloatingPointError, in every process, if a weight or a moment in any of them is not finite."""
    tensors = [*model.parameters(), *moments(model, optimizer).values()]
    shards = [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors]
    largest = torch.nn.utils.get_total_norm([shard for shard in shards if shard.numel()], math.inf)
    if world.sum([int(not largest.isfinite())])[0]:
        raise FloatingPointError(f'step {step}: its update made weights or moments that are not finite')


def fixed(cfg, corpus, world):
    """What fixes the numbers of a run, in JSON's types: equal whenever it resumes."""
    numbers = flat(cfg, fixes=('numbers',)) | {'dtype': world.dtype}
    return json.loads(json.dumps(numbers | {'corpus fingerprint': corpus.meta['fingerprint']}))


class Saver:
    """Rank 0 copies weights and moments to its CPU; a thread writes them while training goes on.

    The run ends after its last checkpoint is written. The thread's error ends all processes at one step.
    """

    turn = 60    # seconds

    def __init__(self, world):
        self.world, self.thread, self.writing = world, futures.ThreadPoolExecutor(1), None

    def __enter__(self):
        return self

    def __exit__(self, error, *_):
        with self.thread:  # which ends, on leaving, when all is written
            if not error:
                self.wait()
        if self.writing and (other := self.writing.exception()):
            print(f'the last checkpoint was not written: {other}', file=sys.stderr)

    def failed(self):
        """Whether an error stopped the thread, which writes on rank 0 alone."""
        return bool(self.writing and self.writing.done() and self.writing.exception())

    def check(self, count):
        """Where `failed`, summed over processes, is not 0, end them all: rank 0 with the thread's error."""
        if count and self.world.rank:
            sys.exit(1)  # rank 0 says why
        if count:
            writing, self.writing = self.writing, None
            writing.result()    # raises it

    def wait(self):
        """Until nothing is being written. All processes call it.

        They hear of rank 0 each turn: it may write for longer than the ten minutes an exchange may last.
        """
        late = True
        while late:
            if self.writing:
                futures.wait([self.writing], self.turn)
            late, failed = self.world.sum([bool(self.writing and not self.writing.done()), self.failed()])
        self.check(failed)

    def save(self, run, model, optimizer, state, corpus, cfg):
        """Copy weights and moments to rank 0's CPU; its thread writes <run>/<step>/. All processes call it.

        state holds what KEPT names; the rest of state.json follows from the settings. FloatingPointError, and
        no checkpoint, if a weight or a moment is not finite.
        """
        self.wait()
        check_finite(model, optimizer, state['step'], self.world)
        weights = gather(dict(model.named_parameters()), self.world.rank)
        remembered = gather(moments(model, optimizer), self.world.rank)
        if self.world.rank == 0:
            state = {name: state[name] for name in KEPT} | {
                'flops': flops_until(cfg, state['step']), 'processes': self.world.size,
                'fixed': fixed(cfg, corpus, self.world), 'settings': flat(cfg)}
            parts = model.sizes, weights, remembered, state
            self.writing = self.thread.submit(write, run, *parts, corpus, cfg)


def write(run, sizes, weights, remembered, state, corpus, cfg):
    """Write <run>/<step>/ complete or not at all, then remove what `prune` does not keep."""
    step = state['step']
    ids = {role: corpus.meta[f'{role}_token_id'] for role in ('bos', 'eos', 'pad', 'mask')}
    with whole_folder(run / str(step)) as folder:
        huggingface.save(folder, sizes, cfg.context, ids, weights, objective=objective_at(step - 1, cfg))
        huggingface.write_tensors(folder / 'optimizer.safetensors', remembered)
        for name in TOKENIZER_FILES:
            shutil.copyfile(corpus.folder / name, folder / name)
        state['sha256'] = {path.name: sha256(path) for path in sorted(folder.iterdir())}
        write_json(folder / 'state.json', state | {'digest': huggingface.digest_of(state)})
        parameters = sum(weight.numel() for weight in weights.values())
        write_card(folder, parameters, state, corpus, cfg)  # for people to edit: has no sha256
    prune(run, cfg)


def write_card(folder, parameters, state, corpus, cfg):
    """README.md, a model card."""
    done, data, last = state['step'], corpus.meta['settings'], objective_at(state['step'] - 1, cfg)
    kinds = [kind for kind, _ in cfg.phases]
    pipeline, use = 'feature-extraction', "AutoModel.from_pretrained('<this folder>')"
    if last != 'mntp' and not OBJECTIVES[last].causal:
        pipeline, use = 'fill-mask', "pipeline('fill-mask', '<this folder>')"
    masked = any(OBJECTIVES[kind].uses_ratio for kind in kinds)
    share = f'; {cfg.mask_ratio:.0%} of the tokens masked' if masked else ''
    path = data['path'].rstrip('/').split('/')[-1] if data['source'] == 'folder' else data['path']
    note = MNTP_NOTE if last == 'mntp' else ''
    if cfg.model.qk_norm:
        note += QWEN3_NOTE
    what = 'A bidirectional encoder'
    if all(OBJECTIVES[kind].causal for kind in kinds):
        what = 'A transformer trained causally, which opens as a bidirectional encoder'
    huggingface.write_card(
        folder, title=f'{cfg.name}, step {done:,} of {cfg.total_steps:,}',
        about=f'{what} of\n{parameters:,} parameters, trained with nanoEncoder.',
        rows={'begun': state['origin'], 'phases': describe_phases(cfg, str.upper) + share,
              'data': ' '.join(filter(None, (data['source'], path, data['subset']))),
              'tokens': f'{done * cfg.rows_per_step * cfg.context:,}, in rows of {cfg.context:,}'},
        use=use, pipeline=pipeline, base_model=state['base_model'], note=note)


def prune(run, cfg):
    """Remove all but the newest `keep` checkpoints; those of save_at and of the last step stay."""
    steps = [step for step in huggingface.saved_steps(run) if step not in (*cfg.save_at, cfg.total_steps)]
    for step in steps[:-cfg.keep]:
        (run / str(step)).rename(run / f'.{step}.tmp')
        shutil.rmtree(run / f'.{step}.tmp')

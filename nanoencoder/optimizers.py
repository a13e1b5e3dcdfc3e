"""Muon on the matrices of the layers, AdamW on embeddings, head and gains: one optimizer, one schedule.

Keller Jordan et al., Muon: An optimizer for hidden layers in neural networks, 2024. The update is
that of torch.optim.Muon, which orthogonalises in bf16; on CPUs, many of which have no bf16, we use fp32.
Another optimizer is an entry of OPTIMIZERS: docs/hacking.md."""
from typing import Callable, NamedTuple

import torch

from model import parameter_groups
from nanoencoder.processes import sharded_as, unsharded

MOMENTUM = 0.95     # Nesterov's; this, the five steps and their coefficients are Jordan's
AT_ONCE = 8         # matrices that are orthogonalised together; all of a large model's would take much memory


def orthogonalise(stack):
    """(k, m, n): about U V^T of each matrix U S V^T. Five Newton-Schulz steps bring singular values to 0.7 to
    1.2. Threads take a matrix of the stack each: within a small one they would only wait for each other."""
    if stack.shape[1] > stack.shape[2]:
        return orthogonalise(stack.mT).mT   # whose x @ x.mT below is the smaller one
    x = stack.bfloat16() if stack.is_cuda else stack
    norm = x.norm(dim=(1, 2), keepdim=True)
    x = x / norm.clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=-4.7750, alpha=2.0315)
        x = torch.baddbmm(x, polynomial, x, beta=3.4445)
    return x.to(stack.dtype)


class Muon(torch.optim.AdamW):
    """AdamW, but Muon for the last of `parameter_groups`, the layers' matrices.

    A sharded matrix (FSDP) is gathered, and each process orthogonalises all of it."""
    def update(self, p):
        """Return the Nesterov momentum of a parameter's gradient, whole."""
        state = self.state[p]
        if not state:
            state['momentum_buffer'] = torch.zeros_like(p)
        momentum = state['momentum_buffer'].lerp_(p.grad, 1 - MOMENTUM)
        return unsharded(p.grad.lerp(momentum, MOMENTUM))

    @torch.no_grad()
    def step(self):
        matrices = self.param_groups.pop()
        super().step()
        self.param_groups.append(matrices)

        lr = matrices['lr']
        decay = 1 - lr * matrices['weight_decay']
        by_shape = {}   # {shape: its matrices}
        for p in matrices['params']:
            if p.grad is not None:
                by_shape.setdefault(p.shape, []).append(p)
        for shape, parameters in by_shape.items():
            rate = lr * max(1, shape[0] / shape[1]) ** 0.5
            for k in range(0, len(parameters), AT_ONCE):
                together = parameters[k:k + AT_ONCE]
                updates = torch.stack([self.update(p) for p in together])
                for p, update in zip(together, orthogonalise(updates)):
                    update = sharded_as(p, update)
                    p.mul_(decay)
                    p.add_(update, alpha=-rate)


class Optimizer(NamedTuple):
    make: Callable          # (groups, cfg) -> a torch.optim.Optimizer of the groups of `parameter_groups`
    usual_ratio: float      # rate of the layers' matrices, the last group, as a multiple of lr


def adamw(groups, cfg):
    return torch.optim.AdamW(groups, betas=(cfg.beta1, cfg.beta2), eps=cfg.eps, fused=True)


def muon(groups, cfg):
    if not groups[-1]['params']:
        raise ValueError('optimizer muon: finds no layers with matrices in this model')
    return Muon(groups, betas=(cfg.beta1, cfg.beta2), eps=cfg.eps, fused=True)


OPTIMIZERS = {  # a new one is a function above and an entry here
    'adamw': Optimizer(adamw, 1.0),
    'muon': Optimizer(muon, 6.7)}   # times the tiny model's rate of 3e-3 it is Jordan's 0.02


def ratio_of(cfg):
    """Return the rate of the layers' matrices as a multiple of lr. A setting of 0 means the usual ratio."""
    return cfg.matrix_lr_ratio or OPTIMIZERS[cfg.optimizer].usual_ratio


def make_groups(module, cfg):
    """Return the groups of a module's parameters, as a training's settings have them."""
    groups = parameter_groups(module, cfg.weight_decay, ratio_of(cfg))
    grouped = [id(p) for group in groups for p in group['params']]
    assert sorted(grouped) == sorted(map(id, module.parameters())), 'each parameter is in one group'
    return groups


def make_optimizer(module, cfg):
    """Return the optimizer that a training's settings name. Its loop sets the rate of each group: that of the
    schedule, times the group's lr_ratio."""
    groups = make_groups(module, cfg)
    return OPTIMIZERS[cfg.optimizer].make(groups, cfg)


def groups_in_words(groups, cfg):
    """Return a line about each of an optimizer's groups, with its learning rate at the schedule's peak."""
    lines = []
    for group in groups:
        count = sum(p.numel() for p in group['params'])
        rate = cfg.lr * group['lr_ratio']
        decay = group['weight_decay']
        lines.append(f'{group["name"]}: {count:,} parameters, lr {rate:g}, weight decay {decay:g}')
    return lines

"""Muon on the matrices of the layers, AdamW on embeddings, head and gains: one optimizer, one learning rate.

Keller Jordan et al., Muon: An optimizer for hidden layers in neural networks, 2024. The update of
torch.optim.Muon, which orthogonalises in bf16: CPUs do it in fp32 here, 20 times as fast.
"""
import torch
from torch.distributed.tensor import DTensor, distribute_tensor

from model import parameter_groups

MOMENTUM = 0.95     # Nesterov's; this, the five steps and their coefficients are Jordan's


def orthogonalise(matrix):
    """About U V^T of a matrix U S V^T: its singular values go to 0.7 to 1.2, by five Newton-Schulz steps."""
    x = matrix.bfloat16() if matrix.is_cuda else matrix
    x = x.mT if matrix.shape[0] > matrix.shape[1] else x
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
    return x.mT if matrix.shape[0] > matrix.shape[1] else x


class Muon(torch.optim.AdamW):
    """AdamW, but for its last group: the layers' matrices, whose learning rate is `lr_ratio` times as high.

    A sharded matrix (FSDP) is gathered, and each process orthogonalises all of it.
    """
    def __init__(self, model, weight_decay, lr_ratio, **options):
        matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
        decayed, others = parameter_groups(model, weight_decay)
        decayed['params'] = [p for p in decayed['params'] if p not in {*matrices}]
        super().__init__([decayed, others, {'params': matrices, 'weight_decay': weight_decay}], **options)
        self.lr_ratio = lr_ratio

    @torch.no_grad()
    def step(self):
        matrices = self.param_groups.pop()
        super().step()
        self.param_groups.append(matrices)
        lr = self.lr_ratio * matrices['lr']
        for p in matrices['params']:
            if not self.state[p]:
                self.state[p]['momentum_buffer'] = torch.zeros_like(p)
            momentum = self.state[p]['momentum_buffer']
            update = p.grad.lerp(momentum.lerp_(p.grad, 1 - MOMENTUM), MOMENTUM)
            whole = update.full_tensor() if isinstance(update, DTensor) else update
            whole, ratio = orthogonalise(whole).to(p.dtype), max(1, p.shape[0] / p.shape[1]) ** 0.5
            if isinstance(p, DTensor):
                whole = distribute_tensor(whole, p.device_mesh, p.placements, src_data_rank=None)
            p.mul_(1 - lr * matrices['weight_decay']).add_(whole, alpha=-lr * ratio)

"""Muon on the matrices of the layers, AdamW on embeddings, head and gains: one optimizer, one schedule.

Keller Jordan et al., Muon: An optimizer for hidden layers in neural networks, 2024. The update of
torch.optim.Muon, which orthogonalises in bf16: CPUs, of which many lack that, do it in fp32 here."""
import torch
from torch.distributed.tensor import DTensor, distribute_tensor

from model import parameter_groups

MOMENTUM = 0.95     # Nesterov's; this, the five steps and their coefficients are Jordan's


def orthogonalise(stack):
    """(k, m, n): about U V^T of each matrix U S V^T; singular values go to 0.7 to 1.2, by five Newton-Schulz
    steps. Of a stack threads take a matrix each: within a small one they would wait for each other."""
    x = stack.bfloat16() if stack.is_cuda else stack
    x = x.mT if stack.shape[1] > stack.shape[2] else x
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
    return (x.mT if stack.shape[1] > stack.shape[2] else x).to(stack.dtype)


class Muon(torch.optim.AdamW):
    """AdamW, but for its last group: the layers' matrices, whose learning rate is `lr_ratio` times as high.

    A sharded matrix (FSDP) is gathered, and each process orthogonalises all of it."""
    def __init__(self, model, weight_decay, lr_ratio, **options):
        matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
        decayed, gains = parameter_groups(model, weight_decay)
        decayed['params'] = [p for p in decayed['params'] if p not in {*matrices}]
        super().__init__([decayed, gains, {'params': matrices, 'weight_decay': weight_decay}], **options)
        self.lr_ratio = lr_ratio

    def update(self, p):
        """The gradient's Nesterov momentum, whole."""
        if not self.state[p]:
            self.state[p]['momentum_buffer'] = torch.zeros_like(p)
        update = p.grad.lerp(self.state[p]['momentum_buffer'].lerp_(p.grad, 1 - MOMENTUM), MOMENTUM)
        return update.full_tensor() if isinstance(update, DTensor) else update

    @torch.no_grad()
    def step(self):
        matrices = self.param_groups.pop()
        super().step()
        self.param_groups.append(matrices)
        lr = self.lr_ratio * matrices['lr']
        for shape in {p.shape: None for p in matrices['params']}:
            alike = [p for p in matrices['params'] if p.shape == shape]
            rate = lr * max(1, shape[0] / shape[1]) ** 0.5
            for some in (alike[k:k + 8] for k in range(0, len(alike), 8)):      # all would take much memory
                for p, whole in zip(some, orthogonalise(torch.stack([*map(self.update, some)]))):
                    if isinstance(p, DTensor):
                        whole = distribute_tensor(whole, p.device_mesh, p.placements, src_data_rank=None)
                    p.mul_(1 - lr * matrices['weight_decay']).add_(whole, alpha=-rate)

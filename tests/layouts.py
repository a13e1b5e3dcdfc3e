"""In each of several processes: train the runs of a JSON list of settings one after the other."""
import json
import os
import sys
import types

import torch.distributed as dist
from safetensors.torch import save_file
from torch.distributed.tensor import DTensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

import pretrain
from nanoencoder import processes
from nanoencoder.settings import make_settings as settings_of


def train(cfg):
    """pretrain.train; rank 0 writes the gradient of the first step, {number of the parameter: tensor}."""
    seen = []

    def keep_first_gradient(optimizer, *_):
        if not seen:
            gradients = {}
            parameters = [p for group in optimizer.param_groups for p in group['params']]
            for k, p in enumerate(parameters):
                if isinstance(p.grad, DTensor):
                    gradients[str(k)] = p.grad.full_tensor()
                else:
                    gradients[str(k)] = p.grad.clone()
            seen.append(gradients)
    hook = register_optimizer_step_pre_hook(keep_first_gradient)
    try:
        pretrain.train(cfg)
    finally:
        hook.remove()
    if seen and os.environ.get('RANK', '0') == '0':
        save_file(seen[0], f'{cfg.out}/{cfg.name}/first_gradient.safetensors')


def main():
    dist.init_process_group('gloo')  # once for all runs: torchrun's store serves one start of a group
    dist.init_process_group = dist.destroy_process_group = lambda *_, **__: None
    processes.time = types.SimpleNamespace(sleep=lambda seconds: None)  # no group is torn down between runs
    for settings in json.loads(sys.argv[1]):
        train(settings_of(pretrain.Settings, settings))

"""In each of several processes: train the runs of a JSON list of settings one after the other.
"""
import json
import sys
import types

import torch.distributed as dist
from safetensors.torch import save_file
from torch.distributed.tensor import DTensor

import pretrain
from nanoencoder import processes
from nanoencoder.settings import build as settings_of


def train(cfg):
    """pretrain.train; rank 0 writes the gradient of the first step."""
    seen, build = [], pretrain.build

    def watched(cfg, world):
        def keep_first_gradient(*_):
            if not seen:
                whole = {name: p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad.clone()
                         for name, p in model.named_parameters()}
                seen.append(whole if world.rank == 0 else {})
        model, wrapped, optimizer = build(cfg, world)
        optimizer.register_step_pre_hook(keep_first_gradient)
        return model, wrapped, optimizer
    pretrain.build = watched
    try:
        pretrain.train(cfg)
    finally:
        pretrain.build = build
    if seen and seen[0]:
        save_file(seen[0], f'{cfg.out}/{cfg.name}/first_gradient.safetensors')


def main():
    dist.init_process_group('gloo')  # once for all runs: torchrun's store serves one start of a group
    dist.init_process_group = dist.destroy_process_group = lambda *_, **__: None
    processes.time = types.SimpleNamespace(sleep=lambda seconds: None)  # no group is torn down between runs
    for settings in json.loads(sys.argv[1]):
        train(settings_of(pretrain.Settings, settings))

"""Under torchrun: train the runs of a JSON list of settings one after the other, in this number of processes.

Beside each run, rank 0 writes the gradient of its first step.
"""
import json
import sys

import torch.distributed as dist
from safetensors.torch import save_file

import pretrain


def main():
    dist.init_process_group('gloo')  # once for all runs: torchrun's store serves one start of a group
    dist.init_process_group = dist.destroy_process_group = lambda *_: None
    make_optimizer = pretrain.make_optimizer
    for settings in json.loads(sys.argv[1]):
        settings = {name: tuple(map(tuple, value)) if name == 'phases' else tuple(value) if isinstance(value, list) else value
                    for name, value in settings.items()}
        cfg = pretrain.Settings(**settings)
        seen = []

        def watched(model, cfg, world):
            def keep_first_gradient(optimizer, *_):
                if not seen:
                    seen.append(pretrain.gather({name: p.grad for name, p in model.named_parameters()}, world.rank))
            optimizer = make_optimizer(model, cfg, world)
            optimizer.register_step_pre_hook(keep_first_gradient)
            return optimizer

        pretrain.make_optimizer = watched
        pretrain.train(cfg)
        if seen and seen[0]:
            save_file(seen[0], f'{cfg.out}/{cfg.name}/first_gradient.safetensors')


if __name__ == '__main__':
    main()

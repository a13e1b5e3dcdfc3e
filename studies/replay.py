"""Train as pretrain.py does, and write down what the model is given to learn from: the referee's witness.

    cd a-worktree && python ../studies/replay.py OUT --name=again --out=OUT ...

pretrain.py and model.py are those of the folder it is started in. OUT/tokens and OUT/targets hold int32 of
every forward pass that has a gradient, in order. studies/speedrun.py starts it and compares them."""
import os
import sys
from pathlib import Path

if __name__ == '__main__':  # before torch loads OpenMP, which reads it: waiting threads sleep, not spin
    os.environ.setdefault('OMP_WAIT_POLICY', 'passive')
sys.path.insert(0, os.getcwd())

import numpy as np
import torch

import pretrain
from model import Model
from nanoencoder.settings import asks_for_help, run_main


def watch(folder):
    """Have Model write its tokens and targets into files before each pass that has a gradient."""
    files = [Path(folder, name).open('wb') for name in ('tokens', 'targets')]
    unwatched = Model.forward

    def forward(self, tokens, segments, targets, *more, **others):
        if torch.is_grad_enabled():
            for file, tensor in zip(files, (tokens, targets)):
                file.write(tensor.numpy().astype(np.int32))
        return unwatched(self, tokens, segments, targets, *more, **others)
    Model.forward = forward


def main():
    if not asks_for_help(sys.argv):
        watch(sys.argv.pop(1))
    pretrain.main()


if __name__ == '__main__':
    run_main(main)

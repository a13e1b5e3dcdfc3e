"""What runs of a claim's code, in a process of its own, which referee.py starts.

    cd a-commit && python ../speedrun/replay.py train OUT --name=again --out=OUT ...
    cd our-files && python ../speedrun/replay.py answer CHECKPOINT QUESTIONS

pretrain.py and model.py are those of the folder it is started in. `train` trains as pretrain.py does, and
writes down what the model learns from: OUT/tokens and OUT/targets hold int32 of every forward pass that has a
gradient, in order; OUT/operations holds float64, how many operations came before each of them, and in all.
`answer` prints fp32 logits of the masked positions of held-out rows, whose targets it is not told."""
import json
import os
import sys
from pathlib import Path

if __name__ == '__main__':  # before torch loads OpenMP, which reads it: waiting threads sleep, not spin
    os.environ.setdefault('OMP_WAIT_POLICY', 'passive')
sys.path.insert(0, os.getcwd())

import numpy as np
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

import pretrain
from model import Model
from nanoencoder.huggingface import open_checkpoint
from nanoencoder.settings import plain_words, run_main


class Counter(TorchDispatchMode):
    """Counts operations of matrices by torch's formulas, as its FlopCounterMode does. That one computes some
    functions in other ways than torch alone, which changes the last bits of the weights. What an optimizer
    computes is not counted, as in cost.py: Muon's would be half as much again."""
    def __init__(self):
        super().__init__()
        self.total = 0
        self.depth = 0      # of the optimizers' steps that run: Muon's calls AdamW's
        self.formulas = flop_registry | {torch.ops.aten.addmm_: flop_registry[torch.ops.aten.addmm]}
        register_optimizer_step_pre_hook(lambda *step: self.enter(1))
        register_optimizer_step_post_hook(lambda *step: self.enter(-1))

    def enter(self, change):
        self.depth += change

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        named = named or {}
        result = function(*arguments, **named)
        formula = self.formulas.get(function.overloadpacket)
        if formula and not self.depth:
            self.total += formula(*arguments, **named, out_val=result)
        return result


def watch(folder, counter):
    """Have Model write its tokens and targets, and what has been counted, before each pass that has a
    gradient. Returns the file of the counts."""
    read, wanted, counts = [Path(folder, name).open('wb') for name in ('tokens', 'targets', 'operations')]
    unwatched = Model.forward

    def forward(self, tokens, segments, targets, *more, **others):
        if torch.is_grad_enabled():
            read.write(tokens.numpy().astype(np.int32))
            wanted.write(targets.numpy().astype(np.int32))
            counts.write(np.float64(counter.total))
        return unwatched(self, tokens, segments, targets, *more, **others)
    Model.forward = forward
    return counts


def train(folder):
    with Counter() as counter:
        counts = watch(folder, counter)
        pretrain.main()
    counts.write(np.float64(counter.total))


@torch.no_grad()
def answer(checkpoint, questions):
    """Print the logits of each line of a file: masked tokens, lengths of their segments, masked positions."""
    model = open_checkpoint(checkpoint).model()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), 'wb')
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())   # what the claim's code prints is no answer
    for line in open(questions):
        question = json.loads(line)
        tokens, at = torch.tensor(question['tokens']), torch.tensor(question['at'])
        states = model.model(tokens, question['lengths'], False)[at]
        answers.write(model.logits(states).float().numpy().tobytes())
        answers.flush()


def main():
    action, *words = plain_words(sys.argv[1:])
    if action == 'train':
        folder = words.pop(0)
        sys.argv[1:] = words    # which pretrain.py reads
        train(folder)
    else:
        answer(*words)


if __name__ == '__main__':
    run_main(main)

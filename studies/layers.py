"""Layer by layer: how alike checkpoints are, and what a linear classifier reads off each.
    python -m nanoencoder.layers configs/tasks/docs_tc.py out/clm25-mlm-1800-s6 out/mlm-1800-s6

All are compared with the first, on the test tokens of a task of kind TC. Layer 0 is the embedding."""
import os
import sys

if __name__ == '__main__':  # before torch loads OpenMP, which reads it: waiting threads sleep, not spin
    os.environ.setdefault('OMP_WAIT_POLICY', 'passive')

import numpy as np
import torch

from finetune import PROBED, ridge
from nanoencoder import tasks
from nanoencoder.huggingface import open_checkpoint, run_of
from nanoencoder.judging import figures
from nanoencoder.settings import parse, run_main
from nanoencoder.tasks.kind import pack


def linear_cka(x, y):
    """Kornblith et al. 2019, of (tokens, d) and (tokens, e): 1 if they differ by a rotation and a scale."""
    x, y = (states.astype(np.float64) - states.mean(0, dtype=np.float64) for states in (x, y))
    return np.sum((x.T @ y) ** 2) / (np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y))


@torch.no_grad()
def read_layers(transformer, examples):
    """[[(n, d) of each example's n tokens] of the embedding and of each layer]"""
    layers, read, states = [transformer.embed_tokens, *transformer.layers], [], []
    hooks = [layer.register_forward_hook(lambda _, inputs, x: states.append(x.numpy())) for layer in layers]
    for part in pack([len(example.tokens) for example in examples], 16_384):
        arrays, states[:] = [examples[k].tokens for k in part], []
        transformer(torch.from_numpy(np.concatenate(arrays)), [*map(len, arrays)], causal=False)
        read.append([np.split(x, np.cumsum([*map(len, arrays)])[:-1]) for x in states])
    [hook.remove() for hook in hooks]
    return [sum(of_layer, []) for of_layer in zip(*read)]


def main():
    names, points, first = [word for word in sys.argv[2:] if not word.startswith('--')], [], None
    task, _ = parse(tasks.Task, [word for word in sys.argv[1:] if word not in names])
    if task.kind != 'TC' or not names:
        raise ValueError('it takes a task of kind TC, then checkpoints')
    for checkpoint in map(open_checkpoint, names):
        model = checkpoint.model(head=False)
        data = tasks.load_data(task, checkpoint.tokenizer(),
                               task.max_length or round(0.99 * checkpoint.context))
        examples = {split: data.examples[split][:PROBED] for split in tasks.SPLITS}
        targets = {split: [example.targets for example in part] for split, part in examples.items()}
        read = {split: read_layers(model, part) for split, part in examples.items()}
        gold = np.concatenate(targets['test'])  # below 0 there is no label
        tested = [np.concatenate(states)[gold >= 0] for states in read['test']]
        if first and [*map(len, tested)] != [*map(len, first)]:
            raise ValueError(f'{checkpoint.folder}: has other layers, or another tokenizer, than {names[0]}')
        first, run, step = first or tested, run_of(checkpoint.folder).name, checkpoint.state.get('step', 0)
        for k, (x, other) in enumerate(zip(tested, first)):
            scores = ridge({split: states[k] for split, states in read.items()}, targets, len(data.labels))
            right = (np.concatenate(scores['test']).argmax(1) == gold)[gold >= 0]
            seen = {'CKA with the first': linear_cka(x, other), 'accuracy of a probe': right.mean()}
            print(f'{checkpoint.folder}, layer {k}:', *(f'{what} {x:.3f}' for what, x in seen.items()))
            points += [(what, f'{run}, layer {k}', step, x, x, x) for what, x in seen.items()]
    print(figures.save(figures.curves(points, 'steps', 'linear', ''), 'figures/layers.png'))


if __name__ == '__main__':
    run_main(main)

"""Layer by layer: how alike checkpoints are, and what a linear classifier reads off each.

    python -m nanoencoder.layers configs/tasks/docs_tc.py out/clm25-mlm-1800-s6 out/mlm-1800-s6

All are compared with the first, on the test tokens of a task of kind TC. Layer 0 is the embedding.
"""
import sys

import numpy as np
import torch

from nanoencoder import tasks
from nanoencoder.huggingface import open_checkpoint, run_of
from nanoencoder.judging import figures
from nanoencoder.settings import parse, run_main
from nanoencoder.tasks.kind import NO_LABEL, PROBED


def linear_cka(x, y):
    """Kornblith et al. 2019, of (tokens, d) and (tokens, e): 1 if they differ by a rotation and a scale."""
    x, y = (states.astype(np.float64) - states.mean(0, dtype=np.float64) for states in (x, y))
    return np.sum((x.T @ y) ** 2) / (np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y))


@torch.no_grad()
def read_layers(transformer, examples):
    """([(labelled tokens, d) of the embedding and of each layer], their labels)"""
    layers = [transformer.embed_tokens, *transformer.layers]
    states, targets = [[] for _ in layers], np.concatenate([example.targets for example in examples])
    hooks = [layer.register_forward_hook(lambda _, inputs, x, seen=seen: seen.append(x.numpy()))
             for layer, seen in zip(layers, states)]
    for example in examples:
        transformer(torch.from_numpy(example.tokens), [len(example.tokens)], causal=False)
    [hook.remove() for hook in hooks]
    return [np.concatenate(seen)[targets != NO_LABEL] for seen in states], targets[targets != NO_LABEL]


def main():
    from sklearn.linear_model import RidgeClassifier
    names, points, reference = [word for word in sys.argv[2:] if not word.startswith('--')], [], None
    task, _ = parse(tasks.Task, [word for word in sys.argv[1:] if word not in names])
    if task.kind != 'TC' or not names:
        raise ValueError('it takes a task of kind TC, then checkpoints')
    for checkpoint in map(open_checkpoint, names):
        data = tasks.load_data(task, checkpoint.tokenizer(), checkpoint.context)
        transformer = checkpoint.model(head=False)
        trained, labels = read_layers(transformer, data.examples['train'][:PROBED])
        tested, gold = read_layers(transformer, data.examples['test'])
        reference = reference or tested
        run, step = run_of(checkpoint.folder).name, checkpoint.state.get('step', 0)
        for k, (x, y, other) in enumerate(zip(trained, tested, reference)):
            accuracy = RidgeClassifier().fit(x / x.std(), labels).score(y / x.std(), gold)
            seen = {'CKA with the first': linear_cka(y, other), 'accuracy of a probe': accuracy}
            print(f'{checkpoint.folder}, layer {k}:', *(f'{what} {x:.3f}' for what, x in seen.items()))
            points += [(what, f'{run}, layer {k}', step, x, x, x) for what, x in seen.items()]
    print(figures.save(figures.curves(points, 'steps', 'linear', ''), 'figures/layers.png'))


if __name__ == '__main__':
    run_main(main)

"""Layer by layer: how alike checkpoints are, and what a linear classifier reads from each layer.

    python studies/layers.py configs/tasks/docs_tc.py out/clm25-mlm-1800-s6 out/mlm-1800-s6

All are compared with the first, on the test tokens of a task of kind TC. Layer 0 is the embedding."""
import os
import sys
from functools import partial
from pathlib import Path

if __name__ == '__main__':  # before torch loads OpenMP, which reads it: waiting threads sleep, not spin
    os.environ.setdefault('OMP_WAIT_POLICY', 'passive')
sys.path.insert(0, str(Path(__file__).parents[1]))  # the root, where finetune.py is

import numpy as np
import torch

from finetune import probed_rows, ridge
from nanoencoder import tasks
from nanoencoder.figures import curves, save
from nanoencoder.huggingface import open_checkpoint, run_of
from nanoencoder.settings import parse, run_main, split_words
from nanoencoder.tasks.kind import pack


def linear_cka(x, y):
    """Return how alike (tokens, d) and (tokens, e) states are, from 0 to 1 (Kornblith et al. 2019): 1
    if they differ by a rotation and a scale."""
    x = x - x.mean(0, dtype=np.float64)
    y = y - y.mean(0, dtype=np.float64)
    shared = np.sum((x.T @ y) ** 2)
    alone = np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)
    return shared / alone


@torch.no_grad()
def read_layers(transformer, examples):
    """Return, of the embedding and of each layer, the (n, d) states of each example's n tokens."""
    states = []         # of one pass: (tokens, d) of each layer

    def keep(layer, inputs, output):
        states.append(output.numpy())
    layers = [transformer.embed_tokens, *transformer.layers]
    hooks = [layer.register_forward_hook(keep) for layer in layers]
    of_layers = [[] for _ in layers]
    for part in pack([len(example.tokens) for example in examples], 16_384):
        arrays = [examples[k].tokens for k in part]
        lengths = [len(array) for array in arrays]
        states.clear()
        transformer(torch.from_numpy(np.concatenate(arrays)), lengths, causal=False)
        for of_layer, x in zip(of_layers, states):
            of_layer += np.split(x, np.cumsum(lengths)[:-1])
    for hook in hooks:
        hook.remove()
    return of_layers


def probe(read, targets, num_labels):
    """Return the accuracy, of each layer, of a linear classifier on the test tokens that have a label."""
    gold = np.concatenate(targets['test'])
    accuracies = []
    for k in range(len(read['test'])):
        scores = ridge({split: states[k] for split, states in read.items()}, targets, num_labels)
        right = np.concatenate(scores['test']).argmax(1) == gold
        accuracies.append(right[gold >= 0].mean())      # below 0 there is no label
    return accuracies


def main():
    words, options = split_words(sys.argv[1:])
    names = words[1:]
    task, _ = parse(tasks.Task, words[:1] + options)
    if task.kind != 'TC' or not names:
        raise ValueError('it takes a task of kind TC, then checkpoints')
    points = []         # (panel, line, step, mean, low, high)
    first = None        # test states of each layer of the first checkpoint
    for checkpoint in map(open_checkpoint, names):
        model = checkpoint.model(head=False)
        longest = task.max_length or round(0.99 * checkpoint.context)
        data = tasks.load_data(task, checkpoint.tokenizer(), longest, reads=partial(probed_rows, task))
        examples = {split: [*filter(None, data.examples[split])] for split in tasks.SPLITS}
        read = {split: read_layers(model, part) for split, part in examples.items()}
        targets = {split: [example.targets for example in part] for split, part in examples.items()}
        labelled = np.concatenate(targets['test']) >= 0
        tested = [np.concatenate(states)[labelled] for states in read['test']]
        first = first or tested
        if [len(x) for x in tested] != [len(x) for x in first]:
            raise ValueError(f'{checkpoint.folder}: has other layers, or another tokenizer, than {names[0]}')

        run = run_of(checkpoint.folder).name
        step = checkpoint.state.get('step', 0)
        accuracies = probe(read, targets, len(data.labels))
        for k, accuracy in enumerate(accuracies):
            alike = linear_cka(tested[k], first[k])
            print(f'{checkpoint.folder}, layer {k}: CKA with the first {alike:.3f} '
                  f'accuracy of a probe {accuracy:.3f}')
            points.append(('CKA with the first', f'{run}, layer {k}', step, alike, alike, alike))
            points.append(('accuracy of a probe', f'{run}, layer {k}', step, accuracy, accuracy, accuracy))
    print(save(curves(points, 'steps', 'linear', ''), 'figures/layers.png'))


if __name__ == '__main__':
    run_main(main)

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
from nanoencoder.huggingface import open_checkpoint
from nanoencoder.settings import parse, run_main, split_words
from nanoencoder.tasks.models import reading_length


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
    states = {layer: [] for layer in (transformer.embed_tokens, *transformer.layers)}

    def keep(layer, inputs, output):
        states[layer].append(output.numpy())
    hooks = [layer.register_forward_hook(keep) for layer in states]
    for example in examples:
        transformer(torch.from_numpy(example.tokens), [len(example.tokens)], causal=False)
    for hook in hooks:
        hook.remove()
    return [*states.values()]


def probe_layer(features, targets, num_labels):
    """Return how often a linear classifier of a layer's states is right on test tokens that have a label."""
    scores = np.concatenate(ridge(features, targets, num_labels)['test'])
    gold = np.concatenate(targets['test'])
    right = scores.argmax(1) == gold
    return right[gold >= 0].mean()      # below 0 there is no label


def main():
    words, options = split_words(sys.argv[1:])
    names = words[1:]
    task, _ = parse(tasks.Task, words[:1] + options)
    if task.kind != 'TC' or not names:
        raise ValueError('it takes a task of kind TC, then checkpoints')
    first = None        # test states of each layer of the first checkpoint
    for checkpoint in map(open_checkpoint, names):
        model = checkpoint.model(head=False)
        longest = reading_length(task, checkpoint)
        data = tasks.load_data(task, checkpoint.tokenizer(), longest, choose_rows=partial(probed_rows, task))
        read = {}           # {split: [states of each example] of each layer}
        targets = {}
        for split in tasks.SPLITS:
            examples = [*filter(None, data.examples[split])]    # None stands for one that is not read
            read[split] = read_layers(model, examples)
            targets[split] = [example.targets for example in examples]
        labelled = np.concatenate(targets['test']) >= 0
        tested = [np.concatenate(states)[labelled] for states in read['test']]
        first = first or tested
        if [len(x) for x in tested] != [len(x) for x in first]:
            raise ValueError(f'{checkpoint.folder}: has other layers, or another tokenizer, than {names[0]}')

        for k, states in enumerate(tested):
            features = {split: layers[k] for split, layers in read.items()}
            accuracy = probe_layer(features, targets, len(data.labels))
            print(f'{checkpoint.folder}, layer {k}: CKA with the first {linear_cka(states, first[k]):.3f} '
                  f'accuracy of a probe {accuracy:.3f}')


if __name__ == '__main__':
    run_main(main)

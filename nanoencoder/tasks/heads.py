"""Heads of the kinds of task, and what an encoder with a head gives for texts."""
import functools

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from nanoencoder.tasks.kind import pack


class Classifier(nn.Module):
    """Logits of each token, as transformers' ForTokenClassification; or, pooled, of each text: the mean of
    its tokens, a dense layer and GELU before, as in transformers' EuroBertForSequenceClassification."""
    def __init__(self, hidden_size, num_labels, pooled):
        super().__init__()
        self.dense = None
        if pooled:
            self.dense = nn.Linear(hidden_size, hidden_size)
        self.classifier = nn.Linear(hidden_size, num_labels)

    def forward(self, x, lengths):
        if self.dense:
            pooled = mean_pool(x, lengths).type_as(x)   # the head's weights may be bf16
            x = F.gelu(self.dense(pooled))
        return self.classifier(x)


def mean_pool(x, lengths):
    """(segments, d): the mean of each segment's tokens, in fp32 whatever the states are in."""
    lengths = torch.tensor(lengths, device=x.device)
    # the segment of each token; without output_size the host would wait for the GPU to sum the lengths
    owner = torch.repeat_interleave(lengths, output_size=len(x))
    x = x.float()
    total = x.new_zeros(len(lengths), x.shape[1])
    total = total.index_add(0, owner, x)
    return total / lengths[:, None]


def first_pool(x, lengths):
    """(segments, d): the first token of each segment, which is [CLS], in fp32."""
    starts = np.cumsum([0, *lengths[:-1]])
    return x[starts].float()


def every_token(x, lengths):
    """(tokens, d): the states as they are, in fp32."""
    return x.float()


POOLINGS = {'mean': mean_pool, 'cls': first_pool, 'none': every_token}


def unit_vectors(x, lengths, pooling='mean'):
    """(segments, d), or (tokens, d) without pooling: vectors of length 1, in fp32."""
    vectors = POOLINGS[pooling](x, lengths)
    return F.normalize(vectors, dim=1)


def new_head(name, hidden_size, num_labels, pooling='mean'):
    """Return the head that a kind of task names: a module, or a function without weights.

    pooling  of a vector, as the encoder says. A classifier always takes the mean, to be the same for every
             model"""
    if name == 'vector':
        return functools.partial(unit_vectors, pooling=pooling)
    return Classifier(hidden_size, num_labels, pooled=name == 'text')


class Encoder(nn.Module):
    """The transformer and a head."""
    def __init__(self, transformer, head, causal=False):
        super().__init__()
        self.model = transformer
        self.head = head
        self.causal = causal

    def forward(self, tokens, lengths):
        states = self.model(tokens, lengths, self.causal)
        return self.head(states, lengths)


def forward(encoder, arrays, world):
    """The encoder's output for a list of token arrays, packed into one flat row without padding."""
    tokens = torch.from_numpy(np.concatenate(arrays))
    tokens = tokens.to(world.device, non_blocking=True)
    lengths = [len(array) for array in arrays]
    with world.autocast():
        output = encoder(tokens, lengths)
    return output.float()


@torch.no_grad()
def outputs(cfg, world, encoder, examples, per_token):
    """The encoder's output for each example, as numpy, in order: (n, ...) for its n tokens, or one vector."""
    lengths = np.array([len(example.tokens) for example in examples], int)
    order = np.argsort(lengths, kind='stable')      # texts of like lengths share a pass
    results = {}
    for part in pack(lengths[order], cfg.tokens_at_once):
        chosen = order[part]
        arrays = [examples[i].tokens for i in chosen]
        output = forward(encoder, arrays, world).cpu().numpy()
        if not np.isfinite(output).all():
            raise FloatingPointError('outputs that are not finite: lower --lr')
        if per_token:
            ends = np.cumsum(lengths[chosen])
            output = np.split(output, ends[:-1])
        results.update(zip(chosen, output))
    return [results[i] for i in range(len(examples))]

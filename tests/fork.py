"""Save a small random model and its logits: python tests/fork.py FOLDER.

A test runs it on a changed model.py."""
import sys
from pathlib import Path

import torch

from model import Model, Sizes
from nanoencoder import huggingface

sizes = Sizes(
    vocab_size=320,
    hidden_size=48,
    intermediate_size=80,
    num_hidden_layers=3,
    num_attention_heads=6,
    num_key_value_heads=2)
model = Model(sizes)
for seed, p in enumerate(model.parameters()):
    mean = 1.0 if p.ndim == 1 else 0.0      # of a norm's weights
    generator = torch.Generator().manual_seed(seed)
    torch.nn.init.normal_(p, mean, 0.15, generator=generator)

folder = Path(sys.argv[1])
folder.mkdir()
ids = dict.fromkeys(('bos', 'eos', 'pad', 'mask'), 0)
huggingface.save(folder, sizes, 512, ids, dict(model.named_parameters()))

tokens = torch.arange(320)
logits = model.logits(model.model(tokens, [320], causal=False))
again = huggingface.open_checkpoint(folder).model()
assert torch.equal(again.logits(again.model(tokens, [320], causal=False)), logits)
torch.save(logits.detach(), folder / 'logits.pt')

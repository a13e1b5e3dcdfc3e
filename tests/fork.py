"""Open a model and save it again, with its logits: python tests/fork.py FOLDER COPY.

A test runs it on a changed model.py."""
import sys
from pathlib import Path

import torch

from nanoencoder import huggingface

model = huggingface.open_checkpoint(sys.argv[1]).model()
copy = Path(sys.argv[2])
copy.mkdir()
ids = dict.fromkeys(('bos', 'eos', 'pad', 'mask'), 0)
huggingface.write_folder(copy, model.sizes, 512, ids, dict(model.named_parameters()))
logits = model.logits(model.model(torch.arange(320), [320], causal=False))
torch.save(logits.detach(), copy / 'logits.pt')

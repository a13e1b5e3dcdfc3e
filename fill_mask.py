"""Print what checkpoints say of the masks in a text: the five best tokens for each mask.

    python fill_mask.py out/clm25-mlm-1800-s6 out/mlm-1800-s6 "The function returns <|mask|> of floats."

Folders, runs or hub ids come first, then one text. Each model is used as an encoder."""
import os
import sys

if __name__ == '__main__':  # before torch loads OpenMP, which reads it: waiting threads sleep, not spin
    os.environ.setdefault('OMP_WAIT_POLICY', 'passive')

import torch

from nanoencoder.files import read_json
from nanoencoder.huggingface import open_checkpoint
from nanoencoder.settings import run_main


def fill_mask(model, tokenizer, text, objective='mlm'):
    """For each mask its five best [(token, probability), ...]; MNTP's stand at the position before it."""
    tokens = torch.from_numpy(tokenizer.encode_masked(text))
    masks = torch.nonzero(tokens == tokenizer.ids['mask']).squeeze(1)
    if not len(masks):
        raise ValueError(f'no mask in {text!r}; write it as {tokenizer.roles["mask"]}')
    if objective == 'mntp' and masks[0] == 0:
        raise ValueError(f'{text!r}: an MNTP model needs a token before a mask')
    with torch.no_grad():
        hidden = model.model(tokens.to(model.head.device), [len(tokens)], causal=False)
        logits = model.logits(hidden[masks - 1 if objective == 'mntp' else masks])
    best = logits.float().softmax(1)[:, :tokenizer.vocab_size].topk(5)  # some decoders have rows of no token
    return [[(tokenizer.decode([i]), p) for p, i in zip(*row)]
            for row in zip(best.values.tolist(), best.indices.tolist())]


def main():
    if len(sys.argv) < 3 or '--help' in sys.argv:
        print(__doc__.strip())
        sys.exit(0 if '--help' in sys.argv else 2)
    *names, text = sys.argv[1:]
    print(text)
    device, dtype = ('cuda', torch.bfloat16) if torch.cuda.is_available() else ('cpu', torch.float32)
    for checkpoint in map(open_checkpoint, names):
        model, tokenizer = checkpoint.model(device, dtype), checkpoint.tokenizer()
        objective = read_json(checkpoint.folder / 'config.json').get('objective')
        for answers in fill_mask(model, tokenizer, text, objective):
            words = '   '.join(f'{token.strip() or repr(token)} {p:.1%}' for token, p in answers)
            print(f'  {str(checkpoint.folder):<26} {words}')


if __name__ == '__main__':
    run_main(main)

"""Let checkpoints fill the masks in a text. Prints the five best tokens for each mask.

    python fill_mask.py out/clm25-mlm-1800-s6 out/mlm-1800-s6 "The function returns <|mask|> of floats."

First come folders, runs or hub ids, then one text. Encoders of other people, such as BERT, write a mask in
their own way, as [MASK]. Each of our models reads it as in the last step of its training:
after MLM it sees the whole text. After CLM, or as a decoder from elsewhere, it sees only what stands before a
mask, and says which token comes next: with what follows, its states would be none that it was trained on."""
import os
import sys

if __name__ == '__main__':
    # OpenMP reads this when torch loads: its waiting threads sleep, and leave the cores to others.
    os.environ.setdefault('OMP_WAIT_POLICY', 'passive')

import torch

from nanoencoder.files import read_json
from nanoencoder.huggingface import (
    CONFIG,
    fetch_weights,
    folder_of,
    open_checkpoint,
    read_prediction,
    source_of,
)
from nanoencoder.peers import FAMILIES_OF_PEERS, open_masked_lm, open_other_encoder
from nanoencoder.settings import plain_words, run_main


def find_masks(tokenizer, text, offset):
    """Return (a text's tokens, the places at which those of its masks are predicted). ValueError if there is
    no mask, or no place for the first one."""
    tokens = torch.from_numpy(tokenizer.encode_masked(text))
    masks, = torch.where(tokens == tokenizer.ids['mask'])
    if not len(masks):
        raise ValueError(f'no mask in {text!r:.80}; write it as {tokenizer.roles["mask"]}')
    places = masks - offset
    if places[0] < 0:
        raise ValueError(f'{text!r:.80}: this model predicts a token {offset} before it, and needs as many '
                         'tokens before a mask')
    return tokens, places


def fill_mask(model, tokenizer, text, offset=0, causal=False):
    """Return [(token, probability), ...] of the five best for each mask.

    offset  how many positions before a token the model predicts it
    causal  whether a position sees only what stands before it"""
    tokens, places = find_masks(tokenizer, text, offset)
    with torch.no_grad():
        hidden = model.model(tokens.to(model.head.device), [len(tokens)], causal)
        logits = model.logits(hidden[places])           # (masks, rows)
    return best_tokens(logits, tokenizer)


def best_tokens(logits, tokenizer):
    """Return [(token, probability), ...] of the five best for each mask, of (masks, rows) logits."""
    probabilities = logits.float().softmax(1)
    best = probabilities[:, :tokenizer.vocab_size].topk(5)  # a padded vocabulary has rows of no token
    answers = []
    for values, indices in zip(best.values.tolist(), best.indices.tolist()):
        answers.append([(tokenizer.decode([i]), p) for i, p in zip(indices, values)])
    return answers


def main():
    words = plain_words(sys.argv[1:])
    if len(words) < 2:
        print(__doc__.strip())
        sys.exit(2)
    *names, text = words
    print(text)
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    dtype = torch.bfloat16 if device == 'cuda' else torch.float32
    for name in names:
        folder = folder_of(name)
        family = read_json(folder / 'config.json', fields=CONFIG).get('model_type')
        read = fill_mask_of_peer if family in FAMILIES_OF_PEERS else fill_mask_of_ours
        for answers in read(name, folder, text, device, dtype):
            shown = [f'{token.strip() or repr(token)} {p:.1%}' for token, p in answers]
            print(f'  {source_of(name, folder):<26}', '   '.join(shown))


# In both, what can be refused is refused before a hub sends gigabytes of weights.


def fill_mask_of_ours(name, folder, text, device, dtype):
    checkpoint = open_checkpoint(name, weights=False)
    tokenizer = checkpoint.tokenizer()
    _, causal, offset = read_prediction(folder)
    tokens, _ = find_masks(tokenizer, text, offset)
    check_length(name, tokens, checkpoint.context)
    fetch_weights(name, folder)
    model = checkpoint.model(device, dtype)
    return fill_mask(model, tokenizer, text, offset, causal)


def fill_mask_of_peer(name, folder, text, device, dtype):
    peer = open_other_encoder(name, folder)
    tokenizer = peer.tokenizer()
    tokens, masks = find_masks(tokenizer, text, offset=0)
    check_length(name, tokens, peer.context)
    fetch_weights(name, folder)
    model = open_masked_lm(folder).to(device, dtype)
    with torch.no_grad():
        logits = model(input_ids=tokens[None].to(device)).logits[0, masks]
    return best_tokens(logits, tokenizer)


def check_length(name, tokens, context):
    if len(tokens) > context:
        raise ValueError(f'{name} reads {context} tokens at most; the text has {len(tokens)}')


if __name__ == '__main__':
    run_main(main)

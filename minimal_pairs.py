"""Which of two sentences does a model find likelier? Minimal pairs, without any fine-tuning.

    python minimal_pairs.py configs/minimal_pairs/blimp.py --model=out/clm25-mlm-1800-s6
    python minimal_pairs.py configs/minimal_pairs/blimp.py --model=out/mlm-1800-s6 --likelihood=pseudo-token

Each pair is a grammatical sentence and one that is not (BLiMP, Warstadt et al. 2020); the grammatical one
should be the likelier. Prints the accuracy of each set and writes predictions/<model>/MP/<dataset>/..., of
which evaluate.py makes tables, intervals and paired tests."""
import os
import sys
from dataclasses import dataclass, replace
from typing import NamedTuple

if __name__ == '__main__':  # before torch loads OpenMP, which reads it: waiting threads sleep, not spin
    os.environ.setdefault('OMP_WAIT_POLICY', 'passive')

import numpy as np
import torch
import torch.nn.functional as F
from tqdm import tqdm

from nanoencoder.files import locked
from nanoencoder.huggingface import fetch_weights, open_checkpoint, read_prediction
from nanoencoder.metrics import SPACELESS, both_scores
from nanoencoder.predictions import is_written, run_folder, write_run
from nanoencoder.processes import World, pick_device
from nanoencoder.settings import check, flat, parse, run_main, selects_data, setting
from nanoencoder.tasks.files import Source, read_table
from nanoencoder.tasks.kind import Example, framed, pack, room
from nanoencoder.tasks.models import Scoring, describe, reading_length
from nanoencoder.tasks.task import fingerprint, get


@dataclass(frozen=True)
class Settings(Source, Scoring):
    test: str = selects_data('test')  # name of the split or file
    good: str = selects_data('sentence_good')  # columns: the sentence that should be likelier
    bad: str = selects_data('sentence_bad')
    group: str = selects_data('')  # column of the sets, which count alike; empty: one set
    likelihood: str = setting('', choices=('', 'causal', 'pseudo', 'pseudo-token'))  # empty: the model's own

    # a model's folder in predictions is named by these, as finetune.py's are
    kind = 'MP'
    lr = 0.0
    seed = 0

    __post_init__ = check


def read_pairs(cfg):
    """Return the pairs: dicts of id, good, bad, set."""
    table, _ = read_table(cfg, (cfg.source,), cfg.test, cfg.subset)
    pairs = []
    for number, row in enumerate(table):
        where = f'{cfg.dataset} {cfg.test} row {number}'
        good = get(row, cfg.good, where)
        bad = get(row, cfg.bad, where)
        if not good.strip() or not bad.strip():     # both may be the same, as in seven of BLiMP's
            raise ValueError(f'{where}: has an empty sentence')
        pairs.append({
            'good': good,
            'bad': bad,
            'set': get(row, cfg.group, where) if cfg.group else '',
            'id': str(row.get('id', row.get('idx', number)))
        })
    return pairs


def find_likelihood(folder, asked):
    """Return (the likelihood that a model gives, its Prediction). Its own likelihood is causal if it was last
    trained to see only what stands before a token; else it is a pseudo-likelihood.

    asked  cfg.likelihood: empty for the model's own

    ValueError if the model sees the token that it predicts, unless it is masked: it is no causal model."""
    prediction = read_prediction(folder)
    likelihood = asked
    if not asked:
        likelihood = 'causal' if prediction.causal else 'pseudo'
    if likelihood == 'causal' and prediction.offset == 0:
        if prediction.objective:
            raise ValueError(f'{folder}: its objective {prediction.objective!r:.80} predicts a token at its '
                             'own place, so it has no causal likelihood; leave --likelihood out')
        prediction = prediction._replace(offset=1)  # such as the paper's CLM models, which do not say so
    return likelihood, prediction


def put_tokens_in_front(tokenizer, prediction):
    """Where a token is predicted at a position before it, the first tokens of a sentence need such positions,
    too. If the tokenizer puts too few special tokens in front, add eos in our models, as between documents,
    and bos in others, as lm-evaluation-harness does."""
    missing = prediction.offset - len(tokenizer.prefix)
    token = tokenizer.ids['eos' if prediction.objective else 'bos']
    tokenizer.prefix = [token] * missing + list(tokenizer.prefix)


def encode_pairs(pairs, tokenizer, max_length):
    """Return an Example of each sentence, of a pair the good one first."""
    sentences = []
    too_long = 0
    for pair in pairs:
        for text in (pair['good'], pair['bad']):
            tokens, places, words = tokenizer.encoded(text)
            words = words_or_characters(text, places, words)
            too_long += len(tokens) > room(tokenizer, max_length)
            tokens = framed(tokens, tokenizer, max_length)
            words = framed(words, tokenizer, max_length, -1)
            sentences.append(Example(tokens, words=words))
    if too_long:
        print(f'{too_long:,} sentences are cut at {max_length} tokens', file=sys.stderr)
    return sentences


def words_or_characters(text, places, words):
    """Return the number of each token's word, or in a script without spaces of its character.

    What a tokenizer takes for a word there is a whole clause. If all of it were masked after a token, the
    sentence would be read from left to right. A character may be several tokens.

    places  the first and last + 1 character of each token
    words   the number of each token's word, as the tokenizer splits"""
    numbers = []
    for (first, last), word in zip(places, words):
        character = SPACELESS.search(text, first, last)
        if character:   # a text has fewer words than characters, so that no word has a character's number
            word = len(text) + character.start()
        numbers.append(word)
    return numbers


class Reading(NamedTuple):
    """A sentence as the model reads it once, and what is predicted there."""
    number: int     # of the sentence
    tokens: list    # with masks
    at: list        # places of the tokens that are scored


def readings(sentences, likelihood, mask):
    """Return the Readings of all sentences, the short ones first.

    A causal model reads a sentence once. Others read a copy for each token, in which it is masked; for
    "pseudo" together with the rest of its word, which would tell too much of it (Kauf & Ivanova 2023)."""
    todo = []
    for k, sentence in sorted(enumerate(sentences), key=lambda numbered: len(numbered[1].tokens)):
        tokens = sentence.tokens
        words = sentence.words
        scored = np.flatnonzero(words >= 0).tolist()    # special tokens, of word -1, are not
        if likelihood == 'causal':
            todo.append(Reading(k, tokens.tolist(), scored))
            continue
        places = np.arange(len(tokens))
        for at in scored:
            masked = places == at
            if likelihood == 'pseudo':
                masked = (places >= at) & (words == words[at])
            copy = np.where(masked, mask, tokens)
            todo.append(Reading(k, copy.tolist(), [at]))
    return todo


@torch.no_grad()
def likelihoods(model, checkpoint, sentences, offset, cfg, world):
    """Return the log-likelihood of each sentence: the sum of its tokens'.

    offset  how many positions before a token the model predicts it; as many stand in front"""
    tokenizer = checkpoint.tokenizer()
    sums = np.zeros(len(sentences))
    todo = readings(sentences, cfg.likelihood, tokenizer.ids['mask'])
    packs = pack([len(reading.tokens) for reading in todo], cfg.tokens_at_once)
    for chosen in tqdm(packs, 'likelihoods', leave=False, disable=None):
        # the readings of a pack stand one after the other, in one flat row of tokens
        tokens = []
        lengths = []
        at = []
        targets = []
        owners = []     # the sentence of each target
        for i in chosen:
            reading = todo[i]
            at += [len(tokens) + place - offset for place in reading.at]
            owners += [reading.number for _ in reading.at]
            targets += sentences[reading.number].tokens[reading.at].tolist()
            tokens += reading.tokens
            lengths.append(len(reading.tokens))

        tokens = torch.tensor(tokens, device=world.device)
        targets = torch.tensor(targets, device=world.device)
        with world.autocast():
            states = model.model(tokens, lengths, cfg.likelihood == 'causal')
        states = states[at].type_as(model.head)
        losses = losses_of(model, states, targets, checkpoint.sizes.vocab_size)
        np.subtract.at(sums, owners, losses)
    return sums


def losses_of(model, states, targets, vocab_size):
    """Return the cross-entropy of each target, float32.

    vocab_size  of the checkpoint; logits may have one row more, for a mask that its tokenizer was given"""
    losses = []
    for x, y in zip(states.split(512), targets.split(512)):     # not all logits at once
        logits = model.logits(x).float()
        logits = logits[:, :vocab_size]
        loss = F.cross_entropy(logits, y, reduction='none')
        losses.append(loss)
    return torch.cat(losses).cpu().numpy()


def do_pairs(cfg, checkpoint, offset, about, pairs, world):
    """Score all pairs, write the predictions, print each set's accuracy. Returns what to tell of the run."""
    model = checkpoint.model(world.device)
    sentences = encode_pairs(pairs, checkpoint.tokenizer(), cfg.max_length)
    sums = likelihoods(model, checkpoint, sentences, offset, cfg, world)
    predictions = [
        {'id': pair['id'], 'set': pair['set'], 'good': round(good, 6), 'bad': round(bad, 6)}
        for pair, (good, bad) in zip(pairs, sums.reshape(-1, 2).tolist())
    ]
    write_run(run_folder(cfg, cfg.dataset), about, {'validation': [], 'test': predictions})

    metric, scores = both_scores('MP', predictions)
    standard = scores['standard']
    of_sets = standard['others']
    for name in sorted(of_sets, key=of_sets.get):
        print(f'{100 * of_sets[name]:7.1f}  {name}')
    return f'{cfg.likelihood} test {metric} {100 * standard["score"]:.1f}'


def main():
    cfg, _ = parse(Settings, sys.argv[1:])
    if not cfg.model or not cfg.dataset:
        raise ValueError('model or dataset is empty: --model=out/<run> or a checkpoint folder, and a config')
    world = World(0, 1, *pick_device(cfg.device, cfg.dtype))
    # what can be refused is refused before a hub sends gigabytes of weights
    checkpoint = open_checkpoint(cfg.model, weights=False)
    likelihood, prediction = find_likelihood(checkpoint.folder, cfg.likelihood)
    put_tokens_in_front(checkpoint.tokenizer(), prediction)
    max_length = reading_length(cfg, checkpoint)
    pairs = read_pairs(cfg)
    fetch_weights(cfg.model, checkpoint.folder)

    name, about = describe(checkpoint, checkpoint.sizes, cfg)
    cfg = replace(cfg, name=name, likelihood=likelihood, max_length=max_length, dtype=world.dtype)
    about |= {      # with what describe says, all that fixes the numbers
        'settings': flat(cfg, ('results',)),
        'rows': flat(cfg, ('data',)),
        'method': 'zero-shot',
        'offset': prediction.offset,
        'data': fingerprint({'test': pairs}),
    }
    folder = run_folder(cfg, cfg.dataset)
    with locked(folder):
        outcome = 'already done'
        if not is_written(folder, about, Settings):
            outcome = do_pairs(cfg, checkpoint, prediction.offset, about, pairs, world)
        print(f'{folder}: {outcome}')


if __name__ == '__main__':
    run_main(main)

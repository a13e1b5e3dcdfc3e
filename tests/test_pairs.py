"""Minimal pairs: likelihoods are those of a slow loop over transformers' logits; scores by hand, refusals."""
import json
import random
import re
from collections import Counter

import numpy as np
import pytest
import torch
import transformers

import minimal_pairs
from conftest import jsonl, ran, refused_line, run_script
from minimal_pairs import words_or_characters
from nanoencoder.files import read_json
from nanoencoder.huggingface import open_checkpoint
from nanoencoder.metrics import both_scores
from nanoencoder.predictions import read_predictions
from nanoencoder.processes import World
from nanoencoder.settings import parse
from test_huggingface import make, rewrite
from test_tokenizer import TOKENIZER

ROLES = dict(bos_token_id=4_093, eos_token_id=4_094, pad_token_id=4_094)
WORDS = "the array unbelievably na\xefve \u6771\u4eac don't 12345 shape, (values) \U0001f642 an axis".split()
MODELS = {  # family, tokens of its vocabulary, objective in config.json, likelihood, in front of a sentence
    'mlm': ('eurobert', 4_096, 'mlm', 'pseudo', []),
    "another's encoder": ('eurobert', 4_100, None, 'pseudo', []),
    'mntp': ('eurobert', 4_096, 'mntp', 'pseudo', [4_094]),   # eos
    'clm': ('eurobert', 4_096, 'clm', 'causal', [4_094]),
    "another's decoder": ('llama', 4_106, None, 'causal', [4_093]),   # bos; ten rows of no token
    'its mask is new': ('llama', 4_095, None, 'causal', [4_093])}


def model_of(name, folder):
    """A random model by transformers, written to a folder with our tokenizer."""
    family, vocab_size, objective, *_ = MODELS[name]
    more = {'objective': objective} if objective else {}
    mask = min(4_095, vocab_size - 1)
    model = make(family, folder, vocab_size=vocab_size, mask_token_id=mask, **ROLES, **more)
    TOKENIZER.save(folder)
    if vocab_size < 4_096:
        *added, _ = json.loads((folder / 'tokenizer.json').read_text())['added_tokens']
        rewrite('tokenizer.json', added_tokens=added)(folder)
        rewrite('tokenizer_config.json', mask_token='gone')(folder)
    return model


def pairs(folder):
    """Write pairs of random sentences in three sets. Returns all sentences."""
    draw = random.Random(0)
    texts = []
    rows = []
    for k in range(100):
        good, bad = [' '.join(draw.choices(WORDS, k=draw.randint(1, 8))) for _ in range(2)]
        texts += good, bad
        rows.append({'sentence_good': good, 'sentence_bad': bad, 'UID': f'set{k % 3}'})
    jsonl(folder / 'test.jsonl', rows)
    return texts


@torch.no_grad()
def slow(model, read, text, likelihood, front, keep_causal):
    """The likelihood by all logits of transformers; with a token in front, of the position before. Each
    Chinese character is a word of its own."""
    encoding = read(text, add_special_tokens=False, return_offsets_mapping=True)
    ids = encoding['input_ids']
    words = encoding.word_ids()
    for i, (first, last) in enumerate(encoding['offset_mapping']):
        chinese = [k for k in range(first, last) if text[k] in '\u6771\u4eac']
        if chinese:
            words[i] = 'character', chinese[0]

    copies = []     # one for each token
    for i in range(len(ids)):
        copy = [*front, *ids]
        if likelihood != 'causal':
            for j in range(i, len(ids)):
                if j == i or likelihood == 'pseudo' and words[j] == words[i]:
                    copy[len(front) + j] = 4_095
            copy.append(4_094)
        copies.append(copy)
    options = {}
    if keep_causal:     # of an encoder in transformers
        length = len(copies[0])
        mask = torch.full((len(ids), 1, length, length), -torch.inf)
        options['attention_mask'] = mask.triu(1)
    logits = model(torch.tensor(copies), **options).logits
    return sum(logits[i, i].log_softmax(0)[token].item() for i, token in enumerate(ids))


@pytest.mark.parametrize('name, asked', [*((name, '') for name in MODELS), ('mlm', 'pseudo-token')])
def test_likelihoods_are_those_of_transformers(name, asked, tmp_path):
    model = model_of(name, tmp_path / 'model')
    texts = pairs(tmp_path)
    *_, objective, usual, front = MODELS[name]
    likelihood = asked or usual
    words = ['--dataset=toy', f'--data={tmp_path}', f'--likelihood={likelihood}', '--tokens_at_once=500']
    cfg, _ = parse(minimal_pairs.Settings, words)
    checkpoint = open_checkpoint(tmp_path / 'model')
    config = read_json(checkpoint.folder / 'config.json')
    assert minimal_pairs.own_likelihood(config) == usual
    minimal_pairs.put_token_in_front(checkpoint.tokenizer(), config, likelihood)
    sentences = minimal_pairs.encode(minimal_pairs.read_pairs(cfg), checkpoint.tokenizer(), 128)
    world = World(0, 1, torch.device('cpu'), 'fp32')
    ours = minimal_pairs.likelihoods(checkpoint.model(), checkpoint, sentences, cfg, world)

    read = transformers.AutoTokenizer.from_pretrained(tmp_path / 'model')
    expected = [slow(model, read, text, likelihood, front, objective == 'clm') for text in texts]
    assert np.std(expected) > 20
    assert np.abs(ours - expected).max() < 1e-4


@pytest.mark.parametrize('clause', [
    '日本語では単語の間に空白を置かない',
    'ภาษาไทย',
    '词与词之间没有空格'])
def test_in_a_script_without_spaces_a_character_is_a_word(clause):
    """Were the clause one, and masked after each token, the likelihood would be read from left to right. Our
    tokenizer has seen none of these characters: each is three tokens."""
    tokens, places, words = TOKENIZER.encoded(clause)
    assert len({*words}) == 1
    numbers = words_or_characters(clause, places, words)
    assert [*Counter(numbers).values()] == [3] * len(clause)


def test_a_token_of_a_space_and_a_part_of_a_character_is_that_characters():
    places = [(0, 1), (1, 3), (2, 3), (2, 3)]
    assert words_or_characters('a \u6771', places, [0, 1, 1, 1]) == [0, 5, 5, 5]


def test_sets_of_unequal_sizes_count_alike():
    """Three of four are right in one, none in the other, where a tie is wrong."""
    rows = [
        {'id': k, 'set': 'a', 'good': -1, 'bad': bad}
        for k, bad in enumerate([-2, -2, -0.5, -9])]
    rows.append({'id': 4, 'set': 'b', 'good': -3, 'bad': -3})
    name, scores = both_scores('MP', rows)
    standard = scores['standard']
    assert (name, standard['score'], scores['paper']['score']) == ('accuracy', 0.375, 0.6)
    assert standard['others'] == {'a': 0.75, 'b': 0.0}
    _, weights = standard['columns']
    assert weights == [0.625, 0.625, 0.625, 0.625, 2.5]     # their mean is 1


def test_a_run_from_the_command_line_is_read_by_evaluate(tmp_path):
    model_of("another's decoder", tmp_path / 'model')
    pairs(tmp_path)
    command = ['minimal_pairs.py', 'configs/minimal_pairs/blimp.py', f'--data={tmp_path}', '--test=test',
               f'--model={tmp_path}/model', '--device=cpu', f'--predictions={tmp_path}/p']
    refused_line("has no column 'field', but sentence_good", *command, '--group=field')
    told = ran(*command).stdout
    folder = tmp_path / 'p/model/MP/blimp/lr0e+00_sd0'
    _, scores = both_scores('MP', read_predictions(folder, 'test'))
    standard = scores['standard']
    assert 'causal test accuracy' in told
    assert f'{100 * standard["others"]["set2"]:.1f}  set2' in told

    assert 'already done' in run_script(*command).stdout
    refused_line('likelihood = causal, this run has', *command, '--likelihood=pseudo')
    ran(*command, '--likelihood=pseudo', '--variant=pseudo')
    evaluated = f'--predictions={tmp_path}/p'
    table = run_script('evaluate.py', 'table', evaluated).stdout
    assert re.search(rf'model +zero-shot +1 +- +{100 * standard["score"]:.1f} \[', table)
    told = run_script('evaluate.py', 'compare', 'model', 'model+pseudo', '--split=both', evaluated).stdout
    assert 'n = 100' in told
    assert 'note: likelihood causal -> pseudo' in told
    assert 'p = ' in told
    refused_line('has no instances', 'evaluate.py', 'table', '--split=validation', evaluated)

"""Minimal pairs: likelihoods are those of a slow loop over transformers' logits; scores by hand, refusals."""
import json
import random
import re
from collections import Counter

import numpy as np
import pytest
import torch
import transformers

from conftest import jsonl, ran, refused_line, run_script
from data import OBJECTIVES
from hub_folders import make, rewrite
from minimal_pairs import words_or_characters
from nanoencoder.metrics import both_scores
from nanoencoder.predictions import read_predictions
from nanoencoder.tokenizer import load_tokenizer
from peer_folders import word_pieces
from tokenizer_files import TOKENIZER

ROLES = dict(bos_token_id=4_093, eos_token_id=4_094, pad_token_id=4_094)
WORDS = "the array unbelievably na\xefve \u6771\u4eac don't 12345 shape, (values) \U0001f642 an axis".split()
BOS, EOS = 4_093, 4_094
# {name: (family, tokens of its vocabulary, what config.json says, likelihood, in front of a sentence)}: of
# every objective as its entry in OBJECTIVES says, and of ours by hand
MODELS = {
    name: ('eurobert', 4_096, {'objective': name}, 'causal' if objective.causal else 'pseudo',
           [EOS] * objective.offset)
    for name, objective in OBJECTIVES.items()}
MODELS |= {
    'mlm': ('eurobert', 4_096, {'objective': 'mlm'}, 'pseudo', []),
    'mdlm': ('eurobert', 4_096, {'objective': 'mdlm'}, 'pseudo', []),
    'mntp': ('eurobert', 4_096, {'objective': 'mntp'}, 'pseudo', [EOS]),
    'clm': ('eurobert', 4_096, {'objective': 'clm'}, 'causal', [EOS]),
    'clm_some': ('eurobert', 4_096, {'objective': 'clm_some'}, 'causal', [EOS]),
    "a fork's": ('eurobert', 4_096, {'objective': 'skip', 'causal': True, 'offset': 2}, 'causal', [EOS, EOS]),
    'its mask is two places on': ('eurobert', 4_096, {'objective': 'mine', 'causal': False, 'offset': 2},
                                  'pseudo', [EOS, EOS]),
    "another's encoder": ('eurobert', 4_100, {}, 'pseudo', []),
    "another's decoder": ('llama', 4_106, {}, 'causal', [BOS]),    # ten rows of no token
    "another's decoder without its causal mask": ('qwen3', 4_096, {'is_causal': False}, 'pseudo', []),
    'its mask is new': ('llama', 4_095, {}, 'causal', [BOS]),
    # [CLS] and [SEP] stand around a sentence, and [CLS] predicts the first token
    'mlm of word pieces': ('eurobert', 4_096, {'objective': 'mlm'}, 'pseudo', []),
    'clm of word pieces': ('eurobert', 4_096, {'objective': 'clm'}, 'causal', [])}


def model_of(name, folder):
    """A random model by transformers, written to a folder with our tokenizer."""
    family, vocab_size, more, *_ = MODELS[name]
    mask = min(4_095, vocab_size - 1)
    model = make(family, folder, vocab_size=vocab_size, mask_token_id=mask, **ROLES, **more)
    TOKENIZER.save(folder)
    if 'word pieces' in name:
        word_pieces().save_pretrained(folder)
        load_tokenizer(str(folder)).save(folder)
    elif vocab_size < 4_096:
        *added, _ = json.loads((folder / 'tokenizer.json').read_text())['added_tokens']
        rewrite('tokenizer.json', added_tokens=added)(folder)
        rewrite('tokenizer_config.json', mask_token='gone')(folder)
    return model


def pairs(folder):
    """Write pairs of random sentences in three sets. Returns them."""
    draw = random.Random(0)
    texts = []
    rows = []
    for k in range(24):
        good, bad = [' '.join(draw.choices(WORDS, k=draw.randint(1, 8))) for _ in range(2)]
        texts.append((good, bad))
        rows.append({'sentence_good': good, 'sentence_bad': bad, 'UID': f'set{k % 3}'})
    jsonl(folder / 'test.jsonl', rows)
    return texts


@torch.no_grad()
def slow(model, read, text, likelihood, front, offset, keep_causal):
    """The likelihood by all logits of transformers, of a text as its tokenizer gives it behind `front`. Each
    token's is read `offset` positions before it. Each Chinese character is a word of its own."""
    encoding = read(text, return_offsets_mapping=True)
    ids = encoding['input_ids']
    words = encoding.word_ids()     # None: a special token, which is not counted
    for i, (first, last) in enumerate(encoding['offset_mapping']):
        chinese = [k for k in range(first, last) if text[k] in '\u6771\u4eac']
        if chinese:
            words[i] = 'character', chinese[0]

    copies = []     # one for each token
    counted = [i for i, word in enumerate(words) if word is not None]
    for i in counted:
        copy = [*front, *ids]
        if likelihood != 'causal':
            for j in range(i, len(ids)):
                if j == i or likelihood == 'pseudo' and words[j] == words[i]:
                    copy[len(front) + j] = read.mask_token_id
        copies.append(copy)
    options = {}
    if keep_causal:     # of an encoder in transformers
        length = len(copies[0])
        mask = torch.full((len(copies), 1, length, length), -torch.inf)
        options['attention_mask'] = mask.triu(1)
    logits = model(torch.tensor(copies), **options).logits
    total = 0
    for row, i in zip(logits, counted):
        total += row[len(front) + i - offset].log_softmax(0)[ids[i]].item()
    return total


def score(folder, *words):
    """Score the pairs of a folder with the model in it. Returns (what was printed, the predictions)."""
    result = ran('minimal_pairs.py', '--dataset=toy', '--test=test', f'--data={folder}', '--device=cpu',
                 f'--model={folder}/model', f'--predictions={folder}/p', '--tokens_at_once=500', *words)
    return result.stdout, read_predictions(folder / 'p/model/MP/toy/lr0e+00_sd0', 'test')


@pytest.mark.parametrize('name, asked', [*((name, '') for name in MODELS), ('mlm', 'pseudo-token'),
                                         ('clm', 'pseudo'), ("another's decoder", 'pseudo')])
def test_likelihoods_are_those_of_transformers(name, asked, tmp_path):
    """A token is predicted where the objective's offset says, whatever the objective is called."""
    model = model_of(name, tmp_path / 'model')
    texts = pairs(tmp_path)
    family, _, more, usual, front = MODELS[name]
    likelihood = asked or usual
    told, predictions = score(tmp_path, f'--likelihood={asked}')
    assert f'{likelihood} test accuracy' in told
    ours = [[row['good'], row['bad']] for row in predictions]

    read = transformers.AutoTokenizer.from_pretrained(tmp_path / 'model')
    if family == 'llama':
        model.config.is_causal = likelihood == 'causal'
    keep_causal = family == 'eurobert' and likelihood == 'causal'
    offset = len(front) or name == 'clm of word pieces'
    expected = [[slow(model, read, text, likelihood, front, offset, keep_causal) for text in pair]
                for pair in texts]
    assert np.std(expected) > 20
    assert np.abs(np.subtract(ours, expected)).max() < 1e-4


def test_an_objective_that_says_too_little_is_one_line(tmp_path):
    model_of('mlm', tmp_path / 'model')
    pairs(tmp_path)
    command = ['minimal_pairs.py', '--dataset=toy', f'--data={tmp_path}', f'--model={tmp_path}/model']
    for changes, words in ((dict(objective='mine'), "'mine' is none of clm, .*\"offset\" beside it"),
                           (dict(objective='mine', offset=-1, causal=True), 'offset must be at least 0'),
                           (dict(objective='mine', causal='yes'), 'causal takes bool, not str')):
        rewrite(**changes)(tmp_path / 'model')
        refused_line(f'model/config.json: .*{words}', *command)
        refused_line(f'model/config.json: .*{words}', 'fill_mask.py', tmp_path / 'model', 'a <|mask|>')
    rewrite(objective='mlm', offset=0, causal=False)(tmp_path / 'model')
    refused_line("'mlm' predicts a token at its own place", *command, '--likelihood=causal')


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
    rewrite(objective='mine', causal=True, offset=2)(tmp_path / 'model')    # beside the same weights
    refused_line('offset = 1, this run has 2', *command)
    rewrite(objective=None)(tmp_path / 'model')
    refused_line('likelihood = causal, this run has', *command, '--likelihood=pseudo')
    ran(*command, '--likelihood=pseudo', '--variant=pseudo')
    evaluated = f'--predictions={tmp_path}/p'
    table = run_script('evaluate.py', 'table', evaluated).stdout
    assert re.search(rf'model +zero-shot +1 +- +{100 * standard["score"]:.1f} \[', table)
    told = run_script('evaluate.py', 'compare', 'model', 'model+pseudo', '--split=both', evaluated).stdout
    assert re.search(r' \d\.\d{4} +24 +1\n', told)    # p, n, seeds
    assert ': likelihood causal -> pseudo\n' in told
    refused_line('has no instances', 'evaluate.py', 'table', '--split=validation', evaluated)

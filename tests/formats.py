"""What we export, opened by transformers: its ids, offsets, logits, pipelines and vectors are our numbers.

    make formats    # with the first transformers that has EuroBERT, and with the one of all other tests

The code on a model's card is run as it stands there.
"""
import dataclasses
import json
import re

import numpy as np
import pytest
import sentence_transformers
import torch
import transformers

import fill_mask
import finetune
import pretrain
from conftest import ROOT
from nanoencoder.tasks import runs
from nanoencoder.huggingface import open_checkpoint
from nanoencoder.tokenizer import load_tokenizer
from test_finetune import (  # noqa: F401: these open what is exported, too
    checkpoint, random_model, settings as finetune_settings, test_a_saved_classifier_runs_in_a_pipeline,
    test_a_step_equals_transformers_and_torch, test_a_token_classifier_with_norms_of_q_and_k_opens_as_qwen3,
    test_sentence_transformers_gives_our_vectors, toy)
from test_huggingface import test_logits_are_those_of_transformers  # noqa: F401
from test_tokenizer import STYLES, huggingface as trained_tokenizer, sample_texts

MASKED = 'The function returns <|mask|> of <|mask|>.'
LACKED = '\x04\x06\x13\x14\x16\x1d\U00050000'  # in bytes that SmolLM2's vocabulary has no token for
NOTHING = dict.fromkeys(map(ord, LACKED + ' '))


def opened(folder, *words):
    """What the code on a folder's card gives; each '...' in it stands for the next word."""
    card = (folder / 'README.md').read_text()
    code = re.search('Opens in transformers 5.3 or newer, without remote code: `(.*?)`', card)[1]
    for word in words:
        code = code.replace("'...'", repr(word), 1)
    names = 'pipeline', 'AutoModel', 'AutoModelForTokenClassification'
    known = {name: getattr(transformers, name) for name in names}
    known['SentenceTransformer'] = sentence_transformers.SentenceTransformer
    return eval(code.replace('<this folder>', str(folder)), known)


def fine_tuned(toy, checkpoint, kind, folder, **changes):
    """(settings, base, data, encoder) of 30 steps, and the model in folder/saved."""
    changes = dict(steps=30, epochs=9) | changes
    cfg, base, (data,) = finetune.prepare(finetune_settings(toy, checkpoint, kind, folder, **changes))
    encoder, _ = finetune.fit(dataclasses.replace(cfg, lr=3e-3, seed=0), base, data)
    runs.save_encoder(cfg, base, data, encoder, folder / 'saved')
    return cfg, base, data, encoder


# ------------------------------------------------------------------------------------------ pretrained models

@pytest.mark.parametrize('qk_norm', [False, True])
def test_a_card_fills_masks_and_its_model_heeds_padding(qk_norm, settings):
    """EuroBERT, and Qwen3: AutoModelForMaskedLM has no class for it, but the pipeline takes config.json's."""
    cfg = settings(qk_norm=qk_norm, phases=(('clm', 2), ('mlm', 20)), warmup_steps=0, lr=1e-2, val_every=0)
    pretrain.train(cfg)
    folder = open_checkpoint(f'{cfg.out}/run').folder
    assert 'pipeline_tag: "fill-mask"' in (folder / 'README.md').read_text()
    model, tokenizer = open_checkpoint(folder).model(), load_tokenizer(str(folder))
    expected = fill_mask.fill_mask(model, tokenizer, MASKED)
    for theirs, ours in zip(opened(folder)(MASKED), expected, strict=True):
        assert [best['token_str'] for best in theirs] == [token for token, _ in ours]
        assert [best['score'] for best in theirs] == pytest.approx([p for _, p in ours], abs=1e-5)
    texts = ['Sort an array.', 'Return the mean of all its elements.']
    batch = transformers.AutoTokenizer.from_pretrained(folder)(texts, return_tensors='pt', padding=True)
    with torch.no_grad():
        theirs = transformers.AutoModel.from_pretrained(folder).eval()(**batch).last_hidden_state
        for vectors, text in zip(theirs, texts):
            tokens = torch.from_numpy(tokenizer.encode(text).astype(np.int64))
            ours = model.hidden_states(tokens, [len(tokens)], causal=False)
            torch.testing.assert_close(vectors[:len(tokens)], ours, atol=1e-5, rtol=0)
            causal = model.hidden_states(tokens, [len(tokens)], causal=True)
            assert (ours[0] - causal[0]).abs().max() > 1e-2  # a causal mask would show


def test_a_causal_or_mntp_models_card_promises_no_masks(settings):
    for name, phases in (('clm', (('clm', 4),)), ('mntp', (('mntp', 4),))):
        cfg = settings(name=name, phases=phases, warmup_steps=0, decay_steps=0, val_every=0)
        pretrain.train(cfg)
        folder = open_checkpoint(f'{cfg.out}/{name}').folder
        assert 'pipeline_tag: "feature-extraction"' in (folder / 'README.md').read_text()
        assert type(opened(folder)).__name__ == 'EuroBertModel'


# ------------------------------------------------------------------------------------------ fine-tuned models

def test_a_pair_classifiers_card_shows_the_string_it_reads(toy, checkpoint, tmp_path):
    cfg, base, data, encoder = fine_tuned(toy, checkpoint, 'SC', tmp_path,
                                          template="It's {text}\nNumber {id}")
    for row, example in list(zip(data.rows['test'], data.examples['test']))[:10]:
        answer, = opened(tmp_path / 'saved', *row['fields'])
        p = finetune.encode(encoder.eval(), [example.tokens], base.world)[0].softmax(0)
        assert answer['label'] == data.labels[int(p.argmax())]
        assert answer['score'] == pytest.approx(p.max().item(), abs=1e-5)


@pytest.mark.parametrize('qk_norm', [False, True])
def test_a_token_classifiers_card_gives_whole_words(qk_norm, toy, tmp_path):
    """Each word's label is that of its first token, as `aggregation_strategy='first'` has it."""
    checkpoint = random_model(tmp_path / 'random', qk_norm=qk_norm)
    cfg, base, data, encoder = fine_tuned(toy, checkpoint, 'TC', tmp_path)
    tagger, parts = opened(tmp_path / 'saved'), []
    for row, example in zip(data.rows['test'], data.examples['test']):
        p = finetune.encode(encoder.eval(), [example.tokens], base.world).softmax(1)
        words, expected = example.words.tolist(), []
        for w, word in enumerate(row['words']):
            best = p[words.index(w)].max(0)
            if data.labels[best.indices] == 'B-LOC':
                start = len(' '.join([*row['words'][:w], '']))
                score = pytest.approx(best.values.item(), abs=1e-5)
                expected.append(('LOC', score, word, start, start + len(word)))
                parts.append(words.count(w))
        names = 'entity_group', 'score', 'word', 'start', 'end'
        found = [{name: group[name] for name in names} for group in tagger(' '.join(row['words']))]
        assert [group | {'word': group['word'].strip()} for group in found] == [
            dict(zip(names, group)) for group in expected]
    assert len(parts) > 20 and max(parts) > 1  # entities, words of several tokens among them


def test_a_question_answerers_card_gives_our_logits(toy, checkpoint, tmp_path):
    cfg, base, data, encoder = fine_tuned(toy, checkpoint, 'QA', tmp_path, steps=3)
    theirs = opened(tmp_path / 'saved').eval()
    for example in data.examples['test'][:5]:
        ours = finetune.encode(encoder.eval(), [example.tokens], base.world)
        with torch.no_grad():
            torch.testing.assert_close(theirs(torch.tensor(example.tokens)[None]).logits[0], ours, atol=1e-5,
                                       rtol=0)


# ------------------------------------------------------------------------------------------------- tokenizers

@pytest.mark.parametrize('style', ['docs', *STYLES])
def test_tokenizers_give_our_ids_and_offsets_without_the_space(style, tmp_path):
    """The offsets of a token are those of what it stands for, without the spaces around, as in BERT's."""
    folder = ROOT / 'configs/corpora/docs' if style == 'docs' else tmp_path
    if style != 'docs':
        trained_tokenizer(style, folder)
    ours = load_tokenizer(str(folder))
    for append_eos in (False, True):
        saved = tmp_path / str(append_eos)
        saved.mkdir()
        ours.save(saved, append_eos=append_eos)
        theirs = transformers.AutoTokenizer.from_pretrained(saved)
        texts = [text for text in sample_texts(400, seed=4) if '<|' not in text]
        texts += [f'{text} a{odd}rray {odd}' for odd in LACKED for text in texts[:50]]
        encoded = theirs(texts, return_offsets_mapping=True)
        for text, ids, offsets in zip(texts, encoded['input_ids'], encoded['offset_mapping']):
            assert ids == [*ours.encode(text), *[ours.ids['eos']] * append_eos], repr(text)
            pieces = [text[start:end] for start, end in offsets]
            assert all(piece == piece.strip(' ') for piece in pieces), repr(text)
            if text.isascii():  # nothing but spaces, and bytes that have no token, lies between them
                covered, whole = (part.translate(NOTHING) for part in (''.join(pieces), text))
                assert covered == whole, repr(text)


def test_a_token_that_is_text_stays_so(tmp_path):
    trained_tokenizer('qwen', tmp_path)
    path = tmp_path / 'tokenizer.json'
    spec = json.loads(path.read_text())
    spec['added_tokens'][1]['special'] = False  # <|im_start|>
    path.write_text(json.dumps(spec))
    load_tokenizer(str(tmp_path)).save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ids = theirs('<|im_start|>array<|im_end|>')['input_ids']
    assert theirs.decode(ids, skip_special_tokens=True) == '<|im_start|>array'

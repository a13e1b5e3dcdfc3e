"""What we export, opened by transformers: its ids, offsets, logits, pipelines and vectors are our numbers.

    make formats    # with the first transformers that has EuroBERT, and with the one of all other tests
"""
import os

import pytest
import torch
import transformers

import fill_mask
import finetune
from conftest import as_eurobert_and_as_qwen3, assert_near, run_process
from nanoencoder.huggingface import open_checkpoint
from test_finetune import (  # noqa: F401 these open what is exported, too
    test_a_step_equals_transformers_and_torch,
    test_sentence_transformers_gives_our_vectors,
    train_and_save,
)
from test_huggingface import test_logits_are_those_of_transformers  # noqa: F401
from test_tokenizer import test_saved_tokenizers_give_our_ids_in_transformers  # noqa: F401
from toys import random_model

MASKED = 'The function returns <|mask|> of <|mask|>.'


@as_eurobert_and_as_qwen3
def test_a_pipeline_fills_masks_and_the_model_ignores_padding(qk_norm, trained):
    """EuroBERT, and Qwen3: AutoModelForMaskedLM has no class for it, but the pipeline takes config.json's."""
    cfg = trained(qk_norm=qk_norm, phases=(('clm', 2), ('mlm', 20)), warmup_steps=0, lr=1e-2, val_every=0)
    checkpoint = open_checkpoint(f'{cfg.out}/run')
    model = checkpoint.model()
    tokenizer = checkpoint.tokenizer()
    expected = fill_mask.fill_mask(model, tokenizer, MASKED)
    answers = transformers.pipeline('fill-mask', str(checkpoint.folder))(MASKED)
    for theirs, ours in zip(answers, expected, strict=True):
        assert [best['token_str'] for best in theirs] == [token for token, _ in ours]
        assert [best['score'] for best in theirs] == pytest.approx([p for _, p in ours], abs=1e-5)

    short_and_long = ['Sort an array.', 'Return the mean of all its elements.']
    auto = transformers.AutoTokenizer.from_pretrained(checkpoint.folder)
    batch = auto(short_and_long, return_tensors='pt', padding=True)
    reader = transformers.AutoModel.from_pretrained(checkpoint.folder).eval()
    with torch.no_grad():
        for vectors, text in zip(reader(**batch).last_hidden_state, short_and_long):
            tokens = torch.tensor([*tokenizer.encode(text), *tokenizer.suffix])
            length = len(tokens)
            ours = model.model(tokens, [length], causal=False)
            causal = model.model(tokens, [length], causal=True)
            assert_near(vectors[:length], ours)
            assert (ours[0] - causal[0]).abs().max() > 1e-2  # a causal mask would show


@pytest.mark.parametrize('version, words', [('4.57.6', "'int' and 'NoneType'"),
                                            ('5.1.0', 'transformers 5.3 or newer')])
def test_transformers_that_ignore_is_causal_do_not_open_qwen3(version, words, tmp_path):
    """They would take the encoder for a decoder."""
    folder = random_model(tmp_path / 'random', qk_norm=True)
    install = '-m', 'pip', 'install', '--quiet', f'--target={tmp_path}/old', f'transformers=={version}'
    assert run_process(*install, timeout=600).returncode == 0
    code = f'import transformers as t; print(t.__version__); t.AutoModel.from_pretrained("{folder}")'
    old = run_process('-c', code, env=os.environ | {'PYTHONPATH': f'{tmp_path}/old'})
    assert old.stdout.strip() == version
    assert words in old.stderr.splitlines()[-1], old.stderr


@as_eurobert_and_as_qwen3
def test_a_token_classifiers_pipeline_gives_whole_words(qk_norm, prepared, tmp_path):
    """Each word's label is that of its first token, as `aggregation_strategy='first'` has it."""
    checkpoint = random_model(tmp_path / 'random', qk_norm=qk_norm)
    cfg, base, data = prepared('TC', checkpoint, epochs=9)
    encoder = train_and_save(cfg, base, data, tmp_path / 'saved')
    tagger = transformers.pipeline('token-classification', str(tmp_path / 'saved'),
                                   aggregation_strategy='first')
    num_tokens = []     # of each entity
    for row, example in zip(data.rows['test'], data.examples['test']):
        probabilities = finetune.forward(encoder.eval(), [example.tokens], base.world).softmax(1)
        token_words = example.words.tolist()
        expected = []
        start = 0   # of the word in the text
        for w, word in enumerate(row['words']):
            end = start + len(word)
            best = probabilities[token_words.index(w)].max(0)
            if data.labels[best.indices] == 'B-LOC':
                score = pytest.approx(best.values.item(), abs=1e-5)
                expected.append((word, score, start, end))
                num_tokens.append(token_words.count(w))
            start = end + 1
        entities = []
        for entity in tagger(' '.join(row['words'])):
            entities.append((entity['word'].strip(), entity['score'], entity['start'], entity['end']))
        assert entities == expected
    assert len(num_tokens) > 20
    assert max(num_tokens) > 1

"""examples/page.py: what a written page computes in node is what torch and `tokenizers` say, and what one can
press in a browser does what it should."""
import base64
import json
import re
import shutil
import subprocess
import zlib

import numpy as np
import pytest
import torch

import pretrain
from chromium import CHROMIUM, browser
from conftest import ROOT, ran, refused, small_run, texts
from examples import page as page_script
from model import Model, Sizes
from nanoencoder.figures import COLOURS, OF_FURTHER_RUNS
from nanoencoder.huggingface import open_checkpoint
from nanoencoder.pretraining.checkpoint import FRESH, Origin, load_weights
from nanoencoder.tokenizer import nasty_texts
from tokenizer_files import TOKENIZER

NODE = shutil.which('node')
needs_node = pytest.mark.skipif(not NODE, reason='needs node')
needs_browser = pytest.mark.skipif(not CHROMIUM, reason='needs chromium')
SENTENCES = [text.splitlines()[0] for text in texts()][:50]


@pytest.fixture(scope='module')
def runs(corpus, tmp_path_factory):
    """Settings of two small runs. Large initial weights make logits that are far from each other."""
    out = tmp_path_factory.mktemp('runs')
    made = []
    for name, changes in {'a': {}, 'b': {'qk_norm': True, 'tie_word_embeddings': True}}.items():
        cfg = small_run(corpus=str(corpus), out=str(out), name=name, initializer_range=0.2, save_every=6,
                        **changes)
        pretrain.train(cfg)
        made.append(cfg)
    return made


@pytest.fixture(scope='module')
def page(runs, tmp_path_factory):
    path = tmp_path_factory.mktemp('page') / 'page.html'
    names = [f'{cfg.out}/{cfg.name}' for cfg in runs]
    assert 'steps 0, 6, 12' in ran('examples.page', *names, f'--out={path}').stdout
    return path


def content_of(page):
    found = re.search('<script id="data"[^>]*>(.*?)</script>', page.read_text(), re.DOTALL)
    return json.loads(found[1])


def weights_of(content, checkpoint):
    """The rounded weights, read from the page by Python."""
    packed = base64.b64decode(content['blobs'][checkpoint['blob']])
    integers = np.frombuffer(zlib.decompress(packed), np.int8)
    weights = {}
    for tensor in checkpoint['tensors']:
        if 'values' in tensor:
            weights[tensor['name']] = torch.tensor(tensor['values'])
            continue
        size = np.prod(tensor['shape'])
        matrix = torch.tensor(integers[:size].reshape(tensor['shape'])).double() * tensor['step']
        weights[tensor['name']] = matrix.float()
        integers = integers[size:]
    assert not len(integers)
    return weights


def in_node(page, **asked):
    """What tests/run_page.js answers."""
    process = subprocess.run([NODE, ROOT / 'tests/run_page.js', page], input=json.dumps(asked), text=True,
                             capture_output=True, timeout=500)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def compare_logits(page, sentences):
    """Compare logits, for both masks and each checkpoint of each model, with torch's. Returns their standard
    deviation."""
    content = content_of(page)
    inputs = []
    for number, sentence in enumerate(sentences):
        tokens = TOKENIZER.encode_masked(sentence)[:40].tolist()
        masked = number % len(tokens)
        tokens[masked] = TOKENIZER.ids['mask']
        places = [masked, len(tokens) - 1]
        inputs += [{'tokens': tokens, 'causal': causal, 'places': places} for causal in (False, True)]
    asked = [
        {'model': number, 'checkpoint': place, 'inputs': inputs}
        for number, model in enumerate(content['models'])
        for place in range(len(model['checkpoints']))]
    answers = in_node(page, texts=[], asked=asked)['logits']
    for request, of_checkpoint in zip(asked, answers, strict=True):
        about = content['models'][request['model']]
        sizes = dict(about['sizes'])
        del sizes['head_size']
        model = Model(Sizes(**sizes | {'rope_scaling': ()}))
        model.load_state_dict(weights_of(content, about['checkpoints'][request['checkpoint']]))
        for row, answer in zip(inputs, of_checkpoint, strict=True):
            with torch.no_grad():
                hidden = model.model(torch.tensor(row['tokens']), [len(row['tokens'])], row['causal'])
                exact = model.logits(hidden[row['places']])
            torch.testing.assert_close(torch.tensor(answer['logits']), exact, atol=1e-3, rtol=0)
            shares = torch.tensor(answer['shares'])     # (layers, heads, N, N)
            torch.testing.assert_close(shares.sum(3), torch.ones_like(shares[..., 0]))
            assert bool(shares.triu(1).any()) != row['causal']
    return exact.std()


@needs_node
def test_logits_are_torchs(page):
    assert compare_logits(page, SENTENCES[:2]) > 0.5


@needs_node
@pytest.mark.slow
def test_logits_of_fifty_sentences_are_torchs(page):
    compare_logits(page, SENTENCES)


@needs_node
def test_token_ids_are_those_of_the_library(page):
    asked = nasty_texts()[::41] + texts()[:200] + ['', ' ', "'\u017fab it'LL", 'a\ud800b', 'x' * 300]
    assert len(asked) > 500
    answers = in_node(page, texts=asked, asked=[])
    assert answers['ids'] == [TOKENIZER.encode(text).tolist() for text in asked]
    for text, tokens in zip(texts()[:200], answers['decoded'][-205:]):
        if text.isascii():
            assert tokens == text


@needs_node
@pytest.mark.slow
def test_token_ids_of_all_nasty_texts_are_those_of_the_library(page):
    asked = nasty_texts()
    assert in_node(page, texts=asked, asked=[])['ids'] == [TOKENIZER.encode(text).tolist() for text in asked]


def test_weights_are_rounded_to_the_nearest_step(runs, page):
    content = content_of(page)
    for cfg, about in zip(runs, content['models'], strict=True):
        assert [row['step'] for row in about['checkpoints']] == [0, 6, 12]
        assert [row['objective'] for row in about['checkpoints']] == ['clm', 'clm', 'mlm']
        assert [row['causal'] for row in about['checkpoints']] == [True, True, False]
        assert [row['offset'] for row in about['checkpoints']] == [1, 1, 0]
        assert [step for step, _ in about['losses']] == [6, 12]
        untrained = Model(cfg.model)
        load_weights(untrained, Origin(None, FRESH, ''), cfg, None, None)
        models = [untrained, *(open_checkpoint(f'{cfg.out}/{cfg.name}/{step}').model() for step in (6, 12))]
        for checkpoint, model in zip(about['checkpoints'], models, strict=True):
            rounded = weights_of(content, checkpoint)
            steps = {tensor['name']: tensor.get('step', 1e-5) for tensor in checkpoint['tensors']}
            for name, p in model.named_parameters():
                assert (p - rounded[name]).abs().max() <= 0.501 * steps[name], name


def test_models_have_their_training_and_a_colour_each(page):
    first, second = content_of(page)['models']
    assert first['training'] == second['training'] == '6 clm, then 6 mlm'
    assert (first['colour'], second['colour']) == (COLOURS['clm', 'mlm'], OF_FURTHER_RUNS[0])


def test_what_a_page_cannot_hold_is_refused():
    refused('has 755,625,600 parameters; a page takes models of at most 3,000,000',
            page_script.check_computable, 'out/large', Sizes())
    refused('rope_scaling', page_script.check_computable, 'out/x',
            Sizes(vocab_size=9, hidden_size=36, intermediate_size=8, num_hidden_layers=1,
                  rope_scaling=(8.0, 1.0, 4.0, 512)))


@needs_browser
@pytest.mark.slow
def test_what_one_presses_in_the_browser(page, tmp_path):
    with browser(tmp_path) as tab:
        def guesses_after(press, *arguments):
            before = tab.value('guesses.innerText')
            press(*arguments)
            tab.wait_for(f'guesses.innerText && guesses.innerText != {json.dumps(before)}')
            return tab.value('guesses.innerText')

        tab.open(page)
        tab.resize(1_280, 900)
        tab.wait_for('window.guesses && guesses.children.length == 8')
        first = tab.value('guesses.innerText')
        guesses_after(tab.click, '#tokens button:nth-child(4)')
        assert tab.value('document.querySelector("[aria-pressed=true]").textContent') == 'mask'
        guesses_after(tab.click, '#tokens button:nth-child(3)')
        assert tab.value('guesses.innerText') == first
        tab.picture(tmp_path / 'desktop.png')

        guesses_after(tab.click, '#causal')
        guesses_after(tab.press, ' ', 32)       # the switch has the focus
        assert tab.value('guesses.innerText') == first
        tab.value('document.querySelector("#checkpoint").focus()')
        guesses_after(tab.press, 'ArrowLeft', 37)
        assert tab.value('document.querySelector("#step").textContent') == '6 steps'
        assert tab.value('document.querySelector("#causal").checked')   # as that one was trained
        guesses_after(tab.click, '#models label:nth-of-type(2)')

        taken = 'document.querySelector(".head p:last-child").textContent'
        before = tab.value(taken)
        tab.point('.head .text span:nth-of-type(1)')
        tab.wait_for(f'{taken} != {json.dumps(before)}')
        tab.resize(390, 844)
        tab.picture(tmp_path / 'phone.png')
        assert tab.value('document.documentElement.scrollWidth') <= 390
        assert tab.value('document.querySelectorAll("#curve path").length') == 2
        assert not tab.errors

"""Hugging Face in and out: transformers is the judge; broken folders are refused in one line."""
import dataclasses
import hashlib
import http.server
import json
import os
import re
import shutil
import threading

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import fill_mask
from model import Sizes, initial_weight
import pretrain
from conftest import (ROOT, SMALL as RUN, jsonl, log_lines, one_line_error, ran, refused, run_process, run_script,
                      texts)
from data import Corpus
from nanoencoder import files, huggingface
from nanoencoder.huggingface import open_checkpoint
from nanoencoder.settings import build, leaves
from nanoencoder.tokenizer import load_tokenizer
from test_tokenizer import huggingface as tokenizer_of_style

SMALL = dict(vocab_size=320, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6,
             num_key_value_heads=2, max_position_embeddings=4096, rms_norm_eps=1e-5, bos_token_id=1,
             eos_token_id=2, pad_token_id=2)
LLAMA31 = {'rope_type': 'llama3', 'rope_theta': 500_000.0, 'factor': 32.0, 'low_freq_factor': 1.0,
           'high_freq_factor': 4.0, 'original_max_position_embeddings': 512}
SCALING = {name: value for name, value in LLAMA31.items() if name != 'rope_theta'}  # all of rope_scaling
MASKED = 'The function returns <|mask|> of floats.'
FAMILIES = {  # name: (class, what differs from SMALL)
    'eurobert': (transformers.EuroBertForMaskedLM, dict(mask_token_id=3)),
    'eurobert, tied': (transformers.EuroBertForMaskedLM,
                       dict(mask_token_id=3, tie_word_embeddings=True, rope_theta=250_000.0)),
    'llama': (transformers.LlamaForCausalLM, dict()),
    'llama, one wide kv head, biases': (transformers.LlamaForCausalLM,
                                        dict(num_key_value_heads=1, attention_bias=True, head_dim=20)),
    'llama 3.2': (transformers.LlamaForCausalLM, dict(rope_parameters=LLAMA31, tie_word_embeddings=True)),
    'mistral, no window': (transformers.MistralForCausalLM, dict(sliding_window=None)),
    'qwen2, tied': (transformers.Qwen2ForCausalLM, dict(tie_word_embeddings=True, rope_theta=1e6)),
    'qwen3': (transformers.Qwen3ForCausalLM, dict(head_dim=16))}


def make(family, folder, dtype=torch.float32, vocab_size=320, **options):
    """A random model by transformers, written to a folder; biases and norms are drawn, too."""
    architecture, changes = FAMILIES[family]
    config = architecture.config_class(**SMALL | changes | {'vocab_size': vocab_size})
    model = architecture(config).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, p in model.named_parameters():
            drawn = torch.empty_like(p).normal_(0, 0.15, generator=generator)
            p.copy_(drawn + 1 if name.endswith('norm.weight') else drawn)
    model.to(dtype).save_pretrained(folder, **options)
    return model.float()


def load(name, **options):
    return open_checkpoint(name).model(**options)


def save(model, folder, context=4_096, ids={'bos': 1, 'eos': 2, 'pad': 2, 'mask': 3}):
    folder.mkdir()
    huggingface.save(folder, model.sizes, context, ids, dict(model.named_parameters()))


@pytest.mark.parametrize('family', FAMILIES)
@torch.no_grad()
def test_logits_are_those_of_transformers(family, tmp_path):
    """Causal as the decoder, bidirectional with its mask off, past position 1,000; out again to the bit."""
    theirs = make(family, tmp_path / 'theirs')
    checkpoint = open_checkpoint(tmp_path / 'theirs')
    ours = checkpoint.model()
    ids = torch.randint(0, 320, (1, 1_300), generator=torch.Generator().manual_seed(1))
    for causal in (True, False):    # a decoder with its mask taken off, EuroBERT given one
        mask = torch.full((1, 1, 1_300, 1_300), -torch.inf).triu(1 if causal else 1_300)
        expected = theirs(ids, attention_mask=mask).logits[0]
        found = ours.logits(ours.model(ids[0], [1_300], causal=causal))
        assert expected.std() > 0.5  # a difference would show
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    if family == 'llama':
        loss, count = ours(ids[0], [1_300], torch.cat([ids[0, 1:], torch.tensor([-100])]), causal=True)
        torch.testing.assert_close(loss / count, theirs(ids, labels=ids).loss, atol=1e-5, rtol=1e-5)
    save(ours, tmp_path / 'ours', checkpoint.context)
    assert len({path.stat().st_mode for path in (tmp_path / 'ours').iterdir()}) == 1
    again = open_checkpoint(tmp_path / 'ours')
    assert (again.sizes, again.context) == (checkpoint.sizes, checkpoint.context)
    save(again.model(), tmp_path / 'again', again.context)
    for name in ('config.json', 'model.safetensors'):
        assert (tmp_path / 'ours' / name).read_bytes() == (tmp_path / 'again' / name).read_bytes()
    stored = theirs.state_dict()
    for name, tensor in load_file(tmp_path / 'ours' / 'model.safetensors').items():
        # Qwen2's absent o_proj.bias is 0
        assert torch.equal(tensor, stored[name]) if name in stored else not tensor.any()
    auto = transformers.AutoModelForCausalLM if 'qwen3' in family else transformers.AutoModelForMaskedLM
    opened, about = auto.from_pretrained(tmp_path / 'ours', output_loading_info=True)
    assert not any(about.values())
    for attention in ('sdpa', 'eager'):
        opened.set_attn_implementation(attention)
        torch.testing.assert_close(opened(ids).logits[0], expected, atol=1e-4, rtol=0)
    if 'eurobert' in family:  # padding is nothing to it, and its own folder is ours again
        padded, mask = torch.cat([ids, torch.full((1, 100), 2)], 1), torch.arange(1_400)[None] < 1_300
        found = opened(padded, attention_mask=mask.long()).logits[0, :1_300]
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
        opened.save_pretrained(tmp_path / 'back')
        assert type(opened).__name__ == 'EuroBertForMaskedLM'
        assert open_checkpoint(tmp_path / 'back').sizes == ours.sizes
        back = load(tmp_path / 'back').state_dict()
        assert all(torch.equal(p, back[name]) for name, p in ours.state_dict().items())


@pytest.mark.parametrize('family', ['llama', 'qwen2, tied', 'qwen3'])
def test_shards_bf16_base_models_and_old_buffers(family, tmp_path):
    theirs = make(family, tmp_path / 'shards', torch.bfloat16, max_shard_size='20KB')
    assert not (tmp_path / 'shards/model.safetensors').exists()
    assert len(list((tmp_path / 'shards').glob('*.safetensors'))) > 3
    ours = load(tmp_path / 'shards')
    for name, p in ours.named_parameters():
        if not name.endswith('o_proj.bias'):
            assert p.dtype == torch.float32 and torch.equal(p, theirs.state_dict()[name])
    theirs.model.save_pretrained(tmp_path / 'base')  # names without "model.", no head
    tensors = load_file(tmp_path / 'base/model.safetensors')
    assert not any(name.startswith('model.') for name in tensors)
    save_file(tensors | {'layers.0.self_attn.rotary_emb.inv_freq': torch.ones(4)},
              tmp_path / 'base/model.safetensors')
    base = load(tmp_path / 'base', head=False)
    assert all(torch.equal(p, ours.model.get_parameter(name)) for name, p in base.named_parameters())
    if 'tied' not in family:
        return refused('has no output head.*take --new_head', load, tmp_path / 'base')
    path, held = tmp_path / 'base/model.safetensors', {f'model.{name}': p for name, p in tensors.items()}
    save_file(held | {'lm_head.weight': tensors['embed_tokens.weight'].clone()}, path)      # held twice
    load(tmp_path / 'base')
    save_file(held | {'lm_head.weight': tensors['embed_tokens.weight'] + 1}, path)
    refused('tie_word_embeddings is True, but lm_head.weight differs', load, tmp_path / 'base')


def rewrite(file='config.json', /, **changes):
    def damage(folder):
        content = json.loads((folder / file).read_text()) | changes
        content = {name: value for name, value in content.items() if value != 'gone'}
        (folder / file).write_text(json.dumps(content))
    return damage


def with_tensor(name, change):
    def damage(folder):
        tensors = load_file(folder / 'model.safetensors')
        tensors |= {name: change(tensors.pop(name, None))}
        save_file({name: tensor for name, tensor in tensors.items() if tensor is not None},
                  folder / 'model.safetensors', {'format': 'pt'})
    return damage


def only_a_pickle(folder):
    (folder / 'model.safetensors').unlink()
    (folder / 'pytorch_model.bin').write_bytes(b'cbuiltins\nexec\n(S"raise SystemError(\'opened\')"\ntR.')


def index(content):
    def damage(folder):
        only_a_pickle(folder)
        (folder / 'model.safetensors.index.json').write_text(json.dumps(content))
    return damage


BROKEN = [
    (lambda folder: os.truncate(folder / 'model.safetensors', 9_999), 'missing, damaged or cut short'),
    (only_a_pickle, 'no model.safetensors.*pickles .* are not opened'),
    (index({'weight_map': {'a': 'absent.safetensors'}}), 'absent.safetensors: missing, damaged or cut'),
    (index({'weight_map': {'a': '../a.safetensors'}}), "'../a.safetensors' must be .* file beside it"),
    (with_tensor('model.norm.weight', lambda t: t.index_fill(0, torch.tensor([3]), float('nan'))),
     'model.norm.weight holds values that are not finite'),
    (with_tensor('classifier.weight', lambda _: torch.ones(2)), 'unexpected weight classifier.weight: .* or')]
CONFIGS = [  # what differs in config.json, and what is said of it
    (dict(attention_bias=True), 'missing weight model.layers.0.self_attn.k_proj.bias'),
    (dict(num_hidden_layers=2), 'unexpected weight model.layers.2'),
    (dict(intermediate_size=10 ** 9), 'has shape .* and should have .*1000000000'),    # before it is made
    (dict(vocab_size='gone'), 'config.json: has no vocab_size'),
    (dict(num_key_value_heads=4), 'config.json: .*num_key_value_heads'),
    (dict(model_type='gemma'), "model_type is 'gemma'; supported are"),
    (dict(hidden_act='gelu'), "hidden_act = 'gelu' is not supported"),
    (dict(partial_rotary_factor=0.5), 'partial_rotary_factor = 0.5 is not supported'),
    (dict(quantization_config={'quant_method': 'gptq'}), 'quantization_config .* only null'),
    (dict(rope_parameters={'rope_type': 'yarn', 'rope_theta': 1e4, 'factor': 4.0}),
     "rope_type = 'yarn' is not supported, only 'default' or 'llama3'"),
    (dict(rope_parameters='gone', rope_scaling={'type': 'linear', 'factor': 2.0}), "rope_type = 'linear'"),
    (dict(rope_parameters={'full_attention': {'rope_theta': 1e4}}), 'must be one rotation for all layers'),
    *[(changes, 'contradict each other') for changes in (
        dict(rope_scaling=LLAMA31), dict(rope_parameters=LLAMA31, rope_theta=1e4),
        dict(rope_parameters=LLAMA31, rope_scaling=SCALING),  # which transformers 5 then reads alone
        dict(rope_parameters=LLAMA31 | {'type': 'default'}))],
    (dict(model_type='eurobert', is_causal=True), 'is_causal = True is not supported for an encoder'),
    (dict(rope_parameters={'rope_type': 'llama3', 'rope_theta': 1e4, 'factor': 8.0}), 'rope_scaling .*None'),
    (dict(layer_types=['sliding_attention'] * 3), "layer_types .*'sliding_attention'"),
    (dict(model_type='mistral', sliding_window=64, layer_types=['full_attention'] * 3),
     'sliding_window 64 is not supported'),  # its Mistral heeds no layer_types
    (dict(model_type='qwen2', use_sliding_window=True, max_window_layers=2), 'sliding_window 4096 is not')]
BROKEN += [(rewrite(**changes), words) for changes, words in CONFIGS]


@pytest.fixture(scope='module')
def llama(tmp_path_factory):
    """A whole folder, to be copied and damaged."""
    folder = tmp_path_factory.mktemp('llama')
    make('llama', folder)
    return folder


@pytest.mark.parametrize('damage, words', BROKEN, ids=[words[:40] for _, words in BROKEN])
def test_broken_and_malicious_folders_are_refused(damage, words, llama, tmp_path):
    shutil.copytree(llama, tmp_path, dirs_exist_ok=True)
    damage(tmp_path)
    refused(words, load, tmp_path)


def test_a_config_may_leave_out_or_null_what_its_family_implies(tmp_path):
    make('llama', tmp_path)
    expected = open_checkpoint(tmp_path)
    rewrite(head_dim=None, rope_parameters=None, rope_scaling=None, attention_bias=None, mlp_bias='gone',
            hidden_act=None, tie_word_embeddings='gone', layer_types=None, pad_token_id=-1,
            bos_token_id=None, eos_token_id=[2, 5], mask_token_id='gone')(tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.sizes == expected.sizes and checkpoint.context == 4_096
    rewrite(rope_theta=5e5, rope_parameters={'rope_type': None, 'rope_theta': None})(tmp_path)
    assert open_checkpoint(tmp_path).sizes.rope_theta == 5e5


@pytest.mark.parametrize('changes', [
    dict(rope_theta=5e5, rope_scaling={'type': 'llama3'} | SCALING),
    dict(rope_theta=5e5, rope_scaling=SCALING, rope_parameters=LLAMA31, original_max_position_embeddings=512),
    dict(rope_parameters=dict([*LLAMA31.items()][:-1]), original_max_position_embeddings=512)])
def test_a_rotation_said_in_several_places_is_that_of_transformers(changes, llama, tmp_path):
    shutil.copytree(llama, tmp_path, dirs_exist_ok=True)
    rewrite(**{'rope_parameters': 'gone'} | changes)(tmp_path)
    ours, ids = load(tmp_path), torch.arange(320)
    found = ours.logits(ours.model(ids, [320], causal=True))
    expected = transformers.LlamaForCausalLM.from_pretrained(tmp_path)(ids[None]).logits[0]
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize('activation, name', [('F.gelu', 'gelu'), ('torch.tanh', 'as in model.py')])
def test_a_forks_activation_is_said_or_transformers_refuses(activation, name, llama, tmp_path):
    """A fork is a copy of the program in which one line of model.py is another."""
    shutil.copytree(ROOT / 'nanoencoder', tmp_path / 'nanoencoder')
    for script in ROOT.glob('*.py'):
        shutil.copy(script, tmp_path)
    source = (ROOT / 'model.py').read_text()
    forked = source.replace('ACTIVATION = F.silu ', f'ACTIVATION = {activation} ')
    assert forked != source
    (tmp_path / 'model.py').write_text(forked)
    run_process(ROOT / 'tests/fork.py', tmp_path / 'fork', env=os.environ | {'PYTHONPATH': str(tmp_path)}, check=True)
    if name == 'as in model.py':
        with pytest.raises(KeyError, match=name):
            transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / 'fork')
    else:
        theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / 'fork')
        expected = torch.load(tmp_path / 'fork/logits.pt')
        torch.testing.assert_close(theirs(torch.arange(320)[None]).logits[0], expected, atol=1e-4, rtol=0)
    refused(f"hidden_act = '{name}' is not supported, only 'silu'", load, tmp_path / 'fork')


@pytest.mark.parametrize('qk_norm', [False, True])
def test_a_checkpoint_of_clm_is_a_decoder_by_the_lines_of_the_page(qk_norm, settings, tmp_path, monkeypatch):
    """Logits of transformers' decoder, and what it generates."""
    cfg = settings(qk_norm=qk_norm, phases=(('clm', 20),), warmup_steps=0, lr=1e-2, val_every=0)
    pretrain.train(cfg)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(f'{cfg.out}/run', 'out/clm', dirs_exist_ok=True)
    shutil.move('out/clm/20', 'out/clm/3600')
    page = (ROOT / 'docs/decoders.md').read_text()
    code, = re.findall(r'```python\n# a checkpoint of CLM as .*\n((?:.*\n)*?)```', page)
    if qk_norm:
        code = re.sub(r'\{.model_type.*\}', re.search(r'set `(\{.*\})` alone', page)[1], code)
    exec(code, {})
    theirs, about = transformers.AutoModelForCausalLM.from_pretrained('decoder', output_loading_info=True)
    assert not any(about.values())
    assert type(theirs).__name__ == ('Qwen3ForCausalLM' if qk_norm else 'LlamaForCausalLM')
    ours = load(f'{cfg.out}/run')
    ids = torch.from_numpy(open_checkpoint(f'{cfg.out}/run').tokenizer().encode(texts()[0]))[:60]
    with torch.no_grad():
        expected = ours.logits(ours.model(ids, [len(ids)], causal=True))
        torch.testing.assert_close(theirs(ids[None]).logits[0], expected, atol=1e-5, rtol=0)
    tokenizer = transformers.AutoTokenizer.from_pretrained('decoder')
    assert tokenizer(texts()[0])['input_ids'][:60] == ids.tolist()
    written = ids[:10].clone()
    for _ in range(8):
        best = ours.logits(ours.model(written, [len(written)], causal=True))[-1].argmax()
        written = torch.cat([written, best[None]])
    generated = theirs.generate(ids[None, :10], max_new_tokens=8, do_sample=False, eos_token_id=-1)
    assert generated[0].tolist() == written.tolist()
    again = load('decoder')     # by our own programs, too
    with torch.no_grad():
        assert torch.equal(again.logits(again.model(ids, [len(ids)], causal=True)), expected)


def test_what_a_checkpoint_says_of_itself(tmp_path, monkeypatch):
    make('llama', tmp_path / 'run/1200')
    make('llama', tmp_path / 'run/900', max_shard_size='20KB')
    checkpoint, shards = open_checkpoint(tmp_path / 'run'), open_checkpoint(str(tmp_path / 'run/900'))
    assert checkpoint.folder == tmp_path / 'run/1200'
    assert huggingface.saved_steps(tmp_path / 'run') == [900, 1200]
    assert not checkpoint.has_tokenizer
    digest = files.sha256(checkpoint.folder / 'model.safetensors')
    assert checkpoint.digest() == digest
    files.write_json(checkpoint.folder / 'state.json', {'sha256': {'model.safetensors': digest}})
    assert open_checkpoint(tmp_path / 'run').digest() == digest
    parts = sorted(shards.folder.glob('*.safetensors'))
    assert shards.digest() == hashlib.sha256(''.join(map(files.sha256, parts)).encode()).hexdigest()
    monkeypatch.chdir(tmp_path)
    names = ['some/model', 'run/absent', 'a/b/c', 'run']
    assert [*filter(huggingface.is_hub_id, names)] == names[:1]
    monkeypatch.setattr('huggingface_hub.snapshot_download', None)
    refused('^run/absent: no such file or folder', load_tokenizer, 'run/absent')


def five_best(model, tokenizer, text, shift=0):
    """[[token, ...], ...] and [[probability, ...], ...] at each mask, or `shift` before it, of all tokens."""
    ids = torch.from_numpy(tokenizer.encode_masked(text))
    at = torch.nonzero(ids == tokenizer.ids['mask']).squeeze(1) - shift
    with torch.no_grad():
        p = model.logits(model.model(ids, [len(ids)], False)).softmax(1)[at]
    best = p[:, :tokenizer.vocab_size].topk(5)  # a padded vocabulary has rows of no token
    return [[tokenizer.decode([i]) for i in row] for row in best.indices], best.values.tolist(), p


def test_fill_mask(tmp_path):
    """Its five best are those of the whole softmax; the command line prints them, and names mistakes."""
    tokenizer = load_tokenizer(str(ROOT / 'configs/corpora/docs'))
    text = 'The function returns <|mask|> of <|mask|>.'
    make('eurobert', tmp_path / '7', vocab_size=6_000)
    tokenizer.save(tmp_path / '7')
    make('llama', tmp_path / 'few', vocab_size=(last := tokenizer.largest))
    tokenizer.save(tmp_path / 'few')    # only special tokens may lack a row
    refused(f'tokens up to {last}, its config.json vocab_size {last}:', load, tmp_path / 'few')
    model = load(tmp_path)
    found = fill_mask.fill_mask(model, tokenizer, text)
    tokens, values, p = five_best(model, tokenizer, text)
    assert p.topk(5).indices.max() >= 4_096 and len(found) == 2
    for best, *expected in zip(found, tokens, values):
        assert [token for token, _ in best] == expected[0]
        assert [p for _, p in best] == pytest.approx(expected[1], rel=1e-5)
    lines = ran('fill_mask.py', tmp_path, text).stdout.splitlines()
    assert lines[0] == text and len(lines) == 3
    assert all(f'{best[0][1]:.1%}' in line for line, best in zip(lines[1:], found))
    one_line_error(run_script('fill_mask.py', tmp_path, 'nothing to fill'), r'write it as <\|mask\|>')
    refused('an MNTP model needs a token before a mask', fill_mask.fill_mask, model, tokenizer,
            '<|mask|> first', objective='mntp')


class Hub(http.server.BaseHTTPRequestHandler):
    """A server that answers as the hub does, of the folders under `root`."""
    def answer(self):
        _, owner, model, question, *_, name = self.path.removeprefix('/api/models').split('/')
        files = sorted((self.root / owner / model).glob(name if question == 'resolve' else '*'))
        code = 'EntryNotFound' if question == 'resolve' else 'RepoNotFound'
        if question == 'resolve':
            self.asked.append((self.command, name))
            if name in self.forbidden:
                files, code = [], 'GatedRepo'
            body = b''.join(path.read_bytes() for path in files)
        else:    # /revision/main says the commit, /tree/<commit> the files
            content = {'id': f'{owner}/{model}', 'sha': 'c' * 40} if question == 'revision' else [
                {'type': 'file', 'path': path.name, 'oid': path.name, 'size': path.stat().st_size}
                for path in files]
            body = json.dumps(content).encode() if files else b''
        self.send_response(200 if files else 403 if code == 'GatedRepo' else 404)
        for key, value in {'X-Repo-Commit': 'c' * 40, 'ETag': f'"{len(body)}-{self.path}"',
                           'Content-Length': len(body), **({} if files else {'X-Error-Code': code})}.items():
            self.send_header(key, str(value))
        self.end_headers()
        if self.command == 'GET':
            self.wfile.write(body)

    do_HEAD = do_GET = answer

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """(its repositories, what was asked, what it must not give)."""
    Hub.root, Hub.asked, Hub.forbidden = tmp_path / 'hub', [], set()
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Hub)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    url = f'http://127.0.0.1:{server.server_port}'
    template = url + '/{repo_id}/resolve/{revision}/{filename}'
    for name, value in (('constants.ENDPOINT', url), ('constants.HF_HUB_CACHE', str(tmp_path / 'cache')),
                        ('constants.HF_HUB_OFFLINE', False),
                        ('constants.HUGGINGFACE_CO_URL_TEMPLATE', template),
                        ('file_download.HUGGINGFACE_CO_URL_TEMPLATE', template)):
        monkeypatch.setattr(f'huggingface_hub.{name}', value, raising=False)
    yield Hub.root, Hub.asked, Hub.forbidden
    server.shutdown()


def test_a_hub_id_is_downloaded_once_and_refused_early(hub, monkeypatch):
    folder, asked, forbidden = hub
    theirs = make('qwen2, tied', folder / 'some/model', max_shard_size='20KB').state_dict()
    checkpoint = open_checkpoint('some/model')
    assert all(torch.equal(p, theirs[name]) for name, p in checkpoint.model().named_parameters()
               if not name.endswith('o_proj.bias'))
    load('some/model')
    fetched = [name for method, name in asked if method == 'GET' and name.endswith('.safetensors')]
    assert len(fetched) == len(list((folder / 'some/model').glob('*.safetensors'))) > 3
    for name in ('other', 'closed', 'pickle'):
        make('llama', folder / 'some' / name)
    rewrite(model_type='gemma')(folder / 'some/other')
    del asked[:]
    refused("model_type is 'gemma'", load, 'some/other')
    assert {name for _, name in asked} == {'config.json'}  # refused before the weights came
    (folder / 'some/closed/tokenizer.json').write_text('{}')
    forbidden.add('tokenizer.json')  # not taken for a model without a tokenizer
    refused('(?s)some/closed: no such folder, and the hub .*tokenizer.json', load, 'some/closed')
    only_a_pickle(folder / 'some/pickle')
    refused('has no model.safetensors on the hub.*pickles', load, 'some/pickle')
    refused('some/absent: no such folder, and the hub did not', load, 'some/absent')
    monkeypatch.setattr('huggingface_hub.constants.HF_HUB_OFFLINE', True)
    del asked[:]
    assert open_checkpoint('some/model').digest() == checkpoint.digest()
    refused('some/closed: no such folder, and the hub did not', load, 'some/closed')    # a part is there
    assert asked == []


@pytest.fixture(scope='module')
def decoder(tmp_path_factory):
    """(folder, corpus): a small Llama trained here with CLM, whose tokenizer has no mask token."""
    folder = tmp_path_factory.mktemp('decoder')
    (folder / 'smollm').mkdir()
    tokenizer_of_style('smollm', folder / 'smollm', 1_000)
    jsonl(folder / 'texts.jsonl', [{'text': text} for text in texts()])
    ran('data.py', '--source=folder', f'--path={folder}/texts.jsonl', '--val_permille=200',
        f'--tokenizer={folder}/smollm', f'--out={folder}/corpus')
    assert Corpus(folder / 'corpus').meta['vocab_size'] == 1_001
    pretrain.train(build(pretrain.Settings, RUN | dict(
        name='clm', corpus=str(folder / 'corpus'), out=str(folder), phases=(('clm', 300),), vocab_size=1_001,
        hidden_size=64, intermediate_size=128, tie_word_embeddings=True, rope_theta=1e5, context=128,
        micro_rows=0, warmup_steps=20, decay_steps=100, log_every=250, val_every=0, save_every=0)))
    for name in ('config.json', 'model.safetensors'):
        shutil.copy(folder / 'clm/300' / name, folder / 'smollm')
    rewrite(model_type='llama', architectures=['LlamaForCausalLM'], vocab_size=1_000, pad_token_id=None,
            mask_token_id=None)(folder / 'smollm')
    with_tensor('model.embed_tokens.weight', lambda rows: rows[:1_000].clone())(folder / 'smollm')
    return folder / 'smollm', folder / 'corpus'


def adapt(decoder, out, name, **settings):
    """pretrain.py configs/decoder_to_encoder.py with settings for this size; what it printed, and its log."""
    folder, corpus = decoder
    settings = dict(weights_from=folder, name=name, out=out, corpus=corpus, context=128, rows_per_step=4,
                    micro_rows=0, lr=2e-3, warmup_steps=10, decay_steps=40, compile=False, val_every=0,
                    val_rows=20, log_every=50, device='cpu') | settings
    words = [f'--{name}={value}' for name, value in settings.items()]
    return ran('pretrain.py', 'configs/decoder_to_encoder.py', *words).stdout, log_lines(out / name)


@pytest.mark.slow
def test_mlm_from_a_decoder_beats_scratch_and_mntp_says_a_mask_before_it(decoder, tmp_path):
    """MLM against the same budget from scratch; MNTP tells a mask at the position before it."""
    budget = 'mlm', 150
    out, adapted = adapt(decoder, tmp_path, 'adapted', phases=budget)
    assert 'vocab_size 1000 -> 1001' in out and 'a row for the mask token 1000' in out
    sizes = json.loads((tmp_path / 'adapted/config.json').read_text())
    taken = {name: sizes[name] for name in leaves(Sizes)} | {'rope_scaling': ()}
    _, scratch = adapt(decoder, tmp_path, 'scratch', phases=budget, weights_from='', **taken)
    assert adapted[-1]['val_mlm_loss'] < scratch[-1]['val_mlm_loss'] - 0.3, (adapted[-1], scratch[-1])
    folder = tmp_path / 'adapted/150'
    model, about = transformers.AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert not any(about.values()) and tokenizer.mask_token_id == 1_000 == model.config.mask_token_id
    best = transformers.pipeline('fill-mask', model=model, tokenizer=tokenizer)(MASKED)
    found = fill_mask.fill_mask(load(folder), load_tokenizer(str(folder)), MASKED)[0]
    assert [p['score'] for p in best] == pytest.approx([p for _, p in found], abs=1e-4)
    assert 'resumed from' in adapt(decoder, tmp_path, 'adapted', phases=budget)[0]
    _, log = adapt(decoder, tmp_path, 'mntp', phases=('mntp', 150))
    assert log[-1]['val_mntp_loss'] < log[-1]['val_mlm_loss']
    model, tokenizer = load(tmp_path / 'mntp'), open_checkpoint(tmp_path / 'mntp').tokenizer()
    (best,), _, _ = five_best(model, tokenizer, MASKED, shift=1)
    assert [token for token, _ in fill_mask.fill_mask(model, tokenizer, MASKED, objective='mntp')[0]] == best


def test_the_mask_token_gets_the_mean_of_the_other_rows(decoder, tmp_path):
    """At learning rate 0 the weights are as they were taken; also in a padded vocabulary of Qwen's kind."""
    still = dict(phases=('mlm', 1), warmup_steps=0, decay_steps=1, lr=0)
    tensors, padded = load_file(decoder[0] / 'model.safetensors'), tmp_path / 'padded'
    before = tensors['model.embed_tokens.weight']
    shutil.copytree(decoder[0], padded)
    tensors['model.embed_tokens.weight'] = torch.cat([before, torch.full((24, 64), 9.0)])
    save_file(tensors, padded / 'model.safetensors')
    rewrite(vocab_size=1_024)(padded)
    for name, weights, rows in ('still', decoder[0], 1_001), ('wide', padded, 1_024):
        adapt(decoder, tmp_path, name, **still, weights_from=weights)
        after = load_file(tmp_path / name / '1/model.safetensors')['model.embed_tokens.weight']
        assert len(after) == rows and torch.equal(after[:1_000], before) and (after[1_001:] == 9).all()
        assert torch.allclose(after[1_000], before.mean(0), atol=1e-7)
    branch = still | dict(phases=('mlm', 2), weights_from='', branch_from=tmp_path / 'wide/1')
    assert 'branched from' in adapt(decoder, tmp_path, 'branch', **branch)[0]


SL_MODEL = SMALL | {  # as the authors' released config.json has it, sizes apart
    'architectures': ['SLModel'], 'attention_bias': False, 'attention_dropout': 0.0, 'mask_token_id': 3,
    'hidden_act': 'silu', 'hidden_dropout': 0.0, 'initializer_range': 0.02, 'model_type': 'sl_model',
    'rope_scaling': None, 'rope_theta': 10000, 'tie_word_embeddings': False, 'torch_dtype': 'bfloat16',
    'vocab_size': 4_096, 'max_position_embeddings': 128}


def test_the_papers_models_open_for_fine_tuning_and_with_a_new_head_for_mlm(settings, tmp_path):
    """bf16, no head, no "model." in the names, as far as their repositories show."""
    folder = tmp_path / 'sl'
    sizes = {name: value for name, value in SL_MODEL.items() if name not in ('architectures', 'model_type')}
    theirs = transformers.EuroBertModel(transformers.EuroBertConfig(**sizes)).eval().to(torch.bfloat16)
    theirs.save_pretrained(folder)
    theirs = transformers.EuroBertModel.from_pretrained(folder, dtype=torch.float32)
    (folder / 'config.json').write_text(json.dumps(SL_MODEL))
    for name in ('tokenizer.json', 'tokenizer_config.json'):
        shutil.copy(ROOT / 'configs/corpora/docs' / name, folder / name)
    base, ids = load(folder, head=False), torch.arange(100)
    expected = theirs(ids[None]).last_hidden_state[0]
    torch.testing.assert_close(base(ids, [100], False), expected, atol=1e-5, rtol=0)
    cfg = settings(name='on', phases=(('mlm', 2),), warmup_steps=0, decay_steps=0, weights_from=str(folder),
                   hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6,
                   num_key_value_heads=2, lr=0.0, context=128)
    refused('has no output head.*take --new_head', pretrain.train, cfg)
    pretrain.train(dataclasses.replace(cfg, new_head=True))
    saved = load_file(tmp_path / 'out/on/2/model.safetensors')
    assert torch.equal(saved['lm_head.weight'], initial_weight('lm_head.weight', (4_096, 48), cfg.seed))
    assert torch.equal(saved['model.embed_tokens.weight'], theirs.embed_tokens.weight.float())

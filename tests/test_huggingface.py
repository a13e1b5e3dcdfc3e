"""Hugging Face in and out: transformers is the judge; broken folders are refused in one line."""
import dataclasses
import errno
import functools
import hashlib
import http.server
import json
import os
import resource
import shutil
import threading

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import fill_mask
import model as architecture
import pretrain
from conftest import ROOT, log_lines, one_line_error, run_script, texts
from data import Corpus, in_order
from nanoencoder import huggingface, prepare
from nanoencoder import durable
from nanoencoder.pretraining import origin
from nanoencoder.huggingface import open_checkpoint
from nanoencoder.settings import build, leaves, parse
from nanoencoder.tokenizer import load_tokenizer
from test_tokenizer import huggingface as trained_tokenizer

SMALL = dict(vocab_size=320, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6,
             num_key_value_heads=2,
             max_position_embeddings=4096, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2, pad_token_id=2)
LLAMA31 = {'rope_type': 'llama3', 'rope_theta': 500_000.0, 'factor': 32.0, 'low_freq_factor': 1.0,
           'high_freq_factor': 4.0,
           'original_max_position_embeddings': 512}
FAMILIES = {  # name: (class, what differs from SMALL)
    'eurobert': (transformers.EuroBertForMaskedLM, dict(mask_token_id=3)),
    'eurobert, tied': (transformers.EuroBertForMaskedLM,
                       dict(mask_token_id=3, tie_word_embeddings=True,
                            rope_parameters={'rope_type': 'default', 'rope_theta': 250_000.0})),
    'llama': (transformers.LlamaForCausalLM, dict()),
    'llama, no groups': (transformers.LlamaForCausalLM,
                         dict(num_key_value_heads=6,
                              rope_parameters={'rope_type': 'default', 'rope_theta': 1e5})),
    'llama, one kv head, tied': (transformers.LlamaForCausalLM,
                                 dict(num_key_value_heads=1, tie_word_embeddings=True)),
    'llama, all biases': (transformers.LlamaForCausalLM, dict(attention_bias=True)),
    'llama, wide heads': (transformers.LlamaForCausalLM, dict(head_dim=20)),
    'llama 3.2': (transformers.LlamaForCausalLM, dict(rope_parameters=LLAMA31, tie_word_embeddings=True)),
    'mistral, no window': (transformers.MistralForCausalLM, dict(sliding_window=None)),
    'qwen2': (transformers.Qwen2ForCausalLM, dict()),
    'qwen2, a window that no layer has': (transformers.Qwen2ForCausalLM, dict(
        use_sliding_window=True, sliding_window=8, max_window_layers=3)),
    'qwen2, tied': (transformers.Qwen2ForCausalLM,
                    dict(tie_word_embeddings=True,
                         rope_parameters={'rope_type': 'default', 'rope_theta': 1e6})),
    'qwen3': (transformers.Qwen3ForCausalLM, dict(head_dim=8)),
    'qwen3, wide heads, tied': (transformers.Qwen3ForCausalLM, dict(head_dim=16, tie_word_embeddings=True)),
}


def make(family, folder, dtype=torch.float32, vocab_size=320, **options):
    """A random model by transformers, written to a folder; biases and norms are drawn, too."""
    kind, changes = FAMILIES[family]
    config = kind.config_class(**SMALL | changes | {'vocab_size': vocab_size})
    model = kind(config).eval()
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


def both_ways(model, ids):
    """(causal logits, bidirectional logits) of a decoder, its mask taken off, or of EuroBERT, given one."""
    length, found = ids.shape[1], []
    for allowed in (torch.ones(length, length).tril(), torch.ones(length, length)):
        mask = torch.where(allowed.bool(), 0.0, -torch.inf)[None, None]
        found.append(model(ids, attention_mask=mask).logits[0])
    return found


@pytest.mark.parametrize('family', FAMILIES)
def test_logits_are_those_of_transformers(family, tmp_path):
    """Causal as the decoder, bidirectional with its mask off, past position 1,000; out again to the bit."""
    theirs = make(family, tmp_path / 'theirs')
    checkpoint = open_checkpoint(tmp_path / 'theirs')
    ours = checkpoint.model()
    ids = torch.randint(0, 320, (1, 1_300), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        for causal, expected in zip((True, False), both_ways(theirs, ids)):
            found = ours.logits(ours.hidden_states(ids[0], [1_300], causal=causal))
            assert expected.std() > 0.5  # a difference would show
            torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
        if family == 'llama':
            loss, count = ours(ids[0], [1_300], torch.cat([ids[0, 1:], torch.tensor([-100])]), causal=True)
            torch.testing.assert_close(loss / count, theirs(ids, labels=ids).loss, atol=1e-5, rtol=1e-5)
    save(ours, tmp_path / 'ours', checkpoint.context, checkpoint.ids)
    again = open_checkpoint(tmp_path / 'ours')
    assert (again.sizes, again.context, again.ids) == (checkpoint.sizes, checkpoint.context, checkpoint.ids)
    save(again.model(), tmp_path / 'again', again.context, again.ids)
    for name in ('config.json', 'model.safetensors'):
        assert (tmp_path / 'ours' / name).read_bytes() == (tmp_path / 'again' / name).read_bytes()
    stored = theirs.state_dict()
    for name, tensor in load_file(tmp_path / 'ours' / 'model.safetensors').items():
        # Qwen2's absent o_proj.bias is 0
        assert torch.equal(tensor, stored[name]) if name in stored else not tensor.any()
    auto = transformers.AutoModelForCausalLM if 'qwen3' in family else transformers.AutoModelForMaskedLM
    opened, about = auto.from_pretrained(tmp_path / 'ours', output_loading_info=True)
    assert not any(about.values())
    with torch.no_grad():
        for attention in ('sdpa', 'eager'):
            opened.set_attn_implementation(attention)
            torch.testing.assert_close(opened(ids).logits[0], expected, atol=1e-4, rtol=0)
        if 'eurobert' in family:  # padding is nothing to it, and its own folder is ours again
            padded, mask = torch.cat([ids, torch.full((1, 100), 2)], 1), torch.ones(1, 1_400)
            mask[:, 1_300:] = 0
            torch.testing.assert_close(opened(padded, attention_mask=mask).logits[0, :1_300], expected,
                                       atol=1e-4, rtol=0)
            opened.save_pretrained(tmp_path / 'back')
            assert type(opened).__name__ == 'EuroBertForMaskedLM'
            assert open_checkpoint(tmp_path / 'back').sizes == ours.sizes
            back = load(tmp_path / 'back').state_dict()
            assert all(torch.equal(p, back[name]) for name, p in ours.state_dict().items())
    config = json.loads((tmp_path / 'ours/config.json').read_text())
    rope = theirs.config.rope_parameters
    # transformers 4 and 5 read one each
    assert config['rope_theta'] == config['rope_parameters']['rope_theta'] == rope['rope_theta']
    assert (config['rope_scaling'] or {'rope_type': 'default'})['rope_type'] == rope['rope_type']


@pytest.mark.parametrize('family', ['llama', 'qwen2, tied', 'qwen3'])
def test_shards_bf16_base_models_and_old_buffers(family, tmp_path):
    theirs = make(family, tmp_path / 'shards', torch.bfloat16, max_shard_size='20KB')
    assert not (tmp_path / 'shards/model.safetensors').exists()
    assert len(list((tmp_path / 'shards').glob('*.safetensors'))) > 3
    ours = load(tmp_path / 'shards')
    for name, p in ours.named_parameters():
        if not name.endswith('o_proj.bias'):
            assert p.dtype == torch.float32 and torch.equal(p, theirs.state_dict()[name])
    half = load(tmp_path / 'shards', dtype=torch.bfloat16)
    assert {p.dtype for p in half.parameters()} == {torch.bfloat16}
    ids = torch.arange(300)
    with torch.no_grad():
        exact, near = (model.hidden_states(ids, [300]).float() for model in (ours, half))
    assert (exact - near).norm() / exact.norm() < 0.03
    theirs.model.save_pretrained(tmp_path / 'base')  # names without "model.", no head
    tensors = load_file(tmp_path / 'base/model.safetensors')
    assert not any(name.startswith('model.') for name in tensors)
    save_file(tensors | {'layers.0.self_attn.rotary_emb.inv_freq': torch.ones(4)},
              tmp_path / 'base/model.safetensors')
    base = load(tmp_path / 'base', head=False)
    assert all(torch.equal(p, ours.model.get_parameter(name)) for name, p in base.named_parameters())
    if 'tied' not in family:
        with pytest.raises(ValueError, match='has no output head.*new_head = True'):
            load(tmp_path / 'base')


def test_a_tied_checkpoint_may_hold_its_head_twice_if_it_is_the_same(tmp_path):
    make('llama, one kv head, tied', tmp_path)
    tensors = load_file(tmp_path / 'model.safetensors')
    save_file(tensors | {'lm_head.weight': tensors['model.embed_tokens.weight'].clone()},
              tmp_path / 'model.safetensors')
    load(tmp_path)
    save_file(tensors | {'lm_head.weight': tensors['model.embed_tokens.weight'] + 1},
              tmp_path / 'model.safetensors')
    with pytest.raises(ValueError, match='tie_word_embeddings is True, but lm_head.weight differs'):
        load(tmp_path)


# --------------------------------------------------------------------------------------------- broken folders

def rewrite(**changes):
    def damage(folder):
        config = json.loads((folder / 'config.json').read_text())
        (folder / 'config.json').write_text(json.dumps({name: value for name,
                                                        value in (config | changes).items()
                                                        if value != 'gone'}))
    return damage


def with_tensor(name, change):
    def damage(folder):
        tensors = load_file(folder / 'model.safetensors')
        tensors[name] = change(tensors[name])
        save_file(tensors, folder / 'model.safetensors')
    return damage


def only_a_pickle(folder):
    (folder / 'model.safetensors').unlink()
    torch.save({}, folder / 'pytorch_model.bin')


def index(content):
    def damage(folder):
        (folder / 'model.safetensors').rename(folder / 'model-00001-of-00001.safetensors')
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / 'model.safetensors.index.json').write_text(text)
    return damage


def cut_weights(length):
    def damage(folder):
        path = folder / 'model.safetensors'
        path.write_bytes(path.read_bytes()[:length])
    return damage


BROKEN = {
    'weights cut short': (cut_weights(-100), 'model.safetensors: damaged or cut short'),
    'empty weights': (cut_weights(0), 'model.safetensors: damaged or cut short'),
    'no weights': (lambda folder: (folder / 'model.safetensors').unlink(), 'no checkpoint there'),
    'no config': (lambda folder: (folder / 'config.json').unlink(), 'config.json: No such file'),
    'config cut short': (lambda folder: (folder / 'config.json').write_text('{'),
                         'config.json: not valid JSON'),
    'biases that are not there': (rewrite(attention_bias=True),
                                  'missing weight model.layers.0.self_attn.k_proj.bias'),
    'groups that do not divide': (rewrite(num_key_value_heads=4), 'of num_key_value_heads 4'),
    'mask beyond the vocabulary': (rewrite(mask_token_id=320),
                                   'config.json: mask_token_id must be from 0 to 319, not 320'),
    'pad that is a truth': (rewrite(pad_token_id=True),
                            'config.json: pad_token_id takes int, not bool True'),
    'bos as text': (rewrite(bos_token_id='1'), "config.json: bos_token_id takes int, not str '1'"),
    'negative eos': (rewrite(eos_token_id=-2), 'config.json: eos_token_id must be .*-2'),
    'no room for a token': (rewrite(max_position_embeddings=0),
                            'config.json: max_position_embeddings must be from 1 to 1000000000, not 0'),
    'context as text': (rewrite(max_position_embeddings='128'),
                        "config.json: max_position_embeddings takes int, not str '128'"),
    'no context': (rewrite(max_position_embeddings='gone'), 'config.json: has no max_position_embeddings'),
    'only a pickle': (only_a_pickle, 'no model.safetensors.*pickles .* are not opened'),
    'shard elsewhere': (index({'weight_map': {'a': '../../etc/passwd'}}), 'names the shard passwd, which'),
    'pickled shard': (index({'weight_map': {'a': 'pytorch_model.bin'}}), 'names the shard pytorch_model.bin'),
    'shard is a number': (index({'weight_map': {'a': 7}}), 'names the shard 7, which is not there'),
    'missing shard': (index({'weight_map': {'a': 'model-00002-of-00002.safetensors'}}),
                      'names the shard model-00002-of-00002.safetensors, which'),
    'index without a map': (index({'metadata': {}}), 'index.json: has no weight_map'),
    'index that is a list': (index([1]), 'index.json: .1. was found where dict was expected'),
    'index cut short': (index('{"weight_map": {'), 'not valid JSON'),
    'shape against the config': (rewrite(intermediate_size=64),
                                 r'mlp\.\w+\.weight has shape .* and should have'),
    'vocabulary against the config': (
        rewrite(vocab_size=400),
        r'(embed_tokens|lm_head).weight has shape \(320, 48\), and should have \(400, 48\)'),
    'NaN': (with_tensor('model.layers.1.mlp.up_proj.weight',
                        lambda t: t.index_fill(0, torch.tensor([3]), float('nan'))),
            'model.layers.1.mlp.up_proj.weight holds values that are not finite'),
    'integers': (with_tensor('model.norm.weight', lambda t: t.int()),
                 'model.norm.weight is of type torch.int32'),
    'more layers': (rewrite(num_hidden_layers=4), 'missing weight model.layers.3'),
    'fewer layers': (rewrite(num_hidden_layers=2), 'unexpected weight model.layers.2'),
    'a billion layers': (rewrite(num_hidden_layers=10 ** 9),
                         'config.json: num_hidden_layers must be from 1 to 10000'),
    'layers as text': (rewrite(num_hidden_layers='3'), "num_hidden_layers takes int, not str '3'"),
    'hidden size as text': (rewrite(hidden_size='48'), "hidden_size takes int, not str '48'"),
    'negative heads': (rewrite(num_attention_heads=-6), 'num_attention_heads must be from 1'),
    'no vocabulary': (rewrite(vocab_size='gone'), 'has no vocab_size'),
    'config that is a list': (lambda folder: (folder / 'config.json').write_text('[]'),
                              'config.json: .. was found where dict was expected'),
    'another architecture': (rewrite(model_type='gemma'), "model_type is 'gemma'; supported are"),
    'another activation': (rewrite(hidden_act='gelu'), "hidden_act = 'gelu' is not supported"),
    'biases in the MLP': (rewrite(mlp_bias=True), 'mlp_bias = True is not supported'),
    'yarn': (rewrite(rope_parameters={'rope_type': 'yarn', 'rope_theta': 1e4, 'factor': 4.0}),
             "rope_type = 'yarn' is not supported, only 'default' or 'llama3'"),
    'linear, as transformers 4 wrote it': (rewrite(rope_parameters='gone',
                                                   rope_scaling={'type': 'linear', 'factor': 2.0}),
                                                   "rope_type = 'linear'"),
    'rotations by layer': (rewrite(rope_parameters={'full_attention': {'rope_type': 'default',
                                                                       'rope_theta': 1e4}}),
                                                                       'must be one rotation for all layers'),
    'rotations that contradict': (rewrite(rope_scaling=LLAMA31), 'contradict each other'),
    'rotations as text': (rewrite(rope_parameters='yarn'), 'must be one rotation'),
    'head_dim that is an object': (rewrite(head_dim={}), 'head_dim takes int, not dict'),
    'layer_types that are a number': (rewrite(layer_types=7), 'layer_types 7 are not'),
    'a vocabulary of 10^18': (rewrite(vocab_size=10 ** 18),
                              'vocab_size must be from 1 to 1000000000, not 10+'),
    'a layer of 10^9': (rewrite(intermediate_size=10 ** 9), 'has shape .* and should have .*1000000000'),
    # before it is made
    'theta of 10^400': (rewrite(rope_parameters='gone', rope_theta=10 ** 400),
                        'rope_theta takes float, not int 10+'),
    'float64': (with_tensor('model.norm.weight', lambda t: t.double() * 1e300), 'is of type torch.float64'),
    'a FIFO': (lambda folder: ((folder / 'model.safetensors').unlink(),
                               os.mkfifo(folder / 'model.safetensors')), 'no checkpoint there'),
    'a fine-tuned classifier': (lambda folder: save_file({'classifier.weight': torch.ones(2)},
                                                         folder / 'model.safetensors'),
                                                         'give the checkpoint it was made'),
    'half a llama3 scaling': (rewrite(rope_parameters={'rope_type': 'llama3', 'rope_theta': 1e4,
                                                       'factor': 8.0}), 'rope_scaling holds .*None'),
    'partial rotation': (rewrite(partial_rotary_factor=0.5), 'partial_rotary_factor = 0.5 is not supported'),
    'sliding window': (rewrite(layer_types=['sliding_attention'] * 3), "layer_types .*'sliding_attention'"),
    "Mistral's window": (rewrite(model_type='mistral', sliding_window=64, layer_types=['full_attention'] * 3),
                         'sliding_window 64 is not supported'),  # its Mistral heeds no layer_types
    "Mistral's window of old": (rewrite(model_type='mistral'), 'sliding_window 4096 is not supported'),
    'a window in the last layer': (rewrite(model_type='qwen2', use_sliding_window=True, max_window_layers=2),
                                   'sliding_window 4096 is not supported'),
    'a window from no layer': (rewrite(model_type='qwen2', use_sliding_window=True, max_window_layers='9'),
                               'sliding_window 4096 is not supported'),
    'quantised': (rewrite(quantization_config={'quant_method': 'gptq'}), 'quantization_config'),
    'eos beyond the vocabulary': (rewrite(eos_token_id=320), 'eos_token_id must be from 0 to 319'),
}


@pytest.fixture(scope='module')
def llama(tmp_path_factory):
    """A whole folder, to be copied and damaged."""
    folder = tmp_path_factory.mktemp('llama')
    make('llama', folder)
    return folder


@pytest.mark.parametrize('what', BROKEN)
def test_broken_and_malicious_folders_are_refused(what, llama, tmp_path):
    damage, part = BROKEN[what]
    shutil.copytree(llama, tmp_path, dirs_exist_ok=True)
    damage(tmp_path)
    with pytest.raises(ValueError, match=part):
        load(tmp_path)


def test_a_refusal_is_one_line(tmp_path):
    make('llama', tmp_path)
    only_a_pickle(tmp_path)
    one_line_error(run_script('fill_mask.py', tmp_path, 'a <|mask|>'), 'pickles .* are not opened')
    one_line_error(run_script('pretrain.py', 'configs/decoder_to_encoder.py', f'--weights_from={tmp_path}',
                            '--dry_run'), 'pickles .* are not opened')


def test_a_config_may_leave_out_or_null_what_its_family_implies(tmp_path):
    make('llama', tmp_path)
    expected = open_checkpoint(tmp_path)
    rewrite(head_dim=None, rope_parameters=None, rope_scaling=None, attention_bias=None, mlp_bias='gone',
            hidden_act=None,
            tie_word_embeddings='gone', layer_types=None, pad_token_id=-1, bos_token_id=None,
            eos_token_id=[2, 5], mask_token_id='gone')(tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.sizes == expected.sizes and checkpoint.context == 4_096
    assert checkpoint.ids == {'bos': 0, 'eos': 2, 'pad': 0, 'mask': 0}


def test_a_full_disk_is_an_error_of_the_file(tmp_path):
    """Before, it was safetensors' own, which names none: a traceback in fine-tuning with --save_model."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
        with pytest.raises(OSError, match='File too large') as error:
            huggingface.write_tensors(tmp_path / 'x.safetensors', {'x': torch.zeros(9_999)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert error.value.errno == errno.EFBIG and error.value.filename == str(tmp_path / 'x.safetensors')


def test_what_a_checkpoint_says_of_itself(tmp_path, monkeypatch):
    make('llama', tmp_path / 'run/1200')
    make('llama', tmp_path / 'run/900', max_shard_size='20KB')
    checkpoint, shards = open_checkpoint(tmp_path / 'run'), open_checkpoint(str(tmp_path / 'run/900'))
    assert checkpoint.folder == tmp_path / 'run/1200'
    assert huggingface.saved_steps(tmp_path / 'run') == [900, 1200]
    assert checkpoint.described() == 'run, step 1,200' and checkpoint.base_model() == ''
    assert not checkpoint.has_tokenizer
    state = {'step': 1_200, 'seconds': 1.0, 'fixed': {}, 'settings': {}, 'sha256': {}}
    durable.write_json(checkpoint.folder / 'state.json', state | {'base_model': 'some/decoder'})
    assert open_checkpoint(tmp_path / 'run').base_model() == 'some/decoder'
    assert checkpoint.digest() == durable.sha256(checkpoint.folder / 'model.safetensors')
    files = huggingface.weight_files(shards.folder)
    assert len(files) > 3 and files == sorted(shards.folder.glob('*.safetensors'))
    digests = ''.join(map(durable.sha256, files))
    assert shards.digest() == hashlib.sha256(digests.encode()).hexdigest()
    (tmp_path / 'run').rename(tmp_path / 'mine')
    assert open_checkpoint(tmp_path / 'mine/900').described() == 'mine, step 900'
    shutil.copytree(tmp_path / 'mine/900', tmp_path / 'decoder')
    monkeypatch.chdir(tmp_path)
    assert open_checkpoint('decoder').described() == 'decoder'
    for name, answer in (('some/model', True), ('mine/absent', False), ('a/b/c', False), ('decoder', False)):
        assert huggingface.is_hub_id(name) == answer


def test_a_file_must_hold_exactly_the_tensors_asked_for(tmp_path):
    path, shapes = tmp_path / 'moments.safetensors', {'a': (2, 3), 'b': (4,)}
    save_file({name: torch.full(shape, 0.5) for name, shape in shapes.items()}, path)
    tensors = dict(huggingface.read_exactly(path, shapes))
    assert {name: tuple(tensor.shape) for name,
            tensor in tensors.items()} == shapes and tensors['a'].eq(0.5).all()
    for others, part in (({'a': (2, 3)}, 'moments.safetensors: unexpected weight b'),
                         (shapes | {'c': (1,)}, 'missing weight c'),
                         (shapes | {'b': (5,)}, r'b has shape \(4,\), and should have \(5,\)')):
        with pytest.raises(ValueError, match=part):  # before any tensor is read
            huggingface.read_exactly(path, others)


def test_a_model_card_is_what_it_says(tmp_path):
    huggingface.write_card(tmp_path, title='a, step 2', about='A model of\n12 parameters.',
                           rows={'begun': 'anew', 'tokens': '1,000'},
                           use="pipeline('fill-mask', '<this folder>')", pipeline='fill-mask',
                           base_model='some/model', note=' Mind this.')
    assert (tmp_path / 'README.md').read_text() == '''---
library_name: "transformers"
pipeline_tag: "fill-mask"
base_model: "some/model"
---

# a, step 2

A model of
12 parameters.

| | |
|---|---|
| begun | anew |
| tokens | 1,000 |

Opens in transformers 5.3 or newer, without remote code: `pipeline('fill-mask', '<this folder>')`. Mind this.

No licence is stated: it is yours to choose, as far as the base model and the data leave it to you.
'''


def test_fill_mask(tmp_path):
    """Its five best are those of the whole softmax; the command line prints them, and names mistakes."""
    tokenizer = load_tokenizer(str(ROOT / 'configs/corpora/docs'))
    text = 'The function returns <|mask|> of <|mask|>.'
    make('eurobert', tmp_path / '7', vocab_size=4_096)
    tokenizer.save(tmp_path / '7')
    model = load(tmp_path)
    found = fill_mask.fill_mask(model, tokenizer, text)
    ids = torch.from_numpy(tokenizer.encode_masked(text))
    with torch.no_grad():
        expected = model.logits(model.hidden_states(ids, [len(ids)])).softmax(1)[ids == 4095]
    assert len(found) == 2 and all(len(best) == 5 for best in found)
    for best, p in zip(found, expected):
        assert [token for token, _ in best] == [tokenizer.decode([i]) for i in p.topk(5).indices]
        assert best[0][1] == pytest.approx(p.max().item())
    result = run_script('fill_mask.py', tmp_path, text)
    lines = result.stdout.splitlines()
    assert result.returncode == 0 and lines[0] == text and len(lines) == 3
    assert all(line.split()[0] == str(tmp_path / '7') and f'{best[0][1]:.1%}' in line for line,
               best in zip(lines[1:], found))
    one_line_error(run_script('fill_mask.py', tmp_path, 'nothing to fill'), r'write it as <\|mask\|>')
    one_line_error(run_script('fill_mask.py', tmp_path / 'absent', text), 'no checkpoint there')
    one_line_error(run_script('fill_mask.py', text, tmp_path), 'the text comes last')
    one_line_error(run_script('fill_mask.py', tmp_path, '--best=3', text), '--best=3: there are no options')
    assert run_script('fill_mask.py', tmp_path).returncode == 2
    assert run_script('fill_mask.py', '--help').returncode == 0
    with pytest.raises(ValueError, match='an MNTP model needs a token before a mask'):
        fill_mask.fill_mask(model, tokenizer, '<|mask|> first', objective='mntp')


def test_a_row_of_no_token_fills_no_mask(tmp_path):
    """As a padded vocabulary has them; before, the best of them was a traceback."""
    tokenizer = load_tokenizer(str(ROOT / 'configs/corpora/docs'))
    make('eurobert', tmp_path, vocab_size=6_000)
    tokenizer.save(tmp_path)
    model, text = load(tmp_path), 'The function returns <|mask|> of floats.'
    ids = torch.from_numpy(tokenizer.encode_masked(text))
    with torch.no_grad():
        p = model.logits(model.hidden_states(ids, [len(ids)])).softmax(1)[ids == 4095][0]
    assert p.topk(5).indices.max() >= 4_096
    best = fill_mask.fill_mask(model, tokenizer, text)[0]
    assert [x for _, x in best] == pytest.approx(p[:4_096].topk(5).values.tolist())


def test_a_tokenizer_with_more_tokens_than_rows_is_refused(tmp_path):
    """Before, each of them got the mean of the others' rows; a special token may, as the mask does."""
    tokenizer = load_tokenizer(str(ROOT / 'configs/corpora/docs'))
    tokenizer.save(tmp_path)
    last = max(tokenizer.ranks.values())
    make('llama', tmp_path, vocab_size=last + 1)
    assert load(tmp_path).sizes.vocab_size == tokenizer.vocab_size > last + 1
    make('llama', tmp_path, vocab_size=last)
    with pytest.raises(ValueError, match=f'tokens up to {last}, but its config.json has vocab_size {last}:'):
        load(tmp_path)


# ---------------------------------------------------------------------------------------------------- the hub

@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A server that answers as the hub does: (its repositories, what was asked, what it must not give)."""
    asked, forbidden = [], set()

    class Hub(http.server.BaseHTTPRequestHandler):
        def answer(self, with_body):
            if self.path.startswith('/api/models/'):
                return self.answer_api(*self.path.split('/')[3:6])
            repository, _, rest = self.path[1:].partition('/resolve/')
            revision, _, name = rest.partition('/')
            asked.append((self.command, name))
            path = tmp_path / 'hub' / repository / name
            found = path.is_file() and name not in forbidden
            self.send_response(200 if found else 403 if name in forbidden else 404)
            self.send_header('X-Repo-Commit', 'c' * 40)
            if found:
                self.send_header('ETag', f'"{path.stat().st_size}-{name}"')
            else:
                kind = 'EntryNotFound' if path.parent.exists() else 'RepoNotFound'
                kind = 'GatedRepo' if name in forbidden else kind
                self.send_header('X-Error-Code', kind)
            body = path.read_bytes() if found else b''
            self.send_header('Content-Length', str(len(body)))
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def answer_api(self, owner, model, question):
            """/revision/main says the commit, /tree/<commit> which files there are."""
            files = sorted((tmp_path / 'hub' / owner / model).glob('*'))
            content = {'id': f'{owner}/{model}', 'sha': 'c' * 40}
            if question.startswith('tree'):
                content = [{'type': 'file', 'path': path.name, 'oid': path.name, 'size': path.stat().st_size}
                           for path in files]
            body = json.dumps(content).encode()
            self.send_response(200 if files else 404)
            self.send_header('Content-Type', 'application/json')
            self.send_header('Content-Length', str(len(body)))
            if not files:
                self.send_header('X-Error-Code', 'RepoNotFound')
            self.end_headers()
            self.wfile.write(body)

        def do_HEAD(self):
            self.answer(False)

        def do_GET(self):
            self.answer(True)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Hub)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    import huggingface_hub.constants as constants
    import huggingface_hub.file_download as file_download
    url = f'http://127.0.0.1:{server.server_port}'
    for place, name, value in ((constants, 'ENDPOINT', url), (constants, 'HF_HUB_OFFLINE', False),
                               (constants, 'HF_HUB_CACHE', str(tmp_path / 'cache')),
                               (constants, 'HUGGINGFACE_CO_URL_TEMPLATE',
                                url + '/{repo_id}/resolve/{revision}/{filename}'),
                               (file_download, 'HUGGINGFACE_CO_URL_TEMPLATE',
                                url + '/{repo_id}/resolve/{revision}/{filename}')):
        monkeypatch.setattr(place, name, value, raising=False)
    yield tmp_path / 'hub', asked, forbidden
    server.shutdown()


def test_a_hub_id_is_downloaded_once_and_refused_early(hub, monkeypatch):
    folder, asked, forbidden = hub
    theirs = make('qwen2', folder / 'some/model', max_shard_size='20KB')
    checkpoint = open_checkpoint('some/model')
    assert checkpoint.described() == checkpoint.base_model() == 'some/model'
    ours = checkpoint.model()
    assert all(torch.equal(p, theirs.state_dict()[name]) for name,
               p in ours.named_parameters() if not name.endswith('o_proj.bias'))
    first = len([1 for method, name in asked if method == 'GET' and name.endswith('.safetensors')])
    load('some/model')
    again = len([1 for method, name in asked if method == 'GET' and name.endswith('.safetensors')])
    assert first == again == len(list((folder / 'some/model').glob('*.safetensors'))) > 3
    make('llama', folder / 'some/other')
    rewrite(model_type='gemma')(folder / 'some/other')
    del asked[:]
    with pytest.raises(ValueError, match="model_type is 'gemma'"):
        load('some/other')
    assert {name for _, name in asked} == {'config.json'}  # refused before the weights came
    words = ['--weights_from=some/model', '--phases=(("clm", 2_000), ("mlm", 5_000))']
    cfg = parse(pretrain.Settings, words, pretrain.ACTIONS,
                functools.partial(origin.inherited, pretrain.Settings))[0]
    assert cfg.name == 'model-clm-mlm40' and cfg.model == checkpoint.sizes
    assert cfg.model.hidden_size == 48 and cfg.model.attention_bias and not cfg.model.tie_word_embeddings
    make('llama', folder / 'some/closed')
    (folder / 'some/closed/tokenizer.json').write_text('{}')
    forbidden.add('tokenizer.json')
    # not taken for a model without a tokenizer
    with pytest.raises(ValueError, match='(?s)some/closed: no such folder, and the hub .*tokenizer.json'):
        load('some/closed')
    make('llama', folder / 'some/pickle')
    forbidden.clear()
    only_a_pickle(folder / 'some/pickle')
    with pytest.raises(ValueError, match='has no model.safetensors on the hub.*pickles'):
        load('some/pickle')
    with pytest.raises(ValueError, match='some/absent: no such folder, and the hub did not'):
        load('some/absent')
    monkeypatch.setattr('huggingface_hub.constants.HF_HUB_OFFLINE', True)
    del asked[:]
    assert open_checkpoint('some/model').digest() == checkpoint.digest()
    with pytest.raises(ValueError, match='some/closed: no such folder, and the hub did not'):
        load('some/closed')  # of which a part is there
    assert asked == []


# ------------------------------------------------------------------------------- a decoder becomes an encoder

@pytest.fixture(scope='module')
def decoder(tmp_path_factory):
    """(folder, corpus): a small decoder trained here with CLM and saved by transformers as LlamaForCausalLM.

    Its tokenizer is of SmolLM's form, without a mask token; the corpus is prepared with it.
    """
    folder = tmp_path_factory.mktemp('decoder')
    (folder / 'smollm').mkdir()
    trained_tokenizer('smollm', folder / 'smollm', vocab_size=1_000)
    with open(folder / 'texts.jsonl', 'w', encoding='utf-8') as file:
        file.writelines(json.dumps({'text': text}) + '\n' for text in texts())
    prepare.prepare(prepare.Settings(source='folder', path=str(folder / 'texts.jsonl'),
                                     out=str(folder / 'corpus'), val_permille=200,
                                     tokenizer=str(folder / 'smollm')), in_order)
    assert Corpus(folder / 'corpus').meta['vocab_size'] == 1_001
    pretrain.train(build(pretrain.Settings, dict(
        name='clm', corpus=str(folder / 'corpus'), out=str(folder), phases=(('clm', 300),), vocab_size=1_001,
        hidden_size=64,
        intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        tie_word_embeddings=True,
        rope_theta=1e5, context=128, rows_per_step=4, micro_rows=0, lr=3e-3, warmup_steps=20, decay_steps=100,
        log_every=250, val_every=0,
        val_rows=20, save_every=0, device='cpu')))
    ours = load(folder / 'clm')
    config = transformers.LlamaConfig(**dataclasses.asdict(ours.sizes) | dict(
        vocab_size=1_000, max_position_embeddings=128, bos_token_id=0, eos_token_id=0, pad_token_id=None,
        mask_token_id=None,
        rope_scaling=None, attention_bias=False, head_dim=16,
        rope_parameters={'rope_type': 'default', 'rope_theta': 1e5}))
    theirs = transformers.LlamaForCausalLM(config)
    weights = {name: p.detach() for name, p in ours.named_parameters()}
    weights['model.embed_tokens.weight'] = weights['model.embed_tokens.weight'][:1_000]
    assert theirs.load_state_dict(weights, strict=False).missing_keys == ['lm_head.weight']  # tied
    theirs.save_pretrained(folder / 'smollm')
    return folder / 'smollm', folder / 'corpus'


def adapt(decoder, out, name, **settings):
    """pretrain.py configs/decoder_to_encoder.py with settings for this size; what it printed, and its log."""
    folder, corpus = decoder
    settings = dict(weights_from=folder, name=name, out=out, corpus=corpus, context=128, rows_per_step=4,
                    micro_rows=0, lr=2e-3, warmup_steps=10,
                    decay_steps=40, compile=False, val_every=0, val_rows=20, log_every=50,
                    device='cpu') | settings
    result = run_script('pretrain.py', 'configs/decoder_to_encoder.py',
                      *(f'--{name}={value}' for name, value in settings.items()))
    assert result.returncode == 0, result.stderr
    return result.stdout, log_lines(out / name)


def test_mlm_from_a_decoder_beats_the_same_budget_from_scratch(decoder, tmp_path):
    folder, corpus = decoder
    budget = ('mlm', 150)
    out, adapted = adapt(decoder, tmp_path, 'adapted', phases=budget)
    assert 'vocab_size 1000 -> 1001' in out and 'a row for the mask token 1000' in out
    assert 'context 128' not in out
    sizes = json.loads((tmp_path / 'adapted/config.json').read_text())
    taken = {name: sizes[name] for name in leaves(architecture.Sizes)} | {'rope_scaling': ()}
    _, scratch = adapt(decoder, tmp_path, 'scratch', phases=budget, weights_from='', **taken)
    assert adapted[-1]['val_mlm_loss'] < scratch[-1]['val_mlm_loss'] - 0.3, (adapted[-1], scratch[-1])
    _, mntp = adapt(decoder, tmp_path, 'mntp', phases=('mntp', 150))
    assert mntp[-1]['val_mntp_loss'] < mntp[-1]['val_mlm_loss']
    result = run_script('evaluate.py', 'losses', tmp_path / 'adapted', tmp_path / 'mntp')
    assert 'val mntp' in result.stdout and f'{mntp[-1]["val_mntp_loss"]:.3f}' in result.stdout
    shifted(load_tokenizer(str(tmp_path / 'mntp/150')), tmp_path / 'mntp/150')
    model, about = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / 'adapted/150',
                                                                     output_loading_info=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / 'adapted/150')
    assert not any(about.values()) and tokenizer.mask_token_id == 1_000 == model.config.mask_token_id
    text = 'The function returns <|mask|> of floats.'
    best = transformers.pipeline('fill-mask', model=model, tokenizer=tokenizer)(text)
    ours = load_tokenizer(str(tmp_path / 'adapted/150'))
    found = fill_mask.fill_mask(load(tmp_path / 'adapted'), ours, text)[0]
    assert [p['score'] for p in best] == pytest.approx([p for _, p in found], abs=1e-4)
    card = (tmp_path / 'adapted/150/README.md').read_text()
    assert card.startswith('---\nlibrary_name: "transformers"\npipeline_tag: "fill-mask"\n---\n')
    assert '150 steps of MLM' in card and 'licence' in card and str(tmp_path) not in card
    assert 'begun | with the weights of smollm |' in card
    (tmp_path / 'adapted/150/README.md').write_text('mine')  # is the user's to edit
    assert 'resumed from' in adapt(decoder, tmp_path, 'adapted', phases=budget)[0]
    shutil.copytree(folder, tmp_path / 'other')
    with pytest.raises(AssertionError, match='was begun with .*smollm; take another --name'):
        adapt(decoder, tmp_path, 'adapted', phases=budget, weights_from=tmp_path / 'other')


def shifted(tokenizer, folder):
    """What an MNTP model says a mask is stands at the position before it; the command line knows."""
    text = 'The function returns <|mask|> of floats.'
    ids = torch.from_numpy(tokenizer.encode_masked(text).astype('int64'))
    model = load(folder)
    with torch.no_grad():
        logits = model.logits(model.hidden_states(ids, [len(ids)]))
    before = int((ids == tokenizer.ids['mask']).nonzero()) - 1
    best = [tokenizer.decode([i]) for i in logits[before].topk(5).indices]
    assert [token for token, _ in fill_mask.fill_mask(model, tokenizer, text, objective='mntp')[0]] == best
    said = run_script('fill_mask.py', folder, text).stdout
    assert all((token.strip() or repr(token)) in said for token in best)
    card = (folder / 'README.md').read_text()
    assert 'feature-extraction' in card and 'at the position before it' in card


def test_the_mask_token_gets_the_mean_of_the_other_rows(decoder, tmp_path):
    """At learning rate 0 the weights are as they were taken; also in a padded vocabulary of Qwen's kind."""
    folder, corpus = decoder
    before = load_file(folder / 'model.safetensors')['model.embed_tokens.weight']
    adapt(decoder, tmp_path, 'still', phases=('mlm', 1), warmup_steps=0, decay_steps=1, lr=0)
    after = load_file(tmp_path / 'still/1/model.safetensors')['model.embed_tokens.weight']
    assert torch.equal(after[:1_000], before) and torch.allclose(after[1_000], before.mean(0), atol=1e-7)
    padded = tmp_path / 'padded'
    shutil.copytree(folder, padded)
    tensors = load_file(padded / 'model.safetensors')
    tensors['model.embed_tokens.weight'] = torch.cat([before, torch.full((24, 64), 9.0)])
    save_file(tensors, padded / 'model.safetensors')
    rewrite(vocab_size=1_024)(padded)
    adapt(decoder, tmp_path, 'wide', phases=('mlm', 1), warmup_steps=0, decay_steps=1, lr=0,
          weights_from=padded)
    after = load_file(tmp_path / 'wide/1/model.safetensors')['model.embed_tokens.weight']
    branch = dict(phases=('mlm', 2), warmup_steps=0, decay_steps=1, lr=0, weights_from='',
                  branch_from=tmp_path / 'wide/1')
    assert 'branched from' in adapt(decoder, tmp_path, 'branch', **branch)[0]
    assert 'begun | at step 1 of wide |' in (tmp_path / 'branch/2/README.md').read_text()
    assert len(after) == 1_024 and torch.equal(after[:1_000], before) and (after[1_001:] == 9).all()
    assert torch.allclose(after[1_000], before.mean(0), atol=1e-7)


def test_weights_and_settings_that_contradict_are_refused(decoder, tmp_path, settings):
    folder, corpus = decoder
    base = ['configs/decoder_to_encoder.py', f'--weights_from={folder}', f'--out={tmp_path}', '--device=cpu',
            '--compile=False']
    one_line_error(run_script('pretrain.py', *base, f'--corpus={corpus}', '--num_hidden_layers=3'),
                   'has num_hidden_layers = 2, this run 3')
    one_line_error(run_script('pretrain.py', *base, f'--corpus={settings().corpus}'),
                   'another tokenizer than the corpus')
    shutil.copytree(folder, tmp_path / 'mute', ignore=lambda *_: ['tokenizer.json'])
    silent = [word for word in base if 'weights_from' not in word] + [f'--weights_from={tmp_path}/mute']
    one_line_error(run_script('pretrain.py', *silent, f'--corpus={corpus}'),
                   'has no tokenizer.json to compare, and 1000 ids where the corpus .* has 1001')
    shutil.rmtree(tmp_path / 'mute')
    one_line_error(run_script('pretrain.py', 'configs/tiny.py', f'--corpus={corpus}', '--new_head'),
                   'new_head belongs to weights_from')
    one_line_error(run_script('pretrain.py', *base, f'--corpus={corpus}', '--new_head'),
                   'new_head .*excludes tie_word_embeddings')
    one_line_error(run_script('pretrain.py', *base, f'--corpus={corpus}', '--phases=("mlm", 300)',
                            '--warmup_steps=400'), 'warmup_steps must be from 0 to 300, not 400')
    assert list(tmp_path.glob('*/*')) == []


SL_MODEL = {  # as the authors' released config.json has it, sizes apart
    'architectures': ['SLModel'], 'attention_bias': False, 'attention_dropout': 0.0,
    'bos_token': '<|begin_of_text|>', 'bos_token_id': 1,
    'eos_token': '<|end_of_text|>', 'eos_token_id': 2, 'pad_token': '<|end_of_text|>', 'pad_token_id': 2,
    'mask_token': '<|mask|>',
    'mask_token_id': 3, 'hidden_act': 'silu', 'hidden_dropout': 0.0, 'initializer_range': 0.02,
    'model_type': 'sl_model', 'pretraining_tp': 1,
    'rms_norm_eps': 1e-05, 'rope_scaling': None, 'rope_theta': 10000, 'tie_word_embeddings': False,
    'torch_dtype': 'bfloat16',
    'vocab_size': 4_096, 'hidden_size': 48, 'intermediate_size': 80, 'num_hidden_layers': 3,
    'num_attention_heads': 6, 'num_key_value_heads': 2,
    'max_position_embeddings': 128}


def test_the_papers_models_open_for_fine_tuning_and_with_a_new_head_for_mlm(settings, tmp_path):
    """bf16, no head, no "model." in the names, as far as their repositories show."""
    theirs = make_sl_model(tmp_path / 'sl')
    for name in ('tokenizer.json', 'tokenizer_config.json'):
        shutil.copy(ROOT / 'configs/corpora/docs' / name, tmp_path / 'sl' / name)
    base = load(tmp_path / 'sl', head=False)
    ids = torch.arange(100)
    with torch.no_grad():
        torch.testing.assert_close(base(ids, [100], False), theirs(ids[None]).last_hidden_state[0], atol=1e-5,
                                   rtol=0)
    (tmp_path / 'words').mkdir()
    for split, count in (('train', 40), ('test', 5)):
        rows = [{'text': f'the {word} is here {k}', 'label': word} for k in range(count)
                for word in ('array', 'list')]
        (tmp_path / f'words/{split}.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows))
    result = run_script('finetune.py', 'configs/tasks/example_sc.py', f'--model={tmp_path}/sl',
                        f'--data={tmp_path}/words', '--labels=array,list',
                        '--template={text}', '--dataset=words', '--steps=3', '--hold_out=0.2',
                        f'--predictions={tmp_path}/p', '--device=cpu')
    assert result.returncode == 0, result.stderr
    cfg = settings(corpus=settings().corpus, name='on', phases=(('mlm', 2),), warmup_steps=0, decay_steps=0,
                   weights_from=str(tmp_path / 'sl'), hidden_size=48,
                   intermediate_size=80, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2,
                   lr=0.0, context=128)
    with pytest.raises(ValueError, match='has no output head.*new_head = True'):
        pretrain.train(cfg)
    pretrain.train(dataclasses.replace(cfg, new_head=True))
    saved = load_file(tmp_path / 'out/on/2/model.safetensors')
    assert torch.equal(saved['lm_head.weight'],
                       architecture.initial_weight('lm_head.weight', (4_096, 48), cfg.seed))
    assert torch.equal(saved['model.embed_tokens.weight'], theirs.embed_tokens.weight.float())


def make_sl_model(folder):
    config = transformers.EuroBertConfig(**{name: value for name,
                                            value in SL_MODEL.items()
                                            if name not in ('architectures', 'model_type')})
    model = transformers.EuroBertModel(config).eval().to(torch.bfloat16)
    model.save_pretrained(folder)
    model = transformers.EuroBertModel.from_pretrained(folder, dtype=torch.float32)
    (folder / 'config.json').write_text(json.dumps(SL_MODEL))
    return model


def test_a_tensor_that_two_shards_hold_is_refused(tmp_path):
    tensors = {'model.norm.weight': torch.ones(4)}
    for name in ('a.safetensors', 'b.safetensors'):
        save_file(tensors, tmp_path / name)
    (tmp_path / 'model.safetensors.index.json').write_text(json.dumps(
        {'weight_map': {'model.norm.weight': 'a.safetensors', 'model.other.weight': 'b.safetensors'}}))
    with pytest.raises(ValueError, match='b.safetensors: model.norm.weight is there twice'):
        huggingface.locate(tmp_path)

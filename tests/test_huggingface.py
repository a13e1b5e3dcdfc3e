"""Hugging Face in and out: transformers is the judge; broken folders are refused in one line."""
import dataclasses
import fnmatch
import hashlib
import os
import shutil

import pytest
import torch
import transformers
from safetensors.torch import load_file

import fill_mask
import pretrain
from conftest import (
    ROOT,
    as_eurobert_and_as_qwen3,
    assert_near,
    copy_program,
    edit,
    jsonl,
    open_whole,
    ran,
    refused,
    refused_line,
    run_process,
    run_script,
    texts,
)
from hub_folders import FAMILIES, LLAMA31, SMALL, make, rewrite, with_tensor
from model import initial_weight
from nanoencoder import files, huggingface
from nanoencoder.huggingface import open_checkpoint
from nanoencoder.tokenizer import load_tokenizer
from tokenizer_files import TOKENIZER, huggingface as tokenizer_of_style

SCALING = {name: value for name, value in LLAMA31.items() if name != 'rope_theta'}  # all of rope_scaling


def load(name, **options):
    return open_checkpoint(name).model(**options)


def logits_of(model, ids, causal=False):
    with torch.no_grad():
        return model.logits(model.model(ids, [len(ids)], causal=causal))


@pytest.mark.parametrize('family', FAMILIES)
@torch.no_grad()
def test_logits_are_those_of_transformers(family, tmp_path):
    """Causal, and bidirectional without the decoder's mask, past position 1,000; out again to the bit."""
    theirs = make(family, tmp_path / 'theirs')
    ours = load(tmp_path / 'theirs')
    ids = torch.randint(0, 320, (1, 1_300), generator=torch.Generator().manual_seed(1))
    for causal in (True, False):    # a decoder with its mask taken off, EuroBERT given one
        mask = torch.full((1, 1, 1_300, 1_300), -torch.inf).triu(1 if causal else 1_300)
        expected = theirs(ids, attention_mask=mask).logits[0]
        assert expected.std() > 0.5  # a difference would show
        assert_near(logits_of(ours, ids[0], causal), expected, 1e-4)

    folder = tmp_path / 'ours'
    folder.mkdir()
    huggingface.write_folder(folder, ours.sizes, 4_096, {'bos': 1, 'eos': 2, 'pad': 2, 'mask': 3},
                     dict(ours.named_parameters()))
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1
    again = load(folder)
    assert again.sizes == ours.sizes
    # which text-embeddings-inference demands; it ignores is_causal
    assert ('rope_theta' in files.read_json(folder / 'config.json')) == (family != 'qwen3')
    assert_near(again.state_dict(), ours.state_dict(), 0)
    auto = transformers.AutoModelForCausalLM if family == 'qwen3' else transformers.AutoModelForMaskedLM
    opened = open_whole(auto, folder)
    for attention in ('sdpa', 'eager'):
        opened.set_attn_implementation(attention)
        assert_near(opened(ids).logits[0], expected, 1e-4)


def test_shards_bf16_base_models_and_old_buffers(tmp_path):
    theirs = make('llama', tmp_path / 'shards', torch.bfloat16, max_shard_size='20KB')
    assert len(list((tmp_path / 'shards').glob('*.safetensors'))) > 3
    ours = load(tmp_path / 'shards')
    assert_near(ours.state_dict(), theirs.state_dict(), 0)      # fp32 of both
    theirs.model.save_pretrained(tmp_path / 'base')     # names without "model.", no head
    with_tensor('layers.0.self_attn.rotary_emb.inv_freq', lambda _: torch.ones(4))(tmp_path / 'base')
    base = load(tmp_path / 'base', head=False)
    assert_near(base.state_dict(), ours.model.state_dict(), 0)


def test_a_tied_head_may_be_held_twice_but_not_differ(tmp_path):
    embedding = make('qwen2, tied', tmp_path).get_input_embeddings().weight.detach()
    with_tensor('lm_head.weight', lambda _: embedding.clone())(tmp_path)
    load(tmp_path)
    with_tensor('lm_head.weight', lambda head: head + 1)(tmp_path)
    refused('tie_word_embeddings is True, but lm_head.weight differs', load, tmp_path)


def only_a_pickle(folder):
    (folder / 'model.safetensors').unlink()
    (folder / 'pytorch_model.bin').write_bytes(b'cbuiltins\nexec\n(S"raise SystemError(\'opened\')"\ntR.')


LINEAR = {'type': 'linear', 'factor': 2.0}
BROKEN = [
    (lambda folder: os.truncate(folder / 'model.safetensors', 9_999), 'missing, damaged or cut short'),
    (only_a_pickle, 'no model.safetensors.*pickles .* are not opened'),
    (with_tensor('model.norm.weight', lambda tensor: tensor * torch.nan),
     'model.norm.weight holds values that are not finite'),
    (with_tensor('model.norm.weight', lambda tensor: tensor.to(torch.float8_e4m3fn)),
     'model.norm.weight is quantised to torch.float8_e4m3fn'),
    (with_tensor('classifier.weight', lambda _: torch.ones(2)), 'unexpected weight classifier.weight: .* or'),
    (rewrite(attention_bias=True), 'missing weight model.layers.0.self_attn.k_proj.bias'),
    (rewrite(intermediate_size=10 ** 9), 'has shape .* and should have .*1000000000'),  # before it is made
    (rewrite(vocab_size='gone'), 'config.json: has no vocab_size'),
    (rewrite(num_key_value_heads=4), 'config.json: .*num_key_value_heads'),
    (rewrite(rope_parameters='gone', rope_scaling=LINEAR), "rope_type = 'linear' is not supported, only"),
    (rewrite(rope_parameters={'full_attention': LINEAR}), 'must be the same for all layers'),
    (rewrite(rope_scaling=LLAMA31), 'contradict each other'),
    (rewrite(rope_parameters={'rope_type': 'llama3', 'rope_theta': 1e4}), 'rope_scaling .*None'),
    (rewrite(layer_types=['sliding_attention'] * 3), "layer_types .*'sliding_attention'"),
    # Mistral's window does not depend on layer_types
    (rewrite(model_type='mistral', sliding_window=64, layer_types=['full_attention'] * 3),
     'sliding_window 64 is not supported'),
    (rewrite(model_type='eurobert', is_causal=True), 'is_causal is true, but this family is of encoders'),
    (rewrite(model_type='sl_model', is_causal=True), 'is_causal is true, but this family is of encoders'),
    (rewrite(model_type='qwen2', use_sliding_window=True, max_window_layers=2), 'sliding_window 4096 is not')]


@pytest.fixture
def llama(tmp_path):
    """A whole folder, to be damaged."""
    make('llama', tmp_path)
    return tmp_path


@pytest.mark.parametrize('damage, words', BROKEN, ids=[words[:40] for _, words in BROKEN])
def test_broken_and_malicious_folders_are_refused(damage, words, llama):
    damage(llama)
    refused(words, load, llama)


def test_a_bert_is_refused_with_what_does_take_it(llama):
    rewrite(model_type='bert')(llama)
    for command in (['minimal_pairs.py', f'--model={llama}', '--dataset=toy'],
                    ['pretrain.py', 'configs/decoder_to_encoder.py', f'--weights_from={llama}']):
        refused_line("type is 'bert'; .* finetune.py, .*continue_encoder.py; fill_mask.py fills", *command)


def test_a_config_may_leave_out_or_null_what_its_family_implies(llama):
    expected = open_checkpoint(llama)
    rewrite(head_dim=None, rope_parameters=None, rope_scaling=None, attention_bias=None, mlp_bias='gone',
            hidden_act=None, tie_word_embeddings='gone', layer_types=None, pad_token_id=-1,
            bos_token_id=None, eos_token_id=[2, 5], mask_token_id='gone')(llama)
    checkpoint = open_checkpoint(llama)
    assert (checkpoint.sizes, checkpoint.context) == (expected.sizes, 4_096)
    rewrite(rope_theta=5e5, rope_parameters={'rope_type': None, 'rope_theta': None})(llama)
    assert open_checkpoint(llama).sizes.rope_theta == 5e5


@pytest.mark.parametrize('changes', [
    dict(rope_theta=5e5, rope_scaling={'type': 'llama3'} | SCALING),
    dict(rope_theta=5e5, rope_scaling=SCALING, rope_parameters=LLAMA31, original_max_position_embeddings=512),
    dict(rope_parameters=dict([*LLAMA31.items()][:-1]), original_max_position_embeddings=512)])
def test_rope_said_in_several_places_is_that_of_transformers(changes, llama):
    rewrite(**{'rope_parameters': 'gone'} | changes)(llama)
    ids = torch.arange(320)
    theirs = transformers.LlamaForCausalLM.from_pretrained(llama)
    ours = logits_of(load(llama), ids, causal=True)
    assert_near(ours, theirs(ids[None]).logits[0], 1e-4)


@pytest.mark.parametrize('activation, name', [('F.gelu', 'gelu'), ('torch.tanh', 'as in model.py')])
def test_a_forks_activation_is_said_or_transformers_refuses(activation, name, tmp_path):
    """A fork is a copy of the program in which one line of model.py is another."""
    copy_program(tmp_path)
    edit(tmp_path / 'model.py', 'ACTIVATION = F.silu ', f'ACTIVATION = {activation} ')
    make('eurobert', tmp_path / 'theirs')
    rewrite(hidden_act=name)(tmp_path / 'theirs')
    folder = tmp_path / 'fork'
    run_process(ROOT / 'tests/fork.py', tmp_path / 'theirs', folder, check=True,
                env=os.environ | {'PYTHONPATH': str(tmp_path)})
    refused(f"hidden_act = '{name}' is not supported, only 'silu'", load, folder)
    if name == 'as in model.py':
        with pytest.raises(KeyError, match=name):
            transformers.AutoModelForMaskedLM.from_pretrained(folder)
        return
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(folder)(torch.arange(320)[None]).logits[0]
    assert_near(theirs, torch.load(folder / 'logits.pt'), 1e-4)


@as_eurobert_and_as_qwen3
def test_a_checkpoint_of_clm_becomes_a_decoder(qk_norm, trained, tmp_path, monkeypatch):
    """transformers' decoder has our logits; our own programs open it, too."""
    trained(qk_norm=qk_norm, phases=(('clm', 20),), warmup_steps=0, lr=1e-2, val_every=0)
    monkeypatch.chdir(tmp_path)
    ran('examples.decoder_out', 'out/run', 'decoder')
    assert 'decoder is there already' in run_script('examples.decoder_out', 'out/run/20', 'decoder').stderr
    theirs = open_whole(transformers.AutoModelForCausalLM, 'decoder')
    assert type(theirs).__name__ == ('Qwen3ForCausalLM' if qk_norm else 'LlamaForCausalLM')
    tokenizer = transformers.AutoTokenizer.from_pretrained('decoder')
    assert tokenizer('of it')['input_ids'] == TOKENIZER.encode('of it').tolist()    # a prompt without eos
    ids = tokenizer(texts()[0], return_tensors='pt')['input_ids'][:, :60]
    expected = logits_of(load('out/run'), ids[0], causal=True)
    assert_near(theirs(ids).logits[0], expected)
    assert torch.equal(logits_of(load('decoder'), ids[0], causal=True), expected)


def test_a_checkpoint_of_mlm_becomes_no_decoder(trained, tmp_path, monkeypatch):
    trained(phases=(('mlm', 1),), warmup_steps=0, decay_steps=0, val_every=0)
    monkeypatch.chdir(tmp_path)
    result = run_script('examples.decoder_out', 'out/run/1', 'decoder')
    assert result.returncode == 2
    assert 'ended with mlm' in result.stderr


def test_a_run_is_its_newest_checkpoint_and_a_digest_is_of_the_weights(tmp_path):
    make('llama', tmp_path / '900', max_shard_size='20KB')
    make('llama', tmp_path / '1200')
    newest = open_checkpoint(tmp_path)
    assert newest.folder == tmp_path / '1200'
    assert not newest.has_tokenizer
    assert newest.digest() == files.sha256(tmp_path / '1200/model.safetensors')
    shards = sorted((tmp_path / '900').glob('*.safetensors'))
    joined = ''.join(map(files.sha256, shards))
    assert open_checkpoint(tmp_path / '900').digest() == hashlib.sha256(joined.encode()).hexdigest()


def test_a_missing_folder_is_no_hub_id(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'run').mkdir()
    names = ['some/model', 'run/absent', 'a/b/c', 'run']
    assert [*filter(huggingface.is_hub_id, names)] == ['some/model']
    monkeypatch.setattr('huggingface_hub.snapshot_download', None)
    refused('^run/absent: no such file or folder', load_tokenizer, 'run/absent')


@pytest.mark.parametrize('about, causal, offset', [
    ({'objective': 'mlm'}, False, 0),
    ({'objective': 'mntp'}, False, 1),
    ({'objective': 'clm'}, True, 1),
    ({'objective': 'mine', 'causal': True, 'offset': 2}, True, 2)])
def test_fill_mask(about, causal, offset, tmp_path):
    """The five best tokens of the whole softmax, at the mask or as many places before it as the objective's
    offset says; causal objectives see nothing behind that place. Also as a command."""
    text = 'The function returns <|mask|> of <|mask|>.'
    make('eurobert', tmp_path / '7', vocab_size=6_000)      # rows of no token among them
    TOKENIZER.save(tmp_path / '7')
    rewrite(**about)(tmp_path / '7')
    model = load(tmp_path)
    ids = torch.from_numpy(TOKENIZER.encode_masked(text))
    places = torch.nonzero(ids == TOKENIZER.ids['mask'])[:, 0]
    probabilities = logits_of(model, ids, causal).softmax(1)[places - offset]
    lines = [text]
    answers = fill_mask.fill_mask(model, TOKENIZER, text, offset, causal)
    for answer, row in zip(answers, probabilities, strict=True):
        best = row[:4_096].topk(5)
        assert [token for token, _ in answer] == [TOKENIZER.decode([i]) for i in best.indices.tolist()]
        assert [p for _, p in answer] == pytest.approx(best.values.tolist(), rel=1e-5)
        words = [f'{token.strip() or repr(token)} {p:.1%}' for token, p in answer]
        lines.append(f'  {tmp_path}/7 ' + '   '.join(words))
    assert ran('fill_mask.py', tmp_path, text).stdout.splitlines() == lines
    refused_line(r'write it as <\|mask\|>', 'fill_mask.py', tmp_path, 'nothing to fill')
    if offset:
        refused_line(f'predicts a token {offset} before it, and needs as many', 'fill_mask.py', tmp_path,
                     '<|mask|> first')


def test_only_special_tokens_may_lack_a_row(tmp_path):
    last = TOKENIZER.largest
    make('llama', tmp_path, vocab_size=last)
    TOKENIZER.save(tmp_path)
    refused(f'tokens up to {last}, its config.json vocab_size {last}:', load, tmp_path)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A folder of repositories: huggingface_hub's downloads come from it."""
    def snapshot_download(name, revision, allow_patterns):
        if not (tmp_path / 'hub' / name).exists():
            raise ConnectionError('404')
        assert revision in (None, 'commit')     # the weights are of the commit that the rest is of
        folder = tmp_path / 'cache' / name / 'commit'
        folder.mkdir(parents=True, exist_ok=True)
        for path in (tmp_path / 'hub' / name).iterdir():
            if any(fnmatch.fnmatch(path.name, pattern) for pattern in allow_patterns):
                shutil.copy(path, folder)
        return str(folder)
    monkeypatch.setattr('huggingface_hub.snapshot_download', snapshot_download)
    return tmp_path / 'hub'


def test_a_hub_id_is_opened_and_refused_before_its_weights_come(hub, tmp_path):
    theirs = make('llama', hub / 'some/model', max_shard_size='20KB')
    assert_near(load('some/model').state_dict(), theirs.state_dict(), 0)
    for name in ('other', 'pickle'):
        make('llama', hub / 'some' / name)
    rewrite(model_type='gemma')(hub / 'some/other')
    refused("model_type is 'gemma'; supported are", load, 'some/other')
    assert [path.name for path in (tmp_path / 'cache/some/other/commit').iterdir()] == ['config.json']
    only_a_pickle(hub / 'some/pickle')
    refused('has no model.safetensors on the hub.*pickles', load, 'some/pickle')
    refused('some/absent: no such folder, and the hub did not give it: 404', load, 'some/absent')


def test_a_run_says_the_hub_id_and_commit_of_its_weights(hub, settings, tmp_path):
    """And nowhere the folder of the cache, which lies in somebody's home."""
    make('llama', hub / 'acme/mini', vocab_size=4_096)
    TOKENIZER.save(hub / 'acme/mini')
    cfg = settings(weights_from='acme/mini', phases=(('mlm', 1),), warmup_steps=0, decay_steps=0, val_every=0,
                   hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6)
    pretrain.train(cfg)
    state = files.read_json(tmp_path / 'out/run/1/state.json')
    assert state['starts'][0]['how'].startswith('weights from acme/mini@commit, context 4096 -> 64')
    for path in (tmp_path / 'out').rglob('*.json*'):
        assert str(tmp_path / 'cache') not in path.read_text(), path
    assert '  acme/mini@commit ' in ran('fill_mask.py', 'acme/mini', 'a <|mask|>').stdout


@pytest.mark.parametrize('script', ['fill_mask.py', 'minimal_pairs.py'])
def test_no_weights_are_downloaded_for_what_is_refused(script, hub, tmp_path):
    """A tokenizer of SentencePiece's or another model, none, and a text or a task that will not do."""
    def refused_early(words, dataset='', text='a <|mask|>'):
        command = [script, 'some/model', text]
        if script == 'minimal_pairs.py':
            command = [script, '--model=some/model', '--dataset=toy', f'--data={tmp_path}/{dataset}']
        refused_line(words, *command)
        assert not list((tmp_path / 'cache').rglob('*.safetensors'))

    folder = hub / 'some/model'
    make('llama', folder, vocab_size=4_096)
    refused_early('no such file or folder with a tokenizer.json')
    TOKENIZER.save(folder)
    refused_early('no mask in|no test with', text='nothing to fill')
    rewrite('tokenizer.json', pre_tokenizer=None)(folder)
    refused_early('no byte-level BPE.*SentencePiece')
    TOKENIZER.save(folder)
    rewrite(vocab_size=320)(folder)
    refused_early('its tokenizer has tokens up to')
    assert list((tmp_path / 'cache').rglob('tokenizer.json'))


@pytest.mark.parametrize('rows', [1_000, 1_024])
def test_a_decoder_becomes_an_encoder_with_a_row_for_the_mask_token(rows, tmp_path):
    """The mean of the trained rows, 1,000 of them; 1,024 is a padded vocabulary, as Qwen's. At learning
    rate 0 all others stay as they were taken."""
    folder = tmp_path / 'decoder'
    make('llama 3.2', folder, vocab_size=rows)
    tokenizer_of_style('smollm', folder, 1_000)
    jsonl(tmp_path / 'texts.jsonl', [{'text': text} for text in texts()])
    ran('data.py', f'--path={tmp_path}/texts.jsonl', f'--tokenizer={folder}', '--val_permille=200',
        f'--out={tmp_path}/corpus')
    words = ['--phases=("mlm", 1)', '--lr=0', '--warmup_steps=0', '--decay_steps=1', '--val_every=0',
             '--context=128', '--rows_per_step=4', '--micro_rows=0', '--compile=False', '--device=cpu']
    result = ran('pretrain.py', 'configs/decoder_to_encoder.py', *words, f'--weights_from={folder}',
                 f'--corpus={tmp_path}/corpus', f'--out={tmp_path}', '--name=encoder')
    assert 'a row for the mask token 1000' in result.stdout
    if rows == 1_000:
        assert 'vocab_size 1000 -> 1001' in result.stdout

    encoder = tmp_path / 'encoder/1'
    before = load_file(folder / 'model.safetensors')[huggingface.EMBEDDING]
    after = load_file(encoder / 'model.safetensors')[huggingface.EMBEDDING]
    assert len(after) == max(rows, 1_001)
    assert torch.equal(after[:1_000], before[:1_000])
    assert torch.equal(after[1_001:], before[1_001:])
    assert_near(after[1_000], before[:1_000].mean(0), 1e-7)
    model = open_whole(transformers.AutoModelForMaskedLM, encoder)
    theirs = transformers.AutoTokenizer.from_pretrained(encoder)
    assert theirs.mask_token_id == 1_000 == model.config.mask_token_id


def test_the_papers_models_open_for_fine_tuning_and_with_a_new_head_for_mlm(settings, tmp_path):
    """bf16, no head, no "model." in the names, as far as the authors' repositories show."""
    sizes = SMALL | dict(vocab_size=4_096, max_position_embeddings=128)
    config = transformers.EuroBertConfig(**sizes, rope_theta=10_000)
    transformers.EuroBertModel(config).to(torch.bfloat16).save_pretrained(tmp_path / 'sl')
    theirs = transformers.EuroBertModel.from_pretrained(tmp_path / 'sl', dtype=torch.float32)
    files.write_json(tmp_path / 'sl/config.json', sizes | {     # as in the authors' released config.json
        'attention_bias': False, 'hidden_act': 'silu', 'model_type': 'sl_model', 'rope_scaling': None,
        'rope_theta': 10000, 'tie_word_embeddings': False, 'torch_dtype': 'bfloat16'})
    TOKENIZER.save(tmp_path / 'sl')
    ids = torch.arange(100)
    expected = theirs(ids[None]).last_hidden_state[0]
    base = load(tmp_path / 'sl', head=False)
    assert_near(base(ids, [100], False), expected)
    cfg = settings(name='on', phases=(('mlm', 2),), warmup_steps=0, decay_steps=0, lr=0.0, context=128,
                   weights_from=str(tmp_path / 'sl'), hidden_size=48, intermediate_size=80,
                   num_hidden_layers=3, num_attention_heads=6)
    refused('has no output head.*take --new_head', pretrain.train, cfg)
    pretrain.train(dataclasses.replace(cfg, new_head=True))
    saved = load_file(tmp_path / 'out/on/2/model.safetensors')
    assert torch.equal(saved['lm_head.weight'], initial_weight('lm_head.weight', (4_096, 48), cfg.seed))
    assert torch.equal(saved['model.embed_tokens.weight'], theirs.embed_tokens.weight)

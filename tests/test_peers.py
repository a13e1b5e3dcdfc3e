"""Other people's encoders: transformers' own tokens, states and scores; our exports as peers; bad input."""
import collections
import re
import shutil
import sys

import numpy as np
import pytest
import tokenizers
import torch
import torch.nn.functional as F
import transformers

import finetune
from conftest import one_line_error, ran, run_script, texts
from nanoencoder import peers, tasks
from nanoencoder.files import read_json
from nanoencoder.tasks import tagging
from test_huggingface import rewrite, with_tensor
from test_finetune import (  # noqa: F401
    KINDS, TOKENIZER, checkpoint, command, new, random_model, settings, toy)

ROWS = 900     # embeddings, a few more than tokens
COMMON = dict(vocab_size=ROWS, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
              num_attention_heads=4, max_position_embeddings=130)
FAMILIES = {
    'bert': transformers.BertConfig(**COMMON), 'roberta': transformers.RobertaConfig(**COMMON),
    'deberta-v2': transformers.DebertaV2Config(pos_att_type=['p2c', 'c2p'], relative_attention=True,
                                               **COMMON),
    'modernbert': transformers.ModernBertConfig(local_attention=16, global_attn_every_n_layers=2, **COMMON)}
TRAINED = {'roberta': transformers.RobertaTokenizer, 'deberta-v2': transformers.DebertaV2Tokenizer}
TEXTS = ['', 'a', ' The  number of arrays ', 'the array of floats ' * 20, 'Rome, Paris',
         'e\u0301t\xe9 \u6771\u4eac \U0001f642 na\xefve\u00a0x\tand\nlines']


def byte_level():
    """A tokenizer of ModernBERT's kind: runs of spaces are tokens, and not special."""
    core = tokenizers.Tokenizer(tokenizers.models.BPE())
    core.normalizer = tokenizers.normalizers.NFC()
    core.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = tokenizers.decoders.ByteLevel()
    roles = {f'{name}_token': f'[{name.upper()}]' for name in ('unk', 'cls', 'sep', 'pad', 'mask')}
    core.train_from_iterator(texts()[:60], tokenizers.trainers.BpeTrainer(
        vocab_size=800, special_tokens=[*roles.values()],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    core.add_tokens(['  ', '    '])
    core.post_processor = tokenizers.processors.TemplateProcessing(
        single='[CLS] $A [SEP]', special_tokens=[(t, core.token_to_id(t)) for t in ('[CLS]', '[SEP]')])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=core, **roles)


def word_pieces():
    """BERT's, of frequent words and single letters: the library's trainer draws another one each time."""
    words = collections.Counter(re.findall(r'\w+|[^\w\s]', ' '.join(texts()[:60]).lower()))
    letters = sorted(set(''.join(words)))
    pieces = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', *letters, *(f'##{letter}' for letter in letters),
              *sorted(words, key=lambda word: (-words[word], word))]
    return transformers.BertTokenizer({piece: i for i, piece in enumerate(dict.fromkeys(pieces[:800]))})


@pytest.fixture(scope='session')
def folders(tmp_path_factory):
    """{family: a folder of random weights}, all made by transformers."""
    made = tmp_path_factory.mktemp('peers')
    for family, config in FAMILIES.items():
        trained = word_pieces() if family == 'bert' else byte_level()
        if family in TRAINED:
            trained = TRAINED[family]().train_new_from_iterator(texts()[:60], 800)
        config.pad_token_id = trained.pad_token_id
        with torch.random.fork_rng():
            torch.manual_seed(0)
            transformers.AutoModel.from_config(config).save_pretrained(made / family)
        trained.save_pretrained(made / family)
    return {family: made / family for family in FAMILIES}


def opened(folder):
    return peers.open_peer(str(folder), folder, read_json(folder / 'config.json'))


def judged(folder):
    return (transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval(),
            transformers.AutoTokenizer.from_pretrained(folder))


@pytest.mark.parametrize('family', FAMILIES)
def test_tokens_and_states_are_transformers(family, folders, tmp_path):
    """A flat row and a padded batch. No text is special, cut or padded, whatever tokenizer.json says."""
    shutil.copytree(folders[family], tmp_path, dirs_exist_ok=True)
    core = tokenizers.Tokenizer.from_file(str(tmp_path / 'tokenizer.json'))
    core.enable_truncation(5)
    core.enable_padding(length=5)
    core.save(str(tmp_path / 'tokenizer.json'))
    peer, (model, tokenizer) = opened(tmp_path), judged(folders[family])
    ours = peer.tokenizer()
    assert ours.ids['mask'] not in ours.encode(f'a {ours.backend.id_to_token(ours.ids["mask"])} b')
    assert peer.context == (129 - tokenizer.pad_token_id if family == 'roberta' else 130)
    assert len(ours.prefix) == len(ours.suffix) == 1
    arrays = [[*ours.prefix, *ours.encode(text), *ours.suffix] for text in TEXTS]
    assert arrays == tokenizer(TEXTS)['input_ids']
    batch = tokenizer.pad({'input_ids': arrays}, return_tensors='pt')
    with torch.no_grad():
        expected = model(**batch).last_hidden_state[batch['attention_mask'].bool()]
        flat, lengths = torch.tensor(sum(arrays, [])), [*map(len, arrays)]
        torch.testing.assert_close(peer.model()(flat, lengths), expected, atol=1e-5, rtol=0)
        peer.model()(torch.ones(peer.context, dtype=torch.long), [peer.context])
    for text in TEXTS + texts()[:40]:   # offsets, without white space
        pieces = [text[first:last] for first, last in ours.encode_with_offsets(text)[1]]
        places = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)['offset_mapping']
        assert pieces == [text[first:last].strip() for first, last in places]


@pytest.mark.parametrize('family', FAMILIES)
def test_every_word_and_answer_has_its_tokens(family, folders):
    """Of words that a tokenizer splits, joins or changes."""
    tokenizer = opened(folders[family]).tokenizer()
    odd = ['na\xefve', '(\u6771\u4eac)', 'e\u0301t\xe9', 'don\'t', '3.14', '\U0001f642', 'Rome', '\u2026',
           'A.B', '"']
    _, word_of = tagging.words_of_tokens(odd, tokenizer)
    assert set(word_of) - {-1} == set(range(len(odd)))
    context = f'x {" ".join(odd)}\n\ty'
    row = {'question': 'Which? ', 'context': context}
    kind = tasks.kind_of(tasks.Task(kind='QA', dataset='d', source='x', template='{question} {context}'))
    for word in odd:
        answer = word, context.index(word)
        (example,), lost = kind.examples([row | {'answers': [answer]}], (), tokenizer, 128)
        logits = np.stack([-example.targets, example.targets], 1).astype(float)
        assert kind.answer(row, [(example, logits)], ()) == word


@pytest.mark.parametrize('kind, family', [
    pytest.param(kind, family, marks=() if i == k else pytest.mark.slow)     # fast: each with another family
    for i, kind in enumerate(KINDS) for k, family in enumerate(FAMILIES)])
def test_scores_are_those_of_transformers_on_a_padded_batch(kind, family, folders, toy, tmp_path):
    """After a few steps of ours: the trained model in transformers, its states and the head by hand."""
    cfg, base, (data,) = finetune.prepare(settings(toy, folders[family], kind, tmp_path, steps=3))
    before = [p.clone() for p in base.transformer.parameters()]
    encoder, _ = finetune.fit(cfg, base, data)
    assert all(torch.equal(p, q) for p, q in zip(before, base.transformer.parameters()))
    model, tokenizer = judged(folders[family])
    model.load_state_dict(encoder.model.inner.state_dict())
    examples = data.examples['texts' if kind == 'IR' else 'test'][:24]
    batch = tokenizer.pad({'input_ids': [example.tokens.tolist() for example in examples]},
                          return_tensors='pt')
    mask = batch['attention_mask'].bool()
    with torch.no_grad():
        states = model(**batch).last_hidden_state
        mean = torch.stack([row[kept].mean(0) for row, kept in zip(states, mask)])
        if kind == 'SC':
            expected = encoder.head.classifier(F.gelu(encoder.head.dense(mean)))
        elif kind == 'IR':
            expected = F.normalize(mean, dim=1)
        else:
            expected = encoder.head.classifier(states[mask])
    outputs = finetune.outputs(cfg, base.world, encoder, examples, kind in ('TC', 'QA'))
    assert np.abs(np.concatenate(outputs, axis=None) - expected.flatten().numpy()).max() < 1e-5


@pytest.mark.parametrize('kind', KINDS)
def test_ours_and_its_export_as_a_peer_learn_alike(kind, toy, tmp_path, monkeypatch):
    """The same tokens, outputs, losses and predictions, by our transformer and transformers' EuroBERT."""
    folder = random_model(tmp_path / 'random', tie_word_embeddings=False)
    TOKENIZER.save(folder, append_eos=True)
    outputs, logs, predictions = [], [], []
    for opening in (None, lambda cfg: opened(folder)):
        if opening:
            monkeypatch.setattr(finetune, 'open_encoder', opening)
        cfg, base, (data,) = finetune.prepare(settings(toy, folder, kind, tmp_path, epochs=9, lr=1e-3))
        assert isinstance(base.transformer, peers.Transformer) == bool(opening)
        part = data.examples['texts' if kind == 'IR' else 'validation']
        found = finetune.outputs(cfg, base.world, new(cfg, base, data, 0), part, kind in ('TC', 'QA'))
        outputs.append(np.concatenate(found, axis=None))
        encoder, log = finetune.fit(cfg, base, data)
        logs.append([line['loss'] for line in log])
        rows = finetune.predict(cfg, base.world, encoder, data)
        predictions.append([row['docs'][0] if kind == 'IR' else row['pred']
                            for split in rows.values() for row in split])
    assert np.abs(outputs[0] - outputs[1]).max() < 1e-5 and outputs[0].std() > 1e-3
    assert len(logs[0]) == 30 and logs[0] == pytest.approx(logs[1], rel=1e-4) and logs[0][-1] < logs[0][0]
    equal = np.mean([ours == theirs for ours, theirs in zip(*predictions)])
    assert equal >= 0.995, equal


def test_weights_in_bf16_leave_the_rotation_alone(folders, toy, tmp_path):
    cfg, base, _ = finetune.prepare(settings(toy, folders['modernbert'], 'SC', tmp_path, weights='bf16'))
    encoder = finetune.new_encoder(cfg, base, lambda states, lengths: states)
    assert {p.dtype for p in encoder.parameters()} == {torch.bfloat16}
    buffers = [(buffer, base.transformer.get_buffer(name)) for name, buffer in encoder.model.named_buffers()
               if buffer.is_floating_point()]
    assert buffers and all(torch.equal(ours, before) for ours, before in buffers)
    assert finetune.encode(encoder, [np.arange(9)], base.world).isfinite().all()


SMALL = COMMON | dict(dim=32, embedding_size=32, n_layers=2, n_heads=4, hidden_dim=48, pad_token_id=0,
                      emb_dim=32, entity_vocab_size=10, entity_emb_size=32, head_dim=8)
OF_FAMILY = {   # as published models have it, where the library's own defaults differ
    'esm': {'token_dropout': True, 'mask_token_id': 3, 'position_embedding_type': 'rotary'},
    'longformer': {'attention_window': [64, 64]}, 'xmod': {'default_language': 'en_XX'},
    'modernbert': {'layer_types': ['full_attention', 'sliding_attention']},
    'modernbert-decoder': {'layer_types': ['full_attention', 'sliding_attention']}}
LENGTHS = [1, 2, 8, 9, 17, 30, 31, 40, 64, 65, 100]


@pytest.mark.slow
@pytest.mark.parametrize('family', peers.FAMILIES_OF_PEERS)
def test_states_of_every_family_heed_what_follows_and_not_what_pads(family, folders, tmp_path):
    """A saved folder: ours, of texts of many lengths at once, against transformers' class, one at a time."""
    config = transformers.AutoConfig.for_model(family)
    for name in SMALL.keys() & {*dir(config)}:
        setattr(config, name, SMALL[name])
    for name, value in OF_FAMILY.get(family, {}).items():
        setattr(config, name, value)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        transformers.AutoModel.from_config(config).save_pretrained(tmp_path)
        drawn = [torch.randint(5, 800, (length,)) for length in LENGTHS]
        for path in folders['bert'].glob('*token*'):
            shutil.copy(path, tmp_path)
        if family == 'modernbert-decoder':
            config.is_causal = False
        theirs = transformers.AutoModel.from_pretrained(tmp_path, config=config).eval()
        expected = torch.cat([theirs(input_ids=text[None])[0][0] for text in drawn])
        ours = opened(tmp_path).model()
        found = ours(torch.cat(drawn), LENGTHS)
        text = drawn[4]
        changed = ours(torch.cat([text[:-1], text[-1:] - 1]), [len(text)])
        alone = ours(text, [len(text)])
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=0)
    assert (alone[0] - changed[0]).abs().max() > 1e-4


def test_a_modernbert_decoder_without_its_mask_is_modernbert(folders, tmp_path):
    """Ettin's decoders: transformers' encoder with the same weights gives the same states, to the bit."""
    encoder, _ = judged(folders['modernbert'])
    weights = {}
    for name, tensor in encoder.state_dict().items():
        parts = dict(zip('qkv', tensor.chunk(3))) if 'attn.Wqkv' in name else {}
        for part, third in parts.items():
            weights[name.replace('Wqkv', f'{part}_proj')] = third
        if not parts:
            weights[name] = tensor
    config = transformers.ModernBertDecoderConfig(**COMMON | dict(
        local_attention=16, global_attn_every_n_layers=2, pad_token_id=encoder.config.pad_token_id))
    decoder = transformers.ModernBertDecoderForCausalLM(config)
    decoder.model.load_state_dict(weights)
    decoder.save_pretrained(tmp_path)
    for path in folders['modernbert'].glob('*token*'):
        shutil.copy(path, tmp_path)
    tokens = torch.arange(5, 105)
    with torch.no_grad():
        found = opened(tmp_path).model()(torch.cat([tokens, tokens[:60]]), [100, 60])
        expected = encoder(tokens[None])[0][0], encoder(tokens[None, :60])[0][0]
        causal = decoder.model.eval()(tokens[None])[0][0]
    torch.testing.assert_close(found, torch.cat(expected), atol=2e-6, rtol=0)
    assert (causal - expected[0]).abs().max() > 1e-3


def test_a_folder_that_names_code_opens_where_transformers_has_its_architecture(folders, tmp_path):
    """As Nomic's and GTE's on the hub. The code, which is not there, is not looked for."""
    shutil.copytree(folders['bert'], tmp_path / 'gte')
    config = transformers.GteConfig(**COMMON, pad_token_id=0)
    another(config)(tmp_path / 'gte')
    expected = transformers.AutoModel.from_pretrained(tmp_path / 'gte').eval()
    rewrite(auto_map={'AutoConfig': 'code.Config', 'AutoModel': 'code.Model'})(tmp_path / 'gte')
    tokens = torch.arange(5, 50)
    with torch.no_grad():
        found = opened(tmp_path / 'gte').model()(tokens, [45])
        torch.testing.assert_close(found, expected(tokens[None])[0][0], atol=2e-6, rtol=0)
    for change in (dict(hidden_size='gone', n_embd=32), dict(rope_parameters='gone', rotary_emb_base=1_000),
                   dict(logn_attention_scale=True)):
        shutil.copytree(tmp_path / 'gte', tmp_path / 'code', dirs_exist_ok=True)
        rewrite(**change)(tmp_path / 'code')
        with pytest.raises(ValueError, match='is for code in its repository, which is not run'):
            opened(tmp_path / 'code')


QUERY = 'encoder.layer.0.attention.self.query.weight'


def tokenizer_with(spec, **config):
    """Its two files with changes."""
    def damage(folder):
        rewrite('tokenizer.json', **spec)(folder)
        rewrite('tokenizer_config.json', **config)(folder)
    return damage


def another(config):
    return lambda folder: transformers.AutoModel.from_config(config).save_pretrained(folder)


SMALL_XLM = dict(vocab_size=ROWS, emb_dim=32, n_layers=2, n_heads=4)
FAST = {'tokenizer_class': 'PreTrainedTokenizerFast'}    # heeds tokenizer.json
CASED = {'type': 'BertNormalizer', 'clean_text': True, 'handle_chinese_chars': True, 'lowercase': False}
BAD = {
    'unknown': (rewrite(model_type='nobert'), [],
                r"bert: model_type 'nobert' is neither .*\(eurobert, llama, mistral, qwen2, qwen3, .*albert, "),
    'remote code': (rewrite(auto_map={'AutoModel': 'evil.Model'}), [], 'needs code from its repository'),
    'slow tokenizer': (lambda folder: (folder / 'tokenizer.json').unlink(), [], 'has no tokenizer.json'),
    # BERT's class lower-cases unless tokenizer_config.json says otherwise, whatever tokenizer.json says
    'other ids': (tokenizer_with({'normalizer': CASED}, do_lower_case='gone', strip_accents='gone'), [],
                  'BertTokenizer gives other ids than tokenizer.json, .*PreTrainedTokenizerFast'),
    'nan': (with_tensor(QUERY, lambda t: t * float('nan')), [], f'bert: damaged weight {QUERY}: not finite'),
    'a weight less': (with_tensor(QUERY, lambda _: None), [], f'missing weight {QUERY}'),
    'classifier': (with_tensor('classifier.bias', lambda _: torch.zeros(2)), [],
                   'unexpected weight classifier.bias: .*a classifier'),
    'no specials': (tokenizer_with({'post_processor': 'gone'}, cls_token='gone', sep_token='gone', **FAST),
                    [], r'appends no special token such as \[SEP\]'),
    'vocabulary': (lambda folder: TOKENIZER.save(folder), [],
                   r'its tokenizer has ids up to 4\d+, but embeddings for 900'),
    'decoder': (rewrite(is_decoder=True), [],
                'is_decoder is true, so this bert is a decoder; decoders that open are eurobert, llama, '),
    'causal': (lambda folder: (another(transformers.XLMConfig(**SMALL_XLM))(folder),
                               rewrite(causal=True)(folder)), [], 'causal is true, so this xlm is a decoder'),
    'no language': (another(transformers.XmodConfig(**COMMON, pad_token_id=0)), [],
                    'bert: Input language unknown'),
    'Fourier': (another(transformers.FNetConfig(**COMMON, pad_token_id=0)), [], "model_type 'fnet' is neither "),
    'layers': (lambda folder: None, ['--layers=1', '--variant=x'], 'layers works only with')}


@pytest.mark.parametrize('fault', BAD)
def test_bad_input_gets_one_line(fault, folders, toy, tmp_path):
    change, more, words = BAD[fault]
    shutil.copytree(folders['bert'], tmp_path / 'bert')
    change(tmp_path / 'bert')
    one_line_error(run_script('finetune.py', *toy['SC'], f'--model={tmp_path}/bert', *more), words)


def test_minus_one_is_no_pad(folders, tmp_path):
    """As some configs say it. Weights of a head of pretraining are left, and a pickle."""
    shutil.copytree(folders['bert'], tmp_path / 'minus')
    another(transformers.BertConfig(**COMMON, pad_token_id=-1))(tmp_path / 'minus')
    with_tensor('cls.predictions.bias', lambda _: torch.zeros(2))(tmp_path / 'minus')
    rewrite(transformers_weights='adapter_model.bin')(tmp_path / 'minus')
    assert opened(tmp_path / 'minus').context == 130


def test_without_transformers_only_ours_open(folders, toy, command, monkeypatch):  # noqa: F811
    monkeypatch.setitem(sys.modules, 'transformers', None)
    one_line_error(run_script('finetune.py', *toy['SC'], f'--model={folders["bert"]}'),
                   r'transformers: pip install "\.\[peers\]"')
    ran(*command('SC', '--steps=1'))

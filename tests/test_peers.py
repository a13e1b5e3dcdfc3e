"""Other people's encoders: transformers' own tokens, states and scores; our exports as peers; bad input."""
import math
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
from conftest import (
    assert_near,
    flip,
    one_line_error,
    open_whole,
    ran,
    refused,
    refused_line,
    run_script,
    texts,
)
from hub_folders import rewrite, with_tensor
from nanoencoder import fine_tuned, peers
from nanoencoder.files import read_json, write_json, write_sealed
from nanoencoder.tasks import retrieval, tagging
from nanoencoder.tokenizer import load_tokenizer
from peer_folders import COMMON, FAMILIES, another, opened, small_config
from tokenizer_files import TOKENIZER
from toys import KINDS, QUESTIONS, examples_of, random_model

each_family = pytest.mark.parametrize('family', FAMILIES)
TEXTS = ['', 'a', ' The  number of arrays ', 'the array of floats ' * 6, 'Rome, Paris',
         'e\u0301t\xe9 \u6771\u4eac \U0001f642 na\xefve\u00a0x\tand\nlines']


@pytest.fixture
def bert(folders, tmp_path):
    """A copy of BERT's folder, to be changed."""
    return shutil.copytree(folders['bert'], tmp_path / 'bert')


def judge(folder):
    return transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()


@each_family
def test_tokens_and_states_are_transformers(family, folders, tmp_path):
    """A flat row and a padded batch. No text is special, cut or padded, whatever tokenizer.json says."""
    shutil.copytree(folders[family], tmp_path, dirs_exist_ok=True)
    core = tokenizers.Tokenizer.from_file(str(tmp_path / 'tokenizer.json'))
    core.enable_truncation(5)
    core.enable_padding(length=5)
    core.save(str(tmp_path / 'tokenizer.json'))
    peer = opened(tmp_path)
    ours = peer.tokenizer()
    theirs = transformers.AutoTokenizer.from_pretrained(folders[family])
    assert ours.ids['mask'] not in ours.encode(f'a {ours.roles["mask"]} b')
    assert peer.context == (129 - theirs.pad_token_id if family == 'roberta' else 130)
    rows = [[*ours.prefix, *ours.encode(text), *ours.suffix] for text in TEXTS]
    assert rows == theirs(TEXTS)['input_ids']

    batch = theirs.pad({'input_ids': rows}, return_tensors='pt')
    real = batch['attention_mask'].bool()
    lengths = [len(row) for row in rows]
    with torch.no_grad():
        expected = judge(tmp_path)(**batch).last_hidden_state[real]
        states = peer.model()(batch['input_ids'][real], lengths)
        assert_near(states, expected)
        peer.model()(torch.ones(peer.context, dtype=torch.long), [peer.context])    # so long a text fits


@each_family
def test_a_corpus_for_an_encoder_has_its_tokens(family, folders):
    """Of WordPiece, Unigram and bytes; one after the other, and in bulk. A peer's offsets are those without
    white space."""
    ours = load_tokenizer(str(folders[family]))
    theirs = transformers.AutoTokenizer.from_pretrained(folders[family])
    roles = theirs.mask_token_id, theirs.pad_token_id, theirs.sep_token_id, theirs.cls_token_id
    assert [ours.ids[role] for role in ('mask', 'pad', 'eos', 'bos')] == [*roles]
    bulk = ours.bulk()
    of_peer = opened(folders[family]).tokenizer()
    for text in TEXTS + texts()[:40]:
        expected = theirs(text, add_special_tokens=False, return_offsets_mapping=True)
        assert ours.encode(text).tolist() == bulk(text).tolist() == expected['input_ids']
        _, offsets = of_peer.encode_with_offsets(text)
        pieces = [text[first:last] for first, last in offsets]
        assert pieces == [text[first:last].strip() for first, last in expected['offset_mapping']]


@each_family
def test_every_word_and_answer_has_its_tokens(family, folders):
    """Also words that a tokenizer splits, joins or changes."""
    tokenizer = opened(folders[family]).tokenizer()
    odd = ['na\xefve', '(\u6771\u4eac)', 'e\u0301t\xe9', 'don\'t', '3.14', '\U0001f642', 'Rome', '\u2026',
           'A.B', '"']
    _, word_of = tagging.words_of_tokens(odd, tokenizer)
    assert set(word_of) - {-1} == set(range(len(odd)))

    context = f'x {" ".join(odd)}\n\ty'
    for word in odd:
        answer = word, context.index(word)
        row = {'question': 'Which? ', 'context': context, 'answers': [answer]}
        (example,), _ = examples_of(QUESTIONS, [row], (), tokenizer, 128)
        logits = np.stack([-example.targets, example.targets], 1)
        assert QUESTIONS.answer(row, [(example, logits.astype(float))], ()) == word


@each_family
def test_a_peer_is_fine_tuned_and_its_outputs_are_those_of_transformers(family, folders, prepared):
    """After three steps of ours: the trained model in transformers, one text at a time; the head by hand."""
    cfg, base, data = prepared('SC', folders[family], steps=3)
    encoder, _ = finetune.fit(cfg, base, data)
    model = judge(folders[family])
    model.load_state_dict(encoder.model.inner.state_dict())
    examples = data.examples['test'][:24]
    outputs = finetune.outputs(cfg, base.world, encoder, examples, False)
    with torch.no_grad():
        for example, output in zip(examples, outputs, strict=True):
            tokens = torch.from_numpy(example.tokens)
            states = model(input_ids=tokens[None]).last_hidden_state[0]
            hidden = F.gelu(encoder.head.dense(states.mean(0)))
            expected = encoder.head.classifier(hidden)
            assert_near(torch.from_numpy(output).view(-1), expected)


@pytest.mark.parametrize('kind', KINDS)
def test_ours_and_its_export_as_a_peer_learn_alike(kind, prepared, tmp_path, monkeypatch):
    """The same losses and predictions, by our transformer and transformers' EuroBERT."""
    folder = random_model(tmp_path / 'random', tie_word_embeddings=False)
    TOKENIZER.save(folder)

    def learn():
        cfg, base, data = prepared(kind, folder, epochs=9, lr=1e-3)
        encoder, log = finetune.fit(cfg, base, data)
        losses = [line['loss'] for line in log]
        answers = []
        for rows in finetune.predict(cfg, base.world, encoder, data).values():
            for row in rows:
                answers.append(row['docs'][0] if kind == 'IR' else row['pred'])
        return losses, answers
    losses, answers = learn()
    monkeypatch.setattr(finetune, 'open_encoder', lambda cfg: opened(folder))
    losses_of_peer, answers_of_peer = learn()
    assert losses == pytest.approx(losses_of_peer, rel=1e-4)
    assert losses[-1] < losses[0]
    equal = [ours == theirs for ours, theirs in zip(answers, answers_of_peer, strict=True)]
    assert np.mean(equal) >= 0.995


@pytest.mark.parametrize('kind', ['SC', 'TC', 'IR'])
@pytest.mark.parametrize('family', [*FAMILIES, 'qwen3'])
def test_a_saved_model_opens_here_and_in_other_libraries(family, kind, folders, prepared, tmp_path):
    """To the bit here; in transformers and sentence-transformers but for rounding. Qwen3 is ours."""
    if family == 'qwen3':
        folder = random_model(tmp_path / 'random', qk_norm=True)
    else:
        folder = folders[family]
    cfg, base, data = prepared(kind, folder, steps=1, max_length=9)
    encoder, _ = finetune.fit(cfg, base, data)
    saved = tmp_path / 'saved'
    fine_tuned.write_fine_tuned(cfg, base, data, encoder, saved)
    again = fine_tuned.open_fine_tuned(saved)
    assert (again.kind.task.template, again.labels, again.max_length) == (cfg.template, data.labels, 9)
    examples = data.examples['texts' if kind == 'IR' else 'test'][:8]
    expected = finetune.outputs(cfg, base.world, encoder, examples, kind == 'TC')
    ours = finetune.outputs(cfg, again.world, again.encoder, examples, kind == 'TC')
    np.testing.assert_equal(ours, expected)
    assert max(len(example.tokens) for example in examples) == 9

    opens_in = read_json(saved / 'run.json')['opens_in']
    if kind != 'TC':
        from sentence_transformers import SentenceTransformer
        assert opens_in == 'sentence-transformers'
        if kind == 'IR':
            texts = retrieval.scored_texts(data.rows)
        else:
            texts = [row['text'] for row in data.rows['test']]
        theirs = SentenceTransformer(str(saved), device='cpu')
        assert_near(theirs.encode(texts[:8], prompt='', batch_size=4), np.array(expected))
    elif family == 'modernbert':
        assert opens_in == 'predict.py alone'
    else:
        assert opens_in == 'transformers'
        tagger = open_whole(transformers.AutoModelForTokenClassification, saved).eval()
        assert tagger.config.id2label == dict(enumerate(data.labels))
        for example, output in zip(examples, expected):
            with torch.no_grad():
                logits = tagger(torch.from_numpy(example.tokens)[None]).logits[0]
            assert_near(logits, torch.from_numpy(output))
    flip(saved / 'model.safetensors')
    refused('model.safetensors: missing or changed', fine_tuned.open_fine_tuned, saved)


def test_weights_in_bf16_leave_rope_in_fp32(folders, prepared):
    cfg, base, _ = prepared('SC', folders['modernbert'], weights='bf16')
    encoder = finetune.new_encoder(cfg, base, finetune.every_token)
    assert {p.dtype for p in encoder.parameters()} == {torch.bfloat16}
    frequencies = dict(encoder.model.named_buffers())
    assert frequencies
    assert_near(frequencies, dict(base.transformer.named_buffers()), 0)
    assert finetune.forward(encoder, [np.arange(9)], base.world).isfinite().all()


LENGTHS = [1, 2, 8, 9, 17, 30, 31, 40, 64, 65, 100]


@pytest.mark.slow
@pytest.mark.parametrize('family', peers.FAMILIES_OF_PEERS)
def test_states_of_every_family_depend_on_what_follows_and_not_on_padding(family, bert):
    """A saved folder: ours, of texts of many lengths at once, against transformers' class, one at a time."""
    config = small_config(family)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        another(config)(bert)
        drawn = [torch.randint(5, 800, (length,)) for length in LENGTHS]
        if family == 'modernbert-decoder':
            config.is_causal = False
        theirs = transformers.AutoModel.from_pretrained(bert, config=config).eval()
        expected = torch.cat([theirs(input_ids=text[None])[0][0] for text in drawn])
        ours = opened(bert).model()
        assert_near(ours(torch.cat(drawn), LENGTHS), expected, 2e-6)
        text = drawn[4]     # it lies within a window of Longformer's
        tagger = peers.token_classifier(ours.inner, torch.nn.Linear(32, 2))
        if tagger is not None:
            logits = tagger.eval()(input_ids=text[None]).logits[0]
            assert_near(logits, tagger.classifier(ours(text, [17])), 2e-6)
        first = ours(text, [17])[0]
        text[-1] -= 1
        assert (first - ours(text, [17])[0]).abs().max() > 1e-4


def test_a_folder_that_names_code_opens_where_transformers_has_its_architecture(bert):
    """As Nomic's and GTE's on the hub. The code, which is not there, is not looked for."""
    another(transformers.GteConfig(**COMMON))(bert)
    tokens = torch.arange(5, 50)
    theirs = judge(bert)
    rewrite(auto_map={'AutoConfig': 'code.Config', 'AutoModel': 'code.Model'})(bert)
    ours = opened(bert).model()
    with torch.no_grad():
        assert_near(ours(tokens, [45]), theirs(tokens[None])[0][0], 2e-6)


@pytest.mark.parametrize('change', [
    dict(hidden_size='gone', n_embd=32), dict(rope_parameters='gone', rotary_emb_base=1_000),
    dict(logn_attention_scale=True)])
def test_a_config_for_a_repositorys_own_code_is_refused(change, bert):
    another(transformers.GteConfig(**COMMON))(bert)
    rewrite(**change)(bert)
    refused('is for code in its repository, which is not run', peers.check_encoder,
            read_json(bert / 'config.json'))


@each_family
def test_masks_are_filled_as_by_transformers(family, folders, tmp_path):
    """By an encoder with an output head, as examples/continue_encoder.py writes it; without one it is
    refused."""
    refused_line('has no output head that fills masks', 'fill_mask.py', folders[family], 'the [MASK] <mask>')
    saved = shutil.copytree(folders[family], tmp_path / 'saved')
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = transformers.AutoConfig.from_pretrained(saved)
        transformers.AutoModelForMaskedLM.from_config(config).save_pretrained(saved)
    # no space before it: published masks take the space along, as ours do, but not this RoBERTa's
    text = f'the array of{opened(saved).tokenizer().roles["mask"]} and of floats'
    best = transformers.pipeline('fill-mask', str(saved))(text)
    expected = '   '.join(f'{answer["token_str"].strip()} {answer["score"]:.1%}' for answer in best)
    printed = ran('fill_mask.py', saved, text).stdout.splitlines()
    assert [word for word in printed[1].split() if '%' in word] == re.findall(r'\S+%', expected)


QUERY = 'encoder.layer.0.attention.self.query.weight'


def tokenizer_with(spec, **config):
    """Its two files with changes."""
    def damage(folder):
        rewrite('tokenizer.json', **spec)(folder)
        rewrite('tokenizer_config.json', **config)(folder)
    return damage


FAST = {'tokenizer_class': 'PreTrainedTokenizerFast'}    # which reads tokenizer.json
CASED = {'type': 'BertNormalizer', 'clean_text': True, 'handle_chinese_chars': True, 'lowercase': False}
BAD = [
    (rewrite(model_type='nobert'),
     r"bert: model_type 'nobert' is neither .*\(eurobert, llama, mistral, qwen2, qwen3, .*albert, "),
    (rewrite(auto_map={'AutoModel': 'evil.Model'}), 'needs code from its repository'),
    (lambda folder: (folder / 'tokenizer.json').unlink(), 'has no tokenizer.json'),
    # BERT's class lower-cases unless tokenizer_config.json says otherwise, whatever tokenizer.json says
    (tokenizer_with({'normalizer': CASED}, do_lower_case='gone', strip_accents='gone'),
     'BertTokenizer gives other ids than tokenizer.json, .*PreTrainedTokenizerFast'),
    (with_tensor(QUERY, lambda tensor: tensor * torch.nan), f'bert: weight {QUERY} is not finite'),
    (with_tensor(QUERY, lambda _: None), f'weight {QUERY} is missing'),
    (rewrite(vocab_size=901), 'word_embeddings.weight has another shape than config'),
    (lambda folder: (folder / 'adapter_config.json').write_text('{}'), 'has an adapter .* merge it first'),
    (with_tensor('classifier.bias', lambda _: torch.zeros(2)),
     'weight classifier.bias is unexpected: .*a classifier'),
    (tokenizer_with({'post_processor': 'gone'}, cls_token='gone', sep_token='gone', **FAST),
     r'appends no special token such as \[SEP\]'),
    (lambda folder: TOKENIZER.save(folder),
     r'its tokenizer has 3,\d+ ids more than the 900 embeddings; .*resize_token_embeddings'),
    (rewrite(is_decoder=True), 'this bert is a decoder; decoders that open are eurobert, llama, '),
    # transformers would put a causal mask on
    (rewrite(is_causal=True), 'is_causal or causal is true, so this bert is a decoder'),
    (rewrite(model_type='xlm', causal=True), 'causal is true, so this xlm is a decoder'),
    (another(transformers.XmodConfig(**COMMON)), 'bert: Input language unknown')]


@pytest.mark.parametrize('change, words', BAD, ids=[words[:30] for _, words in BAD])
def test_bad_input_gets_one_line(change, words, bert, command):
    change(bert)
    refused_line(words, *command('SC', f'--model={bert}'))


def test_settings_of_our_own_architecture_are_refused(bert, command):
    refused_line('layers works only with', *command('SC', f'--model={bert}', '--layers=1', '--variant=x'))


def test_minus_one_is_no_pad(bert):
    """As some configs say it. Weights of a head of pretraining are not read, and no pickle."""
    another(transformers.BertConfig(**COMMON | {'pad_token_id': -1}))(bert)
    with_tensor('cls.predictions.bias', lambda _: torch.zeros(2))(bert)
    rewrite(transformers_weights='adapter_model.bin')(bert)
    assert opened(bert).context == 130


# ---------------------------------------------------------------------------
# On the hub: revisions, what is downloaded when, and what transformers must convert first


@pytest.mark.parametrize('revision, name', [
    ('', 'mini'), ('@v1', 'mini@v1'), ('@refs/pr/7', 'mini@refs-pr-7')])
def test_a_revision_is_asked_for_and_its_commit_written_down(revision, name, hub, command, tmp_path):
    _, asked = hub
    ran(*command('SC', f'--model=acme/mini{revision}', '--steps=1'))
    assert [revision for revision, _ in asked] == [revision.removeprefix('@') or None, 'aaaa']
    about = read_json(tmp_path / 'p' / name / 'SC/toy/lr3e-03_sd0/run.json')
    assert about['commit'] == 'aaaa'
    assert load_tokenizer(f'acme/mini{revision}').ids['mask'] == 4


@pytest.mark.parametrize('damage, word, words', [
    (lambda _: None, '--max_length=900', 'the model reads 3 to 130'),
    (lambda _: None, '--data=absent', 'absent'),
    (lambda folder: write_json(folder / 'modules.json', [module('Dense')]), '--kind=IR', 'models.Dense'),
    (rewrite('tokenizer.json', post_processor='gone'), '--seed=1', 'ids|special'),
    (rewrite(vocab_size=80), '--seed=1', 'ids more than the 80 embeddings')])
def test_no_weights_are_downloaded_for_what_is_refused(damage, word, words, hub, command):
    repositories, asked = hub
    damage(repositories / 'acme/mini')
    refused_line(words, *command('SC', '--model=acme/mini', word))
    assert not any('model.safetensors' in patterns for _, patterns in asked)


@pytest.mark.parametrize('lacks', ['tokenizer.json', 'model.safetensors'])
def test_both_refusals_name_the_lines_that_convert_a_model(lacks, hub, bert, command, tmp_path, monkeypatch):
    """Microsoft's DeBERTa have neither file. The lines make a folder that opens."""
    state = judge(bert).state_dict()
    torch.save(state, bert / 'pytorch_model.bin')
    vocabulary = transformers.AutoTokenizer.from_pretrained(bert).get_vocab()
    (bert / 'vocab.txt').write_text('\n'.join(sorted(vocabulary, key=vocabulary.get)))
    for folder in (bert, hub[0] / 'acme/mini'):
        (folder / lacks).unlink()
    lines = []
    for name in (bert, 'acme/mini'):
        result = run_script(*command('SC', f'--model={name}'))
        pattern = rf"lines of transformers convert it: (AutoModel.*{name}.*) and (AutoTokenizer.*{name}.*);"
        one_line_error(result, f'has no {lacks}.*{pattern}')
        lines.append(re.search(pattern, result.stderr).groups())
    if lacks == 'tokenizer.json':
        refused(pattern, load_tokenizer, 'acme/mini')
    monkeypatch.chdir(tmp_path)
    for line in lines[0]:
        exec(line, vars(transformers))
    assert_near(opened(tmp_path / 'new').model().inner.state_dict(), state, 0)


# ---------------------------------------------------------------------------
# Sentence encoders: vectors, lengths and prompts are those of sentence-transformers


def sentence_encoder(folder, bert, mode, form):
    """Save BERT as a sentence encoder that reads 12 tokens, as sentence-transformers 6 does or as 2 to 5."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    modules = [Transformer(str(bert), max_seq_length=12), Pooling(32, pooling_mode=mode), Normalize()]
    prompts = {'query': 'query: ', 'document': ''}
    encoder = SentenceTransformer(
        modules=modules, prompts=prompts, default_prompt_name='query', similarity_fn_name='dot', device='cpu')
    encoder.save(str(folder), create_model_card=False)
    if form == 'old':
        switches = {f'pooling_mode_{name}': name.startswith(mode) for name in ('cls_token', 'mean_tokens')}
        write_json(folder / '1_Pooling/config.json', {'word_embedding_dimension': 32} | switches)
        write_json(folder / 'sentence_bert_config.json', {'max_seq_length': 12, 'do_lower_case': False})
        rewrite('tokenizer_config.json', model_max_length=130)(folder)
    return SentenceTransformer(str(folder), device='cpu')


@pytest.mark.parametrize('form', ['old', 'new'])
@pytest.mark.parametrize('mode', ['cls', 'mean'])
def test_a_sentence_encoder_is_read_as_it_says(mode, form, folders, prepared, command, tmp_path):
    """Also texts that are longer than it reads, unless --max_length has it read more."""
    theirs = sentence_encoder(tmp_path / 'mini', folders['bert'], mode, form)
    for asked, length in ((0, 12), (7, 7), (40, 40)):
        cfg, base, data = prepared('IR', tmp_path / 'mini', max_length=asked)
        assert (cfg.max_length, base.pooling, base.about['pooling']) == (length, mode, mode)
        encoder = finetune.new_encoder(cfg, base, finetune.new_head('vector', 32, 0, base.pooling))
        ours = finetune.outputs(cfg, base.world, encoder, data.examples['texts'], per_token=False)
        theirs.max_seq_length = length
        texts = retrieval.scored_texts(data.rows)
        assert_near(np.array(ours), theirs.encode(texts, prompt=''))
    assert max(len(example.tokens) for example in data.examples['texts']) > 12

    words = command('IR', f'--model={tmp_path}/mini', '--probe')
    prompts = "query 'Query: {text}', .*\n.*/mini: prompts: query 'query: ', 'query' is the default"
    result = ran(*words)
    assert re.search(prompts, result.stdout)
    assert "mini: it ranks by 'dot', this program by cosines" in result.stderr
    looked = ran(*command('IR', f'--model={tmp_path}/mini', '--look')).stdout
    assert re.search(prompts, looked)
    assert re.search(r'lengths in tokens of .*/mini, at most \d+; [\d.]+% of the tokens are unknown', looked)
    path = tmp_path / 'p/mini-probe/IR/toy/lr0e+00_sd0/run.json'
    about = read_json(path)
    assert about.pop('pooling') == mode
    del about['digest']     # an older run, which was always read by the mean
    write_sealed(path, about)
    if mode == 'cls':
        refused_line('run.json: was made with pooling = mean, this run has cls', *words)
    else:
        assert 'already done' in ran(*words).stdout


def test_a_text_without_the_tokens_that_stand_around_it_has_another_vector(checkpoint, command, tmp_path):
    """A decoder or EuroBERT whose tokenizer begins with bos or ends without eos, which texts here do not."""
    folder = shutil.copytree(checkpoint, tmp_path / 'ours')
    TOKENIZER.save(folder)
    write_json(folder / 'modules.json', [FIRST, POOL])
    (folder / '1_Pooling').mkdir()
    write_json(folder / '1_Pooling/config.json', {'pooling_mode': 'mean'})
    words = command('IR', f'--model={folder}', '--probe')
    spec = read_json(folder / 'tokenizer.json')
    bos = TOKENIZER.roles['bos']
    spec['post_processor'] = {
        'type': 'TemplateProcessing', 'single': [{'SpecialToken': {'id': bos, 'type_id': 0}},
                                                 {'Sequence': {'id': 'A', 'type_id': 0}}],
        'pair': [], 'special_tokens': {bos: {'id': bos, 'ids': [TOKENIZER.ids['bos']], 'tokens': [bos]}}}
    write_json(folder / 'tokenizer.json', spec)
    refused_line('puts other special tokens around a text', *words)
    TOKENIZER.save(folder)
    ran(*words)


def module(name, folder='', library='sentence_transformers.models'):
    return {'type': f'{library}.{name}', 'path': folder}


CLS = {'pooling_mode_cls_token': True}
FIRST = module('Transformer')
POOL = module('Pooling', '1_Pooling')
OTHERS = [
    ([FIRST, POOL, module('Dense', '2_Dense')], CLS, 'models.Dense'),
    ([FIRST, POOL], {'pooling_mode_lasttoken': True}, 'by lasttoken'),
    ([FIRST, POOL], CLS | {'pooling_mode_max_tokens': True}, 'cls and max'),
    ([FIRST, POOL], {'pooling_mode': ['mean', 'max']}, 'mean and max'),
    ([FIRST, POOL], {'pooling_mode': 'weightedmean'}, 'by weightedmean'),
    ([FIRST, POOL], {'pooling_mode': 5}, 'Pooling by 5'),
    ([FIRST, POOL], CLS | {'include_prompt': False}, 'include_prompt'),
    ([module('Transformer', '0_Transformer'), POOL], CLS, "the folder '0_Transformer'"),
    ([module('Transformer', '', 'custom_st'), POOL], CLS, 'custom_st.Transformer'),
    ([FIRST], CLS, 'names no Pooling'),
    ([FIRST, module('Pooling', '../1_Pooling')], CLS, 'is not in this folder'),
    ([{'type': 'x'}], CLS, 'no list of modules')]


@pytest.mark.parametrize('modules, pooling, words', OTHERS, ids=[words for *_, words in OTHERS])
def test_vectors_that_are_made_otherwise_are_refused(modules, pooling, words, bert, command):
    """Before the task is read."""
    write_json(bert / 'modules.json', modules)
    (bert / '1_Pooling').mkdir()
    write_json(bert / '1_Pooling/config.json', pooling)
    for kind, *more in (('IR', '--steps=1'), ('IR', '--probe'), ('SC', '--probe')):
        refused_line(words, *command(kind, f'--model={bert}', '--data=absent', *more))


@pytest.mark.parametrize('name, entry, words', [
    ('config_sentence_transformers.json', {'truncate_dim': 16}, 'truncate_dim = 16 keeps only the first'),
    ('tokenizer_config.json', {'truncation_side': 'left'}, "truncation_side is 'left': .* reads the end"),
    ('sentence_bert_config.json', {'max_seq_length': math.inf}, 'max_seq_length: cannot convert')])
def test_a_part_of_a_vector_and_the_end_of_a_text_are_refused(name, entry, words, bert, command):
    write_json(bert / 'modules.json', [FIRST, POOL])
    (bert / '1_Pooling').mkdir()
    write_json(bert / '1_Pooling/config.json', CLS)
    path = bert / name
    write_json(path, (read_json(path) if path.exists() else {}) | entry)
    refused_line(words, *command('IR', f'--model={bert}', '--data=absent', '--probe'))


def test_labels_do_not_need_an_encoders_own_vector(bert, command):
    """A classifier of words reads no vector, and a classifier of texts has a head of its own."""
    write_json(bert / 'modules.json', [module('Transformer'), module('Dense', '1_Dense')])
    for kind, *more in (('SC', '--steps=1'), ('TC', '--probe'), ('QA', '--steps=1')):
        ran(*command(kind, f'--model={bert}', *more))


def test_without_transformers_only_ours_open(folders, command, monkeypatch):
    monkeypatch.setitem(sys.modules, 'transformers', None)
    refused_line(r'transformers: pip install "\.\[peers\]"', *command('SC', f'--model={folders["bert"]}'))
    ran(*command('SC', '--steps=1'))

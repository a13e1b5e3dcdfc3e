"""Other people's encoders: transformers' own tokens, states and scores; our exports as peers; bad input."""
import json
import shutil
import sys

import numpy as np
import pytest
import tokenizers
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file

import finetune
from conftest import ROOT, one_line_error, run_process, run_script, texts
from nanoencoder import huggingface, peers, runs, tasks
from nanoencoder.metrics import ratio, standard_scores
from nanoencoder.tasks import questions, tagging
from test_finetune import TOKENIZER, checkpoint, merge, new, random_model, settings, toy  # noqa: F401

ROWS = 900     # embeddings, a few more than tokens
COMMON = dict(vocab_size=ROWS, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
              num_attention_heads=4, max_position_embeddings=130)
FAMILIES = {
    'bert': transformers.BertConfig(**COMMON), 'roberta': transformers.RobertaConfig(**COMMON),
    'deberta-v2': transformers.DebertaV2Config(relative_attention=True, pos_att_type=['p2c', 'c2p'], **COMMON),
    'modernbert': transformers.ModernBertConfig(local_attention=16, global_attn_every_n_layers=2, **COMMON)}
TRAINED = {'bert': transformers.BertTokenizer, 'roberta': transformers.RobertaTokenizer,
           'deberta-v2': transformers.DebertaV2Tokenizer}
TEXTS = ['', 'a', ' The  number of arrays ', 'e\u0301t\xe9 \u6771\u4eac \U0001f642 na\xefve\u00a0x\tand\nlines',
         'the array of floats ' * 20, 'Rome, Paris']


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


@pytest.fixture(scope='session')
def folders(tmp_path_factory):
    """{family: a folder of random weights}, all made by transformers."""
    made = tmp_path_factory.mktemp('peers')
    for family, config in FAMILIES.items():
        trained = TRAINED[family]().train_new_from_iterator(texts()[:60], 800) if family in TRAINED else byte_level()
        config.pad_token_id = trained.pad_token_id
        with torch.random.fork_rng():
            torch.manual_seed(0)
            transformers.AutoModel.from_config(config).save_pretrained(made / family)
        trained.save_pretrained(made / family)
    return {family: made / family for family in FAMILIES}


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


def opened(folder):
    return peers.open_peer(str(folder), folder)


def judged(folder):
    """transformers' own model and tokenizer."""
    return (transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval(),
            transformers.AutoTokenizer.from_pretrained(folder))


# -------------------------------------------------------------------------------------- tokens, states, scores

def test_tokens_and_states_are_transformers(family, folders):
    """Ids with the special tokens around them; states of a ragged flat row against a padded batch."""
    peer, (model, tokenizer) = opened(folders[family]), judged(folders[family])
    ours, (before, behind) = peer.tokenizer(), peer.tokenizer().around
    assert peer.context == (129 - tokenizer.pad_token_id if family == 'roberta' else 130)
    assert len(before) == len(behind) == 1
    arrays = [[*before, *ours.encode(text), *behind] for text in TEXTS]
    assert arrays == tokenizer(TEXTS)['input_ids']
    batch = tokenizer.pad({'input_ids': arrays}, return_tensors='pt')
    with torch.no_grad():
        expected = model(**batch).last_hidden_state[batch['attention_mask'].bool()]
        flat, lengths = torch.tensor(sum(arrays, [])), [*map(len, arrays)]
        torch.testing.assert_close(peer.model().train()(flat, lengths), expected, atol=1e-5, rtol=0)
        peer.model()(torch.ones(peer.context, dtype=torch.long), [peer.context])


def test_offsets_are_places_in_the_text(family, folders):
    """Each token's characters, white space left off, against the word that transformers says it is of."""
    tokenizer, theirs = opened(folders[family]).tokenizer(), judged(folders[family])[1]
    for text in TEXTS + texts()[:40]:
        ids, offsets = tokenizer.encode_with_offsets(text)
        assert ids.shape == (len(offsets),) and offsets.shape == (len(ids), 2)
        pieces = [text[first:last] for first, last in offsets.tolist()]
        assert all(piece == piece.strip() for piece in pieces)
        covered = np.zeros(len(text), bool)
        for first, last in offsets.tolist():
            covered[first:last] = True
        lost = [character for character, seen in zip(text, covered) if not seen and not character.isspace()]
        assert set(lost) <= {'\u0301'}, (family, lost)  # BERT strips accents
        places = theirs(text, add_special_tokens=False, return_offsets_mapping=True)['offset_mapping']
        assert pieces == [text[first:last].strip() for first, last in places]


def test_nothing_in_a_text_is_special_and_nothing_is_cut_or_padded(family, folders, tmp_path):
    plain = opened(folders[family]).tokenizer()
    mask = plain.backend.id_to_token(plain.ids['mask'])
    assert plain.ids['mask'] not in plain.encode(f'a {mask} b')
    plain.encode('\ud800 \udc00')
    shutil.copytree(folders[family], tmp_path / 'padded')
    spec = tokenizers.Tokenizer.from_file(str(tmp_path / 'padded/tokenizer.json'))
    spec.enable_truncation(5)
    spec.enable_padding(length=5)
    spec.save(str(tmp_path / 'padded/tokenizer.json'))
    padded = opened(tmp_path / 'padded').tokenizer()
    assert padded.around == plain.around and padded.fingerprint() == plain.fingerprint()
    assert all((padded.encode(text) == plain.encode(text)).all() for text in TEXTS)


def test_every_entity_and_answer_has_its_tokens(family, folders, toy):
    """Of the texts of the toy tasks, and of words that a tokenizer splits, joins or changes."""
    tokenizer = opened(folders[family]).tokenizer()
    odd = ['na\xefve', '(\u6771\u4eac)', 'e\u0301t\xe9', 'don\'t', '3.14', '\U0001f642', 'Rome', '\u2026',
           'A.B', '"']
    _, word_of = tagging.words_of_tokens(odd, tokenizer)
    assert set(word_of) - {-1} == set(range(len(odd)))
    context = f'x {" ".join(odd)}\n\ty'
    row = {'question': 'Which? ', 'context': context, 'candidates': []}
    kind = tasks.kind_of(tasks.Task(kind='QA', dataset='d', source='x'))
    for word in odd:
        answer = word, context.index(word)
        (example,), lost = kind.examples([row | {'answers': [answer]}], (), tokenizer, 128)
        logits = np.stack([-example.targets, example.targets], 1).astype(float)
        read = questions.answer_of(row, [(example, logits)], 'tag', never_empty=True)
        same = 'e\u0301t\xe9'[:1] + 't\xe9' if family == 'bert' else word
        assert read in (word, same), (word, read)


@pytest.mark.parametrize('kind', tasks.KINDS)
def test_scores_are_those_of_transformers_on_a_padded_batch(kind, family, folders, toy, tmp_path):
    """After a few steps of ours: the trained model in transformers, its states and the head by hand."""
    cfg = settings(toy, folders[family], kind, tmp_path, steps=3)
    cfg, base, (data,) = finetune.prepare(cfg)
    before = [p.clone() for p in base.transformer.parameters()]
    encoder, _ = finetune.fit(cfg, base, data)
    assert all(torch.equal(p, q) for p, q in zip(before, base.transformer.parameters()))
    model, tokenizer = judged(folders[family])
    model.load_state_dict(encoder.model.theirs.state_dict())
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
            expected = torch.cat([encoder.head.classifier(row[kept]) for row, kept in zip(states, mask)])
    outputs = finetune.outputs(cfg, base.world, encoder, examples, tasks.kind_of(cfg).per_token)
    ours = np.concatenate(outputs) if tasks.kind_of(cfg).per_token else np.stack(outputs)
    assert np.abs(ours - expected.numpy()).max() < 1e-5


@pytest.mark.parametrize('kind', tasks.KINDS)
def test_a_word_that_decides_is_learnt(kind, family, folders, toy, tmp_path):
    result = run_script('finetune.py', *merge(
        toy[kind], f'--model={folders[family]}', f'--predictions={tmp_path}/p', '--steps=0', '--lr=1e-2',
        '--batch_size=4', '--epochs=2'))
    assert result.returncode == 0, result.stderr
    score = float(result.stdout.split(' validation ')[1].split(';')[0].split()[-1])
    assert score > {'SC': 80, 'TC': 80, 'QA': 60, 'IR': 60}[kind], result.stdout

"""examples/continue_encoder.py: other people's encoders, in our loop, beside a plain one of transformers."""
import errno
import shutil
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers

import data
from conftest import (
    ROOT,
    Script,
    assert_near,
    jsonl,
    log_lines,
    ran,
    refused_line,
    run_script,
    texts,
    torchrun,
)
from data import Corpus, read_step
from examples import continue_encoder, whole_words
from hub_folders import rewrite
from nanoencoder import files, prepare
from nanoencoder.settings import parse
from nanoencoder.tokenizer import load_tokenizer
from peer_folders import byte_level, opened, small_config, word_pieces

SCRIPT = 'examples.continue_encoder'


@pytest.fixture(scope='module')
def encoders(tmp_path_factory):
    """A function from a family to a folder of random weights with an output head."""
    made = tmp_path_factory.mktemp('encoders')

    def encoder(family):
        folder = made / family
        if not folder.exists():
            config = small_config(family)
            with torch.random.fork_rng():
                torch.manual_seed(0)
                transformers.AutoModelForMaskedLM.from_config(config).save_pretrained(folder)
            word_pieces().save_pretrained(folder)
        return folder
    return encoder


@pytest.fixture(scope='module')
def corpus(encoders, tmp_path_factory):
    folder = tmp_path_factory.mktemp('words')
    jsonl(folder / 'texts.jsonl', [{'text': text} for text in texts()[:80]])
    ran('data.py', f'--path={folder}/texts.jsonl', f'--tokenizer={encoders("bert")}', '--val_permille=200',
        f'--out={folder}/out')
    return folder / 'out'


@pytest.fixture
def words(encoders, corpus, tmp_path):
    """A function from a family to the command line of a small run."""
    def words(family, *more, name='run', steps=5, **changes):
        given = dict(
            name=name, weights_from=encoders(family), corpus=corpus, out=tmp_path / 'out',
            phases=f'(("mlm", {steps}),)', context=64, rows_per_step=4, micro_rows=2, lr=1e-3, warmup_steps=2,
            decay_steps=2, log_every=1, val_rows=4, save_every=2, device='cpu') | changes
        return [f'--{key}={value}' for key, value in given.items()] + [*more]
    return words


def adamw(model, lr):
    """torch's, with our settings: embeddings, gains and biases have no weight decay."""
    tables = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    spared = [p for p in model.parameters() if p.ndim == 1 or id(p) in tables]
    decaying = [p for p in model.parameters() if p.ndim == 2 and id(p) not in tables]
    groups = [{'params': decaying, 'weight_decay': 0.1}, {'params': spared, 'weight_decay': 0.0}]
    return torch.optim.AdamW(groups, lr, betas=(0.9, 0.95), eps=1e-5)


def plain_losses(folder, corpus, cfg):
    """Losses of the same steps, a segment after [CLS] at a time, in a loop that anyone would write with
    transformers."""
    first = torch.tensor([corpus.meta['bos_token_id']])
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32).eval()
    optimizer = adamw(model, cfg.lr)
    losses = []
    for step in range(cfg.total_steps):
        batches, count, _ = read_step(step, corpus, cfg)
        total = 0
        for batch in batches:
            segments = torch.from_numpy(batch.tokens).split(batch.lengths)
            targets = torch.from_numpy(batch.targets).split(batch.lengths)
            for tokens, wanted in zip(segments, targets, strict=True):
                logits = model(input_ids=torch.cat([first, tokens])[None]).logits[0, 1:]
                total = total + F.cross_entropy(logits, wanted, reduction='sum')
        loss = total / count
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group['lr'] = cfg.lr_at(step)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize('family', continue_encoder.FAMILIES)
def test_losses_are_those_of_a_plain_loop(family, words, encoders, corpus, tmp_path):
    """And what is written is an encoder of its own kind, which computes the same when it is opened again."""
    ran(SCRIPT, *words(family))
    cfg, _ = parse(continue_encoder.Settings, words(family))
    lines = log_lines(tmp_path / 'out/run')
    expected = plain_losses(encoders(family), Corpus(corpus), cfg)
    assert [line['loss'] for line in lines] == pytest.approx(expected, abs=1e-5)
    assert lines[-1]['val_mlm_loss'] < lines[0]['loss']

    folder = tmp_path / 'out/run/5'
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(folder)
    assert type(theirs) is type(transformers.AutoModelForMaskedLM.from_pretrained(encoders(family)))
    again = tmp_path / 'again'
    theirs.save_pretrained(again)
    assert (again / 'model.safetensors').read_bytes() == (folder / 'model.safetensors').read_bytes()
    tokens = torch.arange(9, 29)
    with torch.no_grad():
        states = opened(folder).model()(tokens, [20])
        torch.testing.assert_close(states, theirs.eval().base_model(tokens[None])[0][0], atol=1e-6, rtol=0)


def test_a_killed_run_goes_on_to_the_same_bits(words, encoders, tmp_path):
    """Whatever has become of the encoder that it began with, which was of half precision."""
    began = shutil.copytree(encoders('bert'), tmp_path / 'began')
    transformers.AutoModelForMaskedLM.from_pretrained(began).half().save_pretrained(began)
    # with as many threads as the others
    whole = Script(SCRIPT, *words('bert', name='whole', steps=30, weights_from=began))
    assert whole.ended().returncode == 0
    of_killed = words('bert', name='killed', steps=30, weights_from=began)
    killed = Script(SCRIPT, *of_killed)
    while killed.is_alive() and not files.saved_steps(tmp_path / 'out/killed'):
        time.sleep(0.005)
    killed.kill()
    killed.ended()
    assert max(files.saved_steps(tmp_path / 'out/killed')) < 30
    shutil.rmtree(began)
    assert Script(SCRIPT, *of_killed).ended().returncode == 0
    for name in ('model.safetensors', 'optimizer.safetensors'):
        one, other = (tmp_path / f'out/{run}/30' / name for run in ('whole', 'killed'))
        assert one.read_bytes() == other.read_bytes()
    assert log_lines(tmp_path / 'out/whole') == log_lines(tmp_path / 'out/killed')


@pytest.mark.slow
def test_two_processes_learn_as_one_does(words, tmp_path):
    ran(SCRIPT, *words('bert', name='one'))
    result = torchrun(2, ROOT / 'examples/continue_encoder.py', *words('bert', name='two'))
    assert result.returncode == 0, result.stderr
    one, two = ([line['loss'] for line in log_lines(tmp_path / f'out/{name}')] for name in ('one', 'two'))
    assert one == pytest.approx(two, abs=1e-5)


CAUSAL = dict(phases='(("clm", 2), ("mlm", 2))', val_rows=0)


@pytest.fixture
def sentence_encoder(encoders, tmp_path):
    """A folder that sentence-transformers wrote, with what its repository holds beside."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
    modules = [Transformer(str(encoders('bert')), max_seq_length=12), Pooling(32, pooling_mode='cls'),
               Dense(32, 8), Normalize()]
    folder = tmp_path / 'sentences'
    SentenceTransformer(modules=modules, prompts={'query': 'query: '}, device='cpu').save(str(folder))
    shutil.copy(encoders('bert') / 'model.safetensors', folder)     # with an output head
    (folder / '2_Dense/more/deep').mkdir(parents=True)
    for path in ('2_Dense/more/deep/notes.txt', 'LICENSE', 'data_config.json', '2024_backup/old.bin',
                 'my_sentences.json', 'tokenizer_old/vocab.txt'):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(path)
    return folder


def test_what_came_with_the_encoder_is_written_as_it_was_read(sentence_encoder, words, tmp_path):
    """Modules in folders of folders, the card and the licence; nothing that modules.json does not name."""
    from sentence_transformers import SentenceTransformer
    theirs = SentenceTransformer(str(sentence_encoder), device='cpu')
    card = (sentence_encoder / 'README.md').read_bytes()
    ran(SCRIPT, *words('bert', steps=2, weights_from=sentence_encoder, lr=0))
    saved = tmp_path / 'out/run/2'
    for name in ('tokenizer.json', 'tokenizer_config.json', 'modules.json', '1_Pooling/config.json',
                 '2_Dense/model.safetensors', '2_Dense/more/deep/notes.txt', 'sentence_bert_config.json',
                 'config_sentence_transformers.json', 'README.md', 'LICENSE', 'data_config.json'):
        assert (saved / name).read_bytes() == (sentence_encoder / name).read_bytes(), name
    assert not {'2024_backup', 'my_sentences.json', 'tokenizer_old'} & {path.name for path in saved.iterdir()}
    ours = SentenceTransformer(str(saved), device='cpu')
    assert [*map(type, ours)] == [*map(type, theirs)]
    assert (ours.max_seq_length, ours.prompts) == (12, theirs.prompts)
    texts = ['the array of floats ' * 9, 'a']
    assert_near(ours.encode(texts), theirs.encode(texts))       # at a learning rate of 0

    (saved / 'README.md').write_bytes(card + b'and mine')       # a card is its owner's to edit
    shutil.rmtree(sentence_encoder)
    ran(SCRIPT, *words('bert', steps=4, decay_steps=0, warmup_steps=0, weights_from=saved, name='again'))
    assert (tmp_path / 'out/again/4/README.md').read_bytes() == card + b'and mine'


def test_modules_come_from_the_hub_with_their_folders(sentence_encoder, hub, words, tmp_path):
    repositories, asked = hub
    shutil.copytree(sentence_encoder, repositories / 'acme/sentences')
    result = ran(SCRIPT, *words('bert', steps=2, weights_from='acme/sentences@v1'))
    assert 'weights from acme/sentences@aaaa; ' in result.stdout
    assert (tmp_path / 'out/run/2/2_Dense/more/deep/notes.txt').exists()
    assert not (tmp_path / 'cache/aaaa/2024_backup').exists()
    assert [revision for revision, _ in asked if revision != 'v1'] == ['aaaa', 'aaaa']
    assert 'model.safetensors' in asked[-1][1]      # after all else


def test_what_cannot_be_copied_fails_before_the_first_step(sentence_encoder, words, tmp_path, monkeypatch):
    """With save_every 0 a run would find out when it is done. Half of the files are no folder of a run."""
    copyfile = shutil.copyfile

    def full(source, target):
        if source.name == 'notes.txt':
            raise OSError(errno.ENOSPC, 'No space left on device', str(target))
        copyfile(source, target)
    monkeypatch.setattr(continue_encoder.shutil, 'copyfile', full)
    command = SCRIPT, *words('bert', weights_from=sentence_encoder, save_every=0)
    assert 'notes.txt' in run_script(*command).stderr
    assert not [*(tmp_path / 'out/run').glob('*')]
    (sentence_encoder / '2_Dense').rename(sentence_encoder / 'elsewhere')
    (sentence_encoder / 'modules.json').write_text('[{"type": "a.Dense", "path": "../2_Dense"}]')
    refused_line("modules.json: '../2_Dense' is not in this folder", *command)


def test_positions_that_no_text_reaches_keep_what_they_have_learnt(words, encoders, tmp_path):
    """And the record says the sizes that the encoder has, while its operations are counted with two matrices
    in an MLP."""
    ran(SCRIPT, *words('bert', lr=0.1, weight_decay=0.9, val_rows=0, cut_rows=False))
    saved = tmp_path / 'out/run/5'
    before, after = (
        transformers.BertModel.from_pretrained(folder).embeddings.position_embeddings.weight
        for folder in (encoders('bert'), saved))
    assert torch.equal(before[65:], after[65:])
    assert not torch.equal(before[:65], after[:65])
    assert files.read_json(tmp_path / 'out/run/config.json')['intermediate_size'] == 48
    flops = files.read_json(saved / 'state.json')['pretraining']['flops']
    layers = 2 * (4 * 32 * 32 + 2 * 32 * 48)        # their weights: q, k, v, o and the MLP
    attended = 4 * 2 * 32 * 64
    head = 2 * 32 * 900 * 0.4
    assert flops == pytest.approx(5 * 4 * 64 * 3 * (2 * layers + attended + head))


def test_cls_and_sep_stand_around_a_text_whatever_else_there_is(encoders, tmp_path):
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoders('bert'))
    tokenizer.add_special_tokens({'bos_token': '[BOS]', 'eos_token': '[EOS]'})
    tokenizer.save_pretrained(tmp_path)
    ids = load_tokenizer(str(tmp_path)).ids
    assert [ids['bos'], ids['eos']] == tokenizer('')['input_ids']


def test_a_causal_phase_computes_what_a_decoder_does(words, encoders, corpus, tmp_path):
    """The same weights as a decoder of transformers, which makes its own causal mask. MLM follows."""
    ran(SCRIPT, *words('bert', **CAUSAL))
    lines = log_lines(tmp_path / 'out/run')
    assert [line['phase'] for line in lines] == ['clm', 'clm', 'mlm', 'mlm']
    decoder = shutil.copytree(encoders('bert'), tmp_path / 'decoder')
    rewrite(is_decoder=True)(decoder)
    cfg, _ = parse(continue_encoder.Settings, words('bert', **CAUSAL))
    losses = plain_losses(decoder, Corpus(corpus), cfg)
    assert [line['loss'] for line in lines[:2]] == pytest.approx(losses[:2], abs=1e-5)


def test_what_cannot_be_continued_is_one_line(words, encoders, corpus, tmp_path):
    def refused(reason, **changes):
        refused_line(reason, SCRIPT, *words('bert', **changes))

    refused('weights_from must name an encoder', weights_from='')
    refused('parallel does nothing here', parallel='fsdp')
    refused('initializer_range does nothing here', initializer_range=0.1)
    decoder = shutil.copytree(encoders('bert'), tmp_path / 'decoder')
    for family in ('llama', 'xlm'):     # XLM calls its sizes otherwise
        rewrite(model_type=family)(decoder)
        refused(f"model_type '{family}' is none of albert", weights_from=decoder)
    headless = tmp_path / 'headless'
    transformers.AutoModel.from_pretrained(encoders('bert')).save_pretrained(headless)
    word_pieces().save_pretrained(headless)
    refused(r'has no output head \(cls.predictions.bias is missing\); .* --new_head', weights_from=headless)
    ran(SCRIPT, *words('bert', '--new_head', weights_from=headless))
    refused_line('has an output head: leave', SCRIPT, *words('bert', '--new_head', name='again'))
    refused('context 130: this encoder has 130 positions, one of them', context=130, name='long')
    refused('has num_hidden_layers = 2, this run 1', num_hidden_layers=1, name='less')
    rewrite(num_hidden_layers=1)(shutil.copytree(encoders('bert'), tmp_path / 'cut'))
    refused(r'bert.encoder.layer.1\..* is unexpected: of another', weights_from=tmp_path / 'cut', name='cut')
    refused_line('its layers lose their windows', SCRIPT, *words('modernbert', name='a', **CAUSAL))
    refused_line('ignores a causal mask', SCRIPT, *words('mpnet', name='b', **CAUSAL))
    rewrite(is_decoder=True)(decoder)
    rewrite(model_type='bert')(decoder)
    refused('is_causal or causal is true', weights_from=decoder, name='decoder')
    other = shutil.copytree(encoders('bert'), tmp_path / 'other')
    byte_level().save_pretrained(other)
    refused('has another tokenizer than the corpus', weights_from=other, name='other')
    added = shutil.copytree(encoders('bert'), tmp_path / 'added')
    tokenizer = transformers.AutoTokenizer.from_pretrained(added)
    tokenizer.add_tokens([f'new{k}' for k in range(900)])
    tokenizer.save_pretrained(added)
    ran('data.py', f'--path={corpus.parent}/texts.jsonl', f'--tokenizer={added}', '--val_permille=200',
        f'--out={tmp_path}/more')
    refused(r'its tokenizer has \d+ ids more than the 900 embeddings; .*resize_token_embeddings',
            weights_from=added, corpus=tmp_path / 'more', name='added')


@pytest.mark.parametrize('vocabulary, begins', [
    ([['▁ma', 0.0], ['č', 0.0], ['ि', 0.0], ['—', 0.0], ['▁', 0.0], ['.', 0.0]], [1, 0, 0, 1, 1, 1]),
    ({'ma': 0, '##s': 1, '.': 2}, [1, 0, 1]),
    ({'Ġma': 0, 'Äį': 1, 'à¤¿': 2, 'Ċ': 3, '.': 4, 'ma': 5}, [1, 0, 0, 1, 1, 0])])
def test_where_words_begin(vocabulary, begins, tmp_path):
    """Also in Czech and Hindi, whose letters and marks are no ASCII."""
    files.write_json(tmp_path / 'tokenizer.json', {'model': {'vocab': vocabulary}})
    corpus = data.Corpus.__new__(data.Corpus)
    corpus.folder = tmp_path
    corpus.meta = {'vocab_size': len(begins)}
    assert whole_words.begins_word(corpus).tolist() == begins


def test_whole_words_train_our_models_and_other_encoders(words, tmp_path, monkeypatch):
    monkeypatch.setitem(data.OBJECTIVES, 'whole_words', None)   # so that the table is afterwards what it was
    phases = '("whole_words", 2)'
    ran('examples.whole_words', 'encoder', *words('bert', steps=2, phases=phases))
    line = log_lines(tmp_path / 'out/run')[-1]
    assert (line['step'], line['phase']) == (2, 'whole_words')
    assert files.read_json(tmp_path / 'out/run/2/config.json')['model_type'] == 'bert'


@pytest.mark.parametrize('family', ['bert', 'deberta-v2', 'modernbert'])    # WordPiece, Unigram, bytes
def test_whole_words_are_masked_whole_and_as_many_tokens(folders, family, tmp_path):
    """Words are what white space and punctuation divide, as transformers' tokenizer says where tokens
    stand."""
    text = 'The arrays of unusual shapes, broadcasting,\nand others.\nNext ' * 200
    jsonl(tmp_path / 'texts/a.jsonl', [{'text': text}, {'text': 'held out'}])
    cfg = prepare.Settings(path=f'{tmp_path}/texts', tokenizer=str(folders[family]), val_permille=1,
                           out=f'{tmp_path}/out')
    prepare.write_corpus(cfg)
    corpus = data.Corpus(tmp_path / 'out')
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders[family])
    encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    tokens = np.array(encoding['input_ids'])
    random = np.random.default_rng(0)
    cfg = SimpleNamespace(mask_ratio=0.3)
    inputs, targets = whole_words.whole_words(tokens, [len(tokens)], random, corpus, cfg)
    masked = targets != data.NO_TARGET
    assert 0.27 < masked.mean() < 0.33
    assert (inputs[masked] == corpus.meta['mask_token_id']).all()
    places = encoding['offset_mapping']
    same_word = [end == start and text[end - 1].isalnum() and text[start].isalnum()
                 for (_, end), (start, _) in zip(places, places[1:])]
    assert sum(same_word) > 100
    assert np.array_equal(masked[1:][same_word], masked[:-1][same_word])

"""Fine-tuning: heads against transformers, losses by hand, packing that changes nothing, killed grids."""
import dataclasses
import errno
import gzip
import json
import os
import random
import re
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch
import torch.nn.functional as F
import transformers

import bench
import finetune
from conftest import Script, jsonl, one_line_error, ran, run_script, torchrun
from model import Model, Sizes
from nanoencoder import files, huggingface, layers, peers, settings as configs, tasks
from nanoencoder.judging import metrics
from nanoencoder.tasks import questions, retrieval, runs
from nanoencoder.tasks.kind import Example, framed
from nanoencoder.tokenizer import Tokenizer
from test_tasks import TOKENIZER, judgements

KINDS = 'SC', 'TC', 'QA', 'IR'     # that are trained


def random_model(folder, tie_word_embeddings=True, **sizes):
    """A checkpoint of a small model with random weights."""
    model = Model(Sizes(vocab_size=4_096, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
                        tie_word_embeddings=tie_word_embeddings,
                        **dict(hidden_size=32, num_hidden_layers=2) | sizes))
    bench.initialise(model, seed=1)
    folder.mkdir()
    huggingface.save(folder, model.sizes, 128, TOKENIZER.ids, dict(model.named_parameters()))
    TOKENIZER.save(folder)
    return folder


@pytest.fixture(scope='session')
def checkpoint(tmp_path_factory):
    return random_model(tmp_path_factory.mktemp('model') / 'random', tie_word_embeddings=False)


@pytest.fixture(scope='session')
def toy(tmp_path_factory):
    """{kind: command line} of four tasks that a word decides."""
    draw, folder = random.Random(0), tmp_path_factory.mktemp('toy')
    filler = 'array axis return value input shape index type number list of the a is in'.split()

    def sentence(*words):
        text = draw.choices(filler, k=draw.randint(3, 20))
        for word in words:
            text.insert(draw.randint(0, len(text)), word)
        return text
    for split, count in (('train', 160), ('validation', 40), ('test', 40)):
        rows = {'SC': [], 'TC': [], 'QA': []}
        for k in range(count):
            colour, city = draw.choice(('red', 'blue')), draw.choice(('Rome', 'Paris', 'Oslo'))
            rows['SC'].append({'id': k, 'text': ' '.join(sentence(colour)), 'label': colour})
            words = sentence(city)
            tags = ['B-LOC' if word == city else 'O' for word in words]
            rows['TC'].append({'id': k, 'tokens': words, 'tags': tags})
            context = ' '.join(sentence() if k % 4 == 0 else words)
            starts = [] if k % 4 == 0 else [context.index(city)]
            rows['QA'].append({'id': str(k), 'question': 'Which city?', 'context': context,
                               'answers': {'text': [city][:len(starts)], 'answer_start': starts}})
        for kind in rows:
            jsonl(folder / kind / f'{split}.jsonl', rows[kind])
    texts = [f'{a} {b} {c}' for a in filler[:6] for b in filler[6:10] for c in ('Rome', 'Oslo')]
    triples, about = [' '.join(draw.choices(filler, k=3)) for _ in range(600)], 'about {} and more'.format
    jsonl(folder / 'IR/train.jsonl', [{'query': text, 'positive': about(text)} for text in triples])
    jsonl(folder / 'IR/corpus.jsonl', [{'_id': f'd{k}', 'text': about(text)} for k, text in enumerate(texts)])
    jsonl(folder / 'IR/queries.jsonl', [{'_id': f'q{k}', 'text': text} for k, text in enumerate(texts)])
    for split, first in (('validation', 0), ('test', 24)):
        rows = judgements(*((f'q{k}', f'd{k}', 1) for k in range(first, first + 24)))
        jsonl(folder / f'IR/qrels/{split}.jsonl', rows)
    return {kind: [f'--kind={kind}', '--dataset=toy', f'--data={folder / kind}', '--steps=30', '--lr=3e-3',
                   '--device=cpu', *['--template={question} {context}'] * (kind == 'QA')] for kind in KINDS}


def copy_of(toy, kind, folder):
    return shutil.copytree(toy[kind][2].removeprefix('--data='), folder)


def new(cfg, base, data, seed):
    head = finetune.HEADS[tasks.kind_of(cfg).head](base.transformer.sizes.hidden_size, data.labels)
    return finetune.new_encoder(dataclasses.replace(cfg, seed=seed), base, head)


def merge(words, *more):
    """A command line in which what comes later wins."""
    return list({word.split('=')[0]: word for word in (*words, *more)}.values())


@pytest.fixture
def command(toy, checkpoint, tmp_path):
    """A function: the command line that fine-tunes the small model on the toy task of a kind, or does what
    `more` says, without the settings that are not of that."""
    def words(kind, *more):
        without = '--lr=' if '--grid' in more else ('--lr=', '--steps=') if '--probe' in more else ()
        task = [word for word in toy[kind] if not word.startswith(without)]
        return merge(['finetune.py', *task], f'--model={checkpoint}', f'--predictions={tmp_path}/p', *more)
    return words


def settings(toy, checkpoint, kind, tmp_path, **changes):
    words = merge(toy[kind], f'--model={checkpoint}', f'--predictions={tmp_path}/predictions')
    return dataclasses.replace(configs.parse(finetune.Settings, words)[0], **changes)


def read(folder):
    """{file: content} of all predictions below a folder."""
    return {str(path.relative_to(folder)): (gzip.open(path) if path.suffix == '.gz' else open(path)).read()
            for path in sorted(Path(folder).rglob('[!.]*')) if path.is_file() and path.name != 'log.jsonl'}


def trained(toy, checkpoint, kind, tmp_path, lr=1e-3, **changes):
    """(cfg, base, data, encoder) after some steps; also saved."""
    cfg, base, (data,) = finetune.prepare(settings(toy, checkpoint, kind, tmp_path, lr=lr, seed=0, **changes))
    encoder, _ = finetune.fit(cfg, base, data)
    runs.save_encoder(cfg, base, data, encoder, tmp_path / 'saved')
    return cfg, base, data, encoder


@pytest.mark.parametrize('kind', ['SC', 'TC'])
def test_a_step_equals_transformers_and_torch(kind, toy, checkpoint, tmp_path):
    """Our packed batch against transformers' padded one: logits, loss and the update of one AdamW step."""
    cfg, base, (data,) = finetune.prepare(settings(toy, checkpoint, kind, tmp_path, steps=1, warmup=0.0))
    encoder = new(cfg, base, data, seed=3)
    runs.save_encoder(cfg, base, data, encoder, tmp_path / 'saved')
    auto = {'SC': transformers.AutoModelForSequenceClassification,
            'TC': transformers.AutoModelForTokenClassification}[kind]
    theirs, about = auto.from_pretrained(tmp_path / 'saved', output_loading_info=True)
    assert not about['missing_keys'] and not about['unexpected_keys']
    assert theirs.config.id2label == dict(enumerate(data.labels))
    theirs.model.embed_tokens.padding_idx = None  # pad is eos, which is to learn
    order = np.random.default_rng([3, 1]).permutation(len(data.examples['train']))[:32]
    batch = [data.examples['train'][i] for i in order]
    tokens, targets = ([torch.tensor(example[k]) for example in batch] for k in (0, 1))
    mask = bench.pad([torch.ones_like(text) for text in tokens])
    out = theirs(input_ids=bench.pad(tokens), attention_mask=mask, labels=bench.pad(targets, -100))
    ours = finetune.encode(encoder, [example.tokens for example in batch], base.world)
    wanted = out.logits if kind == 'SC' else out.logits[mask.bool()]
    assert torch.allclose(ours, wanted, atol=1e-5)
    if kind == 'SC':    # one text at a time, as tokenizer.json reads it
        pipeline = transformers.pipeline('text-classification', str(tmp_path / 'saved'), device='cpu')
        answers = pipeline([data.rows['train'][i]['text'] for i in order])
        best, label = ours.softmax(1).max(1)
        assert [answer['label'] for answer in answers] == [data.labels[k] for k in label]
        assert [answer['score'] for answer in answers] == pytest.approx(best.tolist(), abs=1e-5)
    after, log = finetune.fit(dataclasses.replace(cfg, seed=3), base, data)
    assert log[0]['loss'] == pytest.approx(out.loss.item(), abs=1e-5)
    out.loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
    assert log[0]['grad_norm'] == pytest.approx(norm.item(), rel=1e-4)
    groups = [{'params': [p for p in theirs.parameters() if (p.ndim < 2) == is_vector], 'weight_decay': decay}
              for is_vector, decay in ((False, 0.1), (True, 0.0))]
    torch.optim.AdamW(groups, lr=cfg.lr, betas=(0.9, 0.95), eps=1e-5).step()
    parameters = dict(theirs.named_parameters())
    for name, p in after.named_parameters():
        assert torch.allclose(p, parameters[name.removeprefix('head.')], atol=2e-5), name


def test_layers_are_compared_and_probed(toy, checkpoint, tmp_path, monkeypatch):
    """Linear CKA is HSIC of the tokens' Gram matrices, normalised; a rotation and a scale leave it 1."""
    x, y = torch.randn(50, 8, dtype=torch.float64).numpy(), torch.randn(50, 6).numpy()
    centred = np.eye(50) - 1 / 50
    k, l = (centred @ (z @ z.T) @ centred for z in (x, y.astype(float)))
    by_hand = (k * l).sum() / np.sqrt((k * k).sum() * (l * l).sum())
    assert layers.linear_cka(x, y) == pytest.approx(by_hand, rel=1e-9) and by_hand < 0.9
    assert layers.linear_cka(x, 3 * x @ np.linalg.qr(x[:8])[0] + 1) == pytest.approx(1, abs=1e-9)
    cfg, base, (data,) = finetune.prepare(settings(toy, checkpoint, 'TC', tmp_path))
    examples = data.examples['test']
    read = layers.read_layers(base.transformer, examples)
    assert len(read) == 1 + len(base.transformer.layers)
    arrays = [example.tokens for example in examples]
    with torch.no_grad():
        whole = base.transformer(torch.from_numpy(np.concatenate(arrays)), [*map(len, arrays)], causal=False)
        last = torch.from_numpy(np.concatenate(read[-1]))
        torch.testing.assert_close(base.transformer.norm(last), whole)
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'task.py').write_text('')
    words = [word for word in toy['TC'] if not re.match('--(steps|lr|device)', word)]
    result = run_script('nanoencoder.layers', 'task.py', *words, checkpoint, checkpoint)
    assert result.returncode == 0 and (tmp_path / 'figures/layers.png').exists(), result.stderr
    assert re.search(r', layer 2: CKA with the first 1.000 accuracy of a probe 0.\d+\n', result.stdout)
    refused = run_script('nanoencoder.layers', 'task.py', *toy['SC'][:3], checkpoint)
    one_line_error(refused, 'a task of kind TC')
    random_model(tmp_path / 'deeper', num_hidden_layers=3)
    refused = run_script('nanoencoder.layers', 'task.py', *words, checkpoint, tmp_path / 'deeper')
    one_line_error(refused, 'deeper: has other layers, or another tokenizer, than')


def test_contrastive_loss_by_hand(checkpoint, toy, tmp_path):
    cfg, base, (data,) = finetune.prepare(settings(toy, checkpoint, 'IR', tmp_path))
    encoder = new(cfg, base, data, seed=0)
    pairs = [pair._replace(document=k, positives={k}) for k, pair in enumerate(data.examples['train'][:6])]
    with torch.no_grad():
        queries, documents = (F.normalize(torch.stack([
            encoder.model(torch.tensor(pair[side]), [len(pair[side])], causal=False).mean(0)
            for pair in pairs]), dim=1) for side in (0, 1))
    logits = 20 * queries.double() @ documents.double().T

    def loss(batch):
        arrays = [pair.tokens for pair in batch] + [pair.positive for pair in batch]
        vectors = finetune.encode(encoder, arrays, base.world)
        return finetune.pair_loss(cfg, vectors, batch).item() / len(batch)
    assert loss(pairs) == pytest.approx(-logits.log_softmax(1).diagonal().mean().item(), abs=1e-5)
    logits[0, 3] = logits[3, 0] = -torch.inf
    pairs[0], pairs[3] = pairs[0]._replace(positives={0, 3}), pairs[3]._replace(positives={3, 0})
    assert loss(pairs) == pytest.approx(-logits.log_softmax(1).diagonal().mean().item(), abs=1e-5)
    assert loss([pairs[i] for i in (3, 1, 5, 0, 2, 4)]) == pytest.approx(loss(pairs), abs=1e-5)


def test_known_positives_are_no_negatives():
    pairs = [{'query': query, 'positive': positive} for query, positive in ('ax', 'ay', 'bx', 'cz')]
    rows = {'train': pairs, 'corpus': {}, 'validation': [], 'test': []}
    kind = tasks.kind_of(tasks.Task(kind='IR', dataset='d', source='x'))
    a, b, c, d = kind.encode(rows, (), TOKENIZER, 20)['train'][0]
    for batch, left in (([a, b, c, d], 2 * 2 * 3 * 4), ([d, a, d], 2 * 3 * 2)):  # of equal cosines
        loss = finetune.pair_loss(kind.task, torch.zeros(2 * len(batch), 3), batch)
        assert loss.item() == pytest.approx(np.log(left), rel=1e-6)


def test_a_control_is_another_encoder_of_the_same_weights(toy, checkpoint, tmp_path):
    """With the causal mask no token sees what comes; without layers its vector is its normed embedding."""
    a, b = torch.arange(10), torch.cat([torch.arange(9), torch.tensor([77])])
    for change, same in (({}, 0), ({'causal': True}, 9), ({'layers': 1}, 0), ({'layers': 0}, 9)):
        cfg, base, _ = finetune.prepare(settings(toy, checkpoint, 'TC', tmp_path, **change))
        encoder = finetune.new_encoder(cfg, base, lambda states, lengths: states)
        with torch.no_grad():
            first, second = encoder(a, [10]), encoder(b, [10])
        assert torch.isclose(first, second).all(1).tolist() == [True] * same + [False] * (10 - same), change
        whole = huggingface.open_checkpoint(str(checkpoint)).model(head=False)
        x = whole.embed_tokens(a)
        if change == {'layers': 0}:
            assert torch.equal(first, whole.norm(x)) and len(encoder.model.layers) == 0
        if change == {'layers': 1}:
            del whole.layers[1]
            assert torch.equal(first, whole(a, [10], False)) and len(encoder.model.layers) == 1


def test_a_variant_has_a_name_and_a_row_of_its_own(toy, checkpoint, tmp_path, monkeypatch):
    past = {'row': 'mlm-900', 'step': 900, 'phases': [['mlm', 900]]}
    opened = huggingface.open_checkpoint
    monkeypatch.setattr(finetune, 'open_encoder', lambda cfg: dataclasses.replace(
        opened(cfg.model), state={'pretraining': past, 'fixed': {'seed': 0, 'lr': 1.0}}))
    for change, name, row in (({}, 'random', 'mlm-900'), ({'name': 'x'}, 'x', 'mlm-900'),
                              ({'variant': 'causal'}, 'random+causal', 'mlm-900+causal'),
                              ({'variant': 'v', 'name': 'x'}, 'x+v', 'mlm-900+v'),
                              ({'variant': 'v', 'untrained': True}, 'untrained+v', None)):
        cfg, base, _ = finetune.prepare(settings(toy, checkpoint, 'SC', tmp_path, **change))
        assert cfg.name == name and (base.about['pretraining'] or {}).get('row') == row
        assert change.get('untrained') or base.about['pretraining']['fixed']['lr'] == 1.0
        assert runs.run_folder(cfg, 'toy').parts[-4] == name


def test_schedule_is_the_papers():
    cfg = finetune.Settings(kind='SC', dataset='d', source='x', model='m')
    assert cfg.num_steps(10 ** 6) == 1_000
    rates = [finetune.lr_at(step, cfg, 1_000) for step in (0, 99, 100, 550, 999)]
    assert rates == pytest.approx([1e-6, 1e-4, 1e-4, 5e-5, 1e-4 / 900])   # 100 of warm-up
    assert finetune.lr_at(0, dataclasses.replace(cfg, warmup=0.0), 10) == 1e-4
    assert finetune.lr_at(9, dataclasses.replace(cfg, warmup=1.0), 10) == 1e-4
    assert dataclasses.replace(cfg, steps=0).num_steps(14_041) == 439   # CoNLL-2003
    assert cfg.num_steps(100) == 4   # an epoch
    assert dataclasses.replace(cfg, epochs=3).num_steps(100) == 10


@pytest.mark.parametrize('kind', KINDS)
def test_scores_do_not_depend_on_the_batch_size(kind, toy, checkpoint, tmp_path):
    results = []
    for budget in (40, 700, 16_384):
        changes = dict(tokens_at_once=budget if kind != 'IR' else 16_384, steps=0, batch_size=8, lr=1e-2)
        cfg, base, (data,) = finetune.prepare(settings(toy, checkpoint, kind, tmp_path, **changes))
        if kind != 'IR' or not results:     # a batch of retrieval is computed at once, whatever the budget
            encoder, log = finetune.fit(dataclasses.replace(cfg, lr=1e-2, seed=0), base, data)
        rows = finetune.predict(dataclasses.replace(cfg, tokens_at_once=budget), base.world, encoder, data)
        rows = {split: [{name: value for name, value in row.items() if name != 'scores'} for row in one]
                for split, one in rows.items()}
        results.append(([line['loss'] for line in log], rows))
    for losses, rows in results[1:]:
        assert losses == pytest.approx(results[0][0], abs=2e-4) and rows == results[0][1]
    if kind != 'IR':  # the same prediction everywhere would show nothing
        assert len({str(row['pred']) for row in rows['test']}) > 1


def test_a_words_label_is_its_tokens_majority():
    row = {'words': ['a', 'b', 'c', 'cut']}
    example = Example(None, None, 0, np.array([0, 0, 0, 1, 1, -1, 2, -1]))
    kind = tasks.Tagging(tasks.Task(kind='TC', dataset='d', source='x'))
    logits = np.eye(3)[[1, 2, 2, 2, 1, 0, 1, 2]]
    assert kind.answer(row, [(example, logits)], ('O', 'B-X', 'I-X')) == ['I-X', 'B-X', 'B-X', 'O']


def test_the_best_run_by_hand():
    characters = np.array([[-1, -1], [0, 2], [3, 5], [6, 8], [9, 11], [12, 14], [-1, -1]])
    example = Example(None, characters=characters)
    odds = np.array([9, 1.0, -1, 0.6, 0.7, -2, 9])
    assert questions.best_run(example, np.stack([0 * odds, odds], 1)) == (pytest.approx(1.3), 6, 11)
    assert questions.best_run(example, np.stack([0 * odds, -abs(odds)], 1)) == (0.0, 0, 0)


@pytest.mark.parametrize('kind, option, least', [
    ('SC', '', 80), ('TC', '', 80), ('TC', '--scheme=plain', 97),       # all "O" is 90 % of the labels
    ('QA', '', 60), ('IR', '', 60)])
def test_a_word_that_decides_is_learnt(kind, option, least, command, tmp_path):
    """Every head learns, from the command line."""
    said = ran(*command(kind, '--steps=0', '--lr=1e-2', '--batch_size=4', *option.split())).stdout
    assert float(said.split(' validation ')[1].split(';')[0].split()[-1]) > least, said
    folder = tmp_path / f'p/random/{kind}/toy/lr1e-02_sd0'
    about, scores = (json.loads((folder / f'{name}.json').read_text()) for name in ('run', 'scores'))
    assert about['method'] == 'fine-tuned' and about['pretraining'] is None
    assert about['sha256'] == {name: runs.sha256(folder / name) for name in
                               ('scores.json', 'test.jsonl.gz', 'validation.jsonl.gz')}
    for split in tasks.SCORED:
        rows = [json.loads(line) for line in gzip.open(folder / f'{split}.jsonl.gz')]
        assert len(rows) == (24 if kind == 'IR' else 40)
        scheme = 'plain' if 'plain' in option else 'IOB2'
        assert (scores['name'], scores[split]) == metrics.both_scores(kind, rows, scheme)


def test_a_number_is_learnt_and_saved(toy, command, tmp_path, monkeypatch):
    """A regression: red is 3.5, blue is 1; transformers' pipeline says the same number of the saved model."""
    monkeypatch.chdir(tmp_path)     # fine-tuned/
    for path in copy_of(toy, 'SC', tmp_path / 'data').iterdir():
        path.write_text(path.read_text().replace('"red"', '3.5').replace('"blue"', '1'))    # labels
    ran(*command('SC', f'--data={tmp_path}/data', '--steps=0', '--epochs=4', '--lr=1e-2', '--batch_size=4',
                 '--metric=Pearson', '--save_model'))
    rows = [json.loads(line) for line in gzip.open('p/random/SC/toy/lr1e-02_sd0/test.jsonl.gz')]
    assert np.mean([abs(row['pred'] - row['gold']) < 0.6 for row in rows]) > 0.9
    judge = scipy.stats.pearsonr([row['gold'] for row in rows], [row['pred'] for row in rows])
    scores = json.loads(Path('p/random/SC/toy/lr1e-02_sd0/scores.json').read_text())
    assert scores['test']['standard']['score'] == pytest.approx(judge.statistic)
    ask = transformers.pipeline('text-classification', 'fine-tuned/random/SC/toy/lr1e-02_sd0')
    texts = [json.loads(line)['text'] for line in open('data/test.jsonl')]
    assert [answer['score'] for answer in ask(texts[:5])] == pytest.approx(
        [row['pred'] for row in rows[:5]], abs=1e-4)


def test_a_ranking_holds_ten_documents_and_counts_what_ties_with_the_tenth():
    draw, ids = random.Random(0), [f'd{k:02}' for k in reversed(range(40))]
    for _ in range(200):
        grades = {document: draw.choice((-1, 0, 1, 2)) for document in draw.sample(ids, 12)}
        scores = np.array([draw.randrange(draw.choice((3, 90))) / 90 for _ in ids])
        row = retrieval.ranking({'id': 'q', 'grades': grades}, ids, scores)
        best = sorted(range(40), key=lambda i: -scores[i])  # stable: the greater id first
        ties = [ids[i] for i in best if scores[i] == scores[best[9]]]
        assert row['docs'] == [ids[i] for i in best[:10]]
        assert row['scores'] == scores[best[:10]].round(6).tolist()
        gains = sorted((grades[name] for name in ties if grades.get(name, 0) >= 1), reverse=True)
        wanted = {'size': len(ties), 'grades': gains} if scores[best[10]] == scores[best[9]] else None
        assert row.get('tied') == wanted


def test_retrieval_is_trained_once_and_scored_on_every_set(toy, command, tmp_path):
    other = copy_of(toy, 'IR', tmp_path / 'other')
    (other / 'train.jsonl').unlink()
    for path in other.glob('qrels/*'):  # another choice of queries, and no training pairs
        path.write_text(''.join(path.read_text().splitlines(True)[::2]))
    (tmp_path / 'other.py').write_text(f'kind = "IR"\ndataset = "other"\ndata = {str(other)!r}\n')
    ran(*command('IR', '--steps=2', f"--score_on=('{tmp_path}/other.py',)"))
    both = [read(tmp_path / f'p/random/IR/{name}')['lr3e-03_sd0/test.jsonl.gz'].splitlines()
            for name in ('toy', 'other')]
    assert both[1] == both[0][::2]


def test_a_grid_killed_at_random_equals_the_sequential_one(command, tmp_path):
    killed = command('TC', '--grid', '--lrs=(1e-3, 3e-3)', '--seeds=(0, 1, 2)', '--steps=12')
    whole = merge(killed, f'--predictions={tmp_path}/whole')
    ran(*whole)
    draw, kills = random.Random(5), 0
    for _ in range(2):
        pair = [Script(*killed) for _ in range(2)]
        wanted, deadline = draw.randint(1, 3) + kills, time.monotonic() + 60
        while any(process.is_alive() for process in pair) and time.monotonic() < deadline and \
                len(list(Path(f'{tmp_path}/p').glob('*/*/*/*/run.json'))) < wanted:
            time.sleep(0.01)
        time.sleep(draw.random() * 0.1)
        for process in pair:
            kills += process.is_alive()
            process.kill()
            process.ended()
    assert kills
    pair = [Script(*killed) for _ in range(2)]
    ends = [process.ended() for process in pair]
    assert [end.returncode for end in ends] == [0, 0], [end.stderr for end in ends]
    told = [line.split(' (')[0] for end in ends for line in end.stdout.splitlines() if 'validation' in line]
    assert len(told) == len(set(told))  # every run is computed once
    before, after = read(tmp_path / 'whole'), read(tmp_path / 'p')
    assert len([name for name in before if name.endswith('run.json')]) == 6
    assert after == before
    assert ran(*whole).stdout == 'random toy: 6 of 6 runs are done\n'


def test_a_grid_with_a_failure_ends_with_1_after_all_its_runs(command, tmp_path):
    """Two processes; then a run whose only update ruins the weights."""
    result = torchrun(2, *command('SC', '--grid', '--lrs=(1e30, 1e-3)', '--seeds=(0, 1)', '--epochs=9'))
    assert result.returncode == 1 and 'lr1e+30_sd0 (1 of 4): failed: step' in result.stdout
    assert len(list(tmp_path.rglob('lr1e-03_sd*/run.json'))) == 2
    assert result.stderr.count('FloatingPointError: step') >= 2     # both may try one
    result = run_script(*command('SC', '--lr=1e300', '--steps=1', '--name=one'))
    assert result.returncode == 1 and 'not finite' in result.stderr


@pytest.mark.parametrize('number', [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_ends_a_grid_at_its_first_run(command, monkeypatch, number):
    """Not after each run that is left has been trained."""
    tried = []

    def write(folder, *more):
        tried.append(folder.name)
        raise OSError(number, os.strerror(number), str(folder))
    monkeypatch.setattr(finetune, 'write_run', write)
    result = run_script(*command('SC', '--grid', '--lrs=(1e-3, 3e-3)', '--seeds=(0, 1)', '--steps=1'))
    assert tried == ['lr1e-03_sd0'] and '4 of 4 runs are left' in result.stderr
    one_line_error(result, f'lr1e-03_sd0: {os.strerror(number)}: make room, then run the same command again')


def test_what_a_config_says_of_training_does_not_keep_a_probe_from_it(toy, command, tmp_path):
    """As configs/tasks/conll2003.py does; --grid takes a config with a rate for single runs, too."""
    config = tmp_path / 'task.py'
    config.write_text('kind = "SC"\nsteps = 0\nepochs = 2\nlr = 1e-3\n')
    words = [word for word in command('SC', '--probe') if not word.startswith('--kind')]
    ran(words[0], config, *words[1:])
    words = [word for word in command('SC', '--grid', '--lrs=2e-3', '--seeds=3', '--steps=1')
             if not word.startswith('--kind')]
    ran(words[0], config, *words[1:])
    assert {path.parent.name for path in tmp_path.rglob('run.json')} == {'lr0e+00_sd0', 'lr2e-03_sd3'}


def test_a_grid_within_a_run_of_another_leaves_it_alone(toy, checkpoint, tmp_path, monkeypatch, capsys):
    cfg = settings(toy, checkpoint, 'SC', tmp_path, lrs=(1e-3, 3e-3), seeds=(0, 1, 2), steps=2)
    grid, fit, fitted = finetune.prepare(cfg), finetune.fit, []

    def fit_and_interrupt(cfg, *more):
        fitted.append((cfg.lr, cfg.seed))
        if len(fitted) == 1:
            assert finetune.run_grid(*grid) == 0 and len(fitted) == 6
        return fit(cfg, *more)
    monkeypatch.setattr(finetune, 'fit', fit_and_interrupt)
    assert finetune.run_grid(*grid) == 0 and len(fitted) == len(set(fitted)) == 6
    assert 'is left to another process' in capsys.readouterr().err
    assert len(list(tmp_path.rglob('run.json'))) == 6 and not list(tmp_path.rglob('*/.*.tmp'))


def test_retrieval_without_training_pairs_is_probed(toy, command, tmp_path):
    (copy_of(toy, 'IR', tmp_path / 'data') / 'train.jsonl').unlink()
    options = [f'--data={tmp_path}/data', f'--predictions={tmp_path}/p']
    for action in ('--look', '--probe'):
        assert 'no train{' in ran(*command('IR', *options, action)).stderr
    assert len(list(tmp_path.rglob('run.json'))) == 1
    one_line_error(run_script(*command('IR', *options)), 'toy: nothing to train on')


TEXTS_OF = {'SC': lambda row: [row['text']], 'TC': lambda row: [' '.join(row['tokens'])],
            'QA': lambda row: [row['context']],
            'IR': lambda row: [f'Query: {row["query"]}', f'Document: {row["positive"]}']}


@pytest.mark.parametrize('kind', KINDS)
def test_only_training_rows_that_the_steps_read_are_tokenised(kind, toy, command, tmp_path, monkeypatch):
    """By one run, a grid and a probe; predictions are those of a run that has all rows tokenised."""
    encoded, texts = Tokenizer.encoded, []

    def counted(tokenizer, text):
        texts.append(text)
        return encoded(tokenizer, text)
    monkeypatch.setattr(Tokenizer, 'encoded', counted)
    lines = (Path(toy[kind][2].removeprefix('--data=')) / 'train.jsonl').read_text().splitlines()
    rows = [{*TEXTS_OF[kind](json.loads(line))} for line in lines]
    every = set().union(*rows)

    def wanted(*seeds):
        orders = [np.random.default_rng([seed, 1]).permutation(len(rows))[:24] for seed in seeds]
        return set().union(*(rows[k] for order in orders for k in order))

    def read_by(*more):
        texts.clear()
        ran(*command(kind, *more))
        return {*texts} & every
    steps = '--steps=3', '--batch_size=8'
    if kind == 'QA':    # only all windows together say which of them a step reads
        assert read_by(*steps) == every
    else:
        assert read_by(*steps) == wanted(0) and len(wanted(0)) < len(every) / 5
        assert read_by(*steps, '--grid', '--lrs=(1e-3,)', '--seeds=(4, 7)') == wanted(4, 7)
        monkeypatch.setattr(finetune, 'PROBED', 32)
        assert read_by('--probe') == (set() if kind == 'IR' else set().union(*rows[:32]))    # cosines learn nothing
        monkeypatch.setattr(finetune, 'rows_read', lambda cfg, kind, method, seeds, count: range(count))
        assert read_by(*steps, f'--predictions={tmp_path}/all') == every
        assert read(tmp_path / 'all/random') == {
            name: content for name, content in read(tmp_path / 'p/random').items() if 'sd0' in name}


def test_what_truncation_loses_is_said_of_the_rows_that_are_read(toy, command):
    lines = (Path(toy['SC'][2].removeprefix('--data=')) / 'train.jsonl').read_text().splitlines()
    order = np.random.default_rng([0, 1]).permutation(160)
    cut = [len(TOKENIZER.encode(json.loads(lines[k])['text'])) > 11 for k in order]    # eos is the twelfth
    for steps, more in ((3, r' \(of the 24 of 160 rows that are read\)\n'), (20, r'\n')):
        said = ran(*command('SC', f'--steps={steps}', '--batch_size=8', '--max_length=12', f'--name={steps}'))
        assert re.search(f'toy train: cut at 12 tokens: {sum(cut[:8 * steps])} texts{more}', said.stderr)
    assert 0 < sum(cut[:24]) < 24


def test_other_settings_or_data_are_refused(toy, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # fine-tuned/
    with files.locked(tmp_path / 'p/random/SC/toy/lr3e-03_sd0'):
        one_line_error(run_script(*command('SC')), 'another process is writing there')
    ran(*command('SC', '--save_model'))
    assert 'already done' in ran(*command('SC', '--save_model')).stdout

    def refused(words, *more):
        one_line_error(run_script(*command('SC', *more)), words)
    refused('^error: fine-tuned/.*steps = 30, this run has 2', '--predictions=q', '--save_model', '--steps=2')
    refused('batch_size = 32, this run has 8', '--batch_size=8')
    path = copy_of(toy, 'SC', tmp_path / 'data') / 'train.jsonl'
    path.write_text(''.join(path.read_text().splitlines(True)[:-1]))
    refused('training_data = ', f'--data={tmp_path}/data')
    ran(*command('SC', '--untrained'))
    refused('sizes = ', '--untrained', f'--model={random_model(tmp_path / "other", hidden_size=16)}')


def test_probe_reads_frozen_features(command, toy, checkpoint, tmp_path, monkeypatch):
    for kind in ('SC', 'TC', 'IR'):
        result = ran(*command(kind, '--probe'))
        about = json.loads((tmp_path / f'p/random-probe/{kind}/toy/lr0e+00_sd0/run.json').read_text())
        assert about['method'] == 'probe'
        if kind != 'IR':
            assert float(result.stdout.split(' validation ')[1].split('(')[0].split()[-1]) > 60, result.stdout
    assert 'already done' in ran(*command('IR', '--probe')).stdout
    ran(*command('IR', '--probe', '--layers=0', '--variant=embedding'))
    assert (tmp_path / 'p/random+embedding-probe/IR/toy/lr0e+00_sd0/run.json').exists()
    one_line_error(run_script(*command('QA', '--probe')), 'kind QA has no probe')
    one_line_error(run_script(*command('SC', '--probe', '--metric=Pearson')),
                   'kind SC with metric Pearson has no probe')
    monkeypatch.setattr(finetune, 'PROBED', 1)
    with pytest.raises(ValueError, match='its first 1 rows lack a label'):
        finetune.probe(*finetune.prepare(settings(toy, checkpoint, 'SC', tmp_path), 'probe'))


@pytest.mark.parametrize('ragged', [False, True])
def test_ridge_regression_is_its_closed_form(ragged):
    """Of standardised features and centred one-hot labels; the penalty is the one validation likes best."""
    draw = np.random.default_rng(0)
    centres, (low, size) = draw.normal(size=(3, 5)), (-1, 4) if ragged else (0, 1)
    targets = {split: [draw.integers(low, 3, size) for _ in range(60)] for split in tasks.SPLITS}
    features = {split: [centres[y] + draw.normal(size=(len(y), 5)) for y in arrays]
                for split, arrays in targets.items()}
    scores = finetune.ridge(features, targets, 3)
    y = {split: np.concatenate(arrays) for split, arrays in targets.items()}
    X = {split: np.concatenate(features[split])[y[split] >= 0] for split in tasks.SPLITS}
    labels = {split: y[split][y[split] >= 0] for split in y}
    mean, deviation, hot = X['train'].mean(0), X['train'].std(0), np.eye(3)[labels['train']]
    X = {split: (x - mean) / deviation for split, x in X.items()}
    models = [np.linalg.solve(X['train'].T @ X['train'] + penalty * len(hot) * np.eye(5),
                              X['train'].T @ (hot - hot.mean(0))) for penalty in finetune.PENALTIES]
    right = [np.mean((X['validation'] @ W + hot.mean(0)).argmax(1) == labels['validation']) for W in models]
    expected = X['test'] @ models[np.argmax(right)] + hot.mean(0)
    assert len(scores['test']) == 60
    assert np.abs(np.concatenate(scores['test'])[y['test'] >= 0] - expected).max() < 1e-8


@pytest.mark.parametrize('qk_norm', [False, True])
def test_sentence_transformers_gives_our_vectors(qk_norm, toy, checkpoint, tmp_path):
    """Queries and documents with their prompts, short and cut; EuroBERT, and Qwen3 without its mask."""
    from sentence_transformers import SentenceTransformer
    if qk_norm:
        checkpoint = random_model(tmp_path / 'normed', qk_norm=True, head_dim=12)
    cfg, base, data, encoder = trained(toy, checkpoint, 'IR', tmp_path, steps=3)
    theirs = SentenceTransformer(str(tmp_path / 'saved'), device='cpu')
    assert theirs.prompts['query'] == 'Query: ' and theirs.prompts['document'] == 'Document: '
    assert theirs.similarity_fn_name == 'cosine'
    # text-embeddings-inference reads both without a default
    pooling = files.read_json(tmp_path / 'saved/1_Pooling/config.json')
    assert (pooling['pooling_mode_mean_tokens'], pooling['pooling_mode_cls_token']) == (True, False)
    texts = ['', 'a', 'the array of floats', 'naïve 東京 🙂', 'long ' * 300,
             *('word ' * k for k in range(1, 40, 7))]
    for name, encode in (('query', theirs.encode_query), ('document', theirs.encode_document)):
        prompt = theirs.prompts[name]
        arrays = [Example(framed(TOKENIZER.encode(prompt + text), TOKENIZER, cfg.max_length))
                  for text in texts]
        ours = np.stack(finetune.outputs(cfg, base.world, encoder, arrays, per_token=False))
        assert np.abs(encode(texts, batch_size=4) - ours).max() < 1e-5
        assert ours.std() > 0.05
    again = huggingface.open_checkpoint(tmp_path / 'saved').model(head=False)  # names without "model."
    assert all(torch.equal(p, encoder.model.get_parameter(name)) for name, p in again.named_parameters())


def test_a_token_classifier_with_norms_of_q_and_k_opens_as_qwen3(toy, tmp_path):
    random_model(tmp_path / 'normed', qk_norm=True)
    cfg, base, data, encoder = trained(toy, tmp_path / 'normed', 'TC', tmp_path, steps=3, save_model=True)
    theirs, about = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / 'saved',
                                                                                 output_loading_info=True)
    assert not any(about.values()) and theirs.config.id2label == dict(enumerate(data.labels))
    tokens = data.examples['train'][0].tokens
    with torch.no_grad():
        expected = theirs.eval()(torch.tensor(tokens)[None]).logits[0]
        torch.testing.assert_close(finetune.encode(encoder, [tokens], base.world), expected, atol=1e-5,
                                   rtol=0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / 'saved')
    tokens = tokenizer('word ' * 900, truncation=True)['input_ids']
    assert len(tokens) == cfg.max_length == tokenizer.model_max_length
    one_line_error(run_script('finetune.py', *toy['SC'], f'--model={tmp_path}/saved'), 'or a classifier')
    one_line_error(run_script('finetune.py', *toy['SC'], f'--model={tmp_path}/normed', '--save_model'),
                   'save_model: transformers has no such classifier')    # before it trains
    one_line_error(run_script('finetune.py', *toy['IR'], f'--model={tmp_path}/normed', '--save_model',
                              '--query=Query: {text} ?'), 'must end with a column')


def test_what_cannot_be_exported_is_refused_where_it_is_written(toy, checkpoint, tmp_path):
    """Also when nothing has asked before training."""
    random_model(tmp_path / 'normed', qk_norm=True)
    cfg, base, (data,) = finetune.prepare(settings(toy, tmp_path / 'normed', 'SC', tmp_path))
    with pytest.raises(ValueError, match='has no such classifier'):
        runs.save_encoder(cfg, base, data, new(cfg, base, data, 0), tmp_path / 'saved')
    cfg, base, (data,) = finetune.prepare(settings(toy, checkpoint, 'SC', tmp_path))
    data.kind.loss = 'each'         # of a fork's kind, in which a text has several labels
    with pytest.raises(ValueError, match="'each' is not in PROBLEM_TYPES of nanoencoder/tasks/runs.py"):
        runs.save_encoder(cfg, base, data, new(cfg, base, data, 0), tmp_path / 'saved')
    assert not (tmp_path / 'saved').exists()


def test_several_labels_of_a_text_have_probabilities_of_their_own(toy, checkpoint, tmp_path, monkeypatch):
    """A fork's loss that says what its outputs mean: transformers' pipeline gives sigmoids, no softmax."""
    monkeypatch.setitem(runs.PROBLEM_TYPES, 'each', 'multi_label_classification')
    cfg, base, (data,) = finetune.prepare(settings(toy, checkpoint, 'SC', tmp_path))
    data.kind.loss = 'each'
    encoder = new(cfg, base, data, 0)
    runs.save_encoder(cfg, base, data, encoder, tmp_path / 'saved')
    ask = transformers.pipeline('text-classification', str(tmp_path / 'saved'), device='cpu', top_k=None)
    logits = finetune.encode(encoder, [data.examples['test'][0].tokens], base.world)[0]
    expected = dict(zip(data.labels, logits.sigmoid().tolist()))
    found = {answer['label']: answer['score'] for answer in ask([data.rows['test'][0]['text']])[0]}
    assert found == pytest.approx(expected, abs=1e-5)


def test_means_of_bf16_states_are_fp32():
    """Against numpy in float64. Rounded to bf16 before they are normalised, vectors differ by 1e-3."""
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(40, 64, generator=generator).bfloat16()
    vectors = finetune.unit_vectors(states, [7, 33])
    assert vectors.dtype == torch.float32
    means = [part.mean(0) for part in np.split(states.double().numpy(), [7])]
    expected = np.stack([mean / np.linalg.norm(mean) for mean in means])
    assert np.abs(vectors.numpy() - expected).max() < 1e-6
    head = finetune.Classifier(64, 2, pooled=True).bfloat16()
    assert head(states, [7, 33]).dtype == torch.bfloat16


@pytest.mark.parametrize('more, words', [
    ('--model=', 'model is empty'), ('--model=nowhere', 'nowhere: no checkpoint'),
    ('--max_length=900', 'max_length 900: the model reads 2 to 128'), ('--batch_size=0', 'batch_size must'),
    ('--lrs=(-1e-4,) --grid', 'lrs must be at least 0'), ('--seeds=a --grid', 'seeds takes int, not str'),
    ('--name=a/b', 'name must be'), ('--layers=3 --variant=x', 'layers 3: the model has 2'),
    ('--causal --save_model', 'save_model is for whole bidirectional models'),
    ('--probe --save_model', 'a probe trains no model'), ('--grid --probe', 'stand alone'),
    ('--causal', 'another encoder, which needs a name: --variant=causal'),
    ('--causal --name=x', 'which needs a name'), ('--probe --layers=0', 'needs a name: --variant=layers0'),
    ('--grid --lrs=1e-3 --lr=1e-3', 'lr and seed are of one run: with --grid give --lrs and --seeds'),
    ('--grid --seed=1', 'lr and seed are of one run'),
    ('--probe --lr=1e-3 --seed=1 --steps=5', 'probe trains no encoder: leave out --lr, --seed, --steps')])
def test_bad_settings_get_one_line(more, words, command):
    one_line_error(run_script(*command('SC', *more.split())), words)

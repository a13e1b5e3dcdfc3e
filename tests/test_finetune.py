"""Fine-tuning: heads against transformers, losses by hand, packing that changes nothing, killed grids."""
import dataclasses
import errno
import json
import random
import re
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from pytest import approx

import bench
import finetune
from conftest import (
    ROOT,
    Script,
    as_eurobert_and_as_qwen3,
    assert_near,
    change,
    edit,
    jsonl,
    open_whole,
    ran,
    read_rows,
    refused_line,
    torch_adamw,
    torchrun,
)
from nanoencoder import files, fine_tuned, huggingface, tasks
from nanoencoder.predictions import SCORED, read_predictions
from nanoencoder.tasks import heads, questions
from nanoencoder.tasks.kind import Example, framed
from nanoencoder.tasks.retrieval import max_sim
from nanoencoder.tokenizer import Tokenizer
from tokenizer_files import TOKENIZER
from toys import FILLER, KINDS, TAGGING, data_of, examples_of, merge, random_model


def train_and_save(cfg, base, data, folder):
    encoder, _ = finetune.fit(cfg, base, data)
    fine_tuned.write_fine_tuned(cfg, base, data, encoder, folder)
    return encoder


def contents(folder):
    """{file: bytes} of all predictions below a folder; locks are not compared."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(Path(folder).rglob('[!.]*'))
        if path.is_file()}


def told_score(result):
    """The score on validation that a command has printed."""
    return float(re.search(r' validation .* ([\d.]+)$', result.stdout, re.MULTILINE)[1])


# ---------------------------------------------------------------------------
# Steps, heads and losses


@pytest.mark.parametrize('kind, qk_norm', [('SC', False), ('ML', False), ('TC', False), ('TC', True)])
def test_a_step_equals_transformers_and_torch(kind, qk_norm, prepared, tmp_path):
    """Our packed batch against transformers' padded one: logits, loss and the update of one AdamW step. With
    norms of q and k the saved model is a Qwen3. Of several labels transformers' loss is the mean over labels,
    and ours their sum."""
    folder = random_model(tmp_path / 'random', tie_word_embeddings=False, qk_norm=qk_norm)
    cfg, base, data = prepared(kind, folder, steps=1, warmup=0.0, seed=3, save_model=True)
    head = finetune.new_head(data.kind.head, 32, len(data.labels))
    encoder = finetune.new_encoder(cfg, base, head)
    fine_tuned.write_fine_tuned(cfg, base, data, encoder, tmp_path / 'saved')
    auto = transformers.AutoModelForTokenClassification
    if kind != 'TC':
        auto = transformers.AutoModelForSequenceClassification
    theirs = open_whole(auto, tmp_path / 'saved')
    assert theirs.config.id2label == dict(enumerate(data.labels))
    theirs.model.embed_tokens.padding_idx = None  # pad is eos, which is to learn

    order = np.random.default_rng([3, 1]).permutation(len(data.examples['train']))
    batch = [data.examples['train'][i] for i in order[:32]]
    inputs = bench.padded_texts([torch.tensor(example.tokens) for example in batch])
    targets = bench.pad([torch.tensor(example.targets) for example in batch], -100)
    num_labels = 1
    if kind == 'ML':
        num_labels = len(data.labels)
        targets = targets.float()
        assert theirs.config.problem_type == 'multi_label_classification'
    out = theirs(**inputs, labels=targets)
    loss = num_labels * out.loss
    expected = out.logits
    if kind == 'TC':
        expected = expected[inputs['attention_mask'].bool()]
    ours = finetune.forward(encoder, [example.tokens for example in batch], base.world)
    assert_near(ours, expected)

    after, (line,) = finetune.fit(cfg, base, data)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
    assert line['loss'] == approx(loss.item(), abs=1e-5)
    assert line['grad_norm'] == approx(norm.item(), rel=1e-4)
    torch_adamw(theirs.parameters(), cfg.lr).step()
    fine_tuned.write_fine_tuned(cfg, base, data, after, tmp_path / 'after')
    updated = auto.from_pretrained(tmp_path / 'after')
    assert_near(updated.state_dict(), theirs.state_dict(), 2e-5)


def test_contrastive_loss_by_hand(prepared):
    """Another document of the query, or a copy of its own, is no negative, before it or behind it."""
    cfg, base, data = prepared('IR')
    encoder = finetune.new_encoder(cfg, base, finetune.unit_vectors)
    train = [{'query': query, 'positive': positive} for query, positive in ('cz', 'ay', 'ax', 'bx')]
    pairs, _ = examples_of(data.kind, train, (), TOKENIZER, 20)

    with torch.no_grad():
        outputs = finetune.forward(encoder, data.kind.texts(pairs), base.world)
    queries, documents = outputs.double().split(4)
    logits = 20 * queries @ documents.T
    logits[1, [2, 3]] = -torch.inf
    logits[2, [1, 3]] = -torch.inf
    logits[3, 2] = -torch.inf
    expected = -logits.log_softmax(1).diagonal().sum().item()
    assert data.kind.loss(outputs, pairs).item() == approx(expected, abs=1e-4)


def test_max_sim_by_hand():
    """Two queries, of two tokens and of one, and three documents."""
    def tokens(*degrees):
        angles = torch.deg2rad(torch.tensor(degrees, dtype=torch.float))
        return torch.stack([angles.cos(), angles.sin()], dim=1)

    scores = max_sim([tokens(0, 90), tokens(180)], [tokens(0), tokens(60, 90, 120), tokens(180, 90)])
    # the first query: (1 + 0) / 2, (cos 60 + 1) / 2, (cos 90 + 1) / 2; the second: cos 180, cos 60, 1
    assert_near(scores, torch.tensor([[0.5, 0.75, 0.5], [-1, 0.5, 1]]))


def test_max_sim_is_a_slow_loop_over_tokens(prepared):
    """Of numpy, with the states of each text read alone, special tokens and words of templates among them."""
    cfg, base, data = prepared('IR', score='maxsim')
    assert base.about['pooling'] == 'none'
    head = finetune.new_head(data.kind.head, 32, 0, base.pooling)
    encoder = finetune.new_encoder(cfg, base, head)
    texts = data.examples['texts'][::7][:12]
    vectors = finetune.outputs(cfg, base.world, encoder, texts, per_token=True)
    ours = np.array([*data.kind.scores(vectors[:4], vectors[4:])])

    def states(example):
        with torch.no_grad():
            return base.transformer(torch.from_numpy(example.tokens), [len(example.tokens)], False).numpy()

    def cosine(x, y):
        return x @ y / np.sqrt((x @ x) * (y @ y))

    for k, query in enumerate(map(states, texts[:4])):
        for d, document in enumerate(map(states, texts[4:])):
            best = [max(cosine(x, y) for y in document) for x in query]
            assert ours[k, d] == approx(sum(best) / len(query), abs=1e-5)
    assert ours.std() > 0.01


def test_late_interaction_learns_its_training_pairs(prepared):
    """Of words that queries and documents do not share: a guess among eight costs log 8 = 2.08 nats."""
    cfg, base, data = prepared('IR', score='maxsim', steps=40, epochs=40, batch_size=8, lr=1e-2)
    words = FILLER[:8]
    rows = [{'query': word, 'positive': other} for word, other in zip(words, FILLER[8:])]
    pairs, _ = examples_of(data.kind, rows, (), TOKENIZER, 20)
    _, log = finetune.fit(cfg, base, data._replace(examples={'train': pairs}))
    assert log[0]['loss'] > 1
    assert log[-1]['loss'] < 0.1


@pytest.mark.parametrize('change, same', [
    ({}, 0), ({'causal': True}, 9), ({'layers': 1}, 0), ({'layers': 0}, 9)])
def test_a_control_is_another_encoder_of_the_same_weights(change, same, prepared, checkpoint):
    """With the causal mask no token sees what comes; without layers its vector is its normed embedding."""
    cfg, base, _ = prepared('TC', **change)
    encoder = finetune.new_encoder(cfg, base, finetune.every_token)
    whole = huggingface.open_checkpoint(checkpoint).model(head=False)
    del whole.layers[len(encoder.model.layers):]
    tokens = torch.arange(10)
    with torch.no_grad():
        first = encoder(tokens, [10])
        assert torch.equal(first, whole(tokens, [10], cfg.causal))
        tokens[9] = 77
        is_same = torch.isclose(first, encoder(tokens, [10])).all(1)
    assert torch.equal(is_same, torch.arange(10) < same)
    assert cfg.layers in (-1, len(encoder.model.layers))


@pytest.mark.parametrize('changes, name, row', [
    ({'name': 'x'}, 'x', 'mlm-900'), ({'variant': 'causal'}, 'random+causal', 'mlm-900+causal')])
def test_a_variant_has_a_name_and_a_row_of_its_own(changes, name, row, prepared, checkpoint, monkeypatch):
    past = {'row': 'mlm-900', 'step': 900, 'phases': [['mlm', 900]]}
    state = {'pretraining': past, 'fixed': {'seed': 0}}
    opened = huggingface.open_checkpoint(checkpoint)
    opened = dataclasses.replace(opened, state=state)
    monkeypatch.setattr(finetune, 'open_encoder', lambda cfg: opened)
    cfg, base, _ = prepared('SC', **changes)
    assert cfg.name == name
    assert base.about['pretraining'] == past | {'row': row, 'fixed': {'seed': 0}}


def test_schedule_is_the_papers():
    cfg = finetune.Settings(kind='SC', dataset='d', source='x', model='m')
    rates = [finetune.lr_at(step, cfg, 1_000) for step in (0, 99, 100, 550, 999)]
    assert rates == approx([1e-6, 1e-4, 1e-4, 5e-5, 1e-4 / 900])   # 100 of warm-up
    at_once = dataclasses.replace(cfg, warmup=0.0)
    assert finetune.lr_at(0, at_once, 10) == 1e-4
    warming = dataclasses.replace(cfg, warmup=1.0)
    assert finetune.lr_at(9, warming, 10) == 1e-4
    assert cfg.num_steps(10 ** 6) == 1_000
    assert cfg.num_steps(100) == 4   # an epoch
    assert dataclasses.replace(cfg, epochs=3).num_steps(100) == 10
    assert dataclasses.replace(cfg, steps=0).num_steps(14_041) == 439   # CoNLL-2003


@pytest.mark.parametrize('kind', [*KINDS, 'ML'])
def test_scores_do_not_depend_on_the_batch_size(kind, prepared):
    """A batch of retrieval is trained on at once, whatever the budget."""
    losses = []
    predictions = []
    for budget in (40, 700, 16_384):
        cfg, base, data = prepared(kind, tokens_at_once=budget, steps=0, batch_size=8, lr=1e-2)
        if kind != 'IR' or not losses:
            encoder, log = finetune.fit(cfg, base, data)
        losses.append([line['loss'] for line in log])
        rows = finetune.predict(cfg, base.world, encoder, data)['test']
        predictions.append([row | {'scores': None} for row in rows])
    for other in losses:
        assert other == approx(losses[0], abs=2e-4)
    assert predictions[0] == predictions[1] == predictions[2]
    assert len({str(row.get('pred', row)) for row in rows}) > 1     # one prediction would show nothing


def test_means_of_bf16_states_are_fp32():
    """Against float64. Rounded to bf16 before they are normalised, vectors differ by 1e-3."""
    draw = torch.Generator().manual_seed(0)
    states = torch.randn(40, 64, generator=draw).bfloat16()
    means = [part.mean(0) for part in states.double().split([7, 33])]
    vectors = finetune.unit_vectors(states, [7, 33])
    assert vectors.dtype == torch.float32
    assert_near(vectors.double(), F.normalize(torch.stack(means)), 1e-6)
    head = heads.Classifier(64, 2, pooled=True).bfloat16()
    assert head(states, [7, 33]).dtype == torch.bfloat16


# ---------------------------------------------------------------------------
# What is predicted


def test_a_words_label_is_its_tokens_majority():
    row = {'words': ['a', 'b', 'c', 'cut']}
    words = np.array([0, 0, 0, 1, 1, -1, 2, -1])
    labels = [1, 2, 2, 2, 1, 0, 1, 2]
    example = Example(None, words=words)
    logits = np.eye(3)[labels]
    tags = TAGGING.answer(row, [(example, logits)], ('O', 'B-X', 'I-X'))
    assert tags == ['I-X', 'B-X', 'B-X', 'O']


def test_the_best_run_by_hand():
    first = np.array([-1, 0, 3, 6, 9, 12, -1])
    odds = np.array([9, 1.0, -1, 0.6, 0.7, -2, 9])
    example = Example(None, characters=np.stack([first, first + 2], 1))
    logits = np.stack([0 * odds, odds], 1)
    assert questions.best_run(example, logits) == (approx(1.3), 6, 11)
    assert questions.best_run(example, -abs(logits)) == (0.0, 0, 0)


@pytest.mark.parametrize('kind, option, least', [
    ('SC', '', 80), ('TC', '', 80), ('TC', '--scheme=plain', 97),       # all "O" is 90 % of the labels
    ('QA', '', 60), ('IR', '', 60), ('ML', '--epochs=9', 98)])
def test_a_word_that_decides_is_learnt(kind, option, least, command, tmp_path):
    """Every head learns, from the command line."""
    result = ran(*command(kind, '--steps=0', '--lr=1e-2', '--batch_size=4', *option.split()))
    assert told_score(result) > least
    folder = tmp_path / f'p/random/{kind}/toy/lr1e-02_sd0'
    about = files.read_json(folder / 'run.json')
    assert about['method'] == 'fine-tuned'
    assert about['pretraining'] is None
    for split in SCORED:
        assert len(read_predictions(folder, split)) == (24 if kind == 'IR' else 40)


def test_muon_fine_tunes_matrices_of_layers(prepared):
    """At 6.7 times lr, unless matrix_lr_ratio says otherwise."""
    def losses(ratio):
        cfg, base, data = prepared('SC', optimizer='muon', matrix_lr_ratio=ratio)
        _, log = finetune.fit(cfg, base, data)
        return [line['loss'] for line in log]

    first, *_, last = usual = losses(0.0)
    assert last < first
    assert usual == losses(6.7) != losses(1.0)


def test_a_number_is_learnt_and_saved(toy, command, tmp_path, monkeypatch):
    """A regression: red is 3.5, blue is 1; transformers' pipeline, as docs/tasks.md has it, says the same
    number of the saved model, also of texts that are cut."""
    monkeypatch.chdir(tmp_path)     # fine-tuned/
    for path in shutil.copytree(data_of(toy, 'SC'), Path('data')).iterdir():
        edit(path, '"red"', '3.5')     # labels
        edit(path, '"blue"', '1')
    with open('data/test.jsonl', 'a') as file:
        file.write(json.dumps({'id': 'long', 'text': 'red ' * 9 + 'blue ' * 999, 'label': 1}) + '\n')
    ran(*command('SC', '--data=data', '--steps=0', '--epochs=4', '--lr=1e-2', '--batch_size=4',
                 '--metric=Pearson', '--save_model'))
    rows = read_predictions('p/random/SC/toy/lr1e-02_sd0', 'test')
    is_near = [abs(row['pred'] - row['gold']) < 0.6 for row in rows]
    assert np.mean(is_near) > 0.9
    page = (ROOT / 'docs/tasks.md').read_text()
    words = re.search(r"`(pipeline\('text-classification'.*?\))`", page)[1]
    folder = 'fine-tuned/random/SC/toy/lr1e-02_sd0'
    ask = eval(words, {'pipeline': transformers.pipeline, 'folder': folder})
    texts = [row['text'] for row in read_rows(Path('data/test.jsonl'))]
    for row, answer in zip(rows[-5:], ask(texts[-5:])):
        assert answer['score'] == approx(row['pred'], abs=1e-4)


@pytest.mark.parametrize('score, name', [('mean', 'random'), ('maxsim', 'random+maxsim')])
def test_retrieval_is_trained_once_and_scored_on_every_set(score, name, toy, command, tmp_path):
    """Each way to score has a name of its own in tables."""
    other = shutil.copytree(data_of(toy, 'IR'), tmp_path / 'other')
    (other / 'train.jsonl').unlink()
    (tmp_path / 'other.py').write_text(     # of the same documents, and without training pairs
        f'kind = "IR"\ndataset = "other"\ndata = "{other}"\n'
        'validation = "test.jsonl"\ntest = "validation.jsonl"')
    ran(*command('IR', '--steps=2', f'--score={score}', f"--score_on=('{tmp_path}/other.py',)"))
    own, others = [tmp_path / f'p/{name}/IR/{dataset}/lr3e-03_sd0' for dataset in ('toy', 'other')]
    assert files.read_json(own / 'run.json')['settings']['score'] == score
    assert read_predictions(others, 'test') == read_predictions(own, 'validation')


def test_retrieval_without_training_pairs_is_probed(toy, command, tmp_path):
    data = shutil.copytree(data_of(toy, 'IR'), tmp_path / 'data')
    (data / 'train.jsonl').unlink()
    assert 'no train with a suffix' in ran(*command('IR', f'--data={data}', '--look')).stderr
    ran(*command('IR', f'--data={data}', '--probe', '--layers=0', '--variant=embedding'))
    assert (tmp_path / 'p/random+embedding-probe/IR/toy/lr0e+00_sd0/run.json').exists()
    refused_line('toy: nothing to train on', *command('IR', f'--data={data}'))


def test_only_training_rows_that_are_read_are_tokenised(command, tmp_path, monkeypatch):
    """At most 48 of 160 for two seeds of three steps. Predictions are those of runs that have them all."""
    encoded = Tokenizer.encoded
    texts = []

    def counted(tokenizer, text):
        texts.append(text)
        return encoded(tokenizer, text)

    monkeypatch.setattr(Tokenizer, 'encoded', counted)
    words = command('SC', '--grid', '--lrs=(1e-3,)', '--seeds=(4, 7)', '--steps=3', '--batch_size=8')
    ran(*words)
    count = len(texts)
    monkeypatch.setattr(finetune, 'rows_to_encode', lambda cfg, actions, count: range(count))
    ran(*merge(words, f'--predictions={tmp_path}/all'))
    assert len(texts) - count >= count + 112
    assert contents(tmp_path / 'all') == contents(tmp_path / 'p')


# ---------------------------------------------------------------------------
# Grids and runs


def test_a_grid_killed_at_random_equals_the_sequential_one(command, tmp_path):
    killed = command('TC', '--grid', '--lrs=(1e-3, 3e-3)', '--seeds=(0, 1, 2)', '--steps=12')
    whole = merge(killed, f'--predictions={tmp_path}/whole')
    ran(*whole)
    draw = random.Random(5)
    kills = 0
    for runs in (1, 3):
        pair = [Script(*killed) for _ in range(2)]
        while pair[0].is_alive() and len(list(tmp_path.glob('p/*/*/*/*/run.json'))) < runs:
            time.sleep(0.01)
        time.sleep(draw.random() * 0.1)
        for process in pair:
            kills += process.is_alive()
            process.kill()
            process.ended()
    assert kills
    pair = [Script(*killed) for _ in range(2)]
    for process in pair:
        process.ended_well()
    before = contents(tmp_path / 'whole')
    assert len([name for name in before if name.endswith('run.json')]) == 6
    assert contents(tmp_path / 'p') == before
    assert ran(*whole).stdout == 'random toy: 6 of 6 runs are done\n'


def test_a_grid_with_a_failure_ends_with_1_after_all_its_runs(command, tmp_path):
    result = torchrun(2, *command('SC', '--grid', '--lrs=(1e30, 1e-3)', '--seeds=(0, 1)', '--epochs=9'))
    assert result.returncode == 1
    assert 'lr1e+30_sd0 (1 of 4): failed: step' in result.stdout
    assert len(list(tmp_path.rglob('lr1e-03_sd*/run.json'))) == 2
    assert result.stderr.count('FloatingPointError: step') >= 2     # both may try one


def test_a_full_disk_ends_a_grid_at_its_first_run(command, monkeypatch):
    """Not after each run that is left has been trained."""
    tried = []

    def write(folder, *more):
        tried.append(folder.name)
        raise OSError(errno.ENOSPC, 'No space left on device', str(folder))
    monkeypatch.setattr(finetune, 'write_run', write)
    refused_line('lr1e-03_sd0: No space left on device: make room, then run the same command again',
                 *command('SC', '--grid', '--lrs=(1e-3, 3e-3)', '--seeds=(0, 1)', '--steps=1'))
    assert tried == ['lr1e-03_sd0']


def test_a_grid_within_a_run_of_another_leaves_it_alone(prepared, tmp_path, monkeypatch, capsys):
    cfg, base, data = prepared('SC', lrs=(1e-3, 3e-3), seeds=(0, 1, 2), steps=2)
    fit = finetune.fit
    fitted = []

    def fit_and_interrupt(cfg, *more, **options):
        fitted.append((cfg.lr, cfg.seed))
        if len(fitted) == 1:
            assert finetune.run_grid(cfg, base, [data]) == 0
            assert len(fitted) == 6
        return fit(cfg, *more, **options)
    monkeypatch.setattr(finetune, 'fit', fit_and_interrupt)
    assert finetune.run_grid(cfg, base, [data]) == 0
    assert len(fitted) == len(set(fitted)) == 6
    assert 'is left to another process' in capsys.readouterr().err
    assert len(list(tmp_path.rglob('run.json'))) == 6


def test_each_run_of_a_grid_says_after_its_first_step_how_long_it_takes(prepared, capsys):
    cfg, base, data = prepared('SC', lrs=(1e-3, 3e-3), seeds=(4,), steps=2)
    assert finetune.run_grid(cfg, base, [data]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(': 0 of 2 runs are done')
    for k, (first, last) in enumerate((lines[1:3], lines[3:]), 1):
        assert re.search(rf'_sd4 \({k} of 2\): step 1/2  loss [\d.]+  0:\d\d:\d\d left$', first)
        assert re.search(rf'_sd4 \({k} of 2\): .* validation accuracy .*; all runs: 0:\d\d:\d\d left$', last)


def test_what_a_config_says_of_training_does_not_keep_a_probe_from_it(command, tmp_path):
    """As configs/tasks/conll2003.py does; --grid takes a config with a rate for single runs, too."""
    config = tmp_path / 'task.py'
    config.write_text('kind = "SC"\nsteps = 0\nepochs = 2\nlr = 1e-3\nsave_model = True\n')
    for action in (['--probe'], ['--grid', '--lrs=2e-3', '--seeds=3', '--steps=1', '--save_model=False']):
        script, kind, *words = command('SC', *action)
        ran(script, config, *words)
    assert {path.parent.name for path in tmp_path.rglob('run.json')} == {'lr0e+00_sd0', 'lr2e-03_sd3'}


def test_other_settings_or_data_are_refused(toy, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # fine-tuned/

    def is_refused(words, *more):
        refused_line(words, *command('SC', *more))

    with files.locked(tmp_path / 'p/random/SC/toy/lr3e-03_sd0'):
        is_refused('another process is writing there')
    ran(*command('SC', '--save_model'))
    assert 'already done' in ran(*command('SC', '--save_model')).stdout
    settings = files.read_json(tmp_path / 'p/random/SC/toy/lr3e-03_sd0/run.json')['settings']
    for name in ('optimizer', 'matrix_lr_ratio'):       # which older runs do not say
        settings.pop(name)
    change(tmp_path, settings=settings)
    assert 'already done' in ran(*command('SC', '--save_model')).stdout
    is_refused('^error: fine-tuned/.*steps = 30, this run has 2',
               '--predictions=q', '--save_model', '--steps=2')
    is_refused('batch_size = 32, this run has 8', '--batch_size=8')
    path = shutil.copytree(data_of(toy, 'SC'), Path('data')) / 'train.jsonl'
    path.write_text(''.join(path.read_text().splitlines(True)[:-1]))
    is_refused('training_data = ', '--data=data')
    ran(*command('SC', '--untrained'))
    assert (tmp_path / 'p/untrained/SC/toy/lr3e-03_sd0').exists()
    is_refused('sizes = ', '--untrained', f'--model={random_model(tmp_path / "other", hidden_size=16)}')


# ---------------------------------------------------------------------------
# Probes


def test_probe_reads_frozen_features(command, tmp_path):
    for kind in ('SC', 'TC', 'IR'):
        result = ran(*command(kind, '--probe'))
        about = files.read_json(tmp_path / f'p/random-probe/{kind}/toy/lr0e+00_sd0/run.json')
        assert about['method'] == 'probe'
        assert kind == 'IR' or told_score(result) > 60


def test_a_probe_reads_rows_of_the_whole_file(toy, command, tmp_path, monkeypatch):
    """Here the file is sorted by label, and half of it is read: with its first rows there would be one label.
    Which rows are read depends on the task alone."""
    data = tmp_path / 'sorted'
    shutil.copytree(data_of(toy, 'SC'), data)
    rows = read_rows(data / 'train.jsonl')
    jsonl(data / 'train.jsonl', sorted(rows, key=lambda row: row['label']))
    monkeypatch.setattr(finetune, 'PROBED', 80)
    assert told_score(ran(*command('SC', f'--data={data}', '--probe'))) > 60

    task = SimpleNamespace(dataset='toy')
    chosen = finetune.probed_rows(task, 160)
    assert len(chosen) == 80
    assert 25 < len(chosen & {*range(80)}) < 55
    assert chosen != finetune.probed_rows(SimpleNamespace(dataset='b'), 160)
    assert finetune.probed_rows(task, 70) == {*range(70)}


def test_ridge_regression_is_its_closed_form():
    """Of standardised features and centred one-hot labels; the penalty is the one validation likes best."""
    draw = np.random.default_rng(0)
    centres = draw.normal(size=(3, 5))
    targets = {split: draw.integers(-1, 3, (60, 4)) for split in tasks.SPLITS}
    features = {split: centres[y] + draw.normal(size=(60, 4, 5)) for split, y in targets.items()}
    scores = finetune.ridge(features, targets, 3)['test']

    x = {split: features[split][y >= 0] for split, y in targets.items()}
    y = {split: y[y >= 0] for split, y in targets.items()}
    mean = x['train'].mean(0)
    scale = x['train'].std(0)
    x = {split: (part - mean) / scale for split, part in x.items()}
    hot = np.eye(3)[y['train']]
    bias = hot.mean(0)
    right = []
    expected = []
    for penalty in finetune.PENALTIES:
        gram = x['train'].T @ x['train'] + penalty * len(hot) * np.eye(5)
        weights = np.linalg.solve(gram, x['train'].T @ (hot - bias))
        predicted = x['validation'] @ weights + bias
        right.append(np.mean(predicted.argmax(1) == y['validation']))
        expected.append(x['test'] @ weights + bias)
    ours = np.stack(scores)[targets['test'] >= 0]
    np.testing.assert_allclose(ours, expected[np.argmax(right)], atol=1e-8)


# ---------------------------------------------------------------------------
# What is saved


@as_eurobert_and_as_qwen3
def test_sentence_transformers_gives_our_vectors(qk_norm, prepared, checkpoint, tmp_path):
    """Queries and documents with their prompts, short and cut; EuroBERT, and Qwen3 without its mask."""
    from sentence_transformers import SentenceTransformer
    if qk_norm:
        checkpoint = random_model(tmp_path / 'normed', qk_norm=True, head_dim=12)
    cfg, base, data = prepared('IR', checkpoint, steps=3)
    encoder = train_and_save(cfg, base, data, tmp_path / 'saved')
    theirs = SentenceTransformer(str(tmp_path / 'saved'), device='cpu')
    assert theirs.similarity_fn_name == 'cosine'
    # text-embeddings-inference reads both without a default
    pooling = files.read_json(tmp_path / 'saved/1_Pooling/config.json')
    assert (pooling['pooling_mode_mean_tokens'], pooling['pooling_mode_cls_token']) == (True, False)
    texts = ['', 'a', 'the array of floats', 'na\xefve \u6771\u4eac \U0001f642', 'word ' * 5, 'long ' * 300]
    encoders = {'query': theirs.encode_query, 'document': theirs.encode_document}
    for name, encode in encoders.items():
        tokens = [TOKENIZER.encode(theirs.prompts[name] + text) for text in texts]
        examples = [Example(framed(array, TOKENIZER, cfg.max_length)) for array in tokens]
        ours = finetune.outputs(cfg, base.world, encoder, examples, per_token=False)
        assert_near(encode(texts, batch_size=4), np.array(ours))
        assert np.std(ours) > 0.05
    again = huggingface.open_checkpoint(tmp_path / 'saved').model(head=False)  # names without "model."
    assert_near(again.state_dict(), encoder.model.state_dict(), 0)


def test_what_cannot_be_a_prompt_is_refused_before_it_trains(command):
    refused_line('must end with a column', *command('IR', '--save_model', '--query=Query: {text} ?'))


@pytest.mark.parametrize('more, words', [
    ('--model=', 'model is empty'),
    ('--max_length=900', 'max_length 900: the model reads 2 to 128'),
    ('--seeds=a --grid', 'seeds takes int, not str'),
    ('--name=a/b', 'name must be'),
    ('--layers=3 --variant=x', 'layers 3: the model has 2'),
    ('--causal --save_model', 'save_model is for whole bidirectional models'),
    ('--kind=IR --score=maxsim --save_model', 'those with one vector a text; leave out .* score'),
    ('--score=maxsim', 'score must be left out: it is for IR alone'),
    ('--grid --probe', 'stand alone'),
    ('--lrs=1e-3', 'lrs and seeds are of --grid'),
    ('--grid --lrs=()', 'lrs and seeds must have one or more'),
    ('--causal --name=x', 'another encoder, which needs a name: add --variant=causal'),
    ('--grid --lr=1e-3', 'lr and seed are of one run: with --grid give --lrs and --seeds'),
    ('--probe --metric=Pearson', 'reads one label .* for answers, numbers or several labels fine-tune'),
    ('--probe --kind=ML', 'reads one label .* for answers, numbers or several labels fine-tune'),
    ('--kind=ML --metric=Matthews', 'metric Matthews: is of one label a text; several have micro F1'),
    ('--kind=QA', 'template must be text with {context} at its end'),
    ('--probe --lr=1e-3 --steps=5 --save_model', 'trains no encoder: leave out --lr, --steps, --save_model')])
def test_bad_settings_get_one_line(more, words, command):
    refused_line(words, *command('SC', *more.split()))

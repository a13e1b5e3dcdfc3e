"""README.md and docs/: every command parses, every link leads somewhere, the code of docs/hacking.md runs."""
import json
import math
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from huggingface_hub.utils import filter_repo_objects
from pytest import approx
from safetensors.torch import load_file, save_file

import data
import evaluate
import finetune
import minimal_pairs
import predict
import pretrain
from conftest import ROOT, ROWS, assert_near, log_lines, ran, replace, run_script
from examples import (
    baselines,
    continue_encoder,
    embedded_docs,
    merge,
    page as browser_page,
    pairs,
    results_from,
    whole_words,
    wordnet,
)
from nanoencoder import files, metrics, optimizers, prepare, tasks
from nanoencoder.huggingface import EMBEDDING, HEAD, open_checkpoint
from nanoencoder.pretraining import cost
from nanoencoder.pretraining.checkpoint import name_of
from nanoencoder.processes import World
from nanoencoder.settings import leaves, parse, split_words
from nanoencoder.tasks.kind import Example, framed
from recipes import BLOCKS, README, run_block
from studies import ablate, beside, run, study
from studies.paper import results

PAGES = [README, ROOT / 'studies/README.md', *sorted((ROOT / 'docs').glob('*.md'))]
OF_STUDIES = sorted((ROOT / 'studies').glob('*/README.md'))
OF_SPEEDRUN = sorted((ROOT / 'speedrun').glob('*.md'))
PARSERS = {     # script: the module of its Settings and ACTIONS, if it has any
    'data.py': prepare,
    'pretrain.py': pretrain,
    'finetune.py': finetune,
    'minimal_pairs.py': minimal_pairs,
    'examples/baselines.py': baselines,
    'examples/continue_encoder.py': continue_encoder,
    'examples/embedded_docs.py': embedded_docs,
    'examples/pairs.py': pairs,
    'examples/whole_words.py': pretrain,
    'examples/wordnet.py': wordnet,
}
# scripts that take words before their settings
OTHERS = {
    'evaluate.py': evaluate.Settings,
    'studies/run.py': None,
    'studies/ablate.py': None,
    'studies/beside.py': beside.Settings,
    'studies/packs.py': evaluate.Settings,
    'studies/paper/results.py': results.Settings,
    'studies/report.py': None,
    'studies/losses.py': None,
    'studies/layers.py': None,
    'studies/waits.py': None,
    'studies/page_tables.py': None,
    'studies/identity.py': None,
    'fill_mask.py': None,
    'predict.py': predict.Settings,
    'examples/export_onnx.py': None,
    'examples/model_card.py': evaluate.Settings,
    'examples/merge.py': merge.Settings,
    'examples/decoder_out.py': None,
    'examples/page.py': browser_page.Settings,
    'examples/results_from.py': results_from.Settings,
    'bench/bench.py': None,
    'bench/gpu.py': None,
}
TRAINERS = ('pretrain.py', 'examples/continue_encoder.py', 'examples/whole_words.py')  # they write out/<name>
# of files that pages name
FOLDERS = ('', 'configs', 'configs/tasks', 'nanoencoder', 'studies', 'studies/small')
OF_EVALUATE = {'table': 0, 'compare': 2, 'figure': 1, 'losses': None}   # arguments
# of torchrun, bench.py, uv, page_tables.py, trackio and tensorboard
OTHER_OPTIONS = {'help', 'size', 'rows', 'standalone', 'nproc_per_node', 'nnodes', 'rdzv_backend',
                 'rdzv_endpoint', 'rdzv_id', 'shutdown_timeout', 'max_restarts', 'all', 'exclude', 'check',
                 'project', 'logdir'}


def lines_of(page):
    """[(line, whether it is a shell command)] of a page, each command in one line."""
    text = re.sub(r' *\\\n *', ' ', page.read_text())
    begin = re.compile(r'    (\$ )?(\.venv/bin/|make |sed |git |cp |srun )')
    return [(line.strip().removeprefix('$ '), bool(begin.match(line))) for line in text.splitlines()]


def commands_of(pages):
    return [(page.name, line) for page in pages for line, is_command in lines_of(page) if is_command]


def copied_files():
    """{file that a reader writes: the one that he copies}. What he writes in docs/hacking.md passes the
    parser of the files that are named here."""
    copies = {'configs/deep.py': 'configs/tiny.py', 'configs/tasks/topics.py': 'configs/tasks/example_sc.py',
              # which examples/pairs.py writes
              'my_search/task.py': 'configs/tasks/example_ir.py',
              'embedded_pairs/task.py': 'configs/tasks/example_ir.py'}
    for _, command in COMMANDS:
        if command.startswith('cp '):
            source, copy = shlex.split(command, comments=True)[1:]
            copies[copy] = source
    return copies


COMMANDS = commands_of(PAGES + OF_STUDIES)
COPIES = copied_files()


def split(command):
    """(its script or '', the words after it, all words). What the reader copies is named by its source."""
    words = shlex.split(command.replace('$HEAD', 'head'), comments=True)
    words = [COPIES.get(word, word) for word in words]
    for k, word in enumerate(words):
        if word in PARSERS or word in OTHERS:
            return word, words[k + 1:], words
    return '', [], words


def parsed(script, rest):
    """(settings, actions). A run inherits its name, and no sizes: its weights may not be here."""
    def inherit(values):
        if 'weights_from' not in values:
            return {}
        ratio = values.get('mask_ratio', 0.4)
        return {'name': name_of(values['weights_from'], values.get('phases'), ratio)}
    module = PARSERS[script]
    return parse(module.Settings, rest, actions_of(module), inherit)


def actions_of(module):
    return getattr(module, 'ACTIONS', {})


each_page = pytest.mark.parametrize('page', PAGES, ids=lambda page: page.parent.name + page.name)


@pytest.fixture(autouse=True)
def masking(monkeypatch):
    """The objectives of docs/hacking.md, where that page says to put them, and that of an example."""
    monkeypatch.setitem(data.OBJECTIVES, 'span', None)  # so that the table is afterwards what it was
    run_block('data.py, below OBJECTIVES', data)
    monkeypatch.setitem(data.OBJECTIVES, 'skip', None)
    run_block('the shortest objective: data.py, below OBJECTIVES', data)
    monkeypatch.setitem(data.OBJECTIVES, 'whole_words', whole_words.WHOLE_WORDS)
    monkeypatch.setitem(optimizers.OPTIMIZERS, 'nadam', None)
    run_block('nanoencoder/optimizers.py, below OPTIMIZERS', optimizers)


@pytest.mark.parametrize('page, command', COMMANDS)
def test_a_command_is_bash_and_passes_its_parser(page, command):
    assert subprocess.run(['bash', '-n', '-c', re.sub('<[a-z ]+>', 'x', command)]).returncode == 0
    script, rest, words = split(command)
    for word in words:
        if re.match(r'(configs|tests|nanoencoder|studies|examples|bench)/[\w/]+\.py', word):
            assert (ROOT / word).exists(), word
    if words[0] == 'make':
        targets = re.findall(r'(?m)^([\w.]+):', (ROOT / 'Makefile').read_text())
        assert {word for word in words[1:] if '=' not in word} <= {*targets}
    if 'torchrun' in command and script == 'pretrain.py':    # it waits for the save of a stopped pretraining
        assert '--shutdown_timeout=300' in command or page == 'README.md'
    if '.venv/bin/' in command:
        assert re.search(r'\.venv/bin/(python|torchrun|hf) ', command)
    assert script or words[0] != '.venv/bin/python' or words[1] in ('-m', '-c')
    if rest == ['--help']:
        return
    if script in PARSERS:
        parsed(script, rest)
    elif script in OTHERS:
        names, options = split_words(rest)
        if script == 'evaluate.py':
            assert OF_EVALUATE[names[0]] in (None, len(names) - 1)
        if script == 'studies/run.py':
            known = {f'--{name}' for name in run.ACTIONS}
            assert {word.split('=')[0] for word in options} <= known
        elif script == 'studies/ablate.py':
            ablate.read_words(rest)
        elif OTHERS[script]:
            parse(OTHERS[script], options)


def test_make_try_hands_its_options_on():
    words = '--mask_ratio=0.3 --lr=1e-3'
    made = subprocess.check_output(['make', '-n', 'try', f'ARGS={words}'], cwd=ROOT, text=True)
    command, = re.findall('.*pretrain.py.*', made)
    assert command.endswith(words)
    assert '--name=try-' in command


@each_page
def test_a_run_that_a_command_names_comes_from_above(page):
    """From a pretraining of the same page, from words that name it, or from `make demo`."""
    there = ''
    of_demo = re.findall(r'out/[\w.-]+', (ROOT / 'Makefile').read_text())
    for line, is_command in lines_of(page):
        if not is_command or 'make demo' in line:
            there += line
            continue
        script, rest, words = split(line)
        if script == 'pretrain.py' and '--help' not in rest:
            there += f'`out/{parsed(script, rest)[0].name}`'
        for run_folder in re.findall(r'(?<![\w/])out/[\w.-]+', ' '.join(words)):
            assert f'`{run_folder}`' in there or run_folder in of_demo and 'make demo' in there, line


def written_by(page):
    """[(a run, corpus or file that the page lets its reader write, what it is made of)]."""
    made = []
    for line, is_command in lines_of(page):
        if not is_command:
            continue
        script, rest, words = split(line)
        if line.startswith('cp '):
            source, copy = shlex.split(line, comments=True)[1:]
            made.append((copy, source))
        elif script == 'data.py':
            cfg, actions = parsed(script, rest)
            if actions.train_tokenizer:
                made.append((cfg.tokenizer, (cfg, actions.train_tokenizer)))
            elif not actions.verify:
                made.append((cfg.out, cfg))
        elif script in TRAINERS and rest != ['--help']:
            cfg, actions = parsed(script, rest)
            if not getattr(actions, 'dry_run', False):
                made.append((f'out/{cfg.name}', (script, cfg)))
    text = page.read_text()
    blocks = re.findall(r'```python\n# ((?:configs|studies)/\S+\.py)\n((?:.*\n)*?)```', text)
    lines = [(path, line) for line, path in re.findall(r"echo '(.*)' > (\S+)", text)]
    return made + blocks + lines


def test_no_name_is_written_twice_with_different_settings():
    """A reader who types the commands of two pages loses no run to the other page, and none is
    refused."""
    first = {}      # {name: (page, what it is made of)}
    for page in PAGES + OF_STUDIES + OF_SPEEDRUN:
        for name, made_of in written_by(page):
            other, before = first.setdefault(name, (page, made_of))
            assert made_of == before, f'{name} is written on {other} and, with other settings, on {page}'


def titles_of(path):
    """The anchors that GitHub makes of a page's titles."""
    titles = re.findall(r'(?m)^#+ (.*)$', path.read_text())
    return {re.sub(r'[^\w\- ]', '', title.lower()).replace(' ', '-') for title in titles}


@each_page
def test_readme_links_each_page(page):
    assert page == README or f'({page.relative_to(ROOT)}' in README.read_text()


@pytest.mark.parametrize('page', [*PAGES, *OF_STUDIES, ROOT / 'CONTRIBUTING.md'],
                         ids=lambda page: page.parent.name + page.name)
def test_what_a_page_links_is_there(page):
    for target, anchor in re.findall(r'\]\(([^)#]*)#?([^)]*)\)', page.read_text()):
        if not target.startswith('https://'):
            path = page.parent / target if target else page
            assert path.exists(), target
            assert not anchor or anchor in titles_of(path), anchor


@each_page
def test_what_a_page_names_is_there(page):
    """Options, files, and functions that are said to be in a file."""
    text = page.read_text()
    options = {*OTHER_OPTIONS, *run.ACTIONS, *ablate.ACTIONS}
    for module in PARSERS.values():
        options |= {*leaves(module.Settings), *actions_of(module)}
    for settings in filter(None, OTHERS.values()):
        options |= {*leaves(settings)}
    assert {*re.findall(r'--(\w+)', re.sub('#SBATCH.*', '', text))} <= options

    written = {title.split(',')[0] for title in BLOCKS} | {*COPIES}
    written |= {'studies/embedded_again/config.py', 'studies/mine/config.py'}
    for path in re.findall(r'`((?:nanoencoder|configs|tests|studies|examples|bench)/[\w./]*|\w+\.py)`', text):
        there = any((ROOT / folder / path).exists() for folder in FOLDERS)
        assert there or path in written, path
    for name, file in re.findall(r'`(?:\w+\.)?(\w+)`(?: and `\w+`)? in\s`([\w/]+\.py)`', text):
        assert re.search(rf'(?m)^ *(def |class )?{name}\b', (ROOT / file).read_text()), (name, file)


def test_the_recipes_have_as_many_lines_as_the_table_says():
    rows = re.findall(r'(?m)^\| ([^|]+) \| [^|]+ \| (\d+) \|$', README.read_text())
    stated = {re.split(',| such', what)[0]: int(lines) for what, lines in rows}
    size = {}
    for title, body in BLOCKS.items():
        if not title.endswith(('alone', 'too')):
            size[title.split(',')[0]] = len([line for line in body.splitlines() if line.strip()])
    assert stated == {
        'model size': size['configs/deep.py'],
        'learning-rate schedule': size['pretrain.py'],
        'optimizer': size['nanoencoder/optimizers.py'],
        'objective': size['data.py'],
        'task': size['configs/tasks/topics.py'],
        'metric': size['nanoencoder/metrics.py'] + 1,       # the line that returns it
        'a study of your own': size['studies/mine/config.py'],
    }


@pytest.mark.parametrize('file, place', [('model', 'in an empty folder'), ('data', 'beside corpora/docs')])
def test_the_files_alone(file, place, corpus, tmp_path):
    shutil.copy(ROOT / f'{file}.py', tmp_path)
    shutil.copytree(corpus, tmp_path / 'corpora/docs')
    code = BLOCKS[f'{file}.py alone, {place}']
    told = subprocess.check_output([sys.executable, '-c', code], cwd=tmp_path, text=True)
    lines = [line.split() for line in told.splitlines()]
    if file == 'model':
        assert float(lines[-1][1]) < float(lines[0][1]) / 2     # losses
    else:
        assert int(lines[0][0]) > 0     # targets


def test_the_shortest_objective(monkeypatch, settings):
    monkeypatch.setitem(data.OBJECTIVES, 'skip', None)
    run_block('the shortest objective: data.py, below OBJECTIVES', data)
    skip = data.OBJECTIVES['skip']
    cfg = settings(phases=(('skip', 9),))
    tokens = np.array([5, 6, 7, 8, 1, 2, 3])
    none = data.NO_TARGET
    inputs, targets = skip.make(tokens, [4, 3], None, None, cfg)
    assert inputs.tolist() == tokens.tolist()
    assert skip.causal
    assert targets.tolist() == [7, 8, none, none, 3, none, none]
    assert skip.expected_targets(cfg) == approx(1 - 4 / cfg.context)  # two segments, two each
    assert skip.offset == 2


def test_clm_that_reads_masked_inputs(monkeypatch, corpus, settings, tmp_path):
    """It reads what MLM reads and predicts what CLM predicts; and its study has no slip."""
    monkeypatch.setitem(data.OBJECTIVES, 'clm_masked', None)
    run_block('masked inputs: data.py, below OBJECTIVES', data)
    batches = {}
    for name in ('clm_masked', 'clm', 'mlm'):
        batches[name], _ = data.make_batch(data.Corpus(corpus), 'train', ROWS, 0, name, settings())
    assert np.array_equal(batches['clm_masked'].tokens, batches['mlm'].tokens)
    assert np.array_equal(batches['clm_masked'].targets, batches['clm'].targets)

    text = BLOCKS['studies/masked_inputs/config.py'].replace('../ratio', str(ROOT / 'studies/ratio'))
    (tmp_path / 'config.py').write_text(text)
    masked, _ = study.load([str(tmp_path)])
    assert {*masked.rows} == {'clm40', 'masked15', 'masked40'}
    assert masked.rows['masked40'].cfg.matrix_lr_ratio == 6.7


def test_what_is_uploaded_is_the_model_and_its_tokenizer(trained):
    command, = (command for _, command in COMMANDS if 'hf upload' in command)
    words = shlex.split(command)
    excluded = [word for option, word in zip(words, words[1:]) if option == '--exclude']
    cfg = trained(phases=(('mlm', 1),), warmup_steps=0, decay_steps=0, val_every=0)
    names = [path.name for path in Path(cfg.out, 'run/1').iterdir()]
    uploaded = filter_repo_objects(names, ignore_patterns=excluded)
    assert {*uploaded} == {
        'README.md', 'config.json', 'model.safetensors', 'tokenizer.json', 'tokenizer_config.json'}


def test_minimal_pairs_read_a_recipes_objective_at_its_place(monkeypatch, trained):
    """By hand: this model's states are the tokens that it reads, and after token t the one after the next is
    u with probability TABLE[t, u]. The sentence 1, 2, 3 stands after two eos, which are token 0."""
    monkeypatch.setitem(data.OBJECTIVES, 'skip', None)
    run_block('the shortest objective: data.py, below OBJECTIVES', data)
    cfg = trained(phases=(('skip', 1),), warmup_steps=0, decay_steps=0, val_every=0)
    monkeypatch.delitem(data.OBJECTIVES, 'skip')    # a checkout that does not know it
    likelihood, prediction = minimal_pairs.find_likelihood(Path(cfg.out, 'run/1'), '')
    assert (likelihood, prediction) == ('causal', ('skip', True, 2))

    table = torch.tensor([[1, 4, 2, 1], [1, 2, 4, 1], [4, 2, 1, 1], [2, 1, 4, 1]]) / 8
    model = SimpleNamespace(model=lambda tokens, lengths, causal: tokens[:, None].float(),
                            logits=lambda states: table[states.flatten().long()].log(), head=torch.zeros(1))
    tokenizer = SimpleNamespace(ids={'eos': 0, 'mask': 3}, prefix=[], suffix=[0])
    minimal_pairs.put_tokens_in_front(tokenizer, prediction)
    checkpoint = SimpleNamespace(tokenizer=lambda: tokenizer, sizes=SimpleNamespace(vocab_size=4))
    sentence = Example(framed([1, 2, 3], tokenizer, 9), words=framed([0, 1, 2], tokenizer, 9, -1))
    cfg = minimal_pairs.Settings(likelihood=likelihood)
    world = World(0, 1, torch.device('cpu'), 'fp32')
    ours, = minimal_pairs.likelihoods(model, checkpoint, [sentence], prediction.offset, cfg, world)
    assert ours == approx(math.log(4 / 8) + math.log(2 / 8) + math.log(1 / 8))   # eos, eos and 1 predict


def test_span_masking_trains_resumes_and_is_counted(corpus, trained, capsys):
    cfg = trained(phases=(('clm', 4), ('span', 8)), save_every=6, mask_ratio=0.3)
    lines = log_lines(f'{cfg.out}/{cfg.name}')
    assert [line['phase'] for line in lines] == ['clm'] * 4 + ['span'] * 8
    assert lines[-1]['val_span_loss'] < lines[5]['val_span_loss']
    shutil.rmtree(f'{cfg.out}/{cfg.name}/12')
    pretrain.train(cfg)
    assert log_lines(f'{cfg.out}/{cfg.name}') == lines
    cost.dry_run(cfg, 1)
    assert 'of span' in capsys.readouterr().out
    batch, _ = data.make_batch(data.Corpus(corpus), 'train', ROWS, 0, 'span', cfg)
    masked = batch.targets != data.NO_TARGET
    assert np.array_equal(batch.weights, masked)    # it gives none: each target's is 1
    assert 0.28 < masked.mean() <= 0.3
    assert masked[1:][masked[:-1]].mean() > 0.6  # 0.3 if one by one


def test_an_encoder_is_merged_with_its_decoder(settings, tmp_path, monkeypatch):
    """Here of our own format, whose names are those of a decoder's file. The mask's row is the encoder's,
    and a bias that the decoder lacks counts as 0 there."""
    monkeypatch.chdir(tmp_path)
    decoder = settings(name='decoder', phases=(('clm', 12),), out='out', attention_bias=True)
    pretrain.train(decoder)
    pretrain.train(replace(decoder, name='mydecoder-mlm40', phases=(('mlm', 12),),
                           weights_from='out/decoder', save_at=()))
    shutil.copytree('out/decoder/12', 'mydecoder', ignore=shutil.ignore_patterns('state.json'))
    weights = load_file('mydecoder/model.safetensors')
    mask = files.read_json('mydecoder/config.json')['mask_token_id']
    weights[EMBEDDING][mask] = 9
    weights = {name: p for name, p in weights.items() if not name.endswith('o_proj.bias')}
    save_file(weights, 'mydecoder/model.safetensors')
    before = load_file('out/mydecoder-mlm40/12/model.safetensors')
    ran('examples.merge', 'out/mydecoder-mlm40/12', 'mydecoder', 'merged')
    merged = open_checkpoint('merged').model().state_dict()
    for name, p in before.items():
        mean = (p + weights.get(name, 0)) / 2
        if name in (EMBEDDING, HEAD):
            mean[mask] = p[mask]
        assert_near(merged[name], mean, 1e-6)

    del weights['model.norm.weight']
    save_file(weights, 'mydecoder/model.safetensors')
    result = run_script('examples.merge', 'out/mydecoder-mlm40/12', 'mydecoder', 'other')
    assert 'norm.weight is not in the second' in result.stderr
    assert not Path('other').exists()


def test_the_schedule_and_the_size(settings, tmp_path):
    scope = run_block('pretrain.py', pretrain)
    cfg = settings(phases=(('mlm', 110),), warmup_steps=10, decay_steps=0, lr=1.0)
    rates = [scope['lr_at'](cfg, step) for step in range(110)]
    assert rates[0] == 0.1
    assert rates[9] == rates[10] == 1
    assert rates[60] == approx(0.5)
    assert rates[109] == approx((1 + math.cos(0.99 * math.pi)) / 2)
    shutil.copy(ROOT / 'configs/tiny.py', tmp_path)
    (tmp_path / 'deep.py').write_text(BLOCKS['configs/deep.py'])
    cfg, _ = parse(pretrain.Settings, [str(tmp_path / 'deep.py')])
    assert (cfg.name, cfg.model.num_hidden_layers, cfg.model.vocab_size) == ('deep', 6, 4_096)


def test_the_task_and_the_metric(tmp_path):
    (tmp_path / 'topics.py').write_text(BLOCKS['configs/tasks/topics.py'])
    for part, count in (('train', 40), ('test', 4)):
        rows = ''.join(f'Title {i},Text {i},{"ab"[i % 2]}\n' for i in range(count))
        (tmp_path / f'{part}.csv').write_text('title,text,topic\n' + rows)
    task, _ = parse(tasks.Task, [str(tmp_path / 'topics.py'), f'--data={tmp_path}'])
    rows, labels = tasks.kind_of(task).load()
    assert labels == ('a', 'b')
    assert [len(rows[part]) for part in rows] == [36, 4, 4]
    assert 'Title 1\\nText 1' in json.dumps(rows['test'][1])
    rows = [{'gold': ['O', 'B-X'], 'pred': ['O', 'O']}, {'gold': ['O'], 'pred': ['O']}]
    scope = run_block('nanoencoder/metrics.py, in score_tags', metrics, rows=rows)
    assert scope['accuracy'] == 2 / 3
    assert callable(metrics.score_tags)


def test_a_correlation_has_an_interval(monkeypatch):
    """Lin's concordance by his formula, from means, variances and the covariance."""
    monkeypatch.setitem(metrics.STATISTICS, 'concordance', None)
    run_block('a correlation: nanoencoder/metrics.py, below STATISTICS', metrics)
    columns = np.random.default_rng(0).normal(size=(2, 400))
    columns[1] = 0.5 * columns[0] + 0.5 * columns[1] + 0.3
    (xx, xy), (_, yy) = np.cov(columns, bias=True)
    wanted = 2 * xy / (xx + yy + np.subtract(*columns.mean(1)) ** 2)
    assert metrics.score_of('concordance', columns) == approx(wanted)
    terms = metrics.STATISTICS['concordance'].terms(columns[:, None])
    draws = evaluate.bootstrap('concordance', terms, 2_000)
    assert evaluate.instance_values('concordance', terms).std() / 20 == approx(draws.std(), rel=0.1)

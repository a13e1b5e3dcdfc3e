"""README.md and docs/: every command parses, every link leads somewhere, the code of docs/hacking.md runs."""
import csv
import json
import math
import re
import shlex
import shutil
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

import bench
import data
import evaluate
import finetune
import pretrain
import study
from conftest import ROOT, log_lines
from nanoencoder import prepare, speedrun, tasks
from nanoencoder.judging import metrics, statistics, studies
from nanoencoder.pretraining import cost
from nanoencoder.settings import leaves, parse

README, HACKING = ROOT / 'README.md', ROOT / 'docs/hacking.md'
PAGES = [README, *sorted((ROOT / 'docs').glob('*.md'))]
PARSERS = {'data.py': (prepare.Settings, prepare.ACTIONS), 'study.py': (studies.Study, study.ACTIONS),
           'pretrain.py': (pretrain.Settings, pretrain.ACTIONS),
           'finetune.py': (finetune.Settings, finetune.ACTIONS)}
OF_EVALUATE = {'table': 0, 'compare': 2, 'figure': 1, 'pack': None, 'report': 1, 'losses': None}   # arguments
OTHER_OPTIONS = {'help', 'size', 'standalone', 'nproc_per_node', 'nnodes', 'rdzv_backend', 'rdzv_endpoint',
                 'rdzv_id', 'shutdown_timeout', 'max_restarts', 'all'}  # torchrun's, bench.py's, uv's


def blocks(page):
    """{first line without its '# ': lines} of the fenced Python blocks of a page."""
    return dict(re.findall(r'```python\n# (.*)\n((?:.*\n)*?)```', page.read_text()))


def lines_of(page):
    """[(line, whether it is a shell command)] of a page, each command in one line."""
    text = re.sub(r' *\\\n *', ' ', page.read_text())
    begin = re.compile(r'    (\.venv/bin/|make |sed |git |cp |srun )')
    return [(line.strip(), bool(begin.match(line))) for line in text.splitlines()]


COMMANDS = [(page.name, line) for page in PAGES for line, is_command in lines_of(page) if is_command]
COPIES = {copy: source for _, command in COMMANDS if command.startswith('cp ')
          for source, copy in [shlex.split(command, comments=True)[1:]]}
# files that the reader of docs/hacking.md writes: others that pass the same parser
COPIES |= {'configs/deep.py': 'configs/tiny.py', 'configs/tasks/topics.py': 'configs/tasks/example_sc.py'}


def split(command):
    """(its script or '', the words after it, all words). What the reader copies is named by its source."""
    words = shlex.split(command.replace('$HEAD', 'head'), comments=True)
    words = [COPIES.get(word, word) for word in words]
    script = next((word for word in words if word in (*PARSERS, 'evaluate.py', 'fill_mask.py')), '')
    return script, words[words.index(script) + 1:] if script else [], words


def parsed(script, rest):
    """(settings, actions). A run from weights that are not here has a name like the one it would inherit."""
    def inherit(values):
        name = Path(values.get('weights_from', '')).name.lower()
        for objective in re.findall('clm|mlm|mntp|mdlm', str(values.get('phases'))):
            name += f'-{objective}{"40" * data.OBJECTIVES[objective].uses_ratio}'
        return {'name': name} if values.get('weights_from') else {}
    return parse(PARSERS[script][0], rest, PARSERS[script][1], inherit)


@pytest.fixture(autouse=True)
def span(monkeypatch):
    """The objective of docs/hacking.md, where that page says to put it."""
    monkeypatch.setitem(data.OBJECTIVES, 'span', None)  # so that the table is afterwards what it was
    exec(blocks(HACKING)['data.py, below OBJECTIVES'], dict(vars(data)))
    return data.OBJECTIVES['span']


@pytest.mark.parametrize('page, command', COMMANDS)
def test_a_command_is_bash_and_passes_its_parser(page, command):
    assert subprocess.run(['bash', '-n', '-c', re.sub('<[a-z ]+>', 'x', command)]).returncode == 0
    script, rest, words = split(command)
    for word in words:
        if re.match(r'(configs|tests|nanoencoder)/', word) or re.fullmatch(r'\w+\.py', word):
            assert (ROOT / word).exists(), word
    if words[0] == 'make':
        targets = re.findall(r'(?m)^([\w.]+):', (ROOT / 'Makefile').read_text())
        assert {word for word in words[1:] if not word.startswith('--')} <= {*targets}
    if 'torchrun' in command and script == 'pretrain.py':    # it waits for the save of a stopped pretraining
        assert '--shutdown_timeout=300' in command
    if '.venv/bin/' in command:
        assert re.search(r'\.venv/bin/(python|torchrun) ', command)
    if script in PARSERS and rest != ['--help']:
        parsed(script, rest)
    elif script == 'evaluate.py' and rest != ['--help']:
        names = [*takewhile(lambda word: not word.startswith('--'), rest)]
        assert OF_EVALUATE[names[0]] in (None, len(names) - 1)
        parse(evaluate.Settings, rest[len(names):]) if names[0] != 'report' else studies.load(rest[1:])
    elif 'tests/bench.py' in words:
        asked = [word for word in words[words.index('tests/bench.py') + 1:] if word.isidentifier()]
        assert {*asked} <= {*bench.CASES, 'cpu', 'mfu', 'table'}


def test_make_try_hands_its_options_on():
    words = '--phases=(("clm",225),("mlm",675))', '--mask_ratio=0.3', "--row=it's"
    made = subprocess.run(['make', '-n', 'try', '--', *words], cwd=ROOT, capture_output=True, text=True)
    assert {*words} < {*shlex.split(re.search('.*pretrain.py.*', made.stdout)[0])}
    for words in (['mask_ratio=0.3'], ['--', '--name=x']):
        bare = subprocess.run(['make', '-n', 'try', *words], cwd=ROOT, capture_output=True, text=True)
        assert 'options, but not --name' in bare.stderr and 'pretrain.py' not in bare.stdout


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.name)
def test_a_run_that_a_command_names_comes_from_above(page):
    """From a pretraining of the same page, from words that name it, or from `make demo`."""
    there, of_demo = '', re.findall(r'out/[\w.-]+', (ROOT / 'Makefile').read_text())
    for line, is_command in lines_of(page):
        if not is_command or 'make demo' in line:
            there += line
            continue
        script, rest, words = split(line)
        if script == 'pretrain.py' and '--help' not in rest:
            there += f'`out/{parsed(script, rest)[0].name}`'
        for run in re.findall(r'\bout/[\w.-]+', ' '.join(words)):
            assert f'`{run}`' in there or run in of_demo and 'make demo' in there, line


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.name)
def test_what_a_page_links_and_names_is_there(page):
    """Files and their titles, options, and functions that are said to be in a file."""
    text = page.read_text()
    assert page == README or f'](docs/{page.name}' in README.read_text()
    for target, anchor in re.findall(r'\]\(([^)#]*)#?([^)]*)\)', text):
        if not target.startswith('https://'):
            path = page.parent / target if target else page
            titles = re.findall(r'(?m)^#+ (.*)$', path.read_text()) if anchor else []
            assert path.exists(), target
            assert not anchor or anchor in {    # as GitHub makes them
                re.sub(r'[^\w\- ]', '', title.lower()).replace(' ', '-') for title in titles}, anchor
    options = {name for cls, actions in PARSERS.values() for name in (*leaves(cls), *actions)} | OTHER_OPTIONS
    options |= {*leaves(evaluate.Settings), *leaves(speedrun.Rules)}
    assert {*re.findall(r'--(\w+)', re.sub('#SBATCH.*', '', text))} <= options
    written = {title.split(',')[0] for title in blocks(HACKING)} | {*COPIES}
    for path in re.findall(r'`((?:nanoencoder|configs|tests)/[\w./]*|\w+\.py)`', text):
        places = path, f'configs/{path}', f'configs/tasks/{path}'
        assert any((ROOT / place).exists() for place in places) or path in written, path
    for name, file in re.findall(r'`(\w+)`(?: and `\w+`)? in\s`([\w/]+\.py)`', text):
        assert re.search(rf'(?m)^ *(def |class )?{name}\b', (ROOT / file).read_text()), (name, file)


def judged_in(study):
    """[(points and interval, verdict)] of its report's contrasts."""
    report = (ROOT / f'studies/{study}/report.md').read_text()
    return re.findall(r'(?m)^\| .*? \| .*? \| (\S+ \[.*?\]) \|.*\*\*(.*?)\*\*', report)


def test_what_is_said_of_the_studies_stands_on_their_pages():
    """README's rows of verdicts, and docs/paper.md's points with an interval, told from either side."""
    judged = judged_in('small') + judged_in('novels')
    told = re.findall(r'(?m)^\| .* \| ([^|]*\]) \| (agrees|disagrees|cannot tell) \|', README.read_text())
    assert len(told) == 3 and {*told} <= {*judged}
    points = [tuple(map(float, re.findall(r'[+-][\d.]+', numbers))) for numbers, _ in judged]
    points += [(-mean, -high, -low) for mean, low, high in points]
    told = re.findall(r'([\d.]+) points(?: \w+)*\s\[(\S+), (\S+)\]', (ROOT / 'docs/paper.md').read_text())
    assert len(told) > 5 and {tuple(map(float, numbers)) for numbers in told} <= {*points}


def test_the_verdicts_on_optimizers_are_those_of_their_study():
    signs = {'agrees': 'above 0', 'disagrees': 'below 0', 'cannot tell': 'cannot tell'}
    points, page = r'([+-][\d.]+ \[[^]]*\])', (ROOT / 'docs/optimiser.md').read_text()
    told = re.findall(points + r',\s(above 0|below 0|cannot tell)', page)
    judged = judged_in('optimiser') + judged_in('optimiser_embedded')
    assert sorted(told) == sorted((numbers, signs[verdict]) for numbers, verdict in judged)
    told = {*re.findall(points, ' '.join(README.read_text().split()))}
    assert len(told) == 5 and told <= {numbers for numbers, _ in judged + judged_in('small')}


def test_the_recipes_have_as_many_lines_as_the_table_says():
    rows = re.findall(r'(?m)^\| ([^|]+) \| [^|]+ \| (\d+) \|$', README.read_text())
    stated = {re.split(',| such', what)[0]: int(lines) for what, lines in rows}
    size = {title.split(',')[0]: len([line for line in body.splitlines() if line.strip()])
            for title, body in blocks(HACKING).items() if 'alone' not in title}
    assert stated == {'model size': size['configs/deep.py'], 'learning-rate schedule': size['pretrain.py'],
                      'objective': size['data.py'], 'task': size['configs/tasks/topics.py'],
                      'metric': size['nanoencoder/judging/metrics.py'] + 1}     # the line that returns it


@pytest.mark.parametrize('file, place', [('model', 'in an empty folder'), ('data', 'beside corpora/docs')])
def test_the_files_alone(file, place, corpus, tmp_path):
    shutil.copy(ROOT / f'{file}.py', tmp_path)
    shutil.copytree(corpus, tmp_path / 'corpora/docs')
    code = blocks(HACKING)[f'{file}.py alone, {place}'] + '\n'
    code += 'print(*[len(batch.tokens) for batch in batches], num_targets)' * (file == 'data')
    ran = subprocess.run([sys.executable, '-c', code], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    numbers = [float(line.split()[1]) for line in ran.stdout.splitlines()]
    assert numbers[-1] < numbers[0] / 2 if file == 'model' else numbers[0] > 0


def test_the_shortest_objective(monkeypatch, settings):
    monkeypatch.setitem(data.OBJECTIVES, 'skip', None)
    exec(blocks(HACKING)['the shortest objective: data.py, below OBJECTIVES'], dict(vars(data)))
    skip, cfg = data.OBJECTIVES['skip'], settings(phases=(('skip', 9),))
    tokens, none = np.array([5, 6, 7, 8, 1, 2, 3]), data.NO_TARGET
    inputs, targets = skip.make(tokens, [4, 3], None, None, cfg)
    assert inputs.tolist() == tokens.tolist() and skip.causal
    assert targets.tolist() == [7, 8, none, none, 3, none, none]
    assert skip.expected_targets(cfg) == pytest.approx(1 - 4 / cfg.context)  # two segments, two each


def test_span_masking_trains_resumes_and_is_counted(corpus, settings, span, capsys):
    cfg = settings(phases=(('clm', 4), ('span', 8)), save_every=6, mask_ratio=0.3)
    pretrain.train(cfg)
    lines = log_lines(f'{cfg.out}/{cfg.name}')
    assert [line['phase'] for line in lines] == ['clm'] * 4 + ['span'] * 8
    assert lines[-1]['val_span_loss'] < lines[5]['val_span_loss']
    shutil.rmtree(f'{cfg.out}/{cfg.name}/12')
    pretrain.train(cfg)
    assert log_lines(f'{cfg.out}/{cfg.name}') == lines
    cost.dry_run(cfg, 1)
    assert 'of span' in capsys.readouterr().out
    rows = [(i, i % 40) for i in range(200)]
    batch, _ = data.make_batch(data.Corpus(corpus), 'train', rows, 0, 'span', cfg)
    masked = batch.targets != data.NO_TARGET
    assert np.array_equal(batch.weights, masked)    # it gives none: each target's is 1
    assert 0.28 < masked.mean() <= 0.3 and masked[1:][masked[:-1]].mean() > 0.6  # 0.3 if one by one


def test_the_schedule_and_the_size(settings, tmp_path):
    exec(blocks(HACKING)['pretrain.py'], scope := dict(vars(pretrain)))
    cfg = settings(phases=(('mlm', 110),), warmup_steps=10, decay_steps=0, lr=1.0)
    rates = [scope['lr_at'](step, cfg) for step in range(110)]
    assert rates[0] == 0.1 and rates[9] == rates[10] == 1 and rates[60] == pytest.approx(0.5)
    assert rates[109] == pytest.approx((1 + math.cos(0.99 * math.pi)) / 2)
    shutil.copy(ROOT / 'configs/tiny.py', tmp_path)
    (tmp_path / 'deep.py').write_text(blocks(HACKING)['configs/deep.py'])
    cfg, _ = parse(pretrain.Settings, [str(tmp_path / 'deep.py')])
    assert (cfg.name, cfg.model.num_hidden_layers, cfg.model.vocab_size) == ('deep', 6, 4_096)


def test_the_task_and_the_metric(tmp_path):
    (tmp_path / 'topics.py').write_text(blocks(HACKING)['configs/tasks/topics.py'])
    for part, count in (('train', 40), ('test', 4)):
        rows = ''.join(f'Title {i},Text {i},{"ab"[i % 2]}\n' for i in range(count))
        (tmp_path / f'{part}.csv').write_text('title,text,topic\n' + rows)
    task, _ = parse(tasks.Task, [str(tmp_path / 'topics.py'), f'--data={tmp_path}'])
    rows, labels = tasks.kind_of(task).load()
    assert labels == ('a', 'b') and [len(rows[part]) for part in rows] == [36, 4, 4]
    assert 'Title 1\\nText 1' in json.dumps(rows['test'][1])
    rows = [{'gold': ['O', 'B-X'], 'pred': ['O', 'O']}, {'gold': ['O'], 'pred': ['O']}]
    scope = dict(vars(metrics), rows=rows)
    exec(blocks(HACKING)['nanoencoder/judging/metrics.py, in score_tags'], scope)
    assert scope['accuracy'] == 2 / 3 and callable(metrics.score_tags)


def test_a_correlation_has_an_interval(monkeypatch):
    """Lin's concordance by his formula, from means, variances and the covariance."""
    monkeypatch.setitem(metrics.STATISTICS, 'concordance', None)
    title = 'a correlation: nanoencoder/judging/metrics.py, below STATISTICS'
    exec(blocks(HACKING)[title], dict(vars(metrics)))
    columns = np.random.default_rng(0).normal(size=(2, 400))
    columns[1] = 0.5 * columns[0] + 0.5 * columns[1] + 0.3
    (xx, xy), (_, yy) = np.cov(columns, bias=True)
    wanted = 2 * xy / (xx + yy + np.subtract(*columns.mean(1)) ** 2)
    assert metrics.score_of('concordance', columns) == pytest.approx(wanted)
    terms = metrics.STATISTICS['concordance'].terms(columns[:, None])
    draws = statistics.bootstrap('concordance', terms, 2_000)
    assert statistics.instance_values('concordance', terms).std() / 20 == pytest.approx(draws.std(), rel=0.1)


def ends(*studies):     # {(row, seed): the last line of its losses.csv}
    return {(line['row'], line['seed']): line for name in studies
            for line in csv.DictReader((ROOT / f'studies/{name}/losses.csv').open())}


def test_the_speedruns_rows_are_those_of_the_runs():
    last, page = ends('speedrun'), (ROOT / 'docs/speedrun.md').read_text()
    rows = re.findall(r'(?m)^\| steps \| `(\S+)` \|.*\| ([\d,]+) \| ([\d. ]+) \| (\S+) \| \w+ \|$', page)
    assert len(rows) >= 8
    for row, steps, values, p in (shown for shown in rows if shown[0] != 'falling'):   # which is not packed
        values = [*map(float, values.split())]
        assert values == pytest.approx([float(last[row, seed]['val_mlm_loss']) for seed in '0123'], abs=2e-3)
        assert last[row, '0']['step'] == steps.replace(',', '') and float(p) == pytest.approx(
            scipy.stats.ttest_1samp(values, speedrun.Rules.target, alternative='less').pvalue, rel=0.1), row


def test_the_tables_of_plateaus_are_those_of_the_runs():
    finding, page = (ROOT / 'docs/optimiser.md').read_text().split('## What moves')
    last, table = ends('optimiser'), re.findall(r'(?m)^\| `(\S*mlm-\d+)`.* \| ([\d, ]+) \|$', finding)
    assert len(table) == 8 and {numbers == ', '.join(
        f'{int(last[row, str(seed)]["plateau"]):,}' for seed in range(6)) for row, numbers in table} == {True}
    last, shown, page = ends('plateau', 'optimiser_tuning'), [], page.split('## Layers')[0]
    for row in re.findall(r'^\| .* \| (.*) \| ([\d.]+, [\d.]+) \|$', page, re.MULTILINE):
        shown.append(', '.join(row))
    runs = {row: [last[row, seed] for seed in ('100', '101')] for row, seed in last if seed == '101'}
    texts = {row: ', '.join([f'{int(line["plateau"]):,}' if line['plateau'] else 'never' for line in lines]
                            + [f'{float(line["val_mlm_loss"]):.2f}' for line in lines])
             for row, lines in runs.items()}
    wanted = [text for row, text in texts.items() if 'clm' not in row and row != 'mlm-3e-3']
    assert len(shown) == 25 and {*shown} == {*wanted}

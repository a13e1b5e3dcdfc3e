"""README.md and docs/: every command parses, every link leads somewhere, the code of docs/hacking.md runs."""
import itertools
import json
import math
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import data
import evaluate
import finetune
import pretrain
import study
from conftest import ROOT, log_lines
from nanoencoder import jobs, prepare, studies, tasks
from nanoencoder.pretraining import cost
from nanoencoder.judging import figures, metrics, predictions
from nanoencoder.settings import leaves, parse

README, HACKING = ROOT / 'README.md', ROOT / 'docs/hacking.md'
PAGES = [README, *sorted((ROOT / 'docs').glob('*.md'))]
PARSERS = {'data.py': (prepare.Settings, prepare.ACTIONS),
           'pretrain.py': (pretrain.Settings, pretrain.ACTIONS),
           'finetune.py': (finetune.Settings, finetune.ACTIONS),
           'study.py': (studies.Study, study.ACTIONS)}
OF_OTHERS = {'help', 'standalone', 'nproc_per_node', 'nnodes', 'rdzv_backend', 'rdzv_endpoint', 'rdzv_id',
             'shutdown_timeout', 'max_restarts', 'size'}


def blocks(page):
    """{first line without its '# ': lines} of the fenced Python blocks of a page."""
    texts = re.findall(r'```python\n# (.*)\n((?:.*\n)*?)```', page.read_text())
    return {title: body for title, body in texts}


def lines_of(page):
    """[(line, whether it is a shell command)] of a page, each command in one line."""
    text = re.sub(r' *\\\n *', ' ', page.read_text())
    text = re.sub(r'(?m)^```(?:bash|sh|shell)\n((?:.*\n)*?)```',
                  lambda fenced: re.sub('(?m)^', '    ', fenced[1]), text)
    begin = re.compile(r'    (\.venv/bin/|make |sed |git |cp )')
    return [(line.strip(), bool(begin.match(line))) for line in text.splitlines()]


def commands(page):
    return [line for line, is_command in lines_of(page) if is_command]


EVERY = [(page.name, command) for page in PAGES for command in commands(page)]
COPIES = {copy: source for _, command in EVERY if command.startswith('cp ')
          for source, copy in [shlex.split(command, comments=True)[1:]]}
# files that the reader of docs/hacking.md writes: others that pass the same parser
COPIES |= {'configs/deep.py': 'configs/tiny.py', 'configs/tasks/topics.py': 'configs/tasks/example_sc.py'}


def words_of(command):
    """The words of a command; a file that the reader copies or writes is named by its source."""
    words = shlex.split(command.replace('$HEAD', 'head'), comments=True)
    return [COPIES.get(word, word) for word in words]


@pytest.fixture(autouse=True)
def span(monkeypatch):
    """The objective of docs/hacking.md, where that page says to put it."""
    monkeypatch.setitem(data.OBJECTIVES, 'span', None)  # so that the table is afterwards what it was
    exec(blocks(HACKING)['data.py, below OBJECTIVES'], dict(vars(data)))
    return data.OBJECTIVES['span']


# ------------------------------------------------------------------------------------------------- commands

def named_after_weights(values):
    """What a run inherits whose weights are not here: a name."""
    return {'name': 'smollm2-135m-mlm40'} if values.get('weights_from') else {}


@pytest.mark.parametrize('page, command', EVERY)
def test_a_command_is_bash_and_passes_its_parser(page, command):
    assert subprocess.run(['bash', '-n', '-c', re.sub('<[a-z ]+>', 'x', command)]).returncode == 0
    words = words_of(command)
    for word in words:
        if re.match(r'(configs|tests|nanoencoder)/', word) or re.fullmatch(r'\w+\.py', word):
            assert (ROOT / word).exists(), word
    if words[0] == 'make':
        targets = re.findall(r'(?m)^([\w.]+):', (ROOT / 'Makefile').read_text())
        assert set(words[1:]) <= set(targets)
    if '.venv/bin/' in command:
        assert re.search(r'\.venv/bin/(python|torchrun) ', command)
    script = next((word for word in words if word in (*PARSERS, 'evaluate.py', 'fill_mask.py')), '')
    rest = words[words.index(script) + 1:] if script else []
    if rest == ['--help']:
        return
    if script in PARSERS:
        cls, actions = PARSERS[script]
        parse(cls, rest, actions, inherit=named_after_weights)
    elif script == 'fill_mask.py':
        assert len(rest) > 1 and not any(word.startswith('--') for word in rest)
    elif script == 'evaluate.py':
        names = list(itertools.takewhile(lambda word: not word.startswith('--'), rest))
        parse(evaluate.Settings, rest[len(names):])
        assert len(names) == {'table': 1, 'compare': 3, 'export': 2}.get(names[0], len(names))
        if names[0] == 'figure':
            assert names[1] in (*figures.AGAINST, 'bars', 'lr', 'switch')
            assert bool(names[2:]) == (names[1] == 'switch')
        else:
            assert names[0] in ('table', 'compare', 'export', 'losses', 'pack', 'report')
    elif 'tests/bench.py' in words:
        source = (ROOT / 'tests/bench.py').read_text()
        asked = words[words.index('tests/bench.py') + 1:]
        assert all(re.search(rf'(?m)^def {word}\(|\'{word}\'', source)
                   for word in asked if word.isidentifier())


def test_torchrun_is_told_to_wait_for_the_save_of_a_stopped_pretraining():
    texts = [pretrain.__doc__, *(re.sub(r' *\\\n *', ' ', page.read_text()) for page in PAGES)]
    commands = re.findall(r'torchrun .*pretrain\.py', '\n'.join(texts))
    assert len(commands) > 5 and all('--shutdown_timeout=300' in command for command in commands)


BY_DEMO = {'corpora/docs', *(f'out/{row}-s{seed}' for seed in (0, 1) for row in (
    'clm-1800', 'mlm-1800', 'clm25-mlm-1800'))}


def reads_and_writes(command):
    """The folders of corpora and runs that a command reads, and those that it writes."""
    words = words_of(command)
    if words[0] == 'make':
        return set(), BY_DEMO if 'demo' in words else set()
    script = next((word for word in words if word in PARSERS), '')
    rest = words[words.index(script) + 1:] if script else words
    if script == 'study.py':  # prepares its corpus, and trains what a row begins with
        asked, actions = studies.load(rest, study.ACTIONS)
        return set(), set() if actions.dry_run else {f'{asked.out}/{name}-s{seed}' for seed, names in (
            jobs.chosen(asked, actions).items()) for name in names} | {str(jobs.corpus_meta(asked).parent)}
    if script == 'data.py':
        return set(), {parse(prepare.Settings, rest, prepare.ACTIONS)[0].out}
    named = re.findall(r'(?:^|=)(out/[\w.-]+)', '\n'.join(rest), re.M)
    if script != 'pretrain.py' or {'--dry_run', '--help'} & {*rest}:
        return set(named), set()
    cfg, _ = parse(pretrain.Settings, rest, pretrain.ACTIONS, inherit=named_after_weights)
    parents = re.findall(r'^out/[\w.-]+', f'{cfg.branch_from}\n{cfg.weights_from}', re.M)
    return {cfg.corpus, *parents}, {f'{cfg.out}/{cfg.name}'}


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.name)
def test_what_a_command_reads_comes_from_above(page):
    """From a command of the same page, or from words that name it (or `make demo`, for the demo's)."""
    there, prose = set(), ''
    for line, is_command in lines_of(page):
        if not is_command:
            prose += line + '\n'
            continue
        reads, writes = reads_and_writes(line)
        if '`make demo`' in prose:
            there |= BY_DEMO
        assert {folder for folder in reads - there if f'`{folder}`' not in prose} == set(), line
        there |= writes


def test_all_scripts_are_shown():
    shown = ' '.join(command for _, command in EVERY)
    assert len(EVERY) > 60
    assert all(script in shown for script in (*PARSERS, 'evaluate.py', 'fill_mask.py', 'tests/bench.py'))
    assert all(f'finetune.py configs/tasks/docs_tc.py --{action}' in shown for action in ('look', 'baseline'))


# ------------------------------------------------------------------------------------------- pages and links

def test_the_readme_is_short():
    text = README.read_text()
    assert len(text.splitlines()) <= 150
    assert len(text.split()) <= 1_600
    assert [line for line in text.splitlines() if len(line) > 100] == []


def headings(page):
    """A page's anchors, as GitHub makes them."""
    titles = re.findall(r'(?m)^#+ (.*)$', page.read_text())
    return {re.sub(r'[^\w\- ]', '', title.lower()).replace(' ', '-') for title in titles}


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r'\]\(([^)#]*)#?([^)]*)\)', page.read_text()):
        if not target.startswith('https://'):
            path = page.parent / target if target else page
            assert path.exists(), target
            assert not anchor or anchor in headings(path), anchor


def test_the_readme_links_to_every_page():
    links = re.findall(r'\]\((docs/\w+\.md)', README.read_text())
    assert {f'docs/{page.name}' for page in PAGES[1:]} == set(links)


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.name)
def test_what_a_page_names_is_there(page):
    """Options, files, and functions that are said to be in a file."""
    text = page.read_text()
    known = {name for cls, actions in PARSERS.values() for name in (*leaves(cls), *actions)}
    known |= {*leaves(evaluate.Settings)}
    options = set(re.findall(r'--(\w+)', re.sub(r'(tests/(bench|campaign)\.py|#SBATCH).*', '', text)))
    assert options - known - OF_OTHERS == set()
    made = {title.split(',')[0] for title in blocks(HACKING)} | {*COPIES}
    for path in re.findall(r'`((?:nanoencoder|configs|tests)/[\w./]*|\w+\.py)`', text):
        is_config = (ROOT / 'configs' / path).exists() or (ROOT / 'configs/tasks' / path).exists()
        assert (ROOT / path).exists() or is_config or path in made, path
    for name, file in re.findall(r'`(\w+)`(?: and `\w+`)? in\s`([\w/]+\.py)`', text):
        assert re.search(rf'(?m)^ *(def |class )?{name}\b', (ROOT / file).read_text()), (name, file)


# ------------------------------------------------------------------------------------- what the study came to

def test_what_is_said_of_the_small_study_stands_on_its_page():
    """The table of README's first screen, and where leads end, in all places that name it."""
    report = (ROOT / 'studies/small/report.md').read_text()
    judged = [row.split(' | ') for row in report.splitlines() if row.count('**') == 2]
    told = re.findall(r'(?m)^\| .* \| ([^|]*\]) \| (agrees|disagrees|cannot tell) \|$', README.read_text())
    assert len(told) == 7
    assert sorted(told) == sorted((row[2], row[8].strip('*')) for row in judged)
    until, begin = re.search(r'CLM until ([\d.]+) M, MLM from ([\d.]+) M on', report).groups()
    for name in ('README.md', 'configs/studies/demo.py'):
        assert f'between {until} and {begin} M' in (ROOT / name).read_text(), name
    echo = re.findall(r'(until|from) ([\d.]+) M', (ROOT / 'Makefile').read_text())
    together = re.search(r'MLM and CLM, then MLM \| [^|]* \| CLM, then MLM until ([\d.]+) M', report)[1]
    assert echo == [('until', until), ('from', begin), ('until', together)]
    assert f'until {together} M tokens' in (ROOT / 'docs/paper.md').read_text()


def test_what_is_said_of_the_novels_stands_on_their_page():
    report = (ROOT / 'studies/novels/report.md').read_text()
    told = re.search(r'#on-novels\), .* CLM ([+-]\S+ \[.*?\]) after', README.read_text())[1]
    assert f'squad_ir; better | {told} |' in report and told in (ROOT / 'docs/paper.md').read_text()


# ------------------------------------------------------------------------------------ the recipes of hacking

def test_the_recipes_have_as_many_lines_as_the_table_says():
    def costs(page):
        rows = re.findall(r'(?m)^\| ([^|]+) \| [^|]+ \| (none|(?:about )?\d+) \|$', page.read_text())
        return {re.split(',| such', what)[0]: lines for what, lines in rows}
    size = {title.split(',')[0]: len([line for line in body.splitlines() if line.strip()])
            for title, body in blocks(HACKING).items()}
    stated = costs(README)
    assert len(stated) == 8
    size['nanoencoder/judging/metrics.py'] += 2  # the line that returns it, and the version
    for what, file in (('model size', 'configs/deep.py'), ('learning-rate schedule', 'pretrain.py'),
                       ('objective', 'data.py'), ('task', 'configs/tasks/topics.py'),
                       ('metric', 'nanoencoder/judging/metrics.py')):
        assert int(stated[what]) == size[file], what


def test_the_shortest_objective(monkeypatch, settings):
    monkeypatch.setitem(data.OBJECTIVES, 'skip', None)
    exec(blocks(HACKING)['the shortest objective: data.py, below OBJECTIVES'], dict(vars(data)))
    skip, cfg = data.OBJECTIVES['skip'], settings(phases=(('skip', 9),))
    tokens, none = np.array([5, 6, 7, 8, 1, 2, 3]), data.NO_TARGET
    inputs, targets = skip.make(tokens, [4, 3], None, None, cfg)
    assert inputs.tolist() == tokens.tolist() and skip.causal
    assert targets.tolist() == [7, 8, none, none, 3, none, none]
    assert skip.expected_targets(cfg) == pytest.approx(1 - 4 / cfg.context)  # two segments, two each


def test_span_masking(corpus, settings, span):
    source = data.Corpus(corpus)
    rows = [(i, i % 40) for i in range(200)]
    cfg = settings(phases=(('span', 9),), mask_ratio=0.3)
    clm, _ = data.make_batch(source, 'train', rows, 0, 'clm', cfg)
    batch, hashes = data.make_batch(source, 'train', rows, 0, 'span', cfg)
    again, _ = data.make_batch(source, 'train', rows, 0, 'span', cfg)
    masked, special = batch.targets != data.NO_TARGET, np.isin(clm.tokens, source.meta['special_ids'])
    assert np.array_equal(batch.tokens, again.tokens) and batch.lengths == clm.lengths
    assert special.any() and not (masked & special).any()
    assert (batch.tokens[masked] == source.meta['mask_token_id']).all()
    assert np.array_equal(batch.tokens[~masked], clm.tokens[~masked])
    assert np.array_equal(batch.targets[masked], clm.tokens[masked])
    counts = (~special).reshape(len(rows), cfg.context).sum(1)
    assert masked.reshape(len(rows), cfg.context).sum(1).tolist() == [round(0.3 * n) for n in counts.tolist()]
    follows = masked[1:][masked[:-1]].mean()  # 0.3 if tokens were masked one by one
    assert follows > 0.6


def test_span_masking_trains_resumes_and_is_counted(settings, capsys):
    cfg = settings(phases=(('clm', 4), ('span', 8)), save_every=6)
    pretrain.train(cfg)
    lines = log_lines(f'{cfg.out}/{cfg.name}')
    assert [line['phase'] for line in lines] == ['clm'] * 4 + ['span'] * 8
    assert {'val_clm_loss', 'val_mlm_loss', 'val_span_loss'} <= lines[-1].keys()
    assert lines[-1]['val_span_loss'] < lines[5]['val_span_loss']
    assert 'pipeline_tag: "fill-mask"' in Path(cfg.out, cfg.name, '12/README.md').read_text()
    shutil.rmtree(f'{cfg.out}/{cfg.name}/12')
    pretrain.train(cfg)
    assert log_lines(f'{cfg.out}/{cfg.name}') == lines
    cost.dry_run(cfg, 1)
    assert 'of span' in capsys.readouterr().out


def test_the_schedule_of_hacking(settings):
    scope = dict(vars(pretrain))
    exec(blocks(HACKING)['pretrain.py'], scope)
    cfg = settings(phases=(('mlm', 110),), warmup_steps=10, decay_steps=0, lr=1.0)
    rates = [scope['lr_at'](step, cfg) for step in range(110)]
    assert rates[0] == 0.1 and rates[9] == rates[10] == 1 and rates[60] == pytest.approx(0.5)
    assert rates[109] == pytest.approx((1 + math.cos(0.99 * math.pi)) / 2)


def test_the_size_of_hacking(tmp_path):
    shutil.copy(ROOT / 'configs/tiny.py', tmp_path)
    (tmp_path / 'deep.py').write_text(blocks(HACKING)['configs/deep.py'])
    cfg, _ = parse(pretrain.Settings, [str(tmp_path / 'deep.py')])
    assert (cfg.name, cfg.model.num_hidden_layers, cfg.model.vocab_size) == ('deep', 6, 4_096)


def test_the_task_of_hacking(tmp_path):
    (tmp_path / 'topics.py').write_text(blocks(HACKING)['configs/tasks/topics.py'])
    for split, count in (('train', 40), ('test', 4)):
        rows = ''.join(f'Title {i},Text {i},{"ab"[i % 2]}\n' for i in range(count))
        (tmp_path / f'{split}.csv').write_text('title,text,topic\n' + rows)
    task, _ = parse(tasks.Task, [str(tmp_path / 'topics.py'), f'--data={tmp_path}'])
    rows, labels = tasks.load(task)
    assert labels == ('a', 'b') and [len(rows[split]) for split in rows] == [36, 4, 4]
    assert json.dumps(rows['test'][1]).count('Title 1\\nText 1') == 1


def test_the_metric_of_hacking():
    rows = [{'gold': ['O', 'B-X'], 'pred': ['O', 'O']}, {'gold': ['O'], 'pred': ['O']}]
    scope = dict(vars(metrics), rows=rows)
    exec(blocks(HACKING)['nanoencoder/judging/metrics.py, in score_tags'], scope)
    assert scope['accuracy'] == 2 / 3 and callable(metrics.score_tags) and predictions.VERSION

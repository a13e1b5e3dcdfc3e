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
import recompute
import study
from conftest import ROOT, log_lines
from nanoencoder import prepare, speedrun, tasks
from nanoencoder.judging import metrics, paper, statistics, studies
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
    assert len(told) == 2 and {*told} <= {*judged}
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
    assert len(told) == 3 and told <= {numbers for numbers, _ in judged + judged_in('small')}


def scores_of(study):
    """(model, dataset) -> the score of each pretraining seed, in points, of both splits of the study's pack."""
    folder = ROOT / f'studies/{study}'
    runs = recompute.read_runs(folder, recompute.read_settings(ROOT / f'configs/studies/{study}.py'))
    def score(model, *datasets):
        joined = [recompute.join_splits(runs, model, dataset)[0] for dataset in datasets]
        return 100 * np.mean([terms.mean((1, 2)) for terms in joined], 0)
    return score


def words_of(page):
    return ' '.join((ROOT / page).read_text().split())


def test_what_optimiser_md_says_of_the_lead_is_in_the_pack():
    """The lead by task and length, how much of it goes, and what it has to do with the wait: over seeds."""
    score, last, page = scores_of('optimiser'), ends('optimiser'), words_of('docs/optimiser.md')
    three = 'ewt_pos', 'wn_sc', 'squad_ir'

    def lead(steps, *datasets, muon=''):
        return score(f'{muon}clm25-mlm-{steps}', *datasets) - score(f'{muon}mlm-{steps}', *datasets)

    def share_gone(*datasets):      # of a ratio of two means: Fieller's interval
        before = lead(1800, *datasets)
        gone = before - lead(1800, *datasets, muon='muon-')
        t = scipy.stats.t.ppf(0.975, 5) ** 2 / 6
        (var_gone, both), (_, var_before) = np.cov(gone, before)
        a = before.mean() ** 2 - t * var_before
        b = gone.mean() * before.mean() - t * both
        c = gone.mean() ** 2 - t * var_gone
        root = math.sqrt(b * b - a * c)
        return [round(100 * x) for x in (gone.mean() / before.mean(), (b - root) / a, (b + root) / a)]

    assert 'of {:.1f} points {:.1f} are left'.format(
        lead(1800, 'squad_ir').mean(), lead(1800, 'squad_ir', muon='muon-').mean()) in page
    assert '{} % less [{}, {}]'.format(*share_gone('squad_ir')) in page
    assert 'loses {} % [{}, {}]'.format(*share_gone(*three)) in page
    assert f'under AdamW ({lead(1800, "wn_sc").mean():+.1f})' in page
    assert f'overtakes, by {-lead(1800, "wn_sc", muon="muon-").mean():.1f}' in page
    for steps, words in ((3600, '3.7 M tokens it is '), (14400, 'after 14.7 M ')):
        values = lead(steps, *three) - lead(steps, *three, muon='muon-')
        interval = scipy.stats.t.interval(0.95, 5, values.mean(), scipy.stats.sem(values))
        assert '{}{:+.1f} [{:.1f}, {:.1f}]'.format(words, values.mean(), *interval) in page

    def waits(row):
        return np.array([int(last[row, str(seed)]['plateau']) for seed in range(6)])
    of_adamw = [np.corrcoef(waits('mlm-14400'), lead(steps, *three))[0, 1] for steps in (1800, 3600, 14400)]
    shown = '{:.2f}, {:.2f} and {:.2f}'.format(*of_adamw).replace('0.', '.')
    assert f'r of wait and lead is {shown}' in page and shown in words_of('docs/paper.md')
    shorter = waits('mlm-14400') - waits('muon-mlm-14400')
    smaller = lead(1800, *three) - lead(1800, *three, muon='muon-')
    assert f'is {np.corrcoef(shorter, smaller)[0, 1]:.2f} early'.replace('0.', '.') in page
    loss = {row: np.mean([float(last[row, str(seed)]['val_mlm_loss']) for seed in range(6)])
            for row in ('mlm-14400', 'muon-mlm-14400', 'clm25-mlm-14400', 'muon-clm25-mlm-14400')}
    below = (score('muon-mlm-14400', *three) - score('mlm-14400', *three)).mean()
    assert min(loss, key=loss.get) == 'mlm-14400'
    assert f'{loss["mlm-14400"]:.2f}, and it scores {below:.1f} points below MLM under Muon, with ' \
           f'{loss["muon-mlm-14400"]:.2f}' in page


def test_what_was_known_before_the_study_of_optimizers_was_frozen():
    """Of the tuning seeds, at the rates that validation chose, the first contrast on the mean of both splits."""
    lines = csv.DictReader((ROOT / 'studies/optimiser_tuning/scores.csv').open())
    runs = {}       # {(model, dataset): {rate: [(validation, test) of each seed]}}
    for line in sorted((line for line in lines if line['origin']), key=lambda line: line['origin']):
        rates = runs.setdefault((line['model'], line['dataset']), {})
        rates.setdefault(line['lr'], []).append([100 * float(line[split]) for split in ('validation', 'test')])

    def score(model):
        best = []
        for dataset in ('ewt_pos', 'wn_sc', 'squad_ir'):
            best.append(max(runs[model, dataset].values(), key=lambda seeds: np.mean(seeds, 0)[0]))
        return np.mean(best, (0, 2))
    under_adamw = score('clm25-mlm-1.5e-3') - score('mlm-3e-3')
    under_muon = score('muon-clm25-mlm-1.5e-3') - score('muon-mlm-3e-3')
    page = words_of('docs/optimiser.md')
    assert 'first contrast is {:+.1f} and {:+.1f}'.format(*under_adamw - under_muon) in page
    last = ends('optimiser_tuning', 'plateau')
    losses = [np.mean([float(last[row, seed]['val_mlm_loss']) for seed in ('100', '101')])
              for row in ('beta2-0.8', 'mlm-3e-3', 'plain')]
    assert '({:.2f} nats; {:.2f}, or {:.2f} below)'.format(*losses) in page


def test_one_rate_and_two_begin_with_what_is_in_the_pack():
    last, score, page = ends('optimiser_embedded'), scores_of('optimiser_embedded'), words_of('docs/optimiser.md')
    waits = [int(last['mlm-1800', seed]['plateau']) for seed in '012']
    assert 'with one rate at {:,}, {:,} and {:,}'.format(*waits) in page
    for muon, words in (('', '{:+.1f} {:+.1f} {:+.1f} points with one rate'),
                        ('muon-', '(Muon: {:+.1f} {:+.1f} {:+.1f})')):
        three = 'docs_tc', 'wn_sc', 'docs_ir'
        assert words.format(*score(f'{muon}clm25-mlm-1800', *three) - score(f'{muon}mlm-1800', *three)) in page


def test_what_is_said_of_small_beside_its_verdicts_is_in_its_packs():
    """The verdict on rates is one cell, and turns on the grid of tuning; and what is left without docs_pairs."""
    score, tuning, page = scores_of('small'), scores_of('small_tuning'), words_of('docs/paper.md')

    def lost(arm, rate, dataset):
        at = [score(f'{arm}-3600+rates@{lr}', dataset).mean() for lr in (2e-3, rate)]
        return at[0] - at[1]
    high = {arm: lost(arm, 8e-3, 'docs_ir') for arm in ('clm', 'mlm')}
    assert f'loses {high["clm"]:.1f} points in retrieval, MLM {high["mlm"]:.1f}' in page
    both = 'docs_tc', 'docs_ir'
    low = [np.mean([lost(arm, 5e-4, dataset) for dataset in both]) for arm in ('mlm', 'clm')]
    assert f'CLM loses {low[0] - low[1]:.1f} *less*' in page
    rest = sum(lost('clm', rate, dataset) - lost('mlm', rate, dataset)
               for rate, dataset in ((5e-4, 'docs_tc'), (5e-4, 'docs_ir'), (8e-3, 'docs_tc')))
    assert rest < 0     # without the cell the contrast has the paper's sign

    def differ(arm, dataset):
        return np.ptp([tuning(f'tune-{arm}-3600@{rate}', dataset).mean() for rate in (5e-4, 1e-3, 2e-3, 4e-3)])
    assert "by {:.1f} points in retrieval and MLM's by {:.1f}; on code words by {:.1f} and {:.1f}".format(
        *(differ(arm, dataset) for dataset in ('docs_ir', 'docs_tc') for arm in ('clm', 'mlm'))) in page
    contrasts, left = recompute.read_settings(ROOT / 'configs/studies/small.py')['contrasts'], {}
    for name in ('early', 'both'):
        weights = contrasts[name]['weights']
        left[name] = sum(weight * score(row, *both).mean() for row, weight in weights.items())
    assert f'it is {left["early"]:.1f}.' in page and f'Without `docs_pairs` the mean is {left["both"]:.1f}.' in page
    assert f'they are {left["early"]:+.1f} and {left["both"]:+.1f}.' in words_of('README.md')


def test_the_papers_mlm_needs_twice_the_steps():
    """By its own tables: interpolated between checkpoints, linearly in the logarithm of steps."""
    steps, page = np.array([1000, 2000, 5000, 10000, 20000, 40000]), words_of('docs/paper.md')
    for task, dataset, words in (('IR', 'nq', 'in NQ'), ('IR', 'msmarco', 'in MS MARCO'), ('QA', 'squad', 'on SQuAD')):
        clm, mlm = ([paper.numbers()[f'610m-{arm}-42k-{step}', task, dataset][0] for step in steps]
                    for arm in ('clm', 'mlm40'))
        needed = np.exp(np.interp(clm[:3], mlm, np.log(steps)))
        assert '{:.1f}K, {:.1f}K, {:.1f}K '.format(*needed / 1000) + words in page


def test_the_target_of_the_speedrun_moved():
    """What the older target would have made of the rows."""
    rows = dict(re.findall(r'(?m)^\| steps \| `(\S+)` \|.*\| ([\d. ]{20,}) \|', (ROOT / 'docs/speedrun.md').read_text()))
    p = {row: scipy.stats.ttest_1samp([*map(float, values.split())], 4.6, alternative='less').pvalue
         for row, values in rows.items()}
    shown = '(p {:.3f}, {:.3f})'.format(p['muon-mlm'], p['clm25-mlm']).replace('0.', '.')
    assert shown in words_of('docs/log.md') and max(p['mlm'], p['quick-1400']) < 0.01 < p['muon-mlm']


def test_grids_of_the_pages_leave_no_holes():
    """A table wants every rate with every seed: README.md's grid, then that of docs/tasks.md, leave none out."""
    runs = {}       # {(model, task): {(rate, seed)}}
    for page, command in COMMANDS:
        script, rest, _ = split(command)
        if page in ('README.md', 'tasks.md') and script == 'finetune.py' and '--grid' in rest:
            cfg, _ = parsed(script, rest)
            pairs = {(rate, seed) for rate in cfg.lrs for seed in cfg.seeds}
            runs.setdefault((cfg.model, rest[0]), set()).update(pairs)
    assert len(runs) > 1
    for name, pairs in runs.items():
        rates, seeds = map(set, zip(*pairs))
        assert len(pairs) == len(rates) * len(seeds), name


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
    exec(blocks(HACKING)['pretrain.py, in Settings'], scope := dict(vars(pretrain)))
    cfg = settings(phases=(('mlm', 110),), warmup_steps=10, decay_steps=0, lr=1.0)
    rates = [scope['lr_at'](cfg, step) for step in range(110)]
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

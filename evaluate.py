"""Predictions -> scores -> intervals -> tables and figures. Needs no torch.

    python evaluate.py table                    # all of predictions/: mean, 95 % interval, n, seeds
    python evaluate.py table --protocol=paper   # the paper's numbers: its selection, its F1, its intervals
    python evaluate.py table --protocol=paper --published       # with the paper's own tables beside
    python evaluate.py table --protocol=paper --results=theirs  # with runs of its authors, in their format
    python evaluate.py table --runs=runs.csv --protocol=paper   # model,task,dataset,lr,seed,validation,test
    python evaluate.py compare tiny-mlm40 tiny-clm-mlm40        # paired tests of the second against the first
    python evaluate.py figure share             # figures/share.png; also bars, ratio, steps, flops, cpt, lr
    python evaluate.py figure switch out/tiny-clm out/tiny-clm-mlm40    # held-out losses, gradient norm
    python evaluate.py figure summary out/tiny-mlm40 out/tiny-clm-mlm40 # MLM loss beside fine-tuned scores
    python evaluate.py losses out/tiny-clm out/tiny-mlm40       # held-out losses of pretraining
    python evaluate.py export theirs            # the scores of predictions/ in the authors' format

A run's scores are computed once and lie beside its predictions, in scores.json.
"""
import collections
import csv
import dataclasses
import gzip
import itertools
import json
import math
import os
import re
import statistics
import sys
import zlib
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from data import OBJECTIVES
from nanoencoder import figures, paper
from nanoencoder.durable import read_json, sha256, whole_file
from nanoencoder.metrics import KINDS, ratio, standard_scores
from nanoencoder.protocols import PROTOCOLS, Cell, Run, grouped, paired
from nanoencoder.settings import check, parse, run_main, setting

VERSION = 2     # of scores.json: with another, runs are scored again
SPLITS = ('validation', 'test')
ABOUT = ('kind', 'weights', 'data', 'pretraining', 'settings', 'grid')     # of run.json


@dataclass(frozen=True)
class Settings:
    predictions: str = 'predictions'    # folder that finetune.py writes
    results: str = ''                   # folder of scores in the authors' format; only read
    runs: str = ''                      # a .csv of raw run scores instead of both
    protocol: str = setting('standard', choices=tuple(PROTOCOLS))   # standard, or paper: the authors'
    models: tuple = ()                  # only these, in this order
    datasets: tuple = ()                # only these
    published: bool = False             # the paper's numbers beside ours
    format: str = setting('text', choices=('text', 'markdown', 'csv'))  # of a table: text, markdown, csv
    resamples: int = setting(10_000, low=100)   # of the bootstrap
    seed: int = setting(0, low=0)       # of the bootstrap
    out: str = 'figures'                # folder of figures

    def __post_init__(self):
        check(self)
        for name in ('models', 'datasets'):  # ("a") is a string to Python: one name is a list of one
            if not all(isinstance(item, str) for item in getattr(self, name)):
                raise ValueError(f'{name} is a tuple of names, not {getattr(self, name)!r}')

    def asks_for(self, model, dataset):
        return model in (self.models or [model]) and dataset in (self.datasets or [dataset])


# --------------------------------------------------------------------------------------------- scores of a run

def read_rows(path, kind):
    """The instances of a predictions file. ValueError if it is damaged or not of the kind's form."""
    try:
        with gzip.open(path, 'rt', encoding='utf-8') as file:
            rows = [json.loads(line) for line in file]
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise ValueError(f'{path}: missing or damaged: {error}') from None
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict) or not KINDS[kind].holds(row):
            raise ValueError(f'{path}: line {number} is not {KINDS[kind].form}')
    if not rows:
        raise ValueError(f'{path}: holds no instance')
    return rows


def score(folder, kind, scheme):
    """{'name', 'validation', 'test'}: what scores.json says of predictions."""
    scores = {}
    for split in SPLITS:
        path = folder / f'{split}.jsonl.gz'
        rows = read_rows(path, kind)
        try:
            scores['name'], above, below, others = standard_scores(kind, rows, scheme)
            by_row = [KINDS[kind].paper(row) for row in rows]
        except ValueError as error:
            raise ValueError(f'{path}: {error}') from None
        scores[split] = {'standard': {'score': ratio(above, below), 'numerators': above, 'denominators': below,
                                      'others': others, 'ids': [str(row['id']) for row in rows]},
                         'paper': {'score': statistics.fmean(by_row), 'scores_i': by_row}}
    return scores


def write(path, content):
    with whole_file(path) as file:
        file.write(json.dumps(content).encode())


def read_predictions(folder, kind):
    """(run.json, scores.json) of a run; scored if there are no scores yet, or those of other predictions."""
    about, path = read_json(folder / 'run.json'), folder / 'scores.json'
    digests = {file.name: sha256(file) for file in (folder / 'run.json', *folder.glob('*.jsonl.gz'))}
    for name, digest in about.get('sha256', {}).items():
        if digests.get(name) != digest:
            raise ValueError(f'{folder / name}: missing or damaged: its sha256 is not the one in run.json')
    try:
        scores = read_json(path)
    except ValueError:  # none yet, or damaged
        scores = {}
    if (scores.get('version'), scores.get('sha256')) != (VERSION, digests):
        scores = {'version': VERSION, 'sha256': digests} | score(folder, kind, about.get('scheme') or 'IOB2')
        write(path, scores)
    return about, scores


def read_results(folder, kind):
    """(what run.json would say, what scores.json would) of a run in the authors' format.

    Earlier versions of this program put the standard scores beside it, in standard.json.
    """
    theirs, ours = read_json(folder / 'results.json'), {}
    if (folder / 'standard.json').exists():
        ours = read_json(folder / 'standard.json')
    return ours, {'name': ours.get('name')} | {
        split: {'paper': theirs[split], 'standard': ours.get(split)} for split in SPLITS}


# ------------------------------------------------------------------------------------------------------ runs

def run_name(lr, seed):
    """A run's folder, as the authors name theirs: lr1e-04_sd0; lr0.00015_sd0 for what one digit does not say."""
    return f'lr{lr:.0e}_sd{seed}' if float(f'{lr:.0e}') == lr else f'lr{lr}_sd{seed}'


def lr_text(lr):
    return run_name(lr, 0)[2:-4]


def read_tree(cfg, root, read, problems):
    """(Run, folder, run.json, scores) of each <root>/<model>/<TASK>/<dataset>/<run>; failures become problems."""
    from tqdm import tqdm
    folders = sorted(Path(root).glob('*/*/*/[!.]*')) if root else ()
    for folder in tqdm(folders, delay=2, disable=None, leave=False):
        model, kind, dataset, name = folder.parts[-4:]
        if not cfg.asks_for(model, dataset):
            continue
        try:
            if name.endswith('.error.txt'):
                words = folder.read_text(encoding='utf-8').strip().splitlines() or ['']
                raise ValueError(f'{folder.parent}: {name.removesuffix(".error.txt")} failed: {words[-1]}')
            if kind not in KINDS:
                raise ValueError(f'{folder}: {kind} is no task; there are {", ".join(KINDS)}')
            about, scores = read(folder, kind)
            yield make_run(cfg.protocol, read, folder, about, scores), folder, about, scores
        except ValueError as error:
            problems.append(str(error))
        except (TypeError, KeyError, AttributeError, IndexError, OSError) as error:
            problems.append(f'{folder}: cannot be scored: {error!r}')


def make_run(protocol, read, folder, about, scores):
    """The Run of a folder; its scores are None where the protocol's are not there."""
    *_, model, kind, dataset, name = folder.parts
    match = re.fullmatch(r'(?:.+_)?lr([\d.]+(?:e[-+]?\d+)?)_sd(\d+)', name)
    if not match:
        raise ValueError(f'{folder}: not the name of a run, as lr1e-04_sd0 or msmarco_pairs_lr1e-04_sd0')
    validation, test = ((scores[split][protocol] or {}).get('score') for split in SPLITS)
    instances = (lambda: read(folder, kind)[1]['test']['standard']) if scores['test']['standard'] else None
    return Run(model, kind, dataset, float(match[1]), int(match[2]), validation, test,
               KINDS[kind].metric if protocol == 'paper' else scores['name'], len(scores['test']['paper']['scores_i']),
               instances, **{name: about[name] for name in ABOUT if about.get(name)})


def read_runs(cfg):
    """(runs, problems in words): from --runs, or from predictions and results. What a grid lacks is a problem."""
    problems = []
    runs = read_csv_runs(cfg) if cfg.runs else read_trees(cfg, problems)
    for name in ('model', 'dataset'):
        if absent := set(getattr(cfg, name + 's')) - {getattr(run, name) for run in runs}:
            problems.append(f'{name}s: there is no {", ".join(sorted(absent))}')
    if not runs:
        source = cfg.runs or ' and '.join(filter(None, (cfg.predictions, cfg.results)))
        raise ValueError('; '.join([f'{source}: no runs there'] + problems))
    return runs, problems


def read_trees(cfg, problems):
    """The runs of predictions and results; of those in both, the predictions'."""
    ours, theirs = ([run for run, *_ in read_tree(cfg, root, read, problems)] for root, read in (
        (cfg.predictions, read_predictions), (cfg.results, read_results)))
    if alone := sum(run.test is None for run in theirs):
        problems.append(f'{cfg.results}: {alone:,} runs have results.json alone, which serves --protocol=paper')
    identity = attrgetter('model', 'task', 'dataset', 'lr', 'seed')
    scored = set(map(identity, ours))
    if twice := sum(identity(run) in scored for run in theirs):
        problems.append(f'{cfg.results}: {twice:,} of its runs are in {cfg.predictions}, too, and read from there')
    runs = ours + [run for run in theirs if run.test is not None and identity(run) not in scored]
    for key, group in grouped(runs, 'model', 'task', 'dataset').items():
        pairs = {(run.lr, run.seed) for run in group}
        axes = zip(zip(*pairs), *(run.grid for run in group if run.grid))    # learning rates, seeds
        grid = itertools.product(*(sorted(set().union(*axis)) for axis in axes))
        if missing := [run_name(*pair) for pair in grid if pair not in pairs]:
            problems.append(f'{"/".join(key)}: missing {", ".join(missing)}')
    return runs


def read_csv_runs(cfg):
    """Runs from a table of raw scores. Empty cells are unknown."""
    def number(text):
        if text and not math.isfinite(float(text)):
            raise ValueError(f'{text} is no score')
        return float(text) if text else None
    if cfg.protocol != 'paper':
        raise ValueError('runs: raw scores have no instances to resample; take --protocol=paper')
    try:
        with open(cfg.runs, newline='', encoding='utf-8') as file:
            return [Run(row['model'], row['task'], row['dataset'], float(row['lr']), int(row['seed']),
                        number(row['validation']), number(row['test']), KINDS[row['task']].metric)
                    for row in csv.DictReader(file) if cfg.asks_for(row['model'], row['dataset'])]
    except OSError as error:
        raise ValueError(f'{cfg.runs}: {error.strerror}') from None
    except (KeyError, ValueError, TypeError) as error:
        raise ValueError(f'{cfg.runs}: not a table of runs (model,task,dataset,lr,seed,validation,test): '
                         f'{error}') from None


def make_cell(runs, cfg):
    """The Cell of one model's runs on one dataset. ValueError where they are not of one experiment."""
    where, first = f'{runs[0].model} {runs[0].dataset}', runs[0].settings or {}
    pair, count = collections.Counter((run.lr, run.seed) for run in runs).most_common(1)[0]
    if count > 1:
        raise ValueError(f'{where}: two runs are {run_name(*pair)}')
    if len({(run.data, run.kind) for run in runs}) > 1:
        raise ValueError(f'{where}: its runs are of different data or kinds')
    differing = {name for run in runs for name in first | (run.settings or {}) if name not in ('lr', 'seed')
                 and first.get(name) != (run.settings or {}).get(name)}
    if differing:
        raise ValueError(f'{where} is left out: its runs differ in {", ".join(sorted(differing))}; remove some, or '
                         'give them another --name or --predictions')
    chosen = PROTOCOLS[cfg.protocol].choose(runs)
    scores = {run.seed: run.test for run in chosen}
    return Cell(*PROTOCOLS[cfg.protocol].measure(chosen, scores, cfg), scores, tuple(chosen))


def average(cells, cfg):
    """The Cell of several datasets' mean, over the seeds that all have; None if there are none."""
    seeds = sorted(set.intersection(*(set(cell.scores) for cell in cells)))
    scores = {seed: statistics.fmean(cell.scores[seed] for cell in cells) for seed in seeds}
    return Cell(*PROTOCOLS[cfg.protocol].average(cells, scores), scores) if seeds else None


def read_cells(cfg):
    """({(model, task, dataset): Cell}, problems). A task's 'Average' is that of models with all its datasets."""
    runs, problems = read_runs(cfg)
    order, kinds = {name: k for k, name in enumerate(cfg.models)}, list(KINDS)
    runs = sorted(runs, key=lambda run: (order.get(run.model, len(order)), run.kind == 'baseline',
                                         run.model != 'untrained', kinds.index(run.task)))
    cells = {}
    for key, group in grouped(runs, 'model', 'task', 'dataset').items():
        try:
            cells[key] = make_cell(group, cfg)
        except ValueError as error:
            problems.append(str(error))
        except (TypeError, KeyError, AttributeError) as error:
            problems.append(f'{"/".join(key)}: its results are damaged, remove them: {error!r}')
    datasets = {kind: {key[2] for key in cells if key[1] == kind} for kind in KINDS}
    for model, kind in dict.fromkeys(key[:2] for key in cells):
        mine = {key[2]: cell for key, cell in cells.items() if key[:2] == (model, kind)}
        mean = average(list(mine.values()), cfg) if len(mine) > 1 and set(mine) == datasets[kind] else None
        if mean:
            cells[model, kind, 'Average'] = mean
    return cells, problems


def report(problems):
    """Print them. The exit code."""
    for problem in problems:
        print(f'warning: {problem}', file=sys.stderr)
    return 1 if problems else 0


# ---------------------------------------------------------------------------------------------------- tables

def table(cfg):
    """Print a table for each kind of task: a row a model, a column a dataset. The exit code: 1 if runs are missing."""
    if cfg.published and not any(map(os.path.exists, (cfg.runs, cfg.predictions, cfg.results))):  # alone
        problems, cfg = [], dataclasses.replace(cfg, published=False, protocol='paper')
        cells = {key: Cell(mean / 100, (mean - half) / 100, (mean + half) / 100, None, dict.fromkeys(range(5)))
                 for key, (mean, half) in paper.numbers().items() if not cfg.models or key[0] in cfg.models}
    else:
        cells, problems = read_cells(cfg)
    for task in dict.fromkeys(key[1:] for key in cells):
        runs = [run for key, cell in cells.items() if key[1:] == task for run in cell.runs]
        if len({run.data for run in runs if run.data}) > 1:
            problems.append(f'{task[1]}: its models were tested on different data, and cannot be compared')
    if cfg.format == 'csv':
        print_csv(cells, cfg)
        return report(problems)
    for kind in KINDS:
        if any(key[1] == kind for key in cells):
            print_table({key: cell for key, cell in cells.items() if key[1] == kind}, cfg)
    print(PROTOCOLS[cfg.protocol].explanation)
    print('seeds a/b, lr a..b: datasets differ. data: the first digits of the sha256 of what was scored.')
    if cfg.published:
        print('Behind the stroke: the paper\'s appendix C.')
    return report(problems)


def published(key, cells):
    """(mean, half of the interval) that the paper has of a cell, or None."""
    return paper.published(*key, {name for *model, name in cells if model == [*key[:2]]} - {'Average'})


def print_csv(cells, cfg):
    writer = csv.writer(sys.stdout, lineterminator='\n')
    writer.writerow(('model', 'task', 'dataset', 'metric', 'mean', 'low', 'high', 'n', 'seeds', 'lr', 'weights',
                     'data', 'protocol', *(('published', 'published_ci95') if cfg.published else ())))
    for key, cell in cells.items():
        metric, n = (cell.runs[0].metric, cell.runs[0].n or '') if cell.runs else ('', '')
        weights, data = (sorted({getattr(run, name)[:12] for run in cell.runs} - {''}) for name in ('weights', 'data'))
        writer.writerow((*key, metric, *(f'{100 * x:.4f}' for x in (cell.mean, cell.low, cell.high)), n,
                         len(cell.scores), *map('|'.join, (map(lr_text, cell.lrs), weights, data)), cfg.protocol,
                         *((published(key, cells) or ('', '')) if cfg.published else ())))


def heading(dataset, cells):
    """A column's: the dataset, its metric, number of instances, and the data's sha256."""
    runs = [run for cell in cells for run in cell.runs]
    n = '/'.join(f'{n:,}' for n in sorted({run.n for run in runs if run.n}))
    data = '/'.join(sorted({run.data[:8] for run in runs if run.data}))
    words = [f'n={n}' if n else '', f'data {data}' if data else '']
    return f'{dataset} ({", ".join(filter(None, [runs[0].metric, *words]))})' if runs else dataset


def print_table(cells, cfg):
    """Print {(model, task, dataset): Cell} of one kind of task."""
    models, (kind,), datasets = (dict.fromkeys(names) for names in zip(*cells))
    datasets = sorted(datasets, key=lambda name: name == 'Average')
    rows = [[kind, 'seeds', 'lr', *(heading(name, [cells[key] for key in cells if key[2] == name])
                                    for name in datasets)]]
    for model in models:
        mine = [cell for key, cell in cells.items() if key[0] == model and key[2] != 'Average']
        runs = [run for cell in mine for run in cell.runs]
        notes = sorted({word for run in runs for word in (run.kind, run.weights)} - {'', 'fine-tuned', 'fp32'})
        lrs = sorted({run.lr for run in runs if run.lr})
        rows.append([f'{model} ({", ".join(notes)})' if notes else model,
                     '/'.join(sorted({str(len(cell.scores)) for cell in mine})),
                     '..'.join(map(lr_text, sorted({lrs[0], lrs[-1]}))) if lrs else '-'])
        for key in ((model, kind, dataset) for dataset in datasets):
            text = PROTOCOLS[cfg.protocol].text(cells[key]) if key in cells else '-'
            if cfg.published and (numbers := published(key, cells)):
                text += f' / {numbers[0]:.2f} ({numbers[1]:.2f})'
            rows[-1].append(text)
    widths = [max(map(len, column)) for column in zip(*rows)]
    if cfg.format == 'markdown':
        rows.insert(1, ['-' * width for width in widths])
    for row in rows:
        padded = [text.ljust(width) for text, width in zip(row, widths)]
        print(f'| {" | ".join(padded)} |' if cfg.format == 'markdown' else '  '.join(padded).rstrip())
    print()


def compare(cfg, first, second):
    """Paired bootstrap tests: second - first on the same test instances, per dataset. The exit code."""
    if cfg.protocol != 'standard' or cfg.published or cfg.models:
        raise ValueError('compare takes two models and the standard scores: leave --protocol, --published and '
                         '--models out')
    cells, problems = read_cells(dataclasses.replace(cfg, models=(first, second)))
    shared = [key[1:] for key in cells if key[0] == first and key[2] != 'Average' and (second, *key[1:]) in cells]
    if not shared:
        report(problems)
        raise ValueError(f'{first} and {second} have no dataset in common')
    print(f'{second} - {first}, in points; p is two-sided')
    for task, dataset in shared:
        a, b = cells[first, task, dataset], cells[second, task, dataset]
        if a.runs[0].data != b.runs[0].data or a.runs[0].instances()['ids'] != b.runs[0].instances()['ids']:
            problems.append(f'{dataset}: the two models were tested on different data')
            continue
        low, high, p = paired(a, b, cfg)
        print(f'  {task} {dataset:<14} {100 * a.mean:6.1f} -> {100 * b.mean:6.1f}   {100 * (b.mean - a.mean):+.1f} '
              f'[{100 * low:+.1f}, {100 * high:+.1f}]   p = {p:.4f}   n = {a.runs[0].n:,}, '
              f'{len(a.scores)} and {len(b.scores)} seeds')
    if any(len(cells[model, *key].scores) == 1 for model in (first, second) for key in shared):
        print('One seed shows only what the choice of test instances does: another seed may turn the sign.')
    return report(problems)


# ------------------------------------------------------------------------------------------------- figures

def points_of_models(cfg):
    """([(model, its pretraining, task, mean, low, high)] in percent, problems): averages, or the only dataset."""
    if cfg.published:
        return sorted([(model, paper.models()[model], kind, mean, mean - half, mean + half)
                       for (model, kind, dataset), (mean, half) in paper.numbers().items()
                       if dataset == 'Average' and model in (cfg.models or [model])],
                      key=lambda point: list(KINDS).index(point[2])), []
    cells, problems = read_cells(cfg)
    points = []
    for kind in KINDS:
        models = dict.fromkeys(key[0] for key in cells if key[1] == kind)
        owned = [{key[2] for key in cells if key[:2] == (model, kind)} - {'Average'} for model in models]
        datasets = sorted(set.intersection(*owned)) if owned else []
        if left := set().union(*owned) - set(datasets):
            problems.append(f'{kind}: {", ".join(sorted(left))} left out, which not all models have')
        for model in models if datasets else ():
            mine = [cells[model, kind, dataset] for dataset in datasets]
            cell, run = average(mine, cfg) if len(mine) > 1 else mine[0], mine[0].runs[0]
            points.append((f'{model} (probe)' if run.kind == 'probe' else model,
                           run.pretraining or paper.models().get(model), kind,
                           *(100 * x for x in (cell.mean, cell.low, cell.high))))
    return points, problems


def points_of_rates(cfg):
    """({(model, task): {learning rate: [percent, seed by seed]}}, problems); of several datasets the mean."""
    runs, problems = read_runs(cfg)
    points = {}
    for kind in KINDS:
        tuned = [run for run in runs if run.task == kind and run.lr and run.test is not None]
        for (model, lr, _), group in grouped(tuned, 'model', 'lr', 'seed').items():
            scores = points.setdefault((model, kind), {}).setdefault(lr, [])
            scores.append(100 * statistics.fmean(run.test for run in group))
    if not points:
        raise ValueError('figure lr: no run has a learning rate')
    return points, problems


def figure(cfg, name, folders):
    """Write <out>/<name>.png. The exit code."""
    names, problems = (*figures.AGAINST, 'bars', 'lr', 'switch', 'summary'), []
    if name not in names:
        raise ValueError(f'figure is one of {", ".join(names)}, not {name!r}')
    if cfg.published and name not in (*figures.AGAINST, 'bars'):
        raise ValueError(f'figure {name}: the paper publishes no numbers for it; leave --published out')
    if (name in ('switch', 'summary')) != bool(folders):
        raise ValueError('figure switch and figure summary, and they alone, take folders of pretraining runs, as: '
                         'figure switch out/tiny-clm-mlm40')
    if name == 'switch':
        drawn = figures.switch([history(folder) for folder in folders])
    elif name == 'summary':
        cells, problems = read_cells(cfg)
        drawn = figures.summary([history(folder) for folder in folders], [
            (f'{dataset}, {cell.runs[0].metric}', model, cell.runs[0].kind, *(100 * x for x in (
                cell.mean, cell.low, cell.high))) for (model, _, dataset), cell in cells.items() if cell.runs])
    elif name == 'lr':
        points, problems = points_of_rates(cfg)
        drawn = figures.learning_rates(points)
    else:
        points, problems = points_of_models(cfg)
        drawn = figures.bars(points) if name == 'bars' else figures.against(name, points)
    path = Path(cfg.out, f'{name}.png')
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn.savefig(path, dpi=150, bbox_inches='tight')
    print(path)
    return report(problems)


# ------------------------------------------------------------------------------------------ pretraining's losses

def read_log(folder):
    """(config.json, lines of log.jsonl) of out/<name>."""
    config, log = Path(folder, 'config.json'), Path(folder, 'log.jsonl')
    if not config.exists() or not log.exists():
        raise ValueError(f'{folder}: no pretraining run there (config.json and log.jsonl)')
    try:
        lines = [json.loads(line) for line in log.read_text(encoding='utf-8').splitlines()]
    except ValueError as error:
        raise ValueError(f'{log}: damaged: {error}') from None
    if not lines or 'corpus_meta' not in read_json(config):
        raise ValueError(f'{folder}: has no log of a pretraining run yet')
    return read_json(config), lines


def history(folder):
    """(name, phases, lines of the log) of a run; a branch has its parent's until then, where that is there."""
    config, lines = read_log(folder)
    parent = Path(config.get('branch_from') or folder)      # a run, or a checkpoint in it
    parent = parent if (parent / 'log.jsonl').exists() else parent.parent
    if config.get('branch_from') and (parent / 'log.jsonl').exists():
        before = config['starts'][0]['step']
        lines = [line for line in history(parent)[2] if line['step'] <= before] + lines
    return config['name'], config['phases'], lines


def losses(folders):
    """Print the last validation of each run in nats per target, beside that of token frequencies alone."""
    if not folders:
        raise ValueError('losses takes folders of pretraining runs, as: losses out/tiny-clm out/tiny-mlm40')
    runs = []
    for folder in folders:
        config, lines = read_log(folder)
        validated = [line for line in lines if any(name.startswith('val_') for name in line)]
        if not validated:
            raise ValueError(f'{folder}: has no validation yet')
        runs.append((folder, config, validated[-1], statistics.median(line['tokens_per_second'] for line in lines)))
    kinds = [kind for kind in OBJECTIVES if any(f'val_{kind}_loss' in last for _, _, last, _ in runs)]
    print(f'{"run":<20} {"phases":<28} {"step":>7} {"tokens":>14} '
          + ' '.join(f'{f"val {kind}":>8}' for kind in kinds) + f' {"tokens/s":>9}')
    for _, config, last, speed in runs:
        phases = ', then '.join(f'{steps:,} {kind}' for kind, steps in config['phases'])
        values = [last.get(f'val_{kind}_loss') for kind in kinds]
        print(f'{config["name"]:<20} {phases:<28} {last["step"]:>7,} {last["tokens"]:>14,} '
              + ' '.join(' ' * 8 if value is None else f'{value:>8.3f}' for value in values) + f' {speed:>9,.0f}')
    for meta in {run[1]['corpus_meta']['fingerprint']: run[1]['corpus_meta'] for run in runs}.values():
        if meta['unigram_loss']:
            print(f'{"token frequencies":<72}' + f' {meta["unigram_loss"]:>8.3f}' * len(kinds))
        print(f'corpus fingerprint {meta["fingerprint"][:12]}')
    for mlm, both in itertools.permutations(runs, 2):
        compare_losses(mlm, both)


def compare_losses(mlm, both):
    """One sentence on MLM against CLM then MLM, if nothing else differs between the two runs."""
    def fixed(folder, last):  # of the newest checkpoint: what decides the numbers of a run, and its last rows
        states = sorted(Path(folder).glob('[0-9]*/state.json'), key=lambda path: int(path.parent.name))
        values = read_json(states[-1])['fixed'] if states else {'folder': folder}
        return last['step'], last['rows'], {k: v for k, v in values.items() if k not in ('phases', 'repeat')}
    kinds = [[kind for kind, _ in config['phases']] for _, config, *_ in (mlm, both)]
    if kinds == [['mlm'], ['clm', 'mlm']] and fixed(mlm[0], mlm[2]) == fixed(both[0], both[2]):
        gain = mlm[2]['val_mlm_loss'] - both[2]['val_mlm_loss']
        print(f'\nAt equal steps on the same rows, {both[1]["name"]} ends {abs(gain):.3f} nats '
              f'{"below" if gain > 0 else "above"} {mlm[1]["name"]} in MLM loss:\n'
              f'{"" if gain > 0 else "not "}the direction of the paper. One seed of one model shows a direction, no '
              'more; the claim is about fine-tuned scores.')


def export(cfg, target):
    """Write the scores of all predictions in the format of the paper's authors. The exit code."""
    problems, count = [], 0
    for run, folder, about, scores in read_tree(cfg, cfg.predictions, read_predictions, problems):
        prefix = f'{about["trained_on"]}_' if about.get('trained_on') else ''
        path = Path(target, *folder.parts[-4:-1], prefix + folder.name, 'results.json')
        content = {split: scores[split]['paper'] for split in SPLITS}
        if path.exists() and read_json(path) != content:
            raise ValueError(f'{path}: has other scores; remove it, or export into another folder')
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, content)
        count += 1
    print(f'{target}: {count:,} runs')
    return report(problems)


def main():
    words = list(itertools.takewhile(lambda word: not word.startswith('-'), sys.argv[1:]))
    cfg, _ = parse(Settings, sys.argv[1 + len(words):])
    match words:
        case ['table']:
            sys.exit(table(cfg))
        case ['compare', first, second]:
            sys.exit(compare(cfg, first, second))
        case ['figure', name, *folders]:
            sys.exit(figure(cfg, name, folders))
        case ['losses', *folders]:
            losses(folders)
        case ['export', folder]:
            sys.exit(export(cfg, folder))
        case _:
            raise ValueError('the command is table, compare MODEL MODEL, figure KIND, losses FOLDER ... or '
                             'export FOLDER; see --help')


if __name__ == '__main__':
    run_main(main)

"""Predictions -> scores -> intervals -> tables and figures. Needs no torch.

    python evaluate.py table                    # all of predictions/: mean, 95 % interval, n, seeds
    python evaluate.py table --protocol=paper --published       # by the paper's rules, its tables beside
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
import contextlib
import csv
import dataclasses
import gzip
import itertools
import json
import os
import re
import statistics
import sys
import zlib
from pathlib import Path

from nanoencoder import figures, losses, paper
from nanoencoder.durable import expect, locked, read_json, remove_temporaries, sha256, write_json
from nanoencoder.metrics import KINDS, both_scores
from nanoencoder.protocols import (PROTOCOLS, Cell, Run, grouped, key_of, lr_text, make_cells, paired,
                                   run_name, shared_means)
from nanoencoder.settings import check, check_value, parse, quoted, run_main, setting

VERSION = 2     # of scores.json: with another, runs are scored again
SPLITS = ('validation', 'test')
RESULTS = dict.fromkeys(SPLITS, {'score': float, 'scores_i': list})     # the form of results.json
STANDARD = dict.fromkeys(SPLITS, dict(score=float, ids=[str], numerators=[float], denominators=[float]))
USUAL = {'', 'fine-tuned', 'fp32'}     # kinds and weights that a table need not mention
ABOUT = {'kind': str, 'weights': str, 'data': str, 'settings': dict, 'grid': [[float]],   # of run.json
         'pretraining': {'phases': [list], 'mask_ratio': float, 'step': int, 'flops': float},
         'sha256': dict, 'scheme': str, 'trained_on': str}


@dataclasses.dataclass(frozen=True)
class Settings:
    predictions: str = 'predictions'    # folder that finetune.py writes
    results: str = ''                   # folder of scores in the authors' format; only read
    runs: str = ''                      # a .csv of raw run scores instead of both
    protocol: str = setting('standard', choices=tuple(PROTOCOLS))   # standard, or paper: the authors'
    models: tuple = ()                  # only these, in this order
    datasets: tuple = ()                # only these
    published: bool = False             # the paper's numbers beside ours
    format: str = setting('text', choices=('text', 'markdown', 'csv'))  # of a table: text, markdown, csv
    resamples: int = setting(10_000, 100, 10 ** 6)  # of the bootstrap
    seed: int = setting(0, low=0)       # of the bootstrap
    out: str = 'figures'                # folder of figures

    def __post_init__(self):
        check(self)
        if strange := [name for name in self.models + self.datasets if type(name) is not str]:
            raise ValueError(f'models and datasets are names, not {quoted(strange[0])}')

    def asks_for(self, model, dataset):
        return model in (self.models or [model]) and dataset in (self.datasets or [dataset])


# -------------------------------------------------------------------------------------------- scores of a run

def score(folder, kind, scheme):
    """{'name', 'validation', 'test'}: what scores.json says of predictions."""
    scores = {}
    for split in SPLITS:
        path = folder / f'{split}.jsonl.gz'
        try:
            with gzip.open(path, 'rt', encoding='utf-8') as file:
                rows = [json.loads(line) for line in file]
            scores['name'], scores[split] = both_scores(kind, rows, scheme)
        except (OSError, EOFError, ValueError, LookupError, ArithmeticError, zlib.error) as error:
            raise ValueError(f'{path}: missing or damaged: {error}') from None
    return scores


def read_predictions(folder, kind):
    """(run.json, scores.json) of a run; scored unless there are whole scores of these very predictions."""
    about, path, scores = read_json(folder / 'run.json'), folder / 'scores.json', {}
    about = {name: value for name, value in about.items() if value is not None}
    expect(about, {name: ABOUT[name] for name in ABOUT if name in about}, folder / 'run.json')
    digests = {file.name: sha256(file) for file in (folder / 'run.json', *folder.glob('*.jsonl.gz'))}
    for name, digest in about.get('sha256', {}).items():
        if digests.get(name) != digest:
            raise ValueError(f'{folder / name}: missing or damaged: its sha256 is not the one in run.json')
    with contextlib.suppress(ValueError):   # none yet, or damaged
        scores = read_json(path)
    stated = scores.pop('digest', None), scores.get('version'), scores.get('sha256')
    if stated != (key_of(json.dumps(scores)), VERSION, digests) or (folder / '.scores.lock').exists():
        scores = {'version': VERSION, 'sha256': digests} | score(folder, kind, about.get('scheme') or 'IOB2')
        with contextlib.suppress(BlockingIOError), locked(folder, '.scores.lock'):   # or another writes them
            remove_temporaries(folder, path.name)
            write_json(path, scores | {'digest': key_of(json.dumps(scores))}, indent=None)
    return about, scores


def read_results(folder, kind):
    """The same of a run in the authors' format; this program once wrote standard.json beside it."""
    theirs, path = read_json(folder / 'results.json', RESULTS), folder / 'standard.json'
    if not all(0 <= theirs[split]['score'] < 1.001 and theirs[split]['scores_i'] for split in SPLITS):
        raise ValueError(f'{folder / "results.json"}: a score is no fraction of 1, or of no instances')
    ours = read_json(path, STANDARD) if path.exists() else {}
    return ours, {'name': ours.get('name')} | {
        split: {'paper': theirs[split], 'standard': ours.get(split)} for split in SPLITS}


# ------------------------------------------------------------------------------------------------------ runs

def read_tree(cfg, root, read, problems):
    """(Run, folder, run.json, scores) of each <root>/<model>/<TASK>/<dataset>/<run> that can be read."""
    from tqdm import tqdm
    folders = sorted(Path(root).glob('*/*/*/[!.]*')) if root else ()
    for folder in tqdm(folders, delay=2, disable=None, leave=False):
        model, kind, dataset, name = folder.parts[-4:]
        failed = name.removesuffix('.error.txt')
        if not cfg.asks_for(model, dataset) or failed != name and folder.with_name(failed).exists():
            continue    # not asked for, or it failed and has been done since
        try:
            if failed != name:
                error = folder.read_text(encoding='utf-8', errors='replace').strip().rpartition('\n')[2]
                raise ValueError(f'{folder.parent}: {failed} failed: {error}')
            match = re.fullmatch(r'(?:.+_)?lr(\d+(?:\.\d+)?(?:e[-+]?\d+)?)_sd(\d{1,18})', name)
            if not match or kind not in KINDS:
                raise ValueError(f'{folder}: not named as a run, SC/sst2/lr1e-04_sd0 or IR/nq/x_lr1e-04_sd0')
            about, scores = read(folder, kind)
            run = Run(model, kind, dataset, float(match[1]), int(match[2]),
                      *((scores[split][cfg.protocol] or {}).get('score') for split in SPLITS),
                      KINDS[kind].metric if cfg.protocol == 'paper' else scores['name'],
                      len(scores['test']['paper']['scores_i']),
                      lambda folder=folder, kind=kind: read(folder, kind)[1]['test']['standard'],
                      **{name: about[name] for name in ABOUT if name in Run.__slots__ and about.get(name)})
            yield run, folder, about, scores
        except (ValueError, OSError) as error:
            problems.append(str(error))


def read_runs(cfg, problems):
    """The Runs of --runs, or of predictions and results. Whatever a grid lacks is a problem."""
    if cfg.runs and cfg.protocol == 'standard':
        raise ValueError('runs: raw scores have no instances to resample; take --protocol=paper')
    runs = paper.read_runs(cfg.runs) if cfg.runs else read_trees(cfg, problems)
    runs = [run for run in runs if cfg.asks_for(run.model, run.dataset)]
    for name in ('model', 'dataset'):
        if absent := set(getattr(cfg, name + 's')) - {getattr(run, name) for run in runs}:
            problems.append(f'{name}s: there is no {", ".join(map(quoted, sorted(absent)))}')
    if not runs:
        raise ValueError('; '.join([f'{cfg.runs or cfg.results or cfg.predictions}: no runs there',
                                    *problems[:2]]))
    return runs


def read_trees(cfg, problems):
    """The runs of predictions and results; of those in both, the predictions'."""
    ours, theirs = ([run for run, *_ in read_tree(cfg, root, read, problems)] for root, read in (
        (cfg.predictions, read_predictions), (cfg.results, read_results)))
    if alone := sum(run.test is None for run in theirs):
        problems.append(f'{cfg.results}: {alone:,} runs have results.json alone: take --protocol=paper')
    names = 'model', 'task', 'dataset', 'lr', 'seed'
    scored = grouped(ours, *names)
    others = [run for key, own in grouped(theirs, *names).items() if key not in scored for run in own]
    if twice := len(theirs) - len(others):
        problems.append(f'{cfg.results}: {twice:,} of its runs are in {cfg.predictions}, too; read there')
    runs = ours + [run for run in others if run.test is not None]
    for key, group in grouped(runs, 'model', 'task', 'dataset').items():
        pairs = {(run.lr, run.seed) for run in group}
        axes = zip(zip(*pairs), *(run.grid for run in group if run.grid))    # learning rates, seeds
        grid = itertools.product(*(sorted(set().union(*axis)) for axis in axes))
        if missing := [run_name(*pair) for pair in grid if pair not in pairs]:
            problems.append(f'{"/".join(key)}: missing {", ".join(missing)}')
    return runs


# ---------------------------------------------------------------------------------------------------- tables

def table(cfg, problems):
    """Print a table for each kind of task: a row a model, a column a dataset."""
    if cfg.published and not any(map(os.path.exists, (cfg.runs, cfg.predictions, cfg.results))):  # alone
        cfg = dataclasses.replace(cfg, published=False, protocol='paper')
        cells = {key: Cell(mean / 100, (mean - x) / 100, (mean + x) / 100, None, dict.fromkeys(range(5)))
                 for key, (mean, x) in paper.numbers().items() if key[0] in (cfg.models or [key[0]])}
    else:
        cells = make_cells(read_runs(cfg, problems), cfg, problems)
    for task in dict.fromkeys(key[1:] for key in cells):
        if len({run.data for key in cells if key[1:] == task for run in cells[key].runs if run.data}) > 1:
            problems.append(f'{task[1]}: its models were tested on different data, and cannot be compared')
    if cfg.format == 'csv':
        return print_csv(cells, cfg)
    for kind in KINDS:
        if own := {key: cell for key, cell in cells.items() if key[1] == kind}:
            print_table(own, cfg)
    print(PROTOCOLS[cfg.protocol])
    print('seeds a/b, lr a..b: datasets differ. data: the first digits of the sha256 of what was scored.'
          + '\nBehind the stroke: the paper\'s appendix C.' * cfg.published)


def print_csv(cells, cfg):
    writer = csv.writer(sys.stdout, lineterminator='\n')
    names = 'model task dataset metric mean low high n seeds lr weights data protocol'
    writer.writerow((names + ' published published_ci95' * cfg.published).split())
    for key, cell in cells.items():
        metric, n = (cell.runs[0].metric, cell.runs[0].n or '') if cell.runs else ('', '')
        words = (map(lr_text, sorted({run.lr for run in cell.runs})),
                 sorted({run.weights for run in cell.runs} - {''}),
                 sorted({run.data[:12] for run in cell.runs}))
        published = (paper.published(*key, cells) or ('', '')) if cfg.published else ()
        writer.writerow((*key, metric, *(f'{x:.4f}' for x in cell.percent), n, len(cell.scores),
                         *map('|'.join, words), cfg.protocol, *published))


def heading(dataset, runs):
    """A column's: the dataset, its metric, how many instances, their sha256."""
    if not runs:
        return dataset
    n = '/'.join(f'{n:,}' for n in sorted({run.n for run in runs if run.n}))
    data = '/'.join(sorted({run.data[:8] for run in runs if run.data}))
    return f'{dataset} ({runs[0].metric}{n and f", n={n}"}{data and f", data {data}"})'


def print_table(cells, cfg):
    """Print {(model, task, dataset): Cell} of one kind of task."""
    models, (kind,), datasets = (dict.fromkeys(names) for names in zip(*cells))
    datasets = sorted(datasets, key=lambda name: name == 'Average')
    rows = [[kind, 'seeds', 'lr', *(heading(name, [run for key, cell in cells.items() if key[2] == name
                                                   for run in cell.runs]) for name in datasets)]]
    for model in models:
        own = [cell for key, cell in cells.items() if key[0] == model and key[2] != 'Average']
        runs = [run for cell in own for run in cell.runs]
        notes = sorted({word for run in runs for word in (run.kind, run.weights)} - USUAL)
        lrs = sorted({run.lr for run in runs if run.lr})
        row = [f'{model} ({", ".join(notes)})' if notes else model,
               '/'.join(sorted({str(len(cell.scores)) for cell in own})),
               '..'.join(map(lr_text, sorted({lrs[0], lrs[-1]}))) if lrs else '-']
        for key in ((model, kind, dataset) for dataset in datasets):
            row.append(str(cells.get(key, '-')))
            if cfg.published and (published := paper.published(*key, cells)):
                row[-1] += ' / {:.2f} ({:.2f})'.format(*published)
        rows.append(row)
    widths = [max(map(len, column)) for column in zip(*rows)]
    if cfg.format == 'markdown':
        rows.insert(1, ['-' * width for width in widths])
    for row in rows:
        padded = [text.ljust(width) for text, width in zip(row, widths)]
        print(f'| {" | ".join(padded)} |' if cfg.format == 'markdown' else '  '.join(padded).rstrip())
    print()


def compare(cfg, first, second, problems):
    """Paired bootstrap tests: second - first on the same test instances, per dataset."""
    if cfg.protocol != 'standard' or cfg.published or cfg.models:
        raise ValueError('compare takes two models and standard scores: no --protocol, --published, --models')
    cfg = dataclasses.replace(cfg, models=(first, second))
    cells = make_cells(read_runs(cfg, problems), cfg, problems)
    shared = [(task, dataset) for model, task, dataset in cells
              if model == first and (second, task, dataset) in cells and dataset != 'Average']
    if not shared:
        raise ValueError('; '.join([f'{first} and {second} have no dataset in common', *problems]))
    print(f'{second} - {first}, in points; p is two-sided')
    values = []
    for task, dataset in shared:
        a, b = cells[first, task, dataset], cells[second, task, dataset]
        if a.runs[0].data != b.runs[0].data or a.runs[0].instances()['ids'] != b.runs[0].instances()['ids']:
            problems.append(f'{dataset}: the two models were tested on different data')
            continue
        low, high, p = paired(a, b, cfg)
        values.append(p)
        sign = 'p <= ' if p == 2 / (cfg.resamples + 1) else 'p = '    # the draws show no less
        print(f'  {task} {dataset:<14} {100 * a.mean:6.1f} -> {100 * b.mean:6.1f}   '
              f'{100 * (b.mean - a.mean):+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]   '
              f'{"no p value" if p is None else sign + f"{p:.4f}"}   '
              f'n = {a.runs[0].n:,}, {len(a.scores)} and {len(b.scores)} seeds')
    if None in values:
        print('No p value with one seed of a model: another seed may turn the sign.')


# ------------------------------------------------------------------------------------------------- figures

def points_of_models(cfg, problems):
    """[(model, its pretraining, task, mean, low, high)] in percent: of several datasets the mean."""
    if cfg.published:
        return [(model, paper.models()[model], kind, mean, mean - half, mean + half) for kind in KINDS
                for (model, task, dataset), (mean, half) in paper.numbers().items()
                if (task, dataset) == (kind, 'Average') and model in (cfg.models or [model])]
    runs = read_runs(cfg, problems)
    pretraining = paper.models() | {run.model: run.pretraining for run in runs if run.pretraining}
    probes = {run.model for run in runs if run.kind == 'probe'}
    cells = make_cells(runs, cfg, problems)
    return [(f'{model} (probe)' if model in probes else model, pretraining.get(model), kind, *cell.percent)
            for kind in KINDS for model, cell in shared_means(cells, kind, cfg, problems).items() if cell]


def points_of_rates(cfg, problems):
    """[(task, model, learning rate, mean, least, most)] of the seeds, in percent: the paper's figure 5."""
    points, runs = [], [run for run in read_runs(cfg, problems) if run.lr and run.test is not None]
    runs.sort(key=lambda run: list(KINDS).index(run.task))
    for key, group in grouped(runs, 'task', 'model', 'lr').items():
        scores = [100 * statistics.fmean(run.test for run in own) for own in grouped(group, 'seed').values()]
        points.append((*key, statistics.fmean(scores), min(scores), max(scores)))
    return points


def figure(cfg, name, folders, problems):
    """Write <out>/<name>.png."""
    check_value('figure', str, name, choices=(*figures.AGAINST, 'bars', 'lr', 'switch', 'summary'))
    if cfg.published and name in ('lr', 'switch', 'summary'):
        raise ValueError(f'figure {name}: the paper publishes no numbers for it; leave --published out')
    if bool(folders) != (name in ('switch', 'summary')):
        raise ValueError(f'figure {name} takes {"no " if folders else ""}folders of pretraining runs')
    histories = [losses.history(folder) for folder in folders]
    if name == 'switch':
        drawn = figures.switch(histories)
    elif name == 'summary':
        cells = make_cells(read_runs(cfg, problems), cfg, problems)
        drawn = figures.summary(histories, [
            (f'{dataset}, {cell.runs[0].metric}', model, cell.runs[0].kind, *cell.percent)
            for (model, _, dataset), cell in cells.items() if cell.runs])
    elif name == 'lr':
        drawn = figures.curves(points_of_rates(cfg, problems), 'learning rate', 'log')
    else:
        points = points_of_models(cfg, problems)
        drawn = figures.bars(points) if name == 'bars' else figures.against(name, points)
    path = Path(cfg.out, f'{name}.png')
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn.savefig(path, dpi=150, bbox_inches='tight')
    print(path)


def export(cfg, target, problems):
    """Write the scores of all predictions in the format of the paper's authors."""
    Path(target).mkdir(parents=True, exist_ok=True)
    count = 0
    with locked(target, '.export.lock'):
        for _, folder, about, scores in read_tree(cfg, cfg.predictions, read_predictions, problems):
            prefix = f'{about["trained_on"]}_' if about.get('trained_on') else ''
            path = Path(target, *folder.parts[-4:-1], prefix + folder.name, 'results.json')
            content = {split: scores[split]['paper'] for split in SPLITS}
            if path.exists() and read_json(path) != content:
                raise ValueError(f'{path}: has other scores; remove it, or export into another folder')
            path.parent.mkdir(parents=True, exist_ok=True)
            remove_temporaries(path.parent)
            write_json(path, content, indent=None)
            count += 1
    print(f'{target}: {count:,} runs')


def main():
    words = list(itertools.takewhile(lambda word: not word.startswith('-'), sys.argv[1:]))
    cfg, _ = parse(Settings, sys.argv[1 + len(words):])
    problems = []   # in words: what is missing or damaged, while the rest goes on
    match words:
        case ['table']:
            table(cfg, problems)
        case ['compare', first, second]:
            compare(cfg, first, second, problems)
        case ['figure', name, *folders]:
            figure(cfg, name, folders, problems)
        case ['losses', *folders]:
            losses.table(folders)
        case ['export', target]:
            export(cfg, target, problems)
        case _:
            raise ValueError('the command is table, compare A B, figure KIND, losses or export; see --help')
    for problem in problems:
        print(f'warning: {problem}', file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == '__main__':
    run_main(main)

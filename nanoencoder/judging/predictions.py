"""Scores of runs on disk: of predictions, of the authors' results, and packed. Needs no torch."""
import contextlib
import functools
import gzip
import itertools
import json
import os
import re
import zlib
from pathlib import Path

from nanoencoder.judging import paper
from nanoencoder.durable import (expect, locked, read_csv, read_json, remove_temporaries, sha256, whole_file,
                                 write_csv, write_json)
from nanoencoder.judging.intervals import key_of
from nanoencoder.judging.metrics import KINDS, both_scores
from nanoencoder.judging.protocols import SPLITS, Run, grouped, key_of_ids, lr_text, run_name
from nanoencoder.settings import quoted

VERSION = 2     # of scores.json: with another, runs are scored again
RESULTS = dict.fromkeys(SPLITS, {'score': float, 'scores_i': list})     # the form of results.json
STANDARD = dict.fromkeys(SPLITS, dict(score=float, ids=[str], numerators=[float], denominators=[float]))
ABOUT = {'kind': str, 'weights': str, 'data': str, 'settings': dict, 'grid': [[float]],   # of run.json
         'pretraining': {'phases': [list], 'mask_ratio': float, 'step': int, 'flops': float},
         'scheme': str, 'trained_on': str}
FACTS = 'kind', 'weights', 'data', 'settings', 'grid', 'pretraining'     # of these, what a Run has
PACKED = {'name': str} | {split: {'paper': {'score': float}, 'standard': STANDARD[split] | {'ids': int}}
                          for split in SPLITS}
SAME = 'folder', 'dataset', 'lr', 'seed'     # of the same run
COLUMNS = 'model', 'origin', 'task', 'dataset', 'metric', 'lr', 'seed', 'n', 'validation', 'test', 'folder'


# -------------------------------------------------------------------------------------------- scores of a run

def score_run(folder, kind, scheme):
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


def check_about(about, where):
    """What run.json says, without what it does not know. ValueError if it has not its form."""
    about = {name: value for name, value in about.items() if value is not None}
    for content, form in ((about, ABOUT | {'sha256': dict}),
                          (about.get('pretraining', {}), {'row': str, 'seed': int})):
        expect(content, {name: form[name] for name in form if name in content}, where)
    return about


def read_predictions(folder, about):
    """scores.json of a run; scored unless there are whole scores of these very predictions."""
    path, scores = folder / 'scores.json', {}
    digests = {file.name: sha256(file) for file in (folder / 'run.json', *folder.glob('*.jsonl.gz'))}
    for name, digest in about.get('sha256', {}).items():
        if digests.get(name) != digest:
            raise ValueError(f'{folder / name}: missing or damaged: its sha256 is not the one in run.json')
    with contextlib.suppress(ValueError):   # none yet, or damaged
        scores = read_json(path)
    stated = scores.pop('digest', None), scores.get('version'), scores.get('sha256')
    if stated != (key_of(json.dumps(scores)), VERSION, digests) or (folder / '.scores.lock').exists():
        scores = {'version': VERSION, 'sha256': digests}
        scores |= score_run(folder, folder.parts[-3], about.get('scheme') or 'IOB2')
        if os.access(folder, os.W_OK):
            with contextlib.suppress(BlockingIOError), locked(folder, '.scores.lock'):  # or another does
                remove_temporaries(folder, path.name)
                write_json(path, scores | {'digest': key_of(json.dumps(scores))}, indent=None)
    return scores


def read_results(folder, about):
    """The same of a run in the authors' format."""
    theirs = read_json(folder / 'results.json', RESULTS)
    if not all(0 <= theirs[split]['score'] < 1.001 and theirs[split]['scores_i'] for split in SPLITS):
        raise ValueError(f'{folder / "results.json"}: a score is no fraction of 1, or of no instances')
    return {'name': None} | {split: {'paper': theirs[split], 'standard': None} for split in SPLITS}


# ------------------------------------------------------------------------------------------------------ runs

def run_folders(root, theirs, problems):
    """(folder, run.json, () -> its scores) of each <root>/<model>/<TASK>/<dataset>/<run>.

    theirs  whether they are of the authors, whose folders say nothing of a run but its scores
    """
    from tqdm import tqdm
    read = read_results if theirs else read_predictions
    for folder in tqdm(sorted(Path(root).glob('*/*/*/[!.]*')), delay=2, disable=None, leave=False):
        if folder.name.endswith('.error.txt'):
            continue
        try:
            about = {} if theirs else check_about(read_json(folder / 'run.json'), folder / 'run.json')
        except ValueError as error:
            problems.append(str(error))
        else:
            yield folder, about, functools.partial(read, folder, about)


def packed_runs(root, problems):
    """The same of <root>/*.jsonl.gz: the folders were there, and scores are as far as kept."""
    def unpack(line):
        return json.loads(zlib.decompress(line))['scores']
    for path in sorted(Path(root).glob('*.jsonl.gz')):
        try:
            with gzip.open(path, 'rb') as file:
                for number, line in enumerate(file, 1):
                    content, where = json.loads(line), f'line {number}'
                    expect(content, {'run': str, 'about': dict, 'scores': PACKED}, where)
                    about = check_about(content['about'], where)
                    yield Path(root, content['run']), about, functools.partial(unpack, zlib.compress(line, 1))
        except (OSError, EOFError, ValueError, LookupError, zlib.error) as error:
            problems.append(f'{path}: damaged: {error}')


def read_tree(cfg, root, problems, theirs=False):
    """(Run, folder, run.json, scores) of each run beneath root, in a folder or packed, that can be read."""
    done, rows = set(), {}
    for folder, about, load in itertools.chain(run_folders(root, theirs, problems),
                                               packed_runs(root, problems)):
        model, _, dataset, _ = folder.parts[-4:]
        rows[model] = row = about.get('pretraining', {}).get('row') or model
        if folder in done or not cfg.asks_for(row, dataset):
            continue
        try:
            lr, seed = lr_and_seed(folder)
            scores = load()
        except (ValueError, OSError) as error:
            problems.append(str(error))
            continue
        done.add(folder)
        yield make_run(cfg, row, folder, lr, seed, about, scores, load), folder, about, scores
    for path in sorted(Path(root).glob('*/*/*/*.error.txt')):
        folder, model = path.with_name(path.name.removesuffix('.error.txt')), path.parts[-4]
        if folder not in done and cfg.asks_for(rows.get(model, model), path.parts[-2]):
            error = path.read_text(encoding='utf-8', errors='replace').strip().rpartition('\n')[2]
            problems.append(f'{folder.parent}: {folder.name} failed: {error}')


def lr_and_seed(folder):
    """As its name says; the authors have a training set before them."""
    match = re.fullmatch(r'(?:.+_)?lr(\d+(?:\.\d+)?(?:e[-+]?\d+)?)_sd(\d{1,18})', folder.name)
    if not match or folder.parts[-3] not in KINDS:
        raise ValueError(f'{folder}: not named as a run, SC/sst2/lr1e-04_sd0 or IR/nq/x_lr1e-04_sd0')
    return float(match[1]), int(match[2])


def make_run(cfg, row, folder, lr, seed, about, scores, load):
    """The Run of a folder; instances are loaded when they are needed."""
    (model, kind, dataset, _), past = folder.parts[-4:], about.get('pretraining', {})
    scored = [scores[split] for split in SPLITS if cfg.split in (split, 'both')]
    n = sum(len(own['standard']['numerators'] if own['standard'] else own['paper']['scores_i'])
            for own in scored)
    facts = {name: about[name] for name in FACTS if name in about}
    return Run(row, kind, dataset, lr, seed,
               *((scores[split][cfg.protocol] or {}).get('score') for split in SPLITS),
               KINDS[kind].metric if cfg.protocol == 'paper' else scores['name'], n,
               lambda split: load()[split]['standard'], origin=past.get('seed') if past.get('row') else None,
               folder=model, **facts)


def read_runs(cfg, problems):
    """The Runs of --runs, or of predictions and results. Whatever a grid lacks is a problem."""
    if cfg.runs and cfg.protocol == 'standard':
        raise ValueError('runs: raw scores have no instances to resample; take --protocol=paper')
    if cfg.runs:
        runs = [run for run in paper.read_runs(cfg.runs) if cfg.asks_for(run.model, run.dataset)]
    else:
        runs = read_trees(cfg, problems)
    for name in ('model', 'dataset'):
        if absent := set(getattr(cfg, name + 's')) - {getattr(run, name) for run in runs}:
            problems.append(f'{name}s: there is no {", ".join(sorted(map(quoted, absent)))}')
    if not runs:
        raise ValueError('; '.join([f'{cfg.runs or cfg.results or cfg.predictions}: no runs there',
                                    *problems[:2]]))
    return runs


def read_trees(cfg, problems):
    """The runs of predictions and results; of those in both, the predictions'."""
    ours, theirs = ([run for run, *_ in read_tree(cfg, root, problems, theirs)] if root else []
                    for root, theirs in ((cfg.predictions, False), (cfg.results, True)))
    if alone := sum(run.test is None for run in theirs):
        problems.append(f'{cfg.results}: {alone:,} runs have results.json alone: take --protocol=paper')
    names = 'folder', 'task', 'dataset', 'lr', 'seed'
    scored = grouped(ours, *names)
    others = [run for key, own in grouped(theirs, *names).items() if key not in scored for run in own]
    if twice := len(theirs) - len(others):
        problems.append(f'{cfg.results}: {twice:,} of its runs are in {cfg.predictions}, too; read there')
    runs = ours + [run for run in others if run.test is not None]
    for key, group in grouped(runs, 'folder', 'task', 'dataset').items():
        pairs = {(run.lr, run.seed) for run in group}
        axes = zip(zip(*pairs), *(run.grid for run in group if run.grid))    # learning rates, seeds
        grid = itertools.product(*(sorted(set().union(*axis)) for axis in axes))
        if missing := [run_name(*pair) for pair in grid if pair not in pairs]:
            problems.append(f'{"/".join(key)}: missing {", ".join(missing)}')
    return runs


# --------------------------------------------------------------------------------------------------- packing

def write_packed(folder, runs):
    """Write <folder>/runs/s<pretraining seed>.jsonl.gz and <folder>/scores.csv of what `read_tree` yields.

    Instances keep their order; in place of their ids stands one number of them all. The same runs are the
    same bytes. Returns how many there are. ValueError where scores.csv has a run that is nowhere any more.
    """
    files, table, root = {}, [], Path(folder, 'runs')
    for run, path, about, scores in runs:
        line = {'run': str(path.relative_to(root)), 'scores': {'name': scores['name']},
                'about': {name: about[name] for name in ABOUT if about.get(name)}}
        for split in SPLITS:
            standard = scores[split]['standard']
            line['scores'][split] = {'paper': {'score': scores[split]['paper']['score']},
                                     'standard': standard | {'ids': key_of_ids(standard['ids'])}}
        origin = '' if run.origin is None else run.origin
        files.setdefault('other' if run.origin is None else f's{origin}', []).append(
            json.dumps(line, sort_keys=True, ensure_ascii=False).encode() + b'\n')
        table.append((run.model, origin, run.task, run.dataset, run.metric, lr_text(run.lr), run.seed, run.n,
                      f'{run.validation:.6f}', f'{run.test:.6f}', run.folder))
    held, whose = read_csv(Path(folder, 'scores.csv'), COLUMNS), [*map(COLUMNS.index, SAME)]
    if lost := {tuple(row[name] for name in SAME) for row in held} - {
            tuple(str(row[k]) for k in whose) for row in table}:
        raise ValueError(f'{root}: {len(lost)} runs of scores.csv are not there, as {", ".join(min(lost))}; '
                         'restore its files, or remove scores.csv')
    for name, lines in files.items():
        with whole_file(root / f'{name}.jsonl.gz') as raw, \
                gzip.GzipFile('', 'wb', fileobj=raw, mtime=0) as file:
            file.writelines(sorted(lines))
    write_csv(Path(folder, 'scores.csv'), COLUMNS, sorted(table, key=lambda row: list(map(str, row))))
    return len(table)

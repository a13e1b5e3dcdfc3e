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
    """(folder, about, scores) of the runs <root>/<model>/<TASK>/<dataset>/<run>; what cannot be read is a problem."""
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
            yield folder, *read(folder, kind)
        except ValueError as error:
            problems.append(str(error))
        except (TypeError, KeyError, AttributeError, IndexError, OSError) as error:
            problems.append(f'{folder}: cannot be scored: {error!r}')


def runs_of_tree(cfg, root, read, problems):
    """Runs of a folder. Those without the protocol's scores have None for them."""
    runs = []
    for folder, about, scores in read_tree(cfg, root, read, problems):
        *_, model, kind, dataset, name = folder.parts
        match = re.fullmatch(r'(?:.+_)?lr([\d.]+(?:e[-+]?\d+)?)_sd(\d+)', name)
        if not match:
            problems.append(f'{folder}: not the name of a run, as lr1e-04_sd0 or msmarco_pairs_lr1e-04_sd0')
            continue
        ...
    return runs

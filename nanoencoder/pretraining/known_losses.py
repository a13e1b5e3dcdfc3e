"""Which held-out losses a run should have, where a study has trained the same run with other seeds."""
import csv
import statistics
from collections import defaultdict
from pathlib import Path

from nanoencoder.settings import flat, make_settings, read, settings_of

SHARES = 1 / 3, 2 / 3, 1    # of a run's validations, of which the losses are told


def expected_in_words(cfg):
    """Say which losses earlier seeds of a run had after a few steps, of the objective with which it ends: ''
    if no study has trained two of them. Of several studies it is the one with the most seeds."""
    objective = cfg.phases[-1][0]
    most = 1
    words = ''
    for study, row in same_runs(cfg):
        losses = losses_of(study, row, f'val_{objective}_loss')
        if not losses:
            continue
        steps = sorted(losses)
        last = losses[steps[-1]]
        if len(last) > most:
            most = len(last)
            told = [steps[round(share * len(steps)) - 1] for share in SHARES]
            means = ', '.join(f'{statistics.fmean(losses[step]):.2f} after {step:,}' for step in told)
            words = (f'held-out {objective}, means of {most} seeds in {study}: {means} steps '
                     f'({min(last):.2f} to {max(last):.2f})')
    return words


def same_runs(cfg):
    """Yield (a study's folder, its row) of rows that differ from a run in nothing but the seed. A branch is
    the same run as one from scratch."""
    for table in sorted(Path('studies').glob('*/losses.csv')):
        study = {name: value for name, (value, _) in read(table.parent / 'config.py').items()}
        corpus = settings_of(study.get('corpus', {}))
        if Path(corpus.get('out', '')) != Path(cfg.corpus):
            continue
        for row, changes in study.get('runs', {}).items():
            run = settings_of(study.get('every_run', {}) | changes) | {'name': row}
            if cfg.weights_from or 'weights_from' in run:   # whose weights nothing compares
                continue
            if deciding(make_settings(type(cfg), run)) == deciding(cfg):
                yield table.parent, row


def deciding(cfg):
    """{name: value} of what decides a run's losses, but for its seed."""
    return flat(cfg, decides=('results',)) | {'seed': 0}


def losses_of(study, row, column):
    """{step: [loss of each seed]} of a study's row."""
    losses = defaultdict(list)
    with open(study / 'losses.csv', encoding='utf-8') as file:
        for line in csv.DictReader(file):
            if line['row'] == row and line.get(column):
                losses[int(line['step'])].append(float(line[column]))
    return losses

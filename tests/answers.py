"""Folders of predictions with so many right answers, and what evaluate.py says of them."""
from conftest import ran
from nanoencoder.predictions import SCORED, write_run


def answers(right, count=100):
    """So many right answers, the first ones."""
    rows = []
    for k in range(count):
        pred = 'yes' if k < right else 'no'
        rows.append({'id': k, 'gold': 'yes', 'pred': pred})
    return rows


def write(folder, rows, name='lr1e-04_sd0', **about):
    about = {'method': 'fine-tuned', 'weights': 'fp32', 'data': 'd' * 64, 'settings': {}} | about
    if not isinstance(rows, dict):
        rows = dict.fromkeys(SCORED, rows)
    write_run(folder / name, about, rows)


PAST = {'phases': [['mlm', 6]], 'mask_ratio': 0.4, 'step': 6, 'flops': 1.0, 'continues': '',
        'fixed': {'lr': 1}}
CLM = PAST | {'phases': [['clm', 6]], 'row': 'clm'}


def asked(folder, *words):
    """A command line of evaluate.py"""
    return 'evaluate.py', *words, f'--predictions={folder}', '--resamples=500', f'--out={folder}'


def told(folder, *words):
    """What a command, which ends well, prints."""
    return ran(*asked(folder, *words)).stdout

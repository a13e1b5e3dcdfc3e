"""What the paper published: the models and the tables of its appendix C, from configs/paper."""
import csv
import functools
import json
from pathlib import Path

OURS = {'mnli': 'mnli_m'}   # {the authors' folder: our name}
FOLDER = Path(__file__).parents[2] / 'configs/paper'


def rows_of(name):
    with open(FOLDER / name, encoding='utf-8') as file:
        return [*csv.DictReader(file)]


def models():
    """Return {name: its pretraining} of the paper's 50 models, as finetune.py writes it for ours."""
    models = {}
    for row in rows_of('models.csv'):
        models[row['model']] = row | {
            'phases': json.loads(row['phases']),
            'step': int(row['step']),
            'mask_ratio': float(row['mask_ratio']),
            'flops': float(row['flops']),
        }
    return models


@functools.cache
def numbers():
    """Return {(model, task, dataset): (mean, half of the interval)} in percent; its appendix C."""
    numbers = {}
    for row in rows_of('tables.csv'):
        key = row['run'], row['task'], row['dataset']
        numbers[key] = float(row['mean']), float(row['ci95'])
    return numbers


def cell(model, task, dataset, keys):
    """Return (mean, half of the interval) in percent, or None. An average has one if `keys`, which are
    (model, task, dataset), have the same datasets as the paper."""
    if dataset == 'Average':
        ours = datasets_of(model, task, keys)
        papers = datasets_of(model, task, numbers())
        if {OURS.get(name, name) for name in ours} != papers:
            return None
    return numbers().get((model, task, OURS.get(dataset, dataset)))


def datasets_of(model, task, keys):
    """Return the datasets that a model has of a task."""
    return {name for *about, name in keys if about == [model, task]}

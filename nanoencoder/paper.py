"""What the paper published: numbers, models."""
import csv
import functools
import json
from pathlib import Path

OURS = {'mnli': 'mnli_m'}   # the authors' folder: our name
FOLDER = Path(__file__).parents[1] / 'configs/paper'


def models():
    """{name: its pretraining} of the paper's 50 models, as finetune.py writes it for ours."""
    return {row['model']: row | {'phases': json.loads(row['phases']), 'step': int(row['step']),
                                 'mask_ratio': float(row['mask_ratio']), 'flops': float(row['flops'])}
            for row in csv.DictReader((FOLDER / 'models.csv').read_text(encoding='utf-8').splitlines())}


@functools.cache
def numbers():
    """{(model, task, dataset): (mean, half of the interval)} in percent; its appendix C."""
    return {(row['run'], row['task'], row['dataset']): (float(row['mean']), float(row['ci95']))
            for row in csv.DictReader((FOLDER / 'tables.csv').read_text(encoding='utf-8').splitlines())}


def published(model, task, dataset, keys):
    """(mean, half of the interval) in percent, or None; of an average if `keys` have its datasets."""
    ours, papers = ({OURS.get(name, name) for *about, name in names if about == [model, task]}
                    for names in (keys, numbers()))
    if dataset != 'Average' or ours == papers:
        return numbers().get((model, task, OURS.get(dataset, dataset)))

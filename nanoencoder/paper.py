"""The numbers that the paper published, its models, and its words for datasets. Nothing here computes a score."""
import csv
import functools
import json
from pathlib import Path

FOLDER = Path(__file__).parent.parent / 'configs/paper'
DATASETS = {'sst2': 'SST-2', 'qqp': 'QQP', 'mnli_m': 'MNLI', 'mnli': 'MNLI', 'conll2003_en': 'CoNLL',
            'ontonotes': 'OntoNotes', 'uner_en': 'UNER', 'squad': 'SQuAD', 'squad_v2': 'SQuAD-v2',
            'record': 'ReCoRD', 'msmarco': 'MS MARCO', 'nq': 'NQ', 'mldr_en': 'MLDR'}  # the authors' folder: its word


def read(name):
    with open(FOLDER / name, newline='', encoding='utf-8') as file:
        return list(csv.DictReader(file))


@functools.cache
def models():
    """{name: its pretraining} of the paper's 50 models, in the form in which finetune.py writes it for ours."""
    return {row['model']: row | {'phases': json.loads(row['phases']), 'mask_ratio': float(row['mask_ratio']),
                                 'step': int(row['step']), 'flops': float(row['flops'])}
            for row in read('models.csv')}


@functools.cache
def numbers():
    """{(model, task, the paper's word for the dataset): (mean, half of the interval)} in percent; its appendix C."""
    return {(row['run'], row['task'], row['dataset']): (float(row['mean']), float(row['ci95']))
            for row in read('tables.csv')}


def published(model, task, dataset, datasets):
    """(mean, half of the interval) in percent, or None.

    datasets  what our average is over; the paper's average is beside it only if these are the same
    """
    if dataset == 'Average':
        averaged = {word for name, kind, word in numbers() if (name, kind) == (model, task) and word != dataset}
        if averaged != {DATASETS.get(name) for name in datasets}:
            return None
    return numbers().get((model, task, DATASETS.get(dataset, dataset)))

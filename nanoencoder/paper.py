"""What the paper published: numbers, models, words for datasets, raw runs. Nothing here computes a score."""
import csv
import functools
import json
from pathlib import Path

from nanoencoder.metrics import KINDS
from nanoencoder.protocols import Run
from nanoencoder.settings import quoted

FOLDER = Path(__file__).parent.parent / 'configs/paper'
DATASETS = {  # the authors' folder: the paper's word
    'sst2': 'SST-2', 'qqp': 'QQP', 'mnli_m': 'MNLI', 'mnli': 'MNLI', 'conll2003_en': 'CoNLL',
    'uner_en': 'UNER', 'ontonotes': 'OntoNotes', 'squad': 'SQuAD', 'squad_v2': 'SQuAD-v2', 'record': 'ReCoRD',
    'msmarco': 'MS MARCO', 'nq': 'NQ', 'mldr_en': 'MLDR'}


def read(path):
    with open(path, newline='', encoding='utf-8') as file:
        return list(csv.DictReader(file))


@functools.cache
def models():
    """{name: its pretraining} of the paper's 50 models, as finetune.py writes it for ours."""
    return {row['model']: row | {'phases': json.loads(row['phases']), 'mask_ratio': float(row['mask_ratio']),
                                 'step': int(row['step']), 'flops': float(row['flops'])}
            for row in read(FOLDER / 'models.csv')}


@functools.cache
def numbers():
    """{(model, task, word for the dataset): (mean, half of the interval)} in percent; its appendix C."""
    return {(row['run'], row['task'], row['dataset']): (float(row['mean']), float(row['ci95']))
            for row in read(FOLDER / 'tables.csv')}


def published(model, task, dataset, keys):
    """(mean, half of the interval) in percent, or None; of an average if `keys` have its datasets."""
    if dataset == 'Average':
        ours, theirs = ({name for *about, name in every if about == [model, task]} - {dataset}
                        for every in (keys, numbers()))
        if {DATASETS.get(name) for name in ours} != theirs:
            return None
    return numbers().get((model, task, DATASETS.get(dataset, dataset)))


def read_runs(path):
    """Raw scores of runs, model,task,dataset,lr,seed,validation,test. Empty cells are unknown."""
    def number(text):
        if not abs(float(text)) < 1e6:
            raise ValueError(f'{quoted(text)} is out of range')
        return float(text)

    def known(text):
        return number(text) if text else None
    with open(path, newline='', encoding='utf-8') as file:
        reader = csv.DictReader(file)
        try:
            return [Run(row['model'], row['task'], row['dataset'], number(row['lr']),
                        int(row['seed']), known(row['validation']), known(row['test']),
                        KINDS[row['task']].metric) for row in reader]
        except (LookupError, ValueError, TypeError, csv.Error) as error:
            raise ValueError(f'{path}, line {reader.line_num}: not a table of runs: {error}') from None

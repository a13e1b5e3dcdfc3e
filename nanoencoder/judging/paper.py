"""What the paper published: claims, numbers, models, words for datasets."""
import csv
import functools
import json
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[2] / 'configs/paper'
DATASETS = {  # the authors' folder: the paper's word
    'sst2': 'SST-2', 'qqp': 'QQP', 'mnli_m': 'MNLI', 'mnli': 'MNLI', 'conll2003_en': 'CoNLL',
    'uner_en': 'UNER', 'ontonotes': 'OntoNotes', 'squad': 'SQuAD', 'squad_v2': 'SQuAD-v2', 'record': 'ReCoRD',
    'msmarco': 'MS MARCO', 'nq': 'NQ', 'mldr_en': 'MLDR'}
SIZES = '210m', '610m', '1b'


def minus(first, second, kinds=('SC', 'TC', 'QA', 'IR'), sizes=('610m',)):
    """{kind: {model: weight}}: the first less the second, the mean over these sizes."""
    models = {f'{size}-{run}': weight / len(sizes) for size in sizes
              for run, weight in ((first, 1), (second, -1))}
    return dict.fromkeys(kinds, models)


class Claim(NamedTuple):
    words: str
    published: dict     # {kind of task: {model: weight}}; none where the paper has a figure alone


CLAIMS = {      # of sections 3 to 5, for contrasts of the same name; early: at step 5,000
    'end': Claim('In the end MLM beats CLM, most of all on sentences and questions.',
                 minus('mlm40-42k', 'clm-42k', ('SC', 'QA', 'IR'))),
    'level': Claim('On token classification CLM is level with MLM.',
                   minus('clm-42k', 'mlm40-42k', ('TC',), SIZES)),
    'ratio': Claim(
        'No masking ratio is best: retrieval likes higher ones, small models lower ones elsewhere.',
        minus('mlm50-42k', 'mlm20-42k', ('IR',), SIZES)
        | minus('mlm50-42k', 'mlm20-42k', ('TC', 'QA'), ('210m',))),
    'early': Claim('Early in training CLM is ahead of MLM.', minus('clm-42k-5000', 'mlm40-42k-5000')),
    'rate': Claim('CLM is less sensitive to the learning rate of fine-tuning.', {}),
    'both': Claim('At equal compute CLM then MLM is at least as good as MLM (the paper: better).',
                  minus('clm-10k-mlm40-42k', 'mlm40-42k')),
    'continued': Claim('Continuing a CLM model with MLM beats continuing an MLM model.',
                       minus('clm-dec42k-mlm40-64k', 'mlm40-dec42k-mlm40-64k'))}


@functools.cache
def models():
    """{name: its pretraining} of the paper's 50 models, as finetune.py writes it for ours."""
    with open(FOLDER / 'models.csv', newline='', encoding='utf-8') as file:
        return {row['model']: row | {'phases': json.loads(row['phases']), 'step': int(row['step']),
                                     'mask_ratio': float(row['mask_ratio']), 'flops': float(row['flops'])}
                for row in csv.DictReader(file)}


@functools.cache
def numbers():
    """{(model, task, the paper's dataset): (mean, half of the interval)} in percent; its appendix C."""
    with open(FOLDER / 'tables.csv', newline='', encoding='utf-8') as file:
        return {(row['run'], row['task'], row['dataset']): (float(row['mean']), float(row['ci95']))
                for row in csv.DictReader(file)}


def published(model, task, dataset, keys):
    """(mean, half of the interval) in percent, or None; of an average if `keys` have its datasets."""
    ours, papers = ({DATASETS.get(name, name) for *about, name in names if about == [model, task]}
                    for names in (keys, numbers()))
    if dataset != 'Average' or ours == papers:
        return numbers().get((model, task, DATASETS.get(dataset, dataset)))

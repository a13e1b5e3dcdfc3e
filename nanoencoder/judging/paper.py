"""What the paper published: claims, numbers, models, words for datasets, raw runs. No scores are computed."""
import csv
import functools
import json
from pathlib import Path
from typing import NamedTuple

from nanoencoder.durable import read_csv
from nanoencoder.judging.metrics import KINDS
from nanoencoder.judging.protocols import SPLITS, Run
from nanoencoder.settings import quoted

FOLDER = Path(__file__).parents[2] / 'configs/paper'
DATASETS = {  # the authors' folder: the paper's word
    'sst2': 'SST-2', 'qqp': 'QQP', 'mnli_m': 'MNLI', 'mnli': 'MNLI', 'conll2003_en': 'CoNLL',
    'uner_en': 'UNER', 'ontonotes': 'OntoNotes', 'squad': 'SQuAD', 'squad_v2': 'SQuAD-v2', 'record': 'ReCoRD',
    'msmarco': 'MS MARCO', 'nq': 'NQ', 'mldr_en': 'MLDR'}


class Claim(NamedTuple):
    """One claim of the paper, which a study's contrast may be made for."""
    words: str
    where: str              # in the paper
    rule: str               # of nanoencoder/judging/evidence.py, by which its own numbers are judged
    published: dict         # {kind of task: {model: weight}}; none where it has a figure and no numbers
    untested: str = ''      # why the studies here do not test it
    opposite: tuple = ()    # kinds of which it says the opposite


SIZES = '210m', '610m', '1b'


def minus(first, second, kinds, sizes=('610m',)):
    """{kind: {model: weight}}: the first less the second, the mean over these sizes."""
    models = {f'{size}-{run}': weight / len(sizes) for size in sizes
              for run, weight in ((first, 1), (second, -1))}
    return dict.fromkeys(kinds, models)


def gap(ours, theirs):
    """{model: weight}: how much further MLM leads CLM at one size than at another."""
    return {f'{ours}-mlm40-42k': 1, f'{ours}-clm-42k': -1, f'{theirs}-mlm40-42k': -1, f'{theirs}-clm-42k': 1}


CLAIMS = {
    'end': Claim(
        'In the end MLM beats CLM, most of all on sentences and questions.', 'section 3, figure 2', 'better',
        minus('mlm40-42k', 'clm-42k', ('SC', 'QA', 'IR'))),
    'size': Claim(
        'With size, MLM\'s lead over CLM grows on sentences and shrinks in retrieval.', 'section 3, figure 2',
        'better', {'SC': gap('1b', '210m'), 'IR': gap('210m', '1b')}, 'it takes models of several sizes'),
    'level': Claim(
        'On token classification CLM is level with MLM.', 'section 3, figure 2', 'no_difference',
        minus('clm-42k', 'mlm40-42k', ('TC',), SIZES)),
    'ratio': Claim(
        'No masking ratio is best: retrieval likes higher ones, small models lower ones elsewhere.',
        'section 3, figure 3', 'better',
        minus('mlm50-42k', 'mlm20-42k', ('IR',), SIZES)
        | minus('mlm50-42k', 'mlm20-42k', ('TC', 'QA'), ('210m',)), opposite=('TC', 'QA')),
    'early': Claim(
        'Early in training CLM is ahead of MLM.', 'section 3, figure 4; here at step 5,000', 'better',
        minus('clm-42k-5000', 'mlm40-42k-5000', ('SC', 'TC', 'QA', 'IR'))),
    'rate': Claim(
        'CLM is less sensitive to the learning rate of fine-tuning.', 'section 3, figure 5', 'better', {}),
    'both': Claim(
        'At equal compute CLM then MLM is at least as good as MLM (the paper: better).',
        'section 4, figure 6', 'better', minus('clm-10k-mlm40-42k', 'mlm40-42k', ('SC', 'TC', 'QA', 'IR'))),
    'ratio_after': Claim(
        'After CLM, MLM is less sensitive to its masking ratio.', 'section 4, figure 7', 'better', {},
        'it takes all ratios after CLM and without'),
    'continued': Claim(
        'Continuing a CLM model with MLM beats continuing an MLM model.', 'section 5, figure 8', 'better',
        minus('clm-dec42k-mlm40-64k', 'mlm40-dec42k-mlm40-64k', ('SC', 'TC', 'QA', 'IR')))}


@functools.cache
def models():
    """{name: its pretraining} of the paper's 50 models, as finetune.py writes it for ours."""
    return {row['model']: row | {'phases': json.loads(row['phases']), 'mask_ratio': float(row['mask_ratio']),
                                 'step': int(row['step']), 'flops': float(row['flops'])}
            for row in read_csv(FOLDER / 'models.csv')}


@functools.cache
def numbers():
    """{(model, task, word for the dataset): (mean, half of the interval)} in percent; its appendix C."""
    return {(row['run'], row['task'], row['dataset']): (float(row['mean']), float(row['ci95']))
            for row in read_csv(FOLDER / 'tables.csv')}


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
    with open(path, newline='', encoding='utf-8') as file:
        reader = csv.DictReader(file)
        try:
            return [Run(row['model'], row['task'], row['dataset'], number(row['lr']), int(row['seed']),
                        *(number(row[split]) if row[split] else None for split in SPLITS),
                        KINDS[row['task']].metric) for row in reader]
        except (LookupError, ValueError, TypeError, csv.Error) as error:
            raise ValueError(f'{path}, line {reader.line_num}: not a table of runs: {error}') from None

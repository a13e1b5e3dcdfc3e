"""Results of any program, for `evaluate.py compare A B --results=results.csv`.

    system,seed,item,score
    A,0,q1,1
    A,0,q2,0
    B,0,q1,1
    B,0,q2,1

A line is what one training of a system got on one test item. Further columns, where there are any:

    dataset  each has a row of its own in the comparison
    cluster  items that belong together, such as questions on one text, are drawn together
    gold     the right answer; `score` is then what the system answered, and --metric says how both are scored

examples/results_from.py makes such a file from what other programs write. This file needs no torch."""
import functools
from pathlib import Path

import numpy as np

from nanoencoder.files import blame
from nanoencoder.metrics import CORRELATIONS, both_scores

COLUMNS = ('system', 'seed', 'item', 'score')
ONE_SEED = 'one seed'       # the method of a system with one training: it has a p value, over items alone


def read_results(path, systems, metric):
    """Return what evaluate.find_runs yields, of a .csv: (folder, run.json, a function that returns its
    scores) of each system, dataset and seed.

    systems  those that are compared: they must have the same items"""
    table = read_table(path)
    names = {Path(system).name for system in systems}
    compared = table[table['system'].isin(names)]
    check_items(path, compared)
    runs = []
    for (system, dataset), rows in table.groupby(['system', 'dataset'], sort=False):
        method = 'several seeds' if rows['seed'].nunique() > 1 else ONE_SEED
        for seed, of_seed in rows.groupby('seed', sort=False):
            folder = Path(system, 'SC', dataset, f'lr0_sd{seed}')
            scores = functools.partial(scores_of, path, of_seed.sort_values('item'), metric)
            runs.append((folder, {'method': method}, scores))
    return runs


def read_table(path):
    """Return the .csv as a DataFrame of texts."""
    import pandas
    with blame(f'{path}: is no .csv with the columns {", ".join(COLUMNS)}', ValueError):
        table = pandas.read_csv(path, dtype=str, keep_default_na=False, encoding='utf-8-sig')
    missing = {*COLUMNS} - {*table.columns}
    if missing:
        raise ValueError(f'{path}: has no column {", ".join(sorted(missing))}, but '
                         f'{", ".join(table.columns)}')
    if 'dataset' not in table:
        table['dataset'] = Path(path).stem
    # these are parts of a path in predictions/, where a system is a folder's name
    table['system'] = table['system'].str.split('/').str[-1]
    table['dataset'] = table['dataset'].str.replace('/', '-')
    wrong = table[~table['seed'].str.fullmatch(r'\d{1,18}')]
    if len(wrong):
        raise ValueError(f'{path}:{wrong.index[0] + 2}: seed {wrong["seed"].iloc[0]!r} is no whole number; '
                         'number the trainings of a system 0, 1, 2')
    return table


def check_items(path, table):
    """ValueError unless all trainings of a dataset have the same items, each once."""
    for dataset, rows in table.groupby('dataset'):
        trainings = ['system', 'seed']
        twice = rows[rows.duplicated([*trainings, 'item'])]
        if len(twice):
            system, seed, item = twice.iloc[0][[*trainings, 'item']]
            raise ValueError(f'{path}:{twice.index[0] + 2}: {dataset} has item {item!r} of {system}, seed '
                             f'{seed}, twice; give items names of their own, or their column dataset')
        items = {training: {*group} for training, group in rows.groupby(trainings)['item']}
        everything = set.union(*items.values())
        for (system, seed), own in items.items():
            lost = sorted(everything - own)
            if lost:
                raise ValueError(f'{path}: {dataset}: {system}, seed {seed}, lacks {len(lost):,} of '
                                 f'{len(everything):,} items, as {lost[0]!r}: give it a score of 0 there, or '
                                 'leave these items out of all')


def scores_of(path, rows, metric):
    """Return the scores of one training, in the form of evaluate.scores_of. They have no validation split."""
    name = 'score'
    if 'gold' in rows:
        as_answer = str
        if metric in CORRELATIONS:
            as_answer = functools.partial(as_number, path)
        answers = [
            {'id': item, 'pred': as_answer(score), 'gold': as_answer(gold)}
            for item, score, gold in zip(rows['item'], rows['score'], rows['gold'])]
        name, by_protocol = both_scores('SC', answers, metric=metric)
        standard = by_protocol['standard']
    else:
        scores = [as_number(path, score) for score in rows['score']]
        if max(map(abs, scores)) > 1:
            raise ValueError(f'{path}: a score of {max(scores, key=abs)} is beyond 1; divide percentages by '
                             '100, and other scores by the largest that there can be')
        standard = {
            'score': float(np.mean(scores)),
            'statistic': 'mean',
            'columns': [scores],
            'others': {},
            'ids': [*rows['item']]}
    if 'cluster' in rows:
        standard['clusters'] = [*rows['cluster']]
    return {
        'name': name,
        'validation': {'standard': {'score': 0.0}},
        'test': {'standard': standard}}


def as_number(path, text):
    with blame(f'{path}: score', ValueError):
        return float(text)

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
from nanoencoder.tables import open_text

COLUMNS = ('system', 'seed', 'item', 'score')
ONE_SEED = 'one seed'       # the method of a system with one training: it has a p value, over items alone


def read_results(path, systems, metric):
    """Return what evaluate.find_runs yields, of a .csv: (folder, run.json, a function that returns its
    scores) of each dataset and seed of two systems, which must have the same items."""
    table = read_table(path)
    if len({Path(system).name for system in systems}) < len(systems):
        raise ValueError(f'{" and ".join(systems)} are one name; give the systems two')
    for system in systems:
        if system not in {*table['system']}:
            raise ValueError(f'{path}: there is no {system}; its systems are '
                             f'{", ".join(table["system"].unique())}')
    table = table[table['system'].isin(systems)].copy()
    if 'gold' not in table:
        if metric != 'accuracy':
            raise ValueError(f'metric {metric}: is of answers, and {path} has no column gold')
        table['score'] = scores_in(path, table)
    elif metric in CORRELATIONS:
        for column in ('score', 'gold'):
            table[column] = numbers_in(path, table, column)
    elif not table['score'].isin(table['gold']).any():
        raise ValueError(f'{path}: no score is one of the right answers, as {table["gold"].iloc[0]!r:.80}: '
                         'write both alike')
    check_items(path, table)

    runs = []
    for (system, dataset), rows in table.groupby(['system', 'dataset'], sort=False):
        method = 'several seeds' if rows['seed'].nunique() > 1 else ONE_SEED
        for seed, of_seed in rows.groupby('seed', sort=False):
            folder = Path(system, 'SC', dataset, f'lr0_sd{seed}')
            scores = functools.partial(scores_of, of_seed.sort_values('item'), metric)
            runs.append((folder, {'method': method}, scores))
    return runs


def read_table(path):
    """Return the .csv as a DataFrame of texts, whose index is the numbers of lines."""
    import pandas
    what = f'{path}: is no .csv with the columns {", ".join(COLUMNS)}'
    with open_text(Path(path)) as file:     # it says of another encoding how to convert it
        with blame(what, pandas.errors.EmptyDataError, pandas.errors.ParserError):
            table = pandas.read_csv(file, dtype=str, keep_default_na=False, skipinitialspace=True)
    missing = [name for name in COLUMNS if name not in table]
    if missing:
        raise ValueError(f'{path}: has no column {", ".join(missing)}; its first line is '
                         f'{",".join(table.columns)!r:.80} and must name them, with commas between')
    if not len(table):
        raise ValueError(f'{path}: has no line below its first, which names the columns')
    if not isinstance(table.index, pandas.RangeIndex):
        raise ValueError(f'{path}:2: has more fields than the first line has names')
    table.index += 2    # the first line names the columns
    if 'dataset' not in table:
        table['dataset'] = Path(path).stem
    table['dataset'] = table['dataset'].str.replace('/', '-')   # it is a folder's name in predictions/

    refuse(path, table, 'seed', ~table['seed'].str.fullmatch(r'\d{1,18}'),
           'is no whole number; number the trainings of a system 0, 1, 2')
    refuse(path, table, 'dataset', table['dataset'] == '', 'is empty; give the dataset a name')
    for column in {'cluster', 'gold'} & {*table.columns}:
        refuse(path, table, column, table[column] == '', 'is empty; each item must have one, if only its own')
    return table


def refuse(path, table, column, wrong, advice):
    """ValueError that names the first line whose value in a column is wrong, if there is one.

    wrong  whether it is, of each line"""
    if wrong.any():
        line = wrong.idxmax()
        raise ValueError(f'{path}:{line}: {column} {table.loc[line, column]!r:.80} {advice}')


def numbers_in(path, table, column):
    """Return a column of texts as numbers."""
    import pandas
    numbers = pandas.to_numeric(table[column], errors='coerce')
    refuse(path, table, column, ~np.isfinite(numbers),
           'is no number; write 0 where a system has no answer; answers in words need a column gold')
    return numbers


def scores_in(path, table):
    """Return the column score as numbers of at most 1."""
    scores = numbers_in(path, table, 'score')
    refuse(path, table, 'score', scores.abs() > 1,
           'is beyond 1; divide percentages by 100, and other scores by the largest that there can be')
    return scores


def check_items(path, table):
    """ValueError unless all trainings of a dataset have the same items, each once, and an item has one
    cluster and one right answer."""
    first, second = [{*rows} for _, rows in table.groupby('system')['dataset']]
    if not first & second:
        raise ValueError(f'{path}: its systems have no dataset in common: {min(first)} and {min(second)}; '
                         'give theirs the same name')
    for dataset, rows in table.groupby('dataset'):
        twice = rows.duplicated(['system', 'seed', 'item'])
        refuse(path, rows, 'item', twice, 'is there twice, of one system, seed and dataset; give '
               'items names of their own, or datasets a column')
        for column in {'cluster', 'gold'} & {*rows.columns}:
            other = rows[column] != rows.groupby('item')[column].transform('first')
            refuse(path, rows, column, other, 'is not what this item has before; all systems and seeds must '
                   'have the same')
        items = {training: {*group} for training, group in rows.groupby(['system', 'seed'])['item']}
        everything = set.union(*items.values())
        if len(everything) < 2:
            raise ValueError(f'{path}: {dataset} has one item, which says nothing of others')
        for (system, seed), own in items.items():
            lost = sorted(everything - own)
            if lost:
                raise ValueError(f'{path}: {dataset}: {system}, seed {seed}, lacks {len(lost):,} of '
                                 f'{len(everything):,} items, as {lost[0]!r}: give it a score of 0 there, or '
                                 'leave these items out of all')


def scores_of(rows, metric):
    """Return the scores of one training, in the form of evaluate.scores_of. They have no validation split."""
    if 'gold' in rows:
        answers = [
            {'id': item, 'pred': score, 'gold': gold}
            for item, score, gold in zip(rows['item'], rows['score'], rows['gold'])]
        name, by_protocol = both_scores('SC', answers, metric=metric)
        standard = by_protocol['standard']
    else:
        name = 'score'
        standard = {
            'score': rows['score'].mean(),
            'statistic': 'mean',
            'columns': [[*rows['score']]],
            'ids': [*rows['item']]}
    if 'cluster' in rows:
        standard['clusters'] = [*rows['cluster']]
    return {
        'name': name,
        'validation': {'standard': {'score': 0.0}},
        'test': {'standard': standard}}

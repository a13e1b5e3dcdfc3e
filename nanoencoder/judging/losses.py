"""Logs of pretraining runs: what `evaluate.py losses` prints, and what its figures draw."""
import json
import statistics
from pathlib import Path

from data import OBJECTIVES
from nanoencoder.durable import expect, read_csv, read_json, write_csv

CONFIG = {'name': str, 'phases': [list], 'starts': [{'step': int}],
          'corpus_meta': {'fingerprint': str, 'unigram_loss': (float, type(None))}}
LINE = {'step': int, 'phase': str, 'loss': float, 'lr': float, 'grad_norm': float, 'tokens': int,
        'tokens_per_second': float, 'seconds': float, 'rows': str}
COLUMNS = 'folder', 'row', 'seed', 'step', 'tokens', 'flops', 'seconds', 'train_loss'     # of losses.csv


def read_log(folder):
    """(config.json, lines of log.jsonl) of out/<name>."""
    config, log = Path(folder, 'config.json'), Path(folder, 'log.jsonl')
    if not config.exists() or not log.exists():
        raise ValueError(f'{folder}: no pretraining run there (config.json and log.jsonl)')
    text, _, _ = log.read_bytes().rpartition(b'\n')   # a last line without an end is being written
    lines = [read_line(line, f'{log}:{k}') for k, line in enumerate(text.splitlines(), 1)]
    if not lines:
        raise ValueError(f'{folder}: has no log of a pretraining run yet')
    return read_json(config, CONFIG), lines


def read_line(text, where):
    """A line of log.jsonl. ValueError, which begins with `where`, if it is damaged."""
    try:
        line = json.loads(text)
    except ValueError:
        raise ValueError(f'{where}: damaged: not valid JSON') from None
    expect(line, LINE, where)
    expect(line, {f'val_{kind}_loss': float for kind in validated([line])}, where)
    return line


def history(folder):
    """(name, phases, lines of the log) of a run; of a branch with its parent's lines, where that is there."""
    config, lines = read_log(folder)
    if config.get('branch_from'):
        parent = Path(config['branch_from'])    # a run, or a checkpoint in it
        parent = parent if (parent / 'log.jsonl').exists() else parent.parent
        if (parent / 'log.jsonl').exists():
            before = config['starts'][0]['step']
            lines = [line for line in history(parent)[2] if line['step'] <= before] + lines
    return config['name'], config['phases'] * config.get('repeat', 1), lines


def validated(lines):
    """The objectives of which these lines hold held-out losses."""
    names = set().union(*lines)
    return [kind for kind in OBJECTIVES if f'val_{kind}_loss' in names]


def rows_of(folder):
    """[{column: value}] of a run's log, one of each validation; of a branch with those before it."""
    from nanoencoder.pretraining.cost import flops_of_state     # which needs torch
    config, _ = read_log(folder)
    rows, since = [], []
    for line in history(folder)[2]:
        since.append(line)
        if kinds := validated([line]):
            losses = [own['loss'] for own in since if own['phase'] == line['phase']]
            row = {'folder': Path(folder).name, 'row': config.get('row', ''), 'seed': config['seed'],
                   'step': line['step'], 'tokens': line['tokens'], 'seconds': line['seconds'],
                   'flops': f'{flops_of_state({"settings": config, "step": line["step"]}):.6g}',
                   'train_loss': f'{statistics.fmean(losses):.6f}'}
            rows.append(row | {name: f'{line[name]:.6f}' for name in map('val_{}_loss'.format, kinds)})
            since = []
    return rows


def write(path, folders, problems):
    """losses.csv: what it held, and a line for each validation of these runs; train_loss is the mean since
    the one before."""
    rows = {(row['folder'], int(row['step'])): row for row in read_csv(path, COLUMNS)}
    for folder in folders:
        log = Path(folder, 'log.jsonl')
        if log.exists() and b'\n' not in log.read_bytes():
            continue    # has just begun
        try:
            rows |= {(row['folder'], row['step']): row for row in rows_of(folder)}
        except ValueError as error:
            problems.append(str(error))
    names = {name for row in rows.values() for name in row}
    columns = [*COLUMNS, *(f'val_{kind}_loss' for kind in OBJECTIVES if f'val_{kind}_loss' in names)]
    if rows:
        write_csv(path, columns, ([rows[key].get(name, '') for name in columns] for key in sorted(rows)))


def table(folders):
    """Print the last validation of each run in nats per target, beside that of token frequencies alone."""
    if not folders:
        raise ValueError('losses takes folders of pretraining runs, as: losses out/mine out/other')
    runs = []
    for folder in folders:
        config, lines = read_log(folder)
        if not validated(lines):
            raise ValueError(f'{folder}: has no validation yet')
        last = [line for line in lines if validated([line])][-1]
        speed = statistics.median(line['tokens_per_second'] for line in lines)
        runs.append(config | {'folder': folder, 'last': last, 'speed': speed})
    kinds = validated(run['last'] for run in runs)
    print(f'{"run":<20} {"phases":<28} {"step":>7} {"tokens":>14} '
          + ' '.join(f'{f"val {kind}":>8}' for kind in kinds) + f' {"tokens/s":>9}')
    for run in runs:
        phases, last = ', then '.join(f'{steps:,} {kind}' for kind, steps in run['phases']), run['last']
        phases += f', {run["repeat"]} times' if run.get('repeat', 1) > 1 else ''
        values = [last.get(f'val_{kind}_loss') for kind in kinds]
        print(f'{run["name"]:<20} {phases:<28} {last["step"]:>7,} {last["tokens"]:>14,} '
              + ' '.join(' ' * 8 if x is None else f'{x:>8.3f}' for x in values) + f' {run["speed"]:>9,.0f}')
    for meta in {run['corpus_meta']['fingerprint']: run['corpus_meta'] for run in runs}.values():
        if meta['unigram_loss']:
            print(f'{"token frequencies":<72}' + f' {meta["unigram_loss"]:>8.3f}' * len(kinds))
        print(f'corpus fingerprint {meta["fingerprint"][:12]}')

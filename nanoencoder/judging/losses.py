"""Logs of pretraining runs: what `evaluate.py losses` prints, and a study's losses.csv."""
import csv
import json
import statistics
from pathlib import Path

from data import OBJECTIVES
from nanoencoder.files import read_json, whole

COLUMNS = ('folder', 'row', 'seed', 'step', 'tokens', 'flops', 'seconds', 'train_loss',     # of losses.csv
           *(f'val_{objective}_loss' for objective in OBJECTIVES))


def read_log(folder, with_parent=False):
    """(config.json, lines of log.jsonl) of out/<name>; of a branch with its parent's, if they are there."""
    config, log = Path(folder, 'config.json'), Path(folder, 'log.jsonl')
    if not config.exists() or not log.exists():
        raise ValueError(f'{folder}: no pretraining run there (config.json and log.jsonl)')
    text, _, _ = log.read_bytes().rpartition(b'\n')   # a last line without an end is being written
    config, lines = read_json(config), [json.loads(line) for line in text.splitlines()]
    if with_parent and (parent := config.get('branch_from')):     # a run, or a checkpoint in it
        for run in (run for run in (Path(parent), Path(parent).parent) if (run / 'log.jsonl').exists()):
            _, before = read_log(run, with_parent=True)
            lines = [line for line in before if line['step'] <= config['starts'][0]['step']] + lines
    return config, lines


def validated(lines):
    """The objectives of which these lines hold held-out losses."""
    return [objective for objective in OBJECTIVES if any(f'val_{objective}_loss' in line for line in lines)]


def write_csv(path, columns, rows):
    with whole(path) as temporary, open(temporary, 'w', newline='', encoding='utf-8') as file:
        csv.writer(file, lineterminator='\n').writerows([columns, *rows])


def read_csv(path):
    with open(path, newline='', encoding='utf-8') as file:
        return list(csv.DictReader(file))


def add_to_table(path, folders):
    """Have losses.csv hold each validation of these runs; train_loss is the mean since the one before."""
    rows = {(row['folder'], int(row['step'])): row for row in (read_csv(path) if path.exists() else ())}
    for folder in folders:
        (config, lines), since = read_log(folder, with_parent=True), []
        for line in lines:
            since.append(line)
            if objectives := validated([line]):
                loss = statistics.fmean(past['loss'] for past in since if past['phase'] == line['phase'])
                rows[Path(folder).name, line['step']] = {
                    'folder': Path(folder).name, 'row': config.get('row', ''), 'seed': config['seed'],
                    'step': line['step'], 'tokens': line['tokens'], 'seconds': line['seconds'],
                    'train_loss': f'{loss:.6f}',
                    **{name: f'{line[name]:.6f}' for name in map('val_{}_loss'.format, objectives)}}
                since = []
    columns = [name for name in COLUMNS if any(name in row for row in rows.values())]
    if rows:
        write_csv(path, columns, ([rows[key].get(name, '') for name in columns] for key in sorted(rows)))


def show(folders):
    """Print the last validation of each run in nats per target, beside that of token frequencies alone."""
    if not folders:
        raise ValueError('losses takes folders of pretraining runs, as: losses out/mine out/other')
    runs = []
    for folder in folders:
        config, lines = read_log(folder)
        if not (measured := [line for line in lines if validated([line])]):
            raise ValueError(f'{folder}: has no validation yet')
        speed = statistics.median(line['tokens_per_second'] for line in lines)
        runs.append((config, measured[-1], speed))
    objectives = validated(last for _, last, _ in runs)
    print(f'{"run":<20} {"phases":<28} {"step":>7} {"tokens":>14} '
          + ' '.join(f'{f"val {objective}":>8}' for objective in objectives) + f' {"tokens/s":>9}')
    for config, last, speed in runs:
        phases = ', then '.join(f'{steps:,} {objective}' for objective, steps in config['phases'])
        phases += f', {config["repeat"]} times' if config.get('repeat', 1) > 1 else ''
        values = [last.get(f'val_{objective}_loss') for objective in objectives]
        print(f'{config["name"]:<20} {phases:<28} {last["step"]:>7,} {last["tokens"]:>14,} '
              + ' '.join(' ' * 8 if x is None else f'{x:>8.3f}' for x in values) + f' {speed:>9,.0f}')
    for meta in {config['corpus_meta']['fingerprint']: config['corpus_meta'] for config, *_ in runs}.values():
        if meta['unigram_loss']:
            print(f'{"token frequencies":<72}' + f' {meta["unigram_loss"]:>8.3f}' * len(objectives))
        print(f'corpus fingerprint {meta["fingerprint"][:12]}')

"""Logs of pretraining runs: what `evaluate.py losses` prints, and a study's losses.csv."""
import hashlib
import json
import statistics
from pathlib import Path

from data import OBJECTIVES
from nanoencoder.files import read_json, whole
from nanoencoder.judging import figures

LOSSES = [f'val_{objective}_loss' for objective in OBJECTIVES]
COLUMNS = 'folder', 'row', 'seed', 'step', 'tokens', 'flops', 'seconds', 'train_loss', *LOSSES


def read_log(folder, with_parent=False):
    """(config.json, lines of log.jsonl) of out/<name>; of a branch with its parent's, if they are there."""
    config, log = Path(folder, 'config.json'), Path(folder, 'log.jsonl')
    if not config.exists() or not log.exists():
        raise ValueError(f'{folder}: no pretraining run there (config.json and log.jsonl)')
    config, rows = read_json(config), log.read_bytes().splitlines(keepends=True)
    states = {int(path.parent.name): path for path in Path(folder).glob('[0-9]*/state.json')}
    state = read_json(states[max(states)]) if states else {'step': 0}
    saved = b''.join(rows[:state['step'] - config['starts'][0]['step']])    # a line a step
    if (digest := hashlib.sha256(saved).hexdigest()) != state.get('log', digest):
        raise ValueError(f'{log}: changed since it was written; restore it')
    lines = [json.loads(row) for row in rows if row.endswith(b'\n')]    # without one that is being written
    if with_parent and (parent := config.get('branch_from')):     # a run, or a checkpoint in it
        for run in (run for run in (Path(parent), Path(parent).parent) if (run / 'log.jsonl').exists()):
            _, before = read_log(run, with_parent=True)
            lines = [line for line in before if line['step'] <= config['starts'][0]['step']] + lines
    return config, lines


def add_to_table(path, folders):
    """Add each validation of these runs to losses.csv; train_loss is the mean since the one before."""
    import pandas
    rows = pandas.read_csv(path, dtype=str).to_dict('records') if path.exists() else []
    for folder in folders:
        (config, lines), since = read_log(folder, with_parent=True), []
        for line in lines:
            since.append(line)
            if measured := {name: f'{line[name]:.6f}' for name in LOSSES if name in line}:
                loss = statistics.fmean(past['loss'] for past in since if past['phase'] == line['phase'])
                rows.append({'folder': Path(folder).name, 'row': config.get('row', ''),
                             'seed': config['seed'], 'step': line['step'], 'tokens': line['tokens'],
                             'seconds': line['seconds'], 'train_loss': f'{loss:.6f}', **measured})
                since = []
    if rows:
        table = pandas.DataFrame(rows).astype({'step': int}).sort_values(['folder', 'step'], kind='stable')
        table = table.drop_duplicates(['folder', 'step'], keep='last')
        with whole(path) as temporary:
            table[[name for name in COLUMNS if name in table]].to_csv(temporary, index=False)


def show(folders, out):
    """Print the last validation of each run in nats per target; below it, that of token frequencies alone.
    Draw losses and learning rates by step: <out>/losses.png."""
    import pandas
    if not folders:
        raise ValueError('losses takes folders of pretraining runs, as: losses out/mine out/other')
    rows, corpora, points = [], {}, []      # (panel, run, step, mean, low, high)
    for config, lines in map(read_log, folders):
        phases = ', then '.join(f'{steps:,} {objective}' for objective, steps in config['phases'])
        phases += f', {config["repeat"]} times' if config.get('repeat', 1) > 1 else ''
        last = next((line for line in reversed(lines) if line.keys() & LOSSES), lines[-1])
        rows.append({'run': config['name'], 'phases': phases,
                     'step': f'{last["step"]:,}', 'tokens': f'{last["tokens"]:,}',
                     'tokens/s': f'{statistics.median(line["tokens_per_second"] for line in lines):,.0f}',
                     **{name: f'{last[name]:.3f}' for name in LOSSES if name in last}})
        corpora[config['corpus_meta']['fingerprint']] = config['corpus_meta']['unigram_loss']
        size = -(-len(lines) // 200)
        for part in (lines[k:k + size] for k in range(0, len(lines), size)):
            loss, step = statistics.fmean(line['loss'] for line in part), part[-1]['step']
            points += [('training loss', config['name'], step, *[loss] * 3),
                       ('learning rate', config['name'], step, *[part[-1]['lr']] * 3)]
        points += [(f'held-out {name[4:-5].upper()} loss', config['name'], line['step'], *[line[name]] * 3)
                   for line in lines for name in LOSSES if name in line]
    for fingerprint, loss in corpora.items():
        frequencies = dict.fromkeys({name for row in rows for name in row} & {*LOSSES}, f'{loss:.3f}')
        rows.append({'run': 'token frequencies', 'phases': f'corpus {fingerprint[:12]}'} | frequencies)
    print(pandas.DataFrame(rows).to_string(index=False, na_rep=''))
    print(figures.save(figures.curves(points, 'steps', 'linear', ''), Path(out, 'losses.png')))

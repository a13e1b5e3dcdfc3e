"""Logs of pretraining runs: what `evaluate.py losses` prints, and a study's losses.csv."""
import statistics
from pathlib import Path

from data import OBJECTIVES
from nanoencoder.judging import figures
from nanoencoder.pretraining.log import read_log

LOSSES = [f'val_{objective}_loss' for objective in OBJECTIVES]
COLUMNS = 'folder', 'row', 'seed', 'step', 'tokens', 'flops', 'seconds', 'plateau', 'train_loss', *LOSSES


def plateau(config, lines):
    """Where MLM has learnt more than how frequent each token is: the first step with a mean of the last 50
    losses that is 0.3 nats below what those frequencies give. None if there is none."""
    masked = [line for line in lines if line['phase'] == 'mlm']
    level = (config['corpus_meta']['unigram_loss'] or 0) - 0.3      # None without held-out text
    total = sum(line['loss'] for line in masked[:49])
    for k in range(49, len(masked)):
        total += masked[k]['loss'] - (masked[k - 50]['loss'] if k >= 50 else 0)
        if total < 50 * level:
            return masked[k]['step']


def table(path, folders):
    """losses.csv with each validation of these runs, or None; train_loss is the mean since the one before."""
    import pandas
    rows = pandas.read_csv(path, dtype=str).to_dict('records') if path.exists() else []
    for folder in folders:
        (config, lines), since = read_log(folder, with_parent=True), []
        if lines and lines[0]['step'] > 1 and Path(folder).name in {row['folder'] for row in rows}:
            continue    # a branch without its parent's log: what is packed says more
        end = plateau(config, lines)
        for line in lines:
            since.append(line)
            if measured := {name: f'{line[name]:.6f}' for name in LOSSES if name in line}:
                loss = statistics.fmean(past['loss'] for past in since if past['phase'] == line['phase'])
                rows.append(line | measured | {'folder': Path(folder).name, 'row': config.get('row', ''),
                                               'seed': config['seed'], 'train_loss': f'{loss:.6f}',
                                               'plateau': f'{end}' if end and end <= line['step'] else ''})
                since = []
    if rows:
        frame = pandas.DataFrame(rows).astype({'step': int}).sort_values(['folder', 'step'], kind='stable')
        return frame.drop_duplicates(['folder', 'step'], keep='last')[[c for c in COLUMNS if c in frame]]


def beside(path, folder):
    """Print a run's held-out MLM losses beside those of its row in losses.csv, in units of their spread."""
    import pandas
    (config, lines), past = read_log(folder), pandas.read_csv(path)
    past = past[past['row'] == config['row']]
    own = past[past['seed'] == config['seed']].groupby('step')['val_mlm_loss'].mean()
    tokens = past.groupby('step')['tokens'].first()
    past = past.groupby('step')['val_mlm_loss'].agg(['mean', 'std', 'count']).assign(own=own)
    measured = [line for line in lines if 'val_mlm_loss' in line and line['step'] in past.index]
    if not measured:
        raise ValueError(f'{path}: has no row {config["row"]!r} that was measured at steps of {folder}')
    for line in measured:
        step, there = line['step'], tokens[line['step']]
        if line['tokens'] != there:
            raise ValueError(f'{folder}: has seen {line["tokens"]:,} tokens after {step} steps, '
                             f'{config["row"]} in {path} {there:,}: with another rows_per_step or context a '
                             'run cannot be compared step by step')
    for line in measured:
        loss, (mean, sd, count, own) = line['val_mlm_loss'], past.loc[line['step']]
        print(f'step {line["step"]:>5,}: {loss:.3f}; {config["row"]} with this seed {own:.3f}; '
              f'{count:.0f} seeds {mean:.3f}, sd {sd:.3f}: {(loss - mean) / sd:+.1f} sd')

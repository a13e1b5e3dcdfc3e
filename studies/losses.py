"""A pretraining's held-out losses beside those of earlier seeds, and a study's losses.csv.

    python studies/losses.py out/try-1126-1749                              # beside studies/try
    python studies/losses.py out/mlm-1800-s6 studies/small/losses.csv

The second file needs the row that the run names (`row` in its settings)."""
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the root, where evaluate.py is

from nanoencoder.files import read_json
from nanoencoder.pretraining.log import read_log
from nanoencoder.pretraining.losses import LOSSES
from nanoencoder.pretraining.plateau import followed
from nanoencoder.settings import plain_words, run_main

HELD_OUT = ('val_rows', 'val_mlm_targets')     # how much the losses are of; older runs do not say it
COLUMNS = ('folder', 'row', 'seed', 'step', 'tokens', 'flops', 'seconds', 'plateau', 'train_loss', *LOSSES,
           *HELD_OUT)
TRY = 'studies/try/losses.csv'


def losses_table(path, folders):
    """Return a losses.csv with a line for each validation of these runs, or None if there are none.

    path     of the file as it was; its lines stay
    folders  of runs, of which a branch has its parent's lines, too"""
    import pandas
    rows = []
    if path.exists():
        rows = pandas.read_csv(path, dtype=str).to_dict('records')
    packed = {row['folder'] for row in rows}
    for folder in map(Path, folders):
        config, lines = read_log(folder, with_parent=True)
        if lines and lines[0]['step'] > 1 and folder.name in packed:
            continue    # a branch without its parent's log: what is packed says more
        rows += validations(folder.name, config, lines)
    if not rows:
        return None
    frame = pandas.DataFrame(rows).astype({'step': int}).sort_values(['folder', 'step'], kind='stable')
    frame = frame.drop_duplicates(['folder', 'step'], keep='last')
    return frame[[name for name in COLUMNS if name in frame]]


def validations(name, config, lines):
    """Return a row of losses.csv for each validation in a log; train_loss is the mean since the one before,
    of steps of the same objective."""
    end = followed(config, lines).left
    rows = []
    since = []      # lines of the log, from the last validation on
    for line in lines:
        since.append(line)
        measured = {key: f'{line[key]:.6f}' for key in LOSSES if key in line}
        if measured:
            loss = statistics.fmean(past['loss'] for past in since if past['phase'] == line['phase'])
            has_left = end and end <= line['step']
            rows.append(line | measured | {
                'folder': name, 'row': config.get('row', ''), 'seed': config['seed'],
                'train_loss': f'{loss:.6f}', 'plateau': str(end) if has_left else ''})
            since = []
    return rows


def beside(path, folder):
    """Print a run's held-out MLM losses beside those of its row in losses.csv, in units of their spread.
    ValueError if they are of other texts or other steps, or of steps of another size."""
    import pandas
    config, lines = read_log(folder)
    row = config['row']
    check_corpus(path, config)
    past = pandas.read_csv(path)
    past = past[past['row'] == row]
    steps = past.groupby('step')
    measured = [line for line in lines if 'val_mlm_loss' in line and line['step'] in steps.groups]
    if not measured:
        raise ValueError(f'{path}: has no row {row!r} that was measured at steps of {folder}')
    for line in measured:
        there = steps['tokens'].first()[line['step']]
        if line['tokens'] != there:
            raise ValueError(f'{folder}: has seen {line["tokens"]:,} tokens after {line["step"]} steps, '
                             f'{row} in {path} {there:,}: with another rows_per_step or context a run cannot '
                             'be compared step by step')
        for name in [name for name in HELD_OUT if name in line and name in past]:
            others = {*steps[name].get_group(line['step']).dropna()} - {line[name]}
            if others:
                raise ValueError(f'{folder}: its held-out losses are of {name} = {line[name]:,}, those of '
                                 f'{row} in {path} of {min(others):,.0f}: give it their val_rows and '
                                 'val_mask_ratio')

    for line in measured:
        step = line['step']
        loss = line['val_mlm_loss']
        losses = steps['val_mlm_loss'].get_group(step)
        mean = losses.mean()
        sd = losses.std()
        print(f'step {step:>5,}: held-out MLM loss {loss:.3f}; {len(losses)} seeds of {row} {mean:.3f}, '
              f'sd {sd:.3f}: {(loss - mean) / sd:+.1f} sd')
    if step < past['step'].max():
        print('no verdict: it has not come to the end')
    else:
        print(words_of((loss - mean) / sd))


def check_corpus(path, config):
    """ValueError if a run is of another corpus than its row of losses.csv, as far as rows.json says it."""
    rows = Path(path).with_name('rows.json')
    settings = read_json(rows).get(config['row'], {}) if rows.exists() else {}
    here = config['corpus_meta']['fingerprint']
    there = settings.get('corpus fingerprint', here)
    if here != there:
        raise ValueError(f'{config["name"]}: its corpus has the fingerprint {here:.8}, and that of '
                         f'{config["row"]} in {path} {there:.8}: losses of other texts cannot be compared')


def words_of(distance):
    """Say what the loss of one seed is worth that lies so many sd from those of others."""
    if distance < -2:
        return 'better than seeds differ: worth a full run of four seeds'
    if distance < 2:
        return 'within the noise of seeds: one seed cannot tell; a longer run might'
    return 'worse than seeds differ'


def main():
    match plain_words(sys.argv[1:]):
        case [folder]:
            beside(TRY, folder)
        case [folder, path]:
            beside(path, folder)
        case _:
            raise ValueError('it takes a run, and maybe a losses.csv: studies/losses.py out/mlm-1800-s6')


if __name__ == '__main__':
    run_main(main)

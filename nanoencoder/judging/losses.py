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


def show(folders, out):
    """Print each run's last validation, in nats, and that of token frequencies; draw <out>/losses.png."""
    import pandas
    rows, corpora, points = [], {}, []      # (panel, run, step, mean, low, high)
    for config, lines in map(read_log, folders):
        if not lines:
            raise ValueError(f'{config["name"]}: has logged no step yet; log_every says when it does')
        phases = ', then '.join(f'{steps:,} {objective}' for objective, steps in config['phases'])
        phases += f', {config["repeat"]} times' if config.get('repeat', 1) > 1 else ''
        last = next((line for line in reversed(lines) if line.keys() & LOSSES), lines[-1])
        rows.append({'run': config['name'], 'phases': phases,
                     'step': f'{last["step"]:,}', 'tokens': f'{last["tokens"]:,}',
                     'tokens/s': f'{statistics.median(line["tokens_per_second"] for line in lines):,.0f}',
                     **{name: f'{last[name]:.3f}' for name in LOSSES if name in last}})
        if loss := config['corpus_meta']['unigram_loss']:   # None without held-out text
            corpora[config['corpus_meta']['fingerprint']] = loss
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

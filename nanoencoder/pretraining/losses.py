"""The losses of pretrainings, side by side: what `evaluate.py losses` prints and draws."""
import collections
import math
import statistics
from pathlib import Path

from data import OBJECTIVES
from nanoencoder import figures
from nanoencoder.pretraining.log import read_log
from nanoencoder.pretraining.plateau import frequencies_loss, print_end

LOSSES = {f'val_{objective}_loss': objective for objective in OBJECTIVES}     # of held-out text, in a log


def print_losses(folders, out):
    """Print each pretraining's last held-out loss, in nats, and that of token frequencies: a table a corpus,
    for losses on different texts do not compare. Draw <out>/losses.png."""
    import pandas
    tables = {}         # {corpus: ([a row of each run], {loss: that of its token frequencies})}
    points = []         # (panel, line, step, mean, low, high)
    logs = [read_log(folder) for folder in folders]
    configs = [config for config, _ in logs]
    times = collections.Counter(config['name'] for config in configs)
    for folder, config in zip(folders, configs):
        if times[config['name']] > 1:   # runs of several `out` may have one name
            config['name'] = str(folder)
    styles = {}         # {line: (its usual style, its run)}
    for config, lines in logs:
        name = config['name']
        legend = figures.legend_of(config, configs)
        styles[legend] = figures.style_of_config(config), figures.run_of(config)
        if not lines:
            raise ValueError(f'{name}: has logged no step yet; log_every says when it does')
        corpus = config['corpus_meta']['fingerprint']
        rows, frequencies = tables.setdefault(corpus, ([], {}))
        row = losses_row(config, lines)
        rows.append(row)
        for key in LOSSES.keys() & row.keys():
            frequencies[key] = frequencies_loss(LOSSES[key], config) or frequencies.get(key)
        log = pandas.DataFrame(lines).set_index('step')
        shown = {
            'training loss, nats': log['loss'].rolling(math.ceil(len(log) / 200)).mean(),
            'learning rate': log['lr'],
        }
        for key in trained_losses(config, log.columns):
            shown[f'held-out {LOSSES[key].upper()} loss, nats'] = log[key]
        for panel, values in shown.items():
            for step, value in values.dropna().items():
                points.append((panel, legend, step, value, value, value))

    for corpus, (rows, frequencies) in tables.items():
        print(f'corpus {corpus[:12]}: held-out losses (val) in nats a predicted token, lower is better')
        known = {key: f'{loss:.3f}' for key, loss in frequencies.items() if loss}
        table = pandas.DataFrame(rows).fillna('-')      # what a run never trained, or did not measure
        if known:
            frequent = dict.fromkeys(table, '') | {'run': 'token frequencies'} | known
            table.loc[len(table)] = frequent
        print(table.to_string(index=False))
    for config, lines in logs:
        print_end(config, lines)
    drawn = figures.curves(points, 'steps', 'linear', '', figures.styles_of(styles))
    print(figures.save_figure(drawn, Path(out, 'losses.png')))


def losses_row(config, lines):
    """Return what is printed of a pretraining: its phases, and what its last validation said: '4.880 of 205'
    is the mean over 205 losses, '31.2%' the share of the predicted tokens that was right."""
    last = lines[-1]
    for line in lines:
        if line.keys() & LOSSES.keys():
            last = line
    speed = statistics.median(line['tokens_per_second'] for line in lines)
    row = {
        'run': config['name'],
        'phases': figures.phases_in_words(config),
        'step': f'{last["step"]:,}',
        'tokens': f'{last["tokens"]:,}',
        'tokens/s': f'{speed:,.0f}',
    }
    if 'val_rows' in last:      # older logs do not say it
        row['val_rows'] = f'{last["val_rows"]:,}'
    for name in trained_losses(config, last):
        objective = LOSSES[name]
        row[name] = f'{last[name]:.3f}'
        targets = last.get(f'val_{objective}_targets')
        if targets:
            row[name] += f' of {targets:,}'
        accuracy = f'val_{objective}_accuracy'
        if accuracy in last:
            row[accuracy] = f'{last[accuracy]:.1%}'
    return row


def trained_losses(config, measured):
    """Return the names of the losses, of those that were measured, whose objective a run has trained: of
    others a loss says nothing. Weights from elsewhere may have been trained with any."""
    trained = dict(config['phases'])
    return [name for name, objective in LOSSES.items()
            if name in measured and (objective in trained or config.get('weights_from'))]

"""Logs of pretraining runs: what `evaluate.py losses` prints, and what its figures draw."""
import itertools
import json
import statistics
from pathlib import Path

from data import OBJECTIVES
from nanoencoder.durable import read_json


def read_log(folder):
    """(config.json, lines of log.jsonl) of out/<name>."""
    config, log = Path(folder, 'config.json'), Path(folder, 'log.jsonl')
    if not config.exists() or not log.exists():
        raise ValueError(f'{folder}: no pretraining run there (config.json and log.jsonl)')
    try:
        lines = [json.loads(line) for line in log.read_text(encoding='utf-8').splitlines()]
    except ValueError as error:
        raise ValueError(f'{log}: damaged: {error}') from None
    if not lines or 'corpus_meta' not in read_json(config):
        raise ValueError(f'{folder}: has no log of a pretraining run yet')
    return read_json(config), lines


def history(folder):
    """(name, phases, lines of the log) of a run; of a branch with its parent's lines, where that is there."""
    config, lines = read_log(folder)
    parent = Path(config.get('branch_from') or folder)      # a run, or a checkpoint in it
    parent = parent if (parent / 'log.jsonl').exists() else parent.parent
    if config.get('branch_from') and (parent / 'log.jsonl').exists():
        before = config['starts'][0]['step']
        lines = [line for line in history(parent)[2] if line['step'] <= before] + lines
    return config['name'], config['phases'] * config.get('repeat', 1), lines


def table(folders):
    """Print the last validation of each run in nats per target, beside that of token frequencies alone."""
    if not folders:
        raise ValueError('losses takes folders of pretraining runs, as: losses out/tiny-clm out/tiny-mlm40')
    runs = []
    for folder in folders:
        config, lines = read_log(folder)
        validated = [line for line in lines if any(name.startswith('val_') for name in line)]
        if not validated:
            raise ValueError(f'{folder}: has no validation yet')
        speed = statistics.median(line['tokens_per_second'] for line in lines)
        runs.append((folder, config, validated[-1], speed))
    kinds = [kind for kind in OBJECTIVES if any(f'val_{kind}_loss' in last for _, _, last, _ in runs)]
    print(f'{"run":<20} {"phases":<28} {"step":>7} {"tokens":>14} '
          + ' '.join(f'{f"val {kind}":>8}' for kind in kinds) + f' {"tokens/s":>9}')
    for _, config, last, speed in runs:
        phases = ', then '.join(f'{steps:,} {kind}' for kind, steps in config['phases'])
        phases += f', {config["repeat"]} times' if config.get('repeat', 1) > 1 else ''
        values = [last.get(f'val_{kind}_loss') for kind in kinds]
        print(f'{config["name"]:<20} {phases:<28} {last["step"]:>7,} {last["tokens"]:>14,} '
              + ' '.join(' ' * 8 if x is None else f'{x:>8.3f}' for x in values) + f' {speed:>9,.0f}')
    for meta in {run[1]['corpus_meta']['fingerprint']: run[1]['corpus_meta'] for run in runs}.values():
        if meta['unigram_loss']:
            print(f'{"token frequencies":<72}' + f' {meta["unigram_loss"]:>8.3f}' * len(kinds))
        print(f'corpus fingerprint {meta["fingerprint"][:12]}')
    for mlm, both in itertools.permutations(runs, 2):
        compare_losses(mlm, both)


def compare_losses(mlm, both):
    """One sentence on MLM against CLM then MLM, if nothing else differs between the two runs."""
    def fixed(folder, last):  # of the newest checkpoint: what decides the numbers of a run, and its last rows
        states = sorted(Path(folder).glob('[0-9]*/state.json'), key=lambda path: int(path.parent.name))
        values = read_json(states[-1])['fixed'] if states else {'folder': folder}
        return last['step'], last['rows'], {k: v for k, v in values.items() if k not in ('phases', 'repeat')}
    kinds = [[kind for kind, _ in config['phases']] for _, config, *_ in (mlm, both)]
    if kinds == [['mlm'], ['clm', 'mlm']] and fixed(mlm[0], mlm[2]) == fixed(both[0], both[2]):
        gain = mlm[2]['val_mlm_loss'] - both[2]['val_mlm_loss']
        print(f'\nAt equal steps on the same rows, {both[1]["name"]} ends {abs(gain):.3f} nats '
              f'{"below" if gain > 0 else "above"} {mlm[1]["name"]} in MLM loss:\n'
              f'{"" if gain > 0 else "not "}the direction of the paper. One seed of one model shows a '
              'direction, no more; the claim is about fine-tuned scores.')

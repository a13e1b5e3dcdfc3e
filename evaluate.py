"""What the runs came to, as tables. Needs no torch.

    python evaluate.py losses out/tiny-clm out/tiny-mlm40 out/tiny-clm-mlm40    # held-out losses of pretraining
"""
import itertools
import json
import statistics
import sys
from pathlib import Path

import configs

# what does not make two runs different experiments
INCIDENTAL = ('name', 'phases', 'starts', 'branch_from', 'weights_from', 'micro_rows', 'log_every', 'val_every',
              'save_every', 'save_at', 'keep', 'parallel', 'device', 'compile', 'recompute', 'corpus', 'out')


def read_run(folder):
    """(config.json, lines of log.jsonl, the last line with a validation) of out/<name>."""
    folder = Path(folder)
    try:
        config = json.loads((folder / 'config.json').read_text(encoding='utf-8'))
        lines = [json.loads(line) for line in (folder / 'log.jsonl').read_text(encoding='utf-8').splitlines()]
    except OSError:
        raise ValueError(f'{folder}: no pretraining run there (config.json and log.jsonl)') from None
    except ValueError as error:
        raise ValueError(f'{folder}: config.json or log.jsonl is damaged: {error}') from None
    validated = [line for line in lines if 'val_clm_loss' in line]
    if not isinstance(config, dict) or 'corpus_meta' not in config or not validated:
        raise ValueError(f'{folder}: has no validation yet')
    return config, lines, validated[-1]


def losses(folders):
    """Print the last validation of each run in nats per target, beside that of token frequencies alone."""
    runs = [read_run(folder) for folder in folders]
    print(f'{"run":<20} {"phases":<28} {"step":>7} {"tokens":>14} {"val clm":>8} {"val mlm":>8} {"tokens/s":>9}')
    for config, lines, last in runs:
        phases = ', then '.join(f'{steps:,} {kind}' for kind, steps in config['phases'])
        speed = statistics.median(line['tokens_per_second'] for line in lines)
        print(f'{config["name"]:<20} {phases:<28} {last["step"]:>7,} {last["tokens"]:>14,} {last["val_clm_loss"]:>8.3f} '
              f'{last["val_mlm_loss"]:>8.3f} {speed:>9,.0f}')
    for meta in {run[0]['corpus_meta']['fingerprint']: run[0]['corpus_meta'] for run in runs}.values():
        if meta['unigram_loss']:
            print(f'{"token frequencies":<72} {meta["unigram_loss"]:>8.3f} {meta["unigram_loss"]:>8.3f}')
        print(f'corpus fingerprint {meta["fingerprint"][:12]}')
    for mlm, both in itertools.permutations(runs, 2):
        compare(mlm, both)


def compare(mlm, both):
    """One sentence on MLM against CLM then MLM, if nothing else differs between the two runs."""
    def kinds(run):
        return [kind for kind, _ in run[0]['phases']]

    def rest(run):
        return {name: value for name, value in run[0].items() if name not in INCIDENTAL}
    equal = rest(mlm) == rest(both) and all(mlm[2][name] == both[2][name] for name in ('step', 'rows'))
    if kinds(mlm) == ['mlm'] and kinds(both) == ['clm', 'mlm'] and equal:
        gain = mlm[2]['val_mlm_loss'] - both[2]['val_mlm_loss']
        print(f'\nAt equal steps on the same rows, {both[0]["name"]} ends {abs(gain):.3f} nats '
              f'{"below" if gain > 0 else "above"} {mlm[0]["name"]} in MLM loss:\n'
              f'{"" if gain > 0 else "not "}the direction of the paper. One seed of one model shows a direction, no more; '
              f'the claim is about fine-tuned scores.')


def main():
    if len(sys.argv) < 3 or sys.argv[1] != 'losses':
        print(__doc__.strip())
        sys.exit(0 if '--help' in sys.argv else 2)
    losses(sys.argv[2:])


if __name__ == '__main__':
    configs.run(main)

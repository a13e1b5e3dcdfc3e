"""What the runs came to, as tables. Needs no torch.

    python evaluate.py losses out/tiny-clm out/tiny-mlm40 out/tiny-clm-mlm40    # held-out losses of pretraining runs
"""
import json
import sys
from pathlib import Path

import configs


def read_run(folder):
    """(settings of out/<name>/config.json, lines of its log.jsonl)."""
    folder = Path(folder)
    try:
        settings = json.loads((folder / 'config.json').read_text(encoding='utf-8'))
        lines = [json.loads(line) for line in (folder / 'log.jsonl').read_text(encoding='utf-8').splitlines()]
    except OSError:
        raise ValueError(f'{folder}: no pretraining run there (config.json and log.jsonl)') from None
    if not any('val_clm_loss' in line for line in lines):
        raise ValueError(f'{folder}: has no validation yet')
    return settings, lines


def losses(folders):
    """Print the last validation of each run in nats per token, beside that of token frequencies alone."""
    print(f'{"run":<20} {"phases":<26} {"tokens":>12} {"val clm":>8} {"val mlm":>8} {"tokens/s":>9}')
    found, unigram = {}, {}
    for folder in folders:
        settings, lines = read_run(folder)
        last = [line for line in lines if 'val_clm_loss' in line][-1]
        meta = json.loads((Path(settings['corpus']) / 'meta.json').read_text(encoding='utf-8'))
        unigram[settings['corpus'], meta['fingerprint'][:12]] = meta['unigram_loss']
        phases = ', then '.join(f'{steps:,} {kind}' for kind, steps in settings['phases'])
        kinds = tuple(kind for kind, _ in settings['phases'])
        found[kinds] = last
        print(f'{settings["name"]:<20} {phases:<26} {last["tokens"]:>12,} {last["val_clm_loss"]:>8.3f} '
              f'{last["val_mlm_loss"]:>8.3f} {last["tokens"] / last["seconds"]:>9,.0f}')
    for (corpus, fingerprint), loss in unigram.items():
        print(f'{"token frequencies":<60} {loss:>8.3f} {loss:>8.3f}   {corpus}, fingerprint {fingerprint}')
    mlm, both = found.get(('mlm',)), found.get(('clm', 'mlm'))
    if mlm and both and mlm['tokens'] == both['tokens']:
        gain = mlm['val_mlm_loss'] - both['val_mlm_loss']
        print(f'\nAt equal steps on the same rows, CLM then MLM ends {abs(gain):.3f} nats '
              f'{"below" if gain > 0 else "above"} MLM alone in MLM loss: {"" if gain > 0 else "not "}the direction of the paper.\n'
              f'One seed of one small model shows a direction, no more; the paper\'s claim is about fine-tuned scores.')


def main():
    if len(sys.argv) < 3 or sys.argv[1] != 'losses':
        print(__doc__.strip())
        sys.exit(0 if '--help' in sys.argv else 2)
    losses(sys.argv[2:])


if __name__ == '__main__':
    configs.run(main)

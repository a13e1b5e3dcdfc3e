"""The figure of the page of rows: losses.png, of losses.csv.

    python speedrun/figure.py"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the root, where evaluate.py is

from nanoencoder.figures import style_of_name
from nanoencoder.settings import plain_words, run_main
from speedrun.referee import TARGET
from studies.figures import write_figure

# {arm: row}
RACED = {'MLM, AdamW': 'mlm', 'MLM, Muon': 'muon-mlm', 'CLM then MLM, AdamW': 'clm25-mlm',
         'CLM then MLM, Muon': 'muon-clm25-mlm', 'the record, Muon': 'counts-750'}


def race(ax, losses):
    """Draw held-out losses of rows, seed 0, by step, and the target."""
    for arm, row in RACED.items():
        colour, dash = style_of_name(arm)
        lines = losses[(losses['row'] == row) & (losses['seed'] == 0)]
        ax.plot(lines['step'], lines['val_mlm_loss'], f'o{dash}', color=colour, markersize=3,
                label=f'{arm}: {row}')
    ax.axhline(TARGET, color='0.4', linewidth=1, label=f'target: {TARGET} nats')
    ax.set(xlabel='steps', ylabel='held-out MLM loss, nats')


def main():
    plain_words(sys.argv[1:])
    write_figure(race, 'held-out MLM loss, seed 0', Path('speedrun/losses.png'))


if __name__ == '__main__':
    run_main(main)

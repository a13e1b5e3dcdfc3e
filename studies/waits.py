"""How many steps MLM spends on its plateau, by learning rate, optimizer, batch and size (docs/stuck.md).

    python studies/waits.py     # draws studies/plateau/wait.png, from the losses.csv of several studies

Each row of the figure is a row of a study, each dot a seed."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the root, where nanoencoder is

from nanoencoder.figures import COLOURS, save_figure
from nanoencoder.settings import plain_words, run_main

STUDIES = Path(__file__).parent
# {group: {label: (study, row, steps of CLM before MLM)}}
GROUPS = {
    '0.9 M parameters, AdamW: learning rate': {
        '7.5e-4': ('plateau', 'rate-7.5e-4', 0),
        '1.5e-3': ('optimiser_tuning', 'mlm-1.5e-3', 0),
        '3e-3': ('optimiser', 'mlm-1800', 0),
        '6e-3': ('optimiser_tuning', 'mlm-6e-3', 0),
    },
    'the same at 3e-3: beta2 (0.95 above)': {
        '0.5': ('plateau', 'beta2-0.5', 0),
        '0.8': ('plateau', 'beta2-0.8', 0),
        '0.9': ('plateau', 'beta2-0.9', 0),
        '0.99': ('plateau', 'beta2-0.99', 0),
        '0.999': ('plateau', 'beta2-0.999', 0),
    },
    'the same, 4,096 tokens a step (1,024 above): learning rate': {
        '3e-3 ': ('plateau', 'batch-4096', 0),
        '6e-3 ': ('plateau', 'batch-4096-6e-3', 0),
    },
    '0.9 M parameters: optimizer': {
        'AdamW, two rates': ('targets', 'two-mlm', 0),
        'Muon, ratio 0.42': ('targets', 'muon-mlm', 0),
        'Muon, ratio 6.7': ('optimiser', 'muon-mlm-1800', 0),
    },
    '0.9 M parameters, after 450 steps of CLM': {
        'AdamW': ('optimiser', 'clm25-mlm-1800', 450),
        'Muon': ('optimiser', 'muon-clm25-mlm-1800', 450),
    },
    '116 M parameters, 32,768 tokens a step': {
        'AdamW ': ('plateau_120m', 'mlm-1e-3', 0),
        'Muon ': ('plateau_120m', 'muon-mlm', 0),
        'AdamW, after 150 of CLM': ('plateau_120m', 'clm25-mlm', 150),
        'Muon, after 150 of CLM': ('plateau_120m', 'muon-clm25-mlm', 150),
    },
}


def steps_on_plateau(study, row, clm_steps):
    """Return, of a row's seeds, [steps of MLM until the plateau ends] and, of runs that end on their plateau,
    [all their steps of MLM]."""
    import pandas
    lines = pandas.read_csv(STUDIES / study / 'losses.csv')
    last = lines[lines['row'] == row].groupby('seed').last()
    has_left = last['plateau'].notna()
    ended = last['plateau'][has_left] - clm_steps
    stayed = last['step'][~has_left] - clm_steps
    return ended.astype(int).tolist(), stayed.tolist()


def draw(axes):
    """Draw a line of dots for each row of a study, group below group."""
    y = 0
    labels = {}     # {y: label}
    for group, rows in GROUPS.items():
        axes.text(41, y, group, fontsize=9, fontweight='bold', va='center')
        for label, (study, row, clm_steps) in rows.items():
            y += 1
            ended, stayed = steps_on_plateau(study, row, clm_steps)
            colour = COLOURS['clm', 'mlm'] if clm_steps else COLOURS['mlm',]
            axes.plot(ended, [y] * len(ended), 'o', color=colour, alpha=0.7)
            axes.plot(stayed, [y] * len(stayed), '>', color=colour, fillstyle='none', markersize=8)
            labels[y] = label
        y += 1.5
    axes.plot([], [], 'o', color=COLOURS['mlm',], label='MLM: the plateau ends, a seed each')
    axes.plot([], [], '>', color=COLOURS['mlm',], fillstyle='none', label='MLM: the run ends on its plateau')
    axes.plot([], [], 'o', color=COLOURS['clm', 'mlm'], label='CLM then MLM: the plateau ends')
    axes.set(xscale='log', xlim=(40, 2_200), ylim=(y, -1), yticks=[*labels], yticklabels=labels.values(),
             xlabel='steps of MLM, log scale')
    ticks = [50, 100, 200, 400, 800, 1_600]
    axes.set_xticks(ticks, [f'{tick:,}' for tick in ticks])
    axes.minorticks_off()
    axes.grid(axis='x', alpha=0.3)
    axes.spines[['top', 'right']].set_visible(False)
    axes.legend(loc='lower right', fontsize=9)


def main():
    plain_words(sys.argv[1:])
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(figsize=(8, 8), layout='constrained')
    draw(axes)
    print(save_figure(figure, STUDIES / 'plateau/wait.png'))


if __name__ == '__main__':
    run_main(main)

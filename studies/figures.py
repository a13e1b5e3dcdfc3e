"""The figures of studies' pages: the ladder of lengths, which report.py draws, and one of losses.csv.

    python studies/figures.py       # leads.png of studies/targets"""
import itertools
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # the root, where evaluate.py is

import numpy as np

from evaluate import seeds_half
from nanoencoder.figures import panels, save_figure, style_of_name
from nanoencoder.settings import plain_words, run_main

# a colour means one thing in all figures; arms of other objectives get the other colours
OBJECTIVES = {name: style_of_name(name)[0] for name in ('CLM', 'MLM', 'CLM then MLM')}
OTHERS = ('#8b6bb1', '#c9a227', '#5aa9c4', '#b0517f', '#6b8f3a')
DASHES = ('-', '--', ':')       # of the first optimizer, the second, the third
# {line: MLM's row and that of CLM then MLM in studies/targets}
LEADS = {'AdamW, one rate': ('one-mlm', 'one-clm25-mlm'),
         'AdamW, two rates': ('two-mlm', 'two-clm25-mlm'),
         'Muon': ('muon-mlm', 'muon-clm25-mlm'),
         'Muon, as few targets': ('muon-mlm', 'muon-clm40-mlm'),
         'AdamW, two rates, as few targets': ('two-mlm', 'two-clm40-mlm')}


class Panel(NamedTuple):
    """A quantity of a ladder."""
    title: str
    unit: str
    lines: dict     # {(objectives, optimizer): [(million tokens, mean, low, high), ...]}
    floors: dict    # {(name, optimizer or ''): value}, drawn level


def split_arm(arm):
    """Return (objectives, optimizer) of an arm's name, such as 'CLM then MLM, Muon'; '' if it names none."""
    objectives, _, optimizer = arm.replace(', then', ' then').partition(', ')
    return objectives, optimizer


def ladder(shown):
    """Draw Panels by length, a row of them for each optimizer: a line and its band over seeds an arm."""
    arms = shown[-1].lines      # of scores, if there are any: the loss of some arms is a floor
    names = dict.fromkeys(objectives for objectives, _ in arms)
    colours = dict(zip(names, itertools.cycle(OTHERS))) | OBJECTIVES
    optimizers = [*dict.fromkeys(optimizer for _, optimizer in arms)]
    places = [*itertools.product(optimizers, shown)]
    titles = [f'{panel.title}, {optimizer}'.removesuffix(', ') for optimizer, panel in places]
    drawn, axes = panels(titles, rows=len(optimizers))
    for ax, (optimizer, panel) in zip(axes.values(), places):
        dash = DASHES[optimizers.index(optimizer)]
        draw_lines(ax, panel.lines, optimizer, dash, colours)
        draw_frame(ax, panel, optimizer)
    handles = {}
    for ax in axes.values():
        for line in ax.get_lines():
            handles.setdefault(line.get_label(), line)      # the first optimizer's, which is not dashed
    drawn.legend([handles[name] for name in names], names, loc='lower center', bbox_to_anchor=(0.5, 1),
                 ncol=len(names))
    return drawn


def draw_lines(ax, lines, optimizer, dash, colours):
    """Draw a Panel's lines of one optimizer, each with its band."""
    for (objectives, of_arm), values in lines.items():
        if of_arm == optimizer:
            x, mean, low, high = np.array(values).T
            colour = colours[objectives]
            ax.plot(x, mean, f'o{dash}', color=colour, markersize=4, label=objectives)
            ax.fill_between(x, low, high, color=colour, alpha=0.16, linewidth=0)


def draw_frame(ax, panel, optimizer):
    """Draw the axes, and a level line for each floor that is near the lines; say where the other floors are.
    Ranges are the same for all optimizers; wide bands may leave them."""
    tokens, means, lows, highs = np.concatenate([*panel.lines.values()]).T
    ticks = np.unique(tokens)
    ax.set_xscale('log', base=2)
    ax.set_xticks(ticks, [f'{tick:.1f}' for tick in ticks])
    ax.minorticks_off()
    ax.set(xlabel='million tokens of pretraining', ylabel=panel.unit)

    size = np.ptp(means) or 1.0
    low = means.min() - 0.6 * size
    high = means.max() + 0.6 * size
    near = [value for value in panel.floors.values() if low < value < high]
    shown = np.clip([*lows, *highs, *near], low, high)
    ax.set_ylim(shown.min() - 0.05 * size, shown.max() + 0.1 * size)
    outside = []
    for (name, of_floor), value in panel.floors.items():
        if of_floor not in ('', optimizer):
            continue
        if value in near:
            ax.axhline(value, color='0.6', linewidth=1, linestyle=':')
            ax.annotate(f'{name} {value:.1f}', (0.995, value), xycoords=ax.get_yaxis_transform(), fontsize=8,
                        color='0.2', ha='right', va='bottom')
        else:
            where = 'above' if value > high else 'below'
            outside.append(f'{name} {value:.1f}, {where}')
    ax.set_title('\n'.join(outside), loc='right', fontsize=8, color='0.2')


def leads(ax, losses):
    """Draw by how many nats the held-out MLM loss of CLM then MLM lies below MLM's, by tokens: the mean of
    seeds and its 95 % band."""
    losses = losses[losses['step'] > 450]       # until then CLM then MLM is CLM
    table = losses.pivot(index=['tokens', 'seed'], columns='row', values='val_mlm_loss')
    lines = {}
    for line, (mlm, both) in LEADS.items():
        lead = (table[mlm] - table[both]).unstack('seed')       # (lengths, seeds)
        mean = lead.mean(axis=1)
        half = [seeds_half([seeds]) for seeds in lead.values]
        lines[line, ''] = np.transpose([lead.index / 1e6, mean, mean - half, mean + half])
    draw_lines(ax, lines, '', '-', dict(zip(LEADS, OTHERS)))
    ax.axhline(0, color='0.6', linewidth=1)
    ax.set(xlabel='million tokens of pretraining', ylabel='nats a masked token, held out')


def write_figure(draw, title, path):
    """Draw a figure of a study's losses.csv, if it is there yet, and print its path.

    draw  draws on an Axes what the table shows"""
    import pandas
    table = path.with_name('losses.csv')
    if table.exists():
        drawn, axes = panels([title])
        draw(axes[title], pandas.read_csv(table))
        axes[title].legend(fontsize=8, ncols=2)
        drawn.set_size_inches(7, 3.5)
        print(save_figure(drawn, path))


def main():
    plain_words(sys.argv[1:])
    write_figure(leads, 'lead of CLM then MLM over MLM', Path('studies/targets/leads.png'))


if __name__ == '__main__':
    run_main(main)

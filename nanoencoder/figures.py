"""Figures. Each function draws its points and returns a matplotlib Figure.

points  [(model, pretraining, task, mean, low, high)], in percent
        a pretraining is {'phases', 'mask_ratio', 'step', 'flops'}, maybe 'tokens', 'family', 'continues',
        and of the figure `rate` 'finetuning_rate'"""
import itertools
import math

import numpy as np

from data import OBJECTIVES
from nanoencoder.files import whole

COLOURS = ('#3b6ea8', '#d1603d', '#4f9d69', '#8b6bb1', '#c9a227', '#5aa9c4', '#b0517f', '#7a7a52', '#555555')
AGAINST = {'ratio': 'masking ratio, %', 'share': 'share of CLM, %', 'steps': 'pretraining steps',
           'tokens': 'pretraining tokens', 'flops': 'pretraining FLOPs', 'cpt': 'continued steps',
           'rate': 'learning rate of fine-tuning'}


def panels(titles, rows=1):
    """(Figure, {title: Axes}), side by side."""
    from matplotlib.figure import Figure
    if not (titles := list(dict.fromkeys(titles))):
        raise ValueError('none of these models has what this figure shows')
    columns = math.ceil(len(titles) / rows)
    drawn = Figure(figsize=(3.5 * columns, 3.2 * rows), layout='constrained')
    axes = drawn.subplots(rows, columns, squeeze=False).ravel()
    for title, ax in itertools.zip_longest(titles, axes):
        ax.set_title(title or '', loc='left', fontsize=9)
        ax.set_visible(bool(title))
        ax.spines[['top', 'right']].set_visible(False)
        ax.tick_params(labelsize=9)
    return drawn, dict(zip(titles, axes))


def save(drawn, path):
    with whole(path) as temporary:
        drawn.savefig(temporary, dpi=150, bbox_inches='tight', format='png')
    return path


def place(name, about):
    """(line, x) of a pretraining in a figure; None where it has no place, as a part of a run in a ratio."""
    phases, step, repeat = about['phases'], about['step'], about.get('repeat', 1)
    total, ratio = repeat * sum(steps for _, steps in phases), f' {about["mask_ratio"]:.0%}'

    def words(objectives):
        names = (name.upper() + ratio * OBJECTIVES[name].uses_ratio for name in objectives)
        return ' then '.join(names) if repeat == 1 else f'{" and ".join(names)} in turn'
    objectives, family = [objective for objective, _ in phases], about.get('family', '')
    if name == 'cpt':
        return f'{about["continues"]}, then {objectives[-1].upper()}', step
    if name in ('steps', 'flops'):
        return f'{family} {words(objectives)}, of {total:,} steps', about['step' if name == 'steps' else name]
    if name == 'rate' and about.get('finetuning_rate'):     # of published scores it is not known
        return f'{family} {words(objectives)}, {step:,} steps', about['finetuning_rate']
    if name == 'tokens' and step == total and name in about:    # a line of runs, by their length
        return f'{family} {words(objectives)}', about[name]
    if name == 'share' and step == total:
        causal = repeat * sum(steps for objective, steps in phases if OBJECTIVES[objective].causal)
        masked = dict.fromkeys(objective for objective in objectives if not OBJECTIVES[objective].causal)
        return f'{family} {step:,} steps, {words(masked or ["mlm"])}', 100 * causal / step
    if name == 'ratio' and step == total and OBJECTIVES[objectives[-1]].uses_ratio:
        return f'{family} {words(objectives).replace(ratio, "")}, {step:,} steps', 100 * about['mask_ratio']


def against(name, points):
    """Scores against pretraining: a line for each family of models."""
    placed = []
    for model, about, task, *interval in points:
        if about and bool(about.get('continues')) == (name == 'cpt') and (point := place(name, about)):
            more = model.removesuffix('-probe').partition('+')[2], 'probe' * model.endswith('-probe')
            placed.append((task, ', '.join(filter(None, (point[0].strip(), *more))), point[1], *interval))
    drawn = curves(placed, AGAINST[name], 'log' if name in ('steps', 'tokens', 'flops', 'rate') else 'linear')
    if name == 'rate':
        rates = sorted({x for _, _, x, *_ in placed})
        for ax in drawn.axes:
            ax.set_xticks(rates, [f'{rate:.0e}'.replace('e-0', 'e-') for rate in rates])
            ax.minorticks_off()
    return drawn


def curves(points, label, scale, score='score, %'):
    """A panel a task. points: [(task, line, x, mean, low, high)]; single ones only where there is no line."""
    groups = {}
    for task, line, *values in points:
        groups.setdefault((task, line), []).append(values)
    groups = {key: values for key, values in groups.items() if len({x for x, *_ in values}) > 1} or groups
    drawn, axes = panels(task for task, _ in groups)
    colours, handles = dict(zip(dict.fromkeys(line for _, line in groups), itertools.cycle(COLOURS))), {}
    for (task, line), values in groups.items():
        x, mean, low, high = np.array(sorted(values)).T
        # rounding may put the mean of an interval without width a little outside of it
        lengths = np.maximum([mean - low, high - mean], 0)
        handles[line] = axes[task].errorbar(x, mean, lengths, color=colours[line],
                                            fmt='o' if len(x) == 1 else 'o-' if len(x) < 40 else '-',
                                            markersize=3, capsize=2 * bool((high > low).any()))
    for k, ax in enumerate(axes.values()):
        ax.set(xlabel=label, xscale=scale, ylabel='' if k else score)
        ax.xaxis.set_minor_formatter('')
    drawn.legend(handles.values(), handles, loc='lower center', bbox_to_anchor=(0.5, 1), ncol=4)
    return drawn

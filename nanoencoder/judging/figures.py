"""Figures. Each function draws its points and returns a matplotlib Figure.

points  [(model, pretraining, task, mean, low, high)], in percent
        a pretraining is {'phases', 'mask_ratio', 'step', 'flops'}, 'family' and 'continues' where known
"""
import itertools
import math

import numpy as np

from data import OBJECTIVES
from nanoencoder.files import whole

INK, PALE = '#333333', '#999999'
COLOURS = ('#3b6ea8', '#d1603d', '#4f9d69', '#8b6bb1', '#c9a227', '#5aa9c4', '#b0517f', '#7a7a52', '#555555')
AGAINST = {'ratio': 'masking ratio, %', 'share': 'share of CLM, % of the steps', 'steps': 'pretraining steps',
           'flops': 'pretraining FLOPs', 'cpt': 'steps of continued pretraining'}


def panels(titles, height=3.2):
    """(Figure, {title: Axes}), side by side."""
    from matplotlib.figure import Figure
    if not (titles := list(dict.fromkeys(titles))):
        raise ValueError('none of these models has what this figure shows')
    drawn = Figure(figsize=(3.6 * len(titles), height), layout='constrained')
    axes = dict(zip(titles, drawn.subplots(1, len(titles), squeeze=False)[0]))
    for title, ax in axes.items():
        ax.set_title(title)
        ax.grid(alpha=0.3)
    return drawn, axes


def colours_of(names):
    """{name: colour} in the order of first appearance."""
    return dict(zip(dict.fromkeys(names), itertools.cycle(COLOURS)))


def save(drawn, path):
    with whole(path) as temporary:
        drawn.savefig(temporary, dpi=150, bbox_inches='tight', format='png')
    return path


def place(name, about):
    """(line, x) of a pretraining in a figure. Only whole runs count in ratio and share: else None.

    A run's checkpoints share a line in steps and flops; a run of another length has another schedule.
    """
    phases, step, ratio = about['phases'], about['step'], f' {about["mask_ratio"]:.0%}'
    repeat, family = about.get('repeat', 1), about.get('family', '')
    total, objectives = repeat * sum(steps for _, steps in phases), [objective for objective, _ in phases]

    def words(objectives, ratio=ratio):
        names = (name.upper() + ratio * OBJECTIVES[name].uses_ratio for name in objectives)
        return ' then '.join(names) if repeat == 1 else f'{" and ".join(names)} in turn'
    if name == 'cpt':
        return f'{about["continues"]}, then {phases[-1][0].upper()}', step
    if name in ('steps', 'flops'):
        return f'{family} {words(objectives)}, of {total:,} steps', about['step' if name == 'steps' else name]
    if name == 'share' and step == total:
        causal = repeat * sum(steps for objective, steps in phases if OBJECTIVES[objective].causal)
        masked = dict.fromkeys(objective for objective in objectives if not OBJECTIVES[objective].causal)
        return f'{family} {step:,} steps, {words(masked or ["mlm"])}', 100 * causal / step
    if name == 'ratio' and step == total and OBJECTIVES[objectives[-1]].uses_ratio:
        return f'{family} {words(objectives, "")}, {step:,} steps', 100 * about['mask_ratio']


def against(name, points):
    """Scores against pretraining: a line for each family of models."""
    placed = []
    for model, about, task, *interval in points:
        if about and bool(about.get('continues')) == (name == 'cpt') and (point := place(name, about)):
            line = point[0].strip() + (', probe' if model.endswith(' (probe)') else '')
            placed.append((task, line, point[1], *interval))
    return curves(placed, AGAINST[name], 'log' if name in ('steps', 'flops') else 'linear')


def curves(points, label, scale):
    """A panel a task. points: [(task, line, x, mean, low, high)]; single ones only where there is no line."""
    groups = {}
    for task, line, *values in points:
        groups.setdefault((task, line), []).append(values)
    groups = {key: values for key, values in groups.items() if len({x for x, *_ in values}) > 1} or groups
    drawn, axes = panels(task for task, _ in groups)
    colours, handles = colours_of(line for _, line in groups), {}
    for (task, line), values in groups.items():
        x, mean, low, high = np.array(sorted(values)).T
        handles[line] = axes[task].errorbar(x, mean, [mean - low, high - mean], color=colours[line],
                                            fmt='o-' if len(x) > 1 else 'o', markersize=3, capsize=2)
    for k, ax in enumerate(axes.values()):
        ax.set(xlabel=label, xscale=scale, ylabel='' if k else 'score, %')
        ax.xaxis.set_minor_formatter('')
    drawn.legend(handles.values(), handles, loc='lower center', bbox_to_anchor=(0.5, 1), ncol=4)
    return drawn


def bars(points):
    """A panel a task, a bar a model, each in its row in all panels."""
    models = list(dict.fromkeys(point[0] for point in points))
    drawn, axes = panels((point[2] for point in points), max(3.2, 0.25 * len(models)))
    for model, _, task, mean, low, high in points:
        interval = [[mean - low], [high - mean]]
        axes[task].barh(models.index(model), mean, xerr=interval, capsize=3, color=COLOURS[0])
    for k, ax in enumerate(axes.values()):
        ax.set_yticks(range(len(models)), [''] * len(models) if k else models)
        ax.set(ylim=(len(models) - 0.5, -0.5), xlabel='score, %')
    return drawn


def ladder(shown):
    """Scores by length of pretraining, a panel a quantity: a line, a 95 % band over seeds and a name an arm.

    shown  [(title, {arm: [(tokens, mean, low, high)]}, {dashed line's name: value})]

    A panel is as high as its lines need: wide bands, as of two seeds, are cut off.
    """
    from matplotlib.figure import Figure
    rows = 1 if len(shown) <= 3 else 2      # narrow enough to be read on a page
    columns = math.ceil(len(shown) / rows)
    drawn = Figure(figsize=(3.4 * columns, 3.2 * rows), layout='constrained')
    axes = drawn.subplots(rows, columns, squeeze=False).ravel()
    for ax in axes[len(shown):]:
        ax.remove()
    fullest_first = sorted(shown, key=lambda panel: -len(panel[1]))
    colours = colours_of(arm for _, lines, _ in fullest_first for arm in lines)
    for ax, (title, lines, floors) in zip(axes, shown):
        for arm, values in lines.items():
            x, mean, low, high = np.array(values).T
            ax.plot(x / 1e6, mean, 'o-', color=colours[arm], markersize=4, linewidth=1.8)
            ax.fill_between(x / 1e6, low, high, color=colours[arm], alpha=0.16, linewidth=0)
        draw_axis(ax, [x / 1e6 for values in lines.values() for x, *_ in values],
                  0.03 * max(map(len, colours)))
        means = [mean for values in lines.values() for _, mean, *_ in values]
        draw_floors(ax, floors, means)
        low, high = ax.get_ylim()
        size = max(means) - min(means) or high - low
        low, high = ax.set_ylim(max(low, min(means) - 0.7 * size), min(high, max(means) + 0.7 * size))
        y = -math.inf
        for arm, values in sorted(lines.items(), key=lambda line: line[1][-1][1]):
            y = max(values[-1][1], y + 0.07 * (high - low))     # names are clear of each other
            ax.text(values[-1][0] / 1e6 * 1.07, y, arm, color=colours[arm], fontsize=9, va='center',
                    weight='bold')
        ax.set_title(title, loc='left', fontsize=9)
        ax.spines[['top', 'right']].set_visible(False)
        ax.tick_params(labelsize=9)
        ax.minorticks_off()
    return drawn


def draw_axis(ax, tokens, room):
    """The lengths, in millions of tokens; a share of the panel, room, is the names' behind the lines."""
    ticks = sorted({*tokens})
    ax.set_xscale('log', base=2)
    ax.set_xticks(ticks, [f'{tick:.1f}' for tick in ticks])
    ax.set(xlim=(ticks[0] / 1.12, ticks[-1] * (ticks[-1] / ticks[0]) ** (room / (1 - room))))
    ax.set_xlabel('million tokens of pretraining', x=(1 - room) / 2)
    ax.spines['bottom'].set_bounds(ticks[0] / 1.12, ticks[-1])


def draw_floors(ax, floors, means):
    """Dashed lines; those far off the curves are named above the panel or at its bottom, with an arrow."""
    size = max(means) - min(means)
    low, high = min(means) - 0.6 * size, max(means) + 0.6 * size
    words = dict(fontsize=8, color=INK, ha='right', va='bottom')
    above = [f'{name} {y:.1f} ↑' for name, y in floors.items() if y >= high]
    below = [f'{name} {y:.1f} ↓' for name, y in floors.items() if y <= low]
    ax.set_title(', '.join(above), loc='right', fontsize=8, color=INK)
    ax.annotate('\n'.join(below), (0.995, 0), xycoords='axes fraction', **words)
    for name, y in floors.items():
        if low < y < high:
            ax.axhline(y, color=PALE, linewidth=1, linestyle='--')
            ax.annotate(f'{name} {y:.1f}', (0.995, y), xycoords=ax.get_yaxis_transform(), **words)

"""Figures. Each function draws its points and returns a matplotlib Figure.

points     [(model, pretraining, task, mean, low, high)], in percent
           a pretraining is {'phases', 'mask_ratio', 'step', 'flops'}, 'family' and 'continues' where known
histories  [(name, phases, lines of the log)] of pretraining runs
"""
import itertools
import math

import numpy as np

from data import OBJECTIVES
from nanoencoder.judging.losses import validated

INK, PALE = '#333333', '#999999'
COLOURS = ('#3b6ea8', '#d1603d', '#4f9d69', '#8b6bb1', '#c9a227', '#5aa9c4', '#b0517f', '#7a7a52', '#555555')


def new_figure(width, height):
    from matplotlib.figure import Figure
    return Figure(figsize=(width, height), layout='constrained')


def panels(titles, height=3.2):
    """(Figure, {title: Axes}), side by side."""
    titles = list(dict.fromkeys(titles))
    if not titles:
        raise ValueError('none of these models has what this figure shows')
    drawn = new_figure(3.6 * len(titles), height)
    axes = dict(zip(titles, drawn.subplots(1, len(titles), squeeze=False)[0]))
    for title, ax in axes.items():
        ax.set_title(title)
        ax.grid(alpha=0.3)
    return drawn, axes


def colours_of(names):
    """{name: colour} in the order of first appearance."""
    return dict(zip(dict.fromkeys(names), itertools.cycle(COLOURS)))


# ----------------------------------------------------------------------------------------------------- scores

AGAINST = {'ratio': 'masking ratio, %', 'share': 'share of CLM, % of the steps', 'steps': 'pretraining steps',
           'flops': 'pretraining FLOPs', 'cpt': 'steps of continued pretraining'}


def place(name, about):
    """(line, x) of a pretraining in a figure. Only whole runs count in ratio and share: else None.

    A run's checkpoints share a line in steps and flops; a run of another length has another schedule.
    """
    phases, step, ratio = about['phases'], about['step'], f' {about["mask_ratio"]:.0%}'
    repeat, family = about.get('repeat', 1), about.get('family', '')
    total, kinds = repeat * sum(steps for _, steps in phases), [kind for kind, _ in phases]

    def words(kinds, ratio=ratio):
        names = (kind.upper() + ratio * OBJECTIVES[kind].uses_ratio for kind in kinds)
        return ' then '.join(names) if repeat == 1 else f'{" and ".join(names)} in turn'
    if name == 'cpt':
        return f'{about["continues"]}, then {phases[-1][0].upper()}', step
    if name in ('steps', 'flops'):
        return f'{family} {words(kinds)}, of {total:,} steps', step if name == 'steps' else about['flops']
    if name == 'share' and step == total:
        causal = repeat * sum(steps for kind, steps in phases if OBJECTIVES[kind].causal)
        others = dict.fromkeys(kind for kind in kinds if not OBJECTIVES[kind].causal)
        return f'{family} {step:,} steps, {words(others or ["mlm"])}', 100 * causal / step
    if name == 'ratio' and step == total and OBJECTIVES[kinds[-1]].uses_ratio:
        return f'{family} {words(kinds, "")}, {step:,} steps', 100 * about['mask_ratio']


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


# ----------------------------------------------------------------------------------------- pretraining's logs

def switches(phases):
    """Steps at which the objective changes; none where objectives are mixed step by step."""
    return list(itertools.accumulate(steps for _, steps in phases[:-1])) if len(phases) <= 20 else []


def switch(histories):
    """Held-out losses, a panel an objective, and the gradient norm; dotted where the objective changes."""
    kinds = validated(line for *_, lines in histories for line in lines)
    rows = {f'val_{kind}_loss': f'held-out {kind.upper()} loss,\nnats per target' for kind in kinds}
    rows['grad_norm'] = 'gradient norm'
    drawn = new_figure(7, 2.2 * len(rows))
    axes = drawn.subplots(len(rows), 1, sharex=True, squeeze=False)[:, 0]
    for ax, (name, label) in zip(axes, rows.items()):
        for (run, phases, lines), colour in zip(histories, itertools.cycle(COLOURS)):
            known = [line for line in lines if name in line]
            ax.plot([line['step'] for line in known], [line[name] for line in known],
                    'o-' if len(known) == 1 else '-', color=colour, label=run, linewidth=1)
            for step in switches(phases):
                ax.axvline(step, color=colour, linestyle=':', linewidth=1)
        ax.set_ylabel(label)
    axes[-1].set(yscale='log', xlabel='step')
    axes[0].legend(fontsize=8)
    return drawn


# ------------------------------------------------------------------------------------------------ a study

def ladder(shown):
    """Scores by length of pretraining, a panel a quantity: a line, a 95 % band over seeds and a name an arm.

    shown  [(title, {arm: [(tokens, mean, low, high)]}, {dashed line's name: value}, shaded)], where shaded is
           (from, to, words) in tokens or None: where two arms cannot be told apart

    A panel shows the lines; a band that is much wider than they are apart, as with two seeds, leaves it.
    """
    rows = 1 if len(shown) <= 3 else 2      # narrow enough to be read on a page
    columns = math.ceil(len(shown) / rows)
    drawn = new_figure(3.4 * columns, 3.2 * rows)
    axes = drawn.subplots(rows, columns, squeeze=False).ravel()
    for ax in axes[len(shown):]:
        ax.remove()
    fullest_first = sorted(shown, key=lambda panel: -len(panel[1]))
    arms = colours_of(arm for _, lines, *_ in fullest_first for arm in lines)
    room = 0.03 * max(map(len, arms))      # of the names behind the lines, of a panel's width
    for ax, (title, lines, floors, shaded) in zip(axes, shown):
        for arm, values in lines.items():
            x, mean, low, high = np.array(values).T
            ax.plot(x / 1e6, mean, 'o-', color=arms[arm], markersize=4, linewidth=1.8)
            ax.fill_between(x / 1e6, low, high, color=arms[arm], alpha=0.16, linewidth=0)
        ticks = sorted({x / 1e6 for values in lines.values() for x, *_ in values})
        ax.set_xscale('log', base=2)
        ax.set_xticks(ticks, [f'{tick:.1f}' for tick in ticks])
        ax.set(xlim=(ticks[0] / 1.12, ticks[-1] * (ticks[-1] / ticks[0]) ** (room / (1 - room))))
        ax.set_xlabel('million tokens of pretraining', x=(1 - room) / 2)
        ax.spines['bottom'].set_bounds(ticks[0] / 1.12, ticks[-1])
        means = [mean for values in lines.values() for _, mean, *_ in values]
        draw_floors(ax, floors, means)
        low, high = ax.get_ylim()
        size = max(means) - min(means) or high - low
        ax.set_ylim(max(low, min(means) - 0.7 * size), min(high, max(means) + 0.7 * size))
        name_lines(ax, {arm: values[-1][:2] for arm, values in lines.items()}, arms)
        if shaded:
            low, high, words = shaded
            ax.axvspan(low / 1e6, high / 1e6, color=INK, alpha=0.07, linewidth=0)
            ax.annotate(words, (low / 1e6, 0.99), fontsize=8, color=INK, ha='left', va='top',
                        xycoords=ax.get_xaxis_transform())
        ax.set_title(title, loc='left', fontsize=9)
        ax.spines[['top', 'right']].set_visible(False)
        ax.tick_params(labelsize=9)
        ax.minorticks_off()
    return drawn


def name_lines(ax, ends, colours):
    """Each line's name behind its end, (x, y), clear of the one below it."""
    low, high = ax.get_ylim()
    place = -math.inf
    for name, (x, y) in sorted(ends.items(), key=lambda item: item[1][1]):
        place = max(y, place + 0.07 * (high - low))
        ax.text(x / 1e6 * 1.07, place, name, color=colours[name], fontsize=9, va='center', weight='bold')


def draw_floors(ax, floors, means):
    """Dashed lines; those far off the curves are named above the panel or at its bottom, with an arrow."""
    size = max(means) - min(means)
    low, high = min(means) - 0.6 * size, max(means) + 0.6 * size
    above = [f'{name} {y:.1f} ↑' for name, y in floors.items() if y >= high]
    below = [f'{name} {y:.1f} ↓' for name, y in floors.items() if y <= low]
    ax.set_title(', '.join(above), loc='right', fontsize=8, color=INK)
    ax.annotate('\n'.join(below), (0.995, 0), xycoords='axes fraction', fontsize=8, color=INK, ha='right',
                va='bottom')
    for name, y in floors.items():
        if low < y < high:
            ax.axhline(y, color=PALE, linewidth=1, linestyle='--')
            ax.annotate(f'{name} {y:.1f}', (0.995, y), xycoords=ax.get_yaxis_transform(), fontsize=8,
                        color=INK, ha='right', va='bottom')

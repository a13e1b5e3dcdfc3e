"""Figures. Each function draws its points and returns a matplotlib Figure.

points     [(model, pretraining, task, mean, low, high)], in percent
           a pretraining is {'phases', 'mask_ratio', 'step', 'flops'}, 'family' and 'continues' where known
histories  [(name, phases, lines of the log)] of pretraining runs
"""
import itertools
import math

import numpy as np

from data import OBJECTIVES
from nanoencoder.losses import validated

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


def in_turn(names):
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
    total = repeat * sum(steps for _, steps in phases)
    if name == 'cpt':
        return f'{about["continues"]}, then {phases[-1][0].upper()}', step
    if name in ('steps', 'flops'):
        words = ' then '.join(kind.upper() + ratio * OBJECTIVES[kind].masked for kind, _ in phases)
        return f'{family} {words}, of {total:,} steps', step if name == 'steps' else about['flops']
    if name == 'share' and step == total:
        causal = repeat * sum(steps for kind, steps in phases if OBJECTIVES[kind].causal)
        return f'{family} {step:,} steps, MLM{ratio}', 100 * causal / step
    if name == 'ratio' and step == total and OBJECTIVES[phases[-1][0]].masked:
        words = ' then '.join(kind.upper() for kind, _ in phases)
        return f'{family} {words}, {step:,} steps', 100 * about['mask_ratio']


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
    colours, handles = in_turn(line for _, line in groups), {}
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

def series(lines, name):
    """[steps, values] of the lines that have it."""
    return list(zip(*((line['step'], line[name]) for line in lines if name in line))) or [(), ()]


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
            steps, values = series(lines, name)
            ax.plot(steps, values, 'o-' if len(steps) == 1 else '-', color=colour, label=run, linewidth=1)
            for step in switches(phases):
                ax.axvline(step, color=colour, linestyle=':', linewidth=1)
        ax.set_ylabel(label)
    axes[-1].set(yscale='log', xlabel='step')
    axes[0].legend(fontsize=8)
    return drawn


def summary(histories, scores):
    """Held-out MLM loss by step, beside the same models' fine-tuned scores with 95 % intervals.

    scores  [(panel, model, kind, mean, low, high)], in percent; an untrained model and baselines become lines
    """
    words = [' then '.join(kind.upper() for kind, _ in phases) for _, phases, _ in histories]
    labels = {name: word if words.count(word) == 1 else name for (name, *_), word in zip(histories, words)}
    titles = list(dict.fromkeys(panel for panel, model, *_ in scores if model in labels))
    drawn = new_figure(4.8 + 2.3 * len(titles), 3)
    widths = [2] + [1] * len(titles)
    first, *others = drawn.subplots(1, len(widths), squeeze=False, width_ratios=widths)[0]
    draw_losses(first, histories, labels)
    for k, (ax, title) in enumerate(zip(others, titles)):
        draw_scores(ax, [row[1:] for row in scores if row[0] == title], labels, named=k == 0)
        ax.set_title(f'{title}, %', loc='left', fontsize=10)
    for ax in (first, *others):
        ax.spines[['top', 'right']].set_visible(False)
        ax.tick_params(labelsize=9)
    return drawn


def draw_losses(ax, histories, labels):
    """A line a run, its last loss at its end. Losses far above those of the last phases are cut off."""
    ends, shown = [], []
    for (name, phases, lines), colour in zip(histories, in_turn(labels).values()):
        x, y = series(lines, 'val_mlm_loss')
        if not y:
            raise ValueError(f'figure summary: {name} has no held-out MLM loss')
        before = max([0, *switches(phases)])
        ax.plot(x, y, color=colour, marker='o', markersize=3)
        shown += [loss for step, loss in zip(x, y) if step > before and OBJECTIVES[phases[-1][0]].masked]
        ends.append((y[-1], x[-1], labels[name], colour))
        if before:
            ax.axvline(before, color=colour, linewidth=1, linestyle=':')
            ax.annotate(f'{phases[-2][0].upper()} until here ', (before, 0.02), color=colour, fontsize=8,
                        xycoords=ax.get_xaxis_transform(), ha='right', va='bottom')
    low, high = min(shown or y), max(shown or y)
    size, place = high - low or 1, -math.inf
    for y, x, label, colour in sorted(ends):     # lowest first; each keeps clear of the one below
        place = max(min(y, high), place + 0.09 * size)
        above = ', above' if y > high + 0.15 * size else ''
        ax.text(x, place, f'  {label}  {y:.2f}{above}', color=colour, fontsize=9, va='center')
    ax.set(ylim=(low - 0.08 * size, high + 0.15 * size), xlabel='pretraining step')
    ax.set_title('held-out MLM loss, nats per token', loc='left', fontsize=10)


def draw_scores(ax, scores, labels, named):
    """A row a model; dashed, and named beneath, what these must beat: no pretraining, no model at all."""
    rows, colours, floors = {name: -k for k, name in enumerate(labels)}, in_turn(labels), []
    for model, kind, mean, low, high in scores:
        if model in rows:
            ax.plot([low, high], [rows[model]] * 2, color=colours[model], linewidth=2)
            ax.plot(mean, rows[model], 'o', color=colours[model])
            ax.text(mean, rows[model] + 0.15, f'{mean:.1f}', color=colours[model], fontsize=9, ha='center')
        elif kind == 'baseline' or model == 'untrained':
            ax.axvline(mean, color=PALE, linewidth=1, linestyle='--')
            floors.append((mean, model))
    middle = sum(ax.get_xlim()) / 2
    for k, (mean, model) in enumerate(sorted(floors)):
        ax.text(mean, 0.1 - len(rows) - 0.35 * k, f' {model} {mean:.1f} ', color=INK, fontsize=8,
                ha='left' if mean < middle else 'right')
    ax.set_yticks(list(rows.values()), labels.values() if named else [''] * len(rows))
    ax.set_ylim(0.2 - len(rows) - 0.35 * len(floors), 0.7)
    for tick, colour in zip(ax.get_yticklabels(), colours.values()):
        tick.set_color(colour)

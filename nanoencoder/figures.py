"""Figures. Each function draws the points that it is given and returns a matplotlib Figure.

A model's pretraining is {'phases', 'mask_ratio', 'step', 'flops'} and, where known, 'family' and 'continues'.
"""
import itertools
import math
import statistics

INK, PALE = '#333333', '#999999'
COLOURS = ('#3b6ea8', '#d1603d', '#4f9d69', '#8b6bb1', '#c9a227', '#5aa9c4', '#b0517f', '#7a7a52', '#e08e79', '#555555')


def panels(titles, width=3.6, height=3.2, **options):
    """(Figure, {title: Axes}), side by side."""
    from matplotlib.figure import Figure
    drawn = Figure(figsize=(width * len(titles), height))
    axes = drawn.subplots(1, len(titles), squeeze=False, **options)[0]
    for ax, title in zip(axes, titles):
        ax.set_title(title)
        ax.grid(alpha=0.3)
    return drawn, dict(zip(titles, axes))


def in_turn(names):
    """{name: colour} in the order of first appearance."""
    return dict(zip(dict.fromkeys(names), itertools.cycle(COLOURS)))


# ------------------------------------------------------------------------------------- scores against pretraining

def switches(phases):
    """Steps at which the objective changes."""
    return list(itertools.accumulate(steps for _, steps in phases[:-1]))


def share_of_clm(about):
    """Of the steps done so far, in percent."""
    phases = zip([0, *switches(about['phases'])], about['phases'])
    return 100 * sum(max(0, min(steps, about['step'] - begin)) for begin, (kind, steps) in phases
                     if kind == 'clm') / about['step']


def trained_with(about, ratio=True):
    """A legend's words: family, then CLM, MLM 40 %, CLM then MLM 40 %."""
    words = [kind.upper() + (f' {about["mask_ratio"]:.0%}' if ratio and kind != 'clm' else '')
             for kind, _ in about['phases']]
    return f'{about.get("family", "")} {" then ".join(words)}'.strip()


def of_a_run(about):
    """The line of a run's checkpoints: with those of another length it shares no schedule."""
    return f'{trained_with(about)}, of {sum(steps for _, steps in about["phases"]):,} steps'


def finished(about):
    return about['step'] == sum(steps for _, steps in about['phases'])


def ratio_point(about):
    if about['phases'][-1][0] != 'clm' and finished(about):
        return f'{trained_with(about, ratio=False)}, {about["step"]:,} steps', 100 * about['mask_ratio']


def share_point(about):
    if finished(about):
        line = f'{about.get("family", "")} {about["step"]:,} steps, MLM {about["mask_ratio"]:.0%}'
        return line.strip(), share_of_clm(about)


AGAINST = {  # name: (x axis, logarithmic, (line, x) of a pretraining, or None); continued models are in cpt alone
    'ratio': ('masking ratio, %', False, ratio_point),
    'share': ('share of CLM, % of the steps', False, share_point),
    'steps': ('pretraining steps', True, lambda about: (of_a_run(about), about['step'])),
    'flops': ('pretraining FLOPs', True, lambda about: (of_a_run(about), about['flops'])),
    'cpt': ('steps of continued pretraining', False,
            lambda about: (f'{about["continues"]}, then MLM', about['step'])),
}


def against(kind, points):
    """A panel a task, a line for each family of models, with 95 % intervals.

    points  [(model, pretraining, task, mean, low, high)], in percent
    """
    label, logarithmic, place = AGAINST[kind]
    lines = {}
    for model, about, task, *values in points:
        if about and bool(about.get('continues')) == (kind == 'cpt') and (point := place(about)):
            name = point[0] + (', probe' if model.endswith(' (probe)') else '')
            lines.setdefault((task, name), []).append((point[1], *values))
    longer = {key: values for key, values in lines.items() if len({x for x, *_ in values}) > 1}
    lines = longer or lines
    if not lines:
        raise ValueError(f'figure {kind}: none of these models has what it shows ({label})')
    drawn, axes = panels([task for task in dict.fromkeys(point[2] for point in points)
                          if any(key[0] == task for key in lines)])
    colours = in_turn(name for _, name in lines)
    for (task, name), values in lines.items():
        x, mean, low, high = zip(*sorted(values))
        axes[task].errorbar(x, mean, interval_around(mean, low, high), marker='o', markersize=3, capsize=2,
                            label=name, color=colours[name], linestyle='-' if len(x) > 1 else 'none')
        axes[task].set(xlabel=label, xscale='log' if logarithmic else 'linear')
        axes[task].xaxis.set_minor_formatter('')
    next(iter(axes.values())).set_ylabel('score, %')
    handles = {name: handle for ax in axes.values() for handle, name in zip(*ax.get_legend_handles_labels())}
    drawn.legend(handles.values(), handles, loc='lower center', bbox_to_anchor=(0.5, 1.0), ncol=min(4, len(handles)))
    return drawn


def interval_around(mean, low, high):
    """How far an interval reaches below and above, as matplotlib wants it."""
    return [[m - l for m, l in zip(mean, low)], [h - m for m, h in zip(mean, high)]]


def bars(points):
    """A panel a task, a bar a model, each in its row in all panels. points: as of `against`."""
    models = list(dict.fromkeys(point[0] for point in points))
    drawn, axes = panels(list(dict.fromkeys(point[2] for point in points)), height=max(3.2, 0.25 * len(models)))
    for model, _, task, mean, low, high in points:
        axes[task].barh(models.index(model), mean, xerr=interval_around([mean], [low], [high]), capsize=3,
                        color=COLOURS[0])
    for k, ax in enumerate(axes.values()):
        ax.set_yticks(range(len(models)), models if k == 0 else [''] * len(models))
        ax.set(ylim=(len(models) - 0.5, -0.5), xlabel='score, %')
    return drawn


def learning_rates(points):
    """Test score against the fine-tuning learning rate, mean and range of the seeds (the paper's figure 5).

    points  {(model, task): {learning rate: [score of each seed, in percent]}}
    """
    drawn, axes = panels(list(dict.fromkeys(task for _, task in points)))
    colours = in_turn(model for model, _ in points)
    for (model, task), scores in points.items():
        x = sorted(scores)
        low, mean, high = ([f(scores[lr]) for lr in x] for f in (min, statistics.fmean, max))
        axes[task].plot(x, mean, marker='o', markersize=3, label=model, color=colours[model])
        axes[task].fill_between(x, low, high, alpha=0.15, color=colours[model])
        axes[task].set(xscale='log', xlabel='learning rate')
        axes[task].set_xticks(x, [f'{lr:g}' for lr in x])
        axes[task].xaxis.set_minor_formatter('')
    first = next(iter(axes.values()))
    first.set_ylabel('test score, %')
    first.legend(fontsize=7)
    return drawn


# ------------------------------------------------------------------------------------------------ pretraining logs

def series(lines, name):
    """(steps, values) of the lines that have it."""
    return zip(*((line['step'], line[name]) for line in lines if name in line))


def switch(histories):
    """Held-out losses, a panel an objective, and the gradient norm; dotted where the objective changes (figure 12).

    histories  [(name, phases, lines of the log)]
    """
    from matplotlib.figure import Figure
    names = dict.fromkeys(name for _, _, lines in histories for line in lines for name in line)
    names = [name for name in names if name.startswith('val_')] + ['grad_norm']
    drawn = Figure(figsize=(7, 2.2 * len(names)))
    axes = drawn.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    for (label, phases, lines), colour in zip(histories, itertools.cycle(COLOURS)):
        for ax, name in zip(axes, names):
            if any(name in line for line in lines):
                ax.plot(*series(lines, name), color=colour, label=label, linewidth=1)
            for step in switches(phases):
                ax.axvline(step, color=colour, linestyle=':', linewidth=1)
    for ax, name in zip(axes, names[:-1]):
        ax.set_ylabel(f'held-out {name.split("_")[1].upper()} loss,\nnats per target')
    axes[-1].set(ylabel='gradient norm', yscale='log', xlabel='step')
    axes[0].legend(fontsize=8)
    return drawn


def summary(histories, scores):
    """Held-out MLM loss by step, beside the same models' fine-tuned scores with 95 % intervals.

    scores  [(panel, model, kind, mean, low, high)], in percent; an untrained model and baselines become lines
    """
    from matplotlib.figure import Figure
    words = [' then '.join(kind.upper() for kind, _ in phases) for _, phases, _ in histories]
    labels = {name: word if words.count(word) == 1 else name for (name, *_), word in zip(histories, words)}
    titles = list(dict.fromkeys(panel for panel, model, *_ in scores if model in labels))
    drawn = Figure(figsize=(4.8 + 2.3 * len(titles), 3), layout='constrained')
    first, *others = drawn.subplots(1, 1 + len(titles), width_ratios=[2] + [1] * len(titles))
    colours = in_turn(labels)
    draw_losses(first, histories, labels, colours)
    for k, (ax, title) in enumerate(zip(others, titles)):
        names = dict.fromkeys(labels, '') if k else labels
        draw_scores(ax, [row for row in scores if row[0] == title], names, colours)
        ax.set_title(f'{title}, %', loc='left', fontsize=10)
    for ax in (first, *others):
        ax.spines[['top', 'right']].set_visible(False)
        ax.tick_params(labelsize=9)
    return drawn


def draw_losses(ax, histories, labels, colours):
    """A line a run, its last loss at its end. Losses far above those of MLM's phases are cut off."""
    ends, shown = [], []
    for name, phases, lines in histories:
        x, y = series(lines, 'val_mlm_loss')
        begin = max([0, *switches(phases)])
        ax.plot(x, y, color=colours[name], marker='o', markersize=3)
        shown += [loss for step, loss in zip(x, y) if step > begin and phases[-1][0] != 'clm']
        ends.append((y[-1], x[-1], labels[name], colours[name]))
        if begin:
            ax.axvline(begin, color=colours[name], linewidth=1, linestyle=':')
            ax.text(begin, 0.98, f' {phases[-1][0].upper()} from here', color=colours[name], fontsize=8, va='top',
                    transform=ax.get_xaxis_transform())
    low, size = min(shown), max(shown) - min(shown) or 1
    place = -math.inf
    for y, x, label, colour in sorted(ends):     # lowest first; each keeps clear of the one below
        place = max(min(y, low + size), place + 0.09 * size)
        above = ', above' if y > low + 1.15 * size else ''
        ax.text(x, place, f'  {label}  {y:.2f}{above}', color=colour, fontsize=9, va='center')
    ax.set(ylim=(low - 0.08 * size, low + 1.15 * size), xlabel='pretraining step')
    ax.set_title('held-out MLM loss, nats per token', loc='left', fontsize=10)


def draw_scores(ax, scores, labels, colours):
    """A row a model; dashed, and named beneath, what these must beat: no pretraining, no model at all."""
    rows = {name: -k for k, name in enumerate(labels)}
    floors = []
    for _, model, kind, mean, low, high in scores:
        if model in rows:
            ax.plot([low, high], [rows[model]] * 2, color=colours[model], linewidth=2)
            ax.plot(mean, rows[model], 'o', color=colours[model])
            ax.text(mean, rows[model] + 0.15, f'{mean:.1f}', color=colours[model], fontsize=9, ha='center')
        elif kind == 'baseline' or model == 'untrained':
            ax.axvline(mean, color=PALE, linewidth=1, linestyle='--')
            floors.append((mean, model))
    middle = sum(ax.get_xlim()) / 2
    for k, (mean, model) in enumerate(sorted(floors)):
        ax.text(mean, -len(rows) + 0.1 - 0.35 * k, f' {model} {mean:.1f} ', color=INK, fontsize=8,
                ha='left' if mean < middle else 'right')
    ax.set_yticks(list(rows.values()), labels.values())
    ax.set_ylim(-len(rows) - 0.35 * len(floors) + 0.4, 0.7)
    for tick, colour in zip(ax.get_yticklabels(), colours.values()):
        tick.set_color(colour)

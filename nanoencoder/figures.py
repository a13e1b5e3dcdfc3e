"""Figures. Each function draws its points and returns a matplotlib Figure.

In all of them a colour stands for the objectives of pretraining and a dash for its optimizer. Runs that are
alike in both get colours of their own where they meet in one figure. Markers tell all lines apart."""
import itertools
import math
import re

import numpy as np

from data import OBJECTIVES
from nanoencoder.files import whole

COLOURS = {
    ('clm',): '#3b6ea8',        # blue
    ('mlm',): '#d1603d',        # orange
    ('clm', 'mlm'): '#4f9d69',  # green: one then the other, or in turn
}
OTHER = '#8b6bb1'               # violet
# amber, sky, wine, black, indigo: of the second run with the same objectives, the third, ... Colour-blind
# readers can tell them from each other and from the first three above.
OF_FURTHER_RUNS = ('#e69f00', '#88ccee', '#882255', '#000000', '#332288')
# of config.json: what seeds and starts of one run may differ in
NOT_OF_A_RECIPE = {
    'name', 'row', 'seed', 'out', 'branch_from', 'weights_from', 'corpus', 'corpus_meta', 'starts'}
MARKERS = 'os^Dv*PX'
LABELS = {      # of numbers of run.json; others have their name
    'pretraining.mask_ratio': 'masking ratio',
    'pretraining.step': 'pretraining steps',
    'pretraining.tokens': 'pretraining tokens',
    'pretraining.flops': 'pretraining FLOPs',
    'settings.lr': 'learning rate of fine-tuning',
}
NAMES = {       # of datasets, in titles of panels; others have their name
    'docs_tc': 'tagging code words',
    'docs_ir': 'finding documentation',
    'docs_pairs': 'pairs of summary and detail',
    'ewt_pos': 'parts of speech',
    'uner_en': 'named entities',
    'wn_sc': 'classifying definitions',
    'wn_ir': 'finding definitions',
    'wn_qa': 'which word is defined',
    'wn_pairs': 'pairs of definitions',
    'squad_ir': 'finding paragraphs',
}
KINDS = {'SC': 'sentences', 'TC': 'tokens', 'QA': 'questions', 'IR': 'retrieval'}
LENGTHS = ('pretraining.step', 'pretraining.tokens', 'pretraining.flops')


def style_of(objectives, optimizer):
    """Return the usual (colour, dash) of a pretraining's line."""
    different = tuple(dict.fromkeys(objectives))    # MLM then MLM is MLM
    dash = '--' if optimizer == 'muon' else '-'
    return COLOURS.get(different, OTHER), dash


def style_of_name(line):
    """Return (colour, dash) of a line from its name, such as 'CLM then MLM 40%' or 'muon-mlm-1800'."""
    words = line.lower()
    names = sorted(OBJECTIVES, key=len, reverse=True)   # clm_some is not clm
    objectives = re.findall('|'.join(names), words)
    return style_of(objectives, 'muon' if 'muon' in words else 'adamw')


def styles_of(lines):
    """Return {line: (colour, dash)}. The first of several runs with the same style keeps it, and the others
    get colours of their own. All lines of one run, such as its seeds, look alike.

    lines  {line: (its usual style, the run that it belongs to)}"""
    further = itertools.cycle(OF_FURTHER_RUNS)
    styles = {}     # {(usual style, run): its style}
    for usual, run in lines.values():
        if (usual, run) in styles:
            continue
        style = usual
        if usual in styles.values():
            _, dash = usual
            style = next(further), dash
        styles[usual, run] = style
    return {line: styles[key] for line, key in lines.items()}


def style_of_config(config):
    """Return the usual (colour, dash) of a pretraining, of its config.json."""
    objectives = [objective for objective, _ in config['phases']]
    return style_of(objectives, config.get('optimizer', 'adamw'))


def run_of(config):
    """Return what the seeds of a pretraining have in common: their settings, and their row or their name
    without the seed. All that are compared with one row, as by `make try`, bear its name."""
    recipe = sorted((name, value) for name, value in config.items() if name not in NOT_OF_A_RECIPE)
    row = config.get('row') or config['name'].removesuffix(f'-s{config["seed"]}')
    return f'{row} {recipe}'


def legend_of(config, configs):
    """Return a pretraining's line in a legend: its name, and the settings in which it differs from others of
    these configs that would look the same."""
    style = style_of_config(config)
    alike = [other for other in configs if style_of_config(other) == style]
    words = [config['name']]
    for name in sorted(config.keys() - NOT_OF_A_RECIPE):
        if any(other.get(name) != config[name] for other in alike):
            value = phases_in_words(config) if name == 'phases' else config[name]
            words.append(f'{name} {value}')
    return ', '.join(words)


def phases_in_words(config):
    """Write the phases of a pretraining's config.json: 450 clm, then 1,350 mlm."""
    words = ', then '.join(f'{steps:,} {objective}' for objective, steps in config['phases'])
    if config.get('repeat', 1) > 1:
        words += f', {config["repeat"]} times'
    return words


def title_of(task, dataset):
    """Return the title of a panel: in plain words if there are any, else the names."""
    if dataset == 'Average':
        return f'{KINDS.get(task, task)}, average'
    return NAMES.get(dataset, f'{task} {dataset}')


def panels(titles, rows=1):
    """Return (Figure, {title: Axes}), with the panels side by side."""
    from matplotlib.figure import Figure
    titles = dict.fromkeys(titles)
    if not titles:
        raise ValueError('none of these models has what this figure shows')
    columns = math.ceil(len(titles) / rows)
    drawn = Figure(figsize=(3.5 * columns, 3.2 * rows), layout='constrained')
    drawn.get_layout_engine().set(w_pad=0.12, h_pad=0.08)   # inches; labels shall not touch other panels
    axes = drawn.subplots(rows, columns, squeeze=False).ravel()
    for title, ax in itertools.zip_longest(titles, axes, fillvalue=''):
        ax.set_title(title, loc='left', fontsize=9)
        ax.set_visible(title != '')
        ax.spines[['top', 'right']].set_visible(False)
        ax.tick_params(labelsize=9)
    return drawn, dict(zip(titles, axes))


def save_figure(drawn, path):
    with whole(path) as temporary:
        drawn.savefig(temporary, dpi=150, bbox_inches='tight', format='png')
    return path


def line_of(objectives, about, with_ratio=True):
    """Return the name of a line: '610M CLM then MLM 40%', or 'CLM and MLM 40% in turn' of repeated phases."""
    names = []
    for objective in objectives:
        name = objective.upper()
        if with_ratio and OBJECTIVES[objective].uses_ratio:
            name += f' {about["mask_ratio"]:.0%}'
        names.append(name)
    words = ' then '.join(names)
    if about.get('repeat', 1) > 1:
        words = f'{" and ".join(names)} in turn'
    return f'{about.get("family", "")} {words}'.strip()


def total_steps(about):
    """Return how many steps a pretraining has at its end."""
    return about.get('repeat', 1) * sum(steps for _, steps in about['phases'])


def line_of_model(model, about, key, is_by_run):
    """Return the name of a model's line in a figure against `key`, or None if the number means nothing there.

    about      its pretraining, as run.json has it; {} of other people's encoders
    is_by_run  whether the checkpoints of a run are a line; else runs of different lengths are one"""
    if not about:
        return model
    objectives = [objective for objective, _ in about['phases']]
    is_ratio = key == 'pretraining.mask_ratio'
    if is_ratio and not any(OBJECTIVES[objective].uses_ratio for objective in objectives):
        return None
    words = line_of(objectives, about, with_ratio=not is_ratio)
    if about.get('continues'):
        words = f'{about["continues"]}, then {words}'
    if key not in LENGTHS:
        words += f', {about["step"]:,} steps'
    elif is_by_run:
        words += f', of {total_steps(about):,} steps'
    optimizer = about.get('fixed', {}).get('optimizer', 'adamw')
    if optimizer != 'adamw':
        words += f', {optimizer}'
    return words + suffix_of(model)


def suffix_of(model):
    """Return what a line says of a model <name>+<variant> or <name>-probe."""
    _, plus, variant = model.partition('+')
    if plus:
        return f', {variant}'
    return ', probe' if model.endswith('-probe') else ''


def numbers_of(about, before=''):
    """Return {name: number} of run.json, 'pretraining.tokens' of one in another object."""
    numbers = {}
    for name, value in about.items():
        if isinstance(value, dict):
            numbers |= numbers_of(value, f'{before}{name}.')
        elif type(value) in (int, float):
            numbers[before + name] = value
    return numbers


def number_in(runs, key):
    """Return the whole name of a number in which runs differ: tokens is pretraining.tokens."""
    values = {}     # {name: the numbers of all runs}
    for run in runs:
        for name, value in numbers_of(run.about).items():
            values.setdefault(name, set()).add(value)
    names = sorted(name for name in values if len(values[name]) > 1)
    meant = [name for name in names if f'.{name}'.endswith(f'.{key}')]
    if len(meant) > 1:      # pretraining.fixed says most settings of a pretraining once more
        meant = [name for name in meant if '.fixed.' not in name]
    if len(meant) != 1:
        raise ValueError(f'figure {key}: which number of run.json? Those in which these runs differ are '
                         f'{", ".join(names)}')
    return meant[0]


def points_of(cells, problems):
    """Return [(model, task, panel, mean, low, high)] of evaluate.py's cells, in percent. Of a task with
    several datasets, their average is shown."""
    points = []
    for (model, task, dataset), cell in cells.items():
        datasets = {key[2] for key in cells if key[1] == task}
        several = len(datasets) > 1
        if several and (model, task, 'Average') not in cells:
            problems.append(f'{model} is left out, which lacks a dataset of {task}: see --datasets')
            continue
        if (dataset == 'Average') != several:
            continue
        panel = title_of(task, dataset)
        if cell.runs:
            panel += f', {cell.runs[0].metric}'
        low = cell.low
        high = cell.high
        if len(cell.scores) == 2:   # their range, for Student's t of two says next to nothing
            low = min(cell.scores.values())
            high = max(cell.scores.values())
        points.append((model, task, panel, 100 * cell.mean, 100 * low, 100 * high))
    return points


def against(key, points):
    """Draw scores against a number of run.json: a line for each recipe.

    points  [(model, its pretraining, x, panel, mean, low, high)], in percent"""
    is_by_run = any(about and about['step'] < total_steps(about) for _, about, *_ in points)
    placed = []
    for model, about, x, panel, *interval in points:
        line = line_of_model(model, about, key, is_by_run)
        if line:
            placed.append((panel, line, x, *interval))
    xs = sorted({x for _, _, x, *_ in placed})
    scale = 'linear'
    if xs and 0 < 4 * xs[0] <= xs[-1]:
        scale = 'log'
    drawn = curves(placed, LABELS.get(key, key), scale)
    if key == 'settings.lr':
        label_rates(drawn, xs)
    return drawn


def label_rates(drawn, rates):
    """Label the x axes of a figure with these learning rates."""
    for ax in drawn.axes:
        ax.set_xticks(rates, [f'{rate:.0e}'.replace('e-0', 'e-') for rate in rates])
        ax.minorticks_off()


def curves(points, label, scale, score='score, %', styles=None):
    """Draw lines, a panel of each kind; single points only where no line has more.

    points  [(panel, line, x, mean, low, high)]
    styles  {line: (colour, dash)}; if not given, each line is a run, and its name says the style"""
    groups = {}
    for panel, line, *values in points:
        groups.setdefault((panel, line), []).append(values)
    longer = {key: values for key, values in groups.items() if len({x for x, *_ in values}) > 1}
    groups = longer or groups

    drawn, axes = panels(panel for panel, _ in groups)
    lines = dict.fromkeys(line for _, line in groups)
    styles = styles or styles_of({line: (style_of_name(line), line) for line in lines})
    markers = dict(zip(lines, itertools.cycle(MARKERS)))
    handles = {}
    for (panel, line), values in groups.items():
        colour, dash = styles[line]
        x, mean, low, high = np.array(sorted(values)).T
        # rounding may put the mean of an interval without width a little outside of it
        lengths = np.maximum([mean - low, high - mean], 0)
        is_long = len(x) > 20   # as the training loss: thin, with few markers
        handles[line] = axes[panel].errorbar(
            x, mean, lengths, color=colour, fmt=markers[line] + dash,
            markersize=4 if is_long else 6, linewidth=1 if is_long else 1.5,
            markevery=math.ceil(len(x) / 20), capsize=2 if lengths.any() else 0)
    if scale == 'log':
        label += ', log scale'
    for ax in axes.values():
        ax.set(xlabel=label, xscale=scale)
        ax.xaxis.set_minor_formatter('')
    drawn.axes[0].set_ylabel(score)
    drawn.legend(handles.values(), handles, loc='lower center', bbox_to_anchor=(0.5, 1), ncol=4)
    return drawn


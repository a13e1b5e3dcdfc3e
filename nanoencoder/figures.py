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
NOT_OF_A_RECIPE = {'name', 'row', 'seed', 'out', 'branch_from', 'corpus', 'corpus_meta', 'starts'}
MARKERS = 'os^Dv*PX'
AGAINST = {
    'ratio': 'masking ratio, %',
    'share': 'share of CLM, %',
    'steps': 'pretraining steps',
    'tokens': 'pretraining tokens',
    'flops': 'pretraining FLOPs',
    'cpt': 'continued steps',
    'rate': 'learning rate of fine-tuning',
}


def style_of(line):
    """Return (colour, dash) of a line from its name, such as 'CLM then MLM 40%' or 'muon-mlm-1800'."""
    words = line.lower()
    names = sorted(OBJECTIVES, key=len, reverse=True)   # clm_some is not clm
    objectives = dict.fromkeys(re.findall('|'.join(names), words))     # MLM then MLM is MLM
    dash = '--' if 'muon' in words else '-'
    return COLOURS.get(tuple(objectives), OTHER), dash


def styles_of(lines):
    """Return {line: (colour, dash)}. The first of several runs with the same style keeps it, and the others
    get colours of their own. All lines of one run, such as its seeds, look alike.

    lines  {line: (words that style_of reads, the run that it belongs to)}"""
    further = itertools.cycle(OF_FURTHER_RUNS)
    styles = {}     # {(style of the words, run): its style}
    for words, run in lines.values():
        colour, dash = style_of(words)
        key = (colour, dash), run
        if key in styles:
            continue
        if (colour, dash) in styles.values():
            colour = next(further)
        styles[key] = colour, dash
    return {line: styles[style_of(words), run] for line, (words, run) in lines.items()}


def recipe_of(config):
    """Return words for style_of, of a pretraining's config.json."""
    objectives = [objective for objective, _ in config['phases']]
    return f'{" then ".join(objectives)}, {config.get("optimizer", "")}'


def run_of(config):
    """Return what the seeds of a pretraining have in common: their row, or their name without the seed."""
    return config.get('row') or config['name'].removesuffix(f'-s{config["seed"]}')


def legend_of(config, configs):
    """Return a pretraining's line in a legend: its name, and the settings in which it differs from others of
    these configs that would look the same."""
    style = style_of(recipe_of(config))
    alike = [other for other in configs if style_of(recipe_of(other)) == style]
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


def panels(titles, rows=1):
    """Return (Figure, {title: Axes}), with the panels side by side."""
    from matplotlib.figure import Figure
    titles = dict.fromkeys(titles)
    if not titles:
        raise ValueError('none of these models has what this figure shows')
    columns = math.ceil(len(titles) / rows)
    drawn = Figure(figsize=(3.5 * columns, 3.2 * rows), layout='constrained')
    axes = drawn.subplots(rows, columns, squeeze=False).ravel()
    for title, ax in itertools.zip_longest(titles, axes, fillvalue=''):
        ax.set_title(title, loc='left', fontsize=9)
        ax.set_visible(title != '')
        ax.spines[['top', 'right']].set_visible(False)
        ax.tick_params(labelsize=9)
    return drawn, dict(zip(titles, axes))


def save(drawn, path):
    with whole(path) as temporary:
        drawn.savefig(temporary, dpi=150, bbox_inches='tight', format='png')
    return path


def place(name, about):
    """Return (line, x) of a model in the figure `name`, or None where it has no place, such as a checkpoint
    in the middle of a run, against the share of CLM.

    about  its pretraining: 'phases', 'mask_ratio', 'step', 'flops', maybe 'repeat', 'tokens', 'family',
           'continues', 'finetuning_rate'"""
    objectives = [objective for objective, _ in about['phases']]
    last = objectives[-1]
    step = about['step']
    repeat = about.get('repeat', 1)
    total = repeat * sum(steps for _, steps in about['phases'])
    line = line_of(objectives, about)

    # every checkpoint has a place in these
    if name == 'cpt':
        return f'{about["continues"]}, then {last.upper()}', step
    if name == 'steps':
        return f'{line}, of {total:,} steps', step
    if name == 'flops':
        return f'{line}, of {total:,} steps', about['flops']
    if name == 'rate' and about.get('finetuning_rate'):     # of published scores it is not known
        return f'{line}, {step:,} steps', about['finetuning_rate']

    # and only the last one of a run in these
    if step != total:
        return None
    if name == 'tokens' and 'tokens' in about:      # a line of runs, by their length
        return line, about['tokens']
    if name == 'share':     # CLM alone is the end of the line of CLM and MLM
        masked = [objective for objective in objectives if not OBJECTIVES[objective].causal]
        mixed = line_of(['clm', *dict.fromkeys(masked or ['mlm'])], about)
        causal = repeat * sum(steps for objective, steps in about['phases'] if OBJECTIVES[objective].causal)
        return f'{mixed}, {step:,} steps', 100 * causal / step
    if name == 'ratio' and OBJECTIVES[last].uses_ratio:
        line = line_of(objectives, about, with_ratio=False)     # the ratio is x
        return f'{line}, {step:,} steps', 100 * about['mask_ratio']
    return None


def line_of(objectives, about, with_ratio=True):
    """Return the name of a line: '610m CLM then MLM 40%', or 'CLM and MLM 40% in turn' of repeated phases."""
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


def against(name, points):
    """Draw scores against pretraining: a line for each family of models.

    points  [(model, its pretraining, panel, mean, low, high)], in percent"""
    placed = []
    for model, about, panel, *interval in points:
        point = place(name, about)
        if not point or bool(about.get('continues')) != (name == 'cpt'):
            continue
        line, x = point
        _, plus, variant = model.partition('+')     # or <model>-probe
        if plus:
            line += f', {variant}'
        elif model.endswith('-probe'):
            line += ', probe'
        placed.append((panel, line, x, *interval))
    scale = 'linear' if name in ('ratio', 'share', 'cpt') else 'log'
    drawn = curves(placed, AGAINST[name], scale)
    if name == 'rate':
        rates = sorted({x for _, _, x, *_ in placed})
        for ax in drawn.axes:
            ax.set_xticks(rates, [f'{rate:.0e}' for rate in rates])
            ax.minorticks_off()
    return drawn


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
    styles = styles or styles_of({line: (line, line) for line in lines})
    markers = dict(zip(lines, itertools.cycle(MARKERS)))
    handles = {}
    for (panel, line), values in groups.items():
        colour, dash = styles[line]
        x, mean, low, high = np.array(sorted(values)).T
        # rounding may put the mean of an interval without width a little outside of it
        lengths = np.maximum([mean - low, high - mean], 0)
        handles[line] = axes[panel].errorbar(
            x, mean, lengths, color=colour, fmt=markers[line] + dash, markersize=6,
            markevery=math.ceil(len(x) / 20), capsize=2 if lengths.any() else 0)
    for ax in axes.values():
        ax.set(xlabel=label, xscale=scale)
        ax.xaxis.set_minor_formatter('')
    drawn.axes[0].set_ylabel(score)
    drawn.legend(handles.values(), handles, loc='lower center', bbox_to_anchor=(0.5, 1), ncol=4)
    return drawn


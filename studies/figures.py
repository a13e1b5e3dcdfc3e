"""The figures of studies' pages: the ladder of lengths, which report.py draws, and one of losses.csv.

    python studies/figures.py       # all that report.py does not draw, from the packs and from reports"""
import itertools
import re
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # the root, where evaluate.py is

import numpy as np

import evaluate
from evaluate import seeds_half
from nanoencoder.figures import (
    KINDS,
    MARKERS,
    NAMES,
    curves,
    label_rates,
    panels,
    points_of,
    save_figure,
    style_of_name,
)
from nanoencoder.files import read_json
from nanoencoder.settings import plain_words, run_main
from studies import packs

STUDIES = Path(__file__).parent
# a colour means one thing in all figures; arms of other objectives get the other colours
OBJECTIVES = {name: style_of_name(name)[0] for name in ('CLM', 'MLM', 'CLM then MLM')}
OTHERS = ('#8b6bb1', '#c9a227', '#5aa9c4', '#b0517f', '#000000')
DASHES = ('-', '--', ':')       # of the first optimizer, the second, the third
# {line: MLM's row and that of CLM then MLM in studies/targets}
LEADS = {'AdamW, one learning rate': ('one-mlm', 'one-clm25-mlm'),
         'AdamW, two learning rates': ('two-mlm', 'two-clm25-mlm'),
         'Muon, ratio 0.42': ('muon-mlm', 'muon-clm25-mlm'),
         'Muon, ratio 0.42, CLM on 40 % of tokens': ('muon-mlm', 'muon-clm40-mlm'),
         'AdamW, two learning rates, CLM on 40 % of tokens': ('two-mlm', 'two-clm40-mlm')}
# {panel: {line: its row in studies/optimiser}}
PLATEAUS = {'AdamW': {'MLM': 'mlm-3600', 'CLM then MLM': 'clm25-mlm-3600'},
            'Muon, ratio 6.7': {'MLM': 'muon-mlm-3600', 'CLM then MLM': 'muon-clm25-mlm-3600'}}
# what the frequencies of the novels' tokens score, special ones left out: computed from the corpus whose
# fingerprint begins with 02347b740f47, as ordinary_unigram_loss of a new run's config.json would be
FREQUENCIES = 6.401     # nats
# {line: its row in studies/counts, without its length; Muon's begin with muon-}
COUNTED = {'MLM': 'mlm', 'CLM then MLM': 'clm25-mlm', 'counts, then MLM': 'counts-mlm'}
FREQUENCIES_OF_DOCS = 6.800     # the same of the demo's texts, whose fingerprint begins with be343c6a851c
# {line: its row in studies/optimiser/layers.csv}
LAYERS = {'CLM': 'clm-14400', 'MLM': 'mlm-14400', 'CLM then MLM': 'clm25-mlm-14400'}
OF_LAYERS = (':', '--', '-')    # dashes: of the embedding, of layer 1, of layer 2
# {study: {model: its line}}
RATES = {'small': {'clm-3600+rates': 'CLM, 3,600 steps', 'mlm-3600+rates': 'MLM, 3,600 steps'},
         'small_tuning': {'tune-clm-3600': 'CLM, 3,600 steps', 'tune-mlm-3600': 'MLM, 3,600 steps'}}
# the claims of studies/small, in the order of docs/results.md
CLAIMS = 'early', 'both', 'continued', 'end', 'level', 'ratio', 'rate'
KIND_MARKERS = {'SC': 's', 'TC': '^', 'QA': 'D', 'IR': 'v'}


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
    others = [name for name in names if name not in OBJECTIVES]
    colours = OBJECTIVES | dict(zip(others, itertools.cycle(OTHERS)))
    optimizers = [*dict.fromkeys(optimizer for _, optimizer in arms)]
    places = [*itertools.product(optimizers, shown)]
    titles = [f'{NAMES.get(panel.title, panel.title)}, {optimizer}'.removesuffix(', ')
              for optimizer, panel in places]
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
    """Draw a Panel's lines of one optimizer, each with its band. A colour's place says the marker."""
    markers = dict(zip(colours, itertools.cycle(MARKERS)))
    for (objectives, of_arm), values in lines.items():
        if of_arm == optimizer:
            x, mean, low, high = np.array(values).T
            colour = colours[objectives]
            ax.plot(x, mean, markers[objectives] + dash, color=colour, markersize=5, label=objectives)
            ax.fill_between(x, low, high, color=colour, alpha=0.16, linewidth=0)


def draw_frame(ax, panel, optimizer):
    """Draw the axes, and a level line for each floor that is near the lines; say where the other floors are.
    Ranges are the same for all optimizers; wide bands may leave them."""
    tokens, means, lows, highs = np.concatenate([*panel.lines.values()]).T
    ticks = np.unique(tokens)
    ax.set_xscale('log', base=2)
    ax.set_xticks(ticks, [f'{tick:.1f}' for tick in ticks])
    ax.minorticks_off()
    ax.set(xlabel='million tokens of pretraining, log scale', ylabel=panel.unit)

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
    outside.append('')      # they stand above the title
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
    ax.set_ylim(top=1.5)    # room for the legend
    ax.set(xlabel='million tokens of pretraining', ylabel='nats per masked token')


def plateaus(losses):
    """Draw held-out MLM losses by step, a thin line a seed and a panel an optimizer. Crosses say at which
    step each seed leaves the plateau: losses.py."""
    drawn, axes = panels(f'held-out MLM loss, {name}' for name in PLATEAUS)
    for ax, rows in zip(axes.values(), PLATEAUS.values()):
        for height, (line, row) in enumerate(rows.items()):
            colour = OBJECTIVES[line]
            ends = []
            for _, seed in losses[losses['row'] == row].groupby('seed'):
                curve, = ax.plot(seed['step'], seed['val_mlm_loss'], color=colour, linewidth=0.9)
                ends.append(seed['plateau'].max())
            curve.set_label(f'{line}, six seeds')
            ax.plot(ends, [3.7 + 0.15 * height] * len(ends), 'x', color=colour, markersize=5)
        ax.axhline(FREQUENCIES, color='0.4', linewidth=1, linestyle=':',
                   label=f'token frequencies alone, {FREQUENCIES:.2f} nats')
        ax.axvline(900, color='0.8', linewidth=1, zorder=0)
        ax.annotate('green: CLM until here, then MLM', (900, 7.75), (6, 0), textcoords='offset points',
                    fontsize=8)
        ax.annotate('x: leaves the plateau', (3600, 3.7), fontsize=8, ha='right')
        ax.set(xlabel='steps of 1,024 tokens', ylabel='nats per masked token')
        ax.set(xlim=(0, 3700), ylim=(3.6, 8.1))
    drawn.legend(*drawn.axes[0].get_legend_handles_labels(), loc='lower center', bbox_to_anchor=(0.5, 1),
                 ncol=3)
    return drawn


def counted(losses):
    """Draw held-out MLM losses by tokens, a thin line a seed: a panel for each optimizer and length."""
    colours = OBJECTIVES | {'counts, then MLM': OTHERS[0]}
    places = {
        'AdamW, 1,800 steps': ('', 1_800),
        'Muon, ratio 6.7, 1,800 steps': ('muon-', 1_800),
        'AdamW, 7,200 steps': ('', 7_200),
        'Muon, ratio 6.7, 7,200 steps': ('muon-', 7_200),
    }
    drawn, axes = panels(places, rows=2)
    for title, (prefix, steps) in places.items():
        ax = axes[title]
        for line, arm in COUNTED.items():
            row = losses[losses['row'] == f'{prefix}{arm}-{steps}']
            if line == 'CLM then MLM':
                row = row[row['step'] > steps // 4]     # until then it is CLM, which sees no masks
            seeds = row.groupby('seed')
            for _, seed in seeds:
                tokens = seed['tokens'] / 1e6
                curve, = ax.plot(tokens, seed['val_mlm_loss'], color=colours[line], linewidth=0.9)
            curve.set_label(f'{line}, {len(seeds)} seeds')
        ax.axhline(FREQUENCIES_OF_DOCS, color='0.4', linewidth=1, linestyle=':',
                   label=f'token frequencies alone, {FREQUENCIES_OF_DOCS:.2f} nats')
        ax.set(xlabel='million tokens', ylabel='nats per masked token', ylim=(3.7, 7.2))
        ax.set_xlim(left=0)
    drawn.legend(*drawn.axes[0].get_legend_handles_labels(), loc='lower center', bbox_to_anchor=(0.5, 1),
                 ncol=2)
    return drawn


def layers(table):
    """Draw layers.csv: a colour for what was pretrained how, a dash for the layer."""
    titles = {
        'cka': 'linear CKA with CLM at step 3,600; 1: alike',
        'accuracy': 'accuracy of a linear classifier, parts of speech'}
    drawn, axes = panels(titles.values())
    drawn.set_size_inches(9, 3.6)
    for column, title in titles.items():
        ax = axes[title]
        for line, row in LAYERS.items():
            colour = OBJECTIVES[line]
            for layer, dash in enumerate(OF_LAYERS):
                shown = table[(table['row'] == row) & (table['layer'] == layer)]
                ax.plot(shown['step'], shown[column], f'o{dash}', color=colour, markersize=4)
        ax.set(xlabel='steps of pretraining', ylim=(0, 1.05) if column == 'cka' else None)
    recipes = [ax.plot([], [], color=OBJECTIVES[line], linewidth=4, label=line)[0] for line in LAYERS]
    places = ('embedding', 'layer 1', 'layer 2')
    dashes = [ax.plot([], [], dash, color='0.2', label=place)[0] for place, dash in zip(places, OF_LAYERS)]
    drawn.legend(handles=recipes + dashes, loc='lower center', bbox_to_anchor=(0.5, 1), ncol=6)
    return drawn


def rates(folder, models):
    """Draw scores at each learning rate of fine-tuning.

    models  {model: its line}"""
    cfg = evaluate.Settings(models=tuple(models), datasets=('docs_tc', 'docs_ir'), split='both')
    problems = []
    points = []
    runs = evaluate.grouped(evaluate.read_runs(cfg, problems, packs.find_runs(folder)), 'lr')
    for rate, group in runs.items():
        cells = evaluate.make_cells(group, cfg, problems)
        for model, _, panel, *interval in points_of(cells, problems):
            points.append((panel, models[model], rate, *interval))
    drawn = curves(points, 'learning rate of fine-tuning', 'log')
    label_rates(drawn, sorted(runs))
    return drawn


def claims(report, words):
    """Draw the verdicts of a report.md, a row a claim: our difference with its interval, and the paper's.

    words  {name of a claim: its sentence}, from top to bottom"""
    drawn, axes = panels(['seven claims of the paper'])
    drawn.set_size_inches(10, 6)
    ax, = axes.values()
    handles = {}    # {what the legend says: of what}
    labels = []
    rows = {row[0]: row for row in table_of_verdicts(report)}
    for name, claim in words.items():
        _, contrast, ours, _, _, papers, _, _, verdict = rows[claim]
        _, datasets, rule = contrast.split('; ')
        tasks = ', '.join(NAMES[dataset] for dataset in datasets.split(', '))
        labels.append(textwrap.fill(f'{name}: {claim} ({tasks})', 60))
        y = -len(labels)
        shade = draw_margin(ax, y, rule)
        mean, low, high = map(float, re.findall(r'[-+][\d.]+', ours))
        bar = ax.errorbar(mean, y, xerr=[[mean - low], [high - mean]], color='black', fmt='o', capsize=3)
        handles['here, 0.9 M parameters, 95 %'] = bar
        for kind, value in re.findall(r'(\w\w) ([-+][\d.]+)', papers):
            handles[f'the paper, {KINDS[kind]}'], = ax.plot(
                float(value), y + 0.25, KIND_MARKERS[kind], color='#d1603d', markerfacecolor='none')
        if shade:
            handles['what counts as level, or as good'] = shade
        ax.annotate(verdict.strip('*'), (1.01, y), xycoords=ax.get_yaxis_transform(), va='center')
    ax.axvline(0, color='0.6', linewidth=1)
    ax.set_yticks(range(-1, -len(labels) - 1, -1), labels, fontsize=8)
    ax.set(xlabel='points of score; right of 0 is as the claim says', ylim=(-len(labels) - 0.6, -0.4))
    drawn.legend(handles.values(), handles, loc='lower center', bbox_to_anchor=(0.5, 1), ncol=3)
    return drawn


def table_of_verdicts(report):
    """Return the rows of the table of verdicts, each a list of cells."""
    table = report.partition('## Verdicts\n')[2].partition('## ')[0]
    lines = [line for line in table.splitlines() if line.startswith('| ')]
    return [line.strip('| ').split(' | ') for line in lines[2:]]


def draw_margin(ax, y, rule):
    """Shade what a claim's rule takes for no difference: 'no difference within 1.2'."""
    words, _, margin = rule.partition(' within ')
    if not margin:
        return None
    end = float(margin) if words == 'no difference' else 12
    return ax.fill_betweenx([y - 0.4, y + 0.4], -float(margin), end, color='0.9', linewidth=0)


def arms(losses, scores, styles):
    """Draw the arms of an ablation: held-out losses by step, their mean over seeds and a thin line a seed;
    and scores, with their intervals and a small dot a seed, over the level of the untrained model.

    losses  {panel: {arm: DataFrame of (steps, seeds)}}
    scores  {panel: {arm: evaluate.Cell}}, with 'untrained'
    styles  {arm: (colour, dash)}"""
    drawn, axes = panels([*losses, *scores])
    for panel, of_arms in losses.items():
        ax = axes[panel]
        for arm, table in of_arms.items():
            colour, dash = styles[arm]
            ax.plot(table.index, table, dash, color=colour, linewidth=0.6, alpha=0.5)
            ax.plot(table.index, table.mean(axis=1), f'o{dash}', color=colour, markersize=4)
        ax.set_xlabel('steps')
    for panel, of_arms in scores.items():
        ax = axes[panel]
        untrained = 100 * of_arms['untrained'].mean
        ax.axhline(untrained, color='0.6', linewidth=1, linestyle=':')
        ax.annotate(f'untrained {untrained:.1f}', (0.995, untrained), xycoords=ax.get_yaxis_transform(),
                    fontsize=8, color='0.2', ha='right', va='bottom')
        for place, arm in enumerate(styles):
            cell = of_arms[arm]
            colour, _ = styles[arm]
            mean, low, high = evaluate.in_percent(cell)
            seeds = [100 * score for score in cell.scores.values()]
            ax.plot([place, place], [low, high], color=colour)
            ax.plot(place, mean, 'o', color=colour)
            ax.plot([place + 0.15] * len(seeds), seeds, '.', color=colour, alpha=0.6)
        ax.set_xticks([])
        ax.set_xlim(-0.5, len(styles) - 0.4)
        ax.set_ylabel('%')
    handles = [drawn.axes[0].plot([], [], f'o{dash}', color=colour)[0] for colour, dash in styles.values()]
    drawn.legend(handles, styles, loc='lower center', bbox_to_anchor=(0.5, 1), ncol=4)
    return drawn


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
    import pandas
    plain_words(sys.argv[1:])
    write_figure(leads, 'how far the held-out MLM loss of CLM then MLM lies below that of MLM',
                 STUDIES / 'targets/leads.png')
    novels = STUDIES / 'optimiser'
    print(save_figure(plateaus(pandas.read_csv(novels / 'losses.csv')), novels / 'plateau.png'))
    counts = STUDIES / 'counts'
    print(save_figure(counted(pandas.read_csv(counts / 'losses.csv')), counts / 'losses.png'))
    print(save_figure(layers(pandas.read_csv(novels / 'layers.csv')), novels / 'layers.png'))
    for study, models in RATES.items():
        print(save_figure(rates(STUDIES / study, models), STUDIES / study / 'rates.png'))
    papers = read_json(STUDIES / 'paper/claims.json')
    words = {name: papers[name]['words'] for name in CLAIMS}
    report = (STUDIES / 'small/report.md').read_text(encoding='utf-8')
    print(save_figure(claims(report, words), STUDIES / 'small/claims.png'))


if __name__ == '__main__':
    run_main(main)

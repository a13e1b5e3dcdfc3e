"""How two models of yours differ, beside the same two rows of a study with several pretraining seeds.

    python studies/beside.py studies/small mlm-1800 clm25-mlm-1800

It takes your fine-tunings from predictions/, of models pretrained with --row=mlm-1800, and the losses of
their pretrainings from out/. Of a folder, as out/mlm-1800-s6, it takes this run alone. For one new seed
19 of 20 should fall in the range that it prints: the 95 % prediction interval of S earlier seeds,
mean +- t s sqrt(1 + 1 / S). figures/beside.png has your curves and scores on these ranges."""
import math
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # the root, where evaluate.py is

import evaluate
from evaluate import seeds_half
from nanoencoder.figures import NAMES, panels, save_figure, style_of_name, styles_of
from nanoencoder.pretraining.log import read_log
from nanoencoder.settings import parse, run_main, split_words
from studies.report import NUMBERS, Evidence, Missing
from studies.study import load


@dataclass(frozen=True)
class Settings:
    predictions: str = 'predictions'    # folder of your fine-tunings
    out: str = 'out'                    # folder of your pretrainings
    figures: str = 'figures'            # folder of beside.png


class Range(NamedTuple):
    """Where 19 of 20 new seeds should fall."""
    seeds: int      # so many earlier ones say it
    mean: float
    low: float
    high: float


class Curve(NamedTuple):
    """The held-out losses of one of your pretrainings, of the objective with which it ended."""
    model: str
    objective: str
    yours: dict     # {step: loss}
    earlier: dict   # {step: Range}
    expected: Range | None      # of the last loss

    @property
    def last(self):
        return [*self.yours.values()][-1]


def range_of(values):
    """Return the Range that earlier seeds' values give, or None if they are too few."""
    if len(values) < 2:
        return None
    mean = statistics.fmean(values)
    half = seeds_half([values]) * math.sqrt(len(values) + 1)    # t s / sqrt(S), times sqrt(S + 1)
    return Range(len(values), mean, mean - half, mean + half)


def in_words(expected, number):
    """Write a Range, or '' if there is none.

    number  a format, as '{:+.1f}'"""
    if expected is None:
        return ''
    count = NUMBERS.get(expected.seeds, expected.seeds)
    mean, low, high = [number.format(value) for value in expected[1:]]
    return f' ({count} earlier seeds: {mean}; a new seed should fall between {low} and {high})'


def fine_tunings(runs, datasets):
    """Return how many fine-tunings of one pretraining there are on these datasets: their seeds are 10 s + k,
    where s is the pretraining's."""
    return len({run.seed % 10 for run in runs if run.dataset in datasets})


def rows_of(models, predictions):
    """Return {model: the study's row that it is, by its fine-tunings}; a folder's name is not its row's."""
    rows = {}
    for folder, about, _ in evaluate.find_runs(predictions):
        rows[folder.parts[-4]] = evaluate.model_of(folder, about)
    return {model: rows.get(model, model) for model in models}


def print_points(rows, cells, earlier, datasets):
    """Print the difference of two models, the second minus the first, in the mean of datasets. Returns it
    and its Range.

    rows   {model: its row of the study}
    cells  {(model, dataset): evaluate.Cell} of yours"""
    first, second = rows
    arms = [[(1, cells[second, name]), (-1, cells[first, name])] for name in datasets]
    difference = 100 * evaluate.estimate(arms, earlier.cfg).mean
    try:
        past = earlier.percents({(rows[second], None): 1, (rows[first], None): -1}, datasets)
    except Missing as missing:
        earlier.problems.append(f'{earlier.study.folder} has no {missing}: name two of its rows, or folders '
                                'of runs that were pretrained with --row=one of them')
        past = []
    expected = range_of(past)
    words = in_words(expected, '{:+.1f}')
    print(f'{" and ".join(datasets)}: {second} minus {first} {difference:+.1f} points{words}')
    return difference, expected


def read_curve(model, row, folder, earlier):
    """Return the Curve of a pretraining beside a study's row, or None if it was never validated."""
    config, lines = read_log(folder)
    objective = config['phases'][-1][0]
    key = f'val_{objective}_loss'
    yours = {line['step']: line[key] for line in lines if key in line}
    if not yours:
        return None
    expected = range_of(earlier.last(row, key))
    return Curve(model, objective.upper(), yours, earlier_losses(row, key, earlier), expected)


def earlier_losses(model, key, earlier):
    """Return {step: Range} of the held-out losses of a study's row."""
    row, end = earlier.row_of(model)
    if not row or key not in earlier.losses:
        return {}
    lines = earlier.losses.query('row == @row.name and step <= @end').dropna(subset=key)
    ranges = {step: range_of(losses.tolist()) for step, losses in lines.groupby('step')[key]}
    return {step: expected for step, expected in ranges.items() if expected}


def where_yours_fall(compared):
    """Say which numbers of yours are outside of their Range.

    compared  [(its name, the number, its Range or None)]"""
    judged = [one for one in compared if one[2]]
    outside = [name for name, yours, expected in judged if not expected.low <= yours <= expected.high]
    if not judged:
        return 'The study has no earlier seeds of these models'
    if outside:
        return f'Outside of where 19 of 20 new seeds should fall: {", ".join(outside)}'
    return 'Your scores and last losses fall where 19 of 20 new seeds should'


def draw(title, rows, curves, points):
    """Draw your Curves on the bands of earlier seeds, and your differences on their Ranges.

    rows    {model: its row of the study}
    points  [(dataset, difference, its Range or None)]"""
    first, second = rows
    scores = f'points by which {second} is ahead of {first}'
    titles = {curve.objective: f'held-out {curve.objective} loss, nats' for curve in curves}
    drawn, axes = panels([*titles.values(), scores])
    drawn.set_size_inches(4.7 * len(axes), 3.8)
    drawn.suptitle(title, fontsize=11)
    drawn.supxlabel('Bands: where 19 of 20 new seeds should fall. Dotted lines and ticks: means of earlier '
                    'seeds.', fontsize=9)
    styles = styles_of({model: (style_of_name(row), model) for model, row in rows.items()})
    for curve in curves:
        ax = axes[titles[curve.objective]]
        draw_curve(ax, curve, styles[curve.model])
        ax.set_xlabel('steps')
        ax.set_xlim(left=0)
        ax.legend(fontsize=8)
    draw_points(axes[scores], points)
    return drawn


def draw_curve(ax, curve, style):
    colour, dash = style
    if curve.earlier:
        _, means, lows, highs = zip(*curve.earlier.values())
        ax.fill_between(curve.earlier.keys(), lows, highs, color=colour, alpha=0.16, linewidth=0)
        ax.plot(curve.earlier.keys(), means, ':', color=colour, linewidth=1)
    ax.plot(curve.yours.keys(), curve.yours.values(), f'o{dash}', color=colour, markersize=4,
            label=f'your {curve.model}')


def draw_points(ax, points):
    for row, (dataset, yours, expected) in enumerate(points):
        if expected:
            ax.plot([expected.low, expected.high], [row, row], color='0.85', linewidth=14,
                    solid_capstyle='butt')
            ax.plot(expected.mean, row, '|', color='0.4', markersize=14)
        ax.plot(yours, row, 'o', color='black')
        ax.annotate(f'{yours:+.1f}', (yours, row), (0, 9), textcoords='offset points', ha='center')
    ax.axvline(0, color='0.6', linewidth=1)
    ax.set_yticks(range(len(points)), [NAMES.get(dataset, dataset) for dataset, _, _ in points])
    ax.set_ylim(len(points) - 0.5, -0.5)


def main():
    words, options = split_words(sys.argv[1:])
    cfg, _ = parse(Settings, options)
    if len(words) != 3:
        raise ValueError('it takes a study and two models: studies/small mlm-1800 clm25-mlm-1800')
    folder, *models = words
    problems = []
    scoring = evaluate.Settings(predictions=cfg.predictions, split='both', models=tuple(models),
                                clusters=False)
    first, second = scoring.models      # of a folder, its name
    rows = rows_of(scoring.models, cfg.predictions)
    own = evaluate.read_runs(scoring, problems)
    cells = {key: evaluate.make_cell(runs, scoring)
             for key, runs in evaluate.grouped(own, 'model', 'dataset').items()}

    # of each earlier seed so many fine-tunings count as you have on the study's datasets
    study, _ = load([folder])
    count = fine_tunings(own, {dataset for _, dataset in study.tried})
    study, _ = load([folder, f'--finetuning_seeds={count or 1}'])
    earlier = Evidence(study)
    datasets = [name for name in earlier.datasets if (first, name) in cells and (second, name) in cells]
    if not datasets:
        raise ValueError(f'{cfg.predictions}: {first} and {second} have no dataset of {folder} in common')
    points = []     # (dataset, your difference, its Range)
    for name in datasets:
        if earlier.about[name].about['data'] != cells[first, name].data[0]:
            problems.append(f'{name}: its rows are not those of {folder}; other packages?')
        points.append((name, *print_points(rows, cells, earlier, [name])))
    if len(datasets) > 1:
        print_points(rows, cells, earlier, datasets)
    curves = []
    compared = [(NAMES.get(name, name), *values) for name, *values in points]
    for model, row in rows.items():
        for name in dict.fromkeys(run.folder for run in own if run.model == model):
            folder = Path(cfg.out, name)
            if not folder.exists():
                problems.append(f'{folder}: no pretraining there, whose held-out loss could be told')
                continue
            curve = read_curve(model, row, folder, earlier)
            if curve:
                words = in_words(curve.expected, '{:.2f}')
                print(f'{model}: held-out {curve.objective} loss {curve.last:.2f}{words}')
                curves.append(curve)
                compared.append((f'last loss of {model}', curve.last, curve.expected))
    title = where_yours_fall(compared)
    print(title)
    print(save_figure(draw(title, rows, curves, points), Path(cfg.figures, 'beside.png')))
    sys.exit(evaluate.warn(earlier.problems + problems))


if __name__ == '__main__':
    run_main(main)

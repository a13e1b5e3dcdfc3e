"""The paper's tables and figures, by its protocol: its published numbers, results in its authors' format, and
runs of ours.

    python studies/paper/results.py table --published           # its appendix C
    python studies/paper/results.py figure share --published    # or ratio, cpt, steps, flops
    python studies/paper/results.py RESULTS table --published   # RESULTS, with the paper's numbers beside
    python studies/paper/results.py RESULTS figure share

RESULTS is predictions/, a packed study such as studies/small, or a folder of the authors:
RESULTS/<model>/<TASK>/<dataset>/lr1e-04_sd0/results.json holds {"validation": {"score": 0.9, "scores_i":
[..]}, "test": ...}; retrieval has its training set before the learning rate. It is only read."""
import functools
import itertools
import sys
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # the root, where evaluate.py is

import evaluate
from data import OBJECTIVES
from nanoencoder import figures
from nanoencoder.files import read_json
from nanoencoder.predictions import SCORED, find_folders
from nanoencoder.settings import check_value, parse, run_main, split_words
from studies import packs
from studies.paper import published

# {figure: what its x is}, and the numbers of the paper's figures
FIGURES = {
    'ratio': 'masking ratio, %',            # 3 and 7
    'steps': 'pretraining steps',           # 4
    'rate': 'learning rate of fine-tuning',     # 5; of published scores it is not known
    'share': 'share of CLM, %',             # 6 and 11
    'cpt': 'continued steps',               # 9
    'flops': 'pretraining FLOPs',           # 10
}


@dataclass(frozen=True)
class Settings(evaluate.Settings):
    published: bool = False     # the paper's numbers: without a folder by themselves, else beside its models


def find_runs(folder):
    """Yield (folder, run.json, a function that returns its scores) of each run, as evaluate.find_runs does.
    Results of the authors have no run.json."""
    if Path(folder, 'config.py').exists():
        yield from packs.find_runs(folder, is_whole=True)
        return
    for run in find_folders(folder):
        if (run / 'run.json').exists():
            about = evaluate.read_about(run)
            yield run, about, functools.partial(evaluate.scores_of, run, about)
        else:
            yield run, {}, functools.partial(read_results, run / 'results.json')


def read_results(path):
    content = read_json(path)
    scores = {}
    for split in SCORED:
        if not {'score', 'scores_i'} <= {*content.get(split, ())}:
            raise ValueError(f'{path}: lacks "score" or "scores_i" of {split}')
        scores[split] = {'paper': content[split], 'standard': {'columns': [content[split]['scores_i']]}}
    return scores


def read_runs(cfg, problems):
    return evaluate.read_runs(cfg, problems, find_runs(cfg.predictions))


def published_cells(cfg):
    """Return the paper's appendix C as Cells."""
    cells = {}
    for (model, task, dataset), (mean, half) in published.numbers().items():
        if model in (cfg.models or [model]) and dataset in (cfg.datasets or [dataset]):
            cells[model, task, dataset] = evaluate.Cell(
                mean=mean / 100,
                low=(mean - half) / 100,
                high=(mean + half) / 100,
                scores=dict.fromkeys(range(5)),     # of its seeds no more is known than their number
            )
    if not cells:
        raise ValueError('the paper has no such models or datasets')
    return cells


def table(cfg, problems):
    """Print the table of a folder, or without one the paper's."""
    if not cfg.predictions:
        cells = published_cells(cfg)
        evaluate.print_table(evaluate.frame_of(cells, cfg), cells, cfg)
        return
    cells = evaluate.make_cells(read_runs(cfg, problems), cfg, problems)
    frame = evaluate.frame_of(cells, cfg)
    if cfg.published:
        frame = with_published(frame, cells)
    evaluate.print_table(frame, cells, cfg)
    if cfg.published and cfg.format != 'csv':
        print("After the slash: the paper's appendix C.")


def with_published(frame, cells):
    """Return what evaluate.frame_of returns of these cells, with the paper's numbers beside. Where it has
    none, they are empty."""
    frame = frame.assign(published=None, published_ci95=None)
    for row, key in enumerate(cells):
        numbers = published.cell(*key, cells)
        if numbers:
            mean, half = numbers
            frame.loc[row, ['published', 'published_ci95']] = mean, half
            frame.loc[row, 'shown'] += f' / {mean:.2f} ({half:.2f})'
    return frame


def figure(cfg, name, problems):
    """Draw scores against what pretraining was: a panel a task, a line a family of models."""
    check_value('figure', str, name, choices=FIGURES)
    pretraining = published.models()
    if not cfg.predictions:
        parts = {None: published_cells(cfg)}
    else:
        if cfg.published:
            raise ValueError('a figure is of a folder, or of the published numbers: leave out one of them')
        runs = read_runs(cfg, problems)
        pretraining |= {run.model: run.pretraining for run in runs if run.pretraining}
        runs = [run for run in runs if run.model in pretraining]
        groups = {None: runs}
        if name == 'rate':      # a score at each rate; other figures have the rate that validation chose
            groups = evaluate.grouped(runs, 'lr')
        parts = {lr: evaluate.make_cells(group, cfg, problems) for lr, group in groups.items()}

    points = []     # (panel, line, x, mean, low, high)
    for lr, cells in parts.items():
        for model, _, panel, *interval in figures.points_of(cells, problems):
            point = place(name, pretraining[model], lr)
            if point:
                line, x = point
                points.append((panel, line + figures.suffix_of(model), x, *interval))
    scale = 'linear' if name in ('ratio', 'share', 'cpt') else 'log'
    styles = None
    if name == 'share':
        styles = styles_by_size({line for _, line, *_ in points})
    drawn = figures.curves(points, FIGURES[name], scale, styles=styles)
    print(figures.save_figure(drawn, Path(cfg.out, f'{name}.png')))


def styles_by_size(lines):
    """Return {line: (colour, dash)} where all lines have the same objectives, '610M CLM then MLM, 9 steps': a
    colour a size, a dash a length."""
    sizes = sorted({line.split()[0] for line in lines})
    lengths = sorted({line.rpartition(', ')[2] for line in lines}, reverse=True)
    colours = dict(zip(sizes, itertools.cycle(figures.OF_FURTHER_RUNS)))
    dashes = dict(zip(lengths, itertools.cycle(('-', '--', ':', '-.'))))
    return {line: (colours[line.split()[0]], dashes[line.rpartition(', ')[2]]) for line in lines}


def place(name, about, lr):
    """Return (line, x) of a model in the figure `name`, or None where it has no place, such as a checkpoint
    in the middle of a run, against the share of CLM.

    about  its pretraining: 'phases', 'mask_ratio', 'step', 'flops', maybe 'repeat', 'family', 'continues'
    lr     of fine-tuning, in the figure of rates"""
    if bool(about.get('continues')) != (name == 'cpt'):
        return None
    objectives = [objective for objective, _ in about['phases']]
    last = objectives[-1]
    step = about['step']
    total = figures.total_steps(about)
    line = figures.line_of(objectives, about)

    # every checkpoint has a place in these
    if name == 'cpt':
        return f'{about["continues"]}, then {last.upper()}', step
    if name == 'steps':
        return f'{line}, of {total:,} steps', step
    if name == 'flops':
        return f'{line}, of {total:,} steps', about['flops']
    if name == 'rate' and lr:
        return f'{line}, {step:,} steps', lr

    # and only the last one of a run in these
    if step != total:
        return None
    if name == 'share':     # CLM alone is the end of the line of CLM and MLM
        masked = [objective for objective in objectives if not OBJECTIVES[objective].causal]
        mixed = figures.line_of(['clm', *dict.fromkeys(masked or ['mlm'])], about)
        causal = sum(steps for objective, steps in about['phases'] if OBJECTIVES[objective].causal)
        return f'{mixed}, {step:,} steps', 100 * about.get('repeat', 1) * causal / step
    if name == 'ratio' and OBJECTIVES[last].uses_ratio:
        line = figures.line_of(objectives, about, with_ratio=False)     # the ratio is x
        return f'{line}, {step:,} steps', 100 * about['mask_ratio']
    return None


def main():
    words, options = split_words(sys.argv[1:])
    cfg, _ = parse(Settings, options)
    folder = ''
    if words and words[0] not in ('table', 'figure'):
        folder, *words = words
    cfg = replace(cfg, predictions=folder, protocol='paper')    # results of the authors have no other
    problems = []
    match words:
        case ['table']:
            table(cfg, problems)
        case ['figure', name]:
            figure(cfg, name, problems)
        case _:
            raise ValueError(f'the command is table, or figure and one of {", ".join(FIGURES)}; see --help')
    sys.exit(evaluate.warn(problems))


if __name__ == '__main__':
    run_main(main)

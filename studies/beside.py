"""How two models of yours differ, beside the same two rows of a study with several pretraining seeds.

    python studies/beside.py studies/small mlm-1800 clm25-mlm-1800

It takes your fine-tunings from predictions/ and your pretrainings from out/, such as out/mlm-1800-s6. For one
new seed 19 of 20 should fall in the range that it prints: the 95 % prediction interval of S earlier seeds,
mean +- t s sqrt(1 + 1 / S)."""
import math
import re
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the root, where evaluate.py is

import evaluate
from evaluate import seeds_half
from nanoencoder.pretraining.log import read_log
from nanoencoder.settings import parse, run_main, split_words
from studies.report import Evidence, Missing
from studies.study import load

NUMBERS = {2: 'two', 3: 'three', 4: 'four', 5: 'five', 6: 'six'}


@dataclass(frozen=True)
class Settings:
    predictions: str = 'predictions'    # folder of your fine-tunings
    out: str = 'out'                    # folder of your pretrainings


def is_of(row, model):
    """Whether a model is a row, or one of its pretrainings: mlm-1800-s6 is of mlm-1800."""
    return bool(re.fullmatch(re.escape(row) + r'(-s\d+)?', model))


def own_runs(rows, cfg, problems):
    """Return {row: your runs of it}. What else is in the folder may be incomplete: it is not read."""
    found = []
    for folder, about, load in evaluate.find_runs(cfg.predictions):
        model = evaluate.model_of(folder, about)
        if any(is_of(row, model) for row in rows):
            found.append((folder, about, load))
    if not found:
        raise ValueError(f'{cfg.predictions}: no runs of {" and ".join(rows)} there')
    runs = evaluate.read_runs(cfg, problems, found)
    return {row: [run for run in runs if is_of(row, run.model)] for row in rows}


def cells_of(runs, cfg):
    """{dataset: evaluate.Cell}, in which these runs count as one model"""
    groups = evaluate.grouped(runs, 'dataset')
    return {name: evaluate.make_cell(group, cfg) for name, group in groups.items()}


def earlier_in_words(values, number):
    """Write what S earlier seeds say of a new one, or '' if they are too few.

    number  a format, as '{:+.1f}'"""
    if len(values) < 2:
        return ''
    mean = statistics.fmean(values)
    half = seeds_half([values]) * math.sqrt(len(values) + 1)    # t s / sqrt(S), times sqrt(S + 1)
    mean, low, high = [number.format(value) for value in (mean, mean - half, mean + half)]
    count = NUMBERS.get(len(values), len(values))
    return f' ({count} earlier seeds: {mean}; a new seed should fall between {low} and {high})'


def print_points(models, cells, earlier, datasets):
    """Print the difference of two models, the second less the first, in the mean of datasets."""
    first, second = models
    arms = [[(1, cells[second][name]), (-1, cells[first][name])] for name in datasets]
    difference = 100 * evaluate.estimate(arms, earlier.cfg).mean
    try:
        past = earlier.percents({(second, None): 1, (first, None): -1}, datasets)
    except Missing:     # the study has no such row, or no such task
        past = []
    words = earlier_in_words(past, '{:+.1f}')
    print(f'{" and ".join(datasets)}: {second} less {first} {difference:+.1f} points{words}')


def print_loss(model, folder, earlier):
    """Print a pretraining's last held-out loss, of the objective with which it ended."""
    config, lines = read_log(folder)
    objective = config['phases'][-1][0]
    key = f'val_{objective}_loss'
    losses = [line[key] for line in lines if key in line]
    if losses:
        words = earlier_in_words(earlier.last(model, key), '{:.2f}')
        print(f'{model}: held-out {objective.upper()} loss {losses[-1]:.2f}{words}')


def main():
    words, options = split_words(sys.argv[1:])
    cfg, _ = parse(Settings, options)
    if len(words) != 3:
        raise ValueError('it takes a study and two models: studies/small mlm-1800 clm25-mlm-1800')
    folder, *models = words
    problems = []
    scoring = evaluate.Settings(predictions=cfg.predictions, split='both')
    own = own_runs(models, scoring, problems)
    cells = {model: cells_of(own[model], scoring) for model in models}
    shared = cells[models[0]].keys() & cells[models[1]].keys()
    if not shared:
        raise ValueError(f'{cfg.predictions}: {" and ".join(models)} have no dataset in common there')

    # of each earlier seed so many fine-tunings count as you have; a study's seeds are 10 s + k
    count = len({run.seed % 10 for run in own[models[0]]})
    study, _ = load([folder, f'--finetuning_seeds={count}'])
    earlier = Evidence(study, scoring, problems)
    datasets = [name for name in earlier.datasets if name in shared] + sorted(shared - {*earlier.datasets})
    for name in datasets:
        if name in earlier.about and earlier.about[name].about['data'] != cells[models[0]][name].data[0]:
            problems.append(f'{name}: its rows are not those of {folder}; other packages?')
        print_points(models, cells, earlier, [name])
    if len(datasets) > 1:
        print_points(models, cells, earlier, datasets)
    for model in models:
        for name in evaluate.grouped(own[model], 'folder'):
            folder = Path(cfg.out, name)
            if folder.exists():
                print_loss(model, folder, earlier)
            else:
                problems.append(f'{folder}: no pretraining there, whose held-out loss could be told')
    sys.exit(evaluate.warn(problems))


if __name__ == '__main__':
    run_main(main)

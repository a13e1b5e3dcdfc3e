"""How two models of yours differ, beside the same two rows of a study with several pretraining seeds.

    python studies/beside.py studies/small mlm-1800 clm25-mlm-1800

It takes your fine-tunings from predictions/, of models pretrained with --row=mlm-1800, and the losses of
their pretrainings from out/. Of a folder, as out/mlm-1800-s6, it takes this run alone. For one new seed
19 of 20 should fall in the range that it prints: the 95 % prediction interval of S earlier seeds,
mean +- t s sqrt(1 + 1 / S)."""
import math
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the root, where evaluate.py is

import evaluate
from evaluate import seeds_half
from nanoencoder.pretraining.log import read_log
from nanoencoder.settings import parse, run_main, split_words
from studies.report import NUMBERS, Evidence, Missing
from studies.study import load


@dataclass(frozen=True)
class Settings:
    predictions: str = 'predictions'    # folder of your fine-tunings
    out: str = 'out'                    # folder of your pretrainings


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
    """Print the difference of two models, the second minus the first, in the mean of datasets.

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
    words = earlier_in_words(past, '{:+.1f}')
    print(f'{" and ".join(datasets)}: {second} minus {first} {difference:+.1f} points{words}')


def print_loss(model, row, folder, earlier):
    """Print a pretraining's last held-out loss, of the objective with which it ended."""
    config, lines = read_log(folder)
    objective = config['phases'][-1][0]
    key = f'val_{objective}_loss'
    losses = [line[key] for line in lines if key in line]
    if losses:
        words = earlier_in_words(earlier.last(row, key), '{:.2f}')
        print(f'{model}: held-out {objective.upper()} loss {losses[-1]:.2f}{words}')


def main():
    words, options = split_words(sys.argv[1:])
    cfg, _ = parse(Settings, options)
    if len(words) != 3:
        raise ValueError('it takes a study and two models: studies/small mlm-1800 clm25-mlm-1800')
    folder, *models = words
    problems = []
    scoring = evaluate.Settings(predictions=cfg.predictions, split='both', models=tuple(models))
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
    for name in datasets:
        if earlier.about[name].about['data'] != cells[first, name].data[0]:
            problems.append(f'{name}: its rows are not those of {folder}; other packages?')
        print_points(rows, cells, earlier, [name])
    if len(datasets) > 1:
        print_points(rows, cells, earlier, datasets)
    for model, row in rows.items():
        for name in dict.fromkeys(run.folder for run in own if run.model == model):
            folder = Path(cfg.out, name)
            if folder.exists():
                print_loss(model, row, folder, earlier)
            else:
                problems.append(f'{folder}: no pretraining there, whose held-out loss could be told')
    sys.exit(evaluate.warn(earlier.problems + problems))


if __name__ == '__main__':
    run_main(main)

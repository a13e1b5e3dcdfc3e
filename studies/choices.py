"""Choose the best row of each arm, and its rates of fine-tuning: the page of a study that sets `choose`.

By 'loss' it is the row with the lowest held-out loss of its own last objective, and a rate is chosen by
validation. By 'held-out rows' it is the row with the highest mean score over the tasks, each at its best
rate. A score is then the mean of both halves of the third of the training rows that hold_out.py holds out."""
import math
import statistics
from typing import NamedTuple

from evaluate import grouped, markdown
from nanoencoder.predictions import lr_text

# settings that tell rows apart and are nothing to choose
NAMES = {'name', 'branch_from', 'weights_from', 'save_at'}
PAGE = '''# {title}

Of each arm the row with the {best} is **chosen**.
Losses and scores are means over pretraining seeds: {seeds}. {scored}

A setting, or a rate of fine-tuning, is "at the edge" if it is the least or the greatest that was tried with
all else the same: a better one may lie beyond it.

{table}
'''
BEST = {'loss': 'lowest held-out loss of its own last objective',
        'held-out rows': 'highest mean score over tasks, each at its best rate of fine-tuning (in bold),'}
SCORED = {
    'loss': 'Scores are of validation, in percent;\nthe best rate of fine-tuning is in bold.',
    'held-out rows': 'Each task was\ntrained on two thirds of its training rows and scored on the last '
                     'third: no split that\nis scored elsewhere was looked at.'}


class Tried(NamedTuple):
    """A row that competes for its arm, as far as it has been run."""
    model: str
    settings: dict      # those in which the arm's rows differ
    loss: float         # mean over seeds; nan if a seed lacks it
    scores: dict        # {dataset: {rate: mean score of 1, nan if a seed lacks it}}

    @property
    def rates(self):
        """Return {dataset: its best rate}, of those whose rates all have a score. Of equally good ones it is
        the smaller."""
        return {dataset: max(sorted(scores), key=scores.get)
                for dataset, scores in self.scores.items()
                if not any(map(math.isnan, scores.values()))}

    @property
    def mean(self):
        """Return the mean score over datasets at their best rates; nan if one lacks a score."""
        if not self.scores or len(self.rates) < len(self.scores):
            return math.nan
        return statistics.fmean(self.scores[dataset][rate] for dataset, rate in self.rates.items())


def merit(row, choose):
    """Return by what a Tried is compared, the more the better; nan if it lacks runs."""
    return -row.loss if choose == 'loss' else row.mean


def best(rows, choose):
    """Return the best of [Tried]; None where a row still lacks runs."""
    if len(rows) == 1:
        return rows[0]
    merits = [merit(row, choose) for row in rows]
    if any(math.isnan(number) for number in merits):
        return None
    return rows[merits.index(max(merits))]


def edges(chosen, rows):
    """Return in words the settings and the rates of fine-tuning of the chosen row beyond which a better one
    may lie: the least or the greatest of the rows [Tried] that differ from it in nothing else."""
    words = []
    for name, value in chosen.settings.items():
        if type(value) in (int, float):
            others = {**chosen.settings, name: None}
            values = [row.settings[name] for row in rows if {**row.settings, name: None} == others]
            if value in (min(values), max(values)):
                words.append(f'{name} {value:g}')
    for dataset, rate in chosen.rates.items():
        tried = chosen.scores[dataset]
        if len(tried) > 1 and rate in (min(tried), max(tried)):
            words.append(f'{dataset} at {lr_text(rate)}')
    return words


# ---------------------------------------------------------------------------
# What a study has tried


def rows_tried(evidence, models):
    """Return [Tried] of an arm's models."""
    stated = {}     # {model: its settings}
    for model in models:
        row, _ = evidence.row_of(model)
        stated[model] = row.stated if row else {}
    first, *others = stated.values()
    varied = [name for name in first
              if name not in NAMES and any(settings.get(name) != first[name] for settings in others)]
    return [
        Tried(
            model,
            {name: stated[model].get(name) for name in varied},
            mean_loss(evidence, model),
            {dataset: mean_scores(evidence, model, dataset)
             for name, dataset in evidence.study.tried
             if name == model})
        for model in models]


def mean_loss(evidence, model):
    """Return the mean over seeds of a model's held-out loss of its last objective, nan if a seed lacks it."""
    row, step = evidence.row_of(model)
    if not row:
        return math.nan
    losses = evidence.last(model, f'val_{row.phases[step - 1]}_loss')
    if len(losses) < len(evidence.study.seeds):
        return math.nan
    return statistics.fmean(losses)


def mean_scores(evidence, model, dataset):
    """Return {rate of fine-tuning: mean score}, nan if it lacks a pretraining or a fine-tuning."""
    study = evidence.study
    pretrainings = 1 if model == 'untrained' else len(study.seeds)
    of_rates = grouped(evidence.runs.get((model, dataset), ()), 'lr')
    scores = {}
    for lr in study.tried[model, dataset].lrs:
        runs = of_rates.get(lr, ())
        scores[lr] = math.nan
        if len(runs) == pretrainings * study.finetuning_seeds:
            if study.choose == 'loss':
                values = [run.validation for run in runs]
            else:
                values = [(run.validation + run.test) / 2 for run in runs]
            scores[lr] = statistics.fmean(values)
    return scores


# ---------------------------------------------------------------------------
# The page


def page(evidence, title):
    """Return the page, and a line that says what is chosen for each arm."""
    study = evidence.study
    table = []
    lines = []
    for arm, models in study.choices.items():
        rows = rows_tried(evidence, models)
        chosen = best(rows, study.choose)
        at_edge = ''
        if chosen:
            beyond = edges(chosen, rows)
            if beyond:
                at_edge = f'; at the edge, try more: {", ".join(beyond)}'
            lines.append(f'{arm}: {chosen.model}{rates_in_words(chosen)}{at_edge}')
            lacking = ', '.join(dataset for dataset in chosen.scores if dataset not in chosen.rates)
            if lacking:
                evidence.problems.append(f'{arm}: no rate is chosen yet where {chosen.model} lacks runs: '
                                         f'{lacking}')
        else:
            lacking = ', '.join(row.model for row in rows if math.isnan(merit(row, study.choose)))
            evidence.problems.append(f'{arm}: nothing is chosen yet: {lacking} lack runs of a seed')
        for row in rows:
            choice = f'**chosen**{at_edge}' if row is chosen else ''
            table.append([arm, *cells(row, evidence.datasets), choice])
    heads = ['arm', 'row', 'settings', 'held-out loss', *evidence.datasets, 'mean', 'choice']
    seeds = ', '.join(map(str, study.seeds))
    text = PAGE.format(title=title, best=BEST[study.choose], scored=SCORED[study.choose], seeds=seeds,
                       table=markdown(heads, table))
    return text, lines


def cells(row, datasets):
    """Return the cells of a row's settings, loss, scores on each dataset and their mean."""
    settings = ', '.join(f'{name} {value}' for name, value in row.settings.items())
    loss = '' if math.isnan(row.loss) else f'{row.loss:.3f}'
    mean = '' if math.isnan(row.mean) else f'{100 * row.mean:.1f}'
    scores = []
    for dataset in datasets:
        texts = []
        for lr, score in sorted(row.scores.get(dataset, {}).items()):
            if not math.isnan(score):
                text = f'{lr_text(lr)} {100 * score:.1f}'
                texts.append(f'**{text}**' if lr == row.rates.get(dataset) else text)
        scores.append(', '.join(texts))
    return [row.model, settings, loss, *scores, mean]


def rates_in_words(row):
    return ''.join(f', {dataset} at {lr_text(rate)}' for dataset, rate in row.rates.items())

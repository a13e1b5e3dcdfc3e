"""A study's contrasts judged as claims, on one page, and its ladder of lengths."""
import contextlib
import dataclasses
import functools
import itertools
import math
import statistics
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from data import OBJECTIVES
from nanoencoder.files import whole
from nanoencoder.judging import figures, paper, studies
from nanoencoder.judging.predictions import read_runs
from nanoencoder.judging.statistics import estimate, grouped, lr_text, make_cell, p_value, seeds_half

REGIONS = {'better': lambda margin: (0.0, math.inf),    # in which the points agree with the claim
           'at_least': lambda margin: (-margin, math.inf),
           'no_difference': lambda margin: (-margin, margin)}
# Pretrainings that a verdict takes, by the rules of a study. Of simulated pages with seven contrasts of equal
# models so many hold a verdict, in spite of Holm's correction, for three spreads of seeds: with three
# pretrainings 5, 9 and 14 %, with four 5, 6 and 8 %, with five 6, 5 and 9 %, with six 5, 6 and 6 %
# (tests/simulation.py --pages=7 --each=2 --instances='(300,)', accuracy; 1,000 pages each).
LEAST_SEEDS = {1: 3, 2: 4}
NUMBERS = {3: 'three', 4: 'four'}
MLM_LOSS = 'held-out MLM loss'      # a quantity beside the datasets
BESIDE = '\nOne pretraining tests no claim; 19 of 20 lie where the seeds of another study say:\n\n'


class Missing(Exception):
    """A model, dataset or row that a study lacks."""


class Evidence:
    """What a study has shown: cells of its fine-tunings, last losses of its pretrainings."""
    def __init__(self, study, runs, cfg, problems):
        import pandas
        self.study, self.cfg, self.problems = study, cfg, problems
        self.least_seeds = LEAST_SEEDS[study.rules]
        runs = [run for run in runs     # that the study still has
                if run.origin in (None, *study.seeds) and run.seed % 10 < study.finetuning_seeds
                and run.lr in study.tried.get((run.model, run.dataset), [run.lr])]
        self.runs = grouped(runs, 'model', 'dataset')
        self.seeds = {*study.seeds} & {run.origin for run in runs}
        if absent := sorted({*study.seeds} - self.seeds):
            problems.append(f'no runs yet of pretraining seeds {str(absent)[1:-1]}')
        self.about = {run.dataset: run for run in runs}    # any run of a dataset: its task, metric
        asked = [name for line in study.finetunings for name in line.datasets]
        self.datasets = [name for name in dict.fromkeys(asked + sorted(self.about)) if name in self.about]
        losses = pandas.read_csv(Path(study.folder, 'losses.csv'))
        self.losses = losses[losses['seed'].isin(study.seeds)].sort_values('step')

    @functools.cache
    def cell(self, model, dataset, lr=None, split='both'):
        if not (runs := [run for run in self.runs.get((model, dataset), ()) if lr in (None, run.lr)]):
            raise Missing(f'{model}{f"@{lr}" if lr else ""} on {dataset}')
        seeds = {run.origin for run in runs}
        if absent := sorted(self.seeds - seeds if seeds != {None} else ()):
            self.problems.append(f'{model} on {dataset} has no pretraining seeds {str(absent)[1:-1]}')
        try:
            return make_cell(runs, dataclasses.replace(self.cfg, split=split))
        except ValueError as error:
            self.problems.append(f'{model} on {dataset} is left out: {error}')
            raise Missing(f'{model} on {dataset}') from None

    def estimate(self, weights, datasets, split='both', without=()):
        """Of {(model, lr): weight}, the mean over datasets."""
        parts = [[(weight, self.cell(model, dataset, lr, split)) for (model, lr), weight in weights.items()]
                 for dataset in datasets]
        return estimate(parts, self.cfg, without)

    def percents(self, weights, datasets):      # of each seed
        return [100 * x for x in self.estimate(weights, datasets).units.values()]

    def row_of(self, model):
        """(its Row, its step) of a model or variant; (None, 0) of `untrained` and of baselines."""
        with contextlib.suppress(ValueError):
            name, step = self.study.check_model(model.partition('+')[0])
            return self.study.rows.get(name), step
        return None, 0

    def last(self, model, name):
        """[a number of a model's last validation] of each seed that has come that far."""
        row, step = self.row_of(model)
        if not row or name not in self.losses:      # a study without validation
            return []
        lines = self.losses[self.losses['row'] == row.name]
        lines = lines[lines.groupby('seed')['step'].transform('max') >= step]
        return lines[lines['step'] <= step].groupby('seed')[name].last().dropna().tolist()

    def over_seeds(self, model, name):
        """(mean, low, high) of a score in percent, or of the MLM loss, over seeds alone: 95 %; of two seeds
        their range, for Student's t of those says next to nothing."""
        values = (self.last(model, 'val_mlm_loss') if name == MLM_LOSS else
                  self.percents({(model, None): 1}, [name]))
        mean, half = statistics.fmean(values), seeds_half([values])    # nan for one
        return (mean, mean - half, mean + half) if len(values) > 2 else (mean, min(values), max(values))

    def margin(self, weights, datasets):
        """A tenth of what MLM gains over no pretraining: of the contrast's rows that had MLM alone."""
        gains = []
        for model, lr in weights:
            row, step = self.row_of(model)
            if row and {*row.phases[:step]} == {'mlm'} and row.begins != 'weights_from':
                gains += [self.cell(model, d, lr).mean - self.cell('untrained', d).mean for d in datasets]
        if not gains:
            raise Missing('row of MLM alone, of whose gain the margin is a tenth')
        return 0.1 * max(0.0, statistics.fmean(gains))

    def judge(self, line):
        margin = 0.0 if line.rule == 'better' else self.margin(line.weights, line.datasets)
        seen = {split: self.estimate(line.weights, line.datasets, split)
                for split in ('both', 'test', 'validation')}
        units = seen['both'].units
        if len(units) > self.least_seeds:
            seen |= {seed: self.estimate(line.weights, line.datasets, without=(seed,)) for seed in units}
        p = {view: 1.0 if one.p is None else p_value(one.draws, REGIONS[line.rule](margin))
             for view, one in seen.items()}
        return Judged(line, margin, seen, p, self.least_seeds)


class Judged(NamedTuple):
    line: studies.Contrast
    margin: float
    seen: dict          # {view: Estimate}: of both splits, of one, or without a pretraining seed
    p: dict             # {view: its p}, 1 where a trained arm has one seed
    least_seeds: int

    def verdict(self, view, p):     # Holm's
        least, most = REGIONS[self.line.rule](self.margin)
        if p >= 0.05 or few(self.seen[view], self.least_seeds):
            return 'cannot tell'
        return 'agrees' if least < self.seen[view].mean < most else 'disagrees'


def few(seen, least_seeds):      # whether an Estimate is of fewer pretrainings than a verdict needs
    return seen.unit != 'pretraining' or len(seen.units) < least_seeds


def holm(values, count=0):
    """p values adjusted for their number, or for a count of more claims, in the order given (Holm 1979)."""
    adjusted, highest = [0.0] * len(values), 0.0
    for rank, k in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        highest = adjusted[k] = max(highest, min(1.0, ((count or len(values)) - rank) * values[k]))
    return adjusted


def markdown(heads, rows):
    lines = [' | '.join(heads), '|'.join(['---'] * len(heads)), *map(' | '.join, rows)]
    return '\n'.join(f'| {line} |' for line in lines)


def points(seen, sign='+'):
    """An Estimate or a Cell, in percent."""
    interval = '' if math.isnan(seen.low) else f' [{100 * seen.low:{sign}.1f}, {100 * seen.high:{sign}.1f}]'
    return f'{100 * seen.mean:{sign}.1f}{interval}'


def verdict_table(judged, among_all, evidence):
    rows, published, claims = [], paper.numbers(), paper.claims()
    for one, p in zip(judged, among_all):
        line, whole = one.line, one.seen['both']
        name, _, more = line.name.partition(' ')    # 'end under Muon' is of the paper's claim `end`
        claim = claims.get(name, {'words': f'{line.name} (not a claim of the paper)'})
        numbers = []
        for task in dict.fromkeys(evidence.about[dataset].task for dataset in line.datasets):
            if differences := [published[first, task, 'Average'][0] - published[second, task, 'Average'][0]
                               for first, second, tasks in claim.get('differences', ()) if task in tasks]:
                numbers.append(f'{task} {statistics.fmean(differences):+.1f}')
        terms = [(f'{weight:+g} ' if abs(weight) != 1 else '+ ' if weight > 0 else '- ') + model
                 + (f' at {lr_text(lr)}' if lr else '') for (model, lr), weight in line.weights.items()]
        rule = line.rule.replace('_', ' ') + (f' within {100 * one.margin:.1f}' if one.margin else '')
        alone = f'[{100 * whole.seeds_low:+.1f}, {100 * whole.seeds_high:+.1f}]'
        rows.append([claim['words'] + f' ({more})' * bool(more and name in claims),
                     f'{" ".join(terms).removeprefix("+ ")}; {", ".join(line.datasets)}; {rule}',
                     points(whole), alone if whole.unit == 'pretraining' else 'one model',
                     f'{sum(value > 0 for value in whole.units.values())}/{len(whole.units)}',
                     ', '.join(numbers) or 'no number',
                     *(['', ''] if whole.p is None else [f'{one.p["both"]:.4f}', f'{p:.4f}']),
                     f'**{one.verdict("both", p)}**'])
    return markdown(['claim', 'contrast', 'points', 'over seeds alone', 'seeds above 0', 'the paper', 'p',
                     'Holm', 'verdict'], rows)


def moves_table(judged, p):
    rows = []
    for k, one in enumerate(judged):
        words = {view: one.verdict(view, p[view][k]) for view in one.seen}
        left = [view for view in one.seen if type(view) is int]
        means, counts = [100 * one.seen[seed].mean for seed in left], Counter(words[seed] for seed in left)
        counts = ', '.join(f'{count} {word}' for word, count in counts.items())
        rows.append([one.line.name, f'{min(means):+.1f} to {max(means):+.1f}: {counts}' if means else '',
                     *(f'{points(one.seen[split])} {words[split]}' for split in ('test', 'validation'))])
    return markdown(['claim', 'each seed left out', 'test split', 'validation split'], rows)


def lengths_table(evidence):
    """The difference of each two arms at each length that both have; '' if there is none."""
    lengths = {arm: {evidence.study.check_model(model)[1]: model for model in models}
               for arm, models in evidence.study.ladder.items()}
    seen = {}   # {(arms, dataset, step): Estimate}
    for (first, firsts), (second, seconds) in itertools.combinations(lengths.items(), 2):
        for dataset, step in itertools.product(evidence.datasets, sorted(firsts.keys() & seconds)):
            weights = {(firsts[step], None): 1, (seconds[step], None): -1}
            with contextlib.suppress(Missing):
                seen[f'{first} less {second}', dataset, step] = evidence.estimate(weights, [dataset])
    cells = {key: points(one) for key, one in seen.items()}
    tested = [key for key, one in seen.items() if not few(one, evidence.least_seeds)]
    for key, p in zip(tested, holm([seen[key].p for key in tested], len(seen))):
        cells[key] += f', {p:.3f}'
    steps = sorted({step for *_, step in cells})
    rows = [[*key, *(cells.get((*key, step), '') for step in steps)]
            for key in dict.fromkeys((arms, dataset) for arms, dataset, _ in cells)]
    return markdown(['arms', 'task', *(f'{step:,} steps' for step in steps)], rows) if rows else ''


def all_rows_table(evidence):
    rows, names = [], [*evidence.study.rows]
    for model in sorted({model for model, _ in evidence.runs}, key=lambda model: (
            names.index(model) if model in names else len(names), '+' in model, model)):
        (row, _), tokens, loss = evidence.row_of(model), max(evidence.last(model, 'tokens'), default=0), ''
        if evidence.last(model, 'val_mlm_loss'):
            mean, low, high = evidence.over_seeds(model, MLM_LOSS)
            loss = f'{mean:.2f}' + (f' [{low:.2f}, {high:.2f}]' if low < high else '')
        more = '+' if row and row.begins == 'weights_from' else ''     # than the row it continues
        rows.append([model, f'{more}{tokens / 1e6:.1f}' if tokens else '', loss])
        for dataset in evidence.datasets:
            rows[-1].append('')
            with contextlib.suppress(Missing):
                rows[-1][-1] = points(evidence.cell(model, dataset), sign='')
    heads = [f'{name}, {evidence.about[name].metric}' for name in evidence.datasets]
    return markdown(['row', 'M tokens', MLM_LOSS, *heads], rows)


def verdicts(evidence):
    """The claims, judged, and how the verdicts move. What is not there yet is left out, and a problem."""
    judged, study = [], evidence.study
    for line in study.comparisons:
        try:
            judged.append(evidence.judge(line))
        except Missing as error:
            evidence.problems.append(f'{line.name} is not judged: there is no {error}')
    views = dict.fromkeys(itertools.chain(*(one.seen for one in judged)))
    p = {view: holm([one.p.get(view, 1.0) for one in judged], len(study.comparisons)) for view in views}
    lengths = lengths_table(evidence)
    least = NUMBERS[evidence.least_seeds]
    return f'''\
Points are percent, with 95 % intervals over pretraining seeds and test instances; "over seeds alone" keeps
these test sets. p is two-sided, against the bound of the claim's region: above 0 for "better", above minus
the margin for "at least", within it for "no difference". The margin is a tenth of what MLM gains over no
pretraining. Holm's p counts all claims of the page. Where it is below 0.05, and {least} pretrainings or more
were seen, the claim agrees if the points lie in its region, and else disagrees. Held-out losses and the bands
of the figure are over seeds alone: 95 %, or of two seeds their range.

## Verdicts

{verdict_table(judged, p['both'], evidence) if judged else ''}

## How the verdicts move

{moves_table(judged, p)}
{lengths and f"""
## Differences by length

Not frozen: unlike the claims above, these were not written down before the runs. Points with their interval,
then, of {least} pretrainings or more, p with Holm's correction over this table.

{lengths}
"""}'''


def beside(evidence, other):
    """Lines of what is measured here and what another study's S seeds say of one pretraining more: its 95 %
    prediction interval is mean +- t s sqrt(1 + 1 / S)."""
    evidence.problems += [f'{name}: its rows are not those of {other.study.folder}; other packages?'
                          for name in other.about.keys() & evidence.datasets
                          if evidence.about[name].data != other.about[name].data]
    values, lines = {}, []      # {what: (here, there)}
    for line in evidence.study.comparisons:
        names = ' - '.join(model for model, _ in sorted(line.weights, key=line.weights.get, reverse=True))
        for datasets in [*([name] for name in line.datasets), line.datasets]:
            what, seen = f'{names}, {" and ".join(datasets)}, points', []
            try:
                values[what] = seen = [evidence.percents(line.weights, datasets), []]
                seen[1] = other.percents(line.weights, datasets)
            except Missing as error:    # the other study need not have the row
                if not seen:
                    evidence.problems.append(f'{line.name} is not compared: there is no {error}')
    for name, row in evidence.study.rows.items():
        last = row.phases[-1]
        values[f'{name}, held-out {last.upper()} loss'] = [
            of.last(name, f'val_{last}_loss') for of in (evidence, other)]
    for what, (here, there) in values.items():
        number = ('{:.2f}' if what.endswith('loss') else '{:+.1f}').format
        if here:
            lines.append(f'{what}: yours {number(statistics.fmean(here))}')
        if here and len(there) > 1:
            mean, half = statistics.fmean(there), seeds_half([there]) * math.sqrt(len(there) + 1)
            lines[-1] += (f'; {len(there)} seeds of {Path(other.study.folder).name} {number(mean)}, '
                          f'between {number(mean - half)} and {number(mean + half)} for one more')
    return lines


def ladder_panels(evidence):
    """What figures.ladder draws: a panel a quantity, which is left out where a row is missing."""
    arms, panels = evidence.study.ladder, []
    every = [*itertools.chain(*arms.values())]
    if len(every) == len(arms) or not all(evidence.last(model, 'tokens') for model in every):
        return []
    has_losses = all(evidence.last(model, 'val_mlm_loss') for model in every)
    for name in [MLM_LOSS] * has_losses + evidence.datasets:
        with contextlib.suppress(Missing):
            lines, floors = {}, {}
            for arm, models in arms.items():
                lines[arm] = [(max(evidence.last(model, 'tokens')), *evidence.over_seeds(model, name))
                              for model in models]
                row, step = evidence.row_of(models[-1])
                if name == MLM_LOSS and OBJECTIVES[row.phases[step - 1]].causal:
                    floors[arm] = lines.pop(arm)[-1][1]     # it has seen no mask: its length says nothing
            for (model, dataset), runs in sorted(evidence.runs.items()):
                if dataset == name and (model == 'untrained' or runs[0].method == 'baseline'):
                    floors[model] = 100 * evidence.cell(model, name).mean
            title = f'{name}: {evidence.about[name].metric}, %' if name in evidence.about else name
            panels.append((title, lines, floors))
    return panels


def write(study, runs, cfg, problems):
    """A study's report.md and ladder.png; [lines to print, and their paths]."""
    evidence, lines, paths = Evidence(study, runs, cfg, problems), [], [Path(study.folder, 'report.md')]
    if study.beside:
        shown, _ = studies.load([study.beside, f'--finetuning_seeds={study.finetuning_seeds}'])
        there = dataclasses.replace(cfg, predictions=f'{shown.folder}/runs', models=tuple(study.rows))
        lines = beside(evidence, Evidence(shown, read_runs(there, []), there, []))
    instances = ', '.join(f'{name} {evidence.about[name].n:,} (data {evidence.about[name].data[:8]})'
                          for name in evidence.datasets)
    content = BESIDE + ''.join(f'- {line}\n' for line in lines) if study.beside else verdicts(evidence)
    text = f'''# {Path(study.folder).name}: the paper's claims, judged at this size

Pretraining seeds: {str(sorted(evidence.seeds))[1:-1]}, each fine-tuned with {study.finetuning_seeds} seeds.
Test instances, of both held-out splits: {instances}.
{content}
## All rows

{all_rows_table(evidence)}
'''
    if panels := ladder_panels(evidence):
        paths.append(figures.save(figures.ladder(panels), paths[0].with_name('ladder.png')))
    with whole(paths[0]) as temporary:
        temporary.write_text(text, encoding='utf-8')
    return [*lines, *paths]

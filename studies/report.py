"""Judge a study's contrasts as claims, and write its page and the figure of its ladder of lengths.

    python studies/report.py studies/small

Of a study that sets `choose` the page says what is chosen: choices.py.

It reads what is in runs/ or packed, and losses.csv. A claim agrees or disagrees with the runs where its p,
with Holm's correction for all claims of the page, is below 0.05; docs/protocols.md has the statistics."""
import functools
import itertools
import json
import math
import statistics
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the root, where evaluate.py is

import evaluate
from data import OBJECTIVES
from evaluate import markdown, p_value, seeds_half, shown
from nanoencoder.figures import save_figure
from nanoencoder.files import read_json, whole
from nanoencoder.predictions import lr_text
from nanoencoder.settings import run_main
from studies import choices, figures, losses, packs
from studies.paper import published
from studies.study import Contrast, check_recorded, load

# Pretrainings that a verdict takes, by the rules of a study. Of simulated pages with seven contrasts of equal
# models so many hold a verdict, in spite of Holm's correction, for three spreads of seeds: with three
# pretrainings 5, 9 and 14 %, with four 5, 6 and 8 %, with five 6, 5 and 9 %, with six 5, 6 and 6 %
# (bench/simulation.py --pages=7 --each=2 --instances='(300,)', accuracy; 1,000 pages each).
LEAST_SEEDS = {1: 3, 2: 4, 3: 4}
NUMBERS = {2: 'two', 3: 'three', 4: 'four', 5: 'five', 6: 'six'}
SPLITS = ('both', 'test', 'validation')
NEAR = ' (p near .05)'     # after a verdict that other draws of the bootstrap might turn
MLM_LOSS = 'held-out MLM loss'      # a quantity beside the datasets
CLAIMS = Path(__file__).parent / 'paper/claims.json'
VERDICTS = '''\
Points are percent, with 95 % intervals over pretraining seeds and test instances; "over seeds alone" keeps
these test sets. p is two-sided, against the bound of the claim's region: above 0 for "better", above minus
the margin for "at least", within it for "no difference". The margin is a tenth of what MLM gains over no
pretraining. Holm's p counts all claims of the page. Where it is below 0.05, and {least} pretrainings or more
were seen, the claim agrees if the points lie in its region, and else disagrees. Held-out losses and the bands
of the figure are over seeds alone: 95 %, or of two seeds their range.
{since_3}
## Verdicts

{verdicts}

## How the verdicts move

{moves}
{tasks}{lengths}'''
SINCE_3 = f'''\
Of a contrast that is no claim of the paper the verdict says where the points lie. "p near .05": Holm's p
lies within two Monte-Carlo errors of 0.05, so that other draws of the bootstrap might say something else.
°: an arm, or the row, is {evaluate.BELOW}.
'''
TASKS = '''
## Claims by task

Points with their interval, each by itself: nothing corrects for their number.

{table}
'''
LENGTHS = '''
## Differences by length

Not frozen: unlike the claims above, these were not written down before the runs. Points with their interval,
then, of {least} pretrainings or more, p with Holm's correction over this table.

{table}
'''


class Missing(Exception):
    """A model, dataset or row that a study lacks."""


# ---------------------------------------------------------------------------
# What a study has shown


class Evidence:
    """The scores of a study's fine-tunings and the last losses of its pretrainings."""

    def __init__(self, study):
        """Read what is in the study's folder. ValueError if a file is not as it was packed, or if the runs
        were made with other settings than the study has now."""
        self.study = study
        draws = min(study.rules, 2)     # since 2 they are the same
        # a pack may hold runs that are older than clusters: all are drawn by instances
        self.cfg = evaluate.Settings(
            predictions=f'{study.folder}/runs', split='both', rules=draws, clusters=False)
        self.problems = []      # in words: what is missing, while the rest goes on
        self.least_seeds = LEAST_SEEDS[study.rules]
        packed = [*packs.find_runs(study.folder, is_whole=True)]
        check_recorded(study, packed)
        found = []
        if study.tasks:
            found = evaluate.read_runs(self.cfg, self.problems, packed)
        runs = [run for run in found if self.is_asked_for(run)]
        self.runs = evaluate.grouped(runs, 'model', 'dataset')
        self.about = {run.dataset: run for run in runs}     # any run of a dataset: its task, metric, data
        asked = [name for _, name in study.tried]
        self.datasets = [name for name in dict.fromkeys(asked + sorted(self.about)) if name in self.about]
        import pandas
        table = pandas.read_csv(study.folder / 'losses.csv').query('seed in @study.seeds')
        mixed = self.mixed_rows(table, runs)
        for row, names in mixed.items():
            self.problems.append(f'{row}: its held-out losses are left out: its seeds differ in {names}')
        self.losses = table[~table['row'].isin(mixed.keys())]       # of each run, sorted by step

        self.seeds = {*study.seeds} & {run.origin for run in runs}
        absent = sorted({*study.seeds} - self.seeds)
        if absent and study.tasks:
            self.problems.append(f'no runs yet of pretraining seeds {str(absent)[1:-1]}')

    def mixed_rows(self, table, runs):
        """Return {row: settings in which its pretrainings differ, in words}: their mean would be the loss of
        no model. Fine-tunings say how their model was pretrained; losses.csv, the table, says of how many
        rows and tokens a loss is."""
        values = {}     # {(row, setting): its values}
        for run in runs:
            row, _ = self.row_of(run.model)
            if row and run.origin is not None:
                for name, value in run.pretraining.get('fixed', {}).items():
                    values.setdefault((row.name, name), set()).add(json.dumps(value))
        for name in table.columns.intersection(losses.HELD_OUT):
            for row, column in table.groupby('row')[name]:
                values[row, name] = {*column.dropna()}
        mixed = {}
        for (row, name), seen in values.items():
            if len(seen) > 1 and name != 'seed':
                mixed.setdefault(row, []).append(name)
        return {row: ', '.join(names) for row, names in mixed.items()}

    def is_asked_for(self, run):
        """Whether the study still asks for a run: a pack may have more."""
        task = self.study.tried.get((run.model, run.dataset))
        return (run.origin in (None, *self.study.seeds)
                and run.seed % 10 < self.study.finetuning_seeds
                and (task is None or run.lr in task.lrs))

    @functools.cache
    def cell(self, model, dataset, lr=None, split='both'):
        """Return the evaluate.Cell of a model, or of one of its learning rates. Missing if there is none."""
        runs = [run for run in self.runs.get((model, dataset), ()) if lr in (None, run.lr)]
        if not runs:
            at = f'@{lr}' if lr else ''
            raise Missing(f'{model}{at} on {dataset}')
        seeds = {run.origin for run in runs}
        absent = sorted(self.seeds - seeds)
        if absent and seeds != {None}:
            self.problems.append(f'{model} on {dataset} has no pretraining seeds {str(absent)[1:-1]}')
        try:
            return evaluate.make_cell(runs, replace(self.cfg, split=split))
        except ValueError as error:
            self.problems.append(f'{model} on {dataset} is left out: {error}')
            raise Missing(f'{model} on {dataset}') from None

    def mark(self, arms, dataset):
        """Return '°' if one of [(model, lr)] scores below new weights that were fine-tuned or probed alike,
        else ''."""
        if self.study.rules < 3:
            return ''
        for model, lr in arms:
            try:
                untrained = self.cell(evaluate.untrained_like(model), dataset, None, 'both')
            except Missing:
                continue
            if self.cell(model, dataset, lr, 'both').mean < untrained.mean:
                return '°'
        return ''

    def estimate(self, weights, datasets, split='both', without=()):
        """Return the evaluate.Estimate of {(model, lr): weight}: the mean over datasets."""
        parts = []
        for dataset in datasets:
            parts.append([(weight, self.cell(model, dataset, lr, split))
                          for (model, lr), weight in weights.items()])
        return evaluate.estimate(parts, self.cfg, without)

    def percents(self, weights, datasets):
        """Return the same in percent, of each seed."""
        units = self.estimate(weights, datasets).by_seed
        return [100 * value for value in units.values()]

    def row_of(self, model):
        """Return (Row, step) of a model or variant; (None, 0) of `untrained` and of baselines."""
        model, _, _ = model.partition('+')
        if model == 'untrained' or model not in self.study.models:
            return None, 0
        name, step = self.study.models[model]
        return self.study.rows[name], step

    def last(self, model, name):
        """Return [a number of a model's last validation] of each seed that has come that far."""
        row, step = self.row_of(model)
        if not row or name not in self.losses:      # a study without validation
            return []
        lines = self.losses.query('row == @row.name')
        lines = lines[lines.groupby('seed')['step'].transform('max') >= step]
        return lines[lines['step'] <= step].groupby('seed')[name].last().dropna().tolist()

    def over_seeds(self, model, name):
        """Return (mean, low, high) of a score in percent, or of the MLM loss: 95 % over seeds alone. Of two
        seeds it is their range, for Student's t of those says next to nothing. Missing if there is none."""
        if name == MLM_LOSS:
            values = self.last(model, 'val_mlm_loss')
        else:
            values = self.percents({(model, None): 1}, [name])
        if not values:
            raise Missing(f'{name} of {model}')
        mean = statistics.fmean(values)
        if len(values) <= 2:
            return mean, min(values), max(values)
        half = seeds_half([values])
        return mean, mean - half, mean + half


# ---------------------------------------------------------------------------
# Claims


def region(rule, margin):
    """Return (low, high): which points agree with a claim."""
    if rule == 'better':
        return 0.0, math.inf
    if rule == 'at_least':
        return -margin, math.inf
    return -margin, margin      # no_difference


def verdict(seen, bounds, p, least_seeds):
    """Return what an Estimate says of a claim: agrees, disagrees, or cannot tell.

    bounds  of the claim's region
    p       with Holm's correction"""
    low, high = bounds
    if not p < 0.05 or is_few(seen, least_seeds):   # a p of nan says nothing
        return 'cannot tell'
    return 'agrees' if low < seen.mean < high else 'disagrees'


def is_near_005(p, holms_p, resamples, rules=3):
    """Whether Holm's p lies within two Monte-Carlo errors of 0.05. The error is that of a share of so many
    resamples, times what Holm's correction made of p. By rules 1, which draw Student's t at random, it is
    larger: that of twice a share."""
    variance = p * (1 - p) / resamples
    if rules == 1:
        variance = p * (2 - p) / resamples
    error = math.sqrt(variance) * holms_p / p
    return abs(holms_p - 0.05) <= 2 * error


class Judged(NamedTuple):
    """A contrast in several views: each of SPLITS, and both splits without a pretraining seed, whose number
    is then the view."""
    contrast: Contrast
    bounds: tuple       # of its region, as fractions of 1
    seen: dict          # {view: Estimate}
    p: dict             # {view: its p}, but of views in which a trained arm has one seed


def judge(evidence, contrast):
    """Return a contrast Judged. Missing if a model has no runs."""
    margin = 0.0
    if contrast.rule != 'better':
        margin = find_margin(evidence, contrast)
    estimate = functools.partial(evidence.estimate, contrast.weights, contrast.datasets)
    seen = {split: estimate(split) for split in SPLITS}
    seeds = seen['both'].by_seed
    if len(seeds) > evidence.least_seeds:
        seen |= {seed: estimate(without=(seed,)) for seed in seeds}
    bounds = region(contrast.rule, margin)
    p = {}
    for view, estimated in seen.items():
        if estimated.p is not None:
            p[view] = p_value(estimated.draws, bounds)
    return Judged(contrast, bounds, seen, p)


def find_margin(evidence, contrast):
    """Return a tenth of what MLM gains over no pretraining, as the mean over the contrast's datasets and
    those of its rows that had only MLM. Missing if there is no such row."""
    gains = []
    for model, lr in contrast.weights:
        row, step = evidence.row_of(model)
        if row and {*row.phases[:step]} == {'mlm'} and row.begins != 'weights_from':
            for dataset in contrast.datasets:
                untrained = evidence.cell('untrained', dataset)
                gains.append(evidence.cell(model, dataset, lr).mean - untrained.mean)
    if not gains:
        raise Missing('row of MLM alone, of whose gain the margin is a tenth')
    return 0.1 * max(0.0, statistics.fmean(gains))


def is_few(seen, least_seeds):
    """Whether an Estimate is of fewer pretrainings than a verdict needs."""
    return seen.unit != 'pretraining' or len(seen.by_seed) < least_seeds


def holm(p, count):
    """Adjust a Series of p values for a count of claims, which may be more (Holm 1979)."""
    p = p.sort_values()
    factors = count - np.arange(len(p))
    return (factors * p).cummax().clip(upper=1)


# ---------------------------------------------------------------------------
# The page


def verdict_in_words(claim, view, holms_p, evidence, claims):
    """Write what a view says of a claim. Since rules 3, of a contrast that is none of the paper's claims,
    where its points lie; and whether its p is near 0.05."""
    seen = claim.seen[view]
    word = verdict(seen, claim.bounds, holms_p, evidence.least_seeds)
    if evidence.study.rules < 3:
        return word

    name, *_ = claim.contrast.name.split(' ')
    if name not in claims and word != 'cannot tell':
        word = place_in_words(claim, word == 'agrees')
    if not is_few(seen, evidence.least_seeds):
        if is_near_005(claim.p.get(view, math.nan), holms_p, evidence.cfg.resamples):
            word += NEAR
    return word


def place_in_words(claim, is_inside):
    """Write where points lie, inside of a contrast's region or outside: above 0, below -1.2, within 1.2."""
    low, high = claim.bounds
    if claim.contrast.rule == 'no_difference':
        side = 'within' if is_inside else 'not within'
        return f'{side} {100 * high:.1f}'
    side = 'above' if is_inside else 'below'
    return f'{side} {100 * low:.1f}'.removesuffix('.0')


def points(seen):
    """Write the mean and the interval of an Estimate, in percent."""
    return f'{100 * seen.mean:+.1f} [{100 * seen.low:+.1f}, {100 * seen.high:+.1f}]'


def weights_in_words(weights):
    """Write 'clm - mlm', or '+0.5 clm at 2e-03 -0.5 mlm'."""
    terms = []
    for (model, lr), weight in weights.items():
        sign = f'{weight:+g}'
        if abs(weight) == 1:
            sign = sign[0]
        at = f' at {lr_text(lr)}' if lr else ''
        terms.append(f'{sign} {model}{at}')
    return ' '.join(terms).removeprefix('+ ')


def papers_points(claim, tasks):
    """Write what the paper's tables say of a claim: 'TC +0.9, IR +0.3', means over its differences."""
    numbers = published.numbers()
    texts = []
    for task in tasks:
        differences = []
        for first, second, of_tasks in claim.get('differences', ()):
            if task in of_tasks:
                of_first, _ = numbers[first, task, 'Average']
                of_second, _ = numbers[second, task, 'Average']
                differences.append(of_first - of_second)
        if differences:
            texts.append(f'{task} {statistics.fmean(differences):+.1f}')
    return ', '.join(texts) or 'no number'


def verdict_row(claim, evidence, claims, holms_p):
    """Return the cells of a claim's row, all but its verdict. A contrast 'end under Muon' is of the paper's
    claim 'end'.

    claims  {name: {'words', 'differences'}} of the paper; a difference is [model, model, tasks]"""
    contrast = claim.contrast
    whole_view = claim.seen['both']
    name, _, circumstance = contrast.name.partition(' ')
    published = claims.get(name, {})
    words = f'{contrast.name} (not a claim of the paper)'
    if published:
        words = f'{published["words"]} ({circumstance})'.removesuffix(' ()')
    rule = contrast.rule.replace('_', ' ')
    low, _ = claim.bounds
    if low:
        rule += f' within {-100 * low:.1f}'
    over_seeds = 'one model'
    if whole_view.unit == 'pretraining':
        over_seeds = f'[{100 * whole_view.seeds_low:+.1f}, {100 * whole_view.seeds_high:+.1f}]'
    above = sum(value > 0 for value in whole_view.by_seed.values())
    tasks = dict.fromkeys(evidence.about[dataset].task for dataset in contrast.datasets)
    p_texts = ['', '']
    if 'both' in claim.p:
        p_texts = [f'{claim.p["both"]:.4f}', f'{holms_p:.4f}']
    datasets = [dataset + evidence.mark(contrast.weights, dataset) for dataset in contrast.datasets]
    return [words, f'{weights_in_words(contrast.weights)}; {", ".join(datasets)}; {rule}',
            points(whole_view), over_seeds, f'{above}/{len(whole_view.by_seed)}',
            papers_points(published, tasks), *p_texts]


def moves_row(claim, verdict_in):
    """Return the cells that say how a verdict moves: with each seed left out, and on each split.

    verdict_in  {view: its verdict}"""
    seeds = [view for view in claim.seen if view not in SPLITS]
    left_out = ''
    if seeds:
        means = [100 * claim.seen[seed].mean for seed in seeds]
        counts = Counter(verdict_in[seed] for seed in seeds)
        counted = ', '.join(f'{count} {verdict}' for verdict, count in counts.items())
        left_out = f'{min(means):+.1f} to {max(means):+.1f}: {counted}'
    splits = [f'{points(claim.seen[split])} {verdict_in[split]}' for split in ('test', 'validation')]
    return [claim.contrast.name, left_out, *splits]


def tasks_section(evidence, judged):
    """Return the section of each claim's points on each of its datasets; '' if no claim has several."""
    rows = []
    for claim in judged:
        contrast = claim.contrast
        if len(contrast.datasets) > 1:
            cells = dict.fromkeys(evidence.datasets, '')
            for name in contrast.datasets:
                seen = evidence.estimate(contrast.weights, [name])
                cells[name] = points(seen) + evidence.mark(contrast.weights, name)
            rows.append([contrast.name, *cells.values()])
    if not rows:
        return ''
    return TASKS.format(table=markdown(['claim', *evidence.datasets], rows))


def lengths_section(evidence):
    """Return the section of the difference of each two arms at each length that both have; '' if there is
    none."""
    lengths = {}        # {arm: {its steps: model}}
    for arm, models in evidence.study.ladder.items():
        lengths[arm] = {evidence.study.models[model][1]: model for model in models}
    minus = 'less' if evidence.study.rules < 3 else 'minus'
    seen = {}           # {(arms, dataset, steps): Estimate}
    for first, second in itertools.combinations(lengths, 2):
        shared = sorted(lengths[first].keys() & lengths[second])
        for dataset, steps in itertools.product(evidence.datasets, shared):
            weights = {(lengths[first][steps], None): 1, (lengths[second][steps], None): -1}
            try:
                seen[f'{first} {minus} {second}', dataset, steps] = evidence.estimate(weights, [dataset])
            except Missing:
                continue
    if not seen:
        return ''

    import pandas
    cells = {key: points(one) for key, one in seen.items()}
    tested = {key: one.p for key, one in seen.items() if not is_few(one, evidence.least_seeds)}
    p = pandas.Series(tested, dtype=float)
    for key, adjusted in holm(p, len(seen)).items():
        cells[key] += f', {adjusted:.3f}'
    rows = pandas.Series(cells).unstack(fill_value='', sort=False).sort_index(axis=1)
    heads = [f'{steps:,} steps' for steps in rows]
    table = markdown(['arms', 'task', *heads], rows.reset_index().values)
    return LENGTHS.format(least=NUMBERS[evidence.least_seeds], table=table)


def all_rows_table(evidence):
    """The table of each model's tokens, last loss and scores: rows in the study's order, then the rest."""
    ranks = {name: rank for rank, name in enumerate(evidence.study.rows)}

    def order(model):
        return ranks.get(model, len(ranks)), '+' in model, model
    rows = []
    for model in sorted({model for model, _ in evidence.runs}, key=order):
        row, _ = evidence.row_of(model)
        tokens = ''
        seen = evidence.last(model, 'tokens')
        if seen:
            tokens = f'{max(seen) / 1e6:.1f}'
            if row.begins == 'weights_from':
                tokens = f'+{tokens}'       # more than the row that it continues
        loss = ''
        if evidence.last(model, 'val_mlm_loss'):
            mean, low, high = evidence.over_seeds(model, MLM_LOSS)
            loss = f'{mean:.2f}'
            if low < high:
                loss += f' [{low:.2f}, {high:.2f}]'
        scores = []
        for dataset in evidence.datasets:
            try:
                score = shown(evidence.cell(model, dataset), 'standard')
                scores.append(score + evidence.mark([(model, None)], dataset))
            except Missing:
                scores.append('')
        rows.append([model, tokens, loss, *scores])
    heads = [f'{name}, {evidence.about[name].metric}' for name in evidence.datasets]
    return markdown(['row', 'M tokens', MLM_LOSS, *heads], rows)


def judge_all(evidence):
    """Return [Judged] of a study's contrasts, and their p with Holm's correction, a DataFrame of (claims,
    views). What is not there yet is left out, and becomes a problem; it counts in the correction all the
    same."""
    judged = []
    contrasts = evidence.study.comparisons
    for contrast in contrasts:
        try:
            judged.append(judge(evidence, contrast))
        except Missing as error:
            evidence.problems.append(f'{contrast.name} is not judged: there is no {error}')
    import pandas
    p = pandas.DataFrame([dict.fromkeys(one.seen, 1.0) | one.p for one in judged])
    return judged, p.fillna(1.0).apply(holm, count=len(contrasts))


def verdicts(evidence):
    """Return the section of the claims, judged, and of how their verdicts move."""
    judged, holms_p = judge_all(evidence)
    claims = read_json(CLAIMS)
    rows = []
    moves = []
    for k, claim in enumerate(judged):
        verdict_in = {
            view: verdict_in_words(claim, view, holms_p.at[k, view], evidence, claims)
            for view in claim.seen}
        cells = verdict_row(claim, evidence, claims, holms_p.at[k, 'both'])
        rows.append([*cells, f'**{verdict_in["both"]}**'])
        moves.append(moves_row(claim, verdict_in))
    heads = ['claim', 'contrast', 'points', 'over seeds alone', 'seeds above 0', 'the paper', 'p', 'Holm',
             'verdict']
    return VERDICTS.format(
        least=NUMBERS[evidence.least_seeds],
        since_3=SINCE_3 if evidence.study.rules > 2 else '',
        verdicts=markdown(heads, rows),
        moves=markdown(['claim', 'each seed left out', 'test split', 'validation split'], moves),
        tasks=tasks_section(evidence, judged),
        lengths=lengths_section(evidence))


def page(evidence, title):
    study = evidence.study
    instances = []
    for name in evidence.datasets:
        run = evidence.about[name]
        instances.append(f'{name} {run.n:,} (data {run.about.get("data", "")[:8]})')
    return f'''# {title}

Pretraining seeds: {str(sorted(evidence.seeds))[1:-1]}, each fine-tuned with {study.finetuning_seeds} seeds.
Test instances, of both held-out splits: {", ".join(instances)}.
{verdicts(evidence)}
## All rows

{all_rows_table(evidence)}
'''


# ---------------------------------------------------------------------------
# The figure


def ladder_panels(evidence):
    """Return the figures.Panels of the ladder: the MLM loss and each dataset that all its rows have."""
    arms = evidence.study.ladder
    models = sum(arms.values(), ())
    if len(models) == len(arms) or not all(evidence.last(model, 'tokens') for model in models):
        return []
    panels = []
    for name in (MLM_LOSS, *(evidence.study.shown or evidence.datasets)):
        try:
            panels.append(ladder_panel(evidence, name))
        except Missing:
            continue
    return panels


def ladder_panel(evidence, name):
    """Return the panel of a dataset's scores, or of the MLM loss. Floors are the untrained model and simple
    methods; of the loss they are arms that have seen no mask, whose length says nothing."""
    lines = {}
    floors = {}
    for arm, models in evidence.study.ladder.items():
        line = []
        for model in models:
            tokens = max(evidence.last(model, 'tokens'))
            line.append((tokens / 1e6, *evidence.over_seeds(model, name)))
        row, step = evidence.row_of(models[-1])
        arm = figures.split_arm(arm)
        if name == MLM_LOSS and OBJECTIVES[row.phases[step - 1]].causal:
            floors[arm] = line[-1][1]
        else:
            lines[arm] = line
    if name == MLM_LOSS:
        return figures.Panel(name, 'held-out MLM loss, nats', lines, floors)

    for (model, dataset), runs in sorted(evidence.runs.items()):
        if dataset == name and (model == 'untrained' or runs[0].method == 'baseline'):
            floors[model, ''] = 100 * evidence.cell(model, name).mean
    return figures.Panel(name, f'{evidence.about[name].metric}, %', lines, floors)


def write_report(evidence):
    """Write a study's report.md and ladder.png and print their paths. Returns 1 if something is missing of
    it, of which it warns, else 0."""
    study = evidence.study
    title = f'{study.folder.name}: {study.title}'.removesuffix(': ')
    lines = []
    if study.choose:
        text, lines = choices.page(evidence, title)
    else:
        text = page(evidence, title)
    panels = ladder_panels(evidence)
    if panels:
        print(save_figure(figures.ladder(panels), study.folder / 'ladder.png'))
    with whole(study.folder / 'report.md') as temporary:
        temporary.write_text(text, encoding='utf-8')
    print(*lines, study.folder / 'report.md', sep='\n')
    return evaluate.warn(evidence.problems)


def main():
    study, _ = load(sys.argv[1:])
    sys.exit(write_report(Evidence(study)))


if __name__ == '__main__':
    run_main(main)

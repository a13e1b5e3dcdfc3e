"""A study's contrasts judged as claims, on one page; and the paper's own numbers by the same rules."""
import contextlib
import itertools
import math
import statistics
from pathlib import Path

from nanoencoder.judging import figures, paper
from nanoencoder.durable import whole_file
from nanoencoder.judging.evidence import (MARGIN, MLM_LOSS, MOST, Evidence, Missing, bounds, holm, judge,
                                          over_seeds, roots, verdict)
from nanoencoder.judging.protocols import lr_text

PLATEAU = 6.3       # nats of MLM loss, at which small models stay for a while; token frequencies have 6.8


def markdown(heading, rows):
    """A table: its heading's words with | between them, and rows of texts."""
    lines = [heading, '|'.join('---' for _ in heading.split('|')), *map(' | '.join, rows)]
    return '\n'.join(f'| {line} |' for line in lines)


def points(mean, low, high, sign='+'):
    """Fractions of 1 in percent."""
    if math.isnan(low):
        return f'{100 * mean:{sign}.1f}'
    return f'{100 * mean:{sign}.1f} [{100 * low:{sign}.1f}, {100 * high:{sign}.1f}]'


# ---------------------------------------------------------------------------------------- the paper's numbers

def proxy(kind):
    """What stands in for the spread between pretrainings, in points: the paper has one of each model.

    Were scores smooth in the masking ratio, this cubic contrast of four ratios would be noise alone. Its mean
    square over three sizes has 3 degrees of freedom.
    """
    cubic = {20: -1, 30: 3, 40: -3, 50: 1}
    values = [published_mean({f'{size}-mlm{ratio}-42k': weight for ratio, weight in cubic.items()}, kind)
              for size in paper.SIZES]
    return math.sqrt(statistics.fmean(value ** 2 / 20 for value in values))


def published_mean(weights, kind):
    """A contrast of the paper's models, in points."""
    return sum(weight * paper.numbers()[model, kind, 'Average'][0] for model, weight in weights.items())


def judge_published(name, kind):
    """(mean, half of the interval, p, verdict, what would decide) of a claim's contrast on a kind of task."""
    from scipy.stats import t
    claim, freedom = paper.CLAIMS[name], len(paper.SIZES)
    sign = -1 if kind in claim.opposite else 1
    weights = {model: sign * weight for model, weight in claim.published[kind].items()}
    error = proxy(kind) * math.sqrt(sum(weight ** 2 for weight in weights.values()))
    mean, half = published_mean(weights, kind), float(error * t.ppf(0.975, freedom))
    gain = published_mean({'610m-mlm40-42k': 1, '610m-mlm40-42k-1000': -1}, kind)   # none is untrained
    distance = min(abs(mean - bound) for bound in bounds(claim.rule, MARGIN * gain))
    word = verdict(claim.rule, mean - half, mean + half, MARGIN * gain)
    seeds = math.ceil((half / distance) ** 2)
    decides = f'about {seeds} seeds' if seeds <= MOST else f'over {MOST} seeds'
    p = float(2 * t.sf(distance / error, freedom))
    return mean, half, p, word, decides if word == 'cannot tell' else ''


def published():
    """The page of the paper's own numbers."""
    rows = []
    for name, claim in paper.CLAIMS.items():
        for k, kind in enumerate(claim.published):
            mean, half, p, word, decides = judge_published(name, kind)
            interval = f'{mean:+.2f} [{mean - half:+.2f}, {mean + half:+.2f}]'
            rows.append([f'{claim.words} ({claim.where})' if k == 0 else '', kind,
                         claim.rule.replace('_', ' '), interval, f'{p:.3f}', word, decides])
        if not claim.published:
            rows.append([f'{claim.words} ({claim.where})', '', '', '', '', 'no numbers published', ''])
    spreads = ', '.join(f'{kind} {proxy(kind):.2g}' for kind in ('SC', 'TC', 'QA', 'IR'))
    return f'''# The paper's numbers, judged

The paper pretrained each model once, and its intervals are over fine-tuning seeds: they do not say what
another pretraining would have given. A proxy stands in for that spread here: the cubic contrast of MLM's four
masking ratios, (-y20 + 3 y30 - 3 y40 + y50) / sqrt(20), over three sizes. It is noise alone if scores are
smooth in the ratio. In points: {spreads}. A contrast of weights w has the standard error
proxy x sqrt(sum w^2), and Student's t has 3 degrees of freedom. The margin of "level" is a tenth of what MLM
gains after its first 1,000 steps, since no published model is untrained. Seeds are pretrainings of each
model.

{markdown("claim | task | rule | points | p | verdict | what would decide", rows)}
'''


# ------------------------------------------------------------------------------------------------------- page

def in_words(line, margin):
    """A contrast, and what it is asked."""
    terms = [(f'{weight:+g} ' if abs(weight) != 1 else '+ ' if weight > 0 else '- ') + model
             + (f' at {lr_text(lr)}' if lr else '') for weight, model, lr in line.weights]
    rule = line.rule.replace('_', ' ') + (f' within {100 * margin:.1f}' if margin else '')
    return f'{" ".join(terms).removeprefix("+ ")}; {", ".join(line.datasets)}; {rule}'


def verdict_table(judged, evidence):
    values = [1.0 if each.p is None else each.p for each in judged]     # what is not there yet has 1
    adjusted = holm(values + [1.0] * (len(evidence.study.comparisons) - len(judged)))
    rows = []
    for each, among_all in zip(judged, adjusted):
        line, whole, claim = each.line, each.whole, paper.CLAIMS.get(each.line.name)
        kinds = dict.fromkeys(evidence.about[dataset].task for dataset in line.datasets)
        theirs = [f'{kind} {published_mean(claim.published[kind], kind):+.1f}' for kind in kinds
                  if claim and kind in claim.published]
        alone = (f'[{100 * whole.seeds_low:+.1f}, {100 * whole.seeds_high:+.1f}]'
                 if whole.unit == 'pretraining' else 'one model')
        p = ['', ''] if each.p is None else [f'{each.p:.4f}', f'{among_all:.4f}']
        words = claim.words if claim else f'{line.name} (not a claim of the paper)'
        rows.append([words, in_words(line, each.margin), points(*whole[:3]), alone,
                     f'{sum(value > 0 for value in whole.units.values())}/{len(whole.units)}',
                     ', '.join(theirs) or 'no number', *p, f'**{each.verdict()}**', each.decides()])
    return markdown('claim | contrast | points | over seeds alone | seeds above 0 | the paper | p | Holm | '
                    'verdict | what would decide', rows)


def view_table(judged):
    """How each verdict moves."""
    rows = []
    for each in judged:
        words = [each.verdict(other) for other in each.without]
        means = [100 * other.mean for other in each.without]
        left = (f'{min(means):+.1f} to {max(means):+.1f}: ' if means else '') + ', '.join(
            f'{words.count(word)} {word}' for word in dict.fromkeys(words))
        others = [each.views.get(name) for name in ('flops', 'test', 'validation')]
        rows.append([each.line.name, left, *(f'{points(*other[:3])} {each.verdict(other)}' if other else ''
                                             for other in others)])
    return markdown('claim | each seed left out | at equal FLOPs | test split | validation split', rows)


def ladder_table(evidence):
    """A row a model: losses, and scores with their intervals."""
    rungs, rows = set(itertools.chain(*evidence.study.arms.values())), []
    for model in evidence.models:
        tokens, loss = max(evidence.last(model, 'tokens').values(), default=0), ''
        if losses := evidence.last(model, 'val_mlm_loss').values():
            mean, low, high = over_seeds([*losses])
            loss = f'{mean:.2f}' + ('' if math.isnan(low) else f' [{low:.2f}, {high:.2f}]')
        known = evidence.study.rows.get(model.partition('+')[0])
        more = '+' if known and known.begins == 'weights_from' else ''     # than the row it continues
        row = [model, f'{more}{tokens / 1e6:.1f}' if tokens else '', loss]
        row += [generalisation(model, evidence), plateau(model, evidence)] if model in rungs else ['', '']
        for dataset in evidence.datasets:
            try:
                row.append(points(*evidence.contrast({(model, None): 1}, [dataset])[:3], sign=''))
            except Missing:
                row.append('')
        rows.append(row)
    heads = [f'{name}, {evidence.about[name].metric}' for name in evidence.datasets]
    return markdown(' | '.join(['row', 'M tokens', MLM_LOSS, 'held-out less training loss',
                                f'step below {PLATEAU}', *heads]), rows)


def generalisation(row, evidence):
    """Held-out less training loss of the objective that a row ends with."""
    held_out = evidence.last(row, f'val_{evidence.objective(row)}_loss')
    training = evidence.last(row, 'train_loss')
    gaps = [held_out[seed] - training[seed] for seed in held_out.keys() & training.keys()]
    return f'{statistics.fmean(gaps):+.2f}' if gaps else ''


def plateau(row, evidence):
    """From the first to the last seed's step at which MLM loss falls below PLATEAU, if it began above."""
    steps, never = [], 0
    for lines in evidence.validations(row).values():
        known = [(line['step'], line['val_mlm_loss'] - PLATEAU) for line in lines if 'val_mlm_loss' in line]
        if not known or known[0][1] <= 0:       # another corpus' plateau may lie lower
            return ''
        below = roots(*zip(*known))
        steps, never = steps + below[:1], never + (not below)
    words = [f'{step:,.0f}' for step in sorted({*map(round, (min(steps), max(steps)))})] if steps else []
    return ' to '.join(words) + (f'{", " if words else ""}never in {never}' if never else '')


def crossing_words(found, first, second):
    tokens, ahead = '{:.1f} M'.format, {1: first, -1: second}
    low, middle, high = (x and 2 ** x / 1e6 for x in (found.low, found.middle, found.high))
    words = [f'{ahead[found.before]} until {tokens(low)}'] if low else []
    words += [f'{ahead[found.after]} from {tokens(high)} on'] if high else []
    if not words:
        return f'{ahead[found.before]} throughout' if found.before else 'cannot tell'
    return ', '.join(words) + (f' (about {tokens(middle)})' if middle else '')


def crossings(evidence):
    """{(arm, another): {MLM loss or dataset: Crossing}} of those that are there."""
    every, pairs = {}, itertools.combinations(evidence.study.arms, 2)
    for pair, name in itertools.product(pairs, (MLM_LOSS, *evidence.datasets)):
        if name != MLM_LOSS or all(map(evidence.masked, pair)):
            with contextlib.suppress(Missing):
                every.setdefault(pair, {})[name] = evidence.crossing(*pair, name)
    return every


def crossing_table(every, evidence):
    names = [name for name in (MLM_LOSS, *evidence.datasets) if name in set().union(*every.values())]
    return markdown(' | '.join(['arms', *names]), [
        [' and '.join(pair), *(crossing_words(own[name], *pair) if name in own else '' for name in names)]
        for pair, own in every.items()])


def untested(judged, evidence):
    """A line each for what of the paper's claims is not judged, or on some kinds of task alone."""
    tested = {each.line.name: {evidence.about[dataset].task for dataset in each.line.datasets}
              for each in judged}
    asked, lines = {line.name for line in evidence.study.comparisons}, []
    for name, claim in paper.CLAIMS.items():
        if name not in asked:
            why = f'Not tested here: {claim.untested or "no contrast of this study asks it"}.'
        elif name not in tested:
            why = 'Not judged yet: runs are missing.'
        elif left := [kind for kind in claim.published if kind not in tested[name]]:
            why = f'Not tested here: {", ".join(left)}.'
        else:
            continue
        lines.append(f'- {claim.words} {why}')
    return '\n'.join(lines)


def page(evidence):
    """(Markdown, {pair: {name: Crossing}}). What is not there yet is left out, and a problem."""
    judged, study = [], evidence.study
    for line in study.comparisons:
        try:
            judged.append(judge(line, evidence))
        except Missing as error:
            evidence.problems.append(f'{line.name} is not judged: there is no {error}')
    every, seeds = crossings(evidence), ', '.join(map(str, sorted(evidence.seeds)))
    instances = ', '.join(f'{name} {evidence.about[name].n:,} (data {evidence.about[name].data[:8]})'
                          for name in evidence.datasets)
    sections = [f'''# {Path(study.folder).name}: the paper's claims, judged at this size

Pretraining seeds: {seeds}, each fine-tuned with {study.finetuning_seeds} seeds.
Test instances, of both held-out splits: {instances}.
Points are percent, with 95 % intervals over pretraining seeds and test instances; "over seeds alone" keeps
these test sets. A claim agrees where the interval lies in its rule's region, disagrees where it lies outside:
above 0 for "better", above minus the margin for "at least", within it for "no difference". The margin is a
tenth of what MLM gains over no pretraining. p is two-sided, against the region's bound; Holm's counts all
claims tested.

## Verdicts

{verdict_table(judged, evidence)}

{untested(judged, evidence)}

## How the verdicts move

{view_table(judged)}''']
    if every:
        sections.append(f'''## Where leads end

In tokens, interpolated between rows. Between "until" and "from" the 95 % interval holds 0.

{crossing_table(every, evidence)}''')
    sections.append(f'''## All rows

{ladder_table(evidence)}''')
    return '\n\n'.join(sections) + '\n', every


# ---------------------------------------------------------------------------------------------------- figures

def ladder_panels(evidence, every):
    """What figures.ladder draws; a panel is left out where a row is missing. Shaded: the first two arms."""
    arms, panels = evidence.study.arms, []
    several = max(map(len, arms.values()), default=0) > 1
    for name in (MLM_LOSS, *evidence.datasets) if several else ():
        with contextlib.suppress(Missing):
            tokens = evidence.budget('tokens', itertools.chain(*arms.values()))
            scale = 1 if name == MLM_LOSS else 100      # scores in percent
            lines = {arm: [(tokens[row], *(scale * x for x in evidence.quantity({row: 1}, name, False)))
                           for row in rows] for arm, rows in arms.items()}
            ends = {arm: lines.pop(arm)[-1][1] for arm in arms
                    if name == MLM_LOSS and not evidence.masked(arm)}
            floors = {model: 100 * evidence.cell(model, name).mean for model in evidence.models
                      if (model, name) in evidence.runs and (model == 'untrained' or evidence.runs[
                          model, name][0].kind == 'baseline')}
            pair, shaded = tuple(arms)[:2], None
            found = every.get(pair, {}).get(name)
            if found and (found.low or found.high):     # a lead ends; around it the two may be equal
                shaded = (2 ** found.low if found.low else min(tokens.values()),
                          2 ** found.high if found.high else max(tokens.values()), ' ≈ '.join(pair))
            title = f'{name}: {evidence.about[name].metric}, %' if name in evidence.about else MLM_LOSS
            panels.append((title, lines, ends | floors, shaded))
    return panels


def share_points(evidence):
    """What figures.against draws of the length at which there are most rows."""
    about = {model: runs[0].pretraining for (model, _), runs in evidence.runs.items() if runs[0].pretraining}
    whole = [model for model in evidence.study.rows if model in about and not about[model].get('continues')]
    lengths = [about[model]['step'] for model in whole]
    steps = max(lengths, key=lambda steps: (lengths.count(steps), steps), default=None)
    shown = []
    for dataset, model in itertools.product(evidence.datasets, whole):
        if about[model]['step'] == steps:
            with contextlib.suppress(Missing):
                score = evidence.quantity({model: 1}, dataset)
                shown.append((model, about[model], dataset, *(100 * x for x in score)))
    return shown


def write(study, runs, cfg, problems):
    """A study's report.md and figures; [their paths]."""
    evidence, folder = Evidence(study, runs, cfg, problems), Path(study.folder)
    text, every = page(evidence)
    paths = [folder / 'report.md']
    with whole_file(paths[0]) as file:
        file.write(text.encode())
    drawn = {}
    if panels := ladder_panels(evidence, every):
        drawn['ladder'] = figures.ladder(panels)
    if shares := share_points(evidence):
        drawn['share'] = figures.against('share', shares)
    for name, figure in drawn.items():
        paths.append(folder / f'{name}.png')
        figure.savefig(paths[-1], dpi=150, bbox_inches='tight')
    return paths

"""Counted embeddings: studies/counts."""
import csv
from statistics import fmean

from evaluate import seeds_half
from studies.page_numbers import (
    ROOT,
    ahead,
    cells_of,
    difference,
    how_verdicts_move,
    judged,
    last,
    points,
    scores,
    share,
    steps_of_all,
    table,
    table_of,
    with_verdict,
)

TASKS = {'docs_tc': 'code words', 'docs_ir': 'retrieval', 'wn_sc': 'definitions'}
OPTIMIZERS = {'': 'AdamW', 'muon-': 'Muon, ratio 6.7'}
AFTER = {1_800: '1.8 M tokens', 7_200: '7.4 M tokens'}
COUNTED = '**counts, then MLM**'
ARMS = {'MLM': 'mlm', 'CLM then MLM': 'clm25-mlm', COUNTED: 'counts-mlm'}    # {words: of a row's name}
WITH_CLM = {'CLM': 'clm', **ARMS}       # of 1,800 steps; CLM alone was not trained for 7,200


def rows_of_scores(arms, steps):
    """Return a line for each arm under each optimizer: held-out MLM loss, scores, and their mean.

    arms  {its words: its name}. CLM alone never sees a mask, so that its loss on masks says nothing."""
    rows = []
    for prefix, optimizer in OPTIMIZERS.items():
        for words, arm in arms.items():
            model = f'counts/{prefix}{arm}-{steps}'
            loss = '-'
            if not arm.endswith('clm'):
                loss = f'{last(model, "val_mlm_loss").mean():.2f}'
            cells = [scores(model, dataset).mean() for dataset in TASKS]
            cells.append(scores(model, *TASKS).mean())
            rows.append([optimizer, words, loss, *(f'{score:.1f}' for score in cells)])
    return rows


def table_of_scores(arms, steps, *more):
    heads = ['optimizer', f'after {AFTER[steps]}', 'held-out MLM loss', *TASKS.values(), 'mean of tasks']
    return table(heads, [*rows_of_scores(arms, steps), *more])


@table_of
def counts_scores():
    return table_of_scores(WITH_CLM, 1_800)


@table_of
def counts_scores_later():
    return table_of_scores(ARMS, 7_200)


@table_of
def counts_all_scores():
    cells = [scores('counts/untrained', dataset).mean() for dataset in TASKS]
    cells.append(scores('counts/untrained', *TASKS).mean())
    return table_of_scores({
        'CLM': 'clm',
        'MLM': 'mlm',
        'CLM then MLM': 'clm25-mlm',
        'counts, then CLM': 'counts-clm',
        'counts, then MLM': 'counts-mlm',
        'counts, then CLM, then MLM': 'counts-clm25-mlm',
    }, 1_800, ['-', 'untrained', '-', *(f'{score:.1f}' for score in cells)])


def table_of_contrasts(head, names):
    """Return a line for each contrast: its points on each task, and in the mean, with a verdict.

    names  {contrast of studies/counts: its words}"""
    rows = []
    for name, words in names.items():
        cell = judged('counts', name)
        rows.append([words, *(cell(dataset) for dataset in TASKS), cell(*TASKS)])
    return table([head, *TASKS.values(), 'mean of tasks'], rows)


def at_both_lengths(part):
    """Return {contrast: its words}, under each optimizer and after each length."""
    return {f'{part}, {optimizer}, {steps:,}': f'{optimizer}, after {tokens}'
            for steps, tokens in AFTER.items() for optimizer in ('AdamW', 'Muon')}


@table_of
def counts_instead_of_clm():
    return table_of_contrasts('counts, then MLM minus CLM then MLM', at_both_lengths('counts or CLM'))


@table_of
def counts_gain():
    return table_of_contrasts('counts, then MLM minus MLM', at_both_lengths('counts'))


@table_of
def counts_clm_after():
    return table_of_contrasts('counts, then CLM, then MLM minus counts, then MLM', {
        'CLM after counts, AdamW, 1,800': 'AdamW, after 1.8 M tokens',
        'CLM after counts, Muon, 1,800': 'Muon, after 1.8 M tokens'})


@table_of
def counts_or_clm_alone():
    """A description: no contrast was written down for it."""
    rows = []
    for prefix, optimizer in OPTIMIZERS.items():
        cell = difference(f'counts/{prefix}counts-mlm-1800', f'counts/{prefix}clm-1800')
        rows.append([optimizer, *(cell(dataset) for dataset in TASKS), cell(*TASKS)])
    return table(['counts, then MLM minus CLM alone, over seeds', *TASKS.values(), 'mean of tasks'], rows)


@table_of
def counts_losses():
    pairs = {
        'counts, then MLM minus MLM': ('counts-mlm', 'mlm', AFTER),
        'counts, then MLM minus CLM then MLM': ('counts-mlm', 'clm25-mlm', AFTER),
        'counts, then CLM, then MLM minus counts, then MLM': ('counts-clm25-mlm', 'counts-mlm', (1_800,)),
    }
    rows = []
    for words, (first, second, lengths) in pairs.items():
        for steps in lengths:
            losses = [[last(f'counts/{prefix}{arm}-{steps}', 'val_mlm_loss') for arm in (first, second)]
                      for prefix in OPTIMIZERS]
            rows.append([f'{words}, after {AFTER[steps]}', *(points(one - two, 2) for one, two in losses)])
    return table(['held-out MLM loss, nats, over seeds', *OPTIMIZERS.values()], rows)


@table_of
def counts_shares():
    """A description: no contrast was written down for it. Shares have Fieller's interval."""
    rows = []
    tasks = {words: [dataset] for dataset, words in TASKS.items()} | {'mean of tasks': [*TASKS]}
    for prefix, optimizer in OPTIMIZERS.items():
        mlm, both, counted = [f'counts/{prefix}{arm}-1800' for arm in ARMS.values()]
        for words, datasets in tasks.items():
            lead = ahead(both, mlm, *datasets)
            gain = ahead(counted, mlm, *datasets)
            part = 'no lead is shown'
            if seeds_half([lead.tolist()]) < lead.mean():
                bounds = share(gain, lead)
                part = '{:.0f} % [{:.0f}, {:.0f}]'.format(*(100 * bound for bound in bounds))
            rows.append([optimizer, words, points(lead), part])
    return table(['optimizer', 'after 1.8 M tokens', 'CLM then MLM minus MLM, over seeds',
                  'what counts, then MLM gains over MLM, as a share of it'], rows)


@table_of
def counts_waits():
    arms = {
        'MLM': ('mlm', 0),
        '450 steps of CLM, then MLM': ('clm25-mlm', 450),
        'counts, then MLM': ('counts-mlm', 0),
        'counts, then 450 steps of CLM, then MLM': ('counts-clm25-mlm', 450),
    }
    rows = []
    for words, (arm, clm_steps) in arms.items():
        rows.append([words, *(steps_of_all('counts', f'{prefix}{arm}-1800', clm_steps)
                              for prefix in OPTIMIZERS)])
    return table(['MLM leaves its plateau after so many steps of MLM', *OPTIMIZERS.values()], rows)


@table_of
def counts_how_verdicts_move():
    names = {}
    for part, words in (('counts or CLM', 'counts, then MLM minus CLM then MLM'),
                        ('counts', 'counts, then MLM minus MLM')):
        names |= {name: f'{words}, {when}' for name, when in at_both_lengths(part).items()}
    for optimizer in ('AdamW', 'Muon'):
        names[f'CLM after counts, {optimizer}, 1,800'] = (
            f'counts, then CLM, then MLM minus counts, then MLM, {optimizer}, after 1.8 M tokens')
        names[f'MaxSim, {optimizer}'] = f'MaxSim: CLM then MLM minus MLM, {optimizer}'
    return how_verdicts_move('counts', names)


@table_of
def counts_controls():
    """The held-out MLM loss at some steps, of both seeds."""
    shown = 300, 600, 1_800
    with open(ROOT / 'studies/counts/controls.csv', encoding='utf-8') as file:
        lines = list(csv.DictReader(file))
    rows = {}       # {embeddings: {step: [loss of each seed]}}
    for line in lines:
        by_step = rows.setdefault(line['embeddings'], {})
        by_step.setdefault(int(line['step']), []).append(float(line['held-out MLM loss']))
    table_rows = [[words, *(', '.join(f'{loss:.2f}' for loss in by_step[step]) for step in shown)]
                  for words, by_step in rows.items()]
    heads = [f'step {step:,}' for step in shown]
    return table(['first embeddings, MLM under AdamW, two seeds', *heads], table_rows)


@table_of
def counts_alone():
    """Of studies/counts_alone, whose encoders are not pretrained."""
    rows = []
    for words, row in (('random', 'random-alone'), ('counted', 'counts-alone')):
        cells = [scores(f'counts_alone/{row}', dataset).mean() for dataset in TASKS]
        rows.append([words, *(f'{score:.1f}' for score in cells)])
    return table(['first embeddings; no pretraining, then fine-tuned', *TASKS.values()], rows)


# ---------------------------------------------------------------------------
# Late interaction, and the token that a state stands on


@table_of
def counts_late():
    """The table that studies/counts/late.py writes: CLM then MLM minus MLM."""
    names = {'optimizer': 'CLM then MLM minus MLM', 'step': 'step', 'identity': 'identity',
             'docs_ir, maxsim': 'retrieval, MaxSim', 'docs_ir, mean': 'retrieval, cosine of means',
             'wn_ir, maxsim': '`wn_ir`, MaxSim'}
    text = (ROOT / 'studies/counts/late.md').read_text(encoding='utf-8')
    heads, *rows = cells_of(text)
    return table([names[head] for head in heads], rows)


def table_by_step(head, column):
    """Return a line for each arm: the means over seeds of a column of late.csv, in percent, by step."""
    with open(ROOT / 'studies/counts/late.csv', encoding='utf-8') as file:
        values = {}     # {(row, step): [value of each seed]}
        for line in csv.DictReader(file):
            values.setdefault((line['row'], int(line['step'])), []).append(float(line[column]))
    steps = 300, 600, 1_800, 7_200
    rows = []
    for prefix, optimizer in OPTIMIZERS.items():
        for words, arm in ARMS.items():
            cells = []
            for step in steps:
                if (arm, step) == ('clm25-mlm', 300):   # still CLM
                    cells.append('-')
                else:
                    cells.append(f'{fmean(values[f"{prefix}{arm}-{max(step, 1_800)}", step]):.1f}')
            rows.append([optimizer, words, *cells])
    rows.append(['-', f'random weights, step 0: {values["untrained", 0][0]:.1f}', *['-'] * len(steps)])
    return table(['optimizer', head, *(f'step {step:,}' for step in steps)], rows)


@table_of
def counts_identity():
    return table_by_step('identity, %', 'identity')


@table_of
def counts_frozen():
    return table_by_step('retrieval by MaxSim, not fine-tuned', 'docs_ir, maxsim')


@table_of
def counts_maxsim():
    """Retrieval, fine-tuned by the cosine of means and by MaxSim."""
    rows = []
    for prefix, optimizer in OPTIMIZERS.items():
        for words, arm in ARMS.items():
            model = f'counts/{prefix}{arm}-1800'
            means, late = [scores(f'{model}{ending}', 'docs_ir') for ending in ('', '+maxsim')]
            rows.append([optimizer, words, f'{means.mean():.1f}', f'{late.mean():.1f}', points(late - means)])
    return table(['optimizer', 'after 1.8 M tokens', 'cosine of means', 'MaxSim',
                  'MaxSim minus cosine, over seeds'], rows)


@table_of
def counts_maxsim_leads():
    rows = []
    for prefix, optimizer in (('', 'AdamW'), ('muon-', 'Muon')):
        both, counted = [f'counts/{prefix}{arm}-1800+maxsim' for arm in ('clm25-mlm', 'counts-mlm')]
        rows.append([f'{optimizer}, after 1.8 M tokens', with_verdict('counts', f'MaxSim, {optimizer}'),
                     points(ahead(counted, both, 'docs_ir'))])
    return table(['retrieval by MaxSim, fine-tuned', 'CLM then MLM minus MLM',
                  'counts, then MLM minus CLM then MLM, over seeds'], rows)

"""Novels, AdamW and Muon: studies/optimiser, optimiser_tuning and optimiser_embedded."""
import statistics

import numpy as np

from evaluate import grouped
from studies.page_numbers import (
    ahead,
    correlation,
    difference,
    evidence_of,
    first_below,
    how_verdicts_move,
    judged,
    last,
    points,
    rows_of_report,
    scores,
    steps_of_all,
    table,
    table_of,
    waits,
    with_verdict,
)
from studies.tables.novels import LOW, OTHERS, TASKS, USUAL, WITHOUT, by_task, rates_of, share_in_words
from studies.tables.small import LENGTHS, SMALL_TASKS


def optimiser_lead(optimizer, *datasets, steps=1_800):
    """Return the lead of CLM then MLM over MLM, of each seed. AdamW is '', Muon 'muon-'."""
    return ahead(f'optimiser/{optimizer}clm25-mlm-{steps}', f'optimiser/{optimizer}mlm-{steps}', *datasets)


@table_of
def optimiser_leads():
    def gone(*datasets):
        adamw = optimiser_lead('', *datasets)
        return share_in_words(adamw - optimiser_lead('muon-', *datasets), adamw)
    return by_task('the lead on', {
        'AdamW': difference('optimiser/clm25-mlm-1800', 'optimiser/mlm-1800'),
        USUAL: difference('optimiser/muon-clm25-mlm-1800', 'optimiser/muon-mlm-1800'),
        "AdamW's minus Muon's": judged('optimiser', 'interaction'),
        "share of AdamW's that is gone": gone,
    })


@table_of
def optimiser_rates():
    return rates_of('optimiser', {
        'AdamW: CLM': 'clm-14400',
        'AdamW: MLM': 'mlm-14400',
        'AdamW: CLM then MLM': 'clm25-mlm-14400',
        f'{USUAL}: CLM': 'muon-clm-14400',
        f'{USUAL}: MLM': 'muon-mlm-14400',
        f'{USUAL}: CLM then MLM': 'muon-clm25-mlm-14400',
    })


@table_of
def optimiser_leads_later():
    rows = []
    for steps in (3_600, 14_400):
        cells = []
        for datasets in (TASKS, OTHERS):
            adamw, muon = [optimiser_lead(name, *datasets, steps=steps) for name in ('', 'muon-')]
            cells.append(points(adamw - muon))
        rows.append([f'after {LENGTHS[steps]}', *cells])
    return table(["AdamW's lead minus Muon's", 'mean', WITHOUT], rows)


@table_of
def optimiser_clm_early():
    return by_task('CLM minus MLM', {
        'AdamW': difference('optimiser/clm-1800', 'optimiser/mlm-1800'),
        USUAL: difference('optimiser/muon-clm-1800', 'optimiser/muon-mlm-1800'),
    })


@table_of
def optimiser_ends():
    return by_task('MLM minus CLM', {
        'AdamW': judged('optimiser', 'end under AdamW'),
        USUAL: judged('optimiser', 'end under Muon'),
    })


@table_of
def optimiser_both():
    return by_task('CLM then MLM minus MLM', {
        'AdamW': judged('optimiser', 'both under AdamW'),
        USUAL: judged('optimiser', 'both under Muon'),
    })


@table_of
def optimiser_mlm_after_clm():
    return by_task('CLM then MLM minus CLM', {
        'AdamW': judged('optimiser', 'MLM after CLM under AdamW'),
        USUAL: judged('optimiser', 'MLM after CLM under Muon'),
    })


@table_of
def optimiser_how_verdicts_move():
    return how_verdicts_move('optimiser', {
        'interaction': "after 1.8 M tokens: AdamW's lead minus Muon's",
        'end under AdamW': 'after 14.7 M: MLM minus CLM, AdamW',
        'end under Muon': 'MLM minus CLM, Muon',
        'end under Muon, ewt_pos': 'MLM minus CLM, Muon, `ewt_pos`',
        'end under Muon, wn_sc': 'MLM minus CLM, Muon, `wn_sc`',
        'both under AdamW': 'CLM then MLM minus MLM, AdamW',
        'both under Muon': 'CLM then MLM minus MLM, Muon',
    })


@table_of
def optimiser_losses_and_scores():
    """In the end MLM under AdamW has the lowest loss and not the best scores."""
    rows = []
    for words, row in (('AdamW', 'mlm-14400'), (USUAL, 'muon-mlm-14400')):
        loss = last(f'optimiser/{row}', 'val_mlm_loss').mean()
        means = [f'{scores(f"optimiser/{row}", *datasets).mean():.1f}' for datasets in (TASKS, OTHERS)]
        rows.append([words, f'{loss:.2f}', *means])
    return table(['MLM after 14.7 M tokens', 'held-out loss', 'mean score', WITHOUT], rows)


@table_of
def optimiser_simple_methods():
    names = {'untrained': 'untrained', 'word-lookup': 'word lookup', 'naive-bayes': 'naive Bayes',
             'BM25': 'BM25'}
    return table(['simple methods', *(f'`{name}`' for name in TASKS)],
                 rows_of_report('optimiser', names, TASKS))


@table_of
def optimiser_plateaus():
    names = {
        'AdamW: MLM': 'mlm-14400',
        'AdamW: 450 steps of CLM, then MLM': 'clm25-mlm-1800',
        'AdamW: 900 of CLM, then MLM': 'clm25-mlm-3600',
        'AdamW: 3,600 of CLM, then MLM': 'clm25-mlm-14400',
        'Muon: MLM': 'muon-mlm-14400',
        'Muon: 450 of CLM, then MLM': 'muon-clm25-mlm-1800',
        'Muon: 900 of CLM, then MLM': 'muon-clm25-mlm-3600',
        'Muon: 3,600 of CLM, then MLM': 'muon-clm25-mlm-14400',
    }
    rows = [[words, waits(f'optimiser/{row}')] for words, row in names.items()]
    return table(['MLM has left the plateau at step', 'seeds 0 to 5'], rows)


@table_of
def optimiser_waits_and_leads():
    def line(study, words, optimizer, when, wait, mlms, datasets):
        cells = []
        for arm in ('clm25-mlm', 'clm'):
            behind = [ahead(f'{study}/{mlm.replace("mlm", arm)}', f'{study}/{mlm}', *datasets)
                      for mlm in mlms]
            cells.append(correlation(wait, np.mean(behind, 0)))
        return [f'`{study}`, {words}', optimizer, when, *cells]
    wait = first_below('small/mlm-14400', 6.3)      # this study's losses.csv does not say when
    names = [f'mlm-{steps}' for steps in LENGTHS]
    early = 'after 1.8 M tokens'
    rows = [
        line('small', 'documentation', 'AdamW', 'mean of four lengths', wait, names, SMALL_TASKS),
        line('small', 'documentation', 'AdamW', early, wait, names[:1], SMALL_TASKS),
    ]
    for optimizer, mlm in (('AdamW', 'mlm'), (USUAL, 'muon-mlm')):
        wait = last(f'optimiser/{mlm}-14400', 'plateau')
        for steps in (1_800, 3_600, 14_400):
            when = f'after {LENGTHS[steps]}'
            rows.append(line('optimiser', 'novels', optimizer, when, wait, [f'{mlm}-{steps}'], TASKS))
    of_targets = {'AdamW, one rate': 'one-mlm', 'AdamW, two rates': 'two-mlm', LOW: 'muon-mlm'}
    for optimizer, mlm in of_targets.items():
        wait = last(f'targets/{mlm}', 'plateau')
        rows.append(line('targets', 'novels', optimizer, early, wait, [mlm], TASKS))
    return table(['study, six seeds', "MLM's optimizer", 'when', 'r of wait and CLM then MLM minus MLM',
                  'r of wait and CLM minus MLM'], rows)


@table_of
def optimiser_length_of_the_plateau():
    rows = []
    for optimizer, of_muon in (('AdamW', ''), (USUAL, 'muon-')):
        rows.append([optimizer, steps_of_all('optimiser', f'{of_muon}mlm-1800'),
                     steps_of_all('optimiser', f'{of_muon}clm25-mlm-1800', 450)])
    return table(['steps of MLM on the plateau', 'MLM alone', 'after 450 steps of CLM'], rows)


@table_of
def optimiser_same_seeds():
    adamw, muon = [last(f'optimiser/{row}', 'plateau') for row in ('mlm-14400', 'muon-mlm-14400')]
    rows = [["MLM's wait under AdamW in `optimiser`, and in `targets` with one rate",
             correlation(adamw, last('targets/one-mlm', 'plateau'))]]
    for steps in (1_800, 3_600, 14_400):
        leads = optimiser_lead('', *TASKS, steps=steps) - optimiser_lead('muon-', *TASKS, steps=steps)
        rows.append([f"AdamW's wait minus Muon's, and AdamW's lead minus Muon's after {LENGTHS[steps]}",
                     correlation(adamw - muon, leads)])
    return table(['two numbers of the same six seeds', 'r'], rows)


@table_of
def optimiser_tuning_known():
    """Scores that were known before contrasts were written down: at the rate of fine-tuning with the best
    validation, the mean of validation and test."""
    adamw = tuned('clm25-mlm-1.5e-3') - tuned('mlm-3e-3')
    muon = tuned('muon-clm25-mlm-1.5e-3') - tuned('muon-mlm-3e-3')
    rows = []
    for words, leads in (('AdamW', adamw), (USUAL, muon), ("AdamW's minus Muon's", adamw - muon)):
        rows.append([words, *(f'{lead:+.1f}' for lead in leads)])
    return table(['the lead, mean of three tasks', 'tuning seed 100', 'tuning seed 101'], rows)


def tuned(model):
    parts = []
    for dataset in TASKS:
        by_rate = grouped(evidence_of('optimiser_tuning').runs[model, dataset], 'lr')
        validation = {rate: statistics.fmean(run.validation for run in runs)
                      for rate, runs in by_rate.items()}
        best = by_rate[max(validation, key=validation.get)]
        parts.append([50 * (run.validation + run.test) for run in sorted(best, key=lambda run: run.origin)])
    return np.mean(parts, 0)


@table_of
def optimiser_embedded_leads():
    names = {'interaction': "AdamW's minus Muon's", 'both under AdamW': 'AdamW', 'both under Muon': USUAL}
    rows = []
    for name, words in names.items():
        rows.append([words, with_verdict('optimiser_embedded', name)])
    return table(['the lead, mean of three tasks', 'points'], rows)


@table_of
def optimiser_embedded_two_rates():
    """The runs with two rates, of 2026-11-26, were not kept."""
    leads = ahead('optimiser_embedded/clm25-mlm-1800', 'optimiser_embedded/mlm-1800',
                  'docs_tc', 'wn_sc', 'docs_ir')
    rows = [
        ['one rate', waits('optimiser_embedded/mlm-1800'), ', '.join(f'{lead:+.1f}' for lead in leads)],
        ['two rates', '636, 566, 647', '+0.1, +1.0, +0.9'],
    ]
    return table(['the embedded texts, AdamW, seeds 0 to 2', "MLM's plateau ends at step", 'lead, points'],
                 rows)

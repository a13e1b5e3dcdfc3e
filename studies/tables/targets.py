"""Novels, two learning rates and the number of targets: studies/targets."""
from evaluate import seeds_half
from studies.page_numbers import ahead, difference, how_verdicts_move, judged, last, scores, table, table_of
from studies.tables.novels import LOW, OTHERS, TASKS, USUAL, WITHOUT, by_task, rates_of, share_in_words


@table_of
def targets_rates():
    arms = {
        'CLM': 'clm',
        'CLM at 40 %': 'clm40',
        'MLM': 'mlm',
        'CLM then MLM': 'clm25-mlm',
        'CLM at 40 % then MLM': 'clm40-mlm',
    }
    models = {}
    for optimizer, name in (('AdamW, one rate', 'one'), ('AdamW, two rates', 'two'), (LOW, 'muon')):
        for words, arm in arms.items():
            if name != 'one' or '40' not in arm:    # these two were not tried
                models[f'{optimizer}: {words}'] = f'{name}-{arm}'
    return rates_of('targets', models)


@table_of
def targets_summary():
    rows = []
    for words, arm in (('CLM then MLM minus MLM', 'clm25-mlm'), ('CLM minus MLM', 'clm')):
        cells = [
            difference(f'targets/one-{arm}', 'targets/one-mlm'),
            difference(f'targets/two-{arm}', 'targets/two-mlm'),
            difference(f'optimiser/muon-{arm}-1800', 'optimiser/muon-mlm-1800'),
            difference(f'targets/muon-{arm}', 'targets/muon-mlm'),
        ]
        rows.append([f'{words}, mean of three tasks', *(cell(*TASKS) for cell in cells)])
        rows.append([f'{words}, {WITHOUT}', *(cell(*OTHERS) for cell in cells)])
    return table(['after 1.8 M tokens of novels, points', 'AdamW', 'AdamW, two learning rates', USUAL, LOW],
                 rows)


@table_of
def targets_leads():
    return by_task('the lead on', {
        'AdamW, one rate': difference('targets/one-clm25-mlm', 'targets/one-mlm'),
        'AdamW, two rates': difference('targets/two-clm25-mlm', 'targets/two-mlm'),
        LOW: difference('targets/muon-clm25-mlm', 'targets/muon-mlm'),
    })


@table_of
def targets_how_leads_differ():
    return by_task('how leads differ on', {
        'AdamW: one rate minus two': judged('targets', 'lead, one rate less two'),
        'AdamW with two rates minus Muon, ratio 0.42': judged('targets', 'lead, two rates less Muon'),
    })


def targets_or_objective(head, arm, name):
    return by_task(head, {
        'targets: CLM minus CLM at 40 %': judged('targets', f'targets, {name}'),
        'objective: CLM at 40 % minus MLM': judged('targets', f'objective, {name}'),
        'both: CLM minus MLM': difference(f'targets/{arm}-clm', f'targets/{arm}-mlm'),
    })


@table_of
def targets_two_rates():
    return targets_or_objective('AdamW, two rates', 'two', 'two rates')


@table_of
def targets_muon():
    return targets_or_objective(LOW, 'muon', 'Muon')


@table_of
def targets_before_mlm():
    return by_task('CLM then MLM, minus the same with CLM at 40 %', {
        'AdamW, two rates': judged('targets', 'targets before MLM, two rates'),
        LOW: judged('targets', 'targets before MLM, Muon'),
    })


@table_of
def targets_shares():
    def gone(*datasets):
        lead = ahead('targets/two-clm', 'targets/two-mlm', *datasets)
        return share_in_words(ahead('targets/two-clm', 'targets/two-clm40', *datasets), lead)
    return by_task('task', {'share of CLM minus MLM that goes with the targets': gone})


@table_of
def targets_losses():
    """By how many nats the held-out loss of CLM then MLM ends below MLM's."""
    names = {
        'AdamW, one rate': ('one-clm25-mlm', 'one-mlm'),
        'AdamW, two rates': ('two-clm25-mlm', 'two-mlm'),
        'AdamW, two rates, with CLM at 40 %': ('two-clm40-mlm', 'two-mlm'),
        LOW: ('muon-clm25-mlm', 'muon-mlm'),
        f'{LOW}, with CLM at 40 %': ('muon-clm40-mlm', 'muon-mlm'),
    }
    rows = []
    for words, (both, mlm) in names.items():
        gained = last(f'targets/{mlm}', 'val_mlm_loss') - last(f'targets/{both}', 'val_mlm_loss')
        half = seeds_half([gained.tolist()])
        mean = gained.mean()
        rows.append([words, f'{mean:.2f} [{mean - half:.2f}, {mean + half:.2f}]'])
    return table(['held-out loss: MLM minus CLM then MLM', 'nats'], rows)


@table_of
def targets_by_ratio():
    """By score CLM's better ratio is 6.7 and MLM's 0.42. Both studies have the same seeds and test items."""
    return by_task('CLM minus MLM under Muon', {
        'both with ratio 6.7': difference('optimiser/muon-clm-1800', 'optimiser/muon-mlm-1800'),
        'both with ratio 0.42': difference('targets/muon-clm', 'targets/muon-mlm'),
        'each with its better ratio: CLM 6.7, MLM 0.42':
            difference('optimiser/muon-clm-1800', 'targets/muon-mlm'),
    })


# {arm: (its words, its rate with ratio 6.7, the loss that chose)}; with 0.42 all have 1.2e-2
RATIO_ARMS = {
    'muon-clm': ('CLM', '1.5e-3', 'val_clm_loss'),
    'muon-mlm': ('MLM', '3e-3', 'val_mlm_loss'),
    'muon-clm25-mlm': ('CLM then MLM', '1.5e-3', 'val_mlm_loss'),
}


def losses_of_choice(arm):
    """Return the held-out losses of the tuning seeds with ratio 6.7, and with 0.42."""
    _, rate, column = RATIO_ARMS[arm]
    return last(f'optimiser_tuning/{arm}-{rate}', column), last(f'targets_choice/{arm}-0.42-1.2e-2', column)


@table_of
def targets_from_ratio_6_7_to_0_42():
    rows = []
    for arm, (words, _, column) in RATIO_ARMS.items():
        usual, low = losses_of_choice(arm)
        of_seeds = last(f'targets/{arm}', column) - last(f'optimiser/{arm}-1800', column)
        gained = difference(f'targets/{arm}', f'optimiser/{arm}-1800')
        rows.append([words, f'{low.mean() - usual.mean():.3f}', f'{of_seeds.mean():.3f}', gained(*TASKS),
                     gained(*OTHERS), gained('wn_sc'), gained('squad_ir')])
    return table(['going from ratio 6.7 to 0.42', 'held-out loss, two tuning seeds',
                  'held-out loss, six seeds', 'mean score', WITHOUT, TASKS['wn_sc'], TASKS['squad_ir']], rows)


@table_of
def targets_chosen_by_loss():
    rows = []
    for arm, (words, _, column) in RATIO_ARMS.items():
        usual, low = losses_of_choice(arm)
        means = []
        for datasets in (TASKS, OTHERS):
            for model in (f'optimiser/{arm}-1800', f'targets/{arm}'):
                means.append(f'{scores(model, *datasets).mean():.1f}')
        rows.append([f'{words} (loss of {column[4:7].upper()})', f'{usual.mean():.3f}', f'{low.mean():.3f}',
                     *means])
    return table(['after 1.8 M tokens of novels', 'held-out loss, 6.7', '0.42',
                  'mean score of three tasks, 6.7', '0.42', f'{WITHOUT}, 6.7', '0.42'], rows)


@table_of
def targets_how_verdicts_move():
    names = {
        'lead, one rate less two': "the lead: AdamW's with one rate minus two",
        'lead, two rates less Muon': "the lead: AdamW's with two rates minus Muon's",
    }
    for part in ('targets', 'objective', 'targets before MLM'):
        names[f'{part}, two rates'] = f'{part}, AdamW, two rates'
        names[f'{part}, Muon'] = f'{part}, {LOW}'
    return how_verdicts_move('targets', names)

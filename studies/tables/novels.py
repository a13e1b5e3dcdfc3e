"""Novels: what the tables of studies/novels, optimiser and targets share."""
from evaluate import seeds_half
from studies.page_numbers import evidence_of, how_verdicts_move, share, table, table_of

TASKS = {
    'ewt_pos': '`ewt_pos`',
    'wn_sc': '`wn_sc`, 2 epochs',
    'squad_ir': '`squad_ir`',
}
# Definitions, wn_sc, were fine-tuned too short. They decide the sign of some means of all three tasks, so
# that each such mean stands beside the mean of the other two.
OTHERS = 'ewt_pos', 'squad_ir'
WITHOUT = 'mean without definitions'
USUAL = 'Muon, ratio 6.7'
LOW = 'Muon, ratio 0.42'


def by_task(head, columns):
    """Return a table with a line for each of TASKS, for their mean, and for the mean without definitions.

    columns  {head: function that returns the cell of these datasets}"""
    rows = []
    for dataset, words in TASKS.items():
        rows.append([words, *(cell(dataset) for cell in columns.values())])
    rows.append(['mean', *(cell(*TASKS) for cell in columns.values())])
    rows.append([WITHOUT, *(cell(*OTHERS) for cell in columns.values())])
    return table([head, *columns], rows)


def share_in_words(part, lead):
    if seeds_half([lead.tolist()]) > lead.mean():
        return 'nothing to divide: no lead is shown'
    if part.mean() > lead.mean():
        return f'{part.mean():+.1f} of {lead.mean():+.1f}'
    return '{:.0f} % [{:.0f}, {:.0f}]'.format(*(100 * bound for bound in share(part, lead)))


def rates_of(study, models):
    """Return a table of an arm's learning rates: of pretraining, and of fine-tuning on each task.

    models  {its words: its row}"""
    loaded = evidence_of(study).study
    rows = []
    for words, model in models.items():
        rates = [loaded.runs[model]['lr']]
        for dataset in TASKS:
            lr, = loaded.tried[model, dataset].lrs
            rates.append(lr)
        rows.append([words, *(f'{rate:.1e}'.replace('.0e', 'e').replace('e-0', 'e-') for rate in rates)])
    return table(['learning rates', 'pretraining', *(f'`{name}`' for name in TASKS)], rows)


@table_of
def novels_ends():
    return how_verdicts_move('novels', {
        'early': 'CLM minus MLM after 1.8 M tokens, mean of both',
        'retrieval': 'CLM minus MLM after 7.4 M tokens, retrieval',
        'tagging': 'MLM minus CLM after 7.4 M tokens, entities',
    })

"""Definitions, fine-tuned for six epochs and for two: studies/definitions."""
import numpy as np

from studies.page_numbers import ahead, evidence_of, last, points, scores, table, table_of, with_verdict

ARMS = {'CLM': 'muon-clm', 'CLM at 40 %': 'muon-clm40', 'MLM': 'muon-mlm', 'CLM then MLM': 'muon-clm25-mlm'}


@table_of
def definitions_scores():
    rows = []
    for words, arm in [*ARMS.items(), ('untrained', 'untrained')]:
        cells = [f'{scores(f"definitions/{arm}{ending}", "wn_sc").mean():.1f}' for ending in ('+two', '')]
        rows.append([words, *cells])
    return table(['accuracy on `wn_sc`, Muon with ratio 0.42', '2 epochs', '6 epochs'], rows)


@table_of
def definitions_verdicts():
    names = {
        'CLM': 'CLM minus MLM, 6 epochs',
        'CLM at 40 %': 'CLM at 40 % minus MLM, 6 epochs',
        'CLM then MLM': 'CLM then MLM minus MLM, 6 epochs',
        'CLM, six epochs less two': 'CLM minus MLM, 6 epochs minus 2',
    }
    rows = [[words, with_verdict('definitions', name)] for name, words in names.items()]
    return table(['`wn_sc`', 'points'], rows)


@table_of
def definitions_epochs():
    """By how much arms are ahead of MLM. Means have tags and retrieval of targets, seed by seed."""
    rows = []
    for words, arm in ARMS.items():
        if words == 'MLM':
            continue
        others = [ahead(f'targets/{arm}', 'targets/muon-mlm', dataset) for dataset in ('ewt_pos', 'squad_ir')]
        leads = [ahead(f'definitions/{arm}{ending}', f'definitions/muon-mlm{ending}', 'wn_sc')
                 for ending in ('+two', '')]
        means = [np.mean([*others, lead], 0) for lead in leads]
        rows.append([f'{words} minus MLM', *map(points, [*leads, *means])])
    return table(['Muon with ratio 0.42, over seeds', 'definitions, 2 epochs', 'definitions, 6 epochs',
                  'mean of three tasks, 2 epochs', 'mean of three tasks, 6 epochs'], rows)


@table_of
def definitions_losses():
    """The two trainings differ in rounding: a GPU computed one in bf16, a CPU the other in fp32."""
    rows = []
    for words, arm in ARMS.items():
        *_, (objective, _) = evidence_of('definitions').study.rows[arm].cfg.phases
        losses = [last(f'{study}/{arm}', f'val_{objective}_loss') for study in ('targets', 'definitions')]
        rows.append([words, *(f'{values.mean():.3f}' for values in losses)])
    return table(['held-out loss of its own objective, six seeds', '`targets`: GPU, bf16',
                  '`definitions`: CPU, fp32'], rows)

"""The paper's own numbers, for docs/paper.md."""
import numpy as np

from studies.page_numbers import table, table_of
from studies.paper import published


@table_of
def paper_averages():
    models = {
        'MLM': '610m-mlm40-42k',
        '10,000 CLM, 32,000 MLM': '610m-clm-10k-mlm40-42k',
        '21,000 CLM, 21,000 MLM': '610m-clm-21k-mlm40-42k',
        '32,000 CLM, 10,000 MLM': '610m-clm-32k-mlm40-42k',
        'CLM': '610m-clm-42k',
    }
    kinds = 'SC', 'TC', 'QA', 'IR'
    numbers = published.numbers()
    rows = []
    for words, model in models.items():
        cells = ['{:.2f} ± {:.2f}'.format(*numbers[model, kind, 'Average']) for kind in kinds]
        flops = f'{published.models()[model]["flops"]:.2e}'.replace('e+', 'e')
        rows.append([words, *cells, flops])
    best = []       # of four masking ratios
    for kind in kinds:
        ratios = {ratio: numbers[f'610m-mlm{ratio}-42k', kind, 'Average'] for ratio in (20, 30, 40, 50)}
        ratio = max(ratios, key=ratios.get)
        best.append('{:.2f} ± {:.2f}'.format(*ratios[ratio]) + f' ({ratio} %)')
    rows.insert(1, ['MLM at the best masking ratio for this kind of task', *best, rows[0][-1]])
    return table(['42,000 steps, 99 B tokens', *kinds, 'FLOP'], rows)


@table_of
def paper_steps():
    """How many times as many steps MLM needs for CLM's score, interpolated between checkpoints, linearly in
    the logarithm of steps. On SQuAD 2.0 and ReCoRD neither has learnt anything by then."""
    steps = [1_000, 2_000, 5_000, 10_000, 20_000, 40_000]
    names = {
        'NQ': ('IR', 'nq'),
        'MS MARCO': ('IR', 'msmarco'),
        'MLDR': ('IR', 'mldr_en'),
        'SQuAD': ('QA', 'squad'),
        'CoNLL 2003': ('TC', 'conll2003_en'),
        'OntoNotes': ('TC', 'ontonotes'),
        'UNER': ('TC', 'uner_en'),
        'MNLI': ('SC', 'mnli_m'),
        'QQP': ('SC', 'qqp'),
        'SST-2': ('SC', 'sst2'),
    }
    rows = []
    factors = {step: [] for step in steps[:3]}
    for name, key in names.items():
        clm, mlm = [
            [published.numbers()[f'610m-{arm}-42k-{step}', *key][0] for step in steps]
            for arm in ('clm', 'mlm40')]
        cells = []
        for step, score in zip(factors, clm):
            if score < mlm[0]:      # MLM's first checkpoint has more
                cells.append('under 1')
                continue
            factor = np.exp(np.interp(score, mlm, np.log(steps))) / step
            cells.append(f'{factor:.1f}')
            factors[step].append(factor)
        rows.append([name, *cells])
    rows.append(['median (least to most), without "under 1"',
                 *(f'{np.median(these):.1f} ({min(these):.1f} to {max(these):.1f})'
                   for these in factors.values())])
    return table(["MLM needs so many times the steps, for CLM's score after",
                  *(f'{step:,} steps' for step in factors)], rows)

"""What ends the plateau sooner, for docs/stuck.md: rows of several studies."""
from studies.page_numbers import least_to_most, steps_of_all, steps_of_each, table, table_of
from studies.waits import steps_on_plateau


@table_of
def stuck_waits():
    """How many steps of MLM end the plateau, least and most of a row's seeds."""
    rows = {    # {(encoder, recipe): (study, row, steps of CLM before MLM)}
        ('0.9 M', 'AdamW'): ('optimiser', 'mlm-1800', 0),
        ('0.9 M', 'AdamW, a second rate for the matrices'): ('targets', 'two-mlm', 0),
        ('0.9 M', 'Muon, ratio 6.7'): ('optimiser', 'muon-mlm-1800', 0),
        ('0.9 M', 'Muon, ratio 0.42'): ('targets', 'muon-mlm', 0),
        ('0.9 M', 'AdamW, after 450 steps of CLM'): ('optimiser', 'clm25-mlm-1800', 450),
        ('0.9 M', 'Muon, ratio 6.7, after 450 steps of CLM'): ('optimiser', 'muon-clm25-mlm-1800', 450),
        ('116 M', 'AdamW'): ('plateau_120m', 'mlm-1e-3', 0),
        ('116 M', 'AdamW, a second rate for the matrices'): ('plateau_120m', 'two-mlm-4', 0),
        ('116 M', 'Muon, ratio 6.7'): ('plateau_120m', 'muon-mlm', 0),
        ('116 M', 'AdamW, after 150 steps of CLM'): ('plateau_120m', 'clm25-mlm', 150),
        ('116 M', 'Muon, ratio 6.7, after 150 steps of CLM'): ('plateau_120m', 'muon-clm25-mlm', 150),
    }
    lines = []
    for names, row in rows.items():
        ended, stayed = steps_on_plateau(*row)
        assert not stayed, f'{row}: a seed stays on its plateau, which this table cannot say'
        lines.append([*names, f'{len(ended)}', least_to_most(ended)])
    return table(['encoder', 'recipe', 'seeds', 'the plateau ends after so many steps of MLM'], lines)


@table_of
def stuck_settings():
    """Two seeds of each setting. A run that has not left after its 1,800 steps has stayed."""
    settings = {    # {words: rows of studies}
        'the settings of `configs/tiny.py`': ['plateau/plain'],
        'learning rate 7.5e-4 or 1.5e-3': ['plateau/rate-7.5e-4', 'optimiser_tuning/mlm-1.5e-3'],
        'learning rate 6e-3': ['optimiser_tuning/mlm-6e-3'],
        '`beta2` 0.8 or 0.9 (0.95 is our default)': ['plateau/beta2-0.8', 'plateau/beta2-0.9'],
        '`beta2` 0.99': ['plateau/beta2-0.99'],
        '`beta2` 0.999': ['plateau/beta2-0.999'],
        '`beta2` 0.5': ['plateau/beta2-0.5'],
        '`eps` 1e-8 (1e-5 is our default)': ['plateau/eps-1e-8'],
        '`eps` 1e-4': ['plateau/eps-1e-4'],
        '`eps` 1e-3': ['plateau/eps-1e-3'],
        'warm-up of 10 or 600 steps (100 in all other lines)': ['plateau/warmup-10', 'plateau/warmup-600'],
        'initial weights with a standard deviation of 0.06 or 0.1 (0.02 is our default)':
            ['plateau/initializer-0.06', 'plateau/initializer-0.1'],
        'an output head of its own (in `configs/tiny.py` it is tied)': ['plateau/untied'],
    }
    lines = []
    for words, rows in settings.items():
        ended = []
        stayed = []
        for row in rows:
            of_row = steps_on_plateau(*row.split('/'), 0)
            ended += of_row[0]
            stayed += of_row[1]
        assert {*stayed} <= {1_800}, f'{rows}: the page says that runs have 1,800 steps'
        of_all = f'{len(stayed)} of {len(ended) + len(stayed)}'
        lines.append([words, least_to_most(ended), of_all if stayed else '-'])
    return table(['setting of AdamW', 'the plateau ends after so many steps', 'runs that stay on it'], lines)


@table_of
def stuck_recipes():
    """Both seeds of counts_tuning at the rate of configs/tiny.py. Steps are those of the whole run."""
    rows = {    # {words: a row of counts_tuning}
        'MLM alone, with AdamW and random embeddings': 'mlm-3e-3',
        'counted embeddings': 'counts-mlm-3e-3',
        '450 steps of CLM, then MLM: steps from the start of the run': 'clm25-mlm-3e-3',
        'Muon': 'muon-mlm-3e-3',
    }
    lines = []
    for words, row in rows.items():
        ended = steps_of_each('counts_tuning', row)
        lines.append([words, ' and '.join(f'{step:,}' for step in ended)])
    return table(['the run', 'leaves its plateau at step'], lines)


@table_of
def stuck_sooner():
    """Six seeds on novels, and six on the demo's texts, each row at the rate that tuning chose for it."""
    alone = steps_of_all('optimiser', 'mlm-1800')
    muon = steps_of_all('optimiser', 'muon-mlm-1800')
    clm_first = steps_of_all('optimiser', 'clm25-mlm-1800', 450)
    both = steps_of_all('optimiser', 'muon-clm25-mlm-1800', 450)
    lines = [
        ['450 steps of CLM first', clm_first, alone, 'novels, six seeds'],
        ['Muon in place of AdamW', muon, alone, 'novels, six seeds'],
        ['both', both, alone, 'novels, six seeds'],
    ]
    counted = {     # {words: (row with counted embeddings, row without, steps of CLM before MLM)}
        'counted embeddings': ('counts-mlm', 'mlm', 0),
        'counted embeddings, where both runs have Muon': ('muon-counts-mlm', 'muon-mlm', 0),
        'counted embeddings, where both begin with CLM': ('counts-clm25-mlm', 'clm25-mlm', 450),
        'counted embeddings, where both have Muon and begin with CLM':
            ('muon-counts-clm25-mlm', 'muon-clm25-mlm', 450),
    }
    for words, (row, without, clm_steps) in counted.items():
        steps = [steps_of_all('counts', f'{name}-1800', clm_steps) for name in (row, without)]
        lines.append([words, *steps, "the demo's texts, six seeds"])
    return table(['what', 'steps of MLM with it', 'without it', 'where'], lines)


@table_of
def stuck_second_rate():
    """The runs with two rates on the embedded texts, of 2026-11-26, were not kept."""
    lines = [
        ['the embedded texts, three seeds, of which one had chosen the rates', '566 to 647',
         steps_of_all('optimiser_embedded', 'mlm-1800')],
        ['novels, six seeds, both tuned (one rate: with `beta2` 0.8)', steps_of_all('targets', 'two-mlm'),
         steps_of_all('targets', 'one-mlm')],
    ]
    return table(['steps of MLM', 'two rates', 'one rate'], lines)

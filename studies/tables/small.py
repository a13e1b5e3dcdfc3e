"""The embedded texts: studies/small and small_tuning."""
import numpy as np

from studies.page_numbers import (
    ahead,
    decimals,
    first_below,
    last,
    of_new_seed,
    points,
    points_by_task,
    points_over_seeds,
    rows_of_report,
    scores,
    table,
    table_of,
    verdict_stays,
    verdicts,
)

SMALL_CLAIMS = {    # {contrast: (what the paper says, what the points are of)}
    'early': ('Early in training CLM is ahead of MLM.',
              'CLM minus MLM after 1.8 M tokens, mean of three tasks'),
    'both': ('In one training, CLM first and then MLM is at least as good as MLM alone.',
             'CLM then MLM minus MLM, mean of four lengths and three tasks'),
    'continued': ('Training a finished CLM model on with MLM beats training a finished MLM model on.',
                  'MLM after CLM minus MLM after MLM, mean of three tasks'),
    'end': ('In the end MLM is ahead of CLM.',
            'MLM minus CLM after 14.7 M tokens, pairs of sentences'),
    'level': ('On token classification CLM is level with MLM.',
              'CLM minus MLM after 14.7 M tokens, code words'),
    'ratio': ('Retrieval likes higher masking ratios.',
              '50 % of masks minus 20 %, retrieval'),
    'rate': ('CLM minds the learning rate of fine-tuning less.',
             "what a wrong rate costs: MLM's points minus CLM's, on code words and retrieval. Below 0 it "
             'costs CLM more'),
}
SMALL_TASKS = {
    'docs_tc': '`docs_tc`, code words',
    'docs_ir': '`docs_ir`, retrieval',
    'docs_pairs': '`docs_pairs`, pairs of sentences',
}
LENGTHS = {1_800: '1.8 M tokens', 3_600: '3.7 M tokens', 7_200: '7.4 M tokens', 14_400: '14.7 M tokens'}


@table_of
def small_demo():
    """A new seed's numbers, fine-tuned once, as in the demo."""
    once = ('--finetuning_seeds=1',)
    both, mlm = [scores(f'small/{row}', 'docs_tc', options=once) for row in ('clm25-mlm-1800', 'mlm-1800')]
    lead, *leads = of_new_seed(both - mlm)
    loss, *range_of_loss = of_new_seed(last('small/clm25-mlm-1800', 'val_mlm_loss'))
    rows = [
        ['tagging code words: points by which CLM then MLM is ahead of MLM',
         f'{lead:+.1f}', '{:+.1f} to {:+.1f}'.format(*leads)],
        ['loss of CLM then MLM on held-out text, in nats',
         f'{loss:.2f}', '{:.2f} to {:.2f}'.format(*range_of_loss)],
    ]
    return table(['', 'mean of six earlier seeds', 'where yours should fall (19 of 20 new seeds do)'], rows)


@table_of
def small_verdicts():
    rows = []
    for name, (words, what) in SMALL_CLAIMS.items():
        line = verdicts('small')[name]
        rows.append([f'**{name}**: {words}', what, line['the paper'], line['points'], verdict_and_p(line),
                     verdict_stays('small', name)])
    return table(['the paper says', 'measured here as', "the paper's points", 'here',
                  'verdict, and p after Holm', 'it stays with a seed left out'], rows)


@table_of
def small_findings():
    """The same, shorter, for README: what is clear comes first."""
    rows = []
    for verdict in ('agrees', 'disagrees', 'cannot tell'):
        for name, (words, what) in SMALL_CLAIMS.items():
            line = verdicts('small')[name]
            if line['verdict'] == verdict:
                rows.append([words, line['the paper'], what, line['points'], verdict])
    return table(['the paper says', "the paper's points", 'what we measured', 'our points', 'verdict'], rows)


def verdict_and_p(line):
    return f'{line["verdict"]}, {decimals(float(line["Holm"]), 3)}'


@table_of
def small_claims_by_task():
    names = 'early', 'both', 'continued'
    lines = [verdicts('small')[name] for name in names]
    rows = []
    for dataset, words in SMALL_TASKS.items():
        rows.append([words, *(points_by_task('small', name)[dataset] for name in names)])
    rows.append(['**mean of three**', *(line['points'] for line in lines)])
    without = [points_over_seeds('small', name, 'docs_tc', 'docs_ir') for name in names]
    rows.append(['mean without pairs', *without])
    rows.append(['expected: the paper', *(line['the paper'] for line in lines)])
    rows.append(['verdict, and p after Holm', *(verdict_and_p(line) for line in lines)])
    heads = [f'**{name}**: {SMALL_CLAIMS[name][1].rpartition(",")[0]}' for name in names]
    return table(['points', *heads], rows)


@table_of
def small_by_length():
    """Over seeds alone; not written down before the runs."""
    rows = []
    for steps, words in LENGTHS.items():
        clm, mlm, both = [f'small/{arm}-{steps}' for arm in ('clm', 'mlm', 'clm25-mlm')]
        rows.append([words, points(ahead(clm, mlm, 'docs_tc')), points(ahead(clm, mlm, 'docs_ir')),
                     points(ahead(both, mlm, *SMALL_TASKS))])
    return table(['after', 'CLM minus MLM, code words', 'CLM minus MLM, retrieval',
                  'CLM then MLM minus MLM, mean of three tasks'], rows)


@table_of
def small_scores():
    names = {
        'clm-14400': 'CLM',
        'clm25-mlm-14400': 'CLM then MLM',
        'mlm-14400': 'MLM',
        'untrained': 'untrained',
        'word-lookup': 'word lookup',
        'BM25': 'BM25',
    }
    columns = 'docs_tc', 'docs_ir'
    return table(['after 14.7 M tokens', *(SMALL_TASKS[name] for name in columns)],
                 rows_of_report('small', names, columns))


@table_of
def small_dropped_tasks():
    """Tasks that encoders of this size hardly learn."""
    names = {
        'clm-14400': 'CLM',
        'mlm-14400': 'MLM',
        'untrained': 'untrained',
        'word-overlap': 'counting shared words',
        'likeliest-sentence': 'taking the likeliest sentence',
    }
    columns = {'docs_pairs': 'pairs of sentences, accuracy', 'docs_qa': 'answers to questions, F1',
               'docs_sc': 'classes of texts, accuracy'}
    heads = [f'`{name}`, {words}' for name, words in columns.items()]
    return table(['after 14.7 M tokens', *heads], rows_of_report('small', names, columns))


@table_of
def small_waits_by_masks():
    """How long MLM's held-out loss stays above 6.3 nats."""
    rows = []
    for ratio, row in {20: 'mlm20-3600', 40: 'mlm-3600', 50: 'mlm50-3600'}.items():
        steps = first_below(f'small/{row}', 6.3)
        rows.append([f'{ratio} %', f'{steps.mean():.0f}', f'{steps.min():,.0f} to {steps.max():,.0f}'])
    return table(['share of masks', 'steps, mean of six seeds', 'least to most'], rows)


@table_of
def small_rates():
    """What an outer rate of fine-tuning costs, compared with the middle one."""
    datasets = 'docs_tc', 'docs_ir'
    rows = []
    for dataset in datasets:
        for rate in ('5e-4', '8e-3'):
            clm, mlm = [rate_costs(arm, rate, dataset) for arm in ('clm', 'mlm')]
            rows.append([f'{SMALL_TASKS[dataset]}, at {rate}', f'{clm.mean():.1f}', f'{mlm.mean():.1f}',
                         points(mlm - clm)])
    for names, words in ((['docs_tc'], 'code words'), (['docs_ir'], 'retrieval'), (datasets, 'both tasks')):
        clm, mlm = [
            sum(rate_costs(arm, rate, *names) for rate in ('5e-4', '8e-3')) / 2
            for arm in ('clm', 'mlm')]
        rows.append([f'mean of both rates, {words}', f'{clm.mean():.1f}', f'{mlm.mean():.1f}',
                     points(mlm - clm)])
    return table(['points lost, compared with 2e-3', 'CLM', 'MLM', 'MLM minus CLM'], rows)


def rate_costs(arm, rate, *datasets):
    model = f'small/{arm}-3600+rates'
    return ahead(f'{model}@2e-3', f'{model}@{rate}', *datasets)


@table_of
def small_tuning_rates():
    rows = []
    for dataset in ('docs_tc', 'docs_ir'):
        cells = []
        for arm in ('clm', 'mlm'):
            means = [scores(f'small_tuning/tune-{arm}-3600@{rate}', dataset).mean()
                     for rate in ('5e-4', '1e-3', '2e-3', '4e-3')]
            cells.append(f'{np.ptp(means):.1f}')
        rows.append([SMALL_TASKS[dataset], *cells])
    return table(['best minus worst score, rates of 5e-4 to 4e-3', 'CLM', 'MLM'], rows)

"""Write the tables of the pages from the studies: their packs, losses.csv and reports.

    python studies/page_tables.py           # fill all tables
    python studies/page_tables.py --check   # only say which tables are not what the studies say

A page says where a table goes, in a line that begins with <!--, and this script writes what stands between
that line and the end:

    <!-- targets: leads -->
    | the lead on | AdamW, one rate | ...
    <!-- end -->

The function targets_leads, below, returns this table. Points are percent, with 95 % intervals: over seeds and
test instances where a report judges a contrast, over the seeds alone elsewhere."""
import functools
import math
import re
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the root, where evaluate.py is

from evaluate import grouped, seeds_half, warn
from nanoencoder.files import whole
from nanoencoder.settings import parse, run_main
from studies.page_numbers import (
    ROOT,
    ahead,
    correlation,
    decimals,
    difference,
    evidence_of,
    first_below,
    how_verdicts_move,
    judged,
    last,
    losses,
    of_new_seed,
    points,
    points_by_task,
    points_over_seeds,
    rows_of_report,
    scores,
    share,
    table,
    verdict_stays,
    verdicts,
    waits,
    with_verdict,
)
from studies.paper import published
from studies.report import Missing
from studies.waits import steps_on_plateau

TABLES = {}     # {name of a function below: the function, which returns the lines of its table}


@dataclass(frozen=True)
class Settings:
    check: bool = False     # write nothing


def table_of(function):
    """Decorate a function whose table stands in a page."""
    TABLES[function.__name__] = functools.cache(function)
    return function


# ---------------------------------------------------------------------------
# Pages


def find_pages(root):
    """Return the pages below a folder that may have tables."""
    pages = []
    for pattern in ('*.md', 'docs/*.md', 'studies/**/README.md'):
        pages += sorted(root.glob(pattern))
    return pages


def write_tables(root, tables, check):
    """Write the tables of all pages below a folder. Returns problems, in words: markers and tables that
    belong to nothing and, with `check`, tables that would change."""
    problems = []
    used = set()
    for page in find_pages(root):
        before = page.read_text(encoding='utf-8')
        name = page.relative_to(root)
        after, stale = fill(name, before, tables, used, problems)
        if check:
            problems += [f'{name}: {marker} is not what the studies say; run studies/page_tables.py'
                         for marker in stale]
        elif stale:
            with whole(page) as temporary:
                temporary.write_text(after, encoding='utf-8')
            print(name)
    for name in sorted(tables.keys() - used):
        problems.append(f'studies/page_tables.py: no page has a marker for {name}; remove one of the two')
    return problems


def fill(page, text, tables, used, problems):
    """Return a page's text with its tables filled, and the markers of those that changed. Adds the functions
    of its markers to `used`, and what is wrong with a marker to `problems`."""
    text, *marked = re.split(r'(?m)^(<!-- \w+: .* -->)\n', text)
    stale = []
    for marker, rest in zip(marked[::2], marked[1::2]):
        name = name_of(marker)
        used.add(name)
        shown, end, after = rest.partition('<!-- end -->')
        if not end:
            problems.append(f'{page}: {marker} has no <!-- end --> below its table')
        elif name not in tables:
            problems.append(f'{page}: {marker} needs a function {name} in studies/page_tables.py')
        else:
            try:
                lines = '\n'.join(tables[name]()) + '\n'
            except Missing as error:
                problems.append(f'{page}: {marker} is left as it is: there is no {error}')
                lines = shown
            if lines != shown:
                stale.append(marker)
            rest = lines + end + after
        text += f'{marker}\n{rest}'
    return text, stale


def name_of(marker):
    """Return the name of a marker's function: targets_leads of <!-- targets: leads -->."""
    return re.sub(r'\W+', ' ', marker).strip().replace(' ', '_').lower()


# ---------------------------------------------------------------------------
# Tables: the paper's own numbers


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


# ---------------------------------------------------------------------------
# Tables: the embedded texts, studies/small

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


# ---------------------------------------------------------------------------
# Tables: counted embeddings, studies/counts_tuning

# the rates that were chosen: of pretraining (in the row's name), and of fine-tuning on docs_tc and docs_ir
TUNED = {
    'MLM, AdamW': ('mlm-1.5e-3', '2e-3', '1e-3'),
    'CLM then MLM, AdamW': ('clm25-mlm-1.5e-3', '2e-3', '1e-3'),
    '**counts, then MLM**, AdamW': ('counts-mlm-1.5e-3', '4e-3', '1e-3'),
    'MLM, Muon, ratio 6.7': ('muon-mlm-3e-3', '2e-3', '2e-3'),
    'CLM then MLM, Muon, ratio 6.7': ('muon-clm25-mlm-6e-3', '4e-3', '2e-3'),
    '**counts, then MLM**, Muon, ratio 6.7': ('muon-counts-mlm-1.5e-3', '2e-3', '1e-3'),
}


@table_of
def counts_tuning_chosen():
    rows = []
    for words, (row, rate_of_tc, rate_of_ir) in TUNED.items():
        model = f'counts_tuning/{row}'
        loss = last(model, 'val_mlm_loss').mean()
        means = [scores(f'{model}@{rate}', dataset).mean()
                 for dataset, rate in (('docs_tc', rate_of_tc), ('docs_ir', rate_of_ir), ('wn_sc', '2e-3'))]
        rows.append([words, f'{loss:.2f}', *(f'{mean:.1f}' for mean in means)])
    heads = ['1,800 steps, two tuning seeds', 'held-out MLM loss', 'code words', 'retrieval',
             'definitions, 6 epochs']
    return table(heads, rows)


# ---------------------------------------------------------------------------
# Tables: the novels, studies/novels, optimiser and targets

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


@table_of
def novels_ends():
    return how_verdicts_move('novels', {
        'early': 'CLM minus MLM after 1.8 M tokens, mean of both',
        'retrieval': 'CLM minus MLM after 7.4 M tokens, retrieval',
        'tagging': 'MLM minus CLM after 7.4 M tokens, entities',
    })


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


# ---------------------------------------------------------------------------
# Tables: how long MLM's plateau lasts, studies/plateau and plateau_120m


@table_of
def plateau_settings():
    names = {
        'the default: AdamW, 3e-3': 'plateau/plain',
        'rate 7.5e-4': 'plateau/rate-7.5e-4',
        'rate 1.5e-3': 'optimiser_tuning/mlm-1.5e-3',
        'rate 6e-3': 'optimiser_tuning/mlm-6e-3',
        'eps 1e-8 (default 1e-5)': 'plateau/eps-1e-8',
        'eps 1e-4': 'plateau/eps-1e-4',
        'eps 1e-3': 'plateau/eps-1e-3',
        'beta2 0.5 (default 0.95)': 'plateau/beta2-0.5',
        'beta2 0.8': 'plateau/beta2-0.8',
        'beta2 0.9': 'plateau/beta2-0.9',
        'beta2 0.99': 'plateau/beta2-0.99',
        'beta2 0.999': 'plateau/beta2-0.999',
        'warm-up of 10 steps (default 100)': 'plateau/warmup-10',
        'warm-up of 600': 'plateau/warmup-600',
        'beta2 0.8, warm-up of 10': 'plateau/beta2-0.8-warmup-10',
        'beta2 0.8, warm-up of 10, rate 1.5e-3': 'optimiser_tuning/quick-mlm-1.5e-3',
        'beta2 0.8, warm-up of 10, rate 6e-3': 'optimiser_tuning/quick-mlm-6e-3',
        'initial sd 0.06 (default 0.02)': 'plateau/initializer-0.06',
        'initial sd 0.1': 'plateau/initializer-0.1',
        'output head not tied': 'plateau/untied',
        '4,096 tokens a step (450 steps)': 'plateau/batch-4096',
        '4,096 tokens a step, rate 6e-3': 'plateau/batch-4096-6e-3',
        '**Muon**, 1.5e-3': 'optimiser_tuning/muon-mlm-1.5e-3',
        'Muon, 3e-3': 'optimiser_tuning/muon-mlm-3e-3',
        'Muon, 6e-3': 'optimiser_tuning/muon-mlm-6e-3',
    }
    rows = []
    for words, model in names.items():
        rows.append([words, waits(model), ', '.join(f'{loss:.2f}' for loss in last(model, 'val_mlm_loss'))])
    return table(['setting', 'ends at step, seeds 100, 101', 'held-out loss'], rows)


@table_of
def plateau_120m_losses():
    names = {
        'MLM, AdamW': 'mlm-1e-3',
        'CLM for 150 steps, then MLM, AdamW': 'clm25-mlm',
        'MLM, AdamW with two rates': 'two-mlm-4',
        'MLM, Muon': 'muon-mlm',
        'CLM for 150 steps, then MLM, Muon': 'muon-clm25-mlm',
    }
    steps = 200, 300, 450, 600
    rows = []
    for words, row in names.items():
        cells = [f'{loss_120m(row, step):.2f}' for step in steps]
        rows.append([words, waits(f'plateau_120m/{row}'), *cells])
    rows = [[cell.replace('nan', 'stopped') for cell in row] for row in rows]
    heads = [f'loss at step {step}' for step in steps]
    return table(['objective and optimizer', 'plateau ends at step', *heads], rows)


def loss_120m(row, step):
    """Return the held-out MLM loss of the one seed; nan if it has not come so far."""
    of_step = {int(line['step']): line for line in losses('plateau_120m')[row, 0]}
    return float(of_step[step]['val_mlm_loss']) if step in of_step else math.nan


@table_of
def plateau_120m_leads():
    rows = []
    for words, mlm, both in (('AdamW', 'mlm-1e-3', 'clm25-mlm'), ('Muon', 'muon-mlm', 'muon-clm25-mlm')):
        rows.append([words, *(f'{loss_120m(mlm, step) - loss_120m(both, step):.2f}' for step in (300, 600))])
    return table(['by how many nats CLM then MLM is below MLM', 'step 300', 'step 600'], rows)


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


def least_to_most(steps):
    if not steps:
        return '-'
    if len(steps) == 1:
        return f'{steps[0]:,}'
    return f'{min(steps):,} to {max(steps):,}'


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
    """Six seeds on novels, and on the demo's texts two seeds at two learning rates."""
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
        lines.append([words, steps_at_two_rates(row, clm_steps), steps_at_two_rates(without, clm_steps),
                      "the demo's texts, two seeds at two learning rates"])
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


def steps_at_two_rates(row, clm_steps):
    """Least to most of both seeds of counts_tuning, at the two rates that all of its arms have."""
    steps = []
    for rate in ('1.5e-3', '3e-3'):
        steps += steps_of_each('counts_tuning', f'{row}-{rate}', clm_steps)
    return least_to_most(steps)


def steps_of_all(study, row, clm_steps=0):
    return least_to_most(steps_of_each(study, row, clm_steps))


def steps_of_each(study, row, clm_steps=0):
    ended, stayed = steps_on_plateau(study, row, clm_steps)
    assert not stayed, f'{row}: a seed stays on its plateau, which these tables cannot say'
    return ended


def main():
    cfg, _ = parse(Settings, sys.argv[1:])
    sys.exit(warn(write_tables(ROOT, TABLES, cfg.check)))


if __name__ == '__main__':
    run_main(main)

# The question for one GPU: 51 M parameters (configs/small.py), 0.4 to 3.1 B tokens, four pretraining seeds,
# one task of each kind. This is a config: nobody has run it yet.
corpus = {'config': 'configs/corpora/fineweb_edu_2b.py', 'max_tokens': 3_200_000_000,
          'out': 'corpora/fineweb_edu_3b'}
every_run = {'config': 'configs/small.py', 'warmup_steps': 500, 'decay_steps': 0.2}
runs = {
    'clm-24k': {'phases': (('clm', 24_000),)},
    'clm-12k': {'phases': (('clm', 12_000),), 'branch_from': 'clm-24k/9600'},
    'clm-6k': {'phases': (('clm', 6_000),), 'branch_from': 'clm-24k/4800'},
    'clm-3k': {'phases': (('clm', 3_000),), 'branch_from': 'clm-24k/2400'},
    'mlm-24k': {'phases': (('mlm', 24_000),)},
    'mlm-12k': {'phases': (('mlm', 12_000),), 'branch_from': 'mlm-24k/9600'},
    'mlm-6k': {'phases': (('mlm', 6_000),), 'branch_from': 'mlm-24k/4800'},
    'mlm-3k': {'phases': (('mlm', 3_000),), 'branch_from': 'mlm-24k/2400'},
    # a quarter CLM, then MLM
    'both-24k': {'phases': (('clm', 6_000), ('mlm', 18_000)), 'branch_from': 'clm-24k/6000'},
    'both-12k': {'phases': (('clm', 3_000), ('mlm', 9_000)), 'branch_from': 'clm-24k/3000'},
    'both-6k': {'phases': (('clm', 1_500), ('mlm', 4_500)), 'branch_from': 'clm-24k/1500'},
    'both-3k': {'phases': (('clm', 750), ('mlm', 2_250)), 'branch_from': 'clm-24k/750'},
}
ladder = {
    'CLM': ('clm-3k', 'clm-6k', 'clm-12k', 'clm-24k'),
    'MLM': ('mlm-3k', 'mlm-6k', 'mlm-12k', 'mlm-24k'),
    'CLM then MLM': ('both-3k', 'both-6k', 'both-12k', 'both-24k'),
}
seeds = (0, 1, 2, 3)
every_task = {'models': ('*',), 'lrs': (5e-5, 1e-4, 2e-4, 5e-4)}
tasks = (
    {'config': 'configs/tasks/mnli.py'},
    {'config': 'configs/tasks/conll2003.py'},
    {'config': 'configs/tasks/squad.py'},
    {'config': 'configs/tasks/msmarco.py'},
)
finetuning_seeds = 3
rules = 2    # as they were when this was frozen
# names of the paper's claims: studies/paper/claims.json
contrasts = {
    'end': {'rule': 'better', 'weights': {'mlm-24k': 1, 'clm-24k': -1},
            'datasets': ('mnli_m', 'squad', 'msmarco')},
    'level': {'rule': 'no_difference', 'weights': {'clm-24k': 1, 'mlm-24k': -1},
              'datasets': ('conll2003_en',)},
    'early': {'rule': 'better', 'weights': {'clm-3k': 1, 'mlm-3k': -1},
              'datasets': ('mnli_m', 'conll2003_en', 'squad', 'msmarco')},
    'both': {'rule': 'at_least', 'weights': {'both-24k': 1, 'mlm-24k': -1},
             'datasets': ('mnli_m', 'conll2003_en', 'squad', 'msmarco')},
}

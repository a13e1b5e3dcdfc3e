# The paper's question with pretraining seeds: 0.9 M parameters, 1.8 to 14.7 M tokens of documentation (0.6 to
# 4.8 passes), six seeds, two CPU cores. Learning rates are those that studies/small_tuning found.
# Rows, contrasts and their rules were written down before the first of these runs. Tasks that this size did
# not learn, docs_qa, docs_sc and docs_pairs, have been removed since; the packs have them. Commit dfc47ad is
# the last that makes docs_pairs, the same rows: to compute the study again, check it out.
title = "the paper's claims, judged at this size"
corpus = {'config': 'configs/corpora/docs.py'}
seeds = (0, 1, 2, 3, 4, 5)
every_run = {'config': 'configs/tiny.py', 'warmup_steps': 100}
runs = {
    # Lengths share a trunk of constant rate, each with a decay over its last fifth.
    'clm-14400': {'lr': 2e-3, 'phases': (('clm', 14_400),)},
    'mlm-14400': {'lr': 3e-3, 'phases': (('mlm', 14_400),)},
    'clm25-mlm-14400': {'lr': 2e-3, 'phases': (('clm', 3_600), ('mlm', 10_800)),
                        'branch_from': 'clm-14400/3600'},
    'clm-1800': {'lr': 2e-3, 'phases': (('clm', 1_800),), 'branch_from': 'clm-14400/1440'},
    'mlm-1800': {'lr': 3e-3, 'phases': (('mlm', 1_800),), 'branch_from': 'mlm-14400/1440'},
    'clm25-mlm-1800': {'lr': 2e-3, 'phases': (('clm', 450), ('mlm', 1_350)), 'branch_from': 'clm-14400/450'},
    'clm-3600': {'lr': 2e-3, 'phases': (('clm', 3_600),), 'branch_from': 'clm-14400/2880'},
    'mlm-3600': {'lr': 3e-3, 'phases': (('mlm', 3_600),), 'branch_from': 'mlm-14400/2880'},
    'clm25-mlm-3600': {'lr': 2e-3, 'phases': (('clm', 900), ('mlm', 2_700)), 'branch_from': 'clm-14400/900'},
    'clm-7200': {'lr': 2e-3, 'phases': (('clm', 7_200),), 'branch_from': 'clm-14400/5760'},
    'mlm-7200': {'lr': 3e-3, 'phases': (('mlm', 7_200),), 'branch_from': 'mlm-14400/5760'},
    'clm25-mlm-7200': {'lr': 2e-3, 'phases': (('clm', 1_800), ('mlm', 5_400)),
                       'branch_from': 'clm-14400/1800'},
    # beside the ladder: more CLM; 1,800 steps more of MLM, after a decayed model's rows; other masks
    'clm75-mlm-3600': {'lr': 2e-3, 'phases': (('clm', 2_700), ('mlm', 900)), 'branch_from': 'clm-14400/2700'},
    'clm-then-mlm': {'lr': 3e-3, 'phases': (('mlm', 1_800),), 'first_row': 7_200,
                     'weights_from': 'clm-3600/3600'},
    'mlm-then-mlm': {'lr': 3e-3, 'phases': (('mlm', 1_800),), 'first_row': 7_200,
                     'weights_from': 'mlm-3600/3600'},
    'mlm20-3600': {'lr': 3e-3, 'phases': (('mlm', 3_600),), 'mask_ratio': 0.2},
    'mlm50-3600': {'lr': 3e-3, 'phases': (('mlm', 3_600),), 'mask_ratio': 0.5},
}
ladder = {
    'CLM': ('clm-1800', 'clm-3600', 'clm-7200', 'clm-14400'),
    'MLM': ('mlm-1800', 'mlm-3600', 'mlm-7200', 'mlm-14400'),
    'CLM, then MLM': ('clm25-mlm-1800', 'clm25-mlm-3600', 'clm25-mlm-7200', 'clm25-mlm-14400'),
}
# Code words: one epoch; retrieval and pairs, which have fewer rows: two. The rates are tuned for each arm.
every_task = {'steps': 0}
tasks = (
    {'models': ('clm-*00',), 'config': 'configs/tasks/docs_tc.py', 'lrs': (4e-3,)},
    {'models': ('mlm*00', 'mlm-then-mlm', 'untrained'), 'config': 'configs/tasks/docs_tc.py', 'lrs': (4e-3,)},
    {'models': ('clm25-*', 'clm75-*', 'clm-then-mlm'), 'config': 'configs/tasks/docs_tc.py', 'lrs': (2e-3,)},
    {'models': ('clm-*00',), 'config': 'configs/tasks/docs_ir.py', 'epochs': 2, 'lrs': (1e-3,)},
    {'models': ('mlm*00', 'mlm-then-mlm', 'untrained'), 'config': 'configs/tasks/docs_ir.py', 'epochs': 2,
     'lrs': (2e-3,)},
    {'models': ('clm25-*', 'clm75-*', 'clm-then-mlm'), 'config': 'configs/tasks/docs_ir.py', 'epochs': 2,
     'lrs': (1e-3,)},
    {'models': ('clm-*00',), 'kind': 'SC', 'dataset': 'docs_pairs', 'source': 'docs',
     'template': 'Summary: {summary}\nDetail: {detail}', 'labels': ('other', 'same'),
     'epochs': 2, 'lrs': (5e-4,)},
    {'models': ('mlm*00', 'mlm-then-mlm', 'untrained'), 'kind': 'SC', 'dataset': 'docs_pairs',
     'source': 'docs', 'template': 'Summary: {summary}\nDetail: {detail}', 'labels': ('other', 'same'),
     'epochs': 2, 'lrs': (1e-3,)},
    {'models': ('clm25-*', 'clm75-*', 'clm-then-mlm'), 'kind': 'SC', 'dataset': 'docs_pairs',
     'source': 'docs', 'template': 'Summary: {summary}\nDetail: {detail}', 'labels': ('other', 'same'),
     'epochs': 2, 'lrs': (5e-4,)},
    # four times the middle rate, and a quarter of it
    {'models': ('clm-3600', 'mlm-3600'), 'config': 'configs/tasks/docs_tc.py', 'lrs': (5e-4, 2e-3, 8e-3),
     'variant': 'rates'},
    {'models': ('clm-3600', 'mlm-3600'), 'config': 'configs/tasks/docs_ir.py', 'epochs': 2,
     'lrs': (5e-4, 2e-3, 8e-3), 'variant': 'rates'},
    # controls: the causal mask left on; the embedding table alone
    {'models': ('clm-3600', 'clm-14400'), 'config': 'configs/tasks/docs_tc.py', 'lrs': (4e-3,),
     'causal': True,
     'variant': 'causal'},
    {'models': ('clm-3600', 'clm-14400'), 'config': 'configs/tasks/docs_ir.py', 'epochs': 2, 'lrs': (1e-3,),
     'causal': True, 'variant': 'causal'},
    {'models': ('clm-14400', 'clm25-mlm-14400'), 'config': 'configs/tasks/docs_ir.py', 'epochs': 2,
     'lrs': (1e-3,), 'layers': 0, 'variant': 'embedding'},
    {'models': ('mlm-14400',), 'config': 'configs/tasks/docs_ir.py', 'epochs': 2, 'lrs': (2e-3,), 'layers': 0,
     'variant': 'embedding'},
)
shown = ('docs_tc', 'docs_ir')    # docs_pairs has been removed
finetuning_seeds = 3
rules = 1    # as they were when this was frozen
# One primary contrast for each of the paper's claims that can be tested here.
# ratio: retrieval likes more masks. rate: what the outer rates lose to the middle one, MLM less CLM.
contrasts = {
    'end': {'rule': 'better', 'weights': {'mlm-14400': 1, 'clm-14400': -1}, 'datasets': ('docs_pairs',)},
    'level': {'rule': 'no_difference', 'weights': {'clm-14400': 1, 'mlm-14400': -1},
              'datasets': ('docs_tc',)},
    'ratio': {'rule': 'better', 'weights': {'mlm50-3600': 1, 'mlm20-3600': -1}, 'datasets': ('docs_ir',)},
    'early': {'rule': 'better', 'weights': {'clm-1800': 1, 'mlm-1800': -1},
              'datasets': ('docs_tc', 'docs_ir', 'docs_pairs')},
    'rate': {'rule': 'better', 'weights': {
        'mlm-3600+rates@2e-3': 1, 'mlm-3600+rates@5e-4': -0.5, 'mlm-3600+rates@8e-3': -0.5,
        'clm-3600+rates@2e-3': -1, 'clm-3600+rates@5e-4': 0.5, 'clm-3600+rates@8e-3': 0.5},
        'datasets': ('docs_tc', 'docs_ir')},
    'both': {'rule': 'at_least', 'weights': {
        'clm25-mlm-1800': 0.25, 'clm25-mlm-3600': 0.25, 'clm25-mlm-7200': 0.25, 'clm25-mlm-14400': 0.25,
        'mlm-1800': -0.25, 'mlm-3600': -0.25, 'mlm-7200': -0.25, 'mlm-14400': -0.25},
        'datasets': ('docs_tc', 'docs_ir', 'docs_pairs')},
    'continued': {'rule': 'better', 'weights': {'clm-then-mlm': 1, 'mlm-then-mlm': -1},
                  'datasets': ('docs_tc', 'docs_ir', 'docs_pairs')},
}

# Can what a phase of CLM gives MLM be counted? {CLM, MLM, a quarter of CLM and then MLM} x {random, counted
# first embeddings} x {AdamW, Muon}: 0.9 M parameters, 1,800 steps (1.8 M tokens of the demo's texts); and for
# MLM, CLM then MLM, and MLM from counted embeddings 7,200 steps (7.4 M tokens, 2.4 passes). Six seeds that
# no pilot and no tuning has had, two CPU cores. Each arm's rates are those that studies/counts_tuning chose,
# by training rows that were held out; 7,200 steps take those of 1,800. Of MLM under AdamW both rates scored
# alike there (41.1 and 41.0): the rule took 1.5e-3, though 3e-3 has the lower loss. CLM then MLM under Muon
# is at the edge of its grid. Rows, tasks and contrasts were committed before the first of these runs.
title = "counted embeddings, and a phase of CLM"
corpus = {'config': 'configs/corpora/docs.py'}
seeds = (10, 11, 12, 13, 14, 15)
every_run = {'config': 'configs/tiny.py', 'warmup_steps': 100, 'save_every': 0}
runs = {
    'clm-1800': {'lr': 1.5e-3,
        'phases': (('clm', 1_800),)},
    'mlm-1800': {'lr': 1.5e-3,
        'phases': (('mlm', 1_800),),
        'save_at': (300, 600)},
    'clm25-mlm-1800': {'lr': 1.5e-3,
        'phases': (('clm', 450), ('mlm', 1_350)),
        'branch_from': 'clm-1800/450',
        'save_at': (600,)},
    'counts-clm-1800': {'embedding_init': 'counts', 'lr': 1.5e-3,
        'phases': (('clm', 1_800),)},
    'counts-mlm-1800': {'embedding_init': 'counts', 'lr': 1.5e-3,
        'phases': (('mlm', 1_800),),
        'save_at': (300, 600)},
    'counts-clm25-mlm-1800': {'embedding_init': 'counts', 'lr': 1.5e-3,
        'phases': (('clm', 450), ('mlm', 1_350)),
        'branch_from': 'counts-clm-1800/450'},
    'muon-clm-1800': {'optimizer': 'muon', 'lr': 1.5e-3,
        'phases': (('clm', 1_800),)},
    'muon-mlm-1800': {'optimizer': 'muon', 'lr': 3e-3,
        'phases': (('mlm', 1_800),),
        'save_at': (300, 600)},
    'muon-clm25-mlm-1800': {'optimizer': 'muon', 'lr': 6e-3,
        'phases': (('clm', 450), ('mlm', 1_350)),
        'save_at': (600,)},
    'muon-counts-clm-1800': {'optimizer': 'muon', 'embedding_init': 'counts', 'lr': 1.5e-3,
        'phases': (('clm', 1_800),)},
    'muon-counts-mlm-1800': {'optimizer': 'muon', 'embedding_init': 'counts', 'lr': 1.5e-3,
        'phases': (('mlm', 1_800),),
        'save_at': (300, 600)},
    'muon-counts-clm25-mlm-1800': {'optimizer': 'muon', 'embedding_init': 'counts', 'lr': 1.5e-3,
        'phases': (('clm', 450), ('mlm', 1_350)),
        'branch_from': 'muon-counts-clm-1800/450'},
    'mlm-7200': {'lr': 1.5e-3,
        'phases': (('mlm', 7_200),)},
    'clm25-mlm-7200': {'lr': 1.5e-3,
        'phases': (('clm', 1_800), ('mlm', 5_400))},
    'counts-mlm-7200': {'embedding_init': 'counts', 'lr': 1.5e-3,
        'phases': (('mlm', 7_200),)},
    'muon-mlm-7200': {'optimizer': 'muon', 'lr': 3e-3,
        'phases': (('mlm', 7_200),)},
    'muon-clm25-mlm-7200': {'optimizer': 'muon', 'lr': 6e-3,
        'phases': (('clm', 1_800), ('mlm', 5_400))},
    'muon-counts-mlm-7200': {'optimizer': 'muon', 'embedding_init': 'counts', 'lr': 1.5e-3,
        'phases': (('mlm', 7_200),)},
}
ladder = {
    'MLM, AdamW': ('mlm-1800', 'mlm-7200'),
    'CLM then MLM, AdamW': ('clm25-mlm-1800', 'clm25-mlm-7200'),
    'counts then MLM, AdamW': ('counts-mlm-1800', 'counts-mlm-7200'),
    'MLM, Muon': ('muon-mlm-1800', 'muon-mlm-7200'),
    'CLM then MLM, Muon': ('muon-clm25-mlm-1800', 'muon-clm25-mlm-7200'),
    'counts then MLM, Muon': ('muon-counts-mlm-1800', 'muon-counts-mlm-7200'),
}
finetuning_seeds = 2
every_task = {'steps': 0}
tasks = (
    {'config': 'configs/tasks/docs_tc.py', 'lrs': (2e-3,), 'models': (
        'clm-1800', 'mlm-1800', 'clm25-mlm-1800', 'counts-clm-1800', 'counts-clm25-mlm-1800',
        'muon-clm-1800', 'muon-mlm-1800', 'muon-counts-clm-1800', 'muon-counts-mlm-1800',
        'muon-counts-clm25-mlm-1800', 'mlm-7200', 'clm25-mlm-7200', 'muon-mlm-7200',
        'muon-counts-mlm-7200',)},
    {'config': 'configs/tasks/docs_tc.py', 'lrs': (4e-3,), 'models': (
        'counts-mlm-1800', 'muon-clm25-mlm-1800', 'counts-mlm-7200', 'muon-clm25-mlm-7200', 'untrained',)},
    {'config': 'configs/tasks/docs_ir.py', 'epochs': 2, 'lrs': (1e-3,), 'models': (
        'clm-1800', 'mlm-1800', 'clm25-mlm-1800', 'counts-clm-1800', 'counts-mlm-1800',
        'counts-clm25-mlm-1800', 'muon-clm-1800', 'muon-counts-clm-1800', 'muon-counts-mlm-1800',
        'muon-counts-clm25-mlm-1800', 'mlm-7200', 'clm25-mlm-7200', 'counts-mlm-7200',
        'muon-counts-mlm-7200',)},
    {'config': 'configs/tasks/docs_ir.py', 'epochs': 2, 'lrs': (2e-3,), 'models': (
        'muon-mlm-1800', 'muon-clm25-mlm-1800', 'muon-mlm-7200', 'muon-clm25-mlm-7200', 'untrained',)},
    {'config': 'configs/tasks/wn_sc.py', 'epochs': 6, 'lrs': (2e-3,), 'models': (
        'clm-1800', 'mlm-1800', 'clm25-mlm-1800', 'counts-clm-1800', 'counts-mlm-1800',
        'counts-clm25-mlm-1800', 'muon-clm-1800', 'muon-mlm-1800', 'muon-clm25-mlm-1800',
        'muon-counts-clm-1800', 'muon-counts-mlm-1800', 'muon-counts-clm25-mlm-1800', 'mlm-7200',
        'clm25-mlm-7200', 'counts-mlm-7200', 'muon-mlm-7200', 'muon-clm25-mlm-7200',
        'muon-counts-mlm-7200', 'untrained',)},
    # late interaction, at the rates of cosines of means
    {'config': 'configs/tasks/docs_ir.py', 'score': 'maxsim', 'epochs': 2, 'lrs': (1e-3,), 'models': (
        'mlm-1800', 'clm25-mlm-1800', 'counts-mlm-1800', 'muon-counts-mlm-1800',)},
    {'config': 'configs/tasks/docs_ir.py', 'score': 'maxsim', 'epochs': 2, 'lrs': (2e-3,), 'models': (
        'muon-mlm-1800', 'muon-clm25-mlm-1800',)},
)
# What was expected. Counts then MLM minus MLM: docs_ir +10 to +18 points after 1,800 steps under either
# optimizer, +3 to +7 after 7,200. Counts then MLM minus CLM then MLM: a lower held-out loss after 1,800 steps
# under both optimizers; in the mean of tasks above 0 under both, for retrieval. Counts, CLM then MLM is no
# better in loss than counts then MLM. Late interaction: CLM then MLM above MLM. Pilots of one to three other
# seeds had shown this much: docs_ir 28 where MLM had 12, CLM then MLM 17 (AdamW); 37, 20 and 22 (Muon).
contrasts = {
    'counts, AdamW, 1,800': {'rule': 'better',
        'weights': {'counts-mlm-1800': 1, 'mlm-1800': -1},
        'datasets': ('docs_tc', 'docs_ir', 'wn_sc')},
    'counts, AdamW, 7,200': {'rule': 'better',
        'weights': {'counts-mlm-7200': 1, 'mlm-7200': -1},
        'datasets': ('docs_tc', 'docs_ir', 'wn_sc')},
    'counts, Muon, 1,800': {'rule': 'better',
        'weights': {'muon-counts-mlm-1800': 1, 'muon-mlm-1800': -1},
        'datasets': ('docs_tc', 'docs_ir', 'wn_sc')},
    'counts, Muon, 7,200': {'rule': 'better',
        'weights': {'muon-counts-mlm-7200': 1, 'muon-mlm-7200': -1},
        'datasets': ('docs_tc', 'docs_ir', 'wn_sc')},
    'counts or CLM, AdamW, 1,800': {'rule': 'better',
        'weights': {'counts-mlm-1800': 1, 'clm25-mlm-1800': -1},
        'datasets': ('docs_tc', 'docs_ir', 'wn_sc')},
    'counts or CLM, AdamW, 7,200': {'rule': 'better',
        'weights': {'counts-mlm-7200': 1, 'clm25-mlm-7200': -1},
        'datasets': ('docs_tc', 'docs_ir', 'wn_sc')},
    'counts or CLM, Muon, 1,800': {'rule': 'better',
        'weights': {'muon-counts-mlm-1800': 1, 'muon-clm25-mlm-1800': -1},
        'datasets': ('docs_tc', 'docs_ir', 'wn_sc')},
    'counts or CLM, Muon, 7,200': {'rule': 'better',
        'weights': {'muon-counts-mlm-7200': 1, 'muon-clm25-mlm-7200': -1},
        'datasets': ('docs_tc', 'docs_ir', 'wn_sc')},
    'CLM after counts, AdamW, 1,800': {'rule': 'better',
        'weights': {'counts-clm25-mlm-1800': 1, 'counts-mlm-1800': -1},
        'datasets': ('docs_tc', 'docs_ir', 'wn_sc')},
    'CLM after counts, Muon, 1,800': {'rule': 'better',
        'weights': {'muon-counts-clm25-mlm-1800': 1, 'muon-counts-mlm-1800': -1},
        'datasets': ('docs_tc', 'docs_ir', 'wn_sc')},
    'MaxSim, AdamW': {'rule': 'better',
        'weights': {'clm25-mlm-1800+maxsim': 1, 'mlm-1800+maxsim': -1}, 'datasets': ('docs_ir',)},
    'MaxSim, Muon': {'rule': 'better',
        'weights': {'muon-clm25-mlm-1800+maxsim': 1, 'muon-mlm-1800+maxsim': -1}, 'datasets': ('docs_ir',)},
}

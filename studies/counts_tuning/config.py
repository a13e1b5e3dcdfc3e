# Which settings studies/counts takes: six arms (CLM, MLM, a quarter of CLM and then MLM, each from random and
# from counted embeddings), under AdamW and Muon (its matrices at 6.7 times the rate), on the demo's texts,
# 1,800 steps. Two seeds that the study does not have. A rate is chosen by what is judged, scores on training
# rows that are held out, and not by an arm's own loss. Two rates were tried first, 1.5e-3 and 3e-3. Where the
# better one was ahead by more than half a point, one more beyond it was tried for the arms that the study
# sets beside each other in its first contrasts.
corpus = {'config': 'configs/corpora/docs.py'}
seeds = (100, 101)
every_run = {'config': 'configs/tiny.py', 'warmup_steps': 100, 'save_every': 0}
runs = {
    'clm-1.5e-3': {'lr': 1.5e-3,
        'phases': (('clm', 1_800),)},
    'mlm-1.5e-3': {'lr': 1.5e-3,
        'phases': (('mlm', 1_800),)},
    'clm25-mlm-1.5e-3': {'lr': 1.5e-3,
        'phases': (('clm', 450), ('mlm', 1_350)), 'branch_from': 'clm-1.5e-3/450'},
    'counts-clm-1.5e-3': {'embedding_init': 'counts', 'lr': 1.5e-3,
        'phases': (('clm', 1_800),)},
    'counts-mlm-1.5e-3': {'embedding_init': 'counts', 'lr': 1.5e-3,
        'phases': (('mlm', 1_800),)},
    'counts-clm25-mlm-1.5e-3': {'embedding_init': 'counts', 'lr': 1.5e-3,
        'phases': (('clm', 450), ('mlm', 1_350)), 'branch_from': 'counts-clm-1.5e-3/450'},
    'clm-3e-3': {'lr': 3e-3,
        'phases': (('clm', 1_800),)},
    'mlm-3e-3': {'lr': 3e-3,
        'phases': (('mlm', 1_800),)},
    'clm25-mlm-3e-3': {'lr': 3e-3,
        'phases': (('clm', 450), ('mlm', 1_350)), 'branch_from': 'clm-3e-3/450'},
    'counts-clm-3e-3': {'embedding_init': 'counts', 'lr': 3e-3,
        'phases': (('clm', 1_800),)},
    'counts-mlm-3e-3': {'embedding_init': 'counts', 'lr': 3e-3,
        'phases': (('mlm', 1_800),)},
    'counts-clm25-mlm-3e-3': {'embedding_init': 'counts', 'lr': 3e-3,
        'phases': (('clm', 450), ('mlm', 1_350)), 'branch_from': 'counts-clm-3e-3/450'},
    'muon-clm-1.5e-3': {'optimizer': 'muon', 'lr': 1.5e-3,
        'phases': (('clm', 1_800),)},
    'muon-mlm-1.5e-3': {'optimizer': 'muon', 'lr': 1.5e-3,
        'phases': (('mlm', 1_800),)},
    'muon-clm25-mlm-1.5e-3': {'optimizer': 'muon', 'lr': 1.5e-3,
        'phases': (('clm', 450), ('mlm', 1_350)), 'branch_from': 'muon-clm-1.5e-3/450'},
    'muon-counts-clm-1.5e-3': {'optimizer': 'muon', 'embedding_init': 'counts', 'lr': 1.5e-3,
        'phases': (('clm', 1_800),)},
    'muon-counts-mlm-1.5e-3': {'optimizer': 'muon', 'embedding_init': 'counts', 'lr': 1.5e-3,
        'phases': (('mlm', 1_800),)},
    'muon-counts-clm25-mlm-1.5e-3': {'optimizer': 'muon', 'embedding_init': 'counts', 'lr': 1.5e-3,
        'phases': (('clm', 450), ('mlm', 1_350)), 'branch_from': 'muon-counts-clm-1.5e-3/450'},
    'muon-clm-3e-3': {'optimizer': 'muon', 'lr': 3e-3,
        'phases': (('clm', 1_800),)},
    'muon-mlm-3e-3': {'optimizer': 'muon', 'lr': 3e-3,
        'phases': (('mlm', 1_800),)},
    'muon-clm25-mlm-3e-3': {'optimizer': 'muon', 'lr': 3e-3,
        'phases': (('clm', 450), ('mlm', 1_350)), 'branch_from': 'muon-clm-3e-3/450'},
    'muon-counts-clm-3e-3': {'optimizer': 'muon', 'embedding_init': 'counts', 'lr': 3e-3,
        'phases': (('clm', 1_800),)},
    'muon-counts-mlm-3e-3': {'optimizer': 'muon', 'embedding_init': 'counts', 'lr': 3e-3,
        'phases': (('mlm', 1_800),)},
    'muon-counts-clm25-mlm-3e-3': {'optimizer': 'muon', 'embedding_init': 'counts', 'lr': 3e-3,
        'phases': (('clm', 450), ('mlm', 1_350)), 'branch_from': 'muon-counts-clm-3e-3/450'},
    'counts-mlm-7.5e-4': {'embedding_init': 'counts', 'lr': 7.5e-4,
        'phases': (('mlm', 1_800),)},
    'muon-counts-mlm-7.5e-4': {'optimizer': 'muon', 'embedding_init': 'counts', 'lr': 7.5e-4,
        'phases': (('mlm', 1_800),)},
    'muon-mlm-6e-3': {'optimizer': 'muon', 'lr': 6e-3,
        'phases': (('mlm', 1_800),)},
    'muon-clm25-mlm-6e-3': {'optimizer': 'muon', 'lr': 6e-3,
        'phases': (('clm', 450), ('mlm', 1_350))},
}
finetuning_seeds = 1
every_task = {'models': ('*e-3', '*e-4'), 'steps': 0}
tasks = (
    {'config': 'configs/tasks/docs_tc.py', 'lrs': (2e-3, 4e-3)},
    {'config': 'configs/tasks/docs_ir.py', 'epochs': 2, 'lrs': (1e-3, 2e-3)},
    {'config': 'configs/tasks/wn_sc.py', 'epochs': 6, 'lrs': (2e-3,)},      # one rate: it takes the most time
)
choose = 'held-out rows'
choices = {
    'clm': ('clm-1.5e-3', 'clm-3e-3'),
    'mlm': ('mlm-1.5e-3', 'mlm-3e-3'),
    'clm25-mlm': ('clm25-mlm-1.5e-3', 'clm25-mlm-3e-3'),
    'counts-clm': ('counts-clm-1.5e-3', 'counts-clm-3e-3'),
    'counts-mlm': ('counts-mlm-7.5e-4', 'counts-mlm-1.5e-3', 'counts-mlm-3e-3'),
    'counts-clm25-mlm': ('counts-clm25-mlm-1.5e-3', 'counts-clm25-mlm-3e-3'),
    'muon-clm': ('muon-clm-1.5e-3', 'muon-clm-3e-3'),
    'muon-mlm': ('muon-mlm-1.5e-3', 'muon-mlm-3e-3', 'muon-mlm-6e-3'),
    'muon-clm25-mlm': ('muon-clm25-mlm-1.5e-3', 'muon-clm25-mlm-3e-3', 'muon-clm25-mlm-6e-3'),
    'muon-counts-clm': ('muon-counts-clm-1.5e-3', 'muon-counts-clm-3e-3'),
    'muon-counts-mlm': ('muon-counts-mlm-7.5e-4', 'muon-counts-mlm-1.5e-3', 'muon-counts-mlm-3e-3'),
    'muon-counts-clm25-mlm': ('muon-counts-clm25-mlm-1.5e-3', 'muon-counts-clm25-mlm-3e-3'),
}

# Which learning rates studies/small takes: of pretraining by an arm's own held-out loss after
# 1,800 steps, of fine-tuning by validation after 3,600. Two pretraining seeds that the study does not have.
# The packs have docs_pairs, which is gone; commit dfc47ad is the last that makes it.
corpus = {'config': 'configs/corpora/docs.py'}
seeds = (100, 101)
every_run = {'config': 'configs/tiny.py', 'warmup_steps': 100}
runs = {
    'tune-clm-1e-3': {'phases': (('clm', 1_800),), 'lr': 1e-3},
    'tune-clm-2e-3': {'phases': (('clm', 1_800),), 'lr': 2e-3},
    'tune-clm-3e-3': {'phases': (('clm', 1_800),), 'lr': 3e-3},
    'tune-clm-4e-3': {'phases': (('clm', 1_800),), 'lr': 4e-3},
    'tune-mlm-1e-3': {'phases': (('mlm', 1_800),), 'lr': 1e-3},
    'tune-mlm-2e-3': {'phases': (('mlm', 1_800),), 'lr': 2e-3},
    'tune-mlm-3e-3': {'phases': (('mlm', 1_800),), 'lr': 3e-3},
    'tune-mlm-4e-3': {'phases': (('mlm', 1_800),), 'lr': 4e-3},
    'tune-clm450-mlm-1e-3': {'phases': (('clm', 450), ('mlm', 1_350)), 'lr': 1e-3},
    'tune-clm450-mlm-2e-3': {'phases': (('clm', 450), ('mlm', 1_350)), 'lr': 2e-3},
    'tune-clm450-mlm-3e-3': {'phases': (('clm', 450), ('mlm', 1_350)), 'lr': 3e-3},
    'tune-clm450-mlm-4e-3': {'phases': (('clm', 450), ('mlm', 1_350)), 'lr': 4e-3},
    'tune-clm-3600': {'phases': (('clm', 3_600),), 'lr': 2e-3},
    'tune-mlm-3600': {'phases': (('mlm', 3_600),), 'lr': 3e-3},
    'tune-clm25-mlm-3600': {'phases': (('clm', 900), ('mlm', 2_700)), 'lr': 2e-3},
}
finetuning_seeds = 1
# First 5e-4 to 4e-3; where the best was at an edge, the grid went on.
every_task = {'models': ('tune-*-3600',), 'steps': 0}
tasks = (
    {'config': 'configs/tasks/docs_tc.py', 'lrs': (5e-4, 1e-3, 2e-3, 4e-3, 8e-3)},
    {'config': 'configs/tasks/docs_ir.py', 'epochs': 2, 'lrs': (5e-4, 1e-3, 2e-3, 4e-3)},
    {'kind': 'SC', 'dataset': 'docs_pairs', 'source': 'docs',
     'template': 'Summary: {summary}\nDetail: {detail}', 'labels': ('other', 'same'),
     'epochs': 2, 'lrs': (1.25e-4, 2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3)},
)

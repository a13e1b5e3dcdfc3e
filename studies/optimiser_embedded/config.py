# The shortest length of studies/optimiser on texts that are on every machine: does CLM, then MLM, beat MLM
# under AdamW, and under Muon? Three seeds, about half an hour on two cores. Learning rates are those that
# studies/optimiser_tuning found on novels: these were not tuned here.
title = "the paper's claims, judged at this size"
corpus = {'config': 'configs/corpora/embedded.py'}
seeds = (0, 1, 2)
every_run = {'config': 'configs/tiny.py', 'warmup_steps': 100}
runs = {
    'mlm-1800': {'lr': 3e-3, 'phases': (('mlm', 1_800),)},
    'clm25-mlm-1800': {'lr': 1.5e-3, 'phases': (('clm', 450), ('mlm', 1_350))},
    'muon-mlm-1800': {'optimizer': 'muon', 'lr': 3e-3, 'phases': (('mlm', 1_800),)},
    'muon-clm25-mlm-1800': {'optimizer': 'muon', 'lr': 1.5e-3, 'phases': (('clm', 450), ('mlm', 1_350))},
}
finetuning_seeds = 1
every_task = {'steps': 0}
tasks = (
    {'models': ('*',), 'config': 'configs/tasks/docs_tc.py', 'lrs': (4e-3,)},
    {'models': ('mlm-1800',), 'config': 'configs/tasks/wn_sc.py', 'epochs': 2, 'lrs': (4e-3,)},
    {'models': ('muon-mlm-1800',), 'config': 'configs/tasks/wn_sc.py', 'epochs': 2, 'lrs': (2e-3,)},
    {'models': ('*clm25-mlm-1800',), 'config': 'configs/tasks/wn_sc.py', 'epochs': 2, 'lrs': (1e-3,)},
    {'models': ('*mlm-1800',), 'config': 'configs/tasks/docs_ir.py', 'epochs': 2, 'lrs': (2e-3,)},
)
rules = 1    # as they were when this was frozen
contrasts = {
    'interaction': {'rule': 'better',
        'weights': {'clm25-mlm-1800': 1, 'mlm-1800': -1, 'muon-clm25-mlm-1800': -1, 'muon-mlm-1800': 1},
        'datasets': ('docs_tc', 'wn_sc', 'docs_ir')},
    'both under AdamW': {'rule': 'better', 'weights': {'clm25-mlm-1800': 1, 'mlm-1800': -1},
        'datasets': ('docs_tc', 'wn_sc', 'docs_ir')},
    'both under Muon': {'rule': 'better', 'weights': {'muon-clm25-mlm-1800': 1, 'muon-mlm-1800': -1},
        'datasets': ('docs_tc', 'wn_sc', 'docs_ir')},
}

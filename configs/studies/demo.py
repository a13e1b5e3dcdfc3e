# The question in miniature, 11 to 16 minutes on two cores. 1,800 steps are 0.6 passes over the corpus: the
# early regime. Rows stand in an order that keeps both cores busy to the end.
corpus = {'config': 'configs/corpora/docs.py'}
every_run = {'config': 'configs/tiny.py', 'warmup_steps': 100}
runs = {
    'clm-1800': {'lr': 2e-3, 'phases': (('clm', 1_800),)},
    'clm25-mlm-1800': {'lr': 2e-3, 'phases': (('clm', 450), ('mlm', 1_350)), 'branch_from': 'clm-1800/450'},
    'mlm-1800': {'lr': 3e-3, 'phases': (('mlm', 1_800),)},
}
seeds = (0, 1)
every_task = {'models': ('*',), 'steps': 100, 'lrs': (1e-3,)}
tasks = (
    {'config': 'configs/tasks/docs_tc.py'},
    {'config': 'configs/tasks/docs_ir.py'},
)
finetuning_seeds = 3
contrasts = {
    'early': {'rule': 'better', 'weights': {'clm-1800': 1, 'mlm-1800': -1},
              'datasets': ('docs_tc', 'docs_ir')},
    'both': {'rule': 'at_least', 'weights': {'clm25-mlm-1800': 1, 'mlm-1800': -1},
             'datasets': ('docs_tc', 'docs_ir')},
}

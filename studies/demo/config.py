# The question in miniature, 7 minutes on two cores: is a quarter of CLM, then MLM, better than MLM alone? Two
# rows of small.py, which has six seeds, with one seed more. The size is the smallest that learns these tasks;
# 1,800 steps are that study's shortest length (0.6 passes over the corpus), where its arms are furthest
# apart; docs_tc and docs_ir are the tasks on which its seeds agree. Each core trains an arm; the longer task
# is first.
corpus = {'config': 'configs/corpora/docs.py'}
every_run = {'config': 'configs/tiny.py', 'warmup_steps': 100, 'val_every': 600}
runs = {
    'mlm-1800': {'lr': 3e-3, 'phases': (('mlm', 1_800),)},
    'clm25-mlm-1800': {'lr': 2e-3, 'phases': (('clm', 450), ('mlm', 1_350))},
}
seeds = (6,)
every_task = {'steps': 0}
tasks = (
    {'models': ('mlm-1800',), 'config': 'configs/tasks/docs_ir.py', 'epochs': 2, 'lrs': (2e-3,)},
    {'models': ('clm25-mlm-1800',), 'config': 'configs/tasks/docs_ir.py', 'epochs': 2, 'lrs': (1e-3,)},
    {'models': ('mlm-1800',), 'config': 'configs/tasks/docs_tc.py', 'lrs': (4e-3,)},
    {'models': ('clm25-mlm-1800',), 'config': 'configs/tasks/docs_tc.py', 'lrs': (2e-3,)},
)
finetuning_seeds = 1
contrasts = {
    'both': {'rule': 'at_least', 'weights': {'clm25-mlm-1800': 1, 'mlm-1800': -1},
             'datasets': ('docs_tc', 'docs_ir')},
}
beside = "studies/small/config.py"

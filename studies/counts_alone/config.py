# What do counted embeddings give without pretraining? The encoders of studies/counts before their first step
# (one step, at a learning rate of 1e-9), fine-tuned as there, at both rates that studies/counts_tuning tried,
# and the same with random embeddings. Written when four seeds of studies/counts were done, so it is a
# description, and has no contrasts.
title = "counted embeddings without pretraining"
corpus = {'config': 'configs/corpora/docs.py'}
seeds = (10, 11, 12)
every_run = {'config': 'configs/tiny.py', 'lr': 1e-9, 'warmup_steps': 0, 'decay_steps': 0, 'save_every': 0,
             'val_every': 1, 'val_rows': 64, 'phases': (('mlm', 1),)}
runs = {
    'counts-alone': {'embedding_init': 'counts'},
    'random-alone': {},
}
finetuning_seeds = 1
every_task = {'models': ('*-alone',), 'steps': 0}
tasks = (
    {'config': 'configs/tasks/docs_tc.py', 'lrs': (2e-3, 4e-3)},
    {'config': 'configs/tasks/docs_ir.py', 'epochs': 2, 'lrs': (1e-3, 2e-3)},
    {'config': 'configs/tasks/wn_sc.py', 'epochs': 6, 'lrs': (2e-3,)},
)

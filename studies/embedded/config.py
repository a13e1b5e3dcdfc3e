# Every embedded task, once: what models of 0.9 M parameters learn of it after 3.7 M tokens (0.6 passes) of
# documentation and of WordNet's definitions. One seed: README.md has the table, and no verdicts.
corpus = {'config': 'configs/corpora/embedded.py'}
every_run = {'config': 'configs/tiny.py', 'warmup_steps': 100}
runs = {
    'embedded-clm': {'lr': 2e-3, 'phases': (('clm', 3_600),)},
    'embedded-mlm': {'lr': 3e-3, 'phases': (('mlm', 3_600),)},
    'embedded-clm-mlm': {'lr': 2e-3, 'phases': (('clm', 900), ('mlm', 2_700)),
                         'branch_from': 'embedded-clm/900'},
}
# An epoch each at one rate: 375 steps of WordNet's tasks, 343 of docs_tc, 118 of docs_ir.
every_task = {'models': ('*',), 'steps': 0, 'lrs': (1e-3,)}
tasks = (
    {'config': 'configs/tasks/wn_sc.py'},
    {'config': 'configs/tasks/wn_pairs.py'},
    {'config': 'configs/tasks/wn_qa.py'},
    {'config': 'configs/tasks/wn_ir.py'},
    {'config': 'configs/tasks/docs_tc.py'},
    {'config': 'configs/tasks/docs_ir.py'},
)
finetuning_seeds = 1

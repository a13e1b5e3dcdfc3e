# studies/small on other text: does CLM keep its lead in retrieval? Wants novels in texts/novels, UNER's
# sentences in texts/uner_en, and SQuAD's questions over its paragraphs, in BEIR's layout, in texts/squad_ir.
# Two seeds, 66 minutes on two cores; validation chooses one of two rates. studies/novels/ has what came out.
title = "the paper's claims, judged at this size"
corpus = {'config': 'configs/corpora/folder.py', 'path': 'texts/novels', 'out': 'corpora/novels_docs',
          'val_permille': 20, 'held_out_by': 'verbatim'}
seeds = (0, 1)
every_run = {'config': 'configs/tiny.py', 'warmup_steps': 100}
runs = {
    'clm-7200': {'lr': 2e-3, 'phases': (('clm', 7_200),)},
    'mlm-7200': {'lr': 3e-3, 'phases': (('mlm', 7_200),)},
    'clm-1800': {'lr': 2e-3, 'phases': (('clm', 1_800),), 'branch_from': 'clm-7200/1440'},
    'mlm-1800': {'lr': 3e-3, 'phases': (('mlm', 1_800),), 'branch_from': 'mlm-7200/1440'},
}
ladder = {'CLM': ('clm-1800', 'clm-7200'), 'MLM': ('mlm-1800', 'mlm-7200')}
every_task = {'models': ('*',), 'steps': 0}
tasks = (
    {'config': 'configs/tasks/uner.py', 'data': 'texts/uner_en', 'tags': 'tags', 'lrs': (2e-3, 4e-3)},
    {'config': 'configs/tasks/example_ir.py', 'data': 'texts/squad_ir', 'dataset': 'squad_ir',
     'document': 'Document: {text}', 'lrs': (1e-3, 2e-3)},
)
finetuning_seeds = 2
rules = 1    # as they were when this was frozen
contrasts = {
    'early': {'rule': 'better', 'weights': {'clm-1800': 1, 'mlm-1800': -1},
              'datasets': ('uner_en', 'squad_ir')},
    'retrieval': {'rule': 'better', 'weights': {'clm-7200': 1, 'mlm-7200': -1}, 'datasets': ('squad_ir',)},
    'tagging': {'rule': 'better', 'weights': {'mlm-7200': 1, 'clm-7200': -1}, 'datasets': ('uner_en',)},
}

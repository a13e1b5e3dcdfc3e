# Were the rates of fine-tuning at fault? After 14.7 M tokens the MLM model of studies/optimiser that AdamW
# trained has the lowest held-out loss, and scores 1.8 points less than the one of Muon. Its rates of
# fine-tuning had been found after an eighth of the training. Here its row, Muon's, and CLM then MLM under
# AdamW are trained again, on one GPU in bf16, and fine-tuned at 1/4, 1/2, 1 and 2 of the rates of
# studies/optimiser. The rate is chosen on the third of the training rows that studies/hold_out.py holds out
# (`+choice`), by the mean of all seeds, and read on the test rows of the models without a variant.
title = "rates of fine-tuning at the end of studies/optimiser"
corpus = {'config': 'configs/corpora/folder.py', 'path': 'texts/novels', 'out': 'corpora/novels',
          'tokenizer': 'configs/corpora/embedded', 'val_permille': 20, 'held_out_by': 'verbatim'}
seeds = (0, 1, 2, 3, 4, 5)
every_run = {'config': 'configs/tiny.py', 'warmup_steps': 100}
runs = {
    'mlm-14400': {'lr': 3e-3, 'phases': (('mlm', 14_400),)},
    'clm25-mlm-14400': {'lr': 1.5e-3, 'phases': (('clm', 3_600), ('mlm', 10_800))},
    'muon-mlm-14400': {'optimizer': 'muon', 'lr': 3e-3, 'phases': (('mlm', 14_400),)},
}
finetuning_seeds = 2
every_task = {'steps': 0}
tasks = (
    # chosen on rows that are held out of training
    {'models': ('mlm-14400',), 'variant': 'choice', 'config': 'configs/tasks/ewt_pos.py',
     'data': 'texts/ewt_pos_tuning', 'tags': 'tags', 'lrs': (2e-3, 4e-3, 8e-3, 1.6e-2)},
    {'models': ('clm25-mlm-14400', 'muon-mlm-14400'), 'variant': 'choice',
     'config': 'configs/tasks/ewt_pos.py', 'data': 'texts/ewt_pos_tuning', 'tags': 'tags',
     'lrs': (1e-3, 2e-3, 4e-3, 8e-3)},
    {'models': ('mlm-14400',), 'variant': 'choice', 'config': 'configs/tasks/wn_sc.py',
     'data': 'texts/wn_sc_tuning', 'epochs': 2, 'lrs': (1e-3, 2e-3, 4e-3, 8e-3)},
    {'models': ('muon-mlm-14400',), 'variant': 'choice', 'config': 'configs/tasks/wn_sc.py',
     'data': 'texts/wn_sc_tuning', 'epochs': 2, 'lrs': (5e-4, 1e-3, 2e-3, 4e-3)},
    {'models': ('clm25-mlm-14400',), 'variant': 'choice', 'config': 'configs/tasks/wn_sc.py',
     'data': 'texts/wn_sc_tuning', 'epochs': 2, 'lrs': (2.5e-4, 5e-4, 1e-3, 2e-3)},
    {'models': ('*mlm-14400',), 'variant': 'choice', 'config': 'configs/tasks/example_ir.py',
     'data': 'texts/squad_ir_tuning', 'dataset': 'squad_ir', 'document': 'Document: {text}',
     'max_length': 128, 'lrs': (5e-4, 1e-3, 2e-3, 4e-3)},
    # scored on the rows of studies/optimiser
    {'models': ('mlm-14400',), 'config': 'configs/tasks/ewt_pos.py', 'data': 'texts/ewt_pos',
     'tags': 'tags', 'lrs': (2e-3, 4e-3, 8e-3, 1.6e-2)},
    {'models': ('clm25-mlm-14400', 'muon-mlm-14400'), 'config': 'configs/tasks/ewt_pos.py',
     'data': 'texts/ewt_pos', 'tags': 'tags', 'lrs': (1e-3, 2e-3, 4e-3, 8e-3)},
    {'models': ('mlm-14400',), 'config': 'configs/tasks/wn_sc.py', 'epochs': 2,
     'lrs': (1e-3, 2e-3, 4e-3, 8e-3)},
    {'models': ('muon-mlm-14400',), 'config': 'configs/tasks/wn_sc.py', 'epochs': 2,
     'lrs': (5e-4, 1e-3, 2e-3, 4e-3)},
    {'models': ('clm25-mlm-14400',), 'config': 'configs/tasks/wn_sc.py', 'epochs': 2,
     'lrs': (2.5e-4, 5e-4, 1e-3, 2e-3)},
    {'models': ('*mlm-14400',), 'config': 'configs/tasks/example_ir.py', 'data': 'texts/squad_ir',
     'dataset': 'squad_ir', 'document': 'Document: {text}', 'max_length': 128,
     'lrs': (5e-4, 1e-3, 2e-3, 4e-3)},
)

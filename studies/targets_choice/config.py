# Which settings studies/targets takes: of pretraining, the best of the grid of studies/targets_tuning
# (and of studies/optimiser_tuning), each with two seeds that the study does not have. The rule: of each
# arm the row whose own held-out loss after 1,800 steps (of CLM, of CLM at 40 %, else of MLM) is lowest in
# the mean of both seeds. AdamW's rows were trained in bf16 on one H200 (2026-11-27); the time there did
# not suffice for Muon's, which were trained in fp32 on two CPU cores
# (targets_tuning/machine.jsonl has their starts). `one-mlm-0.8-6e-3` was stopped there, too, and left
# out: in the grid it is a nat worse than `one-mlm-0.8-3e-3`. Of fine-tuning: with seed 100, the rate of
# the best validation on a third of the training rows, which studies/hold_out.py holds out, so that no
# scored split has been looked at; for this each chosen row was trained again on two CPU cores.
# Where the best of three rates was the least or the greatest, one more was tried, until it lay inside.
corpus = {'config': 'configs/corpora/folder.py', 'path': 'texts/novels', 'out': 'corpora/novels',
          'tokenizer': 'configs/corpora/embedded', 'val_permille': 20, 'held_out_by': 'verbatim'}
seeds = (100, 101)
every_run = {'config': 'configs/tiny.py', 'warmup_steps': 100}
runs = {
    'two-clm-4-6e-3': {'matrix_lr_ratio': 0.25, 'lr': 6e-3,
        'phases': (('clm', 1_800),)},
    'two-clm-16-1.2e-2': {'matrix_lr_ratio': 0.0625, 'lr': 1.2e-2,
        'phases': (('clm', 1_800),)},
    'two-clm-4-3e-3': {'matrix_lr_ratio': 0.25, 'lr': 3e-3,
        'phases': (('clm', 1_800),)},
    'two-clm40-4-6e-3': {'matrix_lr_ratio': 0.25, 'lr': 6e-3,
        'phases': (('clm_some', 1_800),)},
    'two-clm40-16-1.2e-2': {'matrix_lr_ratio': 0.0625, 'lr': 1.2e-2,
        'phases': (('clm_some', 1_800),)},
    'two-mlm-4-3e-3': {'matrix_lr_ratio': 0.25, 'lr': 3e-3,
        'phases': (('mlm', 1_800),)},
    'two-mlm-16-1.2e-2': {'matrix_lr_ratio': 0.0625, 'lr': 1.2e-2,
        'phases': (('mlm', 1_800),)},
    'two-mlm-4-6e-3': {'matrix_lr_ratio': 0.25, 'lr': 6e-3,
        'phases': (('mlm', 1_800),)},
    'two-clm25-mlm-4-6e-3': {'matrix_lr_ratio': 0.25, 'lr': 6e-3,
        'phases': (('clm', 450), ('mlm', 1_350)), 'branch_from': 'two-clm-4-6e-3/450'},
    'two-clm25-mlm-16-1.2e-2': {'matrix_lr_ratio': 0.0625, 'lr': 1.2e-2,
        'phases': (('clm', 450), ('mlm', 1_350)), 'branch_from': 'two-clm-16-1.2e-2/450'},
    'two-clm25-mlm-4-3e-3': {'matrix_lr_ratio': 0.25, 'lr': 3e-3,
        'phases': (('clm', 450), ('mlm', 1_350)), 'branch_from': 'two-clm-4-3e-3/450'},
    'two-clm40-mlm-4-6e-3': {'matrix_lr_ratio': 0.25, 'lr': 6e-3,
        'phases': (('clm_some', 450), ('mlm', 1_350)), 'branch_from': 'two-clm40-4-6e-3/450'},
    'two-clm40-mlm-16-1.2e-2': {'matrix_lr_ratio': 0.0625, 'lr': 1.2e-2,
        'phases': (('clm_some', 450), ('mlm', 1_350)), 'branch_from': 'two-clm40-16-1.2e-2/450'},
    'one-clm-0.95-3e-3': {'lr': 3e-3,
        'phases': (('clm', 1_800),)},
    'one-clm-0.95-1.5e-3': {'lr': 1.5e-3,
        'phases': (('clm', 1_800),)},
    'one-mlm-0.95-3e-3': {'lr': 3e-3,
        'phases': (('mlm', 1_800),)},
    'one-mlm-0.8-3e-3': {'beta2': 0.8, 'lr': 3e-3,
        'phases': (('mlm', 1_800),)},
    'one-clm25-mlm-0.95-1.5e-3': {'lr': 1.5e-3,
        'phases': (('clm', 450), ('mlm', 1_350)), 'branch_from': 'one-clm-0.95-1.5e-3/450'},
    'one-clm25-mlm-0.95-3e-3': {'lr': 3e-3,
        'phases': (('clm', 450), ('mlm', 1_350)), 'branch_from': 'one-clm-0.95-3e-3/450'},
    'muon-clm-0.42-1.2e-2': {'optimizer': 'muon', 'matrix_lr_ratio': 0.42, 'lr': 1.2e-2,
        'phases': (('clm', 1_800),)},
    'muon-clm-1.7-3e-3': {'optimizer': 'muon', 'matrix_lr_ratio': 1.7, 'lr': 3e-3,
        'phases': (('clm', 1_800),)},
    'muon-clm40-0.42-1.2e-2': {'optimizer': 'muon', 'matrix_lr_ratio': 0.42, 'lr': 1.2e-2,
        'phases': (('clm_some', 1_800),)},
    'muon-clm40-0.42-6e-3': {'optimizer': 'muon', 'matrix_lr_ratio': 0.42, 'lr': 6e-3,
        'phases': (('clm_some', 1_800),)},
    'muon-mlm-0.42-1.2e-2': {'optimizer': 'muon', 'matrix_lr_ratio': 0.42, 'lr': 1.2e-2,
        'phases': (('mlm', 1_800),)},
    'muon-mlm-0.42-2.4e-2': {'optimizer': 'muon', 'matrix_lr_ratio': 0.42, 'lr': 2.4e-2,
        'phases': (('mlm', 1_800),)},
    'muon-clm25-mlm-0.42-1.2e-2': {'optimizer': 'muon', 'matrix_lr_ratio': 0.42, 'lr': 1.2e-2,
        'phases': (('clm', 450), ('mlm', 1_350)), 'branch_from': 'muon-clm-0.42-1.2e-2/450'},
    'muon-clm25-mlm-1.7-3e-3': {'optimizer': 'muon', 'matrix_lr_ratio': 1.7, 'lr': 3e-3,
        'phases': (('clm', 450), ('mlm', 1_350)), 'branch_from': 'muon-clm-1.7-3e-3/450'},
    'muon-clm40-mlm-0.42-1.2e-2': {'optimizer': 'muon', 'matrix_lr_ratio': 0.42, 'lr': 1.2e-2,
        'phases': (('clm_some', 450), ('mlm', 1_350)), 'branch_from': 'muon-clm40-0.42-1.2e-2/450'},
    'muon-clm40-mlm-0.42-6e-3': {'optimizer': 'muon', 'matrix_lr_ratio': 0.42, 'lr': 6e-3,
        'phases': (('clm_some', 450), ('mlm', 1_350)), 'branch_from': 'muon-clm40-0.42-6e-3/450'},
}
finetuning_seeds = 1
every_task = {'steps': 0}
tasks = (
    {'config': 'configs/tasks/ewt_pos.py', 'data': 'texts/ewt_pos_tuning', 'tags': 'tags',
     'lrs': (2e-3, 4e-3, 8e-3), 'models': (
        'one-clm-0.95-3e-3', 'one-mlm-0.8-3e-3', 'one-clm25-mlm-0.95-3e-3', 'two-clm-4-6e-3',
        'two-mlm-4-3e-3', 'two-clm25-mlm-4-3e-3', 'two-clm40-mlm-4-6e-3', 'muon-*-0.42-1.2e-2')},
    {'config': 'configs/tasks/ewt_pos.py', 'data': 'texts/ewt_pos_tuning', 'tags': 'tags',
     'lrs': (2e-3, 4e-3, 8e-3, 1.6e-2), 'models': ('two-clm40-4-6e-3',)},
    {'config': 'configs/tasks/wn_sc.py', 'data': 'texts/wn_sc_tuning', 'epochs': 2,
     'lrs': (1e-3, 2e-3, 4e-3), 'models': (
        'one-mlm-0.8-3e-3', 'two-clm25-mlm-4-3e-3', 'two-clm40-mlm-4-6e-3', 'muon-*mlm-0.42-1.2e-2')},
    {'config': 'configs/tasks/wn_sc.py', 'data': 'texts/wn_sc_tuning', 'epochs': 2,
     'lrs': (1e-3, 2e-3, 4e-3, 8e-3), 'models': (
        'one-clm-0.95-3e-3', 'one-clm25-mlm-0.95-3e-3', 'two-clm-4-6e-3', 'two-mlm-4-3e-3',
        'muon-clm-0.42-1.2e-2')},
    {'config': 'configs/tasks/wn_sc.py', 'data': 'texts/wn_sc_tuning', 'epochs': 2,
     'lrs': (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2), 'models': ('muon-clm40-0.42-1.2e-2',)},
    {'config': 'configs/tasks/wn_sc.py', 'data': 'texts/wn_sc_tuning', 'epochs': 2,
     'lrs': (5e-4, 1e-3, 2e-3, 4e-3), 'models': ('two-clm40-4-6e-3',)},
    {'config': 'configs/tasks/example_ir.py', 'data': 'texts/squad_ir_tuning', 'dataset': 'squad_ir',
     'document': 'Document: {text}', 'max_length': 128, 'lrs': (1e-3, 2e-3, 4e-3), 'models': (
        'one-clm-0.95-3e-3', 'one-mlm-0.8-3e-3', 'one-clm25-mlm-0.95-3e-3', 'two-mlm-4-3e-3',
        'two-clm40-4-6e-3', 'two-clm40-mlm-4-6e-3')},
    {'config': 'configs/tasks/example_ir.py', 'data': 'texts/squad_ir_tuning', 'dataset': 'squad_ir',
     'document': 'Document: {text}', 'max_length': 128, 'lrs': (5e-4, 1e-3, 2e-3, 4e-3), 'models': (
        'two-clm-4-6e-3', 'two-clm25-mlm-4-3e-3', 'muon-clm-0.42-1.2e-2', 'muon-clm40-0.42-1.2e-2',
        'muon-mlm-0.42-1.2e-2', 'muon-clm25-mlm-0.42-1.2e-2')},
    {'config': 'configs/tasks/example_ir.py', 'data': 'texts/squad_ir_tuning', 'dataset': 'squad_ir',
     'document': 'Document: {text}', 'max_length': 128, 'lrs': (2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3),
     'models': ('muon-clm40-mlm-0.42-1.2e-2',)},
)

# Is it the objective, how often it is asked, or one rate for two things? {AdamW with one rate, AdamW with
# a rate of its own for the layers' matrices, Muon} x {CLM, CLM whose loss counts a random 40 % of
# positions, MLM at 40 %, a quarter of each CLM and then MLM}: 0.9 M parameters, 1.8 M tokens of novels,
# six seeds. Each arm has the settings that studies/targets_tuning and studies/targets_choice found for
# it. It wants the texts of studies/novels, and in texts/ewt_pos the tags of Universal Dependencies. Tasks
# and contrasts are frozen before the first of these runs is fine-tuned.
title = "objective, targets or rates"
corpus = {'config': 'configs/corpora/folder.py', 'path': 'texts/novels', 'out': 'corpora/novels',
          'tokenizer': 'configs/corpora/embedded', 'val_permille': 20, 'held_out_by': 'verbatim'}
seeds = (0, 1, 2, 3, 4, 5)
every_run = {'config': 'configs/tiny.py', 'warmup_steps': 100}
runs = {
    'one-clm': {'lr': 3e-3,
        'phases': (('clm', 1_800),)},
    'one-mlm': {'beta2': 0.8, 'lr': 3e-3,
        'phases': (('mlm', 1_800),)},
    'one-clm25-mlm': {'lr': 3e-3,
        'phases': (('clm', 450), ('mlm', 1_350)), 'branch_from': 'one-clm/450'},
    'two-clm': {'matrix_lr_ratio': 0.25, 'lr': 6e-3,
        'phases': (('clm', 1_800),)},
    'two-clm40': {'matrix_lr_ratio': 0.25, 'lr': 6e-3,
        'phases': (('clm_some', 1_800),)},
    'two-mlm': {'matrix_lr_ratio': 0.25, 'lr': 3e-3,
        'phases': (('mlm', 1_800),)},
    'two-clm25-mlm': {'matrix_lr_ratio': 0.25, 'lr': 3e-3,
        'phases': (('clm', 450), ('mlm', 1_350))},
    'two-clm40-mlm': {'matrix_lr_ratio': 0.25, 'lr': 6e-3,
        'phases': (('clm_some', 450), ('mlm', 1_350)), 'branch_from': 'two-clm40/450'},
    'muon-clm': {'optimizer': 'muon', 'matrix_lr_ratio': 0.42, 'lr': 1.2e-2,
        'phases': (('clm', 1_800),)},
    'muon-clm40': {'optimizer': 'muon', 'matrix_lr_ratio': 0.42, 'lr': 1.2e-2,
        'phases': (('clm_some', 1_800),)},
    'muon-mlm': {'optimizer': 'muon', 'matrix_lr_ratio': 0.42, 'lr': 1.2e-2,
        'phases': (('mlm', 1_800),)},
    'muon-clm25-mlm': {'optimizer': 'muon', 'matrix_lr_ratio': 0.42, 'lr': 1.2e-2,
        'phases': (('clm', 450), ('mlm', 1_350)), 'branch_from': 'muon-clm/450'},
    'muon-clm40-mlm': {'optimizer': 'muon', 'matrix_lr_ratio': 0.42, 'lr': 1.2e-2,
        'phases': (('clm_some', 450), ('mlm', 1_350)), 'branch_from': 'muon-clm40/450'},
}
finetuning_seeds = 2
every_task = {'steps': 0}

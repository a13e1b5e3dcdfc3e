# Which of three ratios of Muon's two rates CLM and MLM have in a contrast of studies/ratio: the one whose
# mean of three tasks is best on training rows that are held out, over two seeds that the study does not
# have. Rows and rates are those of the study, which says what they come from.
base = "../ratio/config.py"
title = "which of Muon's ratios is best by score"
seeds = (100, 101)
runs = {
    'clm-6.7': {'matrix_lr_ratio': 6.7, 'lr': 1.5e-3, 'phases': (('clm', 1_800),)},
    'mlm-6.7': {'matrix_lr_ratio': 6.7, 'lr': 3e-3, 'phases': (('mlm', 1_800),)},
    'clm-1.7': {'matrix_lr_ratio': 1.7, 'lr': 3e-3, 'phases': (('clm', 1_800),)},
    'mlm-1.7': {'matrix_lr_ratio': 1.7, 'lr': 6e-3, 'phases': (('mlm', 1_800),)},
    'clm-0.42': {'matrix_lr_ratio': 0.42, 'lr': 1.2e-2, 'phases': (('clm', 1_800),)},
    'mlm-0.42': {'matrix_lr_ratio': 0.42, 'lr': 1.2e-2, 'phases': (('mlm', 1_800),)},
}
tasks = (
    {'models': ('*',),
     'config': 'configs/tasks/ewt_pos.py', 'data': 'texts/ewt_pos', 'tags': 'tags', 'lrs': (4e-3,)},
    {'models': ('clm-6.7', 'clm-1.7'), 'config': 'configs/tasks/wn_sc.py', 'epochs': 6, 'lrs': (1e-3,)},
    {'models': ('mlm-*',), 'config': 'configs/tasks/wn_sc.py', 'epochs': 6, 'lrs': (2e-3,)},
    {'models': ('clm-0.42',), 'config': 'configs/tasks/wn_sc.py', 'epochs': 6, 'lrs': (4e-3,)},
    {'models': ('clm-*', 'mlm-0.42'),
     'config': 'configs/tasks/example_ir.py', 'data': 'texts/squad_ir', 'dataset': 'squad_ir',
     'document': 'Document: {text}', 'max_length': 128, 'lrs': (1e-3,)},
    {'models': ('mlm-6.7', 'mlm-1.7'),
     'config': 'configs/tasks/example_ir.py', 'data': 'texts/squad_ir', 'dataset': 'squad_ir',
     'document': 'Document: {text}', 'max_length': 128, 'lrs': (2e-3,)},
)
contrasts = {}
choose = 'held-out rows'
choices = {'CLM': ('clm-6.7', 'clm-1.7', 'clm-0.42'), 'MLM': ('mlm-6.7', 'mlm-1.7', 'mlm-0.42')}

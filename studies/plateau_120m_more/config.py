# What studies/plateau_120m leaves open, for whoever has a GPU: its arms with a second seed, MLM at two
# more rates, with a rate of its own for the layers' matrices and with beta2 0.8, and CLM with as many
# targets as MLM, then MLM. Not run yet: the time on the card ended `two-mlm-4`, the first, at step 450.
base = "../plateau_120m/config.py"
seeds = (0, 1)
runs = {
    'mlm-1e-3': {},
    'clm25-mlm': {'phases': (('clm', 150), ('mlm', 450))},
    'muon-mlm': {'optimizer': 'muon'},
    'muon-clm25-mlm': {'optimizer': 'muon', 'phases': (('clm', 150), ('mlm', 450))},
    'two-mlm-4': {'matrix_lr_ratio': 0.25, 'lr': 4e-3},
    'two-clm25-mlm-4': {'matrix_lr_ratio': 0.25, 'lr': 4e-3, 'phases': (('clm', 150), ('mlm', 450))},
    'two-mlm-16': {'matrix_lr_ratio': 0.0625, 'lr': 1.6e-2},
    'clm40-mlm': {'phases': (('clm_some', 150), ('mlm', 450))},
    'mlm-beta2-0.8': {'beta2': 0.8},
    'mlm-5e-4': {'lr': 5e-4},
    'mlm-2e-3': {'lr': 2e-3},
}

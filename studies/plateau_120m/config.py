# MLM's plateau at 116 M parameters and 32,768 tokens a step: does it wait there too, and what ends it?
# AdamW at three rates, with a rate of its own for the layers' matrices, and with beta2 0.8; Muon; CLM for a
# quarter, then MLM; and the same with as many targets as MLM has. For one GPU. It wants the texts of
# studies/novels.
corpus = {'config': 'configs/corpora/folder.py', 'path': 'texts/novels', 'out': 'corpora/novels',
          'tokenizer': 'configs/corpora/embedded', 'val_permille': 20, 'held_out_by': 'verbatim'}
seeds = (0, 1)
every_run = {'config': 'configs/plateau_120m.py'}
runs = {
    'mlm-5e-4': {'lr': 5e-4},
    'mlm-1e-3': {},
    'mlm-2e-3': {'lr': 2e-3},
    'two-mlm-4': {'matrix_lr_ratio': 0.25, 'lr': 4e-3},
    'two-mlm-16': {'matrix_lr_ratio': 0.0625, 'lr': 1.6e-2},
    'mlm-beta2-0.8': {'beta2': 0.8},
    'muon-mlm': {'optimizer': 'muon'},
    'clm25-mlm': {'phases': (('clm', 150), ('mlm', 450))},
    'two-clm25-mlm-4': {'matrix_lr_ratio': 0.25, 'lr': 4e-3, 'phases': (('clm', 150), ('mlm', 450))},
    'muon-clm25-mlm': {'optimizer': 'muon', 'phases': (('clm', 150), ('mlm', 450))},
    'clm40-mlm': {'phases': (('clm_some', 150), ('mlm', 450))},
}
ladder = {}
tasks = ()
contrasts = {}

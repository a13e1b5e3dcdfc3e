# What moves the plateau of MLM under AdamW, on which it predicts how frequent each token is and no more:
# a setting or two at a time beside `plain`, at equal tokens, with the seeds of studies/optimiser_tuning.
corpus = {'config': 'configs/corpora/folder.py', 'path': 'texts/novels', 'out': 'corpora/novels',
          'tokenizer': 'configs/corpora/embedded', 'val_permille': 20, 'held_out_by': 'verbatim'}
seeds = (100, 101)
every_run = {'config': 'configs/tiny.py', 'warmup_steps': 100, 'lr': 3e-3}
runs = {
    'plain': {'phases': (('mlm', 1_800),)},
    'initializer-0.06': {'phases': (('mlm', 1_800),), 'initializer_range': 0.06},
    'initializer-0.1': {'phases': (('mlm', 1_800),), 'initializer_range': 0.1},
    'rate-7.5e-4': {'phases': (('mlm', 1_800),), 'lr': 7.5e-4},
    'eps-1e-8': {'phases': (('mlm', 1_800),), 'eps': 1e-8},
    'eps-1e-4': {'phases': (('mlm', 1_800),), 'eps': 1e-4},
    'eps-1e-3': {'phases': (('mlm', 1_800),), 'eps': 1e-3},
    'beta2-0.5': {'phases': (('mlm', 1_800),), 'beta2': 0.5},
    'beta2-0.8-warmup-10': {'phases': (('mlm', 1_800),), 'beta2': 0.8, 'warmup_steps': 10},
    'beta2-0.8': {'phases': (('mlm', 1_800),), 'beta2': 0.8},
    'beta2-0.9': {'phases': (('mlm', 1_800),), 'beta2': 0.9},
    'beta2-0.99': {'phases': (('mlm', 1_800),), 'beta2': 0.99},
    'beta2-0.999': {'phases': (('mlm', 1_800),), 'beta2': 0.999},
    'warmup-10': {'phases': (('mlm', 1_800),), 'warmup_steps': 10},
    'warmup-600': {'phases': (('mlm', 1_800),), 'warmup_steps': 600},
    'untied': {'phases': (('mlm', 1_800),), 'tie_word_embeddings': False},
    'batch-4096': {'phases': (('mlm', 450),), 'rows_per_step': 8, 'warmup_steps': 25},
    'batch-4096-6e-3': {'phases': (('mlm', 450),), 'rows_per_step': 8, 'warmup_steps': 25, 'lr': 6e-3},
}

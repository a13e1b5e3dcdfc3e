# Rows of the speedrun (README.md): its texts, four seeds, at most 1.5 M parameters. One row:
#     python studies/run.py speedrun --row=mlm
#     python speedrun/referee.py speedrun/out/mlm-s*
corpus = {'config': 'configs/corpora/speedrun.py'}
seeds = (0, 1, 2, 3)
every_run = {'config': 'configs/tiny.py', 'val_rows': 128, 'save_every': 0, 'device': 'cpu'}
runs = {
    'mlm': {'lr': 3e-3, 'phases': (('mlm', 7_200),)},
    'mlm-4800': {'lr': 3e-3, 'phases': (('mlm', 4_800),)},
    'mlm-3600': {'lr': 3e-3, 'phases': (('mlm', 3_600),)},          # of the track `transfer`
    'muon-mlm': {'optimizer': 'muon', 'lr': 3e-3, 'phases': (('mlm', 3_900),)},
    'clm25-mlm': {'lr': 1.5e-3, 'phases': (('clm', 900), ('mlm', 2_700))},
    'muon-clm25-mlm': {'optimizer': 'muon', 'lr': 1.5e-3, 'phases': (('clm', 525), ('mlm', 1_575))},
    # each changes one thing of the last
    'mask20': {'optimizer': 'muon', 'lr': 1.5e-3, 'phases': (('clm', 525), ('mlm', 1_575)),
               'mask_ratio': 0.2},
    'mask30': {'optimizer': 'muon', 'lr': 1.5e-3, 'phases': (('clm', 525), ('mlm', 1_575)),
               'mask_ratio': 0.3},
    'mask50': {'optimizer': 'muon', 'lr': 1.5e-3, 'phases': (('clm', 525), ('mlm', 1_575)),
               'mask_ratio': 0.5},
    'untied': {'optimizer': 'muon', 'lr': 1.5e-3, 'phases': (('clm', 525), ('mlm', 1_575)),
               'tie_word_embeddings': False},
    'mixed': {'optimizer': 'muon', 'lr': 1.5e-3, 'phases': (('clm', 1), ('mlm', 3)), 'repeat': 525},
    # five things at once: more CLM, a wider and deeper model, the embeddings' rate and memory, a longer decay
    'quick': {'optimizer': 'muon', 'lr': 6e-3, 'matrix_lr_ratio': 1.67, 'beta2': 0.999, 'decay_steps': 0.35,
              'num_hidden_layers': 3, 'intermediate_size': 512, 'phases': (('clm', 420), ('mlm', 630))},
    'quick-1400': {'optimizer': 'muon', 'lr': 6e-3, 'matrix_lr_ratio': 1.67, 'beta2': 0.999,
                   'decay_steps': 0.35, 'num_hidden_layers': 3, 'intermediate_size': 512,
                   'phases': (('clm', 560), ('mlm', 840))},
    'quick-3600': {'optimizer': 'muon', 'lr': 6e-3, 'matrix_lr_ratio': 1.67, 'beta2': 0.999,
                   'decay_steps': 0.35, 'num_hidden_layers': 3, 'intermediate_size': 512,
                   'phases': (('clm', 1_440), ('mlm', 2_160))},     # of the track `transfer`
    # each changes one thing of quick-1400: its length, no CLM, CLM with as many targets as MLM
    'quick-900': {'optimizer': 'muon', 'lr': 6e-3, 'matrix_lr_ratio': 1.67, 'beta2': 0.999,
                  'decay_steps': 0.35, 'num_hidden_layers': 3, 'intermediate_size': 512,
                  'phases': (('clm', 360), ('mlm', 540))},
    'quick-1200': {'optimizer': 'muon', 'lr': 6e-3, 'matrix_lr_ratio': 1.67, 'beta2': 0.999,
                   'decay_steps': 0.35, 'num_hidden_layers': 3, 'intermediate_size': 512,
                   'phases': (('clm', 480), ('mlm', 720))},
    'quick-mlm': {'optimizer': 'muon', 'lr': 6e-3, 'matrix_lr_ratio': 1.67, 'beta2': 0.999,
                  'decay_steps': 0.35, 'num_hidden_layers': 3, 'intermediate_size': 512,
                  'phases': (('mlm', 1_400),)},
    'quick-clm40-mlm': {'optimizer': 'muon', 'lr': 6e-3, 'matrix_lr_ratio': 1.67, 'beta2': 0.999,
                        'decay_steps': 0.35, 'num_hidden_layers': 3, 'intermediate_size': 512,
                        'phases': (('clm_some', 560), ('mlm', 840))},
    # first embeddings counted on what the run reads, and no CLM; of the track `transfer`, too
    'counts-750': {'optimizer': 'muon', 'embedding_init': 'counts', 'lr': 6e-3, 'matrix_lr_ratio': 1.67,
                   'beta2': 0.999, 'decay_steps': 0.35, 'num_hidden_layers': 3, 'intermediate_size': 512,
                   'phases': (('mlm', 750),)},
}

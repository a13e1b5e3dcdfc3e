# MLM's plateau at 116 M parameters and 32,768 tokens a step: does it wait there too, and what ends it?
# MLM, and CLM for a quarter and then MLM, under AdamW and Muon. For one GPU. It wants the texts of
# studies/novels.
corpus = {'config': 'configs/corpora/folder.py', 'path': 'texts/novels', 'out': 'corpora/novels',
          'tokenizer': 'configs/corpora/embedded', 'val_permille': 20, 'held_out_by': 'verbatim'}
seeds = (0,)
every_run = {'config': 'configs/plateau_120m.py'}
runs = {
    'mlm-1e-3': {},
    'clm25-mlm': {'phases': (('clm', 150), ('mlm', 450))},
    'muon-mlm': {'optimizer': 'muon'},
    'muon-clm25-mlm': {'optimizer': 'muon', 'phases': (('clm', 150), ('mlm', 450))},
}

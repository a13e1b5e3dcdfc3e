# Do counts end MLM's plateau at 116 M parameters, too? MLM, a quarter of CLM and then MLM, and MLM whose
# embeddings begin as counts of the text, each under AdamW and Muon, with three seeds that
# studies/plateau_120m does not have. Rates are the ones of that study, which nobody tuned at this size.
# There are no tasks: held-out losses are compared. For one GPU: a run takes an H200 about a minute. It
# wants the texts of studies/novels.
#
# Written down before the first run: counts end the plateau within 80 steps. At step 300 counts lead MLM by
# 0.2 nats of held-out MLM loss under AdamW, and by 0.1 under Muon.
base = "../plateau_120m/config.py"
seeds = (1, 2, 3)
runs = {
    'mlm': {},
    'clm25-mlm': {'phases': (('clm', 150), ('mlm', 450))},
    'counts-mlm': {'embedding_init': 'counts'},
    'muon-mlm': {'optimizer': 'muon'},
    'muon-clm25-mlm': {'optimizer': 'muon', 'phases': (('clm', 150), ('mlm', 450))},
    'muon-counts-mlm': {'optimizer': 'muon', 'embedding_init': 'counts'},
}

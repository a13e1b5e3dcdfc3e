# The quick ablation of `make try` (docs/hacking.md): CLM, then MLM. Muon trains the layers, and AdamW the
# embeddings, at a high rate and with a long memory. studies/try has ten seeds of it.
base = "tiny.py"
name = "try"
row = "try"
corpus = "corpora/speedrun"
phases = (("clm", 140), ("mlm", 210))
num_hidden_layers = 3
intermediate_size = 512
optimizer = "muon"
lr = 6e-3
matrix_lr_ratio = 1.67
beta2 = 0.999
decay_steps = 0.35
val_every = 40
val_rows = 128
device = "cpu"

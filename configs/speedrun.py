# The speedrun's record of steps (speedrun/README.md), and where an attempt begins: Muon on the layers, CLM,
# then MLM; AdamW on the embeddings, at four times the rate of muon-clm25-mlm and with a long memory.
base = "tiny.py"
name = "speedrun"
corpus = "corpora/speedrun"
phases = (("clm", 360), ("mlm", 540))
num_hidden_layers = 3
intermediate_size = 512
optimizer = "muon"
lr = 6e-3
matrix_lr_ratio = 1.67
beta2 = 0.999
decay_steps = 0.35
val_rows = 128
device = "cpu"

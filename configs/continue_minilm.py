# An encoder of 22 M parameters continued on a few million tokens, on a CPU or any GPU:
# examples/continue_encoder.py. Rates are a tenth of those from scratch; masks are BERT's, but more of them.
phases = (("mlm", 300),)
context = 256
rows_per_step = 16
micro_rows = 4
mask_ratio = 0.3
lr = 1e-4
warmup_steps = 0.1
decay_steps = 0.3
log_every = 10
val_every = 100
val_rows = 64
save_every = 100

# An encoder of 22 M parameters continued on 0.6 M tokens, half an hour of two CPU cores:
# examples/continue_encoder.py. Masks are as BERT's, of twice as many tokens. all-MiniLM-L6-v2 came without an
# output head: add --new_head.
phases = (("mlm", 300),)
context = 256
cut_rows = False        # segments of one length need no padding
rows_per_step = 8
micro_rows = 4
mask_ratio = 0.3
mask_replace = (0.8, 0.1, 0.1)
lr = 1e-4
warmup_steps = 0.1
decay_steps = 0.3
log_every = 10
val_every = 100
val_rows = 64
save_every = 100

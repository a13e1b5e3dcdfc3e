# The demo's size: 0.9 M parameters. Many small steps are what matters:
# with eight rows a step, an MLM model of this size stays near the frequencies of tokens for as long.
name = "tiny"
corpus = "corpora/docs"
phases = (("mlm", 3_600),)
vocab_size = 4_096
hidden_size = 128
intermediate_size = 384
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
tie_word_embeddings = True
context = 512
rows_per_step = 2
micro_rows = 0
lr = 3e-3
warmup_steps = 0.0278    # 100 of 3,600 steps; shares fit any length
decay_steps = 0.2
log_every = 100
val_every = 300
val_rows = 64
save_every = 600

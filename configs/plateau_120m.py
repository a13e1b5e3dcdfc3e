# MLM's plateau at 116 M parameters: 600 steps of 32,768 tokens, which take an H200 a minute, and half a
# minute to begin. studies/plateau_120m has the arms, and what came out.
name = "plateau_120m"
corpus = "corpora/novels"
phases = (("mlm", 600),)
vocab_size = 4_096
hidden_size = 768
intermediate_size = 3_072
num_hidden_layers = 12
num_attention_heads = 12
num_key_value_heads = 12
tie_word_embeddings = True
context = 1_024
rows_per_step = 32
micro_rows = 32
lr = 1e-3
warmup_steps = 60
decay_steps = 0.2
log_every = 10
val_every = 50
val_rows = 128
save_every = 0
compile = True

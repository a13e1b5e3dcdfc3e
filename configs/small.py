# For ablations on one GPU: 51 M parameters, 1.6 B tokens. --dry_run estimates 0.3 hours of an H100; it has
# not been run yet. Sizes and rates are ours, not the paper's.
#   python data.py configs/corpora/fineweb_edu_2b.py
#   python pretrain.py configs/small.py --name=small-clm-mlm --phases='(("clm", 3_000), ("mlm", 9_000))'
name = "small"
corpus = "corpora/fineweb_edu_2b"
phases = (("mlm", 12_000),)
vocab_size = 50_258         # GPT-2's and a mask token: two bytes a token
hidden_size = 512
intermediate_size = 1_536
num_hidden_layers = 8
num_attention_heads = 8
num_key_value_heads = 4
tie_word_embeddings = True
context = 1_024
rows_per_step = 128
micro_rows = 32
lr = 1e-3
warmup_steps = 0.0417       # 500 of 12,000 steps
decay_steps = 0.1667        # 2,000
compile = True

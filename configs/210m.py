# The paper's 210M (appendix A). All other settings are the paper's too: the defaults in pretrain.py.
name = "210m"
hidden_size = 768
intermediate_size = 3_072
num_hidden_layers = 12
num_attention_heads = 12
num_key_value_heads = 12
compile = True
micro_rows = 72         # at once, on 80 GB: docs/pretraining.md

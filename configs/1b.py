# The paper's 1B (appendix A).
name = "1b"
hidden_size = 1_728
intermediate_size = 5_120
num_hidden_layers = 28
num_attention_heads = 18
num_key_value_heads = 6
compile = True
micro_rows = 12         # at once, on 80 GB: docs/pretraining.md

# A decoder becomes an encoder: MLM from the weights of SmolLM2-135M, which saw 2 T tokens of CLM (section 5).
#   python data.py configs/corpora/fineweb_edu_smollm2.py
#   python pretrain.py configs/decoder_to_encoder.py
# Any decoder of Llama's architecture: --weights_from=its/hub-id or a folder. Sizes not set here are read
# from it, a missing mask token is added, and the run is named after it: smollm2-135m-mlm40.
# LLM2Vec's objective instead: --phases='("mntp", 8_000)'
weights_from = "HuggingFaceTB/SmolLM2-135M"
corpus = "corpora/fineweb_edu_smollm2"
phases = (("mlm", 8_000),)  # 2.1 B tokens, a thousandth of the decoder's
mask_ratio = 0.4
context = 2_048
rows_per_step = 128
micro_rows = 8              # for 24 GB; --recompute for less
lr = 5e-4                   # the paper's; warm-up and decay as shares of these steps are ours
warmup_steps = 0.05
decay_steps = 0.1
compile = True

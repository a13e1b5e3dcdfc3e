# An encoder learns a domain: an MLM model's weights, a CLM detour over its texts, MLM while the rate decays.
# After "A Causal Language Modeling Detour Improves Encoder Continued Pretraining" (2026), phases ours.
#   python data.py configs/corpora/folder.py --path=texts --tokenizer=EuroBERT/EuroBERT-210m \
#       --out=corpora/domain
#   python pretrain.py configs/clm_detour.py
# To compare with, the same steps without the detour: --phases='("mlm", 5_000)' --name=domain-mlm
name = "domain-clm-mlm"
weights_from = "EuroBERT/EuroBERT-210m"
corpus = "corpora/domain"
phases = (("clm", 4_000), ("mlm", 1_000))
mask_ratio = 0.4
context = 2_048
rows_per_step = 128
micro_rows = 4
lr = 5e-4
warmup_steps = 0.04
decay_steps = 0.2           # the whole MLM phase
compile = True

# Continued pretraining (paper, section 5): MLM from the weights of the decayed CLM model, on fresh data.
base = "610m.py"
name = "610m-clm-dec42k-mlm40-64k"
phases = (("mlm", 22_000),)
mask_ratio = 0.4
weights_from = "out/610m-clm-42k/42000"
first_row = 48_384_000    # 42,000 steps of 1,152 rows
warmup_steps = 0          # our reading of its shared steps: a constant rate, then 2,000 steps of decay
save_at = (10_000,)       # where the 12,000-step run branches off

base = "610m.py"
name = "610m-mlm40-42k"
phases = (("mlm", 42_000),)
mask_ratio = 0.4
save_at = (1_000, 2_000, 5_000, 10_000, 20_000, 40_000)  # evaluated (paper, section 3)

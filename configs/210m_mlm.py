base = "210m.py"
name = "210m-mlm40-42k"
phases = (("mlm", 42_000),)
mask_ratio = 0.4    # the paper also has 0.2, 0.3 and 0.5

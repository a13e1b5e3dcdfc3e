base = "1b.py"
name = "1b-mlm40-42k"
phases = (("mlm", 42_000),)
mask_ratio = 0.4    # the paper also has 0.2, 0.3 and 0.5

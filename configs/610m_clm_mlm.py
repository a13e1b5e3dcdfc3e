# The paper's answer: a quarter CLM, then MLM.
# --branch_from=out/610m-clm-42k/10000 saves computing the first phase again.
base = "610m.py"
name = "610m-clm-10k-mlm40-42k"
phases = (("clm", 10_000), ("mlm", 32_000))
mask_ratio = 0.4

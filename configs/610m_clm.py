base = "610m.py"
name = "610m-clm-42k"
phases = (("clm", 42_000),)
# evaluated (paper, section 3: 1k to 40k) or branched from by two-stage runs (section 4)
save_at = (1_000, 2_000, 3_000, 5_000, 6_000, 9_000, 10_000, 11_000, 17_000, 20_000, 21_000, 32_000, 40_000)

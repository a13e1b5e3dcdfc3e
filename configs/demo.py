# What both runs of make demo share: the smallest size that learns the embedded tasks, for 1,800 steps (0.6
# passes over the documentation). This is the shortest length of studies/small, where CLM then MLM is furthest
# ahead.
base = "tiny.py"
corpus = "corpora/docs"
seed = 6                 # one more than studies/small has
warmup_steps = 100
save_every = 0
save_at = (300, 600, 900)    # the page with which the demo ends shows how the models learn

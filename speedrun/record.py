# The record of steps, and where a full run begins. configs/try.py has most of its settings, and begins with
# CLM and random embeddings instead.
base = "../configs/try.py"
name = "speedrun"
row = ""
embedding_init = "counts"
phases = (("mlm", 750),)
val_every = 300

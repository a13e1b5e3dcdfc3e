# An attempt, which `make try` starts: the record's settings for 350 steps (speedrun/README.md).
base = "speedrun.py"
name = "try"
row = "try"
phases = (("clm", 140), ("mlm", 210))
val_every = 40

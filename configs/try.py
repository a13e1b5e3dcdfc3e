# An attempt in a minute: the record's settings in 350 steps: `make try` (docs/speedrun.md).
base = "speedrun.py"
name = "try"
row = "try"
phases = (("clm", 140), ("mlm", 210))
val_every = 40

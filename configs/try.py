# A quarter of the record's run: `make try` (docs/speedrun.md).
base = "speedrun.py"
name = "try"
row = "try-quick-1400"
phases = (("clm", 140), ("mlm", 210))
val_every = 40

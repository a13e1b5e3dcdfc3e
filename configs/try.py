# A quarter of the record's run: `make try` (docs/speedrun.md).
base = "speedrun.py"
name = "try"
row = "try-quick"
phases = (("clm", 108), ("mlm", 162))
val_every = 30

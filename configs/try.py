# A quarter of the record's run: `make try` (docs/speedrun.md).
base = "speedrun.py"
name = "try"
row = "try"
phases = (("mlm", 900),)
val_every = 100

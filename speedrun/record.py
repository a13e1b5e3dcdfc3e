# The record of steps, and where a full run begins. configs/try.py has the same settings in 350 steps.
base = "../configs/try.py"
name = "speedrun"
row = ""
phases = (("clm", 360), ("mlm", 540))
val_every = 300

base = "1b.py"
name = "1b-clm-42k"
phases = (("clm", 42_000),)

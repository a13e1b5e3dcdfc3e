base = "210m.py"
name = "210m-clm-42k"
phases = (("clm", 42_000),)

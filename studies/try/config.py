# The ten seeds with which `make try` compares (docs/hacking.md). They were trained on two CPU cores
# (2026-11-27; speedrun/machine.jsonl has the start).
corpus = {'config': 'configs/corpora/speedrun.py'}
seeds = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
runs = {'try': {'config': 'configs/try.py', 'save_every': 0}}

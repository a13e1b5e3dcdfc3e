# The first rows of the speedrun (docs/speedrun.md): the same 3.7 M tokens of the embedded texts, four seeds.
# `try` is what an attempt in small is compared with. Afterwards:
#     python -m nanoencoder.speedrun studies/speedrun/out/mlm-s*
corpus = {'config': 'configs/corpora/embedded.py'}
seeds = (0, 1, 2, 3)
every_run = {'config': 'configs/speedrun.py'}
runs = {
    'mlm': {},
    'try': {'config': 'configs/try.py'},
}
out = "studies/speedrun/out"

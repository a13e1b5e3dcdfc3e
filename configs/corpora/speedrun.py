# The texts of `make try` and of the speedrun: those of embedded.py, with the held-out ones shuffled, so that
# the first rows are of all five sources.
base = "embedded.py"
val_shuffled = True
out = "corpora/speedrun"

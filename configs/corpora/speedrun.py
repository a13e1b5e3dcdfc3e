# The speedrun's texts (speedrun/README.md): those of embedded.py, with the held-out ones shuffled, so that
# its first rows are of all five sources.
base = "embedded.py"
val_shuffled = True
out = "corpora/speedrun"

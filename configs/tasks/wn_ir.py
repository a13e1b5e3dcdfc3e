# Embedded: an example of use finds the definition of the word used, among those of all held-out examples.
kind = "IR"
dataset = "wn_ir"
data = "texts/wn_ir"
made_by = "python examples/wordnet.py"

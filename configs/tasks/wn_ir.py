# Embedded: an example of use finds the definition of the word used, among those of all held-out examples.
kind = "IR"
dataset = "wn_ir"
source = "wordnet"

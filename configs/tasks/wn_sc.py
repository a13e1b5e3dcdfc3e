# Embedded: which of 25 kinds of things (the lexicographers' files of WordNet) does a noun's definition define?
kind = "SC"
dataset = "wn_sc"
source = "wordnet"

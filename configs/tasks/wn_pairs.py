# Embedded: is the second definition that of a more general word (a hypernym in WordNet), or of another word
# below the same one? Floor 50 %.
kind = "SC"
dataset = "wn_pairs"
source = "wordnet"
template = "First: {first}\nSecond: {second}"
labels = ("parent", "sibling")

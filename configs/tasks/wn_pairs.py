# Embedded: is the second definition that of a more general word (a hypernym in WordNet), or of another word
# below the same one? Floor 50 %.
kind = "SC"
dataset = "wn_pairs"
data = "texts/wn_pairs"
made_by = "python examples/wordnet.py"
template = "First: {first}\nSecond: {second}"
labels = ("parent", "sibling")

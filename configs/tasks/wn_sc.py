# Embedded: which of 25 kinds of things does a noun's definition define? The kinds are the lexicographers'
# files of WordNet, such as animal, artifact, feeling.
kind = "SC"
dataset = "wn_sc"
data = "texts/wn_sc"
made_by = "python examples/wordnet.py"

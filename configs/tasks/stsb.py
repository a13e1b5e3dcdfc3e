# STS-B (GLUE): how similar are two sentences, from 0 to 5? A regression; splits as in sst2.py. Spearman is in
# scores.json, too.
kind = "SC"
dataset = "stsb"
source = "nyu-mll/glue"
subset = "stsb"
template = "Sentence 1: {sentence1}\nSentence 2: {sentence2}"
metric = "Pearson"
validation = ""
test = "validation"

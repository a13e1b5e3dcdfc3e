# RTE (GLUE): does the second sentence follow from the first? 2,490 rows want more
# epochs. Splits as in sst2.py.
kind = "SC"
dataset = "rte"
source = "nyu-mll/glue"
subset = "rte"
template = "Premise: {sentence1}\nHypothesis: {sentence2}"
labels = ("entailment", "not_entailment")
validation = ""
test = "validation"

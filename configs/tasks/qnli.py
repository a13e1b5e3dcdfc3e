# QNLI (GLUE): does the sentence answer the question? Splits as in sst2.py.
kind = "SC"
dataset = "qnli"
source = "nyu-mll/glue"
subset = "qnli"
template = "Question: {question}\nSentence: {sentence}"
labels = ("entailment", "not_entailment")
validation = ""
test = "validation"

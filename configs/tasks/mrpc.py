# MRPC (GLUE): do two sentences say the same? Splits as in sst2.py. F1 of "equivalent" is in scores.json.
kind = "SC"
dataset = "mrpc"
source = "nyu-mll/glue"
subset = "mrpc"
template = "Sentence 1: {sentence1}\nSentence 2: {sentence2}"
labels = ("not_equivalent", "equivalent")
validation = ""
test = "validation"

# Quora question pairs (GLUE); splits as in sst2.py.
kind = "SC"
dataset = "qqp"
source = "nyu-mll/glue"
subset = "qqp"
template = "Question 1: {question1}\nQuestion 2: {question2}"
labels = ("not_duplicate", "duplicate")
validation = ""
test = "validation"

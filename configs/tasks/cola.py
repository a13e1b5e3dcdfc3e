# CoLA (GLUE): is this sentence grammatical? Scored by Matthews' correlation; splits as in sst2.py.
kind = "SC"
dataset = "cola"
source = "nyu-mll/glue"
subset = "cola"
template = "{sentence}"
labels = ("unacceptable", "acceptable")
metric = "Matthews"
validation = ""
test = "validation"

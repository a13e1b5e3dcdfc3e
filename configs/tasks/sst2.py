# SST-2 (GLUE): the public validation set is the test set; 5 % of train is held out for validation (paper,
# appendix B).
kind = "SC"
dataset = "sst2"
source = "nyu-mll/glue"
subset = "sst2"
template = "{sentence}"
labels = ("negative", "positive")
validation = ""
test = "validation"

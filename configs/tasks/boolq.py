# BoolQ (SuperGLUE): yes or no? Splits as in sst2.py. The hub's main revision is a script; its conversion to
# parquet is read.
kind = "SC"
dataset = "boolq"
source = "aps/super_glue"
subset = "boolq"
template = "Question: {question}\nPassage: {passage}"
labels = ("False", "True")
revision = "refs/convert/parquet"
validation = ""
test = "validation"

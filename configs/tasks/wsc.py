# WSC (SuperGLUE): does the pronoun mean the noun? 554 rows. Read as boolq.py.
kind = "SC"
dataset = "wsc"
source = "aps/super_glue"
subset = "wsc"
template = "Text: {text}\nNoun: {span1_text}\nPronoun: {span2_text}"
labels = ("False", "True")
revision = "refs/convert/parquet"
validation = ""
test = "validation"

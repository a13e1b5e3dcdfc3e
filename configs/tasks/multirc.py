# MultiRC (SuperGLUE): is this an answer to the question? A row an answer: F1 over all of them, F1a, is in
# scores.json as "F1 of True". Validation shares its paragraphs with train, test does not. Read as boolq.py.
kind = "SC"
dataset = "multirc"
source = "aps/super_glue"
subset = "multirc"
template = "Paragraph: {paragraph}\nQuestion: {question}\nAnswer: {answer}"
labels = ("False", "True")
revision = "refs/convert/parquet"
validation = ""
test = "validation"

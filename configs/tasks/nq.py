# Natural Questions (BEIR), trained on MS MARCO: half of the test queries are validation (the authors drew
# theirs without a seed).
base = "msmarco.py"
dataset = "nq"
source = "BeIR/nq"
qrels = "BeIR/nq-qrels"
document = "Document: {title}. {text}"
validation = ""
score_on = ()

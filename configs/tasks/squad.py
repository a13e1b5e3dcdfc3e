# SQuAD 1.1; splits as in sst2.py. The authors, as we do, tag the answer's tokens.
kind = "QA"
dataset = "squad"
source = "rajpurkar/squad"
template = "{question}\n{context}"
validation = ""
test = "validation"

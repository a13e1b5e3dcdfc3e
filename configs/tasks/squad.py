# SQuAD 1.1; splits as in sst2.py. The authors tag the answer's tokens; --qa_head=span predicts start and end.
kind = "QA"
dataset = "squad"
source = "rajpurkar/squad"
template = "{question}\n{context}"
validation = ""
test = "validation"

# CoNLL-2003 English, in IOB2 in this copy (the shared task's own files are IOB1). One epoch, as the authors:
# 439 steps.
kind = "TC"
dataset = "conll2003_en"
source = "hgissbkh/conll2003-en"
words = "words"
tags = "ner"
labels = ("O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC", "B-MISC", "I-MISC")
steps = 0

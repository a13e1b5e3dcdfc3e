# Embedded: "What is the type of NAME?" The context is a docstring's list of parameters as prose; a quarter of
# the questions has no answer in it. Floor: the share without an answer.
kind = "QA"
dataset = "docs_qa"
source = "docs"
template = "{question}\n{context}"

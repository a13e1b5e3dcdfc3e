# Embedded: a definition and an example of use, both WordNet's. Which word of the example is defined?
kind = "QA"
dataset = "wn_qa"
data = "texts/wn_qa"
made_by = "python examples/wordnet.py"
template = "{question}\n{context}"

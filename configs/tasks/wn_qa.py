# Embedded: a definition and an example of use, both WordNet's. Which word of the example is defined?
kind = "QA"
dataset = "wn_qa"
source = "wordnet"
template = "{question}\n{context}"

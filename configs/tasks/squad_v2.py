# SQuAD 2.0: about half of the test questions have no answer in their context.
base = "squad.py"
dataset = "squad_v2"
source = "rajpurkar/squad_v2"

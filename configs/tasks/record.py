# ReCoRD in SQuAD's columns, the authors' copy.
base = "squad.py"
dataset = "record"
source = "hgissbkh/record"

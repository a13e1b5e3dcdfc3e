# ReCoRD in SQuAD's columns, the authors' copy. Where a copy lists the entities, --candidates=<its column>
# chooses among them.
base = "squad.py"
dataset = "record"
source = "hgissbkh/record"

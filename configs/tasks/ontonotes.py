# OntoNotes 5 English, 18 entity types; the labels' names are in the file. The main revision is a script,
# which datasets 4 and later do not run: the hub's own conversion to parquet is read.
kind = "TC"
dataset = "ontonotes"
source = "hgissbkh/ontonotes5"
revision = "refs/convert/parquet"
tags = "tags"

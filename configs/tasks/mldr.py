# MLDR English, long documents, trained on MS MARCO; texts beyond max_length are cut, and counted. Its
# judgements are the positive_passages and negative_passages of its own rows.
base = "msmarco.py"
dataset = "mldr_en"
source = "hgissbkh/mldr-en"
qrels = ""
revision = ""
validation = "dev"
score_on = ()

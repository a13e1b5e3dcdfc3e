# Your own search, in BEIR's layout: corpus.jsonl {"_id", "title", "text"}, queries.jsonl {"_id", "text"},
# qrels/validation.tsv and qrels/test.tsv with query-id, corpus-id, score. It trains on train.jsonl {"query",
# "positive"}, or where there is none on qrels/train.tsv.
kind = "IR"
dataset = "search"
data = "my_search"
document = "Document: {title} {text}"

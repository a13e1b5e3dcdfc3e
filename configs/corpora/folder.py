# Your own texts: a folder (or one file) of .txt (a file is a document), .jsonl or .parquet. Give --path and --out.
source = "folder"
column = "text"                      # of .jsonl and .parquet
tokenizer = "configs/corpora/docs"   # 4,096 ids of technical English; for real runs an own or a larger one
out = "corpora/folder"

# Your own texts: a folder or file of .txt, .jsonl (both also as .gz) or .parquet. Give --path and --out.
# A .txt is one document; one of more than a million characters is cut into many, at empty lines if it can be.
# If blank lines separate the documents of a .txt: --txt=blank_lines.
column = "text"                      # of .jsonl and .parquet
tokenizer = "configs/corpora/docs"   # 4,096 ids of technical English; for real runs an own or a larger one
out = "corpora/folder"

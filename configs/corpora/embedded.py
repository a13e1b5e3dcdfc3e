# Documentation of Python packages and WordNet's definitions with usage examples, 23 M characters, with one
# vocabulary of 4,096 ids for both. What the embedded tasks hold out for their tests is not in it.
path = "texts/embedded/train/docs.jsonl, texts/embedded/train/wordnet.jsonl"
val_path = "texts/embedded/validation/docs.jsonl, texts/embedded/validation/wordnet.jsonl"
made_by = "python examples/embedded_docs.py && python examples/wordnet.py"
# python data.py configs/corpora/embedded.py --train_tokenizer=4096 --tokenizer=FOLDER
tokenizer = "configs/corpora/embedded"
out = "corpora/embedded"

# Documentation of Python packages and WordNet's definitions with usage examples, 23 M characters, with one
# vocabulary of 4,096 ids for both. What the embedded tasks hold out is not in it.
source = "embedded"
# python data.py configs/corpora/embedded.py --train_tokenizer=4096 --tokenizer=FOLDER
tokenizer = "configs/corpora/embedded"
out = "corpora/embedded"

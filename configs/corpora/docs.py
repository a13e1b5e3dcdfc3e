# The English documentation of numpy, scipy, torch and pandas, 13 M characters: no network.
# Its content changes with the packages' versions; nothing may depend on it exactly.
path = "texts/embedded/train/docs.jsonl"
val_path = "texts/embedded/validation/docs.jsonl"
made_by = "python examples/embedded_docs.py"
# byte-level BPE, 4,096 ids: python data.py configs/corpora/docs.py --train_tokenizer=4096 --tokenizer=FOLDER
tokenizer = "configs/corpora/docs"
out = "corpora/docs"

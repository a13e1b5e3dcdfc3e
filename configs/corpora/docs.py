# The embedded corpus: the English documentation of numpy, scipy, torch and pandas, 13 M characters.
# Its content changes with the packages' versions; nothing may depend on it exactly.
source = "docs"
# byte-level BPE, 4,096 ids: python data.py configs/corpora/docs.py --train_tokenizer=4096 --tokenizer=FOLDER
tokenizer = "configs/corpora/docs"
out = "corpora/docs"

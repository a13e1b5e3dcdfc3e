# BabyLM: 10 M words of what children hear and read (babylm.github.io; the folder train_10M of its data, six
# files whose names end in .train). Put it into texts/babylm, learn a vocabulary, then prepare it:
#   python data.py configs/corpora/babylm.py --train_tokenizer=16384 --tokenizer=corpora/babylm-vocabulary
#   python data.py configs/corpora/babylm.py --tokenizer=corpora/babylm-vocabulary
# Then configs/minimal_pairs/blimp.py and BabyLM's choice of GLUE: boolq, mnli, mrpc, multirc, qqp, rte, wsc.
base = "folder.py"
path = "texts/babylm"
val_permille = 10
out = "corpora/babylm"

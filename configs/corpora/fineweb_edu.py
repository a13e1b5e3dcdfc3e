# FineWeb-Edu, the paper's pretraining data (section 2). A full run reads 99.1 B, more than sample-100BT
# holds in this vocabulary. About 4 bytes a token on disk; sixteen machines share it with --part=0 to 15 and
# --parts=16.
source = "hub"
path = "HuggingFaceFW/fineweb-edu"
subset = "sample-350BT"
tokenizer = "EuroBERT/EuroBERT-210m" # Llama 3's vocabulary with a mask token, 128,256 ids (paper, appendix A)
out = "corpora/fineweb_edu"

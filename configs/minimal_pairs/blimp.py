# BLiMP (Warstadt et al. 2020): 67 sets of 1,000 minimal pairs. The authors' own files are
# read from a folder: cat data/*.jsonl > blimp/train.jsonl, then --data=blimp.
dataset = "blimp"
source = "nyu-mll/blimp"
revision = "refs/convert/parquet"   # where "*" are all sets; on its main branch each is a dataset of its own
subset = "*"
test = "train"                      # as its only split is called
group = "UID"                       # of a set; linguistics_term makes 13 of them

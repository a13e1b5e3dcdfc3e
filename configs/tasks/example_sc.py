# Your own classification: a folder with train, validation and test as .csv, .tsv, .jsonl or .parquet.
#   python finetune.py configs/tasks/example_sc.py --data=my_reviews --look   # look first
#   python finetune.py configs/tasks/example_sc.py --data=my_reviews --model=out/mlm-1800-s6 --grid
kind = "SC"
dataset = "reviews"                 # names the folder of its predictions
data = "my_reviews"
template = "{title}\n{text}"        # columns in braces; two of them are a pair
label = "label"
# delimiter = ";"                  # of .csv files; without this line a comma
# labels = ("bad", "good")         # all of them, where the file has numbers for them, or train lacks one
# unlabelled = ("-",)              # rows with this for a label are left out, and counted
# metric = "Pearson"               # a regression: labels are numbers, and not listed in `labels`
validation = ""                     # no such file: hold out ...
hold_out = 0.1                      # ... a tenth of train

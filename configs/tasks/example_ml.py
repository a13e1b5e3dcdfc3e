# Your own texts with several labels each, or none: train, validation and test as .jsonl or .parquet, with a
# list in each row, {"title": "Soup", "text": "Boil ...", "topics": ["food", "winter"]}; [] means no label.
kind = "ML"
dataset = "recipes"
data = "my_recipes"
template = "{title}\n{text}"
label = "topics"                    # the column that has the lists
# labels = ("food", "winter")       # all there are, if train does not have them all
# label_map = (("Food", "food"),)   # what is found, what it is read as; counted
# unlabelled = (None,)              # rows with this for a list, or in it, are left out, and counted
# metric = "macro F1"               # the mean over labels; without this line micro F1
validation = ""                     # no such file: hold out ...
hold_out = 0.1                      # ... a tenth of train

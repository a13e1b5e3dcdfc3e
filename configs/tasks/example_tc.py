# Your own named entities: train.iob, validation.iob, test.iob (a word a line, its tag in the last column, an
# empty line between sentences), or .jsonl / .parquet with a list of words and a list of tags.
kind = "TC"
dataset = "entities"
data = "my_entities"
scheme = "IOB2"                     # IOB1 is read alike; "plain" are tags without B- and I-
label_map = (("B-MISC", "O"), ("I-MISC", "O"))  # what is found, what it is read as; counted
# unlabelled = ("-",)             # words with this for a tag are in neither loss nor score
# columns = (1, 3)                # files of a word a line: words in column 1, tags in 3, from 0; -1: the last
# labels = ("O", "B-LOC", "I-LOC")  # all there are, if train does not have them all

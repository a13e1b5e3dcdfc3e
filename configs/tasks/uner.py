# Universal NER, English EWT. Early drafts of train have tags beside the guidelines': read as "O", and
# counted.
kind = "TC"
dataset = "uner_en"
source = "hgissbkh/uner_en"
tags = "ner_tags"
label_map = (("B-OTH", "O"), ("I-OTH", "O"), ("B-O", "O"), ("I-O", "O"))

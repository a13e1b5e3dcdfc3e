# Universal part-of-speech tags of the English Web Treebank (Universal Dependencies, CC BY-SA 4.0): 17 plain
# tags. The hub's main revision is a script; its conversion to parquet is read. Universal Dependencies' own
# files: --data=folder --columns=1,3 --train=en_ewt-ud-train.conllu --validation=.. --test=..
kind = "TC"
dataset = "ewt_pos"
source = "universal-dependencies/universal_dependencies"
subset = "en_ewt"
revision = "refs/convert/parquet"
tags = "upos"
scheme = "plain"

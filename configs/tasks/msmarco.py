# MS MARCO: training on (query, positive) pairs, once; scored on MS MARCO, NQ and MLDR (paper, section 2 and
# appendix B). Validation is BEIR's dev set, test TREC-DL 2019 with 43 queries: an honest interval is about 6
# points to either side. The corpus is what either set judges. BEIR's main revisions are scripts; the hub's
# conversion to parquet is read.
kind = "IR"
dataset = "msmarco"
source = "BeIR/msmarco"
qrels = "BeIR/msmarco-qrels"
revision = "refs/convert/parquet"
pairs = "hgissbkh/msmarco-pairs"
score_on = ("configs/tasks/nq.py", "configs/tasks/mldr.py")
judged_only = True

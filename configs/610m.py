# The paper's 610M (appendix A): the sizes are the defaults of pretrain.py.
name = "610m"
compile = True
micro_rows = 24         # at once, on 80 GB: docs/pretraining.md

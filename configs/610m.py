# The paper's 610M (appendix A): the sizes are the defaults of pretrain.py.
name = "610m"
compile = True

# Embedded: a docstring's first paragraph finds its second among those of all held-out files. The baseline
# is BM25 (examples/baselines.py).
kind = "IR"
dataset = "docs_ir"
data = "texts/docs_ir"
made_by = "python examples/embedded_docs.py"

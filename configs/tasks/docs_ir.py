# Embedded: a docstring's first paragraph finds its second among those of all held-out files. `--baseline` is
# BM25.
kind = "IR"
dataset = "docs_ir"
source = "docs"

# Embedded: as docs_sc, but the wrong detail is that of a docstring in another file. Floor 50 %; `--baseline`
# is word overlap.
kind = "SC"
dataset = "docs_pairs"
source = "docs"
template = "Summary: {summary}\nDetail: {detail}"
labels = ("other", "same")

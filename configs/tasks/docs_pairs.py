# Embedded: does this detail belong to this summary? The two first paragraphs of a docstring; the wrong detail
# is that of a docstring in another file. Floor 50 %; `--baseline` is word overlap.
kind = "SC"
dataset = "docs_pairs"
source = "docs"
template = "Summary: {summary}\nDetail: {detail}"
labels = ("other", "same")

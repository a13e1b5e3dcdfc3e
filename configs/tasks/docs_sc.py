# Embedded: does this detail belong to this summary? First and second paragraph of a docstring; for about half
# of the pairs the second is that of another docstring in the same file. Floor 50 %; see `--baseline` for word
# overlap.
kind = "SC"
dataset = "docs_sc"
source = "docs"
template = "Summary: {summary}\nDetail: {detail}"
labels = ("other", "same")

# Embedded: which words are code? The authors' own markup (``x``, `x`, *x*, roles) is the label and is taken
# out of the text. Sentences of 6 to 48 words with at least one such mark. Floor F1 0;
# examples/baselines.py looks words up.
kind = "TC"
dataset = "docs_tc"
data = "texts/docs_tc"
made_by = "python examples/embedded_docs.py"
labels = ("O", "B-CODE", "I-CODE")

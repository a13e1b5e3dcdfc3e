# Two billion tokens of FineWeb-Edu in GPT-2's vocabulary, for configs/small.py: 4 GB.
base = "fineweb_edu.py"
subset = "sample-10BT"
tokenizer = "gpt2"
max_tokens = 2_000_000_000
out = "corpora/fineweb_edu_2b"

# Two billion tokens of FineWeb-Edu in SmolLM2's vocabulary, for configs/decoder_to_encoder.py: 4 GB.
# For another decoder, --tokenizer=its/hub-id --out=corpora/another.
base = "fineweb_edu.py"
subset = "sample-10BT"
tokenizer = "HuggingFaceTB/SmolLM2-135M"
max_tokens = 2_200_000_000
out = "corpora/fineweb_edu_smollm2"

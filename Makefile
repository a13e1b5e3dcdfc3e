# `make demo`: the question in miniature on a laptop. `make study`: with six pretraining seeds and a ladder of
# lengths. `make test`: everything, on the CPU, without network.
PYTHON ?= python3
RUN = .venv/bin/python
pinned = $(shell sed -n 's/.*"$(1)==\([^"]*\)".*/\1/p' pyproject.toml | head -1)
# Waiting threads sleep: where others use the cores too, small models train seven times faster than with spinning ones.
export OMP_WAIT_POLICY = passive
TEXT = "Compute the <|mask|> deviation of the array along the specified axis. axis : <|mask|> or tuple of ints, optional. The number of <|mask|> in the array."
MODELS = out/mlm-1800-s6 out/clm25-mlm-1800-s6

demo: .venv/installed
	$(RUN) study.py configs/studies/demo.py
	$(RUN) fill_mask.py $(MODELS) $(TEXT)
	$(RUN) evaluate.py table --split=both --predictions=studies/demo/runs
	$(RUN) evaluate.py losses $(MODELS)
	@sed -n 's/^- //p' studies/demo/report.md
	@echo "The page is studies/demo/report.md"

# Hours on two cores; what studies/small/ already holds is not done again. It goes on after a kill.
study: .venv/installed
	$(RUN) study.py configs/studies/small.py

test: .venv/installed
	$(RUN) -m pytest -q -n auto --maxprocesses=4 --dist loadfile -m "not slow" tests

# A real decoder, SmolLM2-135M, made an encoder: about 50 minutes on two cores, 7 GB in out/real, three packages more.
# Ctrl-C stops it; run it again to continue.
real: .venv/installed
	$(RUN) tests/real.py

# What needs CUDA, on a machine that has it: tests, kills, speeds, a real run; planned: 35 minutes of an H100.
gpu: .venv/installed
	$(RUN) tests/gpu.py

slow: .venv/installed
	$(RUN) -m pytest -q -m slow tests

# What we export, opened by the first transformers that has EuroBERT and by that of the tests; two older ones must
# refuse what they would read causally. Downloads all four.
formats: build/transformers-5.3.0/installed build/transformers-$(call pinned,transformers)/installed
	for installed in $^; do $$(dirname $$installed)/bin/python -m pytest -q tests/formats.py || exit 1; done

.venv: .venv/installed

# On a machine with CUDA this takes the same command: the index serves torch's CUDA build there.
.venv/installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(RUN) -m pip install --quiet torch==2.13.0 ".[test]"
	touch $@

build/transformers-%/installed: pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet torch==2.13.0 . transformers==$* pytest==$(call pinned,pytest) \
		sentence-transformers==$(call pinned,sentence-transformers)
	touch $@

clean:
	rm -rf studies/demo $(MODELS) corpora/docs corpora/tasks

.PHONY: demo study test slow formats real gpu clean .venv

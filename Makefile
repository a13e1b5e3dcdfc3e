# `make demo`: the study in miniature on a laptop. `make test`: everything, on the CPU, without network.
PYTHON ?= python3
RUN = .venv/bin/python
# Waiting threads sleep: where others use the cores too, small models train seven times faster than with spinning ones.
export OMP_WAIT_POLICY = passive
TEXTS = "axis : int or <|mask|> of ints, optional" "The number of <|mask|> in the array." "Compute the <|mask|> deviation along the specified axis."

demo: .venv/installed
	$(RUN) data.py configs/corpora/docs.py
	$(RUN) pretrain.py configs/tiny.py --name=tiny-clm --phases='("clm", 3_600)'
	$(RUN) pretrain.py configs/tiny.py --name=tiny-mlm40 --phases='("mlm", 3_600)'
	$(RUN) pretrain.py configs/tiny.py --name=tiny-clm-mlm40 --phases='(("clm", 1_440), ("mlm", 2_160))'
	$(RUN) evaluate.py losses out/tiny-clm out/tiny-mlm40 out/tiny-clm-mlm40
	for text in $(TEXTS); do $(RUN) model.py out/tiny-clm out/tiny-mlm40 out/tiny-clm-mlm40 "$$text"; done

test: .venv/installed
	$(RUN) -m pytest -q -m "not slow" tests

slow: .venv/installed
	$(RUN) -m pytest -q -m slow tests

.venv: .venv/installed

# On a machine with CUDA this takes the same command: the index serves torch's CUDA build there.
.venv/installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(RUN) -m pip install --quiet torch==2.13.0 ".[test]"
	touch $@

clean:
	rm -rf out corpora

.PHONY: demo test slow clean .venv

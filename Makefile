# make demo    the question in miniature on a laptop
# make lint    names that are not there or not used, long lines and functions: seconds
# make test    everything, on the CPU, without network
# make study   the demo's question with six pretraining seeds and a ladder of lengths: hours on two cores
PYTHON ?= python3
READY = .venv/installed
RUN = .venv/bin/python

# torch's MKL keeps AVX-512 from AMD's processors. A library of one line gives it back, and pretraining is twice as
# fast there (docs/speed.md): make FAST=1 demo. It needs a C compiler, and a path without spaces.
ifeq ($(FAST),1)
READY += .venv/fast.so
RUN = LD_PRELOAD=$(CURDIR)/.venv/fast.so .venv/bin/python
endif

TEXT = "Compute the <|mask|> deviation of the array along the specified axis. axis : <|mask|> or tuple of ints, optional. The number of <|mask|> in the array."

# Is a quarter of CLM, then MLM, better than MLM alone? Each command can be typed as it stands here. What is done is
# not done again, so after a kill make demo goes on.
demo: $(READY)
	$(RUN) examples/embedded_docs.py
	$(RUN) data.py configs/corpora/docs.py
	$(MAKE) --no-print-directory -j2 demo-mlm demo-clm-then-mlm
	$(RUN) evaluate.py table --split=both --datasets=docs_ir,docs_tc \
		--models=BM25,word-lookup,mlm-1800,clm25-mlm-1800
	$(RUN) evaluate.py compare mlm-1800 clm25-mlm-1800 --split=both
	$(RUN) evaluate.py losses out/mlm-1800-s6 out/clm25-mlm-1800-s6
	$(RUN) fill_mask.py out/mlm-1800-s6 out/clm25-mlm-1800-s6 $(TEXT)
	$(RUN) examples/page.py out/mlm-1800-s6 out/clm25-mlm-1800-s6 --out=page.html
	$(RUN) studies/beside.py studies/small mlm-1800 clm25-mlm-1800
	@echo "Two things to look at: page.html, in a browser, and the picture figures/beside.png"

# The two arms run side by side, each on a core of its own.
demo-mlm demo-clm-then-mlm: export OMP_NUM_THREADS = 1

demo-mlm:
	$(RUN) pretrain.py configs/demo.py --row=mlm-1800 --name=mlm-1800-s6 --lr=3e-3 --phases='(("mlm", 1_800),)'
	$(RUN) finetune.py configs/tasks/docs_ir.py --model=out/mlm-1800-s6 --seed=60 --lr=2e-3 --epochs=2 --steps=0
	$(RUN) finetune.py configs/tasks/docs_tc.py --model=out/mlm-1800-s6 --seed=60 --lr=4e-3 --steps=0
	$(RUN) examples/baselines.py configs/tasks/docs_ir.py

demo-clm-then-mlm:
	$(RUN) pretrain.py configs/demo.py --row=clm25-mlm-1800 --name=clm25-mlm-1800-s6 --lr=2e-3 --phases='(("clm", 450), ("mlm", 1_350))'
	$(RUN) finetune.py configs/tasks/docs_ir.py --model=out/clm25-mlm-1800-s6 --seed=60 --lr=1e-3 --epochs=2 --steps=0
	$(RUN) finetune.py configs/tasks/docs_tc.py --model=out/clm25-mlm-1800-s6 --seed=60 --lr=2e-3 --steps=0
	$(RUN) examples/baselines.py configs/tasks/docs_tc.py

study: $(READY)
	$(RUN) examples/embedded_docs.py
	$(RUN) studies/run.py studies/small

# Does a change help? One seed in minutes, beside ten seeds without it: make try ARGS=--mask_ratio=0.3
attempt := try-$(shell date +%m%d-%H%M%S)
try: $(READY)
	$(RUN) examples/embedded_docs.py
	$(RUN) examples/wordnet.py
	$(RUN) data.py configs/corpora/speedrun.py
	$(RUN) pretrain.py configs/try.py --name=$(attempt) $(ARGS)
	$(RUN) studies/losses.py out/$(attempt)

lint: $(READY)
	$(RUN) -m ruff check

test: $(READY)
	$(RUN) -m pytest -q -n auto --maxprocesses=4 --dist loadfile -m "not slow" speedrun tests

slow: $(READY)
	$(RUN) -m pytest -q -m slow tests speedrun

# Run the cells of docs/lesson.md: what they print is written there, and into examples/lesson.ipynb.
lesson: $(READY)
	$(RUN) examples/lesson.py

# Tokens of Python by part, and what a change adds to each or takes away. It needs git, and no packages.
weigh: export WEIGH_AGAINST := $(WEIGH_AGAINST)
weigh:
	$(PYTHON) tests/weigh.py

# What needs CUDA, on a machine that has it: tests, kills, speeds, a real run; ten minutes of an H100 by plan.
# make gpu MINUTES=12: the studies that wait for a card, as far as twelve minutes go; again: what is missing.
gpu: $(READY)
	$(RUN) bench/gpu.py $(if $(MINUTES),--minutes=$(MINUTES))

# What we export, opened by the first transformers that has EuroBERT and by that of the tests. The tests download
# two older ones, which must refuse what they would read causally.
formats: build/transformers-5.3.0/installed build/transformers-5.23.0/installed
	build/transformers-5.3.0/bin/python -m pytest -q tests/formats.py
	build/transformers-5.23.0/bin/python -m pytest -q tests/formats.py

# The tests with the lowest versions that pyproject.toml allows; torch's is that of the others.
lowest: build/lowest/installed
	build/lowest/bin/python -m pytest -q -n auto --maxprocesses=4 --dist loadfile -m "not slow" speedrun tests

.venv: $(READY)

# pip takes the exact versions that pyproject.toml has for uv.
define pins
import tomllib
tool = tomllib.load(open("pyproject.toml", "rb"))["tool"]
print(*tool["uv"]["constraint-dependencies"], sep="\n")
endef
export pins

# On a machine with CUDA this takes the same command: the index serves torch's CUDA build there.
.venv/installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	.venv/bin/python -c "$$pins" > .venv/pins.txt
	@echo "pip installs torch and the rest into .venv: 1.9 GB. It takes two minutes or more, and says nothing."
	.venv/bin/python -m pip install --quiet -c .venv/pins.txt torch==2.13.0 ".[test]"
	touch $@

.venv/fast.so: .venv/installed
	echo 'int mkl_serv_intel_cpu_true(void) { return 1; }' | cc -shared -fPIC -x c - -o $@

# An older transformers wants an older tokenizers, which pip chooses.
build/transformers-%/installed: pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -c "$$pins" | grep -v -e ^transformers -e ^tokenizers > $(@D)/pins.txt
	$(@D)/bin/python -m pip install --quiet -c $(@D)/pins.txt torch==2.13.0 ".[data,evaluate]" transformers==$* pytest sentence-transformers
	touch $@

# uv, since pip always takes the newest. Without --no-config it would take the pins.
build/lowest/installed: pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet uv==0.13.9
	$(@D)/bin/uv pip install --quiet --no-config --resolution=lowest-direct --python=$(@D) torch==2.13.0 ".[test]"
	touch $@

clean:
	rm -rf corpora/docs corpora/embedded corpora/speedrun texts/embedded texts/docs_* texts/wn_*
	rm -rf out/mlm-1800-s6 out/clm25-mlm-1800-s6 page.html figures/beside.png

.PHONY: demo demo-mlm demo-clm-then-mlm study try lint test slow lesson weigh gpu formats lowest .venv clean

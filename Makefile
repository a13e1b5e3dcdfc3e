# `make demo`: the question in miniature on a laptop. `make study`: with six pretraining seeds and a ladder of
# lengths. `make test`: everything, on the CPU, without network.
PYTHON ?= python3
# torch's MKL keeps AVX-512 from AMD's processors. A library of one line gives it back: pretraining is twice as fast
# there (docs/speed.md). FAST=0 leaves it out; so does a machine without a compiler.
has_avx512 = grep -qsw avx512f /proc/cpuinfo && ! grep -q GenuineIntel /proc/cpuinfo && \
	echo | cc -shared -fPIC -x c - -o /dev/null 2>/dev/null && echo cc
compiler := $(if $(filter 0,$(FAST)),,$(shell $(has_avx512)))
ifneq ($(and $(compiler),$(word 2,$(CURDIR))),)    # ld.so splits LD_PRELOAD at spaces
$(info Without AVX-512, at half the speed: the path $(CURDIR) has a space)
compiler :=
endif
READY = .venv/installed $(if $(compiler),.venv/fast.so)
RUN = $(if $(compiler),LD_PRELOAD=$(CURDIR)/.venv/fast.so) .venv/bin/python
print_pins = import tomllib; tool = tomllib.load(open("pyproject.toml", "rb"))["tool"]; \
	print(*tool["uv"]["constraint-dependencies"], sep="\n")
pinned = $(shell sed -n 's/.*"$(1)==\([^"]*\)".*/\1/p' pyproject.toml | head -1)
TEXT = "Compute the <|mask|> deviation of the array along the specified axis. axis : <|mask|> or tuple of ints, optional. The number of <|mask|> in the array."
MODELS = out/mlm-1800-s6 out/clm25-mlm-1800-s6

demo: $(READY)
	$(RUN) examples/embedded_docs.py
	$(RUN) study.py configs/studies/demo.py
	$(RUN) fill_mask.py $(MODELS) $(TEXT)
	$(RUN) evaluate.py table --split=both --predictions=studies/demo/runs
	$(RUN) evaluate.py losses $(MODELS)
	@sed -n 's/^- //p' studies/demo/report.md
	@echo "The page is studies/demo/report.md"

# Hours on two cores; what studies/small/ already holds is not done again. It goes on after a kill.
study: $(READY)
	$(RUN) examples/embedded_docs.py
	$(RUN) study.py configs/studies/small.py

# An attempt at the speedrun in small, docs/speedrun.md: make try -- --mask_ratio=0.3
attempt := try-$(shell date +%m%d-%H%M%S)
overrides = $(subst \ ,,$(MAKEOVERRIDES))
try: $(READY) corpora/embedded/meta.json
	$(if $(filter-out --% PYTHON=% FAST=%,$(overrides))$(filter --name=% --out=%,$(overrides)),$(error options, but not --name or --out, begin with --, as in make try -- --mask_ratio=0.3))
	$(RUN) pretrain.py configs/try.py --name=$(attempt) $(foreach word,$(filter --%,$(overrides) $(MAKECMDGOALS)),'$(subst ','\'',$(word))')
	$(if $(filter --dry_run --help,$(MAKECMDGOALS)),,$(RUN) evaluate.py losses out/$(attempt) --beside=studies/speedrun/losses.csv)

--%:    # its options
	@:

corpora/embedded/meta.json: | $(READY)
	$(RUN) examples/embedded_docs.py
	$(RUN) examples/wordnet.py
	$(RUN) data.py configs/corpora/embedded.py

test: $(READY)
	$(RUN) -m pytest -q -n auto --maxprocesses=4 --dist loadfile -m "not slow" tests

# A real decoder, SmolLM2-135M, made an encoder: about 50 minutes on two cores, 7 GB in out/real, three packages more.
# Ctrl-C stops it; run it again to continue.
real: $(READY)
	$(RUN) tests/real.py

# What needs CUDA, on a machine that has it: tests, kills, speeds, a real run; planned: 35 minutes of an H100.
gpu: $(READY)
	$(RUN) tests/gpu.py

slow: $(READY)
	$(RUN) -m pytest -q -m slow tests

# What we export, opened by the first transformers that has EuroBERT and by that of the tests; two older ones must
# refuse what they would read causally. Downloads all four.
formats: build/transformers-5.3.0/installed build/transformers-$(call pinned,transformers)/installed
	for installed in $^; do $$(dirname $$installed)/bin/python -m pytest -q tests/formats.py || exit 1; done

.venv: $(READY)

# On a machine with CUDA this takes the same command: the index serves torch's CUDA build there.
.venv/installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	.venv/bin/python -c '$(print_pins)' > .venv/pins.txt
	.venv/bin/python -m pip install --quiet -c .venv/pins.txt torch==2.13.0 ".[test]"
	touch $@

.venv/fast.so: .venv/installed
	@echo "Building $@: MKL will use this processor's AVX-512; make FAST=0 leaves that out"
	@echo 'int mkl_serv_intel_cpu_true(void) { return 1; }' | $(compiler) -shared -fPIC -x c - -o $@

# An older transformers wants an older tokenizers, which pip chooses.
build/transformers-%/installed: pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -c '$(print_pins)' | grep -v -e ^transformers -e ^tokenizers > $(@D)/pins.txt
	$(@D)/bin/python -m pip install --quiet -c $(@D)/pins.txt torch==2.13.0 . transformers==$* pytest \
		sentence-transformers
	touch $@

clean:
	rm -rf studies/demo $(MODELS) corpora/docs

.PHONY: demo study try test slow formats real gpu clean .venv

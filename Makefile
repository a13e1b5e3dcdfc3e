# `make demo`: the study in miniature on a laptop. `make test`: everything, on the CPU, without network.
PYTHON ?= python3
RUN = .venv/bin/python
# Waiting threads sleep: where others use the cores too, small models train seven times faster than with spinning ones.
export OMP_WAIT_POLICY = passive
TEXTS = "axis : int or <|mask|> of ints, optional" "The number of <|mask|> in the array." "Compute the <|mask|> deviation along the specified axis."

MODELS = tiny-clm tiny-mlm40 tiny-clm-mlm40

demo: .venv/installed
	$(RUN) data.py configs/corpora/docs.py
	$(RUN) pretrain.py configs/tiny.py --name=tiny-clm --phases='("clm", 3_600)' --save_at='(1_440,)'
	$(RUN) pretrain.py configs/tiny.py --name=tiny-mlm40 --phases='("mlm", 3_600)'
	$(RUN) pretrain.py configs/tiny.py --name=tiny-clm-mlm40 --phases='(("clm", 1_440), ("mlm", 2_160))' --branch_from=out/tiny-clm/1440
	$(RUN) evaluate.py losses out/tiny-clm out/tiny-mlm40 out/tiny-clm-mlm40
	for text in $(TEXTS); do $(RUN) fill_mask.py out/tiny-clm out/tiny-mlm40 out/tiny-clm-mlm40 "$$text" || exit 1; done
	$(MAKE) --no-print-directory finetuned TASKS="docs_tc docs_ir" GRID="--lrs=(1e-3,) --seeds=(0,1,2) --steps=100" FOLDER=demo
	$(RUN) evaluate.py figure summary out/tiny-mlm40 out/tiny-clm-mlm40 --predictions=demo/predictions --out=demo/figures

# All four embedded tasks, four learning rates x five seeds, 500 steps: hours on two cores. PROCESSES=8 shares them out over eight processes.
study: demo
	$(MAKE) --no-print-directory finetuned TASKS="docs_sc docs_tc docs_qa docs_ir" \
		GRID="--lrs=(2e-4,5e-4,1e-3,2e-3) --seeds=(0,1,2,3,4) --steps=500" FOLDER=study
	$(RUN) evaluate.py figure lr --predictions=study/predictions --out=study/figures

PROCESSES ?= 2
FINETUNE = OMP_NUM_THREADS=1 .venv/bin/torchrun --standalone --nproc_per_node=$(PROCESSES) finetune.py
finetuned:
	for task in $(TASKS); do \
		$(RUN) finetune.py configs/tasks/$$task.py --baseline --predictions=$(FOLDER)/predictions || exit 1; \
		$(FINETUNE) configs/tasks/$$task.py --model=out/tiny-clm --untrained --grid "--predictions=$(FOLDER)/predictions" $(foreach x,$(GRID),"$(x)") || exit 1; \
		for model in $(MODELS); do \
			$(FINETUNE) configs/tasks/$$task.py --model=out/$$model --grid "--predictions=$(FOLDER)/predictions" $(foreach x,$(GRID),"$(x)") || exit 1; \
		done; \
	done
	$(RUN) evaluate.py table --predictions=$(FOLDER)/predictions
	$(RUN) evaluate.py compare tiny-clm tiny-mlm40 --predictions=$(FOLDER)/predictions
	$(RUN) evaluate.py compare tiny-mlm40 tiny-clm-mlm40 --predictions=$(FOLDER)/predictions
	$(RUN) evaluate.py figure share --predictions=$(FOLDER)/predictions --out=$(FOLDER)/figures
	@echo 'Three models of one pretraining seed and 0.9 M parameters: a direction at most, with intervals that say how little.'

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
	rm -rf demo study out/tiny-clm out/tiny-mlm40 out/tiny-clm-mlm40 corpora/docs corpora/tasks

.PHONY: demo study finetuned test slow clean .venv

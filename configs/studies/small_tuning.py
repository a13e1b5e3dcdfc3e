# Which learning rates configs/studies/small.py takes: of pretraining by an arm's own held-out loss after
# 1,800 steps, of fine-tuning by validation after 3,600. Two pretraining seeds that the study does not have.
corpus = "configs/corpora/docs.py"
seeds = (100, 101)
runs = """
tune-clm-1e-3        configs/tiny.py --warmup_steps=100 --phases='("clm", 1_800)' --lr=1e-3
tune-clm-2e-3        configs/tiny.py --warmup_steps=100 --phases='("clm", 1_800)' --lr=2e-3
tune-clm-3e-3        configs/tiny.py --warmup_steps=100 --phases='("clm", 1_800)' --lr=3e-3
tune-clm-4e-3        configs/tiny.py --warmup_steps=100 --phases='("clm", 1_800)' --lr=4e-3
tune-mlm-1e-3        configs/tiny.py --warmup_steps=100 --phases='("mlm", 1_800)' --lr=1e-3
tune-mlm-2e-3        configs/tiny.py --warmup_steps=100 --phases='("mlm", 1_800)' --lr=2e-3
tune-mlm-3e-3        configs/tiny.py --warmup_steps=100 --phases='("mlm", 1_800)' --lr=3e-3
tune-mlm-4e-3        configs/tiny.py --warmup_steps=100 --phases='("mlm", 1_800)' --lr=4e-3
tune-clm450-mlm-1e-3 configs/tiny.py --warmup_steps=100 --phases='(("clm", 450), ("mlm", 1_350))' --lr=1e-3
tune-clm450-mlm-2e-3 configs/tiny.py --warmup_steps=100 --phases='(("clm", 450), ("mlm", 1_350))' --lr=2e-3
tune-clm450-mlm-3e-3 configs/tiny.py --warmup_steps=100 --phases='(("clm", 450), ("mlm", 1_350))' --lr=3e-3
tune-clm450-mlm-4e-3 configs/tiny.py --warmup_steps=100 --phases='(("clm", 450), ("mlm", 1_350))' --lr=4e-3
tune-clm-3600        configs/tiny.py --warmup_steps=100 --phases='("clm", 3_600)' --lr=2e-3
tune-mlm-3600        configs/tiny.py --warmup_steps=100 --phases='("mlm", 3_600)' --lr=3e-3
tune-clm25-mlm-3600  configs/tiny.py --warmup_steps=100 --phases='(("clm", 900), ("mlm", 2_700))' --lr=2e-3
"""
finetuning_seeds = 1
# First 5e-4 to 4e-3; where the best was at an edge, the grid went on.
tasks = """
tune-*-3600  configs/tasks/docs_tc.py --steps=0 --lrs=5e-4,1e-3,2e-3,4e-3,8e-3
tune-*-3600  configs/tasks/docs_ir.py --steps=0 --epochs=2 --lrs=5e-4,1e-3,2e-3,4e-3
tune-*-3600  configs/tasks/docs_pairs.py --steps=0 --epochs=2 --lrs=1.25e-4,2.5e-4,5e-4,1e-3,2e-3,4e-3
"""
out = "studies/small/out"

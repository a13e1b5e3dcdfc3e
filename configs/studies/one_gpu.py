# The question for one GPU: 51 M parameters (configs/small.py), 0.4 to 3.1 B tokens, three pretraining seeds,
# one task of each kind. This is a config: nobody has run it yet. --dry_run counts its hours of an H100.
corpus = "configs/corpora/fineweb_edu_2b.py --max_tokens=3_200_000_000 --out=corpora/fineweb_edu_3b"
runs = """
clm-24k     configs/small.py --warmup_steps=500 --decay_steps=0.2 --phases='("clm", 24_000)'
clm-12k     configs/small.py --warmup_steps=500 --decay_steps=0.2 --phases='("clm", 12_000)' \
            --branch_from=clm-24k/9600
clm-6k      configs/small.py --warmup_steps=500 --decay_steps=0.2 --phases='("clm", 6_000)' \
            --branch_from=clm-24k/4800
clm-3k      configs/small.py --warmup_steps=500 --decay_steps=0.2 --phases='("clm", 3_000)' \
            --branch_from=clm-24k/2400
mlm-24k     configs/small.py --warmup_steps=500 --decay_steps=0.2 --phases='("mlm", 24_000)'
mlm-12k     configs/small.py --warmup_steps=500 --decay_steps=0.2 --phases='("mlm", 12_000)' \
            --branch_from=mlm-24k/9600
mlm-6k      configs/small.py --warmup_steps=500 --decay_steps=0.2 --phases='("mlm", 6_000)' \
            --branch_from=mlm-24k/4800
mlm-3k      configs/small.py --warmup_steps=500 --decay_steps=0.2 --phases='("mlm", 3_000)' \
            --branch_from=mlm-24k/2400
# a quarter CLM, then MLM
both-24k    configs/small.py --warmup_steps=500 --decay_steps=0.2 \
            --phases='(("clm", 6_000), ("mlm", 18_000))' --branch_from=clm-24k/6000
both-12k    configs/small.py --warmup_steps=500 --decay_steps=0.2 \
            --phases='(("clm", 3_000), ("mlm", 9_000))' --branch_from=clm-24k/3000
both-6k     configs/small.py --warmup_steps=500 --decay_steps=0.2 \
            --phases='(("clm", 1_500), ("mlm", 4_500))' --branch_from=clm-24k/1500
both-3k     configs/small.py --warmup_steps=500 --decay_steps=0.2 \
            --phases='(("clm", 750), ("mlm", 2_250))' --branch_from=clm-24k/750
"""
ladder = """
CLM: clm-3k clm-6k clm-12k clm-24k
MLM: mlm-3k mlm-6k mlm-12k mlm-24k
CLM then MLM: both-3k both-6k both-12k both-24k
"""
seeds = (0, 1, 2)
tasks = """
*  configs/tasks/mnli.py
*  configs/tasks/conll2003.py
*  configs/tasks/squad.py
*  configs/tasks/msmarco.py
"""
lrs = (5e-5, 1e-4, 2e-4, 5e-4)
finetuning_seeds = 3
# names of the paper's claims: nanoencoder/judging/paper.py
contrasts = """
end    | better        | 1 mlm-24k -1 clm-24k   | mnli_m squad msmarco
level  | no_difference | 1 clm-24k -1 mlm-24k   | conll2003_en
early  | better        | 1 clm-3k -1 mlm-3k     | mnli_m conll2003_en squad msmarco
both   | at_least      | 1 both-24k -1 mlm-24k  | mnli_m conll2003_en squad msmarco
"""

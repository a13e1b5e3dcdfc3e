# The paper: 38 runs, 12 intermediate checkpoints, 12 datasets x 6 learning rates x 5 seeds. Names are those
# of the authors' models, which they trained once each. --row takes a name or a number, from 1.
#   python studies/run.py studies/paper --dry_run
#   python studies/run.py studies/paper --row=6 --torchrun=--nproc_per_node=8
corpus = {'config': 'configs/corpora/fineweb_edu.py', 'max_tokens': 152_000_000_000}
every_run = {'config': 'configs/610m.py'}
runs = {
    # 15 base models: three sizes, CLM and MLM at four ratios (section 3); save_at: evaluated (figure 4)
    '210m-clm-42k': {'config': 'configs/210m_clm.py'},
    '210m-mlm40-42k': {'config': 'configs/210m_mlm.py'},
    '210m-mlm20-42k': {'config': 'configs/210m_mlm.py', 'mask_ratio': 0.2},
    '210m-mlm30-42k': {'config': 'configs/210m_mlm.py', 'mask_ratio': 0.3},
    '210m-mlm50-42k': {'config': 'configs/210m_mlm.py', 'mask_ratio': 0.5},
    '610m-clm-42k': {'config': 'configs/610m_clm.py',
                     'save_at': (1_000, 2_000, 5_000, 10_000, 20_000, 40_000)},
    '610m-mlm40-42k': {'config': 'configs/610m_mlm.py',
                       'save_at': (1_000, 2_000, 5_000, 10_000, 20_000, 40_000)},
    '610m-mlm20-42k': {'config': 'configs/610m_mlm.py', 'mask_ratio': 0.2, 'save_at': ()},
    '610m-mlm30-42k': {'config': 'configs/610m_mlm.py', 'mask_ratio': 0.3, 'save_at': ()},
    '610m-mlm50-42k': {'config': 'configs/610m_mlm.py', 'mask_ratio': 0.5, 'save_at': ()},
    '1b-clm-42k': {'config': 'configs/1b_clm.py'},
    '1b-mlm40-42k': {'config': 'configs/1b_mlm.py'},
    '1b-mlm20-42k': {'config': 'configs/1b_mlm.py', 'mask_ratio': 0.2},
    '1b-mlm30-42k': {'config': 'configs/1b_mlm.py', 'mask_ratio': 0.3},
    '1b-mlm50-42k': {'config': 'configs/1b_mlm.py', 'mask_ratio': 0.5},
    # 13 of the 15 splits of 12k, 22k and 42k steps (section 4); two are the base models' CLM and MLM
    '610m-mlm40-12k': {'phases': (('mlm', 12_000),), 'branch_from': '610m-mlm40-42k/10000'},
    '610m-clm-3k-mlm40-12k': {'phases': (('clm', 3_000), ('mlm', 9_000)), 'branch_from': '610m-clm-42k/3000'},
    '610m-clm-6k-mlm40-12k': {'phases': (('clm', 6_000), ('mlm', 6_000)), 'branch_from': '610m-clm-42k/6000'},
    '610m-clm-9k-mlm40-12k': {'phases': (('clm', 9_000), ('mlm', 3_000)), 'branch_from': '610m-clm-42k/9000'},
    '610m-clm-12k': {'phases': (('clm', 12_000),), 'branch_from': '610m-clm-42k/10000'},
    '610m-mlm40-22k': {'phases': (('mlm', 22_000),), 'branch_from': '610m-mlm40-42k/20000'},
    '610m-clm-5k-mlm40-22k': {'phases': (('clm', 5_000), ('mlm', 17_000)),
                              'branch_from': '610m-clm-42k/5000'},
    '610m-clm-11k-mlm40-22k': {'phases': (('clm', 11_000), ('mlm', 11_000)),
                               'branch_from': '610m-clm-42k/11000'},
    '610m-clm-17k-mlm40-22k': {'phases': (('clm', 17_000), ('mlm', 5_000)),
                               'branch_from': '610m-clm-42k/17000'},
    '610m-clm-22k': {'phases': (('clm', 22_000),), 'branch_from': '610m-clm-42k/20000'},
    '610m-clm-10k-mlm40-42k': {'phases': (('clm', 10_000), ('mlm', 32_000)),
                               'branch_from': '610m-clm-42k/10000'},
    '610m-clm-21k-mlm40-42k': {'phases': (('clm', 21_000), ('mlm', 21_000)),
                               'branch_from': '610m-clm-42k/21000'},
    '610m-clm-32k-mlm40-42k': {'phases': (('clm', 32_000), ('mlm', 10_000)),
                               'branch_from': '610m-clm-42k/32000'},
    # 4 masking ratios after 40k steps of CLM (figure 7): 2k decaying steps; 42k of MLM are another thing
    '610m-clm-40k-mlm20-42k': {'phases': (('clm', 40_000), ('mlm', 2_000)), 'mask_ratio': 0.2,
                               'branch_from': '610m-clm-42k/40000'},
    '610m-clm-40k-mlm30-42k': {'phases': (('clm', 40_000), ('mlm', 2_000)), 'mask_ratio': 0.3,
                               'branch_from': '610m-clm-42k/40000'},
    '610m-clm-40k-mlm40-42k': {'phases': (('clm', 40_000), ('mlm', 2_000)), 'mask_ratio': 0.4,
                               'branch_from': '610m-clm-42k/40000'},
    '610m-clm-40k-mlm50-42k': {'phases': (('clm', 40_000), ('mlm', 2_000)), 'mask_ratio': 0.5,
                               'branch_from': '610m-clm-42k/40000'},
    # 6 continued from decayed CLM and MLM models (section 5); how they shared 26,000 steps is our reading
    '610m-clm-dec42k-mlm40-64k': {'config': 'configs/610m_cpt.py', 'save_at': (),
                                  'weights_from': '610m-clm-42k/42000'},
    '610m-clm-dec42k-mlm40-54k': {'config': 'configs/610m_cpt.py', 'phases': (('mlm', 12_000),),
                                  'save_at': (),
                                  'weights_from': '', 'branch_from': '610m-clm-dec42k-mlm40-64k/10000'},
    '610m-clm-dec42k-mlm40-44k': {'config': 'configs/610m_cpt.py', 'phases': (('mlm', 2_000),), 'save_at': (),
                                  'weights_from': '610m-clm-42k/42000'},
    '610m-mlm40-dec42k-mlm40-64k': {'config': 'configs/610m_cpt.py', 'save_at': (),
                                    'weights_from': '610m-mlm40-42k/42000'},
    '610m-mlm40-dec42k-mlm40-54k': {'config': 'configs/610m_cpt.py', 'phases': (('mlm', 12_000),),
                                    'save_at': (),
                                    'weights_from': '', 'branch_from': '610m-mlm40-dec42k-mlm40-64k/10000'},
    '610m-mlm40-dec42k-mlm40-44k': {'config': 'configs/610m_cpt.py', 'phases': (('mlm', 2_000),),
                                    'save_at': (),
                                    'weights_from': '610m-mlm40-42k/42000'},
}
seeds = (0,)
# [126]* are all rows and the twelve checkpoints: not `untrained`, which the paper has not
every_task = {'models': ('[126]*',), 'lrs': (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4)}
tasks = (
    {'config': 'configs/tasks/sst2.py'},
    {'config': 'configs/tasks/qqp.py'},
    {'config': 'configs/tasks/mnli.py'},
    {'config': 'configs/tasks/conll2003.py'},
    {'config': 'configs/tasks/ontonotes.py'},
    {'config': 'configs/tasks/uner.py'},
    {'config': 'configs/tasks/squad.py'},
    {'config': 'configs/tasks/squad_v2.py'},
    {'config': 'configs/tasks/record.py'},
    {'config': 'configs/tasks/msmarco.py'},     # scored on nq and mldr_en, too
)
finetuning_seeds = 5

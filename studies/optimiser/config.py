# Objective or optimizer? {AdamW, Muon} x {CLM, MLM, CLM then MLM}: 0.9 M parameters, 1.8, 3.7 and 14.7 M
# tokens of novels (at most 0.6 passes), six seeds. Each arm has the learning rates that
# studies/optimiser_tuning found. Rows, contrasts and rules were committed before the first of these runs;
# half an hour later one row and its contrast went, before it ran (README.md). It wants the texts
# of studies/novels, and in texts/ewt_pos the tags of Universal Dependencies.
title = "the paper's claims, judged at this size"
corpus = {'config': 'configs/corpora/folder.py', 'path': 'texts/novels', 'out': 'corpora/novels',
          'tokenizer': 'configs/corpora/embedded', 'val_permille': 20, 'held_out_by': 'verbatim'}
seeds = (0, 1, 2, 3, 4, 5)
every_run = {'config': 'configs/tiny.py', 'warmup_steps': 100}
runs = {
    # Lengths share a trunk of constant rate, each with a decay over its last fifth.
    'mlm-14400': {'lr': 3e-3, 'phases': (('mlm', 14_400),)},
    'clm-14400': {'lr': 3e-3, 'phases': (('clm', 14_400),)},
    'clm25-mlm-14400': {'lr': 1.5e-3, 'phases': (('clm', 3_600), ('mlm', 10_800)),
                        'save_at': (3_600, 3_700, 4_000, 5_400, 7_200)},
    'mlm-1800': {'lr': 3e-3, 'phases': (('mlm', 1_800),), 'branch_from': 'mlm-14400/1440'},
    'clm-1800': {'lr': 3e-3, 'phases': (('clm', 1_800),), 'branch_from': 'clm-14400/1440'},
    'clm25-mlm-1800': {'lr': 1.5e-3, 'phases': (('clm', 450), ('mlm', 1_350)),
                       'branch_from': 'clm25-mlm-14400/450'},
    'mlm-3600': {'lr': 3e-3, 'phases': (('mlm', 3_600),), 'branch_from': 'mlm-14400/2880'},
    'clm-3600': {'lr': 3e-3, 'phases': (('clm', 3_600),), 'branch_from': 'clm-14400/2880'},
    'clm25-mlm-3600': {'lr': 1.5e-3, 'phases': (('clm', 900), ('mlm', 2_700)),
                       'branch_from': 'clm25-mlm-14400/900'},
    'muon-mlm-14400': {'optimizer': 'muon', 'lr': 3e-3, 'phases': (('mlm', 14_400),)},
    'muon-clm-14400': {'optimizer': 'muon', 'lr': 1.5e-3, 'phases': (('clm', 14_400),)},
    'muon-clm25-mlm-14400': {'optimizer': 'muon', 'lr': 1.5e-3, 'phases': (('clm', 3_600), ('mlm', 10_800)),
                             'save_at': (3_600, 3_700, 4_000, 5_400, 7_200)},
    'muon-mlm-1800': {'optimizer': 'muon', 'lr': 3e-3, 'phases': (('mlm', 1_800),),
                      'branch_from': 'muon-mlm-14400/1440'},
    'muon-clm-1800': {'optimizer': 'muon', 'lr': 1.5e-3, 'phases': (('clm', 1_800),),
                      'branch_from': 'muon-clm-14400/1440'},
    'muon-clm25-mlm-1800': {'optimizer': 'muon', 'lr': 1.5e-3, 'phases': (('clm', 450), ('mlm', 1_350)),
                            'branch_from': 'muon-clm25-mlm-14400/450'},
    'muon-mlm-3600': {'optimizer': 'muon', 'lr': 3e-3, 'phases': (('mlm', 3_600),),
                      'branch_from': 'muon-mlm-14400/2880'},
    'muon-clm-3600': {'optimizer': 'muon', 'lr': 1.5e-3, 'phases': (('clm', 3_600),),
                      'branch_from': 'muon-clm-14400/2880'},
    'muon-clm25-mlm-3600': {'optimizer': 'muon', 'lr': 1.5e-3, 'phases': (('clm', 900), ('mlm', 2_700)),
                            'branch_from': 'muon-clm25-mlm-14400/900'},
}
ladder = {
    'CLM, AdamW': ('clm-1800', 'clm-3600', 'clm-14400'),
    'MLM, AdamW': ('mlm-1800', 'mlm-3600', 'mlm-14400'),
    'CLM then MLM, AdamW': ('clm25-mlm-1800', 'clm25-mlm-3600', 'clm25-mlm-14400'),
    'CLM, Muon': ('muon-clm-1800', 'muon-clm-3600', 'muon-clm-14400'),
    'MLM, Muon': ('muon-mlm-1800', 'muon-mlm-3600', 'muon-mlm-14400'),
    'CLM then MLM, Muon': ('muon-clm25-mlm-1800', 'muon-clm25-mlm-3600', 'muon-clm25-mlm-14400'),
}
finetuning_seeds = 2
every_task = {'steps': 0}
tasks = (
    {'models': ('clm-*00', 'clm25-mlm-??00', 'clm25-mlm-14400', 'muon-clm-*00', 'muon-mlm-*00',
                'muon-clm25-mlm-??00', 'muon-clm25-mlm-14400'),
     'config': 'configs/tasks/ewt_pos.py', 'data': 'texts/ewt_pos', 'tags': 'tags', 'lrs': (4e-3,)},
    {'models': ('mlm-*00', 'untrained'),
     'config': 'configs/tasks/ewt_pos.py', 'data': 'texts/ewt_pos', 'tags': 'tags', 'lrs': (8e-3,)},
    {'models': ('clm-*00', 'muon-mlm-*00'),
     'config': 'configs/tasks/wn_sc.py', 'epochs': 2, 'lrs': (2e-3,)},
    {'models': ('mlm-*00', 'untrained'),
     'config': 'configs/tasks/wn_sc.py', 'epochs': 2, 'lrs': (4e-3,)},
    {'models': ('clm25-mlm-??00', 'clm25-mlm-14400', 'muon-clm-*00', 'muon-clm25-mlm-??00',
                'muon-clm25-mlm-14400'),
     'config': 'configs/tasks/wn_sc.py', 'epochs': 2, 'lrs': (1e-3,)},
    {'models': ('clm-*00', 'mlm-*00', 'untrained', 'clm25-mlm-??00', 'clm25-mlm-14400',
                'muon-mlm-*00'),
     'config': 'configs/tasks/example_ir.py', 'data': 'texts/squad_ir', 'dataset': 'squad_ir',
     'document': 'Document: {text}', 'max_length': 128, 'lrs': (2e-3,)},
    {'models': ('muon-clm-*00', 'muon-clm25-mlm-??00', 'muon-clm25-mlm-14400'),
     'config': 'configs/tasks/example_ir.py', 'data': 'texts/squad_ir', 'dataset': 'squad_ir',
     'document': 'Document: {text}', 'max_length': 128, 'lrs': (1e-3,)},
)
rules = 1    # as they were when this was frozen
# After 1.8 M tokens: is the lead of CLM then MLM over MLM greater under AdamW?
# After 14.7 M: the paper's order of its three arms, under each optimizer.
contrasts = {
    'interaction': {'rule': 'better',
        'weights': {'clm25-mlm-1800': 1, 'mlm-1800': -1, 'muon-clm25-mlm-1800': -1, 'muon-mlm-1800': 1},
        'datasets': ('ewt_pos', 'wn_sc', 'squad_ir')},
    'end under AdamW': {'rule': 'better', 'weights': {'mlm-14400': 1, 'clm-14400': -1},
        'datasets': ('ewt_pos', 'wn_sc', 'squad_ir')},
    'end under AdamW, ewt_pos': {'rule': 'better', 'weights': {'mlm-14400': 1, 'clm-14400': -1},
        'datasets': ('ewt_pos',)},
    'end under AdamW, wn_sc': {'rule': 'better', 'weights': {'mlm-14400': 1, 'clm-14400': -1},
        'datasets': ('wn_sc',)},
    'end under AdamW, squad_ir': {'rule': 'better', 'weights': {'mlm-14400': 1, 'clm-14400': -1},
        'datasets': ('squad_ir',)},
    'both under AdamW': {'rule': 'better', 'weights': {'clm25-mlm-14400': 1, 'mlm-14400': -1},
        'datasets': ('ewt_pos', 'wn_sc', 'squad_ir')},
    'MLM after CLM under AdamW': {'rule': 'better', 'weights': {'clm25-mlm-14400': 1, 'clm-14400': -1},
        'datasets': ('ewt_pos', 'wn_sc', 'squad_ir')},
    'end under Muon': {'rule': 'better', 'weights': {'muon-mlm-14400': 1, 'muon-clm-14400': -1},
        'datasets': ('ewt_pos', 'wn_sc', 'squad_ir')},
    'end under Muon, ewt_pos': {'rule': 'better', 'weights': {'muon-mlm-14400': 1, 'muon-clm-14400': -1},
        'datasets': ('ewt_pos',)},
    'end under Muon, wn_sc': {'rule': 'better', 'weights': {'muon-mlm-14400': 1, 'muon-clm-14400': -1},
        'datasets': ('wn_sc',)},
    'end under Muon, squad_ir': {'rule': 'better', 'weights': {'muon-mlm-14400': 1, 'muon-clm-14400': -1},
        'datasets': ('squad_ir',)},
    'both under Muon': {'rule': 'better', 'weights': {'muon-clm25-mlm-14400': 1, 'muon-mlm-14400': -1},
        'datasets': ('ewt_pos', 'wn_sc', 'squad_ir')},
    'MLM after CLM under Muon': {'rule': 'better',
        'weights': {'muon-clm25-mlm-14400': 1, 'muon-clm-14400': -1},
        'datasets': ('ewt_pos', 'wn_sc', 'squad_ir')},
}

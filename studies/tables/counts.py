"""Counted embeddings: studies/counts_tuning."""
from studies.page_numbers import last, scores, table, table_of

# the rates that were chosen: of pretraining (in the row's name), and of fine-tuning on docs_tc and docs_ir
TUNED = {
    'MLM, AdamW': ('mlm-1.5e-3', '2e-3', '1e-3'),
    'CLM then MLM, AdamW': ('clm25-mlm-1.5e-3', '2e-3', '1e-3'),
    '**counts, then MLM**, AdamW': ('counts-mlm-1.5e-3', '4e-3', '1e-3'),
    'MLM, Muon, ratio 6.7': ('muon-mlm-3e-3', '2e-3', '2e-3'),
    'CLM then MLM, Muon, ratio 6.7': ('muon-clm25-mlm-6e-3', '4e-3', '2e-3'),
    '**counts, then MLM**, Muon, ratio 6.7': ('muon-counts-mlm-1.5e-3', '2e-3', '1e-3'),
}


@table_of
def counts_tuning_chosen():
    rows = []
    for words, (row, rate_of_tc, rate_of_ir) in TUNED.items():
        model = f'counts_tuning/{row}'
        loss = last(model, 'val_mlm_loss').mean()
        means = [scores(f'{model}@{rate}', dataset).mean()
                 for dataset, rate in (('docs_tc', rate_of_tc), ('docs_ir', rate_of_ir), ('wn_sc', '2e-3'))]
        rows.append([words, f'{loss:.2f}', *(f'{mean:.1f}' for mean in means)])
    heads = ['1,800 steps, two tuning seeds', 'held-out MLM loss', 'code words', 'retrieval',
             'definitions, 6 epochs']
    return table(heads, rows)

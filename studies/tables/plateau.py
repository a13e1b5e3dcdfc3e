"""How long MLM's plateau lasts: studies/plateau and plateau_120m."""
import math

from studies.page_numbers import last, losses, table, table_of, waits


@table_of
def plateau_settings():
    names = {
        'the default: AdamW, 3e-3': 'plateau/plain',
        'rate 7.5e-4': 'plateau/rate-7.5e-4',
        'rate 1.5e-3': 'optimiser_tuning/mlm-1.5e-3',
        'rate 6e-3': 'optimiser_tuning/mlm-6e-3',
        'eps 1e-8 (default 1e-5)': 'plateau/eps-1e-8',
        'eps 1e-4': 'plateau/eps-1e-4',
        'eps 1e-3': 'plateau/eps-1e-3',
        'beta2 0.5 (default 0.95)': 'plateau/beta2-0.5',
        'beta2 0.8': 'plateau/beta2-0.8',
        'beta2 0.9': 'plateau/beta2-0.9',
        'beta2 0.99': 'plateau/beta2-0.99',
        'beta2 0.999': 'plateau/beta2-0.999',
        'warm-up of 10 steps (default 100)': 'plateau/warmup-10',
        'warm-up of 600': 'plateau/warmup-600',
        'beta2 0.8, warm-up of 10': 'plateau/beta2-0.8-warmup-10',
        'beta2 0.8, warm-up of 10, rate 1.5e-3': 'optimiser_tuning/quick-mlm-1.5e-3',
        'beta2 0.8, warm-up of 10, rate 6e-3': 'optimiser_tuning/quick-mlm-6e-3',
        'initial sd 0.06 (default 0.02)': 'plateau/initializer-0.06',
        'initial sd 0.1': 'plateau/initializer-0.1',
        'output head not tied': 'plateau/untied',
        '4,096 tokens a step (450 steps)': 'plateau/batch-4096',
        '4,096 tokens a step, rate 6e-3': 'plateau/batch-4096-6e-3',
        '**Muon**, 1.5e-3': 'optimiser_tuning/muon-mlm-1.5e-3',
        'Muon, 3e-3': 'optimiser_tuning/muon-mlm-3e-3',
        'Muon, 6e-3': 'optimiser_tuning/muon-mlm-6e-3',
    }
    rows = []
    for words, model in names.items():
        rows.append([words, waits(model), ', '.join(f'{loss:.2f}' for loss in last(model, 'val_mlm_loss'))])
    return table(['setting', 'ends at step, seeds 100, 101', 'held-out loss'], rows)


@table_of
def plateau_120m_losses():
    names = {
        'MLM, AdamW': 'mlm-1e-3',
        'CLM for 150 steps, then MLM, AdamW': 'clm25-mlm',
        'MLM, AdamW with two rates': 'two-mlm-4',
        'MLM, Muon': 'muon-mlm',
        'CLM for 150 steps, then MLM, Muon': 'muon-clm25-mlm',
    }
    steps = 200, 300, 450, 600
    rows = []
    for words, row in names.items():
        cells = [f'{loss_120m(row, step):.2f}' for step in steps]
        rows.append([words, waits(f'plateau_120m/{row}'), *cells])
    rows = [[cell.replace('nan', 'stopped') for cell in row] for row in rows]
    heads = [f'loss at step {step}' for step in steps]
    return table(['objective and optimizer', 'plateau ends at step', *heads], rows)


def loss_120m(row, step):
    """Return the held-out MLM loss of the one seed; nan if it has not come so far."""
    of_step = {int(line['step']): line for line in losses('plateau_120m')[row, 0]}
    return float(of_step[step]['val_mlm_loss']) if step in of_step else math.nan


@table_of
def plateau_120m_leads():
    rows = []
    for words, mlm, both in (('AdamW', 'mlm-1e-3', 'clm25-mlm'), ('Muon', 'muon-mlm', 'muon-clm25-mlm')):
        rows.append([words, *(f'{loss_120m(mlm, step) - loss_120m(both, step):.2f}' for step in (300, 600))])
    return table(['by how many nats CLM then MLM is below MLM', 'step 300', 'step 600'], rows)

"""Does MLM lose the token that a state stands on, and does late interaction lose with it?

    python studies/counts/late.py       # needs the checkpoints of studies/counts

Of checkpoints of studies/counts, six seeds each, it measures two things:

    identity        the share of states whose nearest state in another document is of the same token
    frozen scores   NDCG@10 of docs_ir and wn_ir without fine-tuning, by MaxSim; of docs_ir by means, too

Writes late.csv, a line for each checkpoint, and late.md: how CLM then MLM differs from MLM. After a kill
run it again: no frozen score is computed twice.

Written before the first of these numbers. Expected: at steps 600 and 1,800 CLM then MLM has the greater
identity, in six of six seeds under AdamW, and by less than half as much under Muon; at 7,200 steps it leads
by less than 5 points. On docs_ir its frozen MaxSim leads by 5 to 15 points at 1,800 steps under AdamW, and by
less under Muon. wn_ir is the control, since its queries share no words with their answers: nothing is seen
there. One and two seeds of another study had shown this much: identity 22 and 14 % against 62 and 66 % at
step 600; frozen MaxSim 8.8 against 19.0 at step 1,800."""
import concurrent.futures
import csv
import os
import statistics
import subprocess
import sys
from pathlib import Path

if __name__ == '__main__':  # before torch loads OpenMP, which reads it: waiting threads sleep, not spin
    os.environ.setdefault('OMP_WAIT_POLICY', 'passive')
sys.path.insert(0, str(Path(__file__).parents[2]))  # the root, where evaluate.py is

import evaluate
from data import Corpus
from evaluate import markdown, seeds_half
from finetune import initialise
from nanoencoder.huggingface import open_checkpoint
from nanoencoder.settings import run_main
from studies import identity, report

FOLDER = Path(__file__).parent
OUT = FOLDER / 'out'
SEEDS = 10, 11, 12, 13, 14, 15
STEPS = {       # of which rows; muon- stands before the same
    'mlm-1800': (300, 600, 1_800),
    'clm25-mlm-1800': (600, 1_800),
    'counts-mlm-1800': (300, 600, 1_800),
    'mlm-7200': (7_200,),
    'clm25-mlm-7200': (7_200,),
    'counts-mlm-7200': (7_200,)}
CHECKPOINTS = [(optimizer + row, step)
               for optimizer in ('', 'muon-') for row, steps in STEPS.items() for step in steps]
# (dataset, score) of the probes
PROBES = ('docs_ir', 'maxsim'), ('docs_ir', 'mean'), ('wn_ir', 'maxsim')
# CLM then MLM minus MLM, at these steps of these rows
CONTRASTS = [(600, 'clm25-mlm-1800', 'mlm-1800'), (1_800, 'clm25-mlm-1800', 'mlm-1800'),
             (7_200, 'clm25-mlm-7200', 'mlm-7200')]


def folder_of(row, seed, step):
    return OUT / f'{row}-s{seed}' / str(step)


def name_of(row, step):
    """The name that evaluate.py gives to a checkpoint: its row, and its step if that is not the last."""
    return row if row.endswith(f'-{step}') or row == 'untrained' else f'{row}-{step}'


def probes_of(step, dataset, score):
    """The folder of the predictions of all checkpoints of a step."""
    return OUT / 'late' / f'{step}-{dataset}-{score}'


# ---------------------------------------------------------------------------
# Measure


def identities():
    """Return {(row, step, seed): the share}, and that of ('untrained', 0, 0)."""
    cfg = identity.Settings()
    identity_of = identity.identity_on(Corpus(cfg.corpus), cfg)
    row, step = CHECKPOINTS[0]
    untrained = open_checkpoint(folder_of(row, SEEDS[0], step)).model(head=False)
    initialise(untrained, 'model', seed=0)
    share, _ = identity_of(untrained)
    shares = {('untrained', 0, 0): share}
    for row, step in CHECKPOINTS:
        for seed in SEEDS:
            transformer = open_checkpoint(folder_of(row, seed, step)).model(head=False)
            share, _ = identity_of(transformer)
            shares[row, step, seed] = share
        print(f'{row} step {step}: identity {share:.1%} of seed {seed}', flush=True)
    return shares


def probe(words):
    done = subprocess.run([sys.executable, 'finetune.py', *words], capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f'finetune.py {words}: {done.stderr.strip()[-200:]}')


def probe_all():
    """Score each checkpoint without fine-tuning, two at once. What is done is not done again."""
    jobs = []
    for dataset, score in PROBES:
        shared = [f'configs/tasks/{dataset}.py', '--probe', f'--score={score}']
        for row, step in CHECKPOINTS:
            for seed in SEEDS:
                jobs.append([*shared, f'--model={folder_of(row, seed, step)}',
                             f'--predictions={probes_of(step, dataset, score)}'])
        first = folder_of('mlm-1800', SEEDS[0], 1_800)      # for its sizes
        jobs.append([*shared, f'--model={first}', '--untrained',
                     f'--predictions={probes_of(1_800, dataset, score)}'])
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for number, _ in enumerate(pool.map(probe, jobs), 1):
            if number % 50 == 0 or number == len(jobs):
                print(f'{number} of {len(jobs)} frozen scores are there', flush=True)


# ---------------------------------------------------------------------------
# Judge


def cells_of(step, dataset, score):
    """{name of a checkpoint: its evaluate.Cell} of the frozen checkpoints of a step, on both splits."""
    predictions = str(probes_of(step, dataset, score))
    cfg = evaluate.Settings(predictions=predictions, split='both', clusters=False)
    problems = []
    cells = evaluate.make_cells(evaluate.read_runs(cfg, problems), cfg, problems)
    if problems:
        raise ValueError('; '.join(problems))
    ending = '+maxsim-probe' if score == 'maxsim' else '-probe'
    return {model.removesuffix(ending): cell for (model, _, name), cell in cells.items() if name == dataset}


def identity_row(shares, step, first, second):
    differences = [100 * (shares[first, step, seed] - shares[second, step, seed]) for seed in SEEDS]
    mean = statistics.fmean(differences)
    half = seeds_half([differences])
    above = sum(difference > 0 for difference in differences)
    return f'{mean:+.1f} [{mean - half:+.1f}, {mean + half:+.1f}], {above}/{len(SEEDS)}'


def score_row(cells, first, second):
    cfg = evaluate.Settings(split='both', clusters=False)
    seen = evaluate.estimate([[(1, cells[first]), (-1, cells[second])]], cfg)
    above = sum(value > 0 for value in seen.by_seed.values())
    return f'{report.points(seen)}, {above}/{len(seen.by_seed)}'


def main():
    shares = identities()
    probe_all()
    cells = {}      # {(step, dataset, score): {model: Cell}}
    for step in sorted({step for _, step in CHECKPOINTS}):
        for dataset, score in PROBES:
            cells[step, dataset, score] = cells_of(step, dataset, score)

    names = ['identity', *[f'{dataset}, {score}' for dataset, score in PROBES]]
    lines = [['row', 'step', 'seed', *names]]
    for (row, step, seed), share in shares.items():
        scores = []
        for dataset, score in PROBES:
            cell = cells[step or 1_800, dataset, score][name_of(row, step)]
            scores.append(cell.scores[seed])
        lines.append([row, step, seed, *[f'{100 * value:.2f}' for value in (share, *scores)]])
    with open(FOLDER / 'late.csv', 'w', newline='') as file:
        csv.writer(file, lineterminator='\n').writerows(lines)

    rows = []
    for optimizer, words in (('', 'AdamW'), ('muon-', 'Muon')):
        for step, *pair in CONTRASTS:
            pair = [optimizer + row for row in pair]
            names_of_pair = [name_of(row, step) for row in pair]
            scored = [score_row(cells[step, dataset, score], *names_of_pair) for dataset, score in PROBES]
            rows.append([words, f'{step:,}', identity_row(shares, step, *pair), *scored])
    page = markdown(['optimizer', 'step', *names], rows)
    (FOLDER / 'late.md').write_text(
        '# CLM then MLM minus MLM, of frozen checkpoints\n\n'
        'Points with their 95 % interval, then of how many seeds the difference is above 0. Intervals of '
        'identity are over\nseeds alone, others over seeds and queries.\n\n' + page + '\n')
    print(page)


if __name__ == '__main__':
    run_main(main)

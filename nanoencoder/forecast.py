"""What a study will be, before it starts: steps and operations counted, hours from a few steps measured."""
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tqdm import tqdm

from nanoencoder.pretraining.cost import PEAK, UTILISATION
from nanoencoder.jobs import corpus_meta, with_options, without

MEASURED = 1e12   # operations of a step: where one has more, a CPU is not asked
ALONE = dict(name='measured', branch_from='', repeat=1, warmup_steps=0, decay_steps=0, save_every=0,
             save_at=())   # a run of a few steps


def script(name, *arguments):
    """What a script prints, on one thread. ValueError where it fails."""
    path = Path(__file__).parent.parent / name
    result = subprocess.run([sys.executable, path, *map(str, arguments)], capture_output=True, text=True,
                            env=os.environ | {'OMP_NUM_THREADS': '1', 'OMP_WAIT_POLICY': 'passive'})
    if result.returncode:
        raise ValueError(f'{name} {" ".join(map(str, arguments))}: {result.stderr.strip()}')
    return result.stdout


def cost_words(row):
    """Its arguments without what ALONE replaces, and phases: rows that share them cost the same a step.

    It begins with no other row; a model from outside the study stays, for its sizes.
    """
    words = without(row.words, 'phases', 'weights_from', 'new_head', *ALONE)
    return (*words, f'--weights_from={row.weights}')


def computed(row):
    """The objective of each step that it does not share with its parent."""
    return row.phases[row.parent_step:] if row.begins == 'branch_from' else row.phases


def counted(words, kinds):
    """(tokens a step, {objective: operations a token}, parameters), as pretrain.py --dry_run says."""
    phases = tuple((kind, 1) for kind in kinds)
    text = script('pretrain.py', *with_options(words, phases=phases, **ALONE), '--dry_run')
    tokens, weights = (int(re.search(pattern, text)[1].replace(',', '')) for pattern in (
        r'tokens +([\d,]+) a step', r'([\d,]+) in all\n'))
    per_token = re.search('; a token (.*)', text)[1].split(', ')
    return tokens, {kind: float(x) for x, kind in (words.split(' of ') for words in per_token)}, weights


def dry_run(study, processes, left):
    """Print what a study will be; left is the number of its processes that are still to be run."""
    kinds = sorted({kind for row in study.rows.values() for kind in row.phases})
    different = [*dict.fromkeys(map(cost_words, study.rows.values()))]
    costs = {words: counted(words, kinds) for words in tqdm(different, 'counting', leave=False, disable=None)}
    width, total = max(map(len, study.rows)), Counter()     # of a pretraining seed
    print(f'{"row":<{width + 4}}  {"steps":>7}  {"computed":>8}  {"operations":>10}  begins with')
    for number, row in enumerate(study.rows.values(), 1):
        tokens, flops, weights = costs[cost_words(row)]
        steps, operations = len(computed(row)), sum(tokens * flops[kind] for kind in computed(row))
        print(f'{number:>2}  {row.name:<{width}}  {row.steps:>7,}  {steps:>8,}  {operations:>10.3g}  '
              + (f'{row.parent}/{row.parent_step}' if row.parent else row.weights))
        total += Counter(steps=steps, shared=row.steps - steps, operations=operations,
                         bytes=12 * weights * (1 + len(study.save_at(row.name))))
    seeds, speed = len(study.seeds), PEAK * UTILISATION
    tunings = sum(num_runs(study, line) for line in study.finetunings)
    hours = total['operations'] * seeds / speed / 3600
    print(f"""
runs        {len(study.rows) * seeds:,} pretrainings ({len(study.rows)} rows x {seeds} seeds), \
{tunings:,} fine-tunings; {left:,} processes are left
steps       {total['steps'] * seeds:,}, and {total['shared'] * seeds:,} that branches share
operations  {total['operations'] * seeds:.3g} FLOP of pretraining
disk        {total['bytes'] * seeds / 1e9:,.1f} GB of checkpoints at branches and ends
H100        {hours:,.{0 if hours > 10 else 2}f} hours of pretraining, if at {speed / 1e12:.0f} TFLOP/s""")
    print(f'here        {here(study, processes, costs, kinds)}')


def num_runs(study, line):
    """Fine-tunings of a line of tasks; `untrained` belongs to one pretraining seed."""
    seeds = sum(len(study.seeds) if study.check_model(model)[0] else 1 for model in line.models)
    return seeds * len(line.lrs) * study.finetuning_seeds


def here(study, processes, costs, kinds):
    """Hours on this machine, in words."""
    if any(tokens * max(flops.values()) >= MEASURED for tokens, flops, _ in costs.values()):
        return 'not measured: a step is too much for a CPU'
    if not (meta := corpus_meta(study)):
        return 'not measured: the study names no corpus'
    if not meta.exists():
        return f'not measured: {meta.parent} is not prepared yet (data.py {study.corpus})'
    with tempfile.TemporaryDirectory() as folder:
        speeds = {words: measured(words, kinds, meta.parent, f'{folder}/{number}')
                  for number, words in enumerate(costs)}
        tuning = sum(finetuning_seconds(line, f'{folder}/0') * num_runs(study, line)
                     for line in study.finetunings) / 3600 / processes
    training = 0.0
    for row in study.rows.values():
        words = cost_words(row)
        training += sum(costs[words][0] / speeds[words][kind] for kind in computed(row))
    training *= len(study.seeds) / 3600 / processes
    return (f'{training + tuning:.2g} hours with {processes} at once: {training:.2g} of pretraining, without '
            f'validation, and {tuning:.2g} of fine-tuning; a few steps and a run of each task were measured')


def measured(words, kinds, corpus, folder):
    """{objective: tokens a second} of a few steps on a CPU; the run's checkpoint stays in a folder."""
    script('pretrain.py', *with_options(
        words, phases=tuple((kind, 8) for kind in kinds), log_every=1, val_rows=0, device='cpu', out=folder,
        corpus=corpus, **ALONE))
    lines = [json.loads(line) for line in Path(folder, 'measured', 'log.jsonl').read_text().splitlines()]
    return {kind: statistics.median(line['tokens_per_second'] for line in lines if line['phase'] == kind)
            for kind in kinds}


def finetuning_seconds(line, folder):
    """Of a run of a line of tasks, beginning with the run that was measured."""
    text = script('finetune.py', *with_options(line.words, model=f'{folder}/measured', lr=line.lrs[0],
                                               device='cpu', predictions=f'{folder}/runs'))
    return int(re.findall(r'; (\d+) s', text)[-1])

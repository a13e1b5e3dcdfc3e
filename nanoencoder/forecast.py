"""What a study will be, before it starts: steps and operations counted, hours from a few steps measured."""
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nanoencoder.cost import PEAK, UTILISATION
from nanoencoder.jobs import corpus_folder, with_options, without

MEASURED = 1e12   # operations of a step: where one has more, a CPU is not asked
ALONE = dict(name='measured', branch_from='', weights_from='', repeat=1, warmup_steps=0, decay_steps=0,
             save_every=0, save_at=())   # a run of a few steps


def script(name, *arguments):
    """What a script prints. ValueError where it fails."""
    path = Path(__file__).parent.parent / name
    result = subprocess.run([sys.executable, path, *map(str, arguments)], capture_output=True, text=True,
                            env=os.environ | {'OMP_NUM_THREADS': '1', 'OMP_WAIT_POLICY': 'passive'})
    if result.returncode:
        raise ValueError(f'{name} {" ".join(map(str, arguments))}: {result.stderr.strip()}')
    return result.stdout


def own_words(row):
    """Its arguments without what ALONE replaces, and phases: rows that share them cost the same a step."""
    return tuple(without(row.words, 'phases', *ALONE))


def counted(words, kinds):
    """(tokens a step, {objective: operations a token}, parameters), as pretrain.py --dry_run says."""
    phases = tuple((kind, 1) for kind in kinds)
    text = script('pretrain.py', *with_options(words, phases=phases, **ALONE), '--dry_run')
    tokens, weights = (int(re.search(pattern, text)[1].replace(',', '')) for pattern in (
        r'tokens +([\d,]+) a step', r'([\d,]+) in all\n'))
    per_token = re.search('FLOP; a token (.*)', text)[1].split(', ')
    return tokens, {kind: float(x) for x, kind in (words.split(' of ') for words in per_token)}, weights


def measured(study, words, kinds, folder):
    """{objective: tokens a second} of a few steps on a CPU, one thread."""
    script('pretrain.py', *with_options(
        words, phases=tuple((kind, 8) for kind in kinds), log_every=1, val_rows=0, device='cpu', out=folder,
        corpus=corpus_folder(study), **ALONE))
    lines = [json.loads(line) for line in Path(folder, 'measured', 'log.jsonl').read_text().splitlines()]
    return {kind: statistics.median(line['tokens_per_second'] for line in lines if line['phase'] == kind)
            for kind in kinds}


def finetuning_seconds(study, folder):
    """Of a run of each line of tasks: one of the model that was measured, and its share of a grid's start."""
    seconds = []
    for line in study.finetunings:
        began = time.monotonic()
        text = script('finetune.py', *with_options(line.words, model=f'{folder}/measured', lr=line.lrs[0],
                                                   device='cpu', predictions=f'{folder}/runs'))
        own = int(re.findall(r'; (\d+) s', text)[-1])
        grid = len(line.lrs) * study.finetuning_seeds
        seconds.append(own + (time.monotonic() - began - own) / grid)
    return seconds


def dry_run(study, processes, left):
    """Print what a study will be; left is the number of its processes that are still to be run."""
    kinds = sorted({kind for row in study.rows.values() for kind in row.phases})
    costs = {own_words(row): None for row in study.rows.values()}
    with ThreadPoolExecutor(processes) as pool:
        costs = dict(zip(costs, pool.map(lambda words: counted(words, kinds), costs)))
    width, per_seed, saved, disk, needs = max(map(len, study.rows)), Counter(), 0, 0, {}
    print(f'{"row":<{width + 4}}  {"steps":>7}  {"computed":>8}  {"operations":>10}  begins with')
    for number, row in enumerate(study.rows.values(), 1):
        name, first = row.name, row.parent_step if row.begins == 'branch_from' else 0
        tokens, flops, weights = costs[own_words(row)]
        needs[name] = {kind: tokens * count for kind, count in Counter(row.phases[first:]).items()}
        operations = sum(flops[kind] * count for kind, count in needs[name].items())
        print(f'{number:>2}  {name:<{width}}  {row.steps:>7,}  {row.steps - first:>8,}  {operations:>10.3g}  '
              + (f'{row.parent}/{row.parent_step}' if row.parent else row.weights))
        per_seed['steps'] += row.steps - first
        per_seed['operations'] += operations
        saved, disk = saved + first, disk + 12 * weights * (1 + len(study.save_at(name)))
    seeds, count = len(study.seeds), [len([*runs_of(study, line)]) for line in study.finetunings]
    operations, speed = per_seed['operations'] * seeds, PEAK * UTILISATION
    hours = operations / speed / 3600
    print(f"""
runs        {len(study.rows) * seeds:,} pretrainings ({len(study.rows)} rows x {seeds} seeds), \
{sum(count):,} fine-tunings; {left:,} processes are left
steps       {per_seed['steps'] * seeds:,}, and {saved * seeds:,} that branches share
operations  {operations:.3g} FLOP of pretraining
disk        {disk * seeds / 1e9:,.1f} GB of checkpoints at branches and ends
H100        {hours:,.{0 if hours > 10 else 2}f} hours of pretraining, if at {speed / 1e12:.0f} TFLOP/s""")
    print(f'here        {here(study, processes, costs, kinds, needs, count)}')


def runs_of(study, line):
    """(model, learning rate, seed) of all fine-tunings of a line; untrained counts once."""
    for model in line.models:
        seeds = study.seeds if study.check_model(model)[0] else study.seeds[:1]
        yield from ((model, lr, seed, k) for lr in line.lrs for seed in seeds
                    for k in range(study.finetuning_seeds))


def here(study, processes, costs, kinds, needs, count):
    """Hours on this machine, in words."""
    small = [words for words, (tokens, flops, _) in costs.items() if tokens * max(flops.values()) < MEASURED]
    if len(small) < len(costs):
        return 'not measured: a step is too much for a CPU'
    if not (corpus_folder(study) / 'meta.json').exists():
        return f'not measured: {corpus_folder(study)} is not prepared yet (data.py {study.corpus})'
    with tempfile.TemporaryDirectory() as folder:
        speeds = {}
        for words in small:
            speeds[words] = measured(study, words, kinds, folder)
            tuning = finetuning_seconds(study, folder) if len(speeds) == 1 else tuning
            shutil.rmtree(Path(folder, 'measured'))
    training = len(study.seeds) * sum(
        tokens / speeds[own_words(study.rows[name])][kind]
        for name, own in needs.items() for kind, tokens in own.items()) / 3600 / processes
    tuning = sum(seconds * runs for seconds, runs in zip(tuning, count)) / 3600 / processes
    return (f'{training + tuning:.2g} hours with {processes} at once: {training:.2g} of pretraining, without '
            f'validation, and {tuning:.2g} of fine-tuning; a few steps and a run of each task were measured')

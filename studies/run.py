"""Run what is missing of a study: pretrain, fine-tune, pack, report. Run it again to continue.

    python studies/run.py studies/small                 # one pretraining seed after the other
    python studies/run.py studies/small --dry_run       # its rows and their steps, and how much is missing
    python studies/run.py studies/paper --row=23 --torchrun=--nproc_per_node=8      # job 23 of an array

pretrain.py and finetune.py skip what is done, resume what was stopped, and refuse other settings: this starts
them, in order. What is packed is not run again. Beside the config it makes

    out/ runs/ logs/    pretrainings, predictions, and what each process says
    rows.json           what each row was pretrained with: one that has changed is refused
    machine.jsonl       the time, commit and number of GPUs of each start

and what packs.py and report.py write."""
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # the root, where evaluate.py is

from evaluate import model_of
from examples.baselines import Settings as SimpleMethods
from nanoencoder.files import locked, saved_state, write_json
from nanoencoder.predictions import rate_and_seed
from nanoencoder.pretraining.log import commit
from nanoencoder.processes import stop_signals
from nanoencoder.settings import interrupt_on_signals, leaves, nearest, run_main
from studies import packs, report
from studies.hold_out import TUNING, hold_out
from studies.study import arguments, check_recorded, load, with_config

ACTIONS = {'dry_run': (False, 'print what the study will be, and stop'),
           'row': ('', 'only this row, by name or number; and what it branches from, if that is missing'),
           'seed': (-1, 'only this pretraining seed'),
           'processes': (0, 'runs at once; 0: one a GPU, or two', 0, 1_000),
           'torchrun': ('', 'options of torchrun, which then starts each run: --nproc_per_node=8')}
BASELINES = 'examples/baselines.py'
GPUS = len([*Path('/dev').glob('nvidia[0-9]*')])


class Job(NamedTuple):
    name: str
    command: list           # a script and its arguments, as text
    row: str = ''           # of the study; of its checkpoint, if that is fine-tuned
    dataset: str = ''       # that it fine-tunes on or scores
    runs: int = 0           # fine-tunings
    needs: Path = Path()    # what must be there before it starts
    makes: Path = Path()    # and what it leaves


# ---------------------------------------------------------------------------
# What is done already


def last_steps(study):
    """{run: the last step that losses.csv has of it}"""
    import pandas
    path = study.folder / 'losses.csv'
    if not path.exists():
        return {}
    return pandas.read_csv(path).groupby('folder')['step'].max().to_dict()


def finetuned(runs):
    """{(model, dataset, learning rate, seed)} of the runs that are in runs/ or packed."""
    done = set()
    for folder, about, _ in runs:
        done.add((model_of(folder, about), folder.parts[-2], *rate_and_seed(folder)))
    return done


def record_rows(study, seed):
    """Add each row that has come to its end to rows.json: what fixes its numbers, whatever the seed."""
    with locked(study.folder, wait=True):
        rows = check_recorded(study, ())
        for row in study.rows.values():
            state = saved_state(study.run(row.name, seed, row.steps))
            if state and row.name not in rows:
                rows[row.name] = state['fixed'] | {'weights_from': row.settings.get('weights_from', '')}
                del rows[row.name]['seed']
        write_json(study.folder / 'rows.json', rows, indent=None)


# ---------------------------------------------------------------------------
# What is missing


def missing_blocks(study, rows, seeds):
    """Return {pretraining seed: the Jobs that these rows lack with it}, without seeds that lack none.
    ValueError if a run was made with other settings than the study has now."""
    runs = [*packs.find_runs(study.folder)]
    check_recorded(study, runs)
    steps = last_steps(study)
    done = finetuned(runs)
    blocks = {}
    for seed in seeds:
        jobs = missing_jobs(study, rows, seed, steps, done)
        if seed == min(study.seeds) and len(rows) == len(study.rows) and not study.choose:
            jobs = baselines(study, done) + jobs
        if jobs:
            blocks[seed] = jobs
    return blocks


def missing_jobs(study, rows, seed, steps, done):
    """Return the Jobs that these rows lack with a pretraining seed, parents before children, and a row's
    fine-tunings after it. A row is pretrained again if a job needs its checkpoint and that is gone."""
    jobs = []
    needed = set()      # runs whose checkpoints jobs need, and which are not there
    for row in reversed(study.rows.values()):
        run = study.run(row.name, seed)
        of_row = []
        if row.name in rows:
            of_row = finetunings(study, row, seed, done)
        needed |= {job.needs.parent for job in of_row if not job.needs.exists()}
        is_wanted = row.name in rows and steps.get(run.name, 0) < row.steps
        if is_wanted or run in needed:
            job = pretraining(study, row, seed)
            of_row.insert(0, job)
            if not job.needs.exists():
                needed.add(job.needs.parent)
        jobs = of_row + jobs
    return jobs


def pretraining(study, row, seed):
    """Return the Job of a row."""
    run = study.run(row.name, seed)
    added = {'name': run.name, 'row': row.name, 'seed': seed, 'out': run.parent,
             'save_at': tuple(sorted(row.save_at - {row.steps}))}
    if study.corpus:
        added['corpus'] = study.corpus_folder
    parent = Path()
    if row.parent:
        parent = study.run(row.parent, seed, row.parent_step)
        added[row.begins] = parent
    command = ['pretrain.py', *arguments(row.settings, **added)]
    return Job(run.name, command, row.name, needs=parent, makes=run / str(row.steps))


def finetunings(study, row, seed, done):
    """Return a Job for each model and task of a row: the part of its grid that is missing."""
    seeds = [10 * seed + k for k in range(study.finetuning_seeds)]
    jobs = []
    for task in study.finetunings:
        for name, (of_row, step) in task.models.items():
            if of_row != row.name or name == 'untrained' and seed > min(study.seeds):
                continue
            model = name + task.variant
            missing = [pair for pair in itertools.product(task.lrs, seeds)
                       if any((model, dataset, *pair) not in done for dataset in task.datasets)]
            if missing:
                lrs, numbers = [tuple(dict.fromkeys(values)) for values in zip(*missing)]
                checkpoint = study.run(row.name, seed, step)
                command = arguments(task.settings, model=checkpoint, untrained=name == 'untrained', grid=True,
                                    lrs=lrs, seeds=numbers, predictions=study.folder / 'runs')
                dataset = task.datasets[0]
                jobs.append(Job(f'{model}-s{seed} {dataset}', ['finetune.py', *command], row.name, dataset,
                                len(missing), checkpoint))
    return jobs


def baselines(study, done):
    """Return a Job for each task whose simple method has not been scored yet, with those settings that it
    knows: batch_size and its like are a model's."""
    scored = {dataset for _, dataset, lr, _ in done if lr == 0}
    jobs = []
    for task in study.finetunings:
        dataset = task.datasets[0]
        if dataset not in scored and not task.variant:
            known = {name: task.settings[name] for name in task.settings if name in leaves(SimpleMethods)}
            command = [BASELINES, *arguments(known, predictions=study.folder / 'runs')]
            jobs.append(Job(f'baseline {dataset}', command, dataset=dataset))
            scored.add(dataset)
    return jobs


# ---------------------------------------------------------------------------
# Processes


# Becomes a command that a signal ends when this process has gone, whatever ended it: Linux's
# PR_SET_PDEATHSIG. The new process asks for that itself. A preexec_fn would run Python between fork and exec,
# and so would the hooks that libraries have for a fork, in which the exception of a Ctrl-C is lost.
WITH_PARENT = """
import ctypes, os, sys
parent, number, *command = sys.argv[1:]
ctypes.CDLL(None).prctl(1, int(number))
if os.getppid() == int(parent):
    os.execv(command[0], command)
"""


def start_script(script, *words, torchrun='', **options):
    """Start a script of ours. On Linux it ends with this process, whatever ends that; torchrun may save."""
    launcher = ['-m', 'torch.distributed.run', *shlex.split(torchrun)] if torchrun else []
    command = [sys.executable, *launcher, script, *words]
    if sys.platform == 'linux':
        number = signal.SIGTERM if torchrun else signal.SIGKILL
        command = [sys.executable, '-IS', '-c', WITH_PARENT, str(os.getpid()), str(int(number)), *command]
    return subprocess.Popen(command, **options)


def start_job(job, log, slot, actions):
    """Start a job as the slot-th of those that run at once."""
    environment = {'TORCH_ELASTIC_SHUTDOWN_TIMEOUT': '300'}     # seconds, to save in
    if actions.processes > 1 and not GPUS:
        environment['OMP_NUM_THREADS'] = '1'
    environment |= os.environ | {'LOCAL_RANK': str(slot)}
    torchrun = '' if job.command[0] == BASELINES else actions.torchrun
    with open(log, 'w') as file:
        print(f'$ {shlex.join(job.command)}', file=file, flush=True)
        return start_script(
            *job.command, torchrun=torchrun, env=environment,
            stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)


def last_words(log):
    """Return the last line of a log, or the last in it that says of an error or of a signal."""
    lines = log.read_text(errors='replace').strip().splitlines()
    ends = [line for line in lines if line.startswith('error: ') or ': stopped at step ' in line]
    return (ends or lines)[-1].strip()


def run_jobs(jobs, folder, actions, print_end, stop):
    """Run each job once what it needs is there, several at once, until `stop` holds a signal. When one ends,
    print_end(job, outcome, seconds) is called. Returns how many failed, were stopped or could not start."""
    waiting = list(jobs)
    running = {}        # {slot: (job, its log, its process, when it began)}
    failed = 0
    last_printed = time.monotonic()
    try:
        while not stop:
            ready = [job for job in waiting if job.needs.exists()]
            free = [slot for slot in range(actions.processes) if slot not in running]
            for slot, job in zip(free, ready):
                waiting.remove(job)
                log = folder / f'{job.name.replace(" ", "-")}.log'
                began = time.monotonic()
                running[slot] = job, log, start_job(job, log, slot, actions), began
            if not running:
                break
            time.sleep(0.1)
            for slot, (job, log, process, began) in list(running.items()):
                if process.poll() is None:
                    continue
                del running[slot]
                outcome = re.sub(r'; \S+ left$', '', last_words(log))
                if process.returncode or not job.makes.exists():
                    failed += 1
                    if ': stopped at step ' in outcome:     # its exit code is 3, but torchrun's is 1
                        outcome += '; run this again to continue'
                    else:
                        outcome = f'FAILED: {outcome} ({log})'
                print_end(job, outcome, time.monotonic() - began)
            if time.monotonic() > last_printed + 60:    # seconds
                last_printed = time.monotonic()
                for job, log, *_ in running.values():    # what they are doing, and the time they have left
                    print(f'    {job.name}: {last_words(log)}', flush=True)
    finally:
        for _, _, process, _ in running.values():
            process.terminate()     # a pretraining saves
        for _, _, process, _ in running.values():
            process.wait()
    if not stop:
        for job in waiting:
            print_end(job, f'NOT STARTED: lacks {job.needs}', 0)
    return failed + len(waiting)


# ---------------------------------------------------------------------------
# A start


def chosen_rows(study, wanted):
    """Return the names of the rows that --row asks for, by name or number. ValueError if there is none."""
    names = [name for number, name in enumerate(study.rows, 1) if wanted in ('', name, str(number))]
    if not names:
        raise ValueError(f'--row: no row {wanted!r}, nor number of 1 to {len(study.rows)}'
                         f'{nearest(wanted, study.rows)}')
    return names


def hours_of_pretraining(study, jobs, processes):
    """Say how many hours the pretrainings among these jobs take, at the median speed of the study's runs."""
    path = study.folder / 'losses.csv'
    if not path.exists():
        return 'not known: no run of this study has been timed'
    import pandas
    runs = pandas.read_csv(path).groupby('folder')
    # from one validation of a run to the next
    per_token = (runs['seconds'].diff() / runs['tokens'].diff()).median()
    tokens = 0
    for job in jobs:
        if job.command[0] == 'pretrain.py':
            row = study.rows[job.row]
            steps = row.steps
            if row.begins == 'branch_from':
                steps -= row.parent_step
            tokens += steps * row.cfg.rows_per_step * row.cfg.context
    hours = per_token * tokens / 3600
    at_once = ''
    if processes > 1:
        at_once = f' one run after the other, {hours / processes:.1f} with --processes={processes} at once'
    return f'{hours:.1f}{at_once}, at the speed of losses.csv'


def print_rows(study, jobs, processes):
    """Print the rows, and what is left. Rows that branch compute what their parents have not."""
    computed = 0
    for number, row in enumerate(study.rows.values(), 1):
        computed += row.steps
        if row.begins == 'branch_from':
            computed -= row.parent_step
        print(f'{number:>2}  {row.name:<28}  {row.steps:>7,} steps  {row.settings.get(row.begins, "")}')
    seeds = len(study.seeds)
    print(f'{len(study.rows) * seeds:,} pretrainings ({len(study.rows)} rows x {seeds} seeds), '
          f'{computed * seeds:,} steps in all; {len(jobs):,} processes are left')
    if jobs:
        hours = hours_of_pretraining(study, jobs, processes)
        print(f'hours of pretraining: {hours}; fine-tunings come on top')


def run_blocks(study, blocks, total, actions):
    """Run {seed: jobs}, and pack what each seed leaves. Returns how many jobs failed."""
    logs = study.folder / 'logs'
    logs.mkdir(exist_ok=True)
    machine = {'time': time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime()), 'commit': commit(), 'gpus': GPUS}
    with open(study.folder / 'machine.jsonl', 'a') as file:
        file.write(json.dumps(machine) + '\n')
    numbers = itertools.count(1)
    start = time.monotonic()

    def print_end(job, outcome, seconds):
        number = next(numbers)
        left = (time.monotonic() - start) / number * (total - number)
        print(f'[{number}/{total}] {job.name}: {outcome}; {timedelta(seconds=round(left))} left', flush=True)

    failed = 0
    for seed, jobs in blocks.items():
        print(f'seed {seed}: {len(jobs)} of {total} processes, {actions.processes} at once; see {logs}',
              flush=True)
        # noted, and looked at between jobs: an exception may be raised where it is lost
        with stop_signals() as stop:
            failed += run_jobs(jobs, logs, actions, print_end, stop)
        # of a stopped seed, too: a machine that is lent for minutes keeps nothing else
        record_rows(study, seed)
        packs.pack_study(study.folder)
        if stop:
            raise KeyboardInterrupt
    return failed


def run_script(script, *words):
    """Run a script of ours by itself, to its end or until a signal. Returns its exit code."""
    with stop_signals() as stop:
        process = start_script(script, *words)
        while process.poll() is None and not stop:
            time.sleep(0.1)
        if stop:
            process.terminate()
    if stop:
        raise KeyboardInterrupt
    return process.returncode


def prepare_corpus(study):
    if run_script('data.py', *arguments(with_config(study.corpus))):
        raise ValueError('the corpus was not prepared, as is said above')


def hold_out_rows(study):
    """Make the tasks of training rows that a study chooses on."""
    made_by = {task.cfg.data: task.cfg.made_by for task in study.finetunings}
    for data, command in made_by.items():
        hold_out(Path(data.removesuffix(TUNING)), command)


def run_missing(study, blocks, actions):
    """Run what missing_blocks returns of a study, after what it reads is prepared, and pack it. Returns how
    many jobs failed."""
    all_jobs = [*itertools.chain(*blocks.values())]
    failed = 0
    scripts = {job.command[0] for job in all_jobs}
    if 'pretrain.py' in scripts and study.corpus:
        prepare_corpus(study)
    if 'finetune.py' in scripts and study.choose == 'held-out rows':
        hold_out_rows(study)
    if blocks:
        failed = run_blocks(study, blocks, len(all_jobs), actions)
    else:
        print(f'{study.folder}: nothing to run')
        packs.pack_study(study.folder)    # a kill may have come before all was packed
    if failed:
        print(f'{failed} failed or stopped; start this again to do what is missing', file=sys.stderr)
    return failed


def main():
    study, actions = load(sys.argv[1:], ACTIONS)
    rows = chosen_rows(study, actions.row)
    seeds = [seed for seed in study.seeds if actions.seed in (-1, seed)]
    if not seeds:
        raise ValueError(f'--seed is one of {study.seeds}')
    actions.processes = actions.processes or (1 if actions.torchrun else GPUS or 2)
    blocks = missing_blocks(study, rows, seeds)
    if actions.dry_run:
        print_rows(study, [*itertools.chain(*blocks.values())], actions.processes)
        return

    interrupt_on_signals()
    failed = run_missing(study, blocks, actions)
    if (study.tasks or study.choose) and not actions.row and actions.seed == -1:
        failed += report.write_report(report.Evidence(study))
    sys.exit(bool(failed))


if __name__ == '__main__':
    run_main(main)

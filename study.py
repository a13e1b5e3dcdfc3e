"""Do whatever a study still lacks: prepare its corpus, pretrain, fine-tune, report. Again, it goes on.

    python study.py configs/studies/demo.py                # a pretraining seed is a block, packed at its end
    python study.py configs/studies/demo.py --dry_run      # its rows and their steps
    python study.py configs/studies/paper.py --row=23 --torchrun=--nproc_per_node=8     # job 23 of an array

Each run is a process of pretrain.py or finetune.py. Pretrainings go to the study's `out`, all else to its
folder: runs/, logs/, scores.csv, losses.csv, report.md, machine.jsonl. What stands there starts no process.
"""
import csv
import ctypes
import datetime
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from nanoencoder.files import commit, read_json, saved_steps
from nanoencoder.judging import studies
from nanoencoder.judging.predictions import check_packed, find_runs
from nanoencoder.settings import nearest, run_main

ACTIONS = {'dry_run': (False, 'print what the study will be, and stop'),
           'row': ('', 'only this row, by name or number; what it branches from, too, if that is missing'),
           'seed': (-1, 'only this pretraining seed', 0, 10 ** 9),
           'processes': (0, 'runs at once; 0: one a GPU, or two', 0, 1_000),
           'torchrun': ('', 'options of torchrun, which then starts each run: --nproc_per_node=8')}
GPUS = len([*Path('/dev').glob('nvidia[0-9]*')])


class Job(NamedTuple):
    name: str
    command: list       # a script and its arguments
    needs: list = []    # paths that must be there before it starts
    makes: list = []    # and those that it leaves


class Done:
    """What a study has finished, by its runs and losses.csv. A run made with other settings is an error."""
    def __init__(self, study):
        self.study, self.runs = study, Path(study.folder, 'runs')
        rows, lines, corpus = study.ask(Path(__file__).parent)
        if (meta := study.corpus_meta()) and meta.exists():     # else runs would read another corpus
            check_same_settings(meta, read_json(meta)['settings'], corpus)
        if Path(study.folder, 'sha256.json').exists():  # none before the first pack, or killed in one
            check_packed(self.runs)
        asked = {(self.model(name, seed) + line.variant, dataset):
                 (settings, rows.get(study.check_model(name)[0], {}) | {'seed': seed})
                 for seed in study.seeds for line, settings in zip(study.finetunings, lines)
                 for name in line.models for dataset in line.datasets}
        self.tuned = set()      # {(model, dataset, learning rate, seed)}
        for folder, about, _ in find_runs(self.runs, False):
            model, _, dataset, run = folder.parts[-4:]
            settings, row = asked.get((model, dataset), ({}, {}))
            past = about.get('pretraining') or {}
            check_same_settings(folder, about.get('settings', {}) | about.get('rows', {}), settings)
            check_same_settings(folder, past | past.get('fixed', {}), row)
            lr, seed = run.removeprefix('lr').split('_sd')
            self.tuned.add((model, dataset, float(lr), int(seed)))
        table = csv.DictReader(open(path) if (path := Path(study.folder, 'losses.csv')).exists() else ())
        last = {row['folder']: int(row['step']) for row in sorted(table, key=lambda row: int(row['step']))}
        self.reached = {}   # {(row, seed): step of the newest checkpoint, or of losses.csv}
        for row, seed in itertools.product(study.rows.values(), study.seeds):
            step = max(saved_steps(run := self.run(row.name, seed)), default=0)
            self.reached[row.name, seed] = max(step, last.get(run.name, 0))     # a run may be elsewhere now
            if step:
                state = read_json(path := run / str(step) / 'state.json')
                made = state['fixed'] | {'weights_from': state['settings']['weights_from']}
                parent = {row.begins: str(self.run(row.parent, seed, row.parent_step))} if row.parent else {}
                check_same_settings(path, made, rows[row.name] | parent | {'seed': seed})

    def model(self, name, seed):
        """What a model is called in runs/."""
        row, step = self.study.check_model(name)
        return f'{row}-s{seed}' + f'-{step}' * (step != self.study.rows[row].steps) if row else name

    def run(self, row, seed, *step):
        return Path(self.study.out, f'{row}-s{seed}', *map(str, step))


def check_same_settings(path, made, settings):
    for name, value in settings.items():
        if made.get(name, value) != value:
            raise ValueError(f'{path}: was made with {name} = {made[name]}, not {value}: rename it')


def chosen(study, actions):
    """{seed: names of rows} that the actions ask for; `untrained` belongs to the least seed."""
    names = [*study.rows]
    row = dict(zip(map(str, itertools.count(1)), names)).get(actions.row, actions.row)
    if row not in ('', *names):
        raise ValueError(f'--row: no row {row!r}, nor number of 1 to {len(names)}{nearest(row, names)}')
    if actions.seed not in (-1, *study.seeds):
        raise ValueError(f'--seed is one of {study.seeds}')
    return {seed: ([row] if row else names) + ['untrained'] * (row == '' and seed == min(study.seeds))
            for seed in study.seeds if actions.seed in (-1, seed)}


def plan(study, actions):
    """{seed: jobs that are missing}; a row is fine-tuned before the next begins."""
    done, blocks, meta = Done(study), {}, study.corpus_meta()
    for seed, names in chosen(study, actions).items():
        tunings, trainings = {name: finetunings(study, done, seed, name) for name in names}, {}
        lacking = {path for job in sum(tunings.values(), []) for path in job.needs if not path.exists()}
        for row in reversed(study.rows.values()):    # branches stand after their parents
            unfinished = row.name in names and done.reached[row.name, seed] < row.steps
            if unfinished or done.run(row.name, seed) in {path.parent for path in lacking}:
                trainings[row.name] = [pretraining(study, done, row, seed)]
                lacking |= {path for path in trainings[row.name][0].needs if not path.exists()}
        blocks[seed] = tunings.get('untrained', []) + baselines(study, done) * ('untrained' in names)
        if meta in lacking:     # it is prepared once
            blocks[seed].insert(0, Job('corpus', ['data.py', *studies.arguments(study.corpus)], makes=[meta]))
            meta = None
        for name in study.rows:
            blocks[seed] += trainings.get(name, []) + tunings.get(name, [])
    return blocks


def pretraining(study, done, row, seed):
    """The job of a row, which needs the checkpoint that it begins with."""
    run, needs = done.run(row.name, seed), []
    options = dict(name=run.name, row=row.name, seed=seed, out=study.out, save_at=study.save_at(row.name))
    if row.parent:
        options |= {row.begins: done.run(row.parent, seed, row.parent_step)}
        needs += [] if saved_steps(run) else [options[row.begins]]
    if meta := study.corpus_meta():
        options['corpus'] = meta.parent
        needs.append(meta)
    command = ['pretrain.py', *studies.arguments(row.options, **options)]
    return Job(run.name, command, needs, [run / str(row.steps)])


def finetunings(study, done, seed, row):
    """A job for each of a row's models and tasks: the grid of what is missing, which skips what is done."""
    jobs, seeds = [], [10 * seed + k for k in range(study.finetuning_seeds)]
    for line in study.finetunings:
        for name in (name for name in line.models if (study.check_model(name)[0] or name) == row):
            model = done.model(name, seed) + line.variant
            if missing := [run for run in itertools.product(line.settings['lrs'], seeds)
                           if any((model, dataset, *run) not in done.tuned for dataset in line.datasets)]:
                new = {'untrained': True} if row == 'untrained' else {}
                of, step = study.check_model(next(iter(study.rows)) if new else name)   # sizes, tokenizer
                checkpoint = done.run(of, seed, step)
                lrs, numbers = (tuple(dict.fromkeys(values)) for values in zip(*missing))
                command = studies.arguments(line.options, model=checkpoint, grid=True, lrs=lrs, seeds=numbers,
                                            predictions=done.runs, **new)
                jobs.append(Job(f'{model} {line.datasets[0]}', ['finetune.py', *command], [checkpoint]))
    return jobs


def baselines(study, done):
    """A job for each task whose simple method has not been scored yet."""
    scored, jobs = {dataset for _, dataset, lr, _ in done.tuned if not lr}, {}
    for line in study.finetunings:
        if not line.variant and (dataset := line.datasets[0]) not in scored:
            command = studies.arguments(line.options, baseline=True, predictions=done.runs)
            jobs.setdefault(dataset, Job(f'baseline {dataset}', ['finetune.py', *command]))
    return [*jobs.values()]


def start(name, *arguments, torchrun='', **options):
    """A process of a script of ours. Linux ends it with this one; torchrun's has time to save."""
    def die_with_parent():
        if sys.platform == 'linux':     # PR_SET_PDEATHSIG
            ctypes.CDLL(None).prctl(1, signal.SIGTERM if torchrun else signal.SIGKILL)
    launcher = ['-m', 'torch.distributed.run', *shlex.split(torchrun)] if torchrun else []
    command = [sys.executable, *launcher, Path(__file__).with_name(name), *arguments]
    return subprocess.Popen(command, preexec_fn=die_with_parent, **options)


def last_words(log):
    _, *lines = log.read_text(errors='replace').rpartition('\n$ ')[2].strip().splitlines()
    errors = [line for line in lines if line.startswith('error: ')]
    return (errors or lines or ['it has said nothing'])[-1].split('\r')[-1]


def run_jobs(jobs, study, processes, torchrun, tell):
    """Run what can be run, some at once, in order. The number of jobs that failed or could not start."""
    waiting, running, failed, logs, told = list(jobs), {}, 0, Path(study.folder, 'logs'), time.monotonic()
    usual = {'OMP_WAIT_POLICY': 'passive', 'TORCH_ELASTIC_SHUTDOWN_TIMEOUT': '300'} | os.environ
    usual |= {'OMP_NUM_THREADS': '1'} if processes > 1 and not GPUS else {}    # who waits for others sleeps
    try:
        while waiting or running:
            for slot, (job, log, process) in list(running.items()):
                if process.poll() is not None:
                    del running[slot]
                    good = process.returncode == 0 and all(path.exists() for path in job.makes)
                    failed += not good
                    tell(job, re.sub(r'; \S+ left$', '', last_words(log)) if good else
                         f'FAILED: {last_words(log)} ({log})')
            ready = [job for job in waiting if all(path.exists() for path in job.needs)]
            free = [slot for slot in range(processes) if slot not in running]
            for slot, job in zip(free, ready):
                waiting.remove(job)
                log = logs / f'{job.name.replace(" ", "-")}.log'
                several = job.command[0] == 'pretrain.py' or '--grid=True' in job.command
                with open(log, 'a') as file:
                    print(f'\n$ {shlex.join(map(str, job.command))}', file=file, flush=True)
                    running[slot] = job, log, start(
                        *job.command, torchrun=torchrun * several, env=usual | {'LOCAL_RANK': str(slot)},
                        stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)
            if time.monotonic() > told + 60:    # seconds: what runs are doing, and the time they have left
                told = time.monotonic()
                for job, log, _ in running.values():
                    print(f'    {job.name}: {last_words(log).strip()}')
            if waiting and not running:
                for job in waiting:
                    tell(job, f'NOT STARTED: lacks one of {", ".join(map(str, job.needs))}')
                return failed + len(waiting)
            time.sleep(0.1)
    finally:
        for *_, process in running.values():
            process.terminate()  # a pretraining saves
        for *_, process in running.values():
            process.wait()
    return failed


def dry_run(study, left):
    """Print the rows: those that branch compute what their parents have not."""
    width, seeds, total = max(map(len, study.rows)), len(study.seeds), 0
    print(f'    {"row":<{width}}  {"steps":>7}  {"computed":>8}  begins with')
    for k, row in enumerate(study.rows.values(), 1):
        steps = row.steps - (row.parent_step if row.begins == 'branch_from' else 0)
        total += steps
        print(f'{k:>2}  {row.name:<{width}}  {row.steps:>7,}  {steps:>8,} ', row.settings.get(row.begins, ''))
    print(f'\n{len(study.rows) * seeds:,} pretrainings ({len(study.rows)} rows x {seeds} seeds) of '
          f'{total * seeds:,} steps; {left:,} processes are left')


def main():
    study, actions = studies.load(sys.argv[1:], ACTIONS)
    blocks = {seed: jobs for seed, jobs in plan(study, actions).items() if jobs}
    total, count, began = sum(map(len, blocks.values())), itertools.count(1), time.monotonic()
    if actions.dry_run:
        return dry_run(study, total)

    def tell(job, words):
        left = (time.monotonic() - began) * (total / (number := next(count)) - 1)
        print(f'[{number}/{total}] {job.name}: {words}; {datetime.timedelta(seconds=round(left))} left')
    sys.stdout.reconfigure(line_buffering=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: runs are told to save
    processes, failed = actions.processes or (1 if actions.torchrun else GPUS or 2), 0
    Path(study.folder, 'logs').mkdir(parents=True, exist_ok=True)
    if blocks:
        about = {'time': time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime()), 'commit': commit(), 'gpus': GPUS}
        with open(Path(study.folder, 'machine.jsonl'), 'a') as file:
            file.write(json.dumps(about) + '\n')
    for seed, jobs in (blocks or {0: []}).items():  # a kill may have come before all was packed
        print(f'seed {seed}: {len(jobs)} of {total} processes, {processes} at once; see {study.folder}/logs'
              if jobs else f'{study.folder}: nothing to do')
        failed += run_jobs(jobs, study, processes, actions.torchrun, tell)
        runs = [Path(study.out, f'{name}-s{number}') for number in study.seeds for name in study.rows]
        logs = [run for run in runs if (run / 'log.jsonl').exists()]
        failed += start('evaluate.py', 'pack', study.folder, *logs).wait() != 0
    if failed:
        print(f'{failed} failed; start this again to do what is missing', file=sys.stderr)
    if study.tasks and not actions.row and actions.seed == -1:
        words = [word for word in sys.argv[1:] if word.split('=')[0].removeprefix('--') not in ACTIONS]
        failed += start('evaluate.py', 'report', *words).wait() != 0
    sys.exit(1 if failed else 0)


if __name__ == '__main__':
    run_main(main)

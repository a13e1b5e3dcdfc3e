"""Run what is missing of a study: prepare its corpus, pretrain, fine-tune, report. Run it again to continue.

    python study.py configs/studies/demo.py                # a pretraining seed is a block, packed at its end
    python study.py configs/studies/demo.py --dry_run      # its rows and their steps
    python study.py configs/studies/paper.py --row=23 --torchrun=--nproc_per_node=8     # job 23 of an array

Each run is a process of pretrain.py or finetune.py. Pretrainings go to the study's `out`, all else to its
folder: runs/, logs/, scores.csv, losses.csv, rows.json, report.md, machine.jsonl. What stands there is not
run again; rows.json says with which settings a row was pretrained, when its checkpoints are gone."""
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

from nanoencoder.files import locked, read_json, saved_state, saved_steps, write_json
from nanoencoder.judging import studies
from nanoencoder.judging.predictions import check_packed, find_runs
from nanoencoder.pretraining.log import commit
from nanoencoder.settings import interrupt_on_signals, nearest, run_main

ACTIONS = {'dry_run': (False, 'print what the study will be, and stop'),
           'row': ('', 'only this row, by name or number; what it branches from, too, if that is missing'),
           'seed': (-1, 'only this pretraining seed', 0, 10 ** 9),
           'processes': (0, 'runs at once; 0: one a GPU, or two', 0, 1_000),
           'torchrun': ('', 'options of torchrun, which then starts each run: --nproc_per_node=8')}
LEFT_TO_RUNS = ('dtype', 'auto'), ('max_length', 0), ('row', '')   # what a study cannot know yet
GPUS = len([*Path('/dev').glob('nvidia[0-9]*')])


class Job(NamedTuple):
    name: str
    command: list           # a script and its arguments
    needs: list = []        # paths that must be there before it starts
    makes: list = []        # and those that it leaves
    wanted: bool = True     # or only where another job needs what it makes


def ask(script, table, entries):
    """The settings, defaults included, that a script reads of each entry; ValueError where it refuses one."""
    process = subprocess.run([sys.executable, Path(__file__).with_name(script), '--each'], text=True,
                             input=json.dumps([*map(studies.arguments, entries)]), capture_output=True)
    settings = [*map(json.loads, process.stdout.splitlines())]
    if process.returncode:
        error = process.stderr.strip().removeprefix('error: ') or f'{script} was killed'
        raise ValueError(f'{table} {len(settings) + 1}: {error}')
    return settings


def check_same_settings(path, made, settings):
    for name, value in settings.items():
        if (name, value) not in LEFT_TO_RUNS and made.get(name, value) != value:
            raise ValueError(f'{path}: was made with {name} = {made[name]}, not {value}: rename it, or take '
                             'another --folder')


def check_can_be_made(number, settings):
    """ValueError if an entry of `tasks` is an embedded task that was removed: its runs would all fail."""
    from nanoencoder.tasks.files import EMBEDDED_TASKS      # imported late: it takes a second
    source, dataset = settings.get('source'), settings.get('dataset')
    if source in EMBEDDED_TASKS and not settings['data'] and dataset not in EMBEDDED_TASKS[source]:
        raise ValueError(f'tasks {number}: {source} has no task {dataset} any more, only '
                         f'{", ".join(EMBEDDED_TASKS[source])}; leave it out, or check out a commit that '
                         'has it')


class Done:
    """Reads what a study has finished, and makes the jobs that are missing. What was made with other settings
    is an error."""
    def __init__(self, study):
        self.study = study
        self.runs = Path(study.folder, 'runs')
        self.corpus = self.corpus_jobs()
        self.rows = self.settings_of_rows()     # {row: its settings}
        entries = [line.options | {'lrs': line.lrs} for line in study.finetunings]
        self.lines = [*zip(study.finetunings, ask('finetune.py', 'tasks', entries))]
        if Path(study.folder, 'sha256.json').exists():  # none before the first pack, or killed in one
            with locked(study.folder, wait=True):   # while another job packs
                check_packed(self.runs)
        self.tuned = self.read_tuned()
        self.logged = read_last_steps(study)
        self.recorded = read_rows(study)

    def corpus_jobs(self):
        """[the job that prepares the corpus], or [] where a study names none."""
        if not self.study.corpus:
            return []
        settings, = ask('data.py', 'corpus', [self.study.corpus])
        meta = Path(settings['out'], 'meta.json')
        if meta.exists():   # else runs would read another corpus
            check_same_settings(meta, read_json(meta)['settings'], settings)
        command = ['data.py', *studies.arguments(self.study.corpus)]
        return [Job('corpus', command, makes=[meta], wanted=False)]

    def settings_of_rows(self):
        rows = self.study.rows
        asked = ask('pretrain.py', 'row', [row.options | {'name': name} for name, row in rows.items()])
        for row, settings in zip(rows.values(), asked):
            sizes = settings.pop('model', {})   # of what it begins with, where it does not say them
            settings |= {name: sizes[name] for name in sizes if not row.begins or name in row.settings}
        return dict(zip(rows, asked))

    def read_tuned(self):
        """{(model, dataset): {(learning rate, seed): (folder, its settings, its pretraining's)}}"""
        tuned = {}
        for folder, about, _ in find_runs(self.runs, False):
            model, _, dataset, run = folder.parts[-4:]
            lr, seed = run.removeprefix('lr').split('_sd')
            made = about.get('settings', {}) | about.get('rows', {})
            past = about.get('pretraining') or {}
            runs = tuned.setdefault((model, dataset), {})
            runs[float(lr), int(seed)] = folder, made, past | past.get('fixed', {})
        return tuned

    def pretraining(self, row, seed, wanted):
        """The job of a row, which needs the checkpoint that it begins with. Its run may be elsewhere now."""
        study, needs = self.study, [path for job in self.corpus for path in job.makes]
        run = study.run(row.name, seed)
        options = dict(name=run.name, row=row.name, seed=seed, out=study.out,
                       save_at=tuple(sorted(row.save_at - {row.steps})))
        options |= {'corpus': path.parent for path in needs}
        begins = {row.begins: str(study.run(row.parent, seed, row.parent_step))} if row.parent else {}
        step = max(saved_steps(run), default=0)
        if step:
            state = saved_state(run / str(step))
            made = state['fixed'] | {'weights_from': state['settings']['weights_from']}
            path = run / str(step) / 'state.json'
            check_same_settings(path, made, self.rows[row.name] | begins | {'seed': seed})
        else:
            path = rows_file(study)
            check_same_settings(f'{path}: {row.name}', self.recorded.get(row.name, {}), self.rows[row.name])
            needs += map(Path, begins.values())
        command = ['pretrain.py', *studies.arguments(row.options, **options, **begins)]
        return Job(run.name, command, needs, [run / str(row.steps)],
                   wanted and max(step, self.logged.get(run.name, 0)) < row.steps)

    def finetunings(self, row, seed):
        """A job for each of a row's models and tasks: the grid of what is missing; it skips what is done."""
        study, jobs, seeds = self.study, [], [10 * seed + k for k in range(self.study.finetuning_seeds)]
        new = {'untrained': True} if row == 'untrained' else {}
        of = study.rows[next(iter(study.rows)) if new else row]     # `untrained` has the first row's sizes
        for entry, (line, settings) in enumerate(self.lines, 1):
            for step in (step for name, step in line.models.values() if name == row):
                model = (row if new else f'{row}-s{seed}' + f'-{step}' * (step != of.steps)) + line.variant
                tuned = [self.tuned.get((model, dataset), {}) for dataset in line.datasets]
                for (lr, number), (folder, made, past) in itertools.chain(*map(dict.items, tuned)):
                    check_same_settings(folder, made, settings | {'lr': lr, 'seed': number})
                    check_same_settings(folder, past, self.rows.get(row, {}) | {'seed': seed})
                if missing := [run for run in itertools.product(line.lrs, seeds)
                               if not all(run in of_dataset for of_dataset in tuned)]:
                    check_can_be_made(entry, settings)
                    lrs, numbers = (tuple(dict.fromkeys(values)) for values in zip(*missing))
                    checkpoint = study.run(of.name, seed, of.steps if new else step)
                    command = studies.arguments(line.options, model=checkpoint, grid=True, lrs=lrs,
                                                seeds=numbers, predictions=self.runs, **new)
                    jobs.append(Job(f'{model} {line.datasets[0]}', ['finetune.py', *command], [checkpoint]))
        return jobs

    def baselines(self):
        """A job for each task whose simple method has not been scored yet."""
        scored = {dataset for (_, dataset), runs in self.tuned.items() for lr, _ in runs if not lr}
        lines = {line.datasets[0]: line for line in reversed(self.study.finetunings) if not line.variant}
        return [Job(f'baseline {dataset}', ['finetune.py', *studies.arguments(
                    line.options, baseline=True, predictions=self.runs)])
                for dataset, line in lines.items() if dataset not in scored]


def rows_file(study):
    return Path(study.folder, 'rows.json')


def read_rows(study):
    """{row: settings that it was pretrained with}, also of those whose folders are gone."""
    path = rows_file(study)
    return read_json(path) if path.exists() else {}


def record_rows(study, rows):
    """Add each row that has come to its end to rows.json: what fixes its numbers, the same for all seeds."""
    with locked(study.folder, wait=True):
        recorded = before = read_rows(study)
        for row, seed in itertools.product(study.rows.values(), study.seeds):
            last = study.run(row.name, seed, row.steps)
            if row.name not in recorded and last.exists():
                made = saved_state(last)['fixed']
                made['weights_from'] = rows[row.name]['weights_from']   # as the study names it: of no seed
                recorded = recorded | {row.name: {name: made[name] for name in made if name != 'seed'}}
        if recorded != before:
            write_json(rows_file(study), recorded, indent=None)


def read_last_steps(study):
    """{run: the last step that losses.csv has of it}"""
    path = Path(study.folder, 'losses.csv')
    if not path.exists():
        return {}
    with open(path) as file:
        return {line['folder']: int(line['step']) for line in csv.DictReader(file)}


def plan(study, done, actions):
    """{seed: jobs that are missing}, of those asked for; a row is fine-tuned before the next begins."""
    names = [*study.rows]
    only = dict(zip(map(str, itertools.count(1)), names)).get(actions.row, actions.row)
    if only not in ('', *names):
        raise ValueError(f'--row: no row {only!r}, nor number of 1 to {len(names)}{nearest(only, names)}')
    if actions.seed not in (-1, *study.seeds):
        raise ValueError(f'--seed is one of {study.seeds}')
    blocks = {}
    corpus = done.corpus
    for seed in study.seeds if actions.seed == -1 else [actions.seed]:
        is_first = not only and seed == min(study.seeds)
        jobs = corpus + done.baselines() * is_first
        for name in names:
            wanted = only in ('', name)
            jobs.append(done.pretraining(study.rows[name], seed, wanted))
            if is_first and name == names[0]:   # whose sizes `untrained` has
                jobs += done.finetunings('untrained', seed)
            if wanted:
                jobs += done.finetunings(name, seed)
        lacking, blocks[seed] = set(), []
        for job in reversed(jobs):      # what another job needs stands before it
            if job.wanted or {path.parent for path in lacking} & {path.parent for path in job.makes}:
                blocks[seed].insert(0, job)
                lacking |= {path for path in job.needs if not path.exists()}
        corpus = [job for job in corpus if job not in blocks[seed]]     # it is prepared once
    return blocks


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
    return (errors or lines or ['nothing said yet'])[-1].split('\r')[-1]


def run_jobs(jobs, study, processes, torchrun, tell):
    """Run what can be run, some at once, in order. The number of jobs that failed or could not start."""
    waiting, running, failed, logs, told = list(jobs), {}, 0, Path(study.folder, 'logs'), time.monotonic()
    usual = {'OMP_WAIT_POLICY': 'passive', 'TORCH_ELASTIC_SHUTDOWN_TIMEOUT': '300'}   # who waits sleeps
    usual |= ({'OMP_NUM_THREADS': '1'} if processes > 1 and not GPUS else {}) | os.environ
    try:
        while True:
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
            if not running:
                break
            time.sleep(0.1)
            for slot, (job, log, process) in list(running.items()):
                if process.poll() is not None:
                    del running[slot]
                    good = process.returncode == 0 and all(path.exists() for path in job.makes)
                    failed += not good
                    tell(job, re.sub(r'; \S+ left$', '', last_words(log)) if good else
                         f'FAILED: {last_words(log)} ({log})')
            if time.monotonic() > told + 60:    # seconds: what runs are doing, and the time they have left
                told = time.monotonic()
                for job, log, _ in running.values():
                    print(f'    {job.name}: {last_words(log).strip()}')
    finally:
        for *_, process in running.values():
            process.terminate()  # a pretraining saves
        for *_, process in running.values():
            process.wait()
    for job in waiting:
        tell(job, f'NOT STARTED: lacks one of {", ".join(map(str, job.needs))}')
    return failed + len(waiting)


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
    done = Done(study)
    blocks = {seed: jobs for seed, jobs in plan(study, done, actions).items() if jobs}
    total, count, began = sum(map(len, blocks.values())), itertools.count(1), time.monotonic()
    if actions.dry_run:
        return dry_run(study, total)

    def tell(job, words):
        left = (time.monotonic() - began) * (total / (number := next(count)) - 1)
        print(f'[{number}/{total}] {job.name}: {words}; {datetime.timedelta(seconds=round(left))} left')
    sys.stdout.reconfigure(line_buffering=True)
    interrupt_on_signals()  # runs are told to save
    processes, failed = actions.processes or (1 if actions.torchrun else GPUS or 2), 0
    Path(study.folder, 'logs').mkdir(parents=True, exist_ok=True)
    if blocks:
        about = {'time': time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime()), 'commit': commit(), 'gpus': GPUS}
        with open(Path(study.folder, 'machine.jsonl'), 'a') as file:
            file.write(json.dumps(about) + '\n')
    for seed, jobs in (blocks or {0: []}).items():  # a kill may have come before all was packed
        print(f'seed {seed}: {len(jobs)} of {total} processes, {processes} at once; see {study.folder}/logs'
              if jobs else f'{study.folder}: nothing to do but its report')
        failed += run_jobs(jobs, study, processes, actions.torchrun, tell)
        record_rows(study, done.rows)
        runs = itertools.starmap(study.run, itertools.product(study.rows, study.seeds))
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

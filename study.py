"""Do what is missing of a study: prepare its corpus, pretrain, fine-tune, report. Started again, it goes on.

    python study.py configs/studies/demo.py                # a pretraining seed is a block, packed at its end
    python study.py configs/studies/demo.py --dry_run      # runs, steps they share, operations, disk, hours
    python study.py configs/studies/paper.py --row=23 --torchrun=--nproc_per_node=8     # by name or number
    python study.py configs/studies/paper.py --part=3 --parts=16                        # job 3 of an array

Each run is a process of pretrain.py or finetune.py. Pretrainings go to the study's `out`, all else to its
folder: runs/, logs/, scores.csv, losses.csv, report.md. What stands there starts no process.
"""
import ctypes
import datetime
import functools
import importlib.metadata
import json
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from nanoencoder import studies
from nanoencoder.jobs import Progress, check_commands, plan, without
from nanoencoder.settings import run_main

ACTIONS = {'dry_run': (False, 'print what the study will be, and stop'),
           'row': ('', 'only this row, by name or number; what it branches from, too, if that is missing'),
           'seed': (-1, 'only this pretraining seed', 0, 10 ** 9),
           'part': (-1, 'which part of rows x seeds, counted from 0'),
           'parts': (1, 'into how many parts they are cut', 1, 10_000),
           'processes': (0, 'runs at once; 0: one a GPU, or two', 0, 1_000),
           'torchrun': ('', 'options of torchrun, which then starts each run: --nproc_per_node=8')}
PACKAGES = 'torch', 'numpy', 'scipy', 'pandas'  # the embedded texts are theirs


# ------------------------------------------------------------------------------------------------- processes

def environment(slot, processes, gpus):
    """A process's own GPU; or one thread where several share a CPU, which sleeps while it waits."""
    usual = {'OMP_WAIT_POLICY': 'passive', 'TORCH_ELASTIC_SHUTDOWN_TIMEOUT': '300'}  # seconds to save
    one = {'OMP_NUM_THREADS': '1'} if processes > 1 and not gpus else {}
    return usual | os.environ | one | {'LOCAL_RANK': str(slot)}


def die_with_parent(parent, number):
    """Linux ends a child when its parent ends; elsewhere it goes on, and its lock keeps others away."""
    if sys.platform == 'linux':
        ctypes.CDLL(None).prctl(1, number)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:          # which ended before that line
            os._exit(1)


def start(job, study, options, env):
    command = [sys.executable]
    if options and job.command[0] != 'data.py' and '--baseline' not in job.command:
        command += ['-m', 'torch.distributed.run', *shlex.split(options)]
    command += [Path(__file__).with_name(job.command[0]), *job.command[1:]]
    log = Path(study.folder, 'logs', f'{job.name.replace(" ", "-")}.log')
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, 'ab') as file:
        file.write(f'\n$ {shlex.join(map(str, command))}\n'.encode())
        file.flush()
        return log, time.monotonic(), subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=env,
            preexec_fn=functools.partial(die_with_parent, os.getpid(),
                                         signal.SIGTERM if options else signal.SIGKILL))


def last_words(log, prefix=''):
    """The last line that the newest process of a log wrote, of those that begin so if there are any."""
    lines = log.read_text(errors='replace').rpartition('\n$ ')[2].strip().splitlines()
    line = next((line for line in reversed(lines) if line.startswith(prefix)), lines[-1])
    return re.sub(r'.*\r|; \S+ left$', '', line)


def run_jobs(jobs, study, progress, options, gpus):
    """Run what can be run, some at once, in order. The number of jobs that failed or could not start."""
    waiting, running, failed = list(jobs), {}, 0
    try:
        while waiting or running:
            for slot, (job, log, began, process) in list(running.items()):
                if process.poll() is not None:
                    del running[slot]
                    good = process.returncode == 0 and all(path.exists() for path in job.makes)
                    failed += not good
                    words = last_words(log) if good else f'FAILED: {last_words(log, "error: ")} ({log})'
                    progress.end(job, time.monotonic() - began, words, good)
            ready = [job for job in waiting if all(path.exists() for path in job.needs)]
            free = [slot for slot in range(progress.processes) if slot not in running]
            for slot, job in zip(free, ready):
                waiting.remove(job)
                running[slot] = job, *start(job, study, options, environment(slot, progress.processes, gpus))
            if not running and waiting:
                for job in waiting:
                    absent = next(path for path in job.needs if not path.exists())
                    progress.end(job, 0, f'NOT STARTED: there is no {absent}', False)
                return failed + len(waiting)
            time.sleep(0.1)
    finally:
        for *_, process in running.values():
            process.terminate()  # a pretraining saves
        for *_, process in running.values():
            process.wait()
    return failed


# ---------------------------------------------------------------------------------------------------- study

def script(name, *arguments):
    """Run a script to its end, its lines on this terminal; whether it went well."""
    command = [sys.executable, Path(__file__).with_name(name), *arguments]
    end = functools.partial(die_with_parent, os.getpid(), signal.SIGKILL)
    return subprocess.run(command, preexec_fn=end).returncode == 0


def pack_results(study):
    runs = [Path(study.out, f'{name}-s{seed}') for seed in study.seeds for name in study.rows]
    return script('evaluate.py', 'pack', study.folder, *(run for run in runs if (run / 'log.jsonl').exists()))


def note(study, seed, seconds, began, processes):
    """Append a line to machine.jsonl: what a block took, and where."""
    info = Path('/proc/cpuinfo').read_text() if Path('/proc/cpuinfo').exists() else ''
    cpu = [line.split(': ')[1] for line in info.splitlines() if line.startswith('model name')]
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    line = {'date': f'{datetime.date.today()}', 'seed': seed, 'cpu': cpu[0] if cpu else platform.processor(),
            'cores': os.cpu_count(), 'processes': processes, 'wall': round(time.monotonic() - began),
            'seconds': {kind: round(value) for kind, value in seconds.items()},
            'versions': {'python': platform.python_version()} | versions}
    with open(Path(study.folder, 'machine.jsonl'), 'a') as file:
        file.write(json.dumps(line) + '\n')


def main():
    study, actions = studies.load(sys.argv[1:], ACTIONS)
    blocks = plan(study, actions)
    jobs = [job for own in blocks.values() for job in own]
    gpus = len([*Path('/dev').glob('nvidia[0-9]*')])
    processes = actions.processes or (1 if actions.torchrun else gpus or 2)
    if actions.dry_run:
        from nanoencoder.forecast import dry_run  # torch, which the rest needs not
        check_commands(study, remember=False)
        return dry_run(study, processes, len(jobs))
    sys.stdout.reconfigure(line_buffering=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: runs are told to save
    check_commands(study, remember=True)
    failed, progress = 0, Progress(jobs, processes)
    if not jobs:
        print(f'{study.folder}: nothing to do')
        failed += not pack_results(study)    # a kill may have come before it
    for seed, own in blocks.items():
        began, before = time.monotonic(), Counter(progress.seconds)
        if own:
            print(f'seed {seed}: {len(own)} of {len(jobs)} processes, {processes} at once; '
                  f'what they say is in {study.folder}/logs')
            failed += run_jobs(own, study, progress, actions.torchrun, gpus)
            note(study, seed, progress.seconds - before, began, processes)
            failed += not pack_results(study)
    if failed:
        print(f'{failed} failed; start this again to do what is missing', file=sys.stderr)
    if study.tasks and not actions.row and actions.parts == 1 and actions.seed == -1:
        failed += not script('evaluate.py', 'report', *without(sys.argv[1:], *ACTIONS))
    sys.exit(1 if failed else 0)


if __name__ == '__main__':
    run_main(main)

"""What only a GPU can tell of this code, what matters most first; by plan ten minutes of an H100: `make gpu`.

    .venv/bin/python bench/gpu.py    # goes on where a step fails; again: what failed or is missing
    .venv/bin/python bench/gpu.py --sizes='(("124m", "0"),)'       # where less than 80 GB hold no more
    .venv/bin/python bench/gpu.py --config=configs/tiny.py --steps=20 --out=out/cpu    # what a CPU can
    .venv/bin/python bench/gpu.py --minutes=12    # the studies that wait for a card: `make gpu MINUTES=12`

Writes <out>/report.md after each step: what came out and how long it took. SIGTERM and Ctrl-C end the step
that runs, and the report has what it had said.

With --minutes it runs the tests that need a GPU, and then what studies lack, one pretraining seed after the
other. A step is not begun if its estimate is longer than what is left. One that takes longer all the same is
stopped in time to save, and to pack what it has done. The next start does only what is missing.
"""
import contextlib
import dataclasses
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Callable, NamedTuple

import torch

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))    # nanoencoder/ is imported from there

from nanoencoder.files import read_json, write_json
from nanoencoder.pretraining.log import read_log
from nanoencoder.processes import pick_device
from nanoencoder.settings import interrupt_on_signals, parse, run_main, setting
from studies.run import missing_blocks
from studies.study import load


@dataclasses.dataclass(frozen=True)
class Settings:
    config: str = 'configs/small.py'    # what is trained, on the embedded texts
    steps: int = setting(100, 4)        # of the runs that are compared; the real one has five times as many
    # of which bench.py measures the speed, with these numbers of rows at once; 0: nanoGPT's 12. An H200 took
    # a minute for each; ('1b', '12') takes longer, and was not seen to end
    sizes: tuple = (('124m', '0'), ('610m', '24'), ('210m', '6,72'))
    # which wait for a card, what matters most first; and how many minutes each of their processes adds.
    # 116 M parameters: a run took an H200 53 seconds, and two side by side 105. 0.9 M: 78 pretrainings of
    # 1,800 steps and fine-tunings took it seven minutes, twenty side by side. optimiser_end has 14,400 steps
    # and eight fine-tunings in a process: that is arithmetic, nobody measured it
    studies: tuple = (('studies/counts_120m', 0.9), ('studies/ratio_choice', 0.09), ('studies/ratio', 0.09),
                      ('studies/optimiser_end', 0.45))
    processes: int = setting(20, 1)     # runs of a study, side by side
    out: str = 'out/gpu'


ACTIONS = {'minutes': (0.0, 'do what studies lack, as far as so many minutes go; 0: check the code', 0)}


# ---------------------------------------------------------------------------
# Long work in steps: one that fails or hangs is not the end, and what is done is not done again


PATIENCE = 300      # seconds: a step that takes this long, and five times its minutes, hangs
SAVING = 65         # seconds before the end of the minutes, in which a stopped step saves: `run` waits for 60


class Step(NamedTuple):
    work: Callable          # () -> the lines that it has to say, one by one
    minutes: float          # about; 0: seconds, and it is done at each start


def run(*words):
    """Yield the lines that one of our scripts prints, without bars of progress."""
    command = [sys.executable, *map(str, words)]
    yield '$ python ' + shlex.join(command[1:])
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for line in process.stdout:
            if '%|' not in line:
                yield line.rstrip()
        failed = process.wait()
    finally:                    # also at Ctrl-C, and where the alarm rings while this generator waits
        process.terminate()     # a pretraining saves, torchrun ends its processes
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
    if failed:
        raise ValueError(f'exit code {failed}')     # -9: often for want of memory; 3: a signal stopped it


def late(*_):
    raise TimeoutError('it hangs, and was ended')


class MinutesAreOver(Exception):
    """Ends a step that would go on."""


def stop_in_time(*_):
    raise MinutesAreOver


def do(step, seconds):
    """Do a step for so many seconds at most. Returns what it said, how long it took, and how it ended: done,
    failed, stopped by a signal, or unfinished because the time was over."""
    said = []
    end = 'failed'
    began = time.monotonic()
    patience = PATIENCE * (1 + step.minutes)
    if seconds < patience:
        signal.signal(signal.SIGALRM, stop_in_time)
    else:
        signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, min(seconds, patience))
    try:
        for line in step.work():
            print(line, flush=True)
            said.append(line)
        end = 'done'
    except KeyboardInterrupt:
        end = 'stopped'
    except MinutesAreOver:
        end = 'unfinished'
    except Exception as error:
        said.append(f'failed: {error!r}')
        print(said[-1], flush=True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return {'said': said, 'seconds': round(time.monotonic() - began, 1), 'end': end}


def do_all(steps, path, settings, minutes=math.inf):
    """Do {title: Step} in order, but for those that take longer than what is left of so many minutes. Returns
    the titles of those that failed. `path` holds what is done."""
    end_of_minutes = time.monotonic() + 60 * minutes - SAVING
    waiting = []        # titles of steps that were not begun
    state = {'settings': settings, 'steps': {}}
    if path.exists():
        state = read_json(path)
    if state['settings'] != settings:
        raise ValueError(f'{path}: was begun with other settings, {state["settings"]}; take another --out')
    done = state['steps']
    for number, (title, step) in enumerate(steps.items(), 1):
        if step.minutes and title in done and done[title]['end'] == 'done':
            continue
        head = f'\n[{number} of {len(steps)}] {title} (about {step.minutes:.1f} minutes)'
        seconds = end_of_minutes - time.monotonic()
        if seconds <= 60 * step.minutes:
            print(f'{head} waits: {max(0, seconds) / 60:.1f} minutes are left', flush=True)
            waiting.append(title)
            continue
        print(head, flush=True)
        done[title] = do(step, seconds)
        write_json(path, state)
        write_report(path.with_name('report.md'), done)
        if done[title]['end'] == 'stopped':
            raise KeyboardInterrupt
    if waiting:
        print(f'\n{len(waiting)} of {len(steps)} steps wait for the next start', flush=True)
    return [title for title in steps if title in done and done[title]['end'] == 'failed']


def write_report(path, done):
    parts = ['# What a GPU did']
    for title, entry in done.items():
        parts.append(f'## {title}: {entry["end"]}, {entry["seconds"]:,.0f} s')
        parts.append('\n'.join(['```', *entry['said'], '```']))
    path.write_text('\n\n'.join(parts) + '\n', encoding='utf-8')


# ---------------------------------------------------------------------------
# What a step does, where it is more than one of our scripts


def compare(first, second, within):
    """Raise ValueError if a loss of one run is further from the other's than this share."""
    losses = []
    for folder in (first, second):
        _, lines = read_log(folder)
        losses.append([line['loss'] for line in lines])
        yield f'{folder.name}: {len(lines)} losses, the last {losses[-1][-1]:.4f}'
    worst = max(abs(a - b) / b for a, b in zip(*losses, strict=True))
    yield f'they differ by at most {worst:.1e}'
    if not worst <= within:     # nor does nan pass
        raise ValueError(f'that is more than {within}')


def killed(command, folder, step):
    """Kill a run when it has saved a step, then run it again to its end."""
    shutil.rmtree(folder, ignore_errors=True)
    saved = folder / str(step) / 'state.json'
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL)
    try:
        while not saved.exists():
            if process.poll() is not None:
                raise ValueError('it ended before it could be killed')
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    log = (folder / 'log.jsonl').read_text()
    yield f'killed with {len(log.splitlines())} steps in the log'
    yield from run(*command)


def study_a_seed(folder, seed, processes):
    """Run what a study lacks with one pretraining seed. Its page is written with the last one."""
    yield from run('studies/run.py', folder, f'--seed={seed}', f'--processes={processes}')
    study, _ = load([folder])
    if study.tasks and not missing_blocks(study, [*study.rows], study.seeds):
        yield from run('studies/report.py', folder)


# ---------------------------------------------------------------------------
# The plan


def waiting_studies(cfg):
    """Return {title: Step} of what studies lack. The title says how many processes are left, so that a seed
    which was done is not taken for done once its study has an arm more."""
    steps = {}
    for folder, minutes in cfg.studies:
        study, _ = load([folder])
        for seed, jobs in missing_blocks(study, [*study.rows], study.seeds).items():
            work = partial(study_a_seed, folder, seed, cfg.processes)
            steps[f'{folder}, seed {seed}, {len(jobs)} left'] = Step(work, len(jobs) * minutes)
    return steps


@contextlib.contextmanager
def shared_card():
    """Start NVIDIA's MPS where it is installed: processes then compute on a GPU at the same moment. Without
    it they take turns."""
    control = shutil.which('nvidia-cuda-mps-control')
    if not control:
        yield
        return
    is_ours = subprocess.run([control, '-d']).returncode == 0       # it fails where MPS runs already
    try:
        yield
    finally:
        if is_ours:
            subprocess.run([control], input='quit\n', text=True)


def plan(cfg):
    """Return {title: Step} of what checks this code, in order."""
    out = Path(cfg.out)
    half = cfg.steps // 2

    def training(name, *more, clm=half, mlm=half):
        return ['pretrain.py', cfg.config, '--corpus=corpora/docs', '--vocab_size=4096', f'--out={out}',
                f'--name={name}', f'--phases=(("clm", {clm}), ("mlm", {mlm}))', f'--save_every={clm}',
                '--log_every=10', *more]

    def equal(name, within):
        return Step(partial(compare, out / name, out / 'plain', within), 0.1)

    plain = training('plain', '--compile=False')
    compiled = training('compiled', '--compile')
    to_kill = training('killed', '--compile=False')
    steps = {
        'machine': Step(partial(run, '-m', 'torch.utils.collect_env'), 0),
        'tests that need a GPU': Step(partial(run, '-m', 'pytest', '-q', '-m', 'gpu', 'tests'), 0.3)}
    speeds = out / 'bench.jsonl'
    for size, rows in cfg.sizes:
        work = partial(run, 'bench/bench.py', 'mfu', '--repeats=2', '--objectives=mlm', f'--size={size}',
                       f'--rows={rows}', f'--out={speeds}')
        steps[f'speed of the {size}'] = Step(work, 1.3)
    if cfg.sizes:
        steps['table of speeds'] = Step(partial(run, 'bench/bench.py', 'table', speeds), 0)
    steps |= {
        'texts': Step(partial(run, 'examples/embedded_docs.py'), 0.5),
        'corpus': Step(partial(run, 'data.py', 'configs/corpora/docs.py'), 0.6),
        'plain': Step(partial(run, *plain), 0.7),
        'compiled': Step(partial(run, *compiled), 0.8),
        'compiled and plain are equal': equal('compiled', 0.02),
        'killed and resumed': Step(partial(killed, to_kill, out / 'killed', half), 1),
        'killed and plain are equal': equal('killed', 0.01)}

    if torch.cuda.device_count() != 1:      # a GPU for each process, or both on the CPU
        for name in ('ddp', 'fsdp'):
            command = training(name, '--compile=False', f'--parallel={name}')
            work = partial(run, '-m', 'torch.distributed.run', '--standalone', '--nproc_per_node=2', *command)
            steps[f'two processes, {name}'] = Step(work, 1)
            steps[f'{name} and plain are equal'] = equal(name, 0.02)

    real = training('real', clm=cfg.steps, mlm=4 * cfg.steps)
    steps['a real run'] = Step(partial(run, *real), 1.5)
    predictions = f'--predictions={out / "predictions"}'
    for task in ('docs_tc', 'docs_ir'):
        work = partial(run, 'finetune.py', f'configs/tasks/{task}.py', f'--model={out / "real"}', predictions,
                       '--steps=0', '--epochs=2', '--grid', '--lrs=5e-4,1e-3', '--seeds=0,1')
        steps[f'fine-tuned on {task}'] = Step(work, 0.7)
    steps['scores'] = Step(partial(run, 'evaluate.py', 'table', predictions), 0)
    return steps


def main():
    cfg, actions = parse(Settings, sys.argv[1:], ACTIONS)
    interrupt_on_signals()
    os.chdir(ROOT)
    path = Path(cfg.out, 'steps.json')
    path.parent.mkdir(parents=True, exist_ok=True)
    # what a CPU did is not taken for a GPU's
    device, _ = pick_device()
    steps = plan(cfg)
    minutes = math.inf
    if actions.minutes:
        minutes = actions.minutes
        first = ('machine', 'tests that need a GPU')
        steps = {title: steps[title] for title in first} | waiting_studies(cfg)
    with shared_card():
        failed = do_all(steps, path, f'{cfg} on {device.type}', minutes)
    if failed:
        raise ValueError(f'{len(failed)} of {len(steps)} steps failed: {", ".join(failed)}; '
                         f'{path.with_name("report.md")} has what they said')


if __name__ == '__main__':
    run_main(main)

"""Long work in steps: progress with time left, what is done is not done again, all that is said is kept."""
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from nanoencoder.files import read_json, write_json  # noqa: E402

ENVIRONMENT = dict(os.environ)    # before tests change it


class Step(NamedTuple):
    work: object            # a function whose lines are told, or the words of a command
    minutes: float          # about, on two idle cores of 75 GFLOP/s; 0: seconds, and done each time
    leaves: Path = None     # without it the step is not done: a pretraining that is stopped exits with 0

    @property
    def limit(self):
        """Minutes after which it is ended: it hangs."""
        return 5 + 5 * self.minutes


def run(command):
    """The lines that one of our scripts prints, but for bars of progress."""
    process = subprocess.Popen([sys.executable, *map(str, command)], env=ENVIRONMENT, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
    try:
        yield from (line.rstrip() for line in process.stdout if '%|' not in line)
        failed = process.wait()
    except KeyboardInterrupt:
        process.wait()         # a pretraining saves
        raise
    finally:                   # also where the alarm rings while this generator waits
        process.terminate()            # torchrun ends its processes
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
    if failed:
        how = f'was killed by signal {-failed}' if failed < 0 else 'failed'     # 9: often for want of memory
        raise ValueError(f'python {" ".join(map(str, command[:3]))} {how}; start this again to go on')


def do(step, entry, save):
    """A step, or the rest of it: lines and time are added to those of its entry, which is saved each time."""
    def late(*_):
        raise TimeoutError(f'not done after {step.limit:.0f} minutes')
    began = time.monotonic() - entry['seconds']
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 60 * step.limit)
    try:
        for line in run(step.work) if entry['command'] else step.work():
            print(line, flush=True)
            entry['said'].append(line)
            entry['seconds'] = round(time.monotonic() - began, 1)
            save()
        if step.leaves and not step.leaves.exists():
            raise ValueError(f'{step.leaves} is not there yet; start this again to go on')
        entry['done'] = True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        entry['seconds'] = round(time.monotonic() - began, 1)
        save()


def do_all(steps, path, settings, go_on=False):
    """Do {title: Step} in order; `path` holds what is done, with these settings. Titles of what failed, past
    which it is to go on: when all is started again, that is done again."""
    done, failed = read_json(path) if path.exists() else {'settings': settings}, []
    if done['settings'] != settings:
        raise ValueError(f'{path}: was begun with {done["settings"]}; take another --out')
    for title, step in steps.items():
        command = [*map(str, step.work)] if type(step.work) is list else []
        if not step.minutes or done.get(title, {}).get('command') != command:
            done[title] = {'command': command, 'seconds': 0.0, 'said': [], 'done': False}
    for number, (title, step) in enumerate(steps.items(), 1):
        entry = done[title]
        left = sum(step.minutes for title, step in steps.items() if not done[title]['done'])
        print(f'\n[{number} of {len(steps)}] {title} (about {left:.0f}m left)', *entry['said'], sep='\n',
              flush=True)
        try:
            if not entry['done']:
                do(step, entry, lambda: write_json(path, done))
        except Exception as error:
            if not go_on:
                raise
            failed.append(title)
            print(f'failed: {error!r}', flush=True)
            entry['said'].append(f'failed: {error!r}')
            write_json(path, done)
        print(f'({entry["seconds"]:,.0f} s)')
    minutes = sum(done[title]['seconds'] for title in steps) / 60
    print(f'\n{minutes:.0f} minutes in all; {path} holds what was said')
    return failed

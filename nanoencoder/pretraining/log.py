"""What a run says of itself: log.jsonl, the console, and config.json."""
import contextlib
import hashlib
import importlib.metadata
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

from nanoencoder.files import (blame, locked, read_json, remove, saved_state, saved_steps, whole, write_json)
from nanoencoder.settings import flat


@contextlib.contextmanager
def locked_run(cfg, world):
    """The run's folder, locked by rank 0 before anything in it is read; what kills left half-written goes."""
    run = Path(cfg.out) / cfg.name
    with locked(*[run] * (world.rank == 0)):
        for path in run.glob('.*.tmp') if world.rank == 0 else ():
            remove(path)
        world.sum([0])  # the others wait
        yield run


class Log:
    """A line for every step, written in blocks: until then its loss stays on the device."""
    def __init__(self, run, cfg, corpus, world, state, how):
        self.run, self.cfg, self.world = run, cfg, world
        self.first, self.seconds_before = state['step'], state['seconds']
        self.waiting = []  # (line, number of targets, sum of losses, gradient norm) of each step
        self.began = self.marked = time.monotonic()
        if world.rank == 0:
            path = run / 'log.jsonl'  # of which torn lines go, and those of steps that are done again
            lines = read_log_lines(path, state)
            with whole(path) as temporary:
                temporary.write_bytes(b''.join(row for row, line in lines if line['step'] <= self.first))
            if self.first < cfg.total_steps:    # else nothing begins
                write_config(run, cfg, corpus, world, state, how)
            self.file = path.open('a')
            print(f'{run}: {how}; {cfg.rows_per_step * cfg.context:,} tokens a step, {world.size} x '
                  f'{world.device.type}, {world.dtype}')

    def add(self, step, objective, lr, rows_hash, count, loss_sum, norm):
        """What a step did: rows_hash is of all it read, count its targets, loss_sum this process's part."""
        tokens = (step + 1) * self.cfg.rows_per_step * self.cfg.context
        line = {'step': step + 1, 'phase': objective, 'lr': lr, 'tokens': tokens,
                'seconds': round(self.seconds(), 2), 'rows': f'{rows_hash % 2 ** 48:012x}'}
        self.waiting.append((line, count, loss_sum, norm))

    def write(self, validate):
        """Write the waiting lines, the last with what validate() returns; FloatingPointError at a nan."""
        lines, counts, sums, norms = zip(*self.waiting)
        sums = self.world.floats(sums, summed=True)
        norms = self.world.floats(norms)
        tokens = len(lines) * self.cfg.rows_per_step * self.cfg.context
        speed = round(tokens / (time.monotonic() - self.marked), 1)
        for line, count, loss_sum, norm in zip(lines, counts, sums, norms):
            line |= {'loss': loss_sum / max(1, count), 'grad_norm': norm, 'tokens_per_second': speed}
        lines[-1].update(validate())
        for line in lines:
            if bad := [f'{name} {x}' for name, x in line.items() if x in (math.inf, -math.inf) or x != x]:
                row = self.cfg.first_row + (line['step'] - 1) * self.cfg.rows_per_step
                raise FloatingPointError(f'step {line["step"]}: {", ".join(bad)}, on rows {row:,} to '
                                         f'{row + self.cfg.rows_per_step - 1:,}')
        self.waiting.clear()
        if self.world.rank == 0:
            self.file.writelines(json.dumps(line) + '\n' for line in lines)
            self.file.flush()
            os.fsync(self.file.fileno())
            last, total = lines[-1], self.cfg.total_steps
            per_step = (time.monotonic() - self.began) / (last['step'] - self.first)
            loss = statistics.fmean(line['loss'] for line in lines if line['phase'] == last['phase'])
            held_out = ''.join(f'  {name.removesuffix("_loss").replace("_", " ")} {value:.4f}'
                               for name, value in last.items() if name.startswith('val_'))
            print(f'{last["step"]:>7,}/{total:,}  {last["phase"]:<4}  loss {loss:.4f}  lr {last["lr"]:.2e}  '
                  f'grad {last["grad_norm"]:.2f}  {speed:,.0f} tokens/s  '
                  f'{timedelta(seconds=round(per_step * (total - last["step"])))} left{held_out}', flush=True)
        self.marked = time.monotonic()  # speed is measured from here on: validation does not count

    def seconds(self):
        return self.seconds_before + time.monotonic() - self.began


def write_config(run, cfg, corpus, world, state, how):
    """config.json: the settings, what the corpus was, and how, where and with what each start began."""
    path = run / 'config.json'
    starts = list(state.get('starts', ()))      # a start that saved nothing has left nothing
    if 'starts' not in state:                   # of an older checkpoint
        starts = read_json(path)['starts'] if path.exists() else []
    versions = {name: importlib.metadata.version(name) for name in ('torch', 'numpy', 'safetensors')}
    starts.append({'step': state['step'], 'how': how, 'processes': world.size,
                   'threads': world.threads, 'device': world.device.type, 'dtype': world.dtype,
                   'val_rows': cfg.val_rows, 'val_mask_ratio': cfg.val_mask_ratio,
                   'git': commit(), 'python': sys.version.split()[0], 'versions': versions})
    about = {name: corpus.meta[name] for name in ('fingerprint', 'tokenizer', 'tokens', 'unigram_loss')}
    write_json(path, flat(cfg) | {'corpus_meta': about, 'starts': starts})


def commit(folder=Path(__file__).parent):
    """The commit checked out there, with -dirty if code is not as git has it; '' without git."""
    def git(*words):
        return subprocess.run(['git', *words], cwd=folder, text=True, capture_output=True).stdout.strip()
    if not shutil.which('git'):
        return ''
    new = git('ls-files', '--others', '--exclude-standard', '--', ':/*.py', ':(top,exclude)configs')
    return git('rev-parse', '--verify', 'HEAD') + '-dirty' * bool(new or git('diff', 'HEAD', '--', ':/*.py'))


def read_log_lines(path, state):
    """[(row, what it holds)] of a run's log.jsonl, but a last row that is being written. ValueError where a
    row is damaged, or those until a checkpoint's step are not as its state.json says."""
    step, digest = state.get('step', 0), state.get('log', '')
    rows = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    with blame(f'{path}: has a row that is no step of a run; restore it', ValueError, TypeError, LookupError):
        pairs = [(row, json.loads(row)) for row in rows if row.endswith(b'\n')]
        saved = hashlib.sha256(b''.join(row for row, line in pairs if line['step'] <= step)).hexdigest()
    if digest not in ('', saved):
        raise ValueError(f'{path}: changed since step {step} was saved; restore it')
    return pairs


def read_log(folder, with_parent=False):
    """(config.json, lines of log.jsonl) of out/<name>; of a branch with its parent's, if they are there."""
    config, steps, state = read_json(Path(folder, 'config.json')), saved_steps(folder), {}
    if steps:   # state.json says the same as config.json, and has a digest; older ones do not say all
        state = saved_state(Path(folder, str(steps[-1])))
        config |= state.get('settings', {})
        config |= {name: state[name] for name in ('corpus_meta', 'starts') if name in state}
    lines = [line for _, line in read_log_lines(Path(folder, 'log.jsonl'), state)]
    if with_parent and (parent := config.get('branch_from')):     # a run, or a checkpoint in it
        for run in (run for run in (Path(parent), Path(parent).parent) if (run / 'log.jsonl').exists()):
            _, before = read_log(run, with_parent=True)
            lines = [line for line in before if line['step'] <= config['starts'][0]['step']] + lines
    return config, lines

"""What a run says of itself: log.jsonl, the console, a tracker, and config.json."""
import contextlib
import errno
import importlib.metadata
import importlib.util
import itertools
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

from model import Model
from nanoencoder.durable import locked, read_json, remove_temporaries, whole_file, write_json
from nanoencoder.huggingface import last_good
from nanoencoder.judging.losses import read_line
from nanoencoder.processes import duration
from nanoencoder.settings import flat


@contextlib.contextmanager
def own_folder(cfg, world):
    """The run's folder: nothing in it is read before this process, or rank 0 for all, has its lock.

    A start that wrote nothing leaves no folder. An error of the disk, in a save or in the log, and a number
    that is not finite name the last good checkpoint.
    """
    run = Path(cfg.out) / cfg.name
    made = [folder for folder in (run, run.parent) if not folder.exists()]
    try:
        with contextlib.ExitStack() as stack:
            if world.rank == 0:
                run.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(run))
                remove_temporaries(run)
            world.barrier()
            yield run
    except (BrokenPipeError, BlockingIOError):  # of the console, and of the lock
        raise
    except OSError as error:
        words = f'{error.strerror or error}; {last_good(run)}'
        raise OSError(error.errno or errno.EIO, words, str(error.filename or run)) from None
    except FloatingPointError as error:
        if world.rank:  # rank 0 has waited for what was being written, and says which is the last
            raise
        raise FloatingPointError(f'{error}; {last_good(run)}') from None
    finally:
        with contextlib.suppress(OSError):
            for folder in made:
                folder.rmdir()


def open_log(run, cfg, corpus, world, state, how, tracker):
    """The Log of a run, after config.json and the console have said how this start begins."""
    log = Log(run, cfg, world, state, open_tracker(tracker if world.rank == 0 else '', run))
    if world.rank == 0:
        write_config(run, cfg, corpus, world, state, how)
        with torch.device('meta'):
            parameters = sum(p.numel() for p in Model(cfg.model).parameters())
        print(f'{run}: {how}; {parameters:,} parameters, {cfg.rows_per_step * cfg.context:,} tokens a '
              f'step, {world.size} x {world.device.type}, {world.dtype}')
    return log


class Log:
    """A line for every step, written in blocks: until then its loss stays on the device."""

    def __init__(self, run, cfg, world, state, send):
        self.run, self.cfg, self.world, self.send = run, cfg, world, send
        self.first, self.seconds_before = state['step'], state['seconds']
        self.waiting = []  # (line, number of targets, sum of losses, gradient norm) of each step
        self.began = self.marked = time.monotonic()
        self.file = self.open(state['logged_from']) if world.rank == 0 else None

    def open(self, logged_from):
        """The file, without lines beyond the checkpoint that this start continues, and a half-written one.

        Each step has its line, but for those up to logged_from: a branch begins after them, and earlier
        commits wrote one line for a block of steps. No kill loses a line, for it is on the disk before its
        checkpoint. Where one is gone, a branch goes on with the same numbers, and no table has a hole.
        """
        path = self.run / 'log.jsonl'
        texts = path.read_bytes().split(b'\n')[:-1] if path.exists() else []
        lines, last = [], 0
        try:
            for k, text in enumerate(texts, 1):
                if last >= self.first:  # what comes after it goes, whatever it is
                    break
                lines.append(read_line(text, f'{path}:{k}'))
                last = lines[-1]['step']
            lines = [line for line in lines if line['step'] <= self.first]
            steps = [line['step'] for line in lines]
            early = [step for step in steps if step <= logged_from]
            wanted = sorted({*early, *range(logged_from + 1, self.first + 1)})
            for step, expected in itertools.zip_longest(steps, wanted):
                if step != expected:
                    raise ValueError(f'{path}: the line of step {expected or step} is missing or not in its '
                                     'place')
        except ValueError as error:
            raise ValueError(f'{error}; mend it, or go on under another --name with '
                             f'--branch_from={self.run / str(self.first)}') from None
        with whole_file(path) as file:
            file.writelines(json.dumps(line).encode() + b'\n' for line in lines)
        return path.open('a', encoding='utf-8')

    def add(self, step, objective, lr, rows_hash, count, loss_sum, norm):
        """What a step did: rows_hash is of all it read, count its targets, loss_sum this process's part."""
        tokens = (step + 1) * self.cfg.rows_per_step * self.cfg.context
        line = {'step': step + 1, 'phase': objective, 'lr': lr, 'tokens': tokens,
                'seconds': round(self.seconds(), 2), 'rows': f'{rows_hash % 2 ** 48:012x}'}
        self.waiting.append((line, count, loss_sum, norm))

    def read(self):
        """The lines of the steps that wait. FloatingPointError at the first that is not finite."""
        lines, counts, sums, norms = zip(*self.waiting)
        sums = self.world.sum_tensor(torch.stack(sums)).tolist()
        tokens = self.cfg.rows_per_step * self.cfg.context
        norms = torch.stack(norms).tolist()
        speed = round(len(lines) * tokens / (time.monotonic() - self.marked), 1)
        for line, count, loss_sum, norm in zip(lines, counts, sums, norms):
            line |= {'loss': loss_sum / max(1, count), 'grad_norm': norm, 'tokens_per_second': speed}
            self.check_finite(line)
        self.waiting.clear()
        return lines

    def check_finite(self, line):
        values = {name: x for name, x in line.items() if isinstance(x, float) and not math.isfinite(x)}
        if values:
            row = self.cfg.first_row + (line['step'] - 1) * self.cfg.rows_per_step
            raise FloatingPointError(
                f'step {line["step"]}: {", ".join(f"{name} {x}" for name, x in values.items())}, on rows '
                f'{row:,} to {row + self.cfg.rows_per_step - 1:,}')

    def write(self, lines, validation):
        """Have lines that were read on the disk, the last with {name: loss} of a validation after it."""
        lines[-1].update(validation)
        self.check_finite(lines[-1])
        if self.world.rank == 0:
            if not os.path.exists(self.file.name):  # removed or renamed
                raise OSError(errno.ENOENT, 'gone while the run wrote it', self.file.name)
            self.file.writelines(json.dumps(line) + '\n' for line in lines)
            self.file.flush()
            os.fsync(self.file.fileno())
            for line in lines:
                self.send(line)
            print(self.readable(lines), flush=True)
        self.restart_clock()

    def readable(self, lines):
        last, total = lines[-1], self.cfg.total_steps
        per_step = (time.monotonic() - self.began) / (last['step'] - self.first)
        loss = statistics.fmean(line['loss'] for line in lines if line['phase'] == last['phase'])
        validation = ''.join(f'  {name.removesuffix("_loss").replace("_", " ")} {value:.4f}'
                             for name, value in last.items() if name.startswith('val_'))
        return (f'{last["step"]:>7,}/{total:,}  {last["phase"]:<4}  loss {loss:.4f}  lr {last["lr"]:.2e}  '
                f'grad {last["grad_norm"]:.2f}  {last["tokens_per_second"]:,.0f} tokens/s  '
                f'{duration(per_step * (total - last["step"]))} left{validation}')

    def restart_clock(self):
        """Speed is measured from here on: validation and saving do not count."""
        self.marked = time.monotonic()

    def seconds(self):
        return self.seconds_before + time.monotonic() - self.began


def open_tracker(kind, run):
    """A function that takes each log line, for --tracker=tensorboard or wandb."""
    if kind == '':
        return lambda line: None
    if kind not in ('tensorboard', 'wandb') or importlib.util.find_spec(kind) is None:
        raise ValueError(f'--tracker is tensorboard or wandb, installed (pip install {kind}), not {kind!r}')
    if kind == 'wandb':
        import wandb
        session = wandb.init(project='nanoencoder', name=run.name, id=run.name, resume='allow', dir=run)
        return lambda line: session.log(line, step=line['step'])
    from torch.utils.tensorboard import SummaryWriter
    writer = SummaryWriter(run)
    return lambda line: [writer.add_scalar(name, value, line['step'])
                         for name, value in line.items() if not isinstance(value, str)]


def write_config(run, cfg, corpus, world, state, how):
    """config.json: the settings, what the corpus was, and how, where and with what each start began."""
    path = run / 'config.json'
    starts = read_json(path, {'starts': [dict]})['starts'] if path.exists() else []
    describe = ['git', 'describe', '--always', '--dirty', '--abbrev=40', '--exclude=*']
    here = Path(__file__).parent
    git = shutil.which('git') and subprocess.run(describe, cwd=here, capture_output=True, text=True)
    packages = 'torch', 'numpy', 'tiktoken', 'safetensors'
    versions = {name: importlib.metadata.version(name) for name in packages}
    starts.append({'step': state['step'], 'how': how, 'processes': world.size,
                   'threads': torch.get_num_threads(), 'device': world.device.type, 'dtype': world.dtype,
                   'git': git and git.stdout.strip(), 'python': sys.version.split()[0], 'versions': versions})
    about = {name: corpus.meta[name] for name in ('fingerprint', 'tokenizer', 'tokens', 'unigram_loss')}
    write_json(path, flat(cfg) | {'corpus_meta': about, 'starts': starts})

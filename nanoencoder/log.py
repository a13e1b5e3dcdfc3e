"""What a run says of itself: log.jsonl, the console, a tracker, and config.json."""
import contextlib
import importlib.metadata
import importlib.util
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
from nanoencoder.huggingface import saved_steps
from nanoencoder.processes import duration
from nanoencoder.settings import flat


@contextlib.contextmanager
def open_run(cfg, corpus, world, state, how, tracker):
    """The Log of a run whose folder this process, or rank 0, now owns."""
    run = Path(cfg.out) / cfg.name
    with contextlib.ExitStack() as stack:
        send = open_tracker(tracker if world.rank == 0 else '', run)
        if world.rank == 0:
            run.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(run))
            remove_temporaries(run)
            write_config(run, cfg, corpus, world, state, how)
            with torch.device('meta'):
                parameters = sum(p.numel() for p in Model(cfg.model).parameters())
            print(f'{run}: {how}; {parameters:,} parameters, {cfg.rows_per_step * cfg.context:,} tokens a '
                  f'step, {world.size} x {world.device.type}, {world.dtype}')
        world.barrier()
        yield Log(run, cfg, world, state, send)


class Log:
    """A line for every step, written in blocks: until then its loss stays on the device."""

    def __init__(self, run, cfg, world, state, send):
        self.run, self.cfg, self.world, self.send = run, cfg, world, send
        self.first, self.seconds_before = state['step'], state['seconds']
        self.waiting = []  # (line, number of targets, sum of losses, gradient norm) of each step
        self.began = self.marked = time.monotonic()
        self.file = self.open() if world.rank == 0 else None

    def open(self):
        """Lines beyond the checkpoint that this start continues go, and so does a half-written one."""
        path = self.run / 'log.jsonl'
        lines = path.read_text(encoding='utf-8').splitlines() if path.exists() else []
        lines = [line for line in lines if line.endswith('}') and json.loads(line)['step'] <= self.first]
        with whole_file(path) as file:
            file.write(''.join(line + '\n' for line in lines).encode())
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
            if not (math.isfinite(line['loss']) and math.isfinite(norm)):
                raise FloatingPointError(self.not_finite(line))
        self.waiting.clear()
        return lines

    def not_finite(self, line):
        steps = saved_steps(self.run)
        row = self.cfg.first_row + (line['step'] - 1) * self.cfg.rows_per_step
        return (f'step {line["step"]}: loss {line["loss"]}, gradient norm {line["grad_norm"]}, on rows '
                f'{row:,} to {row + self.cfg.rows_per_step - 1:,}; the last good checkpoint is '
                f'{self.run / str(steps[-1]) if steps else "none"}')

    def write(self, lines):
        """Write lines that were read, and have them on the disk before any checkpoint."""
        if self.world.rank == 0:
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
    starts = read_json(path).get('starts', []) if path.exists() else []
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

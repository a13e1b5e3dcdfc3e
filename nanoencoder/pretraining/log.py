"""What a run says of itself: log.jsonl, the console and config.json; and how they are read again."""
import contextlib
import errno
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

from data import OBJECTIVES, objective_at
from nanoencoder.files import (
    blame,
    json_lines,
    locked,
    read_json,
    remove,
    saved_state,
    saved_steps,
    whole,
    write_json,
)
from nanoencoder.pretraining.plateau import followed, print_guesses
from nanoencoder.pretraining.tracker import Tracker
from nanoencoder.settings import flat


@contextlib.contextmanager
def locked_run(cfg, world):
    """Have rank 0 lock the run's folder before anything in it is read. What killed writes left is deleted."""
    run = Path(cfg.out, cfg.name)
    with contextlib.ExitStack() as stack:
        if world.rank == 0:
            stack.enter_context(locked(run))
            for path in run.glob('.*.tmp'):
                remove(path)
        world.sum([0])  # the others wait
        yield run


class Log:
    """Writes one line for every step, in blocks: until a block is written its losses stay on the device."""
    def __init__(self, run, cfg, corpus, world, optimizer, state, how):
        # with torch, which those who only read logs do without
        from nanoencoder.optimizers import groups_in_words
        from nanoencoder.pretraining import cost
        self.flops_until = cost.flops_until
        self.peak = cost.peak_of(world)     # FLOP/s, or 0
        self.cfg = cfg
        self.world = world
        self.first = state['step']
        self.seconds_before = state['seconds']
        self.waiting = []   # (line, number of targets, sum of losses, gradient norm) of each step
        self.began = time.monotonic()
        self.marked = self.began    # when the block began
        self.tokens_per_step = cfg.rows_per_step * cfg.context
        self.val_rows = min(cfg.val_rows, corpus.num_stretches('validation', cfg.context))
        self.tracker = None
        if world.rank > 0:
            return

        # without a torn last line and steps that will be repeated
        path = run / 'log.jsonl'
        lines = read_log_lines(path, state)
        kept = [line for line in lines if line['step'] <= self.first]
        with whole(path) as temporary:
            temporary.write_text(json_lines(kept))
        if self.first < cfg.total_steps:    # a run that is done starts nothing
            config = write_config(run, cfg, corpus, world, state, how)
            self.plateau = followed(config, kept)
            if cfg.tracker:
                self.tracker = Tracker(run, config, cfg.total_steps)
                self.tracker.send(kept)
        self.file = path.open('a')
        print(f'{run}: {how}; {self.tokens_per_step:,} tokens a step, {world.size} x {world.device.type}, '
              f'{world.dtype}')
        for group in groups_in_words(optimizer.param_groups, cfg):
            print(f'{run}: {group}')
        if self.first < cfg.total_steps:
            print_guesses(run, cfg, self.plateau.frequencies)
            step = min(cfg.total_steps, self.first - self.first % cfg.log_every + cfg.log_every)
            print(f'{run}: trains now, and says how far it is after step {step:,}', flush=True)

    def add(self, step, rows_hash, count, loss_sum, norm):
        """Note what a step did. `rows_hash` is of all rows that it read, `count` how many targets they have,
        `loss_sum` this process's part of the sum of their losses."""
        line = {
            'step': step + 1,
            'phase': objective_at(step, self.cfg),
            'lr': self.cfg.lr_at(step),
            'tokens': (step + 1) * self.tokens_per_step,
            'seconds': round(self.seconds(), 2),
            'rows': f'{rows_hash % 2 ** 48:012x}',
        }
        self.waiting.append((line, count, loss_sum, norm))

    def write(self, validate):
        """Write the waiting lines, the last one with what validate() returns. FloatingPointError at a nan."""
        lines, counts, sums, norms = zip(*self.waiting)
        sums = self.world.floats(sums, summed=True)
        norms = self.world.floats(norms)
        tokens = len(lines) * self.tokens_per_step
        seconds = time.monotonic() - self.marked
        speed = round(tokens / seconds, 1)
        if self.peak:   # model FLOPs utilisation: the share of the peak that useful operations take
            flops = self.flops_until(self.cfg, lines[-1]['step'], first=lines[0]['step'] - 1)
            mfu = round(flops / seconds / self.peak, 4)
        for line, count, loss_sum, norm in zip(lines, counts, sums, norms):
            line['loss'] = loss_sum / max(1, count)
            line['grad_norm'] = norm
            line['tokens_per_second'] = speed
            if self.peak:
                line['mfu'] = mfu
        measured = validate()
        if measured:
            lines[-1].update(measured, val_rows=self.val_rows)
        for line in lines:
            self.check_finite(line)

        self.waiting.clear()
        if self.world.rank == 0:
            self.file.write(json_lines(lines))
            self.file.flush()
            os.fsync(self.file.fileno())
            if self.tracker:
                self.tracker.send(lines)
            self.show(lines)
        self.marked = time.monotonic()  # after the validation, which does not count for the speed

    def check_finite(self, line):
        """FloatingPointError that names the step, what is not finite in its line, and the rows it read."""
        for name, value in line.items():
            if isinstance(value, float) and not math.isfinite(value):
                first = self.cfg.first_row + (line['step'] - 1) * self.cfg.rows_per_step
                last = first + self.cfg.rows_per_step - 1
                raise FloatingPointError(
                    f'step {line["step"]}: {name} {value}, on rows {first:,} to {last:,}')

    def show(self, lines):
        """Print one line for a block: the mean loss of its last objective, and the time that is left."""
        last = lines[-1]
        total = self.cfg.total_steps
        loss = statistics.fmean(line['loss'] for line in lines if line['phase'] == last['phase'])
        per_step = (time.monotonic() - self.began) / (last['step'] - self.first)
        left = timedelta(seconds=round(per_step * (total - last['step'])))
        speed = f'{last["tokens_per_second"]:,.0f} tokens/s'
        if 'mfu' in last:
            speed += f'  mfu {last["mfu"]:.1%}'
        held_out = ''
        for objective in OBJECTIVES:
            if f'val_{objective}_loss' in last:
                held_out += (f'  val {objective} {last[f"val_{objective}_loss"]:.4f} of '
                             f'{last[f"val_{objective}_targets"]:,} tokens, '
                             f'{last[f"val_{objective}_accuracy"]:.1%} right')
        if held_out:
            held_out += f' in {self.val_rows:,} rows'
        line = (f'{self.cfg.name} {last["step"]:>7,}/{total:,}  {last["phase"]:<4}  loss {loss:.4f}  '
                f'lr {last["lr"]:.2e}  grad {last["grad_norm"]:.2f}  '
                f'{speed}  {left} left{held_out}')
        for logged in lines:
            news = self.plateau.follow(logged)
            if news:
                line += f'\n{self.cfg.name}: {news}'
        try:
            print(line, flush=True)
        except OSError as error:
            if error.errno != errno.EIO:    # the terminal is being closed: its signal stops the run in order
                raise

    def seconds(self):
        """Seconds of training, of earlier starts too."""
        return self.seconds_before + time.monotonic() - self.began


def write_config(run, cfg, corpus, world, state, how):
    """Write config.json: the settings, what the corpus was, and how, where and with what each start began.
    Returns it."""
    import torch  # those who only read logs do without

    from nanoencoder.prepare import unigram_loss
    from nanoencoder.processes import processor
    packages = 'torch', 'numpy', 'safetensors'
    facts = 'fingerprint', 'tokenizer', 'tokens', 'unigram_loss'
    start = {
        'step': state['step'],
        'how': how,
        'processes': world.size,
        'threads': torch.get_num_threads(),
        'processor': processor(),
        'device': world.device.type,
        'dtype': world.dtype,
        'val_rows': cfg.val_rows,
        'val_mask_ratio': cfg.val_mask_ratio,
        'git': commit(),
        'python': sys.version.split()[0],
        'versions': {name: importlib.metadata.version(name) for name in packages},
    }
    about = {name: corpus.meta[name] for name in facts}
    about['ordinary_unigram_loss'] = None
    if about['unigram_loss']:       # of all tokens; masks are never on special ones
        about['ordinary_unigram_loss'] = unigram_loss(corpus.folder, corpus.meta, corpus.meta['special_ids'])
    starts = [*state['starts'], start]  # a start that saved nothing is forgotten
    config = flat(cfg) | {'corpus_meta': about, 'starts': starts}
    write_json(run / 'config.json', config)
    return config


def commit(folder=Path(__file__).parent):
    """Return the commit checked out in a folder, with -dirty if code differs from it; '' without git.
    Configs are no code: their settings are recorded."""
    def git(*words):
        command = ['git', *words]
        result = subprocess.run(command, cwd=folder, text=True, capture_output=True)
        return result.stdout.strip()

    if not shutil.which('git'):
        return ''
    head = git('rev-parse', '--verify', 'HEAD')
    changed = git('status', '--porcelain', '-uall', '--', ':/*.py', ':(top,exclude)configs')
    if changed:
        return head + '-dirty'
    return head


def read_log_lines(path, state):
    """Read the lines of a run's log.jsonl, without a last one that is still being written. ValueError if the
    lines up to a checkpoint's step have changed since its state.json was written."""
    step = state.get('step', 0)
    rows = []
    if path.exists():
        rows = path.read_bytes().splitlines(keepends=True)
    with blame(f'{path}: has a row that is no step of a run; restore it', ValueError, TypeError, LookupError):
        lines = [json.loads(row) for row in rows if row.endswith(b'\n')]
        saved = [row for row, line in zip(rows, lines) if line['step'] <= step]
    digest = hashlib.sha256(b''.join(saved)).hexdigest()
    if state.get('log', '') not in ('', digest):
        raise ValueError(f'{path}: changed since step {step} was saved; restore it')
    return lines


def read_log(folder, with_parent=False):
    """Read (config.json, the lines of log.jsonl) of out/<name>. `with_parent` puts the lines of a branch's
    parent before its own, if they are there."""
    folder = Path(folder)
    config = read_json(folder / 'config.json')
    steps = saved_steps(folder)
    state = {}
    if steps:   # state.json says the same, and has a digest
        state = saved_state(folder / str(steps[-1]))
        config |= state.get('settings', {})
        config |= {name: state[name] for name in ('corpus_meta', 'starts') if name in state}
    lines = read_log_lines(folder / 'log.jsonl', state)

    parent = config.get('branch_from')
    if with_parent and parent:
        first = config['starts'][0]['step']
        for run in (Path(parent), Path(parent).parent):     # a run, or a checkpoint in it
            if (run / 'log.jsonl').exists():
                _, before = read_log(run, with_parent=True)
                lines = [line for line in before if line['step'] <= first] + lines
    return config, lines

"""What tests/campaign.py starts: commands in their own processes, states that nothing disturbed, judges."""
import contextlib
import csv
import fcntl
import hashlib
import importlib
import itertools
import json
import mmap
import os
import random
import re
import resource
import shutil
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
SCRIPTS = {name: importlib.import_module(name)  # once: each start is a fork of this process
           for name in ('data', 'pretrain', 'finetune', 'evaluate', 'fill_mask')}

from conftest import texts  # noqa: E402
from nanoencoder.settings import run_main  # noqa: E402

PATIENCE, WIDTH = 60, 400      # seconds that a command may take, characters of a line
MEMORY = 3 * 2 ** 30           # bytes that a process may have
ENVIRONMENT = {'OMP_NUM_THREADS': '1', 'HF_HUB_OFFLINE': '1', 'CUDA_VISIBLE_DEVICES': ''}

PREPARE = ('data.py --source=folder --path=texts --out=corpus --tokenizer=tokenizer --val_permille=100 '
           '--shard_tokens=9_000 --threads=1')
TRAIN = ('pretrain.py --corpus=corpus --context=32 --rows_per_step=4 --micro_rows=2 --lr=1e-2 --device=cpu '
         '--warmup_steps=2 --decay_steps=2 --log_every=1 --val_every=6 --val_rows=3 --save_every=2 '
         '--save_at=(4,) ')
RUN = TRAIN + ('--name=run --phases=(("clm",6),("mlm",6)) --vocab_size=600 --hidden_size=16 '
               '--intermediate_size=24 --num_hidden_layers=2 --num_attention_heads=2 --num_key_value_heads=1 '
               '--tie_word_embeddings ')
BRANCH = TRAIN + '--name=branch --phases=(("clm",6),("mlm",8)) --branch_from=out/run/8'
WEIGHTS = TRAIN + '--name=other --phases=("mlm",4) --weights_from=out/run/12'
TASK = ('finetune.py --kind=SC --dataset=toy --data=task --max_length=24 --steps=4 --batch_size=8 '
        '--device=cpu --model=out/run ')
GRID = TASK + '--grid --lrs=1e-3,1e-2 --seeds=0,1'
TABLE, VERIFY = 'evaluate.py table --resamples=100 --format=csv', 'data.py --verify --out=corpus'
FILL, LOSSES = 'fill_mask.py out/run a<|mask|>b', 'evaluate.py losses out/run'
RESULTS = 'evaluate.py table --predictions= --results=theirs --protocol=paper'
JOBS = {  # {name: (what it comes after, command)}; `two`: in two processes, with what torchrun sets
    'tokenizer': ('texts', 'data.py --source=folder --path=texts --tokenizer=tokenizer '
                           '--train_tokenizer=600'),
    'prepare': ('tokenizer', PREPARE),
    'parts': ('tokenizer', PREPARE + ' --parts=2'),
    'pretrain': ('prepare', RUN),
    'pruned': ('prepare', RUN + '--save_every=1 --keep=1 --save_at=()'),
    'two': ('prepare', 'two ' + RUN + '--micro_rows=1'),
    'sharded': ('prepare', 'two ' + RUN + '--micro_rows=1 --parallel=fsdp'),
    'branch': ('pretrain', BRANCH),
    'weights': ('pretrain', WEIGHTS),
    'fill': ('pretrain', FILL),
    'losses': ('pretrain', LOSSES),
    'verify': ('prepare', VERIFY),
    'grid': ('pretrain', GRID),
    'table': ('grid', TABLE),
    'export': ('table', 'evaluate.py export theirs')}
HALF = {  # what is taken out of a finished state, so that something is left to do
    'pretrain': ('out/run/10', 'out/run/12'), 'grid': ('predictions/run/SC/toy/lr1e-02_sd1',)}
CLOCK = ('starts', 'seconds', 'tokens_per_second', 'processes', 'settings', 'digest')  # not compared


class Failed(Exception):
    """A trial that did not survive: why, in words."""


def shortened(text, width=200):
    return text if len(text) <= width else f'{text[:width]}...({len(text):,} characters)'


# ------------------------------------------------------------------------------------------------- processes

class Done(NamedTuple):
    """A command that ended: exit code, what it printed, its operations on files, seconds."""
    code: int
    out: str
    err: str
    operations: int
    seconds: float

    @property
    def said(self):
        """The lines that say what went wrong."""
        lines = f'{self.out}\n{self.err}'.splitlines()
        return [line for line in lines if re.match('(error|warning): |.*: failed: ', line)]


class Start:
    """A command under way, in one process or two."""

    def __init__(self, folder, words, kill_at=0, largest_file=0):
        """kill_at: SIGKILL as the first process begins this operation on files. largest_file: in bytes."""
        two = words[0] == 'two'
        words = list({word.split('=')[0]: word for word in words[two:]}.values())  # the later one wins
        self.began, self.counter, self.pids, self.codes = time.monotonic(), mmap.mmap(-1, 8), [], {}
        self.pipes = [os.pipe(), os.pipe()]
        for _, end in self.pipes:
            fcntl.fcntl(end, 1031, 2 ** 20)  # F_SETPIPE_SZ: nobody reads before the end
        worlds = [{}]
        if two:
            with socket.create_server(('127.0.0.1', 0)) as free:
                where = {'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(free.getsockname()[1])}
            worlds = [where | {'RANK': f'{k}', 'LOCAL_RANK': f'{k}', 'WORLD_SIZE': '2'} for k in range(2)]
        sys.stdout.flush()
        for environment in worlds:
            if not (pid := os.fork()):
                self.become(folder, words, environment, kill_at, largest_file)
            with contextlib.suppress(OSError):
                os.setpgid(pid, pid)
            self.pids.append(pid)
        for _, end in self.pipes:
            os.close(end)

    def become(self, folder, words, environment, kill_at, largest_file):
        """What the new process does until its end: it is a script."""
        code = 1
        try:
            os.setpgid(0, 0)
            for number, (_, end) in enumerate(self.pipes, 1):
                os.dup2(end, number)
            sys.stdout, sys.stderr = (open(number, 'w', encoding='utf-8', closefd=False) for number in (1, 2))
            os.chdir(folder)
            os.environ |= ENVIRONMENT | environment
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            if largest_file:
                resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
            if environment.get('RANK', '0') == '0':
                count_operations(self.counter, kill_at)
            sys.argv = words
            run_main(SCRIPTS[words[0].removesuffix('.py')].main)
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def running(self):
        for pid in set(self.pids) - self.codes.keys():
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self.codes[pid] = os.waitstatus_to_exitcode(status)
        return len(self.codes) < len(self.pids)

    def kill(self):
        """SIGKILL to each, a moment apart."""
        for pid in self.pids:
            if self.running() and pid not in self.codes:
                os.killpg(pid, signal.SIGKILL)
                time.sleep(0.1 * (len(self.pids) - 1))

    def end(self):
        """Wait for the end. Failed if it takes longer than 60 seconds."""
        late = False
        while self.running():
            if not late and (late := time.monotonic() - self.began > PATIENCE):
                self.kill()
            time.sleep(0.002)
        seconds, printed = time.monotonic() - self.began, []
        for end, _ in self.pipes:
            with open(end, encoding='utf-8', errors='replace') as file:
                printed.append(file.read())
        if late:
            raise Failed(f'still running after {PATIENCE} s')
        operations = int.from_bytes(self.counter[:8], 'little')
        return Done(max(self.codes.values(), key=abs), *printed, operations, seconds)


def count_operations(counter, kill_at):
    """Count what this process does to files; SIGKILL as it begins number kill_at."""
    numbers = itertools.count(1)

    def hook(event, arguments):
        writes = event == 'open' and (arguments[1] is None or set(str(arguments[1])) & set('wax+'))
        if writes or event in ('os.rename', 'os.remove', 'os.mkdir', 'os.rmdir', 'fcntl.flock'):
            number = next(numbers)
            counter[:8] = number.to_bytes(8, 'little')
            if number == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)


# --------------------------------------------------------------------------------------------------- states

class States:
    """What each job leaves when nothing disturbs it, a folder and its Done; made when first asked for."""

    def __init__(self, folder):
        self.folder, self.ended = folder, {}
        write_texts(folder / 'texts')

    def path(self, name):
        """The folder that a job leaves; half_prepared is that of a PREPARE killed behind two shards."""
        path = self.folder / name
        if path.exists():
            return path
        after, line = JOBS.get(name, ('tokenizer', PREPARE))
        shutil.copytree(self.path(after), path)
        if name in JOBS:
            self.ended[name] = Start(path, line.split()).end()
            if self.ended[name].code:
                raise SystemExit(f'undisturbed, {line} fails: {self.ended[name].err}')
            return path
        kill_at = 0
        while not len(list(path.glob('corpus/tokens_*'))) == 2:  # each kill comes a little further
            shutil.rmtree(path / 'corpus', ignore_errors=True)
            kill_at += 5
            Start(path, line.split(), kill_at).end()
        return path

    def done(self, job):
        """A job's Done."""
        self.path(job)
        return self.ended[job]

    def copy(self, name, folder, half=False):
        shutil.copytree(self.path(name), folder, dirs_exist_ok=True)
        for path in HALF.get(name, ()) if half else ():
            shutil.rmtree(folder / path)


def write_texts(folder):
    """Short documents for a corpus of several shards; sentences whose class a word decides."""
    draw, paragraphs = random.Random(0), [part for text in texts() for part in text.split('\n\n')]
    for name in ('texts', 'task'):
        (folder / name).mkdir(parents=True)
    for k, name in enumerate('abc'):
        lines = (json.dumps({'text': part}) + '\n' for part in paragraphs[k:1_500:3])
        (folder / 'texts' / f'{name}.jsonl').write_text(''.join(lines))
    words = ' '.join(paragraphs[:20]).split()
    for split, count in (('train', 32), ('validation', 20), ('test', 20)):
        rows = [(label, *draw.sample(words, 6)) for label in draw.choices(('good', 'bad'), k=count)]
        with open(folder / 'task' / f'{split}.csv', 'w', newline='') as file:
            csv.writer(file).writerows([('label', 'text'), *((row[0], ' '.join(row)) for row in rows)])


def contents(folder):
    """{file: what must be the same of it}: everything but clocks, settings and how often it was started."""
    found = {}
    for path in sorted(folder.rglob('*')):
        if path.is_file():
            content = path.read_bytes()
            try:
                lines = map(json.loads, content.splitlines() if path.suffix == '.jsonl' else [content])
                content = [json.dumps({name: line[name] for name in {*line} - {*CLOCK}}, sort_keys=True)
                           for line in lines]
            except (ValueError, TypeError, RecursionError):
                content = hashlib.sha256(content).hexdigest()
            found[str(path.relative_to(folder))] = content
    return found


def same(wanted, found, ignore=()):
    """Failed if two folders' contents differ but for these files."""
    for name in sorted(wanted.keys() | found.keys()):
        if name not in ignore and wanted.get(name) != found.get(name):
            how = 'is left over' if name not in wanted else 'is missing' if name not in found else 'differs'
            raise Failed(f'{name} {how}')


def tidy(done):
    """Failed at a traceback, an exit code other than 0, 1 or 2, more than one error, none, or a long line."""
    if 'Traceback (most recent call last)' in (printed := done.out + done.err):
        lines = printed.split('Traceback (most recent call last)')[-1].split('\n')
        places = [line.strip() for line in lines if re.match(r'  File ', line)]
        error = next((line for line in lines[1:] if line[:1].strip()), '')
        raise Failed(f'traceback: {shortened(error)} at {places[-1] if places else ""}')
    errors = sum(line.startswith('error: ') for line in done.said)
    if not {0: not errors, 1: errors < 2 and bool(done.said), 2: errors == 1}.get(done.code):
        raise Failed(f'exit code {done.code}, {errors} errors: {shortened(done.err[-200:])}')
    if long := [line for line in done.said if len(line) > WIDTH]:
        raise Failed(f'a line of {len(long[0]):,} characters: {long[0][:100]}')
    return done


def blames(text, path, folder):
    """Whether a message names this file, or its folder and no other file."""
    named = set(re.findall(r'[\w.-]+\.(?:jsonl\.gz|jsonl|json|npy|md|safetensors)\b', text))
    return path.name in named or not named and str(path.parent.relative_to(folder)) in text

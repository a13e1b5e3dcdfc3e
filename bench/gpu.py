"""What this code has never done on a GPU, in order; planned for 35 minutes of an H100: `make gpu`.

    .venv/bin/python tests/gpu.py    # goes on where a step fails; again: what failed or is missing
    .venv/bin/python tests/gpu.py --config=configs/tiny.py --steps=20 --out=out/cpu    # what a CPU can

Writes <out>/report.md, which says of each step what came out and how long it took.
"""
import dataclasses
import os
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import torch

from steps import ROOT, Step, do_all, run as run_script     # first: it puts ROOT on the path
from nanoencoder.files import read_json
from nanoencoder.pretraining.log import read_log
from nanoencoder.processes import pick_device
from nanoencoder.settings import parse, run_main, setting


@dataclasses.dataclass(frozen=True)
class Settings:
    config: str = 'configs/small.py'    # what is trained, on the embedded texts
    steps: int = setting(200, 4)        # of the runs that are compared; the real one has five times as many
    sizes: tuple = ('210m', '610m', '1b')
    out: str = 'out/gpu'


def machine():
    yield f'{platform.platform()}, Python {platform.python_version()}, torch {torch.__version__}'
    yield f'{torch.cuda.device_count()} GPUs, computing on {" in ".join(map(str, pick_device()))}'
    if torch.cuda.is_available():
        gpu = torch.cuda.get_device_properties(0)
        yield (f'{gpu.name}, {gpu.total_memory / 2 ** 30:.0f} GiB, CUDA {torch.version.cuda}, NCCL '
               f'{".".join(map(str, torch.cuda.nccl.version()))}')


def compare(first, second, within):
    """ValueError if a loss of one run is further from the other's than this share."""
    (a, fast), (b, slow) = (zip(*((line['loss'], line['tokens_per_second']) for line in read_log(run)[1]))
                            for run in (first, second))
    worst = max(abs(x - y) / y for x, y in zip(a, b, strict=True))
    yield (f'{first.name} and {second.name}: {len(a)} losses within {worst:.1e}, the last {a[-1]:.4f} and '
           f'{b[-1]:.4f}; {statistics.median(fast):,.0f} and {statistics.median(slow):,.0f} tokens/s')
    if not worst <= within:
        raise ValueError(f'losses of {first.name} and {second.name} differ by {worst:.1e}, over {within}')


def killed(command, run, step):
    """The run, killed when it has saved a step, and again to its end."""
    shutil.rmtree(run, ignore_errors=True)
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL)
    try:
        while process.poll() is None and not (run / str(step) / 'state.json').exists():
            time.sleep(0.05)
        if process.poll() is not None:
            raise ValueError('it ended before it could be killed')
    finally:
        process.kill()
        process.wait()
    yield f'killed with {len((run / "log.jsonl").read_text().splitlines())} steps in the log'
    yield from run_script(command)


def two_processes(command, run, plain):
    """A run in two processes, each with a GPU of its own, or on the CPU."""
    if torch.cuda.device_count() == 1:
        yield 'one GPU here'
        return
    yield from run_script(['-m', 'torch.distributed.run', '--standalone', '--nproc_per_node=2', *command])
    yield from compare(run, plain, 0.02)


def plan(cfg):
    """{title: Step}, in order."""
    out, half = Path(cfg.out), cfg.steps // 2
    def training(name, first, second, *more):
        return ['pretrain.py', cfg.config, '--corpus=corpora/docs', '--vocab_size=4096', f'--out={out}',
                f'--name={name}', f'--phases=(("clm", {first}), ("mlm", {second}))', f'--save_every={first}',
                '--log_every=10', *more]
    plain, bench = training('killed', half, half, '--compile=False'), f'--out={out / "bench.jsonl"}'
    steps = {
        'machine': Step(machine, 0),
        'tests that need a GPU': Step(['-m', 'pytest', '-q', '-m', 'gpu', 'tests'], 3),
        'corpus': Step(['data.py', 'configs/corpora/docs.py'], 0.6),
        'plain': Step(training('plain', half, half, '--compile=False'), 1.5, out / f'plain/{2 * half}'),
        'compiled': Step(training('compiled', half, half, '--compile'), 2.5, out / f'compiled/{2 * half}'),
        'compiled and plain are equal': Step(lambda: compare(out / 'compiled', out / 'plain', 0.02), 0.1),
        'killed and resumed': Step(lambda: killed(plain, out / 'killed', half), 2),
        'killed and plain are equal': Step(lambda: compare(out / 'killed', out / 'plain', 0.01), 0.1)}
    for parallel in ('ddp', 'fsdp'):
        command = training(parallel, half, half, '--compile=False', f'--parallel={parallel}')
        steps[f'two processes, {parallel}'] = Step(
            partial(two_processes, command, out / parallel, out / 'plain'), 1)
    for size in cfg.sizes:
        steps[f'speed of the {size}'] = Step(['tests/bench.py', 'mfu', f'--size={size}', bench], 4)
    steps |= {
        'table of speeds': Step(['tests/bench.py', 'table', str(out / 'bench.jsonl')], 0.1),
        'a real run': Step(training('real', cfg.steps, 4 * cfg.steps), 6, out / f'real/{5 * cfg.steps}')}
    for task, more in {'docs_tc': ['--steps=0'], 'docs_ir': ['--steps=0', '--epochs=2']}.items():
        steps[f'fine-tuned on {task}'] = Step(
            ['finetune.py', f'configs/tasks/{task}.py', *more, f'--model={out / "real"}', '--grid',
             '--lrs=5e-4,1e-3', '--seeds=0,1', f'--predictions={out / "predictions"}'], 2)
    return steps | {'scores': Step(['evaluate.py', 'table', f'--predictions={out / "predictions"}'], 0)}


def report(path, steps):
    done, lines = read_json(path), ['# The first hour on a GPU']
    for title in [title for title in steps if title in done]:
        entry = done[title]
        command = f'`{shlex.join(entry["command"])}`\n\n' if entry['command'] else ''
        lines.append(f'## {title}: {"done" if entry["done"] else "failed"}, {entry["seconds"]:,.0f} s\n\n'
                     f'{command}```\n' + '\n'.join(entry['said']) + '\n```')
    path.with_name('report.md').write_text('\n\n'.join(lines) + '\n', encoding='utf-8')


def main():
    cfg, _ = parse(Settings, sys.argv[1:])
    os.chdir(ROOT)
    steps, path = plan(cfg), Path(cfg.out, 'steps.json')
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        begun = dataclasses.asdict(cfg) | {'sizes': list(cfg.sizes), 'device': pick_device()[0].type}
        failed = do_all(steps, path, begun, go_on=True)  # what a CPU did is not taken for a GPU's
    finally:
        report(path, steps)
    if failed:
        raise ValueError(f'{len(failed)} of {len(steps)} steps failed: {", ".join(failed)}; '
                         f'{path.with_name("report.md")} has what they said')


if __name__ == '__main__':
    run_main(main)

"""Do two revisions of this program give the same numbers? Runs both side by side and compares what they write.

    python tests/against.py                       # every case but the slow ones, against 7605c98: four minutes
    python tests/against.py scratch resume        # some of them, in this order; --help names all
    python tests/against.py --old=HEAD~3          # against another revision
    python tests/against.py --slow                # also what compiles
    python tests/against.py --new=../elsewhere    # another folder in the place of this repository

For whoever rebuilds the program and wants every bit to stay as it was. The old revision is checked out in a
`git worktree` under a temporary folder. Both programs are started as a user starts them, at the same time, with the
same command lines, on a small corpus that the old one prepared from numpy's docstrings; nothing of either is imported.
Then everything they wrote is compared: each line of the logs but its clock, sha256 of weights and optimizer in every
checkpoint, configs, tokenizers, predictions, tables. The new program may write more (another file, another name in
a log line), but nothing less and nothing else. A case prints `equal`, or what differs first; the exit code is 1 if
any differs, and then the temporary folder stays, to be looked at.
"""
import argparse
import ast
import gzip
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TINY = dict(name='run', phases=(('clm', 6), ('mlm', 6)), vocab_size=4_096, hidden_size=32, intermediate_size=48,
            num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, context=64, rows_per_step=4, micro_rows=2,
            lr=3e-3, warmup_steps=3, decay_steps=3, log_every=1, val_every=6, val_rows=5, save_every=4, keep=99,
            device='cpu')
LONG = dict(phases=(('clm', 30), ('mlm', 30)), save_every=8)      # long enough to be killed half-way
OTHER_SHAPE = dict(tie_word_embeddings=True, qk_norm=True, attention_bias=True, head_dim=12,
                   rope_scaling=(8.0, 1.0, 4.0, 32), mask_replace=(0.8, 0.1, 0.1), cut_rows=False)
FINETUNE = ('--steps=15', '--lr=1e-3', '--device=cpu')
TEXTS = ('axis : int or <|mask|> of ints, optional', 'The <|mask|> of <|mask|> in the array.')


class Failed(Exception):
    """A command did not do what it should; in words."""


@dataclass(frozen=True)
class Shared:
    """What all cases read, made once by the old program."""
    folder: Path
    old: Path              # the old program
    rows: int = 0          # of TINY's context in the corpus: one epoch

    corpus = property(lambda self: self.folder / 'corpus')
    texts = property(lambda self: self.folder / 'texts.jsonl')
    parent = property(lambda self: self.folder / 'out/parent')


@dataclass(frozen=True)
class Side:
    """One of the two programs in one case, with the folder it runs in."""
    program: Path
    folder: Path
    is_new: bool
    shared: Shared

    def command(self, script, words, processes=1, program=None):
        """Popen's arguments. One thread, no accelerator, no network, and no other program on Python's path."""
        launcher = ['-m', 'torch.distributed.run', '--standalone', f'--nproc_per_node={processes}']
        words = [*launcher * (processes > 1), (program or self.program) / script, *words]
        environment = {name: value for name, value in os.environ.items() if name != 'PYTHONPATH'}
        environment |= {'OMP_NUM_THREADS': '1', 'OMP_WAIT_POLICY': 'passive', 'CUDA_VISIBLE_DEVICES': '',
                        'HF_HUB_OFFLINE': '1'}
        return dict(args=[sys.executable, *map(str, words)], cwd=self.folder, env=environment, text=True,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, script, *words, **where):
        """What the script printed."""
        result = subprocess.run(**self.command(script, words, **where), timeout=600)
        if result.returncode:
            lines = result.stderr.strip().splitlines() or ['']
            raise Failed(f'{"new" if self.is_new else "old"} {script} {" ".join(map(str, words))[:60]} ... '
                         f'exit code {result.returncode}: {lines[-1]}')
        return result.stdout

    def pretrain(self, processes=1, killed_at=0, program=None, **changes):
        """Train; `killed_at` sends SIGKILL as soon as that step's checkpoint is there."""
        cfg = TINY | {'corpus': self.shared.corpus} | changes
        words = [f'--{name}={value}' for name, value in cfg.items()]
        if not killed_at:
            return self.run('pretrain.py', *words, processes=processes, program=program)
        process = subprocess.Popen(**self.command('pretrain.py', words, program=program))
        while process.poll() is None and not (self.folder / 'out' / cfg['name'] / str(killed_at)).exists():
            time.sleep(0.002)
        process.kill()
        _, errors = process.communicate()
        if process.returncode != -9:
            raise Failed(f'pretrain.py ended before step {killed_at} was seen: {errors[-200:]}')

    def finetune(self, kind, *words, script='finetune.py', program=None):
        task = (program or self.program) / f'configs/tasks/docs_{kind}.py'
        return self.run(script, task, f'--cache={self.shared.folder / "tasks"}', *words, program=program)

    def either(self, *scripts):
        """The first script that this program has: commands may move between revisions."""
        return next(script for script in scripts if (self.program / script).exists())

    def tables(self):
        for protocol in ('standard', 'paper'):
            text = self.run('evaluate.py', 'table', '--format=csv', f'--protocol={protocol}')
            (self.folder / f'{protocol}.csv').write_text(text)


# --------------------------------------------------------------------------------------------------- cases

def prepare(side, program=None):
    side.run('data.py', '--source=folder', f'--path={side.shared.texts}', '--val_permille=50', '--shard_tokens=60_000',
             f'--tokenizer={(program or side.program) / "configs/corpora/docs"}', '--out=corpus', program=program)


def resume(side, killed=None, **changes):
    """The new program is killed half-way and finishes; the old one is left alone."""
    if side.is_new:
        side.pretrain(killed_at=24, program=killed, **LONG | changes)
    side.pretrain(**LONG | changes)


def branch(side):
    side.pretrain(name='trunk', phases=('clm', 16), decay_steps=4)
    side.pretrain(name='branch', phases=(('clm', 8), ('mlm', 8)), branch_from='out/trunk/8')


def finetune(side, kind):
    """Fine-tune, probe, score; the baseline needs no model."""
    side.finetune(kind, f'--model={side.shared.parent}', '--save_model', *FINETUNE)
    if kind != 'qa':
        side.finetune(kind, f'--model={side.shared.parent}', '--probe', *FINETUNE)
    side.finetune(kind, '--baseline', script=side.either('tasks.py', 'finetune.py'))
    side.tables()


def old_predictions(side):
    """The old program's predictions are scored by either, and are not computed again."""
    for kind in ('tc', 'ir'):
        words = f'--model={side.shared.parent}', '--steps=2', '--device=cpu'
        side.finetune(kind, *words, program=side.shared.old)
        if 'already done' not in side.finetune(kind, *words):
            raise Failed(f'docs_{kind} was computed again')
    side.tables()


def fill_mask(side):
    script = side.either('fill_mask.py', 'model.py')
    printed = [side.run(script, side.shared.parent, side.shared.parent / '12', text) for text in TEXTS]
    (side.folder / 'printed.txt').write_text('\n'.join(printed))


def parent(side):
    return dict(weights_from=side.shared.parent / '16', context=96, rope_theta=50_000.0, first_row=64)


CASES = {
    'prepare': prepare,
    'scratch': lambda side: side.pretrain(  # the data's second epoch begins at step 11
        phases=(('clm', 8), ('mlm', 8), ('mntp', 8)), first_row=side.shared.rows - 42),
    'other_shape': lambda side: side.pretrain(**OTHER_SHAPE, phases=(('mlm', 6), ('mntp', 3), ('clm', 3))),
    'resume': resume,
    'old_killed_new_finishes': lambda side: resume(side, side.shared.old),
    'old_killed_new_finishes_tied': lambda side: resume(side, side.shared.old, **OTHER_SHAPE, log_every=1),
    'branch': branch,
    'branch_from_old': lambda side: side.pretrain(phases=(('clm', 12), ('mlm', 8)),
                                                  branch_from=side.shared.parent / '12'),
    'weights_from_old': lambda side: side.pretrain(phases=('mlm', 8), **parent(side)),
    'ddp': lambda side: side.pretrain(processes=2, micro_rows=1),
    'fsdp': lambda side: side.pretrain(processes=2, micro_rows=1, parallel='fsdp'),
    'recompute': lambda side: side.pretrain(recompute=True),
    'fill_mask': fill_mask,
    'finetune_sc': lambda side: finetune(side, 'sc'),
    'finetune_tc': lambda side: finetune(side, 'tc'),
    'finetune_qa': lambda side: finetune(side, 'qa'),
    'finetune_ir': lambda side: finetune(side, 'ir'),
    'old_predictions': old_predictions,
    'compile': lambda side: side.pretrain(compile=True),
}
SLOW = ('compile',)


# ---------------------------------------------------------------------------------------------- comparison

# Of these files only what two revisions must agree on; paths, versions and clocks are not part of it.
NAMES = {
    'meta.json': ('fingerprint', 'tokenizer', 'vocab_size', 'mask_token_id', 'special_ids', 'tokens', 'documents',
                  'val_tokens', 'val_documents', 'shards', 'val_shards', 'unigram_loss'),
    'state.json': ('step', 'base_model', 'origin'),
    'run.json': ('kind', 'weights', 'labels', 'scheme', 'trained_on', 'grid', 'checkpoint', 'tokenizer', 'pretraining',
                 'data', 'training_data'),
}
CLOCK = ('seconds', 'tokens_per_second', 'starts')


def content(path):
    """What is compared of a file; None for one that is not."""
    if path.name in NAMES:
        values = json.loads(path.read_text())
        return {name: values.get(name) for name in NAMES[path.name]}
    if path.suffix == '.safetensors' or path.name.startswith('tokenizer'):
        return hashlib.sha256(path.read_bytes()).hexdigest()
    if path.name.endswith('.jsonl.gz'):     # documents that tie with the tenth may be listed or not
        rows = map(json.loads, gzip.open(path, 'rt', encoding='utf-8'))
        return [row | {name: row[name][:10] for name in ('docs', 'scores') if name in row} for row in rows]
    if path.suffix == '.jsonl':
        lines = map(json.loads, path.read_text().splitlines())
        return [{name: value for name, value in line.items() if name not in CLOCK} for line in lines]
    if path.name == 'config.json':          # of a model: nothing more, either; of a run: its settings
        values = json.loads(path.read_text())
        own = (path.parent / 'model.safetensors').exists()
        return sorted(values.items()) if own else {name: values[name] for name in values if name not in CLOCK}
    return path.read_text() if path.suffix in ('.csv', '.txt') else None


def difference(old, new, where=''):
    """The first place where two contents differ, in words; '' if there is none."""
    if isinstance(old, dict) and isinstance(new, dict):
        pairs = [(f'{where} {name}', value, new.get(name, 'missing')) for name, value in old.items()]
    elif isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)) and len(old) == len(new):
        pairs = [(f'{where}[{k}]', a, b) for k, (a, b) in enumerate(zip(old, new))]
    else:
        return '' if old == new else f'{where}: {str(old)[:60]!r} was, {str(new)[:60]!r} is'
    return next(filter(None, (difference(a, b, place) for place, a, b in pairs)), '')


def compare(old, new):
    """(how many files were compared, the first difference in words)."""
    number = 0
    for path in sorted(path for path in old.rglob('*') if path.is_file()):
        if (before := content(path)) is not None:
            number += 1
            twin = new / path.relative_to(old)
            if not twin.exists():
                return number, f'{path.relative_to(old)}: missing'
            if found := difference(before, content(twin), str(path.relative_to(old))):
                return number, found
    return number, '' if number else 'nothing was written'


# ---------------------------------------------------------------------------------------------------- main

def set_up(folder, old):
    """The corpus, and a run to branch from, to take weights from and to fine-tune: all made by the old program."""
    folder.mkdir()
    numpy = Path(importlib.util.find_spec('numpy').origin).parent
    trees = [ast.parse(path.read_text(encoding='utf-8')) for path in sorted(numpy.rglob('*.py'))]
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    found = [ast.get_docstring(node) for tree in trees for node in ast.walk(tree) if isinstance(node, kinds)]
    texts = list(dict.fromkeys(filter(None, found)))[:3_000]
    shared = Shared(folder, old)
    shared.texts.write_text(''.join(json.dumps({'text': text}) + '\n' for text in texts), encoding='utf-8')
    side = Side(old, folder, False, shared)
    prepare(side)
    side.pretrain(name='parent', phases=(('clm', 12), ('mlm', 12)))
    tokens = json.loads((shared.corpus / 'meta.json').read_text())['tokens']
    return Shared(folder, old, tokens // TINY['context'])


def run_case(name, new, shared, folder):
    """Run a case in both programs at once, and print what came of it. Whether they are equal."""
    began = time.monotonic()
    sides = [Side(program, folder / name / side, side == 'new', shared)
             for side, program in (('old', shared.old), ('new', new))]
    for side in sides:
        side.folder.mkdir(parents=True)
    try:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(CASES[name], sides))
        number, found = compare(*(side.folder for side in sides))
    except (Failed, subprocess.TimeoutExpired) as error:
        number, found = 0, str(error)
    seconds = time.monotonic() - began
    print(f'{name:<29}{f"DIFFERS {found}" if found else f"equal ({number} files)"}, {seconds:.0f} s', flush=True)
    return not found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('cases', nargs='*', metavar='case', help=', '.join(CASES))
    parser.add_argument('--old', default='7605c98', help='a revision of this repository')
    parser.add_argument('--new', default=ROOT, type=Path, help='the folder of the program to compare with it')
    parser.add_argument('--slow', action='store_true', help=f'also {", ".join(SLOW)}')
    args = parser.parse_args()
    if unknown := set(args.cases) - set(CASES):
        parser.error(f'no case is called {", ".join(sorted(unknown))}; there are {", ".join(CASES)}')
    names = args.cases or [name for name in CASES if args.slow or name not in SLOW]
    folder = Path(tempfile.mkdtemp(prefix='against-'))
    old, git = folder / 'program', ['git', '-C', str(ROOT), 'worktree']
    equal = False
    try:
        subprocess.run([*git, 'add', '--quiet', '--detach', str(old), args.old], check=True)
        shared = set_up(folder / 'shared', old)
        equal = all([run_case(name, args.new.resolve(), shared, folder) for name in names])
    finally:
        subprocess.run([*git, 'remove', '--force', str(old)])
        if equal:
            shutil.rmtree(folder)
        else:
            print(f'what was written is in {folder}')
    sys.exit(0 if equal else 1)


if __name__ == '__main__':
    main()

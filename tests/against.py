"""Do two revisions of this program give the same numbers? Runs both and compares what they write.

    python tests/against.py                       # against 7605c98, all but the slow cases: four minutes
    python tests/against.py scratch resume        # some cases; --help names them
    python tests/against.py --old=HEAD~3 --slow   # against another revision; what compiles, too
    python tests/against.py --new=../elsewhere    # another folder in place of this repository

For whoever rebuilds the program and wants every bit to stay. The old revision is checked out in a
`git worktree` under a temporary folder. Both are started as a user starts them, at the same time, with the
same command lines, on a small corpus and a small run that the old one made; neither is imported. Then what
they wrote is compared: the lines of logs but for the clock, sha256 of weights and optimizer in every
checkpoint, configs, tokenizers, predictions, tables. The new program may write more files and more in a log
line, nothing less and nothing else. The exit code is 1 if a case differs; the temporary folder then stays.
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
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TINY = dict(
    name='run', phases=(('clm', 6), ('mlm', 6)), vocab_size=4_096, hidden_size=32, intermediate_size=48,
    num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, context=64, rows_per_step=4,
    micro_rows=2, lr=3e-3, warmup_steps=3, decay_steps=3, log_every=1, val_every=6, val_rows=5,
    save_every=4, keep=99, device='cpu')

# A case is the commands that both programs run, each in its own folder. Spaces part words; quotes do not.
# Before a script:
#   old      the old program runs it in both folders
#   killed   only in the new one's folder, and it gets SIGKILL as soon as step 24 is saved
#   two      in two processes
#   printed  what it prints is compared, too
# and a|b.py is a.py, or b.py in a revision that has no a.py.
PREPARE = ('data.py --source=folder --path={shared}/texts.jsonl --out=corpus --val_permille=50 '
           '--shard_tokens=60_000 --tokenizer={program}/configs/corpora/docs')
RUN = 'pretrain.py {shared}/tiny.py '
LONG = RUN + '--phases=(("clm",30),("mlm",30)) --save_every=8 '
OTHER_SHAPE = ('--tie_word_embeddings --qk_norm --attention_bias --head_dim=12 --cut_rows=False '
               '--rope_scaling=(8.0,1.0,4.0,32) --mask_replace=(0.8,0.1,0.1) ')
TABLES = ['printed evaluate.py table --format=csv --protocol=paper']   # standard intervals are others now
TASK = '{program}/configs/tasks/docs_KIND.py --cache={shared}/tasks '
FINETUNE = 'finetune.py ' + TASK + '--device=cpu --model={shared}/out/parent '
# At the small learning rate the head stays as it was drawn: not every prediction is the commonest label.
GRID = FINETUNE + '--grid --lrs=1e-5,1e-2 --seeds=0,1 --steps=15 --save_model '
BASELINE = 'tasks|finetune.py ' + TASK + '--baseline'
KINDS = {kind: [GRID, FINETUNE + '--probe', BASELINE, *TABLES] for kind in ('sc', 'tc', 'ir')} | {
    'qa': [GRID, GRID + '--qa_head=span --name=span', *TABLES]}   # its best simple method is a new one
CASES = {
    'prepare': [PREPARE],
    'scratch': [RUN + '--phases=(("clm",8),("mlm",8),("mntp",8)) --first_row={near_end}'],
    'other_shape': [RUN + OTHER_SHAPE],
    'resume': ['killed ' + LONG, LONG],
    'old_killed_new_finishes': ['killed old ' + LONG, LONG],
    'old_killed_other_shape': ['killed old ' + LONG + OTHER_SHAPE, LONG + OTHER_SHAPE],
    'branch': [RUN + '--name=trunk --phases=("clm",16) --decay_steps=4',
               RUN + '--phases=(("clm",8),("mlm",8)) --branch_from=out/trunk/8'],
    'branch_from_old': [RUN + '--lr=1e-2 --phases=(("clm",80),("mlm",8)) '
                        '--branch_from={shared}/out/parent/72'],
    'weights_from_old': [RUN + '--weights_from={shared}/out/parent --context=96 '
                         '--rope_theta=5e4 --first_row=64'],
    'ddp': ['two ' + RUN + '--micro_rows=1'],
    'fsdp': ['two ' + RUN + '--micro_rows=1 --parallel=fsdp'],
    'recompute': [RUN + '--recompute'],
    'fill_mask': ['printed fill_mask|model.py {shared}/out/parent {shared}/out/parent/12 The<|mask|>.'],
    **{f'finetune_{kind}': [line.replace('KIND', kind) for line in lines] for kind, lines in KINDS.items()},
    'old_predictions': [before + FINETUNE.replace('KIND', kind) + '--steps=2' for kind in ('tc', 'ir')
                        for before in ('old ', 'printed ')] + TABLES}  # the second says "already done"
SLOW = {'compile': [RUN + '--compile']}


def run(line, number, program, folder, old):
    """One command of a case; RuntimeError if it fails."""
    shared = old.parent / 'shared'
    before, words = line.split('.py ', 1)
    *flags, script = before.split()
    if 'killed' in flags and folder.name == 'old':
        return
    program = old if 'old' in flags else program
    script = next(path for name in script.split('|') if (path := program / f'{name}.py').exists())
    words = words.format(shared=shared, program=program, near_end=near_end(shared)).split()
    launcher = ['-m', 'torch.distributed.run', '--standalone', '--nproc_per_node=2'] if 'two' in flags else []
    environment = os.environ | {'OMP_NUM_THREADS': '1', 'OMP_WAIT_POLICY': 'passive', 'PYTHONPATH': '',
                                'CUDA_VISIBLE_DEVICES': '', 'HF_HUB_OFFLINE': '1'}
    process = subprocess.Popen([sys.executable, *launcher, script, *words], cwd=folder, env=environment,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if 'killed' in flags:
        while process.poll() is None and not (folder / 'out/run/24').exists():
            time.sleep(0.002)
        process.kill()
    printed, errors = process.communicate()
    if process.returncode != (-9 if 'killed' in flags else 0):
        raise RuntimeError(f'{script} {" ".join(words)}: exit code {process.returncode}: {errors[-300:]}')
    if 'printed' in flags:
        (folder / f'printed-{number}.txt').write_text(printed, encoding='utf-8')


def near_end(shared):
    """The row from which the data's second epoch begins within step 10."""
    path = shared / 'corpus/meta.json'
    return read_json(path)['tokens'] // TINY['context'] - 42 if path.exists() else 0


# ---------------------------------------------------------------------------------------------- comparison

PARTS = {  # what is compared of these files; the rest are paths, versions, and what only resuming needs
    'meta.json': 'fingerprint tokenizer vocab_size mask_token_id special_ids documents unigram_loss',
    'state.json': 'step base_model origin',
    'run.json': 'kind weights labels scheme grid checkpoint tokenizer pretraining data training_data'}
CLOCK = ('seconds', 'tokens_per_second', 'starts')


def read_json(path):
    return json.loads(path.read_text(encoding='utf-8'))


def content(path):
    """What is compared of a file; None for one that is not."""
    if path.name in PARTS:
        values = read_json(path)
        return {name: values.get(name) for name in PARTS[path.name].split()}
    if path.name == 'config.json':
        values = {name: value for name, value in read_json(path).items() if name not in CLOCK}
        of_model = (path.parent / 'model.safetensors').exists()  # not of a run: then no new name, either
        return sorted(values.items()) if of_model else values
    if path.name.endswith('.jsonl.gz'):  # documents that tie with the tenth may be listed or not
        rows = map(json.loads, gzip.decompress(path.read_bytes()).splitlines())
        return [row | {name: row[name][:10] for name in ('docs', 'scores') if name in row} for row in rows]
    if path.name == 'log.jsonl':
        lines = map(json.loads, path.read_bytes().splitlines())
        return [{name: value for name, value in line.items() if name not in CLOCK} for line in lines]
    if path.suffix == '.safetensors' or path.name.startswith('tokenizer'):
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return path.read_text(encoding='utf-8').splitlines() if path.suffix == '.txt' else None


def difference(old, new, where):
    """The first place where two contents differ, in words; '' if there is none."""
    if isinstance(old, dict) and isinstance(new, dict):
        pairs = [(f'{where} {name}', value, new.get(name, 'missing')) for name, value in old.items()]
    elif isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)) and len(old) == len(new):
        pairs = [(f'{where}[{k}]', a, b) for k, (a, b) in enumerate(zip(old, new))]
    else:
        return '' if old == new else f'{where}: was {str(old)[:60]!r}, is {str(new)[:60]!r}'
    return next(filter(None, (difference(a, b, place) for place, a, b in pairs)), '')


def compare(old, new):
    """The first difference between two folders, or how much is equal, in words."""
    files = {path.relative_to(old): content(path) for path in sorted(old.rglob('*')) if path.is_file()}
    files = {name: before for name, before in files.items() if before is not None}
    for name, before in files.items():
        after = content(new / name) if (new / name).exists() else 'missing'
        if found := difference(before, after, str(name)):
            return found
    return f'equal ({len(files)} files)' if files else 'nothing was written'


# ---------------------------------------------------------------------------------------------------- main

def set_up(old):
    """The old program prepares a corpus of numpy's docstrings, and trains a run to begin with."""
    shared = old.parent / 'shared'
    shared.mkdir()
    numpy = Path(importlib.util.find_spec('numpy').origin).parent
    nodes = [node for path in sorted(numpy.rglob('*.py')) for node in ast.walk(ast.parse(path.read_bytes()))]
    documented = [node for node in nodes if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))]
    texts = list(dict.fromkeys(filter(None, map(ast.get_docstring, documented))))[:3_000]
    (shared / 'texts.jsonl').write_text(''.join(json.dumps({'text': text}) + '\n' for text in texts))
    settings = TINY | {'corpus': str(shared / 'corpus')}
    (shared / 'tiny.py').write_text(''.join(f'{name} = {value!r}\n' for name, value in settings.items()))
    parent = '--name=parent --phases=(("clm",80),("mlm",160)) --lr=1e-2 --save_at=(12,72) --save_every=0'
    for line in (PREPARE, RUN + parent):
        run(line, 0, old, shared, old)


def run_case(name, old, new):
    """Whether a case is equal, after it ran in both programs at once; prints a line."""
    began = time.monotonic()
    folders = [old.parent / name / side for side in ('old', 'new')]

    def run_all(program, folder):
        folder.mkdir(parents=True)
        for number, line in enumerate((CASES | SLOW)[name]):
            run(line, number, program, folder, old)
    try:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(run_all, (old, new), folders))
        result = compare(*folders)
    except RuntimeError as error:
        result = str(error)
    print(f'{name:<24} {time.monotonic() - began:4.0f} s  {result}', flush=True)
    return result.startswith('equal')


def main():
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument('cases', nargs='*', metavar='case', help=', '.join(CASES | SLOW))
    parser.add_argument('--old', default='7605c98', help='a revision of this repository')
    parser.add_argument('--new', default=ROOT, type=Path, help='the folder of the program compared with it')
    parser.add_argument('--slow', action='store_true', help=f'also {", ".join(SLOW)}')
    args = parser.parse_args()
    names = args.cases or [*CASES, *(SLOW if args.slow else ())]
    if unknown := set(names) - set(CASES | SLOW):
        parser.error(f'no case is called {", ".join(unknown)}; there are {", ".join(CASES | SLOW)}')
    folder, equal = Path(tempfile.mkdtemp(prefix='against-')), [False]
    old, worktree = folder / 'program', ['git', '-C', ROOT, 'worktree']
    try:
        subprocess.run([*worktree, 'add', '--quiet', '--detach', old, args.old], check=True)
        set_up(old)
        equal = [run_case(name, old, args.new.resolve()) for name in names]
    finally:
        subprocess.run([*worktree, 'remove', '--force', old])
        if all(equal):
            shutil.rmtree(folder)
        else:
            print(f'what was written is in {folder}')
    sys.exit(0 if all(equal) else 1)


if __name__ == '__main__':
    main()

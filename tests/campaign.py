"""Attack the whole program at random and count what it survives; docs/reliability.md has the table.

    python tests/campaign.py                             # everything, 30 minutes
    python tests/campaign.py kills damage.resume         # a group, a case; a wrong name lists them all
    python tests/campaign.py damage.resume --trial=17    # one trial again, as its report says
    python tests/campaign.py --short                     # a few trials of each case: about a minute

A trial copies a state (a corpus, a half-finished run, ...), disturbs it, starts the program and judges.
To survive means:

    kills        after kill -9, again and again, the same command ends with what an undisturbed one wrote:
                 the same bits, clocks aside, and no other file
    damage       one line that names the damaged file and exit code 2 (evaluate.py: a warning and 1), or the
                 very same result. Training may read a damaged shard (.npy) if --verify then names it.
    disk         where the disk is full, one line that says so and names a file; no temporary file holds
                 space; and with more space the same command ends as if undisturbed
    concurrency  of several starts none ends with 0 while results are missing, and in the end everything is
                 as if undisturbed
    hostile      odd values in files and settings give exit code 0, or one line of 400 characters at most

A traceback is a failure everywhere, and so is a command that takes longer than 60 seconds.
"""
import argparse
import collections
import contextlib
import copy
import itertools
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from starts import (BRANCH, FILL, GRID, JOBS, LOSSES, PATIENCE, PREPARE, RESULTS, RUN, SCRIPTS, TABLE, TASK,
                    VERIFY, WEIGHTS, Failed, Start, States, blames, contents, same, shortened, tidy)

from nanoencoder import prepare
from nanoencoder.settings import leaves

# -------------------------------------------------------------------------------- kills, disk, concurrency

class Trial(NamedTuple):
    """One attack: an empty folder for it, random numbers, the undisturbed states, what was done so far."""
    folder: Path
    draw: random.Random
    states: States
    notes: list

    def start(self, line, **limits):
        words = line.split() if isinstance(line, str) else line
        self.notes.append(' '.join(shortened(word, 80) for word in words) + (f'  {limits}' if limits else ''))
        return Start(self.folder, words, **limits)

    def wait(self, seconds):
        self.notes.append(f'{(seconds := self.draw.uniform(0, seconds)):.3f} s later')
        time.sleep(seconds)

    def finish(self, job):
        """The job's command once more, undisturbed, ends as it always does."""
        done = tidy(self.start(JOBS[job][1]).end())
        if done.code:
            raise Failed(f'the last start has exit code {done.code}: {shortened(done.err[-300:])}')
        if job == 'table' and done.out != self.states.done(job).out:
            raise Failed(f'the table differs: {done.out}')
        same(contents(self.states.path(job)), contents(self.folder))


def killed(trial, job):
    """kill -9 one to three times, at a random moment or a random operation on files; then start again."""
    (after, line), usual = JOBS[job], trial.states.done(job)
    trial.states.copy(after, trial.folder)
    for _ in range(trial.draw.randint(1, 3)):
        if trial.draw.random() < 0.5:
            trial.start(line, kill_at=trial.draw.randint(1, usual.operations)).end()
        else:
            process = trial.start(line)
            trial.wait(1.1 * usual.seconds)
            process.kill()
            process.end()
    trial.finish(job)


def killed_in_a_save(trial, job):
    """kill -9 while a checkpoint is written behind another, or an old one removed; then start again."""
    (after, line), run = JOBS[job], trial.folder / 'out/run'
    trial.states.copy(after, trial.folder)
    while not (any(run.glob('.*.tmp')) and any(run.glob('[0-9]*'))):
        shutil.rmtree(trial.folder / 'out', ignore_errors=True)
        trial.start(line, kill_at=trial.draw.randint(1, trial.states.done(job).operations)).end()
    trial.finish(job)


def blocks(folder):
    """Blocks of 4,096 bytes that the files of a folder fill."""
    return sum(-(-path.stat().st_size // 4096) for path in folder.rglob('*') if path.is_file())


@contextlib.contextmanager
def small_disk(folder):
    """A function that sets the size in bytes of a disk there; None where mounting is not permitted."""
    def mount(size, *more):
        options = ','.join((f'size={size}', *more))
        return subprocess.run(['mount', '-t', 'tmpfs', '-o', options, 'tmpfs', folder], capture_output=True)
    mounted = not mount(2 ** 30).returncode
    try:
        yield (lambda size: mount(size, 'remount')) if mounted else None
    except Failed:  # what lies there would go with the disk
        shutil.copytree(folder, folder.with_name('kept'), dirs_exist_ok=True)
        raise
    finally:
        if mounted:
            subprocess.run(['umount', '--lazy', folder], check=True)


def full_disk(trial, job):
    """Less space than is needed: on a small tmpfs, or else no file beyond some size."""
    (after, line), states, limits = JOBS[job], trial.states, {}
    with small_disk(trial.folder) as resize:
        trial.states.copy(after, trial.folder)
        if resize:
            needed = blocks(states.path(job)) - blocks(states.path(after))
            more = trial.draw.randint(1, max(2, needed * 11 // 10))
            trial.notes.append(f'a disk with {more} free blocks of 4,096 bytes')
            resize(4096 * (blocks(trial.folder) + more))
        else:
            largest = max(path.stat().st_size for path in states.path(job).rglob('*'))
            limits = {'largest_file': trial.draw.randint(1, largest)}
        done = tidy(trial.start(line, **limits).end())
        said = ' '.join(done.said)
        named = re.search('No space left|too large', said) and re.search(r'\w/[\w.]|_sd\d', said)
        if done.code and not named:
            raise Failed(f'the full disk or the file is not named: {shortened(said)}')
        if left := [path for path in trial.folder.rglob('.*.tmp') if path.is_dir() or path.stat().st_size]:
            raise Failed(f'left over: {left[0].name}')
        if resize:
            resize(2 ** 30)
        trial.finish(job)


def two_starts(trial, job):
    """The same command twice, the second a little later; who ends with 0 has all results there."""
    trial.states.copy(JOBS[job][0], trial.folder)
    wanted, waiting = contents(trial.states.path(job)).keys(), [trial.start(JOBS[job][1])]
    trial.wait(1.1 * trial.states.done(job).seconds)
    waiting.append(trial.start(JOBS[job][1]))
    while waiting:
        late = time.monotonic() - waiting[0].began > PATIENCE
        for process in [process for process in waiting if late or not process.running()]:
            missing = sorted(wanted - contents(trial.folder).keys())
            done = tidy(process.end())
            waiting.remove(process)
            if done.code == 0 and missing:
                raise Failed(f'exit code 0 without {missing[0]}')
            if done.code and 'another process' not in done.err:
                raise Failed(f'exit code {done.code}: {shortened(done.err[-200:])}')
        time.sleep(0.001)
    trial.finish(job)


def read_meanwhile(trial, job):
    """Others read what a job writes: predictions of a grid, checkpoints that a run prunes at every step."""
    trial.states.copy(JOBS[job][0], trial.folder)
    writer, turns = trial.start(JOBS[job][1]), itertools.count()
    branch = BRANCH.replace('run/8', 'run') + ' --save_every=1'
    line = TABLE if job == 'grid' else trial.draw.choice((FILL, GRID, LOSSES, branch))
    while writer.running():
        trial.wait(0.1)
        tidy(trial.start(line.replace('=branch', f'=branch{next(turns)}')).end())
    if (done := tidy(writer.end())).code:
        raise Failed(f'the writer has exit code {done.code}: {shortened(done.out + done.err)}')
    if job == 'grid':
        return trial.finish('table')
    same(*(contents(folder / 'out/run') for folder in (trial.states.path(job), trial.folder)))


# --------------------------------------------------------------------------------------------------- damage

DAMAGE = {  # {case: (state, whether half of it, which files, job)}
    'resume': ('pretrain', True, 'out/run/[48]/*', 'pretrain'),
    'log': ('pretrain', True, 'out/run/*.json*', 'pretrain'),
    'branch': ('pretrain', False, 'out/run/8/*', 'branch'),
    'weights': ('pretrain', False, 'out/run/12/*', 'weights'),
    'finetune': ('pretrain', False, 'out/run/12/*', 'grid'),
    'fill_mask': ('pretrain', False, 'out/run/12/*', 'fill'),
    'losses': ('pretrain', False, 'out/run/*.json*', 'losses'),
    'verify': ('prepare', False, 'corpus/*', 'verify'),
    'train': ('prepare', False, 'corpus/*', 'pretrain'),
    'table': ('table', False, 'predictions/*/*/*/*/*', 'table'),
    'grid': ('grid', True, 'predictions/*/*/*/*/*', 'grid')}


def damaged(trial, case):
    """Flip a bit of a file, cut it, empty it or remove it; then have it read."""
    state, half, files, job = DAMAGE[case]
    trial.states.copy(state, trial.folder, half)
    path = trial.draw.choice([path for path in sorted(trial.folder.glob(files)) if path.stat().st_size])
    how = damage(path, trial)
    what, done = f'{how} {path.name}', tidy(trial.start(JOBS[job][1]).end())
    if done.code:
        if not blames(done.err, path, trial.folder):
            raise Failed(f'{what}: is not named: {shortened(done.err[-200:])}')
        if done.code == 1 and job != 'table':
            raise Failed(f'{what}: exit code 1')
        return
    try:
        unharmed(trial, job, path, how, done)
    except Failed as error:
        verified = case == 'train' and path.suffix == '.npy' and trial.start(VERIFY).end()
        if not (verified and verified.code == 2 and blames(verified.err, path, trial.folder)):
            raise Failed(f'{what}: exit code 0, {error}') from None


UNGUARDED = 'out/run/log.jsonl', 'out/run/config.json'  # a changed digit there is read as it is


def damage(path, trial):
    """Do it; in words, how."""
    how, content = trial.draw.choice(('flip', 'flip', 'cut', 'empty', 'remove')), path.read_bytes()
    at = trial.draw.randrange(8 * len(content))
    if how == 'remove':
        path.unlink()
    elif how == 'flip':
        number = int.from_bytes(content, 'little') ^ 1 << at
        path.write_bytes(number.to_bytes(len(content), 'little'))
    else:
        path.write_bytes(content[:at // 8] if how == 'cut' else b'')
    trial.notes.append(f'{how} {path.relative_to(trial.folder)}, bit {at} of {8 * len(content)}')
    return how


def unharmed(trial, job, path, how, done):
    """Failed unless a job that read a damaged file wrote and said what it always does."""
    if job in ('fill', 'losses', 'table', 'verify') and done.out != trial.states.done(job).out:
        if path.relative_to(trial.folder).as_posix() not in UNGUARDED:
            raise Failed('another output')
    found, ignore = contents(trial.folder), {str(path.relative_to(trial.folder))}
    if job == 'table':  # scores are made anew: those of another run.json, and those that are damaged
        ignore |= {str(path.relative_to(trial.folder).with_name('scores.json'))}
        ignore -= {str(path.relative_to(trial.folder))} if path.name == 'scores.json' else set()
    if (how, path.name) == ('remove', 'state.json'):  # then the folder may be anybody's
        ignore |= {name for name in found if name.endswith(('run.json', 'state.json'))}
    same(contents(trial.states.path(job)), found, ignore)
    if job == 'pretrain' and path.name == 'log.jsonl' and 'log.jsonl' not in done.out + done.err:
        if re.findall(r'"step": (\d+)', path.read_text()) != [str(step) for step in range(1, 13)]:
            raise Failed('lines of the log are lost, and nothing is said')


# -------------------------------------------------------------------------------------------------- hostile

NESTED = '@nested@'
VALUES = (None, [], {}, True, -1, 0, 1.5, 10 ** 400, 10 ** 12, 'x' * 1_000, '', '../x', float('nan'), NESTED)
LITERALS = ('', ' ', '-1', '0', '1', '2.5', 'nan', 'inf', '1e308', '1e-320', '1e999', str(10 ** 12),
            str(10 ** 400), str(-10 ** 400), 'True', 'None', '()', '[]', '{}', '(1,)', '("a",)', '((),)',
            '(("clm",-1),)', 'x' * 1_000, 'a/b', '..', '.', 'a\nb', 'é\u202e', '(' * 10_000, '"', '{', '{0}')
FILES = {  # {case: (state, whether half of it, which files, commands that read them)}
    'state': ('pretrain', True, 'out/run/8/state.json',
              (RUN, BRANCH, WEIGHTS + ' --weights_from=out/run/8', GRID, FILL, LOSSES)),
    'model_config': ('pretrain', False, 'out/run/12/config.json', (WEIGHTS, GRID, FILL)),
    'run_config': ('pretrain', True, 'out/run/config.json', (RUN, LOSSES)),
    'log': ('pretrain', True, 'out/run/log.jsonl', (RUN, LOSSES)),
    'meta': ('prepare', False, 'corpus/meta.json', (RUN, VERIFY, PREPARE)),
    'progress': ('half_prepared', False, 'corpus/.part_000_of_001.json', (PREPARE,)),
    'tokenizer': ('pretrain', False, 'out/run/12/tokenizer*.json',
                  (FILL, GRID, PREPARE + ' --out=again --tokenizer=out/run/12')),
    'run': ('table', False, 'predictions/*/*/*/*/run.json', (TABLE, GRID, 'evaluate.py export new')),
    'scores': ('table', False, 'predictions/*/*/*/*/scores.json', (TABLE, 'evaluate.py export new')),
    'results': ('export', False, 'theirs/*/*/*/*/results.json', (RESULTS,))}
SETTINGS = {  # {case: (state, command, the module that has its Settings)}
    'pretrain': ('pretrain', RUN + '--name=new --phases=("clm",2) --save_every=0', SCRIPTS['pretrain']),
    'finetune': ('pretrain', TASK + '--steps=2 --predictions=new', SCRIPTS['finetune']),
    'prepare': ('tokenizer', PREPARE, prepare),
    'evaluate': ('table', TABLE, SCRIPTS['evaluate'])}
SKIPPED = ('compile', 'repeat')  # takes a minute; a large one is a long run and no mistake


def hostile_file(trial, case):
    """One value of a JSON file is missing, or is what no program would write."""
    state, half, files, commands = FILES[case]
    trial.states.copy(state, trial.folder, half)
    path = trial.draw.choice(sorted(trial.folder.glob(files)))
    if case in ('model_config', 'tokenizer'):
        (path.parent / 'state.json').unlink()  # whose sha256 refuses the file unread
    lines = path.read_text().splitlines() if path.suffix == '.jsonl' else [path.read_text()]
    number = trial.draw.randrange(len(lines))
    content = json.loads(lines[number])
    content.pop('digest', None)  # as an older program wrote it: else it is refused unread, too
    trial.notes.append(f'{path.relative_to(trial.folder)}: {mutate(content, trial.draw)}')
    lines[number] = json.dumps(content).replace(f'"{NESTED}"', '[' * 10_000 + ']' * 10_000)
    path.write_text('\n'.join(lines) + '\n')
    tidy(trial.start(trial.draw.choice(commands)).end())


def mutate(content, draw):
    """Change one value anywhere in an object; in words, which and how."""
    places, waiting = [], [((), content)]
    while waiting:
        where, value = waiting.pop()
        for key in value if isinstance(value, dict) else range(len(value[:3])):
            places.append((*where, key))
            if isinstance(value[key], (dict, list)):
                waiting.append((places[-1], value[key]))
    depth = draw.randint(1, max(map(len, places)))  # most places lie deep
    where = draw.choice([place for place in places if len(place) <= depth])
    for key in where[:-1]:
        content = content[key]
    if draw.random() < 0.15:
        del content[where[-1]]
        return f'{list(where)} is removed'
    content[where[-1]] = value = copy.deepcopy(draw.choice(VALUES))
    return f'{list(where)} = {shortened(repr(value), 60)}'


def hostile_setting(trial, case):
    """One setting or action with an odd value, on the command line or in a config."""
    state, line, module = SETTINGS[case]
    trial.states.copy(state, trial.folder)
    own, words, value = leaves(module.Settings), line.split(), trial.draw.choice(LITERALS)
    names = [name for name in (*own, *getattr(module, 'ACTIONS', ())) if name not in SKIPPED]
    name = trial.draw.choice(names)
    if name in own and trial.draw.random() < 0.3:
        words = [word for word in words if word.split('=')[0] != f'--{name}']
        words.insert(1 + (case == 'evaluate'), 'odd.py')
        text = f'{name} = {trial.draw.choice((value, repr(value)))}\n'
        (trial.folder / 'odd.py').write_text(text)
        trial.notes.append(f'odd.py: {shortened(text.strip())}')
    else:
        words.append(f'--{name}={value}')
    if case == 'pretrain' and trial.draw.random() < 0.3:
        words.append('--dry_run')
    tidy(trial.start(words).end())


# ----------------------------------------------------------------------------------------------------- main

CASES = {
    'kills': dict.fromkeys('prepare parts pretrain pruned branch two grid table export'.split(), killed)
             | {'sharded': killed_in_a_save},
    'damage': dict.fromkeys(DAMAGE, damaged),
    'disk': dict.fromkeys('prepare pretrain pruned grid table'.split(), full_disk),
    'concurrency': dict.fromkeys('prepare pretrain pruned grid table export'.split(), two_starts),
    'reading': dict.fromkeys(('grid', 'pruned'), read_meanwhile),
    'hostile_files': dict.fromkeys(FILES, hostile_file),
    'hostile_settings': dict.fromkeys(SETTINGS, hostile_setting)}


class Case:
    """A case, and what became of its trials."""

    def __init__(self, group, name):
        self.group, self.name, self.full = group, name, f'{group}.{name}'
        self.tried, self.survived, self.seconds, self.failures = 0, 0, 0.0, collections.Counter()

    def attempt(self, number, folder, states, seed):
        """Trial `number`, for a seed always the same. Its folder stays if it does not survive."""
        began, place = time.monotonic(), folder / f'{self.full}.{number}'
        trial = Trial(place / 'in/run', random.Random(f'{seed} {self.full} {number}'), states, [])
        trial.folder.mkdir(parents=True)
        self.tried += 1
        try:
            CASES[self.group][self.name](trial, self.name)
            self.survived += 1
            shutil.rmtree(place)
        except Failed as error:
            self.failures[re.sub(r'\d+|[0-9a-f]{8,}|\s+', ' ', str(error))[:140]] += 1
            print(f'\n{self.full}: {error}', *trial.notes, f'again: python tests/campaign.py {self.full} '
                  f'--trial={number} --seed={seed}', place, sep='\n  ', flush=True)
        self.seconds += time.monotonic() - began


def attack(cases, states, folder, args):
    """One trial, or a fixed number of each case; else until the time is over, with equal shares of it."""
    if args.trial is not None or args.short:
        for case in cases:
            for number in range(2) if args.trial is None else [args.trial]:
                case.attempt(number, folder, states, args.seed)
        return
    began = told = time.monotonic()
    while (left := 60 * args.minutes - time.monotonic() + began) > 0:
        case = min(cases, key=lambda case: case.seconds)
        case.attempt(case.tried, folder, states, args.seed)
        if time.monotonic() - told > 20:
            told, tried = time.monotonic(), sum(case.tried for case in cases)
            print(f'{tried:,} tried, {sum(case.survived for case in cases):,} survived, '
                  f'{left / 60:.0f} min left', file=sys.stderr)


def print_table(cases, markdown):
    """A row a case; in markdown a row a group, with its cases in words."""
    rows = [('group', 'case', 'tried', 'survived')]
    if markdown:
        rows = [('group', 'tried', 'survived', 'cases'), ('---', '--:', '--:', '---')]
    for group in dict.fromkeys(case.group for case in cases):
        own = [case for case in cases if case.group == group]
        sums = f'{sum(case.tried for case in own):,}', f'{sum(case.survived for case in own):,}'
        if markdown:
            words = (f'{case.name} {case.survived}/{case.tried}' for case in own)
            rows.append((group, *sums, ', '.join(words)))
        else:
            rows += [(group, case.name, case.tried, case.survived) for case in own] + [(group, 'all', *sums)]
    for row in rows:
        print(f'| {" | ".join(row)} |' if markdown else '{:<18}{:<14}{:>8}{:>10}'.format(*row))
    for case in cases:
        for kind, count in case.failures.most_common():
            print(f'{count:>5} x {case.full}: {kind}')


def main():
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument('cases', nargs='*', metavar='case', help='a group, or group.case; none: all')
    parser.add_argument('--minutes', type=float, default=30)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--trial', type=int, help='this one alone')
    parser.add_argument('--short', action='store_true', help='two trials of each case')
    parser.add_argument('--markdown', action='store_true', help='the table as in docs/reliability.md')
    args = parser.parse_args()
    every = [Case(group, name) for group in CASES for name in CASES[group]]
    cases = [case for case in every if not args.cases or {case.group, case.full} & set(args.cases)]
    if unknown := set(args.cases) - {case.group for case in every} - {case.full for case in every}:
        parser.error(f'no case is called {", ".join(unknown)}; there are '
                     + ', '.join(case.full for case in every))
    folder, began = Path(tempfile.mkdtemp(prefix='campaign-')), time.monotonic()
    print(f'seed {args.seed}, in {folder}', flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        attack(cases, States(folder / 'states'), folder, args)
    print_table(cases, args.markdown)
    print(f'{(time.monotonic() - began) / 60:.1f} minutes, seed {args.seed}')
    if failed := sum(case.tried - case.survived for case in cases):
        sys.exit(f'{failed:,} trials did not survive; their folders are in {folder}')
    shutil.rmtree(folder)


if __name__ == '__main__':
    main()

"""What is missing of a study, as processes to start."""
import datetime
import itertools
import shlex
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from nanoencoder.durable import read_csv, read_json, write_json
from nanoencoder.protocols import run_name
from nanoencoder.settings import nearest, read, read_options


class Job(NamedTuple):
    """A process."""
    name: str
    kind: str      # pretraining, corpus, or the dataset of a fine-tuning
    size: int      # steps, or fine-tunings
    command: list  # a script and its arguments
    needs: list    # paths that must be there before it starts
    makes: list    # and those that it leaves
    row: str = ''  # that it belongs to


def chosen(study, actions):
    """{seed: names of rows} that the actions ask for; `untrained` belongs to the first seed."""
    names = [*study.rows]
    row = names[int(actions.row) - 1] if actions.row in map(str, range(1, len(names) + 1)) else actions.row
    if row and row not in names:
        raise ValueError(f'--row: no row {row!r}, nor number of 1 to {len(names)}{nearest(row, names)}')
    if actions.seed != -1 and actions.seed not in study.seeds:
        raise ValueError(f'--seed: the study has {", ".join(map(str, study.seeds))}, not {actions.seed}')
    if not -1 <= actions.part < actions.parts or actions.parts > 1 and actions.part < 0:
        raise ValueError(f'--part counts from 0 to {actions.parts - 1} for --parts={actions.parts}')
    pairs = [(seed, name) for seed in study.seeds
             for name in names + ['untrained'] * (seed == study.seeds[0])
             if row in ('', name) and actions.seed in (-1, seed)][max(0, actions.part)::actions.parts]
    return {seed: [name for own, name in pairs if own == seed] for seed in dict(pairs)}


class Done:
    """What the tables of a study say, and what lies in its folders."""

    def __init__(self, study):
        self.study, self.runs, folder = study, Path(study.folder, 'runs'), Path(study.folder)
        self.scored = {(row['folder'], row['dataset'], run_name(float(row['lr']), int(row['seed'])))
                       for row in read_csv(folder / 'scores.csv', ('folder', 'dataset', 'lr', 'seed'))}
        self.logged = Counter()    # the last step of each pretraining
        for row in read_csv(folder / 'losses.csv', ('folder', 'step')):
            self.logged[row['folder']] = max(self.logged[row['folder']], int(row['step']))

    def run(self, name, seed):
        return Path(self.study.out, f'{name}-s{seed}')

    def checkpoint(self, name, seed, step=0):
        return self.run(name, seed) / str(step or self.study.rows[name].steps)

    def begun(self, name, seed):
        """The newest checkpoint's step, 0 if there is none."""
        return max((int(path.name) for path in self.run(name, seed).glob('[0-9]*')), default=0)

    def step(self, name, seed):
        """How far a run has come, whether it is still there or only in a table."""
        return max(self.begun(name, seed), self.logged[f'{name}-s{seed}'])

    def predictions(self, kind, dataset, model, run):
        """(its folder, whether it is done, whether it is packed)."""
        folder, packed = self.runs / model / kind / dataset / run, (model, dataset, run) in self.scored
        return folder, packed or (folder / 'run.json').exists(), packed


def check_commands(study, remember):
    """Refuse a row, or a task for it, that was begun with other arguments; commands.json remembers them.

    Learning rates may be added, and a branch gives the same numbers as the whole run.
    """
    path, now = Path(study.folder, 'commands.json'), {'the corpus': shlex.split(study.corpus)}
    for name, row in study.rows.items():
        now[name] = without(row.words, 'save_at', 'branch_from')
    for line in study.finetunings:
        now |= {f'{model}{line.variant} {line.datasets[0]}': line.words for model in line.models}
    for config in dict.fromkeys(word for words in now.values() for word in words[:1] if word[:1] != '-'):
        now[config] = [f'--{name}={value}' for name, (value, _) in read(config).items()]
    before = read_json(path) if path.exists() else {}
    for name, words in now.items():
        if before.get(name, words) != words:
            old, new = (' '.join(word for word in own if word not in other)
                        for own, other in ((before[name], words), (words, before[name])))
            raise ValueError(f'{path}: {name} was begun with {old or "less"}, and is now with '
                             f'{new or "less"}: give it another name, or take it out there')
    if remember and before | now != before:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, before | now)


def plan(study, actions):
    """({seed: jobs that are missing}, whether results are there that are not packed yet)."""
    blocks, names, unpacked, done = {}, set(), False, Done(study)
    for seed, own in chosen(study, actions).items():
        jobs, more = block(study, done, seed, own)
        blocks[seed] = [job for job in jobs if job.name not in names]  # the corpus is prepared once
        names |= {job.name for job in jobs}
        unpacked |= more
    return blocks, unpacked


def block(study, done, seed, names):
    """The same of a pretraining seed: (jobs, whether ...)."""
    tuned, unpacked, needed = finetunings(study, done, seed, names)
    wanted = {name for name in names if name in study.rows
              and done.step(name, seed) < study.rows[name].steps} | needed
    for row in reversed(study.rows.values()):    # branches stand behind their parents
        if row.name in wanted and row.parent and not done.begun(row.name, seed):
            absent = not done.checkpoint(row.parent, seed, row.parent_step).exists()
            if absent and (row.begins == 'weights_from' or done.step(row.parent, seed) < row.parent_step):
                wanted.add(row.parent)
    jobs = [pretraining(study, done, row, seed, wanted) for row in study.rows.values() if row.name in wanted]
    unpacked |= any(done.logged[f'{name}-s{seed}'] < done.begun(name, seed) for name in names
                    if name in study.rows)
    corpus = corpus_folder(study)
    if jobs and corpus and not (corpus / 'meta.json').exists():
        jobs.insert(0, Job('corpus', 'corpus', 1, ['data.py', *shlex.split(study.corpus)], [],
                           [corpus / 'meta.json']))
    place = {name: k for k, name in enumerate(study.rows)}    # a row is fine-tuned before the next begins
    return sorted(jobs + tuned, key=lambda job: place.get(job.row, -1)), unpacked


def corpus_folder(study):
    """The folder that its config of data.py writes."""
    if not study.corpus:
        return None
    path, *words = shlex.split(study.corpus)
    values = read(path) | read_options(words, {})
    return Path(values['out'][0] if 'out' in values else 'corpora/docs')


def pretraining(study, done, row, seed, wanted):
    """A branch whose parent's checkpoint is gone starts from scratch: the numbers are the same."""
    parent = done.checkpoint(row.parent, seed, row.parent_step) if row.parent else None
    options = {'name': f'{row.name}-s{seed}', 'row': row.name, 'seed': seed, 'out': study.out,
               'save_at': study.save_at(row.name), 'branch_from': '', 'weights_from': row.weights}
    needs = []
    begun, comes = done.begun(row.name, seed), row.parent in wanted and (
        done.begun(row.parent, seed) < row.parent_step)
    if parent and (row.begins == 'weights_from' or not begun and (parent.exists() or comes)):
        options[row.begins] = parent
        needs = [] if begun else [parent]
    if corpus := corpus_folder(study):
        needs.append(corpus / 'meta.json')
        options = {'corpus': corpus} | options
    command = ['pretrain.py', *with_options(row.words, **options)]
    steps = row.steps - (begun or (row.parent_step if options['branch_from'] else 0))
    return Job(options['name'], 'pretraining', steps, command, needs, [done.checkpoint(row.name, seed)],
               row.name)


def with_options(words, **options):
    """Arguments of a script with some of its settings replaced or added."""
    return without(words, *options) + [f'--{name}={value}' for name, value in options.items()]


def without(words, *names):
    return [word for word in words if word.split('=')[0].removeprefix('--') not in names]


def finetunings(study, done, seed, names):
    """(jobs, whether there are results that are not packed, rows whose checkpoints they lack)."""
    jobs, unpacked, needed = [], False, set()
    seeds, first = tuple(10 * seed + k for k in range(study.finetuning_seeds)), next(iter(study.rows), '')
    for line in study.finetunings:
        for model in line.models:
            row, step = study.check_model(model)
            if (row or 'untrained') not in names:
                continue
            checkpoint = done.checkpoint(row or first, seed, step)
            folder = f'{row}-s{seed}' + f'-{step}' * (step != study.rows[row].steps) if row else 'untrained'
            runs = {run: done.predictions(line.kind, run[0], folder + line.variant, run_name(*run[1:]))
                    for run in itertools.product(line.datasets, line.lrs, seeds)}
            unpacked |= any(there and not packed for _, there, packed in runs.values())
            missing = {run: path for run, (path, there, _) in runs.items() if not there}
            if missing:
                lrs, own = (tuple(value for value in every if value in {run[k] for run in missing})
                            for k, every in ((1, line.lrs), (2, seeds)))
                if not checkpoint.exists():
                    needed.add(row or first)
                command = ['finetune.py', *line.words, f'--model={checkpoint}', '--grid', f'--lrs={lrs}',
                           f'--seeds={own}', f'--predictions={done.runs}', *['--untrained'] * (not row)]
                jobs.append(Job(f'{folder}{line.variant} {line.datasets[0]}', line.datasets[0], len(missing),
                                command, [checkpoint], [*missing.values()], row))
    return jobs + baselines(study, done) * ('untrained' in names), unpacked, needed


def baselines(study, done):
    """A job for each task whose simple method has not been scored yet."""
    jobs, name = {}, run_name(0.0, 0)
    for line in study.finetunings:
        dataset, folder = line.datasets[0], f'*/{line.kind}/{line.datasets[0]}/{name}'
        if not line.variant and not any(done.runs.glob(folder)) and not any(
                (own, run) == (dataset, name) for _, own, run in done.scored):
            command = ['finetune.py', *line.words, '--baseline', f'--predictions={done.runs}']
            jobs.setdefault(dataset, Job(f'baseline {dataset}', 'baseline', 1, command, [], []))
    return [*jobs.values()]


class Progress:
    """What was done, in seconds by kind, and how long the rest will take."""

    def __init__(self, jobs, processes):
        self.left, self.processes = Counter(), processes
        for job in jobs:
            self.left[job.kind] += job.size
        self.count, self.total, self.seconds, self.sizes = 0, len(jobs), Counter(), Counter()

    def end(self, job, seconds, words, good=True):
        """Print what a job said, and the time left once a job of each kind is done."""
        self.count += 1
        self.left[job.kind] -= job.size
        if good:
            self.seconds[job.kind] += seconds
            self.sizes[job.kind] += job.size
        left = ''
        waiting = [(kind, size) for kind, size in self.left.items() if size]
        if all(self.sizes[kind] for kind, _ in waiting):
            rest = sum(self.seconds[kind] / self.sizes[kind] * size for kind, size in waiting)
            left = f', {clock(rest / self.processes)} left'
        print(f'[{self.count}/{self.total}] {job.name}: {words}; {clock(seconds)}{left}', flush=True)


def clock(seconds):
    return str(datetime.timedelta(seconds=round(seconds)))

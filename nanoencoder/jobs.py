"""What is missing of a study, as processes to start."""
import datetime
import shlex
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from nanoencoder.durable import read_csv, read_json, write_json
from nanoencoder.judging.protocols import run_name
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
    """{seed: names of rows} that the actions ask for; `untrained` belongs to the least seed."""
    names = [*study.rows]
    row = names[int(actions.row) - 1] if actions.row in map(str, range(1, len(names) + 1)) else actions.row
    if row and row not in names:
        raise ValueError(f'--row: no row {row!r}, nor number of 1 to {len(names)}{nearest(row, names)}')
    if actions.seed != -1 and actions.seed not in study.seeds:
        raise ValueError(f'--seed: the study has {", ".join(map(str, study.seeds))}, not {actions.seed}')
    if not -1 <= actions.part < actions.parts or actions.parts > 1 and actions.part < 0:
        raise ValueError(f'--part counts from 0 to {actions.parts - 1} for --parts={actions.parts}')
    pairs = [(seed, name) for seed in study.seeds
             for name in names + ['untrained'] * (seed == min(study.seeds))
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

    def tuned(self, path):
        """Whether a fine-tuning is done: its folder is there, or its line of scores.csv."""
        return (path / 'run.json').exists() or (path.parts[-4], path.parts[-2], path.name) in self.scored


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
        if sorted(before.get(name, words)) != sorted(words):
            gone = ' '.join(word for word in before[name] if word not in words)
            added = ' '.join(word for word in words if word not in before[name])
            raise ValueError(f'{path}: {name} was begun with {gone or "less"}, and is now with '
                             f'{added or "less"}: give it another name, or take it out there')
    if remember and before | now != before:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, before | now)


def plan(study, actions):
    """{seed: jobs that are missing}."""
    done = Done(study)
    blocks = {seed: block(study, done, seed, names) for seed, names in chosen(study, actions).items()}
    meta = corpus_meta(study)
    training = [jobs for jobs in blocks.values() if any(job.kind == 'pretraining' for job in jobs)]
    if meta and training and not meta.exists():     # it is prepared once
        training[0].insert(0, Job('corpus', 'corpus', 1, ['data.py', *shlex.split(study.corpus)], [], [meta]))
    return blocks


def block(study, done, seed, names):
    """The jobs of a pretraining seed; a row is fine-tuned before the next begins."""
    tuned = finetunings(study, done, seed, names) + baselines(study, done) * ('untrained' in names)
    wanted = rows_to_train(study, done, seed, names, tuned)
    jobs = [pretraining(study, done, row, seed, wanted) for row in study.rows.values() if row.name in wanted]
    place = {name: k for k, name in enumerate(study.rows)}
    return sorted(jobs + tuned, key=lambda job: place.get(job.row, -1))


def rows_to_train(study, done, seed, names, tuned):
    """Rows that are not at their end, or whose checkpoints a job needs; and parents that these begin with.

    Not the parent of a branch that was there and is gone: the branch starts from scratch.
    """
    lacking = {path.parent for job in tuned for path in job.needs if not path.exists()}
    wanted = set()
    for row in reversed(study.rows.values()):    # branches stand after their parents
        unfinished = row.name in names and done.step(row.name, seed) < row.steps
        if not (unfinished or row.name in wanted or done.run(row.name, seed) in lacking):
            continue
        wanted.add(row.name)
        if row.parent and not done.begun(row.name, seed):
            is_there = done.checkpoint(row.parent, seed, row.parent_step).exists()
            was_there = done.step(row.parent, seed) >= row.parent_step
            if not is_there and (row.begins == 'weights_from' or not was_there):
                wanted.add(row.parent)
    return wanted


def corpus_meta(study):
    """meta.json of the corpus that its config of data.py writes; None without one."""
    if not study.corpus:
        return None
    path, *words = shlex.split(study.corpus)
    values = read(path) | read_options(words, {})
    return Path(values['out'][0] if 'out' in values else 'corpora/docs', 'meta.json')


def pretraining(study, done, row, seed, wanted):
    """A branch whose parent's checkpoint is gone starts from scratch: the numbers are the same."""
    begun, origin, needs = done.begun(row.name, seed), {'branch_from': '', 'weights_from': row.weights}, []
    if row.parent:
        parent = done.checkpoint(row.parent, seed, row.parent_step)
        planned = row.parent in wanted and done.begun(row.parent, seed) < row.parent_step
        if row.begins == 'weights_from' or not begun and (parent.exists() or planned):
            origin[row.begins] = parent
            needs = [] if begun else [parent]
    options = {'name': f'{row.name}-s{seed}', 'row': row.name, 'seed': seed, 'out': study.out,
               'save_at': study.save_at(row.name)} | origin
    if meta := corpus_meta(study):
        needs.append(meta)
        options = {'corpus': meta.parent} | options
    steps = row.steps - (begun or (row.parent_step if origin['branch_from'] else 0))
    return Job(options['name'], 'pretraining', steps, ['pretrain.py', *with_options(row.words, **options)],
               needs, [done.checkpoint(row.name, seed)], row.name)


def with_options(words, **options):
    """Arguments of a script with some of its settings replaced or added."""
    return without(words, *options) + [f'--{name}={value}' for name, value in options.items()]


def without(words, *names):
    return [word for word in words if word.split('=')[0].removeprefix('--') not in names]


def finetunings(study, done, seed, names):
    """A job for each model and line of tasks: the grid that holds what is missing; it skips what is done."""
    jobs, first = [], next(iter(study.rows))    # whose sizes `untrained` has
    seeds = tuple(10 * seed + k for k in range(study.finetuning_seeds))
    for line in study.finetunings:
        for model in line.models:
            row, step = study.check_model(model)
            if (row or 'untrained') not in names:
                continue
            name = f'{row}-s{seed}' + f'-{step}' * (step != study.rows[row].steps) if row else 'untrained'
            folder = done.runs / (name + line.variant) / line.kind
            missing = {path: (lr, own) for dataset in line.datasets for lr in line.lrs for own in seeds
                       if not done.tuned(path := folder / dataset / run_name(lr, own))}
            if missing:
                missing_lrs, missing_seeds = map(set, zip(*missing.values()))
                lrs = tuple(lr for lr in line.lrs if lr in missing_lrs)
                own = tuple(number for number in seeds if number in missing_seeds)
                checkpoint = done.checkpoint(row or first, seed, step)
                command = ['finetune.py', *line.words, f'--model={checkpoint}', '--grid', f'--lrs={lrs}',
                           f'--seeds={own}', f'--predictions={done.runs}', *['--untrained'] * (not row)]
                jobs.append(Job(f'{name}{line.variant} {line.datasets[0]}', line.datasets[0], len(missing),
                                command, [checkpoint], [*missing], row))
    return jobs


def baselines(study, done):
    """A job for each task whose simple method has not been scored yet."""
    run, jobs = run_name(0.0, 0), []
    scored = {dataset for _, dataset, name in done.scored if name == run}
    scored |= {path.parts[-2] for path in done.runs.glob(f'*/*/*/{run}')}
    for line in study.finetunings:
        dataset = line.datasets[0]
        if not line.variant and dataset not in scored:
            command = ['finetune.py', *line.words, '--baseline', f'--predictions={done.runs}']
            jobs.append(Job(f'baseline {dataset}', 'baseline', 1, command, [], []))
            scored.add(dataset)
    return jobs


class Progress:
    """What was done, in seconds by kind, and how long the rest will take."""

    def __init__(self, jobs, processes):
        self.processes, self.count, self.total = processes, 0, len(jobs)
        self.left, self.done, self.seconds = Counter(), Counter(), Counter()    # by kind: sizes, and seconds
        for job in jobs:
            self.left[job.kind] += job.size

    def end(self, job, seconds, words, good=True):
        """Print what a job said, and the time left once a job of each kind is done."""
        self.count += 1
        self.left[job.kind] -= job.size
        self.done[job.kind] += job.size * good
        self.seconds[job.kind] += seconds * good
        left, waiting = '', [kind for kind, size in self.left.items() if size]
        if all(self.done[kind] for kind in waiting):
            rest = sum(self.seconds[kind] / self.done[kind] * self.left[kind] for kind in waiting)
            left = f', {clock(rest / self.processes)} left'
        print(f'[{self.count}/{self.total}] {job.name}: {words}; {clock(seconds)}{left}', flush=True)


def clock(seconds):
    return str(datetime.timedelta(seconds=round(seconds)))

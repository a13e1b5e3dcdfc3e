"""How long an ablation takes, from short trials of what it will run, as many at once as it will run.

A trial of a pretraining trains TIMED steps to warm up, validates, and does both once more. A trial of a task
fine-tunes and predicts twice, at one learning rate."""
import heapq
import math
from pathlib import Path

from nanoencoder.files import remove
from nanoencoder.pretraining.log import read_log
from nanoencoder.processes import stop_signals
from studies import run
from studies.study import arguments

TIMED = 20      # steps


def short_settings(cfg):
    """Return settings of pretrain.py by which a run takes TIMED steps twice, of each objective its share."""
    once = sum(steps for _, steps in cfg.phases)
    phases = tuple((objective, max(1, round(TIMED * steps / once))) for objective, steps in cfg.phases)
    half = sum(steps for _, steps in phases)
    return {'phases': phases, 'repeat': 2, 'val_every': half, 'log_every': half, 'warmup_steps': 0.5,
            'decay_steps': 0, 'save_at': (), 'save_every': 0}


def first_of_sizes(study):
    """Return {arm: the first arm whose models have the same sizes}: these fine-tune alike."""
    by_sizes = {}
    return {row.name: by_sizes.setdefault(row.cfg.model, row.name) for row in study.rows.values()}


def trials(study, place):
    """Return the run.Jobs of all trials, which write into the folder `place`: one a row, and one a task for
    each size of models."""
    firsts = first_of_sizes(study)
    jobs = []
    for row in study.rows.values():
        short = short_settings(row.cfg)
        if study.corpus:
            short['corpus'] = study.corpus_folder
        checkpoint = place / row.name / str(2 * short['val_every'])
        words = arguments(row.settings | short, name=row.name, out=place)
        jobs.append(run.Job(row.name, ['pretrain.py', *words], makes=checkpoint))
        if firsts[row.name] != row.name:
            continue
        for task in study.finetunings:
            words = arguments(task.settings, model=checkpoint, name=row.name, grid=True, lrs=task.lrs[:1],
                              seeds=(0, 1), predictions=place / 'runs')
            jobs.append(run.Job(f'{row.name} {task.datasets[0]}', ['finetune.py', *words], needs=checkpoint))
    return jobs


def time_trials(study, actions):
    """Run the trials. Return {an arm, or an arm and a task: what was timed, in seconds}."""
    place = study.folder / 'logs/timing'
    remove(place)
    place.mkdir(parents=True)
    seconds = {}
    failures = []

    def print_end(job, outcome, taken):
        seconds[job.name] = taken
        if outcome.startswith('FAILED'):
            failures.append(outcome)

    with stop_signals() as stop:
        run.run_jobs(trials(study, place), place, actions, print_end, stop)
    if stop:
        raise KeyboardInterrupt
    if failures:
        raise ValueError(f'a trial of some steps, to time them: {failures[0]}')

    timed = {}
    firsts = first_of_sizes(study)
    for row in study.rows.values():
        timed[row.name] = {'trial': seconds[row.name], **pace(place / row.name, row.cfg)}
        for task in study.finetunings:
            dataset = task.datasets[0]
            first = firsts[row.name]
            run_seconds = seconds_of_second(place / 'runs' / first, dataset)
            timed[f'{row.name} {dataset}'] = {'trial': seconds[f'{first} {dataset}'], 'run': run_seconds}
    remove(place)
    return timed


def pace(folder, cfg):
    """Return how long a step and a validation of a trial took, and how many steps it had."""
    _, lines = read_log(folder)
    half = len(lines) // 2
    tokens = half * cfg.rows_per_step * cfg.context
    warm_up = tokens / lines[half - 1]['tokens_per_second']
    step = tokens / lines[-1]['tokens_per_second'] / half
    # the step after the first validation is noted when it is done
    validation = max(0.0, lines[half]['seconds'] - warm_up - step)
    return {'steps': len(lines), 'step': step, 'validation': validation}


def seconds_of_second(folder, dataset):
    """Return how long the second of two fine-tunings took: it began when the first was written."""
    first, second = sorted(path.stat().st_mtime for path in folder.glob(f'*/{dataset}/*/run.json'))
    return second - first


def seconds_of(job, study, timed):
    """Return how long a run.Job takes: as long as its trial, and what it does more."""
    if job.command[0] == 'pretrain.py':
        row = study.rows[job.row]
        trial = timed[row.name]
        validations = math.ceil(row.steps / (row.cfg.val_every or row.steps))
        return (trial['trial'] + (row.steps - trial['steps']) * trial['step']
                + (validations - 2) * trial['validation'])

    # a simple method has no row; it reads the same texts, and is as quick
    row = job.row or next(iter(study.rows))
    trial = timed[f'{row} {job.dataset}']
    return trial['trial'] + (job.runs - 2) * trial['run']


def seconds_at_once(jobs, study, timed, processes):
    """Return how long the run.Jobs of a seed take, so many at once. Pretrainings go first, and fine-tunings
    wait for theirs."""
    free_at = [0.0] * processes
    pretrained = {}     # {checkpoint: when it is there}
    for job in sorted(jobs, key=lambda job: job.needs != Path()):
        begin = max(heapq.heappop(free_at), pretrained.get(job.needs, 0.0))
        end = begin + seconds_of(job, study, timed)
        heapq.heappush(free_at, end)
        if job.command[0] == 'pretrain.py':
            pretrained[job.makes] = end
    return max(free_at)

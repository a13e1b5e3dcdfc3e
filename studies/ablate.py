"""Does a change help? Train a config with and without it, with several seeds each, and compare.

    python studies/ablate.py configs/tiny.py --change=mask_ratio=0.3 --seeds=0,1,2,3
    python studies/ablate.py configs/tiny.py --change=mntp --change="clm lr=2e-3" --phases='("mlm", 400)'

Each --change is an arm: settings of pretrain.py, or an objective in place of the last one, or both. The arm
`base` is the config without a change. Other settings of pretrain.py, here --phases, hold for all arms.

It writes studies/<name>/config.py, a study like any other. Then it times a few steps and fine-tunings, says
how long the rest takes, trains and fine-tunes all arms, and prints a verdict. The same words again continue
what was stopped. The same words with more seeds add these seeds."""
import math
import os
import pprint
import re
import shlex
import statistics
import sys
from itertools import chain, combinations
from pathlib import Path

if __name__ == '__main__':  # before torch loads OpenMP, which reads it: waiting threads sleep, not spin
    os.environ.setdefault('OMP_WAIT_POLICY', 'passive')
sys.path.insert(0, str(Path(__file__).parents[1]))  # the root, where evaluate.py is

import evaluate
import finetune
import pretrain
from data import OBJECTIVES
from nanoencoder.figures import NAMES, save_figure, style_of, styles_of
from nanoencoder.files import locked, read_json, whole, write_json
from nanoencoder.needed import needed_seeds, parts_of
from nanoencoder.pretraining.cost import corpus_command, time_in_words
from nanoencoder.pretraining.memory import weights_of_layer
from nanoencoder.settings import (
    asks_for_help,
    interrupt_on_signals,
    leaves,
    nearest,
    parse,
    read,
    read_options,
    run_main,
    split_words,
)
from studies import figures, packs, report, run, timing
from studies.study import Study

ACTIONS = {
    'change': ('', 'an arm: --change=mask_ratio=0.3, an objective, or both; may be given several times'),
    'seeds': ((0, 1, 2, 3), 'of pretraining; a verdict takes four or more'),
    'tasks': ('docs_tc,docs_ir', 'files of configs/tasks, or paths, on which all arms are fine-tuned'),
    'lrs': ((), "learning rates of fine-tuning; if empty, finetune.py's, or 1e-3 to 4e-3 of small models"),
    'finetuning_seeds': (1, 'of each model at each of these rates', 1, 10),
    'processes': (0, 'runs at once; 0: one a GPU, or two', 0, 1_000),
    'dry_run': (False, 'write the study, say how long it takes, and stop')}
BASE = 'base'       # the arm without a change
VALIDATIONS = 5     # of a run, at least: a curve needs some points
SMALL = 10e6        # weights in a model's layers, below which the next line holds
LRS_OF_SMALL = (1e-3, 2e-3, 4e-3)       # as in studies/small
MOST_SEEDS = 100    # that anybody would train to decide
JOBS = {    # what a plan calls them
    'pretrain.py': 'pretrainings',
    'finetune.py': 'grids of fine-tunings',
    run.BASELINES: 'simple methods'}


# ---------------------------------------------------------------------------
# The study that the words ask for


def settings_in(words):
    """Return {name: value} of words of a command line that are settings of pretrain.py."""
    types = {name: entry.type for name, entry in leaves(pretrain.Settings).items()}
    settings = {name: value for name, (value, _) in read_options(words, types).items()}
    if pretrain.is_phase(settings.get('phases')):   # a single pair
        settings['phases'] = settings['phases'],
    return settings


def read_change(words, phases):
    """Return (name of the arm, its settings) of the words of a --change.

    phases  of the config, whose last objective an objective's name replaces"""
    options = []
    objectives = []
    for part in re.split(r'\s+(?=\w+=)', words.strip()):
        if '=' in part:
            options.append(f'--{part}')
        elif part in OBJECTIVES:
            objectives.append(part)
        else:
            raise ValueError(f'--change={words}: {part!r:.80} is no objective{nearest(part, OBJECTIVES)}; '
                             'a setting is written as mask_ratio=0.3')
    settings = settings_in(options)
    for objective in objectives:
        *before, (_, steps) = settings.get('phases', phases)
        settings['phases'] = *before, (objective, steps)
    return re.sub(r'[^\w.=-]+', '_', words).strip('_'), settings


def read_words(words):
    """Return (name of the study, {name: value} of its config.py, the actions) of a command line."""
    changes = [word.removeprefix('--change=') for word in words if word.startswith('--change=')]
    words = [word for word in words if not word.startswith('--change=')]
    configs, options = split_words(words)
    if not (len(configs) == 1 and changes) and not asks_for_help(words):
        raise ValueError('name one config, and changes of it: configs/tiny.py --change=mask_ratio=0.3')
    # a config with weights from elsewhere may have no name
    cfg, actions = parse(pretrain.Settings, words, ACTIONS, inherit=lambda values: {'name': BASE})
    if not cfg.val_rows:
        raise ValueError('val_rows 0: an ablation compares held-out losses; give it some rows')

    arms = dict(read_change(change, cfg.phases) for change in changes)
    if len(arms) < len(changes):
        raise ValueError('a --change is there twice')
    of_all = settings_in([word for word in options if word[2:].split('=')[0] not in ACTIONS])
    name = of_all.pop('name', '') or '_'.join([Path(configs[0]).stem, *arms])
    often = max(1, cfg.total_steps // VALIDATIONS)
    if not 0 < cfg.val_every <= often:
        of_all.setdefault('val_every', often)
    return name, study_settings(configs[0], cfg, arms, of_all, actions), actions


def study_settings(config, cfg, arms, of_all, actions):
    """Return {name: value} of a study's config.py.

    arms    {name: settings of pretrain.py}, without the base
    of_all  settings that all arms share"""
    corpus = Path('configs', f'{cfg.corpus}.py')    # of corpora/docs
    tasks = []
    datasets = []
    for name in actions.tasks.split(','):
        path = name.strip()
        if not path.endswith('.py'):
            path = f'configs/tasks/{path}.py'
        task = read(path)
        if 'dataset' not in task:
            raise ValueError(f'{path}: is no task, which would name its `dataset`')
        tasks.append({'config': path})
        datasets.append(task['dataset'][0])
    contrasts = {}
    for arm in arms:
        contrasts[arm] = {'rule': 'better', 'weights': {arm: 1, BASE: -1}, 'datasets': tuple(datasets)}
    return {
        'title': f'changes of {config}',
        'corpus': {'config': str(corpus)} if corpus.exists() else {},
        'every_run': {'config': config} | of_all,
        'runs': {BASE: {}} | arms,
        'seeds': actions.seeds,
        'every_task': {'models': (BASE, *arms, 'untrained'), 'lrs': actions.lrs or usual_lrs(cfg.model)},
        'tasks': tuple(tasks),
        'finetuning_seeds': actions.finetuning_seeds,
        'contrasts': contrasts}


def usual_lrs(sizes):
    """Return learning rates of fine-tuning that suit a model of these sizes."""
    if sizes.num_hidden_layers * weights_of_layer(sizes) < SMALL:
        return LRS_OF_SMALL
    return finetune.Settings.lrs


def check_arms(study):
    """ValueError if an arm begins with another one, or has the settings of one."""
    for name, row in study.rows.items():
        if row.parent:
            raise ValueError(f'--change of {name}: begins with a model of {row.parent}, which takes a study '
                             'of your own: studies/README.md')
    for (first, row), (second, other) in combinations(study.rows.items(), 2):
        if row.stated | {'name': second} == other.stated:
            raise ValueError(f'--change of {second}: changes nothing, {first} has the same settings')


def write_study(path, settings, words):
    """Write a study's config.py, with the command that asks for it. ValueError if another study is there, or
    somebody has edited it; it may have fewer seeds."""
    if path.exists():
        before = {name: value for name, (value, _) in read(path).items()}
        seeds = before.get('seeds')
        if type(seeds) is tuple and {*seeds} <= {*settings['seeds']}:
            before['seeds'] = settings['seeds']
        others = [name for name in before | settings if before.get(name) != settings.get(name)]
        if others:
            raise ValueError(f'{path}: has other {", ".join(others)} than these words: type those with which '
                             'it begins, or give --name=another; what you edited, studies/run.py runs')
    lines = [f'# Written by this command:\n# {shlex.join(words)}\n']
    for name, value in settings.items():
        lines.append(f'{name} = {pprint.pformat(value, width=90, sort_dicts=False)}\n')
    with whole(path) as temporary:
        temporary.write_text(''.join(lines), encoding='utf-8')


def make_missing(study):
    """Write the corpus and the texts of tasks that are not there yet, by the commands of their configs.
    ValueError if the corpus would have to be downloaded, which may take days."""
    commands = {}       # {what is missing: a command}
    corpus = Path(study.corpus_folder, 'meta.json')
    if study.corpus and not corpus.exists():
        commands[corpus], tokens = corpus_command(study.rows[BASE].cfg)
        if tokens:
            raise ValueError(f'{corpus}: is not there yet; first run: {commands[corpus]}')
    for task in study.finetunings:
        commands[Path(task.cfg.data)] = task.cfg.made_by
    for path, command in commands.items():
        if command and not path.exists():
            for part in command.split(' && '):
                _, *words = shlex.split(part)       # without `python`
                if run.run_script(*words):
                    raise ValueError(f'{path}: was not made by {part}, as is said above')


# ---------------------------------------------------------------------------
# The verdict


def loss_of(study, arm):
    """Return the objective whose held-out loss is told of an arm: the base's last one, if the arm learns to
    predict from the same tokens, else its own."""
    last = study.rows[arm].phases[-1]
    of_base = study.rows[BASE].phases[-1]
    own = OBJECTIVES[last]
    usual = OBJECTIVES[of_base]
    if (own.causal, own.offset) == (usual.causal, usual.offset):
        return of_base
    return last


def losses_in_words(evidence, arm):
    """Say how the last held-out loss of an arm differs from the base's, if they are of the same targets."""
    objective = loss_of(evidence.study, BASE)
    if loss_of(evidence.study, arm) != objective:
        return f'held-out losses of {BASE} and {arm} are of different objectives'
    of_base, of_arm = [evidence.last(model, 'val_mlm_targets') for model in (BASE, arm)]
    if of_base != of_arm:       # another context, number of rows or ratio of masks
        return f'held-out losses of {BASE} and {arm} are of different tokens'
    of_base, of_arm = [evidence.last(model, f'val_{objective}_loss') for model in (BASE, arm)]
    differences = [loss - other for loss, other in zip(of_arm, of_base)]
    mean = statistics.fmean(differences)
    words = (f'held-out {objective} loss: {statistics.fmean(of_base):.3f} of {BASE}, '
             f'{statistics.fmean(of_arm):.3f} of {arm}, difference {mean:+.3f}')
    half = evaluate.seeds_half([differences])
    if not math.isnan(half):
        words += f' [{mean - half:+.3f}, {mean + half:+.3f}] over seeds'
    return words


def better_or_worse(evidence, claim, holms_p):
    """Say whether a change is better or worse than the base, or that nobody can tell."""
    arm = claim.contrast.name
    seen = claim.seen['both']
    word = report.verdict_in_words(claim, 'both', holms_p, evidence, {})
    word = word.replace('above 0', 'better').replace('below 0', 'worse')
    words = f'{arm} against {BASE}: {word}. {report.points(seen)} points, mean of '
    words += ' and '.join(claim.contrast.datasets)
    if seen.p is not None:
        words += f'; p {holms_p:.4f}'
    if len(evidence.study.comparisons) > 1:
        words += f" with Holm's correction for {len(evidence.study.comparisons)} changes"
    return words


def seeds_in_words(evidence, seen, seconds):
    """Say how many seeds would decide a difference as large as the one that was seen, and what they cost.

    seconds  that one more seed takes"""
    study = evidence.study
    have = len(study.seeds)
    needed = evidence.least_seeds
    words = f'A verdict takes at least {needed} seeds'
    if have > 1:
        p = 0.05 / len(study.comparisons)
        enough = needed_seeds(parts_of(seen.noise), abs(seen.mean), p)
        if not seen.mean or not enough or enough > MOST_SEEDS:
            words += f', and not even {MOST_SEEDS} would decide so small a difference on these test examples'
        else:
            needed = max(enough, needed, have + 1)
            words += f', and {needed} would decide a difference as large as this one four times of five'
    more = needed - have
    if more <= 0:
        return f'{words}.'
    first = max(study.seeds) + 1
    seeds = [*study.seeds, *range(first, first + more)]
    return f'{words}. {more} more: {time_in_words(more * seconds)}, --seeds={",".join(map(str, seeds))}'


def print_verdicts(evidence, seconds):
    """Print a verdict of each change, and what more seeds would cost. Draw all arms.

    seconds  that one more seed takes"""
    study = evidence.study
    judged, holms_p = report.judge_all(evidence)
    for number, claim in enumerate(judged):
        arm = claim.contrast.name
        print()
        evaluate.compare(evidence.cfg, BASE, arm, evidence.problems, packs.find_runs(study.folder))
        for dataset in claim.contrast.datasets:
            if evidence.mark([(BASE, None), (arm, None)], dataset):
                print(f'{dataset}: {BASE} or {arm} is {evaluate.BELOW}.')
        print(losses_in_words(evidence, arm))
        p = holms_p.at[number, 'both']
        print(better_or_worse(evidence, claim, p))
        seen = claim.seen['both']
        if report.verdict(seen, claim.bounds, p, evidence.least_seeds) == 'cannot tell':
            print(seeds_in_words(evidence, seen, seconds))
    print(save_figure(draw(evidence), study.folder / 'ablation.png'))


def draw(evidence):
    """Draw the held-out losses of all arms by step, and their scores."""
    rows = evidence.study.rows
    styles = styles_of({arm: (style_of(row.phases, row.cfg.optimizer), arm) for arm, row in rows.items()})
    losses = {}     # {panel: {arm: DataFrame of (steps, seeds)}}
    for arm in rows:
        objective = loss_of(evidence.study, arm)
        of_arm = evidence.losses.query('row == @arm')
        of_arm = of_arm.pivot(index='step', columns='seed', values=f'val_{objective}_loss')
        losses.setdefault(f'held-out {objective.upper()} loss, nats', {})[arm] = of_arm
    scores = {}     # {panel: {arm: Cell}}
    for dataset in evidence.datasets:
        panel = f'{NAMES.get(dataset, dataset)}, {evidence.about[dataset].metric}'
        scores[panel] = {arm: evidence.cell(arm, dataset) for arm in (*rows, 'untrained')}
    return figures.arms(losses, scores, styles)


# ---------------------------------------------------------------------------
# A start


def print_plan(study, blocks, timed, processes):
    """Print what is left of a study, and how long it takes."""
    left = [*chain(*blocks.values())]
    for script, name in JOBS.items():
        seconds = [timing.seconds_of(job, study, timed) for job in left if job.command[0] == script]
        print(f'{len(seconds):>4} {name:<22} {time_in_words(sum(seconds))}')
    seconds = sum(timing.seconds_at_once(jobs, study, timed, processes) for jobs in blocks.values())
    print(f'all of them, {processes} at once: {time_in_words(seconds)}', flush=True)


def run_study(study, actions):
    """Run what is missing of a study, and say what came of it. Returns the exit code."""
    blocks = run.missing_blocks(study, [*study.rows], study.seeds)
    times = study.folder / 'logs/timing.json'
    if not times.exists():
        make_missing(study)
        print(f'{study.folder}: times {timing.TIMED} steps of each arm, and two fine-tunings on each task',
              flush=True)
        write_json(times, timing.time_trials(study, actions))
    timed = read_json(times)
    if blocks:
        print_plan(study, blocks, timed, actions.processes)
    if actions.dry_run:
        return 0

    if run.run_missing(study, blocks, actions):
        return 1
    evidence = report.Evidence(study)
    code = report.write_report(evidence)
    one_more = run.missing_jobs(study, [*study.rows], max(study.seeds) + 1, {}, set())
    print_verdicts(evidence, timing.seconds_at_once(one_more, study, timed, actions.processes))
    return code


def main():
    name, settings, actions = read_words(sys.argv[1:])
    actions.processes = actions.processes or run.GPUS or 2
    actions.torchrun = ''
    study = Study(**settings)
    check_arms(study)
    study.folder = Path('studies', name)
    write_study(study.folder / 'config.py', settings, ['studies/ablate.py', *sys.argv[1:]])
    interrupt_on_signals()
    with locked(study.folder / 'ablation'):
        code = run_study(study, actions)
    sys.exit(code)


if __name__ == '__main__':
    run_main(main)

"""A study: rows of pretraining runs, their seeds, tasks, and the comparisons that it is made for.

study.py trains and fine-tunes what it asks for; `evaluate.py report` says what came out. Its tables are texts
of lines, in which # begins a comment:

    runs       a row's name and arguments of pretrain.py; --branch_from and --weights_from name a row: clm/450
    tasks      models, then arguments of finetune.py. Models are names or patterns with commas between: rows,
               `untrained`, and checkpoints before a row's end, as clm-450; * takes those of --save_at, too
    contrasts  name | better, at_least or no_difference | 1 clm -1 mlm | docs_tc docs_ir; clm@1e-3 is one rate
    ladder     an arm of the study and its rows by length, as clm: clm-1800 clm-3600
"""
import fnmatch
import itertools
import math
import re
import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from nanoencoder.settings import check, nearest, parse, read, read_options, setting

MOST_STEPS = 10 ** 8
RULES = 'better', 'at_least', 'no_difference'
OURS = {'runs': {'name', 'row', 'seed', 'corpus', 'out'},  # settings that study.py gives
        'tasks': {'name', 'model', 'untrained', 'lr', 'seed', 'seeds', 'grid', 'predictions'}}


class Row(NamedTuple):
    """Runs of pretrain.py that differ in their seed alone."""
    name: str
    words: list      # arguments of pretrain.py
    phases: list     # the objective of each step
    begins: str      # branch_from, weights_from or ''
    parent: str      # the row that it begins with, '' if none
    parent_step: int
    weights: str     # weights_from where it names no row
    save_at: tuple   # its own

    @property
    def steps(self):
        return len(self.phases)


class Finetuning(NamedTuple):
    """A line of the table of tasks."""
    models: list     # names: rows, row-<step>, untrained
    words: list      # arguments of finetune.py, without lrs and seeds
    kind: str
    datasets: list   # that it is scored on, its own first
    lrs: tuple
    variant: str     # '+name' after the names of its models


class Contrast(NamedTuple):
    name: str
    rule: str
    weights: list    # (weight, model, learning rate or None)
    datasets: list


@dataclass(frozen=True)
class Study:
    corpus: str = ''                    # a config of data.py, and further arguments
    runs: str = setting('')
    seeds: tuple = (0,)                 # of pretraining, a block each
    tasks: str = setting('')
    lrs: tuple = ()                     # of fine-tuning, where a line of tasks does not say --lrs
    finetuning_seeds: int = setting(3, 1, 10)   # 10 s + 0, 1, 2 of pretraining seed s, the same for all rows
    contrasts: str = setting('')
    ladder: str = setting('')
    out: str = 'out'                    # folder of the runs <row>-s<seed>
    folder: str = ''                    # of all else; studies/<the config's name> if empty

    def __post_init__(self):
        check(self)
        if not self.seeds or not all(type(seed) is int and seed >= 0 for seed in self.seeds) or (
                len({*self.seeds}) < len(self.seeds)):
            raise ValueError(f'seeds must be different ints from 0 on, not {self.seeds!r}')
        if not self.rows:
            raise ValueError('runs must have a row at least')
        self.rows, self.finetunings, self.comparisons, self.arms   # read now: a wrong line raises ValueError

    @cached_property
    def rows(self):
        """{name: Row}, as they stand: parents before their branches."""
        rows = {}
        read_lines(self.runs, 'runs', read_row, rows)
        return rows

    @cached_property
    def models(self):
        """{name: (row, step)} of what can be fine-tuned: rows, their checkpoints of --save_at, untrained."""
        names = {'untrained': ('', 0)} | {name: (name, row.steps) for name, row in self.rows.items()}
        return {f'{name}-{step}': (name, step) for name, row in self.rows.items() for step in row.save_at
                if step < row.steps} | names

    @cached_property
    def finetunings(self):
        return read_lines(self.tasks, 'tasks', read_task, self, set())

    @cached_property
    def comparisons(self):
        return read_lines(self.contrasts, 'contrasts', read_contrast, self, set())

    @cached_property
    def arms(self):
        """{arm: [its rows, by length]}."""
        arms = {}
        read_lines(self.ladder, 'ladder', read_arm, self, arms)
        return arms

    def check_model(self, name):
        """(row, step) of a model's name. ValueError if there is none."""
        base = name.partition('+')[0]
        match = re.fullmatch(r'(.+)-(\d+)', base)
        if base in self.models:
            return self.models[base]
        if match and match[1] in self.rows and 0 < int(match[2]) < self.rows[match[1]].steps:
            return match[1], int(match[2])
        raise ValueError(f'no row {name!r}{nearest(base, [*self.models])}')

    def save_at(self, name):
        """Steps of a row whose checkpoints something asks for: itself, branches, fine-tunings."""
        steps = {row.parent_step for row in self.rows.values() if row.parent == name}
        asked = [self.check_model(model) for line in self.finetunings for model in line.models]
        steps |= {step for row, step in asked if row == name} | {*self.rows[name].save_at}
        return tuple(sorted(steps - {self.rows[name].steps}))


def load(arguments, actions=()):
    """(Study, its actions) of a command line that begins with a config."""
    if not arguments:
        raise ValueError('a study is a config, as configs/studies/demo.py')
    study, actions = parse(Study, arguments, actions)
    if not study.folder:
        object.__setattr__(study, 'folder', f'studies/{Path(arguments[0]).stem}')
    return study, actions


def read_lines(text, table, read_line, *more):
    """[read_line(line, *more)] of the lines of a table."""
    results = []
    for line in text.splitlines():
        try:
            if line.split('#')[0].strip():
                results.append(read_line(line, *more))
        except ValueError as error:
            raise ValueError(f'{table} has "{line[:60]}": {error}') from None
    return results


def read_arguments(table, words, types):
    """{setting: value} of a config and the options after it, as their script will read them."""
    words, given = list(words), {}
    if words and not words[0].startswith('-'):
        given = read(words.pop(0))
    options = read_options(words, types)
    if ours := OURS[table] & options.keys():
        raise ValueError(f'--{min(ours)} is set by study.py; leave it out')
    values = {name: value for name, (value, _) in (given | options).items()}
    for name in types.keys() & values.keys():
        if type(values[name]) is not types[name]:
            raise ValueError(f'{name} must be a {types[name].__name__}, not {values[name]!r:.80}')
    return values


def read_row(line, rows):
    """Add a Row to {name: Row} of those above it. A parent's step is its end if none is said."""
    name, *words = shlex.split(line, comments=True)
    if re.search(r'[/@+|,*?\[\]]|^[.-]', name) or name == 'untrained':
        raise ValueError(f'{name!r} cannot be the name of a row')
    if name in rows:
        raise ValueError(f'row {name} is there twice')
    given = read_arguments('runs', words, {'phases': tuple, 'repeat': int, 'save_at': tuple,
                                           'branch_from': str, 'weights_from': str})
    phases = given.get('phases', ())
    phases = (phases,) if len(phases) == 2 and type(phases[0]) is str else phases
    if not phases or not all(type(pair) is tuple and list(map(type, pair)) == [str, int] for pair in phases):
        raise ValueError(f'{name} needs phases, such as --phases=\'(("clm", 450), ("mlm", 1_350))\'')
    if not 0 < sum(steps for _, steps in phases) * given.get('repeat', 1) <= MOST_STEPS:
        raise ValueError(f'{name}: phases have 1 to {MOST_STEPS:,} steps in all')
    phases = [kind for kind, steps in phases for _ in range(steps)] * given.get('repeat', 1)
    begins = next((key for key in ('branch_from', 'weights_from') if given.get(key)), '')
    parent, step, weights = '', 0, given.get(begins, '')
    if match := re.fullmatch(r'([^/]+)(?:/(\d+))?', weights):
        parent, weights, shared = match[1], '', begins == 'branch_from'
        if parent not in rows:
            raise ValueError(f'{begins}: no row {parent!r} above this one{nearest(parent, [*rows])}')
        above = rows[parent]
        step = int(match[2] or 0) or above.steps
        if step > above.steps or shared and step >= len(phases):
            raise ValueError(f'{begins} {parent}/{step} is beyond the end of {parent} or {name}')
        if shared and above.phases[:step] != phases[:step]:
            raise ValueError(f'{begins} {parent}/{step}: {name} has another objective before that step')
    elif begins == 'branch_from':
        raise ValueError(f'branch_from names a row and a step, as clm/450, not {weights!r}')
    rows[name] = Row(name, words, phases, begins, parent, step, weights, given.get('save_at', ()))


def read_task(line, study, seen):
    patterns, *words = shlex.split(line, comments=True)
    given = read_arguments('tasks', words, {'lrs': tuple, 'score_on': tuple, 'variant': str, 'kind': str,
                                            'dataset': str})
    if not {'kind', 'dataset'} <= given.keys():
        raise ValueError(f'a line is models, then a config of a task: {words[:1]} has no kind and dataset')
    lrs = given.get('lrs') or study.lrs
    if not lrs:
        raise ValueError(f'{given["dataset"]} needs --lrs, or the study lrs for all lines')
    if len({*lrs}) < len(lrs) or not all(type(lr) is float and 0 < lr < math.inf for lr in lrs):
        raise ValueError(f'lrs must be different floats above 0, not {lrs!r}')
    models = {}
    for pattern in patterns.split(','):
        if not re.search(r'[*?\[]', pattern):
            if '+' in pattern:
                raise ValueError(f'{pattern!r}: a variant is made by --variant, not by a name')
            study.check_model(pattern)
            models[pattern] = None
        elif chosen := fnmatch.filter(study.models, pattern):
            models |= dict.fromkeys(chosen)
        else:
            raise ValueError(f'{pattern!r} matches no row{nearest(pattern, [*study.models])}')
    words = [word for word in words if not word.startswith('--lrs=')]
    others = [read(path)['dataset'][0] for path in given.get('score_on', ())]
    variant = '+' + given['variant'] if given.get('variant') else ''
    for own in itertools.product(models, [given['dataset'], *others], [variant]):
        if own in seen:
            raise ValueError(f'{own[0]}{variant} on {own[1]} is there twice; one of them needs a --variant')
        seen.add(own)
    return Finetuning([*models], words, given['kind'], [given['dataset'], *others], lrs, variant)


def read_contrast(line, study, names):
    parts = [part.strip() for part in line.split('#')[0].split('|')]
    if len(parts) != 4 or not all(parts):
        raise ValueError('a contrast is name | rule | 1 row -1 another | datasets')
    name, rule, text, datasets = parts
    if rule not in RULES:
        raise ValueError(f'no rule {rule!r}{nearest(rule, RULES)}')
    words, known = text.split(), {name for line in study.finetunings for name in line.datasets}
    weights = []
    if not words or len(words) % 2:
        raise ValueError(f'a contrast is weights and models in turn, as 1 clm -1 mlm, not {text!r}')
    for weight, word in zip(words[::2], words[1::2]):
        model, _, lr = word.partition('@')
        study.check_model(model)
        weights.append((float(weight), model, float(lr) if lr else None))
        if not 0 < abs(weights[-1][0]) < math.inf:
            raise ValueError(f'{weight} {word}: a weight is finite and not 0')
    for own in ([own[1:] for own in weights], datasets.split()):
        if len({*own}) < len(own):
            raise ValueError('a model or a dataset is there twice')
    for dataset in datasets.split():
        if dataset not in known:
            raise ValueError(f'no line of tasks has dataset {dataset!r}{nearest(dataset, known)}')
    tried = {(model + line.variant, dataset): line.lrs for line in study.finetunings
             for model in line.models for dataset in line.datasets}
    for (_, model, lr), dataset in itertools.product(weights, datasets.split()):
        if (model, dataset) not in tried or lr not in (None, *tried[model, dataset]):
            raise ValueError(f'no line of tasks has {model}{f"@{lr:g}" if lr else ""} on {dataset}')
    if name in names:
        raise ValueError(f'contrast {name} is there twice')
    names.add(name)
    return Contrast(name, rule, weights, datasets.split())


def read_arm(line, study, arms):
    arm, colon, names = map(str.strip, line.split('#')[0].partition(':'))
    lengths = [study.check_model(name)[1] for name in names.split()]
    if not colon or not lengths or '+' in names or not all(
            a < b for a, b in itertools.pairwise([0, *lengths])):
        raise ValueError('an arm is its name, a colon and rows by length, as clm: clm-1800 clm-3600')
    if arm in arms:
        raise ValueError(f'arm {arm} is there twice')
    arms[arm] = names.split()

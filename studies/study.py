"""A study: rows of pretraining runs, their seeds, tasks, and the comparisons that it is made for.

    runs       {row: settings of pretrain.py}, of which every_run has those that all rows share; 'config' is a
               file of them. 'branch_from' and 'weights_from' may name a row above and its step: 'clm/450'
    tasks      ({'models': ('clm', 'mlm*'), settings of finetune.py}, ...), and every_task. Models are rows,
               'untrained', and checkpoints before a row's end, as 'clm-450'; * takes those of save_at, too
    contrasts  {name: {'rule': 'better', 'weights': {'clm': 1, 'mlm@1e-3': -1}, 'datasets': ('docs_tc',)}}, of
               which mlm@1e-3 is one learning rate
    ladder     {arm: (its rows, by length)}"""
import fnmatch
import itertools
import re
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from nanoencoder.settings import check, check_value, nearest, parse, read, setting

GIVEN = {'name', 'row', 'seed', 'seeds', 'corpus', 'out', 'model', 'untrained', 'grid', 'predictions'}


class Row(NamedTuple):      # runs of pretrain.py that differ in their seed alone
    name: str
    options: dict    # of pretrain.py, as the study has them
    settings: dict   # and with those of its config
    phases: list     # the objective of each step
    begins: str      # branch_from, weights_from or ''
    parent: str      # the row that it begins with, or ''
    parent_step: int
    save_at: set     # steps whose checkpoints something asks for: itself, branches, fine-tunings

    @property
    def steps(self):
        return len(self.phases)


class Finetuning(NamedTuple):   # an entry of the table of tasks
    models: dict     # {name: (row, step)}: rows, row-<step>, untrained
    options: dict    # of finetune.py, as the study has them, without models and lrs
    lrs: tuple
    datasets: list   # that it is scored on, the one that it is trained on first
    variant: str     # '+name' after the names of its models


Contrast = namedtuple('Contrast', 'name rule weights datasets')     # {(model, rate or None): weight}


@dataclass
class Study:
    corpus: dict = setting({})          # settings of data.py
    every_run: dict = setting({})
    runs: dict = setting({})
    seeds: tuple = (0,)                 # of pretraining, a block each
    every_task: dict = setting({})
    tasks: tuple = ()
    finetuning_seeds: int = setting(3, 1, 10)   # 10 s + 0, 1, 2 of pretraining seed s, the same for all rows
    contrasts: dict = setting({})
    ladder: dict = setting({})
    rules: int = setting(2, 1, 2)       # of its report; 1: as the first studies were frozen
    beside: str = ''    # another study, whose seeds say where these contrasts would lie; no verdicts then
    out: str = 'out'                    # folder of the runs <row>-s<seed>
    folder: str = ''                    # of all else; studies/<the config's name> if empty

    def __post_init__(self):
        """Read the tables. Messages begin with a table's name, so that the parser can say where it stands."""
        check(self)
        self.rows, self.finetunings, self.comparisons = {}, [], []
        self.models = {'untrained': ('untrained', 0)}   # {name: (row, step)} of what * can match
        self.tried = {}     # {(model, dataset): learning rates} of the table of tasks
        for seed in self.seeds:
            check_value('seeds', int, seed, 0)
        if not self.seeds or len({*self.seeds}) < len(self.seeds):
            raise ValueError(f'seeds are different numbers, one or more, not {self.seeds}')
        self.read_table('runs', self.runs, dict, self.add_row)
        self.read_table('tasks', dict(enumerate(self.tasks, 1)), dict, self.add_task)
        self.read_table('contrasts', self.contrasts, dict, self.add_contrast)
        self.read_table('ladder', self.ladder, tuple, self.check_arm)

    def read_table(self, table, entries, wanted, add):
        """Add each entry of a table. ValueError that begins with the table and names the entry."""
        for name, entry in entries.items():
            try:
                check_value('entry', wanted, entry)
                add(name, entry)
            except KeyError as error:
                raise ValueError(f'{table} {name!r}: has no {error}') from None
            except (TypeError, ValueError) as error:
                raise ValueError(f'{table} {name!r}: {error}') from None

    def add_row(self, name, entry):
        if name == 'untrained':
            raise ValueError('is the name of a model with new weights; give the row another')
        settings, parent, step = with_config(self.every_run | entry), '', 0
        if not all(type(pair) is tuple for pair in settings['phases']):
            raise ValueError("phases are pairs, such as (('clm', 450), ('mlm', 1_350))")
        phases = [objective for objective, steps in settings['phases'] for _ in range(steps)]
        phases *= settings.get('repeat', 1)
        begins = next((key for key in ('branch_from', 'weights_from') if settings.get(key)), '')
        match = re.fullmatch(r'([^/]+)/?(\d*)', settings.get(begins, ''))
        if match or begins == 'branch_from':    # other weights are a path
            parent = match[1] if match else settings[begins]
            if parent not in self.rows:
                raise ValueError(f'{begins}: no row {parent!r} above this one{nearest(parent, [*self.rows])}')
            above = self.rows[parent].phases
            step = int(match[2] or len(above))
            shared = step < len(phases) and above[:step] == phases[:step]
            if step > len(above) or begins == 'branch_from' and not shared:
                raise ValueError(f'{begins} {parent}/{step}: one ends there, or they differ before that step')
            self.rows[parent].save_at.add(step)
        saved = {*settings.get('save_at', ())}
        self.rows[name] = Row(name, self.every_run | entry, settings, phases, begins, parent, step, saved)
        self.models |= {f'{name}-{step}': (name, step) for step in sorted(saved) if step < len(phases)}
        self.models[name] = name, len(phases)

    def add_task(self, number, entry):
        settings = with_config(options := self.every_task | entry)
        models = {name: self.check_model(name) for pattern in settings['models']
                  for name in fnmatch.filter(self.models, pattern) or [pattern]}
        for row, step in models.values():
            if row in self.rows:
                self.rows[row].save_at.add(step)
        for lr in settings['lrs']:
            check_value('lrs', float, lr, 0)
        datasets = [settings['dataset'], *(read(path)['dataset'][0] for path in settings.get('score_on', ()))]
        variant = f'+{settings["variant"]}' if settings.get('variant') else ''
        for model, dataset in itertools.product(models, datasets):
            if (model + variant, dataset) in self.tried:
                raise ValueError(f'{model}{variant} on {dataset} is there twice; one of them needs a variant')
            self.tried[model + variant, dataset] = settings['lrs']
        options = {name: options[name] for name in options if name not in ('models', 'lrs')}
        self.finetunings.append(Finetuning(models, options, settings['lrs'], datasets, variant))

    def add_contrast(self, name, entry):
        check_value('rule', str, entry['rule'], choices=('better', 'at_least', 'no_difference'))
        check_value('weights', dict, entry['weights'])
        weights = {}
        for text, weight in entry['weights'].items():
            check_value('weight', float, weight)
            if weight == 0:
                raise ValueError(f'{text} has weight 0; leave it out')
            model, _, lr = text.partition('@')
            weights[model, float(lr) if lr else None] = float(weight)
            for dataset in entry['datasets']:
                if not self.tried.get((model, dataset)) or lr and float(lr) not in self.tried[model, dataset]:
                    raise ValueError(f'no entry of tasks has {text} on {dataset}')
        self.comparisons.append(Contrast(name, entry['rule'], weights, entry['datasets']))

    def check_arm(self, arm, models):
        for model in models:
            self.check_model(model)

    def check_model(self, name):
        """(row, step) of a model's name. ValueError if there is none."""
        row, _, step = name.rpartition('-')
        if name in self.models:
            return self.models[name]
        if row in self.rows and step.isdecimal() and 0 < int(step) < self.rows[row].steps:
            return row, int(step)
        raise ValueError(f'no row {name!r}{nearest(name, [*self.models])}')

    def run(self, row, seed, *step):
        """Folder of a run, or of its checkpoint of a step."""
        return Path(self.out, f'{row}-s{seed}', *map(str, step))


def with_config(options):
    """All that settings of a table and their config say."""
    if own := options.keys() & GIVEN:
        raise ValueError(f'{min(own)} is what a study gives each run; leave it out')
    config = read(str(options['config'])) if 'config' in options else {}
    settings = {name: value for name, (value, _) in config.items()} | options
    for name in settings.keys() & {'phases', 'save_at', 'models', 'lrs', 'score_on'}:
        check_value(name, tuple, settings[name])
    return settings


def arguments(options, **others):
    """A script's arguments: a config, and settings of a table, or others in their place."""
    options = options | others
    config = [options.pop('config')] if 'config' in options else []
    return config + [f'--{name}={value}' for name, value in options.items()]


def load(arguments, actions=()):
    study, actions = parse(Study, arguments, actions)
    if not study.rows:
        raise ValueError('a study is a config whose `runs` have a row or more, as configs/studies/demo.py')
    study.folder = study.folder or f'studies/{Path(arguments[0]).stem}'
    return study, actions

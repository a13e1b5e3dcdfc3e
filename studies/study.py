"""A study: a table of pretraining runs, their seeds, their tasks, and the comparisons that it is made for.

studies/<name>/config.py holds the settings of Study, below. The tables are:

    runs       {row: settings of pretrain.py}; every_run holds those that all rows share, and 'config' names a
               file of more. 'branch_from' and 'weights_from' may name a row above and a step: 'clm/450'
    tasks      ({'models': ('clm', 'mlm*'), 'lrs': (1e-3,), settings of finetune.py}, ...), and every_task. A
               model is a row, 'untrained', or a checkpoint in a row's save_at, 'clm-450'. * matches any
    contrasts  {name: {'rule': 'better', 'weights': {'clm': 1, 'mlm@1e-3': -1}, 'datasets': ('docs_tc',)}};
               mlm@1e-3 is mlm at one learning rate of fine-tuning
    ladder     {arm: (its rows, by length)}, a line each in the figure
    choices    {arm: (its rows, one a setting that is tried)}, of which `choose` takes the best

run.py trains what is missing, packs.py keeps it small enough for git, report.py judges the contrasts, or
says what is chosen."""
import fnmatch
import functools
import itertools
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # the root, where pretrain.py is

import finetune
import pretrain
from evaluate import model_of
from model import Sizes
from nanoencoder import prepare
from nanoencoder.files import read_json
from nanoencoder.settings import (
    check,
    check_value,
    flat,
    leaves,
    nearest,
    parse,
    read,
    setting,
    settings_of,
    split_words,
)
from studies.hold_out import on_held_out_rows

# what a study itself gives each of its runs
GIVEN = {'name', 'row', 'seed', 'seeds', 'corpus', 'model', 'untrained', 'grid', 'predictions'}
RULES = ('better', 'at_least', 'no_difference')


class Row(NamedTuple):
    """Pretraining runs that differ in nothing but their seed."""
    name: str
    settings: dict      # of pretrain.py, with those of its config file
    cfg: pretrain.Settings      # what pretrain.py makes of them
    phases: list        # the objective of each step
    begins: str         # branch_from, weights_from, or ''
    parent: str         # the row that it begins with, or ''
    parent_step: int
    save_at: set        # steps whose checkpoints are needed: by branches, by fine-tunings, by itself

    @property
    def steps(self):
        return len(self.phases)

    @property
    def stated(self):
        """What the study says of it in rows.json's form, which has lists for tuples: all settings, but for
        sizes that come with weights from elsewhere."""
        settings = flat(self.cfg)
        if self.begins and not self.parent:
            for name in leaves(Sizes).keys() - self.settings.keys():
                del settings[name]
        return json.loads(json.dumps(settings))


class Finetuning(NamedTuple):
    """An entry of the table of tasks."""
    models: dict        # {name: (row, step)}, of those in Study.models
    settings: dict      # of finetune.py, with those of its config file, without models and lrs
    cfg: finetune.Settings      # what finetune.py makes of them
    lrs: tuple
    datasets: list      # that it is scored on; it is trained on the first
    variant: str        # '+name' follows the names of its models


class Contrast(NamedTuple):
    """A difference of models that was written down before the runs."""
    name: str           # a claim of the paper, maybe with more words: 'end under AdamW'
    rule: str           # which differences agree with the claim: an entry of RULES
    weights: dict       # {(model, learning rate or None): weight}; the weighted scores are summed
    datasets: tuple     # whose mean counts


@dataclass
class Study:
    title: str = ''                     # of its page, after its name
    corpus: dict = setting({})          # settings of data.py
    every_run: dict = setting({})       # settings of pretrain.py that all rows share
    runs: dict = setting({})            # {row: its settings of pretrain.py}; see studies/study.py
    seeds: tuple = setting((0,), 0, of=int)     # of pretraining, one after the other
    every_task: dict = setting({})      # what all entries of tasks share
    tasks: tuple = setting((), of=dict)     # models, lrs and settings of finetune.py; see studies/study.py
    finetuning_seeds: int = setting(3, 1, 10)   # 10 s + 0, 1, 2 of pretraining seed s, the same for all rows
    contrasts: dict = setting({})       # {name: rule, weights, datasets}; see studies/study.py
    ladder: dict = setting({})          # {arm: (its rows, by length)}, a line each in the figure
    shown: tuple = setting((), of=str)      # datasets in the figure of the ladder; all if empty
    rules: int = setting(3, 1, 3)       # of its page; 1, 2: as earlier studies were frozen
    # by what it takes the best of each of `choices`: the lowest held-out loss of the row's last objective; or
    # the highest mean score of its tasks, trained on two thirds of their training rows, on the last third
    choose: str = setting('', choices=('', 'loss', 'held-out rows'))
    choices: dict = setting({})         # {arm: (its rows, one a setting that is tried)}

    def __post_init__(self):
        """Read the tables. A message begins with the name of one, so that the parser can say where it is."""
        check(self)
        self.folder = Path()
        self.rows = {}
        self.finetunings = []
        self.comparisons = []
        self.models = {}    # {name: (row, step)}; `untrained` has the first row's sizes
        self.tried = {}     # {(model, dataset): its Finetuning}
        if not self.seeds or len({*self.seeds}) < len(self.seeds):
            raise ValueError(f'seeds are different numbers, one or more, not {self.seeds}')
        for table in ('runs', 'contrasts', 'ladder', 'choices'):
            for name in getattr(self, table):
                check_value(table, str, name)
        self.corpus_folder = ''
        self.read_table('corpus', {'out': self.corpus} if self.corpus else {}, self.add_corpus)
        self.read_table('runs', self.runs, self.add_row)
        self.read_table('tasks', dict(enumerate(self.tasks, 1)), self.add_task)
        self.read_table('contrasts', self.contrasts, self.add_contrast)
        self.read_table('ladder', self.ladder, functools.partial(self.check_arm, 'ladder'))
        self.read_table('choices', self.choices, self.check_choice)
        if bool(self.choose) != bool(self.choices) or self.choose and self.contrasts:
            raise ValueError('choose goes with `choices`, and without contrasts: judge them in another study')
        datasets = {dataset for _, dataset in self.tried}
        for dataset in self.shown:
            if dataset not in datasets:
                raise ValueError(f'shown {dataset!r:.80} is no dataset of tasks{nearest(dataset, datasets)}')

    def read_table(self, table, entries, add):
        """Add each entry of a table. ValueError that begins with the table and names the entry."""
        for name, entry in entries.items():
            try:
                add(name, entry)
            except KeyError as error:
                raise ValueError(f'{table} {name!r:.80}: has no {error}') from None
            except (AttributeError, TypeError, ValueError) as error:
                raise ValueError(f'{table} {name!r:.80}: {error}') from None

    def add_corpus(self, name, entry):
        cfg, _ = parse(prepare.Settings, arguments(with_config(entry)))
        self.corpus_folder = cfg.out

    def add_row(self, name, entry):
        if name == 'untrained':
            raise ValueError('is the name of a model with new weights; give the row another')
        settings = with_config(self.every_run | entry)
        phases = objectives(settings)
        begins = ''
        for key in ('weights_from', 'branch_from'):
            if settings.get(key):
                begins = key
        parent, step = self.parent_of(begins, settings.get(begins, ''), phases)
        sizes = {}
        if parent:
            sizes = flat(self.rows[parent].cfg.model)
        cfg, _ = parse(pretrain.Settings, arguments(settings, name=name), inherit=lambda values: sizes)
        saved = {*cfg.save_at}
        self.rows[name] = Row(name, settings, cfg, phases, begins, parent, step, saved)
        self.models.setdefault('untrained', (name, len(phases)))
        for step in sorted(saved):
            if step < len(phases):
                self.models[f'{name}-{step}'] = name, step
        self.models[name] = name, len(phases)

    def parent_of(self, begins, start, phases):
        """Return (row, step) of what a row begins with, such as 'clm/450'; ('', 0) if that is no row: new
        weights, or weights of a path or of the hub."""
        parent, number = re.fullmatch(r'(.*?)(?:/(\d+))?', start).groups()
        if begins != 'branch_from' and (not parent or '/' in parent):
            return '', 0
        if parent not in self.rows:
            raise ValueError(f'{begins}: no row {parent!r:.80} above this one{nearest(parent, self.rows)}')
        above = self.rows[parent].phases
        step = int(number or len(above))
        is_shared = step < len(phases) and above[:step] == phases[:step]
        if step > len(above) or begins == 'branch_from' and not is_shared:
            raise ValueError(f'{begins} {parent}/{step}: one ends there, or they differ before that step')
        self.rows[parent].save_at.add(step)
        return parent, step

    def add_task(self, number, entry):
        settings = with_config(self.every_task | entry)
        if self.choose == 'held-out rows':
            settings = on_held_out_rows(settings)
        lrs = settings.pop('lrs')
        models = {}
        for pattern in settings.pop('models'):
            for name in fnmatch.filter(self.models, pattern) or [pattern]:
                row, step = self.check_model(name)
                self.rows[row].save_at.add(step)
                models[name] = row, step
        datasets = [settings['dataset']]
        for path in settings.get('score_on', ()):
            datasets.append(read(path)['dataset'][0])
        words = arguments(settings, model='a row', grid=True, lrs=lrs)
        cfg, actions = parse(finetune.Settings, words, finetune.ACTIONS)
        variant = f'+{cfg.variant}' if cfg.variant else ''
        keys = [*itertools.product([model + variant for model in models], datasets)]
        for key in keys:
            if key in self.tried:
                raise ValueError(f'{" on ".join(key)} is there twice; one of them needs a variant')
            self.tried[key] = None
        finetune.check_actions(cfg, actions, settings.keys())
        task = Finetuning(models, settings, cfg, lrs, datasets, variant)
        self.tried |= dict.fromkeys(keys, task)
        self.finetunings.append(task)

    def add_contrast(self, name, entry):
        check_value('rule', str, entry['rule'], choices=RULES)
        check_value('weights', dict, entry['weights'])
        check_value('datasets', tuple, entry['datasets'])
        if not entry['weights'] or not entry['datasets']:
            raise ValueError('weights and datasets must have one or more')
        weights = {}
        for text, weight in entry['weights'].items():
            model, _, lr = text.partition('@')
            lr = float(lr) if lr else None
            check_value('weights', float, weight)
            weights[model, lr] = float(weight)
            for dataset in entry['datasets']:
                task = self.tried.get((model, dataset))
                if not task or lr not in (None, *task.lrs):
                    raise ValueError(f'no entry of tasks has {text} on {dataset}')
        self.comparisons.append(Contrast(name, entry['rule'], weights, entry['datasets']))

    def check_arm(self, table, arm, models):
        check_value(table, tuple, models)
        for model in models:
            self.check_model(model)

    def check_choice(self, arm, models):
        """ValueError if what would choose among the rows of an arm does not compare them."""
        self.check_arm('choices', arm, models)
        ends = set()        # last objectives
        datasets = {}       # {row: those that it is scored on}
        for model in models:
            row, step = self.models[model]
            ends.add(self.rows[row].phases[step - 1])
            datasets[model] = {dataset for name, dataset in self.tried if name == model}
        if self.choose == 'loss' and len(ends) > 1:
            raise ValueError(f'rows end with {" and ".join(sorted(ends))}, whose losses do not compare')
        all_datasets = set().union(*datasets.values())
        for model, scored_on in datasets.items():
            if self.choose == 'held-out rows' and (not scored_on or scored_on != all_datasets):
                missing = ', '.join(sorted(all_datasets - scored_on)) or 'anything'
                raise ValueError(f'no entry of tasks has {model} on {missing}')

    def check_model(self, name):
        """Return (row, step) of a model's name. ValueError if there is none."""
        if name not in self.models:
            raise ValueError(f'no row {name!r:.80}{nearest(name, self.models)}')
        return self.models[name]

    def run(self, row, seed, *step):
        """Return the folder of a run, or of its checkpoint of a step."""
        return Path(self.folder, 'out', f'{row}-s{seed}', *map(str, step))


def arguments(settings, **more):
    """Return settings as words of a command line."""
    return [f'--{name}={value}' for name, value in (settings | more).items()]


def with_config(options):
    """Return a table entry's settings together with those of its config file."""
    given = options.keys() & GIVEN
    if given:
        raise ValueError(f'{min(given)} is what a study gives each run; leave it out')
    settings = settings_of(options)
    for name in settings.keys() & {'phases', 'save_at', 'models', 'lrs', 'score_on'}:
        check_value(name, tuple, settings[name])
    return settings


def objectives(settings):
    """Return the objective of each step, from phases such as (('clm', 450), ('mlm', 1_350))."""
    if not all(type(pair) is tuple for pair in settings['phases']):
        raise ValueError("phases are pairs, such as (('clm', 450), ('mlm', 1_350))")
    once = [objective for objective, steps in settings['phases'] for _ in range(steps)]
    return once * settings.get('repeat', 1)


def check_recorded(study, runs):
    """Return {row: settings that it was pretrained with}, as rows.json has them. ValueError if a row, or one
    of these fine-tunings, was made with another setting than the study says now.

    runs  [(folder, run.json, ...)] as packs.find_runs yields them"""
    path = study.folder / 'rows.json'
    rows = read_json(path) if path.exists() else {}
    for row in study.rows.values():
        check_same(f'{path}: {row.name}', rows.get(row.name, {}), row.stated, 'give the row another name')
    for folder, about, *_ in runs:
        dataset = folder.parts[-2]
        task = study.tried.get((model_of(folder, about), dataset))
        if task:
            stated = task.settings
            if dataset == task.datasets[0]:     # others, of score_on, have settings of their own
                stated = flat(task.cfg)
            made = about.get('settings', {})
            check_same(folder, made, stated, 'give its task a variant', without=('lr', 'seed'))
    return rows


def check_same(what, made, stated, advice, without=()):
    """ValueError if two {setting: value} differ in what both say. Where the study leaves a choice to the
    machine or the model, any is right."""
    stated = json.loads(json.dumps(stated))
    for name in sorted(made.keys() & stated.keys() - {*without}):
        is_open = (name, stated[name]) in (('dtype', 'auto'), ('max_length', 0))
        if made[name] != stated[name] and not is_open:
            raise ValueError(f'{what} was made with {name} = {made[name]}, not {stated[name]}: {advice}')


def load(words, actions=()):
    """Return the Study in a folder's config.py, and the actions.

    words  of the command line: studies/<name>, then --setting=value"""
    folders, options = split_words(words)
    configs = [str(Path(folder, 'config.py')) for folder in folders]
    study, actions = parse(Study, configs + options, actions)
    if not study.rows:
        raise ValueError('a study is a folder whose config.py has `runs` of a row or more: studies/small')
    study.folder = Path(*folders)
    return study, actions

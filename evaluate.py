"""Predictions -> scores -> intervals -> tables and figures. Needs no torch.

    python evaluate.py table                        # all of predictions/ and results/: mean, 95 % interval, n, seeds
    python evaluate.py table --protocol=paper       # the paper's numbers: its selection, its F1, its intervals
    python evaluate.py table --protocol=paper --published           # with the paper's own tables beside
    python evaluate.py table --runs=runs.csv --protocol=paper       # model,task,dataset,lr,seed,validation,test
    python evaluate.py compare tiny-mlm40 tiny-clm-mlm40            # paired tests of the second against the first
    python evaluate.py figure share                 # figures/share.png; also bars, ratio, steps, flops, lr, cpt
    python evaluate.py figure switch out/tiny-clm out/tiny-clm-mlm40    # loss and gradient norm through phases
    python evaluate.py losses out/tiny-clm out/tiny-mlm40           # held-out losses of pretraining

What reads results first turns new predictions/<model>/<TASK>/<dataset>/lr1e-04_sd0/ into results/ of the same layout:
`results.json` in the format of the paper's authors, `standard.json` with the field's standard scores and counts.
"""
import collections
import csv
import dataclasses
import functools
import gzip
import hashlib
import itertools
import json
import math
import os
import re
import statistics
import string
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nanoencoder import settings as configs


@dataclass(frozen=True)
class Settings:
    predictions: str = 'predictions'  # folder that finetune.py writes
    results: str = 'results'        # folder of scores, ours or the authors'
    runs: str = ''                  # a .csv of raw run scores instead of both
    protocol: str = 'standard'      # or paper: the authors' scores, learning rate chosen per seed, 1.96 s / sqrt(seeds)
    models: tuple = ()              # only these, in this order
    datasets: tuple = ()            # only these
    published: bool = False         # the paper's numbers beside ours
    format: str = 'text'            # of a table: text, markdown, csv
    resamples: int = 10_000         # of the bootstrap
    seed: int = 0                   # of the bootstrap
    out: str = 'figures'            # folder of figures

    def __post_init__(self):
        for name, options in (('protocol', ('standard', 'paper')), ('format', ('text', 'markdown', 'csv'))):
            if getattr(self, name) not in options:
                raise ValueError(f'{name} is one of {", ".join(options)}, not {getattr(self, name)!r}')
        for name in ('models', 'datasets'):  # ("a") is a string to Python: one name is a list of one
            if not all(isinstance(item, str) for item in getattr(self, name)):
                raise ValueError(f'{name} is a tuple of names, not {getattr(self, name)!r}')
        if self.seed < 0:
            raise ValueError(f'seed must be at least 0, not {self.seed}')
        if self.resamples < 100:
            raise ValueError(f'resamples must be at least 100, not {self.resamples}')


TASKS = ('SC', 'TC', 'QA', 'IR')
SCORES = 1  # a new number has everything scored again
PAPER_METRIC = {'SC': 'accuracy', 'TC': 'macro F1', 'QA': 'F1', 'IR': 'NDCG@10'}
PAPER = Path(__file__).parent / 'configs/paper'  # its tables, and its models with phases, tokens and FLOPs
PUBLISHED = {'sst2': 'SST-2', 'qqp': 'QQP', 'mnli_m': 'MNLI', 'mnli': 'MNLI',  # the authors' folder: the paper's word
             'conll2003_en': 'CoNLL', 'ontonotes': 'OntoNotes', 'uner_en': 'UNER', 'squad': 'SQuAD',
             'squad_v2': 'SQuAD-v2', 'record': 'ReCoRD', 'msmarco': 'MS MARCO', 'nq': 'NQ', 'mldr_en': 'MLDR'}


# ------------------------------------------------------------------------------------------ scores: entities

def entities(tags, scheme='conlleval'):
    """{(type, start, end)} of a sentence's tags; end is exclusive.

    scheme  conlleval: by the rules of the CoNLL-2000 script, which read IOB1 and IOB2 alike (seqeval's default);
            IOB2: an entity begins with B- and nothing else (seqeval's mode='strict'); IOB1: B- only where an entity
            touches one of its own type, and otherwise I-.
    Raises ValueError for a tag that is neither O nor B-... nor I-....
    """
    found, kind, start, before = set(), None, 0, 'O'
    for i, tag in enumerate([*tags, 'O']):
        prefix, _, this = tag.partition('-')
        if tag != 'O' and (prefix not in ('B', 'I') or not this):
            raise ValueError(f'tag {tag!r} is neither O nor B-TYPE nor I-TYPE')
        continues = prefix == 'I' and this == kind
        begins = {'conlleval': prefix == 'B' or prefix == 'I' and not continues,
                  'IOB2': prefix == 'B',
                  'IOB1': prefix == 'B' and before[2:] == this or prefix == 'I' and not continues}[scheme]
        if kind is not None and not continues:
            if not (scheme == 'IOB1' and before[0] == prefix == 'B' and this != kind):  # no end, to seqeval's IOB1
                found.add((kind, start, i))
            kind = None
        if begins:
            kind, start = this, i
        before = tag
    return found


def entity_counts(gold, pred, scheme='conlleval'):
    """(correct, predicted, gold) entities of one sentence."""
    gold, pred = entities(gold, scheme), entities(pred, scheme)
    return len(gold & pred), len(pred), len(gold)


def f1(correct, predicted, gold):
    return 2 * correct / (predicted + gold) if predicted + gold else 0.0


def macro_f1(golds, preds):
    """Mean F1 over all labels that occur in either list; scikit-learn's f1_score(average='macro', zero_division=0)."""
    correct, predicted, gold = (collections.Counter(labels) for labels in (
        (g for g, p in zip(golds, preds) if g == p), preds, golds))
    return statistics.fmean(f1(correct[label], predicted[label], gold[label]) for label in predicted | gold or [''])


# ------------------------------------------------------------------------------------------- scores: answers

def normalise(answer):
    """As SQuAD's script: lower case, without punctuation, articles and superfluous spaces."""
    answer = ''.join(character for character in answer.lower() if character not in string.punctuation)
    return ' '.join(re.sub(r'\b(a|an|the)\b', ' ', answer).split())


def exact_match(pred, gold):
    return float(normalise(pred) == normalise(gold))


def token_f1(pred, gold):
    """F1 of two bags of words; where either is empty, whether both are."""
    pred, gold = normalise(pred).split(), normalise(gold).split()
    if not pred or not gold:
        return float(pred == gold)
    return f1(sum((collections.Counter(pred) & collections.Counter(gold)).values()), len(pred), len(gold))


def best(score, pred, golds):
    """The best score over the gold answers; a question without any has the empty answer, as in SQuAD v2.

    Like the official script, golds that normalise to nothing are left out unless all do.
    """
    return max(score(pred, gold) for gold in [gold for gold in golds if normalise(gold)] or [''])


# ------------------------------------------------------------------------------------------ scores: rankings

def ndcg(grades, docs, k=10):
    """NDCG@k as trec_eval computes it: gain = grade, discount = log2(rank + 1), the ideal over all judged documents.

    grades  {document: grade}; 0 and below are no gain. docs: ids, best first; ties are in the caller's order.
    """
    perfect = dcg(sorted(grades.values(), reverse=True)[:k])
    return dcg(grades.get(doc, 0) for doc in docs[:k]) / perfect if perfect else 0.0


def dcg(grades):
    """Discounted cumulative gain of the grades of a ranking, best document first."""
    return sum(max(0, grade) / math.log2(i + 2) for i, grade in enumerate(grades))


def ndcg_of_ties(grades, docs, scores, k=10):
    """NDCG@k as scikit-learn's ndcg_score and the paper's numbers: documents of equal score share their mean gain.

    docs must hold every document whose score is that of the k-th.
    """
    gained, rank = 0.0, 0
    for _, group in itertools.groupby(zip(scores, docs), key=lambda item: item[0]):
        gains = [max(0, grades.get(doc, 0)) for _, doc in group]
        discounts = sum(1 / math.log2(i + 2) for i in range(rank, min(k, rank + len(gains))))
        gained += statistics.fmean(gains) * discounts
        rank += len(gains)
    perfect = dcg(sorted(grades.values(), reverse=True)[:k])
    return gained / perfect if perfect else 0.0


# -------------------------------------------------------------------------------------- scores of a whole run

def paper_scores(task, rows):
    """The authors' score of each instance; their score of a run is the mean."""
    if task == 'SC':
        return [float(row['pred'] == row['gold']) for row in rows]
    if task == 'TC':  # over word labels, "O" included, sentence by sentence
        return [macro_f1(row['gold'], row['pred']) for row in rows]
    if task == 'QA':
        return [best(token_f1, row['pred'], row['golds']) for row in rows]
    relevant = [{doc: 1 for doc, grade in row['gold'].items() if grade >= 1} for row in rows]
    return [ndcg_of_ties(grades, row['docs'], row['scores']) for grades, row in zip(relevant, rows)]


def standard_scores(task, rows, scheme='IOB2'):
    """(name, numerators, denominators, {name: score}) of a run's instances.

    The score is sum(numerators) / sum(denominators): of counts, so that it can be resampled. The dict has other
    scores of the whole run: percentages but for the counts of entities or questions.
    """
    ones = [1.0] * len(rows)
    if task == 'SC':
        right = [float(row['pred'] == row['gold']) for row in rows]
        labels = ([row[name] for row in rows] for name in ('gold', 'pred'))
        return 'accuracy', right, ones, {'macro F1': macro_f1(*labels)}
    if task == 'TC':
        counts = np.array([entity_counts(row['gold'], row['pred']) for row in rows])
        correct, predicted, gold = counts.sum(0).tolist()
        strict = np.sum([entity_counts(row['gold'], row['pred'], scheme) for row in rows], 0).tolist()
        return ('entity F1', (2.0 * counts[:, 0]).tolist(), (counts[:, 1] + counts[:, 2]).astype(float).tolist(),
                {'precision': correct / predicted if predicted else 0.0, 'recall': correct / gold if gold else 0.0,
                 f'strict {scheme} F1': f1(*strict), 'entities': gold})
    if task == 'QA':
        scores = [best(token_f1, row['pred'], row['golds']) for row in rows]
        exact = [best(exact_match, row['pred'], row['golds']) for row in rows]
        others = {'exact': statistics.fmean(exact)}
        for name, wanted in (('HasAns', True), ('NoAns', False)):
            at = [i for i, row in enumerate(rows) if bool(row['golds']) == wanted]
            if at and len(at) < len(rows):
                others |= {f'{name} exact': statistics.fmean(exact[i] for i in at),
                           f'{name} F1': statistics.fmean(scores[i] for i in at), f'{name} questions': len(at)}
        return 'F1', scores, ones, others
    scores = [ndcg(row['gold'], row['docs']) for row in rows]
    binary = [ndcg({doc: int(grade >= 1) for doc, grade in row['gold'].items()}, row['docs']) for row in rows]
    return 'NDCG@10', scores, ones, {'binary NDCG@10': statistics.fmean(binary)}


def read_rows(path, task):
    """The instances of a predictions file; ValueError if it is damaged or not of the task's form."""
    wanted = {'SC': ('id', 'gold', 'pred'), 'TC': ('id', 'gold', 'pred'), 'QA': ('id', 'golds', 'pred'),
              'IR': ('id', 'gold', 'docs', 'scores')}[task]
    try:
        with gzip.open(path, 'rt', encoding='utf-8') as file:
            rows = [json.loads(line) for line in file]
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise ValueError(f'{path}: missing or damaged: {error}') from None
    if not rows:
        raise ValueError(f'{path}: holds no instance')
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict) or not all(name in row for name in wanted):
            raise ValueError(f'{path}: line {number} is not an object with {", ".join(wanted)}')
        if task == 'TC' and len(row['gold']) != len(row['pred']):
            raise ValueError(f'{path}: line {number} has {len(row["gold"])} gold tags and {len(row["pred"])} predicted')
        if task == 'QA' and not (isinstance(row['golds'], list) and isinstance(row['pred'], str)):
            raise ValueError(f'{path}: line {number}: golds is a list of texts, pred a text')
        if task == 'IR' and (len(row['docs']) != len(row['scores']) or len(set(row['docs'])) < len(row['docs'])
                             or any(not a >= b for a, b in zip(row['scores'], row['scores'][1:]))):
            raise ValueError(f'{path}: line {number}: docs are different documents, best first, with a score each')
    return rows


def read_json(path):
    try:
        return json.loads(path.read_text(encoding='utf-8'))
    except (OSError, ValueError) as error:
        raise ValueError(f'{path}: missing or damaged: {error}') from None


def up_to_date(path, digest=None):
    """Whether a file of results can be read, and is that of this digest."""
    try:
        content = read_json(path)
        return bool(content) and (digest is None or content['run'] == digest)
    except (ValueError, KeyError, TypeError):
        return False


def score_run(source, results, model, task, dataset):
    """predictions of one run -> results.json (the authors' format) and standard.json; nothing if they are up to date."""
    about = read_json(source / 'run.json')
    if not isinstance(about, dict) or about.get('scheme') not in (None, 'IOB1', 'IOB2') or \
            not re.fullmatch(r'\w*', str(about.get('trained_on') or '')):
        raise ValueError(f'{source / "run.json"}: not what finetune.py writes')
    trained_on = about.get('trained_on')
    target = results / model / task / dataset / (f'{trained_on}_{source.name}' if trained_on else source.name)
    digest = hashlib.sha256((source / 'run.json').read_bytes()).hexdigest() + f' scores {SCORES}'
    written = target / 'standard.json'
    if up_to_date(written, digest) and up_to_date(target / 'results.json'):
        return
    for name, wanted in about.get('sha256', {}).items():
        if (source / name).exists() and hashlib.sha256((source / name).read_bytes()).hexdigest() != wanted:
            raise ValueError(f'{source / name}: missing or damaged: its sha256 is not the one in run.json')
    same = {name: value for name, value in about.get('settings', {}).items() if name not in ('lr', 'seed')}
    paper, standard = {}, {'run': digest, 'settings': same} | {
        name: about.get(name) for name in ('weights', 'kind', 'pretraining', 'data', 'grid')}
    for split in ('validation', 'test'):
        rows = read_rows(source / f'{split}.jsonl.gz', task)
        try:
            scores = paper_scores(task, rows)
            name, numerators, denominators, others = standard_scores(task, rows, about.get('scheme') or 'IOB2')
        except ValueError as error:
            raise ValueError(f'{source / split}.jsonl.gz: {error}') from None
        paper[split] = {'score': statistics.fmean(scores), 'scores_i': scores}
        standard['name'] = name
        standard[split] = {'score': ratio(numerators, denominators), 'numerators': numerators,
                           'denominators': denominators, 'others': others, 'ids': [str(row['id']) for row in rows]}
    target.mkdir(parents=True, exist_ok=True)
    for path, content in ((target / 'results.json', paper), (written, standard)):
        temporary = path.with_name(f'.{path.name}.{os.getpid()}.tmp')
        temporary.write_text(json.dumps(content), encoding='utf-8')
        temporary.rename(path)


def run_name(lr, seed):
    """A run's folder, as the authors name theirs: lr1e-04_sd0; lr0.00015_sd0 for what one digit does not say."""
    return f'lr{lr:.0e}_sd{seed}' if float(f'{lr:.0e}') == lr else f'lr{lr}_sd{seed}'


def progress(paths, label):
    """The paths, with a bar and the time left if it takes more than two seconds and somebody is watching."""
    if len(paths) < 100:
        return paths
    from tqdm import tqdm
    return tqdm(paths, desc=label, delay=2, disable=None, leave=False)


def score_predictions(cfg, problems):
    """Score every run of the predictions that is new; what cannot be, or failed, is added to `problems`."""
    for run in progress(sorted(Path(cfg.predictions).glob('*/*/*/lr*')), 'scoring'):
        model, task, dataset, name = run.relative_to(cfg.predictions).parts
        if cfg.models and model not in cfg.models or cfg.datasets and dataset not in cfg.datasets:
            continue
        if name.endswith('.error.txt'):
            words = run.read_text(encoding='utf-8').strip().splitlines() or ['']
            problems.append(f'{run.parent}: {name.removesuffix(".error.txt")} failed: {words[-1]}')
            continue
        try:
            if task not in TASKS:
                raise ValueError(f'{run}: {task} is no task; there are {", ".join(TASKS)}')
            score_run(run, Path(cfg.results), model, task, dataset)
        except ValueError as error:
            problems.append(str(error))
        except (TypeError, KeyError, AttributeError, IndexError, OSError) as error:
            problems.append(f'{run}: cannot be scored: {error!r}')


# ------------------------------------------------------------------------------------------------------ runs

@dataclass(frozen=True)
class Run:
    """One fine-tuning: its scores, as fractions of 1; None where a file does not say."""
    model: str
    task: str
    dataset: str
    lr: float
    seed: int
    validation: float
    test: float
    detail: object = None   # of the standard protocol: {'numerators', 'denominators', 'others', 'ids'} on test
    metric: str = ''
    weights: str = ''
    kind: str = ''          # fine-tuned, baseline or probe
    pretraining: object = None
    data: str = ''          # sha256 of the rows it was tested on
    settings: object = None  # of fine-tuning, less learning rate and seed
    grid: object = None     # (learning rates, seeds) that it is a run of


def read_csv_runs(path):
    """Runs from a table of raw scores. Empty cells are unknown."""
    def number(text):
        if text and not math.isfinite(float(text)):
            raise ValueError(f'{text} is no score')
        return float(text) if text else None
    try:
        with open(path, newline='', encoding='utf-8') as file:
            rows = list(csv.DictReader(file))
        for row in rows:
            if row['task'] not in TASKS:
                raise ValueError(f'{row["task"]!r} is no task')
        return [Run(row['model'], row['task'], row['dataset'], float(row['lr']), int(row['seed']),
                    number(row['validation']), number(row['test'])) for row in rows]
    except OSError as error:
        raise ValueError(f'{path}: {error.strerror}') from None
    except (KeyError, ValueError, TypeError) as error:
        raise ValueError(f'{path}: not a table of runs (model,task,dataset,lr,seed,validation,test): {error}') from None


def read_results(cfg, problems):
    """Runs from a folder of results; what cannot be read, or has lost its predictions, is added to `problems`."""
    runs, of_authors = [], 0
    for path in progress(sorted(Path(cfg.results).glob('*/*/*/*/results.json')), 'reading'):
        model, task, dataset, name, _ = path.relative_to(cfg.results).parts
        if task not in TASKS or cfg.models and model not in cfg.models or cfg.datasets and dataset not in cfg.datasets:
            continue
        try:
            run = read_result(path, model, task, dataset, name, cfg)
        except ValueError as error:
            problems.append(str(error))
            continue
        source = Path(cfg.predictions) / model / task / dataset
        if run is None:
            of_authors += 1
        elif 'numerators' in run.detail and source.is_dir() and not (source / run_name(run.lr, run.seed)).is_dir():
            problems.append(f'{path.parent}: its predictions are gone from {source}; left out')
        else:
            runs.append(run)
    if of_authors:
        problems.append(f'{cfg.results}: {of_authors:,} runs have results.json alone, which serves --protocol=paper')
    return runs


def read_result(path, model, task, dataset, name, cfg):
    """The Run of a results.json and, if there is one, the standard.json beside it; None where that is needed and absent."""
    match = re.fullmatch(r'(?:.+_)?lr([\d.]+(?:e[-+]?\d+)?)_sd(\d+)', name)
    if not match:
        raise ValueError(f'{path.parent}: not the name of a run, as lr1e-04_sd0 or msmarco_pairs_lr1e-04_sd0')
    content, about = read_json(path), {}
    if path.with_name('standard.json').exists():
        about = read_json(path.with_name('standard.json'))
    elif cfg.protocol == 'standard':
        return None
    try:
        scores = about if cfg.protocol == 'standard' else content
        return Run(model, task, dataset, float(match[1]), int(match[2]), scores['validation']['score'], scores['test']['score'],
                   about.get('test') or {'ids': range(len(content['test']['scores_i']))}, about.get('name', ''),
                   about.get('weights') or '', about.get('kind') or '', about.get('pretraining'), about.get('data') or '',
                   about.get('settings'), about.get('grid'))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f'{path}: not of the form {{"validation": {{"score", "scores_i"}}, "test": ...}}: '
                         f'{error!r}') from None


def read_runs(cfg):
    """(runs, problems in words): from --runs, or from predictions and results. What is missing of a grid is a problem."""
    problems = []
    if cfg.runs and cfg.protocol != 'paper':
        raise ValueError('runs: raw scores have no instances to resample; take --protocol=paper')
    if cfg.runs:
        runs = [run for run in read_csv_runs(cfg.runs) if (not cfg.models or run.model in cfg.models)
                and (not cfg.datasets or run.dataset in cfg.datasets)]
    else:
        score_predictions(cfg, problems)
        runs = read_results(cfg, problems)
        for key, group in grouped(runs, 'model', 'task', 'dataset').items():
            found = {(run.lr, run.seed) for run in group}
            asked = [run.grid for run in group if run.grid]
            lrs, seeds = ({pair[k] for pair in found}.union(*(one[k] for one in asked)) for k in (0, 1))
            grid = itertools.product(sorted(lrs), sorted(seeds))
            missing = [run_name(lr, seed) for lr, seed in grid if (lr, seed) not in found]
            if missing:
                problems.append(f'{"/".join(key)}: missing {", ".join(missing)}')
    for name in ('model', 'dataset'):
        absent = set(getattr(cfg, name + 's')) - {getattr(run, name) for run in runs}
        if absent:
            problems.append(f'{name}s: there is no {", ".join(sorted(absent))}')
    if not runs:
        raise ValueError('; '.join([f'{cfg.runs or cfg.results}: no runs there'] + problems))
    return runs, problems


def grouped(items, *names):
    """{(attribute, ...): [items]} in the order of first appearance."""
    groups = {}
    for item in items:
        groups.setdefault(tuple(getattr(item, name) for name in names), []).append(item)
    return groups


# ------------------------------------------------------------------------------------- selection and intervals

@dataclass(frozen=True)
class Cell:
    """A model on a dataset; scores and interval as fractions of 1."""
    mean: float
    low: float
    high: float
    scores: dict            # {seed: test score}
    n: int                  # instances; 0 where unknown, and of an average
    lrs: tuple              # that validation chose
    metric: str = ''
    draws: object = None    # of the bootstrap
    runs: tuple = ()


def choose_per_seed(runs):
    """The paper's selection: of each seed the run with the best validation score, of equals the smaller learning rate.

    A seed's only run needs no validation score. ValueError where the chosen run's test score is not known.
    """
    chosen = {}
    for (seed,), group in grouped(sorted(runs, key=lambda run: (run.seed, run.lr)), 'seed').items():
        known = [run for run in group if run.validation is not None]
        tested = [run for run in group if run.test is not None]
        run = max(known, key=lambda run: run.validation) if known else tested[0] if len(tested) == 1 else None
        if run is None or run.test is None:
            raise ValueError(f'{group[0].model} {group[0].dataset} seed {seed}: the test score of the run that validation '
                             'would choose is not there')
        chosen[seed] = run
    return chosen


def choose_one(runs):
    """{seed: run} of the learning rate with the best mean validation score, of those that have most seeds.

    Of equals the smaller learning rate.
    """
    by_lr = grouped(sorted(runs, key=lambda run: run.lr), 'lr')
    most = max(map(len, by_lr.values()))
    means = {lr: statistics.fmean(run.validation for run in group) if len(by_lr) > 1 else 0.0
             for lr, group in by_lr.items() if len(group) == most}
    return {run.seed: run for run in by_lr[max(means, key=means.get)]}


def paper_interval(scores):
    """(mean, half of the interval): 1.96 s / sqrt(n), s with n - 1; none for one score."""
    mean = statistics.fmean(scores)
    return mean, 1.96 * statistics.stdev(scores) / math.sqrt(len(scores)) if len(scores) > 1 else math.nan


def ratio(numerators, denominators):
    total = float(np.sum(denominators))
    return float(np.sum(numerators)) / total if total else 0.0


def bootstrap(numerators, denominators=None, resamples=10_000, seed=0):
    """(resamples, S): S scores of resampled instances, the same instances for all S.

    numerators, denominators  (N,) or (S, N); a score is sum / sum, or the mean where there are no denominators.
    A few resamples at once, so that their indices stay in the cache: twice as fast as a few hundred.
    """
    numerators = np.atleast_2d(np.asarray(numerators, float)).T                      # (N, S)
    denominators = None if denominators is None else np.atleast_2d(np.asarray(denominators, float)).T
    N, S = numerators.shape
    random = np.random.default_rng(seed)
    size, found = max(1, 100_000 // N), np.empty((resamples, S))
    for start in range(0, resamples, size):
        part = found[start:start + size]
        at = random.integers(0, N, (len(part), N), dtype=np.int32)
        if S == 1 and denominators is None:
            part[:, 0] = numerators[:, 0].take(at).mean(1)
            continue
        offset = np.arange(len(part), dtype=np.int32)[:, None] * N
        times = np.bincount((at + offset).ravel(), minlength=at.size).reshape(at.shape).astype(float)
        part[:] = times @ numerators
        below = float(N) if denominators is None else times @ denominators
        part[:] = np.divide(part, below, out=np.zeros_like(part), where=np.asarray(below) > 0)
    return found


def instance_draws(runs, resamples, seed):
    """(resamples,): the mean over seeds of resampled instances, the same ones for every model on a dataset."""
    counts = [np.array([run.detail[name] for run in runs]) for name in ('numerators', 'denominators')]
    plain = counts[1].min() == counts[1].max() == 1
    return bootstrap(counts[0], None if plain else counts[1], resamples, (seed, key_of(runs[0].dataset))).mean(1)


def seed_draws(scores, resamples, key):
    """(resamples,): how far the mean of a few seeds may be off, as Student's t with as many degrees of freedom as they have.

    Resampling them would understate their scatter: in simulation 95 % intervals then held 73 to 93 % of the time with
    three seeds and 90 to 95 % with five, and with t 94 to 98 %.
    One seed does not say.
    """
    if len(scores) < 2:
        return np.zeros(resamples)
    error = statistics.stdev(scores) / math.sqrt(len(scores))
    return error * np.random.default_rng(key).standard_t(len(scores) - 1, resamples)


def key_of(text):
    return zlib.crc32(text.encode())


def interval(draws):
    """95 %, by percentiles."""
    return tuple(np.percentile(draws, [2.5, 97.5]).tolist())


def make_cell(runs, cfg):
    """The Cell of one model's runs on one dataset. ValueError where they are not of one experiment."""
    where = f'{runs[0].model} {runs[0].dataset}'
    twice = [key for key, count in collections.Counter((run.lr, run.seed) for run in runs).items() if count > 1]
    if twice:
        raise ValueError(f'{where}: two runs are {run_name(*twice[0])}')
    if len({run.data for run in runs}) > 1 or len({run.kind for run in runs}) > 1:
        raise ValueError(f'{where}: its runs are of different data or kinds')
    for run in runs:
        first, own = runs[0].settings or {}, run.settings or {}
        differing = sorted(name for name in first.keys() | own if first.get(name) != own.get(name))
        if differing:
            raise ValueError(f'{where} is left out: its runs differ in {", ".join(differing)}; remove some, or give them '
                             'another --name or --predictions')
    chosen = choose_per_seed(runs) if cfg.protocol == 'paper' else choose_one(runs)
    scores = {seed: run.test for seed, run in chosen.items()}
    chosen = tuple(chosen.values())
    lrs = tuple(sorted({run.lr for run in chosen}))
    n = len((chosen[0].detail or {}).get('ids', ()))
    if cfg.protocol == 'paper':
        mean, half = paper_interval(list(scores.values()))
        return Cell(mean, mean - half, mean + half, scores, n, lrs, PAPER_METRIC[runs[0].task], None, chosen)
    draws = instance_draws(chosen, cfg.resamples, cfg.seed) + seed_draws(
        list(scores.values()), cfg.resamples, (cfg.seed, key_of(runs[0].dataset), key_of(runs[0].model)))
    low, high = (min(1.0, max(0.0, x)) for x in interval(draws))
    return Cell(statistics.fmean(scores.values()), low, high, scores, n, lrs, runs[0].metric, draws, chosen)


def average(cells, protocol):
    """The Cell of several datasets' mean: per seed, then as one dataset (the paper); or of the bootstrap's draws."""
    seeds = set.intersection(*(set(cell.scores) for cell in cells))
    scores = {seed: statistics.fmean(cell.scores[seed] for cell in cells) for seed in sorted(seeds)}
    if protocol == 'paper':
        mean, half = paper_interval(list(scores.values()))
        return Cell(mean, mean - half, mean + half, scores, 0, ())
    draws = np.mean([cell.draws for cell in cells], 0)
    return Cell(statistics.fmean(cell.mean for cell in cells), *interval(draws), scores, 0, (), draws=draws)


def all_cells(runs, cfg, problems):
    """{(model, task, dataset): Cell}, and of each model's task the 'Average' where it has several datasets."""
    order = {name: k for k, name in enumerate(cfg.models)}
    runs = sorted(runs, key=lambda run: (order.get(run.model, len(order)), run.kind == 'baseline', run.model != 'untrained',
                                         TASKS.index(run.task)))
    cells = {}
    for key, group in grouped(runs, 'model', 'task', 'dataset').items():
        try:
            cells[key] = make_cell(group, cfg)
        except ValueError as error:
            problems.append(str(error))
        except (TypeError, KeyError, AttributeError) as error:
            problems.append(f'{"/".join(key)}: its results are damaged, remove them: {error!r}')
    datasets = {task: {key[2] for key in cells if key[1] == task} for task in TASKS}  # an average is over all of these
    for model, task in {key[:2]: None for key in cells}:
        mine = {key[2]: cell for key, cell in cells.items() if key[:2] == (model, task)}
        seeds = set.intersection(*(set(cell.scores) for cell in mine.values()))
        if len(mine) > 1 and set(mine) == datasets[task] and seeds:
            cells[model, task, 'Average'] = average(list(mine.values()), cfg.protocol)
    return cells


# ---------------------------------------------------------------------------------------------------- tables

@functools.cache
def published_numbers():
    """{(model, task, the paper's word for the dataset): (mean, half of the interval)}, percent, of its appendix C."""
    with open(PAPER / 'tables.csv', newline='', encoding='utf-8') as file:
        return {(row['run'], row['task'], row['dataset']): (float(row['mean']), float(row['ci95']))
                for row in csv.DictReader(file)}


def published(model, task, dataset, datasets):
    """(mean, half of the interval) in percent, or None; of an average only where it is over the paper's three datasets."""
    if dataset == 'Average' and {PUBLISHED.get(name) for name in datasets} != {
            key[2] for key in published_numbers() if key[:2] == (model, task) and key[2] != 'Average'}:
        return None
    return published_numbers().get((model, task, PUBLISHED.get(dataset, dataset)))


def lr_text(lr):
    return run_name(lr, 0)[2:-4]


def cell_text(cell, protocol):
    if protocol == 'paper':
        return f'{100 * cell.mean:.2f} ({100 * (cell.high - cell.mean):.2f})' if len(cell.scores) > 1 else \
            f'{100 * cell.mean:.2f} (one seed)'
    return f'{100 * cell.mean:.1f} [{100 * cell.low:.1f}, {100 * cell.high:.1f}]'


def table(cfg):
    """Print a table for each kind of task: a row a model, a column a dataset. The exit code: 1 if runs are missing."""
    if cfg.published and not (cfg.runs or Path(cfg.predictions).exists() or Path(cfg.results).exists()):  # alone
        problems, cfg = [], dataclasses.replace(cfg, published=False, protocol='paper')
        cells = {key: Cell(mean / 100, (mean - half) / 100, (mean + half) / 100, dict.fromkeys(range(5)), 0, ())
                 for key, (mean, half) in published_numbers().items() if not cfg.models or key[0] in cfg.models}
    else:
        runs, problems = read_runs(cfg)
        cells = all_cells(runs, cfg, problems)
    for (task, dataset), group in grouped_cells(cells).items():
        if len({run.data for cell in group for run in cell.runs if run.data}) > 1:
            problems.append(f'{dataset}: its models were tested on different data, and cannot be compared')
    if cfg.format == 'csv':
        writer = csv.writer(sys.stdout, lineterminator='\n')
        writer.writerow(('model', 'task', 'dataset', 'metric', 'mean', 'low', 'high', 'n', 'seeds', 'lr', 'weights', 'data',
                         'protocol', *(('published', 'published_ci95') if cfg.published else ())))
        for (model, task, dataset), cell in cells.items():
            others = {key[2] for key in cells if key[:2] == (model, task)} - {'Average'}
            said = published(model, task, dataset, others) or ('', '')
            numbers = (f'{100 * x:.4f}' for x in (cell.mean, cell.low, cell.high))
            writer.writerow((model, task, dataset, cell.metric, *numbers,
                             cell.n or '', len(cell.scores), '|'.join(lr_text(lr) for lr in cell.lrs),
                             '|'.join(sorted({run.weights for run in cell.runs if run.weights})),
                             '|'.join(sorted({run.data[:12] for run in cell.runs})), cfg.protocol,
                             *(said if cfg.published else ())))
    else:
        for task in TASKS:
            if any(key[1] == task for key in cells):
                print_table(task, {key: cell for key, cell in cells.items() if key[1] == task}, cfg)
        print(explain(cfg))
    return report(problems)


def grouped_cells(cells):
    """{(task, dataset): [Cell of each model]}."""
    groups = {}
    for (_, task, dataset), cell in cells.items():
        groups.setdefault((task, dataset), []).append(cell)
    return groups


def print_table(task, cells, cfg):
    """Print {(model, task, dataset): Cell} of one kind of task."""
    models, datasets = ({key[k]: None for key in cells} for k in (0, 2))
    datasets = [name for name in datasets if name != 'Average'] + [name for name in datasets if name == 'Average']
    heads = []
    for dataset in datasets:
        mine = [cell for key, cell in cells.items() if key[2] == dataset]
        counts = sorted({cell.n for cell in mine if cell.n})
        n = f', n={"/".join(f"{n:,}" for n in counts)}' if counts else ''
        data = sorted({run.data[:8] for cell in mine for run in cell.runs if run.data})
        n += f', data {"/".join(data)}' if data else ''
        heads.append(f'{dataset} ({mine[0].metric}{n})' if mine[0].metric else dataset)
    rows = [[task, 'seeds', 'lr', *heads]]
    for model in models:
        mine = {key[2]: cell for key, cell in cells.items() if key[0] == model}
        plain = [cell for name, cell in mine.items() if name != 'Average']
        lrs = sorted({lr for cell in plain for lr in cell.lrs if lr})
        kinds = {run.kind for cell in plain for run in cell.runs} - {'', 'fine-tuned'}
        weights = {run.weights for cell in plain for run in cell.runs} - {'', 'fp32'}
        notes = ', '.join(sorted(kinds | weights))
        row = [f'{model} ({notes})' if notes else model, '/'.join(sorted({str(len(cell.scores)) for cell in plain})),
               '..'.join(lr_text(lr) for lr in sorted({lrs[0], lrs[-1]})) if lrs else '-']
        for dataset in datasets:
            text = cell_text(mine[dataset], cfg.protocol) if dataset in mine else '-'
            if cfg.published:
                said = published(model, task, dataset, [name for name in mine if name != 'Average'])
                text += f' / {said[0]:.2f} ({said[1]:.2f})' if said else ''
            row.append(text)
        rows.append(row)
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    if cfg.format == 'markdown':
        rows.insert(1, ['-' * width for width in widths])
        lines = ['| ' + ' | '.join(text.ljust(width) for text, width in zip(row, widths)) + ' |' for row in rows]
    else:
        lines = ['  '.join(text.ljust(width) for text, width in zip(row, widths)).rstrip() for row in rows]
    print('\n'.join(lines))
    print()


def explain(cfg):
    """What the numbers of a table are."""
    words = ('Protocol "paper": the learning rate of each seed by its own validation score; mean of the seeds and, in '
             'parentheses, 1.96 s / sqrt(seeds).\nTC is the mean over sentences of a macro F1 over word labels, "O" '
             'included: not comparable with entity F1. Instances do not enter the interval.'
             if cfg.protocol == 'paper' else
             'Mean over seeds at the learning rate of the best mean validation score; 95 % interval over test instances '
             '(bootstrap) and seeds (t).\nOne seed shows only the instances\' share. Intervals are of each model alone: '
             '`compare` tests differences.')
    return words + ('\nseeds a/b, lr a..b: datasets differ. data: the first digits of the sha256 of what was scored.'
                    ) + ('\nBehind the stroke: the paper\'s appendix C.' if cfg.published else '')


def report(problems):
    for problem in problems:
        print(f'warning: {problem}', file=sys.stderr)
    return 1 if problems else 0


def compare(cfg, first, second):
    """Paired bootstrap tests: second - first on the same test instances, per dataset. The exit code."""
    if cfg.protocol != 'standard' or cfg.published or cfg.models:
        raise ValueError('compare takes two models and the standard scores: leave --protocol, --published and --models out')
    runs, problems = read_runs(dataclasses.replace(cfg, models=(first, second)))
    cells = all_cells(runs, cfg, problems)
    shared = [key[1:] for key in cells if key[0] == first and key[2] != 'Average' and (second, *key[1:]) in cells]
    if not shared:
        report(problems)
        raise ValueError(f'{first} and {second} have no dataset in common')
    print(f'{second} - {first}, in points; p is two-sided')
    for task, dataset in shared:
        a, b = cells[first, task, dataset], cells[second, task, dataset]
        if a.runs[0].detail['ids'] != b.runs[0].detail['ids'] or a.runs[0].data != b.runs[0].data:
            problems.append(f'{dataset}: the two models were tested on different data')
            continue
        low, high, p = paired(a, b, cfg)
        print(f'  {task} {dataset:<14} {100 * a.mean:6.1f} -> {100 * b.mean:6.1f}   {100 * (b.mean - a.mean):+.1f} '
              f'[{100 * low:+.1f}, {100 * high:+.1f}]   p = {p:.4f}   n = {a.n:,}, '
              f'{len(a.scores)} and {len(b.scores)} seeds')
    if any(len(cells[model, *key].scores) == 1 for model in (first, second) for key in shared):
        print('One seed shows only what the choice of test instances does: another seed may turn the sign.')
    return report(problems)


def paired(a, b, cfg):
    """(low, high, p) of b - a, on the same resampled instances, and seed by seed where both have the same seeds.

    A seed fixes the order of the data and the head's weights, so two models' runs of one seed go up and down together.
    """
    draws = instance_draws(b.runs, cfg.resamples, cfg.seed) - instance_draws(a.runs, cfg.resamples, cfg.seed)
    if a.scores.keys() == b.scores.keys():
        draws += seed_draws([b.scores[seed] - a.scores[seed] for seed in a.scores], cfg.resamples, (cfg.seed, 1))
    else:
        for k, cell in enumerate((a, b)):
            draws += seed_draws(list(cell.scores.values()), cfg.resamples, (cfg.seed, 2 + k))
    smaller = min((draws <= 0).mean(), (draws >= 0).mean())
    return *interval(draws), min(1.0, max(2 * smaller, 2 / (len(draws) + 1)))


# --------------------------------------------------------------------------------------------------- figures

@functools.cache
def paper_models():
    """{name: its pretraining} of the paper's 50 models, as finetune.py writes it for ours."""
    with open(PAPER / 'models.csv', newline='', encoding='utf-8') as file:
        return {row['model']: row | {'phases': json.loads(row['phases']), 'mask_ratio': float(row['mask_ratio']),
                                     'step': int(row['step']), 'flops': float(row['flops'])}
                for row in csv.DictReader(file)}


def figure_points(cfg, problems):
    """[(model, pretraining, task, mean, low, high)] in percent: the task averages, or its only dataset."""
    if cfg.published:
        return [(model, paper_models()[model], task, mean, mean - half, mean + half)
                for (model, task, dataset), (mean, half) in published_numbers().items()
                if dataset == 'Average' and (not cfg.models or model in cfg.models)]
    runs, found = read_runs(cfg)
    problems += found
    pretraining = {run.model: run.pretraining for run in runs if run.pretraining}
    kinds = {run.model: run.kind for run in runs}
    cells = {key: cell for key, cell in all_cells(runs, cfg, problems).items() if key[2] != 'Average'}
    points = []
    for task in TASKS:
        models = dict.fromkeys(key[0] for key in cells if key[1] == task)
        shared = [{key[2] for key in cells if key[:2] == (model, task)} for model in models]
        datasets = sorted(set.intersection(*shared)) if shared else []
        if left := set().union(*shared) - set(datasets):
            problems.append(f'{task}: {", ".join(sorted(left))} left out, which not all models have')
        for model in models if datasets else ():
            mine = [cells[model, task, dataset] for dataset in datasets]
            cell = average(mine, cfg.protocol) if len(mine) > 1 else mine[0]
            about = pretraining.get(model) or paper_models().get(model)
            label = f'{model} (probe)' if kinds[model] == 'probe' else model
            points.append((label, about, task, *(100 * x for x in (cell.mean, cell.low, cell.high))))
    return points


def share_of_clm(about):
    """Of the steps done so far, in percent."""
    steps, ends = 0, 0
    for kind, count in about['phases']:
        steps += min(count, max(0, about['step'] - ends)) if kind == 'clm' else 0
        ends += count
    return 100 * steps / about['step']


def trained_with(about, ratio=True):
    """A legend's words: family, then CLM, MLM 40 %, CLM then MLM 40 %."""
    words = [kind.upper() + (f' {about["mask_ratio"]:.0%}' if ratio and kind != 'clm' else '')
             for kind, _ in about['phases']]
    return f'{about.get("family", "")} {" then ".join(words)}'.strip()


def of_a_run(about):
    """The line of a run's checkpoints: with those of another length it shares no schedule."""
    return f'{trained_with(about)}, of {sum(steps for _, steps in about["phases"]):,} steps'


def finished(about):
    return about['step'] == sum(steps for _, steps in about['phases'])


def ratio_point(about):
    if about['phases'][-1][0] != 'clm' and finished(about):
        return f'{trained_with(about, ratio=False)}, {about["step"]:,} steps', 100 * about['mask_ratio']


def share_point(about):
    if finished(about):
        line = f'{about.get("family", "")} {about["step"]:,} steps, MLM {about["mask_ratio"]:.0%}'
        return line.strip(), share_of_clm(about)


FIGURES = {  # name: (x axis, logarithmic, (line, x) of a model's pretraining, or None); continued models are in cpt alone
    'ratio': ('masking ratio, %', False, ratio_point),
    'share': ('share of CLM, % of the steps', False, share_point),
    'steps': ('pretraining steps', True, lambda about: (of_a_run(about), about['step'])),
    'flops': ('pretraining FLOPs', True, lambda about: (of_a_run(about), about['flops'])),
    'cpt': ('steps of continued pretraining', False, lambda about: (f'{about["continues"]}, then MLM', about['step'])),
}


def figure(cfg, kind, arguments):
    """Write <out>/<kind>.png. The exit code."""
    if cfg.published and kind in ('lr', 'switch'):
        raise ValueError(f'figure {kind}: the paper publishes no numbers for it; leave --published out')
    if kind not in (*FIGURES, 'bars', 'lr', 'switch'):
        raise ValueError(f'figure is one of {", ".join((*FIGURES, "bars", "lr", "switch"))}, not {kind!r}')
    import matplotlib
    matplotlib.use('Agg')
    import matplotlib.pyplot as plt
    problems = []
    if kind == 'switch':
        drawn = draw_switch(plt, arguments)
    elif kind == 'lr':
        drawn = draw_lr(plt, cfg, problems)
    else:
        drawn = draw_points(plt, kind, figure_points(cfg, problems))
    path = Path(cfg.out) / f'{kind}.png'
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn.savefig(path, dpi=150, bbox_inches='tight')
    print(path)
    return report(problems)


def axes_for(plt, tasks, height=3.2):
    drawn, axes = plt.subplots(1, len(tasks), figsize=(3.6 * len(tasks), height), squeeze=False)
    for ax, task in zip(axes[0], tasks):
        ax.set_title(task)
        ax.grid(alpha=0.3)
    return drawn, dict(zip(tasks, axes[0]))


def draw_bars(plt, tasks, points):
    """A panel a task, a bar a model, each in its row in all panels."""
    models = list(dict.fromkeys(point[0] for point in points))
    drawn, axes = axes_for(plt, tasks, max(3.2, 0.25 * len(models)))
    for model, about, task, mean, low, high in points:
        axes[task].barh(models.index(model), mean, xerr=[[mean - low], [high - mean]], capsize=3, color='C0')
    for task, ax in axes.items():
        ax.set_yticks(range(len(models)), models if task == tasks[0] else [''] * len(models))
        ax.set_ylim(len(models) - 0.5, -0.5)
        ax.set_xlabel('score, %')
    return drawn


def draw_points(plt, kind, points):
    """A panel a task: a line for each family of models, or a bar a model; error bars are 95 % intervals."""
    tasks = [task for task in TASKS if any(point[2] == task for point in points)]
    if kind == 'bars':
        return draw_bars(plt, tasks, points)
    label, logarithmic, place = FIGURES[kind]
    lines = {}
    for model, about, task, *values in points:
        if about and bool(about.get('continues')) == (kind == 'cpt') and (where := place(about)):
            name = where[0] + (', probe' if model.endswith(' (probe)') else '')
            lines.setdefault((task, name), []).append((where[1], *values))
    longer = {key: values for key, values in lines.items() if len({x for x, *_ in values}) > 1}
    lines = longer or lines
    tasks = [task for task in tasks if any(key[0] == task for key in lines)]
    if not lines:
        raise ValueError(f'figure {kind}: none of these models has what it shows ({label})')
    drawn, axes = axes_for(plt, tasks)
    colours = {name: f'C{k % 10}' for k, name in enumerate(dict.fromkeys(name for _, name in lines))}
    for (task, name), values in lines.items():
        x, mean, low, high = map(np.array, zip(*sorted(values)))
        axes[task].errorbar(x, mean, [mean - low, high - mean], marker='o', markersize=3, capsize=2, label=name,
                            color=colours[name], linestyle='-' if len(x) > 1 else 'none')
        axes[task].set_xlabel(label)
        axes[task].set_xscale('log' if logarithmic else 'linear')
        axes[task].xaxis.set_minor_formatter('')
    axes[tasks[0]].set_ylabel('score, %')
    handles = {name: handle for ax in axes.values() for handle, name in zip(*ax.get_legend_handles_labels())}
    drawn.legend(handles.values(), handles, loc='lower center', bbox_to_anchor=(0.5, 1.0), ncol=min(4, len(handles)))
    return drawn


def draw_lr(plt, cfg, problems):
    """Test score against the fine-tuning learning rate, mean and range of the seeds (the paper's figure 5)."""
    runs, found = read_runs(cfg)
    problems += found
    runs = [run for run in runs if run.lr and run.test is not None]
    for name in ('model', 'dataset'):
        absent = set(getattr(cfg, name + 's')) - {getattr(run, name) for run in runs}
        if absent:
            problems.append(f'{name}s: there is no {", ".join(sorted(absent))}')
    if not runs:
        raise ValueError('figure lr: no run has a learning rate')
    tasks = [task for task in TASKS if any(run.task == task for run in runs)]
    drawn, axes = axes_for(plt, tasks)
    models = list(dict.fromkeys(run.model for run in runs))
    for (model, task), group in grouped(runs, 'model', 'task').items():
        by_seed = {}  # the datasets' mean, seed by seed
        for (lr, seed), same in grouped(group, 'lr', 'seed').items():
            by_seed.setdefault(lr, []).append(100 * statistics.fmean(run.test for run in same))
        x = sorted(by_seed)
        colour = f'C{models.index(model) % 10}'
        low, mean, high = ([f(by_seed[lr]) for lr in x] for f in (min, statistics.fmean, max))
        axes[task].plot(x, mean, marker='o', markersize=3, label=model, color=colour)
        axes[task].fill_between(x, low, high, alpha=0.15, color=colour)
        axes[task].set_xscale('log')
        axes[task].set_xticks(x, [lr_text(lr) for lr in x])
        axes[task].xaxis.set_minor_formatter('')
        axes[task].set_xlabel('learning rate')
    axes[tasks[0]].set_ylabel('test score, %')
    axes[tasks[0]].legend(fontsize=7)
    return drawn


def draw_switch(plt, folders):
    """Training loss and gradient norm against the step; a line in the plot where the objective changes (figure 12)."""
    if not folders:
        raise ValueError('figure switch takes folders of pretraining runs, as: figure switch out/tiny-clm-mlm40')
    drawn, axes = plt.subplots(2, 1, figsize=(7, 5), sharex=True)
    for k, folder in enumerate(folders):
        config, lines = read_log(folder)
        for ax, name in zip(axes, ('loss', 'grad_norm')):
            ax.plot([line['step'] for line in lines], [line[name] for line in lines], color=f'C{k % 10}',
                    label=config['name'], linewidth=1)
        for step in itertools.accumulate(steps for _, steps in config['phases'][:-1]):
            for ax in axes:
                ax.axvline(step, color=f'C{k % 10}', linestyle=':', linewidth=1)
    axes[0].set_ylabel('loss, nats per target')
    axes[1].set_ylabel('gradient norm')
    axes[1].set_xlabel('step')
    axes[1].set_yscale('log')
    axes[0].legend(fontsize=8)
    return drawn


# ---------------------------------------------------------------------------------------- pretraining's losses

# what does not make two runs different experiments
INCIDENTAL = ('name', 'phases', 'starts', 'branch_from', 'weights_from', 'micro_rows', 'log_every', 'val_every',
              'save_every', 'save_at', 'keep', 'parallel', 'device', 'compile', 'recompute', 'corpus', 'out')


def read_log(folder):
    """(config.json, lines of log.jsonl) of out/<name>."""
    folder = Path(folder)
    try:
        config = json.loads((folder / 'config.json').read_text(encoding='utf-8'))
        lines = [json.loads(line) for line in (folder / 'log.jsonl').read_text(encoding='utf-8').splitlines()]
    except OSError:
        raise ValueError(f'{folder}: no pretraining run there (config.json and log.jsonl)') from None
    except ValueError as error:
        raise ValueError(f'{folder}: config.json or log.jsonl is damaged: {error}') from None
    if not isinstance(config, dict) or 'corpus_meta' not in config or not lines:
        raise ValueError(f'{folder}: has no log of a pretraining run yet')
    return config, lines


def read_run(folder):
    """(config.json, lines of log.jsonl, the last line with a validation) of out/<name>."""
    config, lines = read_log(folder)
    validated = [line for line in lines if 'val_clm_loss' in line]
    if not validated:
        raise ValueError(f'{folder}: has no validation yet')
    return config, lines, validated[-1]


def losses(folders):
    """Print the last validation of each run in nats per target, beside that of token frequencies alone."""
    if not folders:
        raise ValueError('losses takes folders of pretraining runs, as: losses out/tiny-clm out/tiny-mlm40')
    runs = [read_run(folder) for folder in folders]
    kinds = [kind for kind in ('clm', 'mlm', 'mntp') if any(f'val_{kind}_loss' in last for _, _, last in runs)]
    print(f'{"run":<20} {"phases":<28} {"step":>7} {"tokens":>14} ' + ' '.join(f'{f"val {kind}":>8}' for kind in kinds) +
          f' {"tokens/s":>9}')
    for config, lines, last in runs:
        phases = ', then '.join(f'{steps:,} {kind}' for kind, steps in config['phases'])
        speed = statistics.median(line['tokens_per_second'] for line in lines)
        found = [last.get(f'val_{kind}_loss') for kind in kinds]
        print(f'{config["name"]:<20} {phases:<28} {last["step"]:>7,} {last["tokens"]:>14,} ' +
              ' '.join(' ' * 8 if loss is None else f'{loss:>8.3f}' for loss in found) + f' {speed:>9,.0f}')
    for meta in {run[0]['corpus_meta']['fingerprint']: run[0]['corpus_meta'] for run in runs}.values():
        if meta['unigram_loss']:
            print(f'{"token frequencies":<72} {meta["unigram_loss"]:>8.3f} {meta["unigram_loss"]:>8.3f}')
        print(f'corpus fingerprint {meta["fingerprint"][:12]}')
    for mlm, both in itertools.permutations(runs, 2):
        compare_losses(mlm, both)


def compare_losses(mlm, both):
    """One sentence on MLM against CLM then MLM, if nothing else differs between the two runs."""
    def kinds(run):
        return [kind for kind, _ in run[0]['phases']]

    def rest(run):
        return {name: value for name, value in run[0].items() if name not in INCIDENTAL}
    equal = rest(mlm) == rest(both) and all(mlm[2][name] == both[2][name] for name in ('step', 'rows'))
    if kinds(mlm) == ['mlm'] and kinds(both) == ['clm', 'mlm'] and equal:
        gain = mlm[2]['val_mlm_loss'] - both[2]['val_mlm_loss']
        print(f'\nAt equal steps on the same rows, {both[0]["name"]} ends {abs(gain):.3f} nats '
              f'{"below" if gain > 0 else "above"} {mlm[0]["name"]} in MLM loss:\n'
              f'{"" if gain > 0 else "not "}the direction of the paper. One seed of one model shows a direction, no more; '
              f'the claim is about fine-tuned scores.')


def main():
    words = list(itertools.takewhile(lambda word: not word.startswith('--'), sys.argv[1:]))
    cfg, _ = configs.parse(Settings, sys.argv[1 + len(words):])
    match words:
        case ['table']:
            sys.exit(table(cfg))
        case ['compare', first, second]:
            sys.exit(compare(cfg, first, second))
        case ['figure', kind, *rest]:
            sys.exit(figure(cfg, kind, rest))
        case ['losses', *folders]:
            losses(folders)
        case _:
            raise ValueError('the command is table, compare MODEL MODEL, figure KIND (bars, share, ...), or losses FOLDER ...; see --help')


if __name__ == '__main__':
    configs.run(main)

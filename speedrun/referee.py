"""The speedrun's referee: it trains runs again, compares, and says what a maintainer must read.

    python speedrun/referee.py configs/try.py --mask_ratio=0.3      # may a run have these settings?
    python speedrun/referee.py out/mine-s*                          # four runs' row, not verified
    python speedrun/referee.py out/mine-s* --replay                 # trains a seed again, which it draws
    python speedrun/referee.py out/mine-s* --every_seed             # before a row is accepted

README.md has the game. What passes here is what its settings and its commit give, and breaks no rule that a
program can see. Whether the code is honest is for a maintainer to read: UNSEEN says where it could cheat.

What a run's folder says is a claim, and its commit is a stranger's: fetch.py writes its files as git
shows them. With --replay a seed is trained from them, in a process of its own, where replay.py writes
down what each step reads and computes. The row then has what these weights give, and a claim that differs is
refused. --every_seed trains all of them again, and then four seeds that nobody could know, which it measures
on other held-out rows. The law of the rows and the measure are this checkout's files: of the claim's, only
model.py helps to measure."""
import contextlib
import filecmp
import hashlib
import json
import math
import os
import re
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

if __name__ == '__main__':  # before torch loads OpenMP, which reads it: waiting threads sleep, not spin
    os.environ.setdefault('OMP_WAIT_POLICY', 'passive')
sys.path.insert(0, str(Path(__file__).parents[1]))  # the root, where pretrain.py is

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import safe_open

import pretrain
from data import OBJECTIVES, VALIDATION, Corpus, make_batch, objective_at, rows_of_step
from evaluate import find_runs
from model import Model
from nanoencoder.files import read_json, saved_steps, write_sealed
from nanoencoder.huggingface import MOMENTS, NAMES, WEIGHTS, read_state
from nanoencoder.prepare import clean, corpus_fingerprint, hash_of, verify
from nanoencoder.pretraining import cost
from nanoencoder.pretraining.checkpoint import refuse_differences
from nanoencoder.pretraining.counts import CONTEXTS
from nanoencoder.settings import (
    as_tuple,
    check,
    flat,
    interrupt_on_signals,
    make_settings,
    parse,
    run_main,
    setting,
    split_words,
)
from speedrun import fetch
from studies.hold_out import read_rows
from studies.run import start_script

TEXTS = 'b8b32dbdc2e6'              # the first digits of the corpus's fingerprint
PAGE = 'speedrun/rows.md'     # whose table has the records
TARGET = 5.2                    # of the track `steps`: nats that the mean held-out loss lies below
LONGEST = 3_600                 # steps of the track `transfer`, at most
PROBED = ('configs/tasks/docs_tc.py', 'configs/tasks/wn_sc.py', 'configs/tasks/docs_ir.py')   # its tasks
SEEDS = [0, 1, 2, 3]
PARAMETERS = 1_500_000          # at most
OPERATIONS = 9e9                # of a step, at most, as cost.py counts them
# settings that are not the player's
FIXED = {'context': 512, 'rows_per_step': 2, 'cut_rows': True, 'first_row': 0, 'branch_from': '',
         'weights_from': '', 'mask_replace': (1.0, 0.0, 0.0), 'val_rows': 128, 'val_mask_ratio': 0.4}
# how far apart nats, or points, of the same seed may be that two kinds of processor give
TOLERANCE = {'steps': 0.02, 'transfer': 1.0}
ROOT = Path(__file__).resolve().parents[1]
WITNESS = ROOT / 'speedrun/replay.py'
MEASURED = 128                  # held-out rows, the first ones, of which the rows of the page are
# nats by which all other held-out rows are harder: two seeds of quick-900, of 5.118 and 5.122, have 0.025
# and 0.018 less there
HARDER = -0.02
# what no replay shows, and whoever reads the commit can see; referee.md says more of each
UNSEEN = (
    'work that torch does not count: in NumPy, in threads and processes, in an optimizer\'s step',
    'what a loss learns from: weights of positions, targets of other positions, a second loss in one pass',
    'text, tables and weights that lie in the commit, or elsewhere on the disk',
    'code that knows that it is watched, and code that is made of text or read from data (exec, pickle)',
    'what is counted before the first step, where it may be rows that no step of the run reads',
    'a seed that is not used',
)
# Operations that torch counts in a replay, as a multiple of what cost.py counts, at most. Honest code has
# 0.73 (on CPUs torch counts no attention) to 1.02; layers that are run through five times have 4.5 to 5.3.
MOST = 1.25


@dataclass(frozen=True)
class Rules:
    track: str = setting('steps', choices=('steps', 'transfer'))
    replay: bool = False            # train a seed again, which is drawn
    every_seed: bool = False        # train all of them again, and four that nobody could know
    corpus: str = 'corpora/speedrun'
    repository: str = '.'           # which has the runs' commit: a folder, or an address
    __post_init__ = check


class Claim(NamedTuple):
    """What a run's folder says."""
    folder: str
    checkpoint: Path            # the last
    settings: dict              # as its state.json has them
    cfg: pretrain.Settings      # the same, as this checkout knows them
    start: dict                 # commit, processor and threads of its last start


class Code(NamedTuple):
    """The commit of the runs, and what is made of it."""
    commit: str
    repository: Path    # ours, which has fetched it
    files: dict         # {path: bytes}, as git shows them
    measure: Path       # a folder with this checkout's files, but for the commit's model.py


class Row(NamedTuple):
    """A line of the page's table."""
    steps: int
    values: list        # of the seeds: nats or points
    p: float


def demand(holds, *words):
    if not holds:
        raise ValueError(': '.join(map(str, words)))


# ---------------------------------------------------------------------------
# Do settings and runs keep the rules?


def check_settings(what, cfg):
    """Return how many operations a step takes. ValueError if settings are not the player's, or too large."""
    for name, value in FIXED.items():
        found = getattr(cfg, name)
        demand(found == value, what, f'{name} is {found!r}, and must be {value!r}')
    with torch.device('meta'):
        parameters = cost.numbers_in(Model(cfg.model).parameters())
    demand(parameters <= PARAMETERS, what, f'{parameters:,} parameters are more than {PARAMETERS:,}')
    tokens = cfg.rows_per_step * cfg.context
    operations = max(tokens * cost.flops_per_token(cfg, objective) for objective in dict(cfg.phases))
    demand(operations <= OPERATIONS, what,
           f'{operations:.3g} operations a step are more than {OPERATIONS:.3g}')
    return operations


def read_claim(folder):
    """Return the Claim of a run. ValueError if its settings break a rule, or it has not come to its end."""
    steps = saved_steps(folder)
    demand(steps, folder, 'has no checkpoint')
    checkpoint = Path(folder, str(steps[-1]))
    state = read_state(checkpoint, but=(MOMENTS,))      # files are compared with their sha256
    demand(state, folder, 'has no state.json, which pretrain.py writes')
    demand(state['corpus_meta']['fingerprint'].startswith(TEXTS), folder, 'is not of the game\'s texts')
    settings = state['settings']
    known = {'phases': [known_phase(folder, *phase) for phase in settings['phases']]}
    cfg = make_settings(pretrain.Settings, settings | known)
    demand(settings.keys() == flat(cfg).keys(), folder, 'has other settings than pretrain.py')
    check_settings(folder, cfg)
    check_sizes(folder, checkpoint, cfg)
    demand(state['step'] == steps[-1] == cfg.total_steps, folder, f'is no run of {cfg.total_steps:,} steps')
    return Claim(folder, checkpoint, settings, cfg, state['starts'][-1])


def known_phase(folder, objective, steps):
    """Return a phase as this checkout knows it. The objective of a claim is a name, and what it does is asked
    of no code of the claim's: one that only its commit has is counted as CLM, which has the most targets."""
    is_name = isinstance(objective, str) and re.fullmatch(r'\w+', objective)
    demand(is_name, folder, f'phases has {objective!r:.80}, and an objective is a name')
    return objective if objective in OBJECTIVES else 'clm', steps


def check_sizes(what, checkpoint, cfg):
    """ValueError if a checkpoint's model is another than that of its settings, or has too many numbers."""
    config = read_json(checkpoint / 'config.json')
    sizes = {name: getattr(cfg.model, name) for name in NAMES} | {'head_dim': cfg.model.head_size}
    for name, value in sizes.items():
        demand(config.get(name) == value, what,
               f'its model has {name} = {config.get(name)!r:.80}, and its settings {value!r}')
    with safe_open(checkpoint / WEIGHTS, 'np') as file:
        numbers = sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())
    demand(numbers <= PARAMETERS, what, f'its model has {numbers:,} numbers, more than {PARAMETERS:,}')


def check_together(claims):
    """Return the commit of the runs. ValueError unless they are of seeds 0 to 3, differ in nothing else, and
    were trained by one commit, unchanged."""
    seeds = sorted(claim.cfg.seed for claim in claims)
    demand(seeds == SEEDS, f'runs of seeds {SEEDS} are needed, not {seeds}')
    first = claims[0]
    alike = first.settings.keys() - {'seed', 'name', 'out', 'corpus'}
    for claim in claims:
        refuse_differences(first.folder, first.settings, claim.settings, alike, 'only seeds may differ')
    commit = ', '.join(sorted({claim.start['git'] for claim in claims}))
    demand(re.fullmatch('[0-9a-f]{40}', commit), f'one commit that git knows is needed, not {commit}',
           'commit, then train all seeds again')
    return commit


def fetch_code(commit, rules, folder):
    """Return the Code of a commit, made in a folder. ValueError if git would show other files than run."""
    repository = folder / 'git'
    repository.mkdir()
    fetch.fetch(commit, rules.repository, repository)
    files = fetch.read_files(repository, commit)
    demand('model.py' in files, commit, 'has no model.py')
    measure = folder / 'measure'
    compiled = shutil.ignore_patterns('__pycache__')
    shutil.copytree(ROOT / 'nanoencoder', measure / 'nanoencoder', ignore=compiled)
    for script in ROOT.glob('*.py'):
        shutil.copy(script, measure)
    (measure / 'model.py').write_bytes(files['model.py'])
    return Code(commit, repository, files, measure)


def show_what_to_read(code):
    """Print what a maintainer must read, as no replay shows it."""
    print(f'A maintainer must read commit {code.commit[:8]}: a replay cannot tell honest code from code that '
          'cheats.')
    show_differences(code)
    print('No replay shows')
    for what in UNSEEN:
        print(f'- {what}')


def show_differences(code):
    """Print the files in which a commit differs from this checkout's, which a maintainer knows."""
    ours = fetch.git(ROOT, 'rev-parse', '--verify', '--quiet', 'HEAD').stdout.decode().strip()
    if not ours:
        print('All files of it: git has no commit here that they could be compared with.')
        return
    fetch.fetch(ours, ROOT, code.repository)
    stat = fetch.git(code.repository, 'diff', '--stat=100', '--no-ext-diff', ours, code.commit)
    print(f'It differs from this checkout\'s commit {ours[:8]} in')
    print(stat.stdout.decode(errors='replace').rstrip() or ' nothing')


# ---------------------------------------------------------------------------
# What weights are worth


def measure(checkpoint, rows, code, corpus, rules):
    """Return what a track counts of a checkpoint: nats of held-out loss of these rows, or points of the
    probes."""
    if rules.track == 'transfer':
        return probe(checkpoint, code)
    losses = held_out_losses(checkpoint, rows, code, corpus)
    words = [f'{source} {loss:.2f}' for source, loss in losses.items()]
    print(f'{checkpoint}: nats by source: {", ".join(words)}')
    return losses['all']


def held_out_losses(checkpoint, rows, code, corpus):
    """{'all', and each source of texts: nats a masked token} of a range of held-out rows. Rows and masks are
    the same for every run, and those of pretrain.py's val_mlm_loss."""
    cfg = pretrain.Settings(name='validation', mask_ratio=0.4, **FIXED)
    batches = []
    for first in rows[::2]:
        pair = [(k, k) for k in rows if first <= k < first + 2]
        batch, _ = make_batch(corpus, 'validation', pair, VALIDATION, 'mlm', cfg)
        batches.append(batch)
    losses = []
    places = []     # of each loss in the held-out stream
    for first, batch, logits in zip(rows[::2], batches, answers(checkpoint, batches, code, corpus)):
        targets = torch.from_numpy(batch.targets[batch.at])
        losses.append(F.cross_entropy(logits, targets, reduction='none'))
        places.append(batch.at + first * cfg.context)
    losses = torch.cat(losses).double().numpy()
    found = {'all': losses.mean()}
    sources = sources_of(corpus)[np.concatenate(places)]
    for source in np.unique(sources):
        found[source] = losses[sources == source].mean()
    return found


def answers(checkpoint, batches, code, corpus):
    """Yield the logits (T, V) that a model gives at the masked positions of each Batch. A process of its own
    computes them, as its model.py is the claim's; it is not told the targets."""
    with tempfile.NamedTemporaryFile('w', suffix='.jsonl') as file:
        for batch in batches:
            question = {'tokens': batch.tokens.tolist(), 'lengths': batch.lengths,
                        'at': batch.at.tolist()}
            file.write(json.dumps(question) + '\n')
        file.flush()
        process = start_script(
            WITNESS, 'answer', checkpoint.resolve(), file.name,
            cwd=code.measure, env=environment(), stdout=subprocess.PIPE)
        with ended(process):
            for batch in batches:
                shape = len(batch.at), corpus.meta['vocab_size']
                content = process.stdout.read(4 * math.prod(shape))
                demand(len(content) == 4 * math.prod(shape), checkpoint, 'its model fails, as it says above')
                yield torch.frombuffer(bytearray(content), dtype=torch.float32).view(shape)


def sources_of(corpus):
    """(N,) names: the source of each held-out token."""
    shards, _ = corpus.streams['validation']
    is_end = np.concatenate(shards) == corpus.meta['eos_token_id']
    number = np.cumsum(is_end) - is_end     # of each token's text
    rows = []
    for path in corpus.meta['settings']['val_path'].split(', '):
        rows += read_rows(Path(path))
    if corpus.meta['settings'].get('val_shuffled'):
        rows.sort(key=lambda row: hash_of(clean(row['text'])))
    # numpy/core/a.py; noun00006024, of WordNet
    names = [row['file'].partition('/')[0] if '/' in row['file'] else 'WordNet' for row in rows]
    return np.array(names)[number]


def probe(checkpoint, code):
    """Return the mean test score, in points, of what three tasks read from frozen features."""
    with tempfile.TemporaryDirectory() as out:
        for config in PROBED:
            exit_code = run(code.measure / 'finetune.py', config, '--probe', f'--model={checkpoint}',
                            f'--predictions={out}')
            demand(exit_code == 0, config, 'its probe failed, as it says above')
        scores = [load()['test']['standard']['score'] for _, _, load in find_runs(Path(out))]
    return 100 * statistics.fmean(scores)


def run(script, *words, folder='.', **variables):
    """Run a script to its end, and return its exit code. If this process is killed, the script is, too."""
    process = start_script(script, *words, cwd=folder, env=environment(**variables))
    with ended(process):
        return process.wait()


def environment(**variables):
    """Return the variables of a process: this one's, but for what has Python read files from elsewhere."""
    return os.environ | {'PYTHONPATH': '', 'PYTHONNOUSERSITE': '1'} | variables


@contextlib.contextmanager
def ended(process):
    """Kill a process at the end, if it has not come to its own."""
    try:
        yield
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


# ---------------------------------------------------------------------------
# Train again


def replay(claim, value, code, corpus, rules):
    """Train a claim's seed again. Returns what its weights are worth. ValueError if a step reads what it may
    not, or if the claim, of this value, is another than what comes out."""
    with tempfile.TemporaryDirectory() as out:
        checkpoint = trained(claim, code, corpus, out)
        again = measure(checkpoint, first_rows(corpus), code, corpus, rules)
        how = compare(claim, value, checkpoint, again, rules)
    print(f'{claim.folder}: trained again, {how}')
    return again


def trained(claim, code, corpus, out):
    """Train a claim's seed again in a folder. Returns its checkpoint. ValueError if it breaks a rule."""
    train_again(claim, code, corpus, out)
    check_read(claim, corpus, out)
    check_operations(claim, out)
    checkpoint = Path(out, 'again', str(claim.cfg.total_steps))
    check_sizes(claim.folder, checkpoint, claim.cfg)
    return checkpoint


def train_again(claim, code, corpus, out):
    """Train a claim's seed with its settings and commit, in OUT/again. It is given no held-out text."""
    texts = without_held_out(corpus, Path(out, 'corpus'))
    settings = claim.settings | {
        'name': 'again', 'out': out, 'row': '', 'corpus': texts, 'device': 'cpu',
        'val_every': 0, 'val_rows': 0, 'save_every': 0, 'save_at': ()}
    words = [f'--{name}={as_tuple(value)}' for name, value in settings.items()]
    with tempfile.TemporaryDirectory() as tree:
        fetch.write_files(code.files, tree)
        threads = str(claim.start['threads'])
        exit_code = run(WITNESS, 'train', out, *words, folder=tree, OMP_NUM_THREADS=threads,
                        PYTHONPYCACHEPREFIX=out)    # no .pyc that the code wrote stands for another source
    demand(exit_code == 0, claim.folder, 'its commit does not train without held-out texts, as it says above')


def without_held_out(corpus, folder):
    """Copy a corpus into a new folder, but for its held-out texts. Returns the folder."""
    folder.mkdir()
    held_out = [shard['name'] for shard in corpus.meta['val_shards']]
    for path in corpus.folder.iterdir():
        if path.is_file() and path.name not in held_out:
            shutil.copy(path, folder)
    none = {'val_shards': [], 'val_tokens': 0, 'val_documents': 0, 'unigram_loss': None}
    meta = corpus.meta | none
    meta.pop('digest', None)
    meta['fingerprint'] = corpus_fingerprint(meta)
    write_sealed(folder / 'meta.json', meta)
    return folder


def check_read(claim, corpus, out):
    """ValueError unless each step of a replay read its rows once, masked, and predicted tokens of them."""
    cfg = claim.cfg
    size = cfg.rows_per_step * cfg.context
    num_stretches = corpus.num_stretches('train', cfg.context)
    read, targets = (np.fromfile(Path(out, name), np.int32) for name in ('tokens', 'targets'))
    demand(len(read) == cfg.total_steps * size, claim.folder,
           f'read {len(read):,} tokens, where its steps have {cfg.total_steps * size:,}')
    for step in range(cfg.total_steps):
        rows = rows_of_step(step, num_stretches, cfg)
        law = np.concatenate([corpus.stretch('train', k, cfg.context) for _, k in rows])
        here = slice(step * size, (step + 1) * size)
        others = (read[here] != law) & (read[here] != corpus.meta['mask_token_id'])
        demand(not others.any(), claim.folder,
               f'step {step + 1:,} read other tokens than those of its rows')
        wanted = targets[here][targets[here] >= 0]
        demand(np.isin(wanted, law).all(), claim.folder,
               f'step {step + 1:,} learned to predict tokens that are not in its rows')


def check_operations(claim, out):
    """ValueError if a replay computed more than cost.py counts: layers run through twice, say, or passes that
    learn nothing. A step has what was computed from its forward pass to the next one's. The first also has
    what was computed before it, but for counting."""
    cfg = claim.cfg
    counts = np.fromfile(Path(out, 'operations'))
    demand(len(counts) == cfg.total_steps + 1, claim.folder, f'has {len(counts) - 1:,} forward passes')
    counts[0] = min(counts[0], operations_of_counting(cfg))
    computed = np.diff(counts)
    objectives = np.array([objective_at(step, cfg) for step in range(cfg.total_steps)])
    for objective in dict(cfg.phases):
        counted = cfg.rows_per_step * cfg.context * cost.flops_per_token(cfg, objective)
        share = computed[objectives == objective].mean() / counted
        print(f'{claim.folder}: steps of {objective} compute {share:.2f} of what is counted')
        demand(share <= MOST, claim.folder, f'its steps of {objective} compute {share:.2f} times the '
               f'{counted:.3g} operations that are counted')


def operations_of_counting(cfg):
    """Return how many operations torch counts of embedding_init = 'counts': of two products of matrices."""
    if cfg.embedding_init != 'counts':
        return 0
    contexts = min(CONTEXTS, cfg.model.vocab_size)
    return 2 * cfg.model.vocab_size * contexts * (contexts + cfg.model.hidden_size)


def compare(claim, value, checkpoint, again, rules):
    """Return in words how near a claim is to what came out. ValueError if it is another: in any bit on this
    kind of processor, with the same packages, else in what it is worth."""
    names = ['config.json', 'tokenizer.json', 'tokenizer_config.json']
    here = read_state(checkpoint, but=(MOMENTS,))['starts'][-1]
    is_same = all(claim.start.get(fact) == here[fact] for fact in ('processor', 'device', 'versions'))
    if is_same:
        names.append(WEIGHTS)
    _, others, missing = filecmp.cmpfiles(claim.checkpoint, checkpoint, names, shallow=False)
    demand(not others + missing, claim.folder,
           f'its {", ".join(others + missing)} is not what its settings and commit give')
    if is_same:
        return 'to the bit'
    demand(abs(value - again) < TOLERANCE[rules.track], claim.folder,
           f'is worth {value:.3f}, and trained again here {again:.3f}')
    return f'is worth {again:.3f}, {abs(value - again):.4f} from what another processor gave'


# ---------------------------------------------------------------------------
# Are they a record?


def read_rows_of_page(rules):
    """Return the Rows of a track in the page's table."""
    # steps, operations, seeds' values, p, who and commit
    row = rf'^\| {rules.track} \|.*\| ([\d,]+) \| \S+ \| ([\d. ]+) \| (\S+) \|.*\|$'
    rows = []
    for steps, values, p in re.findall(row, (ROOT / PAGE).read_text(), re.MULTILINE):
        values = [float(value) for value in values.split()]
        rows.append(Row(int(steps.replace(',', '')), values, float(p)))
    return rows


def best_row(rules):
    """Return the Row of the record, None if there is none."""
    rows = [row for row in read_rows_of_page(rules) if row.p < 0.01]
    if rules.track == 'steps':
        return min(rows, key=lambda row: row.steps, default=None)
    return max(rows, key=lambda row: statistics.fmean(row.values), default=None)


def judge(steps, values, rules, harder=0.0):
    """Return (p, why it is no record or '') of seeds' losses against the target, or scores against the
    record's. `harder` is of the rows, in nats."""
    from scipy.stats import ttest_1samp, ttest_ind
    record = best_row(rules)
    if rules.track == 'steps':
        most = record.steps - 1 if record else 10 ** 9
        p = ttest_1samp(values, TARGET + harder, alternative='less').pvalue
    else:
        most = LONGEST
        best = record.values if record else [0, 0]
        p = ttest_ind(values, best, equal_var=False, alternative='greater').pvalue
    p = float(f'{p:.2g}')     # as the page will have it
    if steps > most:
        return p, f'more than {most:,} steps'
    return p, '' if p < 0.01 else 'p must be below 0.01'


def say_if_near(values, rules):
    """Print it where seeds lie nearer each other than those of any row: does the code use its seed?"""
    spread = max(values) - min(values)
    narrowest = min((max(row.values) - min(row.values) for row in read_rows_of_page(rules)), default=0)
    if spread < narrowest / 2:
        print(f'the seeds lie within {spread:.4f} of each other, those of each row of the page within '
              f'{narrowest:.4f} or more: read what the code makes of its seed')


def fresh_seeds(claim, code):
    """Return four seeds that nobody could know before the commit and the settings were there: of a hash of
    both."""
    fixed = [name for name in flat(claim.cfg, decides=('results',)) if name != 'seed']
    what = json.dumps([code.commit, {name: claim.settings[name] for name in sorted(fixed)}])
    seeds = []
    for k in range(4):
        digest = hashlib.sha256(f'{what} {k}'.encode()).hexdigest()
        seeds.append(int(digest[:8], 16))
    return seeds


def last_word(claim, code, corpus, rules):
    """Train fresh seeds, and judge them by held-out rows that the page's are not of. Returns why it is no
    record, or ''."""
    rows = range(MEASURED, corpus.num_stretches('validation', claim.cfg.context))
    values = []
    for seed in fresh_seeds(claim, code):
        settings = claim.settings | {'seed': seed}
        fresh = claim._replace(folder=f'seed {seed}', settings=settings, cfg=replace(claim.cfg, seed=seed))
        with tempfile.TemporaryDirectory() as out:
            checkpoint = trained(fresh, code, corpus, out)
            values.append(measure(checkpoint, rows, code, corpus, rules))
    p, lacking = judge(claim.cfg.total_steps, values, rules, HARDER)
    of_seeds = ' '.join(f'{value:.3f}' for value in values)
    print(f'four fresh seeds: {of_seeds}, p {p}')
    return lacking and f'fresh seeds: {lacking}'


def verdict(lacking, rules):
    """Return the last line that the referee prints; `lacking` says why a row is no record, or is empty."""
    if lacking:
        return f'no record: {lacking}'
    if rules.every_seed:
        return 'its numbers are a record: it counts once a maintainer has read the commit'
    if rules.replay:
        return 'its numbers are a record, if the other seeds are what they claim: --every_seed'
    return 'not verified: --replay trains a seed again'


def first_rows(corpus):
    """Return the range of the held-out rows that the page's losses are of."""
    return range(min(MEASURED, corpus.num_stretches('validation', FIXED['context'])))


def referee(folders, rules):
    corpus = Corpus(rules.corpus)
    verify(corpus.folder)
    demand(corpus.meta['fingerprint'].startswith(TEXTS), corpus.folder, 'is not of the game\'s texts')
    claims = sorted(map(read_claim, folders), key=lambda claim: claim.cfg.seed)
    commit = check_together(claims)
    with tempfile.TemporaryDirectory() as folder:
        code = fetch_code(commit, rules, Path(folder))
        show_what_to_read(code)
        rows = first_rows(corpus)
        values = [measure(claim.checkpoint, rows, code, corpus, rules) for claim in claims]
        again = []
        if rules.every_seed:
            again = range(len(claims))
        elif rules.replay:
            again = [secrets.randbelow(len(claims))]
        for k in again:
            values[k] = replay(claims[k], values[k], code, corpus, rules)
        say_if_near(values, rules)
        p, lacking = judge(claims[0].cfg.total_steps, values, rules)
        if rules.every_seed and not lacking:
            lacking = last_word(claims[0], code, corpus, rules)
        who = fetch.git(code.repository, 'log', '-1', '--format=format:%an', commit).stdout.decode()

    cfg = claims[0].cfg
    name, _, _ = Path(folders[0]).name.rpartition('-s')
    operations = cost.flops_until(cfg, cfg.total_steps)
    of_seeds = ' '.join(f'{value:.3f}' for value in values)
    print(f'| {rules.track} | {name} | | {cfg.total_steps:,} | {operations / 1e12:.1f} | {of_seeds} | {p} | '
          f'{who} | {commit[:8]} |')
    print(verdict(lacking, rules))


def main():
    words, options = split_words(sys.argv[1:])
    if words and words[0].endswith('.py'):
        cfg, _ = parse(pretrain.Settings, sys.argv[1:])
        demand(cfg.corpus == Rules.corpus, words[0], f'corpus must be {Rules.corpus}')
        operations = check_settings(words[0], cfg)
        print(f'{words[0]}: within the rules, {operations:.3g} operations a step')
        return
    rules, _ = parse(Rules, options)
    demand(words, 'it takes folders of runs, as out/mine-s*')
    interrupt_on_signals()
    referee(words, rules)


if __name__ == '__main__':
    run_main(main)

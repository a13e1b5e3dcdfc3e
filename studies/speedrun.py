"""The speedrun's referee: do runs keep the rules, and are they a record? docs/speedrun.md has the game.

    python studies/speedrun.py configs/try.py --mask_ratio=0.3      # may a run have these settings?
    python studies/speedrun.py out/mine-s*                          # four runs' row, not verified
    python studies/speedrun.py out/mine-s* --replay                 # trains a seed again, which it draws
    python studies/speedrun.py out/mine-s* --every_seed             # before a row is accepted

What a run's folder says is a claim. With --replay a seed is trained from the claimed commit and settings, in
a worktree of its own, where studies/replay.py writes down what each step reads. The row then has what these
weights give, and a claim that differs from them is refused."""
import contextlib
import filecmp
import os
import re
import secrets
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

if __name__ == '__main__':  # before torch loads OpenMP, which reads it: waiting threads sleep, not spin
    os.environ.setdefault('OMP_WAIT_POLICY', 'passive')
sys.path.insert(0, str(Path(__file__).parents[1]))  # the root, where pretrain.py is

import numpy as np
import torch
import torch.nn.functional as F

import pretrain
from data import Corpus, rows_of_step, validation_batches
from evaluate import find_runs
from model import Model
from nanoencoder.files import saved_steps
from nanoencoder.huggingface import WEIGHTS, Checkpoint, open_checkpoint
from nanoencoder.prepare import clean, hash_of, verify
from nanoencoder.pretraining import cost
from nanoencoder.pretraining.checkpoint import refuse_differences
from nanoencoder.settings import (as_tuple, build, check, flat, interrupt_on_signals, parse, run_main,
                                  setting, split_words)
from studies.hold_out import read_rows

TEXTS = 'b8b32dbdc2e6'              # the first digits of the corpus's fingerprint
PAGE = 'studies/speedrun/README.md'   # whose table has the records
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
WITNESS = ROOT / 'studies/replay.py'


@dataclass(frozen=True)
class Rules:
    track: str = setting('steps', choices=('steps', 'transfer'))
    replay: bool = False            # train a seed again, which is drawn
    every_seed: bool = False        # train all of them again
    corpus: str = 'corpora/speedrun'
    repository: str = '.'           # which has the runs' commit
    __post_init__ = check


class Claim(NamedTuple):
    """What a run's folder says."""
    folder: str
    checkpoint: Checkpoint      # the last
    cfg: pretrain.Settings
    start: dict                 # commit, processor and threads of its last start


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
    checkpoint = open_checkpoint(Path(folder, str(steps[-1])))      # files are compared with their sha256
    state = checkpoint.state
    demand(state, folder, 'has no state.json, which pretrain.py writes')
    demand(state['corpus_meta']['fingerprint'].startswith(TEXTS), folder, 'is not of the game\'s texts')
    cfg = build(pretrain.Settings, state['settings'])
    demand(state['settings'].keys() == flat(cfg).keys(), folder, 'has other settings than pretrain.py')
    check_settings(folder, cfg)
    demand(state['step'] == steps[-1] == cfg.total_steps, folder, f'is no run of {cfg.total_steps:,} steps')
    return Claim(folder, checkpoint, cfg, state['starts'][-1])


def check_together(claims, rules):
    """Return the commit of the runs. ValueError unless they are of seeds 0 to 3, differ in nothing else, and
    were trained by one commit, unchanged, which git knows."""
    seeds = sorted(claim.cfg.seed for claim in claims)
    demand(seeds == SEEDS, f'runs of seeds {SEEDS} are needed, not {seeds}')
    first = flat(claims[0].cfg)
    alike = first.keys() - {'seed', 'name', 'out', 'corpus'}
    for claim in claims:
        refuse_differences(claims[0].folder, first, flat(claim.cfg), alike, 'only seeds may differ')
    commit = ', '.join(sorted({claim.start['git'] for claim in claims}))
    needed = f'one commit that git knows is needed, not {commit}'
    demand(re.fullmatch('[0-9a-f]{40}', commit), needed, 'commit, then train all seeds again')
    code = git(rules, 'show', f'{commit}:model.py')
    demand(code.returncode == 0, needed, 'fetch it, or say which --repository has it')
    demand(code.stdout == (ROOT / 'model.py').read_text(), claims[0].folder,
           f'has another model.py than the one that measures here: git checkout {commit} -- model.py')
    return commit


def git(rules, *words):
    """Run git where the runs' commit is, and return what subprocess says of it."""
    command = ['git', '-C', rules.repository, *words]
    return subprocess.run(command, capture_output=True, text=True)


# ---------------------------------------------------------------------------
# What weights are worth


def measure(checkpoint, corpus, rules):
    """Return what a track counts of a checkpoint: nats of held-out loss, or points of the probes."""
    if rules.track == 'transfer':
        return probe(checkpoint.folder)
    losses = held_out_losses(checkpoint.model(), corpus)
    words = [f'{source} {loss:.2f}' for source, loss in losses.items()]
    print(f'{checkpoint.folder}: nats by source: {", ".join(words)}')
    return losses['all']


@torch.no_grad()
def held_out_losses(model, corpus):
    """{'all', and each source of texts: nats a masked token}, over rows and masks that are the same for every
    run."""
    cfg = pretrain.Settings(name='validation', mask_ratio=0.4, micro_rows=0, **FIXED)
    losses = []
    places = []     # of each loss in the held-out stream
    for batch in validation_batches(corpus, 'mlm', cfg):
        tokens, targets = map(torch.from_numpy, (batch.tokens, batch.targets))
        states = model.model(tokens, batch.lengths, False)[batch.at]
        losses.append(F.cross_entropy(model.logits(states), targets[batch.at], reduction='none'))
        places.append(batch.at + len(places) * len(tokens))
    losses = torch.cat(losses).double().numpy()
    found = {'all': losses.mean()}
    sources = sources_of(corpus)[np.concatenate(places)]
    for source in np.unique(sources):
        found[source] = losses[sources == source].mean()
    return found


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


def probe(checkpoint):
    """Return the mean test score, in points, of what three tasks read from frozen features."""
    with tempfile.TemporaryDirectory() as out:
        for config in PROBED:
            run('finetune.py', config, '--probe', f'--model={checkpoint}', f'--predictions={out}')
        scores = [load()['test']['standard']['score'] for _, _, load in find_runs(Path(out))]
    return 100 * statistics.fmean(scores)


def run(*words, folder='.', **environment):
    """Run a script to its end, or kill it where this process is interrupted."""
    command = [sys.executable, *words]
    variables = os.environ | environment
    ended = subprocess.run(command, cwd=folder, env=variables)
    demand(ended.returncode == 0, words[0], 'failed, as it says above')


# ---------------------------------------------------------------------------
# Train again


def replay(claim, value, commit, corpus, rules):
    """Train a claim's seed again. Returns what its weights are worth. ValueError if a step reads what it may
    not, or if the claim, of this value, is another than what comes out."""
    with tempfile.TemporaryDirectory() as out:
        train_again(claim, commit, corpus, out, rules)
        check_read(claim, corpus, out)
        checkpoint = open_checkpoint(Path(out, 'again', str(claim.cfg.total_steps)))
        again = measure(checkpoint, corpus, rules)
        how = compare(claim, value, checkpoint, again, rules)
    print(f'{claim.folder}: trained again, {how}')
    return again


def train_again(claim, commit, corpus, out, rules):
    """Train a claim's seed with its settings and commit, in OUT/again."""
    settings = claim.checkpoint.state['settings'] | {
        'name': 'again', 'out': out, 'row': '', 'corpus': corpus.folder.resolve(), 'device': 'cpu',
        'val_every': 0, 'save_every': 0, 'save_at': ()}
    words = [f'--{name}={as_tuple(value)}' for name, value in settings.items()]
    with worktree(commit, rules) as tree:
        run(WITNESS, out, *words, folder=tree, OMP_NUM_THREADS=str(claim.start['threads']),
            PYTHONPYCACHEPREFIX=out)    # no .pyc of the commit stands for another source


@contextlib.contextmanager
def worktree(commit, rules):
    """Check out a commit in a folder that is removed at the end."""
    with tempfile.TemporaryDirectory() as folder:
        made = git(rules, 'worktree', 'add', '--detach', folder, commit)
        demand(made.returncode == 0, commit, made.stderr.strip())
        try:
            yield folder
        finally:
            git(rules, 'worktree', 'remove', '--force', folder)


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


def compare(claim, value, checkpoint, again, rules):
    """Return in words how near a claim is to what came out. ValueError if it is another: in any bit on this
    kind of processor, with the same packages, else in what it is worth."""
    names = ['config.json', 'tokenizer.json', 'tokenizer_config.json']
    here = checkpoint.state['starts'][-1]
    is_same = all(claim.start.get(fact) == here[fact] for fact in ('processor', 'device', 'versions'))
    if is_same:
        names.append(WEIGHTS)
    _, others, missing = filecmp.cmpfiles(claim.checkpoint.folder, checkpoint.folder, names, shallow=False)
    demand(not others + missing, claim.folder,
           f'its {", ".join(others + missing)} is not what its settings and commit give')
    if is_same:
        return 'to the bit'
    demand(abs(value - again) < TOLERANCE[rules.track], claim.folder,
           f'is worth {value:.3f}, and trained again here {again:.3f}')
    return f'is worth {again:.3f}, {abs(value - again):.4f} from what another processor gave'


# ---------------------------------------------------------------------------
# Are they a record?


def read_records(rules):
    """Return [(steps, seeds' values)] of the rows of the page's table that count."""
    # steps, operations, seeds' values, p
    row = rf'^\| {rules.track} \|.*\| ([\d,]+) \| \S+ \| ([\d. ]+) \| (\S+) \|'
    records = []
    for steps, values, p in re.findall(row, (ROOT / PAGE).read_text(), re.MULTILINE):
        if float(p) < 0.01:
            records.append((int(steps.replace(',', '')), [float(value) for value in values.split()]))
    return records


def judge(steps, values, rules):
    """Return (p, why it is no record or '') of seeds' losses against the target, or scores against the
    record's."""
    from scipy.stats import ttest_1samp, ttest_ind
    records = read_records(rules)
    if rules.track == 'steps':
        most = min((least for least, _ in records), default=10 ** 9) - 1
        p = ttest_1samp(values, TARGET, alternative='less').pvalue
    else:
        most = LONGEST
        best = max((past for _, past in records), key=statistics.fmean, default=[0, 0])
        p = ttest_ind(values, best, equal_var=False, alternative='greater').pvalue
    p = float(f'{p:.2g}')     # as the page will have it
    if steps > most:
        return p, f'more than {most:,} steps'
    return p, '' if p < 0.01 else 'p must be below 0.01'


def verdict(lacking, rules):
    """Return the last line that the referee prints; `lacking` says why a row is no record, or is empty."""
    if lacking:
        return f'no record: {lacking}'
    if rules.every_seed:
        return 'a record'
    if rules.replay:
        return 'a record, if the other seeds are what they claim: --every_seed'
    return 'not verified: --replay trains a seed again'


def referee(folders, rules):
    corpus = Corpus(rules.corpus)
    verify(corpus.folder)
    demand(corpus.meta['fingerprint'].startswith(TEXTS), corpus.folder, 'is not of the game\'s texts')
    claims = sorted(map(read_claim, folders), key=lambda claim: claim.cfg.seed)
    commit = check_together(claims, rules)
    values = [measure(claim.checkpoint, corpus, rules) for claim in claims]
    again = []
    if rules.every_seed:
        again = range(len(claims))
    elif rules.replay:
        again = [secrets.randbelow(len(claims))]
    for k in again:
        values[k] = replay(claims[k], values[k], commit, corpus, rules)

    cfg = claims[0].cfg
    p, lacking = judge(cfg.total_steps, values, rules)
    name, _, _ = Path(folders[0]).name.rpartition('-s')
    who = git(rules, 'log', '-1', '--format=format:%an', commit).stdout
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

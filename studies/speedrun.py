"""The speedrun's referee: do runs keep the rules, and are they a record? docs/speedrun.md has the game.

    python studies/speedrun.py out/mine-s*                      # the fewest steps to a held-out MLM loss
    python studies/speedrun.py out/mine-s* --track=transfer     # the best frozen features of 3,600 steps
    python studies/speedrun.py out/mine-s* --replay=0:200       # and computes seed 0's first steps again"""
import itertools
import os
import re
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

if __name__ == '__main__':  # before torch loads OpenMP, which reads it: waiting threads sleep, not spin
    os.environ.setdefault('OMP_WAIT_POLICY', 'passive')
sys.path.insert(0, str(Path(__file__).parents[1]))  # the root, where pretrain.py is

import torch

from data import Corpus, read_step, validation_batches
from nanoencoder.files import read_json
from nanoencoder.huggingface import open_checkpoint
from nanoencoder.prepare import verify
from nanoencoder.pretraining.log import read_log
from nanoencoder.settings import as_tuple, check, interrupt_on_signals, parse, run_main, setting, split_words

# settings that are not the player's
FIXED = {'context': 512, 'rows_per_step': 2, 'cut_rows': True, 'branch_from': '', 'weights_from': '',
         'val_rows': 128, 'val_mask_ratio': 0.4}
PROBED = ('docs_tc', 'wn_sc', 'docs_ir')    # tasks of the track `transfer`
LONGEST = 3_600                             # steps of that track, at most


@dataclass(frozen=True)
class Rules:
    track: str = setting('steps', choices=('steps', 'transfer'))
    replay: str = ''                # SEED:STEPS to compute again
    target: float = 4.7             # of steps: nats; the mean held-out loss over seeds lies below it
    parameters: int = 1_500_000     # at most
    corpus: str = 'corpora/embedded'
    texts: str = 'c402bd240f17'     # the first digits of its fingerprint
    page: str = 'docs/speedrun.md'  # whose table has the records
    __post_init__ = check


def demand(holds, *words):
    if not holds:
        raise ValueError(': '.join(map(str, words)))


# ---------------------------------------------------------------------------
# Do the runs keep the rules?


def read_run(folder, corpus, rules):
    """Return (settings, state.json, log, held-out loss) of a run. ValueError if it breaks a rule."""
    checkpoint = open_checkpoint(folder)    # files are compared with their sha256
    state = checkpoint.state
    config, log = read_log(folder)
    cfg = SimpleNamespace(**config)
    demand(state and state['log'] and 'model.safetensors' in state['sha256'], folder, 'has no digests')
    is_fresh = cfg.starts[0]['how'].startswith('from scratch')
    demand(is_fresh and {start['device'] for start in cfg.starts} == {'cpu'}, folder,
           'was not trained from scratch, on a CPU')
    for name, value in (state['settings'] | FIXED).items():
        demand(config[name] == value, folder, f'{name} is {config[name]!r}, and must be {value!r}')

    cfg.total_steps = cfg.repeat * sum(steps for _, steps in cfg.phases)
    demand(state['step'] == cfg.total_steps == len(log), folder,
           f'{cfg.total_steps:,} steps need as many lines of log, and a checkpoint of the last')
    for step, line in enumerate(log):
        _, _, rows_hash = read_step(step, corpus, cfg)
        is_of_step = line['step'] == step + 1 and line['rows'] == f'{rows_hash:012x}'
        demand(is_of_step and line['loss'] < 99, folder,
               f'line {step + 1:,} of its log has no loss, or is not of that step, or its seed\'s rows')

    model = checkpoint.model()
    demand(checkpoint.tokenizer().fingerprint() == corpus.meta['tokenizer'], folder, 'has another tokenizer')
    demand(sum(p.numel() for p in model.parameters()) <= rules.parameters, folder, 'parameters are too many')
    loss = held_out_loss(model, corpus)
    logged = log[-1]['val_mlm_loss']
    demand(abs(loss - logged) < 1e-3, folder, f'its log ends at {logged:.4f}, its weights give {loss:.4f}')
    return cfg, state, log, loss


@torch.no_grad()
def held_out_loss(model, corpus):
    """Return nats a masked token, over rows and masks that are the same for every run."""
    cfg = SimpleNamespace(**FIXED, mask_ratio=0.4, mask_replace=(1, 0, 0), micro_rows=0)
    total = 0
    count = 0
    for batch in validation_batches(corpus, 'mlm', cfg):
        tokens, targets, places, weights = map(torch.from_numpy, (batch.tokens, *batch[2:]))
        loss_sum, _ = model(tokens, batch.lengths, targets, False, places, weights)
        total += loss_sum.item()
        count += len(places)
    return total / count


def check_seeds(runs):
    """ValueError unless runs are of seeds 0 to 3 or to more, and of one model, made by one commit."""
    seeds = [cfg.seed for cfg, *_ in runs]
    demand(sorted(seeds) == [*range(max(4, len(seeds)))], f'seeds 0 to 3 or more are needed, not {seeds}')
    settings = [state['settings'] for _, state, *_ in runs]
    for name in settings[0].keys() - {'seed', 'name', 'out', 'corpus'}:
        demand(len({str(other.get(name)) for other in settings}) == 1, f'{name} differs between runs')
    commits = {start['git'] for cfg, *_ in runs for start in cfg.starts}
    words = ['git', 'cat-file', '-e', f'{min(commits)}^{{commit}}']
    in_git = subprocess.run(words, capture_output=True).returncode == 0
    is_one = re.fullmatch('[0-9a-f]{40}', ''.join(commits))
    demand(in_git and is_one,
           f'one commit that git knows, not {", ".join(sorted(commits))}: commit, then train all seeds again')


# ---------------------------------------------------------------------------
# Compute again


def start(*words, **environment):
    """Run a script of ours to its end, or kill it where this process is interrupted."""
    process = subprocess.Popen([sys.executable, *words], env=os.environ | environment)
    try:
        code = process.wait()
    finally:
        process.kill()      # which does nothing to one that has ended
        process.wait()      # it may be writing to a folder that is removed next
    demand(code == 0, words[0], 'failed, as it says above')


def check_replay(folders, runs, rules):
    """Compute a run again, as --replay says. ValueError if its losses, or at its end its weights, differ."""
    seed, _, steps = rules.replay.partition(':')
    seeds = [str(cfg.seed) for cfg, *_ in runs]
    demand(seed in seeds and steps.isdigit(), f'replay takes SEED:STEPS of runs, not {rules.replay!r}')
    k = seeds.index(seed)
    cfg, state, log, _ = runs[k]
    off = replay(folders[k], cfg, state, log, int(steps), rules)
    demand(off < (1e-4 if int(steps) <= 500 else 1e-2), folders[k],
           f'its losses, computed again, differ by up to {off:.2g}')
    print(f'{folders[k]}: {steps} of {len(log)} steps computed again differ by at most {off:.1g}')


def replay(folder, cfg, state, log, steps, rules):
    """Return the greatest difference in the losses of a run's first steps, or of all, computed again."""
    is_whole = steps == cfg.total_steps
    is_level = max(1, cfg.warmup_steps) <= steps <= cfg.total_steps - cfg.decay_steps
    demand(is_whole or is_level, rules.replay,
           f'replay all {cfg.total_steps:,} steps or {cfg.warmup_steps:,} to where rates fall')
    objectives = [name for name, count in cfg.phases * cfg.repeat for _ in range(count)]
    phases = tuple((name, len([*same])) for name, same in itertools.groupby(objectives[:steps]))
    with tempfile.TemporaryDirectory() as out:
        settings = state['settings'] | {
            'name': 'again', 'out': out, 'phases': phases, 'repeat': 1, 'corpus': rules.corpus,
            'device': 'cpu',
            'decay_steps': cfg.decay_steps if is_whole else 0,
            'save_at': ()}      # which may be beyond these steps
        words = [f'--{name}={as_tuple(value)}' for name, value in settings.items()]
        start('pretrain.py', *words, OMP_NUM_THREADS=str(cfg.starts[0]['threads']))
        again = Path(out, 'again')
        _, lines = read_log(again)
        demand(len(lines) == steps, rules.replay, 'was stopped')
        if is_whole:
            check_weights(folder, again)
    differences = [abs(new[name] - old[name]) for new, old in zip(lines, log)
                   for name in ('loss', 'val_mlm_loss') if name in new.keys() & old.keys()]
    return max(differences)


def check_weights(folder, again):
    """ValueError if weights are further apart than rounding takes them: of each tensor a hundredth, where
    another seed takes it a tenth."""
    kept = open_checkpoint(folder).model().state_dict()
    fresh = open_checkpoint(again).model().state_dict()
    for name, p in kept.items():
        q = fresh.get(name)
        is_near = q is not None and p.shape == q.shape and (p - q).norm() < 0.05 * p.norm()
        demand(is_near, folder, 'its weights, computed again, are others')


# ---------------------------------------------------------------------------
# Are they a record?


def probe(run):
    """Return the mean test score, in percent, of what three tasks read from its frozen features."""
    with tempfile.TemporaryDirectory() as out:
        for name in PROBED:
            task = f'configs/tasks/{name}.py'
            start('finetune.py', task, '--probe', f'--model={run}', f'--predictions={out}')
        scores = [read_json(path)['test']['standard']['score'] for path in Path(out).rglob('scores.json')]
    return 100 * statistics.fmean(scores)


def read_records(rules):
    """Return [(steps, seeds' values)] of the rows of the page's table that count."""
    row = rf'^\| {rules.track} \|.*\| ([\d,]+) \| ([\d. ]+) \| (\S+) \|'    # steps, seeds' values, p
    records = []
    for steps, values, p in re.findall(row, Path(rules.page).read_text(), re.MULTILINE):
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
        p = ttest_1samp(values, rules.target, alternative='less').pvalue
    else:
        most = LONGEST
        best = max((past for _, past in records), key=statistics.fmean, default=[0, 0])
        p = ttest_ind(values, best, equal_var=False, alternative='greater').pvalue
    p = float(f'{p:.2g}')     # as the page will have it
    if steps > most:
        return p, f'more than {most:,} steps'
    return p, '' if p < 0.01 else 'p must be below 0.01'


def main():
    folders, options = split_words(sys.argv[1:])
    rules, _ = parse(Rules, options)
    demand(folders and all(map(os.path.isdir, folders)), 'it takes folders of runs, as out/mine-s*')
    interrupt_on_signals()
    corpus = Corpus(rules.corpus)
    verify(corpus.folder)
    demand(corpus.meta['fingerprint'].startswith(rules.texts), corpus.folder, 'is not of the game\'s texts')
    runs = [read_run(folder, corpus, rules) for folder in folders]
    check_seeds(runs)
    if rules.replay:
        check_replay(folders, runs, rules)

    scores = [loss for *_, loss in runs]
    if rules.track == 'transfer':
        scores = [probe(folder) for folder in folders]
    cfg, *_ = runs[0]
    p, lacking = judge(cfg.total_steps, scores, rules)
    values = ' '.join(f'{score:.3f}' for score in scores)
    name, _, _ = Path(folders[0]).name.rpartition('-s')
    print(f'| {rules.track} | {name} | {cfg.total_steps:,} | {values} | {p} | {cfg.starts[0]["git"][:8]} |')
    print(f'no record: {lacking}' if lacking else 'a record')


if __name__ == '__main__':
    run_main(main)

"""The speedrun's referee: do runs keep the rules, and are they a record? docs/speedrun.md has the game.

    python -m nanoencoder.speedrun out/mine-s*                   # the fewest steps to a held-out MLM loss
    python -m nanoencoder.speedrun out/mine-s* --track=transfer  # the best frozen features of 3,600 steps
    python -m nanoencoder.speedrun out/mine-s* --replay=0:200    # and computes seed 0's first steps again"""
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

import torch

from data import Corpus, read_step, validation_batches
from nanoencoder.files import read_json
from nanoencoder.huggingface import open_checkpoint
from nanoencoder.prepare import verify
from nanoencoder.pretraining.log import read_log
from nanoencoder.settings import as_tuple, check, interrupt_on_signals, parse, run_main, setting

FIXED = {'context': 512, 'rows_per_step': 2, 'cut_rows': True, 'branch_from': '', 'weights_from': '',
         'val_rows': 128, 'val_mask_ratio': 0.4}    # settings that are not the player's


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


def read_run(folder, corpus, rules):
    """(settings, state.json, log, held-out loss) of a run, if it keeps the rules."""
    checkpoint, (config, log) = open_checkpoint(folder), read_log(folder)   # compared with their sha256
    cfg, state, model = SimpleNamespace(**config), checkpoint.state, checkpoint.model()
    demand(state and state['log'] and 'model.safetensors' in state['sha256'], folder, 'has no digests')
    demand(cfg.starts[0]['how'].startswith('from scratch') and {x['device'] for x in cfg.starts} == {'cpu'},
           folder, 'was not trained from scratch, on a CPU')
    for name, value in (state['settings'] | FIXED).items():
        demand(config[name] == value, folder, f'{name} is {config[name]!r}, and must be {value!r}')
    cfg.total_steps = cfg.repeat * sum(steps for _, steps in cfg.phases)
    demand(state['step'] == cfg.total_steps == len(log), folder,
           f'{cfg.total_steps:,} steps need as many lines of log, and a checkpoint of the last')
    for step, line in enumerate(log):
        rows = f'{read_step(step, corpus, cfg)[2]:012x}'
        demand((line['step'], line['rows']) == (step + 1, rows) and line['loss'] < 99, folder,
               f'line {step + 1:,} of its log has no loss, or is not of that step, or its seed\'s rows')
    demand(checkpoint.tokenizer().fingerprint() == corpus.meta['tokenizer'], folder, 'has another tokenizer')
    demand(sum(p.numel() for p in model.parameters()) <= rules.parameters, folder, 'parameters are too many')
    loss, logged = held_out_loss(model, corpus), log[-1]['val_mlm_loss']
    demand(abs(loss - logged) < 1e-3, folder, f'its log ends at {logged:.4f}, its weights give {loss:.4f}')
    return cfg, state, log, loss


@torch.no_grad()
def held_out_loss(model, corpus):
    """Nats a masked token, over rows and masks that are the same for every run."""
    cfg, total, count = SimpleNamespace(**FIXED, mask_ratio=0.4, mask_replace=(1, 0, 0), micro_rows=0), 0, 0
    for batch in validation_batches(corpus, 'mlm', cfg):
        tokens, targets, at, weights = map(torch.from_numpy, (batch.tokens, *batch[2:]))
        total += model(tokens, batch.lengths, targets, False, at, weights)[0].item()
        count += len(at)
    return total / count


def check_seeds(runs):
    """ValueError unless runs are of seeds 0 to 3 or to more, and of one model, made by one commit."""
    seeds, commits = [cfg.seed for cfg, *_ in runs], {x['git'] for cfg, *_ in runs for x in cfg.starts}
    demand(sorted(seeds) == [*range(max(4, len(seeds)))], f'seeds 0 to 3 or more are needed, not {seeds}')
    for k in (k for k in runs[0][1]['settings'] if k not in ('seed', 'name', 'out', 'corpus')):
        demand(len({str(past['settings'].get(k)) for _, past, *_ in runs}) == 1, f'{k} differs between runs')
    kept = subprocess.run(['git', 'cat-file', '-e', f'{min(commits)}^{{commit}}'], capture_output=True)
    demand(not kept.returncode and re.fullmatch('[0-9a-f]{40}', ''.join(commits)),
           f'one commit that git knows, not {", ".join(sorted(commits))}: commit, then train all seeds again')


def start(*words, **env):
    """Run a script of ours to its end, or kill it where this process is interrupted."""
    process = subprocess.Popen([sys.executable, *words], env=os.environ | env)
    try:
        code = process.wait()
    finally:
        process.kill()      # which does nothing to one that has ended
        process.wait()      # it may be writing to a folder that is removed next
    demand(code == 0, words[0], 'failed, as it says above')


def replay(folder, cfg, state, log, steps, rules):
    """The greatest difference in the losses of a run's first steps, or of all, computed again."""
    demand(steps == cfg.total_steps or max(1, cfg.warmup_steps) <= steps <= cfg.total_steps - cfg.decay_steps,
           rules.replay, f'replay all {cfg.total_steps:,} steps or {cfg.warmup_steps:,} to where rates fall')
    objectives = [name for name, count in cfg.phases * cfg.repeat for _ in range(count)][:steps]
    phases = tuple((name, len([*same])) for name, same in itertools.groupby(objectives))
    with tempfile.TemporaryDirectory() as out:
        changed = {'name': 'again', 'out': out, 'phases': phases, 'repeat': 1, 'corpus': rules.corpus,
                   'device': 'cpu', 'decay_steps': cfg.decay_steps * (steps == cfg.total_steps),
                   'save_at': ()}   # which may be beyond these steps
        words = [f'--{name}={as_tuple(value)}' for name, value in (state['settings'] | changed).items()]
        start('pretrain.py', *words, OMP_NUM_THREADS=str(cfg.starts[0]['threads']))
        again = read_log(run := Path(out, 'again'))[1]
        demand(len(again) == steps, rules.replay, 'was stopped')
        if steps == cfg.total_steps:    # rounding takes each tensor a hundredth away, another seed a tenth
            kept, fresh = (open_checkpoint(place).model().state_dict() for place in (folder, run))
            demand(all(p.shape == (q := fresh.get(name, 0 * p)).shape and (p - q).norm() < 0.05 * p.norm()
                       for name, p in kept.items()), folder, 'its weights, computed again, are others')
        return max(abs(new[name] - old[name]) for new, old in zip(again, log)
                   for name in ('loss', 'val_mlm_loss') if name in new.keys() & old.keys())


def probe(run):
    """The mean test score, in percent, of what three tasks read off its frozen features."""
    with tempfile.TemporaryDirectory() as out:
        for t in ('docs_tc', 'wn_sc', 'docs_ir'):
            start('finetune.py', f'configs/tasks/{t}.py', '--probe', f'--model={run}', f'--predictions={out}')
        scores = [read_json(path)['test']['standard']['score'] for path in Path(out).rglob('scores.json')]
    return 100 * statistics.fmean(scores)


def judge(steps, values, rules):
    """(p, why it is no record) of seeds' losses against the target, or scores against the record's."""
    from scipy.stats import ttest_1samp, ttest_ind
    row = rf'^\| {rules.track} \|.*\| ([\d,]+) \| ([\d. ]+) \| (\S+) \|'    # steps, seeds' values, p
    records = [(int(least.replace(',', '')), [*map(float, past.split())]) for least, past, p
               in re.findall(row, Path(rules.page).read_text(), re.MULTILINE) if float(p) < 0.01]
    if rules.track == 'steps':
        least = min((steps for steps, _ in records), default=10 ** 9)
        most, p = least - 1, ttest_1samp(values, rules.target, alternative='less').pvalue
    else:
        past = max((past for _, past in records), key=statistics.fmean, default=[0, 0])
        most, p = 3_600, ttest_ind(values, past, equal_var=False, alternative='greater').pvalue
    p = float(f'{p:.2g}')     # as the page will have it
    return p, f'more than {most:,} steps' if steps > most else 'p must be below 0.01' * (not p < 0.01)


def main():
    folders = [*itertools.takewhile(lambda word: not word.startswith('-'), sys.argv[1:])]
    rules, _ = parse(Rules, sys.argv[1 + len(folders):])
    demand(folders and all(map(os.path.isdir, folders)), 'it takes folders of runs, as out/mine-s*')
    interrupt_on_signals()
    corpus = Corpus(rules.corpus)
    verify(corpus.folder)
    demand(corpus.meta['fingerprint'].startswith(rules.texts), corpus.folder, 'is not of the game\'s texts')
    runs = [read_run(folder, corpus, rules) for folder in folders]
    check_seeds(runs)
    if rules.replay:
        (seed, _, steps), seeds = rules.replay.partition(':'), [str(cfg.seed) for cfg, *_ in runs]
        demand(seed in seeds and steps.isdigit(), f'replay takes SEED:STEPS of runs, not {rules.replay!r}')
        k = seeds.index(seed)
        off = replay(folders[k], *runs[k][:3], int(steps), rules)
        demand(off < (1e-4 if int(steps) <= 500 else 1e-2), folders[k],
               f'its losses, computed again, differ by up to {off:.2g}')
        print(f'{folders[k]}: {steps} of {len(runs[k][2])} steps computed again differ by at most {off:.1g}')
    scores = [loss if rules.track == 'steps' else probe(folder) for folder, (*_, loss) in zip(folders, runs)]
    cfg = runs[0][0]
    p, lacking = judge(cfg.total_steps, scores, rules)
    print(f'| {rules.track} | {Path(folders[0]).name.rsplit("-s", 1)[0]} | {cfg.total_steps:,} | '
          f'{" ".join(f"{score:.3f}" for score in scores)} | {p} | {cfg.starts[0]["git"][:8]} |')
    print(f'no record: {lacking}' if lacking else 'a record')


if __name__ == '__main__':
    run_main(main)

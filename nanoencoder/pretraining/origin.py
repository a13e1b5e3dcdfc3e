"""Where a run begins: its own newest checkpoint, another run's (a branch), other weights, or nothing.

It compares what lies there with the settings and says what to begin with; `start` in pretrain.py builds it.
"""
import dataclasses
import json
import re
import time
import zlib
from pathlib import Path
from typing import NamedTuple

from data import OBJECTIVES, Corpus
from model import Sizes
from nanoencoder import shards
from nanoencoder.pretraining.checkpoint import TOKENIZER_FILES, fixed
from nanoencoder.durable import read_json
from nanoencoder.huggingface import LARGE, newest_checkpoint, open_checkpoint, read_state, run_of, saved_steps
from nanoencoder.settings import build, flat, leaves, quoted
from nanoencoder.tokenizer import load_tokenizer

FOLDERS = ('corpus', 'out', 'branch_from', 'weights_from')  # may lie elsewhere on another node
SCHEDULED = ('phases', 'repeat', 'lr', 'warmup_steps', 'decay_steps')  # may differ, after the branch


class Origin(NamedTuple):
    """What a run begins with."""
    folder: Path | None    # the checkpoint, None for new weights
    state: dict            # as in state.json
    how: str               # in words
    new_ids: tuple = ()    # tokens that the checkpoint's tokenizer lacked


def open_corpus(cfg):
    """The Corpus of a run. ValueError if it is damaged, another tokenizer's, or too small."""
    corpus, size = Corpus(cfg.corpus), cfg.model.vocab_size
    has_parent = cfg.branch_from or cfg.weights_from or own_checkpoint(cfg.out, cfg.name)
    padded = has_parent and corpus.meta['vocab_size'] < size  # some decoders have rows that no token uses
    if corpus.meta['vocab_size'] != size and not padded:
        raise ValueError(f'corpus {cfg.corpus} has vocab_size {corpus.meta["vocab_size"]}, this run '
                         f'{size}: it was written with another tokenizer')
    for name in TOKENIZER_FILES:
        if not (corpus.folder / name).exists():
            raise ValueError(f'{corpus.folder / name}: missing; prepare the corpus again')
    for name, value in shards.identity(load_tokenizer(str(corpus.folder))).items():
        if corpus.meta[name] != value:
            raise ValueError(f'{corpus.folder}: {name} in meta.json is not that of tokenizer.json: damaged; '
                             'prepare the corpus again')
    if not corpus.num_stretches('train', cfg.context):
        raise ValueError(f'corpus {cfg.corpus} has {corpus.meta["tokens"]:,} tokens, less than one row of '
                         f'{cfg.context}')
    if cfg.val_rows and not corpus.num_stretches('validation', cfg.context):
        raise ValueError(f'corpus {cfg.corpus} holds out {corpus.meta["val_tokens"]:,} tokens, less than one '
                         f'row of {cfg.context}: prepare it with a larger val_permille, or take --val_rows=0')
    return corpus


def find_origin(cfg, corpus, world, schedule):
    """The Origin of a run, after what it says has been compared with the settings.

    Rank 0 decides which checkpoint is continued; ValueError if the processes would not compute one run, or
    would not watch it alike: then their exchanges may not meet.

    schedule  (step, cfg) -> (objective, learning rate), by which a branch is compared with its parent
    """
    own = await_folder(world.of_first(lambda: own_checkpoint(cfg.out, cfg.name)))
    branch = cfg.branch_from and not own
    parent = await_folder(world.of_first(lambda: newest_checkpoint(cfg.branch_from) if branch else None))
    origin = compare_origin(cfg, corpus, world, schedule, own, parent)
    alike = {name: value for name, value in flat(cfg).items() if name not in FOLDERS}
    alike |= fixed(cfg, corpus, world) | {'checkpoint': origin.folder and origin.folder.name,
                                          'state.json': origin.state}
    seen = [zlib.crc32(json.dumps(value).encode()) for value in alike.values()]
    for (name, value), number, total in zip(alike.items(), seen, world.sum(seen)):
        if total != number * world.size:
            raise ValueError(f'{cfg.out}: the processes differ in {name}, which is {quoted(value)} in '
                             'this one: all nodes must read the same files')
    return origin


def await_folder(folder, seconds=120):
    """A checkpoint that rank 0 sees, as soon as this process sees it: other nodes may learn of it later."""
    deadline = time.monotonic() + seconds
    while folder and not folder.is_dir():  # it comes whole, by a rename
        if time.monotonic() > deadline:
            raise ValueError(f'{folder}: rank 0 sees this checkpoint, and this process does not after '
                             f'{seconds} seconds: it must be on a file system that all nodes share')
        time.sleep(0.1)
    return folder


def compare_origin(cfg, corpus, world, schedule, own, parent):
    ours, but = fixed(cfg, corpus, world), LARGE if world.rank else ()  # rank 0 compares them for all
    if own:
        advice = f'remove {own} to go on from the checkpoint before it'
        return resume(own, read_training(own, type(cfg), advice, but), cfg, ours)
    if parent:
        state = read_training(parent, type(cfg), 'branch from another', but)
        check_branch(parent, state, cfg, ours, schedule)
        new = {'seconds': 0.0, 'origin': f'at step {state["step"]:,} of {parent.parent.name}',
               'logged_from': state['step']}
        return Origin(parent, state | new, f'branched from {parent}')
    fresh = {'step': 0, 'seconds': 0.0, 'base_model': '', 'origin': 'with random weights', 'logged_from': 0}
    if not cfg.weights_from:
        return Origin(None, fresh, 'from scratch')
    checkpoint = open_checkpoint(cfg.weights_from, weights=False)
    changes = check_weights(checkpoint, cfg, corpus)
    checkpoint.fetch(compare=world.rank == 0)
    fresh['base_model'] = checkpoint.base_model()
    fresh['origin'] = f'with the weights of {checkpoint.described()}'
    how = (f'weights from {checkpoint.folder}{"".join(f", {change}" for change in changes)}; '
           f'fresh optimizer, data from row {cfg.first_row:,}')
    return Origin(checkpoint.folder, fresh, how, checkpoint.new_ids)


def own_checkpoint(out, name):
    """The newest checkpoint of the run itself, None if it has none yet."""
    steps = saved_steps(Path(out) / name) if name else []
    return Path(out) / name / str(steps[-1]) if steps else None


def read_training(folder, cls, advice, but=()):
    """As `read_state`, of a checkpoint to go on from. Settings that it is older than have their defaults."""
    state, path = read_state(folder, but, advice), folder / 'state.json'
    if not state:
        raise ValueError(f'{folder}: has no state.json, so no training to continue; weights_from needs none')
    try:
        if folder.name != str(state['step']):
            raise ValueError(f'is of step {state["step"]}, not of its folder\'s')
        settings = json.loads(json.dumps(flat(build(cls, state['settings']))))
    except ValueError as error:
        raise ValueError(f'{path}: {error}') from None
    return state | {'fixed': settings | state['fixed'], 'settings': settings}


# -------------------------------------------------------------------------------------------------- resume

def resume(folder, state, cfg, ours):
    refuse_differences(f'the checkpoint {folder}', state['fixed'], ours, ours,
                       'go on with its setting, or take another --name')
    for name in ('branch_from', 'weights_from'):
        theirs, own = state['settings'].get(name), getattr(cfg, name)
        if own and theirs != own:
            raise ValueError(f'{name} {own}: {cfg.out}/{cfg.name} was begun with {theirs or "none"}; '
                             'take another --name')
    now = json.loads(json.dumps(flat(cfg, fixes=('nothing',))))
    changes = [f'{name} {state["settings"][name]} -> {value}' for name, value in now.items()
               if state['settings'][name] != value]
    how = f'resumed from {folder}' + (f' (changed: {"; ".join(changes)})' if changes else '')
    return Origin(folder, state, how)


def refuse_differences(what, theirs, ours, names, advice):
    for name in names:
        if theirs.get(name) != ours[name]:
            raise ValueError(f'{what} has {name} = {theirs.get(name)!r}, this run {ours[name]!r}; {advice}')


# -------------------------------------------------------------------------------------------------- branch

def check_branch(folder, state, cfg, ours, schedule):
    """A branch equals the same run from scratch if until then both did the same in every step."""
    theirs, step = state['fixed'], state['step']
    if step >= cfg.total_steps:
        raise ValueError(f'branch_from {folder} is at step {step}, and this run has {cfg.total_steps}: '
                         'nothing is left')
    parent = build(type(cfg), state['settings'])
    for s in range(step):
        did, would = ('{} at lr {}'.format(*schedule(s, run)) for run in (parent, cfg))
        if did != would:
            raise ValueError(f'branch_from {folder}: step {s} was {did}, and would have been {would} in this '
                             'run; branch before they differ (and before the decay)')
    masked = any(OBJECTIVES[schedule(s, cfg)[0]].uses_ratio for s in range(step))
    free = (*SCHEDULED, *(() if masked else ('mask_ratio', 'mask_replace')))
    refuse_differences(f'branch_from {folder}', theirs, ours, [name for name in ours if name not in free],
                       'a branch goes on with the same numbers')


# ------------------------------------------------------------------------------------------------- weights

def check_weights(checkpoint, cfg, corpus):
    """What a run makes different, a list of words; the weights need not be there yet.

    Tokenizer and sizes must be the same; context and rope_theta may change, and rows be added to the
    vocabulary.
    """
    folder, theirs, meta = checkpoint.folder, checkpoint.sizes, corpus.meta
    if checkpoint.has_tokenizer:
        if checkpoint.tokenizer().fingerprint() != meta['tokenizer']:
            raise ValueError(f'weights_from {folder} has another tokenizer than the corpus {corpus.folder}; '
                             f'prepare one with data.py ... --tokenizer={cfg.weights_from} --out=...')
    elif theirs.vocab_size != meta['vocab_size']:
        raise ValueError(f'weights_from {folder} has no tokenizer.json to compare, and {theirs.vocab_size} '
                         f'ids where the corpus {corpus.folder} has {meta["vocab_size"]}: is it another '
                         'tokenizer\'s?')
    for name in ('head_size', *leaves(Sizes)):
        old, new = getattr(theirs, name), getattr(cfg.model, name)
        grows = name == 'vocab_size' and checkpoint.has_tokenizer and old < new
        if name not in ('head_dim', 'rope_theta') and old != new and not grows:
            raise ValueError(f'weights_from {folder} has {name} = {old}, this run {new}')
    pairs = {name: (getattr(theirs, name), getattr(cfg.model, name)) for name in ('rope_theta', 'vocab_size')}
    pairs['context'] = checkpoint.context, cfg.context
    changes = [f'{name} {old} -> {new}' for name, (old, new) in pairs.items() if old != new]
    rows = [f'a row for the mask token {i}' for i in checkpoint.new_ids]
    return changes + rows + ['a new output head'] * cfg.new_head


# ------------------------------------------------------------------------ what a run has without being told

def inherited(cls, values):
    """Settings of a run with branch_from or weights_from: the sizes of what it begins with, and a name.

    cls is the settings' class, whose defaults stand where `values` do not say otherwise. No lock is held yet:
    the run's own are those of its config.json, which is never removed, and `resume` compares them again.
    """
    said = {name: field.default for name, field in leaves(cls).items()} | values
    if not said['branch_from'] and not said['weights_from']:
        return {}
    name = said['name']
    if said['weights_from'] and not name:
        name = name_after(said['weights_from'], said['phases'], said['mask_ratio'])
    folder, config = own_checkpoint(said['out'], name), Path(said['out'], name, 'config.json')
    if folder or said['branch_from']:
        if folder and config.exists():
            settings = read_json(config)
        else:
            folder = folder or newest_checkpoint(said['branch_from'])
            settings = read_training(folder, cls, 'its sizes are taken from there', LARGE)['settings']
        return {'name': name} | {size: settings[size] for size in leaves(Sizes) if size in settings}
    sizes = open_checkpoint(said['weights_from'], weights=False).sizes
    meta = Path(said['corpus']) / 'meta.json'
    if meta.exists():  # the corpus may have a mask token that the checkpoint lacks
        vocab_size = max(sizes.vocab_size, read_json(meta, {'vocab_size': int})['vocab_size'])
        sizes = dataclasses.replace(sizes, vocab_size=vocab_size)
    return {'name': name} | flat(sizes)


def name_after(weights, phases, mask_ratio):
    """The name of a run that begins with these weights, in the paper's style: smollm2-135m-mlm40."""
    base = run_of(weights).name.lower()
    names = sorted(OBJECTIVES, key=len, reverse=True)  # the longest first: one name may hold another
    kinds = re.findall('|'.join(names), str(phases))
    ratio = f'{100 * mask_ratio:.0f}'
    return '-'.join([base, *(kind + ratio * OBJECTIVES[kind].uses_ratio for kind in kinds)])

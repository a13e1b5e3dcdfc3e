"""How fast, against what: each case prints one JSON line. Not part of the tests.

    python bench/bench.py                            # the cases and what each compares
    python bench/bench.py step_padded loss_alone     # some of them
    python bench/bench.py cpu --out=bench.jsonl      # all that a CPU runs in reasonable time
    python bench/bench.py mfu --size=610m --rows=6,24    # a GPU's utilisation, Hugging Face beside it
    python bench/bench.py mfu --size=124m            # nanoGPT's shape, a plain compiled GPT beside it
    python bench/bench.py table bench.jsonl          # the tables of docs/speed.md

Ours and the peer do the same work in one process. They take turns, each turn on another batch. Two turns
before the clock starts must give the same losses and gradient norms; the second shows that the update is the
same. ours and peer are medians in seconds; ratio is the median of the turns' peer over ours, lo and hi the
extremes; --repeats (7) turns are taken. peak_mib is what a turn adds to the memory at its start.
"""
import argparse
import ctypes
import gc
import itertools
import json
import math
import os
import re
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Callable, NamedTuple

os.environ.setdefault('OMP_WAIT_POLICY', 'passive')    # else waiting threads spin on shared cores

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))    # the scripts and nanoencoder/ are imported from there

import data
import finetune
import pretrain
from model import ChunkedCrossEntropy, initial_weight, loss_and_gradient, parameter_groups
from nanoencoder import huggingface
from nanoencoder.pretraining import cost, log
from nanoencoder.processes import World, choose_flash_attention, pick_device
from nanoencoder.settings import make_settings, parse, run_main

DEVICE, DTYPE = pick_device()
WORLD = World(0, 1, DEVICE, DTYPE)
TINY = dict(name='bench', hidden_size=128, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, tie_word_embeddings=True, vocab_size=4_096, phases=(('mlm', 10_000),),
            decay_steps=0, warmup_steps=0, lr=1e-3, grad_clip=0.5, micro_rows=0)    # a clip that clips
# nanoGPT's 124M and its batch on one GPU. Three matrices of 2,048 in an MLP are as large as its two of 3,072.
NANOGPT = dict(name='bench', vocab_size=50_304, hidden_size=768, intermediate_size=2_048,
               num_hidden_layers=12, num_attention_heads=12, num_key_value_heads=12,
               tie_word_embeddings=True, context=1_024, cut_rows=False, phases=(('clm', 10_000),),
               decay_steps=0, warmup_steps=0, lr=1e-4, compile=True)


# ---------------------------------------------------------------------------
# The comparison of a pair


class Pair(NamedTuple):
    """Two functions that do the same work and return the numbers that must agree."""
    ours: Callable
    peer: Callable
    tokens: int       # in the work, to count per second
    tolerance: float = 1e-5 if DTYPE == 'fp32' else 1e-2    # relative


def agree(ours, peer, tolerance):
    """Whether tensors are equal, each relative to the peer's greatest number."""
    for a, b in zip(ours, peer, strict=True):
        difference = (a - b).abs().max()
        if not difference <= tolerance * b.abs().max():     # nor does nan agree
            return False
    return True


def synchronize():
    if DEVICE.type != 'cpu':
        torch.accelerator.synchronize()


def seconds(run):
    synchronize()
    began = time.perf_counter()
    run()
    synchronize()
    return time.perf_counter() - began


def process_mib(field):
    """Return a number of this process's memory (Linux), in MiB."""
    status = Path('/proc/self/status').read_text()
    return int(re.search(rf'{field}:\s+(\d+)', status)[1]) / 1024


def peak_mib(run):
    """Return what a run adds to the memory at its start, at most: of the GPU, or of the process."""
    if DEVICE.type == 'cuda':
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated() / 2 ** 20
        run()
        peak = torch.cuda.max_memory_allocated() / 2 ** 20
    else:
        ctypes.CDLL('libc.so.6').malloc_trim(0)        # what earlier runs freed would hide what this takes
        Path('/proc/self/clear_refs').write_text('5')  # VmHWM counts from here
        before = process_mib('VmRSS')
        run()
        peak = process_mib('VmHWM')
    return round(max(0.0, peak - before), 1)


def compare(name, pair, repeats):
    """Return the line of a case."""
    for _ in range(2):
        ours = pair.ours()
        peer = pair.peer()
        if not agree(ours, peer, pair.tolerance):
            raise SystemExit(f'error: {name}: not the same work: {ours} and {peer}')
    del ours, peer

    times = {'ours': [], 'peer': []}
    for k in range(repeats):
        for who in sorted(times, reverse=k % 2 == 0):   # now the one, now the other is first
            times[who].append(seconds(getattr(pair, who)))
    ratios = [peer / ours for ours, peer in zip(times['ours'], times['peer'])]
    ours = statistics.median(times['ours'])
    return {'case': name,
            'ours': round(ours, 6),
            'peer': round(statistics.median(times['peer']), 6),
            'ratio': round(statistics.median(ratios), 2),
            'lo': round(min(ratios), 2),
            'hi': round(max(ratios), 2),
            'tokens_per_second': round(pair.tokens / ours),
            'peak_mib': peak_mib(pair.ours),
            'peer_peak_mib': peak_mib(pair.peer)}


def machine():
    """Return where and with what a line was measured."""
    name = f'{torch.get_num_threads()} threads'
    if DEVICE.type == 'cuda':
        name = torch.cuda.get_device_name()
    return {'machine': name,
            'torch': torch.__version__,
            'commit': log.commit(),
            'date': time.strftime('%Y-%m-%d')}


# ---------------------------------------------------------------------------
# Our training step, and a peer's


def settings(size, **changes):
    """Return Settings for MLM at a constant learning rate. size: tiny, or the name of a file in configs/."""
    if size == 'tiny':
        return make_settings(pretrain.Settings, TINY | changes)
    cfg, _ = parse(pretrain.Settings, [f'{ROOT}/configs/{size}.py'])
    return replace(cfg, decay_steps=0, warmup_steps=0, lr=1e-4, save_at=(), **changes)


class RandomCorpus:
    """Stands in for data.Corpus where a batch is made: random tokens, the special ids last."""
    def __init__(self, V):
        random = np.random.default_rng(0)
        self.tokens = random.integers(0, V - 3, 2 ** 20)
        self.meta = {
            'mask_token_id': V - 1,
            'special_ids': [V - 3, V - 2, V - 1],
        }

    def stretch(self, split, k, context):
        # contexts divide it: after the last token the first follows
        start = k * context % len(self.tokens)
        return self.tokens[start:start + context]


def batches_of(cfg, objective, count):
    """Return so many Batches of arrays, a step's rows each."""
    corpus = RandomCorpus(cfg.model.vocab_size)
    batches = []
    for first in range(0, cfg.rows_per_step * count, cfg.rows_per_step):
        rows = [(k, k) for k in range(first, first + cfg.rows_per_step)]
        batch, _ = data.make_batch(corpus, 'train', rows, 0, objective, cfg)
        batches.append(batch)
    return batches


def on_device(batch):
    """Return a Batch with tensors on the device in place of arrays, for a peer."""
    tensors = {name: torch.from_numpy(getattr(batch, name)).to(DEVICE) for name in pretrain.ARRAYS}
    return batch._replace(**tensors)


@torch.no_grad()
def initialise(module, seed=0):
    for name, p in module.named_parameters():
        p.copy_(initial_weight(name, p.shape, seed))


def our_step(cfg, objective='mlm', count=8):
    """Return a function that trains on a Batch and returns loss and gradient norm, Batches, a model."""
    cfg = replace(cfg, phases=((objective, 10_000),))
    model, wrapped, optimizer = pretrain.build(cfg, WORLD)
    initialise(model)
    batches = batches_of(cfg, objective, count)
    ready = [pretrain.to_tensors(batch, cfg.context, DEVICE) for batch in batches]
    turns = itertools.cycle(ready)

    def step():
        batch = next(turns)
        targets = len(batch.at)
        loss, norm = pretrain.train_step(wrapped, optimizer, [batch], targets, 0, cfg, WORLD)
        return loss / targets, norm
    return step, [on_device(batch) for batch in batches], model


def plain_step(model, loss_of, inputs, cfg):
    """Return a function that trains a model on the next of these inputs, as people do."""
    optimizer = torch.optim.AdamW(
        parameter_groups(model, cfg.weight_decay),
        lr=cfg.lr,
        betas=(cfg.beta1, cfg.beta2),
        eps=cfg.eps,
        fused=True)
    turns = itertools.cycle(inputs)
    model.train()

    def step():
        with WORLD.autocast():
            loss = loss_of(next(turns))
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), cfg.grad_clip)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach(), norm    # on the device: nobody waits for them
    return step


def transformers_model(auto, model, cfg, **more):
    """Return transformers' EuroBERT with a model's weights. auto: an Auto class; more: of its config."""
    import transformers
    V = cfg.model.vocab_size
    ids = {'bos': V - 3, 'eos': V - 2, 'pad': V - 2, 'mask': V - 1}
    weights = {name.removeprefix('head.'): p for name, p in model.named_parameters()}
    with tempfile.TemporaryDirectory() as folder:
        huggingface.write_folder(folder, cfg.model, cfg.context, ids, weights, **more)
        peer = getattr(transformers, auto).from_pretrained(folder).to(DEVICE)
    peer.get_input_embeddings().padding_idx = None    # else eos, which pads, would have no gradient
    return peer


def pad(tokens, value=0):
    return nn.utils.rnn.pad_sequence(tokens, batch_first=True, padding_value=value)


def padded_texts(texts):
    """Return a transformers model's inputs for texts of unlike lengths."""
    attended = [torch.ones_like(text) for text in texts]
    return {'input_ids': pad(texts), 'attention_mask': pad(attended)}


def padded(batch):
    targets = batch.targets.split(batch.lengths)
    return padded_texts(batch.tokens.split(batch.lengths)) | {'labels': pad(targets, data.NO_TARGET)}


def rows_of(batch, rows):
    """Return a transformers model's inputs: rows of the same length, without any mask."""
    return {
        'input_ids': batch.tokens.view(rows, -1),
        'labels': batch.targets.view(rows, -1)}


def whole(batch):
    return rows_of(batch, len(batch.lengths))


def packed(batch):
    """Add to rows, each cut in two, a 4D mask that keeps segments apart and positions that restart."""
    rows = len(batch.lengths) // 2
    lengths = torch.tensor(batch.lengths, device=DEVICE)
    starts = lengths.cumsum(0) - lengths
    starts = starts.repeat_interleave(lengths)      # (N,) where each token's segment begins
    positions = torch.arange(len(starts), device=DEVICE) - starts

    segment = starts.view(rows, -1)
    same = segment[:, None, :, None] == segment[:, None, None, :]
    mask = torch.where(same, 0.0, -torch.inf)
    return rows_of(batch, rows) | {'attention_mask': mask, 'position_ids': positions.view(rows, -1)}


# ---------------------------------------------------------------------------
# The cases: each function makes a Pair

UNCUT = dict(context=256, rows_per_step=8, cut_rows=False)


def training(inputs_of, size, **changes):
    """A training step, beside transformers' on what inputs_of makes of a Batch."""
    cfg = settings(size, **changes)
    ours, batches, model = our_step(cfg)
    peer = transformers_model('AutoModelForMaskedLM', model, cfg)

    def loss_of(inputs):
        return peer(**inputs).loss
    inputs = [inputs_of(batch) for batch in batches]
    return Pair(ours, plain_step(peer, loss_of, inputs, cfg), len(batches[0].tokens))


def cross_entropy(selected=False):
    """The loss and its gradients. selected: the peer, too, computes only logits that have a target."""
    N, d, V = 8_192, 256, 32_768
    hidden = torch.randn(N, d, device=DEVICE).mul_(0.05).requires_grad_()
    weight = torch.randn(V, d, device=DEVICE).mul_(0.05).requires_grad_()
    targets = torch.randint(0, V, (N,), device=DEVICE)
    targets = targets.where(torch.rand(N, device=DEVICE) < 0.4, data.NO_TARGET)
    at = torch.nonzero(targets != data.NO_TARGET).squeeze(1)
    ones = torch.ones(len(at), device=DEVICE)

    def ours():
        loss_sum, _ = ChunkedCrossEntropy.apply(
            hidden[at], weight, targets[at], ones, True, loss_and_gradient)
        return loss_sum / len(at)

    def peer():
        rows = at if selected else slice(None)
        return F.cross_entropy(F.linear(hidden[rows], weight), targets[rows])

    def with_gradients(loss_of):
        loss = loss_of()
        loss.backward()
        results = loss.detach(), hidden.grad, weight.grad
        hidden.grad = None      # each run takes memory of its own for them
        weight.grad = None
        return results
    return Pair(partial(with_gradients, ours), partial(with_gradients, peer), N, tolerance=1e-4)


class GPT(nn.Module):
    """A plain decoder: learned positions, LayerNorm, GELU, SDPA with is_causal, tied head, all logits."""
    def __init__(self, sizes, context):
        super().__init__()
        d = sizes.hidden_size
        self.heads = sizes.num_attention_heads
        self.embed = nn.Embedding(sizes.vocab_size, d)
        self.positions = nn.Embedding(context, d)
        self.norm = nn.LayerNorm(d, bias=False)
        self.blocks = nn.ModuleList()
        for _ in range(sizes.num_hidden_layers):
            self.blocks.append(nn.ModuleDict({
                'norm1': nn.LayerNorm(d, bias=False),
                'qkv': nn.Linear(d, 3 * d, bias=False),
                'out': nn.Linear(d, d, bias=False),
                'norm2': nn.LayerNorm(d, bias=False),
                'up': nn.Linear(d, 4 * d, bias=False),
                'down': nn.Linear(4 * d, d, bias=False)}))

    def forward(self, inputs):
        tokens = inputs['input_ids']
        x = self.embed(tokens) + self.positions.weight[:tokens.shape[1]]
        for block in self.blocks:
            normed = block['norm1'](x)
            qkv = block['qkv'](normed)                      # (rows, tokens, 3 d)
            qkv = qkv.unflatten(2, (3, self.heads, -1))
            q, k, v = qkv.transpose(1, 3).unbind(2)         # (rows, heads, tokens, d / heads)
            attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            attended = attended.transpose(1, 2).flatten(2)  # (rows, tokens, d)
            x = x + block['out'](attended)
            normed = block['norm2'](x)
            x = x + block['down'](F.gelu(block['up'](normed)))
        logits = self.norm(x) @ self.embed.weight.T
        return F.cross_entropy(logits.flatten(0, 1), inputs['labels'].flatten())


def small_gpt():
    cfg = settings(
        'tiny', **UNCUT,
        vocab_size=8_192,
        hidden_size=384,
        intermediate_size=1_024,    # three matrices of this width are as large as the GPT's two of 4 x 384
        num_hidden_layers=6,
        num_attention_heads=6,
        num_key_value_heads=6,
        compile=True)
    return beside_gpt(cfg)


def size_of(module):
    return sum(p.numel() for p in module.parameters())


def beside_gpt(cfg):
    """A step of CLM, beside a GPT of the same size. Weights differ: only time and memory are compared."""
    ours, batches, model = our_step(cfg, 'clm')
    gpt = GPT(cfg.model, cfg.context).to(DEVICE)
    size = size_of(model)
    size += gpt.positions.weight.numel()    # which only the GPT learns
    peer_size = size_of(gpt)
    assert abs(size - peer_size) < 1e-3 * size, (size, peer_size)

    inputs = [whole(batch) for batch in batches]
    peer = plain_step(gpt, torch.compile(gpt), inputs, cfg)
    return Pair(ours, peer, len(batches[0].tokens), tolerance=math.inf)


def finetuning(batch_size=32):
    """Lengths are log-normal, median 18; a model of four layers of width 256, four labels."""
    cfg = settings('tiny', hidden_size=256, intermediate_size=768, num_hidden_layers=4, context=512)
    model, *_ = pretrain.build(cfg, WORLD)
    encoder = finetune.Encoder(model.model, finetune.new_head('text', 256, 4)).to(DEVICE)
    initialise(encoder)
    peer = transformers_model('AutoModelForSequenceClassification', encoder, cfg, num_labels=4)
    labels = torch.arange(batch_size, device=DEVICE) % 4

    random = np.random.default_rng(0)
    batches = []
    inputs = []
    for _ in range(4):
        lengths = random.lognormal(2.9, 0.75, batch_size).astype(int).clip(3, 250)
        texts = [random.integers(0, 4_000, length) for length in lengths]
        batches.append(texts)
        inputs.append(padded_texts([torch.from_numpy(text).to(DEVICE) for text in texts]))

    def our_loss(texts):
        return F.cross_entropy(finetune.forward(encoder, texts, WORLD), labels)

    def peer_loss(texts):
        return peer(**texts, labels=labels).loss
    return Pair(plain_step(encoder, our_loss, batches, cfg), plain_step(peer, peer_loss, inputs, cfg),
                sum(lengths))


def muon(size, **changes):
    """Ours is Muon's step, the peer AdamW's. Updates differ: only time and memory are compared."""
    cfg = settings(size, **changes)
    ours, batches, _ = our_step(replace(cfg, optimizer='muon'))
    peer, *_ = our_step(replace(cfg, optimizer='adamw'))
    return Pair(ours, peer, len(batches[0].tokens), tolerance=math.inf)


class Case(NamedTuple):
    work: str
    peer: str
    pair: Callable      # () -> Pair


CUT = partial(training, size='tiny', context=2_048, rows_per_step=6)
OF_210M = partial(training, size='210m_mlm', context=256, rows_per_step=4, compile=False)

CUT_WORK = 'training step, tiny model, 6 rows of 2,048 cut in two'
UNCUT_WORK = 'training step, tiny model, 8 rows of 256 uncut'
WORK_OF_210M = 'training step of the 210M, 4 rows of 256 cut in two'
LOSS_WORK = 'the loss, 8,192 positions, vocabulary of 32,768, 40 % masked'

PADDED = 'Hugging Face padded'
PACKED = 'Hugging Face packed, 4D mask'
WHOLE = 'Hugging Face without any mask'

CASES = {
    'step_padded': Case(CUT_WORK, PADDED, partial(CUT, padded)),
    'step_packed': Case(CUT_WORK, PACKED, partial(CUT, packed)),
    'step_fixed': Case(UNCUT_WORK, WHOLE, partial(training, whole, 'tiny', **UNCUT)),
    'step_fixed_32k': Case(UNCUT_WORK + ', vocabulary of 32,768', WHOLE,
                           partial(training, whole, 'tiny', **UNCUT, vocab_size=32_768)),
    'real_210m': Case(WORK_OF_210M, PADDED, partial(OF_210M, padded)),
    'real_210m_packed': Case(WORK_OF_210M, PACKED, partial(OF_210M, packed)),
    'loss_alone': Case(LOSS_WORK, 'linear, cross_entropy', cross_entropy),
    'loss_selected': Case(LOSS_WORK, 'linear, cross_entropy of those alone',
                          partial(cross_entropy, selected=True)),
    'clm_gpt': Case('CLM step, sizes matched, both compiled', 'a plain GPT', small_gpt),
    'muon_tiny': Case('a step with Muon, 2 rows of 512 cut in two, configs/tiny.py', 'with AdamW',
                      partial(muon, 'tiny', context=512, rows_per_step=2)),
    'muon_51m': Case('a step with Muon, 32 rows of 1,024 cut in two, configs/small.py', 'with AdamW',
                     partial(muon, 'small', rows_per_step=32, compile=False)),
    'finetuning': Case('fine-tuning, batches of 32 short sentences', PADDED, finetuning)}


# ---------------------------------------------------------------------------
# A GPU's utilisation


def mfu(size, rows, objectives, repeats):
    """Yield lines of a size with these numbers of rows and objectives on one GPU, then its peer's with the
    first of them.

    The paper's sizes train on rows of 2,048 tokens cut in two, 6 on each of its GPUs; beside 210m stands
    Hugging Face's model, whose padded rows take 55 GiB. 124m is nanoGPT's shape, with its 12 rows of 1,024,
    beside a plain GPT. The update is included. Useful operations are those of the segments as they are, and
    of the logits that have a target."""
    name = machine()['machine']
    if name not in cost.PEAKS:
        raise ValueError('mfu needs a GPU whose peak is in PEAKS of nanoencoder/pretraining/cost.py, not '
                         f'{name}')
    attention = choose_flash_attention(DEVICE)
    if size == '124m':
        objectives = ['clm']
        attention = 'SDPA'      # of rows that are not cut
    for count, objective in itertools.product(rows, objectives):
        cfg = shape(size, count)
        step, batches, model = our_step(cfg, objective, count=12)
        title = f'mfu {size} {objective}, {cfg.rows_per_step} rows, {attention}'
        line = timed(title, step, repeats, len(batches[0].tokens))
        flops = statistics.fmean(useful_flops(cfg, objective, batch) for batch in batches)
        yield line | {'mfu': round(1e3 * flops / line['ms'] / cost.PEAKS[name], 4)}
        del step, model     # the next one needs the memory

    cfg = shape(size, rows[0])
    title = f'mfu {size}, {cfg.rows_per_step} rows, '
    if size == '124m':
        _, peer, tokens, *_ = beside_gpt(cfg)   # our model goes, and its memory
        yield timed(title + 'a plain GPT', peer, repeats, tokens)
    if size == '210m':
        _, peer, tokens, *_ = training(padded, '210m_mlm', rows_per_step=cfg.rows_per_step, micro_rows=0,
                                       compile=False)
        yield timed(title + PADDED, peer, repeats, tokens)


def shape(size, rows):
    """Return the Settings of a size with so many rows, all at once; 0: nanoGPT's 12, or the paper's 6."""
    if size == '124m':
        return make_settings(pretrain.Settings, NANOGPT | dict(rows_per_step=rows or 12, micro_rows=0))
    return settings(f'{size}_mlm', rows_per_step=rows or 6, micro_rows=0)


def useful_flops(cfg, objective, batch):
    pairs = sum(length ** 2 for length in batch.lengths)
    if data.OBJECTIVES[objective].causal:
        pairs /= 2
    return cost.count_flops(cfg.model, len(batch.tokens), len(batch.at), pairs)


def timed(case, step, repeats, tokens, epoch=12):
    """Return the line of `repeats` epochs of steps. One before them compiles, and does not count."""
    def run():
        for _ in range(epoch):
            step()

    gc.collect()     # what was compiled before holds itself
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    run()
    times = [seconds(run) / epoch for _ in range(repeats)]
    issued = [issuing(step) for _ in range(epoch)]
    median = statistics.median(times)
    return {'case': case,
            'ms': round(1e3 * median, 2),
            'lo': round(1e3 * min(times), 2),
            'hi': round(1e3 * max(times), 2),
            'issued_ms': round(1e3 * statistics.median(issued), 2),
            'tokens_per_second': round(tokens / median),
            'peak_gib': round(torch.cuda.max_memory_allocated() / 2 ** 30, 2)}


def issuing(step):
    """Return the seconds in which the host issues a step to a GPU that has nothing else to do. Where they are
    far fewer than the step takes, the GPU is the limit."""
    synchronize()
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


# ---------------------------------------------------------------------------
# The command


def table(path):
    """Print a file of lines as Markdown: ratios, then what mfu measured; of each case the last."""
    lines = {}
    for text in Path(path).read_text().splitlines():
        line = json.loads(text)
        lines[line['case']] = line
    print('| case | peer | ratio (extremes) | ours | MiB, ours / peer |')
    print('|---|---|---|---|---|')
    for name, case in CASES.items():
        if name in lines:
            print('| {work} | {peer} '.format(**case._asdict()) +
                  '| **{ratio:.2f}** ({lo:.2f} to {hi:.2f}) | {tokens_per_second:,} tokens/s '
                  '| {peak_mib:,.0f} / {peer_peak_mib:,.0f} |'.format(**lines.pop(name)))
    print('\n| date | GPU | torch | case | ms (extremes) | issued in | tokens/s | MFU | GiB |')
    print('|---|---|---|---|---|---|---|---|---|')
    for line in lines.values():
        print('| {date} | {machine} | {torch} | {case} | {ms} ({lo} to {hi}) | {issued_ms} '
              '| {tokens_per_second:,} | {mfu} | {peak_gib} |'.format(**{'mfu': ''} | line))


def measure(names, args):
    """Yield the lines of cases and of mfu, as they are measured."""
    for name in names:
        torch.manual_seed(0)
        if name == 'mfu':
            rows = [int(number) for number in args.rows.split(',')]
            for size in args.size.split(','):
                yield from mfu(size, rows, args.objectives.split(','), args.repeats)
        else:
            yield compare(name, CASES[name].pair(), args.repeats)


def main():
    parser = argparse.ArgumentParser(usage=argparse.SUPPRESS)   # run_main prints the docstring
    parser.add_argument('cases', nargs='*', help='names of cases, cpu, mfu, or table and a file')
    parser.add_argument('--repeats', type=int, default=7, help='turns of each case')
    parser.add_argument('--size', default='610m', help='of mfu: 124m, 210m, 610m, 1b, or several with commas')
    parser.add_argument('--rows', default='0', help='of mfu: rows at once, or several with commas; 0: as in '
                        'the paper and nanoGPT')
    parser.add_argument('--objectives', default='mlm,clm', help='of mfu; 124m has CLM alone')
    parser.add_argument('--out', default=os.devnull, help='a file to append the lines to')
    args = parser.parse_args()
    if not args.cases:
        for name, case in CASES.items():
            print(f'{name:<18} {case.work}: {case.peer}')
        return
    if args.cases[0] == 'table':
        table(args.cases[1])
        return
    names = []
    for word in args.cases:
        names += CASES if word == 'cpu' else [word]
    unknown = {*names} - {*CASES, 'mfu'}
    if unknown:
        raise ValueError(f'no case {min(unknown)}; there are {", ".join([*CASES, "cpu", "mfu", "table"])}')
    with open(args.out, 'a', encoding='utf-8') as file:
        for line in measure(names, args):
            text = json.dumps(line | machine())
            print(text, flush=True)
            print(text, file=file, flush=True)


if __name__ == '__main__':
    run_main(main)

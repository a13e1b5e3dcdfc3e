"""How fast, against what: each case prints one JSON line. Not part of the tests.

    python tests/bench.py                            # the cases and what each compares
    python tests/bench.py step_padded loss_alone     # some of them
    python tests/bench.py cpu --out=bench.jsonl      # all that a CPU runs in reasonable time
    python tests/bench.py mfu --size=610m            # one GPU at the paper's batch, Hugging Face beside it
    python tests/bench.py table bench.jsonl          # the tables of docs/speed.md

Ours and the peer do the same work in one process. They take turns, each turn on another batch. Two turns
before the clock starts must give the same losses and gradient norms; the second shows that the update is the
same. ours and peer are medians in seconds; ratio is the median of the turns' peer over ours, lo and hi the
extremes; --repeats (7) turns are taken. peak_mib is what a turn adds to the memory at its start.
"""
import argparse
import ctypes
import dataclasses
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
from pathlib import Path
from types import SimpleNamespace
from typing import Callable, NamedTuple

os.environ.setdefault('OMP_WAIT_POLICY', 'passive')    # else waiting threads spin on shared cores

import numpy as np               # noqa: E402
import torch                     # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn             # noqa: E402

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import data      # noqa: E402
import finetune  # noqa: E402
import pretrain  # noqa: E402
from model import ChunkedCrossEntropy, initial_weight, loss_and_gradient, parameter_groups  # noqa: E402
from nanoencoder import huggingface                       # noqa: E402
from nanoencoder.pretraining import cost                  # noqa: E402
from nanoencoder.pretraining.log import commit            # noqa: E402
from nanoencoder.processes import World, pick_device      # noqa: E402
from nanoencoder.settings import build, parse, run_main   # noqa: E402

TINY = dict(name='bench', hidden_size=128, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, tie_word_embeddings=True, vocab_size=4_096, phases=(('mlm', 10_000),),
            decay_steps=0, warmup_steps=0, lr=1e-3, grad_clip=0.5, micro_rows=0)    # a clip that clips
DEVICE, DTYPE = pick_device()
WORLD = World(0, 1, DEVICE, DTYPE)
PEAKS = {  # FLOP/s, bf16 dense, by torch's names (datasheets)
    'NVIDIA H200': 989e12, 'NVIDIA H100 80GB HBM3': 989e12, 'NVIDIA H100 NVL': 835e12,
    'NVIDIA H100 PCIe': 756e12, 'NVIDIA A100-SXM4-80GB': 312e12, 'NVIDIA A100-SXM4-40GB': 312e12,
    'NVIDIA A100 80GB PCIe': 312e12, 'NVIDIA GeForce RTX 4090': 165e12}


class Pair(NamedTuple):
    """Two functions that do the same work."""
    ours: Callable
    peer: Callable
    tokens: int       # in the work, to count per second
    tolerance: float = 1e-5 if DTYPE == 'fp32' else 1e-2    # relative


def agree(ours, peer, tolerance):
    """Whether numbers or arrays are equal, each relative to the peer's greatest number."""
    results = [[x.cpu().numpy() if torch.is_tensor(x) else x for x in result] for result in (ours, peer)]
    return all(np.abs(np.subtract(a, b)).max() <= tolerance * np.abs(b).max()
               for a, b in zip(*results, strict=True))


def seconds(run):
    def now():
        DEVICE.type == 'cpu' or torch.accelerator.synchronize()
        return time.perf_counter()
    began = now()
    run()
    return now() - began


def peak_mib(run):
    """What a run adds to the memory at its start, at most: of the GPU, or of the process (Linux)."""
    if DEVICE.type == 'cuda':
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return round((torch.cuda.max_memory_allocated() - before) / 2 ** 20, 1)
    def mib(field):
        return int(re.search(rf'{field}:\s+(\d+)', Path('/proc/self/status').read_text())[1]) / 1024
    ctypes.CDLL('libc.so.6').malloc_trim(0)        # what earlier runs freed would hide what this one takes
    Path('/proc/self/clear_refs').write_text('5')  # VmHWM counts from here
    before = mib('VmRSS')
    run()
    return round(max(0.0, mib('VmHWM') - before), 1)


def compare(name, pair, repeats):
    """One JSON line of a case."""
    for _ in range(2):
        ours, peer = pair.ours(), pair.peer()
        if not agree(ours, peer, pair.tolerance):
            raise SystemExit(f'error: {name}: not the same work: {ours} and {peer}')
    del ours, peer
    times = {'ours': [], 'peer': []}
    for k in range(repeats):
        for who in ('ours', 'peer') if k % 2 else ('peer', 'ours'):
            times[who].append(seconds(getattr(pair, who)))
    ratios = [peer / ours for ours, peer in zip(times['ours'], times['peer'])]
    ours, peer = map(statistics.median, times.values())
    return {'case': name, 'ours': round(ours, 6), 'peer': round(peer, 6),
            'ratio': round(statistics.median(ratios), 2), 'lo': round(min(ratios), 2),
            'hi': round(max(ratios), 2), 'tokens_per_second': round(pair.tokens / ours),
            'peak_mib': peak_mib(pair.ours), 'peer_peak_mib': peak_mib(pair.peer)}


def machine():
    name = torch.cuda.get_device_name() if DEVICE.type == 'cuda' else f'{torch.get_num_threads()} threads'
    return {'machine': name, 'load': round(os.getloadavg()[0], 1), 'torch': torch.__version__,
            'commit': commit(), 'date': time.strftime('%Y-%m-%d')}


def tiny(**changes):
    return build(pretrain.Settings, TINY | changes)


def of_size(size, **changes):
    """Settings for MLM of one of the paper's sizes or of configs/small.py, at a constant learning rate."""
    changes = dict(decay_steps=0, warmup_steps=0, lr=1e-4) | changes
    options = [f'--{name}={value}' for name, value in changes.items()]
    config = f'configs/{size}.py' if size == 'small' else f'configs/{size}_mlm.py'
    return parse(pretrain.Settings, [str(ROOT / config), *options])[0]


def batches_of(cfg, objective, count):
    """A step's rows each, as Batches of tensors on the device: random tokens, the special ids last."""
    V, batches = cfg.model.vocab_size, []
    tokens = np.random.default_rng(0).integers(0, V - 3, 1 << 20)
    corpus = SimpleNamespace(meta={'mask_token_id': V - 1, 'special_ids': [V - 3, V - 2, V - 1]},
                             num_stretches=lambda split, context: len(tokens) // context,
                             stretch=lambda split, k, context: tokens[k * context:(k + 1) * context])
    for first in range(0, cfg.rows_per_step * count, cfg.rows_per_step):
        rows = [(k, k) for k in range(first, first + cfg.rows_per_step)]
        batch, _ = data.make_batch(corpus, 'train', rows, 0, objective, cfg)
        batches.append(batch._replace(**{name: torch.from_numpy(x).to(DEVICE)
                                         for name, x in batch._asdict().items() if name != 'lengths'}))
    return batches


@torch.no_grad()
def initialise(module, seed=0):
    for name, p in module.named_parameters():
        p.copy_(initial_weight(name, p.shape, seed))


def our_step(cfg, objective='mlm', count=8):
    """(a function that trains on the next Batch: loss and gradient norm; the Batches; the model)"""
    cfg = dataclasses.replace(cfg, phases=((objective, 10_000),))
    model, wrapped, optimizer = pretrain.build(cfg, WORLD)
    initialise(model)
    turns = itertools.cycle(batches := batches_of(cfg, objective, count))
    def step():
        batch = next(turns)
        loss, norm = pretrain.train_step(wrapped, optimizer, [batch], len(batch.at), 0, cfg, WORLD)
        return loss / len(batch.at), norm
    return step, batches, model


def other_step(model, losses, cfg):
    """A function that trains a model on the next of these functions' losses, as people do."""
    groups, betas = parameter_groups(model, cfg.weight_decay), (cfg.beta1, cfg.beta2)
    optimizer = torch.optim.AdamW(groups, lr=cfg.lr, betas=betas, eps=cfg.eps, fused=DEVICE.type != 'mps')
    turns = itertools.cycle(losses)
    model.train()

    def step():
        with WORLD.autocast():
            loss = next(turns)()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), cfg.grad_clip)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach(), norm    # on the device: nobody waits for them
    return step


def transformers_model(auto, model, cfg, **more):
    """transformers' EuroBERT with the weights of a model, opened by an Auto class; `more` of its config."""
    import transformers
    transformers.logging.disable_progress_bar()
    V = cfg.model.vocab_size
    ids = {'bos': V - 3, 'eos': V - 2, 'pad': V - 2, 'mask': V - 1}
    weights = {name.removeprefix('head.'): p for name, p in model.named_parameters()}
    with tempfile.TemporaryDirectory() as folder:
        huggingface.save(folder, cfg.model, cfg.context, ids, weights, **more)
        peer = getattr(transformers, auto).from_pretrained(folder).to(DEVICE)
    peer.get_input_embeddings().padding_idx = None    # else eos, which pads, would have no gradient
    return peer


def pad(tokens, value=0):
    return nn.utils.rnn.pad_sequence(tokens, batch_first=True, padding_value=value)


def padded(batch):
    tokens, targets = batch.tokens.split(batch.lengths), batch.targets.split(batch.lengths)
    return {'input_ids': pad(tokens), 'labels': pad(targets, data.NO_TARGET),
            'attention_mask': pad([torch.ones_like(part) for part in tokens])}


def whole(batch):
    """Rows of the same length without any mask."""
    rows = len(batch.lengths)
    return {'input_ids': batch.tokens.view(rows, -1), 'labels': batch.targets.view(rows, -1)}


def packed(batch):
    """Rows of the same length, a 4D mask that keeps segments apart, positions that restart."""
    context = batch.lengths[0] + batch.lengths[1]    # a row is cut in two
    lengths = torch.tensor(batch.lengths, device=DEVICE)
    segment = torch.arange(len(lengths), device=DEVICE).repeat_interleave(lengths).view(-1, context)
    starts = (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
    positions = (torch.arange(len(batch.tokens), device=DEVICE) - starts).view(-1, context)
    mask = torch.where(segment[:, None, :, None] == segment[:, None, None, :], 0.0, -torch.inf)
    return {'input_ids': batch.tokens.view(-1, context), 'labels': batch.targets.view(-1, context),
            'attention_mask': mask, 'position_ids': positions}


def training(cfg, inputs):
    """Ours beside transformers' on what `inputs` makes of a Batch."""
    ours, batches, model = our_step(cfg)
    peer = transformers_model('AutoModelForMaskedLM', model, cfg)
    losses = [lambda batch=inputs(batch): peer(**batch).loss for batch in batches]
    return Pair(ours, other_step(peer, losses, cfg), len(batches[0].tokens))


def loss(selected=False):
    """selected: the peer, too, computes the logits of positions with a target alone."""
    N, d, V = 8_192, 256, 32_768
    hidden, weight = (torch.randn(size, d, device=DEVICE).mul_(0.05).requires_grad_() for size in (N, V))
    targets = torch.randint(0, V, (N,), device=DEVICE).where(torch.rand(N, device=DEVICE) < 0.4, -100)
    at = torch.nonzero(targets != -100).squeeze(1)
    ones = torch.ones(len(at), device=DEVICE)

    def with_gradients(make_loss):
        def run():
            loss = make_loss()
            loss.backward()
            results = loss.detach(), hidden.grad, weight.grad
            hidden.grad = weight.grad = None    # each run takes memory of its own for them
            return results
        return run

    def ours():
        arguments = hidden[at], weight, targets[at], ones, True, loss_and_gradient
        return ChunkedCrossEntropy.apply(*arguments) / len(at)

    def peer():
        rows = at if selected else slice(None)
        return F.cross_entropy(F.linear(hidden[rows], weight), targets[rows])
    return Pair(with_gradients(ours), with_gradients(peer), N, tolerance=1e-4)


class GPT(nn.Module):
    """A plain decoder: learned positions, LayerNorm, GELU, SDPA with is_causal, tied head, all logits."""
    def __init__(self, V, d, L, H, context):
        super().__init__()
        self.H, self.embed, self.positions = H, nn.Embedding(V, d), nn.Embedding(context, d)
        self.blocks = nn.ModuleList(nn.ModuleDict({
            'norm1': nn.LayerNorm(d, bias=False), 'qkv': nn.Linear(d, 3 * d, bias=False),
            'out': nn.Linear(d, d, bias=False), 'norm2': nn.LayerNorm(d, bias=False),
            'up': nn.Linear(d, 4 * d, bias=False), 'down': nn.Linear(4 * d, d, bias=False),
        }) for _ in range(L))
        self.norm = nn.LayerNorm(d, bias=False)

    def forward(self, tokens, targets):
        x = self.embed(tokens) + self.positions.weight[:tokens.shape[1]]
        for block in self.blocks:
            qkv = block['qkv'](block['norm1'](x)).chunk(3, 2)
            q, k, v = (part.unflatten(2, (self.H, -1)).transpose(1, 2) for part in qkv)
            attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + block['out'](attended.transpose(1, 2).flatten(2))
            x = x + block['down'](F.gelu(block['up'](block['norm2'](x))))
        logits = self.norm(x) @ self.embed.weight.T
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def clm_gpt():
    """The weights are others: only how many there are is compared, but for the positions, which it learns."""
    d, L, H, V = 384, 6, 6, 8_192
    cfg = tiny(**UNCUT, vocab_size=V, hidden_size=d, num_hidden_layers=L, num_attention_heads=H,
               num_key_value_heads=H, intermediate_size=8 * d // 3, compile=True)
    ours, batches, model = our_step(cfg, 'clm')
    gpt = GPT(V, d, L, H, cfg.context).to(DEVICE)
    size, peer_size = (sum(p.numel() for p in module.parameters()) for module in (model, gpt))
    assert abs(size + d * cfg.context - peer_size) < 1e-3 * size, (size, peer_size)
    compiled = torch.compile(gpt)
    losses = [lambda batch=whole(batch): compiled(batch['input_ids'], batch['labels']) for batch in batches]
    return Pair(ours, other_step(gpt, losses, cfg), len(batches[0].tokens), tolerance=math.inf)


def finetuning():
    """Lengths are log-normal, median 18; a model of four layers of width 256, four labels."""
    cfg = tiny(hidden_size=256, intermediate_size=768, num_hidden_layers=4, context=512)
    head = finetune.Classifier(256, 4, pooled=True)
    encoder = finetune.Encoder(pretrain.build(cfg, WORLD)[0].model, head).to(DEVICE)
    initialise(encoder)
    peer = transformers_model('AutoModelForSequenceClassification', encoder, cfg, num_labels=4)
    random, ours, others = np.random.default_rng(0), [], []
    for _ in range(4):
        lengths = np.clip(random.lognormal(2.9, 0.75, 32).astype(int), 3, 250)
        texts = [random.integers(0, 4_000, length) for length in lengths]
        tokens, labels = [torch.from_numpy(text).to(DEVICE) for text in texts], torch.arange(32) % 4
        ours.append(lambda texts=texts, labels=labels.to(DEVICE): F.cross_entropy(
            finetune.encode(encoder, texts, WORLD), labels))
        inputs = {'input_ids': pad(tokens), 'labels': labels.to(DEVICE),
                  'attention_mask': pad([torch.ones_like(text) for text in tokens])}
        others.append(lambda inputs=inputs: peer(**inputs).loss)
    return Pair(other_step(encoder, ours, cfg), other_step(peer, others, cfg), sum(lengths))


def muon(cfg):
    """Ours is Muon's step, the peer AdamW's. Their updates are others: only time and memory are compared."""
    (ours, batches, _), (peer, *_) = (our_step(dataclasses.replace(cfg, optimizer=optimizer))
                                      for optimizer in ('muon', 'adamw'))
    return Pair(ours, peer, len(batches[0].tokens), tolerance=math.inf)


CUT, SHORT = dict(context=2_048, rows_per_step=6), dict(context=256, rows_per_step=4, compile=False)
UNCUT = dict(context=256, rows_per_step=8, cut_rows=False)
TITLES = ('training step, tiny model, 6 rows of 2,048 cut in two',
          'training step, tiny model, 8 rows of 256 uncut',
          'training step of the 210M, 4 rows of 256 cut in two',
          'the loss, 8,192 positions, vocabulary of 32,768, 40 % masked')
PADDED, PACKED, WHOLE = (f'Hugging Face {how}' for how in ('padded', 'packed, 4D mask', 'without any mask'))
CASES = {   # the work, the peer, () -> Pair
    'step_padded': (TITLES[0], PADDED, lambda: training(tiny(**CUT), padded)),
    'step_packed': (TITLES[0], PACKED, lambda: training(tiny(**CUT), packed)),
    'step_fixed': (TITLES[1], WHOLE, lambda: training(tiny(**UNCUT), whole)),
    'step_fixed_32k': (f'{TITLES[1]}, vocabulary of 32,768', WHOLE,
                       lambda: training(tiny(**UNCUT, vocab_size=32_768), whole)),
    'real_210m': (TITLES[2], PADDED, lambda: training(of_size('210m', **SHORT), padded)),
    'real_210m_packed': (TITLES[2], PACKED, lambda: training(of_size('210m', **SHORT), packed)),
    'loss_alone': (TITLES[3], 'linear, cross_entropy', loss),
    'loss_selected': (TITLES[3], 'linear, cross_entropy of those alone', lambda: loss(selected=True)),
    'clm_gpt': ('CLM step, sizes matched, both compiled', 'a plain GPT', clm_gpt),
    'muon_tiny': ('a step with Muon, 2 rows of 512 cut in two, configs/tiny.py', 'with AdamW',
                  lambda: muon(tiny(context=512, rows_per_step=2))),
    'muon_51m': ('a step with Muon, 32 rows of 1,024 cut in two, configs/small.py', 'with AdamW',
                 lambda: muon(of_size('small', rows_per_step=32, compile=False))),
    'finetuning': ('fine-tuning, batches of 32 short sentences', PADDED, finetuning)}


def mfu(size, repeats):
    """Lines of a size at the paper's batch on one GPU, 6 rows of 2,048 tokens cut in two; update included.
    Useful operations are those of the segments as they are, and of the logits that have a target."""
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else 'no GPU'
    if name not in PEAKS:
        raise ValueError(f'mfu needs a GPU whose datasheet peak is in PEAKS of tests/bench.py, not {name}')
    cfg = of_size(size, rows_per_step=6, micro_rows=6)
    for objective in ('mlm', 'clm'):
        step, batches, model = our_step(cfg, objective, count=12)
        line = timed(f'mfu {size} {objective}', step, repeats, len(batches[0].tokens))
        halved = 2 if data.OBJECTIVES[objective].causal else 1
        flops = [cost.count_flops(cfg.model, len(batch.tokens), len(batch.at),
                                  sum(length ** 2 for length in batch.lengths) / halved) for batch in batches]
        yield line | {'mfu': round(1e3 * statistics.fmean(flops) / line['ms'] / PEAKS[name], 4)}
        del step, model
    pair = training(dataclasses.replace(cfg, compile=False), padded)    # Hugging Face's, not compiled
    yield timed(f'mfu {size} mlm, {PADDED}', pair.peer, repeats, pair.tokens)


def timed(case, step, repeats, tokens, epoch=24):
    """Of `repeats` epochs of steps; one before them compiles, and does not count."""
    gc.collect()     # what was compiled before holds itself
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    times = [seconds(lambda: [step() for _ in range(epoch)]) / epoch for _ in range(1 + repeats)][1:]
    return {'case': case, 'ms': round(1e3 * statistics.median(times), 2), 'lo': round(1e3 * min(times), 2),
            'hi': round(1e3 * max(times), 2), 'tokens_per_second': round(tokens / statistics.median(times)),
            'peak_gib': round(torch.cuda.max_memory_allocated() / 2 ** 30, 2)}


def table(path):
    """Print a file of lines as Markdown: ratios, then what mfu measured; of each case the last."""
    lines = {line['case']: line for line in map(json.loads, Path(path).read_text().splitlines())}
    print('| case | peer | ratio (extremes) | ours | MiB, ours / peer |\n' + '|---' * 5 + '|')
    for name in [name for name in CASES if name in lines]:
        print('| {} | {} '.format(*CASES[name])
              + '| **{ratio:.2f}** ({lo:.2f} to {hi:.2f}) | {tokens_per_second:,} tokens/s '
              '| {peak_mib:,.0f} / {peer_peak_mib:,.0f} |'.format(**lines.pop(name)))
    print('\n| date | GPU | torch | case | ms (extremes) | tokens/s | MFU | GiB |\n' + '|---' * 8 + '|')
    for line in lines.values():
        print('| {date} | {machine} | {torch} | {case} | {ms} ({lo} to {hi}) | {tokens_per_second:,} '
              '| {mfu} | {peak_gib} |'.format(**{'mfu': ''} | line))


def lines_of(name, args):
    """The lines of a case or of mfu, as they are measured."""
    torch.manual_seed(0)
    if name == 'mfu':
        for size in args.size.split(','):
            yield from mfu(size, args.repeats)
    elif name in CASES:
        yield compare(name, CASES[name][2](), args.repeats)
    else:
        raise ValueError(f'no case {name}; there are {", ".join([*CASES, "cpu", "mfu", "table"])}')


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument('cases', nargs='*', help='names of cases, cpu, mfu, or table and a file')
    parser.add_argument('--repeats', type=int, default=7, help='turns of each case')
    parser.add_argument('--size', default='610m', help='of mfu: 210m, 610m, 1b, or several with commas')
    parser.add_argument('--out', default=os.devnull, help='a file to append the lines to')
    args = parser.parse_args()
    if not args.cases:
        print(*(f'{name:<18} {work}: {peer}' for name, (work, peer, _) in CASES.items()), sep='\n')
    elif args.cases[0] == 'table' and len(args.cases) == 2:
        table(args.cases[1])
    else:
        names = [name for word in args.cases for name in (CASES if word == 'cpu' else [word])]
        with open(args.out, 'a', encoding='utf-8') as file:
            for line in itertools.chain.from_iterable(lines_of(name, args) for name in names):
                for target in (None, file):
                    print(json.dumps(line | machine()), file=target, flush=True)


if __name__ == '__main__':
    run_main(main)

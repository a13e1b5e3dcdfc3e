"""How fast, against what: each case prints one JSON line. Not part of the tests.

    python tests/bench.py                            # the cases and what each compares
    python tests/bench.py step_padded loss_alone     # some of them
    python tests/bench.py cpu --out=bench.jsonl      # all that a CPU runs in reasonable time
    python tests/bench.py mfu --size=610m            # one GPU at the paper's batch, Hugging Face beside it
    python tests/bench.py profile --size=610m        # where a step's time goes, operation by operation
    python tests/bench.py growth --out=bench.jsonl   # against context, segments, vocabulary, processes
    python tests/bench.py figure bench.jsonl         # draw what was measured
    python tests/bench.py table first.jsonl second.jsonl    # the README's tables, of one or several runs

Ours and the peer do the same work in one process. They take turns, each turn on another batch. Two turns
before the clock starts must give the same losses and gradient norms; the second shows that the update is the
same. ours and peer are medians in seconds; ratio is the median of the turns' peer over ours, lo and hi the
extremes; --repeats (7) turns are taken. peak_mib is what a turn adds to the memory at its start.
"""
import argparse
import contextlib
import ctypes
import dataclasses
import gc
import importlib.metadata
import itertools
import json
import os
import re
import statistics
import subprocess
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
from nanoencoder import docs, huggingface, prepare, tasks
from nanoencoder.pretraining import cost
from nanoencoder.judging import intervals, metrics# noqa: E402
from nanoencoder.pretraining.origin import Origin                            # noqa: E402
from nanoencoder.processes import World, pick_device, processes  # noqa: E402
from nanoencoder.settings import build, parse, run_main          # noqa: E402
from nanoencoder.tokenizer import load_tokenizer                 # noqa: E402

TINY = dict(name='bench', hidden_size=128, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, tie_word_embeddings=True, vocab_size=4_096, phases=(('mlm', 10_000),),
            decay_steps=0, warmup_steps=0, lr=1e-3, grad_clip=0.5, micro_rows=0)    # a clip that clips
DEVICE, DTYPE = pick_device()
WORLD = World(0, 1, DEVICE, DTYPE)


# --------------------------------------------------------------------------------------------- how to measure

class Pair(NamedTuple):
    """Two functions that do the same work."""
    ours: Callable
    peer: Callable
    tokens: int = 0    # in the work, to count per second
    tolerance: float | None = 1e-5 if DTYPE == 'fp32' else 1e-2    # relative; None: nothing to compare


def agree(ours, peer, tolerance):
    """Whether numbers or arrays are equal, each relative to the peer's greatest number."""
    results = [[x.cpu().numpy() if torch.is_tensor(x) else x for x in result] for result in (ours, peer)]
    return all(np.abs(np.subtract(a, b)).max() <= tolerance * np.abs(b).max()
               for a, b in zip(*results, strict=True))


def synchronize():
    if DEVICE.type != 'cpu':
        torch.accelerator.synchronize()


def seconds(run):
    synchronize()
    began = time.perf_counter()
    run()
    synchronize()
    return time.perf_counter() - began


def peak_mib(run):
    """What a run adds to the memory at its start, at most: of the GPU, or of the process (Linux)."""
    if DEVICE.type == 'cuda':
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return round((torch.cuda.max_memory_allocated() - before) / 2 ** 20, 1)
    status = Path('/proc/self/status')
    if not status.exists():
        return None
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL('libc.so.6').malloc_trim(0)    # what earlier runs freed would hide what this one takes
    Path('/proc/self/clear_refs').write_text('5')  # VmHWM counts from here

    def mib(field):
        return int(re.search(rf'{field}:\s+(\d+)', status.read_text()).group(1)) / 1024
    before = mib('VmRSS')
    run()
    return round(max(0.0, mib('VmHWM') - before), 1)


def compare(name, pair, repeats):
    """One JSON line of a case."""
    for _ in range(2):
        ours, peer = pair.ours(), pair.peer()
        if pair.tolerance is not None and not agree(ours, peer, pair.tolerance):
            raise SystemExit(f'error: {name}: not the same work: {ours} and {peer}')
    del ours, peer
    times = {'ours': [], 'peer': []}
    for k in range(repeats):
        for who in ('ours', 'peer') if k % 2 else ('peer', 'ours'):
            times[who].append(seconds(getattr(pair, who)))
    ratios = [peer / ours for ours, peer in zip(times['ours'], times['peer'])]
    ours, peer = map(statistics.median, times.values())
    return {'case': name, 'ours': round(ours, 6), 'peer': round(peer, 6),
            'ratio': round(statistics.median(ratios), 2),
            'lo': round(min(ratios), 2), 'hi': round(max(ratios), 2),
            'tokens_per_second': round(pair.tokens / ours) if pair.tokens else None,
            'peak_mib': peak_mib(pair.ours), 'peer_peak_mib': peak_mib(pair.peer)}


def machine():
    cpu = f'{torch.get_num_threads()} threads of CPU'
    name = torch.cuda.get_device_name() if DEVICE.type == 'cuda' else cpu
    packages = 'torch', 'transformers', 'tokenizers', 'scipy'
    versions = {package: importlib.metadata.version(package) for package in packages}
    git = 'git', 'describe', '--always', '--dirty'
    commit = subprocess.run(git, cwd=ROOT, capture_output=True, text=True)
    return {'machine': name, 'load': round(os.getloadavg()[0], 1)} | versions | {
        'commit': commit.stdout.strip(), 'date': time.strftime('%Y-%m-%d')}


# ------------------------------------------------------------------------------------------- what is measured

def tiny(**changes):
    return build(pretrain.Settings, TINY | changes)


def of_size(size, **changes):
    """The paper's settings for MLM of a size, at a constant learning rate, with changes."""
    changes = dict(decay_steps=0, warmup_steps=0, lr=1e-4) | changes
    options = [f'--{name}={value}' for name, value in changes.items()]
    return parse(pretrain.Settings, [str(ROOT / f'configs/{size}_mlm.py'), *options])[0]


def random_corpus(cfg):
    """Random tokens, the special ids last, with what `data.read_step` asks of a corpus."""
    V = cfg.model.vocab_size
    tokens = np.random.default_rng(0).integers(0, V - 3, 1 << 20)
    return SimpleNamespace(meta={'mask_token_id': V - 1, 'special_ids': [V - 3, V - 2, V - 1]},
                           ordinary_ids=np.arange(V - 3),
                           num_stretches=lambda split, context: len(tokens) // context,
                           stretch=lambda split, k, context: tokens[k * context:(k + 1) * context])


def batches_of(cfg, kind, count):
    """The rows of a step each, as Batches of tensors on the device."""
    corpus, share, batches = random_corpus(cfg), cfg.rows_per_step, []
    for first in range(0, share * count, share):
        rows = [(k, k) for k in range(first, first + share)]
        batch, _ = data.make_batch(corpus, 'train', rows, 0, kind, cfg)
        tensors = {name: torch.from_numpy(x).to(DEVICE)
                   for name, x in batch._asdict().items() if name != 'lengths'}
        batches.append(batch._replace(**tensors))
    return batches


def new_model(cfg, world=WORLD):
    """(model, the same wrapped, optimizer) at the start of a run."""
    model, wrapped, optimizer = pretrain.build(cfg, world)
    pretrain.initialise(model, Origin(None, {'step': 0}, ''), cfg)
    return model, wrapped, optimizer


def our_step(cfg, kind='mlm', count=8):
    """(a function that trains on the next Batch: loss and gradient norm; the Batches; the model)"""
    cfg = dataclasses.replace(cfg, phases=((kind, 10_000),))
    model, wrapped, optimizer = new_model(cfg)
    batches = batches_of(cfg, kind, count)
    turns = itertools.cycle(batches)

    def step():
        batch = next(turns)
        loss, norm = pretrain.train_step(wrapped, optimizer, [batch], len(batch.at), 0, cfg, WORLD)
        return loss / len(batch.at), norm    # on the device: nobody waits for them
    return step, batches, model


def adamw(model, cfg):
    groups, betas = parameter_groups(model, cfg.weight_decay), (cfg.beta1, cfg.beta2)
    return torch.optim.AdamW(groups, lr=cfg.lr, betas=betas, eps=cfg.eps, fused=DEVICE.type != 'mps')


def their_step(theirs, inputs, cfg):
    """A function that trains a model of transformers' interface on the next of these inputs, as people do."""
    theirs.train()
    optimizer, turns = adamw(theirs, cfg), itertools.cycle(inputs)

    def step():
        with WORLD.autocast():
            loss = theirs(**next(turns)).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(theirs.parameters(), cfg.grad_clip)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach(), norm
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
        theirs = getattr(transformers, auto).from_pretrained(folder).to(DEVICE)
    theirs.get_input_embeddings().padding_idx = None    # else eos, which pads, would have no gradient
    return theirs


def num_parameters(model):
    return sum(p.numel() for p in model.parameters())


def padded(batch):
    tokens, targets = batch.tokens.split(batch.lengths), batch.targets.split(batch.lengths)
    pad = nn.utils.rnn.pad_sequence
    return {'input_ids': pad(tokens, batch_first=True),
            'labels': pad(targets, batch_first=True, padding_value=data.NO_TARGET),
            'attention_mask': pad([torch.ones_like(part) for part in tokens], batch_first=True)}


def packed(batch):
    """Rows of the same length, a 4D mask that keeps segments apart, positions that restart."""
    context = batch.lengths[0] + batch.lengths[1]    # a row is cut in two
    lengths = torch.tensor(batch.lengths, device=DEVICE)
    segment = torch.arange(len(lengths), device=DEVICE).repeat_interleave(lengths).view(-1, context)
    starts = (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
    positions = (torch.arange(len(batch.tokens), device=DEVICE) - starts).view(-1, context)
    mask = torch.where(segment[:, None, :, None] == segment[:, None, None, :], 0.0, -torch.inf)
    return whole(batch, context) | {'attention_mask': mask, 'position_ids': positions}


def whole(batch, context):
    """Rows of the same length without any mask."""
    return {'input_ids': batch.tokens.view(-1, context), 'labels': batch.targets.view(-1, context)}


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
        for p in self.parameters():
            if p.ndim == 2:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, input_ids, labels):
        x = self.embed(input_ids) + self.positions.weight[:input_ids.shape[1]]
        for block in self.blocks:
            qkv = block['qkv'](block['norm1'](x)).chunk(3, 2)
            q, k, v = (part.unflatten(2, (self.H, -1)).transpose(1, 2) for part in qkv)
            attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + block['out'](attended.transpose(1, 2).flatten(2))
            x = x + block['down'](F.gelu(block['up'](block['norm2'](x))))
        logits = self.norm(x) @ self.embed.weight.T
        return SimpleNamespace(loss=F.cross_entropy(logits.flatten(0, 1), labels.flatten()))


# ------------------------------------------------------------------------------------------------------ cases

def transformers_step(model, batches, inputs, cfg):
    theirs = transformers_model('AutoModelForMaskedLM', model, cfg)
    return their_step(theirs, [inputs(batch) for batch in batches], cfg)


def beside_transformers(cfg, inputs):
    """Ours beside transformers' on what `inputs` makes of a Batch."""
    ours, batches, model = our_step(cfg)
    return Pair(ours, transformers_step(model, batches, inputs, cfg), len(batches[0].tokens))


def step_cut(inputs):
    return beside_transformers(tiny(context=2_048, rows_per_step=6), inputs)


def step_whole(vocab_size):
    cfg = tiny(context=256, rows_per_step=8, cut_rows=False, vocab_size=vocab_size)
    return beside_transformers(cfg, lambda batch: whole(batch, 256))


def step_210m(inputs):
    return beside_transformers(of_size('210m', context=256, rows_per_step=4, compile=False), inputs)


def clm_gpt():
    d, L, H, V, context = 384, 6, 6, 8_192, 256
    cfg = tiny(context=context, rows_per_step=8, cut_rows=False, vocab_size=V, hidden_size=d,
               num_hidden_layers=L, num_attention_heads=H, num_key_value_heads=H,
               intermediate_size=8 * d // 3, compile=True)
    ours, batches, model = our_step(cfg, 'clm')
    gpt = GPT(V, d, L, H, context).to(DEVICE)
    matched = num_parameters(model) + gpt.positions.weight.numel()    # ours learns no positions
    assert abs(matched - num_parameters(gpt)) < 1e-3 * matched, (matched, num_parameters(gpt))
    theirs = their_step(torch.compile(gpt), [whole(batch, context) for batch in batches], cfg)
    return Pair(ours, theirs, len(batches[0].tokens), tolerance=None)


def loss(selected=False):
    """selected: the peer, too, computes the logits of positions with a target alone."""
    N, d, V = 8_192, 256, 32_768
    hidden, weight = (torch.randn(size, d, device=DEVICE).mul_(0.05).requires_grad_() for size in (N, V))
    targets = torch.randint(0, V, (N,), device=DEVICE).where(torch.rand(N, device=DEVICE) < 0.4, -100)
    at = torch.nonzero(targets != -100).squeeze(1)

    def with_gradients(make_loss):
        def run():
            loss = make_loss()
            loss.backward()
            results = loss.detach(), hidden.grad, weight.grad
            hidden.grad = weight.grad = None    # each run takes memory of its own for them
            return results
        return run

    def ours():
        return chunked_loss(hidden[at], weight, targets[at]) / len(at)

    def peer():
        rows = at if selected else slice(None)
        return F.cross_entropy(F.linear(hidden[rows], weight), targets[rows])
    return Pair(with_gradients(ours), with_gradients(peer), N, tolerance=1e-4)


def chunked_loss(hidden, weight, targets):
    ones = torch.ones(len(targets), device=targets.device)
    return ChunkedCrossEntropy.apply(hidden, weight, targets, ones, True, loss_and_gradient)


def sentences(count, seed=0):
    """Token arrays with the lengths of short sentences: log-normal, median 18, at most 250."""
    random = np.random.default_rng(seed)
    lengths = np.clip(random.lognormal(2.9, 0.75, count).astype(int), 3, 250)
    return [random.integers(0, 4_000, length) for length in lengths]


def encoder_pair(auto, head, **more):
    """(our Encoder with this head, transformers' with the same weights), 4 layers of width 256."""
    cfg = tiny(hidden_size=256, intermediate_size=768, num_hidden_layers=4, context=512)
    encoder = finetune.Encoder(new_model(cfg)[0].model, head).to(DEVICE)
    with torch.no_grad():
        for name, p in encoder.named_parameters():
            if name.startswith('head.'):
                p.copy_(initial_weight(name.removeprefix('head.'), p.shape, 0))
    return encoder, transformers_model(auto, encoder, cfg, **more)


def padded_texts(arrays):
    """(input ids, attention mask)"""
    tokens = [torch.from_numpy(array).to(DEVICE) for array in arrays]
    ids = nn.utils.rnn.pad_sequence(tokens, batch_first=True)
    return ids, nn.utils.rnn.pad_sequence([torch.ones_like(part) for part in tokens], batch_first=True)


def vectors(by_length=False):
    encoder, theirs = encoder_pair('AutoModel', tasks.kind.unit_vectors)
    texts, cfg = sentences(512), SimpleNamespace(tokens_at_once=16_384)
    if by_length:
        texts.sort(key=len)
    examples = [tasks.kind.Example(text) for text in texts]
    theirs.eval()

    def ours():
        return np.stack(finetune.outputs(cfg, WORLD, encoder, examples, per_token=False))

    @torch.no_grad()
    def peer():
        pooled = []
        for start in range(0, len(texts), 32):
            ids, mask = padded_texts(texts[start:start + 32])
            with WORLD.autocast():
                hidden = theirs(input_ids=ids, attention_mask=mask).last_hidden_state
            mean = (hidden.float() * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
            pooled.append(F.normalize(mean, dim=1))
        return torch.cat(pooled).cpu().numpy()
    return Pair(ours, peer, sum(map(len, texts)))


def finetuning():
    head = tasks.classification.PooledClassifier(256, 4)
    encoder, theirs = encoder_pair('AutoModelForSequenceClassification', head, num_labels=4)
    batches = [sentences(32, seed) for seed in range(4)]
    labels = torch.randint(0, 4, (4, 32), generator=torch.Generator().manual_seed(0)).to(DEVICE)
    optimizers = {model: adamw(model, tiny()) for model in (encoder, theirs)}

    def update(model, loss):
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizers[model].step()
        optimizers[model].zero_grad()
        return loss.item(), norm.item()

    def ours():
        return [update(encoder, F.cross_entropy(finetune.encode(encoder, batch, WORLD), label))
                for batch, label in zip(batches, labels)]

    def peer():
        results = []
        for batch, label in zip(batches, labels):
            ids, mask = padded_texts(batch)
            with WORLD.autocast():
                loss = theirs(input_ids=ids, attention_mask=mask, labels=label).loss
            results.append(update(theirs, loss))
        return results
    return Pair(ours, peer, sum(len(text) for batch in batches for text in batch))


def tokenising():
    from tokenizers import Tokenizer as HuggingFace
    llama = ROOT.parent / 'shared/tokenizer/llama3.model'
    tokenizer = load_tokenizer(str(llama if llama.exists() else ROOT / 'configs/corpora/docs'))
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(folder)
        theirs = HuggingFace.from_file(f'{folder}/tokenizer.json')
    theirs.encode_special_tokens = True
    texts, threads = [text for _, _, text in docs.documents()][:8_000], os.cpu_count()
    parts = [texts[k:k + prepare.CHUNK] for k in range(0, len(texts), prepare.CHUNK)]
    chunks = [([(text, False) for text in part], None, None) for part in parts]
    ids = [tokenizer.encode(text).tolist() for text in texts]
    assert ids == [encoding.ids for encoding in theirs.encode_batch_fast(texts, add_special_tokens=False)]

    def ours():
        encoded = data.in_order(lambda chunk: prepare.encode(tokenizer, chunk), chunks, threads, 2 * threads)
        return [sum(len(array) for documents, _, _ in encoded for array in documents[''])]

    def peer():
        encodings = theirs.encode_batch_fast(texts, add_special_tokens=False)
        return [sum(len(encoding.ids) + 1 for encoding in encodings)]
    return Pair(ours, peer, sum(len(text_ids) + 1 for text_ids in ids), tolerance=0)


def bootstrap():
    import scipy.stats
    scores = np.random.default_rng(0).random(3_000)

    def ours():
        return intervals.interval(intervals.bootstrap(scores)[:, 0])

    def peer():
        options = dict(n_resamples=10_000, method='percentile', batch=256, rng=0)
        return scipy.stats.bootstrap((scores,), np.mean, **options).confidence_interval
    return Pair(ours, peer, tolerance=1e-9)


def ndcg():
    random = np.random.default_rng(0)
    cosines = random.random((3_000, 2_000)).round(6)
    ids, discounts = [f'd{k:04d}' for k in range(2_000)][::-1], np.log2(np.arange(10) + 2).tolist()
    rows = [{'id': str(k), 'grades': {ids[j]: 1 for j in random.integers(0, 2_000, 3)}}
            for k in range(3_000)]

    def ours():
        rankings = [tasks.retrieval.ranking(row, ids, cosines[k]) for k, row in enumerate(rows)]
        return [metrics.ndcg(row['gold'], row['docs']) for row in rankings]

    def peer():
        scores = []
        for row, similarities in zip(rows, cosines.tolist()):
            order = sorted(zip(similarities, ids), reverse=True)[:10]
            gain = sum(row['grades'].get(document, 0) / by for (_, document), by in zip(order, discounts))
            best = sorted(row['grades'].values(), reverse=True)[:10]
            scores.append(gain / sum(grade / by for grade, by in zip(best, discounts)))
        return scores
    return Pair(ours, peer, tolerance=1e-9)


def loader_waits(steps=200, warm_up=20):
    """A line; there is no peer."""
    cfg = tiny(context=512, rows_per_step=2)
    corpus = random_corpus(cfg)
    _, wrapped, optimizer = new_model(cfg)

    def load(step):
        batches, num_targets, _ = data.read_step(step, corpus, cfg)
        return [pretrain.to_tensors(batch, DEVICE) for batch in batches], num_targets

    with contextlib.closing(data.in_order(load, range(warm_up + steps))) as loader:
        for k in range(warm_up + steps):
            if k == warm_up:
                synchronize()
                waited, began = 0.0, time.perf_counter()
            before = time.perf_counter()
            batches, num_targets = next(loader)
            if k >= warm_up:
                waited += time.perf_counter() - before
            pretrain.train_step(wrapped, optimizer, batches, num_targets, k, cfg, WORLD)
        synchronize()
        took = time.perf_counter() - began
    return {'case': 'loader_waits', 'share': round(waited / took, 4),
            'tokens_per_second': round(steps * cfg.rows_per_step * cfg.context / took)}


class Case(NamedTuple):
    work: str
    peer: str         # '' where there is none
    goal: str         # of the ratio
    make: Callable    # () -> Pair, or a line where there is no peer


TINY_CUT = 'training step, tiny model, 6 rows of 2,048 cut as in the paper'
TINY_WHOLE = 'training step, tiny model, 8 rows of 256 uncut, vocabulary'
REAL = 'training step of the 210M, 4 rows of 256 cut in two'
LOSS = 'the loss, 8,192 positions, vocabulary 32,768, 40 % masked'
VECTORS = 'vectors of 512 short sentences'
CASES = {
    'step_padded': Case(TINY_CUT, 'Hugging Face padded', '2.4', lambda: step_cut(padded)),
    'step_packed': Case(TINY_CUT, 'Hugging Face packed, 4D mask', '1.35', lambda: step_cut(packed)),
    'step_fixed': Case(f'{TINY_WHOLE} 4,096', 'Hugging Face without any mask', '1.15',
                       lambda: step_whole(4_096)),
    'step_fixed_32k': Case(f'{TINY_WHOLE} 32,768', 'Hugging Face without any mask', '1.6',
                           lambda: step_whole(32_768)),
    'real_210m': Case(REAL, 'Hugging Face padded', '3.0', lambda: step_210m(padded)),
    'real_210m_packed': Case(REAL, 'Hugging Face packed, 4D mask', '1.75', lambda: step_210m(packed)),
    'clm_gpt': Case('CLM step, sizes matched, both compiled', 'a plain GPT', '1.0', clm_gpt),
    'loss_alone': Case(LOSS, 'linear, cross_entropy', '2.5, memory 1/5', loss),
    'loss_selected': Case(LOSS, 'linear, cross_entropy of those alone', '1.0', lambda: loss(selected=True)),
    'ragged_inference': Case(VECTORS, 'Hugging Face on padded batches of 32 in random order', '2.5', vectors),
    'ragged_sorted': Case(VECTORS, 'Hugging Face on padded batches of 32, sorted by length', '1.0',
                          lambda: vectors(by_length=True)),
    'ragged_training': Case('fine-tuning steps on batches of 32 short sentences',
                            'Hugging Face on padded batches', '2.4', finetuning),
    'tokenising': Case("English, Llama 3's vocabulary (the embedded one if it is not at hand)",
                       "tokenizers' batch call", '2.8', tokenising),
    'bootstrap': Case('interval of a mean, 10,000 resamples of 3,000 scores', 'scipy.stats.bootstrap',
                      '1.0, at most 32 MiB', bootstrap),
    'ndcg': Case('NDCG@10 of 3,000 queries over 2,000 documents',
                 "sorting each query's cosines in Python", '8', ndcg),
    'loader_waits': Case('the share of its time that a training step waits for its batch, tiny model, '
                         '1,024 tokens', '', 'at most 1 %', loader_waits)}
OTHERS = 'cpu', 'mfu', 'profile', 'growth', 'figure', 'table'


# ---------------------------------------------------------------------------------------------------- one GPU

PEAKS = {  # FLOP/s, bf16 dense, by torch's names (datasheets)
    'NVIDIA H200': 989e12, 'NVIDIA H100 80GB HBM3': 989e12, 'NVIDIA H100 NVL': 835e12,
    'NVIDIA H100 PCIe': 756e12, 'NVIDIA A100-SXM4-80GB': 312e12, 'NVIDIA A100-SXM4-40GB': 312e12,
    'NVIDIA A100 80GB PCIe': 312e12, 'NVIDIA GeForce RTX 4090': 165e12}


def mfu(size, repeats, with_peer):
    """Lines of a size at the paper's batch on one GPU, 6 rows of 2,048 tokens cut in two; update included."""
    if DEVICE.type != 'cuda':
        raise ValueError('mfu needs CUDA; `cpu` and `growth` run without')
    if torch.cuda.get_device_name() not in PEAKS:
        raise ValueError(f'no datasheet peak is known for {torch.cuda.get_device_name()}; add it to PEAKS '
                         'in tests/bench.py')
    for kind in ('mlm', 'clm'):
        yield utilisation(size, kind, repeats)
    if with_peer:
        yield peer_utilisation(size, repeats)


def batch_flops(sizes, batch, kind):
    """Of one Batch, its segments as they are."""
    pairs = sum(length ** 2 for length in batch.lengths) / (2 if data.OBJECTIVES[kind].causal else 1)
    return cost.count_flops(sizes, len(batch.tokens), len(batch.at), pairs)


def utilisation(size, kind, repeats):
    peak, cfg = PEAKS[torch.cuda.get_device_name()], of_size(size, rows_per_step=6, micro_rows=6)
    clean()
    step, batches, model = our_step(cfg, kind, count=12)
    first_step = seconds(step)
    times = epochs(step, len(batches), repeats)
    took, N, sizes = statistics.median(times), len(batches[0].tokens), cfg.model
    flops = statistics.fmean(batch_flops(sizes, batch, kind) for batch in batches)
    # nanoGPT's formula: 6 N and all pairs of an uncut row. Its embedding is the head and so computes; where
    # ours is not, it does not count.
    weights = num_parameters(model)
    untied = 0 if sizes.tie_word_embeddings else sizes.vocab_size * sizes.hidden_size
    nanogpt = (6 * (weights - untied) + 12 * sizes.num_hidden_layers * sizes.hidden_size * cfg.context) * N
    expected = cost.memory_gib(cfg, 1, weights)
    return timed(f'mfu {size} {kind}', times, N) | {
        'mfu': round(flops / took / peak, 4), 'mfu_nanogpt_formula': round(nanogpt / took / peak, 4),
        'ms_at_80_percent': round(1e3 * flops / (0.8 * peak), 2), 'first_step_s': round(first_step, 1),
        'expected_gib': round(expected['ddp'] * 16 / 18 + expected['activations'] + expected['loss'], 2)}


def peer_utilisation(size, repeats):
    """transformers' model, not compiled, on the same texts, padded."""
    cfg = of_size(size, rows_per_step=6, micro_rows=6, compile=False)
    clean()
    _, batches, model = our_step(cfg, count=12)
    theirs = transformers_step(model, batches, padded, cfg)
    del model, _
    clean()
    times = epochs(theirs, len(batches), repeats)
    return timed(f'mfu {size} mlm, Hugging Face padded', times, len(batches[0].tokens))


def epochs(step, count, repeats):
    """Seconds a step, of each of `repeats` epochs of `count` Batches; one before them does not count."""
    return [seconds(lambda: [step() for _ in range(count)]) / count for _ in range(1 + repeats)][1:]


def clean():
    gc.collect()    # compiled layers hold themselves
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def timed(case, times, tokens):
    return {'case': case, 'ms': round(1e3 * statistics.median(times), 2), 'lo': round(1e3 * min(times), 2),
            'hi': round(1e3 * max(times), 2), 'tokens_per_second': round(tokens / statistics.median(times)),
            'peak_gib': round(torch.cuda.max_memory_allocated() / 2 ** 30, 2)}


def profile(size):
    """Print where the time of a step goes: on a GPU at the paper's batch, on a CPU 4 rows of 256."""
    from torch.profiler import ProfilerActivity
    cuda = DEVICE.type == 'cuda'
    cfg = of_size(size, rows_per_step=6, micro_rows=6) if cuda else \
        of_size(size, context=256, rows_per_step=4, compile=False)
    step = our_step(cfg)[0]
    for _ in range(3):
        step()
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA] if cuda else [ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True) as profiler:
        step()
    by = 'self_cuda_time_total' if cuda else 'self_cpu_time_total'
    averages = profiler.key_averages(group_by_input_shape=True)
    print(averages.table(sort_by=by, row_limit=25, max_name_column_width=48))


# ----------------------------------------------------------------------------------------------- how it grows

def growth(repeats):
    """Lines: speed of the tiny model against context, segments, processes; memory against vocabulary."""
    # first: in a process that has trained already the memory of the loss is not told apart as well
    for vocab_size in (4_096, 8_192, 16_384, 32_768, 65_536, 131_072):
        hidden, weight = (torch.randn(size, 128, device=DEVICE).requires_grad_()
                          for size in (2_048, vocab_size))
        targets = torch.randint(0, vocab_size, (2_048,), device=DEVICE)
        ours = peak_mib(lambda: chunked_loss(hidden, weight, targets).backward())
        hidden.grad = weight.grad = None
        peer = peak_mib(lambda: F.cross_entropy(F.linear(hidden, weight), targets).backward())
        yield {'case': 'growth', 'of': 'vocabulary', 'at': vocab_size,
               'peak_mib': ours, 'peer_peak_mib': peer}
    for context in (256, 512, 1_024, 2_048, 4_096, 8_192):
        yield speed_line('context', context, tiny(context=context, rows_per_step=8_192 // context), repeats)
    for segments in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        cfg = tiny(context=8_192 // segments, rows_per_step=segments, cut_rows=False)
        yield speed_line('segments of 8,192 tokens', segments, cfg, repeats)
    for count in (1, 2):
        torchrun = sys.executable, '-m', 'torch.distributed.run', '--standalone', f'--nproc_per_node={count}'
        result = subprocess.run([*torchrun, __file__, '_process'], capture_output=True, text=True,
                                timeout=600, env=os.environ | {'OMP_NUM_THREADS': '1'})
        if result.returncode:
            raise SystemExit(f'error: {count} processes: {result.stderr[-500:]}')
        yield {'case': 'growth', 'of': 'processes of one thread', 'at': count,
               'tokens_per_second': int(result.stdout.split()[-1])}


def speed_line(what, at, cfg, repeats):
    step, batches, _ = our_step(cfg)
    step()
    speeds = [len(batches[0].tokens) / seconds(step) for _ in range(repeats)]
    return {'case': 'growth', 'of': what, 'at': at, 'tokens_per_second': round(statistics.median(speeds)),
            'lo': round(min(speeds)), 'hi': round(max(speeds))}


def one_process():
    """Under torchrun: tokens a second of all processes, 8 rows of 512 a step, printed by the first."""
    with processes('cpu') as world:
        cfg = tiny(context=512, rows_per_step=8)
        _, wrapped, optimizer = new_model(cfg, world)
        batch = batches_of(dataclasses.replace(cfg, rows_per_step=8 // world.size), 'mlm', 1)[0]

        def step():
            pretrain.train_step(wrapped, optimizer, [batch], len(batch.at) * world.size, 0, cfg, world)
        step()
        took = statistics.median([seconds(step) for _ in range(20)])
        if world.rank == 0:
            print(round(8 * 512 / took))


# ---------------------------------------------------------------------------------------------- table, figure

def read_lines(path):
    """The lines of a file; what a killed run left half-written is passed over."""
    lines = []
    for number, text in enumerate(Path(path).read_text(encoding='utf-8').splitlines(), 1):
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        if isinstance(line, dict) and {'case', 'date'} <= line.keys():
            lines.append(line)
        else:
            print(f'warning: {path}:{number}: not a line of this script', file=sys.stderr)
    if not lines:
        raise ValueError(f'{path}: nothing measured in it')
    return lines


def table(paths):
    """Print files of lines as Markdown: ratios of each file, the rest of the last; then what mfu measured."""
    files = [{line['case']: line for line in read_lines(path)} for path in paths]
    titles = ['case', 'peer', 'goal', *['ratio (extremes)'] * len(files), 'ours', 'memory, ours / peer (MiB)']
    print_markdown(titles, [ratio_row(case, [lines.get(name) for lines in files])
                            for name, case in CASES.items()
                            if any('ratio' in lines.get(name, {}) for lines in files)])
    for path, lines in zip(paths, files):
        last, waits = list(lines.values())[-1], ''
        if 'loader_waits' in lines:
            waits = f', a step waits {lines["loader_waits"]["share"]:.1%} for its batch'
        commit = f'commit {last["commit"]}, {last["date"]}'
        print(f'\n{path}: {last["machine"]}, torch {last["torch"]}, {commit}{waits}')
    utilised = {name: line for lines in files for name, line in lines.items() if name.startswith('mfu ')}
    if utilised:
        print()
        titles = 'date', 'GPU', 'torch', 'case', 'ms (extremes)', 'tokens/s', 'MFU', 'memory (GiB)'
        print_markdown(titles, map(mfu_row, utilised.values()))


def ratio_row(case, lines):
    """Of a case and its line in each file, None where it has none."""
    ratios = [f'**{line["ratio"]:.2f}** ({line["lo"]:.2f} to {line["hi"]:.2f})' if line else ''
              for line in lines]
    line = next(filter(None, reversed(lines)))
    speed = f', {line["tokens_per_second"]:,} tokens/s' if line['tokens_per_second'] else ''
    memory = ['?' if mib is None else f'{mib:,.0f}' for mib in (line['peak_mib'], line['peer_peak_mib'])]
    ours = f'{1e3 * line["ours"]:,.0f} ms{speed}'
    return case.work, case.peer, case.goal, *ratios, ours, ' / '.join(memory)


def mfu_row(line):
    times = f'{line["ms"]} ({line["lo"]} to {line["hi"]})'
    mfu = f'{line["mfu"]:.1%}' if 'mfu' in line else ''
    return (line['date'], line['machine'], line['torch'], line['case'].removeprefix('mfu '), times,
            f'{line["tokens_per_second"]:,}', mfu, line['peak_gib'])


def print_markdown(titles, rows):
    print(f'| {" | ".join(titles)} |')
    print('|---' * len(titles) + '|')
    for row in rows:
        print(f'| {" | ".join(map(str, row))} |')


def figure(path, out='figures/speed.png'):
    """Draw a file of this script's lines: ratios of the cases, and how things grow."""
    import matplotlib
    matplotlib.use('agg')
    from matplotlib import pyplot as plt
    lines = read_lines(path)
    series = {}
    for line in lines:
        if line['case'] == 'growth':
            series.setdefault(line['of'], {})[line['at']] = line
    columns = min(3, 1 + len(series))
    rows = -(-(1 + len(series)) // columns)
    fig, axes = plt.subplots(rows, columns, figsize=(5 * columns, 4.2 * rows), layout='constrained',
                             squeeze=False)
    first, *others = axes.flatten()
    draw_ratios(first, list({line['case']: line for line in lines if 'ours' in line}.values()))
    for ax, (what, points) in zip(others, series.items()):
        draw_growth(ax, what, points)
    for ax in others[len(series):]:
        ax.axis('off')
    last = lines[-1]
    fig.suptitle(f'{last["machine"]}, torch {last["torch"]}, {last["date"]}')
    Path(out).parent.mkdir(exist_ok=True)
    fig.savefig(out, dpi=150)
    print(out)


def draw_ratios(ax, lines):
    names, ratios = [line['case'] for line in lines], [line['ratio'] for line in lines]
    whiskers = np.array([[line['ratio'] - line['lo'], line['hi'] - line['ratio']] for line in lines]).T
    bars = ax.barh(names, [ratio - 1 for ratio in ratios], left=1, xerr=whiskers if lines else None)
    ax.bar_label(bars, [f'{ratio:.2f}' for ratio in ratios], padding=4)
    ax.axvline(1, color='black', lw=0.8)
    ax.set_xscale('log')
    ax.set_xlim(0.5, 2 * max([2, *ratios]))
    ax.set_xticks([0.5, 1, 2, 4, 8, 16], ['0.5', '1', '2', '4', '8', '16'])
    ax.set_xlabel("peer's time / ours (whiskers: extremes)")
    ax.invert_yaxis()


def draw_growth(ax, what, points):
    """points  {x: line}"""
    xs = sorted(points)
    if 'peak_mib' in points[xs[0]]:
        for key, label in (('peak_mib', 'ours'), ('peer_peak_mib', 'all logits at once')):
            ax.plot(xs, [points[x][key] for x in xs], 'o-', label=label)
        ax.set_ylabel('memory of the loss (MiB)')
        ax.legend()
    else:
        ax.plot(xs, [points[x]['tokens_per_second'] for x in xs], 'o-')
        if 'lo' in points[xs[0]]:
            ax.fill_between(xs, *([points[x][key] for x in xs] for key in ('lo', 'hi')), alpha=0.2)
        ax.set_ylabel('tokens a second')
    ax.set_xscale('log', base=2)
    ax.set_xticks(xs, [f'{x:,}' for x in xs], rotation=30)
    ax.set_ylim(0, 1.05 * ax.get_ylim()[1])
    ax.set_xlabel(what)


# ----------------------------------------------------------------------------------------------- command line

def lines_of(name, args):
    """The lines of a case, of mfu or of growth, as they are measured."""
    torch.manual_seed(0)
    if name == 'mfu':
        for size in args.size.split(','):
            yield from mfu(size, args.repeats, args.peer)
    elif name == 'growth':
        yield from growth(args.repeats)
    else:
        result = CASES[name].make()
        yield compare(name, result, args.repeats) if isinstance(result, Pair) else result


def measure(args):
    """Print each line as soon as it is measured, and append it to --out."""
    names = [name for word in args.cases for name in (CASES if word == 'cpu' else [word])]
    for name in names:
        if name in ('profile', 'figure', 'table'):
            raise ValueError(f'{name} stands alone')
        if name not in CASES and name not in ('mfu', 'growth'):
            raise ValueError(f'no case {name}; there are {", ".join([*CASES, *OTHERS])}')
    if args.repeats < 1:
        raise ValueError(f'--repeats must be 1 or more, not {args.repeats}')
    with open_to_append(args.out) if args.out else contextlib.nullcontext() as file:
        for line in itertools.chain.from_iterable(lines_of(name, args) for name in names):
            text = json.dumps(line | machine())
            print(text, flush=True)
            if file:
                print(text, file=file, flush=True)


def open_to_append(path):
    """The file, on a new line, be there one that a killed run left half-written."""
    half = Path(path).exists() and Path(path).read_bytes()[-1:] not in (b'', b'\n')
    file = open(path, 'a', encoding='utf-8')
    file.write('\n' if half else '')
    return file


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument('cases', nargs='*', help=f'names of cases, or {", ".join(OTHERS)}')
    parser.add_argument('--repeats', type=int, default=7, help='turns of each case')
    parser.add_argument('--size', default='610m',
                        help='of mfu (210m, 610m, 1b, or several with commas) and profile')
    parser.add_argument('--peer', action=argparse.BooleanOptionalAction, default=True,
                        help='of mfu: Hugging Face beside it')
    parser.add_argument('--out', default='', help='a file to append the lines to')
    args = parser.parse_args()
    match args.cases:
        case []:
            for name, (work, peer, goal, _) in CASES.items():
                print(f'{name:<18} {work}{peer and ": "}{peer} (goal {goal})')
        case ['figure', path]:
            figure(path)
        case ['table', _, *_]:
            table(args.cases[1:])
        case ['figure' | 'table' as command, *_]:
            raise ValueError(f'{command} takes what --out wrote: bench.py {command} bench.jsonl')
        case ['profile']:
            profile(args.size)
        case ['_process']:
            one_process()
        case _:
            measure(args)


if __name__ == '__main__':
    run_main(main)

"""How fast, against what: each case prints one JSON line. Not part of the tests.

    python tests/bench.py                            # the cases and what each compares
    python tests/bench.py step_padded loss_alone     # some of them
    python tests/bench.py cpu --out=bench.jsonl      # all that a CPU runs in reasonable time
    python tests/bench.py mfu --size=610m            # one GPU: utilisation at the paper's batch, Hugging Face beside it
    python tests/bench.py profile --size=610m        # where a step's time goes, operation by operation
    python tests/bench.py growth --out=bench.jsonl   # against context, segments, vocabulary, processes
    python tests/bench.py figure bench.jsonl         # draw what was measured
    python tests/bench.py table first.jsonl second.jsonl    # the README's tables, of one or several runs

Ours and the peer do the same work in one process, in turns, each turn on another batch; two turns before the clock
starts must give the same losses and gradient norms (the second shows that the update is the same). ours and peer are
medians in seconds; ratio is the median of the turns' peer over ours, lo and hi the extremes; --repeats (7) turns are
taken. peak_mib is what a run adds to the memory at its start.
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

os.environ.setdefault('OMP_WAIT_POLICY', 'passive')    # else waiting threads spin on shared cores

import numpy as np            # noqa: E402
import torch                  # noqa: E402
import torch.nn.functional as F    # noqa: E402
from torch import nn          # noqa: E402

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from nanoencoder import settings as configs  # noqa: E402
from nanoencoder import cost    # noqa: E402
import data                   # noqa: E402
import evaluate               # noqa: E402
import finetune               # noqa: E402
import model as architecture  # noqa: E402
import pretrain               # noqa: E402
import tasks                  # noqa: E402

TINY = dict(name='bench', hidden_size=128, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, tie_word_embeddings=True, vocab_size=4_096, phases=(('mlm', 10_000),),
            decay_steps=0, warmup_steps=0, lr=1e-3, grad_clip=0.5, micro_rows=0)    # a clip that clips
DEVICE, DTYPE = pretrain.pick_device()
WORLD = pretrain.World(0, 1, DEVICE, DTYPE)


# ----------------------------------------------------------------------------------------------- how to measure

@dataclasses.dataclass
class Pair:
    """Two callables that do the same work."""
    ours: object
    peer: object
    tokens: int = 0       # in the work, to count per second
    same: float = 1e-5 if DTYPE == 'fp32' else 1e-2    # how near each thing they return must be, of its largest number


def near(ours, peer, same):
    ours, peer = ([one.cpu().numpy() if torch.is_tensor(one) else one for one in found] for found in (ours, peer))
    return all(np.abs(np.subtract(a, b)).max() <= same * np.abs(b).max() for a, b in zip(ours, peer, strict=True))


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
    """What a run adds to the memory at its start, at the most: of the GPU, or of the process (Linux)."""
    if DEVICE.type == 'cuda':
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return round((torch.cuda.max_memory_allocated() - before) / 2 ** 20, 1)
    status = Path('/proc/self/status')
    if not status.exists():
        return None
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL('libc.so.6').malloc_trim(0)        # what earlier runs freed would hide what this one takes
    Path('/proc/self/clear_refs').write_text('5')      # VmHWM counts from here
    resident = lambda field: int(re.search(rf'{field}:\s+(\d+)', status.read_text()).group(1)) / 1024  # noqa: E731
    before = resident('VmRSS')
    run()
    return round(max(0.0, resident('VmHWM') - before), 1)


def compare(name, pair, repeats):
    """One JSON line of a case."""
    for _ in range(2):
        ours, peer = pair.ours(), pair.peer()
        if pair.same is not None and not near(ours, peer, pair.same):
            raise SystemExit(f'error: {name}: not the same work: {ours} and {peer}')
    del ours, peer
    times = {'ours': [], 'peer': []}
    for k in range(repeats):
        for who in ('ours', 'peer') if k % 2 else ('peer', 'ours'):
            times[who].append(seconds(getattr(pair, who)))
    ratios = [peer / ours for ours, peer in zip(times['ours'], times['peer'])]
    middle = {who: statistics.median(found) for who, found in times.items()}
    memory = [peak_mib(run) for run in (pair.ours, pair.peer)]
    return {'case': name, 'ours': round(middle['ours'], 6), 'peer': round(middle['peer'], 6),
            'ratio': round(statistics.median(ratios), 2), 'lo': round(min(ratios), 2), 'hi': round(max(ratios), 2),
            'tokens_per_second': round(pair.tokens / middle['ours']) if pair.tokens else None,
            'peak_mib': memory[0], 'peer_peak_mib': memory[1]}


def machine():
    name = torch.cuda.get_device_name() if DEVICE.type == 'cuda' else f'{torch.get_num_threads()} threads of CPU'
    packages = 'torch', 'transformers', 'tokenizers', 'scipy'
    versions = {package: importlib.metadata.version(package) for package in packages}
    commit = subprocess.run(['git', 'describe', '--always', '--dirty'], cwd=ROOT, capture_output=True, text=True)
    return {'machine': name, 'load': round(os.getloadavg()[0], 1)} | versions | {
        'commit': commit.stdout.strip(), 'date': time.strftime('%Y-%m-%d')}


# ------------------------------------------------------------------------------------------- what is measured with

def settings(**changes):
    return pretrain.Settings(**TINY | changes)


def of_size(size, **changes):
    """The paper's settings for MLM of a size, with changes, from a constant learning rate's first step on."""
    changes = dict(decay_steps=0, warmup_steps=0, lr=1e-4) | changes
    given = [f'--{name}={value}' for name, value in changes.items()]
    return configs.parse(pretrain.Settings, [str(ROOT / f'configs/{size}_mlm.py'), *given])[0]


def corpus_of(cfg):
    """A corpus of random tokens, the special ids last, with what `data.make_batch` asks of one."""
    V = cfg.vocab_size
    ids = {'bos_token_id': V - 3, 'eos_token_id': V - 2, 'pad_token_id': V - 2, 'mask_token_id': V - 1}
    draw = np.random.default_rng(0).integers(0, V - 3, 1 << 20)
    return SimpleNamespace(meta=ids | {'special_ids': [V - 3, V - 2, V - 1]}, ordinary_ids=np.arange(V - 3),
                           stretch=lambda split, k, context: draw[k * context:(k + 1) * context])


def batches_of(cfg, kind, count):
    """The rows of a step each, as Batches of tensors on the device."""
    corpus, share = corpus_of(cfg), cfg.rows_per_step
    found = [data.make_batch(corpus, 'train', [(k, k) for k in range(first, first + share)], 0, kind, cfg)[0]
             for first in range(0, share * count, share)]
    return [dataclasses.replace(batch, **{name: torch.from_numpy(getattr(batch, name)).to(DEVICE)
                                          for name in ('tokens', 'targets', 'at')}) for batch in found]


def fresh(cfg, world=WORLD):
    """(model, the same wrapped, optimizer) at the start of a run."""
    model, wrapped = pretrain.build(cfg, corpus_of(cfg).meta, world)
    pretrain.initialise(dict(model.named_parameters()), pretrain.Origin(None, {'step': 0}, ''), cfg)
    return model, wrapped, pretrain.make_optimizer(model, cfg, world)


def our_step(cfg, kind='mlm', count=8):
    """(a function that trains on the next Batch and returns loss and gradient norm, the Batches, the model)."""
    cfg = dataclasses.replace(cfg, phases=((kind, 10_000),))
    model, wrapped, optimizer = fresh(cfg)
    batches = batches_of(cfg, kind, count)
    turns = itertools.cycle(batches)

    def step():
        batch = next(turns)
        loss, norm = pretrain.train_step(wrapped, optimizer, [batch], len(batch.at), 0, cfg, WORLD)
        return loss / len(batch.at), norm    # on the device: nobody waits for them
    return step, batches, model


def their_step(theirs, inputs, cfg):
    """A function that trains a model of transformers' interface on the next of these inputs, as people do."""
    theirs.train()
    groups = [{'params': [p for p in theirs.parameters() if p.ndim >= 2], 'weight_decay': cfg.weight_decay},
              {'params': [p for p in theirs.parameters() if p.ndim < 2], 'weight_decay': 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=cfg.lr, betas=(cfg.beta1, cfg.beta2), eps=cfg.eps,
                                  fused=DEVICE.type != 'mps')
    turns = itertools.cycle(inputs)

    def step():
        with WORLD.autocast():
            loss = theirs(**next(turns)).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(theirs.parameters(), cfg.grad_clip)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach(), norm
    return step


def transformers_model(model):
    """EuroBertForMaskedLM with the same weights."""
    import transformers
    transformers.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        theirs = transformers.AutoModelForMaskedLM.from_pretrained(folder).to(DEVICE)
    theirs.model.embed_tokens.padding_idx = None    # else eos, which pads, would have no gradient
    return theirs


def padded(batch):
    tokens, targets = batch.tokens.split(batch.lengths), batch.targets.split(batch.lengths)
    pad = nn.utils.rnn.pad_sequence
    return {'input_ids': pad(tokens, batch_first=True),
            'labels': pad(targets, batch_first=True, padding_value=-100),
            'attention_mask': pad([torch.ones_like(part) for part in tokens], batch_first=True)}


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


class GPT(nn.Module):
    """The plain decoder: learned positions, LayerNorm, GELU, SDPA with is_causal, tied head, all logits."""

    def __init__(self, V, d, L, H, context):
        super().__init__()
        self.H, self.embed, self.positions = H, nn.Embedding(V, d), nn.Embedding(context, d)
        linear = lambda inputs, outputs: nn.Linear(inputs, outputs, bias=False)  # noqa: E731
        self.blocks = nn.ModuleList(nn.ModuleDict({
            'norm1': nn.LayerNorm(d, bias=False), 'qkv': linear(d, 3 * d), 'out': linear(d, d),
            'norm2': nn.LayerNorm(d, bias=False), 'up': linear(d, 4 * d), 'down': linear(4 * d, d),
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
        return SimpleNamespace(loss=F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100))


# -------------------------------------------------------------------------------------------------------- cases

def beside_transformers(cfg, inputs):
    """Ours beside transformers' on what `inputs` makes of a Batch."""
    ours, batches, model = our_step(cfg)
    theirs = their_step(transformers_model(model), [inputs(batch) for batch in batches], cfg)
    return Pair(ours, theirs, len(batches[0].tokens))


def step_padded():
    """training step, tiny model, 6 rows of 2,048 cut as in the paper: Hugging Face padded (goal 2.4)"""
    return beside_transformers(settings(context=2_048, rows_per_step=6), padded)


def step_packed():
    """training step, tiny model, 6 rows of 2,048 cut as in the paper: Hugging Face packed, 4D mask (goal 1.35)"""
    return beside_transformers(settings(context=2_048, rows_per_step=6), packed)


def step_fixed(vocab_size=4_096):
    """training step, tiny model, 8 rows of 256 uncut, vocabulary 4,096: Hugging Face without any mask (goal 1.15)"""
    def whole(batch):
        return {name: tensor for name, tensor in padded(batch).items() if name != 'attention_mask'}
    return beside_transformers(settings(context=256, rows_per_step=8, cut_rows=False, vocab_size=vocab_size), whole)


def step_fixed_32k():
    """training step, tiny model, 8 rows of 256 uncut, vocabulary 32,768: Hugging Face without any mask (goal 1.6)"""
    return step_fixed(32_768)


def real_210m():
    """training step of the 210M, 4 rows of 256 cut in two: Hugging Face padded (goal 3.0)"""
    return beside_transformers(of_size('210m', context=256, rows_per_step=4, compile=False), padded)


def real_210m_packed():
    """training step of the 210M, 4 rows of 256 cut in two: Hugging Face packed, 4D mask (goal 1.75)"""
    return beside_transformers(of_size('210m', context=256, rows_per_step=4, compile=False), packed)


def clm_gpt():
    """CLM step, sizes matched, both compiled: a plain GPT (goal 1.0)"""
    d, L, H, V, context = 384, 6, 6, 8_192, 256
    cfg = settings(context=context, rows_per_step=8, cut_rows=False, vocab_size=V, hidden_size=d, num_hidden_layers=L,
                   num_attention_heads=H, num_key_value_heads=H, intermediate_size=8 * d // 3, compile=True)
    ours, batches, model = our_step(cfg, 'clm')
    gpt = GPT(V, d, L, H, context).to(DEVICE)
    sizes = [sum(p.numel() for p in one.parameters()) for one in (model, gpt)]
    assert abs(sizes[0] + gpt.positions.weight.numel() - sizes[1]) < 1e-3 * sizes[0], sizes
    inputs = [{'input_ids': batch.tokens.view(-1, context), 'labels': batch.targets.view(-1, context)}
              for batch in batches]
    return Pair(ours, their_step(torch.compile(gpt), inputs, cfg), len(batches[0].tokens), same=None)


def loss_alone(selected=False):
    """the loss, 8,192 positions, vocabulary 32,768, 40 % masked: linear, cross_entropy (goal 2.5, memory 1/5)"""
    N, d, V = 8_192, 256, 32_768
    hidden, weight = (torch.randn(size, d, device=DEVICE).mul_(0.05).requires_grad_() for size in (N, V))
    targets = torch.randint(0, V, (N,), device=DEVICE).where(torch.rand(N, device=DEVICE) < 0.4, -100)
    at = torch.nonzero(targets != -100).squeeze(1)

    def with_gradients(make_loss):
        def run():
            loss = make_loss()
            loss.backward()
            found = loss.detach(), hidden.grad, weight.grad
            hidden.grad = weight.grad = None    # each run takes memory of its own for them
            return found
        return run

    def ours():
        return loss_of(hidden[at], weight, targets[at]) / len(at)

    def peer():
        rows = at if selected else slice(None)
        return F.cross_entropy(F.linear(hidden[rows], weight), targets[rows])
    return Pair(with_gradients(ours), with_gradients(peer), N, same=1e-4)


def loss_selected():
    """the loss, 8,192 positions, vocabulary 32,768, 40 % masked: linear, cross_entropy of those alone (goal 1.0)"""
    return loss_alone(selected=True)


def loss_of(hidden, weight, targets):
    return architecture.ChunkedCrossEntropy.apply(hidden, weight, targets, True, architecture.loss_and_gradient)


def sentences(count, seed=0):
    """Token arrays with the lengths of short sentences: log-normal, median 18, at most 250."""
    draw = np.random.default_rng(seed)
    return [draw.integers(0, 4_000, length) for length in np.clip(draw.lognormal(2.9, 0.75, count).astype(int), 3, 250)]


def encoder_pair(kind):
    """(our Encoder, transformers' with the same weights): of 4 layers of width 256."""
    import transformers
    transformers.logging.disable_progress_bar()
    cfg = settings(hidden_size=256, intermediate_size=768, num_hidden_layers=4, context=512)
    model = fresh(cfg)[0]
    encoder = finetune.Encoder(model.sizes, kind, 4).to(DEVICE)
    encoder.model.load_state_dict(model.model.state_dict())
    with torch.no_grad():
        for name, p in encoder.named_parameters():
            if not name.startswith('model.'):
                p.copy_(architecture.initial_weight(name, p.shape, 0))
    with tempfile.TemporaryDirectory() as folder:
        tensors = {name.removeprefix('model.') if kind == 'IR' else name: p for name, p in encoder.named_parameters()}
        architecture.save(model.sizes, tensors, folder, num_labels=4, classifier_pooling='mean')
        auto = transformers.AutoModel if kind == 'IR' else transformers.AutoModelForSequenceClassification
        theirs = auto.from_pretrained(folder).to(DEVICE)
    (theirs if kind == 'IR' else theirs.model).embed_tokens.padding_idx = None
    return encoder, theirs


def pad(arrays):
    tokens = [torch.from_numpy(array).to(DEVICE) for array in arrays]
    ids = nn.utils.rnn.pad_sequence(tokens, batch_first=True)
    return ids, nn.utils.rnn.pad_sequence([torch.ones_like(part) for part in tokens], batch_first=True)


def ragged_inference(in_order=False):
    """vectors of 512 short sentences: Hugging Face on padded batches of 32 in random order (goal 2.5)"""
    encoder, theirs = encoder_pair('IR')
    texts, cfg = sentences(512), SimpleNamespace(tokens_at_once=16_384)
    if in_order:
        texts.sort(key=len)
    theirs.eval()

    @torch.no_grad()
    def padded():
        found = []
        for start in range(0, len(texts), 32):
            ids, mask = pad(texts[start:start + 32])
            with WORLD.autocast():
                hidden = theirs(input_ids=ids, attention_mask=mask).last_hidden_state
            mean = (hidden.float() * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
            found.append(F.normalize(mean, dim=1))
        return torch.cat(found).cpu().numpy()

    def packed():
        return np.stack(finetune.outputs(encoder, texts, cfg, WORLD, per_token=False))
    return Pair(packed, padded, sum(map(len, texts)))


def ragged_sorted():
    """vectors of 512 short sentences: Hugging Face on padded batches of 32, sorted by length (goal 1.0)"""
    return ragged_inference(in_order=True)


def ragged_training():
    """fine-tuning steps on batches of 32 short sentences: Hugging Face on padded batches (goal 2.4)"""
    encoder, theirs = encoder_pair('SC')
    batches = [sentences(32, seed) for seed in range(4)]
    labels = torch.randint(0, 4, (4, 32), generator=torch.Generator().manual_seed(0)).to(DEVICE)
    optimizers = [pretrain.make_optimizer(one, settings(), WORLD) for one in (encoder, theirs)]

    def step(loss, model, optimizer):
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item(), norm.item()

    def ours():
        return [step(F.cross_entropy(finetune.apply(encoder, batch, WORLD), label), encoder, optimizers[0])
                for batch, label in zip(batches, labels)]

    def padded():
        found = []
        for batch, label in zip(batches, labels):
            ids, mask = pad(batch)
            with WORLD.autocast():
                loss = theirs(input_ids=ids, attention_mask=mask, labels=label).loss
            found.append(step(loss, theirs, optimizers[1]))
        return found
    return Pair(ours, padded, sum(len(text) for batch in batches for text in batch))


def tokenising():
    """English, Llama 3's vocabulary (the embedded one if it is not at hand): tokenizers' batch call (goal 2.8)"""
    from nanoencoder import docs
    from tokenizers import Tokenizer as HuggingFace
    from nanoencoder.tokenizer import load_tokenizer
    llama = ROOT.parent / 'shared/tokenizer/llama3.model'
    ours = load_tokenizer(str(llama if llama.exists() else ROOT / 'configs/corpora/docs'))
    with tempfile.TemporaryDirectory() as folder:
        ours.save(folder)
        theirs = HuggingFace.from_file(f'{folder}/tokenizer.json')
    theirs.encode_special_tokens = True
    texts = [text for _, _, text in docs.documents()][:8_000]
    parts = [texts[k:k + data.CHUNK] for k in range(0, len(texts), data.CHUNK)]
    chunks = [([(text, False) for text in part], None, None) for part in parts]
    ids = [ours.encode(text).tolist() for text in texts]
    assert ids == [encoding.ids for encoding in theirs.encode_batch_fast(texts, add_special_tokens=False)]
    count = sum(len(one) + 1 for one in ids)

    def encode():
        encoded = data.encode_chunks(iter(chunks), ours, os.cpu_count())
        return [sum(len(array) for train, _, _, _ in encoded for array in train)]

    def batch():
        return [sum(len(encoding.ids) + 1 for encoding in theirs.encode_batch_fast(texts, add_special_tokens=False))]
    return Pair(encode, batch, count, same=0)


def bootstrap():
    """interval of a mean, 10,000 resamples of 3,000 scores: scipy.stats.bootstrap (goal 1.0, at most 32 MiB)"""
    import scipy.stats
    scores = np.random.default_rng(0).random(3_000)

    def peer():
        options = dict(n_resamples=10_000, method='percentile', batch=256, rng=0)
        return scipy.stats.bootstrap((scores,), np.mean, **options).confidence_interval
    return Pair(lambda: evaluate.interval(evaluate.bootstrap(scores)[:, 0]), peer, same=1e-9)


def ndcg():
    """NDCG@10 of 3,000 queries over 2,000 documents: sorting each query's cosines in Python (goal 8)"""
    draw = np.random.default_rng(0)
    cosines = draw.random((3_000, 2_000)).round(6)
    ids, discounts = [f'd{k:04d}' for k in range(2_000)][::-1], np.log2(np.arange(10) + 2).tolist()
    rows = [{'id': str(k), 'grades': {ids[j]: 1 for j in draw.integers(0, 2_000, 3)}} for k in range(3_000)]

    def ours():
        found = [tasks.ranking(row, ids, cosines[k]) for k, row in enumerate(rows)]
        return [evaluate.ndcg(row['grades'], one['docs']) for row, one in zip(rows, found)]

    def peer():
        found = []
        for row, scores in zip(rows, cosines.tolist()):
            order = sorted(zip(scores, ids), reverse=True)[:10]
            gains = sum(row['grades'].get(document, 0) / by for (_, document), by in zip(order, discounts))
            best = sorted(row['grades'].values(), reverse=True)[:10]
            found.append(gains / sum(grade / by for grade, by in zip(best, discounts)))
        return found
    return Pair(ours, peer, same=1e-9)


def loader_waits(steps=200, warm_up=20):
    """the share of its time that a training step waits for its batch, tiny model, 1,024 tokens (goal: at most 1 %)"""
    cfg = settings(context=512, rows_per_step=2)
    corpus = corpus_of(cfg)
    corpus.num_stretches, corpus.folder = lambda split, context: (1 << 20) // context, Path('.')
    _, wrapped, optimizer = fresh(cfg)
    waited, began = 0.0, None
    with contextlib.closing(data.Loader(corpus, cfg, 0, warm_up + steps,
                                        convert=lambda batch: pretrain.to_tensors(batch, DEVICE))) as loader:
        turns = iter(loader)
        for k in range(warm_up + steps):
            if k == warm_up:
                synchronize()
                waited, began = 0.0, time.perf_counter()
            before = time.perf_counter()
            found = next(turns)
            waited += time.perf_counter() - before
            pretrain.train_step(wrapped, optimizer, found.batches, found.num_targets, k, cfg, WORLD)
        synchronize()
        took = time.perf_counter() - began
    return {'case': 'loader_waits', 'share': round(waited / took, 4),
            'tokens_per_second': round(steps * cfg.rows_per_step * cfg.context / took)}


OTHERS = 'cpu', 'mfu', 'profile', 'growth', 'figure', 'table'
CASES = [step_padded, step_packed, step_fixed, step_fixed_32k, real_210m, real_210m_packed, clm_gpt, loss_alone,
         loss_selected, ragged_inference, ragged_sorted, ragged_training, tokenising, bootstrap, ndcg, loader_waits]


# ------------------------------------------------------------------------------------------------------ one GPU

def mfu(size, repeats, with_peer):
    """Lines of a size at the paper's batch on one GPU, 6 rows of 2,048 tokens cut in two; update included."""
    if DEVICE.type != 'cuda':
        raise ValueError('mfu needs CUDA; `cpu` and `growth` run without')
    if torch.cuda.get_device_name() not in cost.PEAKS:
        raise ValueError(f'no datasheet peak is known for {torch.cuda.get_device_name()}; add it to cost.PEAKS')
    for kind in ('mlm', 'clm'):
        yield utilisation(size, kind, repeats)
    if with_peer:
        yield peer_utilisation(size, repeats)


def utilisation(size, kind, repeats):
    peak, cfg = cost.PEAKS[torch.cuda.get_device_name()], of_size(size, rows_per_step=6, micro_rows=6)
    clean()
    step, batches, model = our_step(cfg, kind, count=12)
    first_step = seconds(step)
    times = epochs(step, len(batches), repeats)
    took, N = statistics.median(times), len(batches[0].tokens)
    flops = statistics.fmean(cost.batch_flops(cfg, batch, kind) for batch in batches)
    # nanoGPT's: 6 N and all pairs of an uncut row; its embedding is the head, so ours, which is not, does not count
    weights = sum(p.numel() for p in model.parameters())
    untied = 0 if cfg.tie_word_embeddings else cfg.vocab_size * cfg.hidden_size
    nanogpt = (6 * (weights - untied) + 12 * cfg.num_hidden_layers * cfg.hidden_size * cfg.context) * N
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
    theirs = their_step(transformers_model(model), [padded(batch) for batch in batches], cfg)
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
    with torch.profiler.profile(activities=activities, record_shapes=True) as found:
        step()
    by = 'self_cuda_time_total' if cuda else 'self_cpu_time_total'
    print(found.key_averages(group_by_input_shape=True).table(sort_by=by, row_limit=25, max_name_column_width=48))


# ---------------------------------------------------------------------------------------------------- how it grows

def growth(repeats):
    """Lines: tokens a second of the tiny model against context, segments, processes; memory against vocabulary."""
    # first: in a process that has trained already the memory of the loss is not told apart as well
    for vocab_size in (4_096, 8_192, 16_384, 32_768, 65_536, 131_072):
        hidden, weight = (torch.randn(size, 128, device=DEVICE).requires_grad_() for size in (2_048, vocab_size))
        targets = torch.randint(0, vocab_size, (2_048,), device=DEVICE)
        ours = peak_mib(lambda: loss_of(hidden, weight, targets).backward())
        hidden.grad = weight.grad = None
        peer = peak_mib(lambda: F.cross_entropy(F.linear(hidden, weight), targets).backward())
        yield {'case': 'growth', 'of': 'vocabulary', 'at': vocab_size, 'peak_mib': ours, 'peer_peak_mib': peer}
    for context in (256, 512, 1_024, 2_048, 4_096, 8_192):
        step, batches, _ = our_step(settings(context=context, rows_per_step=8_192 // context))
        yield grown('context', context, step, len(batches[0].tokens), repeats)
    for segments in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        cfg = settings(context=8_192 // segments, rows_per_step=segments, cut_rows=False)
        step, batches, _ = our_step(cfg)
        yield grown('segments of 8,192 tokens', segments, step, len(batches[0].tokens), repeats)
    for processes in (1, 2):
        launcher = [sys.executable, '-m', 'torch.distributed.run', '--standalone', f'--nproc_per_node={processes}']
        result = subprocess.run([*launcher, __file__, '_process'], capture_output=True, text=True, timeout=600,
                                env=os.environ | {'OMP_NUM_THREADS': '1'})
        if result.returncode:
            raise SystemExit(f'error: {processes} processes: {result.stderr[-500:]}')
        yield {'case': 'growth', 'of': 'processes of one thread', 'at': processes,
               'tokens_per_second': int(result.stdout.split()[-1])}


def grown(what, at, step, tokens, repeats):
    step()
    speeds = [tokens / seconds(step) for _ in range(repeats)]
    return {'case': 'growth', 'of': what, 'at': at, 'tokens_per_second': round(statistics.median(speeds)),
            'lo': round(min(speeds)), 'hi': round(max(speeds))}


def one_process():
    """Under torchrun: tokens a second of all processes, 8 rows of 512 a step, printed by the first."""
    with pretrain.processes('cpu') as world:
        cfg = settings(context=512, rows_per_step=8)
        _, wrapped, optimizer = fresh(cfg, world)
        batch = batches_of(dataclasses.replace(cfg, rows_per_step=8 // world.size), 'mlm', 1)[0]

        def step():
            pretrain.train_step(wrapped, optimizer, [batch], len(batch.at) * world.size, 0, cfg, world)
        step()
        took = statistics.median([seconds(step) for _ in range(20)])
        if world.rank == 0:
            print(round(8 * 512 / took))


# ------------------------------------------------------------------------------------------------ table, figure

def read_lines(path):
    """The lines of a file; one that a killed run left half-written is passed over."""
    found = []
    for number, text in enumerate(Path(path).read_text(encoding='utf-8').splitlines(), 1):
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        if isinstance(line, dict) and {'case', 'date'} <= line.keys():
            found.append(line)
        else:
            print(f'warning: {path}:{number}: not a line of this script', file=sys.stderr)
    if not found:
        raise ValueError(f'{path}: nothing measured in it')
    return found


def table(paths):
    """Print files of this script's lines as Markdown: ratios of each, the rest of the last; then what mfu found."""
    files = [{line['case']: line for line in read_lines(path)} for path in paths]
    found = [case for case in CASES if any('ratio' in lines.get(case.__name__, {}) for lines in files)]
    print('| case | peer | goal |' + ' ratio (extremes) |' * len(files) + ' ours | memory, ours / peer (MiB) |')
    print('|---' * (len(files) + 5) + '|')
    for case in found:
        what, peer, goal = re.fullmatch(r'(.*): (.*) \(goal (.*)\)', case.__doc__).groups()
        lines = [lines.get(case.__name__) for lines in files]
        ratios = ' | '.join(f'**{line["ratio"]:.2f}** ({line["lo"]:.2f} to {line["hi"]:.2f})' if line else ''
                            for line in lines)
        line = next(filter(None, reversed(lines)))
        speed = f', {line["tokens_per_second"]:,} tokens/s' if line['tokens_per_second'] else ''
        memory = ['?' if mib is None else f'{mib:,.0f}' for mib in (line['peak_mib'], line['peer_peak_mib'])]
        print(f'| {what} | {peer} | {goal} | {ratios} | {1e3 * line["ours"]:,.0f} ms{speed} | {" / ".join(memory)} |')
    for path, lines in zip(paths, files):
        last = list(lines.values())[-1]
        waits = f', a step waits {lines["loader_waits"]["share"]:.1%} for its batch' if 'loader_waits' in lines else ''
        print(f'\n{path}: {last["machine"]}, torch {last["torch"]}, commit {last["commit"]}, {last["date"]}{waits}')
    utilised = {name: line for lines in files for name, line in lines.items() if name.startswith('mfu ')}
    if utilised:
        print('\n| date | GPU | torch | case | ms (extremes) | tokens/s | MFU | memory (GiB) |')
        print('|---' * 8 + '|')
    for name, line in utilised.items():
        share = f'{line["mfu"]:.1%}' if 'mfu' in line else ''
        print(f'| {line["date"]} | {line["machine"]} | {line["torch"]} | {name[4:]} '
              f'| {line["ms"]} ({line["lo"]} to {line["hi"]}) | {line["tokens_per_second"]:,} | {share} '
              f'| {line["peak_gib"]} |')


def figure(path, out='figures/speed.png'):
    """Draw a file of this script's lines: ratios of the cases, and how things grow."""
    import matplotlib
    matplotlib.use('agg')
    from matplotlib import pyplot as plt
    lines = read_lines(path)
    pairs = list({line['case']: line for line in lines if 'ours' in line}.values())
    series = {}
    for line in lines:
        if line['case'] == 'growth':
            series.setdefault(line['of'], {})[line['at']] = line
    columns = min(3, 1 + len(series))
    shape = -(-(1 + len(series)) // columns), columns
    fig, axes = plt.subplots(*shape, figsize=(5 * columns, 4.2 * shape[0]), layout='constrained', squeeze=False)
    axes = axes.flatten()
    for ax in axes[1 + len(series):]:
        ax.axis('off')
    ratios, names = [line['ratio'] for line in pairs], [line['case'] for line in pairs]
    spread = [[line['ratio'] - line['lo'], line['hi'] - line['ratio']] for line in pairs]
    bars = axes[0].barh(names, [ratio - 1 for ratio in ratios], left=1, xerr=np.array(spread).T if pairs else None)
    axes[0].bar_label(bars, [f'{ratio:.2f}' for ratio in ratios], padding=4)
    axes[0].axvline(1, color='black', lw=0.8)
    axes[0].set_xscale('log')
    axes[0].set_xlim(0.5, 2 * max([2, *ratios]))
    axes[0].set_xticks([0.5, 1, 2, 4, 8, 16], ['0.5', '1', '2', '4', '8', '16'])
    axes[0].set_xlabel("peer's time / ours (whiskers: extremes)")
    axes[0].invert_yaxis()
    for ax, (what, points) in zip(axes[1:], series.items()):
        xs = sorted(points)
        if 'peak_mib' in points[xs[0]]:
            for key, label in (('peak_mib', 'ours'), ('peer_peak_mib', 'all logits at once')):
                ax.plot(xs, [points[x][key] for x in xs], 'o-', label=label)
            ax.set_ylabel("memory of the loss (MiB)")
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
    last = lines[-1]
    fig.suptitle(f'{last["machine"]}, torch {last["torch"]}, {last["date"]}')
    Path(out).parent.mkdir(exist_ok=True)
    fig.savefig(out, dpi=150)
    print(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('cases', nargs='*', help=f'names of cases, or {", ".join(OTHERS)}')
    parser.add_argument('--repeats', type=int, default=7, help='turns of each case')
    parser.add_argument('--size', default='610m', help='of mfu (210m, 610m, 1b, or several with commas) and profile')
    parser.add_argument('--peer', action=argparse.BooleanOptionalAction, default=True,
                        help='of mfu: Hugging Face beside it')
    parser.add_argument('--out', default='', help='a file to append the lines to')
    args = parser.parse_args()
    by_name, command = {case.__name__: case for case in CASES}, args.cases[:1]
    if command in (['figure'], ['table']):
        if len(args.cases) < 2 or command == ['figure'] and len(args.cases) > 2:
            raise ValueError(f'{command[0]} takes what --out wrote: bench.py {command[0]} bench.jsonl')
        return figure(args.cases[1]) if command == ['figure'] else table(args.cases[1:])
    if args.cases == ['profile']:
        return profile(args.size)
    if args.cases == ['_process']:
        return one_process()
    if not args.cases:
        return print('\n'.join(f'{name:<18} {case.__doc__}' for name, case in by_name.items()))
    names = [name for given in args.cases for name in (by_name if given == 'cpu' else [given])]
    for name in names:
        if name in ('profile', 'figure', 'table'):
            raise ValueError(f'{name} stands alone')
        if name not in by_name and name not in ('mfu', 'growth'):
            raise ValueError(f'no case {name}; there are {", ".join([*by_name, *OTHERS])}')
    if args.repeats < 1:
        raise ValueError(f'--repeats must be 1 or more, not {args.repeats}')

    def lines(name):
        torch.manual_seed(0)
        if name == 'mfu':
            for size in args.size.split(','):
                yield from mfu(size, args.repeats, args.peer)
        elif name == 'growth':
            yield from growth(args.repeats)
        else:
            found = by_name[name]()
            yield compare(name, found, args.repeats) if isinstance(found, Pair) else found

    with contextlib.ExitStack() as stack:
        file = None
        if args.out:
            whole = not Path(args.out).exists() or Path(args.out).read_bytes()[-1:] in (b'', b'\n')
            file = stack.enter_context(open(args.out, 'a', encoding='utf-8'))
            file.write('' if whole else '\n')    # behind a line that a killed run left
        for name in names:
            for line in lines(name):
                text = json.dumps(line | machine())
                print(text, flush=True)
                if file:
                    file.write(text + '\n')
                    file.flush()


if __name__ == '__main__':
    configs.run(main)

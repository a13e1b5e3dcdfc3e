"""The transformer: EuroBERT, which is Llama with the causal mask off. `causal` is an argument, never a state.

This file needs torch and nothing else. A batch is one flat sequence of tokens and the lengths of its
segments: attention and positions restart there. Sizes in comments: N tokens, S segments, T targets,
V vocabulary, d hidden, H heads, K key/value heads, h head size. The module tree bears Hugging Face's names:
saved weights are those of transformers' EuroBertForMaskedLM."""
import hashlib
import inspect
import itertools
import math
import re
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.attention.varlen import varlen_attn
from torch.utils.checkpoint import checkpoint

VARLEN_HAS_GQA = 'enable_gqa' in inspect.signature(varlen_attn).parameters  # from torch 2.12 on
# Bytes of logits that the loss makes at once on CUDA: 8,372 rows of the paper's ids. Their gradient takes as
# much again. Where the loss is not compiled, a copy of them in fp32 takes twice as much.
LOGITS = 2 ** 31
ACTIVATION = F.silu     # of the MLP: SwiGLU. With F.gelu it is GeGLU, and a checkpoint's config.json says so


@dataclass(frozen=True)
class Sizes:
    """Hugging Face's names. The defaults are the paper's 610M (appendix A)."""
    vocab_size: int = 128_256        # the corpus's
    hidden_size: int = 1_152
    intermediate_size: int = 4_096   # of SwiGLU
    num_hidden_layers: int = 26
    num_attention_heads: int = 18
    num_key_value_heads: int = 6
    rope_theta: float = 10_000.0
    rms_norm_eps: float = 1e-5
    tie_word_embeddings: bool = False  # as in the authors' code
    # what decoders from elsewhere may have
    head_dim: int = 0                # 0: hidden_size / num_attention_heads
    attention_bias: bool = False     # of q, k, v and o, as decoders of Qwen2's kind have
    qk_norm: bool = False            # of each head, before RoPE, as in Qwen3
    rope_scaling: tuple = ()         # Llama 3.1's: factor, low and high frequency factor, original context

    def __post_init__(self):
        # a message begins with the setting's name: the parser adds the file and line that set it
        for field in fields(self):
            name = field.name
            value = getattr(self, name)
            if field.type is float and type(value) is int:
                value = float(value)
                object.__setattr__(self, name, value)
            if type(value) is not field.type:
                raise ValueError(f'{name} takes {field.type.__name__}, not {type(value).__name__} '
                                 f'{value!r:.80}')
            least = 0 if name in ('head_dim', 'rms_norm_eps') else 1
            if field.type in (int, float) and not least <= value < math.inf:
                raise ValueError(f'{name} must be at least {least}, not {value}')

        H = self.num_attention_heads
        K = self.num_key_value_heads
        if self.hidden_size % H or H % K:
            raise ValueError(f'hidden_size {self.hidden_size} must be a multiple of num_attention_heads {H}, '
                             f'and that of num_key_value_heads {K}')
        if self.head_size % 2:
            raise ValueError(f'head_dim must be even, not {self.head_size} (0: hidden_size / heads)')

        scaling = self.rope_scaling
        numbers = [x for x in scaling if type(x) in (int, float) and x > 0]
        if scaling and not (len(scaling) == len(numbers) == 4 and scaling[1] < scaling[2]):
            raise ValueError('rope_scaling must be () or (factor, low frequency factor, high frequency '
                             f'factor, original context), not {scaling!r:.80}')

    @property
    def head_size(self):
        return self.head_dim or self.hidden_size // self.num_attention_heads


class Segments(NamedTuple):
    """The segments of a flat sequence. A compiled graph sees nothing of them that changes from step to step
    but the numbers in `ends`."""
    ends: torch.Tensor    # (S + 1,) int32: 0, then where each segment ends; varlen_attn's cu_seqlens
    longest: int          # no segment is longer


def make_segments(lengths, longest=0, device='cpu'):
    """Return the Segments of a list of lengths. `longest` is the same in all batches of a run that is
    compiled; 0 stands for the length of the longest."""
    ends = [0, *itertools.accumulate(lengths)]
    ends = torch.tensor(ends, dtype=torch.int32, device=device)
    return Segments(ends, longest or max(lengths))


class Attention(nn.Module):
    """Holds the projections, under Hugging Face's names, and makes queries, keys and values. `attend` mixes
    the tokens; Layer applies o_proj."""
    def __init__(self, sizes):
        super().__init__()
        d = sizes.hidden_size
        h = sizes.head_size
        bias = sizes.attention_bias
        self.head_size = h
        self.q_proj = nn.Linear(d, sizes.num_attention_heads * h, bias)
        self.k_proj = nn.Linear(d, sizes.num_key_value_heads * h, bias)
        self.v_proj = nn.Linear(d, sizes.num_key_value_heads * h, bias)
        self.o_proj = nn.Linear(sizes.num_attention_heads * h, d, bias)
        self.qk_norm = sizes.qk_norm
        if self.qk_norm:
            self.q_norm = nn.RMSNorm(h, sizes.rms_norm_eps)
            self.k_norm = nn.RMSNorm(h, sizes.rms_norm_eps)

    def forward(self, x, cos, sin):
        heads = -1, self.head_size
        q = self.q_proj(x).unflatten(1, heads)    # (N, H, h)
        k = self.k_proj(x).unflatten(1, heads)    # (N, K, h)
        v = self.v_proj(x).unflatten(1, heads)    # (N, K, h)
        if self.qk_norm:    # in the weights' fp32, whatever autocast made of q and k
            dtype = self.q_norm.weight.dtype
            q = self.q_norm(q.to(dtype)).type_as(v)
            k = self.k_norm(k.to(dtype)).type_as(v)
        q = apply_rope(q, cos, sin)
        k = apply_rope(k, cos, sin)
        return q, k, v


class MLP(nn.Module):
    """Computes SwiGLU: down(silu(gate(x)) * up(x))."""
    def __init__(self, sizes):
        super().__init__()
        d = sizes.hidden_size
        inner = sizes.intermediate_size
        self.gate_proj = nn.Linear(d, inner, bias=False)
        self.up_proj = nn.Linear(d, inner, bias=False)
        self.down_proj = nn.Linear(inner, d, bias=False)

    def forward(self, x):
        gate = ACTIVATION(self.gate_proj(x))
        up = self.up_proj(x)
        return self.down_proj(gate * up)


class Layer(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(sizes.hidden_size, sizes.rms_norm_eps)
        self.self_attn = Attention(sizes)
        self.post_attention_layernorm = nn.RMSNorm(sizes.hidden_size, sizes.rms_norm_eps)
        self.mlp = MLP(sizes)

    def forward(self, x, cos, sin, segments, causal):
        normed = self.input_layernorm(x)
        q, k, v = self.self_attn(normed, cos, sin)
        attended = attend(q, k, v, segments, causal)
        x = x + self.self_attn.o_proj(attended.flatten(1))
        normed = self.post_attention_layernorm(x)
        return x + self.mlp(normed)


class Transformer(nn.Module):
    """Makes (N, d) hidden states of (N,) tokens. Their segments are a list of lengths, or Segments on their
    device."""
    def __init__(self, sizes):
        super().__init__()
        self.sizes = sizes
        self.recompute = False    # activations in the backward pass: less memory, more time
        self.embed_tokens = nn.Embedding(sizes.vocab_size, sizes.hidden_size)
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes.num_hidden_layers))
        self.norm = nn.RMSNorm(sizes.hidden_size, sizes.rms_norm_eps)

    def forward(self, tokens, segments, causal):
        if not isinstance(segments, Segments):    # a list of lengths, as fine-tuning has it
            assert sum(segments) == len(tokens), 'the lengths sum to the tokens'
            segments = make_segments(segments, device=tokens.device)

        places = torch.arange(len(tokens), device=tokens.device, dtype=torch.int32)
        ends = segments.ends
        # repeat_interleave of lengths would make the host wait for the GPU, to learn how long its result is
        segment = torch.bucketize(places, ends, right=True) - 1     # (N,) the one that each token is in
        positions = places - ends[segment]
        cos, sin = rope(positions, self.sizes)

        x = self.embed_tokens(tokens)    # (N, d)
        for layer in self.layers:
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(layer, x, cos, sin, segments, causal, use_reentrant=False)
            else:
                x = layer(x, cos, sin, segments, causal)
        return self.norm(x)


class Model(nn.Module):
    """The transformer and its output head, which has no module of its own where embeddings are tied."""
    def __init__(self, sizes):
        super().__init__()
        self.sizes = sizes
        self.loss_and_gradient = loss_and_gradient    # compile_parts may compile it
        self.model = Transformer(sizes)
        self.lm_head = None
        if not sizes.tie_word_embeddings:
            self.lm_head = nn.Linear(sizes.hidden_size, sizes.vocab_size, bias=False)

    @property
    def head(self):
        """The (V, d) matrix that makes logits of hidden states."""
        if self.lm_head is None:
            return self.model.embed_tokens.weight
        return self.lm_head.weight

    def forward(self, tokens, segments, targets, causal: bool, at=None, weights=None):
        """Return (weighted sum of the losses in nats, number of targets, number of those that the model holds
        for likeliest) of a flat sequence of (N,) int64 tokens. The last is None where gradients are computed.

        segments  list of their lengths, or Segments made of it, on the tokens' device; positions count from 0
                  in each, none sees another
        targets   (N,) int64, -100 where nothing is to be predicted
        causal    whether a token sees only itself and what stands before it in its segment
        at        (T,) the positions that have a target, if known: finding them makes CUDA wait
        weights   (N,) of the losses; all 1 if there are none"""
        x = self.model(tokens, segments, causal)
        if at is None:
            at = torch.nonzero(targets != -100).squeeze(1)
        if weights is None:
            weights = torch.ones(len(tokens), device=x.device)
        loss, num_correct = ChunkedCrossEntropy.apply(
            x.index_select(0, at), self.head, targets[at], weights[at],
            torch.is_grad_enabled(), self.loss_and_gradient)
        return loss, len(at), num_correct

    def logits(self, hidden):
        """Return the logits (..., V) of hidden states (..., d)."""
        return F.linear(hidden, self.head)

    def compile_parts(self, as_one):
        """Compile the transformer, `as_one` graph or each layer for itself; on CUDA the loss, too (CPUs are
        faster without). One graph leaves the host least to do. But its backward pass gives all gradients at
        its end: where processes share or shard them, each layer's are sent while the next one computes."""
        parts = [self.model] if as_one else self.model.layers
        for part in parts:
            part.forward = torch.compile(part.forward, dynamic=False)
        if self.head.is_cuda:
            self.loss_and_gradient = torch.compile(loss_and_gradient)


def rope(positions, sizes):
    """Return cos and sin, (N, 1, h), of position / theta ** (2k / h). A head's halves hold the same angles.

    Llama 3.1 divides a frequency by `factor` where the original context holds fewer than `low` of its waves,
    leaves it as it is where it holds more than `high`, and mixes both in between."""
    h = sizes.head_size
    exponent = torch.arange(0, h, 2, device=positions.device).float() / h
    frequency = 1.0 / sizes.rope_theta ** exponent
    if sizes.rope_scaling:
        factor, low, high, context = sizes.rope_scaling
        waves = context * frequency / (2 * math.pi)
        kept = (waves - low) / (high - low)
        kept = kept.clamp(0, 1)
        frequency = frequency * (kept + (1 - kept) / factor)
    angle = positions.float()[:, None, None] * frequency    # (N, 1, h / 2)
    angle = angle.repeat(1, 1, 2)
    return angle.cos(), angle.sin()


def apply_rope(x, cos, sin):
    """Apply RoPE to x (N, heads, h), in fp32. As in Llama, elements j and j + h / 2 are a pair and turn
    together."""
    left, right = x.chunk(2, dim=2)
    turned = torch.cat([-right, left], dim=2)    # by 90 degrees
    rotated = x * cos + turned * sin
    return rotated.type_as(x)


def attend(q, k, v, segments, causal):
    """Attend inside each segment. Returns (N, H, h) from q (N, H, h), k and v (N, K, h).

    Segments that are all as long as the longest are a batch for PyTorch's attention. Others have one kernel
    on CUDA in half precision, and elsewhere a loop, against which tests hold it."""
    ends, longest = segments
    S = len(ends) - 1
    if len(q) == S * longest:
        return attend_batch(q, k, v, S, causal)
    if not q.is_cuda or q.dtype not in (torch.bfloat16, torch.float16):
        return attend_loop(q, k, v, segments, causal)

    options = {}
    if VARLEN_HAS_GQA:
        options['enable_gqa'] = True
    else:
        sharing = q.shape[1] // k.shape[1]    # heads that share a key
        k = k.repeat_interleave(sharing, dim=1)
        v = v.repeat_interleave(sharing, dim=1)
    # how far a token sees to the left and to the right; -1: all
    window = (-1, 0) if causal else (-1, -1)
    return varlen_attn(q, k, v, ends, ends, longest, longest, window_size=window, **options)


def attend_batch(q, k, v, S, causal):
    """Do what `attend` does for S segments of one length."""
    q, k, v = (
        x.unflatten(0, (S, -1)).transpose(1, 2)     # (S, heads, length, h)
        for x in (q, k, v))
    attended = F.scaled_dot_product_attention(
        q, k, v, is_causal=causal, enable_gqa=True)
    return attended.transpose(1, 2).flatten(0, 1)


@torch.compiler.disable     # a graph would be made anew for each new list of lengths
def attend_loop(q, k, v, segments, causal):
    """Do what `attend` does in plain PyTorch, a segment at a time."""
    lengths = segments.ends.diff().tolist()
    by_segment = [x.split(lengths) for x in (q, k, v)]
    parts = [
        attend_batch(*qkv, 1, causal)   # of one segment
        for qkv in zip(*by_segment)]
    return torch.cat(parts)


def loss_and_gradient(logits, targets, weights, with_gradient):
    """Return (weighted sum of the cross-entropies of logits (T, V), its gradient or None). The gradient has
    the logits' dtype.

    It overwrites the logits, or one fp32 copy of half-precision ones, which the compiled form never makes."""
    targets = targets[:, None]
    weights = weights[:, None]
    shifted = logits.to(torch.promote_types(logits.dtype, torch.float32))
    shifted.sub_(shifted.amax(1, keepdim=True))    # exp cannot overflow then
    of_target = shifted.gather(1, targets)     # before exp_ overwrites it
    exp = shifted.exp_()
    total = exp.sum(1, keepdim=True)
    log_p = of_target - total.log()
    loss = -(log_p * weights).sum()
    if not with_gradient:
        return loss, None
    # A logit's gradient is weight * p, and weight * (p - 1) if it is the target's; expm1 keeps the digits.
    # p is exp / total: dividing by total / weight gives weight * p in one pass over the (T, V) values.
    grad = exp.div_(total / weights).to(logits.dtype)
    grad_of_target = log_p.expm1() * weights
    grad.scatter_(1, targets, grad_of_target.to(grad.dtype))
    return loss, grad


class ChunkedCrossEntropy(torch.autograd.Function):
    """Sums the weighted cross-entropies of logits = hidden (T, d) @ head.T (d, V), some rows at a time.
    Where no gradients are computed, it also counts the targets that have the largest logit.

    The forward pass computes the gradients too, chunk by chunk: the (T, V) logits never exist whole.
    The backward pass scales them in place, so there can be only one."""
    @staticmethod
    def forward(ctx, hidden, head, targets, weights, with_gradient, loss_and_gradient):
        device = hidden.device.type
        dtype = hidden.dtype
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        x = hidden.to(dtype)
        w = head.to(dtype)
        precise = torch.promote_types(dtype, torch.float32)    # for what is summed over chunks
        loss = torch.zeros((), dtype=precise, device=hidden.device)
        num_correct = None if with_gradient else 0
        if with_gradient:
            grad_hidden = torch.empty_like(x)
            grad_head = torch.zeros_like(head, dtype=precise)

        size = 512      # 263 MB of logits in fp32, with the paper's ids; a context of 2,048 has 1.05 GB
        if device == 'cuda':    # a large chunk is little work for the host, and its product is added once
            size = max(size, LOGITS // (len(w) * w.itemsize))
        for start in range(0, len(x), size):
            rows = slice(start, start + size)
            logits = x[rows] @ w.T
            if not with_gradient:
                num_correct += (logits.argmax(1) == targets[rows]).sum()
            part_loss, grad = loss_and_gradient(logits, targets[rows], weights[rows], with_gradient)
            del logits
            loss += part_loss
            if with_gradient:
                torch.mm(grad, w, out=grad_hidden[rows])
                if dtype == precise:
                    grad_head.addmm_(grad.T, x[rows])    # without a second (V, d)
                else:
                    grad_head += grad.T @ x[rows]
            del grad    # before the next chunk's logits

        if with_gradient:
            ctx.gradients = grad_hidden.to(hidden.dtype), grad_head.to(head.dtype)
        return loss, num_correct

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_loss, _):
        assert ctx.gradients is not None, 'the gradients serve one backward pass'
        grad_hidden, grad_head = ctx.gradients
        ctx.gradients = None
        return grad_hidden.mul_(grad_loss), grad_head.mul_(grad_loss), None, None, None, None


def initial_weight(name, shape, seed, sd=0.02):
    """Draw a new parameter from N(0, sd), keyed by (seed, name), so that it is the same however the model is
    sharded. Gains are 1, biases 0."""
    if len(shape) == 1:
        if name.endswith('.weight'):
            return torch.ones(shape)
        return torch.zeros(shape)
    key = f'{seed} {name}'.encode()
    digest = hashlib.blake2b(key, digest_size=7).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, 'little'))
    return torch.empty(shape).normal_(0, sd, generator=generator)


def parameter_groups(module, weight_decay, matrix_lr_ratio=1.0):
    """Return an optimizer's groups. Norm gains and biases do not decay. Matrices of the layers, in the last
    group, have a learning rate of their own: 'lr_ratio' says how many times that of the others."""
    embeddings = []    # and heads
    gains = []
    matrices = []
    for name, p in module.named_parameters():
        if p.ndim < 2:
            gains.append(p)
        elif p.ndim == 2 and re.search(r'layer\w*\.\d', name):   # layers.0 here, encoder.layer.0 in BERT
            matrices.append(p)
        else:
            embeddings.append(p)
    return [
        {'name': 'embeddings and head', 'params': embeddings, 'weight_decay': weight_decay, 'lr_ratio': 1.0},
        {'name': 'gains and biases', 'params': gains, 'weight_decay': 0.0, 'lr_ratio': 1.0},
        {'name': 'matrices of the layers', 'params': matrices, 'weight_decay': weight_decay,
         'lr_ratio': matrix_lr_ratio},
    ]

"""The transformer: EuroBERT, which is Llama with the causal mask off. `causal` is an argument, never a state.

This file needs torch and nothing else. A batch is one flat sequence of tokens and the lengths of its
segments: attention and positions restart there. Sizes in comments: N tokens, T targets, V vocabulary,
d hidden, H heads, K key/value heads, h head size. The module tree bears Hugging Face's names: saved weights
are those of transformers' EuroBertForMaskedLM."""
import hashlib
import inspect
import math
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.attention.varlen import varlen_attn
from torch.utils.checkpoint import checkpoint

VARLEN_HAS_GQA = 'enable_gqa' in inspect.signature(varlen_attn).parameters  # from torch 2.12 on
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
    qk_norm: bool = False            # of each head, before the rotation, as in Qwen3
    rope_scaling: tuple = ()         # Llama 3.1's: factor, low and high frequency factor, original context

    def __post_init__(self):
        for field in fields(self):  # messages begin with its name: a parser adds where it was set
            name, value = field.name, getattr(self, field.name)
            if field.type is float and type(value) is int:
                object.__setattr__(self, name, value := float(value))
            if type(value) is not field.type:
                raise ValueError(f'{name} takes {field.type.__name__}, not {type(value).__name__} {value!r}')
            least = 0 if name in ('head_dim', 'rms_norm_eps') else 1
            if field.type in (int, float) and not least <= value < math.inf:
                raise ValueError(f'{name} must be at least {least}, not {value}')
        d, H, K = self.hidden_size, self.num_attention_heads, self.num_key_value_heads
        if d % H or H % K:
            raise ValueError(f'hidden_size {d} must be a multiple of num_attention_heads {H}, and that '
                             f'of num_key_value_heads {K}')
        if self.head_size % 2:
            raise ValueError(f'head_dim must be even, not {self.head_size} (0: hidden_size / heads)')
        scaling = [x for x in self.rope_scaling if type(x) in (int, float) and 0 < x < math.inf]
        if scaling != [*self.rope_scaling] or scaling and not (len(scaling) == 4 and scaling[1] < scaling[2]):
            raise ValueError('rope_scaling must be () or (factor, low frequency factor, high frequency '
                             f'factor, original context), not {self.rope_scaling!r}')

    @property
    def head_size(self):
        return self.head_dim or self.hidden_size // self.num_attention_heads


class Attention(nn.Module):
    """The projections, under Hugging Face's names; `attend` attends, and Layer.after applies o_proj."""
    def __init__(self, sizes):
        super().__init__()
        d, h, bias = sizes.hidden_size, sizes.head_size, sizes.attention_bias
        self.head_size, self.qk_norm = h, sizes.qk_norm
        self.q_proj = nn.Linear(d, sizes.num_attention_heads * h, bias)
        self.k_proj = nn.Linear(d, sizes.num_key_value_heads * h, bias)
        self.v_proj = nn.Linear(d, sizes.num_key_value_heads * h, bias)
        self.o_proj = nn.Linear(sizes.num_attention_heads * h, d, bias)
        if sizes.qk_norm:
            self.q_norm, self.k_norm = nn.RMSNorm(h, sizes.rms_norm_eps), nn.RMSNorm(h, sizes.rms_norm_eps)

    def forward(self, x, cos, sin):
        q, k, v = (project(x).unflatten(1, (-1, self.head_size))
                   for project in (self.q_proj, self.k_proj, self.v_proj))
        if self.qk_norm:
            q = self.q_norm(q.to(self.q_norm.weight.dtype)).type_as(v)
            k = self.k_norm(k.to(self.k_norm.weight.dtype)).type_as(v)
        return rotate(q, cos, sin), rotate(k, cos, sin), v    # (N, H, h), (N, K, h), (N, K, h)


class MLP(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.gate_proj = nn.Linear(sizes.hidden_size, sizes.intermediate_size, bias=False)
        self.up_proj = nn.Linear(sizes.hidden_size, sizes.intermediate_size, bias=False)
        self.down_proj = nn.Linear(sizes.intermediate_size, sizes.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(ACTIVATION(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Around attention all shapes are the same every step: torch.compile gets `before` and `after`."""
    def __init__(self, sizes):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(sizes.hidden_size, sizes.rms_norm_eps)
        self.self_attn = Attention(sizes)
        self.post_attention_layernorm = nn.RMSNorm(sizes.hidden_size, sizes.rms_norm_eps)
        self.mlp = MLP(sizes)

    def forward(self, x, cos, sin, lengths, ends, causal):
        q, k, v = self.before(x, cos, sin)
        return self.after(x, attend(q, k, v, lengths, ends, causal))

    def before(self, x, cos, sin):
        return self.self_attn(self.input_layernorm(x), cos, sin)

    def after(self, x, attended):
        x = x + self.self_attn.o_proj(attended.flatten(1))
        return x + self.mlp(self.post_attention_layernorm(x))


class Transformer(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.sizes, self.recompute = sizes, False
        self.embed_tokens = nn.Embedding(sizes.vocab_size, sizes.hidden_size)
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes.num_hidden_layers))
        self.norm = nn.RMSNorm(sizes.hidden_size, sizes.rms_norm_eps)

    def forward(self, tokens, lengths, causal):
        assert sum(lengths) == len(tokens) and min(lengths) > 0, 'lengths are positive and sum to the tokens'
        ends = torch.tensor([0, *lengths]).cumsum(0).to(tokens.device, torch.int32, non_blocking=True)
        starts = ends[:-1].repeat_interleave(ends.diff(), output_size=len(tokens))
        cos, sin = rope(torch.arange(len(tokens), device=tokens.device) - starts, self.sizes)
        x = self.embed_tokens(tokens)                          # (N, d)
        for layer in self.layers:
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(layer, x, cos, sin, lengths, ends, causal, use_reentrant=False)
            else:
                x = layer(x, cos, sin, lengths, ends, causal)
        return self.norm(x)


class Model(nn.Module):
    """The transformer and its output head, which has no module of its own where embeddings are tied."""
    def __init__(self, sizes):
        super().__init__()
        self.sizes, self.loss_and_gradient = sizes, loss_and_gradient    # compile_layers may compile it
        self.model, self.lm_head = Transformer(sizes), None
        if not sizes.tie_word_embeddings:
            self.lm_head = nn.Linear(sizes.hidden_size, sizes.vocab_size, bias=False)

    @property
    def head(self):    # (V, d)
        return self.model.embed_tokens.weight if self.lm_head is None else self.lm_head.weight

    def forward(self, tokens, lengths, targets, causal, at=None, weights=None):
        """(weighted sum of the losses in nats, number of targets), of a flat sequence of (N,) int64 tokens.

        lengths  list of ints, the segments' lengths; positions count from 0 in each, none sees another
        targets  (N,) int64, -100 where nothing is to be predicted
        causal   whether a token sees only itself and what stands before it in its segment
        at       (T,) the positions that have a target, if known: finding them makes CUDA wait
        weights  (N,) of the losses; all 1 if there are none"""
        x = self.model(tokens, lengths, causal)
        at = torch.nonzero(targets != -100).squeeze(1) if at is None else at
        x, targets = x.index_select(0, at), targets.index_select(0, at)
        weights = torch.ones(len(at), device=x.device) if weights is None else weights.index_select(0, at)
        options = torch.is_grad_enabled(), self.loss_and_gradient
        return ChunkedCrossEntropy.apply(x, self.head, targets, weights, *options), len(at)

    def logits(self, hidden):    # (..., V) of hidden states (..., d)
        return F.linear(hidden, self.head)

    def compile_layers(self):
        """Compile what surrounds attention in each layer; on CUDA the loss, too (CPUs are faster without)."""
        for layer in self.model.layers:
            layer.before, layer.after = torch.compile(layer.before), torch.compile(layer.after)
        if self.head.is_cuda:
            self.loss_and_gradient = torch.compile(loss_and_gradient)


def rope(positions, sizes):
    """cos and sin, (N, 1, h), of position / theta ** (2k / h); a head's halves hold the same angles.

    Llama 3.1 divides a frequency by `factor` where the original context holds fewer than `low` of its waves,
    leaves it alone where it holds more than `high`, and mixes both in between."""
    h = sizes.head_size
    frequency = 1.0 / sizes.rope_theta ** (torch.arange(0, h, 2, device=positions.device).float() / h)
    if sizes.rope_scaling:
        factor, low, high, context = sizes.rope_scaling
        share = ((context * frequency / (2 * math.pi) - low) / (high - low)).clamp(0, 1)
        frequency = frequency * (share + (1 - share) / factor)
    angle = (positions.float()[:, None, None] * frequency).repeat(1, 1, 2)
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    """Rotary position embedding of (N, heads, h), half-rotation as in Llama, computed in fp32."""
    left, right = x.chunk(2, dim=2)
    return (x * cos + torch.cat([-right, left], 2) * sin).type_as(x)


def attend(q, k, v, lengths, ends, causal):
    """Attention inside each segment: (N, H, h) from q (N, H, h), k and v (N, K, h).

    lengths are the segments'; ends, int32 on the device: 0, then where each ends (cu_seqlens).
    One kernel for all segments on CUDA in half precision; elsewhere a loop, against which tests hold it."""
    if not q.is_cuda or q.dtype not in (torch.bfloat16, torch.float16):
        return attend_loop(q, k, v, lengths, causal)
    options = {'enable_gqa': True} if VARLEN_HAS_GQA else {}
    if not VARLEN_HAS_GQA:
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    window = (-1, 0) if causal else (-1, -1)    # how far a token sees to the left and to the right; -1: all
    return varlen_attn(q, k, v, ends, ends, max(lengths), max(lengths), window_size=window, **options)


def attend_loop(q, k, v, lengths, causal):
    if len(set(lengths)) == 1:                        # as uncut rows have: all at once
        q, k, v = (x.unflatten(0, (len(lengths), -1)).transpose(1, 2) for x in (q, k, v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
        return attended.transpose(1, 2).flatten(0, 1)
    q, k, v = (x.transpose(0, 1)[None].split(lengths, dim=2) for x in (q, k, v))
    parts = [F.scaled_dot_product_attention(*segment, is_causal=causal, enable_gqa=True)
             for segment in zip(q, k, v)]                      # each (1, heads, length, h)
    return torch.cat([part[0].transpose(0, 1) for part in parts])


def loss_and_gradient(logits, targets, weights, with_gradient):
    """(weighted sum of the cross-entropies of logits (T, V), its gradient in the logits' dtype or None).

    It overwrites the logits, or one fp32 copy of half-precision ones, which the compiled form never makes."""
    shifted = logits.to(torch.promote_types(logits.dtype, torch.float32))
    shifted.sub_(shifted.amax(1, keepdim=True))
    of_target = shifted.gather(1, targets[:, None])
    total, weights = shifted.exp_().sum(1, keepdim=True), weights[:, None]
    log_p = of_target - total.log()
    loss = -(log_p * weights).sum()
    if not with_gradient:
        return loss, None
    grad = shifted.div_(total / weights).to(logits.dtype)    # it holds exp by now: weight * p
    grad.scatter_(1, targets[:, None], (log_p.expm1() * weights).to(grad.dtype))    # weight * (p - 1)
    return loss, grad


class ChunkedCrossEntropy(torch.autograd.Function):
    """Weighted sum of cross-entropies of logits = hidden (T, d) @ head.T (d, V), some rows at a time.

    The forward pass computes the gradients too, chunk by chunk: the (T, V) logits never exist whole.
    The backward pass scales them in place, so there can be only one."""
    @staticmethod
    def forward(ctx, hidden, head, targets, weights, with_gradient, loss_and_gradient):
        device = hidden.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        precise, rows = torch.promote_types(dtype, torch.float32), 2048 if device == 'cuda' else 512
        x, w = hidden.to(dtype), head.to(dtype)
        loss, ctx.gradients = torch.zeros((), dtype=precise, device=hidden.device), None
        if with_gradient:
            grad_hidden, grad_head = torch.empty_like(x), torch.zeros_like(head, dtype=precise)
        for start in range(0, len(x), rows):
            part, *of_targets = (tensor[start:start + rows] for tensor in (x, targets, weights))
            part_loss, grad = loss_and_gradient(part @ w.T, *of_targets, with_gradient)
            loss += part_loss
            if with_gradient:
                torch.mm(grad, w, out=grad_hidden[start:start + rows])
                if dtype == precise:
                    grad_head.addmm_(grad.T, part)      # without a second (V, d)
                else:
                    grad_head += grad.T @ part
            del grad                                    # before the next chunk's logits
        if with_gradient:
            ctx.gradients = grad_hidden.to(hidden.dtype), grad_head.to(head.dtype)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_loss):
        assert ctx.gradients is not None, 'gradients exist if with_gradient, and serve one backward pass'
        (grad_hidden, grad_head), ctx.gradients = ctx.gradients, None
        return grad_hidden.mul_(grad_loss), grad_head.mul_(grad_loss), None, None, None, None


def initial_weight(name, shape, seed, sd=0.02):
    """A new parameter: N(0, sd) keyed by (seed, name): the same however sharded; gains are 1, biases 0."""
    if len(shape) == 1:
        return torch.full(shape, float(name.endswith('.weight')))
    key = hashlib.blake2b(f'{seed} {name}'.encode(), digest_size=7).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(key, 'little'))
    return torch.empty(shape).normal_(0, sd, generator=generator)


def parameter_groups(module, weight_decay):
    """AdamW's two groups: matrices decay; norm gains and biases do not."""
    return [{'params': [p for p in module.parameters() if p.ndim >= 2], 'weight_decay': weight_decay},
            {'params': [p for p in module.parameters() if p.ndim < 2], 'weight_decay': 0.0}]

"""The transformer: EuroBERT, which is Llama with the causal mask off. `causal` is an argument, never a state.

    python model.py out/tiny-mlm40 "The function returns <|mask|> of floats."    # the five best tokens for each mask
    python model.py out/tiny-clm out/tiny-mlm40 "..."                            # of several models

A batch is one flat row of tokens and the lengths of its segments; only `attend` knows where segments end.
Sizes in comments: N tokens, T targets, V vocabulary, d hidden, H heads, K key/value heads, h head size.
The module tree bears Hugging Face's names: a saved folder is what transformers' EuroBertForMaskedLM opens.
"""
import hashlib
import inspect
import json
import re
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn
from torch.nn.attention.varlen import varlen_attn
from torch.utils.checkpoint import checkpoint

VARLEN_HAS_GQA = 'enable_gqa' in inspect.signature(varlen_attn).parameters  # from torch 2.12 on


@dataclass(frozen=True)
class Sizes:
    """What config.json holds, under Hugging Face's names."""
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    max_position_embeddings: int
    rope_theta: float
    rms_norm_eps: float
    tie_word_embeddings: bool
    bos_token_id: int
    eos_token_id: int
    pad_token_id: int
    mask_token_id: int

    def __post_init__(self):
        d, H, K = self.hidden_size, self.num_attention_heads, self.num_key_value_heads
        if min(d, H, K, self.intermediate_size, self.vocab_size) < 1 or d % H or H % K or d // H % 2:
            raise ValueError(f'hidden_size {d} must be an even multiple of num_attention_heads {H}, '
                             f'and that a multiple of num_key_value_heads {K}')
        if max(self.bos_token_id, self.eos_token_id, self.pad_token_id, self.mask_token_id) >= self.vocab_size:
            raise ValueError(f'a special token id is not below vocab_size {self.vocab_size}')

    @property
    def head_dim(self):
        return self.hidden_size // self.num_attention_heads


class Segments(NamedTuple):
    """Where a flat row of tokens is cut."""
    lengths: list         # ints
    ends: torch.Tensor    # (segments + 1,) int32 on the device: 0, then the cumulated lengths
    longest: int


class Attention(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        d, self.head_dim = sizes.hidden_size, sizes.head_dim
        self.q_proj = nn.Linear(d, sizes.num_attention_heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(d, sizes.num_key_value_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(d, sizes.num_key_value_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(sizes.num_attention_heads * self.head_dim, d, bias=False)

    def forward(self, x, cos, sin):
        q, k, v = (proj(x).unflatten(1, (-1, self.head_dim)) for proj in (self.q_proj, self.k_proj, self.v_proj))
        return rotate(q, cos, sin), rotate(k, cos, sin), v    # (N, H, h), (N, K, h), (N, K, h)


class MLP(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.gate_proj = nn.Linear(sizes.hidden_size, sizes.intermediate_size, bias=False)
        self.up_proj = nn.Linear(sizes.hidden_size, sizes.intermediate_size, bias=False)
        self.down_proj = nn.Linear(sizes.intermediate_size, sizes.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(sizes.hidden_size, sizes.rms_norm_eps)
        self.self_attn = Attention(sizes)
        self.post_attention_layernorm = nn.RMSNorm(sizes.hidden_size, sizes.rms_norm_eps)
        self.mlp = MLP(sizes)

    def forward(self, x, cos, sin, segments, causal):
        q, k, v = self.before(x, cos, sin)
        return self.after(x, attend(q, k, v, segments, causal))

    # What stands around attention is of one shape every step: these two are what torch.compile gets.
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
        if sum(lengths) != len(tokens) or min(lengths) < 1:
            raise ValueError(f'lengths must be positive and sum to {len(tokens)} tokens, not {sum(lengths)}')
        ends = torch.tensor([0, *lengths]).cumsum(0).to(tokens.device, torch.int32, non_blocking=True)
        segments = Segments(lengths, ends, max(lengths))
        starts = ends[:-1].repeat_interleave(ends.diff(), output_size=len(tokens))
        cos, sin = rope(torch.arange(len(tokens), device=tokens.device) - starts, self.sizes)
        x = self.embed_tokens(tokens)                          # (N, d)
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
        self.model = Transformer(sizes)
        self.lm_head = None
        if not sizes.tie_word_embeddings:
            self.lm_head = nn.Linear(sizes.hidden_size, sizes.vocab_size, bias=False)

    @property
    def head(self):
        return self.model.embed_tokens.weight if self.lm_head is None else self.lm_head.weight    # (V, d)

    def forward(self, tokens, lengths, targets, causal, at=None):
        """(sum of the losses in nats, number of targets), of a flat row of tokens.

        tokens   (N,) int64
        lengths  list of ints, the segments' lengths; positions count from 0 in each, none sees another
        targets  (N,) int64, -100 where nothing is to be predicted
        causal   whether a token sees only itself and what stands before it in its segment
        at       (T,) the positions that have a target, if known: finding them makes CUDA wait
        """
        x = self.model(tokens, lengths, causal)
        at = torch.nonzero(targets != -100).squeeze(1) if at is None else at
        x, targets = x.index_select(0, at), targets.index_select(0, at)
        return ChunkedCrossEntropy.apply(x, self.head, targets, torch.is_grad_enabled()), len(at)

    def hidden_states(self, tokens, lengths, causal=False):
        """(N, d): the last layer's output, normed."""
        return self.model(tokens, lengths, causal)

    def logits(self, hidden):
        """(..., V) of hidden states (..., d)."""
        return F.linear(hidden, self.head)

    def save(self, folder):
        """Write config.json and model.safetensors, which `load` and transformers open."""
        save(self.sizes, dict(self.named_parameters()), folder)

    def compile_layers(self):
        for layer in self.model.layers:
            layer.before, layer.after = torch.compile(layer.before), torch.compile(layer.after)


def rope(positions, sizes):
    """cos and sin, (N, 1, h), of position / theta ** (2k / h); a head's halves hold the same angles."""
    h = sizes.head_dim
    frequency = 1.0 / sizes.rope_theta ** (torch.arange(0, h, 2, device=positions.device).float() / h)
    angle = positions.float()[:, None, None] * frequency       # (N, 1, h / 2)
    angle = torch.cat([angle, angle], 2)
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    """Rotary position embedding of (N, heads, h), half-rotation as in Llama, computed in fp32."""
    left, right = x.chunk(2, dim=2)
    return (x * cos + torch.cat([-right, left], 2) * sin).type_as(x)


def attend(q, k, v, segments, causal):
    """Attention inside each segment: (N, H, h) from q (N, H, h), k and v (N, K, h).

    One kernel for all segments where there is one (CUDA, half precision), else a loop, which is also its judge.
    """
    if q.is_cuda and q.dtype in (torch.bfloat16, torch.float16):
        return attend_varlen(q, k, v, segments, causal)
    return attend_loop(q, k, v, segments, causal)


def attend_loop(q, k, v, segments, causal):
    q, k, v = (x.transpose(0, 1)[None].split(segments.lengths, dim=2) for x in (q, k, v))    # (1, heads, length, h)
    parts = [F.scaled_dot_product_attention(*part, is_causal=causal, enable_gqa=True) for part in zip(q, k, v)]
    return torch.cat(parts, 2)[0].transpose(0, 1)


def attend_varlen(q, k, v, segments, causal):
    options = {'enable_gqa': True} if VARLEN_HAS_GQA else {}
    if not VARLEN_HAS_GQA:
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    window = (-1, 0) if causal else (-1, -1)    # how far a token sees to the left and to the right; -1: all
    return varlen_attn(q, k, v, segments.ends, segments.ends, segments.longest, segments.longest,
                       window_size=window, **options)


class ChunkedCrossEntropy(torch.autograd.Function):
    """Sum of cross-entropies of logits = hidden @ weight.T, a few rows of logits at a time.

    The gradients are made in the forward pass, chunk by chunk, so that the (T, V) logits never exist.
    hidden (T, d), weight (V, d), targets (T,); with_gradient is False where none will be asked for.
    """

    @staticmethod
    def forward(ctx, hidden, weight, targets, with_gradient):
        device = hidden.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        precise = torch.promote_types(dtype, torch.float32)
        rows = 2048 if device == 'cuda' else 256
        h, w = hidden.to(dtype), weight.to(dtype)
        loss = torch.zeros((), dtype=precise, device=hidden.device)
        if with_gradient:
            grad_hidden, grad_weight = torch.zeros_like(h), torch.zeros_like(weight, dtype=precise)
        for start in range(0, len(h), rows):
            part, target = h[start:start + rows], targets[start:start + rows]
            logits = (part @ w.T).to(precise)
            normaliser = logits.logsumexp(1, keepdim=True)
            loss += (normaliser - logits.gather(1, target[:, None])).sum()
            if with_gradient:
                grad = (logits - normaliser).exp_()
                grad.scatter_add_(1, target[:, None], torch.full_like(normaliser, -1.0))
                grad = grad.to(dtype)
                grad_hidden[start:start + rows] = grad @ w
                grad_weight += grad.T @ part
        if with_gradient:
            ctx.gradients = grad_hidden.to(hidden.dtype), grad_weight.to(weight.dtype)
        return loss

    @staticmethod
    def backward(ctx, grad_loss):
        grad_hidden, grad_weight = ctx.gradients
        return grad_hidden * grad_loss, grad_weight * grad_loss, None, None


def initial_weight(name, shape, seed):
    """A parameter at the start: N(0, 0.02), keyed by (seed, name), so equal in every layout; norms are ones."""
    if name.endswith('norm.weight'):
        return torch.ones(shape)
    key = hashlib.blake2b(f'{seed} {name}'.encode(), digest_size=7).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(key, 'little'))
    return torch.empty(shape).normal_(0, 0.02, generator=generator)


# ------------------------------------------------------------------------------------------- load and save

def save(sizes, tensors, folder, **more):
    """Write a Hugging Face EuroBERT folder: config.json, with `more` in it, and model.safetensors of {name: tensor}."""
    config = asdict(sizes) | {
        'architectures': ['EuroBertForMaskedLM'], 'model_type': 'eurobert', 'head_dim': sizes.head_dim,
        'hidden_act': 'silu', 'initializer_range': 0.02, 'attention_bias': False, 'mlp_bias': False,
        'attention_dropout': 0.0, 'classifier_pooling': 'mean', 'dtype': 'float32', 'torch_dtype': 'float32',
        'rope_scaling': None,  # transformers 4 reads this and rope_theta, transformers 5 the next line
        'rope_parameters': {'rope_type': 'default', 'rope_theta': sizes.rope_theta}} | more
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'config.json').write_text(json.dumps(config, indent=1) + '\n', encoding='utf-8')
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(tensors, folder / 'model.safetensors', metadata={'format': 'pt'})


def newest_checkpoint(folder):
    """The folder itself if it holds weights, else the last of a run's checkpoints."""
    folder = Path(folder)
    if (folder / 'model.safetensors').exists():
        return folder
    steps = [step for step in saved_steps(folder) if (folder / str(step) / 'model.safetensors').exists()]
    if not steps:
        raise ValueError(f'{folder}: no checkpoint there (no model.safetensors)')
    return folder / str(steps[-1])


def saved_steps(run):
    """The steps that a run's folder has checkpoints of, rising."""
    return sorted(int(path.name) for path in run.glob('*') if re.fullmatch('0|[1-9][0-9]*', path.name) and path.is_dir())


def read_sizes(folder):
    """Sizes from a config.json of EuroBERT or Llama; what this architecture cannot hold is refused by name."""
    path = Path(folder) / 'config.json'
    try:
        config = json.loads(path.read_text(encoding='utf-8'))
    except OSError as error:
        raise ValueError(f'{path}: {error.strerror}') from None
    except ValueError:
        raise ValueError(f'{path}: not valid JSON') from None
    kind, rope_parameters = config.get('model_type'), config.get('rope_parameters') or {}
    if kind not in ('eurobert', 'llama'):
        raise ValueError(f'{path}: model_type is {kind!r}; supported are eurobert and llama')
    for name in ('vocab_size', 'hidden_size', 'intermediate_size', 'num_hidden_layers', 'num_attention_heads',
                 'max_position_embeddings', 'rms_norm_eps'):
        if name not in config:
            raise ValueError(f'{path}: has no {name}')
    scaling = config.get('rope_scaling') or {}
    scaling = rope_parameters.get('rope_type', scaling.get('rope_type', scaling.get('type', 'default')))
    head_dim = config['hidden_size'] // config['num_attention_heads']
    for name, value, wanted in (('hidden_act', config.get('hidden_act', 'silu'), 'silu'),
                                ('attention_bias', config.get('attention_bias', False), False),
                                ('mlp_bias', config.get('mlp_bias', False), False),
                                ('rope_type', scaling, 'default'),
                                ('head_dim', config.get('head_dim') or head_dim, head_dim)):
        if value != wanted:
            raise ValueError(f'{path}: {name} = {value!r} is not supported, only {wanted!r}')
    config['rope_theta'] = float(rope_parameters.get('rope_theta', config.get('rope_theta', 10_000)))
    config['num_key_value_heads'] = config.get('num_key_value_heads') or config['num_attention_heads']
    config['tie_word_embeddings'] = bool(config.get('tie_word_embeddings', False))
    for role in ('bos', 'eos', 'pad', 'mask'):  # Llama decoders may name no pad or mask, or several eos
        value = config.get(f'{role}_token_id')
        config[f'{role}_token_id'] = value[0] if isinstance(value, list) else 0 if value is None else value
    return Sizes(**{field.name: config[field.name] for field in fields(Sizes)})


def read_tensors(path, shapes):
    """Yields (name, tensor) from a safetensors file for exactly the names of {name: shape}, one at a time."""
    try:
        with safe_open(path, 'pt') as file:
            present = set(file.keys())
            for name in sorted(present.symmetric_difference(shapes)):
                raise ValueError(f'{path}: {"unexpected" if name in present else "missing"} weight {name}')
            for name, shape in shapes.items():
                tensor = file.get_tensor(name)
                if tensor.shape != shape:
                    raise ValueError(f'{path}: {name} has shape {tuple(tensor.shape)}, and should have '
                                     f'{tuple(shape)}')
                yield name, tensor
    except OSError as error:
        raise ValueError(f'{path}: {error}') from None
    except SafetensorError as error:
        raise ValueError(f'{path}: damaged or cut short: {error}') from None


def load(folder, device='cpu'):
    """The Model of a checkpoint folder, or of a run's newest checkpoint; weights in fp32.

    Raises ValueError for a folder without a checkpoint, of another architecture, or with missing or damaged files.
    """
    folder = newest_checkpoint(folder)
    with torch.device('meta'):
        model = Model(read_sizes(folder))
    model.to_empty(device=device)
    parameters = dict(model.named_parameters())
    shapes = {name: p.shape for name, p in parameters.items()}
    with torch.no_grad():
        for name, tensor in read_tensors(folder / 'model.safetensors', shapes):
            parameters[name].copy_(tensor)
    return model


def fill_mask(model, tokenizer, text, best=5):
    """For each mask in the text [(token, probability), ...], most probable first; the model is used as an encoder."""
    tokens = torch.from_numpy(tokenizer.encode_masked(text).astype('int64'))
    at = torch.nonzero(tokens == tokenizer.ids['mask']).squeeze(1)
    if not len(at):
        raise ValueError(f'no mask in {text!r}; write it as {tokenizer.roles["mask"]}')
    with torch.no_grad():
        hidden = model.hidden_states(tokens, [len(tokens)], causal=False)
        found = model.logits(hidden[at]).float().softmax(1).topk(best)
    return [[(tokenizer.decode([i]), p) for i, p in zip(*row)]
            for row in zip(found.indices.tolist(), found.values.tolist())]


def main():
    import data
    *folders, text = sys.argv[1:]
    print(text)
    for folder in folders:
        folder = newest_checkpoint(folder)
        for best in fill_mask(load(folder), data.load_tokenizer(folder), text):
            print(f'  {str(folder):<26} ' + '   '.join(f'{token.strip() or repr(token)} {p:.1%}' for token, p in best))


if __name__ == '__main__':
    import configs
    if len(sys.argv) < 3 or '--help' in sys.argv:
        print(__doc__.strip())
        sys.exit(0 if '--help' in sys.argv else 2)
    configs.run(main)

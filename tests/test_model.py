"""The transformer against float64, plain formulas and (test_huggingface.py) transformers; what sees what."""
import dataclasses
import weakref
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.testing import CompileCounter, CompileCounterWithBackend
from torch._dynamo.utils import counters

import model as architecture
from conftest import assert_near, on_cuda, refused

SIZES = architecture.Sizes(vocab_size=300, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
                           num_attention_heads=4, num_key_value_heads=2)


both_ways = pytest.mark.parametrize('causal', [True, False])


@pytest.fixture(autouse=True)
def same_numbers_each_time():
    torch.manual_seed(0)


def make():
    """A model far from its initial weights, so that attention is not uniform."""
    model = architecture.Model(SIZES)
    torch.manual_seed(1)
    for name, p in model.named_parameters():
        p.data = torch.randn(p.shape) * 0.1
        if name.endswith('norm.weight'):
            p.data += 1
    return model


@both_ways
@pytest.mark.parametrize('lengths, longest', [([30, 30, 30], 0), ([30, 30, 30], 90), ([12, 1, 77], 0)])
def test_attention_in_segments_equals_a_mask_over_all_tokens(lengths, longest, causal):
    qkv = [torch.randn(90, heads, 16) for heads in (6, 2, 2)]
    segment = torch.arange(3).repeat_interleave(torch.tensor(lengths))
    mask = segment[:, None] == segment
    if causal:
        mask = mask.tril()
    heads_first = [x.transpose(0, 1) for x in qkv]
    expected = F.scaled_dot_product_attention(*heads_first, attn_mask=mask, enable_gqa=True)
    segments = architecture.make_segments(lengths, longest)
    attended = architecture.attend(*qkv, segments, causal)
    assert_near(attended, expected.transpose(0, 1))


@both_ways
def test_segments_never_see_each_other_nor_if_causal_the_future(causal):
    """Packed or by itself, a segment has the same vectors: positions restart."""
    model = make()
    lengths = [7, 1, 30, 12]
    tokens = torch.randint(300, (50,))
    packed = model.model(tokens, lengths, causal)
    single = [model.model(part, [len(part)], causal) for part in tokens.split(lengths)]
    assert_near(packed, torch.cat(single))

    changed = tokens[8:38].clone()
    changed[-1] = (changed[-1] + 1) % 300
    difference = model.model(changed, [30], causal) - single[2]
    if causal:
        assert not difference[:-1].any()
    else:
        assert difference[0].any()


def plain_loss(hidden, head, targets, weights):
    logits = F.linear(hidden, head)
    losses = F.cross_entropy(logits, targets, reduction='none')
    return (losses * weights).sum()


def chunked_loss(function):
    """The same by ChunkedCrossEntropy, whose chunks a function computes."""
    def loss(hidden, head, targets, weights):
        loss_sum, _ = architecture.ChunkedCrossEntropy.apply(
            hidden, head, targets, weights, torch.is_grad_enabled(), function)
        return loss_sum
    return loss


def with_gradients(loss, hidden, head, targets, weights, dtype):
    """(loss, its gradients) in a dtype."""
    h = hidden.to(dtype, copy=True).requires_grad_()
    w = head.to(dtype, copy=True).requires_grad_()
    value = loss(h, w, targets, weights.to(dtype))
    (value * 0.37).backward()
    return value.detach(), h.grad, w.grad


@pytest.mark.parametrize('count', [0, 1, 700])
def test_chunked_loss_and_gradients_equal_the_plain_ones(count):
    hidden = torch.randn(count, 24)
    head = torch.randn(80, 24)
    given = hidden, head, torch.randint(80, (count,)), 1 / torch.rand(count)
    plain = with_gradients(plain_loss, *given, torch.float64)
    chunked = chunked_loss(architecture.loss_and_gradient)
    ours = with_gradients(chunked, *given, torch.float64)
    torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize('count', [0, 1, 1300])
def test_targets_with_the_largest_logit_are_counted(count):
    """In three chunks, against all logits at once in float64. Half of the targets are the likeliest token."""
    hidden = torch.randn(count, 24)
    head = torch.randn(80, 24)
    likeliest = F.linear(hidden.double(), head.double()).argmax(1)
    targets = torch.where(torch.rand(count) < 0.5, likeliest, torch.randint(80, (count,)))
    given = hidden, head, targets, torch.ones(count), False, architecture.loss_and_gradient
    _, num_correct = architecture.ChunkedCrossEntropy.apply(*given)
    assert num_correct == (targets == likeliest).sum()


def test_the_loss_has_one_chunk_in_memory_and_one_backward_pass():
    gradients = []

    def watched(*arguments):
        assert not any(reference() is not None for reference in gradients)
        loss, gradient = architecture.loss_and_gradient(*arguments)
        gradients.append(weakref.ref(gradient))
        return loss, gradient

    hidden = torch.randn(1300, 8, requires_grad=True)
    head = torch.randn(40, 8, requires_grad=True)
    loss = chunked_loss(watched)(hidden, head, torch.randint(40, (1300,)), torch.ones(1300))
    assert len(gradients) == 3
    loss.backward(retain_graph=True)
    with pytest.raises(AssertionError, match='one backward pass'):
        loss.backward()


@pytest.mark.slow
def test_the_compiled_loss_equals_pytorchs():
    """In bf16, as on a GPU, against float64 on the same bf16 numbers; new lengths are not compiled again."""
    counter = CompileCounterWithBackend('inductor')
    compiled = torch.compile(architecture.loss_and_gradient, backend=counter)
    loss = chunked_loss(compiled)
    for count in (512, 512 + 300, 77, 512 + 8, 200, 1024 + 30, 1):
        hidden = torch.randn(count, 24).bfloat16()
        head = torch.randn(640, 24).bfloat16()
        given = hidden, head, torch.randint(640, (count,)), 1 + 9 * torch.rand(count)
        exact = with_gradients(plain_loss, *given, torch.float64)
        with torch.autocast('cpu', torch.bfloat16):
            ours = with_gradients(loss, *given, torch.float32)
            with torch.no_grad():
                torch.testing.assert_close(loss(*given), ours[0])
        for result, expected in zip(ours, exact):
            assert (result - expected).norm() < 0.01 * expected.norm()
    # a full chunk, a shorter one behind it, a short first one, one of a single row; each with gradient and
    # without: within torch's limit, behind which it would not be compiled
    assert counter.frame_count == 8 <= torch._dynamo.config.recompile_limit


def test_a_models_loss_is_weighted_and_its_targets_are_counted():
    """test_pretrain.py has the loss without weights, and each update, by transformers in float64."""
    model = make()
    tokens = torch.randint(300, (90,))
    targets = torch.where(torch.arange(90) % 5 < 2, tokens, -100)
    weights = 1 / torch.linspace(0.3, 0.8, 90)
    loss, count, num_correct = model(tokens, [40, 50], targets, False, weights=weights)
    assert (count, num_correct) == (36, None)
    hidden = model.model(tokens, [40, 50], False)
    assert_near(loss, plain_loss(hidden, model.head, targets, weights), 3e-4)


@torch.library.custom_op('stand_in::attend', mutates_args=())
def stand_in(q: torch.Tensor, k: torch.Tensor, ends: torch.Tensor,
             longest: int, causal: bool) -> torch.Tensor:
    """For varlen_attn on a CPU: an operator that a graph takes as it is."""
    assert ends[-1] == len(q)
    assert ends.diff().max() <= longest
    return q.clone()


@stand_in.register_fake
def fake(q, k, ends, longest, causal):
    return torch.empty_like(q)


def keep(ctx, inputs, output):
    ctx.of_k = inputs[1].shape


def backward(ctx, grad):
    return grad, grad.new_zeros(ctx.of_k), None, None, None


stand_in.register_autograd(backward, setup_context=keep)


@pytest.fixture
def counter(monkeypatch):
    """Counts the graphs that torch.compile makes."""
    counter = CompileCounter()
    monkeypatch.setattr(torch, 'compile', partial(torch.compile, backend=counter))
    torch._dynamo.reset()
    counters.clear()
    return counter


def steps_of_pretraining(model, lengths_of):
    """Twenty steps, of CLM and MLM in turn, with more or fewer targets, on four rows of 64 tokens."""
    for step in range(20):
        segments = architecture.make_segments(lengths_of(step), longest=64)
        tokens = torch.randint(300, (256,))
        share = 1 if step % 2 else 0.4
        targets = tokens.where(torch.rand(256) < share, -100)
        loss, *_ = model(tokens, segments, targets, causal=step % 2 == 1)
        loss.backward()


def cut(step):
    lengths = []
    for cut in (12 + step, 52 - step, 32, 20):
        lengths += [cut, 64 - cut]
    return lengths


def uncut(step):
    return [64] * 4


@pytest.mark.slow
@pytest.mark.parametrize('as_one', [True, False])
@pytest.mark.parametrize('layers', [2, 26])
@pytest.mark.parametrize('lengths_of', [cut, uncut])
def test_a_pretraining_is_two_graphs_whatever_its_layers(
        lengths_of, layers, as_one, counter, monkeypatch):
    """One for CLM, one for MLM, each without a break; none is compiled again for other cuts and targets."""
    plain = architecture.attend

    def attend(q, k, v, segments, causal):
        if len(q) == segments.longest * (len(segments.ends) - 1):
            return plain(q, k, v, segments, causal)
        return torch.ops.stand_in.attend(q, k, segments.ends, segments.longest, causal)

    monkeypatch.setattr(architecture, 'attend', attend)
    model = architecture.Model(dataclasses.replace(SIZES, num_hidden_layers=layers))
    model.compile_parts(as_one)
    steps_of_pretraining(model, lengths_of)
    assert counter.frame_count == 2
    assert not counters['graph_break']
    assert not counters['recompiles']


@pytest.mark.slow
def test_layers_on_a_cpu_are_not_compiled_again_for_other_cuts(counter):
    """A graph before the loop over segments and one behind it; each for CLM and MLM, which differ in the
    loop alone."""
    model = make()
    model.compile_parts(as_one=False)
    steps_of_pretraining(model, cut)
    assert counter.frame_count == 2


def test_initial_weights_are_keyed_by_name_and_seed():
    def draw(name, seed=0):
        return architecture.initial_weight(name, (400, 300), seed)

    a = draw('x.weight')
    assert torch.equal(a, draw('x.weight'))
    assert not torch.equal(a, draw('y.weight'))
    assert not torch.equal(a, draw('x.weight', seed=1))
    assert a.std().item() == pytest.approx(0.02, abs=1e-4)
    assert architecture.initial_weight('norm.weight', (2,), 0).tolist() == [1, 1]


@pytest.mark.parametrize('changes, message', [
    (dict(hidden_size=0), 'hidden_size must be at least 1, not 0'),
    (dict(num_attention_heads=3), 'hidden_size 64 must be a multiple'),
    (dict(head_dim=7), 'head_dim must be even'),
    (dict(rope_theta=float('nan')), 'rope_theta must be'),
    (dict(rope_scaling=(8.0, 4.0, 1.0, 64)), 'rope_scaling must be'),
    (dict(vocab_size=True), 'vocab_size takes int, not bool')])
def test_sizes_that_make_no_model_are_refused_wherever_they_are_constructed(changes, message):
    refused(message, dataclasses.replace, SIZES, **changes)


@pytest.mark.gpu
@on_cuda
@both_ways
@pytest.mark.parametrize('kv_heads', [2, 18])
@pytest.mark.parametrize('lengths', [[12, 2036, 700, 1348, 1, 99], [1049] * 4])
def test_attention_on_cuda_equals_the_loop(lengths, causal, kv_heads):
    qkv = [torch.randn(4196, heads, 64, device='cuda', dtype=torch.bfloat16)
           for heads in (18, kv_heads, kv_heads)]
    segments = architecture.make_segments(lengths)
    segments = segments._replace(ends=segments.ends.to('cuda'))
    kernel = architecture.attend(*qkv, segments, causal)
    loop = architecture.attend_loop(*qkv, segments, causal)
    assert (kernel - loop).float().norm() < 0.01 * loop.float().norm()

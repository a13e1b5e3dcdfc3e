"""The transformer against float64, plain formulas and (test_huggingface.py) transformers; what sees what."""
import dataclasses
import weakref

import pytest
import torch
import torch.nn.functional as F

import model as architecture

SIZES = architecture.Sizes(vocab_size=300, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
                           num_attention_heads=4, num_key_value_heads=2)


def make(**changes):
    model = architecture.Model(dataclasses.replace(SIZES, **changes))
    torch.manual_seed(1)
    with torch.no_grad():   # far from the initial weights, so that attention is not uniform
        for name, p in model.named_parameters():
            p.copy_(torch.randn(p.shape) * 0.1 + (1.0 if name.endswith('norm.weight') else 0.0))
    return model


def tokens(count, seed=0):
    return torch.randint(0, 290, (count,), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize('layers, hidden, ffn, heads, kv_heads, body, everything', [
    (12, 768, 3072, 12, 12, 211_766_016, 310_266_624),
    (26, 1152, 4096, 18, 6, 607_874_688, 755_625_600),
    (28, 1728, 5120, 18, 6, 1_187_856_576, 1_409_482_944)])
def test_parameter_counts(layers, hidden, ffn, heads, kv_heads, body, everything):
    """Worked by hand: V d + L (2 d d + 2 d d K/H + 3 d f + 2 d) + d, and V d more for the head."""
    attention = 2 * hidden ** 2 + 2 * hidden * kv_heads * (hidden // heads)
    by_hand = 128_256 * hidden + layers * (attention + 3 * hidden * ffn + 2 * hidden) + hidden
    sizes = dataclasses.replace(SIZES, vocab_size=128_256, hidden_size=hidden, intermediate_size=ffn,
                                num_hidden_layers=layers, num_attention_heads=heads,
                                num_key_value_heads=kv_heads)
    with torch.device('meta'):
        model = architecture.Model(sizes)
    counted = sum(p.numel() for p in model.parameters())
    assert counted == everything and counted - model.lm_head.weight.numel() == body == by_hand


@pytest.mark.parametrize('causal', [True, False])
@pytest.mark.parametrize('kv_heads', [2, 6])
def test_segments_of_one_length_attend_as_each_alone(causal, kv_heads):
    q, k, v = (torch.randn(120, heads, 16) for heads in (6, kv_heads, kv_heads))
    together = architecture.attend(q, k, v, [30] * 4, None, causal)
    for segment, *parts in zip(together.split(30), q.split(30), k.split(30), v.split(30)):
        parts = [part.transpose(0, 1) for part in parts]
        alone = F.scaled_dot_product_attention(*parts, is_causal=causal, enable_gqa=True)
        torch.testing.assert_close(segment, alone.transpose(0, 1))


@pytest.mark.parametrize('causal', [True, False])
def test_segments_never_see_each_other_nor_if_causal_the_future(causal):
    """Packed, behind other content, or alone: the same vectors; positions restart."""
    model, parts = make(), [tokens(n, seed=n) for n in (7, 1, 30, 12)]
    changed = parts[2].clone()
    changed[-1] = (changed[-1] + 1) % 290
    with torch.no_grad():
        packed = model.model(torch.cat(parts), [7, 1, 30, 12], causal).split([7, 1, 30, 12])
        for vectors, part in zip(packed, parts):
            alone = model.model(part, [len(part)], causal)
            torch.testing.assert_close(vectors, alone, atol=1e-5, rtol=0)
        x, y = (model.model(part, [30], causal) for part in (parts[2], changed))
    assert torch.equal(x[:-1], y[:-1]) if causal else (x[0] - y[0]).abs().max() > 1e-4


def with_gradients(function, hidden, weight, targets, weights, dtype, autocast=False):
    """(loss, gradients) in a dtype: in chunks by a function, or plain."""
    h, w = (x.to(dtype, copy=True).requires_grad_() for x in (hidden, weight))
    with torch.autocast('cpu', torch.bfloat16, enabled=autocast):
        if function:
            loss = architecture.ChunkedCrossEntropy.apply(h, w, targets, weights.to(dtype), True, function)
        else:
            loss = (F.cross_entropy(F.linear(h, w), targets, reduction='none') * weights).sum()
    (loss * 0.37).backward()
    return loss.detach(), h.grad, w.grad


@pytest.mark.parametrize('weighted', [False, True])
@pytest.mark.parametrize('count', [0, 1, 256, 700])
def test_chunked_loss_and_gradients_equal_the_plain_ones(count, weighted):
    torch.manual_seed(0)
    hidden, weight = torch.randn(count, 24, dtype=torch.float64), torch.randn(80, 24, dtype=torch.float64)
    targets = torch.randint(0, 80, (count,))
    weights = 1 / torch.rand(count, dtype=torch.float64) if weighted else torch.ones(count)
    ours = architecture.loss_and_gradient
    results = (with_gradients(function, hidden, weight, targets, weights, dtype) for function, dtype in (
        (ours, torch.float64), (ours, torch.float32), (None, torch.float64)))
    for exact, single, plain in zip(*results):
        torch.testing.assert_close(exact, plain, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(single.double(), plain, rtol=1e-4, atol=1e-4)


def test_the_loss_has_one_chunk_in_memory_and_one_backward_pass():
    alive, counts = [], []

    def watched(*arguments):
        loss, gradient = architecture.loss_and_gradient(*arguments)
        alive.append(weakref.ref(gradient))
        counts.append(sum(reference() is not None for reference in alive))
        return loss, gradient
    hidden, weight = torch.randn(1300, 8, requires_grad=True), torch.randn(40, 8, requires_grad=True)
    targets = torch.randint(0, 40, (1300,))
    loss = architecture.ChunkedCrossEntropy.apply(hidden, weight, targets, torch.ones(1300), True, watched)
    assert counts == [1, 1, 1]
    loss.backward(retain_graph=True)
    with pytest.raises(AssertionError, match='one backward pass'):
        loss.backward()


@pytest.mark.slow
def test_the_compiled_loss_equals_pytorchs():
    """In bf16, as on a GPU, against float64 on the same bf16 numbers; new lengths are not compiled again."""
    from torch._dynamo.testing import CompileCounterWithBackend
    counter = CompileCounterWithBackend('inductor')
    compiled = torch.compile(architecture.loss_and_gradient, backend=counter)
    generator = torch.Generator().manual_seed(0)
    for count in (512, 512 + 300, 77, 512 + 8, 200, 1024 + 30, 1):
        hidden, weight = (torch.randn(size, 24, generator=generator).bfloat16() for size in (count, 640))
        targets = torch.randint(0, 640, (count,), generator=generator)
        weights = 1 / (1 - 0.9 * torch.rand(count, generator=generator))
        results = [with_gradients(None, hidden, weight, targets, weights, torch.float64)]
        for function in (architecture.loss_and_gradient, compiled):
            results.append(with_gradients(function, hidden, weight, targets, weights, torch.float32, True))
            with torch.no_grad(), torch.autocast('cpu', torch.bfloat16):
                value = architecture.ChunkedCrossEntropy.apply(
                    hidden.float(), weight.float(), targets, weights, False, function)
            torch.testing.assert_close(value, results[-1][0])
        for exact, *ours in zip(*results):
            assert all((result.double() - exact).norm() < 0.01 * exact.norm() for result in ours)
    # a full chunk, a shorter one behind it, a short first one, one of a single row; each with gradient and
    # without: within torch's limit, behind which it would not be compiled
    assert counter.frame_count == 8 <= torch._dynamo.config.recompile_limit


@pytest.mark.parametrize('weights', [None, torch.tensor([1 / 0.3] * 40 + [1 / 0.8] * 50)])
def test_the_whole_model_in_float64_equals_its_float32(weights):
    """Loss and every gradient of forward() against autograd through the full logits, in float64."""
    model, a = make(), tokens(90)
    targets = torch.where(torch.rand(90, generator=torch.Generator().manual_seed(2)) < 0.4, a, -100)
    loss, count = model(a, [40, 50], targets, causal=False, weights=weights)
    (loss / count).backward()
    exact = make().double()
    logits = exact.logits(exact.model(a, [40, 50], False))
    reference = F.cross_entropy(logits, targets, reduction='none')
    reference = (reference * (1 if weights is None else weights)).sum() / count
    reference.backward()
    assert count == (targets != -100).sum()
    assert abs(loss.item() / count - reference.item()) < 1e-5
    for p, q in zip(model.parameters(), exact.parameters()):
        torch.testing.assert_close(p.grad.double(), q.grad, atol=2e-5, rtol=1e-3)


@pytest.mark.slow
def test_compiled_equals_eager_and_does_not_recompile_for_new_lengths():
    from torch._dynamo.testing import CompileCounter
    model, compiled = make(), make()
    counter = CompileCounter()
    for layer in compiled.model.layers:
        layer.before = torch.compile(layer.before, backend=counter)
        layer.after = torch.compile(layer.after, backend=counter)
    for k, lengths in enumerate(([64], [20, 44], [12, 52], [1] * 64)):
        a = tokens(64, k)
        for causal in (True, False):
            torch.testing.assert_close(compiled(a, lengths, a, causal)[0], model(a, lengths, a, causal)[0])
    assert counter.frame_count == 2  # before and after, shared by the layers


def test_initial_weights_are_keyed_by_name_and_seed():
    def draw(name, seed):
        return architecture.initial_weight(name, (400, 300), seed)
    a = draw('model.x.weight', 0)
    assert torch.equal(a, draw('model.x.weight', 0))
    assert not torch.equal(a, draw('model.y.weight', 0)) and not torch.equal(a, draw('model.x.weight', 1))
    assert abs(a.std().item() - 0.02) < 1e-4 and abs(a.mean().item()) < 2e-4
    norm = architecture.initial_weight('model.layers.0.input_layernorm.weight', (7,), 0)
    assert torch.equal(norm, torch.ones(7))


@pytest.mark.parametrize('changes, message', [
    (dict(hidden_size=0), 'hidden_size must be at least 1, not 0'),
    (dict(num_attention_heads=3), 'hidden_size 64 must be a multiple'),
    (dict(head_dim=7), 'head_dim must be even'),
    (dict(rope_theta=float('nan')), 'rope_theta must be'),
    (dict(rope_scaling=(8.0, 4.0, 1.0, 64)), 'rope_scaling must be'),
    (dict(vocab_size=True), 'vocab_size takes int, not bool')])
def test_sizes_that_make_no_model_are_refused_wherever_they_are_constructed(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SIZES, **changes)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs CUDA')
@pytest.mark.parametrize('causal', [True, False])
@pytest.mark.parametrize('kv_heads', [2, 6, 18])
def test_varlen_equals_the_loop(causal, kv_heads):
    torch.manual_seed(0)
    lengths = [12, 2036, 700, 1348, 1, 99]
    q, k, v = (torch.randn(sum(lengths), heads, 64, device='cuda', dtype=torch.bfloat16, requires_grad=True)
               for heads in (18, kv_heads, kv_heads))
    ends = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32).cuda()
    results = []
    for out in (architecture.attend(q, k, v, lengths, ends, causal),
                architecture.attend_loop(q, k, v, lengths, causal)):
        results.append((out, *torch.autograd.grad(out.float().square().sum(), (q, k, v))))
    for a, b in zip(*results):
        assert (a - b).float().norm() / b.float().norm() < 1e-2

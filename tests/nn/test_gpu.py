"""Layers on a CUDA device: the numbers of the CPU's reference, autocast, and a step as a CUDA graph."""

from __future__ import annotations

import pytest
import torch
from dropout_twin import defined_mask
from layer_cases import CASES, inputs, make_layer
from torch import Tensor

import rrnn.nn.layer
from rrnn.backends import use_backend
from rrnn.nn import detach
from rrnn.nn.dropout import Drops
from rrnn.nn.product import in_one_node, weight_gradients

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", CASES)
def test_equals_the_cpu(name: str) -> None:
    layer = make_layer(name, num_layers=2, bidirectional=True, skip="highway", dtype=torch.float32)
    x = inputs(33, 3, 4, dtype=torch.float32)
    mask = inputs(33, 3, seed=1) > -1
    with use_backend("reference"):
        expected, _ = layer(x, mask=mask)
        grads = torch.autograd.grad((expected**2).sum(), list(layer.parameters()))
    layer.cuda()
    out, state = layer(x.cuda(), mask=mask)  # masks and lengths may stay on the CPU
    assert out.is_cuda and state[0].states[0].is_cuda
    torch.testing.assert_close(out.cpu(), expected, rtol=1e-4, atol=1e-4)
    found = torch.autograd.grad((out**2).sum(), list(layer.parameters()))
    torch.testing.assert_close([g.cpu() for g in found], list(grads), rtol=1e-3, atol=1e-3)
    whole, _ = layer(x.cuda(), lengths=[33, 20, 1])
    assert whole.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype: torch.dtype) -> None:
    layer = make_layer("mixed", dtype=torch.float32).cuda()
    x = inputs(20, 3, 4, dtype=torch.float32).cuda()
    exact, _ = layer(x)
    with torch.autocast("cuda", dtype=dtype):
        out, state = layer(x)
    assert out.dtype == dtype and all(s.dtype == torch.float32 for s in state[0].states)
    torch.testing.assert_close(out.float(), exact, rtol=0.1, atol=0.1)
    out.float().sum().backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_product_in_the_cells_node(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """And every launch after the first past Triton's launcher: three calls, the same bits."""
    layer = make_layer("F", 64, 64, dtype=dtype).cuda()
    x = inputs(20, 3, 64, dtype=dtype).cuda().requires_grad_()
    assert in_one_node(x, layer.layers[0].weight)
    with torch.no_grad():
        assert not in_one_node(x, layer.layers[0].weight)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert not in_one_node(x, layer.layers[0].weight)
    with weight_gradients(lambda f, *tensors: f(*tensors)):
        assert not in_one_node(x, layer.layers[0].weight)

    def run() -> list[Tensor]:
        out, state = layer(x)
        return [
            out,
            *state[0].states,
            *torch.autograd.grad(out.float().square().sum(), [x, *layer.parameters()]),
        ]

    first, second, third = run(), run(), run()
    assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(first, second, third, strict=True))
    monkeypatch.setattr(rrnn.nn.layer, "in_one_node", lambda *_: False)
    torch.testing.assert_close(run(), first, rtol=1e-2, atol=1e-2)


@torch.no_grad()
def test_a_step_as_a_cuda_graph() -> None:
    layer = make_layer("F", 4, 64, dtype=torch.float32).cuda().eval()
    x = inputs(6, 2, 4, dtype=torch.float32).cuda()
    expected, _ = layer(x)
    x_t, state = x[0].clone(), detach(layer.init_state(2))
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        layer.step(x_t, state)  # compiles what is to be compiled
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, after = layer.step(x_t, state)
        for old, new in zip(state[0].states, after[0].states, strict=True):
            old.copy_(new)
    for s, first in zip(state[0].states, layer.init_state(2)[0].states, strict=True):
        s.copy_(first)
    for t in range(6):
        x_t.copy_(x[t])
        graph.replay()
        torch.testing.assert_close(out, expected[t])


# ---- dropout ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(1, 1, 1), (35, 32, 624), (7, 3, 1001)])
@pytest.mark.parametrize(("each", "shared"), [(0.3, 0.0), (0.0, 0.6), (0.5, 0.2)])
def test_masks_are_as_defined(
    shape: tuple[int, int, int], each: float, shared: float, dtype: torch.dtype
) -> None:
    x = inputs(*shape, dtype=torch.float32).to("cuda", dtype)
    apart = torch.stack([x, x], 2)[:, :, 1]  # each sequence's units by themselves
    for given in (x, apart):
        given.requires_grad_()
        drops = Drops()
        out = drops(given, each, shared)
        mask = defined_mask(shape, each, shared, int(drops._seed(x.device)), 1)
        expected = (given.detach().cpu().float() * mask).to(dtype)
        torch.testing.assert_close(out.cpu(), expected)
        (grad,) = torch.autograd.grad(out, given, given.detach())
        torch.testing.assert_close(grad.cpu(), expected)


def test_replays_draw_the_masks_of_steps() -> None:
    """New ones each time, those that the same steps would have drawn without a graph; a seed brings them again."""
    x, out = torch.ones(35, 32, 624, dtype=torch.bfloat16, device="cuda"), torch.empty(2, 35, 32, 624).cuda()

    def step() -> None:
        drops = Drops()
        out[0], out[1] = drops(x, 0.3, 0.2), drops(x, 0.5)

    def run(function: object) -> list[Tensor]:
        torch.cuda.manual_seed(1)
        found = []
        for _ in range(3):
            function()  # pyright: ignore[reportCallIssue]
            found.append(out.clone())
        return found

    eager = run(step)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    replayed, again = run(graph.replay), run(graph.replay)
    assert not torch.equal(replayed[0], replayed[1]) and not torch.equal(replayed[1], replayed[2])
    assert not torch.equal(replayed[0][0], replayed[0][1])
    for a, b, c in zip(eager, replayed, again, strict=True):
        assert torch.equal(a, b) and torch.equal(b, c)


def test_a_generator_registered_with_a_graph() -> None:
    x, generator = torch.ones(8, 4, 64, device="cuda"), torch.Generator("cuda")
    Drops(generator)(x, 0.5)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        out = Drops(generator)(x, 0.5)
    generator.manual_seed(3)
    eager = [Drops(generator)(x, 0.5) for _ in range(2)]
    generator.manual_seed(3)
    for expected in eager:
        graph.replay()
        assert torch.equal(out, expected)


@pytest.mark.parametrize("shape", [(1, 2, 2**31 + 256), (2, 2, 2**30 + 128)], ids=["wide", "long"])
def test_dropout_beyond_32_bits(shape: tuple[int, int, int]) -> None:
    """Of places in the first case, of addresses in both."""
    count = shape[0] * shape[1] * shape[2]
    if torch.cuda.mem_get_info()[0] < 5 * count:
        pytest.skip("needs more memory")
    drops = Drops()
    out = drops(torch.ones(shape, dtype=torch.bfloat16, device="cuda"), 0.25, 0.5)
    key = int(drops._seed(out.device))
    for place in (0, 2**31 - 64, shape[1] * shape[2] - 128):
        found = out.view(shape[0], -1)[:, place : place + 128]
        mask = defined_mask((shape[0], 1, 128), 0.25, 0.5, key, 1, place)
        torch.testing.assert_close(found.float().cpu(), mask[:, 0], rtol=0.01, atol=0)

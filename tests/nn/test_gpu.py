"""Layers on a CUDA device: the numbers of the CPU's reference, autocast, and a step as a CUDA graph."""

from __future__ import annotations

import pytest
import torch
from layer_cases import CASES, inputs, make_layer

from rrnn.backends import use_backend
from rrnn.nn import detach

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

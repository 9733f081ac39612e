"""Packed sequences on a GPU: equal to separate calls, the same bits on every run, and no wait for the device."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from layer_cases import MECHANICS_LAYERS, inputs, make_layer
from packed_cases import compare, offsets_of, tensors
from torch import Tensor
from zoo.test_wide import build

from rrnn.nn import RationalRNN

pytestmark = pytest.mark.gpu

LENGTHS = (3, 0, 300, 1, 129, 0, 64, 17)


def same_weights(layer: RationalRNN, exact: RationalRNN) -> tuple[RationalRNN, RationalRNN]:
    exact.load_state_dict(layer.state_dict())
    return layer.cuda(), exact


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("name", [*MECHANICS_LAYERS, "windowed"])
def test_equal_to_separate_calls(name: str, both: bool) -> None:
    options: dict[str, Any] = {"bidirectional": True, "num_layers": 2, "skip": "highway"} if both else {}
    layer, exact = same_weights(
        make_layer(name, 70, 70, dtype=torch.float32, **options), make_layer(name, 70, 70, **options)
    )
    for own in (layer, exact):
        with torch.no_grad():
            for p in own.parameters():
                p.mul_(0.2)
    flips = 1e-3 if any(cell.semiring.selective for cell, _ in layer.cells) else 0.0
    compare(layer, LENGTHS, "triton", slow_backend="native", exact=exact, tolerance=2e-3, flips=flips)


@pytest.mark.parametrize("name", ["Mamba", "GLA", "Mamba-2", "S4D", "LRU"])
def test_families(name: str) -> None:
    layer, exact = same_weights(build(name, 16, 64, dtype=torch.float32), build(name, 16, 64))
    compare(layer, LENGTHS, "triton", slow_backend="native", exact=exact, tolerance=3e-3)


@pytest.mark.parametrize("name", ["F", "GLA"])
def test_half_precision_and_the_same_bits(name: str) -> None:
    made = build("GLA", 16, 256, dtype=torch.bfloat16) if name == "GLA" else None
    layer = (made or make_layer(name, 256, 256, dtype=torch.bfloat16)).cuda()
    offsets = offsets_of(LENGTHS).cuda()
    x = inputs(sum(LENGTHS), 256, dtype=torch.bfloat16).cuda().requires_grad_()

    def run() -> list[Tensor]:
        out, state = layer(x, cu_seqlens=offsets)
        grads = torch.autograd.grad(out.float().square().sum(), [x, *layer.parameters()])
        return [out, *tensors(state), *grads]

    first, second, third = run(), run(), run()
    assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(first, second, third, strict=True))
    begin = 3
    alone, _ = layer(x[begin : begin + 300].unsqueeze(1))
    error = first[0][begin : begin + 300].float() - alone[:, 0].float()
    assert error.norm() < 0.01 * alone.float().norm()  # bf16 has eight bits


NAMES = ["F", "B-max-plus", "windowed", "GLA"]
"""Cells over two semirings, one with windows, and one with families, which the matrix backend runs if it can."""


def gpu_layer(name: str, **options: Any) -> RationalRNN:
    """Return a layer of 64 units; options are those of cells without families."""
    if name == "GLA":
        return build(name, 16, 64, dtype=torch.float32).cuda()
    return make_layer(name, 64, 64, dtype=torch.float32, **options).cuda()


def packed_gradients(layer: RationalRNN, x: Tensor, offsets: Tensor) -> list[Tensor]:
    """Return the output, the final states, and the gradients of the input and of every parameter."""
    out, state = layer(x, cu_seqlens=offsets)
    loss = out.float().square().sum() + sum(t.float().nan_to_num(0, 0, 0).sum() for t in tensors(state))
    wanted = [x, *(p for p in layer.parameters() if p.requires_grad)]
    return [out, *tensors(state), *torch.autograd.grad(loss, wanted)]


@pytest.mark.parametrize("name", NAMES)
def test_no_call_waits_for_the_device(name: str) -> None:
    layer = gpu_layer(name, num_layers=2, bidirectional=True, recurrent_dropout=0.2)
    offsets, x = offsets_of(LENGTHS).cuda(), inputs(sum(LENGTHS), 64, dtype=torch.float32).cuda()
    x.requires_grad_()
    packed_gradients(layer, x, offsets)  # compiles what is to be compiled
    torch.cuda.set_sync_debug_mode("error")
    try:
        packed_gradients(layer, x, offsets)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_wait_would_be_seen() -> None:
    """What the test above relies on."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        with pytest.raises(RuntimeError, match="synchroniz"):
            torch.ones(1, device="cuda").item()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("name", NAMES)
def test_a_cuda_graph_of_forward_and_backward_takes_other_numbers_and_offsets(name: str) -> None:
    layer = gpu_layer(name)
    x, offsets = inputs(200, 64, dtype=torch.float32).cuda(), torch.tensor([0, 150, 150, 200]).cuda()
    x.requires_grad_()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            packed_gradients(layer, x, offsets)  # compiles what is to be compiled
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = packed_gradients(layer, x, offsets)
    for seed, values in enumerate(([0, 150, 150, 200], [0, 7, 80, 200], [0, 0, 0, 200], [0, 64, 128, 200])):
        with torch.no_grad():
            x.copy_(inputs(200, 64, dtype=torch.float32, seed=seed + 5))
        offsets.copy_(torch.tensor(values))
        graph.replay()
        found = [t.clone() for t in captured]
        for ours, theirs in zip(found, packed_gradients(layer, x, offsets), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_offsets_that_nobody_checked_stay_inside() -> None:
    layer, x = make_layer("F", 64, 64, dtype=torch.float32).cuda(), torch.randn(100, 64, device="cuda")
    for values in ([0, 500], [-70, 20, 100], [0, 90, 10, 100], [5, 50]):
        out, _ = layer(x, cu_seqlens=torch.tensor(values).cuda())
        out.sum().backward()
    torch.cuda.synchronize()


def test_offsets_on_another_device() -> None:
    layer, x = make_layer("F", 4, 64, dtype=torch.float32).cuda(), torch.randn(9, 4, device="cuda")
    here, there = (
        layer(x, cu_seqlens=at)[0] for at in (torch.tensor([0, 4, 9]), torch.tensor([0, 4, 9]).cuda())
    )
    assert torch.equal(here, there)

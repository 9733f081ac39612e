"""Clip, step, decay, averages: against torch's own optimisers, and the kernels against torch ops."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from rrnn.tasks import update as layout
from rrnn.tasks import update as module
from rrnn.tasks.update import Averages, FlatWeights, Updater

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def several_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "SMALL", 20)
    monkeypatch.setattr(module, "PARTIALS", 2)  # few enough for the interpreter, and each has several blocks
    monkeypatch.setattr(module, "PROGRAMS", 3)
    monkeypatch.setattr(module, "BLOCK", 16)


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.matrix = nn.Parameter(torch.randn(9, 11))
        self.vector = nn.Parameter(torch.randn(7))
        self.other = nn.Parameter(torch.randn(3, 2))


def gradients(step: int, model: nn.Module, size: float) -> list[Tensor]:
    torch.manual_seed(step)
    return [size * torch.randn_like(p) for p in model.parameters()]


def train(
    model: nn.Module,
    kernels: bool,
    size: float,
    adam: bool = False,
    low: torch.dtype | None = None,
    emas: tuple[float, ...] = (),
    decay: float = 0.02,
    l2: float = 0.0,
) -> Updater:
    averages = Averages(emas, bool(emas), CPU)
    weights = FlatWeights(model, low=low, averages=len(averages), adam=adam)
    if kernels:
        pytest.importorskip("triton")
    updater = Updater(weights.segments, averages, adam=adam, clip=5.0, l2=l2, device=CPU, kernels=kernels)
    updater.set_rate(0.3, 0.3 * decay)
    names = [name for name, _ in model.named_parameters()]
    for step in range(4):
        updater.step(weights.gather(dict(zip(names, gradients(step, model, size), strict=True))))
        if emas and step == 1:
            averages.start_tail()
    return updater


@pytest.mark.parametrize("kernels", [False, True], ids=["torch", "kernels"])
@pytest.mark.parametrize("size", [0.01, 10.0], ids=["within the norm", "clipped"])
@pytest.mark.parametrize("adam", [False, True], ids=["sgd", "adam"])
def test_against_torchs_optimisers(adam: bool, size: float, kernels: bool) -> None:
    ours, theirs = Small(), Small()
    # decay is a share a step; AdamW's is a share per unit of the rate, and SGD's L2 the same without moments
    make = torch.optim.AdamW if adam else torch.optim.SGD
    optimiser = make(theirs.parameters(), lr=0.3, weight_decay=0.02 if adam else 0.0)
    train(ours, kernels, size, adam)
    for step in range(4):
        for parameter, gradient in zip(theirs.parameters(), gradients(step, theirs, size), strict=True):
            parameter.grad = gradient
        nn.utils.clip_grad_norm_(theirs.parameters(), 5.0)
        if not adam:
            with torch.no_grad():
                for parameter in theirs.parameters():
                    parameter.mul_(1 - 0.3 * 0.02)
        optimiser.step()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kernels", [False, True], ids=["torch", "kernels"])
def test_l2_is_adams(kernels: bool) -> None:
    ours, theirs = Small(), Small()
    optimiser = torch.optim.Adam(theirs.parameters(), lr=0.3, weight_decay=0.5)
    train(ours, kernels, 10.0, adam=True, decay=0.0, l2=0.5)
    for step in range(4):
        for parameter, gradient in zip(theirs.parameters(), gradients(step, theirs, 10.0), strict=True):
            parameter.grad = gradient
        nn.utils.clip_grad_norm_(theirs.parameters(), 5.0)
        optimiser.step()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("adam", [False, True], ids=["sgd", "adam"])
def test_kernels_against_torch_ops(adam: bool) -> None:
    a, b = (
        train(Small(), kernels, 1.0, adam, torch.bfloat16, (0.9, 0.5)).segments for kernels in (False, True)
    )
    assert [s.low is None for s in a] == [False, False, True]  # vectors are never rounded
    for x, y in zip(a, b, strict=True):
        torch.testing.assert_close(x.flat, y.flat, rtol=1e-5, atol=2e-5)
        torch.testing.assert_close(x.averages, y.averages, rtol=1e-5, atol=2e-5)
        torch.testing.assert_close(x.moments, y.moments, rtol=1e-5, atol=1e-6)
        if x.low is not None and y.low is not None:
            assert torch.equal(x.low, x.flat.bfloat16())
            torch.testing.assert_close(y.low.float(), y.flat, rtol=2**-7, atol=0)  # interpreted, it is cut


class Sizes(nn.Module):
    """Segments of these sizes: matrices of at least 20 numbers, each of which has its own."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.parts = nn.ParameterList(nn.Parameter(torch.randn(1, n)) for n in sizes)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(33,), (20,), (64, 65, 200, 31, 97), (400, 21, 22)], ids=str)
@pytest.mark.parametrize("programs", [1, 4, 64])
def test_blocks_are_dealt_out_once(
    sizes: tuple[int, ...], programs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients of two dtypes, fewer and more programs than blocks: the norm and every weight are torch's."""
    pytest.importorskip("triton")
    monkeypatch.setattr(module, "PARTIALS", programs)
    monkeypatch.setattr(module, "PROGRAMS", programs)
    grads = [torch.randn(n).to(torch.bfloat16 if i % 2 else torch.float32) for i, n in enumerate(sizes)]
    done = []
    for kernels in (False, True):
        weights = FlatWeights(Sizes(sizes))
        assert [len(segment.flat) for segment in weights.segments] == list(sizes)
        updater = Updater(weights.segments, Averages((), False, CPU), clip=0.5, device=CPU, kernels=kernels)
        updater.set_rate(0.1, 0.01)
        updater.step([g.clone() for g in grads])
        done.append((weights, updater))
    (expected, _), (ours, updater) = done
    norm = sum(g.double().square().sum() for g in grads)
    torch.testing.assert_close(updater._partial.double().sum(), norm, rtol=1e-5, atol=1e-5)
    for x, y in zip(expected.segments, ours.segments, strict=True):
        torch.testing.assert_close(y.flat, x.flat, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("kernels", [False, True], ids=["torch", "kernels"])
def test_averages_follow_their_rule(kernels: bool, every: int) -> None:
    """Against the weights of each step that they look at, kept."""
    if kernels:
        pytest.importorskip("triton")
    model, seen = Small(), []
    averages = Averages((0.6,), True, CPU, every)
    weights = FlatWeights(model, averages=2)
    updater = Updater(weights.segments, averages, device=CPU, kernels=kernels)
    updater.set_rate(0.1, 0.0)
    for step in range(6 * every + every // 2):  # the last steps are none that they look at
        if step == 3 * every + every // 2:  # between two looks
            averages.start_tail()
        updater.step([torch.randn_like(s.flat) for s in weights.segments])
        if (step + 1) % every == 0:
            seen.append(weights.segments[0].flat.clone())
    ema, tail = weights.segments[0].averages
    expected = seen[0]
    for n, value in enumerate(seen[1:], 2):
        share = max(1 - 0.6**every, 1 / n)
        expected = expected + share * (value - expected)
    torch.testing.assert_close(ema, expected)
    torch.testing.assert_close(tail, torch.stack(seen[3:]).mean(0))


def test_what_there_is_to_evaluate() -> None:
    averages = Averages((0.9, 0.99), True, CPU)
    assert averages.ready == {"last": None, "ema0.9": 0, "ema0.99": 1}
    averages.start_tail()
    assert averages.ready == {"last": None, "ema0.9": 0, "ema0.99": 1, "tail": 2}


def test_parameters_become_views_and_averages_stand_in() -> None:
    model = Small()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    weights = FlatWeights(model, averages=1)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name])
    for segment in weights.segments:
        segment.averages.fill_(2.0)
    with weights.averaged(None):
        assert torch.equal(model.vector, before["vector"])
    with pytest.raises(KeyError), weights.averaged(0):
        assert bool((model.vector == 2).all())
        raise KeyError
    assert torch.equal(model.vector, before["vector"])

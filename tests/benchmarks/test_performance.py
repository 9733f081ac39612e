"""Guard the speed of the CPU's kernels and layers: they may not become half as fast.

Times are the process's own CPU time on one thread, the least of many rounds in which both sides take turns, so that a
busy machine changes the ratios little. The floors are two thirds of what was measured on an AMD EPYC under load: noise
stays above them, and half the speed does not reach them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
import torch

from rrnn.backends.native.compiler import find_compiler
from rrnn.cli.bench import best_of
from rrnn.nn import RationalRNN
from rrnn.zoo import get_cell

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(isinstance(find_compiler(), str), reason="needs a C compiler"),
]

SHAPE = 64, 8, 256  # in the caches: the speed of memory is the machine's, not ours
KERNELS = {  # against eager torch: forward, training
    "B": (5.0, 2.9),
    "B max-plus": (4.1, 4.6),
    "C": (4.6, 4.2),
    "F": (4.8, 4.2),
    "log-B": (4.1, 3.4),
}
LAYERS = {"B": 2.2, "F": 1.2}  # against nn.LSTM with as many units: training


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def times_as_fast(ours: Callable[[], object], theirs: Callable[[], object]) -> float:
    best = best_of({"ours": ours, "theirs": theirs}, 25, 2, clock=time.process_time)
    return best["theirs"] / best["ours"]


def best_ratio(ours: Callable[[], object], theirs: Callable[[], object], floor: float) -> float:
    """Return how many times as fast ours is; a ratio below the floor is measured again, twice at most."""
    ratio = 0.0
    for _ in range(3):
        ratio = max(ratio, times_as_fast(ours, theirs))
        if ratio >= floor:
            break
    return ratio


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_against_eager_torch(name: str) -> None:
    from kernels import Bench
    from rivals import cases

    (case,) = (case for case in cases() if case.name == name)
    bench = Bench.make(case, SHAPE, "cpu", torch.float32)
    for (which, run, _), floor in zip(bench.passes(), KERNELS[name], strict=True):
        ratio = best_ratio(lambda run=run: run(bench.ours), lambda run=run: run(bench.eager), floor)
        assert ratio >= floor, f"{name}, {which}: {ratio:.2f} times as fast as eager torch, at least {floor}"


def test_half_the_speed_is_noticed() -> None:
    from kernels import Bench
    from rivals import cases

    case = cases()[0]
    bench = Bench.make(case, SHAPE, "cpu", torch.float32)
    _, run, _ = next(bench.passes())

    def twice() -> None:
        run(bench.ours)
        run(bench.ours)

    assert min(times_as_fast(twice, lambda: run(bench.eager)) for _ in range(3)) < KERNELS[case.name][0]


@pytest.mark.parametrize("name", LAYERS)
def test_layers_against_lstm(name: str) -> None:
    steps, batch, units = 35, 16, 256
    x = torch.randn(steps, batch, units)
    grad = torch.randn_like(x)
    layers = RationalRNN(get_cell(name), units, units), torch.nn.LSTM(units, units)

    def step(layer: torch.nn.Module) -> object:
        return torch.autograd.grad(layer(x)[0], list(layer.parameters()), grad)

    ratio = best_ratio(lambda: step(layers[0]), lambda: step(layers[1]), LAYERS[name])
    assert ratio >= LAYERS[name], f"{name}: {ratio:.2f} times as fast as nn.LSTM, at least {LAYERS[name]}"

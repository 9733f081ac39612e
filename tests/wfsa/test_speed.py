"""The promise on speed, in time of the processor, so that a busy machine does not break it."""

from __future__ import annotations

import random
import time

import pytest
import torch

from rrnn.wfsa import WFSA

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("density", [1.0, 0.05])
@pytest.mark.parametrize(("semiring", "seconds"), [("real", 0.3), ("max-plus", 0.3), ("log", 0.6)])
def test_a_thousand_strings(semiring: str, seconds: float, density: float) -> None:
    """1,000 strings of mean length 20 on 60 states and 20 symbols. `benchmarks/wfsa.py` has the whole table."""
    rng = torch.Generator().manual_seed(0)
    arcs = (torch.rand(60, 20, 60, generator=rng) < density).nonzero()
    weight = torch.rand(len(arcs), generator=rng, dtype=torch.float64) / 60
    ends = torch.ones(60, dtype=torch.float64)
    if semiring != "real":
        weight, ends = weight.log(), ends.log()
    columns = (arcs[:, i].contiguous() for i in range(3))
    machine = WFSA.from_tensors(semiring, range(20), range(60), *columns, weight, ends, ends)
    draw = random.Random(0)
    strings = [draw.choices(range(20), k=draw.randint(0, 40)) for _ in range(1000)]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        times = []
        for _ in range(3):
            began = time.process_time()
            machine.score(strings)
            times.append(time.process_time() - began)
    finally:
        torch.set_num_threads(threads)
    assert min(times) < seconds


@pytest.mark.parametrize("semiring", ["real", "max-plus", "log"])
def test_cost_is_linear_in_the_total_length(semiring: str) -> None:
    """Eight times the symbols, as more strings or as longer ones, cost about eight times as much: where the cost were
    quadratic, it would be sixty-four times."""
    draw = random.Random(0)
    columns = [torch.randint(n, (240,), generator=torch.Generator().manual_seed(n)) for n in (30, 10, 29)]
    columns = list(torch.stack(columns).unique(dim=1))
    weight, ends = -torch.rand(columns[0].numel(), dtype=torch.float64), torch.zeros(30, dtype=torch.float64)
    if semiring == "real":
        weight, ends = weight.exp() / 10, ends.exp()
    machine = WFSA.from_tensors(semiring, range(10), range(30), *columns, weight, ends, ends)

    def seconds(count: int, length: int) -> float:
        strings = [draw.choices(range(10), k=length) for _ in range(count)]
        times = []
        for _ in range(5):
            began = time.process_time()
            machine.score(strings)
            times.append(time.process_time() - began)
        return min(times)

    seconds(10, 10)
    once = seconds(200, 20)
    assert seconds(1600, 20) < 16 * once
    assert seconds(200, 160) < 16 * once

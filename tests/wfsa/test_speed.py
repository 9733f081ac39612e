"""The promise on speed, in time of the processor, so that a busy machine does not break it."""

from __future__ import annotations

import random
import time

import pytest
import torch

from rrnn.wfsa import WFSA


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

"""Arcs from each state of a family to each on a GPU, against the reference."""

from __future__ import annotations

import pytest
import torch
from automata.test_family_rules import CELLS, RINGS
from backends.test_pairs import layer, results, square
from zoo.test_wide import close

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("semiring", RINGS)
@pytest.mark.parametrize("name", CELLS)
def test_equal_to_the_reference(name: str, semiring: str) -> None:
    x, cell = torch.randn(20, 3, 5, dtype=torch.float64), CELLS[name](semiring)
    found = results("triton", layer(cell, 26, torch.float32).cuda(), x.float().cuda(), lengths=[20, 7, 0])
    expected = results("reference", layer(cell, 26), x, lengths=[20, 7, 0])
    assert all(close(a.double().cpu(), b, 1e-3) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("size", [16, 64, 100])
def test_larger_matrices(size: int) -> None:
    x = torch.randn(6, 2, 5, dtype=torch.float64) * 0.1
    found, expected = (
        results(backend, rnn, v)
        for backend, rnn, v in (
            ("triton", layer(square(size), 3, torch.float32, heads=1).cuda(), x.float().cuda()),
            ("reference", layer(square(size), 3, heads=1), x),
        )
    )
    assert all(close(a.double().cpu(), b, 1e-3) for a, b in zip(found, expected, strict=True))

"""The paper's definition of a rational recurrence, as a test: any automaton, any semiring. The compiled recurrence's
score at every step is the score that the automaton, with the same numbers on its arcs, gives to the prefix."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from program_twin import run
from runnable_cell_strategies import SYMBOLS, cells, numbers_for
from semiring_elements import same, size
from torch import Tensor

from rrnn.ir import lower
from rrnn.semirings import SEMIRINGS
from rrnn.wfsa import WFSA
from rrnn.wfsa.instantiate import instantiate


def _norm(weights: Tensor) -> Tensor:
    """Complex weights as real ones that are at least as large."""
    total = weights.abs().sum(-1)
    return torch.stack([total, torch.zeros_like(total)], -1)


def _positive(weights: Tensor) -> Tensor:
    sign, log = weights.unbind(-1)
    return torch.stack([sign.abs(), log], -1)


ABSOLUTE = {"real": torch.abs, "expectation": torch.abs, "complex": _norm, "signed-log": _positive}


def bounds(machine: WFSA, string: str) -> list[Any]:
    """Return per prefix what its score is measured by: where paths cancel and lose digits, the score under absolute
    weights."""
    ring = machine.semiring
    assert ring.cancels == (ring.name in ABSOLUTE)
    absolute = machine.map_weights(ABSOLUTE[ring.name]) if ring.cancels else machine
    return ring.numbers(absolute.prefix_scores(string))


def agrees(machine: WFSA, score: Any, expected: Any, bound: Any) -> bool:
    ring = machine.semiring
    if ring.name == "signed-log":
        log = bound[1] if math.isfinite(bound[1]) else 0.0
        return same(ring, score, expected, 1e-10 * max(1.0, abs(log)), log)
    if ring.cancels:
        return same(ring, score, expected, 1e-10 * size(ring, bound))
    exact = ring.name in ("boolean", "counting")
    return same(ring, score, expected, 0.0 if exact else 1e-10 * max(1.0, abs(bound)))


@pytest.mark.parametrize("semiring", SEMIRINGS)
@given(data=st.data())
def test_every_prefix_has_the_score_of_the_automaton(semiring: str, data: st.DataObject) -> None:
    cell = data.draw(cells(semiring))
    numbers = data.draw(numbers_for(cell))
    string = data.draw(st.text(SYMBOLS, min_size=1, max_size=6))
    machine = instantiate(cell, *numbers.for_wfsa())
    steps = run(lower(cell).program, numbers, string)
    expected = cell.semiring.numbers(machine.prefix_scores(string))[1:]
    for step, score, bound in zip(steps, expected, bounds(machine, string)[1:], strict=True):
        assert agrees(machine, step.score, score, bound)


@pytest.mark.parametrize("epsilon", ["none", "acyclic", "limited"])
@pytest.mark.parametrize("semiring", SEMIRINGS)
@given(data=st.data())
def test_against_paths_one_by_one(semiring: str, epsilon: str, data: st.DataObject) -> None:
    # The oracle's oracle: no Forward algorithm, no ε-closure, only the definition of a path's score.
    cell = data.draw(cells(semiring, states=3, epsilon=epsilon))
    numbers = data.draw(numbers_for(cell, "ab"))
    string = data.draw(st.text("ab", min_size=1, max_size=3))
    machine = instantiate(cell, *numbers.for_wfsa())
    score = run(lower(cell).program, numbers, string)[-1].score
    assert agrees(machine, score, machine.score_by_paths(string), bounds(machine, string)[-1])

"""The paper's definition of a rational recurrence, as a test: any automaton, any semiring. The compiled recurrence's
score at every step is the score that the automaton, with the same numbers on its arcs, gives to the prefix."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stepping import run
from strategies import SYMBOLS, cells, numbers_for

from rrnn.ir import lower
from rrnn.semirings import SEMIRINGS
from rrnn.wfsa import WFSA
from rrnn.wfsa.instantiate import instantiate


def tolerances(machine: WFSA, string: str) -> list[float]:
    """1e-10 of the score under absolute weights: what cancels over the reals may lose digits."""
    if machine.semiring.name == "real":
        return [1e-10 * x for x in machine.map_weights(torch.abs).prefix_scores(string).tolist()]
    if machine.semiring.name in ("boolean", "counting"):
        return [0.0] * (len(string) + 1)
    return [1e-10 * max(1.0, abs(x)) for x in machine.prefix_scores(string).tolist()]


@pytest.mark.parametrize("semiring", SEMIRINGS)
@given(data=st.data())
def test_every_prefix_has_the_score_of_the_automaton(semiring: str, data: st.DataObject) -> None:
    cell = data.draw(cells(semiring))
    numbers = data.draw(numbers_for(cell))
    string = data.draw(st.text(SYMBOLS, min_size=1, max_size=6))
    machine = instantiate(cell, *numbers.for_wfsa())
    steps = run(lower(cell).program, numbers, string)
    expected = machine.prefix_scores(string).tolist()[1:]
    for step, score, tolerance in zip(steps, expected, tolerances(machine, string)[1:], strict=True):
        assert step.score == score or abs(step.score - score) <= tolerance


@pytest.mark.parametrize("epsilon", ["none", "acyclic", "limited"])
@given(data=st.data())
def test_against_paths_one_by_one(epsilon: str, data: st.DataObject) -> None:
    # The oracle's oracle: no Forward algorithm, no ε-closure, only the definition of a path's score.
    cell = data.draw(cells(states=3, epsilon=epsilon))
    numbers = data.draw(numbers_for(cell, "ab"))
    string = data.draw(st.text("ab", min_size=1, max_size=3))
    machine = instantiate(cell, *numbers.for_wfsa())
    score = run(lower(cell).program, numbers, string)[-1].score
    expected = machine.score_by_paths(string)
    assert score == expected or abs(score - expected) <= tolerances(machine, string)[-1]

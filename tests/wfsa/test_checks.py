"""Bad input: each mistake is an `RRNNError` that says the rule, what came and the fix."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from rrnn.errors import AutomatonError, RRNNError, SemiringError, ShapeError
from rrnn.wfsa import EPSILON, WFSA

GOOD: dict[str, Any] = {"alphabet": "ab", "arcs": [(0, "a", 1, 0.5)], "initial": {0: 1.0}, "final": {1: 1.0}}


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"alphabet": ""}, AutomatonError, "at least one symbol"),
        ({"alphabet": "aa"}, AutomatonError, "listed once; 'a' is listed twice"),
        ({"alphabet": ["a", EPSILON]}, AutomatonError, "ε cannot be a member"),
        ({"alphabet": [["a"]]}, AutomatonError, "hashable"),
        ({"alphabet": 3}, AutomatonError, "sequence of names"),
        ({"states": [0]}, AutomatonError, "an arc's target must be one of the states 0; got 1"),
        ({"states": [0, 1, 0]}, AutomatonError, "each state must be listed once"),
        ({"states": ["start", 0, 1], "initial": {"strat": 1}}, AutomatonError, "Did you mean 'start'"),
        (
            {"states": [0, 1], "final": {2: 1.0}},
            AutomatonError,
            "a final state must be one of the states 0, 1; got 2",
        ),
        ({"arcs": [(0, "c", 1, 1.0)]}, AutomatonError, r"alphabet 'a', 'b', or EPSILON; .* has 'c'"),
        ({"arcs": [(0, None, 1, 1.0)]}, AutomatonError, "or EPSILON"),
        ({"arcs": [(0, ["a"], 1, 1.0)]}, AutomatonError, "or EPSILON"),
        ({"arcs": [([0], "a", 1, 1.0)]}, AutomatonError, "hashable"),
        ({"arcs": [(0, "a", 1)]}, AutomatonError, r"arc number 0 is \(0, 'a', 1\)"),
        ({"arcs": {0: 1}}, AutomatonError, "got dict"),
        (
            {"arcs": [(0, "a", 1, 1), (0, "a", 1, 2)]},
            AutomatonError,
            r"0 --a--> 1 is given twice.*merge='plus'",
        ),
        ({"merge": "min"}, AutomatonError, "merge must be None"),
        ({"initial": {}}, AutomatonError, "needs an initial state"),
        ({"initial": {0: 0.0}}, AutomatonError, "needs an initial state"),
        ({"initial": [0]}, AutomatonError, "mapping from state to weight"),
        ({"final": {}}, AutomatonError, "needs a final state"),
        ({"final": {1: 0}}, AutomatonError, "needs a final state"),
        ({"final": {2: 1}}, AutomatonError, "must be reachable.*from 0 none of 2 is"),
        ({"arcs": [(1, "a", 0, 0.5)]}, AutomatonError, "must be reachable"),
        ({"arcs": [(0, "a", 1, math.nan)]}, SemiringError, "weight of the arc 0 --a--> 1 nan is outside"),
        ({"arcs": [(0, "a", 1, math.inf)]}, SemiringError, "outside the real"),
        ({"arcs": [(0, EPSILON, 1, "0.5")]}, SemiringError, "0 --ε--> 1.*text '0.5'"),
        ({"arcs": [(0, "a", 1, None)]}, SemiringError, "must be a number"),
        ({"arcs": [(0, "a", 1, torch.ones(1))]}, ShapeError, r"0-d tensor; got shape \(1,\)"),
        ({"arcs": [(0, "a", 1, torch.tensor(math.nan))]}, SemiringError, "nan is outside"),
        ({"initial": {0: math.nan}}, SemiringError, "initial weight of state 0 nan"),
        ({"final": {1: -math.inf}}, SemiringError, "final weight of state 1 -inf"),
        ({"semiring": "max-plus", "final": {1: math.inf}}, SemiringError, "outside the max-plus"),
        ({"semiring": "max-times", "final": {1: -0.5}}, SemiringError, "outside the max-times"),
        ({"semiring": "boolean", "arcs": [(0, "a", 1, 2)]}, SemiringError, "outside the boolean"),
        ({"semiring": "counting", "arcs": [(0, "a", 1, 1.5)]}, SemiringError, "1.5"),
        ({"semiring": "counting", "initial": {0: 10**30}, "arcs": [(0, "a", 1, 1)]}, SemiringError, "int64"),
        ({"semiring": "tropical"}, SemiringError, "unknown semiring"),
    ],
)
def test_mistakes_in_building(changes: dict[str, Any], error: type[RRNNError], message: str) -> None:
    with pytest.raises(error, match=message):
        WFSA(**(GOOD | changes))


def tensors(**changes: Any) -> WFSA:
    index = torch.tensor
    given: dict[str, Any] = {
        "semiring": "real",
        "alphabet": "ab",
        "states": "pq",
        "source": index([0, 1]),
        "symbol": index([0, -1]),
        "target": index([1, 0]),
        "weight": torch.tensor([0.5, 0.25]),
        "initial": torch.tensor([1.0, 0.0]),
        "final": torch.tensor([0.0, 1.0]),
    }
    return WFSA.from_tensors(**(given | changes))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"source": torch.tensor([0, 2])}, AutomatonError, "unknown state: source must lie in 0 … 1; got 2"),
        ({"target": torch.tensor([-1, 0])}, AutomatonError, "unknown state"),
        (
            {"symbol": torch.tensor([0, 2])},
            AutomatonError,
            "unknown symbol: symbol must lie in -1 … 1; got 2",
        ),
        ({"source": torch.tensor([0.0, 1.0])}, ShapeError, "1-d int64"),
        ({"source": [0, 1]}, ShapeError, "got list"),
        ({"target": torch.tensor([1])}, ShapeError, "one entry for each arc"),
        ({"weight": torch.tensor([0.5])}, ShapeError, r"shape \(2,\)"),
        ({"weight": [0.5, 0.25]}, ShapeError, "got list"),
        ({"weight": torch.tensor([0.5, math.nan])}, SemiringError, "nan"),
        ({"initial": torch.zeros(2)}, AutomatonError, "needs an initial state"),
        ({"final": torch.ones(3)}, ShapeError, r"shape \(2,\); got \(3,\)"),
        (
            {"source": torch.tensor([0, 0]), "symbol": torch.tensor([1, 1]), "target": torch.tensor([1, 1])},
            AutomatonError,
            "'p' --b--> 'q' is given twice",
        ),
    ],
)
def test_mistakes_in_tensors(changes: dict[str, Any], error: type[RRNNError], message: str) -> None:
    assert tensors().score("a").item() == 0.5 / (1 - 0.25 * 0)
    with pytest.raises(error, match=message):
        tensors(**changes)


@pytest.mark.parametrize(
    ("string", "message"),
    [
        ("ac", "the string has 'c' at position 1"),
        (["a", "ba", "xa"], "string 2 of the batch has 'x' at position 0"),
        (("a", ["b"]), r"has \['b'\] at position 1"),
        (5, "a string is a sequence of symbols"),
        ([1, 2], "list is a batch of strings; string 0 of the batch is 1"),
        ({"a", "b"}, "a string is a sequence"),
        (torch.zeros(2, 2), "a string is a sequence"),
    ],
)
def test_mistakes_in_strings(string: Any, message: str) -> None:
    with pytest.raises(AutomatonError, match=message):
        WFSA(**GOOD).score(string)


def test_one_string_where_one_is_needed() -> None:
    machine = WFSA(**GOOD)
    for call in (
        machine.forward,
        machine.backward,
        machine.arc_marginals,
        machine.best_path,
        machine.score_by_paths,
    ):
        with pytest.raises(AutomatonError, match="batch"):
            call(["a"])
    with pytest.raises(AutomatonError, match="a whole number of at least 1; got k = 0"):
        machine.k_best("a", 0)


def test_numbers_as_symbols() -> None:
    machine = WFSA(
        alphabet=range(3), arcs=[(0, i, 0, i + 1.0) for i in range(3)], initial={0: 1}, final={0: 1}
    )
    assert machine.score(torch.tensor([0, 1, 2])).item() == 6.0
    assert machine.score(torch.tensor([2, 2]).numpy()).item() == 9.0
    assert machine.score(range(3)).item() == 6.0
    assert machine.score([[0, 1], (2,), torch.tensor([1, 1])]).tolist() == [2.0, 3.0, 4.0]
    assert machine.encode((2, 0)) == [2, 0]

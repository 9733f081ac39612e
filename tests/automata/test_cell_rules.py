"""What only a whole cell shows: ends, names, ε-cycles."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rrnn.automata import (
    Cell,
    epsilon_cycles,
    exp,
    linear,
    log_sigmoid,
    one,
    parameter,
    reachable,
    relu,
    sigmoid,
    softplus,
    step,
    tanh,
    zero,
)
from rrnn.errors import CellError

u, v = linear("u"), linear("v")
p, r = parameter("p"), parameter("r")


def chain(semiring: str = "real") -> Cell:
    return Cell("X", semiring).initial("q0").arc("q0", "q1", one).final("q1")


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (Cell("X").loop("q0", u).final("q0"), r"cell 'X' has no initial state: call .initial\(state\)"),
        (Cell("X").loop("q0", u).initial("q0"), r"cell 'X' has no final state: call .final"),
        (Cell("X"), "no initial state"),
        (
            Cell("X").initial("q0").loop("q0", u).arc("q1", "q2", u).final("q2"),
            r"no final state \('q2'\) is reachable from an initial state.*Add the missing arcs",
        ),
        (Cell("X").initial("q0").arc("q0", "q1", zero).final("q1"), "no final state .* is reachable"),
        (Cell("X").initial("q0").arc("q0", "q1", 0.0).final("q1"), "no final state .* is reachable"),
        (Cell("X").initial("q0", zero).arc("q0", "q1", u).final("q1"), "no final state .* is reachable"),
        (Cell("X").initial("q0").arc("q0", "q1", u).final("q1", 0 * p), "no final state .* is reachable"),
        (
            chain().final("q_1"),
            "unknown state 'q_1': it is final, but no arc enters it. Did you mean 'q1'",
        ),
        (chain().initial("start"), "unknown state 'start': it is initial, but no arc leaves it"),
        (
            chain().loop("q0", u).loop("q1", linear("u", bias=True)),
            r'uses the name \'u\' in two ways: linear\("u"\) and linear\("u", bias=True\).*use two names',
        ),
        (chain().loop("q0", u).final("q0", parameter("u")), "uses the name 'u' in two ways"),
        (chain().output(linear("u", window=2) * "score").loop("q0", u), "uses the name 'u' in two ways"),
        (
            chain().loop("q0", u.named("a")).loop("q1", v.named("a")),
            "'a' is given to two different expressions",
        ),
        (chain().loop("q0", u.named("score")), "cannot be called 'score': the cell language uses that word"),
        (chain().loop("q0", u).with_semiring("boolean"), "may be other than 0 and 1"),
        (chain().loop("q0", u).with_semiring("max-times"), "may be negative"),
    ],
    ids=range(17),
)
def test_mistakes(cell: Cell, message: str) -> None:
    with pytest.raises(CellError, match=message):
        cell.check()
    with pytest.raises(CellError, match=message):
        cell.to_text()


def test_useless_states_are_no_mistake() -> None:
    # lowering trims them; compositions leave some behind
    chain().arc("q5", "q1", u).arc("q1", "q6", u).check()
    Cell("X").initial("q0").final("q0").check()


def test_the_limit_on_epsilon_may_put_the_end_out_of_reach() -> None:
    two = Cell("X").initial("q0").loop("q0", u).epsilon("q0", "q1", r).epsilon("q1", "q2", r).final("q2")
    two.check()
    two.limit_epsilon(2).check()
    for limit, after_last in ((1, True), (0, True), (2, False)):
        with pytest.raises(CellError, match=f"every score is .* under its epsilon_limit of {limit}"):
            two.limit_epsilon(limit, after_last=after_last).check()
    two.arc("q1", "q2", u).limit_epsilon(1, after_last=False).check()
    # a symbol starts the count anew, and the shorter of two ways counts
    three = two.arc("q2", "q3", u).epsilon("q3", "q4", r).epsilon("q0", "q2", r).final("q4")
    three.limit_epsilon(1).check()


def test_reachable() -> None:
    arcs = Cell("X").arc("a", "b", u).epsilon("b", "c", 1).arc("c", "d", zero).arc("e", "a", u).arcs
    assert reachable(["a"], arcs) == {"a", "b", "c"}
    assert reachable(iter(["b"]), arcs, backwards=True) == {"a", "b", "e"}
    assert reachable([], arcs) == set()


def test_epsilon_cycles() -> None:
    cell = (
        Cell("X")
        .epsilon("a", "b", r).epsilon("b", "c", r).epsilon("c", "a", r)
        .epsilon("c", "d", r).epsilon("d", "e", r)
        .epsilon("f", "f", r).epsilon("e", "g", r).epsilon("g", "e", zero).epsilon("g", "d", 0.0)
        .arc("e", "d", u)
    )  # fmt: skip
    assert epsilon_cycles(cell) == [["a", "b", "c"], ["f"]]
    assert epsilon_cycles(chain().epsilon("q0", "q1", r)) == []


def cycle(semiring: str, *weights: Any) -> Cell:
    """q0 → q1 → … → q0 by ε-arcs of these weights."""
    cell = chain(semiring).loop("q0", one)
    for i, weight in enumerate(weights):
        cell = cell.epsilon(f"q{i}", f"q{(i + 1) % len(weights)}", weight)
    return cell


half, log_half = sigmoid(r) * 0.5, math.log(0.5)

CONVERGE = [
    ("real", [sigmoid(r)]),
    ("real", [1 - sigmoid(r)]),
    ("real", [tanh(r)]),
    ("real", [-sigmoid(r)]),
    ("real", [0.99]),
    ("real", [-0.99]),
    ("real", [exp(-softplus(r))]),
    ("real", [one, sigmoid(r)]),  # one weight below 1 is enough on a cycle
    ("real", [sigmoid(r), 1.0, 1.0]),
    ("real", [2.0, 0.4]),
    ("real", [100 * tanh(r), 0.01, 0.9]),
    ("real", [zero]),
    ("real", [0.0, 5.0]),  # never round
    ("log", [log_sigmoid(r)]),
    ("log", [-0.01]),
    ("log", [5.0, -6.0]),
    ("log", [one, log_sigmoid(r)]),
    ("log", [-softplus(r)]),
    ("log", [zero, 3.0]),
    ("max-plus", [log_sigmoid(r)]),
    ("max-plus", [-relu(r)]),
    ("max-plus", [one]),
    ("max-plus", [0.0, one]),
    ("max-plus", [5.0, -5.0]),
    ("max-plus", [1.0, 2.0, -3.5]),
    ("min-plus", [softplus(r)]),
    ("min-plus", [relu(r), one]),
    ("min-plus", [-2.0, 2.0]),
    ("max-times", [sigmoid(r)]),
    ("max-times", [1.0]),
    ("max-times", [2.0, 0.5]),
    ("max-times", [exp(-relu(r))]),
    ("boolean", [one]),
    ("boolean", [step(r), 1]),
    ("counting", [0]),
    ("counting", [zero, 2]),
]

DIVERGE = [
    ("real", [one]),
    ("real", [1.0]),
    ("real", [-1.0]),
    ("real", [1.5]),
    ("real", [r]),
    ("real", [exp(-relu(r))]),  # is 1 for r ≤ 0
    ("real", [0.5 + 0.5 * step(r)]),
    ("real", [1 - tanh(r) * tanh(r)]),  # is 1 for r = 0
    ("real", [one, 1.0]),
    ("real", [2.0, 0.5]),
    ("real", [2 * sigmoid(r)]),
    ("log", [one]),
    ("log", [0.5]),
    ("log", [r]),
    ("log", [-relu(r)]),
    ("log", [5.0, -3.0]),
    ("log", [750.0, -720.0]),
    ("max-plus", [0.5]),
    ("max-plus", [r]),
    ("max-plus", [softplus(r)]),
    ("max-plus", [5.0, -4.0]),
    ("max-plus", [r, one, one]),
    ("min-plus", [-0.5]),
    ("min-plus", [log_sigmoid(r)]),
    ("min-plus", [r, one]),
    ("min-plus", [-2.0, 1.0]),
    ("max-times", [1.5]),
    ("max-times", [2.0, 0.6]),
    ("max-times", [exp(r), one]),
    ("counting", [one]),
    ("counting", [step(r)]),
    ("counting", [2, 1]),
]


@pytest.mark.parametrize(("semiring", "weights"), CONVERGE, ids=range(len(CONVERGE)))
def test_cycles_whose_star_exists(semiring: str, weights: list[Any]) -> None:
    cycle(semiring, *weights).check()


@pytest.mark.parametrize(("semiring", "weights"), DIVERGE, ids=range(len(DIVERGE)))
def test_cycles_whose_star_does_not_exist(semiring: str, weights: list[Any]) -> None:
    cell = cycle(semiring, *weights)
    names = " → ".join([f"q{i}" for i in range(len(weights))] + ["q0"])
    with pytest.raises(CellError, match=rf"cell 'X' has an ε-cycle {names} whose star .*limit_epsilon\(k\)"):
        cell.check()
    for limit in (0, 1, 5):
        cell.limit_epsilon(limit).check()


def test_several_ways_round() -> None:
    def two(a: Any, b: Any) -> Cell:
        cell = chain().epsilon("q0", "q1", a).epsilon("q1", "q0", b).epsilon("q1", "q1", half)
        return cell.epsilon("q0", "q0", half)

    two(half, half).check()  # rows of two σ/2: their sum stays below 1
    two(0.5, 0.5).check()
    with pytest.raises(CellError, match="ε-cycle"):
        two(0.5, sigmoid(r)).check()
    parallel = chain("log").epsilon("q0", "q0", log_half)
    parallel.check()
    with pytest.raises(CellError, match="ε-cycle q0 → q0"):
        parallel.epsilon("q0", "q0", log_half, merge="plus").check()  # ½ + ½ = 1


def test_the_message_names_a_shortest_cycle() -> None:
    cell = chain().epsilon("q0", "q1", 1).epsilon("q1", "q2", 1).epsilon("q2", "q0", 1).epsilon("q1", "q0", 1)
    with pytest.raises(CellError, match="ε-cycle q0 → q1 → q0 whose"):
        cell.check()

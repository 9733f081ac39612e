"""Every operation against the score it promises, over every semiring, with ε-arcs and without."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from random_machines import all_strings, close, random_machine, scores

from rrnn.automata import Cell
from rrnn.errors import AutomatonError, SemiringError
from rrnn.semirings import SEMIRINGS
from rrnn.wfsa import EPSILON, WFSA

SEEDS = range(4)
KINDS = ["none", "acyclic", "cyclic"]
STRINGS = all_strings("abc", 3)


def kinds_of(name: str) -> list[str]:
    return KINDS[:2] if name == "counting" else KINDS  # ℕ has no star but that of 0


def pairs(name: str) -> list[tuple[WFSA, WFSA]]:
    """Machines over {a, b} and {b, c}, so that the alphabets merge."""
    return [
        (
            random_machine(seed, name, epsilon=kind),
            random_machine(seed + 100, name, states=3, alphabet="bc", epsilon=kind),
        )
        for seed in SEEDS
        for kind in kinds_of(name)
    ]


def check(name: str, machine: WFSA, expected: list[float], strings: list[tuple[str, ...]] = STRINGS) -> None:
    got = scores(machine, strings)
    for string, x, y in zip(strings, got, expected, strict=True):
        assert close(name, x, y), (string, x, y)


@pytest.mark.parametrize("name", SEMIRINGS)
def test_union(name: str) -> None:
    ring = SEMIRINGS[name]
    for a, b in pairs(name):
        both = a.union(b)
        assert both.alphabet == ("a", "b", "c")
        assert both.states[0] == (0, "q0") and both.states[a.num_states] == (1, "q0")
        check(
            name, both, [ring.plus(x, y) for x, y in zip(scores(a, STRINGS), scores(b, STRINGS), strict=True)]
        )


@pytest.mark.parametrize("name", SEMIRINGS)
def test_concatenation(name: str) -> None:
    ring = SEMIRINGS[name]
    for a, b in pairs(name):
        one, two = (
            dict(zip(STRINGS, scores(a, STRINGS), strict=True)),
            dict(zip(STRINGS, scores(b, STRINGS), strict=True)),
        )
        check(
            name,
            a.concatenate(b),
            [ring.sum(ring.times(one[x[:i]], two[x[i:]]) for i in range(len(x) + 1)) for x in STRINGS],
        )


@pytest.mark.parametrize("name", SEMIRINGS)
def test_closure(name: str) -> None:
    """The first piece that is not empty, after any number of empty ones, then the same again."""
    ring = SEMIRINGS[name]
    strings = all_strings("ab", 4)
    for a, _ in pairs(name):
        known = dict(zip(strings, scores(a, strings), strict=True))
        try:
            idle = ring.star(known[()])
        except SemiringError:
            with pytest.raises(AutomatonError, match="star of its score of the empty string"):
                a.closure()
            continue

        @cache
        def star(x: tuple[str, ...], known: Any = known, idle: float = idle) -> float:
            rest = (ring.times(known[x[:i]], star(x[i:])) for i in range(1, len(x) + 1))
            return ring.times(idle, ring.sum(rest)) if x else idle

        assert a.closure().states[:2] == ("start", (0, "q0"))
        try:
            a.closure().score(())
        except (
            AutomatonError
        ):  # the sum over ε-paths converges by cancelling only, in another order than by length
            assert ring.cancels
            continue
        check(name, a.closure(), [star(x) for x in strings], strings)


@pytest.mark.parametrize("name", SEMIRINGS)
def test_intersection(name: str) -> None:
    ring = SEMIRINGS[name]
    for a, b in pairs(name):
        both = a.intersect(b)
        assert both.alphabet == ("a", "b", "c") and not both.has_epsilon
        assert set(both.states) <= {(p, q) for p in a.states for q in b.states}
        check(
            name,
            both,
            [ring.times(x, y) for x, y in zip(scores(a, STRINGS), scores(b, STRINGS), strict=True)],
        )
    same = random_machine(7, name, epsilon=kinds_of(name)[-1])
    squares = [ring.times(x, x) for x in scores(same, STRINGS)]
    check(name, same.intersect(same), squares)


@pytest.mark.parametrize("name", SEMIRINGS)
def test_reverse_and_scale(name: str) -> None:
    ring = SEMIRINGS[name]
    factor = {"boolean": 1.0, "counting": 3, "complex": (0.3, -0.4), "expectation": (0.5, 2.0)}.get(name, 0.5)
    for a, _ in pairs(name):
        check(name, a.reverse(), scores(a, [x[::-1] for x in STRINGS]))
        assert a.reverse().reverse().same_as(a)
        check(name, a.scale(factor), [ring.times(ring.check(factor), x) for x in scores(a, STRINGS)])
        check(name, a.scale(ring.zero), [ring.zero] * len(STRINGS))


@pytest.mark.slow
@pytest.mark.parametrize("name", SEMIRINGS)
def test_remove_epsilon(name: str) -> None:
    for seed in range(12):
        for kind in kinds_of(name):
            a = random_machine(seed, name, states=5, epsilon=kind)
            free = a.remove_epsilon()
            assert not free.has_epsilon and free.states == a.states
            assert free is a or a.has_epsilon
            check(name, free, scores(a, STRINGS))
            if kind == "acyclic":
                check(name, free, [a.score_by_paths(x) for x in all_strings("ab", 3)], all_strings("ab", 3))


@pytest.mark.parametrize("name", SEMIRINGS)
def test_trim(name: str) -> None:
    ring = SEMIRINGS[name]
    for seed in range(20):
        a = random_machine(seed, name, states=6, density=0.12, epsilon=kinds_of(name)[seed % 2])
        useful = a.trim()
        check(name, useful, scores(a, STRINGS))
        assert [q for q in a.states if q in useful.states] == list(useful.states)
        assert useful.trim().same_as(useful)
        if not useful.final or not useful.initial:
            assert useful.num_states == 1 and not useful.arcs
            continue
        # Every state left is on a path: it is reached from both ends.
        for machine in (useful, useful.reverse()):
            seen = set(machine.initial)
            while grown := {arc.target for arc in machine.arcs if arc.source in seen} - seen:
                seen |= grown
            assert seen == set(machine.states)
    ends = WFSA(
        name,
        alphabet="a",
        arcs=[
            ("in", "a", "out", ring.one),
            ("in", "a", "dead", ring.one),
            ("lost", "a", "out", ring.one),
            ("in", "a", "in", ring.zero),
        ],
        initial={"in": ring.one},
        final={"out": ring.one},
    )
    assert ends.trim().states == ("in", "out")
    assert [arc[:3] for arc in ends.trim().arcs] == [("in", "a", "out")]  # the loop of weight 0̄ is no arc


def test_an_empty_result_is_a_machine_that_scores_zero() -> None:
    a = WFSA(alphabet="a", arcs=[(0, "a", 1, 2.0)], initial={0: 1.0}, final={1: 1.0})
    b = WFSA(alphabet="b", arcs=[(0, "b", 1, 2.0)], initial={0: 1.0}, final={1: 1.0})
    nothing = a.intersect(b)
    assert nothing.states == ((0, 0),) and not nothing.arcs and nothing.alphabet == ("a", "b")
    assert nothing.score(["a", "b", ()]).tolist() == [0.0, 0.0, 0.0]
    assert nothing.union(a).score(["a", "b"]).tolist() == [2.0, 0.0]
    assert nothing.concatenate(a).score("a").item() == 0.0
    assert nothing.closure().score(["", "a"]).tolist() == [1.0, 0.0]
    assert nothing.remove_epsilon().scale(2.0).trim().reverse().num_states == 1


# ---- gradients -----------------------------------------------------------------------------------------------

BINARY: dict[str, Callable[[WFSA, WFSA], WFSA]] = {
    "union": WFSA.union,
    "concatenation": WFSA.concatenate,
    "intersection": WFSA.intersect,
}
UNARY: dict[str, Callable[[WFSA], WFSA]] = {
    "closure": WFSA.closure,
    "reverse": WFSA.reverse,
    "scale": lambda a: a.scale(0.5),
    "trim": WFSA.trim,
    "remove_epsilon": WFSA.remove_epsilon,
}


def with_leaves(a: WFSA) -> tuple[WFSA, list[torch.Tensor]]:
    leaves = [w.clone().requires_grad_() for w in a.weights]
    rebuilt = WFSA.from_tensors(
        a.semiring, a.alphabet, a.states, a.arc_source, a.arc_symbol, a.arc_target, *leaves, allow_empty=True
    )
    return rebuilt, leaves


@pytest.mark.slow
@pytest.mark.parametrize("name", ["real", "log", "max-plus", "max-times"])
@pytest.mark.parametrize("operation", [*BINARY, *UNARY])
def test_gradients_pass_through(name: str, operation: str) -> None:
    """Numerical derivatives of a score of the result, in every weight of the parts."""
    a = random_machine(3, name, states=3, epsilon="acyclic")
    b = random_machine(5, name, states=3, alphabet="bc", epsilon="acyclic")
    if operation == "closure":
        a = a.scale({"real": 0.1, "log": -4.0, "max-plus": -9.0, "max-times": 0.1}[name])
    (a, leaves), (b, more) = with_leaves(a), with_leaves(b)
    combined = UNARY[operation](a) if operation in UNARY else BINARY[operation](a, b)
    inputs = leaves if operation in UNARY else [*leaves, *more]
    score = combined.score(["ab", "bb", "abba"] if operation in UNARY else ["bb", "ab", "bcbb"])
    ring = SEMIRINGS[name]
    alive = score[score.detach() != ring.zero]
    assert alive.numel()
    slopes = torch.autograd.grad(alive.sum(), inputs)
    for leaf, slope in zip(inputs, slopes, strict=True):
        assert slope.isfinite().all()
        for i in range(leaf.numel()):
            if leaf[i] == ring.zero:
                continue
            moved = []
            for step in (1e-6, -1e-6):
                with torch.no_grad():
                    leaf[i] += step
                again = UNARY[operation](a) if operation in UNARY else BINARY[operation](a, b)
                s = again.score(["ab", "bb", "abba"] if operation in UNARY else ["bb", "ab", "bcbb"])
                moved.append(s[score.detach() != ring.zero].sum().item())
                with torch.no_grad():
                    leaf[i] -= step
            assert abs((moved[0] - moved[1]) / 2e-6 - slope[i].item()) < 1e-5


def test_weights_of_zero_get_their_gradient() -> None:
    """A final weight that happens to be 0 has a derivative, and so does an ε-arc."""
    final = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    arcs = torch.tensor([0.0, 2.0], dtype=torch.float64, requires_grad=True)
    a = WFSA.from_tensors(
        "real",
        "a",
        "qp",
        torch.tensor([0, 0]),
        torch.tensor([-1, 0]),
        torch.tensor([1, 0]),
        arcs,
        torch.tensor([1.0, 0.0], dtype=torch.float64),
        final,
        allow_empty=True,
    )
    b = WFSA(alphabet="a", arcs=[(0, "a", 1, 3.0)], initial={0: 1.0}, final={1: 1.0})
    for combined, factor in (
        (a.concatenate(b), 3.0),
        (a.union(b), 2.0),
        (a.trim(), 2.0),
        (a.closure(), 2.0),
    ):
        (slope,) = torch.autograd.grad(combined.score("a"), final)
        assert slope[0].item() == factor
    free = with_final(a, [0.0, 1.0]).remove_epsilon()
    assert torch.autograd.grad(free.score("a"), arcs)[0].tolist() == [2.0, 0.0]


def with_final(a: WFSA, final: list[float]) -> WFSA:
    tensor = torch.tensor(final, dtype=torch.float64)
    return WFSA.from_tensors(
        a.semiring,
        a.alphabet,
        a.states,
        a.arc_source,
        a.arc_symbol,
        a.arc_target,
        a.arc_weight,
        a.initial_weight,
        tensor,
    )


# ---- errors and methods --------------------------------------------------------------------------------------


def test_errors() -> None:
    a, b = random_machine(0, "real"), random_machine(0, "log")
    for operation in BINARY.values():
        with pytest.raises(AutomatonError, match="one semiring; got real and log"):
            operation(a, b)
        with pytest.raises(AutomatonError, match="needs two WFSAs; got int"):
            operation(a, 3)
        with pytest.raises(AutomatonError, match=r"needs two WFSAs; got Cell. Turn a cell into one"):
            operation(a, Cell("X"))
    with pytest.raises(AutomatonError, match="needs two WFSAs; got NoneType"):
        a.equivalent(None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(SemiringError, match="factor"):
        a.scale(float("nan"))
    with pytest.raises(SemiringError, match="shape"):
        a.scale(torch.ones(2))
    with pytest.raises(SemiringError):
        random_machine(0, "max-times").scale(-1.0)
    loop = [(0, EPSILON, 0, 1.5), (0, "a", 0, 1.0)]
    divergent = WFSA(alphabet="a", arcs=loop, initial={0: 1.0}, final={0: 1.0})
    for operation in (WFSA.remove_epsilon, WFSA.closure):
        with pytest.raises(AutomatonError, match="0 →ε 0"):
            operation(divergent)
    heavy = WFSA(alphabet="a", arcs=[(0, "a", 1, 1.0)], initial={0: 1.0}, final={0: 2.0, 1: 1.0})
    with pytest.raises(AutomatonError, match=r"\|a\| < 1; got 2.0"):
        heavy.closure()


def test_loops_of_epsilon_alone() -> None:
    arcs = [(0, EPSILON, 0, 0.5), (0, "a", 0, 3.0), (0, EPSILON, 1, 2.0), (1, EPSILON, 1, -0.5)]
    a = WFSA(alphabet="a", arcs=arcs, initial={0: 1.0}, final={1: 1.0})
    idle = 2.0 * 2.0 / 1.5  # 1/(1 − ½) at 0, the arc, 1/(1 + ½) at 1
    for machine in (a, a.remove_epsilon()):
        assert scores(machine, [(), ("a",)]) == pytest.approx([idle, 6.0 * idle])


def test_a_product_that_does_not_commute_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """No semiring of the library has one, so one is made to say so."""
    a = random_machine(0)
    monkeypatch.setattr(a.semiring, "commutative", False)
    with pytest.raises(SemiringError, match="reverse needs a commutative"):
        a.reverse()
    with pytest.raises(SemiringError, match="intersection needs a commutative"):
        a.intersect(a)
    assert a.union(a).num_states == 8


def test_a_machine_has_a_state() -> None:
    with pytest.raises(AutomatonError, match="at least one state"):
        WFSA(alphabet="a", initial={}, final={}, allow_empty=True)


def test_methods() -> None:
    a, b = random_machine(1), random_machine(2)
    assert a.union(b).same_as(a.union(b))
    assert a.concatenate(b).same_as(a.concatenate(b))
    assert a.intersect(b).same_as(a.intersect(b))
    assert a.reverse().same_as(a.reverse())
    assert a.scale(0.5).same_as(a.scale(0.5))
    assert a.trim().same_as(a.trim())
    assert random_machine(1, epsilon="acyclic").remove_epsilon().has_epsilon is False
    light = a.scale(1e-3)
    assert light.closure().same_as(light.closure())
    assert a.minimise().num_states <= a.num_states
    assert a.equivalent(a.minimise())

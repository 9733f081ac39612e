"""An outsider's opinion: OpenFst (through pynini) on random machines, over min-plus and log.

OpenFst's weights are costs: "standard" (tropical, min-plus, float32) and "log64" (−log of the sum, float64), so
min-plus weights go over as they are and log weights negated. Tropical weights here are multiples of 1/64, which
float32 adds exactly: costs must be equal. Costs of log64 come out as text of nine digits, and its distances on
cyclic machines are limits, taken up to `DELTA`.
"""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from random_machines import all_strings, random_machine, scores

from rrnn.wfsa import WFSA

pynini: Any = pytest.importorskip("pynini")
pytestmark = pytest.mark.slow

DELTA = 1e-12
STRINGS = all_strings("ab", 4)
RINGS = ["min-plus", "log"]
ARC_TYPE = {"min-plus": "standard", "log": "log64"}
WEIGHT_TYPE = {"min-plus": "tropical", "log": "log64"}
SIGN = {"min-plus": 1.0, "log": -1.0}
SEEDS = range(15)


def machine(seed: int, name: str, epsilon: str = "acyclic", states: int = 4) -> WFSA:
    """Weights that no operation turns into a divergent sum; dyadic over min-plus."""
    found = random_machine(seed, name, states=states, epsilon=epsilon)
    if name == "min-plus":
        return found.map_weights(lambda w: (w.abs() * 64).round() / 64)
    return found.map_weights(lambda w: w - 1.5).scale(-2.0)


def to_fst(machine: WFSA) -> Any:
    """An acceptor with the same scores. OpenFst has one initial state, hence an ε-arc to each of ours."""
    name = machine.semiring.name
    fst = pynini.Fst(arc_type=ARC_TYPE[name])

    def cost(weight: float) -> Any:
        return pynini.Weight(WEIGHT_TYPE[name], SIGN[name] * weight)

    for _ in range(machine.num_states + 1):
        fst.add_state()
    start = machine.num_states
    fst.set_start(start)
    for q, weight in machine.initial.items():
        fst.add_arc(start, pynini.Arc(0, 0, cost(weight), machine.state_index[q]))
    for q, symbol, p, weight in machine.arcs:
        label = machine.symbol_index[symbol] + 1 if symbol in machine.symbol_index else 0
        fst.add_arc(machine.state_index[q], pynini.Arc(label, label, cost(weight), machine.state_index[p]))
    for q, weight in machine.final.items():
        fst.set_final(machine.state_index[q], cost(weight))
    return fst


def distance(fst: Any) -> float:
    """⊕ of all paths, as a cost."""
    if fst.start() < 0:
        return math.inf
    return float(
        pynini.shortestdistance(fst, delta=DELTA, reverse=True)[fst.start()]
        .to_string()
        .replace("Infinity", "inf")
    )


def composed(fst: Any, string: tuple[Any, ...], alphabet: tuple[Any, ...]) -> Any:
    """Only the paths that derive the string."""
    line = pynini.Fst(arc_type=fst.arc_type())
    line.set_start(line.add_state())
    for i, symbol in enumerate(string):
        label = alphabet.index(symbol) + 1
        line.add_state()
        line.add_arc(i, pynini.Arc(label, label, pynini.Weight.one(fst.weight_type()), i + 1))
    line.set_final(len(string))
    return pynini.compose(line, fst.copy().arcsort("ilabel"))


def agree(machine: WFSA, fst: Any, strings: list[tuple[Any, ...]] = STRINGS) -> None:
    """Our scores of our machine against OpenFst's distances in its own."""
    name = machine.semiring.name
    known = scores(machine, strings)
    assert any(map(math.isfinite, known))
    for string, ours in zip(strings, known, strict=True):
        same_cost(name, SIGN[name] * ours, distance(composed(fst, string, machine.alphabet)))


def same_cost(name: str, ours: float, theirs: float) -> None:
    if name == "min-plus":
        assert ours == theirs
    else:
        assert ours == theirs or math.isclose(ours, theirs, rel_tol=2e-8, abs_tol=2e-8), (ours, theirs)


@pytest.mark.parametrize("epsilon", ["none", "acyclic", "cyclic"])
@pytest.mark.parametrize("name", RINGS)
def test_scores(name: str, epsilon: str) -> None:
    for seed in SEEDS:
        ours = machine(seed, name, epsilon, states=5)
        agree(ours, to_fst(ours))


@pytest.mark.parametrize("epsilon", ["acyclic", "cyclic"])
@pytest.mark.parametrize("name", RINGS)
def test_epsilon_removal(name: str, epsilon: str) -> None:
    """Our machine without ε against OpenFst's rmepsilon of the one with ε, and each against the other's scorer."""
    for seed in SEEDS:
        ours = machine(seed, name, epsilon, states=5)
        theirs = pynini.rmepsilon(to_fst(ours), delta=DELTA)
        agree(ours.remove_epsilon(), theirs)
        agree(ours, to_fst(ours.remove_epsilon()))


@pytest.mark.parametrize("name", RINGS)
def test_union_and_concatenation(name: str) -> None:
    for seed in SEEDS:
        a, b = machine(seed, name), machine(seed + 50, name, states=3)
        agree(a.union(b), pynini.union(to_fst(a), to_fst(b)))
        agree(a.concatenate(b), pynini.concat(to_fst(a), to_fst(b)))


@pytest.mark.parametrize("name", RINGS)
def test_closure(name: str) -> None:
    for seed in SEEDS:
        a = machine(seed, name)
        agree(a.closure(), pynini.closure(to_fst(a)))


@pytest.mark.parametrize("name", RINGS)
def test_reverse_and_intersection(name: str) -> None:
    for seed in SEEDS:
        a, b = machine(seed, name), machine(seed + 50, name, states=3)
        agree(a.reverse(), pynini.reverse(to_fst(a)))
        # OpenFst's own ε-filter must agree with ours, which removes ε beforehand.
        agree(a.intersect(b), pynini.intersect(to_fst(a).arcsort("olabel"), to_fst(b).arcsort("ilabel")))


@pytest.mark.parametrize("name", RINGS)
def test_total_weight(name: str) -> None:
    """⊕ over all strings is the distance in the whole machine. Log weights are lowered until the sum exists."""
    for seed in SEEDS:
        a = machine(seed, name, "cyclic")
        if name == "log":
            a = a.map_weights(lambda w: w - 1.0)
        same_cost(name, SIGN[name] * a.total_weight().item(), distance(to_fst(a)))


def path_costs(fst: Any) -> list[float]:
    """The cost of every path of an acyclic acceptor, least first."""
    found: list[float] = []
    todo = [(fst.start(), 0.0)] if fst.start() >= 0 else []
    while todo:
        state, cost = todo.pop()
        final = fst.final(state).to_string()
        if final != "Infinity":
            found.append(cost + float(final))
        todo += [(arc.nextstate, cost + float(arc.weight.to_string())) for arc in fst.arcs(state)]
    return sorted(found)


@pytest.mark.parametrize("k", [1, 4, 25])
def test_k_shortest_paths(k: int) -> None:
    for seed in SEEDS:
        a = machine(seed, "min-plus", "acyclic", states=5)
        rng = random.Random(seed)
        for length in (0, 1, 3, 6):
            string = tuple(rng.choices("ab", k=length))
            theirs = path_costs(pynini.shortestpath(composed(to_fst(a), string, a.alphabet), nshortest=k))
            ours = a.k_best(string, k)
            assert [path.weight for path in ours] == theirs
            logs = a.with_semiring("log").k_best(string, k)  # the same order: costs negated
            assert [-path.weight for path in logs] == theirs

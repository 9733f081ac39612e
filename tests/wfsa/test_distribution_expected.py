"""Expected features and entropies against the enumeration of paths, closed forms and derivatives."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from random_machines import all_strings, random_machine

from rrnn.errors import AutomatonError, SemiringError
from rrnn.wfsa import EPSILON, WFSA, Arc
from rrnn.wfsa.paths import Path, paths

pytestmark = pytest.mark.slow

RINGS = ["real", "log", "counting"]


def positive(seed: int, ring: str, epsilon: str = "none") -> WFSA:
    """A random machine over the reals without negative weights, or what stands for the same over another semiring."""
    if ring == "counting":
        return random_machine(seed, ring, epsilon=epsilon)
    return random_machine(seed, "real", epsilon=epsilon).map_weights(torch.abs).with_semiring(ring)


def feature(arc: Arc) -> float:
    return 0.3 * (arc.symbol == "a") - 1.1 * (arc.symbol is EPSILON) + 0.7 * (arc.source == arc.target) + 0.1


def by_paths(machine: WFSA, found: list[Path], f: Any = feature) -> tuple[float, float]:
    """(expected feature, entropy) straight from their definitions."""
    weights = [machine.semiring.to_real(path.weight) for path in found]
    total = math.fsum(weights)
    chances = [w / total for w in weights]
    mean = math.fsum(
        p * math.fsum(f(arc) for arc in path.arcs) for p, path in zip(chances, found, strict=True)
    )
    return mean, -math.fsum(p * math.log(p) for p in chances if p)


@pytest.mark.parametrize("epsilon", ["none", "acyclic"])
@pytest.mark.parametrize("ring", RINGS)
@pytest.mark.parametrize("seed", range(4))
def test_a_string_against_its_paths(seed: int, ring: str, epsilon: str) -> None:
    machine, seen = positive(seed, ring, epsilon), 0
    for string in all_strings("ab", 3):
        found = list(paths(machine, string))
        if not found:
            with pytest.raises(AutomatonError, match="has none that derives"):
                machine.expected(feature, string)
            continue
        seen += 1
        mean, entropy = by_paths(machine, found)
        assert float(machine.expected(feature, string)) == pytest.approx(mean, rel=1e-11, abs=1e-11)
        assert float(machine.entropy(string)) == pytest.approx(entropy, rel=1e-10, abs=1e-11)
    assert seen


@pytest.mark.parametrize("ring", ["real", "log"])
@pytest.mark.parametrize("seed", range(4))
def test_epsilon_cycles(seed: int, ring: str) -> None:
    """Paths that take at most 14 ε-arcs of a cycle in a row have nearly all the weight."""
    machine = WFSA(
        alphabet="ab",
        arcs=[
            (0, "a", 1, 0.5),
            (1, EPSILON, 0, 0.1 + 0.01 * seed),
            (0, EPSILON, 1, 0.1),
            (1, "b", 1, 0.7),
            (0, "b", 0, 1.3),
        ],
        initial={0: 2.0, 1: 0.1},
        final={1: 0.4},
    ).with_semiring(ring)
    for string in ("", "a", "ab", "bb"):
        mean, entropy = by_paths(machine, list(paths(machine, string, max_epsilon=14)))
        assert float(machine.expected(feature, string)) == pytest.approx(mean, rel=1e-9)
        assert float(machine.entropy(string)) == pytest.approx(entropy, rel=1e-9)


def test_batches_mappings_and_triples() -> None:
    machine = positive(1, "real")
    strings = [s for s in all_strings("ab", 3) if float(machine.score(s)) > 0]
    values = machine.expected(feature, strings)
    assert values.shape == (len(strings),) and machine.entropy(strings).shape == (len(strings),)
    torch.testing.assert_close(values, torch.stack([machine.expected(feature, s) for s in strings]))
    by_arc = {arc: feature(arc) for arc in machine.arcs}
    by_triple = {(arc.source, arc.symbol, arc.target): feature(arc) for arc in machine.arcs}
    torch.testing.assert_close(machine.expected(by_arc, strings), values)
    torch.testing.assert_close(machine.expected(by_triple, strings), values)
    assert machine.expected({}, strings).tolist() == [0.0] * len(strings)


@pytest.mark.parametrize("ring", ["real", "log"])
@pytest.mark.parametrize("scale", [1.0, 1e-200])
def test_the_geometric_distribution(ring: str, scale: float) -> None:
    """A coin is tossed until it shows heads: lengths, and the entropy H(q) / q, whatever weights are scaled by."""
    q = 0.3
    machine = WFSA(alphabet="t", arcs=[(0, "t", 0, 1 - q)], initial={0: scale}, final={0: q}).with_semiring(
        ring
    )
    entropy = -(q * math.log(q) + (1 - q) * math.log(1 - q)) / q
    assert float(machine.expected(lambda arc: 1)) == pytest.approx((1 - q) / q, rel=1e-12)
    assert float(machine.entropy()) == pytest.approx(entropy, rel=1e-12)
    assert float(machine.expected(lambda arc: 2, "ttt")) == 6.0
    assert float(machine.entropy("ttt")) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("ring", ["real", "log"])
@pytest.mark.parametrize("epsilon", ["none", "acyclic", "cyclic"])
@pytest.mark.parametrize("seed", range(3))
def test_all_strings_against_long_sums(seed: int, ring: str, epsilon: str) -> None:
    """Σ over strings of (score / total) · (expected value given the string), where long paths are light."""
    machine = random_machine(seed, "real", states=3, epsilon=epsilon).map_weights(lambda w: 0.06 * w.abs())
    machine = machine.with_semiring(ring)
    strings = all_strings("ab", 9)
    alive = ~machine.semiring.is_zero(machine.score(strings))
    strings = [s for s, kept in zip(strings, alive.tolist(), strict=True) if kept]
    scores = machine.semiring.on_tensors(machine.semiring.to_real, machine.score(strings))
    share = scores / scores.sum()
    mean = float((share * machine.expected(feature, strings)).sum())
    inside = float((share * machine.entropy(strings)).sum())
    assert float(machine.expected(feature)) == pytest.approx(mean, rel=1e-5, abs=1e-7)
    assert float(machine.entropy()) == pytest.approx(inside - float((share * share.log()).sum()), rel=1e-5)


def test_entropy_counts_paths() -> None:
    """Over counting with weights of 1, all paths are equally likely."""
    machine = random_machine(3, "counting").with_semiring("boolean").with_semiring("counting")
    for string in all_strings("ab", 5):
        count = int(machine.score(string))
        if count:
            assert float(machine.entropy(string)) == pytest.approx(math.log(count), abs=1e-12)


@pytest.mark.parametrize("ring", ["real", "log"])
def test_long_strings_neither_underflow_nor_overflow(ring: str) -> None:
    """Two ways for each symbol, with weights of 1e-40 and 1e40: every step is one independent choice."""
    for tiny in (1e-40, 1e40):
        machine = WFSA(
            alphabet="a",
            arcs=[(0, "a", 0, tiny), (0, "a", 1, 3 * tiny), (1, "a", 0, tiny), (1, "a", 1, 3 * tiny)],
            initial={0: 1.0},
            final={0: tiny, 1: tiny},
        ).with_semiring(ring)
        string = "a" * 2000
        wins = machine.expected(lambda arc: arc.target == 1, string)
        assert float(wins) == pytest.approx(1500.0, rel=1e-11)
        one = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
        assert float(machine.entropy(string)) == pytest.approx(2000 * one, rel=1e-10)


def test_weights_far_below_the_range_of_floats() -> None:
    machine = WFSA(
        "log",
        alphabet="a",
        arcs=[(i, "a", i + 1, -900.0 - i) for i in range(4)] + [(0, "a", 4, -900.0 - 900 - 901 - 902)],
        initial={0: -5000.0},
        final={4: 3000.0, 1: -4000.0},
    )
    assert float(machine.expected(lambda arc: 1, "aaaa")) == 4.0
    # All strings: "aaaa" with −900 − 901 − 902 − 903 + 3000, "a" with −3603 + 3000 or −900 − 4000.
    log_odds = -3603.0 + 3606.0
    chance = 1 / (1 + math.exp(-log_odds))
    assert float(machine.expected(lambda arc: 1)) == pytest.approx(chance + 4 * (1 - chance), rel=1e-10)


@pytest.mark.parametrize("ring", ["real", "log"])
def test_the_derivative_of_log_z(ring: str) -> None:
    """E[f] is the derivative of log Z by t when weights are multiplied by e^(t f); and gradients reach the weights."""
    machine = positive(2, "real", "cyclic").map_weights(lambda w: 0.3 * w)
    values = torch.tensor([feature(arc) for arc in machine.arcs], dtype=torch.float64)
    for string in ("abab", None):
        t = torch.zeros((), dtype=torch.float64, requires_grad=True)
        tilted = machine.replace(weight=machine.arc_weight * (t * values).exp())
        total = tilted.total_weight() if string is None else tilted.score(string)
        (slope,) = torch.autograd.grad(total.log(), t)
        assert float(machine.expected(feature, string)) == pytest.approx(float(slope), rel=1e-10)
    asked = machine.with_semiring(ring)
    weight = asked.arc_weight.clone().requires_grad_()

    def both(w: torch.Tensor) -> torch.Tensor:
        m = asked.replace(weight=w)
        return torch.stack([m.expected(feature, "aba"), m.entropy("aba"), m.expected(feature), m.entropy()])

    assert torch.autograd.gradcheck(both, (weight,))


def test_what_has_no_expectation() -> None:
    machine = WFSA(alphabet="a", arcs=[(0, "a", 0, 0.5)], initial={0: 1.0}, final={0: 1.0})
    for ring in ("max-plus", "min-plus", "max-times", "boolean", "complex", "expectation", "signed-log"):
        with pytest.raises(SemiringError, match="expected needs a semiring whose ⊕ adds probabilities"):
            machine.with_semiring(ring).expected(feature, "a")
        with pytest.raises(SemiringError, match="entropy needs a semiring whose ⊕ adds probabilities"):
            machine.with_semiring(ring).entropy("a")
    with pytest.raises(SemiringError, match="not negative"):
        machine.scale(-1.0).entropy("a")
    with pytest.raises(AutomatonError, match="cycle"):
        machine.map_weights(lambda w: 2 * w).entropy()
    with pytest.raises(AutomatonError, match="the machine has no arc"):
        machine.expected({(0, "b", 0): 1.0}, "a")
    with pytest.raises(AutomatonError, match="got the key 'a'"):
        machine.expected({"a": 1.0}, "a")
    with pytest.raises(AutomatonError, match="got float"):
        machine.expected(1.0, "a")  # pyright: ignore[reportArgumentType]
    with pytest.raises(SemiringError, match="feature of the arc 0 --a--> 0 nan"):
        machine.expected(lambda arc: math.nan, "a")
    empty = WFSA(alphabet="a", initial={0: 1.0}, final={1: 1.0}, allow_empty=True)
    with pytest.raises(AutomatonError, match="has none"):
        empty.entropy()

"""Minimisation and equivalence over the reals against exact arithmetic, on 3000 random machines of many kinds.

What is guaranteed, and tried here: a counter-example is a true one, exactly equal machines are found equal, and a
minimised machine keeps its scores. What floating point cannot decide is counted: sizes and differences that lie below
the tolerance, or in machines whose weights span sixteen orders of magnitude.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from exact_machines import Rational

from rrnn.wfsa import WFSA
from rrnn.wfsa.minimise.linear_algebra import Dense, to_dense

pytestmark = pytest.mark.slow

Weight = Callable[[], float]
EACH = 300  # machines of each of ten kinds


def drawn(
    rng: random.Random, weight: Weight, most: int = 4, forward: bool = False, density: float | None = None
) -> WFSA:
    n = rng.randint(1, most)
    share = density or rng.choice([0.3, 0.5, 0.8])
    pairs = [(q, p) for q in range(n) for p in range(n) if p > q or not forward]
    return WFSA(
        alphabet="ab",
        states=range(n),
        arcs=[(q, s, p, weight()) for q, p in pairs for s in "ab" if rng.random() < share],
        initial={q: weight() for q in rng.sample(range(n), rng.randint(1, n))},
        final={q: weight() for q in rng.sample(range(n), rng.randint(1, n))},
        allow_empty=True,
    )


def from_dense(machine: Dense) -> WFSA:
    symbol, source, target = (torch.from_numpy(x) for x in np.nonzero(machine.steps))
    initial, steps, final = (torch.from_numpy(np.ascontiguousarray(x)) for x in machine)
    weight = steps[symbol, source, target]
    n = range(initial.numel())
    return WFSA.from_tensors(
        "real", "ab", n, source, symbol, target, weight, initial, final, allow_empty=True
    )


def changed_basis(machine: WFSA, basis: np.ndarray, inverse: np.ndarray) -> WFSA:
    initial, steps, final = to_dense(machine)
    return from_dense(Dense(initial @ inverse, basis @ steps @ inverse, basis @ final))


def sheared(rng: random.Random, machine: WFSA) -> WFSA:
    """The same scores in another basis of whole numbers, so that nothing rounds and no state has a twin."""
    for _ in range(3):
        n = machine.num_states
        basis, inverse = np.eye(n), np.eye(n)
        q, p = rng.sample(range(n), 2)
        basis[q, p] = rng.choice([-2.0, -1.0, 1.0, 2.0])
        inverse[q, p] = -basis[q, p]
        machine = changed_basis(machine, basis, inverse)
    return machine


def nearly_cancelling(rng: random.Random, weight: Weight) -> WFSA:
    machine = drawn(rng, weight, 3)
    nearly = 1 + 10 ** rng.uniform(-16, -3)
    arcs = [(q, s, p, w * rng.choice([1.0, nearly])) for q, s, p, w in machine.arcs]
    initial = {q: -w for q, w in machine.initial.items()}
    other = WFSA(
        alphabet="ab",
        states=machine.states,
        arcs=arcs,
        initial=initial,
        final=machine.final,
        allow_empty=True,
    )
    return machine.union(other)


def twice(rng: random.Random, machine: WFSA) -> WFSA:
    """2x, x − x = 0, or 3x, as a union."""
    return machine.union(machine.scale(rng.choice([1.0, -1.0, 2.0])))


def make(kind: str, seed: int) -> WFSA:
    rng = random.Random(f"{kind} {seed}")

    def few() -> float:
        return rng.choice([-2.0, -1.0, -0.5, 0.25, 0.5, 1.0, 1.0, 2.0])

    def generic() -> float:
        return rng.uniform(-1, 1)

    def wide() -> float:
        return rng.choice([-1, 1]) * 10 ** rng.uniform(-8, 8)

    makers: dict[str, Callable[[], WFSA]] = {
        "few weights": lambda: drawn(rng, few),
        "generic": lambda: drawn(rng, generic),
        "nilpotent": lambda: drawn(rng, few, 6, forward=True, density=0.7),
        "twice": lambda: twice(rng, drawn(rng, few, 3)),
        "twice generic": lambda: twice(rng, drawn(rng, generic, 3)),
        "sheared": lambda: sheared(rng, twice(rng, drawn(rng, few, 3))),
        "tiny": lambda: twice(rng, drawn(rng, few, 3).map_weights(lambda w: w * 1e-200)),
        "nearly cancelling": lambda: nearly_cancelling(rng, generic),
        "wide": lambda: drawn(rng, wide),
        "twice wide": lambda: twice(rng, drawn(rng, wide, 3)),
    }
    return makers[kind]()


WELL_CONDITIONED = ("few weights", "generic", "nilpotent", "twice", "twice generic", "sheared", "tiny")
KINDS = (*WELL_CONDITIONED, "nearly cancelling", "wide", "twice wide")


def absolute(machine: WFSA) -> WFSA:
    return machine.map_weights(torch.abs)


def check_exact_scores(small: WFSA, machine: WFSA, tolerance: float) -> None:
    """Scores differ by at most `tolerance` times the absolute weights of the paths in both machines."""
    differences = Rational((1, small), (-1, machine)).scores(3)
    paths = Rational((1, absolute(small)), (1, absolute(machine))).scores(3)
    assert all(abs(d) <= Fraction(tolerance) * p for d, p in zip(differences, paths, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_minimising(kind: str) -> None:
    """Scores stay. The size is exactly the rank of a machine that is well conditioned, and nearly always of others."""
    more = less = 0
    for seed in range(EACH):
        machine = make(kind, seed)
        small = machine.minimise()
        least = max(Rational((1, machine)).rank(), 1)
        more, less = more + (small.num_states > least), less + (small.num_states < least)
        assert small.num_states <= machine.num_states
        if small.num_states < machine.num_states:
            assert small.equivalent(machine) and small.trim().num_states == small.num_states
            check_exact_scores(small, machine, 1e-8 if "wide" in kind else 1e-9)
        if kind in WELL_CONDITIONED and small.num_arcs:  # no noise
            assert small.arc_weight.abs().min() > 1e-6 * machine.arc_weight.abs().max()
    ill, cancels = kind not in WELL_CONDITIONED, kind == "nearly cancelling"
    assert more <= (0.05 * EACH if ill else 0)
    # x − x(1 + 1e-12) counts as 0, so there what is lost is meant to be.
    assert less <= (0.4 * EACH if cancels else 0.01 * EACH if ill else 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_weight(kind: str) -> None:
    """A counter-example is always true; it is the first one where that is large enough."""
    missed = 0
    for seed in range(EACH // 6):
        machine, rng = make(kind, seed), random.Random(seed)
        arcs = [tuple(arc) for arc in machine.arcs]
        if not arcs:
            continue
        q, s, p, w = arcs[chosen := rng.randrange(len(arcs))]
        arcs[chosen] = (q, s, p, w * rng.choice([1.5, 1.01, 1 + 1e-6]))
        changed = WFSA(
            alphabet="ab",
            states=machine.states,
            arcs=arcs,
            initial=machine.initial,
            final=machine.final,
            allow_empty=True,
        )
        answer = machine.equivalent(changed)
        difference = Rational((1, machine), (-1, changed))
        first = difference.first_nonzero()
        if not answer:
            assert answer.counter_example is not None and difference.score(answer.counter_example) != 0
        if first is None:
            assert answer  # exactly equal machines are found equal
        elif answer.counter_example != first:
            paths = Rational((1, absolute(machine)), (1, absolute(changed))).score(first)
            missed += abs(difference.score(first)) > Fraction(1e-8) * paths
    assert missed <= (0.03 * EACH / 6 if "wide" in kind else 0)


@pytest.mark.parametrize("kind", WELL_CONDITIONED)
def test_rounding_in_another_basis(kind: str) -> None:
    """Rotating the state space leaves rounding in place of zeros, which is no difference and adds no state."""
    for seed in range(25):
        machine = make(kind, seed)
        n = machine.num_states
        basis, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(n, n)))
        rotated = changed_basis(machine, basis, basis.T)
        assert machine.equivalent(rotated) and rotated.equivalent(machine)
        small = rotated.minimise()
        assert small.equivalent(machine)
        assert small.num_states == machine.minimise().num_states

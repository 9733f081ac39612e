"""The paper's closed forms: what ⟦x⟧ is for B, C and F, written as in the text, on machines built by hand."""

from __future__ import annotations

import random
from functools import reduce

import pytest

from rrnn.semirings import SEMIRINGS
from rrnn.wfsa import EPSILON, WFSA

SIGMA = "abcd"
rng = random.Random(0)
PHI1, PHI2 = ({a: rng.random() for a in SIGMA} for _ in range(2))
MU1, MU2 = ({a: rng.uniform(-1, 1) for a in SIGMA} for _ in range(2))
GAMMA, RHO1, RHO2 = 0.3, 0.6, 0.8
STRINGS = ["".join(rng.choices(SIGMA, k=k)) for k in (1, 2, 3, 5, 8, 13)]


@pytest.mark.parametrize("semiring", ["real", "max-plus"])
def test_b(semiring: str) -> None:
    """Example 5: ⊕_i (μ(x_i) ⊗ ⊗_{j>i} φ(x_j)) ⊕ μ(x_n), and 0̄ for the empty string."""
    ring = SEMIRINGS[semiring]
    arcs = [
        arc
        for a in SIGMA
        for arc in (("q0", a, "q0", ring.one), ("q0", a, "q1", MU1[a]), ("q1", a, "q1", PHI1[a]))
    ]
    machine = WFSA(semiring, alphabet=SIGMA, arcs=arcs, initial={"q0": ring.one}, final={"q1": ring.one})
    assert machine.score("").item() == ring.zero
    for x in STRINGS:
        terms = [reduce(ring.times, (PHI1[a] for a in x[i + 1 :]), MU1[x[i]]) for i in range(len(x))]
        assert machine.score(x).item() == pytest.approx(ring.sum(terms), rel=1e-13)
        if semiring == "real":  # and the recurrence c_t = f_t c_{t−1} + u_t, of which it is the unrolling
            c = 0.0
            for a, score in zip(x, machine.prefix_scores(x)[1:].tolist(), strict=True):
                c = PHI1[a] * c + MU1[a]
                assert score == pytest.approx(c, rel=1e-13)


def test_c() -> None:
    """C⟦x_:t+1⟧ = C⟦x_:t⟧ φ₂(x_{t+1}) + β_t μ₂(x_{t+1}), β_t = β_{t−1} φ₁(x_t) + μ₁(x_t), β_0 = 0."""
    arcs = [
        arc
        for a in SIGMA
        for arc in (
            ("q0", a, "q0", 1.0),
            ("q0", a, "q1", MU1[a]),
            ("q1", a, "q1", PHI1[a]),
            ("q1", a, "q2", MU2[a]),
            ("q2", a, "q2", PHI2[a]),
        )
    ]
    machine = WFSA(alphabet=SIGMA, arcs=arcs, initial={"q0": 1.0}, final={"q2": 1.0})
    for x in STRINGS:
        score = beta = 0.0
        for a, got in zip(x, machine.prefix_scores(x)[1:].tolist(), strict=True):
            score = score * PHI2[a] + beta * MU2[a]
            beta = beta * PHI1[a] + MU1[a]
            assert got == pytest.approx(score, rel=1e-12, abs=1e-15)


def test_f() -> None:
    """The z-equations, with λ(q0) = 1: z⁰_t = 1, and z³_0 = γ, so that ⟦x_1⟧ = ρ₁μ₁(x_1) + ρ₂γμ₂(x_1)."""
    arcs = [
        arc
        for a in SIGMA
        for arc in (
            ("q0", a, "q0", 1.0),
            ("q0", a, "q1", MU1[a]),
            ("q1", a, "q1", PHI1[a]),
            ("q1", a, "q2", MU2[a]),
            ("q3", a, "q2", MU2[a]),
            ("q2", a, "q2", PHI2[a]),
        )
    ]
    arcs.append(("q0", EPSILON, "q3", GAMMA))
    machine = WFSA(alphabet=SIGMA, arcs=arcs, initial={"q0": 1.0}, final={"q1": RHO1, "q2": RHO2})
    for x in STRINGS:
        z0, z1, z2, z3 = 1.0, 0.0, 0.0, GAMMA
        first, *scores = machine.prefix_scores(x).tolist()
        assert first == 0.0
        assert scores[0] == pytest.approx(RHO1 * MU1[x[0]] + RHO2 * GAMMA * MU2[x[0]])
        for a, got in zip(x, scores, strict=True):
            z1, z2 = z1 * PHI1[a] + z0 * MU1[a], z2 * PHI2[a] + (z1 + z3) * MU2[a]
            z3 = z0 * GAMMA
            assert got == pytest.approx(RHO1 * z1 + RHO2 * z2, rel=1e-12, abs=1e-15)
        table = machine.forward(x)[-1].tolist()
        assert table == pytest.approx([z0, z1, z2, z3])

"""The paper's automata against its own equations, each written out here as the paper prints it."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch

from rrnn.errors import AutomatonError, RRNNError, ShapeError
from rrnn.semirings import SEMIRINGS
from rrnn.wfsa import WFSA
from rrnn.zoo.paper_automata import automaton_b, automaton_c, automaton_d, automaton_f, ngram_chain

ALPHABET = "abc"
STRINGS = [string for n in range(6) for string in product(ALPHABET, repeat=n)]
SAMPLE = STRINGS[:: max(1, len(STRINGS) // 60)]


def function(name: str, low: float = -1.0, high: float = 1.0) -> dict[str, float]:
    """A fixed arbitrary weight for every symbol."""
    torch.manual_seed(sum(map(ord, name)))
    values = torch.rand(len(ALPHABET), dtype=torch.float64) * (high - low) + low
    return dict(zip(ALPHABET, values.tolist(), strict=True))


def weight(semiring: str, name: str) -> dict[str, Any]:
    non_negative = semiring in ("max-times", "counting", "boolean")
    raw = function(name, *((0.0, 2.0) if non_negative else (-2.0, 1.0)))
    other = {"counting": round, "boolean": lambda w: float(w > 1), "complex": lambda w: complex(w, 0.5 - w)}
    return {s: other.get(semiring, float)(w) for s, w in raw.items()}


def prefixes(machine: WFSA, string: tuple[str, ...]) -> list[float]:
    return machine.semiring.numbers(machine.prefix_scores(string))


def same(got: list[float], expected: list[float]) -> None:
    assert len(got) == len(expected)
    for x, y in zip(got, expected, strict=True):
        assert x == y or math.isclose(x, y, rel_tol=1e-12, abs_tol=1e-13), (got, expected)


@pytest.mark.parametrize("name", SEMIRINGS)
def test_b_equals_its_closed_form(name: str) -> None:
    """⟦x⟧ = ⊕_{i<n} (μ(x_i) ⊗ ⊗_{j>i} φ(x_j)) ⊕ μ(x_n), and 0̄ for the empty string."""
    ring, mu, phi = SEMIRINGS[name], weight(name, "mu"), weight(name, "phi")
    b = automaton_b(ALPHABET, mu, phi, name)
    mu, phi = ({s: ring.check(w) for s, w in function.items()} for function in (mu, phi))
    assert b.states == ("q0", "q1") and b.alphabet == tuple(ALPHABET)
    for x in SAMPLE:
        n = len(x)
        closed = ring.sum(ring.product([mu[x[i]], *(phi[x[j]] for j in range(i + 1, n))]) for i in range(n))
        assert ring.close(ring.numbers(b.score(x)), closed, 1e-12)
        assert ring.close(b.score_by_paths(x), closed, 1e-12)
    assert ring.numbers(b.score(())) == ring.zero


def test_b_is_the_max_plus_recurrence() -> None:
    """The paper's Example with max-plus: c_t = max(f_t + c_{t−1}, u_t)."""
    f, u = function("f", -3.0, 0.0), function("u", -2.0, 2.0)
    b = automaton_b(ALPHABET, u.__getitem__, f.__getitem__, "max-plus")
    for x in SAMPLE:
        c, expected = -math.inf, [-math.inf]
        for symbol in x:
            c = max(f[symbol] + c, u[symbol])
            expected.append(c)
        same(prefixes(b, x), expected)


def test_c_equals_its_inductive_form() -> None:
    """C⟦x_:t+1⟧ = C⟦x_:t⟧ φ₂(x_{t+1}) + β_t μ₂(x_{t+1}), with β_t = β_{t−1} φ₁(x_t) + μ₁(x_t) and β₀ = 0."""
    mu1, phi1, mu2, phi2 = (function(name) for name in ("mu1", "phi1", "mu2", "phi2"))
    c = automaton_c(ALPHABET, mu1, phi1, mu2, phi2)
    assert c.states == ("q0", "q1", "q2")
    for x in SAMPLE:
        score, beta, expected = 0.0, 0.0, [0.0]
        for t, symbol in enumerate(x):
            score = score * phi2[symbol] + beta * mu2[symbol]
            beta = beta * phi1[symbol] + mu1[symbol]
            expected.append(score)
            unrolled = sum(
                mu1[x[j]] * math.prod(phi1[x[k]] for k in range(j + 1, t + 1)) for j in range(t + 1)
            )
            assert math.isclose(beta, unrolled, abs_tol=1e-12)
        same(prefixes(c, x), expected)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["real", "log", "max-plus", "counting"])
def test_chain_equals_the_ngram_recurrence(name: str, n: int) -> None:
    """z⁽ʲ⁾_t = z⁽ʲ⁾_{t−1} ⊗ φ(x_t) ⊕ z⁽ʲ⁻¹⁾_{t−1} ⊗ μ_j(x_t) with z⁽⁰⁾ = 1̄: n-gram RCNN."""
    ring = SEMIRINGS[name]
    mus, phi = [weight(name, f"mu{j}") for j in range(n)], weight(name, "phi")
    shared = ngram_chain(ALPHABET, mus, phi, name)
    assert shared.num_states == n + 1
    assert shared.same_as(ngram_chain(ALPHABET, mus, [phi] * n, name))
    for x in SAMPLE[::3]:
        z = [ring.one] + [ring.zero] * n
        expected = [z[n]]
        for s in x:
            moved = [
                ring.plus(ring.times(z[j], phi[s]), ring.times(z[j - 1], mus[j - 1][s]))
                for j in range(1, n + 1)
            ]
            z = [ring.one, *moved]
            expected.append(z[n])
        same(prefixes(shared, x), expected)


def test_b_and_c_are_chains() -> None:
    mus, phis = [function("m1"), function("m2")], [function("p1"), function("p2")]
    assert automaton_b(ALPHABET, mus[0], phis[0]).same_as(ngram_chain(ALPHABET, mus[:1], phis[:1]))
    assert automaton_c(ALPHABET, mus[0], phis[0], mus[1], phis[1]).same_as(ngram_chain(ALPHABET, mus, phis))


def test_f_equals_its_z_equations() -> None:
    """With λ(q0) = 1 and q3 reachable before the first symbol: c¹₁ = u¹₁ and c²₁ = r·u²₁."""
    mu1, phi1, mu2, phi2 = (function(name) for name in ("mu1", "phi1", "mu2", "phi2"))
    gamma, rho1, rho2 = 0.3, 0.7, -1.2
    f = automaton_f(ALPHABET, mu1, phi1, mu2, phi2, gamma, rho1, rho2)
    assert f.states == ("q0", "q1", "q2", "q3") and f.has_epsilon
    for x in SAMPLE:
        z1, z2, z3 = 0.0, 0.0, gamma
        expected = [0.0]
        for t, s in enumerate(x):
            z1, z2 = z1 * phi1[s] + mu1[s], z2 * phi2[s] + (z1 + z3) * mu2[s]
            if t == 0:
                assert (z1, z2) == (mu1[s], gamma * mu2[s])
            expected.append(rho1 * z1 + rho2 * z2)
        same(prefixes(f, x), expected)
        assert math.isclose(f.score_by_paths(x), expected[-1], rel_tol=1e-12, abs_tol=1e-13)


@pytest.mark.parametrize("name", ["max-plus", "log", "min-plus", "max-times"])
def test_f_over_other_semirings(name: str) -> None:
    ring = SEMIRINGS[name]
    mu1, phi1, mu2, phi2 = (weight(name, function_name) for function_name in ("mu1", "phi1", "mu2", "phi2"))
    f = automaton_f(ALPHABET, mu1, phi1, mu2, phi2, 0.5, 0.25, 0.75, name)
    for x in SAMPLE[::3]:
        z1, z2 = ring.zero, ring.zero
        for s in x:
            reach = ring.times(ring.plus(z1, 0.5), mu2[s])
            z1, z2 = ring.plus(ring.times(z1, phi1[s]), mu1[s]), ring.plus(ring.times(z2, phi2[s]), reach)
        expected = ring.plus(ring.times(0.25, z1), ring.times(0.75, z2))
        assert ring.close(f.score(x).item(), expected, 1e-12)


@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_d_equals_isan(d: int) -> None:
    """c_t = W_{x_t} c_{t−1} + b_{x_t}, with 2d states of which the second half is initial."""
    torch.manual_seed(d)
    W = {s: torch.randn(d, d, dtype=torch.float64) for s in ALPHABET}
    b = {s: torch.randn(d, dtype=torch.float64) for s in ALPHABET}
    machines = automaton_d(ALPHABET, W, b)
    assert len(machines) == d
    for i, machine in enumerate(machines):
        assert machine.states == tuple(f"q{k}" for k in range(1, 2 * d + 1))
        assert list(machine.initial) == [f"q{k}" for k in range(d + 1, 2 * d + 1)]
        assert list(machine.final) == [f"q{i + 1}"]
    for x in SAMPLE[::2]:
        c, expected = torch.zeros(d, dtype=torch.float64), [torch.zeros(d, dtype=torch.float64)]
        for s in x:
            c = W[s] @ c + b[s]
            expected.append(c)
        got = torch.stack([m.prefix_scores(x) for m in machines], 1)
        torch.testing.assert_close(got, torch.stack(expected), rtol=1e-12, atol=1e-12)


def test_a_linear_elman_network_is_d() -> None:
    """The paper's corollary: c_t = W c_{t−1} + U v_t + b, one W for all symbols."""
    torch.manual_seed(0)
    W, U, b = (torch.randn(*shape, dtype=torch.float64) for shape in ((2, 2), (2, 3), (2,)))
    vectors = {s: torch.randn(3, dtype=torch.float64) for s in ALPHABET}
    machines = automaton_d(ALPHABET, lambda s: W, lambda s: U @ vectors[s] + b)
    c = torch.zeros(2, dtype=torch.float64)
    for s in "abcacb":
        c = W @ c + U @ vectors[s] + b
    torch.testing.assert_close(torch.stack([m.score("abcacb") for m in machines]), c)


def test_weight_functions_in_every_form() -> None:
    mu, phi = function("mu"), 0.5
    expected = automaton_b(ALPHABET, mu, dict.fromkeys(ALPHABET, phi))
    assert automaton_b(ALPHABET, mu.__getitem__, phi).same_as(expected)
    assert automaton_b(iter(ALPHABET), mu, lambda s: phi).same_as(expected)
    assert automaton_b(ALPHABET, mu, torch.tensor(phi, dtype=torch.float64)).same_as(expected)


def gradient_of(build: Callable[..., WFSA], **weights: torch.Tensor) -> dict[str, torch.Tensor]:
    score = build(**weights).score("abca")
    return dict(zip(weights, torch.autograd.grad(score, list(weights.values())), strict=True))


def test_gradients_reach_the_weight_functions() -> None:
    """dF/dγ and dF/dρ₁ by hand, dB/dμ by finite differences."""
    mu = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64, requires_grad=True)
    gamma, rho1 = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (0.4, 0.9))

    def build(mu: torch.Tensor, gamma: torch.Tensor, rho1: torch.Tensor) -> WFSA:
        weights = dict(zip(ALPHABET, mu, strict=True))
        return automaton_f(ALPHABET, weights, 0.5, weights, 0.6, gamma, rho1, 1.0)

    slopes = gradient_of(build, mu=mu, gamma=gamma, rho1=rho1)
    unigrams = automaton_b(ALPHABET, dict(zip(ALPHABET, mu.tolist(), strict=True)), 0.5).score("abca")
    skipped = automaton_b(ALPHABET, dict(zip(ALPHABET, mu.tolist(), strict=True)), 0.6).score("abca")
    assert torch.isclose(slopes["rho1"], unigrams) and torch.isclose(slopes["gamma"], skipped)
    assert torch.autograd.gradcheck(lambda m, g, r: build(m, g, r).score("abca"), (mu, gamma, rho1))

    W = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)
    b = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)

    def isan(W: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        machines = automaton_d(ALPHABET, lambda s: W[ALPHABET.index(s)], lambda s: b[ALPHABET.index(s)])
        return torch.stack([m.score("abca") for m in machines])

    assert torch.autograd.gradcheck(isan, (W, b))


def test_errors() -> None:
    with pytest.raises(AutomatonError, match="'c' has none"):
        automaton_b(ALPHABET, {"a": 1.0, "b": 2.0}, 0.5)
    with pytest.raises(AutomatonError, match="at least one symbol"):
        automaton_b("", 1.0, 1.0)
    with pytest.raises(AutomatonError, match="2 μ and 1 φ"):
        ngram_chain(ALPHABET, [1.0, 1.0], [0.5])
    with pytest.raises(AutomatonError, match="n ≥ 1"):
        ngram_chain(ALPHABET, [], [])
    with pytest.raises(ShapeError, match="'b' has"):
        automaton_d("ab", {"a": torch.eye(2), "b": torch.eye(3)}, {"a": torch.ones(2), "b": torch.ones(2)})
    with pytest.raises(AutomatonError, match="W is a callable or a mapping"):
        automaton_d("ab", torch.eye(2), {"a": torch.ones(2)})
    with pytest.raises(RRNNError):
        automaton_b(ALPHABET, math.nan, 0.5)
    with pytest.raises(RRNNError):
        automaton_b(ALPHABET, -1.0, 0.5, "max-times")

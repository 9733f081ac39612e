"""The paper's automata with given weight functions: B, C, the n-gram chain, D₁ … D_d and F.

B, C, F and the chain are the cells of the zoo with given weights in the place of the learned ones. A weight function
gives every symbol its weight: a callable (`mu(symbol)`), a mapping (`mu[symbol]`), or one number or 0-d tensor for all
symbols. Tensors keep their graph. States are named as in the paper, q₀ being `"q0"`; every q₀ (and every initial state
of D) loops on 1̄, so that a pattern may begin at any position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rrnn.automata import Cell, Expr, one, parameter, sigmoid
from rrnn.errors import AutomatonError, ShapeError
from rrnn.semirings import Semiring, get_semiring
from rrnn.wfsa import WFSA, checks
from rrnn.wfsa.instantiate import with_weights
from rrnn.zoo.rrnn import b as cell_b
from rrnn.zoo.rrnn import c as cell_c
from rrnn.zoo.rrnn import chain, gates
from rrnn.zoo.rrnn import f as cell_f

WeightFunction = Callable[[Any], Any] | Mapping[Any, Any] | float | Tensor


def automaton_b(
    alphabet: Iterable[Any], mu: WeightFunction, phi: WeightFunction, semiring: str | Semiring = "real"
) -> WFSA:
    """Return B, soft unigrams: q₀ —μ→ q₁, with φ looping on q₁.

    Its prefix scores are c_t = φ(x_t) ⊗ c_{t−1} ⊕ μ(x_t).
    """
    phi_expr, mu_expr = gates()
    return _with_functions(cell_b(), alphabet, {mu_expr: mu, phi_expr: phi}, semiring)


def automaton_c(
    alphabet: Iterable[Any],
    mu1: WeightFunction,
    phi1: WeightFunction,
    mu2: WeightFunction,
    phi2: WeightFunction,
    semiring: str | Semiring = "real",
) -> WFSA:
    """Return C, soft bigrams with gaps: q₀ —μ₁→ q₁ —μ₂→ q₂, with φ₁ and φ₂ looping on q₁ and q₂."""
    return _with_functions(cell_c(), alphabet, _gate_functions([mu1, mu2], [phi1, phi2]), semiring)


def ngram_chain(
    alphabet: Iterable[Any],
    mus: Sequence[WeightFunction],
    phis: Sequence[WeightFunction] | WeightFunction,
    semiring: str | Semiring = "real",
) -> WFSA:
    """Return the n+1 states for n-grams with gaps: q_{j−1} —μ_j→ q_j, φ_j looping on q_j, q_n final.

    z⁽ʲ⁾_t = z⁽ʲ⁾_{t−1} ⊗ φ_j(x_t) ⊕ z⁽ʲ⁻¹⁾_{t−1} ⊗ μ_j(x_t) with z⁽⁰⁾ = 1̄. One φ may serve all, as in RCNN.
    """
    loops = list(phis) if isinstance(phis, Sequence) else [phis] * len(mus)
    if not mus or len(mus) != len(loops):
        raise AutomatonError(
            f"an n-gram chain has n ≥ 1 functions μ and as many φ (or one φ for all); "
            f"got {len(mus)} μ and {len(loops)} φ"
        )
    return _with_functions(chain(len(mus)), alphabet, _gate_functions(mus, loops), semiring)


def automaton_f(
    alphabet: Iterable[Any],
    mu1: WeightFunction,
    phi1: WeightFunction,
    mu2: WeightFunction,
    phi2: WeightFunction,
    gamma: Any,
    rho1: Any,
    rho2: Any,
    semiring: str | Semiring = "real",
) -> WFSA:
    """Return F, unigrams and bigrams together: C with q₁ final too, and q₀ —ε/γ→ q₃ —μ₂→ q₂ to skip the first word.

    The paper's equations for F need λ(q₀) = 1̄ and q₃ reachable before the first symbol, and so it is here:
    c¹₁ = u¹₁ and c²₁ = r·u²₁.
    """
    constants = {
        sigmoid(parameter(name)): value for name, value in (("r", gamma), ("p1", rho1), ("p2", rho2))
    }
    functions = _gate_functions([mu1, mu2], [phi1, phi2])
    return _with_functions(cell_f(), alphabet, functions | constants, semiring)


def _gate_functions(mus: Sequence[Any], phis: Sequence[Any]) -> dict[Expr, Any]:
    """Return the functions by the expressions of the cells for which they stand: gates 1, 2, …"""
    functions: dict[Expr, Any] = {}
    for j, (mu, phi) in enumerate(zip(mus, phis, strict=True), 1):
        phi_expr, mu_expr = gates(str(j))
        functions |= {mu_expr: mu, phi_expr: phi}
    return functions


def _with_functions(
    cell: Cell, alphabet: Iterable[Any], functions: Mapping[Expr, Any], semiring: str | Semiring
) -> WFSA:
    """Return the WFSA of a cell with given functions in the place of the expressions of its weights."""
    ring = get_semiring(semiring)

    def weight(expr: Expr, symbol: Any) -> Any:
        return ring.one if expr == one else _value(functions[expr], symbol)

    return with_weights(cell, alphabet, weight, ring)


# ---- D: units that mix, so no cell -------------------------------------------------------------------------


def automaton_d(
    alphabet: Iterable[Any],
    W: Any,
    b: Any,
    semiring: str | Semiring = "real",
    *,
    units: Iterable[int] | None = None,
) -> tuple[WFSA, ...]:
    """Return D₁ … D_d, one machine for each dimension of ISAN's recurrence, or only those of the `units`, from 0.

    Their prefix scores are c_t = W_{x_t} c_{t−1} + b_{x_t}.
    `W` and `b` give each symbol a (d, d) matrix and a (d,) vector (callables or mappings). The machines share
    their 2d states: q₁ … q_d hold c, and q_{d+1} … q_{2d} are initial and feed it with b; D_i ends in q_i.
    """
    ring, symbols = get_semiring(semiring), checks.alphabet(alphabet)
    matrices = [_array(ring, W, s, "W") for s in symbols]
    vectors = [_array(ring, b, s, "b") for s in symbols]
    d, rest = vectors[0].shape[0] if vectors[0].dim() else 0, ring.shape
    for symbol, matrix, vector in zip(symbols, matrices, vectors, strict=True):
        if tuple(matrix.shape) != (d, d, *rest) or tuple(vector.shape) != (d, *rest):
            raise ShapeError(
                f"W and b give every symbol a (d, d) matrix and a (d,) vector of one d; "
                f"{symbol!r} has {tuple(matrix.shape)} and {tuple(vector.shape)}, b of the first has d = {d}"
            )
    # One symbol's arcs, in this order: W from q_i to q_j (entry [j, i]), b from q_{j+d} to q_j, loops on 1̄.
    i, j = torch.meshgrid(torch.arange(d), torch.arange(d), indexing="ij")
    low, high = torch.arange(d), torch.arange(d, 2 * d)
    source = torch.cat([i.flatten(), high, high]).repeat(len(symbols))
    target = torch.cat([j.flatten(), low, high]).repeat(len(symbols))
    symbol = torch.arange(len(symbols)).repeat_interleave(d * d + 2 * d)
    weights = [
        torch.cat([matrix.transpose(0, 1).flatten(0, 1), vector, ring.ones(d)])
        for matrix, vector in zip(matrices, vectors, strict=True)
    ]
    weight = torch.cat(weights)
    initial = torch.cat([ring.zeros(d), ring.ones(d)])
    machines: list[WFSA] = []
    for dimension in range(d) if units is None else units:
        final = ring.zeros(2 * d).index_copy(0, torch.tensor([dimension]), ring.ones(1))
        names = [f"q{k}" for k in range(1, 2 * d + 1)]
        machines.append(
            WFSA.from_tensors(ring, symbols, names, source, symbol, target, weight, initial, final)
        )
    return tuple(machines)


def _value(function: Any, symbol: Any) -> Any:
    if isinstance(function, Mapping):
        if symbol not in function:
            raise AutomatonError(
                f"a weight function gives every symbol of the alphabet a weight; {symbol!r} has none. "
                "Add it to the mapping, or leave it out of the alphabet."
            )
        return function[symbol]
    return function(symbol) if callable(function) and not isinstance(function, Tensor) else function


def _array(ring: Semiring, function: Any, symbol: Any, what: str) -> Tensor:
    if not callable(function) and not isinstance(function, Mapping):
        raise AutomatonError(f"{what} is a callable or a mapping from symbol to array; got {function!r}")
    return ring.tensor(_value(function, symbol), ring.dtype)

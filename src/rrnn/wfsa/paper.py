"""The paper's automata over given weight functions: B, C, the n-gram chain, D₁ … D_d and F.

A weight function gives every symbol its weight: a callable (`mu(symbol)`), a mapping (`mu[symbol]`), or one
number or 0-d tensor for all symbols. Tensors keep their graph. States are named as in the paper, q₀ being
`"q0"`; every q₀ (and every initial state of D) loops on 1̄, so that a pattern may begin at any position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rrnn.errors import AutomatonError, ShapeError
from rrnn.semirings import Semiring, get_semiring
from rrnn.wfsa import checks
from rrnn.wfsa.machine import WFSA
from rrnn.wfsa.symbols import EPSILON, Symbol

WeightFunction = Callable[[Any], Any] | Mapping[Any, Any] | float | Tensor
ArcTuple = tuple[str, Any, str, Any]


def automaton_b(
    alphabet: Iterable[Symbol], mu: WeightFunction, phi: WeightFunction, semiring: str | Semiring = "real"
) -> WFSA:
    """B, soft unigrams: q₀ —μ→ q₁, with φ looping on q₁. Its prefix scores are c = φ(x_t)⊗c' ⊕ μ(x_t)."""
    return ngram_chain(alphabet, [mu], [phi], semiring)


def automaton_c(
    alphabet: Iterable[Symbol],
    mu1: WeightFunction,
    phi1: WeightFunction,
    mu2: WeightFunction,
    phi2: WeightFunction,
    semiring: str | Semiring = "real",
) -> WFSA:
    """C, soft bigrams with gaps: q₀ —μ₁→ q₁ —μ₂→ q₂, with φ₁ and φ₂ looping on q₁ and q₂."""
    return ngram_chain(alphabet, [mu1, mu2], [phi1, phi2], semiring)


def ngram_chain(
    alphabet: Iterable[Symbol],
    mus: Sequence[WeightFunction],
    phis: Sequence[WeightFunction] | WeightFunction,
    semiring: str | Semiring = "real",
) -> WFSA:
    """n+1 states for n-grams with gaps: q_{j−1} —μ_j→ q_j, φ_j looping on q_j, q_n final.

    z⁽ʲ⁾_t = z⁽ʲ⁾_{t−1}⊗φ_j(x_t) ⊕ z⁽ʲ⁻¹⁾_{t−1}⊗μ_j(x_t) with z⁽⁰⁾ = 1̄. One φ may serve all, as in RCNN.
    """
    loops = list(phis) if isinstance(phis, Sequence) else [phis] * len(mus)
    if not mus or len(mus) != len(loops):
        raise AutomatonError(
            f"an n-gram chain has n ≥ 1 functions μ and as many φ (or one φ for all); "
            f"got {len(mus)} μ and {len(loops)} φ"
        )
    ring, symbols = get_semiring(semiring), checks.alphabet(alphabet)
    arcs = _arcs("q0", "q0", ring.one, symbols)
    for j, (mu, phi) in enumerate(zip(mus, loops, strict=True), 1):
        arcs += _arcs(f"q{j - 1}", f"q{j}", mu, symbols) + _arcs(f"q{j}", f"q{j}", phi, symbols)
    return WFSA(ring, alphabet=symbols, arcs=arcs, initial={"q0": ring.one}, final={f"q{len(mus)}": ring.one})


def automaton_f(
    alphabet: Iterable[Symbol],
    mu1: WeightFunction,
    phi1: WeightFunction,
    mu2: WeightFunction,
    phi2: WeightFunction,
    gamma: Any,
    rho1: Any,
    rho2: Any,
    semiring: str | Semiring = "real",
) -> WFSA:
    """F, unigrams and bigrams together: C with q₁ final too, and q₀ —ε/γ→ q₃ —μ₂→ q₂ to skip the first word.

    The paper's equations for F need λ(q₀) = 1̄ and q₃ reachable before the first symbol, and so it is here:
    c¹₁ = u¹₁ and c²₁ = r·u²₁.
    """
    ring, symbols = get_semiring(semiring), checks.alphabet(alphabet)
    arcs = (
        _arcs("q0", "q0", ring.one, symbols)
        + _arcs("q0", "q1", mu1, symbols)
        + _arcs("q1", "q1", phi1, symbols)
        + _arcs("q1", "q2", mu2, symbols)
        + _arcs("q2", "q2", phi2, symbols)
        + [("q0", EPSILON, "q3", gamma)]
        + _arcs("q3", "q2", mu2, symbols)
    )
    return WFSA(
        ring,
        alphabet=symbols,
        states=["q0", "q1", "q2", "q3"],
        arcs=arcs,
        initial={"q0": ring.one},
        final={"q1": rho1, "q2": rho2},
    )


def automaton_d(
    alphabet: Iterable[Symbol],
    W: Any,
    b: Any,
    semiring: str | Semiring = "real",
    *,
    units: Iterable[int] | None = None,
) -> tuple[WFSA, ...]:
    """D₁ … D_d, whose prefix scores are ISAN's c_t = W_{x_t} c_{t−1} + b_{x_t}, one machine a dimension; or only those
    of the `units`, counted from 0.

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
        torch.cat([matrix.transpose(0, 1).flatten(0, 1), vector, ring.ones(d, device=vector.device)])
        for matrix, vector in zip(matrices, vectors, strict=True)
    ]
    weight = torch.cat(weights)
    initial = torch.cat([ring.zeros(d), ring.ones(d)]).to(weight.device)
    machines: list[WFSA] = []
    for dimension in range(d) if units is None else units:
        final = ring.zeros(2 * d).index_copy(0, torch.tensor([dimension]), ring.ones(1)).to(weight.device)
        names = [f"q{k}" for k in range(1, 2 * d + 1)]
        machines.append(
            WFSA.from_tensors(ring, symbols, names, source, symbol, target, weight, initial, final)
        )
    return tuple(machines)


def _arcs(source: str, target: str, function: WeightFunction, symbols: Sequence[Any]) -> list[ArcTuple]:
    return [(source, symbol, target, _value(function, symbol)) for symbol in symbols]


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

"""Draw small machines and strings (hypothesis strategies), which shrink to the smallest example that fails."""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import strategies as st

from rrnn.semirings import SEMIRINGS
from rrnn.wfsa import EPSILON, WFSA

DIFFERENTIABLE = [name for name, ring in SEMIRINGS.items() if ring.has_gradient]


def weights(semiring: str, scale: float = 1.0) -> st.SearchStrategy[Any]:
    """Draw weights of a semiring, including 0̄; a smaller `scale` makes the weight of a cycle smaller."""
    ring = SEMIRINGS[semiring]
    if semiring == "counting":
        return st.integers(0, 3)
    if semiring == "boolean":
        return st.sampled_from([0.0, 1.0])
    if ring.components:
        return _several(semiring, scale)
    numbers = {
        "real": st.floats(-1.5 * scale, 1.5 * scale),
        "log": st.floats(-4.0, 1.0).map(lambda w: w if scale == 1.0 else w - 4.0),
        "max-plus": st.floats(-3.0, 2.0 if scale == 1.0 else 0.0),
        "min-plus": st.floats(-2.0 if scale == 1.0 else 0.0, 3.0),
        "max-times": st.floats(0.0, 2.0 if scale == 1.0 else 1.0),
    }[semiring]
    # Numbers near the limits of a float64 have tests of their own.
    return st.one_of(numbers.map(lambda w: 0.0 if abs(w) < 1e-3 else w), st.just(ring.zero))


def _several(semiring: str, scale: float) -> st.SearchStrategy[Any]:
    """Draw weights of the semirings of several components, made from real numbers."""
    reals = weights("real", scale)
    return {
        "complex": st.tuples(reals, reals),
        "expectation": st.tuples(reals, reals),
        "signed-log": reals.map(SEMIRINGS["signed-log"].from_real),
    }[semiring]


@st.composite
def machines(draw: st.DrawFn, semiring: str, *, epsilon: str = "none", states: int = 4) -> WFSA:
    """Draw a machine; `epsilon` is "none", "acyclic" or "cyclic".

    In a cyclic machine the star exists, and at most one ε-arc leaves a state, so that paths can be listed up to a cap.
    """
    n = draw(st.integers(1, states))
    alphabet = "ab"
    places = list(product(range(n), alphabet, range(n)))
    arcs = draw(st.dictionaries(st.sampled_from(places), weights(semiring), max_size=3 * n))
    if epsilon == "acyclic" and n > 1:
        pairs = [(q, EPSILON, p) for q, p in product(range(n), repeat=2) if q < p]
        silent = draw(st.dictionaries(st.sampled_from(pairs), weights(semiring), max_size=n))
    elif epsilon == "cyclic":
        ways = draw(st.dictionaries(st.integers(0, n - 1), st.integers(0, n - 1), max_size=n))
        small = st.just(0) if semiring == "counting" else weights(semiring, scale=0.03)
        silent = {(q, EPSILON, p): draw(small) for q, p in ways.items()}
    else:
        silent = {}
    ends = st.dictionaries(st.integers(0, n - 1), weights(semiring), max_size=n)
    order = draw(st.permutations(range(n)))  # so that the topological order is not the order of the states
    return WFSA(
        semiring,
        alphabet=alphabet,
        states=range(n),
        arcs=[(order[q], a, order[p], w) for (q, a, p), w in {**arcs, **silent}.items()],
        initial=draw(ends),
        final=draw(ends),
        allow_empty=True,
    )


def strings(longest: int = 5) -> st.SearchStrategy[str]:
    return st.text("ab", max_size=longest)


@st.composite
def machines_and_strings(
    draw: st.DrawFn, *, epsilon: str = "none", longest: int = 5
) -> tuple[WFSA, list[str]]:
    """Draw a machine of any semiring, and a batch of strings for it."""
    semiring = draw(st.sampled_from(sorted(SEMIRINGS)))
    machine = draw(machines(semiring, epsilon=epsilon))
    return machine, draw(st.lists(strings(longest), min_size=1, max_size=5))

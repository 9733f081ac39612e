"""Make random machines of every semiring, and compare their scores."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from itertools import product
from typing import Any

from rrnn.semirings import SEMIRINGS
from rrnn.wfsa import EPSILON, WFSA

# The ranges of arc weights and of ε-weights. The latter are small enough for the star of a short ε-cycle to exist.
_WEIGHTS: dict[str, tuple[float, float]] = {
    "real": (-1.0, 1.0),
    "log": (-3.0, 0.5),
    "max-plus": (-2.0, 2.0),
    "min-plus": (-0.5, 3.0),
    "max-times": (0.0, 1.5),
}
_EPSILONS: dict[str, tuple[float, float]] = {
    "real": (-0.2, 0.2),
    "log": (-5.0, -2.5),
    "max-plus": (-2.0, 0.0),
    "min-plus": (0.0, 2.0),
    "max-times": (0.0, 1.0),
}


def random_weight(
    rng: random.Random, semiring: str, ranges: dict[str, tuple[float, float]] = _WEIGHTS
) -> Any:
    if semiring == "counting":
        return rng.randint(1, 3)
    if SEMIRINGS[semiring].components:
        low, high = ranges["real"]
        a, b = rng.uniform(low, high), rng.uniform(low, high)
        return SEMIRINGS[semiring].from_real(a) if semiring == "signed-log" else (a, b)
    return 1.0 if semiring == "boolean" else rng.uniform(*ranges[semiring])


def random_machine(
    seed: int,
    semiring: str = "real",
    *,
    states: int = 4,
    alphabet: str = "ab",
    density: float = 0.4,
    epsilon: str = "none",
) -> WFSA:
    """Return a random machine; `epsilon` is "none", "acyclic" (ε-arcs lead to later states only) or "cyclic"."""
    rng = random.Random(f"{seed} {semiring}")
    names = [f"q{i}" for i in range(states)]
    arcs = [
        (q, symbol, p, random_weight(rng, semiring))
        for q, symbol, p in product(names, alphabet, names)
        if rng.random() < density
    ]
    if epsilon != "none":
        arcs += [
            (names[i], EPSILON, names[j], random_weight(rng, semiring, _EPSILONS))
            for i, j in product(range(states), repeat=2)
            if (i < j if epsilon == "acyclic" else i != j) and rng.random() < density
        ]
    initial = {q: random_weight(rng, semiring) for q in rng.sample(names, 2)}
    final = {q: random_weight(rng, semiring) for q in rng.sample(names, 2)}
    return WFSA(
        semiring, alphabet=alphabet, states=names, arcs=arcs, initial=initial, final=final, allow_empty=True
    )


def all_strings(alphabet: Iterable[Any], longest: int) -> list[tuple[Any, ...]]:
    symbols = list(alphabet)
    return [string for n in range(longest + 1) for string in product(symbols, repeat=n)]


def score(machine: WFSA, string: tuple[Any, ...]) -> Any:
    """Return the score of a string as an element; it is zero if the machine does not know a symbol."""
    if not set(string) <= set(machine.alphabet):
        return machine.semiring.zero
    return machine.semiring.numbers(machine.score(string))


def scores(machine: WFSA, strings: list[tuple[Any, ...]]) -> list[Any]:
    """Return the scores of many strings as elements; strings may contain symbols that the machine does not know."""
    known = [string for string in strings if set(string) <= set(machine.alphabet)]
    found = dict(zip(known, machine.semiring.numbers(machine.score(known)), strict=True))
    return [found.get(string, machine.semiring.zero) for string in strings]


def close(semiring: str, a: Any, b: Any, tolerance: float = 1e-9) -> bool:
    """Return whether two elements are equal up to rounding.

    Weights of signed-log are compared as the real numbers they stand for: where paths cancel, the sign and the
    logarithm of the small rest are arbitrary.
    """
    ring = SEMIRINGS[semiring]
    if semiring == "signed-log" and max(a[1], b[1]) < 300:
        return math.isclose(ring.to_real(a), ring.to_real(b), rel_tol=tolerance, abs_tol=tolerance)
    pairs = zip(ring.numbers_of(a), ring.numbers_of(b), strict=True)
    return ring.close(a, b, tolerance) or all(math.isclose(x, y, rel_tol=tolerance) for x, y in pairs)

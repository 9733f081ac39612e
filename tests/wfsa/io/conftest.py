"""Random machines that every format is tried on."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from rrnn.semirings import get_semiring
from rrnn.wfsa.machine import EPSILON, WFSA

Machines = Callable[..., WFSA]


def weight(name: str, rng: random.Random) -> Any:
    match name:
        case "complex" | "expectation":
            return weight("real", rng), weight("real", rng)
        case "signed-log":
            return rng.choice([-1.0, 1.0]), rng.uniform(-2000, 2000)
        case "real":
            return rng.choice([-1, 1, 1, 1]) * math.exp(rng.uniform(-30, 3))
        case "max-times":
            return math.exp(rng.uniform(-30, 3))
        case "boolean":
            return 1.0
        case "counting":
            return rng.choice([1, 2, 3, 10**9, 2**53 + 1, 2**62 + 1])
        case _:
            return rng.uniform(-20, 20)


@pytest.fixture
def machines() -> Machines:
    """`machines(semiring, seed, …)`: a random WFSA; ε-arcs are acyclic, some weights are zero or one."""

    def make(
        semiring: str,
        seed: int = 0,
        *,
        alphabet: tuple[object, ...] = (1, 2, 3),
        initials: int = 2,
        non_negative: bool = False,
        extremes: bool = True,
    ) -> WFSA:
        rng, ring = random.Random(seed), get_semiring(semiring)
        size = rng.randint(3, 6)

        def draw() -> Any:
            special = rng.random() if extremes else 1.0
            if special < 0.2:
                return ring.zero if special < 0.1 else ring.one
            value = weight(ring.name, rng)
            return abs(value) if non_negative else value

        arcs = [
            (q, a, r, draw())
            for q in range(size)
            for a in (*alphabet, EPSILON)
            for r in range(size)
            if rng.random() < 0.3 and (a is not EPSILON or q < r)
        ]
        initial = (
            dict.fromkeys(range(initials), ring.one)
            if initials == 1
            else {q: draw() for q in range(initials)}
        )
        final = {q: draw() for q in range(size) if rng.random() < 0.6}
        return WFSA(
            ring,
            alphabet=alphabet,
            arcs=arcs,
            states=range(size),
            initial={**initial, 0: ring.one if initials == 1 else weight(ring.name, rng)},
            final=final,
            allow_empty=True,
        )

    return make

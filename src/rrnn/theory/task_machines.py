"""Machines that solve small tasks over the symbols a and b: counting, memory of the first symbol, tracking S₃."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Literal

from rrnn.wfsa import WFSA

Kind = Literal["exact", "count", "support"]
A, B = "a", "b"


@dataclass(frozen=True)
class Form:
    """A machine that solves a task.

    Its score is 1 on the language and 0 elsewhere ("exact"), counts so that a threshold separates ("count"), or is
    positive exactly on the language whatever the positive weights are ("support").
    """

    kind: Kind
    states: int
    arcs: Mapping[tuple[int, str, int], complex]
    final: Mapping[int, float]
    angle: float = 0.0
    """The angle of the rotation in a machine over the complex numbers."""
    real_part: Form | None = None
    """The real part of the scores of such a machine, as a machine over the reals."""

    @property
    def machine(self) -> WFSA:
        """The machine over the reals."""
        if self.real_part is not None:
            return self.real_part.machine
        return WFSA(
            "real",
            alphabet=(A, B),
            states=range(self.states),
            arcs=[(p, s, q, w.real) for (p, s, q), w in self.arcs.items()],
            initial={0: 1.0},
            final=dict(self.final),
        )


def permuting(moves: Mapping[str, Sequence[int]]) -> Form:
    """Return a machine whose symbols permute its states; it accepts if the first state is back in its place."""
    arcs = {(i, s, j): 1.0 for s, move in moves.items() for i, j in enumerate(move)}
    return Form("exact", len(next(iter(moves.values()))), arcs, {0: 1.0})


def ring(k: int) -> Form:
    """Return the machine that accepts if the number of a's is divisible by k."""
    return permuting({A: [(i + 1) % k for i in range(k)], B: list(range(k))})


def chain(k: int, kind: Kind) -> Form:
    """Return a machine for "at least k a's": an always-on start, and k states behind each other."""
    arcs: dict[tuple[int, str, int], float] = {(0, A, 0): 1.0, (0, B, 0): 1.0}
    for i in range(1, k + 1):
        arcs |= {(i - 1, A, i): 1.0, (i, B, i): 1.0}
        if kind == "support":
            arcs[i, A, i] = 1.0
    return Form(kind, k + 1, arcs, {k: 1.0})


S3 = {A: (1, 0, 2), B: (1, 2, 0)}
"""Two generators of S₃: a exchanges two points, b moves all three in a circle."""


def _regular() -> Form:
    """Return the machine of the word problem of S₃: its states are the six elements."""
    elements = sorted(permutations(range(3)))
    place = {g: i for i, g in enumerate(elements)}
    moves = {s: [place[tuple(move[x] for x in g)] for g in elements] for s, move in S3.items()}
    return permuting(moves)


_COUNTER = {(0, A, 0): 1.0, (0, B, 0): 1.0, (0, A, 1): 1.0, (1, A, 1): 1.0, (1, B, 1): 1.0}
_ALTERNATING = {(0, A, 0): 1.0, (0, B, 0): 1.0, (0, A, 1): 1.0, (1, A, 1): -1.0, (1, B, 1): 1.0}


def rotations(k: int) -> list[Form]:
    """Return machines over the complex numbers whose scores' real parts tell the number of a's modulo k.

    In the first, a rotates one state, with the scores ωⁿ; in the second, that state is behind an always-on start, and
    the scores are 1 − ωⁿ.
    """
    angle = 2 * math.pi / k
    turn, circle = complex(math.cos(angle), math.sin(angle)), ring(k).arcs
    parts = [{j: x + y * math.cos(j * angle) for j in range(k)} for x, y in ((0, 1), (1, -1))]
    pure, behind = (Form("count", k, circle, final) for final in parts)
    arcs = {(0, A, 0): 1.0, (0, B, 0): 1.0, (0, A, 1): 1 - turn, (1, A, 1): turn, (1, B, 1): 1.0}
    return [
        Form("count", 1, {(0, A, 0): turn, (0, B, 0): 1.0}, {0: 1.0}, angle, pure),
        Form("count", 2, arcs, {1: 1.0}, angle, behind),
    ]


def forms_of(task: str) -> list[Form]:
    """Return the machines that solve a task, the best kind first."""
    name, _, number = task.partition(" ")
    match name:
        case "modulo":
            k = int(number)
            odd = [Form("exact", 2, _ALTERNATING, {1: 1.0})] if k == 2 else []
            return [ring(k), *odd, *rotations(k)]
        case "at-least":
            k = int(number)
            return [chain(k, "exact"), Form("count", 2, _COUNTER, {1: 1.0}), chain(k, "support")]
        case "first":
            return [Form("exact", 2, {(0, A, 1): 1.0, (1, A, 1): 1.0, (1, B, 1): 1.0}, {1: 1.0})]
        case "point":
            return [permuting(S3)]
        case "group":
            return [_regular()]
    raise ValueError(task)

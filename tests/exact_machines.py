"""Decide exactly, with fractions, what minimisation and equivalence over the reals decide in floating point."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import gcd, lcm

from rrnn.wfsa import WFSA

Row = list[int]


class Rational:
    """A machine without ε-arcs whose weights are taken as exact numbers.

    λ, ρ and the matrix of each symbol hold integers: each is multiplied by one number, which changes neither the
    number of dimensions nor which scores are 0.
    """

    def __init__(self, *signed: tuple[int, WFSA]) -> None:
        """Take the sum of machines, each times a sign."""
        symbols = list(dict.fromkeys(s for _, machine in signed for s in machine.alphabet))
        n = sum(machine.num_states for _, machine in signed)
        self.alphabet = symbols
        initial, final = [Fraction(0)] * n, [Fraction(0)] * n
        steps = [[[Fraction(0)] * n for _ in range(n)] for _ in symbols]
        first = 0
        for sign, machine in signed:
            place = {q: first + i for i, q in enumerate(machine.states)}
            for q, w in machine.initial.items():
                initial[place[q]] = Fraction(w)
            for q, w in machine.final.items():
                final[place[q]] = sign * Fraction(w)
            for q, symbol, p, w in machine.arcs:
                steps[symbols.index(symbol)][place[q]][place[p]] = Fraction(w)
            first += machine.num_states
        self.initial, self.scale_initial = _whole([initial])
        self.final, self.scale_final = _whole([final])
        self.steps, self.scale_steps = [], []
        for matrix in steps:
            rows, scale = _whole(matrix)
            self.steps.append(rows)
            self.scale_steps.append(scale)

    def scores(self, longest: int) -> list[Fraction]:
        """Return the scores of all strings up to a length, shortest first."""
        level, out = [(self.initial[0], self.scale_initial * self.scale_final)], []
        for length in range(longest + 1):
            out += [scale * sum(x * y for x, y in zip(v, self.final[0], strict=True)) for v, scale in level]
            if length < longest:
                steps = list(zip(self.steps, self.scale_steps, strict=True))
                level = [
                    (_times(v, matrix), scale * factor) for v, scale in level for matrix, factor in steps
                ]
        return out

    def score(self, string: tuple[str, ...]) -> Fraction:
        vector, scale = self.initial[0], self.scale_initial * self.scale_final
        for s in map(self.alphabet.index, string):
            vector, scale = _times(vector, self.steps[s]), scale * self.scale_steps[s]
        return scale * sum(x * y for x, y in zip(vector, self.final[0], strict=True))

    def rank(self) -> int:
        """Return the smallest number of states of a machine with the same scores.

        That is the dimension of the reachable vectors, minus what no continuation of the string distinguishes.
        """
        reached = [v for _, v, new in _explored(self.initial[0], self.steps) if new]
        back = [[list(column) for column in zip(*matrix, strict=True)] for matrix in self.steps]
        seen = [v for _, v, new in _explored(self.final[0], back) if new]
        echelon: list[tuple[int, Row]] = []
        return sum(
            _insert(echelon, [sum(x * y for x, y in zip(v, u, strict=True)) for u in seen]) for v in reached
        )

    def first_nonzero(self) -> tuple[str, ...] | None:
        """Return the first string whose score is not 0: shortest first, then in the order of the alphabet."""
        for string, vector, _ in _explored(self.initial[0], self.steps):
            if sum(x * y for x, y in zip(vector, self.final[0], strict=True)):
                return tuple(self.alphabet[s] for s in string)
        return None


def _whole(rows: list[list[Fraction]]) -> tuple[list[Row], Fraction]:
    """Return fractions as integers, and the number to multiply these by."""
    common = lcm(*(x.denominator for row in rows for x in row))
    numbers = [[int(x * common) for x in row] for row in rows]
    shared = gcd(*(x for row in numbers for x in row)) or 1
    return [[x // shared for x in row] for row in numbers], Fraction(shared, common)


def _times(vector: Row, matrix: list[Row]) -> Row:
    out = [0] * len(vector)
    for value, row in zip(vector, matrix, strict=True):
        if value:
            out = [x + value * w for x, w in zip(out, row, strict=True)]
    return out


def _explored(start: Row, steps: list[list[Row]]) -> Iterator[tuple[tuple[int, ...], Row, bool]]:
    """Yield strings in order, their vectors, and whether each is independent of those before.

    A string whose vector depends on earlier ones is not extended.
    """
    echelon: list[tuple[int, Row]] = []
    level: list[tuple[tuple[int, ...], Row]] = [((), start)]
    while level:
        following: list[tuple[tuple[int, ...], Row]] = []
        for string, vector in level:
            new = _insert(echelon, vector)
            yield string, vector, new
            if new:
                following += [((*string, s), _times(vector, matrix)) for s, matrix in enumerate(steps)]
        level = following


def _insert(echelon: list[tuple[int, Row]], vector: Row) -> bool:
    """Add the vector to an echelon form, by elimination without fractions; return whether it adds a dimension."""
    for pivot, row in echelon:
        if vector[pivot]:
            a, b = row[pivot], vector[pivot]
            vector = [a * x - b * y for x, y in zip(vector, row, strict=True)]
    shared = gcd(*vector)
    if not shared:
        return False
    vector = [x // shared for x in vector]
    echelon.append((next(i for i, x in enumerate(vector) if x), vector))
    return True

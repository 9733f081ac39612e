"""Reduce and compare machines over counting by exact linear algebra, in Python integers and fractions.

Natural numbers are rationals, so whether two machines agree is linear algebra over ℚ, where nothing rounds or
overflows. The smallest machine over ℚ may need fractions or negative weights, though, which are no counts; so a state
is removed only if the weights of the others stay natural numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm
from typing import TypeVar

import torch

from rrnn.errors import AutomatonError
from rrnn.wfsa.algebra import Algebra
from rrnn.wfsa.automaton import indexed_arcs, merged_alphabet
from rrnn.wfsa.symbols import Symbol

LARGEST_WEIGHT = 2**63 - 1
"""The greatest weight that a machine's tensors can hold."""
Vector = list[int]
M = TypeVar("M", bound=Algebra)


@dataclass
class IntegerMachine:
    """Hold a machine without ε-arcs in Python integers."""

    initial: Vector
    steps: list[list[dict[int, int]]]
    """`steps[symbol][source][target]` is the weight of an arc."""
    final: Vector

    def transposed(self) -> IntegerMachine:
        """Return the machine that reads strings from right to left."""
        back: list[list[dict[int, int]]] = [[{} for _ in self.initial] for _ in self.steps]
        for symbol, rows in enumerate(self.steps):
            for source, row in enumerate(rows):
                for target, weight in row.items():
                    back[symbol][target][source] = weight
        return IntegerMachine(self.final, back, self.initial)

    def step(self, vector: Vector, symbol: int) -> Vector:
        """Return the vector times the matrix of a symbol."""
        out = [0] * len(vector)
        for value, row in zip(vector, self.steps[symbol], strict=True):
            if value:
                for target, weight in row.items():
                    out[target] += value * weight
        return out


def without_epsilon(a: M) -> M:
    """Return the machine without ε-arcs, or raise if one of its weights would exceed the range of int64."""
    if not a.has_epsilon:
        return a
    rough = a.with_semiring("real").remove_epsilon()  # cannot wrap around
    greatest = float(torch.cat(rough.weights).max())
    if not greatest < LARGEST_WEIGHT * (1 - 1e-6):
        raise AutomatonError(
            f"removing ε-arcs adds weights, and the sums must stay below 2⁶³, the range of counting's int64; "
            f"here one becomes about {greatest:.3g}. Make the weights smaller, or use the real semiring."
        )
    return a.remove_epsilon()


def reduced(a: M) -> M:
    """Return a machine with exactly the scores of `a` (without ε-arcs) and, where possible, fewer states.

    A state is removed if its future (the scores of all strings read from there) is a sum of the other states' futures
    with natural coefficients: arcs into it then lead to those states instead. The same is done with pasts, and both are
    repeated until no state is removed. Only sums over a basis of the smallest futures are considered, and those that
    would make a weight exceed int64 are not used.
    """
    kept, machine = list(range(a.num_states)), _read(a, a.symbol_index)
    before = None
    while before != len(kept):
        before = len(kept)
        for _ in range(2):
            machine, left = _without_sums(machine)
            kept = [kept[q] for q in left]
            machine = machine.transposed()
    if not kept:  # all scores are 0, but a machine needs a state
        kept, machine = [0], IntegerMachine([0], [[{}] for _ in a.alphabet], [0])
    return _write(a, kept, machine)


def first_difference(a: Algebra, b: Algebra) -> tuple[tuple[Symbol, ...], int] | None:
    """Return the first string whose scores differ, shortest first and then in alphabet order, and by how much.

    This is Tzeng's algorithm over ℚ on machines without ε-arcs: exact and complete.
    """
    index = merged_alphabet(a, b)
    alphabet, one, two = list(index), _read(a, index), _read(b, index)
    n = len(one.initial)
    shifted = [[{p + n: w for p, w in row.items()} for row in rows] for rows in two.steps]
    both = IntegerMachine(
        one.initial + two.initial,
        [[*left, *right] for left, right in zip(one.steps, shifted, strict=True)],
        one.final + [-w for w in two.final],
    )
    for string, vector, _ in _shortlex(both):
        difference = sum(x * w for x, w in zip(vector, both.final, strict=True))
        if difference:
            return tuple(alphabet[s] for s in string), difference
    return None


def exact_rank(a: Algebra) -> int:
    """Return the least number of states of a real machine with the scores of `a`, whose weights are exact numbers.

    Floats are fractions, so this is linear algebra over ℚ. λ, ρ and the matrix of each symbol are multiplied by one
    number each, to make them whole; this does not change the rank. `a` must not have ε-arcs.
    """
    index = a.symbol_index
    steps: list[list[dict[int, Fraction]]] = [[{} for _ in a.states] for _ in index]
    for source, symbol, target, weight in indexed_arcs(a):
        steps[symbol][source][target] = Fraction(weight)
    (initial,), (final,) = (
        _whole([dict(enumerate(map(Fraction, w.tolist())))]) for w in (a.initial_weight, a.final_weight)
    )
    machine = IntegerMachine(list(initial.values()), [_whole(rows) for rows in steps], list(final.values()))
    reached = [vector for _, vector, new in _shortlex(machine) if new]
    seen = [vector for _, vector, new in _shortlex(machine.transposed()) if new]
    echelon: list[tuple[int, Vector]] = []
    return sum(
        _insert(echelon, [sum(x * y for x, y in zip(v, u, strict=True)) for u in seen]) for v in reached
    )


def _whole(rows: list[dict[int, Fraction]]) -> list[dict[int, int]]:
    """Return rows of fractions, all multiplied by their common denominator."""
    common = lcm(*(x.denominator for row in rows for x in row.values()))
    return [{i: int(x * common) for i, x in row.items()} for row in rows]


def _shortlex(machine: IntegerMachine) -> Iterator[tuple[tuple[int, ...], Vector, bool]]:
    """Yield strings x in order, with λT_x and whether it is linearly independent of all vectors before it.

    Only independent ones are extended: extensions of the others depend on extensions of earlier strings.
    """
    echelon: list[tuple[int, Vector]] = []
    level: list[tuple[tuple[int, ...], Vector]] = [((), machine.initial)]
    while level:
        following: list[tuple[tuple[int, ...], Vector]] = []
        for string, vector in level:
            new = _insert(echelon, vector)
            yield string, vector, new
            if new:
                following += [((*string, s), machine.step(vector, s)) for s in range(len(machine.steps))]
        level = following


def _insert(echelon: list[tuple[int, Vector]], vector: Vector) -> bool:
    """Reduce a vector by fraction-free elimination and add what is left; return whether that is not 0."""
    for pivot, row in echelon:
        if vector[pivot]:
            left, right = row[pivot], vector[pivot]
            vector = [left * x - right * y for x, y in zip(vector, row, strict=True)]
            common = gcd(*vector)
            if common > 1:
                vector = [x // common for x in vector]
    pivot = next((i for i, x in enumerate(vector) if x), None)
    if pivot is None:
        return False
    echelon.append((pivot, vector))
    return True


def _without_sums(machine: IntegerMachine) -> tuple[IntegerMachine, list[int]]:
    """Remove states whose future is a natural sum of others' futures; return the machine and the states left."""
    futures = [vector for _, vector, new in _shortlex(machine.transposed()) if new]
    sums = _natural_sums([[vector[q] for vector in futures] for q in range(len(machine.initial))])
    initial, steps = machine.initial[:], [[dict(row) for row in rows] for rows in machine.steps]
    gone = {q for q, parts in sums.items() if _redirect(initial, steps, q, parts)}
    left = [q for q in range(len(initial)) if q not in gone]
    place = {q: i for i, q in enumerate(left)}
    small = IntegerMachine(
        [initial[q] for q in left],
        [[{place[p]: w for p, w in rows[q].items()} for q in left] for rows in steps],
        [machine.final[q] for q in left],
    )
    return small, left


def _natural_sums(rows: list[Vector]) -> dict[int, dict[int, int]]:
    """Return the rows that are a sum of basis rows with natural coefficients, as {row: {basis row: coefficient}}.

    Rows are natural numbers, so a sum is no smaller than its parts: the basis is chosen from the smallest on.
    """
    basis: list[tuple[int, list[Fraction], dict[int, Fraction]]] = []
    sums: dict[int, dict[int, int]] = {}
    for q in sorted(range(len(rows)), key=lambda q: (sum(rows[q]), q)):
        rest, parts = [Fraction(x) for x in rows[q]], {}
        for pivot, vector, made_of in basis:
            if rest[pivot]:
                factor = rest[pivot] / vector[pivot]
                rest = [x - factor * y for x, y in zip(rest, vector, strict=True)]
                for p, share in made_of.items():
                    parts[p] = parts.get(p, Fraction(0)) + factor * share
        pivot = next((i for i, x in enumerate(rest) if x), None)
        if pivot is not None:
            basis.append((pivot, rest, {q: Fraction(1)} | {p: -share for p, share in parts.items()}))
        elif all(share >= 0 and share.denominator == 1 for share in parts.values()):
            sums[q] = {p: int(share) for p, share in parts.items() if share}
    return sums


def _redirect(initial: Vector, steps: list[list[dict[int, int]]], q: int, parts: dict[int, int]) -> bool:
    """Redirect the arcs into state q to its parts, in place; return False if a weight would not fit."""
    rows = [row for matrix in steps for p, row in enumerate(matrix) if p != q and q in row]
    changed = [{p: row.get(p, 0) + row[q] * share for p, share in parts.items()} for row in rows]
    start = {p: initial[p] + initial[q] * share for p, share in parts.items()}
    if any(weight > LARGEST_WEIGHT for values in (start, *changed) for weight in values.values()):
        return False
    for row, values in zip(rows, changed, strict=True):
        row.update(values)
        del row[q]
    for p, weight in start.items():
        initial[p] = weight
    for matrix in steps:
        matrix[q] = {}
    return True


def _read(a: Algebra, symbol_index: dict[Symbol, int]) -> IntegerMachine:
    """Return a machine without ε-arcs in Python integers, with its symbols numbered by `symbol_index`."""
    steps: list[list[dict[int, int]]] = [[{} for _ in a.states] for _ in symbol_index]
    place = [symbol_index[s] for s in a.alphabet]
    for source, symbol, target, weight in indexed_arcs(a):
        if weight:
            steps[place[symbol]][source][target] = weight
    return IntegerMachine(a.initial_weight.tolist(), steps, a.final_weight.tolist())


def _write(a: M, kept: list[int], machine: IntegerMachine) -> M:
    """Return a machine with the semiring, the alphabet and the kept states of `a`."""
    arcs = [
        (source, symbol, target, weight)
        for source in range(len(kept))
        for symbol, matrix in enumerate(machine.steps)
        for target, weight in sorted(matrix[source].items())
    ]
    source, symbol, target, weight = (
        torch.tensor(arcs, dtype=torch.int64).reshape(len(arcs), 4).T.contiguous()
    )
    return a.replace(
        states=[a.states[q] for q in kept],
        source=source,
        symbol=symbol,
        target=target,
        weight=weight,
        initial=torch.tensor(machine.initial, dtype=torch.int64),
        final=torch.tensor(machine.final, dtype=torch.int64),
    )

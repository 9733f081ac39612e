"""The ε-closure: all paths of any length between each two states, and proofs that it exists.

`kleene` computes it by state elimination (Kleene; Lehmann 1977), on matrices of numbers, tensors and instructions.

A proof of convergence takes the semiring and, for each state of a strongly connected component, its arcs inside it as
(target, range of the weight), the weight being an element of ranges. True means proved; False means not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from rrnn.arithmetic import RANGES, Range

if TYPE_CHECKING:
    from torch import Tensor

    from rrnn.semirings.semiring import Semiring


class Matrix(Protocol):
    """A square matrix over a semiring, read and written in blocks of rows × columns."""

    size: int

    def column(self, k: int) -> list[int]:
        """Return the rows whose entry in column k is not 0̄."""
        ...

    def row(self, k: int) -> list[int]:
        """Return the columns whose entry in row k is not 0̄."""
        ...

    def block(self, rows: list[int], columns: list[int]) -> Any: ...
    def put(self, rows: list[int], columns: list[int], block: Any, *, cycles: bool = True) -> None:
        """Write a block; without `cycles`, all of it but the diagonal of the matrix."""
        ...

    def plus(self, a: Any, b: Any) -> Any: ...
    def times(self, a: Any, b: Any) -> Any:
        """Return a ⊗ b of two blocks, entry by entry; one row or column stands for as many as the other has."""
        ...

    def star(self, entry: Any, k: int) -> Any:
        """Return the star of the k-th entry of the diagonal, a block of one."""
        ...


def kleene(matrix: Matrix, *, selective: bool = False) -> None:
    """Turn a matrix A into I ⊕ A ⊕ A² ⊕ …

    States are allowed inside paths one after another; once k is, entry (k, k) has the empty path too. Where ⊕ is
    `selective`, no cycle improves on the empty path, or there would be no closure: none is looked at.
    """
    for k in range(matrix.size):
        into, out = ([p for p in places if p != k] for places in (matrix.column(k), matrix.row(k)))
        around = matrix.star(matrix.block([k], [k]), k)
        first, last = matrix.times(matrix.block(into, [k]), around), matrix.block([k], out)
        if into and out:
            through = matrix.plus(matrix.block(into, out), matrix.times(first, last))
            matrix.put(into, out, through, cycles=not selective)
        matrix.put(into, [k], first)
        matrix.put([k], out, matrix.times(around, last))
        matrix.put([k], [k], around)


class TensorMatrix:
    """A matrix of elements in a tensor (n, n, …), whose further dimensions, if any, go along."""

    def __init__(self, ring: Semiring, entries: Tensor, star: Callable[[Tensor, int], Tensor]) -> None:
        self.ring, self.entries, self._star = ring, entries.clone(), star
        self.size = len(entries)

    def _present(self, entries: Tensor) -> list[int]:
        there = ~self.ring.is_zero(entries.detach())
        return there.view(len(there), -1).any(1).nonzero().flatten().tolist()

    def column(self, k: int) -> list[int]:
        return self._present(self.entries[:, k])

    def row(self, k: int) -> list[int]:
        return self._present(self.entries[k])

    def _place(self, rows: list[int], columns: list[int]) -> tuple[Tensor, Tensor]:
        import torch

        return torch.tensor(rows, dtype=torch.int64)[:, None], torch.tensor(columns, dtype=torch.int64)[None]

    def block(self, rows: list[int], columns: list[int]) -> Tensor:
        return self.entries[self._place(rows, columns)]

    def put(self, rows: list[int], columns: list[int], block: Tensor, *, cycles: bool = True) -> None:
        assert cycles, "on tensors a cycle that improves nothing costs nothing"
        self.entries[self._place(rows, columns)] = block

    def plus(self, a: Tensor, b: Tensor) -> Tensor:
        return self.ring.t_plus(a, b)

    def times(self, a: Tensor, b: Tensor) -> Tensor:
        return self.ring.t_times(a, b)

    def star(self, entry: Tensor, k: int) -> Tensor:
        return self._star(entry, k)


class SparseMatrix:
    """A matrix of anything that is not a number yet, such as instructions; `entries` has what is not `zero`."""

    def __init__(
        self,
        size: int,
        entries: dict[tuple[int, int], Any],
        plus: Callable[[Any, Any], Any],
        times: Callable[[Any, Any], Any],
        star: Callable[[Any], Any],
        zero: Any,
    ) -> None:
        self.size, self.entries, self.zero = size, dict(entries), zero
        self._plus, self._times, self._star = plus, times, star

    def column(self, k: int) -> list[int]:
        return [p for p in range(self.size) if (p, k) in self.entries]

    def row(self, k: int) -> list[int]:
        return [q for q in range(self.size) if (k, q) in self.entries]

    def block(self, rows: list[int], columns: list[int]) -> list[list[Any]]:
        return [[self.entries.get((p, q), self.zero) for q in columns] for p in rows]

    def put(
        self, rows: list[int], columns: list[int], block: list[list[Any]], *, cycles: bool = True
    ) -> None:
        for p, values in zip(rows, block, strict=True):
            for q, value in zip(columns, values, strict=True):
                if (cycles or p != q) and value != self.zero:
                    self.entries[p, q] = value

    def plus(self, a: list[list[Any]], b: list[list[Any]]) -> list[list[Any]]:
        return [[self._plus(x, y) for x, y in zip(*rows, strict=True)] for rows in zip(a, b, strict=True)]

    def times(self, a: list[list[Any]], b: list[list[Any]]) -> list[list[Any]]:
        if not a or not b:
            return []
        if len(a) == 1 < len(b):
            a = a * len(b)
        if len(b) == 1 < len(a):
            b = b * len(a)
        return [[self._times(x, y) for x, y in _paired(*rows)] for rows in zip(a, b, strict=True)]

    def star(self, entry: list[list[Any]], k: int) -> list[list[Any]]:
        return [[self._star(entry[0][0])]]


def _paired(a: list[Any], b: list[Any]) -> zip[tuple[Any, Any]]:
    """Pair the entries of two rows; a row of one entry is repeated as often as the other needs."""
    a, b = a * len(b) if len(a) == 1 else a, b * len(a) if len(b) == 1 else b
    return zip(a, b, strict=True)


# ---- convergence -----------------------------------------------------------------------------------------------

CycleArcs = dict[str, list[tuple[str, Any]]]
Converges = Callable[[Any, CycleArcs], bool]


def always(ring: Any, rows: CycleArcs) -> bool:
    """Prove it for a semiring in which one more round changes nothing."""
    return True


def never(ring: Any, rows: CycleArcs) -> bool:
    """Prove nothing: one more round always counts."""
    return False


def by_norm(norm: Callable[[Any, Any], Range]) -> Converges:
    """Return the proof that a matrix of norms contracts; `norm(s, weight)` is a real number, at most multiplicative."""

    def converges(ring: Any, rows: CycleArcs) -> bool:
        bounds: dict[str, list[_Bound]] = {q: [] for q in rows}
        for q, row in rows.items():
            for target, weight in row:
                size = norm(RANGES, weight)
                if math.isinf(size.high):
                    return False
                bounds[q].append((target, size.high, size.high_open))
        return _contracts(bounds)

    return converges


def by_best(ring: Any, rows: CycleArcs) -> bool:
    """Prove it where ⊕ selects: if no cycle improves a path, the best ε-path from a state has no cycle in it, and the
    fix-point of x = 1̄ ⊕ A ⊗ x is there after as many rounds as there are states."""
    worst = {
        q: [(target, weight.high if ring.maximum else weight.low) for target, weight in row]
        for q, row in rows.items()
    }
    if any(math.isinf(size) and size != ring.zero for row in worst.values() for _, size in row):
        return False
    x = dict.fromkeys(rows, ring.one)
    for _ in rows:
        new = {q: ring.sum([ring.one, *(ring.times(w, x[p]) for p, w in row)]) for q, row in worst.items()}
        if new == x:
            return True
        x = new
    return False


_Bound = tuple[str, float, bool]  # (target, largest norm, does no value attain it?)


def _contracts(rows: dict[str, list[_Bound]]) -> bool:
    """Return whether the spectral radius of this non-negative matrix is below one.

    It is when Ax < x for some x > 0 (Collatz and Wielandt). For x = 1, the sums of rows, less is enough since the
    states of a component all reach each other: none above 1, and one of them below it, or never attaining it.
    """
    sums = {q: math.fsum(size for _, size, _ in row) for q, row in rows.items()}
    below = any(sums[q] < 1 or any(is_open for _, _, is_open in row) for q, row in rows.items())
    if max(sums.values()) <= 1:
        return below
    x = dict.fromkeys(rows, 1.0)
    for _ in range(100):
        ahead = {q: sum(size * x[p] for p, size, _ in row) for q, row in rows.items()}
        if all(ahead[q] < (1 - 1e-9) * x[q] for q in rows):
            return True
        x = {q: min(1 + ahead[q], 1e100) for q in rows}
    return False

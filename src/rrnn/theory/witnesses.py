"""Machines of small tasks, and weights of a cell with which a unit is such a machine: witnesses of what it can do.

A witness is found by placing the states of a task's machine among the cell's, and solving for the values of projections
and parameters, arc by arc. Gates such as sigmoids reach 0 and 1 only in a limit: a value of ±∞ says so. The machine
with the limits of all weights is then compared with the task's machine by `WFSA.equivalent`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise, permutations, product
from typing import Any, Literal

from rrnn.arithmetic import FLOATS
from rrnn.automata import Cell, Evaluator
from rrnn.automata import expressions as ex
from rrnn.automata.evaluator import leaf_name
from rrnn.errors import RRNNError
from rrnn.wfsa import EPSILON, WFSA
from rrnn.wfsa.instantiate import with_weights

Kind = Literal["exact", "count", "support"]
Leaf = tuple[Any, str]
"""(symbol, name) of a projection's value at a symbol; (None, name) of a parameter."""
_SCALES = (
    30.0,
    12.0,
)  # what stands for ∞: σ(30) is 1 up to 1e-13, and tanh(12) up to 1e-10, which is not rounded to 1
_CLOSE = 1e-9
_LARGE = 1e4  # beyond it, a value that solves an equation grows with the limits in it
_FINITE = (1.0, -1.0, 2.0)  # tried where any positive weight will do
A, B = "a", "b"


@dataclass(frozen=True)
class Form:
    """A machine that solves a task.

    Its score is 1 on the language and 0 elsewhere ("exact"), counts so that a threshold separates ("count"), or is
    positive exactly on the language whatever the positive weights are ("support").
    """

    kind: Kind
    states: int
    arcs: Mapping[tuple[int, str, int], float]
    final: Mapping[int, float]

    @property
    def machine(self) -> WFSA:
        """The machine over the reals."""
        return WFSA(
            "real",
            alphabet=(A, B),
            states=range(self.states),
            arcs=[(p, s, q, w) for (p, s, q), w in self.arcs.items()],
            initial={0: 1.0},
            final=dict(self.final),
        )


@dataclass(frozen=True)
class Witness:
    """Values of projections at each symbol and of parameters; ±∞ stands for a limit."""

    kind: Kind
    values: Mapping[Leaf, float]
    machine: WFSA
    """The unit with the limits of its weights, which `equivalent` found equal to the task's machine."""
    states: Mapping[int, str] = field(default_factory=dict)
    """Which state of the cell stands for which state of the task's machine."""

    @property
    def finite(self) -> bool:
        """Whether no value is a limit."""
        return all(math.isfinite(x) for x in self.values.values())

    @property
    def text(self) -> str:
        """The values in words, such as `f(a) → −∞, u(a) = 1`."""

        def shown(x: float) -> str:
            if math.isinf(x):
                return f"→ {'−' if x < 0 else ''}∞"
            grows = abs(x) > _LARGE and not self.finite
            return f"→ {'−' if x < 0 else ''}∞ so that its arc keeps its weight" if grows else f"= {x:.4g}"

        return ", ".join(
            f"{name}{'' if symbol is None else f'({symbol})'} {shown(x)}"
            for (symbol, name), x in self.values.items()
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


def forms_of(task: str) -> list[Form]:
    """Return the machines that solve a task, the best kind first."""
    name, _, number = task.partition(" ")
    match name:
        case "modulo":
            k = int(number)
            odd = [Form("exact", 2, _ALTERNATING, {1: 1.0})] if k == 2 else []
            return [ring(k), *odd]
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


# ---- the search ------------------------------------------------------------------------------------------------------


def find_witness(cell: Cell, form: Form) -> Witness | None:
    """Return weights with which a unit of the cell is the machine of a task, or None if none was found."""
    ring = cell.semiring
    if ring.components or (ring.selective and any(w < 0 for w in form.arcs.values())):
        return None
    if form.kind != "exact" and not ring.adds:
        return None
    for states in _placements(cell, form):
        for far in _SCALES if form.kind != "support" else _SCALES[:1]:
            solver = _Solver(cell, form, states, far)
            values = solver.solved()
            witness = None if values is None else _checked(solver, values)
            if witness is not None:
                return witness
    return None


def _placements(cell: Cell, form: Form) -> Iterator[dict[int, str]]:
    """Yield the ways to place the states of the form among the cell's such that all of its arcs exist."""
    arcs = {(arc.source, arc.target) for arc in cell.arcs if not arc.epsilon}
    starts, ends = dict(cell.initials), dict(cell.finals)

    def place(chosen: list[str]) -> Iterator[list[str]]:
        n = len(chosen)
        if n == form.states:
            yield chosen
            return
        for q in cell.states:
            if q in chosen or (n == 0 and q not in starts) or (form.final.get(n) and q not in ends):
                continue
            now = [*chosen, q]
            if all((now[i], now[j]) in arcs for i, _, j in form.arcs if max(i, j) == n):
                yield from place(now)

    for chosen in place([]):
        yield dict(enumerate(chosen))


class _Solver:
    """The weights that a placement asks for, and a search for values of leaves that give them."""

    def __init__(self, cell: Cell, form: Form, states: Mapping[int, str], far: float) -> None:
        self.cell, self.form, self.states, self.far = cell, form, states, far
        self.ring, self.support = cell.semiring, form.kind == "support"
        number = {q: i for i, q in states.items()}
        wanted: list[tuple[ex.Expr, Any, float]] = []
        for q, w in cell.initials:
            wanted.append((w, None, 1.0 if number.get(q) == 0 else 0.0))
        wanted += [(w, None, form.final.get(number[q], 0.0)) for q, w in cell.finals if q in number]
        for arc in cell.arcs:
            if arc.source not in number:
                continue  # it is never reached: nothing leads from the others to it
            i, j = number[arc.source], number.get(arc.target)
            for symbol in (None,) if arc.epsilon else (A, B):
                target = 0.0 if arc.epsilon or j is None else form.arcs.get((i, symbol, j), 0.0)  # type: ignore[arg-type]
                wanted.append((arc.weight, symbol, target))
        self.wanted = sorted(wanted, key=lambda x: len(self.leaves(x[0], x[1])))

    def solved(self) -> dict[Leaf, float] | None:
        return self._solve(0, {})

    def _solve(self, n: int, values: dict[Leaf, float]) -> dict[Leaf, float] | None:
        if n == len(self.wanted):
            return values
        weight, symbol, target = self.wanted[n]
        free = [leaf for leaf in self.leaves(weight, symbol) if leaf not in values]
        for some in self._candidates(weight, symbol, target, free, values):
            if self._gives(weight, symbol, target, some):
                found = self._solve(n + 1, some)
                if found is not None:
                    return found
        return None

    def _candidates(
        self, weight: ex.Expr, symbol: Any, target: float, free: list[Leaf], values: dict[Leaf, float]
    ) -> Iterator[dict[Leaf, float]]:
        """Yield values of the free leaves: numbers and limits, and for one leaf perhaps the solution of an equation."""
        choices = (0.0, *_FINITE) if self.support else (0.0, math.inf, -math.inf)
        for some in product(choices, repeat=len(free)):
            yield values | dict(zip(free, some, strict=True))
        if self.support:
            return
        for leaf in free:
            others = [x for x in free if x != leaf]
            for some in product(choices, repeat=len(others)):
                rest = values | dict(zip(others, some, strict=True))
                root = _root(partial(self._missed, weight, symbol, target, rest, leaf))
                if root is not None:
                    yield rest | {leaf: root}

    def _missed(
        self, weight: ex.Expr, symbol: Any, target: float, rest: Mapping[Leaf, float], leaf: Leaf, x: float
    ) -> float:
        """Return by how much a weight differs from what is wanted, if one more leaf has the value x."""
        return self._value(weight, symbol, {**rest, leaf: x}, self.far) - self._real(target)

    def leaves(self, weight: ex.Expr, symbol: Any) -> list[Leaf]:
        nodes = [x for x in ex.walk(weight) if isinstance(x, (ex.Linear, ex.Parameter, ex.Input))]
        return list(
            dict.fromkeys((None if isinstance(x, ex.Parameter) else symbol, leaf_name(x)) for x in nodes)
        )

    def _value(self, weight: ex.Expr, symbol: Any, values: Mapping[Leaf, float], far: float) -> float:
        """Return a weight, with `far` in place of ∞."""

        def leaf(node: ex.Expr) -> float:
            x = values[None if isinstance(node, ex.Parameter) else symbol, leaf_name(node)]
            return x if math.isfinite(x) else math.copysign(far, x)

        try:
            return float(Evaluator(FLOATS, self.ring, leaf).weight(weight))
        except (ArithmeticError, ValueError, RRNNError):
            return math.nan

    def _real(self, target: float) -> float:
        """Return the element of the semiring that a weight of the form stands for."""
        if target == 0:
            return float(self.ring.zero)
        return float(self.ring.one) if target == 1 else target

    def _gives(self, weight: ex.Expr, symbol: Any, target: float, values: Mapping[Leaf, float]) -> bool:
        """Return whether a weight is what is wanted, or tends to it."""
        far = self._value(weight, symbol, values, self.far)
        if self.support:
            return far == 0 if target == 0 else far > 0
        near, wanted = self._value(weight, symbol, values, self.far / 2), self._real(target)
        if math.isinf(wanted):
            return far == wanted or (abs(far) > self.far / 2 and far * wanted > 0 and abs(far) > abs(near))
        error, before = abs(far - wanted), abs(near - wanted)
        return error <= _CLOSE and (error <= 1e-3 * before or error <= 1e-14)

    def limit(self, weight: ex.Expr, symbol: Any, values: Mapping[Leaf, float]) -> float:
        """Return the limit of a weight: a whole number if it is near one, or the semiring's infinite zero."""
        far = self._value(weight, symbol, values, self.far)
        if self.support:
            return far
        zero = float(self.ring.zero)
        if math.isinf(zero) and far * zero > 0 and abs(far) > self.far / 4:
            return zero
        nearest = round(far)
        return float(nearest) if abs(far - nearest) <= _CLOSE else far


def _root(f: Callable[[float], float]) -> float | None:
    """Return a zero of an affine function, or of one that changes its sign between −20 and 20, or None."""
    zero, one, two = (f(x) for x in (0.0, 1.0, 2.0))
    if math.isfinite(zero) and zero != one and math.isclose(two - one, one - zero, rel_tol=1e-6):
        return -zero / (one - zero)
    values = [(float(x), f(float(x))) for x in range(-20, 21)]
    for (low, a), (high, b) in pairwise(values):
        if math.isfinite(a) and math.isfinite(b) and a * b < 0:
            for _ in range(100):
                middle = (low + high) / 2
                low, high = (middle, high) if f(middle) * a > 0 else (low, middle)
            return low
    return None


def _checked(solver: _Solver, values: dict[Leaf, float]) -> Witness | None:
    """Return the witness if the machine with the limits of all weights is equivalent to the form's."""
    cell, form, ring = solver.cell, solver.form, solver.ring
    every = {leaf: 0.0 for _, w in cell.weights() for s in (A, B) for leaf in solver.leaves(w, s)} | values

    def weight(expr: ex.Expr, symbol: Any) -> Any:
        return solver.limit(expr, None if symbol is EPSILON else symbol, every)

    machine = with_weights(cell, (A, B), weight, allow_empty=True)
    numbers = [float(x) for w in machine.weights for x in w.flatten()]
    by_support = form.kind == "support" or ring.selective
    if form.kind == "support" and min(numbers) < 0:
        return None
    if ring.selective and not set(numbers) <= {float(ring.zero), float(ring.one)}:
        return None
    compared = "boolean" if by_support else "real"
    same = machine.with_semiring(compared).equivalent(form.machine.with_semiring(compared), tolerance=1e-12)
    if not same:
        return None
    return Witness(form.kind, values, machine, solver.states)

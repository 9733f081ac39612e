"""Weights of a cell with which a unit is the machine of a task: witnesses of what it can do.

A witness is found by placing the states of a task's machine among the cell's, and solving for the values of projections
and parameters, arc by arc. Gates such as sigmoids reach 0 and 1 only in a limit: a value of ±∞ says so. The machine
with the limits of all weights is then compared with the task's machine by `WFSA.equivalent`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import pairwise, product
from typing import Any

from rrnn.arithmetic import FLOATS, RANGES, Range
from rrnn.arithmetic.ranges import ALL
from rrnn.automata import Cell, Evaluator, range_of
from rrnn.automata import expressions as ex
from rrnn.automata.evaluator import leaf_name
from rrnn.errors import RRNNError
from rrnn.theory.task_machines import A, B, Form, Kind
from rrnn.wfsa import EPSILON, WFSA
from rrnn.wfsa.instantiate import with_weights

Leaf = tuple[Any, str]
"""(symbol, name) of a projection's value at a symbol; (None, name) of a parameter."""
_SCALES = 30.0, 12.0  # what stands for ∞: σ(30) is 1 up to 1e-13; tanh(12) up to 1e-10, and not rounded to 1
_NODES = 300_000  # nodes of expressions that a search for one form evaluates before it gives up
_CLOSE = 1e-9
_SOLVED = 3  # leaves of a weight up to which an equation is solved for one of them
_LARGE = 1e4  # beyond it, a value that solves an equation grows with the limits in it
_MOVED = 1e-2  # beyond it, a weight at half of ∞ is not on its way to what is wanted
_FINITE = (1.0, -1.0, 2.0)  # tried where any positive weight will do


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


# ---- the search ------------------------------------------------------------------------------------------------------


def find_witness(cell: Cell, form: Form) -> Witness | None:
    """Return weights with which a unit of the cell is the machine of a task, or None if none was found."""
    ring = cell.semiring
    if form.angle or ring.components:
        if not (form.angle and ring.components == ("re", "im")):
            return None
    elif (ring.selective and any(w.real < 0 for w in form.arcs.values())) or not (
        form.kind == "exact" or ring.adds
    ):
        return None
    budget = _Budget(_NODES)
    for states in _placements(cell, form):
        for far in _SCALES if form.kind != "support" else _SCALES[:1]:
            solver = _Solver(cell, form, states, far, budget)
            values = solver.solved()
            witness = None if values is None else _checked(solver, values)
            if witness is not None:
                return witness
            if not budget.left:
                return None
    return None


@dataclass
class _Budget:
    """What a search may still evaluate."""

    left: int

    def spend(self, weight: ex.Expr) -> bool:
        """Count the evaluation of a weight, and return whether the budget allows it."""
        self.left = max(0, self.left - 1 - _nodes(weight))
        return self.left > 0


@lru_cache(maxsize=4096)
def _nodes(weight: ex.Expr) -> int:
    return sum(1 for _ in ex.walk(weight))


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

    def __init__(
        self, cell: Cell, form: Form, states: Mapping[int, str], far: float, budget: _Budget
    ) -> None:
        self.cell, self.form, self.states, self.far, self.budget = cell, form, states, far, budget
        self.ring, self.support = cell.semiring, form.kind == "support"
        number = {q: i for i, q in states.items()}
        wanted: list[tuple[ex.Expr, Any, complex]] = []
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
        """Return values of leaves with which all weights are what is wanted, or None if none were found in time."""
        fixed: dict[Leaf, float] = {
            (None, node.name): self._fixed(node)
            for weight, _, _ in self.wanted
            for node in ex.walk(weight)
            if isinstance(node, ex.Parameter) and not node.learned
        }
        return None if any(map(math.isnan, fixed.values())) else self._solve(0, fixed)

    def _fixed(self, parameter: ex.Parameter) -> float:
        """Return the value of a parameter that is not learned, or NaN if the cell written without families lacks it."""
        found = ALL if parameter.start is None else range_of(parameter.start, self.ring)
        return found.low if found.constant else math.nan

    def _solve(self, n: int, values: dict[Leaf, float]) -> dict[Leaf, float] | None:
        if n == len(self.wanted):
            return values
        weight, symbol, target = self.wanted[n]
        free = [leaf for leaf in self.leaves(weight, symbol) if leaf not in values]
        for some in self._candidates(weight, symbol, target, free, values):
            if not self.budget.left:
                return None
            if self._gives(weight, symbol, target, some):
                found = self._solve(n + 1, some)
                if found is not None:
                    return found
        return None

    def _candidates(
        self, weight: ex.Expr, symbol: Any, target: complex, free: list[Leaf], values: dict[Leaf, float]
    ) -> Iterator[dict[Leaf, float]]:
        """Yield values of the free leaves: numbers and limits, and for one leaf perhaps the solution of an equation."""
        turn = (self.form.angle,) if self.form.angle else ()
        choices = (0.0, *_FINITE) if self.support else (0.0, math.inf, -math.inf, *turn)
        yield from self._assigned(weight, symbol, target, free, values, choices)
        if self.support or len(free) > _SOLVED:
            return
        for leaf in free:
            others = [x for x in free if x != leaf]
            for some in product(choices, repeat=len(others)):
                rest = values | dict(zip(others, some, strict=True))
                if not self.budget.left:
                    return
                for imaginary in (False, True) if turn else (False,):
                    root = _root(partial(self._missed, weight, symbol, target, rest, leaf, imaginary))
                    if root is not None:
                        yield rest | {leaf: root}
                        if turn:  # both parts of a weight may have a leaf of their own
                            yield from self._candidates(weight, symbol, target, others, values | {leaf: root})

    def _assigned(
        self,
        weight: ex.Expr,
        symbol: Any,
        target: complex,
        free: list[Leaf],
        values: dict[Leaf, float],
        choices: tuple[float, ...],
    ) -> Iterator[dict[Leaf, float]]:
        """Yield values of the free leaves from `choices`, without those that the range of the weight excludes."""
        if not self.budget.left or (len(free) > 1 and not self._may_give(weight, symbol, target, values)):
            return
        if not free:
            yield values
            return
        for x in choices:
            yield from self._assigned(weight, symbol, target, free[1:], values | {free[0]: x}, choices)

    def _may_give(self, weight: ex.Expr, symbol: Any, target: complex, values: Mapping[Leaf, float]) -> bool:
        """Return whether a weight can still be what is wanted, as far as its range tells with some leaves known."""
        if self.ring.components or self.support or not self.budget.spend(weight):
            return True

        def leaf(node: ex.Expr) -> Range:
            x = values.get((None if isinstance(node, ex.Parameter) else symbol, leaf_name(node)))
            return ALL if x is None else Range.of(x if math.isfinite(x) else math.copysign(self.far, x))

        found, wanted = Evaluator(RANGES, self.ring, leaf, Range.of)(weight), self._wanted(target)
        return found.low - _CLOSE <= wanted <= found.high + _CLOSE or math.isinf(wanted)

    def _missed(
        self,
        weight: ex.Expr,
        symbol: Any,
        target: complex,
        rest: Mapping[Leaf, float],
        leaf: Leaf,
        imaginary: bool,
        x: float,
    ) -> float:
        """Return by how much a part of a weight differs from what is wanted, if one more leaf has the value x."""
        missed = self._value(weight, symbol, {**rest, leaf: x}, self.far) - self._wanted(target)
        return missed.imag if imaginary else missed.real

    def leaves(self, weight: ex.Expr, symbol: Any) -> list[Leaf]:
        nodes = [x for x in ex.walk(weight) if isinstance(x, (ex.Linear, ex.Parameter, ex.Input))]
        return list(
            dict.fromkeys((None if isinstance(x, ex.Parameter) else symbol, leaf_name(x)) for x in nodes)
        )

    def _value(self, weight: ex.Expr, symbol: Any, values: Mapping[Leaf, float], far: float) -> Any:
        """Return a weight, with `far` in place of ∞."""

        def leaf(node: ex.Expr) -> float:
            x = values[None if isinstance(node, ex.Parameter) else symbol, leaf_name(node)]
            return x if math.isfinite(x) else math.copysign(far, x)

        if not self.budget.spend(weight):
            return math.nan
        try:
            value = Evaluator(FLOATS, self.ring, leaf).weight(weight)
            return complex(*value) if self.ring.components else float(value)
        except (ArithmeticError, ValueError, RRNNError):
            return math.nan

    def _wanted(self, target: complex) -> Any:
        """Return the element of the semiring that a weight of the form stands for, as a number."""
        if self.ring.components:
            return complex(target)
        if target == 0:
            return float(self.ring.zero)
        return float(self.ring.one) if target == 1 else target.real

    def _gives(self, weight: ex.Expr, symbol: Any, target: complex, values: Mapping[Leaf, float]) -> bool:
        """Return whether a weight is what is wanted, or tends to it."""
        far = self._value(weight, symbol, values, self.far)
        if self.support:
            return far == 0 if target == 0 else far > 0
        near, wanted = self._value(weight, symbol, values, self.far / 2), self._wanted(target)
        if math.isinf(abs(wanted)):
            return far == wanted or (abs(far) > self.far / 2 and far * wanted > 0 and abs(far) > abs(near))
        error, before = abs(far - wanted), abs(near - wanted)
        grown = any(_LARGE < abs(values[leaf]) < math.inf for leaf in self.leaves(weight, symbol))
        if before > _MOVED and not grown:
            return False  # solved for this ∞ alone, as is i = −3.4 in σ(i)·input with input → ∞
        return error <= _CLOSE and (error <= 1e-3 * before or error <= 1e-14)

    def limit(self, weight: ex.Expr, symbol: Any, values: Mapping[Leaf, float]) -> Any:
        """Return the limit of a weight: a whole number if it is near one, or the semiring's infinite zero."""
        far = self._value(weight, symbol, values, self.far)
        if self.ring.components:
            return far.real, far.imag
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
    solver.budget = _Budget(_NODES)  # the check of what was found does not depend on what is left
    every = {leaf: 0.0 for _, w in cell.weights() for s in (A, B) for leaf in solver.leaves(w, s)} | values

    def weight(expr: ex.Expr, symbol: Any) -> Any:
        return solver.limit(expr, None if symbol is EPSILON else symbol, every)

    machine = with_weights(cell, (A, B), weight, allow_empty=True)
    if form.angle:
        same = real_part(machine).equivalent(form.machine)
        return Witness(form.kind, values, machine, solver.states) if same else None
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


def real_part(machine: WFSA) -> WFSA:
    """Return the machine over the reals whose scores are the real parts of those of a complex machine."""
    machine = machine.remove_epsilon()
    arcs = []
    for arc in machine.arcs:
        x, y = (float(part) for part in arc.weight)
        for i, j, w in ((0, 0, x), (0, 1, y), (1, 0, -y), (1, 1, x)):
            arcs.append(((arc.source, i), arc.symbol, (arc.target, j), w))
    return WFSA(
        "real",
        alphabet=machine.alphabet,
        states=[(q, i) for q in machine.states for i in range(2)],
        arcs=arcs,
        initial={(q, i): float(w[i]) for q, w in machine.initial.items() for i in range(2)},
        final={(q, i): float(w[i]) * (-1) ** i for q, w in machine.final.items() for i in range(2)},
        allow_empty=True,
    )

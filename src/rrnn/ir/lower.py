"""Lowering: a cell to a program. ε-closure, trimming, folding of always-on states, shared subexpressions.

A stored state holds the total weight of paths that have *just consumed* a symbol and end in it (ε not yet taken), and
λ before the first symbol; the ε-closure is applied where a value is read: by arcs of the next step, and by the score.
So a state with no consuming arc into it (F's q₃) is never stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rrnn.automata import Cell, CellArc, reachable
from rrnn.automata import expressions as ex
from rrnn.automata.names import definitions
from rrnn.automata.rules import is_zero
from rrnn.errors import CellError
from rrnn.ir.builder import Builder
from rrnn.ir.ops import Op
from rrnn.ir.program import Program
from rrnn.ir.verify import check_output

_CALLS = {
    "neg": Op.NEG,
    "sigmoid": Op.SIGMOID,
    "tanh": Op.TANH,
    "relu": Op.RELU,
    "log_sigmoid": Op.LOG_SIGMOID,
    "exp": Op.EXP,
    "log": Op.LOG,
    "softplus": Op.SOFTPLUS,
    "sqrt": Op.SQRT,
    "step": Op.STEP,
}
_BINARY = {"+": Op.ADD, "-": Op.SUB, "*": Op.MUL}


@dataclass(frozen=True)
class Lowered:
    """A program with what printing and layers want to know of its cell."""

    cell: Cell
    program: Program
    projections: tuple[ex.Linear, ...]
    names: dict[int, str]  # instruction → the name of the expression it computes
    weights: frozenset[int] = frozenset()  # instructions that are a whole weight of some arc or state


@lru_cache(maxsize=256)
def lower(cell: Cell) -> Lowered:
    """The recurrence of a cell, checked."""
    cell.check()
    lowered = _Lowering(cell).run(stored=_Lowering(cell).stored())
    check_output(lowered.program)
    return lowered


def bias_name(projection: str) -> str:
    return f"{projection}.bias"


class _Lowering:
    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.b = Builder(cell.semiring)
        arcs = [a for a in cell.arcs if not is_zero(a.weight, cell.semiring)]
        if cell.epsilon_limit == 0:
            arcs = [a for a in arcs if not a.epsilon]
        starts = {q: w for q, w in cell.initials if not is_zero(w, cell.semiring)}
        ends = {q: w for q, w in cell.finals if not is_zero(w, cell.semiring)}
        alive = reachable(starts, arcs) & reachable(ends, arcs, backwards=True)
        self.states = [q for q in cell.states if q in alive]
        self.arcs = [a for a in arcs if {a.source, a.target} <= alive]
        self.initials = {q: w for q, w in starts.items() if q in alive}
        self.finals = {q: w for q, w in ends.items() if q in alive}
        self.projections, self.parameters = self._leaves()
        self.ids: dict[ex.Expr, int] = {}
        self.score: int | None = None

    def _leaves(self) -> tuple[dict[str, ex.Linear], dict[str, int]]:
        """Projections and per-unit parameters (biases among them), each in order of first use."""
        projections: dict[str, ex.Linear] = {}
        parameters: dict[str, int] = {}
        used = [
            *self.initials.values(),
            *(a.weight for a in self.arcs),
            *self.finals.values(),
            self.cell.output_expr,
        ]
        for expression in used:
            for node in ex.walk(expression):
                if isinstance(node, ex.Linear):
                    projections.setdefault(node.name, node)
                    if node.bias:
                        parameters.setdefault(bias_name(node.name), len(parameters))
                elif isinstance(node, ex.Parameter):
                    parameters.setdefault(node.name, len(parameters))
        return projections, parameters

    def run(self, stored: list[str]) -> Lowered:
        b, lam, closure = self.b, self._initial(), self._closure()
        old = {q: b.leaf(Op.STATE, stored.index(q)) if q in stored else lam[q] for q in self.states}
        new = dict(lam) | {q: self._update(q, old, closure) for q in stored}
        self.score = self._score(new, closure)
        if self.score == b.zero:
            limit = self.cell.epsilon_limit
            forbidden = "" if limit is None else f", with its epsilon_limit of {limit}"
            forbidden += "" if self.cell.epsilon_after_last else " and no ε-arc after the last symbol"
            raise CellError(
                f"cell {self.cell.name!r}: every score is the semiring's zero: no path from an initial to a final "
                f"state{forbidden} has a weight other than zero. Add the missing arcs or final states."
            )
        output = self.expr(self.cell.output_expr)
        program, number = b.finish(
            self.cell.name,
            projections=tuple(self.projections),
            parameters=tuple(self.parameters),
            states=tuple(stored),
            initial=[lam[q] for q in stored],
            outputs=[
                *(("state", i, new[q]) for i, q in enumerate(stored)),
                ("score", 0, self.score),
                ("output", 0, output),
            ],
        )
        # Expressions that folded to a number have no name: a number is clearer, and may stand elsewhere too.
        live = {e: number[n] for e, n in self.ids.items() if n in number and b.value(n) is None}
        names: dict[int, str] = {}
        for e, name in definitions(self.cell).items():
            if e in live:
                names.setdefault(live[e], name)
        whole = (*self.initials.values(), *(a.weight for a in self.arcs), *self.finals.values())
        weights = frozenset(live[w] for w in whole if w in live)
        return Lowered(self.cell, program, tuple(self.projections.values()), names, weights)

    # ---- expressions ---------------------------------------------------------------------------------------

    def expr(self, e: ex.Expr) -> int:
        if e not in self.ids:
            self.ids[e] = self._expr(e)
        return self.ids[e]

    def _expr(self, e: ex.Expr) -> int:
        b = self.b
        match e:
            case ex.Number(value=value):
                return b.const(value)
            case ex.One():
                return b.one
            case ex.Zero():
                return b.zero
            case ex.Input():
                return b.leaf(Op.INPUT)
            case ex.Parameter(name=name):
                return b.leaf(Op.PARAM, self.parameters[name])
            case ex.Linear(name=name, bias=bias):
                pre = b.leaf(Op.PREACT, list(self.projections).index(name))
                if not bias:
                    return pre
                return b.emit(Op.ADD, pre, b.leaf(Op.PARAM, self.parameters[bias_name(name)]))
            case ex.Call(function=function, argument=argument):
                return b.emit(_CALLS[function], self.expr(argument))
            case ex.Binary(operator=operator, left=left, right=right):
                return b.emit(_BINARY[operator], self.expr(left), self.expr(right))
            case ex.Score():
                assert self.score is not None
                return self.score
        raise AssertionError(e)

    # ---- the automaton -------------------------------------------------------------------------------------

    def _closure(self) -> dict[tuple[str, str], int]:
        """(p, q) → the total weight of ε-paths from p to q (the empty path too); absent means zero."""
        b, states = self.b, self.states
        eps: dict[tuple[str, str], int] = {}
        for a in self.arcs:
            if a.epsilon:
                key = (a.source, a.target)
                eps[key] = b.sum([eps.get(key, b.zero), self.expr(a.weight)])
        unit = {(q, q): b.one for q in states}
        if self.cell.epsilon_limit is not None:
            total, power = dict(unit), dict(unit)
            for _ in range(self.cell.epsilon_limit):
                power = self._product(power, eps)
                for key, value in power.items():
                    total[key] = b.sum([total.get(key, b.zero), value])
            return total
        # Kleene: allow paths through k, one state after another. Once k is done, (k, k) has the empty path too.
        for k in states:
            around = b.star(eps[k, k]) if (k, k) in eps else b.one
            into = {p: b.times(eps[p, k], around) for p in states if p != k and (p, k) in eps}
            out = {q: eps[k, q] for q in states if q != k and (k, q) in eps}
            for p, first in into.items():
                for q, second in out.items():
                    # Where ⊕ selects, no cycle improves on the empty path: `check_cell` has proved it.
                    if p != q or not b.semiring.laws.selective:
                        eps[p, q] = b.sum([eps.get((p, q), b.zero), b.times(first, second)])
            eps |= {(p, k): value for p, value in into.items()}
            eps |= {(k, q): b.times(around, value) for q, value in out.items()}
            eps[k, k] = around
        return eps

    def _product(
        self, left: dict[tuple[str, str], int], right: dict[tuple[str, str], int]
    ) -> dict[tuple[str, str], int]:
        leaving: dict[str, list[tuple[str, int]]] = {}
        for (k, q), y in right.items():
            leaving.setdefault(k, []).append((q, y))
        product: dict[tuple[str, str], int] = {}
        for (p, k), x in left.items():
            for q, y in leaving.get(k, ()):
                product[p, q] = self.b.sum([product.get((p, q), self.b.zero), self.b.times(x, y)])
        return product

    def _closed(self, q: str, values: dict[str, int], closure: dict[tuple[str, str], int]) -> int:
        """The value of q after ε: its own first, then the others in state order."""
        sources = [q, *(p for p in self.states if p != q)]
        return self.b.sum(self.b.times(values[p], closure[p, q]) for p in sources if (p, q) in closure)

    def _update(self, q: str, old: dict[str, int], closure: dict[tuple[str, str], int]) -> int:
        """⊕ over arcs into q, its loop first; arcs of equal weight share one product."""
        into = [a for a in self.arcs if a.target == q and not a.epsilon]
        into.sort(key=lambda a: a.source != q)
        groups: dict[ex.Expr, list[CellArc]] = {}
        for a in into:
            groups.setdefault(a.weight, []).append(a)
        b = self.b
        return b.sum(
            b.times(self.expr(weight), b.sum(self._closed(a.source, old, closure) for a in group))
            for weight, group in groups.items()
        )

    def _initial(self) -> dict[str, int]:
        return {q: self.expr(self.initials[q]) if q in self.initials else self.b.zero for q in self.states}

    def _score(self, new: dict[str, int], closure: dict[tuple[str, str], int]) -> int:
        b = self.b
        after = closure if self.cell.epsilon_after_last else {(q, q): b.one for q in self.states}
        return b.sum(b.times(self._closed(q, new, after), self.expr(rho)) for q, rho in self.finals.items())

    def stored(self) -> list[str]:
        """States that need memory: all but the greatest set of states whose update gives back their λ.
        This leaves many instructions behind: run the lowering itself on a fresh one.

        A final state that no arc leaves is stored too, though no later step reads it: so the output reads old
        states through new ones only, which is what the backward scan rests on.
        """
        lam, closure = self._initial(), self._closure()
        leaf = {q: self.b.leaf(Op.STATE, i) for i, q in enumerate(self.states)}
        stored: set[str] = set()
        while True:
            old = {q: leaf[q] if q in stored else lam[q] for q in self.states}
            changing = {q for q in self.states if q not in stored and self._update(q, old, closure) != lam[q]}
            if not changing:
                return [q for q in self.states if q in stored]
            stored |= changing

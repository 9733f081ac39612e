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
from rrnn.ir.builder import Builder
from rrnn.ir.ops import Op
from rrnn.ir.program import Program

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


@lru_cache(maxsize=256)
def lower(cell: Cell) -> Lowered:
    """The recurrence of a cell, checked."""
    from rrnn.ir.verify import check_output

    cell.check()
    lowered = _Lowering(cell).run()
    check_output(lowered)
    return lowered


def bias_name(projection: str) -> str:
    return f"{projection}.bias"


class _Lowering:
    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.b = Builder(cell.semiring)
        starts, ends = dict(cell.initials), dict(cell.finals)
        alive = reachable(starts, cell.arcs) & reachable(ends, cell.arcs, backwards=True)
        self.states = [q for q in cell.states if q in alive]
        self.arcs = [
            a for a in cell.arcs if {a.source, a.target} <= alive and not isinstance(a.weight, ex.Zero)
        ]
        self.initials = {q: w for q, w in cell.initials if q in alive}
        self.finals = {q: w for q, w in cell.finals if q in alive}
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

    def run(self) -> Lowered:
        b = self.b
        lam = {q: self.expr(self.initials[q]) if q in self.initials else b.zero for q in self.states}
        closure = self._closure()
        stored = self._stored(lam, closure)
        old = {q: b.leaf(Op.STATE, stored.index(q)) if q in stored else lam[q] for q in self.states}
        new = dict(lam) | {q: self._update(q, old, closure) for q in stored}
        after = closure if self.cell.epsilon_after_last else {(q, q): b.one for q in self.states}
        self.score = b.sum(
            b.times(self._closed(q, new, after), self.expr(rho)) for q, rho in self.finals.items()
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
        names = {
            number[self.ids[e]]: name
            for e, name in definitions(self.cell).items()
            if self.ids.get(e) in number
        }
        return Lowered(self.cell, program, tuple(self.projections.values()), names)

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
        for k in states:  # Kleene: allow paths through k, one state after another
            around = b.star(eps[k, k]) if (k, k) in eps else b.one
            into = {p: eps[p, k] for p in states if (p, k) in eps}
            out = {q: eps[k, q] for q in states if (k, q) in eps}
            for p, first in into.items():
                for q, second in out.items():
                    through = b.times(b.times(first, around), second)
                    eps[p, q] = b.sum([eps.get((p, q), b.zero), through])
        for key, value in unit.items():
            eps[key] = b.sum([value, eps.get(key, b.zero)])
        return eps

    def _product(
        self, left: dict[tuple[str, str], int], right: dict[tuple[str, str], int]
    ) -> dict[tuple[str, str], int]:
        product: dict[tuple[str, str], int] = {}
        for (p, k), x in left.items():
            for (k2, q), y in right.items():
                if k == k2:
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

    def _stored(self, lam: dict[str, int], closure: dict[tuple[str, str], int]) -> list[str]:
        """States that need memory: all but the greatest set of states whose update gives back their λ."""
        constant = set(self.states)
        while True:
            old = {
                q: lam[q] if q in constant else self.b.leaf(Op.STATE, i) for i, q in enumerate(self.states)
            }
            changing = {q for q in constant if self._update(q, old, closure) != lam[q]}
            if not changing:
                return [q for q in self.states if q not in constant]
            constant -= changing

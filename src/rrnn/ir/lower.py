"""Lowering: turn a cell into a program. Trim it, close it under ε, fold always-on states, share subexpressions.

A stored state holds the total weight of the paths that have *just consumed* a symbol and end in it, before any ε-arc;
before the first symbol it holds λ. The ε-closure is applied where a value is read: by arcs of the next step, and by
the score. So a state that no consuming arc enters (F's q₃) is never stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from rrnn.arithmetic import RANGES
from rrnn.automata import Cell, CellArc, Evaluator, reachable, weight_range
from rrnn.automata import expressions as ex
from rrnn.automata.expression_rules import is_zero
from rrnn.automata.expression_text import definitions
from rrnn.errors import CellError
from rrnn.ir.builder import Builder, Value
from rrnn.ir.interpreter import check_output
from rrnn.ir.program import Extent, Families, Op, Program
from rrnn.semirings.epsilon_closure import SparseMatrix, kleene


@dataclass(frozen=True)
class Lowered:
    """A program with what printing and layers need to know of its cell."""

    cell: Cell
    program: Program
    projections: tuple[ex.Linear, ...]
    names: dict[int, str]  # instruction → the name of the expression it computes
    weights: frozenset[int] = frozenset()  # instructions that are a whole weight of some arc or state


@lru_cache(maxsize=256)
def lower(cell: Cell) -> Lowered:
    """Check a cell and return its recurrence."""
    cell.check()
    lowered = _Lowering(cell).run(stored=_Lowering(cell).stored())
    check_output(lowered.program, may_cancel=_may_cancel(cell))
    return lowered


def _may_cancel(cell: Cell) -> bool:
    """Return whether weights of 0 or paths that cancel can make the score an infinite zero, as far as ranges tell."""
    ring = cell.semiring
    if not ring.cancels or not ring.infinities:
        return False

    def is_positive(weight: ex.Expr) -> bool:
        element = weight_range(weight, ring)
        parts = zip(ring.numbers_of(element), ring.numbers_of(ring.zero), strict=True)
        return ring.to_real(element, RANGES).low >= 0 and any(not r.contains(z) for r, z in parts)

    return not all(is_positive(weight) for _, weight in cell.weights())


def _without_unused_indices(program: Program) -> Program:
    """Return the program without indices of sources that no instruction has: weights that are products need none."""
    wide = program.wide
    if wide is None or any(i.op is Op.MOVE for i in program.instructions):
        return program
    used = frozenset[int]().union(*program.over)
    while wide.sizes and wide.sizes[-1][0].endswith(".source") and len(wide.sizes) - 1 not in used:
        wide = wide._replace(sizes=wide.sizes[:-1])
    return replace(program, wide=wide)


def bias_name(projection: str) -> str:
    """Return the name of a projection's bias among a program's parameters."""
    return f"{projection}.bias"


_LEAVES = (ex.Linear, ex.Parameter)


class _Lowering:
    """A cell on its way to a program: its states and arcs that lie on some path, and the builder."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        arcs = [a for a in cell.arcs if not is_zero(a.weight, cell.semiring)]
        if cell.epsilon_limit == 0:
            arcs = [a for a in arcs if not a.epsilon]
        starts = {q: w for q, w in cell.initials if not is_zero(w, cell.semiring)}
        ends = {q: w for q, w in cell.finals if not is_zero(w, cell.semiring)}
        reads = {q: w for q, w in cell.reads if not is_zero(w, cell.semiring)}
        alive = reachable(starts, arcs) & reachable([*ends, *reads], arcs, backwards=True)
        self.states = [q for q in cell.states if q in alive]
        self.arcs = [a for a in arcs if {a.source, a.target} <= alive]
        self.initials = {q: w for q, w in starts.items() if q in alive}
        self.finals = {q: w for q, w in ends.items() if q in alive}
        self.reads = {q: w for q, w in reads.items() if q in alive}
        self.projections, self.parameters = self._leaves()
        # Arcs from each state of a family to each have an index of their own for the state that they leave.
        full = {a.source for a in self.arcs if a.full}
        sources = [(str(f.source), f.size) for f in cell.families if f.name in full]
        first = self._first_of_index()
        own = [(f.name, f.size) for f in cell.families if first[f.name] == f.name]
        self.sizes = (*own, *sources)
        self.families = {name: i for i, (name, _) in enumerate(self.sizes)}
        self.families |= {name: self.families[other] for name, other in first.items()}
        self.wide = self._wide()
        self.b = Builder(cell.semiring, self.wide)
        self.weights: dict[ex.Expr, int] = {}
        self.value = Evaluator(
            self.b.arithmetic, cell.semiring, self._leaf, lambda x: Value(self.b, self.b.const(x)), self._at
        )
        self.score: int | None = None

    def _first_of_index(self) -> dict[str, str]:
        """Return for each family the first one that has the same index: families have one index if an arc joins their
        states of equal index, or if a weight over the one stands at the other."""
        first = {f.name: f.name for f in self.cell.families}
        places = [((a.source, a.target), a.weight) for a in self.arcs if not a.full]
        places += [((q,), w) for table in (self.initials, self.finals, self.reads) for q, w in table.items()]
        for states, weight in places:
            names = {q for q in states if q in first} | {family.name for family in ex.families_of(weight)}
            ends = {first[name] for name in names}
            one = next((name for name in first if name in ends), None)
            first = {name: one if one and other in ends else other for name, other in first.items()}
        return first

    def _used(self) -> list[ex.Expr]:
        """Return the expressions on some path, and the outputs."""
        ends = *self.finals.values(), *self.reads.values(), *self.cell.output_exprs
        return [*self.initials.values(), *(a.weight for a in self.arcs), *ends]

    def _wide(self) -> Families | None:
        """Return the families and extents of all states; None for a cell without families whose units share nothing."""
        nodes = [n for e in self._used() for n in ex.walk(e) if isinstance(n, (ex.Linear, ex.Parameter))]
        if not self.families and all(node.per == "unit" for node in nodes):
            return None

        def extent(leaf: ex.Linear | ex.Parameter) -> Extent:
            over = (str(i).removesuffix(".target") for i in ex.indices_of(leaf))
            return Extent(tuple(self.families[name] for name in over), leaf.per)

        of = {node.name: extent(node) for node in nodes}
        of |= {bias_name(node.name): extent(node) for node in nodes if isinstance(node, ex.Linear)}
        return Families(
            self.sizes,
            tuple(of[name] for name in self.projections),
            tuple(of[name] for name in self.parameters),
            tuple(self._extent_of(q) for q in self.states),
        )

    def _extent_of(self, state: str) -> Extent:
        return Extent((self.families[state],)) if state in self.families else Extent()

    def _leaves(self) -> tuple[dict[str, ex.Linear], dict[str, int]]:
        """Return the projections and per-unit parameters (biases among them), each in order of first use."""
        projections: dict[str, ex.Linear] = {}
        parameters: dict[str, int] = {}
        for expression in self._used():
            for node in ex.walk(expression):
                if isinstance(node, ex.Linear):
                    projections.setdefault(node.name, node)
                    if node.bias:
                        parameters.setdefault(bias_name(node.name), len(parameters))
                elif isinstance(node, ex.Parameter):
                    parameters.setdefault(node.name, len(parameters))
        if any(node.per != "unit" for e in self._used() for node in ex.walk(e) if isinstance(node, _LEAVES)):
            # What units have for themselves comes first: rows of it lie side by side.
            shared = {
                n.name: n.per != "unit" for e in self._used() for n in ex.walk(e) if isinstance(n, _LEAVES)
            }
            projections = dict(sorted(projections.items(), key=lambda item: shared[item[0]]))
            order = sorted(parameters, key=lambda name: shared[name.removesuffix(".bias")])
            parameters = {name: i for i, name in enumerate(order)}
        return projections, parameters

    def run(self, stored: list[str]) -> Lowered:
        """Emit the program with these stored states."""
        if self.wide is not None:  # leaves of states are numbered by what is stored
            self.wide = self.b.wide = self.wide._replace(states=tuple(self._extent_of(q) for q in stored))
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
        outputs = [self.value(expr).n for expr in self.cell.output_exprs]
        program, number = b.finish(
            self.cell.name,
            projections=tuple(self.projections),
            parameters=tuple(self.parameters),
            states=tuple(stored),
            initial=[lam[q] for q in stored],
            outputs=[
                *(("state", i, new[q]) for i, q in enumerate(stored)),
                ("score", 0, self.score),
                *(("output", i, n) for i, n in enumerate(outputs)),
            ],
        )
        program = _without_unused_indices(program)
        # Expressions that folded to a number get no name: the number is clearer, and may occur elsewhere too.
        live = {e: number[n] for e, n in self._numbers() if n in number and b.value(n) is None}
        names: dict[int, str] = {}
        for e, name in definitions(self.cell).items():
            if e in live:
                names.setdefault(live[e], name)
        ends = *self.finals.values(), *self.reads.values()
        whole = (*self.initials.values(), *(a.weight for a in self.arcs), *ends)
        weights = frozenset(live[w] for w in whole if w in live)
        return Lowered(self.cell, program, tuple(self.projections.values()), names, weights)

    # ---- expressions ---------------------------------------------------------------------------------------

    def weight(self, e: ex.Expr) -> int:
        """Return the instruction of a weight, an element of the semiring."""
        if e not in self.weights:
            self.weights[e] = self.b.from_values(self.value.weight(e))
        return self.weights[e]

    def _numbers(self) -> Iterator[tuple[ex.Expr, int]]:
        """Yield the expressions emitted so far and the instructions that compute them."""
        yield from self.weights.items()
        for e, value in self.value.known.items():
            if isinstance(value, Value):
                yield e, value.n

    def _leaf(self, e: ex.Expr) -> Any:
        """Return the value of a leaf of expressions."""
        b = self.b
        match e:
            case ex.Input():
                n = b.leaf(Op.INPUT)
            case ex.Parameter(name=name):
                n = b.leaf(Op.PARAM, self.parameters[name])
            case ex.Linear(name=name, bias=bias):
                n = b.leaf(Op.PREACT, list(self.projections).index(name))
                if bias:
                    n = b.emit(Op.ADD, n, b.leaf(Op.PARAM, self.parameters[bias_name(name)]))
            case ex.Score():
                assert self.score is not None
                return b.values_of(self.score)
            case _:
                raise AssertionError(e)
        return Value(b, n)

    def _at(self, value: Value, end: str) -> Value:
        """Return a value over a family at an end of arcs from each state to each; at a target it has its own index."""
        n = value.n
        for family in self.cell.families if end == "source" else ():
            if (source := self.families.get(str(family.source))) is not None:
                n = self.b.move(n, self.families[family.name], source)
        return Value(self.b, n)

    # ---- the automaton -------------------------------------------------------------------------------------

    def _closure(self) -> dict[tuple[str, str], int]:
        """Return (p, q) → the total weight of ε-paths from p to q, the empty path included; absent means zero."""
        b, states = self.b, self.states
        eps: dict[tuple[str, str], int] = {}
        for a in self.arcs:
            if a.epsilon:
                key = (a.source, a.target)
                eps[key] = b.sum([eps.get(key, b.zero), self.weight(a.weight)])
        if self.cell.epsilon_limit is not None:
            unit = {(q, q): b.one for q in states}
            total, power = dict(unit), dict(unit)
            for _ in range(self.cell.epsilon_limit):
                power = self._product(power, eps)
                for key, value in power.items():
                    total[key] = b.sum([total.get(key, b.zero), value])
            return total
        place = {q: i for i, q in enumerate(states)}
        matrix = SparseMatrix(
            len(states),
            {(place[p], place[q]): n for (p, q), n in eps.items() if n != b.zero},
            b.plus,
            b.times,
            lambda a: b.one if a == b.zero else b.star(a),
            b.zero,
        )
        kleene(matrix, selective=b.semiring.selective)
        return {(states[p], states[q]): n for (p, q), n in matrix.entries.items()}

    def _product(
        self, left: dict[tuple[str, str], int], right: dict[tuple[str, str], int]
    ) -> dict[tuple[str, str], int]:
        """Return the product of two sparse matrices over the states."""
        leaving: dict[str, list[tuple[str, int]]] = {}
        for (k, q), y in right.items():
            leaving.setdefault(k, []).append((q, y))
        product: dict[tuple[str, str], int] = {}
        for (p, k), x in left.items():
            for q, y in leaving.get(k, ()):
                product[p, q] = self.b.sum([product.get((p, q), self.b.zero), self.b.times(x, y)])
        return product

    def _closed(self, q: str, values: dict[str, int], closure: dict[tuple[str, str], int]) -> int:
        """Return the value of q after ε-arcs: its own first, then the others in state order."""
        sources = [q, *(p for p in self.states if p != q)]
        return self.b.sum(self.b.times(values[p], closure[p, q]) for p in sources if (p, q) in closure)

    def _update(self, q: str, old: dict[str, int], closure: dict[tuple[str, str], int]) -> int:
        """Return the new value of q: the ⊕ over arcs into q, its loop first. Arcs of equal weight share one product."""
        into = [a for a in self.arcs if a.target == q and not a.epsilon]
        into.sort(key=lambda a: a.source != q)
        groups: dict[ex.Expr, list[CellArc]] = {}
        for a in into:
            groups.setdefault(a.weight, []).append(a)
        b, commutes = self.b, self.cell.semiring.commutative

        def product(weight: int, before: int) -> int:  # in formulas a weight comes first, if ⊗ commutes
            return b.times(weight, before) if commutes else b.times(before, weight)

        def before(source: str) -> int:
            return self._closed(source, old, closure)

        if self.wide is None:
            return b.sum(
                product(self.weight(weight), b.sum(before(a.source) for a in group))
                for weight, group in groups.items()
            )
        return b.sum(self._sent(a, before(a.source), product) for a in into)

    def _sent(self, arc: CellArc, before: int, product: Callable[[int, int], int]) -> int:
        """Return what the states of an arc's source, with these values, send to its target."""
        weight, source, target = self.weight(arc.weight), arc.source, arc.target
        if arc.full:
            along = self.families[f"{source}.source"]
            before = self.b.move_element(before, self.families[source], along)
            return self.b.fold(product(weight, before), along)
        if source in self.families and target not in self.families:
            return self.b.fold(product(weight, before), self.families[source])
        return product(weight, before)

    def _initial(self) -> dict[str, int]:
        """Return the initial weight of every state."""
        return {q: self.weight(self.initials[q]) if q in self.initials else self.b.zero for q in self.states}

    def _score(self, new: dict[str, int], closure: dict[tuple[str, str], int]) -> int:
        """Return the score: the ⊕ over final states, closed under ε, of their value ⊗ ρ."""
        b = self.b
        after = closure if self.cell.epsilon_after_last else {(q, q): b.one for q in self.states}
        ends = self.finals | self.reads  # after a symbol, a read takes the place of a final weight
        values = {q: b.times(self._closed(q, new, after), self.weight(rho)) for q, rho in ends.items()}
        return b.sum(b.fold(n, self.families[q]) if q in self.families else n for q, n in values.items())

    def stored(self) -> list[str]:
        """Return the states that need memory: all but the greatest set of states whose update gives back their λ. This
        leaves many instructions behind, so run the lowering itself on a fresh instance.

        A final state that no arc leaves is stored too, though no later step reads it: so the output reads old states
        through new ones only, which the backward scan relies on.
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

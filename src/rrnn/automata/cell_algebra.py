"""Make cells from cells: union, concatenation, interpolation, scaling, renaming.

Equal projection names share their rows of W; `relabel(cell, prefix="b_")` keeps them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from rrnn.automata import expressions as ex
from rrnn.automata.cell import Cell
from rrnn.automata.cell_rules import check_leaves
from rrnn.automata.evaluator import EXPRESSIONS, Evaluator
from rrnn.automata.expression_text import given_names
from rrnn.errors import CellError
from rrnn.semirings import Semiring


def times(semiring: Semiring, a: ex.Expr, b: ex.Expr) -> ex.Expr:
    """Return a ⊗ b as an expression."""
    if isinstance(a, ex.Zero) or isinstance(b, ex.Zero):
        return ex.zero
    if isinstance(a, ex.One):
        return b
    if isinstance(b, ex.One):
        return a
    if semiring.components and not isinstance(a, ex.Construct) and not isinstance(b, ex.Construct):
        return a * b  # both stand for real numbers
    product = semiring.times(_components(semiring, a), _components(semiring, b), EXPRESSIONS)
    return _joined(semiring, product)


def _components(semiring: Semiring, weight: ex.Expr) -> Any:
    """Return a weight as an element whose components are expressions."""
    return Evaluator(EXPRESSIONS, semiring, lambda leaf: leaf, ex.as_expr).weight(weight)


def _joined(semiring: Semiring, element: Any) -> ex.Expr:
    """Return an element of expressions as a weight, by the first constructor, which takes the components."""
    if not semiring.components:
        return element
    return ex.construct(next(iter(semiring.constructors)), *element)


def scale(cell: Cell, weight: ex.Operand) -> Cell:
    """Return a cell whose scores are those of `cell` ⊗ `weight`, a constant that multiplies the final weights."""
    _are_cells("scale", cell)
    w = ex.as_expr(weight)
    scaled = cell._with(finals=())
    for q, rho in cell.finals:
        scaled = scaled.final(q, times(cell.semiring, rho, w))
    return scaled


def union(a: Cell, b: Cell, name: str | None = None, *, output: ex.Operand | None = None) -> Cell:
    """Return a cell whose score is the score of `a` ⊕ the score of `b`."""
    _are_cells("union", a, b)
    both, a, b = _side_by_side(a, b, name or f"{a.name}_or_{b.name}"[:64], output)
    return both._with(initials=a.initials + b.initials, finals=a.finals + b.finals)


def concatenate(a: Cell, b: Cell, name: str | None = None, *, output: ex.Operand | None = None) -> Cell:
    """Return a cell whose score of a string is the ⊕, over all splits, of (`a` of the head) ⊗ (`b` of the tail)."""
    _are_cells("concatenate", a, b)
    if a.epsilon_limit is not None or b.epsilon_limit is not None:
        raise CellError(
            "cells are concatenated by ε-arcs from the ends of the first to the starts of the second, and an "
            "epsilon_limit would count those too. Concatenate cells without one, then call .limit_epsilon(k)."
        )
    both, a, b = _side_by_side(a, b, name or f"{a.name}_then_{b.name}"[:64], output)
    joined = both._with(initials=a.initials, finals=b.finals)
    for q, rho in a.finals:
        for p, lam in b.initials:
            joined = joined.epsilon(q, p, times(a.semiring, rho, lam))
    return joined


def interpolate(
    a: Cell,
    b: Cell,
    weight_a: ex.Operand | None = None,
    weight_b: ex.Operand | None = None,
    name: str | None = None,
    *,
    output: ex.Operand | None = None,
) -> Cell:
    """Return a cell whose score is weight_a ⊗ the score of `a` ⊕ weight_b ⊗ the score of `b`.

    By default the two weights are learned and lie in (0, 1); where ⊗ is +, they are the logarithms of such weights, and
    in min-plus their costs −log. They are σ of the first two parameters among p1, p2, … that the cells do not use.
    """
    _are_cells("interpolate", a, b)
    used = {n.name for c in (a, b) for n in _nodes(c) if isinstance(n, (ex.Linear, ex.Parameter))}
    free = (f"p{i}" for i in count(1) if f"p{i}" not in used)
    ring = a.semiring

    def gate(x: ex.Expr) -> ex.Expr:
        return ex.sigmoid(x) if ring.components else ring.gate(x, EXPRESSIONS)

    return union(
        scale(a, gate(ex.parameter(next(free))) if weight_a is None else weight_a),
        scale(b, gate(ex.parameter(next(free))) if weight_b is None else weight_b),
        name or f"{a.name}_with_{b.name}"[:64],
        output=output,
    )


def _are_cells(what: str, *given: object) -> None:
    """Raise a `CellError` if an argument of the function `what` is no cell."""
    for each in given:
        if not isinstance(each, Cell):
            raise CellError(
                f"{what} makes a cell from cells; got {type(each).__name__}. (A name of the zoo becomes a cell by "
                "get_cell; WFSAs have methods of their own, as in machine.union(other).)"
            )
        if each.families or each.reads:
            raise CellError(
                f"{what} makes a cell from cells of single states that end in final states; cell {each.name!r} has "
                f"{'families of states' if each.families else 'read-outs'}. Write them out first: "
                "rrnn.automata.unroll(cell)."
            )


def relabel(cell: Cell, states: Mapping[str, str] | None = None, prefix: str = "") -> Cell:
    """Return the cell with states renamed, and with `prefix` before the name of every projection, parameter and named
    expression."""
    _are_cells("relabel", cell)
    new = {q: ex.check_name((states or {}).get(q, q), "a state's name") for q in cell.states}
    unknown = [q for q in states or {} if q not in new]
    if unknown:
        raise CellError(f"unknown state {unknown[0]!r}: cell {cell.name!r} has {', '.join(cell.states)}")
    if len(set(new.values())) < len(new):
        raise CellError(
            f"two states of cell {cell.name!r} would get the same name; got {dict(states or {})!r}"
        )

    def node(e: ex.Expr) -> ex.Expr:
        label = ex.check_name(prefix + e.label, "an expression's name") if e.label and prefix else e.label
        if isinstance(e, (ex.Linear, ex.Parameter)):
            return replace(e, name=ex.check_name(prefix + e.name, "a projection's name"), label=label)
        return replace(e, label=label)

    return _rebuilt(cell, new, node)


def _rebuilt(cell: Cell, states: Mapping[str, str], node: Callable[[ex.Expr], ex.Expr]) -> Cell:
    """Return the cell with other names of states, and every node of its expressions replaced, inner ones first."""

    def expr(e: ex.Expr) -> ex.Expr:
        if isinstance(e, ex.Call):
            e = replace(e, argument=expr(e.argument), more=tuple(expr(a) for a in e.more))
        elif isinstance(e, ex.Binary):
            e = replace(e, left=expr(e.left), right=expr(e.right))
        elif isinstance(e, ex.Construct):
            e = replace(e, arguments=tuple(expr(a) for a in e.arguments))
        elif isinstance(e, ex.At):
            e = replace(e, of=expr(e.of))
        return node(e)

    return cell._with(
        states=tuple(states[q] for q in cell.states),
        arcs=tuple(
            a._replace(source=states[a.source], target=states[a.target], weight=expr(a.weight))
            for a in cell.arcs
        ),
        initials=tuple((states[q], expr(w)) for q, w in cell.initials),
        finals=tuple((states[q], expr(w)) for q, w in cell.finals),
        given_outputs=tuple(expr(e) for e in cell.given_outputs),
    )


def _side_by_side(a: Cell, b: Cell, name: str, output: ex.Operand | None) -> tuple[Cell, Cell, Cell]:
    """Return (both cells in one, without initial and final weights; `a`; `b` with clashing names of states and
    expressions renamed)."""
    if a.semiring != b.semiring:
        raise CellError(
            f"cells compose over one semiring; got {a.semiring_name} and {b.semiring_name}. "
            "Build both over the same one, or convert one with .with_semiring(…)."
        )
    if (a.epsilon_limit, a.epsilon_after_last) != (b.epsilon_limit, b.epsilon_after_last):
        raise CellError(
            f"cells compose only under the same epsilon_limit; got {a.epsilon_limit} and {b.epsilon_limit} "
            f"(after the last symbol: {a.epsilon_after_last} and {b.epsilon_after_last}). "
            "Call .limit_epsilon(k) with the same k on both."
        )
    if output is None and a.output_exprs != b.output_exprs:
        raise CellError("the cells have different output expressions: pass output=… to choose one")
    if output is not None:
        b = b._with(given_outputs=())  # names in what is dropped clash with nothing
    states = _fresh(b.states, a.states)
    of_a, of_b = given_names(a), given_names(b)
    clashing = [n for n, e in of_b.items() if of_a.get(n, e) != e]
    labels = _fresh(clashing, [*of_a, *(n for n in of_b if n not in clashing)])
    b = _rebuilt(b, states, lambda e: replace(e, label=labels.get(e.label or "", e.label)))
    both = a.renamed(name)._with(states=a.states + b.states, arcs=a.arcs + b.arcs, initials=(), finals=())
    both = both if output is None else both.output(output)
    check_leaves(
        both._with(initials=a.initials + b.initials, finals=a.finals + b.finals),
        'relabel(cell, prefix="b_") keeps the two cells apart',
    )
    return both, a, b


def _fresh(names: Iterable[str], taken: Iterable[str]) -> dict[str, str]:
    """Return each name with as many underscores appended as make it new: old name → new name."""
    seen, fresh = set(taken), dict[str, str]()
    for name in names:
        new = name
        while new in seen:
            new += "_"
        seen.add(new)
        fresh[name] = ex.check_name(new, "a renamed state or expression")
    return fresh


def _nodes(cell: Cell) -> Iterable[ex.Expr]:
    return (node for top in cell.expressions() for node in ex.walk(top))

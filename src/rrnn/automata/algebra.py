"""Cells from cells: union, concatenation, interpolation. Equal projection names share their rows of W;
`relabel(cell, prefix="b_")` keeps them apart."""

from __future__ import annotations

from rrnn.automata import expressions as ex
from rrnn.automata.cell import Cell, CellArc, relabel
from rrnn.errors import CellError
from rrnn.semirings import Semiring


def times(semiring: Semiring, a: ex.Expr, b: ex.Expr) -> ex.Expr:
    """a ⊗ b as an expression."""
    if isinstance(a, ex.Zero) or isinstance(b, ex.Zero):
        return ex.zero
    if isinstance(a, ex.One):
        return b
    if isinstance(b, ex.One):
        return a
    return a + b if semiring.times_symbol == "+" else a * b


def scale(cell: Cell, weight: ex.Expr | float) -> Cell:
    """Every score ⊗ weight (a constant weight: it multiplies the final weights)."""
    w = ex.as_expr(weight)
    scaled = cell._with(finals=())
    for q, rho in cell.finals:
        scaled = scaled.final(q, times(cell.semiring, rho, w))
    return scaled


def union(a: Cell, b: Cell, name: str | None = None, *, output: ex.Expr | str | None = None) -> Cell:
    """score = score of `a` ⊕ score of `b`."""
    a, b, fields = _side_by_side(a, b, output)
    return a._with(**fields, initials=a.initials + b.initials, finals=a.finals + b.finals, name=name or f"{a.name}_or_{b.name}")


def concatenate(a: Cell, b: Cell, name: str | None = None, *, output: ex.Expr | str | None = None) -> Cell:
    """score of a string = ⊕ over its splits of (a of the head) ⊗ (b of the tail)."""
    a, b, fields = _side_by_side(a, b, output)
    joined = a._with(**fields, finals=b.finals, name=name or f"{a.name}_then_{b.name}")
    for q, rho in a.finals:
        for p, lam in b.initials:
            joined = joined.epsilon(q, p, times(a.semiring, rho, lam))
    return joined


def interpolate(
    a: Cell,
    b: Cell,
    weight_a: ex.Expr | float | None = None,
    weight_b: ex.Expr | float | None = None,
    name: str | None = None,
    *,
    output: ex.Expr | str | None = None,
) -> Cell:
    """score = weight_a ⊗ score of `a` ⊕ weight_b ⊗ score of `b`; by default two learned weights p1, p2 in (0, 1)
    (their logarithms where ⊗ is +)."""
    gate = ex.log_sigmoid if a.semiring.times_symbol == "+" else ex.sigmoid
    return union(
        scale(a, gate(ex.parameter("p1")) if weight_a is None else weight_a),
        scale(b, gate(ex.parameter("p2")) if weight_b is None else weight_b),
        name or f"{a.name}_with_{b.name}",
        output=output,
    )


def _side_by_side(a: Cell, b: Cell, output: ex.Expr | str | None) -> tuple[Cell, Cell, dict[str, object]]:
    if a.semiring_name != b.semiring_name:
        raise CellError(f"cells compose over one semiring; got {a.semiring_name} and {b.semiring_name}")
    if (a.epsilon_limit, a.epsilon_after_last) != (b.epsilon_limit, b.epsilon_after_last):
        raise CellError("cells compose only under the same epsilon_limit")
    if output is None and a.output_expr != b.output_expr:
        raise CellError("the cells have different output expressions: say which with output=…")
    taken, fresh = set(a.states), {}
    for q in b.states:
        new = q
        while new in taken:
            new += "_"
        taken.add(new)
        fresh[q] = new
    b = relabel(b, fresh)
    fields: dict[str, object] = {
        "states": a.states + b.states,
        "arcs": a.arcs + tuple(CellArc(*arc) for arc in b.arcs),
        "output_expr": a.output_expr if output is None else ex.as_expr(output),
    }
    return a, b, fields

"""Names for expressions, so that text and equations say f¹ and u¹ instead of repeating formulas."""

from __future__ import annotations

from rrnn.automata import expressions as ex
from rrnn.automata.cell import Cell
from rrnn.errors import CellError

RESERVED = {*ex.FUNCTIONS, "linear", "parameter", "input", "score", "one", "zero", "neg"}


def definitions(cell: Cell) -> dict[ex.Expr, str]:
    """Expression → name, inner ones first. Names given by `.named` come first; then a gate is called after the
    projection or parameter it squashes, and a weight after the one projection that no inner name explains."""
    given: dict[str, ex.Expr] = {}
    for top in cell.expressions():
        for node in ex.walk(top):
            if node.label is not None and given.setdefault(node.label, node) != node:
                raise CellError(f"the name {node.label!r} is given to two different expressions; use two names")
    names = {node: label for label, node in given.items()}
    for reserved in RESERVED & set(given):
        raise CellError(f"an expression cannot be called {reserved!r}: the cell language uses that word")

    def claim(node: ex.Expr, name: str | None) -> None:
        if name and node not in names and name not in RESERVED and name not in names.values():
            names[node] = name

    weights = [weight for _, weight in cell.weights()]
    for top in [*weights, cell.output_expr]:
        for node in ex.walk(top):
            if isinstance(node, ex.Call) and isinstance(node.argument, (ex.Linear, ex.Parameter)):
                claim(node, node.argument.name)
    for top in weights:
        if not isinstance(top, (ex.Number, ex.One, ex.Zero, ex.Input)):
            unexplained = _leaves(top, names)
            claim(top, unexplained.pop() if len(unexplained) == 1 else None)
    in_order = dict.fromkeys(node for top in [*weights, cell.output_expr] for node in ex.walk(top))
    return {node: names[node] for node in in_order if node in names}


def _leaves(expr: ex.Expr, names: dict[ex.Expr, str]) -> set[str]:
    """Projection and parameter names below `expr`, not counting those inside an already named subexpression."""
    if isinstance(expr, (ex.Linear, ex.Parameter)):
        return {expr.name}
    return {n for child in expr.children if child not in names for n in _leaves(child, names)}

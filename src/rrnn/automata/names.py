"""Names for expressions, so that text and equations say f¹ and u¹ instead of repeating formulas."""

from __future__ import annotations

from rrnn.automata import expressions as ex
from rrnn.automata.cell import Cell
from rrnn.errors import CellError

RESERVED = {
    *("sigmoid", "tanh", "relu", "log_sigmoid", "exp", "log", "softplus", "sqrt", "step"),
    *("linear", "parameter", "input", "score", "one", "zero", "neg"),
}
"""Words that no expression may be called. Functions that came later are not among them, so that texts written before
still read: a call is told from a name by its bracket."""


def definitions(cell: Cell) -> dict[ex.Expr, str]:
    """Expression → name, inner ones first.

    Names given by `.named` come first (of two for the same expression, the first); then a gate is called after
    the projection or parameter it squashes, and a weight, or an argument of its constructor, after the one projection
    that no inner name explains.
    """
    names: dict[ex.Expr, str] = {}
    for label, node in given_names(cell).items():
        names.setdefault(node, label)
    taken = RESERVED | set(names.values())  # a second name of an expression is not written, so it is free

    def claim(node: ex.Expr, name: str) -> None:
        if node not in names and name not in taken:
            names[node] = name
            taken.add(name)

    weights = [weight for _, weight in cell.weights()]
    nodes = dict.fromkeys(node for top in [*weights, *cell.output_exprs] for node in ex.walk(top))
    # A constructor's arguments are numbers of their own: θ is the angle in polar(r, θ), not the whole weight.
    weights = [part for w in weights for part in (w.children if isinstance(w, ex.Construct) else (w,))]
    for node in nodes:
        # A gate squashes; −x does not, and would take the name from σ(x) in σ(−x) and σ(x).
        if (
            isinstance(node, ex.Call)
            and node.function != "neg"
            and isinstance(node.argument, (ex.Linear, ex.Parameter))
        ):
            claim(node, node.argument.name)
    # Small weights first: what explains a weight is then named before it, so that reading the text and naming
    # again gives the same names.
    for top in sorted(weights, key=lambda weight: weight.size):
        unexplained = _leaves(top, names)
        if len(unexplained) == 1:
            claim(top, *unexplained)
    return {node: names[node] for node in nodes if node in names}


def given_names(cell: Cell) -> dict[str, ex.Expr]:
    """Name → the expression that `.named` gave it to, checked to be one each."""
    given: dict[str, ex.Expr] = {}
    for top in cell.expressions():
        for node in ex.walk(top):
            if node.label is None:
                continue
            if node.label in RESERVED:
                raise CellError(
                    f"an expression cannot be called {node.label!r}: the cell language uses that word. "
                    f"Call it {node.label}_1 or the like."
                )
            if given.setdefault(node.label, node) != node:
                raise CellError(
                    f"the name {node.label!r} is given to two different expressions; use two names"
                )
    return given


def _leaves(expr: ex.Expr, names: dict[ex.Expr, str]) -> set[str]:
    """Projection and parameter names below `expr`, not counting those inside an already named subexpression."""
    if isinstance(expr, (ex.Linear, ex.Parameter)):
        return {expr.name}
    return {n for child in expr.children if child not in names for n in _leaves(child, names)}

"""Expressions as text, and names for them.

What is written here, `expression_parser` reads back as the same tree. Names let text and equations say f¹ and u¹
instead of repeating formulas.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from rrnn.automata import expressions as ex
from rrnn.errors import CellError

if TYPE_CHECKING:
    from rrnn.automata.cell import Cell

PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2}

# ---- writing -----------------------------------------------------------------------------------------------


def expr_text(expr: ex.Expr, names: Mapping[ex.Expr, str] | None = None, *, top: bool = False) -> str:
    """Return an expression as Python-like text, named subexpressions by their names (`top`: spell this one out)."""
    return _show(expr, names or {}, 0, top)


def _show(e: ex.Expr, names: Mapping[ex.Expr, str], parent: int = 0, top: bool = False) -> str:
    """Write an expression. `parent` is how tightly the surrounding operator binds; looser text gets brackets."""
    if not top and e in names:
        return names[e]
    match e:
        case ex.Number(value=value):
            text = repr(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
            return f"({text})" if value < 0 and parent else text
        case ex.One():
            return "one"
        case ex.Zero():
            return "zero"
        case ex.Score():
            return "score"
        case ex.Input():
            return "input()"
        case ex.Linear(name=name, bias=bias, window=window):
            options = (", bias=True" if bias else "") + (f", window={window}" if window > 1 else "")
            return f'linear("{name}"{options}{_extent(e)})'
        case ex.Parameter(name=name):
            return f'parameter("{name}"{_extent(e)})'
        case ex.Index(of=of):
            return f"index({of})"
        case ex.Uniform(low=low, high=high, draw=draw):
            ends = f"{_show(ex.Number(low), {})}, {_show(ex.Number(high), {})}"
            return f"uniform({ends}, {draw})" if draw else f"uniform({ends})"
        case ex.Component(of=of, name=name):
            return f"{_show(of, names, 3)}.{name}"
        case ex.At(of=of, end=end):
            return f"{_show(of, names, 3)}.{end}"
        case ex.Construct(function=function, arguments=arguments):
            return f"{function}({', '.join(_show(a, names) for a in arguments)})"
        case ex.Call(function="neg", argument=argument):
            text = "-" + _show(argument, names, 3)
            return f"({text})" if parent else text
        case ex.Call(function=function):
            return f"{function}({', '.join(_show(a, names) for a in e.children)})"
        case ex.Binary(operator=operator, left=left, right=right):
            level = PRECEDENCE[operator]
            # a - (b + c) and a * (b * c) keep their brackets: reading must give the same tree back
            text = f"{_show(left, names, level)} {operator} {_show(right, names, level + 1)}"
            return f"({text})" if parent > level else text
    raise AssertionError(e)


def _extent(leaf: ex.Linear | ex.Parameter) -> str:
    """Return the options of a leaf that has a value for each state of a family, or is shared by several units."""
    indices = ", ".join(map(str, ex.indices_of(leaf)))
    text = f", over=({indices})" if isinstance(leaf.over, tuple) else f", over={indices}" if indices else ""
    text += f', per="{leaf.per}"' if leaf.per != "unit" else ""
    text += f", start={_show(leaf.start, {})}" if leaf.start is not None else ""
    return text + (", learned=False" if isinstance(leaf, ex.Parameter) and not leaf.learned else "")


def without_starts(cell: Cell) -> dict[ex.Expr, str]:
    """Return the text, without its first value, of each projection and parameter that has one: a name for `expr_text`
    where only the automaton counts."""
    nodes = (node for top in cell.expressions() for node in ex.walk(top))
    leaves = (node for node in nodes if isinstance(node, (ex.Linear, ex.Parameter)))
    return {leaf: expr_text(replace(leaf, start=None)) for leaf in leaves if leaf.start is not None}


RESERVED = {
    *("sigmoid", "tanh", "relu", "log_sigmoid", "exp", "log", "softplus", "sqrt", "step"),
    *("linear", "parameter", "input", "score", "one", "zero", "neg"),
}
"""Words that cannot name an expression. Functions that were added later are not among them, so that older texts can
still be read: a call is told from a name by its bracket."""


def definitions(cell: Cell) -> dict[ex.Expr, str]:
    """Return the names of a cell's expressions, inner ones first: expression → name.

    Names given by `.named` come first (of two for the same expression, the first). Then a gate is called after the
    projection or parameter it squashes, and a weight, or an argument of its constructor, after the one projection that
    no inner name explains.
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
        # A gate squashes; −x does not, and would take the name from σ(x) in σ(−x) and σ(x). Nor does eˣ: a parameter
        # under it is a logarithm, as Mamba's A_log, and keeps its name.
        if (
            isinstance(node, ex.Call)
            and node.function != "neg"
            and isinstance(node.argument, (ex.Linear, ex.Parameter))
            and not (node.function == "exp" and isinstance(node.argument, ex.Parameter))
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
    """Return the names that `.named` gave, each checked to stand for one expression: name → expression."""
    given: dict[str, ex.Expr] = {}
    for top in cell.expressions():
        for node in ex.walk(top):
            if node.label is None:
                continue
            if node.label in RESERVED:
                raise CellError(
                    f"an expression cannot be called {node.label!r}: the cell language uses that word. "
                    f"Use another name, such as {node.label}_1."
                )
            if given.setdefault(node.label, node) != node:
                raise CellError(
                    f"the name {node.label!r} is given to two different expressions; use two names"
                )
    return given


def _leaves(expr: ex.Expr, names: dict[ex.Expr, str]) -> set[str]:
    """Return the names of projections and parameters below `expr`, without those inside a named subexpression."""
    if isinstance(expr, (ex.Linear, ex.Parameter)):
        return {expr.name}
    return {n for child in expr.children if child not in names for n in _leaves(child, names)}

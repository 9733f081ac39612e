"""Write a cell as the Python code that builds it."""

from __future__ import annotations

import keyword
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from rrnn.automata import Cell, definitions, expr_text
from rrnn.automata import expressions as ex
from rrnn.automata.cell_text import WIDE_HEADER

INPUT_SIZE, HIDDEN_SIZE = 300, 256
"""The sizes of the layer with which the code ends."""
_FROM_EXPRESSIONS = ("as_expr", "call", "input")
"""Names that the package `rrnn` does not export, since they would hide Python's own."""


def to_python(cell: Cell) -> str:
    """Return code whose execution gives an equal cell, named after it, and a layer of it."""
    names = definitions(cell)
    taken = {*dir(ex), "Cell", "RationalRNN", "layer", *keyword.kwlist}
    variables: dict[ex.Expr, str] = {}
    for expr, name in names.items():
        variables[expr] = _free(name, taken)
    own = _free(cell.name, taken)
    text = cell.to_text().rstrip()
    # The builder orders states by their first mention; families and first values are easier to read as text.
    if _mentioned(cell) != cell.states or text.startswith(WIDE_HEADER):
        return f'from rrnn import Cell, RationalRNN\n\n{own} = Cell.from_text("""\\\n{text}\n""")\n\n{_layer(own)}\n'
    written = _special(cell, variables)
    found = definitions(_unnamed(cell))
    lines = [
        f"{variables[expr]} = {_definition(expr, name, written, found.get(expr))}"
        for expr, name in names.items()
    ]
    chain = [f'Cell("{cell.name}", "{cell.semiring_name}")', *_calls(cell, written)]
    body = "\n".join(f"    {call}" for call in chain)
    code = "\n".join([*lines, "", f"{own} = (\n{body}\n)", "", _layer(own)])
    return "\n".join([*_imports(cell, code), "", code.lstrip("\n")]) + "\n"


def _layer(name: str) -> str:
    return f"layer = RationalRNN({name}, {INPUT_SIZE}, {HIDDEN_SIZE})"


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _mentioned(cell: Cell) -> tuple[str, ...]:
    """Return the states in the order in which the builder's calls name them."""
    ends = [(q for q, _ in some) for some in (cell.initials, cell.finals)]
    between = (q for arc in cell.arcs for q in (arc.source, arc.target))
    return tuple(dict.fromkeys((*ends[0], *between, *ends[1])))


def _calls(cell: Cell, written: dict[ex.Expr, str]) -> Iterator[str]:
    """Yield the builder's calls."""
    if cell.epsilon_limit is not None:
        last = "" if cell.epsilon_after_last else ", after_last=False"
        yield f".limit_epsilon({cell.epsilon_limit}{last})"

    def end(word: str, state: str, weight: ex.Expr) -> str:
        more = "" if isinstance(weight, ex.One) else f", {expr_text(weight, written)}"
        return f'.{word}("{state}"{more})'

    yield from (end("initial", q, w) for q, w in cell.initials)
    seen: set[tuple[str, str, bool]] = set()
    for source, target, weight, epsilon, _ in cell.arcs:
        merge = ', merge="plus"' if (source, target, epsilon) in seen else ""
        seen.add((source, target, epsilon))
        loop = source == target and not epsilon
        states = f'"{source}"' if loop else f'"{source}", "{target}"'
        word = "loop" if loop else "epsilon" if epsilon else "arc"
        yield f".{word}({states}, {expr_text(weight, written)}{merge})"
    yield from (end("final", q, w) for q, w in cell.finals)
    yield f".output({', '.join(expr_text(e, written) for e in cell.output_exprs)})"


def _special(cell: Cell, variables: dict[ex.Expr, str]) -> dict[ex.Expr, str]:
    """Return how to write what has a variable, and what Python would not read as the cell language does.

    Functions of several arguments have no Python function of their own, and `2 * 3` would be the number 6.
    """
    written = dict(variables)
    for top in cell.expressions():
        for node in ex.walk(top):
            if node not in written and (text := _unlike_python(node, written)):
                written[node] = text
    return written


def _unlike_python(node: ex.Expr, written: dict[ex.Expr, str]) -> str:
    if isinstance(node, ex.Call) and node.function not in (*_PLAIN_FUNCTIONS, "neg"):
        return f'call("{node.function}", {", ".join(expr_text(a, written) for a in node.children)})'
    if isinstance(node, ex.Binary) and all(isinstance(child, ex.Number) for child in node.children):
        left, right = (expr_text(child, written) for child in node.children)
        return f"(as_expr({left}) {node.operator} {right})"
    return ""


_PLAIN_FUNCTIONS = tuple(name for name in ex.FUNCTIONS if hasattr(ex, name))


def _definition(expr: ex.Expr, name: str, written: dict[ex.Expr, str], found: str | None) -> str:
    """Return the right side of a definition, with `.named` unless rrnn finds this name by itself."""
    text = _unlike_python(expr, written) or expr_text(expr, written, top=True)
    if isinstance(expr, ex.Number):
        text = f"as_expr({text})"
    if name == found:
        return text
    bare = isinstance(expr, ex.Binary) or (isinstance(expr, ex.Call) and expr.function == "neg")
    return f'{f"({text})" if bare else text}.named("{name}")'


def _unnamed(cell: Cell) -> Cell:
    """Return the cell without the names that were given to expressions."""

    def strip(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(strip, value))
        if not isinstance(value, ex.Expr):
            return value
        return replace(
            value, **{f.name: strip(getattr(value, f.name)) for f in fields(value)} | {"label": None}
        )

    bare = Cell(cell.name, cell.semiring_name)
    for state, weight in cell.initials:
        bare = bare.initial(state, strip(weight))
    for source, target, weight, epsilon, _ in cell.arcs:
        bare = (bare.epsilon if epsilon else bare.arc)(source, target, strip(weight), merge="plus")
    for state, weight in cell.finals:
        bare = bare.final(state, strip(weight))
    return bare.output(*(strip(e) for e in cell.output_exprs))


def _imports(cell: Cell, code: str) -> list[str]:
    """Return the lines that import what the code uses."""
    nodes = {node for top in cell.expressions() for node in ex.walk(top)}
    used = {"Cell", "RationalRNN"}
    used |= {node.function for node in nodes if isinstance(node, (ex.Call, ex.Construct))}
    used |= {name for kind, name in _LEAVES.items() if any(type(node) is kind for node in nodes)}
    used -= {"neg"} | {
        node.function for node in nodes if isinstance(node, ex.Call) and node.function not in _PLAIN_FUNCTIONS
    }
    local = [name for name in _FROM_EXPRESSIONS if f"{name}(" in code]
    if "complex" in used:  # `rrnn.complex` would hide Python's
        used.remove("complex")
        lines = ["from rrnn.automata import complex"]
    else:
        lines = []
    lines = [f"from rrnn import {', '.join(sorted(used - {'input'}, key=_order))}", *lines]
    return [*lines, f"from rrnn.automata.expressions import {', '.join(local)}"] if local else lines


_LEAVES = {ex.Linear: "linear", ex.Parameter: "parameter", ex.One: "one", ex.Zero: "zero", ex.Score: "score"}


def _order(name: str) -> tuple[bool, str]:
    """Sort as linters do: classes first."""
    return name.islower(), name

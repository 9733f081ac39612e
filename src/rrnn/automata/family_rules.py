"""The rules of families: which index a weight may depend on at its place, and which arcs families may have."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from rrnn.automata import expressions as ex
from rrnn.automata.expression_text import expr_text
from rrnn.errors import CellError

if TYPE_CHECKING:
    from rrnn.automata.cell import Cell

_LEAVES = (ex.Linear, ex.Parameter)


def check_ends(
    place: str,
    source: ex.Family | None,
    target: ex.Family | None,
    epsilon: bool,
    full: bool,
    loop: bool,
) -> None:
    """Raise a `CellError` for arcs that families cannot have; `full` marks those from each state to each."""
    place = place.removeprefix("the weight of ")  # it is the arc that cannot be, whatever its weight
    if epsilon and (source or target):
        raise CellError(
            f"{place}: arcs of a family consume a symbol, and this one is an ε-arc. Put its weight on the arcs that "
            "enter or leave the family."
        )
    if full and not (source and target):
        raise CellError(
            f"{place}: both ends of such arcs are families, and one end here is a single state.",
            call=" Use .arc(…) from or to a single state.",
            line=" Write arc for arcs from or to a single state.",
        )
    if not full and source and target and not loop and source.size != target.size:
        raise CellError(
            f"{place} joins the states of equal index, and {source.name!r} has {source.size} states, {target.name!r} "
            f"{target.size}.",
            call=" Give both one size, or use .mix(…), from each state to each.",
            line=" Give both one size, or write mix, from each state to each.",
        )


def check_index(expr: ex.Expr, place: str, families: Collection[ex.Family | None]) -> None:
    """Raise a `CellError` if an expression depends on an index that its place does not have. `families` holds the
    family of each state there, None for a single one; an output expression stands at no state."""
    here = {family.name: family for family in families if family is not None}
    nowhere = "single states, which have no index" if families else "no state"
    for node in ex.walk(expr):
        if isinstance(node, ex.At) or (isinstance(node, _LEAVES) and isinstance(node.over, tuple)):
            raise CellError(
                f"{place} uses {expr_text(node)}: source and target are the ends of arcs from each state of a family "
                "to each, which this is not.",
                call=" Use it in .mix(…).",
                line=" Use it in a line that begins with mix.",
            )
        if isinstance(node, _LEAVES) and isinstance(node.over, ex.Family):
            # States of equal index share the weight, also where they belong to another family.
            alike = any(family.size == node.over.size for family in here.values())
            if node.over.name in here or not alike:
                _check_family(node, node.over, place, here, nowhere)


def check_states(cell: Cell) -> None:
    """Raise a `CellError` if a weight has a value for each state of a family that the cell has no states of."""
    for place, weight in cell.weights():
        for family in sorted(ex.families_of(weight) - set(cell.families), key=str):
            raise CellError(
                f"{place} has one value for each state of the family {family.name!r}, and no arc of {cell.name!r} "
                "enters or leaves that family. Name the family of these states in over=…."
            )


def _check_family(
    node: ex.Linear | ex.Parameter,
    family: ex.Family,
    place: str,
    here: dict[str, ex.Family],
    nowhere: str = "",
) -> None:
    """Raise a `CellError` if a leaf over a family stands where that family has no index."""
    known = here.get(family.name)
    if known == family:
        return
    if known is not None:
        raise CellError(
            f"{place} uses {expr_text(node)} with {family.size} values, and the family {known.name!r} has "
            f"{known.size} states. Use one family for both."
        )
    where = f"the family {' or '.join(map(repr, here))}" if here else nowhere
    raise CellError(
        f"{place} uses {expr_text(node)}, one value for each state of the family {family.name!r}, but it "
        f"belongs to {where}. Use it on an arc or loop of {family.name!r}, or in ",
        call=f".read({family.name}, …), which sums over its states.",
        line=f"a line read {family.name} : …, which sums over its states.",
    )


def check_pairs(expr: ex.Expr, place: str, source: ex.Family | None, target: ex.Family | None) -> None:
    """Raise a `CellError` if the weight of arcs from each state of a family to each depends on another index than those
    of the source and the target."""
    assert source is not None and target is not None
    ends = {"source": source, "target": target}
    matrix = source.source, target.target

    def check(node: ex.Expr, end: str | None) -> None:
        if isinstance(node, ex.At):
            if end is not None or not ex.families_of(node):
                what = "at an end already" if end is not None else "the same for all states"
                raise CellError(
                    f"{place} uses {expr_text(node)}, and {expr_text(node.of)} is {what}. Write .source and .target "
                    'after what has a value for each state, as in k = linear("k", over=h).'
                )
            end = node.end
        elif isinstance(node, _LEAVES) and isinstance(node.over, tuple):
            if end is not None or node.over != matrix:
                raise CellError(
                    f"{place} uses {expr_text(node)}; the matrix of these arcs is over ({matrix[0]}, {matrix[1]}), "
                    f"with {source.size} and {target.size} states."
                )
        elif isinstance(node, _LEAVES) and isinstance(node.over, ex.Family):
            if end is None:
                raise CellError(
                    f"{place} uses {expr_text(node)}, one value for each state of the family {node.over.name!r}, and "
                    "these arcs have two ends. Say which one: write .source or .target after it."
                )
            _check_family(node, node.over, f"the {end} in {place}", {ends[end].name: ends[end]})
        for child in node.children:
            check(child, end)

    check(expr, None)

"""The table of docs/compiler.md: which models of the zoo use each word for families."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from figures import named, table

from rrnn.automata import Cell
from rrnn.automata import expressions as ex
from rrnn.zoo import MODELS, get_cell


def _leaves(cell: Cell) -> Iterator[ex.Linear | ex.Parameter]:
    nodes = (node for top in cell.expressions() for node in ex.walk(top))
    return (node for node in nodes if isinstance(node, (ex.Linear, ex.Parameter)))


def _starts(cell: Cell) -> Iterator[ex.Expr]:
    return (node for leaf in _leaves(cell) if leaf.start is not None for node in ex.walk(leaf.start))


def _mixes(cell: Cell) -> Iterator[ex.Expr]:
    return (node for arc in cell.arcs if arc.full for node in ex.walk(arc.weight))


USES: dict[str, Callable[[Cell], bool]] = {
    '`family("h", n)`': lambda cell: bool(cell.families),
    "`over=h`": lambda cell: any(isinstance(leaf.over, ex.Family) for leaf in _leaves(cell)),
    '`per="head"`': lambda cell: any(leaf.per == "head" for leaf in _leaves(cell)),
    '`per="group"`': lambda cell: any(leaf.per == "group" for leaf in _leaves(cell)),
    "`.read(h, w)`": lambda cell: bool(cell.reads),
    "several families of one index": lambda cell: len(cell.families) > 1,
    "`.mix(h, h, …)` with `.source`, `.target`": lambda cell: any(isinstance(n, ex.At) for n in _mixes(cell)),
    "`.mix(h, h, …)` with `over=(h.source, h.target)`": lambda cell: any(
        isinstance(getattr(node, "over", None), tuple) for node in _mixes(cell)
    ),
    "`start=…`": lambda cell: any(True for _ in _starts(cell)),
    "`index(…)`": lambda cell: any(isinstance(node, ex.Index) for node in _starts(cell)),
    "`uniform(low, high)`": lambda cell: any(isinstance(node, ex.Uniform) for node in _starts(cell)),
    "`learned=False`": lambda cell: any(not getattr(leaf, "learned", True) for leaf in _leaves(cell)),
}
"""A word of the language → whether a cell uses it."""


def users() -> dict[str, list[str]]:
    """Return the models of the zoo that use each word."""
    cells = {
        name: get_cell(name) if model.automaton is None else model.automaton(4)
        for name, model in MODELS.items()
        if model.is_cell or model.automaton is not None
    }
    return {word: [name for name, cell in cells.items() if uses(cell)] for word, uses in USES.items()}


@named
def constructs() -> str:
    return table("word | models", [(word, ", ".join(names)) for word, names in users().items()])

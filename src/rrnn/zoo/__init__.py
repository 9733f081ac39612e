"""The zoo: each model is its automaton. `get_cell("F")` gives one by name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rrnn.automata import Cell
from rrnn.automata.text import MAX_TEXT
from rrnn.errors import CellError, FormatError
from rrnn.zoo.ngram import ngram
from rrnn.zoo.rrnn import b, b_max_plus, c, f
from rrnn.zoo.sru import sru

if TYPE_CHECKING:
    from rrnn.nn import RationalRNN

CELLS: dict[str, Callable[[], Cell]] = {
    "B": b,
    "B-max-plus": b_max_plus,
    "C": c,
    "F": f,
    "ngram4": ngram,
    "SRU": sru,
}
"""Name → cell. `B+o` etc. name the variant with an output gate, `ngramN` any chain."""

_GATED: dict[str, Callable[..., Cell]] = {"b": b, "b-max-plus": b_max_plus, "c": c, "f": f}


def get_cell(name: str | Path) -> Cell:
    """A cell of the zoo by name (any case), or read from a `.cell` file by path."""
    if isinstance(name, Path):
        return read_cell(name)
    if not isinstance(name, str):
        raise CellError(f"a cell is named by a str; got {type(name).__name__}")
    key, gated = name.lower().removesuffix("+o"), name.lower().endswith("+o")
    if m := re.fullmatch(r"ngram([0-9]{1,3})", key):
        return ngram(int(m[1]), gate=gated)
    if gated and key in _GATED:
        return _GATED[key](gate=True)
    known = {word.lower(): word for word in CELLS}
    if not gated and key in known:
        return CELLS[known[key]]()
    if name.endswith(".cell") or "/" in name or _is_file(name):
        return read_cell(name)
    if gated and key in known:
        raise CellError(f"{known[key]} has no variant with an output gate; {', '.join(_gated_names())} have")
    near = difflib.get_close_matches(key[:64], known, 1, cutoff=0.4)
    hint = f" Did you mean {known[near[0]]!r}?" if near else ""
    raise CellError(
        f"no cell is called {name[:64]!r}: the zoo has {', '.join(CELLS)} ('+o' adds an output gate, ngramN any "
        f"n from 1 to 64); a file's name ends in .cell.{hint}"
    )


def _gated_names() -> list[str]:
    return [*(word for word in CELLS if word.lower() in _GATED), "ngramN"]


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # a name no file can have: too long, or with a NUL in it
        return False


def layer(
    cell: Cell | str | Sequence[tuple[Cell | str, int]],
    input_size: int,
    hidden_size: int | None = None,
    *args: Any,
    **options: Any,
) -> RationalRNN:
    """A `RationalRNN` of cells by name: `layer("F", 300, 256)`, or `layer([("B", 96), ("F", 64)], 300)`. The other
    arguments are those of `RationalRNN`."""
    from rrnn.nn import RationalRNN  # here, since cells are of use without torch

    if isinstance(cell, str):
        cell = get_cell(cell)
    elif not isinstance(cell, Cell):
        cell = [(get_cell(c) if isinstance(c, str) else c, units) for c, units in cell]
    return RationalRNN(cell, input_size, hidden_size, *args, **options)


def read_cell(path: str | Path) -> Cell:
    """A cell from a `.cell` file."""
    try:
        with Path(path).open(encoding="utf-8-sig") as file:
            text = file.read(MAX_TEXT + 1)  # more is refused anyway
    except (OSError, ValueError) as error:
        raise FormatError(f"cannot read the cell: {error}", source=str(path)[:200]) from None
    return Cell.from_text(text, str(path))


__all__ = ["CELLS", "b", "b_max_plus", "c", "f", "get_cell", "layer", "ngram", "read_cell", "sru"]

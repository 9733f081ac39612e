"""The zoo: each model is its automaton. `get_cell("F")` gives one by name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from pathlib import Path

from rrnn.automata import Cell
from rrnn.errors import CellError, FormatError
from rrnn.zoo.ngram import ngram
from rrnn.zoo.rrnn import b, b_max_plus, c, f
from rrnn.zoo.sru import sru

CELLS: dict[str, Callable[[], Cell]] = {
    "B": b,
    "B-max-plus": b_max_plus,
    "C": c,
    "F": f,
    "ngram4": lambda: ngram(4),
    "SRU": sru,
}
"""Name → cell. `B+o` etc. name the variant with an output gate, `ngramN` any chain."""

_GATED = {"B": b, "B-max-plus": b_max_plus, "C": c, "F": f}


def get_cell(name: str) -> Cell:
    """A cell of the zoo by name (any case), or read from a `.cell` file by path."""
    key = name.lower().removesuffix("+o")
    for known, make in CELLS.items():
        if known.lower() == key:
            if not name.lower().endswith("+o"):
                return make()
            if known in _GATED:
                return _GATED[known](gate=True)
    if m := re.fullmatch(r"ngram(\d{1,3})", key):
        return ngram(int(m[1]))
    if name.endswith(".cell") or "/" in name or Path(name).is_file():
        return read_cell(name)
    near = difflib.get_close_matches(name, CELLS, 1, cutoff=0.4)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise CellError(
        f"no cell is called {name!r}: the zoo has {', '.join(CELLS)} ('+o' adds an output gate, ngramN any n); "
        f"a file's name ends in .cell.{hint}"
    )


def read_cell(path: str | Path) -> Cell:
    """A cell from a `.cell` file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"cannot read the cell: {error}", source=str(path)) from None
    return Cell.from_text(text, str(path))


__all__ = ["CELLS", "b", "b_max_plus", "c", "f", "get_cell", "ngram", "read_cell", "sru"]

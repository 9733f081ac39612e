"""The zoo: models by name. `get_cell("F")` is the automaton of one, `layer("F", 300, 256)` a layer of it.

Where a model is a cell, its file is the cell and little else; `rrnn.zoo.table` lists them all.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rrnn.automata import Cell
from rrnn.automata.cell_text import MAX_TEXT
from rrnn.errors import CellError, FormatError
from rrnn.zoo.ngram import ngram
from rrnn.zoo.rrnn import b, b_max_plus, c, f
from rrnn.zoo.sru import sru
from rrnn.zoo.table import CELLS, MODELS, Model


def get_cell(name: str | Path, **options: Any) -> Cell:
    """A cell of the zoo by name (any case), or read from a `.cell` file by path. Options are those of the function
    that makes the cell: `get_cell("QRNN3", pooling="ifo")`."""
    if isinstance(name, Path):
        return read_cell(name)
    if not isinstance(name, str):
        raise CellError(f"a cell is named by a str; got {type(name).__name__}")
    found = _find(name)
    if found is None and names_file(name):
        return read_cell(name)
    if found is None:
        raise CellError(_unknown(name, CELLS))
    key, model, given = found
    if not model.is_cell:
        why = model.open or "its units mix."
        raise CellError(f"{name} is no cell: {why} rrnn.zoo.layer({name!r}, …) builds the layer.")
    return _made(key, model, given | options)


def layer(
    cell: Cell | str | Sequence[tuple[Cell | str, int]],
    input_size: int,
    hidden_size: int | None = None,
    *args: Any,
    **options: Any,
) -> Any:
    """A layer of a model by name, `layer("F", 300, 256)`, or of several cells, `layer([("B", 96), ("F", 64)], 300)`.

    The other arguments are those of `RationalRNN`; what a cell can be made with stands among them,
    `layer("QRNN2", 300, 256, pooling="ifo", zoneout=0.1)`. Models that are no cells (LSTM) have classes of their own,
    which are called in the same way.
    """
    if isinstance(cell, str):
        found = _find(cell)
        if found is not None and not found[1].is_cell:
            try:
                return found[1].factory(input_size, hidden_size, *args, **found[2], **options)
            except TypeError as error:
                raise CellError(f"{cell}, which is no cell, has options of its own: {error}") from error
        if found is None and not names_file(cell):
            raise CellError(_unknown(cell, MODELS))
        own = {} if found is None else {key: options.pop(key) for key in found[1].options if key in options}
        cell = get_cell(cell, **own)
    elif not isinstance(cell, Cell):
        cell = [(get_cell(c) if isinstance(c, str) else c, units) for c, units in cell]
    from rrnn.nn import RationalRNN  # here, since cells are of use without torch

    return RationalRNN(cell, input_size, hidden_size, *args, **options)


def get_model(name: str) -> Model:
    """What the zoo knows of a model, by name. Numbers and gates in the name are not in it."""
    found = _find(name)
    if found is None:
        raise CellError(_unknown(name, MODELS))
    return found[1]


def read_cell(path: str | Path) -> Cell:
    """A cell from a `.cell` file."""
    try:
        with Path(path).open(encoding="utf-8-sig") as file:
            text = file.read(MAX_TEXT + 1)  # more is refused anyway
    except (OSError, ValueError) as error:
        raise FormatError(f"cannot read the cell: {error}", source=str(path)[:200]) from None
    return Cell.from_text(text, str(path))


# ---- names -----------------------------------------------------------------------------------------------------------

_BY_WORD = {name.lower(): name for name in MODELS}
_BY_STEM = {re.sub("[0-9]", "", word): name for word, name in _BY_WORD.items() if MODELS[name].size}


def _find(name: str) -> tuple[str, Model, dict[str, Any]] | None:
    """(name in the table, model, the options that the name gives), or None."""
    word, gate = name.lower().removesuffix("+o"), name.lower().endswith("+o")
    options: dict[str, Any] = {"gate": True} if gate else {}
    key = _BY_WORD.get(word)
    if key is None and (m := re.fullmatch(r"([a-z]+)([0-9]{0,3})((?:-[a-z]+)*)", word)):
        key = _BY_STEM.get(m[1] + m[3])
        if key and m[2]:
            options[MODELS[key].size] = int(m[2])
    if key is None:
        return None
    if gate and not (MODELS[key].is_cell and "gate" in MODELS[key].options):
        gated = ", ".join(re.sub("[0-9]", "N", n) for n in CELLS if "gate" in MODELS[n].options)
        raise CellError(f"{key} has no variant with an output gate; {gated} have")
    return key, MODELS[key], options


def _made(key: str, model: Model, options: dict[str, Any]) -> Cell:
    unknown = [option for option in options if option not in model.options]
    if unknown:
        known = f"the options {', '.join(model.options)}" if model.options else "no options"
        raise CellError(f"{key} has {known}; got {unknown[0]!r}")
    return model.factory(**options)


def _unknown(name: str, table: dict[str, Any]) -> str:
    words = {n.lower(): n for n in table}
    near = difflib.get_close_matches(name.lower()[:64].removesuffix("+o"), words, 1, cutoff=0.5)
    hint = f" Did you mean {words[near[0]]!r}?" if near else ""
    what = "cell" if table is CELLS else "model"
    return (
        f"no {what} is called {name[:64]!r}: the zoo has {', '.join(table)} ('+o' adds an output gate, a number in a "
        f"name can be another); a file's name ends in .cell.{hint}"
    )


def names_file(name: str) -> bool:
    """Whether a name that the zoo does not have is meant for a file."""
    if name.endswith(".cell") or "/" in name:
        return True
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # a name no file can have: too long, or with a NUL in it
        return False


__all__ = [
    "CELLS",
    "MODELS",
    "Model",
    "b",
    "b_max_plus",
    "c",
    "f",
    "get_cell",
    "get_model",
    "layer",
    "names_file",
    "ngram",
    "read_cell",
    "sru",
]

"""The zoo: models by name. `get_cell("F")` returns a model's automaton, `layer("F", 300, 256)` a layer of it.

`rrnn.zoo.models` lists all models. The cells are in `rrnn` (those of Peng et al. 2018), `gated` (relatives of B),
`chains` (patterns of several words) and `counting` (cells that count), layers that are no cells in `mixing`, `controls`
and `recurrent`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rrnn.automata import Cell
from rrnn.automata.cell_text import MAX_TEXT
from rrnn.errors import CellError, FormatError, nearest
from rrnn.zoo.blocks import BLOCKS, fitted_settings
from rrnn.zoo.gated import sru
from rrnn.zoo.models import CELLS, MODELS, Model
from rrnn.zoo.rrnn import b, b_max_plus, c, f, ngram


def get_cell(name: str | Path, **options: Any) -> Cell:
    """Return a cell of the zoo by name (in any case), or read a `.cell` file by path.

    Options are those of the function that builds the cell, `get_cell("QRNN3", pooling="ifo")`. They may also stand in
    the name, where a text is all that one can give: `get_cell("QRNN3:pooling=ifo")`.
    """
    if isinstance(name, Path):
        return read_cell(name)
    if not isinstance(name, str):
        raise CellError(f"a cell's name must be a str or a Path; got {type(name).__name__}")
    found = _find(name)
    if found is None and names_file(name):
        return read_cell(name)
    if found is None:
        raise CellError(_unknown(name, CELLS))
    key, model, given = found
    model = _with_units(model, given | options)
    if model.automaton is not None and not model.is_cell:
        raise CellError(
            f"the automaton of {name} has a state for each unit of the layer. Say how many, as in {key}:units=4, or "
            f"build the layer with rrnn.zoo.layer({name!r}, …)."
        )
    if not model.is_cell:
        why = " ".join(filter(None, (f"it is {model.proved}." if model.proved else "", model.open)))
        raise CellError(f"{name} is not a cell: {why} Build the layer with rrnn.zoo.layer({name!r}, …).")
    return _made(key, model, given | options)


def cell_to_show(name: str) -> Cell:
    """Return a cell to derive or to draw, by name or file. Of a model with as many states as units, ISAN, that is the
    cell of 4 units, unless the name says how many."""
    found = _find(name)
    shown = found is not None and found[1].automaton is not None and "units" not in found[2]
    return get_cell(name, units=4) if shown else get_cell(name)


def layer(
    cell: Cell | str | Sequence[tuple[Cell | str, int]],
    input_size: int,
    hidden_size: int | None = None,
    *args: Any,
    **options: Any,
) -> Any:
    """Build a layer of a model, `layer("F", 300, 256)`, or of several cells, `layer([("B", 96), ("F", 64)], 300)`.

    The other arguments are those of `RationalRNN` and the cell's own options,
    `layer("QRNN2", 300, 256, pooling="ifo", zoneout=0.1)`. Models that are no cells (LSTM) have classes of their own,
    which are called in the same way.
    """
    if isinstance(cell, str):
        found = _find(cell)
        model = None if found is None else _with_units(found[1], found[2] | options)
        if found is not None and model is not None and not model.is_cell:
            try:
                return model.factory(input_size, hidden_size, *args, **found[2], **options)
            except TypeError as error:
                raise CellError(f"{cell} is not a cell and has its own options: {error}") from error
        if model is None and not names_file(cell):
            raise CellError(_unknown(cell, MODELS))
        own = {} if model is None else {key: options.pop(key) for key in model.options if key in options}
        cell = get_cell(cell, **own)
    from rrnn.nn import RationalRNN  # imported here, since cells do not need torch

    return RationalRNN(cell, input_size, hidden_size, *args, **options)


def block_settings(name: str, cell: Cell | None = None) -> dict[str, Any]:
    """Return the settings of the published block around a model, by its name; {} for one without, and for a file.

    With `cell`, the block is to be put around that cell: settings of projections that it does not have are left out.
    """
    found = _find(name)
    if found is None and not names_file(name):
        raise CellError(_unknown(name, CELLS))
    settings = {} if found is None else dict(BLOCKS.get(found[0], {}))
    return settings if cell is None else fitted_settings(settings, cell)


def get_model(name: str) -> Model:
    """Return the table row of a model by name. It does not reflect a number, `+o` or options in the name, but that
    `ISAN:units=4` is a cell."""
    found = _find(name)
    if found is None and names_file(name):
        raise CellError(
            f"this takes models of the zoo; got the file {name[:64]!r}. Try: rrnn derive {name[:64]}"
        )
    if found is None:
        raise CellError(_unknown(name, MODELS))
    return _with_units(found[1], found[2])


def read_cell(path: str | Path) -> Cell:
    """Read a cell from a `.cell` file."""
    try:
        with Path(path).open(encoding="utf-8-sig") as file:
            text = file.read(MAX_TEXT + 1)  # Cell.from_text refuses longer texts
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error  # a text that is not UTF-8 raises a ValueError
        raise FormatError(f"cannot read the cell: {why}", source=str(path)[:200]) from None
    return Cell.from_text(text, str(path))


# ---- names -----------------------------------------------------------------------------------------------------------


def _find(name: str) -> tuple[str, Model, dict[str, Any]] | None:
    """Return (name in the table, model, options that the name implies), or None for an unknown name."""
    base, given = _split(name)
    word, gate = base.lower().removesuffix("+o"), base.lower().endswith("+o")
    options: dict[str, Any] = {"gate": True} if gate else {}
    key = next((key for key in MODELS if key.lower() == word), None)
    if key is None and (m := re.fullmatch(r"([a-z]+)([0-9]{0,9})((?:-[a-z]+)*)", word)):
        stems = {re.sub("[0-9]", "", key.lower()): key for key, model in MODELS.items() if model.size}
        key = stems.get(m[1] + m[3])
        if key and m[2]:
            options[MODELS[key].size] = int(m[2])
    if key is None:
        return None
    if gate and not (MODELS[key].is_cell and "gate" in MODELS[key].options):
        gated = ", ".join(re.sub("[0-9]", "N", n) for n in CELLS if "gate" in MODELS[n].options)
        raise CellError(f"{key} has no variant with an output gate; these have one: {gated}")
    return key, MODELS[key], options | given


def _with_units(model: Model, options: Mapping[str, Any]) -> Model:
    """Return the model, as a cell if it has as many states as units and the options say how many."""
    return (
        replace(model, make=model.automaton) if model.automaton is not None and "units" in options else model
    )


def _split(name: str) -> tuple[str, dict[str, Any]]:
    """Return the name before the colon and the options after it: "F:g=tanh,b_u" has g="tanh" and b_u=True."""
    base, _, text = name.partition(":")
    if not re.fullmatch(r"\w+(=[\w.+-]*)?(,\w+(=[\w.+-]*)?)*", text):
        return name, {}  # without options; or no name of a model, such as "C:\\my.cell"
    pairs = (part.partition("=") for part in text.split(","))
    return base, {key: _value(value) if equals else True for key, equals, value in pairs}


def _value(text: str) -> bool | int | float | str:
    """Return the value of an option in a name: true, false, a number, or a word."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _made(key: str, model: Model, options: dict[str, Any]) -> Cell:
    """Build a cell; raise for options that it does not have."""
    unknown = [option for option in options if option not in model.options]
    if unknown:
        known = f"the options {', '.join(model.options)}" if model.options else "no options"
        raise CellError(f"{key} has {known}; got {unknown[0]!r}.{nearest(unknown[0], model.options)}")
    return model.factory(**options)


def _unknown(name: str, table: dict[str, Any]) -> str:
    hint = nearest(_split(name[:64])[0].removesuffix("+o"), table)
    what = "cell" if table is CELLS else "model"
    return (
        f"no {what} is called {name[:64]!r}.{hint} The zoo has {', '.join(table)} ('+o' adds an output gate, and the "
        "number in a name can be changed); the name of a file must end in .cell."
    )


def names_file(name: str) -> bool:
    """Return whether a name that is not in the zoo means a file."""
    if name.endswith(".cell") or "/" in name:
        return True
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # no file can have this name: it is too long or contains NUL
        return False


__all__ = [
    "BLOCKS",
    "CELLS",
    "MODELS",
    "Model",
    "b",
    "b_max_plus",
    "block_settings",
    "c",
    "cell_to_show",
    "f",
    "get_cell",
    "get_model",
    "layer",
    "names_file",
    "ngram",
    "read_cell",
    "sru",
]

"""Files of WFSAs (OpenFst text, JSON, PAutomaC models, Graphviz dot), and files of strings."""

from __future__ import annotations

import os
from collections.abc import Callable
from inspect import signature
from pathlib import PurePath
from typing import Any

from rrnn.errors import FormatError
from rrnn.semirings import Semiring
from rrnn.wfsa.io.dot import save_dot, to_dot
from rrnn.wfsa.io.files import PathLike
from rrnn.wfsa.io.json import from_json, load_json, save_json, to_json
from rrnn.wfsa.io.labels_and_costs import Costs, SymbolTable, load_symbols, save_symbols, symbols_for
from rrnn.wfsa.io.openfst import from_openfst, load_openfst, save_openfst, to_openfst
from rrnn.wfsa.io.pautomac import from_pautomac, load_pautomac, save_pautomac, to_pautomac
from rrnn.wfsa.io.strings import StringsFile, load_strings, save_strings
from rrnn.wfsa.machine import WFSA

_LOADERS = {"json": load_json, "openfst": load_openfst, "pautomac": load_pautomac}
_SAVERS = {"json": save_json, "openfst": save_openfst, "pautomac": save_pautomac, "dot": save_dot}
_ENDINGS = {
    ".json": "json",
    ".fst": "openfst",
    ".fst.txt": "openfst",
    ".att": "openfst",
    ".pautomac": "pautomac",
    "pautomac_model.txt": "pautomac",  # the competition's own names: 1.pautomac_model.txt
    ".dot": "dot",
    ".gv": "dot",
}


def load(
    path: PathLike,
    format: str | None = None,
    *,
    semiring: str | Semiring | None = None,
    isymbols: PathLike | SymbolTable | None = None,
    costs: Costs | None = None,
    acceptor: bool | None = None,
    tolerance: float | None = None,
    allow_empty: bool = False,
) -> WFSA:
    """Read a WFSA. If the format (json, openfst, pautomac) is not given, it is taken from the file's name.

    An OpenFst file is read over `semiring` (by default min-plus, OpenFst's own), with `isymbols`, `costs` and
    `acceptor` as in `load_openfst`. Files of other formats determine their semiring; if another one is given here, the
    machine is converted (`WFSA.with_semiring`): `semiring="log"` reads a PAutomaC model as log-probabilities.
    """
    name = _format(path, format, _LOADERS, "read")
    options = {"isymbols": isymbols, "costs": costs, "acceptor": acceptor, "tolerance": tolerance}
    given = _options(options, _LOADERS[name], name)
    if name == "openfst" and semiring is not None:
        given["semiring"] = semiring
    wfsa = _LOADERS[name](path, allow_empty=allow_empty, **given)
    return wfsa if name == "openfst" or semiring is None else wfsa.with_semiring(semiring)


def save(
    wfsa: WFSA,
    path: PathLike,
    format: str | None = None,
    *,
    isymbols: PathLike | None = None,
    costs: Costs | None = None,
    tolerance: float | None = None,
    digits: int | None = None,
) -> None:
    """Write a WFSA. If the format (json, openfst, pautomac, dot) is not given, it is taken from the file's name.

    Files are written atomically: if an error occurs, an existing file keeps its content.
    """
    name = _format(path, format, _SAVERS, "written")
    options = {"isymbols": isymbols, "costs": costs, "tolerance": tolerance, "digits": digits}
    _SAVERS[name](wfsa, path, **_options(options, _SAVERS[name], name))


def guess_format(path: PathLike) -> str | None:
    """Return the format that belongs to a file's name, or None."""
    name = PurePath(os.fspath(path)).name.lower()
    return next((form for ending, form in _ENDINGS.items() if name.endswith(ending)), None)


def _format(path: PathLike, format: str | None, known: dict[str, Any], done: str) -> str:
    """Return the given format, or that of the file's name, or raise unless it is known."""
    name = format or guess_format(path)
    if name is None:
        endings = (ending for ending, form in _ENDINGS.items() if form in known)
        raise FormatError(
            "the format cannot be derived from the file's name, which has none of the known endings "
            f"({', '.join(endings)}). Pass format= (--format): one of {', '.join(known)}.",
            source=os.fspath(path),
        )
    if name not in known:
        raise FormatError(
            f"WFSAs can be {done} as {', '.join(known)}; got the format {name!r}", source=os.fspath(path)
        )
    return name


def _options(options: dict[str, Any], function: Callable[..., Any], name: str) -> dict[str, Any]:
    """Return the options that are given, or raise unless the function of the format takes them."""
    allowed = options.keys() & signature(function).parameters.keys()
    given = {key: value for key, value in options.items() if value is not None}
    for key in given:
        if key not in allowed:
            takes = f"takes {', '.join(sorted(allowed))}" if allowed else "takes no options"
            raise FormatError(f"the format {name} {takes}; got {key}")
    return given


__all__ = [
    "Costs",
    "StringsFile",
    "SymbolTable",
    "from_json",
    "from_openfst",
    "from_pautomac",
    "guess_format",
    "load",
    "load_json",
    "load_openfst",
    "load_pautomac",
    "load_strings",
    "load_symbols",
    "save",
    "save_dot",
    "save_json",
    "save_openfst",
    "save_pautomac",
    "save_strings",
    "save_symbols",
    "symbols_for",
    "to_dot",
    "to_json",
    "to_openfst",
    "to_pautomac",
]

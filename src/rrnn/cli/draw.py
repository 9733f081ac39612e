"""`rrnn draw`: draw an automaton, and write its dot text beside the picture."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from rrnn.automata import Cell
from rrnn.cli.shared import file_stem, option
from rrnn.draw import Diagram, save, to_dot, to_svg
from rrnn.draw.paper_figures import FIGURES
from rrnn.errors import CellError, FormatError
from rrnn.wfsa import WFSA
from rrnn.wfsa.io import guess_format, load
from rrnn.zoo import cell_to_show


@dataclass
class Draw:
    """Draw a cell or a WFSA in the style of the paper: bold circles are initial, double circles final."""

    automaton: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME|FILE")]
    """A cell of the zoo (B, C, F, ngram4, SRU, …), a .cell file, or a WFSA file (JSON, OpenFst, PAutomaC)."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"]), option("FILE")] = None
    """The file to write: out.svg for the picture, with out.dot beside it, or out.dot alone (default: NAME.svg here)."""
    paper: bool = False
    """Draw the figure of that name (B, C, D1, F) as in the paper, with its μ, φ, γ and ρ."""
    legend: bool = True
    """Explain the names on a cell's arcs below the picture."""
    format: Literal["json", "openfst", "pautomac"] | None = None
    """The format of a WFSA file, if its name does not tell."""
    isymbols: Path | None = None
    """The symbol table of an OpenFst file."""


def draw(options: Draw) -> None:
    """Run `rrnn draw`, and print the names of the files that it writes."""
    output = options.output or Path(f"{file_stem(options.automaton)}.svg")
    kind = output.suffix.lower()
    if kind not in (".svg", ".dot"):
        raise FormatError(
            "a picture is written as .svg or .dot; this output is neither. Use -o picture.svg.",
            source=str(output),
        )
    automaton = _read(options)
    texts: dict[Path, str] = {}
    if kind == ".svg":
        texts[output] = to_svg(automaton, legend=options.legend)
    dot = output.with_suffix(".dot") if kind == ".svg" else output
    texts[dot] = to_dot(automaton, legend=options.legend)
    if os.path.abspath(options.automaton) in map(os.path.abspath, texts):
        raise FormatError(
            "the picture would replace the file that it draws. Name another one: -o picture.svg",
            source=options.automaton,
        )
    for path, text in texts.items():  # written last, so that a mistake leaves no file behind
        print(save(path, text))


def _read(options: Draw) -> Cell | WFSA | Diagram:
    name = options.automaton
    format = None if options.paper else options.format or guess_format(name)
    if format in ("json", "openfst", "pautomac"):
        return load(name, format, isymbols=options.isymbols)
    if options.isymbols is not None:
        raise FormatError(
            f"only an OpenFst file has a symbol table; if {name[:64]!r} is one, add --format openfst"
        )
    if options.paper:
        figures = {key.lower(): figure for key, figure in FIGURES.items()}
        if name.lower() not in figures:
            raise CellError(f"the paper has figures of {', '.join(FIGURES)}; got {name[:64]!r}")
        return figures[name.lower()]()
    return cell_to_show(name)

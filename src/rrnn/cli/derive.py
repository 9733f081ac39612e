"""`rrnn derive`: print what the compiler makes of a cell: equations, LaTeX, IR, its parallel form, generated code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import tyro

from rrnn.automata import Cell, definitions, expr_text
from rrnn.automata.expression_text import without_starts
from rrnn.cli.shared import option
from rrnn.ir import Program, adjoint, lower
from rrnn.ir.affine import affine
from rrnn.ir.equations import equations, latex, scan_text, state_symbols
from rrnn.ir.notation import PLAIN, symbol_of
from rrnn.ir.separable import separable
from rrnn.zoo import cell_to_show

_Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff, option()]


@dataclass
class Derive:
    """Derive the recurrence of an automaton and print its equations."""

    cell: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME|FILE")]
    """A cell of the zoo (B, F+o, SRU, QRNN3, …; `rrnn zoo` lists them) or a .cell file."""
    latex: _Flag = False
    """Print the equations as a LaTeX align environment."""
    ir: _Flag = False
    """Print the program of one time step and the program of its gradient."""
    scan: _Flag = False
    """Print how chunks of time run in parallel, and the numbers that each chunk carries forward and backward."""
    triton: _Flag = False
    """Print the GPU kernels in Triton, unrolled by two steps (real ones unroll more)."""
    c: _Flag = False
    """Print the CPU kernels in C, forward and backward, for float32."""


def derive(options: Derive) -> None:
    cell = cell_to_show(options.cell)
    parts: list[str] = []
    if options.latex:
        parts.append(latex(cell))
    if options.ir:
        parts += _programs(cell)
    if options.scan:
        parts.append(scan_text(cell))
    if options.triton or options.c:
        from rrnn.explorer.design_tab import c_code, triton_code  # imported here: only these need torch

        parts += [triton_code(lower(cell).program)] if options.triton else []
        parts += [c_code(lower(cell).program)] if options.c else []
    print("\n".join(parts or [summary(cell), equations(cell)]), end="")


def summary(cell: Cell) -> str:
    """Describe an automaton in a few lines: its arcs, where paths start and end, and its stored states."""
    symbols = {expr: PLAIN.symbol(symbol_of(name)) for expr, name in definitions(cell).items()}
    names = without_starts(cell) | symbols
    silent = sum(arc.epsilon for arc in cell.arcs)
    sizes = {family.name: family.size for family in cell.families}
    counts = f"{_count(cell.state_count, 'state')}, {_count(len(cell.arcs), 'arc')}"
    lines = [
        f"{cell.name} over the {cell.semiring_name} semiring: {counts}{f' ({silent} ε)' if silent else ''}"
    ]
    rows = [(f"start {q}", expr_text(weight, names)) for q, weight in cell.initials]
    rows += [
        (f"{a.source} {'⇉' if a.full else '→ε' if a.epsilon else '→'} {a.target}", expr_text(a.weight, names))
        for a in cell.arcs
    ]
    rows += [(f"final {q}", expr_text(weight, names)) for q, weight in cell.finals]
    rows += [(f"read {q}", expr_text(weight, names)) for q, weight in cell.reads]
    width = max(len(left) for left, _ in rows)
    lines += [f"  {left:<{width}} : {right}" for left, right in rows]
    families = [f"{name} is a family of {_count(size, 'state')}" for name, size in sizes.items()]
    lines[1:1] = [f"  {line}" for line in families]
    stored = ", ".join(f"{q} as {symbol}" for q, symbol in state_symbols(cell).items())
    lines.append(f"stored: {stored or 'nothing'}")
    if sizes:
        lines.append(f"schedule: {_schedule(lower(cell).program)}")
    return "\n".join(lines) + "\n"


def _schedule(program: Program) -> str:
    """Say how a program of families can run."""
    found, mixing = separable(program), affine(program)
    if not isinstance(found, str):
        return f"matrix products on a GPU, {_DECAYS[found.decay]}; compiled loops on a CPU"
    if not isinstance(mixing, str):
        of = "the input's" if mixing.changes else "a learned"
        return f"{of} matrix times the states of a head, once for all its units, if there are {mixing.size}"
    return f"the scalar one, since {found}"


_DECAYS = {"none": "no decay", "head": "a decay per head", "state": "a decay per state"}


def _count(n: int, what: str) -> str:
    return f"{n} {what}" + ("" if n == 1 else "s")


def _programs(cell: Cell) -> Iterator[str]:
    program = lower(cell).program
    yield program.text
    if program.semiring.has_gradient:
        gradient = adjoint(program)
        yield gradient.step.text
        yield gradient.epilogue.text

"""`rrnn derive`: what the compiler makes of an automaton: equations, LaTeX, IR, the form that runs in parallel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import tyro

from rrnn.automata import Cell, definitions, expr_text
from rrnn.ir import adjoint, lower
from rrnn.ir.equations import equations, latex, scan_text, state_symbols
from rrnn.ir.notation import PLAIN, symbol_of
from rrnn.zoo import get_cell


@dataclass
class Derive:
    """Derive a recurrence from an automaton, and print it as a person would write it."""

    cell: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME|FILE")]
    """A cell of the zoo (B, F+o, SRU, QRNN3, …: docs/zoo.md lists them), or a .cell file."""
    latex: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print the equations as a LaTeX align environment."""
    ir: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print the program of one time step, and that of its gradient."""
    scan: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print how chunks of time run in parallel: which numbers a chunk carries, forward and backward."""
    triton: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print the kernels for a GPU, two steps a turn (a real one takes more)."""
    c: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print the kernels for the CPU, forward and backward, in C with float32."""


def derive(options: Derive) -> None:
    cell = get_cell(options.cell)
    parts: list[str] = []
    if options.latex:
        parts.append(latex(cell))
    if options.ir:
        parts += _programs(cell)
    if options.scan:
        parts += [scan_text(cell)]
    if options.triton:
        parts += [_triton(cell)]
    if options.c:
        parts += _c(cell)
    print("\n".join(parts or [summary(cell), equations(cell)]), end="")


def summary(cell: Cell) -> str:
    """The automaton in a few lines: its arcs, where paths start and end, and what is stored."""
    names = {expr: PLAIN.symbol(symbol_of(name)) for expr, name in definitions(cell).items()}
    silent = sum(arc.epsilon for arc in cell.arcs)
    counts = f"{_count(len(cell.states), 'state')}, {_count(len(cell.arcs), 'arc')}"
    lines = [
        f"{cell.name} over the {cell.semiring_name} semiring: {counts}{f' ({silent} ε)' if silent else ''}"
    ]
    rows = [(f"start {q}", expr_text(weight, names)) for q, weight in cell.initials]
    rows += [
        (f"{a.source} →{'ε' if a.epsilon else ''} {a.target}", expr_text(a.weight, names)) for a in cell.arcs
    ]
    rows += [(f"final {q}", expr_text(weight, names)) for q, weight in cell.finals]
    width = max(len(left) for left, _ in rows)
    lines += [f"  {left:<{width}} : {right}" for left, right in rows]
    stored = ", ".join(f"{q} as {symbol}" for q, symbol in state_symbols(cell).items())
    lines.append(f"stored: {stored or 'nothing'}")
    return "\n".join(lines) + "\n"


def _count(n: int, what: str) -> str:
    return f"{n} {what}" + ("" if n == 1 else "s")


def _triton(cell: Cell) -> str:
    from rrnn.backends.triton.module import render  # here: it needs torch, which the rest does without

    program = lower(cell).program
    return render(program, unroll=2, every=2 if program.semiring.has_gradient else 0)


def _c(cell: Cell) -> Iterator[str]:
    import torch

    from rrnn.backends.native.render import render_backward, render_forward

    program = lower(cell).program
    yield render_forward(program, torch.float32)
    if program.semiring.has_gradient:
        yield render_backward(program, torch.float32)


def _programs(cell: Cell) -> Iterator[str]:
    program = lower(cell).program
    yield program.text
    if program.semiring.has_gradient:
        gradient = adjoint(program)
        yield gradient.step.text
        yield gradient.epilogue.text

"""The tab *Design*: everything that the compiler makes of a cell's text."""

from __future__ import annotations

from typing import Any

import torch

from rrnn.automata import Cell
from rrnn.backends.native import families, render
from rrnn.backends.triton.families import render as render_families
from rrnn.backends.triton.module import render as render_triton
from rrnn.backends.triton.pair_kernels import render as render_pairs
from rrnn.backends.triton.plan import save_every
from rrnn.errors import RRNNError
from rrnn.explorer.machines import cell_template, read_cell, shown_template
from rrnn.explorer.mathml import mathml
from rrnn.explorer.pictures import picture
from rrnn.explorer.python_code import to_python
from rrnn.ir import Lowered, Program, lower, reverse_scan_form, scan_form
from rrnn.ir.equations import equations, latex, scan_text, state_symbols

MAX_CODE = 400_000
"""The number of characters of generated code that are shown."""
FLOAT = 4  # bytes of float32
UNITS = 256  # that share what a head shares


def design(text: str) -> dict[str, Any]:
    """Return what the page shows of a cell; raise an error with the line number for a text that is not valid."""
    cell = read_cell(text)
    lowered = lower(cell)
    return {
        "name": cell.name,
        "semiring": cell.semiring_name,
        "picture": picture(cell),
        "equations": mathml(lowered),
        "facts": facts(cell, lowered),
        "weights": _weights(cell),
        "code": {
            "python": to_python(cell),
            "c": _shown(c_code(lowered.program)),
            "triton": _shown(triton_code(lowered.program)),
            "chunks": _shown(scan_text(cell)),
            "latex": _shown(latex(cell)),
            "plain": _shown(equations(cell)),
            "ir": _shown(lowered.program.text),
        },
    }


def _weights(cell: Cell) -> dict[str, Any]:
    """Return the cell's weights as the tab Score shows them, or {"why": …} if it cannot."""
    try:
        return shown_template(cell_template(cell))
    except RRNNError as error:
        return {"why": str(error)}


def facts(cell: Cell, lowered: Lowered) -> dict[str, Any]:
    """Return the figures that describe the cost of the recurrence.

    Bytes are the least that a kernel must move for one unit and step: it reads every pre-activation (and input) once
    and writes every output once; training also moves their gradients.
    """
    program = lowered.program
    trains = program.semiring.has_gradient
    read = program.columns(UNITS) / UNITS + program.uses_input
    in_chunks = program.wide is None
    return {
        "states": cell.state_count,
        "arcs": len(cell.arcs),
        "epsilon": sum(arc.epsilon for arc in cell.arcs),
        "stored": [[q, symbol] for q, symbol in state_symbols(cell).items()],
        "carried": len(scan_form(program).carried) * program.semiring.size if in_chunks else None,
        "carried_back": _carried_back(program) if trains and in_chunks else None,
        "bytes": round((read + program.output_count) * FLOAT),
        "bytes_training": round((3 * read + 2 * program.output_count) * FLOAT) if trains else None,
        "projections": len(program.projections),
        "parameters": len(program.parameters),
    }


def _carried_back(program: Program) -> int:
    """Return how many numbers a chunk carries backward: the Jacobian, and what outputs add to each state's gradient."""
    form = reverse_scan_form(program)
    zero = {n for n, i in enumerate(form.program.instructions) if i.op.text == "const" and not i.attr}
    direct = {j for j, n in form.program.of_kind("direct").items() if n not in zero}
    return len(form.carried) + len({i for i, j in form.carried if j in direct})


def c_code(program: Program) -> str:
    """Render the CPU kernels, forward and, over semirings with a gradient, backward, for float32."""
    module = render if program.wide is None else families
    parts = [module.render_forward(program, torch.float32)]
    if program.semiring.has_gradient:
        parts.append(module.render_backward(program, torch.float32))
    return "\n".join(parts)


def triton_code(program: Program) -> str:
    """Render the GPU kernels, unrolled by at most two steps, where real ones may unroll more."""
    every = min(2, save_every(len(program.flat.instructions))) if program.semiring.has_gradient else 0
    if program.wide is not None:
        return (render_pairs if program.mixes else render_families)(program, every)
    return render_triton(program, unroll=2, every=every)


def _shown(text: str) -> str:
    if len(text) <= MAX_CODE:
        return text
    return (
        text[:MAX_CODE]
        + f"\n… and {len(text) - MAX_CODE} more characters: `rrnn derive` prints everything.\n"
    )

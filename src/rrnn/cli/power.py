"""`rrnn power`: say what one layer of a cell can and cannot compute, with a proof or a witness for each statement."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from rrnn.cli.shared import option, table
from rrnn.errors import CellError

if TYPE_CHECKING:
    from rrnn.theory import Power as Known


@dataclass
class Power:
    """Say which tasks one unit of a cell solves at all lengths, from the cell alone.

    Propositions are those of docs/theory.md. A witness is weights, or a limit of weights, with which the unit is the
    machine of the task. What neither settles is unknown.
    """

    cells: Annotated[tuple[str, ...], tyro.conf.Positional, option("NAME|FILE …")]
    """Cells of the zoo or .cell files."""
    json: Annotated[bool, option()] = False
    """Print one JSON object, {"rows": [...]}, instead of text."""


def power(options: Power) -> None:
    from rrnn.theory import power as read_off
    from rrnn.zoo import cell_to_show

    if not options.cells:
        raise CellError("there is no cell to examine: name some, as in rrnn power B Mamba")
    found = [read_off(cell_to_show(name)) for name in options.cells]
    if options.json:
        print(json.dumps({"rows": [p.as_dict() for p in found]}, indent=1, ensure_ascii=False))
    else:
        print("\n\n".join(map(report, found)))


def report(known: Known) -> str:
    """Return everything that is known of a cell as text."""
    from rrnn.theory.capabilities import NOTIONS, describe

    states = f"{known.states} states, {known.stored} of them stored by a layer"
    window = "" if known.window == 1 else f", weights that see {known.window} inputs"
    shape = "triangular (its only cycles are self-loops)" if known.triangular else "cyclic"
    lines = [f"{known.cell} over {known.semiring}: {shape}, {states}{window}"]
    lines += [f"  loop of {q}: {loop}" for q, loop in known.loops.items()]
    by_task: dict[str, list[str]] = {}
    for s in known.statements:
        by_task.setdefault(describe(s.task), []).append(s.text)
    rows = [(task, *texts) for task, texts in by_task.items()]
    lines += ["", table(("one unit, all lengths", *NOTIONS.values()), rows)]
    lines += ["", "P: proposition of docs/theory.md; w: witness; limit: in a limit of weights"]
    lines += [f"w{number}: {witness.text}" for number, witness in enumerate(known.witnesses, 1)]
    return "\n".join(lines)

"""Programs on Python floats, op by op: the definition that all backends are held to."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rrnn.arithmetic import FLOATS, Arithmetic
from rrnn.ir.ops import Instruction, Op

if TYPE_CHECKING:
    from rrnn.ir.program import Program


def interpret(
    instructions: Sequence[Instruction],
    which: Iterable[int],
    values: dict[int, Any],
    s: Arithmetic = FLOATS,
    number: Callable[[float], Any] = float,
) -> None:
    """Evaluate the instructions `which` into `values`, over any arithmetic: on floats this is the definition that all
    backends are held to. Leaves other than constants, which `number` makes, must be there already."""
    for n in sorted(which):
        if n not in values:
            op, args, attr = instructions[n]
            if op is Op.CONST:
                values[n] = number(float(attr or 0.0))
            else:
                values[n] = getattr(s, op.text)(*(values[a] for a in args))


def evaluate(
    instructions: Sequence[Instruction], leaves: Mapping[int, float], fixed: Mapping[int, float] | None = None
) -> list[float]:
    """Values of all instructions; `leaves` by instruction number, constants left aside; `fixed` overrides any."""
    values = {n: x for n, x in leaves.items() if instructions[n].op is not Op.CONST} | dict(fixed or {})
    # A builder's own zero and one may be elements, which no flat program reads.
    values |= {n: math.nan for n, i in enumerate(instructions) if i.op is Op.ELEMENT}
    interpret(instructions, range(len(instructions)), values)
    return [values[n] for n in range(len(instructions))]


def run_step(program: Program, leaves: Mapping[Op, Sequence[float]]) -> dict[tuple[str, int], float]:
    """(kind, index) → value of every output of one step; `leaves` are numbers by kind and index
    (`{Op.PREACT: [0.5, -1.0], Op.STATE: [0.0]}`)."""
    program = program.flat
    numbers = {
        n: leaves[op][int(attr or 0)]
        for n, (op, _, attr) in enumerate(program.instructions)
        if op.leaf and op is not Op.CONST
    }
    values = evaluate(program.instructions, numbers)
    return {(o.kind, o.index): values[o.value] for o in program.outputs}


def initial_state(program: Program, parameters: Sequence[float]) -> list[float]:
    """The stored states before the first symbol."""
    program = program.flat
    # Only per-unit values are asked for, so whatever stands in for the step's own leaves does not matter.
    numbers = {
        n: parameters[int(attr or 0)] if op is Op.PARAM else 0.0
        for n, (op, _, attr) in enumerate(program.instructions)
        if op.leaf
    }
    values = evaluate(program.instructions, numbers)
    return [values[i] for i in program.initial]

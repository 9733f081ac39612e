"""The meaning of every op, on Python floats: the definition that all backends are held to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rrnn.ir.ops import Instruction, Op

if TYPE_CHECKING:
    from rrnn.ir.program import Program


def _logaddexp(a: float, b: float) -> float:
    if a != a or b != b:
        return math.nan
    hi, lo = (a, b) if a >= b else (b, a)
    return hi if math.isinf(hi) or lo == -math.inf else hi + math.log1p(math.exp(lo - hi))


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0 else math.exp(x) / (1.0 + math.exp(x))


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def _div(a: float, b: float) -> float:
    return (
        a / b
        if b != 0
        else math.nan
        if a == 0 or math.isnan(a)
        else math.copysign(math.inf, a) * math.copysign(1, b)
    )


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


MEANING = {
    Op.ADD: lambda a, b: a + b,
    Op.SUB: lambda a, b: a - b,
    Op.MUL: lambda a, b: a * b,
    Op.DIV: _div,
    Op.NEG: lambda a: -a,
    # A NaN must not be lost in a comparison.
    Op.MAX: lambda a, b: a if a >= b or a != a else b,
    Op.MIN: lambda a, b: a if a <= b or a != a else b,
    Op.LOGADDEXP: _logaddexp,
    Op.EXP: _exp,
    Op.LOG: lambda a: math.log(a) if a > 0 else -math.inf if a == 0 else math.nan,
    Op.SQRT: lambda a: math.sqrt(a) if a >= 0 else math.nan,
    Op.SIGMOID: _sigmoid,
    Op.TANH: math.tanh,
    Op.RELU: lambda a: max(a, 0.0),
    Op.LOG_SIGMOID: lambda a: -_softplus(-a),
    Op.SOFTPLUS: _softplus,
    Op.STEP: lambda a: float(a > 0),
    Op.GE: lambda a, b: float(a >= b),
    Op.GT: lambda a, b: float(a > b),
    Op.SHARE: lambda a, b: 0.0 if a == -math.inf else _exp(a - b),
}


def evaluate(
    instructions: Sequence[Instruction], leaves: Mapping[int, float], fixed: Mapping[int, float] | None = None
) -> list[float]:
    """Values of all instructions; `leaves` by instruction number, `fixed` overrides any instruction."""
    values: list[float] = []
    for n, (op, args, attr) in enumerate(instructions):
        if fixed and n in fixed:
            values.append(fixed[n])
        elif op is Op.CONST:
            values.append(float(attr or 0.0))
        elif op.arity == 0:
            values.append(leaves[n])
        else:
            values.append(MEANING[op](*(values[a] for a in args)))
    return values


def run_step(program: Program, leaves: Mapping[Op, Sequence[float]]) -> dict[tuple[str, int], float]:
    """(kind, index) → value of every output of one step; `leaves` are numbers by kind and index
    (`{Op.PREACT: [0.5, -1.0], Op.STATE: [0.0]}`)."""
    numbers = {
        n: leaves[op][int(attr or 0)]
        for n, (op, _, attr) in enumerate(program.instructions)
        if op.arity == 0 and op is not Op.CONST
    }
    values = evaluate(program.instructions, numbers)
    return {(o.kind, o.index): values[o.value] for o in program.outputs}


def initial_state(program: Program, parameters: Sequence[float]) -> list[float]:
    """The stored states before the first symbol."""
    # Only per-unit values are asked for, so whatever stands in for the step's own leaves does not matter.
    numbers = {
        n: parameters[int(attr or 0)] if op is Op.PARAM else 0.0
        for n, (op, _, attr) in enumerate(program.instructions)
        if op.arity == 0
    }
    values = evaluate(program.instructions, numbers)
    return [values[i] for i in program.initial]

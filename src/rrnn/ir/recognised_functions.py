"""Find functions that several instructions compute together: |x|, sign(x), and a logarithm that is −∞ at 0."""

from __future__ import annotations

import math
from typing import NamedTuple

from rrnn.ir.program import Op, Program


class Idiom(NamedTuple):
    """A function of one argument, "abs", "sign" or "log", that several instructions compute."""

    function: str
    argument: int


def idiom(program: Program, n: int) -> Idiom | None:
    """Return the function that instruction n computes together with those it reads, if it is a known one."""
    ops = program.instructions
    op, args, _ = ops[n]
    if op is Op.MAX and ops[args[1]].op is Op.NEG and ops[args[1]].args == args[:1]:
        return Idiom("abs", args[0])
    if op is Op.SUB and all(ops[a].op is Op.GT for a in args):
        (x, low), (high, y) = (ops[a].args for a in args)
        if x == y and _is_number(program, low, 0.0) and _is_number(program, high, 0.0):
            return Idiom("sign", x)
    if op is Op.WHERE and ops[args[1]].op is Op.LOG and _is_number(program, args[2], -math.inf):
        # where(x, log(where(x, x, small)), −∞)
        inner = ops[ops[args[1]].args[0]]
        if inner.op is Op.WHERE and inner.args[:2] == (args[0], args[0]):
            return Idiom("log", args[0])
    return None


def _is_number(program: Program, n: int, value: float) -> bool:
    """Return whether an instruction is this constant."""
    op, _, attr = program.instructions[n]
    return op is Op.CONST and float(attr or 0.0) == value

"""Every op as a torch function, and a program's instructions evaluated in order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from rrnn.ir import Op, Program
from rrnn.semirings import LOG


def _select(first_wins: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    def op(a: Tensor, b: Tensor) -> Tensor:
        best = torch.where(first_wins(a, b), a, b)
        # an infinite zero is a constant: it passes no gradient on
        return torch.where(best.isinf(), best.detach(), best)

    return op


def _share(a: Tensor, total: Tensor) -> Tensor:
    dead = a == -math.inf
    return torch.where(dead, 0.0, torch.where(dead, 0.0, a - total).exp())


OPS: dict[Op, Callable[..., Tensor]] = {
    Op.ADD: torch.add,
    Op.SUB: torch.sub,
    Op.MUL: torch.mul,
    Op.DIV: torch.div,
    Op.NEG: torch.neg,
    Op.MAX: _select(torch.ge),
    Op.MIN: _select(torch.le),
    Op.LOGADDEXP: LOG.t_plus,
    Op.EXP: torch.exp,
    Op.LOG: torch.log,
    Op.SQRT: torch.sqrt,
    Op.SIGMOID: torch.sigmoid,
    Op.TANH: torch.tanh,
    Op.RELU: torch.relu,
    Op.LOG_SIGMOID: F.logsigmoid,
    Op.SOFTPLUS: lambda x: -F.logsigmoid(-x),  # F.softplus switches to x beyond a threshold
    Op.STEP: lambda x: (x > 0).to(x.dtype),
    Op.GE: lambda a, b: (a >= b).to(a.dtype),
    Op.GT: lambda a, b: (a > b).to(a.dtype),
    Op.SHARE: _share,
}


def interpret(program: Program, which: Iterable[int], values: dict[int, Tensor], like: Tensor) -> None:
    """Evaluate the instructions `which` into `values`; leaves other than constants must be there already."""
    for n in sorted(which):
        if n in values:
            continue
        op, args, attr = program.instructions[n]
        if op is Op.CONST:
            values[n] = torch.full((), float(attr or 0.0), dtype=like.dtype, device=like.device)
        else:
            values[n] = OPS[op](*(values[a] for a in args))


def leaves(program: Program, op: Op) -> dict[int, int]:
    """instruction → attribute of the leaves of one kind."""
    return {n: int(i.attr or 0) for n, i in enumerate(program.instructions) if i.op is op}


def per_unit_values(program: Program, params: Tensor) -> dict[int, Tensor]:
    """Values of the per-unit region, each (D,) or a scalar."""
    values = {n: params[p] for n, p in leaves(program, Op.PARAM).items()}
    interpret(program, program.per_unit, values, params)
    return values

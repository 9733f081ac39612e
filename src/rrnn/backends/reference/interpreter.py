"""Programs on tensors, by torch's own ops."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from rrnn.arithmetic import TENSORS
from rrnn.ir import Op, Program
from rrnn.ir import evaluate as ir


def interpret(program: Program, which: Iterable[int], values: dict[int, Tensor], like: Tensor) -> None:
    """Evaluate the instructions `which` into `values`; leaves other than constants must be there already."""

    def number(value: float) -> Tensor:
        return torch.full((), value, dtype=like.dtype, device=like.device)

    ir.interpret(program.instructions, which, values, TENSORS, number)


def leaves(program: Program, op: Op) -> dict[int, int]:
    """instruction → attribute of the leaves of one kind."""
    return {n: int(i.attr or 0) for n, i in enumerate(program.instructions) if i.op is op}


def per_unit_values(program: Program, params: Tensor) -> dict[int, Tensor]:
    """Values of the per-unit region, each (D,) or a scalar."""
    values = {n: params[p] for n, p in leaves(program, Op.PARAM).items()}
    interpret(program, program.per_unit, values, params)
    return values

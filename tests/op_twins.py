"""Define every op of the table a second time in torch, independently of the table, to compare with."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from rrnn.arithmetic import Op


def select(first: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Return max or min by the library's rules: the first wins a tie, an infinite zero passes no gradient on."""

    def op(a: Tensor, b: Tensor) -> Tensor:
        best = torch.where(first(a, b) | a.isnan(), a, b)
        return torch.where(best.isinf(), best.detach(), best)

    return op


class _LogAddExp(torch.autograd.Function):
    """logaddexp whose gradient is the softmax of its arguments, and 0 for an argument of −∞."""

    @staticmethod
    def forward(ctx, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return torch.logaddexp(a, b)

    @staticmethod
    def backward(ctx, g: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        both = torch.stack([a, b])
        shares = both.softmax(0).where(both != -math.inf, 0.0)
        return g * shares[0], g * shares[1]


TORCH: dict[Op, Callable[..., Tensor]] = {
    Op.ADD: torch.add,
    Op.SUB: torch.sub,
    Op.MUL: torch.mul,
    Op.DIV: torch.div,
    Op.NEG: torch.neg,
    Op.MAX: select(torch.ge),
    Op.MIN: select(torch.le),
    Op.LOGADDEXP: _LogAddExp.apply,
    Op.EXP: torch.exp,
    Op.LOG: torch.log,
    Op.SQRT: torch.sqrt,
    Op.SIN: torch.sin,
    Op.COS: torch.cos,
    Op.SIGMOID: torch.sigmoid,
    Op.TANH: torch.tanh,
    Op.LOG_SIGMOID: F.logsigmoid,
    Op.SOFTPLUS: lambda x: -F.logsigmoid(-x),
    Op.GE: lambda a, b: (a >= b).double(),
    Op.GT: lambda a, b: (a > b).double(),
    Op.WHERE: lambda c, a, b: torch.where(c != 0, a, b),
    Op.SHARE: lambda a, b: (a - b).where(a != -math.inf, -math.inf).exp(),
}
"""Ops that compute a number from numbers. Ops on elements of a semiring are expanded into these before they run."""

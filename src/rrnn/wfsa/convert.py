"""The same machine over another semiring: how weights are read across."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rrnn.semirings import Semiring

# What a number of each semiring stands for: a probability p, log p, or the cost −log p.
_LOG_OF = {
    "real": "p",
    "max-times": "p",
    "counting": "p",
    "log": "log",
    "max-plus": "log",
    "min-plus": "cost",
}


def convert(weights: Tensor, old: Semiring, new: Semiring, f: Callable[[Tensor], Tensor] | None) -> Tensor:
    """0̄ becomes the new 0̄, all else f(w) (or the usual reading of w), checked to lie in the new set."""
    # Selected, not masked: f may be log, whose gradient at 0 would poison the rest.
    alive = (weights.detach() != old.zero).nonzero().flatten()
    values = (f or _usual(old, new))(weights[alive])
    out = new.zeros(weights.numel())
    return out.index_copy(0, alive, _settle(values, new))


def _settle(values: Tensor, new: Semiring) -> Tensor:
    new.tensor(values)
    return values.to(new.dtype)


def _usual(old: Semiring, new: Semiring) -> Callable[[Tensor], Tensor]:
    if old is new:
        return lambda w: w
    if "boolean" in (old.name, new.name):
        return lambda w: torch.full_like(w, new.one, dtype=new.dtype)
    into = {"p": lambda w: w.to(torch.float64).log(), "log": lambda w: w, "cost": lambda w: -w}
    out_of = {"p": torch.exp, "log": lambda w: w, "cost": lambda w: -w}
    here, there = _LOG_OF[old.name], _LOG_OF[new.name]
    if here == there:
        return lambda w: w
    return lambda w: out_of[there](into[here](w))

"""The same machine over another semiring: how weights are read across."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rrnn.arithmetic import TENSORS
from rrnn.errors import SemiringError, ShapeError
from rrnn.semirings import Semiring


def convert(weights: Tensor, old: Semiring, new: Semiring, f: Callable[[Tensor], Tensor] | None) -> Tensor:
    """Return weights over a new semiring: 0̄ as the new 0̄, all else as f(w) (or the usual reading of w), checked."""
    # Selected, not masked: f may be log, whose gradient at 0 would poison the rest.
    alive = (~old.is_zero(weights.detach())).nonzero().flatten()
    values = weights[alive] if f is None and old == new else (f or _usual(old, new))(weights[alive])
    if f is None:
        _stand_for_reals(weights[alive], values, old, new)
    out = new.zeros(len(weights))
    return out.index_copy(0, alive, _settle(values, alive.numel(), new))


def _settle(values: Tensor, count: int, new: Semiring) -> Tensor:
    if values.is_complex() and new.size == 2:
        values = torch.view_as_real(values)
    if tuple(values.shape) != (count, *new.shape):
        raise ShapeError(
            f"a function of weights returns one element over {new.name} for each of {count} weights, a tensor of shape "
            f"{(count, *new.shape)}; got {tuple(values.shape)}"
        )
    new.tensor(values)  # before the conversion, which would truncate a fraction in counting
    return values.to(new.dtype)


def _stand_for_reals(weights: Tensor, values: Tensor, old: Semiring, new: Semiring) -> None:
    """Raise where a weight stands for no real number that the new semiring has: an imaginary or a negative one."""
    lost = values.detach().isnan()
    lost = lost.any(-1) if new.components else lost
    if bool(lost.any()):
        weight = old.numbers(weights.detach()[lost][0])
        raise SemiringError(
            f"weights are converted by the real numbers that they stand for; the {old.name} weight {weight!r} stands "
            f"for none that {new.name} has ({new.set_description}). "
            f"Say what it becomes: with_semiring({new.name!r}, f)."
        )


def _usual(old: Semiring, new: Semiring) -> Callable[[Tensor], Tensor]:
    """Read weights as the real numbers that they stand for, or as logarithms of these where one side holds such."""
    if new.support_only or old.support_only:
        return lambda w: new.ones(w.shape[0])
    if old.logarithmic or new.logarithmic:
        return lambda w: new.bind(new.from_log(old.to_log(old.unbind(w.to(torch.float64)), TENSORS), TENSORS))
    return lambda w: new.bind(new.from_real(old.to_real(old.unbind(w.to(torch.float64)), TENSORS), TENSORS))

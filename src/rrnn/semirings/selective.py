"""Semirings whose ⊕ picks one argument: max-plus, min-plus (tropical), max-times (Viterbi)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rrnn.semirings.base import Laws, Semiring

if TYPE_CHECKING:
    import torch


class _Selective(Semiring):
    """⊕ is max (or min). Gradients go to the first of tied winners only, and never to 0̄."""

    laws = Laws(idempotent=True, selective=True, has_division=True, has_gradient=True)
    maximum = True

    def plus(self, a: float, b: float) -> float:
        return max(a, b) if self.maximum else min(a, b)

    def t_plus(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        first = a >= b if self.maximum else a <= b
        return self._drop_zero(a.where(first | a.isnan(), b))  # a NaN must not be lost in a comparison

    def t_sum(self, a: torch.Tensor, dim: int) -> torch.Tensor:
        if not a.shape[dim]:
            return a.sum(dim) + self.zero
        # max with indices names the first of several maxima, which gets all the gradient; amax shares it.
        return self._drop_zero((a.max(dim) if self.maximum else a.min(dim)).values)

    def _drop_zero(self, a: torch.Tensor) -> torch.Tensor:
        """The same values, but an infinite 0̄ is a constant: it passes no gradient on."""
        return a.where(a != self.zero, a.new_full((), self.zero)) if math.isinf(self.zero) else a


class _Tropical(_Selective):
    one = 0.0
    times_symbol = "+"

    def times(self, a: float, b: float) -> float:
        return a + b

    def t_times(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + b

    def contains(self, a: float) -> bool:
        return math.isfinite(a) or a == self.zero

    def t_contains(self, a: torch.Tensor) -> torch.Tensor:
        return a.isfinite() | (a == self.zero)


class MaxPlus(_Tropical):
    name = "max-plus"
    zero = -math.inf
    plus_symbol = "max"
    set_description = "ℝ ∪ {−∞}"
    star_domain = "a ≤ 0"

    def _star(self, a: float) -> float | None:
        return 0.0 if a <= 0 else None

    def t_star(self, a: torch.Tensor) -> torch.Tensor:
        return a.new_zeros(a.shape).where(a <= 0, a.new_full((), math.nan))


class MinPlus(_Tropical):
    name = "min-plus"
    zero = math.inf
    plus_symbol = "min"
    set_description = "ℝ ∪ {+∞}"
    star_domain = "a ≥ 0"
    maximum = False

    def _star(self, a: float) -> float | None:
        return 0.0 if a >= 0 else None

    def t_star(self, a: torch.Tensor) -> torch.Tensor:
        return a.new_zeros(a.shape).where(a >= 0, a.new_full((), math.nan))


class MaxTimes(_Selective):
    """Viterbi, on [0, ∞)."""

    name = "max-times"
    zero, one = 0.0, 1.0
    plus_symbol, times_symbol = "max", "·"
    set_description = "[0, ∞)"
    star_domain = "0 ≤ a ≤ 1"
    laws = Laws(idempotent=True, selective=True, has_division=True, has_gradient=True, non_negative=True)

    def times(self, a: float, b: float) -> float:
        return a * b

    def t_times(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a * b

    def contains(self, a: float) -> bool:
        return 0.0 <= a < math.inf

    def t_contains(self, a: torch.Tensor) -> torch.Tensor:
        return (a >= 0) & a.isfinite()

    def _star(self, a: float) -> float | None:
        return 1.0 if a <= 1 else None

    def t_star(self, a: torch.Tensor) -> torch.Tensor:
        return a.new_ones(a.shape).where(a <= 1, a.new_full((), math.nan))

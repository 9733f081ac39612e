"""The log semiring: log-probabilities, ⊕ = logaddexp, ⊗ = +, 0̄ = −∞."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rrnn.semirings.base import Laws, Semiring

if TYPE_CHECKING:
    import torch


class Log(Semiring):
    """Stable for any size, and −∞ safe: in value, and in gradient, where torch's own logaddexp gives NaN."""

    name = "log"
    zero, one = -math.inf, 0.0
    plus_symbol, times_symbol = "⊕", "+"
    set_description = "ℝ ∪ {−∞}"
    star_domain = "a < 0"
    laws = Laws(has_division=True, has_gradient=True)

    def plus(self, a: float, b: float) -> float:
        hi, lo = (a, b) if a >= b else (b, a)
        return hi if lo == -math.inf else hi + math.log1p(math.exp(lo - hi))

    def times(self, a: float, b: float) -> float:
        return a + b

    def contains(self, a: float) -> bool:
        return a < math.inf

    def _star(self, a: float) -> float | None:
        return -math.log(-math.expm1(a)) if a < 0 else None  # −log(1 − eᵃ)

    def t_plus(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        hi, lo = a.maximum(b), a.minimum(b)
        # −∞ − (−∞) must stay out of the graph: a NaN there would come back as a NaN gradient.
        gap = (lo - hi).where(lo != -math.inf, lo.new_full((), -math.inf))
        total = hi + gap.exp().log1p()
        return total.where(hi != -math.inf, hi.new_full((), -math.inf))

    def t_times(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + b

    def t_sum(self, a: torch.Tensor, dim: int) -> torch.Tensor:
        if not a.shape[dim]:
            return a.sum(dim) + self.zero
        top = a.detach().amax(dim, keepdim=True)
        top = top.where(top != -math.inf, top.new_zeros(()))
        # `top` is finite, so a −∞ stays −∞ here: exp makes it 0, in value and in gradient.
        total = (a - top).exp().sum(dim)
        alive = total != 0
        finite = total.where(alive, total.new_ones(())).log() + top.squeeze(dim)
        return finite.where(alive, total.new_full((), self.zero))

    def t_star(self, a: torch.Tensor) -> torch.Tensor:
        inside = a < 0
        return (-(-a.where(inside, a.new_full((), -1.0)).expm1()).log()).where(
            inside, a.new_full((), math.nan)
        )

    def t_contains(self, a: torch.Tensor) -> torch.Tensor:
        return (a < math.inf) & ~a.isnan()

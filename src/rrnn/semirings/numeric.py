"""Real (plus-times), boolean and counting semirings."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rrnn.semirings.base import Laws, Semiring

if TYPE_CHECKING:
    import torch


class Real(Semiring):
    name = "real"
    zero, one = 0.0, 1.0
    plus_symbol, times_symbol = "+", "·"
    set_description = "ℝ (finite numbers)"
    star_domain = "|a| < 1"
    laws = Laws(has_negation=True, has_division=True, has_gradient=True)

    def plus(self, a: float, b: float) -> float:
        return a + b

    def times(self, a: float, b: float) -> float:
        return a * b

    def contains(self, a: float) -> bool:
        return math.isfinite(a)

    def _star(self, a: float) -> float | None:
        return 1.0 / (1.0 - a) if abs(a) < 1.0 else None

    def t_plus(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + b

    def t_times(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a * b

    def t_sum(self, a: torch.Tensor, dim: int) -> torch.Tensor:
        return a.sum(dim)

    def t_matmul(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b

    def t_star(self, a: torch.Tensor) -> torch.Tensor:
        inside = a.abs() < 1.0
        return (1.0 / (1.0 - a.where(inside, a.new_zeros(())))).where(inside, a.new_full((), math.nan))

    def t_contains(self, a: torch.Tensor) -> torch.Tensor:
        return a.isfinite()


class Counting(Semiring):
    """Natural numbers with + and ·: how many paths.

    Exact for Python integers of any size. Tensors are int64, which wrap around silently beyond 2⁶³ − 1.
    """

    name = "counting"
    zero, one = 0, 1
    plus_symbol, times_symbol = "+", "·"
    set_description = "ℕ (0, 1, 2, …)"
    star_domain = "a = 0"
    laws = Laws(non_negative=True)

    def plus(self, a: float, b: float) -> float:
        return a + b

    def times(self, a: float, b: float) -> float:
        return a * b

    def contains(self, a: float) -> bool:
        return 0 <= a < math.inf and int(a) == a

    def _convert(self, a: Any) -> int:
        if int(a) != a:
            raise ValueError("not an integer")
        return int(a)

    def _star(self, a: float) -> float | None:
        return 1 if a == 0 else None

    @property
    def dtype(self) -> torch.dtype:
        import torch

        return torch.int64

    def _to_tensor(self, values: Any) -> torch.Tensor:
        import torch

        out = torch.as_tensor(values)  # not straight to int64, which would truncate 1.5 to 1
        return torch.as_tensor(values, dtype=torch.float64) if out.is_floating_point() else out

    def close(self, a: float, b: float, rel: float = 1e-9) -> bool:
        return a == b

    def t_plus(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + b

    def t_times(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a * b

    def t_sum(self, a: torch.Tensor, dim: int) -> torch.Tensor:
        return a.sum(dim)

    def t_star(self, a: torch.Tensor) -> torch.Tensor:
        return (a == 0).double().where(a == 0, math.nan)  # float64, for the sake of NaN

    def t_contains(self, a: torch.Tensor) -> torch.Tensor:
        return (a >= 0) & (a == a.round()) & a.isfinite()


class Boolean(Semiring):
    """{0, 1} with or and and: is there a path. Numbers, not bools, so that one code serves all semirings."""

    name = "boolean"
    zero, one = 0.0, 1.0
    plus_symbol, times_symbol = "∨", "∧"
    set_description = "{0, 1}"
    star_domain = "every a"
    laws = Laws(idempotent=True, selective=True, non_negative=True)

    def plus(self, a: float, b: float) -> float:
        return max(a, b)

    def times(self, a: float, b: float) -> float:
        return min(a, b)

    def contains(self, a: float) -> bool:
        return a in (0, 1)

    def _star(self, a: float) -> float | None:
        return 1.0

    def t_plus(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a.maximum(b)

    def t_times(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a.minimum(b)

    def t_sum(self, a: torch.Tensor, dim: int) -> torch.Tensor:
        return a.amax(dim) if a.shape[dim] else a.sum(dim)

    def t_star(self, a: torch.Tensor) -> torch.Tensor:
        return a.new_ones(a.shape)

    def t_contains(self, a: torch.Tensor) -> torch.Tensor:
        return (a == 0) | (a == 1)

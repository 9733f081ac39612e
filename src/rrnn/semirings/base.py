"""A semiring: data (zero, one, laws) plus two operations, each on scalars and on tensors.

Scalars are Python numbers, so that the theory (path enumeration, file formats, drawing) runs without torch.
Tensor operations are plain differentiable torch ops with the two rules of this library: a zero (−∞) argument
gets no gradient, and of several tied maxima the first one gets it all.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rrnn.errors import SemiringError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Laws:
    """What holds beyond the semiring axioms (which always hold)."""

    commutative: bool = True  # a ⊗ b = b ⊗ a
    idempotent: bool = False  # a ⊕ a = a
    selective: bool = False  # a ⊕ b is a or b, so there is a best path
    has_negation: bool = False  # every a has −a with a ⊕ −a = 0̄
    has_division: bool = False  # every a ≠ 0̄ has an inverse for ⊗
    has_gradient: bool = False  # ⊕ and ⊗ are differentiable (almost everywhere)
    non_negative: bool = False  # weights of this semiring are never negative numbers


class Semiring(ABC):
    """Stateless; one instance of each kind lives in `rrnn.semirings.registry`."""

    name: ClassVar[str]
    zero: ClassVar[float]
    one: ClassVar[float]
    plus_symbol: ClassVar[str]
    times_symbol: ClassVar[str]
    set_description: ClassVar[str]
    laws: ClassVar[Laws]

    # ---- scalars -------------------------------------------------------------------------------------------

    @abstractmethod
    def plus(self, a: float, b: float) -> float: ...

    @abstractmethod
    def times(self, a: float, b: float) -> float: ...

    @abstractmethod
    def contains(self, a: float) -> bool:
        """Is this number an element of the semiring's set? (NaN never is.)"""

    def star(self, a: float) -> float:
        """a* = 1̄ ⊕ a ⊕ a⊗a ⊕ …; raises `SemiringError` where the sum does not exist."""
        value = self._star(a)
        if value is None:
            raise SemiringError(
                f"{self.name} star exists only for {self.star_domain}; got {a!r}. "
                "Make the weight of the cycle smaller, or cap the number of consecutive ε-arcs."
            )
        return value

    star_domain: ClassVar[str]

    @abstractmethod
    def _star(self, a: float) -> float | None: ...

    def sum(self, values: Iterable[float]) -> float:
        total = self.zero
        for value in values:
            total = self.plus(total, value)
        return total

    def product(self, values: Iterable[float]) -> float:
        total = self.one
        for value in values:
            total = self.times(total, value)
        return total

    def check(self, a: Any, what: str = "weight") -> float:
        """The number as an element of this semiring, or an error that says why it is none."""
        try:
            value = self._convert(a)
        except (TypeError, ValueError, OverflowError):
            raise SemiringError(
                f"a {what} must be a number in {self.set_description} ({self.name}); got {a!r}"
            ) from None
        if not self.contains(value):
            raise self.outside(a, what)
        return value

    def outside(self, a: Any, what: str = "weight") -> SemiringError:
        """The error about a number that is not in the set."""
        fix = (
            "Find what made it: 0/0, ∞ − ∞, the logarithm of a negative number."
            if a != a
            else "Use a number of that set, or a semiring that has this one."
        )
        return SemiringError(
            f"{what} {a!r} is outside the {self.name} semiring's set {self.set_description}. "
            f"Its zero is {self.zero!r} and its one {self.one!r}. {fix}"
        )

    def _convert(self, a: Any) -> float:
        return float(a)

    def close(self, a: float, b: float, rel: float = 1e-9) -> bool:
        """Equal up to rounding (infinities must agree)."""
        return a == b or (
            math.isfinite(a) and math.isfinite(b) and abs(a - b) <= rel * max(abs(a), abs(b), 1.0)
        )

    # ---- tensors -------------------------------------------------------------------------------------------

    @property
    def dtype(self) -> torch.dtype:
        """The default tensor dtype of exact work."""
        import torch

        return torch.float64

    @abstractmethod
    def t_plus(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor: ...

    @abstractmethod
    def t_times(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor: ...

    @abstractmethod
    def t_sum(self, a: torch.Tensor, dim: int) -> torch.Tensor:
        """⊕ over one dimension; 0̄ for an empty one."""

    def t_matmul(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """(…, n, k) ⊗ (…, k, m): matrix product over this semiring."""
        return self.t_sum(self.t_times(a.unsqueeze(-1), b.unsqueeze(-3)), -2)

    @abstractmethod
    def t_star(self, a: torch.Tensor) -> torch.Tensor:
        """Elementwise star; NaN where it does not exist."""

    def tensor(self, values: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Numbers to a tensor, checked to lie in the set.

        Tensors keep their graph, and their dtype if it can hold this semiring's values.
        """
        import torch

        try:
            out = values if isinstance(values, torch.Tensor) else self._to_tensor(values)
            if out.is_complex():
                raise TypeError("complex numbers are not ordered")
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise SemiringError(
                f"weights must be (nested lists of) numbers in {self.set_description} ({self.name}); "
                f"got {values!r} ({error})"
            ) from None
        if out.dtype == torch.bool:
            out = out.to(self.dtype)
        if dtype is not None and dtype.is_floating_point:
            out = out.to(dtype)  # before the check: 1e300 is no float32
        bad = ~self.t_contains(out.detach())
        if bool(bad.any()):
            raise self.outside(out.detach()[bad].flatten()[0].item())
        if dtype is None and out.is_floating_point() == self.dtype.is_floating_point:
            return out
        return out.to(dtype or self.dtype)

    def _to_tensor(self, values: Any) -> torch.Tensor:
        import torch

        return torch.as_tensor(values, dtype=self.dtype)

    def numbers(self, tensor: torch.Tensor) -> Any:
        """A tensor back to (nested lists of) Python numbers."""
        return tensor.detach().cpu().tolist()

    @abstractmethod
    def t_contains(self, a: torch.Tensor) -> torch.Tensor: ...

    def zeros(self, *shape: int, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
        import torch

        return torch.full(shape, self.zero, dtype=dtype or self.dtype, device=device)

    def ones(self, *shape: int, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
        import torch

        return torch.full(shape, self.one, dtype=dtype or self.dtype, device=device)

    def __repr__(self) -> str:
        return f"<semiring {self.name}>"

    def __reduce__(self) -> Any:  # instances are singletons: pickle and copy by name
        from rrnn.semirings.registry import get_semiring

        return get_semiring, (self.name,)

"""Semirings: a definition, and what it makes of tensors of elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rrnn.arithmetic import TENSORS
from rrnn.errors import SemiringError
from rrnn.semirings.definition import Definition, Element

if TYPE_CHECKING:
    import torch


class Semiring(Definition):
    """A number system ⟨K, ⊕, ⊗, 0̄, 1̄⟩. `register_semiring` makes it known by name, to files and compiled programs."""

    @property
    def dtype(self) -> torch.dtype:
        """The tensor dtype in which weights are exact, or as good as Python's floats."""
        import torch

        return torch.int64 if self.integers else torch.float64

    def unbind(self, a: torch.Tensor) -> Element:
        """Return a tensor of elements as an element of tensors."""
        return a.unbind(-1) if self.components else a

    def bind(self, element: Element) -> torch.Tensor:
        """Return an element of tensors as a tensor of elements."""
        if not self.components:
            return element
        import torch

        tensors = torch.broadcast_tensors(*(torch.as_tensor(x) for x in element))
        return torch.stack(tensors, -1)

    def on_tensors(self, function: Callable[..., Element], *tensors: torch.Tensor) -> Any:
        """Run a function of elements and an arithmetic, such as `self.plus`, on tensors of elements."""
        return function(*map(self.unbind, tensors) if self.components else tensors, TENSORS)

    def t_plus(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Return a ⊕ b, elementwise."""
        return self.bind(self.on_tensors(self.plus, a, b))

    def t_times(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Return a ⊗ b, elementwise."""
        return self.bind(self.on_tensors(self.times, a, b))

    def t_sum(self, a: torch.Tensor, dim: int) -> torch.Tensor:
        """Return the ⊕ over one dimension, not counting that of the components; 0̄ for an empty one."""
        dim = dim % (a.dim() - bool(self.components))
        if not a.shape[dim]:
            shape = [n for i, n in enumerate(a.shape[: a.dim() - bool(self.components)]) if i != dim]
            in_graph = a.sum(dim)  # zeros
            return self.zeros(*shape, dtype=a.dtype, device=a.device) + in_graph
        return self.products.sum(self, a, dim)

    def t_matmul(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Return the matrix product over this semiring: (…, n, k) ⊗ (…, k, m)."""
        last = -1 - bool(self.components)
        return self.t_sum(self.t_times(a.unsqueeze(last), b.unsqueeze(last - 2)), -2)

    def t_star(self, a: torch.Tensor) -> torch.Tensor:
        """Return the star of each element; NaN where it does not exist."""
        import torch

        if self._star is None or self._star_exists is None:
            none = torch.full_like(a, math.nan, dtype=torch.float64)
            return self.where(self.is_zero(a), self._full(self.one, (), torch.float64, a.device), none)
        element = self.unbind(a)
        inside = self._star_exists(TENSORS, element) != 0
        safe = self.element(
            torch.where(inside, x, x.new_tensor(z))
            for x, z in zip(self.numbers_of(element), self.numbers_of(self.zero), strict=True)
        )
        found = self._star(TENSORS, safe)
        return self.bind(
            self.element(
                torch.where(
                    inside, torch.as_tensor(x, dtype=torch.float64 if self.integers else a.dtype), math.nan
                )
                for x in self.numbers_of(found)
            )
        )

    def is_zero(self, a: torch.Tensor) -> torch.Tensor:
        """Return which elements are 0̄, one truth each."""
        return self._equal(a, self.zero)

    def _equal(self, a: torch.Tensor, element: Element) -> torch.Tensor:
        import torch

        parts = zip(self.numbers_of(self.unbind(a)), self.numbers_of(element), strict=True)
        return torch.stack([x == y for x, y in parts]).all(0)

    def t_contains(self, a: torch.Tensor) -> torch.Tensor:
        """Return which elements lie in the set."""
        import torch

        inside = []
        for r, x in zip(self.values, self.numbers_of(self.unbind(a)), strict=True):
            above, below = x > r.low if r.low_open else x >= r.low, x < r.high if r.high_open else x <= r.high
            inside.append(above & below & (x == x.round()) if r.integral else above & below)
        return torch.stack(inside).all(0)

    def where(self, condition: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Return the elements of a where a condition holds, and those of b elsewhere."""
        import torch

        return torch.where(condition.unsqueeze(-1) if self.components else condition, a, b)

    def tensor(self, values: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return numbers as a tensor, checked to lie in the set.

        Tensors keep their graph, and their dtype if it can hold this semiring's values.
        """
        import torch

        try:
            out = values if isinstance(values, torch.Tensor) else self._to_tensor(values)
            if out.is_complex():
                out = self._from_complex(out)
            if self.components and (not out.dim() or out.shape[-1] != self.size):
                raise ValueError(f"the last dimension must be that of {', '.join(self.components)}")
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
            raise self.outside(self.numbers(out.detach()[bad].flatten(0, -1 - bool(self.components))[0]))
        if dtype is None and out.is_floating_point() == self.dtype.is_floating_point:
            return out
        return out.to(dtype or self.dtype)

    def _from_complex(self, values: torch.Tensor) -> torch.Tensor:
        import torch

        if self.components != ("re", "im"):
            raise TypeError("complex numbers are weights over complex alone")
        return torch.view_as_real(values)

    def _to_tensor(self, values: Any) -> torch.Tensor:
        import torch

        if self.integers:
            out = torch.as_tensor(values)  # not straight to int64, which would truncate 1.5 to 1
            return torch.as_tensor(values, dtype=torch.float64) if out.is_floating_point() else out
        return torch.as_tensor(values, dtype=self.dtype)

    def numbers(self, tensor: torch.Tensor) -> Any:
        """Return a tensor as (nested lists of) Python elements."""
        values = tensor.detach().cpu().tolist()
        return _tuples(values, tensor.dim()) if self.components else values

    def zeros(self, *shape: int, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
        """Return a tensor of 0̄."""
        return self._full(self.zero, shape, dtype, device)

    def ones(self, *shape: int, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
        """Return a tensor of 1̄."""
        return self._full(self.one, shape, dtype, device)

    def _full(self, element: Element, shape: tuple[int, ...], dtype: Any, device: Any) -> torch.Tensor:
        import torch

        if not self.components:
            return torch.full(shape, element, dtype=dtype or self.dtype, device=device)
        return (
            torch.tensor(element, dtype=dtype or self.dtype, device=device).expand(*shape, self.size).clone()
        )


def _tuples(values: Any, depth: int) -> Any:
    """Return nested lists with the innermost ones as tuples."""
    return tuple(values) if depth == 1 else [_tuples(v, depth - 1) for v in values]


__all__ = ["Element", "Semiring"]

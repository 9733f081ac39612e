"""Python's operators + - * / on the values of an arithmetic."""

from __future__ import annotations

from typing import Any


class Operators:
    """Values whose operators are ops of the table: `a + b` is `a.apply("add", a, b)`."""

    __slots__ = ()

    def apply(self, op: str, *values: Any) -> Any:
        """Return the op of these values, each of this kind or a Python number."""
        raise NotImplementedError

    def __add__(self, other: Any) -> Any:
        return self.apply("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return self.apply("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return self.apply("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self.apply("sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return self.apply("mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self.apply("mul", other, self)

    def __truediv__(self, other: Any) -> Any:
        return self.apply("div", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self.apply("div", other, self)

    def __neg__(self) -> Any:
        return self.apply("neg", self)

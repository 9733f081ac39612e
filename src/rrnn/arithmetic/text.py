"""Values that are texts: running a definition on them writes it down, for definitions' keys and generated code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rrnn.arithmetic import Arithmetic, Op


class Text(str):
    """A piece of code. Operators join pieces; the result is in brackets, so that pieces can be put together freely."""

    def __add__(self, other: Any) -> Text:  # pyright: ignore[reportIncompatibleMethodOverride]
        return Text(f"({self} + {other})")

    def __radd__(self, other: Any) -> Text:
        return Text(f"({other} + {self})")

    def __sub__(self, other: Any) -> Text:
        return Text(f"({self} - {other})")

    def __rsub__(self, other: Any) -> Text:
        return Text(f"({other} - {self})")

    def __mul__(self, other: Any) -> Text:  # pyright: ignore[reportIncompatibleMethodOverride]
        return Text(f"({self} * {other})")

    def __rmul__(self, other: Any) -> Text:  # pyright: ignore[reportIncompatibleMethodOverride]
        return Text(f"({other} * {self})")

    def __truediv__(self, other: Any) -> Text:
        return Text(f"({self} / {other})")

    def __rtruediv__(self, other: Any) -> Text:
        return Text(f"({other} / {self})")

    def __neg__(self) -> Text:
        return Text(f"(-{self})")


def writing(template: Callable[[Op], str], number: Callable[[float], str] = repr) -> Arithmetic:
    """Return the arithmetic that writes ops by templates of {0}, {1}, …; `number` writes Python numbers."""

    def function_of(op: Op) -> Callable[..., Text]:
        form = template(op)

        def write(*arguments: Any) -> Text:
            pieces = [a if isinstance(a, str) else number(float(a)) for a in arguments]
            return Text(f"({form.format(*pieces)})")

        return write

    return Arithmetic(function_of)


def _call(op: Op) -> str:
    return f"{op.text} " + " ".join(f"{{{i}}}" for i in range(op.arity))


NAMES = writing(_call)
"""Ops by name: add, max, exp."""

"""Scalar operations: one table of what they are, and arithmetics that run them on one kind of value each.

An arithmetic `s` has every op and composite of the table as a function: `s.exp(x)`, `s.max(a, b)`. Semirings, weight
functions and gradients are written once, over an arithmetic, and run on numbers, tensors, ranges, texts and programs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from rrnn.arithmetic import ranges
from rrnn.arithmetic.operators import Operators
from rrnn.arithmetic.ranges import Range
from rrnn.arithmetic.scalar_ops import ALONG_FAMILY, BY_NAME, COMPOSITES, FOLDS, SEMIRING_FOLDS, Op
from rrnn.errors import SemiringError


class Arithmetic:
    """All ops as functions on one kind of value. `function_of(op)` returns the function of one of them."""

    infinities: frozenset[float] = frozenset()
    """The infinities that stand for a semiring's zero, and so get no gradient."""

    def __init__(self, function_of: Callable[[Op], Callable[..., Any]], **own: Callable[..., Any]) -> None:
        self._function_of = function_of
        self.__dict__.update(own)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in BY_NAME:
            function = self._function_of(BY_NAME[name])
        elif name in COMPOSITES:
            function = partial(COMPOSITES[name], self)
        else:
            raise AttributeError(
                f"{name!r} is not an operation of the table; the operations are {', '.join((*BY_NAME, *COMPOSITES))}"
            )
        self.__dict__[name] = function  # so that the next access does not come here
        return function


def _on_floats(op: Op) -> Callable[..., Any]:
    meaning = op.value.meaning
    assert meaning is not None, op
    return meaning


def _on_tensors(op: Op) -> Callable[..., Any]:
    import torch

    assert op.value.tensor is not None, op
    return op.value.tensor(torch)


def _on_ranges(op: Op) -> Callable[..., Any]:
    rule = op.value.range
    assert rule is not None, op
    return lambda *values: rule(*(v if isinstance(v, Range) else Range.of(float(v)) for v in values))


class TextValue(Operators, str):
    """A value that is the text of how it is computed. Each operation is in brackets, so that texts combine freely.

    Like tensors and the values of programs, it has no truth: a definition that compares values with Python's own
    operators fails here.
    """

    def _compared(self, other: object = None) -> bool:
        raise SemiringError(
            "it compares values with Python's operators, as max, min and `if` do. Use s.max(a, b), s.min(a, b), and "
            "s.where(s.gt(a, b), x, y) in place of `x if a > b else y` (s.ge and s.eq compare, too)"
        )

    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = _compared  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) if type(other) is str else self._compared()

    __hash__ = str.__hash__

    def apply(self, op: str, *values: Any) -> TextValue:
        sign = {"add": "+", "sub": "-", "mul": "*", "div": "/", "neg": "-"}[op]
        return TextValue(f"({sign}{values[0]})" if len(values) == 1 else f"({values[0]} {sign} {values[1]})")


def _on_texts(op: Op) -> Callable[..., Any]:
    def write(*values: Any) -> TextValue:
        texts = (v if isinstance(v, str) else repr(float(v)) for v in values)
        return TextValue(f"({' '.join((op.text, *texts))})")

    return write


FLOATS = Arithmetic(_on_floats)
"""On Python numbers: the definition."""
TENSORS = Arithmetic(_on_tensors)
"""On torch tensors, differentiable."""
RANGES = Arithmetic(_on_ranges, square=ranges.square)
"""On intervals."""
TEXTS = Arithmetic(_on_texts)
"""On texts: running a definition writes it down, as `(max a (exp b))`."""

__all__ = [
    "ALONG_FAMILY",
    "BY_NAME",
    "COMPOSITES",
    "FLOATS",
    "FOLDS",
    "RANGES",
    "SEMIRING_FOLDS",
    "TENSORS",
    "TEXTS",
    "Arithmetic",
    "Op",
    "Operators",
    "Range",
    "TextValue",
]

"""A definition must run on numbers, on tensors and in programs: what cannot is refused when it is registered."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from rrnn.errors import SemiringError
from rrnn.semirings import SEMIRINGS, Semiring
from rrnn.semirings.registry import register_semiring


def defined(**changes: Any) -> Semiring:
    """Return max-times of numbers from 0 on, with changes."""
    parts: dict[str, Any] = {"plus": lambda s, a, b: s.max(a, b), "times": lambda s, a, b: a * b}
    return Semiring("refused", zero=0.0, one=1.0, **{**parts, **changes})


PLUS: dict[str, Callable[..., Any]] = {
    "max": lambda s, a, b: max(a, b),
    "min of negatives": lambda s, a, b: -min(-a, -b),
    "if": lambda s, a, b: a if a > b else b,
    "if it is zero": lambda s, a, b: b if a == 0 else s.max(a, b),
    "if equal": lambda s, a, b: a if a == b else s.max(a, b),
    "or": lambda s, a, b: (s.max(a, b)) or b,
    "sorted": lambda s, a, b: sorted([a, b])[1],
    "later": lambda s, a, b: s.max(a, b) if s.exp(a) >= 0 else b,
}


@pytest.mark.parametrize("plus", PLUS.values(), ids=list(PLUS))
def test_python_s_own_comparisons(plus: Callable[..., Any]) -> None:
    with pytest.raises(
        SemiringError, match=r"`plus` of semiring 'refused' .* Use s\.max\(a, b\), s\.min\(a, b\)"
    ):
        register_semiring(defined(plus=plus))
    assert "refused" not in SEMIRINGS


def test_functions_of_python() -> None:
    with pytest.raises(SemiringError, match=r"`times` .* real number.* as s\.exp\(a\)"):
        register_semiring(defined(times=lambda s, a, b: a * math.pow(b, 1.0)))


@pytest.mark.parametrize(
    "word", ["star", "strength", "magnitude", "to_real", "from_real", "to_log", "from_log"]
)
def test_other_parts(word: str) -> None:
    with pytest.raises(
        SemiringError, match=rf"`{word}` of semiring 'refused' .* s\.where\(s\.gt\(a, b\), x, y\)"
    ):
        register_semiring(defined(**{word: lambda s, a: a if a > 0 else -a}))


def test_constructors() -> None:
    constructors = {"clipped": (("x",), lambda s, x: min(x, 1.0))}
    with pytest.raises(SemiringError, match="`clipped` of semiring 'refused'"):
        register_semiring(defined(constructors=constructors))

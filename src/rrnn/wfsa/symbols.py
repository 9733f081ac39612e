"""Symbols, ε, arcs and strings: what the other modules of this package speak of.

What is one string, and what is a batch of strings, is decided by the type only, never by the symbols, which may be
strings or tuples themselves: a list is a batch, and every other sequence (a `str`, a tuple, a range, a 1-d tensor or
array) is one string. Inside a batch, a list is a string, too.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from torch import Tensor

from rrnn.errors import AutomatonError, nearest

State = Hashable
Symbol = Hashable


class Epsilon:
    """The type of `EPSILON`, which is its only instance: copies and pickles give the same object."""

    _instance: Epsilon | None = None

    def __new__(cls) -> Epsilon:
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __repr__(self) -> str:
        return "ε"

    def __reduce__(self) -> Any:
        return Epsilon, ()


EPSILON: Final = Epsilon()
"""The label of an arc that consumes nothing. It is never a member of an alphabet."""


class Arc(NamedTuple):
    """A transition from `source` to `target` that consumes `symbol`, or nothing if the symbol is `EPSILON`."""

    source: State
    symbol: Symbol
    target: State
    weight: Any

    def __str__(self) -> str:
        return f"{self.source} --{self.symbol}/{self.weight}--> {self.target}"


# ---- strings -----------------------------------------------------------------------------------------------


def is_batch(strings: Any) -> bool:
    """Return whether the argument is a batch of strings rather than one string."""
    return isinstance(strings, list)


def encode(symbol_index: Mapping[Symbol, int], string: Any) -> list[int]:
    """Return one string as indices into the alphabet."""
    if is_batch(string):
        raise AutomatonError(
            "one string is needed here, and a list is a batch of strings; pass the string as a str or a tuple"
        )
    return _indices(symbol_index, string, "the string")


def encode_batch(symbol_index: Mapping[Symbol, int], strings: Any) -> list[list[int]]:
    """Return a list of strings as indices into the alphabet; one string becomes a batch of one."""
    if not is_batch(strings):
        return [encode(symbol_index, strings)]
    return [_indices(symbol_index, string, f"string {i} of the batch") for i, string in enumerate(strings)]


def _indices(symbol_index: Mapping[Symbol, int], string: Any, what: str) -> list[int]:
    if isinstance(string, Tensor | np.ndarray) and string.ndim == 1:
        string = string.tolist()
    if not isinstance(string, Sequence):
        raise AutomatonError(
            f"a string is a sequence of symbols (a str, a tuple, a 1-d tensor), and a list is a batch of "
            f"strings; {what} is {string!r} of type {type(string).__name__}. Pass one string as a tuple."
        )
    try:
        return [symbol_index[symbol] for symbol in string]
    except (KeyError, TypeError):
        raise _unknown(symbol_index, string, what) from None


def _unknown(symbol_index: Mapping[Symbol, int], string: Sequence[Any], what: str) -> AutomatonError:
    for position, symbol in enumerate(string):
        try:
            known = symbol in symbol_index
        except TypeError:
            known = False
        if not known:
            return AutomatonError(
                f"a string is made of symbols of the alphabet {preview(symbol_index)}; {what} has "
                f"{symbol!r} at position {position}.{nearest(symbol, symbol_index)} "
                "(A str or tuple is one string, a list is a batch of strings.)"
            )
    raise AssertionError("every symbol is known")


# ---- names in messages -------------------------------------------------------------------------------------


def preview(values: Iterable[Any], limit: int = 8) -> str:
    """Return the first few of the values as text for a message."""
    shown = [repr(v) for v in values]
    return ", ".join(shown[:limit]) + (f", … ({len(shown)} in all)" if len(shown) > limit else "")

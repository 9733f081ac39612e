"""Strings in: what is one string, what is a batch, and symbols to indices.

The rule looks at the type only, never at the symbols, which may be strings or tuples themselves: a list is a
batch, anything else that can be iterated in order (a `str`, a tuple, a range, a 1-d tensor or array) is one
string. Inside a batch a list is a string too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from rrnn.errors import AutomatonError
from rrnn.wfsa.checks import nearest, preview

if TYPE_CHECKING:
    from rrnn.wfsa.machine import WFSA


def is_batch(strings: Any) -> bool:
    return isinstance(strings, list)


def encode(machine: WFSA, string: Any) -> list[int]:
    """One string as indices into the alphabet."""
    if is_batch(string):
        raise AutomatonError(
            "one string is needed here, and a list is a batch of strings; pass the string as a str or a tuple"
        )
    return _indices(machine, string, "the string")


def encode_batch(machine: WFSA, strings: Any) -> list[list[int]]:
    """Strings, one (then a batch of one) or a list of them, as indices into the alphabet."""
    if not is_batch(strings):
        return [encode(machine, strings)]
    return [_indices(machine, string, f"string {i} of the batch") for i, string in enumerate(strings)]


def _indices(machine: WFSA, string: Any, what: str) -> list[int]:
    if isinstance(string, Tensor | np.ndarray) and string.ndim == 1:
        string = string.tolist()
    if not isinstance(string, Sequence):
        raise AutomatonError(
            f"a string is a sequence of symbols (a str, a tuple, a 1-d tensor), and a list is a batch of "
            f"strings; {what} is {string!r} of type {type(string).__name__}. Pass one string as a tuple."
        )
    index = machine.symbol_index
    try:
        return [index[symbol] for symbol in string]
    except (KeyError, TypeError):
        raise _unknown(machine, string, what) from None


def _unknown(machine: WFSA, string: Sequence[Any], what: str) -> AutomatonError:
    for place, symbol in enumerate(string):
        try:
            known = symbol in machine.symbol_index
        except TypeError:
            known = False
        if not known:
            return AutomatonError(
                f"a string is made of symbols of the alphabet {preview(machine.alphabet)}; {what} has "
                f"{symbol!r} at position {place}.{nearest(symbol, machine.alphabet)} "
                "(A str or tuple is one string, a list is a batch of strings.)"
            )
    raise AssertionError("every symbol is known")

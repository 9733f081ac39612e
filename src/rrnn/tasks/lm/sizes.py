"""How large a model may be: from a budget of parameters to the hidden size."""

from __future__ import annotations

from typing import Any, NamedTuple

from rrnn.errors import RunError
from rrnn.tasks.lm.model import LanguageModel

ALIGNED = 16
"""Hidden sizes that are multiples of this are much faster on a GPU."""


class Sizes(NamedTuple):
    """The largest hidden sizes within a budget: any, and the largest that is a multiple."""

    exact: int
    exact_parameters: int
    hidden: int
    parameters: int

    def __str__(self) -> str:
        text = f"hidden size {self.hidden}, {self.parameters:,} parameters"
        if self.exact != self.hidden:
            text += (
                f" ({self.exact} would have {self.exact_parameters:,}, but aligned sizes are faster on a GPU)"
            )
        return text


def count_parameters(vocabulary: int, hidden: int, layers: int, **options: Any) -> int:
    """Of the model itself, built without memory. Options are `LanguageModel`'s."""
    return LanguageModel(vocabulary, hidden, layers, **options, device="meta").count_parameters()


def solve_hidden(
    budget: int, vocabulary: int, layers: int, *, multiple: int = ALIGNED, **options: Any
) -> Sizes:
    """The largest hidden size whose model has at most `budget` parameters, and the largest multiple of `multiple`."""

    def count(hidden: int) -> int:
        return count_parameters(vocabulary, hidden, layers, **options)

    if count(multiple) > budget:
        raise RunError(
            f"a budget of {budget:,} parameters is too small for {vocabulary:,} words: with {multiple} hidden units "
            f"the model has {count(multiple):,} already. Allow more parameters, or fewer words."
        )
    low, high = multiple, multiple * 2  # count(low) <= budget < count(high), once high is found
    while count(high) <= budget:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) <= budget else (low, middle)
    aligned = low // multiple * multiple
    return Sizes(low, count(low), aligned, count(aligned))


def read_count(text: str | int | float) -> int:
    """10M, 250k, 24e6, 10_000_000."""
    units = {"k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9}
    try:
        word = str(text).strip().lower().replace(",", "")
        value = float(word[:-1]) * units[word[-1]] if word[-1:] in units else float(word)
        if not 0 < value < 1e12:
            raise ValueError
    except ValueError:
        raise RunError(f"a number of parameters is like 10M, 250k or 24000000; got {text!r}") from None
    return round(value)

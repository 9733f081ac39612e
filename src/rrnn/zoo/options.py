"""Checks of the numbers that cells can be made with."""

from rrnn.errors import CellError


def share(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise CellError(f"{name} is a number from 0 to 1; got {value!r}")
    return float(value)

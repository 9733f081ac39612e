"""Instructions: an op of the table (`rrnn.arithmetic.ops`), its arguments, and what a leaf reads."""

from __future__ import annotations

from typing import NamedTuple

from rrnn.arithmetic import BY_NAME, Op


class Instruction(NamedTuple):
    """Single assignment: its number is its place in the program."""

    op: Op
    args: tuple[int, ...] = ()
    attr: float | int | None = None


__all__ = ["BY_NAME", "Instruction", "Op"]

"""The rules one expression can break, each with its message."""

from __future__ import annotations

from rrnn.automata import expressions as ex
from rrnn.automata.ranges import range_of
from rrnn.errors import CellError
from rrnn.semirings import Semiring


def check_weight(expr: ex.Expr, place: str, semiring: Semiring, *, constant: bool) -> ex.Expr:
    """The expression if it may be a weight there; `constant`: an initial, ε or final weight."""
    _no_semiring_constants(expr, place, whole=True)
    if any(isinstance(node, ex.Score) for node in ex.walk(expr)):
        raise CellError(
            f"{place} uses `score`, which exists only after the arcs; use it in the output expression"
        )
    if constant and ex.depends_on_input(expr):
        raise CellError(
            f"{place} depends on the input. Initial, ε and final weights use only parameters and numbers, "
            'since they consume no symbol: use parameter("name") instead of linear(…) or input().'
        )
    _domain(expr, place, semiring)
    _inside(expr, place, semiring)
    return expr


def check_output(expr: ex.Expr, semiring: Semiring) -> ex.Expr:
    """The expression if a layer may return it."""
    _no_semiring_constants(expr, "the output expression", whole=False)
    _domain(expr, "the output expression", semiring)
    return expr


def is_zero(expr: ex.Expr, semiring: Semiring) -> bool:
    """Is this weight the semiring's zero, whatever the input: does its arc carry nothing?"""
    low, high, *_ = range_of(expr, semiring)
    return low == high == semiring.zero


def _no_semiring_constants(expr: ex.Expr, place: str, *, whole: bool) -> None:
    for node in ex.walk(expr):
        if isinstance(node, (ex.One, ex.Zero)) and not (whole and node is expr):
            raise CellError(
                f"{place} uses `one` or `zero` inside arithmetic; they are the semiring's and stand alone as a "
                "whole weight. Write the number 1 or 0 instead."
            )


def _domain(expr: ex.Expr, place: str, semiring: Semiring) -> None:
    for node in ex.walk(expr):
        if isinstance(node, ex.Call) and node.function in ("log", "sqrt"):
            low = range_of(node.argument, semiring).low
            if low < 0:
                raise CellError(
                    f"{place} takes {node.function} of what may be negative (as low as {low:g}), which is no "
                    "number. Keep the argument provably non-negative: wrap it in sigmoid, exp, softplus or relu."
                )


def _inside(expr: ex.Expr, place: str, semiring: Semiring) -> None:
    """Known values lie in the semiring's set; where that is less than the real numbers, unknown ones provably."""
    low, high, integral, *_ = range_of(expr, semiring)
    if low == high and not semiring.contains(low):
        raise CellError(
            f"{place} is {low:g}, outside the {semiring.name} semiring's set {semiring.set_description}. "
            f"Its zero is {semiring.zero:g} and its one {semiring.one:g}. Use a number of that set, or `zero` or `one`."
        )
    if semiring.name == "max-times" and low < 0:
        raise CellError(
            f"{place} may be negative (as low as {low:g}), and max-times needs weights that are provably "
            "non-negative: wrap it in sigmoid, exp, softplus or relu"
        )
    if semiring.name == "boolean" and not (integral and low >= 0 and high <= 1):
        raise CellError(
            f"{place} may be other than 0 and 1, and the boolean semiring needs weights that are provably one "
            "of the two: use one, zero or step(…)"
        )
    if semiring.name == "counting" and not (integral and low >= 0):
        raise CellError(
            f"{place} may be other than 0, 1, 2, …, and the counting semiring needs weights that are provably "
            "natural numbers: use whole numbers and step(…)"
        )

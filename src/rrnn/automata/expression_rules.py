"""The rules that a single expression can break, each with its message."""

from __future__ import annotations

from typing import Any

from rrnn.arithmetic.ranges import excludes_zero
from rrnn.automata import expressions as ex
from rrnn.automata.evaluator import range_of, weight_range
from rrnn.automata.expression_text import expr_text
from rrnn.errors import CellError
from rrnn.semirings import SEMIRINGS, Semiring


def check_weight(expr: ex.Expr, place: str, semiring: Semiring, *, constant: bool) -> ex.Expr:
    """Return the expression if it may be a weight at this place, else raise a `CellError`. `constant` marks initial, ε
    and final weights."""
    _no_first_values(expr, place)
    _elements_stand_alone(expr, place, whole=True)
    _fits(expr, place, semiring)
    _is_an_element(expr, place, semiring)
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
    """Return the expression if a layer may output it, else raise a `CellError`."""
    _no_first_values(expr, "the output expression")
    _elements_stand_alone(expr, "the output expression", whole=False)
    _fits(expr, "the output expression", semiring)
    _reads_components(expr, semiring)
    _domain(expr, "the output expression", semiring)
    return expr


def _reads_components(expr: ex.Expr, semiring: Semiring) -> None:
    """Raise a `CellError` where a score of several components is read as a whole."""
    if not semiring.components:
        return
    whole = isinstance(expr, ex.Score) or any(
        isinstance(child, ex.Score)
        for node in ex.walk(expr)
        if not isinstance(node, ex.Component)
        for child in node.children
    )
    if whole:
        reads = ", ".join(f"score.{c}" for c in semiring.components)
        raise CellError(
            f"over {semiring.name} a score has {len(semiring.components)} components: read {reads}. An output may be "
            "several of them: ",
            call=f".output({reads}).",
            line=f"output {reads}",
        )


def is_zero(expr: ex.Expr, semiring: Semiring) -> bool:
    """Return whether this weight is the semiring's zero, whatever the input: its arc carries nothing."""
    return is_constant(expr, semiring, semiring.zero)


def is_constant(expr: ex.Expr, semiring: Semiring, element: Any) -> bool:
    """Return whether this weight is always the given element."""
    parts = zip(semiring.numbers_of(weight_range(expr, semiring)), semiring.numbers_of(element), strict=True)
    return all(r.low == r.high == x for r, x in parts)


def _no_first_values(expr: ex.Expr, place: str) -> None:
    """Raise a `CellError` where what describes the first value of a parameter is used as a value itself."""
    for node in ex.walk(expr):
        if isinstance(node, (ex.Index, ex.Uniform)):
            raise CellError(
                f"{place} uses {expr_text(node)}, which describes a first value and stands in start=… alone. Write a "
                f'parameter that starts there: parameter("name", start={expr_text(node)}, …).'
            )


def _elements_stand_alone(expr: ex.Expr, place: str, *, whole: bool) -> None:
    """Raise a `CellError` where one, zero or a constructor is used inside arithmetic."""
    for node in ex.walk(expr):
        if isinstance(node, (ex.One, ex.Zero)) and not (whole and node is expr):
            raise CellError(
                f"{place} uses `one` or `zero` inside arithmetic; they are the semiring's and stand alone as a "
                "whole weight. Write the number 1 or 0 instead."
            )
        if isinstance(node, ex.Construct) and not (whole and node is expr):
            raise CellError(
                f"{place} uses {node.function}(…) inside arithmetic; it makes a whole weight of the semiring, and "
                "+ - * / are those of real numbers. Compute with its arguments, or put it on an arc of its own: "
                "weights along a path are multiplied by ⊗."
            )


def _fits(expr: ex.Expr, place: str, semiring: Semiring) -> None:
    """Raise a `CellError` for a constructor or component of another semiring than the cell's."""
    if isinstance(expr, ex.Construct) and expr.function not in semiring.constructors:
        owners = [ring.name for ring in SEMIRINGS.values() if expr.function in ring.constructors]
        raise CellError(
            f"{place} is made by {expr.function}(…), a constructor of the {' or '.join(owners)} semiring; this cell is "
            f"over {semiring.name}. Build it over that one: ",
            call=f"Cell(name, {owners[0]!r}).",
            line=f"semiring {owners[0]}",
        )
    for node in ex.walk(expr):
        if isinstance(node, ex.Component) and node.name not in semiring.components:
            known = ", ".join(f"score.{c}" for c in semiring.components) or "the score alone, a number"
            raise CellError(f"{place} reads score.{node.name}; over {semiring.name} an output reads {known}.")


def _is_an_element(expr: ex.Expr, place: str, semiring: Semiring) -> None:
    """Raise a `CellError` for a real expression as a weight where the semiring converts no real numbers."""
    if (
        semiring.components
        and not isinstance(expr, (ex.One, ex.Zero, ex.Construct))
        and not semiring.reads_reals
    ):
        names = ", ".join(f"{name}({', '.join(a)})" for name, (a, _) in semiring.constructors.items())
        raise CellError(
            f"{place} is a real expression, and a weight over {semiring.name} has the components "
            f"{', '.join(semiring.components)}. Write it with {names or 'a constructor'}."
        )


def _domain(expr: ex.Expr, place: str, semiring: Semiring) -> None:
    """Raise a `CellError` for a logarithm or root of what may be negative, and for a divisor that may be 0."""
    for node in ex.walk(expr):
        if isinstance(node, ex.Call) and node.function in ("log", "sqrt"):
            low = range_of(node.argument, semiring).low
            if low < 0:
                raise CellError(
                    f"{place} takes {node.function} of what may be negative (as low as {low:g}), which is no "
                    "number. Keep the argument provably non-negative: wrap it in sigmoid, exp, softplus or relu."
                )
        if isinstance(node, ex.Binary) and node.operator == "/":
            divisor = range_of(node.right, semiring)
            if not excludes_zero(divisor):
                raise CellError(
                    f"{place} divides by what may be 0 (it lies between {divisor.low:g} and {divisor.high:g}). Keep "
                    "the divisor provably positive: wrap it in exp or softplus, or add a number to relu of it."
                )


def _inside(expr: ex.Expr, place: str, semiring: Semiring) -> None:
    """Raise a `CellError` for a weight outside the semiring's set, or not provably inside where that is less than ℝ."""
    ranges = semiring.numbers_of(weight_range(expr, semiring))
    if all(r.constant for r in ranges) and not semiring.contains(semiring.element(r.low for r in ranges)):
        value = semiring.element(r.low for r in ranges)
        raise CellError(
            f"{place} is {shown(value)}, outside the {semiring.name} semiring's set {semiring.set_description}. "
            f"Its zero is {shown(semiring.zero)} and its one {shown(semiring.one)}. Use a number of that set, or "
            "`zero` or `one`."
        )
    for r, allowed in zip(ranges, semiring.values, strict=True):
        if r.low < allowed.low or r.high > allowed.high or (allowed.integral and not r.integral):
            fix = semiring.weights_fix or (
                f"may lie outside {semiring.set_description}, and the {semiring.name} semiring needs weights that are "
                "provably inside"
            )
            raise CellError(f"{place} {_located(fix, r.low)}")


def _located(fix: str, low: float) -> str:
    """Return the text of a fix, with how low the value may be where it speaks of negative ones."""
    return fix.replace("may be negative,", f"may be negative (as low as {low:g}),")


def shown(element: Any) -> str:
    """Return an element as messages print it."""
    return f"{element:g}" if isinstance(element, (int, float)) else str(element)

"""Weight functions as formulas: σ(W_f v_α + b_f), with names for what has one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from rrnn.arithmetic import BY_NAME
from rrnn.automata import expressions as ex
from rrnn.draw.text import Span, Text, italic, join, name_text, printable, roman

_OPERATORS = {"+": " + ", "-": " − ", "*": " · ", "/": " / "}
_LEVELS = {"+": 1, "-": 1, "*": 2, "/": 2}

ALPHA = italic("α")
EPSILON = italic("ε")
FOR_ALL = (Span("∀"), *ALPHA)


def number_text(value: float, digits: int = 3) -> Text:
    """Three significant digits, with a true minus sign."""
    if math.isinf(value):
        return roman("∞" if value > 0 else "−∞")
    value = value or 0.0  # no negative zero
    text = re.sub(r"e([+-])0*", lambda m: "e" + m[1].strip("+"), f"{value:.{digits}g}")
    return roman(text.replace("-", "−"))


def constant_text(which: str, semiring_value: Any) -> Text:
    """1 where the semiring's one is the number 1, as the paper's figures have it; otherwise 1̄ (and so with 0):
    the number would be read as itself."""
    return (Span(which, bar=semiring_value != float(which)),)


def argument(text: Text) -> Text:
    """A function of the symbol: μ(α)."""
    return (*text, Span("("), *ALPHA, Span(")"))


def below(name: str) -> Text:
    """A name as a subscript."""
    return tuple(span._replace(sub=True) for span in name_text(name))


def formula(
    expr: ex.Expr,
    names: Mapping[ex.Expr, str],
    one: Text,
    zero: Text,
    rename: Callable[[str], str] = lambda name: name,
    *,
    top: bool = False,
) -> Text:
    """The expression in mathematical notation; named parts by their names (`top`: spell this one out).

    `rename` changes every name on the way, so that f₁ and f₂ can be written once as f_j.
    """

    taken = set(names.values())
    letter = "x" if any(re.fullmatch(r"v_?\d*", name) for name in taken) else "v"  # as the equations have it

    def show(e: ex.Expr, parent: int = 0, top: bool = False) -> Text:
        if e in names and not top:
            text = name_text(rename(names[e]))
            return argument(text) if ex.depends_on_input(e) else text
        match e:
            case ex.Number(value=value):
                text = number_text(value, 4)
                return _brackets(text) if value < 0 and parent else text
            case ex.One():
                return one
            case ex.Zero():
                return zero
            case ex.Score():
                return roman("score")
            case ex.Input():
                return _inputs(1, letter)
            case ex.Linear(name=name, bias=bias, window=window):
                name = rename(name)
                text = (Span("W", italic=True), *below(name), Span(" "), *_inputs(window, letter))
                if not bias:
                    return text
                text = (*text, Span(" + "), Span("b", italic=True), *below(name))
                return _brackets(text) if parent else text
            case ex.Parameter(name=name):
                # r = σ(b_r), as the paper writes, where the name itself stands for more than the parameter
                return (
                    (Span("b", italic=True), *below(rename(name)))
                    if name in taken
                    else name_text(rename(name))
                )
            case ex.Component(of=of, name=name):
                return (*show(of, 3), *roman(f".{name}"))
            case ex.Construct(function=function, arguments=arguments):
                inside = join([show(a) for a in arguments], roman(", "))
                return (Span(printable(function)), *_brackets(inside))
            case ex.Call(function="neg", argument=inner):
                text = (Span("−"), *show(inner, 3))
                return _brackets(text) if parent else text
            case ex.Call(function=function):
                shown = BY_NAME[function].value.plain if function in BY_NAME else printable(function)
                return (Span(shown), *_brackets(join([show(inner) for inner in e.children], roman(", "))))
            case ex.Binary(operator=operator, left=left, right=right):
                level = _LEVELS[operator]
                right_level = level + (operator in "-/")
                text = (*show(left, level), Span(_OPERATORS[operator]), *show(right, right_level))
                return _brackets(text) if parent > level else text
        raise AssertionError(e)

    return show(expr, top=top)


def _brackets(text: Text) -> Text:
    return (Span("("), *text, Span(")"))


def _inputs(window: int, letter: str) -> Text:
    """v_α, or the K latest inputs of a windowed projection."""
    if window == 1:
        return (Span(letter, italic=True), Span("α", italic=True, sub=True))
    first = Span(f"t−{window - 1}", sub=True)
    return (
        Span("["),
        Span(letter, italic=True),
        first,
        Span(" … "),
        Span(letter, italic=True),
        Span("t", italic=True, sub=True),
        Span("]"),
    )

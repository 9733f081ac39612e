"""Write names, numbers and formulas as rich text: spans that are upright or italic, on the line or below it.

Labels are the same everywhere (SVG, dot, descriptions): they are kept as spans and turned into SVG or plain Unicode at
the end.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from rrnn.arithmetic import BY_NAME
from rrnn.automata import expressions as ex
from rrnn.ir.notation import GREEK


class Span(NamedTuple):
    """A part of a line of text, in one style."""

    text: str
    italic: bool = False
    sub: bool = False
    """Whether it is a subscript."""
    bar: bool = False
    """Whether it has a line above, as 1̄ does."""


Text = tuple[Span, ...]

SUB_SIZE, SUB_DROP = 0.68, 0.22
"""The size of a subscript, and how far it is lowered, in ems of the text that it belongs to."""


def roman(text: str) -> Text:
    """Return upright text."""
    return (Span(text),)


def italic(text: str) -> Text:
    """Return italic text."""
    return (Span(text, italic=True),)


def join(parts: Iterable[Text], separator: Text = ()) -> Text:
    """Join texts as `str.join` joins strings."""
    out: list[Span] = []
    for i, part in enumerate(parts):
        out += (*separator, *part) if i else part
    return tuple(out)


# ---- names -----------------------------------------------------------------------------------------------------

_NAME = re.compile(r"([^\W\d_]+)(\d*)((?:_+[^\W_]+)*)(_*)")


def name_text(name: str) -> Text:
    """Set a name as the paper does: mu1 → μ₁, q0 → q₀, eta_1 → η₁, mu_1_2 → μ₁,₂, q0_ → q₀′."""
    match = _NAME.fullmatch(name)
    if not match:
        return roman(printable(name))
    base, digits, rest, primes = match.groups()
    parts = [part for part in rest.split("_") if part]
    # w_forget is w with a subscript, but end_of_line is a name of words
    if len(GREEK.get(base, base)) > 1 and any(len(GREEK.get(part, part)) > 2 for part in parts):
        return roman(name)
    below = [part for part in (digits, *parts) if part]
    text = [Span(GREEK.get(base, base), italic=True)]
    if primes:
        text.append(Span("′" * len(primes)))
    for i, part in enumerate(below):
        if i:
            text.append(Span(",", sub=True))
        text.append(Span(GREEK.get(part, part), italic=not part[0].isdigit(), sub=True))
    return tuple(text)


def printable(text: str) -> str:
    """Escape the characters that XML forbids or that would not be seen (control characters, unusual spaces, marks of
    direction)."""
    return "".join(
        c if c == " " or unicodedata.category(c)[0] not in "CZ" else f"\\u{ord(c):04x}" for c in text
    )


def shorten(text: Text, characters: int) -> Text:
    """Cut the text to at most `characters`, the last of which is an ellipsis if something was cut."""
    if sum(len(span.text) for span in text) <= characters:
        return text
    out: list[Span] = []
    left = characters - 1
    for span in text:
        out.append(span._replace(text=span.text[:left]))
        left -= len(out[-1].text)
    return (*(span for span in out if span.text), Span("…"))


# ---- plain Unicode ---------------------------------------------------------------------------------------------

_SUBSCRIPTS = str.maketrans(
    "0123456789+-=()aehijklmnoprstuvxβγρφχ,−", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓᵦᵧᵨᵩᵪ,₋"
)


def plain(text: Text) -> str:
    """Write the text in plain Unicode: q₀, α/μ₁(α), W_f v."""
    out = ""
    for sub, spans in groupby(text, key=lambda span: span.sub):
        part = "".join(f"{span.text}\u0304" if span.bar else span.text for span in spans)
        if sub:
            small = part.translate(_SUBSCRIPTS)
            # Not every letter has a subscript in Unicode; a comma is low enough as it is.
            part = small if all(c == "," or c not in part for c in small) else f"_{part}"
        out += part
    return out


# ---- widths ----------------------------------------------------------------------------------------------------

_WIDTHS = {
    0.25: "′",
    0.30: "'",
    0.35: " ,-./:;\\ijl·",
    0.40: "()I[]fι",
    0.45: "!Jt",
    0.50: '"*_`r',
    0.55: "?szεζ",
    0.60: "acevxy|γξςτϵβη",
    0.65: "$0123456789bdghknopqu{}δθλμνορυχ∀√",
    0.70: "FLPSTYZακπσΓϕ",
    0.75: "ABEKVXφΔΛΞΣ",
    0.80: "CGRψ",
    0.85: "#+<=>DOQU^~ωΘΦΩ−×⊙⊕⊗∞≤≥",
    0.90: "&HNwΠΨ",
    0.95: "m",
    1.00: "%@…→",
    1.05: "MW",
}
_WIDTH = {c: width for width, characters in _WIDTHS.items() for c in characters}
"""The width of each character in ems, the widest of Times (Liberation Serif), Noto Serif and DejaVu Serif: pictures
ask for "serif" only, so that a text must fit in each of them."""


def width(text: Text, size: float) -> float:
    """Return the greatest width of a line in pixels, in a font of this size."""
    total = 0.0  # sum() rounds otherwise from Python 3.12 on, and a picture is to be the same everywhere
    for span in text:
        for c in span.text:
            total += _advance(c) * size * (SUB_SIZE if span.sub else 1)
    return total


def _advance(c: str) -> float:
    if c in _WIDTH:
        return _WIDTH[c]
    if unicodedata.combining(c):
        return 0.0
    return 1.05 if unicodedata.east_asian_width(c) in "WF" else 0.8


# ---- formulas ---------------------------------------------------------------------------------------------------


_OPERATORS = {"+": " + ", "-": " − ", "*": " · ", "/": " / "}
_LEVELS = {"+": 1, "-": 1, "*": 2, "/": 2}

ALPHA = italic("α")
EPSILON = italic("ε")


def for_all(symbol: Text = ALPHA) -> Text:
    """Write ∀α."""
    return (Span("∀"), *symbol)


def number_text(value: float, digits: int = 3) -> Text:
    """Write a number with so many significant digits and a true minus sign."""
    if math.isinf(value):
        return roman("∞" if value > 0 else "−∞")
    value = value or 0.0  # no negative zero
    text = re.sub(r"e([+-])0*", lambda m: "e" + m[1].strip("+"), f"{value:.{digits}g}")
    return roman(text.replace("-", "−"))


def constant_text(which: str, semiring_value: Any) -> Text:
    """Write the semiring's one (or zero): as 1 where it is the number 1, as in the paper's figures, otherwise as 1̄,
    since 1 would be read as the number."""
    return (Span(which, bar=semiring_value != float(which)),)


def symbol_letter(names: Iterable[str]) -> Text:
    """Return the letter of an input symbol: α, or another one where a weight has that name."""
    taken = {re.sub(r"_?\d+$", "", name) for name in names}
    return next((italic(GREEK.get(c, c)) for c in ("alpha", "a", "chi") if c not in taken), ALPHA)


def argument(text: Text, symbol: Text = ALPHA) -> Text:
    """Write a function of the symbol: μ(α)."""
    return (*text, Span("("), *symbol, Span(")"))


def indexed(text: Text, expr: ex.Expr, end: str = "i") -> Text:
    """Write the index of a family behind a name, as in Bᵢ, where the expression depends on it. Arcs from each state to
    each lead from j to i, as the equations have it; `end` is the letter at one of their ends."""
    if not ex.families_of(expr):
        return text
    pairs = any(isinstance(n, ex.At) or isinstance(getattr(n, "over", None), tuple) for n in ex.walk(expr))
    comma = (Span(",", sub=True),) if text[-1].sub else ()
    return (*text, *comma, Span("ij" if pairs else end, italic=True, sub=True))


def below(name: str) -> Text:
    """Write a name as a subscript."""
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
    """Write an expression in mathematical notation, and its named parts by their names (not itself, if `top`).

    `rename` changes every name, so that f₁ and f₂ can be written once as f_j.
    """

    taken = set(names.values())
    letter = "x" if any(re.fullmatch(r"v_?\d*", name) for name in taken) else "v"  # as the equations have it
    symbol = symbol_letter(taken)

    def show(e: ex.Expr, parent: int = 0, top: bool = False, i: str = "i") -> Text:
        if e in names and not top:
            text = indexed(name_text(rename(names[e])), e, i)
            return argument(text, symbol) if ex.depends_on_input(e) else text
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
                return _inputs(1, letter, symbol)
            case ex.Linear(name=name, bias=bias, window=window):
                row = indexed(below(rename(name)), e, i)
                text = (Span("W", italic=True), *row, Span(" "), *_inputs(window, letter, symbol))
                if not bias:
                    return text
                text = (*text, Span(" + "), Span("b", italic=True), *row)
                return _brackets(text) if parent else text
            case ex.Parameter(name=name):
                # The paper writes r = σ(b_r), where the name stands for more than the parameter.
                own = (Span("b", italic=True), *below(rename(name)))
                return indexed(own if name in taken else name_text(rename(name)), e, i)
            case ex.Component(of=of, name=name):
                return (*show(of, 3, i=i), *roman(f".{name}"))
            case ex.At(of=of, end=end):
                return show(of, 3, i="j" if end == "source" else "i")
            case ex.Construct(function=function, arguments=arguments):
                inside = join([show(a, i=i) for a in arguments], roman(", "))
                return (Span(printable(function)), *_brackets(inside))
            case ex.Call(function="neg", argument=inner):
                text = (Span("−"), *show(inner, 3, i=i))
                return _brackets(text) if parent else text
            case ex.Call(function=function):
                shown = BY_NAME[function].value.plain if function in BY_NAME else printable(function)
                return (
                    Span(shown),
                    *_brackets(join([show(inner, i=i) for inner in e.children], roman(", "))),
                )
            case ex.Binary(operator=operator, left=left, right=right):
                level = _LEVELS[operator]
                right_level = level + (operator in "-/")
                text = (*show(left, level, i=i), Span(_OPERATORS[operator]), *show(right, right_level, i=i))
                return _brackets(text) if parent > level else text
        raise AssertionError(e)

    return show(expr, top=top)


def _brackets(text: Text) -> Text:
    return (Span("("), *text, Span(")"))


def _inputs(window: int, letter: str, symbol: Text) -> Text:
    """Write the input, v_α, or the K latest inputs of a windowed projection."""
    if window == 1:
        return (Span(letter, italic=True), *(span._replace(sub=True) for span in symbol))
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

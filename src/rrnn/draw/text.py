"""Rich text of one line: spans that are upright or italic, on the line or below it, with their widths.

A label is written the same way everywhere (SVG, dot, a description), so it is kept as spans and turned into
marks or plain Unicode at the end.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from rrnn.ir.notation import GREEK


class Span(NamedTuple):
    text: str
    italic: bool = False
    sub: bool = False
    """A subscript."""
    bar: bool = False
    """With a line above, as in 1̄."""


Text = tuple[Span, ...]

SUB_SIZE, SUB_DROP = 0.68, 0.22
"""Size of a subscript and how far it is lowered, in ems of the text it belongs to."""


def roman(text: str) -> Text:
    return (Span(text),)


def italic(text: str) -> Text:
    return (Span(text, italic=True),)


def join(parts: Iterable[Text], separator: Text = ()) -> Text:
    out: list[Span] = []
    for i, part in enumerate(parts):
        out += (*separator, *part) if i else part
    return tuple(out)


# ---- names -----------------------------------------------------------------------------------------------------

_NAME = re.compile(r"([^\W\d_]+)(\d*)((?:_+[^\W_]+)*)(_*)")


def name_text(name: str) -> Text:
    """A name as the paper sets it: mu1 → μ₁, q0 → q₀, eta_1 → η₁, mu_1_2 → μ₁,₂, q0_ → q₀′."""
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
    """The text with escapes for what XML forbids or what would not show where it stands (control characters,
    odd spaces, marks of direction)."""
    return "".join(
        c if c == " " or unicodedata.category(c)[0] not in "CZ" else f"\\u{ord(c):04x}" for c in text
    )


def shorten(text: Text, characters: int) -> Text:
    """The text cut to so many characters, the last of them an ellipsis where something was cut."""
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
    """The text in Unicode without marks: q₀, α/μ₁(α), W_f v."""
    out = ""
    for sub, spans in groupby(text, key=lambda span: span.sub):
        part = "".join(f"{span.text}\u0304" if span.bar else span.text for span in spans)
        if sub:
            small = part.translate(_SUBSCRIPTS)
            # Not every letter has a subscript form; a comma is low enough as it is.
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
"""Ems, the widest of Times (Liberation Serif), Noto Serif and DejaVu Serif: a picture names no font but "serif",
so what fits must fit in each."""


def width(text: Text, size: float) -> float:
    """Pixels that a line takes at most, in a font of this size."""
    return sum(_advance(c) * size * (SUB_SIZE if span.sub else 1) for span in text for c in span.text)


def _advance(c: str) -> float:
    if c in _WIDTH:
        return _WIDTH[c]
    if unicodedata.combining(c):
        return 0.0
    return 1.05 if unicodedata.east_asian_width(c) in "WF" else 0.8

"""Explanations as HTML: one file that a browser opens without a network, in light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from rrnn.automata import Cell
from rrnn.draw import to_svg
from rrnn.report.explain import Explanation, Unit, Word
from rrnn.semirings.semiring import Element

STYLE = """
:root { color-scheme: light dark; --for: 22 128 60; --against: 190 40 40; --line: rgb(128 128 128 / 0.4); }
@media (prefers-color-scheme: dark) { :root { --for: 34 128 72; --against: 178 58 58; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
.words { line-height: 2.2; font-size: 1.15rem; margin: 0.3rem 0 1rem; overflow-wrap: anywhere; }
.words span { display: inline-block; line-height: 1.5; padding: 0 0.3rem; border-radius: 0.3rem; }
.words sub { font-size: 0.65em; margin-left: 0.15em; opacity: 0.85; }
.unknown { font-style: normal; text-decoration: underline dotted; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { text-align: left; padding: 0.2rem 0.8rem 0.2rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.note { opacity: 0.75; overflow-wrap: anywhere; }
.paths { min-width: 13rem; }
figure { margin: 1rem 0; overflow-x: auto; }
""".strip()


def page(explanations: Sequence[tuple[str, Explanation]], cell: Cell | None = None) -> str:
    """A whole page of (text, explanation), with the picture of the cell."""
    picture = "" if cell is None else f"<figure>{to_svg(cell)}</figure>"
    bodies = "\n".join(
        f"<section>\n<h2>{escape(shorten(text))}</h2>\n{fragment(each)}\n</section>"
        for text, each in explanations
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>Explained predictions</title>\n'
        f"<style>\n{STYLE}\n</style>\n</head>\n<body>\n<main>\n<h1>Explained predictions</h1>\n{bodies}\n{picture}\n"
        "</main>\n</body>\n</html>\n"
    )


def shorten(text: str, characters: int = 120) -> str:
    """A text as a heading."""
    text = " ".join(text.split())
    return text if len(text) <= characters else f"{text[:characters]}…"


def fragment(explanation: Explanation) -> str:
    """One explanation, to stand inside a page that has `STYLE`, below a heading of the second level."""
    e = explanation
    chances = ", ".join(f"{escape(name)} {p:.1%}" for name, p in e.probabilities.items())
    return "\n".join(
        [
            f"<p>Prediction: <strong>{escape(e.label)}</strong> ({chances}). "
            f"Margin of {escape(e.target)}: {signed(e.margin)}.</p>",
            "<h3>Lost without the word (exact)</h3>",
            _sides(e),
            words_line(e, [word.without for word in e.words]),
            inside(e),
        ]
    )


def inside(e: Explanation, heading: int = 3) -> str:
    """What the automata of the first layer have to say: paths by words, units. Headings are of that level."""
    parts = []
    if all(word.adds is not None for word in e.words):
        rest = (
            f" First order leaves {signed(e.unexplained)} unexplained."
            if not e.exact and e.unexplained is not None
            else ""
        )
        parts += [
            f"<h{heading}>Added by paths that enter at the word ({e.kind})</h{heading}>",
            _sides(e),
            words_line(e, [word.adds or 0.0 for word in e.words]),
            f'<p class="note">Margin with all scores at zero: {signed(e.base or 0.0)}.{rest}</p>',
        ]
    if e.units:
        parts += [
            f"<h{heading}>The strongest units of the first layer</h{heading}>",
            _units(e),
        ]
    if e.note:
        parts.append(f'<p class="note">{escape(e.note)}</p>')
    return "\n".join(parts)


def shade(value: float, largest: float) -> float:
    """How strongly to colour a word: 0 to 1."""
    return min(1.0, abs(value) / largest) if largest > 0 else 0.0


def _sides(e: Explanation) -> str:
    side = f"Green speaks for {escape(e.target)}, red against it; the number stands behind each word."
    return f'<p class="note">{side}</p>'


def words_line(e: Explanation, values: Sequence[float], least: float = 0.0) -> str:
    """The words, coloured by their values, each with its number; not those below this share of the largest."""
    largest = max(map(abs, values), default=0.0)
    spans = " ".join(_word(word, value, largest, least) for word, value in zip(e.words, values, strict=True))
    return f'<p class="words">{spans}</p>'


def _word(word: Word, value: float, largest: float, least: float) -> str:
    colour, strength = "--for" if value > 0 else "--against", shade(value, largest)
    style = f"background: rgb(var({colour}) / {0.55 * strength:.2f})"
    text = escape(word.token)
    text = text if word.known else f'<i class="unknown" title="not in the vocabulary">{text}</i>'
    number = f"<sub>{signed(value, 2)}</sub>" if strength >= least else ""
    return f'<span style="{style}">{text}{number}</span>'


def signed(value: Element, digits: int = 3) -> str:
    """A number with its sign, as it is printed; those of an element as ⟨+0.500, −0.250⟩."""
    if isinstance(value, tuple):
        return f"⟨{', '.join(signed(x, digits) for x in value)}⟩"
    text = f"{value:+.{digits}f}".replace("-", "−")
    return text if text.strip("+−0.") else text[1:]  # zero, after rounding, has no sign


def _units(e: Explanation) -> str:
    rows = "\n".join(
        f"<tr><td>{unit.unit}{' ←' if unit.direction == 'backward' else ''} ({escape(unit.cell)})</td>"
        f'<td class="number">{signed(unit.adds)}</td><td class="number">{signed(unit.score)}</td>'
        f"<td>{'for' if unit.slope > 0 else 'against'} {escape(e.target)}</td>"
        f'<td class="paths">{_list([(p.text, p.weight) for p in unit.phrases])}</td>'
        f'<td class="paths">{_list([(p.text, p.weight) for p in unit.paths])}{_covered(unit)}</td></tr>'
        for unit in e.units
    )
    head = "".join(
        f'<th scope="col"{mark}>{name}</th>'
        for name, mark in (
            ("unit", ""),
            (f"adds ({e.kind})", ' class="number"'),
            ("score", ' class="number"'),
            ("high scores speak", ""),
            ("finds", ""),
            ("keeps to the end", ""),
        )
    )
    return (
        '<p class="note">Phrases with the product of their weights; [skipped] words pass through a self-loop, ε drops '
        f'a word.</p>\n<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n'
        "</table></div>"
    )


def _list(found: list[tuple[str, float]]) -> str:
    return "<br>".join(f"{escape(text or '∅')} {signed(weight)}" for text, weight in found)


def _covered(unit: Unit) -> str:
    return "" if unit.covered is None else f'<br><span class="note">{unit.covered:.0%} of Σ|paths|</span>'

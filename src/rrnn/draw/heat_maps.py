"""Draw an entry map, which is a triangle, as SVG: for pages that have `HEAT_STYLE`, or as a file of its own.

Each row belongs to the output after a word, each column to the word at which paths enter. A word stands once, at the
corner of its row and its column, so that rows and columns need no labels of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from rrnn.draw.svg import SVG
from rrnn.errors import ShapeError

MAX_WORDS = 200
LEAST = 0.005
"""Shares below this are left out."""
MAX_DESCRIBED = 40
"""Outputs that the text for screen readers describes."""
_LETTERS, _LETTER, _MARGIN = 16, 7.6, 12.0  # letters of a word, the width of one at most, around the picture
_LARGE, _SMALL, _WIDTH = (
    24.0,
    4.0,
    640.0,
)  # the size of a cell at most and at least, and the width to fit into
_WIDE = 460.0  # a narrower picture may be made smaller to fit a page, a wider one scrolls

HEAT_STYLE = """
.heat{color-scheme:light dark;--plus:#1f5f8b;--minus:#c2330f;--word:#1b1b1b;--faint:#5d5a54;--back:#eeebe3;--paper:#fff}
@media (prefers-color-scheme:dark){.heat{--plus:#86c5f4;--minus:#ff8a66;--word:#e6e6e6;--faint:#a5a8b0;--back:#23272f;
--paper:#16181d}}
.heat text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Liberation Sans",sans-serif;
fill:var(--word)}
.heat:not(.wide){max-width:100%;height:auto}
.heat .faint{fill:var(--faint)}
.heat .paper{fill:var(--paper)}
.heat .back{fill:var(--back)}
.heat .plus{fill:var(--plus)}
.heat .minus{fill:var(--minus)}
""".strip()


def heat_map(
    rows: Sequence[Sequence[float]],
    words: Sequence[str],
    *,
    title: str,
    backward: bool = False,
    alone: bool = True,
) -> SVG:
    """Return an <svg> of shares between −1 and 1, a row for each word. The words of a row come before it, in a map of a
    backward reading after it. With `alone` it is a file with its own style and background."""
    n = len(words)
    if len(rows) != n or any(len(row) != n for row in rows):
        raise ShapeError(
            f"a heat map of {n} words has {n} rows of {n} shares; got rows of {[len(r) for r in rows]}"
        )
    if not 1 <= n <= MAX_WORDS:
        raise ShapeError(
            f"a heat map has room for 1 to {MAX_WORDS} words; got {n}. Explain a part of the text."
        )
    cell = min(_LARGE, max(_SMALL, _WIDTH / n))
    size = min(13.5, max(7.0, 0.62 * cell + 2))
    every = max(1, math.ceil((size + 1) / cell))  # of many words, so many stand closer than their height
    room = size / 13.5 * _LETTER * max(min(len(word), _LETTERS) for word in words) + 8
    left, top = _MARGIN + (room if backward else 0), _MARGIN + 24
    width, bottom = max(left + n * cell + (0 if backward else room) + _MARGIN, 290.0), top + n * cell
    height = bottom + 34
    title = escape(title)
    body = [
        f'<text x="{_MARGIN:g}" y="{_MARGIN + 9:g}" font-size="14">{title}</text>',
        f'<path class="back" d="{_triangle(n, cell, left, top, backward)}"/>',
        *_cells(rows, words, cell, left, top),
        *_labels(words, cell, left, top, size, every, backward),
        *_legend(_MARGIN, bottom + 22),
    ]
    kind = "heat wide" if width > _WIDE else "heat"
    if alone:
        paper = f'<rect class="paper" width="{width:.0f}" height="{height:.0f}" rx="6"/>'
        body[:0] = [f"<style>{HEAT_STYLE}</style>", paper]
    inner = "\n".join(body)
    return SVG(
        f'<svg class="{kind}" role="img" width="{width:.0f}" height="{height:.0f}" '
        f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}">\n<title>{title}</title>\n'
        f"<desc>{escape(_described(rows, words))}</desc>\n{inner}\n</svg>\n"
    )


def _triangle(n: int, cell: float, left: float, top: float, backward: bool) -> str:
    """Return the outline of the cells that a map can fill, as a path: the stairs of its diagonal, and two sides."""
    stair = f"h{-cell:.3f} v{-cell:.3f} " if backward else f"h{cell:.3f} v{cell:.3f} "
    sides = f"h{n * cell:.3f} v{n * cell:.3f} " if backward else ""
    return f"M{left:.3f},{top:.3f} {sides}{n * stair}{'' if backward else f'H{left:.3f} '}z"


def _cells(
    rows: Sequence[Sequence[float]], words: Sequence[str], cell: float, left: float, top: float
) -> Iterator[str]:
    gap = 1.0 if cell >= 10 else 0.0
    for t, row in enumerate(rows):
        for s, share in enumerate(row):
            if abs(share) < LEAST or not math.isfinite(share):
                continue
            place = f'x="{left + s * cell:.2f}" y="{top + t * cell:.2f}"'
            size = f'width="{cell - gap:.2f}" height="{cell - gap:.2f}"'
            says = f"<title>{escape(words[s])} → {escape(words[t])}: {share:+.0%}</title>".replace("-", "−")
            kind = "plus" if share > 0 else "minus"
            yield f'<rect class="{kind}" {place} {size} fill-opacity="{opacity(share):.2f}">{says}</rect>'


def opacity(share: float) -> float:
    """Return how opaque a share is drawn. Small shares are drawn stronger than in proportion, so that they are seen."""
    return min(1.0, abs(share) ** 0.6)


def _labels(
    words: Sequence[str], cell: float, left: float, top: float, size: float, every: int, backward: bool
) -> Iterator[str]:
    for t in range(0, len(words), every):
        x = left + t * cell - 6 if backward else left + (t + 1) * cell + 6
        y = top + (t + 0.5) * cell + 0.36 * size
        anchor = ' text-anchor="end"' if backward else ""
        word = words[t] if len(words[t]) <= _LETTERS else f"{words[t][: _LETTERS - 1]}…"
        yield f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:.1f}"{anchor}>{escape(word)}</text>'


def _legend(x: float, y: float) -> Iterator[str]:
    """Draw samples of shares, with their numbers."""
    for share in (-1.0, -0.25, 0.25, 1.0):
        kind = "plus" if share > 0 else "minus"
        yield (
            f'<rect class="{kind}" x="{x:.0f}" y="{y - 10:.0f}" width="12" height="12" '
            f'fill-opacity="{opacity(share):.2f}"/>'
        )
        number = f"{share:+.0%}".replace("-", "−")
        yield f'<text class="faint" x="{x + 16:.0f}" y="{y:.0f}" font-size="12">{number}</text>'
        x += 66


def _described(rows: Sequence[Sequence[float]], words: Sequence[str]) -> str:
    """Say in words which word counts most for each output, for screen readers."""
    parts = []
    for word, row in zip(words, rows, strict=True):
        s = max(range(len(row)), key=lambda i: abs(row[i]))
        parts.append(f"after {word} mostly {words[s]}, {row[s]:+.0%}")
    return f"At which words paths enter. {'; '.join(parts[:MAX_DESCRIBED])}."

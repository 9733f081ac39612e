"""Curves as SVG, drawn by ourselves: colours come from the page's style, in light and dark; numbers from hovering."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 370.0, 250.0
LEFT, RIGHT, TOP, BOTTOM = 40.0, 80.0, 12.0, 38.0
COLOURS = 8
"""Of the page's style: --run0 to --run7. More runs begin anew, dashed."""
_LABELS, _LABEL_HEIGHT, _LABEL_LETTERS = 8, 14.0, 11
_HOVERS = 60  # points of a curve that say their numbers: more lie too close to be met


@dataclass(frozen=True)
class Curve:
    """Points (x, y) of a run; `faint` curves accompany another of the same colour and have no label."""

    name: str
    colour: int
    points: Sequence[tuple[float, float]]
    mark: tuple[float, float] | None = None
    """The best point."""
    faint: bool = False


@dataclass(frozen=True)
class Scale:
    """From numbers to places, straight or by logarithm."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        bend = math.log if self.log else float
        share = (bend(value) - bend(self.low)) / (bend(self.high) - bend(self.low))
        return self.start + share * (self.stop - self.start)


def chart(curves: Sequence[Curve], *, title: str, x_title: str, whole: bool = False) -> str:
    """The picture, an <svg>; `whole`: x counts something. Curves without points are left out."""
    curves = [curve for curve in curves if curve.points]
    if not curves:
        return ""
    xs = [x for curve in curves for x, _ in curve.points]
    ys = [y for curve in curves for _, y in curve.points]
    log = min(ys) > 0 and max(ys) / min(ys) > 4
    named = [curve for curve in curves if not curve.faint]
    right = RIGHT if len(named) <= _LABELS else 2 * TOP  # many names are left to the colours of the table
    across = Scale(*_span(min(xs) if whole else 0.0, max(xs)), LEFT, WIDTH - right)
    up = Scale(*_span(min(ys), max(ys)), HEIGHT - BOTTOM - 6, TOP + 6, log)
    y_ticks = log_ticks(up.low, up.high) if log else ticks(up.low, up.high)
    body = [*_frame(across, up, ticks(across.low, across.high, whole=whole), y_ticks, x_title)]
    for curve in sorted(curves, key=lambda curve: not curve.faint):
        body += _line(curve, across, up)
    if right == RIGHT:
        body += _labels(named, up)
    inner = "\n".join(body)
    return (
        f'<svg class="chart" role="img" viewBox="0 0 {WIDTH:g} {HEIGHT:g}">\n<title>{escape(title)}</title>\n'
        f"<desc>{escape(_described(curves, x_title))}</desc>\n{inner}\n</svg>"
    )


def ticks(low: float, high: float, most: int = 6, *, whole: bool = False) -> list[float]:
    """Round numbers within the range, at most so many; `whole`: none between whole numbers."""
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    power = max(1.0, power) if whole else power
    found: list[float] = []
    for step in (power * factor for factor in (1, 2, 5, 10, 20)):  # by 20 there are less than `most`
        found = [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
        if len(found) <= most:
            break
    return found


def log_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Powers of ten within the range, with numbers between them where there is room."""
    found: list[float] = []
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        every = (factor * 10.0**power for power in powers for factor in factors)
        found = [value for value in every if low * 0.999 <= value <= high * 1.001]
        if len(found) <= most:
            return found
    return found[:: math.ceil(len(found) / most)]  # a very wide range: some of the powers


def _span(low: float, high: float) -> tuple[float, float]:
    """A range that is not a point."""
    if high > low:
        return low, high
    pad = abs(low) * 0.1 or 1.0
    return low - pad, high + pad


def _frame(across: Scale, up: Scale, xs: list[float], ys: list[float], x_title: str) -> list[str]:
    right, bottom = across.stop, HEIGHT - BOTTOM
    out = [f'<path class="grid" d="M{LEFT:g},{bottom:g} H{right:.1f}"/>']
    for y in ys:
        place = up(y)
        out.append(f'<path class="grid" d="M{LEFT:g},{place:.1f} H{right:.1f}"/>')
        out.append(
            f'<text class="tick" x="{LEFT - 7:g}" y="{place + 4:.1f}" text-anchor="end">{short(y)}</text>'
        )
    for x in xs:
        out.append(
            f'<text class="tick" x="{across(x):.1f}" y="{bottom + 16:g}" text-anchor="middle">{short(x)}</text>'
        )
    middle = (LEFT + right) / 2
    out.append(
        f'<text class="axis" x="{middle:.1f}" y="{HEIGHT - 4:g}" text-anchor="middle">{escape(x_title)}</text>'
    )
    return out


def _line(curve: Curve, across: Scale, up: Scale) -> list[str]:
    style = f'style="--run: var(--run{curve.colour % COLOURS})"'
    dashed = " dashed" if curve.colour >= COLOURS else ""
    kind = f"curve{' faint' if curve.faint else ''}{dashed}"
    places = [(across(x), up(y), x, y) for x, y in curve.points]
    path = " ".join(f"{'L' if i else 'M'}{x:.1f},{y:.1f}" for i, (x, y, _, _) in enumerate(places))
    out = [f'<g {style}><path class="{kind}" d="{path}"/>']
    if len(places) == 1:
        out.append(f'<circle class="dot" cx="{places[0][0]:.1f}" cy="{places[0][1]:.1f}" r="3"/>')
    if curve.mark is not None:
        x, y = curve.mark
        out.append(f'<circle class="dot best" cx="{across(x):.1f}" cy="{up(y):.1f}" r="4.5"/>')
    if not curve.faint:
        name = escape(curve.name)
        for x, y, value, height in places[:: max(1, math.ceil(len(places) / _HOVERS))]:
            hover = f"<title>{name} at {short(value)}: {height:.4g}</title>"
            out.append(f'<circle class="hover" cx="{x:.1f}" cy="{y:.1f}" r="8">{hover}</circle>')
    return [*out, "</g>"]


def _labels(curves: Sequence[Curve], up: Scale) -> list[str]:
    """The names, right of the frame, as high as their curves end, moved apart where they would overlap."""
    ends = sorted((up(curve.points[-1][1]), i) for i, curve in enumerate(curves))
    top, bottom = TOP + 4, HEIGHT - BOTTOM
    places: list[float] = []
    for want, _ in ends:
        places.append(max(want, places[-1] + _LABEL_HEIGHT if places else top))
    limit = bottom
    for i in reversed(range(len(places))):  # push up what fell below the frame, and what that meets
        places[i] = min(places[i], limit)
        limit = places[i] - _LABEL_HEIGHT
    out = []
    for (_, i), y in zip(ends, places, strict=True):
        curve = curves[i]
        name = curve.name if len(curve.name) <= _LABEL_LETTERS else f"…{curve.name[1 - _LABEL_LETTERS :]}"
        x = WIDTH - RIGHT + 9
        out.append(
            f'<text class="label" style="--run: var(--run{curve.colour % COLOURS})" x="{x:.1f}" y="{y + 4:.1f}">'
            f"{escape(name)}</text>"
        )
    return out


def _described(curves: Sequence[Curve], x_title: str) -> str:
    parts = []
    for curve in curves:
        (x0, y0), (x1, y1) = curve.points[0], curve.points[-1]
        if not curve.faint:
            best = f", best {curve.mark[1]:.4g} at {short(curve.mark[0])}" if curve.mark else ""
            parts.append(f"{curve.name}: {y0:.4g} at {short(x0)}, {y1:.4g} at {short(x1)}{best}")
    return f"By {x_title}. " + ". ".join(parts) + "."


def short(value: float) -> str:
    """A number on an axis: 0.25, 40, 1.5k, 2M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            unit = 1e3 if letter == "k" else size
            return f"{value / unit:.4g}{letter}"
    return f"{value:.4g}".replace("-", "−")

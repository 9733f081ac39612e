"""Plot curves and points as SVG that follows light and dark pages: for reports, runs, documentation and benchmarks.

`chart` returns one plot to stand in a page that has `STYLE`. `figure` returns a whole file of panels with a legend.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

WIDTH, HEIGHT = 370.0, 250.0
LEFT, RIGHT, TOP, BOTTOM = 40.0, 92.0, 12.0, 38.0
COLOURS = 8
"""The style has --run0 to --run7. Series beyond that reuse the colours, dashed and then dotted."""
_LABELS, _LABEL_HEIGHT, _LABEL_LETTERS = 8, 14.0, 10
_HOVERS = 60  # points of a curve that show their numbers on hovering: more would lie too close together
_LETTER, _ROW = 7.8, 18.0  # pixels of a legend: the width of a letter at most, and the distance of lines

STYLE = """
:root{color-scheme:light dark;--card:#fff;--ink:#1b1b1b;--soft:#5d5a54;--line:#dedad1;
--run0:#c2330f;--run1:#1f5f8b;--run2:#2f7d3b;--run3:#7a4bb0;--run4:#9a6200;--run5:#00757a;--run6:#b0307a;--run7:#5a5f66;
--sans:system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Liberation Sans",sans-serif}
@media (prefers-color-scheme:dark){:root{--card:#16181d;--ink:#e6e6e6;--soft:#a5a8b0;--line:#2b2f37;
--run0:#ff8a66;--run1:#86c5f4;--run2:#7fd68f;--run3:#c4a5f5;--run4:#e8b659;--run5:#5fd0d0;--run6:#f59ac8;--run7:#b4bac4}}
.chart{font-family:var(--sans)}
.chart .paper{fill:var(--card)}
.chart .heading{fill:var(--ink);font-size:15px;font-weight:600}
.chart .heading tspan,.chart .key{fill:var(--soft);font-size:13px;font-weight:400}
.chart .grid{stroke:var(--line);stroke-width:1;fill:none}
.chart .tick,.chart .axis{fill:var(--soft);font-size:12.5px;font-variant-numeric:tabular-nums}
.chart .curve{fill:none;stroke:var(--run);stroke-width:2.4;stroke-linejoin:round;stroke-linecap:round}
.chart .thin{stroke-width:1.6}
.chart .faint{stroke-width:1.6;stroke-dasharray:2 5}
.chart .dashed{stroke-dasharray:8 4}
.chart .dotted{stroke-dasharray:1 4}
.chart .dot{fill:var(--run)}
.chart .cross{fill:none;stroke:var(--run);stroke-width:1.4}
.chart .best{stroke:var(--card);stroke-width:2}
.chart .hover{fill:transparent}
.chart .hover:hover{fill:var(--run);fill-opacity:.25}
.chart .label{fill:var(--run);font-size:13px;font-weight:600;
paint-order:stroke;stroke:var(--card);stroke-width:4px;stroke-linejoin:round}
""".strip()

Marker = Literal["circle", "up", "down", "cross", "plus"]
_MARKERS = {
    "up": ("dot", "m0,-4.2 l4,7.2 h-8 z"),
    "down": ("dot", "m0,4.2 l4,-7.2 h-8 z"),
    "cross": ("cross", "m-3,-3 l6,6 m0,-6 l-6,6"),
    "plus": ("cross", "m-4,0 h8 m-4,-4 v8"),
}


@dataclass(frozen=True)
class Series:
    """Points (x, y) under a name: a curve, or single points drawn with a `marker`."""

    name: str
    colour: int
    points: Sequence[tuple[float, float]] = ()
    mark: tuple[float, float] | None = None
    """The best point, marked by a dot."""
    faint: bool = False
    """Draw a fine dashed line without a label: it accompanies another series of the same colour."""
    marker: Marker | None = None


@dataclass(frozen=True)
class Axis:
    """The title and scale of an axis. A limit that is None is that of the points."""

    title: str = ""
    log: bool = False
    low: float | None = None
    high: float | None = None
    whole: bool = False
    """Label whole numbers only."""


@dataclass(frozen=True)
class Panel:
    """One plot of a figure. What lies outside the limits of its axes is cut off."""

    series: Sequence[Series]
    x: Axis
    y: Axis
    title: str = ""
    legend: bool = False
    """List the series right of the plot."""


@dataclass(frozen=True)
class Scale:
    """Map numbers to coordinates, linearly or by their logarithms."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        bend = math.log if self.log else float
        share = (bend(value) - bend(self.low)) / (bend(self.high) - bend(self.low))
        return self.start + share * (self.stop - self.start)


def chart(series: Sequence[Series], *, title: str, x_title: str, whole: bool = False) -> str:
    """Return an <svg> of curves with their names at their ends, or "" where no series has points.

    `whole` says that x counts something, such as epochs. The y axis is logarithmic where values differ much.
    """
    series = [each for each in series if each.points]
    if not series:
        return ""
    ys = [y for each in series for _, y in each.points]
    log = min(ys) > 0 and max(ys) / min(ys) > 4
    named = [each for each in series if not each.faint]
    # Names stand at the ends of their curves where they fit there, or else in a legend below. Very many stand nowhere.
    few = len(named) <= _LABELS
    labelled = few and all(len(each.name) <= _LABEL_LETTERS for each in named)
    right = WIDTH - (RIGHT if labelled else 2 * TOP)
    area = _Area(
        series, Axis(x_title, low=None if whole else 0.0, whole=whole), Axis(log=log), right, HEIGHT - BOTTOM
    )
    body = [*area.frame(), *area.drawn(hover=True)]
    if labelled:
        return _svg(title, _described(named, x_title), WIDTH, HEIGHT, [*body, *area.labels(named)])
    height = HEIGHT + (6 if few else 0)
    for entry in named if few else ():
        body += _key(entry, 12, height + 8, limit=int((WIDTH - 40) / _LETTER))
        height += _ROW
    return _svg(title, _described(named, x_title), WIDTH, height, body)


def figure(
    panels: Sequence[Panel],
    *,
    title: str,
    columns: int = 1,
    width: float = WIDTH,
    height: float = HEIGHT,
    legend: Sequence[Series] = (),
) -> str:
    """Return an SVG file of panels in a grid, each `width` by `height`, below one `legend` for all of them."""
    title_height, heading_height = 30.0, 22.0
    longest = max((len(s.name) for p in panels if p.legend for s in p.series), default=-5)
    right = 56 + _LETTER * longest if longest > 0 else 0.0
    total_width = columns * (width + right)
    body = [f'<text class="heading" x="12" y="22">{escape(title)}</text>']
    x, y = 12.0, title_height + 12
    for entry in legend:
        step = 40 + _LETTER * len(entry.name)
        if x > 12 and x + step > total_width:
            x, y = 12.0, y + _ROW
        body += _key(entry, x, y)
        x += step
    top = y + 12 if legend else title_height
    for start in range(0, len(panels), columns):
        row = panels[start : start + columns]
        row_height = max(height, *(_ROW * len(p.series) + TOP for p in row if p.legend), 0.0)
        for i, panel in enumerate(row):
            area = _Area(panel.series, panel.x, panel.y, width - 2 * TOP, height - BOTTOM)
            units = f' <tspan dx="6">{escape(panel.y.title)}</tspan>' if panel.y.title else ""
            body += [
                f'<g transform="translate({i * (width + right):g},{top + heading_height:g})">',
                f'<text class="heading" x="{LEFT:g}" y="-2">{escape(panel.title)}{units}</text>',
                *area.frame(),
                *area.clipped(area.drawn()),
            ]
            if panel.legend:
                for j, series in enumerate(panel.series):
                    body += _key(series, width, TOP + _ROW * (j + 0.5))
            body.append("</g>")
        top += heading_height + row_height
    body.insert(0, f'<rect class="paper" width="{total_width:g}" height="{top:g}" rx="6"/>')
    seen = {s.name: s for p in panels for s in p.series if s.name and s.points and not s.marker}
    description = _described(list(seen.values()), panels[0].x.title) if seen else title
    return (
        _svg(title, description, total_width, top, [f"<style>{STYLE}</style>", *body], standalone=True) + "\n"
    )


# ---- axes ------------------------------------------------------------------------------------------------------------


def ticks(low: float, high: float, most: int = 6, *, whole: bool = False) -> list[float]:
    """Return at most `most` round numbers within the range; with `whole`, whole numbers only."""
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    power = max(1.0, power) if whole else power
    found: list[float] = []
    for step in (power * factor for factor in (1, 2, 5, 10, 20)):  # by 20 there are less than `most`
        found = [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
        if len(found) <= most:
            break
    return found


def log_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return powers of ten within the range, and round numbers between them where there is room."""
    found: list[float] = []
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        every = (factor * 10.0**power for power in powers for factor in factors)
        found = [value for value in every if low * 0.999 <= value <= high * 1.001]
        if len(found) <= most:
            return found
    return found[:: math.ceil(len(found) / most)]  # a very wide range: some of the powers


def short(value: float) -> str:
    """Write a number for an axis: 0.25, 40, 1.5k, 2M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            unit = 1e3 if letter == "k" else size
            return f"{value / unit:.4g}{letter}"
    return f"{value:.4g}".replace("-", "−")


def _scale(axis: Axis, values: Sequence[float], start: float, stop: float) -> Scale:
    low = min(values) if axis.low is None else axis.low
    high = max(values) if axis.high is None else axis.high
    if high <= low:  # a range that is a point
        pad = abs(low) * 0.1 or 1.0
        low, high = low - pad, high + pad
    return Scale(low, high, start, stop, axis.log)


# ---- what is drawn ---------------------------------------------------------------------------------------------------


class _Area:
    """The frame of one plot, from (LEFT, TOP) to (right, bottom), and what is drawn in it."""

    def __init__(self, series: Sequence[Series], x: Axis, y: Axis, right: float, bottom: float) -> None:
        self.series, self.x, self.y, self.right, self.bottom = series, x, y, right, bottom
        points = [point for each in series for point in each.points] or [(1.0, 1.0)]
        self.across = _scale(x, [x for x, _ in points], LEFT, right)
        self.up = _scale(y, [y for _, y in points], bottom - 6, TOP + 6)

    def frame(self) -> Iterator[str]:
        """Draw the grid, the ticks and the title of the x axis."""
        across, up, right, bottom = self.across, self.up, self.right, self.bottom
        find = log_ticks if up.log else ticks
        yield f'<path class="grid" d="M{LEFT:g},{bottom:g} H{right:.1f}"/>'
        for y in find(up.low, up.high):
            place = up(y)
            yield f'<path class="grid" d="M{LEFT:g},{place:.1f} H{right:.1f}"/>'
            yield f'<text class="tick" x="{LEFT - 7:g}" y="{place + 4:.1f}" text-anchor="end">{short(y)}</text>'
        xs = log_ticks(across.low, across.high) if across.log else None
        for x in xs or ticks(across.low, across.high, whole=self.x.whole):
            place = f'x="{across(x):.1f}" y="{bottom + 16:g}"'
            yield f'<text class="tick" {place} text-anchor="middle">{short(x)}</text>'
        place = f'x="{(LEFT + right) / 2:.1f}" y="{bottom + 34:g}"'
        yield f'<text class="axis" {place} text-anchor="middle">{escape(self.x.title)}</text>'

    def drawn(self, *, hover: bool = False) -> Iterator[str]:
        """Draw all series, faint ones first, so that the others lie on top."""
        for series in sorted(self.series, key=lambda each: not each.faint):
            places = [(self.across(x), self.up(y), x, y) for x, y in series.points]
            yield f"<g {_colour(series)}>"
            if series.marker is not None:
                yield from (_marked(series.marker, x, y) for x, y, _, _ in places)
            else:
                path = " ".join(
                    f"{'L' if i else 'M'}{x:.1f},{y:.1f}" for i, (x, y, _, _) in enumerate(places)
                )
                yield f'<path class="curve{_line_class(series)}{"" if hover else " thin"}" d="{path}"/>'
                if len(places) == 1:
                    yield _marked("circle", *places[0][:2])
            if series.mark is not None:
                x, y = self.across(series.mark[0]), self.up(series.mark[1])
                yield f'<circle class="dot best" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>'
            if hover and not series.faint:
                name = escape(series.name)
                for x, y, value, height in places[:: max(1, math.ceil(len(places) / _HOVERS))]:
                    numbers = f"<title>{name} at {short(value)}: {height:.4g}</title>"
                    yield f'<circle class="hover" cx="{x:.1f}" cy="{y:.1f}" r="8">{numbers}</circle>'
            yield "</g>"

    def clipped(self, parts: Iterator[str]) -> Iterator[str]:
        """Cut off what lies outside the frame: an <svg> in an <svg> does."""
        box = (LEFT, TOP - 4, self.right - LEFT, self.bottom - TOP + 4)
        x, y, width, height = (f"{value:g}" for value in box)
        yield f'<svg x="{x}" y="{y}" width="{width}" height="{height}" viewBox="{x} {y} {width} {height}">'
        yield from parts
        yield "</svg>"

    def labels(self, series: Sequence[Series]) -> Iterator[str]:
        """Write names right of the frame where their curves end, moved apart where they would overlap."""
        ends = sorted((self.up(each.points[-1][1]), i) for i, each in enumerate(series))
        places: list[float] = []
        for want, _ in ends:
            places.append(max(want, places[-1] + _LABEL_HEIGHT if places else TOP + 4))
        limit = self.bottom
        for i in reversed(range(len(places))):  # push up what fell below the frame, and what that meets
            places[i] = min(places[i], limit)
            limit = places[i] - _LABEL_HEIGHT
        for (_, i), y in zip(ends, places, strict=True):
            place = f'x="{self.right + 9:.1f}" y="{y + 4:.1f}"'
            yield f'<text class="label" {_colour(series[i])} {place}>{escape(series[i].name)}</text>'


def _colour(series: Series) -> str:
    return f'style="--run: var(--run{series.colour % COLOURS})"'


def line_kind(colour: int) -> str:
    """Return the classes that tell lines of equal colour apart, to be appended to others."""
    return ("", " dashed", " dotted")[min(colour // COLOURS, 2)]


def _line_class(series: Series) -> str:
    return (" faint" if series.faint else "") + line_kind(series.colour)


def _marked(marker: Marker, x: float, y: float) -> str:
    if marker == "circle":
        return f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'
    kind, path = _MARKERS[marker]
    return f'<path class="{kind}" d="M{x:.1f},{y:.1f} {path}"/>'


def _key(series: Series, x: float, y: float, *, limit: int | None = None) -> Iterator[str]:
    """Write an entry of a legend: a sample of the line or marker, and the name, squeezed if it has too many letters."""
    line = f'<path class="curve thin{_line_class(series)}" d="M{x:g},{y:g} h20"/>'
    sample = line if series.marker is None else _marked(series.marker, x + 10, y)
    yield f"<g {_colour(series)}>{sample}</g>"
    narrow = ""
    if limit is not None and len(series.name) > limit:
        narrow = f' textLength="{_LETTER * limit:g}" lengthAdjust="spacingAndGlyphs"'
    yield f'<text class="key" x="{x + 27:g}" y="{y + 4.5:g}"{narrow}>{escape(series.name)}</text>'


def _described(series: Sequence[Series], x_title: str) -> str:
    """Say in words where each curve begins, ends and is best, for screen readers."""
    parts = []
    for each in series:
        (x0, y0), (x1, y1) = each.points[0], each.points[-1]
        best = f", best {each.mark[1]:.4g} at {short(each.mark[0])}" if each.mark else ""
        parts.append(f"{each.name}: {y0:.4g} at {short(x0)}, {y1:.4g} at {short(x1)}{best}")
    return f"By {x_title}. " + ". ".join(parts) + "."


def _svg(
    title: str,
    description: str,
    width: float,
    height: float,
    body: Sequence[str],
    *,
    standalone: bool = False,
) -> str:
    size = f' width="{width:g}" height="{height:g}" xmlns="http://www.w3.org/2000/svg"' if standalone else ""
    inner = "\n".join(body)
    return (
        f'<svg class="chart" role="img"{size} viewBox="0 0 {width:g} {height:g}">\n<title>{escape(title)}</title>\n'
        f"<desc>{escape(description)}</desc>\n{inner}\n</svg>"
    )

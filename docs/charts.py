"""Charts of the result files, as small SVG files in docs/results/ that follow the reader's light or dark scheme; those
with curves are drawn by benchmarks/plots.py.

`python docs/tables.py` writes them together with the tables, and `--check` compares them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from figures import RESULTS, results, rows
from quality_tables import lm_rows_of, variants
from speed_tables import EQUAL, SHOWN, cpu_ratio, gpu_ratio

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))
from plots import classifiers, language_models, roofline

WIDTH, LEFT, RIGHT, LINE = 720, 210, 64, 22

STYLE = """\
.rrnn-chart{color-scheme:light dark}
.rrnn-chart text{font:13px system-ui,sans-serif;fill:#1b1b1b;stroke:#fff;stroke-width:3px;paint-order:stroke}
.rrnn-chart .paper{fill:#fff}
.rrnn-chart .title{font-weight:600}
.rrnn-chart .small{font-size:11px;fill:#666}
.rrnn-chart .grid{stroke:#ddd}
.rrnn-chart .base{stroke:#1b1b1b;stroke-width:1.5px}
.rrnn-chart .ours{fill:#c2330f;stroke:#c2330f}
.rrnn-chart .more{fill:#2f6db3;stroke:#2f6db3}
.rrnn-chart .theirs{fill:none;stroke:#555;stroke-width:2px}
@media (prefers-color-scheme:dark){
.rrnn-chart text{fill:#e6e6e6;stroke:#16181d}
.rrnn-chart .paper{fill:#16181d}
.rrnn-chart .small{fill:#aaa}
.rrnn-chart .grid{stroke:#3a3d45}
.rrnn-chart .base{stroke:#e6e6e6}
.rrnn-chart .ours{fill:#ff8a66;stroke:#ff8a66}
.rrnn-chart .more{fill:#7ab0ee;stroke:#7ab0ee}
.rrnn-chart .theirs{stroke:#bbb}
}"""


class Axis(NamedTuple):
    """The horizontal axis: its range, the values that get a line, and how one is written."""

    low: float
    high: float
    ticks: Sequence[float]
    unit: str = ""
    logarithmic: bool = False

    def place(self, value: float) -> float:
        low, high, value = (
            (math.log(x) for x in (self.low, self.high, value))
            if self.logarithmic
            else (self.low, self.high, value)
        )
        return LEFT + (WIDTH - LEFT - RIGHT) * (value - low) / (high - low)


class Line(NamedTuple):
    """One line of a chart: its label and its marks, as (class, value). A line without marks is a heading."""

    label: str
    marks: tuple[tuple[str, float], ...] = ()


def speed() -> str:
    """Draw how many times as fast as an LSTM the layers are."""
    models = rows("lm-h200", cell="F")
    lines = [
        Line("Layers on an H200, equal hidden size, bf16, both in CUDA graphs (512×32×1024)"),
        *(Line(n, (("ours", gpu_ratio(n, "bfloat16", "graph_ratio")),)) for n in SHOWN),
        Line("Layers on an H200, equal hidden size, fp32 (512×32×1024)"),
        *(Line(n, (("ours", gpu_ratio(n, "float32")),)) for n in SHOWN),
        Line("Language models on an H200, equal parameters, whole training steps, bf16"),
        *(Line(f"RRNN(F), {r['name'].split()[-1]} parameters", (("ours", r["ratio"]),)) for r in models),
        Line("Layers on two CPU cores, equal hidden size (35×32×650)"),
        *(Line(n, (("ours", cpu_ratio(n, "nn.LSTM")),)) for n in SHOWN),
        Line("Layers on two CPU cores, equal parameters (35×32×650)"),
        *(Line(n, (("ours", cpu_ratio(n, EQUAL)),)) for n in SHOWN),
    ]
    axis = Axis(0.8, 30, (1, 2, 5, 10, 20), "×", logarithmic=True)
    title = "Speed, forward and backward: the time of an LSTM divided by ours (1× is as fast as the LSTM)"
    return _chart(title, axis, lines, _bar, note="sizes are time × batch × features; the axis is logarithmic")


def perplexity() -> str:
    """Draw the test perplexities on the Penn Treebank beside the paper's."""
    lines, found = [], rows("lm-ptb/table")
    for millions in (10, 24):
        lines.append(Line(f"{millions}M parameters"))
        here = [r for r in found if round(r["params"] / 1e6) == millions and r["test_ppl"]]
        for model in dict.fromkeys(r["model"] for r in here):
            for name, ours in variants(here, model):
                marks = []
                for recipe, kind in (("averaged", "ours"), ("literal", "more")):
                    found_here = [r["test_ppl"] for r in lm_rows_of(ours, millions, recipe)]
                    marks += [(kind, sum(found_here) / len(found_here))] if found_here else []
                label = name.replace("gate of the authors' code", "code's gate")
                lines.append(Line(label, (*marks, ("theirs", ours[0]["paper_test"]))))
    axis = Axis(58, 84, range(60, 84, 5))
    return _chart(
        "Penn Treebank: test perplexity (lower is better)",
        axis,
        lines,
        _dots,
        {"ours": "ours, our recipe", "more": "ours, the paper's recipe", **PAPER},
    )


def accuracy() -> str:
    """Draw the test accuracies of the text classifiers beside the paper's."""
    lines, found = [], rows("classify/table")
    for data in ("sst", "subj", "cr"):
        lines.append(Line(data))
        for model in dict.fromkeys(r["model"] for r in found):
            here = {r["label"]: r for r in found if (r["dataset"], r["model"]) == (data, model)}
            base, more = here["averaged"], here["averaged-reviews"]
            marks = ("ours", base["mean"]), ("more", more["mean"]), ("theirs", base["paper"])
            lines.append(Line(model, marks))
    keys = {"ours": "ours, GloVe vectors", "more": "ours, with letters and vectors from reviews", **PAPER}
    title = "Text classification: test accuracy in per cent (higher is better)"
    return _chart(title, Axis(78, 97, range(80, 97, 5)), lines, _dots, keys)


PAPER = {"theirs": "the paper's"}
CHARTS: dict[str, Callable[[], str]] = {
    "speed.svg": speed,
    "perplexity.svg": perplexity,
    "accuracy.svg": accuracy,
    "lm-ptb/curves.svg": lambda: language_models(RESULTS / "lm-ptb"),
    "lm-ptb/tried.svg": lambda: language_models(RESULTS / "lm-ptb" / "tried"),
    "classify/curves.svg": lambda: classifiers(RESULTS / "classify"),
    "kernels-h200.svg": lambda: roofline(results("kernels-h200") or {}),
}
"""File below docs/results → the function that draws it."""


def _chart(
    title: str,
    axis: Axis,
    lines: Iterable[Line],
    draw: Callable[[Axis, float, Line], Iterator[str]],
    keys: dict[str, str] | None = None,
    note: str = "",
) -> str:
    body, y = [], 34.0
    if keys:
        x = 16.0
        for kind, words in keys.items():
            body += [f'<circle class="{kind}" cx="{x}" cy="{y + 10}" r="5"/>', _text(x + 11, y + 14, words)]
            x += 40 + 7.2 * len(words)
        y += LINE + 4
    top = y
    for line in lines:
        if line.marks:
            body += [_text(LEFT - 12, y + 15, line.label, anchor="end"), *draw(axis, y, line)]
        else:
            y += 8
            body.append(_text(12, y + 15, line.label, kind="title"))
        y += LINE
    grid = []
    for value in axis.ticks:
        x = axis.place(value)
        kind = "base" if axis.logarithmic and value == 1 else "grid"
        grid.append(f'<line class="{kind}" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{y + 4}"/>')
        grid.append(_text(x, y + 18, f"{value:g}{axis.unit}", "small", "middle"))
    height = y + (42 if note else 26)
    foot = [_text(12, y + 36, note, "small")] if note else []
    described = "; ".join(
        f"{line.label}: {', '.join(f'{v:.1f}' for _, v in line.marks)}" for line in lines if line.marks
    )
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="rrnn-chart" role="img" width="{WIDTH}" '
            f'height="{height:g}" viewBox="0 0 {WIDTH} {height:g}">',
            f"<title>{escape(title)}</title>",
            f"<desc>{escape(described)}</desc>",
            f"<style>{STYLE}</style>",
            f'<rect class="paper" width="{WIDTH}" height="{height:g}" rx="6"/>',
            _text(12, 22, title, "title"),
            *grid,
            *body,
            *foot,
            "</svg>\n",
        )
    )


def _bar(axis: Axis, y: float, line: Line) -> Iterator[str]:
    """Draw a bar from 1 to the value, with the value at its end."""
    ((kind, value),) = line.marks
    start, end = sorted((axis.place(1), axis.place(value)))
    yield f'<rect class="{kind}" x="{start:.1f}" y="{y + 4}" width="{end - start:.1f}" height="{LINE - 8}"/>'
    x = max(axis.place(value), axis.place(1)) + 6
    yield _text(x, y + 15, f"{value:.2f}{axis.unit}" if value < 4 else f"{value:.1f}{axis.unit}")


def _dots(axis: Axis, y: float, line: Line) -> Iterator[str]:
    """Draw a circle for each value, joined by a line."""
    places = [axis.place(value) for _, value in line.marks]
    middle = y + LINE / 2
    yield f'<line class="grid" x1="{min(places):.1f}" y1="{middle}" x2="{max(places):.1f}" y2="{middle}"/>'
    for (kind, _), x in zip(line.marks, places, strict=True):
        yield f'<circle class="{kind}" cx="{x:.1f}" cy="{middle}" r="5"/>'


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "") -> str:
    more = (f' class="{kind}"' if kind else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(words)}</text>'

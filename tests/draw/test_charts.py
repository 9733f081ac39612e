"""Curves: points where they belong, round numbers beside them, names that do not overlap."""

from __future__ import annotations

import itertools
import math
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrnn.draw.charts import HEIGHT, WIDTH, Axis, Panel, Series, chart, figure, log_ticks, short, ticks

NUMBERS = st.floats(-1e6, 1e6).filter(lambda value: value == 0 or abs(value) > 1e-6)


def parsed(svg: str) -> ET.Element:
    return ET.fromstring(svg.replace("var(--", "(--"))


def path_of(svg: str, which: int = 0) -> list[tuple[float, float]]:
    d = [e.get("d", "") for e in parsed(svg).iter("path") if "curve" in e.get("class", "")][which]
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([-\d.]+),([-\d.]+)", d)]


def tick_places(svg: str, anchor: str) -> dict[float, float]:
    """value → x (anchor middle) or y (anchor end) of its tick."""
    found = {}
    for e in parsed(svg).iter("text"):
        if e.get("class") == "tick" and e.get("text-anchor") == anchor:
            text = (e.text or "").replace("−", "-").replace("k", "e3").replace("M", "e6")
            found[float(text)] = float(e.get("x" if anchor == "middle" else "y", "nan"))
    return found


@pytest.mark.parametrize("log", [False, True])
def test_points_lie_where_the_ticks_say(log: bool) -> None:
    points = [(1.0, 900.0 if log else 4.0), (2.0, 200.0 if log else 3.0), (4.0, 60.0 if log else 2.5)]
    svg = chart([Series("a", 0, points)], title="t", x_title="epoch", whole=True)
    bend = math.log if log else float
    for axis, anchor in ((0, "middle"), (1, "end")):
        known = sorted(tick_places(svg, anchor).items())
        (v0, p0), (v1, p1) = known[0], known[-1]
        for point, place in zip(points, path_of(svg), strict=True):
            value = bend(point[axis]) if axis else point[axis]
            low, high = (bend(v0), bend(v1)) if axis else (v0, v1)
            expected = (
                p0 + (value - low) / (high - low) * (p1 - p0) - (4 if axis else 0)
            )  # text sits 4 below its line
            assert place[axis] == pytest.approx(expected, abs=0.3)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=6), st.booleans())
def test_nothing_leaves_the_picture(points: list[tuple[float, float]], whole: bool) -> None:
    points = [(abs(x), y) for x, y in points]
    svg = chart([Series("a", 0, points, points[0])], title="t", x_title="x", whole=whole)
    for x, y in path_of(svg):
        assert 0 <= x <= WIDTH and 0 <= y <= HEIGHT
    assert "nan" not in svg and "inf" not in svg


@given(NUMBERS, st.floats(1e-5, 1e6), st.booleans())
def test_ticks_are_few_and_inside(low: float, width: float, whole: bool) -> None:
    high = low + width
    found = ticks(low, high, whole=whole)
    assert len(found) <= 6 and found == sorted(set(found))
    slack = 1e-6 * max(width, abs(low), abs(high))
    assert all(low - slack <= tick <= high + slack for tick in found)
    if whole:
        assert all(tick == round(tick) for tick in found)
    elif width > 1e-6 * abs(low):
        assert len(found) >= 2


@given(st.floats(1e-6, 1e6), st.floats(4.001, 1e9))
def test_log_ticks_are_few_and_inside(low: float, factor: float) -> None:
    found = log_ticks(low, low * factor)
    assert 1 <= len(found) <= 6
    assert all(low * 0.99 <= tick <= low * factor * 1.01 for tick in found)


def test_names_do_not_overlap() -> None:
    curves = [Series(f"run{i}", i, [(1.0, 5.0), (2.0, 3.0 + i / 1000)]) for i in range(8)]
    svg = chart(curves, title="t", x_title="epoch")
    labels = [e for e in parsed(svg).iter("text") if e.get("class") == "label"]
    places = sorted(float(e.get("y", "nan")) for e in labels)
    assert len(places) == 8 and all(b - a >= 13.5 for a, b in itertools.pairwise(places))
    assert places[0] > 0 and places[-1] <= HEIGHT
    many = chart([Series("x", i, [(1.0, 1.0 + i)]) for i in range(9)], title="t", x_title="epoch")
    assert 'class="label"' not in many and "dashed" in many


def test_what_is_heard() -> None:
    points = [(1.0, 9.5), (2.0, 7.25)]
    svg = chart(
        [Series("<a>", 0, points, (2.0, 7.25)), Series("empty", 1, [])], title="dev & co", x_title="epoch"
    )
    root = parsed(svg)
    assert (root.findtext("title"), root.get("role")) == ("dev & co", "img")
    assert root.findtext("desc") == "By epoch. <a>: 9.5 at 1, 7.25 at 2, best 7.25 at 2."
    hovers = [e.findtext("title") for e in root.iter("circle") if e.get("class") == "hover"]
    assert hovers == ["<a> at 1: 9.5", "<a> at 2: 7.25"]
    assert chart([Series("empty", 0, [])], title="t", x_title="x") == ""


def test_many_epochs_have_few_hovers() -> None:
    svg = chart([Series("a", 0, [(float(i), 1.0 + i) for i in range(1, 501)])], title="t", x_title="epoch")
    assert svg.count('class="hover"') <= 60 and len(path_of(svg)) == 500


def test_short_numbers() -> None:
    assert [short(v) for v in (0, 0.25, -3, 9999, 15000, 2e6, 3e9)] == [
        "0",
        "0.25",
        "−3",
        "9999",
        "15k",
        "2M",
        "3G",
    ]


# ---- figures --------------------------------------------------------------------------------------------------------

POINTS = [(1.0, 100.0), (10.0, 1000.0)]
PANEL = Panel(
    [Series("<a>", 0, POINTS), Series("b", 9, POINTS, marker="up")], Axis("x & y", log=True), Axis("%")
)


def test_a_figure_is_a_file_of_its_own() -> None:
    text = figure([PANEL] * 3, title="T < U", columns=2, width=300, height=200, legend=PANEL.series)
    root = ET.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg" and float(root.get("width", 0)) == 600
    assert "<title>T &lt; U</title>" in text and "--run0" in text and "prefers-color-scheme" in text
    assert text.count("&lt;a&gt;") == 2 and text.count(">x &amp; y<") == 3  # the legend and the description
    assert not re.search(r"https?://(?!www\.w3\.org/)", text)


def test_panels_list_their_series() -> None:
    many = Panel([Series(f"run {i}", i, POINTS) for i in range(20)], Axis(log=True), Axis(), legend=True)
    text = figure([many], title="t", height=100)
    rows = [float(y) for y in re.findall(r'<text class="key" x="[\d.]+" y="([\d.]+)">', text)]
    assert len(rows) == 20 and all(b - a >= 16 for a, b in itertools.pairwise(rows))
    assert rows[-1] < float(ET.fromstring(text).get("height", 0))
    assert "dashed" in text.split("</style>")[1] and "dotted" in text.split("</style>")[1]


def test_limits_cut_off() -> None:
    """What lies outside is in the file, inside an <svg> that ends at the frame."""
    narrow = Panel(PANEL.series, PANEL.x, Axis(low=150.0, high=400.0))
    root = ET.fromstring(figure([narrow], title="t"))
    (inner,) = (e for g in root.iter("{http://www.w3.org/2000/svg}g") for e in g if e.tag.endswith("}svg"))
    assert (float(inner.get("y", 0)), float(inner.get("height", 0))) == (8.0, HEIGHT - 38 - 8)
    assert len(list(inner.iter("{http://www.w3.org/2000/svg}path"))) == 3


def test_a_panel_without_points() -> None:
    assert "nan" not in figure([Panel([Series("a", 0)], Axis(), Axis())], title="t")

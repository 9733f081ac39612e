"""The SVG and dot texts."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import rrnn
from rrnn.draw import SVG, Diagram, Edge, Node, diagram_of, to_dot, to_svg
from rrnn.draw.geometry import LINE, RING, line_sizes, node_shapes
from rrnn.draw.paper_figures import FIGURES
from rrnn.draw.richtext import roman, width
from rrnn.errors import AutomatonError, FormatError
from rrnn.wfsa import WFSA
from rrnn.zoo import CELLS, get_cell
from rrnn.zoo.paper_automata import automaton_f

NS = "{http://www.w3.org/2000/svg}"


def machine() -> WFSA:
    mu, phi = {"a": 0.5, "b": -0.25}, {"a": 2 / 3, "b": 0.9}
    return automaton_f("ab", mu, phi, mu, phi, 0.3, 0.5, 0.75)


@pytest.mark.parametrize("name", ["F", "B-max-plus", "ngram4"])
def test_golden_cells(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"draw/{name}.svg", to_svg(get_cell(name)))
    golden(f"draw/{name}.dot", to_dot(get_cell(name)))


@pytest.mark.parametrize("name", FIGURES)
def test_golden_figures(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"draw/paper-{name}.svg", to_svg(FIGURES[name]()))


def test_golden_wfsa(golden: Callable[[str, str], None]) -> None:
    golden("draw/wfsa.svg", to_svg(machine(), highlight=["q0", ("q0", "q1"), "q1"]))
    golden("draw/wfsa.dot", to_dot(machine()))


def texts(svg: str) -> list[str]:
    return ["".join(element.itertext()) for element in ET.fromstring(svg).iter(f"{NS}text")]


@pytest.mark.parametrize("name", CELLS)
def test_well_formed_and_described(name: str) -> None:
    root = ET.fromstring(to_svg(get_cell(name)))
    assert root.get("role") == "img"
    assert root[0].tag == f"{NS}title" and root[1].tag == f"{NS}desc"
    assert get_cell(name).name in (root[0].text or "")
    assert "state q₀, initial" in (root[1].text or "")


def test_what_is_drawn() -> None:
    root = ET.fromstring(to_svg(FIGURES["F"]()))
    circles = list(root.iter(f"{NS}circle"))
    assert len(circles) == 6  # four states, two of them twice
    assert [c.get("class") for c in circles].count("state initial") == 1
    paths = [p.get("class") for p in root.iter(f"{NS}path")]
    assert paths.count("arc") == paths.count("head") == 7
    assert set(texts(to_svg(FIGURES["F"]()))) == {
        *("∀α/1", "α/μ1(α)", "α/μ2(α)", "α/φ1(α)", "α/φ2(α)", "ε/γ"),
        *("q0", "q1/ρ1", "q2/ρ2", "q3"),
    }


def test_a_family_is_a_stack_that_hides_what_lies_below() -> None:
    """The lower outlines come before the arcs, and all are filled, so that no line crosses the uppermost one."""
    root = ET.fromstring(to_svg(get_cell("Mamba")))
    kinds = [e.get("class") for e in root.iter() if e.get("class") not in (None, "rrnn-fsa", "paper")]
    assert kinds[:2] == ["state solid"] * 2 and kinds[2] == "arc"
    assert kinds.count("state solid") == 3 and kinds.index("head") < kinds.index("state solid", 2)
    assert ".rrnn-fsa .solid{fill:#fff}" in to_svg(get_cell("Mamba"))


def test_the_read_out_of_a_family_fits_into_its_outline() -> None:
    for name in ("Mamba", "GLA", "DeltaNet", "S4D"):
        diagram = diagram_of(get_cell(name))
        for node in diagram.nodes:
            shape, lines = node_shapes(diagram)[node.key], diagram.lines(node)
            sizes = line_sizes(lines)
            if len(lines) > 1:
                low = (LINE * sum(sizes) - 0.2 * sizes[0]) / 2
                reach = (
                    shape.stretch + ((shape.radius - RING) ** 2 - low**2) ** 0.5
                )  # of the inner outline there
                assert width(lines[-1], sizes[-1]) / 2 + 2 < reach


def test_everything_is_inside() -> None:
    for svg in (to_svg(get_cell("F")), to_svg(machine())):
        root = ET.fromstring(svg)
        x, y, w, h = map(float, (root.get("viewBox") or "").split())
        for circle in root.iter(f"{NS}circle"):
            cx, cy, r = (float(circle.get(k) or "nan") for k in ("cx", "cy", "r"))
            assert x < cx - r and cx + r < x + w and y < cy - r and cy + r < y + h
        for text in root.iter(f"{NS}text"):
            assert x < float(text.get("x") or "nan") < x + w and y < float(text.get("y") or "nan") < y + h


def test_self_contained_for_light_and_dark() -> None:
    svg = to_svg(get_cell("F"))
    assert "prefers-color-scheme:dark" in svg
    assert svg.count("http") == 1  # the name space, which nobody fetches
    assert "font-family:serif" in svg
    rules = svg.split("<style>")[1].split("</style>")[0].replace("@media (prefers-color-scheme:dark){", "")
    for rule in filter(str.strip, rules.replace("}\n}", "}").split("}\n")):
        assert all(part.strip().startswith(".rrnn-fsa") for part in rule.split("{")[0].split(",")), rule


HOSTILE = [
    '<script>alert("1")</script>',
    "a&b",
    '"]; evil [x="',
    "\\",
    "\\N",
    "]]>",
    "\x00\x1f\ufffe",
    "é\n字",
    "'",
]


def test_hostile_names() -> None:
    arcs = [(a, symbol, b, 1.0) for a, b in pairwise(HOSTILE) for symbol in HOSTILE[:3]]
    wfsa = WFSA(alphabet=HOSTILE, arcs=arcs, initial={HOSTILE[0]: 0.5}, final={HOSTILE[-1]: 2.0})
    svg, dot = to_svg(wfsa), to_dot(wfsa)
    root = ET.fromstring(svg)
    assert not list(root.iter(f"{NS}script")) and "<script" not in svg
    for line in dot.splitlines():  # after leaving out escaped pairs, quotes come in pairs around labels
        bare = line.replace("\\\\", "").replace('\\"', "")
        assert bare.count('"') in (0, 2)
    assert "evil" in dot and "\x00" not in dot + svg


def test_highlight() -> None:
    svg = to_svg(machine(), highlight=["q1", ("q0", "q1")])
    marked = list(ET.fromstring(svg).iter(f"{NS}g"))
    assert [g.get("class") for g in marked] == ["on", "on", "on"]  # the arc, the state, the arc's label
    assert len(list(ET.fromstring(to_svg(machine())).iter(f"{NS}g"))) == 0
    pair = WFSA(alphabet="a", arcs=[((0, 1), "a", 2, 1.0)], initial={(0, 1): 1}, final={2: 1})
    assert to_svg(pair, highlight=[(0, 1)]).count('class="on"') == 1  # a state that is a tuple
    for wrong in ("q9", ("q1", "q0"), ("q0",), 3):
        with pytest.raises(AutomatonError, match="highlight lists states and arcs"):
            to_svg(machine(), highlight=[wrong])


def test_notebooks_show_it() -> None:
    svg = rrnn.to_svg(rrnn.get_cell("B"))
    assert isinstance(svg, SVG) and svg._repr_svg_() == svg


def test_save(tmp_path: Path) -> None:
    svg = to_svg(get_cell("B"))
    assert svg.save(tmp_path / "b.svg").read_text(encoding="utf-8") == svg
    with pytest.raises(FormatError, match="cannot write the picture"):
        svg.save(tmp_path / "nowhere" / "b.svg")
    assert [p.name for p in tmp_path.iterdir()] == ["b.svg"]


def test_too_large() -> None:
    arcs = [(i, "a", i + 1, 1.0) for i in range(100)]
    wfsa = WFSA(alphabet="a", arcs=arcs, initial={0: 1}, final={100: 1})
    with pytest.raises(AutomatonError, match="at most 70 states"):
        to_svg(wfsa)
    assert to_dot(wfsa).count("->") == 100


def test_diagrams_of_ones_own() -> None:
    nodes = (Node("a", roman("a"), initial=True), Node("b", roman("b"), final=True))
    edge = Edge("a", "b", (roman("x"), roman("y")))
    assert texts(to_svg(Diagram("mine", nodes, (edge,)))) == ["a", "b", "x", "y"]
    placed = to_svg(Diagram("mine", nodes, (edge,), places={"a": (0, 0), "b": (0, 1)}))
    (a, b, _) = ET.fromstring(placed).iter(f"{NS}circle")  # b twice, below a
    assert a.get("cx") == b.get("cx") and float(a.get("cy") or 0) < float(b.get("cy") or 0)
    for wrong in (
        lambda: Diagram("no", (), ()),
        lambda: Diagram("no", (*nodes, nodes[0]), ()),
        lambda: Diagram("no", nodes, (edge, edge)),
        lambda: Diagram("no", nodes, (Edge("a", "c", ()),)),
        lambda: Diagram("no", nodes, (), places={"a": (0, 0)}),
        lambda: Diagram("no", nodes, (), places={"a": (0, 0), "b": (0, 0)}),
    ):
        with pytest.raises(AutomatonError, match="a diagram has states"):
            wrong()


def test_weights_with_gradients() -> None:
    weight = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    wfsa = WFSA(alphabet="a", arcs=[(0, "a", 1, weight)], initial={0: 1}, final={1: 1})
    assert "a/0.5" in texts(to_svg(wfsa))


def test_what_cannot_be_drawn() -> None:
    with pytest.raises(AutomatonError, match="a cell, a WFSA or a Diagram can be drawn; got int"):
        to_svg(3)  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_same_in_another_process() -> None:
    code = "import sys, rrnn; sys.stdout.buffer.write(rrnn.to_svg(rrnn.get_cell('F')).encode())"
    run = [sys.executable, "-c", code]
    for seed in ("1", "2"):
        result = subprocess.run(
            run, capture_output=True, check=True, env=os.environ | {"PYTHONHASHSEED": seed}
        )
        assert result.stdout.decode() == to_svg(get_cell("F"))

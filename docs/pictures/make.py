"""Draws the pictures of this folder again: `python docs/pictures/make.py`. A test keeps them up to date."""

from __future__ import annotations

from pathlib import Path

import rrnn
from rrnn.automata import from_text
from rrnn.draw.paper_figures import FIGURES


def pictures() -> dict[str, str]:
    """File name → SVG."""
    drawn: dict[str, str] = {}
    for name in ("B", "B-max-plus", "C", "F", "SRU", "ngram4"):
        drawn[f"{name}.svg"] = rrnn.to_svg(rrnn.get_cell(name))
    drawn["pair.svg"] = rrnn.to_svg(tutorial_cell())
    for name, figure in FIGURES.items():
        drawn[f"paper-{name}.svg"] = rrnn.to_svg(figure())
    wfsa = weather()
    path = wfsa.best_path(("walk", "shop", "clean"))
    assert path is not None
    steps = [(arc.source, arc.target) for arc in path.arcs]
    drawn["best-path.svg"] = rrnn.to_svg(wfsa, highlight=[*steps, *path.states])
    return drawn


def tutorial_cell() -> rrnn.Cell:
    """The cell that docs/tutorials/design.md designs."""
    page = (Path(__file__).parents[1] / "tutorials" / "design.md").read_text(encoding="utf-8")
    return from_text(page.split("<!-- file: pair.cell -->\n```text\n")[1].split("```")[0])


def weather() -> rrnn.WFSA:
    """Two kinds of weather, seen through what people do: the best path tells the weather."""
    move = {("rain", "rain"): 0.7, ("rain", "sun"): 0.3, ("sun", "rain"): 0.4, ("sun", "sun"): 0.6}
    act = {
        "rain": {"walk": 0.1, "shop": 0.4, "clean": 0.5},
        "sun": {"walk": 0.6, "shop": 0.3, "clean": 0.1},
    }
    arcs = [(q, a, r, p * act[r][a]) for (q, r), p in move.items() for a in act[r]]
    arcs += [("start", a, r, p * act[r][a]) for r, p in (("rain", 0.6), ("sun", 0.4)) for a in act[r]]
    return rrnn.WFSA(
        "max-times",
        alphabet=["walk", "shop", "clean"],
        arcs=arcs,
        initial={"start": 1.0},
        final={"rain": 1.0, "sun": 1.0},
    )


def main() -> None:
    for name, svg in pictures().items():
        path = Path(__file__).parent / name
        path.write_text(svg, encoding="utf-8", newline="\n")
        print(path)


if __name__ == "__main__":
    main()

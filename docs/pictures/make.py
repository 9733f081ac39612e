"""Draw the pictures of this folder: `python docs/pictures/make.py`. A test fails when one of them is out of date."""

from __future__ import annotations

from pathlib import Path

import rrnn
from rrnn.automata import from_text
from rrnn.draw.paper_figures import FIGURES
from rrnn.zoo import CELLS

SAME_SHAPE = ("SoPa4-real", "SoPa4-max-times")  # the automaton of SoPa4 over another semiring


def pictures() -> dict[str, str]:
    """Return the SVG of every picture by its path below this folder."""
    drawn: dict[str, str] = {"F.svg": rrnn.to_svg(rrnn.get_cell("F"))}
    for name in CELLS:  # docs/zoo.md prints the equations beside these, so they need no legend
        if name not in SAME_SHAPE:
            drawn[f"zoo/{name}.svg"] = rrnn.to_svg(rrnn.get_cell(name), legend=False)
    drawn["pair.svg"] = rrnn.to_svg(tutorial_cell())
    drawn["twice.svg"] = rrnn.to_svg(concatenated_cell())
    for name, figure in FIGURES.items():
        drawn[f"paper-{name}.svg"] = rrnn.to_svg(figure())
    wfsa = weather()
    path = wfsa.best_path(("walk", "shop", "clean"))
    assert path is not None
    steps = [(arc.source, arc.target) for arc in path.arcs]
    drawn["entry-map.svg"] = but_map()
    drawn["best-path.svg"] = rrnn.to_svg(wfsa, highlight=[*steps, *path.states])
    return drawn


def but_map() -> str:
    """Return the entry map in docs/interpret.md: of one unit of B that forgets at "but"."""
    page = (Path(__file__).parents[1] / "interpret.md").read_text(encoding="utf-8")
    code = page.split("<!-- picture: entry-map.svg -->\n```python\n")[1].split("```")[0]
    values: dict[str, object] = {}
    exec(code, values)
    return str(values["picture"])


def tutorial_cell() -> rrnn.Cell:
    """Return the cell that docs/tutorials/design.md designs."""
    page = (Path(__file__).parents[1] / "tutorials" / "design.md").read_text(encoding="utf-8")
    return from_text(page.split("<!-- file: pair.cell -->\n```text\n")[1].split("```")[0])


def concatenated_cell() -> rrnn.Cell:
    """Return the concatenation in docs/tutorials/compose.md."""
    first = rrnn.Cell("first").initial("a").loop("a", rrnn.one).arc("a", "b", rrnn.linear("w")).final("b")
    return rrnn.concatenate(first, rrnn.relabel(first, prefix="then_"), name="twice")


def weather() -> rrnn.WFSA:
    """Return a hidden Markov model of the weather: its best path is the most likely weather, given what people did."""
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
        path.parent.mkdir(exist_ok=True)
        path.write_text(svg, encoding="utf-8", newline="\n")
        print(path)


if __name__ == "__main__":
    main()

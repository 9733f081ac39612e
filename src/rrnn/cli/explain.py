"""`rrnn explain`: explain the predictions of a text classifier, in the terminal, as HTML or as JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from rrnn.cli.shared import check_folder_of, option, table

if TYPE_CHECKING:
    from rich.console import Console

    from rrnn.tasks.classify.explanations import Explanation, Unit

_SHOWN = 12  # the number of words in the table
_MOST = 10_000  # units, and paths of each
_MAPS = 3  # the number of heat maps on a page


@dataclass
class Explain:
    """Explain the predictions of a text classifier.

    Words are coloured by what the label's margin loses when they are deleted, and by what the paths that enter at them
    add to it. Then come the units of the first layer that add most, with the phrases that they found.
    """

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The folder of a run of `rrnn classify train`."""
    texts: Annotated[tuple[str, ...], tyro.conf.Positional, option("TEXT …")]
    """The texts to explain, in quotation marks."""
    label: Annotated[str | None, option("LABEL")] = None
    """Explain the margin of this label instead of the predicted one."""
    units: int = 5
    """The number of units to show."""
    paths: int = 3
    """The number of phrases and paths of each unit."""
    html: Annotated[Path | None, option("FILE.html")] = None
    """Write a self-contained HTML file instead of printing."""
    map: Annotated[Path | None, option("FILE.svg")] = None
    """Also draw at which words the paths of the strongest unit enter, for the output after each word."""
    json: Annotated[bool, option()] = False
    """Print one JSON object, {"explanations": [...]}."""


def explain(options: Explain) -> None:
    from rrnn.errors import DataError
    from rrnn.tasks.classify.explanations import explain as explain_text
    from rrnn.tasks.classify.trained import cell_of, classify_run, load_run

    if not options.texts:
        raise DataError('there is no text to explain. Write: rrnn explain RUN "a text in quotation marks"')
    for name in ("units", "paths"):
        if not 1 <= getattr(options, name) <= _MOST:
            raise DataError(f"--{name} must lie between 1 and {_MOST:,}; got {getattr(options, name)}")
    if options.html is not None and options.json:
        raise DataError("--html writes a page and --json prints: leave out one of them")
    if options.map is not None and len(options.texts) > 1:
        raise DataError(f"--map draws one text; got {len(options.texts)} texts. Use --html for several.")
    for file in filter(None, (options.html, options.map)):
        check_folder_of(file)
    run = classify_run(options.run)
    model = load_run(run)
    maps = _MAPS if options.html is not None else int(options.map is not None)
    how: Any = {"target": options.label, "units": options.units, "paths": options.paths, "maps": maps}
    found = [(text, explain_text(model, text, **how)) for text in options.texts]
    if options.map is not None:
        _draw(options.map, found[0][1])
    if options.html is not None:
        from rrnn.automata import Cell
        from rrnn.report import explanation_page

        cell = Cell.from_text(run.cell_text) if run.cell_text else cell_of(model.config)
        options.html.write_text(explanation_page(found, cell), encoding="utf-8")
        print(f"written: {options.html}")
    elif options.json:
        print(
            json.dumps(
                {"explanations": [each.to_json() for _, each in found]}, ensure_ascii=False, allow_nan=False
            )
        )
    else:
        from rich.console import Console

        console = Console(highlight=False)
        for i, (_, each) in enumerate(found):
            if i:
                console.print()
            _print(console, each)
        if options.map is None and len(found) == 1 and found[0][1].units:
            console.print(
                "\n--map FILE.svg draws at which words the strongest unit’s paths enter.", style="dim"
            )


def _draw(file: Path, e: Explanation) -> None:
    from rrnn.draw.heat_maps import MAX_WORDS
    from rrnn.errors import DataError

    if not e.maps:
        long = f"a map has room for {MAX_WORDS} words, and this text has {len(e.words)}"
        raise DataError(
            f"there is no map to draw: {long if e.units else 'this model has no automata inside'}."
        )
    e.maps[0].picture(e.tokens, alone=True).save(file)
    print(f"written: {file}", file=sys.stderr)


def _print(console: Console, e: Explanation) -> None:
    from rich.text import Text

    chances = ", ".join(f"{name} {p:.1%}" for name, p in e.probabilities.items())
    console.print(Text(f"{e.label}  ({chances}); the margin of {e.target} is {e.margin:+.3f}"))
    console.print(Text(f"words on green speak for {e.target}, on red against it\n"))
    _coloured(console, e, "lost without the word (exact)", [word.without for word in e.words])
    summed = all(word.adds is not None for word in e.words)
    if summed:
        title = f"added by paths that enter at the word ({e.kind})"
        _coloured(console, e, title, [w.adds or 0.0 for w in e.words])
    strongest = sorted(e.words, key=lambda word: -max(abs(word.without), abs(word.adds or 0.0)))[:_SHOWN]
    columns = {"word": [w.token if w.known else f"{w.token} (unknown)" for w in strongest]}
    if summed:
        columns["adds"] = [f"{w.adds:+.3f}" for w in strongest]
    columns["lost without"] = [f"{w.without:+.3f}" for w in strongest]
    _plain(console, table(list(columns), list(zip(*columns.values(), strict=True)), indent="  "))
    if e.unexplained is not None:
        rest = "" if e.exact else f", plus {e.unexplained:+.3f} that first order does not explain"
        console.print(
            f"  margin {e.margin:+.3f} = {e.base or 0.0:+.3f} with all scores at zero, plus what the words add{rest}"
        )
    if e.units:
        console.print("\nthe strongest units of the first layer")
        for unit in e.units:
            _plain(console, _unit(unit, e))
    if e.note:
        console.print(Text(f"\n{e.note}"))


def _coloured(console: Console, e: Explanation, title: str, values: list[float]) -> None:
    """Print the words on green if they speak for the label, on red if against it, in stronger colours the more so."""
    from rich.text import Text

    from rrnn.tasks.classify.explanations import shade

    line, largest = Text("  "), max(map(abs, values), default=0.0)
    for word, value in zip(e.words, values, strict=True):
        strength = shade(value, largest)
        faded = round(235 - 135 * strength)
        colour = f"rgb({faded},235,{faded})" if value > 0 else f"rgb(235,{faded},{faded})"
        line.append(word.token, style=f"black on {colour}" if strength > 0.05 else "")
        line.append(" ")
    console.print(title)
    console.print(line)
    console.print()


def _unit(unit: Unit, e: Explanation) -> str:
    back = ", backward" if unit.direction == "backward" else ""
    covered = "" if unit.covered is None else f"  (covers {unit.covered:.0%} of the total path weight)"
    several = isinstance(unit.score, tuple)
    return "\n".join(
        [
            f"  unit {unit.unit} ({unit.cell}{back}): adds {unit.adds:+.3f} ({e.kind}), "
            f"score {_weight(unit.score)}; high {'outputs' if several else 'scores'} speak "
            f"{'for' if unit.slope > 0 else 'against'} {e.target}",
            *([] if several else [f"    finds  {_listed([(p.text, p.weight) for p in unit.phrases])}"]),
            f"    keeps  {_listed([(p.text, p.weight) for p in unit.paths])}{covered}",
        ]
    )


def _listed(found: list[tuple[str, Any]]) -> str:
    return "  ·  ".join(f"{text or '∅'} {_weight(weight)}" for text, weight in found) or "nothing"


def _weight(weight: Any) -> str:
    if isinstance(weight, tuple):
        return f"⟨{', '.join(f'{x:+.3f}' for x in weight)}⟩"
    return f"{weight:+.3f}"


def _plain(console: Console, text: str) -> None:
    """Print a text as it is: the user's words may contain what rich would take for markup."""
    console.print(text, markup=False)

"""Write HTML pages from templates: reports on runs, and explained predictions.

A page is one file that needs nothing but a browser: no network, no scripts, light and dark. Templates escape every
value; only pictures, which this package draws itself, are passed on as markup.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from rrnn import __version__
from rrnn.automata import Cell
from rrnn.draw import to_svg
from rrnn.draw.charts import COLOURS, STYLE, line_kind
from rrnn.draw.heat_maps import HEAT_STYLE
from rrnn.report.run_summaries import RunSummary, read_runs
from rrnn.report.sections import Section
from rrnn.semirings.semiring import Element
from rrnn.tasks.checkpoints import write_atomic
from rrnn.tasks.classify.explanations import Explanation, shade

SMALLEST_SHOWN = 0.03
"""In a report, numbers behind words are left out where they are smaller than this share of the largest one."""


def write_report(folders: Sequence[str | Path], file: str | Path) -> Path:
    """Write the report on the runs in these folders, whole or not at all."""
    text = report_page(folders)
    write_atomic(Path(file), text.encode())
    return Path(file)


def report_page(folders: Sequence[str | Path]) -> str:
    """Return the report on the runs in these folders as HTML. Runs of one task and data stand side by side."""
    runs = read_runs(folders)
    groups: dict[tuple[str, ...], list[RunSummary]] = {}
    for run in runs:
        groups.setdefault((run.kind.title, run.data, str(run.run.config.get("data"))), []).append(run)
    sections = [Section(f"{kind} on {data}", group) for (kind, data, _), group in groups.items()]
    title = f"Report on {runs[0].name}" if len(runs) == 1 else f"Report on {len(runs)} runs"
    return _render(
        "report.html",
        title=title,
        sections=sections,
        smallest_shown=SMALLEST_SHOWN,
        next_steps=next_steps(runs),
    )


def next_steps(runs: Sequence[RunSummary]) -> list[tuple[str, str]]:
    """Return commands that go on from these runs, each with what it does."""
    steps = []
    # Of several runs of a task the first of the best, if any has finished an epoch, so that what follows works.
    models: dict[str, RunSummary] = {}
    for run in runs:
        task, known = run.run.config["task"], models.get(run.run.config["task"])
        if run.dev is not None and (
            known is None or run.kind.best([run.dev, known.dev or run.dev]) != known.dev
        ):
            models[task] = run
    if run := models.get("classify"):
        folder = shlex.quote(str(run.run.folder))
        steps.append((f'rrnn explain {folder} "your own sentence"', "Explain a prediction, word by word."))
        parent = shlex.quote(str(run.run.folder.parent))
        steps.append(
            (f"rrnn explore --runs {parent}", "Do the same on a page: see paths light up in automata.")
        )
    if run := models.get("lm"):
        folder = shlex.quote(str(run.run.folder))
        steps.append((f"rrnn lm generate {folder}", "Let a language model write."))
    cell = next((run.cell for run in runs if run.cell is not None), None)
    name = "F" if cell is None else cell.name
    steps.append(("rrnn explore", f"Change the automaton of {name} and see the recurrence that follows."))
    return steps


def explanation_page(explanations: Sequence[tuple[str, Explanation]], cell: Cell | None = None) -> str:
    """Return a page of texts with their explanations as HTML, with a picture of the cell."""
    picture = None if cell is None else to_svg(cell)
    title = "Explained predictions"
    return _render("explanations.html", title=title, explanations=explanations, picture=picture)


def _render(template: str, **values: Any) -> str:
    """Return a page that UTF-8 can encode: bytes of a command line that are no text are shown as \\udcff."""
    page = _environment().get_template(template).render(values)
    return page.encode("utf-8", "backslashreplace").decode("utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("rrnn.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "duration": duration,
        "one_line": one_line,
        "percent": "{:.1%}".format,
        "shade": shade,
        "signed": signed,
    }
    environment.globals |= {
        "chart_style": f"{STYLE}\n{HEAT_STYLE}",
        "colours": COLOURS,
        "line_kind": line_kind,
        "version": __version__,
    }
    return environment


def duration(seconds: float) -> str:
    """Write a duration as 8.3 s, 2 min 05 s or 1 h 20 min."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def one_line(text: str, characters: int = 120) -> str:
    """Shorten a text to a heading."""
    text = " ".join(text.split())
    return text if len(text) <= characters else f"{text[:characters]}…"


def signed(value: Element, digits: int = 3) -> str:
    """Write a number with its sign, and an element of several components as ⟨+0.500, −0.250⟩."""
    if isinstance(value, tuple):
        return f"⟨{', '.join(signed(x, digits) for x in value)}⟩"
    text = f"{value:+.{digits}f}".replace("-", "−")
    return text if text.strip("+−0.") else text[1:]  # zero, after rounding, has no sign

"""The parts of a report that come from runs' files alone: table, curves, configuration, automata."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

from rrnn.automata import Cell
from rrnn.draw import to_svg
from rrnn.draw.charts import COLOURS, Series, chart
from rrnn.errors import AutomatonError, CellError
from rrnn.ir import lower
from rrnn.ir.equations import equations
from rrnn.report.page_runs import FACTS, Reported
from rrnn.zoo import get_model

DASH = "–"


def swatch(index: int) -> str:
    """The colour of a run; its name stands beside it."""
    dashed = " dashed" if index >= COLOURS else ""
    return (
        f'<span class="swatch{dashed}" style="--run: var(--run{index % COLOURS})" aria-hidden="true"></span>'
    )


def scrolling(table: str, label: str) -> str:
    """A wide table moves sideways by itself, by keyboard, too, and the page does not."""
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label)}">{table}</div>'


def rows_of(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: frozenset[int] = frozenset()) -> str:
    """A table of HTML cells; the first of a row is its heading."""

    def mark(i: int) -> str:
        return ' class="number"' if i in numbers else ""

    top = "".join(f'<th scope="col"{mark(i)}>{cell}</th>' for i, cell in enumerate(head))
    lines = (
        f'<tr><th scope="row">{row[0]}</th>'
        + "".join(f"<td{mark(i)}>{cell}</td>" for i, cell in enumerate(row) if i)
        + "</tr>"
        for row in rows
    )
    return f"<table>\n<thead><tr>{top}</tr></thead>\n<tbody>\n" + "\n".join(lines) + "\n</tbody>\n</table>"


# ---- results ---------------------------------------------------------------------------------------------------------


def results(runs: Sequence[Reported]) -> str:
    """The table of runs, the best number of each column marked."""
    kind = runs[0].kind
    head = [
        "run",
        "model",
        f"dev {kind.metric}",
        f"test {kind.metric}",
        "parameters",
        "layers × units",
        "epochs",
    ]
    head += ["time", kind.rate]
    dev = _column([run.best and run.best[1] for run in runs], "{:.2f}", kind.best)
    test = _column([run.test for run in runs], "{:.2f}", kind.best)
    speed = _column([run.speed for run in runs], "{:,.0f}", max)
    rows = [
        [
            f"{swatch(i)}{escape(run.name)}",
            escape(run.model),
            dev[i],
            test[i],
            DASH if run.parameters is None else f"{run.parameters:,.0f}",
            escape(run.shape),
            _epochs(run),
            DASH if run.seconds is None else duration(run.seconds),
            speed[i],
        ]
        for i, run in enumerate(runs)
    ]
    return scrolling(rows_of(head, rows, frozenset(range(2, 9))), "Results of the runs")


def _column(values: Sequence[float | None], form: str, best: Callable[[list[float]], float]) -> list[str]:
    known = [value for value in values if value is not None]
    top = best(known) if len(known) > 1 else None
    texts = [DASH if value is None else form.format(value) for value in values]
    return [
        f"<strong>{text}</strong>" if value is not None and value == top else text
        for value, text in zip(values, texts, strict=True)
    ]


def _epochs(run: Reported) -> str:
    best = f' <span class="note">best {run.best[0]:g}</span>' if run.best else ""
    return f"{len(run.records)}{best}"


def duration(seconds: float) -> str:
    """As 8.3 s, 2 min 05 s, 1 h 20 min."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def curves(runs: Sequence[Reported]) -> str:
    """How the trainings went: by epoch, and side by side also by time."""
    kind = runs[0].kind
    name = kind.metric.partition(",")[0]
    every = list(enumerate(runs))
    drawn = [
        (
            f"Dev {kind.metric}",
            "a dot marks the best epoch",
            chart(
                [Series(run.name, i, run.curve(kind.dev), run.best) for i, run in every],
                title=f"{name} on the development set, by epoch",
                x_title="epoch",
                whole=True,
            ),
        ),
        (
            "Loss",
            "training; dev is dashed",
            chart(
                [Series(run.name, i, run.curve("train_loss")) for i, run in every]
                + [Series(run.name, i, run.curve("dev_loss"), faint=True) for i, run in every],
                title="training loss, by epoch",
                x_title="epoch",
                whole=True,
            ),
        ),
    ]
    if len(runs) > 1:
        timed = [Series(run.name, i, run.by_time()) for i, run in every]
        picture = chart(timed, title=f"{name} on the development set, by time", x_title="seconds of training")
        drawn.append((f"Dev {kind.metric}, by time", "", picture))
    figures = "\n".join(
        f"<figure><figcaption><strong>{escape(title)}</strong> <span>{escape(note)}</span></figcaption>\n{svg}</figure>"
        for title, note, svg in drawn
        if svg
    )
    return (
        f'<div class="charts">\n{figures}\n</div>'
        if figures
        else '<p class="note">There is no epoch yet.</p>'
    )


# ---- configuration ---------------------------------------------------------------------------------------------------


def configuration(runs: Sequence[Reported]) -> str:
    """What differs between the runs, side by side; what they share, folded away."""
    hidden = (FACTS, "task")
    keys = dict.fromkeys(key for run in runs for key in run.run.config if key not in hidden)
    values = {key: [_value(run.run.config, key) for run in runs] for key in keys}
    differ = {key: cells for key, cells in values.items() if len(set(cells)) > 1}
    same = {key: cells[0] for key, cells in values.items() if key not in differ}
    out = []
    if differ:
        head = ["option", *(f"{swatch(i)}{escape(run.name)}" for i, run in enumerate(runs))]
        rows = ([escape(key), *map(escape, cells)] for key, cells in differ.items())
        out.append(scrolling(rows_of(head, rows), "Options that differ between the runs"))
    title = "Options that all share" if len(runs) > 1 else "All options"
    pairs = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in same.items())
    out.append(
        f'<details><summary>{title} ({len(same)})</summary>\n<dl class="options">{pairs}</dl></details>'
    )
    return "\n".join(out)


def _value(config: dict[str, Any], key: str) -> str:
    if key not in config:
        return DASH
    value = config[key]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# ---- automata --------------------------------------------------------------------------------------------------------


def automata(runs: Sequence[Reported]) -> str:
    """Every cell once, with the runs that have it; and the models that are none."""
    groups: dict[tuple[str, str], list[int]] = {}
    for i, run in enumerate(runs):
        groups.setdefault((run.model, run.run.cell_text or ""), []).append(i)
    out = []
    for (model, _), members in groups.items():
        cell = runs[members[0]].cell
        users = ", ".join(f"{swatch(i)}{escape(runs[i].name)}" for i in members)
        body = _no_cell(model) if cell is None else _automaton(cell)
        out.append(f'<article><h4>{escape(model)} <span class="users">{users}</span></h4>\n{body}</article>')
    return '<div class="automata">\n' + "\n".join(out) + "\n</div>"


def _automaton(cell: Cell) -> str:
    stored = len(lower(cell).program.states)
    facts = f"{len(cell.states)} states, {len(cell.arcs)} arcs, {cell.semiring_name}; a unit stores {_count(stored)}."
    try:
        picture = to_svg(cell, legend=False)  # the equations say it
    except AutomatonError as error:
        picture = f'<p class="note">{escape(str(error))}</p>'
    return (
        f'<div class="pair"><figure class="automaton">{picture}</figure>\n<pre class="equations" tabindex="0" '
        f'aria-label="Equations">{escape(equations(cell).rstrip())}</pre></div>\n<p class="note">{escape(facts)}</p>\n'
        f'<details><summary>As text</summary><pre tabindex="0">{escape(cell.to_text().rstrip())}</pre></details>'
    )


def _count(stored: int) -> str:
    return "one number" if stored == 1 else f"{stored} numbers"


def _no_cell(model: str) -> str:
    try:
        why = get_model(model).open or "Its units mix, so it is no cell of its own."
    except CellError:
        why = ""
    return f'<p class="note">No picture: this model is no automaton that we know of. {escape(why)}</p>'

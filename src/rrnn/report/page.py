"""`rrnn report`: runs as one HTML file that needs nothing but a browser: no network, no scripts, light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from rrnn import __version__
from rrnn.report.explain_html import STYLE
from rrnn.report.page_looks import looks
from rrnn.report.page_parts import automata, configuration, curves, results
from rrnn.report.page_runs import Reported, read_runs
from rrnn.tasks.checkpoints import write_atomic

_CSS = Path(__file__).with_name("page.css")


def write_report(folders: Sequence[str | Path], file: str | Path) -> Path:
    """Write the report on these runs, whole or not at all."""
    text = page(folders)
    write_atomic(Path(file), text.encode())
    return Path(file)


def page(folders: Sequence[str | Path]) -> str:
    """The report on these runs. Those of one task and data stand side by side."""
    runs = read_runs(folders)
    groups: dict[tuple[str, ...], list[Reported]] = {}
    for run in runs:
        groups.setdefault((run.kind.title, run.data, str(run.run.config.get("data"))), []).append(run)
    titles = [f"{kind} on {data}" for kind, data, _ in groups]
    ids = [f"group{i}" for i in range(len(groups))]
    sections = "\n".join(
        _section(title, name, group) for title, name, group in zip(titles, ids, groups.values(), strict=True)
    )
    links = zip(titles, ids, strict=True)
    contents = "".join(f'<li><a href="#{name}">{escape(title)}</a></li>' for title, name in links)
    menu = f'<nav aria-label="Contents"><ul>{contents}</ul></nav>' if len(groups) > 1 else ""
    heading = escape(f"Report on {runs[0].name}" if len(runs) == 1 else f"Report on {len(runs)} runs")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{heading}</title>\n<style>\n{STYLE}\n{_CSS.read_text(encoding='utf-8')}</style>\n</head>\n<body>\n"
        f"<header>\n<h1>{heading}</h1>\n{menu}\n</header>\n<main>\n{sections}\n</main>\n"
        f"<footer>Written by rrnn {escape(__version__)}.</footer>\n</body>\n</html>\n"
    )


def _section(title: str, name: str, runs: Sequence[Reported]) -> str:
    parts = [
        f'<section id="{name}">\n<h2>{escape(title)}</h2>',
        results(runs),
        f"<h3>Training</h3>\n{curves(runs)}",
        f"<h3>Automata</h3>\n{automata(runs)}",
        looks(runs),
        f"<h3>Configuration</h3>\n{configuration(runs)}",
        "</section>",
    ]
    return "\n".join(parts)

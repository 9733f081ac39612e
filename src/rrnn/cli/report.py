"""`rrnn report`: runs as one HTML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from rrnn.errors import RunError


@dataclass
class Report:
    """Write one HTML file about runs, which needs no network: results, curves, configuration, automata with their
    equations, explained examples and phrases of classifiers, samples of language models.

    Runs of one task on the same data stand side by side.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folders of runs that `rrnn lm train` and `rrnn classify train` made, or that hold some."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FILE.html")] = Path("report.html")
    """Where to; a file that is there is replaced."""


def report(options: Report) -> None:
    from rrnn.report import write_report  # here, so that --help does not wait for torch

    if options.output.suffix.lower() not in (".html", ".htm"):
        raise RunError(
            f"a report is an HTML file, and {options.output} is none by its name: say -o report.html"
        )
    if not options.output.parent.is_dir():  # before the work, which takes a while
        raise RunError(
            f"there is no folder {options.output.parent} to write {options.output.name} to: make it first"
        )
    print(f"written: {write_report(options.runs, options.output)}")

"""`rrnn report`: write one HTML file about runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from rrnn.cli.shared import check_folder_of, option
from rrnn.errors import RunError


@dataclass
class Report:
    """Write one HTML file about runs: results, training curves, automata with their equations, configurations,
    explained examples and phrases of classifiers, samples of language models.

    Runs of one task on the same data are compared side by side. The file needs no network.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, option("RUN …")]
    """Run folders of `rrnn lm train` and `rrnn classify train`, or folders that contain some."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FILE.html")] = Path("report.html")
    """The file to write. An existing file is replaced."""


def report(options: Report) -> None:
    """Run `rrnn report`."""
    from rrnn.report import write_report  # imported here, so that --help does not wait for torch

    if options.output.suffix.lower() not in (".html", ".htm"):
        raise RunError(
            f"a report is an HTML file; {options.output} does not end in .html. Use -o report.html"
        )
    check_folder_of(options.output)
    print(f"written: {write_report(options.runs, options.output)}")

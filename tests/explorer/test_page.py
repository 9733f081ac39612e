"""docs/explorer.md: its limits are the code's, its screenshots small; commands that the page names can be given."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from documented_code import parse_command

from rrnn.cli.explore import Explore
from rrnn.explorer import (
    classifier_runs,
    explain_tab,
    machines,
    pictures,
    score_tab,
    security,
    worker,
)
from rrnn.explorer.worker_main import MEMORY
from rrnn.zoo import CELLS, get_cell

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "explorer.md").read_text(encoding="utf-8")
STATIC = Path(worker.__file__).parent / "static"
COMMANDS = re.findall(r"<pre[^>]*>(rrnn .*?)</pre>", (STATIC / "index.html").read_text(encoding="utf-8"))


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_can_be_given(line: str) -> None:
    _, *words = shlex.split(line)
    parse_command(words)


def test_limits_are_those_of_the_code() -> None:
    assert worker.LIMITS["design"] == worker.LIMITS["score"] == 10.0 and worker.LIMITS["explain"] == 60.0
    for text in (
        f"The port is {Explore().port}",
        f"more than {worker.LIMITS['design']:.0f} s ({worker.LIMITS['explain']:.0f} s for Explain",
        f"or {MEMORY // 2**30} GB",
        f"up to {worker.WAITING} requests may be under way",
        f"{pictures.MAX_STATES} states and {pictures.MAX_ARROWS} arrows, and get {pictures.SECONDS:.0f} s",
        f"at most {security.MAX_BODY // 1024} KiB, all of it sent within {security.MAX_SECONDS:.0f} s",
        f"{machines.MAX_CELL_TEXT:,} characters, {machines.MAX_STATES} states and {machines.MAX_CELL_ARCS} arcs",
        f"WFSAs {machines.MAX_TEXT:,} characters, {machines.MAX_STATES} states, {machines.MAX_ARCS:,} arcs and "
        f"{2 * machines.MAX_ALPHABET} symbols, the paper's automata {machines.MAX_ALPHABET}",
        f"strings {machines.MAX_STRING} symbols",
        f"sentences {explain_tab.MAX_TEXT:,} characters and {explain_tab.MAX_WORDS} words",
        f"the newest {classifier_runs.MAX_RUNS}",
        f"best paths, up to {score_tab.PATHS}",
    ):
        assert text in " ".join(PAGE.split()), text


def test_pictures_are_there_and_small() -> None:
    names = re.findall(r"\((images/[\w-]+\.png)\)", PAGE)
    assert len(names) == 5
    for name in names:
        assert 0 < (DOCS / name).stat().st_size < 200_000


@pytest.mark.parametrize("name", ["math.woff2", "math-italic.woff2"])
def test_the_maths_font_is_served_from_here_and_small(client: Any, name: str) -> None:
    answer = client.get(f"/{name}")
    assert answer.status_code == 200 and answer.headers["content-type"] == "font/woff2"
    assert answer.content.startswith(b"wOF2") and len(answer.content) < 25_000
    assert "font-src 'self'" in answer.headers["content-security-policy"]
    text = (STATIC / "FONT-LICENSE.txt").read_text(encoding="utf-8")
    assert name in text and "GUST Font License" in text and "modified from TeX Gyre Termes Math" in text


def test_the_editor_colours_every_word_that_begins_a_line() -> None:
    """Also those of wide cells; `epsilon` and its like may be followed by +."""
    words = {
        line.split()[0]
        for name in CELLS
        for line in get_cell(name).to_text().splitlines()[1:]
        if line.split()[1] != "="
    }
    coloured = (STATIC / "editor.js").read_text(encoding="utf-8").split("const WORDS")[1].split("\n")[0]
    assert words >= {"family", "read", "mix", "epsilon_limit"}
    assert words <= set(re.findall(r"\w+", coloured))
